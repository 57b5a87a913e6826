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

/* What the two configurations of CosmicTagger's network share; a line of the settings makes others.
 * Modules are named as there: initial_convolution, net_core with a main_module in each other for
 * each level, final_layer, bottleneck. */
#define URESNET_SETTINGS(about, planes, growth, skips, sampling, norm)                             \
    about "input 3 640 1024          # what the three planes of wires saw\n"                       \
          "classes 3                 # background, cosmic, neutrino\n"                             \
          "let planes " planes "\n"                                                                \
          "let depth 6               # levels, each of half the size\n"                            \
          "let filters 16            # of the first level\n"                                       \
          "let growth " growth "\n"                                                                \
          "let skips " skips "\n"                                                                  \
          "let sampling " sampling "\n"                                                            \
          "let norm " norm "\n"                                                                    \
          "let per_level 2           # residual blocks of a level, on the way down and up\n"       \
          "let deepest 5             # and at the bottom, where all planes are seen together,\n"   \
          "let bottleneck 256        # with so many filters\n"                                     \
          "let wide 5                # and this kernel\n"                                          \
          "let last 5                # and after the last level\n"                                 \
          "\n"

#define URESNET_LAYERS                                                                             \
    "define convolution out kernel=3 padding=1 activation=yes\n"                                   \
    "  conv: conv2d {out} {kernel} padding={padding}\n"                                            \
    "  normed {activation}\n"                                                                      \
    "end\n"                                                                                        \
    "\n"                                                                                           \
    "define normed activation=yes\n"                                                               \
    "  if {norm} is batch\n"                                                                       \
    "    norm: batch_norm\n"                                                                       \
    "  end\n"                                                                                      \
    "  if {norm} is group\n"                                                                       \
    "    norm: group_norm 8\n"                                                                     \
    "  end\n"                                                                                      \
    "  if {activation}\n"                                                                          \
    "    leaky_relu\n"                                                                             \
    "  end\n"                                                                                      \
    "end\n"                                                                                        \
    "\n"                                                                                           \
    "define residual out kernel=3 padding=1\n"                                                     \
    "  -> x\n"                                                                                     \
    "  convolution_1: convolution {out} {kernel} {padding}\n"                                      \
    "  convolution_2: convolution {out} {kernel} {padding} activation=no\n"                        \
    "  add x\n"                                                                                    \
    "  leaky_relu\n"                                                                               \
    "end\n"                                                                                        \
    "\n"                                                                                           \
    "define series n out kernel=3 padding=1\n"                                                     \
    "  repeat i {n}\n"                                                                             \
    "    block_{i}: residual {out} {kernel} {padding}\n"                                           \
    "  end\n"                                                                                      \
    "end\n"                                                                                        \
    "\n"                                                                                           \
    "define down out\n"                                                                            \
    "  if {sampling} is convolution\n"                                                             \
    "    conv: conv2d {out} 2 stride=2\n"                                                          \
    "    normed\n"                                                                                 \
    "  else\n"                                                                                     \
    "    max_pool2d 2\n"                                                                           \
    "    bottleneck: convolution {out} 1 0\n"                                                      \
    "  end\n"                                                                                      \
    "end\n"                                                                                        \
    "\n"                                                                                           \
    "define up out\n"                                                                              \
    "  if {sampling} is convolution\n"                                                             \
    "    conv: conv_transpose2d {out} 2 stride=2\n"                                                \
    "    normed\n"                                                                                 \
    "  else\n"                                                                                     \
    "    upsample_nearest2d scale_factors=2,2\n"                                                   \
    "    bottleneck: convolution {out} 1 0\n"                                                      \
    "  end\n"                                                                                      \
    "end\n"                                                                                        \
    "\n"                                                                                           \
    "define connection out skip\n"                                                                 \
    "  if {skips} is concat\n"                                                                     \
    "    concat {skip}\n"                                                                          \
    "    bottleneck: convolution {out} 1 0\n"                                                      \
    "  else\n"                                                                                     \
    "    add {skip}\n"                                                                             \
    "  end\n"                                                                                      \
    "end\n"                                                                                        \
    "\n"                                                                                           \
    "# Planes go through the same layers, as more samples or one after the other.\n"               \
    "define apart\n"                                                                               \
    "  if {planes} is samples\n"                                                                   \
    "    channels_to_batch 3\n"                                                                    \
    "  else\n"                                                                                     \
    "    chunk 3\n"                                                                                \
    "  end\n"                                                                                      \
    "end\n"                                                                                        \
    "\n"                                                                                           \
    "define together\n"                                                                            \
    "  if {planes} is samples\n"                                                                   \
    "    batch_to_channels 3\n"                                                                    \
    "  else\n"                                                                                     \
    "    concat\n"                                                                                 \
    "  end\n"                                                                                      \
    "end\n"                                                                                        \
    "\n"                                                                                           \
    "define bottom out\n"                                                                          \
    "  together\n"                                                                                 \
    "  bottleneck: convolution {bottleneck} 1 0\n"                                                 \
    "  blocks: series {deepest} {bottleneck} {wide} {wide/2}\n"                                    \
    "  unbottleneck: convolution {3*out} 1 0\n"                                                    \
    "  apart\n"                                                                                    \
    "end\n"                                                                                        \
    "\n"                                                                                           \
    "define level depth out\n"                                                                     \
    "  if {depth}\n"                                                                               \
    "    let next {out+filters}\n"                                                                 \
    "    if {growth} is multiplicative\n"                                                          \
    "      let next {2*out}\n"                                                                     \
    "    end\n"                                                                                    \
    "    down_blocks: series {per_level} {out} -> skip\n"                                          \
    "    downsample: down {next}\n"                                                                \
    "    main_module: level {depth-1} {next}\n"                                                    \
    "    upsample: up {out}\n"                                                                     \
    "    connection: connection {out} skip\n"                                                      \
    "    up_blocks: series {per_level} {out}\n"                                                    \
    "  else\n"                                                                                     \
    "    main_module: bottom {out}\n"                                                              \
    "  end\n"                                                                                      \
    "end\n"                                                                                        \
    "\n"                                                                                           \
    "apart\n"                                                                                      \
    "initial_convolution: convolution {filters} 7 3\n"                                             \
    "net_core: level {depth} {filters}\n"                                                          \
    "final_layer: series {last} {filters}\n"                                                       \
    "bottleneck: conv2d classes 1\n"                                                               \
    "together\n"                                                                                   \
    "unflatten 3\n"                                                                                \
    "transpose 1 2             # classes x planes x pixels, as cross_entropy wants them\n"         \
    "loss cross_entropy\n"

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
    {"uresnet",
     URESNET_SETTINGS("# CosmicTagger's U-ResNet, large: sizes double, sums as skips, batch norm\n",
                      "each            # one after the other: a batch norm counts each of them",
                      "multiplicative  # or additive", "sum              # or concat",
                      "convolution   # or pooling", "batch             # or group, none")
         URESNET_LAYERS},
    {"uresnet-a21",
     URESNET_SETTINGS(
         "# CosmicTagger's U-ResNet as of A21: sizes grow by 16, concatenations as skips\n",
         "samples         # as more samples, which is the same without batch norm",
         "additive        # or multiplicative", "concat           # or sum",
         "pooling       # or convolution", "none              # or batch, group") URESNET_LAYERS},
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
