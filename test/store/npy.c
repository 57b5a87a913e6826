/* npy.c - .npy headers as NumPy prints them, and as it never would. */
#include "files.h"

static ts_status load_version(int version, const char *header, size_t data, ts_object **o)
{
    bytes b = {0};
    ts_status s;

    ADD(&b, "\x93NUMPY");
    add_number(&b, (uint64_t)version, 2);
    add_number(&b, strlen(header), version == 1 ? 2 : 4);
    add(&b, header, strlen(header));
    for (size_t i = 0; i < data; i++)
        add_number(&b, i, 1);
    s = ts_object_load_memory(b.data, b.len, o);
    free(b.data);
    return s;
}

static ts_status load(const char *header, size_t data, ts_object **o)
{
    return load_version(1, header, data, o);
}

static void headers_that_read(void **state)
{
    static const char *const headers[] = {
        "{'descr': '|u1', 'fortran_order': False, 'shape': (2, 3), }          \n",
        "{'descr': '|u1', 'fortran_order': False, 'shape': (2, 3)}",
        "{'shape':(2,3,),'fortran_order':False,'descr':'|u1'}\n",
        "{ 'descr' : '>u1' , 'fortran_order' : False , 'shape' : ( 2 , 3 ) , } ",
        "{'descr': '|u1', 'fortran_order': True, 'shape': (2, 3), }",
    };
    static const uint8_t fortran[] = {0, 2, 4, 1, 3, 5};

    (void)state;
    for (int i = 0; i < TS_COUNT(headers); i++)
        for (int version = 1; version <= 3; version++) {
            ts_object *o;
            const ts_array *a;
            assert_ok(load_version(version, headers[i], 6, &o));
            a = ts_object_array(o);
            assert_true(a->rank == 2 && a->dims[0] == 2 && a->dims[1] == 3 && a->dtype == TS_U8);
            for (int k = 0; k < 6; k++)
                assert_int_equal(((uint8_t *)a->data)[k], i == 4 ? fortran[k] : k);
            ts_object_free(o);
        }
}

static void shapes(void **state)
{
    ts_object *o;

    (void)state;
    assert_ok(load("{'descr': '<f8', 'fortran_order': False, 'shape': (), }", 8, &o));
    assert_int_equal(ts_object_array(o)->rank, 0);
    ts_object_free(o);
    assert_ok(load("{'descr': '<f8', 'fortran_order': True, 'shape': (7, 0, 2), }", 0, &o));
    assert_int_equal(ts_object_array(o)->bytes, 0);
    ts_object_free(o);
    assert_ok(load("{'descr': '=i4', 'fortran_order': False, 'shape': (1,), }", 9, &o));
    assert_int_equal(ts_object_array(o)->dims[0], 1);
    ts_object_free(o);
}

static void headers_that_do_not(void **state)
{
    static const struct {
        const char *header;
        ts_status code;
        const char *words;
    } cases[] = {
        {"", TS_ERR_CORRUPT, "a .npy header that does not read"},
        {"{", TS_ERR_CORRUPT, "a .npy header that does not read"},
        {"{}", TS_ERR_CORRUPT, "a .npy header that does not read"},
        {"{'descr': '<f4', 'fortran_order': False}", TS_ERR_CORRUPT,
         "a .npy header that does not read"},
        {"{'descr': '<f4', 'descr': '<f4', 'shape': ()}", TS_ERR_CORRUPT,
         "a .npy header that does not read"},
        {"{'descr': '<f4', 'fortran_order': Maybe, 'shape': ()}", TS_ERR_CORRUPT,
         "a .npy header that does not read"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1", TS_ERR_CORRUPT,
         "a .npy header that does not read"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}", TS_ERR_CORRUPT,
         "a .npy header that does not read"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}",
         TS_ERR_CORRUPT, "a .npy header that does not read"},
        {"{'descr': '<f4", TS_ERR_UNSUPPORTED,
         "a .npy file of records; arrays of numbers are read"},
        {"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': ()}", TS_ERR_UNSUPPORTED,
         "a .npy file of records; arrays of numbers are read"},
        {"{'descr': '|O', 'fortran_order': False, 'shape': ()}", TS_ERR_UNSUPPORTED,
         "a .npy file of type '|O'"},
        {"{'descr': '', 'fortran_order': False, 'shape': ()}", TS_ERR_UNSUPPORTED,
         "a .npy file of type ''"},
        {"{'descr': '<c8', 'fortran_order': False, 'shape': ()}", TS_ERR_UNSUPPORTED,
         "a .npy file of type '<c8'"},
        {"{'descr': '>f4', 'fortran_order': False, 'shape': ()}", TS_ERR_UNSUPPORTED,
         "a big-endian .npy file"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1)}",
         TS_ERR_UNSUPPORTED, "a .npy file of a rank over 8"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (3,)}", TS_ERR_CORRUPT,
         "12 bytes are needed at byte 65, the end is at byte 69"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 4)}",
         TS_ERR_SHAPE, "a tensor with more elements than memory has bytes"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000,)}", TS_ERR_CORRUPT,
         "4000000000000 bytes are needed at byte 77, the end is at byte 81"},
    };

    (void)state;
    for (int i = 0; i < TS_COUNT(cases); i++) {
        ts_object *o;
        ts_status s = load(cases[i].header, 4, &o);
        assert_string_equal(ts_last_error()->message, cases[i].words);
        assert_int_equal(s, cases[i].code);
        assert_null(o);
    }
}

static void other_versions(void **state)
{
    ts_object *o;

    (void)state;
    assert_fails(load_version(4, "{}", 0, &o), TS_ERR_UNSUPPORTED,
                 "version 4 of the .npy format; 1 to 3 are read");
    assert_fails(ts_object_load_memory("\x93NUMPY\2\0\xff\xff\xff\xff", 12, &o), TS_ERR_CORRUPT,
                 "a .npy header of 4294967295 bytes");
}

static void what_cannot_be_written(void **state)
{
    char *folder = test_folder(), *path;
    ts_object *d = ts_object_new_dict(), *b = TENSOR(TS_BF16, 2);

    (void)state;
    assert_true(asprintf(&path, "%s/x", folder) > 0);
    assert_fails(ts_object_save(d, path, TS_FILE_NPY), TS_ERR_TYPE,
                 "a .npy file holds one tensor, not a dict");
    assert_fails(ts_object_save(b, path, TS_FILE_NPY), TS_ERR_UNSUPPORTED,
                 "NumPy has no type for bf16");
    assert_fails(ts_object_save(b, path, TS_FILE_NPZ), TS_ERR_TYPE,
                 "a .npz file holds a dict of tensors, not a tensor");
    assert_ok(ts_object_set(d, "epoch", ts_object_new_int(1)));
    assert_fails(ts_object_save(d, path, TS_FILE_NPZ), TS_ERR_TYPE,
                 "a .npz file holds tensors by name only; 'epoch' is none");
    assert_int_equal(test_folder_count(folder), 0);
    ts_object_free(d);
    d = ts_object_new_dict();
    assert_ok(ts_object_set_int(d, 5, ts_object_share(b)));
    assert_fails(ts_object_save(d, path, TS_FILE_NPZ), TS_ERR_TYPE,
                 "a .npz file holds tensors by name only; 5 is none");
    ts_object_free(d);
    ts_object_free(b);
    test_folder_remove(folder);
    free(folder);
    free(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(headers_that_read),      cmocka_unit_test(shapes),
        cmocka_unit_test(headers_that_do_not),    cmocka_unit_test(other_versions),
        cmocka_unit_test(what_cannot_be_written),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
