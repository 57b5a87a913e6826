/* sizes.h - families of nets that differ by one in one size, around multiples of what vectors and parts
 * are made of: is there a size that costs more than its work explains? test/render/sweep.c asks the
 * model of the machine, bench/sweep.c the clock.
 */
#ifndef TS_TEST_SIZES_H
#define TS_TEST_SIZES_H

#include "tessera.h"

typedef struct size_family {
    const char *name, *what;
    ts_graph *(*make)(int64_t size);
    double (*work)(double size); /* in proportion */
    int from, to;
    double most; /* times the cost that its work explains */
} size_family;

static inline ts_graph *size_finish(ts_graph *g, ts_value *y)
{
    ts_loss(ts_mean(ts_square(y), 0, NULL, false));
    return g;
}

static inline ts_graph *size_features(int64_t size)
{
    ts_graph *g = ts_graph_new("features");
    ts_value *x = ts_input(g, "x", TS_F32, 16, 1, 1, size);

    x = ts_relu(ts_conv2d(x, "conv", 1, 1));
    return size_finish(g, ts_linear(ts_relu(ts_linear(ts_flatten(x, 1), "fc1", 100)), "fc2", 10));
}

static inline ts_graph *size_linear(int64_t size)
{
    ts_graph *g = ts_graph_new("linear");
    ts_value *x = ts_input(g, "x", TS_F32, 16, 64);

    x = ts_relu(ts_linear(x, "fc1", size));
    return size_finish(g, ts_linear(ts_relu(ts_linear(x, "fc2", 100)), "fc3", 10));
}

static inline ts_graph *size_convolutions(int64_t batch, int64_t size_channels, int64_t side)
{
    ts_graph *g = ts_graph_new("convolutions");
    ts_value *x = ts_input(g, "x", TS_F32, batch, size_channels, side, side);

    x = ts_relu(ts_conv2d(x, "conv1", (int)size_channels, 3, .padding = 1));
    return size_finish(g, ts_relu(ts_conv2d(x, "conv2", (int)size_channels, 3, .padding = 1)));
}

static inline ts_graph *size_channels(int64_t size)
{
    return size_convolutions(8, size, 16);
}

static inline ts_graph *size_channels_of_one(int64_t size)
{
    return size_convolutions(1, size, 40);
}

static inline ts_graph *size_images(int64_t size)
{
    return size_convolutions(8, 12, size);
}

static inline ts_graph *size_classifier(int64_t batch, int first, int second)
{
    ts_graph *g = ts_graph_new("classifier");
    ts_value *x = ts_input(g, "x", TS_F32, batch, 1, 28, 28);

    x = ts_relu(ts_max_pool2d(ts_conv2d(x, "conv1", first, 3), 2));
    x = ts_relu(ts_max_pool2d(ts_conv2d(x, "conv2", second, 3), 2));
    return size_finish(g, ts_linear(ts_relu(ts_linear(ts_flatten(x, 1), "fc1", 100)), "fc2", 10));
}

static inline ts_graph *size_batches(int64_t size)
{
    return size_classifier(size, 5, 12);
}

static inline ts_graph *size_wide_batches(int64_t size)
{
    return size_classifier(size, 32, 64);
}

static inline ts_graph *size_products(int64_t size)
{
    ts_graph *g = ts_graph_new("products");
    ts_value *x = ts_input(g, "x", TS_F32, size, size);

    return size_finish(g, ts_relu(ts_linear(ts_relu(ts_linear(x, "fc1", size)), "fc2", size)));
}

static inline ts_graph *size_sequences(int64_t size)
{
    ts_graph *g = ts_graph_new("sequences");
    ts_value *x = ts_input(g, "x", TS_F32, 2, size, 64), *part[3];
    static const char *const names[] = {"q", "k", "v"};

    for (int i = 0; i < 3; i++)
        part[i] = ts_permute(ts_reshape(ts_linear(x, names[i], 64), 2, size, 4, 16), 0, 2, 1, 3);
    x = ts_attention(part[0], part[1], part[2], NULL);
    return size_finish(g, ts_linear(ts_reshape(ts_permute(x, 0, 2, 1, 3), 2, size, 64), "out", 64));
}

static inline double size_once(double n)
{
    return n;
}

static inline double size_squared(double n)
{
    return n * n;
}

static inline double size_cubed(double n)
{
    return n * n * n;
}

/* Four products with 64 x 64 weights and two over pairs of places. */
static inline double size_of_sequence(double n)
{
    return n * (4 * 64 + 2 * n);
}

static const size_family size_families[] = {
    {"features", "a linear layer behind a convolution, batch 16", size_features, size_once, 840,
     850, 1.25},
    {"linear", "hidden features of three linear layers, batch 16", size_linear, size_once, 840, 850,
     1.25},
    {"channels", "of two convolutions, 16 x 16, batch 8", size_channels, size_squared, 29, 35,
     1.25},
    {"channels_of_one", "of two convolutions, 40 x 40, batch 1", size_channels_of_one, size_squared,
     29, 35, 1.25},
    {"batches", "of a classifier of 5 and 12 channels", size_batches, size_once, 1, 17, 1.25},
    {"wide_batches", "of a classifier of 32 and 64 channels", size_wide_batches, size_once, 1, 17,
     1.25},
    {"products", "of square matrices", size_products, size_cubed, 60, 70, 1.25},
    {"sequences", "through attention, 4 heads of 16, batch 2", size_sequences, size_of_sequence, 60,
     70, 1.25},
    {"images", "of two convolutions of 12 channels, batch 8", size_images, size_squared, 24, 34,
     1.25},
};

#endif
