/* norm.c - batch, group and layer norm as compositions.
 *
 *   mean = E[x], var = E[(x - mean)^2] over the normalised dims
 *   y    = (x - mean) / sqrt(var + eps) * weight + bias
 *
 * Statistics are in f32 whatever the input's dtype; affine parameters are cast to it.
 */
#include "op/op.h"

static ts_value *mean_of(ts_value *x, int n, const int64_t *dims)
{
    return ts_mean(x, n, dims, true);
}

/* (x - mean) * rsqrt(var + eps) over dims; var and mean are handed back when asked for.
 *
 * The variance has no slope in the mean, for the differences add up to nothing. Said so here, the
 * gradient needs its two sums at once, and one pass after them. */
static ts_value *normalise(ts_value *x, int n, const int64_t *dims, double eps, ts_value **mean,
                           ts_value **var)
{
    ts_value *m = mean_of(x, n, dims), *d = ts_sub(x, ts_detach(m));
    ts_value *v = mean_of(ts_mul(d, d), n, dims);

    if (mean)
        *mean = m;
    if (var)
        *var = v;
    v = ts_rsqrt(ts_add(v, ts_full_like(v, eps)));
    return ts_mul(ts_sub(x, m), v);
}

static ts_dtype stat_type(ts_dtype t)
{
    return t == TS_F64 ? TS_F64 : TS_F32;
}

/* A per-channel vector as [1, C, 1, 1]. */
static ts_value *per_channel(ts_value *v, int rank, ts_dtype t)
{
    int64_t dims[TS_MAX_RANK];

    if (!v)
        return NULL;
    for (int i = 0; i < rank; i++)
        dims[i] = i == 1 ? v->type.dim[0] : 1;
    return ts_cast(ts_reshape_n(v, rank, dims), t);
}

static ts_status check_vector(const ts_node *n, const ts_value *v, int64_t size, const char *what)
{
    if (v->type.rank != 1 || v->type.dim[0] != size)
        return ts_fail_at(n, TS_ERR_SHAPE, "%s: %s must have %ld elements", n->op->name, what,
                          (long)size);
    return TS_OK;
}

/* a running statistic a step towards the batch's */
static ts_value *moved(ts_value *running, ts_value *v, double momentum)
{
    v = ts_cast(ts_mul_scalar(v, momentum), running->type.dtype);
    return ts_add(ts_mul_scalar(running, 1 - momentum), v);
}

/* inputs x, running_mean, running_var [, weight, bias]; outputs y, next mean, next var (unbiased
 * variance, as PyTorch keeps it). Attributes eps, momentum, training. */
ts_status ts_expand_batch_norm(ts_graph *g, const ts_node *n, ts_value *const *in, ts_value **out)
{
    ts_value *x, *rm, *rv, *y, *mean, *var;
    ts_dtype t, st;
    int64_t dims[TS_MAX_RANK], c, count;
    int rank, k = 0;
    double eps = ts_attr_float(n, "eps", 1e-5), m = ts_attr_float(n, "momentum", 0.1);

    TS_TRY(ts_check_most(n, 5));
    x = in[0];
    rm = in[1];
    rv = in[2];
    t = x->type.dtype;
    st = stat_type(t);
    rank = x->type.rank;
    if (rank < 2)
        return ts_fail_at(n, TS_ERR_SHAPE, "batch_norm needs a tensor of rank 2 or more, got %d",
                          rank);
    TS_TRY(ts_check_float(n, x));
    c = x->type.dim[1];
    for (int i = 1; i < n->nin; i++)
        TS_TRY(check_vector(n, in[i], c, "a per-channel input"));
    for (int d = 0; d < rank; d++)
        if (d != 1)
            dims[k++] = d;
    x = ts_cast(x, st);
    if (ts_attr_int(n, "training", 1)) {
        count = ts_type_count(&in[0]->type) / c;
        if (count < 2)
            return ts_fail_at(n, TS_ERR_SHAPE,
                              "batch_norm in training needs more than one value per channel");
        y = normalise(x, k, dims, eps, &mean, &var);
        mean = ts_detach(ts_reshape(mean, c));
        var = ts_mul_scalar(ts_detach(ts_reshape(var, c)), (double)count / (double)(count - 1));
        out[1] = moved(rm, mean, m);
        out[2] = moved(rv, var, m);
    } else {
        mean = per_channel(rm, rank, st);
        var = per_channel(rv, rank, st);
        y = ts_sub(x, mean);
        y = ts_mul(y, ts_rsqrt(ts_add(var, ts_full_like(var, eps))));
        out[1] = ts_point1("nop", rm);
        out[2] = ts_point1("nop", rv);
    }
    y = ts_cast(y, t);
    if (n->nin > 3)
        y = ts_mul(y, per_channel(in[3], rank, t));
    if (n->nin > 4)
        y = ts_add(y, per_channel(in[4], rank, t));
    out[0] = y;
    return g->status;
}

/* inputs x [, weight, bias]; attributes groups, eps. [N, C, ...] -> [N, groups, C/groups, ...] */
ts_status ts_expand_group_norm(ts_graph *g, const ts_node *n, ts_value *const *in, ts_value **out)
{
    ts_value *x, *y;
    const ts_type *t;
    int64_t groups = ts_attr_int(n, "groups", 1), shape[TS_MAX_RANK + 1], dims[TS_MAX_RANK];
    int k = 0;

    TS_TRY(ts_check_most(n, 3));
    x = in[0];
    t = &x->type;
    TS_TRY(ts_check_float(n, x));
    if (t->rank < 2 || t->rank >= TS_MAX_RANK || groups < 1 || t->dim[1] % groups)
        return ts_fail_at(n, TS_ERR_SHAPE, "group_norm cannot cut %ld channels into %ld groups",
                          t->rank > 1 ? (long)t->dim[1] : 0L, (long)groups);
    for (int i = 1; i < n->nin; i++)
        TS_TRY(check_vector(n, in[i], t->dim[1], "a per-channel input"));
    shape[0] = t->dim[0];
    shape[1] = groups;
    shape[2] = t->dim[1] / groups;
    for (int d = 2; d < t->rank; d++)
        shape[d + 1] = t->dim[d];
    for (int d = 2; d <= t->rank; d++)
        dims[k++] = d;
    y = ts_reshape_n(ts_cast(x, stat_type(t->dtype)), t->rank + 1, shape);
    y = normalise(y, k, dims, ts_attr_float(n, "eps", 1e-5), NULL, NULL);
    y = ts_cast(ts_reshape_n(y, t->rank, t->dim), t->dtype);
    if (n->nin > 1)
        y = ts_mul(y, per_channel(in[1], t->rank, t->dtype));
    if (n->nin > 2)
        y = ts_add(y, per_channel(in[2], t->rank, t->dtype));
    out[0] = y;
    return g->status;
}

/* inputs x [, weight, bias]; attributes ndims: how many trailing dims (1), eps */
ts_status ts_expand_layer_norm(ts_graph *g, const ts_node *n, ts_value *const *in, ts_value **out)
{
    ts_value *x, *y;
    const ts_type *t;
    int64_t dims[TS_MAX_RANK], k = ts_attr_int(n, "ndims", 1);

    TS_TRY(ts_check_most(n, 3));
    x = in[0];
    t = &x->type;
    TS_TRY(ts_check_float(n, x));
    if (k < 1 || k > t->rank)
        return ts_fail_at(n, TS_ERR_SHAPE, "layer_norm over %ld dims of a tensor of rank %d",
                          (long)k, t->rank);
    for (int i = 0; i < k; i++)
        dims[i] = t->rank - k + i;
    for (int i = 1; i < n->nin; i++)
        if (in[i]->type.rank != k ||
            memcmp(in[i]->type.dim, t->dim + t->rank - k, sizeof(t->dim[0]) * (size_t)k))
            return ts_fail_at(n, TS_ERR_SHAPE,
                              "layer_norm needs a weight and bias shaped like the last %ld dims",
                              (long)k);
    y = normalise(ts_cast(x, stat_type(t->dtype)), (int)k, dims, ts_attr_float(n, "eps", 1e-5),
                  NULL, NULL);
    y = ts_cast(y, t->dtype);
    if (n->nin > 1)
        y = ts_mul(y, ts_cast(in[1], t->dtype));
    if (n->nin > 2)
        y = ts_add(y, ts_cast(in[2], t->dtype));
    out[0] = y;
    return g->status;
}
