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
 * How is op/grad.c; here is by what.
 */
#include "pass/pass.h"

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

/* The parameters to be trained. */
static int trained(const ts_graph *g, ts_value **out)
{
    int n = 0;

    for (int i = 0; i < g->nstates; i++)
        if (g->states[i].trained && ts_dtype_is_float(g->states[i].value->type.dtype))
            out[n++] = g->states[i].value;
    return n;
}

static ts_status add_grads(ts_graph *g, const ts_options *opt)
{
    ts_value **x = TS_NEWS(g->arena, ts_value *, g->nstates + 1);
    ts_value **dx = TS_NEWS(g->arena, ts_value *, g->nstates + 1), *dy;
    int n = trained(g, x);
    ts_status s;

    g->backward = true;
    g->like = g->loss->node;
    dy = seed(g, opt);
    s = g->status ? g->status : ts_graph_grad(g, 1, &g->loss, &dy, n, x, dx);
    g->like = NULL;
    g->backward = false;
    for (int i = 0; !s && i < n; i++) {
        ts_grad d = {x[i], dx[i]};
        if (d.grad)
            TS_PUSH(g->arena, g->grads, g->ngrads, d);
    }
    return s;
}

ts_status ts_pass_autodiff(ts_arena *a, const ts_graph *in, const ts_options *opt,
                           const ts_graph **out)
{
    ts_value **map;
    ts_graph *g;

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
    TS_TRY(add_grads(g, opt));
    if (!g->ngrads)
        return ts_fail(TS_ERR_GRAD,
                       "no trained parameter reaches the loss: there is nothing to train");
    return g->status;
}
