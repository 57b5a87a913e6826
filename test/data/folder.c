/* folder.c - folders of classes: what fails half way is reported and leaks nothing. What is read is
 * compared with torchvision's ImageFolder in test/python/test_data.py. */
#include "data/data.h"
#include "images.h"

static char *folder;

static void add(const char *class, const char *name, const char *image)
{
    char path[4096];
    size_t len;
    char *data = image_bytes(image, &len);

    snprintf(path, sizeof(path), "%s/%s", folder, class);
    assert_ok(ts_file_mkdirs(path));
    snprintf(path, sizeof(path), "%s/%s/%s", folder, class, name);
    assert_ok(ts_file_write(path, data, len));
    free(data);
}

static int setup(void **state)
{
    (void)state;
    folder = test_folder();
    add("b", "1.png", "rgba.png");
    add("b", "2.PNG", "adam7.png");
    add("a", "3.jpeg", "rgb.jpg");
    add("b", ".hidden.png", "rgb.jpg");
    add("b", "notes.txt", "rgb.jpg");
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    ts_fault_arm(NULL, -1);
    test_folder_remove(folder);
    free(folder);
    return 0;
}

static void classes_and_files_are_sorted(void **state)
{
    ts_dataset_options o = {.name = folder, .image = &(ts_image_options){.height = 6, .width = 8}};
    ts_dataset *d;

    (void)state;
    needs_image_libraries();
    assert_ok(ts_dataset_load(&o, &d));
    assert_int_equal(ts_dataset_count(d), 3);
    assert_string_equal(ts_dataset_class_name(d, 0), "a");
    assert_string_equal(ts_dataset_class_name(d, 1), "b");
    assert_int_equal(ts_dataset_labels(d)[0], 0);
    assert_int_equal(ts_dataset_labels(d)[1], 1);
    assert_int_equal(ts_dataset_labels(d)[2], 1);
    ts_dataset_free(d);
}

/* The name decides what is looked at, the content how: here a JPEG image is called .png. */
static void the_content_decides(void **state)
{
    ts_dataset_options o = {.name = folder, .image = &(ts_image_options){.height = 6, .width = 8}};
    ts_dataset *d;

    (void)state;
    needs_image_libraries();
    add("b", "4.png", "rgb.jpg");
    assert_ok(ts_dataset_load(&o, &d));
    assert_memory_equal(ts_dataset_at(d, 0), ts_dataset_at(d, 3), d->sample.bytes);
    ts_dataset_free(d);
}

static void every_failure_is_reported_and_leaks_nothing(void **state)
{
    ts_dataset_options o = {.name = folder, .image = &(ts_image_options){.height = 6, .width = 8}};
    ts_dataset *d;
    ts_status s;
    int n = 0;

    (void)state;
    needs_image_libraries();
    for (;; n++) {
        ts_fault_arm("", n);
        s = ts_dataset_load(&o, &d);
        ts_fault_arm(NULL, -1);
        if (!s)
            break;
        assert_null(d);
        assert_true(s == TS_ERR_MEMORY || s == TS_ERR_FILE);
    }
    assert_true(n > 20);
    ts_dataset_free(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(classes_and_files_are_sorted, setup, teardown),
        cmocka_unit_test_setup_teardown(the_content_decides, setup, teardown),
        cmocka_unit_test_setup_teardown(every_failure_is_reported_and_leaks_nothing, setup,
                                        teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
