/* words_order.c - running sums and the like, sorting, and counting what is smaller. */
#include <math.h>
#include <string.h>

#include "front/words.h"

/* --- running along a dim ---------------------------------------------------------------------- */

static ts_value *log_add(ts_call *c, ts_value *x, ts_value *y)
{
    ts_value *zero = ts_call_scalar(c, 0), *apart;

    apart = ts_where(ts_eq(x, y), zero, ts_abs(ts_sub(x, y))); /* infinities are equal too */
    x = ts_call_op2("maximum", c, x, y);
    return ts_add(x, ts_call_op1("log1p", c, ts_exp(ts_neg(apart))));
}

ts_value *ts_call_log_add(ts_call *c, ts_value *x, ts_value *y)
{
    return log_add(c, x, y);
}

static ts_value *shifted(ts_value *x, int dim, int64_t by, double with)
{
    int64_t lo[TS_MAX_RANK] = {0}, hi[TS_MAX_RANK] = {0};

    lo[dim] = by;
    return ts_pad(ts_slice(x, dim, 0, ts_dim(x, dim) - by, 1), ts_rank(x), lo, hi, with);
}

/* y[i] = x[0] op .. op x[i]: in log2 n steps, after step k each element holds the 2^k before it
 * (Hillis and Steele). The steps are views and pointwise ops, so gradients, integers and any length
 * come for nothing. */
ts_value *ts_call_scan(ts_call *c, ts_value *x, int dim, const char *op)
{
    double nothing = !strcmp(op, "mul") ? 1 : !strcmp(op, "log_add") ? -INFINITY : 0;

    for (int64_t by = 1; x && by < ts_dim(x, dim); by *= 2) {
        ts_value *before = shifted(x, dim, by, nothing);

        x = !strcmp(op, "log_add") ? log_add(c, before, x) : ts_call_op2(op, c, before, x);
    }
    return x;
}

/* cumsum(x, dim), cumprod, logcumsumexp: halves in f32, rounded at the end */
ts_value *ts_word_cumulative(ts_call *c)
{
    bool half = c->dtype == TS_F16 || c->dtype == TS_BF16;
    ts_dtype t = c->dtype;
    ts_value *x;

    c->dtype = half ? TS_F32 : t;
    x = ts_call_as(c, 0, c->dtype);
    if (c->rank && !strcmp(c->row->op, "log_add"))
        x = ts_call_scan(c, x, ts_call_dim(c, 1, c->rank), c->row->op);
    else if (c->rank && x)
        x = ts_apply(c->g, "scan", 1, &x, 2,
                     (ts_arg[]){ts_arg_int("dim", ts_call_dim(c, 1, c->rank)),
                                ts_arg_text("how", c->row->op)});
    c->dtype = t;
    return x ? ts_cast(x, t) : NULL;
}

/* cummax(x, dim), cummin: the values and the last places they come from. A NaN stays. */
ts_value *ts_word_cummax(ts_call *c)
{
    ts_value *x = ts_call_tensor(c, 0), *at;
    int dim = ts_call_dim(c, 1, c->rank);
    bool max = !strcmp(c->row->op, "cummax");

    if (!x || !c->rank)
        return ts_call_refuse(c, "a scalar");
    at = ts_apply(c->g, "scan_places", 1, &x, 2,
                  (ts_arg[]){ts_arg_int("dim", dim), ts_arg_text("how", max ? "max" : "min")});
    c->out[1] = at;
    c->nout = 2;
    return at ? ts_gather(x, dim, at) : NULL;
}

/* --- sorting ---------------------------------------------------------------------------------- */

/* The first `count` values (0: all); *places, where they were. */
static ts_value *sorted(ts_call *c, ts_value *x, int dim, int64_t count, bool down,
                        ts_value **places)
{
    ts_value *y = x ? ts_apply(c->g, "sort", 1, &x, 3,
                               (ts_arg[]){ts_arg_int("dim", dim), ts_arg_int("count", count),
                                          ts_arg_int("descending", down)})
                    : NULL;

    *places = y ? ts_result(y, 1) : NULL;
    return y;
}

/* sort(x, dim, descending) and sort.stable(x, stable, dim, descending); argsort has the places */
ts_value *ts_word_sort(ts_call *c)
{
    int at = strstr(c->row->name, ".stable") ? 2 : 1;
    ts_value *x = ts_call_tensor(c, 0), *places, *y;

    if (!x)
        return NULL;
    y = sorted(c, x, ts_rank(x) ? ts_call_dim(c, at, ts_rank(x)) : 0, 0, ts_call_flag(c, at + 1),
               &places);
    if (!strcmp(c->row->op, "argsort"))
        return places;
    c->out[1] = places;
    c->nout = 2;
    return y;
}

/* topk(x, k, dim, largest, sorted) */
ts_value *ts_word_topk(ts_call *c)
{
    ts_value *x = ts_call_tensor(c, 0), *places, *y;
    int dim = x && ts_rank(x) ? ts_call_dim(c, 2, ts_rank(x)) : 0;

    y = sorted(c, x, dim, ts_call_int(c, 1, 1), ts_call_flag(c, 3), &places);
    c->out[1] = places;
    c->nout = 2;
    return y;
}

/* Of a sorted row the k-th; k is a number or, one for each row, a value. */
static ts_value *kth(ts_value *sorted, int dim, ts_value *k, const ts_call *c)
{
    int64_t dims[TS_MAX_RANK];
    int rank = ts_call_shape_of(sorted, dims);

    dims[dim] = 1;
    return ts_reshape_n(ts_gather(sorted, dim, ts_expand_n(k, rank, dims)), c->rank, c->dims);
}

/* The median y of a whole x: all elements that are equal to it share its gradient, as PyTorch has it. */
static ts_value *shared(ts_call *c, ts_value *x, ts_value *y)
{
    ts_value *hit, *count, *none;

    if (!x || !y || !ts_dtype_is_float(c->dtype))
        return y;
    y = ts_detach(y);
    hit = ts_eq(x, ts_reshape_n(y, 1, (int64_t[]){1}));
    hit = ts_call_op2("logical_and", c, hit, ts_lt(ts_abs(x), ts_call_scalar(c, INFINITY)));
    count = ts_call_fold(c, "sum", ts_cast(hit, c->dtype), 0, NULL, false);
    count = ts_call_op2("maximum", c, count, ts_call_scalar(c, 1));
    none = ts_where(hit, ts_sub(x, ts_detach(x)), ts_call_scalar(c, 0)); /* 0, with x's gradient */
    return ts_add(y, ts_div(ts_call_fold(c, "sum", none, 0, NULL, false), count));
}

/* median(x), median(x, dim, keepdim), nanmedian; kthvalue(x, k, dim, keepdim). NaN sorts last, and
 * for a median is the answer if there is one. */
ts_value *ts_word_median(ts_call *c)
{
    const char *op = c->row->op;
    bool kthvalue = !strcmp(op, "kthvalue"), nan = ts_dtype_is_float(c->dtype);
    ts_value *x = ts_call_tensor(c, 0), *places, *k, *numbers, *all;
    bool whole = !kthvalue && !ts_call_has(c, 1);
    int64_t size, over;
    int dim;

    if (!x)
        return NULL;
    if (whole || !ts_rank(x))
        x = ts_reshape_n(x, 1, (int64_t[]){-1});
    over = dim = whole ? 0 : ts_call_dim(c, kthvalue ? 2 : 1, ts_rank(x));
    size = ts_dim(x, dim);
    numbers = nan ? ts_cast(ts_eq(x, x), TS_I64) : NULL;
    if (numbers)
        numbers = ts_sum(numbers, 1, &over, true);
    k = ts_scalar(c->g, TS_I64,
                  kthvalue ? (double)ts_call_int(c, 1, 1) - 1 : (double)((size - 1) / 2));
    if (numbers && !strcmp(op, "nanmedian")) {
        k = ts_call_op2("floor_divide", c, ts_add_scalar(numbers, -1), ts_scalar(c->g, TS_I64, 2));
        k = ts_call_op2("maximum", c, k, ts_scalar(c->g, TS_I64, 0));
    } else if (numbers && !kthvalue)
        k = ts_where(ts_lt(numbers, ts_scalar(c->g, TS_I64, (double)size)), numbers, k);
    all = x;
    x = sorted(c, x, dim, kthvalue ? ts_call_int(c, 1, 1) : 0, false, &places);
    if (!x)
        return NULL;
    if (whole)
        return shared(c, all, kth(x, dim, k, c));
    c->out[1] = kth(places, dim, k, c);
    c->nout = 2;
    return kth(x, dim, k, c);
}

/* --- counting --------------------------------------------------------------------------------- */

/* How many of the last dim of `row` are smaller than x (not larger: `right`). */
static ts_value *count_below(ts_value *row, ts_value *x, bool right)
{
    int64_t last = row && x ? (ts_rank(row) > ts_rank(x) ? ts_rank(row) : ts_rank(x)) - 1 : 0;

    if (!row || !x)
        return NULL;
    return ts_sum(ts_cast(right ? ts_le(row, x) : ts_lt(row, x), TS_I64), 1, &last, false);
}

static ts_value *with_last(ts_value *x)
{
    int64_t dims[TS_MAX_RANK];
    int rank = x ? ts_call_shape_of(x, dims) : 0;

    if (!x || rank == TS_MAX_RANK)
        return x ? ts_graph_refuse(x->graph, TS_ERR_SHAPE, NULL, "rank %d", rank) : NULL;
    dims[rank] = 1;
    return ts_reshape_n(x, rank + 1, dims);
}

/* bucketize(x, boundaries, out_int32, right) */
ts_value *ts_word_bucketize(ts_call *c)
{
    return count_below(ts_call_tensor(c, 1), with_last(ts_call_tensor(c, 0)), ts_call_flag(c, 3));
}

/* searchsorted(rows, x, out_int32, right, side, sorter): rows [n] for all x, or [.., n] for [.., m]
 */
ts_value *ts_word_searchsorted(ts_call *c)
{
    ts_value *rows = ts_call_tensor(c, 0), *x = ts_call_tensor(c, 1);
    bool right = ts_call_flag(c, 3) || !strcmp(ts_call_text(c, 4, ""), "right");
    int64_t dims[TS_MAX_RANK];
    int rank = rows ? ts_call_shape_of(rows, dims) : 0;

    if (ts_call_has(c, 5))
        rows = ts_gather(rows, rank - 1, ts_call_tensor(c, 5));
    if (!x && rows)
        x = ts_call_as(c, 1, ts_dtype_of(rows));
    if (rank == TS_MAX_RANK)
        return ts_call_refuse(c, "rank %d", rank);
    if (rank > 1) {
        dims[rank] = dims[rank - 1];
        dims[rank - 1] = 1;
        rows = ts_reshape_n(rows, rank + 1, dims);
    }
    return count_below(rows, with_last(x), right);
}

/* isin(x, these, assume_unique, invert) */
ts_value *ts_word_isin(ts_call *c)
{
    ts_value *x = with_last(ts_call_tensor(c, 0)), *these = ts_call_tensor(c, 1), *y;
    int64_t last = x ? ts_rank(x) - 1 : 0;

    if (!x || !these)
        return ts_call_refuse(c, "numbers");
    y = ts_cast(ts_eq(x, ts_reshape_n(these, 1, (int64_t[]){-1})), TS_I32);
    y = ts_cast(ts_call_fold(c, "amax", y, 1, &last, false), TS_BOOL);
    return ts_call_flag(c, 3) ? ts_call_op1("logical_not", c, y) : y;
}

/* bincount(x, weights, minlength): as many bins as minlength says */
ts_value *ts_word_bincount(ts_call *c)
{
    ts_value *x = ts_call_tensor(c, 0), *w = ts_call_tensor(c, 1);
    int64_t bins = ts_call_int(c, 2, 0), n = x ? ts_dim(x, 0) : 1;

    if (bins < 1 || bins != c->dims[0])
        return ts_call_refuse(c, "more bins than minlength: their number would depend on values");
    if (!w)
        w = ts_full_n(c->g, c->dtype, 1, 1, &n);
    return x ? ts_apply(c->g, "index_add", 2, (ts_value *[]){x, w}, 2,
                        (ts_arg[]){ts_arg_int("dim", 0), ts_arg_int("size", bins)})
             : NULL;
}

/* The bounds of histc, and -1 and 1 beside a single number. */
static void histc_bounds(ts_call *c, ts_value *x, ts_value **low, ts_value **high)
{
    double from = ts_call_number(c, 2, 0), to = ts_call_number(c, 3, 0);
    ts_value *same;

    *low = ts_call_scalar(c, from);
    *high = ts_call_scalar(c, to);
    if (from != to)
        return;
    *low = ts_amin(x, 0, NULL, false);
    *high = ts_amax(x, 0, NULL, false);
    same = ts_eq(*low, *high);
    *low = ts_where(same, ts_add_scalar(*low, -1), *low);
    *high = ts_where(same, ts_add_scalar(*high, 1), *high);
}

/* histc(x, bins, min, max) */
ts_value *ts_word_histc(ts_call *c)
{
    ts_value *x = ts_call_tensor(c, 0), *low, *high, *at, *inside;
    int64_t bins = c->dims[0], count;

    if (!x)
        return NULL;
    count = ts_type_count(&x->type);
    x = ts_reshape_n(x, 1, &count);
    histc_bounds(c, x, &low, &high);
    at = ts_div(ts_call_scalar(c, (double)bins), ts_sub(high, low));
    at = ts_mul(ts_sub(x, low), at);
    at = ts_cast(ts_clamp(ts_call_op1("floor", c, at), 0, (double)(bins - 1)), TS_I64);
    inside = ts_call_op2("logical_and", c, ts_ge(x, low), ts_le(x, high));
    return ts_apply(c->g, "index_add", 2, (ts_value *[]){at, ts_cast(inside, c->dtype)}, 2,
                    (ts_arg[]){ts_arg_int("dim", 0), ts_arg_int("size", bins)});
}

/* multinomial(p, count, replacement): a race of exponentials, in which who has twice the rate comes
 * first twice as often */
ts_value *ts_word_multinomial(ts_call *c)
{
    ts_value *p = ts_call_tensor(c, 0), *times, *places;
    int64_t count = ts_call_int(c, 1, 1), dims[TS_MAX_RANK];
    int rank = p ? ts_call_shape_of(p, dims) : 0;

    if (!p || rank + 1 > TS_MAX_RANK)
        return NULL;
    if (ts_call_flag(c, 2)) { /* a race for each draw */
        dims[rank] = dims[rank - 1];
        dims[rank - 1] = count;
        p = ts_unsqueeze(p, rank - 1);
        rank++;
    }
    times = ts_rand_n(c->g, TS_F32, rank, dims);
    times = ts_neg(ts_log(ts_sub(ts_scalar(c->g, TS_F32, 1), times)));
    times = ts_call_op2("maximum", c, times, ts_scalar(c->g, TS_F32, 1e-10));
    p = ts_div(ts_cast(p, TS_F32), times);
    if (ts_call_flag(c, 2))
        return ts_argmax(p, rank - 1, false);
    return ts_topk(p, count, rank - 1, true, &places) ? places : NULL;
}
