/* guard.c - with ts_options.exceptions: every op's result is looked at.
 *
 *   before                        after
 *     %3 = log %x                   %3 = log %x
 *                                   %7 = amax(where(class %3 > class %x, class %3, 0))
 *                                   %9 = host_call(%7, ...) checks="log|fc1 (log), net.py:41"
 *
 * The class of a number is 0, of an infinity 1, of a NaN 2. A result of a higher class than what it
 * was made of is an exception: x / 0, log(-1), inf - inf, 0 * inf, what overflows. What is infinite
 * on purpose, such as a mask of -inf, may go on; so is what was there before. A comparison (lt, le,
 * gt, ge) with a NaN is an exception too. Element by element for pointwise ops, all elements
 * together for others.
 *
 * Only what the user wrote is judged, and what goes back to it in the backward pass, and the
 * weights: a softplus computes an exp that may overflow, and does not use it. Such nodes are
 * `inner`; what is made of them is compared with what the whole was made of.
 *
 * needs   to be the last pass
 * keeps   everything; the plan does not count these nodes as users, so that the kernels of the
 *         step, and with them its bits, are those of a step without them
 * leaves  for every part of the graph calls of the host, with the findings in the nodes' order
 */
#include "pass/pass.h"
#include <math.h>

enum { MOST = TS_MAX_INPUTS }; /* findings of a call */

/* What is checked together: it runs at the same place and time. */
typedef struct part {
    const char *block;
    bool backward;
    bool update; /* judged by itself alone, so after all else */
    int phase;
    ts_value *codes[MOST];
    int n;
    ts_text text;
    ts_node like;
    struct part *next;
} part;

typedef struct guard {
    ts_graph *g;
    const int *uses;
    ts_value **most; /* by value: its highest class, once asked */
    part *parts, **last;
} guard;

/* Steps of an algorithm that is one op for the user; winograd.c's too. */
static bool is_inner(const ts_node *n)
{
    return n->inner || n->op->flags & TS_TILED;
}

static bool is_inner_value(const ts_value *v)
{
    return v->kind == TS_VALUE_NODE && is_inner(v->node);
}

static bool is_compare(const ts_node *n)
{
    return n->op->flags & TS_ORDERS && ts_dtype_is_float(n->in[0]->type.dtype);
}

/* Only moves or picks what it is given. */
static bool only_moves(const ts_node *n)
{
    return n->op->flags & (TS_VIEW | TS_PICK);
}

/* What it picks, numbers say: one outside makes a NaN of nothing. */
static bool has_index(const ts_node *n)
{
    for (int i = 0; i < n->nin; i++)
        if (n->in[i]->type.dtype == TS_I32 || n->in[i]->type.dtype == TS_I64)
            return true;
    return false;
}

static bool has_inner(const ts_node *n)
{
    for (int i = 0; i < n->nin; i++)
        if (is_inner_value(n->in[i]))
            return true;
    return false;
}

static bool is_checked(const guard *x, const ts_node *n)
{
    double pad = ts_attr_float(n, "value", 0);

    if (is_inner(n) || !x->uses[n->out[0]->id] || n->op->flags & (TS_SOURCE | TS_HOST))
        return false;
    if (is_compare(n))
        return true;
    return ts_dtype_is_float(n->out[0]->type.dtype) && isfinite(pad) &&
           (!only_moves(n) || has_inner(n) || has_index(n));
}

/* --- classes --- */

static ts_value *with_layout(ts_value *v, const ts_value *like)
{
    if (v && ts_type_same_shape(&v->type, &like->type))
        v->layout = like->layout;
    return v;
}

static ts_value *number(const ts_value *like, double x)
{
    return ts_scalar(like->graph, TS_F32, x);
}

static ts_value *class_of(ts_value *v)
{
    ts_value *infinite, *nan;

    if (!ts_dtype_is_float(v->type.dtype))
        return number(v, 0);
    infinite = with_layout(ts_abs(v), v);
    infinite = with_layout(
        ts_gt(infinite, ts_scalar(v->graph, v->type.dtype, ts_dtype_greatest(v->type.dtype))), v);
    infinite = with_layout(ts_cast(infinite, TS_F32), v);
    nan = with_layout(ts_point1("isnan", v), v);
    return with_layout(ts_where(nan, number(v, 2), infinite), v);
}

/* A kernel of its own, also for one element: it runs where that is made (plan/device.c). */
static ts_value *all_of(ts_value *v)
{
    if (!ts_rank(v))
        v = ts_reshape(v, 1);
    return ts_amax(v, 0, NULL, false);
}

static ts_value *most_of(guard *x, ts_value *v)
{
    if (!x->most[v->id])
        x->most[v->id] = all_of(class_of(v));
    return x->most[v->id];
}

/* The highest class of what n was made of, through the inner nodes. */
static void behind(guard *x, const ts_node *n, bool *seen, ts_value **most)
{
    for (int i = 0; i < n->nin; i++) {
        ts_value *v = n->in[i];
        if (seen[v->id] || !ts_dtype_is_float(v->type.dtype))
            continue;
        seen[v->id] = true;
        if (is_inner_value(v) && !(v->node->op->flags & TS_SOURCE))
            behind(x, v->node, seen, most);
        else
            *most = *most ? ts_maximum(*most, most_of(x, v)) : most_of(x, v);
    }
}

/* --- codes: 0, or what came up: 1 an infinity, 2 a NaN, 3 a NaN that was compared --- */

static ts_value *where_higher(ts_value *out, ts_value *in)
{
    ts_value *higher = with_layout(ts_gt(out, in), out);

    return with_layout(ts_where(higher, out, number(out, 0)), out);
}

static ts_value *compared(const ts_node *n)
{
    ts_value *a = with_layout(ts_point1("isnan", n->in[0]), n->out[0]);
    ts_value *b = with_layout(ts_point1("isnan", n->in[1]), n->out[0]);
    ts_value *either = with_layout(ts_point2("logical_or", a, b), n->out[0]);
    ts_value *nan = number(a, 3), *none = number(a, 0);

    return all_of(with_layout(ts_where(either, nan, none), n->out[0]));
}

static ts_value *each_element(const ts_node *n)
{
    ts_value *most = NULL;

    for (int i = 0; i < n->nin; i++) {
        ts_value *one = class_of(n->in[i]);
        most = most ? with_layout(ts_maximum(most, one), n->out[0]) : one;
    }
    return all_of(where_higher(class_of(n->out[0]), most));
}

static ts_value *code_of(guard *x, const ts_node *n)
{
    ts_value *most = NULL;

    if (is_compare(n))
        return compared(n);
    if (n->op->flags & TS_POINT && !has_inner(n))
        return each_element(n);
    behind(x, n, TS_NEWS(x->g->arena, bool, x->g->nvalues), &most);
    return where_higher(most_of(x, n->out[0]), most ? most : number(n->out[0], 0));
}

/* --- findings --- */

static part *part_of(guard *x, const ts_node *n, bool update)
{
    part *p;

    for (p = x->parts; p; p = p->next)
        if (p->n < MOST && p->backward == n->backward && p->phase == n->phase &&
            p->update == update && !strcmp(p->block, n->block ? n->block : ""))
            return p;
    p = TS_NEW(x->g->arena, part);
    p->block = n->block ? n->block : "";
    p->backward = n->backward;
    p->update = update;
    p->phase = n->phase;
    p->like = (ts_node){
        .layer = "exceptions", .block = p->block, .backward = p->backward, .phase = p->phase};
    *x->last = p;
    x->last = &p->next;
    return p;
}

/* what: NULL for the op itself, else the update that stores it. */
static void add(guard *x, const ts_node *n, const char *what, ts_value *code)
{
    ts_arena *a = x->g->arena;
    part *p = part_of(x, n, what);
    const char *block = p->block[0] ? ts_arena_printf(a, ", block %s", p->block) : "";

    p->codes[p->n++] = ts_reshape(code, 1);
    ts_text_printf(&p->text, "%s%s|%s%s", p->text.len ? "\n" : "", what ? what : n->op->name,
                   ts_node_where(a, n), block);
}

/* What an update stores: the weights and the optimiser's state. */
static void check_update(guard *x, const ts_update *u)
{
    ts_value *v = u->next;

    if (v->kind != TS_VALUE_NODE || !is_inner(v->node) || !ts_dtype_is_float(v->type.dtype) ||
        v->node->op->flags & TS_SOURCE)
        return;
    x->g->like = v->node;
    add(x, v->node, ts_arena_printf(x->g->arena, "the update of %s", u->state->name),
        most_of(x, v));
}

static void report(guard *x)
{
    ts_graph *g = x->g;

    for (int phase = 0; phase < 2; phase++)
        for (part *p = x->parts; p; p = p->next) {
            ts_attr attr[] = {ts_attr_i("id", -1), ts_attr_s("checks", p->text.s)};
            ts_value *all;
            if (p->phase != phase)
                continue;
            g->like = &p->like;
            all = ts_concat(p->n, p->codes, 0);
            ts_make1(TS_OP(host_call), all, TS_COUNT(attr), attr);
        }
    for (part *p = x->parts; p; p = p->next)
        ts_text_free(&p->text);
}

ts_status ts_pass_guard(ts_arena *a, const ts_graph *in, const ts_options *opt,
                        const ts_graph **out)
{
    ts_value **map;
    guard x = {0};
    int n = in->nnodes;

    *out = in;
    if (!opt->exceptions)
        return TS_OK;
    x.g = ts_graph_begin_copy(a, in, &map);
    for (int i = 0; i < n; i++)
        ts_graph_copy_node(x.g, in->nodes[i], map);
    ts_graph_finish_copy(x.g, in, map);
    x.uses = ts_graph_uses(a, x.g);
    x.most = TS_NEWS(a, ts_value *, x.g->nvalues);
    x.last = &x.parts;
    for (int i = 0; i < n; i++) {
        x.g->like = x.g->nodes[i];
        if (is_checked(&x, x.g->nodes[i]))
            add(&x, x.g->nodes[i], NULL, code_of(&x, x.g->nodes[i]));
    }
    for (int i = 0; i < x.g->nupdates; i++)
        check_update(&x, &x.g->updates[i]);
    report(&x);
    x.g->like = NULL;
    for (int i = n; i < x.g->nnodes; i++)
        x.g->nodes[i]->guard = true;
    *out = x.g;
    return ts_graph_check(x.g);
}
