/* attend.c - attention from rows to rows against the reference executor, trained: masks of all kinds, dropout, halves,
 * other lengths of keys, lengths that vectors do not fill, bands that are not full; the same bits for any
 * number of threads; and no matrix of tokens by tokens in memory.
 *
 * The machine has caches of a few kilobytes, so that few tokens have many bands. */
#include "compare.h"
#include "plan/plan.h"
#include "run/run.h"
#include "support.h"

#define SMALL                                                                                      \
    "cores=4 line=64 level1=4096 level2=16384 level3=65536 unit=32 units=2 latency=4 near=32 "     \
    "far=25 memory=1 meet=64 hertz=3.5e9"

enum { CALLS = 2, BATCH = 3, HEADS = 2 };

typedef struct form {
    const char *name;
    int64_t rows, columns, width; /* queries, keys, and features of a head */
    ts_dtype t;
    bool stored; /* somebody else reads a matrix */
} form;

/* x [batch, tokens, heads * width] through a linear layer, as heads */
static ts_value *heads(ts_value *x, const form *f, const char *name)
{
    char text[64];
    int64_t tokens = x->type.dim[1];

    snprintf(text, sizeof(text), "%s.%s", f->name, name);
    x = ts_cast(ts_linear(x, text, HEADS * f->width), f->t);
    return ts_transpose(ts_reshape(x, BATCH, tokens, HEADS, f->width), 1, 2);
}

static ts_value *hidden(ts_graph *g, const form *f, ts_value *s)
{
    const int64_t shape[] = {f->rows, f->columns};
    ts_value *i = ts_iota(g, 2, shape, 0, TS_I32), *j = ts_iota(g, 2, shape, 1, TS_I32);
    ts_init init = {TS_INIT_UNIFORM, -1, 1};

    if (!strcmp(f->name, "causal"))
        return ts_where(ts_gt(j, i), ts_scalar(g, f->t, -1e9), s);
    if (!strcmp(f->name, "infinite"))
        return ts_where(ts_gt(j, i), ts_scalar(g, f->t, -INFINITY), s);
    if (!strcmp(f->name, "padded"))
        return ts_add(s, ts_where(ts_input(g, "kpad", TS_BOOL, BATCH, 1, 1, f->columns),
                                  ts_scalar(g, f->t, 0), ts_scalar(g, f->t, -3)));
    if (!strcmp(f->name, "biased"))
        return ts_add(s, ts_param(g, "biased.bias", TS_F32, init, HEADS, f->rows, f->columns));
    return s;
}

static ts_value *attention(ts_graph *g, const form *f)
{
    char name[64];
    ts_value *x, *y, *s, *p;

    snprintf(name, sizeof(name), "x%s", f->name);
    x = ts_input(g, name, TS_F32, BATCH, f->rows, 12);
    snprintf(name, sizeof(name), "xx%s", f->name);
    y = f->rows == f->columns ? x : ts_input(g, name, TS_F32, BATCH, f->columns, 12);
    s = ts_matmul(heads(x, f, "q"), ts_transpose(heads(y, f, "k"), 2, 3));
    s = hidden(g, f, ts_mul_scalar(s, 0.3));
    p = ts_softmax(s, -1);
    if (!strcmp(f->name, "dropped"))
        p = ts_dropout(p, 0.25, true);
    if (!strcmp(f->name, "seen"))
        ts_output(p, "p");
    y = ts_cast(ts_matmul(p, heads(y, f, "v")), TS_F32);
    ts_output(y, f->name);
    return ts_sum(ts_square(y), 0, NULL, false);
}

static const form forms[] = {
    {"plain", 41, 41, 16, TS_F32, false},   {"causal", 37, 37, 5, TS_F32, false},
    {"infinite", 24, 24, 8, TS_F32, false}, {"padded", 17, 50, 8, TS_F32, false},
    {"dropped", 33, 19, 24, TS_F32, false}, {"biased", 20, 20, 8, TS_F32, true},
    {"seen", 24, 21, 21, TS_F32, true},     {"brief", 23, 40, 16, TS_BF16, false},
    {"square", 32, 32, 32, TS_F32, false},
};

static ts_graph *model(void)
{
    ts_graph *g = ts_graph_new("attention");
    ts_value *loss = NULL;

    for (int i = 0; i < TS_COUNT(forms); i++) {
        ts_value *one = attention(g, &forms[i]);
        loss = loss ? ts_add(loss, one) : one;
    }
    ts_loss(loss);
    return g;
}

static int count(const char *text, const char *what)
{
    int n = 0;

    for (; (text = strstr(text, what)); text++)
        n++;
    return n;
}

static void same(const results *p, const results *q, bool exact, const char *how)
{
    for (int i = 0; i < p->n; i++) {
        int64_t at;
        bool half = strstr(p->info[i].name, "brief");
        if (distance(p, q, i, false, &at) > (exact ? 0 : half ? 3e-2 : 1e-4))
            fail_msg("%s: %s, element %ld: %.9g, not %.9g", how, p->info[i].name, (long)at,
                     ts_dtype_get(q->info[i].dtype, q->data[i], at),
                     ts_dtype_get(p->info[i].dtype, p->data[i], at));
    }
}

static void check(ts_graph *g, const char *isa, const results *want)
{
    ts_optimizer sgd = ts_sgd(0.01);
    ts_options opt = {
        .cache_dir = "", .executor = TS_EXECUTOR_NATIVE, .isa = isa, .optimizer = &sgd};
    results one = {0}, three = {0};
    ts_executable *x;

    assert_ok(ts_compile(g, &opt, &x));
    /* one whose matrix is stored may be cheaper as it was */
    assert_true(count(ts_executable_source(x), "/* bands of ") >= 2 * TS_COUNT(forms) - 2);
    assert_ok(run_all(x, &opt, 1, CALLS, 7, 0, &one));
    assert_ok(run_all(x, &opt, 3, CALLS, 7, 0, &three));
    same(want, &one, false, isa ? isa : "native");
    same(&one, &three, true, "three threads");
    results_free(&one);
    results_free(&three);
    ts_executable_free(x);
}

static void trains(void **state)
{
    ts_optimizer sgd = ts_sgd(0.01);
    ts_options opt = {.cache_dir = "", .executor = TS_EXECUTOR_REFERENCE, .optimizer = &sgd};
    ts_graph *g = model();
    ts_executable *ref;
    results want = {0};

    (void)state;
    setenv("TESSERA_MACHINE", SMALL, 1);
    assert_ok(ts_compile(g, &opt, &ref));
    assert_ok(run_all(ref, &opt, 1, CALLS, 7, 0, &want));
    check(g, NULL, &want);
    check(g, "x86-64-v3", &want);
    results_free(&want);
    ts_executable_free(ref);
    ts_graph_free(g);
    unsetenv("TESSERA_MACHINE");
}

/* Kernels that store a matrix of these tokens. */
static int stored(const ts_program *p, const form *f)
{
    int n = 0;

    for (int k = 0; k < p->nkernels; k++)
        for (int r = 0; r < p->kernels[k]->nroots; r++) {
            const ts_type *t = &p->kernels[k]->roots[r]->type;
            n += t->rank >= 3 && t->dim[t->rank - 2] == f->rows &&
                 t->dim[t->rank - 1] == f->columns &&
                 ts_type_count(t) == BATCH * HEADS * f->rows * f->columns;
        }
    return n;
}

static void no_matrix(void **state)
{
    ts_optimizer sgd = ts_sgd(0.01);
    ts_options opt = {.cache_dir = "", .optimizer = &sgd}, apart = opt;
    ts_arena *a = ts_arena_new();
    ts_graph *g = model();
    const ts_program *p, *q;

    (void)state;
    apart.skip = "attend";
    setenv("TESSERA_MACHINE", SMALL, 1);
    assert_ok(ts_compile_plan(a, g, &opt, &p));
    assert_ok(ts_compile_plan(a, g, &apart, &q));
    for (int i = 0; i < TS_COUNT(forms); i++) {
        bool result = forms[i].columns == forms[i].width; /* which has the same shape */
        if (!forms[i].stored && !result)
            assert_int_equal(stored(p, &forms[i]), 0);
        assert_true(stored(q, &forms[i]) > 2);
    }
    assert_true(p->peak_bytes < q->peak_bytes);
    unsetenv("TESSERA_MACHINE");
    ts_graph_free(g);
    ts_arena_free(a);
}

/* However many tokens: the longer they are, the less is their matrix to be in memory. This machine's plan. */
static void long_ones(void **state)
{
    static const form all[] = {
        {"plain", 1000, 1000, 8, TS_F32, false},    {"causal", 1024, 1024, 64, TS_F32, false},
        {"plain", 77, 4096, 40, TS_F32, false},     {"plain", 4096, 77, 8, TS_F32, false},
        {"padded", 5000, 5000, 64, TS_BF16, false}, {"causal", 16384, 16384, 32, TS_F32, false}};
    ts_optimizer sgd = ts_sgd(0.01);

    (void)state;
    for (int i = 0; i < TS_COUNT(all); i++)
        for (int trained = 0; trained < 2; trained++) {
            ts_options opt = {.cache_dir = "", .optimizer = trained ? &sgd : NULL};
            ts_arena *a = ts_arena_new();
            ts_graph *g = ts_graph_new("attention");
            const ts_program *p;
            ts_value *loss = attention(g, &all[i]);
            if (trained)
                ts_loss(loss);
            assert_ok(ts_compile_plan(a, g, &opt, &p));
            if (stored(p, &all[i]))
                fail_msg("%s, %ld x %ld tokens, %s: a matrix is in memory", all[i].name,
                         (long)all[i].rows, (long)all[i].columns, trained ? "trained" : "inferred");
            ts_graph_free(g);
            ts_arena_free(a);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(trains), cmocka_unit_test(no_matrix),
                                       cmocka_unit_test(long_ones)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
