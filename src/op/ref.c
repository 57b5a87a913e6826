/* ref.c - the reference executor: every node by its op's plain loops, in order. Slow and obviously
 * right; the oracle of the tests, the constant folder, and what runs where there is no compiler. */
#include "op/op.h"

struct ts_ref {
    const ts_graph *g;
    ts_tensor *env;
};

static bool is_share(const ts_value *v)
{
    return v->kind == TS_VALUE_STATE && v->graph->states[v->index].use == TS_USE_SHARE;
}

/* A state's with all its shares, which may be more than all of it. */
static size_t room(const ts_value *v)
{
    size_t bytes = ts_type_bytes(&v->type);

    for (int i = 0; i < v->graph->nstates && v->kind == TS_VALUE_STATE; i++) {
        const ts_state *s = &v->graph->states[i];
        if (s->use == TS_USE_SHARE && s->of == v)
            bytes = TS_MAX(bytes, ts_type_bytes(&s->value->type) * (size_t)s->parts);
    }
    return bytes;
}

void ts_ref_replica(ts_ref *r, int replica)
{
    for (int i = 0; i < r->g->nstates; i++) {
        const ts_state *s = &r->g->states[i];
        if (s->use == TS_USE_SHARE)
            r->env[s->value->id].data =
                (char *)r->env[s->of->id].data + ts_type_bytes(&s->value->type) * (size_t)replica;
    }
}

ts_status ts_ref_new(const ts_graph *g, ts_ref **out)
{
    ts_ref *r = calloc(1, sizeof(*r));

    if (r)
        r->env = calloc((size_t)g->nvalues + 1, sizeof(ts_tensor));
    if (!r || !r->env) {
        free(r);
        return ts_fail(TS_ERR_MEMORY, "cannot allocate the reference executor");
    }
    r->g = g;
    for (int i = 0; i < g->nvalues; i++) {
        r->env[i].type = g->values[i]->type;
        if (!is_share(g->values[i]) && ts_alloc(room(g->values[i]), "a tensor", &r->env[i].data)) {
            ts_ref_free(r);
            return TS_ERR_MEMORY;
        }
    }
    ts_ref_replica(r, 0);
    *out = r;
    return TS_OK;
}

void ts_ref_free(ts_ref *r)
{
    if (!r)
        return;
    for (int i = 0; i < r->g->nvalues; i++)
        if (!is_share(r->g->values[i]))
            free(r->env[i].data);
    free(r->env);
    free(r);
}

ts_tensor *ts_ref_tensor(ts_ref *r, const ts_value *v)
{
    return &r->env[v->id];
}

static ts_status run_node(const ts_node *n, const ts_eval_ctx *c, ts_tensor *env)
{
    ts_tensor in[64], out[8];

    if (n->op->flags & TS_COMPOSITE || n->nin > TS_COUNT(in))
        return ts_fail_at(n, TS_ERR_INTERNAL, "%s cannot be evaluated as it is", n->op->name);
    for (int i = 0; i < n->nin; i++)
        in[i] = env[n->in[i]->id];
    for (int i = 0; i < n->nout; i++)
        out[i] = env[n->out[i]->id];
    return n->op->eval(n, c, in, out);
}

ts_status ts_ref_run(ts_ref *r, int phase, const ts_eval_ctx *c)
{
    const ts_graph *g = r->g;

    for (int i = 0; i < g->nnodes; i++)
        if (g->nodes[i]->phase == phase)
            TS_TRY(run_node(g->nodes[i], c, r->env));
    /* Every next value is computed before the first state changes; a next value that is itself a
     * state is read before it is overwritten only if updates are ordered so, which the verifier
     * asks. */
    for (int i = 0; i < g->nupdates; i++) {
        const ts_update *u = &g->updates[i];
        if (u->phase == phase && u->next != u->state)
            memcpy(r->env[u->state->id].data, r->env[u->next->id].data,
                   ts_type_bytes(&u->state->type));
    }
    return TS_OK;
}

ts_status ts_ref_fold(ts_arena *a, const ts_node *n, void **data)
{
    ts_tensor in[64], out[8];
    ts_eval_ctx c = {0};

    if (n->nin > TS_COUNT(in))
        return ts_fail_at(n, TS_ERR_INTERNAL, "too many inputs to fold");
    for (int i = 0; i < n->nin; i++) {
        in[i].type = n->in[i]->type;
        in[i].data = ts_arena_alloc(a, ts_type_bytes(&in[i].type));
        TS_TRY(n->in[i]->node->op->eval(n->in[i]->node, &c, NULL, &in[i]));
    }
    for (int i = 0; i < n->nout; i++) {
        out[i].type = n->out[i]->type;
        out[i].data = data[i] = ts_arena_alloc(a, ts_type_bytes(&out[i].type));
    }
    return n->op->eval(n, &c, in, out);
}
