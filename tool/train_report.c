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

static ts_status write_row(const run *r, int64_t epoch)
{
    const epoch_row *e = &r->done.rows[epoch];
    double values[] = {(double)(epoch + 1), e->loss, e->accuracy, e->seconds, e->rate};

    return r->csv ? ts_csv_numbers(r->csv, values) : TS_OK;
}

int open_logs(run *r)
{
    static const char *const columns[] = {"epoch", "loss", "accuracy", "seconds", "samples_per_s"};

    if (asked.csv && ts_csv_open(asked.csv, columns, COUNT(columns), false, &r->csv))
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

static ts_status log_epoch(const run *r, const epoch_row *e)
{
    ts_status s = write_row(r, r->done.epoch - 1);

    if (s || !r->events)
        return s;
    s = ts_events_scalar(r->events, "train/accuracy", r->done.epoch, e->accuracy);
    if (!s)
        s = ts_events_scalar(r->events, "train/samples_per_s", r->done.epoch, e->rate);
    return s ? s : ts_events_flush(r->events);
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
        event_real("accuracy", e->accuracy);
        event_real("seconds", e->seconds);
        event_real("samples_per_s", e->rate);
        event_end();
    }
    say("Epoch %" PRId64 "/%" PRId64 ": loss %.4f, training accuracy %.2f %%, %.1f s, %.0f "
        "samples/s",
        r->done.epoch, asked.epochs, e->loss, 100 * e->accuracy, e->seconds, e->rate);
    return TOOL_OK;
}

/* --- begin and end --- */

static const char *optimizer_words(const ts_optimizer *o, char *out, size_t size)
{
    size_t n = (size_t)snprintf(out, size, "%s, lr %g", chosen.optimizer, o->hyper.lr);

    if (o->hyper.momentum > 0)
        n += (size_t)snprintf(out + n, size - n, ", momentum %g", o->hyper.momentum);
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
    char shape[128], optimizer[256], more[128] = "";

    if (r->test)
        snprintf(more, sizeof(more), ", %" PRId64 " to test", ts_dataset_count(r->test));
    say("%s: %" PRId64 " samples of %s in %d classes%s", asked.data, count,
        shape_text(r->sample.rank, r->sample.dims, shape, sizeof(shape)), r->classes, more);
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

void report_end(const run *r)
{
    if (asked.json) {
        event_begin("end");
        event_real("accuracy", r->accuracy);
        event_text("accuracy_of", r->test ? "test" : "training");
        event_text("output", r->output);
        event_text("checkpoint", r->resume);
        event_text("plots", r->plotted ? r->plots : NULL);
        event_end();
        return;
    }
    printf("%s accuracy: %.2f %%\n", r->test ? "Test" : "Training", 100 * r->accuracy);
    if (asked.quiet)
        return;
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
