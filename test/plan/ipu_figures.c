/* ipu_figures.c - the model of an IPU against what was published of real ones: no figure is off by more than a factor of
 * two. None of the constants in plan/ipu.c was chosen by these, but for the products, which gave the matrix unit's
 * share of its peak. doc/ipu-model.md says where each figure is from; a Python test compares its table with the
 * lines that are printed here.
 */
#include "plan/ipu.h"
#include "support.h"
#include "tessera.h"
#include <math.h>

enum { LAYERS = 24, WIDE = 1024, HEADS = 16, WORDS = 128 }; /* BERT-Large */

/* A unit of work (an image, a sequence, a FLOP) takes a device so many seconds. */
static double price(ts_graph *g, ts_device_kind kind, ts_options opt, double units)
{
    ts_arena *a = ts_arena_new();
    const ts_program *p;
    ts_ipu_model m;
    double host = 0, rate;

    opt.device_memory = INT64_MAX;
    assert_ok(ts_compile_plan(a, g, &opt, &p));
    ts_ipu_price(a, ts_ipu_of(kind), p, &opt, &m);
    for (int i = 0; i < p->nkernels; i++)
        host += m.kernels[i].host;
    if (p->pipe.ndevices > 1) /* it comes while others compute */
        host = 0;
    rate = units * m.ipu->hertz / (m.step - host * TS_MAX(1, opt.gradient_accumulation));
    ts_arena_free(a);
    ts_graph_free(g);
    return rate;
}

static void check(const char *name, double published, double modelled)
{
    print_message("figure: %s: %.4g %.4g\n", name, published, modelled);
    assert_true(modelled > published / 2 && modelled < published * 2);
}

/* --- the nets --- */

static ts_value *labels(ts_graph *g, int64_t batch)
{
    return ts_input_n(g, "t", TS_I32, 1, &batch);
}

static ts_graph *tutorial(int64_t batch)
{
    ts_graph *g = ts_graph_new("tutorial");
    ts_value *x = ts_input_n(g, "x", TS_F32, 4, (int64_t[]){batch, 1, 128, 128});

    x = ts_max_pool2d(ts_relu(ts_conv2d(x, "conv1", 5, 3)), 2);
    x = ts_relu(ts_group_norm(ts_conv2d(x, "conv2", 12, 5), "norm", 3));
    x = ts_linear(ts_relu(ts_linear(ts_flatten(x, 1), "fc1", 100)), "fc2", 10);
    ts_loss(ts_cross_entropy(x, labels(g, batch)));
    return g;
}

static ts_value *conv(ts_value *x, const char *name, int out, int kernel, int stride)
{
    char norm[40];

    snprintf(norm, sizeof(norm), "%s.norm", name);
    x = ts_conv2d(x, name, out, kernel, .stride = stride, .padding = kernel / 2, .no_bias = true);
    return ts_batch_norm(x, norm);
}

static ts_value *bottleneck(ts_value *x, int stage, int i)
{
    int wide = 64 << stage, stride = stage && !i ? 2 : 1;
    char name[4][24];
    ts_value *y;

    for (int k = 0; k < 4; k++)
        snprintf(name[k], sizeof(name[k]), "layer%d.%d.conv%d", stage + 1, i, k + 1);
    y = ts_relu(conv(x, name[0], wide, 1, 1));
    y = ts_relu(conv(y, name[1], wide, 3, stride));
    y = conv(y, name[2], 4 * wide, 1, 1);
    return ts_relu(ts_add(y, i ? x : conv(x, name[3], 4 * wide, 1, stride)));
}

static ts_graph *resnet50(int64_t batch)
{
    static const int depth[] = {3, 4, 6, 3};
    ts_graph *g = ts_graph_new("resnet50");
    ts_value *x = ts_input_n(g, "x", TS_F16, 4, (int64_t[]){batch, 3, 224, 224});

    x = ts_max_pool2d(ts_relu(conv(x, "conv1", 64, 7, 2)), 3, .stride = 2, .padding = 1);
    for (int s = 0; s < TS_COUNT(depth); s++)
        for (int i = 0; i < depth[s]; i++)
            x = bottleneck(x, s, i);
    x = ts_flatten(ts_adaptive_avg_pool2d(x, 1, 1), 1);
    ts_loss(ts_cross_entropy(ts_cast(ts_linear(x, "fc", 1000), TS_F32), labels(g, batch)));
    return g;
}

static ts_value *heads(ts_value *x, const char *layer, const char *name, int64_t batch)
{
    char full[40];

    snprintf(full, sizeof(full), "%s.%s", layer, name);
    x = ts_reshape(ts_linear(x, full, WIDE), batch, WORDS, HEADS, WIDE / HEADS);
    return ts_transpose(x, 1, 2);
}

static ts_value *encoder(ts_value *x, int layer, int64_t batch)
{
    char name[24], norm[2][40], fc[3][40];
    ts_value *y;

    snprintf(name, sizeof(name), "layer%d", layer);
    for (int i = 0; i < 3; i++)
        snprintf(fc[i], sizeof(fc[i]), "%s.fc%d", name, i);
    for (int i = 0; i < 2; i++)
        snprintf(norm[i], sizeof(norm[i]), "%s.norm%d", name, i);
    y = ts_attention(heads(x, name, "q", batch), heads(x, name, "k", batch),
                     heads(x, name, "v", batch), NULL);
    y = ts_reshape(ts_transpose(y, 1, 2), batch, WORDS, WIDE);
    x = ts_layer_norm(ts_add(x, ts_linear(y, fc[0], WIDE)), norm[0]);
    y = ts_linear(ts_gelu(ts_linear(x, fc[1], 4 * WIDE)), fc[2], WIDE);
    return ts_checkpoint(ts_layer_norm(ts_add(x, y), norm[1]));
}

/* The encoder of BERT-Large in four stages; embeddings and the head, a tenth of the work, are left out. */
static ts_graph *bert(int64_t batch)
{
    static const char *const blocks[] = {"A", "B", "C", "D"};
    ts_graph *g = ts_graph_new("bert");
    ts_value *x = ts_input_n(g, "x", TS_F16, 3, (int64_t[]){batch, WORDS, WIDE});

    for (int i = 0; i < 4; i++) {
        ts_block_begin(g, blocks[i]);
        for (int k = 0; k < LAYERS / 4; k++)
            x = encoder(x, LAYERS / 4 * i + k, batch);
        if (i == 3)
            ts_loss(ts_mean(ts_square(ts_cast(x, TS_F32)), 0, NULL, false));
        ts_block_end(g);
    }
    return g;
}

static ts_graph *product(ts_dtype type, int64_t n)
{
    ts_graph *g = ts_graph_new("product");
    ts_value *x = ts_input_n(g, "x", type, 2, (int64_t[]){n, n});
    ts_value *y = ts_input_n(g, "y", type, 2, (int64_t[]){n, n});

    ts_output(ts_matmul(x, y), "z");
    return g;
}

/* --- the figures --- */

static const ts_optimizer *momentum(void)
{
    static ts_optimizer o;

    o = ts_sgd(0.01);
    o.hyper.momentum = 0.9;
    return &o;
}

static void products(void **state)
{
    double n = 2048, flops = 2 * n * n * n;

    (void)state;
    check("product f32 Mk1", 18.9e12,
          price(product(TS_F32, (int64_t)n), TS_DEVICE_MK1, (ts_options){0}, flops));
    check("product f16 Mk1", 58.9e12,
          price(product(TS_F16, (int64_t)n), TS_DEVICE_MK1, (ts_options){0}, flops));
}

static void a_tutorial(void **state)
{
    (void)state;
    check("tutorial", 46739,
          price(tutorial(16), TS_DEVICE_MK2, (ts_options){.optimizer = momentum()}, 16));
}

static void a_resnet50(void **state)
{
    ts_options opt = {.optimizer = momentum(), .gradient_accumulation = 10};

    (void)state;
    check("ResNet-50", 38 * 1281167 / (28.33 * 60) / 16,
          price(resnet50(16), TS_DEVICE_MK2, opt, 160));
}

static void bert_large(void **state)
{
    static const char *const blocks[] = {"A", "B", "C", "D"};
    ts_stage stages[4];
    ts_options opt = {.optimizer = momentum(),
                      .gradient_accumulation = 256,
                      .recompute = true,
                      .stages = stages,
                      .nstages = 4};

    (void)state;
    for (int i = 0; i < 4; i++)
        stages[i] = (ts_stage){&blocks[i], 1, .device = i};
    check("BERT-Large", 3700. / 4, price(bert(16), TS_DEVICE_MK2, opt, 16 * 256));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products),
        cmocka_unit_test(a_tutorial),
        cmocka_unit_test(a_resnet50),
        cmocka_unit_test(bert_large),
    };

    setenv("TESSERA_MACHINE", TEST_MACHINE, 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
