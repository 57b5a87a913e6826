/* lanes.c - several devices: each runs its sections in the order of plan/pipeline.c, by whichever
 * thread is free.
 *
 *   lanes 2, devices 2      lane 0   d1 X0 | d1 B0 | d0 F3 | ...
 *                           lane 1   d0 F1 | d0 F2 | d1 X1 | ...
 *
 * A lane is a thread or a team of threads; count_lanes says how many there are. It looks for a
 * device that nobody runs and whose next item has all it needs: every other device has come far
 * enough, which says both that the data is there and that there is room for the results. It runs
 * the item, gives outputs to the host, copies what other devices need into their blocks, and moves
 * the device's position on. Positions are the only thing that lanes share.
 *
 * A lane that finds nothing spins for a moment and then sleeps until a position changes.
 */
#include "run/engine.h"
#include <limits.h>

typedef struct device {
    _Alignas(64) atomic_int at; /* items done in this call */
    _Alignas(64) atomic_int taken;
    int stop; /* where this run ends */
} device;

typedef struct lane {
    ts_team *team;
    int threads;
    int first; /* of its threads */
    const void **in;
    /* the item it runs */
    const ts_engine *e;
    const ts_section *section;
    ts_stamp stamp;
    ts_run_ctx ctx;
    const ts_module_kernel *kernels;
    int nkernels;
} lane;

struct ts_lanes {
    ts_engine *e;
    ts_arena *arena;
    ts_order order;
    device *devices; /* [replica][device] */
    int ndevices;    /* of all replicas */
    lane *lanes;
    int nlanes;
    ts_pace pace;      /* of the largest lane */
    int threads;       /* of a lane that work */
    int last;          /* section of phase 0 */
    ts_team *team;     /* the lanes' first threads */
    uint64_t base;     /* micro-batches before this call */
    ts_signal *news;   /* a position has changed */
    atomic_int broken; /* 1 + the device that stopped */
    int broken_section, broken_m;
    ts_trace_event *events;
    atomic_int nevents;
    int max_events;
};

/* --- one item --- */

static void run_section(void *arg, int member, int size)
{
    lane *l = arg;
    ts_stamp_ring *r = ts_stamps_ring(l->e, l->first + member);

    if (r) {
        ts_run_stamped(r, l->stamp, l->team, l->e->exe->module->kernels, l->section, &l->ctx,
                       member, size);
        return;
    }
    for (int i = 0; i < l->nkernels; i++) {
        if (i && l->kernels[i].wait)
            ts_team_wait(l->team);
        ts_run_kernel(&l->kernels[i], &l->ctx, member, size);
    }
}

/* A failure of the GPU is kept for the end of the run. */
static void keep(const ts_lanes *l, ts_status s)
{
    if (!s || l->e->host_status)
        return;
    l->e->host_status = s;
    l->e->host_error = *ts_last_error();
}

/* true: there were some */
static bool give_outputs(const ts_lanes *l, int replica, int section, int m, uint64_t mb)
{
    const ts_executable *x = l->e->exe;
    bool any = false;

    for (int i = 0; i < x->noutputs; i++) {
        const ts_slot *s = &x->outputs[i];
        size_t turn = s->depth > 1 ? (size_t)(mb % (uint64_t)s->depth) : 0;
        any = any || s->section == section;
        if (s->section == section && l->e->gpu)
            keep(l, ts_gpu_give(l->e, i, replica, m, turn * ts_ring_stride(s->info.bytes)));
        else if (s->section == section)
            ts_output_give(l->e, i, replica, m,
                           ts_engine_output(l->e, replica, s) +
                               turn * ts_ring_stride(s->info.bytes));
    }
    return any;
}

static bool send(const ts_lanes *l, int replica, int section, uint64_t mb)
{
    const ts_pipeline *p = &l->e->exe->pipe;
    bool any = false;

    for (int i = 0; i < p->nsends; i++) {
        const ts_send *s = &p->sends[i];
        size_t stride = ts_ring_stride(s->bytes);
        size_t to = s->to + (size_t)(mb % (uint64_t)s->depth) * stride;
        size_t from = s->from + (size_t)(mb % (uint64_t)s->from_depth) * stride;
        if (s->section != section)
            continue;
        any = true;
        if (l->e->gpu)
            keep(l, ts_gpu_send(l->e, replica, s, to, from));
        else
            memcpy(ts_engine_block(l->e, replica, s->remote ? TS_REMOTE : s->device) + to,
                   ts_engine_block(l->e, replica, p->sections[section].device) + from, s->bytes);
    }
    return any;
}

static void note(ts_lanes *l, int replica, const ts_section *s, int section, int m, double start)
{
    int i;

    if (!l->events)
        return;
    i = atomic_fetch_add(&l->nevents, 1);
    if (i < l->max_events)
        l->events[i] = (ts_trace_event){.replica = replica,
                                        .device = s->device,
                                        .section = section,
                                        .update = s->phase == 1,
                                        .micro_batch = m,
                                        .start = start,
                                        .end = ts_now()};
}

/* What one item did since `from`, for the profile. */
static void stamp(const ts_lanes *l, const lane *x, int what, uint64_t *from)
{
    ts_stamp_ring *r = ts_stamps_ring(l->e, x->first);
    ts_stamp s = x->stamp;

    if (!r)
        return;
    s.kernel = what;
    s.from = *from;
    ts_stamp_end(r, s);
    *from = ts_cycles();
}

static void run_item(ts_lanes *l, lane *x, int replica, const ts_item *item, int iteration)
{
    ts_engine *e = l->e;
    const ts_section *s = &e->exe->pipe.sections[item->section];
    int m = iteration * l->order.micro_batches + item->m;
    int last = (iteration + 1) * l->order.micro_batches - 1;
    uint64_t mb = l->base + (uint64_t)m;
    double start = l->events ? ts_now() : 0;
    uint64_t from;

    x->e = e;
    x->section = s;
    x->stamp = (ts_stamp){.section = item->section, .micro = m, .replica = replica};
    x->kernels = e->gpu ? NULL : e->exe->module->kernels + s->first;
    x->nkernels = s->count;
    x->ctx = (ts_run_ctx){.m = ts_engine_block(e, replica, s->device),
                          .remote = e->remotes[replica],
                          .in = x->in,
                          .seed = e->seed,
                          .step = s->phase ? ts_engine_update_step(e, last)
                                           : ts_engine_step(e, m, replica),
                          .mb = mb,
                          .replica = (uint64_t)replica,
                          .host = ts_host_run,
                          .engine = e};
    if (!item->section && !replica)
        e->times[m].begun = ts_now();
    if (!s->phase)
        ts_input_find(e, replica, m, x->in);
    ts_monitor_begin(e, replica * l->order.ndevices + s->device);
    from = ts_cycles();
    if (e->gpu)
        keep(l, ts_gpu_section(e, replica, s, &x->ctx, x->stamp, ts_stamps_ring(e, x->first)));
    else
        ts_team_run_some(x->team, TS_MIN(l->threads, x->threads), run_section, x);
    stamp(l, x, TS_STAMP_SECTION, &from);
    if (!s->phase && ts_output_slot(e->exe, m) >= 0 &&
        give_outputs(l, replica, item->section, m, mb))
        stamp(l, x, TS_STAMP_OUTPUT, &from);
    if (send(l, replica, item->section, mb))
        stamp(l, x, TS_STAMP_SEND, &from);
    if (item->section == l->last && !replica)
        e->times[m].computed = e->times[m].given = ts_now();
    ts_monitor_end(e, replica * l->order.ndevices + s->device);
    note(l, replica, s, item->section, m, start);
}

/* --- who runs what --- */

/* Has everybody come far enough for this device's next item? */
static bool ready(const ts_lanes *l, int index)
{
    const ts_order *o = &l->order;
    int D = o->ndevices, d = index % D, first = index - d;
    int at = atomic_load_explicit(&l->devices[index].at, memory_order_relaxed);
    int iteration = at / o->n[d];
    const int *needs = o->needs[d] + (size_t)(at % o->n[d]) * (size_t)D;

    for (int k = 0; k < D; k++)
        if (k != d && atomic_load_explicit(&l->devices[first + k].at, memory_order_acquire) <
                          iteration * o->n[k] + needs[k])
            return false;
    return true;
}

static void stop_at(ts_lanes *l, int index, const ts_item *item)
{
    int none = 0;

    if (atomic_compare_exchange_strong(&l->broken, &none, index + 1)) {
        l->broken_section = item->section;
        l->broken_m = item->m;
    }
    ts_signal_send(l->news);
}

/* Runs one device as far as it goes; true if it went anywhere. */
static bool advance(ts_lanes *l, lane *x, int index)
{
    const ts_order *o = &l->order;
    device *d = &l->devices[index];
    bool moved = false;
    int at;

    if (atomic_load_explicit(&d->taken, memory_order_relaxed) ||
        atomic_exchange_explicit(&d->taken, 1, memory_order_acquire))
        return false;
    while ((at = atomic_load_explicit(&d->at, memory_order_relaxed)) < d->stop && ready(l, index) &&
           !atomic_load_explicit(&l->broken, memory_order_relaxed)) {
        int device = index % o->ndevices, n = o->n[device];
        const ts_item *item = &o->items[device][at % n];
        if (ts_fault("stage")) {
            stop_at(l, index, item);
            break;
        }
        run_item(l, x, index / o->ndevices, item, at / n);
        atomic_store_explicit(&d->at, at + 1, memory_order_release);
        ts_signal_send(l->news);
        moved = true;
    }
    atomic_store_explicit(&d->taken, 0, memory_order_release);
    return moved;
}

static bool finished(const ts_lanes *l)
{
    for (int i = 0; i < l->ndevices; i++)
        if (atomic_load(&l->devices[i].at) < l->devices[i].stop)
            return false;
    return true;
}

/* The later stages first: they end what others have begun. */
static void work(void *arg, int member, int size)
{
    ts_lanes *l = arg;

    (void)size;
    for (;;) {
        unsigned seen = ts_signal_look(l->news);
        bool moved = false;
        if (atomic_load(&l->broken))
            return;
        for (int i = l->ndevices - 1; i >= 0 && !moved; i--)
            moved = advance(l, &l->lanes[member], (i + member) % l->ndevices);
        if (moved)
            continue;
        if (finished(l))
            return;
        ts_signal_wait(l->news, seen);
    }
}

static ts_status stopped(const ts_lanes *l)
{
    int index = atomic_load(&l->broken) - 1, D = l->order.ndevices;
    const ts_section *s = &l->e->exe->pipe.sections[l->broken_section];
    const char *part = s->phase ? "the weight update" : "micro-batch";

    if (s->phase)
        ts_fail(TS_ERR_INTERNAL, "device %d (%s) of replica %d stopped in %s", index % D, s->name,
                index / D, part);
    else
        ts_fail(TS_ERR_INTERNAL, "device %d (%s) of replica %d stopped in %s %d of its iteration",
                index % D, s->name, index / D, part, l->broken_m);
    ts_error_hint("the engine's states are those of an unfinished step: load a checkpoint");
    return TS_ERR_INTERNAL;
}

/* Every device up to item `upto` of its iteration; 0: the whole iterations before. */
static ts_status run_to(ts_lanes *l, int iterations, const int *upto)
{
    for (int i = 0; i < l->ndevices; i++) {
        int d = i % l->order.ndevices;
        l->devices[i].stop = iterations * l->order.n[d] + (upto ? upto[d] : 0);
    }
    ts_team_run(l->team, work, l);
    return atomic_load(&l->broken) ? stopped(l) : TS_OK;
}

static void exchange(void *arg, int member, int size)
{
    ts_exchange_replicas(arg, member, size);
}

static void collect(void *arg, int member, int size)
{
    ts_exchange_collect(arg, member, size);
}

static ts_status run_iterations(ts_lanes *l, int first, int end)
{
    ts_engine *e = l->e;

    if (!ts_exchange_needed(e))
        return run_to(l, end, NULL);
    for (int i = first; i < end; i++) {
        TS_TRY(run_to(l, i, l->order.nfirst));
        TS_TRY(ts_gpu_pull_all(e));
        ts_team_run(l->team, exchange, e);
        TS_TRY(ts_exchange_processes(e));
        TS_TRY(ts_gpu_push_all(e));
        TS_TRY(run_to(l, i + 1, NULL));
        if (!ts_exchange_shared(e))
            continue;
        TS_TRY(ts_gpu_pull_all(e));
        ts_team_run(l->team, collect, e);
        TS_TRY(ts_gpu_push_all(e));
    }
    return TS_OK;
}

ts_status ts_lanes_run(ts_lanes *l)
{
    ts_engine *e = l->e;
    int iterations = e->exe->training ? e->exe->device_iterations : 1;

    l->base = e->step / ts_engine_stride(e);
    atomic_store(&l->broken, 0);
    for (int i = 0; i < l->ndevices; i++)
        atomic_store(&l->devices[i].at, 0);
    for (int i = 0, n; i < iterations; i += n) {
        double start = ts_now();
        n = ts_pace_plan(&l->pace, iterations - i, &l->threads);
        TS_TRY(run_iterations(l, i, i + n));
        ts_pace_done(&l->pace, n, ts_now() - start);
    }
    return TS_OK;
}

/* --- making it --- */

/* A lane for every device, if there are threads for that. With fewer, a lane for every replica: all
 * its threads run one item after another, so that stages of unequal cost leave none of them idle.
 * Micro-batches go through a sharded net one at a time anyway. */
static int count_lanes(const ts_engine *e)
{
    const ts_pipeline *p = &e->exe->pipe;
    int devices = e->exe->replicas * p->ndevices;

    return p->sharded || devices > e->threads ? TS_MIN(e->exe->replicas, e->threads) : devices;
}

static ts_status make_lanes(ts_lanes *l)
{
    ts_engine *e = l->e;
    size_t feeds = (size_t)e->exe->ninputs * sizeof(void *);
    int most = 1;

    l->nlanes = count_lanes(e);
    TS_TRY(ts_alloc((size_t)l->nlanes * sizeof(lane), "the lanes", (void **)&l->lanes));
    for (int i = 0; i < l->nlanes; i++) {
        lane *x = &l->lanes[i];
        int size = e->threads * (i + 1) / l->nlanes - e->threads * i / l->nlanes;
        TS_TRY(ts_alloc(feeds, "the pointers to the inputs", (void **)&x->in));
        TS_TRY(ts_team_new(size, &x->team));
        x->threads = size;
        x->first = e->threads * i / l->nlanes;
        most = TS_MAX(most, size);
    }
    ts_pace_start(&l->pace, most, e->pace.fixed);
    return ts_team_new(l->nlanes, &l->team);
}

ts_status ts_lanes_new(ts_engine *e, ts_lanes **out)
{
    const ts_executable *x = e->exe;
    ts_lanes *l = *out = calloc(1, sizeof(*l));

    if (!l)
        return ts_fail(TS_ERR_MEMORY, "cannot allocate the devices");
    l->e = e;
    l->arena = ts_arena_new();
    l->ndevices = x->replicas * x->pipe.ndevices;
    for (int i = 0; i < x->pipe.nsections; i++)
        l->last = x->pipe.sections[i].phase ? l->last : i;
    ts_order_make(l->arena, &x->pipe, x->training ? x->gradient_accumulation : x->device_iterations,
                  &l->order);
    TS_TRY(ts_alloc((size_t)l->ndevices * sizeof(device), "the devices", (void **)&l->devices));
    TS_TRY(ts_signal_new(&l->news));
    return make_lanes(l);
}

void ts_lanes_free(ts_lanes *l)
{
    if (!l)
        return;
    ts_team_free(l->team);
    for (int i = 0; i < l->nlanes && l->lanes; i++) {
        ts_team_free(l->lanes[i].team);
        free(l->lanes[i].in);
    }
    ts_signal_free(l->news);
    free(l->lanes);
    free(l->devices);
    free(l->events);
    ts_arena_free(l->arena);
    free(l);
}

/* --- trace --- */

ts_status ts_engine_trace(ts_engine *e, int capacity)
{
    ts_lanes *l = e ? e->lanes : NULL;

    if (!l)
        return ts_fail(TS_ERR_UNSUPPORTED, "only a run on several devices can be traced so");
    free(l->events);
    l->events = NULL;
    l->max_events = 0;
    atomic_store(&l->nevents, 0);
    if (capacity > 0)
        TS_TRY(
            ts_alloc((size_t)capacity * sizeof(ts_trace_event), "the trace", (void **)&l->events));
    l->max_events = capacity;
    return TS_OK;
}

const ts_trace_event *ts_engine_events(const ts_engine *e, int *count)
{
    const ts_lanes *l = e ? e->lanes : NULL;

    *count = l ? TS_MIN(atomic_load(&l->nevents), l->max_events) : 0;
    return l ? l->events : NULL;
}
