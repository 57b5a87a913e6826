/* layer.c - linear, convolution with bias, transposed convolution, attention, resizing, embedding.
 */
#include "op/op.h"
#include <math.h>

/* [1, C, 1, ...] */
static ts_value *channel_bias(ts_value *b, int rank)
{
    int64_t dims[TS_MAX_RANK];

    for (int i = 0; i < rank; i++)
        dims[i] = i == 1 ? b->type.dim[0] : 1;
    return ts_reshape_n(b, rank, dims);
}

static ts_status add_bias(const ts_node *n, ts_value *b, ts_value **y)
{
    if (b->type.rank != 1 || b->type.dim[0] != (*y)->type.dim[1])
        return ts_fail_at(n, TS_ERR_SHAPE, "%s needs a bias of %ld elements, one a channel",
                          n->op->name, (long)(*y)->type.dim[1]);
    *y = ts_add(*y, channel_bias(ts_cast(b, (*y)->type.dtype), (*y)->type.rank));
    return TS_OK;
}

/* x [.., in], weight [out, in], bias [out]: x w^T + b */
ts_status ts_expand_linear(ts_graph *g, const ts_node *n, ts_value *const *in, ts_value **out)
{
    ts_value *x, *w, *y;
    ts_type t;
    int64_t rows;

    TS_TRY(ts_check_most(n, 3));
    x = in[0];
    t = x->type;
    if (in[1]->type.rank != 2 || t.rank < 1)
        return ts_fail_at(
            n, TS_ERR_SHAPE,
            "linear needs a weight of rank 2 and an input of at least 1, got %d and %d",
            in[1]->type.rank, t.rank);
    if (t.dim[t.rank - 1] != in[1]->type.dim[1]) {
        ts_fail_at(n, TS_ERR_SHAPE, "linear takes %ld features, its input has %ld",
                   (long)in[1]->type.dim[1], (long)t.dim[t.rank - 1]);
        return TS_ERR_SHAPE;
    }
    if (n->nin > 2 && (in[2]->type.rank != 1 || in[2]->type.dim[0] != in[1]->type.dim[0]))
        return ts_fail_at(n, TS_ERR_SHAPE, "linear needs a bias of %ld elements",
                          (long)in[1]->type.dim[0]);
    rows = ts_type_count(&t) / t.dim[t.rank - 1];
    w = ts_transpose(ts_cast(in[1], t.dtype), 0, 1);
    y = ts_matmul(ts_reshape(x, rows, t.dim[t.rank - 1]), w);
    if (n->nin > 2)
        y = ts_add(y, ts_cast(in[2], t.dtype));
    t.dim[t.rank - 1] = in[1]->type.dim[0];
    out[0] = ts_reshape_n(y, t.rank, t.dim);
    return g->status;
}

ts_status ts_expand_conv_bias(ts_graph *g, const ts_node *n, ts_value *const *in, ts_value **out)
{
    ts_value *y;

    TS_TRY(ts_check_most(n, 3));
    y = ts_make2(TS_OP(conv), in[0], ts_cast(in[1], in[0]->type.dtype), n->nattr, n->attr);
    if (y && n->nin > 2)
        TS_TRY(add_bias(n, in[2], &y));
    out[0] = y;
    return g->status;
}

/* A list attribute of a transposed convolution: one value a spatial dim, within reason. */
static ts_status spatial_list(const ts_node *n, const char *name, int spatial, int64_t missing,
                              int64_t *to)
{
    const int64_t *l;
    int count = ts_attr_list(n, name, &l);

    if (count && count != spatial)
        return ts_fail_at(n, TS_ERR_ARG, "%s needs %d values for %s, got %d", n->op->name, spatial,
                          name, count);
    for (int i = 0; i < spatial; i++) {
        to[i] = count ? l[i] : missing;
        if (to[i] < 0 || to[i] > INT32_MAX)
            return ts_fail_at(n, TS_ERR_ARG, "%s: %s is %ld", n->op->name, name, (long)to[i]);
    }
    return TS_OK;
}

/* Output padding of a stride or more, which PyTorch allows below the dilation: no convolution has
 * such an input, so the whole unpadded result is made, and cut and padded to size. */
static ts_value *cut(ts_value *y, int spatial, const int64_t *from, const int64_t *shape)
{
    int64_t lo[TS_MAX_RANK] = {0}, hi[TS_MAX_RANK] = {0};

    for (int i = 0; i < spatial && y; i++) {
        int64_t have = y->type.dim[2 + i], to = TS_MIN(from[i] + shape[i], have);
        hi[2 + i] = from[i] + shape[i] - to;
        y = ts_slice(y, 2 + i, from[i], to, 1);
    }
    return y ? ts_pad(y, y->type.rank, lo, hi, 0) : NULL;
}

/* weight [in, out/groups, k];
 * size (i-1)*stride - 2*padding + dilation*(k-1) + output_padding + 1 */
ts_status ts_expand_conv_transpose(ts_graph *g, const ts_node *n, ts_value *const *in,
                                   ts_value **out)
{
    int64_t s[3], p[3], d[3], extra[3], shape[3], whole[3], none[3] = {0};
    ts_attr attr[TS_MAX_ATTR + 1];
    int count, spatial;
    bool beyond = false;
    ts_value *y;

    TS_TRY(ts_check_most(n, 3));
    spatial = in[0]->type.rank - 2;
    if (spatial < 1 || spatial > 3 || in[1]->type.rank != spatial + 2)
        return ts_fail_at(n, TS_ERR_SHAPE,
                          "conv_transpose needs an input of rank 3 to 5 and a weight of the same "
                          "rank, got %d and %d",
                          in[0]->type.rank, in[1]->type.rank);
    TS_TRY(spatial_list(n, "stride", spatial, 1, s));
    TS_TRY(spatial_list(n, "padding", spatial, 0, p));
    TS_TRY(spatial_list(n, "dilation", spatial, 1, d));
    TS_TRY(spatial_list(n, "output_padding", spatial, 0, extra));
    for (int i = 0; i < spatial; i++) {
        double full = (double)(in[0]->type.dim[2 + i] - 1) * (double)s[i] +
                      (double)d[i] * (double)(in[1]->type.dim[2 + i] - 1) + 1;
        double size = full - 2 * (double)p[i] + (double)extra[i];
        if (size < 1 || full > (double)TS_MAX_COUNT)
            return ts_fail_at(n, TS_ERR_SHAPE, "conv_transpose would give size %.0f", size);
        if (extra[i] && extra[i] >= s[i] && extra[i] >= d[i])
            return ts_fail_at(n, TS_ERR_ARG,
                              "conv_transpose: output_padding %ld is not below the stride (%ld) or "
                              "the dilation (%ld)",
                              (long)extra[i], (long)s[i], (long)d[i]);
        shape[i] = (int64_t)size;
        whole[i] = (int64_t)full;
        beyond = beyond || extra[i] >= s[i];
    }
    count = ts_attrs_but(n, "output_padding", attr);
    attr[count++] = ts_attr_l("shape", spatial, beyond ? whole : shape);
    for (int i = 0; i < count && beyond; i++)
        if (!strcmp(attr[i].name, "padding"))
            attr[i] = ts_attr_l("padding", spatial, none);
    y = ts_make2(TS_OP(conv_input), in[0], ts_cast(in[1], in[0]->type.dtype), count, attr);
    if (beyond)
        y = cut(y, spatial, p, shape);
    if (y && n->nin > 2)
        TS_TRY(add_bias(n, in[2], &y));
    out[0] = y;
    return g->status;
}

/* What is added to the scores: a mask of bools says where to look, one of numbers is it already. */
static ts_value *added_mask(ts_graph *g, ts_value *mask, ts_dtype t)
{
    return mask->type.dtype == TS_BOOL
               ? ts_where(mask, ts_scalar(g, t, 0), ts_scalar(g, t, -INFINITY))
               : mask;
}

/* q, k, v [.., T, d] [, mask] */
ts_status ts_expand_attention(ts_graph *g, const ts_node *n, ts_value *const *in, ts_value **out)
{
    ts_value *q, *s;
    int r;
    double scale;

    TS_TRY(ts_check_most(n, 4));
    q = in[0];
    r = q->type.rank;
    if (r < 2 || in[1]->type.rank != r || in[2]->type.rank != r)
        return ts_fail_at(n, TS_ERR_SHAPE,
                          "attention needs q, k, v of equal rank, at least 2, got %d, %d, %d", r,
                          in[1]->type.rank, in[2]->type.rank);
    TS_TRY(ts_check_float(n, q));
    scale = ts_attr_float(n, "scale", 1 / sqrt((double)q->type.dim[r - 1]));
    s = ts_mul_scalar(ts_matmul(q, ts_transpose(in[1], r - 2, r - 1)), scale);
    if (n->nin > 3)
        s = ts_add(s, added_mask(g, in[3], q->type.dtype));
    out[0] = ts_matmul(ts_softmax(s, -1), in[2]);
    return g->status;
}

/* --- embedding and one-hot --- */

ts_status ts_expand_embedding(ts_graph *g, const ts_node *n, ts_value *const *in, ts_value **out)
{
    ts_attr attr[] = {ts_attr_i("dim", 0)};

    if (in[1]->type.rank != 2)
        return ts_fail_at(n, TS_ERR_SHAPE, "embedding needs a weight of rank 2, got %d",
                          in[1]->type.rank);
    out[0] = ts_make2(TS_OP(index_select), in[1], in[0], 1, attr);
    return g->status;
}

/* eq(index[.., None], 0..classes-1) */
ts_status ts_expand_one_hot(ts_graph *g, const ts_node *n, ts_value *const *in, ts_value **out)
{
    ts_type t = in[0]->type;
    int64_t classes = ts_attr_int(n, "classes", 0);
    const char *name = ts_attr_str(n, "dtype", "i64");
    ts_dtype to, it = t.dtype == TS_I64 ? TS_I64 : TS_I32; /* bytes cannot count all classes */
    ts_attr attr[] = {ts_attr_s("dtype", ts_dtype_name(it)), ts_attr_l("shape", 1, &classes)};
    ts_value *x, *numbers;

    TS_TRY(ts_dtype_parse(name, strlen(name), &to));
    if (ts_dtype_is_float(t.dtype))
        return ts_fail_at(n, TS_ERR_TYPE, "one_hot needs an integer index, got %s",
                          ts_dtype_name(t.dtype));
    if (classes < 1 || t.rank == TS_MAX_RANK)
        return ts_fail_at(n, TS_ERR_ARG,
                          "one_hot of %ld classes from an index of rank %d: at least 1 class, rank "
                          "below %d",
                          (long)classes, t.rank, TS_MAX_RANK);
    t.dim[t.rank++] = 1;
    x = ts_reshape_n(ts_cast(in[0], it), t.rank, t.dim);
    numbers = ts_node_out(ts_node_make(g, TS_OP(iota), 0, NULL, 2, attr));
    out[0] = ts_cast(ts_eq(x, numbers), to);
    return g->status;
}

/* --- resizing: gathers along one dim after the other --- */

static ts_value *take(ts_graph *g, ts_value *x, int dim, int64_t n, const int32_t *index)
{
    ts_attr attr[] = {ts_attr_i("dim", dim)};

    return ts_make2(TS_OP(index_select), x, ts_const(g, TS_I32, index, n), 1, attr);
}

enum { LARGEST = 1 << 24 }; /* of a resized dim, and of an averaging matrix: they are constants */

static ts_status sizes(const ts_node *n, const ts_value *x, const int64_t **size, int *spatial)
{
    *spatial = ts_attr_list(n, "size", size);
    if (*spatial < 1 || *spatial > 3 || x->type.rank != *spatial + 2)
        return ts_fail_at(n, TS_ERR_SHAPE, "%s over %d dims needs an input of rank %d, got %d",
                          n->op->name, *spatial, *spatial + 2, x->type.rank);
    for (int d = 0; d < *spatial; d++)
        if ((*size)[d] < 1 || (*size)[d] > LARGEST)
            return ts_fail_at(n, TS_ERR_ARG, "%s to size %ld", n->op->name, (long)(*size)[d]);
    return ts_check_float(n, x);
}

/* Whole factors are a repeat: [.., H, 1, W, 1] expanded, whose gradient is a plain sum. */
ts_status ts_expand_upsample_nearest(ts_graph *g, const ts_node *n, ts_value *const *in,
                                     ts_value **out)
{
    const int64_t *size;
    int spatial;
    ts_value *x = in[0];

    TS_TRY(sizes(n, x, &size, &spatial));
    for (int d = 0; d < spatial && x; d++) {
        int64_t from = x->type.dim[2 + d], to = size[d];
        ts_type t = x->type;
        if (from == to)
            continue;
        if (to % from == 0 && t.rank < TS_MAX_RANK) {
            memmove(&t.dim[4 + d], &t.dim[3 + d], sizeof(t.dim[0]) * (size_t)(t.rank - 3 - d));
            t.rank++;
            t.dim[3 + d] = 1;
            x = ts_reshape_n(x, t.rank, t.dim);
            t.dim[3 + d] = to / from;
            x = ts_expand_n(x, t.rank, t.dim);
            t = in[0]->type;
            for (int i = 0; i <= d; i++)
                t.dim[2 + i] = size[i];
            x = ts_reshape_n(x, t.rank, t.dim);
        } else {
            int32_t *index = TS_NEWS(g->arena, int32_t, to);
            for (int64_t i = 0; i < to; i++)
                index[i] =
                    (int32_t)TS_MIN((int64_t)((float)i * ((float)from / (float)to)), from - 1);
            x = take(g, x, 2 + d, to, index);
        }
    }
    out[0] = x == in[0] ? ts_point1("nop", x) : x;
    return g->status;
}

/* y = (1 - f) x[i] + f x[i + 1] in each dim */
ts_status ts_expand_upsample_bilinear(ts_graph *g, const ts_node *n, ts_value *const *in,
                                      ts_value **out)
{
    const int64_t *size;
    int spatial;
    ts_value *x = in[0];
    bool corners = ts_attr_int(n, "align_corners", 0);

    TS_TRY(sizes(n, x, &size, &spatial));
    for (int d = 0; d < spatial && x; d++) {
        int64_t from = x->type.dim[2 + d], to = size[d], shape[TS_MAX_RANK];
        int32_t *lo = TS_NEWS(g->arena, int32_t, to), *hi = TS_NEWS(g->arena, int32_t, to);
        double *f = TS_NEWS(g->arena, double, to);
        ts_value *w;
        if (from == to)
            continue;
        for (int64_t i = 0; i < to; i++) {
            double at = corners ? (to > 1 ? (double)i * (double)(from - 1) / (double)(to - 1) : 0)
                                : ((double)i + 0.5) * (double)from / (double)to - 0.5;
            at = at < 0 ? 0 : at;
            lo[i] = (int32_t)TS_MIN((int64_t)at, from - 1);
            hi[i] = (int32_t)TS_MIN((int64_t)lo[i] + 1, from - 1);
            f[i] = at - lo[i];
        }
        for (int i = 0; i < x->type.rank; i++)
            shape[i] = i == 2 + d ? to : 1;
        w = ts_cast(ts_const_n(g, TS_F64, f, x->type.rank, shape), x->type.dtype);
        ts_value *p = take(g, x, 2 + d, to, lo), *q = take(g, x, 2 + d, to, hi);
        x = ts_add(p, ts_mul(w, ts_sub(q, p)));
    }
    out[0] = x == in[0] ? ts_point1("nop", x) : x;
    return g->status;
}

/* Even windows are avg_pool; uneven ones a product with the averaging matrix of each dim. */
ts_status ts_expand_adaptive_avg_pool(ts_graph *g, const ts_node *n, ts_value *const *in,
                                      ts_value **out)
{
    const int64_t *size;
    int64_t kernel[3];
    int spatial;
    ts_value *x = in[0];
    bool even = true;

    TS_TRY(sizes(n, x, &size, &spatial));
    for (int d = 0; d < spatial; d++) {
        kernel[d] = x->type.dim[2 + d] / size[d];
        even = even && x->type.dim[2 + d] % size[d] == 0;
    }
    if (even) {
        ts_attr attr[] = {ts_attr_l("kernel", spatial, kernel)};
        out[0] = ts_make1(TS_OP(avg_pool), x, 1, attr);
        return g->status;
    }
    for (int d = 0; d < spatial && x; d++) {
        int64_t from = x->type.dim[2 + d], to = size[d], cells;
        double *m;
        if (from > LARGEST / to)
            return ts_fail_at(n, TS_ERR_UNSUPPORTED, "%s from %ld to %ld, uneven", n->op->name,
                              (long)from, (long)to);
        cells = from * to;
        m = TS_NEWS(g->arena, double, cells);
        for (int64_t i = 0; i < to; i++) {
            int64_t a = i * from / to, b = ((i + 1) * from + to - 1) / to;
            for (int64_t j = a; j < b; j++)
                m[j * to + i] = 1 / (double)(b - a);
        }
        x = ts_transpose(x, 2 + d, x->type.rank - 1);
        x = ts_matmul(x, ts_cast(ts_const(g, TS_F64, m, from, to), in[0]->type.dtype));
        x = x ? ts_transpose(x, 2 + d, x->type.rank - 1) : NULL;
    }
    out[0] = x;
    return g->status;
}
