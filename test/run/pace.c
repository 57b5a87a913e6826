/* pace.c - the number of threads that work: it finds the fastest, follows a change, costs little,
 * and changes no bit. */
#include "run/run.h"
#include "support.h"
#include <math.h>

/* Seconds of a micro-batch with so many threads, at a time. */
typedef double machine(int threads, double now);

/* What share of the best possible was done from second `from` to second `to`, in calls of `call`
 * micro-batches. */
static double share(machine *how, int most, int call, double from, double to)
{
    ts_pace p;
    double now = 0, done = 0, best = 0;

    ts_pace_start(&p, most, false);
    while (now < to) {
        for (int left = call; left;) {
            int threads, n = ts_pace_plan(&p, left, &threads);
            double start = now, least = 1e9;
            assert_in_range(n, 1, left);
            assert_in_range(threads, 1, most);
            for (int t = 1; t <= most; t++)
                least = TS_MIN(least, how(t, now));
            now += n * how(threads, now);
            ts_pace_done(&p, n, now - start);
            if (start >= from) {
                done += n;
                best += (now - start) / least;
            }
            left -= n;
        }
    }
    return done / best;
}

static double two_cores(int threads, double now)
{
    (void)now;
    return threads == 2 ? 170e-6 : 250e-6;
}

static double one_core_taken(int threads, double now)
{
    (void)now;
    return threads == 2 ? 1300e-6 : 260e-6;
}

static double large(int threads, double now)
{
    (void)now;
    return threads == 2 ? 15e-3 : 28e-3;
}

static double huge(int threads, double now)
{
    (void)now;
    return threads == 2 ? 130e-3 : 250e-3;
}

static double taken_for_a_while(int threads, double now)
{
    return (now > 5 && now < 20 ? one_core_taken : two_cores)(threads, now);
}

/* In turns with a program whose threads go on spinning for a moment, a window of a second each. */
static double after_a_neighbour(int threads, double now)
{
    return (fmod(now, 1) < 0.06 ? one_core_taken : two_cores)(threads, now);
}

static double large_after_a_neighbour(int threads, double now)
{
    return large(threads, now) * (threads == 2 && fmod(now, 1) < 0.06 ? 5 : 1);
}

/* The same in windows of 0.4 seconds, with steps of which there are few in one. */
static double between_windows(int threads, double now)
{
    return threads == 1 ? 20e-3 : fmod(now, 0.4) < 0.12 ? 42e-3 : 15e-3;
}

/* 12, 6, 3, 1: three are best. */
static double far_apart(int threads, double now)
{
    (void)now;
    return threads == 12 ? 900e-6 : threads == 6 ? 500e-6 : threads == 3 ? 300e-6 : 700e-6;
}

static void finds_the_fastest(void **state)
{
    (void)state;
    for (int call = 1; call <= 1000; call *= 10) {
        assert_true(share(two_cores, 2, call, 0, 20) > 0.98);
        assert_true(share(one_core_taken, 2, call, 1, 20) > 0.96);
        assert_true(share(large, 2, call, 0, 60) > 0.97);
        assert_true(share(far_apart, 12, call, 1, 20) > 0.96);
        assert_true(share(huge, 2, call, 0, 5) > 0.97);
        assert_true(share(huge, 2, call, 0, 60) > 0.97);
    }
}

static void follows_a_change(void **state)
{
    (void)state;
    assert_true(share(taken_for_a_while, 2, 1, 0, 5) > 0.98);
    assert_true(share(taken_for_a_while, 2, 1, 5, 20) > 0.9);
    assert_true(share(taken_for_a_while, 2, 1, 25, 60) > 0.98);
    for (int call = 1; call <= 100; call *= 10) {
        assert_true(share(after_a_neighbour, 2, call, 1, 20) > 0.9);
        assert_true(share(large_after_a_neighbour, 2, call, 1, 20) > 0.8);
        assert_true(share(between_windows, 2, call, 1, 20) > 0.8);
    }
}

static void leaves_what_was_asked_for(void **state)
{
    ts_pace p;
    int threads;

    (void)state;
    ts_pace_start(&p, 7, true);
    for (int i = 0; i < 1000; i++) {
        assert_int_equal(ts_pace_plan(&p, 5, &threads), 5);
        assert_int_equal(threads, 7);
        ts_pace_done(&p, 5, 1 + i % 3);
    }
}

static ts_executable *compile(int D)
{
    ts_optimizer adam = ts_adam(0.001);
    ts_options opt = {.optimizer = &adam, .device_iterations = D, .cache_dir = ""};
    ts_graph *g = ts_graph_new("net");
    ts_value *x = ts_input(g, "x", TS_F32, 16, 64), *t = ts_input(g, "t", TS_F32, 16, 8);
    ts_executable *exe;

    ts_loss(ts_mse_loss(ts_linear(ts_relu(ts_linear(x, "a", 256)), "b", 8), t));
    assert_ok(ts_compile(g, &opt, &exe));
    ts_graph_free(g);
    return exe;
}

static void bits_are_the_same(void **state)
{
    enum { D = 20, CALLS = 300 };
    static float x[D * 16 * 64], t[D * 16 * 8], weights[2][256 * 64];
    ts_executable *exe = compile(D);

    (void)state;
    for (int i = 0; i < TS_COUNT(x); i++)
        x[i] = (float)ts_random_unit(1, 1, 0, (uint64_t)i);
    setenv("OMP_NUM_THREADS", "4", 1);
    for (int k = 0; k < 2; k++) {
        ts_engine *e;
        assert_ok(ts_engine_new(exe, &(ts_run_options){.threads = k, .seed = 1}, &e));
        assert_int_equal(ts_engine_threads(e), k ? 1 : 4);
        for (int i = 0; i < CALLS; i++)
            assert_ok(ts_engine_run(e, (const void *[]){x, t}, (void *[]){NULL}));
        assert_ok(ts_engine_read(e, "a.weight", weights[k], sizeof(weights[k])));
        ts_engine_free(e);
    }
    unsetenv("OMP_NUM_THREADS");
    assert_memory_equal(weights[0], weights[1], sizeof(weights[0]));
    ts_executable_free(exe);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_the_fastest),
        cmocka_unit_test(follows_a_change),
        cmocka_unit_test(leaves_what_was_asked_for),
        cmocka_unit_test(bits_are_the_same),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
