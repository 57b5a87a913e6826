/* threads.c - the team: nobody passes a barrier early, nobody is left behind, more threads than
 * cores included. */
#include "base/base.h"
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>

#include <cmocka.h>

enum { MOST = 8 };

typedef struct counts {
    ts_team *team;
    int rounds;
    int64_t at[MOST][8]; /* plain memory, a cache line each: only the barrier orders it */
    atomic_int wrong, members;
    atomic_uint seen;
} counts;

/* Everyone counts a round, waits, and must then find everyone's count; a second wait keeps the next
 * round from starting while somebody still looks. */
static void rounds(void *arg, int member, int size)
{
    counts *c = arg;

    for (int r = 1; r <= c->rounds; r++) {
        c->at[member][0] = r;
        ts_team_wait(c->team);
        for (int i = 0; i < size; i++)
            if (c->at[i][0] != r)
                atomic_fetch_add(&c->wrong, 1);
        ts_team_wait(c->team);
    }
    atomic_fetch_add(&c->members, 1);
    atomic_fetch_or(&c->seen, 1u << member);
}

static void run_rounds(int size, int n)
{
    counts *c = test_calloc(1, sizeof(*c));

    assert_int_equal(ts_team_new(size, &c->team), TS_OK);
    c->rounds = n;
    ts_team_run(c->team, rounds, c);
    assert_int_equal(c->wrong, 0);
    assert_int_equal(c->members, size);
    assert_int_equal(c->seen, (1u << size) - 1);
    ts_team_free(c->team);
    test_free(c);
}

/* Another number of members in each run; the others may come late and must take no part. */
static void test_some(void **state)
{
    counts *c = test_calloc(1, sizeof(*c));

    (void)state;
    assert_int_equal(ts_team_new(MOST, &c->team), TS_OK);
    c->rounds = 3;
    for (int i = 0; i < 300; i++) {
        int members = 1 + i * 7 % 11 % MOST;
        c->members = 0;
        c->seen = 0;
        ts_team_run_some(c->team, members, rounds, c);
        assert_int_equal(c->wrong, 0);
        assert_int_equal(c->members, members);
        assert_int_equal(c->seen, (1u << members) - 1);
    }
    ts_team_free(c->team);
    test_free(c);
}

static void test_barrier(void **state)
{
    (void)state;
    run_rounds(1, 1000);
    run_rounds(2, 20000); /* two waits a round */
    for (int size = 3; size <= MOST; size++)
        run_rounds(size, 250);
}

static void hello(void *arg, int member, int size)
{
    counts *c = arg;

    (void)size;
    atomic_fetch_add(&c->members, 1);
    atomic_fetch_or(&c->seen, 1u << member);
}

static void test_many_runs(void **state)
{
    counts c = {0};

    (void)state;
    assert_int_equal(ts_team_new(4, &c.team), TS_OK);
    for (int i = 1; i <= 500; i++) {
        atomic_store(&c.seen, 0);
        ts_team_run(c.team, hello, &c);
        assert_int_equal(c.members, 4 * i);
        assert_int_equal(c.seen, 15);
    }
    ts_team_free(c.team);
}

/* A team that never ran, one that ran once, and all of them gone again. */
static void test_create_and_free(void **state)
{
    (void)state;
    for (int i = 0; i < 200; i++) {
        counts c = {0};
        int size = 1 + i % MOST;
        assert_int_equal(ts_team_new(size, &c.team), TS_OK);
        if (i & 1)
            ts_team_run(c.team, hello, &c);
        ts_team_free(c.team);
        assert_int_equal(c.members, i & 1 ? size : 0);
    }
    ts_team_free(NULL);
}

/* Member 0 is the caller; a slow member makes the others sleep instead of spin. */
static void late(void *arg, int member, int size)
{
    counts *c = arg;

    for (int r = 1; r <= 3; r++) {
        if (member == r % size)
            for (int i = 0; i < 200; i++)
                sched_yield();
        c->at[member][0] = r;
        ts_team_wait(c->team);
        for (int i = 0; i < size; i++)
            if (c->at[i][0] != r)
                atomic_fetch_add(&c->wrong, 1);
        ts_team_wait(c->team);
    }
}

static void test_sleepers_wake(void **state)
{
    counts c = {0};

    (void)state;
    assert_int_equal(ts_team_new(3, &c.team), TS_OK);
    for (int i = 0; i < 200; i++)
        ts_team_run(c.team, late, &c);
    ts_team_free(c.team);
    assert_int_equal(c.wrong, 0);
}

static void test_a_thread_that_does_not_start(void **state)
{
    ts_team *t;

    (void)state;
    for (int nth = 0; nth < 3; nth++) {
        ts_fault_arm("thread", nth);
        assert_int_equal(ts_team_new(4, &t), TS_ERR_MEMORY);
        assert_non_null(strstr(ts_last_error()->message, "cannot start thread"));
    }
    ts_fault_arm("thread", -1);
}

static void test_default_size(void **state)
{
    cpu_set_t all, one;
    char *omp = getenv("OMP_NUM_THREADS") ? strdup(getenv("OMP_NUM_THREADS")) : NULL;

    (void)state;
    setenv("OMP_NUM_THREADS", "3", 1);
    assert_int_equal(ts_team_default_size(), 3);
    setenv("OMP_NUM_THREADS", "many", 1);
    assert_true(ts_team_default_size() >= 1);
    unsetenv("OMP_NUM_THREADS");
    assert_int_equal(sched_getaffinity(0, sizeof(all), &all), 0);
    assert_true(ts_team_default_size() <= CPU_COUNT(&all));
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE && !CPU_COUNT(&one); i++)
        if (CPU_ISSET(i, &all))
            CPU_SET(i, &one);
    assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
    assert_int_equal(ts_team_default_size(), 1);
    sched_setaffinity(0, sizeof(all), &all);
    if (omp)
        setenv("OMP_NUM_THREADS", omp, 1);
    free(omp);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_barrier),       cmocka_unit_test(test_some),
        cmocka_unit_test(test_many_runs),     cmocka_unit_test(test_create_and_free),
        cmocka_unit_test(test_sleepers_wake), cmocka_unit_test(test_a_thread_that_does_not_start),
        cmocka_unit_test(test_default_size),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
