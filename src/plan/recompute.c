/* recompute.c - the backward pass runs parts of the forward pass again instead of reading what they
 * left behind.
 *
 *   before                                       after, with c a checkpoint
 *     forward   k0 k1 c k3 k4                      forward   k0 k1 c k3 k4
 *     backward  b4 b3 b1 b0    reads k0's to k4's  backward  k3' k4' b4 b3 k0' k1' b1 b0
 *
 * What is computed again is there from just before its first use in the backward pass, so of two
 * checkpoints' segments one at a time is in memory. What a checkpoint marks is kept.
 *
 * In a pipeline, what the forward part of a stage leaves is kept for every micro-batch that is
 * under way, and what is computed again for one: all of it runs again, from the stage's inputs and
 * its checkpoints. Where one micro-batch follows the other (one device, sharded, phased), and in
 * the stage that turns round, what comes behind the device's last checkpoint is still there when
 * the backward pass begins, so only what comes before runs again; without checkpoints, nothing.
 *
 * The kernels are the same, so the bits are. One that updates a state or calls the host, or reads a
 * state that has changed since, runs once only: what it makes is kept.
 */
#include "plan/plan.h"

typedef struct again {
    ts_arena *a;
    ts_program *p;
    ts_kernel **all; /* as they were */
    int n;
    int *last;    /* by device: the kernel that makes its last checkpoint, or -1 */
    int *writer;  /* by value: the kernel that changes its memory with every micro-batch, or n */
    int *ran;     /* by kernel: the section in which it has run again, or -1 */
    bool *wanted; /* kernels that run again in front of the one at hand */
    bool any;
} again;

/* The state that a value lies in, or the value. */
static const ts_value *memory_of(const ts_program *p, const ts_value *v)
{
    if (p->place[v->id].alias)
        v = p->place[v->id].alias;
    if (v->kind == TS_VALUE_STATE && p->g->states[v->index].use == TS_USE_SHARE)
        v = p->g->states[v->index].of;
    return v;
}

/* --- what runs again --- */

/* Does f give the same results when it runs in front of b? */
static bool repeatable(const again *x, const ts_kernel *f, const ts_kernel *b)
{
    if (f->copy || f->load || f->store || (f->anchor && f->anchor->op->flags & TS_HOST))
        return false;
    for (int r = 0; r < f->nroots; r++)
        if (x->p->place[f->roots[r]->id].alias)
            return false;
    for (int r = 0; r < f->nreads; r++) {
        /* in a pipeline, other micro-batches have changed it before */
        int limit = x->p->pipe.sharded ? b->index : x->n;
        if (x->writer[memory_of(x->p, f->reads[r])->id] < limit)
            return false;
    }
    return true;
}

/* Is b late enough for what f makes to be computed again? */
static bool late(const again *x, const ts_kernel *f, const ts_kernel *b)
{
    if (f->device != b->device || f->phase || b->phase || ts_kernel_backward(f))
        return false;
    if (!x->p->pipe.sharded && f->section < b->section)
        return true;
    return ts_kernel_backward(b) && f->index < x->last[f->device];
}

/* There is memory for v when b runs, whoever reads it. */
static bool kept(const again *x, const ts_value *v, const ts_kernel *f, const ts_kernel *b)
{
    for (int i = 0; i < x->p->g->noutputs && f->section == b->section; i++)
        if (x->p->g->outputs[i] == v)
            return true;
    return v->checkpoint;
}

/* The kernel that makes v, and those that make what it reads. */
static void want(again *x, const ts_value *v, const ts_kernel *b)
{
    int k = v->kind == TS_VALUE_NODE ? x->p->place[v->id].kernel : -1;
    const ts_kernel *f = k < 0 ? NULL : x->all[k];

    if (!f || x->wanted[k] || !late(x, f, b) || kept(x, v, f, b) || !repeatable(x, f, b))
        return;
    if (x->ran[k] == b->section || (x->ran[k] >= 0 && x->p->pipe.sharded))
        return;
    x->wanted[k] = x->any = true;
    for (int r = 0; r < f->nreads; r++)
        want(x, f->reads[r], b);
}

static void run_again(again *x, const ts_kernel *b)
{
    ts_program *p = x->p;

    for (int k = 0; k < x->n && x->any; k++) {
        ts_kernel *same;
        if (!x->wanted[k])
            continue;
        same = ts_arena_copy(x->a, x->all[k], sizeof(*same));
        same->again = x->all[k];
        same->section = x->ran[k] = b->section;
        same->step = b->step;
        TS_PUSH(x->a, p->kernels, p->nkernels, same);
        x->wanted[k] = false;
    }
    x->any = false;
}

/* --- what reads it --- */

static bool touches(const ts_program *p, const ts_kernel *k, const ts_value *v)
{
    for (int r = 0; r < k->nreads; r++)
        if (memory_of(p, k->reads[r]) == v)
            return true;
    for (int r = 0; r < k->nroots; r++)
        if (memory_of(p, k->roots[r]) == v)
            return true;
    return false;
}

/* Must j and k stay in their order? */
static bool ordered(const ts_program *p, const ts_kernel *j, const ts_kernel *k)
{
    for (int r = 0; r < j->nroots; r++)
        if (touches(p, k, memory_of(p, j->roots[r])))
            return true;
    for (int r = 0; r < k->nroots; r++)
        if (touches(p, j, memory_of(p, k->roots[r])))
            return true;
    return false;
}

/* It takes no memory, and what it reads was computed again: the sooner it runs, the better. The
 * schedule, which knows nothing of this, may have put a weight's gradient off to the end. */
static bool hurries(const again *x, const ts_kernel *k)
{
    bool reads = false;

    if (k->phase || k->again || k->copy || !ts_kernel_backward(k))
        return false;
    for (int r = 0; r < k->nroots; r++)
        if (!x->p->place[k->roots[r]->id].alias)
            return false;
    for (int r = 0; r < k->nreads; r++) {
        int maker = x->p->place[k->reads[r]->id].kernel;
        reads = reads || (k->reads[r]->kind == TS_VALUE_NODE && maker >= 0 && x->ran[maker] >= 0);
    }
    return reads;
}

static void pull_up(again *x)
{
    ts_program *p = x->p;

    for (int i = 0; i < p->nkernels; i++) {
        ts_kernel *k = p->kernels[i];
        int to = i;
        if (!hurries(x, k))
            continue;
        while (to && p->kernels[to - 1]->section == k->section &&
               !ordered(p, p->kernels[to - 1], k))
            to--;
        memmove(p->kernels + to + 1, p->kernels + to, sizeof(*p->kernels) * (size_t)(i - to));
        p->kernels[to] = k;
    }
}

/* --- all --- */

static void look_round(again *x)
{
    ts_program *p = x->p;

    for (int i = 0; i < p->g->nvalues; i++)
        x->writer[i] = x->n;
    for (int d = 0; d < p->pipe.ndevices; d++)
        x->last[d] = -1;
    for (int k = 0; k < x->n; k++) {
        const ts_kernel *f = x->all[k];
        x->ran[k] = -1;
        for (int r = 0; r < f->nroots && !f->phase; r++) {
            const ts_value *v = memory_of(p, f->roots[r]);
            if (v->kind == TS_VALUE_STATE)
                x->writer[v->id] = k;
            if (f->roots[r]->checkpoint)
                x->last[f->device] = k;
        }
    }
}

void ts_plan_recompute(ts_arena *a, ts_program *p)
{
    again x = {.a = a,
               .p = p,
               .all = p->kernels,
               .n = p->nkernels,
               .last = TS_NEWS(a, int, p->pipe.ndevices),
               .writer = TS_NEWS(a, int, p->g->nvalues),
               .ran = TS_NEWS(a, int, p->nkernels),
               .wanted = TS_NEWS(a, bool, p->nkernels)};

    look_round(&x);
    p->kernels = NULL;
    p->nkernels = 0;
    for (int i = 0; i < x.n; i++) {
        for (int r = 0; r < x.all[i]->nreads; r++)
            want(&x, x.all[i]->reads[r], x.all[i]);
        run_again(&x, x.all[i]);
        TS_PUSH(a, p->kernels, p->nkernels, x.all[i]);
    }
    pull_up(&x);
    ts_plan_renumber(p);
}
