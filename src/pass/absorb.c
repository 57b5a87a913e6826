/* absorb.c - a view behind a big op that can give the viewed shape itself.
 *
 *   before                                   after
 *     %3 = sum %2 dims=[0] keepdim=1           %4 = sum %2 dims=[0]
 *     %4 = reshape %3 [10]
 *
 *     %3 = permute %x [1,0]                    %3 = permute %dy [1,0]
 *     %4 = matmul %3, %dy                      %5 = matmul %3, %x
 *     %5 = permute %4 [1,0]
 *
 * The same sums of the same products, so the same bits. It matters because these are the gradients
 * of a bias and a weight: in the shape of the parameter, the optimiser's arithmetic can run in the
 * loops that make them. Only when nobody else uses the op's own result, or it would run twice.
 */
#include "pass/pass.h"

/* The maker of n's input, if it is in n's phase and n is its only user. */
static const ts_node *only_ours(const ts_node *n, const int *uses)
{
    const ts_value *v = n->nin ? n->in[0] : NULL;

    if (!v || v->kind != TS_VALUE_NODE || uses[v->id] != 1 || v->node->phase != n->phase)
        return NULL;
    return v->node;
}

static bool reduced(const ts_node *n, int dim)
{
    const int64_t *dims;
    int count = ts_attr_list(n, "dims", &dims);

    for (int i = 0; i < count; i++)
        if (ts_norm_dim(n, dims[i], n->in[0]->type.rank) == dim)
            return true;
    return !count;
}

static ts_value *drop_keepdim(const ts_node *n, const ts_node *r, ts_value *const *map)
{
    ts_type t = {.dtype = n->out[0]->type.dtype};
    ts_attr attr[TS_MAX_ATTR];
    int nattr = 0;

    if (!(r->op->flags & TS_REDUCE) || !ts_attr_int(r, "keepdim", 0))
        return NULL;
    for (int d = 0; d < r->in[0]->type.rank; d++)
        if (!reduced(r, d))
            t.dim[t.rank++] = r->in[0]->type.dim[d];
    if (!ts_type_same(&t, &n->out[0]->type))
        return NULL;
    for (int i = 0; i < r->nattr; i++)
        if (strcmp(r->attr[i].name, "keepdim"))
            attr[nattr++] = r->attr[i];
    return ts_make1(r->op, map[r->in[0]->id], nattr, attr);
}

static bool is_transpose(const ts_node *n)
{
    const int64_t *dims;

    return n->op == TS_OP(permute) && ts_attr_list(n, "dims", &dims) == 2 && dims[0] == 1;
}

static ts_value *transpose_matmul(const ts_node *n, const ts_node *m, ts_value *const *map)
{
    const ts_value *x = m->nin ? m->in[0] : NULL;

    if (m->op != TS_OP(matmul) || !is_transpose(n) || m->in[1]->type.rank != 2)
        return NULL;
    if (x->kind != TS_VALUE_NODE || !is_transpose(x->node) || x->node->phase != n->phase)
        return NULL;
    return ts_make2(m->op, ts_transpose(map[m->in[1]->id], 0, 1), map[x->node->in[0]->id], m->nattr,
                    m->attr);
}

ts_value *ts_rule_absorb(const ts_node *n, const int *uses, ts_value *const *map)
{
    const ts_node *behind = only_ours(n, uses);

    if (behind && n->op == TS_OP(reshape))
        return drop_keepdim(n, behind, map);
    return behind && n->op == TS_OP(permute) ? transpose_matmul(n, behind, map) : NULL;
}
