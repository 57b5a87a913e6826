/* empty.c - tensors without elements are part of a model like any other: inputs, weights, outputs, and what is
 * cut, joined and summed on the way; the same in both executors, trained or not. */
#include "run/run.h"
#include "support.h"

static ts_graph *net(bool train)
{
    ts_graph *g = ts_graph_new("net");
    ts_value *x = ts_input(g, "x", TS_F32, 4, 8), *none = ts_input(g, "none", TS_F32, 0, 8);
    ts_value *w = ts_param(g, "w", TS_F32, ((ts_init){TS_INIT_FULL, 0.5, 0}), 0, 3);
    ts_value *y = ts_concat(3, (ts_value *[]){none, x, ts_slice(x, 0, 3, 2, 1)}, 0);

    y = ts_linear(y, "fc", 2);
    ts_output(y, "y");
    ts_output(ts_softmax(none, 1), "none");
    ts_output(w, "w");
    ts_output(ts_sum(none, 0, NULL, false), "sum");
    ts_output(ts_matmul(ts_transpose(none, 0, 1), none), "product");
    if (train)
        ts_loss(ts_mean(ts_square(y), 0, NULL, false));
    return g;
}

static void run(ts_executor how, bool train, float *y)
{
    ts_graph *g = net(train);
    ts_optimizer sgd = ts_sgd(0.1);
    ts_options opt = {.optimizer = train ? &sgd : NULL, .cache_dir = "", .executor = how};
    float x[32], sum = 7, product[64], loss, untouched = 7;
    ts_executable *exe;
    ts_engine *e;

    for (int i = 0; i < 32; i++)
        x[i] = 0.1f * (float)i;
    assert_ok(ts_compile(g, &opt, &exe));
    assert_ok(ts_engine_new(exe, NULL, &e));
    for (int i = 0; i < 2; i++)
        assert_ok(ts_engine_run(e, (const void *[]){x, NULL},
                                (void *[]){y, &untouched, NULL, &sum, product, &loss}));
    assert_true(untouched == 7);
    assert_true(sum == 0);
    for (int i = 0; i < 64; i++)
        assert_true(product[i] == 0);
    ts_engine_free(e);
    ts_executable_free(exe);
    ts_graph_free(g);
}

static void both_executors(void **state)
{
    float native[2][8], reference[2][8];

    (void)state;
    for (int train = 0; train < 2; train++) {
        run(TS_EXECUTOR_NATIVE, train, native[train]);
        run(TS_EXECUTOR_REFERENCE, train, reference[train]);
        for (int i = 0; i < 8; i++)
            assert_float_equal(native[train][i], reference[train][i], 1e-6);
    }
    assert_true(native[0][0] != native[1][0]); /* the second step is of trained weights */
}

static void no_largest(void **state)
{
    ts_graph *g = ts_graph_new("net");
    ts_value *none = ts_input(g, "none", TS_F32, 3, 0);
    ts_executable *exe;

    (void)state;
    ts_output(ts_amax(none, 1, (int64_t[]){1}, false), "y");
    assert_fails(ts_compile(g, &(ts_options){.cache_dir = ""}, &exe), TS_ERR_SHAPE,
                 "amax of no elements has no result");
    ts_graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_executors),
        cmocka_unit_test(no_largest),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
