/* split.c - a large sum with few results in two steps, so that threads can share it.
 *
 *   before                                        after
 *     %2 = sum %1 dims=[0,2,3]   f32[32]            %3 = sum %1 dims=[0,3] keepdim f32[1,32,160,1]
 *                                                   %2 = sum %3 dims=[0,2,3]         f32[32]
 *
 * The first step has a result for every row, the second adds the rows. The cut depends on the shape
 * only, so the bits do not depend on the threads; and each rounds less than one long chain would.
 *
 * needs   no composite op
 */
#include "pass/pass.h"

enum { LARGE = 16384, FEW = 512, ROWS = 8 };

static bool splits(const ts_node *n)
{
    return n->op->flags & TS_REDUCE && !(n->op->flags & TS_NODIFF) &&
           ts_dtype_is_float(n->out[0]->type.dtype) && ts_type_count(&n->in[0]->type) >= LARGE &&
           ts_type_count(&n->out[0]->type) <= FEW &&
           ts_type_count(&n->in[0]->type) / ts_type_count(&n->out[0]->type) >= LARGE / FEW;
}

/* The dim to leave for the second step: the first summed one behind the batch and the channels,
 * else any that is long enough; -1 when only one dim is summed. */
static int row_dim(const ts_node *n, bool *summed)
{
    const ts_type *t = &n->in[0]->type;
    const int64_t *dims;
    int count = ts_attr_list(n, "dims", &dims), total = 0, best = -1;

    for (int d = 0; d < t->rank; d++) {
        summed[d] = !count;
        for (int i = 0; i < count; i++)
            summed[d] = summed[d] || (dims[i] < 0 ? dims[i] + t->rank : dims[i]) == d;
        total += summed[d] && t->dim[d] > 1;
    }
    for (int d = t->rank - 1; d >= 0; d--)
        if (summed[d] && t->dim[d] >= ROWS && (best < 0 || d >= 2))
            best = d;
    return total > 1 ? best : -1;
}

ts_status ts_pass_split(ts_arena *a, const ts_graph *in, const ts_options *opt,
                        const ts_graph **out)
{
    ts_value **map;
    ts_graph *g = ts_graph_begin_copy(a, in, &map);

    (void)opt;
    for (int i = 0; i < in->nnodes; i++) {
        const ts_node *n = in->nodes[i];
        bool summed[TS_MAX_RANK];
        int64_t first[TS_MAX_RANK];
        int count = 0, row = splits(n) ? row_dim(n, summed) : -1;
        if (row < 0) {
            ts_graph_copy_node(g, n, map);
            continue;
        }
        for (int d = 0; d < n->in[0]->type.rank; d++)
            if (summed[d] && d != row)
                first[count++] = d;
        g->like = n;
        ts_attr attr[] = {ts_attr_l("dims", count, first), ts_attr_i("keepdim", 1)};
        ts_value *rows = ts_make1(n->op, map[n->in[0]->id], 2, attr);
        map[n->out[0]->id] = ts_make1(n->op, rows, n->nattr, n->attr);
        g->like = NULL;
        TS_TRY(ts_graph_check(g));
    }
    ts_graph_finish_copy(g, in, map);
    *out = g;
    return TS_OK;
}
