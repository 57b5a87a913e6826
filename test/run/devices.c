/* devices.c - several devices give the same bits as one: pipelined, sharded, with any number of
 * threads. */
#include "models/nets.h"
#include "support.h"

enum { BATCH = 8, A = 7, D = 3, STEPS = 2 };

typedef struct results {
    float loss[D * A];
    float *states; /* all of them, one after the other */
    size_t count;
} results;

static const char *const blocks[] = {"B1", "B2", "B3", "B4"};

/* n stages of the four blocks */
static int cut(int n, ts_stage *stages)
{
    for (int i = 0; i < n; i++) {
        int lo = 4 * i / n, hi = 4 * (i + 1) / n;
        stages[i] = (ts_stage){blocks + lo, hi - lo, i};
    }
    return n;
}

static results run(const ts_graph *g, ts_options opt, int threads)
{
    results r = {0};
    ts_optimizer adam = ts_adamw(0.01);
    ts_executable *x;
    ts_engine *e;
    static float images[D * A * BATCH * 28 * 28];
    static int32_t labels[D * A * BATCH];

    for (size_t i = 0; i < sizeof(images) / sizeof(float); i++)
        images[i] = (float)((i * 2654435761u >> 7) % 1000) / 1000;
    for (size_t i = 0; i < sizeof(labels) / sizeof(int32_t); i++)
        labels[i] = (int32_t)(i * 7 % 10);
    opt.optimizer = &adam;
    opt.device_iterations = D;
    opt.gradient_accumulation = A;
    opt.output_mode = TS_OUT_ALL;
    opt.cache_dir = "";
    assert_ok(ts_compile(g, &opt, &x));
    assert_ok(ts_engine_new(x, &(ts_run_options){.threads = threads, .seed = 5}, &e));
    for (int i = 0; i < STEPS; i++)
        assert_ok(ts_engine_run(e, (const void *[]){images, labels}, (void *[]){NULL, r.loss}));
    for (int i = 0; ts_executable_tensor(x, TS_ROLE_STATE, i); i++)
        r.count += ts_executable_tensor(x, TS_ROLE_STATE, i)->bytes / sizeof(float);
    r.states = calloc(r.count, sizeof(float));
    float *at = r.states;
    for (int i = 0; ts_executable_tensor(x, TS_ROLE_STATE, i); i++) {
        const ts_tensor_info *t = ts_executable_tensor(x, TS_ROLE_STATE, i);
        assert_ok(ts_engine_read(e, t->name, at, t->bytes));
        at += t->bytes / sizeof(float);
    }
    ts_engine_free(e);
    ts_executable_free(x);
    return r;
}

static void assert_same(const results *x, const results *y)
{
    assert_memory_equal(x->loss, y->loss, sizeof(x->loss));
    assert_int_equal(x->count, y->count);
    assert_memory_equal(x->states, y->states, x->count * sizeof(float));
}

static void stages_give_the_same_bits(void **state)
{
    ts_graph *g = net_pipeline(BATCH);
    results one = run(g, (ts_options){0}, 2);

    (void)state;
    for (int n = 2; n <= 4; n++)
        for (int schedule = TS_PIPELINED; schedule <= TS_SHARDED; schedule++)
            for (int threads = 1; threads <= 7; threads += 3) {
                ts_stage stages[4];
                ts_options opt = {
                    .stages = stages, .nstages = cut(n, stages), .schedule = (ts_schedule)schedule};
                results many = run(g, opt, threads);
                assert_same(&one, &many);
                free(many.states);
            }
    free(one.states);
    ts_graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stages_give_the_same_bits),
    };
    return cmocka_run_group_tests_name("run devices", tests, NULL, NULL);
}
