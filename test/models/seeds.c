/* seeds.c - the networks as they are built: parameters and sizes as in PyTorch, and the generated
 * code against the reference executor for a few training steps. */
#include "models/nets.h"
#include "run/run.h"
#include "support.h"
#include <math.h>

typedef struct model {
    const char *name;
    ts_graph *(*make)(void);
    int64_t weights; /* elements of all states together */
    const char *param;
    int rank;
    int64_t dims[4];
} model;

static ts_graph *fashion(void)
{
    return net_fashion(4);
}

static ts_graph *digits(void)
{
    return net_digits(2, true);
}

static ts_graph *pipeline(void)
{
    return net_pipeline(3);
}

static ts_graph *residual(void)
{
    return net_residual(1, 8, 6, 10);
}

static const model models[] = {
    {"fashion", fashion, 99896, "conv2.weight", 4, {12, 5, 5, 5}},
    {"digits", digits, 225034, "layer2.conv.weight", 4, {64, 32, 3, 3}},
    {"pipeline", pipeline, 90026, "layer3.weight", 2, {256, 320}},
    {"residual", residual, 1232, "conv1.weight", 4, {8, 8, 3, 3}},
};

static ts_executable *compile(const model *m, const ts_optimizer *o, ts_executor executor)
{
    ts_graph *g = m->make();
    ts_executable *x;

    if (ts_compile(g, &(ts_options){.optimizer = o, .executor = executor, .cache_dir = ""}, &x))
        fail_msg("%s: %s", m->name, ts_error_text());
    ts_graph_free(g);
    return x;
}

static void test_parameters(void **state)
{
    (void)state;
    for (int i = 0; i < TS_COUNT(models); i++) {
        ts_executable *x = compile(&models[i], NULL, TS_EXECUTOR_REFERENCE);
        const ts_tensor_info *t;
        int64_t total = 0;
        bool found = false;
        for (int k = 0; (t = ts_executable_tensor(x, TS_ROLE_STATE, k)); k++) {
            total += (int64_t)(t->bytes / ts_dtype_size(t->dtype));
            if (strcmp(t->name, models[i].param))
                continue;
            found = true;
            assert_int_equal(t->rank, models[i].rank);
            assert_memory_equal(t->dims, models[i].dims, sizeof(int64_t) * (size_t)t->rank);
        }
        assert_true(found);
        assert_int_equal(total, models[i].weights);
        ts_executable_free(x);
    }
}

/* Trains a few steps on fixed data; returns the last loss. */
static double train(const ts_executable *x)
{
    const ts_tensor_info *in = ts_executable_tensor(x, TS_ROLE_INPUT, 0);
    float *images = test_malloc(in->bytes), loss = 0;
    int32_t labels[8];
    ts_engine *e;

    for (size_t i = 0; i < in->bytes / sizeof(float); i++)
        images[i] = (float)(2 * ts_random_unit(1, 2, 3, i) - 1);
    for (int i = 0; i < TS_COUNT(labels); i++)
        labels[i] = i;
    assert_int_equal(ts_engine_new(x, &(ts_run_options){.threads = 2, .seed = 9}, &e), TS_OK);
    for (int step = test_brief(); step < 3; step++)
        if (ts_engine_run(e, (const void *[]){images, labels}, (void *[]){NULL, &loss}))
            fail_msg("%s", ts_error_text());
    ts_engine_free(e);
    test_free(images);
    return loss;
}

static void test_native_and_reference_agree(void **state)
{
    ts_optimizer o = ts_sgd(0.05);

    (void)state;
    o.hyper.momentum = 0.9;
    for (int i = 0; i < TS_COUNT(models); i++) {
        ts_executable *native = compile(&models[i], &o, TS_EXECUTOR_NATIVE);
        ts_executable *ref = compile(&models[i], &o, TS_EXECUTOR_REFERENCE);
        double a = train(native), b = train(ref);
        if (!(fabs(a - b) <= 1e-4 * fabs(b)))
            fail_msg("%s: native %.9g, reference %.9g", models[i].name, a, b);
        ts_executable_free(native);
        ts_executable_free(ref);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parameters),
        cmocka_unit_test(test_native_and_reference_agree),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
