/* loss.c - losses as compositions. `reduction`: mean, sum or none, as in PyTorch. */
#include "op/op.h"

static ts_value *reduce(const ts_node *n, ts_value *v)
{
    const char *r = ts_attr_str(n, "reduction", "mean");

    if (!strcmp(r, "none"))
        return v;
    return !strcmp(r, "sum") ? ts_sum(v, 0, NULL, false) : ts_mean(v, 0, NULL, false);
}

static ts_status check_reduction(const ts_node *n)
{
    const char *r = ts_attr_str(n, "reduction", "mean");

    if (strcmp(r, "mean") && strcmp(r, "sum") && strcmp(r, "none"))
        return ts_fail_at(n, TS_ERR_ARG, "%s: reduction '%s' is not mean, sum or none", n->op->name,
                          r);
    return TS_OK;
}

/* Weights may broadcast, but not make the loss larger. */
static ts_status check_weight(const ts_node *n, ts_value *const *in, int i)
{
    ts_value *both[] = {in[0], in[i]};
    ts_type t = {.dtype = in[0]->type.dtype};

    TS_TRY(ts_broadcast(n, 2, both, &t));
    if (!ts_type_same_shape(&t, &in[0]->type))
        return ts_fail_at(n, TS_ERR_SHAPE, "%s: input %d must broadcast to the shape of the first",
                          n->op->name, i);
    return TS_OK;
}

static ts_status other_shape(const ts_node *n, const ts_value *x, const ts_value *t)
{
    ts_arena *a = ts_arena_new();

    ts_fail_at(n, TS_ERR_SHAPE, "%s needs an input and a target of the same shape, got %s and %s",
               n->op->name, ts_type_text(a, &x->type), ts_type_text(a, &t->type));
    ts_arena_free(a);
    return TS_ERR_SHAPE;
}

static ts_status check_same(const ts_node *n, ts_value *const *in)
{
    for (int i = 2; i < n->nin; i++)
        TS_TRY(check_weight(n, in, i));
    if (!ts_type_same_shape(&in[0]->type, &in[1]->type))
        return other_shape(n, in[0], in[1]);
    if (!ts_dtype_is_float(in[0]->type.dtype))
        return ts_fail_at(n, TS_ERR_TYPE, "%s needs floats, got %s", n->op->name,
                          ts_dtype_name(in[0]->type.dtype));
    return TS_OK;
}

#define S(v) ts_full_like(x, v)

/* v where keep is not 0, else 0 */
static ts_value *kept(ts_value *keep, ts_value *v)
{
    ts_value *on = ts_ne(keep, ts_full_like(keep, 0));

    return ts_where(on, v, ts_full_like(v, 0));
}

static ts_value *mixed(ts_value *loss, ts_value *smooth, double smoothing, int64_t classes)
{
    smooth = ts_mul_scalar(smooth, smoothing / (double)classes);
    return ts_add(ts_mul_scalar(loss, 1 - smoothing), smooth);
}

static ts_status bad_target(const ts_node *n, const ts_value *x, const ts_value *t)
{
    ts_arena *a = ts_arena_new();

    ts_fail_at(n, TS_ERR_SHAPE,
               "%s: the target must be integers shaped like the input without its classes, got %s "
               "for %s",
               n->op->name, ts_type_text(a, &t->type), ts_type_text(a, &x->type));
    ts_arena_free(a);
    ts_error_hint("a target has the number of each sample's class, like TS_I32 [batch]");
    return TS_ERR_SHAPE;
}

/* -w[t] logp[t] over classes in dim 1 (or dim 0 of a vector), 0 where t is ignore_index. The mean
 * divides by the sum of the weights that counted. inputs: logp [N, C, ...], target [N, ...] [,
 * weight [C]] */
static ts_status nll(const ts_node *n, ts_value *x, ts_value *t, ts_value *weight, double smoothing,
                     ts_value **out)
{
    const char *red = ts_attr_str(n, "reduction", "mean");
    int cdim = x->type.rank > 1 ? 1 : 0;
    ts_type shape = x->type, tt = t->type;
    bool ignores = ts_attr_find(n, "ignore_index") != NULL;
    ts_value *index, *picked, *w = NULL, *keep = NULL, *loss, *total, *smooth = NULL;
    int64_t classes = x->type.dim[cdim], cd = cdim;
    ts_attr dims[] = {ts_attr_l("dims", 1, &cd)};

    shape.dim[cdim] = 1;
    if (ts_dtype_is_float(tt.dtype) || ts_type_count(&shape) != ts_type_count(&tt) ||
        tt.rank != x->type.rank - 1)
        return bad_target(n, x, t);
    if (weight && (weight->type.rank != 1 || weight->type.dim[0] != classes))
        return ts_fail_at(n, TS_ERR_SHAPE, "%s: the weight must have %ld elements, one a class",
                          n->op->name, (long)classes);
    index = t;
    if (ignores) {
        ts_value *ignored = ts_full_like(t, (double)ts_attr_int(n, "ignore_index", -100));
        index = ts_eq(t, ignored);
        index = ts_where(index, ts_full_like(t, 0), t);
        keep = ts_cast(ts_ne(t, ignored), x->type.dtype);
    }
    picked = ts_reshape_n(ts_gather(x, cdim, ts_reshape_n(index, shape.rank, shape.dim)), tt.rank,
                          tt.dim);
    if (weight) {
        ts_attr sel[] = {ts_attr_i("dim", 0)};
        w = ts_make2(TS_OP(index_select), ts_cast(weight, x->type.dtype), index, 1, sel);
    }
    if (keep)
        w = w ? ts_mul(w, keep) : keep;
    loss = ts_neg(w ? ts_mul(w, picked) : picked);
    if (ignores) /* a NaN or infinity in an ignored row must not leak: 0 * inf is NaN */
        loss = kept(keep, loss);
    if (smoothing > 0) {
        /* -eps/C sum_c w[c] logp[c], with the row's own keep */
        ts_value *all = x;
        int64_t wd[TS_MAX_RANK];
        for (int i = 0; i < x->type.rank; i++)
            wd[i] = i == cdim ? classes : 1;
        if (weight)
            all = ts_mul(all, ts_reshape_n(ts_cast(weight, x->type.dtype), x->type.rank, wd));
        smooth = ts_neg(ts_make1(TS_OP(sum), all, 1, dims));
        if (keep)
            smooth = kept(keep, smooth);
    }
    if (!strcmp(red, "none")) {
        *out = smooth ? mixed(loss, smooth, smoothing, classes) : loss;
        return TS_OK;
    }
    loss = ts_sum(ts_wide(loss), 0, NULL, false);
    if (smooth)
        smooth = ts_sum(ts_wide(smooth), 0, NULL, false);
    if (!strcmp(red, "mean")) {
        total =
            w ? ts_sum(ts_wide(w), 0, NULL, false) : ts_full_like(loss, (double)ts_type_count(&tt));
        loss = ts_div(loss, total);
        if (smooth)
            smooth = ts_div(smooth, total);
    }
    if (smooth)
        loss = mixed(loss, smooth, smoothing, classes);
    *out = ts_cast(loss, x->type.dtype);
    return TS_OK;
}

ts_status ts_expand_nll_loss(ts_graph *g, const ts_node *n, ts_value *const *in, ts_value **out)
{
    TS_TRY(check_reduction(n));
    TS_TRY(ts_check_most(n, 3));
    TS_TRY(ts_check_float(n, in[0]));
    TS_TRY(nll(n, in[0], in[1], n->nin > 2 ? in[2] : NULL, 0, out));
    return g->status;
}

ts_status ts_expand_cross_entropy(ts_graph *g, const ts_node *n, ts_value *const *in,
                                  ts_value **out)
{
    int cdim;

    TS_TRY(check_reduction(n));
    TS_TRY(ts_check_most(n, 3));
    TS_TRY(ts_check_float(n, in[0]));
    if (in[0]->type.rank < 1)
        return ts_fail_at(n, TS_ERR_SHAPE, "cross_entropy needs an input of rank 1 or more");
    cdim = in[0]->type.rank > 1 ? 1 : 0;
    TS_TRY(nll(n, ts_log_softmax(in[0], cdim), in[1], n->nin > 2 ? in[2] : NULL,
               ts_attr_float(n, "label_smoothing", 0), out));
    return g->status;
}

ts_status ts_expand_mse_loss(ts_graph *g, const ts_node *n, ts_value *const *in, ts_value **out)
{
    TS_TRY(check_reduction(n));
    TS_TRY(check_same(n, in));
    out[0] = reduce(n, ts_square(ts_sub(in[0], in[1])));
    return g->status;
}

ts_status ts_expand_l1_loss(ts_graph *g, const ts_node *n, ts_value *const *in, ts_value **out)
{
    TS_TRY(check_reduction(n));
    TS_TRY(check_same(n, in));
    out[0] = reduce(n, ts_abs(ts_sub(in[0], in[1])));
    return g->status;
}

/* d^2 / (2 beta) below beta, |d| - beta/2 above */
ts_status ts_expand_smooth_l1_loss(ts_graph *g, const ts_node *n, ts_value *const *in,
                                   ts_value **out)
{
    double beta = ts_attr_float(n, "beta", 1);
    ts_value *x, *near, *far;

    TS_TRY(check_reduction(n));
    TS_TRY(check_same(n, in));
    if (!(beta >= 0))
        return ts_fail_at(n, TS_ERR_ARG, "smooth_l1_loss: beta is %g", beta);
    if (beta == 0)
        return ts_expand_l1_loss(g, n, in, out);
    x = ts_abs(ts_sub(in[0], in[1]));
    near = ts_mul_scalar(ts_square(x), 0.5 / beta);
    far = ts_sub(x, S(0.5 * beta));
    out[0] = reduce(n, ts_where(ts_lt(x, S(beta)), near, far));
    return g->status;
}

/* -(t log x + (1-t) log(1-x)), the logs not below -100. A saturated x (0 or 1) would give 0 * inf
 * going back, so the gradient by x is PyTorch's (x - t) / max(x (1-x), 1e-12), written as the slope
 * of a line through the value: l + (x - x') slope with x' = x. In f16 the slope must
 * stay finite. */
ts_status ts_expand_bce(ts_graph *g, const ts_node *n, ts_value *const *in, ts_value **out)
{
    ts_value *x, *fixed, *t, *one, *floor, *p, *q, *l, *slope;
    double least;

    TS_TRY(check_reduction(n));
    TS_TRY(ts_check_most(n, 3));
    TS_TRY(check_same(n, in));
    x = in[0];
    t = in[1];
    least = x->type.dtype == TS_F16 ? 0x1p-14 : 1e-12;
    one = S(1);
    fixed = ts_detach(x);
    floor = S(-100);
    p = ts_mul(t, ts_maximum(ts_log(fixed), floor));
    q = ts_maximum(ts_log(ts_sub(one, fixed)), floor);
    q = ts_mul(ts_sub(one, t), q);
    l = ts_neg(ts_add(p, q));
    slope = ts_mul(fixed, ts_sub(one, fixed));
    slope = ts_maximum(slope, S(least));
    slope = ts_div(ts_sub(fixed, ts_detach(t)), slope);
    l = ts_add(l, ts_mul(ts_sub(x, fixed), slope));
    if (n->nin > 2)
        l = ts_mul(l, in[2]);
    out[0] = reduce(n, l);
    return g->status;
}

/* (1-t) x + k (log(1 + e^-|x|) + max(-x, 0)), k = 1 + (pos_weight - 1) t. inputs x, t [, weight [,
 * pos_weight]]; has_weight tells which the third is */
ts_status ts_expand_bce_logits(ts_graph *g, const ts_node *n, ts_value *const *in, ts_value **out)
{
    ts_value *x, *t, *one, *soft, *l;
    bool has_weight = ts_attr_int(n, "has_weight", 0);
    int pos = has_weight ? 3 : 2;

    TS_TRY(check_reduction(n));
    if (n->nin < pos)
        return ts_fail_at(n, TS_ERR_ARG, "%s with has_weight takes at least 3 inputs, got %d",
                          n->op->name, n->nin);
    TS_TRY(ts_check_most(n, pos + 1));
    TS_TRY(check_same(n, in));
    x = in[0];
    t = in[1];
    one = S(1);
    soft = ts_point1("log1p", ts_exp(ts_neg(ts_abs(x))));
    l = ts_neg(x);
    soft = ts_add(soft, ts_maximum(l, S(0)));
    if (n->nin > pos)
        soft = ts_mul(soft, ts_add(one, ts_mul(ts_sub(in[pos], one), t)));
    l = ts_add(ts_mul(ts_sub(one, t), x), soft);
    if (has_weight)
        l = ts_mul(l, in[2]);
    out[0] = reduce(n, l);
    return g->status;
}

/* t (log t - x), 0 where t is 0; or e^t (t - x). batchmean divides the sum by the rows. */
ts_status ts_expand_kl_div(ts_graph *g, const ts_node *n, ts_value *const *in, ts_value **out)
{
    ts_value *x = in[0], *t, *l;
    bool batchmean = !strcmp(ts_attr_str(n, "reduction", "mean"), "batchmean");

    if (!batchmean)
        TS_TRY(check_reduction(n));
    TS_TRY(check_same(n, in));
    if (batchmean && !x->type.rank)
        return ts_fail_at(n, TS_ERR_SHAPE, "kl_div needs a batch for batchmean, got rank 0");
    t = in[1];
    if (ts_attr_int(n, "log_target", 0)) {
        l = ts_sub(t, x);
        l = ts_mul(ts_exp(t), l);
    } else {
        ts_value *positive = ts_gt(t, S(0)), *safe = ts_where(positive, t, S(1));
        l = ts_mul(t, ts_sub(ts_log(safe), x));
        l = ts_where(positive, l, S(0));
    }
    out[0] = batchmean ? ts_mul_scalar(ts_sum(l, 0, NULL, false), 1 / (double)x->type.dim[0])
                       : reduce(n, l);
    return g->status;
}

ts_status ts_expand_identity_loss(ts_graph *g, const ts_node *n, ts_value *const *in,
                                  ts_value **out)
{
    TS_TRY(check_reduction(n));
    TS_TRY(ts_check_float(n, in[0]));
    out[0] = reduce(n, in[0]);
    if (out[0] == in[0])
        out[0] = ts_point1("nop", in[0]);
    return g->status;
}
