/* words_layer.c - products, convolutions, pools, norms and losses. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "front/words.h"

/* --- products --------------------------------------------------------------------------------- */

ts_value *ts_word_matmul(ts_call *c)
{
    return ts_matmul(ts_call_as(c, 0, c->dtype), ts_call_as(c, 1, c->dtype));
}

ts_value *ts_word_dot(ts_call *c)
{
    return ts_sum(ts_mul(ts_call_tensor(c, 0), ts_call_tensor(c, 1)), 0, NULL, false);
}

static ts_value *times(ts_value *x, double by)
{
    return by == 1 ? x : ts_mul_scalar(x, by);
}

/* A factor; of whole numbers it is one. */
static double factor(const ts_call *c, int i)
{
    double v = ts_call_number(c, i, 1);

    return ts_dtype_is_float(c->dtype) ? v : trunc(v);
}

/* alpha times a product, of the result's shape. With 0 it is not looked at, so no NaN comes
 * through, as in BLAS. */
static ts_value *product_times(ts_call *c, ts_value *xy, double alpha)
{
    int64_t dims[TS_MAX_RANK];
    int rank = xy ? ts_call_shape_of(xy, dims) : 0;

    if (alpha != 0)
        return times(xy, alpha);
    return xy ? ts_full_n(c->g, c->dtype, 0, rank, dims) : NULL;
}

/* addmm(b, x, y, beta, alpha) = beta b + alpha x y */
ts_value *ts_word_addmm(ts_call *c)
{
    double beta = factor(c, 3), alpha = factor(c, 4);
    ts_value *xy = ts_matmul(ts_call_as(c, 1, c->dtype), ts_call_as(c, 2, c->dtype));

    xy = product_times(c, xy, alpha);
    return beta == 0 ? xy : ts_add(xy, times(ts_call_as(c, 0, c->dtype), beta));
}

/* addbmm(b, x, y, beta, alpha): the products are added up */
ts_value *ts_word_addbmm(ts_call *c)
{
    ts_value *xy = ts_matmul(ts_call_as(c, 1, c->dtype), ts_call_as(c, 2, c->dtype));
    double beta = factor(c, 3);

    xy = product_times(c, ts_sum(xy, 1, (int64_t[]){0}, false), factor(c, 4));
    return beta == 0 ? xy : ts_add(xy, times(ts_call_as(c, 0, c->dtype), beta));
}

/* addr(b, x, y, beta, alpha): x as a column times y as a row */
ts_value *ts_word_addr(ts_call *c)
{
    ts_value *x = ts_reshape_n(ts_call_as(c, 1, c->dtype), 2, (int64_t[]){-1, 1});
    ts_value *y = ts_reshape_n(ts_call_as(c, 2, c->dtype), 2, (int64_t[]){1, -1});
    double beta = factor(c, 3);

    x = times(ts_mul(x, y), factor(c, 4));
    return beta == 0 ? x : ts_add(x, times(ts_call_as(c, 0, c->dtype), beta));
}

/* x turned by one element along dim, of size 3 */
static ts_value *turned(ts_value *x, int dim, int by)
{
    return ts_concat(2, (ts_value *[]){ts_slice(x, dim, by, 3, 1), ts_slice(x, dim, 0, by, 1)},
                     dim);
}

/* linalg_cross(x, y, dim), cross(x, y, dim): without a dim the first of size 3 */
ts_value *ts_word_cross(ts_call *c)
{
    ts_value *x = ts_expand_n(ts_call_as(c, 0, c->dtype), c->rank, c->dims);
    ts_value *y = ts_expand_n(ts_call_as(c, 1, c->dtype), c->rank, c->dims);
    int dim = ts_call_has(c, 2) ? ts_call_dim(c, 2, c->rank) : 0;

    while (!ts_call_has(c, 2) && dim < c->rank - 1 && c->dims[dim] != 3)
        dim++;
    if (!x || !y)
        return NULL;
    return ts_sub(ts_mul(turned(x, dim, 1), turned(y, dim, 2)),
                  ts_mul(turned(x, dim, 2), turned(y, dim, 1)));
}

/* _trilinear(x, y, z, expand1, expand2, expand3, sumdim, unroll): each with dims of size 1 where
 * its list says, multiplied, and summed */
ts_value *ts_word_trilinear(ts_call *c)
{
    ts_value *all = NULL;
    int64_t over[TS_MAX_RANK];
    int n = ts_call_ints(c, 6, over);

    for (int k = 0; k < 3; k++) {
        ts_value *x = ts_call_as(c, k, c->dtype);
        int64_t at[TS_MAX_RANK], dims[TS_MAX_RANK], own[TS_MAX_RANK];
        int extra = ts_call_ints(c, 3 + k, at), rank = x ? ts_call_shape_of(x, own) : 0, from = 0;

        if (!x || rank + extra > TS_MAX_RANK)
            return x ? ts_call_refuse(c, "rank %d", rank + extra) : NULL;
        for (int i = 0; i < rank + extra; i++) {
            bool one = false;
            for (int j = 0; j < extra; j++)
                one = one || at[j] == i;
            dims[i] = one || from == rank ? 1 : own[from++];
        }
        x = ts_reshape_n(x, rank + extra, dims);
        all = all ? ts_mul(all, x) : x;
    }
    return n ? ts_sum(all, n, over, false) : all;
}

/* [.., p, 1, m] - [.., 1, r, m], and the norm of the last dim */
static ts_value *distances(ts_call *c, ts_value *x, ts_value *y, double p)
{
    int64_t a[TS_MAX_RANK], b[TS_MAX_RANK], last;
    int rank = x ? ts_call_shape_of(x, a) : 0, other = y ? ts_call_shape_of(y, b) : 0;

    if (!x || !y)
        return NULL;
    if (rank < 2 || other < 2 || rank == TS_MAX_RANK || other == TS_MAX_RANK)
        return ts_call_refuse(c, "rank %d", rank);
    a[rank] = a[rank - 1];
    a[rank - 1] = 1;
    b[other] = b[other - 1];
    b[other - 1] = b[other - 2];
    b[other - 2] = 1;
    last = (rank > other ? rank : other);
    x = ts_sub(ts_reshape_n(x, rank + 1, a), ts_reshape_n(y, other + 1, b));
    if (isfinite(p) || !x)
        return ts_call_p_norm(c, x, p, 1, &last, false);
    x = ts_abs(x);
    return ts_apply(c->g, "amax", 1, &x, 2,
                    (ts_arg[]){ts_arg_ints("dims", 1, &last), ts_arg_text("ties", "each")});
}

/* _cdist_forward(x, y, p, mode) */
ts_value *ts_word_cdist(ts_call *c)
{
    return distances(c, ts_call_as(c, 0, c->dtype), ts_call_as(c, 1, c->dtype),
                     ts_call_number(c, 2, 2));
}

/* _pdist_forward(x, p): the pairs above the diagonal */
ts_value *ts_word_pdist(ts_call *c)
{
    ts_value *x = ts_call_as(c, 0, c->dtype), *at = NULL;
    int64_t n = x ? ts_dim(x, 0) : 0, *pairs = malloc(sizeof(*pairs) * (size_t)(n * n + 1)), k = 0;

    for (int64_t i = 0; pairs && i < n; i++)
        for (int64_t j = i + 1; j < n; j++)
            pairs[k++] = i * n + j;
    if (pairs && k)
        at = ts_const_n(c->g, TS_I64, pairs, 1, &k);
    free(pairs);
    x = ts_reshape_n(distances(c, x, x, ts_call_number(c, 1, 2)), 1, (int64_t[]){-1});
    return x && at ? ts_apply(c->g, "index_select", 2, (ts_value *[]){x, at}, 1,
                              (ts_arg[]){ts_arg_int("dim", 0)})
                   : NULL;
}

ts_value *ts_word_linear(ts_call *c)
{
    ts_value *in[] = {ts_call_tensor(c, 0), ts_call_tensor(c, 1), ts_call_tensor(c, 2)};

    if (!in[0] || !in[1])
        return NULL;
    return ts_apply(c->g, "linear", in[2] ? 3 : 2, in, 0, NULL);
}

/* Where a call has them. */
typedef struct conv_args {
    int stride, padding, dilation, groups, output_padding;
} conv_args;

static ts_value *conv(ts_call *c, conv_args at, bool transposed)
{
    ts_value *in[] = {ts_call_tensor(c, 0), ts_call_tensor(c, 1), ts_call_tensor(c, 2)};
    int n = in[0] ? ts_rank(in[0]) - 2 : 0, nin = in[2] ? 3 : 2;
    int64_t stride[TS_MAX_RANK], padding[TS_MAX_RANK], dilation[TS_MAX_RANK], more[TS_MAX_RANK];
    int64_t groups = ts_call_int(c, at.groups, 1);

    if (!in[0] || !in[1])
        return NULL;
    ts_call_ints_n(c, at.stride, n, 1, stride);
    ts_call_ints_n(c, at.padding, n, 0, padding);
    ts_call_ints_n(c, at.dilation, n, 1, dilation);
    ts_call_ints_n(c, at.output_padding, n, 0, more);
    if (transposed)
        return ts_apply(
            c->g, "conv_transpose", nin, in, 5,
            (ts_arg[]){ts_arg_ints("stride", n, stride), ts_arg_ints("padding", n, padding),
                       ts_arg_ints("dilation", n, dilation), ts_arg_int("groups", groups),
                       ts_arg_ints("output_padding", n, more)});
    return ts_apply(c->g, "conv_bias", nin, in, 4,
                    (ts_arg[]){ts_arg_ints("stride", n, stride), ts_arg_ints("padding", n, padding),
                               ts_arg_ints("dilation", n, dilation), ts_arg_int("groups", groups)});
}

/* convolution(x, w, b, stride, padding, dilation, transposed, output_padding, groups) */
ts_value *ts_word_convolution(ts_call *c)
{
    return conv(c, (conv_args){3, 4, 5, 8, 7}, ts_call_flag(c, 6));
}

static bool fits(ts_call *c)
{
    ts_value *x = ts_call_tensor(c, 0);

    if (x && ts_rank(x) == ts_call_spatial(c) + 2)
        return true;
    ts_call_refuse(c, "rank %d", ts_rank(x));
    return false;
}

/* convNd(x, w, b, stride, padding, dilation, groups) */
ts_value *ts_word_conv(ts_call *c)
{
    return fits(c) ? conv(c, (conv_args){3, 4, 5, 6, TS_WORD_PARAMS}, false) : NULL;
}

/* conv_tbc(x [T, N, C], w [k, C, O], b, pad): [T', N, O] */
ts_value *ts_word_conv_tbc(ts_call *c)
{
    ts_value *x = ts_call_tensor(c, 0), *w = ts_call_tensor(c, 1), *b = ts_call_tensor(c, 2),
             *in[3];
    int64_t one = 1, pad = ts_call_int(c, 3, 0);

    if (!x || !w || !b)
        return NULL;
    if (ts_rank(x) != 3 || ts_rank(w) != 3)
        return ts_call_refuse(c, "conv_tbc of %d and %d dims", ts_rank(x), ts_rank(w));
    in[0] = ts_permute(x, 1, 2, 0);
    in[1] = ts_permute(w, 2, 1, 0);
    in[2] = b;
    x = ts_apply(c->g, "conv_bias", 3, in, 2,
                 (ts_arg[]){ts_arg_ints("stride", 1, &one), ts_arg_ints("padding", 1, &pad)});
    return ts_permute(x, 2, 0, 1);
}

/* conv_transposeNd(x, w, b, stride, padding, output_padding, groups, dilation) */
ts_value *ts_word_conv_transpose(ts_call *c)
{
    return fits(c) ? conv(c, (conv_args){3, 4, 7, 6, 5}, true) : NULL;
}

/* [T, S]: 0 up to the diagonal, -inf above it */
static ts_value *causal(ts_call *c, int64_t t, int64_t s)
{
    ts_value *row = ts_reshape_n(ts_call_counted(c->g, t, 0, 1), 2, (int64_t[]){t, 1});
    ts_value *column = ts_reshape_n(ts_call_counted(c->g, s, 0, 1), 2, (int64_t[]){1, s});

    return ts_where(ts_le(column, row), ts_call_scalar(c, 0), ts_call_scalar(c, -INFINITY));
}

static ts_value *attention(ts_call *c, int mask, int dropout, int is_causal)
{
    ts_value *in[] = {ts_call_tensor(c, 0), ts_call_tensor(c, 1), ts_call_tensor(c, 2),
                      ts_call_tensor(c, mask)};

    if (ts_call_number(c, dropout, 0) != 0)
        return ts_call_refuse(c, "dropout");
    if (!in[0] || !in[1] || !in[2])
        return NULL;
    if (in[3] && ts_dtype_of(in[3]) == TS_BOOL)
        in[3] = ts_where(in[3], ts_call_scalar(c, 0), ts_call_scalar(c, -INFINITY));
    if (ts_call_flag(c, is_causal))
        in[3] = causal(c, ts_dim(in[0], -2), ts_dim(in[1], -2));
    c->nout = 1;
    if (ts_call_has(c, 6))
        return ts_apply(c->g, "attention", in[3] ? 4 : 3, in, 1,
                        (ts_arg[]){ts_arg_number("scale", ts_call_number(c, 6, 1))});
    return ts_attention(in[0], in[1], in[2], in[3]);
}

/* q, k, v, attn_mask, dropout_p, is_causal, scale */
ts_value *ts_word_attention(ts_call *c)
{
    return attention(c, 3, 4, 5);
}

/* q, k, v, dropout_p, is_causal, attn_mask, scale */
ts_value *ts_word_flash_attention(ts_call *c)
{
    return attention(c, 5, 3, 4);
}

/* --- pools and resizing ----------------------------------------------------------------------- */

/* x as [N, C, ..]: a pool takes samples without a batch too */
static ts_value *batched(ts_value *x, int spatial)
{
    int64_t dims[TS_MAX_RANK] = {1};
    int rank = x ? ts_rank(x) : 0;

    if (!x || rank != spatial + 1)
        return x;
    for (int i = 0; i < rank; i++)
        dims[i + 1] = ts_dim(x, i);
    return ts_reshape_n(x, rank + 1, dims);
}

/* max_poolNd_with_indices(x, kernel, stride, padding, dilation, ceil_mode) */
ts_value *ts_word_max_pool(ts_call *c)
{
    int n = ts_call_spatial(c);
    ts_value *x = batched(ts_call_tensor(c, 0), n);
    int64_t kernel[3], stride[3], padding[3], dilation[3], none[TS_MAX_RANK];
    bool own_stride = ts_call_ints(c, 2, none) > 0;

    ts_call_ints_n(c, 1, n, 1, kernel);
    ts_call_ints_n(c, 2, n, 1, stride);
    ts_call_ints_n(c, 3, n, 0, padding);
    ts_call_ints_n(c, 4, n, 1, dilation);
    for (int i = 0; i < n; i++)
        if (dilation[i] != 1)
            return ts_call_window_max(c);
    c->nout = 1;
    if (!x)
        return NULL;
    x = ts_apply(c->g, "max_pool", 1, &x, 4,
                 (ts_arg[]){ts_arg_ints("kernel", n, kernel),
                            ts_arg_ints("stride", n, own_stride ? stride : kernel),
                            ts_arg_ints("padding", n, padding),
                            ts_arg_int("ceil_mode", ts_call_flag(c, 5))});
    return ts_reshape_n(x, c->rank, c->dims);
}

/* The mean of whole numbers, of which PyTorch drops the fraction: a window has fewer than a million. */
static ts_value *whole_mean(ts_call *c, ts_value *y)
{
    y = ts_add(y, ts_mul_scalar(ts_call_op1("sign", c, y), 1e-6));
    return ts_cast(ts_call_op1("trunc", c, y), c->dtype);
}

static ts_value *avg_pool(ts_call *c, ts_value *x)
{
    int n = ts_call_spatial(c);
    int64_t kernel[3], stride[3], padding[3], none[TS_MAX_RANK];
    bool own_stride = ts_call_ints(c, 2, none) > 0;

    ts_call_ints_n(c, 1, n, 1, kernel);
    ts_call_ints_n(c, 2, n, 1, stride);
    ts_call_ints_n(c, 3, n, 0, padding);
    if (!x)
        return NULL;
    if (ts_call_has(c, 6)) {
        x = ts_apply(c->g, "sum_pool", 1, &x, 4,
                     (ts_arg[]){ts_arg_ints("kernel", n, kernel),
                                ts_arg_ints("stride", n, own_stride ? stride : kernel),
                                ts_arg_ints("padding", n, padding),
                                ts_arg_int("ceil_mode", ts_call_flag(c, 4))});
        return ts_reshape_n(ts_mul_scalar(x, 1 / ts_call_number(c, 6, 1)), c->rank, c->dims);
    }
    x = ts_apply(c->g, "avg_pool", 1, &x, 5,
                 (ts_arg[]){ts_arg_ints("kernel", n, kernel),
                            ts_arg_ints("stride", n, own_stride ? stride : kernel),
                            ts_arg_ints("padding", n, padding),
                            ts_arg_int("ceil_mode", ts_call_flag(c, 4)),
                            ts_arg_int("exclude_pad", (ts_call_has(c, 5) && !ts_call_flag(c, 5)))});
    return ts_reshape_n(x, c->rank, c->dims);
}

/* avg_poolNd(x, kernel, stride, padding, ceil_mode, count_include_pad, divisor_override) */
ts_value *ts_word_avg_pool(ts_call *c)
{
    ts_value *x = batched(ts_call_tensor(c, 0), ts_call_spatial(c));
    bool whole = x && !ts_dtype_is_float(ts_dtype_of(x)) && !ts_dtype_is_float(c->dtype);
    ts_value *y = avg_pool(c, whole ? ts_cast(x, TS_F64) : x);

    return whole && y ? whole_mean(c, y) : y;
}

ts_value *ts_word_adaptive_avg_pool(ts_call *c)
{
    int n = ts_call_spatial(c);
    ts_value *x = batched(ts_call_tensor(c, 0), n);

    if (!x)
        return NULL;
    x = ts_apply(c->g, "adaptive_avg_pool", 1, &x, 1,
                 (ts_arg[]){ts_arg_ints("size", n, c->dims + c->rank - n)});
    return ts_reshape_n(x, c->rank, c->dims);
}

/* --- norms ------------------------------------------------------------------------------------ */

/* Weight and bias: both, or constants for the one that is missing. */
static int affine(ts_call *c, ts_value **in, int at, int weight, int bias, int n,
                  const int64_t *dims)
{
    if (!ts_call_has(c, weight) && !ts_call_has(c, bias))
        return at;
    in[at] =
        ts_call_has(c, weight) ? ts_call_tensor(c, weight) : ts_full_n(c->g, c->dtype, 1, n, dims);
    in[at + 1] =
        ts_call_has(c, bias) ? ts_call_tensor(c, bias) : ts_full_n(c->g, c->dtype, 0, n, dims);
    return at + 2;
}

/* Results: y, two that only PyTorch's backward reads, the next running mean and variance. */
static ts_value *batch_norm(ts_call *c, int mean, int var, bool training, double momentum,
                            double eps)
{
    ts_value *in[5] = {ts_call_tensor(c, 0)}, *y;
    int64_t channels = in[0] ? ts_dim(in[0], 1) : 1;
    int n;

    if (!in[0])
        return NULL;
    in[1] =
        ts_call_has(c, mean) ? ts_call_tensor(c, mean) : ts_full_n(c->g, TS_F32, 0, 1, &channels);
    in[2] = ts_call_has(c, var) ? ts_call_tensor(c, var) : ts_full_n(c->g, TS_F32, 1, 1, &channels);
    n = affine(c, in, 3, 1, 2, 1, &channels);
    y = ts_apply(c->g, "batch_norm", n, in, 3,
                 (ts_arg[]){ts_arg_number("eps", eps), ts_arg_number("momentum", momentum),
                            ts_arg_int("training", training)});
    c->nout = 5;
    c->out[1] = c->out[2] = NULL;
    c->out[3] = y ? ts_result(y, 1) : NULL;
    c->out[4] = y ? ts_result(y, 2) : NULL;
    return y;
}

/* (x, w, b, running_mean, running_var, training, momentum, eps) */
ts_value *ts_word_batch_norm(ts_call *c)
{
    return batch_norm(c, 3, 4, ts_call_flag(c, 5), ts_call_number(c, 6, 0.1),
                      ts_call_number(c, 7, 1e-5));
}

/* (x, w, b, running_mean, running_var, momentum, eps) */
ts_value *ts_word_batch_norm_eval(ts_call *c)
{
    return batch_norm(c, 3, 4, false, ts_call_number(c, 5, 0.1), ts_call_number(c, 6, 1e-5));
}

enum { ABSENT = 99 }; /* an argument that no call has */

/* (x, w, b, training, momentum, eps) */
ts_value *ts_word_batch_norm_no_stats(ts_call *c)
{
    return batch_norm(c, ABSENT, ABSENT, true, 0, ts_call_number(c, 5, 1e-5));
}

static ts_value *group_norm(ts_call *c, int weight, int groups, int eps)
{
    ts_value *in[3] = {ts_call_tensor(c, 0)};
    int64_t channels = in[0] ? ts_dim(in[0], 1) : 1;
    int n = affine(c, in, 1, weight, weight + 1, 1, &channels);

    c->nout = 1;
    if (!in[0])
        return NULL;
    return ts_apply(c->g, "group_norm", n, in, 2,
                    (ts_arg[]){ts_arg_int("groups", ts_call_int(c, groups, 1)),
                               ts_arg_number("eps", ts_call_number(c, eps, 1e-5))});
}

/* (x, groups, w, b, eps) */
ts_value *ts_word_group_norm(ts_call *c)
{
    return group_norm(c, 2, 1, 4);
}

/* (x, w, b, N, C, HxW, groups, eps) */
ts_value *ts_word_native_group_norm(ts_call *c)
{
    return group_norm(c, 1, 6, 7);
}

/* (x, shape, w, b, eps) */
ts_value *ts_word_layer_norm(ts_call *c)
{
    ts_value *in[3] = {ts_call_tensor(c, 0)};
    int64_t dims[TS_MAX_RANK];
    int ndims = ts_call_ints(c, 1, dims), n = affine(c, in, 1, 2, 3, ndims, dims);

    c->nout = 1;
    if (!in[0])
        return NULL;
    return ts_apply(
        c->g, "layer_norm", n, in, 2,
        (ts_arg[]){ts_arg_int("ndims", ndims), ts_arg_number("eps", ts_call_number(c, 4, 1e-5))});
}

/* --- losses ----------------------------------------------------------------------------------- */

const char *ts_call_reduction(const ts_call *c, int i)
{
    static const char *const names[] = {"none", "mean", "sum"};
    int64_t r = ts_call_int(c, i, 1);

    return ts_call_text(c, i, names[r >= 0 && r <= 2 ? r : 1]);
}

ts_value *ts_call_reduced(ts_call *c, ts_value *x, int reduction)
{
    return x ? ts_apply(c->g, "identity_loss", 1, &x, 1,
                        (ts_arg[]){ts_arg_text("reduction", ts_call_reduction(c, reduction))})
             : NULL;
}

/* (x, target, weight, reduction, ignore_index) */
ts_value *ts_word_nll_loss(ts_call *c)
{
    ts_value *in[] = {ts_call_tensor(c, 0), ts_call_tensor(c, 1), ts_call_tensor(c, 2)};

    c->nout = 1;
    if (!in[0] || !in[1])
        return NULL;
    return ts_apply(c->g, "nll_loss", in[2] ? 3 : 2, in, 2,
                    (ts_arg[]){ts_arg_text("reduction", ts_call_reduction(c, 3)),
                               ts_arg_int("ignore_index", ts_call_int(c, 4, -100))});
}

/* (x, target, reduction) and smooth_l1's beta */
ts_value *ts_word_loss(ts_call *c)
{
    ts_value *in[] = {ts_call_as(c, 0, c->dtype), ts_call_as(c, 1, c->dtype)};

    if (!in[0] || !in[1])
        return NULL;
    if (strcmp(c->row->op, "smooth_l1_loss"))
        return ts_apply(c->g, c->row->op, 2, in, 1,
                        (ts_arg[]){ts_arg_text("reduction", ts_call_reduction(c, 2))});
    if (ts_call_number(c, 3, 1) == 0)
        return ts_apply(c->g, "l1_loss", 2, in, 1,
                        (ts_arg[]){ts_arg_text("reduction", ts_call_reduction(c, 2))});
    return ts_apply(c->g, c->row->op, 2, in, 2,
                    (ts_arg[]){ts_arg_text("reduction", ts_call_reduction(c, 2)),
                               ts_arg_number("beta", ts_call_number(c, 3, 1))});
}

/* (x, target, reduction, log_target) */
ts_value *ts_word_kl_div(ts_call *c)
{
    ts_value *in[] = {ts_call_as(c, 0, c->dtype), ts_call_as(c, 1, c->dtype)};

    if (!in[0] || !in[1])
        return NULL;
    return ts_apply(c->g, "kl_div", 2, in, 2,
                    (ts_arg[]){ts_arg_text("reduction", ts_call_reduction(c, 2)),
                               ts_arg_int("log_target", ts_call_flag(c, 3))});
}

/* delta times smooth_l1 with that beta */
ts_value *ts_word_huber(ts_call *c)
{
    ts_value *in[] = {ts_call_as(c, 0, c->dtype), ts_call_as(c, 1, c->dtype)};
    double delta = ts_call_number(c, 3, 1);

    if (!in[0] || !in[1])
        return NULL;
    return times(ts_apply(c->g, "smooth_l1_loss", 2, in, 2,
                          (ts_arg[]){ts_arg_text("reduction", ts_call_reduction(c, 2)),
                                     ts_arg_number("beta", delta)}),
                 delta);
}

/* log(1 + exp(-x target)) */
ts_value *ts_word_soft_margin(ts_call *c)
{
    ts_value *x = ts_mul(ts_call_as(c, 0, c->dtype), ts_call_as(c, 1, c->dtype));

    return ts_call_reduced(c, ts_softplus(ts_neg(x)), 2);
}

/* (x, target, weight, reduction as text, ignore_index, label_smoothing) */
ts_value *ts_word_cross_entropy(ts_call *c)
{
    ts_value *in[] = {ts_call_tensor(c, 0), ts_call_tensor(c, 1), ts_call_tensor(c, 2)};

    if (!in[0] || !in[1])
        return NULL;
    return ts_apply(c->g, "cross_entropy", in[2] ? 3 : 2, in, 3,
                    (ts_arg[]){ts_arg_text("reduction", ts_call_reduction(c, 3)),
                               ts_arg_int("ignore_index", ts_call_int(c, 4, -100)),
                               ts_arg_number("label_smoothing", ts_call_number(c, 5, 0))});
}

/* (x, target, weight, reduction) */
ts_value *ts_word_bce(ts_call *c)
{
    ts_value *in[] = {ts_call_as(c, 0, c->dtype), ts_call_as(c, 1, c->dtype), ts_call_tensor(c, 2)};

    if (!in[0] || !in[1])
        return NULL;
    return ts_apply(c->g, "binary_cross_entropy", in[2] ? 3 : 2, in, 1,
                    (ts_arg[]){ts_arg_text("reduction", ts_call_reduction(c, 3))});
}

/* (x, target, weight, pos_weight, reduction) */
ts_value *ts_word_bce_logits(ts_call *c)
{
    ts_value *w = ts_call_tensor(c, 2), *pos = ts_call_tensor(c, 3);
    ts_value *in[4] = {ts_call_as(c, 0, c->dtype), ts_call_as(c, 1, c->dtype), w ? w : pos, pos};
    int n = 2 + (w != NULL) + (pos != NULL);

    if (!in[0] || !in[1])
        return NULL;
    return ts_apply(c->g, "binary_cross_entropy_with_logits", n, in, 2,
                    (ts_arg[]){ts_arg_text("reduction", ts_call_reduction(c, 4)),
                               ts_arg_int("has_weight", (w != NULL))});
}

ts_value *ts_word_identity_loss(ts_call *c)
{
    return ts_call_reduced(c, ts_call_tensor(c, 0), 1);
}

/* _safe_softmax(x, dim, dtype): the softmax of attention, 0 in rows of -inf only. Their largest is
 * taken for 0, so no exp is NaN and neither is a gradient. */
ts_value *ts_word_safe_softmax(ts_call *c)
{
    ts_value *x = ts_call_as(c, 0, c->dtype), *most, *none, *e;
    int64_t dim = ts_call_int(c, 1, -1);

    if (!x || !c->rank)
        return ts_call_refuse(c, "a scalar");
    most = ts_detach(ts_amax(x, 1, &dim, true));
    none = ts_eq(most, ts_call_scalar(c, -INFINITY));
    e = ts_exp(ts_sub(x, ts_where(none, ts_call_scalar(c, 0), most)));
    return ts_div(e, ts_where(none, ts_call_scalar(c, 1), ts_sum(e, 1, &dim, true)));
}
