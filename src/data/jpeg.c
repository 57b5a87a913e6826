/* jpeg.c - JPEG through libjpeg, with the pixels that Pillow's convert gives: libjpeg's defaults
 * for gray and colour, and for four inks (CMYK, stored inverted as Adobe does) Pillow's formula.
 *
 * libjpeg reports errors through a function that must not return; all that lives across the longjmp
 * is in `reading`.
 */
#include "data/data.h"

#ifdef TS_HAVE_JPEG
#include <setjmp.h>

#include <jpeglib.h> /* wants stdio.h before it */

#include <jerror.h>

enum {
    MOST_RATIO = 2048, /* pixels a byte; an empty picture needs a bit for each 64 of them */
    MOST_SCANS = 200,  /* of a progressive file; each costs a walk over the whole image */
};

typedef struct reading {
    struct jpeg_error_mgr errors; /* first: libjpeg hands us a pointer to it */
    struct jpeg_progress_mgr progress;
    struct jpeg_decompress_struct j;
    jmp_buf back;
    const char *path;
    size_t len;
    ts_image im;
    uint8_t *inks; /* one row of four-ink pixels */
    ts_status status;
} reading;

static void on_error(j_common_ptr j)
{
    reading *r = (reading *)j->err;
    char message[JMSG_LENGTH_MAX];

    j->err->format_message(j, message);
    r->status = ts_fail(TS_ERR_CORRUPT, "%s does not read as a JPEG image: %s", r->path, message);
    longjmp(r->back, 1);
}

/* Level -1 is damage. Odd bytes are shrugged off, as Pillow does; a file that ends early is not. */
static void on_message(j_common_ptr j, int level)
{
    if (level < 0 && j->err->msg_code == JWRN_JPEG_EOF)
        on_error(j);
}

static void on_progress(j_common_ptr j)
{
    reading *r = (reading *)j->err;

    if (r->j.input_scan_number <= MOST_SCANS)
        return;
    r->status = ts_fail(TS_ERR_CORRUPT, "%s has more than %d scans", r->path, MOST_SCANS);
    longjmp(r->back, 1);
}

static ts_status start(reading *r)
{
    struct jpeg_decompress_struct *j = &r->j;

    TS_TRY(ts_image_check(r->path, j->image_width, j->image_height, r->len, MOST_RATIO));
    if (j->num_components != 1 && j->num_components != 3 && j->num_components != 4)
        return ts_fail(TS_ERR_UNSUPPORTED, "%s has %d channels; we read 1, 3 and 4", r->path,
                       j->num_components);
    jpeg_start_decompress(j);
    r->im = (ts_image){(int)j->output_width, (int)j->output_height,
                       j->output_components == 1 ? 1 : 3, NULL};
    TS_TRY(ts_alloc((size_t)r->im.width * (size_t)r->im.height * (size_t)r->im.channels, "an image",
                    (void **)&r->im.pixels));
    if (j->output_components == 4)
        return ts_alloc((size_t)r->im.width * 4, "an image", (void **)&r->inks);
    return TS_OK;
}

/* a * b / 255, rounded */
static int share(int a, int b)
{
    int x = a * b + 128;

    return (x + (x >> 8)) >> 8;
}

/* What each ink leaves of the light that black leaves. Stored inverted: 255 is no ink. */
static void mix_inks(const uint8_t *inks, int n, uint8_t *rgb)
{
    for (int i = 0; i < n; i++, inks += 4)
        for (int c = 0; c < 3; c++)
            *rgb++ = (uint8_t)(inks[3] - share(255 - inks[c], inks[3]));
}

static void read_rows(reading *r)
{
    size_t row = (size_t)r->im.width * (size_t)r->im.channels;

    while (r->j.output_scanline < r->j.output_height) {
        uint8_t *to = r->im.pixels + r->j.output_scanline * row;
        JSAMPROW line = r->inks ? r->inks : to;
        jpeg_read_scanlines(&r->j, &line, 1);
        if (r->inks)
            mix_inks(r->inks, r->im.width, to);
    }
}

/* False: r->status says why. */
static bool decode(reading *r, const void *data)
{
    if (setjmp(r->back))
        return false;
    jpeg_create_decompress(&r->j);
    r->progress.progress_monitor = on_progress;
    r->j.progress = &r->progress;
    jpeg_mem_src(&r->j, data, r->len);
    jpeg_read_header(&r->j, TRUE);
    r->status = start(r);
    if (r->status)
        return false;
    read_rows(r);
    return true;
}

ts_status ts_jpeg_decode(const char *path, const void *data, size_t len, ts_image *out)
{
    reading r = {.path = path, .len = len};
    bool good;

    r.j.err = jpeg_std_error(&r.errors);
    r.errors.error_exit = on_error;
    r.errors.emit_message = on_message;
    good = decode(&r, data);
    jpeg_destroy_decompress(&r.j);
    free(r.inks);
    if (!good) {
        free(r.im.pixels);
        return r.status;
    }
    *out = r.im;
    return TS_OK;
}

#else

ts_status ts_jpeg_decode(const char *path, const void *data, size_t len, ts_image *out)
{
    (void)data, (void)len, (void)out;
    ts_fail(TS_ERR_UNSUPPORTED, "%s is a JPEG image, and this build cannot read them", path);
    ts_error_hint("build Tessera with libjpeg (Debian: libjpeg62-turbo-dev)");
    return TS_ERR_UNSUPPORTED;
}

#endif
