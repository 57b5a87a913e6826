/* rows.c - products of rows in the shape that their results are read in.
 *
 *   before                                        after
 *     %1 = reshape %x           f32[1024,256]       %2 = matmul %x, %w          f32[8,128,1024]
 *     %2 = matmul %1, %w        f32[1024,1024]      %3 = add %2, %b             f32[8,128,1024]
 *     %3 = add %2, %b           f32[1024,1024]      %5 = gelu %3                f32[8,128,1024]
 *     %4 = reshape %3           f32[8,128,1024]
 *     %5 = gelu %4              f32[8,128,1024]
 *
 * A linear layer of more than two dims is traced as a product of matrices between two reshapes. What
 * follows a product can be its epilogue only in the same shape (plan/fuse.c), so the rows' dims are
 * taken apart before the product and not behind it.
 *
 * A matrix is given in a shape if all that read it want that: reshapes to it that leave the columns as
 * they are, and pointwise nodes whose results are wanted so. What a pointwise node reads besides is
 * reshaped, which costs nothing.
 *
 * needs   no composite op; gradients are made
 */
#include "pass/pass.h"

typedef struct rows {
    const ts_graph *in;
    ts_graph *g;
    ts_value **map;
    const ts_type **want; /* by value: the shape that its readers want */
    bool *other;          /* somebody wants it as it is */
} rows;

static bool splits_rows(const ts_node *n)
{
    const ts_type *x, *y;

    if (n->op != TS_OP(reshape))
        return false;
    x = &n->in[0]->type;
    y = &n->out[0]->type;
    return x->rank == 2 && y->rank > 2 && x->dim[0] > 1 && x->dim[1] == y->dim[y->rank - 1];
}

static void propose(rows *r, const ts_value *v, const ts_type *shape)
{
    if (v->type.rank != 2 || v->type.dim[1] != shape->dim[shape->rank - 1] ||
        (r->want[v->id] && !ts_type_same_shape(r->want[v->id], shape)))
        r->other[v->id] = true;
    else
        r->want[v->id] = shape;
}

/* The shape that v's readers want instead of its own, or NULL. */
static const ts_type *wanted(const rows *r, const ts_value *v)
{
    return r->other[v->id] ? NULL : r->want[v->id];
}

static bool is_product(const ts_node *n)
{
    return n->op == TS_OP(matmul) && n->in[0]->type.rank == 2 && n->in[1]->type.rank == 2;
}

static bool can_follow(const ts_node *n)
{
    return n->op->flags & TS_POINT && !(n->op->flags & TS_RANDOM) && n->nout == 1;
}

/* Readers come behind what they read: from the last node to the first. */
static void find_wanted(rows *r)
{
    const ts_graph *g = r->in;

    for (int i = 0; i < g->noutputs; i++)
        r->other[g->outputs[i]->id] = true;
    for (int i = 0; i < g->nupdates; i++)
        r->other[g->updates[i].next->id] = true;
    for (int i = 0; i < g->ngrads; i++)
        r->other[g->grads[i].grad->id] = true;
    if (g->loss)
        r->other[g->loss->id] = true;
    for (int i = g->nnodes - 1; i >= 0; i--) {
        const ts_node *n = g->nodes[i];
        const ts_type *shape = n->nout == 1 ? wanted(r, n->out[0]) : NULL;
        for (int k = 0; k < n->nin; k++) {
            const ts_value *v = n->in[k];
            if (splits_rows(n))
                propose(r, v, &n->out[0]->type);
            else if (shape && can_follow(n) && ts_type_same_shape(&v->type, &n->out[0]->type))
                propose(r, v, shape);
            else
                r->other[v->id] = true;
        }
    }
}

/* Only what begins with a product changes: products and what reads them. */
static void keep_products(rows *r)
{
    for (int i = 0; i < r->in->nvalues; i++)
        if (r->in->values[i]->kind != TS_VALUE_NODE)
            r->other[i] = true;
    for (int i = 0; i < r->in->nnodes; i++) {
        const ts_node *n = r->in->nodes[i];
        bool follows = is_product(n);
        for (int k = 0; k < n->nin && can_follow(n); k++)
            follows = follows || wanted(r, n->in[k]);
        for (int k = 0; k < n->nout; k++)
            r->other[n->out[k]->id] = r->other[n->out[k]->id] || !follows;
    }
}

/* An operand of a node whose result has `shape`: what has the matrix's rows gets its dims. */
static ts_value *operand(const rows *r, const ts_node *n, int k, const ts_type *shape)
{
    const ts_value *v = n->in[k];
    ts_value *made = r->map[v->id];
    ts_type t = *shape;

    if (wanted(r, v) || v->type.rank < 2 || v->type.dim[0] == 1 || (is_product(n) && k == 1))
        return made;
    t.dtype = v->type.dtype;
    t.dim[t.rank - 1] = v->type.dim[1];
    while (made->kind == TS_VALUE_NODE && made->node->op == TS_OP(reshape) &&
           made->node->phase == n->phase)
        made = made->node->in[0];
    return ts_type_same(&made->type, &t) ? made : ts_reshape_n(made, t.rank, t.dim);
}

static void copy(rows *r, const ts_node *n)
{
    const ts_type *shape = n->nout == 1 ? wanted(r, n->out[0]) : NULL;
    ts_value **in = TS_NEWS(r->g->arena, ts_value *, n->nin), *made;

    if (splits_rows(n) && wanted(r, n->in[0])) {
        r->map[n->out[0]->id] = r->map[n->in[0]->id];
        return;
    }
    if (!shape) {
        ts_graph_copy_node(r->g, n, r->map);
        return;
    }
    r->g->like = n;
    for (int k = 0; k < n->nin; k++)
        in[k] = operand(r, n, k, shape);
    made = ts_node_clone(r->g, n, in)->out[0];
    made->type = *shape;
    made->type.dtype = n->out[0]->type.dtype;
    r->map[n->out[0]->id] = made;
    r->g->like = NULL;
}

static bool any(const rows *r)
{
    for (int i = 0; i < r->in->nvalues; i++)
        if (wanted(r, r->in->values[i]))
            return true;
    return false;
}

ts_status ts_pass_rows(ts_arena *a, const ts_graph *in, const ts_options *opt, const ts_graph **out)
{
    rows r = {.in = in,
              .want = TS_NEWS(a, const ts_type *, in->nvalues),
              .other = TS_NEWS(a, bool, in->nvalues)};

    (void)opt;
    *out = in;
    find_wanted(&r);
    keep_products(&r);
    if (!any(&r))
        return TS_OK;
    r.g = ts_graph_begin_copy(a, in, &r.map);
    for (int i = 0; i < in->nnodes; i++) {
        copy(&r, in->nodes[i]);
        TS_TRY(ts_graph_check(r.g));
    }
    ts_graph_finish_copy(r.g, in, r.map);
    *out = r.g;
    return TS_OK;
}
