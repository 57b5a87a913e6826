/* curves.c - one or more series over steps or epochs, on one or two vertical axes.
 *
 *   title
 *   -- loss  -- accuracy (right)          the legend has its own lines: it hides no data
 *   +---------------------------+
 *   |                           |
 *   +---------------------------+
 *
 * Long series are drawn as the smallest and largest of each short piece, so that a million points
 * cost what the screen can show and no spike is lost.
 */
#include "show/show.h"

#ifdef TS_HAVE_CAIRO
#include <math.h>

enum { WIDTH = 640, HEIGHT = 360, MAX_TICKS = 24, PIECES = 2000, FEW = 40 };

/* Okabe and Ito's colours, which no colour blindness confuses, without the yellow: it is
 * too light. */
static const uint32_t colours[] = {0x0072b2, 0xd55e00, 0x009e73, 0xcc79a7,
                                   0xe69f00, 0x56b4e9, 0x000000};

typedef struct side {
    ts_axis axis;
    double lo, hi; /* of its finite values */
    bool any;
} side;
typedef struct chart {
    const ts_curves *p;
    ts_canvas *c;
    side x, y[2]; /* left, right */
    bool whole;   /* every x is a whole number */
} chart;

static double x_of(const ts_series *s, int64_t i)
{
    return s->x ? s->x[i] : (double)(i + 1);
}

/* cairo's numbers end long before a double's */
static bool finite_point(const ts_series *s, int64_t i)
{
    return fabs(x_of(s, i)) < 1e300 && fabs(s->y[i]) < 1e300;
}

static void include(side *r, double v)
{
    r->lo = r->any ? TS_MIN(r->lo, v) : v;
    r->hi = r->any ? TS_MAX(r->hi, v) : v;
    r->any = true;
}

static void measure(chart *h)
{
    h->whole = true;
    for (int k = 0; k < h->p->nseries; k++) {
        const ts_series *s = &h->p->series[k];

        for (int64_t i = 0; i < s->n; i++) {
            if (!finite_point(s, i))
                continue;
            include(&h->x, x_of(s, i));
            include(&h->y[s->right], s->y[i]);
            h->whole = h->whole && x_of(s, i) == floor(x_of(s, i));
        }
    }
    if (!h->x.any)
        h->x.hi = 1;
    h->x.axis = ts_axis_make(h->x.lo, h->x.hi, 8, h->whole, false);
    for (int k = 0; k < 2; k++) {
        if (!h->y[k].any)
            h->y[k].hi = 1;
        h->y[k].axis = ts_axis_make(h->y[k].lo, h->y[k].hi, 6, false, !h->p->linear);
    }
}

/* --- axes --- */

static double place_y(const side *r, double v)
{
    return HEIGHT * (1 - ts_axis_place(&r->axis, v));
}

static void draw_x_axis(const chart *h)
{
    const ts_font f = {.size = 11, .colour = TS_INK, .align = 0.5};
    const char *name = h->p->x_label ? h->p->x_label : "step";
    double at[MAX_TICKS];
    int n = ts_axis_ticks(&h->x.axis, at, MAX_TICKS);
    char text[40];

    for (int i = 0; i < n; i++) {
        double x = round(WIDTH * ts_axis_place(&h->x.axis, at[i]));

        ts_canvas_line(h->c, x, 0, x, HEIGHT, TS_GRID);
        ts_canvas_line(h->c, x, HEIGHT, x, HEIGHT + 5, TS_FRAME);
        ts_axis_label(&h->x.axis, at[i], text, sizeof(text));
        ts_canvas_text(h->c, x, HEIGHT + 15, text, &f);
    }
    ts_canvas_text(h->c, WIDTH / 2.0, HEIGHT + 38, name,
                   &(ts_font){.size = 12, .colour = TS_INK, .align = 0.5, .limit = WIDTH});
}

/* Only one axis has lines across the chart: two grids cannot be told apart. */
static void draw_y_axis(const chart *h, int which, const char *name)
{
    const side *r = &h->y[which];
    ts_font f = {.size = 11, .colour = TS_INK, .align = which ? 0 : 1};
    double edge = which ? WIDTH : 0, out = which ? 1 : -1, widest = 0, at[MAX_TICKS];
    int n = ts_axis_ticks(&r->axis, at, MAX_TICKS);
    char text[40];

    for (int i = 0; i < n; i++) {
        double y = round(place_y(r, at[i]));

        if (!which || !h->y[0].any)
            ts_canvas_line(h->c, 0, y, WIDTH, y, TS_GRID);
        ts_canvas_line(h->c, edge, y, edge + 5 * out, y, TS_FRAME);
        ts_axis_label(&r->axis, at[i], text, sizeof(text));
        ts_canvas_text(h->c, edge + 9 * out, y, text, &f);
        widest = TS_MAX(widest, ts_canvas_text_width(h->c, text, &f));
    }
    if (name)
        ts_canvas_text(
            h->c, edge + (9 + widest + 16) * out, HEIGHT / 2.0, name,
            &(ts_font){.size = 12, .colour = TS_INK, .align = 0.5, .angle = 90, .limit = HEIGHT});
}

/* --- series --- */

static bool dashed(const chart *h, const ts_series *s)
{
    return s->right && h->y[0].any;
}

/* A stretch without a gap. */
static void draw_stretch(ts_canvas *c, const double (*xy)[2], int n, const ts_stroke *s)
{
    if (n == 1)
        ts_canvas_dot(c, xy[0][0], xy[0][1], 1.5 * s->width, s->colour);
    else if (n)
        ts_canvas_path(c, xy, n, s);
}

/* The points of piece i..end that are worth drawing: its first smallest and largest, in order. */
static int pick(const ts_series *s, const double *y, int64_t i, int64_t end, int64_t out[2])
{
    int64_t lo = -1, hi = -1;

    for (; i < end; i++) {
        if (!finite_point(s, i))
            continue;
        lo = lo < 0 || y[i] < y[lo] ? i : lo;
        hi = hi < 0 || y[i] > y[hi] ? i : hi;
    }
    out[0] = TS_MIN(lo, hi);
    out[1] = TS_MAX(lo, hi);
    return lo < 0 ? 0 : lo == hi ? 1 : 2;
}

static void draw_line(const chart *h, const ts_series *s, const double *y, const ts_stroke *stroke)
{
    double xy[2 * PIECES + 2][2];
    int64_t piece = s->n / PIECES + 1, chosen[2];
    int n = 0;

    for (int64_t i = 0; i < s->n; i += piece) {
        int points = pick(s, y, i, TS_MIN(s->n, i + piece), chosen);

        for (int k = 0; k < points; k++, n++) {
            xy[n][0] = WIDTH * ts_axis_place(&h->x.axis, x_of(s, chosen[k]));
            xy[n][1] = place_y(&h->y[s->right], y[chosen[k]]);
        }
        if (points)
            continue;
        draw_stretch(h->c, xy, n, stroke);
        n = 0;
    }
    draw_stretch(h->c, xy, n, stroke);
}

/* A running mean over the finite points, of full weight from the first on. */
static double *smoothed(const ts_series *s)
{
    double *y = malloc(sizeof(*y) * (size_t)s->n);
    double mean = 0, weight = 0;

    for (int64_t i = 0; y && i < s->n; i++) {
        y[i] = s->y[i];
        if (!finite_point(s, i))
            continue;
        mean = s->smoothing * mean + (1 - s->smoothing) * s->y[i];
        weight = s->smoothing * weight + (1 - s->smoothing);
        y[i] = mean / weight;
    }
    return y;
}

static void draw_series(const chart *h, const ts_series *s, uint32_t colour)
{
    ts_stroke line = {.width = 2, .alpha = 1, .colour = colour, .dashed = dashed(h, s)};
    bool dots = h->p->dots > 0 && s - h->p->series >= h->p->dots;
    double *y = s->smoothing > 0 && s->n && !dots ? smoothed(s) : NULL;

    if (y)
        draw_line(h, s, s->y, &(ts_stroke){.width = 1, .alpha = 0.3, .colour = colour});
    if (!dots)
        draw_line(h, s, y ? y : s->y, &line);
    for (int64_t i = 0; i < s->n && (s->n <= FEW || dots) && !y; i++)
        if (finite_point(s, i))
            ts_canvas_dot(h->c, WIDTH * ts_axis_place(&h->x.axis, x_of(s, i)),
                          place_y(&h->y[s->right], s->y[i]), dots ? 2 : 3, colour);
    free(y);
}

/* --- what stands around --- */

static bool has_points(const ts_series *s)
{
    for (int64_t i = 0; i < s->n; i++)
        if (finite_point(s, i))
            return true;
    return false;
}

static void entry_name(const chart *h, const ts_series *s, ts_text *t)
{
    ts_text_printf(t, "%s", s->name ? s->name : "");
    if (!has_points(s))
        ts_text_printf(t, " (no data)");
    else if (dashed(h, s))
        ts_text_printf(t, " (right)");
}

/* From the chart's upper edge upwards would need the number of rows first: so x and y are found in
 * one walk, and drawn in a second. Returns the rows. */
static int legend(const chart *h, double top, bool draw)
{
    const ts_font f = {.size = 11, .colour = TS_INK, .limit = WIDTH - 40};
    double x = 0;
    int row = 0;

    for (int k = 0; k < h->p->nseries; k++) {
        const ts_series *s = &h->p->series[k];
        ts_text name = {0};
        double width;

        entry_name(h, s, &name);
        width = 30 + ts_canvas_text_width(h->c, name.s, &f) + 18;
        if (x > 0 && x + width > WIDTH) {
            x = 0;
            row++;
        }
        if (draw) {
            const double y = top + 18 * row, key[2][2] = {{x, y}, {x + 24, y}};
            ts_canvas_path(h->c, key, 2,
                           &(ts_stroke){.width = 2.5,
                                        .alpha = 1,
                                        .colour = colours[k % TS_COUNT(colours)],
                                        .dashed = dashed(h, s)});
            ts_canvas_text(h->c, x + 30, y, name.s, &f);
        }
        x += width;
        ts_text_free(&name);
    }
    return h->p->nseries ? row + 1 : 0;
}

static void draw_heading(const chart *h)
{
    int rows = legend(h, 0, false);
    double top = -18 * rows;

    legend(h, top, true);
    if (h->p->title)
        ts_canvas_text(
            h->c, WIDTH / 2.0, top - 24, h->p->title,
            &(ts_font){
                .size = 16, .colour = TS_INK, .align = 0.5, .bold = true, .limit = WIDTH + 100});
}

void ts_draw_curves(ts_canvas *c, const void *plot)
{
    chart h = {.p = plot, .c = c};

    measure(&h);
    draw_x_axis(&h);
    if (h.y[0].any || !h.y[1].any)
        draw_y_axis(&h, 0, h.p->y_label);
    if (h.y[1].any)
        draw_y_axis(&h, 1, h.p->right_label);
    ts_canvas_frame(c, (ts_box){0, 0, WIDTH, HEIGHT}, TS_FRAME);
    for (int k = 0; k < h.p->nseries; k++)
        draw_series(&h, &h.p->series[k], colours[k % TS_COUNT(colours)]);
    if (!h.x.any)
        ts_canvas_text(c, WIDTH / 2.0, HEIGHT / 2.0, "no data",
                       &(ts_font){.size = 14, .colour = TS_FAINT, .align = 0.5});
    draw_heading(&h);
}

#endif
