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

/* Which nodes belong to the forward pass: what outputs, the loss and updates that need no gradient
 * (running statistics) are made of. The rest comes when the backward graph asks for it, such as an
 * optimiser's terms of the old weights. */
static bool *find_forward(const order *o, const ts_graph *g)
{
    bool *forward = TS_NEWS(o->a, bool, g->nvalues), *backward = TS_NEWS(o->a, bool, g->nvalues);

    for (int i = 0; i < o->nnodes; i++) {
        const ts_node *n = o->nodes[i];
        bool b = n->backward;
        for (int k = 0; k < n->nin; k++)
            b = b || backward[n->in[k]->id];
        for (int k = 0; k < n->nout; k++)
            backward[n->out[k]->id] = b;
    }
    for (int i = 0; i < g->noutputs; i++)
        forward[g->outputs[i]->id] = true;
    for (int i = 0; i < g->nupdates; i++)
        forward[g->updates[i].next->id] |= !backward[g->updates[i].next->id];
    if (g->loss)
        forward[g->loss->id] = true;
    for (int i = o->nnodes - 1; i >= 0; i--)
        for (int k = 0; k < o->nodes[i]->nout; k++)
            for (int j = 0; j < o->nodes[i]->nin && forward[o->nodes[i]->out[k]->id]; j++)
                forward[o->nodes[i]->in[j]->id] = true;
    return forward;
}

/* 0 forward, 1 backward, 2 phase 1 and so on; never before what it needs. */
static int *find_parts(const order *o, const ts_graph *g, int *last)
{
    int *part = TS_NEWS(o->a, int, g->nnodes);
    bool *forward = find_forward(o, g);

    *last = 0;
    for (int i = 0; i < o->nnodes; i++) {
        const ts_node *n = o->nodes[i];
        bool early = false;
        for (int k = 0; k < n->nout; k++)
            early = early || forward[n->out[k]->id];
        part[n->id] = n->phase ? n->phase + 1 : n->backward || !early;
        for (int k = 0; k < n->nin; k++)
            if (n->in[k]->kind == TS_VALUE_NODE)
                part[n->id] = TS_MAX(part[n->id], part[n->in[k]->node->id]);
        *last = TS_MAX(*last, part[n->id]);
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
