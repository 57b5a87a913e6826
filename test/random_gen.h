/* random_gen.h - what the random families of ops (random_ops.c) are made with: a pool of values to
 * pick from, leaves, and what is known of each value, so that a graph stays meaningful: numbers
 * that do not explode, and comparisons only where both executors have the same numbers.
 */
#ifndef TS_TEST_RANDOM_GEN_H
#define TS_TEST_RANDOM_GEN_H

#include "compare.h"

enum { POOL = 256, ELEMENTS = 6000 };

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

static inline int roll(gen *q, int n)
{
    return (int)(next_random(&q->s) % (uint64_t)n);
}

static inline bool odds(gen *q, int percent)
{
    return roll(q, 100) < percent;
}

static inline double most_exact(ts_dtype t)
{
    return t == TS_BF16               ? 200
           : t == TS_F16              ? 2000
           : t == TS_F32              ? 1e6
           : t == TS_U8 || t == TS_I8 ? 256
                                      : 1e9;
}

static const item none;

static inline item made(ts_value *v, bool exact, double mag)
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

static inline bool is_float(item x)
{
    return ts_dtype_is_float(x.v->type.dtype);
}

static inline int64_t count_of(item x)
{
    return ts_type_count(&x.v->type);
}

static inline ts_type some_shape(gen *q, int rank)
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

/* Every fourth name has an end that only escaping keeps from ending a comment, a string or a line of the
 * generated C (test/render/names.c has worse ones). Nothing is drawn for it: a seed's graph stays. */
static inline const char *odd_end(int n)
{
    static const char *const ends[] = {"*/ x /*", "\"", "\\",
                                       ("?"
                                        "?/"),
                                       "%n%s"};

    return n % 4 == 1 ? ends[n / 4 % (int)(sizeof(ends) / sizeof(*ends))] : "";
}

/* A tensor from outside: fed, kept or constant. */
static inline item leaf(gen *q, ts_dtype t, const ts_type *shape, bool exact)
{
    char name[32];
    ts_type full = ts_type_of(t, shape->rank, shape->dim);
    ts_init init = {TS_INIT_UNIFORM, -1, 1};
    double mag = exact || !ts_dtype_is_float(t) ? 3 : 1;
    bool floats = ts_dtype_is_float(t);
    ts_value *v;

    exact = exact || !floats;
    snprintf(name, sizeof(name), "%c%d%s", exact ? 'k' : 'x', q->leaves, odd_end(q->leaves));
    q->leaves++;
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

static inline ts_dtype some_float(gen *q)
{
    int k = roll(q, 20);

    return k < 16 ? TS_F32 : k < 18 ? q->half : TS_F64;
}

static inline ts_dtype some_int(gen *q)
{
    static const ts_dtype all[] = {TS_I32, TS_I32, TS_I64, TS_U8, TS_I8, TS_BOOL};

    return all[roll(q, TS_COUNT(all))];
}

static inline item pick(gen *q)
{
    return q->pool[odds(q, 70) ? q->n - 1 - roll(q, TS_MIN(q->n, 6)) : roll(q, q->n)];
}

static inline item pick_float(gen *q)
{
    item x = pick(q);

    for (int i = 0; i < 10 && !is_float(x); i++)
        x = pick(q);
    return is_float(x) ? x : made(ts_cast(x.v, TS_F32), x.exact, x.mag);
}

static inline item pick_exact(gen *q)
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
static inline item tame(item x)
{
    if (!x.v || !is_float(x) || x.exact || x.mag <= 20)
        return x;
    return made(ts_tanh(x.v), false, 1);
}

static inline item same_shape_leaf(gen *q, item x, ts_dtype t, bool exact)
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

static inline bool broadcasts(item x, item y)
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

static inline item partner(gen *q, item x, bool exact)
{
    for (int i = 0; i < 12; i++) {
        item y = exact ? pick_exact(q) : pick_float(q);
        if (broadcasts(x, y))
            return y;
    }
    return same_shape_leaf(q, x, exact ? x.v->type.dtype : some_float(q), exact);
}

/* Reshaped to this rank, by folding dims or adding ones. */
static inline item of_rank(gen *q, item x, int rank)
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

/* random_ops.c: a value made with an op of a random family; v is NULL when that one did not fit. */
item test_random_op(gen *q);
item test_random_leaf(gen *q);

#endif
