/* safetensors.c - headers as they should be, and not. */
#include "files.h"

static ts_status load(const char *header, size_t data, ts_object **o)
{
    bytes b = {0};
    ts_status s;

    add_number(&b, strlen(header), 8);
    add(&b, header, strlen(header));
    for (size_t i = 0; i < data; i++)
        add_number(&b, i, 1);
    s = ts_object_load_memory(b.data, b.len, o);
    free(b.data);
    return s;
}

static void headers_that_read(void **state)
{
    ts_object *o;

    (void)state;
    assert_ok(load("{\"b\":{\"dtype\":\"U8\",\"shape\":[2,1],\"data_offsets\":[3,5]},"
                   "\"a\":{\"data_offsets\":[0,3],\"shape\":[3],\"dtype\":\"BOOL\"},"
                   "\"s\":{\"dtype\":\"I8\",\"shape\":[],\"data_offsets\":[5,6]},"
                   "\"e\":{\"dtype\":\"F64\",\"shape\":[0,4],\"data_offsets\":[6,6]},"
                   "\"__metadata__\":{\"format\":\"pt\"}}   ",
                   6, &o));
    assert_int_equal(ts_object_size(o), 5);
    assert_string_equal(ts_object_text(ts_object_key(o, 0)), "b");
    assert_memory_equal(ts_object_array(ts_object_get(o, "b"))->data, "\3\4", 2);
    assert_memory_equal(ts_object_array(ts_object_get(o, "a"))->data, "\0\1\1", 3);
    assert_int_equal(ts_object_int(ts_object_get(o, "s"), 0), 5);
    assert_string_equal(ts_object_text(ts_object_get(ts_object_get(o, "__metadata__"), "format")),
                        "pt");
    ts_object_free(o);
    assert_ok(load("{}", 0, &o));
    assert_int_equal(ts_object_size(o), 0);
    ts_object_free(o);
}

#define ONE(dtype, shape, offsets)                                                                 \
    "{\"w\":{\"dtype\":" dtype ",\"shape\":" shape ",\"data_offsets\":" offsets "}}"

static void headers_that_do_not(void **state)
{
    static const struct {
        const char *header;
        ts_status code;
        const char *words;
    } cases[] = {
        {ONE("\"F32\"", "[2]", "[0,4]"), TS_ERR_CORRUPT,
         "tensor 'w' needs 8 bytes and is at 0 to 4 of 8"},
        {ONE("\"F32\"", "[2]", "[4,12]"), TS_ERR_CORRUPT,
         "tensor 'w' needs 8 bytes and is at 4 to 12 of 8"},
        {ONE("\"F32\"", "[2]", "[-8,0]"), TS_ERR_CORRUPT,
         "tensor 'w' needs 8 bytes and is at 18446744073709551608 to 0 of 8"},
        {ONE("\"F32\"", "[0]", "[9,9]"), TS_ERR_CORRUPT,
         "tensor 'w' needs 0 bytes and is at 9 to 9 of 8"},
        {ONE("\"F32\"", "[4611686018427387904,4]", "[0,8]"), TS_ERR_SHAPE,
         "a tensor with more elements than memory has bytes"},
        {ONE("\"F32\"", "[-1]", "[0,8]"), TS_ERR_SHAPE, "dim 0 of a tensor is -1"},
        {ONE("\"F32\"", "[1.5]", "[0,8]"), TS_ERR_CORRUPT,
         "tensor 'w' has a shape that is not of integers"},
        {ONE("\"F32\"", "2", "[0,8]"), TS_ERR_CORRUPT, "tensor 'w' has no shape"},
        {ONE("\"F32\"", "[1,1,1,1,1,1,1,1,1]", "[0,8]"), TS_ERR_UNSUPPORTED,
         "tensor 'w' has rank 9; up to 8 are supported"},
        {ONE("\"F8_E4M3\"", "[8]", "[0,8]"), TS_ERR_UNSUPPORTED, "tensor 'w' has dtype F8_E4M3"},
        {ONE("8", "[8]", "[0,8]"), TS_ERR_CORRUPT, "tensor 'w' has no dtype"},
        {ONE("\"U8\"", "[8]", "[0]"), TS_ERR_CORRUPT, "tensor 'w' has no data_offsets"},
        {ONE("\"U8\"", "[8]", "{}"), TS_ERR_CORRUPT, "tensor 'w' has no data_offsets"},
        {"{\"w\":3}", TS_ERR_CORRUPT, "tensor 'w' has no description"},
        {"{\"__metadata__\":3}", TS_ERR_CORRUPT, "tensor '__metadata__' has no names and texts"},
        {"{\"__metadata__\":{\"a\":1}}", TS_ERR_CORRUPT,
         "tensor '__metadata__' has a value that is no text"},
    };

    (void)state;
    for (int i = 0; i < TS_COUNT(cases); i++) {
        ts_object *o;
        ts_status s = load(cases[i].header, 8, &o);
        assert_string_equal(ts_last_error()->message, cases[i].words);
        assert_int_equal(s, cases[i].code);
        assert_null(o);
    }
}

static void no_json(void **state)
{
    static const char *const wrong[] = {
        "{", "{\"a\"}", "{\"a\":1,\"a\":2}", "{\"a\":\"\xff\"}", "{} {}", "{\"a\\u0000\":1}"};

    (void)state;
    for (int i = 0; i < TS_COUNT(wrong); i++) {
        ts_object *o;
        assert_int_equal(load(wrong[i], 8, &o), TS_ERR_CORRUPT);
        assert_non_null(strstr(ts_last_error()->message, "a header that is no JSON"));
    }
}

/* Tensors that share bytes would let a small file unfold. */
static void tensors_over_each_other(void **state)
{
    ts_object *o;

    (void)state;
    assert_fails(load("{\"a\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[0,8]},"
                      "\"b\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[0,8]}}",
                      8, &o),
                 TS_ERR_CORRUPT, "tensor 'b' needs 8 bytes and is at 0 to 8 of 8");
}

/* From wide to narrow elements, without holes, after a header of a multiple of 8 bytes. */
static void written_aligned(void **state)
{
    ts_object *o = tensors(false), *back;
    bytes b = saved(o, TS_FILE_SAFETENSORS);

    (void)state;
    assert_int_equal(ts_little(b.data, 8) % 8, 0);
    assert_int_equal(b.data[8], '{');
    assert_ok(ts_object_load_memory(b.data, b.len, &back));
    for (int64_t i = 0; i < ts_object_size(o); i++) {
        const char *key = ts_object_text(ts_object_key(o, i));
        assert_same(ts_object_at(o, i), ts_object_get(back, key));
    }
    assert_int_equal(ts_object_array(ts_object_at(back, 0))->dtype, TS_F64);
    ts_object_free(o);
    ts_object_free(back);
    free(b.data);
}

static void what_cannot_be_written(void **state)
{
    char *folder = test_folder(), *path;
    ts_object *d = ts_object_new_dict(), *m = ts_object_new_dict(), *l = ts_object_new_list();

    (void)state;
    assert_true(asprintf(&path, "%s/x.safetensors", folder) > 0);
    assert_fails(ts_object_save(l, path, TS_FILE_AUTO), TS_ERR_TYPE,
                 "a safetensors file holds a dict of tensors, not a list");
    assert_ok(ts_object_set_int(m, 0, ts_object_new_text("x")));
    assert_ok(ts_object_set(d, "__metadata__", m));
    assert_fails(ts_object_save(d, path, TS_FILE_AUTO), TS_ERR_TYPE,
                 "the metadata of a safetensors file is text by name only");
    assert_ok(ts_object_set(d, "list", l));
    assert_fails(ts_object_save(d, path, TS_FILE_AUTO), TS_ERR_TYPE,
                 "a safetensors file holds tensors by name only; 'list' is none");
    assert_int_equal(test_folder_count(folder), 0);
    ts_object_free(d);
    test_folder_remove(folder);
    free(folder);
    free(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(headers_that_read), cmocka_unit_test(headers_that_do_not),
        cmocka_unit_test(no_json),           cmocka_unit_test(tensors_over_each_other),
        cmocka_unit_test(written_aligned),   cmocka_unit_test(what_cannot_be_written),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
