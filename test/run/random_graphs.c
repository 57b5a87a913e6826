/* random_graphs.c - random networks, natively and by the reference executor.
 *
 * A seed decides everything: the graph, the options (passes left out, instruction set, compiler,
 * optimizer, iterations), the data. Each graph runs in a process of its own, two at a time, so
 * generated code that crashes or hangs is a failure like any other. A failing graph is made smaller
 * while it still fails and written to fuzz-<seed>.ir in the build folder.
 *
 *   FUZZ_SEED=17          only this one
 *   FUZZ_COUNT=5000       how many; 300, fewer with sanitizers
 *   FUZZ_SECONDS=3600     as many as fit
 *   TS_ROUND=3            the third repetition of a soak: other seeds
 *
 * Where rounding is amplified (an argmax of equal numbers, relu of 0 in the backward pass) both
 * executors are right and differ. Such graphs are recognised by shaking the reference's own inputs
 * a little: what then moves as much as the difference found says nothing.
 */
#include "compare.h"
#include "render/render.h"
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#if defined(__SANITIZE_ADDRESS__)
enum { COUNT = 60 };
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
enum { COUNT = 60 };
#else
enum { COUNT = 300 };
#endif
#else
enum { COUNT = 300 };
#endif

enum { POOL = 256, ELEMENTS = 6000, JOBS = 2, CALLS = 2 };

/* --- the generator --- */

typedef struct item {
    ts_value *v;
    bool exact; /* whole numbers, the same in both executors: may be compared, rounded, argmax'ed */
    double mag; /* about the largest magnitude */
} item;

typedef struct gen {
    ts_graph *g;
    uint64_t s;
    item pool[POOL];
    int n, leaves;
    ts_dtype half; /* the half precision of this graph */
} gen;

static int roll(gen *q, int n)
{
    return (int)(next_random(&q->s) % (uint64_t)n);
}

static bool odds(gen *q, int percent)
{
    return roll(q, 100) < percent;
}

static double most_exact(ts_dtype t)
{
    return t == TS_BF16               ? 200
           : t == TS_F16              ? 2000
           : t == TS_F32              ? 1e6
           : t == TS_U8 || t == TS_I8 ? 256
                                      : 1e9;
}

static const item none;

static item made(ts_value *v, bool exact, double mag)
{
    if (!v)
        return none;
    if (v->type.dtype == TS_BOOL)
        mag = 1;
    if (v->type.dtype == TS_U8 || v->type.dtype == TS_I8)
        mag = fmin(mag, 256);
    if (ts_dtype_is_float(v->type.dtype) && mag > most_exact(v->type.dtype))
        exact = false;
    return (item){v, exact, mag};
}

static bool is_float(item x)
{
    return ts_dtype_is_float(x.v->type.dtype);
}

static int64_t count_of(item x)
{
    return ts_type_count(&x.v->type);
}

static ts_type some_shape(gen *q, int rank)
{
    static const int64_t sizes[] = {1, 2, 2, 3, 3, 4, 5, 6, 7, 8, 9, 12, 16, 17, 24, 33};
    ts_type t = {.rank = rank};
    int64_t count = 1;

    for (int i = 0; i < rank; i++) {
        t.dim[i] = sizes[roll(q, TS_COUNT(sizes))];
        if (count * t.dim[i] > ELEMENTS / 4)
            t.dim[i] = 1 + roll(q, 3);
        count *= t.dim[i];
    }
    return t;
}

/* A tensor from outside: fed, kept or constant. */
static item leaf(gen *q, ts_dtype t, const ts_type *shape, bool exact)
{
    char name[32];
    ts_type full = ts_type_of(t, shape->rank, shape->dim);
    ts_init init = {TS_INIT_UNIFORM, -1, 1};
    double mag = exact || !ts_dtype_is_float(t) ? 3 : 1;
    bool floats = ts_dtype_is_float(t);
    ts_value *v;

    exact = exact || !floats;
    snprintf(name, sizeof(name), "%c%d", exact ? 'k' : 'x', q->leaves++);
    switch (roll(q, 10)) {
    case 0:
    case 1:
    case 2:
        if (floats && !exact) {
            v = ts_param_n(q->g, name, t, init, shape->rank, shape->dim);
            break;
        }
        /* fall through */
    case 3:
        if (t != TS_BOOL && t != TS_U8) {
            v = ts_buffer_n(q->g, name, t, exact ? (ts_init){TS_INIT_FULL, 2, 0} : init,
                            shape->rank, shape->dim);
            break;
        }
        /* fall through */
    case 4: {
        ts_tensor_info info = {.name = name, .dtype = t, .bytes = ts_type_bytes(&full)};
        void *data = malloc(info.bytes + 1);
        fill_input(&info, 1, q->s, 0, data);
        v = ts_const_n(q->g, t, data, shape->rank, shape->dim);
        free(data);
        break;
    }
    case 5:
        if (floats && !exact) {
            v = ts_rand_n(q->g, t == TS_F64 ? TS_F32 : t, shape->rank, shape->dim);
            break;
        }
        v = ts_full_n(q->g, t, t == TS_BOOL ? roll(q, 2) : roll(q, 4), shape->rank, shape->dim);
        break;
    default:
        v = ts_input_n(q->g, name, t, shape->rank, shape->dim);
    }
    return made(v, exact, mag);
}

static ts_dtype some_float(gen *q)
{
    int k = roll(q, 20);

    return k < 16 ? TS_F32 : k < 18 ? q->half : TS_F64;
}

static ts_dtype some_int(gen *q)
{
    static const ts_dtype all[] = {TS_I32, TS_I32, TS_I64, TS_U8, TS_I8, TS_BOOL};

    return all[roll(q, TS_COUNT(all))];
}

static item pick(gen *q)
{
    return q->pool[odds(q, 70) ? q->n - 1 - roll(q, TS_MIN(q->n, 6)) : roll(q, q->n)];
}

static item pick_float(gen *q)
{
    item x = pick(q);

    for (int i = 0; i < 10 && !is_float(x); i++)
        x = pick(q);
    return is_float(x) ? x : made(ts_cast(x.v, TS_F32), x.exact, x.mag);
}

static item pick_exact(gen *q)
{
    for (int i = 0; i < 10; i++) {
        item x = pick(q);
        if (x.exact)
            return x;
    }
    ts_type t = some_shape(q, roll(q, 4));
    return leaf(q, odds(q, 50) ? TS_F32 : some_int(q), &t, true);
}

/* Bounded again before it explodes. */
static item tame(item x)
{
    if (!x.v || !is_float(x) || x.exact || x.mag <= 20)
        return x;
    return made(ts_tanh(x.v), false, 1);
}

static item same_shape_leaf(gen *q, item x, ts_dtype t, bool exact)
{
    ts_type s = x.v->type;

    if (odds(q, 40)) { /* something that broadcasts */
        int drop = s.rank ? roll(q, s.rank + 1) : 0;
        s.rank -= drop;
        memmove(s.dim, s.dim + drop, sizeof(s.dim[0]) * (size_t)s.rank);
        for (int i = 0; i < s.rank; i++)
            if (odds(q, 40))
                s.dim[i] = 1;
    }
    return leaf(q, t, &s, exact);
}

static bool broadcasts(item x, item y)
{
    const ts_type *a = &x.v->type, *b = &y.v->type;
    int64_t count = 1;

    for (int i = 1; i <= TS_MAX(a->rank, b->rank); i++) {
        int64_t p = i <= a->rank ? a->dim[a->rank - i] : 1,
                r = i <= b->rank ? b->dim[b->rank - i] : 1;
        if (p != r && p != 1 && r != 1)
            return false;
        count *= TS_MAX(p, r);
    }
    return count <= ELEMENTS;
}

static item partner(gen *q, item x, bool exact)
{
    for (int i = 0; i < 12; i++) {
        item y = exact ? pick_exact(q) : pick_float(q);
        if (broadcasts(x, y))
            return y;
    }
    return same_shape_leaf(q, x, exact ? x.v->type.dtype : some_float(q), exact);
}

/* Reshaped to this rank, by folding dims or adding ones. */
static item of_rank(gen *q, item x, int rank)
{
    ts_type t = x.v->type;

    while (t.rank > rank) {
        int d = t.rank > 1 ? roll(q, t.rank - 1) : 0;
        if (t.rank == 1 && t.dim[0] > 1)
            break;
        if (t.rank > 1) {
            t.dim[d] *= t.dim[d + 1];
            memmove(&t.dim[d + 1], &t.dim[d + 2], sizeof(t.dim[0]) * (size_t)(t.rank - d - 2));
        }
        t.rank--;
    }
    while (t.rank < rank) { /* split a dim, or put a 1 somewhere */
        int d = roll(q, t.rank + 1);
        int64_t f = 1;
        if (d < t.rank && odds(q, 70))
            for (int64_t k = 2; k < 5; k++)
                f = t.dim[d] % k == 0 ? k : f;
        memmove(&t.dim[d + 1], &t.dim[d], sizeof(t.dim[0]) * (size_t)(t.rank - d));
        t.rank++;
        if (d + 1 < t.rank && f > 1) {
            t.dim[d] = f;
            t.dim[d + 1] /= f;
        } else
            t.dim[d] = 1;
    }
    return made(ts_reshape_n(x.v, t.rank, t.dim), x.exact, x.mag);
}

/* --- families --- */

static item op_unary(gen *q)
{
    item x = tame(pick_float(q));
    ts_value *v = x.v, *one;

    if (x.exact && odds(q, 50)) {
        static const char *const ops[] = {"neg",   "abs",  "sign",  "square", "relu", "step",
                                          "floor", "ceil", "round", "trunc",  "nop",  "detach"};
        const char *op = ops[roll(q, TS_COUNT(ops))];
        double mag = !strcmp(op, "square") ? x.mag * x.mag : x.mag;
        return mag > most_exact(v->type.dtype) ? none : made(ts_point1(op, v), true, mag);
    }
    one = ts_scalar(q->g, v->type.dtype, 1);
    switch (roll(q, 26)) {
    case 0:
        return made(ts_neg(v), false, x.mag);
    case 1:
        return made(ts_abs(v), false, x.mag);
    case 2:
        return made(ts_square(v), false, x.mag * x.mag);
    case 3:
        return made(ts_reciprocal(ts_add(ts_abs(v), one)), false, 1);
    case 4:
        return made(ts_sqrt(ts_add(ts_abs(v), one)), false, x.mag + 1);
    case 5:
        return made(ts_rsqrt(ts_add(ts_square(v), one)), false, 1);
    case 6:
        return made(ts_exp(ts_tanh(v)), false, 3);
    case 7:
        return made(ts_point1("expm1", ts_tanh(v)), false, 3);
    case 8:
        return made(ts_log(ts_add(ts_square(v), one)), false, 6);
    case 9:
        return made(ts_point1("log1p", ts_abs(v)), false, 6);
    case 10:
        return made(ts_point1(odds(q, 50) ? "log2" : "log10", ts_add(ts_abs(v), one)), false, 6);
    case 11:
        return made(ts_point1("sin", v), false, 1);
    case 12:
        return made(ts_point1("cos", v), false, 1);
    case 13:
    case 14:
        return made(ts_tanh(v), false, 1);
    case 15:
        return made(ts_erf(v), false, 1);
    case 16:
        return made(ts_sigmoid(v), false, 1);
    case 17:
        return made(ts_relu(v), false, x.mag);
    case 18:
        return made(ts_leaky_relu(v, 0.1), false, x.mag);
    case 19:
        return made(odds(q, 70) ? ts_gelu(v)
                                : ts_apply(q->g, "gelu", 1, &v, "approximate:s", "tanh"),
                    false, x.mag);
    case 20:
        return made(ts_silu(v), false, x.mag);
    case 21:
        return made(ts_elu(v, 0.7), false, x.mag);
    case 22:
        return made(ts_softplus(v), false, x.mag + 1);
    case 23:
        return made(ts_clamp(v, -0.5, 0.75), false, 1);
    case 24:
        return made(ts_dropout(v, 0.3, odds(q, 80)), false, 2 * x.mag);
    default:
        return made(ts_detach(v), x.exact, x.mag);
    }
}

static item op_binary(gen *q)
{
    item x = tame(pick_float(q)), y = tame(partner(q, x, false));

    switch (roll(q, 10)) {
    case 0:
    case 1:
        return made(ts_add(x.v, y.v), x.exact && y.exact, x.mag + y.mag);
    case 2:
    case 3:
        return made(ts_sub(x.v, y.v), x.exact && y.exact, x.mag + y.mag);
    case 4:
    case 5:
        return made(ts_mul(x.v, y.v), x.exact && y.exact, x.mag * y.mag);
    case 6:
        return made(ts_div(x.v, ts_add_scalar(ts_abs(y.v), 1)), false, x.mag);
    case 7:
        return made(odds(q, 50) ? ts_maximum(x.v, y.v) : ts_minimum(x.v, y.v), x.exact && y.exact,
                    fmax(x.mag, y.mag));
    case 8:
        return made(ts_pow(ts_add_scalar(ts_abs(x.v), 0.5), ts_tanh(y.v)), false, x.mag + 2);
    default:
        return made(ts_point2("atan2", ts_add_scalar(ts_abs(x.v), 0.5), y.v), false, 4);
    }
}

static item op_compare(gen *q)
{
    static const char *const ops[] = {"eq", "ne",          "lt",         "le",         "gt",
                                      "ge", "logical_and", "logical_or", "logical_xor"};
    item x = pick_exact(q), y = partner(q, x, true);

    if (odds(q, 20))
        return made(ts_point1(odds(q, 50) && is_float(x) ? "isnan" : "logical_not", x.v), true, 1);
    return made(ts_point2(ops[roll(q, TS_COUNT(ops))], x.v, y.v), true, 1);
}

static item op_int(gen *q)
{
    static const char *const ops[] = {"add",     "sub",          "mul",       "maximum",
                                      "minimum", "floor_divide", "remainder", "fmod"};
    item x = pick_exact(q), y = partner(q, x, true);
    const char *op = ops[roll(q, TS_COUNT(ops))];
    double mag = !strcmp(op, "mul") ? x.mag * y.mag : x.mag + y.mag;
    ts_dtype t = ts_dtype_promote(&x.v->type, &y.v->type);

    if (mag > most_exact(t) && t != TS_U8 && t != TS_I8)
        return none;
    if (strstr("floor_divide remainder fmod", op)) { /* never by 0 */
        if (t == TS_BOOL)
            return none;
        y = made(ts_add_scalar(ts_point1("abs", y.v), 1), true, y.mag + 1);
        if (t == TS_U8 || t == TS_I8) /* 255 + 1 is 0 */
            y = made(ts_cast(ts_full_n(q->g, TS_I32, 3, 0, NULL), t), true, 3);
    }
    return made(ts_point2(op, x.v, y.v), true, mag);
}

static item op_where(gen *q)
{
    item c = pick_exact(q), x = partner(q, c, false), y;

    if (c.v->type.dtype != TS_BOOL)
        c = made(odds(q, 50) ? ts_cast(c.v, TS_BOOL)
                             : ts_gt(c.v, ts_scalar(q->g, c.v->type.dtype, 0)),
                 true, 1);
    y = partner(q, x, false);
    if (!broadcasts(c, y))
        y = same_shape_leaf(q, x, some_float(q), false);
    if (!broadcasts(c, y) || !broadcasts(x, y))
        return none;
    return made(ts_where(c.v, x.v, y.v), x.exact && y.exact, fmax(x.mag, y.mag));
}

static item op_cast(gen *q)
{
    item x = pick(q);
    ts_dtype t = odds(q, 60) ? some_float(q) : some_int(q);

    if (is_float(x) && !ts_dtype_is_float(t) && !x.exact)
        return none;
    if ((t == TS_U8 || t == TS_I8) && is_float(x) && x.mag > 100)
        return none;
    return made(ts_cast(x.v, t), x.exact, x.mag);
}

static item op_view(gen *q)
{
    item x = pick(q);
    ts_type t = x.v->type;
    int64_t dims[TS_MAX_RANK], hi[TS_MAX_RANK] = {0}, lo[TS_MAX_RANK] = {0};
    int d = t.rank ? roll(q, t.rank) : 0;

    switch (roll(q, 8)) {
    case 0:
        return of_rank(q, x, roll(q, 6));
    case 1: {
        int64_t flat = count_of(x);
        return made(ts_reshape_n(x.v, 1, &flat), x.exact, x.mag);
    }
    case 2:
        for (int i = 0; i < t.rank; i++)
            dims[i] = i;
        for (int i = t.rank - 1; i > 0; i--) {
            int j = roll(q, i + 1);
            int64_t k = dims[i];
            dims[i] = dims[j];
            dims[j] = k;
        }
        return made(ts_permute_n(x.v, t.rank, dims), x.exact, x.mag);
    case 3:
        if (t.rank && t.dim[d] != 1 && odds(q, 50) && count_of(x) > t.dim[d]) {
            x = made(ts_slice(x.v, d, 0, 1, 1), x.exact, x.mag);
            t = x.v->type;
        }
        if (t.rank < 5 && count_of(x) < ELEMENTS / 4) {
            memmove(t.dim + 1, t.dim, sizeof(t.dim[0]) * (size_t)t.rank);
            t.dim[0] = 1 + roll(q, 3);
            t.rank++;
        }
        for (int i = 0; i < t.rank; i++)
            if (t.dim[i] == 1 && ts_type_count(&t) < ELEMENTS / 9)
                t.dim[i] = 1 + roll(q, 9);
        return made(ts_expand_n(x.v, t.rank, t.dim), x.exact, x.mag);
    case 4: {
        int64_t from, to;
        if (!t.rank)
            return none;
        from = roll(q, (int)t.dim[d]);
        to = from + 1 + roll(q, (int)(t.dim[d] - from));
        return made(ts_slice(x.v, d, from, to, 1 + roll(q, 3)), x.exact, x.mag);
    }
    case 5:
        for (int i = 0; i < t.rank; i++)
            if (odds(q, 50)) {
                lo[i] = roll(q, 3);
                hi[i] = roll(q, 3);
                t.dim[i] += lo[i] + hi[i];
            }
        if (ts_type_count(&t) > ELEMENTS)
            return none;
        return made(ts_pad(x.v, t.rank, lo, hi, odds(q, 60) ? 0 : 1), x.exact, x.mag + 1);
    case 6:
        if (!t.rank)
            return none;
        dims[0] = d;
        dims[1] = roll(q, t.rank);
        return made(ts_apply(q->g, "flip", 1, &x.v, "dims:l", dims[1] == d ? 1 : 2, dims), x.exact,
                    x.mag);
    default: {
        ts_value *xs[4] = {x.v};
        int n = 1 + roll(q, 3);
        bool exact = x.exact;
        double mag = x.mag;
        if (!t.rank || count_of(x) * 4 > ELEMENTS)
            return none;
        for (int i = 1; i < n; i++) {
            ts_type s = x.v->type;
            s.dim[d] = 1 + roll(q, 5);
            item y = odds(q, 40) ? x : leaf(q, t.dtype, &s, x.exact);
            if (y.v->type.dtype != t.dtype)
                y.v = ts_cast(y.v, t.dtype);
            exact = exact && y.exact;
            mag = fmax(mag, y.mag);
            xs[i] = y.v;
        }
        return made(ts_concat(n, xs, d), exact, mag);
    }
    }
}

static int some_dims(gen *q, int rank, int64_t *dims)
{
    int n = 0;

    for (int i = 0; i < rank; i++)
        if (odds(q, 45))
            dims[n++] = odds(q, 20) ? i - rank : i;
    return n;
}

static item op_reduce(gen *q)
{
    item x = tame(pick(q));
    int64_t dims[TS_MAX_RANK], folded;
    int n = some_dims(q, x.v->type.rank, dims);
    bool keep = odds(q, 40), f = is_float(x);
    ts_value *y;

    switch (roll(q, 7)) {
    case 0:
    case 1:
        if (x.v->type.dtype == TS_F16 && x.mag * (double)count_of(x) > 3e4)
            return none;
        y = ts_sum(x.v, n, dims, keep);
        folded = count_of(x) / ts_type_count(&y->type);
        return made(y, x.exact, x.mag * (double)folded);
    case 2:
        return f ? made(ts_mean(x.v, n, dims, keep), false, x.mag) : none;
    case 3:
        return made(ts_amax(x.v, n, dims, keep), x.exact, x.mag);
    case 4:
        return made(ts_apply(q->g, "amin", 1, &x.v, "dims:l keepdim:i", n, dims, (int64_t)keep),
                    x.exact, x.mag);
    case 5:
        if (!f)
            return none;
        y = ts_apply(q->g, "prod", 1,
                     (ts_value *[]){ts_add_scalar(ts_mul_scalar(ts_tanh(x.v), 0.1), 1)},
                     "dims:l keepdim:i", n, dims, (int64_t)keep);
        return made(ts_tanh(y), false, 1);
    default:
        return f ? made(ts_logsumexp(x.v, n, dims, keep), false, x.mag + 9) : none;
    }
}

static item op_arg(gen *q)
{
    item x = pick_exact(q);
    int64_t dim;

    if (!x.v->type.rank)
        return none;
    dim = roll(q, x.v->type.rank);
    return made(ts_apply(q->g, odds(q, 50) ? "argmax" : "argmin", 1, &x.v, "dims:l keepdim:i",
                         (int)odds(q, 80), &dim, (int64_t)odds(q, 40)),
                true, (double)count_of(x));
}

static item op_softmax(gen *q)
{
    item x = tame(pick_float(q));
    int dim;

    if (!x.v->type.rank)
        return none;
    dim = roll(q, x.v->type.rank);
    return odds(q, 50) ? made(ts_softmax(x.v, dim), false, 1)
                       : made(ts_log_softmax(x.v, dim), false, 2 * x.mag + 9);
}

static item scaled(item x, double by, int64_t terms)
{
    double mag = x.mag * by * (double)terms;

    if (x.v && mag > 20)
        return made(ts_mul_scalar(x.v, 1 / sqrt((double)terms)), false,
                    x.mag * by * sqrt((double)terms));
    return made(x.v, false, mag);
}

static item op_matmul(gen *q)
{
    item x = tame(pick_float(q)), y;
    ts_type t, s;

    x = of_rank(q, x, 2 + roll(q, 3));
    t = x.v->type;
    s = t;
    s.dim[t.rank - 2] = t.dim[t.rank - 1];
    s.dim[t.rank - 1] = 1 + roll(q, 20);
    if (odds(q, 40))
        s = ts_type_of(TS_F32, 2, s.dim + t.rank - 2);
    for (int i = 0; i < s.rank - 2; i++)
        if (odds(q, 40))
            s.dim[i] = 1;
    if (odds(q, 30)) { /* the batch comes from the other side */
        for (int i = 0; i < t.rank - 2; i++)
            if (t.dim[i] == 1 && s.rank == t.rank)
                s.dim[i] = 1 + roll(q, 3);
    }
    y = leaf(q, x.v->type.dtype, &s, false);
    if (count_of(x) / t.dim[t.rank - 1] * s.dim[s.rank - 1] > ELEMENTS || count_of(y) > ELEMENTS)
        return none;
    if (y.v->type.dtype != x.v->type.dtype)
        y.v = ts_cast(y.v, x.v->type.dtype);
    if (odds(q, 30)) /* op rather than builder: leading dims stay */
        return scaled(made(ts_apply(q->g, "matmul", 2, (ts_value *[]){x.v, y.v}, ""), false, x.mag),
                      1, t.dim[t.rank - 1]);
    return scaled(made(ts_matmul(x.v, y.v), false, x.mag), 1, t.dim[t.rank - 1]);
}

static item op_linear(gen *q)
{
    item x = tame(pick_float(q));
    char name[32];

    if (x.v->type.rank < 1 || count_of(x) / ts_dim(x.v, -1) > 500)
        return none;
    snprintf(name, sizeof(name), "fc%d", q->leaves++);
    return made(ts_linear(x.v, name, 1 + roll(q, 12)), false, 3 * x.mag);
}

typedef struct window {
    int64_t kernel[3], stride[3], padding[3], dilation[3], out[3];
    int64_t taps, places;
} window;

static bool some_window(gen *q, int spatial, const int64_t *size, bool pool, window *w)
{
    w->taps = w->places = 1;
    for (int d = 0; d < spatial; d++) {
        w->kernel[d] = 1 + roll(q, (int)TS_MIN(size[d], 4));
        w->stride[d] = 1 + roll(q, 3);
        w->dilation[d] = pool ? 1 : 1 + roll(q, 2);
        w->padding[d] = roll(q, pool ? (int)w->kernel[d] / 2 + 1 : 3);
        int64_t room = size[d] + 2 * w->padding[d] - w->dilation[d] * (w->kernel[d] - 1) - 1;
        if (room < 0)
            return false;
        w->out[d] = room / w->stride[d] + 1;
        w->taps *= w->kernel[d];
        w->places *= w->out[d];
    }
    return true;
}

static ts_attr *conv_attrs(const window *w, int spatial, int64_t groups, const int64_t *shape,
                           int *n)
{
    static ts_attr a[5];

    *n = 0;
    a[(*n)++] = ts_attr_l("stride", spatial, w->stride);
    a[(*n)++] = ts_attr_l("padding", spatial, w->padding);
    a[(*n)++] = ts_attr_l("dilation", spatial, w->dilation);
    a[(*n)++] = ts_attr_i("groups", groups);
    if (shape)
        a[(*n)++] = ts_attr_l("shape", spatial, shape);
    return a;
}

static item op_conv(gen *q)
{
    int spatial = 1 + roll(q, 3), n;
    item x = of_rank(q, tame(pick_float(q)), spatial + 2), w;
    ts_type t = x.v->type, s = t;
    int64_t groups = 1, each, out;
    window win;
    ts_attr *attr;

    for (int64_t k = 2; k <= 4; k++)
        if (t.dim[1] % k == 0 && odds(q, 30))
            groups = k;
    if (odds(q, 15))
        groups = t.dim[1];
    each = 1 + roll(q, 4);
    out = groups * each;
    if (!some_window(q, spatial, t.dim + 2, false, &win) || out > 64)
        return none;
    s.dim[0] = out;
    s.dim[1] = t.dim[1] / groups;
    memcpy(s.dim + 2, win.kernel, sizeof(int64_t) * (size_t)spatial);
    int64_t terms = s.dim[1] * win.taps, made_count = t.dim[0] * out * win.places;
    if (made_count > ELEMENTS || made_count * terms > 400000 || ts_type_count(&s) > ELEMENTS)
        return none;
    w = leaf(q, t.dtype, &s, false);
    w.v = ts_cast(w.v, t.dtype);
    attr = conv_attrs(&win, spatial, groups, NULL, &n);
    item y = made(ts_make2(TS_OP(conv), x.v, w.v, n, attr), false, x.mag);
    int which = roll(q, 4);
    if (which < 2 || !y.v)
        return scaled(y, 1, terms);
    y = tame(scaled(y, 1, terms));
    y.v = ts_cast(y.v, t.dtype);
    if (which == 2) { /* back to x's shape */
        attr = conv_attrs(&win, spatial, groups, t.dim + 2, &n);
        return scaled(made(ts_make2(TS_OP(conv_input), y.v, w.v, n, attr), false, y.mag), 1,
                      each * win.taps);
    }
    attr = conv_attrs(&win, spatial, groups, s.dim + 2, &n);
    return scaled(made(ts_make2(TS_OP(conv_weight), x.v, y.v, n, attr), false, y.mag), x.mag,
                  t.dim[0] * win.places);
}

static item op_layer_conv(gen *q)
{
    item x = of_rank(q, tame(pick_float(q)), 4);
    ts_type t = x.v->type;
    char name[32];
    int k = 1 + roll(q, 3), out = 1 + roll(q, 6);

    if (t.dim[2] < k || t.dim[3] < k || t.dim[1] > 20 || count_of(x) * out * k * k > 200000)
        return none;
    snprintf(name, sizeof(name), "conv%d", q->leaves++);
    if (odds(q, 40) && count_of(x) < 800)
        return made(ts_conv_transpose2d(x.v, name, out, k, .stride = 1 + roll(q, 2)), false,
                    3 * x.mag);
    return made(ts_conv2d(x.v, name, out, k, .padding = roll(q, 2), .stride = 1 + roll(q, 2),
                          .no_bias = odds(q, 30)),
                false, 3 * x.mag);
}

static item op_pool(gen *q)
{
    int spatial = 1 + roll(q, 3);
    item x = of_rank(q, tame(pick(q)), spatial + 2), y;
    bool max = odds(q, 50), f = is_float(x);
    int64_t ceil_mode = odds(q, 30);
    ts_value *v;
    window w;

    if (!f && (!max || x.v->type.dtype == TS_BOOL))
        return none;
    if (!some_window(q, spatial, x.v->type.dim + 2, true, &w))
        return none;
    v = ts_apply(q->g,
                 max           ? "max_pool"
                 : odds(q, 50) ? "avg_pool"
                               : "sum_pool",
                 1, &x.v, "kernel:l stride:l padding:l ceil_mode:i", spatial, w.kernel, spatial,
                 w.stride, spatial, w.padding, ceil_mode);
    y = made(v, x.exact && max, x.mag * (max ? 1 : (double)w.taps));
    if (max && x.exact && odds(q, 50)) {
        q->pool[q->n++] = made(ts_result(v, 1), true, (double)w.taps);
        if (f && odds(q, 50) && v) {
            ts_attr attr[] = {
                ts_attr_l("kernel", spatial, w.kernel), ts_attr_l("stride", spatial, w.stride),
                ts_attr_l("padding", spatial, w.padding),
                ts_attr_l("shape", spatial, x.v->type.dim + 2), ts_attr_i("ceil_mode", ceil_mode)};
            ts_value *g = ts_make2(TS_OP(max_pool_grad), v, ts_result(v, 1), 5, attr);
            return made(g, x.exact, x.mag * (double)w.taps);
        }
    }
    return y;
}

static item op_resize(gen *q)
{
    item x = of_rank(q, tame(pick_float(q)), 4);
    ts_type t = x.v->type;
    int64_t h = 1 + roll(q, 9), w = 1 + roll(q, 9);

    if (t.dim[0] * t.dim[1] * h * w > ELEMENTS || t.dim[0] * t.dim[1] * h * t.dim[3] > ELEMENTS)
        return none;
    switch (roll(q, 3)) {
    case 0:
        return made(ts_upsample_nearest2d(x.v, h, w), x.exact, x.mag);
    case 1:
        return made(ts_upsample_bilinear2d(x.v, h, w, odds(q, 50)), false, x.mag);
    default:
        return made(ts_adaptive_avg_pool2d(x.v, h, w), false, x.mag);
    }
}

/* An index with values in 0..n-1. */
static ts_value *index_leaf(gen *q, int64_t n, int rank, const int64_t *dims)
{
    char name[48];
    static const ts_dtype types[] = {TS_I32, TS_I64, TS_U8};
    ts_dtype t = types[roll(q, 3)];

    snprintf(name, sizeof(name), "n%ld_%d", (long)n, q->leaves++);
    return ts_input_n(q->g, name, n > 255 && t == TS_U8 ? TS_I32 : t, rank, dims);
}

static item op_index(gen *q)
{
    item x = tame(pick(q));
    ts_type t = x.v->type, s = t;
    int d = t.rank ? roll(q, t.rank) : 0;
    ts_value *i;

    if (!t.rank || t.dtype == TS_BOOL)
        return none;
    for (int k = 0; k < t.rank; k++)
        s.dim[k] = k == d ? 1 + roll(q, 9) : 1 + roll(q, (int)t.dim[k]);
    switch (roll(q, 5)) {
    case 0:
        i = index_leaf(q, t.dim[d], t.rank, s.dim);
        return made(ts_gather(x.v, d, i), x.exact, x.mag);
    case 1: {
        i = index_leaf(q, 5, t.rank, t.dim);
        s = t;
        s.dim[d] = 5;
        for (int k = 0; k < t.rank; k++)
            s.dim[k] += k == d ? 0 : roll(q, 2);
        if (ts_type_count(&s) > ELEMENTS)
            return none;
        return made(ts_apply(q->g, "scatter_add", 2, (ts_value *[]){i, x.v}, "dim:i shape:l",
                             (int64_t)d, s.rank, s.dim),
                    x.exact, x.mag * (double)t.dim[d]);
    }
    case 2: {
        int64_t dims[2] = {1 + roll(q, 6), 1 + roll(q, 3)};
        int rank = roll(q, 3);
        if (t.rank + rank - 1 > 6 || count_of(x) / t.dim[d] * 24 > ELEMENTS)
            return none;
        i = index_leaf(q, t.dim[d], rank, dims);
        return made(ts_apply(q->g, "index_select", 2, (ts_value *[]){x.v, i}, "dim:i", (int64_t)d),
                    x.exact, x.mag);
    }
    case 3:
        i = index_leaf(q, 6, 1, &t.dim[d]);
        if (count_of(x) / t.dim[d] * 6 > ELEMENTS)
            return none;
        return made(ts_apply(q->g, "index_add", 2, (ts_value *[]){i, x.v}, "dim:i size:i",
                             (int64_t)d, (int64_t)6),
                    x.exact, x.mag * (double)t.dim[d]);
    default:
        if (count_of(x) * 7 > ELEMENTS || t.rank > 5)
            return none;
        i = index_leaf(q, 7, t.rank, t.dim);
        return made(ts_one_hot(i, 7, odds(q, 50) ? TS_F32 : some_int(q)), true, 1);
    }
}

static item op_norm(gen *q)
{
    item x = tame(pick_float(q));
    char name[32];

    snprintf(name, sizeof(name), "norm%d", q->leaves++);
    switch (roll(q, 3)) {
    case 0:
        if (x.v->type.rank < 1 || ts_dim(x.v, -1) < 2)
            return none;
        return made(ts_layer_norm(x.v, name, .eps = 0.1), false, 5);
    case 1:
        x = of_rank(q, x, 3 + roll(q, 2));
        if (count_of(x) / x.v->type.dim[1] < 2)
            return none;
        return made(ts_batch_norm(x.v, name, .eps = 0.1, .inference = odds(q, 25)), false, 5);
    default:
        x = of_rank(q, x, 3 + roll(q, 2));
        return made(ts_group_norm(x.v, name, (int)(x.v->type.dim[1] % 2 ? 1 : 2), .eps = 0.1),
                    false, 5);
    }
}

static item op_attention(gen *q)
{
    item x = of_rank(q, tame(pick_float(q)), 2 + roll(q, 2)), k, v;

    if (ts_dim(x.v, -2) > 40)
        return none;
    k = odds(q, 50) ? x : leaf(q, x.v->type.dtype, &x.v->type, false);
    v = odds(q, 50) ? x : leaf(q, x.v->type.dtype, &x.v->type, false);
    if (k.v->type.dtype != x.v->type.dtype || v.v->type.dtype != x.v->type.dtype)
        return none;
    return made(ts_attention(x.v, k.v, v.v, NULL), false, x.mag);
}

static item op_loss(gen *q)
{
    item x = tame(pick_float(q)), y;
    ts_reduction r = (ts_reduction)roll(q, 3);
    double mag = r == TS_SUM ? (double)count_of(x) * 4 : 10;
    ts_type t = x.v->type;

    switch (roll(q, 5)) {
    case 0:
        if (t.rank != 2)
            x = of_rank(q, x, 2);
        t = x.v->type;
        return made(
            ts_cross_entropy_o(
                x.v, index_leaf(q, t.dim[1], 1, t.dim),
                &(ts_loss_options){.reduction = r, .label_smoothing = odds(q, 30) ? 0.1 : 0}),
            false, mag);
    case 1:
        y = leaf(q, t.dtype, &t, false);
        return made(ts_mse_loss(x.v, ts_cast(y.v, t.dtype), .reduction = r), false, mag);
    case 2:
        y = leaf(q, t.dtype, &t, false);
        return made(ts_smooth_l1_loss(x.v, ts_cast(y.v, t.dtype), .reduction = r), false, mag);
    case 3:
        y = leaf(q, t.dtype, &t, false);
        return made(ts_bce_with_logits(x.v, ts_sigmoid(ts_cast(y.v, t.dtype)), .reduction = r),
                    false, mag);
    default:
        return made(ts_identity_loss(x.v, r), x.exact && r != TS_MEAN, mag);
    }
}

static item op_leaf(gen *q)
{
    ts_type t = some_shape(q, roll(q, 6));

    if (odds(q, 15)) {
        ts_attr attr[] = {ts_attr_s("dtype", ts_dtype_name(odds(q, 50) ? TS_F32 : some_int(q))),
                          ts_attr_l("shape", t.rank, t.dim),
                          ts_attr_i("dim", t.rank ? roll(q, t.rank) : 0)};
        if (t.rank)
            return made(ts_node_out(ts_node_make(q->g, TS_OP(iota), 0, NULL, 3, attr)), true, 33);
    }
    if (odds(q, 25))
        return leaf(q, some_int(q), &t, true);
    return leaf(q, some_float(q), &t, odds(q, 25));
}

static item op_state(gen *q)
{
    item x = tame(pick(q));
    char name[32];
    ts_value *b;

    snprintf(name, sizeof(name), "s%d", q->leaves++);
    b = ts_buffer_n(q->g, name, x.v->type.dtype, (ts_init){TS_INIT_FULL, 1, 0}, x.v->type.rank,
                    x.v->type.dim);
    if (!is_float(x)) {
        ts_assign(b, x.v);
        return made(b, x.exact, x.mag);
    }
    switch (roll(q, 4)) {
    case 0: /* a moving average, read at the element that is written */
        ts_assign(b, ts_add(ts_mul_scalar(b, 0.5), ts_mul_scalar(x.v, 0.5)));
        break;
    case 1: { /* read elsewhere */
        ts_value *f = b;
        if (b->type.rank)
            f = ts_apply(q->g, "flip", 1, &b, "dims:l", 1, (int64_t[]){b->type.rank - 1});
        ts_assign(b, ts_add(ts_mul_scalar(f, 0.5), ts_mul_scalar(x.v, 0.5)));
        break;
    }
    case 2: /* just a copy, of a node, an input or another state */
        ts_assign(b, x.v);
        break;
    default: { /* of its own sum */
        ts_value *m = ts_mean(b, 0, NULL, false);
        ts_assign(b, ts_add(ts_mul_scalar(x.v, 0.5), ts_cast(m, b->type.dtype)));
    }
    }
    return made(b, false, fmax(1, x.mag));
}

/* As often as they are listed. */
static item (*const families[])(gen *) = {
    op_unary,  op_unary,  op_unary,  op_binary, op_binary, op_binary,    op_compare, op_compare,
    op_int,    op_int,    op_int,    op_where,  op_cast,   op_cast,      op_cast,    op_view,
    op_view,   op_view,   op_view,   op_view,   op_reduce, op_reduce,    op_arg,     op_softmax,
    op_matmul, op_matmul, op_linear, op_conv,   op_conv,   op_pool,      op_pool,    op_layer_conv,
    op_resize, op_index,  op_index,  op_index,  op_norm,   op_attention, op_loss,    op_leaf,
    op_leaf,   op_state,  op_state,
};

/* A graph and how to compile it. */
typedef struct trial {
    uint64_t seed;
    ts_graph *g;
    ts_options opt;
    ts_optimizer optimizer;
    bool trains;
} trial;

static void add_loss(gen *q, trial *t)
{
    for (int i = 0; i < 20; i++) {
        item x = q->pool[q->n - 1 - roll(q, TS_MIN(q->n, 10))];
        if (!is_float(x) || x.exact)
            continue;
        x = tame(x);
        ts_loss(odds(q, 60)   ? ts_mean(ts_square(x.v), 0, NULL, false)
                : odds(q, 50) ? ts_square(x.v)
                              : ts_sigmoid(x.v));
        t->trains = true;
        return;
    }
}

static bool has_clang(void)
{
    ts_arena *a = ts_arena_new();
    bool found = ts_cc_identity(a, &(ts_options){.cc = "clang"}) != NULL;

    ts_arena_free(a);
    return found;
}

static void some_options(gen *q, trial *t)
{
    static const char *const skips[] = {NULL,           NULL,       NULL,          "fuse",
                                        "layout",       "simplify", "fuse,layout", "winograd,split",
                                        "crop,simplify"};
    static const char *const isas[] = {NULL, NULL, NULL, "x86-64-v3", "portable"};
    static const ts_output_mode modes[] = {TS_OUT_DEFAULT, TS_OUT_FINAL, TS_OUT_ALL, TS_OUT_SUM,
                                           TS_OUT_EVERY_N};
    ts_isa isa;

    t->opt.cache_dir = "";
    t->opt.skip = skips[roll(q, TS_COUNT(skips))];
    t->opt.isa = isas[roll(q, TS_COUNT(isas))];
    if (t->opt.isa && !strcmp(t->opt.isa, "x86-64-v3") &&
        (ts_isa_find(NULL, &isa) || isa.width < 8))
        t->opt.isa = NULL;
    if (odds(q, 12) && has_clang())
        t->opt.cc = "clang";
    if (odds(q, 30)) {
        t->opt.device_iterations = 1 + roll(q, 2);
        t->opt.output_mode = modes[roll(q, TS_COUNT(modes))];
        t->opt.output_period = odds(q, 50) ? t->opt.device_iterations : 1; /* it divides */
    }
    if (!t->trains)
        return;
    t->optimizer = odds(q, 50)   ? ts_sgd(0.05)
                   : odds(q, 60) ? ts_adam(0.01)
                   : odds(q, 50) ? ts_rmsprop(0.01)
                                 : ts_lamb(0.01);
    t->optimizer.hyper.eps = 1e-3; /* a step of lr * sign(gradient) would amplify any rounding */
    if (t->optimizer.kind == TS_SGD && odds(q, 60))
        t->optimizer.hyper.momentum = 0.9;
    if (odds(q, 30))
        t->optimizer.hyper.weight_decay = 0.01;
    if (odds(q, 20))
        t->optimizer.max_grad_norm = 1;
    if (odds(q, 35))
        t->opt.gradient_accumulation = 2;
    t->opt.optimizer = &t->optimizer;
}

static void generate(uint64_t seed, trial *t)
{
    gen q = {.g = ts_graph_new("fuzz"),
             .s = seed * 0x9e3779b97f4a7c15u,
             .half = seed % 3 ? TS_F16 : TS_BF16};
    int want = 5 + roll(&q, 36), outputs;
    char name[32];

    *t = (trial){.seed = seed, .g = q.g};
    q.pool[q.n++] = op_leaf(&q);
    q.pool[q.n++] = op_leaf(&q);
    for (int i = 0; i < 4 * want && q.n < want + 2 && q.n < POOL - 4 && !q.g->status; i++) {
        item x = families[roll(&q, TS_COUNT(families))](&q);
        if (x.v && count_of(x) <= 4 * ELEMENTS && x.v->type.rank <= 6)
            q.pool[q.n++] = x;
    }
    outputs = 1 + roll(&q, 4);
    for (int i = 0; i < outputs; i++) {
        item x = i ? pick(&q) : q.pool[q.n - 1];
        snprintf(name, sizeof(name), "y%d", i);
        ts_output(x.v, name);
    }
    if (odds(&q, 45))
        add_loss(&q, t);
    some_options(&q, t);
}

/* --- the check --- */

static int coarseness(ts_dtype t)
{
    return t == TS_BF16 ? 4 : t == TS_F16 ? 3 : t == TS_F32 ? 2 : t == TS_F64 ? 1 : 0;
}

/* The coarsest dtype behind v; a state that changes has the whole graph behind it. */
static ts_dtype coarsest(const ts_graph *g, const ts_value *v, bool *seen)
{
    ts_dtype worst = v ? v->type.dtype : TS_F64;

    if (v && seen[v->id])
        return TS_F64;
    if (v)
        seen[v->id] = true;
    if (v && v->kind == TS_VALUE_NODE)
        for (int i = 0; i < v->node->nin; i++) {
            ts_dtype t = coarsest(g, v->node->in[i], seen);
            worst = coarseness(t) > coarseness(worst) ? t : worst;
        }
    if (!v || v->kind == TS_VALUE_STATE)
        for (int i = 0; i < g->nvalues; i++)
            worst = coarseness(g->values[i]->type.dtype) > coarseness(worst)
                        ? g->values[i]->type.dtype
                        : worst;
    return coarseness(worst) ? worst : TS_F64;
}

typedef struct verdict {
    bool failed;
    char why[2048];
} verdict;

static void TS_PRINTF(2, 3) blame(verdict *v, const char *fmt, ...)
{
    va_list ap;

    if (v->failed)
        return;
    v->failed = true;
    va_start(ap, fmt);
    vsnprintf(v->why, sizeof(v->why), fmt, ap);
    va_end(ap);
}

/* Does the reference itself move this much when its inputs are shaken by a rounding or two? */
static bool chaotic(const trial *t, const ts_executable *ref, const results *want, int i,
                    double found, double shake, bool halves)
{
    for (int k = 1; k <= 6; k++) {
        results r = {0};
        int64_t at;
        double d = 0;
        if (!run_all(ref, &t->opt, 1, CALLS, t->seed, shake * k, &r))
            d = distance(want, &r, i, halves, &at);
        results_free(&r);
        if (d > found / 3)
            return true;
    }
    return false;
}

static void compare(const trial *t, const ts_executable *ref, const results *want,
                    const results *got, verdict *v)
{
    const ts_graph *g = t->g;
    ts_dtype all = coarsest(g, NULL, NULL);

    for (int i = 0; i < want->n && !v->failed; i++) {
        int o = i % TS_MAX(1, want->outputs);
        bool output = i < CALLS * want->outputs && o < g->noutputs,
             *seen = calloc((size_t)g->nvalues + 1, 1);
        ts_dtype c = output ? coarsest(g, g->outputs[o], seen) : all;
        double tol = tolerance_of(c), d;
        int64_t at;
        free(seen);
        d = distance(want, got, i, coarseness(c) > 2, &at);
        if (d <= tol)
            continue;
        if (chaotic(t, ref, want, i, d, tol / (coarseness(c) > 2 ? 20 : 100), coarseness(c) > 2)) {
            if (getenv("FUZZ_PRINT"))
                fprintf(stderr, "seed %lu: chaotic: %s %.3g\n", (unsigned long)t->seed,
                        want->info[i].name, d);
            continue;
        }
        blame(v, "%s %s, element %ld: %.9g, reference %.9g (relative error %.3g)",
              i < CALLS * want->outputs ? "output" : "state", want->info[i].name, (long)at,
              ts_dtype_get(got->info[i].dtype, got->data[i], at),
              ts_dtype_get(want->info[i].dtype, want->data[i], at), d);
    }
}

static void check_native(const trial *t, const ts_executable *ref, const ts_executable *exe,
                         verdict *v)
{
    results want = {0}, one = {0}, three = {0};

    if (run_all(ref, &t->opt, 1, CALLS, t->seed, 0, &want) ||
        run_all(exe, &t->opt, 1, CALLS, t->seed, 0, &one) ||
        run_all(exe, &t->opt, 3, CALLS, t->seed, 0, &three))
        blame(v, "run: %s", ts_error_text());
    if (!v->failed)
        compare(t, ref, &want, &one, v);
    for (int i = 0; i < one.n && !v->failed; i++)
        if (memcmp(one.data[i], three.data[i],
                   (size_t)one.count[i] * ts_dtype_size(one.info[i].dtype)))
            blame(v, "%s has other bits with 3 threads than with 1", one.info[i].name);
    results_free(&want);
    results_free(&one);
    results_free(&three);
}

static void check(const trial *t, verdict *v)
{
    trial r = *t;
    ts_executable *ref = NULL, *exe = NULL;

    r.opt.executor = TS_EXEC_REFERENCE;
    if (r.opt.optimizer)
        r.opt.optimizer = &r.optimizer;
    if (ts_compile(r.g, &r.opt, &ref) == TS_ERR_GRAD) { /* nothing to train: infer */
        r.opt.optimizer = NULL;
        r.opt.gradient_accumulation = 0;
        ts_compile(r.g, &r.opt, &ref);
    }
    r.opt.executor = TS_EXEC_NATIVE;
    if (!ref || ts_compile(r.g, &r.opt, &exe))
        blame(v, "compile: %s", ts_error_text());
    else
        check_native(&r, ref, exe, v);
    ts_executable_free(exe);
    ts_executable_free(ref);
}

static void plain_signals(void)
{
    for (int sig = 1; sig < 32; sig++)
        signal(sig, SIG_DFL);
}

/* The same in a process that may crash or hang. */
static void check_apart(const trial *t, verdict *v)
{
    int pipes[2], status = 0;
    pid_t pid;
    ssize_t n;

    *v = (verdict){0};
    if (pipe(pipes))
        return;
    fflush(NULL);
    pid = fork();
    if (!pid) {
        plain_signals();
        alarm(60);
        check(t, v);
        n = write(pipes[1], v, sizeof(*v));
        _exit(n != sizeof(*v));
    }
    close(pipes[1]);
    n = read(pipes[0], v, sizeof(*v));
    close(pipes[0]);
    waitpid(pid, &status, 0);
    if (n != sizeof(*v)) {
        *v = (verdict){0};
        blame(v, WIFSIGNALED(status) ? "ended by signal %d" : "ended with status %d",
              WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    }
}

/* --- making a failing graph smaller --- */

/* What to leave out of a copy. */
typedef struct cut {
    int output, update, node; /* by index; -1: none. A node's results become inputs */
    int64_t from, to;         /* every size `from` becomes `to` */
} cut;

static int64_t resized(const cut *c, int64_t n)
{
    return c->from && n == c->from ? c->to : n;
}

static ts_type resized_type(const cut *c, ts_type t)
{
    for (int i = 0; i < t.rank; i++)
        t.dim[i] = resized(c, t.dim[i]);
    return t;
}

static void copy_state(ts_graph *out, const ts_state *s, const cut *c, ts_value **map)
{
    map[s->value->id] = ts_graph_add_state(out, s->value->name, resized_type(c, s->value->type),
                                           s->init, s->trained);
}

static ts_node *remake(ts_graph *out, const ts_node *n, const cut *c, ts_value **map)
{
    ts_value *in[64];
    ts_attr attr[16];
    ts_node *m;

    for (int i = 0; i < n->nin; i++)
        in[i] = map[n->in[i]->id];
    memcpy(attr, n->attr, sizeof(ts_attr) * (size_t)n->nattr);
    for (int i = 0; i < n->nattr && c->from; i++)
        if (attr[i].kind == 'l' &&
            (!strcmp(attr[i].name, "shape") || !strcmp(attr[i].name, "size"))) {
            int64_t *l = TS_NEWS(out->arena, int64_t, attr[i].n);
            for (int k = 0; k < attr[i].n; k++)
                l[k] = resized(c, attr[i].l[k]);
            attr[i].l = l;
        }
    m = ts_node_make(out, n->op, n->nin, in, n->nattr, attr);
    if (m && n->data)
        m->data = n->data; /* its start, when it got smaller */
    return m;
}

static bool *find_needed(ts_arena *a, const ts_graph *g, const cut *c)
{
    bool *need = TS_NEWS(a, bool, g->nvalues);

    for (int i = 0; i < g->noutputs; i++)
        if (i != c->output)
            need[g->outputs[i]->id] = true;
    for (int i = 0; i < g->nupdates; i++)
        if (i != c->update)
            need[g->updates[i].next->id] = need[g->updates[i].state->id] = true;
    if (g->loss)
        need[g->loss->id] = true;
    for (int i = g->nnodes - 1; i >= 0; i--) {
        const ts_node *n = g->nodes[i];
        bool any = false;
        for (int k = 0; k < n->nout; k++)
            any = any || need[n->out[k]->id];
        for (int k = 0; k < n->nin && any && i != c->node; k++)
            need[n->in[k]->id] = true;
    }
    return need;
}

/* NULL when what is left is not a graph. The copy may point into g, which must outlive it. */
static ts_graph *without(const ts_graph *g, const cut *c)
{
    ts_graph *out = ts_graph_new(g->name);
    ts_value **map = TS_NEWS(out->arena, ts_value *, g->nvalues);
    bool *need = find_needed(out->arena, g, c);

    for (int i = 0; i < g->ninputs; i++)
        if (need[g->inputs[i]->id])
            map[g->inputs[i]->id] =
                ts_graph_add_input(out, g->inputs[i]->name, resized_type(c, g->inputs[i]->type));
    for (int i = 0; i < g->nstates; i++)
        if (need[g->states[i].value->id])
            copy_state(out, &g->states[i], c, map);
    for (int i = 0; i < g->nnodes && !out->status; i++) {
        const ts_node *n = g->nodes[i];
        bool any = false;
        ts_node *m = NULL;
        for (int k = 0; k < n->nout; k++)
            any = any || need[n->out[k]->id];
        if (!any)
            continue;
        if (i != c->node && !(m = remake(out, n, c, map)))
            break;
        for (int k = 0; k < n->nout; k++)
            map[n->out[k]->id] =
                m ? m->out[k]
                  : ts_graph_add_input(out, ts_arena_printf(out->arena, "x_v%d", n->out[k]->id),
                                       resized_type(c, n->out[k]->type));
    }
    if (out->status) {
        ts_graph_free(out);
        return NULL;
    }
    for (int i = 0; i < g->noutputs; i++)
        if (i != c->output)
            ts_output(map[g->outputs[i]->id], g->output_names[i]);
    for (int i = 0; i < g->nupdates; i++)
        if (i != c->update &&
            ts_type_same(&map[g->updates[i].state->id]->type, &map[g->updates[i].next->id]->type))
            ts_assign(map[g->updates[i].state->id], map[g->updates[i].next->id]);
    if (g->loss)
        ts_loss(map[g->loss->id]);
    return out;
}

/* Fails in the same way: a compile error stays one, a wrong number stays one. */
static bool still(const trial *t, const verdict *first)
{
    verdict v;

    check_apart(t, &v);
    return v.failed && !strncmp(v.why, first->why, 5);
}

static bool try_cut(trial *t, const verdict *first, cut c)
{
    trial s = *t;

    s.g = without(t->g, &c);
    if (!s.g)
        return false;
    if (s.g->noutputs + s.g->nupdates + (s.g->loss != NULL) == 0 || !still(&s, first)) {
        ts_graph_free(s.g);
        return false;
    }
    t->g = s.g; /* the larger one stays: the smaller may point into it */
    return true;
}

static void minimise(trial *t, const verdict *first)
{
    double stop = ts_now() + 90;
    bool again = true;
    trial s = *t;

    s.opt.gradient_accumulation = s.opt.device_iterations = 0;
    s.opt.output_mode = TS_OUT_DEFAULT;
    s.opt.optimizer = NULL;
    if (still(&s, first))
        *t = s;
    while (again && ts_now() < stop) {
        again = false;
        for (int i = t->g->noutputs - 1; i >= 0 && ts_now() < stop; i--)
            again |= try_cut(t, first, (cut){i, -1, -1, 0, 0});
        for (int i = t->g->nupdates - 1; i >= 0 && ts_now() < stop; i--)
            again |= try_cut(t, first, (cut){-1, i, -1, 0, 0});
        for (int i = t->g->nnodes - 1; i >= 0 && ts_now() < stop; i--)
            if (i < t->g->nnodes && t->g->nodes[i]->nin)
                again |= try_cut(t, first, (cut){-1, -1, i, 0, 0});
        for (int64_t from = 40; from > 1 && ts_now() < stop; from--)
            for (int64_t to = 1; to < from && ts_now() < stop; to = to * 2) {
                bool has = false;
                for (int i = 0; i < t->g->nvalues; i++)
                    for (int d = 0; d < t->g->values[i]->type.rank; d++)
                        has = has || t->g->values[i]->type.dim[d] == from;
                if (has && try_cut(t, first, (cut){-1, -1, -1, from, to}))
                    again = true;
            }
    }
}

static void report(const trial *t, const verdict *v)
{
    const char *root = getenv("TS_BUILD_ROOT");
    char *text = ts_graph_text(t->g), path[512], head[4096];
    const ts_options *o = &t->opt;
    FILE *f;

    snprintf(head, sizeof(head),
             "# seed %lu: %s\n# skip %s, isa %s, cc %s, iterations %d, accumulation %d, output "
             "mode %d, optimizer %d\n",
             (unsigned long)t->seed, v->why, o->skip ? o->skip : "nothing",
             o->isa ? o->isa : "native", o->cc ? o->cc : "default", o->device_iterations,
             o->gradient_accumulation, o->output_mode, o->optimizer ? (int)t->optimizer.kind : -1);
    snprintf(path, sizeof(path), "%s/fuzz-%lu.ir", root ? root : ".", (unsigned long)t->seed);
    fprintf(stderr, "%s%s", head, text);
    f = fopen(path, "w");
    if (f) {
        fprintf(f, "%s%s", head, text);
        fclose(f);
    }
    free(text);
}

/* In a process of its own. */
static int one_seed(uint64_t seed)
{
    trial t;
    verdict v, last;

    generate(seed, &t);
    if (ts_graph_check(t.g)) {
        fprintf(stderr, "seed %lu: the generator made no graph: %s\n", (unsigned long)seed,
                ts_error_text());
        return 1;
    }
    if (getenv("FUZZ_PRINT"))
        report(&t, &(verdict){.why = "printed"});
    check_apart(&t, &v);
    if (!v.failed) {
        ts_graph_free(t.g);
        return 0;
    }
    fprintf(stderr, "seed %lu failed: %s\n", (unsigned long)seed, v.why);
    minimise(&t, &v);
    check_apart(&t, &last);
    if (t.opt.optimizer)
        t.opt.optimizer = &t.optimizer;
    report(&t, last.failed ? &last : &v);
    return 1;
}

/* --- running them --- */

static long number(const char *name, long missing)
{
    const char *s = getenv(name);

    return s && s[0] ? atol(s) : missing;
}

static void random_graphs(void **state)
{
    long only = number("FUZZ_SEED", -1), count = number("FUZZ_COUNT", COUNT);
    double seconds = (double)number("FUZZ_SECONDS", 0), start = ts_now();
    uint64_t seed = only >= 0 ? (uint64_t)only : (uint64_t)number("TS_ROUND", 0) * 1000003u;
    uint64_t seeds[JOBS], failed[16];
    pid_t pids[JOBS] = {0};
    int running = 0, bad = 0;
    long begun = 0;
    char list[512] = "";

    (void)state;
    count = only >= 0 ? 1 : count;
    for (;;) {
        bool more = seconds > 0 ? ts_now() < start + seconds : begun < count;
        int status = 0;
        pid_t pid;
        if (bad >= TS_COUNT(failed))
            more = false;
        if (more && running < JOBS) {
            int k = 0;
            while (pids[k])
                k++;
            fflush(NULL);
            pids[k] = fork();
            if (!pids[k]) {
                plain_signals(); /* not cmocka's */
                _exit(one_seed(seed));
            }
            assert_true(pids[k] > 0);
            seeds[k] = seed++;
            running++;
            begun++;
            continue;
        }
        if (!running)
            break;
        pid = wait(&status);
        for (int k = 0; k < JOBS; k++)
            if (pids[k] == pid) {
                pids[k] = 0;
                running--;
                if (status && bad < TS_COUNT(failed))
                    failed[bad++] = seeds[k];
                if (WIFSIGNALED(status))
                    fprintf(stderr, "seed %lu: the generator ended by signal %d\n",
                            (unsigned long)seeds[k], WTERMSIG(status));
            }
    }
    for (int i = 0; i < bad; i++)
        snprintf(list + strlen(list), sizeof(list) - strlen(list), " %lu",
                 (unsigned long)failed[i]);
    if (seconds > 0)
        fprintf(stderr, "%ld graphs\n", begun);
    if (bad)
        fail_msg("%d of %ld graphs differ from the reference; seeds%s", bad, begun, list);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_graphs)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
