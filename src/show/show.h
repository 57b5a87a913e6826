/* show.h - what people look at: bars, tables, logs and plots. */
#ifndef TS_SHOW_H
#define TS_SHOW_H

#include "base/base.h"
#include "tessera/show.h"

/* utf8.c: texts of users, made fit for a screen, a picture or a protocol */
int ts_utf8_next(const char **s);                  /* code point; -1 and one byte on when invalid */
void ts_utf8_clean(ts_text *out, const char *s);   /* no invalid bytes, no control characters */
int ts_utf8_columns(const char *s);                /* of a terminal */
size_t ts_utf8_prefix(const char *s, int columns); /* bytes of it that fit */

/* events.c */
uint32_t ts_crc32c(const void *data, size_t n);

/* bar.c */
typedef struct ts_bar_view {
    const char *label, *unit, *postfix; /* unit "": no rate */
    int64_t n, total;
    double elapsed, rate; /* rate 0: the mean so far */
    int width;            /* columns; 0: unknown     */
    bool ascii;
} ts_bar_view;
void ts_bar_line(ts_text *out, const ts_bar_view *v);
ts_bar *ts_bar_open_every(const ts_bar_options *opt, double interval); /* seconds between draws */
void ts_bar_finish(ts_bar *b);                                         /* all is done: closes it */

/* canvas.c: lengths are points, half a pixel wide; colours are 0xrrggbb. The picture grows to hold
 * what is drawn, wherever that is, so nothing is ever cut off at its border. */
typedef struct ts_canvas ts_canvas;
typedef struct ts_font {
    double size;
    uint32_t colour;
    double align; /* what x is: 0 the left end, 0.5 the middle, 1 the right end */
    double angle; /* degrees, counter-clockwise, about (x, y)                   */
    double limit; /* the longest; what is longer ends in an ellipsis. 0: none   */
    bool bold;
} ts_font;
typedef struct ts_stroke {
    double width, alpha;
    uint32_t colour;
    bool dashed;
} ts_stroke;
typedef struct ts_box {
    double x, y, w, h;
} ts_box;
enum {
    TS_INK = 0x222222,   /* text */
    TS_FAINT = 0x757575, /* text that can wait */
    TS_GRID = 0xdddddd,
    TS_FRAME = 0x888888
};
ts_status ts_canvas_new(ts_canvas **out);
ts_status ts_canvas_write(ts_canvas *c, const char *path); /* frees c too */
void ts_canvas_fill(ts_canvas *c, ts_box b, uint32_t colour);
void ts_canvas_frame(ts_canvas *c, ts_box b, uint32_t colour);
void ts_canvas_line(ts_canvas *c, double x0, double y0, double x1, double y1, uint32_t colour);
void ts_canvas_path(ts_canvas *c, const double (*xy)[2], int n, const ts_stroke *s);
void ts_canvas_dot(ts_canvas *c, double x, double y, double radius, uint32_t colour);
/* One line of text whose capitals have their middle at y. */
void ts_canvas_text(ts_canvas *c, double x, double y, const char *s, const ts_font *f);
double ts_canvas_text_width(ts_canvas *c, const char *s, const ts_font *f);
/* As large as fits in the box, in its middle: in squares when enlarged, in means when reduced. */
void ts_canvas_picture(ts_canvas *c, ts_box b, const ts_picture *p);

/* Made of src/show/page/ by tools/page.py: the page before its data and after it. */
extern const char ts_page_head[], ts_page_tail[];

/* axis.c */
typedef struct ts_axis {
    double lo, hi; /* of the data, with room at both ends */
    double step;   /* between ticks; log: in decades      */
    bool log;
} ts_axis;
ts_axis ts_axis_make(double lo, double hi, int ticks, bool whole, bool may_log);
double ts_axis_place(const ts_axis *a, double v); /* 0 at lo, 1 at hi */
int ts_axis_ticks(const ts_axis *a, double *at, int max);
void ts_axis_label(const ts_axis *a, double v, char *s, size_t size);

/* samples.c confusion.c curves.c prediction.c pixels.c: what plot.c has checked, drawn */
typedef struct ts_samples {
    const char *title;
    const ts_picture *pictures;
    const char *const *labels;
    int n;
} ts_samples;
enum { TS_MAX_CLASSES = 1000 };
typedef struct ts_confusion {
    const char *title;
    const int64_t *counts;
    const char *const *classes;
    int n;
} ts_confusion;
typedef void ts_draw_fn(ts_canvas *c, const void *plot);
ts_draw_fn ts_draw_samples, ts_draw_confusion, ts_draw_curves, ts_draw_prediction, ts_draw_pixels;

#endif
