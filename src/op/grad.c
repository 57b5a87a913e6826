/* grad.c - gradients of graph values by graph values: each op's gradient rule, from the last node to the
 * first.
 *
 * A value used many times sums its gradients, in the order of its users from the last to the first. Values
 * that do not depend on what the gradient is by are skipped, so a rule that is missing only matters where
 * it is really needed: then it is an error that names the op and the user's line.
 *
 * A composite on the way is written out again behind the graph's nodes and differentiated there; what is
 * then in the graph twice is merged later. So it works on a graph in the making, and the gradient, being
 * graph, has gradients.
 */
#include "op/op.h"

typedef struct walk {
    ts_graph *g;
    ts_value **grad; /* of values by their id; both have room for `room` */
    bool *active;    /* depends on what the gradient is by, through floats */
    int room;
} walk;

static void reserve(walk *w)
{
    int room = w->g->nvalues;
    ts_value **grad;
    bool *active;

    if (room <= w->room)
        return;
    room = 2 * room + 16;
    grad = TS_NEWS(w->g->arena, ts_value *, room);
    active = TS_NEWS(w->g->arena, bool, room);
    if (w->room) {
        memcpy(grad, w->grad, sizeof(*grad) * (size_t)w->room);
        memcpy(active, w->active, sizeof(*active) * (size_t)w->room);
    }
    *w = (walk){w->g, grad, active, room};
}

/* Which results of n depend on active ones. Behind detach, comparisons and argmax nothing does, in the
 * sense of a gradient. */
static void follow(walk *w, const ts_node *n)
{
    bool on = false;

    for (int k = 0; k < n->nin; k++)
        on = on || w->active[n->in[k]->id];
    if (n->op->flags & TS_NODIFF || (n->op->flags & TS_POINT && !n->op->grad))
        on = false;
    for (int k = 0; k < n->nout; k++)
        if (on && ts_dtype_is_float(n->out[k]->type.dtype))
            w->active[n->out[k]->id] = true;
}

static ts_status add_grad(walk *w, const ts_value *v, ts_value *d)
{
    if (!d)
        return TS_OK;
    if (!ts_type_same(&d->type, &v->type))
        return ts_fail(TS_ERR_INTERNAL, "the gradient of %%%d has another type than the value",
                       v->id);
    d = w->grad[v->id] ? ts_add(w->grad[v->id], d) : d;
    reserve(w);
    w->grad[v->id] = d;
    return w->g->status;
}

static ts_status no_gradient(const ts_node *n)
{
    if (n->op->flags & (TS_NODIFF | TS_POINT))
        return TS_OK;
    ts_fail_at(n, TS_ERR_GRAD, "%s has no gradient, and a trained parameter needs one through it",
               n->op->name);
    ts_error_hint("detach its input (ts_detach) or freeze the parameters before it");
    return TS_ERR_GRAD;
}

static ts_status through(walk *w, ts_node *n);

/* The same thing in smaller ops, behind all nodes; gradients go through those. */
static ts_status written_out(walk *w, ts_node *n)
{
    ts_graph *g = w->g;
    ts_value *made[8] = {0};
    int first = g->nnodes, last;

    TS_TRY(n->op->expand(g, n, n->in, made));
    TS_TRY(g->status);
    reserve(w);
    last = g->nnodes;
    for (int i = first; i < last; i++)
        follow(w, g->nodes[i]);
    for (int i = 0; i < n->nout; i++)
        if (made[i] && w->grad[n->out[i]->id] && made[i] != n->out[i])
            TS_TRY(add_grad(w, made[i], w->grad[n->out[i]->id]));
    for (int i = last - 1; i >= first; i--)
        TS_TRY(through(w, g->nodes[i]));
    return TS_OK;
}

/* Gradients of n's inputs, from those of its results. */
static ts_status through(walk *w, ts_node *n)
{
    ts_graph *g = w->g;
    ts_value *dy[8] = {0}, **dx;
    bool any = false, wanted = false;
    int first;

    for (int i = 0; i < n->nout; i++) {
        dy[i] = w->grad[n->out[i]->id];
        any = any || dy[i];
    }
    for (int i = 0; i < n->nin; i++)
        wanted = wanted || w->active[n->in[i]->id];
    if (!any || !wanted)
        return TS_OK;
    g->like = n;
    if (n->op->flags & TS_COMPOSITE)
        return written_out(w, n);
    if (!n->op->grad)
        return no_gradient(n);
    first = ts_steps_begin(g);
    dx = TS_NEWS(g->arena, ts_value *, n->nin);
    TS_TRY(n->op->grad(n, dy, dx));
    ts_steps_end(g, first, n->nin, dx);
    reserve(w);
    for (int i = 0; i < n->nin; i++)
        if (w->active[n->in[i]->id])
            TS_TRY(add_grad(w, n->in[i], dx[i]));
    return g->status;
}

/* Seeds of the results, ones where none is given. */
static ts_status seed(walk *w, int n, ts_value *const *y, ts_value *const *seeds)
{
    for (int i = 0; i < n; i++) {
        const ts_type *t = &y[i]->type;
        ts_value *s = seeds ? seeds[i] : NULL;

        if (!ts_dtype_is_float(t->dtype))
            return ts_fail(TS_ERR_GRAD, "a value of dtype %s has no gradient; only floats have",
                           ts_dtype_name(t->dtype));
        if (s && !ts_type_same(&s->type, t))
            return ts_fail(TS_ERR_SHAPE, "a seed has another type than the value it is of");
        if (!s)
            s = ts_full_n(w->g, t->dtype, 1, t->rank, t->dim);
        reserve(w);
        TS_TRY(add_grad(w, y[i], s));
    }
    return w->g->status;
}

ts_status ts_graph_grad(ts_graph *g, int ny, ts_value *const *y, ts_value *const *seeds, int nx,
                        ts_value *const *x, ts_value **dx)
{
    walk w = {.g = g};
    int forward = g->nnodes;
    ts_status s;

    reserve(&w);
    for (int i = 0; i < nx; i++)
        w.active[x[i]->id] = ts_dtype_is_float(x[i]->type.dtype);
    for (int i = 0; i < forward; i++)
        follow(&w, g->nodes[i]);
    s = seed(&w, ny, y, seeds);
    for (int i = forward - 1; !s && i >= 0; i--)
        s = through(&w, g->nodes[i]);
    for (int i = 0; i < nx; i++)
        dx[i] = w.grad[x[i]->id];
    return s;
}

/* --- the public call --- */

static ts_status all_there(int n, ts_value *const *v, const ts_graph *g)
{
    for (int i = 0; i < n; i++)
        if (!v[i] || v[i]->graph != g)
            return ts_fail(TS_ERR_ARG, "a value of a gradient is %s",
                           v[i] ? "of another graph" : "NULL");
    return TS_OK;
}

/* The graph keeps the first error, as for every call that makes nodes. */
static ts_status keep(ts_graph *g, ts_status s)
{
    if (s && !g->status) {
        g->status = s;
        g->error = *ts_last_error();
    }
    return s;
}

ts_status ts_gradients(int ny, ts_value *const *y, ts_value *const *seeds, int nx,
                       ts_value *const *x, ts_value **dx)
{
    ts_graph *g = ny > 0 && y && y[0] ? y[0]->graph : NULL;
    const ts_node *like;
    ts_status s;

    if (!g || nx < 0 || (nx && (!x || !dx)))
        return ts_fail(TS_ERR_ARG, "a gradient needs values to be of, and by");
    TS_TRY(ts_graph_check(g));
    TS_TRY(all_there(ny, y, g));
    TS_TRY(all_there(nx, x, g));
    like = g->like;
    s = keep(g, ts_graph_grad(g, ny, y, seeds, nx, x, dx));
    g->like = like;
    for (int i = 0; !s && i < nx; i++)
        if (!dx[i])
            dx[i] = ts_full_n(g, x[i]->type.dtype, 0, x[i]->type.rank, x[i]->type.dim);
    return s ? s : ts_graph_check(g);
}
