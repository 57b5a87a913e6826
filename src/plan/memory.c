/* memory.c - an offset for every stored value, and where threads must wait for each other.
 *
 *   block:  [ states, always live | values, sharing memory when their lives do not overlap ]
 *
 * Largest first, each at the lowest offset that no value alive at the same time occupies (greedy by
 * size; Pisarchyk and Lee 2020 found it within a few percent of optimal). A value lives from the
 * kernel that makes it to the last that reads it; outputs to the end. The peak is exact: it is the
 * size of the block.
 *
 * A block that fits the cores' caches without sharing is left so: shared memory goes from one
 * core's cache to the other's whenever the kernels that use it in turn are cut differently (4 % of
 * a step of 160 us on two cores), and saves nothing that anyone would miss. ("spread" in
 * ts_options.skip shares all the same.)
 */
#include "plan/plan.h"
#include "render/emit.h"

enum { ALIGN = 64, SMALL = 2 << 20 };

typedef struct life {
    const ts_value *v;
    int from, to;
    size_t bytes;
} life;

static int by_size(const void *x, const void *y)
{
    const life *p = x, *q = y;

    if (p->bytes != q->bytes)
        return p->bytes < q->bytes ? 1 : -1;
    return p->v->id - q->v->id;
}

static int by_offset(const void *x, const void *y)
{
    const ts_place *const *p = x, *const *q = y;

    return (*p)->offset < (*q)->offset ? -1 : (*p)->offset > (*q)->offset;
}

/* Does everything, with memory of its own, fit the caches? */
static bool small(const ts_program *p, const life *all, int n)
{
    size_t total = p->state_bytes;

    for (int i = 0; i < n; i++)
        total += TS_ROUND_UP(all[i].bytes, ALIGN);
    return total <= SMALL;
}

/* Lowest gap of `bytes` among the places that are alive together with `l`. */
static size_t find_gap(ts_arena *a, const ts_program *p, const life *all, int placed, const life *l,
                       size_t base)
{
    const ts_place **busy = TS_NEWS(a, const ts_place *, placed);
    size_t at = base;
    int n = 0;

    for (int i = 0; i < placed; i++)
        if (all[i].from <= l->to && l->from <= all[i].to)
            busy[n++] = &p->place[all[i].v->id];
    qsort(busy, (size_t)n, sizeof(*busy), by_offset);
    for (int i = 0; i < n; i++) {
        if (busy[i]->offset >= at + l->bytes)
            break;
        at = TS_MAX(at, busy[i]->offset + TS_ROUND_UP(busy[i]->bytes, ALIGN));
    }
    return at;
}

static bool overlap(const ts_program *p, const ts_value *x, const ts_value *y)
{
    const ts_place *a = &p->place[x->id], *b = &p->place[y->id];

    return a->home == TS_HOME_BLOCK && b->home == TS_HOME_BLOCK &&
           a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes;
}

/* Must k wait for j: does one of them write what the other touches? */
static bool conflict(const ts_program *p, const ts_kernel *j, const ts_kernel *k)
{
    for (int r = 0; r < j->nroots; r++) {
        for (int s = 0; s < k->nreads; s++)
            if (overlap(p, j->roots[r], k->reads[s]))
                return true;
        for (int s = 0; s < k->nroots; s++)
            if (overlap(p, j->roots[r], k->roots[s]))
                return true;
    }
    for (int r = 0; r < j->nreads; r++)
        for (int s = 0; s < k->nroots; s++)
            if (overlap(p, j->reads[r], k->roots[s]))
                return true;
    return false;
}

/* alone[k]: kernel k is too small to share and always runs on the first thread, where order is
 * enough. */
void ts_plan_waits(const ts_program *p, const bool *alone)
{
    int since = 0;

    for (int k = 0; k < p->nkernels; k++) {
        bool wait = k && p->kernels[k]->phase != p->kernels[k - 1]->phase;
        for (int j = since; j < k && !wait; j++)
            wait = !(alone[j] && alone[k]) && conflict(p, p->kernels[j], p->kernels[k]);
        p->kernels[k]->wait = wait;
        if (wait)
            since = k;
    }
}

ts_status ts_plan_memory(ts_arena *a, const ts_options *opt, ts_program *p)
{
    const ts_graph *g = p->g;
    life *all = TS_NEWS(a, life, g->nvalues);
    int *last = TS_NEWS(a, int, g->nvalues), n = 0;
    size_t top = 0;

    for (int i = 0; i < g->nstates; i++) {
        ts_place *q = &p->place[g->states[i].value->id];
        q->bytes = ts_layout_bytes(g->states[i].value);
        q->offset = top;
        top += TS_ROUND_UP(q->bytes, ALIGN);
    }
    p->state_bytes = p->peak_bytes = top;
    for (int i = 0; i < p->nkernels; i++)
        for (int r = 0; r < p->kernels[i]->nreads; r++) {
            int id = p->kernels[i]->reads[r]->id;
            last[id] = TS_MAX(last[id], i);
        }
    for (int i = 0; i < g->noutputs; i++)
        last[g->outputs[i]->id] = p->nkernels;
    for (int i = 0; i < g->nvalues; i++) {
        ts_place *q = &p->place[i];
        const ts_value *v = g->values[i];
        if (v->kind != TS_VALUE_NODE || q->home != TS_HOME_BLOCK)
            continue;
        q->bytes = ts_layout_bytes(v);
        if (q->alias) {
            q->offset = p->place[q->alias->id].offset;
            continue;
        }
        all[n++] = (life){v, q->kernel, TS_MAX(last[i], q->kernel), q->bytes};
    }
    if (small(p, all, n) && !ts_pass_skipped(opt, "spread"))
        for (int i = 0; i < n; i++)
            all[i] = (life){all[i].v, 0, p->nkernels, all[i].bytes};
    qsort(all, (size_t)n, sizeof(*all), by_size);
    for (int i = 0; i < n; i++) {
        ts_place *q = &p->place[all[i].v->id];
        q->offset = find_gap(a, p, all, i, &all[i], p->state_bytes);
        p->peak_bytes = TS_MAX(p->peak_bytes, q->offset + TS_ROUND_UP(q->bytes, ALIGN));
    }
    return TS_OK;
}
