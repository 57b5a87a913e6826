/* patches.c - convolutions of patches as products train as the reference executor, which convolves, has it. */
#include "compare.h"
#include "support.h"
#include "tessera.h"

/* Patches in one, two and three dims, with a place that none reaches, made smaller and larger again; most of the work are
 * products. */
static ts_graph *net(int64_t samples)
{
    ts_graph *g = ts_graph_new("net");
    ts_value *x = ts_input(g, "x", TS_F32, samples, 3, 13, 27);

    x = ts_relu(ts_conv2d(x, "two", 32, 4, .stride = 4));                    /* 32 x 3 x 6 */
    x = ts_conv1d(ts_reshape(x, samples, 96, 6), "one", 24, 3, .stride = 3); /* 24 x 2 */
    x = ts_linear(ts_relu(ts_linear(ts_flatten(x, 1), "wide", 512)), "deep", 480);
    x = ts_conv_transpose2d(ts_reshape(x, samples, 30, 4, 4), "up", 4, 2, .stride = 2);
    x = ts_conv3d(ts_reshape(x, samples, 2, 2, 8, 8), "three", 4, 2, .stride = 2);
    ts_output(x, "y");
    ts_loss(ts_mean(ts_square(x), 0, NULL, false));
    return g;
}

static void train(int64_t samples, ts_options opt, int threads, results *r)
{
    ts_executable *x = trained_by_sgd(net(samples), opt, threads, r);

    if (!x)
        fail_msg("%s", ts_error_text());
    if (opt.executor == TS_EXECUTOR_NATIVE)
        assert_null(strstr(ts_executable_source(x), "= conv"));
    ts_executable_free(x);
}

static void same(const results *want, const results *got, int64_t samples, double most)
{
    for (int i = 0; i < want->n; i++) {
        int64_t at;
        double d = distance(want, got, i, false, &at);
        if (d > most)
            fail_msg("%ld samples: %s, element %ld, off by %.2g", (long)samples, want->info[i].name,
                     (long)at, d);
    }
}

static void trained(void **state)
{
    (void)state;
    for (int64_t samples = 1; samples <= 16; samples += 15) {
        results want, got, again;
        train(samples, (ts_options){.executor = TS_EXECUTOR_REFERENCE}, 1, &want);
        train(samples, (ts_options){.executor = TS_EXECUTOR_NATIVE}, 1, &got);
        train(samples, (ts_options){.executor = TS_EXECUTOR_NATIVE}, 3, &again);
        same(&want, &got, samples, 1e-5);
        same(&got, &again, samples, 0);
        results_free(&want);
        results_free(&got);
        results_free(&again);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(trained)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
