/* pipeline.c - the order in which each device runs its sections.
 *
 * Sharded: micro-batch after micro-batch, section after section.
 *
 * Pipelined: as if every device needed the same time for a micro-batch, in equal parts for its
 * sections. A device that is free takes the item that is furthest on its way to the end of its
 * micro-batch, so the backward pass goes first (1F1B), and starts no more micro-batches than it
 * needs to be busy until the first of them comes back:
 *
 *   device 0 of 4     F0 F1 F2 F3 .  .  .  B0 F4 B1 F5 B2 ...     at most 4 under way
 *   device 1          .  F0 F1 F2 .  .  B0 F3 B1 F4 B2 ...        at most 3
 *   device 2          .  .  F0 F1 .  B0 F2 B1 F3 B2 ...           at most 2
 *   device 3          .  .  .  X---0 X---1 X---2 ...              forward and backward in one
 *
 * Such an order can be run with other durations, and with queues as deep as it needs here: its
 * times show that every item's turn comes.
 */
#include "plan/pipeline.h"

enum { TIME = 5040 }; /* that a device takes for a micro-batch: divides well */

static bool reads(const ts_send *x, int section)
{
    for (int i = 0; i < x->nreaders; i++)
        if (x->readers[i] == section)
            return true;
    return false;
}

/* --- the order --- */

typedef struct simulation {
    const ts_pipeline *p;
    ts_order *o;
    int *next, *done; /* by section: micro-batches begun; finished by now */
    int *free;        /* by device: when */
    int *first, *last,
        *limit; /* by device: its outermost sections of phase 0, and what is between */
} simulation;

static void add_item(simulation *s, int section, int m, int when)
{
    ts_order *o = s->o;
    int device = s->p->sections[section].device;

    o->at[section][m] = o->n[device];
    o->when[section][m] = when;
    o->items[device][o->n[device]++] = (ts_item){section, m};
}

/* Can this section's next micro-batch be run now? */
static bool ready(const simulation *s, int section)
{
    const ts_pipeline *p = s->p;
    const ts_section *x = &p->sections[section];
    int m = s->next[section];

    if (x->phase || m >= s->o->micro_batches)
        return false;
    if (section == s->first[x->device] && m - s->done[s->last[x->device]] >= s->limit[x->device])
        return false;
    for (int i = 0; i < section; i++)
        if (p->sections[i].device == x->device && s->done[i] <= m)
            return false;
    for (int i = 0; i < p->nsends; i++)
        if (!p->sends[i].state && reads(&p->sends[i], section) && s->done[p->sends[i].section] <= m)
            return false;
    return true;
}

/* Counts what is finished at `now`; the time at which the next item will be. */
static int look_around(simulation *s, int now)
{
    const ts_order *o = s->o;
    int next = INT32_MAX;

    for (int i = 0; i < s->p->nsections; i++) {
        int *done = &s->done[i];
        while (*done < s->next[i] && o->when[i][*done] + o->took[i] <= now)
            ++*done;
        if (*done < s->next[i])
            next = TS_MIN(next, o->when[i][*done] + o->took[i]);
    }
    return next;
}

static void pipelined(simulation *s)
{
    const ts_pipeline *p = s->p;
    int left = 0, now = 0;

    for (int i = 0; i < p->nsections; i++)
        left += p->sections[i].phase ? 0 : s->o->micro_batches;
    while (left > 0) {
        int next = look_around(s, now);
        for (int d = 0; d < p->ndevices; d++)
            for (int i = p->nsections - 1; i >= 0 && s->free[d] <= now; i--)
                if (p->sections[i].device == d && ready(s, i)) {
                    add_item(s, i, s->next[i]++, now);
                    s->free[d] = now + s->o->took[i];
                    next = TS_MIN(next, s->free[d]);
                    left--;
                }
        if (next == INT32_MAX)
            return; /* sections that wait for each other: the verifier's business */
        now = next;
    }
}

static void sharded(simulation *s)
{
    int step = 0;

    for (int m = 0; m < s->o->micro_batches; m++)
        for (int i = 0; i < s->p->nsections; i++)
            if (!s->p->sections[i].phase)
                add_item(s, i, m, step++ * TIME);
}

static void find_limits(simulation *s)
{
    const ts_pipeline *p = s->p;

    for (int d = 0; d < p->ndevices; d++)
        s->first[d] = s->last[d] = -1;
    for (int i = 0; i < p->nsections; i++) {
        int d = p->sections[i].device;
        if (p->sections[i].phase)
            continue;
        s->first[d] = s->first[d] < 0 ? i : s->first[d];
        s->last[d] = i;
    }
    for (int d = 0; d < p->ndevices; d++)
        if (s->first[d] >= 0)
            s->limit[d] = (p->sections[s->last[d]].level - p->sections[s->first[d]].level) / 2 + 1;
}

/* --- what an item waits for --- */

/* Item (section, m) of the iteration has been done; m may lie in an earlier one. */
static int after(const ts_pipeline *p, const ts_order *o, int section, int m)
{
    int M = p->sections[section].phase ? 1 : o->micro_batches, back = 0;

    for (; m < 0; m += M)
        back++;
    return o->at[section][m] + 1 - back * o->n[p->sections[section].device];
}

static void need(int *needs, int device, int count)
{
    needs[device] = TS_MAX(needs[device], count);
}

/* The last item of a section in the iteration that item (x, m) belongs to, as seen from there. */
static int same(const ts_pipeline *p, const ts_order *o, int of, int x, int m)
{
    if (p->sections[of].phase == p->sections[x].phase)
        return m;
    return p->sections[of].phase ? 0 : o->micro_batches - 1;
}

/* As a reader, item (x, m) needs what was sent; as the sender it needs room at the other end. */
static void needs_of_send(const ts_pipeline *p, const ts_order *o, const ts_send *s, int x, int m,
                          int *needs)
{
    if (reads(s, x)) {
        int from = same(p, o, s->section, x, m);
        if (s->state) /* as the last update left it */
            from -= p->sections[s->section].phase == p->sections[x].phase ||
                    p->sections[s->section].phase;
        need(needs, p->sections[s->section].device, after(p, o, s->section, from));
    }
    if (s->section != x)
        return;
    for (int i = 0; i < s->nreaders; i++) {
        int c = s->readers[i], to = s->state ? same(p, o, c, x, m) : m - s->depth;
        if (p->sections[c].phase > p->sections[x].phase)
            to = -1; /* read by the update; that of the last iteration must be over */
        need(needs, s->device, after(p, o, c, to));
    }
}

/* Sharded, all that comes before has been done, on all devices: values whose lives do not overlap
 * share memory, and what is sent early would land in another's. */
static void in_turns(const ts_pipeline *p, const ts_order *o, ts_item x, int *needs)
{
    int phase = p->sections[x.section].phase;

    memset(needs, 0, sizeof(int) * (size_t)p->ndevices);
    for (int i = 0; i < p->nsections; i++) {
        const ts_section *s = &p->sections[i];
        if (s->phase < phase)
            needs[s->device] += o->micro_batches;
        else if (s->phase == phase)
            needs[s->device] += x.m + (i < x.section);
    }
}

static void find_needs(ts_arena *a, const ts_pipeline *p, ts_order *o)
{
    for (int d = 0; d < p->ndevices; d++) {
        o->needs[d] = TS_NEWS(a, int, o->n[d] * p->ndevices);
        for (int i = 0; i < o->n[d]; i++) {
            int *needs = o->needs[d] + (size_t)i * (size_t)p->ndevices;
            for (int k = 0; k < p->ndevices; k++)
                needs[k] = INT32_MIN / 2;
            if (p->sharded)
                in_turns(p, o, o->items[d][i], needs);
            for (int k = 0; k < p->nsends && !p->sharded; k++)
                needs_of_send(p, o, &p->sends[k], o->items[d][i].section, o->items[d][i].m, needs);
        }
    }
}

static void order(ts_arena *a, const ts_pipeline *p, int micro_batches, ts_order *o)
{
    int S = p->nsections, D = p->ndevices;
    simulation s = {.p = p,
                    .o = o,
                    .next = TS_NEWS(a, int, S),
                    .done = TS_NEWS(a, int, S),
                    .free = TS_NEWS(a, int, D),
                    .first = TS_NEWS(a, int, D),
                    .last = TS_NEWS(a, int, D),
                    .limit = TS_NEWS(a, int, D)};

    *o = (ts_order){.ndevices = D, .micro_batches = micro_batches};
    o->items = TS_NEWS(a, ts_item *, D);
    o->n = TS_NEWS(a, int, D);
    o->nfirst = TS_NEWS(a, int, D);
    o->needs = TS_NEWS(a, int *, D);
    o->when = TS_NEWS(a, int *, S);
    o->took = TS_NEWS(a, int, S);
    o->at = TS_NEWS(a, int *, S);
    for (int d = 0; d < D; d++) {
        int count = 0;
        for (int i = 0; i < S; i++)
            if (p->sections[i].device == d)
                count += p->sections[i].phase ? 1 : micro_batches;
        o->items[d] = TS_NEWS(a, ts_item, count);
    }
    for (int i = 0; i < S; i++) {
        int parts = 0;
        for (int k = 0; k < S; k++)
            parts += !p->sections[k].phase && p->sections[k].device == p->sections[i].device;
        o->took[i] = TS_MAX(1, TIME / TS_MAX(1, parts));
        o->when[i] = TS_NEWS(a, int, micro_batches);
        o->at[i] = TS_NEWS(a, int, micro_batches);
    }
    find_limits(&s);
    if (p->sharded)
        sharded(&s);
    else
        pipelined(&s);
    memcpy(o->nfirst, o->n, sizeof(int) * (size_t)D);
    for (int i = 0; i < S; i++)
        if (p->sections[i].phase)
            add_item(&s, i, 0, 0);
}

void ts_order_make(ts_arena *a, const ts_pipeline *p, int micro_batches, ts_order *out)
{
    order(a, p, micro_batches, out);
    find_needs(a, p, out);
}

/* --- how much is under way --- */

/* How many micro-batches are held at a time, from the start of section `from`, or its end, to the
 * end of section `to`. What is let go makes room for what comes at the same time. */
static int held(const ts_order *o, int from, bool its_end, int to)
{
    int most = 1;

    for (int m = 0, freed = 0; m < o->micro_batches; m++) {
        int now = o->when[from][m] + (its_end ? o->took[from] : 0);
        while (freed < m && o->when[to][freed] + o->took[to] <= now)
            freed++;
        most = TS_MAX(most, m - freed + 1);
    }
    return most;
}

void ts_pipeline_depths(ts_arena *a, ts_pipeline *p, int micro_batches, int queue,
                        ts_stash *stashes, int nstashes)
{
    ts_order o;

    order(a, p, micro_batches, &o);
    for (int i = 0; i < p->nsends; i++) {
        ts_send *s = &p->sends[i];
        s->depth = s->from_depth = 1;
        for (int r = 0; r < s->nreaders && !s->state && !p->sharded; r++)
            if (!p->sections[s->readers[r]].phase)
                s->depth = TS_MAX(s->depth, queue - 1 + held(&o, s->section, true, s->readers[r]));
    }
    for (int i = 0; i < nstashes; i++) {
        ts_stash *s = &stashes[i];
        s->depth =
            p->sharded || p->sections[s->last].phase ? 1 : held(&o, s->section, false, s->last);
    }
}

double ts_order_bubble(ts_arena *a, const ts_pipeline *p, const ts_order *o)
{
    double *free = TS_NEWS(a, double, p->ndevices), span = 0, busy = 0;
    double **end = TS_NEWS(a, double *, p->nsections);
    int *at = TS_NEWS(a, int, p->ndevices);

    for (int i = 0; i < p->nsections; i++)
        end[i] = TS_NEWS(a, double, o->micro_batches);
    for (bool moved = true; moved;) {
        moved = false;
        for (int d = 0; d < p->ndevices; d++) {
            const ts_item *x = &o->items[d][at[d]];
            const int *needs = o->needs[d] + (size_t)at[d] * (size_t)p->ndevices;
            double start = free[d];
            bool wait = at[d] >= o->nfirst[d];
            for (int k = 0; k < p->ndevices && !wait; k++) {
                wait = k != d && needs[k] > at[k];
                if (!wait && k != d && needs[k] > 0) {
                    const ts_item *y = &o->items[k][needs[k] - 1];
                    start = TS_MAX(start, end[y->section][y->m]);
                }
            }
            if (wait)
                continue;
            free[d] = end[x->section][x->m] = start + p->sections[x->section].seconds;
            busy += p->sections[x->section].seconds;
            span = TS_MAX(span, free[d]);
            at[d]++;
            moved = true;
        }
    }
    return span > 0 ? 1 - busy / (span * p->ndevices) : 0;
}
