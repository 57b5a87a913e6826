/* offload.c - tensors that live in the host's memory and visit the device.
 *
 *   before                            after, the optimiser's state offloaded
 *     k7  w m v <- w m v g              load m, load v, k7, store m, store v
 *     k8  x p q <- x p q h              load p, load q, k8, store p, store q
 *
 * A state is loaded in front of the first kernel of a section that uses it, and stored behind the
 * last if one of them changes it; in between its memory is others'. An activation is stored when
 * the forward pass is done with it and loaded when the backward pass begins with it.
 *
 * States that several devices read stay where they are, and so do single numbers.
 */
#include "plan/plan.h"

typedef struct offload {
    ts_arena *a;
    const ts_options *opt;
    ts_program *p;
    ts_kernel **kernels; /* the new list */
    int nkernels;
} offload;

/* Small tensors stay, and single numbers always. */
static bool wanted(const offload *x, unsigned bit, const ts_value *v)
{
    int64_t least = x->opt->offload_least[__builtin_ctz(bit)];

    return x->opt->offload & bit && ts_type_count(&v->type) >= TS_MAX(least, 2);
}

static bool wanted_state(const offload *x, const ts_state *s)
{
    unsigned bit = s->use == TS_USE_SUMMED   ? TS_OFFLOAD_ACCUMULATORS
                   : s->use == TS_USE_MOMENT ? TS_OFFLOAD_OPTIMIZER
                                             : TS_OFFLOAD_WEIGHTS;

    return wanted(x, bit, s->of ? s->of : s->value) && s->use != TS_USE_SHARE &&
           !x->p->place[s->value->id].spot.next;
}

static bool is_backward(const ts_kernel *k)
{
    const ts_node *n = k->anchor ? k->anchor : k->nroots ? k->roots[0]->node : NULL;

    return n && n->backward;
}

/* The part of the program that kernel k belongs to: an activation stays on the device within one.
 */
static int part(const ts_program *p, int k)
{
    return 2 * p->kernels[k]->section + is_backward(p->kernels[k]);
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

/* Is there one part that makes v and is done with it when the next begins? */
static bool used_part_by_part(const ts_program *p, const ts_value *v)
{
    int made = p->place[v->id].kernel, now = part(p, made), parts = 1;

    for (int k = made + 1; k < p->nkernels; k++) {
        if (!uses(p, p->kernels[k], v))
            continue;
        if (part(p, k) < now || changes(p, p->kernels[k], v))
            return false;
        parts += part(p, k) > now;
        now = part(p, k);
    }
    return parts > 1;
}

/* Made in the forward part, used again in a backward part of its device, and not sent about. */
static bool wanted_value(const offload *x, const ts_value *v)
{
    const ts_place *q = &x->p->place[v->id];

    if (!(x->opt->offload & TS_OFFLOAD_ACTIVATIONS) || v->kind != TS_VALUE_NODE ||
        q->home != TS_HOME_BLOCK || q->alias || q->spot.next || ts_type_count(&v->type) < 2 ||
        x->p->kernels[q->kernel]->phase || is_backward(x->p->kernels[q->kernel]))
        return false;
    for (int i = 0; i < x->p->g->noutputs; i++)
        if (x->p->g->outputs[i] == v)
            return false;
    return used_part_by_part(x->p, v);
}

static void add_move(offload *x, const ts_kernel *near, const ts_value *v, bool load)
{
    ts_kernel *k = TS_NEW(x->a, ts_kernel);

    *k = (ts_kernel){.phase = near->phase, .device = near->device, .section = near->section};
    k->nodes = 1;
    if (load) {
        k->load = v;
        TS_PUSH(x->a, k->roots, k->nroots, (ts_value *)v);
    } else {
        k->store = v;
        TS_PUSH(x->a, k->reads, k->nreads, (ts_value *)v);
    }
    TS_PUSH(x->a, x->kernels, x->nkernels, k);
}

/* Is kernel k the first (or the last) to use v in its part? */
static bool at_edge(const ts_program *p, int k, const ts_value *v, bool state, int step)
{
    int mine = state ? p->kernels[k]->section : part(p, k);

    for (int j = k + step; j >= 0 && j < p->nkernels; j += step)
        if ((state ? p->kernels[j]->section : part(p, j)) == mine && uses(p, p->kernels[j], v))
            return false;
    return true;
}

/* Only the first part of an activation makes it; the others find it as it was stored. */
static void moves(offload *x, int k, const ts_value *v, bool load)
{
    const ts_program *p = x->p;
    bool state = v->kind == TS_VALUE_STATE, made = false, changed = false;

    if (!uses(p, p->kernels[k], v) || !at_edge(p, k, v, state, load ? -1 : 1))
        return;
    for (int j = 0; j < p->nkernels; j++) {
        bool same =
            state ? p->kernels[j]->section == p->kernels[k]->section : part(p, j) == part(p, k);
        changed = changed || (same && changes(p, p->kernels[j], v));
        made = made || (!state && same && p->place[v->id].kernel == j);
    }
    if (load ? !made : changed)
        add_move(x, p->kernels[k], v, load);
}

void ts_plan_offload(ts_arena *a, const ts_options *opt, ts_program *p)
{
    offload x = {.a = a, .opt = opt, .p = p};
    const ts_value **list = NULL;
    int n = 0;

    if (!opt->offload)
        return;
    for (int i = 0; i < p->g->nvalues; i++) {
        const ts_value *v = p->g->values[i];
        bool wanted = v->kind == TS_VALUE_STATE ? wanted_state(&x, &p->g->states[v->index])
                                                : wanted_value(&x, v);
        if (!wanted)
            continue;
        p->place[v->id].remote = true; /* where, memory.c says */
        TS_PUSH(a, list, n, v);
    }
    for (int k = 0; k < p->nkernels; k++) {
        for (int i = 0; i < n; i++)
            moves(&x, k, list[i], true);
        TS_PUSH(a, x.kernels, x.nkernels, p->kernels[k]);
        for (int i = 0; i < n; i++)
            moves(&x, k, list[i], false);
    }
    p->kernels = x.kernels;
    p->nkernels = x.nkernels;
    ts_plan_renumber(p);
}
