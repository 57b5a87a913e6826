/* update.c - the rules: a parameter's next value, by the kind of optimiser.
 *
 * A rule is one function over numbers (update.h): it loads the state of its parameter, stores what the
 * state becomes, and returns the weight's next value. p->g is the gradient to apply; the sign that
 * `maximize` wants is in it. What all parameters of a group share and depends on the step is in
 * r->own, made once by scalars(). State has PyTorch's names, so that it can go both ways.
 */
#include "pass/update.h"

/* V = vs * v. The micro-batches have added their gradients to it already, unless there is only one;
 * the decay follows here, so that the first step has it too. */
static num sgd_combined(context *c, param *p, const rates *r, num w)
{
    ts_value *state = p->accum ? p->accum : ts_update_slot(c, p, "momentum", TS_F32, 0);
    num s = times(r->h[DECAY], w), v = load(p, state);

    if (!p->accum)
        s = plus(p->g, s);
    v = plus(v, times(times(r->keep, r->h[SCALING]), s));
    ts_update_store(c, state, times(r->h[MOMENTUM], v));
    return minus(w, times(over(r->h[LR], r->h[SCALING]), v));
}

/* v = mm v + (1 - dm) s; without momentum v needs no memory. Unlike PyTorch's, the first step is
 * dampened too. */
static num sgd(context *c, param *p, const rates *r, num w)
{
    num s = plus(p->g, times(r->h[DECAY], w)), v = times(r->keep, s);
    ts_value *state;

    if (is(r->h[MOMENTUM], 0))
        return minus(w, times(r->h[LR], v));
    state = ts_update_slot(c, p, "momentum", c->o->first_type, 0);
    v = plus(times(r->h[MOMENTUM], load(p, state)), v);
    ts_update_store(c, state, v);
    if (ts_update_hyper(c, p->group)->nesterov)
        v = plus(s, times(r->h[MOMENTUM], v));
    return minus(w, times(r->h[LR], v));
}

/* The gradient with the weight's decay in it. */
static num decayed(const param *p, const rates *r, num w)
{
    return plus(p->g, times(r->h[DECAY], w));
}

/* beta a + (1 - beta) x */
static num average(num beta, num a, num x)
{
    num old = times(beta, a);

    return plus(old, times(minus(constant(1), beta), x));
}

/* amsgrad: what v was at most */
static num greatest(context *c, param *p, num v)
{
    ts_value *state = ts_update_slot(c, p, "max_exp_avg_sq", c->o->second_type, 0);

    v = at_least(v, load(p, state));
    ts_update_store(c, state, v);
    return v;
}

/* The gradient's mean and its mean square. */
typedef struct moments {
    num m, v;
} moments;

static moments take_moments(context *c, param *p, const rates *r, num g)
{
    ts_value *first = ts_update_slot(c, p, "exp_avg", c->o->first_type, 0);
    ts_value *second = ts_update_slot(c, p, "exp_avg_sq", c->o->second_type, 0);
    moments k = {.m = average(r->h[BETA1], load(p, first), g)};
    num gg = square(g);

    k.v = average(r->h[BETA2], load(p, second), gg);
    ts_update_store(c, first, k.m);
    ts_update_store(c, second, k.v);
    return k;
}

/* m^ / (sqrt(v^) + eps): which way Adam, AdamW and LAMB go */
static num adam_direction(context *c, param *p, const rates *r, num g)
{
    moments k = take_moments(c, p, r, g);

    if (ts_update_hyper(c, p->group)->amsgrad)
        k.v = greatest(c, p, k.v);
    k.m = times(k.m, r->fix1);
    return over(k.m, plus(root(times(k.v, r->fix2)), r->h[EPS]));
}

static num adamw(context *c, param *p, const rates *r, num w)
{
    num x = adam_direction(c, p, r, p->g);

    x = plus(x, times(r->h[DECAY], w));
    return minus(w, times(r->h[LR], x));
}

static num adam(context *c, param *p, const rates *r, num w)
{
    if (ts_update_hyper(c, p->group)->decoupled_weight_decay)
        return adamw(c, p, r, w);
    return minus(w, times(r->h[LR], adam_direction(c, p, r, decayed(p, r, w))));
}

/* AdamW's step, made as long as the weights: by min(|w|, max) / |x|, or as it is if either is 0 */
static num lamb(context *c, param *p, const rates *r, num w)
{
    num x = adam_direction(c, p, r, p->g), nw, nx, trust, least;
    ts_value *one, *both;

    x = plus(x, times(r->h[DECAY], w));
    nw = root(sum_squares(w));
    nx = root(sum_squares(x));
    trust = over(at_most(nw, r->h[MAX_NORM]), nx);
    least = at_most(nw, nx);
    both = ts_gt(least.v, ts_full_like(least.v, 0));
    one = ts_full_like(trust.v, 1);
    trust = tensor(ts_where(both, trust.v, one));
    return minus(w, times(times(r->h[LR], trust), x));
}

static num rmsprop(context *c, param *p, const rates *r, num w)
{
    bool tf = c->o->tf_variant;
    ts_value *second = ts_update_slot(c, p, "square_avg", c->o->second_type, tf ? 1 : 0), *state;
    num s = plus(p->g, times(r->h[DECAY], w)), lr = r->h[LR], x, b;
    num ss = square(s), v = average(r->h[ALPHA], load(p, second), ss);

    ts_update_store(c, second, v);
    if (c->o->centered) {
        state = ts_update_slot(c, p, "grad_avg", c->o->first_type, 0);
        x = average(r->h[ALPHA], load(p, state), s);
        ts_update_store(c, state, x);
        /* A variance; rounding can put it below 0, and its root would be NaN. */
        v = at_least(minus(v, square(x)), constant(0));
    }
    x = over(s, tf ? root(plus(v, r->h[EPS])) : plus(root(v), r->h[EPS]));
    if (is(r->h[MOMENTUM], 0))
        return minus(w, times(lr, x));
    state = ts_update_slot(c, p, "momentum_buffer", c->o->first_type, 0);
    b = times(r->h[MOMENTUM], load(p, state));
    b = plus(b, tf ? times(lr, x) : x);
    ts_update_store(c, state, b);
    return minus(w, tf ? b : times(lr, b));
}

/* --- of the later kinds --- */

/* yes where x > edge, else no; at least one of them is a tensor. */
static num pick_above(num x, double edge, num yes, num no)
{
    num like = yes.v ? yes : no;
    ts_value *above;

    if (!x.v)
        return x.c > edge ? yes : no;
    above = ts_gt(x.v, ts_full_like(x.v, edge));
    if (!no.v)
        return tensor(ts_where(above, yes.v, value(no, like)));
    return tensor(ts_where(above, value(yes, like), no.v));
}

/* start in the first step, then the state: what a learning rate of then begins. */
static num first_step(context *c, num start, num state)
{
    return pick_above(tensor(c->step), 0, state, start);
}

/* What Adafactor divides by at least: by default the epsilon of the weights' type. */
static num smallest(const param *p, const rates *r)
{
    static const double epsilon[] = {
        [TS_F64] = 0x1p-52, [TS_F32] = 0x1p-23, [TS_F16] = 0x1p-10, [TS_BF16] = 0x1p-7};

    return is(r->h[EPS], 0) ? constant(epsilon[p->w->type.dtype]) : r->h[EPS];
}

/* The sum of the squares so far divides; the learning rate falls with the steps. */
static num adagrad(context *c, param *p, const rates *r, num w)
{
    ts_value *state = ts_update_slot(c, p, "sum", c->o->second_type,
                                     ts_update_hyper(c, p->group)->initial_accumulator_value);
    num s = decayed(p, r, w), ss = square(s), sum = plus(ss, load(p, state));

    ts_update_store(c, state, sum);
    return minus(w, times(r->own[0], over(s, plus(root(sum), r->h[EPS]))));
}

/* lr / (1 + (t - 1) lr_decay) */
static void adagrad_scalars(context *c, int group, rates *r)
{
    num step = tensor(ts_cast(c->step, TS_F64));

    (void)group;
    r->own[0] = over(r->h[LR], plus(constant(1), times(step, r->h[LR_DECAY])));
}

/* The step is as long as the steps of late were, by the gradients of late. */
static num adadelta(context *c, param *p, const rates *r, num w)
{
    ts_value *second = ts_update_slot(c, p, "square_avg", c->o->second_type, 0);
    ts_value *delta = ts_update_slot(c, p, "acc_delta", c->o->second_type, 0);
    num s = decayed(p, r, w), ss = square(s), v = average(r->h[ALPHA], load(p, second), ss);
    num d = load(p, delta), far = root(plus(d, r->h[EPS])), x;

    ts_update_store(c, second, v);
    x = times(over(far, root(plus(v, r->h[EPS]))), s);
    ss = square(x);
    ts_update_store(c, delta, average(r->h[ALPHA], d, ss));
    return minus(w, times(r->h[LR], x));
}

/* Adam by the largest gradient of late instead of the mean square. */
static num adamax(context *c, param *p, const rates *r, num w)
{
    ts_value *first = ts_update_slot(c, p, "exp_avg", c->o->first_type, 0);
    ts_value *norm = ts_update_slot(c, p, "exp_inf", c->o->second_type, 0);
    num s = decayed(p, r, w), m = average(r->h[BETA1], load(p, first), s), u;

    ts_update_store(c, first, m);
    u = plus(tensor(ts_abs(s.v)), r->h[EPS]);
    u = at_least(u, times(r->h[BETA2], load(p, norm)));
    ts_update_store(c, norm, u);
    m = times(times(r->h[LR], r->fix1), m);
    return minus(w, over(m, u));
}

/* (1 - lr decay) w, and the gradient as it is; or w, and the decay in the gradient */
static num decouple(context *c, const param *p, const rates *r, num w, num *s)
{
    *s = p->g;
    if (ts_update_hyper(c, p->group)->decoupled_weight_decay)
        return minus(w, times(times(r->h[LR], r->h[DECAY]), w));
    *s = decayed(p, r, w);
    return w;
}

/* NAdam's momentum of step t: beta1 (1 - 0.96^(t psi) / 2) */
static num nadam_mu(const rates *r, num t)
{
    num x = less_one(times(t, times(r->h[MOMENTUM_DECAY], constant(log(0.96)))));

    return times(r->h[BETA1], minus(constant(0.5), times(constant(0.5), x)));
}

/* lr times the share of the gradient, and of the first moment, in a step */
static void nadam_scalars(context *c, int group, rates *r)
{
    ts_value *state = ts_update_group_state(c, "mu_product", group, 1);
    num t = tensor(ts_cast(c->next_t, TS_F64)), product;
    num mu = nadam_mu(r, t), next = nadam_mu(r, plus(t, constant(1)));

    product = times(tensor(state), mu.v ? tensor(ts_cast(mu.v, TS_F32)) : mu);
    ts_update_store(c, state, product);
    product = product.v ? tensor(ts_cast(product.v, TS_F64)) : product;
    mu = minus(constant(1), mu);
    r->own[0] = times(r->h[LR], over(mu, minus(constant(1), product)));
    product = times(product, next);
    r->own[1] = times(r->h[LR], over(next, minus(constant(1), product)));
}

static num nadam(context *c, param *p, const rates *r, num w)
{
    moments k;
    num g, x;

    w = decouple(c, p, r, w, &g);
    k = take_moments(c, p, r, g);
    x = times(r->own[0], g);
    x = plus(x, times(r->own[1], k.m));
    return minus(w, over(x, plus(root(times(k.v, r->fix2)), r->h[EPS])));
}

/* How much the mean square can be trusted: own[0] is the rectification times sqrt(1 - beta2^t), and
 * own[1] the length rho of its memory, which is too short to be used up to 5:
 *   rho_inf = 2 / (1 - beta2) - 1,  rho = rho_inf - 2 t beta2^t / (1 - beta2^t) */
static void radam_scalars(context *c, int group, rates *r)
{
    num t = tensor(ts_cast(c->next_t, TS_F64)), one = constant(1), most, rho, x, y;

    (void)group;
    most = minus(over(constant(2), minus(one, r->h[BETA2])), one);
    rho = most;
    if (!is(r->h[BETA2], 0)) {
        x = less_one(times(t, minus(constant(0), natural_log(r->h[BETA2]))));
        rho = minus(most, over(times(constant(2), t), x));
    }
    x = minus(rho, constant(4));
    x = times(x, minus(rho, constant(2)));
    y = minus(most, constant(4));
    y = times(times(y, minus(most, constant(2))), rho);
    x = over(over(times(x, most), y), r->fix2);
    r->own[0] = root(x.v ? at_least(x, constant(0)) : x);
    r->own[1] = rho;
}

static num radam(context *c, param *p, const rates *r, num w)
{
    moments k;
    num g, m, x;

    w = decouple(c, p, r, w, &g);
    k = take_moments(c, p, r, g);
    m = times(times(r->h[LR], r->fix1), k.m);
    x = times(m, over(r->own[0], plus(root(k.v), r->h[EPS])));
    return minus(w, pick_above(r->own[1], 5, x, m));
}

/* Only the sign of the gradient counts; each element has a step size of its own, which grows while
 * the sign stays and shrinks when it changes, and then the element waits. */
static num rprop(context *c, param *p, const rates *r, num w)
{
    ts_value *prev = ts_update_slot(c, p, "prev", c->o->first_type, 0);
    ts_value *sizes = ts_update_slot(c, p, "step_size", c->o->second_type, 0);
    num turn = times(p->g, load(p, prev)), back = minus(constant(0), turn), size, g, x;

    size = first_step(c, r->h[LR], load(p, sizes));
    x = times(size, r->h[ETA_MINUS]);
    x = pick_above(back, 0, x, size);
    size = times(size, r->h[ETA_PLUS]);
    size = pick_above(turn, 0, size, x);
    size = at_most(at_least(size, r->h[STEP_MIN]), r->h[STEP_MAX]);
    g = pick_above(back, 0, constant(0), p->g);
    ts_update_store(c, sizes, size);
    ts_update_store(c, prev, g);
    return minus(w, times(tensor(ts_sign(g.v)), size));
}

/* own: eta and mu of this step, which the last one left, for the next one lr and t decide:
 *   eta = lr / (1 + lambd lr t)^alpha,  mu = 1 / max(1, t - t0) */
static void asgd_scalars(context *c, int group, rates *r)
{
    ts_value *eta = ts_update_group_state(c, "eta", group, 0);
    ts_value *mu = ts_update_group_state(c, "mu", group, 1);
    num t = tensor(ts_cast(c->next_t, TS_F64)), x;

    r->own[0] = first_step(c, r->h[LR], tensor(ts_cast(eta, TS_F64)));
    r->own[1] = tensor(ts_cast(mu, TS_F64));
    x = times(t, times(r->h[LAMBD], r->h[LR]));
    x = x.v ? power(plus(x, constant(1)), r->h[ALPHA]) : constant(1);
    ts_update_store(c, eta, over(r->h[LR], x));
    ts_update_store(c, mu, over(constant(1), at_least(minus(t, r->h[T0]), constant(1))));
}

/* SGD, and beside the weights their average `ax` from step t0 on. */
static num asgd(context *c, param *p, const rates *r, num w)
{
    ts_value *mean = ts_update_slot(c, p, "ax", c->o->first_type, 0);
    num s = decayed(p, r, w), ax = load(p, mean), x;

    w = minus(w, times(times(r->own[0], r->h[LAMBD]), w));
    w = minus(w, times(r->own[0], s));
    x = plus(ax, times(r->own[1], minus(w, ax)));
    ts_update_store(c, mean, pick_above(r->own[1], 0.9999999, w, x));
    return w;
}

/* own: 1 - t^beta2_decay, what the mean squares keep; min(lr, 1 / sqrt(t)) */
static void adafactor_scalars(context *c, int group, rates *r)
{
    num t = tensor(ts_cast(c->next_t, TS_F64));

    (void)group;
    r->own[0] = minus(constant(1), power(t, r->h[BETA2_DECAY]));
    r->own[1] = at_most(over(constant(1), root(t)), r->h[LR]);
}

/* The mean over one dim, which stays as 1. */
static num mean_of(num x, int dim)
{
    int64_t dims[] = {dim};
    double n = (double)x.v->type.dim[dim];

    return times(tensor(ts_sum(x.v, 1, dims, true)), constant(1 / n));
}

/* A mean square over dim of what is left of the gradient's square. */
static num mean_square(context *c, param *p, const rates *r, const char *name, num ss, int dim)
{
    ts_type t = p->w->type;
    ts_value *state;
    num v = mean_of(ss, dim);

    t.dtype = c->o->second_type;
    t.dim[dim] = 1;
    state = ts_update_slot_of(c, p, name, t);
    v = average(r->own[0], load(p, state), v);
    ts_update_store(c, state, v);
    return v;
}

/* The mean square of every element, of a matrix as the product of one for its rows and its columns. */
static num factored(context *c, param *p, const rates *r, num least)
{
    int rank = p->w->type.rank;
    num ss = square(p->g), rows, columns, v;
    ts_value *state;

    if (rank < 2) {
        state = ts_update_slot(c, p, "variance", c->o->second_type, 0);
        v = average(r->own[0], load(p, state), ss);
        ts_update_store(c, state, v);
        return v;
    }
    rows = mean_square(c, p, r, "row_var", ss, rank - 1);
    columns = mean_square(c, p, r, "col_var", ss, rank - 2);
    return times(over(rows, at_least(mean_of(rows, rank - 2), least)), columns);
}

/* sqrt of the mean of the squares of all of x */
static num size_of(num x, const ts_value *w)
{
    return root(times(sum_squares(x), constant(1 / fmax(1, (double)ts_type_count(&w->type)))));
}

/* Adam without a first moment, its second one in two vectors, and steps as long as the weights. */
static num adafactor(context *c, param *p, const rates *r, num w)
{
    num least = smallest(p, r), rate, v, x, size;

    rate = times(at_least(size_of(w, p->w), r->h[EPS2]), r->own[1]);
    v = factored(c, p, r, least);
    x = over(p->g, root(at_least(v, square(least))));
    size = at_least(over(size_of(x, p->w), r->h[CLIP]), constant(1));
    w = minus(w, times(times(r->h[LR], r->h[DECAY]), w));
    return minus(w, times(over(rate, size), x));
}

static num product(num x, num y)
{
    return tensor(ts_matmul(x.v, y.v));
}

static num turned(num x)
{
    return tensor(ts_permute(x.v, 1, 0));
}

/* The nearest matrix with orthogonal rows, about: Newton-Schulz steps that pull its singular values
 * to 1. */
static num orthogonal(const ts_hyper *h, const rates *r, num x)
{
    bool tall = x.v->type.dim[0] > x.v->type.dim[1];
    int steps = h->ns_steps ? h->ns_steps : 5;
    num y, a, b;

    x = tall ? turned(x) : x;
    x = over(x, at_least(root(sum_squares(x)), r->h[EPS]));
    for (int i = 0; i < steps; i++) {
        a = product(x, turned(x));
        b = times(product(a, a), r->h[NS_C]);
        b = plus(b, times(a, r->h[NS_B]));
        y = product(b, x);
        x = plus(y, times(x, r->h[NS_A]));
    }
    return tall ? turned(x) : x;
}

static double muon_ratio(const ts_hyper *h, const ts_type *t)
{
    double a = (double)t->dim[0], b = (double)t->dim[1];

    if (h->adjust_lr == TS_LR_ADJUST_MATCH_RMS_ADAMW)
        return 0.2 * sqrt(fmax(a, b));
    return sqrt(h->adjust_lr == TS_LR_ADJUST_ORIGINAL ? fmax(1, a / b) : a / b);
}

static num muon(context *c, param *p, const rates *r, num w)
{
    const ts_hyper *h = ts_update_hyper(c, p->group);
    ts_value *state = ts_update_slot(c, p, "momentum_buffer", c->o->first_type, 0);
    num m = average(r->h[MOMENTUM], load(p, state), p->g), x = m;

    ts_update_store(c, state, m);
    if (h->nesterov)
        x = average(minus(constant(1), r->h[MOMENTUM]), p->g, m);
    x = orthogonal(h, r, x);
    w = minus(w, times(times(r->h[LR], r->h[DECAY]), w));
    return minus(w, times(times(r->h[LR], constant(muon_ratio(h, &p->w->type))), x));
}

const ts_update_rule *ts_update_rule_of(const ts_optimizer *o)
{
    static const ts_update_rule together = {.name = "SGD", .next = sgd_combined};
    static const ts_update_rule rules[] = {
        [TS_OPTIMIZER_SGD] = {.name = "SGD", .next = sgd},
        [TS_OPTIMIZER_ADAM] = {.name = "Adam", .next = adam, .counts = true},
        [TS_OPTIMIZER_ADAMW] = {.name = "AdamW", .next = adamw, .counts = true},
        [TS_OPTIMIZER_RMSPROP] = {.name = "RMSprop", .next = rmsprop},
        [TS_OPTIMIZER_LAMB] = {.name = "LAMB", .next = lamb, .counts = true, .whole = true},
        [TS_OPTIMIZER_ADAGRAD] = {"Adagrad", adagrad, adagrad_scalars, .counts = true},
        [TS_OPTIMIZER_ADADELTA] = {.name = "Adadelta", .next = adadelta, .counts = true},
        [TS_OPTIMIZER_ADAMAX] = {.name = "Adamax", .next = adamax, .counts = true},
        [TS_OPTIMIZER_NADAM] = {"NAdam", nadam, nadam_scalars, .counts = true},
        [TS_OPTIMIZER_RADAM] = {"RAdam", radam, radam_scalars, .counts = true},
        [TS_OPTIMIZER_RPROP] = {.name = "Rprop", .next = rprop, .counts = true},
        [TS_OPTIMIZER_ASGD] = {"ASGD", asgd, asgd_scalars, .counts = true},
        [TS_OPTIMIZER_ADAFACTOR] = {"Adafactor", adafactor, adafactor_scalars, .counts = true,
                                    .whole = true},
        [TS_OPTIMIZER_MUON] = {.name = "Muon", .next = muon, .whole = true, .matrices = true},
    };

    if ((unsigned)o->kind >= TS_COUNT(rules))
        return NULL;
    return o->kind == TS_OPTIMIZER_SGD && o->combined_accum ? &together : &rules[o->kind];
}
