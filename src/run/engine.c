/* engine.c - a loaded run: one block of memory, a team of threads, the loop.
 *
 *   for d in device iterations
 *     for a in gradient accumulation         micro-batch d*A + a
 *       phase 0 kernels, outputs to the host
 *     phase 1 kernels                        the weight update when A > 1
 *
 * Every thread walks the same table of kernels and takes its share of each; it waits only where the
 * plan says so. Nothing is allocated after ts_engine_new.
 */
#include "render/module.h"
#include "run/run.h"
#include <time.h>

struct ts_engine {
    ts_executable *exe; /* shared: whoever is freed last takes it along */
    char *block;
    ts_team *team;
    int threads;
    const void **feeds; /* each thread's pointers to the inputs of its micro-batch */
    uint64_t seed, step;
    ts_ref *ref; /* the reference executor's tensors, instead of block and team */
    /* of the running call */
    const void *const *in;
    void *const *out;
    /* calls of the host */
    ts_host_fn *host;
    void *host_arg;
    ts_status host_status; /* of the first that failed in this run; the others are not made */
    ts_error host_error;
    ts_times *times; /* of each micro-batch of a run */
};

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

/* Copies a state between the block's layout and row-major. */
static void convert(const ts_slot *s, char *block, char *host, bool to_host)
{
    size_t size = ts_dtype_size(s->info.dtype);
    ts_type t = ts_type_of(s->info.dtype, s->info.rank, s->info.dims);

    if (!s->layout.set) {
        memcpy(to_host ? host : block, to_host ? block : host, slot_bytes(s));
        return;
    }
    for (ts_each it = ts_each_of(&t); it.more; ts_each_next(&it)) {
        char *b = block + (size_t)laid_out(s, it.at) * size, *h = host + (size_t)it.flat * size;
        memcpy(to_host ? h : b, to_host ? b : h, size);
    }
}

static char *state_memory(const ts_engine *e, const ts_slot *s)
{
    return e->ref ? ts_ref_tensor(e->ref, e->exe->graph->values[s->value])->data
                  : e->block + s->offset;
}

static void state_copy(const ts_engine *e, const ts_slot *s, void *host, bool to_host)
{
    ts_slot plain = *s;

    plain.layout.set = plain.layout.set && !e->ref;
    convert(&plain, state_memory(e, s), host, to_host);
}

static ts_status init_states(ts_engine *e)
{
    for (int i = 0; i < e->exe->nstates; i++) {
        const ts_slot *s = &e->exe->states[i];
        ts_type t = ts_type_of(s->info.dtype, s->info.rank, s->info.dims);
        void *host;
        TS_TRY(ts_alloc(slot_bytes(s), s->info.name, &host));
        ts_init_fill(&s->init, s->info.name, e->seed, s->info.dtype, ts_type_count(&t), host);
        state_copy(e, s, host, false);
        free(host);
    }
    return TS_OK;
}

static ts_status start_native(ts_engine *e, int threads)
{
    size_t feeds = (size_t)threads * (size_t)e->exe->ninputs * sizeof(void *);

    e->threads = threads;
    TS_TRY(ts_alloc(e->exe->block_bytes, "the device block", (void **)&e->block));
    TS_TRY(ts_alloc(feeds, "the pointers to the inputs", (void **)&e->feeds));
    return ts_team_new(threads, &e->team);
}

ts_status ts_engine_new(const ts_executable *x, const ts_run_options *opt, ts_engine **out)
{
    ts_engine *e;
    ts_status s = TS_OK;

    if (!x || !out)
        return ts_fail(TS_ERR_ARG, "an engine needs an executable and a place for the engine");
    *out = NULL;
    if (opt && opt->threads < 0)
        return ts_fail(TS_ERR_ARG, "threads is %d; it must not be negative", opt->threads);
    e = calloc(1, sizeof(*e));
    if (!e)
        return ts_fail(TS_ERR_MEMORY, "cannot allocate an engine");
    e->exe = ts_executable_share(x);
    e->seed = opt ? opt->seed : 0;
    e->host = opt ? opt->host : NULL;
    e->host_arg = opt ? opt->host_arg : NULL;
    s = ts_alloc((size_t)(x->device_iterations * x->gradient_accumulation) * sizeof(*e->times),
                 "the times of the micro-batches", (void **)&e->times);
    e->threads = 1; /* all that the reference executor uses */
    if (!s && x->module)
        s = start_native(e, opt && opt->threads > 0 ? opt->threads : ts_team_default_size());
    else if (!s)
        s = ts_ref_new(x->graph, &e->ref);
    if (!s)
        s = init_states(e);
    if (s) {
        ts_engine_free(e);
        return s;
    }
    *out = e;
    return TS_OK;
}

void ts_engine_free(ts_engine *e)
{
    if (!e)
        return;
    ts_team_free(e->team);
    ts_ref_free(e->ref);
    free(e->feeds);
    free(e->times);
    free(e->block);
    ts_executable_free(e->exe);
    free(e);
}

/* --- outputs --- */

int ts_engine_threads(const ts_engine *e)
{
    return e ? e->threads : 0;
}

int ts_engine_slots(const ts_engine *e)
{
    const ts_executable *x = e ? e->exe : NULL;

    if (!x)
        return 0;
    if (x->mode == TS_OUT_ALL)
        return x->device_iterations * x->gradient_accumulation;
    return x->mode == TS_OUT_EVERY_N
               ? x->device_iterations / x->output_period * x->gradient_accumulation
               : 1;
}

/* Which slot micro-batch (d, a) goes to, or -1. */
static int slot_of(const ts_executable *x, int d, int a)
{
    int A = x->gradient_accumulation;

    switch (x->mode) {
    case TS_OUT_ALL:
        return d * A + a;
    case TS_OUT_EVERY_N:
        return (d + 1) % x->output_period ? -1 : (d + 1) / x->output_period * A - A + a;
    case TS_OUT_SUM:
        return 0;
    default:
        return d == x->device_iterations - 1 && a == A - 1 ? 0 : -1;
    }
}

static void add(ts_dtype t, void *sum, const void *x, size_t bytes)
{
    size_t n = bytes / ts_dtype_size(t);

    if (t == TS_F32) {
        for (size_t i = 0; i < n; i++)
            ((float *)sum)[i] += ((const float *)x)[i];
        return;
    }
    for (size_t i = 0; i < n; i++)
        ts_dtype_set(t, sum, (int64_t)i,
                     ts_dtype_get(t, sum, (int64_t)i) + ts_dtype_get(t, x, (int64_t)i));
}

static void give_outputs(ts_engine *e, int d, int a)
{
    const ts_executable *x = e->exe;
    int slot = slot_of(x, d, a);

    for (int i = 0; i < x->noutputs && slot >= 0; i++) {
        const ts_slot *s = &x->outputs[i];
        const void *from =
            e->ref ? ts_ref_tensor(e->ref, x->graph->values[s->value])->data : e->block + s->offset;
        char *to = e->out ? e->out[i] : NULL;
        if (!to)
            continue;
        to += (size_t)slot * slot_bytes(s);
        if (x->mode == TS_OUT_SUM && (d || a))
            add(s->info.dtype, to, from, slot_bytes(s));
        else
            memcpy(to, from, slot_bytes(s));
    }
}

/* --- the loop --- */

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* What a host_call does, always on the first thread. A failure is kept for the end of the run. */
static void call_host(void *engine, int id, const void *const *in, void *const *out)
{
    ts_engine *e = engine;

    if (e->host_status)
        return;
    if (e->host)
        e->host_status = e->host(e->host_arg, id, in, out);
    else
        e->host_status = ts_fail(
            TS_ERR_ARG, "the program calls the host (id %d), and ts_run_options.host is NULL", id);
    if (e->host_status)
        e->host_error = *ts_last_error();
}

/* This member's share of a kernel. What is too small to share goes to the first one, always: the
 * plan counts on it. */
static void run_kernel(const ts_module_kernel *k, const ts_run_ctx *c, int member, int size)
{
    int64_t pieces = k->count / k->grain, lo, hi;

    pieces = pieces < 1 ? 1 : pieces > size ? size : pieces;
    if (member >= pieces)
        return;
    lo = k->count * member / pieces;
    hi = k->count * (member + 1) / pieces;
    if (lo < hi)
        k->run(c, lo, hi);
}

static void run_phase(ts_engine *e, int phase, const ts_run_ctx *c, int member, int size)
{
    const ts_module *m = e->exe->module;

    for (int i = 0; i < m->nkernels; i++) {
        const ts_module_kernel *k = &m->kernels[i];
        if (k->phase != phase)
            continue;
        if (k->wait)
            ts_team_wait(e->team);
        run_kernel(k, c, member, size);
    }
    ts_team_wait(e->team);
}

static void loop(void *arg, int member, int size)
{
    ts_engine *e = arg;
    const ts_executable *x = e->exe;
    const void **in = e->feeds + (size_t)member * (size_t)x->ninputs;
    ts_run_ctx c = {
        .m = e->block, .in = in, .seed = e->seed, .step = e->step, .host = call_host, .engine = e};

    for (int d = 0; d < x->device_iterations; d++) {
        for (int a = 0; a < x->gradient_accumulation; a++) {
            ts_times *t = member ? NULL : &e->times[d * x->gradient_accumulation + a];
            if (t)
                t->begun = now();
            for (int i = 0; i < x->ninputs; i++)
                in[i] = (const char *)e->in[i] +
                        (size_t)(d * x->gradient_accumulation + a) * slot_bytes(&x->inputs[i]);
            run_phase(e, 0, &c, member, size);
            if (t)
                t->computed = t->given = now();
            if (slot_of(x, d, a) >= 0) {
                if (t) {
                    give_outputs(e, d, a);
                    t->given = now();
                }
                ts_team_wait(e->team);
            }
            c.step++;
        }
        if (x->gradient_accumulation > 1)
            run_phase(e, 1, &c, member, size);
    }
}

static ts_status loop_ref(ts_engine *e)
{
    const ts_executable *x = e->exe;

    for (int d = 0; d < x->device_iterations; d++) {
        for (int a = 0; a < x->gradient_accumulation; a++) {
            ts_eval_ctx c = {e->seed, e->step + (uint64_t)(d * x->gradient_accumulation + a),
                             call_host, e};
            ts_times *t = &e->times[d * x->gradient_accumulation + a];
            t->begun = now();
            for (int i = 0; i < x->ninputs; i++)
                memcpy(ts_ref_tensor(e->ref, x->graph->inputs[i])->data,
                       (const char *)e->in[i] +
                           (size_t)(d * x->gradient_accumulation + a) * slot_bytes(&x->inputs[i]),
                       slot_bytes(&x->inputs[i]));
            TS_TRY(ts_ref_run(e->ref, 0, &c));
            t->computed = now();
            give_outputs(e, d, a);
            t->given = now();
        }
        if (x->gradient_accumulation > 1)
            TS_TRY(ts_ref_run(e->ref, 1, &(ts_eval_ctx){e->seed, e->step, call_host, e}));
    }
    return TS_OK;
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
        if (!in || !in[i]) {
            ts_fail(TS_ERR_ARG, "input %d (%s) is NULL", i, x->inputs[i].info.name);
            ts_error_hint("a run takes %d inputs, in the order of the calls of ts_input()",
                          x->ninputs);
            return TS_ERR_ARG;
        }
    e->in = in;
    e->out = out;
    e->host_status = TS_OK;
    if (x->module)
        ts_team_run(e->team, loop, e);
    else
        s = loop_ref(e);
    e->step += (uint64_t)(x->device_iterations * x->gradient_accumulation);
    if (!s && e->host_status) {
        ts_error_set(&e->host_error);
        s = e->host_status;
    }
    return s;
}

const ts_times *ts_engine_times(const ts_engine *e, int *count)
{
    if (count)
        *count = e ? e->exe->device_iterations * e->exe->gradient_accumulation : 0;
    return e ? e->times : NULL;
}

/* --- states --- */

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
    ts_fail(TS_ERR_ARG, "there is no state '%s'", name);
    ts_error_hint("ts_executable_inspect() lists them");
    return TS_ERR_ARG;
}

static ts_status find_sized(const ts_engine *e, const char *name, const void *data, size_t bytes,
                            const ts_slot **out)
{
    TS_TRY(find(e, name, out));
    if (!data)
        return ts_fail(TS_ERR_ARG, "the data for state '%s' is NULL", name);
    if ((*out)->info.bytes != bytes)
        return ts_fail(TS_ERR_ARG, "state '%s' has %zu bytes, not %zu", name, (*out)->info.bytes,
                       bytes);
    return TS_OK;
}

ts_status ts_engine_read(const ts_engine *e, const char *name, void *data, size_t bytes)
{
    const ts_slot *s;

    TS_TRY(find_sized(e, name, data, bytes, &s));
    state_copy(e, s, data, true);
    return TS_OK;
}

ts_status ts_engine_write(ts_engine *e, const char *name, const void *data, size_t bytes)
{
    const ts_slot *s;

    TS_TRY(find_sized(e, name, data, bytes, &s));
    state_copy(e, s, (void *)data, false);
    return TS_OK;
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
    ts_dtype_set(s->info.dtype, state_memory(e, s), 0, value);
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
