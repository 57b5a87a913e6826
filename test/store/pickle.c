/* pickle.c - the pickle machine: what it reads, what it refuses, and programs made to hurt. */
#include "files.h"

static ts_status unpickle(bytes b, ts_object **out)
{
    ts_input in = {.mem = b.data, .size = b.len};
    ts_cursor c = {.in = &in};

    return ts_pickle_load(&c, NULL, NULL, out);
}

#define UNPICKLE(text, out)                                                                        \
    unpickle((bytes){.data = (uint8_t *)(text), .len = sizeof(text) - 1}, out)

/* Storages of counting floats, as a file would have them. */
static ts_status counting(void *ctx, ts_pickle *p)
{
    (void)ctx;
    for (size_t i = 0; i < p->nstorages; i++) {
        TS_TRY(ts_blob_new(p->storages[i].bytes, &p->storages[i].data));
        for (size_t k = 0; k < p->storages[i].bytes / 4; k++)
            ((float *)p->storages[i].data->data)[k] = (float)k;
    }
    return TS_OK;
}

static ts_status unpickle_tensors(bytes b, ts_object **out)
{
    ts_input in = {.mem = b.data, .size = b.len};
    ts_cursor c = {.in = &in};

    return ts_pickle_load(&c, counting, NULL, out);
}

static void plain_values(void **state)
{
    ts_object *o;

    (void)state;
    assert_ok(
        UNPICKLE("\x80\x02(NK\xffM\xff\xffJ\xff\xff\xff\xff\x8a\x00\x8a\x01\xff\x8a\x02\x00\x80"
                 "\x8a\x08\x00\x00\x00\x00\x00\x00\x00\x80\x8b\x01\x00\x00\x00\x05"
                 "G\xbf\xf8\x00\x00\x00\x00\x00\x00\x88\x89t.",
                 &o));
    static const int64_t want[] = {0, 255, 65535, -1, 0, -1, -32768, INT64_MIN, 5};
    for (int i = 1; i < TS_COUNT(want); i++)
        assert_int_equal(ts_object_int(ts_object_at(o, i), 99), want[i]);
    assert_true(ts_object_number(ts_object_at(o, 9), 0) == -1.5);
    assert_int_equal(ts_object_kind(ts_object_at(o, 10)), TS_KIND_BOOL);
    assert_int_equal(ts_object_size(o), 12);
    ts_object_free(o);
}

static void stack_and_memo(void **state)
{
    ts_object *o;

    (void)state;
    /* pop, dup, pop to mark, memo: ["a", "a", ["x"], the same list] */
    assert_ok(UNPICKLE("\x80\x04(\x8c\x01"
                       "aK\x01"
                       "02(K\x01K\x02"
                       "1]\x94\x8c\x01xah\x00l.",
                       &o));
    assert_int_equal(ts_object_size(o), 4);
    assert_ptr_equal(ts_object_at(o, 0), ts_object_at(o, 1));
    assert_string_equal(ts_object_text(ts_object_at(ts_object_at(o, 2), 0)), "x");
    assert_ptr_equal(ts_object_at(o, 2), ts_object_at(o, 3));
    ts_object_free(o);
}

static void other_types(void **state)
{
    ts_object *o;

    (void)state;
    assert_ok(
        UNPICKLE("\x80\x02(c__builtin__\nset\n](K\x01K\x02"
                 "e\x85Rctorch\nSize\n(K\x02K\x03t\x85R"
                 "ctorch\nfloat32\nctorch\ndevice\nX\x03\x00\x00\x00"
                 "cpu\x85R"
                 "c_codecs\nencode\nX\x03\x00\x00\x00"
                 "a\xc3\xbfX\x06\x00\x00\x00latin1\x86R"
                 "c__builtin__\nbytes\n)Rccollections\nOrderedDict\n](](X\x01\x00\x00\x00kK\x07"
                 "ee\x85R\x96\x01\x00\x00\x00\x00\x00\x00\x00\x09t.",
                 &o));
    assert_int_equal(ts_object_kind(ts_object_at(o, 0)), TS_KIND_LIST);
    assert_int_equal(ts_object_size(ts_object_at(o, 0)), 2);
    assert_int_equal(ts_object_kind(ts_object_at(o, 1)), TS_KIND_TUPLE);
    assert_string_equal(ts_object_text(ts_object_at(o, 2)), "torch.float32");
    assert_string_equal(ts_object_text(ts_object_at(o, 3)), "cpu");
    assert_int_equal(ts_object_array(ts_object_at(o, 4))->bytes, 2);
    assert_memory_equal(ts_object_array(ts_object_at(o, 4))->data, "a\xff", 2);
    assert_int_equal(ts_object_array(ts_object_at(o, 5))->bytes, 0);
    assert_int_equal(ts_object_int(ts_object_get(ts_object_at(o, 6), "k"), 0), 7);
    assert_int_equal(*(uint8_t *)ts_object_array(ts_object_at(o, 7))->data, 9);
    ts_object_free(o);
}

static void refused(void **state)
{
    static const struct {
        const char *pickle;
        size_t len;
        ts_status code;
        const char *words;
    } cases[] = {
#define CASE(text, code, words) {text, sizeof(text) - 1, code, words}
        CASE("\x80\x02"
             "cos\nsystem\nX\x02\x00\x00\x00ls\x85R.",
             TS_ERR_UNSUPPORTED,
             "the checkpoint asks for os.system; only tensors and plain data are read"),
        CASE("\x80\x04\x8c\x08"
             "builtins\x8c\x04"
             "eval\x93.",
             TS_ERR_UNSUPPORTED,
             "the checkpoint asks for builtins.eval; only tensors and plain data are read"),
        CASE("\x80\x02"
             "c__main__\nNet\n)\x81.",
             TS_ERR_UNSUPPORTED,
             "the checkpoint asks for __main__.Net; only tensors and plain data are read"),
        CASE("\x80\x02"
             "ctorch\nComplexFloatStorage\n.",
             TS_ERR_UNSUPPORTED, "tensors of torch.ComplexFloatStorage are not supported"),
        CASE("\x80\x02"
             "ctorch\nQInt8Storage\n.",
             TS_ERR_UNSUPPORTED, "tensors of torch.QInt8Storage are not supported"),
        CASE("\x80\x02"
             "ctorch._utils\n_rebuild_qtensor\n.",
             TS_ERR_UNSUPPORTED,
             "the checkpoint asks for torch._utils._rebuild_qtensor; only tensors and plain data "
             "are "
             "read"),
        CASE("\x80\x02"
             "ctorch\nFloatStorage\n)R.",
             TS_ERR_UNSUPPORTED,
             "the checkpoint calls torch.FloatStorage, which is not for calling"),
        CASE("\x80\x02K\x01)R.", TS_ERR_UNSUPPORTED,
             "the checkpoint calls int, which is not for calling"),
        CASE("\x80\x02"
             "ctorch\nFloatStorage\n.",
             TS_ERR_UNSUPPORTED,
             "torch.FloatStorage as a value; only tensors and plain data are read"),
        CASE("\x80\x02"
             "cnumpy\ndtype\nX\x02\x00\x00\x00"
             "f4\x85R.",
             TS_ERR_UNSUPPORTED, "a NumPy dtype as a value; only tensors and plain data are read"),
        CASE("\x80\x02"
             "cnumpy\ndtype\nX\x02\x00\x00\x00O8\x85R.",
             TS_ERR_UNSUPPORTED, "numpy.dtype('O8') has no counterpart here"),
        CASE("\x80\x02"
             "cnumpy\ndtype\nX\x02\x00\x00\x00"
             "f4\x85RK\x03X\x01\x00\x00\x00>\x86"
             "b.",
             TS_ERR_UNSUPPORTED, "a big-endian NumPy array"),
        CASE("\x80\x02"
             "c\x1b[31m\nx\n.",
             TS_ERR_CORRUPT, "a name of 5 and 1 bytes that is none"),
        CASE("\x80\x06N.", TS_ERR_UNSUPPORTED, "pickle protocol 6; 2 to 5 are read"),
        CASE("\x80\x02I1\n.", TS_ERR_UNSUPPORTED,
             "pickle opcode 0x49 is not one that torch.save uses"),
        CASE("\x80\x02\x8a\x09\x01\x01\x01\x01\x01\x01\x01\x01\x01.", TS_ERR_UNSUPPORTED,
             "an integer of 9 bytes; up to 8 are read"),
        CASE("\x80\x02}NNs.", TS_ERR_UNSUPPORTED,
             "a dict with a none as a key; text and ints are read"),
        CASE("\x80\x02}(K\x01u.", TS_ERR_CORRUPT, "a key without a value"),
        CASE("\x80\x02]K\x01K\x02s.", TS_ERR_CORRUPT, "the pickle uses a list as a dict"),
        CASE("\x80\x02}K\x01"
             "a.",
             TS_ERR_CORRUPT, "the pickle uses a dict as a list"),
        CASE("\x80\x02.", TS_ERR_CORRUPT, "the pickle takes a value where there is none"),
        CASE("\x80\x02"
             "0.",
             TS_ERR_CORRUPT, "the pickle takes a value where there is none"),
        CASE("\x80\x02t.", TS_ERR_CORRUPT, "the pickle looks for a mark where there is none"),
        CASE("\x80\x02(.", TS_ERR_CORRUPT, "the pickle takes a value where there is none"),
        CASE("\x80\x02h\x00.", TS_ERR_CORRUPT, "nothing is in memo place 0"),
        CASE("\x80\x02Nr\xff\xff\xff\xff.", TS_ERR_CORRUPT,
             "memo place 4294967295 of a pickle in 9 bytes"),
        CASE("\x80\x02N", TS_ERR_CORRUPT, "1 bytes are needed at byte 3, the end is at byte 3"),
        CASE("\x80\x02X\xff\xff\xff\xff"
             "a.",
             TS_ERR_CORRUPT, "4294967295 bytes are needed at byte 7, the end is at byte 9"),
        CASE("\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\xff"
             "a.",
             TS_ERR_CORRUPT,
             "18446744073709551615 bytes are needed at byte 11, the end is at byte 13"),
        CASE("\x80\x02X\x01\x00\x00\x00\xff.", TS_ERR_ARG,
             "text of 1 bytes is not UTF-8 at byte 0"),
        CASE("\x80\x02X\x03\x00\x00\x00"
             "a\x00"
             "b.",
             TS_ERR_ARG, "text of 3 bytes has a NUL at byte 1"),
        CASE("\x80\x02}X\x01\x00\x00\x00\xffNs.", TS_ERR_ARG,
             "text of 1 bytes is not UTF-8 at byte 0"),
        CASE("\x80\x02]q\x00h\x00"
             "a.",
             TS_ERR_ARG, "a list cannot hold itself"),
        CASE("\x80\x02]q\x00]h\x00"
             "aa.",
             TS_ERR_UNSUPPORTED, "a value that holds itself"),
        CASE("\x80\x02]q\x00\x85"
             "0]q\x01(]h\x01"
             "ae.",
             TS_ERR_UNSUPPORTED, "a value that holds itself"),
        CASE("\x80\x02NNb.", TS_ERR_CORRUPT, "a state with arguments that it never has"),
        CASE("\x80\x02NQ.", TS_ERR_CORRUPT, "a storage with arguments that it never has"),
#undef CASE
    };

    (void)state;
    for (int i = 0; i < TS_COUNT(cases); i++) {
        ts_object *o = (ts_object *)&i;
        ts_status s =
            unpickle((bytes){.data = (uint8_t *)cases[i].pickle, .len = cases[i].len}, &o);
        assert_string_equal(ts_last_error()->message, cases[i].words);
        assert_int_equal(s, cases[i].code);
        assert_null(o);
    }
}

static void errors_have_a_place(void **state)
{
    ts_object *o;

    (void)state;
    assert_int_equal(UNPICKLE("\x80\x02](K\x01"
                              "cos\nsystem\n.",
                              &o),
                     TS_ERR_UNSUPPORTED);
    assert_string_equal(ts_last_error()->where, "byte 6 of the pickle");
    assert_string_equal(ts_last_error()->hint, "save what state_dict() returns, and numbers, text, "
                                               "lists and dicts beside it");
}

/* --- tensors ---------------------------------------------------------------------------------- */

static void add_storage(bytes *b, const char *type, const char *key, int count)
{
    ADD(b, "(X\x07\x00\x00\x00storagectorch\n");
    add(b, type, strlen(type));
    ADD(b, "\nX");
    add_number(b, strlen(key), 4);
    add(b, key, strlen(key));
    ADD(b, "X\x03\x00\x00\x00"
           "cpuJ");
    add_number(b, (uint64_t)count, 4);
    ADD(b, "tQ");
}

static void add_ints(bytes *b, int n, const int64_t *x)
{
    ADD(b, "(");
    for (int i = 0; i < n; i++) {
        ADD(b, "\x8a\x08");
        add_number(b, (uint64_t)x[i], 8);
    }
    ADD(b, "t");
}

/* _rebuild_tensor_v2 on a storage of 12 elements */
static void add_view(bytes *b, const char *type, int offset, int rank, const int64_t *dims,
                     const int64_t *strides)
{
    ADD(b, "ctorch._utils\n_rebuild_tensor_v2\n(");
    add_storage(b, type, "0", 12);
    ADD(b, "J");
    add_number(b, (uint64_t)offset, 4);
    add_ints(b, rank, dims);
    add_ints(b, rank, strides);
    ADD(b, "\x89"
           "ccollections\nOrderedDict\n)RtR");
}

static ts_status one_view(int offset, int rank, const int64_t *dims, const int64_t *strides,
                          ts_object **out)
{
    bytes b = {0};
    ts_status s;

    ADD(&b, "\x80\x02");
    add_view(&b, "FloatStorage", offset, rank, dims, strides);
    ADD(&b, ".");
    s = unpickle_tensors(b, out);
    free(b.data);
    return s;
}

#define L(...) ((const int64_t[]){__VA_ARGS__})

static void views_become_dense(void **state)
{
    ts_object *o;
    const float *x;

    (void)state;
    assert_ok(one_view(1, 2, L(3, 2), L(1, 4), &o));
    x = ts_object_array(o)->data;
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 2; j++)
            assert_true(x[2 * i + j] == (float)(1 + i + 4 * j));
    ts_object_free(o);
    assert_ok(one_view(11, 1, L(1), L(1000), &o)); /* the stride of a single element is nothing */
    assert_true(*(float *)ts_object_array(o)->data == 11);
    ts_object_free(o);
    assert_ok(one_view(5, 0, NULL, NULL, &o));
    assert_true(ts_object_number(o, 0) == 5);
    ts_object_free(o);
    assert_ok(one_view(2000000000, 2, L(0, 7), L(7, 1), &o)); /* nothing is nowhere */
    assert_int_equal(ts_object_array(o)->bytes, 0);
    ts_object_free(o);
    assert_ok(one_view(3, 2, L(2, 3), L(0, 0), &o));
    x = ts_object_array(o)->data;
    assert_true(x[0] == 3 && x[5] == 3);
    ts_object_free(o);
}

static void views_past_their_storage(void **state)
{
    static const char reaches[] = "a tensor reaches past its storage of 12 elements";
    ts_object *o;

    (void)state;
    assert_fails(one_view(0, 1, L(13), L(1), &o), TS_ERR_CORRUPT, reaches);
    assert_fails(one_view(12, 0, NULL, NULL, &o), TS_ERR_CORRUPT, reaches);
    assert_fails(one_view(1, 1, L(12), L(1), &o), TS_ERR_CORRUPT, reaches);
    assert_fails(one_view(4, 2, L(2, 2), L(8, -1), &o), TS_ERR_CORRUPT, reaches);
    assert_fails(one_view(0, 2, L(3, 2), L(INT64_MAX, 1), &o), TS_ERR_CORRUPT, reaches);
    assert_fails(one_view(0, 2, L(5, 5), L(INT64_MAX / 2, INT64_MAX), &o), TS_ERR_CORRUPT, reaches);
    assert_fails(one_view(-1, 0, NULL, NULL, &o), TS_ERR_CORRUPT,
                 "a tensor with arguments that it never has");
    assert_fails(one_view(0, 1, L(-1), L(1), &o), TS_ERR_SHAPE, "dim 0 of a tensor is -1");
    assert_fails(one_view(0, 2, L(INT64_MAX, INT64_MAX), L(0, 0), &o), TS_ERR_SHAPE,
                 "a tensor with more elements than memory has bytes");
    assert_fails(one_view(0, 9, L(1, 1, 1, 1, 1, 1, 1, 1, 1), L(1, 1, 1, 1, 1, 1, 1, 1, 1), &o),
                 TS_ERR_UNSUPPORTED, "a tensor of rank 9; up to 8 are supported");
    /* 2 GB of one element */
    assert_fails(one_view(0, 1, L(1 << 29), L(0), &o), TS_ERR_UNSUPPORTED,
                 "a view of 2147483648 bytes: the views of this file take many times its size");
}

/* Contiguous views of one storage share its bytes. */
static void views_share(void **state)
{
    bytes b = {0};
    ts_object *o;

    (void)state;
    ADD(&b, "\x80\x02(");
    add_view(&b, "FloatStorage", 0, 1, L(12), L(1));
    add_view(&b, "FloatStorage", 4, 2, L(2, 4), L(4, 1));
    ADD(&b, "t.");
    assert_ok(unpickle_tensors(b, &o));
    assert_ptr_equal((float *)ts_object_array(ts_object_at(o, 0))->data + 4,
                     ts_object_array(ts_object_at(o, 1))->data);
    ts_object_free(o);
    free(b.data);
}

static void storages_agree(void **state)
{
    bytes b = {0};
    ts_object *o;

    (void)state;
    ADD(&b, "\x80\x02(");
    add_view(&b, "FloatStorage", 0, 1, L(12), L(1));
    add_view(&b, "IntStorage", 0, 1, L(12), L(1));
    ADD(&b, "t.");
    assert_fails(unpickle_tensors(b, &o), TS_ERR_CORRUPT, "storage 0 with two types or sizes");
    b.len = 0;
    ADD(&b, "\x80\x02");
    add_view(&b, "FloatStorage", 0, 1, L(12), L(1));
    ADD(&b, ".");
    assert_fails(unpickle(b, &o), TS_ERR_CORRUPT, "a tensor where there can be none");
    free(b.data);
}

static void bools_are_0_or_1(void **state)
{
    bytes b = {0};
    ts_object *o;
    const uint8_t *x;

    (void)state;
    ADD(&b, "\x80\x02");
    add_view(&b, "BoolStorage", 0, 1, L(12), L(1));
    ADD(&b, ".");
    assert_ok(unpickle_tensors(b, &o)); /* bytes of floats 0, 1, 2 */
    x = ts_object_array(o)->data;
    assert_true(x[0] == 0 && x[6] == 1 && x[7] == 1);
    ts_object_free(o);
    free(b.data);
}

/* --- bombs ------------------------------------------------------------------------------------ */

static void nested_too_deep(void **state)
{
    bytes b = {0};
    ts_object *o;

    (void)state;
    ADD(&b, "\x80\x02");
    for (int i = 0; i < 100000; i++)
        ADD(&b, "]");
    for (int i = 0; i < 99999; i++)
        ADD(&b, "a");
    ADD(&b, ".");
    assert_fails(unpickle(b, &o), TS_ERR_UNSUPPORTED,
                 "lists, tuples and dicts nested deeper than 200");
    free(b.data);
}

/* Each level holds the one below ten times. */
static void laughs(int levels, bytes *b)
{
    *b = (bytes){0};
    ADD(b, "\x80\x02](K\x01K\x02"
           "e");
    for (int i = 0; i < levels; i++) {
        ADD(b, "q\x00"
               "0](");
        for (int k = 0; k < 10; k++)
            ADD(b, "h\x00");
        ADD(b, "e");
    }
    ADD(b, ".");
}

static void spread_too_far(void **state)
{
    bytes b;
    ts_object *o;

    (void)state;
    laughs(3, &b);
    assert_ok(unpickle(b, &o));
    assert_int_equal(ts_object_size(o), 10);
    ts_object_free(o);
    free(b.data);
    laughs(100, &b);
    assert_fails(unpickle(b, &o), TS_ERR_UNSUPPORTED, "a tree of more than 16777216 values");
    free(b.data);
}

/* A shallow first visit must not hide that the second is too deep. */
static void deep_by_sharing(void **state)
{
    bytes b = {0};
    ts_object *o;

    (void)state;
    ADD(&b, "\x80\x02]q\x00");
    for (int i = 0; i < 150; i++)
        ADD(&b, "\x85");
    ADD(&b, "q\x01"
            "0](h\x01h\x01");
    for (int i = 0; i < 150; i++)
        ADD(&b, "\x85");
    ADD(&b, "e.");
    assert_fails(unpickle(b, &o), TS_ERR_UNSUPPORTED,
                 "lists, tuples and dicts nested deeper than 200");
    free(b.data);
}

/* A list from the memo, made into dicts, sets and bytes over and over. */
static void copied_again_and_again(void **state)
{
    static const char *const calls[] = {"c__builtin__\nset\n", "ccollections\nOrderedDict\n"};
    ts_object *o;

    (void)state;
    for (int k = 0; k < TS_COUNT(calls); k++) {
        bytes b = {0};
        ADD(&b, "\x80\x02](");
        for (int i = 0; i < 1000; i++)
            ADD(&b, "K\x01K\x02\x86");
        ADD(&b, "e\x85q\x00"
                "0");
        add(&b, calls[k], strlen(calls[k]));
        ADD(&b, "q\x01");
        for (int i = 0; i < 100000; i++)
            ADD(&b, "h\x01h\x00R0");
        ADD(&b, ".");
        assert_fails(unpickle(b, &o), TS_ERR_CORRUPT,
                     "a pickle that builds much more than it holds");
        free(b.data);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_values),
        cmocka_unit_test(stack_and_memo),
        cmocka_unit_test(other_types),
        cmocka_unit_test(refused),
        cmocka_unit_test(errors_have_a_place),
        cmocka_unit_test(views_become_dense),
        cmocka_unit_test(views_past_their_storage),
        cmocka_unit_test(views_share),
        cmocka_unit_test(storages_agree),
        cmocka_unit_test(bools_are_0_or_1),
        cmocka_unit_test(nested_too_deep),
        cmocka_unit_test(spread_too_far),
        cmocka_unit_test(deep_by_sharing),
        cmocka_unit_test(copied_again_and_again),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
