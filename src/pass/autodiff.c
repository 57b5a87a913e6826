/* autodiff.c - the backward graph, by each op's gradient rule.
 *
 *   before                          after
 *     %2 = mul %w, %x                 %2 = mul %w, %x
 *     loss %2                         %3 = full 1            @backward
 *                                     %4 = mul %3, %x        @backward
 *                                     grad %w = %4
 *
 * needs   no composite op (decompose)
 * keeps   the forward nodes as they are
 * leaves  a grad for every trained parameter the loss depends on; the loss as the last output
 *
 * Walks the nodes backwards once. A value used many times sums its gradients, in the order of its
 * users from the last to the first. Values the trained parameters do not reach are skipped, so
 * rules without a gradient only matter where one is really needed: then it is an error that names
 * the op and the user's line.
 */
#include "pass/pass.h"

/* Which values depend on a trained parameter through floats. */
static bool *find_active(ts_arena *a, const ts_graph *g)
{
    bool *active = TS_NEWS(a, bool, g->nvalues);

    for (int i = 0; i < g->nstates; i++)
        if (g->states[i].trained && ts_dtype_is_float(g->states[i].value->type.dtype))
            active[g->states[i].value->id] = true;
    for (int i = 0; i < g->nnodes; i++) {
        const ts_node *n = g->nodes[i];
        bool on = false;
        for (int k = 0; k < n->nin; k++)
            on = on || active[n->in[k]->id];
        /* detach, comparisons, argmax: nothing behind them depends on the parameter in the sense of
         * a gradient */
        if (n->op->flags & TS_NODIFF || (n->op->flags & TS_POINT && !n->op->grad))
            on = false;
        for (int k = 0; k < n->nout; k++)
            active[n->out[k]->id] = on && ts_dtype_is_float(n->out[k]->type.dtype);
    }
    return active;
}

static ts_status add_grad(ts_graph *g, ts_value **grad, const ts_value *v, ts_value *d)
{
    if (!d)
        return TS_OK;
    if (!ts_type_same(&d->type, &v->type))
        return ts_fail(TS_ERR_INTERNAL, "the gradient of %%%d has another type than the value",
                       v->id);
    grad[v->id] = grad[v->id] ? ts_add(grad[v->id], d) : d;
    return g->status;
}

static ts_status backward(ts_graph *g, ts_node *n, const bool *active, ts_value **grad)
{
    ts_value *dy[8] = {0}, **dx = TS_NEWS(g->arena, ts_value *, n->nin);
    bool any = false, wanted = false;
    int first = ts_steps_begin(g);

    for (int i = 0; i < n->nout; i++) {
        dy[i] = grad[n->out[i]->id];
        any = any || dy[i];
    }
    for (int i = 0; i < n->nin; i++)
        wanted = wanted || active[n->in[i]->id];
    if (!any || !wanted)
        return TS_OK;
    if (!n->op->grad) {
        if (n->op->flags & (TS_NODIFF | TS_POINT))
            return TS_OK;
        ts_fail_at(n, TS_ERR_GRAD,
                   "%s has no gradient, and a trained parameter needs one through it", n->op->name);
        ts_error_hint("detach its input (ts_detach) or freeze the parameters before it");
        return TS_ERR_GRAD;
    }
    g->like = n;
    TS_TRY(n->op->grad(n, dy, dx));
    ts_steps_end(g, first, n->nin, dx);
    for (int i = 0; i < n->nin; i++)
        if (active[n->in[i]->id])
            TS_TRY(add_grad(g, grad, n->in[i], dx[i]));
    return g->status;
}

/* Seeds the loss with ones (a loss that is not scalar counts as summed) times the loss scale. */
static ts_value *seed(ts_graph *g, const ts_options *opt)
{
    ts_value *scale,
        *one = ts_full_n(g, g->loss->type.dtype, 1, g->loss->type.rank, g->loss->type.dim);
    double s = opt->optimizer->loss_scaling;

    if (ts_scaling_varies(opt->optimizer)) {
        scale = ts_graph_add_state(g, "loss_scaling", ts_type_scalar(TS_F32),
                                   (ts_init){TS_INIT_FULL, s > 0 ? s : 1, 0}, false);
        return ts_mul(one, ts_cast(scale, g->loss->type.dtype));
    }
    return s > 0 && s != 1 ? ts_mul_scalar(one, s) : one;
}

ts_status ts_pass_autodiff(ts_arena *a, const ts_graph *in, const ts_options *opt,
                           const ts_graph **out)
{
    ts_value **map, **grad;
    ts_graph *g;
    bool *active;
    int forward, known;

    *out = in;
    if (!in->loss)
        return opt->optimizer
                   ? ts_fail(TS_ERR_GRAD, "training needs a loss: call ts_loss on one value")
                   : TS_OK;
    g = ts_graph_begin_copy(a, in, &map);
    for (int i = 0; i < in->nnodes; i++)
        ts_graph_copy_node(g, in->nodes[i], map);
    ts_graph_finish_copy(g, in, map);
    if (!g->loss_is_output) {
        ts_graph_add_output(g, g->loss, "loss");
        g->loss_is_output = true;
    }
    *out = g;
    if (!opt->optimizer)
        return TS_OK;
    if (!ts_dtype_is_float(g->loss->type.dtype))
        return ts_fail(TS_ERR_GRAD, "the loss has dtype %s; only floats can be minimised",
                       ts_dtype_name(g->loss->type.dtype));
    forward = g->nnodes;
    known = g->nvalues;
    active = find_active(a, g);
    /* backward nodes make values too: room for the forward ones' gradients is enough, since only
     * those are asked */
    grad = TS_NEWS(a, ts_value *, g->nvalues);
    g->backward = true;
    g->like = g->loss->node;
    grad[g->loss->id] = seed(g, opt);
    for (int i = forward - 1; i >= 0; i--)
        TS_TRY(backward(g, g->nodes[i], active, grad));
    g->like = NULL;
    g->backward = false;
    for (int i = 0; i < g->nstates; i++) {
        ts_value *p = g->states[i].value;
        ts_grad d = {p, p->id < known && g->states[i].trained ? grad[p->id] : NULL};
        if (d.grad)
            TS_PUSH(a, g->grads, g->ngrads, d);
    }
    if (!g->ngrads)
        return ts_fail(TS_ERR_GRAD,
                       "no trained parameter reaches the loss: there is nothing to train");
    return g->status;
}
