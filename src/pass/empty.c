/* empty.c - what follows from tensors without elements.
 *
 *   before                                        after
 *     %2 : f32[0,8] = slice(%x) end=0               %5 : f32[4,8] = nop(%k)
 *     %3 : f32[4,8] = concat(%2, %k)                %6 : f32[4,3] = full() value=0
 *     %4 : f32[4,3] = matmul(%a, %b)   [4,0][0,3]
 *
 * A program may cut, join and sum nothing: the cache of a language model starts so. Nothing is computed of it and
 * nothing is added by it, so it is gone before the other passes look, and only inputs, states and outputs can be
 * empty behind this one.
 *
 * needs   no composite op (decompose.c)
 * leaves  no node with an empty operand but calls of the host; no empty result but of `full`
 */
#include "pass/pass.h"
#include <math.h>

static bool is_empty(const ts_value *v)
{
    return ts_type_count(&v->type) == 0;
}

static ts_value *filled(ts_graph *g, const ts_type *t, double value)
{
    return ts_full_n(g, t->dtype, value, t->rank, t->dim);
}

/* What is left of a concat. */
static ts_value *join_rest(const ts_node *n, ts_value *const *map)
{
    ts_value *rest[TS_MAX_INPUTS];
    int count = 0;

    for (int i = 0; i < n->nin; i++)
        if (!is_empty(n->in[i]))
            rest[count++] = map[n->in[i]->id];
    return count == 1 ? ts_point1("nop", rest[0])
                      : ts_concat(count, rest, (int)ts_attr_int(n, "dim", 0));
}

/* The result of n, which is not empty, of operands of which one is: what a sum starts with. */
static ts_status result(ts_graph *g, const ts_node *n, ts_value *const *map, ts_value **out)
{
    const ts_type *t = &n->out[0]->type;

    if (n->op == TS_OP(concat))
        *out = join_rest(n, map);
    else if (n->op == TS_OP(pad))
        *out = filled(g, t, ts_attr_float(n, "value", 0));
    else if (n->op == TS_OP(prod))
        *out = filled(g, t, 1);
    else if (n->op->flags & TS_ADDS && n->op->nin == 3 &&
             n->op != TS_OP(run_add)) /* it begins with */
        *out = ts_point1("nop", map[n->in[2]->id]);
    else if (n->op == TS_OP(sum) || n->op->flags & (TS_CONTRACT | TS_ADDS))
        *out = filled(g, t, 0);
    else
        return ts_fail_at(n, TS_ERR_SHAPE, "%s of no elements has no result", n->op->name);
    return TS_OK;
}

static bool touches_nothing(const ts_node *n)
{
    if (n->op->flags & (TS_HOST | TS_SOURCE))
        return false;
    for (int i = 0; i < n->nin; i++)
        if (is_empty(n->in[i]))
            return true;
    for (int i = 0; i < n->nout; i++)
        if (is_empty(n->out[i]))
            return true;
    return false;
}

static ts_status replace(ts_graph *g, const ts_node *n, ts_value **map)
{
    g->like = n;
    for (int i = 0; i < n->nout; i++) {
        ts_value **to = &map[n->out[i]->id];
        if (is_empty(n->out[i]))
            *to = filled(g, &n->out[i]->type, 0);
        else
            TS_TRY(result(g, n, map, to));
    }
    g->like = NULL;
    return ts_graph_check(g);
}

ts_status ts_pass_empty(ts_arena *a, const ts_graph *in, const ts_options *opt,
                        const ts_graph **out)
{
    ts_value **map;
    ts_graph *g;
    bool any = false;

    (void)opt;
    *out = in;
    for (int i = 0; i < in->nnodes && !any; i++)
        any = touches_nothing(in->nodes[i]);
    if (!any)
        return TS_OK;
    g = ts_graph_begin_copy(a, in, &map);
    for (int i = 0; i < in->nnodes; i++) {
        if (touches_nothing(in->nodes[i]))
            TS_TRY(replace(g, in->nodes[i], map));
        else
            ts_graph_copy_node(g, in->nodes[i], map);
    }
    ts_graph_finish_copy(g, in, map);
    *out = g;
    return TS_OK;
}
