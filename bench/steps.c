/* steps.c - training steps of one workload, in windows asked for one at a time, so that
 * bench/run.py can put a window of PyTorch between two of ours.
 *
 *   steps W1 2 /tmp/cache       the workload, threads at most, a folder for the cache
 *   {"compile_cold_s": ...}     printed once it is ready
 *   1.0                         on its input: run for a second
 *   8123.4                      printed: steps a second
 *
 * "rss_bytes" is what the loop has in memory: anonymous pages of this process once it has run,
 * less those from before the engine was made. Any block of a page or more is a mapping of its own
 * (mallopt), so that neither the compile's freed memory is used again, which would count nothing,
 * nor freed memory kept, which would count too much. Compare it with "plan_bytes": what is above
 * it is the engine's own, threads' stacks for the most part, and the rounding to pages.
 */
#include "../test/models/nets.h"
#include <malloc.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct workload {
    const char *name;
    ts_graph *(*make)(void);
    int iterations; /* weight updates in one call */
    ts_optimizer optimizer;
    int labels; /* classes */
} workload;

static ts_graph *w1(void)
{
    return net_fashion(16);
}

static ts_graph *w2(void)
{
    return net_digits(8, true);
}

static ts_graph *w3(void)
{
    return net_pipeline(40);
}

static ts_graph *w4(void)
{
    return net_residual(1, 32, 160, 256);
}

static void stop(const char *why)
{
    fprintf(stderr, "steps: %s\n", why);
    exit(1);
}

/* CosmicTagger's network, as its description says it. */
static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static ts_executable *compile(const workload *w, const char *cache_dir)
{
    ts_options opt = {
        .optimizer = &w->optimizer, .device_iterations = w->iterations, .cache_dir = cache_dir};
    ts_graph *g = w->make();
    ts_executable *x;

    if (ts_compile(g, &opt, &x))
        stop(ts_error_text());
    ts_graph_free(g);
    return x;
}

/* Anonymous pages in memory, in bytes. The kernel walks the page tables for this file; the counters
 * of /proc/self/statm lag behind. */
static double resident(void)
{
    FILE *f = fopen("/proc/self/smaps_rollup", "r");
    char line[256];
    double kilobytes = -1;

    while (f && kilobytes < 0 && fgets(line, sizeof(line), f))
        sscanf(line, "Anonymous: %lf kB", &kilobytes);
    if (f)
        fclose(f);
    if (kilobytes < 0)
        stop("/proc/self/smaps_rollup does not tell the anonymous memory");
    return kilobytes * 1024;
}

/* One call's inputs, made up: images around 0, labels from 0. */
static void *feed(const ts_executable *x, int i, const workload *w)
{
    const ts_tensor_info *t = ts_executable_tensor(x, TS_ROLE_INPUT, i);
    size_t n = t ? (size_t)w->iterations * t->bytes / ts_dtype_size(t->dtype) : 0;
    char *data = n ? malloc(n * ts_dtype_size(t->dtype)) : NULL;
    uint64_t state = 1;

    for (size_t k = 0; data && k < n; k++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        if (t->dtype == TS_F32)
            ((float *)data)[k] = (float)(state >> 40) * 0x1p-23f - 1;
        else
            ((int32_t *)data)[k] = (int32_t)((state >> 33) % (uint64_t)w->labels);
    }
    return data;
}

static double window(ts_engine *e, const void *const *in, int iterations, double seconds)
{
    double start = now(), end;
    int64_t steps = 0;
    float loss = 0;

    do {
        if (ts_engine_run(e, in, (void *[]){NULL, &loss}))
            stop(ts_error_text());
        steps += iterations;
        end = now();
    } while (end - start < seconds);
    if (!isfinite(loss))
        stop("the loss is not finite any more");
    return (double)steps / (end - start);
}

static void report(const workload *w, const ts_executable *x, const char *cache_dir, double rss)
{
    ts_stats cold = ts_executable_stats(x), warm;
    ts_executable *again;

    ts_executable_free(compile(w, cache_dir));
    again = compile(w, cache_dir);
    warm = ts_executable_stats(again);
    ts_executable_free(again);
    printf("{\"compile_cold_s\": %.3f, \"compile_again_s\": %.6f, \"from_cache\": %s, "
           "\"plan_bytes\": %zu, \"rss_bytes\": %.0f, \"flops\": %.0f, \"kernels\": %d}\n",
           cold.compile_seconds, warm.compile_seconds, warm.from_cache ? "true" : "false",
           cold.peak_bytes, rss, cold.flops, cold.kernels);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    workload all[] = {{"W1", w1, 16, ts_sgd(0.001), 10},
                      {"W2", w2, 16, ts_sgd(0.03), 10},
                      {"W3", w3, 16, ts_adamw(0.001), 10},
                      {"W4", w4, 1, ts_sgd(0.01), 10},
                      {"W5", net_cosmic, 1, ts_adam(0.0001), 3}},
             *w = NULL;
    ts_executable *x;
    ts_engine *e;
    const void *in[2];
    double rss, seconds;

    all[0].optimizer.hyper.momentum = 0.9;
    for (int i = 0; argc == 4 && i < 5; i++)
        if (!strcmp(all[i].name, argv[1]))
            w = &all[i];
    if (!w)
        stop("usage: steps W1|W2|W3|W4|W5 THREADS CACHE-FOLDER");
    mallopt(M_MMAP_THRESHOLD, 4096);
    mallopt(M_MMAP_MAX, 1 << 20);
    x = compile(w, "");
    in[0] = feed(x, 0, w);
    in[1] = feed(x, 1, w);
    rss = resident();
    setenv("OMP_NUM_THREADS", argv[2], 1); /* the engine finds out how many of them help */
    if (ts_engine_new(x, &(ts_run_options){.seed = 1}, &e))
        stop(ts_error_text());
    window(e, in, w->iterations, 0.01);
    report(w, x, argv[3], resident() - rss);
    while (scanf("%lf", &seconds) == 1) {
        printf("%.6f\n", window(e, in, w->iterations, seconds));
        fflush(stdout);
    }
    ts_engine_free(e);
    ts_executable_free(x);
    free((void *)in[0]);
    free((void *)in[1]);
    return 0;
}
