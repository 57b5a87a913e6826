/* transpose.c - rows to batch in the lanes and back, channels first to last and back, for sizes
 * that the lanes divide and others; weights in blocks turned for the gradient of the input, and trained there. */
#include "compare.h"
#include "support.h"
#include "tessera.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef struct shape {
    int samples, features, lanes;
    const char *isa;
    bool blocks; /* turned in registers */
} shape;

static ts_executable *compile_text(const shape *s, const char *format, ...)
{
    char text[512];
    ts_graph *g;
    ts_executable *x = NULL;
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    if (ts_graph_parse(text, &g) || ts_compile(g,
                                               &(ts_options){.executor = TS_EXECUTOR_NATIVE,
                                                             .isa = s->isa,
                                                             .skip = "simplify,layout,order,fuse",
                                                             .cache_dir = ""},
                                               &x))
        fail_msg("%s", ts_error_text());
    ts_graph_free(g);
    return x;
}

/* x in the lanes, doubled there, and back as rows: both directions. */
static ts_executable *compile(const shape *s)
{
    return compile_text(s,
                        "graph g\n"
                        "input %%x : f32[%d,1,%d]\n"
                        "%%1 : f32[%d,1,%d] @layout 012/0x%d = nop(%%x)\n"
                        "%%2 : f32[%d,1,%d] @layout 012/0x%d = add(%%1, %%1)\n"
                        "%%3 : f32[%d,%d] = reshape(%%2) shape=[%d,%d]\n"
                        "%%4 : f32[%d,%d] = nop(%%3)\n"
                        "output y = %%4\n",
                        s->samples, s->features, s->samples, s->features, s->lanes, s->samples,
                        s->features, s->lanes, s->samples, s->features, s->samples, s->features,
                        s->samples, s->features);
}

static void check(const shape *s, ts_executable *exe, int threads)
{
    ts_engine *e;
    int n = s->samples * s->features;
    float *x = malloc(sizeof(float) * (size_t)n), *y = calloc((size_t)n, sizeof(float));

    assert_int_equal(!!strstr(ts_executable_source(exe), "SWAP_"), s->blocks);
    for (int i = 0; i < n; i++)
        x[i] = (float)i + 0.25f;
    if (ts_engine_new(exe, &(ts_run_options){.threads = threads}, &e) ||
        ts_engine_run(e, (const void *[]){x}, (void *[]){y}))
        fail_msg("%s", ts_error_text());
    for (int i = 0; i < n; i++)
        if (y[i] != 2 * x[i])
            fail_msg("%d x %d, lanes %d, %s: element %d is %g, not %g", s->samples, s->features,
                     s->lanes, s->isa ? s->isa : "this machine", i, (double)y[i], 2 * (double)x[i]);
    ts_engine_free(e);
    ts_executable_free(exe);
    free(x);
    free(y);
}

static void there_and_back(void **state)
{
    static const shape shapes[] = {
        {16, 64, 16, NULL, true},       {16, 37, 16, NULL, true}, {48, 100, 16, NULL, true},
        {8, 8, 8, "portable", true},    {24, 203, 8, NULL, true}, {40, 9, 8, "portable", true},
        {16, 15, 16, NULL, false},      {8, 7, 8, NULL, false}, /* less than a block */
        {20, 33, 8, "portable", false},                         /* lanes that are not full */
    };

    (void)state;
    for (size_t i = 0; i < sizeof(shapes) / sizeof(*shapes); i++)
        for (int threads = 1; threads <= 3; threads += 2)
            check(&shapes[i], compile(&shapes[i]), threads);
}

/* The same for channels: samples of `features` numbers, `lanes` of them channels. */
static ts_executable *compile_last(const shape *s)
{
    int c = s->lanes, w = s->features / c;

    return compile_text(s,
                        "graph g\n"
                        "input %%x : f32[%d,%d,%d,1]\n"
                        "%%1 : f32[%d,%d,%d,1] @layout 0231 = nop(%%x)\n"
                        "%%2 : f32[%d,%d,%d,1] @layout 0231 = add(%%1, %%1)\n"
                        "%%3 : f32[%d,%d,%d,1] = nop(%%2)\n"
                        "output y = %%3\n",
                        s->samples, c, w, s->samples, c, w, s->samples, c, w, s->samples, c, w);
}

static void channels_and_back(void **state)
{
    static const shape shapes[] = {
        {1, 32 * 40, 32, NULL, true},
        {3, 16 * 37, 16, NULL, true},
        {2, 24 * 50, 24, NULL, true},
        {2, 4 * 9, 4, "portable", true},
        {2, 12 * 21, 12, "portable", true},
        {2, 6 * 40, 6, NULL, true},
        {3, 33 * 41, 33, NULL, true},
        {2, 5 * 19, 5, "portable", true},
        {2, 31 * 20, 31, "x86-64-v3", true},
        {2, 3 * 40, 3, NULL, true}, /* less than the shortest vector */
        {3, 3 * 37, 3, "portable", true},
        {5, 2 * 9, 2, NULL, true},
        {2, 3 * 3, 3, NULL, false},         /* less than a block */
        {5, 32 * 3, 32, "portable", false}, /* less than a block */
    };

    (void)state;
    for (size_t i = 0; i < sizeof(shapes) / sizeof(*shapes); i++)
        for (int threads = 1; threads <= 3; threads += 2)
            check(&shapes[i], compile_last(&shapes[i]), threads);
}

/* Channels that were last come first, before the samples, and go back. */
static ts_executable *compile_first(const shape *s)
{
    int n = s->samples, c = s->lanes, w = s->features / c;

    return compile_text(s,
                        "graph g\n"
                        "input %%x : f32[%d,%d,%d,1]\n"
                        "%%1 : f32[%d,%d,%d,1] @layout 0231 = nop(%%x)\n"
                        "%%2 : f32[%d,%d,%d,1] @layout 1023 = nop(%%1)\n"
                        "%%3 : f32[%d,%d,%d,1] @layout 1023 = add(%%2, %%2)\n"
                        "%%4 : f32[%d,%d,%d,1] @layout 0231 = nop(%%3)\n"
                        "%%5 : f32[%d,%d,%d,1] = nop(%%4)\n"
                        "output y = %%5\n",
                        n, c, w, n, c, w, n, c, w, n, c, w, n, c, w, n, c, w);
}

static void channels_first_of_all(void **state)
{
    static const shape shapes[] = {
        {1, 32 * 40, 32, NULL, true},       {3, 16 * 37, 16, NULL, true},
        {5, 33 * 7, 33, "x86-64-v3", true}, {2, 12 * 3, 12, "portable", true},
        {5, 3 * 1, 3, "portable", false}, /* less than a block */
    };

    (void)state;
    for (size_t i = 0; i < sizeof(shapes) / sizeof(*shapes); i++)
        for (int threads = 1; threads <= 3; threads += 2)
            check(&shapes[i], compile_first(&shapes[i]), threads);
}

/* A weight of samples x features / 6 channels and 2 x 3 taps in blocks of a vector, turned and back. */
static ts_executable *compile_blocks(const shape *s)
{
    int o = s->samples, c = s->features / 6, l = s->lanes;

    return compile_text(s,
                        "graph g\n"
                        "input %%x : f32[%d,%d,2,3]\n"
                        "%%1 : f32[%d,%d,2,3] @layout 0231/0x%d = nop(%%x)\n"
                        "%%2 : f32[%d,%d,2,3] @layout 1230/1x%d = nop(%%1)\n"
                        "%%3 : f32[%d,%d,2,3] @layout 1230/1x%d = add(%%2, %%2)\n"
                        "%%4 : f32[%d,%d,2,3] @layout 0231/0x%d = nop(%%3)\n"
                        "%%5 : f32[%d,%d,2,3] = nop(%%4)\n"
                        "output y = %%5\n",
                        o, c, o, c, l, o, c, l, o, c, l, o, c, l, o, c);
}

static void blocks_turned(void **state)
{
    static const shape shapes[] = {
        {16, 16 * 6, 16, NULL, true},       {48, 32 * 6, 16, NULL, true},
        {8, 40 * 6, 8, "x86-64-v3", true},  {12, 8 * 6, 4, "portable", true},
        {20, 16 * 6, 8, "portable", false}, /* a block that is not full */
    };

    (void)state;
    for (size_t i = 0; i < sizeof(shapes) / sizeof(*shapes); i++)
        for (int threads = 1; threads <= 3; threads += 2)
            check(&shapes[i], compile_blocks(&shapes[i]), threads);
}

/* Convolutions whose weights lie in blocks: with a stride, with a kernel of one, and none in blocks where the
 * channels do not fill them. */
static ts_graph *net(int64_t channels)
{
    ts_graph *g = ts_graph_new("net");
    ts_value *x = ts_input(g, "x", TS_F32, 3, channels, 7, 9);

    x = ts_relu(ts_conv2d(x, "one", 96, 3, .padding = 1, .stride = 2));
    x = ts_relu(ts_conv2d(x, "two", 2 * channels, 3, .padding = 1));
    x = ts_conv2d(x, "three", 192, 1);
    ts_output(x, "y");
    ts_loss(ts_mean(ts_square(x), 0, NULL, false));
    return g;
}

static void train(int64_t channels, ts_options opt, int threads, results *r)
{
    ts_executable *x = trained_by_sgd(net(channels), opt, threads, r);

    if (!x)
        fail_msg("%s", ts_error_text());
    if (opt.executor == TS_EXECUTOR_NATIVE)
        assert_int_equal(!!strstr(ts_executable_source(x), "const float *const x = "),
                         channels % 16 == 0);
    ts_executable_free(x);
}

static void trained_in_blocks(void **state)
{
    static const int64_t sizes[] = {48, 50, 96}; /* the last ones' operands are copied */

    (void)state;
    for (int k = 0; k < 3; k++) {
        int64_t channels = sizes[k];
        results want, got, again;
        train(channels, (ts_options){.executor = TS_EXECUTOR_REFERENCE}, 1, &want);
        train(channels, (ts_options){.executor = TS_EXECUTOR_NATIVE}, 1, &got);
        train(channels, (ts_options){.executor = TS_EXECUTOR_NATIVE}, 3, &again);
        for (int i = 0; i < want.n; i++) {
            int64_t at;
            double d = distance(&want, &got, i, false, &at);
            if (d > 1e-5)
                fail_msg("%ld channels: %s, element %ld, off by %.2g", (long)channels,
                         want.info[i].name, (long)at, d);
            assert_memory_equal(got.data[i], again.data[i], want.info[i].bytes);
        }
        results_free(&want);
        results_free(&got);
        results_free(&again);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(there_and_back), cmocka_unit_test(channels_and_back),
        cmocka_unit_test(channels_first_of_all), cmocka_unit_test(blocks_turned),
        cmocka_unit_test(trained_in_blocks)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
