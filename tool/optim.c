/* optim.c - what the optimizer keeps, in PyTorch's layout, so that a script can go on with
 * torch.optim.SGD(model.parameters(), ...).load_state_dict(checkpoint['optimizer_state_dict']).
 *
 *   engine                      {'state': {0: {'momentum_buffer': tensor}, 1: ...},
 *   "conv1.weight.momentum"  ->  'param_groups': [{'lr': 0.001, ..., 'params': [0, 1, ...]}]}
 *
 * Parameters are counted in the order of their layers, as model.parameters() gives them. PyTorch
 * counts steps for each parameter, the engine once for all.
 */
#include "train.h"
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *ours, *theirs;
} slots[] = {
    {"momentum", "momentum_buffer"},                               /* SGD     */
    {"exp_avg", "exp_avg"},                                        /* Adam    */
    {"exp_avg_sq", "exp_avg_sq"},    {"square_avg", "square_avg"}, /* RMSprop */
    {"grad_avg", "grad_avg"},        {"momentum_buffer", "momentum_buffer"},
};

static const ts_tensor_info *find_state(const run *r, const char *name)
{
    const ts_tensor_info *t;

    for (int i = 0; (t = ts_executable_tensor(r->exe, TS_ROLE_STATE, i)); i++)
        if (!strcmp(t->name, name))
            return t;
    return NULL;
}

ts_object *engine_tensor(const run *r, const char *name)
{
    const ts_tensor_info *t = find_state(r, name);
    ts_array a = {.dtype = t->dtype, .rank = t->rank, .bytes = t->bytes};
    ts_object *o = NULL;

    memcpy(a.dims, t->dims, sizeof(a.dims));
    a.data = malloc(t->bytes + 1);
    if (a.data && !ts_engine_read(r->engine, name, a.data, a.bytes))
        o = ts_object_new_tensor(&a);
    free(a.data);
    return o;
}

/* --- the states --- */

static ts_status put_slot(const run *r, ts_object *state, const char *param, int i)
{
    char name[512];

    snprintf(name, sizeof(name), "%s.%s", param, slots[i].ours);
    return find_state(r, name) ? ts_object_set(state, slots[i].theirs, engine_tensor(r, name))
                               : TS_OK;
}

/* RMSprop's step is a number in PyTorch; the others' are tensors. */
static ts_status put_step(const run *r, ts_object *state)
{
    if (r->optimizer.kind == TS_OPTIMIZER_SGD)
        return TS_OK;
    if (r->optimizer.kind != TS_OPTIMIZER_RMSPROP && find_state(r, "step"))
        return ts_object_set(state, "step", engine_tensor(r, "step"));
    return ts_object_set(state, "step", ts_object_new_int(r->done.updates));
}

static ts_status put_states(const run *r, ts_object *all)
{
    const char *param;
    bool trained;
    ts_status s = TS_OK;
    int64_t n = 0;

    for (int i = 0; !s && (param = ts_graph_state(r->graph, i, &trained)); i++) {
        ts_object *state = trained ? ts_object_new_dict() : NULL;
        if (!trained)
            continue;
        s = ts_object_set_int(all, n++, state);
        if (!s)
            s = put_step(r, state);
        for (int k = 0; !s && k < COUNT(slots); k++)
            s = put_slot(r, state, param, k);
    }
    return s;
}

/* --- the group --- */

static ts_object *pair(double a, double b)
{
    ts_object *t = ts_object_new_tuple();

    if (ts_object_append(t, ts_object_new_float(a)) ||
        ts_object_append(t, ts_object_new_float(b))) {
        ts_object_free(t);
        return NULL;
    }
    return t;
}

static ts_object *indices(const run *r)
{
    ts_object *list = ts_object_new_list();
    int64_t n = 0;
    bool trained;

    for (int i = 0; list && ts_graph_state(r->graph, i, &trained); i++)
        if (trained && ts_object_append(list, ts_object_new_int(n++))) {
            ts_object_free(list);
            return NULL;
        }
    return list;
}

static ts_status put_real(ts_object *o, const char *key, double v)
{
    return ts_object_set(o, key, ts_object_new_float(v));
}

static ts_status put_flag(ts_object *o, const char *key, bool v)
{
    return ts_object_set(o, key, ts_object_new_bool(v));
}

static bool put_sgd(const ts_hyper *h, ts_object *g)
{
    return !put_real(g, "momentum", h->momentum) && !put_real(g, "dampening", h->dampening) &&
           !put_flag(g, "nesterov", h->nesterov);
}

static bool put_rmsprop(const run *r, ts_object *g)
{
    const ts_hyper *h = &r->optimizer.hyper;

    return !put_real(g, "momentum", h->momentum) && !put_real(g, "alpha", h->alpha) &&
           !put_real(g, "eps", h->eps) && !put_flag(g, "centered", r->optimizer.centered);
}

static bool put_adam(const ts_hyper *h, ts_object *g)
{
    return !ts_object_set(g, "betas", pair(h->beta1, h->beta2)) && !put_real(g, "eps", h->eps) &&
           !put_flag(g, "amsgrad", false) && !put_flag(g, "capturable", false) &&
           !ts_object_set(g, "fused", ts_object_new_none());
}

static ts_object *group(const run *r)
{
    const ts_hyper *h = &r->optimizer.hyper;
    ts_object *g = ts_object_new_dict();
    bool ok = g && !put_real(g, "lr", h->lr) && !put_real(g, "weight_decay", h->weight_decay);

    if (ok)
        ok = r->optimizer.kind == TS_OPTIMIZER_SGD       ? put_sgd(h, g)
             : r->optimizer.kind == TS_OPTIMIZER_RMSPROP ? put_rmsprop(r, g)
                                                         : put_adam(h, g);
    if (ok && !put_flag(g, "maximize", false) &&
        !ts_object_set(g, "foreach", ts_object_new_none()) &&
        !put_flag(g, "differentiable", false) && !ts_object_set(g, "params", indices(r)))
        return g;
    ts_object_free(g);
    return NULL;
}

ts_object *optimizer_object(const run *r)
{
    ts_object *o = ts_object_new_dict(), *states = ts_object_new_dict(),
              *groups = ts_object_new_list();
    bool ok = !ts_object_set(o, "state", states);

    ok = !ts_object_set(o, "param_groups", groups) && ok;
    if (ok && !put_states(r, states) && !ts_object_append(groups, group(r)))
        return o;
    ts_object_free(o);
    return NULL;
}

/* --- back --- */

/* "conv1.weight.momentum" -> parameter 0, slot 0 */
static bool slot_of(const run *r, const char *name, int64_t *param, int *slot)
{
    const char *dot = strrchr(name, '.'), *p;
    bool trained;

    *param = 0;
    for (int i = 0; dot && (p = ts_graph_state(r->graph, i, &trained)); i++) {
        if (trained && strlen(p) == (size_t)(dot - name) && !strncmp(p, name, strlen(p)))
            for (*slot = 0; *slot < COUNT(slots); ++*slot)
                if (!strcmp(slots[*slot].ours, dot + 1))
                    return true;
        *param += trained;
    }
    return false;
}

bool is_optimizer_state(const run *r, const char *name)
{
    int64_t param;
    int slot;

    return slot_of(r, name, &param, &slot);
}

const ts_array *optimizer_state(const run *r, const ts_object *o, const char *name)
{
    int64_t param;
    int slot;

    if (!slot_of(r, name, &param, &slot))
        return NULL;
    o = ts_object_get_int(ts_object_get(o, "state"), param);
    return ts_object_array(ts_object_get(o, slots[slot].theirs));
}
