/* memory.c - an offset for every stored value, and where threads must wait for each other.
 *
 *   block of a device:  [ states | values ]
 *                         |        sharing memory when their lives do not overlap
 *                         always live
 *
 * Largest first, each at the lowest offset that no value alive at the same time occupies (greedy by
 * size; Pisarchyk and Lee 2020 found it within a few percent of optimal). Where that leaves gaps, longest
 * or earliest first may leave fewer: of GPT-2, whose scores are most of its memory, one sixth. A value lives from the
 * kernel that makes it to the last that reads it; outputs to the end. The peak is exact: it is the
 * size of the block.
 *
 * A small block is left without sharing: shared memory goes from one core's cache to the other's
 * whenever the kernels that use it in turn are cut differently (4 % of a step of 160 us on two
 * cores, and of one of 600 us), and saves nothing that anyone would miss. A larger one is faster
 * with it, for less memory is more of it in the caches. ("spread" in ts_options.skip shares all the
 * same.)
 */
#include "op/emit.h"
#include "plan/gaps.h"
#include "plan/plan.h"

enum { ALIGN = 64 };

typedef struct life {
    const ts_value *v;
    ts_spot *spot;
    ts_span *spans; /* when it must be there */
    int n;
} life;

/* A kernel that makes or uses what lies in a value's memory. */
typedef struct touch {
    int kernel;
    bool made, used;
} touch;

typedef struct touches {
    touch *list;
    int n;
    bool kept;    /* to the end of its section: an output, or sent */
    size_t bytes; /* with room for all of its shares, which may be more than all of it */
} touches;

typedef struct memory {
    ts_arena *a;
    ts_program *p;
    touches *of; /* by value */
    life *lives;
    int n;
    ts_gaps **gaps; /* by device */
} memory;

static size_t size_of(const ts_spot *s)
{
    if (s->shares)
        return s->bytes * (size_t)s->shares;
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

static int64_t length(const life *l)
{
    int64_t n = 0;

    for (int i = 0; i < l->n; i++)
        n += l->spans[i].to - l->spans[i].from + 1;
    return n;
}

static int by_area(const void *x, const void *y)
{
    double a = (double)size_of(((const life *)x)->spot) * (double)length(x);
    double b = (double)size_of(((const life *)y)->spot) * (double)length(y);

    if (a != b)
        return a < b ? 1 : -1;
    return by_size(x, y);
}

static int by_start(const void *x, const void *y)
{
    int a = ((const life *)x)->spans[0].from, b = ((const life *)y)->spans[0].from;

    return a != b ? a - b : by_size(x, y);
}

typedef int (*by)(const void *x, const void *y);

/* Is everything on the device, each with memory of its own, a small block? */
static bool small(const memory *m, int device)
{
    size_t total = m->p->bytes[device].states;

    for (int i = 0; i < m->n; i++)
        if (m->lives[i].spot->device == device)
            total += room(m->lives[i].spot);
    return total <= (size_t)ts_machine_spread(&m->p->machine);
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

static touch *touch_of(memory *m, const ts_value *v, int kernel)
{
    touches *t = &m->of[v->id];

    if (!t->n || t->list[t->n - 1].kernel != kernel)
        TS_PUSH(m->a, t->list, t->n, ((touch){.kernel = kernel}));
    m->p->work++;
    return &t->list[t->n - 1];
}

/* The values whose memory x lies in: its own or its state's, and what that is a share of, or NULL. */
static void lies_in(const ts_program *p, const ts_value *x, const ts_value *in[2])
{
    in[0] = p->place[x->id].alias ? p->place[x->id].alias : x;
    in[1] = in[0]->kind == TS_VALUE_STATE && p->g->states[in[0]->index].use == TS_USE_SHARE
                ? p->g->states[in[0]->index].of
                : NULL;
}

static void find_kept(memory *m, const ts_value *x)
{
    const ts_value *in[2];

    lies_in(m->p, x, in);
    for (int i = 0; i < 2 && in[i]; i++)
        m->of[in[i]->id].kept = true;
}

static void find_touches(memory *m)
{
    const ts_program *p = m->p;
    const ts_value *in[2];

    m->of = TS_NEWS(m->a, touches, p->g->nvalues);
    for (int k = 0; k < p->nkernels; k++) {
        for (int r = 0; r < p->kernels[k]->nroots; r++) {
            lies_in(p, p->kernels[k]->roots[r], in);
            for (int i = 0; i < 2 && in[i]; i++)
                touch_of(m, in[i], k)->made = true;
        }
        for (int r = 0; r < p->kernels[k]->nreads; r++) {
            lies_in(p, p->kernels[k]->reads[r], in);
            for (int i = 0; i < 2 && in[i]; i++)
                touch_of(m, in[i], k)->used = true;
        }
    }
    for (int i = 0; i < p->g->noutputs; i++)
        find_kept(m, p->g->outputs[i]);
    for (int i = 0; i < p->pipe.nsends; i++)
        find_kept(m, p->sent[i]);
    for (int i = 0; i < p->g->nvalues; i++)
        m->of[i].bytes = ts_layout_bytes(p->g->values[i]);
    for (int i = 0; i < p->g->nstates; i++) {
        const ts_state *s = &p->g->states[i];
        size_t *bytes = s->use == TS_USE_SHARE ? &m->of[s->of->id].bytes : NULL;
        if (bytes)
            *bytes = TS_MAX(*bytes, ts_type_bytes(&s->value->type) * (size_t)s->parts);
    }
}

static ts_status place_shares(memory *m)
{
    const ts_graph *g = m->p->g;

    for (int i = 0; i < g->nstates; i++) {
        const ts_state *s = &g->states[i];
        if (s->use != TS_USE_SHARE)
            continue;
        ts_spot *spot = &m->p->place[s->value->id].spot;
        spot->bytes = ts_type_bytes(&s->value->type);
        spot->offset = m->p->place[s->of->id].spot.offset;
        spot->shares = s->parts;
        if (ts_layout_bytes(s->of) > size_of(spot))
            return ts_fail(TS_ERR_INTERNAL, "the shares of '%s' are not all of it", s->of->name);
    }
    return TS_OK;
}

static void place_states(memory *m)
{
    const ts_graph *g = m->p->g;

    for (int i = 0; i < g->nstates; i++)
        for (ts_spot *s = &m->p->place[g->states[i].value->id].spot; s; s = s->next) {
            size_t *top = &m->p->bytes[s->device].states;
            if (g->states[i].use == TS_USE_SHARE)
                continue;
            s->bytes = m->of[g->states[i].value->id].bytes;
            if (s->remote)
                continue;
            s->offset = *top;
            *top += room(s);
        }
}

static int end_of(const ts_program *p, int section)
{
    return p->pipe.sections[section].first + p->pipe.sections[section].count - 1;
}

/* From each kernel that makes or loads it to the last that needs it before it is made or loaded
 * again. Outputs and what is sent are fetched at the end of their section. */
static life *find_life(memory *m, const ts_value *v, ts_spot *spot)
{
    const ts_program *p = m->p;
    const touches *t = &m->of[v->id];
    life *l = TS_NEW(m->a, life);
    int *last;

    *l = (life){.v = v, .spot = spot};
    for (int i = 0; i < t->n; i++) {
        int k = t->list[i].kernel;
        const ts_kernel *x = p->kernels[k];
        bool made = t->list[i].made;
        if (x->device != spot->device)
            continue;
        /* an update of what was loaded goes on with the same life */
        if (!l->n || (made && !t->list[i].used && (v->kind == TS_VALUE_NODE || x->load)))
            TS_PUSH(m->a, l->spans, l->n, ((ts_span){k, k}));
        last = &l->spans[l->n - 1].to;
        *last = TS_MAX(*last, made && t->kept && !x->load && !x->again ? end_of(p, x->section) : k);
    }
    return l;
}

static bool crosses(const memory *m, const life *l)
{
    for (int i = 0; i < l->n; i++)
        if (m->p->kernels[l->spans[i].from]->section != m->p->kernels[l->spans[i].to]->section)
            return true;
    return false;
}

/* When a copy on another device begins to live: at the end of the section that sends it or, in a
 * pipeline, where nobody knows when that is, at the start. */
static int arrival(const ts_program *p, const ts_value *v, int device)
{
    for (int i = 0; i < p->pipe.nsends && p->pipe.sharded; i++)
        if (p->sent[i] == v && p->pipe.sends[i].device == device)
            return end_of(p, p->pipe.sends[i].section);
    return 0;
}

/* A value lives on its home device as above, and elsewhere from when it comes, unless it is loaded.
 * In a pipeline, what leaves its section lives always. */
static void find_lives(memory *m)
{
    ts_program *p = m->p;

    for (int i = 0; i < p->g->nvalues; i++) {
        ts_place *q = &p->place[i];
        const ts_value *v = p->g->values[i];
        bool state = v->kind == TS_VALUE_STATE;
        for (ts_spot *s = &q->spot; s && q->home == TS_HOME_BLOCK; s = s->next) {
            bool sent = s != &q->spot && !s->remote;
            life *l;
            if (state && !s->remote)
                continue;
            l = find_life(m, v, s);
            s->bytes = m->of[i].bytes;
            if ((s == &q->spot && q->alias) || !l->n)
                continue;
            if (sent)
                l->spans[0].from = arrival(p, v, s->device);
            if (!p->pipe.sharded && (sent || crosses(m, l))) {
                l->spans[0] = (ts_span){0, p->nkernels};
                l->n = 1;
            }
            TS_PUSH(m->a, m->lives, m->n, *l);
        }
    }
}

/* In a pipeline, what is made for a later section is there for several micro-batches at a time. */
static void find_depths(memory *m, const ts_options *opt)
{
    ts_program *p = m->p;
    int n = 0, M = opt->optimizer ? opt->gradient_accumulation : opt->device_iterations;
    ts_stash *stash = TS_NEWS(m->a, ts_stash, p->g->nvalues);
    int **depth = TS_NEWS(m->a, int *, p->g->nvalues);

    for (int i = 0; i < p->g->nvalues; i++) {
        ts_place *q = &p->place[i];
        const ts_value *v = p->g->values[i];
        const life *l;
        for (ts_spot *s = &q->spot; s; s = s->next)
            s->remote_depth = 1;
        if (v->kind != TS_VALUE_NODE || q->home != TS_HOME_BLOCK || q->alias)
            continue;
        l = find_life(m, v, &q->spot);
        if (!l->n || (!crosses(m, l) && !q->spot.remote))
            continue;
        depth[n] = q->spot.remote ? &q->spot.remote_depth : &q->spot.depth;
        stash[n].section = p->kernels[l->spans[0].from]->section;
        stash[n++].last = p->kernels[l->spans[l->n - 1].to]->section;
    }
    ts_pipeline_depths(m->a, &p->pipe, TS_MAX(1, M), opt->queue_depth ? opt->queue_depth : 2, stash,
                       n);
    for (int i = 0; i < n; i++)
        *depth[i] = stash[i].depth;
    for (int i = 0; i < p->pipe.nsends; i++) {
        const ts_send *s = &p->pipe.sends[i];
        ts_spot *to = (ts_spot *)ts_place_spot(p, p->sent[i], s->device);
        if (!s->state)
            *(to->remote ? &to->remote_depth : &to->depth) = s->depth;
    }
}

/* The host's memory: states, and activations of several micro-batches, of each device. */
static void place_remote(memory *m)
{
    ts_program *p = m->p;

    p->remote_bytes = 0;
    for (int i = 0; i < p->g->nvalues; i++)
        for (ts_spot *s = &p->place[i].spot; s; s = s->next) {
            if (!s->remote)
                continue;
            s->remote_at = p->remote_bytes;
            p->remote_bytes += ts_ring_stride(m->of[i].bytes) * (size_t)s->remote_depth;
        }
}

/* What is live at once where that is most, on each device: no places can need less. */
static size_t most_live(const memory *m)
{
    int n = m->p->nkernels + 2;
    int64_t *more = TS_NEWS(m->a, int64_t, n * m->p->pipe.ndevices), live = 0, all = 0;

    for (int i = 0; i < m->n; i++)
        for (int k = 0; k < m->lives[i].n; k++) {
            int64_t *of = more + n * m->lives[i].spot->device;
            of[m->lives[i].spans[k].from] += (int64_t)room(m->lives[i].spot);
            of[m->lives[i].spans[k].to + 1] -= (int64_t)room(m->lives[i].spot);
        }
    for (int d = 0; d < m->p->pipe.ndevices; d++) { /* at its end, nothing of a device is live */
        int64_t most = 0;
        for (int k = 0; k < n; k++) {
            live += more[n * d + k];
            most = TS_MAX(most, live);
        }
        all += most + (int64_t)m->p->bytes[d].states;
    }
    return (size_t)all;
}

static void empty_blocks(memory *m)
{
    ts_program *p = m->p;

    for (int d = 0; d < p->pipe.ndevices; d++) {
        p->bytes[d].peak = p->bytes[d].states;
        p->work += m->gaps[d] ? ts_gaps_work(m->gaps[d]) : 0;
        m->gaps[d] = ts_gaps_new(m->a, p->nkernels + 1);
    }
}

static void place_one(memory *m, const life *l)
{
    ts_spot *s = l->spot;
    ts_device_bytes *of = &m->p->bytes[s->device];
    ts_gaps *gaps = m->gaps[s->device];

    s->offset = ts_gaps_find(gaps, l->spans, l->n, of->states, size_of(s));
    ts_gaps_take(gaps, l->spans, l->n, s->offset, room(s));
    of->peak = TS_MAX(of->peak, s->offset + room(s));
}

/* One after the other, in this order; returns the bytes of all blocks. */
static size_t place(memory *m, by order)
{
    size_t all = 0;

    empty_blocks(m);
    if (m->n)
        qsort(m->lives, (size_t)m->n, sizeof(life), order);
    for (int i = 0; i < m->n; i++)
        place_one(m, &m->lives[i]);
    for (int d = 0; d < m->p->pipe.ndevices; d++)
        all += m->p->bytes[d].peak;
    return all;
}

/* Largest first, unless that wastes one part in a hundred, and another order less. */
static void place_best(memory *m)
{
    static const by orders[] = {by_size, by_area, by_start};
    size_t least = place(m, orders[0]), live = most_live(m);
    int best = 0, last = 0;

    for (int i = 1; i < TS_COUNT(orders) && least > live + live / 100; i++) {
        size_t bytes = place(m, orders[last = i]);
        if (bytes < least) {
            least = bytes;
            best = i;
        }
    }
    if (best != last)
        place(m, orders[best]);
}

static void place_values(memory *m, const ts_options *opt)
{
    ts_program *p = m->p;

    for (int d = 0; d < p->pipe.ndevices; d++)
        if (small(m, d) && !opt->offload && !ts_pass_skipped(opt, "spread"))
            for (int i = 0; i < m->n; i++)
                if (m->lives[i].spot->device == d) {
                    m->lives[i].spans[0] = (ts_span){0, p->nkernels};
                    m->lives[i].n = 1;
                }
    place_best(m);
    for (int i = 0; i < p->g->nvalues; i++)
        if (p->place[i].alias)
            p->place[i].spot.offset = p->place[p->place[i].alias->id].spot.offset;
}

static void place_sends(ts_program *p)
{
    for (int i = 0; i < p->pipe.nsends; i++) {
        ts_send *s = &p->pipe.sends[i];
        const ts_spot *from = ts_place_spot(p, p->sent[i], p->pipe.sections[s->section].device);
        const ts_spot *to = ts_place_spot(p, p->sent[i], s->device);
        s->from = from->offset;
        s->from_depth = from->depth;
        s->remote = to->remote;
        s->to = to->remote ? to->remote_at : to->offset;
        s->depth = to->remote ? to->remote_depth : to->depth;
        s->bytes = from->bytes;
    }
}

ts_status ts_plan_memory(ts_arena *a, const ts_options *opt, ts_program *p)
{
    memory m = {.a = a, .p = p};

    p->bytes = TS_NEWS(a, ts_device_bytes, p->pipe.ndevices);
    find_touches(&m);
    find_depths(&m, opt);
    place_states(&m);
    place_remote(&m);
    find_lives(&m);
    m.gaps = TS_NEWS(a, ts_gaps *, p->pipe.ndevices);
    place_values(&m, opt);
    TS_TRY(place_shares(&m));
    place_sends(p);
    for (int d = 0; d < p->pipe.ndevices; d++) {
        p->state_bytes += p->bytes[d].states;
        p->peak_bytes += p->bytes[d].peak;
        p->work += ts_gaps_work(m.gaps[d]);
    }
    return TS_OK;
}
