/* kernels.c - small graphs whose generated code was once wrong, natively and by the reference
 * executor. */
#include "compare.h"
#include "render/render.h"
#include "run/run.h"
#include "support.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define DIMS(...)                                                                                  \
    (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[])                         \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }

enum { CALLS = 2 };

static void same(const results *p, const results *q, const char *how)
{
    for (int i = 0; i < p->n; i++) {
        int64_t at;
        double d = distance(p, q, i, false, &at);
        bool half = p->info[i].dtype == TS_F16 || p->info[i].dtype == TS_BF16;
        if (d > (half ? 1e-2 : 1e-5))
            fail_msg("%s: %s, element %ld: %.9g, reference %.9g", how, p->info[i].name, (long)at,
                     ts_dtype_get(q->info[i].dtype, q->data[i], at),
                     ts_dtype_get(p->info[i].dtype, p->data[i], at));
    }
}

/* Fused and not, with wide and narrow vectors, with one thread and with three. Frees g. */
static void check_with(ts_graph *g, ts_options opt)
{
    static const struct {
        const char *skip, *isa;
        int threads;
    } ways[] = {{NULL, NULL, 1}, {NULL, "portable", 3}, {"fuse", NULL, 3}};
    ts_executable *ref = NULL, *exe;
    results want = {0}, got = {0};

    opt.cache_dir = "";
    opt.executor = TS_EXECUTOR_REFERENCE;
    if (ts_compile(g, &opt, &ref) || run_all(ref, &opt, 1, CALLS, 7, 0, &want))
        fail_msg("%s", ts_error_text());
    opt.executor = TS_EXECUTOR_NATIVE;
    for (int i = 0; i < TS_COUNT(ways); i++) {
        opt.skip = ways[i].skip;
        opt.isa = ways[i].isa;
        if (ts_compile(g, &opt, &exe) || run_all(exe, &opt, ways[i].threads, CALLS, 7, 0, &got))
            fail_msg("%s", ts_error_text());
        same(&want, &got, ways[i].skip ? "not fused" : ways[i].isa ? ways[i].isa : "native");
        results_free(&got);
        ts_executable_free(exe);
    }
    results_free(&want);
    ts_executable_free(ref);
    ts_graph_free(g);
}

static void check(ts_graph *g)
{
    check_with(g, (ts_options){0});
}

/* Groups of one channel: group and channel are both factors of 1 of the same dim. */
static void depthwise(void **state)
{
    ts_graph *g = ts_graph_new("depthwise");
    ts_value *x = ts_input(g, "x", TS_F32, 2, 6, 9, 10), *w = ts_input(g, "xw", TS_F32, 6, 1, 3, 3);
    ts_value *in[] = {x, w},
             *y = ts_apply(g, "conv", 2, in, 2,
                           (ts_arg[]){ts_arg_int("groups", 6), ts_arg_ints("padding", DIMS(1, 1))});
    ts_value *back[] = {y, w};

    (void)state;
    ts_output(y, "y");
    ts_output(ts_apply(g, "conv_input", 2, back, 3,
                       (ts_arg[]){ts_arg_int("groups", 6), ts_arg_ints("padding", DIMS(1, 1)),
                                  ts_arg_ints("shape", DIMS(9, 10))}),
              "dx");
    ts_output(ts_apply(g, "conv_weight", 2, (ts_value *[]){x, y}, 3,
                       (ts_arg[]){ts_arg_int("groups", 6), ts_arg_ints("padding", DIMS(1, 1)),
                                  ts_arg_ints("shape", DIMS(3, 3))}),
              "dw");
    check(g);
}

/* How many products are tiles: each says which lanes it has, or what its panels are. Frees nothing. */
static int tiles(const ts_graph *g)
{
    ts_executable *x;
    int n = 0;

    if (ts_compile(g, &(ts_options){.cache_dir = "", .executor = TS_EXECUTOR_NATIVE}, &x))
        fail_msg("%s", ts_error_text());
    for (const char *p = ts_executable_source(x); (p = strstr(p, "/* lanes ")); p++)
        n++;
    for (const char *p = ts_executable_source(x); (p = strstr(p, "/* panels: ")); p++)
        n++;
    ts_executable_free(x);
    return n;
}

/* Attention's products: rows that are (sequence, batch) or (batch, head) of memory in another
 * order. Element by element they would take ten times as long. The scores' vectors along the sum
 * were once counted in a variable with the name of the tensor they read. */
static void rows_of_two_dims(void **state)
{
    ts_graph *g = ts_graph_new("rows");
    ts_value *x = ts_input(g, "x", TS_F32, 3, 14, 16), *w = ts_input(g, "xw", TS_F32, 16, 32);
    ts_value *rows = ts_reshape(ts_permute(x, 1, 0, 2), 42, 16), *y = ts_matmul(rows, w), *heads;

    (void)state;
    ts_output(ts_permute(ts_reshape(y, 14, 3, 32), 1, 0, 2), "y");
    heads = ts_permute(ts_reshape(y, 14, 3 * 4, 8), 1, 0, 2);
    ts_output(ts_matmul(heads, ts_permute(heads, 0, 2, 1)), "scores");
    ts_output(ts_matmul(ts_permute(rows, 1, 0), ts_sigmoid(y)), "dw");
    assert_int_equal(tiles(g), 3);
    check(g);
}

/* Heads that lie in a part of each row, two samples of three heads beside each other, and their
 * rows joined again: 4 * h + c of 0..11 is one sample's whatever c is. */
static void heads_of_samples(void **state)
{
    ts_graph *g = ts_graph_new("heads");
    ts_value *x = ts_input(g, "x", TS_F32, 14, 2, 36), *p = ts_input(g, "p", TS_F32, 6, 14, 16);
    ts_value *w = ts_input(g, "w", TS_F32, 12, 16);
    ts_value *part = ts_slice(ts_mul_scalar(x, 2), 2, 12, 24, 1);
    ts_value *v = ts_permute(ts_reshape(part, 14, 6, 4), 1, 0, 2), *y;

    (void)state;
    y = ts_matmul(ts_permute(p, 0, 2, 1), v); /* [6, 16, 4] */
    ts_output(ts_matmul(ts_reshape(ts_permute(y, 1, 0, 2), 32, 12), w), "y");
    assert_int_equal(tiles(g), 2);
    check(g);
}

/* Weights that no cache holds are read once for one half of the rows, and once for the other. */
static void rows_together(void **state)
{
    ts_graph *g = ts_graph_new("together");
    ts_value *x = ts_input(g, "x", TS_F32, 1, 128, 21, 5),
             *w = ts_input(g, "w", TS_F32, 160, 128, 3, 3);
    ts_executable *exe;

    (void)state;
    setenv("TESSERA_MACHINE", TEST_MACHINE, 1);
    ts_output(ts_relu(ts_conv2d_with(x, w, NULL, 1, 1, 1, 1)), "y");
    if (ts_compile(g, &(ts_options){.cache_dir = "", .skip = "winograd"}, &exe))
        fail_msg("%s", ts_error_text());
    unsetenv("TESSERA_MACHINE");
    assert_non_null(strstr(ts_executable_source(exe), " * g0 + r1 % s2;"));
    ts_executable_free(exe);
    check(g);
}

/* A quotient of a sum with negative terms: C rounds towards zero, the index must not. */
static void flip_then_reshape(void **state)
{
    ts_graph *g = ts_graph_new("flip");
    ts_value *x = ts_input(g, "x", TS_F32, 6, 5), *f = ts_reshape(ts_permute(x, 1, 0), 30);

    (void)state;
    f = ts_apply(g, "flip", 1, &f, 1, (ts_arg[]){ts_arg_ints("dims", DIMS(0))});
    ts_output(ts_permute(ts_reshape(f, 10, 3), 1, 0), "y");
    ts_output(ts_add_scalar(ts_reshape(f, 2, 15), 1), "z");
    check(g);
}

/* gcc 12.2 at -O2 sums other elements than asked for. */
static void backward_sum(void **state)
{
    static const ts_dtype types[] = {TS_BF16, TS_F32, TS_I32, TS_F64};
    ts_graph *g = ts_graph_new("backward");

    (void)state;
    for (int i = 0; i < TS_COUNT(types); i++) {
        char name[16];
        snprintf(name, sizeof(name), "x%d", i);
        ts_value *x = ts_input(g, name, types[i], 4, 2, 2);
        ts_value *f = ts_apply(g, "flip", 1, &x, 1, (ts_arg[]){ts_arg_ints("dims", DIMS(0, 2))});
        ts_output(ts_sum(ts_square(f), 0, NULL, false), "y");
    }
    check(g);
}

/* A kernel that makes a vector, which it stores, and reads it one lane at a time: i64 has no
 * vectors. */
static void one_lane_of_what_is_not_stored(void **state)
{
    ts_graph *g = ts_graph_new("lanes");
    ts_value *x = ts_mul_scalar(ts_input(g, "x", TS_F32, 32), 3), *i = ts_cast(x, TS_I32), *y;
    ts_value *k = ts_input(g, "k", TS_I32, 2);

    (void)state;
    y = ts_add(ts_cast(ts_square(i), TS_I64), ts_cast(x, TS_I64));
    ts_output(ts_cast(y, TS_I32), "y");
    ts_output(ts_sum(ts_mul(ts_reshape(i, 32, 1), k), 1, (int64_t[]){1}, false), "read often");
    check(g);
}

/* Bytes and bools are computed as int32_t. */
static void narrow_wraps(void **state)
{
    ts_graph *g = ts_graph_new("narrow");
    ts_value *x = ts_input(g, "k", TS_U8, 37), *i = ts_input(g, "ki", TS_I8, 37),
             *b = ts_input(g, "kb", TS_BOOL, 37);

    (void)state;
    ts_output(ts_cast(ts_sub(x, ts_scalar(g, TS_U8, 2)), TS_F32), "u8");
    ts_output(ts_cast(ts_mul(ts_mul(i, ts_scalar(g, TS_I8, 100)), i), TS_F32), "i8");
    ts_output(ts_cast(ts_add(b, b), TS_F32), "bool");
    ts_output(ts_add(b, b), "stored");
    check(g);
}

static void narrow_iota(void **state)
{
    static const ts_dtype types[] = {TS_BOOL, TS_U8, TS_I8};
    ts_graph *g = ts_graph_new("iota");

    (void)state;
    for (int i = 0; i < TS_COUNT(types); i++) {
        ts_value *x = ts_apply(g, "iota", 0, NULL, 2,
                               (ts_arg[]){ts_arg_text("dtype", ts_dtype_name(types[i])),
                                          ts_arg_ints("shape", DIMS(300))});
        ts_output(ts_cast(x, TS_F32), "y");
        ts_output(x, "stored");
    }
    check(g);
}

static void integer_max_pool(void **state)
{
    static const ts_dtype types[] = {TS_I32, TS_I64, TS_U8};
    ts_graph *g = ts_graph_new("pool");

    (void)state;
    for (int i = 0; i < TS_COUNT(types); i++) {
        char name[16];
        snprintf(name, sizeof(name), "k%d", i);
        ts_value *x = ts_input(g, name, types[i], 1, 2, 7, 9);
        ts_value *y = ts_apply(g, "max_pool", 1, &x, 3,
                               (ts_arg[]){ts_arg_ints("kernel", DIMS(3, 3)),
                                          ts_arg_ints("padding", DIMS(1, 1)),
                                          ts_arg_ints("stride", DIMS(2, 1))});
        ts_output(y, "y");
        ts_output(ts_result(y, 1), "at");
    }
    check(g);
}

static void infinite_literals(void **state)
{
    ts_graph *g = ts_graph_new("literals");
    ts_value *x = ts_input(g, "x", TS_F32, 33), *h = ts_input(g, "xh", TS_F16, 33);

    (void)state;
    ts_output(ts_minimum(x, ts_scalar(g, TS_F32, 1e39)), "big");
    ts_output(ts_maximum(x, ts_scalar(g, TS_F32, -INFINITY)), "inf");
    ts_output(ts_minimum(h, ts_scalar(g, TS_F16, 1e6)), "half");
    ts_output(ts_mul(x, ts_scalar(g, TS_F32, -0.0)), "zero");
    ts_output(ts_maximum(x, ts_scalar(g, TS_F32, 1e-45)), "tiny");
    check(g);
}

/* Inputs, constants and states can be outputs. */
static void plain_outputs(void **state)
{
    static const float data[] = {1, 2, 3};
    ts_graph *g = ts_graph_new("outputs");
    ts_value *x = ts_input(g, "x", TS_F32, 5),
             *s = ts_buffer(g, "xs", TS_F32, ((ts_init){TS_INIT_FULL, 4, 0}), 5);

    (void)state;
    ts_assign(s, ts_add(s, x));
    ts_output(x, "input");
    ts_output(ts_const(g, TS_F32, data, 3), "const");
    ts_output(ts_full(g, TS_F32, 3, 4), "full");
    ts_output(s, "state");
    check(g);
}

/* A read of a state sees its value at the start: states can be swapped, shifted and copied. */
static void states_to_states(void **state)
{
    ts_graph *g = ts_graph_new("states");
    ts_value *x = ts_input(g, "x", TS_F32, 20), *s[5];

    (void)state;
    for (int i = 0; i < 5; i++) {
        char name[16];
        snprintf(name, sizeof(name), "s%d", i);
        s[i] = ts_buffer(g, name, TS_F32, ((ts_init){TS_INIT_FULL, i, 0}), 20);
    }
    ts_assign(s[0], s[1]);
    ts_assign(s[1], s[0]);
    ts_assign(s[2], s[3]);
    ts_assign(s[3], ts_add(s[3], x));
    ts_assign(s[4], x);
    ts_output(ts_add(s[2], s[3]), "y");
    check(g);
}

static void many_inputs(void **state)
{
    ts_graph *g = ts_graph_new("many");
    ts_value *sum = NULL;

    (void)state;
    for (int i = 0; i < 100; i++) {
        char name[16];
        snprintf(name, sizeof(name), "x%d", i);
        ts_value *x = ts_input(g, name, TS_F32, 9);
        sum = sum ? ts_add(sum, x) : x;
    }
    ts_output(sum, "sum");
    check(g);
}

/* Every second of three device iterations, each of two micro-batches: two results. */
static void every_n(void **state)
{
    ts_graph *g = ts_graph_new("every");
    ts_value *x = ts_input(g, "x", TS_F32, 4, 3),
             *w = ts_param(g, "w", TS_F32, ((ts_init){TS_INIT_FULL, 1, 0}), 3, 2);
    ts_optimizer sgd = ts_sgd(0.1);
    ts_options opt = {.optimizer = &sgd,
                      .device_iterations = 4,
                      .gradient_accumulation = 2,
                      .output_mode = TS_OUTPUT_EVERY_N,
                      .output_period = 2,
                      .cache_dir = "",
                      .executor = TS_EXECUTOR_REFERENCE};
    ts_executable *exe;
    ts_engine *e;

    (void)state;
    ts_output(ts_matmul(x, w), "y");
    ts_loss(ts_mean(ts_square(ts_matmul(x, w)), 0, NULL, false));
    assert_int_equal(ts_compile(g, &opt, &exe), TS_OK);
    assert_int_equal(ts_engine_new(exe, NULL, &e), TS_OK);
    assert_int_equal(ts_engine_slots(e), 4);
    ts_engine_free(e);
    ts_executable_free(exe);
    check_with(g, opt);
}

/* clang knows other options than gcc. */
static void other_compiler(void **state)
{
    ts_graph *g = ts_graph_new("clang");
    ts_value *x = ts_input(g, "x", TS_F32, 50);
    ts_options opt = {.cc = "clang"};
    ts_arena *a = ts_arena_new();
    bool present = ts_cc_identity(a, &opt) != NULL;

    (void)state;
    ts_arena_free(a);
    if (!present) {
        ts_graph_free(g);
        skip();
    }
    ts_output(ts_gelu(ts_exp(x)), "y");
    check_with(g, opt);
}

/* Norms over groups of 1 to 8 channels that lie last: 2 and 4 of them are joined with the groups, and their sums go
 * in two steps. */
static void channels_in_groups(void **state)
{
    static const int64_t in_group[] = {1, 2, 3, 4, 8};

    (void)state;
    for (size_t i = 0; i < sizeof(in_group) / sizeof(*in_group); i++) {
        int64_t channels = in_group[i] == 3 ? 48 : 32;
        ts_graph *g = ts_graph_new("groups");
        ts_value *x = ts_input(g, "x", TS_F32, 3, channels, 12, 20);
        ts_optimizer sgd = ts_sgd(0.05);

        x = ts_conv2d(x, "one", (int)channels, 3, .padding = 1);
        x = ts_relu(ts_group_norm(x, "norm", (int)(channels / in_group[i])));
        x = ts_conv2d(x, "two", 16, 1);
        ts_output(x, "y");
        ts_loss(ts_mean(ts_square(x), 0, NULL, false));
        check_with(g, (ts_options){.optimizer = &sgd});
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(depthwise),
        cmocka_unit_test(rows_of_two_dims),
        cmocka_unit_test(heads_of_samples),
        cmocka_unit_test(rows_together),
        cmocka_unit_test(flip_then_reshape),
        cmocka_unit_test(backward_sum),
        cmocka_unit_test(narrow_wraps),
        cmocka_unit_test(narrow_iota),
        cmocka_unit_test(integer_max_pool),
        cmocka_unit_test(infinite_literals),
        cmocka_unit_test(plain_outputs),
        cmocka_unit_test(states_to_states),
        cmocka_unit_test(many_inputs),
        cmocka_unit_test(every_n),
        cmocka_unit_test(one_lane_of_what_is_not_stored),
        cmocka_unit_test(channels_in_groups),
        cmocka_unit_test(other_compiler),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
