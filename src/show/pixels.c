/* pixels.c - a picture, the classes of its pixels, and what a net takes them for.
 *
 * A pixel of the file is at least a pixel of the picture: a track that is one pixel wide must not
 * fade into its surroundings. Wide pictures stand one below the other, high ones beside each other.
 */
#include "show/show.h"

#ifdef TS_HAVE_CAIRO
#include <math.h>

enum { LEAST = 240, GAP = 16, NAME = 24, KEY = 12, POINTS = 2 /* pixels in one */ };

/* Class 0 is what is not looked for. */
static uint32_t colour_of(int32_t class)
{
    static const uint32_t colours[] = {0x56b4e9, 0xe69f00, 0x009e73, 0xcc79a7,
                                       0xf0e442, 0xd55e00, 0x0072b2, 0x999999};

    return class <= 0 ? 0x000000 : colours[(class - 1) % TS_COUNT(colours)];
}

/* Most pixels of an event are 0 and a few are a thousand times the others. */
static void set_range(ts_picture *p)
{
    const float *x = p->data;
    double n = 0, mean = 0, square = 0, least = 0;

    if (p->dtype != TS_F32 || p->lo != 0 || p->hi != 0)
        return;
    for (int64_t i = 0; i < (int64_t)p->height * p->width * p->channels; i++) {
        if (!isfinite(x[i]) || x[i] == 0)
            continue;
        n++;
        mean += x[i];
        square += (double)x[i] * x[i];
        least = fmin(least, x[i]);
    }
    mean /= fmax(n, 1);
    p->lo = (float)least;
    p->hi = (float)(mean + 2 * sqrt(fmax(square / fmax(n, 1) - mean * mean, 0)));
    p->hi = p->hi > p->lo ? p->hi : p->lo + 1;
}

static uint8_t *coloured(const ts_pixels *p, const int32_t *labels)
{
    int64_t n = (int64_t)p->picture.height * p->picture.width;
    uint8_t *out = malloc(3 * (size_t)n);

    for (int64_t i = 0; out && i < n; i++) {
        uint32_t c = colour_of(labels[i]);
        out[3 * i] = (uint8_t)(c >> 16);
        out[3 * i + 1] = (uint8_t)(c >> 8);
        out[3 * i + 2] = (uint8_t)c;
    }
    return out;
}

static void put_picture(ts_canvas *c, ts_box b, const ts_picture *p, const char *name)
{
    ts_canvas_picture(c, b, p);
    ts_canvas_frame(c, b, TS_FRAME);
    ts_canvas_text(c, b.x, b.y - NAME / 2.0, name, &(ts_font){.size = 12, .colour = TS_INK});
}

/* Whether it was drawn: labels may be missing. */
static bool put_labels(ts_canvas *c, ts_box b, const ts_pixels *p, const int32_t *labels,
                       const char *name)
{
    ts_picture classes = {
        .dtype = TS_U8, .channels = 3, .height = p->picture.height, .width = p->picture.width};
    uint8_t *data = labels ? coloured(p, labels) : NULL;

    classes.data = data;
    if (data)
        put_picture(c, b, &classes, name);
    free(data);
    return data != NULL;
}

static void next_place(ts_box *b, bool below)
{
    if (below)
        b->y += b->h + GAP + NAME;
    else
        b->x += b->w + GAP;
}

static void put_key(ts_canvas *c, double y, const ts_pixels *p)
{
    ts_font f = {.size = 12, .colour = TS_INK, .limit = 200};
    double x = 0;

    for (int i = 0; i < p->n && i < 32; i++) {
        ts_box square = {x, y, KEY, KEY};
        ts_canvas_fill(c, square, colour_of(i));
        ts_canvas_frame(c, square, TS_FRAME);
        ts_canvas_text(c, x + KEY + 6, y + KEY / 2.0, p->classes[i], &f);
        x += KEY + 6 + ts_canvas_text_width(c, p->classes[i], &f) + GAP;
    }
}

void ts_draw_pixels(ts_canvas *c, const void *plot)
{
    ts_pixels p = *(const ts_pixels *)plot;
    double scale = fmax(1.0 / POINTS, (double)LEAST / TS_MAX(p.picture.width, p.picture.height));
    ts_box b = {0, 0, scale * p.picture.width, scale * p.picture.height};
    bool below = b.w > b.h;

    set_range(&p.picture);
    if (p.title)
        ts_canvas_text(c, 0, -NAME - 18, p.title,
                       &(ts_font){.size = 16, .colour = TS_INK, .bold = true});
    put_picture(c, b, &p.picture, "the picture");
    next_place(&b, below);
    if (put_labels(c, b, &p, p.labels, "its labels"))
        next_place(&b, below);
    if (put_labels(c, b, &p, p.said, "what the network says"))
        next_place(&b, below);
    put_key(c, below ? b.y - NAME : b.h + GAP, &p);
}

#endif
