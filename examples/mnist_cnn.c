/* mnist_cnn.c - handwritten digits: two convolutions, dropout, plain SGD; 50 weight updates in one
 * call of the engine, and the results of all of them returned.
 *
 *   build/examples/mnist_cnn --data MNIST-FOLDER
 */
#include "example.h"

static ts_value *layer(ts_value *x, ts_graph *g, const char *name, int channels)
{
    ts_scope_begin(g, name);
    x = ts_relu(ts_max_pool2d(ts_conv2d(x, "conv", channels, 3), 2));
    ts_scope_end(g);
    return x;
}

static ts_graph *network(int64_t batch, bool training)
{
    ts_graph *g = ts_graph_new("mnist_cnn");
    ts_value *x = ts_input(g, "images", TS_F32, batch, 1, 28, 28);

    x = layer(x, g, "layer1", 32);
    x = layer(x, g, "layer2", 64);
    x = ts_relu(ts_linear(ts_flatten(x, 1), "layer3", 128));
    x = ts_linear(ts_dropout(x, 0.5, training), "layer4", 10);
    ts_output(x, "scores");
    if (training)
        ts_loss(ts_cross_entropy(x, ts_input(g, "labels", TS_I32, batch)));
    return g;
}

int main(int argc, char **argv)
{
    example_args a = example_read(
        argc, argv, (example_args){.data = FASHION_MNIST, .epochs = 10, .seed = 42, .lr = 0.03});
    ts_optimizer sgd = ts_sgd(a.lr);
    ts_options how = {.optimizer = &sgd, .device_iterations = 50, .output_mode = TS_OUTPUT_ALL};

    return example_run(&a, &(example){.network = network,
                                      .batch = 8,
                                      .test_batch = 80,
                                      .training = how,
                                      .mean = 0.1307,
                                      .deviation = 0.3081,
                                      .says = "Accuracy on test set"});
}
