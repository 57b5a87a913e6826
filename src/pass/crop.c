/* crop.c - do not compute what pooling drops.
 *
 *   before                                     after
 *     %2 = conv %x, %w     f32[8,64,11,11]       %5 = slice %x        f32[8,32,12,12]
 *     %3 = relu %2         f32[8,64,11,11]       %2 = conv %5, %w     f32[8,64,10,10]
 *     %4 = max_pool %3     f32[8,64,5,5]         %3 = max_pool %2     f32[8,64,5,5]
 *                                                %4 = relu %3         f32[8,64,5,5]
 *
 * A window of 2 with stride 2 over 11 columns never sees the last one. The cut moves up through
 * pointwise ops to a convolution without padding, which then reads less of its input; the gradients
 * shrink with it.
 *
 * The largest after relu is relu of the largest, to the bit. So is the gradient: where they differ
 * in which element won, nothing was above 0, and relu passes nothing on.
 *
 * needs   no composite op
 * keeps   every value that is used elsewhere
 */
#include "pass/pass.h"

typedef struct crop {
    ts_graph *g;
    ts_value **map;
    const int *uses;
} crop;

/* Can v be computed for a part of dim d only? */
static bool can(const crop *c, const ts_value *v, int d)
{
    const ts_node *n = v->node;
    const int64_t *padding;

    if (v->kind != TS_VALUE_NODE || c->uses[v->id] != 1)
        return false;
    if (n->op == TS_OP(conv)) {
        int count = ts_attr_list(n, "padding", &padding);
        return d - 2 >= count || padding[d - 2] == 0;
    }
    if (!(n->op->flags & TS_POINT) || n->op->flags & TS_RANDOM)
        return false;
    for (int i = 0; i < n->nin; i++) {
        const ts_value *x = n->in[i];
        int k = d - (v->type.rank - x->type.rank);
        if (k >= 0 && x->type.dim[k] != 1)
            return can(c, x, d);
    }
    return false;
}

static bool can_all(const crop *c, const ts_value *v, const int64_t *want)
{
    for (int d = 2; d < v->type.rank; d++)
        if (want[d] < v->type.dim[d] && !can(c, v, d))
            return false;
    return true;
}

/* v with only the first want[d] elements of each dim, made anew from its inputs. Pointwise inputs
 * of lower rank are aligned at the right: `want` is v's. */
static ts_value *part(crop *c, const ts_value *v, const int64_t *want)
{
    const ts_node *n = v->node;
    ts_value *in[TS_MAX_INPUTS];

    for (int i = 0; i < n->nin; i++) {
        const ts_value *x = n->in[i];
        int shift = v->type.rank - x->type.rank;
        in[i] = c->map[x->id];
        if (!(n->op->flags & TS_POINT))
            continue;
        if (!shift && ts_type_same_shape(&x->type, &v->type) && can_all(c, x, want)) {
            in[i] = part(c, x, want);
            continue;
        }
        for (int d = 0; d < x->type.rank; d++)
            if (x->type.dim[d] != 1 && want[d + shift] < x->type.dim[d])
                in[i] = ts_slice(in[i], d, 0, want[d + shift], 1);
    }
    c->g->like = n;
    for (int d = 2; d < v->type.rank && !(n->op->flags & TS_POINT); d++) {
        const int64_t *stride, *dilation;
        int64_t s = ts_attr_list(n, "stride", &stride) ? stride[d - 2] : 1;
        int64_t l = ts_attr_list(n, "dilation", &dilation) ? dilation[d - 2] : 1;
        if (want[d] < v->type.dim[d])
            in[0] =
                ts_slice(in[0], d, 0, (want[d] - 1) * s + l * (n->in[1]->type.dim[d] - 1) + 1, 1);
    }
    ts_value *y = ts_node_out(ts_node_make(c->g, n->op, n->nin, in, n->nattr, n->attr));
    c->g->like = NULL;
    return y;
}

/* How much of dim d the windows of n cover. */
static int64_t covered(const ts_node *n, int d)
{
    const int64_t *kernel, *stride, *padding;
    int64_t k, s, p;

    ts_attr_list(n, "kernel", &kernel);
    k = kernel[d - 2];
    s = ts_attr_list(n, "stride", &stride) ? stride[d - 2] : k;
    p = ts_attr_list(n, "padding", &padding) ? padding[d - 2] : 0;
    return (n->out[0]->type.dim[d] - 1) * s + k - p;
}

static bool same_block(const ts_node *x, const ts_node *y)
{
    return x->block == y->block || (x->block && y->block && !strcmp(x->block, y->block));
}

/* relu behind the pooling n, if it was there for n alone; NULL otherwise. */
static ts_value *pool_first(crop *c, const ts_node *n)
{
    const ts_value *v;
    ts_value *y;

    if (n->op != TS_OP(max_pool) || c->uses[n->in[0]->id] != 1 || c->uses[n->out[1]->id] ||
        n->in[0]->checkpoint)
        return NULL;
    v = c->map[n->in[0]->id];
    if (v->kind != TS_VALUE_NODE || v->node->op != TS_OP(relu) || !same_block(n, v->node))
        return NULL;
    c->g->like = n;
    y = ts_node_out(ts_node_make(c->g, n->op, 1, v->node->in, n->nattr, n->attr));
    c->g->like = v->node;
    y = ts_make1(v->node->op, y, 0, NULL);
    c->g->like = NULL;
    return y;
}

ts_status ts_pass_crop(ts_arena *a, const ts_graph *in, const ts_options *opt, const ts_graph **out)
{
    crop c = {.uses = ts_graph_uses(a, in)};

    (void)opt;
    c.g = ts_graph_begin_copy(a, in, &c.map);
    for (int i = 0; i < in->nnodes; i++) {
        const ts_node *n = in->nodes[i];
        ts_value *pooled;
        if (n->op == TS_OP(max_pool) || n->op == TS_OP(sum_pool)) {
            const ts_value *v = n->in[0];
            ts_type want = v->type;
            for (int d = 2; d < want.rank; d++)
                if (covered(n, d) < want.dim[d] && covered(n, d) > 0 && can(&c, v, d))
                    want.dim[d] = covered(n, d);
            if (!ts_type_same_shape(&want, &v->type))
                c.map[v->id] = part(&c, v, want.dim);
        }
        pooled = pool_first(&c, n);
        if (pooled)
            c.map[n->out[0]->id] = pooled;
        else
            ts_graph_copy_node(c.g, n, c.map);
        TS_TRY(ts_graph_check(c.g));
    }
    ts_graph_finish_copy(c.g, in, c.map);
    *out = c.g;
    return TS_OK;
}
