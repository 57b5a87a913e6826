/* scaling.c - a loss scale that finds itself.
 *
 * Small numbers of f16 gradients are lost, large ones overflow. So the loss is multiplied with a
 * scale as large as the gradients bear: a state, which every update of the weights may change.
 *
 *   count   elements of the gradients above the edge; what is no number or infinite is above
 *   ok      no gradient has such an element
 *   scale   halved if count is more than a share of all elements, or if not ok; else doubled
 *
 * The gradients are those that the update is made of, still scaled: with accumulation and replicas
 * the mean of all of them, which has the infinities of each. So all replicas have the same scale.
 * Where not ok, the update is not made (optimizer.c): weights and the optimiser's state stay.
 *
 * With a period of more than one update, counts are added up for so long; what is not ok ends the
 * period at once, because nothing is learnt until the scale is smaller.
 */
#include "pass/pass.h"

static const double edge = 0.125, share = 1e-7; /* the defaults */
static const double most_scale = 0x1p24, most_scale_f16 = 0x1p15;

double ts_scaling_edge(const ts_optimizer *o)
{
    return ts_dtype_greatest(TS_F16) * (o->scaling_edge > 0 ? o->scaling_edge : edge);
}

ts_status ts_scaling_check(const ts_options *opt)
{
    const ts_optimizer *o = opt->optimizer;

    if (!o->automatic_scaling)
        return TS_OK;
    if (!(o->scaling_edge >= 0 && o->scaling_edge <= 1))
        return ts_fail(TS_ERR_ARG, "scaling_edge of the optimizer is %g; it must be from 0 to 1",
                       o->scaling_edge);
    if (!(o->scaling_share >= 0 && o->scaling_share <= 1))
        return ts_fail(TS_ERR_ARG, "scaling_share of the optimizer is %g; it must be from 0 to 1",
                       o->scaling_share);
    if (o->scaling_period < 0)
        return ts_fail(TS_ERR_ARG, "scaling_period of the optimizer is %d; it must not be negative",
                       o->scaling_period);
    if (o->kind == TS_OPTIMIZER_SGD && o->combined_accum && opt->gradient_accumulation > 1)
        return ts_fail(TS_ERR_UNSUPPORTED, "a combined velocity has no gradients of its own that "
                                           "an automatic loss scale could be found by");
    if (opt->nreplica_groups && opt->replicas > 1)
        return ts_fail(TS_ERR_UNSUPPORTED, "an automatic loss scale is the same for all replicas, "
                                           "and here they have parameters of their own");
    return TS_OK;
}

static ts_value * not(ts_value * x)
{
    return ts_point1("logical_not", x);
}

/* How many elements are not at most `limit` in magnitude: f32 of rank 0. */
static ts_value *count_above(ts_value *x, double limit)
{
    ts_value *size = ts_abs(x), *most = ts_full_like(size, limit);
    ts_value *above = ts_cast(not(ts_le(size, most)), TS_F32);

    return ts_rank(above) ? ts_sum(above, 0, NULL, false) : above;
}

/* Elements of all gradients that are not finite, or of those that count, above their edge. */
static ts_value *count_all(ts_graph *g, const ts_scaling *s, bool finite, double *elements)
{
    ts_value *sum = NULL;

    *elements = 0;
    for (int i = 0; i < s->n; i++) {
        const ts_scaled *x = &s->grads[i];
        ts_value *one;
        if (!finite && !x->counts)
            continue;
        g->like = x->like;
        one = count_above(x->grad, finite ? ts_dtype_greatest(x->grad->type.dtype) : x->edge);
        g->like = s->like;
        sum = sum ? ts_add(sum, one) : one;
        *elements += (double)ts_type_count(&x->grad->type);
    }
    return sum;
}

/* The scale never leaves 1 ... most; one that began outside does not go further. */
static ts_value *next_scale(const ts_scaling *s, ts_value *over)
{
    double most = s->loss == TS_F16 ? most_scale_f16 : most_scale;
    ts_value *low = ts_minimum(s->scale, ts_full_like(s->scale, 1));
    ts_value *high = ts_maximum(s->scale, ts_full_like(s->scale, most));
    ts_value *half = ts_maximum(low, ts_mul_scalar(s->scale, 0.5));
    ts_value *twice = ts_minimum(high, ts_mul_scalar(s->scale, 2));

    return ts_where(over, half, twice);
}

/* Without a period, `due` is NULL: every update. */
static ts_value *count_updates(ts_graph *g, const ts_scaling *s, ts_value *bad, ts_value **count,
                               ts_value **allowed)
{
    ts_value *n, *due, *zero;

    if (!s->updates)
        return NULL;
    n = ts_add_scalar(s->updates, 1);
    *count = ts_add(s->above, *count);
    *allowed = ts_mul(n, *allowed);
    due = ts_ge(n, ts_full_like(n, s->o->scaling_period));
    due = ts_point2("logical_or", due, bad);
    zero = ts_full_like(n, 0);
    ts_graph_add_update(g, s->updates, ts_where(due, zero, n), g->phase);
    ts_graph_add_update(g, s->above, ts_where(due, zero, *count), g->phase);
    return due;
}

ts_value *ts_scaling_build(ts_graph *g, const ts_scaling *s)
{
    double elements, part = s->o->scaling_share > 0 ? s->o->scaling_share : share;
    ts_value *wrong = count_all(g, s, true, &elements), *count = count_all(g, s, false, &elements);
    ts_value *bad, *allowed, *over, *due, *next;

    bad = ts_gt(wrong, ts_full_like(wrong, 0));
    allowed = ts_full_like(count, elements * part);
    due = count_updates(g, s, bad, &count, &allowed);
    over = ts_point2("logical_or", ts_gt(count, allowed), bad);
    next = next_scale(s, over);
    ts_graph_add_update(g, s->scale, due ? ts_where(due, next, s->scale) : next, g->phase);
    return not(bad);
}
