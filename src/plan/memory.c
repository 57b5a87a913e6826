/* memory.c - an offset for every stored value, and where threads must wait for each other.
 *
 *   block of a device:  [ states, always live | values, sharing memory when their lives do not
 * overlap ]
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
    ts_spot *spot;
    int from, to; /* the kernels it must be there for */
} life;

typedef struct memory {
    ts_arena *a;
    ts_program *p;
    life *lives;
    int n;
    int *last; /* by value: the last kernel of the home device that needs it */
} memory;

static size_t size_of(const ts_spot *s)
{
    return s->depth == 1 ? s->bytes : ts_ring_stride(s->bytes) * (size_t)s->depth;
}

static size_t room(const ts_spot *s)
{
    return TS_ROUND_UP(size_of(s), ALIGN);
}

static int by_size(const void *x, const void *y)
{
    const life *p = x, *q = y;
    size_t a = size_of(p->spot), b = size_of(q->spot);

    if (a != b)
        return a < b ? 1 : -1;
    return p->v->id - q->v->id;
}

static int by_offset(const void *x, const void *y)
{
    const ts_spot *const *p = x, *const *q = y;

    return (*p)->offset < (*q)->offset ? -1 : (*p)->offset > (*q)->offset;
}

/* Does everything on the device, with memory of its own, fit the caches? */
static bool small(const memory *m, int device)
{
    size_t total = m->p->bytes[device].states;

    for (int i = 0; i < m->n; i++)
        if (m->lives[i].spot->device == device)
            total += room(m->lives[i].spot);
    return total <= SMALL;
}

/* Lowest gap among the spots that are alive together with `l` on its device. */
static size_t find_gap(const memory *m, int placed, const life *l)
{
    const ts_spot **busy = TS_NEWS(m->a, const ts_spot *, placed);
    size_t at = m->p->bytes[l->spot->device].states;
    int n = 0;

    for (int i = 0; i < placed; i++) {
        const life *x = &m->lives[i];
        if (x->spot->device == l->spot->device && x->from <= l->to && l->from <= x->to)
            busy[n++] = x->spot;
    }
    qsort(busy, (size_t)n, sizeof(*busy), by_offset);
    for (int i = 0; i < n; i++) {
        if (busy[i]->offset >= at + size_of(l->spot))
            break;
        at = TS_MAX(at, busy[i]->offset + room(busy[i]));
    }
    return at;
}

/* Do x and y share memory on the device? */
static bool overlap(const ts_program *p, int device, const ts_value *x, const ts_value *y)
{
    const ts_spot *a = ts_place_spot(p, x, device), *b = ts_place_spot(p, y, device);

    return p->place[x->id].home == TS_HOME_BLOCK && p->place[y->id].home == TS_HOME_BLOCK &&
           a->offset < b->offset + size_of(b) && b->offset < a->offset + size_of(a);
}

/* Must k wait for j: does one of them write what the other touches? */
static bool conflict(const ts_program *p, const ts_kernel *j, const ts_kernel *k)
{
    for (int r = 0; r < j->nroots; r++) {
        for (int s = 0; s < k->nreads; s++)
            if (overlap(p, k->device, j->roots[r], k->reads[s]))
                return true;
        for (int s = 0; s < k->nroots; s++)
            if (overlap(p, k->device, j->roots[r], k->roots[s]))
                return true;
    }
    for (int r = 0; r < j->nreads; r++)
        for (int s = 0; s < k->nroots; s++)
            if (overlap(p, k->device, j->reads[r], k->roots[s]))
                return true;
    return false;
}

/* alone[k]: kernel k is too small to share and always runs on the first thread, where order is
 * enough. */
void ts_plan_waits(const ts_program *p, const bool *alone)
{
    int since = 0;

    for (int k = 0; k < p->nkernels; k++) {
        bool wait = k && p->kernels[k]->section != p->kernels[k - 1]->section;
        for (int j = since; j < k && !wait; j++)
            wait = !(alone[j] && alone[k]) && conflict(p, p->kernels[j], p->kernels[k]);
        p->kernels[k]->wait = wait;
        if (wait)
            since = k;
    }
}

/* --- lives --- */

static void place_states(memory *m)
{
    const ts_graph *g = m->p->g;

    for (int i = 0; i < g->nstates; i++)
        for (ts_spot *s = &m->p->place[g->states[i].value->id].spot; s; s = s->next) {
            size_t *top = &m->p->bytes[s->device].states;
            s->bytes = ts_layout_bytes(g->states[i].value);
            s->offset = *top;
            *top += room(s);
        }
}

static int end_of(const ts_program *p, int section)
{
    return p->pipe.sections[section].first + p->pipe.sections[section].count - 1;
}

/* Outputs and what is sent are fetched at the end of their section. */
static void find_last(memory *m)
{
    const ts_program *p = m->p;
    const ts_graph *g = p->g;

    for (int i = 0; i < p->nkernels; i++)
        for (int r = 0; r < p->kernels[i]->nreads; r++) {
            const ts_value *v = p->kernels[i]->reads[r];
            if (p->place[v->id].spot.device == p->kernels[i]->device)
                m->last[v->id] = TS_MAX(m->last[v->id], i);
        }
    for (int i = 0; i < g->noutputs + p->pipe.nsends; i++) {
        const ts_value *v = i < g->noutputs ? g->outputs[i] : p->sent[i - g->noutputs];
        int k = p->place[v->id].kernel;
        if (k >= 0)
            m->last[v->id] = TS_MAX(m->last[v->id], end_of(p, p->kernels[k]->section));
    }
}

/* In a pipeline, what is made for a later section is there for several micro-batches at a time. */
static void find_depths(memory *m, const ts_options *opt)
{
    ts_program *p = m->p;
    int n = 0, M = opt->optimizer ? opt->gradient_accumulation : opt->device_iterations;
    ts_stash *stash = TS_NEWS(m->a, ts_stash, p->g->nvalues);
    ts_spot **spots = TS_NEWS(m->a, ts_spot *, p->g->nvalues);

    for (int i = 0; i < p->g->nvalues; i++) {
        ts_place *q = &p->place[i];
        if (p->g->values[i]->kind != TS_VALUE_NODE || q->home != TS_HOME_BLOCK || q->alias)
            continue;
        int made = p->kernels[q->kernel]->section, last = made;
        if (m->last[i] > q->kernel)
            last = p->kernels[m->last[i]]->section;
        if (last == made)
            continue;
        spots[n] = &q->spot;
        stash[n++] = (ts_stash){.section = made, .last = last};
    }
    ts_pipeline_depths(m->a, &p->pipe, TS_MAX(1, M), opt->queue_depth ? opt->queue_depth : 2, stash,
                       n);
    for (int i = 0; i < n; i++)
        spots[i]->depth = stash[i].depth;
    for (int i = 0; i < p->pipe.nsends; i++)
        if (!p->pipe.sends[i].state)
            ((ts_spot *)ts_place_spot(p, p->sent[i], p->pipe.sends[i].device))->depth =
                p->pipe.sends[i].depth;
}

/* A value lives on its home device from its maker to its last reader, and elsewhere from the start,
 * because nobody knows when it comes. In a pipeline, what leaves its section lives always. */
static void find_lives(memory *m)
{
    ts_program *p = m->p;

    for (int i = 0; i < p->g->nvalues; i++) {
        ts_place *q = &p->place[i];
        const ts_value *v = p->g->values[i];
        if (v->kind != TS_VALUE_NODE || q->home != TS_HOME_BLOCK)
            continue;
        for (ts_spot *s = &q->spot; s; s = s->next) {
            life l = {v, s, 0, p->nkernels};
            s->bytes = ts_layout_bytes(v);
            if (s == &q->spot && q->alias) {
                s->offset = p->place[q->alias->id].spot.offset;
                continue;
            }
            if (s == &q->spot) {
                int last = TS_MAX(m->last[i], q->kernel);
                bool stays = p->kernels[last]->section == p->kernels[q->kernel]->section;
                if (stays || p->pipe.sharded)
                    l = (life){v, s, q->kernel, last};
            } else if (p->pipe.sharded) {
                l.to = 0;
                for (int k = 0; k < p->nkernels; k++)
                    for (int r = 0; r < p->kernels[k]->nreads; r++)
                        if (p->kernels[k]->device == s->device && p->kernels[k]->reads[r] == v)
                            l.to = k;
            }
            TS_PUSH(m->a, m->lives, m->n, l);
        }
    }
}

static void place_values(memory *m, const ts_options *opt)
{
    ts_program *p = m->p;

    for (int d = 0; d < p->pipe.ndevices; d++)
        if (small(m, d) && !ts_pass_skipped(opt, "spread"))
            for (int i = 0; i < m->n; i++)
                if (m->lives[i].spot->device == d) {
                    m->lives[i].from = 0;
                    m->lives[i].to = p->nkernels;
                }
    if (m->n)
        qsort(m->lives, (size_t)m->n, sizeof(life), by_size);
    for (int i = 0; i < m->n; i++) {
        ts_spot *s = m->lives[i].spot;
        size_t *peak = &p->bytes[s->device].peak;
        s->offset = find_gap(m, i, &m->lives[i]);
        *peak = TS_MAX(*peak, s->offset + room(s));
    }
}

static void place_sends(ts_program *p)
{
    for (int i = 0; i < p->pipe.nsends; i++) {
        ts_send *s = &p->pipe.sends[i];
        const ts_spot *from = ts_place_spot(p, p->sent[i], p->pipe.sections[s->section].device);
        const ts_spot *to = ts_place_spot(p, p->sent[i], s->device);
        s->from = from->offset;
        s->from_depth = from->depth;
        s->to = to->offset;
        s->depth = to->depth;
        s->bytes = from->bytes;
    }
}

ts_status ts_plan_memory(ts_arena *a, const ts_options *opt, ts_program *p)
{
    memory m = {.a = a, .p = p, .last = TS_NEWS(a, int, p->g->nvalues)};

    p->bytes = TS_NEWS(a, ts_device_bytes, p->pipe.ndevices);
    find_last(&m);
    find_depths(&m, opt);
    place_states(&m);
    find_lives(&m);
    for (int d = 0; d < p->pipe.ndevices; d++)
        p->bytes[d].peak = p->bytes[d].states;
    place_values(&m, opt);
    place_sends(p);
    for (int d = 0; d < p->pipe.ndevices; d++) {
        p->state_bytes += p->bytes[d].states;
        p->peak_bytes += p->bytes[d].peak;
    }
    return TS_OK;
}
