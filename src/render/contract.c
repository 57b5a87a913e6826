/* contract.c - matmul and convolution, forward and both gradients, as one register-blocked
 * template.
 *
 * A contraction is a nest of output axes and summed axes (its spec). One axis becomes the vector
 * lanes, one or two output axes a tile of accumulators that stay in registers while the sums run:
 *
 *   for each tile (cut among the threads)
 *     acc[t1][t2] = 0
 *     for the summed axes                         clipped where padding would be read
 *       acc[t1][t2] += a[..] * b[..]              unrolled; equal loads are made once
 *     epilogue: bias, activation, weight update   while the sums are still in registers
 *     store
 *
 * Which axes, and how large a tile: every choice is tried on a small cost model (multiply-adds
 * against loads, tails, balance), see choose(). What makes it work for every layout and op is that
 * an operand's address is found by asking the emitter, views included, and only its factors matter:
 *   lanes      output and operands step by 1 or, an operand, by 0 (a broadcast); or a summed axis
 * in which both operands step by 1 (then the lanes are added up at the end) unrolled   a summed
 * axis that shares an index with a tile axis, like the kernel's columns with the output's: x + kx
 * has few different values, so the loads are shared and padding is known at compile time
 */
#include "render/render.h"

enum {
    MAX_UNROLL = 11,
    MAX_BODY = 160
}; /* steps of one axis, and multiply-adds, that are written out */

typedef struct bound { /* 0 <= index in one dim of an operand < size must be tested */
    const ts_affine *f;
    int64_t size;
} bound;

typedef struct nest {
    ts_render *r;
    const ts_kernel *k;
    const ts_node *n;
    ts_spec s;
    int64_t step[3][TS_AXES]; /* a, b, out: distance in memory for one step along an axis */
    bool linear[3][TS_AXES];
    bound bounds[2 * TS_MAX_RANK];
    int nbounds;
    /* the choice */
    int lane;    /* axis, -1: scalars */
    bool across; /* the lane axis is summed */
    int width;
    int tile[2];     /* axes or -1 */
    int64_t size[2]; /* of the tile */
    bool unroll[TS_AXES];
    bool empty; /* nothing is summed: the result is zero */
    double cost;
} nest;

/* --- where operands lie --- */

typedef struct probe {
    const ts_render *r;
    const ts_ix *address;
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

    (void)v;
    p->address = address;
    p->loads++;
}

const ts_ix *ts_render_address(ts_render *r, const ts_value *v, const ts_ix *const *at)
{
    ts_text scratch = {0};
    probe p = {.r = r};
    int next = 0;
    ts_emit e = {.a = r->a,
                 .out = &scratch,
                 .next = &next,
                 .prefix = "",
                 .index = "int64_t",
                 .where = &p,
                 .stored = probe_stored,
                 .pointer = probe_pointer,
                 .need = probe_need,
                 .loaded = probe_load};

    ts_emit_at(&e, v, at);
    ts_text_free(&scratch);
    return p.loads == 1 ? p.address : NULL;
}

static void axis_vars(nest *x, const ts_atom **atoms, const ts_ix **axes)
{
    for (int i = 0; i < x->s.naxes; i++) {
        atoms[i] = ts_atom_var(x->r->a, x->s.axis[i], 0, x->s.extent[i] - 1);
        axes[i] = ts_ix_var(x->r->a, atoms[i]);
    }
}

static void coordinates(nest *x, const ts_affine *f, int rank, const ts_ix *const *axes,
                        const ts_ix **at)
{
    for (int d = 0; d < rank; d++)
        at[d] = ts_spec_ix(x->r->a, &f[d], x->s.naxes, axes);
}

/* Fills in step[] and linear[]; false when an operand is not a plain load. */
static bool find_steps(nest *x)
{
    const ts_atom *atoms[TS_AXES];
    const ts_ix *axes[TS_AXES], *at[TS_MAX_RANK], *address[3];

    axis_vars(x, atoms, axes);
    coordinates(x, x->s.a, x->n->in[0]->type.rank, axes, at);
    address[0] = ts_render_address(x->r, x->n->in[0], at);
    coordinates(x, x->s.b, x->n->in[1]->type.rank, axes, at);
    address[1] = ts_render_address(x->r, x->n->in[1], at);
    coordinates(x, x->s.out, x->n->out[0]->type.rank, axes, at);
    address[2] = ts_emit_address(x->r->a, x->k->roots[0], at);
    for (int o = 0; o < 3; o++) {
        if (!address[o])
            return false;
        for (int i = 0; i < x->s.naxes; i++) {
            x->linear[o][i] = x->s.extent[i] == 1 || ts_ix_linear(address[o], atoms[i]);
            x->step[o][i] = x->s.extent[i] == 1 ? 0 : ts_ix_coef(address[o], atoms[i]);
        }
    }
    return true;
}

/* Axis i becomes i * lanes + (a new axis). */
static void split_axis(nest *x, int i, int64_t lanes)
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

/* Splits the axes that a lane layout cuts in two, until every address is linear. */
static bool make_linear(nest *x)
{
    int lanes = layout_lanes(x->n->in[0]);

    lanes = lanes ? lanes : layout_lanes(x->n->in[1]);
    lanes = lanes ? lanes : layout_lanes(x->k->roots[0]);
    for (int tries = 0; tries < 4; tries++) {
        int bad = -1;
        if (!find_steps(x))
            return false;
        for (int o = 0; o < 3; o++)
            for (int i = 0; i < x->s.naxes; i++)
                if (!x->linear[o][i])
                    bad = i;
        if (bad < 0)
            return true;
        if (!lanes || x->s.extent[bad] % lanes || x->s.naxes + 1 >= TS_AXES)
            return false;
        split_axis(x, bad, lanes);
    }
    return false;
}

static void find_bounds(nest *x)
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
                x->bounds[x->nbounds++] = (bound){&f[d], t->dim[d]};
        }
    }
}

/* --- the choice --- */

static bool bounded(const nest *x, int axis)
{
    for (int i = 0; i < x->nbounds; i++)
        if (x->bounds[i].f->k[axis])
            return true;
    return false;
}

static bool lane_ok(const nest *x, int i)
{
    if (bounded(x, i))
        return false;
    if (i >= x->s.nout)
        return x->step[0][i] == 1 && x->step[1][i] == 1;
    return x->step[2][i] == 1 && (x->step[0][i] == 0 || x->step[0][i] == 1) &&
           (x->step[1][i] == 0 || x->step[1][i] == 1) && x->step[0][i] + x->step[1][i] > 0;
}

/* The summed axis that shares an index of an operand with axis t, if it is short. */
static int partner(const nest *x, int t)
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
static int64_t distinct(const nest *x, int o, const int64_t *size)
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
static double valid_share(const nest *x, const int64_t *size)
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

/* Slots of one unrolled body for a tile of this size. */
static double body_cost(const nest *x, const int64_t *size)
{
    double wide = x->width > 8 ? 2 : 1, fma = (double)(size[0] * size[1]), loads = 0;

    for (int i = 0; i < x->s.naxes; i++)
        if (x->unroll[i])
            fma *= (double)x->s.extent[i];
    fma *= valid_share(x, size);
    for (int o = 0; o < 2; o++) {
        bool vector = x->lane >= 0 && x->step[o][x->lane] == 1;
        loads += (double)distinct(x, o, size) * (vector ? wide : 1);
    }
    /* too few accumulators wait for each other: 4 cycles of latency on 2 pipes */
    return TS_MAX(TS_MAX(fma * wide, loads * 0.95), 8.0 / wide * wide) + 0.3 * loads + 1;
}

static int64_t lane_blocks(const nest *x)
{
    return x->lane < 0 || x->across ? 1 : x->s.extent[x->lane] / x->width;
}

static double total_cost(nest *x)
{
    double sums = 1, outputs = 1, cost = 0, tiles = 1, epilogue = 3 + (x->across ? 9 : 0);
    int64_t whole[2], rest[2], pieces;

    for (int i = 0; i < x->s.naxes; i++) {
        double n = (double)x->s.extent[i];
        if (i == x->lane && x->across)
            sums *= n / x->width;
        else if (i >= x->s.nout)
            sums *= x->unroll[i] ? 1 : n;
        else if (i != x->tile[0] && i != x->tile[1])
            outputs *= i == x->lane ? (double)lane_blocks(x) : n;
    }
    for (int t = 0; t < 2; t++) {
        int64_t e = x->tile[t] < 0 ? 1 : x->s.extent[x->tile[t]];
        if (x->tile[t] == x->lane && x->lane >= 0)
            e = lane_blocks(x);
        whole[t] = e / x->size[t];
        rest[t] = e % x->size[t];
    }
    for (int p = 0; p < 2; p++)
        for (int q = 0; q < 2; q++) {
            int64_t size[2] = {p ? rest[0] : x->size[0], q ? rest[1] : x->size[1]};
            double count = (double)((p ? 1 : whole[0]) * (q ? 1 : whole[1]));
            if (!size[0] || !size[1] || count == 0)
                continue;
            cost +=
                count * (sums * body_cost(x, size) + (double)(size[0] * size[1]) * epilogue + 6);
        }
    tiles = outputs * (double)((whole[0] + (rest[0] > 0)) * (whole[1] + (rest[1] > 0)));
    cost *= outputs;
    /* two threads: an odd or small number of pieces leaves one of them waiting */
    pieces = (int64_t)tiles;
    if (cost > 4000)
        cost *= pieces == 1 ? 1.9 : (double)((pieces + 1) / 2 * 2) / (double)pieces;
    return cost;
}

static void try_tile(nest *x, nest *best, int registers)
{
    int64_t e0 = x->tile[0] < 0 ? 1 : x->s.extent[x->tile[0]],
            e1 = x->tile[1] < 0 ? 1 : x->s.extent[x->tile[1]];
    int64_t room = registers >= 32 ? 26 : 12, body = 1;

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
            x->cost = total_cost(x);
            if (best->cost < 0 || x->cost < best->cost)
                *best = *x;
        }
}

static bool tileable(const nest *x, int i)
{
    return i < x->s.nout && (i == x->lane ? lane_blocks(x) > 1 : x->s.extent[i] > 1);
}

static void try_lane(nest *x, nest *best)
{
    int n = x->s.nout;

    for (int i = -1; i < n; i++)
        for (int j = i < 0 ? -1 : i + 1; j < n; j++) {
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
                try_tile(x, best, x->r->isa.registers);
            }
        }
}

/* Widths worth trying: the machine's, 8 and 4, as far as the axis has so many. */
static bool choose(nest *x)
{
    nest best = *x;
    static const int widths[] = {16, 8, 4};

    best.cost = -1;
    for (int i = 0; i < x->s.naxes; i++) {
        if (x->s.extent[i] < 4 || !lane_ok(x, i))
            continue;
        for (int w = 0; w < TS_COUNT(widths); w++) {
            if (widths[w] > x->r->isa.width || x->s.extent[i] < widths[w] ||
                (i >= x->s.nout && x->s.extent[i] % widths[w]))
                continue;
            x->lane = i;
            x->across = i >= x->s.nout;
            x->width = widths[w];
            try_lane(x, &best);
            if (x->s.extent[i] % widths[w] == 0)
                break;
        }
    }
    if (best.cost < 0)
        return false;
    *x = best;
    return true;
}

/* --- the code --- */

/* One part of the lane axis: `blocks` vectors of `width` from `from`; width 1 is plain numbers. */
typedef struct part {
    int64_t from, blocks;
    int width;
} part;

typedef struct writer {
    nest *x;
    ts_emit *e;
    part part;
    const ts_ix *axes[TS_AXES]; /* bound so far; tile and unrolled axes as they are walked */
    const ts_ix *base[2];       /* first element of the tile */
    int64_t size[2];            /* of this variant of it */
    const char *acc[32][32];
} writer;

static const ts_ix *lane_ix(writer *w, const ts_ix *block)
{
    ts_arena *a = w->x->r->a;
    const ts_ix *i = ts_ix_addc(a, ts_ix_mul(a, block, w->part.width), w->part.from);

    return w->part.width > 1 ? ts_ix_add(a, i, ts_ix_var(a, w->e->lane)) : i;
}

/* Sets the tile axes to element (i, j) of the tile. */
static void at_tile(writer *w, int64_t i, int64_t j)
{
    int64_t at[2] = {i, j};

    for (int t = 0; t < 2; t++) {
        int ax = w->x->tile[t];
        const ts_ix *c;
        if (ax < 0)
            continue;
        c = ts_ix_addc(w->x->r->a, w->base[t], at[t]);
        w->axes[ax] = ax == w->x->lane && !w->x->across ? lane_ix(w, c) : c;
    }
}

/* One term, if it exists here: "" always, NULL never, else the condition. */
static const char *term_condition(writer *w)
{
    const char *all = "";

    for (int b = 0; b < w->x->nbounds; b++) {
        const bound *q = &w->x->bounds[b];
        const ts_ix *i = ts_spec_ix(w->x->r->a, q->f, w->x->s.naxes, w->axes);
        const char *one;
        bool clipped = false;
        /* a loop over a summed axis was clipped to the bound, unless unrolled axes take part */
        for (int u = w->x->s.nout; u < w->x->s.naxes; u++)
            clipped = clipped ||
                      (q->f->k[u] && !w->x->unroll[u] && u != w->x->lane && w->x->s.extent[u] > 1);
        for (int u = 0; u < w->x->s.naxes; u++)
            if (q->f->k[u] && (w->x->unroll[u] || u == w->x->tile[0] || u == w->x->tile[1]))
                clipped = false;
        if (clipped)
            continue;
        one = ts_emit_inside(w->e, i, q->size);
        if (!one)
            return NULL;
        if (one[0])
            all = all[0] ? ts_arena_printf(w->e->a, "%s && %s", all, one) : one;
    }
    return all;
}

/* The unrolled terms of the tile. */
static void terms(writer *w, int from)
{
    nest *x = w->x;
    int u = from;

    while (u < x->s.naxes && !x->unroll[u])
        u++;
    if (u < x->s.naxes) {
        for (int64_t v = 0; v < x->s.extent[u]; v++) {
            w->axes[u] = ts_ix_const(x->r->a, v);
            terms(w, u + 1);
        }
        return;
    }
    for (int64_t i = 0; i < w->size[0]; i++)
        for (int64_t j = 0; j < w->size[1]; j++) {
            const ts_ix *a[TS_MAX_RANK], *b[TS_MAX_RANK];
            const char *cond, *p, *q;
            int mark;
            at_tile(w, i, j);
            cond = term_condition(w);
            if (!cond)
                continue;
            if (cond[0]) {
                ts_emit_line(w->e, "if (%s) {", cond);
                ts_emit_open(w->e, &mark);
            }
            coordinates(x, x->s.a, x->n->in[0]->type.rank, w->axes, a);
            coordinates(x, x->s.b, x->n->in[1]->type.rank, w->axes, b);
            p = ts_emit_at(w->e, x->n->in[0], a);
            q = ts_emit_at(w->e, x->n->in[1], b);
            ts_emit_line(w->e, "%s += %s * %s;", w->acc[i][j], p, q);
            if (cond[0])
                ts_emit_close(w->e, mark);
        }
}

/* The range of summed axis u that stays inside every bound it takes part in, as C text; the other
 * axes of the bound are bound already. With unrolled or tile axes in it, the range in which all of
 * them are inside. */
static void clip(writer *w, int u, const char **lo, const char **hi, int64_t *clo, int64_t *chi)
{
    nest *x = w->x;
    ts_arena *a = x->r->a;

    *lo = "0";
    *hi = ts_arena_printf(a, "%ld", (long)x->s.extent[u]);
    *clo = 0;
    *chi = x->s.extent[u];
    for (int b = 0; b < x->nbounds; b++) {
        const bound *q = &x->bounds[b];
        int64_t k = q->f->k[u], rlo, rhi;
        const ts_ix *rest = ts_ix_const(a, q->f->c);
        bool open = false;
        if (!k)
            continue;
        for (int i = 0; i < x->s.naxes; i++) {
            if (i == u || !q->f->k[i])
                continue;
            if (x->unroll[i] || i == x->tile[0] || i == x->tile[1])
                open = true;
            else
                rest = ts_ix_add(a, rest, ts_ix_mul(a, w->axes[i], q->f->k[i]));
        }
        if (open) { /* peeled by the caller: constants only */
            int64_t most = 0, least = 0;
            for (int i = 0; i < x->s.naxes; i++)
                if (i != u && q->f->k[i] && (x->unroll[i] || i == x->tile[0] || i == x->tile[1])) {
                    int64_t far = q->f->k[i] * (x->s.extent[i] - 1);
                    most += TS_MAX(far, 0);
                    least += TS_MIN(far, 0);
                }
            ts_ix_range(rest, &rlo, &rhi);
            rlo += least;
            rhi += most;
        } else
            ts_ix_range(rest, &rlo, &rhi);
        if (k > 0) { /* rest + k*u in [0, size) for every rest in the range */
            int64_t first = rlo >= 0 ? 0 : (-rlo + k - 1) / k,
                    end = rhi > q->size - 1 ? 0 : (q->size - 1 - rhi) / k + 1;
            if (open) {
                *clo = TS_MAX(*clo, first);
                *chi = TS_MIN(*chi, end);
            } else {
                const char *t = ts_ix_text(a, rest);
                if (rlo < 0)
                    *lo = ts_arena_printf(a, "max(%s, ceil_div(-(%s), %ld))", *lo, t, (long)k);
                if (end < x->s.extent[u])
                    *hi = ts_arena_printf(a, "min(%s, floor_div(%ld - (%s), %ld) + 1)", *hi,
                                          (long)(q->size - 1), t, (long)k);
            }
        } else { /* rest - m*u */
            int64_t m = -k;
            if (open) {
                int64_t first = rhi < q->size ? 0 : (rhi - q->size + 1 + m - 1) / m,
                        end = rlo < 0 ? 0 : rlo / m + 1;
                *clo = TS_MAX(*clo, first);
                *chi = TS_MIN(*chi, end);
            } else {
                const char *t = ts_ix_text(a, rest);
                if (rhi - 0 >= q->size)
                    *lo = ts_arena_printf(a, "max(%s, ceil_div((%s) - %ld, %ld))", *lo, t,
                                          (long)(q->size - 1), (long)m);
                if (rlo < m * (x->s.extent[u] - 1))
                    *hi = ts_arena_printf(a, "min(%s, floor_div(%s, %ld) + 1)", *hi, t, (long)m);
            }
        }
    }
    if (*chi < *clo)
        *chi = *clo;
}

static bool shares_bound_with_unrolled(const nest *x, int u)
{
    for (int b = 0; b < x->nbounds; b++)
        for (int i = 0; i < x->s.naxes && x->bounds[b].f->k[u]; i++)
            if (i != u && x->bounds[b].f->k[i] &&
                (x->unroll[i] || i == x->tile[0] || i == x->tile[1]))
                return true;
    return false;
}

/* Loops over the summed axes that are left, outermost first in spec order. */
static void sum_loops(writer *w, int from)
{
    nest *x = w->x;
    ts_emit *e = w->e;
    ts_arena *a = x->r->a;
    int u = from, mark;
    const char *lo, *hi;
    int64_t clo, chi;

    while (u < x->s.naxes && (x->unroll[u] || (x->s.extent[u] == 1 && u != x->lane)))
        u++;
    if (u == x->s.naxes) {
        terms(w, x->s.nout);
        return;
    }
    if (u == x->lane) { /* across: vectors along the summed axis */
        const char *v = ts_emit_name(e, "v");
        int64_t blocks = x->s.extent[u] / x->width;
        if (blocks == 1)
            w->axes[u] = ts_ix_var(a, e->lane);
        else {
            ts_emit_line(e, "for (int64_t %s = 0; %s < %ld; %s++) {", v, v, (long)blocks, v);
            ts_emit_open(e, &mark);
            w->axes[u] =
                ts_ix_add(a, ts_ix_mul(a, ts_ix_var(a, ts_atom_var(a, v, 0, blocks - 1)), x->width),
                          ts_ix_var(a, e->lane));
        }
        sum_loops(w, u + 1);
        if (blocks > 1)
            ts_emit_close(e, mark);
        return;
    }
    clip(w, u, &lo, &hi, &clo, &chi);
    if (shares_bound_with_unrolled(x, u)) {
        /* edges one by one, where each term knows whether it exists */
        for (int64_t v = 0; v < clo; v++) {
            ts_emit_line(e, "{");
            ts_emit_open(e, &mark);
            w->axes[u] = ts_ix_const(a, v);
            sum_loops(w, u + 1);
            ts_emit_close(e, mark);
        }
        if (clo < chi) {
            const ts_atom *var = ts_emit_loop(e, x->s.axis[u], clo, chi);
            ts_emit_open(e, &mark);
            w->axes[u] = ts_ix_var(a, var);
            sum_loops(w, u + 1);
            ts_emit_close(e, mark);
        }
        for (int64_t v = chi; v < x->s.extent[u]; v++) {
            ts_emit_line(e, "{");
            ts_emit_open(e, &mark);
            w->axes[u] = ts_ix_const(a, v);
            sum_loops(w, u + 1);
            ts_emit_close(e, mark);
        }
        return;
    }
    const char *name = ts_emit_name(e, x->s.axis[u]);
    if (strcmp(lo, "0") || strchr(hi, '(')) {
        const char *l = ts_emit_name(e, "lo"), *h = ts_emit_name(e, "hi");
        ts_render_need(x->r, "clip");
        ts_emit_line(e, "const int64_t %s = %s, %s = %s;", l, lo, h, hi);
        lo = l;
        hi = h;
    }
    ts_emit_line(e, "for (int64_t %s = %s; %s < %s; %s++) {", name, lo, name, hi, name);
    ts_emit_open(e, &mark);
    w->axes[u] = ts_ix_var(a, ts_atom_var(a, name, 0, x->s.extent[u] - 1));
    sum_loops(w, u + 1);
    ts_emit_close(e, mark);
}

/* Bias, activation, update: the roots at every element of the tile, with the sums as the
 * contraction's value. */
static void epilogue(writer *w)
{
    nest *x = w->x;
    ts_emit *e = w->e;
    ts_dtype t = x->n->out[0]->type.dtype;
    int lanes = e->lanes;

    for (int64_t i = 0; i < w->size[0]; i++)
        for (int64_t j = 0; j < w->size[1]; j++) {
            const ts_ix *at[TS_MAX_RANK];
            const char *acc = w->acc[i][j], *names[64];
            at_tile(w, i, j);
            if (x->across) {
                ts_render_need(x->r, ts_arena_printf(e->a, "add up %d", x->width));
                e->lanes = 0;
                acc = ts_emit_temp(e, TS_F32, "add_up_f32x%d(%s)", x->width, acc);
            }
            if (t == TS_F16 || t == TS_BF16) {
                ts_render_need(x->r, "half");
                acc = ts_emit_temp(e, t, "round_%s_%s(%s)", ts_dtype_name(t), ts_emit_suffix(e, t),
                                   acc);
            }
            coordinates(x, x->s.out, x->n->out[0]->type.rank, w->axes, at);
            ts_emit_bind(e, x->n->out[0], at, acc);
            for (int r = 0; r < x->k->nroots; r++) {
                const ts_value *v = x->k->roots[r];
                names[r] = ts_emit_recall(e, v, at);
                if (!names[r]) {
                    names[r] = ts_emit_node(e, v, at);
                    ts_emit_bind(e, v, at, names[r]);
                }
            }
            for (int r = 0; r < x->k->nroots; r++)
                ts_emit_store(e, x->k->roots[r], at, names[r]);
            e->lanes = lanes;
        }
}

static void tile(writer *w)
{
    nest *x = w->x;
    const char *t = w->part.width > 1 ? ts_arena_printf(x->r->a, "f32x%d", w->part.width) : "float";

    for (int64_t i = 0; i < w->size[0]; i++) {
        const char *list = "";
        for (int64_t j = 0; j < w->size[1]; j++) {
            w->acc[i][j] = ts_arena_printf(x->r->a, "acc_%ld_%ld", (long)i, (long)j);
            list = ts_arena_printf(x->r->a, "%s%s%s = {0}", list, j % 8 ? ", " : "", w->acc[i][j]);
            if (j % 8 == 7 || j + 1 == w->size[1]) {
                ts_emit_line(w->e, "%s %s;", t, list);
                list = "";
            }
        }
    }
    if (!x->empty)
        sum_loops(w, x->s.nout);
    epilogue(w);
}

/* A tile axis is walked in blocks; its last block may be smaller, and its first and last may touch
 * padding. So block index b is one of: a constant (edge), or a variable over the blocks between. */
static void tile_variants(writer *w, int t, const ts_ix *const *block)
{
    nest *x = w->x;
    int64_t extent, blocks, rest, T = x->size[t < 2 ? t : 0];
    int mark, ax = t < 2 ? x->tile[t] : -1;
    bool edges;
    ts_arena *a = x->r->a;

    if (t == 2) {
        tile(w);
        return;
    }
    if (ax < 0) {
        w->size[t] = 1;
        w->base[t] = ts_ix_const(a, 0);
        tile_variants(w, t + 1, block);
        return;
    }
    extent = ax == x->lane && !x->across ? w->part.blocks : x->s.extent[ax];
    blocks = (extent + T - 1) / T;
    rest = extent - (blocks - 1) * T;
    edges = bounded(x, ax) && blocks > 1;
    if (blocks == 1) {
        w->size[t] = extent;
        w->base[t] = ts_ix_const(a, 0);
        tile_variants(w, t + 1, block);
        return;
    }
    if (!edges && rest == T) {
        w->size[t] = T;
        w->base[t] = ts_ix_mul(a, block[t], T);
        tile_variants(w, t + 1, block);
        return;
    }
    const char *b = ts_ix_text(a, block[t]), *var = ts_emit_name(w->e, "b");
    ts_emit_line(w->e, "const int64_t %s = %s;", var, b);
    if (edges) {
        ts_emit_line(w->e, "if (%s == 0) {", var);
        ts_emit_open(w->e, &mark);
        w->size[t] = T;
        w->base[t] = ts_ix_const(a, 0);
        tile_variants(w, t + 1, block);
        ts_emit_close(w->e, mark);
    }
    ts_emit_line(w->e, "%sif (%s == %ld) {", edges ? "else " : "", var, (long)(blocks - 1));
    ts_emit_open(w->e, &mark);
    w->size[t] = rest;
    w->base[t] = ts_ix_const(a, (blocks - 1) * T);
    tile_variants(w, t + 1, block);
    ts_emit_close(w->e, mark);
    if (blocks > 2 || !edges) {
        int64_t first = edges ? 1 : 0;
        ts_emit_line(w->e, "else {");
        ts_emit_open(w->e, &mark);
        w->size[t] = T;
        w->base[t] = ts_ix_mul(a, ts_ix_var(a, ts_atom_var(a, var, first, blocks - 2)), T);
        if (first == blocks - 2)
            w->base[t] = ts_ix_const(a, first * T);
        tile_variants(w, t + 1, block);
        ts_emit_close(w->e, mark);
    }
}

/* Does the product update a weight in place? */
static bool updates_state(const nest *x)
{
    for (int r = 0; r < x->k->nroots; r++)
        if (x->r->p->place[x->k->roots[r]->id].alias)
            return true;
    return false;
}

/* An axis of few blocks, the last of them smaller. */
static bool ragged(const nest *x, int axis, int64_t blocks)
{
    for (int t = 0; t < 2; t++)
        if (axis == x->tile[t])
            return blocks <= 8 && x->s.extent[axis] % x->size[t];
    return false;
}

/* Must axis i be inside axis j? By their distance in the output, but a ragged axis outside would
 * give some threads the smaller blocks. */
static bool inside(const nest *x, int i, int64_t ni, int j, int64_t nj)
{
    /* A linear layer's weight [out, in]: the layer itself (pass/split.c) and the gradient of its
     * input are cut by input features, so the update is too, and a core finds the weights it reads
     * in the cache it wrote them to. */
    bool by_input = x->n->op == TS_OP(matmul) && updates_state(x);

    if (ragged(x, i, ni) != ragged(x, j, nj))
        return ragged(x, i, ni);
    return (x->step[2][i] < x->step[2][j]) != by_input;
}

/* Output axes (tiles counted in blocks), outermost first: they are the pieces the threads share. */
static int piece_axes(const writer *w, int *axes, int64_t *counts)
{
    const nest *x = w->x;
    int n = 0;

    for (int i = 0; i < x->s.nout; i++) {
        int64_t count = x->s.extent[i];
        if (i == x->lane && !x->across)
            count = w->part.blocks;
        for (int t = 0; t < 2; t++)
            if (i == x->tile[t])
                count = (count + x->size[t] - 1) / x->size[t];
        if (count == 1)
            continue;
        axes[n] = i;
        counts[n++] = count;
    }
    for (int i = 1; i < n; i++)
        for (int j = i; j > 0 && inside(x, axes[j - 1], counts[j - 1], axes[j], counts[j]); j--) {
            int s = axes[j];
            int64_t c = counts[j];
            axes[j] = axes[j - 1];
            counts[j] = counts[j - 1];
            axes[j - 1] = s;
            counts[j - 1] = c;
        }
    return n;
}

/* The result's dim that the outermost axis of the pieces walks. */
static int cut_dim(const writer *w)
{
    int axes[TS_AXES];
    int64_t counts[TS_AXES];

    if (!piece_axes(w, axes, counts))
        return -1;
    for (int d = 0; d < w->x->n->out[0]->type.rank; d++)
        if (w->x->s.out[d].k[axes[0]])
            return d;
    return -1;
}

/* One part of the lane axis: decodes a piece and does its tile. Returns how many pieces there are.
 * They are the last of those between `start` and `end`, or start there when that are fewer. */
static int64_t write_part(writer *w, int64_t start, int64_t end)
{
    nest *x = w->x;
    ts_emit *e = w->e;
    ts_arena *a = x->r->a;
    int axes[TS_AXES], n = piece_axes(w, axes, (int64_t[TS_AXES]){0}), mark;
    int64_t counts[TS_AXES], total = 1, first;
    const ts_ix *block[2] = {ts_ix_const(a, 0), ts_ix_const(a, 0)}, *i, *rest;

    n = piece_axes(w, axes, counts);
    for (int p = 0; p < n; p++)
        total *= counts[p];
    first = TS_MAX(start, end - total);
    ts_emit_line(
        e, "for (int64_t i = lo > %ld ? lo - %ld : 0; i < (hi < %ld ? hi - %ld : %ld); i++) {",
        (long)first, (long)first, (long)(first + total), (long)first, (long)total);
    ts_emit_open(e, &mark);
    e->lane = ts_atom_var(a, "l", 0, w->part.width - 1);
    e->lanes = w->part.width > 1 ? w->part.width : 0;
    for (int j = 0; j < x->s.naxes; j++)
        w->axes[j] = ts_ix_const(a, 0);
    if (x->lane >= 0 && !x->across)
        w->axes[x->lane] = lane_ix(w, ts_ix_const(a, 0));
    rest = ts_ix_var(a, ts_atom_var(a, "i", 0, total - 1));
    for (int p = n - 1; p >= 0; p--) {
        const char *name;
        i = p ? ts_ix_mod(a, rest, counts[p]) : rest;
        rest = ts_ix_div(a, rest, counts[p]);
        /* a variable of its own: the text stays short, and the compiler sees the range */
        name = ts_emit_name(e, x->s.axis[axes[p]]);
        ts_emit_line(e, "const int64_t %s = %s;", name, ts_ix_text(a, i));
        i = ts_ix_var(a, ts_atom_var(a, name, 0, counts[p] - 1));
        if (axes[p] == x->tile[0])
            block[0] = i;
        else if (axes[p] == x->tile[1])
            block[1] = i;
        else
            w->axes[axes[p]] = axes[p] == x->lane && !x->across ? lane_ix(w, i) : i;
    }
    tile_variants(w, 0, block);
    e->lanes = 0;
    ts_emit_close(e, mark);
    return total;
}

static bool takes(const ts_kernel *k)
{
    ts_dtype t;

    if (!k->anchor || !(k->anchor->op->flags & TS_CONTRACT) || k->nroots > 64)
        return false;
    t = k->anchor->out[0]->type.dtype;
    for (int r = 0; r < k->nroots; r++)
        if (k->roots[r]->type.dtype == TS_F64 || k->roots[r]->type.dtype == TS_I64)
            return false;
    return t == TS_F32 || t == TS_F16 || t == TS_BF16;
}

/* One nest: its parts of the lane axis one after the other. cut->count goes on. */
static bool write_nest(ts_render *r, const ts_kernel *k, const ts_spec *spec, bool empty,
                       ts_cut *cut)
{
    nest x = {
        .r = r, .k = k, .n = k->anchor, .s = *spec, .lane = -1, .tile = {-1, -1}, .empty = empty};
    ts_emit e;
    writer w = {.x = &x, .e = &e};
    int64_t extent, from = 0, start = cut->count, total;

    if (!make_linear(&x))
        return false;
    find_bounds(&x);
    if (!choose(&x))
        return false;
    ts_render_emitter(r, &e);
    ts_emit_line(&e, "/* lanes %s%s x%d, tile %s %ld x %s %ld */", x.s.axis[x.lane],
                 x.across ? " (summed)" : "", x.width, x.tile[0] < 0 ? "-" : x.s.axis[x.tile[0]],
                 (long)x.size[0], x.tile[1] < 0 ? "-" : x.s.axis[x.tile[1]], (long)x.size[1]);
    extent = x.s.extent[x.lane];
    if (x.across) {
        w.part = (part){0, 1, x.width};
        cut->count += write_part(&w, start, start);
        cut->dim = cut_dim(&w);
        return true;
    }
    for (int width = x.width; from<extent; width = width> 4 ? width / 2 : 1) {
        int64_t blocks = (extent - from) / width;
        if (!blocks)
            continue;
        w.part = (part){from, blocks, width};
        /* What is left of the lanes goes with the last whole vectors: it is little work, and lies
         * beside them. */
        total = write_part(&w, start, cut->count);
        if (from == 0)
            cut->dim = cut_dim(&w);
        cut->count = TS_MAX(cut->count, start + total);
        from += blocks * width;
    }
    return true;
}

/* The output axis and the tap of dim d of operand a, where (place + c - tap) / div is read. */
static bool strided_axes(const ts_spec *s, int d, int *place, int *tap)
{
    *place = *tap = -1;
    for (int i = 0; i < s->naxes; i++) {
        if (i < s->nout && s->a[d].k[i] == 1)
            *place = i;
        if (i >= s->nout && s->a[d].k[i] == -1)
            *tap = i;
    }
    return *place >= 0 && *tap >= 0 && s->extent[*place] > 1;
}

/* The gradient of a convolution with stride s reads dy at (p + c - k) / s, and only where s
 * divides. Places p = s q + r with the same r use the taps k = s j + k0 with the same k0, and read
 * q + (r + c - k0) / s - j: for each r a nest without division. Some have no tap, and are zero. */
static bool write_phases(ts_render *r, const ts_kernel *k, const ts_spec *s, int d, bool empty,
                         ts_cut *cut)
{
    int place, tap;
    int64_t div;

    while (d < TS_MAX_RANK && s->a[d].div <= 1)
        d++;
    if (d == TS_MAX_RANK)
        return write_nest(r, k, s, empty, cut);
    div = s->a[d].div;
    if (!strided_axes(s, d, &place, &tap))
        return false;
    for (int64_t phase = 0; phase < div && phase < s->extent[place]; phase++) {
        ts_spec one = *s;
        int64_t k0 = (phase + s->a[d].c) % div, taps = (s->extent[tap] - k0 + div - 1) / div;
        bool none = k0 >= s->extent[tap];
        one.extent[place] = (s->extent[place] - phase + div - 1) / div;
        one.extent[tap] = none ? 1 : taps;
        one.a[d].div = 1;
        one.a[d].c = (phase + s->a[d].c - k0) / div;
        for (int o = 0; o < TS_MAX_RANK; o++) {
            one.out[o].c += s->out[o].k[place] * phase;
            one.out[o].k[place] *= div;
            one.b[o].c += none ? 0 : s->b[o].k[tap] * k0;
            one.b[o].k[tap] *= div;
        }
        if (!write_phases(r, k, &one, d + 1, empty || none, cut))
            return false;
    }
    return true;
}

bool ts_render_contract(ts_render *r, const ts_kernel *k, ts_cut *cut)
{
    ts_spec s;

    if (!takes(k))
        return false;
    k->anchor->op->spec(r->a, k->anchor, &s);
    for (int d = 0; d < TS_MAX_RANK; d++)
        if (s.b[d].div > 1)
            return false;
    cut->count = 0;
    if (!write_phases(r, k, &s, 0, false, cut))
        return false;
    cut->grain = TS_MAX(1, (int64_t)(8192 * (double)cut->count / (k->flops + 1)));
    return true;
}
