/* cache_list.c - looking into the cache: what is there, what cannot be used and why, and removing.
 */
#include "cache/cache.h"
#include "render/render.h"
#include "support.h"
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static char *folder;
static ts_cache_entry *entries;
static int count;

static const char *at(const char *name)
{
    static char path[4096];

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    return path;
}

static int setup(void **state)
{
    (void)state;
    folder = test_folder();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    free(entries);
    entries = NULL;
    test_folder_remove(folder);
    free(folder);
    return 0;
}

static void look(int want)
{
    free(entries);
    assert_ok(ts_cache_list(folder, &entries, &count));
    assert_int_equal(count, want);
}

static void compile(const char *name)
{
    ts_graph *g = ts_graph_new(name);
    ts_executable *x;

    ts_output(ts_relu(ts_input(g, "x", TS_F32, 2)), "y");
    assert_ok(
        ts_compile(g, &(ts_options){.executor = TS_EXECUTOR_NATIVE, .cache_dir = folder}, &x));
    ts_executable_free(x);
    ts_graph_free(g);
}

static void it_lists_the_last_used_first(void **state)
{
    struct timespec old[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
    struct stat st;

    (void)state;
    look(0);
    compile("first");
    look(1);
    assert_int_equal(utimensat(AT_FDCWD, at(entries[0].file), old, 0), 0);
    compile("second");
    assert_ok(ts_file_write(at("something else"), "x", 1));
    look(2);
    assert_string_equal(entries[0].model, "second");
    assert_string_equal(entries[1].model, "first");
    assert_int_equal(entries[1].used, 1000);
    assert_int_equal(stat(at(entries[0].file), &st), 0);
    assert_int_equal(entries[0].bytes, st.st_size);
    assert_string_equal(entries[0].problem, "");
}

static void assert_problem(const char *words)
{
    look(1);
    if (!strstr(entries[0].problem, words))
        fail_msg("'%s', not '%s'", entries[0].problem, words);
}

static void what_cannot_be_used_says_why(void **state)
{
    char path[4096], *file;
    size_t len;

    (void)state;
    compile("net");
    look(1);
    snprintf(path, sizeof(path), "%s", at(entries[0].file));
    assert_int_equal(chmod(path, 0622), 0);
    assert_problem("others may write it");
    assert_int_equal(chmod(path, 0600), 0);
    assert_ok(ts_file_read(path, &file, &len));
    file[len - 1] ^= 1;
    assert_ok(ts_file_write_private(path, file, len));
    free(file);
    assert_problem("the checksum of the");
    assert_string_equal(entries[0].model, "");
    unlink(path);
    assert_int_equal(symlink("/etc/passwd", path), 0);
    assert_problem("it cannot be opened");
}

/* What a library wrote that was built at another time. */
static void another_build_made_it(void **state)
{
    ts_executable *x;
    ts_text packed = {0};
    char path[4096], *file;
    size_t len;

    (void)state;
    compile("net");
    look(1);
    snprintf(path, sizeof(path), "%s", at(entries[0].file));
    assert_ok(ts_file_read(path, &file, &len));
    assert_ok(ts_executable_unpack(path, file, len, &x));
    for (int i = 0; i < x->key.nentries; i++)
        if (!strcmp(x->key.entries[i][0], "tessera"))
            x->key.entries[i][1] = TS_VERSION " of another day";
    assert_ok(ts_executable_pack(x, &packed));
    assert_ok(ts_file_write_private(path, packed.s, packed.len));
    assert_problem("another build of the library made it");
    assert_string_equal(entries[0].model, "net");
    ts_text_free(&packed);
    ts_executable_free(x);
    free(file);
}

static void leftovers_are_listed(void **state)
{
    static const char lock[] = "0123456789abcdef0123456789abcdef.lock";
    int held;

    (void)state;
    assert_ok(ts_file_write(at(lock), "", 0));
    held = open(at(lock), O_RDONLY);
    assert_int_equal(flock(held, LOCK_EX), 0);
    look(0); /* someone holds it */
    assert_int_equal(ts_cache_remove(folder, lock), TS_ERR_ARG);
    close(held);
    assert_problem("a process that was killed left it");
    assert_ok(ts_cache_remove(folder, lock));
    look(0);
}

static void only_entries_are_removed(void **state)
{
    (void)state;
    compile("net");
    look(1);
    assert_ok(ts_file_write(at("mine"), "x", 1));
    assert_fails(ts_cache_remove(folder, "mine"), TS_ERR_ARG, "the cache has no entry 'mine'");
    assert_int_equal(ts_cache_remove(folder, "../x"), TS_ERR_ARG);
    assert_int_equal(ts_cache_remove(folder, ""), TS_ERR_ARG);
    assert_ok(ts_cache_remove(folder, entries[0].file));
    assert_int_equal(ts_cache_remove(folder, entries[0].file), TS_ERR_ARG);
    look(0);
    assert_int_equal(access(at("mine"), F_OK), 0);
}

static void folders(void **state)
{
    char path[4096], small[4];

    (void)state;
    assert_ok(ts_cache_folder(folder, path, sizeof(path)));
    assert_string_equal(path, folder);
    assert_ok(ts_cache_folder("", path, sizeof(path)));
    assert_string_equal(path, "");
    assert_int_equal(ts_cache_folder(folder, small, sizeof(small)), TS_ERR_ARG);
    assert_ok(ts_cache_list("", &entries, &count));
    assert_int_equal(count, 0);
    assert_ok(ts_cache_list("/nowhere/at/all", &entries, &count));
    assert_int_equal(count, 0);
    assert_int_equal(ts_cache_list("/etc/passwd", &entries, &count), TS_ERR_FILE);
    assert_true(ts_cache_limit() > 0);
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(it_lists_the_last_used_first), CASE(what_cannot_be_used_says_why),
        CASE(another_build_made_it),        CASE(leftovers_are_listed),
        CASE(only_entries_are_removed),     CASE(folders),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
