/* text.c - the text of the seeds' nets for an NVIDIA GPU: the same from compile to compile, and where
 * NVRTC is installed it compiles for two generations of them. Nothing here needs a GPU.
 */
#include "../models/nets.h"
#include "gpu/gpu.h"
#include "support.h"

typedef struct net {
    ts_graph *(*make)(void);
    ts_optimizer optimizer;
} net;

static ts_graph *fashion(void)
{
    return net_fashion(16);
}

static ts_graph *digits(void)
{
    return net_digits(8, true);
}

static ts_graph *residual(void)
{
    return net_residual(1, 32, 32, 48);
}

/* Convolutions and products that tensor cores take. */
static ts_graph *halves(void)
{
    ts_graph *g = ts_graph_new("halves");
    ts_value *x = ts_cast(ts_input(g, "x", TS_F32, 4, 16, 32, 24), TS_BF16);

    x = ts_relu(ts_conv2d(x, "a", 32, 3, .padding = 1));
    x = ts_conv2d(x, "b", 40, 3, .stride = 2, .padding = 1);
    x = ts_linear(ts_reshape(x, 768, 40), "c", 64);
    ts_loss(ts_mean(ts_square(ts_cast(x, TS_F32)), 0, NULL, false));
    return g;
}

static ts_status text_of(ts_arena *a, const net *n, ts_gpu_code *code)
{
    ts_options opt = {.optimizer = &n->optimizer,
                      .device_iterations = 4,
                      .device_kind = TS_DEVICE_GPU,
                      .device_memory = INT64_C(1) << 40};
    const ts_program *p;
    ts_graph *g = n->make();
    ts_status s = ts_compile_plan(a, g, &opt, &p);

    if (!s)
        s = ts_gpu_text(a, p, &opt, code);
    ts_graph_free(g);
    return s;
}

/* Compiled for both, unless NVRTC is not there. In brief it is not asked: it is not ours. */
static bool compiles(const char *text)
{
    static const char *const targets[] = {"sm_80", "sm_90"};

    if (test_brief())
        return true;
    for (int i = 0; i < TS_COUNT(targets); i++) {
        void *binary = NULL;
        size_t bytes = 0;
        ts_status s = ts_gpu_cuda_compile(text, targets[i], &binary, &bytes);
        if (s == TS_ERR_UNSUPPORTED)
            return false;
        assert_ok(s);
        assert_true(bytes > 1000);
        free(binary);
    }
    return true;
}

static void check(const net *n)
{
    ts_arena *a = ts_arena_new();
    ts_gpu_code one, two;
    bool done;

    assert_ok(text_of(a, n, &one));
    assert_ok(text_of(a, n, &two));
    assert_string_equal(one.text, two.text);
    assert_true(one.nfunctions > 5);
    done = compiles(one.text);
    ts_arena_free(a);
    if (!done) {
        print_message("# %s\n", ts_last_error()->message);
        skip();
    }
}

static void of_a_small_net(void **state)
{
    (void)state;
    check(&(net){fashion, ts_sgd(0.001)});
}

static void of_one_with_dropout(void **state)
{
    (void)state;
    check(&(net){digits, ts_adamw(0.001)});
}

/* Its convolutions are large enough for tiles. */
static void of_one_with_tiles(void **state)
{
    (void)state;
    check(&(net){residual, ts_sgd(0.01)});
}

static void of_one_for_tensor_cores(void **state)
{
    net n = {halves, ts_sgd(0.01)};
    ts_arena *a = ts_arena_new();
    ts_gpu_code code;

    (void)state;
    assert_ok(text_of(a, &n, &code));
    assert_non_null(strstr(code.text, "multiply_bf16(sum"));
    ts_arena_free(a);
    check(&n);
}

/* A linear layer of three dims with what follows it, and a norm of its rows. */
static ts_graph *words(void)
{
    ts_graph *g = ts_graph_new("words");
    ts_value *x = ts_input(g, "x", TS_F32, 32, 128, 256);

    ts_output(ts_layer_norm(ts_relu(ts_linear(x, "up", 512)), "norm"), "y");
    return g;
}

/* Product, bias and relu are one launch; mean, variance and the norm itself three. */
static void what_follows_is_in_the_launch(void **state)
{
    ts_options opt = {.device_kind = TS_DEVICE_GPU, .device_memory = INT64_C(1) << 40};
    ts_arena *a = ts_arena_new();
    ts_graph *g = words();
    const ts_program *p;
    ts_gpu_code code;
    int launches = 0;

    (void)state;
    assert_ok(ts_compile_plan(a, g, &opt, &p));
    assert_ok(ts_gpu_text(a, p, &opt, &code));
    for (int i = 0; i < code.nrows; i++)
        launches += code.rows[i].kind == TS_GPU_LAUNCH;
    assert_int_equal(launches, 4);
    ts_graph_free(g);
    ts_arena_free(a);
}

/* What an executable keeps is what it gets back. */
static void packed_and_unpacked(void **state)
{
    ts_arena *a = ts_arena_new();
    ts_gpu_code code, *back;
    ts_text bytes = {0}, again = {0};

    (void)state;
    assert_ok(text_of(a, &(net){fashion, ts_sgd(0.001)}, &code));
    code.binary = "not one";
    code.nbinary = 7;
    ts_gpu_pack(&code, &bytes);
    assert_ok(ts_gpu_unpack(bytes.s, bytes.len, &back));
    ts_gpu_pack(back, &again);
    assert_int_equal(again.len, bytes.len);
    assert_memory_equal(again.s, bytes.s, bytes.len);
    ts_gpu_code_free(back);
    for (size_t n = 0; n < bytes.len; n += 1 + bytes.len / 500) /* cut off anywhere */
        assert_int_equal(ts_gpu_unpack(bytes.s, n, &back), TS_ERR_CORRUPT);
    ts_text_free(&bytes);
    ts_text_free(&again);
    ts_arena_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(of_a_small_net),
        cmocka_unit_test(of_one_with_dropout),
        cmocka_unit_test(of_one_with_tiles),
        cmocka_unit_test(of_one_for_tensor_cores),
        cmocka_unit_test(what_follows_is_in_the_launch),
        cmocka_unit_test(packed_and_unpacked),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
