/* point.c - pointwise ops: one formula each (ops.h), one rule for shape, reference and code. */
#include "op/emit.h"
#include "op/op.h"

/* Same dtype in, that or bool out; `where` has its condition in front. */
ts_status ts_infer_point(ts_node *n)
{
    ts_type t = {.dtype = n->in[n->nin - 1]->type.dtype};
    int first = n->nin == 3 ? 1 : 0;

    for (int i = first; i < n->nin; i++)
        if (n->in[i]->type.dtype != t.dtype)
            return ts_fail_at(n, TS_ERR_TYPE, "%s needs equal dtypes, got %s and %s", n->op->name,
                              ts_dtype_name(n->in[i]->type.dtype), ts_dtype_name(t.dtype));
    if (n->op->result == 'f')
        TS_TRY(ts_check_float(n, n->in[0]));
    if (n->op->result == 'i' && (ts_dtype_is_float(t.dtype) || t.dtype == TS_BOOL))
        return ts_fail_at(n, TS_ERR_TYPE, "%s needs integers, got %s", n->op->name,
                          ts_dtype_name(t.dtype));
    TS_TRY(ts_broadcast(n, n->nin, n->in, &t));
    if (n->op->result == 'b')
        t.dtype = TS_BOOL;
    return ts_node_set_out1(n, t);
}

/* The element of a broadcast input that belongs to output element `at`. */
static int64_t broadcast_flat(const ts_type *t, const ts_each *it)
{
    int64_t i = 0;

    for (int d = 0; d < t->rank; d++) {
        int64_t c = it->at[d + it->t.rank - t->rank];
        i = i * t->dim[d] + (t->dim[d] == 1 ? 0 : c);
    }
    return i;
}

ts_status ts_eval_point(const ts_node *n, const ts_eval_ctx *c, const ts_tensor *in, ts_tensor *out)
{
    (void)c;
    for (ts_each it = ts_each_of(&out->type); it.more; ts_each_next(&it)) {
        double x[3] = {0};
        for (int i = 0; i < n->nin; i++)
            x[i] = ts_dtype_get(in[i].type.dtype, in[i].data, broadcast_flat(&in[i].type, &it));
        ts_dtype_set(out->type.dtype, out->data, it.flat, n->op->ref(x[0], x[1], x[2]));
    }
    return TS_OK;
}

/* Coordinates of a broadcast input. */
static const ts_ix *const *broadcast_at(ts_emit *e, const ts_value *v, int rank,
                                        const ts_ix *const *at)
{
    const ts_ix **x = TS_NEWS(e->a, const ts_ix *, v->type.rank);

    for (int d = 0; d < v->type.rank; d++)
        x[d] = v->type.dim[d] == 1 ? ts_ix_const(e->a, 0) : at[d + rank - v->type.rank];
    return x;
}

const char *ts_emit_point(ts_emit *e, const ts_node *n, int out, const ts_ix *const *at)
{
    const char *x[3] = {"", "", ""};
    int rank = n->out[0]->type.rank;
    ts_dtype t = n->in[n->nin - 1]->type.dtype;

    (void)out;
    for (int i = 0; i < n->nin; i++)
        x[i] = ts_emit_at(e, n->in[i], broadcast_at(e, n->in[i], rank, at));
    e->need(e->where, ts_arena_printf(e->a, "op %s %s", n->op->name, ts_emit_suffix(e, t)));
    return ts_emit_temp(e, n->out[0]->type.dtype, "%s%s_%s(%s%s%s%s%s)", e->prefix, n->op->name,
                        ts_emit_suffix(e, t), x[0], n->nin > 1 ? ", " : "", x[1],
                        n->nin > 2 ? ", " : "", x[2]);
}

/* --- cast ---
 * Floats outside an integer's range become the nearest end of it, NaN becomes 0; integers wrap. */

static const struct {
    double lo, hi;         /* from here on: the ends */
    const char *min, *max; /* in C */
} ends[] = {
    [TS_I8] = {-128, 128, "-128", "127"},
    [TS_U8] = {0, 256, "0", "255"},
    [TS_I32] = {-0x1p31, 0x1p31, "-2147483647 - 1", "2147483647"},
    [TS_I64] = {-0x1p63, 0x1p63, "INT64_MIN", "INT64_MAX"},
};

static bool saturates(ts_dtype from, ts_dtype to)
{
    return ts_dtype_is_float(from) && !ts_dtype_is_float(to) && to != TS_BOOL;
}

ts_status ts_infer_cast(ts_node *n)
{
    ts_type t = n->in[0]->type;
    const char *name = ts_attr_str(n, "dtype", "");

    TS_TRY(ts_dtype_parse(name, strlen(name), &t.dtype));
    return ts_node_set_out1(n, t);
}

ts_status ts_eval_cast(const ts_node *n, const ts_eval_ctx *c, const ts_tensor *in, ts_tensor *out)
{
    ts_dtype from = in->type.dtype, to = out->type.dtype;
    int64_t count = ts_type_count(&out->type);

    (void)n, (void)c;
    for (int64_t i = 0; i < count; i++) {
        double x = ts_dtype_get(from, in->data, i);
        if (saturates(from, to)) /* i64's last one is not a double; storing 2^63 gives it */
            x = x >= ends[to].hi ? ends[to].hi - (to != TS_I64) : x < ends[to].lo ? ends[to].lo : x;
        ts_dtype_set(to, out->data, i, x);
    }
    return TS_OK;
}

typedef struct cast_arg {
    const ts_node *n;
    const ts_ix *const *at;
} cast_arg;

static const char *saturate(ts_emit *e, void *arg)
{
    const cast_arg *c = arg;
    const char *x = ts_emit_at(e, c->n->in[0], c->at);
    ts_dtype to = c->n->out[0]->type.dtype;

    return ts_emit_temp(e, to, "%s != %s ? 0 : %s < %.0f.0 ? %s : %s >= %.0f.0 ? %s : (%s)%s", x, x,
                        x, ends[to].lo, ends[to].min, x, ends[to].hi, ends[to].max,
                        ts_emit_ctype(e, to), x);
}

const char *ts_emit_cast(ts_emit *e, const ts_node *n, int out, const ts_ix *const *at)
{
    if (saturates(n->in[0]->type.dtype, n->out[0]->type.dtype)) {
        cast_arg c = {n, at};
        return e->lanes ? ts_emit_lanes(e, n->out[0]->type.dtype, saturate, &c) : saturate(e, &c);
    }
    const char *x = ts_emit_at(e, n->in[0], at);
    ts_dtype from = n->in[0]->type.dtype, to = n->out[0]->type.dtype;
    const char *t = ts_emit_ctype(e, to);

    (void)out;
    if (to == TS_BOOL)
        return ts_emit_temp(e, to, e->lanes ? "-(%s != 0)" : "%s != 0", x);
    if (to == TS_F16 || to == TS_BF16) {
        e->need(e->where, "half");
        if (!ts_dtype_is_float(from) || from == TS_F64)
            x = e->lanes ? ts_arena_printf(e->a, "__builtin_convertvector(%s, %s)", x, t)
                         : ts_arena_printf(e->a, "(float)%s", x);
        return ts_emit_temp(e, to, "%sround_%s_%s(%s)", e->prefix, ts_dtype_name(to),
                            ts_emit_suffix(e, to), x);
    }
    if (to == TS_I8 || to == TS_U8) {
        e->need(e->where, "narrow");
        x = e->lanes ? ts_arena_printf(e->a, "__builtin_convertvector(%s, %s)", x, t)
                     : ts_arena_printf(e->a, "(int32_t)%s", x);
        return ts_emit_temp(e, to,
                            to == TS_U8 ? "%s & 255"
                            : e->plain  ? "(int8_t)%s"
                                        : "(%s << 24) >> 24",
                            x);
    }
    if (e->lanes)
        return ts_emit_temp(e, to, "__builtin_convertvector(%s, %s)", x, t);
    return ts_emit_temp(e, to, "(%s)%s", t, x);
}

ts_status ts_grad_cast(ts_node *n, ts_value *const *dy, ts_value **dx)
{
    if (ts_dtype_is_float(n->in[0]->type.dtype))
        dx[0] = ts_cast(dy[0], n->in[0]->type.dtype);
    return TS_OK;
}

/* --- gradients: x, y the inputs, o the output, d the gradient that comes in ---
 * Nodes are numbered as they are made, and C does not say which argument of a call comes first: so
 * at most one argument makes nodes. */

#define RULE(name, ...)                                                                            \
    ts_status ts_grad_##name(ts_node *n, ts_value *const *dy, ts_value **dx)                       \
    {                                                                                              \
        ts_value *x = n->in[0], *y = n->nin > 1 ? n->in[1] : NULL, *o = n->out[0], *d = dy[0];     \
        (void)x, (void)y, (void)o, (void)d;                                                        \
        __VA_ARGS__;                                                                               \
        for (int i = 0; i < n->nin; i++)                                                           \
            dx[i] = ts_sum_to(dx[i], &n->in[i]->type);                                             \
        return TS_OK;                                                                              \
    }

#define S(v) ts_full_like(x, v)

RULE(neg, dx[0] = ts_neg(d))
RULE(abs, dx[0] = ts_mul(d, ts_point1("sign", x)))
RULE(square, dx[0] = ts_mul(d, ts_mul(S(2), x)))
RULE(reciprocal, dx[0] = ts_neg(ts_mul(d, ts_mul(o, o))))
RULE(sqrt, dx[0] = ts_div(ts_mul(d, S(0.5)), o))
RULE(rsqrt, ts_value *cube = ts_mul(o, ts_mul(o, o)); dx[0] = ts_mul(ts_mul(d, S(-0.5)), cube))
RULE(exp, dx[0] = ts_mul(d, o))
RULE(expm1, dx[0] = ts_mul(d, ts_add(o, S(1))))
RULE(log, dx[0] = ts_div(d, x))
RULE(log1p, dx[0] = ts_div(d, ts_add(x, S(1))))
RULE(log2, dx[0] = ts_div(d, ts_mul(x, S(0.6931471805599453))))
RULE(log10, dx[0] = ts_div(d, ts_mul(x, S(2.302585092994046))))
RULE(sin, dx[0] = ts_mul(d, ts_point1("cos", x)))
RULE(cos, dx[0] = ts_neg(ts_mul(d, ts_point1("sin", x))))
/* From x: of their values at the ends, where the slope is infinite, nothing is left of it. */
RULE(asin, ts_value *one = S(1); dx[0] = ts_mul(d, ts_rsqrt(ts_sub(one, ts_mul(x, x)))))
RULE(acos, ts_value *one = S(1); dx[0] = ts_neg(ts_mul(d, ts_rsqrt(ts_sub(one, ts_mul(x, x))))))
RULE(acosh, ts_value *one = S(1); dx[0] = ts_mul(d, ts_rsqrt(ts_sub(ts_mul(x, x), one))))
RULE(tanh, ts_value *one = S(1); dx[0] = ts_mul(d, ts_sub(one, ts_mul(o, o))))
/* 2/sqrt(pi) exp(-x^2) */
RULE(erf, ts_value *bell = ts_exp(ts_neg(ts_mul(x, x)));
     dx[0] = ts_mul(d, ts_mul_scalar(bell, 1.1283791670955126)))
RULE(erfc, ts_value *bell = ts_exp(ts_neg(ts_mul(x, x)));
     dx[0] = ts_mul(d, ts_mul_scalar(bell, -1.1283791670955126)))
RULE(erfinv, ts_value *bell = ts_exp(ts_mul(o, o));
     dx[0] = ts_mul(d, ts_mul_scalar(bell, 0.8862269254527580)))
RULE(lgamma, dx[0] = ts_mul(d, ts_point1("digamma", x)))
RULE(digamma, dx[0] = ts_mul(d, ts_point2("zeta", S(2), x)))
/* By its second input only, as PyTorch's. */
RULE(zeta, ts_value *next = ts_point2("zeta", ts_add(x, S(1)), y);
     dx[1] = ts_neg(ts_mul(d, ts_mul(x, next))))
RULE(sigmoid, dx[0] = ts_mul(d, ts_mul(o, ts_sub(S(1), o))))
/* Asks the output rather than x: the next layer keeps it alive anyway. */
RULE(relu, dx[0] = ts_mul(d, ts_point1("step", o)))
RULE(nop, dx[0] = d)
RULE(add, dx[0] = d; dx[1] = d)
RULE(sub, dx[0] = d; dx[1] = ts_neg(d))
RULE(mul, dx[0] = ts_mul(d, y); dx[1] = ts_mul(d, x))
RULE(div, dx[0] = ts_div(d, y); dx[1] = ts_neg(ts_div(ts_mul(d, o), y)))
/* x - y*floor(x/y), x - y*trunc(x/y); the latter's quotient is (x - o)/y up to rounding */
RULE(remainder, dx[0] = d; dx[1] = ts_neg(ts_mul(d, ts_point2("floor_divide", x, y))))
RULE(fmod, dx[0] = d; dx[1] = ts_neg(ts_mul(d, ts_point1("round", ts_div(ts_sub(x, o), y)))))
/* At the origin 0, as PyTorch 2 has it. */
RULE(atan2, ts_value *s = ts_mul(x, x); s = ts_add(s, ts_mul(y, y));
     ts_value *none = ts_eq(s, ts_full_like(s, 0)); s = ts_where(none, ts_full_like(s, 1), s);
     dx[0] = ts_mul(d, ts_div(y, s)); dx[1] = ts_neg(ts_mul(d, ts_div(x, s))))
/* As PyTorch: y == 0 gives 0 for x; x == 0 with y >= 0 gives 0 for y. */
RULE(pow, ts_value *zero = S(0); ts_value *flat = ts_eq(y, zero);
     dx[0] = ts_mul(d, ts_where(flat, zero, ts_mul(y, ts_pow(x, ts_sub(y, S(1))))));
     flat = ts_ge(y, zero); flat = ts_point2("logical_and", ts_eq(x, zero), flat);
     dx[1] = ts_mul(d, ts_where(flat, zero, ts_mul(o, ts_log(x)))))
/* Equal elements share the gradient; with a NaN both get it. */
RULE(maximum, ts_value *half = ts_mul(d, S(0.5)), *zero = S(0), *tie = ts_eq(x, y);
     dx[0] = ts_where(tie, half, ts_where(ts_lt(x, y), zero, d));
     dx[1] = ts_where(tie, half, ts_where(ts_gt(x, y), zero, d)))
RULE(minimum, ts_value *half = ts_mul(d, S(0.5)), *zero = S(0), *tie = ts_eq(x, y);
     dx[0] = ts_where(tie, half, ts_where(ts_gt(x, y), zero, d));
     dx[1] = ts_where(tie, half, ts_where(ts_lt(x, y), zero, d)))

/* Every element of v, or 0 where they are not one number. */
static double number(const ts_value *v)
{
    return v->kind == TS_VALUE_NODE && v->node->op == TS_OP(full)
               ? ts_attr_float(v->node, "value", 0)
               : 0;
}

static bool is_zero(const ts_value *v)
{
    return v->kind == TS_VALUE_NODE && v->node->op == TS_OP(full) && number(v) == 0;
}

static const ts_node *made_by(const ts_value *v, const ts_op *op)
{
    return v->kind == TS_VALUE_NODE && v->node->op == op ? v->node : NULL;
}

/* Is n leaky_relu, `x > 0 ? x : s x` with s > 0? Then its result has the sign of x, and the next layer keeps
 * the result in memory anyway; x would be kept for this alone. */
static bool keeps_sign(const ts_node *n)
{
    const ts_node *above = made_by(n->in[0], TS_OP(gt)), *below = made_by(n->in[2], TS_OP(mul));

    return above && below && above->in[0] == n->in[1] && is_zero(above->in[1]) &&
           below->in[0] == n->in[1] && number(below->in[1]) > 0 &&
           ts_type_same(&n->in[1]->type, &n->out[0]->type);
}

RULE(where, ts_value *zero = ts_full_like(d, 0);
     ts_value *c = keeps_sign(n) ? ts_gt(o, ts_full_like(o, 0)) : x; dx[1] = ts_where(c, d, zero);
     dx[2] = ts_where(c, zero, d))
