/* nets.h - the networks that tests and benchmarks train, through the public header only.
 *
 *   fashion    conv 5x3x3, pool, conv 12x5x5, group norm, two linear; NLL; 28 x 28, 10 classes
 *   digits     conv 32x3x3, pool, conv 64x3x3, pool, linear, dropout, linear; cross-entropy
 *   pipeline   conv 10x5x5, pool, conv 20x5x5, pool, two linear, in four blocks; cross-entropy
 *   residual   (conv 32x3x3, batch norm, relu) twice around a skip; mean of squares
 *
 * The parameters have the names their PyTorch modules give them.
 */
#ifndef TS_TEST_NETS_H
#define TS_TEST_NETS_H

#include "tessera.h"
#include "tessera/model.h"

static inline ts_graph *net_fashion(int64_t batch)
{
    ts_graph *g = ts_graph_new("fashion");
    ts_value *x = ts_input(g, "x", TS_F32, batch, 1, 28, 28);
    ts_value *t = ts_input(g, "labels", TS_I32, batch);

    x = ts_max_pool2d(ts_relu(ts_conv2d(x, "conv1", 5, 3)), 2);
    x = ts_group_norm(ts_relu(ts_conv2d(x, "conv2", 12, 5)), "norm", 3);
    x = ts_relu(ts_linear(ts_flatten(x, 1), "fc1", 100));
    x = ts_log_softmax(ts_linear(x, "fc2", 10), 1);
    ts_output(x, "y");
    ts_loss(ts_nll_loss(x, t));
    return g;
}

static inline ts_value *net_layer(ts_value *x, ts_graph *g, const char *name, int channels,
                                  int kernel)
{
    ts_scope_begin(g, name);
    x = ts_relu(ts_max_pool2d(ts_conv2d(x, "conv", channels, kernel), 2));
    ts_scope_end(g);
    return x;
}

static inline ts_graph *net_digits(int64_t batch, bool dropout)
{
    ts_graph *g = ts_graph_new("digits");
    ts_value *x = ts_input(g, "x", TS_F32, batch, 1, 28, 28);
    ts_value *t = ts_input(g, "labels", TS_I32, batch);

    x = net_layer(x, g, "layer1", 32, 3);
    x = net_layer(x, g, "layer2", 64, 3);
    x = ts_relu(ts_linear(ts_flatten(x, 1), "layer3", 128));
    x = ts_linear(ts_dropout(x, 0.5, dropout), "layer4", 10);
    ts_output(x, "y");
    ts_loss(ts_cross_entropy(x, t));
    return g;
}

static inline ts_graph *net_pipeline(int64_t batch)
{
    ts_graph *g = ts_graph_new("pipeline");
    ts_value *x = ts_input(g, "x", TS_F32, batch, 1, 28, 28);
    ts_value *t = ts_input(g, "labels", TS_I32, batch);

    ts_block_begin(g, "B1");
    x = net_layer(x, g, "layer1", 10, 5);
    ts_block_end(g);
    ts_block_begin(g, "B2");
    x = net_layer(x, g, "layer2", 20, 5);
    ts_block_end(g);
    ts_block_begin(g, "B3");
    x = ts_relu(ts_linear(ts_flatten(x, 1), "layer3", 256));
    ts_block_end(g);
    ts_block_begin(g, "B4");
    x = ts_linear(x, "layer4", 10);
    ts_output(x, "y");
    ts_loss(ts_cross_entropy(x, t));
    ts_block_end(g);
    return g;
}

static inline ts_graph *net_residual(int64_t batch, int64_t channels, int64_t height, int64_t width)
{
    ts_graph *g = ts_graph_new("residual");
    ts_value *x = ts_input(g, "x", TS_F32, batch, channels, height, width), *y;

    y = ts_relu(ts_batch_norm(ts_conv2d(x, "conv1", channels, 3, .padding = 1), "norm1"));
    y = ts_batch_norm(ts_conv2d(y, "conv2", channels, 3, .padding = 1), "norm2");
    y = ts_relu(ts_add(x, y));
    ts_output(y, "y");
    ts_loss(ts_mean(ts_square(y), 0, NULL, false));
    return g;
}

/* CosmicTagger's, three planes of 320 x 512; NULL says ts_last_error(). */
static inline ts_graph *net_cosmic(void)
{
    ts_model_options o = {
        .batch = 1, .rank = 3, .dims = (int64_t[]){3, 320, 512}, .training = true};
    ts_graph *g = NULL;
    ts_model *m;

    if (ts_model_load("uresnet-a21", &m))
        return NULL;
    if (ts_model_graph(m, &o, &g))
        g = NULL;
    ts_model_free(m);
    return g;
}

#endif
