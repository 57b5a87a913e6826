/* tile.c - contractions that are large enough for tiles, on a GPU against the CPU: what one step
 * changes of the weights, in f32 and in halves. Strides, padding, layers whose sizes fit no tile.
 */
#include "again.h"
#include <math.h>

static ts_device_kind kind;
static bool needless;

typedef struct test_case {
    ts_graph *(*make)(ts_dtype t);
    ts_dtype dtype;
    double loose;
} test_case;

/* With 3x3 taps, with every second place, with one tap at every second place. */
static ts_graph *pictures(ts_dtype t)
{
    ts_graph *g = ts_graph_new("pictures");
    ts_value *x = ts_cast(ts_input(g, "x", TS_F32, 4, 16, 32, 24), t);

    x = ts_relu(ts_conv2d(x, "a", 32, 3, .padding = 1));
    x = ts_conv2d(x, "b", 40, 3, .stride = 2, .padding = 1);
    x = ts_conv2d(x, "c", 48, 1, .stride = 2);
    ts_loss(ts_mean(ts_square(ts_cast(x, TS_F32)), 0, NULL, false));
    return g;
}

/* Channels, places and taps that fit neither vectors nor tiles. */
static ts_graph *odd_pictures(ts_dtype t)
{
    ts_graph *g = ts_graph_new("odd");
    ts_value *x = ts_cast(ts_input(g, "x", TS_F32, 3, 5, 33, 27), t);

    x = ts_relu(ts_conv2d(x, "a", 22, 5, .padding = 2));
    x = ts_conv2d(x, "b", 26, 4, .stride = 2, .padding = 1);
    ts_loss(ts_mean(ts_square(ts_cast(x, TS_F32)), 0, NULL, false));
    return g;
}

static ts_graph *words(ts_dtype t)
{
    ts_graph *g = ts_graph_new("words");
    ts_value *x = ts_cast(ts_input(g, "x", TS_F32, 8, 64, 64), t), *y;

    x = ts_relu(ts_linear(x, "a", 104));
    x = ts_linear(x, "b", 64);
    y = ts_permute(ts_reshape(x, 8, 64, 2, 32), 0, 2, 1, 3);
    y = ts_permute(ts_attention(y, y, y, NULL), 0, 2, 1, 3);
    x = ts_linear(ts_reshape(y, 8, 64, 64), "c", 75);
    ts_loss(ts_mean(ts_square(ts_cast(x, TS_F32)), 0, NULL, false));
    return g;
}

/* What a step changes of the states, of which there are n. */
static float *changes(const test_case *c, ts_device_kind device, size_t *n)
{
    ts_optimizer sgd = ts_sgd(100);
    ts_options opt = {
        .optimizer = &sgd, .device_kind = device, .executor = TS_EXECUTOR_NATIVE, .cache_dir = ""};
    ts_graph *g = c->make(c->dtype);
    ts_executable *x;
    ts_engine *e;
    const ts_tensor_info *t;
    test_random r = {5};
    float *in, loss, *before, *after;

    assert_ok(ts_compile(g, &opt, &x));
    assert_true(test_cuda_text(x));
    assert_ok(ts_engine_new(x, &(ts_run_options){.seed = 3}, &e));
    t = ts_executable_tensor(x, TS_ROLE_INPUT, 0);
    in = calloc(t->bytes, 1);
    for (size_t i = 0; i < t->bytes / sizeof(float); i++)
        in[i] = (float)test_between(&r, -1000, 1000) * 1e-3f;
    before = test_states(x, e, n);
    assert_ok(ts_engine_run(e, (const void *[]){in}, (void *[]){&loss}));
    after = test_states(x, e, n);
    for (size_t i = 0; i < *n; i++)
        after[i] -= before[i];
    free(in);
    free(before);
    ts_engine_free(e);
    ts_executable_free(x);
    ts_graph_free(g);
    return after;
}

static void check(const test_case *c)
{
    size_t n, m;
    float *cpu, *gpu;
    double most = 0, error = 0;

    if (needless)
        skip();
    cpu = changes(c, TS_DEVICE_CPU, &n);
    gpu = changes(c, kind, &m);
    assert_int_equal(n, m);
    for (size_t i = 0; i < n; i++) {
        most = fmax(most, fabs(cpu[i]));
        error = fmax(error, isfinite(gpu[i]) ? fabs(cpu[i] - gpu[i]) : INFINITY);
    }
    if (!(most > 0 && error <= c->loose * most))
        fail_msg("%g of the largest change %g", error, most);
    free(cpu);
    free(gpu);
}

#define CASE(name, net, type, loose)                                                               \
    static void name(void **state)                                                                 \
    {                                                                                              \
        (void)state;                                                                               \
        check(&(test_case){net, type, loose});                                                     \
    }

CASE(pictures_f32, pictures, TS_F32, 1e-5)
CASE(pictures_bf16, pictures, TS_BF16, 2e-2)
CASE(odd_f16, odd_pictures, TS_F16, 4e-3)
CASE(words_bf16, words, TS_BF16, 2e-2)

static int setup(void **state)
{
    (void)state;
    needless = again_needless(&kind);
    setenv("TESSERA_OPENCL_FLAGS", "-cl-std=CL1.2 -w -cl-opt-disable", 0);
    setenv("TESSERA_GPU_TOGETHER", "4", 0); /* several kernels in a launch, as on a GPU */
    unsetenv("TESSERA_DEVICE");
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pictures_f32),
        cmocka_unit_test(pictures_bf16),
        cmocka_unit_test(odd_f16),
        cmocka_unit_test(words_bf16),
    };

    return cmocka_run_group_tests(tests, setup, NULL);
}
