/* control.c - loops and conditions: a graph built by itself becomes the body of a node. And calls
 * of the host. */
#include "op/op.h"

/* A copy of `sub` in g's memory, made through the text form: the original may change or go. */
static ts_graph *copy(ts_graph *g, const char *op, const ts_graph *sub)
{
    ts_graph *made = NULL;
    char *text;

    if (!sub)
        return ts_graph_refuse(g, TS_ERR_ARG, NULL, "%s without a sub-graph", op);
    if (ts_graph_check(sub)) { /* what stopped its building stops this one */
        const ts_error *e = ts_last_error();
        return ts_graph_refuse(g, e->code, e->hint[0] ? e->hint : NULL,
                               "the sub-graph %s of %s: %s", sub->name, op, e->message);
    }
    text = ts_graph_text(sub);
    if (!text || ts_graph_read(g->arena, text, &made))
        ts_graph_refuse(g, TS_ERR_INTERNAL, NULL, "cannot copy the sub-graph %s of %s", sub->name,
                        op);
    free(text);
    return made;
}

static int results(const ts_node *n, ts_value **out)
{
    for (int i = 0; n && i < n->nout; i++)
        out[i] = n->out[i];
    return n ? n->nout : 0;
}

/* The graph of the first value; NULL when one is missing or they are not of one graph. */
static ts_graph *graph_of(const char *op, int n, ts_value *const *in, ts_value **out)
{
    ts_graph *g = n > 0 && in && in[0] ? in[0]->graph : NULL;

    if (!g)
        return NULL;
    if (!out)
        return ts_graph_refuse(g, TS_ERR_ARG, NULL, "%s without a place for its results", op);
    for (int i = 1; i < n; i++)
        if (!in[i] || in[i]->graph != g)
            return in[i] ? ts_graph_refuse(g, TS_ERR_ARG, NULL,
                                           "input %d of %s belongs to another graph", i, op)
                         : NULL;
    return g;
}

int ts_for_loop(int64_t count, const ts_graph *body, int n, ts_value *const *in, ts_value **out)
{
    ts_graph *g = graph_of("for_loop", n, in, out), *sub = g ? copy(g, "for_loop", body) : NULL;
    ts_attr attr = ts_attr_i("count", count);

    return sub ? results(ts_node_make_sub(g, TS_OP(for_loop), n, in, 1, &attr, 1, &sub), out) : 0;
}

int ts_cond(ts_value *condition, const ts_graph *yes, const ts_graph *no, int n,
            ts_value *const *in, ts_value **out)
{
    ts_value *all[TS_MAX_INPUTS] = {condition};
    ts_graph *g, *sub[2];

    if (n < 0 || n >= TS_MAX_INPUTS)
        return condition
                   ? (ts_graph_refuse(condition->graph, TS_ERR_ARG, NULL,
                                      "cond with %d inputs, not 0 to %d", n, TS_MAX_INPUTS - 1),
                      0)
                   : 0;
    for (int i = 0; i < n; i++)
        all[i + 1] = in ? in[i] : NULL;
    g = graph_of("cond", n + 1, all, out);
    if (!g || !(sub[0] = copy(g, "cond", yes)) || !(sub[1] = copy(g, "cond", no)))
        return 0;
    return results(ts_node_make_sub(g, TS_OP(cond), n + 1, all, 0, NULL, 2, sub), out);
}

int ts_host_call(int id, int n, ts_value *const *in, const char *types, ts_value **out)
{
    ts_graph *g = graph_of("host_call", n, in, out);
    ts_attr attr[] = {ts_attr_i("id", id), ts_attr_s("types", types ? types : "")};

    return g ? results(ts_node_make(g, TS_OP(host_call), n, in, TS_COUNT(attr), attr), out) : 0;
}

int ts_host_op(int id, int gradient, int n, ts_value *const *in, const char *types, ts_value **out)
{
    ts_graph *g = graph_of("host_call", n, in, out);
    ts_attr attr[] = {ts_attr_i("id", id), ts_attr_s("types", types ? types : ""),
                      ts_attr_i("gradient", gradient)};

    return g ? results(ts_node_make(g, TS_OP(host_call), n, in, TS_COUNT(attr), attr), out) : 0;
}

ts_value *ts_tap(ts_value *x, int id, int gradient)
{
    ts_attr attr[] = {ts_attr_i("id", id), ts_attr_i("gradient", gradient)};

    return ts_make1(TS_OP(host_call), x, TS_COUNT(attr), attr);
}
