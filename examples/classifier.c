/* classifier.c - trains a small convolutional network on Fashion-MNIST and tells how good it is.
 *
 *   build/examples/classifier --epochs 5
 */
#include "example.h"

static ts_graph *network(int64_t batch, bool training)
{
    ts_graph *g = ts_graph_new("classifier");
    ts_value *x = ts_input(g, "images", TS_F32, batch, 1, 28, 28);

    x = ts_max_pool2d(ts_relu(ts_conv2d(x, "conv1", 5, 3)), 2);
    x = ts_group_norm(ts_relu(ts_conv2d(x, "conv2", 12, 5)), "norm", 3);
    x = ts_relu(ts_linear(ts_flatten(x, 1), "fc1", 100));
    x = ts_log_softmax(ts_linear(x, "fc2", 10), 1);
    ts_output(x, "scores");
    if (training)
        ts_loss(ts_nll_loss(x, ts_input(g, "labels", TS_I32, batch)));
    return g;
}

int main(int argc, char **argv)
{
    example_args a = example_read(
        argc, argv, (example_args){.data = FASHION_MNIST, .epochs = 5, .seed = 42, .lr = 0.001});
    ts_optimizer sgd = ts_sgd(a.lr);

    sgd.hyper.momentum = 0.9;
    return example_run(&a, &(example){.network = network,
                                      .batch = 16,
                                      .test_batch = 32,
                                      .training = {.optimizer = &sgd},
                                      .mean = 0.5,
                                      .deviation = 0.5,
                                      .says = "Eval accuracy"});
}
