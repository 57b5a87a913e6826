/* decompose.c - replace composites by what they are made of.
 *
 *   before                          after
 *     %3 = silu %1                    %3 = sigmoid %1
 *                                     %4 = mul %1, %3
 *
 * keeps   names, lines and blocks: made nodes inherit them from the composite, and are inner but
 *         for its results
 * leaves  no composite op, and no recurrent layer that there is no loop for
 */
#include "op/recur.h"
#include "pass/pass.h"

typedef ts_status expand_fn(ts_graph *g, const ts_node *n, ts_value *const *in, ts_value **out);

static ts_status expand(ts_graph *out, const ts_options *opt, const ts_node *n, ts_value **map);

/* How n is expanded; NULL: not at all. */
static expand_fn *rule(const ts_options *opt, const ts_node *n)
{
    if (n->op->flags & TS_COMPOSITE)
        return n->op->expand;
    if (n->op == TS_OP(scan) && ts_pass_for_gpu(opt)) /* a row's steps are for many threads */
        return ts_scan_written_out;
    return n->op->flags & TS_STEPS && !ts_pass_loops(opt, n) ? ts_recur_written_out : NULL;
}

/* An expansion may contain composites: they are nodes of `out` already, so it is made in a scratch
 * graph whose inputs stand for the node's, and copied over with the composites expanded in turn. */
static ts_status copy_expanded(ts_graph *out, const ts_options *opt, const ts_graph *body,
                               ts_value **map)
{
    for (int i = 0; i < body->nnodes; i++)
        TS_TRY(expand(out, opt, body->nodes[i], map));
    return TS_OK;
}

static ts_status expand(ts_graph *out, const ts_options *opt, const ts_node *n, ts_value **map)
{
    expand_fn *how = rule(opt, n);
    ts_arena *a = out->arena;
    ts_graph *body;
    ts_value *in[TS_MAX_INPUTS], *made[8] = {0}, **inner;
    ts_status s;

    if (!how) {
        ts_graph_copy_node(out, n, map);
        return TS_OK;
    }
    body = ts_graph_in(a, n->op->name);
    body->like = n;
    for (int i = 0; i < n->nin; i++)
        in[i] = ts_graph_add_input(body, "in", n->in[i]->type);
    s = how(body, n, in, made);
    if (!s && body->status) {
        ts_error_set(&body->error);
        s = body->status;
    }
    TS_TRY(s);
    for (int i = 0; i < body->nnodes; i++)
        body->nodes[i]->inner = true;
    for (int i = 0; i < n->nout; i++)
        if (made[i]->kind == TS_VALUE_NODE)
            made[i]->node->inner = n->inner;
    inner = TS_NEWS(a, ts_value *, body->nvalues);
    for (int i = 0; i < n->nin; i++)
        inner[in[i]->id] = map[n->in[i]->id];
    TS_TRY(copy_expanded(out, opt, body, inner));
    for (int i = 0; i < n->nout; i++) {
        map[n->out[i]->id] = inner[made[i]->id];
        ts_value_mark(map[n->out[i]->id], n->out[i]->checkpoint);
    }
    return TS_OK;
}

/* An expansion may hand an operand through (sort of a single number): what a run gives back or keeps is a copy then,
 * because an input's memory is the caller's and a state's changes. */
static void own_memory(const ts_value *v, ts_value **map)
{
    ts_value **m = &map[v->id];

    if ((*m)->kind != TS_VALUE_NODE || (*m)->node->op == TS_OP(const))
        *m = ts_point1("nop", *m);
}

static void own_results(const ts_graph *in, ts_value **map)
{
    for (int i = 0; i < in->noutputs; i++)
        own_memory(in->outputs[i], map);
    for (int i = 0; i < in->nupdates; i++)
        own_memory(in->updates[i].next, map);
    if (in->loss)
        own_memory(in->loss, map);
}

ts_status ts_pass_decompose(ts_arena *a, const ts_graph *in, const ts_options *opt,
                            const ts_graph **out)
{
    ts_value **map;
    ts_graph *g = ts_graph_begin_copy(a, in, &map);

    for (int i = 0; i < in->nnodes; i++)
        TS_TRY(expand(g, opt, in->nodes[i], map));
    own_results(in, map);
    ts_graph_finish_copy(g, in, map);
    *out = g;
    return TS_OK;
}
