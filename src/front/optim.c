/* optim.c - optimisers as values: PyTorch's defaults, the learning rate variable. */
#include "base/base.h"

/* What a kind has that is not every kind's. */
static void set_kind(ts_optimizer_kind kind, ts_hyper *h)
{
    switch (kind) {
    case TS_OPTIMIZER_ADAMW:
    case TS_OPTIMIZER_LAMB:
        h->weight_decay = 1e-2;
        return;
    case TS_OPTIMIZER_ADAGRAD:
        h->eps = 1e-10;
        return;
    case TS_OPTIMIZER_ADADELTA:
        h->alpha = 0.9;
        h->eps = 1e-6;
        return;
    case TS_OPTIMIZER_ASGD:
        h->alpha = 0.75;
        return;
    case TS_OPTIMIZER_ADAFACTOR:
        h->eps = 0;
        return;
    case TS_OPTIMIZER_MUON:
        h->weight_decay = 0.1;
        h->momentum = 0.95;
        h->nesterov = true;
        h->eps = 1e-7;
        return;
    default:
        return;
    }
}

void ts_optimizer_init(ts_optimizer_kind kind, double lr, ts_optimizer *out, size_t size)
{
    ts_optimizer o = {
        .kind = kind,
        .hyper = {.lr = lr,
                  .beta1 = 0.9,
                  .beta2 = 0.999,
                  .eps = 1e-8,
                  .alpha = 0.99,
                  .max_weight_norm = 65500,
                  .velocity_scaling = 1,
                  .momentum_decay = 4e-3,
                  .lambd = 1e-4,
                  .t0 = 1e6,
                  .eta_minus = 0.5,
                  .eta_plus = 1.2,
                  .step_min = 1e-6,
                  .step_max = 50,
                  .beta2_decay = -0.8,
                  .eps2 = 1e-3,
                  .clip = 1,
                  .ns_a = 3.4445,
                  .ns_b = -4.775,
                  .ns_c = 2.0315},
        .variable = TS_HYPER_LR,
        .loss_scaling = 1,
        .bias_correction = true,
        .accum_type = TS_F32,
        .first_type = TS_F32,
        .second_type = TS_F32,
    };

    set_kind(kind, &o.hyper);
    ts_give(&o, sizeof(o), out, size);
}
