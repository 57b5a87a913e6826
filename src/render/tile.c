/* tile.c - how a contraction is blocked: which axis fills the lanes, which make a tile of
 * accumulators, and which sums are unrolled.
 *
 * Every choice is tried on a small cost model (multiply-adds against loads, tails, balance), see
 * choose(). What makes it work for every layout and op is that an operand's address is found by
 * asking the emitter, views included, and only its factors matter:
 *
 *   lanes      output and operands step by 1 or, an operand, by 0 (a broadcast); or a summed axis
 *              in which both operands step by 1 (then the lanes are added up at the end)
 *   unrolled   a summed axis that shares an index with a tile axis, like the kernel's columns with
 *              the output's: x + kx has few different values, so the loads are shared and padding
 *              is known at compile time
 */
#include "render/contract.h"

/* Steps of one axis, and multiply-adds, that are written out. On one core of a Xeon W1 of bench/ is 0.95 as fast
 * with MAX_UNROLL = 5; twice that, half or twice MAX_BODY change W1 to W4 by no more than the noise, 7 %. */
enum { MAX_UNROLL = 11, MAX_BODY = 160 };

/* --- where operands lie --- */

typedef struct probe {
    const ts_render *r;
    const ts_ix *address, *largest; /* of the last load; of the one from the largest tensor */
    int64_t size;                   /* of that */
    int loads;
} probe;

static const char *probe_pointer(const void *where, const ts_value *v)
{
    (void)where, (void)v;
    return "p";
}

static bool probe_stored(const void *where, const ts_value *v)
{
    const probe *p = where;

    return p->r->p->place[v->id].home != TS_HOME_NONE;
}

static void probe_need(const void *where, const char *what)
{
    (void)where, (void)what;
}

static void probe_load(const void *where, const ts_value *v, const ts_ix *address)
{
    probe *p = (probe *)where;
    int64_t size = ts_type_count(&v->type);

    p->address = address;
    p->loads++;
    if (p->loads == 1 || size > p->size) {
        p->largest = address;
        p->size = size;
    }
}

static void look(ts_render *r, const ts_value *v, const ts_ix *const *at, probe *p)
{
    ts_text scratch = {0};
    int next = 0;
    ts_emit e = {.a = r->a,
                 .out = &scratch,
                 .next = &next,
                 .prefix = "",
                 .index = "int64_t",
                 .where = p,
                 .stored = probe_stored,
                 .pointer = probe_pointer,
                 .need = probe_need,
                 .loaded = probe_load};

    p->r = r;
    ts_emit_at(&e, v, at);
    ts_text_free(&scratch);
}

const ts_ix *ts_render_address(ts_render *r, const ts_value *v, const ts_ix *const *at)
{
    probe p = {0};

    look(r, v, at, &p);
    return p.loads == 1 ? p.address : NULL;
}

const ts_ix *ts_render_largest(ts_render *r, const ts_value *v, const ts_ix *const *at)
{
    probe p = {0};

    look(r, v, at, &p);
    return p.largest;
}

static void axis_vars(ts_nest *x, const ts_atom **atoms, const ts_ix **axes)
{
    for (int i = 0; i < x->s.naxes; i++) {
        atoms[i] = ts_atom_var(x->r->a, x->s.axis[i], 0, x->s.extent[i] - 1);
        axes[i] = ts_ix_var(x->r->a, atoms[i]);
    }
}

void ts_nest_at(ts_nest *x, const ts_affine *f, int rank, const ts_ix *const *axes,
                const ts_ix **at)
{
    for (int d = 0; d < rank; d++)
        at[d] = ts_spec_ix(x->r->a, &f[d], x->s.naxes, axes);
}

/* The number of places of `atom` after which a quotient or remainder in x starts anew, or 0. */
static int64_t period(const ts_ix *x, const ts_atom *atom)
{
    for (int i = 0; i < x->n; i++) {
        const ts_atom *part = x->t[i].atom;
        int64_t k;
        if (!part->of || !ts_ix_uses(part->of, atom))
            continue;
        if (!ts_ix_linear(part->of, atom))
            return period(part->of, atom);
        k = ts_ix_coef(part->of, atom);
        return k > 0 && part->by % k == 0 ? part->by / k : 0;
    }
    return 0;
}

/* Fills in step[], linear[] and period[]; false when an operand is not a plain load. */
static bool find_steps(ts_nest *x)
{
    const ts_atom *atoms[TS_AXES];
    const ts_ix *axes[TS_AXES], *at[TS_MAX_RANK], *address[3];

    axis_vars(x, atoms, axes);
    ts_nest_at(x, x->s.a, x->n->in[0]->type.rank, axes, at);
    address[0] = ts_render_address(x->r, x->n->in[0], at);
    ts_nest_at(x, x->s.b, x->n->in[1]->type.rank, axes, at);
    address[1] = ts_render_address(x->r, x->n->in[1], at);
    ts_nest_at(x, x->s.out, x->n->out[0]->type.rank, axes, at);
    address[2] = ts_emit_address(x->r->a, x->k->roots[0], at);
    for (int o = 0; o < 3; o++) {
        if (!address[o])
            return false;
        for (int i = 0; i < x->s.naxes; i++) {
            x->linear[o][i] = x->s.extent[i] == 1 || ts_ix_linear(address[o], atoms[i]);
            x->step[o][i] = x->s.extent[i] == 1 ? 0 : ts_ix_coef(address[o], atoms[i]);
            if (!x->linear[o][i])
                x->period[i] = period(address[o], atoms[i]);
        }
    }
    return true;
}

/* Axis i becomes i * lanes + (a new axis). */
static void split_axis(ts_nest *x, int i, int64_t lanes)
{
    ts_spec *s = &x->s;
    int at = i < s->nout ? s->nout : s->naxes;

    /* a new output axis goes behind the last one: the summed axes move up */
    for (int j = s->naxes; j > at; j--) {
        s->extent[j] = s->extent[j - 1];
        s->axis[j] = s->axis[j - 1];
    }
    for (int d = 0; d < TS_MAX_RANK; d++) {
        ts_affine *all[] = {&s->a[d], &s->b[d], &s->out[d]};
        for (int o = 0; o < 3; o++) {
            for (int j = s->naxes; j > at; j--)
                all[o]->k[j] = all[o]->k[j - 1];
            all[o]->k[at] = all[o]->k[i];
            all[o]->k[i] *= lanes;
        }
    }
    s->extent[at] = lanes;
    s->axis[at] = "l";
    s->extent[i] /= lanes;
    s->naxes++;
    s->nout += i < s->nout;
}

static int layout_lanes(const ts_value *v)
{
    while (v->kind == TS_VALUE_NODE && !v->layout.set && v->node->op->flags & TS_VIEW)
        v = v->node->in[0];
    return v->layout.set && v->layout.lanes > 1 ? v->layout.lanes : 0;
}

/* Splits axes until every address is linear: those that a lane layout cuts in two, and those that
 * a reshape made of two dims that lie apart, like the rows of [sequence, batch, features] in memory
 * as [batch, sequence, features]. */
static bool make_linear(ts_nest *x)
{
    int lanes = layout_lanes(x->n->in[0]);

    lanes = lanes ? lanes : layout_lanes(x->n->in[1]);
    lanes = lanes ? lanes : layout_lanes(x->k->roots[0]);
    for (;;) {
        int bad = -1;
        int64_t by;
        if (!find_steps(x))
            return false;
        for (int o = 0; o < 3; o++)
            for (int i = 0; i < x->s.naxes; i++)
                if (!x->linear[o][i])
                    bad = i;
        if (bad < 0)
            return true;
        by = x->period[bad] > 1 && x->s.extent[bad] % x->period[bad] == 0 ? x->period[bad] : lanes;
        if (by < 2 || x->s.extent[bad] % by || x->s.naxes + 1 >= TS_AXES)
            return false;
        split_axis(x, bad, by);
    }
}

static void swap_axes(ts_nest *x, int i, int j)
{
    ts_spec *s = &x->s;
    int64_t extent = s->extent[i];
    const char *axis = s->axis[i];

    s->extent[i] = s->extent[j];
    s->extent[j] = extent;
    s->axis[i] = s->axis[j];
    s->axis[j] = axis;
    for (int d = 0; d < TS_MAX_RANK; d++) {
        ts_affine *all[] = {&s->a[d], &s->b[d], &s->out[d]};
        for (int o = 0; o < 3; o++) {
            int64_t k = all[o]->k[i];
            all[o]->k[i] = all[o]->k[j];
            all[o]->k[j] = k;
        }
    }
}

/* With channels last the sums go in the order in which the weights lie. Where those are [kh][c][kw] a piece touches
 * the pixels of one row of the kernel at a time: those of all rows, of wide pictures, share two sets of the first cache. */
static bool sum_as_weights_lie(ts_nest *x)
{
    bool last = false, sorted = false;

    for (int u = x->s.nout; u < x->s.naxes; u++)
        last = last || (x->s.extent[u] > 1 && x->step[0][u] == 1 && x->step[1][u] != 1);
    while (last && !sorted) {
        sorted = true;
        for (int u = x->s.nout; u < x->s.naxes - 1 && sorted; u++)
            if (x->step[1][u] < x->step[1][u + 1]) {
                swap_axes(x, u, u + 1);
                sorted = false;
            }
        if (!sorted && !find_steps(x))
            return false;
    }
    return true;
}

static void find_bounds(ts_nest *x)
{
    for (int o = 0; o < 2; o++) {
        const ts_affine *f = o ? x->s.b : x->s.a;
        const ts_type *t = &x->n->in[o]->type;
        for (int d = 0; d < t->rank; d++) {
            int64_t lo = f[d].c, hi = f[d].c;
            for (int i = 0; i < x->s.naxes; i++) {
                int64_t far = f[d].k[i] * (x->s.extent[i] - 1);
                lo += TS_MIN(far, 0);
                hi += TS_MAX(far, 0);
            }
            if (lo < 0 || hi >= t->dim[d])
                x->bounds[x->nbounds++] = (ts_bound){&f[d], t->dim[d]};
        }
    }
}

/* --- the choice --- */

bool ts_nest_bounded(const ts_nest *x, int axis)
{
    for (int i = 0; i < x->nbounds; i++)
        if (x->bounds[i].f->k[axis])
            return true;
    return false;
}

static bool lane_ok(const ts_nest *x, int i)
{
    if (ts_nest_bounded(x, i))
        return false;
    if (i >= x->s.nout)
        return x->step[0][i] == 1 && x->step[1][i] == 1;
    return x->step[2][i] == 1 && (x->step[0][i] == 0 || x->step[0][i] == 1) &&
           (x->step[1][i] == 0 || x->step[1][i] == 1) && x->step[0][i] + x->step[1][i] > 0;
}

/* The same with what lies apart: vectors of it are put together and stored one by one. For what has nothing else in the
 * lanes, as a transposed convolution over rows with a stride (20 to 12 channels of 32 x 32, kernel 4, one sample: 19.6 ms
 * of a core element by element, 0.1 so). */
static bool lane_apart(const ts_nest *x, int i)
{
    bool summed = i >= x->s.nout;

    if (ts_nest_bounded(x, i) || x->step[0][i] < 0 || x->step[1][i] < 0)
        return false;
    return summed ? x->step[0][i] > 0 && x->step[1][i] > 0
                  : x->step[2][i] > 0 && x->step[0][i] + x->step[1][i] > 0;
}

/* The summed axis that shares an index of an operand with axis t, if it is short. */
static int partner(const ts_nest *x, int t)
{
    for (int o = 0; o < 2; o++)
        for (int d = 0; d < x->n->in[o]->type.rank; d++) {
            const ts_affine *f = o ? &x->s.b[d] : &x->s.a[d];
            if (!f->k[t])
                continue;
            for (int u = x->s.nout; u < x->s.naxes; u++)
                if (f->k[u] && x->s.extent[u] > 1 && x->s.extent[u] <= MAX_UNROLL)
                    return u;
        }
    return -1;
}

/* How many different addresses an operand has within the unrolled body. */
static int64_t distinct(const ts_nest *x, int o, const int64_t *size)
{
    int64_t seen[4096];
    int axes[4], n = 0, count = 0;
    int64_t at[4] = {0};

    for (int i = 0; i < x->s.naxes; i++)
        if ((i == x->tile[0] || i == x->tile[1] || x->unroll[i]) && n < 4)
            axes[n++] = i;
    for (;;) {
        int64_t address = 0;
        int d, j;
        for (d = 0; d < n; d++)
            address += at[d] * x->step[o][axes[d]];
        for (j = 0; j < count && seen[j] != address; j++)
            ;
        if (j == count && count < TS_COUNT(seen))
            seen[count++] = address;
        for (d = n - 1; d >= 0; d--) {
            int64_t top = x->unroll[axes[d]]      ? x->s.extent[axes[d]]
                          : axes[d] == x->tile[0] ? size[0]
                                                  : size[1];
            if (++at[d] < top)
                break;
            at[d] = 0;
        }
        if (d < 0)
            return count;
    }
}

/* The share of the unrolled terms that padding does not remove: known only when the tile spans its
 * axis. */
static double valid_share(const ts_nest *x, const int64_t *size)
{
    double share = 1;

    for (int b = 0; b < x->nbounds; b++)
        for (int t = 0; t < 2; t++) {
            int ax = x->tile[t], u = ax < 0 ? -1 : partner(x, ax);
            int64_t good = 0;
            if (ax < 0 || u < 0 || !x->unroll[u] || !x->bounds[b].f->k[ax] ||
                size[t] != x->s.extent[ax])
                continue;
            for (int64_t i = 0; i < size[t]; i++)
                for (int64_t j = 0; j < x->s.extent[u]; j++) {
                    int64_t v =
                        x->bounds[b].f->c + i * x->bounds[b].f->k[ax] + j * x->bounds[b].f->k[u];
                    good += v >= 0 && v < x->bounds[b].size;
                }
            share *= (double)good / (double)(size[t] * x->s.extent[u]);
        }
    return share;
}

bool ts_nest_updates(const ts_nest *x)
{
    for (int r = 0; r < x->k->nroots; r++)
        if (x->r->p->place[x->k->roots[r]->id].alias)
            return true;
    return false;
}

/* How many elements of an axis a piece takes. */
static int64_t block_of(const ts_nest *x, int axis, int width)
{
    int64_t n = axis == x->lane && !x->across ? width : 1;

    for (int t = 0; t < 2; t++)
        if (axis == x->tile[t])
            n *= x->size[t];
    return n;
}

/* Bytes of operand o that so many steps along each axis reach. */
static double reach(const ts_nest *x, int o, const int64_t *size)
{
    const ts_affine *f = o ? x->s.b : x->s.a;
    const ts_type *t = &x->n->in[o]->type;
    double n = (double)ts_dtype_size(t->dtype);

    for (int d = 0; d < t->rank; d++) {
        int64_t span = 1, steps = 1; /* overlapping steps reach a span, wide ones leave gaps */
        for (int i = 0; i < x->s.naxes; i++) {
            span += (f[d].k[i] < 0 ? -f[d].k[i] : f[d].k[i]) * (size[i] - 1);
            steps *= f[d].k[i] ? size[i] : 1;
        }
        n *= (double)TS_MIN(TS_MIN(span, steps), t->dim[d]);
    }
    return n;
}

double ts_nest_footprint(const ts_nest *x, int o, int width, int whole)
{
    int64_t size[TS_AXES];

    for (int i = 0; i < x->s.naxes; i++)
        size[i] = i >= x->s.nout || i == whole ? x->s.extent[i] : block_of(x, i, width);
    return reach(x, o, size);
}

/* Cycles in which so many vectors of operand o come from level 2, where a piece walks more of it than the first holds. */
static double arrival(const ts_nest *x, int o, int width, double vectors)
{
    const ts_machine_model *m = &x->r->m;

    if (ts_nest_footprint(x, o, width, -1) <= (double)m->level1)
        return 0;
    return vectors * (double)(width * ts_dtype_size(x->n->in[o]->type.dtype)) / m->near;
}

/* The loads or stores of a vector of o (2: the result) that is no piece of memory. */
static double apart(const ts_nest *x, int o, int width)
{
    return x->lane >= 0 && x->step[o][x->lane] > 1 ? width : 1;
}

/* Cycles of one unrolled body for a tile of this size. Loads go beside the multiply-adds, two a cycle, but
 * take a part of a slot each; too few accumulators wait for each other. */
static double body_cost(const ts_nest *x, int width, const int64_t *size)
{
    const ts_machine_model *m = &x->r->m;
    double each = 1 / ts_machine_rate(m, width), fma = (double)(size[0] * size[1]), loads = 0,
           near = 0;

    for (int i = 0; i < x->s.naxes; i++)
        if (x->unroll[i])
            fma *= (double)x->s.extent[i];
    fma *= valid_share(x, size);
    for (int o = 0; o < 2; o++) {
        bool vector = x->lane >= 0 && x->step[o][x->lane] == 1;
        double n = (double)distinct(x, o, size);
        loads += n * (vector ? each : apart(x, o, width) / m->units);
        near += vector ? arrival(x, o, width, n) : 0;
    }
    return TS_MAX(TS_MAX(fma * each, 0.95 * loads), TS_MAX(1.15 * near, m->latency)) + 0.3 * loads +
           1.0 / m->units;
}

/* Blocks of the lane axis in the part that is done in vectors of `width`. */
typedef struct lane_part {
    int width;
    int64_t blocks;
} lane_part;

/* The tile that a part of the lane axis leaves whole, and what is left of it. */
static void tile_counts(const ts_nest *x, const lane_part *p, int64_t *whole, int64_t *rest)
{
    for (int t = 0; t < 2; t++) {
        int64_t e = x->tile[t] < 0 ? 1 : x->s.extent[x->tile[t]];
        if (x->tile[t] == x->lane && x->lane >= 0)
            e = p->blocks;
        whole[t] = e / x->size[t];
        rest[t] = e % x->size[t];
    }
}

/* Cycles of one core for a part, and its pieces. */
static double part_cost(ts_nest *x, const lane_part *p, double *pieces)
{
    double sums = 1, outputs = 1, cost = 0, units = x->r->m.units;
    double store = (x->across ? 12 : 3 * apart(x, 2, p->width)) / units, start = 6 / units;
    int64_t whole[2], rest[2];

    for (int i = 0; i < x->s.naxes; i++) {
        double n = (double)x->s.extent[i];
        if (i == x->lane && x->across)
            sums *= (double)((x->s.extent[i] + p->width - 1) / p->width);
        else if (i >= x->s.nout)
            sums *= x->unroll[i] ? 1 : n;
        else if (i != x->tile[0] && i != x->tile[1])
            outputs *= i == x->lane ? (double)p->blocks : n;
    }
    tile_counts(x, p, whole, rest);
    for (int q = 0; q < 4; q++) {
        int64_t size[2] = {q & 1 ? rest[0] : x->size[0], q & 2 ? rest[1] : x->size[1]};
        double count = (double)((q & 1 ? 1 : whole[0]) * (q & 2 ? 1 : whole[1]));
        if (size[0] && size[1] && count > 0)
            cost += count * (sums * body_cost(x, p->width, size) +
                             (double)(size[0] * size[1]) * store + start);
    }
    *pieces = outputs * (double)((whole[0] + (rest[0] > 0)) * (whole[1] + (rest[1] > 0)));
    return cost * outputs;
}

/* All parts of the lane axis. What is left of it goes with the last whole vectors (contract.c), so it
 * makes no pieces. */
static void find_cost(ts_nest *x)
{
    int64_t from = 0;
    double pieces = 0, more;

    x->cycles = 0;
    for (int width = x->width; width; width = ts_nest_rest(x, from)) {
        lane_part p = {width, 1};
        if (x->lane >= 0 && !x->across)
            p.blocks = TS_MAX(1, (x->s.extent[x->lane] - from) / width);
        x->cycles += part_cost(x, &p, &more);
        pieces = TS_MAX(pieces, more);
        from += p.blocks * width;
        if (x->lane < 0 || x->across || from >= x->s.extent[x->lane])
            break;
    }
    x->cost = ts_price_shared(&x->r->m, x->cycles, pieces);
}

/* How the lanes from `from` on, fewer than a vector, are done: by the narrowest vector that takes them all,
 * which does some of those before them again; or, where a result is not stored twice (a weight that
 * is updated in place), by narrower and narrower ones and at last one by one. */
int ts_nest_rest(const ts_nest *x, int64_t from)
{
    int64_t left = x->s.extent[x->lane] - from;
    int width = x->width;

    if (ts_nest_updates(x)) {
        while (width > 1 && width > left)
            width = width > 4 ? width / 2 : 1;
        return width;
    }
    while (width > 4 && width / 2 >= left)
        width /= 2;
    return width;
}

static int64_t lane_blocks(const ts_nest *x)
{
    return x->lane < 0 || x->across ? 1 : x->s.extent[x->lane] / x->width;
}

/* The cost, by which tiles are compared: along an axis that padding bounds a tile is written three times, for its first,
 * its last and the other blocks, and along two of them nine times, which the C compiler pays for. */
static double weighed(const ts_nest *x)
{
    int written = 1;

    for (int t = 0; t < 2; t++)
        written *= x->tile[t] >= 0 && ts_nest_bounded(x, x->tile[t]) ? 3 : 1;
    return x->cost * (1 + 0.01 * written);
}

static void try_tile(ts_nest *x, ts_nest *best)
{
    int64_t e0 = x->tile[0] < 0 ? 1 : x->s.extent[x->tile[0]],
            e1 = x->tile[1] < 0 ? 1 : x->s.extent[x->tile[1]];
    int64_t room = ts_machine_accumulators(&x->r->m), body = 1;

    for (int i = 0; i < x->s.naxes; i++)
        body *= x->unroll[i] ? x->s.extent[i] : 1;
    if (x->tile[0] >= 0 && x->tile[0] == x->lane)
        e0 = lane_blocks(x);
    if (x->tile[1] >= 0 && x->tile[1] == x->lane)
        e1 = lane_blocks(x);
    for (int64_t p = 1; p <= TS_MIN(e0, room); p++)
        for (int64_t q = 1; q <= TS_MIN(e1, room) && p * q <= room; q++) {
            if ((p * q * 2 <= room && p < e0 && q < e1 && p * q < 8) || p * q * body > MAX_BODY)
                continue; /* much too small when there is more to take, or too much to write out */
            x->size[0] = p;
            x->size[1] = q;
            find_cost(x);
            if (best->cost < 0 || weighed(x) < weighed(best))
                *best = *x;
        }
}

/* Places of summed axis u at which bound q is touched, whatever the other axes are. */
static int64_t edges(const ts_nest *x, const ts_bound *q, int u)
{
    int64_t lo = q->f->c, hi = q->f->c, k = q->f->k[u], inside = 0;

    for (int i = 0; i < x->s.naxes; i++) {
        int64_t far = i == u ? 0 : q->f->k[i] * (x->s.extent[i] - 1);
        lo += TS_MIN(far, 0);
        hi += TS_MAX(far, 0);
    }
    for (int64_t v = 0; v < x->s.extent[u]; v++)
        inside += lo + k * v >= 0 && hi + k * v < q->size;
    return x->s.extent[u] - inside;
}

/* Would a tile along axis i have long edges? They are written out place by place: the padding of a
 * convolution of 400 taps was megabytes of text. Without a tile there, loops are clipped to it. */
static bool long_edges(const ts_nest *x, int i)
{
    enum { MOST_EDGES = 32 };

    for (int b = 0; b < x->nbounds; b++)
        for (int u = x->s.nout; u < x->s.naxes && x->bounds[b].f->k[i]; u++)
            if (x->bounds[b].f->k[u] && x->s.extent[u] > MOST_EDGES &&
                edges(x, &x->bounds[b], u) > MOST_EDGES)
                return true;
    return false;
}

static bool tileable(const ts_nest *x, int i)
{
    return i < x->s.nout && (i == x->lane ? lane_blocks(x) > 1 : x->s.extent[i] > 1) &&
           !x->edged[i];
}

/* Of equal choices the later axes: a tile along a row of a picture leaves the rows to the
 * threads. */
static void try_lane(ts_nest *x, ts_nest *best)
{
    int n = x->s.nout;

    for (int i = -1; i < n; i++)
        for (int j = n - 1; j >= (i < 0 ? -1 : i + 1); j--) {
            if ((i >= 0 && !tileable(x, i)) || (j >= 0 && !tileable(x, j)))
                continue;
            x->tile[0] = i;
            x->tile[1] = j;
            for (int which = 0; which < 4;
                 which++) { /* with neither, either or both partners unrolled */
                memset(x->unroll, 0, sizeof(x->unroll));
                for (int t = 0; t < 2; t++) {
                    int u = x->tile[t] < 0 ? -1 : partner(x, x->tile[t]);
                    if (u >= 0 && u != x->lane && which & (1 << t))
                        x->unroll[u] = true;
                }
                try_tile(x, best);
            }
        }
}

/* Can a last vector of both operands overlap the one before, what was summed already taken as zeros? */
static bool masks(const ts_nest *x)
{
    return x->n->in[0]->type.dtype == TS_F32 && x->n->in[1]->type.dtype == TS_F32;
}

/* Widths worth trying: the machine's, 8 and 4, as far as the axis has so many. */
static void try_axis(ts_nest *x, int i, ts_nest *best)
{
    static const int widths[] = {16, 8, 4};

    for (int w = 0; w < TS_COUNT(widths); w++) {
        if (widths[w] > x->r->m.isa.width || x->s.extent[i] < widths[w] ||
            (i >= x->s.nout && x->s.extent[i] % widths[w] && !masks(x)))
            continue;
        x->lane = i;
        x->across = i >= x->s.nout;
        x->width = widths[w];
        try_lane(x, best);
        if (x->s.extent[i] % widths[w] == 0)
            break;
    }
}

static bool choose(ts_nest *x, bool (*ok)(const ts_nest *, int))
{
    ts_nest best = *x;

    for (int i = 0; i < x->s.nout; i++)
        x->edged[i] = long_edges(x, i);
    best.cost = -1;
    for (int i = 0; i < x->s.naxes; i++)
        if (x->s.extent[i] >= 4 && ok(x, i))
            try_axis(x, i, &best);
    if (best.cost < 0)
        return false;
    *x = best;
    return true;
}

bool ts_nest_linear(ts_nest *x)
{
    if (!make_linear(x) || !sum_as_weights_lie(x))
        return false;
    find_bounds(x);
    return true;
}

bool ts_nest_choose(ts_nest *x)
{
    return ts_nest_linear(x) && choose(x, lane_ok);
}

bool ts_nest_choose_apart(ts_nest *x)
{
    return ts_nest_linear(x) && choose(x, lane_apart);
}

/* Operands that a core's cache does not hold, of one batch, come again for every tile that does not
 * move them: from further away, and a row after the other, each on another page. */
double ts_nest_rereads(const ts_nest *x)
{
    double cycles = 0;

    for (int o = 0; o < 2; o++) {
        int64_t size[TS_AXES];
        double bytes, times = 1;
        for (int i = 0; i < x->s.naxes; i++) {
            int64_t n = x->s.extent[i];
            bool walked = x->step[o][i] && (i >= x->s.nout || !x->step[!o][i]);
            size[i] = walked ? n : 1;
            if (walked || i >= x->s.nout)
                continue;
            if (i == x->lane && !x->across)
                n = (n + x->width - 1) / x->width;
            for (int t = 0; t < 2; t++)
                if (i == x->tile[t])
                    n = (n + x->size[t] - 1) / x->size[t];
            times *= (double)n;
        }
        bytes = reach(x, o, size);
        if (bytes > (double)x->r->m.level2)
            cycles += bytes * times / x->r->m.far;
    }
    return cycles;
}
