/* optimizer.c - grads become updates of the weights and of the optimiser's state.
 *
 *   before                           after, SGD with momentum 0.9
 *     %8 = matmul %x, %dy              %8  = matmul %x, %dy
 *     grad %w = %8                     %10 = mul %w.momentum, 0.9
 *                                      %11 = add %10, %8
 *                                      %12 = mul %lr, %11
 *                                      %13 = sub %w, %12
 *                                      update %w.momentum = %11, %w = %13
 *
 *   with gradient accumulation       %10 = add %w.accum, %8          phase 0
 *                                      update %w.accum = %10         phase 0
 *                                      ... the update reads %w.accum phase 1
 *                                      update %w.accum = full 0      phase 1
 *
 * needs   grads of the loss times the loss scale (autodiff); no composite op is made here
 * keeps   every node and update that was there
 * leaves  no grads; an update for each parameter that had one. Without accumulation all is phase 0,
 *         so that a gradient and its update can be one kernel
 *
 * Replicas add up the accumulators, marked `summed`, between the two phases; they need them even
 * for a single micro-batch.
 *
 * State is named after its parameter: w.accum, w.momentum (SGD), w.exp_avg and w.exp_avg_sq (Adam,
 * AdamW, LAMB), w.square_avg, w.grad_avg and w.momentum_buffer (RMSprop). All parameters are
 * updated together, so they share one `step`. A hyper-parameter marked variable is a rank-0 f32
 * state ("lr", "lr.1" for the first group); the others are constants, and what they make trivial is
 * not built: a weight decay of 0 adds no node.
 *
 * With an automatic loss scale (scaling.c) what an update stores is picked: where(ok, next, state).
 *
 * Arithmetic is in f32 whatever the weights are, and in f64 for f64 weights. Values are rounded to
 * their storage types when stored, never in between.
 */
#include "pass/update.h"

/* --- hyper-parameters --- */

#define KIND(name) (1 << TS_OPTIMIZER_##name)
enum {
    SGD = KIND(SGD),
    LAMB = KIND(LAMB),
    RMSPROP = KIND(RMSPROP),
    ADAMS = KIND(ADAM) | KIND(ADAMW) | LAMB | KIND(ADAMAX) | KIND(NADAM) | KIND(RADAM),
    RPROP = KIND(RPROP),
    FACTOR = KIND(ADAFACTOR),
    MUON = KIND(MUON),
    ALL = ~0
};
enum { FINITE, NOT_NEGATIVE, FRACTION, POSITIVE, NOT_POSITIVE, ABOVE_1 };

static const struct {
    const char *name;
    unsigned bit;  /* in ts_optimizer.variable; 0: always compiled in */
    int users;     /* kinds of optimisers */
    int range;     /* FINITE ... */
    size_t offset; /* in ts_hyper */
} hypers[NHYPERS] = {
#define FIELD(name) offsetof(ts_hyper, name)
    [LR] = {"lr", TS_HYPER_LR, ALL, NOT_NEGATIVE, FIELD(lr)},
    [MOMENTUM] = {"momentum", TS_HYPER_MOMENTUM, SGD | RMSPROP | MUON, NOT_NEGATIVE,
                  FIELD(momentum)},
    [DAMPENING] = {"dampening", TS_HYPER_DAMPENING, SGD, FINITE, FIELD(dampening)},
    [DECAY] = {"weight_decay", TS_HYPER_WEIGHT_DECAY, ALL & ~RPROP, NOT_NEGATIVE,
               FIELD(weight_decay)},
    [BETA1] = {"beta1", TS_HYPER_BETAS, ADAMS, FRACTION, FIELD(beta1)},
    [BETA2] = {"beta2", TS_HYPER_BETAS, ADAMS, FRACTION, FIELD(beta2)},
    [EPS] = {"eps", TS_HYPER_EPS, ALL & ~(SGD | RPROP | KIND(ASGD)), NOT_NEGATIVE, FIELD(eps)},
    [ALPHA] = {"alpha", TS_HYPER_ALPHA, RMSPROP | KIND(ADADELTA) | KIND(ASGD), FRACTION,
               FIELD(alpha)},
    [MAX_NORM] = {"max_weight_norm", TS_HYPER_MAX_WEIGHT_NORM, LAMB, POSITIVE,
                  FIELD(max_weight_norm)},
    [SCALING] = {"velocity_scaling", TS_HYPER_VELOCITY_SCALING, SGD, POSITIVE,
                 FIELD(velocity_scaling)},
    [LR_DECAY] = {"lr_decay", 0, KIND(ADAGRAD), NOT_NEGATIVE, FIELD(lr_decay)},
    [START] = {"initial_accumulator_value", 0, KIND(ADAGRAD), NOT_NEGATIVE,
               FIELD(initial_accumulator_value)},
    [MOMENTUM_DECAY] = {"momentum_decay", 0, KIND(NADAM), NOT_NEGATIVE, FIELD(momentum_decay)},
    [LAMBD] = {"lambd", 0, KIND(ASGD), FINITE, FIELD(lambd)},
    [T0] = {"t0", 0, KIND(ASGD), FINITE, FIELD(t0)},
    [ETA_MINUS] = {"eta_minus", 0, RPROP, FRACTION, FIELD(eta_minus)},
    [ETA_PLUS] = {"eta_plus", 0, RPROP, ABOVE_1, FIELD(eta_plus)},
    [STEP_MIN] = {"step_min", 0, RPROP, NOT_NEGATIVE, FIELD(step_min)},
    [STEP_MAX] = {"step_max", 0, RPROP, NOT_NEGATIVE, FIELD(step_max)},
    [BETA2_DECAY] = {"beta2_decay", 0, FACTOR, NOT_POSITIVE, FIELD(beta2_decay)},
    [EPS2] = {"eps2", 0, FACTOR, NOT_NEGATIVE, FIELD(eps2)},
    [CLIP] = {"clip", 0, FACTOR, POSITIVE, FIELD(clip)},
    [NS_A] = {"ns_a", 0, MUON, FINITE, FIELD(ns_a)},
    [NS_B] = {"ns_b", 0, MUON, FINITE, FIELD(ns_b)},
    [NS_C] = {"ns_c", 0, MUON, FINITE, FIELD(ns_c)},
};

static double hyper_value(const ts_hyper *h, int i)
{
    double x;

    memcpy(&x, (const char *)h + hypers[i].offset, sizeof(x));
    return x;
}

static bool combined(const ts_optimizer *o)
{
    return o->kind == TS_OPTIMIZER_SGD && o->combined_accum;
}

static bool uses(const ts_optimizer *o, int i)
{
    return hypers[i].users >> o->kind & 1 && (i != SCALING || combined(o));
}

static const ts_hyper *hyper_of(const ts_optimizer *o, int group)
{
    return group ? &o->groups[group - 1].hyper : &o->hyper;
}

/* "lr", and "lr.1" for the first group */
static const char *hyper_name(ts_arena *a, int i, int group)
{
    return group ? ts_arena_printf(a, "%s.%d", hypers[i].name, group) : hypers[i].name;
}

static bool variable(const ts_optimizer *o, int i)
{
    return uses(o, i) && o->variable & hypers[i].bit;
}

static ts_hyper without_variables(const ts_optimizer *o, ts_hyper h)
{
    for (int i = 0; i < NHYPERS; i++)
        if (variable(o, i))
            memset((char *)&h + hypers[i].offset, 0, sizeof(double));
    return h;
}

const ts_optimizer *ts_optimizer_fixed(ts_arena *a, const ts_optimizer *o)
{
    ts_optimizer *out = ts_arena_copy(a, o, sizeof(*o));
    ts_group *groups = TS_NEWS(a, ts_group, o->ngroups);

    out->hyper = without_variables(o, o->hyper);
    for (int i = 0; i < o->ngroups; i++) {
        groups[i] = o->groups[i];
        groups[i].hyper = without_variables(o, o->groups[i].hyper);
    }
    out->groups = groups;
    if (ts_scaling_varies(o))
        out->loss_scaling = 0;
    return out;
}

bool ts_optimizer_start(ts_arena *a, const ts_optimizer *o, const char *state, double *start)
{
    if (ts_scaling_varies(o) && !strcmp(state, "loss_scaling")) {
        *start = o->loss_scaling;
        return true;
    }
    for (int group = 0; group <= o->ngroups; group++)
        for (int i = 0; i < NHYPERS; i++)
            if (variable(o, i) && !strcmp(state, hyper_name(a, i, group))) {
                *start = hyper_value(hyper_of(o, group), i);
                return true;
            }
    return false;
}

/* --- is it possible? --- */

static ts_status check_range(const char *name, int group, double x, int range)
{
    static const struct {
        double low, high;
        bool open_low, open_high;
        const char *words;
    } ranges[] = {
        [FINITE] = {-INFINITY, INFINITY, true, true, "finite"},
        [NOT_NEGATIVE] = {0, INFINITY, false, true, "at least 0"},
        [FRACTION] = {0, 1, false, true, "at least 0 and below 1"},
        [POSITIVE] = {0, INFINITY, true, true, "above 0"},
        [NOT_POSITIVE] = {-INFINITY, 0, true, false, "at most 0"},
        [ABOVE_1] = {1, INFINITY, true, true, "above 1"},
    };
    bool ok = (ranges[range].open_low ? x > ranges[range].low : x >= ranges[range].low) &&
              (ranges[range].open_high ? x < ranges[range].high : x <= ranges[range].high);

    if (ok)
        return TS_OK;
    if (group)
        return ts_fail(TS_ERR_ARG, "%s of parameter group %d is %g; it must be %s", name, group, x,
                       ranges[range].words);
    return ts_fail(TS_ERR_ARG, "%s of the optimizer is %g; it must be %s", name, x,
                   ranges[range].words);
}

/* What changes the rule, and is not of this one. */
static ts_status check_flags(const ts_optimizer *o, const ts_hyper *h)
{
    int ams = KIND(ADAM) | KIND(ADAMW), decoupled = KIND(ADAM) | KIND(NADAM) | KIND(RADAM);
    int nesterov = SGD | MUON;

    if (h->amsgrad && !(ams >> o->kind & 1))
        return ts_fail(TS_ERR_ARG, "amsgrad is a variant of Adam and AdamW only");
    if (h->decoupled_weight_decay && !(decoupled >> o->kind & 1))
        return ts_fail(TS_ERR_ARG,
                       "decoupled_weight_decay is a variant of Adam, NAdam and RAdam only");
    if (h->nesterov && !(nesterov >> o->kind & 1))
        return ts_fail(TS_ERR_ARG, "Nesterov momentum is a variant of SGD and Muon only");
    if (o->kind == TS_OPTIMIZER_MUON && (h->ns_steps < 0 || h->ns_steps > 99))
        return ts_fail(TS_ERR_ARG,
                       "ns_steps of the optimizer is %d; it must be 0 (which is 5) to "
                       "99",
                       h->ns_steps);
    if (o->kind == TS_OPTIMIZER_MUON && (unsigned)h->adjust_lr > TS_LR_ADJUST_SPECTRAL_UNCLAMPED)
        return ts_fail(TS_ERR_ARG, "there is no adjust_lr %d", (int)h->adjust_lr);
    return TS_OK;
}

static ts_status check_group(const ts_optimizer *o, int group)
{
    const ts_hyper *h = hyper_of(o, group);

    for (int i = 0; i < NHYPERS; i++)
        if (uses(o, i))
            TS_TRY(check_range(hypers[i].name, group, hyper_value(h, i), hypers[i].range));
    TS_TRY(check_flags(o, h));
    if (o->kind != TS_OPTIMIZER_SGD || !h->nesterov)
        return TS_OK;
    if (h->momentum <= 0 || h->dampening != 0)
        return ts_fail(TS_ERR_ARG,
                       "Nesterov momentum needs a momentum and no dampening, got %g and %g",
                       h->momentum, h->dampening);
    if (combined(o))
        return ts_fail(TS_ERR_UNSUPPORTED,
                       "Nesterov momentum needs a velocity of its own, not a combined one");
    return TS_OK;
}

static ts_status check_lists(const ts_optimizer *o)
{
    if (o->ngroups < 0 || (o->ngroups && !o->groups))
        return ts_fail(TS_ERR_ARG, "the optimizer has %d parameter groups at %s", o->ngroups,
                       o->groups ? "an address" : "NULL");
    for (int i = 0; i < o->ngroups; i++) {
        const ts_group *g = &o->groups[i];
        if (g->nparams < 0 || (g->nparams && !g->params))
            return ts_fail(TS_ERR_ARG, "parameter group %d has %d names at %s", i + 1, g->nparams,
                           g->params ? "an address" : "NULL");
        for (int k = 0; k < g->nparams; k++)
            if (!g->params[k])
                return ts_fail(TS_ERR_ARG, "name %d of parameter group %d is NULL", k, i + 1);
    }
    return TS_OK;
}

static ts_status check_storage(const char *what, ts_dtype t)
{
    if (t == TS_F32 || t == TS_F16)
        return TS_OK;
    return ts_fail(TS_ERR_ARG, "%s of the optimizer is %s; it must be f32 or f16", what,
                   ts_dtype_name(t));
}

/* The combined velocity is all there is of the gradients: it cannot be clipped or averaged. */
static ts_status check_combined(const ts_options *opt)
{
    const ts_optimizer *o = opt->optimizer;

    if (!combined(o))
        return TS_OK;
    if (opt->replicas > 1 || opt->processes > 1) {
        ts_fail(TS_ERR_UNSUPPORTED, "replicas cannot add up gradients in a combined velocity");
        ts_error_hint("leave combined_accum (use_combined_accum) off");
        return TS_ERR_UNSUPPORTED;
    }
    if (opt->gradient_accumulation <= 1)
        return TS_OK;
    if (o->max_grad_norm > 0 || o->max_grad_value > 0)
        return ts_fail(
            TS_ERR_UNSUPPORTED,
            "a combined velocity cannot clip gradients accumulated over %d micro-batches",
            opt->gradient_accumulation);
    if (opt->accumulate_running && !opt->accumulate_sum)
        return ts_fail(TS_ERR_UNSUPPORTED, "a combined velocity cannot keep a running mean");
    return TS_OK;
}

ts_status ts_optimizer_check(const ts_options *opt)
{
    const ts_optimizer *o = opt->optimizer;

    if (!ts_update_rule_of(o))
        return ts_fail(TS_ERR_ARG, "there is no optimizer of kind %d", (int)o->kind);
    TS_TRY(check_lists(o));
    for (int i = 0; i <= o->ngroups; i++)
        TS_TRY(check_group(o, i));
    if (check_range("loss_scaling", 0, o->loss_scaling, POSITIVE)) {
        ts_error_hint("ts_sgd(), ts_adam() and so on make optimizers with a value for everything");
        return TS_ERR_ARG;
    }
    if (!(o->max_grad_norm >= 0)) /* infinity means no clipping too */
        return ts_fail(TS_ERR_ARG, "max_grad_norm of the optimizer is %g; it must be at least 0",
                       o->max_grad_norm);
    if (!(o->max_grad_value >= 0))
        return ts_fail(TS_ERR_ARG, "max_grad_value of the optimizer is %g; it must be at least 0",
                       o->max_grad_value);
    if (opt->shard_optimizer && opt->replicas > 1 && ts_update_rule_of(o)->whole)
        return ts_fail(TS_ERR_UNSUPPORTED,
                       "shard_optimizer is not supported with %s, whose step "
                       "depends on all of a parameter",
                       ts_update_rule_of(o)->name);
    TS_TRY(check_storage("accum_type", o->accum_type));
    TS_TRY(check_storage("first_type", o->first_type));
    TS_TRY(check_storage("second_type", o->second_type));
    TS_TRY(ts_scaling_check(opt));
    return check_combined(opt);
}

/* --- what the updates share --- */

/* A node that only says where made nodes come from; an update is not part of the backward pass. */
static ts_node place_of(const ts_node *n)
{
    if (!n)
        return (ts_node){.layer = "optimizer", .block = "", .inner = true};
    return (ts_node){
        .layer = n->layer, .block = n->block, .file = n->file, .line = n->line, .inner = true};
}

static ts_value *add_state(context *c, const char *name, ts_type t, double start)
{
    bool taken = ts_graph_find_state(c->g, name) != NULL;

    for (int i = 0; i < c->g->ninputs; i++)
        taken = taken || !strcmp(c->g->inputs[i]->name, name);
    if (taken && !c->g->status) {
        c->g->status = ts_fail(TS_ERR_ARG,
                               "the name '%s' is taken, and the optimizer needs it for "
                               "its own state",
                               name);
        ts_error_hint("rename the input, parameter or buffer of that name");
        c->g->error = *ts_last_error();
    }
    return ts_graph_add_state(c->g, name, t, (ts_init){TS_INIT_FULL, start, 0}, false);
}

static ts_value *add_scalar_state(context *c, const char *name, double start)
{
    return add_state(c, name, ts_type_scalar(TS_F32), start);
}

ts_value *ts_update_group_state(context *c, const char *name, int group, double start)
{
    return add_scalar_state(c, group ? ts_arena_printf(c->g->arena, "%s.%d", name, group) : name,
                            start);
}

const ts_hyper *ts_update_hyper(const context *c, int group)
{
    return hyper_of(c->o, group);
}

/* Variable hyper-parameters exist even when no parameter is in their group: whoever sets "lr" finds
 * it. */
static void add_hypers(context *c)
{
    const ts_optimizer *o = c->o;
    int n = (o->ngroups + 1) * NHYPERS;

    c->hyper = TS_NEWS(c->g->arena, ts_value *, n);
    for (int group = 0; group <= o->ngroups; group++)
        for (int i = 0; i < NHYPERS; i++)
            if (variable(o, i))
                c->hyper[group * NHYPERS + i] = add_scalar_state(
                    c, hyper_name(c->g->arena, i, group), hyper_value(hyper_of(o, group), i));
}

/* 1 / (1 - beta^t). By expm1: in f32, 1 - 0.999^t loses five digits when t is small. */
static num bias_fix(num beta, num t)
{
    num log_beta = natural_log(beta);

    if (is(beta, 0))
        return constant(1);
    return over(constant(-1), less_one(times(t, log_beta)));
}

/* Undoes the loss scale, makes the sum of the micro-batches a mean, and turns it when the loss is to
 * grow. */
static num unscale(context *c, int group, ts_dtype math)
{
    num scale = constant(c->o->loss_scaling);
    double sums = c->sums;

    if (ts_scaling_varies(c->o))
        scale = tensor(ts_cast(ts_graph_find_state(c->g, "loss_scaling"), math));
    if (c->running)
        sums /= c->accumulation;
    sums = c->opt->accumulate_sum ? 1 : 1 / sums;
    return over(constant(hyper_of(c->o, group)->maximize ? -sums : sums), scale);
}

/* The kind's own scalars are made once, in f64: differences of numbers near 1 are among them. */
static void add_own(context *c, int group, ts_dtype math, rates *r)
{
    const ts_update_rule *rule = ts_update_rule_of(c->o);
    const rates *exact;

    if (!rule->scalars || !c->next_t)
        return;
    if (math == TS_F64) {
        rule->scalars(c, group, r);
        return;
    }
    exact = ts_update_rates(c, group, TS_F64);
    c->g->like = &c->shared;
    for (int i = 0; i < TS_COUNT(r->own); i++)
        r->own[i] = exact->own[i].v ? tensor(ts_cast(exact->own[i].v, math)) : exact->own[i];
}

const rates *ts_update_rates(context *c, int group, ts_dtype math)
{
    rates **known = &c->rates[group][math == TS_F64][c->g->phase], *r = *known;
    const ts_node *like = c->g->like;

    if (r)
        return r;
    *known = r = TS_NEW(c->g->arena, rates);
    c->g->like = &c->shared;
    for (int i = 0; i < NHYPERS; i++) {
        ts_value *state = c->hyper[group * NHYPERS + i];
        r->h[i] =
            state ? tensor(ts_cast(state, math)) : constant(hyper_value(hyper_of(c->o, group), i));
    }
    r->keep = minus(constant(1), r->h[DAMPENING]);
    r->unscale = unscale(c, group, math);
    r->fix1 = r->fix2 = constant(1);
    if (c->next_t && c->o->bias_correction) {
        num t = tensor(ts_cast(c->next_t, math));
        r->fix1 = bias_fix(r->h[BETA1], t);
        r->fix2 = bias_fix(r->h[BETA2], t);
    }
    add_own(c, group, math, r);
    c->g->like = like;
    return r;
}

/* --- state of a parameter --- */

static void mark_share(context *c, ts_value *v, ts_value *of)
{
    c->g->states[v->index].of = of;
    c->g->states[v->index].parts = c->opt->replicas;
}

/* Elements that v takes at most: the rows of a matrix may be filled up to vectors
 * (pass/layout.c). */
static int64_t most_elements(const ts_value *v)
{
    int64_t n = ts_type_count(&v->type), most = n;

    for (int width = 4; width <= 16 && v->type.rank == 2; width *= 2)
        if (v->type.dim[1] > 4 * width)
            most = TS_MAX(most, v->type.dim[0] * TS_ROUND_UP(v->type.dim[1], width));
    return most;
}

/* The replica's part of what lies like w: as many elements for each, a multiple of a cache line. */
static ts_value *share_of(context *c, ts_value *v)
{
    enum { LINE = 64 };
    int64_t n = most_elements(v), unit = LINE / (int64_t)ts_dtype_size(v->type.dtype);
    ts_type t = {.dtype = v->type.dtype, .rank = 1};
    ts_value *part;

    t.dim[0] = TS_ROUND_UP((n + c->opt->replicas - 1) / c->opt->replicas, unit);
    part = add_state(c, ts_arena_printf(c->g->arena, "%s.share", v->name), t, 0);
    c->g->states[part->index].use = TS_USE_SHARE;
    mark_share(c, part, v);
    return part;
}

/* Is there state to split, and does all of its parameter lie alike? */
static bool sharded(const context *c, const param *p)
{
    int64_t least = c->opt->shard_least ? c->opt->shard_least : 8192;
    bool keeps = c->o->kind != TS_OPTIMIZER_SGD || variable(c->o, MOMENTUM) ||
                 hyper_of(c->o, p->group)->momentum != 0;

    return c->opt->shard_optimizer && c->opt->replicas > 1 && keeps &&
           ts_type_count(&p->w->type) >= least && p->w->type.dtype == c->o->accum_type &&
           !ts_replica_group_of(c->opt, p->w->name, false);
}

/* The default storage of an f64 parameter's state is f64: f32 would lose what f64 was asked for. */
static ts_dtype storage_of(const param *p, ts_dtype storage)
{
    return p->math == TS_F64 && storage == TS_F32 ? TS_F64 : storage;
}

static ts_value *add_slot(context *c, const param *p, const char *suffix, ts_type t, double start)
{
    ts_value *v = add_state(c, ts_arena_printf(c->g->arena, "%s.%s", p->w->name, suffix), t, start);

    c->g->states[v->index].use = TS_USE_MOMENT;
    return v;
}

ts_value *ts_update_slot_of(context *c, const param *p, const char *suffix, ts_type t)
{
    t.dtype = storage_of(p, t.dtype);
    return add_slot(c, p, suffix, t, 0);
}

ts_value *ts_update_slot(context *c, const param *p, const char *suffix, ts_dtype storage,
                         double start)
{
    ts_type t = p->w->type;
    ts_value *v;

    t.dtype = storage_of(p, storage);
    if (p->part) {
        t.rank = 1;
        t.dim[0] = p->part->type.dim[0];
    }
    v = add_slot(c, p, suffix, t, start);
    if (p->part)
        mark_share(c, v, p->w);
    return v;
}

/* The count of micro-batches for the parameters of a block: each block may be on a device of its
 * own, which is at a micro-batch of its own. */
static ts_value *count_of(context *c, const char *block)
{
    ts_arena *a = c->g->arena;
    ts_value *v;

    if (c->opt->nstages < 2 && c->opt->devices < 2)
        block = "";
    for (int i = 0; i < c->ncounts; i++)
        if (!strcmp(c->count_blocks[i], block))
            return c->counts[i];
    v = add_scalar_state(
        c, block[0] ? ts_arena_printf(a, "micro_batches.%s", block) : "micro_batches", 0);
    c->counts = ts_arena_grow(a, c->counts, c->ncounts, sizeof(*c->counts));
    c->count_blocks = ts_arena_grow(a, c->count_blocks, c->ncounts, sizeof(*c->count_blocks));
    c->counts[c->ncounts] = v;
    c->count_blocks[c->ncounts++] = block;
    return v;
}

void ts_update_store(context *c, ts_value *state, num next)
{
    ts_value *v =
        next.v ? ts_cast(next.v, state->type.dtype)
               : ts_full_n(c->g, state->type.dtype, next.c, state->type.rank, state->type.dim);

    if (v && c->ok)
        v = ts_where(c->ok, v, state);
    if (v && v != state)
        ts_graph_add_update(c->g, state, v, c->g->phase);
}

/* --- gradients: accumulate, reduce, unscale, clip --- */

/* accum + g, or the mean of the n + 1 so far: accum * n/(n+1) + g/(n+1) */
static num accumulated(context *c, const param *p)
{
    num g = load(p, p->dw), sum = load(p, p->accum), n, part;

    if (!c->running)
        return plus(sum, g);
    n = load(p, count_of(c, p->like.block));
    part = over(constant(1), plus(n, constant(1)));
    g = times(g, part);
    return plus(times(sum, times(n, part)), g);
}

static void accumulate(context *c, param *p)
{
    const rates *r;
    num factor, v;

    c->g->like = &p->like;
    if (!combined(c->o)) {
        p->accum = ts_update_slot(c, p, "accum", c->o->accum_type, 0);
        c->g->states[p->accum->index].use = TS_USE_SUMMED;
        ts_update_store(c, p->accum, accumulated(c, p));
        if (!sharded(c, p))
            return;
        p->part = share_of(c, p->w);
        p->accum_part = share_of(c, p->accum);
        return;
    }
    r = ts_update_rates(c, p->group, p->math);
    factor = times(times(r->keep, r->h[SCALING]), r->unscale);
    p->accum = ts_update_slot(c, p, "momentum", TS_F32, 0);
    v = load(p, p->accum);
    ts_update_store(c, p->accum, plus(v, times(load(p, p->dw), factor)));
}

/* Each count on its block's device. */
static void store_counts(context *c, bool reset)
{
    ts_node like = c->shared;

    for (int i = 0; i < c->ncounts; i++) {
        like.block = c->count_blocks[i];
        c->g->like = &like;
        ts_update_store(c, c->counts[i],
                        reset ? constant(0) : plus(tensor(c->counts[i]), constant(1)));
    }
    c->g->like = &c->shared;
}

static void accumulate_all(context *c, param *p, int n)
{
    if (c->running && c->opt->nstages < 2 && c->opt->devices < 2)
        (void)count_of(c, "");
    for (int i = 0; i < n; i++)
        accumulate(c, &p[i]);
    store_counts(c, false);
}

/* For the next A micro-batches. A combined velocity is not reset: it lives on. */
static void reset_all(context *c, param *p, int n)
{
    for (int i = 0; i < n; i++) {
        c->g->like = &p[i].like;
        if (!combined(c->o) && !p[i].part) /* what is sharded the engine clears */
            ts_update_store(c, p[i].accum, constant(0));
    }
    store_counts(c, true);
}

/* What was added up, reduced, unscaled and clipped by value. */
static num gradient(context *c, const param *p, ts_value *from)
{
    const rates *r = ts_update_rates(c, p->group, p->math);
    double limit = c->o->max_grad_value;
    num g;

    c->g->like = &p->like;
    g = times(load(p, from), r->unscale);
    if (limit > 0 && isfinite(limit))
        g = at_least(at_most(g, constant(limit)), constant(-limit));
    return g;
}

/* Multiplies every gradient with max / max(norm, max), the norm being that of all of them
 * together. */
static void clip_norm(context *c, param *p, int n)
{
    ts_dtype math = TS_F32;
    num sum = constant(0), factor;
    num max = constant(c->o->max_grad_norm);

    for (int i = 0; i < n; i++)
        math = p[i].math == TS_F64 ? TS_F64 : math;
    for (int i = 0; i < n; i++) {
        num g =
            p[i].part ? gradient(c, &p[i], p[i].accum) : p[i].g; /* all of it, also of a share */
        c->g->like = &p[i].like;
        sum = plus(sum, tensor(ts_cast(sum_squares(g).v, math)));
    }
    c->g->like = &c->shared;
    factor = over(max, at_least(root(sum), max));
    for (int i = 0; i < n; i++) {
        c->g->like = &p[i].like;
        p[i].g = times(p[i].g, tensor(ts_cast(factor.v, p[i].math)));
    }
}

/* Gradients as they come, before anything is undone: those of f16 tell of the scale or, if there
 * are none, all do. */
static void scale_itself(context *c, param *p, int n)
{
    ts_scaled *x = TS_NEWS(c->g->arena, ts_scaled, n);
    ts_scaling s = {.o = c->o,
                    .loss = c->g->loss ? c->g->loss->type.dtype : TS_F32,
                    .scale = ts_graph_find_state(c->g, "loss_scaling"),
                    .grads = x,
                    .n = n,
                    .like = &c->shared};
    bool halves = false;

    for (int i = 0; i < n; i++)
        halves = halves || p[i].dw->type.dtype == TS_F16;
    for (int i = 0; i < n; i++) {
        double sums = c->running ? c->sums / c->accumulation : c->sums;
        x[i] = (ts_scaled){p[i].accum ? p[i].accum : p[i].dw, ts_scaling_edge(c->o) * sums,
                           !halves || p[i].dw->type.dtype == TS_F16, &p[i].like};
    }
    if (c->o->scaling_period > 1) {
        s.updates = add_scalar_state(c, "loss_scaling.updates", 0);
        s.above = add_scalar_state(c, "loss_scaling.above", 0);
    }
    c->ok = ts_scaling_build(c->g, &s);
}

static void find_gradients(context *c, param *p, int n)
{
    for (int i = 0; i < n; i++)
        p[i].g = gradient(c, &p[i],
                          p[i].part    ? p[i].accum_part
                          : p[i].accum ? p[i].accum
                                       : p[i].dw);
    if (c->o->max_grad_norm > 0 && isfinite(c->o->max_grad_norm))
        clip_norm(c, p, n);
}

static void update(context *c, param *p)
{
    const rates *r = ts_update_rates(c, p->group, p->math);
    ts_value *w = p->part ? p->part : p->w;

    c->g->like = &p->like;
    ts_update_store(c, w, ts_update_rule_of(c->o)->next(c, p, r, load(p, w)));
}

/* --- groups --- */

static bool matches(const char *pattern, const char *name)
{
    size_t n = strlen(pattern);

    if (n && pattern[n - 1] == '*')
        return !strncmp(pattern, name, n - 1);
    return !strcmp(pattern, name);
}

static bool in_group(const ts_group *group, const char *name)
{
    for (int i = 0; i < group->nparams; i++)
        if (matches(group->params[i], name))
            return true;
    return false;
}

/* Every name of every group must be some parameter's; it may be a frozen one. */
static ts_status check_names(const ts_graph *g, const ts_optimizer *o)
{
    for (int i = 0; i < o->ngroups; i++)
        for (int k = 0; k < o->groups[i].nparams; k++) {
            const char *pattern = o->groups[i].params[k];
            bool found = false;
            for (int s = 0; s < g->nstates; s++)
                found = found || matches(pattern, g->states[s].value->name);
            if (!found)
                return ts_fail(TS_ERR_ARG,
                               "parameter group %d names '%s', which the graph does "
                               "not have",
                               i + 1, pattern);
        }
    return TS_OK;
}

static ts_status find_group(const ts_optimizer *o, const char *name, int *group)
{
    *group = 0;
    for (int i = 0; i < o->ngroups; i++) {
        if (!in_group(&o->groups[i], name))
            continue;
        if (*group)
            return ts_fail(TS_ERR_ARG, "parameter '%s' is in the groups %d and %d", name, *group,
                           i + 1);
        *group = i + 1;
    }
    return TS_OK;
}

static ts_status check_rank(const ts_optimizer *o, const ts_value *w)
{
    if (!ts_update_rule_of(o)->matrices || w->type.rank == 2)
        return TS_OK;
    ts_fail(TS_ERR_UNSUPPORTED, "%s updates matrices only, and '%s' has %d dims",
            ts_update_rule_of(o)->name, w->name, w->type.rank);
    ts_error_hint("freeze it (requires_grad false), or train all with another optimizer");
    return TS_ERR_UNSUPPORTED;
}

/* --- the pass --- */

static ts_status find_params(context *c, param *p)
{
    ts_graph *g = c->g;

    TS_TRY(check_names(g, c->o));
    for (int i = 0; i < g->ngrads; i++) {
        const ts_grad *d = &g->grads[i];
        p[i] = (param){.w = d->param, .dw = d->grad, .like = place_of(d->grad->node)};
        p[i].math = d->param->type.dtype == TS_F64 ? TS_F64 : TS_F32;
        TS_TRY(find_group(c->o, p[i].w->name, &p[i].group));
        TS_TRY(check_rank(c->o, p[i].w));
        for (int k = 0; k < g->nupdates; k++)
            if (g->updates[k].state == p[i].w)
                return ts_fail(TS_ERR_ARG, "parameter '%s' is both trained and assigned to",
                               p[i].w->name);
    }
    return TS_OK;
}

/* All updates, in the order: accumulate, find the gradients, step, reset. */
static void build(context *c, param *p, int n)
{
    ts_graph *g = c->g;

    g->like = &c->shared;
    add_hypers(c);
    if (c->apart)
        accumulate_all(c, p, n);
    g->phase = c->apart;
    g->like = &c->shared;
    if (c->o->automatic_scaling)
        scale_itself(c, p, n);
    if (ts_update_rule_of(c->o)->counts) {
        c->step = add_scalar_state(c, "step", 0);
        c->next_t = ts_add_scalar(c->step, 1);
        ts_update_store(c, c->step, tensor(c->next_t));
    }
    if (!c->apart || !combined(c->o))
        find_gradients(c, p, n);
    for (int i = 0; i < n; i++)
        update(c, &p[i]);
    c->ok = NULL;
    if (c->apart)
        reset_all(c, p, n);
    g->phase = 0;
    g->like = NULL;
}

/* What has no memory of its own goes behind what has. */
static void shares_last(ts_graph *g)
{
    ts_state *sorted = TS_NEWS(g->arena, ts_state, g->nstates);
    int n = 0;

    for (int last = 0; last < 2; last++)
        for (int i = 0; i < g->nstates; i++)
            if ((g->states[i].use == TS_USE_SHARE) == last)
                sorted[n++] = g->states[i];
    for (int i = 0; i < n; i++) {
        g->states[i] = sorted[i];
        g->states[i].value->index = i;
    }
}

ts_status ts_pass_optimizer(ts_arena *a, const ts_graph *in, const ts_options *opt,
                            const ts_graph **out)
{
    context c = {.opt = opt, .o = opt->optimizer};
    ts_value **map;
    param *p;

    *out = in;
    if (!opt->optimizer || !in->ngrads)
        return TS_OK;
    TS_TRY(ts_optimizer_check(opt));
    c.g = ts_graph_begin_copy(a, in, &map);
    for (int i = 0; i < in->nnodes; i++)
        ts_graph_copy_node(c.g, in->nodes[i], map);
    ts_graph_finish_copy(c.g, in, map);
    c.accumulation = TS_MAX(opt->gradient_accumulation, 1);
    c.sums = c.accumulation * TS_MAX(opt->replicas, 1) * TS_MAX(opt->processes, 1);
    c.apart = c.sums > 1;
    c.running = c.accumulation > 1 && opt->accumulate_running && !opt->accumulate_sum;
    c.rates = ts_arena_alloc(a, sizeof(*c.rates) * (size_t)(c.o->ngroups + 1));
    c.shared = place_of(NULL);
    if (ts_scaling_varies(c.o) && !ts_graph_find_state(c.g, "loss_scaling"))
        return ts_fail(TS_ERR_INTERNAL, "the gradients come without the state loss_scaling");
    p = TS_NEWS(a, param, in->ngrads);
    TS_TRY(find_params(&c, p));
    build(&c, p, in->ngrads);
    c.g->ngrads = 0;
    shares_last(c.g);
    *out = c.g;
    return ts_graph_check(c.g);
}
