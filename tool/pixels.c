/* pixels.c - tessera predict of nets that classify pixels: what they say of the events of a file, in
 * numbers and as a picture of each plane.
 */
#include "net.h"
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Text for people, and not JSON or the table, is what goes to standard output. */
static bool says(const event_options *o)
{
    return !o->json && o->csv != stdout;
}

static bool is_wanted(const event_options *o, int64_t event)
{
    for (int i = 0; i < o->nevents; i++)
        if (o->events[i] == event)
            return true;
    return !o->nevents;
}

/* cosmic.h5, event 3, plane 0 -> cosmic-event3-plane0.png */
static int draw_plane(const event_options *o, const ts_array *sample, int64_t event, int plane,
                      const ts_pixels *what)
{
    const char *base;
    int n = base_name(o->path, &base);
    char name[NAME_MAX], title[NAME_MAX], path[PATH_MAX];
    int64_t height = sample->dims[sample->rank - 2], width = sample->dims[sample->rank - 1];
    int64_t planes = (int64_t)(sample->bytes / ts_dtype_size(sample->dtype)) / (height * width);
    ts_pixels shown = *what;
    int code;

    snprintf(name, sizeof(name), "%.*s-event%" PRId64 "-plane%d.png", n, base, event, plane);
    snprintf(title, sizeof(title), "%.*s, event %" PRId64 ", plane %d", n, base, event, plane);
    code = plot_path(name, path, sizeof(path));
    if (code)
        return code;
    shown.title = title;
    shown.picture =
        (ts_picture){.data = (const char *)sample->data +
                             ts_dtype_size(sample->dtype) *
                                 (size_t)((plane < planes ? plane : 0) * height * width),
                     .dtype = sample->dtype,
                     .channels = 1,
                     .height = (int)height,
                     .width = (int)width,
                     .planar = true};
    code = plot_done(ts_plot_pixels(path, &shown));
    if (!code && plots_wanted() && says(o))
        printf("  written %s\n", path);
    return code;
}

/* Labels may be of one plane for all channels, or of each. */
static int draw_event(const event_options *o, const ts_dataset *d, int64_t event,
                      const int32_t *labels, const int32_t *said)
{
    int code = TOOL_OK;
    int64_t pixels;
    ts_array sample;

    if (ts_dataset_sample(d, event, &sample))
        return failed();
    pixels = sample.dims[sample.rank - 2] * sample.dims[sample.rank - 1];
    for (int plane = 0; !code && plots_wanted() && plane < o->n->places / pixels; plane++)
        code = draw_plane(o, &sample, event, plane,
                          &(ts_pixels){.labels = labels ? labels + plane * pixels : NULL,
                                       .said = said + plane * pixels,
                                       .classes = o->classes,
                                       .n = (int)o->n->classes});
    return code;
}

typedef struct judged { /* an event */
    int64_t *counts;    /* confusions; with no labels, how many pixels of each class in row 0 */
    double accuracy;
    bool labelled;
    int shown; /* events before it */
} judged;

static void judge_event(const event_options *o, const int32_t *labels, const int32_t *said,
                        judged *j)
{
    int64_t n = o->n->classes, right = 0;

    memset(j->counts, 0, sizeof(*j->counts) * (size_t)(n * n));
    for (int64_t i = 0; i < o->n->places; i++) {
        j->counts[(labels ? labels[i] : 0) * n + said[i]]++;
        right += labels && labels[i] == said[i];
    }
    j->labelled = labels != NULL;
    j->accuracy = (double)right / (double)o->n->places;
}

static int64_t taken_for(const event_options *o, const judged *j, int class)
{
    int64_t sum = 0;

    for (int64_t i = 0; i < o->n->classes; i++)
        sum += j->counts[i * o->n->classes + class];
    return sum;
}

static void print_event(const event_options *o, int64_t event, const judged *j)
{
    int n = (int)o->n->classes;

    printf("%s: event %" PRId64 "\n", o->path, event);
    for (int i = 0; i < n; i++) {
        printf("  %-12s %10" PRId64 " pixels", o->classes[i], taken_for(o, j, i));
        if (j->labelled && isfinite(iou_of(j->counts, n, i)))
            printf("  IoU %.4f", iou_of(j->counts, n, i));
        putchar('\n');
    }
    if (j->labelled)
        printf("  accuracy %.2f%%, of non-background %.2f%%, mean IoU %.4f\n", 100 * j->accuracy,
               100 * nonzero_of(j->counts, n), mean_iou_of(j->counts, n, 0));
}

static void json_event(const event_options *o, int64_t event, const judged *j)
{
    int n = (int)o->n->classes;

    printf("%s\n     {\"event\": %" PRId64 ", \"classes\": [", j->shown ? "," : "", event);
    for (int i = 0; i < n; i++) {
        printf("%s{\"class\": ", i ? ", " : "");
        json_quote(o->classes[i]);
        printf(", \"pixels\": %" PRId64, taken_for(o, j, i));
        if (j->labelled) {
            printf(", \"iou\": ");
            json_value(iou_of(j->counts, n, i));
        }
        putchar('}');
    }
    putchar(']');
    if (j->labelled) {
        printf(", \"accuracy\": ");
        json_value(j->accuracy);
        printf(", \"nonzero_accuracy\": ");
        json_value(nonzero_of(j->counts, n));
        printf(", \"mean_iou\": ");
        json_value(mean_iou_of(j->counts, n, 0));
    }
    putchar('}');
}

/* input,row,pixels of each class */
static void csv_event(const event_options *o, int64_t event, const judged *j)
{
    if (!o->csv)
        return;
    csv_field(o->csv, o->path);
    fprintf(o->csv, ",%" PRId64, event);
    for (int i = 0; i < (int)o->n->classes; i++)
        fprintf(o->csv, ",%" PRId64, taken_for(o, j, i));
    fputc('\n', o->csv);
}

static int one_event(const event_options *o, const ts_dataset *d, const ts_batch *b, judged *j,
                     int32_t *said)
{
    const int32_t *labels = ts_dataset_classes(d) ? b->labels : NULL;

    net_classes(o->n, o->n->out, said);
    judge_event(o, labels, said, j);
    if (o->json)
        json_event(o, b->step, j);
    else if (says(o))
        print_event(o, b->step, j);
    csv_event(o, b->step, j);
    j->shown++;
    return draw_event(o, d, b->step, labels, said);
}

static int check_events(const event_options *o, const ts_dataset *d)
{
    int64_t n = ts_dataset_count(d);

    for (int i = 0; i < o->nevents; i++)
        if (o->events[i] >= n)
            return explain(TS_ERR_ARG, o->path, "predicting", "events are counted from 0",
                           "there is no event %" PRId64 ": %s has %" PRId64, o->events[i], o->path,
                           n);
    if (ts_dataset_classes(d) > o->n->classes ||
        (ts_dataset_classes(d) && ts_dataset_label_count(d) != o->n->places))
        return explain(TS_ERR_SHAPE, o->path, "predicting", NULL,
                       "the labels of %s are not of the net's pixels and classes", o->path);
    return TOOL_OK;
}

int predict_events(const event_options *o, const ts_dataset *d, ts_loader *l)
{
    size_t n = (size_t)o->n->classes;
    judged j = {.counts = calloc(n * n, sizeof(*j.counts))};
    int32_t *said = malloc(sizeof(*said) * (size_t)o->n->places);
    int code = j.counts && said ? check_events(o, d) : failure("out of memory for an event");
    ts_batch b;

    for (int64_t i = 0; !code && i < ts_loader_steps(l); i++) {
        if (!is_wanted(o, i))
            continue;
        if (ts_loader_seek(l, 0, i) || ts_loader_next(l, &b) ||
            ts_engine_run(o->n->engine, (const void *[]){b.samples}, (void *[]){o->n->out}))
            code = failed();
        else
            code = one_event(o, d, &b, &j, said);
    }
    free(j.counts);
    free(said);
    return code;
}
