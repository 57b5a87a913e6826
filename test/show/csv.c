/* csv.c - rows on disk: quoting, resuming, and failing writes that leave whole rows. */
#include "support.h"
#include <errno.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

static char *folder, *path;
static const char *const two[] = {"epoch", "loss"};

static int setup(void **state)
{
    (void)state;
    folder = test_folder();
    assert_true(asprintf(&path, "%s/log.csv", folder) > 0);
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

static void assert_file(const char *want)
{
    char *data;
    size_t len;

    ts_fault_arm(NULL, -1);
    assert_ok(ts_file_read(path, &data, &len));
    assert_string_equal(data, want);
    free(data);
}

static void rows_and_quotes(void **state)
{
    const char *const cells[] = {"a,b", "say \"hi\"\n"}, *const empty[] = {NULL, ""};
    ts_csv *c;

    (void)state;
    assert_ok(ts_csv_open(path, two, 2, false, &c));
    assert_file("epoch,loss\n");
    assert_ok(ts_csv_numbers(c, (const double[]){1, 0.1}));
    assert_file("epoch,loss\n1,0.1\n"); /* there before the next one */
    assert_ok(ts_csv_row(c, cells));
    assert_ok(ts_csv_row(c, empty));
    assert_ok(ts_csv_numbers(c, (const double[]){-0.0, 1.0 / 3}));
    ts_csv_close(c);
    assert_file("epoch,loss\n1,0.1\n\"a,b\",\"say \"\"hi\"\"\n\"\n,\n-0,0.3333333333333333\n");
}

/* What an earlier run left, and what is in the file after one more row. */
static void resuming(void **state)
{
    static const char *const cases[][2] = {
        {"", "epoch,loss\n9,9\n"},
        {"epoch,loss\n", "epoch,loss\n9,9\n"},
        {"epoch,loss\n1,2\n", "epoch,loss\n1,2\n9,9\n"},
        {"epoch,loss\n1,2\n3,", "epoch,loss\n1,2\n9,9\n"},
        {"epoch,loss\n1", "epoch,loss\n9,9\n"},
        {"epoch,loss\n1,2\n3,\"two\nlin", "epoch,loss\n1,2\n9,9\n"},
        {"epoch,loss\n1,\"two\nlines\"\n", "epoch,loss\n1,\"two\nlines\"\n9,9\n"},
        {"epo", "epoch,loss\n9,9\n"},
    };
    ts_csv *c;

    (void)state;
    for (int i = 0; i < TS_COUNT(cases); i++) {
        assert_ok(ts_file_write(path, cases[i][0], strlen(cases[i][0])));
        assert_ok(ts_csv_open(path, two, 2, true, &c));
        assert_ok(ts_csv_numbers(c, (const double[]){9, 9}));
        ts_csv_close(c);
        assert_file(cases[i][1]);
    }
    unlink(path);
    assert_ok(ts_csv_open(path, two, 2, true, &c));
    ts_csv_close(c);
    assert_file("epoch,loss\n");
    assert_ok(ts_csv_open(path, two, 2, false, &c));
    ts_csv_close(c);
    assert_file("epoch,loss\n");
}

static void other_columns_are_kept(void **state)
{
    static const char *const others[] = {"epoch,accuracy\n1,2\n", "epoch,loss,more\n", "x", "\n",
                                         "epoch\n1 and much more in a line without an end"};
    ts_csv *c;

    (void)state;
    for (int i = 0; i < TS_COUNT(others); i++) {
        assert_ok(ts_file_write(path, others[i], strlen(others[i])));
        assert_int_equal(ts_csv_open(path, two, 2, true, &c), TS_ERR_FILE);
        assert_null(c);
        assert_non_null(strstr(ts_last_error()->message, "has other columns"));
        assert_non_null(strstr(ts_last_error()->hint, "without resume"));
        assert_file(others[i]);
    }
}

static void failing_rows_leave_whole_ones(void **state)
{
    ts_csv *c;

    (void)state;
    assert_ok(ts_csv_open(path, two, 2, false, &c));
    assert_ok(ts_csv_numbers(c, (const double[]){1, 2}));
    ts_fault_arm("write", 0);
    assert_int_equal(ts_csv_numbers(c, (const double[]){3, 4}), TS_ERR_FILE);
    assert_non_null(strstr(ts_error_text(), "while  adding a row to"));
    assert_file("epoch,loss\n1,2\n");
    assert_ok(ts_csv_numbers(c, (const double[]){5, 6}));
    ts_csv_close(c);
    assert_file("epoch,loss\n1,2\n5,6\n");
}

/* A disk that is full in the middle of a row: half of it was written. */
static void half_rows_are_taken_back(void **state)
{
    struct rlimit then, now;
    ts_csv *c;

    (void)state;
    assert_ok(ts_csv_open(path, two, 2, false, &c));
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &then), 0);
    now = then;
    now.rlim_cur = strlen("epoch,loss\n") + 3;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &now), 0);
    assert_int_equal(ts_csv_numbers(c, (const double[]){1234, 5678}), TS_ERR_FILE);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &then), 0);
    signal(SIGXFSZ, SIG_DFL);
    assert_non_null(strstr(ts_last_error()->message, strerror(EFBIG)));
    assert_file("epoch,loss\n");
    ts_csv_close(c);
}

static void wrong_uses(void **state)
{
    char bad[4200];
    ts_csv *c;

    (void)state;
    assert_int_equal(ts_csv_open(NULL, two, 2, false, &c), TS_ERR_ARG);
    assert_int_equal(ts_csv_open(path, two, 0, false, &c), TS_ERR_ARG);
    assert_int_equal(ts_csv_open(path, NULL, 2, false, &c), TS_ERR_ARG);
    assert_int_equal(ts_csv_open(path, two, 2, false, NULL), TS_ERR_ARG);
    assert_int_equal(ts_csv_row(NULL, two), TS_ERR_ARG);
    assert_int_equal(ts_csv_numbers(NULL, NULL), TS_ERR_ARG);
    ts_csv_close(NULL);
    snprintf(bad, sizeof(bad), "%s/none/log.csv", folder);
    assert_int_equal(ts_csv_open(bad, two, 2, false, &c), TS_ERR_FILE);
    assert_int_equal(ts_csv_open(bad, two, 2, true, &c), TS_ERR_FILE);
    assert_int_equal(ts_csv_open(folder, two, 2, true, &c), TS_ERR_FILE);
    for (int i = 0;; i++) {
        ts_fault_arm(NULL, i);
        if (!ts_csv_open(path, two, 2, false, &c))
            break;
        assert_null(c);
        assert_int_equal(test_folder_count(folder), 0);
    }
    ts_csv_close(c);
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(rows_and_quotes),          CASE(resuming),
        CASE(other_columns_are_kept),   CASE(failing_rows_leave_whole_ones),
        CASE(half_rows_are_taken_back), CASE(wrong_uses),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
