/* idx.c - IDX files: what they hold, packed or not, and everything that can be wrong with them. */
#include "data/data.h"
#include "support.h"
#include <zlib.h>

enum { COUNT = 5, SIDE = 4, PIXELS = SIDE * SIDE };

typedef struct place {
    char *folder;
    uint8_t images[16 + COUNT * PIXELS], labels[8 + COUNT];
} place;

static void put_word(uint8_t *to, uint32_t x)
{
    for (int i = 0; i < 4; i++)
        to[i] = (uint8_t)(x >> (24 - 8 * i));
}

static void fill(place *p)
{
    memset(p->images, 0, sizeof(p->images));
    put_word(p->images, 0x803);
    put_word(p->images + 4, COUNT);
    put_word(p->images + 8, SIDE);
    put_word(p->images + 12, SIDE);
    for (int i = 0; i < COUNT * PIXELS; i++)
        p->images[16 + i] = (uint8_t)(3 * i);
    put_word(p->labels, 0x801);
    put_word(p->labels + 4, COUNT);
    for (int i = 0; i < COUNT; i++)
        p->labels[8 + i] = (uint8_t)((2 * i) % 3);
}

static int setup(void **state)
{
    place *p = calloc(1, sizeof(*p));

    p->folder = test_folder();
    fill(p);
    *state = p;
    return 0;
}

static int teardown(void **state)
{
    place *p = *state;

    ts_fault_arm(NULL, -1);
    test_folder_remove(p->folder);
    free(p->folder);
    free(p);
    return 0;
}

static const char *in_folder(const place *p, const char *name)
{
    static char path[4096];

    snprintf(path, sizeof(path), "%s/%s", p->folder, name);
    return path;
}

static void save(const place *p, const char *name, const void *data, size_t len)
{
    assert_ok(ts_file_write(in_folder(p, name), data, len));
}

/* gzip's bytes of data, free() them. */
static uint8_t *pack(const void *data, size_t len, size_t *packed)
{
    z_stream z = {0};
    uint8_t *out = malloc(len + 1024);

    assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
    z.next_in = (Bytef *)data;
    z.avail_in = (uInt)len;
    z.next_out = out;
    z.avail_out = (uInt)(len + 1024);
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    *packed = z.total_out;
    deflateEnd(&z);
    return out;
}

static void save_packed(const place *p, const char *name, const void *data, size_t len)
{
    size_t packed;
    uint8_t *bytes = pack(data, len, &packed);

    save(p, name, bytes, packed);
    free(bytes);
}

static void save_both(const place *p)
{
    save(p, "train-images-idx3-ubyte", p->images, sizeof(p->images));
    save_packed(p, "train-labels-idx1-ubyte.gz", p->labels, sizeof(p->labels));
}

static ts_status open_set(const place *p, int64_t limit, ts_dataset **d)
{
    return ts_dataset_load(&(ts_dataset_options){.name = p->folder, .limit = limit}, d);
}

static void assert_refused(const place *p, ts_status code, const char *words)
{
    ts_dataset *d;
    const char *message = ts_last_error()->message;

    assert_int_equal(open_set(p, 0, &d), code);
    assert_null(d);
    if (!strstr(message, words))
        fail_msg("'%s' is not in '%s'", words, message);
    assert_true(!strncmp(ts_last_error()->doing, "opening the dataset /", 21));
}

static void images_and_labels_are_read(void **state)
{
    const place *p = *state;
    ts_dataset *d;
    ts_array one, all;

    save_both(p);
    for (int limit = 0; limit < 9; limit += 4) { /* 4 cuts it, 8 is more than there is */
        int64_t count = limit == 4 ? 4 : COUNT;
        assert_ok(open_set(p, limit, &d));
        assert_int_equal(ts_dataset_count(d), count);
        all = ts_dataset_samples(d);
        assert_int_equal(all.rank, 4);
        assert_int_equal(all.dims[0], count);
        assert_int_equal(all.bytes, count * PIXELS);
        for (int64_t i = 0; i < count; i++) {
            assert_ok(ts_dataset_sample(d, i, &one));
            assert_int_equal(one.rank, 3);
            assert_int_equal(one.dtype, TS_U8);
            assert_memory_equal(one.data, p->images + 16 + i * PIXELS, PIXELS);
            assert_int_equal(ts_dataset_labels(d)[i], p->labels[8 + i]);
        }
        assert_int_equal(ts_dataset_classes(d), 3);
        assert_string_equal(ts_dataset_class_name(d, 2), "2");
        assert_null(ts_dataset_class_name(d, 3));
        assert_null(ts_dataset_class_name(d, -1));
        assert_int_equal(ts_dataset_sample(d, count, &one), TS_ERR_ARG);
        ts_dataset_free(d);
    }
}

static void pixels_can_be_changed(void **state)
{
    const place *p = *state;
    ts_dataset_options o = {.name = p->folder,
                            .image = &(ts_image_options){.height = 2, .width = 3, .channels = 3}};
    ts_dataset *d;
    ts_array one;

    save_both(p);
    assert_ok(ts_dataset_load(&o, &d));
    assert_ok(ts_dataset_sample(d, COUNT - 1, &one));
    assert_int_equal(one.dims[0], 3);
    assert_int_equal(one.dims[1], 2);
    assert_int_equal(one.dims[2], 3);
    assert_memory_equal(one.data, (uint8_t *)one.data + 6, 6);
    assert_int_equal(ts_dataset_labels(d)[COUNT - 1], p->labels[8 + COUNT - 1]);
    assert_int_equal(ts_dataset_classes(d), 3);
    ts_dataset_free(d);
}

static void wrong_files_are_refused(void **state)
{
    place *p = *state;

    assert_refused(p, TS_ERR_FILE, "has no class folders and no IDX files");
    save(p, "train-images-idx3-ubyte", p->images, sizeof(p->images));
    assert_refused(p, TS_ERR_FILE,
                   "neither train-labels-idx1-ubyte nor train-labels-idx1-ubyte.gz is in /");
    save_both(p);
    save(p, "train-images-idx3-ubyte", p->images, sizeof(p->images) - 1);
    assert_refused(p, TS_ERR_CORRUPT, "should have 80 bytes after its header and has 79");
    save(p, "train-images-idx3-ubyte", p->images, 3);
    assert_refused(p, TS_ERR_CORRUPT, "is cut short");
    save(p, "train-images-idx3-ubyte", p->images, 9);
    assert_refused(p, TS_ERR_CORRUPT, "is cut short");
    p->images[2] = 0x0d;
    save_both(p);
    assert_refused(p, TS_ERR_PARSE, "starts with 00 00 0d 03, which is not an IDX file of bytes");
    fill(p);
    memset(p->images + 4, 0xff, 12);
    save_both(p);
    assert_refused(p, TS_ERR_CORRUPT, "claims a size that cannot be");
    save(p, "train-images-idx3-ubyte", p->labels, sizeof(p->labels));
    assert_refused(p, TS_ERR_CORRUPT, "has 1 dims and 5 bytes, which are no images");
    fill(p);
    put_word(p->images + 4, 0);
    save(p, "train-images-idx3-ubyte", p->images, 16);
    assert_refused(p, TS_ERR_CORRUPT, "has 3 dims and 0 bytes, which are no images");
}

static void wrong_labels_are_refused(void **state)
{
    place *p = *state;

    save_both(p);
    save(p, "train-labels-idx1-ubyte", p->images, sizeof(p->images));
    assert_refused(p, TS_ERR_CORRUPT, "has 3 dims, and labels have one");
    p->labels[7] = COUNT - 1;
    save(p, "train-labels-idx1-ubyte", p->labels, sizeof(p->labels) - 1);
    assert_refused(p, TS_ERR_CORRUPT, "has 4 labels, and there are 5 images");
}

static void a_label_outside_the_classes_is_refused(void **state)
{
    place *p = *state;
    ts_dataset *d;

    p->labels[8 + 3] = 10;
    save_both(p);
    assert_int_equal(ts_dataset_load(&(ts_dataset_options){.name = "mnist", .dir = p->folder}, &d),
                     TS_ERR_CORRUPT);
    assert_non_null(strstr(ts_last_error()->message, "label 10 of sample 3 in "));
    assert_non_null(strstr(ts_last_error()->message, "is not one of 0..9"));
}

static void damaged_packing_is_refused(void **state)
{
    const place *p = *state;
    size_t n;
    uint8_t *bytes = pack(p->labels, sizeof(p->labels), &n);

    save(p, "train-images-idx3-ubyte", p->images, sizeof(p->images));
    for (size_t cut = 2; cut < n; cut++) {
        save(p, "train-labels-idx1-ubyte.gz", bytes, cut);
        assert_refused(p, TS_ERR_CORRUPT, "is cut short");
    }
    for (size_t i = n - 8; i < n; i++) { /* checksum and length */
        bytes[i] ^= 1;
        save(p, "train-labels-idx1-ubyte.gz", bytes, n);
        assert_refused(p, TS_ERR_CORRUPT, "is corrupt: its gzip data or checksum is wrong");
        bytes[i] ^= 1;
    }
    bytes = realloc(bytes, n + 1);
    bytes[n] = 'x';
    save(p, "train-labels-idx1-ubyte.gz", bytes, n + 1);
    assert_refused(p, TS_ERR_CORRUPT, "is corrupt: something follows its gzip data");
    free(bytes);
}

static void packed_files_may_have_several_members(void **state)
{
    const place *p = *state;
    size_t a, b, len;
    uint8_t *first = pack(p->images, 30, &a);
    uint8_t *second = pack(p->images + 30, sizeof(p->images) - 30, &b);
    void *out;

    first = realloc(first, a + b);
    memcpy(first + a, second, b);
    assert_ok(ts_gzip_unpack("here", first, a + b, 1000, &out, &len));
    assert_int_equal(len, sizeof(p->images));
    assert_memory_equal(out, p->images, len);
    free(out);
    free(first);
    free(second);
}

static void a_bomb_is_not_unpacked(void **state)
{
    size_t zeros = 50 << 20, n, len;
    void *data = calloc(1, zeros), *out;
    uint8_t *bytes = pack(data, zeros, &n);

    (void)state;
    free(data);
    assert_fails(ts_gzip_unpack("bomb.gz", bytes, n, 1 << 20, &out, &len), TS_ERR_CORRUPT,
                 "bomb.gz unpacks to more than the 1048576 bytes it may have");
    assert_ok(ts_gzip_unpack("bomb.gz", bytes, n, zeros, &out, &len));
    assert_int_equal(len, zeros);
    free(out);
    free(bytes);
}

static void every_failure_is_reported_and_leaks_nothing(void **state)
{
    const place *p = *state;
    ts_dataset_options o = {.name = p->folder,
                            .image = &(ts_image_options){.height = 3, .width = 3}};
    ts_dataset *d;
    ts_status s;
    int n = 0;

    save_both(p);
    for (;; n++) {
        ts_fault_arm("", n);
        s = ts_dataset_load(&o, &d);
        ts_fault_arm(NULL, -1);
        if (!s)
            break;
        assert_null(d);
        assert_true(s == TS_ERR_MEMORY || s == TS_ERR_FILE);
    }
    assert_true(n > 10);
    ts_dataset_free(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(images_and_labels_are_read, setup, teardown),
        cmocka_unit_test_setup_teardown(pixels_can_be_changed, setup, teardown),
        cmocka_unit_test_setup_teardown(wrong_files_are_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(wrong_labels_are_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(a_label_outside_the_classes_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(damaged_packing_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(packed_files_may_have_several_members, setup, teardown),
        cmocka_unit_test(a_bomb_is_not_unpacked),
        cmocka_unit_test_setup_teardown(every_failure_is_reported_and_leaks_nothing, setup,
                                        teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
