/* rounding.c - products of halves summed in f32; halves rounded up or down at random, if asked for.
 *
 *   before                        after
 *     %3 = matmul %x, %w : f16      %3 = cast %x            f32
 *                                   %4 = cast %w            f32
 *                                   %5 = matmul %3, %4      f32
 *                                   %6 = cast %5            f16
 *
 *   with ts_options.stochastic_rounding, not only of contractions
 *     %3 = add %x, %y : f16         %6 = round_random %5    f16 at the end instead
 *     %2 = cast %1 : f16            %2 = round_random %1    f16
 *
 * needs   gradients, updates and no common subexpressions (simplify): what is computed twice would
 *         be rounded twice, differently
 * keeps   types; the streams of random nodes; without the option every bit
 * leaves  no contraction of halves; with the option no f16 or bf16 result rounded to nearest
 *
 * A contraction reads an operand many times: fusion stores it as f32 if that pays, so it is widened
 * once. Rounded at random, a change of a weight far below the weight's precision is not lost but
 * made now and then. Ops that only pick or move elements (TS_EXACT, views) have nothing to round.
 * In front of split: partial sums are f32. Nodes share a cast only in one block, one phase and one
 * direction: what the backward pass reads again is kept as a half.
 */
#include "pass/pass.h"

/* Is n computed in f32, and rounded? */
static bool rounds(const ts_node *n, bool at_random)
{
    ts_dtype from, to;

    if (!at_random && !(n->op->flags & TS_CONTRACT))
        return false;
    if (n->op->flags & (TS_EXACT | TS_VIEW | TS_SOURCE | TS_HOST | TS_RANDOM) ||
        !ts_dtype_is_half(n->out[0]->type.dtype))
        return false;
    from = n->in[0]->type.dtype;
    to = n->out[0]->type.dtype;
    return n->op != TS_OP(cast) || (from != to && ts_dtype_size(from) > 1); /* any byte is a half */
}

static bool any(const ts_graph *g, bool at_random)
{
    for (int i = 0; i < g->nnodes; i++)
        if (rounds(g->nodes[i], at_random))
            return true;
    return false;
}

typedef struct wider {
    ts_graph *g;
    ts_value **map;  /* of the old graph's values */
    ts_value **cast; /* the last f32 copy of each of them */
} wider;

static bool same_place(const ts_node *m, const ts_node *n)
{
    return m->phase == n->phase && m->backward == n->backward && !strcmp(m->block, n->block);
}

/* Does n only arrange what it gets? */
static bool arranges(const ts_node *n)
{
    return n->nin == 1 && n->op->flags & TS_VIEW && n->op != TS_OP(pad) &&
           ts_type_count(&n->in[0]->type) <= ts_type_count(&n->out[0]->type);
}

/* What `user` reads of the old graph, in f32. What views show is widened where it lies, so that a
 * matrix that is read transposed is not turned in memory. */
static ts_value *widened(wider *w, const ts_value *v, const ts_node *user)
{
    ts_value *made = w->map[v->id], **last = &w->cast[v->id];
    double x;

    if (!ts_dtype_is_half(v->type.dtype))
        return made;
    if (ts_full_value(made, &x))
        return ts_full_n(w->g, TS_F32, x, v->type.rank, v->type.dim);
    if (v->kind == TS_VALUE_NODE && arranges(v->node)) {
        made = widened(w, v->node->in[0], user);
        return ts_make1(v->node->op, made, v->node->nattr, v->node->attr);
    }
    if (!*last || !same_place((*last)->node, user))
        *last = ts_cast(made, TS_F32);
    return *last;
}

static ts_value *exact(wider *w, const ts_node *n)
{
    ts_value **in = TS_NEWS(w->g->arena, ts_value *, n->nin);

    if (n->op == TS_OP(cast))
        return ts_cast(w->map[n->in[0]->id], TS_F32);
    for (int i = 0; i < n->nin; i++)
        in[i] = widened(w, n->in[i], n);
    return ts_node_out(ts_node_make(w->g, n->op, n->nin, in, n->nattr, n->attr));
}

static ts_value *rounded(ts_value *v, ts_dtype t, bool at_random, int64_t *stream)
{
    ts_attr attr[] = {ts_attr_s("dtype", ts_dtype_name(t)), ts_attr_i("stream", *stream)};

    if (!at_random)
        return ts_cast(v, t);
    ++*stream;
    return ts_make1(TS_OP(round_random), v, 2, attr);
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
    bool at_random = opt->stochastic_rounding;
    int64_t stream = free_stream(in);
    wider w = {.cast = TS_NEWS(a, ts_value *, in->nvalues)};

    *out = in;
    if (!any(in, at_random))
        return TS_OK;
    w.g = ts_graph_begin_copy(a, in, &w.map);
    for (int i = 0; i < in->nnodes; i++) {
        const ts_node *n = in->nodes[i];
        if (!rounds(n, at_random)) {
            ts_graph_copy_node(w.g, n, w.map);
            continue;
        }
        ts_value *v = n->out[0], *sum;
        w.g->like = n;
        sum = exact(&w, n);
        w.map[v->id] = rounded(sum, v->type.dtype, at_random, &stream);
        w.g->like = NULL;
        TS_TRY(ts_graph_check(w.g));
        w.map[v->id]->name = v->name;
    }
    ts_graph_finish_copy(w.g, in, w.map);
    return ts_pass_order(a, w.g, opt, out); /* views of halves may be dead */
}
