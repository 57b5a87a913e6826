/* stamps.c - what measuring costs, for the tests of profiles.
 *
 *   stamps CACHE-FOLDER PROFILE-FOLDER
 *   W1 0.21 2                 its calls take 0.21 % longer with a profile than without, after 2 rounds
 *
 * A call with and a call without in turns, on one thread, in the processor's time: another program's
 * turn is not counted, but what it does to the caches is, so the least of many calls is taken, and as
 * many rounds as it takes to get below a limit that has some way to the one that is promised. A round
 * has engines of its own: where a block's pages lie is worth some per cent too. A call that writes the
 * profile is not the least.
 */
#include "../models/nets.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { CALLS = 12, ROUNDS = 12 };
static const double enough = 1.0; /* per cent */

typedef struct side {
    ts_executable *x;
    ts_engine *e;
    void *in[2], *out[8];
    double least;
} side;

static void stop(void)
{
    fprintf(stderr, "stamps: %s\n", ts_error_text());
    exit(1);
}

static double busy(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *feed(const ts_tensor_info *t, int iterations)
{
    size_t n = t ? t->bytes / 4 * (size_t)iterations : 0;
    float *x = malloc(n * 4 + 1);

    for (size_t i = 0; i < n; i++)
        if (t->dtype == TS_F32)
            x[i] = (float)(i * 7919 % 1000) / 500 - 1;
        else
            ((int *)x)[i] = (int)(i % 10);
    return x;
}

static void make(side *s, ts_graph *g, const ts_optimizer *o, int iterations, const char *cache,
                 const char *profile)
{
    ts_options opt = {.optimizer = o,
                      .device_iterations = iterations,
                      .cache_dir = cache,
                      .profile = profile,
                      .profile_calls = 1 << 20};

    if (ts_compile(g, &opt, &s->x) ||
        ts_engine_new(s->x, &(ts_run_options){.seed = 1, .threads = 1}, &s->e))
        stop();
    for (int i = 0; i < 2; i++)
        s->in[i] = feed(ts_executable_tensor(s->x, TS_ROLE_INPUT, i), iterations);
    ts_graph_free(g);
}

static void call(side *s)
{
    double start = busy(), took;

    if (ts_engine_run(s->e, (const void *const *)s->in, s->out))
        stop();
    took = busy() - start;
    s->least = took < s->least ? took : s->least;
}

static void drop(side *s)
{
    if (ts_engine_profile(s->e))
        stop();
    ts_engine_free(s->e);
    ts_executable_free(s->x);
    free(s->in[0]);
    free(s->in[1]);
}

static ts_graph *net(int which)
{
    return which == 1   ? net_fashion(16)
           : which == 2 ? net_digits(8, true)
           : which == 3 ? net_pipeline(40)
                        : net_residual(1, 32, 160, 256);
}

static void compare(int which, const char *cache, const char *profile)
{
    ts_optimizer o = which == 3 ? ts_adamw(0.001) : ts_sgd(0.001);
    int iterations = which == 4 ? 1 : 16, rounds = 0;
    side with = {.least = 1e9}, without = {.least = 1e9};
    double more = 0;

    do {
        for (int i = 0; i < 2; i++)
            if (i == (rounds & 1))
                make(&without, net(which), &o, iterations, cache, NULL);
            else
                make(&with, net(which), &o, iterations, cache, profile);
        for (int i = 0; i < CALLS; i++) {
            call(i & 1 ? &with : &without);
            call(i & 1 ? &without : &with);
        }
        drop(&with);
        drop(&without);
        more = 100 * (with.least / without.least - 1);
    } while (++rounds < ROUNDS && more > enough);
    printf("W%d %.3f %d\n", which, more, rounds);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    char folder[4096];

    if (argc != 3)
        return 2;
    for (int which = 1; which <= 4; which++) {
        snprintf(folder, sizeof(folder), "%s/W%d", argv[2], which);
        compare(which, argv[1], folder);
    }
    return 0;
}
