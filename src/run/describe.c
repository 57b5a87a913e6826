/* describe.c - what a run needs to know of a program, copied out of the compile: where inputs,
 * outputs and states lie, whose they are, and in which order the devices work. The compile's memory
 * goes, this stays.
 */
#include "plan/plan.h"
#include "run/run.h"

/* Where a state is between runs. */
static ts_spot_at at_rest(const ts_spot *s)
{
    return s->remote ? (ts_spot_at){TS_REMOTE, s->remote_at} : (ts_spot_at){s->device, s->offset};
}

static ts_slot slot(ts_arena *a, const ts_value *v, const char *name, const ts_program *p)
{
    ts_slot s = {.value = v->id};

    s.info.name = ts_arena_strdup(a, name);
    s.info.dtype = v->type.dtype;
    s.info.rank = v->type.rank;
    memcpy(s.info.dims, v->type.dim, sizeof(s.info.dims));
    s.info.bytes = ts_type_bytes(&v->type);
    s.layout = v->layout;
    s.depth = s.groups = 1;
    if (!p || p->place[v->id].home != TS_HOME_BLOCK)
        return s;
    const ts_place *q = &p->place[v->id];
    const ts_spot *home = ts_place_spot(p, v, -1);
    s.at = (ts_spot_at){home->device, home->offset};
    s.depth = home->depth;
    if (v->kind == TS_VALUE_STATE)
        s.at = at_rest(&q->spot);
    for (const ts_spot *x = q->spot.next; x && v->kind == TS_VALUE_STATE; x = x->next)
        TS_PUSH(a, s.copies, s.ncopies, at_rest(x));
    if (q->kernel >= 0)
        s.section = p->kernels[q->kernel]->section;
    else
        for (int i = 0; i < p->pipe.nsections; i++) /* a state: when its device is done */
            if (!p->pipe.sections[i].phase && p->pipe.sections[i].device == home->device)
                s.section = i;
    return s;
}

/* The optimiser's states go with their parameter. */
static void find_groups(ts_slot *s, const ts_options *opt)
{
    const ts_replica_group *q = ts_replica_group_of(opt, s->info.name, s->use != TS_USE_OTHER);

    if (!q)
        return;
    s->grouped = true;
    s->groups = TS_MAX(1, opt->replicas) / ts_replica_group_size(opt, q);
    s->orthogonal = q->grouping == TS_GROUPING_ORTHOGONAL;
    s->read_all = q->read_all && s->use == TS_USE_OTHER;
}

/* The whole tensor that a moment is a share of, and what is split of its parameter. */
static void find_shares(ts_executable *x, const ts_graph *g)
{
    for (int i = 0; i < g->nstates; i++) {
        const ts_state *s = &g->states[i];
        bool share = s->use == TS_USE_SHARE;
        ts_slot *q = !s->of ? NULL : &x->states[share ? s->of->index : i];
        if (!q)
            continue;
        q->share = s->value->type.dim[0];
        q->scatter = q->use == TS_USE_SUMMED;
        for (int n = 0; n < g->nnodes && q->scatter; n++)
            for (int k = 0; k < g->nodes[n]->nin && g->nodes[n]->phase; k++)
                if (g->nodes[n]->in[k] == s->of)
                    q->scatter = false; /* the norm of all gradients */
        if (share)
            continue;
        q->info.rank = s->of->type.rank;
        memcpy(q->info.dims, s->of->type.dim, sizeof(q->info.dims));
        q->info.bytes = (size_t)ts_type_count(&s->of->type) * ts_dtype_size(q->info.dtype);
        q->layout = s->of->layout;
    }
}

static void describe_slots(ts_executable *x, const ts_graph *g, const ts_program *p,
                           const ts_options *opt)
{
    ts_arena *a = x->arena;

    for (int i = 0; i < g->ninputs; i++)
        TS_PUSH(a, x->inputs, x->ninputs, slot(a, g->inputs[i], g->inputs[i]->name, p));
    for (int i = 0; i < g->noutputs; i++)
        TS_PUSH(a, x->outputs, x->noutputs, slot(a, g->outputs[i], g->output_names[i], p));
    for (int i = 0; i < g->nstates && g->states[i].use != TS_USE_SHARE; i++) {
        ts_slot s = slot(a, g->states[i].value, g->states[i].value->name, p);
        s.init = g->states[i].init;
        s.use = g->states[i].use;
        find_groups(&s, opt);
        TS_PUSH(a, x->states, x->nstates, s);
    }
    find_shares(x, g);
    ts_executable_finish(x);
}

static void describe_pipeline(ts_executable *x, const ts_program *p)
{
    ts_arena *a = x->arena;
    ts_pipeline *y = &x->pipe;

    *y = p->pipe;
    y->sections = ts_arena_copy(a, y->sections, sizeof(*y->sections) * (size_t)y->nsections);
    for (int i = 0; i < y->nsections; i++)
        y->sections[i].name = ts_arena_strdup(a, y->sections[i].name);
    y->sends = ts_arena_copy(a, y->sends, sizeof(*y->sends) * (size_t)y->nsends);
    for (int i = 0; i < y->nsends; i++)
        y->sends[i].readers =
            ts_arena_copy(a, y->sends[i].readers, sizeof(int) * (size_t)y->sends[i].nreaders);
    x->bytes = ts_arena_copy(a, p->bytes, sizeof(*p->bytes) * (size_t)y->ndevices);
    x->remote_bytes = p->remote_bytes;
}

void ts_executable_describe(ts_executable *x, const ts_graph *g, const ts_program *p,
                            const ts_options *opt)
{
    x->name = ts_arena_strdup(x->arena, g->name);
    x->device_iterations = TS_MAX(1, opt->device_iterations);
    x->gradient_accumulation = TS_MAX(1, opt->gradient_accumulation);
    x->output_period = TS_MAX(1, opt->output_period);
    x->replicas = TS_MAX(1, opt->replicas);
    describe_slots(x, g, p, opt);
    x->processes = TS_MAX(1, opt->processes);
    x->training = opt->optimizer != NULL;
    x->mode = opt->output_mode;
    if (x->mode == TS_OUTPUT_DEFAULT)
        x->mode = opt->optimizer ? TS_OUTPUT_FINAL : TS_OUTPUT_ALL;
    if (!p)
        return;
    describe_pipeline(x, p);
    x->stats.native = true;
    x->stats.state_bytes = p->state_bytes;
    x->stats.peak_bytes = p->peak_bytes;
    x->stats.kernels = p->nkernels;
    x->stats.flops = p->flops;
}
