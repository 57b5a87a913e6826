/* executable.c - executables as files: what is saved comes back and runs the same; what is damaged,
 * foreign or made up is refused with words, whatever is wrong with it. */
#include "render/module.h"
#include "run/run.h"
#include "support.h"
#include <math.h>
#include <openssl/sha.h>
#include <sys/stat.h>
#include <unistd.h>

static char *folder;   /* the test's own; TMPDIR is a folder in it */
static char *tmp_then; /* TMPDIR outside the test */

static char *in_folder(const char *name)
{
    static char path[2][4096];
    static int which;

    which = !which;
    snprintf(path[which], sizeof(path[which]), "%s/%s", folder, name);
    return path[which];
}

static int open_folder(void **state)
{
    (void)state;
    folder = test_folder();
    tmp_then = getenv("TMPDIR") ? strdup(getenv("TMPDIR")) : NULL;
    assert_int_equal(mkdir(in_folder("tmp"), 0700), 0);
    setenv("TMPDIR", in_folder("tmp"), 1);
    setenv("TESSERA_CACHE_DIR", "", 1);
    return 0;
}

static int close_folder(void **state)
{
    (void)state;
    ts_fault_arm(NULL, -1);
    test_folder_remove(folder);
    free(folder);
    if (tmp_then)
        setenv("TMPDIR", tmp_then, 1);
    else
        unsetenv("TMPDIR");
    free(tmp_then);
    return 0;
}

/* y = x w scaled, loss = mean((y - t)^2) */
static ts_graph *net(double scale)
{
    ts_graph *g = ts_graph_new("net");
    ts_value *x = ts_input(g, "x", TS_F32, 4, 3), *t = ts_input(g, "t", TS_F32, 4, 2);
    ts_value *y = ts_mul_scalar(ts_linear(x, "fc", 2), scale);

    ts_output(y, "y");
    ts_loss(ts_mse_loss(y, t));
    return g;
}

static ts_executable *compile(double scale, ts_executor executor)
{
    ts_graph *g = net(scale);
    ts_optimizer sgd = ts_sgd(0.1);
    ts_executable *x;

    assert_ok(ts_compile(
        g, &(ts_options){.optimizer = &sgd, .executor = executor, .gradient_accumulation = 2}, &x));
    ts_graph_free(g);
    return x;
}

static void run(const ts_executable *x, float *y, float *loss)
{
    float in[2 * 12], t[2 * 8];
    ts_engine *e;

    for (int i = 0; i < 24; i++)
        in[i] = (float)(i % 7) / 4;
    for (int i = 0; i < 16; i++)
        t[i] = (float)(i % 5) / 2;
    assert_ok(ts_engine_new(x, &(ts_run_options){.threads = 1, .seed = 3}, &e));
    for (int i = 0; i < 3; i++)
        assert_ok(ts_engine_run(e, (const void *[]){in, t}, (void *[]){y, loss}));
    ts_engine_free(e);
}

static void check_same_run(const ts_executable *x, const ts_executable *y)
{
    float a[8], b[8], la, lb;

    run(x, a, &la);
    run(y, b, &lb);
    assert_memory_equal(a, b, sizeof(a));
    assert_memory_equal(&la, &lb, sizeof(la));
    assert_true(isfinite(la) && la > 0);
}

static void check_same_tensors(const ts_executable *x, const ts_executable *y)
{
    for (int role = TS_ROLE_INPUT; role <= TS_ROLE_STATE; role++)
        for (int i = 0;; i++) {
            const ts_tensor_info *a = ts_executable_tensor(x, (ts_role)role, i);
            const ts_tensor_info *b = ts_executable_tensor(y, (ts_role)role, i);
            assert_int_equal(!a, !b);
            if (!a)
                break;
            assert_string_equal(a->name, b->name);
            assert_int_equal(a->dtype, b->dtype);
            assert_int_equal(a->rank, b->rank);
            assert_memory_equal(a->dims, b->dims, sizeof(a->dims));
            assert_int_equal(a->bytes, b->bytes);
        }
}

static void round_trip(ts_executor executor)
{
    ts_executable *x = compile(1, executor), *y;

    assert_ok(ts_executable_save(x, in_folder("net.tse")));
    assert_ok(ts_executable_load(in_folder("net.tse"), &y));
    check_same_tensors(x, y);
    check_same_run(x, y);
    assert_string_equal(ts_executable_inspect(x), ts_executable_inspect(y));
    assert_int_equal(ts_executable_stats(y).native, executor == TS_EXECUTOR_NATIVE);
    assert_int_equal(ts_executable_stats(x).kernels, ts_executable_stats(y).kernels);
    if (executor == TS_EXECUTOR_NATIVE)
        assert_string_equal(ts_executable_source(x), ts_executable_source(y));
    else
        assert_null(ts_executable_source(y));
    ts_executable_free(x);
    ts_executable_free(y);
    assert_int_equal(test_folder_count(in_folder("tmp")), 0);
}

static void saved_and_loaded(void **state)
{
    (void)state;
    round_trip(TS_EXECUTOR_NATIVE);
}

static void saved_and_loaded_reference(void **state)
{
    (void)state;
    round_trip(TS_EXECUTOR_REFERENCE);
}

static void inspect_has_the_facts(void **state)
{
    static const char *const words[] = {"name                   net\n",
                                        "executor               native\n",
                                        "gradient_accumulation  2\n",
                                        "\ninputs\n",
                                        "f32[4,3]",
                                        "\noutputs\n",
                                        "\nstates\n",
                                        "fc.weight",
                                        "uniform(",
                                        "\nmemory\n",
                                        "\nkernels\n",
                                        "fc matmul",
                                        "\nkey "};
    ts_executable *x = compile(1, TS_EXECUTOR_NATIVE);

    (void)state;
    for (int i = 0; i < TS_COUNT(words); i++)
        if (!strstr(ts_executable_inspect(x), words[i]))
            fail_msg("no '%s' in:\n%s", words[i], ts_executable_inspect(x));
    ts_executable_free(x);
}

/* Descriptors' numbers come back, and dlopen remembers names: each load must be its own. */
static void many_at_once(void **state)
{
    enum { N = 6 };
    ts_executable *x[N], *y[N];

    (void)state;
    for (int i = 0; i < N; i++) {
        char name[32];
        snprintf(name, sizeof(name), "net%d.tse", i);
        x[i] = compile(1 + i, TS_EXECUTOR_NATIVE);
        assert_ok(ts_executable_save(x[i], in_folder(name)));
        assert_ok(ts_executable_load(in_folder(name), &y[i]));
    }
    for (int i = 0; i < N; i++) {
        check_same_run(x[i], y[i]);
        assert_ptr_not_equal(x[i]->module, y[i]->module);
    }
    for (int i = 0; i < N; i++) {
        ts_executable_free(x[i]);
        ts_executable_free(y[i]);
    }
}

static void without_anonymous_files(void **state)
{
    ts_executable *x, *y;

    (void)state;
    x = compile(1, TS_EXECUTOR_NATIVE);
    assert_ok(ts_executable_save(x, in_folder("net.tse")));
    ts_fault_arm("memfd", 0);
    assert_ok(ts_executable_load(in_folder("net.tse"), &y));
    ts_fault_arm(NULL, -1);
    check_same_run(x, y);
    assert_int_equal(test_folder_count(in_folder("tmp")), 0);
    ts_executable_free(x);
    ts_executable_free(y);
}

/* --- damage --- */

static ts_text packed(ts_executor executor)
{
    ts_executable *x = compile(1, executor);
    ts_text t = {0};

    assert_ok(ts_executable_pack(x, &t));
    ts_executable_free(x);
    return t;
}

/* In a block of exactly its size, so that the sanitizer sees a read past the end. */
static ts_status unpack(const char *file, size_t len)
{
    char *copy = malloc(len ? len : 1);
    ts_executable *x = NULL;
    ts_status s;

    assert_non_null(copy);
    memcpy(copy, file, len);
    s = ts_executable_unpack("net.tse", copy, len, &x);
    free(copy);
    ts_executable_free(x);
    return s;
}

static void every_byte_counts(void **state)
{
    ts_text t = packed(TS_EXECUTOR_NATIVE);

    (void)state;
    assert_ok(unpack(t.s, t.len));
    for (size_t i = 0; i < t.len; i += i < 300 ? 1 : 1 + t.len / 400) {
        t.s[i] ^= 0x10;
        assert_int_equal(unpack(t.s, t.len), TS_ERR_CORRUPT);
        assert_non_null(strstr(ts_last_error()->message, "net.tse"));
        t.s[i] ^= 0x10;
    }
    ts_text_free(&t);
}

static void every_length_counts(void **state)
{
    ts_text t = packed(TS_EXECUTOR_REFERENCE);

    (void)state;
    for (size_t n = 0; n < t.len; n++) {
        assert_int_equal(unpack(t.s, n), TS_ERR_CORRUPT);
        assert_non_null(strstr(ts_last_error()->message, n < 8 ? "is not a" : "cut off"));
    }
    ts_text_add(&t, "more", 4);
    assert_int_equal(unpack(t.s, t.len), TS_ERR_CORRUPT);
    assert_non_null(strstr(ts_last_error()->message, "4 bytes after its end"));
    ts_text_free(&t);
}

static void another_format_version(void **state)
{
    ts_text t = packed(TS_EXECUTOR_REFERENCE);

    (void)state;
    t.s[8] = 9;
    assert_fails(unpack(t.s, t.len), TS_ERR_CORRUPT,
                 "net.tse has format version 9; this library reads version 2");
    ts_text_free(&t);
}

static void words_name_the_part(void **state)
{
    ts_text t = packed(TS_EXECUTOR_NATIVE);
    ts_executable *x;

    (void)state;
    t.s[t.len - 1] ^= 1; /* the source is last: there is no graph */
    assert_int_equal(unpack(t.s, t.len), TS_ERR_CORRUPT);
    assert_non_null(strstr(ts_last_error()->message, "the checksum of the C source ("));
    assert_ok(ts_file_write(in_folder("bad.tse"), t.s, t.len));
    assert_int_equal(ts_executable_load(in_folder("bad.tse"), &x), TS_ERR_CORRUPT);
    assert_null(x);
    assert_non_null(strstr(ts_last_error()->doing, "loading the executable"));
    assert_int_equal(ts_executable_load(in_folder("none.tse"), &x), TS_ERR_FILE);
    assert_int_equal(ts_executable_load(folder, &x), TS_ERR_FILE);
    assert_int_equal(ts_executable_load(NULL, &x), TS_ERR_ARG);
    assert_int_equal(ts_executable_save(NULL, "x"), TS_ERR_ARG);
    ts_text_free(&t);
}

/* --- files that are whole, and lie --- */

static void little(unsigned char *p, uint64_t x)
{
    for (int i = 0; i < 8; i++)
        p[i] = (unsigned char)(x >> 8 * i);
}

/* The file with `from` in its manifest replaced by `to`, and all checksums right. */
static ts_text forged(const ts_text *file, const char *from, const char *to)
{
    enum { TABLE = 16, ROW = 48, HEADER = 240 };
    ts_text t = {0};
    unsigned char *h;
    char *manifest, *at;
    uint64_t offset = HEADER, old;

    memcpy(&old, file->s + TABLE + 8, sizeof(old));
    manifest = strndup(file->s + HEADER, old);
    at = strstr(manifest, from);
    if (!at)
        fail_msg("no %s in %s", from, manifest);
    ts_text_add(&t, file->s, HEADER + (size_t)(at - manifest));
    ts_text_add(&t, to, strlen(to));
    ts_text_add(&t, at + strlen(from), strlen(at + strlen(from)));
    little((unsigned char *)t.s + TABLE + 8, t.len - HEADER);
    ts_text_add(&t, file->s + HEADER + old, file->len - HEADER - old);
    h = (unsigned char *)t.s;
    for (int i = 0; i < 4; i++) {
        unsigned char *row = h + TABLE + i * ROW;
        uint64_t bytes;
        little(row, offset);
        memcpy(&bytes, row + 8, sizeof(bytes));
        SHA256(h + offset, bytes, row + 16);
        offset += bytes;
    }
    SHA256(h, TABLE + 4 * ROW, h + TABLE + 4 * ROW);
    free(manifest);
    return t;
}

static void made_up_manifests(void **state)
{
    static const struct {
        const char *from, *to;
        ts_status code;
        const char *word;
    } cases[] = {
        {"{\"name\"", "\"name\"", TS_ERR_CORRUPT, "is not JSON"},
        {"{\"name\":\"net\"", "{\"name\":7", TS_ERR_CORRUPT, "its top"},
        {"\"tessera\"", "\"tesserae\"", TS_ERR_CORRUPT, "tessera"},
        {"\"abi\":4", "\"abi\":77", TS_ERR_CORRUPT, "interface 77"},
        {"\"device_iterations\":1", "\"device_iterations\":0", TS_ERR_CORRUPT, "impossible"},
        {"\"device_iterations\":1", "\"device_iterations\":2147483647", TS_ERR_CORRUPT,
         "impossible"},
        {"\"gradient_accumulation\":2", "\"gradient_accumulation\":-2", TS_ERR_CORRUPT,
         "impossible"},
        {"\"output_mode\":\"final\"", "\"output_mode\":\"first\"", TS_ERR_CORRUPT, "output mode"},
        {"\"output_period\":1", "\"output_period\":0", TS_ERR_CORRUPT, "period"},
        {"\"memory\":[[", "\"memory\":[[-", TS_ERR_CORRUPT, "negative"},
        {"\"memory\":[[", "\"memory\":[[0,0],[", TS_ERR_CORRUPT, "outside the block"},
        {"\"kernels\":", "\"kernels\":-", TS_ERR_CORRUPT, "negative"},
        {"\"inputs\":[", "\"inputs\":7,\"x\":[", TS_ERR_CORRUPT, "inputs"},
        {"\"inputs\":[", "\"inputs\":[7,", TS_ERR_CORRUPT, "inputs[0]"},
        {"\"shape\":[4,3]", "\"shape\":[4,-3]", TS_ERR_CORRUPT, "impossible"},
        {"\"shape\":[4,3]", "\"shape\":[4,4611686018427387904,8]", TS_ERR_CORRUPT, "impossible"},
        {"\"shape\":[4,3]", "\"shape\":[4,\"3\"]", TS_ERR_CORRUPT, "impossible"},
        {"\"shape\":[4,3]", "\"shape\":[1,1,1,1,1,1,1,1,1]", TS_ERR_CORRUPT, "at most 8"},
        {"\"dtype\":\"f32\"", "\"dtype\":\"f33\"", TS_ERR_CORRUPT, "dtype"},
        {"\"shape\":[2,3]", "\"shape\":[2,300000]", TS_ERR_CORRUPT, "states[0]"},
        {"\"shape\":[2,3],\"device\":0,\"offset\":",
         "\"shape\":[2,3],\"device\":0,\"offset\":-1,\"x\":", TS_ERR_CORRUPT, "outside the block"},
        {"\"shape\":[2,3]",
         "\"layout\":{\"order\":[0,0],\"lane_dim\":0,\"lanes\":0},\"shape\":[2,3]", TS_ERR_CORRUPT,
         "once"},
        {"\"shape\":[2,3]", "\"layout\":{\"order\":[1],\"lane_dim\":0,\"lanes\":0},\"shape\":[2,3]",
         TS_ERR_CORRUPT, "once"},
        {"\"shape\":[2,3]",
         "\"layout\":{\"order\":[1,0],\"lane_dim\":2,\"lanes\":8},\"shape\":[2,3]", TS_ERR_CORRUPT,
         "lanes"},
        {"\"shape\":[2,3]",
         "\"layout\":{\"order\":[1,0],\"lane_dim\":1,\"lanes\":32000},\"shape\":[2,3]",
         TS_ERR_CORRUPT, "outside the block"},
        {"\"init\":[\"uniform\"", "\"init\":[\"uniformly\"", TS_ERR_CORRUPT, "init"},
        {"\"init\":[", "\"init\":[[],", TS_ERR_CORRUPT, "init"},
        {"\"key\":[", "\"key\":{},\"x\":[", TS_ERR_CORRUPT, "key"},
        {"\"key\":[", "\"key\":[[\"a\"],", TS_ERR_CORRUPT, "name and a value"},
        {"\"hash\":\"", "\"hash\":\"0123456789", TS_ERR_CORRUPT, "hash"},
        {"\"machine\":\"", "\"machine\":\"pdp-11, not ", TS_ERR_UNSUPPORTED, "pdp-11"},
        {"\"executor\":\"native\"", "\"executor\":\"reference\"", TS_ERR_CORRUPT, "no graph"},
    };
    ts_text file = packed(TS_EXECUTOR_NATIVE), t;

    (void)state;
    t = forged(&file, "\"name\":\"net\"", "\"name\":\"net\""); /* the forgery itself is sound */
    assert_ok(unpack(t.s, t.len));
    ts_text_free(&t);
    for (int i = 0; i < TS_COUNT(cases); i++) {
        t = forged(&file, cases[i].from, cases[i].to);
        if (unpack(t.s, t.len) != cases[i].code || !strstr(ts_last_error()->message, cases[i].word))
            fail_msg("%s: %s", cases[i].to, ts_error_text());
        ts_text_free(&t);
    }
    ts_text_free(&file);
}

static void lies_found_at_the_start(void **state)
{
    static const struct {
        ts_executor executor;
        const char *from, *to;
        ts_status code;
        const char *word;
    } cases[] = {
        {TS_EXECUTOR_NATIVE, "\"kernels\":", "\"kernels\":1", TS_ERR_CORRUPT, "kernels"},
        {TS_EXECUTOR_NATIVE, "\"isa\":\"", "\"isa\":\"x86-64-v9 and ", TS_ERR_UNSUPPORTED,
         "compiled for x86-64-v9"},
        {TS_EXECUTOR_REFERENCE, "\"shape\":[4,3]", "\"shape\":[4,4]", TS_ERR_CORRUPT,
         "another type"},
        {TS_EXECUTOR_REFERENCE, "\"inputs\":[", "\"inputs\":[],\"x\":[", TS_ERR_CORRUPT,
         "2 inputs"},
    };
    ts_executable *x;

    (void)state;
    for (int i = 0; i < TS_COUNT(cases); i++) {
        ts_text file = packed(cases[i].executor), t = forged(&file, cases[i].from, cases[i].to);
        assert_ok(ts_file_write(in_folder("lie.tse"), t.s, t.len));
        assert_int_equal(ts_executable_load(in_folder("lie.tse"), &x), cases[i].code);
        assert_non_null(strstr(ts_last_error()->message, cases[i].word));
        ts_text_free(&file);
        ts_text_free(&t);
    }
}

/* A shared object that is none, or another one, under right checksums. */
static void not_a_step(void **state)
{
    static const char *const objects[] = {"no ELF at all", "\x7f"
                                                           "ELF\2\1\1"};
    ts_executable *x = compile(1, TS_EXECUTOR_NATIVE), *y;
    ts_executable fake = *x;

    (void)state;
    for (int i = 0; i < TS_COUNT(objects); i++) {
        fake.object = objects[i];
        fake.object_bytes = strlen(objects[i]);
        assert_ok(ts_executable_save(&fake, in_folder("fake.tse")));
        assert_int_equal(ts_executable_load(in_folder("fake.tse"), &y), TS_ERR_CORRUPT);
        assert_non_null(strstr(ts_last_error()->message, "cannot load the compiled step"));
    }
    ts_executable_free(x);
    assert_int_equal(test_folder_count(in_folder("tmp")), 0);
}

/* --- manifests --- */

static void numbers_json_does_not_have(void **state)
{
    static const double starts[] = {INFINITY, -INFINITY, NAN, 0.1, -0.0, 5e-324};
    ts_executable *x = compile(1, TS_EXECUTOR_REFERENCE), *y = ts_executable_new();
    char *json;

    (void)state;
    for (int i = 0; i < TS_COUNT(starts); i++) {
        x->states[0].init = (ts_init){TS_INIT_NORMAL, starts[i], 2.5};
        x->states[0].layout = (ts_layout){.set = true, .order = {1, 0}, .lane_dim = 1, .lanes = 8};
        assert_ok(ts_manifest_write(x, &json));
        assert_ok(ts_manifest_read("m", json, strlen(json), y));
        free(json);
        assert_int_equal(y->states[0].init.kind, TS_INIT_NORMAL);
        assert_true(isnan(starts[i]) ? isnan(y->states[0].init.a)
                                     : !memcmp(&y->states[0].init.a, &starts[i], 8));
        assert_int_equal(y->states[0].layout.order[0], 1);
        assert_int_equal(y->states[0].layout.lane_dim, 1);
        assert_int_equal(y->states[0].layout.lanes, 8);
    }
    ts_executable_free(x);
    ts_executable_free(y);
}

static void names_must_be_utf8(void **state)
{
    ts_executable *x = compile(1, TS_EXECUTOR_REFERENCE);

    (void)state;
    x->inputs[0].info.name = "\xff\xfe";
    assert_int_equal(ts_executable_save(x, in_folder("net.tse")), TS_ERR_ARG);
    assert_string_equal(ts_last_error()->hint, "names must be UTF-8");
    assert_int_not_equal(access(in_folder("net.tse"), F_OK), 0);
    ts_executable_free(x);
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, open_folder, close_folder)
    const struct CMUnitTest tests[] = {
        CASE(saved_and_loaded),           CASE(saved_and_loaded_reference),
        CASE(inspect_has_the_facts),      CASE(many_at_once),
        CASE(without_anonymous_files),    CASE(every_byte_counts),
        CASE(every_length_counts),        CASE(another_format_version),
        CASE(words_name_the_part),        CASE(made_up_manifests),
        CASE(lies_found_at_the_start),    CASE(not_a_step),
        CASE(numbers_json_does_not_have), CASE(names_must_be_utf8),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
