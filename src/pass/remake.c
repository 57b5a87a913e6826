/* remake.c - what the backward pass can make again of less than was kept for it.
 *
 *   before                                       after
 *     %m = matmul(..)                              %m = matmul(..)
 *     %y = gelu(%m)                                %y = gelu(%m)
 *     %g = slope of gelu at %m
 *     %1 = matmul(%dy', %y)      backward          %y' = gelu(%m)                       backward
 *                                                  %1 = matmul(%dy', %y')
 *     %dx = mul(%dy, %g)                           %dx = mul(%dy, slope of gelu at %m)
 *
 * %y and %g are kept from the forward pass, two tensors; both follow from %m, one. What follows so from one large
 * tensor, its *leaf*, by pointwise ops and a number a row or a column, is made again where that leaves less to be
 * kept. Behind a layer norm the leaf is kept anyway, for the norm's own gradient. The formulas are the same, so the
 * bits are.
 *
 * Making it again takes time: the arithmetic, and of an operand of a contraction, which must be in memory, its
 * way there and back. Leaves that save most for their time go first, until a twentieth of the step's products is
 * spent, by a price that is high: of vit_b_16 (batch 4: planned in 987 MB instead of 1144) the time is the same within
 * the noise of 2 %. A resnet50 would be 1 to 2 % slower for 6 % of its memory, so nets that keep little are left alone.
 *
 * needs   gradients; slopes as factors (slope.c)
 * leaves  copies of forward nodes in the backward pass, which plan/fuse.c does not make in the forward pass
 */
#include "pass/pass.h"

enum {
    CHEAP = 3,          /* pointwise nodes that plan/fuse.c computes again anyway */
    LONG = 256,         /* so many, counted on each way to the leaf, are too many */
    SHARE = 20,         /* of the time that the products take, one part may be spent */
    SMALL = 64,         /* times smaller: one number a row or a column */
    FLOOR = 64000,      /* bytes that are worth a thought */
    ENOUGH = 128 << 20, /* bytes that need not be saved */
};

/* A leaf, and what would be made of it. */
typedef struct group {
    int leaf;
    double saves, takes; /* bytes, cycles */
} group;

typedef struct remake {
    const ts_graph *in;
    ts_graph *g;
    ts_value **map;
    ts_machine_model m;
    int *leaf;        /* by value: what it follows from, itself where that is several tensors */
    double *price;    /* by value: multiply-adds of an element, from the leaf on */
    int *nodes;       /* by value: so many pointwise nodes */
    bool *late;       /* by value: the backward pass reads it, or a view of it, */
    bool *operand;    /* as what must be in memory */
    bool *chosen;     /* by value: made again */
    ts_value **read;  /* by value: what the backward pass reads instead */
    ts_value **made;  /* by value: again, for the chosen value at hand, */
    int *turn, turns; /* whose number this is */
} remake;

static double bytes(const ts_value *v)
{
    return (double)(ts_type_count(&v->type) * (int64_t)ts_dtype_size(v->type.dtype));
}

static bool is_view(const ts_value *v)
{
    return v->kind == TS_VALUE_NODE && v->node->op->flags & TS_VIEW && v->node->nin == 1;
}

static const ts_value *behind_views(const ts_value *v)
{
    while (is_view(v))
        v = v->node->in[0];
    return v;
}

static bool is_small(const ts_value *v, const ts_value *result)
{
    v = behind_views(v);
    return ts_type_count(&v->type) * SMALL <= ts_type_count(&result->type);
}

/* May it be made again: of the forward pass, from what is there, the same each time? */
static bool follows(const ts_value *v)
{
    return v->kind == TS_VALUE_NODE && !v->node->backward && !v->node->phase &&
           v->node->op->flags & TS_POINT && !(v->node->op->flags & TS_RANDOM) &&
           v->type.dtype == TS_F32 && !v->checkpoint;
}

/* --- what follows from what --- */

static void find_leaf(remake *r, const ts_value *v)
{
    int leaf = -1, nodes = 1;

    r->leaf[v->id] = v->id;
    if (is_view(v) && ts_type_count(&v->node->in[0]->type) == ts_type_count(&v->type)) {
        const ts_value *in = v->node->in[0];
        r->leaf[v->id] = r->leaf[in->id];
        r->price[v->id] = r->price[in->id];
        r->nodes[v->id] = r->nodes[in->id];
        return;
    }
    if (!follows(v))
        return;
    for (int i = 0; i < v->node->nin; i++) {
        const ts_value *in = v->node->in[i];
        if (is_small(in, v))
            continue;
        if (leaf >= 0 && leaf != r->leaf[in->id])
            return;
        leaf = r->leaf[in->id];
        nodes += r->nodes[in->id];
    }
    if (leaf < 0 || nodes > LONG)
        return;
    r->leaf[v->id] = leaf;
    r->nodes[v->id] = nodes;
    r->price[v->id] = ts_op_price(v->node->op);
    for (int i = 0; i < v->node->nin; i++)
        r->price[v->id] += is_small(v->node->in[i], v) ? 0 : r->price[v->node->in[i]->id];
}

static void find_readers(remake *r)
{
    for (int i = 0; i < r->in->nnodes; i++) {
        const ts_node *n = r->in->nodes[i];
        for (int k = 0; k < n->nin && n->backward; k++) {
            const ts_value *v = behind_views(n->in[k]);
            if (v->kind == TS_VALUE_NODE && v->node->backward)
                continue;
            r->late[v->id] = true;
            r->operand[v->id] = r->operand[v->id] || n->op->flags & (TS_CONTRACT | TS_WINDOW);
        }
    }
}

/* Is v kept for the backward pass, and could be made of its leaf? */
static bool is_kept(const remake *r, const ts_value *v)
{
    return r->late[v->id] && r->leaf[v->id] != v->id && !is_view(v) &&
           (r->operand[v->id] || r->nodes[v->id] > CHEAP);
}

/* --- which --- */

static double time_of(const remake *r, const ts_value *v)
{
    double count = (double)ts_type_count(&v->type);

    return ts_price_sums(&r->m, count * r->price[v->id]) +
           (r->operand[v->id] ? 3 * bytes(v) / r->m.memory : 0);
}

/* What each leaf would save: what is kept now, less the leaf itself where only those need it. */
static int find_groups(remake *r, ts_arena *a, group **out)
{
    group *of = TS_NEWS(a, group, r->in->nvalues);
    bool *there = TS_NEWS(a, bool, r->in->nvalues);
    int n = 0;

    for (int i = 0; i < r->in->nvalues; i++) {
        const ts_value *v = r->in->values[i];
        int leaf = r->leaf[i];
        if (is_kept(r, v)) {
            of[leaf].saves += bytes(v);
            of[leaf].takes += time_of(r, v);
        } else if (r->late[i])
            there[leaf] = true;
    }
    for (int i = 0; i < r->in->nvalues; i++) {
        const ts_value *v = r->in->values[i];
        bool free = there[i] || v->kind != TS_VALUE_NODE;
        of[i].leaf = i;
        of[i].saves -= of[i].saves > 0 && !free ? bytes(v) : 0;
        if (of[i].saves >= FLOOR)
            of[n++] = of[i];
    }
    *out = of;
    return n;
}

static int by_worth(const void *x, const void *y)
{
    const group *p = x, *q = y;
    double d = q->saves * p->takes - p->saves * q->takes;

    return d > 0 ? 1 : d < 0 ? -1 : p->leaf - q->leaf;
}

static double products(const remake *r)
{
    double all = 0;

    for (int i = 0; i < r->in->nnodes; i++)
        if (r->in->nodes[i]->op->flags & TS_CONTRACT)
            all += ts_price_node(&r->m, r->in->nodes[i]);
    return all;
}

static bool choose(remake *r, ts_arena *a)
{
    group *groups;
    double left = products(r) / SHARE, kept = 0;
    bool *taken = TS_NEWS(a, bool, r->in->nvalues), any = false;
    int n = find_groups(r, a, &groups);

    for (int i = 0; i < r->in->nvalues; i++)
        kept += is_kept(r, r->in->values[i]) ? bytes(r->in->values[i]) : 0;
    if (kept <= ENOUGH)
        return false;
    qsort(groups, (size_t)n, sizeof(*groups), by_worth);
    for (int i = 0; i < n; i++) {
        if (groups[i].takes > left)
            continue;
        left -= groups[i].takes;
        taken[groups[i].leaf] = true;
    }
    for (int i = 0; i < r->in->nvalues; i++) {
        r->chosen[i] = is_kept(r, r->in->values[i]) && taken[r->leaf[i]];
        any = any || r->chosen[i];
    }
    return any;
}

/* --- again --- */

/* v made of its leaf, with nodes of its own: what two of them share would be stored. */
static ts_value *again(remake *r, const ts_value *v)
{
    ts_value *in[TS_MAX_INPUTS];
    ts_node *c;

    if (r->leaf[v->id] == v->id)
        return r->map[v->id];
    if (r->turn[v->id] == r->turns)
        return r->made[v->id];
    for (int i = 0; i < v->node->nin; i++) {
        const ts_value *x = v->node->in[i];
        in[i] = is_small(x, v) ? r->map[x->id] : again(r, x);
    }
    c = ts_node_clone(r->g, v->node, in);
    c->backward = true;
    r->turn[v->id] = r->turns;
    r->made[v->id] = c->out[0];
    return c->out[0];
}

/* What the backward pass reads in place of v, once for all its readers. */
static ts_value *instead(remake *r, const ts_value *v)
{
    ts_value *in;

    if (!r->chosen[behind_views(v)->id])
        return r->map[v->id];
    if (r->read[v->id])
        return r->read[v->id];
    if (r->chosen[v->id]) {
        r->turns++;
        r->read[v->id] = again(r, v);
        return r->read[v->id];
    }
    in = instead(r, v->node->in[0]);
    r->read[v->id] = ts_node_clone(r->g, v->node, &in)->out[0];
    r->read[v->id]->node->backward = true;
    return r->read[v->id];
}

static void copy(remake *r, ts_arena *a, const ts_node *n)
{
    ts_value **in = TS_NEWS(a, ts_value *, n->nin);
    ts_node *c;

    for (int k = 0; k < n->nin; k++)
        in[k] = n->backward ? instead(r, n->in[k]) : r->map[n->in[k]->id];
    c = ts_node_clone(r->g, n, in);
    for (int k = 0; k < n->nout; k++)
        r->map[n->out[k]->id] = c->out[k];
}

static bool find(remake *r, ts_arena *a)
{
    int n = r->in->nvalues;

    r->leaf = TS_NEWS(a, int, n);
    r->price = TS_NEWS(a, double, n);
    r->nodes = TS_NEWS(a, int, n);
    r->late = TS_NEWS(a, bool, n);
    r->operand = TS_NEWS(a, bool, n);
    r->chosen = TS_NEWS(a, bool, n);
    r->made = TS_NEWS(a, ts_value *, n);
    r->read = TS_NEWS(a, ts_value *, n);
    r->turn = TS_NEWS(a, int, n);
    for (int i = 0; i < n; i++)
        r->leaf[i] = i;
    for (int i = 0; i < r->in->nnodes; i++)
        for (int k = 0; k < r->in->nodes[i]->nout; k++)
            find_leaf(r, r->in->nodes[i]->out[k]);
    find_readers(r);
    return choose(r, a);
}

ts_status ts_pass_remake(ts_arena *a, const ts_graph *in, const ts_options *opt,
                         const ts_graph **out)
{
    remake r = {.in = in};

    *out = in;
    if (opt->recompute || ts_pass_for_gpu(opt))
        return TS_OK;
    TS_TRY(ts_machine_find(opt->isa, &r.m));
    if (!find(&r, a))
        return TS_OK;
    r.g = ts_graph_begin_copy(a, in, &r.map);
    for (int i = 0; i < in->nnodes; i++) {
        copy(&r, a, in->nodes[i]);
        TS_TRY(ts_graph_check(r.g));
    }
    ts_graph_finish_copy(r.g, in, r.map);
    return ts_pass_order(a, r.g, opt, out); /* what nobody reads any more is gone */
}
