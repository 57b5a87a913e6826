/* words_index.c - reading and writing where integers say.
 *
 * The engine adds at an index but does not overwrite: what is written is turned round, each place
 * looks for the last index that names it, so that the answer depends on no order of threads.
 */
#include <math.h>
#include <string.h>

#include "front/words.h"

/* Negative indices count from the end; constants are almost always plain, but nothing says so. */
static ts_value *wrapped(ts_call *c, ts_value *at, int64_t size)
{
    ts_value *zero = ts_scalar(c->g, ts_dtype_of(at), 0);

    return ts_where(ts_lt(at, zero), ts_add(at, ts_scalar(c->g, ts_dtype_of(at), (double)size)),
                    at);
}

/* x[:, i, j, ..., :] as one index into one dim: the indexed dims become one, and so do the indices.
 * Dims that are not neighbours go to the front first, as PyTorch has it. */
typedef struct indexed {
    ts_value *x, *at;                               /* [a.., size, b..] and an index of any rank */
    int dim;                                        /* the one that is indexed */
    int64_t order[TS_MAX_RANK], moved[TS_MAX_RANK]; /* x's dims before they became one */
    int rank;
} indexed;

static void gather_dims(indexed *s, ts_value *const *at, int n, const ts_value *x, bool gaps)
{
    int k = 0;

    for (int i = 0; gaps && i < n; i++)
        if (at[i])
            s->order[k++] = i;
    for (int i = 0; i < s->rank; i++)
        if (!gaps || i >= n || !at[i])
            s->order[k++] = i;
    for (int i = 0; i < s->rank; i++)
        s->moved[i] = ts_dim(x, (int)s->order[i]);
}

static bool index_into(ts_call *c, indexed *s)
{
    ts_value *x = ts_call_as(c, 0, c->dtype), *at[TS_MAX_RANK];
    int n = ts_call_tensors(c, 1, TS_MAX_RANK, at), first = -1, last = -1, count = 0, rank = 0;
    int64_t dims[TS_MAX_RANK], size = 1;
    bool gaps = false;

    if (!x || n > ts_rank(x))
        return ts_call_refuse(c, "%d indices", n);
    for (int i = 0; i < n; i++) {
        if (!at[i])
            continue;
        if (ts_dtype_of(at[i]) == TS_BOOL)
            return ts_call_refuse(c,
                                  "a mask of bools that is computed: the result's size depends on "
                                  "its values");
        gaps = gaps || (last >= 0 && last != i - 1);
        first = first < 0 ? i : first;
        last = i;
        count++;
    }
    if (!x || !count)
        return ts_call_refuse(c, "no index");
    s->rank = ts_rank(x);
    gather_dims(s, at, n, x, gaps);
    s->dim = gaps ? 0 : first;
    s->at = NULL;
    for (int i = 0; i < count; i++) {
        int64_t own = s->moved[s->dim + i];
        ts_value *k = wrapped(c, at[s->order[s->dim + i]], own);

        s->at = s->at ? ts_add(ts_mul_scalar(s->at, (double)own), k) : k;
        size *= own;
    }
    for (int i = 0; i < s->rank; i++)
        if (i < s->dim || i >= s->dim + count)
            dims[rank++] = s->moved[i];
        else if (i == s->dim)
            dims[rank++] = size;
    x = gaps ? ts_permute_n(x, s->rank, s->order) : x;
    s->x = ts_reshape_n(x, rank, dims);
    return s->x && s->at;
}

/* Back from the one dim to x's shape. */
static ts_value *spread(const indexed *s, ts_value *v)
{
    int64_t inverse[TS_MAX_RANK];

    for (int i = 0; i < s->rank; i++)
        inverse[s->order[i]] = i;
    v = ts_reshape_n(v, s->rank, s->moved);
    return s->rank > 1 ? ts_permute_n(v, s->rank, inverse) : v;
}

static ts_value *rows_at(ts_call *c, ts_value *x, ts_value *at, int dim)
{
    return x && at ? ts_apply(c->g, "index_select", 2, (ts_value *[]){x, at}, 1,
                              (ts_arg[]){ts_arg_int("dim", dim)})
                   : NULL;
}

ts_value *ts_word_index(ts_call *c)
{
    indexed s;

    return index_into(c, &s) ? rows_at(c, s.x, s.at, s.dim) : NULL;
}

/* take(x, at): of the flat tensor */
ts_value *ts_word_take(ts_call *c)
{
    ts_value *x = ts_reshape_n(ts_call_tensor(c, 0), 1, (int64_t[]){-1}),
             *at = ts_call_tensor(c, 1);

    return x && at ? rows_at(c, x, wrapped(c, at, ts_dim(x, 0)), 0) : NULL;
}

ts_value *ts_word_index_select(ts_call *c)
{
    ts_value *in[] = {ts_call_tensor(c, 0), ts_call_tensor(c, 2)};

    if (!in[0] || !in[1])
        return NULL;
    return ts_apply(c->g, "index_select", 2, in, 1,
                    (ts_arg[]){ts_arg_int("dim", ts_call_dim(c, 1, ts_rank(in[0])))});
}

ts_value *ts_word_gather(ts_call *c)
{
    return ts_gather(ts_call_tensor(c, 0), (int)ts_call_int(c, 1, 0), ts_call_tensor(c, 2));
}

/* --- writing: every place looks for what is written to it --- */

enum {
    FEW = 32,
    SORT = 128
}; /* more indices than FEW, for more places than SORT, are not searched */

/* `at` and `source` with x's sizes in all dims but `dim`: where there is no index there is -1. */
typedef struct scatter {
    ts_value *x, *at, *source;
    int dim, rank;
    int64_t dims[TS_MAX_RANK];
} scatter;

static bool scatter_of(ts_call *c, ts_value *x, ts_value *at, ts_value *source, scatter *s)
{
    int64_t lo[TS_MAX_RANK] = {0}, hi[TS_MAX_RANK] = {0};
    bool short_of = false;

    if (!x || !at || !source)
        return false;
    s->rank = ts_call_shape_of(x, s->dims);
    s->dim = ts_call_dim(c, 1, s->rank);
    if (!s->rank || s->rank == TS_MAX_RANK || ts_rank(at) != s->rank ||
        (ts_rank(source) && ts_rank(source) != s->rank))
        return ts_call_refuse(c, "rank %d with an index of rank %d", s->rank, ts_rank(at));
    for (int i = 0; i < s->rank && source; i++) {
        if (ts_rank(source) && ts_dim(source, i) != ts_dim(at, i))
            source = ts_slice(source, i, 0, ts_dim(at, i), 1);
        hi[i] = i == s->dim ? 0 : s->dims[i] - ts_dim(at, i);
        short_of = short_of || hi[i];
    }
    s->x = x;
    s->at = short_of ? ts_pad(at, s->rank, lo, hi, -1) : at;
    s->source = short_of && source && ts_rank(source) ? ts_pad(source, s->rank, lo, hi, 0) : source;
    return s->at && s->source;
}

/* v with a dim of size 1 at `dim` */
static ts_value *opened(ts_value *v, int dim)
{
    int64_t dims[TS_MAX_RANK];
    int rank = v ? ts_call_shape_of(v, dims) : 0;

    if (!v)
        return NULL;
    memmove(dims + dim + 1, dims + dim, sizeof(*dims) * (size_t)(rank - dim));
    dims[dim] = 1;
    return ts_reshape_n(v, rank + 1, dims);
}

/* [.., k, j, ..]: is index j place k? */
static ts_value *hits(ts_call *c, const scatter *s)
{
    int64_t dims[TS_MAX_RANK], size = s->dims[s->dim];
    ts_value *place = ts_cast(ts_call_counted(c->g, size, 0, 1), ts_dtype_of(s->at));

    for (int i = 0; i <= s->rank; i++)
        dims[i] = i == s->dim ? size : 1;
    return ts_eq(opened(s->at, s->dim), ts_reshape_n(place, s->rank + 1, dims));
}

/* The same for many: each index writes its number where it says. */
static ts_value *last_written(ts_call *c, const scatter *s)
{
    int64_t dims[TS_MAX_RANK], one[TS_MAX_RANK] = {1, 1, 1, 1, 1, 1, 1, 1};
    int rank = ts_call_shape_of(s->at, dims);
    ts_value *j = ts_call_counted(c->g, dims[s->dim], 0, 1);

    one[s->dim] = dims[s->dim];
    j = ts_expand_n(ts_reshape_n(j, rank, one), rank, dims);
    return ts_apply(c->g, "row_scatter", 3,
                    (ts_value *[]){s->at, j, ts_full_n(c->g, TS_I64, -1, s->rank, s->dims)}, 2,
                    (ts_arg[]){ts_arg_int("dim", s->dim), ts_arg_text("how", "put")});
}

/* [.., k, ..]: the last index that is place k, -1 where there is none. */
static ts_value *last_hit(ts_call *c, const scatter *s)
{
    int64_t dims[TS_MAX_RANK], n = ts_dim(s->at, s->dim), over = s->dim + 1;
    ts_value *j;

    if (n > FEW && s->dims[s->dim] > SORT)
        return last_written(c, s);
    j = ts_call_counted(c->g, n, 0, 1);
    for (int i = 0; i <= s->rank; i++)
        dims[i] = i == over ? n : 1;
    j = ts_where(hits(c, s), ts_reshape_n(j, s->rank + 1, dims), ts_scalar(c->g, TS_I64, -1));
    return ts_call_fold(c, "amax", j, 1, &over, false);
}

/* Of several sources for one place the last is taken. */
static ts_value *written(ts_call *c, const scatter *s)
{
    ts_value *which = last_hit(c, s), *zero = ts_scalar(c->g, TS_I64, 0), *new = s->source;

    if (ts_rank(new))
        new = ts_gather(new, s->dim, ts_call_op2("maximum", c, which, zero));
    return ts_where(ts_ge(which, zero), new, s->x);
}

/* scatter(x, dim, at, source or number) */
ts_value *ts_word_scatter(ts_call *c)
{
    scatter s;

    return scatter_of(c, ts_call_as(c, 0, c->dtype), ts_call_tensor(c, 2),
                      ts_call_as(c, 3, c->dtype), &s)
               ? written(c, &s)
               : NULL;
}

static ts_value *added(ts_call *c, const scatter *s, ts_value *source)
{
    return source ? ts_apply(c->g, "scatter_add", 2, (ts_value *[]){s->at, source}, 2,
                             (ts_arg[]){ts_arg_int("dim", s->dim),
                                        ts_arg_ints("shape", s->rank, s->dims)})
                  : NULL;
}

ts_value *ts_word_scatter_add(ts_call *c)
{
    scatter s;

    return scatter_of(c, ts_call_as(c, 0, c->dtype), ts_call_tensor(c, 2),
                      ts_call_as(c, 3, c->dtype), &s)
               ? ts_add(s.x, added(c, &s, s.source))
               : NULL;
}

static ts_value *filled_like(ts_value *at, ts_value *v)
{
    int64_t dims[TS_MAX_RANK];
    int rank = at ? ts_call_shape_of(at, dims) : 0;

    return v && at && !ts_rank(v) ? ts_expand_n(v, rank, dims) : v;
}

/* What nothing is larger than; the largest of nothing. */
static double least(ts_dtype t)
{
    return ts_dtype_is_float(t) ? -INFINITY
           : t == TS_I64        ? (double)INT64_MIN
           : t == TS_I32        ? INT32_MIN
           : t == TS_I8         ? INT8_MIN
                                : 0;
}

/* Of an i64 it is 1 too much, and what a cast makes the greatest of. */
static double greatest(ts_dtype t)
{
    return ts_dtype_is_float(t) ? INFINITY
           : t == TS_I64        ? 0x1p63
           : t == TS_I32        ? INT32_MAX
           : t == TS_I8         ? INT8_MAX
           : t == TS_U8         ? UINT8_MAX
                                : 1;
}

static ts_value *joined(ts_call *c, const scatter *s, const char *op, ts_value *first)
{
    return ts_apply(c->g, op, 3, (ts_value *[]){s->at, s->source, first}, 1,
                    (ts_arg[]){ts_arg_int("dim", s->dim)});
}

/* amax or amin of what is written to each place */
static ts_value *picked(ts_call *c, const scatter *s, bool largest, bool self)
{
    double nothing = largest ? least(c->dtype) : greatest(c->dtype);
    ts_value *first = s->x;

    if (!self)
        first = ts_cast(ts_full_n(c->g, TS_F64, nothing, s->rank, s->dims), c->dtype);
    return joined(c, s, largest ? "scatter_amax" : "scatter_amin", first);
}

/* The product of what is written to each place, x itself among it if `self` says so */
static ts_value *product(ts_call *c, const scatter *s, bool self)
{
    ts_value *one = ts_cast(ts_full_n(c->g, TS_F64, 1, s->rank, s->dims), c->dtype);

    return joined(c, s, "scatter_prod", self ? s->x : one);
}

static ts_value *scatter_reduced(ts_call *c, scatter *s, const char *how, bool self)
{
    bool mean = !strcmp(how, "mean");
    ts_value *one = filled_like(s->at, ts_call_scalar(c, 1)), *count, *y, *any;

    s->source = filled_like(s->at, s->source);
    count = added(c, s, one);
    any = ts_gt(count, ts_call_scalar(c, 0));
    if (mean || !strcmp(how, "sum") || !strcmp(how, "add")) {
        y = added(c, s, s->source);
        y = self ? ts_add(y, s->x) : y;
        count =
            self ? ts_add_scalar(count, 1) : ts_call_op2("maximum", c, count, ts_call_scalar(c, 1));
        if (mean)
            y = ts_call_op2(ts_dtype_is_float(c->dtype) ? "div" : "floor_divide", c, y, count);
    } else if (!strcmp(how, "prod") || !strcmp(how, "multiply"))
        y = product(c, s, self);
    else if (!strcmp(how, "amax") || !strcmp(how, "amin"))
        y = picked(c, s, how[2] == 'a', self);
    else
        return ts_call_refuse(c, "reduce='%s'", how);
    return self ? ts_cast(y, c->dtype) : ts_where(any, ts_cast(y, c->dtype), s->x);
}

/* scatter_reduce(x, dim, at, source, how, include_self); scatter.reduce's has the first five */
ts_value *ts_word_scatter_reduce(ts_call *c)
{
    scatter s;

    if (c->dtype == TS_BOOL && !strcmp(ts_call_text(c, 4, ""), "amax"))
        return ts_call_refuse(c, "the largest of bools");
    if (!scatter_of(c, ts_call_as(c, 0, c->dtype), ts_call_tensor(c, 2), ts_call_as(c, 3, c->dtype),
                    &s))
        return NULL;
    return scatter_reduced(c, &s, ts_call_text(c, 4, ""), !ts_call_has(c, 5) || ts_call_flag(c, 5));
}

/* --- index_*: one index for all rows --- */

/* [j] as an index of the source's shape, which is x's with another size in dim */
static ts_value *for_all(ts_call *c, ts_value *x, ts_value *at)
{
    int64_t dims[TS_MAX_RANK], one[TS_MAX_RANK] = {1, 1, 1, 1, 1, 1, 1, 1};
    int rank = x ? ts_call_shape_of(x, dims) : 0, dim = ts_call_dim(c, 1, rank);

    if (!x || !at)
        return NULL;
    one[dim] = dims[dim] = ts_rank(at) ? ts_dim(at, 0) : 1;
    return ts_expand_n(ts_reshape_n(at, rank, one), rank, dims);
}

/* index_reduce(x, dim, at, source, how, include_self) */
ts_value *ts_word_index_reduce(ts_call *c)
{
    ts_value *x = ts_call_as(c, 0, c->dtype);
    scatter s;

    if (!scatter_of(c, x, for_all(c, x, ts_call_tensor(c, 2)), ts_call_as(c, 3, c->dtype), &s))
        return NULL;
    return scatter_reduced(c, &s, ts_call_text(c, 4, ""), !ts_call_has(c, 5) || ts_call_flag(c, 5));
}

static ts_value *index_added(ts_call *c, ts_value *at, ts_value *source, int dim, int64_t size)
{
    return at && source ? ts_apply(c->g, "index_add", 2, (ts_value *[]){at, source}, 2,
                                   (ts_arg[]){ts_arg_int("dim", dim), ts_arg_int("size", size)})
                        : NULL;
}

/* index_add(x, dim, at, source, alpha) */
ts_value *ts_word_index_add(ts_call *c)
{
    ts_value *x = ts_call_as(c, 0, c->dtype), *source = ts_call_as(c, 3, c->dtype);
    int dim = x ? ts_call_dim(c, 1, ts_rank(x)) : 0;

    if (!x || !ts_rank(x))
        return ts_call_refuse(c, "a scalar");
    if (ts_call_number(c, 4, 1) != 1)
        source = ts_call_op2("mul", c, source, ts_call_as(c, 4, c->dtype));
    return ts_add(x, index_added(c, ts_call_tensor(c, 2), source, dim, ts_dim(x, dim)));
}

/* x[a, k, b] is source[a, j, b] for the last j with at[j] == k, at of any rank */
static ts_value *index_written(ts_call *c, ts_value *x, ts_value *at, ts_value *source, int dim)
{
    int64_t n = 1, dims[TS_MAX_RANK] = {0}, flat[TS_MAX_RANK], size;
    ts_value *zero = ts_scalar(c->g, TS_I64, 0), *which;
    int rank = ts_rank(x), over = ts_rank(at);
    scatter s = {.dim = 0, .rank = 1};

    for (int i = 0; i < over; i++)
        n *= ts_dim(at, i);
    s.dims[0] = size = ts_dim(x, dim);
    s.at = ts_reshape_n(at, 1, &n);
    for (int i = 0; i < rank; i++) {
        dims[i] = i == dim ? size : 1;
        flat[i] = i == dim ? n : ts_dim(x, i);
    }
    which = last_hit(c, &s);
    if (ts_rank(source))
        source = rows_at(c, ts_reshape_n(source, rank, flat),
                         ts_call_op2("maximum", c, which, zero), dim);
    return ts_where(ts_reshape_n(ts_ge(which, zero), rank, dims), source, x);
}

/* index_copy(x, dim, at, source), index_fill(x, dim, at, number) */
ts_value *ts_word_index_copy(ts_call *c)
{
    ts_value *x = ts_call_as(c, 0, c->dtype), *at = ts_call_tensor(c, 2);

    if (!x || !at || !ts_rank(x))
        return ts_call_refuse(c, "a scalar");
    return index_written(c, x, wrapped(c, at, ts_dim(x, ts_call_dim(c, 1, ts_rank(x)))),
                         ts_call_as(c, 3, c->dtype), ts_call_dim(c, 1, ts_rank(x)));
}

/* put(x, at, source, accumulate): take's inverse */
ts_value *ts_word_put_flat(ts_call *c)
{
    ts_value *x = ts_call_as(c, 0, c->dtype), *source = ts_call_as(c, 2, c->dtype), *flat, *at;
    int64_t dims[TS_MAX_RANK], one = -1;
    int rank = x ? ts_call_shape_of(x, dims) : 0;

    if (!x || !source || !ts_call_tensor(c, 1))
        return NULL;
    flat = ts_reshape_n(x, 1, &one);
    source = ts_reshape_n(source, 1, &one);
    at = ts_reshape_n(wrapped(c, ts_call_tensor(c, 1), ts_dim(flat, 0)), 1, &one);
    if (!at || !source || ts_dim(at, 0) != ts_dim(source, 0))
        return at && source ? ts_call_refuse(c, "another number of elements than indices") : NULL;
    flat = ts_call_flag(c, 3) ? ts_add(flat, index_added(c, at, source, 0, ts_dim(flat, 0)))
                              : index_written(c, flat, at, source, 0);
    return ts_reshape_n(flat, rank, dims);
}

/* x[mask] = value: a mask of bools over some dims; the value may not depend on how many are true.
 */
static ts_value *masked_put(ts_call *c, ts_value *mask, int first)
{
    ts_value *x = ts_call_as(c, 0, c->dtype), *v = ts_call_as(c, 2, c->dtype);
    int64_t dims[TS_MAX_RANK] = {1, 1, 1, 1, 1, 1, 1, 1}, own[TS_MAX_RANK];
    int covered = ts_rank(mask), after, rank;

    if (!x || !v || ts_call_flag(c, 3))
        return ts_call_refuse(c, "a mask of bools and accumulate");
    if (first + covered > ts_rank(x))
        return ts_call_refuse(c, "a mask of rank %d", covered);
    for (int i = 0; i < covered; i++)
        dims[first + i] = ts_dim(mask, i);
    after = ts_rank(x) - first - covered;
    rank = ts_call_shape_of(v, own);
    if (rank > after) { /* v has a dim for what the mask picks */
        int picked = rank - 1 - after;

        if (own[picked] != 1 || rank - 1 + covered > TS_MAX_RANK)
            return ts_call_refuse(c, "as many values as a computed mask picks");
        memmove(own + picked + covered, own + picked + 1, sizeof(*own) * (size_t)after);
        for (int i = 0; i < covered; i++)
            own[picked + i] = 1;
        v = ts_reshape_n(v, rank - 1 + covered, own);
    }
    return ts_where(ts_reshape_n(mask, ts_rank(x), dims), v, x);
}

/* index_put(x, indices, values, accumulate) */
ts_value *ts_word_index_put(ts_call *c)
{
    ts_value *at[TS_MAX_RANK], *v = ts_call_as(c, 2, c->dtype), *y;
    int n = ts_call_tensors(c, 1, TS_MAX_RANK, at), used = 0, first = 0, rank = 0;
    int64_t dims[TS_MAX_RANK];
    indexed s;

    if (n > ts_rank(ts_call_tensor(c, 0)))
        return ts_call_refuse(c, "%d indices", n);
    for (int i = 0; i < n; i++)
        if (at[i] && !used++)
            first = i;
    if (used == 1 && ts_dtype_of(at[first]) == TS_BOOL)
        return masked_put(c, at[first], first);
    if (!v || !index_into(c, &s))
        return NULL;
    if (ts_rank(s.x) - 1 + ts_rank(s.at) > TS_MAX_RANK)
        return ts_call_refuse(c, "more than %d dims", TS_MAX_RANK);
    for (int i = 0; i < s.dim; i++)
        dims[rank++] = ts_dim(s.x, i);
    for (int i = 0; i < ts_rank(s.at); i++)
        dims[rank++] = ts_dim(s.at, i);
    for (int i = s.dim + 1; i < ts_rank(s.x); i++)
        dims[rank++] = ts_dim(s.x, i);
    v = ts_expand_n(v, rank, dims);
    y = ts_call_flag(c, 3) ? ts_add(s.x, index_added(c, s.at, v, s.dim, ts_dim(s.x, s.dim)))
                           : index_written(c, s.x, s.at, v, s.dim);
    return y ? spread(&s, y) : NULL;
}

/* masked_scatter(x, mask, source): the k-th true place gets the k-th element */
ts_value *ts_word_masked_scatter(ts_call *c)
{
    ts_value *x = ts_call_as(c, 0, c->dtype), *source = ts_call_as(c, 2, c->dtype);
    ts_value *mask = ts_expand_n(ts_call_as(c, 1, TS_BOOL), c->rank, c->dims), *at;

    if (!x || !source || !mask)
        return NULL;
    at = ts_cast(ts_reshape_n(mask, 1, (int64_t[]){-1}), TS_I64);
    at = ts_add_scalar(ts_call_scan(c, at, 0, "add"), -1);
    source = rows_at(c, ts_reshape_n(source, 1, (int64_t[]){-1}), at, 0);
    return ts_where(mask, ts_reshape_n(source, c->rank, c->dims), x);
}

/* What gives as many elements as it finds. */
ts_value *ts_word_dynamic(ts_call *c)
{
    return ts_call_refuse(c, "a result whose size depends on values");
}

/* With a mask that is a constant: the tracer made indices of it. */
ts_value *ts_word_masked_select(ts_call *c)
{
    return ts_call_tensor(c, 1) ? ts_word_dynamic(c) : ts_word_index(c);
}

/* max_unpoolNd(x, places, size): the places are in the flat picture */
ts_value *ts_word_max_unpool(ts_call *c)
{
    ts_value *x = ts_call_as(c, 0, c->dtype), *at = ts_call_tensor(c, 1);
    int spatial = ts_call_spatial(c);
    int64_t planes = 1, size = 1;
    scatter s = {.dim = 1, .rank = 2};

    for (int i = 0; i < c->rank; i++)
        *(i < c->rank - spatial ? &planes : &size) *= c->dims[i];
    s.dims[0] = planes;
    s.dims[1] = size;
    s.at = ts_reshape_n(at, 2, (int64_t[]){planes, -1});
    s.source = ts_reshape_n(x, 2, (int64_t[]){planes, -1});
    s.x = ts_call_scalar(c, 0);
    return s.at && s.source ? ts_reshape_n(written(c, &s), c->rank, c->dims) : NULL;
}

/* --- tables of rows --- */

/* Which bag index j is in: how many of the offsets are at most j, less one. */
static ts_value *bag_of(ts_call *c, ts_value *offsets, int64_t n, int64_t bags)
{
    ts_value *j = ts_reshape_n(ts_call_counted(c->g, n, 0, 1), 2, (int64_t[]){n, 1});
    int64_t last = 1;

    offsets = ts_cast(ts_slice(offsets, 0, 0, bags, 1), TS_I64);
    j = ts_cast(ts_le(ts_reshape_n(offsets, 2, (int64_t[]){1, bags}), j), TS_I64);
    return ts_add_scalar(ts_sum(j, 1, &last, false), -1);
}

/* _embedding_bag(w, at, offsets, scale_grad_by_freq, mode, sparse, weights, include_last, padding)
 */
ts_value *ts_word_embedding_bag(ts_call *c)
{
    ts_value *w = ts_call_tensor(c, 0), *at = ts_call_tensor(c, 1), *offsets = ts_call_tensor(c, 2),
             *rows;
    ts_value *weights = ts_call_tensor(c, 6), *bag, *count, *one, *zero = ts_call_scalar(c, 0);
    int64_t n = at ? ts_dim(at, 0) : 1, bags, mode = ts_call_int(c, 4, 0), first = 1;
    int64_t padding = ts_call_int(c, 8, -1);

    c->nout = 1;
    if (!w || !at || !offsets || ts_call_flag(c, 3) || ts_call_flag(c, 5))
        return ts_call_refuse(c, "scale_grad_by_freq and sparse");
    bags = ts_dim(offsets, 0) - ts_call_flag(c, 7);
    bag = bag_of(c, offsets, n, bags);
    rows = ts_embedding(at, w);
    one = filled_like(at, ts_call_scalar(c, 1));
    if (padding >= 0) {
        one = ts_where(ts_eq(at, ts_scalar(c->g, ts_dtype_of(at), (double)padding)), zero, one);
        bag = ts_where(ts_cast(one, TS_BOOL), bag, ts_scalar(c->g, TS_I64, -1));
    }
    count = ts_reshape_n(index_added(c, bag, one, 0, bags), 2, (int64_t[]){bags, 1});
    if (mode == 2) { /* the largest: [bag, j, column] */
        ts_value *k = ts_reshape_n(ts_call_counted(c->g, bags, 0, 1), 3, (int64_t[]){bags, 1, 1});
        ts_value *in = ts_eq(ts_reshape_n(bag, 3, (int64_t[]){1, n, 1}), k);

        rows = ts_where(in, opened(rows, 0), ts_call_scalar(c, -INFINITY));
        rows = ts_call_fold(c, "amax", rows, 1, &first, false);
        return ts_where(ts_gt(count, zero), rows, zero);
    }
    if (weights)
        rows = ts_mul(rows, ts_reshape_n(weights, 2, (int64_t[]){n, 1}));
    rows = index_added(c, bag, rows, 0, bags);
    return mode == 1 ? ts_div(rows, ts_call_op2("maximum", c, count, ts_call_scalar(c, 1))) : rows;
}

/* padding_idx: that row gets no gradient. */
ts_value *ts_word_embedding(ts_call *c)
{
    ts_value *w = ts_call_tensor(c, 0), *at = ts_call_tensor(c, 1), *row;
    int64_t padding = ts_call_int(c, 2, -1), rows = w ? ts_dim(w, 0) : 1;

    if (ts_call_flag(c, 3) || ts_call_flag(c, 4))
        return ts_call_refuse(c, "scale_grad_by_freq and sparse");
    if (!w || !at)
        return NULL;
    if (padding >= 0) {
        row = ts_reshape_n(ts_call_counted(c->g, rows, 0, 1), 2, (int64_t[]){rows, 1});
        w = ts_where(ts_eq(row, ts_scalar(c->g, TS_I64, (double)padding)), ts_detach(w), w);
    }
    return ts_embedding(at, w);
}

ts_value *ts_word_one_hot(ts_call *c)
{
    return ts_one_hot(ts_call_tensor(c, 0), c->dims[c->rank - 1], c->dtype);
}
