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
    enum { BATCH = 8, ITERATIONS = 50, TEST_BATCH = 80 };
    example_args a = example_read(
        argc, argv, (example_args){.data = FASHION_MNIST, .epochs = 10, .seed = 42, .lr = 0.03});
    ts_run_options run = {.threads = a.threads, .seed = a.seed};
    ts_optimizer sgd = ts_sgd(a.lr);
    ts_options how = {
        .optimizer = &sgd, .device_iterations = ITERATIONS, .output_mode = TS_OUT_ALL};
    ts_graph *net = network(BATCH, true), *test_net = network(TEST_BATCH, false);
    ts_executable *exe = NULL, *test_exe = NULL;
    ts_engine *e = NULL, *test_e = NULL;
    idx_set train, test;
    double accuracy;
    ts_status s;

    example_load(&a, 0.1307, 0.3081, &train, &test);
    s = ts_compile(net, &how, &exe);
    if (!s)
        s = ts_engine_new(exe, &run, &e);
    if (!s)
        s = ts_train(e, train.n, (const void *[]){train.images, train.labels},
                     &(ts_train_options){a.epochs, run, .report = example_progress, .arg = &a},
                     NULL);

    /* The same layers without dropout, loss and optimiser, and the weights by name. */
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
        printf("Accuracy on test set: %.2f%%\n", accuracy);

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
