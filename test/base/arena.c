/* arena.c - the arena: zeroed, aligned, never moving; growing arrays; the growing text. */
#include "support.h"

static void memory_is_zeroed_and_aligned(void **state)
{
    ts_arena *a = ts_arena_new();

    (void)state;
    for (size_t n = 0; n < 3000; n += 7) {
        unsigned char *p = ts_arena_alloc(a, n);
        assert_int_equal((uintptr_t)p % 16, 0);
        for (size_t i = 0; i < n; i++)
            assert_int_equal(p[i], 0);
        memset(p, 0xff, n);
    }
    ts_arena_free(a);
}

static void pieces_do_not_overlap(void **state)
{
    ts_arena *a = ts_arena_new();
    unsigned char *piece[500];

    (void)state;
    for (int i = 0; i < 500; i++) {
        piece[i] = ts_arena_alloc(a, (size_t)i + 1);
        memset(piece[i], i & 255, (size_t)i + 1);
    }
    for (int i = 0; i < 500; i++)
        for (int k = 0; k <= i; k++)
            assert_int_equal(piece[i][k], i & 255);
    ts_arena_free(a);
}

/* Larger than a block, between small ones. */
static void large_pieces(void **state)
{
    ts_arena *a = ts_arena_new();

    (void)state;
    for (int i = 0; i < 4; i++) {
        char *small = ts_arena_strdup(a, "small");
        char *large = ts_arena_alloc(a, 1 << 20);
        memset(large, 1, 1 << 20);
        assert_string_equal(small, "small");
    }
    ts_arena_free(a);
}

static void copies(void **state)
{
    ts_arena *a = ts_arena_new();
    int numbers[] = {1, 2, 3};
    int *copy = ts_arena_copy(a, numbers, sizeof(numbers));

    (void)state;
    numbers[0] = 9;
    assert_int_equal(copy[0], 1);
    assert_non_null(ts_arena_copy(a, NULL, 0));
    assert_null(ts_arena_strdup(a, NULL));
    assert_string_equal(ts_arena_printf(a, "%d %s", 4, "x"), "4 x");
    ts_arena_free(a);
    ts_arena_free(NULL);
}

static void arrays_grow(void **state)
{
    ts_arena *a = ts_arena_new();
    int *x = NULL, n = 0;

    (void)state;
    for (int i = 0; i < 10000; i++)
        TS_PUSH(a, x, n, i * 3);
    assert_int_equal(n, 10000);
    for (int i = 0; i < n; i++)
        assert_int_equal(x[i], i * 3);
    ts_arena_free(a);
}

static void text_grows(void **state)
{
    ts_text t = {0};

    (void)state;
    for (int i = 0; i < 5000; i++) {
        ts_text_printf(&t, "%d,", i % 10);
        ts_text_add(&t, "x\n", 1);
    }
    assert_int_equal(t.len, 15000);
    assert_int_equal(strlen(t.s), 15000);
    assert_memory_equal(t.s, "0,x1,x2,x", 9);
    ts_text_free(&t);
    assert_null(t.s);
    ts_text_free(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_zeroed_and_aligned),
        cmocka_unit_test(pieces_do_not_overlap),
        cmocka_unit_test(large_pieces),
        cmocka_unit_test(copies),
        cmocka_unit_test(arrays_grow),
        cmocka_unit_test(text_grows),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
