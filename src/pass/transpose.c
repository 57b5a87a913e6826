/* transpose.c - a transposed product is the product of the transposes, the other way round.
 *
 *   before                          after
 *     %3 = matmul %1, %2              %5 = permute %2
 *     %4 = permute %3  [1,0]          %6 = permute %1
 *                                     %4 = matmul %5, %6
 *
 * A linear layer's weight gradient comes out of autodiff transposed; this way it is made in the
 * weight's own shape, so that the update can be computed while it is in registers. Views of
 * operands cost nothing.
 *
 * keeps   everything else
 */
#include "pass/pass.h"

static bool swaps_last(const ts_node *n)
{
    const int64_t *dims;
    int rank = strcmp(n->op->name, "permute") ? 0 : ts_attr_list(n, "dims", &dims);

    if (rank < 2 || dims[rank - 1] != rank - 2 || dims[rank - 2] != rank - 1)
        return false;
    for (int i = 0; i < rank - 2; i++)
        if (dims[i] != i)
            return false;
    return true;
}

static ts_value *swapped(ts_value *v)
{
    if (v->kind == TS_VALUE_NODE && swaps_last(v->node))
        return v->node->in[0];
    return ts_transpose(v, v->type.rank - 2, v->type.rank - 1);
}

ts_status ts_pass_transpose(ts_arena *a, const ts_graph *in, const ts_options *opt,
                            const ts_graph **out)
{
    ts_value **map;
    ts_graph *g = ts_graph_begin_copy(a, in, &map);
    int *uses = ts_graph_uses(a, in);
    bool *turned = TS_NEWS(a, bool, in->nnodes);

    (void)opt;
    for (int i = 0; i < in->nnodes; i++) {
        const ts_node *n = in->nodes[i];
        const ts_value *v = n->nin ? n->in[0] : NULL;
        if (swaps_last(n) && v->kind == TS_VALUE_NODE && !strcmp(v->node->op->name, "matmul") &&
            uses[v->id] == 1 && v->node->in[0]->type.rank == v->node->in[1]->type.rank)
            turned[v->node->id] = true;
    }
    for (int i = 0; i < in->nnodes; i++) {
        const ts_node *n = in->nodes[i],
                      *m = n->nin && n->in[0]->kind == TS_VALUE_NODE ? n->in[0]->node : NULL;
        if (turned[i])
            continue;
        if (!m || !turned[m->id]) {
            ts_graph_copy_node(g, n, map);
            continue;
        }
        g->like = m;
        ts_value *x = swapped(map[m->in[1]->id]), *y = swapped(map[m->in[0]->id]);
        map[n->out[0]->id] = ts_make2(TS_OP(matmul), x, y, 0, NULL);
        g->like = NULL;
        TS_TRY(ts_graph_check(g));
    }
    ts_graph_finish_copy(g, in, map);
    *out = g;
    return TS_OK;
}
