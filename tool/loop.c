/* loop.c - epochs, and calls of the engine in them; when to report, to keep and to stop.
 *
 *   epoch      call           call           call ...
 *              next, run,     next, run,
 *              report         report
 *                             [keep: --checkpoint-every, Ctrl-C]
 *   at its end: a row of the table, keep
 *
 * All that a later call depends on is in the engine, the loader's position and `progress`, and a
 * checkpoint has all three; so a run that goes on from one computes the same bits.
 */
#include "train.h"
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Scores are classes x places. */
static int64_t right_places(const run *r, const float *scores, const int32_t *labels)
{
    int64_t right = 0;

    for (int64_t t = 0; t < r->places; t++) {
        int64_t best = best_class(scores + t, r->scores, r->places);
        right += best == labels[t];
        if (r->confusions)
            r->confusions[labels[t] * r->scores + best]++;
    }
    return right;
}

/* Logits: yes is above 0. */
static int64_t right_labels(const float *scores, int64_t n, const float *targets)
{
    int64_t right = 0;

    for (int64_t c = 0; c < n; c++)
        right += (scores[c] > 0) == (targets[c] > 0.5f);
    return right;
}

static int64_t count_right(const run *r, const ts_batch *b)
{
    const float *scores = r->outputs[0];
    int64_t right = 0;

    if (r->confusions)
        memset(r->confusions, 0, sizeof(*r->confusions) * (size_t)(r->scores * r->scores));

    for (int64_t i = 0; i < r->rows && r->recipe.task != TASK_NUMBERS;
         i++, scores += r->scores * r->places)
        right += r->recipe.task == TASK_LABELS
                     ? right_labels(scores, r->scores, b->targets + i * r->scores)
                     : right_places(r, scores, b->labels + i * r->places);
    return right;
}

static const void *second_input(const run *r, const ts_batch *b)
{
    return r->feeds_targets ? (const void *)b->targets : b->labels;
}

static double sum_losses(const run *r, int64_t batches)
{
    const float *loss = r->outputs[1];
    double sum = 0;

    for (int64_t i = 0; i < batches; i++)
        sum += loss[i];
    return sum;
}

/* --- a loss that is no number --- */

/* The same steps again from the last checkpoint, every number looked at: the bits are the same, so
 * what went wrong does again, and is named. */
static int step_again(run *r, int64_t updates)
{
    ts_object *file;
    ts_batch b;
    int code;

    asked.check_numbers = true;
    asked.profile = NULL;
    release_engine(r);
    r->learning = -1;
    code = make_engine(r);
    if (code || ts_object_load(r->resume, &file))
        return code ? code : failed();
    code = resume_run(r, file);
    ts_object_free(file);
    ts_loader_free(r->loader);
    r->loader = NULL;
    if (!code)
        code = make_loader(r);
    for (int64_t at = r->done.updates; !code && at < updates; at += chosen.iterations)
        if (set_rate(r, at) || ts_loader_next(r->loader, &b) ||
            ts_engine_run(r->engine, (const void *[]){b.samples, second_input(r, &b)}, r->outputs))
            code = failed();
    return code;
}

static int diverged(run *r)
{
    int64_t updates = r->done.updates + chosen.iterations;

    explain(TS_ERR_NUMBER, NULL, "training", "a smaller --lr may help",
            "the loss is not a number any more, in epoch %" PRId64 " before step %" PRId64
            "; no model is written, and the checkpoint is from before",
            r->done.epoch + 1, updates);
    if (asked.check_numbers || ranks())
        return TOOL_FAILED;
    if (is_first())
        fputs("tessera: looking for the first layer that made no number\n", stderr);
    (void)step_again(r, updates);
    return TOOL_FAILED;
}

/* --- calls --- */

static ts_status next_batch(run *r, ts_batch *b)
{
    double start = now();
    ts_status s = ts_loader_next(r->loader, b);

    ts_engine_note(r->engine, "loader", "next batch", start, now());
    return s;
}

static int one_call(run *r)
{
    int64_t batches = r->rows / asked.batch;
    double begin = now(), loss;
    int64_t right;
    ts_batch b;
    int code;

    if (set_rate(r, r->done.updates) || next_batch(r, &b) ||
        ts_engine_run(r->engine, (const void *[]){b.samples, second_input(r, &b)}, r->outputs))
        return failed();
    loss = sum_losses(r, batches);
    right = count_right(r, &b);
    code = ranks_total(&loss, &right);
    if (!code && r->confusions)
        code = ranks_sum(r->confusions, r->scores * r->scores);
    if (code)
        return code;
    if (!isfinite(loss))
        return diverged(r);
    batches *= rank_count();
    progress_call(&r->done, loss, batches, right, chosen.iterations);
    if (r->confusions)
        progress_count(&r->done, r->confusions);
    if (average_weights(r))
        return TOOL_FAILED;
    r->done.seconds += now() - begin;
    return report_call(r, loss / (double)batches);
}

/* Steps are updates of the weights. */
static bool is_due(const run *r)
{
    return asked.every &&
           r->done.updates / asked.every != (r->done.updates - chosen.iterations) / asked.every;
}

static int keep(const run *r)
{
    int code = is_first() ? keep_run(r) : TOOL_OK;

    if (!code)
        report_checkpoint(r);
    return code;
}

static int calls(run *r, ts_bar *bar)
{
    int64_t batches = r->rows / asked.batch;
    int code = TOOL_OK;

    ts_bar_update(bar, r->done.call * batches);
    while (!code && r->done.call < r->calls) {
        code = one_call(r);
        if (code)
            break;
        ts_bar_postfix(bar, "loss=%.4f", progress_loss(&r->done));
        ts_bar_update(bar, batches);
        if (r->done.call == r->calls)
            break;
        if (ranks_stop() || is_due(r))
            code = keep(r);
        if (!code && ranks_stop())
            code = 128 + ranks_stop();
    }
    return code;
}

static int epoch(run *r)
{
    ts_bar *bar = ts_bar_open(&(ts_bar_options){.label = "Batches",
                                                .total = r->calls * (r->rows / asked.batch),
                                                .transient = true,
                                                .quiet = asked.quiet || asked.json});
    int code = calls(r, bar);

    ts_bar_close(bar);
    if (code)
        return code;
    if (!progress_epoch(&r->done, r->calls * r->rows * rank_count(),
                        r->recipe.task == TASK_LABELS ? r->scores : r->places))
        return failure("out of memory after epoch %" PRId64, r->done.epoch);
    code = validate(r);
    if (!code)
        code = report_epoch(r);
    return code ? code : keep(r);
}

int train(run *r)
{
    ts_bar *bar = ts_bar_open(&(ts_bar_options){
        .label = "Epochs", .total = asked.epochs, .quiet = asked.quiet || asked.json});
    int code = TOOL_OK;

    stop_catch();
    ts_bar_update(bar, r->done.epoch);
    while (!code && r->done.epoch < asked.epochs && !is_patience_out(r)) {
        code = epoch(r);
        if (code)
            break;
        ts_bar_postfix(bar, "loss=%.4f", r->done.rows[r->done.epoch - 1].loss);
        ts_bar_update(bar, 1);
        if (ranks_stop())
            code = 128 + ranks_stop();
    }
    ts_bar_close(bar);
    stop_release();
    return code;
}
