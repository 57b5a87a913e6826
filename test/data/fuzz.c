/* fuzz.c - damaged files of every format that data/ reads itself: refused or read, never more. */
#include "fuzz.h"
#include "data/data.h"
#include "images.h"
#include <zlib.h>

enum { RUNS = 20000, IMAGE_RUNS = 6000 };

static void parse_idx(const uint8_t *data, size_t len)
{
    ts_idx idx;
    unsigned sum = 0;

    if (ts_idx_parse("fuzz", data, len, &idx))
        return;
    assert_true(idx.bytes <= len);
    for (size_t i = 0; i < idx.bytes; i++) /* every byte is there */
        sum += idx.body[i];
    assert_true(sum <= 255 * idx.bytes);
}

static void fuzz_idx(void **state)
{
    static const uint8_t images[] = {0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 2,
                                     0, 0, 0, 2, 1, 2, 3, 4, 5, 6, 7, 8};
    static const uint8_t labels[] = {0, 0, 8, 1, 0, 0, 0, 3, 1, 2, 3};

    (void)state;
    fuzz("IDX", (const void *[]){images, labels}, (size_t[]){sizeof(images), sizeof(labels)}, 2,
         RUNS, parse_idx);
}

static void unpack(const uint8_t *data, size_t len)
{
    void *out;
    size_t n;

    if (ts_gzip_unpack("fuzz", data, len, 1 << 16, &out, &n))
        return;
    assert_true(n <= 1 << 16);
    free(out);
}

/* A seed that is no good itself would fuzz nothing. */
static void unpack_whole(const uint8_t *data, size_t len, const char *want)
{
    void *out;
    size_t n;

    assert_ok(ts_gzip_unpack("seed", data, len, 1000, &out, &n));
    assert_int_equal(n, strlen(want));
    assert_memory_equal(out, want, n);
    free(out);
}

static void fuzz_gzip(void **state)
{
    /* gzip of "tessera tessera tessera", with a name in its header */
    static const uint8_t named[] = {0x1f, 0x8b, 8,    8,    0,    0,    0,    0,
                                    2,    0xff, 'n',  0,    0x2b, 0x49, 0x2d, 0x2e,
                                    0x4e, 0x2d, 0x4a, 0x54, 0x28, 0x41, 0xa5, 0x01,
                                    0x38, 0x88, 0x24, 0x6b, 0x17, 0,    0,    0};
    uint8_t text[3000], packed[4000];
    z_stream z = {.next_in = text, .avail_in = sizeof(text)};

    (void)state;
    unpack_whole(named, sizeof(named), "tessera tessera tessera");
    for (size_t i = 0; i < sizeof(text); i++)
        text[i] = (uint8_t)(i * i >> 7);
    assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
    z.next_out = packed;
    z.avail_out = sizeof(packed);
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    deflateEnd(&z);
    fuzz("gzip", (const void *[]){packed, named}, (size_t[]){z.total_out, sizeof(named)}, 2, RUNS,
         unpack);
}

static ts_status parse_table(const uint8_t *data, size_t len, ts_dataset_options o, ts_dataset **d)
{
    char *text = malloc(len + 1);
    ts_status s;

    memcpy(text, data, len);
    text[len] = 0;
    s = ts_csv_parse("fuzz", text, len, &o, d);
    free(text);
    return s;
}

/* What reads, reads again by the description that it gives of its columns, to the same numbers. */
static void parse_csv(const uint8_t *data, size_t len)
{
    static const char *const missing[] = {NULL, "mean", "drop"};
    ts_dataset_options o = {.header = len % 3 ? 0 : 1,
                            .missing = missing[len % 5 % 3],
                            .label = len % 7 ? NULL : "0,-1",
                            .task = len % 11 ? TS_TASK_AUTO : TS_TASK_NUMBERS};
    ts_dataset *d = NULL, *again = NULL;

    if (parse_table(data, len, o, &d))
        return;
    assert_true(ts_dataset_count(d) > 0 &&
                (ts_dataset_classes(d) > 0 || ts_dataset_target_count(d) > 0));
    o.columns = ts_dataset_columns(d);
    if (!parse_table(data, len, o, &again)) {
        assert_int_equal(d->sample.bytes, again->sample.bytes);
        assert_memory_equal(d->sample.data, again->sample.data,
                            d->sample.bytes * (size_t)TS_MIN(d->count, again->count));
    }
    ts_dataset_free(again);
    ts_dataset_free(d);
}

static void fuzz_csv(void **state)
{
    static const char named[] =
        "length,\"wi\ndth\",label\r\n5.1,3.5,\"se\"\"tosa\"\r\n1e-3, 2 ,b\r\n";
    static const char plain[] = "1,2,3,0\n4,5,6,1\n7,8,9,2\n";

    (void)state;
    fuzz("CSV", (const void *[]){named, plain}, (size_t[]){sizeof(named) - 1, sizeof(plain) - 1}, 2,
         RUNS, parse_csv);
}

static void decode(const uint8_t *data, size_t len)
{
    const ts_image_options o = {.width = 5, .height = 4, .channels = 1, .invert_light = true};
    ts_image im;

    if (ts_image_decode("fuzz", data, len, &im))
        return;
    assert_ok(ts_image_apply(&o, &im));
    assert_int_equal(im.width, 5);
    free(im.pixels);
}

/* With the checksum of every chunk put right, so that what is in them is looked at. */
static void decode_png(const uint8_t *data, size_t len)
{
    uint8_t *copy = malloc(len + 1);
    size_t at = 8;

    memcpy(copy, data, len);
    while (at + 12 <= len) {
        size_t n = (size_t)copy[at] << 24 | (size_t)copy[at + 1] << 16 | (size_t)copy[at + 2] << 8 |
                   copy[at + 3];
        uLong sum;
        if (n > len - at - 12)
            break;
        sum = crc32(0, copy + at + 4, (uInt)n + 4);
        for (int i = 0; i < 4; i++)
            copy[at + 8 + n + (size_t)i] = (uint8_t)(sum >> (24 - 8 * i));
        at += 12 + n;
    }
    decode(copy, len);
    free(copy);
}

static void fuzz_images(const char *name, int n, const char *const *files,
                        void (*one)(const uint8_t *data, size_t len))
{
    void *seeds[8];
    size_t lens[8];

    needs_image_libraries();
    for (int i = 0; i < n; i++)
        seeds[i] = image_bytes(files[i], &lens[i]);
    fuzz(name, (const void *const *)seeds, lens, n, IMAGE_RUNS, one);
    for (int i = 0; i < n; i++)
        free(seeds[i]);
}

static void fuzz_png(void **state)
{
    (void)state;
    fuzz_images("PNG", 5,
                (const char *const[]){"adam7.png", "bits1.png", "gray16.png",
                                      "palette_transparent.png", "rgba.png"},
                decode_png);
}

static void fuzz_jpeg(void **state)
{
    (void)state;
    fuzz_images("JPEG", 4,
                (const char *const[]){"cmyk.jpg", "gray.jpg", "rgb.jpg", "progressive.jpg"},
                decode);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fuzz_idx), cmocka_unit_test(fuzz_gzip), cmocka_unit_test(fuzz_csv),
        cmocka_unit_test(fuzz_png), cmocka_unit_test(fuzz_jpeg),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
