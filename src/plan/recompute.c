/* recompute.c - the backward part of a stage runs the forward part again instead of reading what it
 * left behind.
 *
 *   before                                     after
 *     section 0   k0 k1 k2                       section 0   k0 k1 k2
 *     section 6   k9 k10      reads k0's, k1's   section 6   k0' k1' k9 k10
 *
 * In a pipeline, what the forward part leaves is kept for every micro-batch that is under way; what
 * is computed again is kept for one. The kernels are the same, so the bits are. One that updates a
 * state or calls the host runs once only: what it makes is kept.
 */
#include "plan/plan.h"

typedef struct again {
    ts_arena *a;
    ts_program *p;
    int from, to;  /* sections */
    bool *wanted;  /* kernels of `from` that run again */
    bool *updated; /* by state: it changes with every micro-batch */
} again;

static bool in_section(const again *x, int kernel, int section)
{
    return kernel >= 0 && x->p->kernels[kernel]->section == section;
}

/* Does it give the same results when it runs again, later? */
static bool repeatable(const again *x, const ts_kernel *k)
{
    if (k->copy || k->load || k->store || (k->anchor && k->anchor->op->flags & TS_HOST))
        return false;
    for (int r = 0; r < k->nroots; r++)
        if (x->p->place[k->roots[r]->id].alias)
            return false;
    for (int r = 0; r < k->nreads; r++)
        if (k->reads[r]->kind == TS_VALUE_STATE && x->updated[k->reads[r]->index])
            return false;
    return true;
}

/* The kernel that makes v, and those that make what it reads. */
static void want(again *x, const ts_value *v)
{
    int k = x->p->place[v->id].kernel;

    if (v->kind != TS_VALUE_NODE || !in_section(x, k, x->from) || x->wanted[k] ||
        !repeatable(x, x->p->kernels[k]))
        return;
    x->wanted[k] = true;
    for (int r = 0; r < x->p->kernels[k]->nreads; r++)
        want(x, x->p->kernels[k]->reads[r]);
}

static void find_wanted(again *x)
{
    const ts_section *to = &x->p->pipe.sections[x->to];

    memset(x->wanted, 0, sizeof(bool) * (size_t)x->p->nkernels);
    for (int k = to->first; k < to->first + to->count; k++)
        for (int r = 0; r < x->p->kernels[k]->nreads; r++)
            want(x, x->p->kernels[k]->reads[r]);
}

/* Puts the wanted kernels in front of section `to`. */
static void insert(again *x)
{
    ts_program *p = x->p;
    ts_kernel **all = p->kernels;
    int n = p->nkernels;

    p->kernels = NULL;
    p->nkernels = 0;
    for (int i = 0; i < n; i++) {
        for (int k = 0; i == p->pipe.sections[x->to].first && k < n; k++)
            if (x->wanted[k]) {
                ts_kernel *same = ts_arena_copy(x->a, all[k], sizeof(*same));
                same->again = all[k];
                same->section = x->to;
                TS_PUSH(x->a, p->kernels, p->nkernels, same);
            }
        TS_PUSH(x->a, p->kernels, p->nkernels, all[i]);
    }
    ts_plan_renumber(p);
}

void ts_plan_recompute(ts_arena *a, ts_program *p)
{
    again x = {.a = a, .p = p, .updated = TS_NEWS(a, bool, p->g->nstates)};

    for (int i = 0; i < p->g->nupdates; i++)
        if (!p->g->updates[i].phase)
            x.updated[p->g->updates[i].state->index] = true;
    for (x.from = 0; x.from < p->pipe.nsections; x.from++)
        for (x.to = x.from + 1; x.to < p->pipe.nsections; x.to++) {
            const ts_section *f = &p->pipe.sections[x.from], *b = &p->pipe.sections[x.to];
            if (f->device != b->device || f->phase || b->phase)
                continue;
            x.wanted = TS_NEWS(a, bool, p->nkernels);
            find_wanted(&x);
            insert(&x);
        }
}
