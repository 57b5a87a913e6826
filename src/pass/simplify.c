/* simplify.c - a smaller graph that means the same.
 *
 *   before                          after
 *     %2 = full 1                     %3 = exp %x
 *     %3 = exp %x                     %4 = add %3, %3
 *     %4 = mul %3, %2                 output y = %4
 *     %5 = exp %x
 *     %6 = add %4, %5
 *     output y = %6
 *
 * needs   no composite op (decompose); gradients made (autodiff), since detach and nop go
 * keeps   types; inputs, states, updates, outputs and their names and order; the stream of random
 *         nodes; where nodes come from: a merged node has the place of the first, and is backward
 *         only if all were
 * leaves  the canonical order (order.c) and no dead node; nothing any rule applies to
 *
 * Sweeps in canonical order: each node is copied with its simple inputs, offered to the rules
 * (absorb.c, fold.c, algebra.c, views.c) until none applies, and looked up among the nodes before
 * it (merge.c). What got replaced is dead and goes with the next ordering. Done when a sweep
 * changes nothing.
 *
 * Two things make this less than term rewriting. A state's value depends on when it is read: a rule
 * looks behind a node only within its phase, and what another phase or an update reads never turns
 * into the state itself but into a copy of it (nop). Results that are inputs or consts are copies
 * as well: they need memory of their own.
 */
#include "pass/pass.h"

enum {
    MOST_SWEEPS = 32, /* a few are enough; a rule that undoes another must not hang the compiler */
    MOST_STEPS = 64   /* rules one after another on one node */
};

const ts_node *ts_rule_behind(const ts_node *n, int i, const ts_op *op)
{
    const ts_value *v = n->in[i];

    if (v->kind != TS_VALUE_NODE || v->node->op != op || v->node->phase != n->phase)
        return NULL;
    return v->node;
}

ts_value *ts_rule_shaped(ts_value *v, const ts_type *t)
{
    if (!v || ts_type_same_shape(&v->type, t))
        return v;
    return ts_expand_n(v, t->rank, t->dim);
}

ts_value *ts_rule_first(const ts_rule *rules, int count, const ts_node *n)
{
    for (int i = 0; i < count; i++) {
        ts_value *v = rules[i].op == n->op ? rules[i].run(n) : NULL;
        if (v)
            return v;
    }
    return NULL;
}

static ts_value *apply(const ts_node *n)
{
    static ts_rule_fn *const families[] = {ts_rule_fold, ts_rule_point, ts_rule_view, ts_rule_rows,
                                           ts_rule_reduce};

    for (int i = 0; i < TS_COUNT(families); i++) {
        ts_value *v = families[i](n);
        if (v)
            return v;
    }
    return NULL;
}

/* Which nodes' values leave their phase: results, and what another phase reads. */
static bool *find_pinned(ts_arena *a, const ts_graph *g)
{
    bool *pinned = TS_NEWS(a, bool, g->nvalues);

    for (int i = 0; i < g->noutputs; i++)
        pinned[g->outputs[i]->id] = true;
    for (int i = 0; i < g->nupdates; i++)
        pinned[g->updates[i].next->id] = true;
    for (int i = 0; i < g->ngrads; i++)
        pinned[g->grads[i].grad->id] = true;
    if (g->loss)
        pinned[g->loss->id] = true;
    for (int i = 0; i < g->nnodes; i++)
        for (int k = 0; k < g->nodes[i]->nin; k++) {
            const ts_value *v = g->nodes[i]->in[k];
            if (v->kind == TS_VALUE_NODE && v->node->phase != g->nodes[i]->phase)
                pinned[v->id] = true;
        }
    return pinned;
}

/* A result that turned into an input, a state or a const is a copy of it. */
static ts_value *own_memory(const ts_node *n, ts_value *v)
{
    if (!v || (v->kind == TS_VALUE_NODE && v->node->op != TS_OP(const)))
        return v;
    return n->op != TS_OP(nop) ? ts_point1("nop", v) : NULL;
}

/* What n becomes: a value of a node before it, or its own after all. */
static ts_status improve(ts_node *n, bool pinned, ts_value **out)
{
    ts_graph *g = n->out[0]->graph;
    int known = n->id;

    *out = n->out[0];
    for (int i = 0; i < MOST_STEPS && n->nout == 1 && n->id >= known; i++) {
        ts_value *v;
        g->like = n;
        v = apply(n);
        v = pinned ? own_memory(n, v) : v;
        g->like = NULL;
        if (!v || g->status)
            return g->status;
        if (!ts_type_same(&v->type, &n->out[0]->type))
            return ts_fail_at(n, TS_ERR_INTERNAL, "simplify gave %s another type", n->op->name);
        *out = v;
        if (v->kind != TS_VALUE_NODE)
            return TS_OK;
        n = v->node;
    }
    return TS_OK;
}

/* A result from nothing (zeros for an accumulator) stays its own: shared, it would have to be
 * stored and copied, where alone it is written into place. */
static void merge(ts_merge *m, const ts_node *n, bool pinned, ts_value **map)
{
    ts_value *v = map[n->out[0]->id];
    ts_node *first;

    if (v->kind != TS_VALUE_NODE || (pinned && v->node->op->flags & TS_SOURCE))
        return;
    first = ts_merge_find(m, v->node);
    if (!first)
        return;
    first->backward = first->backward && v->node->backward;
    first->inner = first->inner && v->node->inner;
    for (int i = 0; i < n->nout; i++)
        map[n->out[i]->id] = first->out[map[n->out[i]->id]->index];
}

/* One node after the other; *changed: another sweep may find more. */
static ts_status sweep(ts_arena *a, const ts_graph *in, bool *changed, const ts_graph **out)
{
    ts_value **map;
    ts_graph *g = ts_graph_begin_copy(a, in, &map);
    ts_merge *m = ts_merge_new(a, in->nnodes);
    bool *pinned = find_pinned(a, in);
    int *uses = ts_graph_uses(a, in);

    for (int i = 0; i < in->nnodes; i++) {
        const ts_node *n = in->nodes[i];
        ts_node *copy = ts_graph_copy_node(g, n, map);
        ts_value *v;
        g->like = n;
        v = ts_rule_absorb(n, uses, map);
        g->like = NULL;
        if (v) {
            map[n->out[0]->id] = v;
            *changed = true;
            continue;
        }
        TS_TRY(improve(copy, pinned[n->out[0]->id], &map[n->out[0]->id]));
        merge(m, n, pinned[n->out[0]->id], map);
        *changed = *changed || map[n->out[0]->id] != copy->out[0];
    }
    ts_graph_finish_copy(g, in, map);
    *out = g;
    return TS_OK;
}

ts_status ts_pass_simplify(ts_arena *a, const ts_graph *in, const ts_options *opt,
                           const ts_graph **out)
{
    const ts_graph *g = in;
    bool changed = true;

    for (int i = 0; i < MOST_SWEEPS && changed; i++) {
        TS_TRY(ts_pass_order(a, g, opt, out));
        changed = false;
        TS_TRY(sweep(a, *out, &changed, &g));
    }
    if (changed)
        return ts_pass_order(a, g, opt, out);
    return TS_OK;
}
