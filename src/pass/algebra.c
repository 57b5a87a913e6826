/* algebra.c - rules for pointwise ops.
 *
 *   x - 0, x * 1, x / 1, --x     x                  to the bit
 *   x + 0                        x                  only -0 differs: it stays -0
 *   x * -1                       -x
 *   x - -y, x + -y, -x + y       x + y, x - y, y - x
 *   -x * -y, -x / -y, -x * c     x * y, x / y, x * -c
 *   x / 2^k                      x * 2^-k
 *   (x * c) * d                  x * (c d)          c or d a power of 2; it does not overflow on
 *                                                   the way, otherwise the same bits
 *   pow(x, 0 1 2 3 -1)           1, x, x * x, x * x * x, 1 / x
 *   pow(x, 0.5)                  sqrt(x)            as PyTorch; differs for -0 and -inf
 *   maximum(x, x), relu relu x   x, relu x
 *   where(1, x, y), (c, x, x)    x
 *   cast to its own dtype, back from a wider one
 *   f(expand x)                  expand f(x), or f(x) when f broadcasts it as well
 *   matmul(x * c, y)             matmul(x, y) * c   f32; views may be between. An operand is in
 *                                                   memory, so x * c would be a copy of x
 *   scatter_add(i, s)            where(k == i, s, 0)  one index a row: the gradient of a cross
 *                                                   entropy's pick, which would else be a tensor
 *                                                   of zeros and as large as the scores
 *
 * Not here, since floats differ: x * 0 (NaN, infinity), x - x, (x + c) + d, exp(log x). Integers
 * only have the identities: they wrap where floats round.
 */
#include "pass/pass.h"
#include <math.h>

static ts_graph *graph(const ts_node *n)
{
    return n->out[0]->graph;
}

static bool is_float(const ts_node *n)
{
    return ts_dtype_is_float(n->out[0]->type.dtype);
}

static bool is_full(const ts_value *v, double want)
{
    double x;

    return ts_full_value(v, &x) && x == want;
}

/* v in the place of n: broadcast if n did that. */
static ts_value *instead(const ts_node *n, ts_value *v)
{
    return ts_rule_shaped(v, &n->out[0]->type);
}

static ts_value *make(const ts_node *n, const char *op, ts_value *x, ts_value *y)
{
    return instead(n, ts_make2(ts_op_find(op), x, y, 0, NULL));
}

static ts_value *scalar(const ts_node *n, double x)
{
    return ts_scalar(graph(n), n->out[0]->type.dtype, x);
}

/* y, if input i of n is -y */
static ts_value *negated(const ts_node *n, int i)
{
    const ts_node *neg = is_float(n) ? ts_rule_behind(n, i, TS_OP(neg)) : NULL;

    return neg ? neg->in[0] : NULL;
}

/* The dtype has x exactly, with all its bits. */
static bool is_normal(ts_dtype t, double x)
{
    double least = t == TS_F64 ? 0x1p-1022 : t == TS_F16 ? 0x1p-14 : 0x1p-126;
    uint64_t bits = 0;

    ts_dtype_set(t, &bits, 0, x);
    return isfinite(x) && fabs(x) >= least && ts_dtype_get(t, &bits, 0) == x;
}

static bool is_power_of_2(double x)
{
    int e;

    return isfinite(x) && fabs(frexp(x, &e)) == 0.5;
}

static ts_value *first(const ts_node *n)
{
    return n->in[0];
}

static ts_value *neg_neg(const ts_node *n)
{
    return negated(n, 0);
}

static ts_value *relu_relu(const ts_node *n)
{
    return ts_rule_behind(n, 0, TS_OP(relu)) ? n->in[0] : NULL;
}

static ts_value *same_both(const ts_node *n)
{
    return n->in[0] == n->in[1] ? n->in[0] : NULL;
}

static ts_value *add_zero(const ts_node *n)
{
    for (int i = 0; i < 2; i++)
        if (is_full(n->in[i], 0))
            return instead(n, n->in[1 - i]);
    return NULL;
}

static ts_value *add_neg(const ts_node *n)
{
    for (int i = 1; i >= 0; i--)
        if (negated(n, i))
            return make(n, "sub", n->in[1 - i], negated(n, i));
    return NULL;
}

static ts_value *sub_zero(const ts_node *n)
{
    return is_full(n->in[1], 0) ? instead(n, n->in[0]) : NULL;
}

static ts_value *sub_neg(const ts_node *n)
{
    return negated(n, 1) ? make(n, "add", n->in[0], negated(n, 1)) : NULL;
}

static ts_value *mul_one(const ts_node *n)
{
    for (int i = 0; i < 2; i++) {
        if (is_full(n->in[i], 1))
            return instead(n, n->in[1 - i]);
        if (is_float(n) && is_full(n->in[i], -1))
            return instead(n, ts_neg(n->in[1 - i]));
    }
    return NULL;
}

static ts_value *mul_neg(const ts_node *n)
{
    double c;

    if (negated(n, 0) && negated(n, 1))
        return make(n, "mul", negated(n, 0), negated(n, 1));
    for (int i = 0; i < 2; i++)
        if (ts_full_value(n->in[i], &c) && negated(n, 1 - i))
            return make(n, "mul", negated(n, 1 - i), scalar(n, -c));
    return NULL;
}

/* (x * c) * d */
static ts_value *mul_mul(const ts_node *n)
{
    for (int i = 0; i < 2; i++) {
        const ts_node *m = is_float(n) ? ts_rule_behind(n, i, TS_OP(mul)) : NULL;
        double c, d;
        if (!m || !ts_full_value(n->in[1 - i], &d))
            continue;
        for (int k = 0; k < 2; k++)
            if (ts_full_value(m->in[k], &c) && (is_power_of_2(c) || is_power_of_2(d)) &&
                is_normal(n->out[0]->type.dtype, c * d))
                return make(n, "mul", m->in[1 - k], scalar(n, c * d));
    }
    return NULL;
}

static ts_value *div_const(const ts_node *n)
{
    double c;

    if (!ts_full_value(n->in[1], &c))
        return NULL;
    if (c == 1)
        return instead(n, n->in[0]);
    if (is_float(n) && is_power_of_2(c) && is_normal(n->out[0]->type.dtype, 1 / c))
        return make(n, "mul", n->in[0], scalar(n, 1 / c));
    return NULL;
}

static ts_value *div_neg(const ts_node *n)
{
    return negated(n, 0) && negated(n, 1) ? make(n, "div", negated(n, 0), negated(n, 1)) : NULL;
}

/* x * x * x as PyTorch has it, halves rounded once. */
static ts_value *cube(ts_value *x)
{
    ts_dtype t = x->type.dtype, wide = t == TS_F16 || t == TS_BF16 ? TS_F32 : t;

    x = ts_cast(x, wide);
    return ts_cast(ts_mul(ts_mul(x, x), x), t);
}

static ts_value *pow_const(const ts_node *n)
{
    ts_value *x = n->in[0];
    double c;

    if (!is_float(n) || !ts_full_value(n->in[1], &c))
        return NULL;
    if (c == 0)
        return instead(n, scalar(n, 1));
    if (c == 1)
        return instead(n, x);
    if (c == 2)
        return make(n, "mul", x, x);
    if (c == 0.5)
        return instead(n, ts_sqrt(x));
    if (c == 3)
        return instead(n, cube(x));
    return c == -1 ? instead(n, ts_reciprocal(x)) : NULL;
}

static ts_value *where_known(const ts_node *n)
{
    double c;

    if (ts_full_value(n->in[0], &c))
        return instead(n, n->in[c != 0 ? 1 : 2]);
    return n->in[1] == n->in[2] ? instead(n, n->in[1]) : NULL;
}

/* Does `wide` have every value of `t`? */
static bool holds(ts_dtype wide, ts_dtype t)
{
    switch (t) {
    case TS_BOOL:
        return true;
    case TS_F16:
    case TS_BF16:
        return wide == TS_F32 || wide == TS_F64;
    case TS_I8:
    case TS_U8:
        return wide == TS_F32 || wide == TS_F64 || wide == TS_I32 || wide == TS_I64;
    case TS_F32:
        return wide == TS_F64;
    case TS_I32:
        return wide == TS_F64 || wide == TS_I64;
    default:
        return false;
    }
}

static ts_value *cast_cast(const ts_node *n)
{
    const ts_node *inner = ts_rule_behind(n, 0, TS_OP(cast));

    if (n->in[0]->type.dtype == n->out[0]->type.dtype)
        return n->in[0];
    if (!inner || !holds(n->in[0]->type.dtype, inner->in[0]->type.dtype))
        return NULL;
    return ts_cast(inner->in[0], n->out[0]->type.dtype);
}

static const ts_rule rules[] = {
    {TS_OP(nop), first},      {TS_OP(detach), first},      {TS_OP(neg), neg_neg},
    {TS_OP(relu), relu_relu}, {TS_OP(maximum), same_both}, {TS_OP(minimum), same_both},
    {TS_OP(add), add_zero},   {TS_OP(add), add_neg},       {TS_OP(sub), sub_zero},
    {TS_OP(sub), sub_neg},    {TS_OP(mul), mul_one},       {TS_OP(mul), mul_neg},
    {TS_OP(mul), mul_mul},    {TS_OP(div), div_const},     {TS_OP(div), div_neg},
    {TS_OP(pow), pow_const},  {TS_OP(where), where_known}, {TS_OP(cast), cast_cast},
};

/* What is broadcast: x of expand(x), and one element of a full. */
static ts_value *unexpanded(const ts_node *n, int i)
{
    const ts_node *expand = ts_rule_behind(n, i, TS_OP(expand));
    double x;

    if (expand)
        return expand->in[0];
    if (n->in[i]->type.rank && ts_full_value(n->in[i], &x))
        return ts_scalar(graph(n), n->in[i]->type.dtype, x);
    return n->in[i];
}

/* Computes the elements that differ, once. Of a random op all differ. */
static ts_value *push_expand(const ts_node *n)
{
    ts_value *in[3];
    bool any = false;

    if (n->op->flags & TS_RANDOM)
        return NULL;
    for (int i = 0; i < n->nin; i++) {
        in[i] = unexpanded(n, i);
        any = any || in[i] != n->in[i];
    }
    if (!any)
        return NULL;
    return instead(n, ts_node_out(ts_node_make(graph(n), n->op, n->nin, in, n->nattr, n->attr)));
}

/* x, if v is a view of x * c, with the view of it; NULL: it is not. */
static ts_value *unscaled(const ts_value *v, int phase, double *c)
{
    const ts_node *n = v->kind == TS_VALUE_NODE ? v->node : NULL;
    ts_value *x;

    if (!n || n->phase != phase)
        return NULL;
    if (n->op == TS_OP(mul) && ts_full_value(n->in[1], c) && isfinite(*c) &&
        ts_type_same(&n->in[0]->type, &v->type))
        return n->in[0];
    if (n->op != TS_OP(permute) && n->op != TS_OP(reshape))
        return NULL;
    x = unscaled(n->in[0], phase, c);
    return x ? ts_make1(n->op, x, n->nattr, n->attr) : NULL;
}

static ts_value *matmul_scaled(const ts_node *n)
{
    ts_value *in[2];
    double c, all = 1;

    if (n->out[0]->type.dtype != TS_F32)
        return NULL;
    for (int i = 0; i < 2; i++) {
        in[i] = unscaled(n->in[i], n->phase, &c);
        all *= in[i] ? c : 1;
        in[i] = in[i] ? in[i] : n->in[i];
    }
    if (in[0] == n->in[0] && in[1] == n->in[1])
        return NULL;
    return make(n, "mul", ts_make2(n->op, in[0], in[1], n->nattr, n->attr), scalar(n, all));
}

/* Is there one index for each row along dim? Then no two elements meet. */
static bool one_a_row(const ts_node *n, int dim)
{
    const ts_type *y = &n->out[0]->type, *x = &n->in[1]->type;

    for (int d = 0; d < y->rank; d++)
        if (x->dim[d] != (d == dim ? 1 : y->dim[d]))
            return false;
    return y->dim[dim] < INT32_MAX;
}

/* An index beyond the row stays beyond it in 32 bits, of which there are vectors. */
static ts_value *scatter_one(const ts_node *n)
{
    const ts_type *y = &n->out[0]->type;
    int dim = ts_norm_dim(n, ts_attr_int(n, "dim", 0), y->rank);
    int64_t shape[TS_MAX_RANK];
    ts_value *at = n->in[0];

    if (!one_a_row(n, dim))
        return NULL;
    for (int d = 0; d < y->rank; d++)
        shape[d] = d == dim ? y->dim[d] : 1;
    at = ts_minimum(at, ts_scalar(graph(n), at->type.dtype, (double)y->dim[dim]));
    at = ts_cast(ts_maximum(at, ts_scalar(graph(n), at->type.dtype, -1)), TS_I32);
    at = ts_eq(ts_iota(graph(n), y->rank, shape, dim, TS_I32), at);
    return instead(n, ts_where(at, n->in[1], scalar(n, 0)));
}

ts_value *ts_rule_point(const ts_node *n)
{
    ts_value *v;

    if (n->op == TS_OP(scatter_add))
        return scatter_one(n);
    if (n->op == TS_OP(matmul))
        return matmul_scaled(n);
    if (!(n->op->flags & TS_POINT))
        return NULL;
    v = ts_rule_first(rules, TS_COUNT(rules), n);
    return v ? v : push_expand(n);
}
