/* Convolutions by Winograd's method, of every form and edge: natively as by the reference executor,
 * and as without it. */
#include "compare.h"
#include "run/run.h"
#include "support.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

typedef struct shape {
    int64_t n, c, o, h, w, padding;
} shape;

/* Two layers, so that the second has a gradient of its input too. */
static ts_graph *net(const shape *s)
{
    ts_graph *g = ts_graph_new("net");
    ts_value *x = ts_input(g, "x", TS_F32, s->n, s->c, s->h, s->w);

    x = ts_relu(ts_conv2d(x, "one", s->o, 3, .padding = s->padding));
    x = ts_conv2d(x, "two", s->c, 3, .padding = s->padding);
    ts_output(x, "y");
    ts_loss(ts_mean(ts_square(x), 0, NULL, false));
    return g;
}

static bool uses_winograd(const ts_executable *x)
{
    return strstr(ts_executable_source(x), "= windows(") ||
           strstr(ts_executable_source(x), "/* winograd: ");
}

static void run(const shape *s, ts_options opt, int threads, bool wanted, results *r)
{
    ts_optimizer sgd = ts_sgd(0.1);
    ts_graph *g = net(s);
    ts_executable *x;

    opt.optimizer = &sgd;
    opt.cache_dir = "";
    opt.executor = opt.executor ? opt.executor : TS_EXECUTOR_NATIVE;
    if (ts_compile(g, &opt, &x) || run_all(x, &opt, threads, 2, 5, 0, r))
        fail_msg("%s", ts_error_text());
    if (opt.executor == TS_EXECUTOR_NATIVE)
        assert_int_equal(uses_winograd(x), wanted);
    ts_executable_free(x);
    ts_graph_free(g);
}

static void same(const shape *s, const results *p, const results *q, double most, const char *how)
{
    for (int i = 0; i < p->n; i++) {
        int64_t at;
        double d = distance(p, q, i, false, &at);
        if (d > most)
            fail_msg("%ld x %ld x %ld x %ld, %s: %s, element %ld, off by %.2g", (long)s->n,
                     (long)s->c, (long)s->h, (long)s->w, how, p->info[i].name, (long)at, d);
    }
}

/* The ways take seconds: not for all of them. */
static void check(const shape *s, double error, bool ways, bool reference)
{
    results want, got;

    run(s, (ts_options){.no_winograd = true}, 1, false, &want);
    run(s, (ts_options){0}, 1, true, &got);
    same(s, &want, &got, error, "and directly");
    results_free(&want);
    if (reference) {
        run(s, (ts_options){.executor = TS_EXECUTOR_REFERENCE}, 1, true, &want);
        same(s, &want, &got, 1e-5, "and by the reference");
        results_free(&want);
    }
    if (ways) {
        run(s, (ts_options){.skip = "fuse"}, 2, true, &want);
        same(s, &want, &got, 1e-5, "not fused");
        results_free(&want);
        run(s, (ts_options){.isa = "portable"}, 3, true, &want);
        same(s, &want, &got, 1e-5, "portable");
        results_free(&want);
        run(s, (ts_options){.skip = "layout"}, 2, false, &want);
        same(s, &want, &got, error, "batch first");
        results_free(&want);
    }
    results_free(&got);
}

/* Small tiles are as exact as none. */
static void in_the_lanes(void **state)
{
    static const shape shapes[] = {{8, 32, 40, 11, 10, 1},
                                   {16, 40, 32, 11, 10, 1},
                                   {8, 32, 32, 12, 14, 2},
                                   {24, 32, 32, 9, 10, 1},
                                   {8, 32, 64, 14, 14, 0}};

    (void)state;
    for (int i = 0; i < (test_soaks() ? TS_COUNT(shapes) : 3); i++)
        check(&shapes[i], 1e-5, i == 0, i == 0);
}

static void channels_last(void **state)
{
    static const shape shapes[] = {{1, 32, 32, 33, 34, 1},   {2, 40, 32, 36, 33, 0},
                                   {1, 16, 16, 64, 40, 1},   {3, 20, 35, 30, 31, 2},
                                   {1, 300, 130, 32, 33, 1}, {2, 96, 17, 34, 35, 0}};

    (void)state;
    for (int i = 0; i < TS_COUNT(shapes); i++)
        check(&shapes[i], 1e-4, i == 0 || i == 3, false);
}

static void same_on_threads(const shape *s)
{
    results want, got;

    run(s, (ts_options){0}, 1, true, &want);
    for (int n = 2; n <= 7; n += n == 4 ? 3 : 1) {
        run(s, (ts_options){0}, n, true, &got);
        for (int i = 0; i < want.n; i++)
            assert_memory_equal(want.data[i], got.data[i],
                                (size_t)want.count[i] * ts_dtype_size(want.info[i].dtype));
        results_free(&got);
    }
    results_free(&want);
}

/* Bits do not depend on the threads. */
static void threads(void **state)
{
    (void)state;
    same_on_threads(&(shape){8, 32, 64, 14, 14, 0});
    same_on_threads(&(shape){2, 40, 96, 33, 34, 1});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(in_the_lanes),
        cmocka_unit_test(channels_last),
        cmocka_unit_test(threads),
    };

    setenv("TESSERA_MACHINE", "unit=32", 1); /* eight samples fill what a unit takes at once */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
