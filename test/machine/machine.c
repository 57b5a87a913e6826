/* machine.c - the description of the machine: whole, the same every time, and as text. */
#include "machine/machine.h"
#include "support.h"

static void this_machine_is_described(void **state)
{
    ts_machine_model m, again;
    ts_arena *a = ts_arena_new();

    (void)state;
    unsetenv("TESSERA_MACHINE");
    assert_ok(ts_machine_find(NULL, &m));
    assert_true(m.cores >= 2 && (m.cores & (m.cores - 1)) == 0);
    assert_true(m.line >= 16 && m.level1 >= 4096 && m.level2 >= m.level1);
    assert_true(m.unit >= 4 && m.unit <= 4 * m.isa.width);
    assert_ok(ts_machine_find(NULL, &again));
    assert_string_equal(ts_machine_text(a, &m), ts_machine_text(a, &again));
    ts_arena_free(a);
}

static void text_goes_there_and_back(void **state)
{
    ts_machine_model m = {0};
    ts_arena *a = ts_arena_new();

    (void)state;
    assert_ok(ts_machine_parse(TEST_MACHINE, &m));
    assert_int_equal(m.level2, 1 << 20);
    assert_string_equal(
        ts_machine_text(a, &m),
        "cores=2 line=64 level1=32768 level2=1048576 level3=33554432 unit=32 units=2 "
        "latency=4 near=32 far=25 memory=8 meet=1024 hertz=3500000000");
    ts_arena_free(a);
}

static void the_environment_describes_another(void **state)
{
    ts_machine_model m;

    (void)state;
    setenv("TESSERA_MACHINE", "cores=64  level3=0", 1);
    assert_ok(ts_machine_find("portable", &m));
    assert_int_equal(m.cores, 64);
    assert_int_equal(m.level3, 0);
    assert_int_equal(m.isa.width, 4);
    assert_int_equal(m.unit, 16);
    unsetenv("TESSERA_MACHINE");
}

static void nonsense_is_an_error(void **state)
{
    static const char *const bad[] = {"cores",       "cores=",   "cores=0", "cores=-2",
                                      "cores=2.5",   "wheels=4", "near=0",  "cores=2x",
                                      "level1=1e30", "meet=nan", "=2",      "cores=99999999999"};

    (void)state;
    for (int i = 0; i < TS_COUNT(bad); i++) {
        ts_machine_model m;
        setenv("TESSERA_MACHINE", bad[i], 1);
        if (ts_machine_find(NULL, &m) != TS_ERR_ARG)
            fail_msg("'%s' is taken", bad[i]);
        assert_non_null(strstr(ts_last_error()->message, "does not describe a machine"));
    }
    unsetenv("TESSERA_MACHINE");
}

/* --- prices --- */

static ts_machine_model fixed(const char *isa)
{
    ts_machine_model m;

    setenv("TESSERA_MACHINE", TEST_MACHINE, 1);
    assert_ok(ts_machine_find(isa, &m));
    unsetenv("TESSERA_MACHINE");
    return m;
}

static void wide_vectors_take_turns(void **state)
{
    ts_machine_model m = fixed("x86-64-v4");

    (void)state;
    assert_true(ts_machine_rate(&m, 16) == 1 && ts_machine_rate(&m, 8) == 2);
    assert_true(ts_machine_rate(&m, 4) == 2 && ts_machine_rate(&m, 1) == 2);
    m.unit = 64;
    assert_true(ts_machine_rate(&m, 16) == 2);
}

static void sharing_pays_for_the_meeting(void **state)
{
    ts_machine_model m = fixed("x86-64-v3");

    (void)state;
    assert_true(ts_price_shared(&m, 100, 8) == 100);
    assert_true(ts_price_shared(&m, 1e6, 1) == 1e6);
    assert_true(ts_price_shared(&m, 1e6, 2) == 5e5 + m.meet);
    assert_true(ts_price_shared(&m, 3e6, 3) == 2e6 + m.meet);
    assert_int_equal(ts_machine_grain(&m, 100, 1e6), 1);
    assert_true(ts_machine_grain(&m, 100, 1e3) > 50); /* too little for two threads */
}

static void more_memory_is_farther_away(void **state)
{
    ts_machine_model m = fixed("x86-64-v3");

    (void)state;
    assert_true(ts_price_bytes(&m, 1 << 20) == (1 << 20) / m.near);
    assert_true(ts_price_bytes(&m, 1 << 21) == (1 << 21) / m.far);
    assert_true(ts_price_bytes(&m, 1 << 30) == (1 << 30) / m.memory);
    assert_int_equal(ts_machine_spread(&m), 4 << 20);
    assert_int_equal(ts_machine_kept(&m), 256 << 10);
}

/* What a formula calls is dear, what it only adds is not. */
static void ops_have_prices(void **state)
{
    (void)state;
    assert_true(ts_op_price(TS_OP(add)) == 1 && ts_op_price(TS_OP(nop)) == 1);
    assert_true(ts_op_price(TS_OP(relu)) < ts_op_price(TS_OP(div)) + 2);
    assert_true(ts_op_price(TS_OP(exp)) > ts_op_price(TS_OP(sqrt)));
    assert_true(ts_op_price(TS_OP(sigmoid)) > ts_op_price(TS_OP(exp)));
    assert_true(ts_op_price(TS_OP(pow)) > ts_op_price(TS_OP(tanh)));
    for (int i = 0; ts_op_at(i); i++)
        assert_true(ts_op_price(ts_op_at(i)) >= 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(this_machine_is_described),
        cmocka_unit_test(text_goes_there_and_back),
        cmocka_unit_test(the_environment_describes_another),
        cmocka_unit_test(nonsense_is_an_error),
        cmocka_unit_test(wide_vectors_take_turns),
        cmocka_unit_test(sharing_pays_for_the_meeting),
        cmocka_unit_test(more_memory_is_farther_away),
        cmocka_unit_test(ops_have_prices),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
