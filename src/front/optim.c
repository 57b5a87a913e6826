/* optim.c - optimisers as values: PyTorch's defaults, the learning rate variable. */
#include "base/base.h"

void ts_optimizer_init(ts_optimizer_kind kind, double lr, ts_optimizer *out, size_t size)
{
    bool decays = kind == TS_OPTIMIZER_ADAMW || kind == TS_OPTIMIZER_LAMB;
    ts_optimizer o = {
        .kind = kind,
        .hyper = {.lr = lr,
                  .weight_decay = decays ? 1e-2 : 0,
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

    ts_give(&o, sizeof(o), out, size);
}
