/* ipu.c - the model of an IPU: tiles add up to the whole, none is too full without a verdict, less work
 * needs no more memory, and what the matrix unit loses is what channels are filled up with. */
#include "plan/ipu.h"
#include "support.h"
#include "tessera.h"
#include <math.h>

static ts_graph *network(int64_t batch, int64_t wide, bool half)
{
    ts_graph *g = ts_graph_new("net");
    ts_value *x = ts_input_n(g, "x", TS_F32, 4, (int64_t[]){batch, 3, 32, 32});
    ts_value *t = ts_input_n(g, "t", TS_I32, 1, (int64_t[]){batch});

    x = half ? ts_cast(x, TS_F16) : x;
    x = ts_max_pool2d(ts_relu(ts_conv2d(x, "conv1", (int)wide, 3, .padding = 1)), 2);
    x = ts_relu(ts_conv2d(x, "conv2", (int)wide, 3, .padding = 1));
    x = ts_cast(ts_linear(ts_flatten(x, 1), "fc", 10), TS_F32);
    ts_loss(ts_cross_entropy(x, t));
    return g;
}

typedef struct priced {
    ts_arena *a;
    const ts_program *p;
    ts_ipu_model m;
    ts_status s;
} priced;

static const ts_optimizer *adam(void)
{
    static ts_optimizer o;

    o = ts_adam(0.01);
    return &o;
}

/* A program as it would be with more memory, and what the model says of it. */
static priced price(const ts_graph *g, ts_device_kind kind, ts_options opt)
{
    priced x = {.a = ts_arena_new()};

    opt.device_memory = INT64_MAX;
    assert_ok(ts_compile_plan(x.a, g, &opt, &x.p));
    ts_ipu_price(x.a, ts_ipu_of(kind), x.p, &opt, &x.m);
    return x;
}

static int64_t fullest(const priced *x)
{
    int64_t most = 0;

    for (int d = 0; d < x->p->pipe.ndevices; d++)
        for (int t = 0; t < x->m.ipu->tiles; t++)
            most = TS_MAX(most, x->m.tiles[d][t].peak);
    return most;
}

static void tiles_add_up(void **state)
{
    static const ts_device_kind kinds[] = {TS_DEVICE_MK1, TS_DEVICE_MK2};

    (void)state;
    for (int i = 0; i < 8; i++) {
        ts_graph *g = network(i & 2 ? 64 : 4, 24, i & 4);
        priced x = price(g, kinds[i & 1], (ts_options){.optimizer = adam()});
        const ts_ipu_tile *tiles = x.m.tiles[0];
        int64_t always = 0, peak = 0, states = (int64_t)x.p->bytes[0].states;
        for (int t = 0; t < x.m.ipu->tiles; t++) {
            const ts_ipu_tile *y = &tiles[t];
            assert_true(y->peak >= y->always + y->code + y->gaps);
            assert_true(y->peak >= y->exchange + y->code + y->gaps && y->exchange >= 0);
            always += y->always;
            peak += y->peak - y->code;
        }
        /* whole pieces of 128 bytes of each state: no less, and no more than that */
        assert_in_range(always, states, states + 128 * 40);
        assert_true(peak >= (int64_t)x.p->bytes[0].peak - x.m.ipu->tiles);
        ts_arena_free(x.a);
        ts_graph_free(g);
    }
}

/* The budget refuses exactly what the tiles have no room for. */
static void no_tile_is_too_full_unnoticed(void **state)
{
    int fit = 0, full = 0;

    (void)state;
    for (int wide = 8; wide <= 512; wide *= 2)
        for (int batch = 4; batch <= 1024; batch *= 16) {
            ts_graph *g = network(batch, wide, false);
            ts_options opt = {.optimizer = adam(), .device_kind = TS_DEVICE_MK1};
            priced x = price(g, TS_DEVICE_MK1, opt);
            bool over = fullest(&x) > x.m.ipu->tile_bytes;
            ts_stats stats;
            ts_status s = ts_estimate(g, &opt, &stats);
            assert_int_equal(s, over ? TS_ERR_MEMORY : TS_OK);
            if (over && strstr(ts_last_error()->message, "tiles"))
                assert_non_null(strstr(ts_last_error()->message, "tile "));
            *(over ? &full : &fit) += 1;
            ts_arena_free(x.a);
            ts_graph_free(g);
        }
    assert_true(fit > 3 && full > 3);
}

/* Below four samples the passes make another program, of more kernels. What arrives may be a little less, where another grid of
 * tiles becomes the cheapest. */
static void less_work_needs_no_more_memory(void **state)
{
    (void)state;
    for (int half = 0; half < 2; half++) {
        int64_t last = 0;
        double step = 0;
        for (int batch = 4; batch <= 256; batch *= 2) {
            ts_graph *g = network(batch, 16, half);
            priced x = price(g, TS_DEVICE_MK2, (ts_options){.optimizer = adam()});
            assert_true((double)fullest(&x) > 0.95 * (double)last && x.m.step >= step);
            last = fullest(&x);
            step = x.m.step;
            ts_arena_free(x.a);
            ts_graph_free(g);
        }
    }
}

/* The first kernel that uses the matrix unit, of a product of so many columns. */
static ts_ipu_cycles product(int64_t rows, int64_t columns, int64_t sums)
{
    ts_graph *g = ts_graph_new("product");
    ts_value *x = ts_input_n(g, "x", TS_F32, 2, (int64_t[]){rows, sums});
    ts_value *y = ts_input_n(g, "y", TS_F32, 2, (int64_t[]){sums, columns});
    ts_ipu_cycles c = {0};
    priced p;

    ts_output(ts_matmul(x, y), "z");
    p = price(g, TS_DEVICE_MK2, (ts_options){0});
    for (int i = 0; i < p.p->nkernels; i++)
        if (p.m.kernels[i].matrix_use > 0)
            c = p.m.kernels[i];
    ts_arena_free(p.a);
    ts_graph_free(g);
    return c;
}

/* Eight columns of f32 at once: one takes as long as eight, and uses an eighth of what they use. */
static void columns_are_filled_up(void **state)
{
    ts_ipu_cycles eight = product(4096, 8, 512);

    (void)state;
    assert_true(eight.matrix_use > 0 && eight.matrix_use <= 1);
    for (int n = 1; n < 8; n++) {
        ts_ipu_cycles c = product(4096, n, 512);
        assert_true(fabs(c.compute - eight.compute) < 0.02 * eight.compute);
        assert_true(fabs(c.matrix_use * 8 / n - eight.matrix_use) < 0.02 * eight.matrix_use);
    }
    assert_true(product(4096, 9, 512).compute > 1.2 * eight.compute);
}

/* A pipeline: the longest stage sets the pace, and every device has tiles of its own. */
static void stages_are_balanced(void **state)
{
    static const char *const blocks[] = {"A", "B"};
    const ts_stage stages[] = {{&blocks[0], 1, .device = 0}, {&blocks[1], 1, .device = 1}};
    ts_options opt = {.optimizer = adam(),
                      .gradient_accumulation = 8,
                      .schedule = TS_SCHEDULE_PIPELINED,
                      .stages = stages,
                      .nstages = 2};
    ts_graph *g = ts_graph_new("pipeline");
    ts_value *x = ts_input_n(g, "x", TS_F32, 2, (int64_t[]){64, 256});
    double most;
    priced p;

    (void)state;
    ts_block_begin(g, "A");
    x = ts_relu(ts_linear(x, "a", 256));
    ts_block_end(g);
    ts_block_begin(g, "B");
    x = ts_linear(ts_relu(ts_linear(x, "b", 256)), "c", 8);
    ts_loss(ts_mean(ts_square(x), 0, NULL, false));
    ts_block_end(g);
    p = price(g, TS_DEVICE_MK2, opt);
    most = TS_MAX(p.m.stage[0], p.m.stage[1]);
    assert_int_equal(p.p->pipe.ndevices, 2);
    assert_true(p.m.stage[0] > 0 && p.m.stage[1] > 0 && p.m.stage[0] != p.m.stage[1]);
    assert_true(fabs(p.m.balance - (p.m.stage[0] + p.m.stage[1]) / (2 * most)) < 1e-9);
    assert_true(p.m.step >= 8 * most && p.m.step < 16 * most && p.m.call > p.m.step);
    assert_true(p.m.tiles[0][0].code < p.m.tiles[1][0].code);
    ts_arena_free(p.a);
    ts_graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tiles_add_up),
        cmocka_unit_test(no_tile_is_too_full_unnoticed),
        cmocka_unit_test(less_work_needs_no_more_memory),
        cmocka_unit_test(columns_are_filled_up),
        cmocka_unit_test(stages_are_balanced),
    };

    setenv("TESSERA_MACHINE", TEST_MACHINE, 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
