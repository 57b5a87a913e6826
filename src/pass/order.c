/* order.c - the canonical order of the nodes, and nothing that nobody needs.
 *
 *   before                          after
 *     %2 = neg %x                     %2 = exp %x
 *     %3 = exp %x                     %3 = neg %x
 *     %4 = add %3, %2                 %4 = add %2, %3
 *     %5 = sin %x                     output y = %4
 *     output y = %4
 *
 * keeps   inputs, states, updates and outputs, used or not; the stream of random nodes
 * leaves  the nodes of phase 0 before those of phase 1, forward before backward, and in each of
 *         these depth-first from the results, inputs left to right; no dead node
 *
 * A rule that calls ts_add(ts_exp(x), ts_neg(x)) makes the two in whatever order the C compiler
 * evaluates arguments. Depth-first order forgets that, so the same model is the same graph (and the
 * same cache key) from any compiler. Updates are walked from the last to the first: weights are
 * declared from the input to the loss, and the backward graph then runs from the loss to the input,
 * which frees each activation as soon as its layer is done.
 */
#include "pass/pass.h"

typedef struct frame {
    ts_node *n;
    int next; /* the input to look at */
} frame;

typedef struct order {
    ts_arena *a;
    bool *seen;      /* by node */
    ts_node **nodes; /* what a node needs comes before it */
    int nnodes;
    frame *stack;
    int depth;
} order;

static void enter(order *o, const ts_value *v)
{
    if (v->kind != TS_VALUE_NODE || o->seen[v->node->id])
        return;
    o->seen[v->node->id] = true;
    o->stack[o->depth++] = (frame){v->node, 0};
}

/* Graphs are deeper than C stacks, so no recursion. */
static void walk(order *o, const ts_value *v)
{
    enter(o, v);
    while (o->depth) {
        frame *f = &o->stack[o->depth - 1];
        if (f->next < f->n->nin) {
            enter(o, f->n->in[f->next++]);
            continue;
        }
        o->nodes[o->nnodes++] = f->n;
        o->depth--;
    }
}

static void walk_results(order *o, const ts_graph *g)
{
    for (int i = 0; i < g->noutputs; i++)
        walk(o, g->outputs[i]);
    if (g->loss)
        walk(o, g->loss);
    for (int i = g->nupdates - 1; i >= 0; i--)
        walk(o, g->updates[i].next);
    for (int i = g->ngrads - 1; i >= 0; i--)
        walk(o, g->grads[i].grad);
}

/* 0 forward, 1 backward, 2 phase 1 and so on; never before what it needs. */
static int *find_parts(const order *o, const ts_graph *g, int *last)
{
    int *part = TS_NEWS(o->a, int, g->nnodes);

    *last = 0;
    for (int i = 0; i < o->nnodes; i++) {
        const ts_node *n = o->nodes[i];
        int p = n->phase ? n->phase + 1 : n->backward;
        for (int k = 0; k < n->nin; k++)
            if (n->in[k]->kind == TS_VALUE_NODE)
                p = TS_MAX(p, part[n->in[k]->node->id]);
        part[n->id] = p;
        *last = TS_MAX(*last, p);
    }
    return part;
}

ts_status ts_pass_order(ts_arena *a, const ts_graph *in, const ts_options *opt,
                        const ts_graph **out)
{
    order o = {.a = a,
               .seen = TS_NEWS(a, bool, in->nnodes),
               .nodes = TS_NEWS(a, ts_node *, in->nnodes),
               .stack = TS_NEWS(a, frame, in->nnodes)};
    ts_value **map;
    ts_graph *g = ts_graph_begin_copy(a, in, &map);
    int last, *part;

    (void)opt;
    walk_results(&o, in);
    part = find_parts(&o, in, &last);
    for (int p = 0; p <= last; p++)
        for (int i = 0; i < o.nnodes; i++)
            if (part[o.nodes[i]->id] == p)
                ts_graph_copy_node(g, o.nodes[i], map);
    ts_graph_finish_copy(g, in, map);
    *out = g;
    return TS_OK;
}
