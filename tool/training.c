/* training.c - the options that every command with a training step has. */
#include "tool.h"
#include <string.h>

static struct {
    const char *optimizer;
    double lr, momentum, weight_decay;
    int64_t iterations, accumulation;
} args = {.optimizer = "sgd", .lr = 0.001, .weight_decay = -1, .iterations = 1, .accumulation = 1};

static const struct {
    const char *name;
    ts_optimizer (*make)(double lr);
} optimizers[] = {
    {"sgd", ts_sgd},         {"adam", ts_adam}, {"adamw", ts_adamw},
    {"rmsprop", ts_rmsprop}, {"lamb", ts_lamb},
};

const option training_options[] = {
    {"optimizer", "NAME", KIND_WORD, &args.optimizer, "how the weights learn",
     .choice = "sgd adam adamw rmsprop lamb"},
    {"lr", "X", KIND_REAL, &args.lr, "learning rate", .low = 0, .high = 1e6},
    {"momentum", "X", KIND_REAL, &args.momentum, "momentum of sgd and rmsprop", .low = 0,
     .high = 1},
    {"weight-decay", "X", KIND_REAL, &args.weight_decay,
     "weight decay, when not the optimizer's own", .low = 0, .high = 1e6},
    {"device-iterations", "N", KIND_INT, &args.iterations, "weight updates in one call", .low = 1,
     .high = 1000000},
    {"gradient-accumulation", "N", KIND_INT, &args.accumulation,
     "batches whose gradients make one weight update", .low = 1, .high = 1000000},
    {0},
};

ts_optimizer chosen_optimizer(void)
{
    ts_optimizer o = ts_sgd(args.lr);

    for (int i = 0; i < COUNT(optimizers); i++)
        if (!strcmp(optimizers[i].name, args.optimizer))
            o = optimizers[i].make(args.lr);
    if (args.momentum > 0)
        o.hyper.momentum = args.momentum;
    if (args.weight_decay >= 0)
        o.hyper.weight_decay = args.weight_decay;
    return o;
}

ts_options chosen_options(void)
{
    return (ts_options){.device_iterations = (int)args.iterations,
                        .gradient_accumulation = (int)args.accumulation};
}
