/* image.c - images: gray, invert, resize, files that lie; test/python/test_data.py compares the
 * pixels with Pillow's. */
#include "data/data.h"
#include "images.h"

static const char *const files[] = {
    "adam7.png", "bits1.png", "gray16.png", "palette_transparent.png", "rgba.png",
    "cmyk.jpg",  "gray.jpg",  "rgb.jpg",    "progressive.jpg",
};

static ts_image image(int width, int height, int channels, const uint8_t *pixels)
{
    size_t n = (size_t)(width * height * channels);
    ts_image im = {width, height, channels, malloc(n)};

    memcpy(im.pixels, pixels, n);
    return im;
}

static void gray_has_pillows_weights(void **state)
{
    static const uint8_t pixels[] = {255, 0,   0,   0, 255, 0, 0, 0, 255,
                                     255, 255, 255, 1, 2,   3, 9, 9, 9};
    static const uint8_t want[] = {76, 150, 29, 255, 2, 9};
    ts_image im = image(3, 2, 3, pixels);

    (void)state;
    assert_ok(ts_image_apply(&(ts_image_options){.channels = 1}, &im));
    assert_int_equal(im.channels, 1);
    assert_memory_equal(im.pixels, want, sizeof(want));
    assert_ok(ts_image_apply(&(ts_image_options){.channels = 3}, &im));
    assert_int_equal(im.channels, 3);
    for (size_t i = 0; i < sizeof(want) * 3; i++)
        assert_int_equal(im.pixels[i], want[i / 3]);
    free(im.pixels);
}

static void a_light_background_is_inverted(void **state)
{
    static const uint8_t light[] = {0, 0, 0, 0, 201, 7}, dark[] = {255, 255, 255, 255, 200, 7};
    static const uint8_t inverted[] = {255, 255, 255, 255, 54, 248};
    const ts_image_options o = {.invert_light = true};
    ts_image im = image(3, 2, 1, light);

    (void)state;
    assert_ok(ts_image_apply(&o, &im));
    assert_memory_equal(im.pixels, inverted, 6);
    free(im.pixels);
    im = image(3, 2, 1, dark);
    assert_ok(ts_image_apply(&o, &im));
    assert_memory_equal(im.pixels, dark, 6);
    free(im.pixels);
    im = image(1, 2, 3, light);
    assert_fails(ts_image_apply(&o, &im), TS_ERR_ARG, "invert_light needs grayscale images");
    free(im.pixels);
    im = image(1, 6, 1, light);
    assert_fails(ts_image_apply(&o, &im), TS_ERR_SHAPE,
                 "an image of 1 x 6 has no pixel in column 1, row 1");
    free(im.pixels);
}

/* Whatever the sizes and the filter, weights add up to 1. */
static void one_colour_stays_when_resized(void **state)
{
    uint8_t pixels[11 * 5 * 3];
    test_random r = {3};

    (void)state;
    for (int n = 0; n < 200; n++) {
        int colour = (int)test_between(&r, 0, 255);
        ts_image_options o = {.width = (int)test_between(&r, 1, 40),
                              .height = (int)test_between(&r, 1, 40),
                              .filter = n % 2 ? TS_FILTER_BICUBIC : TS_FILTER_BILINEAR};
        ts_image im;
        memset(pixels, colour, sizeof(pixels));
        im = image(11, 5, 3, pixels);
        assert_ok(ts_image_apply(&o, &im));
        assert_int_equal(im.width, o.width);
        assert_int_equal(im.height, o.height);
        for (int i = 0; i < o.width * o.height * 3; i++)
            assert_int_equal(im.pixels[i], colour);
        free(im.pixels);
    }
}

static void files_load_and_are_said_to_be_bytes(void **state)
{
    ts_array a;

    (void)state;
    needs_image_libraries();
    for (int i = 0; i < TS_COUNT(files); i++) {
        assert_ok(ts_image_load(image_path(files[i]), NULL, &a));
        assert_int_equal(a.dtype, TS_U8);
        assert_int_equal(a.dims[0], 3);
        assert_int_equal(a.bytes, 3 * a.dims[1] * a.dims[2]);
        free(a.data);
        assert_ok(ts_image_load(image_path(files[i]), &(ts_image_options){.channels = 1}, &a));
        assert_int_equal(a.dims[0], 1);
        free(a.data);
    }
}

/* Every beginning of every file is an error or, where only the end mark is missing, an image. */
static void cut_files_are_refused(void **state)
{
    (void)state;
    needs_image_libraries();
    for (int i = 0; i < TS_COUNT(files); i++) {
        size_t len, most = 0;
        char *data = image_bytes(files[i], &len);
        for (size_t cut = 0; cut < len; cut++) {
            char *part = malloc(cut + 1); /* its own, so that reading on is seen */
            ts_image im;
            memcpy(part, data, cut);
            if (!ts_image_decode("cut", part, cut, &im)) {
                free(im.pixels);
                most = most ? most : cut;
            }
            free(part);
        }
        assert_true(!most || most + 20 > len);
        free(data);
    }
}

static void sizes_that_cannot_be_are_refused(void **state)
{
    (void)state;
    assert_fails(ts_image_check("a", 0, 5, 100, 8), TS_ERR_CORRUPT, "a has no pixels");
    assert_fails(ts_image_check("a", 1 << 16, 1025, 1 << 30, 8), TS_ERR_UNSUPPORTED,
                 "a has 65536 x 1025 pixels; we read up to 65536 a side and 67108864 in all");
    assert_fails(ts_image_check("a", 1, (1 << 16) + 1, 1 << 30, 8), TS_ERR_UNSUPPORTED,
                 "a has 1 x 65537 pixels; we read up to 65536 a side and 67108864 in all");
    assert_fails(ts_image_check("a", 100, 100, 1000, 8), TS_ERR_CORRUPT,
                 "a claims 100 x 100 pixels and has only 1000 bytes");
    assert_ok(ts_image_check("a", 100, 100, 1250, 8));
}

static void wrong_options_are_refused(void **state)
{
    ts_array a;

    (void)state;
    assert_fails(ts_image_load("x", &(ts_image_options){.width = 5}, &a), TS_ERR_ARG,
                 "an image cannot be resized to 0 x 5");
    assert_fails(ts_image_load("x", &(ts_image_options){.width = 1 << 20, .height = 1}, &a),
                 TS_ERR_ARG, "an image cannot be resized to 1 x 1048576");
    assert_fails(ts_image_load("x", &(ts_image_options){.channels = 2}, &a), TS_ERR_ARG,
                 "an image has 1 or 3 channels, not 2");
    assert_fails(ts_image_load("x", &(ts_image_options){.filter = 7}, &a), TS_ERR_ARG,
                 "there is no filter 7");
    assert_fails(ts_image_load("/nowhere/x.png", NULL, &a), TS_ERR_FILE,
                 "cannot open /nowhere/x.png: No such file or directory");
    assert_string_equal(ts_last_error()->doing, "loading an image");
}

static void every_failure_is_reported_and_leaks_nothing(void **state)
{
    const ts_image_options o = {.height = 4, .width = 5, .channels = 3};

    (void)state;
    needs_image_libraries();
    for (int i = 0; i < TS_COUNT(files); i++) {
        ts_array a;
        ts_status s = TS_ERR_MEMORY;
        int n = 0;
        for (; s; n++) {
            ts_fault_arm("", n);
            s = ts_image_load(image_path(files[i]), &o, &a);
            ts_fault_arm(NULL, -1);
            assert_true(!s || s == TS_ERR_MEMORY || s == TS_ERR_FILE);
        }
        assert_true(n > 8);
        free(a.data);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gray_has_pillows_weights),
        cmocka_unit_test(a_light_background_is_inverted),
        cmocka_unit_test(one_colour_stays_when_resized),
        cmocka_unit_test(files_load_and_are_said_to_be_bytes),
        cmocka_unit_test(cut_files_are_refused),
        cmocka_unit_test(sizes_that_cannot_be_are_refused),
        cmocka_unit_test(wrong_options_are_refused),
        cmocka_unit_test(every_failure_is_reported_and_leaks_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
