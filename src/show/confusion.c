/* confusion.c - which class was taken for which.
 *
 * The colour is a cell's share of its row: a rare class is as easy to read as a frequent one. The
 * numbers are left out where they would not fit, and names where they would touch.
 */
#include "show/show.h"

#ifdef TS_HAVE_CAIRO
#include <math.h>

enum { LARGEST = 60, SMALLEST = 8, SIDE = 560, LARGE = 250, NAME = 220, BAR = 16 };
static const double READABLE = 6.5; /* points */

typedef struct grid {
    const ts_confusion *m;
    ts_canvas *c;
    double cell, side;
    double sums[TS_MAX_CLASSES]; /* of the rows */
} grid;

/* From white to dark blue, each step darker than the last to any eye, and fastest where the
 * mistakes are: a few percent can be seen. */
static uint32_t shade(double part)
{
    static const uint32_t anchors[] = {0xffffff, 0xc6dbee, 0x7bb0d8, 0x3079b5, 0x0b3566};
    double at = pow(part, 0.6) * (TS_COUNT(anchors) - 1);
    int i = TS_MIN((int)at, TS_COUNT(anchors) - 2);
    uint32_t rgb = 0;

    for (int shift = 16; shift >= 0; shift -= 8) {
        double a = anchors[i] >> shift & 0xff, b = anchors[i + 1] >> shift & 0xff;
        rgb |= (uint32_t)lround(a + (b - a) * (at - i)) << shift;
    }
    return rgb;
}

static double row_sum(const ts_confusion *m, int row)
{
    double sum = 0;

    for (int j = 0; j < m->n; j++)
        sum += (double)m->counts[row * m->n + j];
    return sum;
}

static double share(const grid *g, int row, int column)
{
    return g->sums[row] > 0 ? (double)g->m->counts[row * g->m->n + column] / g->sums[row] : 0;
}

/* The size at which the longest count fits its cell, or 0 when nobody could read it. */
static double number_size(const grid *g)
{
    int64_t most = 0;
    char text[32];
    ts_font f = {.size = 10};
    double width;

    for (int i = 0; i < g->m->n * g->m->n; i++)
        most = TS_MAX(most, g->m->counts[i]);
    snprintf(text, sizeof(text), "%lld", (long long)most);
    width = ts_canvas_text_width(g->c, text, &f) / f.size;
    f.size = TS_MIN(TS_MIN(12, 0.5 * g->cell), (g->cell - 4) / width);
    return f.size < READABLE ? 0 : f.size;
}

/* A row is a picture of one pixel a class, enlarged. */
static void draw_row(const grid *g, int row)
{
    unsigned char rgb[3 * TS_MAX_CLASSES];
    ts_picture p = {.data = rgb, .dtype = TS_U8, .channels = 3, .height = 1, .width = g->m->n};

    for (int j = 0; j < g->m->n; j++) {
        uint32_t colour = shade(share(g, row, j));
        for (int k = 0; k < 3; k++)
            rgb[3 * j + k] = (unsigned char)(colour >> (16 - 8 * k));
    }
    ts_canvas_picture(g->c, (ts_box){0, row * g->cell, g->side, g->cell}, &p);
}

static void draw_numbers(const grid *g, int row, double size)
{
    char text[32];

    for (int j = 0; j < g->m->n; j++) {
        int64_t count = g->m->counts[row * g->m->n + j];
        ts_font f = {.size = size, .align = 0.5};

        f.colour = !count ? 0x9a9a9a : share(g, row, j) > 0.4 ? 0xffffff : TS_INK;
        snprintf(text, sizeof(text), "%lld", (long long)count);
        ts_canvas_text(g->c, (j + 0.5) * g->cell, (row + 0.5) * g->cell, text, &f);
    }
}

static void draw_cells(const grid *g)
{
    double size = number_size(g);

    for (int i = 0; i < g->m->n; i++) {
        draw_row(g, i);
        if (size > 0)
            draw_numbers(g, i, size);
    }
    ts_canvas_frame(g->c, (ts_box){0, 0, g->side, g->side}, TS_FRAME);
}

/* Names along both axes; returns how far those below reach down, and to the left in *left. */
static double draw_names(const grid *g, double *left)
{
    ts_font f = {.size = TS_MAX(READABLE, TS_MIN(12, 0.8 * g->cell)), .colour = TS_INK};
    double slope = g->m->n <= 24 ? 45 : 90, longest = 0;
    int every = (int)ceil(f.size * 1.1 / g->cell);

    f.align = 1;
    f.limit = NAME;
    for (int i = 0; i < g->m->n; i += every) {
        double middle = (i + 0.5) * g->cell;

        f.angle = 0;
        longest = TS_MAX(longest, ts_canvas_text_width(g->c, g->m->classes[i], &f));
        ts_canvas_text(g->c, -8, middle, g->m->classes[i], &f);
        ts_canvas_line(g->c, -4, middle, 0, middle, TS_FRAME);
        f.angle = slope;
        ts_canvas_text(g->c, middle, g->side + 9, g->m->classes[i], &f);
        ts_canvas_line(g->c, middle, g->side, middle, g->side + 4, TS_FRAME);
    }
    *left = longest + 8;
    return g->side + 9 + longest * sin(slope * M_PI / 180) + f.size;
}

static void draw_colour_bar(const grid *g)
{
    enum { STEPS = 128 };
    const ts_font small = {.size = 10, .colour = TS_INK};
    const ts_font name = {.size = 11, .colour = TS_INK, .align = 0.5, .angle = 90};
    double x = g->side + 24, height = TS_MIN(g->side, 400), top = (g->side - height) / 2;
    char text[16];

    for (int i = 0; i < STEPS; i++) {
        ts_box b = {x, top + height * i / STEPS, BAR, height / STEPS};
        b.h = TS_MIN(b.h + 0.5, top + height - b.y); /* no seams */
        ts_canvas_fill(g->c, b, shade(1 - (i + 0.5) / STEPS));
    }
    ts_canvas_frame(g->c, (ts_box){x, top, BAR, height}, TS_FRAME);
    for (int percent = 0; percent <= 100; percent += height < 60 ? 100 : height < 150 ? 50 : 20) {
        double y = top + height * (1 - percent / 100.0);

        snprintf(text, sizeof(text), "%d %%", percent);
        ts_canvas_line(g->c, x + BAR, y, x + BAR + 4, y, TS_FRAME);
        ts_canvas_text(g->c, x + BAR + 8, y, text, &small);
    }
    if (height >= 130)
        ts_canvas_text(g->c, x + BAR + 54, top + height / 2, "share of the true class", &name);
}

static void draw_title(const grid *g)
{
    double right = 0, all = 0;
    char text[300];

    for (int i = 0; i < g->m->n; i++) {
        right += (double)g->m->counts[i * g->m->n + i];
        all += g->sums[i];
    }
    ts_canvas_text(g->c, g->side / 2, -40, g->m->title ? g->m->title : "Confusion matrix",
                   &(ts_font){.size = 16, .colour = TS_INK, .align = 0.5, .bold = true});
    if (all > 0)
        ts_format(text, sizeof(text), "accuracy %.2f %% (%.0f of %.0f)", 100 * right / all, right,
                  all);
    else
        snprintf(text, sizeof(text), "no samples");
    ts_canvas_text(g->c, g->side / 2, -18, text,
                   &(ts_font){.size = 12, .colour = TS_INK, .align = 0.5});
}

void ts_draw_confusion(ts_canvas *c, const void *plot)
{
    const ts_confusion *m = plot;
    grid g = {.m = m, .c = c};
    ts_font name = {.size = 13, .colour = TS_INK, .align = 0.5, .bold = true};
    double bottom, left;

    g.cell = TS_MAX(SMALLEST, TS_MIN(LARGEST, floor((double)SIDE / m->n)));
    if (m->n > LARGE)
        g.cell = TS_MAX(2, LARGE * SMALLEST / m->n);
    g.side = g.cell * m->n;
    for (int i = 0; i < m->n; i++)
        g.sums[i] = row_sum(m, i);
    draw_cells(&g);
    bottom = draw_names(&g, &left);
    ts_canvas_text(c, g.side / 2, bottom + 10, "predicted class", &name);
    name.angle = 90;
    ts_canvas_text(c, -left - 16, g.side / 2, "true class", &name);
    draw_colour_bar(&g);
    draw_title(&g);
}

#endif
