/* inference.c - the net of a training graph, without what is only there to train it.
 *
 *   before                                         after
 *     %1 = batch_norm %x, %m, %v   training=1        %1 = batch_norm %x, %m, %v   training=0
 *     %2 = dropout %1              training=1        %2 = dropout %1              training=0
 *     %3 = cross_entropy %2, %labels                 output scores = %2
 *     output scores = %2; loss %3; update %m ...
 *
 * So that a program builds its net once, compiles it with an optimizer to train it and with
 * ts_options.inference to use it; the states have the same names in both.
 *
 * needs   composite ops as they were written
 * leaves  no loss, no update; no input and state that only those needed
 */
#include "pass/pass.h"

/* What the outputs need, by value id. */
static bool *needed(ts_arena *a, const ts_graph *g)
{
    bool *need = TS_NEWS(a, bool, g->nvalues);

    for (int i = 0; i < g->noutputs; i++)
        need[g->outputs[i]->id] = g->outputs[i] != g->loss;
    ts_graph_mark_needed(g, need);
    return need;
}

static bool trains(const ts_node *n)
{
    return ts_attr_find(n, "training") && ts_attr_int(n, "training", 0);
}

static void without_training(ts_arena *a, ts_node *n)
{
    ts_attr *attr = TS_NEWS(a, ts_attr, n->nattr);

    memcpy(attr, n->attr, sizeof(*attr) * (size_t)n->nattr);
    for (int i = 0; i < n->nattr; i++)
        if (!strcmp(attr[i].name, "training"))
            attr[i].i = 0;
    n->attr = attr;
}

static ts_status check(const ts_graph *g, const ts_options *opt)
{
    int outputs = 0;

    if (opt->optimizer)
        return ts_fail(TS_ERR_ARG,
                       "a graph is compiled for inference or with an optimizer, not both");
    for (int i = 0; i < g->noutputs; i++)
        outputs += g->outputs[i] != g->loss;
    if (outputs)
        return TS_OK;
    ts_fail(TS_ERR_ARG,
            "nothing comes out of the graph '%s' in inference: its only result is the loss",
            g->name);
    ts_error_hint("mark what a run should return with ts_output()");
    return TS_ERR_ARG;
}

/* Was it random because the net was to be trained? Only dropout says so. */
static ts_status check_random(const ts_node *n)
{
    if (!(n->op->flags & TS_RANDOM))
        return TS_OK;
    ts_fail_at(n, TS_ERR_UNSUPPORTED,
               "the graph makes random numbers by '%s', which inference has not", n->op->name);
    ts_error_hint("build the net for inference as a graph of its own");
    return TS_ERR_UNSUPPORTED;
}

static void copy_sources(ts_graph *out, const ts_graph *g, const bool *need, ts_value **map)
{
    for (int i = 0; i < g->ninputs; i++)
        if (need[g->inputs[i]->id])
            map[g->inputs[i]->id] = ts_graph_add_input(out, g->inputs[i]->name, g->inputs[i]->type);
    for (int i = 0; i < g->nstates; i++) {
        const ts_state *s = &g->states[i];
        if (need[s->value->id])
            map[s->value->id] =
                ts_graph_add_state(out, s->value->name, s->value->type, s->init, s->trained);
    }
}

ts_status ts_pass_inference(ts_arena *a, const ts_graph *in, const ts_options *opt,
                            const ts_graph **out)
{
    ts_graph *g;
    ts_value **map;
    bool *need;

    *out = in;
    if (!opt->inference)
        return TS_OK;
    TS_TRY(check(in, opt));
    g = ts_graph_in(a, in->name);
    map = TS_NEWS(a, ts_value *, in->nvalues);
    need = needed(a, in);
    copy_sources(g, in, need, map);
    for (int i = 0; i < in->nnodes; i++) {
        const ts_node *n = in->nodes[i];
        if (!n->nout || !need[n->out[0]->id])
            continue;
        TS_TRY(check_random(n));
        ts_graph_copy_node(g, n, map);
        if (trains(n))
            without_training(a, g->nodes[g->nnodes - 1]);
    }
    for (int i = 0; i < in->noutputs; i++)
        if (in->outputs[i] != in->loss)
            ts_graph_add_output(g, map[in->outputs[i]->id], in->output_names[i]);
    *out = g;
    return TS_OK;
}
