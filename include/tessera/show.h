/* show.h - what people look at: plots, logs, tables and progress bars.
 *
 * Pictures are PNG files at twice the usual resolution, replaced in one step: a reader sees the old
 * one or the new one. Texts are UTF-8; those that are too long end in an ellipsis. Up to 1000
 * pictures or classes and 64 series fit in one. A build without the cairo library draws none.
 */
#ifndef TESSERA_SHOW_H
#define TESSERA_SHOW_H

#include <tessera.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ts_picture {
    const void *data;
    ts_dtype dtype;    /* TS_U8, 0..255, or TS_F32                              */
    int channels;      /* 1 gray, 3 red green blue                              */
    int height, width; /* rows from the top                                     */
    bool planar;       /* [C][H][W], as tensors are; else [H][W][C], as files are */
    float lo, hi;      /* f32: what is black and white; both 0 means 0 and 1    */
} ts_picture;

/* A grid of n pictures, labels[i] under each (labels or one of them NULL: nothing). */
TS_API ts_status ts_plot_samples(const char *path, const char *title, const ts_picture *pictures,
                                 const char *const *labels, int n);
/* counts[i * n + j]: how many of class i were taken for class j. The accuracy joins the title. */
TS_API ts_status ts_plot_confusion(const char *path, const char *title, const int64_t *counts,
                                   const char *const *classes, int n);

typedef struct ts_series {
    const char *name;
    const double *x; /* NULL: 1, 2, 3, ... */
    const double *y; /* NaN or infinite: a gap */
    int64_t n;
    bool right;       /* measured on the right axis */
    double smoothing; /* 0: as it is; towards 1, the weight of the past in a running mean */
} ts_series;
typedef struct ts_curves {
    const char *title, *x_label, *y_label, *right_label;
    const ts_series *series;
    int nseries;
    bool linear; /* no log scale, however far the values spread (else: over 3 decades) */
    int dots;    /* from this series on, dots instead of lines; 0: none */
} ts_curves;
TS_API ts_status ts_plot_curves_sized(const char *path, const ts_curves *c, size_t size);
static inline ts_status ts_plot_curves(const char *path, const ts_curves *c)
{
    return ts_plot_curves_sized(path, c, sizeof(*c));
}

typedef struct ts_prediction {
    const char *title;          /* NULL: the best class and its score    */
    ts_picture original, input; /* the file's picture and what the net saw; data NULL: left out */
    const char *const *classes;
    const float *scores; /* of the n classes; the best ten are shown */
    int n;
} ts_prediction;
TS_API ts_status ts_plot_image_sized(const char *path, const ts_prediction *p, size_t size);
static inline ts_status ts_plot_image(const char *path, const ts_prediction *p)
{
    return ts_plot_image_sized(path, p, sizeof(*p));
}

/* Classes of pixels: a picture, what its pixels are, what a net takes them for. Those that are NULL
 * are left out. Of an f32 picture without lo and hi they are found. */
typedef struct ts_pixels {
    const char *title;
    ts_picture picture;
    const int32_t *labels, *said; /* height x width */
    const char *const *classes;   /* n names; class 0 is black, the background */
    int n;
} ts_pixels;
TS_API ts_status ts_plot_pixels_sized(const char *path, const ts_pixels *p, size_t size);
static inline ts_status ts_plot_pixels(const char *path, const ts_pixels *p)
{
    return ts_plot_pixels_sized(path, p, sizeof(*p));
}

/* Events for TensorBoard: a new file in a folder that is made if need be. Tags, steps and values
 * are written as PyTorch's SummaryWriter writes them. They reach the disk after two seconds, with a
 * flush and at the close, which frees e whatever it returns. */
typedef struct ts_events ts_events;
TS_API ts_status ts_events_open(const char *folder, ts_events **out);
TS_API ts_status ts_events_scalar(ts_events *e, const char *tag, int64_t step, double value);
TS_API ts_status ts_events_image(ts_events *e, const char *tag, int64_t step, const void *png,
                                 size_t bytes);
TS_API ts_status ts_events_text(ts_events *e, const char *tag, int64_t step, const char *text);
TS_API ts_status ts_events_flush(ts_events *e);
TS_API ts_status ts_events_close(ts_events *e);

/* A table that grows on disk, row by row. With resume, rows are added to those of an earlier run
 * whose columns must be the same; a row that a crash cut short is dropped. */
typedef struct ts_csv ts_csv;
TS_API ts_status ts_csv_open(const char *path, const char *const *columns, int n, bool resume,
                             ts_csv **out);
TS_API ts_status ts_csv_row(ts_csv *c, const char *const *cells); /* NULL: an empty cell */
TS_API ts_status ts_csv_numbers(ts_csv *c, const double *values); /* NaN: an empty cell  */
TS_API void ts_csv_close(ts_csv *c);

/* Bars on stderr, in the shape of tqdm's:
 *
 *   Epochs:  40%|████      | 2/5 [00:03<00:05,  1.71s/it, loss=0.345]
 *
 * One opened while others are open is drawn below them. Nothing is shown when stderr is no
 * terminal or a dumb one (TERM); TESSERA_PROGRESS=1 shows bars always, TESSERA_PROGRESS=0 never. A
 * NULL bar is allowed everywhere. */
typedef struct ts_bar ts_bar;
typedef struct ts_bar_options {
    const char *label;
    const char *unit; /* NULL: "it"                          */
    int64_t total;    /* 0: not known                        */
    bool transient;   /* leaves nothing when it is closed    */
    bool quiet;       /* shows nothing                       */
} ts_bar_options;
TS_API ts_bar *ts_bar_open_sized(const ts_bar_options *opt, size_t size);
static inline ts_bar *ts_bar_open(const ts_bar_options *opt)
{
    return ts_bar_open_sized(opt, sizeof(*opt));
}
TS_API void ts_bar_update(ts_bar *b, int64_t more); /* so many more are done */
/* What stands last, such as "loss=0.345"; seen with the next update. */
TS_API void ts_bar_postfix(ts_bar *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* A line on stderr that stays above the open bars. */
TS_API void ts_bar_print(const char *line);
TS_API void ts_bar_close(ts_bar *b);

/* rows x columns of cells in aligned text, the first column to the left and the others to the
 * right; free() it. */
TS_API char *ts_table_text(const char *const *cells, int rows, int columns);

/* For ts_options.progress: a bar on stderr, like those of ts_bar_open. */
TS_API void ts_progress_bar(void *arg, int percent);

/* A profile (the folder with profile.db, or the file) as one HTML page that needs nothing else;
 * `compare` is another that it is held against, or NULL. A build without SQLite writes none. */
TS_API ts_status ts_report(const char *profile, const char *compare, const char *path);

#ifdef __cplusplus
}
#endif
#endif
