/* reduce.c - sum, amax, amin, prod over any dims; argmax and argmin over one.
 *
 * In the generated code the terms are added in row-major order of the reduced dims, in one of two
 * ways:
 *
 *   lanes are outputs   one accumulator a lane (batch or channels in the lanes)
 *   lanes are summed    4 vector accumulators, then across the lanes (the innermost dim is reduced)
 *
 * Both orders depend on the shape only.
 */
#include "op/emit.h"
#include "op/op.h"
#include <math.h>

static bool reduced(const ts_node *n, int dim)
{
    const int64_t *dims;
    int count = ts_attr_list(n, "dims", &dims), rank = n->in[0]->type.rank;

    if (!count)
        return true;
    for (int i = 0; i < count; i++)
        if ((dims[i] < 0 ? dims[i] + rank : dims[i]) == dim)
            return true;
    return false;
}

static ts_status infer(ts_node *n, ts_dtype t)
{
    const int64_t *dims;
    int count = ts_attr_list(n, "dims", &dims), seen = 0;
    const ts_type *in = &n->in[0]->type;
    ts_type out = {.dtype = t};

    for (int i = 0; i < count; i++) {
        int d = ts_norm_dim(n, dims[i], in->rank);
        if (d < 0)
            return TS_ERR_ARG;
        if (seen & (1 << d))
            return ts_fail_at(n, TS_ERR_ARG, "%s names dim %d twice", n->op->name, d);
        seen |= 1 << d;
    }
    for (int d = 0; d < in->rank; d++) {
        if (!reduced(n, d))
            out.dim[out.rank++] = in->dim[d];
        else if (ts_attr_int(n, "keepdim", 0))
            out.dim[out.rank++] = 1;
    }
    return ts_node_set_out1(n, out);
}

ts_status ts_infer_reduce(ts_node *n)
{
    ts_dtype t = n->in[0]->type.dtype;
    bool adds = n->op == TS_OP(sum) || n->op == TS_OP(prod);

    if (adds && !ts_dtype_is_float(t))
        t = TS_I64;
    return infer(n, t);
}

ts_status ts_infer_argreduce(ts_node *n)
{
    const int64_t *dims;

    if (ts_attr_list(n, "dims", &dims) > 1)
        return ts_fail_at(n, TS_ERR_ARG, "%s takes one dim or none", n->op->name);
    return infer(n, TS_I64);
}

/* Which output element an input element belongs to. */
static int64_t out_flat(const ts_node *n, const ts_each *it)
{
    int64_t at[TS_MAX_RANK];
    int k = 0, keep = (int)ts_attr_int(n, "keepdim", 0);

    for (int d = 0; d < it->t.rank; d++) {
        if (!reduced(n, d))
            at[k++] = it->at[d];
        else if (keep)
            at[k++] = 0;
    }
    return ts_flat(&n->out[0]->type, at);
}

/* The reference gathers in double even for f32 sums: its error is one rounding. */
ts_status ts_eval_reduce(const ts_node *n, const ts_eval_ctx *c, const ts_tensor *in,
                         ts_tensor *out)
{
    int64_t count = ts_type_count(&out->type);
    char kind = n->op->name[n->op->name[0] == 'a' ? 2 : 0]; /* s p, amax: a, amin: i */
    double first = kind == 's' ? 0 : kind == 'p' ? 1 : kind == 'a' ? -INFINITY : INFINITY;
    double *acc = malloc(sizeof(double) * (size_t)count);

    (void)c;
    if (!acc)
        return ts_fail(TS_ERR_MEMORY, "cannot allocate %ld sums", (long)count);
    for (int64_t i = 0; i < count; i++)
        acc[i] = first;
    for (ts_each it = ts_each_of(&in->type); it.more; ts_each_next(&it)) {
        double x = ts_dtype_get(in->type.dtype, in->data, it.flat);
        double *a = &acc[out_flat(n, &it)];
        if (kind == 's')
            *a += x;
        else if (kind == 'p')
            *a *= x;
        else if (kind == 'a' ? x > *a : x < *a)
            *a = x;
        else if (x != x)
            *a = x;
    }
    for (int64_t i = 0; i < count; i++)
        ts_dtype_set(out->type.dtype, out->data, i, acc[i]);
    free(acc);
    return TS_OK;
}

/* The place along dim, or in the flat tensor when all dims go. The first of equals wins; NaN beats
 * all. */
ts_status ts_eval_argreduce(const ts_node *n, const ts_eval_ctx *c, const ts_tensor *in,
                            ts_tensor *out)
{
    const int64_t *dims;
    int dim = ts_attr_list(n, "dims", &dims) ? ts_norm_dim(n, dims[0], in->type.rank) : -1;
    int64_t count = ts_type_count(&out->type), *where = out->data;
    bool max = n->op == TS_OP(argmax);
    double *best = malloc(sizeof(double) * (size_t)count);

    (void)c;
    if (!best)
        return ts_fail(TS_ERR_MEMORY, "cannot allocate %ld maxima", (long)count);
    for (int64_t i = 0; i < count; i++)
        where[i] = -1;
    for (ts_each it = ts_each_of(&in->type); it.more; ts_each_next(&it)) {
        double x = ts_dtype_get(in->type.dtype, in->data, it.flat);
        int64_t o = out_flat(n, &it);
        bool better =
            where[o] < 0 || (best[o] == best[o] && (x != x || (max ? x > best[o] : x < best[o])));
        if (better) {
            best[o] = x;
            where[o] = dim < 0 ? it.flat : it.at[dim];
        }
    }
    free(best);
    return TS_OK;
}

/* Opens a loop for each reduced dim and fills in the input's coordinates. */
static int open_loops(ts_emit *e, const ts_node *n, const ts_ix *const *at, const ts_ix **x,
                      int *marks, int skip, int skip2)
{
    int k = 0, depth = 0, keep = (int)ts_attr_int(n, "keepdim", 0);

    for (int d = 0; d < n->in[0]->type.rank; d++) {
        if (!reduced(n, d)) {
            x[d] = at[k++];
            continue;
        }
        k += keep;
        if (d == skip || d == skip2)
            continue;
        if (n->in[0]->type.dim[d] == 1) {
            x[d] = ts_ix_const(e->a, 0);
            continue;
        }
        x[d] = ts_ix_var(e->a, ts_emit_loop(e, "r", 0, n->in[0]->type.dim[d]));
        ts_emit_open(e, &marks[depth++]);
    }
    return depth;
}

static void close_loops(ts_emit *e, int depth, const int *marks)
{
    while (depth--)
        ts_emit_close(e, marks[depth]);
}

static const char *first_value(ts_emit *e, const ts_node *n, ts_dtype t)
{
    char kind = n->op->name[n->op->name[0] == 'a' ? 2 : 0];

    if (kind == 's' || kind == 'p')
        return ts_emit_literal(e, t, kind == 'p');
    if (ts_dtype_is_float(t))
        return ts_emit_literal(e, t, kind == 'a' ? -INFINITY : INFINITY);
    if (t == TS_I64)
        return kind == 'a' ? "INT64_MIN" : "INT64_MAX";
    return ts_emit_literal(e, t, kind == 'a' ? INT32_MIN : INT32_MAX);
}

/* acc = acc op x */
static void combine(ts_emit *e, const ts_node *n, ts_dtype t, const char *acc, const char *x)
{
    char kind = n->op->name[n->op->name[0] == 'a' ? 2 : 0];
    const char *f = kind == 'a' ? "maximum" : "minimum";

    if (kind == 's' || kind == 'p') {
        ts_emit_line(e, "%s %s= %s;", acc, kind == 's' ? "+" : "*", x);
        return;
    }
    e->need(e->where, ts_arena_printf(e->a, "op %s %s", f, ts_emit_suffix(e, t)));
    ts_emit_line(e, "%s = %s%s_%s(%s, %s);", acc, e->prefix, f, ts_emit_suffix(e, t), acc, x);
}

bool ts_reduce_over(const ts_node *n, int d)
{
    return reduced(n, d);
}

const char *ts_reduce_first(ts_emit *e, const ts_node *n)
{
    return first_value(e, n, n->out[0]->type.dtype);
}

void ts_reduce_combine(ts_emit *e, const ts_node *n, const char *acc, const char *x)
{
    combine(e, n, n->out[0]->type.dtype, acc, x);
}

enum { WIDTH = 8, WAYS = 4 };

/* How the input lies below the sum, when one output is made at a time: the dim whose neighbours
 * fill a vector, and how many of them do. 0: none. A layout with lanes gives them; else a long
 * enough innermost dim. */
int ts_reduce_lanes(const ts_node *n, int *dim)
{
    const ts_value *v = n->in[0];
    bool lanes = v->layout.set && v->layout.lanes > 1;
    ts_dtype t = v->type.dtype;

    if (!v->type.rank || (t != TS_F32 && t != TS_F16 && t != TS_BF16))
        return 0;
    *dim = lanes           ? v->layout.lane_dim
           : v->layout.set ? v->layout.order[v->type.rank - 1]
                           : v->type.rank - 1;
    if (!reduced(n, *dim) || (lanes && v->type.dim[*dim] % v->layout.lanes))
        return 0;
    if (lanes)
        return v->layout.lanes;
    return v->type.dim[*dim] >= WIDTH ? WIDTH : 0;
}

/* The reduced dim that varies fastest in memory, other than `but`; -1 when there is none. */
static int inner_dim(const ts_node *n, int but)
{
    const ts_value *v = n->in[0];

    for (int i = v->type.rank - 1; i >= 0; i--) {
        int d = v->layout.set ? v->layout.order[i] : i;
        if (d != but && reduced(n, d) && v->type.dim[d] > 1)
            return d;
    }
    return -1;
}

/* acc[w] = acc[w] op x at inner dim base + w */
static void ways_body(ts_emit *e, const ts_node *n, ts_dtype t, const char **acc, int ways,
                      const ts_ix **x, int dim, const ts_ix *base, int64_t apart)
{
    for (int w = 0; w < ways; w++) {
        if (dim >= 0)
            x[dim] = ts_ix_addc(e->a, base, w * apart);
        combine(e, n, t, acc[w], ts_emit_at(e, n->in[0], x));
    }
}

/* WAYS accumulators take turns along the inner dim, because each addition waits for the one before
 * it: for (b ...) { a0 += x[4b]; a1 += x[4b + 1]; ... }  for (what is left) a0 += x[r];  a0 += a1;
 * ... */
static const char *emit_ways(ts_emit *e, const ts_node *n, const ts_ix *const *at, ts_dtype t,
                             int lane, int lanes)
{
    const ts_ix *x[TS_MAX_RANK];
    int marks[TS_MAX_RANK], depth, mark, dim = inner_dim(n, lane), ways, lane_mark = -1;
    int64_t size = dim < 0 ? 1 : n->in[0]->type.dim[dim], blocks;
    const char *acc[WAYS];
    const ts_ix *var = NULL;

    ways = size >= 2 * WAYS && ts_dtype_is_float(t) ? WAYS : 1;
    blocks = size / ways;
    for (int w = 0; w < ways; w++) {
        acc[w] = ts_emit_name(e, "a");
        ts_emit_line(e, "%s %s = %s;", ts_emit_ctype(e, t), acc[w], first_value(e, n, t));
    }
    depth = open_loops(e, n, at, x, marks, dim, lane);
    if (lane >= 0) { /* vectors along the lane dim */
        int64_t groups = n->in[0]->type.dim[lane] / lanes;
        x[lane] = ts_ix_var(e->a, e->lane);
        if (groups > 1) {
            var = ts_ix_var(e->a, ts_emit_loop(e, "g", 0, groups));
            ts_emit_open(e, &lane_mark);
            x[lane] = ts_ix_add(e->a, ts_ix_mul(e->a, var, lanes), x[lane]);
        }
    }
    if (dim < 0)
        ways_body(e, n, t, acc, 1, x, -1, NULL, 0);
    else {
        var = ts_ix_var(e->a, ts_emit_loop(e, "r", 0, blocks));
        ts_emit_open(e, &mark);
        ways_body(e, n, t, acc, ways, x, dim, ts_ix_mul(e->a, var, ways), 1);
        ts_emit_close(e, mark);
        if (blocks * ways < size) {
            var = ts_ix_var(e->a, ts_emit_loop(e, "r", blocks * ways, size));
            ts_emit_open(e, &mark);
            ways_body(e, n, t, acc, 1, x, dim, var, 1);
            ts_emit_close(e, mark);
        }
    }
    if (lane_mark >= 0)
        ts_emit_close(e, lane_mark);
    close_loops(e, depth, marks);
    for (int w = 1; w < ways; w++)
        combine(e, n, t, acc[0], acc[w]);
    return acc[0];
}

/* The innermost dim fills the vectors and is not a multiple of them: WAYS vectors run along it, then those
 * that are left, then the tail. */
static const char *emit_along(ts_emit *e, const ts_node *n, const ts_ix *const *at, ts_dtype t,
                              int dim, const char *s)
{
    const ts_ix *x[TS_MAX_RANK], *base;
    int marks[TS_MAX_RANK], depth, mark;
    int64_t size = n->in[0]->type.dim[dim], ways = size >= WIDTH * WAYS ? WAYS : 1,
            blocks = size / (WIDTH * ways);
    const char *acc[WAYS];

    for (int w = 0; w < ways; w++) {
        acc[w] = ts_emit_name(e, "a");
        ts_emit_line(e, "%s %s = %s;", ts_emit_ctype(e, t), acc[w], first_value(e, n, t));
    }
    depth = open_loops(e, n, at, x, marks, dim, -1);
    base = ts_ix_mul(e->a, ts_ix_var(e->a, ts_emit_loop(e, "r", 0, blocks)), WIDTH * ways);
    ts_emit_open(e, &mark);
    ways_body(e, n, t, acc, (int)ways, x, dim, ts_ix_add(e->a, base, ts_ix_var(e->a, e->lane)),
              WIDTH);
    ts_emit_close(e, mark);
    ways_body(e, n, t, acc, (int)(size % (WIDTH * ways) / WIDTH), x, dim,
              ts_ix_addc(e->a, ts_ix_var(e->a, e->lane), blocks * WIDTH * ways), WIDTH);
    if (size % WIDTH) {
        int lanes = e->lanes;
        e->lanes = 0;
        base = ts_ix_var(e->a, ts_emit_loop(e, "r", size / WIDTH * WIDTH, size));
        ts_emit_open(e, &mark);
        ways_body(e, n, t, &s, 1, x, dim, base, 1);
        ts_emit_close(e, mark);
        e->lanes = lanes;
    }
    close_loops(e, depth, marks);
    for (int w = 1; w < ways; w++)
        combine(e, n, t, acc[0], acc[w]);
    return acc[0];
}

/* The lanes of v come together in its first: halves, quarters, ... of it, since one after the other each would wait for the
 * one before. */
static void fold_lanes(ts_emit *e, const ts_node *n, ts_dtype t, const char *v)
{
    e->need(e->where, ts_arena_printf(e->a, "swap %d", e->lanes));
    for (int half = e->lanes / 2; half; half /= 2) {
        const char *other = ts_arena_printf(e->a, "SHUFFLE_f32x%d(%s, %s", e->lanes, v, v);
        for (int l = 0; l < e->lanes; l++)
            other = ts_arena_printf(e->a, "%s, %d", other, l ^ half);
        combine(e, n, t, v, ts_arena_printf(e->a, "%s)", other));
    }
}

const char *ts_emit_reduce(ts_emit *e, const ts_node *n, int out, const ts_ix *const *at)
{
    ts_dtype t = n->out[0]->type.dtype;
    int dim, lanes = e->lanes || e->plain ? 0 : ts_reduce_lanes(n, &dim);
    const ts_atom *outer = e->lane;
    const char *s, *v;

    (void)out;
    if (!lanes)
        return emit_ways(e, n, at, t, -1, 0);
    s = ts_emit_name(e, "s");
    ts_emit_line(e, "float %s = %s;", s, first_value(e, n, t));
    e->lane = ts_atom_var(e->a, ts_emit_name(e, "l"), 0, lanes - 1);
    e->lanes = lanes;
    v = n->in[0]->layout.set && n->in[0]->layout.lanes > 1 ? emit_ways(e, n, at, t, dim, lanes)
                                                           : emit_along(e, n, at, t, dim, s);
    fold_lanes(e, n, t, v);
    e->lanes = 0;
    e->lane = outer;
    combine(e, n, t, s, ts_arena_printf(e->a, "%s[0]", v));
    return s;
}

const char *ts_emit_argreduce(ts_emit *e, const ts_node *n, int out, const ts_ix *const *at)
{
    const int64_t *dims;
    int has_dim = ts_attr_list(n, "dims", &dims), marks[TS_MAX_RANK], depth;
    const ts_type *t = &n->in[0]->type;
    const ts_ix *x[TS_MAX_RANK], *place = ts_ix_const(e->a, 0);
    const char *best = ts_emit_name(e, "b"), *where = ts_emit_name(e, "w"), *v, *better;

    (void)out;
    ts_emit_line(e, "%s %s = 0;", ts_emit_ctype(e, t->dtype), best);
    ts_emit_line(e, "int64_t %s = -1;", where);
    depth = open_loops(e, n, at, x, marks, -1, -1);
    v = ts_emit_at(e, n->in[0], x);
    if (has_dim)
        place = x[ts_norm_dim(n, dims[0], t->rank)];
    else
        for (int d = 0; d < t->rank; d++)
            place = ts_ix_add(e->a, ts_ix_mul(e->a, place, t->dim[d]), x[d]);
    better = ts_arena_printf(e->a, "%s %c %s", v, n->op != TS_OP(argmax) ? '<' : '>', best);
    if (ts_dtype_is_float(t->dtype))
        better = ts_arena_printf(e->a, "(%s == %s && (%s != %s || %s))", best, best, v, v, better);
    ts_emit_line(e, "if (%s < 0 || %s) {", where, better);
    ts_emit_line(e, "    %s = %s;", best, v);
    ts_emit_line(e, "    %s = %s;", where, ts_ix_text(e->a, place));
    ts_emit_line(e, "}");
    close_loops(e, depth, marks);
    return where;
}

/* --- gradients --- */

/* v of the reduced shape, with the reduced dims back as 1, so that it broadcasts. */
static ts_value *unreduce(const ts_node *n, ts_value *v)
{
    ts_type t = n->in[0]->type;

    for (int d = 0; d < t.rank; d++)
        if (reduced(n, d))
            t.dim[d] = 1;
    return ts_reshape_n(v, t.rank, t.dim);
}

ts_status ts_grad_sum(ts_node *n, ts_value *const *dy, ts_value **dx)
{
    if (ts_dtype_is_float(n->in[0]->type.dtype))
        dx[0] = ts_expand_n(unreduce(n, dy[0]), n->in[0]->type.rank, n->in[0]->type.dim);
    return TS_OK;
}

/* The same reduction by another op, which does not ask who has the gradient of equal ones. */
static ts_value *reduced_by(const ts_op *op, const ts_node *n, ts_value *x)
{
    ts_attr attr[2];
    int k = 0;

    for (int i = 0; i < n->nattr && k < 2; i++)
        if (strcmp(n->attr[i].name, "ties"))
            attr[k++] = n->attr[i];
    return ts_make1(op, x, k, attr);
}

/* Where along its dim x has its first extreme. */
static ts_value *first_hit(const ts_node *n, ts_value *x)
{
    ts_value *at = reduced_by(n->op == TS_OP(amax) ? TS_OP(argmax) : TS_OP(argmin), n, x), *places;
    ts_attr attr[] = {ts_attr_s("dtype", ts_dtype_name(TS_I64)),
                      ts_attr_l("shape", x->type.rank, x->type.dim), ts_attr_i("dim", 0)};

    for (int d = 0; d < x->type.rank; d++)
        if (reduced(n, d))
            attr[2] = ts_attr_i("dim", d);
    places = ts_node_out(ts_node_make(x->graph, TS_OP(iota), 0, NULL, 3, attr));
    return ts_eq(places, unreduce(n, at));
}

/* Equal extremes share the gradient, as PyTorch's amax does, where one that is NaN makes NaN of it; with ties="norm" that
 * has none, as in norms. With "first" the first has all of it, as in max() along a dim; with "each" each has, as in distances. */
ts_status ts_grad_amax(ts_node *n, ts_value *const *dy, ts_value **dx)
{
    const char *ties = ts_attr_str(n, "ties", "share");
    bool share = !strcmp(ties, "share");
    ts_value *x = n->in[0], *d = dy[0], *hit, *one;

    hit = !strcmp(ties, "first") ? first_hit(n, x) : ts_eq(x, unreduce(n, n->out[0]));
    one = ts_cast(hit, x->type.dtype);
    if (share || !strcmp(ties, "norm"))
        d = ts_div(d, reduced_by(TS_OP(sum), n, one));
    d = unreduce(n, d);
    dx[0] = share ? ts_mul(one, d) : ts_where(hit, d, ts_full_like(x, 0));
    return TS_OK;
}

/* dy * product / x; but where there are zeros, only a lone zero has a gradient: the product of the
 * others. */
ts_status ts_grad_prod(ts_node *n, ts_value *const *dy, ts_value **dx)
{
    ts_value *x = n->in[0], *one = ts_full_like(x, 1), *zero = ts_full_like(x, 0);
    ts_value *is_zero = ts_eq(x, zero), *safe = ts_where(is_zero, one, x);
    ts_value *others = ts_make1(TS_OP(prod), safe, n->nattr, n->attr);
    ts_value *zeros = ts_make1(TS_OP(sum), ts_cast(is_zero, x->type.dtype), n->nattr, n->attr);
    ts_value *all = unreduce(n, ts_mul(dy[0], others)), *count = unreduce(n, zeros);
    ts_value *lone = ts_where(ts_eq(count, one), all, zero), *none = ts_eq(count, zero);

    dx[0] = ts_where(is_zero, lone, ts_where(none, ts_div(all, safe), zero));
    return TS_OK;
}
