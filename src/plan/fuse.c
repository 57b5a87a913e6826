/* fuse.c - decide what is stored, and group what is computed together into kernels.
 *
 *   before                        after
 *     %3 = conv %1, %2              kernel anchored at %3: stores %5, inlines %3 %4
 *     %4 = add  %3, %b              kernel: stores %7, inlines %6
 *     %5 = relu %4
 *     %6 = exp  %5
 *     %7 = mul  %6, %s
 *
 * needs   a topological order
 * leaves  every value stored or inlined; a stored value belongs to exactly one kernel
 *
 * 1. What must be stored: outputs, next values of states, checkpoints, what is read more than once
 *    in a way that recomputing would cost (operands of contractions, of windows that overlap,
 *    broadcast results), and anchors.
 * 2. A kernel for every stored value, in topological order.
 * 3. A kernel whose values all lie at the same places as another's roots joins it: an epilogue.
 *    What nobody outside needs is then not stored any more. Greedy, from the first kernel to the
 *    last.
 */
#include "plan/plan.h"

/* On one core of a Xeon (W1 to W4 of bench/, noise 5 %): OFTEN = 4 makes W3 0.92 and W4 0.88 as fast, 64
 * nothing faster; CHEAP = 8 costs W2 4 %, 1 stores more for no gain; DEAR of 4 to 64 is the same. */
enum {
    CHEAP = 3,  /* pointwise nodes that may be computed again instead of stored                   */
    DEAR = 16,  /* multiply-adds that an element is worth storing for: its exp, for one           */
    FILLS = 16, /* elements of each side of a product that is packed                              */
    OFTEN = 16, /* operations on an element of an operand that pay for another copy of it, in f32 */
};

typedef struct fuse {
    ts_arena *a;
    const ts_graph *g;
    ts_program *p;
    int *uses;
    bool *
        keep; /* value must be stored: somebody reads it again and again, or it leaves the kernel */
    bool *result; /* an output or a state's next value: stored even if nobody reads it */
    bool *later;  /* of the forward pass, and read by the backward pass only */
    int *weight;  /* inlined pointwise nodes behind a value */
    int *leaves;  /* big stored values behind it */
    int *seen;    /* by the walk of this number */
    int walk;
    bool gpu;
} fuse;

static bool is_anchor(const ts_node *n)
{
    return n->op->flags & (TS_CONTRACT | TS_REDUCE | TS_HOST | TS_STEPS | TS_ROWS | TS_ADDS);
}

/* Are all results in memory, read or not? The steps back read the gates' gradients themselves. */
static bool has_all(const ts_node *n)
{
    return n->op->flags & TS_HOST || n->op == TS_OP(recur_grad);
}

/* A view that costs an address and nothing else. */
static bool only_places(const ts_node *n)
{
    return n->op->flags & TS_VIEW && !(n->op->flags & TS_PATCH);
}

/* Numbers that nobody needs to compute. In memory nevertheless as operands of contractions, whose
 * loops are made for what is there. */
static bool is_known(const ts_node *n)
{
    return n->op->flags & TS_SOURCE && !(n->op->flags & TS_RANDOM);
}

bool ts_same_layout(const ts_value *x, const ts_value *y)
{
    const ts_layout *p = &x->layout, *q = &y->layout;
    static const int8_t plain[TS_MAX_RANK] = {0, 1, 2, 3, 4, 5, 6, 7};
    int lp = p->set && p->lanes > 1 ? p->lanes : 0, lq = q->set && q->lanes > 1 ? q->lanes : 0;

    if (x->type.rank != y->type.rank || lp != lq || (lp && p->lane_dim != q->lane_dim))
        return false;
    return !memcmp(p->set ? p->order : plain, q->set ? q->order : plain, (size_t)x->type.rank);
}

static bool made_by(const ts_value *v, const ts_op *op)
{
    return v->kind == TS_VALUE_NODE && v->node->op == op;
}

/* The permute or untile that v is; in[d] becomes the dim of v that counts along dim d of its input, -1: none. */
static const ts_node *turned(const ts_value *v, int *to)
{
    const int64_t *order;
    int of[TS_MAX_RANK];

    if (made_by(v, TS_OP(untile))) {
        memcpy(of, to, sizeof(of));
        for (int d = 0; d < 6; d++)
            to[d] = d < 2 ? of[2 + d] : -1;
        return v->node;
    }
    if (!made_by(v, TS_OP(permute)))
        return NULL;
    memcpy(of, to, sizeof(of));
    ts_attr_list(v->node, "dims", &order);
    for (int d = 0; d < v->type.rank; d++)
        to[order[d]] = of[d];
    return v->node;
}

const ts_value *ts_mix_behind(const ts_value *v, int64_t *rows)
{
    int to[TS_MAX_RANK] = {0, 1, 2, 3, 4, 5, 6, 7};
    const ts_value *view = v;

    for (const ts_node *n; (n = turned(v, to));)
        v = n->in[0];
    if (v == view || !made_by(v, TS_OP(mix)))
        return NULL;
    for (int d = 0; d < TS_MAX_RANK; d++)
        rows[d] = 1;
    for (const ts_value *m = v; made_by(m, TS_OP(mix)); m = m->node->in[0]) {
        int64_t dim = ts_attr_int(m->node, "dim", 0);
        if (to[dim] >= 0)
            rows[to[dim]] = v->type.dim[dim];
    }
    return v;
}

/* Does user `n` read each element of its input k about once, in pointwise fashion or not? */
static bool reads_once(const ts_node *n, int k)
{
    int64_t in = ts_type_count(&n->in[k]->type), out = ts_type_count(&n->out[0]->type);

    if (n->op->flags & (TS_CONTRACT | TS_WINDOW))
        return false;
    /* the rows of both matrices are written out, so what is between them is computed once */
    if (n->op == TS_OP(mix) && n->in[k]->node && n->in[k]->node->op == TS_OP(mix))
        return true;
    if (n->op->flags & TS_INDEX)
        return n->op->flags & TS_PICK ? out <= in : k == 1;
    if (n->op->flags & (TS_REDUCE | TS_VIEW))
        return out <= in || n->op->flags & TS_PATCH;
    return out <= in;
}

/* Next to nothing beside the result that it is read for: one number, or one a row. */
static bool small(const ts_value *v, const ts_value *result)
{
    return ts_type_count(&v->type) <= 1 ||
           ts_type_count(&v->type) * 64 <= ts_type_count(&result->type);
}

/* To f32 or from it: part of a load or a store. */
static bool changes_width(const ts_node *n)
{
    return n->op == TS_OP(cast) &&
           (ts_dtype_is_half(n->in[0]->type.dtype) || ts_dtype_is_half(n->out[0]->type.dtype));
}

/* What is behind an inlined value: how many pointwise nodes, how many stored tensors. */
static void weigh(fuse *f, const ts_node *n)
{
    int w = n->op->flags & TS_POINT && !changes_width(n), l = 0;

    for (int i = 0; i < n->nin; i++) {
        const ts_value *v = n->in[i];
        bool stored = f->p->place[v->id].home != TS_HOME_NONE;
        if (!stored)
            w += f->weight[v->id];
        if (!small(v, n->out[0]))
            l += stored ? 1 : f->leaves[v->id];
    }
    if (n->op->flags & (TS_WINDOW | TS_INDEX | TS_RANDOM))
        w += 2 * CHEAP;
    if (n->op->flags & TS_POINT && ts_op_price(n->op) >= DEAR)
        w += CHEAP;
    for (int i = 0; i < n->nout; i++) {
        f->weight[n->out[i]->id] = w;
        f->leaves[n->out[i]->id] = l;
    }
}

/* The product that v is the end of: nobody else reads it, nothing else that v needs is made after it. Then v can be
 * stored in its place, as its epilogue, and who reads v reads one tensor instead of several. At most so many nodes are between. */
static const ts_node *product_behind(const fuse *f, const ts_value *v, const ts_type *type,
                                     int most)
{
    const ts_node *found = NULL;

    if (v->kind != TS_VALUE_NODE || !ts_type_same(&v->type, type) || !most)
        return NULL;
    if (v->node->op == TS_OP(matmul))
        return v->node;
    if (!(v->node->op->flags & TS_POINT) || v->node->op->flags & TS_RANDOM)
        return NULL;
    for (int i = 0; i < v->node->nin; i++) {
        const ts_value *in = v->node->in[i];
        const ts_node *one = f->uses[in->id] == 1 ? product_behind(f, in, type, most - 1) : NULL;
        if (one && (!found || one->id > found->id))
            found = one;
    }
    for (int i = 0; i < v->node->nin && found; i++) {
        const ts_value *in = v->node->in[i];
        if (in->kind == TS_VALUE_NODE && in->node != found && in->node->id > found->id &&
            (f->uses[in->id] > 1 || product_behind(f, in, type, most - 1) != found))
            return NULL;
    }
    return found;
}

static bool must_store(fuse *f, const ts_node *n, int k)
{
    const ts_value *v = n->out[k];

    if (f->keep[v->id] || is_anchor(n) || n->op->flags & TS_DATA)
        return true;
    if (is_known(n))
        return false;
    if (only_places(n))
        return f->weight[v->id] > CHEAP && f->uses[v->id] > 1;
    if (n->op->flags & TS_WINDOW)
        return true;
    if (f->uses[v->id] > 1)
        return f->weight[v->id] > CHEAP || f->leaves[v->id] > 2 ||
               product_behind(f, v, &v->type, CHEAP + 1);
    /* pass/slope.c made it, so that what is behind it need not be kept */
    return f->later[v->id] && f->weight[v->id] > CHEAP;
}

/* Is v what n makes, or a view of it? */
static bool behind(const ts_value *v, const ts_node *n)
{
    while (v->kind == TS_VALUE_NODE && v->node != n && v->node->op->flags & TS_VIEW)
        v = v->node->in[0];
    return v->kind == TS_VALUE_NODE && v->node == n;
}

/* A product that is large enough to be made from packed panels (render/product.c), which widens or takes
 * halves as they are. */
static bool packs(const ts_node *n)
{
    const ts_type *y = &n->out[0]->type, *x = &n->in[0]->type;

    return n->op == TS_OP(matmul) && y->dim[y->rank - 1] >= FILLS && y->dim[y->rank - 2] >= FILLS &&
           x->dim[x->rank - 1] >= FILLS;
}

/* Halves made f32 for a contraction: the smaller operand is widened in memory if its elements are
 * read often. The larger one would cost the memory that halves save. */
static bool widened_in_memory(const ts_node *cast, const ts_node *user)
{
    double count = (double)ts_type_count(&cast->out[0]->type), other = 0;

    if (packs(user))
        return false;

    for (int i = 0; i < user->nin; i++)
        if (!behind(user->in[i], cast))
            other = (double)ts_type_count(&user->in[i]->type);
    return user->op->flags & TS_CONTRACT && count <= other && ts_node_flops(user) >= OFTEN * count;
}

static bool widens(const ts_node *n)
{
    return n->op == TS_OP(cast) && ts_dtype_is_half(n->in[0]->type.dtype) &&
           n->out[0]->type.dtype == TS_F32;
}

/* Does n only say where elements are, or what type they have? */
static bool passes_on(const fuse *f, const ts_node *n, const ts_node *user)
{
    if (widens(n))
        return f->gpu ||
               !widened_in_memory(n, user); /* a GPU's tiles and tensor cores take halves */
    if (n->op == TS_OP(cast) && ts_dtype_size(n->in[0]->type.dtype) == 1 &&
        n->out[0]->type.dtype == TS_I32)
        return true; /* bytes, for a product of integers */
    return only_places(n);
}

/* An operand of a convolution that has no place of its own: a picture whose pixels are repeated, or lie in
 * Winograd's tiles, or a weight that is computed as a matrix and read as the layout pass laid it. Convolutions step
 * through memory, and are far slower element by element. */
static bool out_of_step(const ts_value *v, const ts_node *user)
{
    const ts_value *in = v->node->op == TS_OP(reshape) ? v->node->in[0] : NULL;

    if (!(user->op->flags & TS_CONV))
        return false;
    if (!in)
        return v->node->op == TS_OP(untile);
    return made_by(in, TS_OP(expand)) || (v->layout.set && !in->layout.set);
}

/* Rows of a large matrix that are put together from runs shorter than a vector, like the patches of a picture: a
 * product would have such a run in its lanes. */
static bool in_pieces(const ts_value *v, const ts_node *user)
{
    const ts_value *p = v->node->op == TS_OP(reshape) ? v->node->in[0] : NULL;
    const int64_t *dims;
    int64_t run = 1;

    if (!p || !made_by(p, TS_OP(permute)) || user->op != TS_OP(matmul) || !packs(user))
        return false;
    ts_attr_list(p->node, "dims", &dims);
    for (int d = p->type.rank - 1; d >= 0 && dims[d] == d; d--)
        run *= p->type.dim[d];
    return run < FILLS && v->type.rank && p->type.rank &&
           v->type.dim[v->type.rank - 1] > p->type.dim[p->type.rank - 1];
}

/* A value must be stored when one of its users reads it again and again: then the nearest node that
 * computes something is stored, views in between stay inlined. */
static void store_operand(fuse *f, ts_value *v, const ts_node *user)
{
    while (v->kind == TS_VALUE_NODE && passes_on(f, v->node, user) && !out_of_step(v, user) &&
           (f->gpu || !in_pieces(v, user)))
        v = v->node->in[0];
    if (v->kind == TS_VALUE_NODE && (!is_known(v->node) || user->op->flags & TS_CONTRACT))
        f->keep[v->id] = true;
}

/* Can the kernel that makes v do so many of its neighbours together? The innermost dim is the
 * vectors', unless it is shorter than one. */
static bool steps_in(const ts_value *v, const int64_t *rows)
{
    int last = v->layout.set ? v->layout.order[v->type.rank - 1] : v->type.rank - 1;

    return (v->layout.set && v->layout.lanes > 1) || rows[last] == 1 || v->type.dim[last] < 4;
}

/* Which mixes are read once, through views, by a pointwise node where they lie in its result? The
 * kernel then does the matrix's rows together (render/kernel.c), and what it makes is stored. */
static bool *find_mixed(fuse *f)
{
    bool *mixed = TS_NEWS(f->a, bool, f->g->nvalues), *other = TS_NEWS(f->a, bool, f->g->nvalues);
    int64_t rows[TS_MAX_RANK];

    for (int i = 0; i < f->g->nnodes; i++) {
        const ts_node *n = f->g->nodes[i];
        for (int k = 0; k < n->nin; k++) {
            const ts_value *v = n->in[k], *w = made_by(v, TS_OP(mix)) ? v : ts_mix_behind(v, rows);
            if (!w)
                continue;
            other[w->id] = other[w->id] || f->uses[v->id] > 1;
            if (n->nout && ts_mix_behind(n->out[0], rows) == w) /* another view of it */
                continue;
            if (v == w || !(n->op->flags & TS_POINT) ||
                !ts_type_same_shape(&v->type, &n->out[0]->type) || !steps_in(n->out[0], rows))
                other[w->id] = true;
            else
                mixed[w->id] = f->keep[n->out[0]->id] = true;
        }
    }
    for (int i = 0; i < f->g->nvalues; i++)
        mixed[i] = mixed[i] && !other[i];
    return mixed;
}

/* What is stored as f32 and only read to be made a half is stored as the half instead, or, behind views,
 * kept as it. */
static bool narrows(const fuse *f, const ts_node *n)
{
    const ts_value *v = n->nin ? n->in[0] : NULL;

    if (n->op != TS_OP(cast) || !ts_dtype_is_half(n->out[0]->type.dtype))
        return false;
    while (v->kind == TS_VALUE_NODE && only_places(v->node) && f->uses[v->id] == 1)
        v = v->node->in[0];
    return v->kind == TS_VALUE_NODE && f->uses[v->id] == 1 &&
           (v->node->op->flags & TS_CONTRACT || v->node->op == TS_OP(mix));
}

static bool has_backward(const ts_graph *g)
{
    for (int i = 0; i < g->nnodes; i++)
        if (g->nodes[i]->backward)
            return true;
    return false;
}

/* Checkpoints are stored whether or not the plan recomputes: what is stored decides on roundings,
 * and recomputing changes none. */
static void find_kept(fuse *f)
{
    const ts_graph *g = f->g;
    bool training = has_backward(g), *mixed = find_mixed(f);

    for (int i = 0; i < g->noutputs; i++)
        f->keep[g->outputs[i]->id] = f->result[g->outputs[i]->id] = true;
    for (int i = 0; i < g->nupdates; i++)
        f->keep[g->updates[i].next->id] = f->result[g->updates[i].next->id] = true;
    for (int i = 0; i < g->nvalues && training; i++)
        if (g->values[i]->checkpoint)
            f->keep[i] = f->result[i] = true;
    for (int i = 0; i < g->nnodes; i++)
        for (int k = 0; k < g->nodes[i]->nout; k++)
            f->later[g->nodes[i]->out[k]->id] = training && !g->nodes[i]->backward;
    for (int i = 0; i < g->nnodes; i++) {
        const ts_node *n = g->nodes[i];
        for (int k = 0; k < n->nin; k++)
            f->later[n->in[k]->id] = f->later[n->in[k]->id] && n->backward;
        if (narrows(f, n))
            f->keep[n->out[0]->id] = true;
        for (int k = 0; k < n->nin; k++) {
            const ts_value *v = n->in[k];
            if (!reads_once(n, k))
                store_operand(f, n->in[k], n);
            /* a mix is made row by row in loops of its own; another mix can take it as it comes,
             * and a kernel that does its rows together */
            if (made_by(v, TS_OP(mix)) && n->op != TS_OP(mix) && !mixed[v->id])
                f->keep[v->id] = true;
            if (n->op->flags & (TS_HOST | TS_STEPS)) /* they take addresses */
                f->keep[v->id] = true;
            /* what crosses from phase 0 to phase 1 */
            if (v->kind == TS_VALUE_NODE && v->node->phase != n->phase &&
                !(v->node->op->flags & TS_SOURCE))
                f->keep[v->id] = true;
        }
    }
}

/* --- kernels --- */

static void add_read(fuse *f, ts_kernel *k, ts_value *v)
{
    for (int i = 0; i < k->nreads; i++)
        if (k->reads[i] == v)
            return;
    TS_PUSH(f->a, k->reads, k->nreads, v);
}

/* Collects what is behind v: the stored values it loads. *elementwise: v is reached with unchanged
 * coordinates. */
static void collect(fuse *f, ts_kernel *k, ts_value *v)
{
    f->p->work++;
    if (f->seen[v->id] == f->walk)
        return;
    f->seen[v->id] = f->walk;
    if (f->p->place[v->id].home != TS_HOME_NONE) {
        add_read(f, k, v);
        return;
    }
    k->nodes++;
    k->flops += ts_node_flops(v->node);
    k->sums += ts_node_sums(v->node);
    for (int i = 0; i < v->node->nin; i++)
        collect(f, k, v->node->in[i]);
}

static void collect_kernel(fuse *f, ts_kernel *k)
{
    f->walk++;
    k->nreads = 0;
    k->reads = NULL;
    k->nodes = 0;
    k->flops = k->sums = 0;
    for (int r = 0; r < k->nroots; r++)
        f->seen[k->roots[r]->id] = f->walk;
    if (k->anchor)
        f->seen[k->anchor->out[0]->id] = f->walk;
    for (int r = 0; r < k->nroots; r++) {
        const ts_node *n = k->roots[r]->node;
        if (r && n == k->roots[r - 1]->node)
            continue;
        k->nodes++;
        k->flops += ts_node_flops(n);
        k->sums += ts_node_sums(n);
        for (int i = 0; i < n->nin; i++)
            collect(f, k, n->in[i]);
    }
    if (k->anchor) {
        bool root = false;
        for (int r = 0; r < k->nroots; r++)
            root = root || k->roots[r]->node == k->anchor;
        k->nodes += !root;
        k->flops += root ? 0 : ts_node_flops(k->anchor);
        k->sums += root ? 0 : ts_node_sums(k->anchor);
        for (int i = 0; i < k->anchor->nin; i++)
            collect(f, k, k->anchor->in[i]);
    }
}

static ts_kernel *new_kernel(fuse *f, ts_node *n)
{
    ts_kernel *k = TS_NEW(f->a, ts_kernel);

    k->anchor = is_anchor(n) ? n : NULL;
    k->phase = n->phase;
    for (int i = 0; i < n->nout; i++)
        if (f->p->place[n->out[i]->id].home != TS_HOME_NONE) {
            TS_PUSH(f->a, k->roots, k->nroots, n->out[i]);
            f->p->place[n->out[i]->id].kernel = f->p->nkernels;
        }
    TS_PUSH(f->a, f->p->kernels, f->p->nkernels, k);
    return k;
}

/* Is `goal` reached from v only through pointwise nodes of v's shape? 1 yes, 0 goal is not behind
 * v, -1 otherwise too */
static int pointwise_path(fuse *f, const ts_value *v, const ts_kernel *goal, const ts_type *shape)
{
    int found = 0;

    for (int r = 0; r < goal->nroots; r++)
        if (goal->roots[r] == v)
            return ts_type_same_shape(&v->type, shape) ? 1 : -1;
    if (f->p->place[v->id].home != TS_HOME_NONE)
        return 0;
    for (int i = 0; i < v->node->nin; i++) {
        int one = pointwise_path(f, v->node->in[i], goal, shape);
        if (one < 0 ||
            (one && !(v->node->op->flags & TS_POINT && ts_type_same_shape(&v->type, shape))))
            return -1;
        found = found || one;
    }
    return found;
}

/* Does it read inputs and states only? */
static bool begins(const fuse *f, const ts_kernel *k)
{
    for (int i = 0; i < k->nreads; i++)
        if (f->p->place[k->reads[i]->id].kernel >= 0)
            return false;
    return true;
}

/* Would what the kernel of t reads have to be kept for long if k joined it? What the backward pass widens
 * again is to be made there. And a contraction of few results from large operands, the gradient of a
 * weight, is not to wait for those of the weight's other uses, to which it is added. */
static bool keeps_more(const fuse *f, const ts_kernel *k, int t)
{
    const ts_kernel *into = f->p->kernels[t];
    const ts_node *n = k->roots[0]->node;

    if (n->backward && !into->roots[0]->node->backward) /* pass/remake.c made it, to keep less */
        return true;
    if (widens(n) && n->backward != into->roots[0]->node->backward)
        return true;
    if (!into->anchor || !small(into->roots[0], into->anchor->in[0]))
        return false;
    for (int i = 0; i < k->nreads; i++) {
        int made = f->p->place[k->reads[i]->id].kernel;
        if (made >= 0 && made != t && !small(k->reads[i], into->anchor->out[0]) &&
            !begins(f, f->p->kernels[made]))
            return true;
    }
    return false;
}

/* May kernel k, whose producers are known, be computed in the loops of kernel t? */
static bool joins(fuse *f, const ts_kernel *k, int t)
{
    const ts_kernel *into = f->p->kernels[t];

    if (k->anchor || into->phase != k->phase || !into->nroots ||
        into->nroots + k->nroots > TS_MAX_ROOTS ||
        k->roots[0]->node->guard != into->roots[0]->node->guard || /* as if there were none */
        (into->anchor && into->anchor->op->flags & (TS_HOST | TS_STEPS | TS_ROWS)) ||
        !ts_type_same_shape(&into->roots[0]->type, &k->roots[0]->type) ||
        !ts_same_layout(into->roots[0], k->roots[0]))
        return false;
    for (int i = 0; i < k->nreads; i++)
        if (f->p->place[k->reads[i]->id].kernel > t)
            return false;
    if (keeps_more(f, k, t))
        return false;
    for (int r = 0; r < k->nroots; r++) {
        const ts_node *n = k->roots[r]->node;
        if (!(n->op->flags & TS_POINT))
            return false;
        for (int i = 0; i < n->nin; i++) {
            int path = pointwise_path(f, n->in[i], into, &k->roots[0]->type);
            if (path < 0)
                return false;
        }
    }
    return true;
}

static void join(fuse *f, int from, int t)
{
    ts_kernel *k = f->p->kernels[from], *into = f->p->kernels[t];

    for (int r = 0; r < k->nroots; r++) {
        TS_PUSH(f->a, into->roots, into->nroots, k->roots[r]);
        f->p->place[k->roots[r]->id].kernel = t;
    }
    k->nroots = 0;
    collect_kernel(f, into);
}

/* The kernels that need no other go first, so that a weight that is widened or rounded for an epilogue
 * does not come between that and its contraction. */
static void begin_first(fuse *f)
{
    ts_kernel **all = TS_NEWS(f->a, ts_kernel *, f->p->nkernels);
    bool *first = TS_NEWS(f->a, bool, f->p->nkernels);
    int n = 0;

    for (int i = 0; i < f->p->nkernels; i++)
        first[i] = begins(f, f->p->kernels[i]);
    for (int pass = 1; pass >= 0; pass--)
        for (int i = 0; i < f->p->nkernels; i++)
            if (first[i] == pass)
                all[n++] = f->p->kernels[i];
    for (int i = 0; i < n; i++)
        for (int r = 0; r < all[i]->nroots; r++)
            f->p->place[all[i]->roots[r]->id].kernel = i;
    f->p->kernels = all;
}

/* A root that only its own kernel reads, and that nobody must have, needs no memory. */
static void drop_private_roots(fuse *f)
{
    int n = 0;
    int *readers = TS_NEWS(f->a, int, f->g->nvalues);

    for (int i = 0; i < f->p->nkernels; i++)
        for (int r = 0; r < f->p->kernels[i]->nreads && f->p->kernels[i]->nroots; r++)
            readers[f->p->kernels[i]->reads[r]->id]++;
    for (int i = 0; i < f->p->nkernels; i++) {
        ts_kernel *k = f->p->kernels[i];
        int kept = 0;
        for (int r = 0; r < k->nroots; r++) {
            ts_value *v = k->roots[r];
            bool host = k->anchor && has_all(k->anchor);
            if (k->nroots > 1 && !readers[v->id] && !f->result[v->id] && !host)
                f->p->place[v->id] = (ts_place){.home = TS_HOME_NONE, .kernel = -1};
            else
                k->roots[kept++] = v;
        }
        k->nroots = kept;
        if (!kept)
            continue;
        for (int r = 0; r < kept; r++)
            f->p->place[k->roots[r]->id].kernel = n;
        f->p->kernels[n++] = k;
    }
    f->p->nkernels = n;
    for (int i = 0; i < n; i++)
        collect_kernel(f, f->p->kernels[i]);
}

ts_status ts_plan_fuse(ts_arena *a, const ts_graph *g, const ts_options *opt, ts_program *p)
{
    fuse f = {.a = a,
              .g = g,
              .p = p,
              .uses = ts_graph_uses(a, g),
              .keep = TS_NEWS(a, bool, g->nvalues),
              .result = TS_NEWS(a, bool, g->nvalues),
              .later = TS_NEWS(a, bool, g->nvalues),
              .weight = TS_NEWS(a, int, g->nvalues),
              .leaves = TS_NEWS(a, int, g->nvalues),
              .seen = TS_NEWS(a, int, g->nvalues),
              .gpu = ts_pass_for_gpu(opt)};
    bool fusing = !ts_pass_skipped(opt, "fuse");

    TS_TRY(ts_machine_find(opt->isa, &p->machine));
    for (int i = 0; i < g->nvalues; i++)
        p->place[i].kernel = -1;
    for (int i = 0; i < g->ninputs; i++)
        p->place[g->inputs[i]->id].home = TS_HOME_INPUT;
    for (int i = 0; i < g->nstates; i++)
        p->place[g->states[i].value->id].home = TS_HOME_BLOCK;
    find_kept(&f);
    for (int i = 0; i < g->nnodes; i++) {
        ts_node *n = g->nodes[i];
        bool any = false;
        weigh(&f, n);
        for (int k = 0; k < n->nout; k++) {
            bool used = f.uses[n->out[k]->id] > 0 || has_all(n);
            if (used && (must_store(&f, n, k) || (!fusing && !(n->op->flags & TS_SOURCE)))) {
                p->place[n->out[k]->id].home =
                    n->op->flags & TS_DATA ? TS_HOME_CONST : TS_HOME_BLOCK;
                any = any || !(n->op->flags & TS_DATA);
            }
        }
        if (any)
            collect_kernel(&f, new_kernel(&f, n));
    }
    begin_first(&f);
    for (int i = 0; i < p->nkernels && fusing; i++) {
        int last = -1;
        ts_kernel *k = p->kernels[i];
        for (int r = 0; r < k->nreads; r++)
            last = TS_MAX(last, p->place[k->reads[r]->id].kernel);
        while (last >= 0 && !p->kernels[last]->nroots)
            last--;
        if (last >= 0 && last < i && joins(&f, k, last))
            join(&f, i, last);
    }
    drop_private_roots(&f);
    if (fusing)
        ts_plan_attend(a, opt, p);
    return TS_OK;
}
