/* example.h - what the examples share that is not their network: the options of the command line,
 * training with progress, and then how much of the test set is right. example_run() at the end of
 * the file is a whole training program; start reading there. */
#ifndef EXAMPLE_H
#define EXAMPLE_H

#include "idx.h"
#include "tessera.h"
#include <getopt.h>
#include <string.h>

#define FASHION_MNIST "/usr/share/datasets/fashion-mnist" /* Debian: dataset-fashion-mnist */

/* --- options --- */

typedef struct example_args {
    const char *data; /* the folder */
    int epochs, threads;
    int64_t limit; /* samples of each set to use; 0: all */
    uint64_t seed;
    double lr;
} example_args;

static inline void example_usage(FILE *f, const char *program, const example_args *d)
{
    fprintf(f,
            "usage: %s [options] [DIR]\n"
            "  --data DIR    folder of the IDX files, gzipped or not (%s)\n"
            "  --epochs N    times through the training set (%d)\n"
            "  --limit N     use the first N samples of each set only\n"
            "  --threads N   threads (the cores there are)\n"
            "  --seed N      of the first weights and the order of samples (%llu)\n"
            "  --lr X        learning rate (%g)\n",
            program, d->data, d->epochs, (unsigned long long)d->seed, d->lr);
}

static inline double example_number(const char *program, const char *option, const char *text,
                                    double least)
{
    char *end;
    double x = strtod(text, &end);

    if (*text && !*end && x >= least && x <= 1e15)
        return x;
    fprintf(stderr, "%s: --%s takes a number of at least %g, not '%s'\n", program, option, least,
            text);
    exit(2);
}

static inline int64_t example_whole(const char *program, const char *option, const char *text,
                                    int64_t least, int64_t most)
{
    double x = example_number(program, option, text, (double)least);

    if (x <= (double)most && x == (double)(int64_t)x)
        return (int64_t)x;
    fprintf(stderr, "%s: --%s takes a whole number from %lld to %lld, not '%s'\n", program, option,
            (long long)least, (long long)most, text);
    exit(2);
}

/* The defaults with what the command line says; leaves the program when that makes no sense. */
static inline example_args example_read(int argc, char **argv, example_args defaults)
{
    static const struct option known[] = {{"data", 1, NULL, 'd'},  {"epochs", 1, NULL, 'e'},
                                          {"limit", 1, NULL, 'l'}, {"threads", 1, NULL, 't'},
                                          {"seed", 1, NULL, 's'},  {"lr", 1, NULL, 'r'},
                                          {"help", 0, NULL, 'h'},  {0}};
    example_args a = defaults;
    int c, which = 0;

    while ((c = getopt_long(argc, argv, "h", known, &which)) != -1) {
        const char *name = known[which].name;
        switch (c) {
        case 'd':
            a.data = optarg;
            break;
        case 'e':
            a.epochs = (int)example_whole(argv[0], name, optarg, 1, 1000000);
            break;
        case 'l':
            a.limit = example_whole(argv[0], name, optarg, 1, 1000000000);
            break;
        case 't':
            a.threads = (int)example_whole(argv[0], name, optarg, 1, 1024);
            break;
        case 's':
            a.seed = (uint64_t)example_whole(argv[0], name, optarg, 0, 1000000000000000);
            break;
        case 'r':
            a.lr = example_number(argv[0], name, optarg, 0);
            break;
        default:
            example_usage(c == 'h' ? stdout : stderr, argv[0], &defaults);
            exit(c == 'h' ? 0 : 2);
        }
    }
    if (optind < argc)
        a.data = argv[optind++];
    if (optind < argc) {
        example_usage(stderr, argv[0], &defaults);
        exit(2);
    }
    return a;
}

/* Reads both sets or leaves the program. */
static inline void example_load(const example_args *a, double mean, double deviation,
                                idx_set *train, idx_set *test)
{
    if (idx_load(a->data, "train", a->limit, mean, deviation, train) &&
        idx_load(a->data, "t10k", a->limit, mean, deviation, test))
        return;
    fprintf(stderr, "Fashion-MNIST comes with Debian's package dataset-fashion-mnist; other data "
                    "of the same form with --data DIR.\n");
    idx_free(train);
    exit(1);
}

/* --- progress on stderr: a bar on a terminal, else a line an epoch --- */

static inline bool example_progress(void *arg, int epoch, int64_t step, int64_t steps, double loss)
{
    const example_args *a = arg;
    bool last = step + 1 == steps, terminal = isatty(2);
    int done = (int)(30 * (step + 1) / steps);

    if (terminal && (last || 200 * (step + 1) / steps != 200 * step / steps))
        fprintf(stderr, "\repoch %d/%d [%.*s%.*s] %ld/%ld  loss %.4f%s", epoch + 1, a->epochs, done,
                "##############################", 30 - done, "..............................",
                (long)(step + 1), (long)steps, loss, last ? "\n" : "");
    else if (!terminal && last)
        fprintf(stderr, "epoch %d/%d  loss %.4f\n", epoch + 1, a->epochs, loss);
    return true;
}

/* --- accuracy --- */

/* Every state that both have, by name: weights and buffers, not the optimiser's. */
static inline ts_status example_copy_weights(const ts_engine *from, const ts_executable *to_exe,
                                             ts_engine *to)
{
    const ts_tensor_info *t;
    ts_status s = TS_OK;

    for (int i = 0; !s && (t = ts_executable_tensor(to_exe, TS_ROLE_STATE, i)); i++) {
        void *data = malloc(t->bytes);
        s = data ? ts_engine_read(from, t->name, data, t->bytes) : TS_ERR_MEMORY;
        if (!s)
            s = ts_engine_write(to, t->name, data, t->bytes);
        free(data);
    }
    return s;
}

static inline int64_t example_count_right(const float *scores, const int32_t *labels, int64_t n)
{
    int64_t right = 0;

    for (int64_t i = 0; i < n; i++, scores += IDX_CLASSES) {
        int best = 0;
        for (int c = 1; c < IDX_CLASSES; c++)
            if (scores[c] > scores[best])
                best = c;
        right += best == labels[i];
    }
    return right;
}

/* How much of the set an engine whose only input is images and whose first output is scores gets
 * right, `rows` at a time; the last rows are filled up with whatever was there. */
static inline ts_status example_accuracy(ts_engine *e, int64_t rows, const idx_set *set,
                                         double *percent)
{
    float *images = calloc((size_t)rows, sizeof(float[IDX_PIXELS]));
    float *scores = calloc((size_t)rows, sizeof(float[IDX_CLASSES]));
    ts_status s = images && scores ? TS_OK : TS_ERR_MEMORY;
    int64_t right = 0;

    for (int64_t at = 0; !s && at < set->n; at += rows) {
        int64_t n = set->n - at < rows ? set->n - at : rows;
        memcpy(images, set->images + at * IDX_PIXELS, sizeof(float[IDX_PIXELS]) * (size_t)n);
        s = ts_engine_run(e, (const void *[]){images}, (void *[]){scores});
        if (!s)
            right += example_count_right(scores, set->labels + at, n);
    }
    *percent = 100.0 * (double)right / (double)set->n;
    free(images);
    free(scores);
    return s;
}

/* --- the whole program --- */

typedef struct example {
    ts_graph *(*network)(int64_t batch, bool training);
    int64_t batch, test_batch;  /* samples of a micro-batch */
    ts_options training, tests; /* of compiling; training has the optimizer */
    double mean, deviation;     /* that pixels are normalised with */
    const char *says;           /* in front of the accuracy */
} example;

static inline ts_status example_train(const example_args *a, const ts_executable *exe,
                                      const idx_set *set, ts_engine **e)
{
    ts_run_options run = {.threads = a->threads, .seed = a->seed};
    ts_train_options how = {
        .epochs = a->epochs, .seed = a->seed, .report = example_progress, .arg = (void *)a};
    ts_status s = ts_engine_new(exe, &run, e);

    if (!s)
        s = ts_train(*e, set->n, (const void *[]){set->images, set->labels}, &how, NULL);
    return s ? s : ts_engine_profile(*e); /* was one written, if it was asked for? */
}

/* The same layers without loss and optimiser, and the weights by name. */
static inline ts_status example_test(const example_args *a, const example *x,
                                     const ts_engine *trained, const idx_set *set, double *percent)
{
    ts_graph *net = x->network(x->test_batch, false);
    int64_t iterations = x->tests.device_iterations ? x->tests.device_iterations : 1;
    ts_executable *exe = NULL;
    ts_engine *e = NULL;
    ts_status s = ts_compile(net, &x->tests, &exe);

    if (!s)
        s = ts_engine_new(exe, &(ts_run_options){.threads = a->threads}, &e);
    if (!s)
        s = example_copy_weights(trained, exe, e);
    if (!s)
        s = example_accuracy(e, x->test_batch * iterations, set, percent);
    ts_engine_free(e);
    ts_executable_free(exe);
    ts_graph_free(net);
    return s;
}

/* Trains, tests, and says how good it is. Returns what main should. */
static inline int example_run(const example_args *a, const example *x)
{
    ts_graph *net = x->network(x->batch, true);
    ts_executable *exe = NULL;
    ts_engine *e = NULL;
    idx_set train, test;
    double accuracy;
    ts_status s;

    example_load(a, x->mean, x->deviation, &train, &test);
    s = ts_compile(net, &x->training, &exe);
    if (!s)
        s = example_train(a, exe, &train, &e);
    if (!s)
        s = example_test(a, x, e, &test, &accuracy);
    if (s)
        fputs(ts_error_text(), stderr);
    else
        printf("%s: %.2f%%\n", x->says, accuracy);
    ts_engine_free(e);
    ts_executable_free(exe);
    ts_graph_free(net);
    idx_free(&train);
    idx_free(&test);
    return s ? 1 : 0;
}

#endif
