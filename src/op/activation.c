/* activation.c - activations and other small compositions of pointwise ops and reductions. */
#include "op/op.h"

#define S(v) ts_full_like(x, v)
#define MACRO_RULE(name, ...)                                                                      \
    ts_status ts_expand_##name(ts_graph *g, const ts_node *n, ts_value *const *in, ts_value **out) \
    {                                                                                              \
        ts_value *x = in[0];                                                                       \
        TS_TRY(ts_check_float(n, x));                                                              \
        __VA_ARGS__;                                                                               \
        return g->status;                                                                          \
    }

MACRO_RULE(leaky_relu, ts_value *above = ts_gt(x, S(0));
           ts_value *below = ts_mul_scalar(x, ts_attr_float(n, "negative_slope", 0.01));
           out[0] = ts_where(above, x, below))
/* Halves in f32, rounded once, as PyTorch does it. */
MACRO_RULE(silu, ts_value *w = ts_wide(x);
           out[0] = ts_cast(ts_mul(w, ts_sigmoid(w)), x->type.dtype))
/* e^ of the negative part only, so that it never overflows */
MACRO_RULE(elu, double alpha = ts_attr_float(n, "alpha", 1); ts_value *above = ts_gt(x, S(0));
           ts_value *below = ts_point1("expm1", ts_where(above, S(0), x));
           below = ts_mul_scalar(below, alpha); out[0] = ts_where(above, x, below))
/* log(1 + e^(beta x)) / beta, written so that e^ never overflows; linear above the threshold as
 * PyTorch has it */
MACRO_RULE(softplus, double beta = ts_attr_float(n, "beta", 1); ts_value *z = ts_mul(x, S(beta));
           ts_value *soft = ts_point1("log1p", ts_exp(ts_neg(ts_abs(z))));
           soft = ts_add(ts_maximum(z, S(0)), soft); soft = ts_mul_scalar(soft, 1 / beta);
           ts_value *large = ts_gt(z, S(ts_attr_float(n, "threshold", 20)));
           out[0] = ts_where(large, x, soft))

ts_status ts_expand_gelu(ts_graph *g, const ts_node *n, ts_value *const *in, ts_value **out)
{
    ts_value *x = ts_wide(in[0]), *t; /* halves in f32, rounded once, as PyTorch does it */
    const char *approximate = ts_attr_str(n, "approximate", "none");

    TS_TRY(ts_check_float(n, x));
    if (strcmp(approximate, "none") && strcmp(approximate, "tanh"))
        return ts_fail_at(n, TS_ERR_ARG, "gelu: approximate '%s' is not none or tanh", approximate);
    if (!strcmp(approximate, "tanh")) {
        t = ts_add(x, ts_mul_scalar(ts_mul(x, ts_mul(x, x)), 0.044715));
        t = ts_tanh(ts_mul_scalar(t, 0.7978845608028654));
    } else
        t = ts_erf(ts_mul(x, S(0.7071067811865476)));
    t = ts_add_scalar(t, 1);
    out[0] = ts_cast(ts_mul(ts_mul_scalar(x, 0.5), t), in[0]->type.dtype);
    return g->status;
}

/* Both ends optional, max wins; the gradient passes where lo <= x <= hi, and with open=1 between them only. */
ts_status ts_expand_clamp(ts_graph *g, const ts_node *n, ts_value *const *in, ts_value **out)
{
    ts_value *x = in[0], *y = x, *end;
    bool open = ts_attr_int(n, "open", 0);

    if (ts_attr_find(n, "min")) {
        end = S(ts_attr_float(n, "min", 0));
        y = ts_where(open ? ts_le(y, end) : ts_lt(y, end), end, y);
    }
    if (ts_attr_find(n, "max")) {
        end = S(ts_attr_float(n, "max", 0));
        y = ts_where(open ? ts_ge(y, end) : ts_gt(y, end), end, y);
    }
    out[0] = y == x ? ts_point1("nop", x) : y;
    return g->status;
}

/* --- reductions --- */

static double reduced_count(const ts_value *x, const ts_value *y)
{
    return (double)ts_type_count(&x->type) / (double)ts_type_count(&y->type);
}

/* f16 and bf16 are summed in f32, and rounded after the division */
ts_status ts_expand_mean(ts_graph *g, const ts_node *n, ts_value *const *in, ts_value **out)
{
    ts_value *x = in[0], *s;

    if (!ts_dtype_is_float(x->type.dtype))
        return ts_fail_at(n, TS_ERR_TYPE, "mean needs floats, got %s",
                          ts_dtype_name(x->type.dtype));
    s = ts_make1(TS_OP(sum), ts_wide(x), n->nattr, n->attr);
    if (s)
        out[0] = ts_cast(ts_mul_scalar(s, 1 / reduced_count(x, s)), x->type.dtype);
    return g->status;
}

/* m + log(sum(exp(x - m))): m only keeps exp in range, so no gradient goes through it. An infinite
 * m would give inf - inf, and is left out. */
static void logsumexp_parts(ts_value *x, int nattr, const ts_attr *attr, ts_value **max,
                            ts_value **sum)
{
    ts_attr keep[8];
    ts_value *infinite;
    int n = 0;

    for (int i = 0; i < nattr; i++)
        if (!strcmp(attr[i].name, "dims"))
            keep[n++] = attr[i];
    keep[n++] = ts_attr_i("keepdim", 1);
    *max = ts_detach(ts_make1(TS_OP(amax), x, n, keep));
    infinite = ts_full_like(*max, __builtin_inf());
    infinite = ts_eq(ts_abs(*max), infinite);
    *max = ts_where(infinite, ts_full_like(*max, 0), *max);
    *sum = ts_make1(TS_OP(sum), ts_exp(ts_sub(x, *max)), n, keep);
}

ts_status ts_expand_logsumexp(ts_graph *g, const ts_node *n, ts_value *const *in, ts_value **out)
{
    ts_value *max, *sum, *y;
    const int64_t *dims;
    ts_type t = in[0]->type;
    int count = ts_attr_list(n, "dims", &dims), rank = 0;

    TS_TRY(ts_check_float(n, in[0]));
    logsumexp_parts(in[0], n->nattr, n->attr, &max, &sum);
    y = ts_add(max, ts_log(sum));
    if (!y)
        return g->status;
    if (!ts_attr_int(n, "keepdim", 0)) {
        for (int d = 0; d < t.rank; d++) {
            bool gone = !count;
            for (int i = 0; i < count; i++)
                gone = gone || (dims[i] < 0 ? dims[i] + t.rank : dims[i]) == d;
            if (!gone)
                t.dim[rank++] = t.dim[d];
        }
        y = ts_reshape_n(y, rank, t.dim);
    }
    out[0] = y;
    return g->status;
}

/* amax or sum over dim, which stays as 1. A scalar has one dim here, as in PyTorch. */
static ts_value *over(const ts_op *op, ts_value *x, int64_t dim)
{
    ts_attr keep[] = {ts_attr_l("dims", 1, &dim), ts_attr_i("keepdim", 1)};
    int skip = x && !x->type.rank;

    return ts_make1(op, x, 2 - skip, keep + skip);
}

static ts_status softmax_dim(const ts_node *n, const ts_value *x, int64_t *dim)
{
    *dim = ts_attr_int(n, "dim", -1);
    TS_TRY(ts_check_float(n, x));
    return ts_norm_dim(n, *dim, TS_MAX(x->type.rank, 1)) < 0 ? TS_ERR_ARG : TS_OK;
}

ts_status ts_expand_softmax(ts_graph *g, const ts_node *n, ts_value *const *in, ts_value **out)
{
    ts_value *e;
    int64_t dim;

    TS_TRY(softmax_dim(n, in[0], &dim));
    e = ts_exp(ts_sub(in[0], ts_detach(over(TS_OP(amax), in[0], dim))));
    out[0] = ts_div(e, over(TS_OP(sum), e, dim));
    return g->status;
}

ts_status ts_expand_log_softmax(ts_graph *g, const ts_node *n, ts_value *const *in, ts_value **out)
{
    ts_value *z;
    int64_t dim;

    TS_TRY(softmax_dim(n, in[0], &dim));
    z = ts_sub(in[0], ts_detach(over(TS_OP(amax), in[0], dim)));
    out[0] = ts_sub(z, ts_log(over(TS_OP(sum), ts_exp(z), dim)));
    return g->status;
}

/* --- random --- */

/* Box and Muller: sqrt(-2 log(1 - u)) cos(2 pi v). u takes the node's stream, which no other random
 * node has, and v one beyond all that nodes get. */
ts_status ts_expand_randn(ts_graph *g, const ts_node *n, ts_value *const *in, ts_value **out)
{
    int64_t stream = ts_attr_int(n, "stream", 0);
    const int64_t *shape;
    int rank = ts_attr_list(n, "shape", &shape);
    ts_attr attr[] = {ts_attr_s("dtype", "f32"), ts_attr_l("shape", rank, shape),
                      ts_attr_i("stream", stream)};
    const char *dtype = ts_attr_str(n, "dtype", "f32");
    ts_value *u, *v;
    ts_dtype t;

    (void)in;
    TS_TRY(ts_dtype_parse(dtype, strlen(dtype), &t));
    if (!ts_dtype_is_float(t))
        return ts_fail_at(n, TS_ERR_TYPE, "randn makes floats, not %s", dtype);
    u = ts_node_out(ts_node_make(g, TS_OP(rand), 0, NULL, 3, attr));
    attr[2].i = (int64_t)((uint64_t)stream + (1ull << 40));
    v = ts_node_out(ts_node_make(g, TS_OP(rand), 0, NULL, 3, attr));
    u = ts_sqrt(ts_mul_scalar(ts_log(ts_sub(ts_full_like(u, 1), u)), -2));
    out[0] = ts_cast(ts_mul(u, ts_point1("cos", ts_mul_scalar(v, 6.283185307179586))), t);
    return g->status;
}

ts_status ts_expand_dropout(ts_graph *g, const ts_node *n, ts_value *const *in, ts_value **out)
{
    double p = ts_attr_float(n, "p", 0.5);
    ts_value *x = in[0], *u, *keep;
    ts_attr attr[] = {ts_attr_s("dtype", "f32"), ts_attr_l("shape", x->type.rank, x->type.dim),
                      ts_attr_i("stream", ts_attr_int(n, "stream", 0))};

    if (!(p >= 0 && p <= 1))
        return ts_fail_at(n, TS_ERR_ARG, "dropout probability %g is not in 0..1", p);
    TS_TRY(ts_check_float(n, x));
    if (!ts_attr_int(n, "training", 1) || p == 0) {
        out[0] = ts_point1("nop", x);
        return g->status;
    }
    u = ts_node_out(ts_node_make(g, TS_OP(rand), 0, NULL, 3, attr));
    keep = ts_cast(ts_ge(u, ts_full_like(u, p)), x->type.dtype);
    out[0] = ts_mul(x, ts_mul(keep, S(p < 1 ? 1 / (1 - p) : 0)));
    return g->status;
}
