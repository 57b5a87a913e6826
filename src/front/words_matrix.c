/* words_matrix.c - factors of matrices, and what is solved with them.
 *
 * Algorithms go column by column, written out, for a matrix's size is known: all of them are views,
 * pointwise ops and products, over any leading dims, and their gradients come for nothing. What PyTorch
 * raises for a singular matrix is infinities and NaN here.
 *
 * Eigenvectors are found by rotations without a gradient (Jacobi), and then improved twice by steps that
 * have one (Ogita and Aishima): each step squares the error, so that what is left of a small change of
 * the matrix is of fourth order, and three derivatives are exact.
 */
#include <math.h>
#include <string.h>

#include "front/words.h"

enum { ROWS = 64, TURNED_ROWS = 32 };

/* Eigenvalues this near to each other, relative to the largest, count as one: between them there is no
 * telling which vector is which. */
#define SAME 1e-10

/* --- places in a matrix ----------------------------------------------------------------------- */

/* NULL, like a value, once something was refused. */
static ts_graph *graph_of(const ts_value *a)
{
    return a ? a->graph : NULL;
}

static int64_t rows_of(const ts_value *a)
{
    return ts_dim(a, ts_rank(a) - 2);
}

static int64_t columns_of(const ts_value *a)
{
    return ts_dim(a, ts_rank(a) - 1);
}

static ts_value *turned(ts_value *a)
{
    return ts_transpose(a, ts_rank(a) - 2, ts_rank(a) - 1);
}

/* 0 .. n - 1 as a column, or as a row */
static ts_value *down(ts_graph *g, int64_t n)
{
    return g ? ts_iota(g, 2, (int64_t[]){n, 1}, 0, TS_I64) : NULL;
}

static ts_value *across(ts_graph *g, int64_t n)
{
    return g ? ts_iota(g, 2, (int64_t[]){1, n}, 1, TS_I64) : NULL;
}

static ts_value *whole(ts_graph *g, int64_t k)
{
    return g ? ts_scalar(g, TS_I64, (double)k) : NULL;
}

static ts_value *number(const ts_value *like, double x)
{
    return like ? ts_scalar(like->graph, ts_dtype_of(like), x) : NULL;
}

static ts_value *row(ts_value *a, int64_t k)
{
    return ts_slice(a, ts_rank(a) - 2, k, k + 1, 1);
}

static ts_value *column(ts_value *a, int64_t k)
{
    return ts_slice(a, ts_rank(a) - 1, k, k + 1, 1);
}

static ts_value *identity(const ts_value *like, int64_t n)
{
    ts_graph *g = graph_of(like);
    ts_value *i = down(g, n);

    return ts_cast(ts_eq(i, across(g, n)), ts_dtype_of(like));
}

/* x, repeated to these leading dims */
static ts_value *spread(ts_value *x, int nlead, const int64_t *lead)
{
    int64_t dims[TS_MAX_RANK];

    memcpy(dims, lead, sizeof(*dims) * (size_t)nlead);
    dims[nlead] = rows_of(x);
    dims[nlead + 1] = columns_of(x);
    return ts_expand_n(x, nlead + 2, dims);
}

/* x with all the leading dims that a and b have together, where each broadcasts */
static ts_value *spread_both(ts_value *x, const ts_value *a, const ts_value *b)
{
    int ra = ts_rank(a) - 2, rb = ts_rank(b) - 2, n = TS_MAX(ra, rb);
    int64_t dims[TS_MAX_RANK];

    if (!x || !a || !b)
        return NULL;
    for (int i = 0; i < n; i++) {
        int64_t da = i < n - ra ? 1 : ts_dim(a, i - (n - ra));
        int64_t db = i < n - rb ? 1 : ts_dim(b, i - (n - rb));
        dims[i] = da == 1 ? db : da;
    }
    return spread(x, n, dims);
}

/* Can it be written out? */
static bool fits(ts_call *c, const ts_value *a, bool square)
{
    if (!a)
        return false;
    if (ts_rank(a) < 2 || (square && rows_of(a) != columns_of(a))) {
        ts_call_refuse(c, "a factor of a tensor that is no square matrix");
        return false;
    }
    if (rows_of(a) <= ROWS)
        return true;
    ts_call_refuse(c, "a factor or an inverse of a matrix of %lld rows (%d at most)",
                   (long long)rows_of(a), ROWS);
    return false;
}

/* And does b fit to it, on the left or on the right? */
static bool meets(ts_call *c, const ts_value *a, const ts_value *b, bool left)
{
    if (!fits(c, a, true) || !b)
        return false;
    if (ts_rank(b) >= 2 && (left ? rows_of(b) : columns_of(b)) == rows_of(a))
        return true;
    ts_call_refuse(c, "a right side of other sizes than the matrix's");
    return false;
}

/* Results after the first. */
static void also(ts_call *c, int i, ts_value *v)
{
    c->out[i] = v;
    c->nout = TS_MAX(c->nout, i + 1);
}

/* No error, for each matrix. */
static ts_value *no_errors(const ts_value *a)
{
    return a ? ts_full_n(a->graph, TS_I32, 0, ts_rank(a) - 2, a->type.dim) : NULL;
}

/* --- triangles -------------------------------------------------------------------------------- */

/* Rows k and p change places; p is [.., 1, 1]. */
static ts_value *swapped(ts_value *a, int64_t k, ts_value *p)
{
    ts_value *i, *here, *from;

    if (!a || !p)
        return NULL;
    i = down(a->graph, rows_of(a));
    here = whole(a->graph, k);
    from = ts_where(ts_eq(i, p), here, i);
    from = ts_where(ts_eq(i, here), p, from);
    return ts_gather(a, ts_rank(a) - 2, ts_expand_n(from, ts_rank(a), a->type.dim));
}

/* The row below k, or k, with the largest element of column k: [.., 1, 1] */
static ts_value *pivot_of(ts_value *a, int64_t k, bool moves)
{
    ts_value *i = down(graph_of(a), rows_of(a)), *size;
    int64_t dims[TS_MAX_RANK];
    int rank = ts_rank(a);

    if (moves) {
        size = ts_abs(column(a, k));
        size = ts_where(ts_ge(i, whole(graph_of(a), k)), size, number(a, -1));
        return ts_argmax(size, rank - 2, true);
    }
    if (!a)
        return NULL;
    memcpy(dims, a->type.dim, sizeof(dims));
    dims[rank - 1] = dims[rank - 2] = 1;
    return ts_full_n(a->graph, TS_I64, (double)k, rank, dims);
}

/* Clears column k below the diagonal; what it took stands there instead. */
static ts_value *eliminated(ts_value *a, int64_t k)
{
    ts_graph *g = graph_of(a);
    ts_value *at = whole(g, k), *below = ts_gt(down(g, rows_of(a)), at);
    ts_value *j = across(g, columns_of(a)), *zero = number(a, 0), *taken, *left, *rest;

    taken = ts_div(column(a, k), row(column(a, k), k));
    taken = ts_where(below, taken, zero);
    left = ts_where(ts_gt(j, at), row(a, k), zero);
    rest = ts_sub(a, ts_mul(taken, left));
    return ts_where(ts_logical_and(below, ts_eq(j, at)), taken, rest);
}

/* Both factors in one matrix; in step k row k changed places with row pivots[k], counted from 1. */
static ts_value *factored(ts_value *a, bool moves, ts_value **pivots)
{
    ts_value *found[ROWS];
    int64_t n = rows_of(a);
    int rank = ts_rank(a);

    for (int64_t k = 0; k < n; k++) {
        ts_value *p = pivot_of(a, k, moves);

        a = swapped(a, k, p);
        a = eliminated(a, k);
        found[k] = ts_cast(ts_add_scalar(p, 1), TS_I32);
    }
    *pivots = ts_squeeze(ts_concat((int)n, found, rank - 1), rank - 2);
    return a;
}

/* a^-1 b, a triangular */
static ts_value *substituted(ts_value *a, ts_value *b, bool upper, bool unit)
{
    ts_graph *g = graph_of(b);
    int64_t n = rows_of(a);
    ts_value *i = down(g, n), *zero = number(b, 0), *x = spread_both(b, a, b);

    a = spread_both(a, a, b);
    for (int64_t step = 0; step < n; step++) {
        int64_t k = upper ? n - 1 - step : step;
        ts_value *at = whole(g, k), *found = row(x, k), *rest;

        if (!unit)
            found = ts_div(found, row(column(a, k), k));
        rest = ts_where(upper ? ts_lt(i, at) : ts_gt(i, at), column(a, k), zero);
        rest = ts_sub(x, ts_mul(rest, found));
        x = ts_where(ts_eq(i, at), found, rest);
    }
    return x;
}

/* The k-th pivot of every matrix, as swapped() takes it. */
static ts_value *pivot_at(ts_value *pivots, int64_t k)
{
    int rank = ts_rank(pivots);
    ts_value *p = ts_slice(pivots, rank - 1, k, k + 1, 1);

    return ts_unsqueeze(ts_add_scalar(ts_cast(p, TS_I64), -1), rank);
}

static ts_value *lu_solved(ts_value *lu, ts_value *pivots, ts_value *b, bool adjoint)
{
    int64_t n = rows_of(lu);

    b = spread_both(b, lu, b);
    if (adjoint) {
        b = substituted(turned(lu), b, false, false);
        b = substituted(turned(lu), b, true, true);
        for (int64_t k = n - 1; k >= 0; k--)
            b = swapped(b, k, pivot_at(pivots, k));
        return b;
    }
    for (int64_t k = 0; k < n; k++)
        b = swapped(b, k, pivot_at(pivots, k));
    b = substituted(lu, b, false, true);
    return substituted(lu, b, true, false);
}

static ts_value *lu_solved_on(ts_value *lu, ts_value *pivots, ts_value *b, bool left, bool adjoint)
{
    if (left)
        return lu_solved(lu, pivots, b, adjoint);
    return turned(lu_solved(lu, pivots, turned(b), !adjoint));
}

/* linalg_lu_factor_ex(a, pivot): lu, pivots, info */
ts_value *ts_word_lu_factor(ts_call *c)
{
    ts_value *a = ts_call_tensor(c, 0), *pivots, *lu;

    if (!fits(c, a, true))
        return NULL;
    lu = factored(a, ts_call_int(c, 1, 1) != 0, &pivots);
    also(c, 1, pivots);
    also(c, 2, no_errors(a));
    return lu;
}

/* linalg_lu_solve(lu, pivots, b, left, adjoint) */
ts_value *ts_word_lu_solve(ts_call *c)
{
    ts_value *lu = ts_call_tensor(c, 0), *pivots = ts_call_tensor(c, 1), *b = ts_call_tensor(c, 2);

    if (!pivots || !meets(c, lu, b, ts_call_int(c, 3, 1) != 0))
        return NULL;
    return lu_solved_on(lu, pivots, b, ts_call_int(c, 3, 1) != 0, ts_call_flag(c, 4));
}

/* Is b of a x = b a vector, or a batch of them, and no matrix? */
static bool is_vector(const ts_value *a, const ts_value *b)
{
    bool same = ts_rank(b) == ts_rank(a) - 1;

    for (int i = 0; same && i < ts_rank(b); i++)
        same = ts_dim(a, i) == ts_dim(b, i);
    return ts_rank(b) == 1 || same;
}

/* _linalg_solve_ex(a, b, left, check_errors, turned): x, lu, pivots, info. PyTorch's gradient expects
 * the factors of the transpose from some releases: turned. */
ts_value *ts_word_solve(ts_call *c)
{
    ts_value *a = ts_call_tensor(c, 0), *b = ts_call_tensor(c, 1), *lu, *pivots, *x;
    bool other = ts_call_flag(c, 4), vector;

    if (!fits(c, a, true) || !b)
        return NULL;
    vector = is_vector(a, b);
    b = vector ? ts_unsqueeze(b, ts_rank(b)) : b;
    if (!meets(c, a, b, vector || ts_call_int(c, 2, 1) != 0))
        return NULL;
    lu = factored(other ? turned(a) : a, true, &pivots);
    x = lu_solved_on(lu, pivots, b, vector || ts_call_int(c, 2, 1) != 0, other);
    also(c, 1, lu);
    also(c, 2, pivots);
    also(c, 3, no_errors(a));
    return vector ? ts_squeeze(x, ts_rank(x) - 1) : x;
}

/* linalg_inv_ex(a, check_errors): inverse, info */
ts_value *ts_word_inverse(ts_call *c)
{
    ts_value *a = ts_call_tensor(c, 0), *lu, *pivots;

    if (!fits(c, a, true))
        return NULL;
    lu = factored(a, true, &pivots);
    also(c, 1, no_errors(a));
    return lu_solved(lu, pivots, identity(a, rows_of(a)), false);
}

/* -1 for an odd number of exchanged rows, else 1 */
static ts_value *sign_of(ts_value *pivots, const ts_value *like)
{
    int rank = ts_rank(pivots);
    int64_t n = ts_dim(pivots, rank - 1), last[] = {rank - 1};
    ts_value *stays, *one = number(like, 1);

    if (!pivots)
        return NULL;
    stays = ts_add_scalar(ts_iota(pivots->graph, 1, &n, 0, TS_I32), 1);
    stays = ts_where(ts_eq(pivots, stays), one, number(like, -1));
    return ts_prod(stays, 1, last, false);
}

/* _linalg_det(a, turned): det, lu, pivots. _linalg_slogdet: sign, log |det|, lu, pivots */
ts_value *ts_word_det(ts_call *c)
{
    ts_value *a = ts_call_tensor(c, 0), *lu, *pivots, *d, *sign;
    bool logs = !strcmp(c->row->op, "slogdet");
    int64_t last[1];

    if (!fits(c, a, true))
        return NULL;
    lu = factored(ts_call_flag(c, 1) ? turned(a) : a, true, &pivots);
    d = ts_diagonal(lu, 0, -2, -1);
    sign = sign_of(pivots, a);
    last[0] = ts_rank(d) - 1;
    also(c, 1 + logs, lu);
    also(c, 2 + logs, pivots);
    if (!logs)
        return ts_mul(sign, ts_prod(d, 1, last, false));
    also(c, 1, ts_sum(ts_log(ts_abs(d)), 1, last, false));
    return ts_mul(sign, ts_prod(ts_sign(d), 1, last, false));
}

/* The permutation and the two triangles of lu. */
static ts_value *unpacked(ts_call *c, ts_value *lu, ts_value *pivots)
{
    ts_graph *g = graph_of(lu);
    int64_t n = rows_of(lu);
    ts_value *i = down(g, n), *j = across(g, n), *one = identity(lu, n), *p, *l;

    p = spread_both(one, lu, lu);
    for (int64_t k = 0; k < n; k++)
        p = swapped(p, k, pivot_at(pivots, k));
    l = ts_where(ts_gt(i, j), lu, number(lu, 0));
    also(c, 1, ts_add(l, one));
    also(c, 2, ts_triu(lu, 0));
    return turned(p);
}

/* linalg_lu(a, pivot): p, l, u */
ts_value *ts_word_lu(ts_call *c)
{
    ts_value *a = ts_call_tensor(c, 0), *pivots, *lu;

    if (!fits(c, a, true))
        return NULL;
    lu = factored(a, ts_call_int(c, 1, 1) != 0, &pivots);
    return unpacked(c, lu, pivots);
}

/* lu_unpack(lu, pivots): p, l, u */
ts_value *ts_word_lu_unpack(ts_call *c)
{
    ts_value *lu = ts_call_tensor(c, 0), *pivots = ts_call_tensor(c, 1);

    return fits(c, lu, true) && pivots ? unpacked(c, lu, pivots) : NULL;
}

/* linalg_solve_triangular(a, b, upper, left, unitriangular) */
ts_value *ts_word_solve_triangular(ts_call *c)
{
    ts_value *a = ts_call_tensor(c, 0), *b = ts_call_tensor(c, 1);
    bool upper = ts_call_flag(c, 2), unit = ts_call_flag(c, 4);

    if (!meets(c, a, b, ts_call_int(c, 3, 1) != 0))
        return NULL;
    if (ts_call_int(c, 3, 1))
        return substituted(a, b, upper, unit);
    return turned(substituted(turned(a), turned(b), !upper, unit));
}

/* --- symmetric matrices ----------------------------------------------------------------------- */

static ts_value *symmetric(ts_value *a)
{
    return ts_mul_scalar(ts_add(a, turned(a)), 0.5);
}

/* linalg_cholesky_ex(a, upper): factor, info. The gradient is symmetric, as PyTorch's: it reads both
 * halves. */
ts_value *ts_word_cholesky(ts_call *c)
{
    ts_value *a = ts_call_tensor(c, 0), *columns[ROWS], *rest, *i;

    if (!fits(c, a, true))
        return NULL;
    i = down(c->g, rows_of(a));
    rest = symmetric(a);
    for (int64_t k = 0; k < rows_of(a); k++) {
        ts_value *at = whole(c->g, k), *top = ts_sqrt(row(column(rest, k), k)), *x;

        x = ts_where(ts_eq(i, at), top, number(a, 0));
        x = ts_where(ts_gt(i, at), ts_div(column(rest, k), top), x);
        rest = ts_sub(rest, ts_mul(x, turned(x)));
        columns[k] = x;
    }
    rest = ts_concat((int)rows_of(a), columns, ts_rank(a) - 1);
    also(c, 1, no_errors(a));
    return ts_call_flag(c, 1) ? turned(rest) : rest;
}

static ts_value *cholesky_solved(ts_value *b, ts_value *factor, bool upper)
{
    ts_value *lower = upper ? turned(factor) : factor;

    b = substituted(lower, b, false, false);
    return substituted(turned(lower), b, true, false);
}

/* cholesky_solve(b, factor, upper) */
ts_value *ts_word_cholesky_solve(ts_call *c)
{
    ts_value *b = ts_call_tensor(c, 0), *factor = ts_call_tensor(c, 1);

    return meets(c, factor, b, true) ? cholesky_solved(b, factor, ts_call_flag(c, 2)) : NULL;
}

/* cholesky_inverse(factor, upper) */
ts_value *ts_word_cholesky_inverse(ts_call *c)
{
    ts_value *factor = ts_call_tensor(c, 0);

    if (!fits(c, factor, true))
        return NULL;
    return cholesky_solved(identity(factor, rows_of(factor)), factor, ts_call_flag(c, 1));
}

/* --- reflections and series ------------------------------------------------------------------- */

/* The reflection that clears column k of a below the diagonal, as a unit vector; signs as LAPACK's. Where there is nothing
 * to clear it is 0, which reflects nothing. */
static ts_value *mirror(ts_value *a, int64_t k)
{
    ts_graph *g = graph_of(a);
    ts_value *i = down(g, rows_of(a)), *at = whole(g, k), *zero = number(a, 0), *x, *size, *v,
             *clear;
    int64_t dims[] = {ts_rank(a) - 2};

    x = ts_where(ts_ge(i, at), column(a, k), zero);
    size = ts_sum(ts_square(ts_where(ts_gt(i, at), x, zero)), 1, dims, true);
    clear = ts_eq(size, zero);
    size = ts_sqrt(ts_where(clear, number(a, 1), ts_sum(ts_square(x), 1, dims, true)));
    size = ts_where(ts_lt(x, zero), ts_neg(size), size);
    v = ts_add(x, ts_where(ts_eq(i, at), size, zero));
    size = ts_where(clear, number(a, 1), ts_sum(ts_square(v), 1, dims, true));
    return ts_where(clear, zero, ts_mul(v, ts_rsqrt(size)));
}

/* Reflects *a until nothing is below its diagonal; what undoes that, an orthonormal basis. */
static ts_value *reflected(ts_value **a)
{
    int64_t m = rows_of(*a), n = columns_of(*a);
    ts_value *q = spread_both(identity(*a, m), *a, *a), *v, *turn;

    for (int64_t k = 0; k < TS_MIN(n, m - 1); k++) {
        v = mirror(*a, k);
        turn = ts_mul_scalar(turned(v), 2);
        *a = ts_sub(*a, ts_mul(v, ts_matmul(turn, *a)));
        q = ts_sub(q, ts_mul(ts_matmul(q, v), turn));
    }
    return q;
}

/* linalg_qr(a, mode): q, r */
ts_value *ts_word_qr(ts_call *c)
{
    ts_value *a = ts_call_tensor(c, 0), *q;
    const char *mode = ts_call_text(c, 1, "reduced");
    int64_t n;

    if (!fits(c, a, false))
        return NULL;
    n = columns_of(a);
    q = reflected(&a);
    a = ts_triu(a, 0);
    if (strcmp(mode, "complete") && rows_of(a) > n) {
        a = ts_slice(a, ts_rank(a) - 2, 0, n, 1);
        q = ts_slice(q, ts_rank(q) - 1, 0, n, 1);
    }
    also(c, 1, a);
    return strcmp(mode, "r") ? q : ts_full_n(c->g, c->dtype, 0, 1, (int64_t[]){0});
}

/* linalg_matrix_exp(a): the series of a / 32, 18 terms, squared five times: enough up to norms of
 * about 100 */
ts_value *ts_word_matrix_exp(ts_call *c)
{
    ts_value *a = ts_call_tensor(c, 0), *one, *y;

    if (!a || ts_rank(a) < 2)
        return ts_call_refuse(c, "the exponential of a tensor that is no matrix");
    y = one = identity(a, rows_of(a));
    a = ts_mul_scalar(a, 1.0 / 32);
    for (int k = 18; k > 0; k--)
        y = ts_add(one, ts_mul_scalar(ts_matmul(a, y), 1.0 / k));
    for (int k = 0; k < 5; k++)
        y = ts_matmul(y, y);
    return y;
}

/* --- eigenvalues ------------------------------------------------------------------------------ */

/* Who turns with whom in a round, all at once: a tournament of n players, in which everybody meets
 * everybody in n - 1 rounds; of an odd number one waits, and is its own partner. */
static void partners(int64_t n, int64_t round, int64_t *with)
{
    int64_t even = n + n % 2;

    for (int64_t i = 0; i < even / 2; i++) {
        int64_t a = i ? (round + i) % (even - 1) : even - 1,
                b = (round + even - 1 - i) % (even - 1);

        if (a < n)
            with[a] = b < n ? b : a;
        if (b < n)
            with[b] = a < n ? a : b;
    }
}

typedef struct turns {
    ts_value *a, *v;
} turns;

/* The tangents of a round's angles: sign(x) / (|x| + sqrt(1 + x^2)) of x = (a_qq - a_pp) / (2 a_pq) */
static ts_value *tangents(ts_value *a, ts_value *index, const int64_t *with)
{
    int rank = ts_rank(a);
    int64_t n = rows_of(a);
    double way[TURNED_ROWS * 2];
    ts_value *d = ts_diagonal(a, 0, -2, -1), *far, *off, *x, *sign, *size, *zero = number(a, 0);

    for (int64_t i = 0; i < n; i++)
        way[i] = i < with[i] ? 1 : i > with[i] ? -1 : 0;
    far = ts_index_select(d, rank - 2, index);
    off = ts_diagonal(ts_index_select(a, rank - 1, index), 0, -2, -1); /* a[i, with[i]] */
    /* The same for both of a pair, to the bit, though a is symmetric only to rounding: else the two would
     * turn by different angles. */
    off = ts_mul_scalar(ts_add(off, ts_index_select(off, rank - 2, index)), 0.5);
    sign = ts_cast(ts_const_n(a->graph, TS_F64, way, 1, &n), ts_dtype_of(a));
    x = ts_div(ts_sub(far, d), ts_where(ts_eq(off, zero), number(a, 1), ts_mul_scalar(off, 2)));
    size = ts_add(ts_abs(x), ts_sqrt(ts_add_scalar(ts_square(x), 1)));
    sign = ts_where(ts_eq(x, zero), sign, ts_sign(x));
    x = ts_div(sign, size);
    return ts_where(ts_eq(off, zero), zero, x);
}

/* Turns all pairs of a round: columns, then rows of a; columns of v. */
static void turn(turns *t, const int64_t *with)
{
    int rank = ts_rank(t->a);
    int64_t n = rows_of(t->a);
    ts_value *index, *tan, *cos, *sin;

    if (!t->a)
        return;
    index = ts_const_n(t->a->graph, TS_I64, with, 1, &n);
    tan = tangents(t->a, index, with);
    cos = ts_rsqrt(ts_add_scalar(ts_square(tan), 1));
    sin = ts_unsqueeze(ts_mul(tan, cos), rank - 2);
    cos = ts_unsqueeze(cos, rank - 2);
    t->a = ts_sub(ts_mul(t->a, cos), ts_mul(ts_index_select(t->a, rank - 1, index), sin));
    t->v = ts_sub(ts_mul(t->v, cos), ts_mul(ts_index_select(t->v, rank - 1, index), sin));
    cos = turned(cos);
    sin = turned(sin);
    t->a = ts_sub(ts_mul(t->a, cos), ts_mul(ts_index_select(t->a, rank - 2, index), sin));
}

/* One step of Ogita and Aishima: v nearer to the eigenvectors of a, and their values. */
static ts_value *improved(ts_value *a, ts_value *v, ts_value **values)
{
    int rank = ts_rank(a);
    int64_t n = rows_of(a), last[] = {rank - 2};
    ts_value *one = identity(a, n), *rest, *s, *at, *gap, *near, *e, *limit;

    rest = ts_sub(one, ts_matmul(turned(v), v));
    s = ts_matmul(turned(v), ts_matmul(a, v));
    at = ts_diagonal(rest, 0, -2, -1);
    at = ts_div(ts_diagonal(s, 0, -2, -1), ts_sub(number(a, 1), at));
    *values = at;
    limit = ts_amax(ts_abs(ts_detach(at)), 1, last, true);
    limit = ts_unsqueeze(ts_mul_scalar(limit, SAME), rank - 1);
    gap = ts_sub(ts_unsqueeze(at, rank - 2), ts_unsqueeze(at, rank - 1));
    near = ts_le(ts_abs(gap), limit);
    e = ts_add(s, ts_mul(ts_unsqueeze(at, rank - 2), rest));
    e = ts_div(e, ts_where(near, number(a, 1), gap));
    e = ts_where(near, ts_mul_scalar(rest, 0.5), e);
    return ts_add(v, ts_matmul(v, e));
}

/* The eigenvectors of symmetric matrices of f64 as columns, their values in ascending order. */
static ts_value *eigen(ts_value *a, ts_value **values)
{
    int64_t n = rows_of(a), with[TURNED_ROWS * 2];
    int rank = ts_rank(a), sweeps = n <= 4 ? 5 : n <= 16 ? 8 : 10;
    turns t = {ts_detach(a), NULL};
    ts_value *order;

    t.v = spread_both(identity(a, n), a, a);
    for (int s = 0; s < sweeps && n > 1; s++)
        for (int64_t round = 0; round < n + n % 2 - 1; round++) {
            partners(n, round, with);
            turn(&t, with);
        }
    order = ts_argsort(ts_diagonal(t.a, 0, -2, -1), -1, false);
    order = ts_expand_n(ts_unsqueeze(order, rank - 2), rank, a->type.dim);
    t.v = ts_gather(t.v, rank - 1, order);
    t.v = improved(a, t.v, values);
    t.v = improved(a, t.v, values);
    return t.v;
}

static bool turns_fit(ts_call *c, int64_t n)
{
    if (n <= TURNED_ROWS)
        return true;
    ts_call_refuse(
        c, "eigenvalues and singular values of a matrix of %lld rows and columns (%d at most)",
        (long long)n, TURNED_ROWS);
    return false;
}

/* _linalg_eigh(a, UPLO): values, vectors. Values are of the triangle that UPLO names, the gradient is
 * symmetric. */
ts_value *ts_word_eigh(ts_call *c)
{
    ts_value *a = ts_call_tensor(c, 0), *half, *both, *values, *vectors;
    bool upper = strchr("Uu", ts_call_text(c, 1, "L")[0]) != NULL;

    if (!fits(c, a, true) || !turns_fit(c, rows_of(a)))
        return NULL;
    a = ts_cast(a, TS_F64);
    half = upper ? ts_triu(a, 1) : ts_tril(a, -1);
    half = ts_add(ts_add(half, turned(half)), ts_mul(a, identity(a, rows_of(a))));
    both = symmetric(a);
    a = ts_add(both, ts_detach(ts_sub(half, both)));
    vectors = eigen(a, &values);
    also(c, 1, ts_cast(vectors, c->dtype));
    return ts_cast(values, c->dtype);
}

/* Columns of u that do not count, the last ones, are replaced by what completes the basis, to `all` columns. */
static ts_value *completed(ts_value *u, ts_value *counts, int64_t all)
{
    int64_t k = columns_of(u);
    int last = ts_rank(u) - 1;
    ts_value *some = ts_where(counts, ts_detach(u), number(u, 0)), *q = reflected(&some);

    u = ts_where(counts, u, ts_slice(q, last, 0, k, 1));
    return all > k ? ts_concat(2, (ts_value *[]){u, ts_slice(q, last, k, all, 1)}, last) : u;
}

/* Of singular values that are 0 the eigenvectors are any mixture of (u, 0), (0, v) and those of other zeros: there any
 * orthonormal vectors will do, and the value's gradient is u v'. */
static ts_value *complete(ts_value *a, ts_value *values, ts_value **u, ts_value **v, bool full)
{
    int rank = ts_rank(a);
    int64_t last[] = {rank - 2}, k = columns_of(*u);
    ts_value *most = ts_mul_scalar(ts_amax(ts_detach(values), 1, last, true), SAME);
    ts_value *counts = ts_gt(values, most), *none, *rows = ts_unsqueeze(counts, rank - 2);

    *u = completed(*u, rows, full ? rows_of(*u) : k);
    *v = completed(*v, rows, full ? rows_of(*v) : k);
    none = ts_matmul(turned(ts_detach(*u)), ts_matmul(a, ts_detach(*v)));
    none = ts_diagonal(none, 0, -2, -1);
    none = ts_add(ts_maximum(ts_detach(values), number(a, 0)), ts_sub(none, ts_detach(none)));
    return ts_where(counts, values, none);
}

/* _linalg_svd(a, full_matrices): u, s, vh. Of a [m, n] matrix, k = min(m, n): the k largest
 * eigenvalues of [0 a; a' 0], whose eigenvectors are (u, v) / sqrt(2). */
ts_value *ts_word_svd(ts_call *c)
{
    ts_value *a = ts_call_tensor(c, 0), *values, *v, *top, *wide;
    int64_t m, n, k, lo[TS_MAX_RANK] = {0}, hi[TS_MAX_RANK] = {0}, last[1];
    int rank;

    if (!fits(c, a, false))
        return NULL;
    m = rows_of(a);
    n = columns_of(a);
    k = TS_MIN(m, n);
    rank = ts_rank(a);
    if (!turns_fit(c, TS_MAX(m, n)))
        return NULL;
    a = ts_cast(a, TS_F64);
    lo[rank - 1] = m;
    hi[rank - 2] = n;
    wide = ts_pad(a, rank, lo, hi, 0); /* [m + n, m + n]: a in the upper right */
    v = eigen(ts_add(wide, turned(wide)), &values);
    last[0] = rank - 1;
    v = ts_flip(ts_slice(v, rank - 1, m + n - k, m + n, 1), 1, last);
    v = ts_mul_scalar(v, sqrt(2));
    last[0] = rank - 2;
    values = ts_flip(ts_slice(values, rank - 2, m + n - k, m + n, 1), 1, last);
    top = ts_slice(v, rank - 2, 0, m, 1);
    v = ts_slice(v, rank - 2, m, m + n, 1);
    values = complete(a, values, &top, &v, ts_call_int(c, 1, 1));
    also(c, 1, ts_cast(values, c->dtype));
    also(c, 2, ts_cast(turned(v), c->dtype));
    return ts_cast(top, c->dtype);
}
