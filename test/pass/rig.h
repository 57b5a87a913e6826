/* rig.h - a small net with an optimizer, run by the reference executor; for the tests of the
 * optimizer pass. Every function is static because each test is a program of its own. */
#ifndef TEST_PASS_RIG_H
#define TEST_PASS_RIG_H

#include "pass/pass.h"
#include "run/run.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum { BATCH = 4, IN = 3, OUT = 2, UPDATES = 20 };
enum { TENSORS = 3, N = IN * OUT + OUT + 1 }; /* w, b, s: all their elements in one array */
static const char *const names[TENSORS] = {"w", "b", "s"};
static const int start[TENSORS + 1] = {0, IN *OUT, IN *OUT + OUT, N};

/* In [-1, 1), exact in f16; make_optim.py has the same. */
static inline double sample(int64_t i)
{
    return (double)((i * 37 + 11) % 128) / 64 - 1;
}

static inline double input(int64_t row, int k)
{
    return sample(row * IN + k);
}

static inline double target(int64_t row, int k)
{
    return sample(1000 + 3 * (row * OUT + k));
}

static inline double first_weight(int i)
{
    static const double rest[] = {0.25, -0.5, 0.75};

    return i < start[1] ? sample(500 + i) : rest[i - start[1]];
}

typedef struct rig {
    ts_arena *a;
    ts_graph *model;
    const ts_graph *g;
    ts_ref *ref;
    ts_options opt;
    ts_optimizer o;
    ts_dtype dtype;
    int64_t batch, row; /* rows of a micro-batch, rows used so far */
} rig;

static inline ts_status passes(ts_arena *a, const ts_graph *in, const ts_options *opt,
                               const ts_graph **out)
{
    TS_TRY(ts_pass_run(a, "decompose", in, opt, out));
    TS_TRY(ts_pass_run(a, "autodiff", *out, opt, out));
    return ts_pass_run(a, "optimizer", *out, opt, out);
}

/* loss = mean(((x w + b) s - t)^2) */
static inline ts_graph *model(ts_dtype t, int64_t batch)
{
    ts_graph *g = ts_graph_new("net");
    ts_value *x = ts_input(g, "x", t, batch, IN), *y = ts_input(g, "t", t, batch, OUT);
    ts_value *w = ts_param(g, "w", t, ((ts_init){0}), IN, OUT);
    ts_value *b = ts_param(g, "b", t, ((ts_init){0}), OUT);
    ts_value *s = ts_param_n(g, "s", t, (ts_init){0}, 0, NULL);

    ts_loss(ts_mse_loss(ts_mul(ts_add(ts_matmul(x, w), b), s), y));
    return g;
}

static inline ts_tensor *state(rig *r, const char *name)
{
    const ts_value *v = ts_graph_find_state(r->g, name);

    if (!v)
        fail_msg("there is no state %s", name);
    return ts_ref_tensor(r->ref, v);
}

static inline double peek(rig *r, const char *name, int64_t i)
{
    ts_tensor *t = state(r, name);

    return ts_dtype_get(t->type.dtype, t->data, i);
}

static inline void poke(rig *r, const char *name, int64_t i, double x)
{
    ts_tensor *t = state(r, name);

    ts_dtype_set(t->type.dtype, t->data, i, x);
}

static inline rig *rig_open(ts_graph *g, ts_optimizer o, ts_options opt, ts_dtype t, int64_t batch)
{
    rig *r = calloc(1, sizeof(*r));

    assert_non_null(r);
    *r = (rig){.a = ts_arena_new(), .opt = opt, .o = o, .dtype = t, .batch = batch};
    r->model = g;
    r->opt.optimizer = &r->o;
    if (passes(r->a, r->model, &r->opt, &r->g) || ts_ref_new(r->g, &r->ref))
        fail_msg("%s", ts_error_text());
    for (int i = 0; i < r->g->nstates; i++) {
        const ts_state *s = &r->g->states[i];
        ts_init_fill(&s->init, s->value->name, 1, s->value->type.dtype,
                     ts_type_count(&s->value->type), ts_ref_tensor(r->ref, s->value)->data);
    }
    return r;
}

static inline rig *rig_new(ts_optimizer o, ts_options opt, ts_dtype t, int64_t batch)
{
    rig *r = rig_open(model(t, batch), o, opt, t, batch);

    for (int k = 0; k < TENSORS; k++)
        for (int i = start[k]; i < start[k + 1]; i++)
            poke(r, names[k], i - start[k], first_weight(i));
    return r;
}

static inline void rig_free(rig *r)
{
    ts_ref_free(r->ref);
    ts_graph_free(r->model);
    ts_arena_free(r->a);
    free(r);
}

static inline void run_phase(rig *r, int phase)
{
    if (ts_ref_run(r->ref, phase, &(ts_eval_ctx){0}))
        fail_msg("%s", ts_error_text());
}

static inline void rig_update(rig *r)
{
    ts_tensor *x = ts_ref_tensor(r->ref, r->g->inputs[0]);
    ts_tensor *t = ts_ref_tensor(r->ref, r->g->inputs[1]);

    for (int m = 0; m < TS_MAX(r->opt.gradient_accumulation, 1); m++) {
        for (int64_t i = 0; i < r->batch * IN; i++)
            ts_dtype_set(r->dtype, x->data, i, input(r->row + i / IN, (int)(i % IN)));
        for (int64_t i = 0; i < r->batch * OUT; i++)
            ts_dtype_set(r->dtype, t->data, i, target(r->row + i / OUT, (int)(i % OUT)));
        r->row += r->batch;
        run_phase(r, 0);
    }
    run_phase(r, 1);
}

static inline double weight(rig *r, int i)
{
    int k = 0;

    while (i >= start[k + 1])
        k++;
    return peek(r, names[k], i - start[k]);
}

static inline void same_weights(rig *r, const double *want, double tolerance, const char *what,
                                int step)
{
    for (int i = 0; i < N; i++)
        if (!(fabs(weight(r, i) - want[i]) <= tolerance * fmax(1, fabs(want[i]))))
            fail_msg("%s, update %d: weight %d is %.17g and should be %.17g", what, step, i,
                     weight(r, i), want[i]);
}

/* Two rigs end with the same weights. */
static inline void agree(rig *x, rig *y, double tolerance, const char *what)
{
    double want[N];

    for (int step = 1; step <= UPDATES; step++) {
        rig_update(x);
        rig_update(y);
        for (int i = 0; i < N; i++)
            want[i] = weight(y, i);
        same_weights(x, want, tolerance, what, step);
    }
    rig_free(x);
    rig_free(y);
}

#endif
