/* lower_shape.c - views and their inverses, joining, indexing and reductions.
 *
 * PyTorch writes through views; a graph has values only. So a view that can be written through has
 * an inverse: `put` gives the viewed tensor with the new elements in it, and the tracer applies the
 * inverses up to the tensor that owns the memory.
 */
#include <stdlib.h>
#include <string.h>

#include "lower.h"

static int64_t size_of(const ts_value *v, int i)
{
    return v ? ts_dim(v, i) : 1;
}

static int shape(const ts_value *v, int64_t dims[TS_MAX_RANK])
{
    int rank = ts_rank(v);

    for (int i = 0; i < rank; i++)
        dims[i] = ts_dim(v, i);
    return rank;
}

/* --- views ------------------------------------------------------------------------------------ */

ts_value *lower_reshape(ts_call *c)
{
    return ts_reshape_n(lower_tensor(c, 0), c->rank, c->dims);
}

ts_value *lower_put_reshape(ts_call *c, ts_value *x, ts_value *y)
{
    int64_t dims[TS_MAX_RANK];
    int rank = shape(x, dims);

    (void)c;
    return ts_reshape_n(y, rank, dims);
}

ts_value *lower_detach(ts_call *c)
{
    return ts_detach(lower_tensor(c, 0));
}

/* permute(x, dims), transpose(x, a, b) and t(x) as one list */
static void order(const ts_call *c, int rank, int64_t dims[TS_MAX_RANK])
{
    int a = 0, b = rank - 1;

    if (!strcmp(c->row->op, "permute")) {
        lower_ints(c, 1, dims);
        for (int i = 0; i < rank; i++)
            dims[i] += dims[i] < 0 ? rank : 0;
        return;
    }
    for (int i = 0; i < rank; i++)
        dims[i] = i;
    if (rank < 2)
        return;
    if (!strcmp(c->row->op, "transpose")) {
        a = lower_dim(c, 1, rank);
        b = lower_dim(c, 2, rank);
    }
    dims[a] = b;
    dims[b] = a;
}

ts_value *lower_permute(ts_call *c)
{
    ts_value *x = lower_tensor(c, 0);
    int64_t dims[TS_MAX_RANK];
    int rank = x ? ts_rank(x) : 0;

    order(c, rank, dims);
    return rank < 2 ? x : ts_permute_n(x, rank, dims);
}

ts_value *lower_put_permute(ts_call *c, ts_value *x, ts_value *y)
{
    int64_t dims[TS_MAX_RANK], inverse[TS_MAX_RANK];
    int rank = ts_rank(x);

    order(c, rank, dims);
    for (int i = 0; i < rank; i++)
        inverse[dims[i]] = i;
    return rank < 2 ? y : ts_permute_n(y, rank, inverse);
}

ts_value *lower_expand(ts_call *c)
{
    return ts_expand_n(lower_tensor(c, 0), c->rank, c->dims);
}

typedef struct piece {
    int dim;
    int64_t start, end, step;
} piece;

static ts_value *cut(ts_value *x, piece p)
{
    return ts_slice(x, p.dim, p.start, p.end, p.step);
}

/* A constant 0 .. n-1, times step, plus start */
static ts_value *counted(ts_graph *g, int64_t n, int64_t start, int64_t step)
{
    int64_t *at = malloc((size_t)n * sizeof(*at));
    ts_value *v = NULL;

    for (int64_t i = 0; at && i < n; i++)
        at[i] = start + i * step;
    if (at)
        v = ts_const_n(g, TS_I64, at, 1, &n);
    free(at);
    return v;
}

/* With a step, y is spread over zeros and chosen where a constant mask says so. */
static ts_value *paste_stepped(ts_graph *g, ts_value *x, piece p, ts_value *y)
{
    int64_t size = ts_dim(x, p.dim), dims[TS_MAX_RANK];
    ts_value *at = counted(g, size_of(y, p.dim), p.start, p.step), *spread, *mask;
    int rank = ts_rank(x);

    if (!y || !at)
        return NULL;
    for (int i = 0; i < rank; i++)
        dims[i] = i == p.dim ? size : 1;
    spread =
        ts_apply(g, "index_add", 2, (ts_value *[]){at, y}, "dim:i size:i", (int64_t)p.dim, size);
    mask = ts_reshape_n(ts_sum(ts_one_hot(at, size, TS_I32), 1, (int64_t[]){0}, false), rank, dims);
    return ts_where(mask, spread, x);
}

/* x with y in place of the piece */
static ts_value *paste(ts_graph *g, ts_value *x, piece p, ts_value *y)
{
    int64_t size = ts_dim(x, p.dim);
    ts_value *parts[3];
    int n = 0;

    if (p.step != 1)
        return paste_stepped(g, x, p, y);
    if (p.start > 0)
        parts[n++] = ts_slice(x, p.dim, 0, p.start, 1);
    parts[n++] = y;
    if (p.end < size)
        parts[n++] = ts_slice(x, p.dim, p.end, size, 1);
    return n == 1 ? y : ts_concat(n, parts, p.dim);
}

static piece select_piece(const ts_call *c, const ts_value *x)
{
    piece p = {.dim = lower_dim(c, 1, ts_rank(x)), .step = 1};

    p.start = lower_int(c, 2, 0);
    p.start += p.start < 0 ? ts_dim(x, p.dim) : 0;
    p.end = p.start + 1;
    return p;
}

ts_value *lower_select(ts_call *c)
{
    ts_value *x = lower_tensor(c, 0);

    return x ? ts_reshape_n(cut(x, select_piece(c, x)), c->rank, c->dims) : NULL;
}

ts_value *lower_put_select(ts_call *c, ts_value *x, ts_value *y)
{
    piece p = select_piece(c, x);
    int64_t dims[TS_MAX_RANK];
    int rank = shape(x, dims);

    dims[p.dim] = 1;
    return paste(c->g, x, p, ts_reshape_n(y, rank, dims));
}

static int64_t clamp(int64_t v, int64_t size)
{
    v += v < 0 ? size : 0;
    return v < 0 ? 0 : v > size ? size : v;
}

static piece slice_piece(const ts_call *c, const ts_value *x)
{
    piece p = {.dim = lower_dim(c, 1, ts_rank(x)), .step = lower_int(c, 4, 1)};
    int64_t size = ts_dim(x, p.dim);

    p.start = clamp(lower_int(c, 2, 0), size);
    p.end = clamp(lower_int(c, 3, size), size);
    return p;
}

ts_value *lower_slice(ts_call *c)
{
    ts_value *x = lower_tensor(c, 0);
    piece p = {0};

    if (!x)
        return NULL;
    p = slice_piece(c, x);
    if (p.start == 0 && p.step == 1 && p.end == ts_dim(x, p.dim))
        return x;
    return cut(x, p);
}

ts_value *lower_put_slice(ts_call *c, ts_value *x, ts_value *y)
{
    return paste(c->g, x, slice_piece(c, x), y);
}

/* Where result i of split(x, size, dim), split_with_sizes(x, sizes, dim) or unbind(x, dim) lies. */
static piece split_piece(const ts_call *c, const ts_value *x, int i)
{
    bool unbind = !strcmp(c->row->op, "unbind"), sizes = !strcmp(c->row->op, "sizes");
    piece p = {.dim = lower_dim(c, unbind ? 1 : 2, ts_rank(x)), .step = 1};
    int64_t size = ts_dim(x, p.dim), each = unbind ? 1 : lower_int(c, 1, size);
    PyObject *list = sizes ? PyTuple_GET_ITEM(c->args, 1) : NULL;

    if (!sizes) {
        p.start = i * each;
        p.end = p.start + each < size ? p.start + each : size;
        return p;
    }
    for (int k = 0; k <= i && k < PySequence_Fast_GET_SIZE(list); k++) {
        p.start = p.end;
        p.end += PyLong_AsLongLong(PySequence_Fast_GET_ITEM(list, k));
    }
    return p;
}

static ts_value *split_one(ts_call *c, ts_value *x, int i)
{
    piece p = split_piece(c, x, i);
    ts_value *y = p.end > p.start ? cut(x, p) : lower_refuse(c, "a piece without elements");

    if (y && !strcmp(c->row->op, "unbind"))
        y = ts_reshape_n(y, c->rank, c->dims);
    return y;
}

static int64_t split_count(const ts_call *c, const ts_value *x)
{
    piece p;

    if (!strcmp(c->row->op, "sizes"))
        return PySequence_Fast_GET_SIZE(PyTuple_GET_ITEM(c->args, 1));
    p = split_piece(c, x, 0);
    return (ts_dim(x, p.dim) + p.end - 1) / p.end;
}

ts_value *lower_split(ts_call *c)
{
    ts_value *x = lower_tensor(c, 0);
    int64_t n = x ? split_count(c, x) : 0;

    if (n > LOWER_RESULTS)
        return lower_refuse(c, "more than %d pieces", LOWER_RESULTS);
    for (int i = 0; i < n; i++)
        if (!(c->out[i] = split_one(c, x, i)))
            return NULL;
    c->nout = (int)n;
    return c->out[0];
}

ts_value *lower_put_split(ts_call *c, ts_value *x, ts_value *y)
{
    piece p = split_piece(c, x, c->which);
    int64_t dims[TS_MAX_RANK];
    int rank = shape(x, dims);

    dims[p.dim] = p.end - p.start;
    return paste(c->g, x, p, ts_reshape_n(y, rank, dims));
}

/* unfold(x, dim, size, step): the windows take dim's place, their elements come last. */
ts_value *lower_unfold(ts_call *c)
{
    ts_value *x = lower_tensor(c, 0), *at;
    int rank = x ? ts_rank(x) : 0, dim = lower_dim(c, 1, rank);
    int64_t size = lower_int(c, 2, 1), step = lower_int(c, 3, 1), dims[TS_MAX_RANK], n;

    if (!rank || rank == TS_MAX_RANK || size < 1)
        return lower_refuse(c, "rank %d", rank);
    n = c->dims[dim];
    at = ts_add(ts_reshape_n(counted(c->g, n, 0, step), 2, (int64_t[]){n, 1}),
                ts_reshape_n(counted(c->g, size, 0, 1), 2, (int64_t[]){1, size}));
    x = ts_apply(c->g, "index_select", 2, (ts_value *[]){x, at}, "dim:i", (int64_t)dim);
    for (int i = 0; i < rank; i++)
        dims[i] = i <= dim ? i : i + 1;
    dims[rank] = dim + 1;
    return ts_permute_n(x, rank + 1, dims);
}

/* The elements of x, flattened, that a constant index names. Slow and always right: for views that
 * have no better name. */
ts_value *lower_places(ts_call *c)
{
    ts_value *flat = ts_reshape_n(lower_tensor(c, 0), 1, (int64_t[]){-1});
    ts_value *at = lower_tensor(c, 1);

    if (!flat || !at)
        return NULL;
    flat = ts_apply(c->g, "index_select", 2, (ts_value *[]){flat, at}, "dim:i", (int64_t)0);
    return ts_reshape_n(flat, c->rank, c->dims);
}

ts_value *lower_put_places(ts_call *c, ts_value *x, ts_value *y)
{
    ts_value *flat = ts_reshape_n(x, 1, (int64_t[]){-1}), *at = lower_tensor(c, 1), *new, *one;
    int64_t dims[TS_MAX_RANK], size, n;
    int rank = shape(x, dims);

    if (!flat || !at)
        return NULL;
    size = ts_dim(flat, 0);
    n = ts_dim(at, 0);
    y = ts_reshape_n(y, 1, &n);
    one = ts_full_n(c->g, TS_F32, 1, 1, &n);
    new = ts_apply(c->g, "index_add", 2, (ts_value *[]){at, y}, "dim:i size:i", (int64_t)0, size);
    one = ts_apply(c->g, "index_add", 2, (ts_value *[]){at, one}, "dim:i size:i", (int64_t)0, size);
    return ts_reshape_n(ts_where(one, new, flat), rank, dims);
}

/* --- shapes ----------------------------------------------------------------------------------- */

ts_value *lower_flip(ts_call *c)
{
    ts_value *x = lower_tensor(c, 0);
    int64_t dims[TS_MAX_RANK];
    int n = lower_ints(c, 1, dims);

    if (!x || !n)
        return x;
    return ts_apply(c->g, "flip", 1, &x, "dims:l", n, dims);
}

static ts_value *roll(ts_value *x, int dim, int64_t by)
{
    int64_t size = ts_dim(x, dim), at = ((size - by) % size + size) % size;

    if (!at)
        return x;
    return ts_concat(2, (ts_value *[]){ts_slice(x, dim, at, size, 1), ts_slice(x, dim, 0, at, 1)},
                     dim);
}

ts_value *lower_roll(ts_call *c)
{
    ts_value *x = lower_tensor(c, 0);
    int64_t by[TS_MAX_RANK], dims[TS_MAX_RANK];
    int n = lower_ints(c, 1, by), m = lower_ints(c, 2, dims);

    if (x && !m)
        return ts_reshape_n(roll(ts_reshape_n(x, 1, (int64_t[]){-1}), 0, by[0]), c->rank, c->dims);
    for (int i = 0; i < n && i < m && x; i++)
        x = roll(x, (int)(dims[i] < 0 ? dims[i] + ts_rank(x) : dims[i]), by[i]);
    return x;
}

ts_value *lower_repeat(ts_call *c)
{
    ts_value *x = lower_tensor(c, 0), *copies[64];
    int64_t times[TS_MAX_RANK], dims[TS_MAX_RANK];
    int n = lower_ints(c, 1, times), rank = x ? ts_rank(x) : 0;

    for (int i = 0; i < n; i++)
        dims[i] = i < n - rank ? 1 : ts_dim(x, i - (n - rank));
    x = ts_reshape_n(x, n, dims);
    for (int i = 0; i < n && x; i++) {
        if (dims[i] == 1) {
            dims[i] = times[i];
            x = ts_expand_n(x, n, dims);
            continue;
        }
        if (times[i] > 64)
            return lower_refuse(c, "more than 64 copies");
        for (int k = 0; k < times[i]; k++)
            copies[k] = x;
        x = times[i] == 1 ? x : ts_concat((int)times[i], copies, i);
        dims[i] *= times[i];
    }
    return x;
}

enum { JOINED = 1024 };

ts_value *lower_cat(ts_call *c)
{
    ts_value *in[JOINED];
    int n = lower_tensors(c, 0, JOINED, in);

    if (n > JOINED)
        return lower_refuse(c, "more than %d tensors", JOINED);
    for (int i = 0; i < n; i++)
        if (in[i] && ts_dtype_of(in[i]) != c->dtype)
            in[i] = ts_cast(in[i], c->dtype);
    return ts_concat(n, in, lower_dim(c, 1, c->rank));
}

ts_value *lower_stack(ts_call *c)
{
    ts_value *in[JOINED];
    int n = lower_tensors(c, 0, JOINED, in);

    if (n > JOINED)
        return lower_refuse(c, "more than %d tensors", JOINED);
    for (int i = 0; i < n; i++)
        if (in[i] && ts_dtype_of(in[i]) != c->dtype)
            in[i] = ts_cast(in[i], c->dtype);
    return ts_stack(n, in, lower_dim(c, 1, c->rank));
}

/* F.pad's list has the last dim first; a negative number cuts. */
ts_value *lower_pad(ts_call *c)
{
    ts_value *x = lower_tensor(c, 0);
    PyObject *list = PyTuple_GET_ITEM(c->args, 1);
    int rank = x ? ts_rank(x) : 0, n = (int)PySequence_Fast_GET_SIZE(list) / 2;
    int64_t lo[TS_MAX_RANK] = {0}, hi[TS_MAX_RANK] = {0};

    for (int i = 0; i < n && i < rank; i++) {
        lo[rank - 1 - i] = PyLong_AsLongLong(PySequence_Fast_GET_ITEM(list, 2 * i));
        hi[rank - 1 - i] = PyLong_AsLongLong(PySequence_Fast_GET_ITEM(list, 2 * i + 1));
    }
    for (int i = 0; i < rank && x; i++) {
        int64_t size = ts_dim(x, i), from = lo[i] < 0 ? -lo[i] : 0, to = hi[i] < 0 ? -hi[i] : 0;

        if (from || to)
            x = ts_slice(x, i, from, size - to, 1);
        lo[i] += from;
        hi[i] += to;
    }
    return ts_pad(x, rank, lo, hi, lower_number(c, 2, 0));
}

/* Reflection and replication choose rows by a constant index. */
static ts_value *pad_by_index(ts_call *c, ts_value *x, int dim, int64_t lo, int64_t hi)
{
    int64_t size = ts_dim(x, dim), n = size + lo + hi;
    int64_t *at = n > 0 ? malloc((size_t)n * sizeof(*at)) : NULL;
    ts_value *v;

    if (!at)
        return lower_refuse(c, "padding %lld", (long long)lo);
    for (int64_t i = 0; i < n; i++) {
        int64_t k = i - lo;

        if (!strcmp(c->row->op, "reflect"))
            k = k < 0 ? -k : k >= size ? 2 * (size - 1) - k : k;
        at[i] = k < 0 ? 0 : k >= size ? size - 1 : k;
    }
    v = ts_const_n(c->g, TS_I64, at, 1, &n);
    free(at);
    return ts_apply(c->g, "index_select", 2, (ts_value *[]){x, v}, "dim:i", (int64_t)dim);
}

ts_value *lower_reflection_pad(ts_call *c)
{
    ts_value *x = lower_tensor(c, 0);
    int64_t by[TS_MAX_RANK];
    int n = lower_ints(c, 1, by) / 2, rank = x ? ts_rank(x) : 0;

    for (int i = 0; i < n && x; i++)
        if (by[2 * i] || by[2 * i + 1])
            x = pad_by_index(c, x, rank - 1 - i, by[2 * i], by[2 * i + 1]);
    return x;
}

/* [N, C r r, H, W] -> [N, C, r, r, H, W] -> [N, C, H, r, W, r] -> [N, C, H r, W r], N being all
 * dims before the last three; unshuffle goes the other way. */
ts_value *lower_pixel_shuffle(ts_call *c)
{
    bool up = !strcmp(c->row->op, "shuffle");
    ts_value *x = lower_tensor(c, 0);
    int64_t r = lower_int(c, 1, 1), ch = c->dims[c->rank - 3], h = c->dims[c->rank - 2],
            w = c->dims[c->rank - 1];

    if (up) {
        x = ts_reshape_n(x, 6, (int64_t[]){-1, ch, r, r, h / r, w / r});
        x = ts_permute_n(x, 6, (int64_t[]){0, 1, 4, 2, 5, 3});
    } else {
        x = ts_reshape_n(x, 6, (int64_t[]){-1, ch / r / r, h, r, w, r});
        x = ts_permute_n(x, 6, (int64_t[]){0, 1, 3, 5, 2, 4});
    }
    return ts_reshape_n(x, c->rank, c->dims);
}

/* A mask of rows and columns times x. */
ts_value *lower_tri(ts_call *c)
{
    ts_value *x = lower_tensor(c, 0), *row, *column, *keep;
    int64_t d = lower_int(c, 1, 0), h, w;

    if (!x)
        return NULL;
    h = ts_dim(x, -2);
    w = ts_dim(x, -1);
    row = ts_reshape_n(counted(c->g, h, d, 1), 2, (int64_t[]){h, 1});
    column = ts_reshape_n(counted(c->g, w, 0, 1), 2, (int64_t[]){1, w});
    keep = !strcmp(c->row->op, "triu") ? ts_ge(column, row) : ts_le(column, row);
    return ts_where(keep, x, lower_scalar(c, 0));
}

/* --- indexing --------------------------------------------------------------------------------- */

/* Negative indices count from the end; constants are almost always plain, but nothing says so. */
static ts_value *wrapped(ts_call *c, ts_value *at, int64_t size)
{
    ts_value *zero = ts_scalar(c->g, ts_dtype_of(at), 0);

    return ts_where(ts_lt(at, zero), ts_add(at, ts_scalar(c->g, ts_dtype_of(at), (double)size)),
                    at);
}

/* x[:, i, j, ..., :]: the indexed dims, which must be neighbours, become one, and so do the
 * indices. */
ts_value *lower_index(ts_call *c)
{
    ts_value *x = lower_tensor(c, 0), *at[TS_MAX_RANK], *flat = NULL;
    int n = lower_tensors(c, 1, TS_MAX_RANK, at), first = -1, last = -1;
    int64_t dims[TS_MAX_RANK], size = 1;
    int rank = 0;

    for (int i = 0; i < n; i++) {
        if (!at[i])
            continue;
        if (ts_dtype_of(at[i]) == TS_BOOL)
            return lower_refuse(c, "a mask of bools: the result's size depends on its values");
        if (last >= 0 && last != i - 1)
            return lower_refuse(c, "indices in dims that are not neighbours");
        first = first < 0 ? i : first;
        last = i;
    }
    if (!x || first < 0)
        return x;
    for (int i = first; i <= last; i++) {
        ts_value *k = wrapped(c, at[i], ts_dim(x, i));

        flat = flat ? ts_add(ts_mul_scalar(flat, (double)ts_dim(x, i)), k) : k;
        size *= ts_dim(x, i);
    }
    for (int i = 0; i < ts_rank(x); i++)
        if (i < first || i > last)
            dims[rank++] = ts_dim(x, i);
        else if (i == first)
            dims[rank++] = size;
    x = ts_reshape_n(x, rank, dims);
    return x && flat
               ? ts_apply(c->g, "index_select", 2, (ts_value *[]){x, flat}, "dim:i", (int64_t)first)
               : NULL;
}

ts_value *lower_index_select(ts_call *c)
{
    ts_value *in[] = {lower_tensor(c, 0), lower_tensor(c, 2)};

    if (!in[0] || !in[1])
        return NULL;
    return ts_apply(c->g, "index_select", 2, in, "dim:i", (int64_t)lower_dim(c, 1, ts_rank(in[0])));
}

ts_value *lower_gather(ts_call *c)
{
    return ts_gather(lower_tensor(c, 0), (int)lower_int(c, 1, 0), lower_tensor(c, 2));
}

/* source, cut to the index's shape, added to zeros of x's shape */
static ts_value *scattered(ts_call *c, ts_value *x, ts_value *at, ts_value *source)
{
    int64_t dims[TS_MAX_RANK];
    int rank;

    if (!x || !at || !source)
        return NULL;
    rank = shape(x, dims);
    for (int i = 0; i < rank && source; i++)
        if (ts_dim(source, i) != ts_dim(at, i))
            source = ts_slice(source, i, 0, ts_dim(at, i), 1);
    return ts_apply(c->g, "scatter_add", 2, (ts_value *[]){at, source}, "dim:i shape:l",
                    (int64_t)lower_dim(c, 1, rank), rank, dims);
}

static ts_value *ones_like(ts_call *c, ts_value *at, ts_dtype t)
{
    int64_t dims[TS_MAX_RANK];
    int rank = at ? shape(at, dims) : 0;

    return at ? ts_full_n(c->g, t, 1, rank, dims) : NULL;
}

ts_value *lower_scatter_value(ts_call *c)
{
    ts_value *x = lower_as(c, 0, c->dtype), *at = lower_tensor(c, 2);

    return ts_where(scattered(c, x, at, ones_like(c, at, TS_F32)), lower_as(c, 3, c->dtype), x);
}

/* Of two sources for one place PyTorch takes either; here they are added. */
ts_value *lower_scatter_src(ts_call *c)
{
    ts_value *x = lower_as(c, 0, c->dtype), *at = lower_tensor(c, 2);

    return ts_where(scattered(c, x, at, ones_like(c, at, TS_F32)),
                    scattered(c, x, at, lower_as(c, 3, c->dtype)), x);
}

ts_value *lower_scatter_add(ts_call *c)
{
    ts_value *x = lower_as(c, 0, c->dtype);

    return ts_add(x, scattered(c, x, lower_tensor(c, 2), lower_as(c, 3, c->dtype)));
}

/* x[mask] = value: a mask of bools over the first dims, and one value for all. */
ts_value *lower_index_put(ts_call *c)
{
    ts_value *x = lower_as(c, 0, c->dtype), *mask[TS_MAX_RANK], *v = lower_as(c, 2, c->dtype);
    int n = lower_tensors(c, 1, TS_MAX_RANK, mask);
    int64_t dims[TS_MAX_RANK];
    int rank;

    if (n != 1 || !mask[0] || ts_dtype_of(mask[0]) != TS_BOOL || lower_flag(c, 3))
        return lower_refuse(c, "anything but x[mask] = number");
    if (!x || !v || (ts_rank(v) > 0 && (ts_rank(v) > 1 || ts_dim(v, 0) != 1)))
        return lower_refuse(c, "a value of more than one element");
    rank = shape(mask[0], dims);
    while (rank < ts_rank(x))
        dims[rank++] = 1;
    return ts_where(ts_reshape_n(mask[0], rank, dims), ts_reshape_n(v, 0, NULL), x);
}

/* padding_idx: that row gets no gradient. */
ts_value *lower_embedding(ts_call *c)
{
    ts_value *w = lower_tensor(c, 0), *at = lower_tensor(c, 1), *row;
    int64_t padding = lower_int(c, 2, -1), rows = size_of(w, 0);

    if (lower_flag(c, 3) || lower_flag(c, 4))
        return lower_refuse(c, "scale_grad_by_freq and sparse");
    if (!w || !at)
        return NULL;
    if (padding >= 0) {
        row = ts_reshape_n(counted(c->g, rows, 0, 1), 2, (int64_t[]){rows, 1});
        w = ts_where(ts_eq(row, ts_scalar(c->g, TS_I64, (double)padding)), ts_detach(w), w);
    }
    return ts_embedding(at, w);
}

ts_value *lower_one_hot(ts_call *c)
{
    return ts_one_hot(lower_tensor(c, 0), c->dims[c->rank - 1], c->dtype);
}

/* --- reductions ------------------------------------------------------------------------------- */

static ts_value *reduce(ts_call *c, const char *op, ts_value *x, int n, const int64_t *dims,
                        bool keepdim)
{
    if (!x)
        return NULL;
    if (ts_rank(x) == 0)
        return x;
    if (!n)
        return ts_apply(c->g, op, 1, &x, "keepdim:i", (int64_t)keepdim);
    return ts_apply(c->g, op, 1, &x, "dims:l keepdim:i", n, dims, (int64_t)keepdim);
}

/* sum(x, dtype) and sum(x, dims, keepdim, dtype), told apart by the type of the second argument;
 * a dtype comes as text. The result has PyTorch's dtype, so x is cast before. */
ts_value *lower_reduce(ts_call *c)
{
    ts_value *x = lower_tensor(c, 0);
    int64_t dims[TS_MAX_RANK];
    int n = lower_ints(c, 1, dims);

    if (x && ts_dtype_of(x) != c->dtype)
        x = ts_cast(x, c->dtype);
    return reduce(c, c->row->op, x, n, dims, n > 0 && lower_flag(c, 2));
}

ts_value *lower_logsumexp(ts_call *c)
{
    int64_t dims[TS_MAX_RANK];
    int n = lower_ints(c, 1, dims);

    return ts_logsumexp(lower_tensor(c, 0), n, dims, lower_flag(c, 2));
}

/* max(x); max(x, dim, keepdim) with the places; max(x, y) */
ts_value *lower_extreme(ts_call *c)
{
    bool max = !strcmp(c->row->op, "max");
    ts_value *x = lower_tensor(c, 0);
    int64_t dims[TS_MAX_RANK];
    int n = lower_ints(c, 1, dims);

    if (lower_tensor(c, 1))
        return lower_op2(max ? "maximum" : "minimum", c, lower_as(c, 0, c->dtype),
                         lower_as(c, 1, c->dtype));
    if (x && n && ts_rank(x)) {
        c->out[1] = ts_apply(c->g, max ? "argmax" : "argmin", 1, &x, "dims:l keepdim:i", n, dims,
                             (int64_t)lower_flag(c, 2));
        c->nout = 2;
    }
    return reduce(c, max ? "amax" : "amin", x, n, dims, n > 0 && lower_flag(c, 2));
}

ts_value *lower_argument(ts_call *c)
{
    int64_t dims[TS_MAX_RANK];
    int n = lower_ints(c, 1, dims);

    return reduce(c, c->row->op, lower_tensor(c, 0), n, dims, n > 0 && lower_flag(c, 2));
}

ts_value *lower_any(ts_call *c)
{
    int64_t dims[TS_MAX_RANK];
    int n = lower_ints(c, 1, dims);
    ts_value *x = ts_cast(lower_as(c, 0, TS_BOOL), TS_I32);

    return ts_cast(reduce(c, c->row->op, x, n, dims, n > 0 && lower_flag(c, 2)), TS_BOOL);
}

/* var(x, dims, correction, keepdim): the mean of squares around the mean, in two passes */
ts_value *lower_variance(ts_call *c)
{
    ts_value *x = lower_as(c, 0, c->dtype), *mean, *v;
    int64_t dims[TS_MAX_RANK], count = 1;
    int n = lower_ints(c, 1, dims);
    double correction = lower_number(c, 2, 1);

    if (!x)
        return NULL;
    for (int i = 0; !n && i < ts_rank(x); i++)
        count *= ts_dim(x, i);
    for (int i = 0; i < n; i++)
        count *= ts_dim(x, (int)dims[i]);
    mean = reduce(c, "mean", x, n, dims, true);
    v = reduce(c, "sum", ts_square(ts_sub(x, mean)), n, dims, lower_flag(c, 3));
    v = ts_mul_scalar(v, 1 / ((double)count - correction));
    c->out[1] = ts_reshape_n(mean, c->rank, c->dims);
    c->nout = 2;
    return !strcmp(c->row->op, "std") ? ts_sqrt(v) : v;
}

/* norm(x, p, dims, keepdim) */
ts_value *lower_norm(ts_call *c)
{
    ts_value *x = lower_as(c, 0, c->dtype);
    int64_t dims[TS_MAX_RANK];
    int n = lower_ints(c, 2, dims);
    double p = lower_number(c, 1, 2);
    bool keep = lower_flag(c, 3);

    if (p == 2)
        return ts_sqrt(reduce(c, "sum", ts_square(x), n, dims, keep));
    if (p == 1)
        return reduce(c, "sum", ts_abs(x), n, dims, keep);
    if (p > 1e300)
        return reduce(c, "amax", ts_abs(x), n, dims, keep);
    if (p <= 0)
        return lower_refuse(c, "p = %g", p);
    x = reduce(c, "sum", ts_pow(ts_abs(x), lower_scalar(c, p)), n, dims, keep);
    return ts_pow(x, lower_scalar(c, 1 / p));
}

/* x times a triangle of ones, along dim */
ts_value *lower_cumsum(ts_call *c)
{
    ts_value *x = lower_as(c, 0, c->dtype), *row, *column, *ones;
    int dim = lower_dim(c, 1, c->rank);
    int64_t n;

    if (!x || !c->rank || !lower_is_float(c->dtype))
        return lower_refuse(c, "integers and scalars");
    n = ts_dim(x, dim);
    if (n > 4096)
        return lower_refuse(c, "more than 4096 elements in a row");
    row = ts_reshape_n(counted(c->g, n, 0, 1), 2, (int64_t[]){n, 1});
    column = ts_reshape_n(counted(c->g, n, 0, 1), 2, (int64_t[]){1, n});
    ones = ts_cast(ts_le(row, column), c->dtype);
    if (c->rank == 1)
        return ts_reshape_n(ts_matmul(ts_reshape_n(x, 2, (int64_t[]){1, n}), ones), 1, &n);
    return ts_transpose(ts_matmul(ts_transpose(x, dim, c->rank - 1), ones), dim, c->rank - 1);
}

ts_value *lower_softmax(ts_call *c)
{
    ts_value *x = lower_as(c, 0, c->dtype);

    return x ? ts_apply(c->g, c->row->op, 1, &x, "dim:i", lower_int(c, 1, -1)) : NULL;
}
