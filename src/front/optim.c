/* optim.c - optimisers as values: PyTorch's defaults, the learning rate variable. */
#include "tessera.h"

static ts_optimizer optimizer(ts_optimizer_kind kind, double lr)
{
    return (ts_optimizer){
        .kind = kind,
        .hyper = {.lr = lr,
                  .beta1 = 0.9,
                  .beta2 = 0.999,
                  .eps = 1e-8,
                  .alpha = 0.99,
                  .max_weight_norm = 65500,
                  .velocity_scaling = 1},
        .variable = TS_HYPER_LR,
        .loss_scaling = 1,
        .bias_correction = true,
        .accum_type = TS_F32,
        .first_type = TS_F32,
        .second_type = TS_F32,
    };
}

ts_optimizer ts_sgd(double lr)
{
    return optimizer(TS_SGD, lr);
}

ts_optimizer ts_adam(double lr)
{
    return optimizer(TS_ADAM, lr);
}

ts_optimizer ts_adamw(double lr)
{
    ts_optimizer o = optimizer(TS_ADAMW, lr);

    o.hyper.weight_decay = 1e-2;
    return o;
}

ts_optimizer ts_rmsprop(double lr)
{
    return optimizer(TS_RMSPROP, lr);
}

ts_optimizer ts_lamb(double lr)
{
    ts_optimizer o = optimizer(TS_LAMB, lr);

    o.hyper.weight_decay = 1e-2;
    return o;
}
