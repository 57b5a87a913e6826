/* engine.c - a loaded run: what each output mode returns, device iterations and accumulation, state
 * by name, the random generator, threads, and that a run allocates nothing. */
#include "run/run.h"
#include "support.h"
#include <math.h>
#include <sched.h>
#include <stdatomic.h>

/* --- counting allocations: this program's malloc in front of the C library's --- */

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1 /* the sanitizer has its own malloc */
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif

#ifndef SANITIZED
static atomic_long allocations;
static atomic_size_t largest;

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
void *__libc_memalign(size_t align, size_t n);

static void count(size_t n)
{
    atomic_fetch_add(&allocations, 1);
    if (n > atomic_load(&largest))
        atomic_store(&largest, n);
}

void *malloc(size_t n)
{
    count(n);
    return __libc_malloc(n);
}

void *calloc(size_t n, size_t size)
{
    count(n * size);
    return __libc_calloc(n, size);
}

void *realloc(void *p, size_t n)
{
    count(n);
    return __libc_realloc(p, n);
}

void *aligned_alloc(size_t align, size_t n)
{
    count(n);
    return __libc_memalign(align, n);
}
#endif

/* --- a small network --- */

enum { FEATURES = 6, CLASSES = 10, SEED = 11 };

static ts_graph *network(int64_t batch, bool dropout)
{
    ts_graph *g = ts_graph_new("net");
    ts_value *x = ts_input(g, "x", TS_F32, batch, FEATURES);
    ts_value *t = ts_input(g, "labels", TS_I32, batch), *y;

    y = ts_linear(ts_dropout(ts_relu(ts_linear(x, "fc1", 12)), 0.5, dropout), "fc2", CLASSES);
    ts_output(y, "y");
    ts_loss(ts_cross_entropy(y, t));
    return g;
}

typedef struct rig {
    ts_executable *x;
    ts_engine *e;
} rig;

static rig rig_of(ts_graph *g, ts_options opt, int threads)
{
    rig r;

    opt.cache_dir = "";
    if (ts_compile(g, &opt, &r.x) ||
        ts_engine_new(r.x, &(ts_run_options){.threads = threads, .seed = SEED}, &r.e))
        fail_msg("%s", ts_error_text());
    ts_graph_free(g);
    return r;
}

static void rig_free(rig r)
{
    ts_engine_free(r.e);
    ts_executable_free(r.x);
}

static void run(ts_engine *e, const void *x, const void *t, void *y, void *loss)
{
    if (ts_engine_run(e, (const void *[]){x, t}, (void *[]){y, loss}))
        fail_msg("%s", ts_error_text());
}

typedef struct rows {
    float *x;
    int32_t *t;
} rows;

static rows rows_of(int n)
{
    rows r = {test_malloc(sizeof(float[FEATURES]) * (size_t)n),
              test_malloc(sizeof(int) * (size_t)n)};

    for (int i = 0; i < n * FEATURES; i++)
        r.x[i] = (float)(2 * ts_random_unit(3, 1, 0, (uint64_t)i) - 1);
    for (int i = 0; i < n; i++)
        r.t[i] = (int32_t)(ts_random_unit(3, 2, 0, (uint64_t)i) * CLASSES);
    return r;
}

static void rows_free(rows r)
{
    test_free(r.x);
    test_free(r.t);
}

static const ts_optimizer *adam(void)
{
    static ts_optimizer o;

    o = ts_adam(0.01);
    return &o;
}

static float *floats(int n)
{
    float *f = test_malloc(sizeof(float) * (size_t)n);

    for (int i = 0; i < n; i++)
        f[i] = NAN;
    return f;
}

/* --- output modes: the worked examples of the PopTorch reference, section 2.4 --- */

typedef struct example {
    int number;
    bool training;
    int B, D, A;
    ts_output_mode mode;
    int period;
    int slots; /* expected: [slots * B, 10] and [slots] */
} example;

static const example examples[] = {
    {1, true, 16, 1, 1, TS_OUTPUT_FINAL, 0, 1},
    {2, true, 8, 50, 1, TS_OUTPUT_ALL, 0, 50},
    {3, true, 8, 50, 1, TS_OUTPUT_FINAL, 0, 1},
    {4, true, 40, 10, 10, TS_OUTPUT_ALL, 0, 100},
    {5, true, 40, 10, 10, TS_OUTPUT_FINAL, 0, 1},
    {6, true, 40, 10, 10, TS_OUTPUT_SUM, 0, 1},
    {7, true, 40, 10, 10, TS_OUTPUT_EVERY_N, 5, 20},
    {8, false, 8, 100, 1, TS_OUTPUT_ALL, 0, 100},
    {11, true, 1, 1000, 1, TS_OUTPUT_ALL, 0, 1000},
    {11, true, 1, 1000, 1, TS_OUTPUT_EVERY_N, 20, 50},
    {11, true, 1, 1000, 1, TS_OUTPUT_FINAL, 0, 1},
    {12, false, 1, 10, 1, TS_OUTPUT_EVERY_N, 5, 2},
    {0, true, 4, 6, 2, TS_OUTPUT_DEFAULT, 0, 1},
    {0, false, 4, 6, 1, TS_OUTPUT_DEFAULT, 0, 6},
    {0, false, 4, 6, 1, TS_OUTPUT_SUM, 0, 1},
};

/* Every micro-batch's result with the weights it had: one weight update a call, and inference with
 * those weights as a second opinion. */
static void one_by_one(const example *c, ts_executor executor, rows in, float *y, float *loss)
{
    rig train = {0}, infer;
    float *y2 = floats(c->B * CLASSES), loss2, w[12 * FEATURES + 12 + 12 * CLASSES + CLASSES];
    static const char *const names[] = {"fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"};
    static const size_t sizes[] = {sizeof(float[12 * FEATURES]), sizeof(float[12]),
                                   sizeof(float[12 * CLASSES]), sizeof(float[CLASSES])};

    infer = rig_of(network(c->B, false), (ts_options){.executor = executor}, 1);
    if (c->training)
        train = rig_of(network(c->B, false),
                       (ts_options){.optimizer = adam(),
                                    .gradient_accumulation = c->A,
                                    .output_mode = TS_OUTPUT_ALL,
                                    .executor = executor},
                       1);
    for (int d = 0; d < c->D; d++) {
        int first = d * c->A;
        for (int i = 0; i < 4 && c->training; i++) {
            assert_int_equal(ts_engine_read(train.e, names[i], w, sizes[i]), TS_OK);
            assert_int_equal(ts_engine_write(infer.e, names[i], w, sizes[i]), TS_OK);
        }
        if (c->training)
            run(train.e, in.x + first * c->B * FEATURES, in.t + first * c->B,
                y + first * c->B * CLASSES, loss + first);
        for (int m = first; m < first + c->A; m++) {
            float *ym = y + m * c->B * CLASSES;
            run(infer.e, in.x + m * c->B * FEATURES, in.t + m * c->B, y2, &loss2);
            if (!c->training) {
                memcpy(ym, y2, sizeof(float) * (size_t)(c->B * CLASSES));
                loss[m] = loss2;
                continue;
            }
            for (int i = 0; i < c->B * CLASSES; i++)
                assert_float_equal(ym[i], y2[i], 1e-5);
            assert_float_equal(loss[m], loss2, 1e-5);
        }
    }
    test_free(y2);
    rig_free(infer);
    rig_free(train);
}

/* What the mode should return of n floats a micro-batch. */
static void pick(const example *c, const float *all, int n, float *out)
{
    ts_output_mode mode = c->mode;
    int slot = 0;

    if (mode == TS_OUTPUT_DEFAULT)
        mode = c->training ? TS_OUTPUT_FINAL : TS_OUTPUT_ALL;
    for (int d = 0; d < c->D; d++)
        for (int a = 0; a < c->A; a++) {
            const float *from = all + (d * c->A + a) * n;
            if (mode == TS_OUTPUT_SUM)
                for (int i = 0; i < n; i++)
                    out[i] = from[i] + (d || a ? out[i] : 0);
            else if (mode == TS_OUTPUT_ALL ||
                     (mode == TS_OUTPUT_EVERY_N && (d + 1) % c->period == 0) ||
                     (mode == TS_OUTPUT_FINAL && d == c->D - 1 && a == c->A - 1))
                memcpy(out + slot++ * n, from, sizeof(float) * (size_t)n);
        }
    assert_int_equal(mode == TS_OUTPUT_SUM ? 1 : slot, c->slots);
}

static void same(const example *c, const char *what, const float *got, const float *want, int n)
{
    if (memcmp(got, want, sizeof(float) * (size_t)n))
        for (int i = 0; i < n; i++)
            if (memcmp(got + i, want + i, sizeof(float)))
                fail_msg("example %d, %s[%d]: %.9g, not %.9g", c->number, what, i, got[i], want[i]);
}

static void check_example(const example *c, ts_executor executor, int threads)
{
    int micro = c->D * c->A, n = c->B * CLASSES;
    rows in = rows_of(micro * c->B);
    float *y = floats(micro * n), *loss = floats(micro), *want = floats(micro * n);
    float *got_y = floats(c->slots * n + 1), *got_loss = floats(c->slots + 1);
    ts_options opt = {.optimizer = c->training ? adam() : NULL,
                      .device_iterations = c->D,
                      .gradient_accumulation = c->A,
                      .output_mode = c->mode,
                      .output_period = c->period,
                      .executor = executor};
    rig r = rig_of(network(c->B, false), opt, threads);

    one_by_one(c, executor, in, y, loss);
    assert_int_equal(ts_engine_slots(r.e), c->slots);
    run(r.e, in.x, in.t, got_y, got_loss);
    pick(c, y, n, want);
    same(c, "y", got_y, want, c->slots * n);
    pick(c, loss, 1, want);
    same(c, "loss", got_loss, want, c->slots);
    assert_true(isnan(got_y[c->slots * n]) && isnan(got_loss[c->slots]));
    rig_free(r);
    test_free(y);
    test_free(loss);
    test_free(want);
    test_free(got_y);
    test_free(got_loss);
    rows_free(in);
}

/* Examples share networks: a cache saves half of the compiling. */
static void test_output_modes(void **state)
{
    char *cache = test_folder();

    (void)state;
    setenv("TESSERA_CACHE_DIR", cache, 1);
    for (int i = 0; i < TS_COUNT(examples); i++)
        check_example(&examples[i], TS_EXECUTOR_NATIVE, 2);
    setenv("TESSERA_CACHE_DIR", "", 1);
    test_folder_remove(cache);
    free(cache);
}

static void test_output_modes_reference(void **state)
{
    (void)state;
    for (int i = 0; i < TS_COUNT(examples); i++)
        check_example(&examples[i], TS_EXECUTOR_REFERENCE, 1);
}

static void test_unwanted_outputs(void **state)
{
    rig r = rig_of(network(4, false), (ts_options){.optimizer = adam()}, 2);
    rows in = rows_of(4);
    float loss = NAN, y[4 * CLASSES];

    (void)state;
    run(r.e, in.x, in.t, NULL, &loss);
    assert_true(isfinite(loss));
    run(r.e, in.x, in.t, y, NULL);
    assert_int_equal(ts_engine_run(r.e, (const void *[]){in.x, in.t}, NULL), TS_OK);
    rows_free(in);
    rig_free(r);
}

static void test_null_inputs(void **state)
{
    rig r = rig_of(network(4, false), (ts_options){.optimizer = adam()}, 1);
    rows in = rows_of(4);

    (void)state;
    assert_int_equal(ts_engine_run(r.e, (const void *[]){in.x, NULL}, NULL), TS_ERR_ARG);
    assert_string_equal(ts_last_error()->message, "input 1 (labels) is NULL");
    assert_int_equal(ts_engine_run(r.e, NULL, NULL), TS_ERR_ARG);
    assert_string_equal(ts_last_error()->message, "input 0 (x) is NULL");
    rows_free(in);
    rig_free(r);
}

/* --- state --- */

static void test_state_by_name(void **state)
{
    rig r = rig_of(network(4, false), (ts_options){.optimizer = adam()}, 1);
    float w[12 * FEATURES], v[12 * FEATURES], b[12];

    (void)state;
    for (int i = 0; i < 12 * FEATURES; i++)
        w[i] = (float)i;
    assert_int_equal(ts_engine_read(r.e, "fc1.weight", v, sizeof(v)), TS_OK);
    for (int i = 0; i < 12 * FEATURES; i++)
        assert_true(fabsf(v[i]) <= 1 / sqrtf(FEATURES));
    assert_int_equal(ts_engine_write(r.e, "fc1.weight", w, sizeof(w)), TS_OK);
    assert_int_equal(ts_engine_read(r.e, "fc1.weight", v, sizeof(v)), TS_OK);
    assert_memory_equal(v, w, sizeof(w));

    assert_int_equal(ts_engine_read(r.e, "fc9.weight", b, sizeof(b)), TS_ERR_ARG);
    assert_non_null(strstr(ts_last_error()->message, "'fc9.weight'"));
    assert_int_equal(ts_engine_write(r.e, "", b, sizeof(b)), TS_ERR_ARG);
    assert_int_equal(ts_engine_read(r.e, "fc1.bias", v, sizeof(v)), TS_ERR_ARG);
    assert_string_equal(ts_last_error()->message, "state 'fc1.bias' has 48 bytes, not 288");
    assert_int_equal(ts_engine_write(r.e, "fc1.bias", v, 44), TS_ERR_ARG);
    assert_int_equal(ts_engine_set(r.e, "fc1.weight", 1), TS_ERR_ARG);
    assert_int_equal(ts_engine_set(r.e, "momentum", 1), TS_ERR_ARG);
    assert_true(ts_last_error()->hint[0]);
    rig_free(r);
}

/* Every state, the optimiser's included, is in the list and can be read. */
static void copy_states(rig from, rig to)
{
    const ts_tensor_info *t;

    for (int i = 0; (t = ts_executable_tensor(from.x, TS_ROLE_STATE, i)); i++) {
        void *data = test_malloc(t->bytes);
        assert_int_equal(ts_engine_read(from.e, t->name, data, t->bytes), TS_OK);
        assert_int_equal(ts_engine_write(to.e, t->name, data, t->bytes), TS_OK);
        test_free(data);
    }
}

static void assert_same_states(rig a, rig b)
{
    const ts_tensor_info *t;

    for (int i = 0; (t = ts_executable_tensor(a.x, TS_ROLE_STATE, i)); i++) {
        void *x = test_malloc(t->bytes), *y = test_malloc(t->bytes);
        assert_int_equal(ts_engine_read(a.e, t->name, x, t->bytes), TS_OK);
        assert_int_equal(ts_engine_read(b.e, t->name, y, t->bytes), TS_OK);
        if (memcmp(x, y, t->bytes))
            fail_msg("%s differs", t->name);
        test_free(x);
        test_free(y);
    }
}

static void test_states_move_a_run(void **state)
{
    rig a = rig_of(network(4, true), (ts_options){.optimizer = adam()}, 2);
    rig b = rig_of(network(4, true), (ts_options){.optimizer = adam()}, 1);
    rows in = rows_of(4);
    uint64_t seed, step;
    float la, lb;

    (void)state;
    for (int i = 0; i < 10; i++)
        run(a.e, in.x, in.t, NULL, &la);
    copy_states(a, b);
    ts_engine_rng(a.e, &seed, &step);
    assert_int_equal(seed, SEED);
    assert_int_equal(step, 10);
    ts_engine_set_rng(b.e, seed, step);
    for (int i = 0; i < 10; i++) {
        run(a.e, in.x, in.t, NULL, &la);
        run(b.e, in.x, in.t, NULL, &lb);
        assert_memory_equal(&la, &lb, sizeof(la));
    }
    assert_same_states(a, b);
    rows_free(in);
    rig_free(a);
    rig_free(b);
}

static void test_the_seed_and_the_name_decide_the_weights(void **state)
{
    rig a = rig_of(network(4, false), (ts_options){.optimizer = adam()}, 2);
    rig b = rig_of(network(4, false), (ts_options){.optimizer = adam()}, 1);
    float w[12 * FEATURES], v[12 * FEATURES];
    ts_engine *other;

    (void)state;
    assert_same_states(a, b);
    assert_int_equal(ts_engine_new(a.x, &(ts_run_options){.seed = SEED + 1}, &other), TS_OK);
    ts_engine_read(a.e, "fc1.weight", w, sizeof(w));
    ts_engine_read(other, "fc1.weight", v, sizeof(v));
    assert_memory_not_equal(w, v, sizeof(w));
    ts_engine_free(other);
    rig_free(a);
    rig_free(b);
}

static void test_the_learning_rate_changes_between_runs(void **state)
{
    ts_optimizer slow = ts_sgd(0), fast = ts_sgd(0.25);
    rig a = rig_of(network(4, false), (ts_options){.optimizer = &slow}, 2);
    rig b = rig_of(network(4, false), (ts_options){.optimizer = &fast}, 2);
    rows in = rows_of(4);
    float lr, w[12], v[12];

    (void)state;
    ts_engine_read(a.e, "fc1.bias", w, sizeof(w));
    run(a.e, in.x, in.t, NULL, NULL);
    ts_engine_read(a.e, "fc1.bias", v, sizeof(v));
    assert_memory_equal(w, v, sizeof(w));
    assert_int_equal(ts_engine_set(a.e, "lr", 0.25), TS_OK);
    assert_int_equal(ts_engine_read(a.e, "lr", &lr, sizeof(lr)), TS_OK);
    assert_float_equal(lr, 0.25, 0);
    for (int i = 0; i < 3; i++) {
        run(a.e, in.x, in.t, NULL, NULL);
        run(b.e, in.x, in.t, NULL, NULL);
    }
    assert_same_states(a, b);
    rows_free(in);
    rig_free(a);
    rig_free(b);
}

/* A gradients' mean over A equals one batch A times as large; the sum is A times the mean. */
static void test_accumulation(void **state)
{
    enum { A = 5, B = 3 };
    ts_optimizer sgd = ts_sgd(0.5), tenth = ts_sgd(0.1);
    rig big = rig_of(network(A * B, false), (ts_options){.optimizer = &sgd}, 2);
    rig mean =
        rig_of(network(B, false), (ts_options){.optimizer = &sgd, .gradient_accumulation = A}, 2);
    rig sum = rig_of(
        network(B, false),
        (ts_options){.optimizer = &tenth, .gradient_accumulation = A, .accumulate_sum = true}, 2);
    rig running = rig_of(
        network(B, false),
        (ts_options){.optimizer = &sgd, .gradient_accumulation = A, .accumulate_running = true}, 2);
    rig all[] = {mean, sum, running};
    rows in = rows_of(A * B);
    float want[12 * FEATURES], got[12 * FEATURES];

    (void)state;
    for (int step = 0; step < 4; step++) {
        run(big.e, in.x, in.t, NULL, NULL);
        ts_engine_read(big.e, "fc1.weight", want, sizeof(want));
        for (int i = 0; i < TS_COUNT(all); i++) {
            run(all[i].e, in.x, in.t, NULL, NULL);
            ts_engine_read(all[i].e, "fc1.weight", got, sizeof(got));
            for (int k = 0; k < 12 * FEATURES; k++)
                assert_float_equal(got[k], want[k], 1e-5);
        }
    }
    for (int i = 0; i < TS_COUNT(all); i++)
        rig_free(all[i]);
    rig_free(big);
    rows_free(in);
}

static void check_period(int D, int period, bool good)
{
    ts_graph *g = network(2, false);
    ts_options opt = {.device_iterations = D,
                      .output_mode = TS_OUTPUT_EVERY_N,
                      .output_period = period,
                      .executor = TS_EXECUTOR_REFERENCE};
    ts_executable *x = NULL;
    ts_status s = ts_compile(g, &opt, &x);

    assert_int_equal(s, good ? TS_OK : TS_ERR_ARG);
    ts_executable_free(x);
    ts_graph_free(g);
}

static void test_periods(void **state)
{
    (void)state;
    check_period(10, 5, true);
    check_period(10, 10, true);
    check_period(10, 3, false);
    check_period(10, 20, false);
    check_period(10, 0, true); /* 1 */
    check_period(10, -5, false);
}

/* --- random numbers --- */

static void test_rng_restores_dropout(void **state)
{
    ts_graph *g = ts_graph_new("net");
    float ones[64], first[64], second[64], again[64];
    uint64_t seed, step;
    rig r;

    (void)state;
    ts_output(ts_dropout(ts_input(g, "x", TS_F32, 64), 0.5, true), "y");
    r = rig_of(g, (ts_options){0}, 2);
    for (int i = 0; i < 64; i++)
        ones[i] = 1;
    ts_engine_rng(r.e, &seed, &step);
    assert_int_equal(step, 0);
    run(r.e, ones, NULL, first, NULL);
    run(r.e, ones, NULL, second, NULL);
    assert_memory_not_equal(first, second, sizeof(first));
    for (int i = 0; i < 64; i++)
        assert_true(first[i] == 0 || first[i] == 2);
    ts_engine_set_rng(r.e, seed, step);
    run(r.e, ones, NULL, again, NULL);
    assert_memory_equal(first, again, sizeof(first));
    ts_engine_set_rng(r.e, seed, 1);
    run(r.e, ones, NULL, again, NULL);
    assert_memory_equal(second, again, sizeof(first));
    ts_engine_set_rng(r.e, seed + 1, 0);
    run(r.e, ones, NULL, again, NULL);
    assert_memory_not_equal(first, again, sizeof(first));
    rig_free(r);
}

/* --- threads and memory --- */

static void test_any_number_of_threads(void **state)
{
    rig one =
        rig_of(network(16, true), (ts_options){.optimizer = adam(), .device_iterations = 5}, 1);
    rows in = rows_of(16 * 5);

    (void)state;
    run(one.e, in.x, in.t, NULL, NULL);
    for (int threads = 2; threads <= 7; threads++) {
        rig r = {.x = one.x};
        ts_run_options how = {.threads = threads, .seed = SEED};
        assert_int_equal(ts_engine_new(one.x, &how, &r.e), TS_OK);
        assert_int_equal(ts_engine_threads(r.e), threads);
        run(r.e, in.x, in.t, NULL, NULL);
        assert_same_states(one, r);
        ts_engine_free(r.e);
    }
    rows_free(in);
    rig_free(one);
}

static int threads_by_default(const ts_executable *x)
{
    ts_engine *e;
    int n;

    assert_int_equal(ts_engine_new(x, NULL, &e), TS_OK);
    n = ts_engine_threads(e);
    ts_engine_free(e);
    return n;
}

static void test_how_many_threads_by_default(void **state)
{
    rig r = rig_of(network(2, false), (ts_options){0}, 1);
    rig ref = rig_of(network(2, false), (ts_options){.executor = TS_EXECUTOR_REFERENCE}, 4);
    cpu_set_t all, one;

    (void)state;
    assert_int_equal(ts_engine_threads(ref.e), 1);
    setenv("OMP_NUM_THREADS", "5", 1);
    assert_int_equal(threads_by_default(r.x), 5);
    unsetenv("OMP_NUM_THREADS");
    assert_int_equal(sched_getaffinity(0, sizeof(all), &all), 0);
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE && !CPU_COUNT(&one); i++)
        if (CPU_ISSET(i, &all))
            CPU_SET(i, &one);
    sched_setaffinity(0, sizeof(one), &one);
    assert_int_equal(threads_by_default(r.x), 1);
    sched_setaffinity(0, sizeof(all), &all);
    rig_free(ref);
    rig_free(r);
}

static void test_a_run_allocates_nothing(void **state)
{
#ifdef SANITIZED
    (void)state;
    skip();
#else
    rig r = rig_of(network(8, true),
                   (ts_options){.optimizer = adam(),
                                .device_iterations = 3,
                                .gradient_accumulation = 2,
                                .output_mode = TS_OUTPUT_SUM},
                   3);
    rows in = rows_of(8 * 6);
    float y[8 * CLASSES], loss;

    (void)state;
    run(r.e, in.x, in.t, y, &loss);
    atomic_store(&allocations, 0);
    for (int i = 0; i < 20; i++)
        run(r.e, in.x, in.t, y, &loss);
    assert_int_equal(atomic_load(&allocations), 0);
    rows_free(in);
    rig_free(r);
#endif
}

static void test_memory_is_the_plan(void **state)
{
#ifdef SANITIZED
    (void)state;
    skip();
#else
    rig r = rig_of(network(256, false), (ts_options){.optimizer = adam()}, 2);
    ts_stats s = ts_executable_stats(r.x);
    ts_engine *e;

    (void)state;
    assert_true(s.native && s.kernels > 0);
    assert_true(s.state_bytes > 0 && s.state_bytes <= s.peak_bytes);
    atomic_store(&largest, 0);
    assert_int_equal(ts_engine_new(r.x, &(ts_run_options){.threads = 2}, &e), TS_OK);
    assert_int_equal(atomic_load(&largest), TS_ROUND_UP(s.peak_bytes, 64));
    ts_engine_free(e);
    rig_free(r);
#endif
}

/* Every micro-batch of every run has its own times, in order. */
static void test_times(void **state)
{
    (void)state;
    for (ts_executor x = TS_EXECUTOR_NATIVE; x <= TS_EXECUTOR_REFERENCE; x++) {
        rig r = rig_of(network(2, false),
                       (ts_options){.optimizer = adam(),
                                    .device_iterations = 2,
                                    .gradient_accumulation = 3,
                                    .executor = x},
                       2);
        rows in = rows_of(12);
        double last = 0;
        int n = -1;
        assert_true(ts_engine_times(r.e, &n)[5].given == 0);
        assert_int_equal(n, 6);
        for (int call = 0; call < 2; call++) {
            const ts_times *t = ts_engine_times(r.e, NULL);
            run(r.e, in.x, in.t, NULL, NULL);
            for (int i = 0; i < n; i++) {
                assert_true(t[i].begun > last && t[i].computed > t[i].begun);
                assert_true(t[i].given >= t[i].computed);
                last = t[i].computed;
            }
        }
        rows_free(in);
        rig_free(r);
    }
    assert_null(ts_engine_times(NULL, NULL));
}

static void test_no_memory(void **state)
{
    rig native = rig_of(network(2, false), (ts_options){.optimizer = adam()}, 2);
    rig ref = rig_of(network(2, false),
                     (ts_options){.optimizer = adam(), .executor = TS_EXECUTOR_REFERENCE}, 1);
    rig all[] = {native, ref};

    (void)state;
    for (int i = 0; i < 2; i++) {
        ts_engine *e;
        int points;
        ts_fault_arm("alloc", 1000000);
        assert_int_equal(ts_engine_new(all[i].x, NULL, &e), TS_OK);
        ts_engine_free(e);
        points = ts_fault_count();
        assert_true(points > 3);
        for (int n = 0; n < points; n++) {
            ts_fault_arm("alloc", n);
            assert_int_equal(ts_engine_new(all[i].x, NULL, &e), TS_ERR_MEMORY);
        }
        ts_fault_arm("alloc", -1);
        rig_free(all[i]);
    }
    ts_engine_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_output_modes),
        cmocka_unit_test(test_output_modes_reference),
        cmocka_unit_test(test_unwanted_outputs),
        cmocka_unit_test(test_null_inputs),
        cmocka_unit_test(test_state_by_name),
        cmocka_unit_test(test_states_move_a_run),
        cmocka_unit_test(test_the_seed_and_the_name_decide_the_weights),
        cmocka_unit_test(test_the_learning_rate_changes_between_runs),
        cmocka_unit_test(test_accumulation),
        cmocka_unit_test(test_periods),
        cmocka_unit_test(test_rng_restores_dropout),
        cmocka_unit_test(test_any_number_of_threads),
        cmocka_unit_test(test_how_many_threads_by_default),
        cmocka_unit_test(test_a_run_allocates_nothing),
        cmocka_unit_test(test_memory_is_the_plan),
        cmocka_unit_test(test_times),
        cmocka_unit_test(test_no_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
