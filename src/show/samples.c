/* samples.c - a grid of pictures with their names. */
#include "show/show.h"

#ifdef TS_HAVE_CAIRO
#include <math.h>

enum { SIDE = 96, SMALL = 48, MANY = 200, GAP = 16, LABEL = 20, TITLE = 30 };

void ts_draw_samples(ts_canvas *c, const void *plot)
{
    const ts_samples *s = plot;
    int rows = (int)ceil(s->n / ceil(1.25 * sqrt(s->n))); /* wider than high */
    int columns = (s->n + rows - 1) / rows;               /* the last row as full as can be */
    int side = s->n > MANY ? SMALL : SIDE;
    bool named = s->labels != NULL;
    const ts_font title = {.size = 16, .colour = TS_INK, .align = 0.5, .bold = true};
    const ts_font label = {
        .size = side > SMALL ? 11 : 9, .colour = TS_INK, .align = 0.5, .limit = side + GAP - 4};

    if (s->title)
        ts_canvas_text(c, columns * (side + GAP) / 2.0 - GAP / 2.0, -TITLE, s->title, &title);
    for (int i = 0; i < s->n; i++) {
        ts_box b = {.w = side, .h = side};

        b.x = i % columns * (side + GAP);
        b.y = (double)(i / columns) * (side + GAP / 2.0 + (named ? LABEL : 0));
        ts_canvas_picture(c, b, &s->pictures[i]);
        if (named && s->labels[i])
            ts_canvas_text(c, b.x + side / 2.0, b.y + side + LABEL / 2.0, s->labels[i], &label);
    }
}

#endif
