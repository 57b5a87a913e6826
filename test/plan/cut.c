/* cut.c - a net that is cut by itself is as well balanced as one that is cut by hand: its slowest
 * device takes at most 5 % longer than in the best of all cuts between layers. */
#include "models/nets.h"
#include "plan/plan.h"
#include "support.h"
#include "tessera/model.h"

enum { MOST = 16 };

/* The time of each device's forward and backward sections. */
static void device_times(const ts_graph *g, ts_options opt, double *time)
{
    ts_optimizer sgd = ts_sgd(0.01);
    ts_arena *a = ts_arena_new();
    const ts_graph *step;
    const ts_program *p;

    opt.optimizer = &sgd;
    opt.gradient_accumulation = 8;
    assert_ok(ts_plan_passes(a, g, &opt, &step));
    assert_ok(ts_plan(a, step, &opt, &p));
    memset(time, 0, sizeof(double) * MOST);
    for (int i = 0; i < p->pipe.nsections; i++)
        if (!p->pipe.sections[i].phase)
            time[p->pipe.sections[i].device] += p->pipe.sections[i].seconds;
    ts_arena_free(a);
}

/* The slowest of `n` stages in the best cut of the layers from `first` on. */
static double best(const double *layer, int first, int layers, int n)
{
    double sum = 0, found = 1e9;

    for (int end = first + 1; end <= layers - (n - 1); end++) {
        sum += layer[end - 1];
        if (n == 1 && end < layers)
            continue;
        double rest = n > 1 ? best(layer, end, layers, n - 1) : 0;
        found = TS_MIN(found, TS_MAX(sum, rest));
    }
    return found;
}

static void check(const ts_graph *g, const char *const *blocks, int layers, int devices)
{
    ts_stage stages[MOST];
    double layer[MOST], time[MOST], hand, slowest = 0;

    for (int i = 0; i < layers; i++)
        stages[i] = (ts_stage){&blocks[i], 1, .device = i};
    device_times(g, (ts_options){.stages = stages, .nstages = layers}, layer);
    hand = best(layer, 0, layers, devices);
    device_times(g, (ts_options){.devices = devices}, time);
    for (int i = 0; i < devices; i++)
        slowest = TS_MAX(slowest, time[i]);
    if (slowest > 1.05 * hand)
        fail_msg("%s on %d devices: the slowest takes %.1f us, and %.1f us by hand", g->name,
                 devices, 1e6 * slowest, 1e6 * hand);
}

static void the_pipeline_net(void **state)
{
    static const char *const blocks[] = {"B1", "B2", "B3", "B4"};
    ts_graph *g = net_pipeline(40);

    (void)state;
    for (int n = 2; n <= 4; n++)
        check(g, blocks, 4, n);
    ts_graph_free(g);
}

static ts_value *half(ts_value *x, const char *name, const char *norm, int64_t channels, int stride)
{
    x = ts_conv2d(x, name, channels, 3, .padding = 1, .stride = stride, .no_bias = true);
    return ts_batch_norm(x, norm);
}

/* As torchvision's resnet18, for pictures of 64 x 64. */
static ts_graph *resnet18(const char *const *blocks)
{
    ts_graph *g = ts_graph_new("resnet18");
    ts_value *x = ts_input(g, "x", TS_F32, 4, 3, 64, 64), *t = ts_input(g, "t", TS_I32, 4), *y;
    int b = 0;

    ts_block_begin(g, blocks[b++]);
    x = ts_conv2d(x, "stem", 64, 7, .stride = 2, .padding = 3, .no_bias = true);
    x = ts_max_pool2d(ts_relu(ts_batch_norm(x, "norm")), 3, .stride = 2, .padding = 1);
    ts_block_end(g);
    for (int i = 0; i < 8; i++) {
        int64_t channels = 64 << i / 2;
        int stride = i && i % 2 == 0 ? 2 : 1;
        ts_scope_begin(g, blocks[b]);
        ts_block_begin(g, blocks[b++]);
        y = half(ts_relu(half(x, "a", "norm_a", channels, stride)), "b", "norm_b", channels, 1);
        if (stride == 2)
            x = ts_batch_norm(ts_conv2d(x, "down", channels, 1, .stride = 2, .no_bias = true),
                              "norm_down");
        x = ts_relu(ts_add(x, y));
        ts_block_end(g);
        ts_scope_end(g);
    }
    ts_block_begin(g, blocks[b]);
    x = ts_linear(ts_flatten(ts_adaptive_avg_pool2d(x, 1, 1), 1), "fc", 1000);
    ts_loss(ts_cross_entropy(x, t));
    ts_block_end(g);
    return g;
}

static void a_resnet(void **state)
{
    static const char *const blocks[] = {"l0", "l1", "l2", "l3", "l4",
                                         "l5", "l6", "l7", "l8", "l9"};
    ts_graph *g = resnet18(blocks);

    (void)state;
    assert_ok(ts_graph_check(g));
    check(g, blocks, 10, 2);
    check(g, blocks, 10, 4);
    ts_graph_free(g);
}

/* A weight in half precision is with the layer that reads it: so are its gradient and what is summed of it. */
static void halves_that_are_accumulated(void **state)
{
    static const char *const types[] = {"f32", "bf16", "f16"};
    ts_optimizer adam = ts_adam(0.001);
    char text[512];

    (void)state;
    for (int i = 0; i < 3 * 4 * 2; i++) {
        ts_options opt = {
            .optimizer = &adam, .devices = 2 + i / 3 % 4, .gradient_accumulation = i / 12 ? 8 : 1};
        ts_stats stats;
        ts_model *m;
        ts_graph *g;
        snprintf(
            text, sizeof(text),
            "input 8 12 12\nclasses 3\nrepeat i 5\n  c{i}: conv2d 16 3 padding=1\n  relu\nend\n"
            "last: conv2d classes 1\nprecision %s\nloss cross_entropy\n",
            types[i % 3]);
        assert_ok(ts_model_parse(text, "halves", &m));
        assert_ok(ts_model_graph(m, &(ts_model_options){.batch = 2, .training = true}, &g));
        assert_ok(ts_estimate(g, &opt, &stats));
        ts_graph_free(g);
        ts_model_free(m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(halves_that_are_accumulated),
        cmocka_unit_test(the_pipeline_net),
        cmocka_unit_test(a_resnet),
    };
    return cmocka_run_group_tests_name("plan cut", tests, NULL, NULL);
}
