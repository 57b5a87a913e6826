/* fuzz.c - damaged files of every format that data/ reads itself: refused or read, never more. */
#include "fuzz.h"
#include "data/data.h"
#include "graph/graph.h"
#include "images.h"
#include "support.h"
#include "tessera/store.h"
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

/* --- arrays by their names --- */

static ts_object *new_array(ts_dtype t, int rank, const int64_t *dims)
{
    ts_array a = {.dtype = t, .rank = rank};
    int64_t n = 1;
    ts_object *o;

    for (int i = 0; i < rank; i++)
        n *= a.dims[i] = dims[i];
    a.bytes = (size_t)n * ts_dtype_size(t);
    assert_ok(ts_alloc(a.bytes, "array", &a.data));
    for (int64_t i = 0; i < n; i++)
        ts_dtype_set(t, a.data, i, (double)(i % 2));
    o = ts_object_new_tensor(&a);
    free(a.data);
    return o;
}

/* Samples in three arrays, labels in two. */
static ts_object *named_arrays(void)
{
    ts_object *o = ts_object_new_dict();

    assert_ok(ts_object_set(o, "a_train", new_array(TS_F32, 2, (int64_t[]){4, 3})));
    assert_ok(ts_object_set(o, "b", new_array(TS_U8, 3, (int64_t[]){4, 2, 2})));
    assert_ok(ts_object_set(o, "c", new_array(TS_I64, 1, (int64_t[]){4})));
    assert_ok(ts_object_set(o, "y", new_array(TS_I32, 1, (int64_t[]){4})));
    assert_ok(ts_object_set(o, "z", new_array(TS_F64, 2, (int64_t[]){4, 2})));
    return o;
}

/* What reads has as many numbers as it says, all of them there. */
static bool takes(const ts_object *o, const char *samples, const char *label, ts_task task)
{
    ts_dataset_options opt = {.name = "fuzz", .samples = samples, .label = label, .task = task};
    ts_dataset *d = NULL;
    double sum = 0;
    bool good = !ts_numpy_take(o, &opt, &d);

    if (good) {
        ts_array all = ts_dataset_samples(d);
        assert_int_equal(all.bytes, d->sample.bytes * (size_t)d->count);
        for (size_t i = 0; i < all.bytes / ts_dtype_size(all.dtype); i++)
            sum += ts_dtype_get(all.dtype, all.data, (int64_t)i);
        for (int64_t i = 0; i < d->count * ts_dataset_target_count(d); i++)
            sum += (double)ts_dataset_targets(d)[i];
        assert_true(sum == sum || sum != sum);
    }
    ts_dataset_free(d);
    return good;
}

static void take_arrays(const uint8_t *data, size_t len)
{
    static const char *const samples[] = {"a,b,c", "b", NULL, "a,c", "c,b,a,c"};
    static const char *const labels[] = {NULL, "y", "y,z", "z", "b"};
    static const ts_task tasks[] = {TS_TASK_AUTO, TS_TASK_NUMBERS, TS_TASK_CLASSES};
    ts_object *o;

    if (ts_object_load_memory(data, len, &o))
        return;
    takes(o, samples[len % 5], labels[len / 5 % 5], tasks[len % 3]);
    ts_object_free(o);
}

static void fuzz_arrays(void **state)
{
    char *folder = test_folder(), path[4096], *data;
    ts_object *o = named_arrays();
    size_t len;

    (void)state;
    snprintf(path, sizeof(path), "%s/a.npz", folder);
    assert_ok(ts_object_save(o, path, TS_FILE_NPZ));
    assert_ok(ts_file_read(path, &data, &len));
    fuzz("named arrays", (const void *[]){data}, (size_t[]){len}, 1, RUNS / 4, take_arrays);
    free(data);
    ts_object_free(o);
    test_folder_remove(folder);
    free(folder);
}

static ts_object *five;

static void take_names(const uint8_t *data, size_t len)
{
    char *text = malloc(len + 1), *bar;

    memcpy(text, data, len);
    text[len] = 0;
    bar = strchr(text, '|');
    if (bar)
        *bar = 0;
    takes(five, text, bar ? bar + 1 : NULL, TS_TASK_AUTO);
    free(text);
}

static void fuzz_names(void **state)
{
    static const char two[] = "a,b|y", many[] = "a,b,c,a,b,c|y,z";

    (void)state;
    five = named_arrays();
    assert_true(takes(five, "a,b", "y", TS_TASK_AUTO) && takes(five, "c", "y,z", TS_TASK_AUTO));
    assert_false(takes(five, "a,,b", NULL, TS_TASK_AUTO) || takes(five, "a,", NULL, TS_TASK_AUTO) ||
                 takes(five, "a", "y,", TS_TASK_AUTO) || takes(five, "", NULL, TS_TASK_AUTO) ||
                 takes(five, "b,b,b,b,b,b,b,b,b,b,b,b,b,b,b,b,b", NULL, TS_TASK_AUTO));
    fuzz("names of arrays", (const void *[]){two, many},
         (size_t[]){sizeof(two) - 1, sizeof(many) - 1}, 2, RUNS, take_names);
    ts_object_free(five);
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
        cmocka_unit_test(fuzz_idx),    cmocka_unit_test(fuzz_gzip),  cmocka_unit_test(fuzz_csv),
        cmocka_unit_test(fuzz_arrays), cmocka_unit_test(fuzz_names), cmocka_unit_test(fuzz_png),
        cmocka_unit_test(fuzz_jpeg),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
