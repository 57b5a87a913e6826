/* schedule.c - the order of the kernels, and which states are updated in place.
 *
 * A kernel comes after the makers of what it reads. A state's next value goes straight into the
 * state's memory when every other reader of the old value can run before; then those readers get an
 * edge to the writer:
 *
 *     dX reads w  ---->  dW + update writes w
 *
 * When that would close a circle, or the writer reads the state elsewhere than at the element it
 * writes, the next value gets memory of its own and is copied into the state at the end of the
 * phase.
 *
 * Among the kernels that could run next, the one that frees most memory goes first, the earlier one
 * on a tie.
 */
#include "plan/plan.h"

typedef struct order {
    ts_arena *a;
    ts_program *p;
    bool *edge; /* edge[i * n + j]: i before j */
    int n;
} order;

static bool before(const order *o, int i, int j)
{
    return o->edge[(size_t)i * (size_t)o->n + (size_t)j];
}

static void add_edge(order *o, int i, int j)
{
    if (i != j)
        o->edge[(size_t)i * (size_t)o->n + (size_t)j] = true;
}

static bool reaches(const order *o, int from, int to, bool *seen)
{
    if (from == to)
        return true;
    if (seen[from])
        return false;
    seen[from] = true;
    for (int j = 0; j < o->n; j++)
        if (before(o, from, j) && reaches(o, j, to, seen))
            return true;
    return false;
}

/* Is v read, behind x, only at the very element that is written? */
static bool reads_in_step(const ts_program *p, const ts_value *x, const ts_value *v,
                          const ts_type *shape)
{
    if (x == v)
        return ts_type_same_shape(&v->type, shape);
    if (p->place[x->id].home != TS_HOME_NONE)
        return true;
    for (int i = 0; i < x->node->nin; i++) {
        const ts_value *in = x->node->in[i];
        if (in == v && !(x->node->op->flags & TS_POINT && ts_type_same_shape(&x->type, shape)))
            return false;
        if (!reads_in_step(p, in, v,
                           x->node->op->flags & TS_POINT ? shape : &(ts_type){.rank = -1}))
            return false;
    }
    return true;
}

static bool kernel_reads_in_step(const ts_program *p, const ts_kernel *k, const ts_value *state,
                                 const ts_value *next)
{
    if (!ts_same_layout(state, next))
        return false;
    for (int r = 0; r < k->nroots; r++)
        for (int i = 0; i < k->roots[r]->node->nin; i++) {
            const ts_value *x = k->roots[r]->node->in[i];
            bool point = k->roots[r]->node->op->flags & TS_POINT;
            if (k->anchor && x == k->anchor->out[0])
                continue;
            if (!reads_in_step(p, x, state, point ? &next->type : &(ts_type){.rank = -1}))
                return false;
        }
    for (int i = 0; k->anchor && i < k->anchor->nin; i++)
        if (!reads_in_step(p, k->anchor->in[i], state, &(ts_type){.rank = -1}))
            return false;
    return true;
}

static bool reads(const ts_kernel *k, const ts_value *v)
{
    for (int i = 0; i < k->nreads; i++)
        if (k->reads[i] == v)
            return true;
    return false;
}

/* Lets update u write its state in place if that is safe, and adds the edges that keep it so. */
static bool try_in_place(order *o, const ts_update *u)
{
    const ts_graph *g = o->p->g;
    int w = o->p->place[u->next->id].kernel, users = 0;

    if (u->next->kind != TS_VALUE_NODE || o->p->place[u->next->id].home != TS_HOME_BLOCK || w < 0)
        return false;
    for (int i = 0; i < g->nupdates; i++) {
        users += g->updates[i].next == u->next;
        if (g->updates[i].next == u->state && &g->updates[i] != u)
            return false; /* copied at the end of the phase: it still wants the old value */
    }
    if (users > 1 || o->p->kernels[w]->phase != u->phase ||
        !kernel_reads_in_step(o->p, o->p->kernels[w], u->state, u->next))
        return false;
    for (int r = 0; r < o->n; r++) {
        const ts_kernel *k = o->p->kernels[r];
        if (r == w || !reads(k, u->state))
            continue;
        if (k->phase > u->phase) /* it wants the new value, and comes later anyway */
            continue;
        if (reaches(o, w, r, TS_NEWS(o->a, bool, o->n)))
            return false;
    }
    for (int r = 0; r < o->n; r++)
        if (r != w && reads(o->p->kernels[r], u->state) && o->p->kernels[r]->phase <= u->phase)
            add_edge(o, r, w);
    return true;
}

/* The next value of an update that is not in place is copied when everything else of the phase is
 * done. */
static void add_copy(order *o, const ts_update *u)
{
    ts_kernel *k = TS_NEW(o->a, ts_kernel);

    k->copy = u->next;
    k->phase = u->phase;
    k->nodes = 1;
    TS_PUSH(o->a, k->roots, k->nroots, u->state);
    TS_PUSH(o->a, k->reads, k->nreads, u->next);
    TS_PUSH(o->a, o->p->kernels, o->p->nkernels, k);
}

/* Bytes that running k now would free, minus what it makes. */
static double gain(const order *o, int k, const int *left)
{
    const ts_kernel *x = o->p->kernels[k];
    double bytes = 0;

    for (int r = 0; r < x->nroots; r++)
        bytes -= (double)ts_type_bytes(&x->roots[r]->type);
    for (int r = 0; r < x->nreads; r++)
        if (x->reads[r]->kind == TS_VALUE_NODE && left[x->reads[r]->id] == 1)
            bytes += (double)ts_type_bytes(&x->reads[r]->type);
    return bytes;
}

/* How many kernels each one still waits for. */
static int *count_waits(const order *o)
{
    int *waits = TS_NEWS(o->a, int, o->n);

    for (int i = 0; i < o->n; i++)
        for (int j = 0; j < o->n; j++)
            waits[j] += before(o, i, j);
    return waits;
}

static ts_status sort(order *o)
{
    int *waits = count_waits(o);
    ts_kernel **sorted = TS_NEWS(o->a, ts_kernel *, o->n);
    int *place = TS_NEWS(o->a, int, o->n), *left = TS_NEWS(o->a, int, o->p->g->nvalues);
    bool *done = TS_NEWS(o->a, bool, o->n);

    for (int i = 0; i < o->n; i++)
        for (int r = 0; r < o->p->kernels[i]->nreads; r++)
            left[o->p->kernels[i]->reads[r]->id]++;
    for (int at = 0; at < o->n; at++) {
        int best = -1;
        double best_gain = 0;
        for (int k = 0; k < o->n; k++) {
            if (done[k] || waits[k] ||
                (best >= 0 && o->p->kernels[k]->phase > o->p->kernels[best]->phase))
                continue;
            double x = gain(o, k, left);
            if (best < 0 || o->p->kernels[k]->phase < o->p->kernels[best]->phase || x > best_gain) {
                best = k;
                best_gain = x;
            }
        }
        if (best < 0)
            return ts_fail(TS_ERR_INTERNAL, "the kernels wait for each other in a circle");
        done[best] = true;
        for (int k = 0; k < o->n; k++)
            waits[k] -= before(o, best, k);
        for (int r = 0; r < o->p->kernels[best]->nreads; r++)
            left[o->p->kernels[best]->reads[r]->id]--;
        place[best] = at;
        sorted[at] = o->p->kernels[best];
    }
    o->p->kernels = sorted;
    for (int i = 0; i < o->p->g->nvalues; i++)
        if (o->p->place[i].kernel >= 0)
            o->p->place[i].kernel = place[o->p->place[i].kernel];
    return TS_OK;
}

/* Calls of the host happen in the order of their nodes, which is the kernels' order so far. */
static void keep_host_order(order *o)
{
    int last = -1;

    for (int i = 0; i < o->n; i++) {
        const ts_kernel *k = o->p->kernels[i];
        if (!k->anchor || !(k->anchor->op->flags & TS_HOST))
            continue;
        if (last >= 0)
            add_edge(o, last, i);
        last = i;
    }
}

ts_status ts_plan_schedule(ts_arena *a, ts_program *p)
{
    const ts_graph *g = p->g;
    order o = {.a = a, .p = p, .n = p->nkernels};
    bool *in_place = TS_NEWS(a, bool, g->nupdates);

    o.edge = TS_NEWS(a, bool, (size_t)o.n *(size_t)o.n);
    for (int j = 0; j < o.n; j++) {
        for (int r = 0; r < p->kernels[j]->nreads; r++) {
            int i = p->place[p->kernels[j]->reads[r]->id].kernel;
            if (i >= 0)
                add_edge(&o, i, j);
        }
        for (int i = 0; i < o.n; i++)
            if (p->kernels[i]->phase < p->kernels[j]->phase)
                add_edge(&o, i, j);
    }
    keep_host_order(&o);
    for (int i = 0; i < g->nupdates; i++)
        in_place[i] = g->updates[i].next == g->updates[i].state || try_in_place(&o, &g->updates[i]);
    TS_TRY(sort(&o));
    for (int phase = 0; phase < 2; phase++) {
        int kept = 0;
        ts_kernel **all = p->kernels;
        int n = p->nkernels;
        /* copies of this phase go behind its last kernel */
        p->kernels = NULL;
        p->nkernels = 0;
        for (; kept < n && all[kept]->phase <= phase; kept++)
            TS_PUSH(a, p->kernels, p->nkernels, all[kept]);
        for (int i = 0; i < g->nupdates; i++)
            if (!in_place[i] && g->updates[i].phase == phase)
                add_copy(&o, &g->updates[i]);
        for (; kept < n; kept++)
            TS_PUSH(a, p->kernels, p->nkernels, all[kept]);
    }
    for (int i = 0; i < p->nkernels; i++)
        for (int r = 0; r < p->kernels[i]->nroots && !p->kernels[i]->copy; r++)
            p->place[p->kernels[i]->roots[r]->id].kernel = i;
    for (int i = 0; i < g->nupdates; i++)
        if (in_place[i] && g->updates[i].next != g->updates[i].state)
            p->place[g->updates[i].next->id].alias = g->updates[i].state;
    return TS_OK;
}
