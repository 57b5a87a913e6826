/* strips.c - the weights of recurrent layers as their loops read them.
 *
 *   before                                   after
 *     %1 = recur %x, %w, %b, %h0               %2 = permute(reshape(%w, 16,32,128), 0,2,1)
 *                                              %1 = recur %x, %2, %b, %h0  strips=1
 *
 * A step multiplies all samples with all of w, and the next one does it again: w is packed once for all steps and
 * threads, 32 columns side by side and strip behind strip, as the functions of render/panel.c take it. A row
 * of columns that is no multiple of 32 is filled up with zeros.
 *
 * needs   no composite op; gradients are made
 */
#include "op/recur.h"
#include "pass/pass.h"

bool ts_pass_loops(const ts_options *opt, const ts_node *n)
{
    if (opt->executor == TS_EXECUTOR_REFERENCE)
        return true;
    return n->in[0]->type.dtype == TS_F32 && !ts_pass_for_gpu(opt) &&
           !ts_pass_skipped(opt, "strips");
}

/* w [rows, columns] with columns a multiple of a strip */
static ts_value *filled(ts_value *w)
{
    int64_t rest = w->type.dim[1] % TS_RECUR_STRIP;

    if (!rest)
        return w;
    return ts_pad(w, 2, (int64_t[]){0, 0}, (int64_t[]){0, TS_RECUR_STRIP - rest}, 0);
}

static ts_value *strips(ts_value *w)
{
    int64_t rows = w->type.dim[0];

    w = filled(w);
    w = w ? ts_reshape_n(w, 3, (int64_t[]){rows, -1, TS_RECUR_STRIP}) : NULL;
    return w ? ts_permute_n(w, 3, (int64_t[]){1, 0, 2}) : NULL;
}

static ts_status copy(ts_graph *g, const ts_node *n, ts_value **map)
{
    ts_value *in[5], *w = map[n->in[1]->id];
    ts_attr attr[TS_MAX_ATTR];
    ts_node *made;
    int count = ts_attrs_but(n, "strips", attr);

    g->like = n;
    for (int i = 0; i < n->nin; i++)
        in[i] = map[n->in[i]->id];
    in[1] = strips(n->op == TS_OP(recur) ? ts_permute_n(w, 2, (int64_t[]){1, 0}) : w);
    attr[count++] = ts_attr_i("strips", 1);
    made = in[1] ? ts_node_make(g, n->op, n->nin, in, count, attr) : NULL;
    g->like = NULL;
    for (int i = 0; made && i < n->nout; i++) {
        map[n->out[i]->id] = made->out[i];
        ts_value_mark(made->out[i], n->out[i]->checkpoint);
    }
    return ts_graph_check(g);
}

static bool any(const ts_graph *g, const ts_options *opt)
{
    for (int i = 0; i < g->nnodes; i++)
        if (g->nodes[i]->op->flags & TS_STEPS && ts_pass_loops(opt, g->nodes[i]))
            return true;
    return false;
}

ts_status ts_pass_strips(ts_arena *a, const ts_graph *in, const ts_options *opt,
                         const ts_graph **out)
{
    ts_value **map;
    ts_graph *g;

    *out = in;
    if (!any(in, opt))
        return TS_OK;
    g = ts_graph_begin_copy(a, in, &map);
    for (int i = 0; i < in->nnodes; i++) {
        const ts_node *n = in->nodes[i];
        if (n->op->flags & TS_STEPS && !ts_attr_int(n, "strips", 0))
            TS_TRY(copy(g, n, map));
        else
            ts_graph_copy_node(g, n, map);
    }
    ts_graph_finish_copy(g, in, map);
    *out = g;
    return TS_OK;
}
