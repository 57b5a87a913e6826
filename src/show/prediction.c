/* prediction.c - what the file holds, what the net saw of it, and what it thinks it is. */
#include "show/show.h"

#ifdef TS_HAVE_CAIRO
#include <math.h>

enum { SIDE = 240, GAP = 28, BEST = 10, ROW = 24, NAME = 220, BARS = 220 };

typedef struct score {
    float value;
    int which;
} score;

static float rank(float v)
{
    return isnan(v) ? -INFINITY : v;
}

/* The first of equals first. */
static int by_value(const void *a, const void *b)
{
    const score *x = a, *y = b;
    float u = rank(x->value), v = rank(y->value);

    return u > v ? -1 : u < v ? 1 : (x->which > y->which) - (x->which < y->which);
}

/* The best n of them, in place of a sort of all: there may be many classes. */
static int best(const ts_prediction *p, score *out)
{
    int n = 0;

    for (int i = 0; i < p->n; i++) {
        score s = {p->scores[i], i};

        if (n == BEST && by_value(&s, &out[BEST - 1]) > 0)
            continue;
        out[n < BEST ? n++ : BEST - 1] = s;
        qsort(out, (size_t)n, sizeof(*out), by_value);
    }
    return n;
}

static bool are_shares(const ts_prediction *p)
{
    for (int i = 0; i < p->n; i++)
        if (p->scores[i] < 0 || p->scores[i] > 1.0001f)
            return false;
    return true;
}

static void score_text(float v, bool share, char *s, size_t size)
{
    if (share && isfinite(v))
        ts_format(s, size, "%.1f %%", 100 * v);
    else
        ts_format(s, size, "%.4g", v);
}

static double draw_picture(ts_canvas *c, double x, const ts_picture *p, const char *name)
{
    const ts_font f = {.size = 11, .colour = TS_INK, .align = 0.5};
    ts_box b = {x, 0, SIDE, SIDE};
    char text[80];

    if (!p->data)
        return x;
    ts_canvas_picture(c, b, p);
    snprintf(text, sizeof(text), "%s, %d × %d", name, p->width, p->height);
    ts_canvas_text(c, x + SIDE / 2.0, SIDE + 16, text, &f);
    return x + SIDE + GAP;
}

/* Bars start at 0, to the right when positive. */
static void draw_bar(ts_canvas *c, ts_box room, double lo, double hi, double v, uint32_t colour)
{
    double zero = room.x + room.w * (0 - lo) / (hi - lo);
    double end = room.x + room.w * (v - lo) / (hi - lo);

    if (isfinite(end))
        ts_canvas_fill(c, (ts_box){TS_MIN(zero, end), room.y, fabs(end - zero), room.h}, colour);
    ts_canvas_line(c, round(zero), room.y - 5, round(zero), room.y + room.h + 5, TS_FRAME);
}

static void draw_scores(ts_canvas *c, double x, const ts_prediction *p, const score *s, int n)
{
    ts_font name = {.size = 12, .colour = TS_INK, .align = 1, .limit = NAME};
    ts_font value = {.size = 11, .colour = TS_INK};
    bool share = are_shares(p);
    double lo = 0, hi = share ? 1 : 0, top = TS_MAX(0, (SIDE - n * ROW) / 2), widest = 0;
    char text[64];

    for (int i = 0; i < n; i++) {
        if (isfinite(s[i].value)) {
            lo = TS_MIN(lo, s[i].value);
            hi = TS_MAX(hi, s[i].value);
        }
        widest = TS_MAX(widest, ts_canvas_text_width(c, p->classes[s[i].which], &name));
    }
    hi = hi > lo ? hi : lo + 1;
    x += widest + 8;
    for (int i = 0; i < n; i++) {
        ts_box room = {x, top + i * ROW + 5, BARS, ROW - 10};

        name.bold = value.bold = i == 0;
        ts_canvas_text(c, x - 8, room.y + room.h / 2, p->classes[s[i].which], &name);
        draw_bar(c, room, lo, hi, s[i].value, i ? 0x8fb8d4 : 0x0072b2);
        score_text(s[i].value, share, text, sizeof(text));
        ts_canvas_text(c, x + BARS + 10, room.y + room.h / 2, text, &value);
    }
    if (p->n > n) {
        snprintf(text, sizeof(text), "the best %d of %d classes", n, p->n);
        ts_canvas_text(c, x, SIDE + 16, text, &(ts_font){.size = 11, .colour = TS_FAINT});
    }
}

void ts_draw_prediction(ts_canvas *c, const void *plot)
{
    const ts_prediction *p = plot;
    ts_font title = {.size = 16, .colour = TS_INK, .bold = true, .limit = 700};
    score s[BEST] = {{0}};
    int n = best(p, s);
    ts_text text = {0};
    char value[64];
    double x;

    score_text(s[0].value, are_shares(p), value, sizeof(value));
    ts_text_printf(&text, "%s, %s", p->classes[s[0].which], value);
    ts_canvas_text(c, 0, -26, p->title ? p->title : text.s, &title);
    ts_text_free(&text);
    x = draw_picture(c, 0, &p->original, "picture");
    x = draw_picture(c, x, &p->input, "what the network sees");
    draw_scores(c, x, p, s, n);
}

#endif
