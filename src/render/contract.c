/* contract.c - matmul and convolution, forward and both gradients, as one register-blocked
 * template.
 *
 * A contraction is a nest of output axes and summed axes (its spec). One axis becomes the vector
 * lanes, one or two output axes a tile of accumulators that stay in registers while the sums run;
 * tile.c chooses them.
 *
 *   for each tile (cut among the threads)
 *     acc[t1][t2] = 0
 *     for the summed axes                         clipped where padding would be read
 *       acc[t1][t2] += a[..] * b[..]              unrolled; equal loads are made once
 *     epilogue: bias, activation, weight update   while the sums are still in registers
 *     store
 */
#include "render/product.h"
#include <math.h>

enum { LONG_SUM = 256 }; /* multiply-adds */

/* One part of the lane axis: `blocks` vectors of `width` from `from`; width 1 is plain numbers. */
typedef struct part {
    int64_t from, blocks;
    int width;
} part;

typedef struct writer {
    ts_nest *x;
    ts_emit *e;
    part part;
    const ts_ix *axes[TS_AXES]; /* bound so far; tile and unrolled axes as they are walked */
    const ts_ix *base[2];       /* first element of the tile */
    int64_t size[2];            /* of this variant of it */
    const char *acc[32][32];
    int counts; /* lanes at the end of a vector of both operands that count; 0: all */
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
        const ts_bound *q = &w->x->bounds[b];
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

/* A vector of an operand with zeros where it was summed before. */
static const char *last_lanes(writer *w, const char *v)
{
    const char *mask = "";

    for (int l = 0; l < w->x->width && w->counts; l++)
        mask = ts_arena_printf(w->e->a, "%s%s%d", mask, l ? ", " : "",
                               -(l >= w->x->width - w->counts));
    return w->counts ? ts_arena_printf(w->e->a, "(f32x%d)((i32x%d)%s & (i32x%d){%s})", w->x->width,
                                       w->x->width, v, w->x->width, mask)
                     : v;
}

/* The unrolled terms of the tile. */
static void terms(writer *w, int from)
{
    ts_nest *x = w->x;
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
            ts_nest_at(x, x->s.a, x->n->in[0]->type.rank, w->axes, a);
            ts_nest_at(x, x->s.b, x->n->in[1]->type.rank, w->axes, b);
            p = ts_emit_at(w->e, x->n->in[0], a);
            q = ts_emit_at(w->e, x->n->in[1], b);
            ts_emit_product(w->e, x->n->out[0]->type.dtype, w->acc[i][j], last_lanes(w, p),
                            last_lanes(w, q));
            if (cond[0])
                ts_emit_close(w->e, mark);
        }
}

/* The range of summed axis u that stays inside every bound it takes part in, as C text; the other
 * axes of the bound are bound already. With unrolled or tile axes in it, the range in which all of
 * them are inside. */
static void clip(writer *w, int u, const char **lo, const char **hi, int64_t *clo, int64_t *chi)
{
    ts_nest *x = w->x;
    ts_arena *a = x->r->a;

    *lo = "0";
    *hi = ts_arena_printf(a, "%ld", (long)x->s.extent[u]);
    *clo = 0;
    *chi = x->s.extent[u];
    for (int b = 0; b < x->nbounds; b++) {
        const ts_bound *q = &x->bounds[b];
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

static bool shares_bound_with_unrolled(const ts_nest *x, int u)
{
    for (int b = 0; b < x->nbounds; b++)
        for (int i = 0; i < x->s.naxes && x->bounds[b].f->k[u]; i++)
            if (i != u && x->bounds[b].f->k[i] &&
                (x->unroll[i] || i == x->tile[0] || i == x->tile[1]))
                return true;
    return false;
}

static void sum_loops(writer *w, int from);

/* Vectors along the summed axis. The last one may begin in the one before: what is in both counts
 * once. */
static void across(writer *w, int u)
{
    ts_nest *x = w->x;
    ts_arena *a = x->r->a;
    int64_t blocks = x->s.extent[u] / x->width, left = x->s.extent[u] % x->width;
    const ts_ix *lane = ts_ix_var(a, w->e->lane);
    int mark;

    w->axes[u] = lane;
    if (blocks == 1)
        sum_loops(w, u + 1);
    else {
        const ts_atom *j = ts_emit_loop(w->e, "j", 0, blocks);
        ts_emit_open(w->e, &mark);
        w->axes[u] = ts_ix_add(a, ts_ix_mul(a, ts_ix_var(a, j), x->width), lane);
        sum_loops(w, u + 1);
        ts_emit_close(w->e, mark);
    }
    if (!left)
        return;
    w->axes[u] = ts_ix_addc(a, lane, x->s.extent[u] - x->width);
    w->counts = (int)left;
    sum_loops(w, u + 1);
    w->counts = 0;
}

/* Loops over the summed axes that are left, outermost first in spec order. */
static void sum_loops(writer *w, int from)
{
    ts_nest *x = w->x;
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
    if (u == x->lane) {
        across(w, u);
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

/* Bias, activation, update: the roots where the tile's axes are, with the sums as the contraction's value. */
static void finish(writer *w, const char *acc)
{
    ts_nest *x = w->x;
    ts_emit *e = w->e;
    ts_dtype t = x->n->out[0]->type.dtype;
    const ts_ix *at[TS_MAX_RANK];
    const char *names[TS_MAX_ROOTS];
    int lanes = e->lanes;

    if (x->across) {
        ts_render_need(x->r, ts_arena_printf(e->a, "add up %d", x->width));
        e->lanes = 0;
        acc = ts_emit_temp(e, TS_F32, "add_up_f32x%d(%s)", x->width, acc);
    }
    if (t == TS_F16 || t == TS_BF16) {
        ts_render_need(x->r, "half");
        acc = ts_emit_temp(e, t, "round_%s_%s(%s)", ts_dtype_name(t), ts_emit_suffix(e, t), acc);
    }
    ts_nest_at(x, x->s.out, x->n->out[0]->type.rank, w->axes, at);
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

/* Are the sums so long that going through memory behind them costs nothing? Then what follows is a loop over
 * the tile and not written out for each of its elements, which is most of the text of a tile. */
static bool loops_over_tile(const writer *w)
{
    const ts_nest *x = w->x;
    int64_t sums = 1;

    for (int i = x->s.nout; i < x->s.naxes; i++)
        sums *= x->s.extent[i];
    return sums >= LONG_SUM && !x->across && !x->empty && w->part.width > 1 &&
           w->size[0] * w->size[1] >= 4;
}

/* A loop over the tile's axis t, if it has more than one element. */
static const char *tile_loop(writer *w, int t, int *mark)
{
    const char *name = ts_emit_name(w->e, t ? "j" : "i");

    ts_emit_line(w->e, "for (int64_t %s = 0; %s < %ld; %s++) {", name, name, (long)w->size[t],
                 name);
    ts_emit_open(w->e, mark);
    if (w->x->tile[t] >= 0) {
        int ax = w->x->tile[t];
        const ts_ix *c = ts_ix_var(w->e->a, ts_atom_var(w->e->a, name, 0, w->size[t] - 1));
        c = ts_ix_add(w->e->a, w->base[t], c);
        w->axes[ax] = ax == w->x->lane ? lane_ix(w, c) : c;
    }
    return name;
}

static void epilogue_loop(writer *w)
{
    ts_emit *e = w->e;
    const char *sums = ts_emit_name(e, "sums"), *i, *j;
    int outer, inner;

    ts_emit_line(e, "f32x%d %s[%ld];", w->part.width, sums, (long)(w->size[0] * w->size[1]));
    for (int64_t k = 0; k < w->size[0] * w->size[1]; k++)
        ts_emit_line(e, "%s[%ld] = %s;", sums, (long)k, w->acc[k / w->size[1]][k % w->size[1]]);
    i = tile_loop(w, 0, &outer);
    j = tile_loop(w, 1, &inner);
    finish(w, ts_emit_temp(e, TS_F32, "%s[%s * %ld + %s]", sums, i, (long)w->size[1], j));
    ts_emit_close(e, inner);
    ts_emit_close(e, outer);
}

static void epilogue(writer *w)
{
    if (loops_over_tile(w)) {
        epilogue_loop(w);
        return;
    }
    for (int64_t i = 0; i < w->size[0]; i++)
        for (int64_t j = 0; j < w->size[1]; j++) {
            at_tile(w, i, j);
            finish(w, w->acc[i][j]);
        }
}

static void tile(writer *w)
{
    ts_nest *x = w->x;
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
    ts_nest *x = w->x;
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
    edges = ts_nest_bounded(x, ax) && blocks > 1;
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

/* An axis of few blocks, the last of them smaller. */
static bool ragged(const ts_nest *x, int axis, int64_t blocks)
{
    for (int t = 0; t < 2; t++)
        if (axis == x->tile[t])
            return blocks <= 8 && x->s.extent[axis] % x->size[t];
    return false;
}

/* Must axis i be inside axis j? By their distance in the output, but a ragged axis outside would
 * give some threads the smaller blocks. */
static bool inside(const ts_nest *x, int i, int64_t ni, int j, int64_t nj)
{
    /* A linear layer's weight [out, in]: the layer itself (pass/split.c) and the gradient of its
     * input are cut by input features, so the update is too, and a core finds the weights it reads
     * in the cache it wrote them to. */
    bool by_input = x->n->op == TS_OP(matmul) && ts_nest_updates(x);

    if (ragged(x, i, ni) != ragged(x, j, nj))
        return ragged(x, i, ni);
    return (x->step[2][i] < x->step[2][j]) != by_input;
}

/* Output axes (tiles counted in blocks), outermost first: they are the pieces the threads share. */
static int piece_axes(const writer *w, int *axes, int64_t *counts)
{
    const ts_nest *x = w->x;
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

/* The innermost axis q walks all that it reads of one operand for each piece of the axes around it
 * that do not move in that operand. When that is too much for a core's cache, this many of those
 * pieces go together for each block of q; 0 when they need not. (The rows of a picture or a text go
 * together, and the weights are read once for all of them.) *first is the outermost of
 * those axes. */
static int64_t group_size(const writer *w, const int *axes, const int64_t *counts, int n,
                          int *first)
{
    const ts_nest *x = w->x;
    int q = n ? axes[n - 1] : 0, o = x->step[1][q] != 0;
    int64_t pieces = 1;
    double one, kept = (double)ts_machine_kept(&x->r->m);

    *first = n - 1;
    if (n < 2 || ts_nest_updates(x) || x->step[!o][q])
        return 0;
    while (*first > 0 && !x->step[o][axes[*first - 1]] && x->step[!o][axes[*first - 1]])
        pieces *= counts[--*first];
    if (pieces < 4 || ts_nest_footprint(x, o, w->part.width, q) < 2 * kept)
        return 0;
    one = ts_nest_footprint(x, !o, w->part.width, -1);
    return 2 * one > kept ? 0 : TS_MIN((int64_t)(kept / one), (pieces + 1) / 2);
}

/* Piece i of counts[0] x counts[1] pieces in groups of `group` blocks of the first: the first group
 * for all blocks of the second, then the next group. */
static void grouped(writer *w, const ts_ix *i, int64_t group, const int64_t *counts,
                    const ts_ix **at)
{
    ts_emit *e = w->e;
    ts_arena *a = w->x->r->a;
    long last = (long)((counts[0] - 1) / group), left = (long)(counts[0] - last * group);
    const char *g = ts_emit_name(e, "g"), *r = ts_emit_name(e, "r"), *s = ts_emit_name(e, "s");
    const char *p = ts_emit_name(e, "p"), *q = ts_emit_name(e, "q");

    ts_emit_line(e, "const int64_t %s = %s;", g, ts_ix_text(a, ts_ix_div(a, i, group * counts[1])));
    ts_emit_line(e, "const int64_t %s = %s;", r, ts_ix_text(a, ts_ix_mod(a, i, group * counts[1])));
    ts_emit_line(e, "const int64_t %s = %s == %ld ? %ld : %ld;", s, g, last, left, (long)group);
    ts_emit_line(e, "const int64_t %s = %ld * %s + %s %% %s;", p, (long)group, g, r, s);
    ts_emit_line(e, "const int64_t %s = %s / %s;", q, r, s);
    at[0] = ts_ix_var(a, ts_atom_var(a, p, 0, counts[0] - 1));
    at[1] = ts_ix_var(a, ts_atom_var(a, q, 0, counts[1] - 1));
}

/* Axes from..to-1 of piece i, which counts them as digits. */
static void bind(writer *w, const ts_ix *i, const int *axes, const int64_t *counts, int from,
                 int to, const ts_ix **block)
{
    ts_nest *x = w->x;
    ts_arena *a = x->r->a;

    for (int p = to - 1; p >= from; p--) {
        /* a variable of its own: the text stays short, and the compiler sees the range */
        const char *name = ts_emit_name(w->e, x->s.axis[axes[p]]);
        const ts_ix *v = ts_ix_var(a, ts_atom_var(a, name, 0, counts[p] - 1));
        ts_emit_line(w->e, "const int64_t %s = %s;", name,
                     ts_ix_text(a, ts_ix_mod(a, i, counts[p])));
        i = ts_ix_div(a, i, counts[p]);
        if (axes[p] == x->tile[0])
            block[0] = v;
        else if (axes[p] == x->tile[1])
            block[1] = v;
        else
            w->axes[axes[p]] = axes[p] == x->lane && !x->across ? lane_ix(w, v) : v;
    }
}

/* The pieces of several phases take turns, piece i of phase p being number i * phases + p: a thread that has a range of
 * them has the same part of the picture in all phases, whatever each of them costs. */
static const char *bound(ts_emit *e, const ts_cut *cut, const char *name)
{
    if (cut->phases <= 1)
        return name;
    return ts_arena_printf(e->a, "(%s + %d) / %d", name, cut->phases - 1 - cut->phase, cut->phases);
}

void ts_contract_loop(ts_emit *e, const ts_cut *cut, int64_t first, int64_t total)
{
    const char *lo = bound(e, cut, "lo"), *hi = bound(e, cut, "hi");

    if (first)
        ts_emit_line(e, "for (int64_t i = max(%s - %ld, 0); i < min(%s - %ld, %ld); i++) {", lo,
                     (long)first, hi, (long)first, (long)total);
    else
        ts_emit_line(e, "for (int64_t i = %s; i < min(%s, %ld); i++) {", lo, hi, (long)total);
}

/* One part of the lane axis: decodes a piece and does its tile. Returns how many pieces there are.
 * They are the last of those before `end`, or the first when that are fewer. */
static int64_t write_part(writer *w, const ts_cut *cut, int64_t end)
{
    ts_nest *x = w->x;
    ts_emit *e = w->e;
    ts_arena *a = x->r->a;
    int64_t counts[TS_AXES], total = 1, first, group;
    int axes[TS_AXES], n = piece_axes(w, axes, counts), inner, mark;
    const ts_ix *block[2] = {ts_ix_const(a, 0), ts_ix_const(a, 0)}, *rest, *pair[2];

    group = group_size(w, axes, counts, n, &inner);
    for (int p = 0; p < n; p++)
        total *= counts[p];
    first = TS_MAX(0, end - total);
    ts_contract_loop(e, cut, first, total);
    ts_emit_open(e, &mark);
    e->lane = ts_atom_var(a, "l", 0, w->part.width - 1);
    e->lanes = w->part.width > 1 ? w->part.width : 0;
    for (int j = 0; j < x->s.naxes; j++)
        w->axes[j] = ts_ix_const(a, 0);
    if (x->lane >= 0 && !x->across)
        w->axes[x->lane] = lane_ix(w, ts_ix_const(a, 0));
    rest = ts_ix_var(a, ts_atom_var(a, "i", 0, total - 1));
    if (group) {
        int64_t pieces, size[2] = {1, counts[n - 1]};
        for (int p = inner; p < n - 1; p++)
            size[0] *= counts[p];
        pieces = size[0] * size[1];
        grouped(w, ts_ix_mod(a, rest, pieces), group, size, pair);
        rest = ts_ix_div(a, rest, pieces);
        bind(w, pair[1], axes, counts, n - 1, n, block);
        bind(w, pair[0], axes, counts, inner, n - 1, block);
    }
    bind(w, rest, axes, counts, 0, group ? inner : n, block);
    tile_variants(w, 0, block);
    e->lanes = 0;
    ts_emit_close(e, mark);
    return total;
}

static bool takes(const ts_kernel *k)
{
    ts_dtype t;

    if (!k->anchor || !(k->anchor->op->flags & TS_CONTRACT) || k->nroots > TS_MAX_ROOTS)
        return false;
    t = k->anchor->out[0]->type.dtype;
    for (int r = 0; r < k->nroots; r++)
        if (k->roots[r]->type.dtype == TS_F64 || k->roots[r]->type.dtype == TS_I64)
            return false;
    return t == TS_F32 || t == TS_F16 || t == TS_BF16;
}

static double nest_sums(const ts_spec *s)
{
    double n = 1;

    for (int i = 0; i < s->naxes; i++)
        n *= (double)s->extent[i];
    return n;
}

/* The nest in vectors, or from panels: *packed, and written. False: neither. */
static bool choose(ts_nest *x, ts_render *r, const ts_kernel *k, const ts_spec *spec, bool empty,
                   ts_cut *cut, bool *packed)
{
    const ts_nest plain = {
        .r = r, .k = k, .n = k->anchor, .s = *spec, .lane = -1, .tile = {-1, -1}, .empty = empty};
    double other = nest_sums(spec); /* one by one, a cycle each at best */
    bool found;

    *x = plain;
    found = ts_nest_choose(x);
    if (found)
        other = x->cost + ts_nest_rereads(x) / (double)r->m.cores;
    *packed = !empty && ts_render_product(r, k, spec, other, cut);
    if (found || *packed)
        return true;
    *x = plain;
    return ts_nest_choose_apart(x);
}

/* One nest: its parts of the lane axis one after the other. */
static bool write_nest(ts_render *r, const ts_kernel *k, const ts_spec *spec, bool empty,
                       ts_cut *cut)
{
    ts_nest x;
    ts_emit e;
    writer w = {.x = &x, .e = &e};
    int64_t extent, from = 0, total;
    bool packed;

    if (!choose(&x, r, k, spec, empty, cut, &packed) || packed)
        return packed;
    ts_render_emitter(r, &e);
    ts_emit_line(&e, "/* lanes %s%s x%d, tile %s %ld x %s %ld */", x.s.axis[x.lane],
                 x.across ? " (summed)" : "", x.width, x.tile[0] < 0 ? "-" : x.s.axis[x.tile[0]],
                 (long)x.size[0], x.tile[1] < 0 ? "-" : x.s.axis[x.tile[1]], (long)x.size[1]);
    cut->cycles += x.cycles;
    extent = x.s.extent[x.lane];
    if (x.across) {
        w.part = (part){0, 1, x.width};
        cut->count = write_part(&w, cut, 0);
        cut->dim = cut_dim(&w);
        return true;
    }
    for (int width = x.width; from < extent; width = ts_nest_rest(&x, from)) {
        int64_t blocks = TS_MAX(1, (extent - from) / width);
        w.part = (part){TS_MIN(from, extent - width), blocks, width};
        /* What is left of the lanes goes with the last whole vectors: it is little work, and lies
         * beside them. */
        total = write_part(&w, cut, cut->count);
        if (from == 0)
            cut->dim = cut_dim(&w);
        cut->count = TS_MAX(cut->count, total);
        from += blocks * width;
    }
    return true;
}

/* The output axis and the tap of dim d of operand a, where (place + c - dilation * tap) / div is read. */
static bool strided_axes(const ts_spec *s, int d, int *place, int *tap)
{
    *place = *tap = -1;
    for (int i = 0; i < s->naxes; i++) {
        if (i < s->nout && s->a[d].k[i] == 1)
            *place = i;
        if (i >= s->nout && s->a[d].k[i] < 0)
            *tap = i;
    }
    return *place >= 0 && *tap >= 0 && s->extent[*place] > 1;
}

static int phases_of(const ts_spec *s)
{
    int place, tap, n = 1;

    for (int d = 0; d < TS_MAX_RANK; d++)
        if (s->a[d].div > 1 && strided_axes(s, d, &place, &tap))
            n *= (int)TS_MIN(s->a[d].div, s->extent[place]);
    return n;
}

/* A nest of its own: the next of cut->phases. */
static bool write_phase(ts_render *r, const ts_kernel *k, const ts_spec *s, bool empty, ts_cut *cut)
{
    ts_cut one = {.phase = cut->phase, .phases = cut->phases};

    if (!write_nest(r, k, s, empty, &one))
        return false;
    cut->count = TS_MAX(cut->count, one.count * TS_MAX(1, cut->phases));
    cut->cycles += one.cycles;
    cut->dim = one.dim;
    cut->phase++;
    return true;
}

/* The first of every `*apart` taps that places of `phase` reach, or -1: (phase + c - dilation * tap) is a multiple of div. */
static int64_t first_tap(const ts_affine *f, int tap, int64_t phase, int64_t *apart)
{
    int64_t dilation = -f->k[tap], a = f->div, b = dilation;

    while (b) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    *apart = f->div / a;
    for (int64_t k = 0; k < *apart; k++)
        if ((phase + f->c - dilation * k) % f->div == 0)
            return k;
    return -1;
}

/* The gradient of a convolution with stride s and dilation e reads dy at (p + c - e k) / s, and only where s
 * divides. Places p = s q + r with the same r use the taps k = t j + k0 with the same k0, t = s / gcd(s, e), and read
 * q + (r + c - e k0) / s - e t / s j: for each r a nest without division. Some have no tap, and are zero. */
static bool write_phases(ts_render *r, const ts_kernel *k, const ts_spec *s, int d, bool empty,
                         ts_cut *cut)
{
    int place, tap;
    int64_t div;

    while (d < TS_MAX_RANK && s->a[d].div <= 1)
        d++;
    if (d == TS_MAX_RANK)
        return write_phase(r, k, s, empty, cut);
    div = s->a[d].div;
    if (!strided_axes(s, d, &place, &tap))
        return false;
    for (int64_t phase = 0; phase < div && phase < s->extent[place]; phase++) {
        ts_spec one = *s;
        int64_t apart, k0 = first_tap(&s->a[d], tap, phase, &apart);
        bool none = k0 < 0 || k0 >= s->extent[tap];
        k0 = TS_MAX(k0, 0);
        one.extent[place] = (s->extent[place] - phase + div - 1) / div;
        one.extent[tap] = none ? 1 : (s->extent[tap] - k0 + apart - 1) / apart;
        one.a[d].div = 1;
        one.a[d].c = (phase + s->a[d].c + s->a[d].k[tap] * k0) / div;
        one.a[d].k[tap] = s->a[d].k[tap] * apart / div;
        for (int o = 0; o < TS_MAX_RANK; o++) {
            one.out[o].c += s->out[o].k[place] * phase;
            one.out[o].k[place] *= div;
            one.b[o].c += none ? 0 : s->b[o].k[tap] * k0;
            one.b[o].k[tap] *= apart;
        }
        if (!write_phases(r, k, &one, d + 1, empty || none, cut))
            return false;
    }
    return true;
}

/* Doubles have no vectors here; products of them are made from panels, whatever their size. */
static bool doubles(ts_render *r, const ts_kernel *k, ts_cut *cut)
{
    ts_spec s;

    if (!k->anchor || !(k->anchor->op->flags & TS_CONTRACT) || k->nroots > 64 ||
        k->anchor->out[0]->type.dtype != TS_F64)
        return false;
    k->anchor->op->spec(r->a, k->anchor, &s);
    cut->count = 0;
    cut->cycles = 0;
    if (!ts_render_product(r, k, &s, INFINITY, cut))
        return false;
    cut->grain = ts_machine_grain(&r->m, cut->count, cut->cycles);
    return true;
}

bool ts_render_contract(ts_render *r, const ts_kernel *k, ts_cut *cut)
{
    ts_spec s;

    if (doubles(r, k, cut))
        return true;
    if (!takes(k))
        return false;
    if (ts_render_winograd(r, k, cut))
        return true;
    k->anchor->op->spec(r->a, k->anchor, &s);
    for (int d = 0; d < TS_MAX_RANK; d++)
        if (s.b[d].div > 1)
            return false;
    cut->count = 0;
    cut->cycles = 0;
    cut->phases = phases_of(&s);
    if (!write_phases(r, k, &s, 0, false, cut))
        return false;
    cut->grain = ts_machine_grain(&r->m, cut->count, cut->cycles);
    return true;
}
