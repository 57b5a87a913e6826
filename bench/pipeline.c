/* pipeline.c - what a pipeline costs and gains.
 *
 *   pipeline [THREADS]
 *
 * Seed net of four blocks, batch 40, AdamW, ten micro-batches an update.
 *
 * 1. As many stages as threads, at least 2: the trace's time from the first section of an update to
 *    the last, against the schedule's arithmetic with the sections' own mean durations. What is
 *    left is the price of queues and waiting.
 * 2. Four stages on however many threads there are, against the same net on one device: steps a
 *    second of both, in turns.
 */
#include "../test/models/nets.h"
#include "run/engine.h"

enum { BATCH = 40, A = 10, D = 10, ROUNDS = 60, EVENTS = 100000 };

static float images[BATCH * A * D * 28 * 28];
static int32_t labels[BATCH * A * D];
static const char *const blocks[] = {"B1", "B2", "B3", "B4"};

static _Noreturn void stop(void)
{
    fputs(ts_error_text(), stderr);
    exit(1);
}

static ts_engine *engine(int stages, int devices, int threads)
{
    ts_optimizer adamw = ts_adamw(0.001);
    ts_stage cut[4];
    ts_options opt = {.optimizer = &adamw,
                      .device_iterations = D,
                      .gradient_accumulation = A,
                      .devices = devices,
                      .stages = stages ? cut : NULL,
                      .nstages = stages};
    ts_graph *g = net_pipeline(BATCH);
    ts_executable *x;
    ts_engine *e;

    for (int i = 0; i < stages; i++)
        cut[i] = (ts_stage){&blocks[i], 1, .device = i};
    if (ts_compile(g, &opt, &x) || ts_engine_new(x, &(ts_run_options){.threads = threads}, &e))
        stop();
    ts_executable_free(x);
    ts_graph_free(g);
    return e;
}

static double run(ts_engine *e)
{
    double start = ts_now();

    if (ts_engine_run(e, (const void *[]){images, labels}, (void *[]){NULL, NULL}))
        stop();
    return ts_now() - start;
}

/* Of the best updates: how much longer they took than their sections allow. */
static double overhead(ts_engine *e)
{
    ts_pipeline p = e->exe->pipe;
    ts_arena *a = ts_arena_new();
    ts_order o;
    double best = 1e9;

    p.sections = ts_arena_copy(a, p.sections, sizeof(ts_section) * (size_t)p.nsections);
    ts_order_make(a, &p, A, &o);
    for (int round = 0; round < ROUNDS; round++) {
        const ts_trace_event *x;
        int n;
        if (ts_engine_trace(e, EVENTS))
            stop();
        run(e);
        x = ts_engine_events(e, &n);
        for (int d = 0; d < D; d++) {
            double first = 1e300, last = 0, busy = 0, *sum = TS_NEWS(a, double, p.nsections);
            for (int i = 0; i < n; i++) {
                if (x[i].update || x[i].micro_batch / A != d)
                    continue;
                first = TS_MIN(first, x[i].start);
                last = TS_MAX(last, x[i].end);
                sum[x[i].section] += (x[i].end - x[i].start) / A;
            }
            for (int i = 0; i < p.nsections; i++) {
                p.sections[i].seconds = sum[i];
                busy += A * sum[i];
            }
            /* busy / (devices * ideal) = 1 - bubble */
            double ideal = busy / p.ndevices / (1 - ts_order_bubble(a, &p, &o));
            best = TS_MIN(best, (last - first) / ideal - 1);
        }
    }
    ts_arena_free(a);
    return best;
}

int main(int argc, char **argv)
{
    int threads = argc > 1 ? atoi(argv[1]) : ts_team_default_size(), stages = TS_MIN(4, threads);
    ts_engine *one, *four, *even;
    double best[2] = {1e9, 1e9};

    for (size_t i = 0; i < sizeof(images) / sizeof(float); i++)
        images[i] = (float)(i * 2654435761u >> 9 & 1023) / 1024;
    for (int i = 0; i < BATCH * A * D; i++)
        labels[i] = i * 7 % 10;
    if (threads > 1) {
        even = engine(0, stages, threads);
        printf("overhead %.1f %% beyond the schedule: %d stages, %d threads\n",
               100 * overhead(even), stages, threads);
        ts_engine_free(even);
    }
    one = engine(0, 1, threads);
    four = engine(4, 0, threads);
    for (int i = 0; i < ROUNDS; i++) {
        best[0] = TS_MIN(best[0], run(one));
        best[1] = TS_MIN(best[1], run(four));
    }
    printf(
        "throughput %.2fx of one device: 4 stages, %d threads, %.0f against %.0f micro-batches/s\n",
        best[0] / best[1], threads, A * D / best[1], A * D / best[0]);
    ts_engine_free(one);
    ts_engine_free(four);
    return 0;
}
