/* tile.c - a convolution of many taps is a short source, and its numbers are the reference
 * executor's: padding that is as long as the row is not written out place by place. */
#include "compare.h"
#include "run/run.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { TAPS = 80, MOST_BYTES = 200 * 1024 };

static void compare(const ts_graph *g, ts_options opt)
{
    char why[256];
    ts_executable *exe = native_as_reference(g, opt, 1e-4, why, sizeof(why));

    if (!exe)
        fail_msg("%s", why);
    assert_true(strlen(ts_executable_source(exe)) < MOST_BYTES);
    ts_executable_free(exe);
}

static void many_taps(int batch, int groups)
{
    ts_graph *g = ts_graph_new("taps");
    ts_value *x = ts_input(g, "x", TS_F32, batch, 8, 120), *t;
    ts_optimizer sgd = ts_sgd(0.1);

    x = ts_conv1d(x, "conv", 8, TAPS, .padding = TAPS / 2, .groups = groups);
    t = ts_input(g, "t", TS_F32, batch, 8, 121);
    ts_loss(ts_mse_loss(x, t));
    ts_output(x, "y");
    compare(g, (ts_options){.optimizer = &sgd});
    ts_graph_free(g);
}

static void rows(void **state)
{
    (void)state;
    many_taps(3, 1);
}

static void batches(void **state)
{
    (void)state;
    many_taps(8, 1);
}

static void groups(void **state)
{
    (void)state;
    many_taps(3, 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows),
        cmocka_unit_test(batches),
        cmocka_unit_test(groups),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
