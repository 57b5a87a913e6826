/* products.c - matrix products of all sizes: the share of the multiply-add peak that they reach.
 *
 *   products                  f32 and bf16, one and two threads, all sizes
 *   products f32 1 2048       one dtype, threads, sizes up to
 *
 * Three forms of each: "nn" [m,k] x [k,n], "nt" with the second matrix transposed, a linear layer, and
 * "tn" with the first transposed, the gradient of a linear layer's weight. Sizes are m, n and k alike;
 * odd ones are between the round ones. The peak is measured between the products, on the same cores, and
 * its best window counts, as that of every product does. bf16 is measured against the f32 peak too: above 100 % is what dot products of
 * halves bring.
 *
 * Prints a line a product: {"dtype", "form", "size", "threads", "gflops", "peak_pct"}
 */
#include "peak.h"
#include "tessera.h"
#include "tessera/ops.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const int sizes[] = {64,  97,  128, 197,  256,  300,  384,  509,
                            512, 768, 777, 1024, 1000, 1531, 2048, 4096};
static const char *const forms[] = {"nn", "nt", "tn"};

static void stop(const char *why)
{
    fprintf(stderr, "products: %s\n", why);
    exit(1);
}

static double larger(double x, double y)
{
    return x > y ? x : y;
}

/* --- the peak --- */

static void *other_peak(void *arg)
{
    *(double *)arg = peak(0.02);
    return NULL;
}

static double peak_of(int threads)
{
    double mine, more[64] = {0};
    pthread_t t[64];
    int started = 0;

    for (; started < threads - 1 && started < 64; started++)
        if (pthread_create(&t[started], NULL, other_peak, &more[started]))
            break;
    mine = peak(0.02);
    for (int i = 0; i < started; i++) {
        pthread_join(t[i], NULL);
        mine += more[i];
    }
    return mine;
}

/* --- a product --- */

static ts_graph *product(ts_dtype t, const char *form, int n)
{
    ts_graph *g = ts_graph_new("product");
    ts_value *a = ts_input(g, "a", t, n, n), *b = ts_input(g, "b", t, n, n);

    a = form[0] == 't' ? ts_transpose(a, 0, 1) : a;
    b = form[1] == 't' ? ts_transpose(b, 0, 1) : b;
    ts_output(ts_matmul(a, b), "y");
    return g;
}

static void *numbers(ts_dtype t, int n)
{
    size_t count = (size_t)n * (size_t)n;
    char *data = malloc(count * ts_dtype_size(t));

    for (size_t i = 0; data && i < count; i++)
        if (t == TS_F32)
            ((float *)data)[i] = (float)(i * 7 % 31) / 31 - 0.5f;
        else
            ((uint16_t *)data)[i] = (uint16_t)(0x3f00 + i * 7 % 64);
    return data;
}

/* Seconds: of the processor on one thread, which others that take turns on it do not lengthen. */
static double spent(int threads)
{
    struct timespec t;

    clock_gettime(threads == 1 ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Seconds of one product, the best of some windows; *top is the peak so far. */
static double measure(ts_engine *e, void *const *in, void *out, int threads, double *top)
{
    static double highest[3];
    double best = 1e9, end = now() + 0.4;
    int steps = 1;

    for (int w = 0; w < 4 || now() < end; w++) {
        double start, t;
        if (w % 4 == 0)
            highest[threads] = larger(highest[threads], peak_of(threads));
        start = spent(threads);
        for (int i = 0; i < steps; i++)
            if (ts_engine_run(e, (const void *const *)in, (void *[]){out}))
                stop(ts_error_text());
        t = (spent(threads) - start) / steps;
        best = t < best ? t : best;
        steps = t < 2e-3 ? (int)(4e-3 / t) + 1 : 1;
    }
    *top = highest[threads];
    return best;
}

static void run(ts_dtype t, const char *form, int n, int threads)
{
    ts_graph *g = product(t, form, n);
    ts_options opt = {.cache_dir = ""};
    ts_executable *x = NULL;
    ts_engine *e = NULL;
    void *in[2] = {numbers(t, n), numbers(t, n)}, *out = numbers(t, n);
    double top, seconds, flops = 2.0 * n * n * n;

    if (!in[0] || !in[1] || !out)
        stop("out of memory");
    if (ts_compile(g, &opt, &x) ||
        ts_engine_new(x, &(ts_run_options){.seed = 1, .threads = threads}, &e))
        stop(ts_error_text());
    seconds = measure(e, in, out, threads, &top);
    printf("{\"dtype\": \"%s\", \"form\": \"%s\", \"size\": %d, \"threads\": %d, \"gflops\": %.1f, "
           "\"peak_pct\": %.1f}\n",
           ts_dtype_name(t), form, n, threads, 1e-9 * flops / seconds, 100 * flops / seconds / top);
    fflush(stdout);
    ts_engine_free(e);
    ts_executable_free(x);
    ts_graph_free(g);
    free(in[0]);
    free(in[1]);
    free(out);
}

int main(int argc, char **argv)
{
    int threads = argc > 2 ? atoi(argv[2]) : 0, most = argc > 3 ? atoi(argv[3]) : 4096;

    for (int d = 0; d < 2; d++)
        for (int p = 1; p <= 2; p++)
            for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
                for (int f = 0; f < 3; f++) {
                    ts_dtype t = d ? TS_BF16 : TS_F32;
                    bool asked =
                        argc < 2 || !strcmp(argv[1], ts_dtype_name(t)) || !strcmp(argv[1], "all");
                    if (asked && (!threads || threads == p) && sizes[i] <= most)
                        run(t, forms[f], sizes[i], p);
                }
    return 0;
}
