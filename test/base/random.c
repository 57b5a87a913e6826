/* random.c - numbers from a counter, and orders of samples that stay what they were: a run resumed
 * with a later version must see the same batches. */
#include "support.h"

static void numbers_depend_on_every_argument(void **state)
{
    uint64_t x = ts_random_bits(1, 2, 3, 4);

    (void)state;
    assert_true(x == ts_random_bits(1, 2, 3, 4));
    assert_true(x != ts_random_bits(2, 2, 3, 4) && x != ts_random_bits(1, 3, 3, 4));
    assert_true(x != ts_random_bits(1, 2, 4, 4) && x != ts_random_bits(1, 2, 3, 5));
    for (uint64_t i = 0; i < 1000; i++) {
        double u = ts_random_unit(7, 0, 0, i);
        assert_true(u >= 0 && u < 1 && u == (double)(float)u);
    }
}

static void an_order_has_every_sample_once(void **state)
{
    int64_t order[500];
    bool seen[500];

    (void)state;
    for (int64_t n = 0; n <= 500; n += n < 5 ? 1 : 99) {
        memset(seen, 0, sizeof(seen));
        ts_random_order(3, 1, n, order);
        for (int64_t i = 0; i < n; i++) {
            assert_in_range(order[i], 0, n - 1);
            assert_false(seen[order[i]]);
            seen[order[i]] = true;
        }
    }
}

static void orders_are_what_they_were(void **state)
{
    static const int64_t first[] = {4, 1, 5, 7, 6, 2, 3, 0}, second[] = {7, 1, 6, 3, 4, 2, 0, 5};
    int64_t order[8];

    (void)state;
    ts_random_order(42, 0, 8, order);
    assert_memory_equal(order, first, sizeof(first));
    ts_random_order(42, 1, 8, order);
    assert_memory_equal(order, second, sizeof(second));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_depend_on_every_argument),
        cmocka_unit_test(an_order_has_every_sample_once),
        cmocka_unit_test(orders_are_what_they_were),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
