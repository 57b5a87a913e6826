/* engine.c - a loaded run: a block of memory for each device, threads, states in and out.
 *
 *   for d in device iterations
 *     for a in gradient accumulation         micro-batch d*A + a
 *       phase 0 kernels, outputs to the host
 *     [replicas add up their gradients]
 *     phase 1 kernels                        the weight update when A > 1
 *
 * loop.c runs this on one device, lanes.c on several or in phases, and loop.c with the reference
 * executor.
 * Nothing is allocated after ts_engine_new.
 */
#include "run/engine.h"
#include <math.h>
#include <xxhash.h>

static size_t slot_bytes(const ts_slot *s)
{
    return s->info.bytes;
}

/* Where element `at` of a laid out tensor is. */
static int64_t laid_out(const ts_slot *s, const int64_t *at)
{
    const ts_layout *l = &s->layout;
    int64_t x = 0;

    for (int i = 0; i < s->info.rank; i++) {
        int d = l->set ? l->order[i] : i;
        int64_t n = s->info.dims[d], c = at[d];
        if (l->set && l->lanes > 1 && d == l->lane_dim) {
            n = (n + l->lanes - 1) / l->lanes;
            c /= l->lanes;
        }
        x = x * n + c;
    }
    return l->set && l->lanes > 1 ? x * l->lanes + at[l->lane_dim] % l->lanes : x;
}

/* A laid out tensor's dims as they lie, outermost first, the lanes last: how many elements, and how far apart they
 * are in the block and on the host. */
typedef struct walk {
    int rank, blocks; /* the dim that counts blocks of lanes, or -1 */
    int64_t size[TS_MAX_RANK + 1], block[TS_MAX_RANK + 1], host[TS_MAX_RANK + 1];
    int64_t all; /* lanes of all blocks: the last may be less than full */
    size_t bytes;
    bool to_host;
} walk;

static void walk_of(const ts_slot *s, bool to_host, walk *w)
{
    const ts_layout *l = &s->layout;
    int64_t host[TS_MAX_RANK], step = 1;

    *w = (walk){.blocks = -1, .bytes = ts_dtype_size(s->info.dtype), .to_host = to_host};
    for (int d = s->info.rank - 1; d >= 0; step *= s->info.dims[d--])
        host[d] = step;
    for (int i = 0; i < s->info.rank; i++) {
        int d = l->order[i];
        bool lanes = l->lanes > 1 && d == l->lane_dim;
        if (lanes)
            w->blocks = w->rank;
        w->size[w->rank] = lanes ? (s->info.dims[d] + l->lanes - 1) / l->lanes : s->info.dims[d];
        w->host[w->rank++] = lanes ? l->lanes * host[d] : host[d];
    }
    if (w->blocks >= 0) {
        w->all = s->info.dims[l->lane_dim];
        w->size[w->rank] = l->lanes;
        w->host[w->rank++] = host[l->lane_dim];
    }
    step = 1;
    for (int i = w->rank - 1; i >= 0; step *= w->size[i--])
        w->block[i] = step;
}

/* Elements from dim d on; of the last, `lanes` if they are lanes. */
static void copy_dims(const walk *w, int d, char *block, char *host, int64_t lanes)
{
    bool last = d == w->rank - 1;
    int64_t n = last && w->blocks >= 0 ? lanes : w->size[d];

    for (int64_t i = 0; i < n; i++) {
        char *b = block + (size_t)(i * w->block[d]) * w->bytes;
        char *h = host + (size_t)(i * w->host[d]) * w->bytes;
        if (!last)
            copy_dims(w, d + 1, b, h,
                      d == w->blocks
                          ? TS_MIN(w->size[w->rank - 1], w->all - i * w->size[w->rank - 1])
                          : lanes);
        else if (w->bytes == 4)
            memcpy(w->to_host ? h : b, w->to_host ? b : h, 4);
        else
            memcpy(w->to_host ? h : b, w->to_host ? b : h, w->bytes);
    }
}

/* Copies a state between the block's layout and row-major. */
static void convert(const ts_slot *s, char *block, char *host, bool to_host)
{
    walk w;

    if (!s->layout.set || !s->info.rank || !slot_bytes(s)) {
        memcpy(to_host ? host : block, to_host ? block : host, slot_bytes(s));
        return;
    }
    walk_of(s, to_host, &w);
    copy_dims(&w, 0, block, host, 0);
}

char *ts_engine_state(const ts_engine *e, int replica, const ts_slot *s, ts_spot_at at)
{
    return e->refs ? ts_ref_tensor(e->refs[replica], e->exe->graph->values[s->value])->data
                   : ts_engine_block(e, replica, at.device) + at.offset;
}

/* A state that each replica has its share of, from or to the whole. */
static void convert_parts(const ts_engine *e, const ts_slot *s, char *host, bool to_host)
{
    size_t size = ts_dtype_size(s->info.dtype);
    ts_type t = ts_type_of(s->info.dtype, s->info.rank, s->info.dims);

    for (ts_each it = ts_each_of(&t); it.more; ts_each_next(&it)) {
        int64_t at = s->layout.set && !e->refs ? laid_out(s, it.at) : it.flat;
        char *b =
            ts_engine_state(e, (int)(at / s->share), s, s->at) + (size_t)(at % s->share) * size;
        char *h = host + (size_t)it.flat * size;
        memcpy(to_host ? h : b, to_host ? b : h, size);
    }
}

static ts_status convert_shares(const ts_engine *e, const ts_slot *s, char *host, bool to_host)
{
    for (int r = 0; r < e->exe->replicas && to_host; r++)
        TS_TRY(ts_gpu_pull(e, r, s, s->at));
    convert_parts(e, s, host, to_host);
    for (int r = 0; r < e->exe->replicas && !to_host; r++)
        TS_TRY(ts_gpu_push(e, r, s, s->at));
    return TS_OK;
}

/* The first of a group's replicas. */
static int first_of(const ts_engine *e, const ts_slot *s, int group)
{
    return s->orthogonal ? group : group * (e->exe->replicas / s->groups);
}

/* All replicas of a group and all copies have the same: row `group` of host, or without groups all
 * of it. With a row for each replica, the first one's of the group. */
static ts_status state_write(const ts_engine *e, const ts_slot *s, const void *host,
                             bool for_replicas)
{
    ts_slot plain = *s;

    if (s->share && s->use == TS_USE_MOMENT)
        return convert_shares(e, s, (char *)host, false);
    plain.layout.set = plain.layout.set && !e->refs;
    for (int r = 0; r < e->exe->replicas; r++) {
        int group = ts_slot_group(s, e->exe->replicas, r);
        int row = for_replicas ? first_of(e, s, group) : group;
        char *from = (char *)host + (size_t)row * slot_bytes(s);
        convert(&plain, ts_engine_state(e, r, s, s->at), from, false);
        TS_TRY(ts_gpu_push(e, r, s, s->at));
        for (int i = 0; i < s->ncopies && !e->refs; i++) {
            convert(&plain, ts_engine_state(e, r, s, s->copies[i]), from, false);
            TS_TRY(ts_gpu_push(e, r, s, s->copies[i]));
        }
    }
    return TS_OK;
}

static ts_status state_read(const ts_engine *e, const ts_slot *s, void *host)
{
    ts_slot plain = *s;
    int rows = s->read_all ? e->exe->replicas : s->groups;

    if (s->share && s->use == TS_USE_MOMENT)
        return convert_shares(e, s, host, true);
    plain.layout.set = plain.layout.set && !e->refs;
    for (int i = 0; i < rows; i++) {
        int replica = s->read_all ? i : first_of(e, s, i);
        TS_TRY(ts_gpu_pull(e, replica, s, s->at));
        convert(&plain, ts_engine_state(e, replica, s, s->at),
                (char *)host + (size_t)i * slot_bytes(s), true);
    }
    return TS_OK;
}

/* Blocks begin with zeros. */
static bool is_there(const ts_engine *e, const ts_init *init)
{
    return e->blocks && !e->exe->gpu && init->kind == TS_INIT_FULL && init->a == 0 &&
           !signbit(init->a);
}

static ts_status init_states(ts_engine *e)
{
    for (int i = 0; i < e->exe->nstates; i++) {
        const ts_slot *s = &e->exe->states[i];
        if (is_there(e, &s->init))
            continue;
        ts_type t = ts_type_of(s->info.dtype, s->info.rank, s->info.dims);
        ts_status written;
        char *host;
        TS_TRY(ts_alloc(slot_bytes(s) * (size_t)s->groups, s->info.name, (void **)&host));
        for (int k = 0; k < s->groups; k++)
            ts_init_fill(&s->init, s->info.name, e->seed, s->info.dtype, ts_type_count(&t),
                         host + (size_t)k * slot_bytes(s));
        written = state_write(e, s, host, false);
        free(host);
        TS_TRY(written);
    }
    return TS_OK;
}

/* Does a micro-batch run without a phase or another device in between? */
static bool in_one_go(const ts_executable *x)
{
    int n = 0;

    for (int i = 0; i < x->pipe.nsections; i++)
        n += !x->pipe.sections[i].phase;
    return n <= 1;
}

static ts_status start_native(ts_engine *e)
{
    const ts_executable *x = e->exe;
    int n = x->pipe.ndevices * x->replicas;

    ts_give_back(); /* the compile's memory, before a block comes that may be the largest thing in the process */
    TS_TRY(ts_alloc((size_t)n * sizeof(char *), "the devices", (void **)&e->blocks));
    for (int i = 0; i < n; i++) {
        const ts_device_bytes *b = &x->bytes[i % x->pipe.ndevices];
        TS_TRY(ts_alloc(x->gpu ? b->states : b->peak, "the device block", (void **)&e->blocks[i]));
    }
    TS_TRY(ts_alloc((size_t)x->replicas * sizeof(char *), "the replicas", (void **)&e->remotes));
    for (int r = 0; r < x->replicas && x->remote_bytes; r++)
        TS_TRY(ts_alloc(x->remote_bytes, "what is offloaded", (void **)&e->remotes[r]));
    if (x->gpu)
        TS_TRY(ts_gpu_run_new(e, in_one_go(x)));
    if (x->gpu && ts_gpu_alone(e))
        return TS_OK;
    if (n == 1 && in_one_go(x) && !x->gpu)
        return ts_loop_start(e);
    return ts_lanes_new(e, &e->lanes);
}

static ts_status start_reference(ts_engine *e)
{
    e->threads = 1; /* all that it uses */
    TS_TRY(
        ts_alloc((size_t)e->exe->replicas * sizeof(ts_ref *), "the replicas", (void **)&e->refs));
    for (int r = 0; r < e->exe->replicas; r++) {
        TS_TRY(ts_ref_new(e->exe->graph, &e->refs[r]));
        ts_ref_replica(e->refs[r], r);
    }
    return TS_OK;
}

static ts_status check_run(const ts_executable *x, const ts_run_options *opt)
{
    const ts_comm *c = opt->comm;

    TS_TRY(ts_record_check(TS_RECORD_RUN_OPTIONS, opt));
    if (!x->training || (c ? c->size : 1) == x->processes)
        return TS_OK;
    ts_fail(TS_ERR_ARG, "the executable is one of %d processes, and the run of %d", x->processes,
            c ? c->size : 1);
    ts_error_hint("compile with ts_options.processes and run with ts_run_options.comm");
    return TS_ERR_ARG;
}

/* Processes with other programs would wait for each other's sums, or add what does not belong
 * together; other instructions round differently. */
static ts_status check_same(const ts_engine *e)
{
    const ts_executable *x = e->exe;
    const char *text = x->source ? x->source : x->ir;
    struct {
        uint64_t program;
        char isa[64];
    } own = {.program = text ? XXH3_64bits(text, strlen(text)) : 0}, first;

    if (!e->comm || e->comm->size < 2 || !e->comm->copy || !x->training)
        return TS_OK;
    snprintf(own.isa, sizeof(own.isa), "%s", x->isa ? x->isa : "");
    first = own;
    TS_TRY(e->comm->copy(e->comm->self, &first, sizeof(first)));
    if (!memcmp(&first, &own, sizeof(own)))
        return TS_OK;
    first.isa[sizeof(first.isa) - 1] = 0;
    ts_fail(TS_ERR_PROCESS, "process %d has another program (for %s) than process 0 (for %s)",
            e->comm->rank, own.isa, first.isa);
    ts_error_hint(
        "all processes need the same model, options and version; TESSERA_ISA=x86-64-v3 or "
        "another name chooses instructions that all machines have, TESSERA_MACHINE=cores=2 "
        "and so on what else their programs depend on");
    return TS_ERR_PROCESS;
}

ts_status ts_engine_new_sized(const ts_executable *x, const ts_run_options *given, size_t size,
                              ts_engine **out)
{
    ts_run_options own, *opt = &own;
    ts_engine *e;
    ts_status s = TS_OK;
    double start = ts_now();

    if (!x || !out)
        return ts_fail(TS_ERR_ARG, "an engine needs an executable and a place for the engine");
    *out = NULL;
    TS_TRY(ts_take_sized("ts_engine_new", given, size, opt, sizeof(*opt)));
    TS_TRY(check_run(x, opt));
    e = calloc(1, sizeof(*e));
    if (!e)
        return ts_fail(TS_ERR_MEMORY, "cannot allocate an engine");
    e->exe = ts_executable_share(x);
    e->seed = opt->seed;
    e->comm = opt->comm;
    e->host = opt->host;
    e->host_arg = opt->host_arg;
    pthread_mutex_init(&e->host_lock, NULL);
    e->threads = opt->threads > 0 ? opt->threads : ts_team_default_size();
    ts_pace_start(&e->pace, e->threads, opt->threads > 0);
    s = ts_alloc((size_t)(x->device_iterations * x->gradient_accumulation) * sizeof(*e->times),
                 "the times of the micro-batches", (void **)&e->times);
    if (!s)
        s = x->module || x->gpu ? start_native(e) : start_reference(e);
    if (!s)
        s = init_states(e);
    if (!s)
        s = check_same(e);
    if (!s)
        s = ts_monitor_enter(e, opt->devices);
    if (!s)
        s = ts_stamps_new(e);
    if (s) {
        ts_engine_free(e);
        return s;
    }
    ts_engine_note(e, "load", "blocks and states", start, ts_now());
    *out = e;
    return TS_OK;
}

void ts_engine_free(ts_engine *e)
{
    if (!e)
        return;
    ts_monitor_leave(e);
    ts_stamps_free(e);
    ts_lanes_free(e->lanes);
    ts_team_free(e->team);
    ts_gpu_run_free(e);
    for (int r = 0; r < e->exe->replicas && e->refs; r++)
        ts_ref_free(e->refs[r]);
    for (int i = 0; i < e->exe->pipe.ndevices * e->exe->replicas && e->blocks; i++)
        free(e->blocks[i]);
    for (int r = 0; r < e->exe->replicas && e->remotes; r++)
        free(e->remotes[r]);
    free(e->remotes);
    free(e->refs);
    pthread_mutex_destroy(&e->host_lock);
    free(e->times);
    free(e->feeds);
    free(e->blocks);
    ts_executable_free(e->exe);
    free(e);
}

static ts_status no_engine(void)
{
    ts_fail(TS_ERR_ARG, "the engine is NULL");
    ts_error_hint("did ts_engine_new() succeed? Check what it and ts_compile() return");
    return TS_ERR_ARG;
}

ts_status ts_engine_executable(const ts_engine *e, const ts_executable **out)
{
    if (!e)
        return no_engine();
    *out = e->exe;
    return TS_OK;
}

ts_status ts_engine_run(ts_engine *e, const void *const *in, void *const *out)
{
    const ts_executable *x;
    ts_status s = TS_OK;

    if (!e)
        return no_engine();
    x = e->exe;
    for (int i = 0; i < x->ninputs; i++)
        if (!in || (!in[i] && x->inputs[i].info.bytes)) {
            ts_fail(TS_ERR_ARG, "input %d (%s) is NULL", i, x->inputs[i].info.name);
            ts_error_hint("a run takes %d inputs, in the order of the calls of ts_input()",
                          x->ninputs);
            return TS_ERR_ARG;
        }
    e->in = in;
    e->out = out;
    e->host_status = TS_OK;
    ts_stamps_begin(e);
    if (!e->lanes) /* lanes say it of each device */
        ts_monitor_begin(e, 0);
    if (e->refs)
        s = ts_loop_reference(e);
    else if (e->lanes)
        s = ts_lanes_run(e->lanes);
    else if (e->gpu)
        s = ts_gpu_loop(e);
    else
        s = ts_loop_native(e);
    if (!e->lanes)
        ts_monitor_end(e, 0);
    if (!s)
        ts_stamps_end(e);
    e->step += (uint64_t)(x->device_iterations * x->gradient_accumulation) * ts_engine_stride(e);
    return ts_host_end(e, s);
}

const ts_times *ts_engine_times(const ts_engine *e, int *count)
{
    if (count)
        *count = e ? e->exe->device_iterations * e->exe->gradient_accumulation : 0;
    return e ? e->times : NULL;
}

int ts_engine_threads(const ts_engine *e)
{
    return e ? e->threads : 0;
}

/* --- states --- */

static ts_status no_state(const ts_executable *x, const char *name)
{
    ts_arena *a = ts_arena_new();
    const char **names = NULL, *near;
    int n = 0;

    for (int i = 0; i < x->nstates; i++)
        TS_PUSH(a, names, n, x->states[i].info.name);
    near = ts_nearest(name, names, n);
    ts_arena_free(a);
    ts_fail(TS_ERR_ARG, "there is no state '%s'", name);
    ts_error_hint("%s%s%sts_executable_inspect() lists them", near ? "did you mean '" : "",
                  near ? near : "", near ? "'? " : "");
    return TS_ERR_ARG;
}

static ts_status find(const ts_engine *e, const char *name, const ts_slot **out)
{
    if (!e)
        return no_engine();
    if (!name)
        return ts_fail(TS_ERR_ARG, "the name of the state is NULL");
    for (int i = 0; i < e->exe->nstates; i++)
        if (!strcmp(e->exe->states[i].info.name, name)) {
            *out = &e->exe->states[i];
            return TS_OK;
        }
    return no_state(e->exe, name);
}

static ts_status find_for(const ts_engine *e, const char *name, const void *data,
                          const ts_slot **out)
{
    TS_TRY(find(e, name, out));
    if (!data)
        return ts_fail(TS_ERR_ARG, "the data for state '%s' is NULL", name);
    return TS_OK;
}

static ts_status wrong_size(const ts_slot *s, size_t bytes)
{
    return ts_fail(TS_ERR_ARG, "state '%s' has %zu bytes, not %zu", s->info.name, s->whole.bytes,
                   bytes);
}

ts_status ts_engine_read(const ts_engine *e, const char *name, void *data, size_t bytes)
{
    const ts_slot *s;

    TS_TRY(find_for(e, name, data, &s));
    if (bytes != s->whole.bytes)
        return wrong_size(s, bytes);
    return state_read(e, s, data);
}

ts_status ts_engine_write(ts_engine *e, const char *name, const void *data, size_t bytes)
{
    const ts_slot *s;

    TS_TRY(find_for(e, name, data, &s));
    if (bytes != s->whole.bytes && bytes != slot_bytes(s) * (size_t)s->groups)
        return wrong_size(s, bytes);
    return state_write(e, s, data, bytes != slot_bytes(s) * (size_t)s->groups);
}

ts_status ts_engine_copy(ts_engine *e)
{
    const ts_comm *c = e ? e->comm : NULL;
    uint64_t rng[2];

    if (!e)
        return no_engine();
    if (!c || c->size < 2)
        return TS_OK;
    if (!c->copy)
        return ts_fail(TS_ERR_UNSUPPORTED, "the engine's comm has no copy");
    rng[0] = e->seed;
    rng[1] = e->step;
    TS_TRY(c->copy(c->self, rng, sizeof(rng)));
    ts_engine_set_rng(e, rng[0], rng[1]);
    for (int i = 0; i < e->exe->nstates; i++) {
        const ts_slot *slot = &e->exe->states[i];
        ts_status s;
        void *host;
        TS_TRY(ts_alloc(slot->whole.bytes, slot->info.name, &host));
        s = state_read(e, slot, host);
        if (!s)
            s = c->copy(c->self, host, slot->whole.bytes);
        if (!s)
            s = state_write(e, slot, host, slot->read_all);
        free(host);
        TS_TRY(s);
    }
    return TS_OK;
}

static ts_status set_at(ts_engine *e, int replica, const ts_slot *s, ts_spot_at at, double value)
{
    ts_dtype_set(s->info.dtype, ts_engine_state(e, replica, s, at), 0, value);
    return ts_gpu_push(e, replica, s, at);
}

ts_status ts_engine_set(ts_engine *e, const char *hyper, double value)
{
    const ts_slot *s;

    if (!e || !hyper)
        return find(e, hyper, &s);
    if (find(e, hyper, &s) || s->info.rank) {
        ts_fail(TS_ERR_ARG, "there is no variable hyper-parameter '%s'", hyper);
        ts_error_hint("mark it in ts_optimizer.variable before compiling");
        return TS_ERR_ARG;
    }
    if (isnan(value))
        return ts_fail(TS_ERR_ARG, "the hyper-parameter '%s' cannot be nan", hyper);
    for (int r = 0; r < e->exe->replicas; r++) {
        TS_TRY(set_at(e, r, s, s->at, value));
        for (int i = 0; i < s->ncopies && !e->refs; i++)
            TS_TRY(set_at(e, r, s, s->copies[i], value));
    }
    return TS_OK;
}

void ts_engine_rng(const ts_engine *e, uint64_t *seed, uint64_t *step)
{
    if (seed)
        *seed = e ? e->seed : 0;
    if (step)
        *step = e ? e->step : 0;
}

void ts_engine_set_rng(ts_engine *e, uint64_t seed, uint64_t step)
{
    if (!e)
        return;
    e->seed = seed;
    e->step = step;
}
