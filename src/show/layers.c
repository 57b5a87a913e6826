/* layers.c - what each line of a model makes: the shape of its result, its parameters, its flops.
 *
 * The graph is made with the index of the line where the source line would be. Every node that the
 * layer is expanded to inherits it, so the flops are those of the real ops, added up by line.
 */
#include "front/front.h"
#include "op/op.h"
#include "pass/pass.h"

static void shape(const ts_value *v, ts_model_layer *out)
{
    out->rank = ts_rank(v);
    memcpy(out->dims, v->type.dim, sizeof(out->dims));
}

/* conv1.weight, conv1.bias belong to conv1 */
static int64_t parameters(const ts_graph *g, const ts_line *l)
{
    size_t n = strlen(l->name);
    int64_t total = 0;

    for (int i = 0; l->kind->weights && !l->again && i < g->nstates; i++) {
        const char *name = g->states[i].value->name;
        if (g->states[i].trained && !strncmp(name, l->name, n) && name[n] == '.' &&
            !strchr(name + n + 1, '.'))
            total += ts_type_count(&g->states[i].value->type);
    }
    return total;
}

static void describe(const ts_model *m, const ts_line_build *b, ts_model_layer *out)
{
    for (int i = 0; i < m->nlines; i++) {
        const ts_line *l = &m->lines[i];
        out[i] = (ts_model_layer){.name = l->name,
                                  .kind = l->kind->name,
                                  .block = l->block,
                                  .line = l->line,
                                  .parameters = parameters(b->g, l)};
        shape(b->results[i].v[0], &out[i]);
    }
}

static ts_status count_flops(ts_arena *a, const ts_model *m, const ts_graph *g, ts_model_layer *out)
{
    static const ts_options opt;

    TS_TRY(ts_pass_decompose(a, g, &opt, &g));
    for (int i = 0; i < g->nnodes; i++) {
        const ts_node *n = g->nodes[i];
        if (n->file && n->line >= 0 && n->line < m->nlines)
            out[n->line].flops += ts_node_flops(n);
    }
    return TS_OK;
}

static ts_status fill(ts_arena *a, const ts_model *m, const ts_line_build *b, void **out)
{
    TS_TRY(ts_alloc(sizeof(ts_model_layer) * (size_t)m->nlines, "the table of layers", out));
    describe(m, b, *out);
    return count_flops(a, m, b->g, *out);
}

ts_status ts_model_layers_sized(const ts_model *m, const ts_model_options *o, size_t size,
                                ts_model_layer **layers, size_t layer_size, int *count)
{
    ts_model_options own;
    ts_line_build b;
    void *out = NULL;
    ts_arena *a;
    ts_status s;

    if (!m || !layers || !count)
        return ts_fail(TS_ERR_ARG, "the layers of a model need the model and a place for them");
    TS_TRY(ts_take_sized("ts_model_layers", o, size, &own, sizeof(own)));
    a = ts_arena_new();
    s = ts_model_build(m, &own, true, &b);
    if (!s)
        s = fill(a, m, &b, &out);
    ts_graph_free(b.g);
    ts_arena_free(a);
    if (!s)
        s = ts_give_list(&out, m->nlines, sizeof(**layers), layer_size);
    if (s) {
        free(out);
        out = NULL;
    }
    *layers = out;
    *count = s ? 0 : m->nlines;
    return s;
}

int64_t ts_model_parameters(const ts_model *m)
{
    ts_graph *g;
    int64_t total = 0;

    if (ts_model_graph(m, NULL, &g))
        return 0;
    for (int i = 0; i < g->nstates; i++)
        total += g->states[i].trained ? ts_type_count(&g->states[i].value->type) : 0;
    ts_graph_free(g);
    return total;
}
