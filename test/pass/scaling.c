/* scaling.c - the loss scale, constant, variable and automatic, by the reference executor. */
#include "rig.h"

static void loss_scaling_changes_nothing(void **unused)
{
    static ts_optimizer (*const kinds[])(double) = {ts_sgd, ts_adam, ts_adamw, ts_rmsprop, ts_lamb};
    static const double scales[] = {1024, 1000, 0.25};

    (void)unused;
    for (int i = 0; i < TS_COUNT(kinds); i++)
        for (int k = 0; k < TS_COUNT(scales); k++)
            for (int v = 0; v < 2; v++)
                for (int a = 1; a <= 2; a++) {
                    ts_options opt = {.gradient_accumulation = a};
                    ts_optimizer o = kinds[i](0.01);
                    o.max_grad_norm = 0.5;
                    rig *plain = rig_new(o, opt, TS_F64, BATCH);
                    o.loss_scaling = scales[k];
                    o.variable |= v ? TS_HYPER_LOSS_SCALING : 0;
                    agree(rig_new(o, opt, TS_F64, BATCH), plain, 1e-12, "loss scaling");
                }
}

static void loss_scaling_can_change_on_the_way(void **unused)
{
    ts_optimizer o = ts_adam(0.01);
    rig *r, *plain = rig_new(o, (ts_options){0}, TS_F64, BATCH);
    double want[N];

    (void)unused;
    o.variable |= TS_HYPER_LOSS_SCALING;
    o.loss_scaling = 16;
    r = rig_new(o, (ts_options){0}, TS_F64, BATCH);
    for (int step = 1; step <= 10; step++) {
        rig_update(r);
        rig_update(plain);
        poke(r, "loss_scaling", 0, 16 + 3 * step);
    }
    for (int i = 0; i < N; i++)
        want[i] = weight(plain, i);
    same_weights(r, want, 1e-12, "changing loss scale", 10);
    rig_free(r);
    rig_free(plain);
}

/* --- the scale that finds itself --- */

enum { SCALED = 3 };

/* loss = mean(x w) in f16: the gradients are x's means times the loss scale. */
static rig *scaling_rig(ts_optimizer o, ts_options opt)
{
    ts_graph *g = ts_graph_new("scaled");
    ts_value *x = ts_input(g, "x", TS_F16, SCALED);
    ts_value *w = ts_param(g, "w", TS_F16, ((ts_init){0}), SCALED);

    ts_loss(ts_sum(ts_mul(x, w), 0, NULL, false));
    return rig_open(g, o, opt, TS_F16, SCALED);
}

static void scaled_update(rig *r, double x)
{
    int A = TS_MAX(1, r->opt.gradient_accumulation);
    ts_tensor *t = ts_ref_tensor(r->ref, r->g->inputs[0]);

    for (int m = 0; m < A; m++) {
        for (int i = 0; i < SCALED; i++)
            ts_dtype_set(TS_F16, t->data, i, i ? 1e-3 : x);
        run_phase(r, 0);
    }
    run_phase(r, 1);
}

static void the_scale_doubles_and_halves(void **unused)
{
    /* what each update's first gradient is, and the scale it leaves */
    static const struct {
        double x, scale;
        bool skipped;
    } steps[] = {
        {1, 2048, false}, {1, 4096, false},       {1, 8192, false}, {1, 4096, false},
        {16, 2048, true}, {INFINITY, 1024, true}, {NAN, 512, true}, {1, 1024, false},
    };

    (void)unused;
    for (int A = 1; A <= 2; A++)
        for (int running = 0; running < 2; running++) {
            ts_optimizer o = ts_adam(0.01);
            o.automatic_scaling = true;
            o.loss_scaling = 1024;
            rig *r = scaling_rig(
                o, (ts_options){.gradient_accumulation = A, .accumulate_running = running});
            double updates = 0;
            for (int i = 0; i < TS_COUNT(steps); i++) {
                double w = peek(r, "w", 1), m = peek(r, "w.exp_avg", 1);
                scaled_update(r, steps[i].x);
                updates += !steps[i].skipped;
                assert_float_equal(peek(r, "loss_scaling", 0), steps[i].scale, 0);
                assert_float_equal(peek(r, "step", 0), updates, 0);
                assert_int_equal(w == peek(r, "w", 1), steps[i].skipped);
                assert_int_equal(m == peek(r, "w.exp_avg", 1), steps[i].skipped);
                assert_true(isfinite(peek(r, "w", 0)) && isfinite(peek(r, "w.exp_avg_sq", 0)));
                if (A > 1)
                    assert_float_equal(peek(r, "w.accum", 0), 0, 0);
            }
            rig_free(r);
        }
}

static void the_scale_has_bounds(void **unused)
{
    ts_optimizer o = ts_sgd(0);
    rig *r;

    (void)unused;
    o.automatic_scaling = true;
    r = scaling_rig(o, (ts_options){0});
    for (int i = 0; i < 40; i++)
        scaled_update(r, 1e-3);
    assert_float_equal(peek(r, "loss_scaling", 0), 32768, 0); /* of an f16 loss */
    for (int i = 0; i < 40; i++)
        scaled_update(r, INFINITY);
    assert_float_equal(peek(r, "loss_scaling", 0), 1, 0);
    rig_free(r);
    o.loss_scaling = 0.25; /* outside: it may come in, and not go further out */
    r = scaling_rig(o, (ts_options){0});
    scaled_update(r, INFINITY);
    assert_float_equal(peek(r, "loss_scaling", 0), 0.25, 0);
    scaled_update(r, 1);
    assert_float_equal(peek(r, "loss_scaling", 0), 0.5, 0);
    rig_free(r);
    o.loss_scaling = 1;
    r = rig_new(o, (ts_options){0}, TS_F32, BATCH); /* no f16: all gradients count */
    for (int i = 0; i < 40; i++)
        rig_update(r);
    assert_in_range((int64_t)peek(r, "loss_scaling", 0), 2048, 32768);
    rig_free(r);
}

static void the_scale_waits_for_its_period(void **unused)
{
    ts_optimizer o = ts_sgd(0);
    rig *r;

    (void)unused;
    o.automatic_scaling = true;
    o.loss_scaling = 8;
    o.scaling_period = 3;
    o.scaling_edge = 8.0 / 65504;
    o.scaling_share = 0.2; /* of 9 elements in a period */
    r = scaling_rig(o, (ts_options){0});
    for (int i = 0; i < 6; i++) {
        scaled_update(r, i < 2 ? 2 : 0.1);
        assert_float_equal(peek(r, "loss_scaling", 0), i < 2 ? 8 : i < 5 ? 4 : 8, 0);
    }
    scaled_update(r, 1e-3);
    scaled_update(r, NAN); /* at once, and a new period begins */
    assert_float_equal(peek(r, "loss_scaling", 0), 4, 0);
    assert_float_equal(peek(r, "loss_scaling.updates", 0), 0, 0);
    rig_free(r);
}

/* What the scale is changes no weight, in f64. */
static void an_automatic_scale_changes_nothing(void **unused)
{
    static ts_optimizer (*const kinds[])(double) = {ts_sgd, ts_adam, ts_adamw, ts_rmsprop, ts_lamb};

    (void)unused;
    for (int i = 0; i < TS_COUNT(kinds); i++)
        for (int A = 1; A <= 2; A++) {
            ts_options opt = {.gradient_accumulation = A};
            ts_optimizer o = kinds[i](0.01);
            rig *plain = rig_new(o, opt, TS_F64, BATCH);
            o.automatic_scaling = true;
            agree(rig_new(o, opt, TS_F64, BATCH), plain, 1e-12, "automatic scale");
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loss_scaling_changes_nothing),
        cmocka_unit_test(loss_scaling_can_change_on_the_way),
        cmocka_unit_test(the_scale_doubles_and_halves),
        cmocka_unit_test(the_scale_has_bounds),
        cmocka_unit_test(the_scale_waits_for_its_period),
        cmocka_unit_test(an_automatic_scale_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
