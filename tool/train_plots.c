/* train_plots.c - the pictures of a run: samples before it starts (which also finds out that the
 * folder can be written to), curves and confusion at its end. A build that cannot draw does
 * without, unless the line asks for pictures.
 */
#include "train.h"
#include <stdlib.h>

enum { SAMPLES = 16 };

static const char *file_in(const run *r, const char *name, char *path)
{
    snprintf(path, PATH_MAX + 32, "%s/%s", r->plots, name);
    return path;
}

/* Failing to draw is an error; not being able to is one only when it was asked for. */
static int drawn(run *r, ts_status s)
{
    if (s == TS_ERR_UNSUPPORTED && !given(&asked.plots)) {
        say("No plots: %s", ts_last_error()->message);
        r->plots[0] = 0;
        return TOOL_OK;
    }
    r->plotted = !s;
    return s ? failed() : TOOL_OK;
}

static bool is_image(const ts_array *a)
{
    return a->rank == 3 && (a->dims[0] == 1 || a->dims[0] == 3) && a->dims[1] <= 4096 &&
           a->dims[2] <= 4096;
}

static int plot_samples(run *r)
{
    int64_t count = ts_dataset_count(r->data);
    int n = count < SAMPLES ? (int)count : SAMPLES;
    ts_picture pictures[SAMPLES];
    const char *labels[SAMPLES];
    char path[PATH_MAX + 32];

    for (int i = 0; i < n; i++) { /* spread over the data: files often have class after class */
        int64_t at = i * count / n;
        ts_array a;
        if (ts_dataset_sample(r->data, at, &a))
            return failed();
        pictures[i] = (ts_picture){.data = a.data,
                                   .dtype = a.dtype,
                                   .channels = (int)a.dims[0],
                                   .height = (int)a.dims[1],
                                   .width = (int)a.dims[2],
                                   .planar = true};
        labels[i] = ts_dataset_class_name(r->data, ts_dataset_labels(r->data)[at]);
    }
    return drawn(r,
                 ts_plot_samples(file_in(r, "samples.png", path), asked.data, pictures, labels, n));
}

int plot_begin(run *r)
{
    int code;

    if (!r->plots[0])
        return TOOL_OK;
    code = make_folder(r->plots, "pictures", PLOTS_HINT);
    return !code && is_image(&r->sample) ? plot_samples(r) : code;
}

/* Loss on the left, accuracy on the right; the one over calls, the other at the end of epochs. */
static int plot_curves(run *r)
{
    const curve *c = &r->done.curve;
    int64_t epochs = r->done.epoch, total = c->n * (c->stride ? c->stride : 1) + c->pending;
    double *x = malloc(sizeof(*x) * CURVE_POINTS);
    double *y = malloc(sizeof(*y) * (size_t)(epochs + 1));
    ts_series series[] = {
        {.name = "training loss", .x = x, .y = c->points, .n = c->n, .smoothing = 0.9},
        {.name = "training accuracy", .y = y, .n = epochs, .right = true},
    };
    ts_curves all = {.title = ts_model_name(r->model),
                     .x_label = "epoch",
                     .y_label = "loss",
                     .right_label = "accuracy",
                     .series = series,
                     .nseries = COUNT(series)};
    char path[PATH_MAX + 32];
    int code = TOOL_FAILED;

    for (int64_t i = 0; x && i < c->n; i++)
        x[i] = (double)(i + 1) * (double)c->stride * (double)epochs / (double)total;
    for (int64_t i = 0; y && i < epochs; i++)
        y[i] = r->done.rows[i].accuracy;
    if (!x || !y)
        failure("out of memory for the curves");
    else
        code = drawn(r, ts_plot_curves(file_in(r, "curves.png", path), &all));
    free(x);
    free(y);
    return code;
}

static int plot_confusion(run *r, const net_result *result)
{
    const char **names = calloc((size_t)result->classes, sizeof(*names));
    char path[PATH_MAX + 32], title[256];
    int code;

    if (!names)
        return failure("out of memory for the names of %d classes", result->classes);
    snprintf(title, sizeof(title), "%.100s on the %s set of %.100s", ts_model_name(r->model),
             r->test ? "test" : "training", asked.data);
    for (int i = 0; i < result->classes; i++) {
        names[i] = ts_dataset_class_name(r->data, i);
        names[i] = names[i] ? names[i] : "-";
    }
    code = drawn(r, ts_plot_confusion(file_in(r, "confusion.png", path), title, result->counts,
                                      names, result->classes));
    free(names);
    return code;
}

int plot_end(run *r, const net_result *result)
{
    int code = r->plots[0] ? plot_curves(r) : TOOL_OK;

    return !code && r->plots[0] && result->classes <= 1000 ? plot_confusion(r, result) : code;
}
