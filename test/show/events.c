/* events.c - records for TensorBoard: checksums, whole records whatever fails, names. What is in
 * the records is read by test/python/test_show.py. */
#include "show/show.h"
#include "support.h"
#include <dirent.h>
#include <unistd.h>

static char *folder;

static int setup(void **state)
{
    (void)state;
    folder = test_folder();
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

static void known_checksums(void **state)
{
    unsigned char bytes[32] = {0};

    (void)state;
    assert_int_equal(ts_crc32c("123456789", 9), 0xe3069283); /* the usual check value */
    assert_int_equal(ts_crc32c("", 0), 0);
    assert_int_equal(ts_crc32c(bytes, 32), 0x8a9136aa); /* RFC 3720, B.4 */
    memset(bytes, 0xff, 32);
    assert_int_equal(ts_crc32c(bytes, 32), 0x62a8ab43);
    for (int i = 0; i < 32; i++)
        bytes[i] = (unsigned char)i;
    assert_int_equal(ts_crc32c(bytes, 32), 0x46dd794e);
}

static uint32_t little(const char *p)
{
    const unsigned char *u = (const unsigned char *)p;

    return u[0] | (uint32_t)u[1] << 8 | (uint32_t)u[2] << 16 | (uint32_t)u[3] << 24;
}

static void assert_masked(const char *crc, const char *data, size_t n)
{
    uint32_t c = ts_crc32c(data, n);

    assert_int_equal(little(crc), (uint32_t)((c >> 15 | c << 17) + 0xa282ead8u));
}

/* Records in the only file of the folder, each checked. */
static int count_records(void)
{
    DIR *d = opendir(folder);
    char path[4500], *data;
    size_t len = 0, at = 0;
    int n = 0;

    ts_fault_arm(NULL, -1);
    assert_int_equal(test_folder_count(folder), 1);
    for (struct dirent *e; (e = readdir(d));)
        if (e->d_name[0] != '.')
            snprintf(path, sizeof(path), "%s/%s", folder, e->d_name);
    closedir(d);
    assert_non_null(strstr(path, "/events.out.tfevents."));
    assert_ok(ts_file_read(path, &data, &len));
    for (; at < len; n++) {
        size_t size = little(data + at);

        assert_true(at + 16 + size <= len);
        assert_masked(data + at + 8, data + at, 8);
        assert_masked(data + at + 12 + size, data + at + 12, size);
        at += 16 + size;
    }
    assert_int_equal(at, len);
    free(data);
    return n;
}

static void flushed_and_closed(void **state)
{
    ts_events *e;

    (void)state;
    assert_ok(ts_events_open(folder, &e));
    assert_int_equal(count_records(), 1); /* the version */
    assert_ok(ts_events_scalar(e, "loss", 1, 0.5));
    assert_ok(ts_events_text(e, "note", 1, "hello"));
    assert_ok(ts_events_flush(e));
    assert_int_equal(count_records(), 3);
    assert_ok(ts_events_scalar(e, "", INT64_MIN, -0.0));
    assert_ok(ts_events_close(e));
    assert_int_equal(count_records(), 4);
    assert_ok(ts_events_close(NULL));
}

/* Memory stays bounded: much reaches the file before anyone asks. */
static void many(void **state)
{
    ts_events *e;

    (void)state;
    assert_ok(ts_events_open(folder, &e));
    for (int i = 0; i < 3000; i++)
        assert_ok(ts_events_scalar(e, "train/loss", i, i));
    assert_true(count_records() > 1000);
    assert_ok(ts_events_close(e));
    assert_int_equal(count_records(), 3001);
}

static void two_in_one_folder(void **state)
{
    ts_events *e[2];

    (void)state;
    assert_ok(ts_events_open(folder, &e[0]));
    assert_ok(ts_events_open(folder, &e[1]));
    assert_int_equal(test_folder_count(folder), 2);
    assert_ok(ts_events_close(e[0]));
    assert_ok(ts_events_close(e[1]));
}

/* A full disk: those events are lost, and the file is as good as before. */
static void failing_writes_leave_whole_records(void **state)
{
    ts_events *e;

    (void)state;
    assert_ok(ts_events_open(folder, &e));
    assert_ok(ts_events_scalar(e, "loss", 1, 0.5));
    ts_fault_arm("write", 0);
    assert_int_equal(ts_events_flush(e), TS_ERR_FILE);
    assert_non_null(strstr(ts_error_text(), "while  writing events for TensorBoard"));
    assert_non_null(strstr(ts_error_text(), "hint"));
    assert_int_equal(count_records(), 1);
    assert_ok(ts_events_scalar(e, "loss", 2, 0.5));
    assert_ok(ts_events_close(e));
    assert_int_equal(count_records(), 2);
}

static void failing_opens_leave_nothing(void **state)
{
    ts_events *e;
    int failures = 0;

    (void)state;
    for (;; failures++) {
        ts_fault_arm(NULL, failures);
        if (!ts_events_open(folder, &e))
            break;
        assert_null(e);
        assert_non_null(strstr(ts_error_text(), "TensorBoard"));
        assert_int_equal(test_folder_count(folder), 0);
    }
    assert_true(failures >= 3);
    assert_ok(ts_events_close(e));
}

static void wrong_uses(void **state)
{
    static const char png[] = "\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\1\0\0\0\1\10\11\0\0\0....";
    char file[4200];
    ts_events *e;

    (void)state;
    assert_int_equal(ts_events_open(NULL, &e), TS_ERR_ARG);
    assert_int_equal(ts_events_open(folder, NULL), TS_ERR_ARG);
    snprintf(file, sizeof(file), "%s/file", folder);
    assert_ok(ts_file_write(file, "x", 1));
    assert_int_equal(ts_events_open(file, &e), TS_ERR_FILE);
    assert_int_equal(ts_events_open("", &e), TS_ERR_FILE);
    unlink(file);
    assert_int_equal(ts_events_scalar(NULL, "x", 0, 0), TS_ERR_ARG);
    assert_int_equal(ts_events_flush(NULL), TS_ERR_ARG);
    assert_ok(ts_events_open(folder, &e));
    assert_int_equal(ts_events_scalar(e, NULL, 0, 0), TS_ERR_ARG);
    assert_int_equal(ts_events_text(e, "x", 0, NULL), TS_ERR_ARG);
    assert_fails(ts_events_image(e, "x", 0, "GIF89a", 6), TS_ERR_ARG,
                 "the image for 'x' (6 bytes) is not a PNG");
    assert_int_equal(ts_events_image(e, "x", 0, png, sizeof(png) - 1), TS_ERR_ARG); /* colour 9 */
    assert_int_equal(ts_events_image(e, "x", 0, png, 20), TS_ERR_ARG);
    assert_ok(ts_events_close(e));
    assert_int_equal(count_records(), 1);
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_checksums),
        CASE(flushed_and_closed),
        CASE(many),
        CASE(two_in_one_folder),
        CASE(failing_writes_leave_whole_records),
        CASE(failing_opens_leave_nothing),
        CASE(wrong_uses),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
