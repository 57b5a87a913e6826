/* batch.c - samples in parts compute what the samples do: against the reference executor, which has none. */
#include "support.h"

typedef struct form {
    int first, second; /* channels */
    bool norm;         /* statistics over all samples */
} form;

/* A mask with a row for each sample, windows, a sum of each sample. */
static ts_graph *net(int64_t batch, const form *f)
{
    ts_graph *g = ts_graph_new("parts");
    ts_value *x = ts_input(g, "x", TS_F32, batch, 1, 10, 10), *y;
    int64_t dims[] = {2, 3};

    x = ts_max_pool2d(ts_relu(ts_conv2d(x, "conv1", f->first, 3)), 2);
    x = ts_conv2d(x, "conv2", f->second, 3, .padding = 1);
    if (f->norm)
        x = ts_batch_norm(x, "norm");
    y = ts_sum(ts_square(x), 2, dims, true);
    x = ts_dropout(ts_div(x, ts_add(ts_sqrt(y), ts_scalar(g, TS_F32, 1e-3))), 0.5, true);
    x = ts_linear(ts_flatten(x, 1), "fc", 4);
    ts_output(x, "y");
    ts_loss(ts_mean(ts_square(x), 0, NULL, false));
    return g;
}

static float *train(int64_t batch, const form *f, ts_executor executor, size_t *count)
{
    ts_optimizer sgd = ts_sgd(0.1);
    ts_options opt = {.optimizer = &sgd, .executor = executor, .device_iterations = 3};
    ts_graph *g = net(batch, f);
    ts_executable *x;
    ts_engine *e;
    float *in = calloc((size_t)(3 * batch) * 100, sizeof(float)), *y, *states;
    test_random r = {7};

    y = calloc((size_t)(3 * batch) * 4, sizeof(float));
    for (int64_t i = 0; i < 3 * batch * 100; i++)
        in[i] = (float)test_between(&r, -1000, 1000) / 1000;
    assert_ok(ts_compile(g, &opt, &x));
    assert_ok(ts_engine_new(x, &(ts_run_options){.seed = 3}, &e));
    assert_ok(ts_engine_run(e, (const void *[]){in}, (void *[]){y, NULL}));
    states = test_states(x, e, count);
    ts_engine_free(e);
    ts_executable_free(x);
    ts_graph_free(g);
    free(in);
    free(y);
    return states;
}

static void compare(int64_t batch, const form *f)
{
    size_t n, m;
    float *want = train(batch, f, TS_EXECUTOR_REFERENCE, &n);
    float *got = train(batch, f, TS_EXECUTOR_NATIVE, &m);

    assert_int_equal(n, m);
    for (size_t k = 0; k < n; k++)
        if (!(got[k] - want[k] < 1e-4f && want[k] - got[k] < 1e-4f))
            fail_msg("batch %d, %d and %d channels, number %zu: %g instead of %g", (int)batch,
                     f->first, f->second, k, (double)got[k], (double)want[k]);
    free(want);
    free(got);
}

static void parts_are_the_whole(void **state)
{
    static const int64_t batches[] = {2, 3, 5, 9, 10, 11, 17, 19};

    (void)state;
    for (int i = 0; i < TS_COUNT(batches); i++)
        compare(batches[i], &(form){3, 5, i % 2 == 0});
}

/* The part that does not fill the lanes has channels last, and its weights are copied. */
static void wide_convolutions(void **state)
{
    static const int64_t batches[] = {7, 9, 13, 14};

    (void)state;
    for (int i = 0; i < TS_COUNT(batches); i++)
        compare(batches[i], &(form){32, 40, i % 2 == 0});
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(parts_are_the_whole),
                                       cmocka_unit_test(wide_convolutions)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
