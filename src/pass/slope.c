/* slope.c - derivatives of activations where their parts are at hand: in the forward pass.
 *
 *   before                                    after
 *     %e = add(erf(%a), 1)                      %e = add(erf(%a), 1)
 *     %y = mul(%h, %e)                          %y = mul(%h, %e)
 *                                               %g = add(mul(%h, %s), mul(%e, 0.5))    forward
 *     %1 = mul(%dy, %h)       backward
 *     %2 = mul(%1, %s)
 *     %3 = mul(%dy, %e)
 *     %4 = mul(%3, 0.5)
 *     %dx = add(%2, %4)                         %dx = mul(%dy, %g)                     backward
 *
 * The gradient of a pointwise op is dy times something that the forward pass knows. As autodiff makes it, that
 * something is computed in the backward pass, of several large tensors that are kept for it: of GELU its
 * input, and 1 + erf. As one factor it is one tensor, and in the forward kernel most of what it is made of is
 * in registers.
 *
 * An expression of mul, add, sub, neg and div that is linear in one value of the backward pass, and reads at least
 * two tensors of its size that nothing else of the backward pass reads, becomes that value times a factor. With
 * one tensor, as ReLU and tanh have, nothing would be gained.
 *
 * needs   gradients; no composite op
 * leaves  the factor a forward node with readers in the backward pass only, which plan/fuse.c stores
 */
#include "pass/pass.h"

typedef struct slope {
    const ts_graph *in;
    ts_graph *g;
    ts_value **map;
    int *uses;
    bool *known; /* by value: pointwise of what the forward pass has */
    int *late;   /* by value: uses by the backward pass */
    int *inside; /* by value: uses by the expression at hand, */
    const ts_value **seen;
    int nseen;   /* and which have some */
    bool *gone;  /* by node: of an expression that is a factor now */
    bool *top;   /* by node: the end of such an expression */
    bool *early; /* by value: of a factor */
} slope;

static bool is_backward(const ts_value *v)
{
    return v->kind == TS_VALUE_NODE && v->node->backward;
}

static void find_known(slope *s)
{
    for (int i = 0; i < s->in->nvalues; i++)
        s->known[i] = !is_backward(s->in->values[i]);
    for (int i = 0; i < s->in->nnodes; i++) {
        const ts_node *n = s->in->nodes[i];
        bool all = n->op->flags & (TS_POINT | TS_SOURCE) && !(n->op->flags & TS_RANDOM);
        for (int k = 0; k < n->nin; k++) {
            all = all && s->known[n->in[k]->id];
            s->late[n->in[k]->id] += n->backward;
        }
        for (int k = 0; k < n->nout && n->backward; k++)
            s->known[n->out[k]->id] = all && n->nout == 1;
    }
}

/* The input through which a node is linear in what changes; -1: through both, -2: it is not linear. */
static int path(const slope *s, const ts_node *n)
{
    bool first = n->nin && !s->known[n->in[0]->id], second = n->nin > 1 && !s->known[n->in[1]->id];

    if (n->op == TS_OP(neg))
        return 0;
    if (n->op == TS_OP(add) || n->op == TS_OP(sub))
        return first && second ? -1 : -2;
    if (n->op == TS_OP(mul))
        return first && second ? -2 : second;
    return n->op == TS_OP(div) && !second ? 0 : -2;
}

static bool is_step(const slope *s, const ts_value *v)
{
    return is_backward(v) && !s->known[v->id] && v->type.dtype == TS_F32 &&
           v->node->op->flags & TS_POINT && path(s, v->node) > -2;
}

/* What v is linear in: itself at least. */
static const ts_value *variable(const slope *s, const ts_value *v)
{
    const ts_value *x, *y;
    int p;

    if (!is_step(s, v))
        return v;
    p = path(s, v->node);
    x = variable(s, v->node->in[TS_MAX(p, 0)]);
    if (!ts_type_same(&x->type, &v->type))
        return v;
    if (p >= 0)
        return x;
    y = variable(s, v->node->in[1]);
    return x == y ? x : v;
}

/* --- is it worth it --- */

/* What the expression uses: its own nodes, and those that only follow from the forward pass. */
static void count_uses(slope *s, ts_arena *a, const ts_value *v, const ts_value *dy)
{
    if (v == dy || !is_backward(v))
        return;
    for (int k = 0; k < v->node->nin; k++) {
        const ts_value *in = v->node->in[k];
        if (s->inside[in->id]++)
            continue;
        TS_PUSH(a, s->seen, s->nseen, in);
        count_uses(s, a, in, dy);
    }
}

/* Tensors of the forward pass that nobody but the expression reads in the backward pass. A part of it that
 * others read stays, and so does all that it needs. */
static int freed(const slope *s, const ts_value *top, const ts_value *dy)
{
    int n = 0;

    for (int i = 0; i < s->nseen; i++) {
        const ts_value *v = s->seen[i];
        if (!s->known[v->id] && v != dy && s->uses[v->id] != s->inside[v->id])
            return 0;
        n += v->kind == TS_VALUE_NODE && !v->node->backward && !(v->node->op->flags & TS_SOURCE) &&
             ts_type_same_shape(&v->type, &top->type) && s->late[v->id] == s->inside[v->id];
    }
    return n;
}

static void mark(slope *s, const ts_value *v, const ts_value *dy)
{
    if (v == dy || !is_backward(v) || s->early[v->id])
        return;
    if (s->known[v->id])
        s->early[v->id] = true;
    else
        s->gone[v->node->id] = true;
    for (int k = 0; k < v->node->nin; k++)
        mark(s, v->node->in[k], dy);
}

static void try_top(slope *s, ts_arena *a, const ts_node *n)
{
    const ts_value *v = n->out[0], *dy = variable(s, v);

    if (s->gone[n->id] || dy == v || n->phase)
        return;
    s->nseen = 0;
    count_uses(s, a, v, dy);
    if (freed(s, v, dy) >= 2) {
        mark(s, v, dy);
        s->gone[n->id] = false;
        s->top[n->id] = true;
    }
    for (int i = 0; i < s->nseen; i++)
        s->inside[s->seen[i]->id] = 0;
}

/* --- the factor --- */

/* v is dy times what is returned; NULL: it is dy. */
static ts_value *factor(slope *s, const ts_value *v, const ts_value *dy)
{
    const ts_node *n = v->node;
    ts_value *x, *y;
    int p;

    if (v == dy)
        return NULL;
    p = path(s, n);
    x = factor(s, n->in[TS_MAX(p, 0)], dy);
    if (n->op == TS_OP(mul))
        return x ? ts_mul(x, s->map[n->in[!p]->id]) : s->map[n->in[!p]->id];
    if (!x)
        x = ts_full_n(s->g, TS_F32, 1, v->type.rank, v->type.dim);
    if (n->op == TS_OP(neg))
        return ts_neg(x);
    if (n->op == TS_OP(div))
        return ts_div(x, s->map[n->in[1]->id]);
    y = factor(s, n->in[1], dy);
    if (!y)
        y = ts_full_n(s->g, TS_F32, 1, v->type.rank, v->type.dim);
    return n->op == TS_OP(add) ? ts_add(x, y) : ts_sub(x, y);
}

static void copy_top(slope *s, const ts_node *n)
{
    const ts_value *dy = variable(s, n->out[0]);
    ts_node forward = *n;
    ts_value *x;

    forward.backward = false;
    s->g->like = &forward;
    x = factor(s, n->out[0], dy);
    s->g->like = n;
    s->map[n->out[0]->id] = x ? ts_mul(s->map[dy->id], x) : NULL;
    s->g->like = NULL;
}

static void copy(slope *s, const ts_node *n)
{
    ts_node *c;

    if (s->top[n->id]) {
        copy_top(s, n);
        return;
    }
    if (s->gone[n->id])
        return;
    c = ts_graph_copy_node(s->g, n, s->map);
    if (n->nout == 1 && s->early[n->out[0]->id])
        c->backward = false;
}

static bool find(slope *s, ts_arena *a)
{
    bool any = false;

    s->uses = ts_graph_uses(a, s->in);
    s->known = TS_NEWS(a, bool, s->in->nvalues);
    s->late = TS_NEWS(a, int, s->in->nvalues);
    s->inside = TS_NEWS(a, int, s->in->nvalues);
    s->early = TS_NEWS(a, bool, s->in->nvalues);
    s->gone = TS_NEWS(a, bool, s->in->nnodes);
    s->top = TS_NEWS(a, bool, s->in->nnodes);
    find_known(s);
    for (int i = s->in->nnodes - 1; i >= 0; i--)
        if (s->in->nodes[i]->nout == 1 && is_step(s, s->in->nodes[i]->out[0])) {
            try_top(s, a, s->in->nodes[i]);
            any = any || s->top[s->in->nodes[i]->id];
        }
    return any;
}

ts_status ts_pass_slope(ts_arena *a, const ts_graph *in, const ts_options *opt,
                        const ts_graph **out)
{
    slope s = {.in = in};

    (void)opt;
    *out = in;
    if (!find(&s, a))
        return TS_OK;
    s.g = ts_graph_begin_copy(a, in, &s.map);
    for (int i = 0; i < in->nnodes; i++) {
        copy(&s, in->nodes[i]);
        TS_TRY(ts_graph_check(s.g));
    }
    ts_graph_finish_copy(s.g, in, s.map);
    *out = s.g;
    return TS_OK;
}
