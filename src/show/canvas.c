/* canvas.c - drawing, with cairo.
 *
 * What is drawn is recorded first. Only when it is complete is its extent known, and a picture of
 * that size made, at two pixels a point with a margin: so no label, however long, is cut off at the
 * border.
 */
#include "show/show.h"

#ifdef TS_HAVE_CAIRO
#include <cairo.h>
#include <math.h>

enum { SCALE = 2, MARGIN = 14, MAX_SIDE = 16384, MAX_AREA = 1 << 26 };
static const double CAPITALS = 0.73; /* their height in DejaVu Sans, of the size */

struct ts_canvas {
    cairo_surface_t *record;
    cairo_t *cr;
};

static ts_status cairo_failed(cairo_status_t why)
{
    ts_status code = why == CAIRO_STATUS_NO_MEMORY ? TS_ERR_MEMORY : TS_ERR_INTERNAL;

    return ts_fail(code, "cairo cannot draw the plot: %s", cairo_status_to_string(why));
}

static void canvas_free(ts_canvas *c)
{
    cairo_destroy(c->cr);
    cairo_surface_destroy(c->record);
    free(c);
}

/* Text keeps its shape at any scale: no hinting to the pixels of a screen. */
static void plain_text(cairo_t *cr)
{
    cairo_font_options_t *o = cairo_font_options_create();

    cairo_font_options_set_antialias(o, CAIRO_ANTIALIAS_GRAY);
    cairo_font_options_set_hint_style(o, CAIRO_HINT_STYLE_NONE);
    cairo_font_options_set_hint_metrics(o, CAIRO_HINT_METRICS_OFF);
    cairo_set_font_options(cr, o);
    cairo_font_options_destroy(o);
}

ts_status ts_canvas_new(ts_canvas **out)
{
    ts_canvas *c = calloc(1, sizeof(*c));
    cairo_status_t why;

    if (!c)
        return ts_fail(TS_ERR_MEMORY, "no memory for a plot");
    c->record = cairo_recording_surface_create(CAIRO_CONTENT_COLOR_ALPHA, NULL);
    c->cr = cairo_create(c->record);
    why = cairo_status(c->cr);
    if (why) {
        canvas_free(c);
        return cairo_failed(why);
    }
    plain_text(c->cr);
    *out = c;
    return TS_OK;
}

static void set_colour(cairo_t *cr, uint32_t rgb, double alpha)
{
    cairo_set_source_rgba(cr, (rgb >> 16 & 0xff) / 255.0, (rgb >> 8 & 0xff) / 255.0,
                          (rgb & 0xff) / 255.0, alpha);
}

/* --- shapes --- */

void ts_canvas_fill(ts_canvas *c, ts_box b, uint32_t colour)
{
    set_colour(c->cr, colour, 1);
    cairo_rectangle(c->cr, b.x, b.y, b.w, b.h);
    cairo_fill(c->cr);
}

void ts_canvas_frame(ts_canvas *c, ts_box b, uint32_t colour)
{
    set_colour(c->cr, colour, 1);
    cairo_set_line_width(c->cr, 1);
    cairo_rectangle(c->cr, b.x, b.y, b.w, b.h);
    cairo_stroke(c->cr);
}

void ts_canvas_path(ts_canvas *c, const double (*xy)[2], int n, const ts_stroke *s)
{
    set_colour(c->cr, s->colour, s->alpha);
    cairo_set_line_width(c->cr, s->width);
    cairo_set_line_join(c->cr, CAIRO_LINE_JOIN_ROUND);
    if (s->dashed)
        cairo_set_dash(c->cr, (const double[]){6, 3}, 2, 0);
    cairo_new_path(c->cr); /* text leaves a point to go on from */
    for (int i = 0; i < n; i++)
        cairo_line_to(c->cr, xy[i][0], xy[i][1]);
    cairo_stroke(c->cr);
    cairo_set_dash(c->cr, NULL, 0, 0);
}

void ts_canvas_line(ts_canvas *c, double x0, double y0, double x1, double y1, uint32_t colour)
{
    const double xy[2][2] = {{x0, y0}, {x1, y1}};

    ts_canvas_path(c, xy, 2, &(ts_stroke){.width = 1, .alpha = 1, .colour = colour});
}

void ts_canvas_dot(ts_canvas *c, double x, double y, double radius, uint32_t colour)
{
    set_colour(c->cr, colour, 1);
    cairo_new_path(c->cr);
    cairo_arc(c->cr, x, y, radius, 0, 2 * M_PI);
    cairo_fill(c->cr);
}

/* --- text --- */

static double width_of(cairo_t *cr, const char *s)
{
    cairo_text_extents_t e;

    cairo_text_extents(cr, s, &e);
    return e.x_advance;
}

static size_t previous(const char *s, size_t n)
{
    do
        n--;
    while (n && (s[n] & 0xc0) == 0x80);
    return n;
}

/* Takes characters off the end until the rest and an ellipsis fit. */
static void shorten(cairo_t *cr, ts_text *t, double limit)
{
    enum { MOST = 400 }; /* more bytes than fit in any plot */

    if (t->len <= MOST && width_of(cr, t->s) <= limit)
        return;
    if (t->len > MOST)
        t->s[t->len = previous(t->s, MOST)] = 0;
    do {
        t->s[t->len = previous(t->s, t->len)] = 0;
        ts_text_add(t, "…", 3);
        t->len -= 3;
    } while (t->len && width_of(cr, t->s) > limit);
}

/* Chooses the font; the text as it will be shown. */
static ts_text prepare(ts_canvas *c, const char *s, const ts_font *f)
{
    ts_text t = {0};

    cairo_select_font_face(c->cr, "DejaVu Sans", CAIRO_FONT_SLANT_NORMAL,
                           f->bold ? CAIRO_FONT_WEIGHT_BOLD : CAIRO_FONT_WEIGHT_NORMAL);
    cairo_set_font_size(c->cr, f->size);
    ts_utf8_clean(&t, s);
    shorten(c->cr, &t, f->limit > 0 ? f->limit : 2000);
    return t;
}

double ts_canvas_text_width(ts_canvas *c, const char *s, const ts_font *f)
{
    ts_text t = prepare(c, s, f);
    double w = width_of(c->cr, t.s);

    ts_text_free(&t);
    return w;
}

void ts_canvas_text(ts_canvas *c, double x, double y, const char *s, const ts_font *f)
{
    ts_text t = prepare(c, s, f);

    cairo_save(c->cr);
    set_colour(c->cr, f->colour, 1);
    cairo_translate(c->cr, x, y);
    cairo_rotate(c->cr, -f->angle * M_PI / 180);
    cairo_move_to(c->cr, -f->align * width_of(c->cr, t.s), f->size * CAPITALS / 2);
    cairo_show_text(c->cr, t.s);
    cairo_restore(c->cr);
    ts_text_free(&t);
}

/* --- pictures --- */

static unsigned level(const ts_picture *p, int row, int column, int channel)
{
    size_t h = (size_t)p->height, w = (size_t)p->width, n = (size_t)p->channels;
    size_t y = (size_t)row, x = (size_t)column, k = (size_t)channel;
    size_t at = p->planar ? (k * h + y) * w + x : (y * w + x) * n + k;
    float lo = p->lo, hi = p->lo == 0 && p->hi == 0 ? 1 : p->hi, v;

    if (p->dtype == TS_U8)
        return ((const uint8_t *)p->data)[at];
    v = (((const float *)p->data)[at] - lo) / (hi - lo);
    return v > 0 ? (unsigned)(TS_MIN(v, 1) * 255 + 0.5f) : 0; /* NaN is black */
}

static cairo_surface_t *surface_of(const ts_picture *p)
{
    cairo_surface_t *s = cairo_image_surface_create(CAIRO_FORMAT_RGB24, p->width, p->height);
    unsigned char *data = cairo_image_surface_get_data(s);
    int stride = cairo_image_surface_get_stride(s);

    for (int y = 0; data && y < p->height; y++) {
        uint32_t *row = (uint32_t *)(void *)(data + (size_t)y * (size_t)stride);

        for (int x = 0; x < p->width; x++) {
            unsigned r = level(p, y, x, 0);
            unsigned g = p->channels == 3 ? level(p, y, x, 1) : r;
            unsigned b = p->channels == 3 ? level(p, y, x, 2) : r;
            row[x] = r << 16 | g << 8 | b;
        }
    }
    cairo_surface_mark_dirty(s);
    return s;
}

void ts_canvas_picture(ts_canvas *c, ts_box b, const ts_picture *p)
{
    double scale = TS_MIN(b.w / p->width, b.h / p->height);
    cairo_surface_t *s = surface_of(p);

    cairo_save(c->cr);
    cairo_translate(c->cr, round(b.x + (b.w - scale * p->width) / 2),
                    round(b.y + (b.h - scale * p->height) / 2));
    cairo_scale(c->cr, scale, scale);
    cairo_set_source_surface(c->cr, s, 0, 0);
    cairo_pattern_set_filter(cairo_get_source(c->cr),
                             scale * SCALE >= 1 ? CAIRO_FILTER_NEAREST : CAIRO_FILTER_GOOD);
    cairo_rectangle(c->cr, 0, 0, p->width, p->height);
    cairo_fill(c->cr);
    cairo_restore(c->cr);
    cairo_surface_destroy(s);
}

/* --- the file --- */

static cairo_status_t take(void *text, const unsigned char *data, unsigned n)
{
    ts_text_add(text, (const char *)data, n);
    return CAIRO_STATUS_SUCCESS;
}

static cairo_status_t paint(cairo_surface_t *image, cairo_surface_t *record, double x, double y)
{
    cairo_t *cr = cairo_create(image);
    cairo_status_t why;

    set_colour(cr, 0xffffff, 1);
    cairo_paint(cr);
    cairo_scale(cr, SCALE, SCALE);
    cairo_set_source_surface(cr, record, MARGIN - x, MARGIN - y);
    cairo_paint(cr);
    why = cairo_status(cr);
    cairo_destroy(cr);
    return why;
}

static ts_status encode(ts_canvas *c, ts_text *png)
{
    double x, y, w, h;
    cairo_status_t why = cairo_status(c->cr);
    cairo_surface_t *image;

    if (why)
        return cairo_failed(why);
    cairo_recording_surface_ink_extents(c->record, &x, &y, &w, &h);
    w = SCALE * (ceil(x + w) - floor(x) + 2 * MARGIN);
    h = SCALE * (ceil(y + h) - floor(y) + 2 * MARGIN);
    if (w > MAX_SIDE || h > MAX_SIDE || w * h > MAX_AREA)
        return ts_fail(TS_ERR_ARG, "the plot would have %.0f x %.0f pixels: too many", w, h);
    image = cairo_image_surface_create(CAIRO_FORMAT_RGB24, (int)w, (int)h);
    why = paint(image, c->record, floor(x), floor(y));
    if (!why)
        why = cairo_surface_write_to_png_stream(image, take, png);
    cairo_surface_destroy(image);
    return why ? cairo_failed(why) : TS_OK;
}

ts_status ts_canvas_write(ts_canvas *c, const char *path)
{
    ts_text png = {0};
    ts_status s = encode(c, &png);

    if (!s)
        s = ts_file_write(path, png.s, png.len);
    ts_text_free(&png);
    canvas_free(c);
    return s;
}

#endif
