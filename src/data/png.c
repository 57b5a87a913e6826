/* png.c - PNG through libpng, with the pixels that Pillow's convert gives.
 *
 *   palette                      colours of the palette; its transparency is dropped
 *   gray of 1, 2, 4 bits         scaled to 0..255
 *   gray of 16 bits              values above 255 become 255 (Pillow reads them as integers)
 *   others of 16 bits            the high byte
 *   alpha                        dropped, whatever is below
 *
 * libpng reports errors by longjmp; all that lives across one is in `reading`.
 */
#include "data/data.h"

#ifdef TS_HAVE_PNG
#include <png.h>

enum {
    MOST_RATIO =
        8 * 1032,         /* pixels a byte: eight of one bit in each that deflate can make of one */
    MOST_CHUNK = 8 << 20, /* of anything but pixels */
};

typedef struct reading {
    const char *path;
    const uint8_t *data;
    size_t len, at;
    png_structp png;
    png_infop info;
    png_bytep *rows;
    ts_image im;
    bool wide; /* gray of 16 bits */
    ts_status status;
} reading;

static void on_error(png_structp png, png_const_charp message)
{
    reading *r = png_get_error_ptr(png);

    r->status = ts_fail(TS_ERR_CORRUPT, "%s does not read as a PNG image: %s", r->path, message);
    png_longjmp(png, 1);
}

static void on_warning(png_structp png, png_const_charp message)
{
    (void)png, (void)message;
}

static void on_read(png_structp png, png_bytep to, size_t n)
{
    reading *r = png_get_io_ptr(png);

    if (n > r->len - r->at)
        png_error(png, "it is cut short");
    memcpy(to, r->data + r->at, n);
    r->at += n;
}

static void ask_for_bytes(reading *r)
{
    int type = png_get_color_type(r->png, r->info), depth = png_get_bit_depth(r->png, r->info);

    r->wide = depth == 16 && type == PNG_COLOR_TYPE_GRAY;
    if (type == PNG_COLOR_TYPE_PALETTE)
        png_set_palette_to_rgb(r->png);
    if (type == PNG_COLOR_TYPE_GRAY && depth < 8)
        png_set_expand_gray_1_2_4_to_8(r->png);
    if (depth == 16 && !r->wide)
        png_set_strip_16(r->png);
    png_set_strip_alpha(r->png);
    png_set_interlace_handling(r->png);
    png_read_update_info(r->png, r->info);
}

static ts_status allocate(reading *r)
{
    size_t row = png_get_rowbytes(r->png, r->info), height = (size_t)r->im.height;

    TS_TRY(ts_alloc(row * height, "an image", (void **)&r->im.pixels));
    TS_TRY(ts_alloc(height * sizeof(png_bytep), "an image", (void **)&r->rows));
    for (size_t y = 0; y < height; y++)
        r->rows[y] = r->im.pixels + y * row;
    return TS_OK;
}

/* False: r->status says why. */
static bool decode(reading *r)
{
    if (setjmp(png_jmpbuf(r->png)))
        return false;
    png_set_read_fn(r->png, r, on_read);
    png_set_chunk_malloc_max(r->png, MOST_CHUNK);
    png_read_info(r->png, r->info);
    r->status = ts_image_check(r->path, png_get_image_width(r->png, r->info),
                               png_get_image_height(r->png, r->info), r->len, MOST_RATIO);
    if (r->status)
        return false;
    ask_for_bytes(r);
    r->im.width = (int)png_get_image_width(r->png, r->info);
    r->im.height = (int)png_get_image_height(r->png, r->info);
    r->im.channels = png_get_channels(r->png, r->info);
    r->status = allocate(r);
    if (r->status)
        return false;
    png_read_image(r->png, r->rows);
    return true;
}

/* In place: two bytes, the high one first, become one. */
static void clip_wide(ts_image *im)
{
    const uint8_t *from = im->pixels;

    for (size_t i = 0; i < (size_t)im->width * (size_t)im->height; i++, from += 2)
        im->pixels[i] = from[0] ? 255 : from[1];
}

ts_status ts_png_decode(const char *path, const void *data, size_t len, ts_image *out)
{
    reading r = {.path = path, .data = data, .len = len};
    bool good;

    r.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &r, on_error, on_warning);
    r.info = r.png ? png_create_info_struct(r.png) : NULL;
    if (!r.info) {
        png_destroy_read_struct(&r.png, NULL, NULL);
        return ts_fail(TS_ERR_MEMORY, "cannot allocate memory to read %s", path);
    }
    good = decode(&r);
    png_destroy_read_struct(&r.png, &r.info, NULL);
    free(r.rows);
    if (!good) {
        free(r.im.pixels);
        return r.status;
    }
    if (r.wide)
        clip_wide(&r.im);
    *out = r.im;
    return TS_OK;
}

#else

ts_status ts_png_decode(const char *path, const void *data, size_t len, ts_image *out)
{
    (void)data, (void)len, (void)out;
    ts_fail(TS_ERR_UNSUPPORTED, "%s is a PNG image, and this build cannot read them", path);
    ts_error_hint("build Tessera with libpng (Debian: libpng-dev)");
    return TS_ERR_UNSUPPORTED;
}

#endif
