/* optimizer.c - every optimiser and option, run by the reference executor and compared with the
 * formulae written out in double, and with PyTorch's weights (test/data/optim.txt). */
#include "rig.h"

/* --- theirs: the formulae of the PopTorch reference, element by element in double --- */

typedef struct sim {
    const rig *r;
    ts_hyper h[TENSORS];
    double w[N], g[N]; /* weights, gradient of this update */
    double v[N], m[N], a[N], b[N];
    int t;
    int64_t row;
} sim;

/* What the engine stores of a variable hyper-parameter is an f32. */
static double stored(const ts_optimizer *o, unsigned bit, double x)
{
    return o->variable & bit ? (float)x : x;
}

static ts_hyper stored_hyper(const ts_optimizer *o, ts_hyper h)
{
    h.lr = stored(o, TS_HYPER_LR, h.lr);
    h.momentum = stored(o, TS_HYPER_MOMENTUM, h.momentum);
    h.dampening = stored(o, TS_HYPER_DAMPENING, h.dampening);
    h.weight_decay = stored(o, TS_HYPER_WEIGHT_DECAY, h.weight_decay);
    h.beta1 = stored(o, TS_HYPER_BETAS, h.beta1);
    h.beta2 = stored(o, TS_HYPER_BETAS, h.beta2);
    h.eps = stored(o, TS_HYPER_EPS, h.eps);
    h.alpha = stored(o, TS_HYPER_ALPHA, h.alpha);
    h.max_weight_norm = stored(o, TS_HYPER_MAX_WEIGHT_NORM, h.max_weight_norm);
    h.velocity_scaling = stored(o, TS_HYPER_VELOCITY_SCALING, h.velocity_scaling);
    return h;
}

static sim *sim_new(const rig *r)
{
    sim *s = calloc(1, sizeof(*s));

    assert_non_null(s);
    s->r = r;
    for (int k = 0; k < TENSORS; k++)
        s->h[k] = stored_hyper(&r->o, r->o.hyper);
    for (int i = 0; i < N; i++)
        s->w[i] = first_weight(i);
    for (int i = 0; i < N; i++) {
        s->v[i] = r->o.kind == TS_OPTIMIZER_RMSPROP && r->o.tf_variant;
        if (r->o.kind == TS_OPTIMIZER_SGD && r->o.combined_accum) /* as if a step had ended here */
            s->v[i] =
                (1 - s->h[0].dampening) * s->h[0].weight_decay * s->h[0].velocity_scaling * s->w[i];
    }
    return s;
}

/* Adds the gradient of one micro-batch. */
static void sim_backward(sim *s)
{
    const double *w = s->w, *b = s->w + start[1];
    double scale = s->w[start[2]];
    int64_t batch = s->r->batch;

    for (int64_t i = s->row; i < s->row + batch; i++)
        for (int o = 0; o < OUT; o++) {
            double z = b[o], dy;
            for (int k = 0; k < IN; k++)
                z += input(i, k) * w[k * OUT + o];
            dy = 2 * (z * scale - target(i, o)) / (double)(batch * OUT);
            s->g[start[2]] += dy * z;
            s->g[start[1] + o] += dy * scale;
            for (int k = 0; k < IN; k++)
                s->g[k * OUT + o] += dy * scale * input(i, k);
        }
    s->row += batch;
}

static void sim_clip(sim *s)
{
    double sum = 0, value = s->r->o.max_grad_value, norm = s->r->o.max_grad_norm;

    for (int i = 0; i < N; i++) {
        if (value > 0)
            s->g[i] = fmin(fmax(s->g[i], -value), value);
        sum += s->g[i] * s->g[i];
    }
    for (int i = 0; i < N; i++)
        if (norm > 0 && isfinite(norm))
            s->g[i] *= norm / fmax(sqrt(sum), norm);
}

static void sim_sgd(sim *s, const ts_hyper *h, int i)
{
    double keep = 1 - h->dampening, d = s->g[i] + h->weight_decay * s->w[i];

    if (s->r->o.combined_accum) {
        s->v[i] += keep * h->velocity_scaling * s->g[i];
        s->w[i] -= h->lr / h->velocity_scaling * s->v[i];
        s->v[i] = h->momentum * s->v[i] + keep * h->weight_decay * h->velocity_scaling * s->w[i];
        return;
    }
    s->v[i] = h->momentum * s->v[i] + keep * d;
    s->w[i] -= h->lr * (h->nesterov ? d + h->momentum * s->v[i] : s->v[i]);
}

static void sim_rmsprop(sim *s, const ts_hyper *h, int i)
{
    const ts_optimizer *o = &s->r->o;
    double d = s->g[i] + h->weight_decay * s->w[i], var, x;

    s->v[i] = h->alpha * s->v[i] + (1 - h->alpha) * d * d;
    s->a[i] = h->alpha * s->a[i] + (1 - h->alpha) * d;
    var = s->v[i] - (o->centered ? s->a[i] * s->a[i] : 0);
    x = d / (o->tf_variant ? sqrt(var + h->eps) : sqrt(var) + h->eps);
    s->b[i] = h->momentum * s->b[i] + (o->tf_variant ? h->lr * x : x);
    s->w[i] -= o->tf_variant ? s->b[i] : h->lr * s->b[i];
}

/* m^ / (sqrt(v^) + eps) */
static double sim_adam(sim *s, const ts_hyper *h, int i, double d)
{
    bool fix = s->r->o.bias_correction;

    s->m[i] = h->beta1 * s->m[i] + (1 - h->beta1) * d;
    s->v[i] = h->beta2 * s->v[i] + (1 - h->beta2) * d * d;
    return (fix ? s->m[i] / (1 - pow(h->beta1, s->t)) : s->m[i]) /
           (sqrt(fix ? s->v[i] / (1 - pow(h->beta2, s->t)) : s->v[i]) + h->eps);
}

static void sim_lamb(sim *s, const ts_hyper *h, int k)
{
    double x[N], ww = 0, xx = 0, trust = 1;

    for (int i = start[k]; i < start[k + 1]; i++) {
        x[i] = sim_adam(s, h, i, s->g[i]) + h->weight_decay * s->w[i];
        ww += s->w[i] * s->w[i];
        xx += x[i] * x[i];
    }
    if (ww > 0 && xx > 0)
        trust = fmin(sqrt(ww), h->max_weight_norm) / sqrt(xx);
    for (int i = start[k]; i < start[k + 1]; i++)
        s->w[i] -= h->lr * trust * x[i];
}

static void sim_element(sim *s, const ts_hyper *h, int i)
{
    double decay = h->weight_decay * s->w[i];

    switch (s->r->o.kind) {
    case TS_OPTIMIZER_SGD:
        sim_sgd(s, h, i);
        return;
    case TS_OPTIMIZER_RMSPROP:
        sim_rmsprop(s, h, i);
        return;
    case TS_OPTIMIZER_ADAM:
        s->w[i] -= h->lr * sim_adam(s, h, i, s->g[i] + decay);
        return;
    default:
        s->w[i] -= h->lr * (sim_adam(s, h, i, s->g[i]) + decay);
    }
}

static void sim_update(sim *s)
{
    int a = TS_MAX(s->r->opt.gradient_accumulation, 1);

    memset(s->g, 0, sizeof(s->g));
    for (int m = 0; m < a; m++)
        sim_backward(s);
    for (int i = 0; i < N && !s->r->opt.accumulate_sum; i++)
        s->g[i] /= a;
    sim_clip(s);
    s->t++;
    for (int k = 0; k < TENSORS; k++) {
        if (s->r->o.kind == TS_OPTIMIZER_LAMB)
            sim_lamb(s, &s->h[k], k);
        else
            for (int i = start[k]; i < start[k + 1]; i++)
                sim_element(s, &s->h[k], i);
    }
}

/* --- the comparison --- */

static void follow(rig *r, sim *s, const char *what)
{
    double tolerance = r->dtype == TS_F64 ? 1e-12 : 1e-5;

    for (int step = 1; step <= UPDATES; step++) {
        rig_update(r);
        sim_update(s);
        same_weights(r, s->w, tolerance, what, step);
    }
    for (int i = 0; i < N; i++) /* they have gone somewhere */
        assert_true(s->w[i] != first_weight(i));
}

static void follow_one(ts_optimizer o, ts_options opt, ts_dtype t, const char *what)
{
    rig *r = rig_new(o, opt, t, BATCH);
    sim *s = sim_new(r);

    follow(r, s, what);
    free(s);
    rig_free(r);
}

/* One optimiser in both precisions, with constants and with variables, with and without
 * accumulation. */
static void every_way(ts_optimizer o, const char *what)
{
    static const ts_options ways[] = {
        {.gradient_accumulation = 1},
        {.gradient_accumulation = 2},
        {.gradient_accumulation = 3},
        {.gradient_accumulation = 3, .accumulate_running = true},
        {.gradient_accumulation = 2, .accumulate_sum = true},
    };
    static const unsigned variables[] = {0, TS_HYPER_LR, ~0u};
    static const ts_dtype dtypes[] = {TS_F32, TS_F64};

    for (int v = 0; v < TS_COUNT(variables); v++)
        for (int w = 0; w < TS_COUNT(ways); w++)
            for (int d = 0; d < TS_COUNT(dtypes); d++) {
                char name[200];
                if (o.combined_accum && ways[w].accumulate_running)
                    continue;
                snprintf(name, sizeof(name), "%s, variable %x, A %d%s%s, %s", what, variables[v],
                         ways[w].gradient_accumulation, ways[w].accumulate_sum ? " sum" : "",
                         ways[w].accumulate_running ? " running" : "", ts_dtype_name(dtypes[d]));
                o.variable = variables[v];
                follow_one(o, ways[w], dtypes[d], name);
            }
}

static void sgd_follows_its_formula(void **unused)
{
    ts_optimizer o = ts_sgd(0.05);

    (void)unused;
    every_way(o, "sgd");
    o.hyper.weight_decay = 0.1;
    every_way(o, "sgd, decay");
    o.hyper.dampening = 0.5;
    every_way(o, "sgd, decay, dampening");
}

static void sgd_with_momentum_follows_its_formula(void **unused)
{
    ts_optimizer o = ts_sgd(0.05);

    (void)unused;
    o.hyper.momentum = 0.7;
    every_way(o, "sgd, momentum");
    o.hyper.nesterov = true;
    every_way(o, "sgd, nesterov");
    o.hyper.weight_decay = 0.1;
    every_way(o, "sgd, nesterov, decay");
    o.hyper.nesterov = false;
    o.hyper.dampening = 0.3;
    every_way(o, "sgd, momentum, decay, dampening");
}

static void combined_sgd_is_the_same_thing(void **unused)
{
    ts_optimizer o = ts_sgd(0.05);

    (void)unused;
    o.combined_accum = true;
    o.hyper.momentum = 0.7;
    every_way(o, "combined");
    o.hyper.weight_decay = 0.1;
    o.hyper.dampening = 0.3;
    o.hyper.velocity_scaling = 100;
    every_way(o, "combined, decay, dampening, scaling");
    o.hyper.momentum = 0;
    every_way(o, "combined without momentum");
}

static void adam_follows_its_formula(void **unused)
{
    ts_optimizer o = ts_adam(0.05);

    (void)unused;
    every_way(o, "adam");
    o.hyper.weight_decay = 0.1;
    o.hyper.beta1 = 0.8;
    o.hyper.beta2 = 0.95;
    o.hyper.eps = 1e-3;
    every_way(o, "adam, decay");
    o.bias_correction = false;
    every_way(o, "adam, decay, no bias correction");
    o.bias_correction = true;
    o.hyper.beta1 = 0;
    every_way(o, "adam without a first moment");
}

static void adamw_follows_its_formula(void **unused)
{
    ts_optimizer o = ts_adamw(0.05);

    (void)unused;
    every_way(o, "adamw");
    o.hyper.weight_decay = 0.3;
    every_way(o, "adamw, decay");
    o.bias_correction = false;
    every_way(o, "adamw, decay, no bias correction");
}

static void lamb_follows_its_formula(void **unused)
{
    ts_optimizer o = ts_lamb(0.02);

    (void)unused;
    every_way(o, "lamb");
    o.bias_correction = false;
    every_way(o, "lamb, no bias correction");
    o.hyper.max_weight_norm = 0.5;
    every_way(o, "lamb, small weights");
}

static void rmsprop_follows_its_formula(void **unused)
{
    (void)unused;
    for (int bits = 0; bits < 16; bits++) {
        ts_optimizer o = ts_rmsprop(0.01);
        char name[100];
        o.centered = bits & 1;
        o.tf_variant = bits & 2;
        o.hyper.momentum = bits & 4 ? 0.6 : 0;
        o.hyper.weight_decay = bits & 8 ? 0.1 : 0;
        o.hyper.alpha = 0.9;
        o.hyper.eps = 1e-4;
        snprintf(name, sizeof(name), "rmsprop%s%s%s%s", bits & 1 ? ", centered" : "",
                 bits & 2 ? ", tf" : "", bits & 4 ? ", momentum" : "", bits & 8 ? ", decay" : "");
        every_way(o, name);
    }
}

static void gradients_are_clipped(void **unused)
{
    ts_optimizer o = ts_sgd(0.05);

    (void)unused;
    o.hyper.momentum = 0.7;
    o.hyper.weight_decay = 0.1;
    o.max_grad_norm = 0.4;
    every_way(o, "clipped by norm");
    o.max_grad_value = 0.1;
    every_way(o, "clipped by value and norm");
    o.max_grad_norm = INFINITY;
    o.loss_scaling = 64;
    follow_one(o, (ts_options){0}, TS_F64, "clipped by value");
}

/* --- against PyTorch --- */

/* "rmsprop lr=0.01 momentum=0.5 centered=yes": names of the tables of options. */
static ts_optimizer read_optimizer(const char *line)
{
    ts_optimizer o = ts_sgd(0);
    char text[200], *word, *rest = text;

    snprintf(text, sizeof(text), "%s", line);
    assert_false(ts_optimizer_set(&o, "kind", strtok_r(text, " ", &rest)));
    o = ts_optimizer_of(o.kind, 0);
    while ((word = strtok_r(NULL, " ", &rest))) {
        char *value = strchr(word, '=');
        *value++ = 0;
        if (ts_record_set(TS_RECORD_HYPER, &o.hyper, sizeof(o.hyper), word, value))
            assert_false(ts_optimizer_set(&o, word, value));
    }
    return o;
}

static void the_weights_are_pytorch_s(void **unused)
{
    ts_arena *a = ts_arena_new();
    const char *root = getenv("TS_SOURCE_ROOT");
    FILE *f = fopen(ts_arena_printf(a, "%s/test/data/optim.txt", root ? root : "."), "r");
    char line[1024], what[200] = "";
    rig *r = NULL;
    int cases = 0, step = 0;

    (void)unused;
    assert_non_null(f);
    while (fgets(line, sizeof(line), f)) {
        double want[N];
        char *p = line;
        line[strcspn(line, "\n")] = 0;
        if (line[0] == '#')
            continue;
        if (!strncmp(line, "case ", 5)) {
            if (r)
                rig_free(r);
            snprintf(what, sizeof(what), "%.199s", line + 5);
            r = rig_new(read_optimizer(what), (ts_options){0}, TS_F64, BATCH);
            cases++;
            step = 0;
            continue;
        }
        for (int i = 0; i < N; i++)
            want[i] = strtod(p, &p);
        assert_non_null(r);
        rig_update(r);
        same_weights(r, want, 1e-12, what, ++step);
    }
    assert_true(cases >= 40 && step >= 8);
    rig_free(r);
    fclose(f);
    ts_arena_free(a);
}

/* --- what must not matter, what must --- */

static void accumulating_equals_a_larger_batch(void **unused)
{
    static ts_optimizer (*const kinds[])(double) = {
        ts_sgd,    ts_adam,  ts_adamw, ts_rmsprop, ts_lamb, ts_adagrad,  ts_adadelta,
        ts_adamax, ts_nadam, ts_radam, ts_rprop,   ts_asgd, ts_adafactor};

    (void)unused;
    for (int i = 0; i < TS_COUNT(kinds); i++)
        for (int running = 0; running < 2; running++)
            agree(rig_new(kinds[i](0.01),
                          (ts_options){.gradient_accumulation = 3, .accumulate_running = running},
                          TS_F64, 2),
                  rig_new(kinds[i](0.01), (ts_options){0}, TS_F64, 6), 1e-12, "accumulation");
}

static void a_variable_takes_effect_at_once(void **unused)
{
    ts_optimizer o = ts_sgd(0.05);
    rig *r;
    sim *s;

    (void)unused;
    o.hyper.momentum = 0.5;
    o.variable = TS_HYPER_LR | TS_HYPER_MOMENTUM | TS_HYPER_WEIGHT_DECAY;
    r = rig_new(o, (ts_options){.gradient_accumulation = 2}, TS_F64, BATCH);
    s = sim_new(r);
    for (int step = 1; step <= UPDATES; step++) {
        for (int k = 0; k < TENSORS; k++) {
            s->h[k].lr = (float)(0.05 / step);
            s->h[k].momentum = step > 5 ? 0.875 : 0.5;
            s->h[k].weight_decay = step > 9 ? 0.125 : 0;
        }
        poke(r, "lr", 0, s->h[0].lr);
        poke(r, "momentum", 0, s->h[0].momentum);
        poke(r, "weight_decay", 0, s->h[0].weight_decay);
        rig_update(r);
        sim_update(s);
        same_weights(r, s->w, 1e-12, "schedule", step);
    }
    free(s);
    rig_free(r);
}

static void groups_have_their_own_rates(void **unused)
{
    ts_optimizer o = ts_adamw(0.05);
    ts_group groups[] = {{(const char *[]){"b*"}, 1, o.hyper}, {(const char *[]){"s"}, 1, o.hyper}};
    rig *r;
    sim *s;

    (void)unused;
    groups[0].hyper.lr = 0.025;
    groups[0].hyper.weight_decay = 0;
    groups[1].hyper.lr = 0.01;
    groups[1].hyper.beta1 = 0.5;
    o.groups = groups;
    o.ngroups = 2;
    r = rig_new(o, (ts_options){0}, TS_F64, BATCH);
    s = sim_new(r);
    s->h[1] = stored_hyper(&o, groups[0].hyper);
    s->h[2] = stored_hyper(&o, groups[1].hyper);
    follow(r, s, "groups");
    assert_true(peek(r, "lr", 0) == (float)0.05);
    assert_true(peek(r, "lr.1", 0) == (float)0.025);
    assert_true(peek(r, "lr.2", 0) == (float)0.01);
    assert_true(peek(r, "step", 0) == UPDATES);
    poke(r, "lr.2", 0, 0);
    s->h[2].lr = 0;
    rig_update(r);
    sim_update(s);
    same_weights(r, s->w, 1e-12, "a frozen group", UPDATES + 1);
    free(s);
    rig_free(r);
}

/* --- storage --- */

/* loss = sum(w x): the gradient of w is x, exactly */
static rig *dot_rig(ts_optimizer o, ts_options opt, ts_dtype t)
{
    ts_graph *g = ts_graph_new("dot");
    ts_value *x = ts_input(g, "x", t, 2), *w = ts_param(g, "w", t, ((ts_init){0}), 2);

    ts_loss(ts_sum(ts_mul(w, x), 0, NULL, false));
    return rig_open(g, o, opt, t, 1);
}

static void dot_micro_batch(rig *r, double x)
{
    ts_tensor *t = ts_ref_tensor(r->ref, r->g->inputs[0]);

    ts_dtype_set(t->type.dtype, t->data, 0, x);
    ts_dtype_set(t->type.dtype, t->data, 1, -x);
    run_phase(r, 0);
}

/* In f16 the learning rate itself would be 0. */
static void half_weights_are_updated_in_f32(void **unused)
{
    static const ts_dtype halves[] = {TS_F16, TS_BF16};

    (void)unused;
    for (int i = 0; i < TS_COUNT(halves); i++)
        for (unsigned variable = 0; variable < 2; variable++) {
            ts_optimizer o = ts_sgd(0x1p-26);
            rig *r;
            o.hyper.momentum = 0.5;
            o.variable = variable;
            r = dot_rig(o, (ts_options){0}, halves[i]);
            poke(r, "w", 0, 0x1p-10);
            dot_micro_batch(r, 1024);
            assert_true(peek(r, "w", 0) == 0x1p-10 - 0x1p-16);
            assert_true(peek(r, "w", 1) == 0x1p-16);
            assert_int_equal(state(r, "w.momentum")->type.dtype, TS_F32);
            assert_true(peek(r, "w.momentum", 0) == 1024);
            rig_free(r);
        }
}

static void a_running_mean_does_not_overflow(void **unused)
{
    ts_optimizer o = ts_sgd(0x1p-10);
    ts_options opt = {.gradient_accumulation = 3};

    (void)unused;
    o.accum_type = TS_F16;
    for (int running = 0; running < 2; running++) {
        opt.accumulate_running = running;
        rig *r = dot_rig(o, opt, TS_F32);
        assert_int_equal(state(r, "w.accum")->type.dtype, TS_F16);
        for (int update = 1; update <= 2; update++) {
            for (int i = 0; i < 3; i++)
                dot_micro_batch(r, 0x1p15 + 0x1p10 * i);
            if (running)
                assert_true(peek(r, "micro_batches", 0) == 3);
            else
                assert_true(isinf(peek(r, "w.accum", 0)));
            run_phase(r, 1);
            assert_true(peek(r, "w.accum", 0) == 0);
            if (running) {
                assert_true(peek(r, "micro_batches", 0) == 0);
                assert_true(peek(r, "w", 0) == -33.0 * update);
            }
        }
        rig_free(r);
    }
}

static void state_can_be_stored_in_f16(void **unused)
{
    ts_optimizer o = ts_adam(0.05);
    rig *r, *exact = rig_new(o, (ts_options){0}, TS_F32, BATCH);
    double want[N];

    (void)unused;
    o.first_type = o.second_type = TS_F16;
    r = rig_new(o, (ts_options){0}, TS_F32, BATCH);
    assert_int_equal(state(r, "w.exp_avg")->type.dtype, TS_F16);
    assert_int_equal(state(r, "w.exp_avg_sq")->type.dtype, TS_F16);
    for (int i = 0; i < 5; i++) {
        rig_update(r);
        rig_update(exact);
    }
    for (int i = 0; i < N; i++)
        want[i] = weight(exact, i);
    same_weights(r, want, 0.02, "f16 state", 5);
    rig_free(r);
    rig_free(exact);
}

/* Weights of norm 0, then a step of norm 0: trust is 1, not 0/0. */
static void lamb_starts_from_zero_weights(void **unused)
{
    ts_optimizer o = ts_lamb(0.25);
    rig *r;

    (void)unused;
    o.hyper.weight_decay = 0;
    o.hyper.eps = 0x1p-40;
    r = dot_rig(o, (ts_options){0}, TS_F32);
    dot_micro_batch(r, 1);
    assert_true(fabs(peek(r, "w", 0) + 0.25) < 1e-6);
    assert_true(fabs(peek(r, "w", 1) - 0.25) < 1e-6);
    rig_free(r);
    r = dot_rig(o, (ts_options){0}, TS_F32);
    poke(r, "w", 0, 3);
    dot_micro_batch(r, 0);
    assert_true(peek(r, "w", 0) == 3 && peek(r, "w", 1) == 0);
    rig_free(r);
}

/* The variance of a constant gradient goes to 0, and in f32 a little below. */
static void a_centered_variance_stays_a_number(void **unused)
{
    ts_optimizer o = ts_rmsprop(0x1p-20);
    rig *r;

    (void)unused;
    o.centered = true;
    o.hyper.alpha = 0.5;
    r = dot_rig(o, (ts_options){0}, TS_F32);
    for (int i = 0; i < 200; i++) {
        dot_micro_batch(r, 5.0 / 64);
        assert_true(isfinite(peek(r, "w", 0)));
    }
    rig_free(r);
}

/* Parameters of several dtypes, one of them frozen, share a norm and a step. */
static void dtypes_can_be_mixed(void **unused)
{
    ts_optimizer o = ts_sgd(0.5);
    ts_graph *g = ts_graph_new("mixed");
    ts_value *x = ts_input(g, "x", TS_F32, 2), *y, *z, *frozen;
    rig *r;

    (void)unused;
    y = ts_mul(x, ts_param(g, "w", TS_F32, ((ts_init){0}), 2));
    z = ts_mul(ts_cast(x, TS_F64), ts_param(g, "v", TS_F64, ((ts_init){0}), 2));
    y = ts_add(y, ts_cast(z, TS_F32));
    z = ts_mul(ts_cast(x, TS_F16), ts_param(g, "u", TS_F16, ((ts_init){0}), 2));
    y = ts_add(y, ts_cast(z, TS_F32));
    frozen = ts_param(g, "f", TS_F32, ((ts_init){0}), 2);
    y = ts_add(y, ts_mul(x, frozen));
    ts_freeze(frozen);
    ts_loss(ts_sum(y, 0, NULL, false));
    o.max_grad_norm = 1;
    o.hyper.momentum = 0.5;
    r = rig_open(g, o, (ts_options){0}, TS_F32, 1);
    dot_micro_batch(r, 3); /* six elements of 3 or -3: each is clipped to 1 / sqrt(6) */
    assert_true(fabs(peek(r, "w", 0) + 0.5 / sqrt(6)) < 1e-6);
    assert_true(fabs(peek(r, "v", 1) - 0.5 / sqrt(6)) < 1e-12);
    assert_true(fabs(peek(r, "u", 0) + 0.5 / sqrt(6)) < 1e-3);
    assert_true(peek(r, "f", 0) == 0);
    assert_null(ts_graph_find_state(r->g, "f.momentum"));
    assert_int_equal(state(r, "v.momentum")->type.dtype, TS_F64);
    assert_int_equal(state(r, "u.momentum")->type.dtype, TS_F32);
    rig_free(r);
}

/* --- the graph that comes out --- */

static int count_phase(const ts_graph *g, int phase)
{
    int n = 0;

    for (int i = 0; i < g->nnodes; i++)
        n += g->nodes[i]->phase == phase;
    return n;
}

static void the_graph_has_no_grads_left(void **unused)
{
    rig *r = rig_new(ts_sgd(0.1), (ts_options){0}, TS_F32, BATCH);

    (void)unused;
    assert_int_equal(r->g->ngrads, 0);
    assert_int_equal(r->g->nupdates, TENSORS);
    assert_int_equal(r->g->nstates, TENSORS + 1); /* and lr */
    assert_int_equal(count_phase(r->g, 1), 0);
    rig_free(r);
}

/* A phase 1 node runs when the micro-batches are over: it may read states and its like only. */
static void phase_1_reads_states_only(void **unused)
{
    ts_optimizer o = ts_adam(0.1);
    rig *r;

    (void)unused;
    o.variable = ~0u;
    o.max_grad_norm = 1;
    r = rig_new(o, (ts_options){.gradient_accumulation = 2, .accumulate_running = true}, TS_F32,
                BATCH);
    assert_true(count_phase(r->g, 1) > 0);
    for (int i = 0; i < r->g->nnodes; i++)
        for (int k = 0; k < r->g->nodes[i]->nin; k++) {
            const ts_value *v = r->g->nodes[i]->in[k];
            assert_true(v->kind != TS_VALUE_NODE || v->node->phase == r->g->nodes[i]->phase);
            assert_true(!r->g->nodes[i]->phase || v->kind != TS_VALUE_INPUT);
        }
    rig_free(r);
}

static int nodes_with(ts_optimizer o)
{
    rig *r = rig_new(o, (ts_options){0}, TS_F32, BATCH);
    int n = r->g->nnodes;

    rig_free(r);
    return n;
}

static void what_is_trivial_is_not_built(void **unused)
{
    ts_optimizer o = ts_sgd(0.1);
    int plain = nodes_with(o);

    (void)unused;
    o.hyper.weight_decay = 0.5;
    assert_true(nodes_with(o) > plain);
    o.hyper.weight_decay = 0;
    o.max_grad_norm = INFINITY;
    assert_int_equal(nodes_with(o), plain);
    o.variable = TS_HYPER_LR | TS_HYPER_BETAS | TS_HYPER_ALPHA; /* SGD has no betas, no alpha */
    assert_int_equal(nodes_with(o), plain);
}

static void updates_keep_the_layer_s_name(void **unused)
{
    ts_optimizer o = ts_sgd(0.1);
    ts_options opt = {.optimizer = &o};
    ts_graph *g = ts_graph_new("net");
    ts_arena *a = ts_arena_new();
    const ts_graph *out;
    const ts_node *n;

    (void)unused;
    ts_loss(ts_sum(ts_linear(ts_input(g, "x", TS_F32, 2, 3), "fc", 4), 0, NULL, false));
    assert_int_equal(passes(a, g, &opt, &out), TS_OK);
    n = out->updates[0].next->node;
    assert_string_equal(n->layer, "fc");
    assert_false(n->backward);
    ts_arena_free(a);
    ts_graph_free(g);
}

/* --- mistakes --- */

static void fails(ts_optimizer o, ts_options opt, ts_status code, const char *words)
{
    ts_graph *g = model(TS_F32, BATCH);
    ts_arena *a = ts_arena_new();
    const ts_graph *out;

    opt.optimizer = &o;
    assert_int_equal(passes(a, g, &opt, &out), code);
    if (!strstr(ts_last_error()->message, words))
        fail_msg("'%s' does not say '%s'", ts_last_error()->message, words);
    ts_arena_free(a);
    ts_graph_free(g);
}

static void wrong_numbers_are_named(void **unused)
{
    ts_optimizer o;

    (void)unused;
#define WRONG(kind, field, x, words)                                                               \
    o = ts_##kind(0.1), o.field = x, fails(o, (ts_options){0}, TS_ERR_ARG, words)
    WRONG(sgd, hyper.lr, -1, "lr of the optimizer is -1");
    WRONG(sgd, hyper.lr, NAN, "lr");
    WRONG(sgd, hyper.lr, INFINITY, "lr");
    WRONG(sgd, hyper.momentum, -0.5, "momentum");
    WRONG(sgd, hyper.weight_decay, -0.5, "weight_decay");
    WRONG(sgd, hyper.dampening, NAN, "dampening");
    WRONG(sgd, hyper.nesterov, true, "Nesterov");
    WRONG(adam, hyper.beta1, 1, "beta1 of the optimizer is 1; it must be at least 0 and below 1");
    WRONG(adam, hyper.beta2, -0.1, "beta2");
    WRONG(adamw, hyper.eps, -1e-8, "eps");
    WRONG(rmsprop, hyper.alpha, 1.5, "alpha");
    WRONG(lamb, hyper.max_weight_norm, 0, "max_weight_norm");
    WRONG(adam, loss_scaling, 0, "loss_scaling");
    WRONG(adam, max_grad_norm, -1, "max_grad_norm");
    WRONG(adam, max_grad_value, NAN, "max_grad_value");
    WRONG(adam, accum_type, TS_BF16, "accum_type of the optimizer is bf16");
    WRONG(adam, first_type, TS_F64, "first_type");
    WRONG(adam, second_type, TS_I32, "second_type");
    WRONG(adam, kind, (ts_optimizer_kind)99, "kind 99");
    WRONG(adagrad, hyper.lr_decay, -1, "lr_decay");
    WRONG(adagrad, hyper.initial_accumulator_value, -1, "initial_accumulator_value");
    WRONG(adadelta, hyper.alpha, 1, "alpha");
    WRONG(nadam, hyper.momentum_decay, -1, "momentum_decay");
    WRONG(radam, hyper.beta2, 1, "beta2");
    WRONG(rprop, hyper.eta_plus, 1, "eta_plus of the optimizer is 1; it must be above 1");
    WRONG(rprop, hyper.eta_minus, 1, "eta_minus");
    WRONG(adafactor, hyper.beta2_decay, 0.5,
          "beta2_decay of the optimizer is 0.5; it must be at most 0");
    WRONG(adafactor, hyper.clip, 0, "clip");
    WRONG(muon, hyper.ns_steps, 100, "ns_steps");
    WRONG(muon, hyper.adjust_lr, (ts_lr_adjust)7, "adjust_lr 7");
    WRONG(rmsprop, hyper.amsgrad, true, "amsgrad");
    WRONG(adamax, hyper.decoupled_weight_decay, true, "decoupled_weight_decay");
    WRONG(adagrad, hyper.nesterov, true, "Nesterov");
#undef WRONG
    fails(ts_muon(0.1), (ts_options){0}, TS_ERR_UNSUPPORTED,
          "Muon updates matrices only, and 'b' has 1 dims");
    o = ts_sgd(0.1);
    o.automatic_scaling = true;
    o.scaling_edge = 2;
    fails(o, (ts_options){0}, TS_ERR_ARG, "scaling_edge");
    o.scaling_edge = 0;
    o.scaling_share = NAN;
    fails(o, (ts_options){0}, TS_ERR_ARG, "scaling_share");
    o.scaling_share = 0;
    o.scaling_period = -1;
    fails(o, (ts_options){0}, TS_ERR_ARG, "scaling_period");
    o.scaling_period = 0;
    o.combined_accum = true;
    fails(o, (ts_options){.gradient_accumulation = 2}, TS_ERR_UNSUPPORTED, "combined");
    o = ts_sgd(0.1);
    o.hyper.nesterov = true;
    o.hyper.momentum = 0.9;
    o.hyper.dampening = 0.1;
    fails(o, (ts_options){0}, TS_ERR_ARG, "Nesterov");
}

static void wrong_groups_are_named(void **unused)
{
    ts_optimizer o = ts_sgd(0.1);
    ts_group groups[] = {{(const char *[]){"w", "nobody"}, 2, o.hyper},
                         {(const char *[]){"w*"}, 1, o.hyper}};

    (void)unused;
    o.groups = groups;
    o.ngroups = 1;
    fails(o, (ts_options){0}, TS_ERR_ARG, "'nobody'");
    groups[0].params = (const char *[]){"w", "nobody*"};
    fails(o, (ts_options){0}, TS_ERR_ARG, "'nobody*'");
    groups[0].nparams = 1;
    o.ngroups = 2;
    fails(o, (ts_options){0}, TS_ERR_ARG, "'w' is in the groups 1 and 2");
    groups[1].params = (const char *[]){"b"};
    groups[1].hyper.lr = -2;
    fails(o, (ts_options){0}, TS_ERR_ARG, "lr of parameter group 2 is -2");
}

static void a_combined_velocity_has_limits(void **unused)
{
    ts_optimizer o = ts_sgd(0.1);

    (void)unused;
    o.combined_accum = true;
    fails(o, (ts_options){.gradient_accumulation = 2, .accumulate_running = true},
          TS_ERR_UNSUPPORTED, "running mean");
    o.max_grad_norm = 1;
    fails(o, (ts_options){.gradient_accumulation = 2}, TS_ERR_UNSUPPORTED, "clip");
    o.hyper.momentum = 0.9;
    o.hyper.nesterov = true;
    fails(o, (ts_options){0}, TS_ERR_UNSUPPORTED, "Nesterov");
    o.hyper.nesterov = false;
    o.hyper.velocity_scaling = 0;
    fails(o, (ts_options){0}, TS_ERR_ARG, "velocity_scaling");
}

/* A parameter called "lr", or one that ts_assign also writes. */
static void clashes_are_named(void **unused)
{
    ts_optimizer o = ts_sgd(0.1);
    ts_options opt = {.optimizer = &o};
    ts_arena *a = ts_arena_new();
    const ts_graph *out;

    (void)unused;
    for (int assigned = 0; assigned < 2; assigned++) {
        ts_graph *g = ts_graph_new("net");
        ts_value *p = ts_param(g, assigned ? "w" : "lr", TS_F32, ((ts_init){0}), 2);
        ts_loss(ts_sum(ts_square(p), 0, NULL, false));
        if (assigned)
            ts_assign(p, ts_mul_scalar(p, 2));
        assert_int_equal(passes(a, g, &opt, &out), TS_ERR_ARG);
        assert_non_null(
            strstr(ts_last_error()->message, assigned ? "'w' is both" : "'lr' is taken"));
        ts_graph_free(g);
    }
    ts_arena_free(a);
}

static void without_an_optimizer_nothing_happens(void **unused)
{
    ts_graph *g = model(TS_F32, BATCH);
    const ts_graph *out;

    (void)unused;
    assert_int_equal(ts_pass_optimizer(g->arena, g, &(ts_options){0}, &out), TS_OK);
    assert_ptr_equal(out, g);
    ts_graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sgd_follows_its_formula),
        cmocka_unit_test(sgd_with_momentum_follows_its_formula),
        cmocka_unit_test(combined_sgd_is_the_same_thing),
        cmocka_unit_test(adam_follows_its_formula),
        cmocka_unit_test(adamw_follows_its_formula),
        cmocka_unit_test(lamb_follows_its_formula),
        cmocka_unit_test(rmsprop_follows_its_formula),
        cmocka_unit_test(gradients_are_clipped),
        cmocka_unit_test(the_weights_are_pytorch_s),
        cmocka_unit_test(accumulating_equals_a_larger_batch),
        cmocka_unit_test(a_variable_takes_effect_at_once),
        cmocka_unit_test(groups_have_their_own_rates),
        cmocka_unit_test(half_weights_are_updated_in_f32),
        cmocka_unit_test(a_running_mean_does_not_overflow),
        cmocka_unit_test(state_can_be_stored_in_f16),
        cmocka_unit_test(lamb_starts_from_zero_weights),
        cmocka_unit_test(a_centered_variance_stays_a_number),
        cmocka_unit_test(dtypes_can_be_mixed),
        cmocka_unit_test(the_graph_has_no_grads_left),
        cmocka_unit_test(phase_1_reads_states_only),
        cmocka_unit_test(what_is_trivial_is_not_built),
        cmocka_unit_test(updates_keep_the_layer_s_name),
        cmocka_unit_test(wrong_numbers_are_named),
        cmocka_unit_test(wrong_groups_are_named),
        cmocka_unit_test(a_combined_velocity_has_limits),
        cmocka_unit_test(clashes_are_named),
        cmocka_unit_test(without_an_optimizer_nothing_happens),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
