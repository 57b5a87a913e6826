/* rounding.c - half precision results rounded up or down at random.
 *
 *   before                        after
 *     %3 = add %x, %y : f16         %3 = cast %x            f32
 *                                   %4 = cast %y            f32
 *                                   %5 = add %3, %4         f32
 *                                   %6 = round_random %5    f16
 *
 *     %2 = cast %1 : f16            %2 = round_random %1    f16
 *
 * needs   gradients, updates and no common subexpressions (simplify): what is computed twice would
 *         be rounded twice, differently
 * keeps   types; the streams of random nodes
 * leaves  no f16 or bf16 result that is rounded to nearest. Without the option
 *         (ts_options.stochastic_rounding) all as it is
 *
 * So the update of a weight is rounded at random too, and a change that is far below the weight's
 * precision is not lost but made now and then. Ops that only pick or move elements (TS_EXACT,
 * views) have nothing to round. In front of split: partial sums are f32. Each node makes its own
 * casts: they are on its device and in its phase, and cost nothing, for fusion never stores them.
 */
#include "pass/pass.h"

static bool rounds(const ts_node *n)
{
    ts_dtype from, to;

    if (n->op->flags & (TS_EXACT | TS_VIEW | TS_SOURCE | TS_HOST | TS_RANDOM) ||
        !ts_dtype_is_half(n->out[0]->type.dtype))
        return false;
    from = n->in[0]->type.dtype;
    to = n->out[0]->type.dtype;
    return n->op != TS_OP(cast) || (from != to && ts_dtype_size(from) > 1); /* any byte is a half */
}

/* An input of what is computed in f32 instead. */
static ts_value *wide(ts_value *v)
{
    double x;

    if (ts_dtype_is_half(v->type.dtype) && ts_full_value(v, &x))
        return ts_full_n(v->graph, TS_F32, x, v->type.rank, v->type.dim);
    return ts_wide(v);
}

static ts_value *exact(ts_graph *g, const ts_node *n, ts_value *const *map)
{
    ts_value **in = TS_NEWS(g->arena, ts_value *, n->nin);

    if (n->op == TS_OP(cast))
        return ts_cast(map[n->in[0]->id], TS_F32);
    for (int i = 0; i < n->nin; i++)
        in[i] = wide(map[n->in[i]->id]);
    return ts_node_out(ts_node_make(g, n->op, n->nin, in, n->nattr, n->attr));
}

/* The first stream that no node has. */
static int64_t free_stream(const ts_graph *g)
{
    int64_t first = 0;

    for (int i = 0; i < g->nnodes; i++)
        first = TS_MAX(first, ts_attr_int(g->nodes[i], "stream", -1) + 1);
    return first;
}

ts_status ts_pass_rounding(ts_arena *a, const ts_graph *in, const ts_options *opt,
                           const ts_graph **out)
{
    int64_t stream = free_stream(in);
    ts_value **map;
    ts_graph *g;

    *out = in;
    if (!opt->stochastic_rounding)
        return TS_OK;
    g = ts_graph_begin_copy(a, in, &map);
    for (int i = 0; i < in->nnodes; i++) {
        const ts_node *n = in->nodes[i];
        if (!rounds(n)) {
            ts_graph_copy_node(g, n, map);
            continue;
        }
        ts_attr attr[] = {ts_attr_s("dtype", ts_dtype_name(n->out[0]->type.dtype)),
                          ts_attr_i("stream", stream++)};
        g->like = n;
        map[n->out[0]->id] = ts_make1(TS_OP(round_random), exact(g, n, map), 2, attr);
        g->like = NULL;
        TS_TRY(ts_graph_check(g));
        map[n->out[0]->id]->name = n->out[0]->name;
    }
    ts_graph_finish_copy(g, in, map);
    *out = g;
    return TS_OK;
}
