/* gaps.c - random lives in memory: what is found is free, and nothing lower was. */
#include "plan/gaps.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { TIMES = 37, LIVES = 400 };

typedef struct life {
    ts_span spans[2];
    int n;
    size_t offset, bytes;
} life;

static bool together(const life *x, const life *y)
{
    for (int i = 0; i < x->n; i++)
        for (int j = 0; j < y->n; j++)
            if (x->spans[i].from <= y->spans[j].to && y->spans[j].from <= x->spans[i].to)
                return true;
    return false;
}

static bool is_free(const life *all, int n, const life *l, size_t at)
{
    for (int i = 0; i < n; i++)
        if (together(&all[i], l) && all[i].offset < at + l->bytes &&
            at < all[i].offset + all[i].bytes)
            return false;
    return true;
}

static int pick(int i, int what, int n)
{
    return (int)(ts_random_bits(7, (uint64_t)what, 0, (uint64_t)i) % (uint64_t)n);
}

static life random_life(int i)
{
    life l = {.n = 1 + !pick(i, 0, 5), .bytes = 1 + (size_t)pick(i, 1, 9)};

    for (int s = 0; s < l.n; s++) {
        l.spans[s].from = pick(i, 2 + s, TIMES);
        l.spans[s].to = l.spans[s].from + pick(i, 4 + s, TIMES - l.spans[s].from);
    }
    return l;
}

static void test_lowest_that_is_free(void **state)
{
    ts_arena *a = ts_arena_new();
    ts_gaps *g = ts_gaps_new(a, TIMES);
    static life all[LIVES];

    (void)state;
    for (int i = 0; i < LIVES; i++) {
        size_t lowest = 3;
        all[i] = random_life(i);
        while (!is_free(all, i, &all[i], lowest))
            lowest++;
        all[i].offset = ts_gaps_find(g, all[i].spans, all[i].n, 3, all[i].bytes);
        assert_int_equal(all[i].offset, lowest);
        ts_gaps_take(g, all[i].spans, all[i].n, all[i].offset, all[i].bytes);
    }
    ts_arena_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_lowest_that_is_free)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
