/* plan.c - the plan told before the run is the plan that is run. */
#include "models/nets.h"
#include "run/run.h"
#include "support.h"

enum { BATCH = 8, A = 6 };

static const char *const blocks[] = {"B1", "B2", "B3", "B4"};
static const ts_stage stages[] = {{blocks, .nblocks = 2}, {blocks + 2, 2, .device = 1}};

static const ts_plan_layer *layer(const ts_plan_info *p, const char *name)
{
    for (int i = 0; i < p->nlayers; i++)
        if (!strcmp(p->layers[i].name, name))
            return &p->layers[i];
    fail_msg("no layer %s", name);
    return NULL;
}

static void it_says_what_is_compiled(void **state)
{
    ts_graph *g = net_pipeline(BATCH);
    ts_optimizer adam = ts_adamw(0.01);
    ts_options opt = {.optimizer = &adam,
                      .gradient_accumulation = A,
                      .stages = stages,
                      .nstages = 2,
                      .cache_dir = "",
                      .device_memory = 1};
    ts_plan_info *p;
    ts_executable *x;
    int64_t states = 0, parameters = 0;

    (void)state;
    assert_ok(ts_plan_new(g, &opt, &p));
    opt.device_memory = 0;
    assert_ok(ts_compile(g, &opt, &x));
    assert_int_equal(p->ndevices, 2);
    assert_int_equal(p->ndevices, x->pipe.ndevices);
    assert_int_equal(p->nsections, x->pipe.nsections);
    assert_int_equal(p->nsends, x->pipe.nsends);
    assert_int_equal(p->micro_batches, A);
    assert_false(p->sharded);
    for (int d = 0; d < 2; d++) {
        assert_int_equal(p->devices[d].states, x->bytes[d].states);
        assert_int_equal(p->devices[d].peak, x->bytes[d].peak);
    }
    assert_float_equal(p->devices[0].share + p->devices[1].share, 1, 1e-9);
    for (int i = 0; i < p->nlayers; i++) {
        states += p->layers[i].states;
        parameters += p->layers[i].parameters;
    }
    assert_int_equal(parameters, 10 * 25 + 10 + 20 * 250 + 20 + 320 * 256 + 256 + 2560 + 10);
    assert_true(states <= p->devices[0].states + p->devices[1].states); /* which are rounded up */
    /* weight, two moments and the sum over micro-batches */
    assert_true(layer(p, "layer4")->states >= 4 * 4 * 2570);
    assert_int_equal(layer(p, "layer4")->parameters, 2570);
    assert_int_equal(layer(p, "layer4")->device, 1);
    assert_int_equal(layer(p, "layer1.conv")->device, 0);
    assert_string_equal(layer(p, "layer1.conv")->block, "B1");
    assert_true(p->bubble > 0 && p->bubble < 1);
    assert_non_null(strstr(ts_executable_inspect(x), "\nsections\n"));
    assert_non_null(strstr(ts_executable_inspect(x), "devices                2, pipelined\n"));
    ts_plan_free(p);
    ts_executable_free(x);
    ts_graph_free(g);
}

static void the_schedule_is_drawn(void **state)
{
    ts_graph *g = net_pipeline(BATCH);
    ts_optimizer sgd = ts_sgd(0.01);
    ts_options opt = {
        .optimizer = &sgd, .gradient_accumulation = 3, .stages = stages, .nstages = 2};
    ts_plan_info *p;

    (void)state;
    opt.schedule = TS_SCHEDULE_SHARDED;
    assert_ok(ts_plan_new(g, &opt, &p));
    assert_string_equal(p->schedule, "device 0    F0 .  B0 F1 .  B1 F2 .  B2 U\n"
                                     "device 1    .  X0 .  .  X1 .  .  X2 .  U\n");
    assert_true(p->sharded && p->bubble > 0.4);
    ts_plan_free(p);
    opt.schedule = TS_SCHEDULE_PIPELINED;
    assert_ok(ts_plan_new(g, &opt, &p));
    for (int m = 0; m < 3; m++)
        for (const char *k = "FBX"; *k; k++) {
            char cell[16];
            snprintf(cell, sizeof(cell), "%c%d", *k, m);
            assert_non_null(strstr(p->schedule, cell));
        }
    assert_non_null(strstr(p->schedule, "fill"));
    assert_non_null(strstr(p->schedule, "device 1    .  X0 "));
    ts_plan_free(p);
    opt.gradient_accumulation = 1000; /* the middle is left out */
    assert_ok(ts_plan_new(g, &opt, &p));
    assert_non_null(strstr(p->schedule, " ... "));
    assert_non_null(strstr(p->schedule, "B999"));
    assert_true(strlen(p->schedule) < 500);
    ts_plan_free(p);
    ts_graph_free(g);
}

/* What is moved when: every byte of a section, and of the host's memory. */
static void phases_and_moves(void **state)
{
    ts_graph *g = net_pipeline(BATCH);
    ts_optimizer adam = ts_adamw(0.01);
    ts_stage phases[4];
    ts_options opt = {.optimizer = &adam,
                      .gradient_accumulation = 2,
                      .stages = phases,
                      .nstages = 4,
                      .schedule = TS_SCHEDULE_PHASED,
                      .offload = TS_OFFLOAD_ALL,
                      .cache_dir = ""};
    int64_t weights = 0, moments = 0, stored = 0;
    ts_executable *x;
    ts_plan_info *p;

    (void)state;
    for (int i = 0; i < 4; i++)
        phases[i] = (ts_stage){&blocks[i], 1, .phase = i};
    assert_ok(ts_plan_new(g, &opt, &p));
    assert_int_equal(p->phases, 4);
    assert_int_equal(p->nsections, 7 + 4);
    for (int i = 0; i < 11; i++) {
        assert_int_equal(p->sections[i].phase, i < 7 ? i : i - 7);
        assert_int_equal(p->sections[i].kind, "FFFXBBBUUUU"[i]);
    }
    assert_string_equal(p->schedule, "device 0    F0.0 F1.0 F2.0 X3.0 B4.0 B5.0 B6.0 "
                                     "F0.1 F1.1 F2.1 X3.1 B4.1 B5.1 B6.1 U\n");
    for (int i = 0; i < p->nmoves; i++) {
        const ts_plan_move *m = &p->moves[i];
        bool update = p->sections[m->section].kind == 'U';
        weights += m->section < 4 && m->load && m->what == TS_OFFLOAD_WEIGHTS ? m->bytes : 0;
        moments += update && m->load && m->what == TS_OFFLOAD_OPTIMIZER ? m->bytes : 0;
        stored += update && !m->load && m->what == TS_OFFLOAD_OPTIMIZER ? m->bytes : 0;
        assert_true(update || m->what != TS_OFFLOAD_OPTIMIZER);
    }
    assert_true(weights >= 4 * 90026 && weights < 4 * 90026 * 1.1); /* each once, forward */
    assert_true(moments >= 8 * 90026 && moments < 8 * 90026 * 1.1);
    assert_int_equal(moments, stored);
    assert_true(p->host > 16 * 90026); /* weights, two moments, the sums, and activations */
    assert_true(p->devices[0].states <= 256);
    assert_true(p->devices[0].peak < 16 * 90026);
    assert_int_equal(layer(p, "layer3")->device, 0);
    assert_ok(ts_compile(g, &opt, &x));
    for (int i = 0; i < p->nsections; i++) {
        int64_t loads = 0, stores = 0;
        for (int k = 0; k < p->nmoves; k++)
            if (p->moves[k].section == i)
                *(p->moves[k].load ? &loads : &stores) += p->moves[k].bytes;
        assert_int_equal(x->pipe.sections[i].loads, loads);
        assert_int_equal(x->pipe.sections[i].stores, stores);
    }
    assert_int_equal(x->bytes[0].peak, p->devices[0].peak);
    assert_int_equal(x->remote_bytes, p->host);
    assert_non_null(strstr(ts_executable_inspect(x), "devices                1, phased\n"));
    ts_executable_free(x);
    ts_plan_free(p);
    ts_graph_free(g);
}

static void one_device_has_no_sends(void **state)
{
    ts_graph *g = net_pipeline(BATCH);
    ts_plan_info *p;

    (void)state;
    assert_ok(ts_plan_new(g, NULL, &p));
    assert_int_equal(p->ndevices, 1);
    assert_int_equal(p->nsends, 0);
    assert_int_equal(p->sections[0].kind, 'F');
    for (int i = 0; i < p->nlayers; i++)
        assert_int_equal(p->layers[i].activations, 0); /* inference keeps nothing */
    assert_float_equal(p->bubble, 0, 1e-9);
    ts_plan_free(p);
    ts_plan_free(NULL);
    assert_int_equal(ts_plan_new(NULL, NULL, &p), TS_ERR_ARG);
    ts_graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_says_what_is_compiled),
        cmocka_unit_test(the_schedule_is_drawn),
        cmocka_unit_test(phases_and_moves),
        cmocka_unit_test(one_device_has_no_sends),
    };
    return cmocka_run_group_tests_name("show plan", tests, NULL, NULL);
}
