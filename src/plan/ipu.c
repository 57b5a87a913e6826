/* ipu.c - what a program would need and take on an IPU: memory of every tile, cycles of every kernel.
 *
 * The numbers come from the real execution; this only prices it. A device is many tiles, each with its
 * own memory, that compute, then meet, then exchange, then compute again:
 *
 *   tile 0   |compute      |sync|exchange  |compute ...
 *   tile 1   |compute  ....|sync|exchange  |compute ...       as long as the slowest
 *
 *   memory   A value is spread over tiles in pieces of GRAIN bytes, and the next begins where it ended.
 *            States are always there; others from the kernel that makes them to the last that reads
 *            them. To that come the code, and what a kernel's operands need when they arrive.
 *   compute  A contraction is m x n x k, cut into a grid of parts, one for each tile; channels are filled
 *            up to what the matrix unit takes at once. The grid is the cheapest, its exchange included:
 *            that is what Poplar's planner looks for too. Everything else is so many elements in vectors.
 *   exchange An operand that several tiles need is sent to them, parts of sums to where they are added.
 *   sync     Every node that computes is a step of its own there, fused here or not; views and the casts of
 *            halves, which are computed as f32 here, are none.
 *   host     Inputs and what is sent between devices, at the speed of the links.
 *
 * doc/ipu-model.md says which figures are published and which assumed, and how far off it is.
 */
#include "plan/ipu.h"
#include <math.h>

static const ts_ipu mk2 = {.name = "Mk2 (GC200)",
                           .tiles = 1472,
                           .tile_bytes = 624 * 1024,
                           .hertz = 1.33e9,
                           .multiply = {16, 64},
                           .reached = {0.6, 0.47},
                           .channels = {8, 16},
                           .vector = {2, 4},
                           .in = 8,
                           .out = 4,
                           .host = 12.5e9,
                           .link = 80e9};
static const ts_ipu mk1 = {.name = "Mk1 (GC2)",
                           .tiles = 1216,
                           .tile_bytes = 256 * 1024,
                           .hertz = 1.6e9,
                           .multiply = {8, 32},
                           .reached = {0.6, 0.47},
                           .channels = {8, 16},
                           .vector = {2, 4},
                           .in = 8,
                           .out = 4,
                           .host = 8e9,
                           .link = 40e9};

/* Assumed, see doc/ipu-model.md. */
enum {
    GRAIN = 128,          /* bytes of a value that stay together on a tile */
    CODE = 16 * 1024,     /* bytes on every tile whatever the program is */
    CODE_OF_KERNEL = 100, /* and for each kernel: vertices' state, exchange code */
    SYNC = 300,           /* cycles until all tiles have met, both times of a step */
    START = 1000,         /* cycles of a step until its workers run and after they have */
    CALL = 26600,         /* cycles in which the host begins a call: 20 us */
};

static const double AVAILABLE = 0.6; /* of a tile for what arrives; more comes in turns */

const ts_ipu *ts_ipu_of(ts_device_kind kind)
{
    return kind == TS_DEVICE_MK2 ? &mk2 : kind == TS_DEVICE_MK1 ? &mk1 : NULL;
}

/* --- cycles --- */

/* Halves are computed as f32 here, so they come as casts; there they are multiplied as they are. */
static const ts_type *stored(const ts_value *v)
{
    for (const ts_value *x = v; x->kind == TS_VALUE_NODE && x->node->nin == 1; x = x->node->in[0])
        if (x->node->op == TS_OP(cast))
            return &x->node->in[0]->type;
        else if (!(x->node->op->flags & TS_VIEW))
            break;
    return &v->type;
}

static bool half(const ts_value *v)
{
    return ts_dtype_size(stored(v)->dtype) == 2;
}

static double bytes_of(const ts_value *v)
{
    return (double)ts_type_count(&v->type) * (double)ts_dtype_size(stored(v)->dtype);
}

static double up(double x, double to)
{
    return ceil(x / to) * to;
}

/* A contraction as a product of matrices: its output is m x n, sums over k have `taps` parts of
 * channels each. */
typedef struct product {
    double m, n, k, taps;
    double a, b, c; /* bytes of the operands, and of the result in f32 */
    double rate, channels;
} product;

/* A convolution's columns are the channels of its result, its sums go over channels at every place of its
 * second operand. For the gradient of the weights that operand is dy, and the batch is the channels. */
static product product_of(const ts_ipu *ipu, const ts_node *n)
{
    const ts_type *t = &n->out[0]->type;
    bool conv = n->op->flags & TS_CONV;
    double count = (double)TS_MAX(1, ts_type_count(t)),
           sums = TS_MAX(count, ts_node_useful_flops(n) / 2);
    int wide = conv ? 1 : t->rank - 1;
    product p = {.n = t->rank > wide && wide >= 0 ? (double)TS_MAX(1, t->dim[wide]) : 1, .taps = 1};
    const ts_type *w = &n->in[1]->type;

    for (int i = 2; conv && i < w->rank; i++)
        p.taps *= (double)TS_MAX(1, w->dim[i]);
    p.m = count / p.n;
    p.k = sums / count;
    p.a = bytes_of(n->in[0]);
    p.b = bytes_of(n->in[1]);
    p.c = 4 * count;
    p.rate = ipu->multiply[half(n->in[0])] * ipu->reached[half(n->in[0])];
    p.channels = ipu->channels[half(n->in[0])];
    return p;
}

typedef struct part {
    double compute, exchange, in; /* cycles; bytes that a tile receives */
} part;

/* One grid: pm x pn x pk tiles. What only one tile needs is laid there from the start. */
static part grid(const ts_ipu *ipu, const product *p, double pm, double pn, double pk)
{
    double rows = ceil(p->m / pm), columns = up(ceil(p->n / pn), p->channels);
    double sums = up(ceil(up(p->k / p->taps, p->channels) * p->taps / pk), p->channels);
    double a = pn > 1 ? p->a / (pm * pk) : 0, b = pm > 1 ? p->b / (pn * pk) : 0;
    double c = pk > 1 ? p->c / (pm * pn) : 0; /* each of pk tiles adds its share of pk parts */
    double out = a / pn + b / pm + c;         /* what many receive is sent once */

    return (part){.compute = rows * columns * sums / p->rate,
                  .exchange = TS_MAX((a + b + c) / ipu->in, out / ipu->out),
                  .in = a + b + c};
}

static part best_grid(const ts_ipu *ipu, const product *p)
{
    double most = TS_MAX(1, TS_MIN(ipu->tiles, p->m * p->n * p->k));
    part best = {.compute = INFINITY};

    for (double pn = 1; pn <= most && pn < 2 * p->n; pn *= 2)
        for (double pk = 1; pn * pk <= most && pk < 2 * p->k; pk *= 2) {
            part x = grid(ipu, p, TS_MIN(p->m, floor(most / (pn * pk))), pn, pk);
            if (x.compute + x.exchange < best.compute + best.exchange)
                best = x;
        }
    return best;
}

static double bytes_read(const ts_program *p, const ts_kernel *k, ts_home home)
{
    double bytes = 0;

    for (int i = 0; i < k->nreads; i++)
        if (p->place[k->reads[i]->id].home == home)
            bytes += (double)ts_type_bytes(&k->reads[i]->type);
    return bytes;
}

static double bytes_written(const ts_kernel *k)
{
    double bytes = 0;

    for (int i = 0; i < k->nroots; i++)
        bytes += (double)ts_type_bytes(&k->roots[i]->type);
    return bytes;
}

/* What the matrix unit does of a kernel, and what its operands take to arrive. */
static void price_product(const ts_ipu *ipu, const ts_kernel *k, ts_ipu_cycles *c)
{
    product p = product_of(ipu, k->anchor);
    part x = best_grid(ipu, &p);

    c->compute += x.compute;
    c->exchange += x.exchange;
    c->in = TS_MIN(x.in, AVAILABLE * (double)ipu->tile_bytes);
    c->matrix_use =
        p.m * p.n * p.k / (x.compute * ipu->multiply[half(k->anchor->in[0])] * ipu->tiles);
}

/* What a kernel's nodes are on a device: steps, and multiply-adds in vectors. Views are where things lie, casts
 * of halves are not needed, and what is stored was computed by somebody else. */
typedef struct work {
    const ts_program *p;
    const ts_node *anchor;
    int *seen, walk;
    double steps, sums;
} work;

static void take(work *w, const ts_node *n)
{
    int *seen = &w->seen[n->out[0]->id];

    if (*seen == w->walk)
        return;
    *seen = w->walk;
    if (!(n->op->flags & (TS_VIEW | TS_SOURCE)) && n->op != TS_OP(cast) && n->op != TS_OP(nop)) {
        w->steps++;
        w->sums += n == w->anchor && n->op->flags & TS_CONTRACT ? 0 : ts_node_sums(n);
    }
    for (int i = 0; i < n->nin; i++)
        if (n->in[i]->kind == TS_VALUE_NODE && w->p->place[n->in[i]->id].home == TS_HOME_NONE)
            take(w, n->in[i]->node);
}

static void take_kernel(work *w, const ts_kernel *k)
{
    w->walk++;
    w->anchor = k->anchor;
    w->steps = w->sums = 0;
    for (int i = 0; i < k->nroots && !k->copy && !k->load && !k->store; i++)
        if (k->roots[i]->kind == TS_VALUE_NODE)
            take(w, k->roots[i]->node);
    if (k->anchor)
        take(w, k->anchor);
}

/* Elements in vectors on all tiles that have some. A reduction's parts are sent once. */
static void price_elements(const ts_ipu *ipu, const work *w, const ts_kernel *k, ts_ipu_cycles *c)
{
    const ts_value *v = k->nroots ? k->roots[0] : NULL;
    double bytes = TS_MAX(bytes_written(k), bytes_read(w->p, k, TS_HOME_BLOCK));
    double tiles = TS_MAX(1, TS_MIN(ipu->tiles, bytes / GRAIN));

    c->compute += w->sums / (tiles * ipu->vector[v && half(v)]);
    if (k->anchor && !(k->anchor->op->flags & TS_CONTRACT)) {
        c->in = TS_MAX(c->in, bytes / tiles);
        c->exchange += bytes / tiles / ipu->in;
    }
}

static ts_ipu_cycles price_one(const ts_ipu *ipu, work *w, const ts_kernel *k)
{
    ts_ipu_cycles c = {0};
    double host = bytes_read(w->p, k, TS_HOME_INPUT);

    if (k->load || k->store)
        host = (double)ts_type_bytes(&(k->load ? k->load : k->store)->type);
    take_kernel(w, k);
    if (k->anchor && k->anchor->op->flags & TS_CONTRACT)
        price_product(ipu, k, &c);
    price_elements(ipu, w, k, &c);
    c.compute += START * w->steps;
    c.sync = SYNC * w->steps;
    c.host = host / ipu->host * ipu->hertz;
    return c;
}

/* Several that are one here, for the caches' sake, follow each other there. */
static ts_ipu_cycles price(const ts_ipu *ipu, work *w, const ts_kernel *k)
{
    ts_ipu_cycles sum = {0};

    if (!k->bands)
        return price_one(ipu, w, k);
    for (int i = 0; i < k->bands->nparts; i++) {
        ts_ipu_cycles c = price_one(ipu, w, k->bands->parts[i]);
        sum.matrix_use += c.matrix_use * c.compute;
        sum.compute += c.compute;
        sum.exchange += c.exchange;
        sum.sync += c.sync;
        sum.host += c.host;
        sum.in = TS_MAX(sum.in, c.in);
    }
    sum.matrix_use /= TS_MAX(1, sum.compute);
    return sum;
}

static double cycles_of(const ts_ipu_cycles *c)
{
    return c->compute + c->exchange + c->sync + c->host;
}

/* Of an iteration: each device has its sections of every micro-batch; in a pipeline the slowest sets the
 * pace and the others fill it once, else one follows the other. */
static void add_up(const ts_program *p, const ts_options *opt, ts_ipu_model *out)
{
    double *every = out->stage, once = 0, sum = 0, most = 0;
    int n = p->pipe.ndevices, micros = (int)TS_MAX(1, opt->gradient_accumulation);
    double updates[TS_MOST_DEVICES] = {0};

    for (int i = 0; i < p->nkernels; i++) {
        const ts_kernel *k = p->kernels[i];
        *(k->phase ? &updates[k->device] : &every[k->device]) += cycles_of(&out->kernels[i]);
    }
    for (int i = 0; i < p->pipe.nsends; i++)
        every[p->pipe.sends[i].device] +=
            (double)p->pipe.sends[i].bytes / out->ipu->link * out->ipu->hertz;
    for (int d = 0; d < n; d++) {
        sum += every[d];
        most = TS_MAX(most, every[d]);
        once = TS_MAX(once, updates[d]);
    }
    out->step = once + (p->pipe.sharded || n == 1 ? sum * micros : most * (micros - 1) + sum);
    out->call = out->step * (double)TS_MAX(1, opt->device_iterations) + CALL;
    out->balance = most > 0 ? sum / (most * n) : 1;
}

/* --- memory --- */

typedef struct life {
    int first, last; /* kernels */
    int64_t bytes;
    int from, tiles; /* it lies on so many, the first of which this is */
    bool always;
} life;

typedef struct layout {
    const ts_ipu *ipu;
    const ts_program *p;
    life *lives;
    int n;
} layout;

static int last_reader(const ts_program *p, const ts_value *v, int device, int from)
{
    int last = from;

    for (int i = from; i < p->nkernels; i++)
        for (int r = 0; r < p->kernels[i]->nreads && p->kernels[i]->device == device; r++)
            if (p->kernels[i]->reads[r] == v)
                last = i;
    return last;
}

static bool touches(const ts_kernel *k, const ts_value *v)
{
    for (int r = 0; r < k->nreads; r++)
        if (k->reads[r] == v)
            return true;
    return k->load == v || k->store == v;
}

/* What is kept in the host's memory is here from where it is first loaded. */
static life life_of_remote(const ts_program *p, const ts_value *v, const ts_spot *s)
{
    life x = {.first = p->nkernels, .last = -1, .bytes = (int64_t)s->bytes * TS_MAX(1, s->depth)};

    for (int i = 0; i < p->nkernels; i++)
        if (p->kernels[i]->device == s->device && touches(p->kernels[i], v)) {
            x.first = TS_MIN(x.first, i);
            x.last = i;
        }
    return x;
}

static bool is_sent(const ts_program *p, const ts_value *v)
{
    for (int i = 0; i < p->pipe.nsends; i++)
        if (p->sent[i] == v)
            return true;
    return false;
}

/* When a value is in a device's memory. What waits for other devices or micro-batches is there all the
 * time, as are states. */
static life life_of(const ts_program *p, const ts_value *v, const ts_spot *s)
{
    const ts_place *q = &p->place[v->id];
    bool all = v->kind != TS_VALUE_NODE || q->kernel < 0 || s != &q->spot || s->depth > 1;
    life x = {
        .first = 0, .last = p->nkernels - 1, .bytes = (int64_t)s->bytes * TS_MAX(1, s->depth)};

    if (s->remote)
        return life_of_remote(p, v, s);
    x.always = v->kind == TS_VALUE_STATE;
    if (all || is_sent(p, v))
        return x;
    x.first = q->kernel;
    x.last = last_reader(p, v, s->device, q->kernel);
    return x;
}

/* Lays the values of a device on its tiles, one after the other around them. */
static void lay(ts_arena *a, layout *l, int device)
{
    const ts_program *p = l->p;
    int at = 0;

    for (int i = 0; i < p->g->nvalues; i++)
        for (const ts_spot *s = &p->place[i].spot; s && p->place[i].home == TS_HOME_BLOCK;
             s = s->next) {
            if (s->device != device || !s->bytes || s->shares || p->place[i].alias)
                continue;
            life x = life_of(p, p->g->values[i], s);
            if (x.last < x.first) /* nobody here touches it */
                continue;
            x.tiles = (int)TS_MIN(l->ipu->tiles, (x.bytes + GRAIN - 1) / GRAIN);
            x.from = at;
            at = (at + x.tiles) % l->ipu->tiles;
            TS_PUSH(a, l->lives, l->n, x);
        }
}

/* What a tile has of a value: whole grains, the first tiles one more where it does not come out even. */
static int64_t share(const life *x, int i)
{
    int64_t grains = (x->bytes + GRAIN - 1) / GRAIN;

    return (grains / x->tiles + (i < grains % x->tiles)) * GRAIN;
}

static void put(const layout *l, const life *x, int sign, int64_t *now)
{
    for (int i = 0; i < x->tiles; i++)
        now[(x->from + i) % l->ipu->tiles] += sign * share(x, i);
}

static int by_first(const void *a, const void *b)
{
    return ((const life *)a)->first - ((const life *)b)->first;
}

static int by_last(const void *a, const void *b)
{
    return (*(life *const *)a)->last - (*(life *const *)b)->last;
}

/* The tile's most: what lives at a kernel with what arrives for it. */
static void note_peak(const layout *l, const int64_t *now, double arriving, ts_ipu_tile *tiles)
{
    int64_t in = (int64_t)arriving;

    for (int t = 0; t < l->ipu->tiles; t++)
        if (now[t] + in > tiles[t].peak) {
            tiles[t].peak = now[t] + in;
            tiles[t].exchange = in;
        }
}

static int count_kernels(const ts_program *p, int device)
{
    int n = 0;

    for (int i = 0; i < p->nkernels; i++)
        n += p->kernels[i]->device == device;
    return n;
}

/* Walks the kernels of a device; values come and go. */
static void walk(ts_arena *a, layout *l, int device, const ts_ipu_cycles *cycles,
                 ts_ipu_tile *tiles)
{
    int64_t *now = TS_NEWS(a, int64_t, l->ipu->tiles), code;
    life **ends = TS_NEWS(a, life *, l->n);
    int come = 0, go = 0;

    if (l->n)
        qsort(l->lives, (size_t)l->n, sizeof(life), by_first);
    for (int i = 0; i < l->n; i++) {
        ends[i] = &l->lives[i];
        if (l->lives[i].always)
            put(l, &l->lives[i], 1, now);
    }
    for (int t = 0; t < l->ipu->tiles; t++)
        tiles[t].always = tiles[t].peak = now[t];
    if (l->n)
        qsort(ends, (size_t)l->n, sizeof(life *), by_last);
    for (int k = 0; k < l->p->nkernels; k++) {
        for (; go < l->n && ends[go]->last < k; go++)
            if (!ends[go]->always)
                put(l, ends[go], -1, now);
        for (; come < l->n && l->lives[come].first <= k; come++)
            if (!l->lives[come].always)
                put(l, &l->lives[come], 1, now);
        if (l->p->kernels[k]->device == device)
            note_peak(l, now, cycles[k].in, tiles);
    }
    code = CODE + (int64_t)CODE_OF_KERNEL * count_kernels(l->p, device);
    for (int t = 0; t < l->ipu->tiles; t++) {
        tiles[t].code = code;
        tiles[t].peak += code;
    }
}

/* What the plan could not fill of the block is not filled on the tiles either. */
static void add_gaps(const layout *l, int device, ts_ipu_tile *tiles)
{
    int64_t live = 0, now = 0, gaps;

    for (int k = 0; k < l->p->nkernels; k++) {
        now = 0;
        for (int i = 0; i < l->n; i++)
            now += l->lives[i].first <= k && k <= l->lives[i].last ? l->lives[i].bytes : 0;
        live = TS_MAX(live, now);
    }
    gaps = TS_MAX(0, (int64_t)l->p->bytes[device].peak - live) / l->ipu->tiles;
    for (int t = 0; t < l->ipu->tiles; t++) {
        tiles[t].gaps = gaps;
        tiles[t].peak += gaps;
    }
}

/* --- all --- */

void ts_ipu_price(ts_arena *a, const ts_ipu *ipu, const ts_program *p, const ts_options *opt,
                  ts_ipu_model *out)
{
    work w = {.p = p, .seen = TS_NEWS(a, int, p->g->nvalues)};

    *out = (ts_ipu_model){.ipu = ipu};
    out->kernels = TS_NEWS(a, ts_ipu_cycles, p->nkernels);
    out->tiles = TS_NEWS(a, ts_ipu_tile *, p->pipe.ndevices);
    out->stage = TS_NEWS(a, double, p->pipe.ndevices);
    for (int i = 0; i < p->nkernels; i++)
        out->kernels[i] = price(ipu, &w, p->kernels[i]);
    add_up(p, opt, out);
    for (int d = 0; d < p->pipe.ndevices; d++) {
        layout l = {.ipu = ipu, .p = p};
        out->tiles[d] = TS_NEWS(a, ts_ipu_tile, ipu->tiles);
        lay(a, &l, d);
        walk(a, &l, d, out->kernels, out->tiles[d]);
        add_gaps(&l, d, out->tiles[d]);
    }
}
