/* devices.c - several devices give the same bits as one: pipelined, sharded, recomputed, offloaded,
 * with any number of threads; replicas give what a larger batch would. */
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

/* Down and up again, with skips over one and over two stages, and batch norm's running statistics.
 */
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
        stages[i] = (ts_stage){blocks + lo, hi - lo, reversed ? n - 1 - i : i};
    }
    return n;
}

static void read_states(const ts_executable *x, const ts_engine *e, results *r)
{
    float *at;

    for (int i = 0; ts_executable_tensor(x, TS_ROLE_STATE, i); i++)
        r->count += ts_executable_tensor(x, TS_ROLE_STATE, i)->bytes / sizeof(float);
    at = r->states = calloc(r->count, sizeof(float));
    for (int i = 0; ts_executable_tensor(x, TS_ROLE_STATE, i); i++) {
        const ts_tensor_info *t = ts_executable_tensor(x, TS_ROLE_STATE, i);
        assert_ok(ts_engine_read(e, t->name, at, t->bytes));
        at += t->bytes / sizeof(float);
    }
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
    opt.device_iterations = D;
    opt.gradient_accumulation = A / R;
    opt.output_mode = TS_OUT_ALL;
    opt.cache_dir = "";
    assert_ok(ts_compile(g, &opt, &exe));
    assert_ok(ts_engine_new(exe, &(ts_run_options){.threads = threads, .seed = 5}, &e));
    for (int i = 0; i < RUNS; i++)
        assert_ok(ts_engine_run(e, (const void *[]){x, labels}, (void *[]){NULL, r.loss}));
    read_states(exe, e, &r);
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

static void stages_give_the_same_bits(void **state)
{
    (void)state;
    for (int k = 0; k < TS_COUNT(nets); k++) {
        results one = run(&nets[k], (ts_options){0}, 2);
        for (int n = 2; n <= 4; n++)
            for (int schedule = TS_PIPELINED; schedule <= TS_SHARDED; schedule++) {
                ts_stage stages[4];
                ts_options opt = {.stages = stages, .schedule = (ts_schedule)schedule};
                opt.nstages = cut(n, stages, n == 3);
                assert_same(&one, run(&nets[k], opt, n - 1));
            }
        free(one.states);
    }
}

static void recomputed(void **state)
{
    (void)state;
    for (int k = 0; k < TS_COUNT(nets); k++) {
        results one = run(&nets[k], (ts_options){0}, 1), kept, again;
        ts_stage stages[4];
        ts_options opt = {.stages = stages, .nstages = cut(4, stages, false)};
        kept = run(&nets[k], opt, 2);
        opt.recompute = true;
        again = run(&nets[k], opt, 2);
        if (k < 2)
            assert_true(again.stats.peak_bytes < kept.stats.peak_bytes);
        assert_same(&one, kept);
        assert_same(&one, again);
        free(one.states);
    }
}

static void offloaded(void **state)
{
    static const unsigned what[] = {TS_OFFLOAD_OPTIMIZER, TS_OFFLOAD_WEIGHTS,
                                    TS_OFFLOAD_ACCUMULATORS, TS_OFFLOAD_ACTIVATIONS, 15};

    (void)state;
    for (int piped = 0; piped < 2; piped++)
        for (int i = 0; i < TS_COUNT(what); i++) {
            ts_stage stages[4];
            ts_options opt = {.skip = "spread"};
            results here, there;
            if (piped) {
                opt.stages = stages;
                opt.nstages = cut(3, stages, false);
            }
            here = run(&nets[piped], opt, 2);
            opt.offload = what[i];
            there = run(&nets[piped], opt, 2);
            assert_true(there.stats.peak_bytes < here.stats.peak_bytes);
            assert_same(&here, there);
            free(here.states);
        }
}

static void cut_by_itself(void **state)
{
    (void)state;
    for (int k = 0; k < TS_COUNT(nets); k++) {
        results one = run(&nets[k], (ts_options){0}, 2);
        for (int n = 2; n <= 4; n += 2)
            assert_same(&one, run(&nets[k], (ts_options){.devices = n}, 2));
        free(one.states);
    }
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stages_give_the_same_bits),
        cmocka_unit_test(recomputed),
        cmocka_unit_test(offloaded),
        cmocka_unit_test(cut_by_itself),
        cmocka_unit_test(running_mean),
    };
    return cmocka_run_group_tests_name("run devices", tests, NULL, NULL);
}
