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
 * on a tie. Then those that make more than they free go back to just before what is made is read:
 * what the backward pass pads or widens of the forward pass's results would else be made when they
 * are, and kept.
 */
#include "plan/plan.h"

/* The kernels that come after one. An edge may be there twice. */
typedef struct after {
    int *list, n;
} after;

/* A kernel that could run, and what it would have freed when it was put here. */
typedef struct ready {
    int kernel, phase;
    double gain;
} ready;

typedef struct order {
    ts_arena *a;
    ts_program *p;
    after *after;
    int n;
    ts_readers readers;
    int *copied;     /* by value: updates that it is the next value of */
    bool *placed;    /* by value: it goes into a state's memory */
    int *seen, walk; /* by kernel: the last walk that came by */
    ready *heap;     /* the first is the next to run; some are of the past */
    int nheap;
} order;

static void add_edge(order *o, int i, int j)
{
    if (i != j)
        TS_PUSH(o->a, o->after[i].list, o->after[i].n, j);
}

/* Phases need no edges here: nobody goes back to an earlier one. */
static bool reaches(order *o, int from, int to)
{
    o->p->work++;
    if (from == to)
        return true;
    if (o->seen[from] == o->walk)
        return false;
    o->seen[from] = o->walk;
    for (int i = 0; i < o->after[from].n; i++)
        if (reaches(o, o->after[from].list[i], to))
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

/* Must reader r of a state's old value run before its update u by kernel w? */
static bool comes_first(const order *o, const ts_update *u, int r, int w)
{
    /* one of a later phase wants the new value, and comes later anyway */
    return r != w && o->p->kernels[r]->phase <= u->phase;
}

/* Lets update u write its state in place if that is safe, and adds the edges that keep it so. */
static bool try_in_place(order *o, const ts_update *u)
{
    const int *at = &o->readers.at[u->state->id];
    int w = o->p->place[u->next->id].kernel;

    if (u->next->kind != TS_VALUE_NODE || o->p->place[u->next->id].home != TS_HOME_BLOCK || w < 0)
        return false;
    if (o->copied[u->state->id]) /* at the end of the phase: that still wants the old value */
        return false;
    if (o->copied[u->next->id] > 1 || o->p->kernels[w]->phase != u->phase ||
        !kernel_reads_in_step(o->p, o->p->kernels[w], u->state, u->next))
        return false;
    for (int i = at[0]; i < at[1]; i++)
        if (comes_first(o, u, o->readers.kernels[i], w)) {
            o->walk++;
            if (reaches(o, w, o->readers.kernels[i]))
                return false;
        }
    for (int i = at[0]; i < at[1]; i++)
        if (comes_first(o, u, o->readers.kernels[i], w))
            add_edge(o, o->readers.kernels[i], w);
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

/* --- the order --- */

/* Bytes of memory that k needs for what it makes: none for a state that it updates in place. A weight's
 * gradient that becomes its update would else look dearer than what it frees, and run last: all that the
 * weights' gradients are made of would be kept to the end. */
static double made(const order *o, const ts_kernel *k)
{
    double bytes = 0;

    for (int r = 0; r < k->nroots; r++)
        if (!o->placed[k->roots[r]->id])
            bytes += (double)ts_type_bytes(&k->roots[r]->type);
    return bytes;
}

/* Bytes that running k now would free, minus what it makes. */
static double gain(const order *o, int k, const int *left)
{
    const ts_kernel *x = o->p->kernels[k];
    double bytes = -made(o, x);

    for (int r = 0; r < x->nreads; r++)
        if (x->reads[r]->kind == TS_VALUE_NODE && left[x->reads[r]->id] == 1)
            bytes += (double)ts_type_bytes(&x->reads[r]->type);
    return bytes;
}

static bool sooner(const ready *x, const ready *y)
{
    if (x->phase != y->phase)
        return x->phase < y->phase;
    return x->gain != y->gain ? x->gain > y->gain : x->kernel < y->kernel;
}

static void push(order *o, int k, const int *left)
{
    ready x = {k, o->p->kernels[k]->phase, gain(o, k, left)};
    int at = o->nheap++;

    for (; at && sooner(&x, &o->heap[(at - 1) / 2]); at = (at - 1) / 2, o->p->work++)
        o->heap[at] = o->heap[(at - 1) / 2];
    o->heap[at] = x;
}

static ready pop(order *o)
{
    ready top = o->heap[0], x = o->heap[--o->nheap];
    int at = 0;

    for (int child; (child = 2 * at + 1) < o->nheap; at = child, o->p->work++) {
        if (child + 1 < o->nheap && sooner(&o->heap[child + 1], &o->heap[child]))
            child++;
        if (!sooner(&o->heap[child], &x))
            break;
        o->heap[at] = o->heap[child];
    }
    o->heap[at] = x;
    return top;
}

/* How many kernels each one still waits for. */
static int *count_waits(const order *o)
{
    int *waits = TS_NEWS(o->a, int, o->n);

    for (int i = 0; i < o->n; i++)
        for (int j = 0; j < o->after[i].n; j++)
            waits[o->after[i].list[j]]++;
    return waits;
}

/* k has run: what it was the last but one to read will be freed by the last, which is worth more
 * from now on. */
static void release(order *o, int k, int *waits, int *left)
{
    const ts_kernel *x = o->p->kernels[k];

    waits[k] = -1;
    for (int r = 0; r < x->nreads; r++)
        left[x->reads[r]->id]--;
    for (int r = 0; r < x->nreads; r++) {
        const int *at = &o->readers.at[x->reads[r]->id];
        for (int i = at[0]; i < at[1] && left[x->reads[r]->id] == 1; i++)
            if (!waits[o->readers.kernels[i]])
                push(o, o->readers.kernels[i], left);
    }
    for (int j = 0; j < o->after[k].n; j++)
        if (!--waits[o->after[k].list[j]])
            push(o, o->after[k].list[j], left);
    o->p->work += x->nreads + o->after[k].n;
}

/* --- as late as it may be --- */

/* The order as a list that kernels can be moved in. */
typedef struct line {
    int *next, *before; /* by kernel; the number of kernels is both ends */
    int64_t *at;        /* grows along the list */
    int *last;          /* by value: the last kernel that reads it, or -1 */
} line;

enum { APART = 1 << 20 }; /* of two neighbours, so that others fit between them */

static void link(line *l, int before, int k, int next)
{
    l->next[before] = l->before[next] = k;
    l->next[k] = next;
    l->before[k] = before;
}

static void number(line *l, int n)
{
    int64_t at = 0;

    for (int k = l->next[n]; k != n; k = l->next[k])
        l->at[k] = at += APART;
    l->at[n] = 0;
}

static line line_up(order *o, const int *sorted)
{
    line l = {.next = TS_NEWS(o->a, int, o->n + 1),
              .before = TS_NEWS(o->a, int, o->n + 1),
              .at = TS_NEWS(o->a, int64_t, o->n + 1),
              .last = TS_NEWS(o->a, int, o->p->g->nvalues)};

    l.next[o->n] = l.before[o->n] = o->n;
    for (int i = 0; i < o->n; i++) {
        const ts_kernel *k = o->p->kernels[sorted[i]];
        link(&l, l.before[o->n], sorted[i], o->n);
        for (int r = 0; r < k->nreads; r++)
            l.last[k->reads[r]->id] = sorted[i];
    }
    number(&l, o->n);
    return l;
}

/* The first kernel that must come after k, if it is of the same phase; or -1. */
static int first_after(const order *o, const line *l, int k)
{
    int first = -1;

    for (int i = 0; i < o->after[k].n; i++) {
        int j = o->after[k].list[i];
        if (first < 0 || l->at[j] < l->at[first])
            first = j;
    }
    o->p->work += o->after[k].n;
    return first < 0 || o->p->kernels[first]->phase != o->p->kernels[k]->phase ? -1 : first;
}

/* Is less to be kept if k runs just before kernel j? By what a core's cache holds, at least: less is not
 * worth another order. */
static bool saves(const order *o, const line *l, int k, int j)
{
    const ts_kernel *x = o->p->kernels[k];
    double bytes = made(o, x);

    for (int r = 0; r < x->nreads; r++) {
        const ts_value *v = x->reads[r];
        int last = l->last[v->id];
        if (v->kind == TS_VALUE_NODE && (last == k || l->at[last] < l->at[j]))
            bytes -= (double)ts_type_bytes(&v->type);
    }
    o->p->work += x->nreads;
    return bytes > (double)o->p->machine.level2;
}

static void move_before(const order *o, line *l, int k, int j)
{
    const ts_kernel *x = o->p->kernels[k];

    l->next[l->before[k]] = l->next[k];
    l->before[l->next[k]] = l->before[k];
    link(l, l->before[j], k, j);
    l->at[k] = l->at[l->before[k]] + (l->at[j] - l->at[l->before[k]]) / 2;
    if (l->at[k] == l->at[l->before[k]])
        number(l, o->n);
    for (int r = 0; r < x->nreads; r++) {
        int *last = &l->last[x->reads[r]->id];
        *last = l->at[*last] < l->at[k] ? k : *last;
    }
}

/* Where k is to run: just before what must come after it, j, or, if something that it reads would have to be kept until then,
 * before the last that reads that anyway. -1: where it is. */
static int later_place(const order *o, const line *l, int k, int j)
{
    const ts_kernel *x = o->p->kernels[k];
    int first = j;

    if (j < 0 || saves(o, l, k, j))
        return j;
    for (int r = 0; r < x->nreads; r++) {
        int last = l->last[x->reads[r]->id];
        if (x->reads[r]->kind != TS_VALUE_NODE || l->at[last] >= l->at[first])
            continue;
        if (last == k)
            return -1;
        first = last;
    }
    return first != j && saves(o, l, k, first) ? first : -1;
}

/* From the last kernel to the first, since what reads a result may have moved. */
static void delay(order *o, int *sorted)
{
    line l = line_up(o, sorted);
    int at = 0;

    for (int i = o->n - 1; i >= 0; i--) {
        int k = sorted[i], j = later_place(o, &l, k, first_after(o, &l, k));
        if (j >= 0 && l.next[k] != j)
            move_before(o, &l, k, j);
    }
    for (int k = l.next[o->n]; k != o->n; k = l.next[k])
        sorted[at++] = k;
}

/* --- all of it --- */

static ts_status sort(order *o)
{
    int *waits = count_waits(o), *sorted = TS_NEWS(o->a, int, o->n);
    int *left = TS_NEWS(o->a, int, o->p->g->nvalues), phase = 0, at = 0;
    ts_kernel **kernels = TS_NEWS(o->a, ts_kernel *, o->n);
    int *place = TS_NEWS(o->a, int, o->n);

    for (int i = 0; i < o->p->g->nvalues; i++)
        left[i] = o->readers.at[i + 1] - o->readers.at[i];
    /* a kernel comes in once, and again whenever something that it reads has no other reader */
    o->heap = TS_NEWS(o->a, ready, o->n + o->readers.at[o->p->g->nvalues]);
    for (int k = 0; k < o->n; k++)
        if (!waits[k])
            push(o, k, left);
    while (o->nheap) {
        ready best = pop(o);
        if (waits[best.kernel]) /* it has run, for more */
            continue;
        if (best.phase < phase)
            break;
        phase = best.phase;
        sorted[at++] = best.kernel;
        release(o, best.kernel, waits, left);
    }
    if (at < o->n)
        return ts_fail(TS_ERR_INTERNAL, "the kernels wait for each other in a circle");
    delay(o, sorted);
    for (int i = 0; i < o->n; i++) {
        kernels[i] = o->p->kernels[sorted[i]];
        place[sorted[i]] = i;
    }
    o->p->kernels = kernels;
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

    o.after = TS_NEWS(a, after, o.n);
    o.readers = ts_plan_readers(a, p);
    o.copied = TS_NEWS(a, int, g->nvalues);
    o.placed = TS_NEWS(a, bool, g->nvalues);
    o.seen = TS_NEWS(a, int, o.n);
    for (int i = 0; i < g->nupdates; i++)
        o.copied[g->updates[i].next->id]++;
    for (int j = 0; j < o.n; j++)
        for (int r = 0; r < p->kernels[j]->nreads; r++) {
            int i = p->place[p->kernels[j]->reads[r]->id].kernel;
            if (i >= 0)
                add_edge(&o, i, j);
        }
    keep_host_order(&o);
    for (int i = 0; i < g->nupdates; i++) {
        const ts_update *u = &g->updates[i];
        in_place[i] = u->next == u->state || try_in_place(&o, u);
        o.placed[u->next->id] = o.placed[u->next->id] || in_place[i];
    }
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
