/* words_shape.c - views and their inverses, joining and reductions.
 *
 * PyTorch writes through views; a graph has values only. So a view that can be written through has
 * an inverse: `put` gives the viewed tensor with the new elements in it, and the tracer applies the
 * inverses up to the tensor that owns the memory.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "front/words.h"

static int64_t size_of(const ts_value *v, int i)
{
    return v ? ts_dim(v, i) : 1;
}

int ts_call_shape_of(const ts_value *v, int64_t dims[TS_MAX_RANK])
{
    int rank = ts_rank(v);

    for (int i = 0; i < rank; i++)
        dims[i] = ts_dim(v, i);
    return rank;
}

/* --- views ------------------------------------------------------------------------------------ */

ts_value *ts_word_reshape(ts_call *c)
{
    return ts_reshape_n(ts_call_tensor(c, 0), c->rank, c->dims);
}

ts_value *ts_word_put_reshape(ts_call *c, ts_value *x, ts_value *y)
{
    int64_t dims[TS_MAX_RANK];
    int rank = ts_call_shape_of(x, dims);

    (void)c;
    return ts_reshape_n(y, rank, dims);
}

ts_value *ts_word_detach(ts_call *c)
{
    return ts_detach(ts_call_tensor(c, 0));
}

/* permute(x, dims), transpose(x, a, b) and t(x) as one list */
static void order(const ts_call *c, int rank, int64_t dims[TS_MAX_RANK])
{
    int a = 0, b = rank - 1;

    if (!strcmp(c->row->op, "permute")) {
        ts_call_ints(c, 1, dims);
        for (int i = 0; i < rank; i++)
            dims[i] += dims[i] < 0 ? rank : 0;
        return;
    }
    for (int i = 0; i < rank; i++)
        dims[i] = i;
    if (rank < 2)
        return;
    if (!strcmp(c->row->op, "transpose")) {
        a = ts_call_dim(c, 1, rank);
        b = ts_call_dim(c, 2, rank);
    }
    dims[a] = b;
    dims[b] = a;
}

ts_value *ts_word_flatten(ts_call *c)
{
    ts_value *x = ts_call_tensor(c, 0);
    int rank = ts_rank(x), start = ts_call_dim(c, 1, rank), end;
    int64_t dims[TS_MAX_RANK], size = 1;

    end = ts_call_has(c, 2) ? ts_call_dim(c, 2, rank) : rank - 1;
    if (!rank || end == rank - 1)
        return ts_flatten(x, rank ? start : 0);
    if (start < 0 || end < start || end >= rank)
        return ts_call_refuse(c, "from dim %d to dim %d", start, end);
    ts_call_shape_of(x, dims);
    for (int i = start; i <= end; i++)
        size *= dims[i];
    dims[start] = size;
    memmove(dims + start + 1, dims + end + 1, sizeof(*dims) * (size_t)(rank - 1 - end));
    return ts_reshape_n(x, rank - (end - start), dims);
}

ts_value *ts_word_permute(ts_call *c)
{
    ts_value *x = ts_call_tensor(c, 0);
    int64_t dims[TS_MAX_RANK];
    int rank = x ? ts_rank(x) : 0;

    if (!strcmp(c->row->op, "permute") && ts_call_count(c, 1) != rank)
        return ts_call_refuse(c, "%d dims of a tensor of rank %d", ts_call_count(c, 1), rank);
    order(c, rank, dims);
    return rank < 2 ? x : ts_permute_n(x, rank, dims);
}

ts_value *ts_word_put_permute(ts_call *c, ts_value *x, ts_value *y)
{
    int64_t dims[TS_MAX_RANK], inverse[TS_MAX_RANK];
    int rank = ts_rank(x);

    order(c, rank, dims);
    for (int i = 0; i < rank; i++)
        inverse[dims[i]] = i;
    return rank < 2 ? y : ts_permute_n(y, rank, inverse);
}

ts_value *ts_word_expand(ts_call *c)
{
    return ts_expand_n(ts_call_tensor(c, 0), c->rank, c->dims);
}

typedef struct piece {
    int dim;
    int64_t start, end, step;
} piece;

static ts_value *cut(ts_value *x, piece p)
{
    return ts_slice(x, p.dim, p.start, p.end, p.step);
}

bool ts_call_fits(ts_call *c, double elements)
{
    if (elements >= 0 && elements <= 1 << 26)
        return true;
    ts_call_refuse(c, "a table of %.0f elements", elements);
    return false;
}

ts_value *ts_call_counted(ts_graph *g, int64_t n, int64_t start, int64_t step)
{
    int64_t *at = n >= 0 && n <= 1 << 26 ? malloc((size_t)(n + 1) * sizeof(*at)) : NULL;
    ts_value *v = NULL;

    for (int64_t i = 0; at && i < n; i++)
        at[i] = start + i * step;
    if (at)
        v = ts_const_n(g, TS_I64, at, 1, &n);
    else
        ts_graph_refuse(g, TS_ERR_MEMORY, NULL, "a table of %ld numbers", (long)n);
    free(at);
    return v;
}

/* With a step, y is spread over zeros and chosen where a constant mask says so. */
static ts_value *paste_stepped(ts_graph *g, ts_value *x, piece p, ts_value *y)
{
    int64_t size = ts_dim(x, p.dim), dims[TS_MAX_RANK];
    ts_value *at = ts_call_counted(g, size_of(y, p.dim), p.start, p.step), *spread, *mask;
    int rank = ts_rank(x);

    if (!y || !at)
        return NULL;
    for (int i = 0; i < rank; i++)
        dims[i] = i == p.dim ? size : 1;
    spread = ts_apply(g, "index_add", 2, (ts_value *[]){at, y}, 2,
                      (ts_arg[]){ts_arg_int("dim", p.dim), ts_arg_int("size", size)});
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

/* y without a dim of size 1 */
static ts_value *without(ts_value *y, int dim)
{
    int64_t dims[TS_MAX_RANK];
    int rank = y ? ts_call_shape_of(y, dims) : 0;

    if (!y)
        return NULL;
    memmove(dims + dim, dims + dim + 1, sizeof(*dims) * (size_t)(rank - 1 - dim));
    return ts_reshape_n(y, rank - 1, dims);
}

static piece select_piece(const ts_call *c, const ts_value *x)
{
    piece p = {.dim = ts_call_dim(c, 1, ts_rank(x)), .step = 1};

    p.start = ts_call_int(c, 2, 0);
    p.start += p.start < 0 ? ts_dim(x, p.dim) : 0;
    p.end = p.start + 1;
    return p;
}

ts_value *ts_word_select(ts_call *c)
{
    ts_value *x = ts_call_tensor(c, 0);
    piece p = {0};

    if (!x)
        return NULL;
    p = select_piece(c, x);
    return without(cut(x, p), p.dim);
}

ts_value *ts_word_put_select(ts_call *c, ts_value *x, ts_value *y)
{
    piece p = select_piece(c, x);
    int64_t dims[TS_MAX_RANK];
    int rank = ts_call_shape_of(x, dims);

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
    piece p = {.dim = ts_call_dim(c, 1, ts_rank(x)), .step = ts_call_int(c, 4, 1)};
    int64_t size = ts_dim(x, p.dim);

    p.start = clamp(ts_call_int(c, 2, 0), size);
    p.end = clamp(ts_call_int(c, 3, size), size);
    return p;
}

ts_value *ts_word_slice(ts_call *c)
{
    ts_value *x = ts_call_tensor(c, 0);
    piece p = {0};

    if (!x)
        return NULL;
    p = slice_piece(c, x);
    if (p.start == 0 && p.step == 1 && p.end == ts_dim(x, p.dim))
        return x;
    return cut(x, p);
}

ts_value *ts_word_put_slice(ts_call *c, ts_value *x, ts_value *y)
{
    return paste(c->g, x, slice_piece(c, x), y);
}

/* narrow(x, dim, start, length) */
ts_value *ts_word_narrow(ts_call *c)
{
    ts_value *x = ts_call_tensor(c, 0);
    int dim = x ? ts_call_dim(c, 1, ts_rank(x)) : 0;
    int64_t start = ts_call_int(c, 2, 0);

    if (!x)
        return NULL;
    start += start < 0 ? ts_dim(x, dim) : 0;
    return ts_slice(x, dim, start, start + ts_call_int(c, 3, 0), 1);
}

/* Where result i of split(x, size, dim), split_with_sizes(x, sizes, dim) or unbind(x, dim) lies. */
static piece split_piece(const ts_call *c, const ts_value *x, int i)
{
    bool unbind = !strcmp(c->row->op, "unbind"), sizes = !strcmp(c->row->op, "sizes");
    piece p = {.dim = ts_call_dim(c, unbind ? 1 : 2, ts_rank(x)), .step = 1};
    int64_t size = ts_dim(x, p.dim), each = unbind ? 1 : ts_call_int(c, 1, size);

    if (!sizes) {
        p.start = i * each;
        p.end = p.start + each < size ? p.start + each : size;
        return p;
    }
    for (int k = 0; k <= i && k < ts_call_count(c, 1); k++) {
        p.start = p.end;
        p.end += (int64_t)ts_call_item(c, 1, k);
    }
    return p;
}

static ts_value *split_one(ts_call *c, ts_value *x, int i)
{
    piece p = split_piece(c, x, i);
    ts_value *y = p.end > p.start ? cut(x, p) : ts_call_refuse(c, "a piece without elements");

    if (y && !strcmp(c->row->op, "unbind"))
        y = without(y, p.dim);
    return y;
}

static int64_t split_count(const ts_call *c, const ts_value *x)
{
    piece p;

    if (!strcmp(c->row->op, "sizes"))
        return ts_call_count(c, 1);
    p = split_piece(c, x, 0);
    return p.end > 0 ? (ts_dim(x, p.dim) + p.end - 1) / p.end : 0;
}

ts_value *ts_word_split(ts_call *c)
{
    ts_value *x = ts_call_tensor(c, 0);
    int64_t n = x ? split_count(c, x) : 0;

    if (n < 1 || n > TS_WORD_RESULTS)
        return ts_call_refuse(c, "%lld pieces; 1 to %d are possible", (long long)n,
                              TS_WORD_RESULTS);
    for (int i = 0; i < n; i++)
        if (!(c->out[i] = split_one(c, x, i)))
            return NULL;
    c->nout = (int)n;
    return c->out[0];
}

ts_value *ts_word_put_split(ts_call *c, ts_value *x, ts_value *y)
{
    piece p = split_piece(c, x, c->which);
    int64_t dims[TS_MAX_RANK];
    int rank = ts_call_shape_of(x, dims);

    dims[p.dim] = p.end - p.start;
    return paste(c->g, x, p, ts_reshape_n(y, rank, dims));
}

/* unfold(x, dim, size, step): the windows take dim's place, their elements come last. */
ts_value *ts_word_unfold(ts_call *c)
{
    ts_value *x = ts_call_tensor(c, 0), *at;
    int rank = x ? ts_rank(x) : 0, dim = ts_call_dim(c, 1, rank);
    int64_t size = ts_call_int(c, 2, 1), step = ts_call_int(c, 3, 1), dims[TS_MAX_RANK], n;

    if (!rank || rank == TS_MAX_RANK || size < 1 || step < 1 || ts_dim(x, dim) < size)
        return ts_call_refuse(c, "windows of %lld in a tensor of rank %d", (long long)size, rank);
    n = (ts_dim(x, dim) - size) / step + 1;
    at = ts_add(ts_reshape_n(ts_call_counted(c->g, n, 0, step), 2, (int64_t[]){n, 1}),
                ts_reshape_n(ts_call_counted(c->g, size, 0, 1), 2, (int64_t[]){1, size}));
    x = ts_apply(c->g, "index_select", 2, (ts_value *[]){x, at}, 1,
                 (ts_arg[]){ts_arg_int("dim", dim)});
    for (int i = 0; i < rank; i++)
        dims[i] = i <= dim ? i : i + 1;
    dims[rank] = dim + 1;
    return ts_permute_n(x, rank + 1, dims);
}

/* The elements of x, flattened, that a constant index names. Slow and always right: for views that
 * have no better name. */
ts_value *ts_word_places(ts_call *c)
{
    ts_value *flat = ts_reshape_n(ts_call_tensor(c, 0), 1, (int64_t[]){-1});
    ts_value *at = ts_call_tensor(c, 1);

    if (!flat || !at)
        return NULL;
    flat = ts_apply(c->g, "index_select", 2, (ts_value *[]){flat, at}, 1,
                    (ts_arg[]){ts_arg_int("dim", 0)});
    return ts_reshape_n(flat, c->rank, c->dims);
}

ts_value *ts_word_put_places(ts_call *c, ts_value *x, ts_value *y)
{
    ts_value *flat = ts_reshape_n(x, 1, (int64_t[]){-1}), *at = ts_call_tensor(c, 1), *new, *one;
    int64_t dims[TS_MAX_RANK], size, n;
    int rank = ts_call_shape_of(x, dims);

    if (!flat || !at)
        return NULL;
    size = ts_dim(flat, 0);
    n = ts_dim(at, 0);
    y = ts_reshape_n(y, 1, &n);
    one = ts_full_n(c->g, TS_F32, 1, 1, &n);
    new = ts_apply(c->g, "index_add", 2, (ts_value *[]){at, y}, 2,
                   (ts_arg[]){ts_arg_int("dim", 0), ts_arg_int("size", size)});
    one = ts_apply(c->g, "index_add", 2, (ts_value *[]){at, one}, 2,
                   (ts_arg[]){ts_arg_int("dim", 0), ts_arg_int("size", size)});
    return ts_reshape_n(ts_where(one, new, flat), rank, dims);
}

/* --- shapes ----------------------------------------------------------------------------------- */

ts_value *ts_word_flip(ts_call *c)
{
    ts_value *x = ts_call_tensor(c, 0);
    int64_t dims[TS_MAX_RANK];
    int n = ts_call_ints(c, 1, dims);

    if (!x || !n)
        return x;
    return ts_apply(c->g, "flip", 1, &x, 1, (ts_arg[]){ts_arg_ints("dims", n, dims)});
}

static ts_value *roll(ts_value *x, int dim, int64_t by)
{
    int64_t size = ts_dim(x, dim), at = size ? ((size - by) % size + size) % size : 0;

    if (!at)
        return x;
    return ts_concat(2, (ts_value *[]){ts_slice(x, dim, at, size, 1), ts_slice(x, dim, 0, at, 1)},
                     dim);
}

/* y in x's shape */
static ts_value *as_before(const ts_value *x, ts_value *y)
{
    int64_t dims[TS_MAX_RANK];
    int rank = ts_call_shape_of(x, dims);

    return ts_reshape_n(y, rank, dims);
}

ts_value *ts_word_roll(ts_call *c)
{
    ts_value *x = ts_call_tensor(c, 0);
    int64_t by[TS_MAX_RANK], dims[TS_MAX_RANK];
    int n = ts_call_ints(c, 1, by), m = ts_call_ints(c, 2, dims);

    if (x && !m)
        return as_before(x, roll(ts_reshape_n(x, 1, (int64_t[]){-1}), 0, by[0]));
    for (int i = 0; x && i < m; i++)
        if (i >= n || dims[i] < -ts_rank(x) || dims[i] >= ts_rank(x))
            return ts_call_refuse(c, "dim %lld", (long long)dims[i]);
    for (int i = 0; i < n && i < m && x; i++)
        x = roll(x, (int)(dims[i] < 0 ? dims[i] + ts_rank(x) : dims[i]), by[i]);
    return x;
}

/* [a, b] -> [1, a, 1, b] -> [r, a, s, b] -> [r a, s b], a dim at a time: ranks end at 8 */
ts_value *ts_word_repeat(ts_call *c)
{
    ts_value *x = ts_call_tensor(c, 0);
    int64_t times[TS_MAX_RANK], dims[TS_MAX_RANK];
    int n = ts_call_ints(c, 1, times), rank = x ? ts_rank(x) : 0;
    double count = 1;

    if (n < rank)
        return ts_call_refuse(c, "fewer numbers than dims");
    for (int i = 0; i < n; i++) {
        dims[i] = i < n - rank ? 1 : ts_dim(x, i - (n - rank));
        count *= (double)dims[i] * (double)times[i];
        if (times[i] < 1 || count > (double)TS_MAX_COUNT)
            return ts_call_refuse(c, "%lld times", (long long)times[i]);
    }
    x = ts_reshape_n(x, n, dims);
    for (int i = 0; i < n && x; i++) {
        int64_t before = 1, after = 1, size = dims[i];

        if (times[i] == 1)
            continue;
        for (int k = 0; k < n; k++)
            *(k < i ? &before : &after) *= k == i ? 1 : dims[k];
        dims[i] *= times[i];
        x = ts_reshape_n(x, 4, (int64_t[]){before, 1, size, after});
        x = ts_expand_n(x, 4, (int64_t[]){before, times[i], size, after});
        x = ts_reshape_n(x, n, dims);
    }
    return x;
}

static ts_value *join(ts_call *c, int more, ts_value *(*how)(int n, ts_value *const *xs, int dim))
{
    ts_value *in[TS_WORD_RESULTS];
    int n = ts_call_tensors(c, 0, TS_WORD_RESULTS, in);

    if (n > TS_WORD_RESULTS)
        return ts_call_refuse(c, "more than %d tensors", TS_WORD_RESULTS);
    for (int i = 0; i < n; i++)
        if (in[i] && ts_dtype_of(in[i]) != c->dtype)
            in[i] = ts_cast(in[i], c->dtype);
    return n ? how(n, in, ts_call_dim(c, 1, ts_rank(in[0]) + more)) : NULL;
}

ts_value *ts_word_cat(ts_call *c)
{
    return join(c, 0, ts_concat);
}

ts_value *ts_word_stack(ts_call *c)
{
    return join(c, 1, ts_stack);
}

/* diagonal(x, offset, dim1, dim2): dim1 and dim2 go last and become one, of which every (w+1)-th
 * element is taken. */
typedef struct diagonal {
    int64_t order[TS_MAX_RANK], inverse[TS_MAX_RANK], flat[TS_MAX_RANK], moved[TS_MAX_RANK];
    int rank;
    piece p;
} diagonal;

static diagonal diagonal_of(const ts_value *x, int64_t offset, int a, int b)
{
    diagonal d = {.rank = ts_rank(x)};
    int64_t h = ts_dim(x, a), w = ts_dim(x, b), n;
    int k = 0;

    for (int i = 0; i < d.rank; i++)
        if (i != a && i != b)
            d.order[k++] = i;
    d.order[k] = a;
    d.order[k + 1] = b;
    for (int i = 0; i < d.rank; i++) {
        d.inverse[d.order[i]] = i;
        d.moved[i] = ts_dim(x, (int)d.order[i]);
        d.flat[i] = d.moved[i];
    }
    d.flat[k] = h * w;
    n = offset >= 0 ? (w - offset < h ? w - offset : h) : (h + offset < w ? h + offset : w);
    d.p = (piece){.dim = k, .start = offset >= 0 ? offset : -offset * w, .step = w + 1};
    d.p.end = d.p.start + (n - 1) * d.p.step + 1;
    return d;
}

static ts_value *take_diagonal(ts_value *x, int64_t offset, int a, int b)
{
    diagonal d = diagonal_of(x, offset, a, b);

    x = ts_permute_n(x, d.rank, d.order);
    return cut(ts_reshape_n(x, d.rank - 1, d.flat), d.p);
}

static ts_value *put_diagonal(ts_call *c, ts_value *x, int64_t offset, int a, int b, ts_value *y)
{
    diagonal d = diagonal_of(x, offset, a, b);

    x = ts_reshape_n(ts_permute_n(x, d.rank, d.order), d.rank - 1, d.flat);
    x = paste(c->g, x, d.p, y);
    return ts_permute_n(ts_reshape_n(x, d.rank, d.moved), d.rank, d.inverse);
}

ts_value *ts_word_diagonal(ts_call *c)
{
    ts_value *x = ts_call_tensor(c, 0);
    int rank = x ? ts_rank(x) : 0;

    return x ? take_diagonal(x, ts_call_int(c, 1, 0), ts_call_dim(c, 2, rank),
                             ts_call_dim(c, 3, rank))
             : NULL;
}

ts_value *ts_word_put_diagonal(ts_call *c, ts_value *x, ts_value *y)
{
    int rank = ts_rank(x);

    return put_diagonal(c, x, ts_call_int(c, 1, 0), ts_call_dim(c, 2, rank),
                        ts_call_dim(c, 3, rank), y);
}

ts_value *ts_word_trace(ts_call *c)
{
    ts_value *x = ts_call_tensor(c, 0);

    return x ? ts_sum(take_diagonal(x, 0, 0, 1), 0, NULL, false) : NULL;
}

/* [.., n] to the diagonal of [.., n + |offset|, n + |offset|], which lies in dims a and b. */
static ts_value *embed_diagonal(ts_call *c, ts_value *x, int64_t offset, int a, int b)
{
    int64_t lo[TS_MAX_RANK] = {0}, hi[TS_MAX_RANK] = {0}, dims[TS_MAX_RANK], order[TS_MAX_RANK];
    int rank = ts_call_shape_of(x, dims), k = 0;
    int64_t more = offset < 0 ? -offset : offset, n = dims[rank - 1] + more;
    ts_value *row = ts_reshape_n(ts_call_counted(c->g, n, offset, 1), 2, (int64_t[]){n, 1});
    ts_value *column = ts_reshape_n(ts_call_counted(c->g, n, 0, 1), 2, (int64_t[]){1, n});

    hi[rank - 1] = more;
    x = ts_pad(x, rank, lo, hi, 0);
    dims[rank - 1] = offset < 0 ? 1 : n;
    dims[rank] = offset < 0 ? n : 1;
    x = ts_where(ts_eq(row, column), ts_reshape_n(x, rank + 1, dims), ts_call_scalar(c, 0));
    for (int i = 0; i <= rank; i++)
        order[i] = i == a ? rank - 1 : i == b ? rank : k++;
    return ts_permute_n(x, rank + 1, order);
}

/* diag_embed(x, offset, dim1, dim2) */
ts_value *ts_word_diag_embed(ts_call *c)
{
    ts_value *x = ts_call_tensor(c, 0);

    int rank = ts_rank(x) + 1;

    if (!x || rank < 2 || rank > TS_MAX_RANK)
        return x ? ts_call_refuse(c, "rank %d", rank - 1) : NULL;
    return embed_diagonal(c, x, ts_call_int(c, 1, 0), ts_call_dim(c, 2, rank),
                          ts_call_dim(c, 3, rank));
}

/* diag(x, offset): of a vector the matrix, of a matrix the vector */
ts_value *ts_word_diag(ts_call *c)
{
    ts_value *x = ts_call_tensor(c, 0);

    if (!x)
        return NULL;
    return ts_rank(x) == 1 ? embed_diagonal(c, x, ts_call_int(c, 1, 0), 0, 1)
                           : take_diagonal(x, ts_call_int(c, 1, 0), 0, 1);
}

/* block_diag([x, y, ..]) */
ts_value *ts_word_block_diag(ts_call *c)
{
    ts_value *in[64], *all[64];
    int n = ts_call_tensors(c, 0, 64, in);
    int64_t before = 0, wide = 0;

    if (n > 64)
        return ts_call_refuse(c, "more than 64 tensors");
    for (int i = 0; i < n; i++)
        wide += ts_rank(in[i]) ? ts_dim(in[i], -1) : 1;
    for (int i = 0; i < n; i++) {
        int64_t h = ts_rank(in[i]) > 1 ? ts_dim(in[i], 0) : 1, w;

        w = ts_rank(in[i]) ? ts_dim(in[i], -1) : 1;
        all[i] = ts_pad(ts_reshape_n(ts_cast(in[i], c->dtype), 2, (int64_t[]){h, w}), 2,
                        (int64_t[]){0, before}, (int64_t[]){0, wide - before - w}, 0);
        before += w;
    }
    return ts_concat(n, all, 0);
}

/* rot90(x, k, dims) */
ts_value *ts_word_rot90(ts_call *c)
{
    ts_value *x = ts_call_tensor(c, 0);
    int64_t k = ((ts_call_int(c, 1, 1) % 4) + 4) % 4, d[TS_MAX_RANK] = {0, 1};

    ts_call_ints(c, 2, d);
    for (int i = 0; x && i < 2; i++)
        d[i] += d[i] < 0 ? ts_rank(x) : 0;
    if (!x || !k)
        return x;
    if (k == 2)
        return ts_apply(c->g, "flip", 1, &x, 1, (ts_arg[]){ts_arg_ints("dims", 2, d)});
    x = ts_apply(c->g, "flip", 1, &x, 1, (ts_arg[]){ts_arg_ints("dims", 1, d + (k == 1))});
    return ts_transpose(x, (int)d[0], (int)d[1]);
}

/* select_scatter(x, source, dim, index), slice_scatter(x, source, dim, start, end, step),
 * diagonal_scatter(x, source, offset, dim1, dim2): writing through a view, without the view */
ts_value *ts_word_view_scatter(ts_call *c)
{
    ts_value *x = ts_call_as(c, 0, c->dtype), *y = ts_call_as(c, 1, c->dtype);
    piece p = {.dim = ts_call_dim(c, 2, c->rank)};
    int64_t size = c->dims[p.dim < 0 || p.dim >= c->rank ? 0 : p.dim], dims[TS_MAX_RANK];

    if (!x || !y)
        return NULL;
    if (!strcmp(c->row->op, "diagonal"))
        return put_diagonal(c, x, ts_call_int(c, 2, 0), ts_call_dim(c, 3, c->rank),
                            ts_call_dim(c, 4, c->rank), y);
    memcpy(dims, c->dims, sizeof(dims));
    p.start = clamp(ts_call_int(c, 3, 0), size);
    p.end = !strcmp(c->row->op, "select") ? p.start + 1 : clamp(ts_call_int(c, 4, size), size);
    p.step = !strcmp(c->row->op, "select") ? 1 : ts_call_int(c, 5, 1);
    if (p.dim < 0 || p.dim >= c->rank || p.step < 1 || p.end <= p.start)
        return ts_call_refuse(c, "a piece without elements");
    dims[p.dim] = (p.end - p.start + p.step - 1) / p.step;
    return paste(c->g, x, p, ts_reshape_n(y, c->rank, dims));
}

/* channel_shuffle(x, groups): [N, g, C / g, ..] turned */
ts_value *ts_word_channel_shuffle(ts_call *c)
{
    int64_t g = ts_call_int(c, 1, 1), n = c->dims[0], ch = c->dims[1];
    ts_value *x;

    if (c->rank < 3 || g < 1)
        return ts_call_refuse(c, "rank %d in %lld groups", c->rank, (long long)g);
    x = ts_reshape_n(ts_call_tensor(c, 0), 4, (int64_t[]){n, g, ch / g, -1});

    return ts_reshape_n(ts_transpose(x, 1, 2), c->rank, c->dims);
}

/* F.pad's list has the last dim first; a negative number cuts. */
ts_value *ts_word_pad(ts_call *c)
{
    ts_value *x = ts_call_tensor(c, 0);
    int rank = x ? ts_rank(x) : 0, n = ts_call_count(c, 1) / 2;
    int64_t lo[TS_MAX_RANK] = {0}, hi[TS_MAX_RANK] = {0};

    for (int i = 0; i < n && i < rank; i++) {
        lo[rank - 1 - i] = (int64_t)ts_call_item(c, 1, 2 * i);
        hi[rank - 1 - i] = (int64_t)ts_call_item(c, 1, 2 * i + 1);
    }
    for (int i = 0; i < rank && x; i++) {
        int64_t size = ts_dim(x, i), from = lo[i] < 0 ? -lo[i] : 0, to = hi[i] < 0 ? -hi[i] : 0;

        if (from || to)
            x = ts_slice(x, i, from, size - to, 1);
        lo[i] += from;
        hi[i] += to;
    }
    return ts_pad(x, rank, lo, hi, ts_call_number(c, 2, 0));
}

/* Reflection and replication choose rows by a constant index. */
static ts_value *pad_by_index(ts_call *c, ts_value *x, int dim, int64_t lo, int64_t hi)
{
    int64_t size = ts_dim(x, dim), n = size + lo + hi;
    int64_t *at = n > 0 && n <= 1 << 26 ? malloc((size_t)n * sizeof(*at)) : NULL;
    ts_value *v;

    if (!at)
        return ts_call_refuse(c, "padding %lld", (long long)lo);
    for (int64_t i = 0; i < n; i++) {
        int64_t k = i - lo;

        if (!strcmp(c->row->op, "reflect"))
            k = k < 0 ? -k : k >= size ? 2 * (size - 1) - k : k;
        at[i] = k < 0 ? 0 : k >= size ? size - 1 : k;
    }
    v = ts_const_n(c->g, TS_I64, at, 1, &n);
    free(at);
    return ts_apply(c->g, "index_select", 2, (ts_value *[]){x, v}, 1,
                    (ts_arg[]){ts_arg_int("dim", dim)});
}

ts_value *ts_word_reflection_pad(ts_call *c)
{
    ts_value *x = ts_call_tensor(c, 0);
    int64_t by[TS_MAX_RANK];
    int n = ts_call_ints(c, 1, by) / 2, rank = x ? ts_rank(x) : 0;

    for (int i = 0; i < n && x; i++)
        if (by[2 * i] || by[2 * i + 1])
            x = pad_by_index(c, x, rank - 1 - i, by[2 * i], by[2 * i + 1]);
    return x;
}

/* [N, C r r, H, W] -> [N, C, r, r, H, W] -> [N, C, H, r, W, r] -> [N, C, H r, W r], N being all
 * dims before the last three; unshuffle goes the other way. */
ts_value *ts_word_pixel_shuffle(ts_call *c)
{
    bool up = !strcmp(c->row->op, "shuffle");
    ts_value *x = ts_call_tensor(c, 0);
    int64_t r = ts_call_int(c, 1, 1), dims[TS_MAX_RANK], *last, ch, h, w;
    int rank = x ? ts_call_shape_of(x, dims) : 0;

    if (rank < 3 || r < 1 || r > 1 << 15)
        return x ? ts_call_refuse(c, "rank %d", rank) : NULL;
    last = dims + rank - 3;
    ch = up ? last[0] / r / r : last[0];
    h = up ? last[1] : last[1] / r;
    w = up ? last[2] : last[2] / r;
    if (up) {
        x = ts_reshape_n(x, 6, (int64_t[]){-1, ch, r, r, h, w});
        x = ts_permute_n(x, 6, (int64_t[]){0, 1, 4, 2, 5, 3});
    } else {
        x = ts_reshape_n(x, 6, (int64_t[]){-1, ch, h, r, w, r});
        x = ts_permute_n(x, 6, (int64_t[]){0, 1, 3, 5, 2, 4});
    }
    last[0] = up ? ch : ch * r * r;
    last[1] = up ? h * r : h;
    last[2] = up ? w * r : w;
    return ts_reshape_n(x, rank, dims);
}

/* A mask of rows and columns times x. */
ts_value *ts_word_tri(ts_call *c)
{
    ts_value *x = ts_call_tensor(c, 0), *row, *column, *keep;
    int64_t d = ts_call_int(c, 1, 0), h, w;

    if (!x)
        return NULL;
    h = ts_dim(x, -2);
    w = ts_dim(x, -1);
    row = ts_reshape_n(ts_call_counted(c->g, h, d, 1), 2, (int64_t[]){h, 1});
    column = ts_reshape_n(ts_call_counted(c->g, w, 0, 1), 2, (int64_t[]){1, w});
    keep = !strcmp(c->row->op, "triu") ? ts_ge(column, row) : ts_le(column, row);
    return ts_where(keep, x, ts_call_scalar(c, 0));
}

/* --- reductions ------------------------------------------------------------------------------- */

ts_value *ts_call_fold(ts_call *c, const char *op, ts_value *x, int n, const int64_t *dims,
                       bool keepdim)
{
    if (!x)
        return NULL;
    if (ts_rank(x) == 0)
        return x;
    if (!n)
        return ts_apply(c->g, op, 1, &x, 1, (ts_arg[]){ts_arg_int("keepdim", keepdim)});
    return ts_apply(c->g, op, 1, &x, 2,
                    (ts_arg[]){ts_arg_ints("dims", n, dims), ts_arg_int("keepdim", keepdim)});
}

/* sum(x, dtype) and sum(x, dims, keepdim, dtype), told apart by the type of the second argument;
 * a dtype comes as text. The result has PyTorch's dtype, so x is cast before. */
ts_value *ts_word_reduce(ts_call *c)
{
    ts_value *x = ts_call_tensor(c, 0);
    int64_t dims[TS_MAX_RANK];
    int n = ts_call_ints(c, 1, dims);

    if (x && ts_dtype_of(x) != c->dtype)
        x = ts_cast(x, c->dtype);
    return ts_call_fold(c, c->row->op, x, n, dims, ts_call_flag(c, 2));
}

ts_value *ts_word_logsumexp(ts_call *c)
{
    int64_t dims[TS_MAX_RANK];
    int n = ts_call_ints(c, 1, dims);

    return ts_logsumexp(ts_call_as(c, 0, c->dtype), n, dims, ts_call_flag(c, 2));
}

/* max(x); max(x, dim, keepdim) with the places; max(x, y) */
ts_value *ts_word_extreme(ts_call *c)
{
    bool max = !strcmp(c->row->op, "max");
    ts_value *x = ts_call_tensor(c, 0);
    int64_t dims[TS_MAX_RANK];
    int n = ts_call_ints(c, 1, dims);

    if (ts_call_tensor(c, 1))
        return ts_call_op2(max ? "maximum" : "minimum", c, ts_call_as(c, 0, c->dtype),
                           ts_call_as(c, 1, c->dtype));
    if (x && n && ts_rank(x)) { /* the gradient goes to the place */
        ts_arg along[] = {ts_arg_ints("dims", n, dims), ts_arg_int("keepdim", ts_call_flag(c, 2)),
                          ts_arg_text("ties", "first")};

        c->out[1] = ts_apply(c->g, max ? "argmax" : "argmin", 1, &x, 2, along);
        c->nout = 2;
        return ts_apply(c->g, max ? "amax" : "amin", 1, &x, 3, along);
    }
    return ts_call_fold(c, max ? "amax" : "amin", x, n, dims, n > 0 && ts_call_flag(c, 2));
}

ts_value *ts_word_argument(ts_call *c)
{
    int64_t dims[TS_MAX_RANK];
    int n = ts_call_ints(c, 1, dims);

    return ts_call_fold(c, c->row->op, ts_call_tensor(c, 0), n, dims, n > 0 && ts_call_flag(c, 2));
}

ts_value *ts_word_any(ts_call *c)
{
    int64_t dims[TS_MAX_RANK];
    int n = ts_call_ints(c, 1, dims);
    ts_value *x = ts_cast(ts_call_as(c, 0, TS_BOOL), TS_I32);

    return ts_cast(ts_call_fold(c, c->row->op, x, n, dims, n > 0 && ts_call_flag(c, 2)), TS_BOOL);
}

/* The square root whose slope at 0 is 0: PyTorch has it so for norms and deviations. */
static ts_value *root(ts_call *c, ts_value *x)
{
    ts_value *zero = ts_call_scalar(c, 0), *none = ts_eq(x, zero);

    return ts_where(none, zero, ts_sqrt(ts_where(none, ts_call_scalar(c, 1), x)));
}

/* var(x, dims, correction, keepdim): the mean of squares around the mean, in two passes */
ts_value *ts_word_variance(ts_call *c)
{
    ts_value *x = ts_call_as(c, 0, c->dtype), *mean, *v;
    int64_t dims[TS_MAX_RANK], count = 1;
    int n = ts_call_ints(c, 1, dims);
    double correction = ts_call_number(c, 2, 1);

    if (!x)
        return NULL;
    for (int i = 0; !n && i < ts_rank(x); i++)
        count *= ts_dim(x, i);
    for (int i = 0; i < n; i++)
        count *= ts_dim(x, (int)dims[i]);
    mean = ts_call_fold(c, "mean", x, n, dims, true);
    v = ts_call_fold(c, "sum", ts_square(ts_sub(x, mean)), n, dims, ts_call_flag(c, 3));
    v = ts_mul_scalar(v, 1 / ((double)count - correction));
    c->out[1] = v ? as_before(v, mean) : NULL;
    c->nout = 2;
    return !strcmp(c->row->op, "std") ? root(c, v) : v;
}

static ts_value *farthest(ts_call *c, const char *op, ts_value *x, int n, const int64_t *dims,
                          bool keep)
{
    ts_arg args[] = {ts_arg_text("ties", "norm"), ts_arg_int("keepdim", keep),
                     ts_arg_ints("dims", n, dims)};

    return x && ts_rank(x) ? ts_apply(c->g, op, 1, &x, n ? 3 : 2, args) : x;
}

static ts_value *p_norm(ts_call *c, ts_value *x, double p, int n, const int64_t *dims, bool keep)
{
    ts_value *none;

    if (p == 2)
        return root(c, ts_call_fold(c, "sum", ts_square(x), n, dims, keep));
    if (p == 1)
        return ts_call_fold(c, "sum", ts_abs(x), n, dims, keep);
    if (p == 0)
        return ts_call_fold(c, "sum", ts_cast(ts_ne(x, ts_call_scalar(c, 0)), c->dtype), n, dims,
                            keep);
    if (isinf(p))
        return farthest(c, p > 0 ? "amax" : "amin", ts_abs(x), n, dims, keep);
    none =
        ts_eq(x, ts_call_scalar(c, 0)); /* where the slope of a power is not finite, or of a root */
    x = ts_pow(ts_where(none, ts_call_scalar(c, 1), ts_abs(x)), ts_call_scalar(c, p));
    x = ts_call_fold(c, "sum", ts_where(none, ts_call_scalar(c, p > 0 ? 0 : INFINITY), x), n, dims,
                     keep);
    none = ts_eq(x, ts_call_scalar(c, 0));
    return ts_where(none, x,
                    ts_pow(ts_where(none, ts_call_scalar(c, 1), x), ts_call_scalar(c, 1 / p)));
}

/* Of half precision in f32: the powers of its elements are larger than its largest number. */
ts_value *ts_call_p_norm(ts_call *c, ts_value *x, double p, int n, const int64_t *dims, bool keep)
{
    ts_dtype t = c->dtype;

    if (!x || (t != TS_F16 && t != TS_BF16))
        return x ? p_norm(c, x, p, n, dims, keep) : NULL;
    c->dtype = TS_F32;
    x = p_norm(c, ts_cast(x, TS_F32), p, n, dims, keep);
    c->dtype = t;
    return x ? ts_cast(x, t) : NULL;
}

/* norm(x, p, dims, keepdim) */
ts_value *ts_word_norm(ts_call *c)
{
    int64_t dims[TS_MAX_RANK];
    int n = ts_call_ints(c, 2, dims);

    return ts_call_p_norm(c, ts_call_as(c, 0, c->dtype), ts_call_number(c, 1, 2), n, dims,
                          ts_call_flag(c, 3));
}

/* dist(x, y, p) */
ts_value *ts_word_dist(ts_call *c)
{
    ts_value *d = ts_sub(ts_call_as(c, 0, c->dtype), ts_call_as(c, 1, c->dtype));

    return ts_call_p_norm(c, d, ts_call_number(c, 2, 2), 0, NULL, false);
}

/* All dims of x but one; keeps them as 1. */
static ts_value *norm_but(ts_call *c, ts_value *x, double p, int dim)
{
    int64_t dims[TS_MAX_RANK];
    int n = 0;

    for (int i = 0; i < ts_rank(x); i++)
        if (i != dim)
            dims[n++] = i;
    return n ? ts_call_p_norm(c, x, p, n, dims, true) : ts_abs(x);
}

/* renorm(x, p, dim, maxnorm) */
ts_value *ts_word_renorm(ts_call *c)
{
    ts_value *x = ts_call_as(c, 0, c->dtype), *norm, *most = ts_call_as(c, 3, c->dtype);

    if (!x || !most)
        return NULL;
    norm = norm_but(c, x, ts_call_number(c, 1, 2), ts_call_dim(c, 2, ts_rank(x)));
    return ts_mul(x, ts_where(ts_gt(norm, most), ts_div(most, ts_add_scalar(norm, 1e-7)),
                              ts_call_scalar(c, 1)));
}

/* _weight_norm_interface(v, g, dim): v g / |v|, and the norms */
ts_value *ts_word_weight_norm(ts_call *c)
{
    ts_value *v = ts_call_as(c, 0, c->dtype), *g = ts_call_as(c, 1, c->dtype), *norm;

    if (!v || !g)
        return NULL;
    norm = norm_but(c, v, 2, ts_call_dim(c, 2, ts_rank(v)));
    c->out[1] = norm;
    c->nout = 2;
    return ts_mul(v, ts_div(g, norm));
}

/* nansum(x, dims, keepdim) */
ts_value *ts_word_nansum(ts_call *c)
{
    ts_value *x = ts_call_as(c, 0, c->dtype);
    int64_t dims[TS_MAX_RANK];
    int n = ts_call_ints(c, 1, dims);

    x = ts_where(ts_call_op1("isnan", c, x), ts_call_scalar(c, 0), x);
    return ts_call_fold(c, "sum", x, n, dims, ts_call_flag(c, 2));
}

/* count_nonzero(x, dims) */
ts_value *ts_word_count_nonzero(ts_call *c)
{
    int64_t dims[TS_MAX_RANK];
    int n = ts_call_ints(c, 1, dims);

    return ts_call_fold(c, "sum", ts_cast(ts_call_as(c, 0, TS_BOOL), TS_I64), n, dims, false);
}

/* aminmax(x, dim, keepdim) */
ts_value *ts_word_aminmax(ts_call *c)
{
    ts_value *x = ts_call_tensor(c, 0);
    int64_t dims[TS_MAX_RANK];
    int n = ts_call_ints(c, 1, dims);

    c->nout = 2;
    if (x && !ts_rank(x)) /* 1.13 has a dim more with keepdim */
        return c->out[1] = ts_reshape_n(x, c->rank, c->dims);
    c->out[1] = ts_call_fold(c, "amax", x, n, dims, ts_call_flag(c, 2));
    return ts_call_fold(c, "amin", x, n, dims, ts_call_flag(c, 2));
}

ts_value *ts_word_softmax(ts_call *c)
{
    ts_value *x = ts_call_as(c, 0, c->dtype);

    return x ? ts_apply(c->g, c->row->op, 1, &x, 1,
                        (ts_arg[]){ts_arg_int("dim", ts_call_int(c, 1, -1))})
             : NULL;
}
