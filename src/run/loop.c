/* loop.c - one device: every thread walks the same table of kernels and takes its share of each; it
 * waits only where the plan says so. And the same loop with the reference executor.
 */
#include "run/engine.h"

ts_status ts_loop_start(ts_engine *e)
{
    size_t feeds = (size_t)e->threads * (size_t)e->exe->ninputs * sizeof(void *);

    TS_TRY(ts_alloc(feeds, "the pointers to the inputs", (void **)&e->feeds));
    return ts_team_new(e->threads, &e->team);
}

/* This member's share of a kernel. What is too small to share goes to the first one, always: the
 * plan counts on it. */
bool ts_run_kernel(const ts_module_kernel *k, const ts_run_ctx *c, int member, int size)
{
    int64_t pieces = k->count / k->grain, lo, hi;

    pieces = pieces < 1 ? 1 : pieces > size ? size : pieces;
    if (member >= pieces)
        return false;
    lo = k->count * member / pieces;
    hi = k->count * (member + 1) / pieces;
    if (lo < hi)
        k->run(c, lo, hi, k->places);
    return lo < hi;
}

/* The same with times: a phase of one device is one section. */
static void run_stamped(ts_engine *e, int phase, int micro, const ts_run_ctx *c, int member,
                        int size, ts_stamp_ring *r)
{
    const ts_pipeline *p = &e->exe->pipe;
    ts_stamp s = {.micro = micro, .kernel = TS_STAMP_SECTION, .from = ts_cycles()};

    while (s.section < p->nsections && p->sections[s.section].phase != phase)
        s.section++;
    if (s.section < p->nsections)
        ts_run_stamped(r, s, e->team, e->exe->module->kernels, &p->sections[s.section], c, member,
                       size);
    ts_team_wait(e->team);
    if (!member && s.section < p->nsections)
        ts_stamp_end(r, s);
}

static void run_phase(ts_engine *e, int phase, int micro, const ts_run_ctx *c, int member, int size)
{
    const ts_module *m = e->exe->module;
    ts_stamp_ring *r = ts_stamps_ring(e, member);

    if (r) {
        run_stamped(e, phase, micro, c, member, size, r);
        return;
    }

    for (int i = 0; i < m->nkernels; i++) {
        const ts_module_kernel *k = &m->kernels[i];
        if (k->phase != phase)
            continue;
        if (k->wait)
            ts_team_wait(e->team);
        ts_run_kernel(k, c, member, size);
    }
    ts_team_wait(e->team);
}

typedef struct call {
    ts_engine *e;
    int first, end; /* micro-batches; none for phase 1 alone, which comes after end - 1 */
    int phase;      /* -1: both, as one device without others does */
} call;

static void loop(void *arg, int member, int size)
{
    const call *x = arg;
    ts_engine *e = x->e;
    const ts_executable *exe = e->exe;
    const void **in = e->feeds + (size_t)member * (size_t)exe->ninputs;
    ts_run_ctx c = {.m = e->blocks[0],
                    .remote = e->remotes[0],
                    .in = in,
                    .seed = e->seed,
                    .host = ts_host_run,
                    .engine = e};
    bool both = x->phase < 0;

    for (int m = x->first; m < x->end; m++) {
        ts_times *t = member ? NULL : &e->times[m];
        if (t)
            t->begun = ts_now();
        c.step = ts_engine_step(e, m, 0);
        ts_input_find(e, 0, m, in);
        run_phase(e, 0, m, &c, member, size);
        if (t)
            t->computed = t->given = ts_now();
        if (ts_output_slot(exe, m) >= 0) {
            ts_stamp_ring *r = t ? ts_stamps_ring(e, 0) : NULL;
            ts_stamp s = {.kernel = TS_STAMP_OUTPUT, .micro = m, .from = r ? ts_cycles() : 0};
            for (int i = 0; i < exe->noutputs && t; i++)
                ts_output_give(e, i, 0, m, ts_engine_output(e, 0, &exe->outputs[i]));
            if (t)
                t->given = ts_now();
            if (r)
                ts_stamp_end(r, s);
            ts_team_wait(e->team);
        }
        if (both && exe->pipe.nsections > 1 && (m + 1) % exe->gradient_accumulation == 0)
            run_phase(e, 1, m, &c, member, size);
    }
    c.step = ts_engine_update_step(e, x->end - 1);
    if (x->phase == 1)
        run_phase(e, 1, x->end - 1, &c, member, size);
}

/* Micro-batches, by as many threads as is fastest. */
static void run_some(ts_engine *e, int first, int end, int phase)
{
    while (first < end) {
        double start = ts_now();
        int threads, n = ts_pace_plan(&e->pace, end - first, &threads);
        ts_team_run_some(e->team, threads, loop, &(call){e, first, first + n, phase});
        ts_pace_done(&e->pace, n, ts_now() - start);
        first += n;
    }
}

ts_status ts_loop_native(ts_engine *e)
{
    int D = e->exe->device_iterations, A = e->exe->gradient_accumulation;

    if (!ts_exchange_needed(e)) {
        run_some(e, 0, D * A, -1);
        return TS_OK;
    }
    for (int d = 0; d < D; d++) {
        run_some(e, d * A, d * A + A, 0);
        TS_TRY(ts_exchange_processes(e));
        ts_team_run_some(e->team, e->pace.threads, loop, &(call){e, d * A + A, d * A + A, 1});
    }
    return TS_OK;
}

static ts_status reference_one(ts_engine *e, int r, int m)
{
    const ts_executable *x = e->exe;

    for (int i = 0; i < x->ninputs; i++)
        if (x->inputs[i].info.bytes) /* the caller may have no address for nothing */
            memcpy(ts_ref_tensor(e->refs[r], x->graph->inputs[i])->data,
                   (const char *)e->in[i] + (size_t)(m * x->replicas + r) * x->inputs[i].info.bytes,
                   x->inputs[i].info.bytes);
    e->times[m].begun = ts_now();
    TS_TRY(ts_ref_run(e->refs[r], 0,
                      &(ts_eval_ctx){e->seed, ts_engine_step(e, m, r), ts_host_run, e}));
    e->times[m].computed = ts_now();
    for (int i = 0; i < x->noutputs; i++)
        ts_output_give(e, i, r, m,
                       ts_ref_tensor(e->refs[r], x->graph->values[x->outputs[i].value])->data);
    e->times[m].given = ts_now();
    return TS_OK;
}

ts_status ts_loop_reference(ts_engine *e)
{
    const ts_executable *x = e->exe;
    int A = x->gradient_accumulation;

    for (int d = 0; d < x->device_iterations; d++) {
        for (int a = 0; a < A; a++)
            for (int r = 0; r < x->replicas; r++)
                TS_TRY(reference_one(e, r, d * A + a));
        if (ts_exchange_needed(e)) {
            ts_exchange_replicas(e, 0, 1);
            TS_TRY(ts_exchange_processes(e));
        }
        for (int r = 0; r < x->replicas && (A > 1 || ts_exchange_needed(e)); r++)
            TS_TRY(ts_ref_run(
                e->refs[r], 1,
                &(ts_eval_ctx){e->seed, ts_engine_update_step(e, d * A + A - 1), ts_host_run, e}));
        ts_exchange_collect(e, 0, 1);
    }
    return TS_OK;
}
