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
    enum { BATCH = 16, TEST_BATCH = 32 };
    example_args a = example_read(
        argc, argv, (example_args){.data = FASHION_MNIST, .epochs = 5, .seed = 42, .lr = 0.001});
    ts_run_options run = {.threads = a.threads, .seed = a.seed};
    ts_optimizer sgd = ts_sgd(a.lr);
    ts_graph *net = network(BATCH, true), *test_net = network(TEST_BATCH, false);
    ts_executable *exe = NULL, *test_exe = NULL;
    ts_engine *e = NULL, *test_e = NULL;
    idx_set train, test;
    double accuracy;
    ts_status s;

    example_load(&a, 0.5, 0.5, &train, &test);
    sgd.hyper.momentum = 0.9;
    s = ts_compile(net, &(ts_options){.optimizer = &sgd}, &exe);
    if (!s)
        s = ts_engine_new(exe, &run, &e);
    if (!s)
        s = ts_train(e, train.n, (const void *[]){train.images, train.labels},
                     &(ts_train_options){a.epochs, run, .report = example_progress, .arg = &a},
                     NULL);

    /* The same layers without loss and optimiser, and the weights by name. */
    if (!s)
        s = ts_compile(test_net, NULL, &test_exe);
    if (!s)
        s = ts_engine_new(test_exe, &run, &test_e);
    if (!s)
        s = example_copy_weights(e, test_exe, test_e);
    if (!s)
        s = example_accuracy(test_e, TEST_BATCH, &test, &accuracy);
    if (s)
        fputs(ts_error_text(), stderr);
    else
        printf("Eval accuracy: %.2f%%\n", accuracy);

    ts_engine_free(test_e);
    ts_executable_free(test_exe);
    ts_engine_free(e);
    ts_executable_free(exe);
    ts_graph_free(test_net);
    ts_graph_free(net);
    idx_free(&train);
    idx_free(&test);
    return s ? 1 : 0;
}
