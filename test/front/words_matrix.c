/* words_matrix.c - factors of matrices from C: each is put together again, over a batch of matrices with
 * zeros, equal eigenvalues and few rows. */
#include "front/words.h"
#include "support.h"
#include <math.h>

enum { BATCH = 3, MOST = 7 };

/* Matrices [BATCH, m, n]: one of many sizes, one with a zero pivot, one with equal values. */
static ts_value *matrices(ts_graph *g, int64_t m, int64_t n)
{
    double a[BATCH * MOST * MOST];

    for (int64_t b = 0; b < BATCH; b++)
        for (int64_t i = 0; i < m; i++)
            for (int64_t j = 0; j < n; j++) {
                double x = sin((double)(7 * i + 3 * j + 1)) + (i == j ? 2 : 0);
                a[(b * m + i) * n + j] = b == 0   ? x
                                         : b == 1 ? (i == j ? i > 0 || n == 1 : x)
                                                  : 2 * (i == j);
            }
    return ts_const_n(g, TS_F64, a, 3, (int64_t[]){BATCH, m, n});
}

/* All of x and y are the same. */
static void same(ts_graph *g, ts_value *x, ts_value *y, const char *what)
{
    ts_executable *exe = NULL;
    ts_engine *e = NULL;
    double apart = -1;

    ts_output(ts_amax(ts_abs(ts_sub(x, y)), 0, NULL, false), "apart");
    assert_ok(ts_compile(g, &(ts_options){.executor = TS_EXECUTOR_REFERENCE}, &exe));
    assert_ok(ts_engine_new(exe, NULL, &e));
    assert_ok(ts_engine_run(e, NULL, (void *[]){&apart}));
    if (!(apart >= 0 && apart < 1e-12))
        fail_msg("%s is off by %g", what, apart);
    ts_engine_free(e);
    ts_executable_free(exe);
    ts_graph_free(g);
}

static ts_value *turned(ts_value *a)
{
    return ts_transpose(a, 1, 2);
}

static ts_value *scaled(ts_value *a, ts_value *columns)
{
    return ts_mul(a, ts_unsqueeze(columns, 1));
}

static void they_are_put_together_again(void **state)
{
    ts_graph *g;
    ts_value *a, *b, *l, *u, *v, *s;

    (void)state;
    for (int64_t n = 1; n <= MOST; n++) {
        g = ts_graph_new("lu");
        a = matrices(g, n, n);
        b = ts_lu(a, true, &l, &u);
        same(g, ts_matmul(b, ts_matmul(l, u)), a, "lu");

        g = ts_graph_new("solve");
        a = matrices(g, n, n);
        b = matrices(g, n, 2);
        same(g, ts_matmul(a, ts_solve(a, b, true, NULL, NULL, NULL)), b, "solve");

        g = ts_graph_new("inverse");
        a = matrices(g, n, n);
        same(g, ts_matmul(ts_inverse(a, NULL), ts_matmul(a, a)), a, "inverse");

        g = ts_graph_new("cholesky");
        a = matrices(g, n, n);
        a = ts_matmul(a, turned(a));
        l = ts_cholesky(a, false, NULL);
        same(g, ts_matmul(l, turned(l)), a, "cholesky");

        g = ts_graph_new("eigh");
        a = matrices(g, n, n);
        a = ts_add(a, turned(a));
        s = ts_eigh(a, "L", &v);
        same(g, ts_matmul(scaled(v, s), turned(v)), a, "eigh");
    }
}

static void of_any_shape(void **state)
{
    static const int64_t sizes[][2] = {{1, 4}, {5, 3}, {3, 5}, {6, 6}};

    (void)state;
    for (int i = 0; i < TS_COUNT(sizes); i++) {
        ts_graph *g = ts_graph_new("qr");
        ts_value *a = matrices(g, sizes[i][0], sizes[i][1]), *r, *s, *u;

        u = ts_qr(a, "reduced", &r);
        same(g, ts_matmul(u, r), a, "qr");
        g = ts_graph_new("svd");
        a = matrices(g, sizes[i][0], sizes[i][1]);
        u = ts_svd(a, false, &s, &r);
        same(g, ts_matmul(scaled(u, s), r), a, "svd");
    }
}

static void refused(ts_graph *g, const ts_value *y, const char *words)
{
    assert_null(y);
    assert_int_not_equal(ts_graph_check(g), TS_OK);
    if (!strstr(ts_last_error()->message, words))
        fail_msg("'%s' does not say '%s'", ts_last_error()->message, words);
    ts_graph_free(g);
}

static void what_does_not_fit_is_named(void **state)
{
    ts_graph *g = ts_graph_new("wide");

    (void)state;
    refused(g, ts_inverse(ts_input(g, "a", TS_F32, 2, 3), NULL), "no square matrix");
    g = ts_graph_new("large");
    refused(g, ts_inverse(ts_input(g, "a", TS_F32, 65, 65), NULL), "65 rows (64 at most)");
    g = ts_graph_new("long");
    refused(g, ts_svd(ts_input(g, "a", TS_F32, 3, 33), false, NULL, NULL), "33 rows and columns");
    g = ts_graph_new("apart");
    refused(g,
            ts_solve(ts_input(g, "a", TS_F32, 3, 3), ts_input(g, "b", TS_F32, 4, 2), true, NULL,
                     NULL, NULL),
            "other sizes");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(they_are_put_together_again),
        cmocka_unit_test(of_any_shape),
        cmocka_unit_test(what_does_not_fit_is_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
