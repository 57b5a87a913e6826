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

/* Of a parameter each; PyTorch's names, but for SGD's. */
static const struct {
    const char *ours, *theirs;
} slots[] = {
    {"momentum", "momentum_buffer"},
    {"exp_avg", "exp_avg"},
    {"exp_avg_sq", "exp_avg_sq"},
    {"max_exp_avg_sq", "max_exp_avg_sq"},
    {"exp_inf", "exp_inf"},
    {"square_avg", "square_avg"},
    {"grad_avg", "grad_avg"},
    {"momentum_buffer", "momentum_buffer"},
    {"sum", "sum"},
    {"acc_delta", "acc_delta"},
    {"prev", "prev"},
    {"step_size", "step_size"},
    {"ax", "ax"},
    {"row_var", "row_var"},
    {"col_var", "col_var"},
    {"variance", "variance"},
};

/* One for all parameters; PyTorch has it with each. */
static const char *const shared[] = {"mu_product", "eta", "mu"};

const ts_tensor_info *find_tensor(const run *r, const char *name)
{
    const ts_tensor_info *t;

    for (int i = 0; (t = ts_executable_tensor(r->exe, TS_ROLE_STATE, i)); i++)
        if (!strcmp(t->name, name))
            return t;
    return NULL;
}

ts_object *engine_tensor(const run *r, const char *name)
{
    const ts_tensor_info *t = find_tensor(r, name);
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
    return find_tensor(r, name) ? ts_object_set(state, slots[i].theirs, engine_tensor(r, name))
                                : TS_OK;
}

static ts_status put_shared(const run *r, ts_object *state)
{
    for (int i = 0; i < COUNT(shared); i++)
        if (find_tensor(r, shared[i]) &&
            ts_object_set(state, shared[i], engine_tensor(r, shared[i])))
            return TS_ERR_MEMORY;
    return TS_OK;
}

/* A number where the engine counts no steps: it is one in PyTorch 1.x. */
static ts_status put_step(const run *r, ts_object *state)
{
    if (r->optimizer.kind == TS_OPTIMIZER_SGD || r->optimizer.kind == TS_OPTIMIZER_MUON)
        return TS_OK;
    if (find_tensor(r, "step"))
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
        if (!s)
            s = put_shared(r, state);
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

/* What a kind's group has of ts_hyper, under PyTorch's names. */
static const struct {
    ts_optimizer_kind kind;
    const char *name;
    size_t offset;
} reals[] = {
#define REAL(kind, name, field)                                                                    \
    {                                                                                              \
        TS_OPTIMIZER_##kind, name, offsetof(ts_hyper, field)                                       \
    }
    REAL(SGD, "momentum", momentum),
    REAL(SGD, "dampening", dampening),
    REAL(RMSPROP, "momentum", momentum),
    REAL(RMSPROP, "alpha", alpha),
    REAL(RMSPROP, "eps", eps),
    REAL(ADAM, "eps", eps),
    REAL(ADAMW, "eps", eps),
    REAL(LAMB, "eps", eps),
    REAL(ADAGRAD, "lr_decay", lr_decay),
    REAL(ADAGRAD, "initial_accumulator_value", initial_accumulator_value),
    REAL(ADAGRAD, "eps", eps),
    REAL(ADADELTA, "rho", alpha),
    REAL(ADADELTA, "eps", eps),
    REAL(ADAMAX, "eps", eps),
    REAL(NADAM, "eps", eps),
    REAL(NADAM, "momentum_decay", momentum_decay),
    REAL(RADAM, "eps", eps),
    REAL(ASGD, "lambd", lambd),
    REAL(ASGD, "alpha", alpha),
    REAL(ASGD, "t0", t0),
    REAL(ADAFACTOR, "beta2_decay", beta2_decay),
    REAL(ADAFACTOR, "d", clip),
    REAL(MUON, "momentum", momentum),
    REAL(MUON, "eps", eps),
#undef REAL
};

static bool put_reals(const ts_optimizer *opt, ts_object *g)
{
    bool ok = true;
    double x;

    for (int i = 0; i < COUNT(reals); i++)
        if (reals[i].kind == opt->kind) {
            memcpy(&x, (const char *)&opt->hyper + reals[i].offset, sizeof(x));
            ok = ok && !put_real(g, reals[i].name, x);
        }
    return ok;
}

static bool put_betas(const ts_hyper *h, ts_object *g)
{
    return !ts_object_set(g, "betas", pair(h->beta1, h->beta2));
}

static bool put_adam(const ts_hyper *h, ts_object *g)
{
    return put_betas(h, g) && !put_flag(g, "amsgrad", h->amsgrad) &&
           !put_flag(g, "capturable", false) && !ts_object_set(g, "fused", ts_object_new_none());
}

static bool put_rprop(const ts_hyper *h, ts_object *g)
{
    return !ts_object_set(g, "etas", pair(h->eta_minus, h->eta_plus)) &&
           !ts_object_set(g, "step_sizes", pair(h->step_min, h->step_max));
}

/* (None, eps2): None is the type's own */
static ts_object *adafactor_eps(const ts_hyper *h)
{
    ts_object *t = ts_object_new_tuple();

    if (!ts_object_append(t, h->eps > 0 ? ts_object_new_float(h->eps) : ts_object_new_none()) &&
        !ts_object_append(t, ts_object_new_float(h->eps2)))
        return t;
    ts_object_free(t);
    return NULL;
}

static ts_object *triple(double a, double b, double c)
{
    ts_object *t = pair(a, b);

    if (!t || !ts_object_append(t, ts_object_new_float(c)))
        return t;
    ts_object_free(t);
    return NULL;
}

static bool put_muon(const ts_hyper *h, ts_object *g)
{
    return !ts_object_set(g, "ns_coefficients", triple(h->ns_a, h->ns_b, h->ns_c)) &&
           !ts_object_set(g, "ns_steps", ts_object_new_int(h->ns_steps ? h->ns_steps : 5)) &&
           !put_flag(g, "nesterov", h->nesterov) &&
           !ts_object_set(g, "adjust_lr_fn", ts_object_new_none());
}

/* What is no real number. */
static bool put_rest(const ts_optimizer *o, ts_object *g)
{
    const ts_hyper *h = &o->hyper;

    switch (o->kind) {
    case TS_OPTIMIZER_SGD:
        return !put_flag(g, "nesterov", h->nesterov);
    case TS_OPTIMIZER_RMSPROP:
        return !put_flag(g, "centered", o->centered);
    case TS_OPTIMIZER_ADAM:
    case TS_OPTIMIZER_ADAMW:
    case TS_OPTIMIZER_LAMB:
        return put_adam(h, g);
    case TS_OPTIMIZER_ADAMAX:
        return put_betas(h, g);
    case TS_OPTIMIZER_NADAM:
    case TS_OPTIMIZER_RADAM:
        return put_betas(h, g) && !put_flag(g, "decoupled_weight_decay", h->decoupled_weight_decay);
    case TS_OPTIMIZER_RPROP:
        return put_rprop(h, g);
    case TS_OPTIMIZER_ADAFACTOR:
        return !ts_object_set(g, "eps", adafactor_eps(h));
    case TS_OPTIMIZER_MUON:
        return put_muon(h, g);
    default:
        return true;
    }
}

static ts_object *group(const run *r)
{
    const ts_hyper *h = &r->optimizer.hyper;
    ts_object *g = ts_object_new_dict();

    if (g && !put_real(g, "lr", h->lr) && !put_real(g, "weight_decay", h->weight_decay) &&
        put_reals(&r->optimizer, g) && put_rest(&r->optimizer, g) &&
        !put_flag(g, "maximize", h->maximize) &&
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
