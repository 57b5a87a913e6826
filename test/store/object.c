/* object.c - the tree itself: what goes in comes out, wrong calls fail with words, nothing leaks.
 */
#include "files.h"
#include <math.h>

static void values_come_back(void **state)
{
    ts_object *o = ts_object_new_list();

    (void)state;
    assert_ok(ts_object_append(o, ts_object_new_none()));
    assert_ok(ts_object_append(o, ts_object_new_bool(true)));
    assert_ok(ts_object_append(o, ts_object_new_int(INT64_MAX)));
    assert_ok(ts_object_append(o, ts_object_new_float(2.5)));
    assert_ok(ts_object_append(o, ts_object_new_text("text")));
    assert_ok(ts_object_append(o, TENSOR(TS_I32, 2, 2)));
    assert_int_equal(ts_object_size(o), 6);
    assert_int_equal(ts_object_kind(ts_object_at(o, 0)), TS_KIND_NONE);
    assert_int_equal(ts_object_int(ts_object_at(o, 1), 9), 1);
    assert_int_equal(ts_object_int(ts_object_at(o, 2), 9), INT64_MAX);
    assert_true(ts_object_number(ts_object_at(o, 3), 9) == 2.5);
    assert_int_equal(ts_object_int(ts_object_at(o, 3), 9), 9);
    assert_string_equal(ts_object_text(ts_object_at(o, 4)), "text");
    assert_int_equal(ts_object_array(ts_object_at(o, 5))->dims[1], 2);
    assert_null(ts_object_at(o, 6));
    assert_null(ts_object_at(o, -1));
    assert_null(ts_object_key(o, 0));
    ts_object_free(o);
}

static void nothing_has_nothing(void **state)
{
    const ts_object *none = ts_object_get(ts_object_get(NULL, "a"), "b");

    (void)state;
    assert_null(none);
    assert_int_equal(ts_object_kind(none), TS_KIND_NONE);
    assert_int_equal(ts_object_size(none), 0);
    assert_null(ts_object_at(none, 0));
    assert_null(ts_object_get_int(none, 0));
    assert_null(ts_object_text(none));
    assert_null(ts_object_array(none));
    assert_int_equal(ts_object_int(none, 4), 4);
    assert_true(ts_object_number(none, 4) == 4);
    ts_object_free(NULL);
}

/* Under 9 items without an index, over it with one, growing several times. */
static void dicts_keep_order(void **state)
{
    ts_object *d = ts_object_new_dict();
    char key[16];

    (void)state;
    for (int i = 0; i < 1000; i++) {
        snprintf(key, sizeof(key), "%d", i);
        assert_ok(ts_object_set(d, key, ts_object_new_int(i)));
        assert_ok(ts_object_set_int(d, i, ts_object_new_int(-i)));
        if (i < 20 || i == 999) {
            assert_int_equal(ts_object_int(ts_object_get(d, "3"), 77), i < 3 ? 77 : 3);
            assert_int_equal(ts_object_int(ts_object_get_int(d, i), 77), -i);
            assert_null(ts_object_get(d, "none"));
            assert_null(ts_object_get(d, NULL));
        }
    }
    assert_ok(ts_object_set(d, "5", ts_object_new_text("again")));
    assert_int_equal(ts_object_size(d), 2000);
    assert_string_equal(ts_object_text(ts_object_get(d, "5")), "again");
    assert_string_equal(ts_object_text(ts_object_key(d, 10)), "5");
    assert_int_equal(ts_object_int(ts_object_key(d, 11), 0), 5);
    assert_null(ts_object_key(d, 2000));
    ts_object_free(d);
}

static void one_element_is_a_number(void **state)
{
    static const double want[] = {[TS_F32] = 1.5, [TS_F64] = -2, [TS_I64] = -3, [TS_U8] = 200};
    float f = 1.5f;
    double g = -2;
    int64_t i = -3, large = INT64_MAX;
    uint8_t u = 200;
    const struct {
        ts_dtype t;
        void *data;
    } cases[] = {{TS_F32, &f}, {TS_F64, &g}, {TS_I64, &i}, {TS_U8, &u}};

    (void)state;
    for (int k = 0; k < TS_COUNT(cases); k++) {
        ts_array a = {cases[k].t, k % 2, {1}, ts_dtype_size(cases[k].t), cases[k].data};
        ts_object *o = ts_object_new_tensor(&a);
        assert_true(ts_object_number(o, 0) == want[a.dtype]);
        ts_object_free(o);
    }
    ts_object *o = ts_object_new_tensor(&(ts_array){TS_I64, 0, {0}, 8, &large});
    assert_int_equal(ts_object_int(o, 0), INT64_MAX);
    ts_object_free(o);
    o = ts_object_new_float(0x1p63);
    assert_int_equal(ts_object_int(o, 5), 5);
    ts_object_free(o);
    o = ts_object_new_float(NAN);
    assert_int_equal(ts_object_int(o, 5), 5);
    ts_object_free(o);
}

static void wrong_texts(void **state)
{
    static const char *const wrong[] = {"\x80",
                                        "\xc0\x80",
                                        "a\xff",
                                        "\xed\xa0\x80",
                                        "\xf4\x90\x80\x80",
                                        "\xe2\x82",
                                        "\xe0\x80\xaf",
                                        "\xf8\x88\x80\x80\x80"};
    ts_object *o = ts_object_new_dict();

    (void)state;
    for (int i = 0; i < TS_COUNT(wrong); i++) {
        assert_null(ts_object_new_text(wrong[i]));
        assert_int_equal(ts_last_error()->code, TS_ERR_ARG);
        assert_int_equal(ts_object_set(o, wrong[i], ts_object_new_none()), TS_ERR_ARG);
    }
    assert_null(ts_object_new_text(NULL));
    assert_fails(ts_object_set(o, NULL, ts_object_new_none()), TS_ERR_ARG, "there is no text");
    assert_ok(ts_object_set(o, "\xf0\x9f\x8e\x89\xe2\x82\xac\xc3\xa4", ts_object_new_none()));
    assert_int_equal(ts_object_size(o), 1);
    ts_object_free(o);
}

static void wrong_arrays(void **state)
{
    float x[2] = {0};
    const struct {
        ts_array a;
        const char *words;
    } cases[] = {
        {{TS_F32, 9, {1}, 4, x}, "a tensor of rank 9; up to 8 are supported"},
        {{TS_F32, -1, {1}, 4, x}, "a tensor of rank -1; up to 8 are supported"},
        {{TS_F32, 1, {-2}, 8, x}, "dim 0 of a tensor is -2"},
        {{TS_F32, 1, {2}, 4, x}, "an array whose dims need 8 bytes has 4"},
        {{TS_F32, 1, {2}, 8, NULL}, "an array whose dims need 8 bytes has 0"},
        {{(ts_dtype)9, 0, {0}, 4, x}, "9 is no dtype"},
        {{TS_F64, 4, {1 << 30, 1 << 30, 1 << 30, 0}, 0, x},
         "a tensor with more elements than memory has bytes"},
        {{TS_I8, 2, {INT64_MAX, 2}, 0, x}, "a tensor with more elements than memory has bytes"},
    };

    (void)state;
    for (int i = 0; i < TS_COUNT(cases); i++) {
        assert_null(ts_object_new_tensor(&cases[i].a));
        assert_string_equal(ts_last_error()->message, cases[i].words);
    }
    assert_null(ts_object_new_tensor(NULL));
}

static void wrong_containers(void **state)
{
    ts_object *l = ts_object_new_list(), *d = ts_object_new_dict(), *i = ts_object_new_int(1);

    (void)state;
    assert_fails(ts_object_append(d, ts_object_new_none()), TS_ERR_ARG,
                 "append needs a list or a tuple, got a dict");
    assert_fails(ts_object_set(l, "a", ts_object_new_none()), TS_ERR_ARG,
                 "set needs a dict, got a list");
    assert_fails(ts_object_set_int(i, 1, ts_object_new_none()), TS_ERR_ARG,
                 "set needs a dict, got a int");
    assert_fails(ts_object_append(NULL, ts_object_new_none()), TS_ERR_ARG,
                 "append needs a list or a tuple, got a none");
    assert_fails(ts_object_append(l, ts_object_share(l)), TS_ERR_ARG, "a list cannot hold itself");
    assert_fails(ts_object_append(l, ts_object_share(NULL)), TS_ERR_ARG,
                 "there is no object to share");
    assert_fails(ts_object_set(d, "k", ts_object_new_text("\xff")), TS_ERR_ARG,
                 "text of 1 bytes is not UTF-8 at byte 0");
    assert_int_equal(ts_object_size(l) + ts_object_size(d), 0);
    ts_object_free(l);
    ts_object_free(d);
    ts_object_free(i);
}

static void shared_by_two(void **state)
{
    ts_object *o = checkpoint(), *d = ts_object_new_dict();

    (void)state;
    assert_ok(ts_object_set(d, "model", ts_object_share(ts_object_get(o, "model_state_dict"))));
    ts_object_free(o);
    assert_int_equal(ts_object_size(ts_object_get(d, "model")), TS_STORE_DTYPES + 3);
    ts_object_free(d);
}

/* Freeing does not recurse. */
static void deep_trees_go(void **state)
{
    ts_object *o = ts_object_new_list();

    (void)state;
    for (int i = 0; i < 300000; i++) {
        ts_object *outer = ts_object_new_tuple();
        assert_ok(ts_object_append(outer, o));
        o = outer;
    }
    assert_int_equal(ts_object_save(o, "/nowhere/x.pth", TS_FILE_AUTO), TS_ERR_FILE);
    ts_object_free(o);
}

/* Every allocation fails in turn. */
static ts_status build(ts_object **out)
{
    ts_object *d = *out = ts_object_new_dict();
    float x[2] = {1, 2};
    ts_array a = {TS_F32, 1, {2}, 8, x};

    for (int64_t i = 0; i < 12; i++)
        TS_TRY(ts_object_set_int(d, i, ts_object_new_tensor(&a)));
    TS_TRY(ts_object_set(d, "l", ts_object_new_list()));
    return ts_object_set(d, "t", ts_object_new_text("t"));
}

static void failing_allocations(void **state)
{
    ts_object *o;
    int n;

    (void)state;
    for (n = 0;; n++) {
        ts_fault_arm("alloc", n);
        ts_status s = build(&o);
        ts_fault_arm(NULL, -1);
        ts_object_free(o);
        if (!s)
            break;
        assert_int_equal(s, o ? TS_ERR_MEMORY : TS_ERR_ARG);
    }
    assert_true(n > 50);
}

static void kinds_have_names(void **state)
{
    (void)state;
    for (int k = TS_KIND_NONE; k <= TS_KIND_NUMPY_ARRAY; k++)
        assert_true(strlen(ts_kind_name((ts_kind)k)) > 2 &&
                    strcmp(ts_kind_name((ts_kind)k), "unknown") != 0);
    assert_string_equal(ts_kind_name((ts_kind)99), "unknown");
    assert_string_equal(ts_kind_name(TS_KIND_TENSOR), "tensor");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_come_back), cmocka_unit_test(nothing_has_nothing),
        cmocka_unit_test(dicts_keep_order), cmocka_unit_test(one_element_is_a_number),
        cmocka_unit_test(wrong_texts),      cmocka_unit_test(wrong_arrays),
        cmocka_unit_test(wrong_containers), cmocka_unit_test(shared_by_two),
        cmocka_unit_test(deep_trees_go),    cmocka_unit_test(failing_allocations),
        cmocka_unit_test(kinds_have_names),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
