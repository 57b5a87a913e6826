/* image.c - one image: read, resized, made gray, inverted; and the same for whole datasets.
 *
 * The steps and their order are those that people take with Pillow and torchvision, and every pixel
 * is theirs. Where the camera says the picture lies on its side (EXIF) we leave it so, as they do.
 */
#include "data/data.h"
#include <math.h>

enum {
    MOST_PIXELS = 1 << 26, /* of one image: 64 million */
    MOST_SIDE = 1 << 16,
    LIGHT = 200, /* a background above this is light */
};

ts_status ts_image_check(const char *path, int64_t width, int64_t height, size_t len, int most)
{
    if (width < 1 || height < 1)
        return ts_fail(TS_ERR_CORRUPT, "%s has no pixels", path);
    if (width > MOST_SIDE || height > MOST_SIDE || width * height > MOST_PIXELS)
        return ts_fail(TS_ERR_UNSUPPORTED,
                       "%s has %ld x %ld pixels; we read up to %d a side and %d in all", path,
                       (long)width, (long)height, MOST_SIDE, MOST_PIXELS);
    if ((size_t)(width * height) / (size_t)most > len)
        return ts_fail(TS_ERR_CORRUPT, "%s claims %ld x %ld pixels and has only %zu bytes", path,
                       (long)width, (long)height, len);
    return TS_OK;
}

ts_status ts_image_decode(const char *path, const void *data, size_t len, ts_image *out)
{
    static const uint8_t png[] = {0x89, 'P', 'N', 'G', 0x0d, 0x0a, 0x1a, 0x0a};
    static const uint8_t jpeg[] = {0xff, 0xd8, 0xff};

    *out = (ts_image){0};
    if (len >= sizeof(png) && !memcmp(data, png, sizeof(png)))
        return ts_png_decode(path, data, len, out);
    if (len >= sizeof(jpeg) && !memcmp(data, jpeg, sizeof(jpeg)))
        return ts_jpeg_decode(path, data, len, out);
    ts_fail(TS_ERR_PARSE, "%s is neither a PNG nor a JPEG image", path);
    ts_error_hint(len ? "convert it to PNG or JPEG; in a folder of images, or move it out"
                      : "it is empty");
    return TS_ERR_PARSE;
}

/* --- changing pixels --- */

static size_t pixel_count(const ts_image *im)
{
    return (size_t)im->width * (size_t)im->height;
}

/* The weights of ITU-R 601 in 16 fraction bits, rounded; they add up to 1, so gray stays gray. In
 * place: a pixel is written where or before it was read. */
static void make_gray(ts_image *im)
{
    const uint8_t *from = im->pixels;

    for (size_t i = 0; i < pixel_count(im); i++, from += 3)
        im->pixels[i] =
            (uint8_t)((from[0] * 19595 + from[1] * 38470 + from[2] * 7471 + 0x8000) >> 16);
    im->channels = 1;
}

static ts_status make_colour(ts_image *im)
{
    uint8_t *pixels;

    TS_TRY(ts_alloc(3 * pixel_count(im), "an image", (void **)&pixels));
    for (size_t i = 0; i < pixel_count(im); i++)
        memset(pixels + 3 * i, im->pixels[i], 3);
    free(im->pixels);
    im->pixels = pixels;
    im->channels = 3;
    return TS_OK;
}

static ts_status invert_light(ts_image *im)
{
    if (im->width < 2 || im->height < 2)
        return ts_fail(TS_ERR_SHAPE, "an image of %d x %d has no pixel in column 1, row 1",
                       im->width, im->height);
    if (im->pixels[im->width + 1] <= LIGHT)
        return TS_OK;
    for (size_t i = 0; i < pixel_count(im); i++)
        im->pixels[i] = 255 - im->pixels[i];
    return TS_OK;
}

/* Halves are rounded to even, as Python rounds. In place: a pixel moves forward only. */
static void take_middle(const ts_image_options *opt, ts_image *im)
{
    int top = (int)rint((im->height - opt->height) / 2.0);
    int left = (int)rint((im->width - opt->width) / 2.0);
    size_t row = (size_t)opt->width * (size_t)im->channels;

    for (int y = 0; y < opt->height; y++)
        memmove(im->pixels + (size_t)y * row,
                im->pixels +
                    ((size_t)(y + top) * (size_t)im->width + (size_t)left) * (size_t)im->channels,
                row);
    im->height = opt->height;
    im->width = opt->width;
}

static ts_status resize(const ts_image_options *opt, ts_image *im)
{
    bool tall = im->height > im->width;
    int width = opt->width, height = opt->height;
    ts_image out;

    if (opt->shorter) {
        width = tall ? opt->shorter : (int)((int64_t)opt->shorter * im->width / im->height);
        height = tall ? (int)((int64_t)opt->shorter * im->height / im->width) : opt->shorter;
    }
    if ((int64_t)width * height > MOST_PIXELS)
        return ts_fail(TS_ERR_UNSUPPORTED, "an image cannot be resized to %d x %d pixels", width,
                       height);
    TS_TRY(ts_resize(im, width, height, opt->filter, &out));
    free(im->pixels);
    *im = out;
    if (opt->shorter)
        take_middle(opt, im);
    return TS_OK;
}

ts_status ts_image_options_check(const ts_image_options *opt)
{
    if (opt->height < 0 || opt->width < 0 || !opt->height != !opt->width ||
        opt->height > MOST_SIDE || opt->width > MOST_SIDE)
        return ts_fail(TS_ERR_ARG, "an image cannot be resized to %d x %d", opt->height,
                       opt->width);
    if (opt->shorter < 0 || opt->shorter > 4096 ||
        (opt->shorter && (!opt->height || opt->shorter < opt->height || opt->shorter < opt->width)))
        return ts_fail(TS_ERR_ARG,
                       "%d x %d pixels cannot be taken out of an image whose shorter side has %d",
                       opt->height, opt->width, opt->shorter);
    if (opt->filter != TS_FILTER_BILINEAR && opt->filter != TS_FILTER_BICUBIC)
        return ts_fail(TS_ERR_ARG, "there is no filter %d", (int)opt->filter);
    if (opt->channels != 0 && opt->channels != 1 && opt->channels != 3)
        return ts_fail(TS_ERR_ARG, "an image has 1 or 3 channels, not %d", opt->channels);
    return TS_OK;
}

ts_status ts_image_apply(const ts_image_options *opt, ts_image *im)
{
    if (opt->height)
        TS_TRY(resize(opt, im));
    if (opt->channels == 1 && im->channels == 3)
        make_gray(im);
    if (opt->channels == 3 && im->channels == 1)
        TS_TRY(make_colour(im));
    if (!opt->invert_light)
        return TS_OK;
    if (im->channels != 1) {
        ts_fail(TS_ERR_ARG, "invert_light needs grayscale images");
        ts_error_hint("ask for 1 channel too");
        return TS_ERR_ARG;
    }
    return invert_light(im);
}

/* --- one file --- */

ts_status ts_image_read(const char *path, const ts_image_options *opt, ts_image *out)
{
    ts_image_options o = *opt;
    char *data;
    size_t len;
    ts_status s;

    *out = (ts_image){0};
    o.channels = o.channels ? o.channels : 3;
    TS_TRY(ts_file_read(path, &data, &len));
    s = ts_image_decode(path, data, len, out);
    free(data);
    if (!s)
        s = ts_image_apply(&o, out);
    if (s) {
        free(out->pixels);
        *out = (ts_image){0};
    }
    return s;
}

void ts_image_to_planes(const ts_image *im, uint8_t *out)
{
    size_t n = pixel_count(im), c = (size_t)im->channels;

    for (size_t p = 0; p < c; p++)
        for (size_t i = 0; i < n; i++)
            *out++ = im->pixels[i * c + p];
}

static ts_status load(const char *path, const ts_image_options *opt, ts_array *out)
{
    ts_image im;
    ts_status s;

    TS_TRY(ts_image_options_check(opt));
    TS_TRY(ts_image_read(path, opt, &im));
    *out = (ts_array){.dtype = TS_U8,
                      .rank = 3,
                      .dims = {im.channels, im.height, im.width},
                      .bytes = pixel_count(&im) * (size_t)im.channels};
    s = ts_alloc(out->bytes, "an image", &out->data);
    if (!s)
        ts_image_to_planes(&im, out->data);
    free(im.pixels);
    return s;
}

ts_status ts_image_load_sized(const char *path, const ts_image_options *opt, size_t size,
                              ts_array *out)
{
    ts_image_options own;
    ts_status s;

    *out = (ts_array){0};
    TS_TRY(ts_take_sized("ts_image_load", opt, size, &own, sizeof(own)));
    s = load(path, &own, out);
    if (s)
        ts_error_doing("loading an image");
    return s;
}

/* --- a dataset --- */

static ts_status from_planes(const ts_dataset *d, int64_t sample, ts_image *im)
{
    const uint8_t *from = ts_dataset_at(d, sample);
    size_t n, c = (size_t)d->sample.dims[0];

    *im = (ts_image){(int)d->sample.dims[2], (int)d->sample.dims[1], (int)c, NULL};
    n = pixel_count(im);
    TS_TRY(ts_alloc(n * c, "an image", (void **)&im->pixels));
    for (size_t i = 0; i < n; i++)
        for (size_t p = 0; p < c; p++)
            im->pixels[i * c + p] = from[p * n + i];
    return TS_OK;
}

static ts_status apply_all(const ts_image_options *opt, const ts_dataset *d, ts_dataset **out)
{
    for (int64_t i = 0; i < d->count; i++) {
        ts_image im;
        ts_status s = from_planes(d, i, &im);
        if (!s)
            s = ts_image_apply(opt, &im);
        if (!s && !*out)
            s = ts_dataset_new(TS_U8, d->count, 3, (int64_t[]){im.channels, im.height, im.width},
                               out);
        if (!s)
            ts_image_to_planes(&im, ts_dataset_at(*out, i));
        free(im.pixels);
        TS_TRY(s);
    }
    return TS_OK;
}

static ts_status are_images(const ts_dataset *d)
{
    const ts_array *a = &d->sample;

    if (a->dtype == TS_U8 && a->rank == 3 && (a->dims[0] == 1 || a->dims[0] == 3) &&
        a->dims[1] <= MOST_SIDE && a->dims[2] <= MOST_SIDE)
        return TS_OK;
    return ts_fail(TS_ERR_TYPE,
                   "only u8 images of 1 or 3 channels can be resized, made gray or inverted; the "
                   "samples are %s of rank %d",
                   ts_dtype_name(a->dtype), a->rank);
}

ts_status ts_dataset_apply(const ts_image_options *opt, ts_dataset **d)
{
    ts_dataset *from = *d, *to = NULL;
    int32_t *labels = from->labels;
    ts_arena *arena = from->arena;
    ts_status s;

    if (!opt->height && !opt->channels && !opt->invert_light)
        return TS_OK;
    TS_TRY(are_images(from));
    if (opt->height && from->label_rank)
        return ts_fail(TS_ERR_UNSUPPORTED,
                       "pictures with labels of pixels cannot be resized, only downsampled");
    s = apply_all(opt, from, &to);
    if (s) {
        ts_dataset_free(to);
        return s;
    }
    /* What is not pixels moves over as it is. */
    from->labels = to->labels;
    from->arena = to->arena;
    to->targets = from->targets;
    to->ntargets = from->ntargets;
    to->target_names = from->target_names;
    from->targets = NULL;
    to->labels = labels;
    to->nlabels = from->nlabels;
    to->label_rank = from->label_rank;
    memcpy(to->label_dims, from->label_dims, sizeof(to->label_dims));
    to->arena = arena;
    to->nclasses = from->nclasses;
    to->classes = from->classes;
    ts_dataset_free(from);
    *d = to;
    return TS_OK;
}
