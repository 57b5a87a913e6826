/* rebuild.c - the calls a checkpoint may make: rare ones that work, and wrong arguments to each. */
#include "files.h"

static ts_status load(bytes *b, ts_object **o)
{
    ts_status s;

    ADD(b, ".");
    s = unpickle_tensors(*b, o);
    free(b->data);
    *b = (bytes){0};
    return s;
}

static void wrong_arguments(void **state)
{
    static const struct {
        const char *pickle;
        size_t len;
        const char *words;
    } cases[] = {
#define CASE(text, words) {text, sizeof(text) - 1, words}
#define STORAGE(type, key, count)                                                                  \
    "(X\x07\x00\x00\x00storage" type key "X\x03\x00\x00\x00"                                       \
    "cpu" count "tQ"
#define FLOATS "ctorch\nFloatStorage\n"
#define KEY    "X\x01\x00\x00\x00k"
        CASE("ccollections\nOrderedDict\n]K\x01"
             "a\x85R",
             "a dict with arguments that it never has"),
        CASE("ccollections\nOrderedDict\n]NK\x01\x86"
             "a\x85R",
             "a dict with arguments that it never has"),
        CASE("cbuiltins\nset\n}\x85R", "a set with arguments that it never has"),
        CASE("cbuiltins\nbytes\nK\x05\x85R", "bytes with arguments that it never has"),
        CASE("c_codecs\nencode\nX\x03\x00\x00\x00\xe2\x82\xac\x85R",
             "bytes written as text that is not latin1"),
        CASE("c_codecs\nencode\nX\x01\x00\x00\x00\xc3\x85R",
             "bytes written as text that is not latin1"),
        CASE("ctorch\ndevice\n)R", "a call with arguments that it never has"),
        CASE(STORAGE("N", KEY, "K\x01"), "a storage with arguments that it never has"),
        CASE(STORAGE("ctorch\nSize\n", KEY, "K\x01"), "a storage with arguments that it never has"),
        CASE(STORAGE("cnumpy\nndarray\n", KEY, "K\x01"),
             "a storage with arguments that it never has"),
        CASE(STORAGE(FLOATS, "K\x01", "K\x01"), "a storage with arguments that it never has"),
        CASE(STORAGE(FLOATS, KEY, "J\xff\xff\xff\xff"),
             "a storage with arguments that it never has"),
        CASE(STORAGE(FLOATS, KEY, "\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f"),
             "a storage of 9223372036854775807 elements"),
        CASE(STORAGE(FLOATS, KEY, "K\x01K\x02"), "a storage that is a view of another"),
        CASE("ctorch._utils\n_rebuild_tensor_v2\n(" STORAGE(FLOATS, KEY, "K\x01") "K\x00NNtR",
             "a tensor with arguments that it never has"),
        CASE("ctorch._utils\n_rebuild_tensor_v2\n(" STORAGE(FLOATS, KEY, "K\x01") "K\x00N\x85)tR",
             "a tensor with arguments that it never has"),
        CASE("ctorch._utils\n_rebuild_tensor_v2\n(" STORAGE(FLOATS, KEY,
                                                            "K\x01") "K\x00K\x01\x85)tR",
             "a tensor of rank 1 with 0 strides"),
        CASE("ctorch._utils\n_rebuild_tensor_v2\n(NK\x00))tR",
             "a tensor with arguments that it never has"),
        CASE("ctorch._utils\n_rebuild_tensor_v3\n(NK\x00))\x89NX\x0d\x00\x00\x00torch.float8xtR",
             "a tensor of dtype torch.float8x"),
        CASE("ctorch._utils\n_rebuild_tensor_v3\n)R", "a tensor of dtype none"),
        CASE("ctorch._tensor\n_rebuild_from_type_v2\nq\x00h\x00NNN\x87R",
             "a tensor with arguments that it never has"),
        CASE("ctorch._tensor\n_rebuild_from_type_v2\nq\x00(h\x00N)NtR",
             "a tensor with arguments that it never has"),
        CASE("cnumpy\ndtype\n)R", "numpy.dtype with arguments that it never has"),
        CASE("cnumpy\ndtype\nX\x02\x00\x00\x00"
             "f4\x85R)b",
             "numpy.dtype with arguments that it never has"),
        CASE("cnumpy.core.multiarray\n_reconstruct\n)R",
             "a NumPy array with arguments that it never has"),
        CASE("cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\n\x85R)b",
             "a NumPy array that is not one of plain numbers"),
        CASE("cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\n\x85R",
             "a NumPy array as a value; only tensors and plain data are read"),
        CASE("cnumpy.core.multiarray\nscalar\ncnumpy\ndtype\nX\x02\x00\x00\x00"
             "f4\x85RC\x02zz\x86R",
             "a NumPy array of 4 bytes has 2"),
#undef CASE
    };

    (void)state;
    for (int i = 0; i < TS_COUNT(cases); i++) {
        bytes b = {0};
        ts_object *o;
        ADD(&b, "\x80\x02");
        add(&b, cases[i].pickle, cases[i].len);
        assert_true(load(&b, &o) != TS_OK);
        assert_string_equal(ts_last_error()->message, cases[i].words);
        assert_null(o);
    }
}

static void add_version_3(bytes *b)
{
    ADD(b, "((X\x07\x00\x00\x00storagectorch.storage\nUntypedStorage\nX\x01\x00\x00\x00"
           "0X\x03\x00\x00\x00"
           "cpuK\x10tQK\x01");
    add_ints(b, 1, (int64_t[]){3});
    add_ints(b, 1, (int64_t[]){1});
    ADD(b, "\x89Nctorch\nfloat32\nt");
}

/* PyTorch 2 for dtypes that have no storage class of their own: the storage is of bytes. */
static void tensors_of_version_3(void **state)
{
    bytes b = {0};
    ts_object *o;

    (void)state;
    ADD(&b, "\x80\x02"
            "ctorch._utils\n_rebuild_tensor_v3\n");
    add_version_3(&b);
    ADD(&b, "R");
    assert_ok(load(&b, &o));
    assert_int_equal(ts_object_array(o)->dtype, TS_F32);
    assert_memory_equal(ts_object_array(o)->data, ((float[]){1, 2, 3}), 12);
    ts_object_free(o);
}

static void tensors_of_a_type(void **state)
{
    bytes b = {0};
    ts_object *o;

    (void)state;
    ADD(&b, "\x80\x02"
            "ctorch._tensor\n_rebuild_from_type_v2\n(ctorch._utils\n_rebuild_tensor_v3\n"
            "ctorch.nn.parameter\nParameter\n");
    add_version_3(&b);
    ADD(&b, "}tR");
    assert_ok(load(&b, &o));
    assert_true(((float *)ts_object_array(o)->data)[2] == 3);
    ts_object_free(o);
}

/* What Python 2 and other picklers use: str, a dict made at once, cls.__new__, wide memo places. */
static void other_picklers(void **state)
{
    bytes b = {0};
    ts_object *o;

    (void)state;
    ADD(&b, "\x80\x02(U\x01kccollections\nOrderedDict\n)\x81r\x02\x00\x00\x00"
            "T\x01\x00\x00\x00mj\x02\x00\x00\x00"
            "X\x01\x00\x00\x00nB\x01\x00\x00\x00yd");
    assert_ok(load(&b, &o));
    assert_int_equal(ts_object_kind(ts_object_get(o, "k")), TS_KIND_DICT);
    assert_ptr_equal(ts_object_get(o, "k"), ts_object_get(o, "m"));
    assert_memory_equal(ts_object_array(ts_object_get(o, "n"))->data, "y", 1);
    ts_object_free(o);
    for (int i = 0; i < 300; i++)
        ADD(&b, "c");
    assert_fails(load(&b, &o), TS_ERR_CORRUPT, "a name of more than 256 bytes");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_arguments),
        cmocka_unit_test(tensors_of_version_3),
        cmocka_unit_test(tensors_of_a_type),
        cmocka_unit_test(other_picklers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
