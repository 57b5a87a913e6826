/* training.c - the options that every command with a training step has. */
#include "tool.h"

training chosen = {.optimizer = "sgd", .lr = 0.001, .weight_decay = -1, .beta1 = -1, .beta2 = -1};

option training_options[] = {
    {"optimizer", "NAME", KIND_WORD, &chosen.optimizer,
     "how the weights learn; when not given, sgd, or with train what is usual for the data",
     .choice = "sgd adam adamw rmsprop lamb adagrad adadelta adamax nadam radam rprop asgd "
               "adafactor muon",
     .varies = true},
    {"lr", "X", KIND_REAL, &chosen.lr,
     "learning rate; when not given, 0.001, or with train what is usual for the data", .low = 0,
     .high = 1e6, .varies = true},
    {"momentum", "X", KIND_REAL, &chosen.momentum, "momentum of sgd, rmsprop and muon", .low = 0,
     .high = 1},
    {"weight-decay", "X", KIND_REAL, &chosen.weight_decay,
     "weight decay, when not the optimizer's own", .low = 0, .high = 1e6},
    {"beta1", "X", KIND_REAL, &chosen.beta1,
     "how much adam and its like keep of the mean of the gradients at a step, when not 0.9",
     .low = 0, .high = 1},
    {"beta2", "X", KIND_REAL, &chosen.beta2,
     "and of the mean of their squares, when not 0.999; in a run of some hundred steps less learns "
     "faster",
     .low = 0, .high = 1},
    {"device-iterations", .kind = KIND_INT, .target = &chosen.iterations, .of = "device_iterations",
     .varies = true},
    {"gradient-accumulation", .kind = KIND_INT, .target = &chosen.accumulation,
     .of = "gradient_accumulation"},
    {0},
};

ts_optimizer chosen_optimizer(void)
{
    ts_optimizer o = ts_sgd(chosen.lr);

    (void)ts_optimizer_set(&o, "kind", chosen.optimizer); /* one of the choices */
    o = ts_optimizer_of(o.kind, chosen.lr);
    if (chosen.momentum > 0)
        o.hyper.momentum = chosen.momentum;
    if (chosen.weight_decay >= 0)
        o.hyper.weight_decay = chosen.weight_decay;
    if (chosen.beta1 >= 0)
        o.hyper.beta1 = chosen.beta1;
    if (chosen.beta2 >= 0)
        o.hyper.beta2 = chosen.beta2;
    return o;
}

static bool has_momentum(ts_optimizer_kind k)
{
    return k == TS_OPTIMIZER_SGD || k == TS_OPTIMIZER_RMSPROP || k == TS_OPTIMIZER_MUON;
}

static bool has_betas(ts_optimizer_kind k)
{
    return k == TS_OPTIMIZER_ADAM || k == TS_OPTIMIZER_ADAMW || k == TS_OPTIMIZER_LAMB ||
           k == TS_OPTIMIZER_ADAMAX || k == TS_OPTIMIZER_NADAM || k == TS_OPTIMIZER_RADAM;
}

int check_optimizer(const char *command)
{
    ts_optimizer_kind k = chosen_optimizer().kind;

    if (given(&chosen.momentum) && !has_momentum(k))
        return usage_error(command, "--momentum is of sgd, rmsprop and muon; %s has none",
                           chosen.optimizer);
    if ((given(&chosen.beta1) || given(&chosen.beta2)) && !has_betas(k))
        return usage_error(command,
                           "--beta1 and --beta2 are of adam, adamw, lamb, adamax, nadam and radam; "
                           "%s has none",
                           chosen.optimizer);
    if (chosen.beta1 == 1 || chosen.beta2 == 1)
        return usage_error(command, "--beta1 and --beta2 must be below 1");
    return TOOL_OK;
}

ts_options chosen_options(void)
{
    ts_options opt = {0};

    (void)fill_options(NULL, training_options, &opt); /* they were checked when they were read */
    return opt;
}

int step_open(const char *command, const char *model, const ts_model_options *how, step *out)
{
    int code;

    *out = (step){.optimizer = chosen_optimizer(), .opt = chosen_options()};
    code = check_optimizer(command);
    if (code)
        return code;
    if (ts_model_load(model, &out->model))
        return failed();
    out->opt.optimizer = how->training ? &out->optimizer : NULL;
    code = place(command, out->model, how, &out->opt);
    if (!code && ts_model_graph(out->model, how, &out->graph))
        code = failed();
    if (code)
        step_close(out);
    return code;
}

void step_close(step *s)
{
    ts_graph_free(s->graph);
    ts_model_free(s->model);
    s->graph = NULL;
    s->model = NULL;
}
