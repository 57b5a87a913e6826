/* file.c - whole files: read, replaced in one step, and what is left when a step fails. */
#include "support.h"
#include <sys/stat.h>
#include <unistd.h>

typedef struct place {
    char *folder, *path;
} place;

static int setup(void **state)
{
    place *p = calloc(1, sizeof(*p));

    p->folder = test_folder();
    assert_true(asprintf(&p->path, "%s/file", p->folder) > 0);
    *state = p;
    return 0;
}

static int teardown(void **state)
{
    place *p = *state;

    ts_fault_arm(NULL, -1);
    test_folder_remove(p->folder);
    free(p->folder);
    free(p->path);
    free(p);
    return 0;
}

static void assert_content(const char *path, const char *want, size_t n)
{
    char *data;
    size_t len;

    ts_fault_arm(NULL, -1);
    assert_ok(ts_file_read(path, &data, &len));
    assert_int_equal(len, n);
    assert_memory_equal(data, want, n);
    assert_int_equal(data[n], 0);
    free(data);
}

static void written_is_read(void **state)
{
    const place *p = *state;
    size_t n = 3 << 20;
    char *big = malloc(n);

    assert_ok(ts_file_write(p->path, "a\0b", 3));
    assert_content(p->path, "a\0b", 3);
    assert_ok(ts_file_write(p->path, "", 0));
    assert_content(p->path, "", 0);
    for (size_t i = 0; i < n; i++)
        big[i] = (char)(i * 7);
    assert_ok(ts_file_write(p->path, big, n));
    assert_content(p->path, big, n);
    assert_int_equal(test_folder_count(p->folder), 1);
    free(big);
}

/* Each step of a write fails in turn: the old content stays, and no temporary file is left. */
static void failing_writes_change_nothing(void **state)
{
    static const char *const steps[] = {"create", "write", "fsync", "rename"};
    const place *p = *state;

    assert_ok(ts_file_write(p->path, "old", 3));
    for (int i = 0; i < TS_COUNT(steps); i++) {
        ts_fault_arm(steps[i], 0);
        assert_int_equal(ts_file_write(p->path, "new!", 4), TS_ERR_FILE);
        assert_int_equal(ts_fault_count(), 1);
        assert_non_null(strstr(ts_last_error()->message, p->path));
        assert_content(p->path, "old", 3);
        assert_int_equal(test_folder_count(p->folder), 1);
    }
}

/* The same without knowing the steps' names: until a write gets through. */
static void any_failing_write_changes_nothing(void **state)
{
    const place *p = *state;
    int failures = 0;

    assert_ok(ts_file_write(p->path, "old", 3));
    for (;; failures++) {
        ts_fault_arm(NULL, failures);
        if (!ts_file_write(p->path, "new!", 4))
            break;
        assert_content(p->path, "old", 3);
        assert_int_equal(test_folder_count(p->folder), 1);
    }
    assert_true(failures >= 4);
    assert_content(p->path, "new!", 4);
    assert_int_equal(test_folder_count(p->folder), 1);
}

static void failing_reads_say_why(void **state)
{
    static const char *const steps[] = {"open", "alloc", "read"};
    static const ts_status codes[] = {TS_ERR_FILE, TS_ERR_MEMORY, TS_ERR_FILE};
    const place *p = *state;
    char *data = NULL;
    size_t len;

    assert_ok(ts_file_write(p->path, "content", 7));
    for (int i = 0; i < TS_COUNT(steps); i++) {
        ts_fault_arm(steps[i], 0);
        assert_int_equal(ts_file_read(p->path, &data, &len), codes[i]);
        assert_non_null(strstr(ts_last_error()->message, p->path));
        assert_null(data);
    }
}

static void what_is_no_file_is_not_read(void **state)
{
    const place *p = *state;
    char *data;
    size_t len;

    assert_int_equal(ts_file_read(p->path, &data, &len), TS_ERR_FILE);
    assert_non_null(strstr(ts_last_error()->message, "No such file"));
    assert_int_equal(ts_file_read(p->folder, &data, &len), TS_ERR_FILE);
    assert_non_null(strstr(ts_last_error()->message, "is not a regular file"));
}

static void what_is_no_file_is_not_replaced(void **state)
{
    const place *p = *state;
    struct stat st;
    char message[8192];

    assert_int_equal(mkfifo(p->path, 0600), 0);
    assert_int_equal(ts_file_write(p->path, "x", 1), TS_ERR_FILE);
    snprintf(message, sizeof(message), "%s is not a regular file", p->path);
    assert_string_equal(ts_last_error()->message, message);
    assert_int_equal(lstat(p->path, &st), 0);
    assert_true(S_ISFIFO(st.st_mode));
    assert_int_equal(test_folder_count(p->folder), 1);
    assert_int_equal(ts_file_write(p->folder, "x", 1), TS_ERR_FILE);
}

/* The file that a link leads to is replaced; the link stays. */
static void links_stay(void **state)
{
    const place *p = *state;
    struct stat st;
    char link[4096];

    snprintf(link, sizeof(link), "%s/link", p->folder);
    assert_ok(ts_file_write(p->path, "old", 3));
    assert_int_equal(symlink("file", link), 0);
    assert_ok(ts_file_write(link, "new", 3));
    assert_content(p->path, "new", 3);
    assert_int_equal(lstat(link, &st), 0);
    assert_true(S_ISLNK(st.st_mode));
    assert_int_equal(test_folder_count(p->folder), 2);
}

static void bad_paths(void **state)
{
    const place *p = *state;
    char *longer = malloc(10001);

    memset(longer, 'a', 10000);
    longer[10000] = 0;
    assert_int_equal(ts_file_write(longer, "x", 1), TS_ERR_FILE);
    assert_int_equal(ts_file_mkdirs(longer), TS_ERR_FILE);
    assert_int_equal(ts_file_mkdirs(""), TS_ERR_FILE);
    snprintf(longer, 10000, "%s/none/file", p->folder);
    assert_int_equal(ts_file_write(longer, "x", 1), TS_ERR_FILE);
    free(longer);
}

static void folders_are_made(void **state)
{
    const place *p = *state;
    char *deep, *blocked;
    struct stat st;

    assert_true(asprintf(&deep, "%s/a/b//c", p->folder) > 0);
    assert_ok(ts_file_mkdirs(deep));
    assert_ok(ts_file_mkdirs(deep));
    assert_int_equal(stat(deep, &st), 0);
    assert_true(S_ISDIR(st.st_mode));
    ts_fault_arm("mkdir", 0);
    assert_int_equal(ts_file_mkdirs(deep), TS_ERR_FILE);
    ts_fault_arm(NULL, -1);

    assert_ok(ts_file_write(p->path, "x", 1));
    assert_int_equal(ts_file_mkdirs(p->path), TS_ERR_FILE);
    assert_true(asprintf(&blocked, "%s/under", p->path) > 0);
    assert_int_equal(ts_file_mkdirs(blocked), TS_ERR_FILE);
    free(deep);
    free(blocked);
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(written_is_read),
        CASE(failing_writes_change_nothing),
        CASE(any_failing_write_changes_nothing),
        CASE(failing_reads_say_why),
        CASE(what_is_no_file_is_not_read),
        CASE(what_is_no_file_is_not_replaced),
        CASE(links_stay),
        CASE(bad_paths),
        CASE(folders_are_made),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
