/* plot.c - plots as files: PNG of a sensible size, replaced in one step, refused with a reason.
 * What is on them is looked at by test/python/test_show.py. */
#include "show/show.h"
#include "support.h"
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

static char *folder, *path;
static const char *const names[] = {"cat", "dog", "fish"};
static const int64_t counts[] = {9, 1, 0, 2, 7, 1, 0, 0, 10};
static const float scores[] = {0.1f, 0.7f, 0.2f};
static const unsigned char pixels[2 * 3 * 3] = {0, 50, 100, 150, 200, 250};

static int setup(void **state)
{
    (void)state;
    folder = test_folder();
    assert_true(asprintf(&path, "%s/plot.png", folder) > 0);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    ts_fault_arm(NULL, -1);
    test_folder_remove(folder);
    free(folder);
    free(path);
    return 0;
}

static ts_picture picture(void)
{
    return (ts_picture){.data = pixels, .dtype = TS_U8, .channels = 3, .height = 2, .width = 3};
}

static ts_status plot_samples(void)
{
    const ts_picture p[] = {picture(), picture()};

    return ts_plot_samples(path, "Samples", p, names, 2);
}

static ts_status plot_confusion(void)
{
    return ts_plot_confusion(path, NULL, counts, names, 3);
}

static ts_status plot_curves(void)
{
    static const double loss[] = {2, 1, NAN, 0.5}, accuracy[] = {0.1, 0.5, 0.6, 0.7};
    const ts_series s[] = {{.name = "loss", .y = loss, .n = 4, .smoothing = 0.5},
                           {.name = "accuracy", .y = accuracy, .n = 4, .right = true}};

    return ts_plot_curves(path, &(ts_curves){.title = "Training", .series = s, .nseries = 2});
}

static ts_status plot_image(void)
{
    ts_prediction p = {.classes = names, .scores = scores, .n = 3};

    p.original = p.input = picture();
    return ts_plot_image(path, &p);
}

static ts_status (*const plots[])(void) = {plot_samples, plot_confusion, plot_curves, plot_image};

#ifdef TS_HAVE_CAIRO

static unsigned big(const char *p)
{
    const unsigned char *u = (const unsigned char *)p;

    return (unsigned)u[0] << 24 | (unsigned)u[1] << 16 | (unsigned)u[2] << 8 | u[3];
}

static void all_are_png(void **state)
{
    (void)state;
    for (int i = 0; i < TS_COUNT(plots); i++) {
        char *data;
        size_t len;

        assert_ok(plots[i]());
        assert_ok(ts_file_read(path, &data, &len));
        assert_true(len > 2000);
        assert_memory_equal(data, "\x89PNG\r\n\x1a\n", 8);
        assert_in_range(big(data + 16), 200, 2000);
        assert_in_range(big(data + 20), 200, 2000);
        assert_memory_equal(data + len - 8, "IEND", 4);
        free(data);
        assert_int_equal(test_folder_count(folder), 1);
    }
}

/* The same plot is the same file. */
static void plots_repeat(void **state)
{
    char *a, *b;
    size_t m, n;

    (void)state;
    assert_ok(plot_curves());
    assert_ok(ts_file_read(path, &a, &m));
    assert_ok(plot_curves());
    assert_ok(ts_file_read(path, &b, &n));
    assert_int_equal(m, n);
    assert_memory_equal(a, b, n);
    free(a);
    free(b);
}

static void failing_writes_keep_the_old_plot(void **state)
{
    (void)state;
    for (int i = 0; i < TS_COUNT(plots); i++) {
        int failures = 0;

        assert_ok(ts_file_write(path, "old", 3));
        for (;; failures++) {
            char *data;
            size_t len;

            ts_fault_arm(NULL, failures);
            if (!plots[i]())
                break;
            ts_fault_arm(NULL, -1);
            assert_int_equal(ts_last_error()->code, TS_ERR_FILE);
            assert_non_null(strstr(ts_error_text(), "while  plotting to"));
            assert_non_null(strstr(ts_error_text(), "hint   the folder must exist"));
            assert_ok(ts_file_read(path, &data, &len));
            assert_string_equal(data, "old");
            free(data);
            assert_int_equal(test_folder_count(folder), 1);
        }
        assert_int_equal(failures, 4); /* create, write, fsync, rename */
        ts_fault_arm(NULL, -1);
    }
}

static void no_such_folder(void **state)
{
    char bad[4200];

    (void)state;
    snprintf(bad, sizeof(bad), "%s/none/plot.png", folder);
    assert_int_equal(ts_plot_confusion(bad, NULL, counts, names, 3), TS_ERR_FILE);
    assert_non_null(strstr(ts_error_text(), "No such file or directory"));
    assert_int_equal(ts_plot_confusion(folder, NULL, counts, names, 3), TS_ERR_FILE);
    assert_int_equal(test_folder_count(folder), 0);
}

static void the_largest(void **state)
{
    enum { N = 1000 };
    int64_t *many = calloc((size_t)N * N, sizeof(*many));
    const char **classes = calloc(N, sizeof(*classes));
    ts_picture *p = calloc(N, sizeof(*p));

    (void)state;
    for (int i = 0; i < N; i++) {
        classes[i] = "name";
        many[i * N + i] = INT64_MAX;
        p[i] = picture();
    }
    assert_ok(ts_plot_confusion(path, "Large", many, classes, N));
    assert_ok(ts_plot_samples(path, NULL, p, classes, N));
    free(many);
    free(classes);
    free(p);
}

#else

static void without_cairo(void **state)
{
    (void)state;
    for (int i = 0; i < TS_COUNT(plots); i++) {
        assert_fails(plots[i](), TS_ERR_UNSUPPORTED,
                     "this build of Tessera has no cairo library, which draws plots");
        assert_int_equal(test_folder_count(folder), 0);
    }
}

#endif

static void bad_pictures(void **state)
{
    ts_picture p = picture();

    (void)state;
    assert_fails(ts_plot_samples(path, NULL, &p, NULL, 0), TS_ERR_ARG,
                 "a plot of 0 pictures; it can be 1 to 1000");
    assert_int_equal(ts_plot_samples(path, NULL, &p, NULL, INT32_MAX), TS_ERR_ARG);
    assert_int_equal(ts_plot_samples(path, NULL, NULL, NULL, 1), TS_ERR_ARG);
    assert_int_equal(ts_plot_samples(NULL, NULL, &p, NULL, 1), TS_ERR_ARG);
    p.channels = 2;
    assert_fails(ts_plot_samples(path, NULL, &p, NULL, 1), TS_ERR_ARG,
                 "picture 0 is 3 x 2 with 2 channels; 1 or 3 can be drawn");
    p = picture();
    p.width = 1 << 20;
    assert_fails(ts_plot_samples(path, NULL, &p, NULL, 1), TS_ERR_ARG,
                 "picture 0 is 1048576 x 2 pixels; a side can be 1 to 32767");
    p = picture();
    p.data = NULL;
    assert_fails(ts_plot_samples(path, NULL, &p, NULL, 1), TS_ERR_ARG, "picture 0 has no data");
    p = picture();
    p.dtype = TS_I64;
    assert_fails(ts_plot_samples(path, NULL, &p, NULL, 1), TS_ERR_TYPE,
                 "picture 0 is i64; u8 and f32 can be drawn");
    p.dtype = TS_F32;
    p.lo = p.hi = 2;
    assert_fails(ts_plot_samples(path, NULL, &p, NULL, 1), TS_ERR_ARG,
                 "picture 0 has black at 2 and white at 2");
    p.hi = NAN;
    assert_int_equal(ts_plot_samples(path, NULL, &p, NULL, 1), TS_ERR_ARG);
    assert_int_equal(test_folder_count(folder), 0);
}

static void bad_matrices(void **state)
{
    static const int64_t negative[] = {1, 2, -3, 4};
    static const char *const unnamed[] = {"cat", NULL};

    (void)state;
    assert_fails(ts_plot_confusion(path, NULL, negative, names, 2), TS_ERR_ARG,
                 "class dog was taken for cat -3 times");
    assert_fails(ts_plot_confusion(path, NULL, counts, unnamed, 2), TS_ERR_ARG,
                 "class 1 has no name");
    assert_int_equal(ts_plot_confusion(path, NULL, counts, NULL, 2), TS_ERR_ARG);
    assert_int_equal(ts_plot_confusion(path, NULL, NULL, names, 2), TS_ERR_ARG);
    assert_int_equal(ts_plot_confusion(path, NULL, counts, names, 0), TS_ERR_ARG);
    assert_int_equal(ts_plot_confusion(path, NULL, counts, names, 100000), TS_ERR_ARG);
}

static void bad_curves(void **state)
{
    ts_series s = {.name = "loss", .n = 3};

    (void)state;
    assert_int_equal(ts_plot_curves(path, NULL), TS_ERR_ARG);
    assert_fails(ts_plot_curves(path, &(ts_curves){.series = &s, .nseries = 1}), TS_ERR_ARG,
                 "series 0 (loss) has 3 points and no values");
    s.n = 0;
    s.smoothing = 1;
    assert_fails(ts_plot_curves(path, &(ts_curves){.series = &s, .nseries = 1}), TS_ERR_ARG,
                 "series 0 (loss) has a smoothing of 1; it is 0 to below 1");
    assert_int_equal(ts_plot_curves(path, &(ts_curves){.series = &s, .nseries = 1000}), TS_ERR_ARG);
    assert_int_equal(ts_plot_curves(path, &(ts_curves){.nseries = 1}), TS_ERR_ARG);
}

static void bad_predictions(void **state)
{
    ts_prediction p = {.classes = names, .scores = scores};

    (void)state;
    assert_int_equal(ts_plot_image(path, NULL), TS_ERR_ARG);
    assert_int_equal(ts_plot_image(path, &p), TS_ERR_ARG);
    p.n = 3;
    p.scores = NULL;
    assert_int_equal(ts_plot_image(path, &p), TS_ERR_ARG);
    p.scores = scores;
    p.input = picture();
    p.input.height = 0;
    assert_int_equal(ts_plot_image(path, &p), TS_ERR_ARG);
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
#ifdef TS_HAVE_CAIRO
        CASE(all_are_png),     CASE(plots_repeat), CASE(failing_writes_keep_the_old_plot),
        CASE(no_such_folder),  CASE(the_largest),
#else
        CASE(without_cairo),
#endif
        CASE(bad_pictures),    CASE(bad_matrices), CASE(bad_curves),
        CASE(bad_predictions),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
