/* rounding.c - halves rounded up or down at random: right on average, and the same bits for the
 * same seed, however the work is divided. The graphs that the pass makes are in rounding/. */
#include "run/engine.h"
#include "support.h"
#include <math.h>

enum { SEED = 5 };

typedef struct rig {
    ts_executable *x;
    ts_engine *e;
} rig;

static rig rig_of(ts_graph *g, ts_options opt, ts_run_options how)
{
    rig r;

    how.seed = how.seed ? how.seed : SEED;
    opt.cache_dir = opt.cache_dir ? opt.cache_dir : "";
    assert_ok(ts_compile(g, &opt, &r.x));
    assert_ok(ts_engine_new(r.x, &how, &r.e));
    ts_graph_free(g);
    return r;
}

static void rig_free(rig r)
{
    ts_engine_free(r.e);
    ts_executable_free(r.x);
}

/* --- one number, many times --- */

enum { VALUES = 16, DRAWS = 8192 };

/* down, up: the halves around x; the same where x is one. */
typedef struct expectation {
    float x, f16[2], bf16[2];
} expectation;

static const expectation expected[VALUES] = {
    {0, {0, 0}, {0, 0}},
    {1, {1, 1}, {1, 1}},
    {1 + 0x1p-11f, {1, 1 + 0x1p-10f}, {1, 1 + 0x1p-7f}},
    {1 + 0x1p-13f, {1, 1 + 0x1p-10f}, {1, 1 + 0x1p-7f}},
    {-(1 + 0x1p-10f - 0x1p-15f), {-1, -(1 + 0x1p-10f)}, {-1, -(1 + 0x1p-7f)}},
    {2049, {2048, 2050}, {2048, 2064}},
    {1 - 0x1p-24f, {1 - 0x1p-11f, 1}, {1 - 0x1p-8f, 1}},
    {0x1.8p-24f, {0x1p-24f, 0x1p-23f}, {0x1.8p-24f, 0x1.8p-24f}}, /* subnormal */
    {-0x1p-26f, {-0.0f, -0x1p-24f}, {-0x1p-26f, -0x1p-26f}},
    {0x1p-14f - 0x1p-26f, {0x1p-14f - 0x1p-24f, 0x1p-14f}, {0x1p-14f - 0x1p-22f, 0x1p-14f}},
    {65520, {65504, INFINITY}, {65280, 65536}},
    {-65512, {-65504, -INFINITY}, {-65280, -65536}},
    {65536, {INFINITY, INFINITY}, {65536, 65536}},
    {0x1.ffp127f, {INFINITY, INFINITY}, {0x1.fep127f, INFINITY}},
    {INFINITY, {INFINITY, INFINITY}, {INFINITY, INFINITY}},
    {-INFINITY, {-INFINITY, -INFINITY}, {-INFINITY, -INFINITY}},
};

/* How often up? Infinity stands for the power of two behind the largest half. */
static void check_draws(ts_dtype t, float x, const float *around, const uint16_t *got)
{
    double down = around[0], up = around[1], p, n = 0;

    if (isinf(up) && !isinf(down))
        up = copysign(t == TS_F16 ? 65536 : 0x1p128, down);
    p = down == up ? 0 : (x - down) / (up - down);
    for (int i = 0; i < DRAWS; i++) {
        double y = ts_dtype_get(t, got, i);
        if (y != (double)around[0] && y != (double)around[1])
            fail_msg("%s: %.9g became %.9g", ts_dtype_name(t), x, y);
        assert_int_equal(!signbit(y), !signbit(x));
        n += y == (double)around[1];
    }
    if (down != up && fabs(n / DRAWS - p) > 5 * sqrt(p * (1 - p) / DRAWS) + 0x1p-20)
        fail_msg("%s: %.9g went up %g of %d times, not %g", ts_dtype_name(t), x, n, DRAWS,
                 p * DRAWS);
}

static ts_graph *draws(void)
{
    ts_graph *g = ts_graph_new("draws");
    ts_value *x = ts_input(g, "x", TS_F32, VALUES, DRAWS);

    ts_output(ts_cast(x, TS_F16), "f16");
    ts_output(ts_cast(x, TS_BF16), "bf16");
    return g;
}

typedef uint16_t drawn[2][VALUES * DRAWS]; /* f16, bf16 */

static void draw(rig r, const float *x, drawn to)
{
    assert_ok(ts_engine_run(r.e, (const void *[]){x}, (void *[]){to[0], to[1]}));
}

static void right_on_average(void **state)
{
    static drawn want, got;
    ts_options opt = {.stochastic_rounding = true, .executor = TS_EXECUTOR_REFERENCE};
    static float x[VALUES * DRAWS];
    rig r = rig_of(draws(), opt, (ts_run_options){0});

    (void)state;
    for (int i = 0; i < VALUES * DRAWS; i++)
        x[i] = expected[i / DRAWS].x;
    draw(r, x, want);
    for (int i = 0; i < VALUES; i++) {
        check_draws(TS_F16, expected[i].x, expected[i].f16, want[0] + i * DRAWS);
        check_draws(TS_BF16, expected[i].x, expected[i].bf16, want[1] + i * DRAWS);
    }
    draw(r, x, got); /* another step, other numbers */
    assert_memory_not_equal(got, want, sizeof(want));
    rig_free(r);
    opt.executor = TS_EXECUTOR_NATIVE;
    r = rig_of(draws(), opt, (ts_run_options){.threads = 1});
    draw(r, x, got);
    assert_memory_equal(got, want, sizeof(want));
    for (int threads = 2; threads <= 3; threads++) {
        ts_engine_free(r.e);
        assert_ok(ts_engine_new(r.x, &(ts_run_options){.threads = threads, .seed = SEED}, &r.e));
        draw(r, x, got);
        assert_memory_equal(got, want, sizeof(want));
    }
    rig_free(r);
}

/* --- weights --- */

enum { WEIGHTS = 512, STEPS = 32 };

/* The gradient of every weight is 1, and exact. */
static ts_graph *sum_of_weights(void)
{
    ts_graph *g = ts_graph_new("weights");
    ts_value *x = ts_input(g, "x", TS_F16, WEIGHTS);
    ts_value *w = ts_param(g, "w", TS_F16, ((ts_init){TS_INIT_FULL, 1, 0}), WEIGHTS);

    ts_loss(ts_sum(ts_cast(ts_mul(w, x), TS_F32), 0, NULL, false));
    return g;
}

/* As if the other process had the same gradients. */
static ts_status twice(void *self, ts_dtype t, void *data, int64_t count)
{
    (void)self;
    for (int64_t i = 0; i < count; i++)
        ts_dtype_set(t, data, i, 2 * ts_dtype_get(t, data, i));
    return TS_OK;
}

static ts_status alone(void *self, void *data, size_t bytes)
{
    (void)self, (void)data, (void)bytes;
    return TS_OK;
}

/* Trains by steps of an eighth of what would change a weight; in two calls, for the second must
 * draw other numbers. The replicas' weights stay equal. */
static void train(ts_options opt, const ts_comm *comm, uint64_t seed, uint16_t *w)
{
    static uint16_t ones[STEPS * 4 * WEIGHTS];
    ts_optimizer sgd = ts_sgd(0x1p-14);
    const ts_slot *s;
    rig r;

    for (int i = 0; i < TS_COUNT(ones); i++)
        ones[i] = 0x3c00;
    opt.optimizer = &sgd;
    opt.device_iterations = STEPS / 2;
    r = rig_of(sum_of_weights(), opt, (ts_run_options){.threads = 2, .seed = seed, .comm = comm});
    for (int i = 0; i < 2; i++)
        assert_ok(ts_engine_run(r.e, (const void *[]){ones}, (void *[]){NULL}));
    assert_ok(ts_engine_read(r.e, "w", w, WEIGHTS * 2));
    for (s = r.x->states; strcmp(s->info.name, "w"); s++)
        ;
    for (int i = 1; i < opt.replicas; i++)
        assert_memory_equal(ts_engine_state(r.e, i, s, s->at), ts_engine_state(r.e, 0, s, s->at),
                            s->info.bytes);
    rig_free(r);
}

static double mean(const uint16_t *w)
{
    double sum = 0;

    for (int i = 0; i < WEIGHTS; i++)
        sum += ts_f16_to_f32(w[i]);
    return sum / WEIGHTS;
}

/* Micro-batches, replicas and processes: each has a path of its own to the update. All numbers are
 * exact but for the rounding, so native code and the reference agree to the bit. */
static void small_updates_are_kept(void **state)
{
    static const struct {
        int A, replicas, processes;
    } how[] = {{1, 1, 1}, {2, 1, 1}, {2, 2, 1}, {1, 1, 2}};
    uint16_t lost[WEIGHTS], other[WEIGHTS], w[2][2][WEIGHTS];
    double step = 0x1p-11, want = 1 - STEPS * 0x1p-14,
           error = sqrt(STEPS * 7. / 64 / WEIGHTS) * step;

    (void)state;
    train((ts_options){.executor = TS_EXECUTOR_REFERENCE}, NULL, SEED, lost);
    assert_true(mean(lost) == 1);
    for (int k = 0; k < TS_COUNT(how); k++) {
        ts_options opt = {.stochastic_rounding = true,
                          .gradient_accumulation = how[k].A,
                          .replicas = how[k].replicas,
                          .processes = how[k].processes};
        for (int native = 0; native < 2; native++)
            for (int rank = 0; rank < how[k].processes; rank++) {
                ts_comm c = {.rank = rank, .size = 2, .sum = twice, .copy = alone};
                opt.executor = native ? TS_EXECUTOR_NATIVE : TS_EXECUTOR_REFERENCE;
                train(opt, how[k].processes > 1 ? &c : NULL, SEED, w[native][rank]);
                assert_memory_equal(w[native][rank], w[0][0], sizeof(w[0][0]));
            }
        if (fabs(mean(w[0][0]) - want) > 5 * error)
            fail_msg("way %d: the weights' mean is %.9g, not %.9g +- %.2g", k, mean(w[0][0]), want,
                     error);
        opt.executor = TS_EXECUTOR_REFERENCE;
        if (how[k].processes == 1) {
            train(opt, NULL, SEED + 1, other);
            assert_memory_not_equal(other, w[0][0], sizeof(other));
        }
    }
}

/* --- however the work is divided --- */

enum { BATCH = 4, IN = 24, MICRO_BATCHES = 3 };

static ts_graph *net(ts_dtype t)
{
    ts_graph *g = ts_graph_new("net");
    ts_value *x = ts_input(g, "x", t, BATCH, IN), *labels = ts_input(g, "labels", TS_I32, BATCH);

    ts_block_begin(g, "front");
    x = ts_dropout(ts_tanh(ts_linear(x, "fc1", 32)), 0.25, true);
    ts_block_end(g);
    ts_block_begin(g, "back");
    ts_loss(ts_cross_entropy(ts_linear(ts_relu(x), "fc2", 5), labels));
    ts_block_end(g);
    return g;
}

/* The weights after two updates, one after the other. */
static size_t weights_of(ts_options opt, int threads, char *to)
{
    static uint16_t x[2 * MICRO_BATCHES * BATCH * IN];
    static int32_t labels[2 * MICRO_BATCHES * BATCH];
    ts_optimizer adam = ts_adamw(0.01);
    const ts_tensor_info *t;
    size_t n = 0;
    rig r;

    for (int i = 0; i < TS_COUNT(x); i++)
        x[i] = ts_f32_to_f16((float)(i * 37 % 101) / 101);
    for (int i = 0; i < TS_COUNT(labels); i++)
        labels[i] = i * 7 % 5;
    opt.optimizer = &adam;
    opt.stochastic_rounding = true;
    opt.gradient_accumulation = MICRO_BATCHES;
    opt.device_iterations = 2;
    r = rig_of(net(TS_F16), opt, (ts_run_options){.threads = threads});
    assert_ok(ts_engine_run(r.e, (const void *[]){x, labels}, (void *[]){NULL}));
    for (int i = 0; (t = ts_executable_tensor(r.x, TS_ROLE_STATE, i)); i++) {
        assert_ok(ts_engine_read(r.e, t->name, to + n, t->bytes));
        n += t->bytes;
    }
    rig_free(r);
    return n;
}

static void the_same_bits(void **state)
{
    static char one[1 << 16], other[1 << 16];
    const char *front = "front", *back = "back";
    ts_stage stages[] = {{.blocks = &front, .nblocks = 1, .device = 0},
                         {.blocks = &back, .nblocks = 1, .device = 1}};
    char *folder = test_folder();
    size_t n = weights_of((ts_options){.cache_dir = folder}, 1, one);

    (void)state;
    for (int threads = 2; threads <= 3; threads++) {
        assert_int_equal(weights_of((ts_options){.cache_dir = folder}, threads, other), n);
        assert_memory_equal(one, other, n);
    }
    for (int k = test_brief(); k < 2; k++) {
        ts_options opt = {.stages = stages, .nstages = 2, .recompute = k};
        assert_int_equal(weights_of(opt, 2, other), n);
        assert_memory_equal(one, other, n);
    }
    test_folder_remove(folder);
    free(folder);
}

/* Of f32 there is nothing to round: the same program. But the cache does not know that. */
static void f32_is_left_alone(void **state)
{
    ts_optimizer sgd = ts_sgd(0.01);
    char *folder = test_folder();
    ts_options opt = {.optimizer = &sgd, .cache_dir = folder};
    rig plain = rig_of(net(TS_F32), opt, (ts_run_options){0}), random;

    (void)state;
    opt.stochastic_rounding = true;
    random = rig_of(net(TS_F32), opt, (ts_run_options){0});
    assert_false(ts_executable_stats(random.x).from_cache);
    assert_string_equal(ts_executable_source(plain.x), ts_executable_source(random.x));
    rig_free(plain);
    rig_free(random);
    test_folder_remove(folder);
    free(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(right_on_average),
        cmocka_unit_test(small_updates_are_kept),
        cmocka_unit_test(the_same_bits),
        cmocka_unit_test(f32_is_left_alone),
    };

    return cmocka_run_group_tests_name("rounding", tests, NULL, NULL);
}
