/* gpu.c - an engine whose devices are memory of a GPU.
 *
 * The states are kept on the GPU; a mirror of them in the host's memory is where the host's layouts
 * are made and read, brought up to date a tensor at a time when somebody asks for it.
 *
 *   one device      the inputs of many micro-batches are sent at once, then all launches are started,
 *                   recorded: a span of weight updates at a time, and one at a time for what is left
 *   several, or in  run/lanes.c says whose turn it is; the launches of a section are recorded, and
 *   phases          what it sends, loads or asks the host for happens in between. Devices and replicas
 *                   are on the machine's GPUs in turn; each waits only for what it gets from others
 */
#include "gpu/gpu.h"
#include "run/engine.h"

enum {
    SPAN = 1500,       /* launches of a recording */
    PIECE = 512 << 10, /* bytes of inputs that are sent at a time */
    FEW_GROUPS = 32,   /* of threads for the outputs, that one group takes over */
};

struct ts_gpu_run {
    const ts_gpu_driver *d;
    const ts_gpu_program *program;
    const ts_gpu_code *code;
    ts_gpu_memory **memories; /* [replica][device], on the GPUs in turn */
    int n;
    bool alone;               /* one device, all of it in one go */
    ts_gpu_recording *one[2]; /* a micro-batch; one that ends with an update */
    ts_gpu_recording *span;   /* of so many updates */
    int nspan;
    ts_gpu_recording **parts; /* [memory][row]: launches from that row on */
    char *outputs;            /* fetched: of a chunk, or of one tensor */
};

/* --- the executable's part --- */

struct ts_gpu_program {
    const ts_gpu_driver *d;
    ts_gpu_code *code;
    int ngpus;
    ts_gpu *gpus[TS_GPU_MOST];
    ts_gpu_module *modules[TS_GPU_MOST];
};

/* Where a memory is, and the program there. */
static ts_gpu *gpu_of(const ts_gpu_run *r, int index)
{
    return r->program->gpus[index % r->program->ngpus];
}

static ts_gpu_module *module_of(const ts_gpu_run *r, int index)
{
    return r->program->modules[index % r->program->ngpus];
}

/* "cuda sm_90, NVRTC 13.0": the compiler's version is no matter for running. */
static ts_status check_device(const ts_executable *x, const ts_gpu_driver *d, ts_gpu *g)
{
    ts_gpu_info info;
    size_t n = strlen(d->name) + 1, len;

    d->describe(g, &info);
    len = strcspn(info.architecture, ",");
    if (!strncmp(x->isa + n, info.architecture, len) &&
        (!x->isa[n + len] || x->isa[n + len] == ','))
        return TS_OK;
    ts_fail(TS_ERR_UNSUPPORTED, "the executable is compiled for %s; the device is %s (%s)", x->isa,
            info.name, info.architecture);
    ts_error_hint(
        "compile the model again on this machine; TESSERA_GPU=0 takes the first GPU only");
    return TS_ERR_UNSUPPORTED;
}

/* As many GPUs as there are, and devices that use them. */
static ts_status load_programs(const ts_executable *x, ts_gpu_program *p)
{
    int count;

    TS_TRY(ts_gpu_count(p->d, &count));
    count = TS_MIN(count, x->pipe.ndevices * x->replicas);
    for (; p->ngpus < count; p->ngpus++) {
        ts_gpu **g = &p->gpus[p->ngpus];
        TS_TRY(ts_gpu_open(p->d, p->ngpus, g));
        TS_TRY(check_device(x, p->d, *g));
        TS_TRY(p->d->load(*g, p->code->binary, p->code->nbinary, p->code->nfunctions,
                          &p->modules[p->ngpus]));
    }
    return TS_OK;
}

ts_status ts_gpu_start(ts_executable *x)
{
    ts_gpu_program *p = TS_NEW(x->arena, ts_gpu_program);

    x->gpu = p;
    p->d = ts_gpu_driver_named(x->isa);
    TS_TRY(ts_gpu_unpack(x->object, x->object_bytes, &p->code));
    if (p->code->nrows != x->stats.kernels)
        return ts_fail(TS_ERR_CORRUPT, "the compiled step has %d kernels, its manifest says %d",
                       p->code->nrows, x->stats.kernels);
    return load_programs(x, p);
}

void ts_gpu_stop(ts_executable *x)
{
    if (!x->gpu)
        return;
    for (int i = 0; i < x->gpu->ngpus; i++)
        x->gpu->d->unload(x->gpu->gpus[i], x->gpu->modules[i]);
    ts_gpu_code_free(x->gpu->code);
}

const ts_gpu_code *ts_gpu_code_of(const ts_executable *x)
{
    return x->gpu->code;
}

/* --- memory --- */

static int index_of(const ts_engine *e, int replica, int device)
{
    return replica * e->exe->pipe.ndevices + device;
}

static ts_status read_at(const ts_gpu_run *r, int index, size_t at, void *to, size_t bytes)
{
    return r->d->read(gpu_of(r, index), r->memories[index], at, to, bytes);
}

static ts_status write_at(const ts_gpu_run *r, int index, size_t at, const void *from, size_t bytes)
{
    return r->d->write(gpu_of(r, index), r->memories[index], at, from, bytes);
}

/* Only a device's memory has a mirror. */
static bool mirrored(const ts_engine *e, ts_spot_at at)
{
    return e->gpu && at.device != TS_REMOTE;
}

static size_t bytes_of(const ts_slot *s)
{
    return s->share && s->use == TS_USE_MOMENT ? (size_t)s->share * ts_dtype_size(s->info.dtype)
                                               : s->info.bytes;
}

ts_status ts_gpu_pull(const ts_engine *e, int replica, const ts_slot *s, ts_spot_at at)
{
    if (!mirrored(e, at))
        return TS_OK;
    return read_at(e->gpu, index_of(e, replica, at.device), e->gpu->code->base + at.offset,
                   ts_engine_block(e, replica, at.device) + at.offset, bytes_of(s));
}

ts_status ts_gpu_push(const ts_engine *e, int replica, const ts_slot *s, ts_spot_at at)
{
    if (!mirrored(e, at))
        return TS_OK;
    return write_at(e->gpu, index_of(e, replica, at.device), e->gpu->code->base + at.offset,
                    ts_engine_block(e, replica, at.device) + at.offset, bytes_of(s));
}

typedef ts_status each_fn(const ts_engine *e, int replica, const ts_slot *s, ts_spot_at at);

static ts_status each_state(const ts_engine *e, each_fn *fn)
{
    const ts_executable *x = e->exe;

    for (int i = 0; i < x->nstates && e->gpu; i++)
        for (int r = 0; r < x->replicas; r++) {
            const ts_slot *s = &x->states[i];
            TS_TRY(fn(e, r, s, s->at));
            for (int k = 0; k < s->ncopies; k++)
                TS_TRY(fn(e, r, s, s->copies[k]));
        }
    return TS_OK;
}

ts_status ts_gpu_pull_all(const ts_engine *e)
{
    return each_state(e, ts_gpu_pull);
}

ts_status ts_gpu_push_all(const ts_engine *e)
{
    return each_state(e, ts_gpu_push);
}

/* --- making it --- */

static bool calls_host(const ts_gpu_code *c)
{
    for (int i = 0; i < c->nrows; i++)
        if (c->rows[i].kind != TS_GPU_LAUNCH && c->rows[i].kind != TS_GPU_DONE)
            return true;
    return false;
}

static size_t most_output(const ts_executable *x, int chunk)
{
    size_t most = 1;

    for (int i = 0; i < x->noutputs; i++)
        most = TS_MAX(most, x->outputs[i].info.bytes * (size_t)chunk);
    return most;
}

static ts_status make_memories(ts_engine *e, ts_gpu_run *r)
{
    const ts_executable *x = e->exe;

    r->n = x->pipe.ndevices * x->replicas;
    TS_TRY(ts_alloc((size_t)r->n * sizeof(*r->memories), "the devices", (void **)&r->memories));
    for (int i = 0; i < r->n; i++) {
        size_t peak = x->bytes[i % x->pipe.ndevices].peak;
        TS_TRY(r->d->alloc(gpu_of(r, i), r->code->base + peak, &r->memories[i]));
        TS_TRY(write_at(r, i, r->code->constants, r->code->constant_data, r->code->nconstants));
    }
    return TS_OK;
}

/* The mirrors are as large as the states, which lie first in a block. */
ts_status ts_gpu_run_new(ts_engine *e, bool in_one_go)
{
    const ts_executable *x = e->exe;
    ts_gpu_run *r = calloc(1, sizeof(*r));

    e->gpu = r;
    if (!r)
        return ts_fail(TS_ERR_MEMORY, "cannot allocate the devices");
    *r = (ts_gpu_run){.d = x->gpu->d, .program = x->gpu, .code = x->gpu->code};
    TS_TRY(make_memories(e, r));
    r->alone = r->n == 1 && in_one_go && !ts_exchange_needed(e) && !calls_host(r->code);
    TS_TRY(ts_alloc((size_t)r->n * (size_t)(r->code->nrows + 1) * sizeof(*r->parts),
                    "the recordings", (void **)&r->parts));
    TS_TRY(ts_alloc(most_output(x, r->code->chunk), "the outputs", (void **)&r->outputs));
    e->threads = 1;
    return TS_OK;
}

bool ts_gpu_alone(const ts_engine *e)
{
    return e->gpu->alone;
}

void ts_gpu_run_free(ts_engine *e)
{
    ts_gpu_run *r = e->gpu;

    if (!r)
        return;
    for (int i = 0; i < r->program->ngpus; i++)
        (void)r->d->wait(r->program->gpus[i]);
    for (int i = 0; r->parts && i < r->n * (r->code->nrows + 1); i++)
        r->d->forget(gpu_of(r, i / (r->code->nrows + 1)), r->parts[i]);
    r->d->forget(gpu_of(r, 0), r->one[0]);
    r->d->forget(gpu_of(r, 0), r->one[1]);
    r->d->forget(gpu_of(r, 0), r->span);
    for (int i = 0; i < r->n && r->memories; i++)
        r->d->release(gpu_of(r, i), r->memories[i]);
    free(r->memories);
    free(r->parts);
    free(r->outputs);
    free(r);
    e->gpu = NULL;
}

/* --- one device --- */

typedef struct list {
    ts_gpu_launch *l;
    int n;
} list;

static void add(const ts_gpu_run *r, list *l, const ts_gpu_row *row)
{
    l->l[l->n++] = (ts_gpu_launch){row, r->memories[0]};
}

static void add_phase(const ts_gpu_run *r, list *l, int phase)
{
    for (int i = 0; i < r->code->nrows; i++)
        if (r->code->rows[i].phase == phase && r->code->rows[i].kind == TS_GPU_LAUNCH)
            add(r, l, &r->code->rows[i]);
}

static bool has_update(const ts_engine *e)
{
    return e->exe->pipe.nsections > 1;
}

/* A micro-batch; with the update behind it if it is the last of its iteration. */
static void add_one(const ts_engine *e, list *l, bool update)
{
    const ts_gpu_run *r = e->gpu;

    add_phase(r, l, 0);
    if ((!update || !has_update(e)) && r->code->give.groups <= FEW_GROUPS) {
        add(r, l, &r->code->both);
        return;
    }
    add(r, l, &r->code->give);
    if (update && has_update(e))
        add_phase(r, l, 1);
    add(r, l, &r->code->tick);
}

/* How many micro-batches are sent at a time: the first of them nobody computes beside, so they are
 * few, but as much as is worth a transfer. */
static int piece(const ts_engine *e)
{
    int A = e->exe->gradient_accumulation, n;
    size_t bytes = 1;

    for (int i = 0; i < e->exe->ninputs; i++)
        bytes += e->exe->inputs[i].info.bytes;
    n = (int)TS_MIN(PIECE / bytes + 1, (size_t)e->gpu->code->chunk);
    return TS_MAX(A, n / A * A);
}

static ts_status record(ts_engine *e, int index, list *l, ts_gpu_recording **out)
{
    const ts_gpu_run *r = e->gpu;
    ts_status s = r->d->record(gpu_of(r, index), module_of(r, index), l->n, l->l, out);

    free(l->l);
    return s;
}

static ts_status record_one(ts_engine *e, bool update)
{
    list l = {0};

    TS_TRY(ts_alloc(((size_t)e->gpu->code->nrows + 3) * sizeof(*l.l), "a list of launches",
                    (void **)&l.l));
    add_one(e, &l, update);
    return record(e, 0, &l, &e->gpu->one[update]);
}

static ts_status record_span(ts_engine *e, int updates)
{
    int A = e->exe->gradient_accumulation;
    list l = {0};

    TS_TRY(ts_alloc(((size_t)e->gpu->code->nrows + 3) * (size_t)(A * updates) * sizeof(*l.l),
                    "a list of launches", (void **)&l.l));
    for (int i = 0; i < updates * A; i++)
        add_one(e, &l, i % A == A - 1);
    return record(e, 0, &l, &e->gpu->span);
}

/* So many updates at once as a recording may have. */
static ts_status make_recordings(ts_engine *e)
{
    ts_gpu_run *r = e->gpu;
    int A = e->exe->gradient_accumulation, D = e->exe->device_iterations;
    int most = SPAN / (A * (r->code->nrows + 2));

    if (r->one[0])
        return TS_OK;
    TS_TRY(record_one(e, false));
    TS_TRY(record_one(e, true));
    r->nspan = TS_MIN(TS_MIN(most, D), piece(e) / A);
    return r->nspan > 1 ? record_span(e, r->nspan) : TS_OK;
}

/* --- for a profile --- */

static int section_of(const ts_engine *e, int row)
{
    const ts_pipeline *p = &e->exe->pipe;
    int i = 0;

    while (i < p->nsections - 1 &&
           (row < p->sections[i].first || row >= p->sections[i].first + p->sections[i].count))
        i++;
    return i;
}

/* The device's times on the processor's counter: the last launch ended when the host saw it. */
typedef struct watch {
    uint64_t begun, seen;
    double rate; /* counts a second */
} watch;

static uint64_t count_at(const watch *c, double before_end)
{
    double counts = before_end * c->rate;

    return counts < (double)(c->seen - c->begun) ? c->seen - (uint64_t)counts : c->begun;
}

/* Kernels of the plan; outputs and what moves on to the next micro-batch are nobody's. */
static void add_stamps(const ts_engine *e, const list *l, const ts_gpu_span *spans, const watch *c,
                       ts_stamp s, ts_stamp_ring *ring, bool sections)
{
    const ts_gpu_code *code = e->gpu->code;
    double end = spans[l->n - 1].end;
    ts_stamp whole = {.kernel = TS_STAMP_SECTION, .section = -1};

    for (int i = 0; i < l->n; i++) {
        const ts_gpu_row *row = l->l[i].row;
        if (row < code->rows || row >= code->rows + code->nrows)
            continue;
        s.kernel = (int)(row - code->rows);
        s.section = section_of(e, s.kernel);
        s.from = count_at(c, end - spans[i].start);
        s.to = count_at(c, end - spans[i].end);
        if (sections && whole.section >= 0 && whole.section != s.section)
            ts_stamp_add(ring, whole);
        if (whole.section != s.section)
            whole = (ts_stamp){s.from, s.to, TS_STAMP_SECTION, s.section, s.micro, s.replica};
        whole.to = s.to;
        ts_stamp_add(ring, s);
    }
    if (sections && whole.section >= 0)
        ts_stamp_add(ring, whole);
}

/* Launches in a row with the driver's events around each, instead of a recording of them. */
static ts_status run_timed(ts_engine *e, int index, const list *l, ts_stamp s, ts_stamp_ring *ring,
                           bool sections)
{
    ts_gpu_run *r = e->gpu;
    ts_gpu_span *spans = NULL;
    watch c;
    double begun, seconds;
    ts_status st;

    if (!l->n)
        return TS_OK;
    TS_TRY(ts_alloc((size_t)l->n * sizeof(*spans), "the times of kernels", (void **)&spans));
    st = r->d->wait(gpu_of(r, index));
    c.begun = ts_cycles();
    begun = ts_now();
    st = st ? st : r->d->timed(gpu_of(r, index), module_of(r, index), l->n, l->l, spans);
    c.seen = ts_cycles();
    seconds = ts_now() - begun;
    c.rate = (double)(c.seen - c.begun) / TS_MAX(seconds, 1e-9);
    if (!st)
        add_stamps(e, l, spans, &c, s, ring, sections);
    free(spans);
    return st;
}

static ts_status start_timed(ts_engine *e, int m, ts_stamp_ring *ring)
{
    int A = e->exe->gradient_accumulation;
    list l = {0};
    ts_status s;

    TS_TRY(ts_alloc(((size_t)e->gpu->code->nrows + 3) * sizeof(*l.l), "a list of launches",
                    (void **)&l.l));
    add_one(e, &l, (m + 1) % A == 0);
    s = run_timed(e, 0, &l, (ts_stamp){.micro = m}, ring, true);
    free(l.l);
    return s;
}

/* --- */

/* Micro-batches first .. end - 1 are there: starts them. */
static ts_status start(ts_engine *e, int first, int end)
{
    ts_gpu_run *r = e->gpu;
    ts_stamp_ring *ring = ts_stamps_ring(e, 0);
    int A = e->exe->gradient_accumulation;

    for (; ring && first < end; first++)
        TS_TRY(start_timed(e, first, ring));

    while (first < end) {
        bool whole = r->span && first % A == 0 && end - first >= r->nspan * A;
        TS_TRY(r->d->replay(gpu_of(r, 0), whole ? r->span : r->one[(first + 1) % A == 0]));
        first += whole ? r->nspan * A : 1;
    }
    return TS_OK;
}

static ts_status send_context(ts_engine *e, int first)
{
    ts_gpu_run *r = e->gpu;
    ts_gpu_ctx ctx = {.seed = e->seed,
                      .step = ts_engine_step(e, first, 0),
                      .mb = e->step / ts_engine_stride(e) + (uint64_t)first,
                      .stride = ts_engine_stride(e)};

    return write_at(r, 0, 0, &ctx, sizeof(ctx));
}

/* Micro-batches first .. end - 1 to their places, which begin with that of micro-batch `zero`. */
static ts_status send_inputs(ts_engine *e, int zero, int first, int end)
{
    ts_gpu_run *r = e->gpu;

    for (int i = 0; i < e->exe->ninputs; i++) {
        size_t bytes = e->exe->inputs[i].info.bytes;
        TS_TRY(r->d->send(
            gpu_of(r, 0), r->memories[0], r->code->inputs[i] + (size_t)(first - zero) * bytes,
            (const char *)e->in[i] + (size_t)first * bytes, (size_t)(end - first) * bytes));
    }
    return r->d->sent(gpu_of(r, 0));
}

/* Of those micro-batches that the host asks for: from the first to the last of them at once. */
static ts_status fetch_outputs(ts_engine *e, int first, int end)
{
    ts_gpu_run *r = e->gpu;
    int from = first, to = end;

    while (from < end && ts_output_slot(e->exe, from) < 0)
        from++;
    while (to > from && ts_output_slot(e->exe, to - 1) < 0)
        to--;
    for (int i = 0; i < e->exe->noutputs && from < to && e->out; i++) {
        size_t bytes = e->exe->outputs[i].info.bytes;
        if (!e->out[i])
            continue;
        TS_TRY(read_at(r, 0, r->code->outputs[i] + (size_t)(from - first) * bytes, r->outputs,
                       (size_t)(to - from) * bytes));
        for (int m = from; m < to; m++)
            ts_output_give(e, i, 0, m, r->outputs + (size_t)(m - from) * bytes);
    }
    return r->d->wait(gpu_of(r, 0));
}

/* All that fit beside each other: computed while the next ones are sent. */
static ts_status run_chunk(ts_engine *e, int zero, int end)
{
    int n = piece(e);

    TS_TRY(send_context(e, zero));
    for (int first = zero; first < end; first += n) {
        TS_TRY(send_inputs(e, zero, first, TS_MIN(end, first + n)));
        TS_TRY(start(e, first, TS_MIN(end, first + n)));
    }
    return fetch_outputs(e, zero, end);
}

static void take_times(ts_engine *e, int first, int end, double begun)
{
    double now = ts_now(), each = (now - begun) / (end - first);

    for (int m = first; m < end; m++) {
        e->times[m].begun = begun + each * (m - first);
        e->times[m].computed = e->times[m].given = begun + each * (m - first + 1);
    }
}

ts_status ts_gpu_loop(ts_engine *e)
{
    int total = e->exe->device_iterations * e->exe->gradient_accumulation,
        chunk = e->gpu->code->chunk, A = e->exe->gradient_accumulation;

    chunk = chunk >= A ? chunk / A * A : chunk;
    TS_TRY(make_recordings(e));
    for (int first = 0; first < total; first += chunk) {
        int end = TS_MIN(total, first + chunk);
        double begun = ts_now();
        TS_TRY(run_chunk(e, first, end));
        take_times(e, first, end, begun);
    }
    return TS_OK;
}

/* --- in turns --- */

static size_t place(const ts_gpu_at *at, const ts_run_ctx *c)
{
    if (at->how == TS_GPU_RING)
        return at->offset + (size_t)(c->mb % (uint64_t)at->depth) * at->stride;
    return at->offset + (at->how == TS_GPU_SHARE ? (size_t)c->replica * at->stride : 0);
}

/* Launches of rows first .. end - 1 of a device; `ring`: they are timed. */
static ts_status run_launches(ts_engine *e, int index, int first, int end, ts_stamp s,
                              ts_stamp_ring *ring)
{
    ts_gpu_run *r = e->gpu;
    ts_gpu_recording **p = &r->parts[(size_t)index * (size_t)(r->code->nrows + 1) + (size_t)first];
    list l = {0};

    if (*p && !ring)
        return r->d->replay(gpu_of(r, index), *p);
    TS_TRY(ts_alloc((size_t)(end - first) * sizeof(*l.l), "a list of launches", (void **)&l.l));
    for (int i = first; i < end; i++)
        if (r->code->rows[i].kind == TS_GPU_LAUNCH)
            l.l[l.n++] = (ts_gpu_launch){&r->code->rows[i], r->memories[index]};
    if (ring) {
        ts_status st = run_timed(e, index, &l, s, ring, false);
        free(l.l);
        return st;
    }
    TS_TRY(record(e, index, &l, p));
    return r->d->replay(gpu_of(r, index), *p);
}

/* The host gets copies of what it reads, and what it writes is sent back. */
static ts_status call_host(ts_engine *e, int index, const ts_gpu_row *row, const ts_run_ctx *c)
{
    ts_gpu_run *r = e->gpu;
    ts_arena *a = ts_arena_new();
    const void **in = TS_NEWS(a, const void *, row->nargs + 2);
    void **out = TS_NEWS(a, void *, row->nargs + 1);
    ts_status s = TS_OK;

    for (int i = 0; i < row->nargs && !s; i++) {
        size_t at = place(&row->args[i], c), bytes = row->args[i].bytes;
        void *p = ts_arena_alloc(a, bytes);
        s = read_at(r, index, at, p, bytes);
        in[i] = p;
        if (i >= row->nin)
            out[i - row->nin] = p;
    }
    if (row->checks) {
        in[row->nin] = row->checks;
        in[row->nin + 1] = &c->step;
    }
    if (!s && row->tap)
        memcpy(out[0], in[0], row->bytes);
    if (!s)
        c->host(c->engine, row->id, in, row->tap ? NULL : out);
    for (int i = row->nin; i < row->nargs && !s; i++)
        s = write_at(r, index, place(&row->args[i], c), out[i - row->nin], row->args[i].bytes);
    ts_arena_free(a);
    return s;
}

static ts_status move(ts_engine *e, int index, const ts_gpu_row *row, const ts_run_ctx *c)
{
    ts_gpu_run *r = e->gpu;
    size_t here = place(&row->args[0], c);
    char *there = c->remote + place(&row->there, c);

    if (row->kind == TS_GPU_LOAD)
        return write_at(r, index, here, there, row->bytes);
    return read_at(r, index, here, there, row->bytes);
}

static ts_status run_rows(ts_engine *e, int index, int first, int end, const ts_run_ctx *c,
                          ts_stamp s, ts_stamp_ring *ring)
{
    const ts_gpu_row *rows = e->gpu->code->rows;

    for (int i = first, next; i < end; i = next) {
        next = i + 1;
        if (rows[i].kind == TS_GPU_HOST)
            TS_TRY(call_host(e, index, &rows[i], c));
        else if (rows[i].kind == TS_GPU_LOAD || rows[i].kind == TS_GPU_STORE)
            TS_TRY(move(e, index, &rows[i], c));
        else {
            while (next < end &&
                   (rows[next].kind == TS_GPU_LAUNCH || rows[next].kind == TS_GPU_DONE))
                next++;
            TS_TRY(run_launches(e, index, i, next, s, ring));
        }
    }
    return TS_OK;
}

ts_status ts_gpu_section(ts_engine *e, int replica, const ts_section *s, const ts_run_ctx *c,
                         ts_stamp stamp, ts_stamp_ring *ring)
{
    ts_gpu_run *r = e->gpu;
    int index = index_of(e, replica, s->device);
    ts_gpu_ctx ctx = {.seed = c->seed, .step = c->step, .mb = c->mb, .replica = c->replica};

    for (int i = 0; i < e->exe->ninputs && !s->phase; i++)
        TS_TRY(write_at(r, index, r->code->inputs[i], c->in[i], e->exe->inputs[i].info.bytes));
    TS_TRY(write_at(r, index, 0, &ctx, sizeof(ctx)));
    return run_rows(e, index, s->first, s->first + s->count, c, stamp, ring);
}

ts_status ts_gpu_give(ts_engine *e, int output, int replica, int m, size_t turn)
{
    ts_gpu_run *r = e->gpu;
    const ts_slot *s = &e->exe->outputs[output];

    if (s->at.device == TS_REMOTE) {
        ts_output_give(e, output, replica, m, ts_engine_output(e, replica, s) + turn);
        return TS_OK;
    }
    TS_TRY(read_at(r, index_of(e, replica, s->at.device), r->code->base + s->at.offset + turn,
                   r->outputs, s->info.bytes));
    ts_output_give(e, output, replica, m, r->outputs);
    return TS_OK;
}

ts_status ts_gpu_send(ts_engine *e, int replica, const ts_send *s, size_t to, size_t from)
{
    ts_gpu_run *r = e->gpu;
    int here = index_of(e, replica, e->exe->pipe.sections[s->section].device), there;

    if (s->remote)
        return read_at(r, here, r->code->base + from, ts_engine_block(e, replica, TS_REMOTE) + to,
                       s->bytes);
    there = index_of(e, replica, s->device);
    return r->d->copy(gpu_of(r, there), r->memories[there], r->code->base + to, gpu_of(r, here),
                      r->memories[here], r->code->base + from, s->bytes);
}

/* --- how long each kernel takes --- */

/* Seconds of row i by itself, again and again on the same data. */
static ts_status time_row(ts_engine *e, int i, double *seconds)
{
    enum { TIMES = 20, ROUNDS = 3 };
    ts_gpu_run *r = e->gpu;
    ts_gpu_launch l[TIMES];
    ts_gpu_recording *p = NULL;
    ts_status s;

    *seconds = 0;
    if (r->code->rows[i].kind != TS_GPU_LAUNCH)
        return TS_OK;
    for (int k = 0; k < TIMES; k++)
        l[k] = (ts_gpu_launch){&r->code->rows[i], r->memories[0]};
    s = r->d->record(gpu_of(r, 0), module_of(r, 0), TIMES, l, &p);
    for (int k = 0; k <= ROUNDS && !s; k++) {
        double start = ts_now(), each;
        s = r->d->replay(gpu_of(r, 0), p);
        s = s ? s : r->d->wait(gpu_of(r, 0));
        each = (ts_now() - start) / TIMES;
        if (k && (k == 1 || each < *seconds))
            *seconds = each;
    }
    r->d->forget(gpu_of(r, 0), p);
    return s;
}

ts_status ts_gpu_profile(ts_engine *e, double *seconds)
{
    for (int i = 0; i < e->gpu->code->nrows; i++)
        TS_TRY(time_row(e, i, &seconds[i]));
    return TS_OK;
}
