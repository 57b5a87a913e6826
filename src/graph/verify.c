/* verify.c - what a legal graph is, one rule a line.
 *
 * Three tables: rules every value obeys, rules every node obeys in its place, rules of the graph as
 * a whole. A rule is a question; where the answer is no, its line says what is wrong and the rule
 * may add the detail. All of it is linear in the graph (names are sorted), because it runs after
 * every pass.
 */
#include "graph/graph.h"
#include "graph/row.h"

typedef struct checker {
    const ts_graph *g;
    ts_arena *a;
    ts_graph *scratch;  /* where shape rules are asked again */
    bool *computed;     /* by value id: an input, a state, or made by a node already seen */
    const char *detail; /* what the failing rule has to add */
} checker;

/* Is v one of g's values? Everything below looks no further into one that is not. */
static bool belongs(const checker *c, const ts_value *v)
{
    return v && v->graph == c->g && v->id >= 0 && v->id < c->g->nvalues && c->g->values[v->id] == v;
}

static bool say(checker *c, const char *detail)
{
    c->detail = detail;
    return false;
}

static const char *text(checker *c, const ts_value *v)
{
    return v->kind == TS_VALUE_NODE ? ts_arena_printf(c->a, "%%%d", v->id)
                                    : ts_arena_printf(c->a, "%%%s", v->name ? v->name : "");
}

static const char *types(checker *c, const ts_type *a, const ts_type *b)
{
    return ts_arena_printf(c->a, "%s and %s", ts_type_text(c->a, a), ts_type_text(c->a, b));
}

static bool trained(const checker *c, const ts_value *v)
{
    return v->kind == TS_VALUE_STATE && c->g->states[v->index].trained;
}

static int phase_of(const ts_value *v)
{
    return v->kind == TS_VALUE_NODE ? v->node->phase : 0;
}

/* --- values --- */

static bool value_in_place(checker *c, const ts_value *v)
{
    return belongs(c, v);
}

static bool value_has_owner(checker *c, const ts_value *v)
{
    const ts_graph *g = c->g;

    if (v->index < 0)
        return false;
    if (v->kind == TS_VALUE_INPUT)
        return v->index < g->ninputs && g->inputs[v->index] == v;
    if (v->kind == TS_VALUE_STATE)
        return v->index < g->nstates && g->states[v->index].value == v;
    return v->node && v->index < v->node->nout && v->node->out[v->index] == v;
}

static bool value_type_possible(checker *c, const ts_value *v)
{
    (void)c;
    return ts_type_possible(&v->type);
}

static bool layout_is_permutation(checker *c, const ts_value *v)
{
    unsigned seen = 0;

    (void)c;
    if (!v->layout.set)
        return true;
    for (int i = 0; i < v->type.rank; i++) {
        int d = v->layout.order[i];
        if (d < 0 || d >= v->type.rank)
            return false;
        seen |= 1u << d;
    }
    return seen == (1u << v->type.rank) - 1;
}

static bool lanes_in_range(checker *c, const ts_value *v)
{
    const ts_layout *l = &v->layout;

    (void)c;
    return !l->set || l->lanes == 0 || l->lanes == 1 ||
           (l->lanes > 1 && l->lane_dim >= 0 && l->lane_dim < v->type.rank);
}

static const struct {
    bool (*holds)(checker *c, const ts_value *v);
    const char *otherwise;
} value_rules[] = {
    {value_in_place, "is not at its id in the graph's values"},
    {value_has_owner, "is no input, state or result of the graph"},
    {value_type_possible, "has a type no tensor can have"},
    {layout_is_permutation, "has a layout that does not name each dim once"},
    {lanes_in_range, "has lanes in a dim it does not have"},
};

/* --- nodes --- */

static bool node_in_place(checker *c, const ts_node *n)
{
    return n->id >= 0 && n->id < c->g->nnodes && c->g->nodes[n->id] == n;
}

static bool inputs_belong(checker *c, const ts_node *n)
{
    for (int i = 0; i < n->nin; i++)
        if (!belongs(c, n->in[i]))
            return say(c, ts_arena_printf(c->a, "input %d", i));
    return true;
}

static bool outputs_belong(checker *c, const ts_node *n)
{
    for (int i = 0; i < n->nout; i++)
        if (!belongs(c, n->out[i]) || n->out[i]->node != n || n->out[i]->index != i)
            return say(c, ts_arena_printf(c->a, "result %d", i));
    return true;
}

static bool inputs_computed(checker *c, const ts_node *n)
{
    for (int i = 0; i < n->nin; i++)
        if (!c->computed[n->in[i]->id])
            return say(c, text(c, n->in[i]));
    return true;
}

static bool input_count_fits(checker *c, const ts_node *n)
{
    (void)c;
    return n->op->nin < 0 ? n->nin >= -n->op->nin : n->nin == n->op->nin;
}

static bool output_count_fits(checker *c, const ts_node *n)
{
    (void)c;
    if (n->op->flags & TS_CONTROL)
        return n->nsub && n->nout == n->sub[0]->noutputs;
    return n->op->nout ? n->nout == n->op->nout : n->nout > 0;
}

static bool phase_exists(checker *c, const ts_node *n)
{
    (void)c;
    return n->phase == 0 || n->phase == 1;
}

static bool reads_no_later_phase(checker *c, const ts_node *n)
{
    for (int i = 0; i < n->nin; i++)
        if (phase_of(n->in[i]) > n->phase)
            return say(c, text(c, n->in[i]));
    return true;
}

static bool only_const_has_data(checker *c, const ts_node *n)
{
    (void)c;
    return (n->data != NULL) == !!(n->op->flags & TS_DATA);
}

static bool only_control_has_subs(checker *c, const ts_node *n)
{
    (void)c;
    return !n->nsub || n->op->flags & TS_CONTROL;
}

static bool subs_legal(checker *c, const ts_node *n)
{
    for (int i = 0; i < n->nsub; i++)
        if (ts_graph_verify(n->sub[i]))
            return say(c, ts_arena_strdup(c->a, ts_last_error()->message));
    return true;
}

/* Asks the shape rule again, about a twin of the node in the scratch graph. */
static bool types_inferred(checker *c, const ts_node *n)
{
    ts_node twin = *n;
    ts_graph *s = c->scratch;

    s->nvalues = s->ninputs = 0;
    s->values = s->inputs = NULL;
    twin.in = TS_NEWS(c->a, ts_value *, n->nin);
    for (int i = 0; i < n->nin; i++)
        twin.in[i] = ts_graph_add_input(s, NULL, n->in[i]->type);
    twin.data = n->nin ? n->data : (const void *)s;
    if (n->op->infer(&twin))
        return say(c, ts_arena_strdup(c->a, ts_last_error()->message));
    for (int i = 0; i < n->nout; i++)
        if (!ts_type_same(&n->out[i]->type, &twin.out[i]->type))
            return say(c, types(c, &n->out[i]->type, &twin.out[i]->type));
    return true;
}

static const struct {
    bool (*holds)(checker *c, const ts_node *n);
    const char *otherwise;
} node_rules[] = {
    {node_in_place, "is not at its id in the graph's nodes"},
    {inputs_belong, "reads a value that is not of this graph"},
    {outputs_belong, "has a result that is not of this graph, or not its own"},
    {inputs_computed, "reads a value before it is computed"},
    {input_count_fits, "has the wrong number of inputs"},
    {output_count_fits, "has the wrong number of results"},
    {phase_exists, "is in a phase that is neither 0 nor 1"},
    {reads_no_later_phase, "runs for every micro-batch but reads a value of phase 1"},
    {only_const_has_data, "has data and is no const, or is a const without"},
    {only_control_has_subs, "has a sub-graph"},
    {subs_legal, "has an illegal sub-graph"},
    {types_inferred, "does not have the type its shape rule gives"},
};

/* --- the graph --- */

static int by_text(const void *x, const void *y)
{
    return strcmp(*(const char *const *)x, *(const char *const *)y);
}

static bool names_unique(checker *c)
{
    const ts_graph *g = c->g;
    const char **names = TS_NEWS(c->a, const char *, g->ninputs + g->nstates);
    int n = 0;

    for (int i = 0; i < g->ninputs; i++)
        names[n++] = g->inputs[i]->name;
    for (int i = 0; i < g->nstates; i++)
        names[n++] = g->states[i].value->name;
    for (int i = 0; i < n; i++)
        if (!names[i] || !*names[i])
            return say(c, "one has none");
    qsort(names, (size_t)n, sizeof(*names), by_text);
    for (int i = 1; i < n; i++)
        if (!strcmp(names[i - 1], names[i]))
            return say(c, names[i]);
    return true;
}

static bool outputs_exist(checker *c)
{
    for (int i = 0; i < c->g->noutputs; i++)
        if (!belongs(c, c->g->outputs[i]) || !c->g->output_names[i])
            return say(c, ts_arena_printf(c->a, "output %d", i));
    return true;
}

static bool loss_exists(checker *c)
{
    return !c->g->loss || belongs(c, c->g->loss);
}

static bool loss_is_last_output(checker *c)
{
    const ts_graph *g = c->g;

    return !g->loss_is_output || (g->loss && g->noutputs && g->outputs[g->noutputs - 1] == g->loss);
}

static bool updates_are_of_states(checker *c)
{
    for (int i = 0; i < c->g->nupdates; i++) {
        const ts_update *u = &c->g->updates[i];
        if (!belongs(c, u->state) || !belongs(c, u->next) || u->state->kind != TS_VALUE_STATE)
            return say(c, ts_arena_printf(c->a, "update %d", i));
    }
    return true;
}

static bool updates_keep_types(checker *c)
{
    for (int i = 0; i < c->g->nupdates; i++) {
        const ts_update *u = &c->g->updates[i];
        if (!ts_type_same(&u->state->type, &u->next->type))
            return say(c, ts_arena_printf(c->a, "%s: %s", text(c, u->state),
                                          types(c, &u->state->type, &u->next->type)));
    }
    return true;
}

static bool updates_have_phases(checker *c)
{
    for (int i = 0; i < c->g->nupdates; i++) {
        const ts_update *u = &c->g->updates[i];
        if (u->phase < 0 || u->phase > 1 || phase_of(u->next) > u->phase)
            return say(c, text(c, u->state));
    }
    return true;
}

/* by state and phase: has an update above touched it? */
static bool *updated_flags(checker *c)
{
    return TS_NEWS(c->a, bool, 2 * c->g->nstates);
}

static bool updated_once(checker *c)
{
    bool *seen = updated_flags(c);

    for (int i = 0; i < c->g->nupdates; i++) {
        const ts_update *u = &c->g->updates[i];
        bool *s = &seen[2 * u->state->index + u->phase];
        if (*s)
            return say(c, text(c, u->state));
        *s = true;
    }
    return true;
}

/* a = b after b = ... would store b's new value or its old one, as the copies happen to be done. */
static bool updates_in_any_order(checker *c)
{
    bool *seen = updated_flags(c);

    for (int i = 0; i < c->g->nupdates; i++) {
        const ts_update *u = &c->g->updates[i];
        if (u->next->kind == TS_VALUE_STATE && u->next != u->state &&
            seen[2 * u->next->index + u->phase])
            return say(c, text(c, u->next));
        seen[2 * u->state->index + u->phase] = true;
    }
    return true;
}

static bool grads_are_of_params(checker *c)
{
    for (int i = 0; i < c->g->ngrads; i++) {
        const ts_grad *d = &c->g->grads[i];
        if (!belongs(c, d->param) || !belongs(c, d->grad) || !trained(c, d->param))
            return say(c, ts_arena_printf(c->a, "gradient %d", i));
    }
    return true;
}

static bool grads_have_types(checker *c)
{
    for (int i = 0; i < c->g->ngrads; i++) {
        const ts_grad *d = &c->g->grads[i];
        if (!ts_type_same(&d->param->type, &d->grad->type))
            return say(c, ts_arena_printf(c->a, "%s: %s", text(c, d->param),
                                          types(c, &d->param->type, &d->grad->type)));
    }
    return true;
}

static bool one_grad_each(checker *c)
{
    bool *seen = updated_flags(c);

    for (int i = 0; i < c->g->ngrads; i++) {
        bool *s = &seen[c->g->grads[i].param->index];
        if (*s)
            return say(c, text(c, c->g->grads[i].param));
        *s = true;
    }
    return true;
}

/* Room for the parts of all replicas; those without memory behind those that have some. */
static bool shares_fit(checker *c)
{
    bool behind = false;

    for (int i = 0; i < c->g->nstates; i++) {
        const ts_state *s = &c->g->states[i];
        const ts_type *t = &s->value->type;
        bool share = s->use == TS_USE_SHARE;
        behind = behind || share;
        if (!s->of ? share
                   : (share != behind || !belongs(c, s->of) || s->parts < 2 ||
                      s->of->kind != TS_VALUE_STATE || c->g->states[s->of->index].of ||
                      t->rank != 1 || (share && t->dtype != s->of->type.dtype) ||
                      t->dim[0] > TS_MAX_COUNT / s->parts ||
                      t->dim[0] * s->parts < ts_type_count(&s->of->type)))
            return say(c, text(c, s->value));
        if (!s->of && behind)
            return say(c, text(c, s->value));
    }
    return true;
}

/* In this order: a rule may count on those above it. */
static const struct {
    bool (*holds)(checker *c);
    const char *otherwise;
} graph_rules[] = {
    {names_unique, "inputs and states need names of their own"},
    {shares_fit, "a share needs a state that lies before it, and all shares room for all of it"},
    {outputs_exist, "an output is no value of the graph"},
    {loss_exists, "the loss is no value of the graph"},
    {loss_is_last_output, "the loss should be the last output"},
    {updates_are_of_states, "an update needs a state and a value of the graph"},
    {updates_keep_types, "an update has another type than its state"},
    {updates_have_phases, "an update is in no phase, or takes a value of a later one"},
    {updated_once, "a state is updated twice in one phase"},
    {updates_in_any_order, "an update takes a state that the same phase updates before"},
    {grads_are_of_params, "a gradient needs a trained parameter and a value of the graph"},
    {grads_have_types, "a gradient has another type than its parameter"},
    {one_grad_each, "a parameter has two gradients"},
};

/* --- asking them all --- */

static const char *with_detail(checker *c, const char *what)
{
    return c->detail ? ts_arena_printf(c->a, "%s (%s)", what, c->detail) : what;
}

static ts_status check_value(checker *c, int i)
{
    for (int k = 0; k < TS_COUNT(value_rules); k++)
        if (!value_rules[k].holds(c, c->g->values[i]))
            return ts_fail(TS_ERR_INTERNAL, "value %d of graph %s %s", i, c->g->name,
                           with_detail(c, value_rules[k].otherwise));
    return TS_OK;
}

static ts_status check_node(checker *c, const ts_node *n)
{
    for (int k = 0; k < TS_COUNT(node_rules); k++)
        if (!node_rules[k].holds(c, n))
            return ts_fail_at(n, TS_ERR_INTERNAL, "%s %s", n->op->name,
                              with_detail(c, node_rules[k].otherwise));
    for (int i = 0; i < n->nout; i++)
        c->computed[n->out[i]->id] = true;
    return TS_OK;
}

static ts_status check(checker *c)
{
    const ts_graph *g = c->g;

    for (int i = 0; i < g->nvalues; i++)
        TS_TRY(check_value(c, i));
    for (int i = 0; i < g->nvalues; i++)
        c->computed[i] = g->values[i]->kind != TS_VALUE_NODE;
    for (int i = 0; i < g->nnodes; i++)
        TS_TRY(check_node(c, g->nodes[i]));
    for (int k = 0; k < TS_COUNT(graph_rules); k++)
        if (!graph_rules[k].holds(c))
            return ts_fail(TS_ERR_INTERNAL, "graph %s: %s", g->name,
                           with_detail(c, graph_rules[k].otherwise));
    return TS_OK;
}

ts_status ts_graph_verify(const ts_graph *g)
{
    checker c = {.g = g};
    ts_status s = ts_graph_check(g);

    if (s)
        return s;
    c.a = ts_arena_new();
    c.scratch = ts_graph_in(c.a, "verify");
    c.computed = TS_NEWS(c.a, bool, g->nvalues);
    s = check(&c);
    ts_arena_free(c.a);
    if (s)
        ts_error_doing("checking graph %s", g->name);
    return s;
}
