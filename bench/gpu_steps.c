/* gpu_steps.c - training steps of one workload on a GPU, in windows asked for one at a time, so that
 * bench/gpu.py can put a window of PyTorch between two of ours.
 *
 *   gpu_steps W1 gpu            the workload and the device
 *   {"compile_s": ...}          printed once it is ready
 *   1.0                         on its input: run for a second
 *   8123.4                      printed: steps a second
 *   gpu_steps W1 text FILE      writes the kernels' text and ends
 *   warm                        on its input: seconds of a compile from the cache
 *   profile                     on its input: a table of what each kernel takes, then "end"
 */
#include "../test/models/nets.h"
#include "gpu/gpu.h"
#include "run/engine.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct workload {
    const char *name;
    ts_graph *(*make)(ts_dtype t);
    ts_dtype dtype;
    int iterations; /* weight updates in one call */
    ts_optimizer optimizer;
    int classes; /* of its labels */
} workload;

static ts_graph *w1(ts_dtype t)
{
    (void)t;
    return net_fashion(16);
}

static ts_graph *w2(ts_dtype t)
{
    (void)t;
    return net_digits(8, true);
}

static ts_graph *w3(ts_dtype t)
{
    (void)t;
    return net_pipeline(40);
}

static ts_graph *w4(ts_dtype t)
{
    (void)t;
    return net_residual(1, 32, 160, 256);
}

static ts_graph *w5(ts_dtype t)
{
    (void)t;
    return net_cosmic();
}

/* --- resnet18, 64x64, batch 64 --- */

static ts_value *conv_norm(ts_value *x, const char *name, int out, int kernel, int stride)
{
    ts_graph *g = x->graph;

    ts_scope_begin(g, name);
    x = ts_conv2d(x, "conv", out, kernel, .stride = stride, .padding = kernel / 2, .no_bias = true);
    x = ts_batch_norm(x, "norm");
    ts_scope_end(g);
    return x;
}

static ts_value *block(ts_value *x, ts_graph *g, const char *name, int out, int stride)
{
    ts_value *y;

    ts_scope_begin(g, name);
    y = ts_relu(conv_norm(x, "1", out, 3, stride));
    y = conv_norm(y, "2", out, 3, 1);
    if (stride > 1)
        x = conv_norm(x, "skip", out, 1, stride);
    ts_scope_end(g);
    return ts_relu(ts_add(x, y));
}

static ts_graph *resnet18(ts_dtype t)
{
    ts_graph *g = ts_graph_new("resnet18");
    ts_value *x = ts_input(g, "x", TS_F32, 64, 3, 64, 64),
             *labels = ts_input(g, "labels", TS_I32, 64);
    char name[8];

    x = ts_cast(x, t);
    x = ts_max_pool2d(ts_relu(conv_norm(x, "stem", 64, 7, 2)), 3, .stride = 2, .padding = 1);
    for (int i = 0; i < 8; i++) {
        snprintf(name, sizeof(name), "b%d", i);
        x = block(x, g, name, 64 << i / 2, i > 1 && i % 2 == 0 ? 2 : 1);
    }
    x = ts_mean(x, 2, (const int64_t[]){2, 3}, false);
    x = ts_cast(ts_linear(x, "fc", 1000), TS_F32);
    ts_output(x, "y");
    ts_loss(ts_cross_entropy(x, labels));
    return g;
}

/* --- encoder of 4 layers: 256 wide, 8 heads, 1024 inside; 128 tokens, batch 32 --- */

enum { BATCH = 32, TOKENS = 128, WIDTH = 256, HEADS = 8 };

static ts_value *heads(ts_value *x, const char *name)
{
    return ts_permute(ts_reshape(ts_linear(x, name, WIDTH), BATCH, TOKENS, HEADS, WIDTH / HEADS), 0,
                      2, 1, 3);
}

static ts_value *layer(ts_value *x, ts_graph *g, const char *name)
{
    ts_value *q, *k, *v, *y;

    ts_scope_begin(g, name);
    q = heads(x, "q");
    k = heads(x, "k");
    v = heads(x, "v");
    y = ts_permute(ts_attention(q, k, v, NULL), 0, 2, 1, 3);
    y = ts_linear(ts_reshape(y, BATCH, TOKENS, WIDTH), "out", WIDTH);
    x = ts_layer_norm(ts_add(x, y), "norm1");
    y = ts_linear(ts_relu(ts_linear(x, "up", 4 * WIDTH)), "down", WIDTH);
    x = ts_layer_norm(ts_add(x, y), "norm2");
    ts_scope_end(g);
    return x;
}

static ts_graph *encoder(ts_dtype t)
{
    ts_graph *g = ts_graph_new("encoder");
    ts_value *x = ts_input(g, "x", TS_F32, BATCH, TOKENS, WIDTH);
    char name[8];

    x = ts_cast(x, t);
    for (int i = 0; i < 4; i++) {
        snprintf(name, sizeof(name), "l%d", i);
        x = layer(x, g, name);
    }
    x = ts_cast(x, TS_F32);
    ts_output(x, "y");
    ts_loss(ts_mean(ts_square(x), 0, NULL, false));
    return g;
}

/* --- running --- */

static void stop(const char *why)
{
    fprintf(stderr, "gpu_steps: %s\n", why);
    exit(1);
}

static ts_executable *compile(const workload *w, ts_device_kind device, const char *cache)
{
    ts_options opt = {.optimizer = &w->optimizer,
                      .device_iterations = w->iterations,
                      .cache_dir = cache,
                      .skip = getenv("GPU_STEPS_SKIP"), /* a pass, to see what it gains */
                      .device_kind = device};
    ts_graph *g = w->make(w->dtype);
    ts_executable *x;

    if (ts_compile(g, &opt, &x))
        stop(ts_error_text());
    ts_graph_free(g);
    return x;
}

/* Seconds until it is compiled once more, from the cache: what a program's second start takes. */
static double warm(const workload *w, ts_device_kind device)
{
    char dir[] = "/tmp/gpu_steps_XXXXXX";
    double begun;

    if (!mkdtemp(dir))
        stop("no folder for a cache");
    ts_executable_free(compile(w, device, dir));
    begun = ts_now();
    ts_executable_free(compile(w, device, dir));
    return ts_now() - begun;
}

static int launches(const ts_gpu_code *c)
{
    int n = 1;

    for (int i = 0; c && i < c->nrows; i++)
        n += c->rows[i].kind == TS_GPU_LAUNCH;
    return n;
}

/* The kernels' text, which needs no GPU. */
static void write_text(const workload *w, const char *path)
{
    ts_options opt = {.optimizer = &w->optimizer,
                      .device_iterations = w->iterations,
                      .skip = getenv("GPU_STEPS_SKIP"),
                      .device_kind = TS_DEVICE_GPU,
                      .device_memory = INT64_C(1) << 40};
    ts_arena *a = ts_arena_new();
    ts_graph *g = w->make(w->dtype);
    const ts_program *p;
    ts_gpu_code code;

    if (ts_compile_plan(a, g, &opt, &p) || ts_gpu_text(a, p, &opt, &code) ||
        ts_file_write(path, code.text, strlen(code.text)))
        stop(ts_error_text());
    printf("%d launches\n", launches(&code));
    ts_graph_free(g);
    ts_arena_free(a);
}

static void *feed(const ts_executable *x, int i, int rows, int classes)
{
    const ts_tensor_info *t = ts_executable_tensor(x, TS_ROLE_INPUT, i);
    size_t n = t ? (size_t)rows * t->bytes / ts_dtype_size(t->dtype) : 0;
    char *data = n ? malloc(n * ts_dtype_size(t->dtype)) : NULL;
    uint64_t state = 1;

    for (size_t k = 0; data && k < n; k++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        if (t->dtype == TS_F32)
            ((float *)data)[k] = (float)(state >> 40) * 0x1p-23f - 1;
        else
            ((int32_t *)data)[k] = (int32_t)((state >> 33) % (uint64_t)classes);
    }
    return data;
}

static double window(ts_engine *e, const void *const *in, int iterations, double seconds)
{
    double start = ts_now(), end;
    int64_t steps = 0;
    float loss = 0;

    do {
        if (ts_engine_run(e, in, (void *[]){NULL, &loss}))
            stop(ts_error_text());
        steps += iterations;
        end = ts_now();
    } while (end - start < seconds);
    if (!isfinite(loss))
        stop("the loss is not finite any more");
    return (double)steps / (end - start);
}

static void profile(ts_engine *e)
{
    const ts_gpu_code *c = ts_gpu_code_of(e->exe);
    double *seconds = calloc((size_t)c->nrows + 1, sizeof(double)), total = 0;

    if (ts_gpu_profile(e, seconds))
        stop(ts_error_text());
    for (int i = 0; i < c->nrows; i++) {
        const ts_gpu_row *r = &c->rows[i];
        total += seconds[i];
        if (r->kind == TS_GPU_LAUNCH)
            printf("%8.2f us  k%-4d %8ld x %-4d %s\n", 1e6 * seconds[i], r->function,
                   (long)r->groups, r->threads, r->name);
    }
    printf("%8.2f us  all\nend\n", 1e6 * total);
    fflush(stdout);
    free(seconds);
}

int main(int argc, char **argv)
{
    workload all[] = {{"W1", w1, TS_F32, 64, ts_sgd(0.001), 10},
                      {"W2", w2, TS_F32, 64, ts_sgd(0.03), 10},
                      {"W3", w3, TS_F32, 64, ts_adamw(0.001), 10},
                      {"W4", w4, TS_F32, 8, ts_sgd(0.01), 10},
                      {"W5", w5, TS_F32, 1, ts_adam(0.0001), 3},
                      {"resnet18", resnet18, TS_F32, 4, ts_sgd(0.001), 10},
                      {"encoder", encoder, TS_F32, 4, ts_adamw(0.0001), 10},
                      {"resnet18-bf16", resnet18, TS_BF16, 4, ts_sgd(0.001), 10},
                      {"encoder-bf16", encoder, TS_BF16, 4, ts_adamw(0.0001), 10}},
             *w = NULL;
    ts_device_kind device = argc > 2 && !strcmp(argv[2], "opencl") ? TS_DEVICE_OPENCL
                            : argc > 2 && !strcmp(argv[2], "cpu")  ? TS_DEVICE_CPU
                                                                   : TS_DEVICE_GPU;
    const void *in[2];
    char word[64];
    float loss = 0;
    ts_executable *x;
    ts_engine *e;

    all[0].optimizer.hyper.momentum = 0.9;
    for (int i = 0; argc > 1 && i < TS_COUNT(all); i++)
        if (!strcmp(all[i].name, argv[1]))
            w = &all[i];
    if (!w)
        stop("usage: gpu_steps WORKLOAD gpu|opencl|cpu, or WORKLOAD text FILE");
    if (argc > 3) {
        write_text(w, argv[3]);
        return 0;
    }
    x = compile(w, device, "");
    for (int i = 0; i < 2; i++)
        in[i] = feed(x, i, w->iterations, w->classes);
    if (ts_engine_new(x, &(ts_run_options){.seed = 1}, &e))
        stop(ts_error_text());
    if (ts_engine_run(e, in, (void *[]){NULL, &loss}))
        stop(ts_error_text());
    printf("{\"compile_s\": %.3f, \"first_loss\": %.7g, \"plan_bytes\": %zu, \"flops\": %.0f, "
           "\"kernels\": %d, "
           "\"launches\": %d}\n",
           ts_executable_stats(x).compile_seconds, loss, ts_executable_stats(x).peak_bytes,
           ts_executable_stats(x).flops, ts_executable_stats(x).kernels,
           launches(x->gpu ? ts_gpu_code_of(x) : NULL));
    fflush(stdout);
    while (scanf("%63s", word) == 1) {
        if (!strcmp(word, "profile"))
            profile(e);
        else if (!strcmp(word, "warm"))
            printf("%.6f\n", warm(w, device));
        else
            printf("%.6f\n", window(e, in, w->iterations, atof(word)));
        fflush(stdout);
    }
    ts_engine_free(e);
    ts_executable_free(x);
    free((void *)in[0]);
    free((void *)in[1]);
    return 0;
}
