/* augment.c - images changed at random while they are loaded: shifted, mirrored, turned, their
 * colours varied, a square of them taken away, two of them mixed.
 *
 * A sample is already normalised. Where nothing is left of the picture it is black, the normalised
 * 0. Labels of pixels move with their pixels. What is drawn depends on the seed, the epoch and the sample's number only: the same pictures
 * whichever thread makes them, and again when a run goes on.
 */
#include "data/data.h"
#include <math.h>

/* --- random numbers of one sample --- */

/* splitmix64 */
static uint64_t bits(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static double unit(uint64_t *state) /* 0..1 */
{
    return (double)(bits(state) >> 11) * 0x1p-53;
}

static double between(uint64_t *state, double low, double high)
{
    return low + (high - low) * unit(state);
}

/* Beta(a, a), by Johnk: powers of two uniform numbers that add up to 1 or less. */
double ts_augment_share(const ts_augment *how, uint64_t random)
{
    uint64_t state = random ^ 0x6d697875; /* a stream of its own */

    for (int i = 0; i < 1000; i++) {
        double x = pow(unit(&state), 1 / how->mixup), y = pow(unit(&state), 1 / how->mixup);
        if (x + y <= 1 && x + y > 0)
            return x / (x + y);
    }
    return 1;
}

/* --- where the pixels come from --- */

typedef struct view {
    int64_t channels, height, width;
    const ts_normalize *normal;
    double cosine, sine, dx, dy;
    bool mirrored, upside_down, turned;
} view;

static float black(const view *v, int64_t channel)
{
    const ts_normalize *n = v->normal;
    int64_t i = n->n > 1 ? channel : 0;

    return n->n ? (float)(-n->mean[i] / n->deviation[i]) : 0;
}

static float pixel(const view *v, const float *plane, int64_t y, int64_t x, float otherwise)
{
    return y >= 0 && y < v->height && x >= 0 && x < v->width ? plane[y * v->width + x] : otherwise;
}

static float between_pixels(const view *v, const float *plane, double y, double x, float otherwise)
{
    int64_t top = (int64_t)floor(y), left = (int64_t)floor(x);
    float fy = (float)(y - (double)top), fx = (float)(x - (double)left);
    float a = pixel(v, plane, top, left, otherwise), b = pixel(v, plane, top, left + 1, otherwise);
    float c = pixel(v, plane, top + 1, left, otherwise),
          d = pixel(v, plane, top + 1, left + 1, otherwise);

    return (a * (1 - fx) + b * fx) * (1 - fy) + (c * (1 - fx) + d * fx) * fy;
}

static float seen(const view *v, const float *plane, int64_t y, int64_t x, float otherwise)
{
    double cy = (double)(v->height - 1) / 2, cx = (double)(v->width - 1) / 2, sy, sx;

    y = v->upside_down ? v->height - 1 - y : y;
    x = v->mirrored ? v->width - 1 - x : x;
    if (!v->turned)
        return pixel(v, plane, y + (int64_t)v->dy, x + (int64_t)v->dx, otherwise);
    sy = (double)y - cy;
    sx = (double)x - cx;
    return between_pixels(v, plane, cy + v->sine * sx + v->cosine * sy + v->dy,
                          cx + v->cosine * sx - v->sine * sy + v->dx, otherwise);
}

/* Classes have no means: the nearest pixel. What was outside is class 0, the background. */
static int32_t label_seen(const view *v, const int32_t *plane, int64_t y, int64_t x)
{
    double sy, sx, cy = (double)(v->height - 1) / 2, cx = (double)(v->width - 1) / 2;
    int64_t fy, fx;

    y = v->upside_down ? v->height - 1 - y : y;
    x = v->mirrored ? v->width - 1 - x : x;
    sy = (double)y - cy;
    sx = (double)x - cx;
    fy = v->turned ? (int64_t)floor(cy + v->sine * sx + v->cosine * sy + v->dy + 0.5)
                   : y + (int64_t)v->dy;
    fx = v->turned ? (int64_t)floor(cx + v->cosine * sx - v->sine * sy + v->dx + 0.5)
                   : x + (int64_t)v->dx;
    return fy >= 0 && fy < v->height && fx >= 0 && fx < v->width ? plane[fy * v->width + fx] : 0;
}

/* A plane at a time, so that the scratch of a sample is enough. */
static void move_labels(const view *v, int32_t *labels, int64_t n, void *scratch)
{
    int64_t plane = v->height * v->width;

    for (int64_t at = 0; at < n; at += plane) {
        memcpy(scratch, labels + at, (size_t)plane * sizeof(*labels));
        for (int64_t i = 0; i < plane; i++)
            labels[at + i] = label_seen(v, scratch, i / v->width, i % v->width);
    }
}

static void move(const view *v, float *sample, float *scratch)
{
    int64_t plane = v->height * v->width;

    memcpy(scratch, sample, (size_t)(v->channels * plane) * sizeof(float));
    for (int64_t c = 0; c < v->channels; c++) {
        float otherwise = black(v, c);
        for (int64_t y = 0; y < v->height; y++)
            for (int64_t x = 0; x < v->width; x++)
                *sample++ = seen(v, scratch + c * plane, y, x, otherwise);
    }
}

/* --- colours --- */

/* Pixels as 0..1, where factors mean what they say, and back. */
static void rescale(const view *v, float *sample, bool back)
{
    int64_t plane = v->height * v->width;

    for (int64_t c = 0; c < v->channels && v->normal->n; c++) {
        int64_t i = v->normal->n > 1 ? c : 0;
        float mean = (float)v->normal->mean[i], deviation = (float)v->normal->deviation[i];
        for (int64_t k = c * plane; k < (c + 1) * plane; k++)
            sample[k] = back ? (sample[k] - mean) / deviation : sample[k] * deviation + mean;
    }
}

static float gray(const view *v, const float *sample, int64_t at)
{
    int64_t plane = v->height * v->width;

    return v->channels == 3
               ? 0.299f * sample[at] + 0.587f * sample[plane + at] + 0.114f * sample[2 * plane + at]
               : sample[at];
}

static void vary(const view *v, const ts_augment *how, uint64_t *state, float *sample)
{
    float light = (float)between(state, 1 - how->brightness, 1 + how->brightness);
    float contrast = (float)between(state, 1 - how->contrast, 1 + how->contrast);
    float colour = (float)between(state, 1 - how->saturation, 1 + how->saturation);
    int64_t plane = v->height * v->width;
    double mean = 0;

    rescale(v, sample, false);
    for (int64_t i = 0; i < plane; i++)
        mean += light * gray(v, sample, i) / (double)plane;
    for (int64_t i = 0; i < plane; i++) {
        float g = gray(v, sample, i) * light;
        for (int64_t c = 0; c < v->channels; c++) {
            float *x = &sample[c * plane + i], y = *x * light;
            y = g + (y - g) * colour;
            y = (float)mean + (y - (float)mean) * contrast;
            *x = fminf(fmaxf(y, 0), 1);
        }
    }
    rescale(v, sample, true);
}

/* A square of so many pixels, anywhere, becomes the mean. */
static void cut_out(const view *v, int side, uint64_t *state, float *sample)
{
    int64_t cy = (int64_t)(unit(state) * (double)v->height),
            cx = (int64_t)(unit(state) * (double)v->width);

    for (int64_t c = 0; c < v->channels; c++)
        for (int64_t y = TS_MAX(0, cy - side / 2); y < TS_MIN(v->height, cy - side / 2 + side); y++)
            for (int64_t x = TS_MAX(0, cx - side / 2); x < TS_MIN(v->width, cx - side / 2 + side);
                 x++)
                sample[(c * v->height + y) * v->width + x] = 0;
}

/* --- all --- */

static ts_status out_of_range(const char *what, double v, double high)
{
    return ts_fail(TS_ERR_ARG, "augment: %s is %g; it can be 0 to %g", what, v, high);
}

ts_status ts_augment_check(const ts_augment *how, const ts_array *sample)
{
    const struct {
        const char *name;
        double v, high;
    } all[] = {{"flip", how->flip, 1},
               {"flip_vertical", how->flip_vertical, 1},
               {"shift", how->shift, 1024},
               {"rotate", how->rotate, 180},
               {"brightness", how->brightness, 1},
               {"contrast", how->contrast, 1},
               {"saturation", how->saturation, 1},
               {"cutout", how->cutout, 4096},
               {"mixup", how->mixup, 4}};

    for (int i = 0; i < TS_COUNT(all); i++)
        if (!(all[i].v >= 0 && all[i].v <= all[i].high))
            return out_of_range(all[i].name, all[i].v, all[i].high);
    if (sample->rank == 3 && sample->dtype != TS_I32)
        return TS_OK;
    return ts_fail(TS_ERR_SHAPE,
                   "only images, channels x height x width, can be augmented; the "
                   "samples are of rank %d",
                   sample->rank);
}

void ts_augment_run(const ts_augment *how, const ts_array *shape, const ts_normalize *normal,
                    uint64_t random, float *sample, float *scratch, int32_t *labels, int64_t n)
{
    view v = {shape->dims[0], shape->dims[1], shape->dims[2], .normal = normal};
    uint64_t state = random;
    double angle = between(&state, -how->rotate, how->rotate) * M_PI / 180;

    v.turned = how->rotate > 0;
    v.cosine = cos(angle);
    v.sine = sin(angle);
    v.dx = floor(between(&state, -how->shift, how->shift + 1.0));
    v.dy = floor(between(&state, -how->shift, how->shift + 1.0));
    v.mirrored = unit(&state) < how->flip;
    v.upside_down = unit(&state) < how->flip_vertical;
    if (v.turned || v.dx != 0 || v.dy != 0 || v.mirrored || v.upside_down) {
        move(&v, sample, scratch);
        move_labels(&v, labels, n, scratch);
    }
    if (how->brightness > 0 || how->contrast > 0 || how->saturation > 0)
        vary(&v, how, &state, sample);
    if (how->cutout > 0)
        cut_out(&v, how->cutout, &state, sample);
}
