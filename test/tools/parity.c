/* parity.c - trains a network from given weights on given batches and writes the losses.
 *
 *   parity NET BATCH D A CALLS THREADS TYPE <in >out
 *
 * in:   for every call states to start from, each u32 length of name, name, u64 bytes, data, and a
 *       length of 0 ends them; then D*A micro-batches of images, then their labels (i32)
 * out:  D*A losses a call
 *
 * TYPE, f32 or f64, is that of images, weights and losses.
 *
 * test/python/test_parity.py writes the one, reads the other, and does the same with PyTorch.
 */
#include "models/nets.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void stop(const char *why)
{
    fprintf(stderr, "parity: %s\n", why);
    exit(1);
}

static void take(void *data, size_t bytes)
{
    if (fread(data, 1, bytes, stdin) != bytes)
        stop("the input is cut short");
}

static void *room(size_t bytes)
{
    void *p = malloc(bytes ? bytes : 1);

    if (!p)
        stop("no memory");
    return p;
}

static void load_states(ts_engine *e)
{
    uint32_t len;

    for (take(&len, 4); len; take(&len, 4)) {
        char name[256] = "";
        uint64_t bytes;
        void *data;
        if (len >= sizeof(name))
            stop("a name is too long");
        take(name, len);
        take(&bytes, 8);
        data = room(bytes);
        take(data, bytes);
        if (ts_engine_write(e, name, data, bytes))
            stop(ts_error_text());
        free(data);
    }
}

/* The same net in double precision. */
static ts_graph *doubled(ts_graph *g)
{
    char *text = ts_graph_text(g);
    ts_graph *out;

    for (char *p = text; (p = strstr(p, "f32"));)
        memcpy(p, "f64", 3);
    if (ts_graph_parse(text, &out))
        stop(ts_error_text());
    free(text);
    ts_graph_free(g);
    return out;
}

static ts_executable *compile(const char *net, int64_t batch, int D, int A, bool f64)
{
    ts_optimizer o;
    ts_options opt = {.optimizer = &o,
                      .device_iterations = D,
                      .gradient_accumulation = A,
                      .output_mode = TS_OUTPUT_ALL,
                      .cache_dir = ""};
    ts_graph *g;
    ts_executable *x;

    if (!strcmp(net, "fashion")) {
        g = net_fashion(batch);
        o = ts_sgd(0.001);
        o.hyper.momentum = 0.9;
    } else if (!strcmp(net, "digits")) {
        g = net_digits(batch, false);
        o = ts_sgd(0.03);
    } else {
        g = net_pipeline(batch);
        o = ts_adamw(0.001);
    }
    if (f64) {
        g = doubled(g);
        o.variable = 0; /* what can be changed is kept as f32 */
    }
    if (ts_compile(g, &opt, &x))
        stop(ts_error_text());
    ts_graph_free(g);
    return x;
}

int main(int argc, char **argv)
{
    int n[5];
    ts_executable *x;
    ts_engine *e;
    void *images, *losses;
    int32_t *labels;
    size_t rows, size;

    if (argc != 8)
        stop("usage: parity NET BATCH D A CALLS THREADS TYPE <in >out");
    size = strcmp(argv[7], "f64") ? sizeof(float) : sizeof(double);
    for (int i = 0; i < 5; i++)
        n[i] = atoi(argv[i + 2]);
    x = compile(argv[1], n[0], n[1], n[2], size == sizeof(double));
    if (ts_engine_new(x, &(ts_run_options){.threads = n[4]}, &e))
        stop(ts_error_text());
    rows = (size_t)(n[0] * n[1] * n[2]);
    images = room(rows * 28 * 28 * size);
    labels = room(rows * sizeof(int32_t));
    losses = room((size_t)ts_engine_slots(e) * size);
    for (int call = 0; call < n[3]; call++) {
        load_states(e);
        take(images, rows * 28 * 28 * size);
        take(labels, rows * sizeof(int32_t));
        if (ts_engine_run(e, (const void *[]){images, labels}, (void *[]){NULL, losses}))
            stop(ts_error_text());
        fwrite(losses, size, (size_t)ts_engine_slots(e), stdout);
    }
    free(images);
    free(labels);
    free(losses);
    ts_engine_free(e);
    ts_executable_free(x);
    return fflush(stdout) ? 1 : 0;
}
