/* words_window.c - windows of a picture by constant tables of indices: unfold and fold, max pools
 * that the engine has no op for, resizing, sampling along a grid.
 *
 * A table says for each window (or output) and each of its taps which row of the input is meant.
 * Rows and columns are chosen one after the other, so a table is small.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "front/words.h"

enum { SPATIAL = 3 };

typedef struct table {
    int64_t windows, taps;
    int64_t *at; /* [taps, windows] */
} table;

typedef struct tables {
    int n; /* spatial dims */
    table t[SPATIAL];
} tables;

static bool make_table(table *t, int64_t windows, int64_t taps)
{
    size_t n = windows > 0 && taps > 0 ? (size_t)windows * (size_t)taps : 0;

    *t = (table){windows, taps, n && n <= 1 << 24 ? calloc(n, sizeof(int64_t)) : NULL};
    return t->at != NULL;
}

static ts_value *too_many(ts_call *c)
{
    return ts_call_refuse(c, "windows with more than 2^24 taps along a dim");
}

static void free_tables(tables *ts)
{
    for (int i = 0; i < ts->n; i++)
        free(ts->t[i].at);
}

static ts_value *table_value(ts_call *c, const table *t)
{
    return ts_const_n(c->g, TS_I64, t->at, 2, (int64_t[]){t->taps, t->windows});
}

/* Window o, tap k: o * stride + k * dilation, in the padded input. */
static bool strided(table *t, int64_t windows, int64_t taps, int64_t stride, int64_t dilation)
{
    if (!make_table(t, windows, taps))
        return false;
    for (int64_t k = 0; k < taps; k++)
        for (int64_t o = 0; o < windows; o++)
            t->at[k * windows + o] = o * stride + k * dilation;
    return true;
}

static ts_value *with_batch(ts_value *x, int spatial)
{
    int64_t dims[TS_MAX_RANK];
    int rank = x ? ts_call_shape_of(x, dims) : 0;

    if (!x || rank != spatial + 1)
        return x;
    memmove(dims + 1, dims, sizeof(*dims) * (size_t)rank);
    dims[0] = 1;
    return ts_reshape_n(x, rank + 1, dims);
}

static ts_value *padded(ts_value *x, int spatial, const int64_t *lo, const int64_t *hi, double with)
{
    int64_t low[TS_MAX_RANK] = {0}, high[TS_MAX_RANK] = {0};
    bool any = false;

    for (int i = 0; i < spatial; i++) {
        low[2 + i] = lo[i];
        high[2 + i] = hi[i];
        any = any || lo[i] || hi[i];
    }
    return any && x ? ts_pad(x, 2 + spatial, low, high, with) : x;
}

/* [N, C, H, W] -> [N, C, kh, oh, kw, ow] */
static ts_value *choose(ts_call *c, ts_value *x, const tables *ts)
{
    for (int i = 0; x && i < ts->n; i++)
        x = ts_apply(c->g, "index_select", 2, (ts_value *[]){x, table_value(c, &ts->t[i])}, 1,
                     (ts_arg[]){ts_arg_int("dim", (2 + 2 * i))});
    return x;
}

/* kh, oh, kw, ow and kh, kw, oh, ow: where each dim of the second lies in the first */
static void taps_first(int n, int64_t *order)
{
    order[0] = 0;
    order[1] = 1;
    for (int i = 0; i < n; i++) {
        order[2 + i] = 2 + 2 * i;
        order[2 + n + i] = 3 + 2 * i;
    }
}

/* --- unfold and fold -------------------------------------------------------------------------- */

typedef struct fold_args {
    int64_t kernel[2], dilation[2], padding[2], stride[2], windows[2], size[2];
} fold_args;

static void fold_arguments(const ts_call *c, int from, const int64_t *size, fold_args *f)
{
    ts_call_ints_n(c, from, 2, 1, f->kernel);
    ts_call_ints_n(c, from + 1, 2, 1, f->dilation);
    ts_call_ints_n(c, from + 2, 2, 0, f->padding);
    ts_call_ints_n(c, from + 3, 2, 1, f->stride);
    for (int i = 0; i < 2; i++) {
        f->size[i] = size[i] + 2 * f->padding[i];
        f->windows[i] = (f->size[i] - f->dilation[i] * (f->kernel[i] - 1) - 1) / f->stride[i] + 1;
    }
}

static bool fold_tables(const fold_args *f, tables *ts)
{
    bool ok = true;

    *ts = (tables){.n = 2};
    for (int i = 0; i < 2; i++)
        ok = strided(&ts->t[i], f->windows[i], f->kernel[i], f->stride[i], f->dilation[i]) && ok;
    return ok;
}

/* im2col(x, kernel, dilation, padding, stride): [N, C kh kw, oh ow] */
ts_value *ts_word_im2col(ts_call *c)
{
    ts_value *x = with_batch(ts_call_tensor(c, 0), 2);
    int64_t order[TS_MAX_RANK];
    fold_args f;
    tables ts;

    if (!x)
        return NULL;
    fold_arguments(c, 1, (int64_t[]){ts_dim(x, 2), ts_dim(x, 3)}, &f);
    x = padded(x, 2, f.padding, f.padding, 0);
    x = fold_tables(&f, &ts) ? choose(c, x, &ts) : too_many(c);
    free_tables(&ts);
    taps_first(2, order);
    return x ? ts_reshape_n(ts_permute_n(x, 6, order), c->rank, c->dims) : NULL;
}

/* col2im(x, size, kernel, dilation, padding, stride): im2col's transpose */
ts_value *ts_word_col2im(ts_call *c)
{
    ts_value *x = ts_call_tensor(c, 0);
    int64_t size[2], order[TS_MAX_RANK], inverse[TS_MAX_RANK], n;
    fold_args f;
    tables ts;

    ts_call_ints_n(c, 1, 2, 1, size);
    fold_arguments(c, 2, size, &f);
    n = c->rank > 3 ? c->dims[0] : 1;
    x = ts_reshape_n(
        x, 6,
        (int64_t[]){n, c->dims[c->rank - 3], f.kernel[0], f.kernel[1], f.windows[0], f.windows[1]});
    taps_first(2, order);
    for (int i = 0; i < 6; i++)
        inverse[order[i]] = i;
    x = ts_permute_n(x, 6, inverse);
    if (!fold_tables(&f, &ts)) {
        free_tables(&ts);
        return too_many(c);
    }
    for (int i = 1; x && i >= 0; i--)
        x = ts_apply(c->g, "index_add", 2, (ts_value *[]){table_value(c, &ts.t[i]), x}, 2,
                     (ts_arg[]){ts_arg_int("dim", (2 + 2 * i)), ts_arg_int("size", f.size[i])});
    /* the columns were added while the rows still had two dims, so they lie right */
    free_tables(&ts);
    for (int i = 0; x && i < 2; i++)
        x = ts_slice(x, 2 + i, f.padding[i], f.padding[i] + size[i], 1);
    return x ? ts_reshape_n(x, c->rank, c->dims) : NULL;
}

/* --- max pools -------------------------------------------------------------------------------- */

/* The place in the unpadded, flat picture of each window's taps: [oh ow, kh kw] */
static ts_value *flat_places(ts_call *c, const tables *ts, const int64_t *size, const int64_t *pad)
{
    int64_t windows = 1, taps = 1, *flat;
    ts_value *v = NULL;

    for (int i = 0; i < ts->n; i++) {
        windows *= ts->t[i].windows;
        taps *= ts->t[i].taps;
    }
    if (!ts_call_fits(c, (double)windows * (double)taps))
        return NULL;
    flat = calloc((size_t)windows * (size_t)taps, sizeof(*flat));
    for (int64_t o = 0; flat && o < windows; o++)
        for (int64_t k = 0; k < taps; k++) {
            int64_t rest_o = o, rest_k = k, scale = 1;

            for (int i = ts->n - 1; i >= 0; i--) {
                const table *t = &ts->t[i];

                flat[o * taps + k] +=
                    scale * (t->at[rest_k % t->taps * t->windows + rest_o % t->windows] - pad[i]);
                rest_o /= t->windows;
                rest_k /= t->taps;
                scale *= size[i];
            }
        }
    if (flat)
        v = ts_const_n(c->g, TS_I64, flat, 2, (int64_t[]){windows, taps});
    free(flat);
    return v;
}

/* The largest of each window, the first of equals, and its place. x has its padding. */
static ts_value *largest(ts_call *c, ts_value *x, const tables *ts, const int64_t *size,
                         const int64_t *pad)
{
    int64_t order[TS_MAX_RANK], by[TS_MAX_RANK], dims[4] = {1, 1, 1, 1}, last = 3;
    ts_value *at, *flat = flat_places(c, ts, size, pad);
    int n = ts->n;

    x = choose(c, x, ts);
    if (!x || !flat)
        return NULL;
    dims[0] = ts_dim(x, 0);
    dims[1] = ts_dim(x, 1);
    taps_first(n, order);
    for (int i = 0; i < n; i++) { /* windows first here */
        by[2 + i] = order[2 + n + i];
        by[2 + n + i] = order[2 + i];
        dims[2] *= ts->t[i].windows;
        dims[3] *= ts->t[i].taps;
    }
    by[0] = 0;
    by[1] = 1;
    x = ts_reshape_n(ts_permute_n(x, 2 + 2 * n, by), 4, dims);
    at = x ? ts_apply(c->g, "argmax", 1, &x, 2,
                      (ts_arg[]){ts_arg_ints("dims", 1, &last), ts_arg_int("keepdim", 1)})
           : NULL;
    flat = ts_expand_n(flat, 4, dims);
    c->out[1] = ts_reshape_n(ts_gather(flat, 3, at), c->rank, c->dims);
    c->nout = 2;
    return ts_reshape_n(ts_gather(x, 3, at), c->rank, c->dims);
}

static double lowest(ts_dtype t)
{
    return ts_dtype_is_float(t) ? -INFINITY : INT32_MIN;
}

/* max_poolNd_with_indices(x, kernel, stride, padding, dilation, ceil_mode), of any dilation */
ts_value *ts_call_window_max(ts_call *c)
{
    int n = ts_call_spatial(c);
    ts_value *x = with_batch(ts_call_tensor(c, 0), n), *y = NULL;
    int64_t kernel[3], stride[3], padding[3], dilation[3], hi[3], size[3], none[TS_MAX_RANK];
    bool own_stride = ts_call_ints(c, 2, none) > 0, ok = x != NULL;
    tables ts = {.n = n};

    ts_call_ints_n(c, 1, n, 1, kernel);
    ts_call_ints_n(c, 2, n, 1, stride);
    ts_call_ints_n(c, 3, n, 0, padding);
    ts_call_ints_n(c, 4, n, 1, dilation);
    for (int i = 0; ok && i < n; i++) {
        int64_t windows = c->dims[c->rank - n + i], s = own_stride ? stride[i] : kernel[i];
        int64_t need = (windows - 1) * s + dilation[i] * (kernel[i] - 1) + 1;

        size[i] = ts_dim(x, 2 + i);
        hi[i] = need - size[i] - padding[i];
        hi[i] = hi[i] < 0 ? 0 : hi[i];
        ok = strided(&ts.t[i], windows, kernel[i], s, dilation[i]);
    }
    if (x && !ok)
        too_many(c);
    if (ok)
        y = largest(c, padded(x, n, padding, hi, lowest(c->dtype)), &ts, size, padding);
    free_tables(&ts);
    return y;
}

static ts_value *adaptive_windows(ts_call *c);

/* The places only: made when somebody reads them. */
ts_value *ts_word_max_places(ts_call *c)
{
    ts_dtype t = c->dtype;
    ts_value *y, *x = ts_call_tensor(c, 0);

    c->dtype = x ? ts_dtype_of(x) : t;
    y = strstr(c->row->name, "adaptive") ? adaptive_windows(c) : ts_call_window_max(c);
    c->nout = 1;
    c->dtype = t;
    return y ? c->out[1] : NULL;
}

/* Windows of uneven sizes name their last row again. */
static ts_value *adaptive_windows(ts_call *c)
{
    int n = ts_call_spatial(c);
    ts_value *x = with_batch(ts_call_tensor(c, 0), n), *y = NULL;
    int64_t size[3], none[3] = {0};
    tables ts = {.n = n};
    bool ok = x != NULL;

    for (int i = 0; ok && i < n; i++) {
        int64_t to = c->dims[c->rank - n + i], taps = 1;

        size[i] = ts_dim(x, 2 + i);
        if (!(ok = ts_call_fits(c, (double)to)))
            break;
        for (int64_t o = 0; o < to; o++) {
            int64_t len = ((o + 1) * size[i] + to - 1) / to - o * size[i] / to;
            taps = len > taps ? len : taps;
        }
        ok = make_table(&ts.t[i], to, taps);
        for (int64_t o = 0; ok && o < to; o++)
            for (int64_t k = 0; k < taps; k++) {
                int64_t at = o * size[i] / to + k, end = ((o + 1) * size[i] + to - 1) / to;
                ts.t[i].at[k * to + o] = at < end ? at : end - 1;
            }
    }
    if (x && !ok)
        too_many(c);
    if (ok)
        y = largest(c, x, &ts, size, none);
    free_tables(&ts);
    return y;
}

/* adaptive_max_poolNd(x, size): where the sizes divide, an ordinary pool */
ts_value *ts_word_adaptive_max_pool(ts_call *c)
{
    int n = ts_call_spatial(c);
    ts_value *x = with_batch(ts_call_tensor(c, 0), n);
    int64_t kernel[SPATIAL];

    for (int i = 0; x && i < n; i++) {
        int64_t size = ts_dim(x, 2 + i), to = c->dims[c->rank - n + i];

        if (size % to)
            return adaptive_windows(c);
        kernel[i] = size / to;
    }
    c->nout = 1;
    if (!x)
        return NULL;
    x = ts_apply(c->g, "max_pool", 1, &x, 2,
                 (ts_arg[]){ts_arg_ints("kernel", n, kernel), ts_arg_ints("stride", n, kernel)});
    return ts_reshape_n(x, c->rank, c->dims);
}

/* --- resizing --------------------------------------------------------------------------------- */

/* Input per output: by the factors where they are given (a list, or a number for each dim). */
static double step_of(const ts_call *c, int arg, int d, int64_t in, int64_t out)
{
    int n = ts_call_count(c, arg);
    double factor = n >= 0 ? (d < n ? ts_call_item(c, arg, d) : 0) : ts_call_number(c, arg + d, 0);

    return factor > 0 ? 1 / factor : (double)in / (double)out;
}

/* Is a factor other than the ratio of the sizes? Then PyTorch goes by the factor. */
static bool has_factors(const ts_call *c, int arg, const ts_value *x)
{
    for (int i = 0; i < ts_rank(x) - 2; i++) {
        int64_t in = ts_dim(x, 2 + i), out = c->dims[2 + i];

        if (fabs(step_of(c, arg, i, in, out) * (double)out / (double)in - 1) > 1e-9)
            return true;
    }
    return false;
}

/* Output o takes input (o + shift) * step, rounded down. */
static ts_value *nearest(ts_call *c, ts_value *x, double shift)
{
    int n = x ? ts_rank(x) - 2 : 0;

    for (int i = 0; x && i < n; i++) {
        int64_t in = ts_dim(x, 2 + i), out = c->dims[2 + i];
        double step = step_of(c, 2, i, in, out);
        int64_t *at = ts_call_fits(c, (double)out) ? malloc(sizeof(*at) * (size_t)out) : NULL;

        for (int64_t o = 0; at && o < out; o++) {
            int64_t k = (int64_t)floor(((double)o + shift) * step);
            at[o] = k < in ? k : in - 1;
        }
        x = at ? ts_apply(c->g, "index_select", 2,
                          (ts_value *[]){x, ts_const_n(c->g, TS_I64, at, 1, &out)}, 1,
                          (ts_arg[]){ts_arg_int("dim", (2 + i))})
               : NULL;
        free(at);
    }
    return x;
}

/* _upsample_nearest_exactNd(x, size, factors) */
ts_value *ts_word_nearest_exact(ts_call *c)
{
    return nearest(c, ts_call_tensor(c, 0), 0.5);
}

/* upsample_nearestNd(x, size, factors) */
ts_value *ts_word_nearest(ts_call *c)
{
    ts_value *x = ts_call_tensor(c, 0);

    if (x && has_factors(c, 2, x))
        return nearest(c, x, 0);
    return x ? ts_apply(c->g, "upsample_nearest", 1, &x, 1,
                        (ts_arg[]){ts_arg_ints("size", ts_rank(x) - 2, c->dims + 2)})
             : NULL;
}

static double hat(double d)
{
    return fabs(d) < 1 ? 1 - fabs(d) : 0;
}

/* Keys' cubic with a = -0.75, as PyTorch has it: of taps at distances 1+t, t, 1-t, 2-t */
static double cubic(double d)
{
    const double a = -0.75;

    d = fabs(d);
    if (d <= 1)
        return ((a + 2) * d - (a + 3)) * d * d + 1;
    return d < 2 ? ((a * d - 5 * a) * d + 8 * a) * d - 4 * a : 0;
}

/* As Pillow has it: a = -0.5 */
static double soft_cubic(double d)
{
    d = fabs(d);
    if (d < 1)
        return (1.5 * d - 2.5) * d * d + 1;
    return d < 2 ? ((-0.5 * d + 2.5) * d - 4) * d + 2 : 0;
}

/* [in, out], antialiased: of the inputs under a weight stretched by the step where that is above 1,
 * 2 `reach` wide without; what is beyond an end does not count. */
static ts_value *smooth_weights(ts_call *c, int64_t in, int64_t out, double step, double reach,
                                double (*weight)(double))
{
    float *w = ts_call_fits(c, (double)in * (double)out)
                   ? calloc((size_t)in * (size_t)out, sizeof(*w))
                   : NULL;
    double wide = step > 1 ? step : 1;
    ts_value *v = NULL;

    for (int64_t o = 0; w && o < out; o++) {
        double at = step * ((double)o + 0.5), sum = 0;
        int64_t first = (int64_t)fmax(at - reach * wide + 0.5, 0);
        int64_t end = (int64_t)fmin(at + reach * wide + 0.5, (double)in);

        for (int64_t k = first; k < end; k++)
            sum += weight(((double)k - at + 0.5) / wide);
        for (int64_t k = first; k < end; k++)
            w[k * out + o] = (float)(weight(((double)k - at + 0.5) / wide) / (sum != 0 ? sum : 1));
    }
    if (w)
        v = ts_cast(ts_const_n(c->g, TS_F32, w, 2, (int64_t[]){in, out}), c->dtype);
    free(w);
    return v;
}

/* [in, out]: each output's weights of `taps` inputs; taps beyond an end count for the end */
static ts_value *weights_of(ts_call *c, int64_t in, int64_t out, double step, bool corners,
                            int taps, double (*weight)(double))
{
    float *w = ts_call_fits(c, (double)in * (double)out)
                   ? calloc((size_t)in * (size_t)out, sizeof(*w))
                   : NULL;
    ts_value *v = NULL;

    for (int64_t o = 0; w && o < out; o++) {
        double at = corners ? (out > 1 ? (double)o * (double)(in - 1) / (double)(out - 1) : 0)
                            : ((double)o + 0.5) * step - 0.5;
        int64_t first = (int64_t)floor(at) - (taps / 2 - 1);

        for (int64_t k = first; k < first + taps; k++)
            w[(k < 0 ? 0 : k >= in ? in - 1 : k) * out + o] += (float)weight(at - (double)k);
    }
    if (w)
        v = ts_cast(ts_const_n(c->g, TS_F32, w, 2, (int64_t[]){in, out}), c->dtype);
    free(w);
    return v;
}

/* x times weights, along dim d */
static ts_value *mixed(ts_value *x, int d, ts_value *w)
{
    int last = ts_rank(x) - 1;

    if (d == last)
        return ts_matmul(x, w);
    return ts_transpose(ts_matmul(ts_transpose(x, d, last), w), d, last);
}

/* Dim by dim. */
static ts_value *resized(ts_call *c, ts_value *x, int taps, double (*weight)(double))
{
    for (int d = 2; x && d < c->rank; d++) {
        int64_t in = ts_dim(x, d), out = c->dims[d];
        double step = step_of(c, 3, d - 2, in, out);

        x = mixed(x, d, weights_of(c, in, out, step, ts_call_flag(c, 2), taps, weight));
    }
    return x;
}

/* _upsample_bilinear2d_aa, _upsample_bicubic2d_aa(x, size, align_corners, factors) */
ts_value *ts_word_smoothed(ts_call *c)
{
    bool linear = !strcmp(c->row->op, "bilinear");
    ts_value *x = ts_call_tensor(c, 0);

    for (int d = 2; x && d < c->rank; d++) {
        int64_t in = ts_dim(x, d), out = c->dims[d];
        double step = step_of(c, 3, d - 2, in, out);

        if (ts_call_flag(c, 2))
            step = out > 1 ? (double)(in - 1) / (double)(out - 1) : 0;
        x = mixed(x, d,
                  smooth_weights(c, in, out, step, linear ? 1 : 2, linear ? hat : soft_cubic));
    }
    return x;
}

/* upsample_bicubic2d(x, size, align_corners, factors) */
ts_value *ts_word_bicubic(ts_call *c)
{
    return resized(c, ts_call_tensor(c, 0), 4, cubic);
}

/* upsample_linear1d, bilinear2d, trilinear3d(x, size, align_corners, factors) */
ts_value *ts_word_linear_resize(ts_call *c)
{
    ts_value *x = ts_call_tensor(c, 0);

    if (x && !ts_call_flag(c, 2) && has_factors(c, 3, x))
        return resized(c, x, 2, hat);
    return x ? ts_apply(c->g, "upsample_bilinear", 1, &x, 2,
                        (ts_arg[]){ts_arg_ints("size", ts_rank(x) - 2, c->dims + 2),
                                   ts_arg_int("align_corners", ts_call_flag(c, 2))})
             : NULL;
}

/* --- sampling --------------------------------------------------------------------------------- */

/* affine_grid_generator(theta [N, n, n + 1], size, align_corners): [N, (D,) H, W, n], n 2 or 3; the
 * coordinates go from the last dim to the first */
ts_value *ts_word_affine_grid(ts_call *c)
{
    ts_value *theta = ts_call_tensor(c, 0), *base = NULL;
    int n = c->rank - 2;
    int64_t count = 1;
    bool corners = ts_call_flag(c, 2);
    float *at;

    for (int d = 1; d <= n; d++)
        count *= c->dims[d];
    at = theta && ts_call_fits(c, (double)count * (n + 1))
             ? malloc(sizeof(*at) * (size_t)(count * (n + 1)))
             : NULL;
    for (int64_t i = 0; at && i < count; i++) {
        int64_t left = i;

        for (int d = 0; d < n; d++) {
            int64_t size = c->dims[n - d], k = left % size;
            double span = corners ? (double)(size - 1) : (double)size;
            double p = corners ? (double)k : (double)k + 0.5;

            at[(n + 1) * i + d] = (float)(span > 0 ? 2 * p / span - 1 : 0);
            left /= size;
        }
        at[(n + 1) * i + n] = 1;
    }
    if (at)
        base = ts_cast(ts_const_n(c->g, TS_F32, at, 2, (int64_t[]){count, n + 1}), c->dtype);
    free(at);
    if (!base)
        return NULL;
    return ts_reshape_n(ts_matmul(base, ts_transpose(theta, 1, 2)), c->rank, c->dims);
}

enum { ZEROS, BORDER, REFLECTION };

/* From -1..1 to the input's columns (or rows), beyond its ends as the padding says. */
static ts_value *unnormalised(ts_call *c, ts_value *g, int64_t size, int padding, bool corners)
{
    double low = corners ? 0 : -0.5, span = corners ? (double)(size - 1) : (double)size;
    ts_value *x = ts_add_scalar(ts_mul_scalar(ts_add_scalar(g, 1), span / 2), low);

    if (padding == REFLECTION && span > 0) { /* there and back: a triangle of 2 span */
        ts_value *two = ts_call_scalar(c, 2 * span);

        x = ts_call_op2("remainder", c, ts_add_scalar(x, -low), two);
        x = ts_where(ts_gt(x, ts_call_scalar(c, span)), ts_sub(two, x), x);
        x = ts_add_scalar(x, low);
    }
    return padding == ZEROS ? x : ts_clamp(x, 0, (double)(size - 1));
}

typedef struct sample {
    ts_value *flat; /* [N, C, H W] or [N, C, D H W] */
    int64_t n, channels, count;
    int spatial;
    int64_t size[SPATIAL]; /* from the last dim to the first, as the grid has coordinates */
} sample;

/* The picture at whole coordinates, 0 outside it: [N, C, count] */
static ts_value *at_corner(ts_call *c, const sample *s, ts_value *const *at)
{
    ts_value *zero = ts_call_scalar(c, 0), *inside = NULL, *place = NULL, *x, *ok;

    for (int i = 0; i < s->spatial; i++) {
        ok = ts_ge(at[i], zero);
        inside = inside ? ts_call_op2("logical_and", c, inside, ok) : ok;
        ok = ts_le(at[i], ts_call_scalar(c, (double)s->size[i] - 1));
        inside = ts_call_op2("logical_and", c, inside, ok);
    }
    for (int i = s->spatial - 1; i >= 0; i--) { /* whole: half precision has no place 2049 */
        x = ts_cast(ts_clamp(at[i], 0, (double)(s->size[i] - 1)), TS_I64);
        place = place ? ts_add(ts_mul_scalar(place, (double)s->size[i]), x) : x;
    }
    place = ts_expand_n(place, 3, (int64_t[]){s->n, s->channels, s->count});
    return ts_where(inside, ts_gather(s->flat, 2, place), zero);
}

static sample sample_of(ts_call *c, ts_value *in)
{
    sample s = {.n = c->dims[0], .channels = c->dims[1], .count = 1, .spatial = c->rank - 2};
    int64_t elements = 1;

    for (int i = 0; i < s.spatial; i++) {
        s.size[i] = ts_dim(in, c->rank - 1 - i);
        s.count *= c->dims[2 + i];
        elements *= s.size[i];
    }
    s.flat = ts_reshape_n(in, 3, (int64_t[]){s.n, s.channels, elements});
    return s;
}

/* The elements around each point, 4 or 8, by how near they are. */
static ts_value *between(ts_call *c, const sample *s, ts_value *const *at)
{
    ts_value *low[SPATIAL], *far[SPATIAL], *corner[SPATIAL], *sum = NULL, *v, *w;

    for (int i = 0; i < s->spatial; i++) {
        low[i] = ts_call_op1("floor", c, at[i]);
        far[i] = ts_sub(at[i], low[i]);
    }
    for (int k = 0; k < 1 << s->spatial; k++) {
        for (int i = 0; i < s->spatial; i++)
            corner[i] = ts_add_scalar(low[i], k >> i & 1);
        v = at_corner(c, s, corner);
        for (int i = 0; i < s->spatial; i++) {
            w = k >> i & 1 ? far[i] : ts_sub(ts_call_scalar(c, 1), far[i]);
            v = ts_mul(v, w);
        }
        sum = sum ? ts_add(sum, v) : v;
    }
    return sum;
}

/* grid_sampler_2d, grid_sampler_3d(x, grid, mode, padding, align_corners) */
ts_value *ts_word_grid_sample(ts_call *c)
{
    ts_value *in = ts_call_tensor(c, 0), *grid = ts_call_as(c, 1, c->dtype), *at[SPATIAL], *y;
    int64_t mode = ts_call_int(c, 2, 0);
    sample s;

    if (mode > 1)
        return ts_call_refuse(c, "mode='bicubic'");
    if (!in || !grid)
        return NULL;
    s = sample_of(c, in);
    for (int i = 0; i < s.spatial; i++) {
        y = ts_slice(grid, c->rank - 1, i, i + 1, 1);
        y = ts_reshape_n(y, 3, (int64_t[]){s.n, 1, s.count});
        y = unnormalised(c, y, s.size[i], (int)ts_call_int(c, 3, 0), ts_call_flag(c, 4));
        at[i] = mode == 1 ? ts_call_op1("round", c, y) : y;
    }
    y = mode == 1 ? at_corner(c, &s, at) : between(c, &s, at);
    return ts_reshape_n(y, c->rank, c->dims);
}
