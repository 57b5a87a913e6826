/* train.c - ts_train: which samples it feeds in which order, what it reports, what it refuses. */
#include "run/run.h"
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum { N = 23 };

/* loss = mean(x) * w with w = 1 and a learning rate of 0: the loss names the samples. */
static ts_engine *engine(int64_t batch, ts_options opt, ts_executable **x)
{
    ts_graph *g = ts_graph_new("net");
    ts_value *v = ts_input(g, "x", TS_F32, batch, 2);
    ts_value *same = ts_input(g, "same", TS_I64, batch);
    ts_value *w = ts_param_n(g, "w", TS_F32, (ts_init){TS_INIT_FULL, 1, 0}, 0, NULL);
    ts_optimizer sgd = ts_sgd(0);
    ts_engine *e = NULL;

    ts_output(same, "same");
    ts_loss(ts_mul(w, ts_mean(v, 0, NULL, false)));
    opt.optimizer = &sgd;
    opt.executor = TS_EXECUTOR_REFERENCE;
    if (ts_compile(g, &opt, x) || ts_engine_new(*x, NULL, &e))
        fail_msg("%s", ts_error_text());
    ts_graph_free(g);
    return e;
}

typedef struct seen {
    double loss[256];
    int n, stop_after, last_epoch;
    int64_t steps;
} seen;

static bool note(void *arg, int epoch, int64_t step, int64_t steps, double loss)
{
    seen *s = arg;

    assert_int_equal(step, s->n % (int)steps);
    s->loss[s->n++] = loss;
    s->last_epoch = epoch;
    s->steps = steps;
    return s->n != s->stop_after;
}

static float xs[N][2];
static int64_t same[N];
static const void *const data[] = {xs, same};

static int fill(void **state)
{
    (void)state;
    for (int i = 0; i < N; i++) {
        xs[i][0] = xs[i][1] = (float)i;
        same[i] = i;
    }
    return 0;
}

static seen train(int64_t batch, ts_options opt, ts_train_options how, double *last)
{
    ts_executable *x;
    ts_engine *e = engine(batch, opt, &x);
    seen s = {.stop_after = how.arg ? *(int *)how.arg : 0};

    how.report = note;
    how.arg = &s;
    if (ts_train(e, N, data, &how, last))
        fail_msg("%s", ts_error_text());
    ts_engine_free(e);
    ts_executable_free(x);
    return s;
}

static void test_every_sample_once_an_epoch(void **state)
{
    seen s = train(1, (ts_options){0}, (ts_train_options){.epochs = 3, .seed = 7}, NULL);
    int moved = 0, changed = 0;

    (void)state;
    assert_int_equal(s.n, 3 * N);
    assert_int_equal(s.steps, N);
    for (int epoch = 0; epoch < 3; epoch++) {
        int times[N] = {0};
        for (int i = 0; i < N; i++) {
            times[(int)s.loss[epoch * N + i]]++;
            moved += s.loss[epoch * N + i] != i;
            changed += s.loss[epoch * N + i] != s.loss[i];
        }
        for (int i = 0; i < N; i++)
            assert_int_equal(times[i], 1);
    }
    assert_true(moved > N);
    assert_true(changed > N);
}

static void test_the_seed_decides(void **state)
{
    seen a = train(1, (ts_options){0}, (ts_train_options){.epochs = 2, .seed = 7}, NULL);
    seen b = train(1, (ts_options){0}, (ts_train_options){.epochs = 2, .seed = 7}, NULL);
    seen c = train(1, (ts_options){0}, (ts_train_options){.epochs = 2, .seed = 8}, NULL);

    (void)state;
    assert_memory_equal(a.loss, b.loss, sizeof(a.loss));
    assert_memory_not_equal(a.loss, c.loss, sizeof(a.loss));
}

/* The same samples in the same order, whatever the batching. */
static void test_batches_are_gathered_in_order(void **state)
{
    seen one = train(1, (ts_options){0}, (ts_train_options){.seed = 5}, NULL);
    ts_options opt = {
        .device_iterations = 2, .gradient_accumulation = 2, .output_mode = TS_OUTPUT_ALL};
    double last;
    seen four = train(2, opt, (ts_train_options){.seed = 5}, &last);

    (void)state;
    assert_int_equal(four.steps, N / 8); /* the tail is dropped */
    for (int i = 0; i < four.n; i++) {
        double mean = 0;
        for (int k = 0; k < 8; k++)
            mean += one.loss[8 * i + k] / 8;
        assert_float_equal(four.loss[i], mean, 1e-4);
    }
    assert_float_equal(last, four.loss[four.n - 1], 0);
}

static void test_the_loss_in_every_mode(void **state)
{
    static const struct {
        ts_output_mode mode;
        int period;
        double first; /* the micro-batches of the first call are 0.5, 2.5, 4.5, 6.5 */
    } cases[] = {{TS_OUTPUT_FINAL, 0, 6.5},
                 {TS_OUTPUT_DEFAULT, 0, 6.5},
                 {TS_OUTPUT_ALL, 0, 3.5},
                 {TS_OUTPUT_SUM, 0, 3.5},
                 {TS_OUTPUT_EVERY_N, 2, 4.5}};

    (void)state;
    for (int i = 0; i < TS_COUNT(cases); i++) {
        ts_options opt = {
            .device_iterations = 4, .output_mode = cases[i].mode, .output_period = cases[i].period};
        seen s = train(2, opt, (ts_train_options){.no_shuffle = true}, NULL);
        assert_int_equal(s.n, 2);
        assert_float_equal(s.loss[0], cases[i].first, 1e-5);
        assert_float_equal(s.loss[1], cases[i].first + 8, 1e-5);
    }
}

static void test_the_report_can_stop(void **state)
{
    int after = 5;
    double last = -1;
    seen s = train(1, (ts_options){0},
                   (ts_train_options){.epochs = 9, .no_shuffle = true, .arg = &after}, &last);

    (void)state;
    assert_int_equal(s.n, 5);
    assert_float_equal(last, 4, 0);
}

static void refuse(ts_engine *e, int64_t n, const void *const *d, ts_status code, const char *words)
{
    assert_int_equal(ts_train(e, n, d, NULL, NULL), code);
    if (!strstr(ts_last_error()->message, words))
        fail_msg("'%s' does not say '%s'", ts_last_error()->message, words);
}

static void test_what_it_refuses(void **state)
{
    ts_executable *x;
    ts_engine *e = engine(4, (ts_options){.device_iterations = 3}, &x);
    const void *const half[] = {xs, NULL};

    (void)state;
    refuse(e, 11, data, TS_ERR_ARG, "one call takes 12 samples (3 micro-batches of 4), got 11");
    refuse(e, N, half, TS_ERR_ARG, "input 1 (same) are NULL");
    refuse(e, N, NULL, TS_ERR_ARG, "input 0 (x) are NULL");
    assert_int_equal(ts_train(e, 12, data, NULL, NULL), TS_OK);
    ts_engine_free(e);
    ts_executable_free(x);
}

static void test_networks_it_cannot_train(void **state)
{
    ts_executable *x;
    ts_engine *e;
    ts_graph *g = ts_graph_new("no loss");
    ts_value *v;
    ts_options opt = {.executor = TS_EXECUTOR_REFERENCE};

    (void)state;
    ts_output(ts_relu(ts_input(g, "x", TS_F32, 4, 2)), "y");
    assert_int_equal(ts_compile(g, &opt, &x), TS_OK);
    assert_int_equal(ts_engine_new(x, NULL, &e), TS_OK);
    refuse(e, N, data, TS_ERR_ARG, "no loss");
    ts_engine_free(e);
    ts_executable_free(x);
    ts_graph_free(g);

    g = ts_graph_new("other dims");
    v = ts_mean(ts_input(g, "x", TS_F32, 4, 2), 0, NULL, false);
    ts_loss(ts_add(v, ts_mean(ts_input(g, "s", TS_F32, 2), 0, NULL, false)));
    assert_int_equal(ts_compile(g, &opt, &x), TS_OK);
    assert_int_equal(ts_engine_new(x, NULL, &e), TS_OK);
    refuse(e, N, data, TS_ERR_SHAPE, "input s must have the batch of 4 samples");
    ts_engine_free(e);
    ts_executable_free(x);
    ts_graph_free(g);
}

static void test_no_memory(void **state)
{
    ts_executable *x;
    ts_engine *e = engine(4, (ts_options){0}, &x);
    int points;

    (void)state;
    ts_fault_arm("alloc", 1000);
    assert_int_equal(ts_train(e, N, data, NULL, NULL), TS_OK);
    points = ts_fault_count();
    assert_true(points >= 5);
    for (int i = 0; i < points; i++) {
        ts_fault_arm("alloc", i);
        assert_int_equal(ts_train(e, N, data, NULL, NULL), TS_ERR_MEMORY);
    }
    ts_fault_arm("alloc", -1);
    ts_engine_free(e);
    ts_executable_free(x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_sample_once_an_epoch),
        cmocka_unit_test(test_the_seed_decides),
        cmocka_unit_test(test_batches_are_gathered_in_order),
        cmocka_unit_test(test_the_loss_in_every_mode),
        cmocka_unit_test(test_the_report_can_stop),
        cmocka_unit_test(test_what_it_refuses),
        cmocka_unit_test(test_networks_it_cannot_train),
        cmocka_unit_test(test_no_memory),
    };

    return cmocka_run_group_tests(tests, fill, NULL);
}
