/* product.c - products from packed panels, against the reference executor: operands that lie along the sum,
 * across it and in pieces, halves, sizes that fill no tile, sums in several blocks, epilogues; and the
 * same bits for any number of threads.
 *
 * The machine has caches of a few kilobytes, so that small products have many blocks and pieces. */
#include "compare.h"
#include "render/render.h"
#include "run/run.h"
#include "support.h"

#define SMALL                                                                                      \
    "cores=4 line=64 level1=4096 level2=16384 level3=65536 unit=32 units=2 latency=4 near=32 "     \
    "far=25 memory=8 meet=64 hertz=3.5e9"

enum { CALLS = 2 };

static ts_value *turned(ts_value *v)
{
    return ts_permute(v, 1, 0);
}

/* Every way to lie, of m x n products over k. */
static ts_graph *products(int64_t m, int64_t n, int64_t k)
{
    ts_graph *g = ts_graph_new("products");
    ts_value *a = ts_input(g, "a", TS_F32, m, k), *b = ts_input(g, "b", TS_F32, k, n);
    ts_value *at = ts_input(g, "at", TS_F32, k, m), *bt = ts_input(g, "bt", TS_F32, n, k);
    ts_value *bias = ts_input(g, "bias", TS_F32, n), *x = ts_input(g, "x", TS_F32, 3, k, m);
    ts_value *deep = ts_input(g, "deep", TS_F32, m, 2, k),
             *wide = ts_input(g, "wide", TS_F32, 2, k, n);
    ts_value *h = ts_permute(x, 0, 2, 1);

    ts_output(ts_matmul(a, b), "nn");
    ts_output(ts_relu(ts_add(ts_matmul(a, turned(bt)), bias)), "nt");
    ts_output(ts_matmul(turned(at), b), "tn");
    ts_output(ts_sub(ts_mul_scalar(ts_matmul(turned(at), turned(bt)), 0.5), bias), "tt");
    /* a linear layer behind a transpose, its result turned back, and both gradients' forms */
    ts_output(ts_permute(ts_matmul(h, turned(bt)), 0, 2, 1), "linear");
    ts_output(ts_matmul(turned(ts_reshape(h, 3 * m, k)),
                        ts_sigmoid(ts_matmul(ts_reshape(h, 3 * m, k), b))),
              "weight");
    /* a sum over two dims that lie apart */
    ts_output(ts_matmul(ts_reshape(ts_permute(deep, 0, 2, 1), m, 2 * k),
                        ts_reshape(ts_permute(wide, 1, 0, 2), 2 * k, n)),
              "deep");
    ts_output(ts_matmul(ts_cast(a, TS_BF16), turned(ts_cast(bt, TS_BF16))), "bf16");
    ts_output(ts_matmul(turned(ts_cast(at, TS_BF16)), ts_cast(b, TS_BF16)), "bf16 tn");
    ts_output(ts_matmul(ts_cast(a, TS_BF16), ts_cast(b, TS_BF16)), "bf16 nn");
    ts_output(ts_matmul(ts_reshape(ts_permute(ts_cast(deep, TS_BF16), 0, 2, 1), m, 2 * k),
                        ts_reshape(ts_permute(ts_cast(wide, TS_BF16), 1, 0, 2), 2 * k, n)),
              "bf16 deep");
    ts_output(ts_matmul(turned(ts_cast(at, TS_F16)), ts_cast(b, TS_F16)), "f16");
    ts_output(ts_add(ts_matmul(turned(ts_cast(at, TS_F64)), turned(ts_cast(bt, TS_F64))),
                     ts_cast(bias, TS_F64)),
              "f64");
    return g;
}

static int count(const ts_executable *x, const char *word)
{
    int n = 0;

    for (const char *p = ts_executable_source(x); (p = strstr(p, word)); p++)
        n++;
    return n;
}

static void same(const results *p, const results *q, double f32, double half, const char *how)
{
    for (int i = 0; i < p->n; i++) {
        int64_t at;
        double d = distance(p, q, i, false, &at);
        bool narrow = p->info[i].dtype == TS_F16 || p->info[i].dtype == TS_BF16;
        if (d > (narrow ? half : f32))
            fail_msg("%s: %s, element %ld: %.9g, reference %.9g", how, p->info[i].name, (long)at,
                     ts_dtype_get(q->info[i].dtype, q->data[i], at),
                     ts_dtype_get(p->info[i].dtype, p->data[i], at));
    }
}

static void check(ts_graph *g, const char *isa, const results *want, int *in_place)
{
    bool tiles = isa && strstr(isa, "amx");
    ts_options opt = {.cache_dir = "", .executor = TS_EXECUTOR_NATIVE, .isa = isa};
    ts_executable *x;
    results one = {0}, three = {0};

    assert_ok(ts_compile(g, &opt, &x));
    assert_true(count(x, "/* panels: ") >= 3); /* the rest is cheaper otherwise */
    assert_true(count(x, "TILES_BEGIN();") >= 3 * tiles);
    assert_ok(run_all(x, &opt, 1, CALLS, 7, 0, &one));
    assert_ok(run_all(x, &opt, 3, CALLS, 7, 0, &three));
    same(want, &one, 1e-5, 1e-2, isa ? isa : "native");
    same(&one, &three, 0, 0, "three threads");
    *in_place += count(x, "_of_41_1(") > 0;
    results_free(&one);
    results_free(&three);
    ts_executable_free(x);
}

/* Products of tiles, as on a machine with AMX. */
static int check_tiles(ts_graph *g, const results *want)
{
    static const char isa[] = "x86-64-v4-amx-in-c";
    int ignored = 0;

    if (ts_isa_check(isa))
        return 0;
    check(g, isa, want, &ignored);
    return 1;
}

static void every_way(void **state)
{
    static const int64_t sizes[][3] = {
        {35, 50, 170}, {64, 96, 64}, {57, 130, 33}, {49, 75, 301}, {23, 79, 41}};
    ts_options opt = {.cache_dir = "", .executor = TS_EXECUTOR_REFERENCE};
    int in_place = 0, tiles = 0;

    (void)state;
    setenv("TESSERA_MACHINE", SMALL, 1);
    for (int i = 0; i < TS_COUNT(sizes); i++) {
        ts_graph *g = products(sizes[i][0], sizes[i][1], sizes[i][2]);
        ts_executable *ref;
        results want = {0};
        assert_ok(ts_compile(g, &opt, &ref));
        assert_ok(run_all(ref, &opt, 1, CALLS, 7, 0, &want));
        check(g, NULL, &want, &in_place);
        tiles += check_tiles(g, &want);
        check(g, i % 2 ? "x86-64-v3" : "portable", &want, &in_place);
        results_free(&want);
        ts_executable_free(ref);
        ts_graph_free(g);
    }
    assert_int_equal(in_place, 2); /* the last size: its rows stay in level 1 */
    if (!tiles)
        print_message("no AVX-512 here: nothing of tiles was run\n");
    unsetenv("TESSERA_MACHINE");
}

/* A training step against the reference, with as many products from panels at least. */
static void train(ts_graph *g, int panels, double half)
{
    ts_optimizer sgd = ts_sgd(0.1);
    ts_options opt = {.cache_dir = "", .executor = TS_EXECUTOR_REFERENCE, .optimizer = &sgd};
    ts_executable *ref, *exe;
    results want = {0}, got = {0};

    assert_ok(ts_compile(g, &opt, &ref));
    assert_ok(run_all(ref, &opt, 1, CALLS, 7, 0, &want));
    opt.executor = TS_EXECUTOR_NATIVE;
    assert_ok(ts_compile(g, &opt, &exe));
    assert_true(count(exe, "/* panels: ") >= panels);
    assert_ok(run_all(exe, &opt, 3, CALLS, 7, 0, &got));
    same(&want, &got, half > 0 ? half : 1e-5, half, "native");
    results_free(&want);
    results_free(&got);
    ts_executable_free(ref);
    ts_executable_free(exe);
    ts_graph_free(g);
}

/* A trained linear layer behind a transpose: the weight is updated where its gradient is summed. */
static void updates(void **state)
{
    ts_graph *g = ts_graph_new("updates");
    ts_value *x = ts_input(g, "x", TS_F32, 2, 40, 37), *h = ts_permute(x, 0, 2, 1);

    (void)state;
    setenv("TESSERA_MACHINE", SMALL, 1);
    ts_loss(ts_mse_loss(ts_add(h, ts_linear(h, "fc", 40)), ts_mul_scalar(h, 0.5)));
    train(g, 1, 0);
    unsetenv("TESSERA_MACHINE");
}

/* A transposed convolution with a stride has a nest for each phase of it, in one function. */
static void phases(void **state)
{
    ts_graph *g = ts_graph_new("phases");
    ts_value *x = ts_cast(ts_input(g, "x", TS_F32, 1, 16, 20, 32), TS_F16);

    (void)state;
    x = ts_conv_transpose2d(ts_conv2d(x, "a", 16, 3, .padding = 1), "b", 32, 2, .stride = 2);
    ts_loss(ts_mean(ts_square(ts_cast(x, TS_F32)), 0, NULL, false));
    train(g, 5, 1e-2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_way), cmocka_unit_test(updates),
                                       cmocka_unit_test(phases)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
