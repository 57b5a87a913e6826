/* resize.c - resampling, with Pillow's pixels.
 *
 * Each output pixel is a weighted mean of the input pixels under a filter centred on it. The filter
 * has its own width when the image grows and is stretched by the scale when it shrinks, so that
 * every input pixel counts (antialiasing). Rows first, then columns, each rounded to bytes; weights
 * are integers of 22 fraction bits. Pillow computes in the same order and precision, so nothing
 * differs by even one level.
 */
#include "data/data.h"
#include <math.h>

enum { FRACTION = 22, HALF = 1 << (FRACTION - 1) };

typedef struct weights { /* of one direction */
    int *first, *count;  /* which input pixels go into each output pixel */
    int *w;              /* `most` for each */
    int most;
} weights;

static double triangle(double x)
{
    x = fabs(x);
    return x < 1 ? 1 - x : 0;
}

/* Keys (1981), a = -1/2 */
static double cubic(double x)
{
    const double a = -0.5;

    x = fabs(x);
    if (x < 1)
        return ((a + 2) * x - (a + 3)) * x * x + 1;
    return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
}

static const struct {
    double (*at)(double x);
    double reach;
} filters[] = {[TS_FILTER_BILINEAR] = {triangle, 1}, [TS_FILTER_BICUBIC] = {cubic, 2}};

static void weights_free(weights *k)
{
    free(k->first);
    free(k->count);
    free(k->w);
}

/* The weights of output pixel i, which add up to 1. real: room for `most` numbers. */
static void weigh(weights *k, int i, int in, double scale, ts_filter filter, double *real)
{
    double stretch = TS_MAX(scale, 1.0), reach = filters[filter].reach * stretch;
    double centre = (i + 0.5) * scale, sum = 0;
    int first = (int)TS_MAX(centre - reach + 0.5, 0.0);
    int count = (int)TS_MIN(centre + reach + 0.5, (double)in) - first;
    int *w = k->w + (size_t)i * (size_t)k->most;

    for (int j = 0; j < count; j++) {
        real[j] = filters[filter].at((j + first - centre + 0.5) * (1 / stretch));
        sum += real[j];
    }
    for (int j = 0; j < count; j++) {
        double x = (sum != 0 ? real[j] / sum : real[j]) * (1 << FRACTION);
        w[j] = (int)(x < 0 ? x - 0.5 : x + 0.5);
    }
    k->first[i] = first;
    k->count[i] = count;
}

static ts_status weights_new(int in, int out, ts_filter filter, weights *k)
{
    double scale = (double)in / out;
    double *real = NULL;
    size_t n = (size_t)out;
    ts_status s;

    *k = (weights){.most = 2 * (int)ceil(filters[filter].reach * TS_MAX(scale, 1.0)) + 1};
    s = ts_alloc(n * sizeof(int), "resizing", (void **)&k->first);
    if (!s)
        s = ts_alloc(n * sizeof(int), "resizing", (void **)&k->count);
    if (!s)
        s = ts_alloc(n * (size_t)k->most * sizeof(int), "resizing", (void **)&k->w);
    if (!s)
        s = ts_alloc((size_t)k->most * sizeof(double), "resizing", (void **)&real);
    for (int i = 0; !s && i < out; i++)
        weigh(k, i, in, scale, filter, real);
    free(real);
    if (s)
        weights_free(k);
    return s;
}

static uint8_t to_byte(int x)
{
    x >>= FRACTION;
    return (uint8_t)TS_MAX(0, TS_MIN(x, 255));
}

/* Output pixel i, not yet a byte; step: bytes from one input pixel to the next. */
static int mean_at(const weights *k, int i, const uint8_t *in, size_t step)
{
    const int *w = k->w + (size_t)i * (size_t)k->most;
    int sum = HALF;

    in += (size_t)k->first[i] * step;
    for (int j = 0; j < k->count[i]; j++, in += step)
        sum += *in * w[j];
    return sum;
}

static void resize_rows(const weights *k, const ts_image *in, ts_image *out)
{
    size_t c = (size_t)in->channels;
    uint8_t *to = out->pixels;

    for (int y = 0; y < in->height; y++) {
        const uint8_t *row = in->pixels + (size_t)y * (size_t)in->width * c;
        for (int x = 0; x < out->width; x++)
            for (size_t p = 0; p < c; p++)
                *to++ = to_byte(mean_at(k, x, row + p, c));
    }
}

static void resize_columns(const weights *k, const ts_image *in, ts_image *out)
{
    size_t row = (size_t)in->width * (size_t)in->channels;
    uint8_t *to = out->pixels;

    for (int y = 0; y < out->height; y++)
        for (size_t x = 0; x < row; x++)
            *to++ = to_byte(mean_at(k, y, in->pixels + x, row));
}

/* One direction: the one whose size changes. When neither does, a copy. */
static ts_status pass(const ts_image *in, int width, int height, ts_filter filter, ts_image *out)
{
    bool across = width != in->width;
    weights k;
    ts_status s;

    *out = (ts_image){width, height, in->channels, NULL};
    TS_TRY(ts_alloc((size_t)width * (size_t)height * (size_t)in->channels, "a resized image",
                    (void **)&out->pixels));
    if (!across && height == in->height) {
        memcpy(out->pixels, in->pixels, (size_t)width * (size_t)height * (size_t)in->channels);
        return TS_OK;
    }
    s = across ? weights_new(in->width, width, filter, &k)
               : weights_new(in->height, height, filter, &k);
    if (s) {
        free(out->pixels);
        return s;
    }
    if (across)
        resize_rows(&k, in, out);
    else
        resize_columns(&k, in, out);
    weights_free(&k);
    return TS_OK;
}

ts_status ts_resize(const ts_image *in, int width, int height, ts_filter filter, ts_image *out)
{
    ts_image wide;
    ts_status s;

    TS_TRY(pass(in, width, in->height, filter, &wide));
    s = pass(&wide, width, height, filter, out);
    free(wide.pixels);
    return s;
}
