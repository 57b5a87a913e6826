/* patches.c - convolutions whose windows do not overlap, as products of matrices.
 *
 *   before, kernel and stride 2                    after
 *     %3 = conv %x, %w   f32[4,192,8,8]              %4 = permute %x, %w   f32[256,384], f32[384,192]
 *                                                    %5 = matmul %4        f32[256,192]
 *                                                    %3 = permute %5       f32[4,192,8,8]
 *
 * Each element of the picture is in one window: a patch is a row of a matrix, and all that moves are views. In a
 * net of products pictures lie in rows (layout.c), in which such a convolution steps over two columns at a time and
 * its gradient writes every other one: ConvNeXt's between its stages were 0.5 to 20 GFLOP/s, and two thirds of the
 * step. The beginnings of vision transformers are such convolutions too, and transposed ones are the same turned round.
 *
 * needs   no composite op; comes before the gradients, which follow by themselves
 * keeps   the order in which is summed: channel by channel, row by row
 */
#include "pass/pass.h"

static bool all_are(const ts_node *n, const char *name, int64_t value)
{
    const int64_t *list;
    int count = ts_attr_list(n, name, &list);

    for (int i = 0; i < count; i++)
        if (list[i] != value)
            return false;
    return true;
}

/* Do the windows lie side by side, and is there more in them than one element? */
static bool apart(const ts_node *n)
{
    const ts_type *w = &n->in[1]->type;
    const int64_t *stride;
    int64_t size = 1;

    if (!all_are(n, "padding", 0) || !all_are(n, "dilation", 1) ||
        ts_attr_int(n, "groups", 1) != 1 || 2 * w->rank - 2 > TS_MAX_RANK ||
        ts_attr_list(n, "stride", &stride) != w->rank - 2)
        return false;
    for (int d = 2; d < w->rank; d++) {
        size *= w->dim[d];
        if (stride[d - 2] != w->dim[d])
            return false;
    }
    return size > 1;
}

/* A picture's dims with each of its places in two, patch and place in it: [n, c, h / k, k, w / k, k]. */
static int split(const ts_type *x, const ts_type *w, int64_t *dims)
{
    int rank = 0;

    dims[rank++] = x->dim[0];
    dims[rank++] = x->dim[1];
    for (int d = 2; d < x->rank; d++) {
        dims[rank++] = x->dim[d] / w->dim[d];
        dims[rank++] = w->dim[d];
    }
    return rank;
}

/* [n, c, a, k, b, k] as [n, a, b, c, k, k]; or back. */
static int patch_order(int spatial, bool back, int64_t *order)
{
    int64_t there[TS_MAX_RANK];
    int rank = 0;

    there[rank++] = 0;
    for (int d = 0; d < spatial; d++)
        there[rank++] = 2 + 2 * d;
    there[rank++] = 1;
    for (int d = 0; d < spatial; d++)
        there[rank++] = 3 + 2 * d;
    for (int d = 0; d < rank; d++)
        order[back ? there[d] : d] = back ? d : there[d];
    return rank;
}

/* [o, c, k, k] as [o, c k k] */
static ts_value *matrix(ts_value *w)
{
    return ts_reshape(w, w->type.dim[0], ts_type_count(&w->type) / w->type.dim[0]);
}

/* What the last patch does not reach is read by no window. */
static ts_value *whole_patches(ts_value *x, const ts_type *w)
{
    for (int d = 2; d < w->rank; d++)
        if (x->type.dim[d] % w->dim[d])
            x = ts_slice(x, d, 0, x->type.dim[d] / w->dim[d] * w->dim[d], 1);
    return x;
}

/* [n a b, o] as [n, o, a, b] */
static ts_value *picture(ts_value *y, const ts_type *type)
{
    int64_t dims[TS_MAX_RANK], order[TS_MAX_RANK];
    int rank = type->rank;

    for (int d = 0; d < rank; d++) {
        order[d] = d == 0 ? 0 : d == 1 ? rank - 1 : d - 1;
        dims[d] = type->dim[d == 0 ? 0 : d == rank - 1 ? 1 : d + 1];
    }
    return ts_permute_n(ts_reshape_n(y, rank, dims), rank, order);
}

static ts_value *product(const ts_node *n, ts_value *x, ts_value *w)
{
    const ts_type *y = &n->out[0]->type;
    int64_t dims[TS_MAX_RANK], order[TS_MAX_RANK];
    int rank;

    x = whole_patches(x, &w->type);
    rank = split(&x->type, &w->type, dims);
    patch_order(w->type.rank - 2, false, order);
    x = ts_permute_n(ts_reshape_n(x, rank, dims), rank, order);
    w = matrix(w);
    x = ts_reshape(x, ts_type_count(&x->type) / w->type.dim[1], w->type.dim[1]);
    return picture(ts_matmul(x, ts_permute(w, 1, 0)), y);
}

/* The transposed convolution: a row makes a patch. */
static ts_value *transposed(const ts_node *n, ts_value *x, ts_value *w)
{
    const ts_type *y = &n->out[0]->type, *k = &n->in[1]->type;
    int64_t dims[TS_MAX_RANK], order[TS_MAX_RANK], apart[TS_MAX_RANK];
    int rank = x->type.rank, all;

    for (int d = 0; d < rank; d++)
        order[d] = d == 0 ? 0 : d == rank - 1 ? 1 : d + 1;
    x = ts_permute_n(x, rank, order);
    w = matrix(w);
    x = ts_matmul(ts_reshape(x, ts_type_count(&x->type) / w->type.dim[0], w->type.dim[0]), w);
    all = split(y, k, apart);
    patch_order(rank - 2, false, order);
    for (int d = 0; d < all; d++)
        dims[d] = apart[order[d]];
    patch_order(rank - 2, true, order);
    x = ts_permute_n(ts_reshape_n(x, all, dims), all, order);
    return ts_reshape_n(x, rank, y->dim);
}

static bool fills(const ts_node *n)
{
    const ts_type *x = &n->in[0]->type, *w = &n->in[1]->type, *y = &n->out[0]->type;

    for (int d = 2; d < y->rank; d++)
        if (y->dim[d] != x->dim[d] * w->dim[d])
            return false;
    return true;
}

static ts_value *rewrite(const ts_node *n, ts_value *const *map)
{
    if (n->op == TS_OP(conv) && apart(n))
        return product(n, map[n->in[0]->id], map[n->in[1]->id]);
    if (n->op == TS_OP(conv_input) && apart(n) && fills(n))
        return transposed(n, map[n->in[0]->id], map[n->in[1]->id]);
    return NULL;
}

ts_status ts_pass_patches(ts_arena *a, const ts_graph *in, const ts_options *opt,
                          const ts_graph **out)
{
    ts_value **map;
    ts_graph *g;

    *out = in;
    if (opt->executor == TS_EXECUTOR_REFERENCE || ts_pass_for_gpu(opt) || !ts_mostly_products(in))
        return TS_OK;
    g = ts_graph_begin_copy(a, in, &map);
    for (int i = 0; i < in->nnodes; i++) {
        const ts_node *n = in->nodes[i];
        ts_value *y;
        g->like = n;
        y = rewrite(n, map);
        g->like = NULL;
        TS_TRY(ts_graph_check(g));
        if (y) {
            y->checkpoint = n->out[0]->checkpoint;
            map[n->out[0]->id] = y;
        } else
            ts_graph_copy_node(g, n, map);
    }
    ts_graph_finish_copy(g, in, map);
    *out = g;
    return TS_OK;
}
