/* plot.c - the public calls: what cannot be drawn is refused here, so that the files that draw need
 * not ask. */
#include "show/show.h"
#include <math.h>

enum { MAX_SAMPLES = 1000, MAX_SERIES = 64, MAX_SIDE = 32767 };

#ifdef TS_HAVE_CAIRO
#define DRAW(call) call
#else
#define DRAW(call) NULL
#endif

static ts_status draw(const char *path, ts_draw_fn *call, const void *plot)
{
#ifdef TS_HAVE_CAIRO
    ts_canvas *c;

    TS_TRY(ts_canvas_new(&c));
    call(c, plot);
    return ts_canvas_write(c, path);
#else
    (void)path, (void)call, (void)plot;
    ts_fail(TS_ERR_UNSUPPORTED, "this build of Tessera has no cairo library, which draws plots");
    ts_error_hint("install libcairo2-dev and build again");
    return TS_ERR_UNSUPPORTED;
#endif
}

static ts_status check_picture(const ts_picture *p, const char *which, int i)
{
    if (!p->data)
        return ts_fail(TS_ERR_ARG, "%s %d has no data", which, i);
    if (TS_MIN(p->height, p->width) < 1 || TS_MAX(p->height, p->width) > MAX_SIDE)
        return ts_fail(TS_ERR_ARG, "%s %d is %d x %d pixels; a side can be 1 to %d", which, i,
                       p->width, p->height, MAX_SIDE);
    if (p->channels != 1 && p->channels != 3)
        return ts_fail(TS_ERR_ARG, "%s %d is %d x %d with %d channels; 1 or 3 can be drawn", which,
                       i, p->width, p->height, p->channels);
    if (p->dtype != TS_U8 && p->dtype != TS_F32)
        return ts_fail(TS_ERR_TYPE, "%s %d is %s; u8 and f32 can be drawn", which, i,
                       ts_dtype_name(p->dtype));
    if (p->dtype == TS_F32 && !(isfinite(p->hi - p->lo) && (p->hi != p->lo || p->hi == 0)))
        return ts_fail(TS_ERR_ARG, "%s %d has black at %g and white at %g", which, i, p->lo, p->hi);
    return TS_OK;
}

static ts_status check_count(const char *what, int n, int max)
{
    if (n >= 1 && n <= max)
        return TS_OK;
    return ts_fail(TS_ERR_ARG, "a plot of %d %s; it can be 1 to %d", n, what, max);
}

static ts_status check_names(const char *const *names, int n)
{
    for (int i = 0; i < n; i++)
        if (!names || !names[i])
            return ts_fail(TS_ERR_ARG, "class %d has no name", i);
    return TS_OK;
}

static ts_status check_samples(const ts_samples *s)
{
    TS_TRY(check_count("pictures", s->n, MAX_SAMPLES));
    if (!s->pictures)
        return ts_fail(TS_ERR_ARG, "there are no pictures");
    for (int i = 0; i < s->n; i++)
        TS_TRY(check_picture(&s->pictures[i], "picture", i));
    return TS_OK;
}

static ts_status check_confusion(const ts_confusion *m)
{
    TS_TRY(check_count("classes", m->n, TS_MAX_CLASSES));
    TS_TRY(check_names(m->classes, m->n));
    if (!m->counts)
        return ts_fail(TS_ERR_ARG, "there are no counts");
    for (int i = 0; i < m->n * m->n; i++)
        if (m->counts[i] < 0)
            return ts_fail(TS_ERR_ARG, "class %s was taken for %s %lld times", m->classes[i / m->n],
                           m->classes[i % m->n], (long long)m->counts[i]);
    return TS_OK;
}

static ts_status check_curves(const ts_curves *c)
{
    if (!c || c->nseries < 0 || c->nseries > MAX_SERIES || (c->nseries && !c->series))
        return ts_fail(TS_ERR_ARG, "a plot of %d series; it can be 0 to %d", c ? c->nseries : -1,
                       MAX_SERIES);
    for (int i = 0; i < c->nseries; i++) {
        const ts_series *s = &c->series[i];
        if (s->n < 0 || (s->n && !s->y))
            return ts_fail(TS_ERR_ARG, "series %d (%s) has %lld points and no values", i,
                           s->name ? s->name : "", (long long)s->n);
        if (!(s->smoothing >= 0 && s->smoothing < 1))
            return ts_fail(TS_ERR_ARG, "series %d (%s) has a smoothing of %g; it is 0 to below 1",
                           i, s->name ? s->name : "", s->smoothing);
    }
    return TS_OK;
}

static ts_status check_prediction(const ts_prediction *p)
{
    if (!p || !p->scores)
        return ts_fail(TS_ERR_ARG, "there are no scores");
    TS_TRY(check_count("classes", p->n, 1 << 20));
    TS_TRY(check_names(p->classes, p->n));
    if (p->original.data)
        TS_TRY(check_picture(&p->original, "picture", 0));
    if (p->input.data)
        TS_TRY(check_picture(&p->input, "picture", 1));
    return TS_OK;
}

static ts_status check_pixels(const ts_pixels *p)
{
    if (!p)
        return ts_fail(TS_ERR_ARG, "there is no picture");
    TS_TRY(check_picture(&p->picture, "picture", 0));
    TS_TRY(check_count("classes", p->n, TS_MAX_CLASSES));
    return check_names(p->classes, p->n);
}

/* Every plot's end: the checks' status, or the drawing's, with what was being done. */
static ts_status finish(ts_status checked, const char *path, ts_draw_fn *call, const void *plot)
{
    ts_status s = checked;

    if (!s && !path)
        s = ts_fail(TS_ERR_ARG, "a plot needs the path of its file");
    if (!s)
        s = draw(path, call, plot);
    if (s)
        ts_error_doing("plotting to %s", path ? path : "no file");
    if (s == TS_ERR_FILE)
        ts_error_hint("the folder must exist, be writable and have room for the picture");
    return s;
}

ts_status ts_plot_samples(const char *path, const char *title, const ts_picture *pictures,
                          const char *const *labels, int n)
{
    ts_samples s = {title, pictures, labels, n};

    return finish(check_samples(&s), path, DRAW(ts_draw_samples), &s);
}

ts_status ts_plot_confusion(const char *path, const char *title, const int64_t *counts,
                            const char *const *classes, int n)
{
    ts_confusion m = {title, counts, classes, n};

    return finish(check_confusion(&m), path, DRAW(ts_draw_confusion), &m);
}

ts_status ts_plot_curves_sized(const char *path, const ts_curves *given, size_t size)
{
    ts_curves own, *c = given ? &own : NULL;

    TS_TRY(ts_take_sized("ts_plot_curves", given, size, &own, sizeof(own)));
    return finish(check_curves(c), path, DRAW(ts_draw_curves), c);
}

ts_status ts_plot_image_sized(const char *path, const ts_prediction *given, size_t size)
{
    ts_prediction own, *p = given ? &own : NULL;

    TS_TRY(ts_take_sized("ts_plot_image", given, size, &own, sizeof(own)));
    return finish(check_prediction(p), path, DRAW(ts_draw_prediction), p);
}

ts_status ts_plot_pixels_sized(const char *path, const ts_pixels *given, size_t size)
{
    ts_pixels own, *p = given ? &own : NULL;

    TS_TRY(ts_take_sized("ts_plot_pixels", given, size, &own, sizeof(own)));
    return finish(check_pixels(p), path, DRAW(ts_draw_pixels), p);
}
