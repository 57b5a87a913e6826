/* nets.c - the seeds' nets on a GPU against the CPU: the losses of 50 steps, the weights after them,
 * and what an engine can do besides. TESSERA_DEVICE says which GPU; without it, OpenCL, which is PoCL
 * where nothing else is.
 */
#include "../models/nets.h"
#include "again.h"
#include <math.h>

enum { STEPS = 50, CALLS = 5 }; /* of all; in so many calls */

static ts_device_kind kind;
static bool needless; /* no such device, or done before */

typedef struct net {
    ts_graph *(*make)(void);
    ts_optimizer optimizer;
    int accumulation, replicas;
    const ts_stage *stages;
    int nstages;
} net;

static ts_graph *fashion(void)
{
    return net_fashion(16);
}

static ts_graph *digits(void)
{
    return net_digits(8, true);
}

static ts_graph *pipeline(void)
{
    return net_pipeline(8);
}

static ts_graph *residual(void)
{
    return net_residual(1, 32, 10, 16);
}

static ts_status compile(const net *n, ts_device_kind device, ts_executable **out)
{
    int updates = STEPS / CALLS / TS_MAX(1, n->accumulation);
    ts_options opt = {.optimizer = &n->optimizer,
                      .device_iterations = updates,
                      .gradient_accumulation = n->accumulation,
                      .replicas = n->replicas,
                      .stages = n->stages,
                      .nstages = n->nstages,
                      .device_kind = device,
                      .executor = TS_EXECUTOR_NATIVE,
                      .output_mode = TS_OUTPUT_ALL};
    ts_graph *g = n->make();
    ts_status s;

    if (device == TS_DEVICE_CPU)
        unsetenv("TESSERA_DEVICE");
    s = ts_compile(g, &opt, out);
    assert_true(test_cuda_text(s ? NULL : *out));
    ts_graph_free(g);
    return s;
}

/* Images around 0 and labels; the same for every call. */
static void *feed(const ts_tensor_info *t, int rows)
{
    size_t n = (size_t)rows * t->bytes / ts_dtype_size(t->dtype);
    char *data = calloc(n + 1, ts_dtype_size(t->dtype));
    test_random r = {7};

    for (size_t i = 0; i < n; i++)
        if (t->dtype == TS_F32)
            ((float *)data)[i] = (float)test_between(&r, -1000, 1000) * 1e-3f;
        else
            ((int32_t *)data)[i] = (int32_t)test_between(&r, 0, 9);
    return data;
}

typedef struct run {
    ts_executable *x;
    ts_engine *e;
    void *in[4], *out[4];
    int nin, nout, rows;
    float *losses; /* of all steps */
    int nlosses;
    float *states;
    size_t nstates;
} run;

static ts_status start(run *r)
{
    const ts_tensor_info *t;

    TS_TRY(ts_engine_new(r->x, &(ts_run_options){.seed = 3}, &r->e));
    r->rows = ts_engine_slots(r->e);
    for (; (t = ts_executable_tensor(r->x, TS_ROLE_INPUT, r->nin)); r->nin++)
        r->in[r->nin] = feed(t, r->rows);
    for (; (t = ts_executable_tensor(r->x, TS_ROLE_OUTPUT, r->nout)); r->nout++)
        r->out[r->nout] = calloc((size_t)r->rows, t->bytes);
    return TS_OK;
}

/* The last output is the loss. */
static ts_status step(run *r, int calls)
{
    for (int i = 0; i < calls; i++) {
        TS_TRY(ts_engine_run(r->e, (const void *const *)r->in, r->out));
        r->losses = realloc(r->losses, (size_t)(r->nlosses + r->rows) * sizeof(float));
        memcpy(r->losses + r->nlosses, r->out[r->nout - 1], (size_t)r->rows * sizeof(float));
        r->nlosses += r->rows;
    }
    free(r->states);
    r->states = test_states(r->x, r->e, &r->nstates);
    return TS_OK;
}

static void finish(run *r)
{
    for (int i = 0; i < 4; i++) {
        free(r->in[i]);
        free(r->out[i]);
    }
    free(r->losses);
    free(r->states);
    ts_engine_free(r->e);
    ts_executable_free(r->x);
}

static ts_status some(const net *n, ts_device_kind device, int calls, run *r)
{
    *r = (run){0};
    TS_TRY(compile(n, device, &r->x));
    TS_TRY(start(r));
    return step(r, calls);
}

static ts_status whole(const net *n, ts_device_kind device, run *r)
{
    return some(n, device, CALLS, r);
}

static void close_to(const char *what, const float *got, const float *want, size_t n, double loose)
{
    double most = 0;
    size_t at = 0;

    for (size_t i = 0; i < n; i++) {
        double d = fabs(got[i] - want[i]) / (1 + fabs(want[i]));
        if (!(d <= most)) {
            most = d;
            at = i;
        }
    }
    if (!(most <= loose))
        fail_msg("%s %zu of %zu: %.9g on the GPU, %.9g on the CPU", what, at, n, got[at], want[at]);
}

/* Sums in another order round differently; a step makes more of it. */
static void as_on_the_cpu(const net *n, double loose)
{
    run cpu, gpu;

    if (needless)
        skip();
    assert_ok(whole(n, TS_DEVICE_CPU, &cpu));
    assert_ok(whole(n, kind, &gpu));
    assert_int_equal(gpu.nlosses, cpu.nlosses);
    assert_int_equal(gpu.nstates, cpu.nstates);
    close_to("loss", gpu.losses, cpu.losses, (size_t)cpu.nlosses, loose);
    close_to("state", gpu.states, cpu.states, cpu.nstates, loose);
    finish(&cpu);
    finish(&gpu);
}

static void the_first_net(void **state)
{
    (void)state;
    as_on_the_cpu(&(net){.make = fashion, .optimizer = ts_sgd(0.001)}, 1e-3);
}

/* Dropout draws the same numbers. */
static void with_dropout(void **state)
{
    (void)state;
    as_on_the_cpu(&(net){.make = digits, .optimizer = ts_sgd(0.01)}, 1e-3);
}

static void with_adam_and_accumulation(void **state)
{
    (void)state;
    as_on_the_cpu(&(net){.make = pipeline, .optimizer = ts_adamw(0.001), .accumulation = 2}, 5e-3);
}

static void with_batch_norm(void **state)
{
    (void)state;
    as_on_the_cpu(&(net){.make = residual, .optimizer = ts_sgd(0.01)}, 1e-3);
}

/* The same bits: from another run, and from one that goes on where the first half left off. */
static void the_same_bits(void **state)
{
    net n = {.make = fashion, .optimizer = ts_adamw(0.001)};
    run one, two = {0}, three = {0};
    uint64_t seed, at;

    (void)state;
    if (needless)
        skip();
    assert_ok(whole(&n, kind, &one));
    assert_ok(compile(&n, kind, &two.x));
    assert_ok(start(&two));
    assert_ok(step(&two, 2));
    assert_ok(compile(&n, kind, &three.x));
    assert_ok(start(&three));
    for (int i = 0; i < 100; i++) {
        const ts_tensor_info *t = ts_executable_tensor(two.x, TS_ROLE_STATE, i);
        void *data = t ? malloc(t->bytes) : NULL;
        if (!t)
            break;
        assert_ok(ts_engine_read(two.e, t->name, data, t->bytes));
        assert_ok(ts_engine_write(three.e, t->name, data, t->bytes));
        free(data);
    }
    ts_engine_rng(two.e, &seed, &at);
    ts_engine_set_rng(three.e, seed, at);
    assert_ok(step(&three, CALLS - 2));
    assert_int_equal(one.nstates, three.nstates);
    assert_memory_equal(one.states, three.states, one.nstates * sizeof(float));
    finish(&one);
    finish(&two);
    finish(&three);
}

static const char *const blocks[] = {"B1", "B2", "B3", "B4"};
static const ts_stage stages[] = {{.blocks = blocks, .nblocks = 2, .device = 0},
                                  {.blocks = blocks + 2, .nblocks = 2, .device = 1}};
static net several(void)
{
    return (net){.make = pipeline,
                 .optimizer = ts_sgd(0.01),
                 .accumulation = 5,
                 .replicas = 2,
                 .stages = stages,
                 .nstages = TS_COUNT(stages)};
}

/* After two calls another learning rate: what the host sets, every replica and stage hears of. */
static ts_status slower(const net *n, ts_device_kind device, run *r)
{
    TS_TRY(some(n, device, 2, r));
    TS_TRY(ts_engine_set(r->e, "lr", 0.0005));
    return step(r, 2);
}

static void a_rate_that_changes(void **state)
{
    net n = several();
    run cpu, gpu;

    (void)state;
    if (needless)
        skip();
    assert_ok(slower(&n, TS_DEVICE_CPU, &cpu));
    assert_ok(slower(&n, kind, &gpu));
    close_to("state", gpu.states, cpu.states, cpu.nstates, 1e-4);
    finish(&cpu);
    finish(&gpu);
}

/* Replicas and a pipeline of two devices take turns. */
static void in_turns(void **state)
{
    net n = several();

    (void)state;
    as_on_the_cpu(&n, 1e-3);
}

/* On three GPUs: where there is one, it is opened three times. A replica's devices are on two of them, and
 * what a stage sends goes from one to the other. */
static void on_several(void **state)
{
    net n = several();
    run one, three;

    (void)state;
    if (needless)
        skip();
    assert_ok(some(&n, kind, 2, &one));
    setenv("TESSERA_GPU", "0,0,0", 1);
    assert_ok(some(&n, kind, 2, &three));
    unsetenv("TESSERA_GPU");
    assert_int_equal(one.nlosses, three.nlosses);
    assert_int_equal(one.nstates, three.nstates);
    assert_memory_equal(one.losses, three.losses, (size_t)one.nlosses * sizeof(float));
    assert_memory_equal(one.states, three.states, one.nstates * sizeof(float));
    finish(&one);
    finish(&three);
}

static void numbers_of_gpus(void **state)
{
    static const char *const wrong[] = {"one", "0,", "-1", "0;1", "0,99"};
    char text[256];

    (void)state;
    if (needless)
        skip();
    for (int i = 0; i < TS_COUNT(wrong); i++) {
        setenv("TESSERA_GPU", wrong[i], 1);
        assert_int_not_equal(ts_device_describe(kind, text, sizeof(text)), TS_OK);
        assert_non_null(strstr(ts_error_text(), i < 4 ? "TESSERA_GPU is" : "99"));
    }
    setenv("TESSERA_GPU", "0,0", 1);
    assert_ok(ts_device_describe(kind, text, sizeof(text)));
    assert_non_null(strchr(text, ';'));
    unsetenv("TESSERA_GPU");
}

static int setup(void **state)
{
    (void)state;
    needless = again_needless(&kind);
    unsetenv("TESSERA_DEVICE"); /* the options say it */
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_net),       cmocka_unit_test(with_dropout),
        cmocka_unit_test(with_batch_norm),     cmocka_unit_test(with_adam_and_accumulation),
        cmocka_unit_test(the_same_bits),       cmocka_unit_test(in_turns),
        cmocka_unit_test(on_several),          cmocka_unit_test(numbers_of_gpus),
        cmocka_unit_test(a_rate_that_changes),
    };

    return cmocka_run_group_tests(tests, setup, NULL);
}
