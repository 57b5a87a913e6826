/* train_plots.c - the pictures of a run: samples before it starts (which also finds out that the
 * folder can be written to), curves and confusion at its end. A build that cannot draw does
 * without, unless the line asks for pictures.
 */
#include "train.h"
#include <math.h>
#include <stdlib.h>

enum { SAMPLES = 16, MOST_IOUS = 8 };

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
        labels[i] = ts_dataset_classes(r->data)
                        ? ts_dataset_class_name(r->data, ts_dataset_labels(r->data)[at])
                        : "";
    }
    return drawn(r,
                 ts_plot_samples(file_in(r, "samples.png", path), asked.data, pictures, labels, n));
}

static const char **names_of(const ts_dataset *d, int n)
{
    const char **names = calloc((size_t)n + 1, sizeof(*names));

    for (int i = 0; names && i < n; i++) {
        names[i] = ts_dataset_class_name(d, i);
        names[i] = names[i] ? names[i] : "-";
    }
    return names;
}

/* The first plane of the first sample with its labels. */
static int plot_pixels(run *r)
{
    int n = ts_dataset_classes(r->data), code;
    const char **names = names_of(r->data, n);
    char path[PATH_MAX + 32];
    ts_array a;

    if (!names || ts_dataset_sample(r->data, 0, &a)) {
        free(names);
        return names ? failed() : failure("out of memory for the names of %d classes", n);
    }
    code = drawn(r, ts_plot_pixels(file_in(r, "sample.png", path),
                                   &(ts_pixels){.title = asked.data,
                                                .picture = {.data = a.data,
                                                            .dtype = a.dtype,
                                                            .channels = 1,
                                                            .height = (int)a.dims[a.rank - 2],
                                                            .width = (int)a.dims[a.rank - 1],
                                                            .planar = true},
                                                .labels = ts_dataset_labels(r->data),
                                                .classes = names,
                                                .n = n}));
    free(names);
    return code;
}

int plot_begin(run *r)
{
    int code;

    if (!r->plots[0])
        return TOOL_OK;
    code = make_folder(r->plots, "pictures", PLOTS_HINT);
    if (!code && r->recipe.task == TASK_PIXELS)
        return plot_pixels(r);
    return !code && is_image(&r->sample) ? plot_samples(r) : code;
}

/* Loss on the left, accuracy on the right; the one over calls, the others at the end of epochs. */
static int plot_curves(run *r)
{
    const curve *c = &r->done.curve;
    bool numbers = r->recipe.task == TASK_NUMBERS;
    int64_t epochs = r->done.epoch, total = c->n * (c->stride ? c->stride : 1) + c->pending;
    double *x = malloc(sizeof(*x) * CURVE_POINTS);
    int ious = r->done.pixels.classes < MOST_IOUS ? r->done.pixels.classes : MOST_IOUS;
    double *y = malloc(sizeof(*y) * (size_t)(5 + ious) * (size_t)(epochs + 1)),
           *at = y ? y + 3 * (epochs + 1) : y, *iou = y ? y + 4 * (epochs + 1) : y;
    char names[MOST_IOUS + 1][80];
    ts_series series[4 + MOST_IOUS + 1] = {
        {.name = "training loss", .x = x, .y = c->points, .n = c->n, .smoothing = 0.9}};
    ts_curves all = {.title = ts_model_name(r->model),
                     .x_label = "epoch",
                     .y_label = "loss",
                     .right_label = numbers ? NULL
                                    : ious  ? "accuracy, IoU"
                                            : "accuracy",
                     .series = series,
                     .nseries = 1};
    char path[PATH_MAX + 32];
    int code = TOOL_FAILED;

    for (int64_t i = 0; x && i < c->n; i++)
        x[i] = (double)(i + 1) * (double)c->stride * (double)epochs / (double)total;
    for (int64_t i = 0; y && i < epochs; i++) {
        y[i] = r->done.rows[i].accuracy;
        y[epochs + 1 + i] = r->done.rows[i].val_loss;
        y[2 * (epochs + 1) + i] = r->done.rows[i].val_metric;
        at[i] = (double)(i + 1);
    }
    if (r->valid)
        series[all.nseries++] =
            (ts_series){.name = "validation loss", .x = at, .y = y + epochs + 1, .n = epochs};
    if (!numbers)
        series[all.nseries++] =
            (ts_series){.name = "training accuracy", .x = at, .y = y, .n = epochs, .right = true};
    for (int k = 0; y && ious && k <= ious; k++) {
        const char *name = ts_dataset_class_name(r->data, k);
        for (int64_t i = 0; i < epochs; i++)
            iou[k * (epochs + 1) + i] =
                k < ious ? progress_iou(&r->done, i, k) : progress_mean_iou(&r->done, i);
        snprintf(names[k], sizeof(names[k]), "IoU %.70s", k < ious && name ? name : "mean");
        series[all.nseries++] = (ts_series){
            .name = names[k], .x = at, .y = iou + k * (epochs + 1), .n = epochs, .right = true};
    }
    if (r->valid && !numbers)
        series[all.nseries++] =
            (ts_series){.name = ious ? "validation mean IoU" : "validation accuracy",
                        .x = at,
                        .y = y + 2 * (epochs + 1),
                        .n = epochs,
                        .right = true};
    if (!x || !y)
        failure("out of memory for the curves");
    else
        code = drawn(r, ts_plot_curves(file_in(r, "curves.png", path), &all));
    free(x);
    free(y);
    return code;
}

/* What is predicted over what is true; on the line they are the same. */
int draw_numbers(const char *path, const char *title, const ts_dataset *d, const net_result *result)
{
    int64_t n = result->count * result->classes, most = n < 5000 ? n : 5000;
    const float *t = ts_dataset_targets(d);
    double *x = malloc(sizeof(*x) * (size_t)(most + 1)),
           *y = malloc(sizeof(*y) * (size_t)(most + 1));
    double ends[2] = {INFINITY, -INFINITY};
    ts_status s = TS_ERR_MEMORY;

    for (int64_t i = 0; x && y && i < most; i++) {
        int64_t at = i * n / most;
        x[i] = t[at];
        y[i] = result->predicted[at];
        ends[0] = fmin(ends[0], fmin(x[i], y[i]));
        ends[1] = fmax(ends[1], fmax(x[i], y[i]));
    }
    if (x && y)
        s = ts_plot_curves(
            path,
            &(ts_curves){.title = title,
                         .x_label = "true",
                         .y_label = "predicted",
                         .series = (ts_series[]){{.name = "equal", .x = ends, .y = ends, .n = 2},
                                                 {.name = "samples", .x = x, .y = y, .n = most}},
                         .nseries = 2,
                         .linear = true,
                         .dots = 1});
    free(x);
    free(y);
    return s;
}

static void set_title(const run *r, char *title, size_t size)
{
    snprintf(title, size, "%.100s on the %s set of %.100s", ts_model_name(r->model),
             r->test    ? "test"
             : r->valid ? "validation"
                        : "training",
             asked.data);
}

static int plot_confusion(run *r, const net_result *result)
{
    const char **names = names_of(r->data, result->classes);
    char path[PATH_MAX + 32], title[256];
    int code;

    if (!names)
        return failure("out of memory for the names of %d classes", result->classes);
    set_title(r, title, sizeof(title));
    code = drawn(r, ts_plot_confusion(file_in(r, "confusion.png", path), title, result->counts,
                                      names, result->classes));
    free(names);
    return code;
}

int plot_end(run *r, const ts_dataset *d, const net_result *result)
{
    int code = r->plots[0] ? plot_curves(r) : TOOL_OK;
    char path[PATH_MAX + 32], title[256];

    if (code || !r->plots[0])
        return code;
    if (r->recipe.task == TASK_CLASSES || r->recipe.task == TASK_PIXELS)
        return result->classes <= 1000 ? plot_confusion(r, result) : TOOL_OK;
    if (r->recipe.task == TASK_LABELS || r->recipe.task == TASK_TEXT)
        return TOOL_OK;
    set_title(r, title, sizeof(title));
    return drawn(r, draw_numbers(file_in(r, "predicted.png", path), title, d, result));
}
