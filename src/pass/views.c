/* views.c - rules for ops that move elements, and for sums that add nothing.
 *
 *   reshape, permute, expand, pad, slice, flip, concat that change nothing       x
 *   reshape of reshape, permute of permute, expand of expand, pad of pad,
 *   slice of slice, flip of flip                                                 one of them
 *   permute that only moves dims of size 1                                       reshape
 *   slice of expand                                                              smaller expand
 *   slice of pad            pad of slice; a full where there is only padding
 *   slice of concat         slice of the part it lies in
 *   argsort, run_starts and gather of what is expanded in other dims             expand of it
 *   sum, prod, amax, amin over dims of size 1                                    reshape
 *   sum(expand x)           sum(x) * n: one rounding in place of n, so not the same bits, but
 *                           nearer to the truth; -0 may become 0 and back
 *   sum(-x)                 -sum(x), to the bit
 *   sum(x * y)              sum(x) * y, y being the same all along the sum: the same is true of it
 */
#include "pass/pass.h"
#include <math.h>

static ts_graph *graph(const ts_node *n)
{
    return n->out[0]->graph;
}

static ts_value *reshaped(ts_value *v, const ts_type *t)
{
    return ts_type_same_shape(&v->type, t) ? v : ts_reshape_n(v, t->rank, t->dim);
}

/* Any view whose result is its input, when the shape says so. */
static ts_value *same_shape(const ts_node *n)
{
    return ts_type_same_shape(&n->in[0]->type, &n->out[0]->type) ? n->in[0] : NULL;
}

static ts_value *reshape_reshape(const ts_node *n)
{
    const ts_node *inner = ts_rule_behind(n, 0, TS_OP(reshape));

    return inner ? reshaped(inner->in[0], &n->out[0]->type) : NULL;
}

/* An expand that adds nothing but dims of size 1. */
static ts_value *reshape_expand(const ts_node *n)
{
    const ts_node *inner = ts_rule_behind(n, 0, TS_OP(expand));

    if (!inner || ts_type_count(&inner->in[0]->type) != ts_type_count(&n->out[0]->type))
        return NULL;
    return reshaped(inner->in[0], &n->out[0]->type);
}

/* Do the dims that are not 1 keep their order? */
static ts_value *permute_nothing(const ts_node *n)
{
    const int64_t *dims;
    int rank = ts_attr_list(n, "dims", &dims);
    int64_t last = -1;

    for (int i = 0; i < rank; i++) {
        if (n->out[0]->type.dim[i] == 1)
            continue;
        if (dims[i] < last)
            return NULL;
        last = dims[i];
    }
    return reshaped(n->in[0], &n->out[0]->type);
}

static ts_value *permute_permute(const ts_node *n)
{
    const ts_node *inner = ts_rule_behind(n, 0, TS_OP(permute));
    const int64_t *dims, *before;
    int64_t both[TS_MAX_RANK];
    int rank = ts_attr_list(n, "dims", &dims);

    if (!inner)
        return NULL;
    ts_attr_list(inner, "dims", &before);
    for (int i = 0; i < rank; i++)
        both[i] = before[dims[i]];
    return ts_permute_n(inner->in[0], rank, both);
}

static ts_value *expand_expand(const ts_node *n)
{
    const ts_node *inner = ts_rule_behind(n, 0, TS_OP(expand));

    return inner ? ts_rule_shaped(inner->in[0], &n->out[0]->type) : NULL;
}

/* A reshape that only puts ones in front: expand does that itself. */
static ts_value *expand_reshape(const ts_node *n)
{
    const ts_node *inner = ts_rule_behind(n, 0, TS_OP(reshape));
    const ts_type *from, *to;
    int extra;

    if (!inner)
        return NULL;
    from = &inner->in[0]->type;
    to = &inner->out[0]->type;
    extra = to->rank - from->rank;
    if (extra < 0 || memcmp(from->dim, to->dim + extra, sizeof(int64_t) * (size_t)from->rank))
        return NULL;
    return ts_rule_shaped(inner->in[0], &n->out[0]->type);
}

/* --- slice --- */

typedef struct range {
    int dim;
    int64_t start, step, count, last;
} range;

static range range_of(const ts_node *n)
{
    range r = {.dim = ts_norm_dim(n, ts_attr_int(n, "dim", 0), n->in[0]->type.rank),
               .start = ts_attr_int(n, "start", 0),
               .step = ts_attr_int(n, "step", 1)};

    r.count = n->out[0]->type.dim[r.dim];
    r.last = r.start + (r.count - 1) * r.step;
    return r;
}

static ts_value *slice_slice(const ts_node *n)
{
    const ts_node *inner = ts_rule_behind(n, 0, TS_OP(slice));
    range r = range_of(n), s;

    if (!inner)
        return NULL;
    s = range_of(inner);
    if (s.dim != r.dim)
        return NULL;
    return ts_slice(inner->in[0], r.dim, s.start + r.start * s.step, s.start + r.last * s.step + 1,
                    r.count == 1 ? 1 : r.step * s.step);
}

static ts_value *slice_expand(const ts_node *n)
{
    const ts_node *inner = ts_rule_behind(n, 0, TS_OP(expand));
    int k;

    if (!inner)
        return NULL;
    k = range_of(n).dim - (n->in[0]->type.rank - inner->in[0]->type.rank);
    if (k >= 0 && inner->in[0]->type.dim[k] != 1)
        return NULL;
    return ts_rule_shaped(inner->in[0], &n->out[0]->type);
}

/*   pad      . . . x x x x x . .
 *   slice      [     ]               pad(slice(x, 0, 2), lo 2, hi 0) */
static ts_value *slice_pad(const ts_node *n)
{
    const ts_node *inner = ts_rule_behind(n, 0, TS_OP(pad));
    const ts_type *t = &n->out[0]->type;
    const int64_t *lo, *hi;
    int64_t new_lo[TS_MAX_RANK], new_hi[TS_MAX_RANK], from, to, size;
    range r = range_of(n);
    double value;

    if (!inner || r.step != 1)
        return NULL;
    value = ts_attr_float(inner, "value", 0);
    size = inner->in[0]->type.dim[r.dim];
    ts_attr_list(inner, "lo", &lo);
    ts_attr_list(inner, "hi", &hi);
    from = TS_MAX(r.start - lo[r.dim], 0);
    to = TS_MIN(r.last + 1 - lo[r.dim], size);
    if (from >= to)
        return ts_full_n(graph(n), t->dtype, value, t->rank, t->dim);
    memcpy(new_lo, lo, sizeof(int64_t) * (size_t)t->rank);
    memcpy(new_hi, hi, sizeof(int64_t) * (size_t)t->rank);
    new_lo[r.dim] = from + lo[r.dim] - r.start;
    new_hi[r.dim] = r.count - (to - from) - new_lo[r.dim];
    return ts_pad(ts_slice(inner->in[0], r.dim, from, to, 1), t->rank, new_lo, new_hi, value);
}

static ts_value *slice_concat(const ts_node *n)
{
    const ts_node *inner = ts_rule_behind(n, 0, TS_OP(concat));
    range r = range_of(n);
    int64_t from = 0;

    if (!inner || ts_norm_dim(inner, ts_attr_int(inner, "dim", 0), n->in[0]->type.rank) != r.dim)
        return NULL;
    for (int i = 0; i < inner->nin; i++) {
        int64_t size = inner->in[i]->type.dim[r.dim];
        if (r.start >= from && r.last < from + size)
            return ts_slice(inner->in[i], r.dim, r.start - from, r.last - from + 1, r.step);
        from += size;
    }
    return NULL;
}

/* --- pad, concat, flip --- */

static ts_value *pad_pad(const ts_node *n)
{
    const ts_node *inner = ts_rule_behind(n, 0, TS_OP(pad));
    const int64_t *lo[2], *hi[2];
    int64_t all_lo[TS_MAX_RANK], all_hi[TS_MAX_RANK];
    double x = ts_attr_float(n, "value", 0), y;

    if (!inner)
        return NULL;
    y = ts_attr_float(inner, "value", 0);
    if (memcmp(&x, &y, sizeof(x)))
        return NULL;
    ts_attr_list(n, "lo", &lo[0]);
    ts_attr_list(n, "hi", &hi[0]);
    ts_attr_list(inner, "lo", &lo[1]);
    ts_attr_list(inner, "hi", &hi[1]);
    for (int i = 0; i < n->out[0]->type.rank; i++) {
        all_lo[i] = lo[0][i] + lo[1][i];
        all_hi[i] = hi[0][i] + hi[1][i];
    }
    return ts_pad(inner->in[0], n->out[0]->type.rank, all_lo, all_hi, x);
}

static ts_value *concat_one(const ts_node *n)
{
    return n->nin == 1 ? n->in[0] : NULL;
}

/* The dims of size above 1 that flip turns round, as bits. */
static unsigned flipped(const ts_node *n)
{
    const int64_t *dims;
    int count = ts_attr_list(n, "dims", &dims);
    unsigned bits = 0;

    for (int i = 0; i < count; i++) {
        int d = ts_norm_dim(n, dims[i], n->in[0]->type.rank);
        if (n->in[0]->type.dim[d] > 1)
            bits |= 1u << d;
    }
    return bits;
}

static ts_value *flip_nothing(const ts_node *n)
{
    const ts_node *inner = ts_rule_behind(n, 0, TS_OP(flip));

    if (!flipped(n))
        return n->in[0];
    return inner && flipped(inner) == flipped(n) ? inner->in[0] : NULL;
}

static const ts_rule view_rules[] = {
    {TS_OP(reshape), same_shape},
    {TS_OP(reshape), reshape_reshape},
    {TS_OP(reshape), reshape_expand},
    {TS_OP(permute), permute_nothing},
    {TS_OP(permute), permute_permute},
    {TS_OP(expand), same_shape},
    {TS_OP(expand), expand_expand},
    {TS_OP(expand), expand_reshape},
    {TS_OP(slice), same_shape},
    {TS_OP(slice), slice_slice},
    {TS_OP(slice), slice_expand},
    {TS_OP(slice), slice_pad},
    {TS_OP(slice), slice_concat},
    {TS_OP(pad), same_shape},
    {TS_OP(pad), pad_pad},
    {TS_OP(concat), concat_one},
    {TS_OP(flip), flip_nothing},
};

ts_value *ts_rule_view(const ts_node *n)
{
    return n->op->flags & TS_VIEW ? ts_rule_first(view_rules, TS_COUNT(view_rules), n) : NULL;
}

/* --- reductions --- */

static bool reduced(const ts_node *n, int dim)
{
    const int64_t *dims;
    int count = ts_attr_list(n, "dims", &dims);

    for (int i = 0; i < count; i++)
        if (ts_norm_dim(n, dims[i], n->in[0]->type.rank) == dim)
            return true;
    return !count;
}

static ts_value *reduce_ones(const ts_node *n)
{
    if (ts_type_count(&n->in[0]->type) != ts_type_count(&n->out[0]->type))
        return NULL;
    return ts_cast(reshaped(n->in[0], &n->out[0]->type), n->out[0]->type.dtype);
}

static bool exact(ts_dtype t, double x)
{
    uint64_t bits = 0;

    ts_dtype_set(t, &bits, 0, x);
    return isfinite(x) && ts_dtype_get(t, &bits, 0) == x;
}

/* x as it was before the dims that are summed were expanded, times their sizes */
static ts_value *sum_expand(const ts_node *n)
{
    const ts_node *inner = ts_rule_behind(n, 0, TS_OP(expand));
    ts_type t = n->in[0]->type;
    int64_t count = 1;
    ts_value *x, *in;

    if (!inner || !ts_dtype_is_float(t.dtype))
        return NULL;
    in = inner->in[0];
    for (int d = 0; d < t.rank; d++) {
        int k = d - (t.rank - in->type.rank);
        if (!reduced(n, d) || (k >= 0 && in->type.dim[k] != 1))
            continue;
        count *= t.dim[d];
        t.dim[d] = 1;
    }
    if (count == 1 || !exact(t.dtype, (double)count))
        return NULL;
    x = ts_make1(n->op, ts_rule_shaped(in, &t), n->nattr, n->attr);
    return ts_mul(x, ts_full_like(x, (double)count));
}

static ts_value *sum_neg(const ts_node *n)
{
    const ts_node *neg = ts_rule_behind(n, 0, TS_OP(neg));

    if (!neg || !ts_dtype_is_float(n->out[0]->type.dtype))
        return NULL;
    return ts_neg(ts_make1(n->op, neg->in[0], n->nattr, n->attr));
}

/* The factors of a product that are the same all along the sum. */
typedef struct factors {
    const ts_node *sum;
    ts_value *v[8];
    int n;
} factors;

static bool same_along(const ts_node *sum, const ts_value *v)
{
    const ts_type *t = &sum->in[0]->type;

    for (int d = 0; d < t->rank; d++) {
        int k = d - (t->rank - v->type.rank);
        if (reduced(sum, d) && k >= 0 && v->type.dim[k] != 1)
            return false;
    }
    return true;
}

/* v without those factors, which go to f; NULL: nothing is left. A number stays where it is. */
static ts_value *strip(factors *f, ts_value *v)
{
    ts_value *x, *y;
    int before = f->n;

    if (same_along(f->sum, v) && ts_type_count(&v->type) > 1 && f->n < TS_COUNT(f->v)) {
        f->v[f->n++] = v;
        return NULL;
    }
    if (v->kind != TS_VALUE_NODE || v->node->op != TS_OP(mul) || v->node->phase != f->sum->phase)
        return v;
    x = strip(f, v->node->in[0]);
    y = strip(f, v->node->in[1]);
    if (f->n == before)
        return v;
    return x && y ? ts_mul(x, y) : x ? x : y;
}

/* v, which is the same along the sum, in the shape of the sum's result */
static ts_value *summed_shape(const ts_node *sum, ts_value *v)
{
    bool keep = ts_attr_int(sum, "keepdim", 0);
    int64_t dims[TS_MAX_RANK];
    int rank = sum->in[0]->type.rank, n = 0;

    for (int d = 0; d < rank; d++) {
        int k = d - (rank - v->type.rank);
        if (!reduced(sum, d) || keep)
            dims[n++] = k < 0 ? 1 : v->type.dim[k];
    }
    return ts_reshape_n(v, n, dims);
}

static ts_value *sum_product(const ts_node *n)
{
    ts_dtype t = n->out[0]->type.dtype;
    factors f = {.sum = n};
    ts_value *v;

    if ((t != TS_F32 && t != TS_F64) || n->in[0]->type.dtype != t)
        return NULL;
    v = strip(&f, n->in[0]);
    if (!f.n || !v || v->type.rank != n->in[0]->type.rank)
        return NULL;
    v = ts_make1(n->op, v, n->nattr, n->attr);
    for (int i = 0; i < f.n; i++)
        v = ts_mul(v, summed_shape(n, f.v[i]));
    return ts_rule_shaped(v, &n->out[0]->type);
}

/* Too big to be folded. */
static ts_value *sum_full(const ts_node *n)
{
    const ts_type *t = &n->out[0]->type;
    double x, count;

    if (!ts_dtype_is_float(t->dtype) || !ts_full_value(n->in[0], &x))
        return NULL;
    count = (double)(ts_type_count(&n->in[0]->type) / ts_type_count(t));
    return ts_full_n(graph(n), t->dtype, x * count, t->rank, t->dim);
}

/* Input k of n before it was expanded, with n's rank; NULL unless its rows along dim were whole. */
static ts_value *before_expand(const ts_node *n, int k, int dim)
{
    const ts_node *expand = ts_rule_behind(n, k, TS_OP(expand));
    const ts_type *t = &n->in[k]->type;
    int64_t dims[TS_MAX_RANK];
    int off;

    if (!expand)
        return NULL;
    off = t->rank - expand->in[0]->type.rank;
    for (int d = 0; d < t->rank; d++)
        dims[d] = d < off ? 1 : expand->in[0]->type.dim[d - off];
    return dims[dim] == t->dim[dim] ? ts_reshape_n(expand->in[0], t->rank, dims) : NULL;
}

/* The same row again and again: once is enough. */
static ts_value *rows_expand(const ts_node *n)
{
    int rank = n->out[0]->type.rank,
        dim = ts_norm_dim(n, ts_attr_int(n, "dim", n->op == TS_OP(argsort) ? -1 : 0), rank);
    ts_value *in[2], *v;

    for (int k = 0; k < n->nin; k++) {
        in[k] = before_expand(n, k, dim);
        if (!in[k])
            return NULL;
        for (int d = 0; d < rank; d++)
            if (d != dim && (in[k]->type.dim[d] != in[0]->type.dim[d] ||
                             n->in[k]->type.dim[d] != n->in[0]->type.dim[d]))
                return NULL;
    }
    v = ts_node_out(ts_node_make(graph(n), n->op, n->nin, in, n->nattr, n->attr));
    return v ? ts_expand_n(v, rank, n->out[0]->type.dim) : NULL;
}

static const ts_rule row_rules[] = {
    {TS_OP(argsort), rows_expand},
    {TS_OP(run_starts), rows_expand},
    {TS_OP(gather), rows_expand},
};

ts_value *ts_rule_rows(const ts_node *n)
{
    return ts_rule_first(row_rules, TS_COUNT(row_rules), n);
}

static const ts_rule reduce_rules[] = {
    {TS_OP(sum), reduce_ones},  {TS_OP(prod), reduce_ones}, {TS_OP(amax), reduce_ones},
    {TS_OP(amin), reduce_ones}, {TS_OP(sum), sum_expand},   {TS_OP(sum), sum_full},
    {TS_OP(sum), sum_neg},      {TS_OP(sum), sum_product},
};

ts_value *ts_rule_reduce(const ts_node *n)
{
    return n->op->flags & TS_REDUCE ? ts_rule_first(reduce_rules, TS_COUNT(reduce_rules), n) : NULL;
}
