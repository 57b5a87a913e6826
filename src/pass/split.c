/* split.c - a large sum with few results in two steps, so that threads can share it.
 *
 *   before                                        after
 *     %2 = sum %1 dims=[0,2,3]   f32[32]            %3 = sum %1 dims=[0,3] keepdim f32[1,32,160,1]
 *                                                   %2 = sum %3 dims=[0,2,3]         f32[32]
 *
 * The first step has a result for every row, the second adds the rows. The cut depends on the shape
 * only, so the bits do not depend on the threads; and each rounds less than one long chain would.
 *
 *     %3 = matmul %1, %2   f32[16,100]              %4 = matmul of parts   f32[4,16,100]
 *       from [16,972] and [972,100]                 %3 = sum %4 dims=[0]   f32[16,100]
 *
 * A product of few rows with a large weight matrix moves more weights than results. Its two
 * gradients are cut among the threads by the weight's input features; with the sum in parts the
 * product itself is too, and each core keeps its share of the weights in its own cache.
 *
 * needs   no composite op
 */
#include "pass/pass.h"

enum { LARGE = 16384, FEW = 512, ROWS = 8, PARTS = 4 };

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

static ts_value *split_sum(const ts_node *n, ts_value *x, const bool *summed, int row)
{
    int64_t first[TS_MAX_RANK];
    int count = 0;

    for (int d = 0; d < n->in[0]->type.rank; d++)
        if (summed[d] && d != row)
            first[count++] = d;
    ts_attr attr[] = {ts_attr_l("dims", count, first), ts_attr_i("keepdim", 1)};
    return ts_make1(n->op, ts_make1(n->op, x, 2, attr), n->nattr, n->attr);
}

/* The partial products are written and read once; that must be little beside reading the weights.
 */
static bool splits_product(const ts_node *n)
{
    const ts_type *x, *y;

    if (n->op != TS_OP(matmul) || n->in[0]->type.rank != 2 || n->in[1]->type.rank != 2)
        return false;
    x = &n->in[0]->type;
    y = &n->out[0]->type;
    return y->dtype == TS_F32 && x->dim[1] % PARTS == 0 && x->dim[1] * y->dim[1] >= LARGE &&
           2 * PARTS * x->dim[0] <= x->dim[1];
}

static ts_value *split_product(ts_value *x, ts_value *y)
{
    int64_t m = x->type.dim[0], k = x->type.dim[1] / PARTS, n = y->type.dim[1];
    ts_value *part = ts_permute(ts_reshape(x, m, PARTS, k), 1, 0, 2);

    return ts_sum(ts_matmul(part, ts_reshape(y, PARTS, k, n)), 1, (const int64_t[]){0}, false);
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
        int row = splits(n) ? row_dim(n, summed) : -1;
        g->like = n;
        if (row >= 0)
            map[n->out[0]->id] = split_sum(n, map[n->in[0]->id], summed, row);
        else if (splits_product(n))
            map[n->out[0]->id] = split_product(map[n->in[0]->id], map[n->in[1]->id]);
        g->like = NULL;
        if (row < 0 && !splits_product(n))
            ts_graph_copy_node(g, n, map);
        TS_TRY(ts_graph_check(g));
    }
    ts_graph_finish_copy(g, in, map);
    *out = g;
    return TS_OK;
}
