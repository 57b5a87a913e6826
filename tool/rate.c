/* rate.c - the learning rate over a run. It is a function of how many weight updates are done (a
 * plateau also of the losses so far), so a run that goes on has the rates that it would have had.
 *
 *   constant    lr
 *   step        lr x gamma^k after k times --lr-every epochs
 *   cosine      lr at the beginning, 0 at the end, half a cosine between
 *   one-cycle   lr / 25 up to lr in the first 30 %, down to lr / 250000 after that
 *   plateau     x gamma when the loss (of the validation set, if any) has not fallen for --lr-every
 *               epochs
 *
 * --warmup N: in the first N epochs it grows from 0. One call of the engine has one rate.
 */
#include "train.h"
#include <math.h>
#include <string.h>

/* From a to b, half a cosine; x of 0..1. */
static double anneal(double a, double b, double x)
{
    return b + (a - b) * (1 + cos(M_PI * x)) / 2;
}

static double loss_of(const epoch_row *row)
{
    return isfinite(row->val_loss) ? row->val_loss : row->loss;
}

/* How many times the loss stood still for so many epochs. */
static int stands(const progress *p, int64_t epochs)
{
    double best = INFINITY;
    int64_t since = 0;
    int n = 0;

    for (int64_t i = 0; i < p->epoch; i++) {
        if (loss_of(&p->rows[i]) < best) {
            best = loss_of(&p->rows[i]);
            since = 0;
        } else if (++since >= epochs) {
            since = 0;
            n++;
        }
    }
    return n;
}

static double shape(const run *r, double epoch)
{
    double x = epoch / (double)asked.epochs, every = (double)asked.lr_every;

    if (!strcmp(asked.schedule, "step"))
        return pow(asked.lr_gamma,
                   floor(epoch / (every > 0 ? every : fmax(1, floor((double)asked.epochs / 3)))));
    if (!strcmp(asked.schedule, "cosine"))
        return anneal(1, 0, x);
    if (!strcmp(asked.schedule, "one-cycle"))
        return x < 0.3 ? anneal(1 / 25.0, 1, x / 0.3) : anneal(1, 1 / 250000.0, (x - 0.3) / 0.7);
    if (!strcmp(asked.schedule, "plateau"))
        return pow(asked.lr_gamma, stands(&r->done, asked.lr_every ? asked.lr_every : 2));
    return 1;
}

double rate_at(const run *r, int64_t updates)
{
    double epoch = (double)updates / (double)(r->calls * chosen.iterations);
    double warm = asked.warmup > 0 ? (epoch + 1.0 / (double)r->calls) / asked.warmup : 1;

    return chosen.lr * fmin(1, warm) * shape(r, fmin(epoch, (double)asked.epochs));
}

ts_status set_rate(run *r, int64_t updates)
{
    double lr = rate_at(r, updates);

    if (lr == r->learning)
        return TS_OK;
    r->learning = lr;
    return ts_engine_set(r->engine, "lr", lr);
}
