/* op.c - the table as data, and helpers the rules share. */
#include "op/op.h"
#include <math.h>

/* The first meaning of a formula: the reference, in double. */
#define SEL(c, a, b) ((c) ? (a) : (b))
#define CMP(c)       ((c) ? 1 : 0)
#define ONE(x)       1.0
#define ZERO(x)      0.0
#define NUM(v)       (v)
#define ABS          fabs
#define SQRT         sqrt
#define EXP          exp
#define EXPM1        expm1
#define LOG          log
#define LOG1P        log1p
#define SIN          sin
#define COS          cos
#define TANH         tanh
#define ERF          erf
#define ERFC         erfc
#define ERFINV       special_erfinv
#define LGAMMA       log_gamma
#define DIGAMMA      special_digamma
#define ZETA         special_zeta
#define FLOOR        floor
#define CEIL         ceil
#define RINT         rint
#define TRUNC        trunc
#define POW          pow
#define ATAN2        atan2
#define FMOD         fmod
#define FLOORDIV     floor_div
#define REMAINDER    remainder_of
#define NOT(x)       (double)(~(int64_t)(x))
#define AND(x, y)    (double)((int64_t)(x) & (int64_t)(y))
#define OR(x, y)     (double)((int64_t)(x) | (int64_t)(y))
#define XOR(x, y)    (double)((int64_t)(x) ^ (int64_t)(y))
#define SHL          shift_left
#define SHR          shift_right

#define SPECIAL(word, name, args, ...)                                                             \
    static double special_##name args                                                              \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }
#include "op/special.h"
#undef SPECIAL

/* lgamma() writes a global, and engines have threads. */
static double log_gamma(double x)
{
    int sign;

    return lgamma_r(x, &sign);
}

/* By way of fmod, which is exact: x / y may round up to a whole number (1 / 0.1 is 9.99..). */
static double remainder_of(double x, double y)
{
    double m = fmod(x, y);

    return m != 0 && (m < 0) != (y < 0) ? m + y : m;
}

static double floor_div(double x, double y)
{
    double m = fmod(x, y), q = (x - m) / y;

    if (y == 0)
        return x / y;
    return rint(m != 0 && (m < 0) != (y < 0) ? q - 1 : q);
}

/* A shift by the width or more, or by less than nothing, leaves no bit but the sign's. */
static double shift_left(double x, double y)
{
    return y >= 0 && y < 64 ? (double)(int64_t)((uint64_t)(int64_t)x << (int)y) : 0;
}

static double shift_right(double x, double y)
{
    return (double)((int64_t)x >> (y >= 0 && y < 64 ? (int)y : 63));
}

#define POINT(name, nin, res, grad, ...)                                                           \
    static double ref_##name(double x, double y, double z)                                         \
    {                                                                                              \
        (void)x;                                                                                   \
        (void)y;                                                                                   \
        (void)z;                                                                                   \
        return __VA_ARGS__;                                                                        \
    }
#define OP(...)
#define MACRO(...)
#include "op/ops.h"
#undef POINT
#undef OP
#undef MACRO

/* `none` in a row: the rule is absent. */
#define ts_grad_none NULL
#define ts_spec_none NULL

/* An op without its row of attributes does not compile. */
#define POINT(...)
#define OP(...)
#define MACRO(...)
#define ATTRS(op, list) static const char attrs_##op[] = list;
#include "op/ops.h"
#undef POINT
#undef OP
#undef MACRO

#define s_  's'
#define e_  'e'
#define f_  'f'
#define b_  'b'
#define i_  'i'
#define sc_ 's'
#define bc_ 'b'
#define bo_ 'b'
#define ep_ 'e'
/* what the second letter adds */
#define s_flags  0
#define e_flags  TS_EXACT
#define f_flags  0
#define b_flags  0
#define i_flags  0
#define sc_flags TS_COMMUTES
#define bc_flags TS_COMMUTES
#define bo_flags TS_ORDERS
#define ep_flags (TS_EXACT | TS_PICK)
const ts_op ts_ops[] = {
#define POINT(op, ins, res, gradient, ...)                                                         \
    {.name = #op,                                                                                  \
     .nin = ins,                                                                                   \
     .nout = 1,                                                                                    \
     .flags = TS_POINT | res##_flags,                                                              \
     .infer = ts_infer_point,                                                                      \
     .grad = ts_grad_##gradient,                                                                   \
     .eval = ts_eval_point,                                                                        \
     .emit = ts_emit_point,                                                                        \
     .ref = ref_##op,                                                                              \
     .formula = #__VA_ARGS__,                                                                      \
     .attrs = "",                                                                                  \
     .result = res##_},
#define OP(op, ins, outs, bits, inf, gradient, ev, em, sp)                                         \
    {.name = #op,                                                                                  \
     .nin = ins,                                                                                   \
     .nout = outs,                                                                                 \
     .flags = bits,                                                                                \
     .infer = ts_infer_##inf,                                                                      \
     .grad = ts_grad_##gradient,                                                                   \
     .eval = ts_eval_##ev,                                                                         \
     .emit = ts_emit_##em,                                                                         \
     .spec = ts_spec_##sp,                                                                         \
     .attrs = attrs_##op},
#define MACRO(op, ins, outs, ex)                                                                   \
    {.name = #op,                                                                                  \
     .nin = ins,                                                                                   \
     .nout = outs,                                                                                 \
     .flags = TS_COMPOSITE,                                                                        \
     .infer = ts_infer_composite,                                                                  \
     .expand = ts_expand_##ex,                                                                     \
     .attrs = attrs_##op},
#define CONTROL(op, ins, ex)                                                                       \
    {.name = #op,                                                                                  \
     .nin = ins,                                                                                   \
     .flags = TS_COMPOSITE | TS_CONTROL,                                                           \
     .infer = ts_infer_composite,                                                                  \
     .expand = ts_expand_##ex,                                                                     \
     .attrs = attrs_##op},
#include "op/ops.h"
#undef POINT
#undef OP
#undef MACRO
};

const ts_op *ts_op_at(int i)
{
    return i >= 0 && i < TS_COUNT(ts_ops) ? &ts_ops[i] : NULL;
}

const ts_op *ts_op_find(const char *name)
{
    for (int i = 0; i < TS_COUNT(ts_ops); i++)
        if (!strcmp(ts_ops[i].name, name))
            return &ts_ops[i];
    return NULL;
}

ts_status ts_node_set_out1(ts_node *n, ts_type t)
{
    ts_node_set_out(n, 1, &t);
    return TS_OK;
}

/* A composite's shape rule is its expansion, made in a graph that is thrown away. */
ts_status ts_infer_composite(ts_node *n)
{
    ts_arena *a = ts_arena_new();
    ts_graph *g = ts_graph_in(a, "expansion");
    ts_value *in[TS_MAX_INPUTS], *out[8] = {0};
    ts_type types[8];
    ts_status s;
    int nout = n->op->nout;

    g->like = n;
    for (int i = 0; i < n->nin; i++)
        in[i] = ts_graph_add_input(g, "in", n->in[i]->type);
    s = n->op->expand(g, n, in, out);
    if (!s && g->status) {
        s = g->status;
        ts_error_set(&g->error);
    }
    if (!s && n->op->flags & TS_CONTROL)
        nout = n->sub[0]->noutputs;
    for (int i = 0; i < nout && !s; i++) {
        if (!out[i])
            s = ts_fail_at(n, TS_ERR_INTERNAL, "%s has no output %d", n->op->name, i);
        else
            types[i] = out[i]->type;
    }
    if (s) { /* the user knows the composite, not the op in it that failed */
        ts_error e = *ts_last_error();
        snprintf(e.where, sizeof(e.where), "%s", ts_node_where(a, n));
        ts_error_set(&e);
    }
    ts_arena_free(a);
    if (!s)
        ts_node_set_out(n, nout, types);
    return s;
}

/* --- helpers --- */

ts_status ts_check_most(const ts_node *n, int most)
{
    if (n->nin > most)
        return ts_fail_at(n, TS_ERR_ARG, "%s takes at most %d inputs, got %d", n->op->name, most,
                          n->nin);
    return TS_OK;
}

ts_status ts_check_float(const ts_node *n, const ts_value *v)
{
    if (!ts_dtype_is_float(v->type.dtype))
        return ts_fail_at(n, TS_ERR_TYPE, "%s needs floats, got %s", n->op->name,
                          ts_dtype_name(v->type.dtype));
    return TS_OK;
}

int ts_attrs_but(const ts_node *n, const char *name, ts_attr *attr)
{
    int count = 0;

    for (int i = 0; i < n->nattr; i++)
        if (strcmp(n->attr[i].name, name))
            attr[count++] = n->attr[i];
    return count;
}

ts_value *ts_make1(const ts_op *op, ts_value *x, int nattr, const ts_attr *attr)
{
    return x ? ts_node_out(ts_node_make(x->graph, op, 1, &x, nattr, attr)) : NULL;
}

ts_value *ts_make2(const ts_op *op, ts_value *x, ts_value *y, int nattr, const ts_attr *attr)
{
    ts_value *in[] = {x, y};
    ts_graph *g = x ? x->graph : y ? y->graph : NULL;

    return ts_node_out(ts_node_make(g, op, 2, in, nattr, attr));
}

ts_value *ts_full_like(ts_value *x, double value)
{
    return x ? ts_scalar(x->graph, x->type.dtype, value) : NULL;
}

ts_value *ts_wide(ts_value *x)
{
    return x && ts_dtype_is_half(x->type.dtype) ? ts_cast(x, TS_F32) : x;
}

/* sqrt and the like make f32 of integers, as PyTorch does. */
static ts_value *float_for(const ts_op *op, ts_value *x)
{
    return x && op->result == 'f' && !ts_dtype_is_float(x->type.dtype) ? ts_cast(x, TS_F32) : x;
}

ts_value *ts_point1(const char *op, ts_value *x)
{
    return ts_make1(ts_op_find(op), float_for(ts_op_find(op), x), 0, NULL);
}

ts_value *ts_point2(const char *op, ts_value *x, ts_value *y)
{
    ts_dtype t;

    if (!x || !y)
        return ts_make2(ts_op_find(op), x, y, 0, NULL);
    t = ts_dtype_promote(&x->type, &y->type);
    if (ts_op_find(op)->result == 'f' && !ts_dtype_is_float(t))
        t = TS_F32;
    x = ts_cast(x, t);
    return ts_make2(ts_op_find(op), x, ts_cast(y, t), 0, NULL);
}

ts_value *ts_point3(const char *op, ts_value *x, ts_value *y, ts_value *z)
{
    ts_value *in[] = {x, y, z};

    if (!x || !y || !z)
        return NULL;
    return ts_node_out(ts_node_make(x->graph, ts_op_find(op), 3, in, 0, NULL));
}

ts_value *ts_sum_to(ts_value *v, const ts_type *t)
{
    int64_t dims[TS_MAX_RANK];
    int n = 0, extra;

    if (!v || ts_type_same_shape(&v->type, t))
        return v;
    extra = v->type.rank - t->rank;
    for (int i = 0; i < v->type.rank; i++)
        if (i < extra || (t->dim[i - extra] == 1 && v->type.dim[i] != 1))
            dims[n++] = i;
    if (n)
        v = ts_sum(v, n, dims, true);
    return ts_reshape_n(v, t->rank, t->dim);
}

int ts_norm_dim(const ts_node *n, int64_t dim, int rank)
{
    if (dim < -rank || dim >= rank) {
        ts_fail_at(n, TS_ERR_ARG, "dim %ld is out of range for a tensor of rank %d", (long)dim,
                   rank);
        return -1;
    }
    return (int)(dim < 0 ? dim + rank : dim);
}

ts_status ts_broadcast(const ts_node *n, int nin, ts_value *const *in, ts_type *out)
{
    out->rank = 0;
    for (int i = 0; i < nin; i++)
        out->rank = TS_MAX(out->rank, in[i]->type.rank);
    for (int d = 0; d < out->rank; d++) {
        out->dim[d] = 1;
        for (int i = 0; i < nin; i++) {
            const ts_type *t = &in[i]->type;
            int k = d - (out->rank - t->rank);
            if (k < 0 || t->dim[k] == 1)
                continue;
            if (out->dim[d] != 1 && out->dim[d] != t->dim[k])
                return ts_fail_at(n, TS_ERR_SHAPE,
                                  "%s cannot broadcast sizes %ld and %ld in dim %d", n->op->name,
                                  (long)out->dim[d], (long)t->dim[k], d);
            out->dim[d] = t->dim[k];
        }
    }
    return TS_OK;
}

ts_each ts_each_of(const ts_type *t)
{
    ts_each it = {.t = *t, .more = ts_type_count(t) > 0};

    return it;
}

void ts_each_next(ts_each *it)
{
    it->flat++;
    for (int d = it->t.rank - 1; d >= 0; d--) {
        if (++it->at[d] < it->t.dim[d])
            return;
        it->at[d] = 0;
    }
    it->more = false;
}

int64_t ts_flat(const ts_type *t, const int64_t *at)
{
    int64_t i = 0;

    for (int d = 0; d < t->rank; d++)
        i = i * t->dim[d] + at[d];
    return i;
}

ts_status ts_sums_start(const ts_tensor *t, double **sums)
{
    int64_t count = ts_type_count(&t->type);

    *sums = calloc((size_t)count, sizeof(double));
    return *sums ? TS_OK : ts_fail(TS_ERR_MEMORY, "cannot allocate %ld sums", (long)count);
}

void ts_sums_store(double *sums, ts_tensor *t)
{
    int64_t count = ts_type_count(&t->type);

    for (int64_t i = 0; i < count; i++)
        ts_dtype_set(t->type.dtype, t->data, i, sums[i]);
    free(sums);
}
