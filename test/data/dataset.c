/* dataset.c - what can be opened by name or path, and the real sets where they are installed. */
#include "data/data.h"
#include "support.h"
#include <unistd.h>

static void what_is_no_dataset_is_refused(void **state)
{
    ts_dataset *d;

    (void)state;
    assert_fails(ts_dataset_load(NULL, &d), TS_ERR_ARG, "a dataset needs a name or a path");
    assert_fails(ts_dataset_load(&(ts_dataset_options){.name = ""}, &d), TS_ERR_ARG,
                 "a dataset needs a name or a path");
    assert_fails(ts_dataset_load(&(ts_dataset_options){.name = "cifar"}, &d), TS_ERR_FILE,
                 "cannot open cifar: No such file or directory");
    assert_string_equal(ts_last_error()->hint,
                        "a dataset is mnist, fashion-mnist, or the path of a folder or file");
    assert_fails(ts_dataset_load(&(ts_dataset_options){.name = "/dev/null"}, &d),
                 TS_ERR_UNSUPPORTED, "/dev/null is not called like a dataset we can read");
    assert_fails(ts_dataset_load(&(ts_dataset_options){.name = "mnist", .limit = -1}, &d),
                 TS_ERR_ARG, "the limit of samples cannot be -1");
    assert_fails(ts_dataset_load(&(ts_dataset_options){.name = "mnist", .split = 2}, &d),
                 TS_ERR_ARG, "there is no split 2");
    assert_fails(ts_dataset_load(&(ts_dataset_options){.name = "mnist",
                                                       .image = &(ts_image_options){.channels = 5}},
                                 &d),
                 TS_ERR_ARG, "an image has 1 or 3 channels, not 5");
    assert_null(d);
    ts_dataset_free(NULL);
}

static void named_sets_are_found(void **state)
{
    char *folder = test_folder(), file[4096], path[4096];
    ts_dataset_options o = {.name = "mnist", .split = TS_SPLIT_TEST, .dir = folder};

    (void)state;
    assert_string_equal(ts_dataset_builtin(0), "mnist");
    assert_string_equal(ts_dataset_builtin(1), "fashion-mnist");
    assert_null(ts_dataset_builtin(2));
    assert_null(ts_dataset_builtin(-1));
    assert_ok(ts_dataset_find(&o, path, sizeof(path)));
    assert_string_equal(path, "");
    snprintf(file, sizeof(file), "%s/t10k-images-idx3-ubyte", folder);
    assert_ok(ts_file_write(file, "x", 1));
    snprintf(file, sizeof(file), "%s/t10k-labels-idx1-ubyte.gz", folder);
    assert_ok(ts_file_write(file, "x", 1));
    assert_ok(ts_dataset_find(&o, path, sizeof(path)));
    assert_string_equal(path, folder);
    assert_int_equal(ts_dataset_find(&o, path, 3), TS_ERR_ARG);
    o.split = TS_SPLIT_TRAIN;
    assert_ok(ts_dataset_find(&o, path, sizeof(path)));
    assert_string_equal(path, "");
    o.split = 7;
    assert_int_equal(ts_dataset_find(&o, path, sizeof(path)), TS_ERR_ARG);
    assert_fails(ts_dataset_find(&(ts_dataset_options){.name = folder}, path, sizeof(path)),
                 TS_ERR_ARG,
                 "looking for a dataset needs a name that is known, a split and a place for the "
                 "path");
    test_folder_remove(folder);
    free(folder);
}

static void sizes_are_checked_before_anything_is_allocated(void **state)
{
    ts_dataset *d;

    (void)state;
    assert_fails(ts_dataset_new(TS_U8, 0, 1, (int64_t[]){3}, &d), TS_ERR_ARG,
                 "a dataset of 0 samples is of no use");
    assert_fails(ts_dataset_new(TS_U8, 1, 2, (int64_t[]){3, 0}, &d), TS_ERR_SHAPE,
                 "dim 1 of a sample cannot be 0");
    assert_fails(ts_dataset_new(TS_F32, 1, 2, (int64_t[]){INT64_MAX, 4}, &d), TS_ERR_SHAPE,
                 "dim 0 of a sample cannot be 9223372036854775807");
    assert_fails(ts_dataset_new(TS_F32, INT64_MAX / 2, 1, (int64_t[]){16}, &d), TS_ERR_MEMORY,
                 "4611686018427387903 samples of 64 bytes do not fit in memory");
}

static void numbers_cannot_be_resized(void **state)
{
    char *folder = test_folder(), path[4096];
    ts_dataset *d;

    (void)state;
    snprintf(path, sizeof(path), "%s/t.csv", folder);
    assert_ok(ts_file_write(path, "1,2,0\n3,4,1\n", 12));
    assert_ok(ts_dataset_load(&(ts_dataset_options){.name = path}, &d));
    assert_int_equal(ts_dataset_count(d), 2);
    ts_dataset_free(d);
    assert_fails(
        ts_dataset_load(
            &(ts_dataset_options){.name = path, .image = &(ts_image_options){.channels = 1}}, &d),
        TS_ERR_TYPE,
        "only u8 images of 1 or 3 channels can be resized, made gray or inverted; the "
        "samples are f32 of rank 1");
    test_folder_remove(folder);
    free(folder);
}

static void tensors_are_made_of_one_sample_or_all(void **state)
{
    uint8_t pixels[] = {0, 51, 102, 255};
    ts_array a = {.dtype = TS_U8, .rank = 3, .dims = {2, 2, 1}, .bytes = 4, .data = pixels};
    double mean[] = {0.5, 0}, deviation[] = {0.5, 2};
    float out[4];

    (void)state;
    assert_ok(ts_to_tensor(&a, false, NULL, out));
    for (int i = 0; i < 4; i++)
        assert_true(out[i] == (float)pixels[i] / 255.0f);
    assert_ok(ts_to_tensor(&a, false, &(ts_normalize){mean, deviation, 2}, out));
    assert_true(out[0] == -1 && out[3] == 0.5f);
    assert_ok(ts_to_tensor(&a, true, &(ts_normalize){mean, deviation, 1}, out));
    assert_true(out[0] == -1 && out[3] == 1);
    assert_int_equal(ts_to_tensor(&a, false, &(ts_normalize){mean, deviation, 3}, out),
                     TS_ERR_SHAPE);
    a.dtype = TS_I64;
    assert_fails(ts_to_tensor(&a, false, NULL, out), TS_ERR_TYPE, "samples are u8 or f32, not i64");
    a.rank = 0;
    assert_int_equal(ts_to_tensor(&a, true, NULL, out), TS_ERR_SHAPE);
}

/* The mean pixel, as everyone's normalisation has it. */
static void assert_mean(const ts_dataset *d, double want)
{
    ts_array all = ts_dataset_samples(d);
    const uint8_t *p = all.data;
    double sum = 0;

    for (size_t i = 0; i < all.bytes; i++)
        sum += p[i];
    assert_true(sum / (double)all.bytes / 255 - want < 1e-4 &&
                want - sum / (double)all.bytes / 255 < 1e-4);
}

static void fashion_mnist_is_the_real_one(void **state)
{
    ts_dataset *d;

    (void)state;
    if (access("/usr/share/datasets/fashion-mnist", F_OK)) {
        print_message("needs Debian's package dataset-fashion-mnist, which is not there\n");
        skip();
    }
    assert_ok(ts_dataset_load(&(ts_dataset_options){.name = "fashion-mnist"}, &d));
    assert_int_equal(ts_dataset_count(d), 60000);
    assert_int_equal(ts_dataset_classes(d), 10);
    assert_string_equal(ts_dataset_class_name(d, 9), "Ankle boot");
    assert_int_equal(ts_dataset_labels(d)[0], 9);
    assert_mean(d, 0.2860);
    ts_dataset_free(d);
}

static void mnist_is_the_real_one(void **state)
{
    const char *root = getenv("TS_SOURCE_ROOT");
    char folder[4096];
    ts_dataset *d;

    (void)state;
    snprintf(folder, sizeof(folder), "%s/../shared/data/mnist", root ? root : ".");
    if (access(folder, F_OK)) {
        print_message("needs ../shared/data/mnist, which is not there\n");
        skip();
    }
    assert_ok(ts_dataset_load(&(ts_dataset_options){.name = "mnist", .dir = folder}, &d));
    assert_int_equal(ts_dataset_count(d), 60000);
    assert_string_equal(ts_dataset_class_name(d, 9), "9");
    assert_int_equal(ts_dataset_labels(d)[0], 5);
    assert_mean(d, 0.1307);
    ts_dataset_free(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_no_dataset_is_refused),
        cmocka_unit_test(named_sets_are_found),
        cmocka_unit_test(sizes_are_checked_before_anything_is_allocated),
        cmocka_unit_test(numbers_cannot_be_resized),
        cmocka_unit_test(tensors_are_made_of_one_sample_or_all),
        cmocka_unit_test(fashion_mnist_is_the_real_one),
        cmocka_unit_test(mnist_is_the_real_one),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
