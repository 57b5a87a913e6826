/* exceptions.c - ts_options.exceptions: what must be found and named, what must not, and that the
 * numbers are those of a run without. With an automatic loss scale, on several devices and replicas
 * too. */
#include "support.h"
#include <math.h>

enum { N = 24 };
typedef ts_value *net_fn(ts_graph *g, ts_value *x);

static ts_value *number(ts_graph *g, double x)
{
    return ts_full_n(g, TS_F32, x, 0, NULL);
}

/* x, but y where it is large */
static ts_value *or_rather(ts_graph *g, ts_value *x, double y)
{
    ts_value *many = number(g, 50);

    return ts_where(ts_gt(x, many), number(g, y), x);
}

static ts_value *logs(ts_graph *g, ts_value *x)
{
    (void)g;
    return ts_mul_scalar(ts_log(x), 2);
}

static ts_value *quotients(ts_graph *g, ts_value *x)
{
    return ts_add_scalar(ts_div(number(g, 1), x), 1);
}

static ts_value *hidden(ts_graph *g, ts_value *x) /* what is not picked was computed all the same */
{
    ts_value *roots = ts_sqrt(ts_sub(x, number(g, 0.25))), *many = number(g, 100);

    return ts_where(ts_lt(x, many), x, roots);
}

static ts_value *differences(ts_graph *g, ts_value *x)
{
    ts_value *y = or_rather(g, x, INFINITY);

    return ts_relu(ts_sub(y, ts_mul_scalar(y, 2)));
}

static ts_value *products(ts_graph *g, ts_value *x)
{
    ts_value *y = or_rather(g, x, INFINITY);

    return ts_add_scalar(ts_mul(ts_sub(x, number(g, 100)), y), 1);
}

static ts_value *large(ts_graph *g, ts_value *x)
{
    (void)g;
    return ts_sum(ts_exp(x), 0, NULL, false);
}

static ts_value *halves(ts_graph *g, ts_value *x)
{
    (void)g;
    return ts_cast(x, TS_F16);
}

static ts_value *dots(ts_graph *g, ts_value *x)
{
    (void)g;
    return ts_matmul(ts_reshape(x, 1, N), ts_reshape(x, N, 1));
}

static ts_value *compares(ts_graph *g, ts_value *x)
{
    return ts_cast(ts_le(or_rather(g, x, NAN), number(g, 1)), TS_F32);
}

/* --- and what is none --- */

static ts_value *masked(ts_graph *g, ts_value *x)
{
    ts_value *most = number(g, 1.5), *y = ts_where(ts_gt(x, most), number(g, -INFINITY), x);

    return ts_softmax(ts_reshape(y, 2, N / 2), 0);
}

static ts_value *soft(ts_graph *g, ts_value *x)
{
    return ts_softplus(ts_mul(x, number(g, 1000)));
}

static ts_value *passed_on(ts_graph *g, ts_value *x)
{
    ts_value *y = ts_maximum(x, number(g, -INFINITY));

    return ts_add(ts_mul(y, number(g, INFINITY)), number(g, NAN));
}

static const struct {
    net_fn *net;
    double x;
    const char *words; /* NULL: no exception */
} nets[] = {
    {logs, -1, "log made a NaN in micro-batch 3"},
    {logs, 0, "log made an infinity"},
    {quotients, 0, "div made an infinity"},
    {hidden, 0, "sqrt made a NaN"},
    {differences, 100, "sub made a NaN"},
    {products, 100, "mul made a NaN"},
    {large, 100, "exp made an infinity"},
    {halves, 1e6, "cast made an infinity"},
    {dots, 3e38, "matmul made an infinity"},
    {compares, 100, "le compared a NaN"},
    {masked, 0.5, NULL},
    {soft, 0.5, NULL},
    {passed_on, 0.5, NULL},
};

static void judge(int net, ts_status s)
{
    const char *words = nets[net].words;
    const ts_error *e = ts_last_error();
    char line[16];

    snprintf(line, sizeof(line), "nets.c:%d", 100 + net);
    if (!words && s)
        fail_msg("net %d: %s", net, ts_error_text());
    if (words && (s != TS_ERR_NUMBER || !strstr(e->message, words) || !strstr(e->where, line)))
        fail_msg("net %d: status %d, %s", net, s, s ? ts_error_text() : "");
}

/* All of them in one graph; each in turn gets the number it cannot bear, in the second of two
 * micro-batches. */
static void each_is_found_and_named(void **executor)
{
    enum { NETS = TS_COUNT(nets) };
    ts_graph *g = ts_graph_new("nets");
    ts_options opt = {.exceptions = true, .device_iterations = 2, .cache_dir = ""};
    ts_executable *exe = NULL;
    ts_engine *e = NULL;
    static float in[NETS][2 * N], out[2 * N];
    const void *feeds[NETS];
    void *results[NETS] = {out};

    opt.executor = *(ts_executor *)*executor;
    for (int i = 0; i < NETS; i++) {
        char name[8];
        snprintf(name, sizeof(name), "x%d", i);
        ts_here("nets.c", 100 + i);
        ts_output(nets[i].net(g, ts_input(g, name, TS_F32, N)), name);
        feeds[i] = in[i];
        for (int k = 0; k < 2 * N; k++)
            in[i][k] = 1 + (float)(k % N) / N;
    }
    assert_ok(ts_compile(g, &opt, &exe));
    assert_ok(ts_engine_new(exe, NULL, &e));
    for (int i = 0; i < NETS; i++) {
        float *bad = &in[i][N + 1], before = *bad;
        assert_ok(ts_engine_run(e, feeds, results)); /* as if nothing had been */
        *bad = (float)nets[i].x;
        judge(i, ts_engine_run(e, feeds, results));
        *bad = before;
    }
    ts_engine_free(e);
    ts_executable_free(exe);
    ts_graph_free(g);
}

/* What is known before the run is no secret either. */
static void constants_are_looked_at(void **unused)
{
    ts_graph *g = ts_graph_new("known");
    ts_value *x = ts_input(g, "x", TS_F32, N);
    ts_options opt = {.exceptions = true, .executor = TS_EXECUTOR_REFERENCE, .cache_dir = ""};
    ts_executable *exe = NULL;
    ts_engine *e = NULL;
    float in[N] = {0}, out[N];

    (void)unused;
    ts_output(ts_add(x, ts_log(number(g, -1))), "y");
    assert_ok(ts_compile(g, &opt, &exe));
    assert_ok(ts_engine_new(exe, NULL, &e));
    assert_int_equal(ts_engine_run(e, (const void *[]){in}, (void *[]){out}), TS_ERR_NUMBER);
    assert_non_null(strstr(ts_error_text(), "log made a NaN"));
    ts_engine_free(e);
    ts_executable_free(exe);
    ts_graph_free(g);
}

/* --- training --- */

enum { BATCH = 8, IN = 6, HIDDEN = 16 };

static ts_graph *trained_net(bool bad)
{
    ts_graph *g = ts_graph_new("net");
    ts_value *x = ts_input(g, "x", TS_F32, BATCH, IN), *y;

    ts_block_begin(g, "first");
    y = ts_relu(ts_linear(x, "fc1", HIDDEN));
    ts_block_end(g);
    ts_block_begin(g, "second");
    y = ts_linear(y, "fc2", 1);
    ts_here("second.c", 41);
    if (bad)
        y = ts_log(ts_neg(ts_square(y)));
    ts_loss(ts_mse_loss(y, ts_full_n(g, TS_F32, 0.25, 2, (int64_t[]){BATCH, 1})));
    ts_block_end(g);
    return g;
}

typedef struct outcome {
    float w[HIDDEN * IN], losses[8], scale;
    ts_error error;
    ts_status status;
} outcome;

static outcome train(bool bad, bool exceptions, ts_options opt)
{
    static const char *const first[] = {"first"}, *const second[] = {"second"};
    static const ts_stage stages[] = {{first, 1, 0, 0}, {second, 1, 1, 0}};
    ts_graph *g = trained_net(bad);
    ts_optimizer o = ts_adam(0.01);
    ts_executable *exe = NULL;
    ts_engine *e = NULL;
    float in[16 * BATCH * IN];
    outcome y = {0};

    for (int i = 0; i < TS_COUNT(in); i++)
        in[i] = (float)((i * 37 + 11) % 128) / 64 - 1;
    o.automatic_scaling = true;
    opt.optimizer = &o;
    opt.exceptions = exceptions;
    opt.cache_dir = "";
    opt.output_mode = TS_OUTPUT_ALL;
    if (opt.devices == 2) {
        opt.devices = 0;
        opt.stages = stages;
        opt.nstages = 2;
    }
    assert_ok(ts_compile(g, &opt, &exe));
    assert_ok(ts_engine_new(exe, &(ts_run_options){.threads = 2, .seed = 3}, &e));
    y.status = ts_engine_run(e, (const void *[]){in}, (void *[]){y.losses});
    y.error = *ts_last_error();
    assert_ok(ts_engine_read(e, "fc1.weight", y.w, sizeof(y.w)));
    assert_ok(ts_engine_read(e, "loss_scaling", &y.scale, sizeof(y.scale)));
    ts_engine_free(e);
    ts_executable_free(exe);
    ts_graph_free(g);
    return y;
}

static const ts_options ways[] = {
    {.device_iterations = 2},
    {.devices = 2, .gradient_accumulation = 4, .recompute = true},
    {.replicas = 2, .gradient_accumulation = 2, .shard_optimizer = true, .shard_least = 1},
    {.replicas = 2, .gradient_accumulation = 2, .executor = TS_EXECUTOR_REFERENCE},
};

static void the_bits_are_the_same(void **unused)
{
    (void)unused;
    for (int i = 0; i < TS_COUNT(ways); i++) {
        outcome with = train(false, true, ways[i]), without = train(false, false, ways[i]);
        if (with.status)
            fail_msg("way %d: %s", i, with.error.message);
        for (int k = 0; k < TS_COUNT(with.losses); k++)
            if (memcmp(&with.losses[k], &without.losses[k], sizeof(float)))
                fail_msg("way %d, micro-batch %d: the loss is %g, without %g", i, k,
                         (double)with.losses[k], (double)without.losses[k]);
        for (int k = 0; k < TS_COUNT(with.w); k++)
            if (memcmp(&with.w[k], &without.w[k], sizeof(float)))
                fail_msg("way %d: weight %d is %g, without %g", i, k, (double)with.w[k],
                         (double)without.w[k]);
        assert_true(with.scale == 1 << TS_MAX(1, ways[i].device_iterations)); /* each update */
    }
}

static void training_is_stopped_on_all_ways(void **unused)
{
    (void)unused;
    for (int i = 0; i < TS_COUNT(ways); i++) {
        outcome y = train(true, true, ways[i]);
        for (int k = 0; k < TS_COUNT(y.w); k++)
            assert_true(isfinite(y.w[k])); /* the automatic scale leaves such updates out */
        assert_int_equal(y.status, TS_ERR_NUMBER);
        if (!strstr(y.error.message, "log made a NaN in micro-batch 0") ||
            !strstr(y.error.where, "(log), second.c:41") || !strstr(y.error.where, "block second"))
            fail_msg("way %d: %s; at %s", i, y.error.message, y.error.where);
    }
}

int main(void)
{
    static ts_executor executors[] = {TS_EXECUTOR_NATIVE, TS_EXECUTOR_REFERENCE};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(each_is_found_and_named, &executors[0]),
        cmocka_unit_test_prestate(each_is_found_and_named, &executors[1]),
        cmocka_unit_test(constants_are_looked_at),
        cmocka_unit_test(the_bits_are_the_same),
        cmocka_unit_test(training_is_stopped_on_all_ways),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
