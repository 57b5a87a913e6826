/* table.c - aligned columns, and the texts of users that they are made of. */
#include "show/show.h"
#include "support.h"

static void columns_are_aligned(void **state)
{
    static const char *const cells[] = {
        "class",   "precision", "count", /**/
        "T-shirt", "0.851",     "1000",  /**/
        "größer",  "1",         NULL,
    };
    char *s = ts_table_text(cells, 3, 3);

    (void)state;
    assert_string_equal(s, "class    precision  count\n"
                           "T-shirt      0.851   1000\n"
                           "größer           1       \n");
    free(s);
    s = ts_table_text(cells, 3, 1);
    assert_string_equal(s, "class\nprecision\ncount\n");
    free(s);
    s = ts_table_text(NULL, 0, 3);
    assert_string_equal(s, "");
    free(s);
    s = ts_table_text((const char *const[]){"a\n\033[2J\xff", "b"}, 1, 2);
    assert_string_equal(s, "a??[2J?  b\n");
    free(s);
}

static void code_points(void **state)
{
    static const struct {
        const char *s;
        int code, bytes;
    } cases[] = {
        {"a", 'a', 1},
        {"\xc3\xb6", 0xf6, 2},
        {"\xe2\x82\xac", 0x20ac, 3},
        {"\xf0\x9f\x91\x9f", 0x1f45f, 4},
        {"\xf4\x8f\xbf\xbf", 0x10ffff, 4},
        /* none: a tail alone, overlong, cut short, a surrogate, too large, no first byte */
        {"\x80", -1, 1},
        {"\xc0\x80", -1, 1},
        {"\xe0\x80\x80", -1, 1},
        {"\xf0\x80\x80\x80", -1, 1},
        {"\xc3", -1, 1},
        {"\xe2\x82", -1, 1},
        {"\xf0\x9f\x91", -1, 1},
        {"\xed\xa0\x80", -1, 1},
        {"\xf4\x90\x80\x80", -1, 1},
        {"\xff", -1, 1},
    };

    (void)state;
    for (int i = 0; i < TS_COUNT(cases); i++) {
        const char *s = cases[i].s;

        assert_int_equal(ts_utf8_next(&s), cases[i].code);
        assert_int_equal(s - cases[i].s, cases[i].bytes);
    }
}

static void prefixes(void **state)
{
    (void)state;
    assert_int_equal(ts_utf8_columns("größer"), 6);
    assert_int_equal(ts_utf8_prefix("größer", 3), 4);
    assert_int_equal(ts_utf8_prefix("größer", 0), 0);
    assert_int_equal(ts_utf8_prefix("größer", 99), strlen("größer"));
    assert_int_equal(ts_utf8_prefix("", 5), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(columns_are_aligned),
        cmocka_unit_test(code_points),
        cmocka_unit_test(prefixes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
