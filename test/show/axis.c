/* axis.c - ticks at nice numbers inside the axis, with labels that differ. */
#include "show/show.h"
#include "support.h"
#include <math.h>

static void assert_axis(ts_axis a, const char *want)
{
    ts_text got = {0};
    double at[24];
    char label[40];
    int n = ts_axis_ticks(&a, at, 24);

    ts_text_printf(&got, "%s", "");
    for (int i = 0; i < n; i++) {
        ts_axis_label(&a, at[i], label, sizeof(label));
        ts_text_printf(&got, "%s%s", i ? "|" : "", label);
    }
    assert_string_equal(got.s, want);
    ts_text_free(&got);
}

static void nice_numbers(void **state)
{
    (void)state;
    assert_axis(ts_axis_make(0, 1, 6, false, false), "0.0|0.2|0.4|0.6|0.8|1.0");
    assert_axis(ts_axis_make(1, 5, 8, true, false), "1|2|3|4|5");
    assert_axis(ts_axis_make(1, 1, 8, true, false), "1");
    assert_axis(ts_axis_make(0.37, 0.62, 6, false, false), "0.40|0.45|0.50|0.55|0.60");
    assert_axis(ts_axis_make(-3, 3, 6, false, false), "-2|0|2");
    assert_axis(ts_axis_make(0, 4685, 8, true, false), "0|1000|2000|3000|4000");
    assert_axis(ts_axis_make(0, 3e9, 6, false, false), "0|1 G|2 G|3 G");
    assert_axis(ts_axis_make(0, 0, 6, false, false), "-1.0|-0.5|0.0|0.5|1.0");
    assert_axis(ts_axis_make(0.01, 1000, 6, false, true), "0.01|0.1|1|10|100|1000");
    assert_axis(ts_axis_make(1, 1000, 6, false, true), "0|200|400|600|800|1000");
    assert_axis(ts_axis_make(0, 1e4, 6, false, true), "0|2000|4000|6000|8000|10000");
    assert_axis(ts_axis_make(1e-30, 1e30, 6, false, true), "1e-30|1e-20|1e-10|1|1e+10|1e+20|1e+30");
}

/* Whatever the range: the data is inside, some ticks are, and no two have one label. */
static void any_range(void **state)
{
    static const double ends[] = {-1e299, -1e15, -7, -1e-9, 0,    5e-324, 1e-300,
                                  1e-9,   0.1,   3,  1000,  1e15, 1e299};

    (void)state;
    for (int i = 0; i < TS_COUNT(ends); i++)
        for (int j = i; j < TS_COUNT(ends); j++) {
            ts_axis a = ts_axis_make(ends[i], ends[j], 6, i % 2, j % 2);
            double at[24];
            char label[2][40] = {"", ""};
            int n = ts_axis_ticks(&a, at, 24);

            assert_true(a.lo < a.hi);
            assert_true(ts_axis_place(&a, ends[i]) >= 0 && ts_axis_place(&a, ends[j]) <= 1);
            assert_in_range(n, i % 2 ? 1 : 2, 8);
            for (int k = 0; k < n; k++) {
                assert_true(ts_axis_place(&a, at[k]) > -1e-6);
                assert_true(ts_axis_place(&a, at[k]) < 1 + 1e-6);
                ts_axis_label(&a, at[k], label[k % 2], sizeof(label[0]));
                assert_string_not_equal(label[0], label[1]);
            }
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nice_numbers),
        cmocka_unit_test(any_range),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
