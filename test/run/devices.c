/* devices.c - several devices give the same bits as one: pipelined, sharded, recomputed, offloaded,
 * with any number of threads; replicas give what a larger batch would. */
#include "graph/graph.h"
#include "models/nets.h"
#include "support.h"
#include <math.h>

enum { BATCH = 4, A = 7, D = 2, MB = A * D, RUNS = 2 };

typedef struct net {
    ts_graph *(*make)(int64_t batch);
    int64_t floats; /* of one sample */
    bool labels;
} net;

typedef struct results {
    float loss[MB];
    float *states; /* all of them, one after the other */
    size_t count;
    ts_stats stats;
} results;

static const char *const blocks[] = {"B1", "B2", "B3", "B4"};

/* Down and up again, with skips over one and over two stages, and batch norm's running
 * statistics. */
static ts_graph *unet(int64_t batch)
{
    ts_graph *g = ts_graph_new("unet");
    ts_value *x = ts_input(g, "x", TS_F32, batch, 1, 8, 8),
             *t = ts_input(g, "labels", TS_I32, batch);
    ts_value *top, *low;

    ts_block_begin(g, "B1");
    top = ts_relu(ts_batch_norm(ts_conv2d(x, "down1", 4, 3, .padding = 1), "norm1"));
    ts_block_end(g);
    ts_block_begin(g, "B2");
    low = ts_dropout(ts_relu(ts_conv2d(ts_max_pool2d(top, 2), "down2", 8, 3, .padding = 1)), 0.3,
                     true);
    ts_block_end(g);
    ts_block_begin(g, "B3");
    x = ts_relu(ts_conv2d(ts_max_pool2d(low, 2), "bottom", 8, 3, .padding = 1));
    x = ts_concat(2, (ts_value *[]){ts_conv_transpose2d(x, "up2", 8, 2, .stride = 2), low}, 1);
    x = ts_relu(ts_conv2d(x, "up2b", 8, 3, .padding = 1));
    ts_block_end(g);
    ts_block_begin(g, "B4");
    x = ts_concat(2, (ts_value *[]){ts_upsample_bilinear2d(x, 8, 8, false), top}, 1);
    x = ts_linear(ts_flatten(ts_relu(ts_conv2d(x, "up1", 2, 3, .padding = 1)), 1), "out", 10);
    ts_output(x, "y");
    ts_loss(ts_cross_entropy(x, t));
    ts_block_end(g);
    return g;
}

/* The first and the last layer share their weight. */
static ts_graph *tied(int64_t batch)
{
    ts_graph *g = ts_graph_new("tied");
    ts_value *x = ts_input(g, "x", TS_F32, batch, 12), *t = ts_input(g, "labels", TS_I32, batch),
             *w;

    ts_block_begin(g, "B1");
    w = ts_param(g, "w", TS_F32, ((ts_init){TS_INIT_UNIFORM, -0.5, 0.5}), 12, 20);
    x = ts_tanh(ts_matmul(x, w));
    ts_block_end(g);
    ts_block_begin(g, "B2");
    x = ts_tanh(ts_linear(x, "fc2", 20));
    ts_block_end(g);
    ts_block_begin(g, "B3");
    x = ts_tanh(ts_linear(x, "fc3", 20));
    ts_block_end(g);
    ts_block_begin(g, "B4");
    x = ts_matmul(x, ts_transpose(w, 0, 1));
    ts_output(x, "y");
    ts_loss(ts_cross_entropy(x, t));
    ts_block_end(g);
    return g;
}

static const net nets[] = {{net_pipeline, 28 * 28, true}, {unet, 64, true}, {tied, 12, true}};

/* n stages of the four blocks, the last device first when reversed */
static int cut(int n, ts_stage *stages, bool reversed)
{
    for (int i = 0; i < n; i++) {
        int lo = 4 * i / n, hi = 4 * (i + 1) / n;
        stages[i] = (ts_stage){blocks + lo, hi - lo, .device = reversed ? n - 1 - i : i};
    }
    return n;
}

/* MB micro-batches a run of n replicas, whatever they are split into. */
static results run(const net *n, ts_options opt, int threads)
{
    results r = {0};
    ts_optimizer adam = ts_adamw(0.01);
    int R = opt.replicas ? opt.replicas : 1;
    size_t floats = (size_t)(MB * BATCH * n->floats);
    float *x = calloc(floats, sizeof(float));
    int32_t labels[MB * BATCH];
    ts_graph *g = n->make(BATCH);
    ts_executable *exe;
    ts_engine *e;

    for (size_t i = 0; i < floats; i++)
        x[i] = (float)((i * 2654435761u >> 7) % 1000) / 1000;
    for (int i = 0; i < MB * BATCH; i++)
        labels[i] = i * 7 % 10;
    if (!opt.optimizer)
        opt.optimizer = &adam;
    if (!opt.gradient_accumulation)
        opt.gradient_accumulation = A / R;
    opt.device_iterations = MB / R / opt.gradient_accumulation;
    opt.output_mode = TS_OUTPUT_ALL;
    opt.cache_dir = "";
    assert_ok(ts_compile(g, &opt, &exe));
    assert_ok(ts_engine_new(exe, &(ts_run_options){.threads = threads, .seed = 5}, &e));
    for (int i = 0; i < RUNS; i++)
        assert_ok(ts_engine_run(e, (const void *[]){x, labels}, (void *[]){NULL, r.loss}));
    r.states = test_states(exe, e, &r.count);
    r.stats = ts_executable_stats(exe);
    ts_engine_free(e);
    ts_executable_free(exe);
    ts_graph_free(g);
    free(x);
    return r;
}

static void assert_same(const results *x, results y)
{
    for (int i = 0; i < MB; i++)
        if (memcmp(&x->loss[i], &y.loss[i], sizeof(float)))
            fail_msg("loss %d is %.9g, not %.9g", i, (double)y.loss[i], (double)x->loss[i]);
    assert_int_equal(x->count, y.count);
    assert_memory_equal(x->states, y.states, x->count * sizeof(float));
    free(y.states);
}

/* One device's results for each net, which the others are held against. */
static results one_device[TS_COUNT(nets)];

static int run_on_one(void **state)
{
    (void)state;
    for (int k = 0; k < TS_COUNT(nets); k++)
        one_device[k] = run(&nets[k], (ts_options){0}, 2);
    return 0;
}

static int free_ones(void **state)
{
    (void)state;
    for (int k = 0; k < TS_COUNT(nets); k++)
        free(one_device[k].states);
    return 0;
}

static void stages_give_the_same_bits(void **state)
{
    (void)state;
    for (int k = 0; k < TS_COUNT(nets); k++)
        for (int n = test_brief() ? 4 : 2; n <= 5; n += test_soaks() || n == 4 ? 1 : 2) {
            ts_stage stages[4];
            ts_options opt = {.stages = stages,
                              .schedule = n == 5 ? TS_SCHEDULE_SHARDED : TS_SCHEDULE_PIPELINED};
            opt.nstages = cut(n < 5 ? n : 4, stages, n == 3);
            assert_same(&one_device[k], run(&nets[k], opt, n));
        }
}

static void recomputed(void **state)
{
    (void)state;
    for (int k = 0; k < TS_COUNT(nets); k++) {
        ts_stage stages[4];
        ts_optimizer adam = ts_adamw(0.01);
        ts_options opt = {.stages = stages, .nstages = cut(4, stages, false), .recompute = true};
        results again = run(&nets[k], opt, 4);
        ts_graph *g = nets[k].make(BATCH);
        ts_stats kept;
        opt = (ts_options){.optimizer = &adam,
                           .gradient_accumulation = A,
                           .stages = stages,
                           .nstages = opt.nstages};
        assert_ok(ts_estimate(g, &opt, &kept));
        if (k < 2)
            assert_true(again.stats.peak_bytes < kept.peak_bytes);
        assert_same(&one_device[k], again);
        ts_graph_free(g);
    }
}

static void offloaded(void **state)
{
    static const unsigned what[] = {TS_OFFLOAD_OPTIMIZER | TS_OFFLOAD_ACCUMULATORS,
                                    TS_OFFLOAD_WEIGHTS, TS_OFFLOAD_ACTIVATIONS, 15};

    (void)state;
    for (int piped = test_brief(); piped < 2; piped++) {
        ts_stage stages[4];
        ts_options opt = {.skip = "spread"};
        results here;
        if (piped) {
            opt.stages = stages;
            opt.nstages = cut(3, stages, false);
        }
        here = run(&nets[piped], opt, 3);
        for (int i = test_brief() ? TS_COUNT(what) - 1 : 0; i < TS_COUNT(what); i++) {
            results there;
            opt.offload = what[i];
            there = run(&nets[piped], opt, 3);
            assert_true(there.stats.peak_bytes < here.stats.peak_bytes);
            assert_same(&here, there);
        }
        free(here.states);
    }
}

/* A device may be done with its update, and send the next micro-batch, before another is. */
static void offloaded_in_turns(void **state)
{
    ts_stage stages[4];
    ts_options opt = {
        .stages = stages, .nstages = cut(4, stages, false), .schedule = TS_SCHEDULE_SHARDED};
    results here = run(&nets[2], opt, 2);

    (void)state;
    opt.offload = TS_OFFLOAD_OPTIMIZER;
    assert_same(&here, run(&nets[2], opt, 2));
    free(here.states);
}

/* A phase for each block: one device for all, or two in turns, or phases of two stages each. */
static void phased(void **state)
{
    static const struct {
        int net, devices, stages; /* of a phase */
        ts_options opt;
    } cases[] = {
        {0, 1, 1, {.offload = TS_OFFLOAD_ALL}},
        {1, 1, 1, {.offload = TS_OFFLOAD_ALL, .separate_backward = true}},
        {1, 2, 2, {.offload = TS_OFFLOAD_ALL, .offload_by_pass = true}},
        {2, 2, 1, {.offload = TS_OFFLOAD_ALL, .gradient_accumulation = 1}},
        {2, 4, 2, {.offload = TS_OFFLOAD_WEIGHTS | TS_OFFLOAD_ACTIVATIONS, .replicas = 2}},
    };

    (void)state;
    for (int i = test_brief() ? 2 : 0; i < (test_brief() ? 3 : TS_COUNT(cases)); i++) {
        const net *n = &nets[cases[i].net];
        ts_stage stages[4];
        ts_options opt = cases[i].opt, plain = {.gradient_accumulation = opt.gradient_accumulation,
                                                .replicas = opt.replicas};
        bool own = plain.gradient_accumulation || plain.replicas;
        results here = own ? run(n, plain, 2) : one_device[cases[i].net];
        opt.stages = stages;
        opt.nstages = cut(4, stages, false);
        opt.schedule = TS_SCHEDULE_PHASED;
        for (int k = 0; k < 4; k++) {
            stages[k].phase = k / cases[i].stages;
            stages[k].device = k % cases[i].devices;
        }
        assert_same(&here, run(n, opt, 2));
        if (own)
            free(here.states);
    }
}

static void cut_by_itself(void **state)
{
    (void)state;
    for (int k = 0; k < TS_COUNT(nets); k++)
        assert_same(&one_device[k], run(&nets[k], (ts_options){.devices = k ? 2 : 4}, 2));
}

static void running_mean(void **state)
{
    ts_stage stages[4];
    ts_options opt = {.accumulate_running = true};
    results one = run(&nets[0], opt, 2), many;

    (void)state;
    opt.stages = stages;
    opt.nstages = cut(4, stages, false);
    many = run(&nets[0], opt, 2);
    assert_memory_equal(one.loss, many.loss, sizeof(one.loss));
    free(one.states);
    free(many.states);
}

/* Seven replicas of one micro-batch each, or one device with seven: the same gradients, added up in
 * another order. */
static void replicas_are_a_larger_batch(void **state)
{
    ts_optimizer sgd = ts_sgd(0.05);
    ts_stage stages[4];
    results one, many, piped;
    int n = cut(2, stages, false);

    (void)state;
    one = run(&nets[2], (ts_options){.optimizer = &sgd}, 2);
    many = run(&nets[2], (ts_options){.optimizer = &sgd, .replicas = 7}, 2);
    piped = run(&nets[2],
                (ts_options){.optimizer = &sgd, .replicas = 7, .stages = stages, .nstages = n}, 3);
    assert_memory_equal(many.loss, piped.loss, sizeof(many.loss));
    for (int i = 0; i < MB; i++)
        if (fabs(many.loss[i] - one.loss[i]) > 1e-6 * fabs(one.loss[i]))
            fail_msg("loss %d is %.9g, not %.9g", i, (double)many.loss[i], (double)one.loss[i]);
    free(one.states);
    free(many.states);
    free(piped.states);
}

/* Also what has copies on other devices: the shared weight of the first and the last layer. */
static void replicas_that_split_the_state(void **state)
{
    ts_stage stages[4];
    ts_options opt = {.replicas = 7, .stages = stages, .nstages = cut(4, stages, true)};
    results whole = run(&nets[2], opt, 3), split;

    (void)state;
    opt.shard_optimizer = true;
    opt.shard_least = 200;
    split = run(&nets[2], opt, 3);
    assert_true(split.stats.state_bytes < whole.stats.state_bytes);
    assert_same(&whole, split);
    free(whole.states);
}

static void replicas_by_the_reference(void **state)
{
    ts_optimizer sgd = ts_sgd(0.05);
    results native = run(&nets[2], (ts_options){.optimizer = &sgd, .replicas = 7}, 2);
    results plain =
        run(&nets[2],
            (ts_options){.optimizer = &sgd, .replicas = 7, .executor = TS_EXECUTOR_REFERENCE}, 1);

    (void)state;
    for (int i = 0; i < MB; i++)
        if (fabs(native.loss[i] - plain.loss[i]) > 1e-5 * fabs(plain.loss[i]))
            fail_msg("loss %d is %.9g, not %.9g", i, (double)native.loss[i], (double)plain.loss[i]);
    free(native.states);
    free(plain.states);
}

/* What each output mode returns of every replica: reference section 2.3's arithmetic. */
static void outputs_of_replicas(void **state)
{
    enum { R = 2, ITERATIONS = 4 };
    static const struct {
        ts_output_mode mode;
        int slots;
        float want[R * ITERATIONS];
    } cases[] = {
        {TS_OUTPUT_ALL, 8, {0, 1, 2, 3, 4, 5, 6, 7}},
        {TS_OUTPUT_FINAL, 2, {6, 7}},
        {TS_OUTPUT_SUM, 2, {12, 16}},
        {TS_OUTPUT_EVERY_N, 4, {2, 3, 6, 7}},
    };
    float in[R * ITERATIONS], out[R * ITERATIONS];

    (void)state;
    for (int i = 0; i < R * ITERATIONS; i++)
        in[i] = (float)i;
    for (int i = 0; i < TS_COUNT(cases); i++) {
        ts_graph *g = ts_graph_new("same");
        ts_options opt = {.replicas = R,
                          .device_iterations = ITERATIONS,
                          .output_mode = cases[i].mode,
                          .output_period = 2,
                          .cache_dir = ""};
        ts_executable *x;
        ts_engine *e;
        ts_output(ts_mul_scalar(ts_input(g, "x", TS_F32, 1), 1), "y");
        assert_ok(ts_compile(g, &opt, &x));
        assert_ok(ts_engine_new(x, &(ts_run_options){.threads = 2}, &e));
        assert_int_equal(ts_engine_slots(e), cases[i].slots);
        assert_ok(ts_engine_run(e, (const void *[]){in}, (void *[]){out}));
        assert_memory_equal(out, cases[i].want, sizeof(float) * (size_t)cases[i].slots);
        ts_engine_free(e);
        ts_executable_free(x);
        ts_graph_free(g);
    }
}

static void inference_in_a_pipeline(void **state)
{
    enum { N = 9 };
    static float x[N * BATCH * 64], one[N * BATCH * 10], many[N * BATCH * 10];

    (void)state;
    for (int i = 0; i < TS_COUNT(x); i++)
        x[i] = (float)((unsigned)i * 2654435761u >> 9 & 1023) / 1024;
    for (int k = 0; k < 3; k++) {
        ts_stage stages[4];
        ts_graph *g = unet(BATCH);
        ts_options opt = {.device_iterations = N, .cache_dir = "", .queue_depth = k};
        static int32_t labels[N * BATCH];
        ts_executable *exe;
        ts_engine *e;
        if (k) {
            opt.stages = stages;
            opt.nstages = cut(4, stages, false);
        }
        assert_ok(ts_compile(g, &opt, &exe));
        assert_ok(ts_engine_new(exe, &(ts_run_options){.threads = 4}, &e));
        assert_ok(ts_engine_run(e, (const void *[]){x, labels}, (void *[]){k ? many : one, NULL}));
        if (k)
            assert_memory_equal(one, many, sizeof(one));
        ts_engine_free(e);
        ts_executable_free(exe);
        ts_graph_free(g);
    }
}

/* A stage that takes a thousand times as long as its neighbours, and queues of one. */
static void uneven_stages_end(void **state)
{
    ts_stage stages[4];
    ts_optimizer sgd = ts_sgd(0.01);

    (void)state;
    for (int slow = test_brief() ? 3 : 0; slow < 4; slow++) {
        ts_graph *g = ts_graph_new("uneven");
        ts_value *x = ts_input(g, "x", TS_F32, 2, 8), *t = ts_input(g, "t", TS_F32, 2, 8);
        ts_options opt = {.optimizer = &sgd,
                          .stages = stages,
                          .nstages = cut(4, stages, slow & 1),
                          .gradient_accumulation = 9,
                          .device_iterations = 5,
                          .queue_depth = 1,
                          .cache_dir = ""};
        static float data[2 * 8 * 45];
        ts_executable *exe;
        ts_engine *e;
        char name[8];
        for (int i = 0; i < 4; i++) {
            snprintf(name, sizeof(name), "l%d", i);
            ts_block_begin(g, blocks[i]);
            if (i == slow)
                x = ts_tanh(ts_linear(x, "wide", 1500));
            x = ts_linear(x, name, 8);
            if (i == 3)
                ts_loss(ts_mse_loss(x, t));
            ts_block_end(g);
        }
        assert_ok(ts_compile(g, &opt, &exe));
        for (int threads = 1; threads <= 5; threads += 2) {
            assert_ok(ts_engine_new(exe, &(ts_run_options){.threads = threads}, &e));
            for (int i = 0; i < 10; i++)
                assert_ok(ts_engine_run(e, (const void *[]){data, data}, (void *[]){NULL}));
            ts_engine_free(e);
        }
        ts_executable_free(exe);
        ts_graph_free(g);
    }
}

/* The tied net on four devices, an update of seven micro-batches, and something to feed it. */
static float some_x[7 * BATCH * 12];
static int32_t some_labels[7 * BATCH];

static ts_engine *four_devices(void)
{
    ts_stage stages[4];
    ts_optimizer sgd = ts_sgd(0.01);
    ts_options opt = {.optimizer = &sgd,
                      .stages = stages,
                      .nstages = cut(4, stages, false),
                      .gradient_accumulation = 7,
                      .cache_dir = ""};
    ts_graph *g = tied(BATCH);
    ts_executable *exe;
    ts_engine *e;

    assert_ok(ts_compile(g, &opt, &exe));
    assert_ok(ts_engine_new(exe, &(ts_run_options){.threads = 2}, &e));
    ts_executable_free(exe);
    ts_graph_free(g);
    return e;
}

static ts_status run_once(ts_engine *e)
{
    return ts_engine_run(e, (const void *[]){some_x, some_labels}, (void *[]){NULL, NULL});
}

static void a_stage_that_stops_says_which(void **state)
{
    ts_engine *e = four_devices();

    (void)state;
    ts_fault_arm("stage", 10);
    assert_int_equal(run_once(e), TS_ERR_INTERNAL);
    ts_fault_arm(NULL, -1);
    assert_non_null(strstr(ts_last_error()->message, " stopped in micro-batch "));
    assert_non_null(strstr(ts_last_error()->message, "(B"));
    assert_ok(run_once(e));
    ts_engine_free(e);
}

/* For the thread sanitizer: more devices than cores, a thousand updates. */
static void a_thousand_updates_on_eight_devices(void **state)
{
    enum { DEVICES = 8, MICRO = 15, UPDATES = 1000, CALL = 50 };
    static const char *const names[] = {"0", "1", "2", "3", "4", "5", "6", "7"};
    ts_stage stages[DEVICES];
    ts_optimizer sgd = ts_sgd(0.01);
    ts_graph *g = ts_graph_new("eight");
    ts_value *x = ts_input(g, "x", TS_F32, 2, 6), *t = ts_input(g, "t", TS_F32, 2, 6);
    ts_options opt = {.optimizer = &sgd,
                      .gradient_accumulation = MICRO,
                      .device_iterations = CALL,
                      .cache_dir = ""};
    static float data[2 * 6 * MICRO * CALL];
    float loss[2];

    (void)state;
    for (int i = 0; i < TS_COUNT(data); i++)
        data[i] = (float)(i % 17) / 17;
    for (int i = 0; i < DEVICES; i++) {
        stages[i] = (ts_stage){&names[i], 1, .device = i};
        ts_block_begin(g, names[i]);
        x = ts_tanh(ts_linear(x, ts_arena_printf(g->arena, "l%d", i), 6));
        if (i == DEVICES - 1)
            ts_loss(ts_mse_loss(x, t));
        ts_block_end(g);
    }
    for (int k = 0; k < 2; k++) {
        ts_executable *exe;
        ts_engine *e;
        opt.stages = k ? stages : NULL;
        opt.nstages = k ? DEVICES : 0;
        assert_ok(ts_compile(g, &opt, &exe));
        assert_ok(ts_engine_new(exe, &(ts_run_options){.threads = k ? DEVICES : 1}, &e));
        for (int i = 0; i < UPDATES / CALL; i++)
            assert_ok(ts_engine_run(e, (const void *[]){data, data}, (void *[]){&loss[k]}));
        ts_engine_free(e);
        ts_executable_free(exe);
    }
    assert_memory_equal(&loss[0], &loss[1], sizeof(float));
    ts_graph_free(g);
}

/* Fill, main, flush: the schedule's arithmetic. */
static void the_trace_shows_the_schedule(void **state)
{
    const ts_trace_event *events;
    ts_engine *e = four_devices();
    int n, updates = 0;

    (void)state;
    assert_ok(ts_engine_trace(e, 1000));
    assert_ok(run_once(e));
    events = ts_engine_events(e, &n);
    for (int i = 0; i < n; i++) {
        updates += events[i].update;
        assert_true(events[i].start <= events[i].end);
        for (int j = 0; j < i; j++) /* a device does one thing at a time */
            if (events[i].device == events[j].device)
                assert_true(events[i].start >= events[j].end || events[j].start >= events[i].end);
    }
    assert_int_equal(n - updates, 7 * (2 * 4 - 1));
    assert_int_equal(updates, 3); /* the last stage has no parameter of its own */
    ts_engine_free(e);
}

/* All that several devices need is in the file. */
static void saved_and_loaded(void **state)
{
    ts_stage stages[4];
    ts_optimizer adam = ts_adamw(0.01);
    ts_options opt = {.optimizer = &adam,
                      .stages = stages,
                      .nstages = cut(4, stages, false),
                      .gradient_accumulation = 7,
                      .replicas = 2,
                      .recompute = true,
                      .offload = TS_OFFLOAD_ALL,
                      .cache_dir = ""};
    ts_graph *g = tied(BATCH);
    static float x[2 * 7 * BATCH * 12];
    static int32_t labels[2 * 7 * BATCH];
    char *folder = test_folder(), path[4096];
    ts_executable *exe[2];
    float loss[2][2];

    (void)state;
    for (int i = 0; i < TS_COUNT(x); i++)
        x[i] = (float)(i % 31) / 31;
    snprintf(path, sizeof(path), "%s/net.tse", folder);
    assert_ok(ts_compile(g, &opt, &exe[0]));
    assert_ok(ts_executable_save(exe[0], path));
    assert_ok(ts_executable_load(path, &exe[1]));
    for (int k = 0; k < 2; k++) {
        ts_engine *e;
        assert_ok(ts_engine_new(exe[k], &(ts_run_options){.threads = 2, .seed = 3}, &e));
        for (int i = 0; i < 3; i++)
            assert_ok(ts_engine_run(e, (const void *[]){x, labels}, (void *[]){NULL, loss[k]}));
        ts_engine_free(e);
        ts_executable_free(exe[k]);
    }
    assert_memory_equal(loss[0], loss[1], sizeof(loss[0]));
    test_folder_remove(folder);
    free(folder);
    ts_graph_free(g);
}

static void over_budget(void **state)
{
    ts_optimizer adam = ts_adamw(0.01);
    ts_stage stages[4];
    ts_options opt = {.optimizer = &adam,
                      .stages = stages,
                      .nstages = cut(2, stages, false),
                      .gradient_accumulation = 7,
                      .cache_dir = "",
                      .device_memory = 1400000};
    ts_graph *g = net_pipeline(BATCH);
    ts_executable *exe;
    ts_stats s;

    (void)state;
    assert_int_equal(ts_compile(g, &opt, &exe), TS_ERR_MEMORY);
    assert_memory_equal(ts_last_error()->message, "device 1 needs ", 15);
    assert_non_null(strstr(ts_last_error()->message, "and has 1367.2 KiB"));
    assert_non_null(strstr(ts_last_error()->hint, "layer3.weight"));
    assert_non_null(strstr(ts_last_error()->hint, "offload the optimiser's state (-"));
    opt.offload = TS_OFFLOAD_OPTIMIZER | TS_OFFLOAD_ACCUMULATORS;
    assert_ok(ts_estimate(g, &opt, &s)); /* so it fits */
    ts_graph_free(g);
}

/* Weights of n MB, in inference. */
static ts_graph *heavy(int64_t n)
{
    ts_graph *g = ts_graph_new("heavy");
    ts_value *x = ts_input(g, "x", TS_F32, 1, 25000);

    x = ts_matmul(x, ts_param(g, "w", TS_F32, ((ts_init){TS_INIT_FULL, 0, 0}), 25000, 10 * n));
    ts_output(ts_sum(x, 0, NULL, false), "y");
    return g;
}

static void memory_of_each_kind(void **state)
{
    static const struct {
        ts_device_kind kind;
        int64_t fits, large,
            limit; /* MB that fit, with code and what is sent on every tile of a model, and that do not; what is set */
        const char *has;
    } cases[] = {{TS_DEVICE_MK2, 900, 950, 0, "and has 897.0 MiB"},
                 {TS_DEVICE_MK1, 280, 330, 0, "and has 304.0 MiB"},
                 {TS_DEVICE_MK1, 900, 1100, 1000000000, "and has 953.7 MiB"},
                 {TS_DEVICE_CPU, 900, 100000000, 0, "and has "}};
    ts_stats s;

    (void)state;
    for (int i = 0; i < TS_COUNT(cases); i++) {
        ts_options opt = {.device_kind = cases[i].kind, .device_memory = cases[i].limit};
        ts_graph *g = heavy(cases[i].fits), *large = heavy(cases[i].large);
        assert_ok(ts_estimate(g, &opt, &s));
        assert_int_equal(ts_estimate(large, &opt, &s), TS_ERR_MEMORY);
        assert_non_null(strstr(ts_last_error()->message, cases[i].has));
        assert_memory_equal(ts_last_error()->hint, "the largest are w (", 19);
        /* what the host keeps is the machine's memory as well */
        assert_int_equal(!!strstr(ts_last_error()->hint, "offload weights"),
                         cases[i].kind != TS_DEVICE_CPU);
        ts_graph_free(g);
        ts_graph_free(large);
    }
    assert_int_equal(ts_device_memory(TS_DEVICE_MK2), INT64_C(897) << 20);
    assert_int_equal(ts_device_memory(TS_DEVICE_MK1), INT64_C(304) << 20);
}

/* One fits, two do not. */
static void replicas_share_the_memory(void **state)
{
    int64_t mb = ts_device_memory(TS_DEVICE_CPU) / 1000000 * 2 / 3;
    ts_graph *g = heavy(mb);
    ts_stats s;

    (void)state;
    assert_ok(ts_estimate(g, &(ts_options){0}, &s));
    assert_int_equal(ts_estimate(g, &(ts_options){.replicas = 2}, &s), TS_ERR_MEMORY);
    ts_graph_free(g);
}

static void what_cannot_be(void **state)
{
    static const char *const unknown[] = {"B1", "B2", "B7"}, *const twice[] = {"B1", "B1"};
    ts_graph *g = tied(BATCH);
    ts_stage stages[4];
    ts_options opt = {.stages = stages, .schedule = TS_SCHEDULE_PHASED};
    ts_executable *exe;

    (void)state;
    assert_int_equal(
        ts_compile(g, &(ts_options){.stages = &(ts_stage){unknown, .nblocks = 3}, .nstages = 1},
                   &exe),
        TS_ERR_ARG);
    assert_string_equal(ts_last_error()->message, "the block 'B3' is in no stage");
    assert_string_equal(ts_last_error()->hint, "the stages have the blocks B1, B2, B7");
    assert_fails(ts_compile(g,
                            &(ts_options){.stages = &(ts_stage){twice, .nblocks = 2}, .nstages = 1},
                            &exe),
                 TS_ERR_ARG, "the block 'B1' is associated with more than one stage");
    assert_fails(
        ts_compile(g, &(ts_options){.stages = &(ts_stage){twice, 1, .device = -1}, .nstages = 1},
                   &exe),
        TS_ERR_ARG, "stage 0 is on device -1; devices have the numbers 0 to 4095");
    assert_fails(ts_compile(g, &(ts_options){.replicas = -1}, &exe), TS_ERR_ARG,
                 "replicas is -1; it must not be negative");
    assert_fails(ts_compile(g, &(ts_options){.device_kind = (ts_device_kind)9}, &exe), TS_ERR_ARG,
                 "device_kind is 9; it can be one of: cpu mk2 mk1 gpu opencl");
    opt.nstages = cut(4, stages, false);
    assert_fails(ts_compile(g, &(ts_options){.schedule = TS_SCHEDULE_PHASED}, &exe), TS_ERR_ARG,
                 "phased execution needs stages that say their phases");
    stages[1].phase = 2; /* and the others are of phase 0 */
    assert_fails(ts_compile(g, &opt, &exe), TS_ERR_ARG,
                 "the block 'B3' of phase 0 reads what the block 'B2' makes in phase 2");
    stages[2].phase = stages[3].phase = 2;
    assert_fails(ts_compile(g, &opt, &exe), TS_ERR_ARG, "no stage is of phase 1");
    stages[0].phase = -1;
    assert_fails(ts_compile(g, &opt, &exe), TS_ERR_ARG,
                 "stage 0 is of phase -1; phases have the numbers 0 to 4095");
    ts_graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(replicas_are_a_larger_batch),
        cmocka_unit_test(replicas_that_split_the_state),
        cmocka_unit_test(replicas_by_the_reference),
        cmocka_unit_test(outputs_of_replicas),
        cmocka_unit_test(inference_in_a_pipeline),
        cmocka_unit_test(uneven_stages_end),
        cmocka_unit_test(a_stage_that_stops_says_which),
        cmocka_unit_test(a_thousand_updates_on_eight_devices),
        cmocka_unit_test(the_trace_shows_the_schedule),
        cmocka_unit_test(saved_and_loaded),
        cmocka_unit_test(over_budget),
        cmocka_unit_test(memory_of_each_kind),
        cmocka_unit_test(replicas_share_the_memory),
        cmocka_unit_test(what_cannot_be),
        cmocka_unit_test(stages_give_the_same_bits),
        cmocka_unit_test(recomputed),
        cmocka_unit_test(offloaded),
        cmocka_unit_test(offloaded_in_turns),
        cmocka_unit_test(phased),
        cmocka_unit_test(cut_by_itself),
        cmocka_unit_test(running_mean),
    };
    return cmocka_run_group_tests_name("run devices", tests, run_on_one, free_ones);
}
