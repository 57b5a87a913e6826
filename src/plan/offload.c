/* offload.c - tensors that live in the host's memory and visit the device.
 *
 *   before                            after, the optimiser's state offloaded
 *     k7  w m v <- w m v g              load m, load v, k7, store m, store v
 *     k8  x p q <- x p q h              load p, load q, k8, store p, store q
 *
 * A visit goes from the first kernel that uses a tensor to the last: it is loaded in front, unless
 * it is made there, and stored behind if it was made or changed. Between visits its memory is
 * others'. A state visits a section; an activation visits the forward part of a section and the
 * backward part. Phased, both visit a phase, and stay when the next phase uses them too (or, if the
 * user wants that, for all of the forward pass, and of the backward pass).
 *
 *   phase               0         1         2         3          4
 *   weight of phase 0   load .    |         |         |          load, update, store
 *   skip, 0 to 2        make  st  |         load .    |          load .
 *   from 0 to 1         make      read, st  |         load .     |
 *
 * What another device sends goes to the host's memory at once, and every visit loads it. Small
 * tensors stay where they are: single numbers, or what the user says.
 */
#include "op/emit.h"
#include "plan/plan.h"

typedef struct visit {
    int first, last; /* kernels */
    bool made, changed;
} visit;

typedef struct tensor {
    const ts_value *v;
    ts_spot *spot;
    bool kept; /* its memory is its own to the end of the section that makes it */
    visit *visits;
    int n;
} tensor;

typedef struct offload {
    ts_arena *a;
    const ts_options *opt;
    ts_program *p;
    tensor *list;
    int n;
    ts_kernel **kernels; /* the new list */
    int nkernels;
} offload;

static bool is_state(const ts_value *v)
{
    return v->kind == TS_VALUE_STATE;
}

unsigned ts_plan_offload_bit(const ts_program *p, const ts_value *v)
{
    ts_use use = is_state(v) ? p->g->states[v->index].use : TS_USE_OTHER;

    if (!is_state(v))
        return TS_OFFLOAD_ACTIVATIONS;
    return use == TS_USE_SUMMED   ? TS_OFFLOAD_ACCUMULATORS
           : use == TS_USE_MOMENT ? TS_OFFLOAD_OPTIMIZER
                                  : TS_OFFLOAD_WEIGHTS;
}

static bool changes(const ts_program *p, const ts_kernel *k, const ts_value *v)
{
    for (int r = 0; r < k->nroots; r++)
        if (ts_place_shared(p, k->roots[r], v))
            return true;
    return false;
}

static bool uses(const ts_program *p, const ts_kernel *k, const ts_value *v)
{
    for (int r = 0; r < k->nreads; r++)
        if (ts_place_shared(p, k->reads[r], v))
            return true;
    return changes(p, k, v);
}

/* --- visits --- */

/* Does a tensor stay on the device between two kernels that use it? */
static bool stays(const offload *x, const tensor *t, const ts_kernel *j, const ts_kernel *k)
{
    int turn = ts_plan_phases(x->opt) - 1;

    if (j->section == k->section && (turn >= 0 || is_state(t->v) || t->kept))
        return true;
    if (turn < 0)
        return j->section == k->section && ts_kernel_backward(j) == ts_kernel_backward(k);
    if (j->phase != k->phase)
        return false;
    return k->step <= j->step + 1 ||
           (x->opt->offload_by_pass && (j->step > turn) == (k->step > turn));
}

static void find_visits(offload *x, tensor *t)
{
    const ts_program *p = x->p;
    const ts_kernel *last = NULL;

    for (int i = 0; i < p->nkernels; i++) {
        const ts_kernel *k = p->kernels[i];
        visit *now;
        if (k->device != t->spot->device || !uses(p, k, t->v))
            continue;
        if (!last || !stays(x, t, last, k))
            TS_PUSH(x->a, t->visits, t->n, ((visit){.first = i}));
        last = k;
        now = &t->visits[t->n - 1];
        now->last = i;
        now->made = now->made || (!is_state(t->v) && p->place[t->v->id].kernel == i);
        now->changed = now->changed || changes(p, k, t->v);
    }
}

/* --- what is offloaded --- */

/* It is sent, or given to the host, at the end of the section that makes it. */
static bool is_kept(const ts_program *p, const ts_value *v)
{
    for (int i = 0; i < p->g->noutputs; i++)
        if (p->g->outputs[i] == v)
            return true;
    return p->place[v->id].spot.next != NULL;
}

/* At home: what is made once, and visits again. Without phases, only what the forward pass made. */
static bool gains(const offload *x, const tensor *t)
{
    const ts_kernel *maker = x->p->kernels[x->p->place[t->v->id].kernel];

    if (t->n < 2 || (!ts_plan_phases(x->opt) && (maker->phase || ts_kernel_backward(maker))))
        return false;
    for (int i = 1; i < t->n; i++)
        if (t->visits[i].changed) /* computed again */
            return false;
    return true;
}

static void add(offload *x, const ts_value *v, ts_spot *spot)
{
    const ts_place *q = &x->p->place[v->id];
    bool home = spot == &q->spot;
    tensor t = {.v = v, .spot = spot, .kept = !is_state(v) && home && is_kept(x->p, v)};

    if (home && q->alias)
        return; /* goes with its state */
    find_visits(x, &t);
    if (!is_state(v) && home && !gains(x, &t))
        return;
    spot->remote = true; /* where, memory.c says */
    TS_PUSH(x->a, x->list, x->n, t);
}

/* A share goes with what it is one of; a part of a state is as large as all of it. */
static bool wanted(const offload *x, const ts_value *v)
{
    unsigned bit = ts_plan_offload_bit(x->p, v);
    int64_t least = x->opt->offload_least[__builtin_ctz(bit)];
    const ts_state *s = is_state(v) ? &x->p->g->states[v->index] : NULL;
    const ts_value *whole = s && s->of ? s->of : v;

    return x->opt->offload & bit && x->p->place[v->id].home == TS_HOME_BLOCK &&
           !(s && s->use == TS_USE_SHARE) && ts_type_count(&whole->type) >= (least ? least : 2);
}

static void find_tensors(offload *x)
{
    const ts_program *p = x->p;

    for (int i = 0; i < p->g->nvalues; i++) {
        const ts_value *v = p->g->values[i];
        if (!wanted(x, v))
            continue;
        for (ts_spot *s = &p->place[i].spot; s; s = s->next)
            add(x, v, s);
    }
}

/* --- moves --- */

static void add_move(offload *x, const ts_kernel *near, const ts_value *v, bool load)
{
    ts_kernel *k = TS_NEW(x->a, ts_kernel);
    ts_section *s = &x->p->pipe.sections[near->section];
    size_t bytes = ts_layout_bytes(v);

    *k = (ts_kernel){.phase = near->phase, .device = near->device, .section = near->section};
    k->step = near->step;
    k->nodes = 1;
    if (load) {
        k->load = v;
        TS_PUSH(x->a, k->roots, k->nroots, (ts_value *)v);
    } else {
        k->store = v;
        TS_PUSH(x->a, k->reads, k->nreads, (ts_value *)v);
    }
    *(load ? &s->loads : &s->stores) += bytes;
    TS_PUSH(x->a, x->kernels, x->nkernels, k);
}

static void add_moves(offload *x, int k, bool load)
{
    for (int i = 0; i < x->n; i++)
        for (int j = 0; j < x->list[i].n; j++) {
            const visit *y = &x->list[i].visits[j];
            if (load ? y->first == k && !y->made : y->last == k && y->changed)
                add_move(x, x->p->kernels[k], x->list[i].v, load);
        }
}

void ts_plan_offload(ts_arena *a, const ts_options *opt, ts_program *p)
{
    offload x = {.a = a, .opt = opt, .p = p};

    if (!opt->offload)
        return;
    find_tensors(&x);
    for (int k = 0; k < p->nkernels; k++) {
        add_moves(&x, k, true);
        TS_PUSH(a, x.kernels, x.nkernels, p->kernels[k]);
        add_moves(&x, k, false);
    }
    p->kernels = x.kernels;
    p->nkernels = x.nkernels;
    ts_plan_renumber(p);
}
