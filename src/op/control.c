/* control.c - ops that hold sub-graphs: for_loop repeats one, cond chooses between two.
 *
 *   %2 = for_loop(%x) count=3 {          the body's outputs are its inputs of the next round
 *   graph body
 *   input %s : f32[4]
 *   %1 = tanh(%s)
 *   output s = %1
 *   }
 *
 * Both are compositions. A loop is written out as often as it runs: the count is known, and then
 * gradients, fusion and the memory plan need to know nothing about loops. A condition is known at
 * run time only: both sides are computed, and each result is picked by it, so the side not taken
 * gets a gradient of zero.
 */
#include "op/op.h"

enum { MOST_NODES = 20000, MOST_RESULTS = 8 }; /* of a loop written out; of a sub-graph */

/* A sub-graph is inputs, nodes and outputs; what is kept between runs belongs to the graph it is
 * in, and comes as an input. */
static ts_status check_sub(ts_arena *a, const ts_node *n, int which, int ninputs,
                           ts_value *const *in)
{
    const ts_graph *s = n->sub[which];

    if (s->nstates || s->nupdates || s->loss) {
        ts_fail_at(n, TS_ERR_UNSUPPORTED,
                   "the sub-graph %s of %s has parameters, updates or a loss", s->name,
                   n->op->name);
        ts_error_hint("make parameters outside and give them to %s as inputs", n->op->name);
        return TS_ERR_UNSUPPORTED;
    }
    if (s->ninputs != ninputs)
        return ts_fail_at(n, TS_ERR_ARG, "the sub-graph %s takes %d inputs, and %s has %d for it",
                          s->name, s->ninputs, n->op->name, ninputs);
    if (!s->noutputs || s->noutputs > MOST_RESULTS)
        return ts_fail_at(n, TS_ERR_ARG, "the sub-graph %s has %d outputs, not 1 to %d", s->name,
                          s->noutputs, MOST_RESULTS);
    for (int i = 0; i < ninputs; i++)
        if (!ts_type_same(&s->inputs[i]->type, &in[i]->type))
            return ts_fail_at(n, TS_ERR_TYPE, "input %d of the sub-graph %s is %s, and gets %s", i,
                              s->name, ts_type_text(a, &s->inputs[i]->type),
                              ts_type_text(a, &in[i]->type));
    return TS_OK;
}

static ts_status need_subs(const ts_node *n, int count)
{
    if (n->nsub == count)
        return TS_OK;
    return ts_fail_at(n, TS_ERR_ARG, "%s needs %d sub-graph%s, not %d", n->op->name, count,
                      count > 1 ? "s" : "", n->nsub);
}

/* The nodes of a sub-graph, once more, with these values for its inputs. */
static void write_out(ts_graph *g, const ts_graph *sub, ts_value *const *in, ts_value **out)
{
    ts_value **map = TS_NEWS(g->arena, ts_value *, sub->nvalues);

    for (int i = 0; i < sub->ninputs; i++)
        map[sub->inputs[i]->id] = in[i];
    for (int i = 0; i < sub->nnodes; i++)
        ts_graph_copy_node(g, sub->nodes[i], map);
    for (int i = 0; i < sub->noutputs; i++)
        out[i] = map[sub->outputs[i]->id];
}

ts_status ts_expand_for_loop(ts_graph *g, const ts_node *n, ts_value *const *in, ts_value **out)
{
    int64_t count = ts_attr_int(n, "count", 0);
    const ts_graph *body;

    TS_TRY(need_subs(n, 1));
    TS_TRY(check_sub(g->arena, n, 0, n->nin, in));
    body = n->sub[0];
    if (count < 1)
        return ts_fail_at(n, TS_ERR_ARG, "a loop runs at least once, not %ld times", (long)count);
    if (count * (int64_t)body->nnodes > MOST_NODES)
        return ts_fail_at(n, TS_ERR_UNSUPPORTED,
                          "%ld rounds of %d ops are more than the %d that a loop may be written "
                          "out to",
                          (long)count, body->nnodes, MOST_NODES);
    if (body->noutputs != n->nin)
        return ts_fail_at(n, TS_ERR_ARG, "the body %s has %d outputs for its %d inputs", body->name,
                          body->noutputs, n->nin);
    for (int i = 0; i < n->nin; i++)
        if (!ts_type_same(&body->outputs[i]->type, &in[i]->type))
            return ts_fail_at(n, TS_ERR_TYPE, "output %d of the body %s is %s, and its input is %s",
                              i, body->name, ts_type_text(g->arena, &body->outputs[i]->type),
                              ts_type_text(g->arena, &in[i]->type));
    for (int64_t i = 0; i < count; i++)
        write_out(g, body, i ? out : in, out);
    return TS_OK;
}

ts_status ts_expand_cond(ts_graph *g, const ts_node *n, ts_value *const *in, ts_value **out)
{
    ts_value *other[MOST_RESULTS];
    int results;

    TS_TRY(need_subs(n, 2));
    TS_TRY(check_sub(g->arena, n, 0, n->nin - 1, in + 1));
    TS_TRY(check_sub(g->arena, n, 1, n->nin - 1, in + 1));
    results = n->sub[0]->noutputs;
    if (in[0]->type.dtype != TS_BOOL || ts_type_count(&in[0]->type) != 1)
        return ts_fail_at(n, TS_ERR_TYPE, "a condition is one bool, not %s",
                          ts_type_text(g->arena, &in[0]->type));
    if (n->sub[1]->noutputs != results)
        return ts_fail_at(n, TS_ERR_ARG, "the two sides have %d and %d outputs", results,
                          n->sub[1]->noutputs);
    for (int i = 0; i < results; i++)
        if (!ts_type_same(&n->sub[0]->outputs[i]->type, &n->sub[1]->outputs[i]->type))
            return ts_fail_at(n, TS_ERR_TYPE, "output %d is %s on one side and %s on the other", i,
                              ts_type_text(g->arena, &n->sub[0]->outputs[i]->type),
                              ts_type_text(g->arena, &n->sub[1]->outputs[i]->type));
    write_out(g, n->sub[0], in + 1, out);
    write_out(g, n->sub[1], in + 1, other);
    for (int i = 0; i < results; i++)
        out[i] = ts_where(ts_reshape_n(in[0], 0, NULL), out[i], other[i]);
    return TS_OK;
}
