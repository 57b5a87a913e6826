/* train_report.c - what a run says while it trains: lines for people or JSON on stdout, a CSV file,
 * events for TensorBoard.
 *
 * Lines for people go above the bars when both are on a terminal, and to stdout else. The table is
 * written anew when a run goes on, from the rows of its checkpoint: so it has each epoch once,
 * whenever the run before was ended.
 */
#include "train.h"
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void say(const char *fmt, ...)
{
    char line[2 * PATH_MAX];
    va_list ap;

    if (asked.quiet || asked.json)
        return;
    va_start(ap, fmt);
    vsnprintf(line, sizeof(line), fmt, ap);
    va_end(ap);
    if (isatty(1) && isatty(2)) {
        ts_bar_print(line);
        return;
    }
    puts(line);
    fflush(stdout);
}

/* --- logs --- */

enum { MOST_COLUMNS = 5 + 2 + 64 + 2, MOST_IOUS = 64 };

/* Classes of pixels that have a column of their own. */
static int iou_columns(const run *r)
{
    return r->done.pixels.classes < MOST_IOUS ? r->done.pixels.classes : MOST_IOUS;
}

static const char *class_of(const run *r, int i)
{
    const char *name = ts_dataset_class_name(r->data, i);

    return name ? name : "-";
}

static ts_status write_row(const run *r, int64_t epoch)
{
    const epoch_row *e = &r->done.rows[epoch];
    double values[MOST_COLUMNS] = {(double)(epoch + 1), e->loss, e->accuracy, e->seconds, e->rate};
    int n = 5;

    if (!r->csv)
        return TS_OK;
    if (r->done.pixels.classes) {
        values[n++] = progress_nonzero(&r->done, epoch);
        for (int i = 0; i < iou_columns(r); i++)
            values[n++] = progress_iou(&r->done, epoch, i);
        values[n++] = progress_mean_iou(&r->done, epoch);
    }
    values[n++] = e->val_loss;
    values[n++] = e->val_metric;
    return ts_csv_numbers(r->csv, values);
}

static const char *validation_name(const run *r)
{
    return r->recipe.task == TASK_NUMBERS  ? "validation_rmse"
           : r->recipe.task == TASK_PIXELS ? "validation_mean_iou"
                                           : "validation_accuracy";
}

static ts_status open_table(run *r)
{
    const char *columns[MOST_COLUMNS] = {"epoch", "loss", "accuracy", "seconds", "samples_per_s"};
    char ious[MOST_IOUS][80];
    int n = 5;

    if (r->done.pixels.classes) {
        columns[n++] = "nonzero_accuracy";
        for (int i = 0; i < iou_columns(r); i++) {
            snprintf(ious[i], sizeof(ious[i]), "iou_%.70s", class_of(r, i));
            columns[n++] = ious[i];
        }
        columns[n++] = "mean_iou";
    }
    if (r->valid) {
        columns[n++] = "validation_loss";
        columns[n++] = validation_name(r);
    }
    return ts_csv_open(asked.csv, columns, n, false, &r->csv);
}

int open_logs(run *r)
{
    if (asked.csv && open_table(r))
        return failed();
    for (int64_t i = 0; i < r->done.epoch; i++)
        if (write_row(r, i))
            return failed();
    if (asked.logdir && ts_events_open(asked.logdir, &r->events))
        return failed();
    return TOOL_OK;
}

int close_logs(run *r)
{
    ts_events *e = r->events;

    ts_csv_close(r->csv);
    r->csv = NULL;
    r->events = NULL;
    return e && ts_events_close(e) ? failed() : TOOL_OK;
}

int report_call(run *r, double loss)
{
    if (r->events && ts_events_scalar(r->events, "train/loss", r->done.updates, loss))
        return failed();
    return TOOL_OK;
}

static ts_status log_pixels(const run *r)
{
    int64_t at = r->done.epoch - 1;
    char tag[128];
    ts_status s;

    if (!r->done.pixels.classes)
        return TS_OK;
    s = ts_events_scalar(r->events, "train/nonzero_accuracy", at + 1,
                         progress_nonzero(&r->done, at));
    for (int i = 0; !s && i < iou_columns(r); i++) {
        snprintf(tag, sizeof(tag), "train/iou/%.100s", class_of(r, i));
        s = ts_events_scalar(r->events, tag, at + 1, progress_iou(&r->done, at, i));
    }
    return s ? s
             : ts_events_scalar(r->events, "train/mean_iou", at + 1,
                                progress_mean_iou(&r->done, at));
}

static ts_status log_epoch(const run *r, const epoch_row *e)
{
    ts_status s = write_row(r, r->done.epoch - 1);

    if (s || !r->events)
        return s;
    if (r->recipe.task != TASK_NUMBERS)
        s = ts_events_scalar(r->events, "train/accuracy", r->done.epoch, e->accuracy);
    if (!s)
        s = log_pixels(r);
    if (!s && r->valid)
        s = ts_events_scalar(r->events, "validation/loss", r->done.epoch, e->val_loss);
    if (!s && r->valid)
        s = ts_events_scalar(r->events, "validation/metric", r->done.epoch, e->val_metric);
    if (!s)
        s = ts_events_scalar(r->events, "train/samples_per_s", r->done.epoch, e->rate);
    return s ? s : ts_events_flush(r->events);
}

/* ", non-background 81.20 %, IoU cosmic 0.812, neutrino 0.500, mean 0.770" */
static void pixel_words(const run *r, int64_t epoch, char *out, size_t size)
{
    enum { MOST = 8 };
    int classes = r->done.pixels.classes;
    size_t n;

    n = (size_t)snprintf(out, size, ", non-background %.2f %%, IoU",
                         100 * progress_nonzero(&r->done, epoch));
    for (int i = 1; i < classes && i <= MOST && n < size; i++)
        n += (size_t)snprintf(out + n, size - n, " %.40s %.3f,", class_of(r, i),
                              progress_iou(&r->done, epoch, i));
    if (n < size)
        snprintf(out + n, size - n, " mean %.3f", progress_mean_iou(&r->done, epoch));
}

static void say_epoch(const run *r, const epoch_row *e)
{
    char accuracy[640] = "", valid[128] = "", metric[64];
    size_t n = 0;

    if (r->recipe.task != TASK_NUMBERS)
        n = (size_t)snprintf(accuracy, sizeof(accuracy), ", training accuracy %.2f %%",
                             100 * e->accuracy);
    if (r->done.pixels.classes)
        pixel_words(r, r->done.epoch - 1, accuracy + n, sizeof(accuracy) - n);
    if (r->valid)
        snprintf(valid, sizeof(valid), "; validation loss %.4f, %s%s", e->val_loss,
                 metric_text(r->recipe.task, e->val_metric, metric, sizeof(metric)),
                 best_epoch(&r->done) == r->done.epoch - 1 ? ", the best so far" : "");
    say("Epoch %" PRId64 "/%" PRId64 ": loss %.4f%s, %.1f s, %.*f samples/s%s", r->done.epoch,
        asked.epochs, e->loss, accuracy, e->seconds, e->rate < 10 ? 2 : 0, e->rate, valid);
}

static void event_pixels(const run *r, int64_t epoch)
{
    char key[96];

    if (!r->done.pixels.classes)
        return;
    event_real("nonzero_accuracy", progress_nonzero(&r->done, epoch));
    for (int i = 0; i < iou_columns(r); i++) {
        snprintf(key, sizeof(key), "iou_%.80s", class_of(r, i));
        event_real(key, progress_iou(&r->done, epoch, i));
    }
    event_real("mean_iou", progress_mean_iou(&r->done, epoch));
}

int report_epoch(run *r)
{
    const epoch_row *e = &r->done.rows[r->done.epoch - 1];

    if (log_epoch(r, e))
        return failed();
    if (asked.json) {
        event_begin("epoch");
        event_int("epoch", r->done.epoch);
        event_real("loss", e->loss);
        if (r->recipe.task != TASK_NUMBERS)
            event_real("accuracy", e->accuracy);
        event_pixels(r, r->done.epoch - 1);
        event_real("lr", r->learning);
        event_real("seconds", e->seconds);
        event_real("samples_per_s", e->rate);
        if (r->valid) {
            event_real("validation_loss", e->val_loss);
            event_real(validation_name(r), e->val_metric);
        }
        event_end();
    }
    say_epoch(r, e);
    return TOOL_OK;
}

/* --- begin and end --- */

static const char *optimizer_words(const ts_optimizer *o, char *out, size_t size)
{
    size_t n = (size_t)snprintf(out, size, "%s, lr %g", chosen.optimizer, o->hyper.lr);

    if (o->hyper.momentum > 0)
        n += (size_t)snprintf(out + n, size - n, ", momentum %g", o->hyper.momentum);
    if (chosen.beta1 >= 0 || chosen.beta2 >= 0)
        n += (size_t)snprintf(out + n, size - n, ", betas %g and %g", o->hyper.beta1,
                              o->hyper.beta2);
    if (o->hyper.weight_decay > 0)
        snprintf(out + n, size - n, ", weight decay %g", o->hyper.weight_decay);
    return out;
}

/* Of the net as the data needs it, which may have other sizes than its description. */
static int64_t parameters(const run *r)
{
    ts_model_options o = {.rank = r->sample.rank, .dims = r->sample.dims, .classes = r->classes};
    ts_model_layer *layers;
    int64_t sum = 0;
    int n;

    if (ts_model_layers(r->model, &o, &layers, &n))
        return 0;
    for (int i = 0; i < n; i++)
        sum += layers[i].parameters;
    free(layers);
    return sum;
}

static void start_words(const run *r, int64_t count, int64_t dropped)
{
    char shape[128], optimizer[256], what[64], more[128] = "";
    size_t n = 0;

    if (r->valid)
        n = (size_t)snprintf(more, sizeof(more), ", %" PRId64 " to validate",
                             ts_dataset_count(r->valid));
    if (r->test)
        snprintf(more + n, sizeof(more) - n, ", %" PRId64 " to test", ts_dataset_count(r->test));
    snprintf(what, sizeof(what),
             r->recipe.task == TASK_CLASSES   ? "in %d class%s%s"
             : r->recipe.task == TASK_NUMBERS ? "with %d number%.0s%s to learn"
             : r->recipe.task == TASK_TEXT    ? "of %d tokens"
             : r->recipe.task == TASK_PIXELS  ? "with pixels of %d classes"
                                              : "with %d labels",
             r->classes, r->classes == 1 ? "" : "e", r->classes == 1 ? "" : "s");
    say("%s: %" PRId64 " samples of %s %s%s", asked.data, count,
        shape_text(r->sample.rank, r->sample.dims, shape, sizeof(shape)), what, more);
    say("%s: %" PRId64 " parameters; %s; batch size %" PRId64 ", %" PRId64 " %s, seed %" PRId64,
        ts_model_name(r->model), parameters(r),
        optimizer_words(&r->optimizer, optimizer, sizeof(optimizer)), asked.batch, asked.epochs,
        asked.epochs == 1 ? "epoch" : "epochs", asked.seed);
    if (dropped)
        say("%" PRId64 " of the samples, others in each epoch, do not fill a call of %" PRId64
            " and are left out",
            dropped, r->rows * rank_count());
    if (ranks())
        say("%d processes train together, each with a batch of its own", rank_count());
}

void report_start(const run *r, bool resumed)
{
    int64_t count = ts_dataset_count(r->data), dropped = count - r->calls * r->rows * rank_count();

    if (asked.json) {
        event_begin("start");
        event_text("data", asked.data);
        event_int("samples", count);
        event_int("dropped", dropped);
        event_int("classes", r->classes);
        event_text("task", task_names[r->recipe.task]);
        event_text("model", ts_model_name(r->model));
        event_int("parameters", parameters(r));
        event_text("optimizer", chosen.optimizer);
        event_real("lr", r->optimizer.hyper.lr);
        event_int("batch_size", asked.batch);
        event_int("device_iterations", chosen.iterations);
        event_int("gradient_accumulation", chosen.accumulation);
        event_int("replicas", placed.replicas);
        event_int("seed", asked.seed);
        event_int("threads", ts_engine_threads(r->engine));
        event_int("processes", rank_count());
        event_int("epochs", asked.epochs);
        event_int("epoch", r->done.epoch);
        event_int("step", r->done.updates);
        event_end();
    }
    start_words(r, count, dropped);
    if (resumed)
        say("Goes on from %s: epoch %" PRId64 ", step %" PRId64, r->resume, r->done.epoch,
            r->done.updates);
}

void report_checkpoint(const run *r)
{
    if (!asked.json)
        return;
    event_begin("checkpoint");
    event_text("file", r->resume);
    event_int("epoch", r->done.epoch);
    event_int("step", r->done.updates);
    event_end();
}

static const char *measured_on(const run *r)
{
    return r->test ? "test" : r->valid ? "validation" : "training";
}

static void event_metrics(const run *r)
{
    if (r->recipe.task == TASK_NUMBERS) {
        event_real("mae", r->result.mae);
        event_real("r2", r->result.r2);
    }
    if (r->recipe.task == TASK_TEXT) {
        event_real("loss", r->result.loss);
        event_real("perplexity", exp(r->result.loss));
    }
    if (r->recipe.task == TASK_PIXELS) {
        char key[96];
        event_real("accuracy", r->result.accuracy);
        event_real("nonzero_accuracy", r->result.nonzero);
        for (int i = 0; i < r->result.classes && i < MOST_IOUS; i++) {
            snprintf(key, sizeof(key), "iou_%.80s", class_of(r, i));
            event_real(key, iou_of(r->result.counts, r->result.classes, i));
        }
        event_real("mean_iou_nonzero", r->result.mean_iou_nonzero);
        event_real("loss", r->result.loss);
    }
    if (r->recipe.task == TASK_LABELS) {
        event_real("f1", r->result.f1);
        event_real("auc", r->result.auc);
    }
}

static void print_pixels(const run *r, const char *of)
{
    printf("%s accuracy: %.2f %%, non-background %.2f %%\n%s IoU:", of, 100 * r->result.accuracy,
           100 * r->result.nonzero, of);
    for (int i = 0; i < r->result.classes && i < MOST_IOUS; i++)
        printf(" %s %.4f,", class_of(r, i), iou_of(r->result.counts, r->result.classes, i));
    printf(" mean %.4f (without background %.4f)\n", r->result.mean_iou,
           r->result.mean_iou_nonzero);
}

static void print_metric(const run *r)
{
    const char *of = r->test ? "Test" : r->valid ? "Validation" : "Training";

    if (r->recipe.task == TASK_NUMBERS)
        printf("%s RMSE: %.6g, mean error %.6g, R2 %.4f\n", of, r->result.rmse, r->result.mae,
               r->result.r2);
    else if (r->recipe.task == TASK_PIXELS)
        print_pixels(r, of);
    else if (r->recipe.task == TASK_LABELS)
        printf("%s accuracy: %.2f %%, F1 %.4f, AUC %.4f\n", of, 100 * r->metric, r->result.f1,
               r->result.auc);
    else if (r->recipe.task == TASK_TEXT)
        printf("%s loss: %.4f, perplexity %.4g, accuracy %.2f %%\n", of, r->result.loss,
               exp(r->result.loss), 100 * r->metric);
    else
        printf("%s accuracy: %.2f %%\n", of, 100 * r->metric);
}

void report_end(const run *r)
{
    if (asked.json) {
        event_begin("end");
        event_real(metric_name(r->recipe.task), r->metric);
        event_text("accuracy_of", measured_on(r));
        event_metrics(r);
        if (best_epoch(&r->done) >= 0)
            event_int("best_epoch", best_epoch(&r->done) + 1);
        event_text("output", r->output);
        event_text("checkpoint", r->resume);
        event_text("plots", r->plotted ? r->plots : NULL);
        event_end();
        return;
    }
    print_metric(r);
    if (asked.quiet)
        return;
    if (best_epoch(&r->done) >= 0)
        printf("The weights are those of epoch %" PRId64 "%s\n", best_epoch(&r->done) + 1,
               is_patience_out(r) ? "; no later one was better, so training stopped" : "");
    printf("Model       %s\nCheckpoint  %s\n", r->output, r->resume);
    if (r->plotted)
        printf("Plots       %s\n", r->plots);
    if (asked.csv)
        printf("Table       %s\n", asked.csv);
    if (asked.logdir)
        printf("TensorBoard %s\n", asked.logdir);
}

/* --- stopped --- */

void report_stopped(const run *r, int signal)
{
    if (asked.json) {
        event_begin("stopped");
        event_int("signal", signal);
        event_text("checkpoint", r->resume);
        event_int("epoch", r->done.epoch);
        event_int("step", r->done.updates);
        event_end();
    }
    fprintf(stderr,
            "Stopped in epoch %" PRId64 " of %" PRId64 ", at step %" PRId64
            "; %s has it all. To go on:\n  ",
            r->done.epoch + 1 > asked.epochs ? asked.epochs : r->done.epoch + 1, asked.epochs,
            r->done.updates, r->resume);
    if (ranks())
        fprintf(stderr, "tessera run -n %d -- ", rank_count());
    fputs("tessera", stderr);
    for (int i = 0; i < command_line.count; i++) {
        fputc(' ', stderr);
        shell_quote(stderr, command_line.word[i]);
    }
    fputs(asked.resume ? "\n" : " --resume\n", stderr);
}
