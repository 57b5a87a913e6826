/* store.c - files as a whole: round trips, every way a load or save can fail, and what is left. */
#include "files.h"
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct place {
    char *folder, *path;
} place;

static int setup(void **state)
{
    place *p = calloc(1, sizeof(*p));

    p->folder = test_folder();
    assert_true(asprintf(&p->path, "%s/file.pth", p->folder) > 0);
    *state = p;
    return 0;
}

static int teardown(void **state)
{
    place *p = *state;

    ts_fault_arm(NULL, -1);
    chmod(p->folder, 0700);
    test_folder_remove(p->folder);
    free(p->folder);
    free(p->path);
    free(p);
    return 0;
}

/* --- round trips ------------------------------------------------------------------------------ */

static void check_round_trip(const char *path, ts_object *o, ts_file_format format)
{
    ts_object *back;
    bytes first, second;

    assert_ok(ts_object_save(o, path, format));
    first = read_bytes(path);
    assert_ok(ts_object_load(path, &back));
    if (format == TS_FILE_SAFETENSORS) /* which has an order of its own */
        assert_int_equal(ts_object_size(o), ts_object_size(back));
    else
        assert_same(o, back);
    assert_ok(ts_object_save(back, path, format));
    second = read_bytes(path);
    assert_int_equal(first.len, second.len);
    assert_memory_equal(first.data, second.data, first.len);
    ts_object_free(back);
    ts_object_free(o);
    free(first.data);
    free(second.data);
}

static void round_trips(void **state)
{
    const place *p = *state;

    check_round_trip(p->path, checkpoint(), TS_FILE_PTH);
    check_round_trip(p->path, ts_object_new_none(), TS_FILE_PTH);
    check_round_trip(p->path, ts_object_new_list(), TS_FILE_PTH);
    check_round_trip(p->path, tensors(false), TS_FILE_SAFETENSORS);
    check_round_trip(p->path, tensors(true), TS_FILE_NPZ);
    check_round_trip(p->path, ts_object_new_dict(), TS_FILE_NPZ);
    for (int t = 0; t < TS_STORE_DTYPES; t++)
        if (t != TS_BF16)
            check_round_trip(p->path, TENSOR((ts_dtype)t, 3, 1, 2), TS_FILE_NPY);
    check_round_trip(p->path, tensor(TS_F32, 0, NULL), TS_FILE_NPY);
    assert_int_equal(test_folder_count(p->folder), 1);
}

/* Of a dict of text: given back as it was, and none of it in the pickle. What is no dict of text is
 * an entry like others. */
static void metadata_beside_the_tree(void **state)
{
    const place *p = *state;
    ts_object *o = tensors(false), *m = ts_object_new_dict();
    bytes b;

    assert_ok(ts_object_set(m, "tessera.model", ts_object_new_text("input 4\nf: linear 2\n")));
    assert_ok(ts_object_set(m, "a/b n\xc3\xa4t", ts_object_new_text("")));
    assert_ok(ts_object_set(o, TS_METADATA, m));
    assert_ok(ts_object_save(o, p->path, TS_FILE_PTH));
    b = read_bytes(p->path);
    assert_null(memmem(b.data, b.len, TS_METADATA, strlen(TS_METADATA)));
    assert_non_null(memmem(b.data, b.len, "archive/extra/tessera.model", 27));
    free(b.data);
    check_round_trip(p->path, o, TS_FILE_PTH);
    for (int i = 0; i < 4; i++) {
        o = tensors(false);
        m = i == 0 ? ts_object_new_int(3) : ts_object_new_dict();
        if (i == 1)
            assert_ok(ts_object_set(m, "", ts_object_new_text("no name")));
        if (i == 2)
            assert_ok(ts_object_set(m, "a", ts_object_new_float(1)));
        assert_ok(ts_object_set(o, TS_METADATA, m));
        check_round_trip(p->path, o, TS_FILE_PTH);
    }
}

/* Only the top has some; a list's is a dict like others. */
static void metadata_of_the_top_only(void **state)
{
    const place *p = *state;
    ts_object *list = ts_object_new_list(), *o = ts_object_new_dict(), *m = ts_object_new_dict();

    assert_ok(ts_object_set(m, "k", ts_object_new_text("v")));
    assert_ok(ts_object_set(o, TS_METADATA, m));
    assert_ok(ts_object_append(list, o));
    check_round_trip(p->path, list, TS_FILE_PTH);
}

static void legacy_reads(void **state)
{
    ts_object *o = checkpoint(), *back;
    bytes b = legacy(o);
    const place *p = *state;

    assert_ok(ts_object_load_memory(b.data, b.len, &back));
    assert_same(o, back);
    ts_object_free(back);
    assert_ok(ts_file_write(p->path, b.data, b.len));
    assert_ok(ts_object_load(p->path, &back));
    assert_same(o, back);
    ts_object_free(back);
    ts_object_free(o);
    free(b.data);
}

static void legacy_refused(void **state)
{
    static const struct {
        const char *data;
        size_t len;
        const char *words;
    } cases[] = {
#define CASE(text, words) {text, sizeof(text) - 1, words}
        CASE(LEGACY_MAGIC "\x80\x02K\x05.", "version 5 of PyTorch's old file format; 1001 is read"),
        CASE(LEGACY_MAGIC "\x80\x02M\xe9\x03.\x80\x02}X\x0d\x00\x00\x00little_endian\x89s.",
             "a checkpoint of a big-endian machine"),
        CASE(LEGACY_HEAD "\x80\x02N.\x80\x02]X\x01\x00\x00\x00xa.",
             "a storage that no tensor uses, or one twice"),
        CASE(LEGACY_HEAD
             "\x80\x02(X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x00xX"
             "\x03\x00\x00\x00"
             "cpuK\x05tQ0N.\x80\x02].",
             "storage x is not in the file"),
        CASE(LEGACY_HEAD
             "\x80\x02(X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x00xX"
             "\x03\x00\x00\x00"
             "cpuK\x05tQ0N.\x80\x02]X\x01\x00\x00\x00xa."
             "\x06\x00\x00\x00\x00\x00\x00\x00",
             "storage x has 6 elements and should have 5"),
#undef CASE
    };

    (void)state;
    for (int i = 0; i < TS_COUNT(cases); i++) {
        ts_object *o;
        assert_true(ts_object_load_memory(cases[i].data, cases[i].len, &o) != TS_OK);
        assert_string_equal(ts_last_error()->message, cases[i].words);
        assert_null(o);
    }
}

/* Tied weights stay one storage in the file. */
static void tied_once(void **state)
{
    const place *p = *state;
    ts_object *d = ts_object_new_dict(), *w = TENSOR(TS_F32, 1000), *o;
    bytes b;

    assert_ok(ts_object_set(d, "a", ts_object_share(w)));
    assert_ok(ts_object_set(d, "b", w));
    assert_ok(ts_object_save(d, p->path, TS_FILE_AUTO));
    b = read_bytes(p->path);
    assert_true(b.len < 2 * 4000);
    assert_ok(ts_object_load(p->path, &o));
    assert_same(d, o);
    assert_ptr_equal(ts_object_array(ts_object_at(o, 0))->data,
                     ts_object_array(ts_object_at(o, 1))->data);
    ts_object_free(o);
    ts_object_free(d);
    free(b.data);
}

static void aligned_data(void **state)
{
    ts_object *o = checkpoint();
    bytes b = saved(o, TS_FILE_PTH);
    int entries = 0;

    (void)state;
    for (size_t i = 0; i + 30 < b.len; i++)
        if (!memcmp(b.data + i, "PK\3\4", 4)) {
            assert_int_equal(
                (i + 30 + ts_little(b.data + i + 26, 2) + ts_little(b.data + i + 28, 2)) % 64, 0);
            entries++;
        }
    assert_int_equal(entries, TS_STORE_DTYPES + 3 + 1 + 3);
    ts_object_free(o);
    free(b.data);
}

/* --- reading what is wrong -------------------------------------------------------------------- */

/* A file cut short anywhere is refused; the first .npz bytes alone may still be an empty
 * archive. */
static void check_truncated(bytes b)
{
    for (size_t n = 0; n < b.len; n++) {
        uint8_t *exact = malloc(n ? n : 1);
        ts_object *o;
        memcpy(exact, b.data, n);
        assert_true(ts_object_load_memory(exact, n, &o) != TS_OK);
        assert_null(o);
        free(exact);
    }
    free(b.data);
}

static void truncated_anywhere(void **state)
{
    ts_object *o = checkpoint(), *t = tensors(true), *a = TENSOR(TS_F32, 3);

    (void)state;
    check_truncated(saved(o, TS_FILE_PTH));
    check_truncated(legacy(o));
    check_truncated(saved(t, TS_FILE_SAFETENSORS));
    check_truncated(saved(t, TS_FILE_NPZ));
    check_truncated(saved(a, TS_FILE_NPY));
    ts_object_free(o);
    ts_object_free(t);
    ts_object_free(a);
}

static void not_a_checkpoint(void **state)
{
    const place *p = *state;
    ts_object *o = (ts_object *)&o;

    assert_fails(ts_object_load_memory("", 0, &o), TS_ERR_PARSE, "the file is empty");
    assert_fails(ts_object_load_memory(NULL, 0, &o), TS_ERR_PARSE, "the file is empty");
    assert_fails(ts_object_load_memory("hello, world", 12, &o), TS_ERR_PARSE,
                 "12 bytes that are no checkpoint and no array");
    assert_string_equal(ts_last_error()->hint,
                        "PyTorch's .pth, safetensors, and NumPy's .npy and .npz are read");
    assert_fails(ts_object_load_memory("\x80\x02N.", 4, &o), TS_ERR_PARSE,
                 "4 bytes that are no checkpoint and no array");
    assert_int_equal(ts_object_load_memory(NULL, 5, &o), TS_ERR_ARG);
    assert_int_equal(ts_object_load(NULL, &o), TS_ERR_ARG);
    assert_int_equal(ts_object_load(p->path, NULL), TS_ERR_ARG);
    assert_int_equal(ts_object_load(p->path, &o), TS_ERR_FILE);
    assert_non_null(strstr(ts_last_error()->message, "No such file"));
    assert_null(o);
    assert_int_equal(ts_object_load(p->folder, &o), TS_ERR_FILE);
    assert_non_null(strstr(ts_last_error()->message, "is not a regular file"));
    assert_int_equal(mkfifo(p->path, 0600), 0);
    assert_int_equal(ts_object_load(p->path, &o), TS_ERR_FILE); /* and does not wait for a writer */
}

static void errors_name_the_file(void **state)
{
    const place *p = *state;
    ts_object *o;
    char words[5000];

    assert_ok(ts_file_write(p->path, "hello", 5));
    assert_int_equal(ts_object_load(p->path, &o), TS_ERR_PARSE);
    snprintf(words, sizeof(words), "reading %s", p->path);
    assert_string_equal(ts_last_error()->doing, words);
}

/* --- failing on demand ------------------------------------------------------------------------ */

static void check_failing_loads(const char *path)
{
    int n;

    for (n = 0;; n++) {
        ts_object *o;
        ts_fault_arm(NULL, n);
        ts_status s = ts_object_load(path, &o);
        ts_fault_arm(NULL, -1);
        if (!s) {
            ts_object_free(o);
            break;
        }
        assert_true(s == TS_ERR_MEMORY || s == TS_ERR_FILE);
        assert_null(o);
    }
    assert_true(n >= 4);
}

static void failing_loads(void **state)
{
    const place *p = *state;
    ts_object *o = checkpoint(), *t = tensors(true), *a = TENSOR(TS_F32, 3);
    bytes b = legacy(o);

    assert_ok(ts_object_save(o, p->path, TS_FILE_PTH));
    check_failing_loads(p->path);
    assert_ok(ts_file_write(p->path, b.data, b.len));
    check_failing_loads(p->path);
    assert_ok(ts_object_save(t, p->path, TS_FILE_SAFETENSORS));
    check_failing_loads(p->path);
    assert_ok(ts_object_save(t, p->path, TS_FILE_NPZ));
    check_failing_loads(p->path);
    assert_ok(ts_object_save(a, p->path, TS_FILE_NPY));
    check_failing_loads(p->path);
    ts_object_free(o);
    ts_object_free(t);
    ts_object_free(a);
    free(b.data);
}

/* The old file stays, no temporary one is left. */
static void check_old(const place *p)
{
    ts_object *o;

    assert_int_equal(test_folder_count(p->folder), 1);
    assert_ok(ts_object_load(p->path, &o));
    assert_int_equal(ts_object_int(o, 0), 42);
    ts_object_free(o);
}

static void save_old(const place *p)
{
    ts_object *o = ts_object_new_int(42);

    assert_ok(ts_object_save(o, p->path, TS_FILE_PTH));
    ts_object_free(o);
}

static void check_failing_saves(const place *p, const ts_object *o, ts_file_format format)
{
    int n;

    save_old(p);
    for (n = 0;; n++) {
        ts_fault_arm(NULL, n);
        ts_status s = ts_object_save(o, p->path, format);
        ts_fault_arm(NULL, -1);
        if (!s)
            break;
        assert_true(s == TS_ERR_MEMORY || s == TS_ERR_FILE);
        check_old(p);
    }
    assert_true(n >= 5);
}

static void failing_saves(void **state)
{
    const place *p = *state;
    ts_object *o = checkpoint(), *t = tensors(true), *a = TENSOR(TS_F32, 3);

    check_failing_saves(p, o, TS_FILE_PTH);
    check_failing_saves(p, t, TS_FILE_SAFETENSORS);
    check_failing_saves(p, t, TS_FILE_NPZ);
    check_failing_saves(p, a, TS_FILE_NPY);
    ts_object_free(o);
    ts_object_free(t);
    ts_object_free(a);
}

/* As a full disk does it: some bytes are written, then no more. */
static void no_room(void **state)
{
    const place *p = *state;
    ts_object *o = TENSOR(TS_F32, 100000);
    struct rlimit before, small;
    char words[5000];

    save_old(p);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before;
    small.rlim_cur = 100000;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    ts_status s = ts_object_save(o, p->path, TS_FILE_PTH);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, SIG_DFL);
    assert_int_equal(s, TS_ERR_FILE);
    snprintf(words, sizeof(words), "cannot write %s: File too large", p->path);
    assert_string_equal(ts_last_error()->message, words);
    snprintf(words, sizeof(words), "saving %s", p->path);
    assert_string_equal(ts_last_error()->doing, words);
    check_old(p);
    ts_object_free(o);
}

static void unwritable_folder(void **state)
{
    const place *p = *state;
    ts_object *o = ts_object_new_int(1);

    assert_int_equal(ts_object_save(o, "/proc/file.pth", TS_FILE_AUTO), TS_ERR_FILE);
    assert_non_null(strstr(ts_last_error()->message, "cannot create a file beside /proc/file.pth"));
    save_old(p);
    assert_int_equal(chmod(p->folder, 0500), 0);
    if (geteuid()) { /* root may write anywhere */
        assert_int_equal(ts_object_save(o, p->path, TS_FILE_PTH), TS_ERR_FILE);
        assert_non_null(strstr(ts_last_error()->message, "Permission denied"));
        check_old(p);
    }
    ts_object_free(o);
}

static void endings(void **state)
{
    static const char *const names[] = {"a.pt", "a.CKPT", "a.npz", "a.safetensors"};
    const place *p = *state;
    ts_object *o = tensors(true), *back;
    char path[5000];

    for (int i = 0; i < TS_COUNT(names); i++) {
        snprintf(path, sizeof(path), "%s/%s", p->folder, names[i]);
        assert_ok(ts_object_save(o, path, TS_FILE_AUTO));
        assert_ok(ts_object_load(path, &back));
        assert_int_equal(ts_object_size(back), ts_object_size(o));
        ts_object_free(back);
    }
    assert_fails(ts_object_save(o, "weights", TS_FILE_AUTO), TS_ERR_ARG,
                 "the ending of weights says no format");
    assert_fails(ts_object_save(o, p->path, (ts_file_format)9), TS_ERR_ARG, "9 is no file format");
    assert_int_equal(ts_object_save(NULL, p->path, TS_FILE_PTH), TS_ERR_ARG);
    assert_int_equal(ts_object_save(o, NULL, TS_FILE_PTH), TS_ERR_ARG);
    assert_int_equal(test_folder_count(p->folder), TS_COUNT(names));
    ts_object_free(o);
}

static void too_deep_to_save(void **state)
{
    const place *p = *state;
    ts_object *o = ts_object_new_list();

    for (int i = 0; i < 1000; i++) {
        ts_object *outer = ts_object_new_list();
        assert_ok(ts_object_append(outer, o));
        o = outer;
    }
    assert_fails(ts_object_save(o, p->path, TS_FILE_PTH), TS_ERR_UNSUPPORTED,
                 "lists, tuples and dicts nested deeper than 200");
    assert_int_equal(test_folder_count(p->folder), 0);
    ts_object_free(o);
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(round_trips),
        CASE(legacy_reads),
        CASE(legacy_refused),
        CASE(tied_once),
        CASE(aligned_data),
        CASE(truncated_anywhere),
        CASE(not_a_checkpoint),
        CASE(errors_name_the_file),
        CASE(failing_loads),
        CASE(failing_saves),
        CASE(no_room),
        CASE(unwritable_folder),
        CASE(endings),
        CASE(too_deep_to_save),
        CASE(metadata_beside_the_tree),
        CASE(metadata_of_the_top_only),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
