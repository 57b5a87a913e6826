/* sweep.c - training steps of nets that differ by one in one size: is there a size at which a step
 * suddenly takes longer than its neighbours' work explains?
 *
 *   sweep                 all families, one thread
 *   sweep batches 2       one family, threads
 *
 * A family's nets are compiled first and then take turns, a short window each, so that whatever else
 * the machine does meets all of them; the best window counts, in processor time of this process. For
 * each size: microseconds, and how much longer the step takes than that of the size before, beside how
 * much more work it is. "jump" is the largest excess of one over the other, up or down.
 */
#include "../test/models/sizes.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST = 32 };

typedef struct net {
    ts_executable *x;
    ts_engine *e;
    void *in[2];
    double best; /* seconds a step */
    int steps;   /* in a window */
} net;

static void stop(const char *why)
{
    fprintf(stderr, "sweep: %s\n", why);
    exit(1);
}

/* --- measuring --- */

static double now(clockid_t clock)
{
    struct timespec t;

    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *feed(const ts_executable *x, int i)
{
    const ts_tensor_info *t = ts_executable_tensor(x, TS_ROLE_INPUT, i);
    size_t n = t->bytes / sizeof(float);
    float *data = malloc(t->bytes);
    uint64_t state = 1;

    for (size_t k = 0; data && k < n; k++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        data[k] = (float)(state >> 40) * 0x1p-23f - 1;
    }
    return data;
}

static void prepare(net *n, const size_family *f, int size, int threads)
{
    ts_optimizer sgd = ts_sgd(1e-4);
    ts_options opt = {.optimizer = &sgd, .cache_dir = ""};
    ts_graph *g = f->make(size);

    if (ts_compile(g, &opt, &n->x) ||
        ts_engine_new(n->x, &(ts_run_options){.seed = 1, .threads = threads}, &n->e))
        stop(ts_error_text());
    ts_graph_free(g);
    n->in[0] = feed(n->x, 0);
    n->best = 1e9;
    n->steps = 1;
}

static double window(net *n)
{
    double start = now(CLOCK_PROCESS_CPUTIME_ID);
    float loss;

    for (int i = 0; i < n->steps; i++)
        if (ts_engine_run(n->e, (const void *const *)n->in, (void *[]){&loss}))
            stop(ts_error_text());
    return (now(CLOCK_PROCESS_CPUTIME_ID) - start) / n->steps;
}

/* Windows of about 10 ms: some of them are whole between two interruptions, and their first steps, which find
 * the caches full of another net, are few. With 2 ms a step of 720 us took 754 to 850. */
static void measure(net *nets, int count, double seconds)
{
    double end = now(CLOCK_MONOTONIC) + seconds;

    for (int i = 0; i < count; i++) {
        double t = window(&nets[i]);
        nets[i].steps = (int)(10e-3 / t) + 1;
    }
    while (now(CLOCK_MONOTONIC) < end)
        for (int i = 0; i < count; i++) {
            double t = window(&nets[i]);
            nets[i].best = t < nets[i].best ? t : nets[i].best;
        }
}

static void report(const size_family *f, const net *nets, int count)
{
    double jump = 1;

    printf("%s: %s\n    size   us/step    time    work\n", f->name, f->what);
    for (int i = 0; i < count; i++) {
        double work = i ? f->work(f->from + i) / f->work(f->from + i - 1) : 1;
        double time = i ? nets[i].best / nets[i - 1].best : 1;
        double up = time / work, down = i ? nets[i - 1].best / nets[i].best : 1;
        printf("%8d %9.1f %7.3f %7.3f\n", f->from + i, 1e6 * nets[i].best, time, work);
        jump = up > jump ? up : jump;
        jump = down > jump ? down : jump;
    }
    printf("  jump %.2f\n\n", jump);
    fflush(stdout);
}

static void run(const size_family *f, int threads, double seconds)
{
    net nets[MOST] = {0};
    int count = f->to - f->from + 1;

    for (int i = 0; i < count; i++)
        prepare(&nets[i], f, f->from + i, threads);
    measure(nets, count, seconds);
    report(f, nets, count);
    for (int i = 0; i < count; i++) {
        ts_engine_free(nets[i].e);
        ts_executable_free(nets[i].x);
        free(nets[i].in[0]);
    }
}

int main(int argc, char **argv)
{
    int count = (int)(sizeof(size_families) / sizeof(size_families[0])),
        threads = argc > 2 ? atoi(argv[2]) : 1;
    double seconds = argc > 3 ? atof(argv[3]) : 3;
    bool any = false;

    for (int i = 0; i < count; i++)
        if (argc < 2 || !strcmp(argv[1], "all") || !strcmp(argv[1], size_families[i].name)) {
            run(&size_families[i], threads, seconds);
            any = true;
        }
    if (!any)
        stop("usage: sweep [FAMILY|all [THREADS [SECONDS]]]");
    return 0;
}
