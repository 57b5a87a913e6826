/* mnist_pipeline.c - handwritten digits on four devices: a network cut into four blocks, AdamW, and
 * gradients accumulated over ten micro-batches before each of ten weight updates in one call of the
 * engine. The devices work on different micro-batches at the same time (--strategy pipelined) or
 * take turns (sharded); the results are the same bits.
 *
 *   build/examples/mnist_pipeline --data MNIST-FOLDER
 *   build/examples/mnist_pipeline --strategy sharded --offload-optimiser
 *   build/examples/mnist_pipeline --profile --profile-dir pipeline_profile
 *
 * --profile writes what the kernels of each device took, and when they ran, to profile.db and
 * trace.json.
 */
#include "example.h"

typedef struct pipeline_args {
    int64_t batch, iterations, test_batch;
    bool sharded, offload, profile, debug;
    const char *profile_dir;
} pipeline_args;

static pipeline_args mine = {
    .batch = 40, .iterations = 10, .test_batch = 8, .profile_dir = "profile"};

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

/* --- options --- */

static void usage(const char *program)
{
    printf("%s also takes\n"
           "  --batch-size N          samples of a micro-batch (40)\n"
           "  --device-iterations N   weight updates of a call (10)\n"
           "  --test-batch-size N     of inference (8)\n"
           "  --learning-rate X       the same as --lr\n"
           "  --strategy WORD         pipelined or sharded (pipelined)\n"
           "  --offload-optimiser     keep the optimiser's state in the host's memory\n"
           "  --profile               write what the devices did when\n"
           "  --profile-dir DIR       where to (profile)\n"
           "  --debug                 print what the compiler does\n\n",
           program);
}

static int64_t whole(const char *program, const char *option, const char *text)
{
    return example_whole(program, option, text, 1, 1000000);
}

/* Takes our options out of the line; example_read() has the others. */
static int read_mine(int argc, char **argv)
{
    int kept = 1;

    for (int i = 1; i < argc; i++) {
        const char *o = argv[i], *value = i + 1 < argc ? argv[i + 1] : "";
        if (!strcmp(o, "--batch-size"))
            mine.batch = whole(argv[0], o + 2, value), i++;
        else if (!strcmp(o, "--device-iterations"))
            mine.iterations = whole(argv[0], o + 2, value), i++;
        else if (!strcmp(o, "--test-batch-size"))
            mine.test_batch = whole(argv[0], o + 2, value), i++;
        else if (!strcmp(o, "--profile-dir"))
            mine.profile_dir = value, i++;
        else if (!strcmp(o, "--strategy") &&
                 (!strcmp(value, "pipelined") || !strcmp(value, "sharded")))
            mine.sharded = value[0] == 's', i++;
        else if (!strcmp(o, "--offload-optimiser"))
            mine.offload = true;
        else if (!strcmp(o, "--profile"))
            mine.profile = true;
        else if (!strcmp(o, "--debug"))
            mine.debug = true;
        else
            argv[kept++] = strcmp(o, "--learning-rate") ? argv[i] : (char *)"--lr";
        if (!strcmp(o, "--help") || !strcmp(o, "-h"))
            usage(argv[0]);
    }
    argv[kept] = NULL;
    return kept;
}

int main(int argc, char **argv)
{
    static const char *const blocks[] = {"B1", "B2", "B3", "B4"};
    const ts_stage stages[] = {{&blocks[0], 1, .device = 0},
                               {&blocks[1], 1, .device = 1},
                               {&blocks[2], 1, .device = 2},
                               {&blocks[3], 1, .device = 3}};
    int n = read_mine(argc, argv);
    example_args a = example_read(
        n, argv, (example_args){.data = FASHION_MNIST, .epochs = 3, .seed = 42, .lr = 0.001});
    ts_optimizer adamw = ts_adamw(a.lr);
    ts_options how = {.optimizer = &adamw,
                      .device_iterations = (int)mine.iterations,
                      .gradient_accumulation = 10,
                      .output_mode = TS_OUTPUT_ALL,
                      .stages = stages,
                      .nstages = 4,
                      .schedule = mine.sharded ? TS_SCHEDULE_SHARDED : TS_SCHEDULE_PIPELINED,
                      .offload = mine.offload ? TS_OFFLOAD_OPTIMIZER : 0,
                      .profile = mine.profile ? mine.profile_dir : NULL};
    ts_options tests = {
        .device_iterations = 100, .stages = stages, .nstages = 4, .schedule = how.schedule};

    if (mine.debug)
        setenv("TESSERA_LOG", "debug", 1);
    return example_run(&a, &(example){.network = network,
                                      .batch = mine.batch,
                                      .test_batch = mine.test_batch,
                                      .training = how,
                                      .tests = tests,
                                      .mean = 0.1307,
                                      .deviation = 0.3081,
                                      .says = "Accuracy on test set"});
}
