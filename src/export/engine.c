/* engine.c - an engine of a net whose weights are constants: to calibrate with, and to say what the
 * example must print. A large constant is a state there, so that the C compiler need not read it.
 */
#include "export/export.h"

enum { LARGE = 1024 }; /* elements */

typedef struct held { /* a constant that is a state in the copy */
    const char *name;
    const ts_node *n;
} held;

static ts_status write_held(ts_engine *e, const held *h, int n)
{
    for (int i = 0; i < n; i++)
        TS_TRY(ts_engine_write(e, h[i].name, h[i].n->data, ts_type_bytes(&h[i].n->out[0]->type)));
    return TS_OK;
}

static bool *needed(ts_arena *a, const ts_graph *g, int n, const ts_value *const *out)
{
    bool *need = TS_NEWS(a, bool, g->nvalues);

    for (int i = 0; i < n; i++)
        need[out[i]->id] = true;
    ts_graph_mark_needed(g, need);
    return need;
}

static ts_value *hold(ts_arena *a, ts_graph *to, const ts_node *n, held **list, int *count)
{
    held h = {ts_arena_printf(a, "constant%d", *count), n};

    TS_PUSH(a, *list, *count, h);
    return ts_graph_add_state(to, h.name, n->out[0]->type, (ts_init){0}, false);
}

ts_status ts_export_engine(ts_export *x, const ts_graph *g, int nout, const ts_value *const *out,
                           ts_executable **exe, ts_engine **e)
{
    ts_graph *to = ts_graph_in(x->a, g->name);
    bool *need = needed(x->a, g, nout, out);
    ts_value **map = TS_NEWS(x->a, ts_value *, g->nvalues);
    held *list = NULL;
    int count = 0;

    for (int i = 0; i < g->ninputs; i++)
        map[g->inputs[i]->id] = ts_graph_add_input(to, g->inputs[i]->name, g->inputs[i]->type);
    for (int i = 0; i < g->nnodes; i++) {
        const ts_node *n = g->nodes[i];
        if (!n->nout || !need[n->out[0]->id])
            continue;
        if (n->op == TS_OP(const) && ts_type_count(&n->out[0]->type) >= LARGE)
            map[n->out[0]->id] = hold(x->a, to, n, &list, &count);
        else
            ts_graph_copy_node(to, n, map);
    }
    for (int i = 0; i < nout; i++)
        ts_output(map[out[i]->id], ts_arena_printf(x->a, "out%d", i)); /* inputs are copied */
    TS_TRY(ts_compile(to, &(ts_options){.no_winograd = true}, exe));
    TS_TRY(ts_engine_new(*exe, NULL, e));
    return write_held(*e, list, count);
}
