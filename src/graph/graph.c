/* graph.c - making and copying graphs: values, nodes, states, attributes. */
#include "graph/graph.h"
#include "graph/row.h"
#include <inttypes.h>

ts_graph *ts_graph_in(ts_arena *a, const char *name)
{
    ts_graph *g = TS_NEW(a, ts_graph);

    g->arena = a;
    g->name = ts_arena_strdup(a, name ? name : "graph");
    return g;
}

static ts_value *new_value(ts_graph *g, ts_value_kind kind, int index, const char *name, ts_type t)
{
    ts_value *v = TS_NEW(g->arena, ts_value);

    v->graph = g;
    v->id = g->nvalues;
    v->kind = kind;
    v->index = index;
    v->name = name ? ts_arena_strdup(g->arena, name) : NULL;
    v->type = t;
    TS_PUSH(g->arena, g->values, g->nvalues, v);
    return v;
}

ts_value *ts_graph_add_input(ts_graph *g, const char *name, ts_type t)
{
    ts_value *v = new_value(g, TS_VALUE_INPUT, g->ninputs, name, t);

    TS_PUSH(g->arena, g->inputs, g->ninputs, v);
    return v;
}

ts_value *ts_graph_add_state(ts_graph *g, const char *name, ts_type t, ts_init init, bool trained)
{
    ts_value *v = new_value(g, TS_VALUE_STATE, g->nstates, name, t);
    ts_state s = {.value = v, .init = init, .trained = trained};

    TS_PUSH(g->arena, g->states, g->nstates, s);
    return v;
}

void ts_graph_add_update(ts_graph *g, ts_value *state, ts_value *next, int phase)
{
    ts_update u = {state, next, phase};

    TS_PUSH(g->arena, g->updates, g->nupdates, u);
}

void ts_graph_add_output(ts_graph *g, ts_value *v, const char *name)
{
    int n = g->noutputs;

    TS_PUSH(g->arena, g->output_names, n, ts_arena_strdup(g->arena, name));
    TS_PUSH(g->arena, g->outputs, g->noutputs, v);
}

ts_value *ts_graph_find_state(const ts_graph *g, const char *name)
{
    for (int i = 0; i < g->nstates; i++)
        if (!strcmp(g->states[i].value->name, name))
            return g->states[i].value;
    return NULL;
}

const char *ts_graph_state(const ts_graph *g, int i, bool *trained)
{
    if (!g || i < 0 || i >= g->nstates)
        return NULL;
    if (trained)
        *trained = g->states[i].trained;
    return g->states[i].value->name;
}

static _Thread_local const char *here_file;
static _Thread_local int here_line;

void ts_here(const char *file, int line)
{
    here_file = file;
    here_line = line;
}

/* "encoder" and "fc1" open: "encoder.fc1" */
static const char *scope_path(ts_graph *g, const ts_scope *s)
{
    if (!s)
        return "";
    if (!s->up)
        return s->name;
    return ts_arena_printf(g->arena, "%s.%s", scope_path(g, s->up), s->name);
}

static void place(ts_graph *g, ts_node *n)
{
    if (g->like) {
        n->layer = g->like->layer;
        n->block = g->like->block;
        n->file = g->like->file;
        n->line = g->like->line;
        n->backward = g->like->backward || g->backward;
        n->inner = g->like->inner;
        n->phase = TS_MAX(g->like->phase, g->phase);
        return;
    }
    n->layer = scope_path(g, g->scope);
    n->block = g->block ? g->block->name : "";
    n->file = here_file ? ts_arena_strdup(g->arena, here_file) : NULL;
    n->line = here_line;
    n->backward = g->backward;
    n->phase = g->phase;
}

static void copy_attrs(ts_arena *a, ts_node *n, int nattr, const ts_attr *attr)
{
    n->nattr = nattr;
    n->attr = TS_NEWS(a, ts_attr, nattr);
    for (int i = 0; i < nattr; i++) {
        n->attr[i] = attr[i];
        n->attr[i].name = ts_arena_strdup(a, attr[i].name);
        if (attr[i].kind == 's')
            n->attr[i].s = ts_arena_strdup(a, attr[i].s);
        if (attr[i].kind == 'l')
            n->attr[i].l = ts_arena_copy(a, attr[i].l, sizeof(int64_t) * (size_t)attr[i].n);
    }
}

/* The last word on an inferred type: whatever the rule did with hostile sizes. */
static ts_status check_outputs(const ts_node *n)
{
    ts_arena *a;

    for (int i = 0; i < n->nout; i++)
        if (!ts_type_possible(&n->out[i]->type)) {
            a = ts_arena_new();
            ts_fail_at(n, TS_ERR_SHAPE, "%s would give %s, which no tensor can be", n->op->name,
                       ts_type_text(a, &n->out[i]->type));
            ts_arena_free(a);
            return TS_ERR_SHAPE;
        }
    return TS_OK;
}

static ts_node *new_node(ts_graph *g, const ts_op *op, int nin, ts_value *const *in)
{
    ts_node *n = TS_NEW(g->arena, ts_node);

    n->op = op;
    n->nin = nin;
    n->in = ts_arena_copy(g->arena, in, sizeof(*in) * (size_t)nin);
    return n;
}

static void add_node(ts_graph *g, ts_node *n)
{
    n->id = g->nnodes;
    for (int i = 0; i < n->nout; i++)
        n->out[i]->node = n;
    TS_PUSH(g->arena, g->nodes, g->nnodes, n);
}

/* An op's shape rule gives its outputs with this. */
void ts_node_set_out(ts_node *n, int nout, const ts_type *types)
{
    /* a node without inputs finds its graph in data while it is inferred */
    ts_graph *g = n->nin ? n->in[0]->graph : (ts_graph *)n->data;

    n->nout = nout;
    n->out = TS_NEWS(g->arena, ts_value *, nout);
    for (int i = 0; i < nout; i++)
        n->out[i] = new_value(g, TS_VALUE_NODE, i, NULL, types[i]);
}

static ts_status give_up(ts_graph *g, ts_status s)
{
    if (!g->status) {
        g->status = s;
        g->error = *ts_last_error();
    }
    return s;
}

/* "encoder.fc1, model.c:41", as much of it as is known. */
static const char *here(ts_graph *g)
{
    ts_node n = {0};
    const char *layer;

    place(g, &n);
    layer = n.layer ? n.layer : "";
    return !n.file ? layer
                   : ts_arena_printf(g->arena, "%s%s%s:%d", layer, layer[0] ? ", " : "", n.file,
                                     n.line);
}

void *ts_graph_refuse(ts_graph *g, ts_status code, const char *hint, const char *fmt, ...)
{
    va_list ap;

    if (!g || g->status)
        return NULL;
    va_start(ap, fmt);
    ts_fail_loc(here(g), code, "%s", ts_arena_vprintf(g->arena, fmt, ap));
    va_end(ap);
    ts_error_doing("building the graph");
    if (hint)
        ts_error_hint("%s", hint);
    give_up(g, code);
    return NULL;
}

const void *ts_graph_options(ts_graph *g, const void *in, size_t first, void *out, size_t room)
{
    ts_status s;
    size_t size = 0;

    if (in)
        memcpy(&size, in, sizeof(size));
    s = ts_take_sized("the layer", in, size ? size : first, out, room);
    if (!s)
        return out;
    ts_error_doing("building the graph");
    give_up(g, s);
    return NULL;
}

/* The kind letter of an attribute in a list such as "dims:l keepdim:i", 0 when it is not there. */
static char declared(const char *list, const char *name)
{
    size_t n = strlen(name);

    for (const char *p = list; *p; p += strcspn(p, " "), p += strspn(p, " "))
        if (!strncmp(p, name, n) && p[n] == ':')
            return p[n + 1];
    return 0;
}

static const char *kind_name(char kind)
{
    return kind == 'i'   ? "an integer"
           : kind == 'f' ? "a number"
           : kind == 's' ? "a text"
           : kind == 'l' ? "a list of integers"
                         : "nothing";
}

/* Integers stay where sums and small products of them cannot overflow; a list fits a
 * tensor's rank. */
static ts_status check_value(const ts_node *n, const ts_attr *x)
{
    const int64_t *l = x->kind == 'l' ? x->l : &x->i;
    int count = x->kind == 'l' ? x->n : x->kind == 'i';

    if (x->kind == 's' && !x->s)
        return ts_fail_at(n, TS_ERR_ARG, "%s: the text %s is NULL", n->op->name, x->name);
    if (count > 0 && !l)
        return ts_fail_at(n, TS_ERR_ARG, "%s: the list %s of %d items is NULL", n->op->name,
                          x->name, count);
    if (count < 0 || count > TS_MAX_RANK)
        return ts_fail_at(n, TS_ERR_ARG, "%s: %s has %d items; at most %d", n->op->name, x->name,
                          count, TS_MAX_RANK);
    for (int i = 0; i < count; i++)
        if (l[i] > TS_MAX_COUNT || l[i] < -TS_MAX_COUNT)
            return ts_fail_at(n, TS_ERR_ARG, "%s: %s is %" PRId64 ", which no tensor needs",
                              n->op->name, x->name, l[i]);
    return TS_OK;
}

/* What every rule may count on, so that none of them has to check it again: attributes are those
 * the op declares (ops.h), each at most once and of its kind. An integer will do for a number. */
static ts_status check_attrs(const ts_node *n, int nattr, const ts_attr *attr)
{
    for (int i = 0; i < nattr; i++) {
        const ts_attr *x = &attr[i];
        char kind = declared(n->op->attrs, x->name);

        if (!kind && !n->op->attrs[0])
            return ts_fail_at(n, TS_ERR_ARG, "%s takes no attributes, got %s", n->op->name,
                              x->name);
        if (!kind)
            return ts_fail_at(n, TS_ERR_ARG, "%s has no attribute %s; it takes %s", n->op->name,
                              x->name, n->op->attrs);
        if (x->kind != kind && !(x->kind == 'i' && kind == 'f'))
            return ts_fail_at(n, TS_ERR_ARG, "%s: %s is %s, got %s", n->op->name, x->name,
                              kind_name(kind), kind_name(x->kind));
        for (int k = 0; k < i; k++)
            if (!strcmp(attr[k].name, x->name))
                return ts_fail_at(n, TS_ERR_ARG, "%s: %s is given twice", n->op->name, x->name);
        TS_TRY(check_value(n, x));
    }
    return TS_OK;
}

static ts_status check_inputs(const ts_graph *g, const ts_node *n)
{
    const ts_op *op = n->op;
    int least = op->nin < 0 ? -op->nin : op->nin, most = op->nin < 0 ? TS_MAX_INPUTS : op->nin;

    for (int i = 0; i < n->nin; i++) {
        if (!n->in[i])
            return ts_fail_at(n, TS_ERR_ARG, "input %d of %s is NULL", i, op->name);
        if (n->in[i]->graph != g)
            return ts_fail_at(n, TS_ERR_ARG, "input %d of %s belongs to another graph", i,
                              op->name);
    }
    if (n->nin < least || n->nin > most)
        return ts_fail_at(n, TS_ERR_ARG, "%s takes %s%d input%s, got %d", op->name,
                          least == most    ? ""
                          : n->nin < least ? "at least "
                                           : "at most ",
                          n->nin < least ? least : most,
                          (n->nin < least ? least : most) == 1 ? "" : "s", n->nin);
    if (n->nsub && !(op->flags & TS_CONTROL))
        return ts_fail_at(n, TS_ERR_ARG, "%s has no sub-graphs", op->name);
    return TS_OK;
}

/* The checks come before the copy: a wrong count must not be believed. */
static ts_status infer(ts_graph *g, ts_node *n, int nattr, const ts_attr *attr)
{
    ts_status s;

    TS_TRY(check_inputs(g, n));
    TS_TRY(check_attrs(n, nattr, attr));
    copy_attrs(g->arena, n, nattr, attr);
    if (!n->nin)
        n->data = g;
    s = n->op->infer(n);
    if (!n->nin)
        n->data = NULL;
    return s ? s : check_outputs(n);
}

ts_node *ts_node_make_sub(ts_graph *g, const ts_op *op, int nin, ts_value *const *in, int nattr,
                          const ts_attr *attr, int nsub, ts_graph *const *sub)
{
    ts_node *n;
    ts_status s;

    if (!g || g->status)
        return NULL;
    n = new_node(g, op, nin, in);
    n->nsub = nsub;
    n->sub = nsub ? ts_arena_copy(g->arena, sub, sizeof(*sub) * (size_t)nsub) : NULL;
    place(g, n);
    s = infer(g, n, nattr, attr);
    if (s) {
        ts_error e = *ts_last_error();
        if (!e.where[0]) {
            snprintf(e.where, sizeof(e.where), "%s", ts_node_where(g->arena, n));
            ts_error_set(&e);
        }
        ts_error_doing("inferring shapes");
        give_up(g, s);
        return NULL;
    }
    add_node(g, n);
    return n;
}

ts_node *ts_node_make(ts_graph *g, const ts_op *op, int nin, ts_value *const *in, int nattr,
                      const ts_attr *attr)
{
    return ts_node_make_sub(g, op, nin, in, nattr, attr, 0, NULL);
}

ts_value *ts_node_out(ts_node *n)
{
    return n ? n->out[0] : NULL;
}

ts_node *ts_node_clone(ts_graph *g, const ts_node *n, ts_value *const *in)
{
    ts_node *c = new_node(g, n->op, n->nin, in);

    c->nattr = n->nattr;
    c->attr = n->attr;
    c->data = n->data;
    c->layer = n->layer;
    c->block = n->block;
    c->file = n->file;
    c->line = n->line;
    c->backward = n->backward;
    c->inner = n->inner;
    c->guard = n->guard;
    c->phase = n->phase;
    c->nsub = n->nsub;
    c->sub = n->sub;
    c->nout = n->nout;
    c->out = TS_NEWS(g->arena, ts_value *, n->nout);
    for (int i = 0; i < n->nout; i++) {
        c->out[i] = new_value(g, TS_VALUE_NODE, i, n->out[i]->name, n->out[i]->type);
        c->out[i]->layout = n->out[i]->layout;
        c->out[i]->checkpoint = n->out[i]->checkpoint;
    }
    add_node(g, c);
    return c;
}

ts_graph *ts_graph_begin_copy(ts_arena *a, const ts_graph *g, ts_value ***map)
{
    ts_graph *out = ts_graph_in(a, g->name);

    *map = TS_NEWS(a, ts_value *, g->nvalues);
    for (int i = 0; i < g->ninputs; i++) {
        ts_value *v = ts_graph_add_input(out, g->inputs[i]->name, g->inputs[i]->type);
        v->layout = g->inputs[i]->layout;
        (*map)[g->inputs[i]->id] = v;
    }
    for (int i = 0; i < g->nstates; i++) {
        const ts_state *s = &g->states[i];
        ts_value *v = ts_graph_add_state(out, s->value->name, s->value->type, s->init, s->trained);
        v->layout = s->value->layout;
        out->states[i].use = s->use;
        out->states[i].parts = s->parts;
        (*map)[s->value->id] = v;
    }
    for (int i = 0; i < g->nstates; i++)
        out->states[i].of = g->states[i].of ? (*map)[g->states[i].of->id] : NULL;
    return out;
}

void ts_graph_finish_copy(ts_graph *out, const ts_graph *g, ts_value *const *map)
{
    for (int i = 0; i < g->noutputs; i++)
        ts_graph_add_output(out, map[g->outputs[i]->id], g->output_names[i]);
    for (int i = 0; i < g->nupdates; i++)
        ts_graph_add_update(out, map[g->updates[i].state->id], map[g->updates[i].next->id],
                            g->updates[i].phase);
    for (int i = 0; i < g->ngrads; i++) {
        ts_grad d = {map[g->grads[i].param->id], map[g->grads[i].grad->id]};
        TS_PUSH(out->arena, out->grads, out->ngrads, d);
    }
    for (int i = 0; i < g->nvalues; i++)
        ts_value_mark(map[i], g->values[i]->checkpoint);
    out->loss = g->loss ? map[g->loss->id] : NULL;
    out->loss_is_output = g->loss_is_output;
    out->like = NULL;
}

/* A view is not stored, and may be gone after the next pass. Inputs and states are there anyway. */
void ts_value_mark(ts_value *v, bool checkpoint)
{
    if (!v || !checkpoint)
        return;
    while (v->kind == TS_VALUE_NODE && v->node->op->flags & TS_VIEW &&
           !(v->node->op->flags & TS_PATCH))
        v = v->node->in[0];
    v->checkpoint = v->kind == TS_VALUE_NODE && !(v->node->op->flags & TS_SOURCE);
}

ts_node *ts_graph_copy_node(ts_graph *out, const ts_node *n, ts_value **map)
{
    ts_value **in = TS_NEWS(out->arena, ts_value *, n->nin);
    ts_node *c;

    for (int i = 0; i < n->nin; i++)
        in[i] = map[n->in[i]->id];
    c = ts_node_clone(out, n, in);
    for (int i = 0; i < n->nout; i++)
        map[n->out[i]->id] = c->out[i];
    return c;
}

static bool is_guard(const ts_value *v)
{
    return v->kind == TS_VALUE_NODE && v->node->guard;
}

int *ts_graph_uses(ts_arena *a, const ts_graph *g)
{
    int *uses = TS_NEWS(a, int, g->nvalues);

    for (int i = 0; i < g->nnodes; i++)
        for (int k = 0; k < g->nodes[i]->nin; k++)
            if (!g->nodes[i]->guard || is_guard(g->nodes[i]->in[k]))
                uses[g->nodes[i]->in[k]->id]++;
    for (int i = 0; i < g->noutputs; i++)
        uses[g->outputs[i]->id]++;
    for (int i = 0; i < g->nupdates; i++)
        uses[g->updates[i].next->id]++;
    for (int i = 0; i < g->ngrads; i++)
        uses[g->grads[i].grad->id]++;
    if (g->loss)
        uses[g->loss->id]++;
    return uses;
}

/* "fc1 (matmul, backward), model.c:41" */
const char *ts_node_where(ts_arena *a, const ts_node *n)
{
    const char *s = ts_arena_printf(a, "%s%s(%s%s)", n->layer ? n->layer : "",
                                    n->layer && n->layer[0] ? " " : "", n->op->name,
                                    n->backward ? ", backward" : "");

    return n->file ? ts_arena_printf(a, "%s, %s:%d", s, n->file, n->line) : s;
}

ts_status ts_fail_at(const ts_node *n, ts_status code, const char *fmt, ...)
{
    ts_arena *a = ts_arena_new();
    va_list ap;

    va_start(ap, fmt);
    ts_fail_loc(ts_node_where(a, n), code, "%s", ts_arena_vprintf(a, fmt, ap));
    va_end(ap);
    ts_arena_free(a);
    return code;
}

/* --- attributes --- */

const ts_attr *ts_attr_find(const ts_node *n, const char *name)
{
    for (int i = 0; i < n->nattr; i++)
        if (!strcmp(n->attr[i].name, name))
            return &n->attr[i];
    return NULL;
}

int64_t ts_attr_int(const ts_node *n, const char *name, int64_t missing)
{
    const ts_attr *x = ts_attr_find(n, name);

    return x && x->kind == 'i' ? x->i : missing;
}

double ts_attr_float(const ts_node *n, const char *name, double missing)
{
    const ts_attr *x = ts_attr_find(n, name);

    if (!x)
        return missing;
    return x->kind == 'f' ? x->f : x->kind == 'i' ? (double)x->i : missing;
}

const char *ts_attr_str(const ts_node *n, const char *name, const char *missing)
{
    const ts_attr *x = ts_attr_find(n, name);

    return x && x->kind == 's' ? x->s : missing;
}

int ts_attr_list(const ts_node *n, const char *name, const int64_t **l)
{
    const ts_attr *x = ts_attr_find(n, name);

    *l = x && x->kind == 'l' && x->n ? x->l : NULL; /* an empty list is a missing one */
    return *l ? x->n : 0;
}

ts_attr ts_attr_i(const char *name, int64_t i)
{
    return (ts_attr){.name = name, .kind = 'i', .i = i};
}

ts_attr ts_attr_f(const char *name, double f)
{
    return (ts_attr){.name = name, .kind = 'f', .f = f};
}

ts_attr ts_attr_s(const char *name, const char *s)
{
    return (ts_attr){.name = name, .kind = 's', .s = s};
}

ts_attr ts_attr_l(const char *name, int n, const int64_t *l)
{
    return (ts_attr){.name = name, .kind = 'l', .n = n, .l = l};
}

/* --- the public calls --- */

ts_graph *ts_graph_new(const char *name)
{
    ts_graph *g = ts_graph_in(ts_arena_new(), name);

    g->owns_arena = true;
    return g;
}

void ts_graph_free(ts_graph *g)
{
    if (g && g->owns_arena)
        ts_arena_free(g->arena);
}

ts_status ts_graph_check(const ts_graph *g)
{
    if (!g)
        return ts_fail(TS_ERR_ARG, "the graph is NULL");
    if (g->status)
        ts_error_set(&g->error);
    return g->status;
}

char *ts_graph_text(const ts_graph *g)
{
    ts_text t = {0};

    if (!g) {
        ts_fail(TS_ERR_ARG, "the graph is NULL");
        return NULL;
    }
    ts_graph_print(g, &t);
    return t.s;
}

int ts_rank(const ts_value *v)
{
    return v ? v->type.rank : 0;
}

int64_t ts_dim(const ts_value *v, int i)
{
    if (!v || i < -v->type.rank || i >= v->type.rank)
        return 0;
    return v->type.dim[i < 0 ? i + v->type.rank : i];
}

ts_dtype ts_dtype_of(const ts_value *v)
{
    return v ? v->type.dtype : TS_F32;
}

void ts_graph_mark_needed(const ts_graph *g, bool *need)
{
    for (int i = g->nnodes - 1; i >= 0; i--) {
        const ts_node *n = g->nodes[i];
        bool any = false;
        for (int k = 0; k < n->nout; k++)
            any = any || need[n->out[k]->id];
        for (int k = 0; k < n->nin && any; k++)
            need[n->in[k]->id] = true;
        for (int k = 0; k < n->nout; k++)
            need[n->out[k]->id] = any;
    }
}
