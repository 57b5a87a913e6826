/* machine.c - what is said of the machine agrees with what the library does on it. */
#include "run/run.h"
#include "support.h"
#include <sched.h>

static void it_says_what_is_here(void **state)
{
    ts_machine_info m;

    (void)state;
    unsetenv("OMP_NUM_THREADS");
    ts_machine(&m);
    assert_true(m.cores >= 1);
    assert_in_range(m.allowed, 1, m.cores);
    assert_in_range(m.threads, 1, m.allowed);
    assert_true(m.memory > 0 && m.available > 0 && m.available <= m.memory);
    assert_true(m.isa[0]);
    assert_non_null(strstr(m.compiler, "cc"));
}

static void affinity_and_environment_count(void **state)
{
    ts_machine_info m;
    cpu_set_t all, one;
    int first = 0;

    (void)state;
    assert_int_equal(sched_getaffinity(0, sizeof(all), &all), 0);
    while (!CPU_ISSET(first, &all))
        first++;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
    setenv("TESSERA_CC", "/nowhere/cc", 1);
    setenv("TESSERA_ISA", "portable", 1);
    ts_machine(&m);
    assert_int_equal(m.allowed, 1);
    assert_int_equal(m.threads, 1);
    assert_string_equal(m.compiler, "");
    assert_string_equal(m.isa, "portable");
    setenv("TESSERA_ISA", "z80", 1);
    ts_machine(&m);
    assert_string_equal(m.isa, "");
    sched_setaffinity(0, sizeof(all), &all);
    unsetenv("TESSERA_CC");
    unsetenv("TESSERA_ISA");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_says_what_is_here),
        cmocka_unit_test(affinity_and_environment_count),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
