/* index.c - reading and adding where an integer tensor says.
 *
 *   gather(x, i) dim         y[a,j,b] = x[a, i[a,j,b], b]
 *   scatter_add(i, s) dim    y[a,k,b] = sum of s[a,j,b] with i[a,j,b] == k
 *   index_select(x, i) dim   y[a,J,b] = x[a, i[J], b]
 *   index_add(i, s) dim      y[a,k,b] = sum of s[a,J,b] with i[J] == k
 *
 *   scatter_amax(i, s, x), scatter_amin, scatter_prod: the same of s and x
 *   row_scatter(i, s, x) dim how    any of them, a row at a time, in the order of the row
 *
 *   run_starts(i) size       y[k] = how many of i, which is sorted, are less than k
 *   run_add(r, s, p) dim     y[a,k,b] = sum of s[a,p[j],b] for j from r[k] to r[k + 1]
 *
 * `size` is y's size in dim. J stands for as many dims as i has; an embedding selects in dim 0.
 * Adds become the last two in pass/runs.c.
 *
 * Each pair of the first four is one another's gradient. An index outside reads NaN (0 for
 * integers) and adds nothing: a wrong label must show, not crash. The adds are gathers too (every
 * output element looks for its terms, in order), so the bits do not depend on the threads.
 */
#include "op/emit.h"
#include "op/op.h"
#include <math.h>

static ts_status check_index(const ts_node *n, const ts_value *i)
{
    if (ts_dtype_is_float(i->type.dtype) || i->type.dtype == TS_BOOL)
        return ts_fail_at(n, TS_ERR_TYPE, "%s needs an integer index, got %s", n->op->name,
                          ts_dtype_name(i->type.dtype));
    return TS_OK;
}

static int dim_of(const ts_node *n, int rank)
{
    return ts_norm_dim(n, ts_attr_int(n, "dim", 0), rank);
}

ts_status ts_infer_gather(ts_node *n)
{
    const ts_type *x = &n->in[0]->type;
    ts_type t = n->in[1]->type;
    int dim = dim_of(n, x->rank);

    TS_TRY(check_index(n, n->in[1]));
    if (dim < 0)
        return TS_ERR_ARG;
    if (x->rank != t.rank)
        return ts_fail_at(n, TS_ERR_SHAPE, "gather needs an index of rank %d, got %d", x->rank,
                          t.rank);
    for (int d = 0; d < t.rank; d++)
        if (d != dim && t.dim[d] > x->dim[d])
            return ts_fail_at(n, TS_ERR_SHAPE,
                              "gather: the index has size %ld in dim %d, the tensor %ld",
                              (long)t.dim[d], d, (long)x->dim[d]);
    t.dtype = x->dtype;
    return ts_node_set_out1(n, t);
}

ts_status ts_infer_scatter_add(ts_node *n)
{
    ts_type t = n->in[1]->type;
    const int64_t *shape;
    int dim = dim_of(n, t.rank);

    TS_TRY(check_index(n, n->in[0]));
    if (dim < 0)
        return TS_ERR_ARG;
    if (!ts_type_same_shape(&n->in[0]->type, &t))
        return ts_fail_at(n, TS_ERR_SHAPE,
                          "scatter_add needs an index and a source of the same shape");
    if (ts_attr_list(n, "shape", &shape) != t.rank)
        return ts_fail_at(n, TS_ERR_ARG, "scatter_add needs a shape of rank %d", t.rank);
    for (int d = 0; d < t.rank; d++) {
        if (d != dim && shape[d] < t.dim[d])
            return ts_fail_at(n, TS_ERR_SHAPE, "scatter_add into size %ld from %ld in dim %d",
                              (long)shape[d], (long)t.dim[d], d);
        t.dim[d] = shape[d];
    }
    return ts_node_set_out1(n, t);
}

ts_status ts_infer_index_select(ts_node *n)
{
    const ts_type *x = &n->in[0]->type, *i = &n->in[1]->type;
    int dim = dim_of(n, x->rank);
    ts_type t = {.dtype = x->dtype, .rank = x->rank - 1 + i->rank};

    TS_TRY(check_index(n, n->in[1]));
    if (dim < 0)
        return TS_ERR_ARG;
    if (t.rank > TS_MAX_RANK)
        return ts_fail_at(n, TS_ERR_SHAPE, "index_select gives rank %d; at most %d", t.rank,
                          TS_MAX_RANK);
    for (int d = 0; d < t.rank; d++)
        t.dim[d] = d < dim             ? x->dim[d]
                   : d < dim + i->rank ? i->dim[d - dim]
                                       : x->dim[d - i->rank + 1];
    return ts_node_set_out1(n, t);
}

ts_status ts_infer_index_add(ts_node *n)
{
    const ts_type *i = &n->in[0]->type, *s = &n->in[1]->type;
    ts_type t = {.dtype = s->dtype, .rank = s->rank + 1 - i->rank};
    int64_t size = ts_attr_int(n, "size", -1);
    int dim;

    TS_TRY(check_index(n, n->in[0]));
    if (t.rank < 1 || t.rank > TS_MAX_RANK)
        return ts_fail_at(n, TS_ERR_SHAPE,
                          "index_add of an index of rank %d and a source of rank %d", i->rank,
                          s->rank);
    dim = dim_of(n, t.rank);
    if (dim < 0)
        return TS_ERR_ARG;
    if (size < 0)
        return ts_fail_at(n, TS_ERR_ARG, "index_add to size %ld", (long)size);
    for (int d = 0; d < t.rank; d++)
        t.dim[d] = d < dim ? s->dim[d] : d == dim ? size : s->dim[d + i->rank - 1];
    for (int d = 0; d < i->rank; d++)
        if (s->dim[dim + d] != i->dim[d])
            return ts_fail_at(n, TS_ERR_SHAPE, "index_add: index size %ld, source size %ld",
                              (long)i->dim[d], (long)s->dim[dim + d]);
    return ts_node_set_out1(n, t);
}

ts_status ts_infer_run_starts(ts_node *n)
{
    ts_type t = n->in[0]->type;
    int64_t size = ts_attr_int(n, "size", 0);
    int dim = dim_of(n, t.rank);

    TS_TRY(check_index(n, n->in[0]));
    if (dim < 0)
        return TS_ERR_ARG;
    if (size < 1)
        return ts_fail_at(n, TS_ERR_ARG, "run_starts of size %ld", (long)size);
    t.dtype = TS_I64;
    t.dim[dim] = size;
    return ts_node_set_out1(n, t);
}

/* Is t of the source's rank, and broadcast to it in all dims but `dim`? */
static bool beside(const ts_type *t, const ts_type *source, int dim)
{
    bool ok = t->rank == source->rank;

    for (int d = 0; ok && d < t->rank; d++)
        ok = d == dim || t->dim[d] == 1 || t->dim[d] == source->dim[d];
    return ok;
}

ts_status ts_infer_run_add(ts_node *n)
{
    const ts_type *starts = &n->in[0]->type, *places = &n->in[2]->type;
    ts_type t = n->in[1]->type;
    int dim = dim_of(n, t.rank);

    if (dim < 0)
        return TS_ERR_ARG;
    if (starts->dtype != TS_I64 || places->dtype != TS_I64)
        return ts_fail_at(n, TS_ERR_TYPE, "%s needs starts and places in i64", n->op->name);
    if (!beside(starts, &t, dim) || !beside(places, &t, dim) || starts->dim[dim] < 2)
        return ts_fail_at(n, TS_ERR_SHAPE,
                          "%s needs starts and places that are broadcast to its source",
                          n->op->name);
    t.dim[dim] = starts->dim[dim] - 1;
    return ts_node_set_out1(n, t);
}

/* Of the first value, which is there where nothing is written: scatter_amax(index, source, x). */
ts_status ts_infer_scatter_pick(ts_node *n)
{
    const ts_type *i = &n->in[0]->type, *s = &n->in[1]->type, *x = &n->in[2]->type;
    int dim = dim_of(n, x->rank);

    TS_TRY(check_index(n, n->in[0]));
    if (dim < 0)
        return TS_ERR_ARG;
    if (s->dtype != x->dtype)
        return ts_fail_at(n, TS_ERR_TYPE, "%s of %s into %s", n->op->name, ts_dtype_name(s->dtype),
                          ts_dtype_name(x->dtype));
    if (!ts_type_same_shape(i, s) || s->rank != x->rank)
        return ts_fail_at(n, TS_ERR_SHAPE, "%s needs an index and a source of the same shape",
                          n->op->name);
    for (int d = 0; d < x->rank; d++)
        if (d != dim && s->dim[d] != x->dim[d])
            return ts_fail_at(n, TS_ERR_SHAPE, "%s: size %ld into size %ld in dim %d", n->op->name,
                              (long)s->dim[d], (long)x->dim[d], d);
    return ts_node_set_out1(n, *x);
}

/* The same, a row at a time: how="add", "put" (the last of several), "prod", "amax" or "amin" */
ts_status ts_infer_row_scatter(ts_node *n)
{
    const char *how = ts_attr_str(n, "how", "");

    if (strcmp(how, "add") && strcmp(how, "put") && strcmp(how, "amax") && strcmp(how, "amin") &&
        strcmp(how, "prod"))
        return ts_fail_at(n, TS_ERR_ARG, "row_scatter with how='%.20s'", how);
    if (ts_dtype_is_half(n->in[1]->type.dtype))
        return ts_fail_at(n, TS_ERR_TYPE, "row_scatter of halves, whose sums would be rounded");
    return ts_infer_scatter_pick(n);
}

/* run_amax(starts, source, places, x) */
ts_status ts_infer_run_pick(ts_node *n)
{
    ts_type t;

    TS_TRY(ts_infer_run_add(n));
    t = n->out[0]->type;
    if (!ts_type_same(&t, &n->in[3]->type))
        return ts_fail_at(n, TS_ERR_SHAPE, "%s into a tensor of another type than its result",
                          n->op->name);
    return TS_OK;
}

/* What becomes of two that meet. */
static const char *joined_by(const ts_node *n)
{
    if (n->op == TS_OP(row_scatter))
        return ts_attr_str(n, "how", "");
    if (n->op == TS_OP(scatter_amax) || n->op == TS_OP(run_amax))
        return "amax";
    if (n->op == TS_OP(scatter_amin) || n->op == TS_OP(run_amin))
        return "amin";
    return n->op == TS_OP(scatter_prod) ? "prod" : "add";
}

static bool is_largest(const ts_node *n)
{
    return !strcmp(joined_by(n), "amax");
}

static bool is_pick(const ts_node *n)
{
    return is_largest(n) || !strcmp(joined_by(n), "amin");
}

static bool is_product(const ts_node *n)
{
    return !strcmp(joined_by(n), "prod");
}

/* Does the last operand say what each result begins with? */
static bool begins_with(const ts_node *n)
{
    return n->op->nin == 3 + (n->op == TS_OP(run_amax) || n->op == TS_OP(run_amin)) &&
           n->op != TS_OP(run_add);
}

/* --- reference --- */

static double pick(const ts_node *n, double x, double y)
{
    if (is_product(n))
        return x * y;
    if (x != x || y != y)
        return NAN;
    return is_largest(n) ? TS_MAX(x, y) : TS_MIN(x, y);
}

static int64_t index_at(const ts_tensor *t, int64_t flat)
{
    return (int64_t)ts_dtype_get(t->type.dtype, t->data, flat);
}

ts_status ts_eval_gather(const ts_node *n, const ts_eval_ctx *c, const ts_tensor *in,
                         ts_tensor *out)
{
    int dim = dim_of(n, out->type.rank);
    int64_t at[TS_MAX_RANK];

    (void)c;
    for (ts_each it = ts_each_of(&out->type); it.more; ts_each_next(&it)) {
        int64_t i = index_at(&in[1], it.flat);
        bool ok = i >= 0 && i < in[0].type.dim[dim];
        memcpy(at, it.at, sizeof(at));
        at[dim] = ok ? i : 0;
        ts_dtype_set(out->type.dtype, out->data, it.flat,
                     ok ? ts_dtype_get(in[0].type.dtype, in[0].data, ts_flat(&in[0].type, at))
                        : NAN);
    }
    return TS_OK;
}

ts_status ts_eval_scatter_add(const ts_node *n, const ts_eval_ctx *c, const ts_tensor *in,
                              ts_tensor *out)
{
    int dim = dim_of(n, out->type.rank);
    int64_t at[TS_MAX_RANK];
    double *sums;

    (void)c;
    TS_TRY(ts_sums_start(out, &sums));
    for (ts_each it = ts_each_of(&in[1].type); it.more; ts_each_next(&it)) {
        int64_t i = index_at(&in[0], it.flat);
        if (i < 0 || i >= out->type.dim[dim])
            continue;
        memcpy(at, it.at, sizeof(at));
        at[dim] = i;
        sums[ts_flat(&out->type, at)] += ts_dtype_get(in[1].type.dtype, in[1].data, it.flat);
    }
    ts_sums_store(sums, out);
    return TS_OK;
}

/* In the tensors themselves: an i64 need not be a double. */
static void pick_into(const ts_node *n, ts_tensor *out, int64_t at, const ts_tensor *from,
                      int64_t i)
{
    ts_dtype t = out->type.dtype;

    if (t == TS_I64) {
        int64_t *x = (int64_t *)out->data + at, y = ((const int64_t *)from->data)[i];
        *x = is_product(n)   ? (int64_t)((uint64_t)*x * (uint64_t)y)
             : is_largest(n) ? TS_MAX(*x, y)
                             : TS_MIN(*x, y);
    } else
        ts_dtype_set(t, out->data, at,
                     pick(n, ts_dtype_get(t, out->data, at), ts_dtype_get(t, from->data, i)));
}

typedef void into_fn(const ts_node *n, ts_tensor *out, int64_t at, const ts_tensor *from,
                     int64_t i);

/* Every element of in[1] into the place that in[0] says, of a copy of in[2]. */
static ts_status scatter_each(const ts_node *n, const ts_tensor *in, ts_tensor *out, into_fn *into)
{
    int dim = dim_of(n, out->type.rank);
    int64_t at[TS_MAX_RANK];

    memcpy(out->data, in[2].data, ts_type_bytes(&out->type));
    for (ts_each it = ts_each_of(&in[1].type); it.more; ts_each_next(&it)) {
        int64_t i = index_at(&in[0], it.flat);
        if (i < 0 || i >= out->type.dim[dim])
            continue;
        memcpy(at, it.at, sizeof(at));
        at[dim] = i;
        into(n, out, ts_flat(&out->type, at), &in[1], it.flat);
    }
    return TS_OK;
}

ts_status ts_eval_scatter_pick(const ts_node *n, const ts_eval_ctx *c, const ts_tensor *in,
                               ts_tensor *out)
{
    (void)c;
    return scatter_each(n, in, out, pick_into);
}

/* Element i of `from` joins what is at `at`. */
static void join_into(const ts_node *n, ts_tensor *out, int64_t at, const ts_tensor *from,
                      int64_t i)
{
    size_t size = ts_dtype_size(out->type.dtype);
    ts_dtype t = out->type.dtype;

    if (is_pick(n) || is_product(n))
        pick_into(n, out, at, from, i);
    else if (!strcmp(ts_attr_str(n, "how", ""), "put"))
        memcpy((char *)out->data + (size_t)at * size, (const char *)from->data + (size_t)i * size,
               size);
    else
        ts_dtype_set(t, out->data, at,
                     ts_dtype_get(t, out->data, at) + ts_dtype_get(t, from->data, i));
}

ts_status ts_eval_row_scatter(const ts_node *n, const ts_eval_ctx *c, const ts_tensor *in,
                              ts_tensor *out)
{
    (void)c;
    return scatter_each(n, in, out, join_into);
}

/* (a, J, b) of the long side to (a, k, b) of the short one */
static void squeeze_at(const int64_t *from, int dim, int irank, int rank, int64_t k, int64_t *to)
{
    for (int d = 0; d < rank; d++)
        to[d] = d < dim ? from[d] : d == dim ? k : from[d + irank - 1];
}

ts_status ts_eval_index_select(const ts_node *n, const ts_eval_ctx *c, const ts_tensor *in,
                               ts_tensor *out)
{
    int rank = in[0].type.rank, dim = dim_of(n, rank);
    int64_t at[TS_MAX_RANK];

    (void)c;
    for (ts_each it = ts_each_of(&out->type); it.more; ts_each_next(&it)) {
        int64_t i = index_at(&in[1], ts_flat(&in[1].type, it.at + dim));
        bool ok = i >= 0 && i < in[0].type.dim[dim];
        squeeze_at(it.at, dim, in[1].type.rank, rank, ok ? i : 0, at);
        ts_dtype_set(out->type.dtype, out->data, it.flat,
                     ok ? ts_dtype_get(in[0].type.dtype, in[0].data, ts_flat(&in[0].type, at))
                        : NAN);
    }
    return TS_OK;
}

ts_status ts_eval_index_add(const ts_node *n, const ts_eval_ctx *c, const ts_tensor *in,
                            ts_tensor *out)
{
    int rank = out->type.rank, dim = dim_of(n, rank);
    int64_t at[TS_MAX_RANK];
    double *sums;

    (void)c;
    TS_TRY(ts_sums_start(out, &sums));
    for (ts_each it = ts_each_of(&in[1].type); it.more; ts_each_next(&it)) {
        int64_t i = index_at(&in[0], ts_flat(&in[0].type, it.at + dim));
        if (i < 0 || i >= out->type.dim[dim])
            continue;
        squeeze_at(it.at, dim, in[0].type.rank, rank, i, at);
        sums[ts_flat(&out->type, at)] += ts_dtype_get(in[1].type.dtype, in[1].data, it.flat);
    }
    ts_sums_store(sums, out);
    return TS_OK;
}

/* An index where others of the same rank, or broadcast, are at `at`, and i is in dim. */
static int64_t index_beside(const ts_tensor *t, const int64_t *at, int dim, int64_t i)
{
    int64_t x[TS_MAX_RANK] = {0};

    for (int d = 0; d < t->type.rank; d++)
        x[d] = d == dim ? i : t->type.dim[d] == 1 ? 0 : at[d];
    return index_at(t, ts_flat(&t->type, x));
}

ts_status ts_eval_run_starts(const ts_node *n, const ts_eval_ctx *c, const ts_tensor *in,
                             ts_tensor *out)
{
    int dim = dim_of(n, out->type.rank);

    (void)c;
    for (ts_each it = ts_each_of(&out->type); it.more; ts_each_next(&it)) {
        int64_t lo = 0, hi = in[0].type.dim[dim];
        while (lo < hi) {
            int64_t mid = (lo + hi) / 2;
            if (index_beside(&in[0], it.at, dim, mid) < it.at[dim])
                lo = mid + 1;
            else
                hi = mid;
        }
        ts_dtype_set(TS_I64, out->data, it.flat, (double)lo);
    }
    return TS_OK;
}

ts_status ts_eval_run_add(const ts_node *n, const ts_eval_ctx *c, const ts_tensor *in,
                          ts_tensor *out)
{
    int dim = dim_of(n, out->type.rank);
    int64_t at[TS_MAX_RANK], count = in[2].type.dim[dim], size = in[1].type.dim[dim];

    (void)c;
    for (ts_each it = ts_each_of(&out->type); it.more; ts_each_next(&it)) {
        int64_t from = TS_MAX(index_beside(&in[0], it.at, dim, it.at[dim]), 0),
                to = TS_MIN(index_beside(&in[0], it.at, dim, it.at[dim] + 1), count);
        double sum = 0;
        memcpy(at, it.at, sizeof(at));
        for (int64_t j = from; j < to; j++) {
            at[dim] = index_beside(&in[2], it.at, dim, j);
            if (at[dim] >= 0 && at[dim] < size)
                sum += ts_dtype_get(in[1].type.dtype, in[1].data, ts_flat(&in[1].type, at));
        }
        ts_dtype_set(out->type.dtype, out->data, it.flat, sum);
    }
    return TS_OK;
}

ts_status ts_eval_run_pick(const ts_node *n, const ts_eval_ctx *c, const ts_tensor *in,
                           ts_tensor *out)
{
    int dim = dim_of(n, out->type.rank);
    int64_t at[TS_MAX_RANK], count = in[2].type.dim[dim], size = in[1].type.dim[dim];

    (void)c;
    memcpy(out->data, in[3].data, ts_type_bytes(&out->type));
    for (ts_each it = ts_each_of(&out->type); it.more; ts_each_next(&it)) {
        int64_t from = TS_MAX(index_beside(&in[0], it.at, dim, it.at[dim]), 0),
                to = TS_MIN(index_beside(&in[0], it.at, dim, it.at[dim] + 1), count);
        memcpy(at, it.at, sizeof(at));
        for (int64_t j = from; j < to; j++) {
            at[dim] = index_beside(&in[2], it.at, dim, j);
            if (at[dim] >= 0 && at[dim] < size)
                pick_into(n, out, it.flat, &in[1], ts_flat(&in[1].type, at));
        }
    }
    return TS_OK;
}

/* --- generated code --- */

/* Is v the same all along dim d? */
static bool same_along(const ts_value *v, int d)
{
    const ts_node *n = v->node;
    int off;

    if (v->type.dim[d] == 1)
        return true;
    if (!n || n->op != TS_OP(expand))
        return false;
    off = v->type.rank - n->in[0]->type.rank;
    return d < off || n->in[0]->type.dim[d - off] == 1;
}

typedef struct read_arg {
    const ts_node *n;
    const ts_ix *const *at;
} read_arg;

typedef struct at_arg {
    const ts_value *v;
    const ts_ix *x[TS_MAX_RANK];
} at_arg;

static const char *at_body(ts_emit *e, void *arg)
{
    at_arg *t = arg;

    return ts_emit_at(e, t->v, t->x);
}

/* x at an index that is a C variable */
static const char *read(ts_emit *e, const ts_value *v, const ts_ix **x, int dim, const char *index)
{
    int64_t size = v->type.dim[dim];
    at_arg t = {.v = v};

    for (int d = 0; d < v->type.rank; d++)
        t.x[d] = x[d];
    t.x[dim] = ts_ix_var(e->a, ts_atom_var(e->a, index, 0, size - 1));
    if (size == 1)
        t.x[dim] = ts_ix_const(e->a, 0);
    return ts_emit_guard(e, ts_arena_printf(e->a, "%s >= 0 && %s < %ld", index, index, (long)size),
                         false, v->type.dtype, ts_dtype_is_float(v->type.dtype) ? NAN : 0, at_body,
                         &t);
}

/* An index that all lanes share is a number, wherever else the first of them stands. */
static const char *scalar_at(ts_emit *e, const ts_value *v, const ts_ix *const *at)
{
    const ts_ix *first[TS_MAX_RANK];
    int lanes = e->lanes;
    const char *name;

    for (int d = 0; d < v->type.rank; d++)
        first[d] = same_along(v, d) ? ts_ix_const(e->a, 0) : at[d];
    e->lanes = 0;
    name = ts_emit_at(e, v, first);
    e->lanes = lanes;
    return name;
}

static const char *gather_body(ts_emit *e, void *arg)
{
    const read_arg *r = arg;
    int rank = r->n->in[0]->type.rank;
    const ts_ix *x[TS_MAX_RANK];

    for (int d = 0; d < rank; d++)
        x[d] = r->at[d];
    return read(e, r->n->in[0], x, dim_of(r->n, rank), scalar_at(e, r->n->in[1], r->at));
}

/* Do the lanes share an element of the index? */
static bool one_index(const ts_emit *e, const ts_value *index, const ts_ix *const *at)
{
    for (int d = 0; d < index->type.rank; d++)
        if (ts_ix_uses(at[d], e->lane) && !same_along(index, d))
            return false;
    return true;
}

const char *ts_emit_gather(ts_emit *e, const ts_node *n, int out, const ts_ix *const *at)
{
    read_arg r = {n, at};

    (void)out;
    return e->lanes && !one_index(e, n->in[1], at)
               ? ts_emit_lanes(e, n->out[0]->type.dtype, gather_body, &r)
               : gather_body(e, &r);
}

static const char *select_body(ts_emit *e, void *arg)
{
    const read_arg *r = arg;
    const ts_type *t = &r->n->in[0]->type;
    int dim = dim_of(r->n, t->rank), irank = r->n->in[1]->type.rank;
    const ts_ix *x[TS_MAX_RANK];

    for (int d = 0; d < t->rank; d++)
        x[d] = d <= dim ? r->at[d] : r->at[d + irank - 1];
    return read(e, r->n->in[0], x, dim, ts_emit_at(e, r->n->in[1], r->at + dim));
}

const char *ts_emit_index_select(ts_emit *e, const ts_node *n, int out, const ts_ix *const *at)
{
    read_arg r = {n, at};
    int dim = dim_of(n, n->in[0]->type.rank);
    bool by_lane = ts_emit_cond_by_lane(e, n->in[1]->type.rank, at + dim, NULL);
    int lanes = e->lanes;
    const char *index, *v;

    (void)out;
    if (by_lane)
        return ts_emit_lanes(e, n->out[0]->type.dtype, select_body, &r);
    if (!lanes)
        return select_body(e, &r);
    /* the lanes share the index: read it once, then a vector */
    e->lanes = 0;
    index = ts_emit_at(e, n->in[1], at + dim);
    e->lanes = lanes;
    const ts_ix *x[TS_MAX_RANK];
    for (int d = 0; d < n->in[0]->type.rank; d++)
        x[d] = d <= dim ? at[d] : at[d + n->in[1]->type.rank - 1];
    v = read(e, n->in[0], x, dim, index);
    return v;
}

/* What a sum or a choice begins with. */
static const char *begin(ts_emit *e, const ts_node *n, const ts_ix *const *at)
{
    const char *acc = ts_emit_name(e, "s"), *first;
    ts_dtype t = n->out[0]->type.dtype;

    first = begins_with(n) ? ts_emit_at(e, n->in[n->nin - 1], at) : ts_emit_literal(e, t, 0);
    ts_emit_line(e, "%s %s = %s;", ts_emit_ctype(e, t), acc, first);
    return acc;
}

/* x and y, joined. */
static const char *joined(ts_emit *e, const ts_node *n, const char *x, const char *y)
{
    const char *op = is_largest(n) ? "maximum" : "minimum",
               *suffix = ts_emit_suffix(e, n->out[0]->type.dtype);

    if (!is_pick(n))
        return ts_arena_printf(e->a, "%s %s %s", x, is_product(n) ? "*" : "+", y);
    e->need(e->where, ts_arena_printf(e->a, "op %s %s", op, suffix));
    return ts_arena_printf(e->a, "%s%s_%s(%s, %s)", e->prefix, op, suffix, x, y);
}

static void combine(ts_emit *e, const ts_node *n, const char *acc, const char *x)
{
    ts_emit_line(e, "%s = %s;", acc, joined(e, n, acc, x));
}

/* s = 0; for (j in index) if (index[j] == k) s += source[j]; */
static const char *add_body(ts_emit *e, void *arg)
{
    const read_arg *r = arg;
    const ts_value *index = r->n->in[0], *src = r->n->in[1];
    bool scatter = r->n->op != TS_OP(index_add);
    int dim = dim_of(r->n, r->n->out[0]->type.rank), irank = index->type.rank, marks[TS_MAX_RANK],
        depth = 0, mark;
    const ts_ix *i[TS_MAX_RANK], *s[TS_MAX_RANK];
    const char *acc = begin(e, r->n, r->at), *cond = "", *at;
    int lanes = e->lanes;

    for (int d = 0; d < irank; d++) {
        if (scatter && d != dim) {
            i[d] = r->at[d];
            continue;
        }
        i[d] = ts_ix_var(e->a, ts_emit_loop(e, "j", 0, index->type.dim[d]));
        ts_emit_open(e, &marks[depth++]);
    }
    for (int d = 0; d < src->type.rank; d++)
        s[d] = scatter           ? i[d]
               : d < dim         ? r->at[d]
               : d < dim + irank ? i[d - dim]
                                 : r->at[d - irank + 1];
    if (scatter) /* a source smaller than the output reaches only part of it */
        cond = ts_emit_inside_all(e, irank, i, index->type.dim);
    if (cond) {
        e->lanes = 0;
        if (cond[0]) {
            ts_emit_line(e, "if (%s) {", cond);
            ts_emit_open(e, &mark);
        }
        at = ts_emit_at(e, index, i);
        ts_emit_line(e, "if (%s == %s) {", at, ts_ix_text(e->a, r->at[dim]));
        e->lanes = lanes;
        int inner;
        ts_emit_open(e, &inner);
        combine(e, r->n, acc, ts_emit_at(e, src, s));
        ts_emit_close(e, inner);
        if (cond[0])
            ts_emit_close(e, mark);
    }
    while (depth--)
        ts_emit_close(e, marks[depth]);
    return acc;
}

static const char *emit_add(ts_emit *e, const ts_node *n, const ts_ix *const *at, bool by_lane)
{
    read_arg r = {n, at};

    return e->lanes && by_lane ? ts_emit_lanes(e, n->out[0]->type.dtype, add_body, &r)
                               : add_body(e, &r);
}

const char *ts_emit_scatter_add(ts_emit *e, const ts_node *n, int out, const ts_ix *const *at)
{
    (void)out;
    return emit_add(e, n, at, true);
}

const char *ts_emit_scatter_pick(ts_emit *e, const ts_node *n, int out, const ts_ix *const *at)
{
    return ts_emit_scatter_add(e, n, out, at);
}

const char *ts_emit_index_add(ts_emit *e, const ts_node *n, int out, const ts_ix *const *at)
{
    (void)out;
    return emit_add(e, n, at,
                    ts_emit_cond_by_lane(e, 1, at + dim_of(n, n->out[0]->type.rank), NULL));
}

/* An index where others of the same rank, or broadcast, are at `at`, and i is in dim. */
static const char *emit_beside(ts_emit *e, const ts_value *v, const ts_ix *const *at, int dim,
                               const ts_ix *i)
{
    const ts_ix *x[TS_MAX_RANK];

    for (int d = 0; d < v->type.rank; d++)
        x[d] = d == dim ? i : v->type.dim[d] == 1 ? ts_ix_const(e->a, 0) : at[d];
    return ts_emit_at(e, v, x);
}

/* A C variable that is inside a dim of this size. */
static const ts_ix *variable(ts_emit *e, const char *name, int64_t size)
{
    return size > 1 ? ts_ix_var(e->a, ts_atom_var(e->a, name, 0, size - 1)) : ts_ix_const(e->a, 0);
}

/* j = 0; for (k = 0; k < size; k++) { while (keys[j] < k) j++; starts[k] = j; }: writes a row */
const char *ts_emit_run_starts(ts_emit *e, const ts_node *n, int out, const ts_ix *const *at)
{
    const ts_value *keys = n->in[0], *y = n->out[out];
    int dim = dim_of(n, keys->type.rank), mark, inner;
    const char *j = ts_emit_name(e, "j"), *key;
    const ts_ix *x[TS_MAX_RANK];
    const ts_atom *k;
    int64_t count = keys->type.dim[dim];

    for (int d = 0; d < y->type.rank; d++)
        x[d] = at[d];
    ts_emit_line(e, "%s %s = 0;", e->index, j);
    k = ts_emit_loop(e, "k", 0, y->type.dim[dim]);
    ts_emit_open(e, &mark);
    ts_emit_line(e, "for (; %s < %ld; %s++) {", j, (long)count, j);
    ts_emit_open(e, &inner);
    key = emit_beside(e, keys, at, dim, variable(e, j, count));
    ts_emit_line(e, "if (%s >= %s)", key, k->name);
    ts_emit_line(e, "    break;");
    ts_emit_close(e, inner);
    x[dim] = variable(e, k->name, y->type.dim[dim]);
    ts_emit_store(e, y, x, j);
    ts_emit_close(e, mark);
    return NULL;
}

typedef struct row {
    const ts_node *n;
    int dim;
    const ts_ix *x[TS_MAX_RANK]; /* coordinates; in dim, k or j */
    const ts_ix *to;             /* where it goes in dim */
} row;

static void row_begin(ts_emit *e, void *arg)
{
    const row *r = arg;

    ts_emit_store(e, r->n->out[0], r->x, ts_emit_at(e, r->n->in[2], r->x));
}

static void row_join(ts_emit *e, void *arg)
{
    const row *r = arg;
    const ts_value *y = r->n->out[0];
    const char *v = ts_emit_at(e, r->n->in[1], r->x);
    const ts_ix *to[TS_MAX_RANK];

    memcpy(to, r->x, sizeof(to));
    to[r->dim] = r->to;
    if (strcmp(joined_by(r->n), "put"))
        v = ts_emit_temp(e, y->type.dtype, "%s", joined(e, r->n, ts_emit_memory(e, y, to), v));
    ts_emit_store(e, y, to, v);
}

/* p = index[j]; if (p is inside) { */
static void row_open(ts_emit *e, row *r, int *mark)
{
    int64_t size = r->n->out[0]->type.dim[r->dim];
    const char *p = ts_emit_name(e, "p");

    ts_emit_line(e, "const int64_t %s = %s;", p, ts_emit_at(e, r->n->in[0], r->x));
    ts_emit_line(e, "if (%s >= 0 && %s < %ld) {", p, p, (long)size);
    ts_emit_open(e, mark);
    r->to = variable(e, p, size);
}

static void row_each(ts_emit *e, void *arg)
{
    int mark;

    row_open(e, arg, &mark);
    row_join(e, arg);
    ts_emit_close(e, mark);
}

/* Numbers of a byte wrap where they are stored, which vectors of them would not. */
static int row_vectors(const ts_node *n)
{
    ts_dtype t = n->out[0]->type.dtype;

    return t == TS_F32 || t == TS_I32 ? TS_COLUMNS_VECTORS : TS_COLUMNS_LOOP;
}

/* for (k) y[k] = x[k]; for (j) y[index[j]] += source[j]: writes a row, or several side by side, together where they share
 * their index */
const char *ts_emit_row_scatter(ts_emit *e, const ts_node *n, int out, const ts_ix *const *at)
{
    int64_t size = n->out[out]->type.dim[dim_of(n, n->out[out]->type.rank)];
    row r = {.n = n, .dim = dim_of(n, n->out[out]->type.rank)};
    bool together = e->columns && same_along(n->in[0], e->column);
    int mark, inner;

    for (int d = 0; d < n->out[out]->type.rank; d++)
        r.x[d] = at[d];
    r.x[r.dim] = variable(e, ts_emit_loop(e, "k", 0, size)->name, size);
    ts_emit_open(e, &mark);
    ts_emit_columns(e, row_vectors(n), r.x, row_begin, &r);
    ts_emit_close(e, mark);
    size = n->in[1]->type.dim[r.dim];
    r.x[r.dim] = variable(e, ts_emit_loop(e, "j", 0, size)->name, size);
    ts_emit_open(e, &mark);
    if (together) {
        row_open(e, &r, &inner);
        ts_emit_columns(e, row_vectors(n), r.x, row_join, &r);
        ts_emit_close(e, inner);
    } else
        ts_emit_columns(e, TS_COLUMNS_LOOP, r.x, row_each, &r);
    ts_emit_close(e, mark);
    return NULL;
}

/* s = 0; for (j = starts[k]; j < starts[k + 1]; j++) s += source[places[j]]; */
static const char *run_body(ts_emit *e, void *arg)
{
    const read_arg *r = arg;
    const ts_value *starts = r->n->in[0], *src = r->n->in[1], *places = r->n->in[2];
    int rank = src->type.rank, dim = dim_of(r->n, rank), lanes = e->lanes, mark, inner;
    const char *acc = begin(e, r->n, r->at), *j = ts_emit_name(e, "j"), *p = ts_emit_name(e, "p");
    int64_t size = src->type.dim[dim], count = places->type.dim[dim];
    const char *from, *to, *place;
    const ts_ix *s[TS_MAX_RANK];

    e->lanes = 0;
    from = emit_beside(e, starts, r->at, dim, r->at[dim]);
    to = emit_beside(e, starts, r->at, dim, ts_ix_addc(e->a, r->at[dim], 1));
    ts_emit_line(e, "for (int64_t %s = %s < 0 ? 0 : %s; %s < %s && %s < %ld; %s++) {", j, from,
                 from, j, to, j, (long)count, j);
    ts_emit_open(e, &mark);
    place = emit_beside(e, places, r->at, dim, variable(e, j, count));
    ts_emit_line(e, "const int64_t %s = %s;", p, place);
    ts_emit_line(e, "if (%s >= 0 && %s < %ld) {", p, p, (long)size);
    ts_emit_open(e, &inner);
    e->lanes = lanes;
    for (int d = 0; d < rank; d++)
        s[d] = d == dim ? variable(e, p, size) : r->at[d];
    combine(e, r->n, acc, ts_emit_at(e, src, s));
    ts_emit_close(e, inner);
    ts_emit_close(e, mark);
    return acc;
}

/* Do the lanes have different starts? */
static bool runs_by_lane(const ts_emit *e, const ts_node *n, const ts_ix *const *at)
{
    const ts_type *t = &n->in[0]->type, *places = &n->in[2]->type;
    int dim = dim_of(n, t->rank);

    for (int d = 0; e->lanes && d < t->rank; d++)
        if ((d == dim || t->dim[d] > 1 || places->dim[d] > 1) && ts_ix_uses(at[d], e->lane))
            return true;
    return false;
}

const char *ts_emit_run_add(ts_emit *e, const ts_node *n, int out, const ts_ix *const *at)
{
    read_arg r = {n, at};

    (void)out;
    return runs_by_lane(e, n, at) ? ts_emit_lanes(e, n->out[0]->type.dtype, run_body, &r)
                                  : run_body(e, &r);
}

const char *ts_emit_run_pick(ts_emit *e, const ts_node *n, int out, const ts_ix *const *at)
{
    return ts_emit_run_add(e, n, out, at);
}

/* --- gradients --- */

ts_status ts_grad_gather(ts_node *n, ts_value *const *dy, ts_value **dx)
{
    const ts_type *t = &n->in[0]->type;
    ts_attr attr[] = {ts_attr_i("dim", ts_attr_int(n, "dim", 0)),
                      ts_attr_l("shape", t->rank, t->dim)};

    dx[0] = ts_make2(TS_OP(scatter_add), n->in[1], dy[0], 2, attr);
    return TS_OK;
}

ts_status ts_grad_scatter_add(ts_node *n, ts_value *const *dy, ts_value **dx)
{
    dx[1] = ts_gather(dy[0], (int)ts_attr_int(n, "dim", 0), n->in[0]);
    return TS_OK;
}

/* To all that are the result, in equal parts, the first value among them. */
ts_status ts_grad_scatter_pick(ts_node *n, ts_value *const *dy, ts_value **dx)
{
    ts_value *index = n->in[0], *src = n->in[1], *x = n->in[2], *y = n->out[0];
    ts_value *zero = ts_full_like(x, 0), *hit, *own = ts_eq(x, y), *count, *part;
    int dim = (int)ts_attr_int(n, "dim", 0);
    ts_attr attr[] = {ts_attr_i("dim", dim), ts_attr_l("shape", x->type.rank, x->type.dim)};

    hit = ts_eq(src, ts_gather(y, dim, index));
    count = ts_make2(TS_OP(scatter_add), index, ts_cast(hit, x->type.dtype), 2, attr);
    part = ts_div(dy[0], ts_add(count, ts_cast(own, x->type.dtype)));
    dx[1] = ts_where(hit, ts_gather(part, dim, index), zero);
    dx[2] = ts_where(own, part, zero);
    return TS_OK;
}

static ts_value *added(ts_value *index, ts_value *source, ts_value *x, int dim)
{
    ts_attr attr[] = {ts_attr_i("dim", dim), ts_attr_l("shape", x->type.rank, x->type.dim)};

    return ts_add(ts_make2(TS_OP(scatter_add), index, source, 2, attr), x);
}

/* To each factor the product of the others: without zeros y divided by it. Of one zero the others are left, and all but the
 * zero have none; of two zeros none has. */
ts_status ts_grad_scatter_prod(ts_node *n, ts_value *const *dy, ts_value **dx)
{
    ts_value *index = n->in[0], *src = n->in[1], *x = n->in[2], *zero = ts_full_like(x, 0);
    ts_value *none = ts_full_like(src, 0), *one = ts_full_like(src, 1), *own = ts_full_like(x, 1);
    ts_value *hit = ts_eq(src, none), *start = ts_eq(x, zero), *zeros, *others, *part, *lone;
    ts_attr dim = ts_attr_i("dim", ts_attr_int(n, "dim", 0));
    ts_value *in[] = {index, ts_where(hit, one, src), ts_where(start, own, x)}, *inside;

    if (!in[1] || !in[2])
        return TS_ERR_ARG;
    others = ts_node_out(ts_node_make(in[1]->graph, n->op, 3, in, 1, &dim));
    zeros = added(index, ts_cast(hit, x->type.dtype), ts_cast(start, x->type.dtype), (int)dim.i);
    lone = ts_where(ts_eq(zeros, own), ts_mul(dy[0], others), zero);
    part = ts_where(ts_eq(zeros, zero), ts_mul(dy[0], others), zero);
    dx[1] = ts_where(hit, ts_gather(lone, (int)dim.i, index),
                     ts_div(ts_gather(part, (int)dim.i, index), in[1]));
    inside = ts_expand_n(own, x->type.rank, x->type.dim);
    inside = ts_eq(ts_gather(inside, (int)dim.i, index), one);
    dx[1] = ts_where(inside, dx[1], none);
    dx[2] = ts_where(start, lone, ts_div(part, in[2]));
    return TS_OK;
}

ts_status ts_grad_index_select(ts_node *n, ts_value *const *dy, ts_value **dx)
{
    int dim = dim_of(n, n->in[0]->type.rank);
    ts_attr attr[] = {ts_attr_i("dim", dim), ts_attr_i("size", n->in[0]->type.dim[dim])};

    dx[0] = ts_make2(TS_OP(index_add), n->in[1], dy[0], 2, attr);
    return TS_OK;
}

ts_status ts_grad_index_add(ts_node *n, ts_value *const *dy, ts_value **dx)
{
    ts_attr attr[] = {ts_attr_i("dim", dim_of(n, n->out[0]->type.rank))};

    dx[1] = ts_make2(TS_OP(index_select), dy[0], n->in[0], 1, attr);
    return TS_OK;
}
