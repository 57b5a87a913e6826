/* nets.c - the models that have a name. They are descriptions like any user's file; the first line
 * says what the model is. Layers are named so that the parameters have the names that the PyTorch
 * modules of the tutorials give them, and their checkpoints load.
 */
#include "front/front.h"

/* What the tutorial's two classifiers share: all but the last layer. */
#define CLASSIFIER                                                                                 \
    "input 1 28 28\n"                                                                              \
    "classes 10\n"                                                                                 \
    "conv1: conv2d 5 kernel=3\n"                                                                   \
    "relu\n"                                                                                       \
    "max_pool2d 2\n"                                                                               \
    "conv2: conv2d 12 kernel=5\n"                                                                  \
    "relu\n"                                                                                       \
    "norm: group_norm 3\n"                                                                         \
    "flatten\n"                                                                                    \
    "fc1: linear 100\n"                                                                            \
    "relu\n"                                                                                       \
    "fc2: linear classes\n"

static const struct {
    const char *name, *text;
} nets[] = {
    {"classifier",
     "# small CNN for 28x28 images: two convolutions, group norm, two linear layers\n" CLASSIFIER
     "log_softmax\n"
     "loss nll\n"},
    {"classifier-dim0",
     "# classifier with its log-softmax over the batch, as the porting tutorial has it\n" CLASSIFIER
     "log_softmax dim=0   # not over the classes: scores depend on the batch\n"
     "loss nll\n"},
    {"mnist-cnn", "# CNN for handwritten digits: two wide convolutions, dropout\n"
                  "input 1 28 28\n"
                  "classes 10\n"
                  "layer1.conv: conv2d 32 kernel=3\n"
                  "max_pool2d 2\n"
                  "relu\n"
                  "layer2.conv: conv2d 64 kernel=3\n"
                  "max_pool2d 2\n"
                  "relu\n"
                  "flatten\n"
                  "layer3: linear 128\n"
                  "relu\n"
                  "dropout 0.5\n"
                  "layer4: linear classes\n"
                  "loss cross_entropy\n"},
    {"mnist-pipeline", "# CNN for handwritten digits in four blocks, for pipelines\n"
                       "input 1 28 28\n"
                       "classes 10\n"
                       "block B1\n"
                       "layer1.conv: conv2d 10 kernel=5\n"
                       "max_pool2d 2\n"
                       "relu\n"
                       "block B2\n"
                       "layer2.conv: conv2d 20 kernel=5\n"
                       "max_pool2d 2\n"
                       "relu\n"
                       "block B3\n"
                       "flatten\n"
                       "layer3: linear 256\n"
                       "relu\n"
                       "block B4\n"
                       "layer4: linear classes\n"
                       "loss cross_entropy\n"},
    {"mlp", "# three linear layers; takes samples of any shape\n"
            "input 1 28 28\n"
            "classes 10\n"
            "flatten\n"
            "fc1: linear 256\n"
            "relu\n"
            "fc2: linear 128\n"
            "relu\n"
            "fc3: linear classes\n"
            "loss cross_entropy\n"},
    {"lenet", "# LeNet-5 with rectifiers and max pooling\n"
              "input 1 28 28\n"
              "classes 10\n"
              "conv1: conv2d 6 kernel=5 padding=2\n"
              "relu\n"
              "max_pool2d 2\n"
              "conv2: conv2d 16 kernel=5\n"
              "relu\n"
              "max_pool2d 2\n"
              "flatten\n"
              "fc1: linear 120\n"
              "relu\n"
              "fc2: linear 84\n"
              "relu\n"
              "fc3: linear classes\n"
              "loss cross_entropy\n"},
    {"fashion-cnn",
     "# CNN with batch norm for 28x28 images: three convolutions, 93 % of Fashion-MNIST\n"
     "input 1 28 28\n"
     "classes 10\n"
     "conv1: conv2d 32 kernel=3 padding=1 bias=no\n"
     "norm1: batch_norm\n"
     "relu\n"
     "max_pool2d 2\n"
     "conv2: conv2d 64 kernel=3 padding=1 bias=no\n"
     "norm2: batch_norm\n"
     "relu\n"
     "max_pool2d 2\n"
     "conv3: conv2d 128 kernel=3 padding=1 bias=no\n"
     "norm3: batch_norm\n"
     "relu\n"
     "max_pool2d 2\n"
     "flatten\n"
     "dropout 0.3\n"
     "fc: linear classes\n"
     "loss cross_entropy\n"},
    {"gpt", "# small GPT: says which token of a text comes next\n"
            "input 64 dtype=i32\n"
            "classes 65\n"
            "tokens: embedding classes 128\n"
            "places: positions\n"
            "repeat i 4\n"
            "  -> x\n"
            "  blocks.{i}.norm1: layer_norm\n"
            "  blocks.{i}.attention: self_attention 4 causal=yes\n"
            "  dropout 0.1\n"
            "  add x -> x\n"
            "  blocks.{i}.norm2: layer_norm\n"
            "  blocks.{i}.fc1: linear 512\n"
            "  gelu\n"
            "  blocks.{i}.fc2: linear 128\n"
            "  dropout 0.1\n"
            "  add x\n"
            "end\n"
            "norm: layer_norm\n"
            "head: linear classes bias=no\n"
            "transpose 1 2   # classes first, as cross_entropy wants them\n"
            "loss cross_entropy\n"},
#define STAGE(n, channels)                                                                         \
    "-> x\n"                                                                                       \
    "layer" n ".0.conv1: conv2d " channels " kernel=3 stride=2 padding=1 bias=no\n"                \
    "layer" n ".0.bn1: batch_norm\n"                                                               \
    "relu\n"                                                                                       \
    "layer" n ".0.conv2: conv2d " channels " kernel=3 padding=1 bias=no\n"                         \
    "layer" n ".0.bn2: batch_norm -> y\n"                                                          \
    "from x\n"                                                                                     \
    "layer" n ".0.downsample.0: conv2d " channels " kernel=1 stride=2 bias=no\n"                   \
    "layer" n ".0.downsample.1: batch_norm\n"                                                      \
    "add y\n"                                                                                      \
    "relu -> x\n"                                                                                  \
    "layer" n ".1.conv1: conv2d " channels " kernel=3 padding=1 bias=no\n"                         \
    "layer" n ".1.bn1: batch_norm\n"                                                               \
    "relu\n"                                                                                       \
    "layer" n ".1.conv2: conv2d " channels " kernel=3 padding=1 bias=no\n"                         \
    "layer" n ".1.bn2: batch_norm\n"                                                               \
    "add x\n"                                                                                      \
    "relu\n"
    {"resnet18", "# ResNet-18 for 224x224 colour images; parameters named as in torchvision\n"
                 "input 3 224 224\n"
                 "classes 1000\n"
                 "conv1: conv2d 64 kernel=7 stride=2 padding=3 bias=no\n"
                 "bn1: batch_norm\n"
                 "relu\n"
                 "max_pool2d 3 stride=2 padding=1\n"
                 "repeat i 2\n"
                 "  -> x\n"
                 "  layer1.{i}.conv1: conv2d 64 kernel=3 padding=1 bias=no\n"
                 "  layer1.{i}.bn1: batch_norm\n"
                 "  relu\n"
                 "  layer1.{i}.conv2: conv2d 64 kernel=3 padding=1 bias=no\n"
                 "  layer1.{i}.bn2: batch_norm\n"
                 "  add x\n"
                 "  relu\n"
                 "end\n" STAGE("2", "128") STAGE("3", "256") STAGE("4", "512") //
     "adaptive_avg_pool2d 1 1\n"
     "flatten\n"
     "fc: linear classes\n"
     "loss cross_entropy\n"},
};

const char *ts_net_find(const char *name)
{
    for (int i = 0; i < TS_COUNT(nets); i++)
        if (!strcmp(nets[i].name, name))
            return nets[i].text;
    return NULL;
}

const char *ts_net_nearest(const char *name)
{
    const char *names[TS_COUNT(nets)];

    for (int i = 0; i < TS_COUNT(nets); i++)
        names[i] = nets[i].name;
    return ts_nearest(name, names, TS_COUNT(nets));
}

const char *ts_model_builtin(int i)
{
    return i >= 0 && i < TS_COUNT(nets) ? nets[i].name : NULL;
}
