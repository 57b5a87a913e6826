/* words_point.c - pointwise ATen ops, activations and random numbers.
 *
 * Operands are cast to the dtype of PyTorch's answer (c->dtype) first; comparisons, whose answer is
 * bool, promote by themselves.
 */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "front/words.h"

static ts_value *x_of(ts_call *c)
{
    return ts_call_as(c, 0, c->dtype);
}

ts_value *ts_word_unary(ts_call *c)
{
    return ts_call_op1(c->row->op, c, x_of(c));
}

ts_value *ts_word_square(ts_call *c)
{
    return ts_square(x_of(c));
}

ts_value *ts_word_nop(ts_call *c)
{
    return ts_call_op1("nop", c, x_of(c));
}

/* What the tensor before it is the value of is what is kept. */
ts_value *ts_word_checkpoint(ts_call *c)
{
    return ts_checkpoint(x_of(c));
}

ts_value *ts_word_binary(ts_call *c)
{
    if (c->dtype == TS_BOOL && !strcmp(c->row->op, "mul"))
        return ts_call_op2("logical_and", c, x_of(c), ts_call_as(c, 1, TS_BOOL));
    return ts_call_op2(c->row->op, c, x_of(c), ts_call_as(c, 1, c->dtype));
}

/* alpha times y */
static ts_value *scaled(ts_call *c, ts_value *y, int alpha)
{
    double a = ts_call_number(c, alpha, 1);

    return a == 1 ? y : ts_call_op2("mul", c, y, ts_call_scalar(c, a));
}

/* A bool times alpha, which counts or does not. */
static ts_value *counted(ts_call *c, ts_value *y)
{
    if (ts_call_flag(c, 2) || !ts_call_has(c, 2))
        return y;
    return ts_call_op2("logical_and", c, y, ts_scalar(c->g, TS_BOOL, 0));
}

ts_value *ts_word_add(ts_call *c)
{
    if (c->dtype == TS_BOOL)
        return ts_call_op2("logical_or", c, x_of(c), counted(c, ts_call_as(c, 1, TS_BOOL)));
    return ts_call_op2("add", c, x_of(c), scaled(c, ts_call_as(c, 1, c->dtype), 2));
}

ts_value *ts_word_sub(ts_call *c)
{
    return ts_call_op2("sub", c, x_of(c), scaled(c, ts_call_as(c, 1, c->dtype), 2));
}

ts_value *ts_word_rsub(ts_call *c)
{
    return ts_call_op2("sub", c, ts_call_as(c, 1, c->dtype), scaled(c, x_of(c), 2));
}

ts_value *ts_word_div(ts_call *c)
{
    const char *mode = ts_call_text(c, 2, "");
    ts_value *x = x_of(c), *y = ts_call_as(c, 1, c->dtype);

    if (!strcmp(mode, "floor"))
        return ts_call_op2("floor_divide", c, x, y);
    if (!strcmp(mode, "trunc") && !ts_dtype_is_float(c->dtype)) /* what is left divides evenly */
        return ts_call_op2("floor_divide", c, ts_sub(x, ts_call_op2("fmod", c, x, y)), y);
    x = ts_call_op2("div", c, x, y);
    return !strcmp(mode, "trunc") ? ts_call_op1("trunc", c, x) : x;
}

/* Of whole numbers: 1 / x^n is 0, but of 1 and -1. */
static ts_value *whole_power(ts_call *c, ts_value *x, ts_value *y)
{
    ts_value *p = x && y ? ts_call_op2("pow", c, x, ts_abs(y)) : NULL;
    ts_value *none = y ? ts_lt(y, ts_call_scalar(c, 0)) : NULL;

    if (!p || !none)
        return NULL;
    none =
        ts_call_op2("logical_and", c, none, ts_call_op2("ne", c, ts_abs(x), ts_call_scalar(c, 1)));
    return ts_where(none, ts_call_scalar(c, 0), p);
}

ts_value *ts_word_pow(ts_call *c)
{
    if (!ts_call_tensor(c, 1) && ts_call_number(c, 1, 0) == 2)
        return ts_square(x_of(c));
    if (!ts_dtype_is_float(c->dtype))
        return whole_power(c, x_of(c), ts_call_as(c, 1, c->dtype));
    return ts_call_op2("pow", c, x_of(c), ts_call_as(c, 1, c->dtype));
}

/* x * log(y) or log1p(y), and 0 where x is 0. There the slope by x is log(y), unless that is no number. */
ts_value *ts_word_xlogy(ts_call *c)
{
    ts_value *x = x_of(c), *zero = ts_call_scalar(c, 0), *inf = ts_call_scalar(c, INFINITY);
    ts_value *y = ts_call_op1(c->row->op, c, ts_call_as(c, 1, c->dtype)), *finite;

    finite = ts_lt(ts_abs(y), inf);
    finite = ts_call_op2("logical_or", c, finite, ts_ne(x, zero));
    return ts_mul(x, ts_where(finite, y, zero));
}

/* A tensor, or a number that keeps a float tensor's dtype and makes floats of integers if it must.
 */
static ts_value *compared(ts_call *c, int i, ts_value *other)
{
    ts_value *v = ts_call_tensor(c, i);
    double number = ts_call_number(c, i, 0);
    ts_dtype t = other ? ts_dtype_of(other) : TS_F32;

    if (v)
        return v;
    if (t == TS_BOOL)
        t = TS_I32;
    return ts_scalar(c->g, ts_dtype_is_float(t) || number == floor(number) ? t : TS_F32, number);
}

ts_value *ts_word_compare(ts_call *c)
{
    static const struct {
        const char *op;
        ts_value *(*make)(ts_value *x, ts_value *y);
    } all[] = {{"eq", ts_eq}, {"ne", ts_ne}, {"lt", ts_lt},
               {"le", ts_le}, {"gt", ts_gt}, {"ge", ts_ge}};
    ts_value *x = compared(c, 0, ts_call_tensor(c, 1)), *y = compared(c, 1, ts_call_tensor(c, 0));

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        if (!strcmp(all[i].op, c->row->op))
            return all[i].make(x, y);
    return NULL;
}

ts_value *ts_word_logical(ts_call *c)
{
    return ts_call_op2(c->row->op, c, ts_call_as(c, 0, TS_BOOL), ts_call_as(c, 1, TS_BOOL));
}

/* Bits of integers; of bools, logic. */
ts_value *ts_word_bitwise(ts_call *c)
{
    const char *op = c->row->op;
    bool one = !strcmp(op, "not"), shift = strstr(op, "shift");
    char name[40];

    if (c->dtype == TS_BOOL && shift)
        return ts_call_refuse(c, "shifting bools");
    snprintf(name, sizeof(name), "%s_%s", c->dtype == TS_BOOL ? "logical" : "bitwise", op);
    return one ? ts_call_op1(name, c, x_of(c))
               : ts_call_op2(name, c, x_of(c), ts_call_as(c, 1, c->dtype));
}

ts_value *ts_word_logical_not(ts_call *c)
{
    return ts_call_op1(c->row->op, c, ts_call_tensor(c, 0));
}

ts_value *ts_word_where(ts_call *c)
{
    ts_value *in[] = {ts_call_tensor(c, 0), ts_call_as(c, 1, c->dtype), ts_call_as(c, 2, c->dtype)};

    return ts_where(in[0], in[1], in[2]);
}

ts_value *ts_word_masked_fill(ts_call *c)
{
    return ts_where(ts_call_tensor(c, 1), ts_call_as(c, 2, c->dtype), x_of(c));
}

ts_value *ts_word_addcmul(ts_call *c)
{
    return ts_add(x_of(c),
                  scaled(c, ts_mul(ts_call_as(c, 1, c->dtype), ts_call_as(c, 2, c->dtype)), 3));
}

ts_value *ts_word_addcdiv(ts_call *c)
{
    return ts_add(x_of(c),
                  scaled(c, ts_div(ts_call_as(c, 1, c->dtype), ts_call_as(c, 2, c->dtype)), 3));
}

ts_value *ts_word_lerp(ts_call *c)
{
    ts_value *x = x_of(c), *y = ts_call_as(c, 1, c->dtype);

    return ts_add(x, ts_mul(ts_call_as(c, 2, c->dtype), ts_sub(y, x)));
}

/* x, or argument `low` where x is below it and `high` where it is above; -1: none */
static ts_value *clamped(ts_call *c, ts_value *x, int low, int high, bool open)
{
    ts_arg args[3] = {ts_arg_int("open", open)};
    int n = 1;

    if (ts_call_has(c, low))
        args[n++] = ts_arg_number("min", ts_call_number(c, low, 0));
    if (ts_call_has(c, high))
        args[n++] = ts_arg_number("max", ts_call_number(c, high, 0));
    return x ? ts_apply(c->g, "clamp", 1, &x, n, args) : NULL;
}

/* The same of tensors: x has the slope at a bound. Where open ones are the convention, an only one shares it. A bound that is
 * NaN is the answer. */
static ts_value *clamped_by(ts_call *c, ts_value *x, int i, bool low, bool share)
{
    ts_value *end = ts_call_as(c, i, c->dtype), *beyond;

    if (!x || !end || !ts_call_has(c, i))
        return x;
    if (share)
        return ts_call_op2(low ? "maximum" : "minimum", c, x, end);
    beyond = low ? ts_lt(x, end) : ts_gt(x, end);
    if (ts_dtype_is_float(c->dtype))
        beyond = ts_call_op2("logical_or", c, beyond, ts_call_op1("isnan", c, end));
    return ts_where(beyond, end, x);
}

/* clamp(x, min, max, open) */
ts_value *ts_word_clamp(ts_call *c)
{
    bool open = ts_call_flag(c, 3), share = open && ts_call_has(c, 1) != ts_call_has(c, 2);

    if (!ts_call_tensor(c, 1) && !ts_call_tensor(c, 2))
        return clamped(c, x_of(c), 1, 2, open);
    return clamped_by(c, clamped_by(c, x_of(c), 1, true, share), 2, false, share);
}

/* clamp_min(x, min, open), clamp_max */
ts_value *ts_word_clamp_one(ts_call *c)
{
    bool low = !strcmp(c->row->op, "min"), open = ts_call_flag(c, 2);

    if (ts_call_tensor(c, 1))
        return clamped_by(c, x_of(c), 1, low, open);
    return clamped(c, x_of(c), low ? 1 : -1, low ? -1 : 1, open);
}

/* A copy, perhaps of another dtype, perhaps broadcast: copy_, clone, to. */
ts_value *ts_word_copy(ts_call *c)
{
    ts_value *x = ts_call_as(c, 0, c->dtype);
    bool same = x && ts_rank(x) == c->rank;

    for (int i = 0; same && i < c->rank; i++)
        same = ts_dim(x, i) == c->dims[i];
    return same ? x : ts_expand_n(x, c->rank, c->dims);
}

/* fill(x, value) and zero(x) */
ts_value *ts_word_fill(ts_call *c)
{
    ts_value *v = ts_call_tensor(c, 1);

    if (v)
        return ts_expand_n(ts_call_as(c, 1, c->dtype), c->rank, c->dims);
    return ts_full_n(c->g, c->dtype, ts_call_number(c, 1, 0), c->rank, c->dims);
}

/* --- activations ------------------------------------------------------------------------------ */

/* x between the ends, where the slope is 0 already */
static ts_value *between(const ts_call *c, ts_value *x, double low, double high)
{
    return x ? ts_apply(c->g, "clamp", 1, &x, 3,
                        (ts_arg[]){ts_arg_int("open", 1), ts_arg_number("min", low),
                                   ts_arg_number("max", high)})
             : NULL;
}

ts_value *ts_word_hardtanh(ts_call *c)
{
    return between(c, x_of(c), ts_call_number(c, 1, -1), ts_call_number(c, 2, 1));
}

ts_value *ts_word_relu6(ts_call *c)
{
    return between(c, x_of(c), 0, 6);
}

/* By ends of x, not of x + 3: rounding must not move them. */
ts_value *ts_word_hardsigmoid(ts_call *c)
{
    return ts_mul_scalar(ts_add_scalar(between(c, x_of(c), -3, 3), 3), 1.0 / 6);
}

/* hardswish(x, open): x, and x (x + 3) / 6 below 3, and 0 below -3, or if it is open from there on */
ts_value *ts_word_hardswish(ts_call *c)
{
    ts_value *x = x_of(c), *lo = ts_call_scalar(c, -3), *hi = ts_call_scalar(c, 3), *t;

    t = ts_where(ts_call_flag(c, 1) ? ts_le(x, lo) : ts_lt(x, lo), lo, x);
    t = ts_where(ts_ge(x, hi), hi, t);
    t = ts_mul(t, ts_mul_scalar(ts_add_scalar(t, 3), 1.0 / 6));
    return ts_where(ts_ge(x, hi), x, t);
}

ts_value *ts_word_mish(ts_call *c)
{
    ts_value *x = x_of(c);

    return ts_mul(x, ts_tanh(ts_softplus(x)));
}

ts_value *ts_word_log_sigmoid(ts_call *c)
{
    return ts_neg(ts_softplus(ts_neg(x_of(c))));
}

ts_value *ts_word_softplus(ts_call *c)
{
    ts_value *x = x_of(c);

    return x ? ts_apply(c->g, "softplus", 1, &x, 2,
                        (ts_arg[]){ts_arg_number("beta", ts_call_number(c, 1, 1)),
                                   ts_arg_number("threshold", ts_call_number(c, 2, 20))})
             : NULL;
}

ts_value *ts_word_leaky_relu(ts_call *c)
{
    return ts_leaky_relu(x_of(c), ts_call_number(c, 1, 0.01));
}

/* scale * (x > 0 ? x : alpha * (exp(inner * x) - 1)) */
static ts_value *scaled_elu(ts_call *c, double alpha, double scale, double inner)
{
    ts_value *x = x_of(c), *zero = ts_call_scalar(c, 0), *low, *y;

    if (scale == 1 && inner == 1)
        return ts_elu(x, alpha);
    low = ts_where(ts_gt(x, zero), zero, x);
    y = ts_mul_scalar(ts_call_op1("expm1", c, ts_mul_scalar(low, inner)), alpha);
    return ts_mul_scalar(ts_add(ts_relu(x), y), scale);
}

ts_value *ts_word_elu(ts_call *c)
{
    return scaled_elu(c, ts_call_number(c, 1, 1), ts_call_number(c, 2, 1), ts_call_number(c, 3, 1));
}

ts_value *ts_word_celu(ts_call *c)
{
    double alpha = ts_call_number(c, 1, 1);

    return scaled_elu(c, alpha, 1, 1 / alpha);
}

ts_value *ts_word_selu(ts_call *c)
{
    return scaled_elu(c, 1.6732632423543772848, 1.0507009873554804934, 1);
}

ts_value *ts_word_gelu(ts_call *c)
{
    ts_value *x = x_of(c);

    return x ? ts_apply(c->g, "gelu", 1, &x, 1,
                        (ts_arg[]){ts_arg_text("approximate", ts_call_text(c, 1, "none"))})
             : NULL;
}

/* The weight has one element, or one for each channel; _prelu_kernel's has x's rank already. */
ts_value *ts_word_prelu(ts_call *c)
{
    ts_value *x = x_of(c), *w = ts_call_as(c, 1, c->dtype);
    int64_t dims[TS_MAX_RANK] = {1, 1, 1, 1, 1, 1, 1, 1};

    if (!x || !w)
        return NULL;
    if (ts_rank(w) == 1 && ts_rank(x) > 1) {
        dims[1] = ts_dim(w, 0);
        w = ts_reshape_n(w, ts_rank(x), dims);
    }
    return ts_where(ts_gt(x, ts_call_scalar(c, 0)), x, ts_mul(x, w));
}

ts_value *ts_word_threshold(ts_call *c)
{
    ts_value *x = x_of(c);

    return ts_where(ts_gt(x, ts_call_as(c, 1, c->dtype)), x, ts_call_as(c, 2, c->dtype));
}

ts_value *ts_word_hardshrink(ts_call *c)
{
    ts_value *x = x_of(c);

    return ts_where(ts_gt(ts_abs(x), ts_call_as(c, 1, c->dtype)), x, ts_call_scalar(c, 0));
}

ts_value *ts_word_softshrink(ts_call *c)
{
    double by = ts_call_number(c, 1, 0.5);
    ts_value *x = x_of(c);

    return ts_sub(ts_relu(ts_add_scalar(x, -by)), ts_relu(ts_add_scalar(ts_neg(x), -by)));
}

ts_value *ts_word_glu(ts_call *c)
{
    ts_value *x = x_of(c), *half[2];
    int dim = x ? ts_call_dim(c, 1, ts_rank(x)) : 0;

    if (!x || ts_chunk(x, 2, dim, half) != 2)
        return NULL;
    return ts_mul(half[0], ts_sigmoid(half[1]));
}

/* --- what is made of other functions ---------------------------------------------------------- */

ts_value *ts_word_tan(ts_call *c)
{
    ts_value *x = x_of(c);

    return ts_div(ts_call_op1("sin", c, x), ts_call_op1("cos", c, x));
}

/* By expm1, which is exact near 0: with e = exp(|x|) - 1, sinh = (e + e/(e+1)) / 2. Of a large e
 * that last part is 1, and of an infinite one too. */
static ts_value *sinh_of(ts_call *c, ts_value *x)
{
    ts_value *below = ts_lt(x, ts_call_scalar(c, 0)), *e, *part;

    e = ts_call_op1("expm1", c, ts_where(below, ts_neg(x), x));
    part = ts_call_op2("minimum", c, e, ts_call_scalar(c, c->dtype == TS_F16 ? 6e4 : 1e18));
    e = ts_mul_scalar(ts_add(e, ts_div(part, ts_add_scalar(part, 1))), 0.5);
    return ts_where(below, ts_neg(e), e);
}

ts_value *ts_word_hyperbolic(ts_call *c)
{
    ts_value *x = x_of(c);

    if (!strcmp(c->row->op, "sinh"))
        return sinh_of(c, x);
    return ts_mul_scalar(ts_add(ts_exp(x), ts_exp(ts_neg(x))), 0.5);
}

/* The inverse functions by atan2 and log1p. */
ts_value *ts_word_arc(ts_call *c)
{
    const char *f = c->row->op;
    ts_value *x = x_of(c), *one = ts_call_scalar(c, 1), *s, *a;

    if (!strcmp(f, "atan"))
        return ts_call_op2("atan2", c, x, one);
    if (!strcmp(f, "atanh"))
        return ts_mul_scalar(ts_sub(ts_call_op1("log1p", c, x), ts_call_op1("log1p", c, ts_neg(x))),
                             0.5);
    a = ts_abs(x); /* asinh: sign(x) log1p(a + a^2 / (1 + sqrt(1 + a^2))) */
    s = ts_div(ts_square(a), ts_add_scalar(ts_sqrt(ts_add_scalar(ts_square(a), 1)), 1));
    a = ts_call_op1("log1p", c, ts_add(a, s));
    return ts_where(ts_lt(x, ts_call_scalar(c, 0)), ts_neg(a), a);
}

/* zeta(s, q); PyTorch cannot differentiate it by s, and only a number surely needs no gradient */
ts_value *ts_word_zeta(ts_call *c)
{
    ts_value *q = ts_call_as(c, 1, c->dtype);

    if (ts_call_tensor(c, 0))
        return ts_call_refuse(c, "a tensor as the exponent");
    return ts_call_op2("zeta", c, ts_call_as(c, 0, c->dtype), q);
}

/* polygamma(n, x), digamma's nth derivative: (-1)^(n + 1) n! zeta(n + 1, x) */
ts_value *ts_word_polygamma(ts_call *c)
{
    int64_t n = ts_call_int(c, 0, 0);
    ts_value *x = ts_call_as(c, 1, c->dtype);

    if (n == 0)
        return ts_call_op1("digamma", c, x);
    x = ts_call_op2("zeta", c, ts_call_scalar(c, (double)n + 1), x);
    return ts_mul_scalar(x, (n % 2 ? 1 : -1) * tgamma((double)n + 1));
}

/* mvlgamma(x, p): p (p - 1) / 4 log(pi) and lgamma of x, x - 1/2, .., x - (p - 1) / 2 */
ts_value *ts_word_mvlgamma(ts_call *c)
{
    double p = (double)ts_call_int(c, 1, 1);
    ts_value *x = x_of(c), *sum = ts_call_scalar(c, p * (p - 1) / 4 * 1.1447298858494002);

    if (p < 1 || p > 1024)
        return ts_call_refuse(c, "%g dims", p);
    for (int i = 0; i < p; i++)
        sum = ts_add(sum, ts_call_op1("lgamma", c, ts_add_scalar(x, -0.5 * i)));
    return sum;
}

ts_value *ts_word_frac(ts_call *c)
{
    ts_value *x = x_of(c);

    return ts_sub(x, ts_call_op1("trunc", c, x));
}

/* deg2rad, rad2deg, exp2 */
ts_value *ts_word_degrees(ts_call *c)
{
    const double pi = 3.14159265358979323846;

    return ts_mul_scalar(x_of(c), !strcmp(c->row->op, "deg2rad") ? pi / 180 : 180 / pi);
}

static const double ln2 = 0.693147180559945309417;

ts_value *ts_word_exp2(ts_call *c)
{
    return ts_exp(ts_mul_scalar(x_of(c), ln2));
}

ts_value *ts_word_ldexp(ts_call *c)
{
    return ts_mul(x_of(c), ts_call_op2("pow", c, ts_call_scalar(c, 2), ts_call_as(c, 1, c->dtype)));
}

/* sin(pi x) / (pi x), and 1 at 0 */
ts_value *ts_word_sinc(ts_call *c)
{
    ts_value *x = x_of(c), *one = ts_call_scalar(c, 1), *none = ts_eq(x, ts_call_scalar(c, 0));

    x = ts_mul_scalar(ts_where(none, one, x), 3.14159265358979323846);
    return ts_where(none, one, ts_div(ts_call_op1("sin", c, x), x));
}

static ts_value *outside(ts_call *c, ts_value *x)
{
    return ts_call_op2("logical_or", c, ts_lt(x, ts_call_scalar(c, 0)),
                       ts_gt(x, ts_call_scalar(c, 1)));
}

/* log(x / (1 - x)), x kept eps from the ends; its slope, too, is infinite at 0 and 1 and no number outside */
ts_value *ts_word_logit(ts_call *c)
{
    ts_value *x = x_of(c), *valid;
    double eps = ts_call_number(c, 1, -1);

    if (eps >= 0) /* below comes first, also of bounds that have changed places */
        x = ts_where(ts_lt(x, ts_call_scalar(c, eps)), ts_call_scalar(c, eps),
                     ts_call_op2("minimum", c, x, ts_call_scalar(c, 1 - eps)));
    valid = ts_where(outside(c, x), ts_call_scalar(c, NAN), ts_call_scalar(c, 1));
    return ts_mul(valid, ts_sub(ts_log(x), ts_call_op1("log1p", c, ts_neg(x))));
}

/* fmax(x, y, share), fmin: a NaN only where both are. Of equal ones x has the gradient, or they share it. */
ts_value *ts_word_fmax(ts_call *c)
{
    bool max = !strcmp(c->row->op, "fmax");
    ts_value *x = x_of(c), *y = ts_call_as(c, 1, c->dtype),
             *first = max ? ts_ge(x, y) : ts_le(x, y), *z;

    z = ts_where(ts_call_op2("logical_or", c, first, ts_call_op1("isnan", c, y)), x, y);
    if (!ts_call_flag(c, 2))
        return z;
    return ts_where(ts_eq(x, y), ts_call_op2(max ? "maximum" : "minimum", c, x, y), z);
}

/* Of both divided by the larger one: the squares of large numbers are not finite, least in f16. With
 * an infinite side it is infinite, whatever the other is. */
ts_value *ts_word_hypot(ts_call *c)
{
    ts_value *x = x_of(c), *y = ts_call_as(c, 1, c->dtype), *s, *never;

    if (!x || !y)
        return NULL;
    never = ts_call_scalar(c, INFINITY);
    never = ts_call_op2("logical_or", c, ts_eq(ts_abs(x), never), ts_eq(ts_abs(y), never));
    s = ts_detach(ts_call_op2("maximum", c, ts_abs(x), ts_abs(y)));
    s = ts_where(ts_eq(s, ts_call_scalar(c, 0)), ts_call_scalar(c, 1), s);
    x = ts_add(ts_square(ts_div(x, s)), ts_square(ts_div(y, s)));
    return ts_where(never, ts_call_scalar(c, INFINITY), ts_mul(s, ts_sqrt(x)));
}

/* logaddexp, logaddexp2 */
ts_value *ts_word_logaddexp(ts_call *c)
{
    ts_value *x = x_of(c), *y = ts_call_as(c, 1, c->dtype);

    if (!strcmp(c->row->op, "logaddexp"))
        return ts_call_log_add(c, x, y);
    return ts_mul_scalar(ts_call_log_add(c, ts_mul_scalar(x, ln2), ts_mul_scalar(y, ln2)), 1 / ln2);
}

/* -0 has a sign too: of all functions atan2 tells it from 0 */
static ts_value *sign_bit(ts_call *c, ts_value *x)
{
    ts_value *zero = x ? ts_scalar(c->g, ts_dtype_of(x), 0) : NULL;

    if (x && ts_dtype_is_float(ts_dtype_of(x)))
        x = ts_call_op2("atan2", c, x, ts_scalar(c->g, ts_dtype_of(x), -1));
    return ts_lt(x, zero);
}

ts_value *ts_word_signbit(ts_call *c)
{
    return sign_bit(c, ts_call_tensor(c, 0));
}

ts_value *ts_word_copysign(ts_call *c)
{
    ts_value *x = ts_abs(x_of(c));

    return ts_where(sign_bit(c, ts_detach(ts_call_as(c, 1, c->dtype))), ts_neg(x), x);
}

/* 0, y or 1 where x is below, at or above 0 */
ts_value *ts_word_heaviside(ts_call *c)
{
    ts_value *x = x_of(c), *zero = ts_call_scalar(c, 0), *up = ts_cast(ts_gt(x, zero), c->dtype);

    up = ts_where(ts_eq(x, zero), ts_call_as(c, 1, c->dtype), up);
    return ts_where(ts_call_op1("isnan", c, x), x, up);
}

/* nan_to_num(x, nan, posinf, neginf) */
ts_value *ts_word_nan_to_num(ts_call *c)
{
    double most = c->dtype == TS_F64    ? DBL_MAX
                  : c->dtype == TS_F16  ? 65504
                  : c->dtype == TS_BF16 ? 3.3895313892515355e38
                                        : FLT_MAX;
    ts_value *x = x_of(c), *y;

    if (!ts_dtype_is_float(c->dtype))
        return x;
    y = ts_where(ts_call_op1("isnan", c, x), ts_call_scalar(c, ts_call_number(c, 1, 0)), x);
    y = ts_where(ts_eq(x, ts_call_scalar(c, INFINITY)),
                 ts_call_scalar(c, ts_call_number(c, 2, most)), y);
    return ts_where(ts_eq(x, ts_call_scalar(c, -INFINITY)),
                    ts_call_scalar(c, ts_call_number(c, 3, -most)), y);
}

/* isinf, isposinf, isneginf, isfinite */
ts_value *ts_word_isinf(ts_call *c)
{
    ts_value *x = ts_call_tensor(c, 0), *inf;
    const char *op = c->row->op;

    if (!x)
        return NULL;
    if (!ts_dtype_is_float(ts_dtype_of(x)))
        x = ts_cast(x, TS_F32);
    inf = ts_scalar(c->g, ts_dtype_of(x), !strcmp(op, "isneginf") ? -INFINITY : INFINITY);
    if (!strcmp(op, "isfinite"))
        return ts_lt(ts_abs(x), inf);
    return ts_eq(!strcmp(op, "isinf") ? ts_abs(x) : x, inf);
}

/* round(x, decimals) */
ts_value *ts_word_round(ts_call *c)
{
    int64_t decimals = ts_call_int(c, 1, 0);
    ts_value *scale = ts_call_scalar(c, pow(10, (double)(decimals < 0 ? -decimals : decimals)));
    const char *in = decimals < 0 ? "div" : "mul", *out = decimals < 0 ? "mul" : "div";

    if (!decimals)
        return ts_call_op1("round", c, x_of(c));
    return ts_call_op2(out, c, ts_call_op1("round", c, ts_call_op2(in, c, x_of(c), scale)), scale);
}

/* rrelu_with_noise(x, lower, upper, training), the noise left out: slopes between the two, or in
 * the middle */
ts_value *ts_word_rrelu(ts_call *c)
{
    double lower = ts_call_number(c, 1, 1.0 / 8), upper = ts_call_number(c, 2, 1.0 / 3);
    ts_value *x = x_of(c), *slope = ts_call_scalar(c, (lower + upper) / 2);

    if (ts_call_flag(c, 3)) {
        slope = ts_rand_n(c->g, TS_F32, c->rank, c->dims);
        slope = ts_cast(ts_add_scalar(ts_mul_scalar(slope, upper - lower), lower), c->dtype);
    }
    return ts_where(ts_gt(x, ts_call_scalar(c, 0)), x, ts_mul(x, slope));
}

/* 0 or pi: numbers have no other angles */
ts_value *ts_word_angle(ts_call *c)
{
    ts_value *x = x_of(c), *zero = ts_call_scalar(c, 0);

    x = ts_where(ts_ge(x, zero), zero, x); /* NaN stays */
    return ts_where(ts_lt(x, zero), ts_call_scalar(c, 3.14159265358979323846), x);
}

/* -x log(x), 0 at 0 and -inf below */
ts_value *ts_word_entr(ts_call *c)
{
    ts_value *x = x_of(c), *zero = ts_call_scalar(c, 0), *above = ts_gt(x, zero), *inside, *rest;

    inside = ts_where(above, x, ts_call_scalar(c, 1));
    rest = ts_where(ts_lt(x, zero), ts_call_scalar(c, -INFINITY), x);
    rest = ts_where(ts_eq(x, zero), zero, rest);
    return ts_where(above, ts_mul(ts_neg(inside), ts_log(inside)), rest);
}

/* Below -8 erfc has nothing left: log(phi(x) / -x (1 - 1/x^2 + 3/x^4 - 15/x^6 + 105/x^8)) */
static ts_value *log_tail(ts_call *c, ts_value *x)
{
    ts_value *t = ts_reciprocal(ts_square(x)), *sum = ts_mul_scalar(t, 105);

    sum = ts_mul(t, ts_add_scalar(sum, -15));
    sum = ts_mul(t, ts_add_scalar(sum, 3));
    sum = ts_mul(t, ts_add_scalar(sum, -1));
    t = ts_log(ts_mul_scalar(x, -2.5066282746310002)); /* sqrt(2 pi) */
    return ts_add(ts_sub(ts_mul_scalar(ts_square(x), -0.5), t), ts_call_op1("log1p", c, sum));
}

/* The log of the normal distribution function, in three pieces; what is not a piece's own x is a
 * number it can bear, so that no gradient is NaN. */
ts_value *ts_word_log_ndtr(ts_call *c)
{
    ts_value *x = x_of(c), *zero = ts_call_scalar(c, 0), *low, *mid, *high, *near;
    ts_value *far = ts_lt(x, ts_call_scalar(c, -8)), *up = ts_gt(x, zero);
    const double half = 0.70710678118654752440;

    low = ts_where(far, x, ts_call_scalar(c, -9));
    mid = ts_call_op2("minimum", c, ts_where(far, zero, x), zero);
    high = ts_where(up, x, zero);
    high = ts_mul_scalar(ts_call_op1("erfc", c, ts_mul_scalar(high, half)), -0.5);
    mid = ts_mul_scalar(ts_call_op1("erfc", c, ts_mul_scalar(mid, -half)), 0.5);
    near = ts_where(up, ts_call_op1("log1p", c, high), ts_log(mid));
    return ts_where(far, log_tail(c, low), near);
}

/* --- random numbers --------------------------------------------------------------------------- */

static ts_value *uniform(ts_call *c)
{
    return ts_rand_n(c->g, c->dtype == TS_F64 ? TS_F64 : TS_F32, c->rank, c->dims);
}

/* bernoulli(x): with x's probabilities; bernoulli.p and bernoulli_.float: with one for all */
ts_value *ts_word_bernoulli(ts_call *c)
{
    ts_value *p = ts_call_tensor(c, 1);

    if (!p)
        p = ts_call_has(c, 1) ? ts_scalar(c->g, TS_F32, ts_call_number(c, 1, 0.5))
                              : ts_call_tensor(c, 0);
    return ts_cast(ts_lt(uniform(c), p), c->dtype);
}

ts_value *ts_word_rand(ts_call *c)
{
    return ts_cast(uniform(c), c->dtype);
}

static ts_value *gaussian(ts_call *c)
{
    return ts_cast(ts_randn_n(c->g, TS_F32, c->rank, c->dims), c->dtype);
}

ts_value *ts_word_randn(ts_call *c)
{
    return gaussian(c);
}

ts_value *ts_word_uniform(ts_call *c)
{
    double from = ts_call_number(c, 1, 0), to = ts_call_number(c, 2, 1);

    return ts_cast(ts_add_scalar(ts_mul_scalar(uniform(c), to - from), from), c->dtype);
}

/* normal_(x, mean, std) is normal(nothing, mean, std) here; normal.Tensor_* and normal.float_float
 * have (mean, std, ..), tensors or numbers. */
ts_value *ts_word_normal(ts_call *c)
{
    if (!ts_call_has(c, 0))
        return ts_add_scalar(ts_mul_scalar(gaussian(c), ts_call_number(c, 2, 1)),
                             ts_call_number(c, 1, 0));
    return ts_add(ts_call_as(c, 0, c->dtype), ts_mul(ts_call_as(c, 1, c->dtype), gaussian(c)));
}

/* normal(x, mean, std), in x's shape */
ts_value *ts_word_normal_like(ts_call *c)
{
    return ts_add_scalar(ts_mul_scalar(gaussian(c), ts_call_number(c, 2, 1)),
                         ts_call_number(c, 1, 0));
}

/* exponential(x, lambda) */
ts_value *ts_word_exponential(ts_call *c)
{
    ts_value *u = ts_sub(ts_scalar(c->g, TS_F32, 1), ts_cast(uniform(c), TS_F32)); /* never 0 */

    return ts_cast(ts_mul_scalar(ts_log(u), -1 / ts_call_number(c, 1, 1)), c->dtype);
}

/* log_normal(x, mean, std) */
ts_value *ts_word_log_normal(ts_call *c)
{
    ts_value *y = ts_mul_scalar(gaussian(c), ts_call_number(c, 2, 2));

    return ts_exp(ts_add_scalar(y, ts_call_number(c, 1, 1)));
}

/* cauchy(x, median, sigma): the tangent of a random angle */
ts_value *ts_word_cauchy(ts_call *c)
{
    ts_value *angle = ts_mul_scalar(ts_add_scalar(uniform(c), -0.5), 3.141592653589793), *y;

    y = ts_div(ts_call_op1("sin", c, angle), ts_call_op1("cos", c, angle));
    y = ts_add_scalar(ts_mul_scalar(y, ts_call_number(c, 2, 1)), ts_call_number(c, 1, 0));
    return ts_cast(y, c->dtype);
}

/* geometric(x, p): draws up to the first success */
ts_value *ts_word_geometric(ts_call *c)
{
    ts_value *u = uniform(c), *y = ts_log(ts_sub(ts_full_like(u, 1), u));

    y = ts_mul_scalar(y, 1 / log1p(-ts_call_number(c, 1, 0.5)));
    y = ts_call_op2("maximum", c, ts_call_op1("ceil", c, y), ts_full_like(y, 1));
    return ts_cast(y, c->dtype);
}

/* x as steps of scale around zero, within low and high. The gradient is x's own where the number is
 * inside of the range. */
static ts_value *quantized(ts_call *c, ts_value *scale, ts_value *zero, double low, double high)
{
    ts_value *x = ts_call_tensor(c, 0), *steps, *y, *inside;

    if (!x || !scale || !zero)
        return NULL;
    steps = ts_add(ts_call_op1("round", c, ts_div(x, scale)), zero);
    y = ts_mul(ts_sub(ts_clamp(steps, low, high), zero), scale);
    inside = ts_ge(steps, ts_full_like(steps, low));
    inside = ts_call_op2("logical_and", c, inside, ts_le(steps, ts_full_like(steps, high)));
    c->out[1] = inside;
    c->nout = 2;
    x = ts_where(inside, ts_sub(x, ts_detach(x)), ts_full_like(x, 0));
    return ts_add(ts_detach(y), x);
}

/* fake_quantize_per_tensor_affine_cachemask(x, scale, zero_point, quant_min, quant_max): y, mask */
ts_value *ts_word_fake_quantize(ts_call *c)
{
    ts_value *scale = ts_call_as(c, 1, c->dtype);

    return quantized(c, scale, ts_call_as(c, 2, c->dtype), ts_call_number(c, 3, 0),
                     ts_call_number(c, 4, 0));
}

/* fake_quantize_per_channel_affine_cachemask(x, scale, zero_point, axis, quant_min, quant_max) */
ts_value *ts_word_fake_quantize_channels(ts_call *c)
{
    ts_value *x = ts_call_tensor(c, 0), *scale = ts_call_as(c, 1, c->dtype),
             *zero = ts_call_as(c, 2, c->dtype);
    int64_t dims[TS_MAX_RANK];

    if (!x || !scale || !zero)
        return NULL;
    for (int i = 0; i < ts_rank(x); i++)
        dims[i] = i == ts_call_dim(c, 3, ts_rank(x)) ? ts_dim(x, i) : 1;
    scale = ts_reshape_n(scale, ts_rank(x), dims);
    zero = ts_reshape_n(zero, ts_rank(x), dims);
    return quantized(c, scale, zero, ts_call_number(c, 4, 0), ts_call_number(c, 5, 0));
}

static ts_value *whole_numbers(ts_call *c, double from, double to)
{
    ts_value *u = ts_cast(uniform(c), TS_F64); /* as many steps as an i32 has */

    u = ts_call_op1("floor", c, ts_mul_scalar(u, to - from));
    return ts_cast(ts_add_scalar(u, from), c->dtype);
}

/* randint(high, ..), randint.low(low, high, ..), and their _like, which begin with a tensor */
ts_value *ts_word_randint(ts_call *c)
{
    int at = strncmp(c->row->op, "like", 4) ? 0 : 1;
    bool low = strstr(c->row->op, "low");

    return whole_numbers(c, low ? ts_call_number(c, at, 0) : 0, ts_call_number(c, at + low, 1));
}

/* random(x), random(x, to), random(x, from, to): without ends, what the dtype holds exactly */
ts_value *ts_word_random(ts_call *c)
{
    double all = c->dtype == TS_F16    ? 2049
                 : c->dtype == TS_BF16 ? 257
                 : c->dtype == TS_BOOL ? 2
                 : c->dtype == TS_I8   ? 128
                 : c->dtype == TS_U8   ? 256
                                       : 16777216;

    if (ts_call_has(c, 2))
        return whole_numbers(c, ts_call_number(c, 1, 0), ts_call_number(c, 2, 1));
    return whole_numbers(c, 0, ts_call_number(c, 1, all));
}

/* randperm(n): the order that sorts random numbers */
ts_value *ts_word_randperm(ts_call *c)
{
    ts_value *u = ts_rand_n(c->g, TS_F32, c->rank, c->dims), *y;

    y = ts_apply(c->g, "sort", 1, &u, 1, (ts_arg[]){ts_arg_int("dim", 0)});
    return y ? ts_cast(ts_result(y, 1), c->dtype) : NULL;
}

/* A trace has only those of training. */
static bool training(const ts_call *c, int i)
{
    return !ts_call_has(c, i) || ts_call_flag(c, i);
}

ts_value *ts_word_dropout(ts_call *c)
{
    return ts_dropout(x_of(c), ts_call_number(c, 1, 0.5), training(c, 2));
}

/* Whole channels: the mask has size 1 after the first two dims. */
ts_value *ts_word_feature_dropout(ts_call *c)
{
    int64_t dims[TS_MAX_RANK];
    ts_value *one;

    if (!training(c, 2))
        return x_of(c);
    for (int i = 0; i < c->rank; i++)
        dims[i] = i < 2 ? c->dims[i] : 1;
    one = ts_full_n(c->g, c->dtype, 1, c->rank, dims);
    return ts_mul(x_of(c), ts_dropout(one, ts_call_number(c, 1, 0.5), true));
}
