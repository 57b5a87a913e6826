/* mnist_pipeline.c - handwritten digits: a network cut into four blocks, AdamW, and gradients
 * accumulated over ten micro-batches before each of ten weight updates in one call of the engine.
 *
 *   build/examples/mnist_pipeline --data MNIST-FOLDER
 */
#include "example.h"

static ts_value *layer(ts_value *x, ts_graph *g, const char *name, int channels)
{
    ts_scope_begin(g, name);
    x = ts_relu(ts_max_pool2d(ts_conv2d(x, "conv", channels, 5), 2));
    ts_scope_end(g);
    return x;
}

static ts_graph *network(int64_t batch, bool training)
{
    ts_graph *g = ts_graph_new("mnist_pipeline");
    ts_value *x = ts_input(g, "images", TS_F32, batch, 1, 28, 28);

    ts_block_begin(g, "B1");
    x = layer(x, g, "layer1", 10);
    ts_block_end(g);

    ts_block_begin(g, "B2");
    x = layer(x, g, "layer2", 20);
    ts_block_end(g);

    ts_block_begin(g, "B3");
    x = ts_relu(ts_linear(ts_flatten(x, 1), "layer3", 256));
    ts_block_end(g);

    ts_block_begin(g, "B4");
    x = ts_linear(x, "layer4", 10);
    ts_output(x, "scores");
    if (training)
        ts_loss(ts_cross_entropy(x, ts_input(g, "labels", TS_I32, batch)));
    ts_block_end(g);
    return g;
}

int main(int argc, char **argv)
{
    example_args a = example_read(
        argc, argv, (example_args){.data = FASHION_MNIST, .epochs = 3, .seed = 42, .lr = 0.001});
    ts_optimizer adamw = ts_adamw(a.lr);
    ts_options how = {.optimizer = &adamw,
                      .device_iterations = 10,
                      .gradient_accumulation = 10,
                      .output_mode = TS_OUT_ALL};

    return example_run(&a, &(example){.network = network,
                                      .batch = 40,
                                      .test_batch = 8,
                                      .training = how,
                                      .tests = {.device_iterations = 100},
                                      .mean = 0.1307,
                                      .deviation = 0.3081,
                                      .says = "Accuracy on test set"});
}
