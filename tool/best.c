/* best.c - the validation set after every epoch, the best weights so far, when to stop early, and
 * weights averaged over the run (--ema).
 *
 * The net for it is compiled once. All processes measure the whole set, which gives all of them the
 * same numbers and so the same decisions.
 */
#include "train.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- averaged weights --- */

static bool is_float(const ts_array *a)
{
    return a && a->dtype == TS_F32;
}

/* After a call of n updates: average = d^n average + (1 - d^n) weights. */
int average_weights(run *r)
{
    double keep = pow(asked.ema, (double)chosen.iterations);
    ts_object *now;

    if (!(asked.ema > 0))
        return TOOL_OK;
    now = engine_states(r);
    if (!now)
        return failed();
    for (int64_t i = 0; r->average && i < ts_object_size(now); i++) {
        const ts_array *w = ts_object_array(ts_object_at(now, i));
        const ts_array *a =
            ts_object_array(ts_object_get(r->average, ts_object_text(ts_object_key(now, i))));
        float *to = w ? w->data : NULL;
        for (size_t k = 0; is_float(w) && is_float(a) && k < w->bytes / sizeof(float); k++)
            to[k] = (float)(keep * ((const float *)a->data)[k] + (1 - keep) * to[k]);
    }
    ts_object_free(r->average);
    r->average = now;
    return TOOL_OK;
}

ts_object *model_states(const run *r)
{
    return asked.ema > 0 && r->average ? ts_object_share(r->average) : engine_states(r);
}

/* --- the validation set --- */

static int make_net(run *r)
{
    net_options o = {.rank = r->sample.rank,
                     .dims = r->sample.dims,
                     .classes = r->classes,
                     .threads = (int)asked.threads,
                     .kind = placed_gpu(),                           /* what trains also judges */
                     .batch = r->recipe.task == TASK_PIXELS ? 1 : 0, /* pictures may be large */
                     .quiet = asked.quiet || asked.json};

    if (r->judge)
        return TOOL_OK;
    r->judge = calloc(1, sizeof(*r->judge));
    return r->judge ? net_from_model(r->model, &o, r->judge) : failure("out of memory for the net");
}

int judge(run *r, const ts_object *states, const ts_dataset *d, const char *label, net_result *out)
{
    int code = make_net(r);

    if (!code)
        code = net_load(r->judge, states, r->output);
    return code ? code : net_evaluate(r->judge, d, &r->recipe, label, out);
}

int64_t best_epoch(const progress *p)
{
    int64_t best = -1;

    for (int64_t i = 0; i < p->epoch; i++)
        if (isfinite(p->rows[i].val_loss) &&
            (best < 0 || p->rows[i].val_loss < p->rows[best].val_loss))
            best = i;
    return best;
}

/* At the end of an epoch: its row gets what the validation set says. */
int validate(run *r)
{
    epoch_row *row = &r->done.rows[r->done.epoch - 1];
    net_result result;
    ts_object *states;
    int code;

    row->val_loss = row->val_metric = NAN;
    if (!r->valid)
        return TOOL_OK;
    states = model_states(r);
    if (!states)
        return failed();
    code = judge(r, states, r->valid, NULL, &result);
    if (!code) {
        row->val_loss = result.loss;
        row->val_metric = metric_of(&result);
        net_result_free(&result);
    }
    if (!code && best_epoch(&r->done) == r->done.epoch - 1) {
        ts_object_free(r->best);
        r->best = states;
        return TOOL_OK;
    }
    ts_object_free(states);
    return code;
}

bool is_patience_out(const run *r)
{
    int64_t best = best_epoch(&r->done);

    return asked.patience && best >= 0 && r->done.epoch - 1 - best >= asked.patience;
}

/* --- a part of the data --- */

static int64_t *shuffled(int64_t n)
{
    int64_t *rows = malloc(sizeof(*rows) * (size_t)(n + 1));
    uint64_t x = (uint64_t)asked.seed * 0x9e3779b97f4a7c15u + 1;

    for (int64_t i = 0; rows && i < n; i++)
        rows[i] = i;
    for (int64_t i = n - 1; rows && i > 0; i--) { /* splitmix64 */
        uint64_t z = x += 0x9e3779b97f4a7c15u;
        int64_t k, swap = rows[i];
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        k = (int64_t)((z ^ (z >> 31)) % (uint64_t)(i + 1));
        rows[i] = rows[k];
        rows[k] = swap;
    }
    return rows;
}

/* --validate 0.1: a tenth of the training set, chosen by the seed, is not learned from. */
int hold_out(run *r, double fraction)
{
    int64_t n = ts_dataset_count(r->data), part = (int64_t)((double)n * fraction + 0.5);
    int64_t *rows = shuffled(n);
    ts_dataset *rest = NULL;
    int code = TOOL_OK;

    if (!rows)
        return failure("out of memory for the order of %lld samples", (long long)n);
    part = part < 1 ? 1 : part;
    if (part >= n)
        code = explain(TS_ERR_ARG, asked.data, "holding out a validation set", NULL,
                       "%lld samples are too few to take %g of them away", (long long)n, fraction);
    else if (ts_dataset_pick(r->data, part, rows, &r->valid) ||
             ts_dataset_pick(r->data, n - part, rows + part, &rest))
        code = failed();
    free(rows);
    if (code)
        return code;
    ts_dataset_free(r->data);
    r->data = rest;
    return TOOL_OK;
}
