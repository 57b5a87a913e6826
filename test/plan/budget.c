/* budget.c - a model that does not fit: the hint proposes what would help, and nothing that is on. */
#include "support.h"
#include "tessera.h"
#include <stdlib.h>

enum { WIDE = 64 };

/* Two layers; of half precision if asked for. */
static ts_graph *net(int64_t batch, bool half)
{
    ts_graph *g = ts_graph_new("net");
    ts_value *x = ts_input_n(g, "x", TS_F32, 2, (int64_t[]){batch, WIDE});

    x = half ? ts_cast(x, TS_BF16) : x;
    x = ts_relu(ts_linear(x, "a", WIDE));
    x = ts_linear(x, "b", WIDE);
    ts_loss(ts_mean(ts_square(ts_cast(x, TS_F32)), 0, NULL, false));
    return g;
}

static const char *hint_of(int64_t batch, bool half, ts_options opt)
{
    static ts_optimizer adam;
    ts_graph *g = net(batch, half);
    ts_stats stats;

    adam = ts_adamw(0.01);
    opt.optimizer = &adam;
    opt.device_memory = 4096;
    assert_int_equal(ts_estimate(g, &opt, &stats), TS_ERR_MEMORY);
    ts_graph_free(g);
    return ts_last_error()->hint;
}

/* Of a plan, and where there is not even a cut that would fit. */
static void what_is_on_is_not_proposed(void **state)
{
    (void)state;
    for (int i = 0; i < 32; i++) {
        bool half = i & 1, batch = i & 2, recompute = i & 4, offload = i & 8, cut = i & 16;
        ts_options opt = {.recompute = recompute,
                          .offload = offload ? TS_OFFLOAD_OPTIMIZER : 0,
                          .devices = cut ? 2 : 1};
        const char *hint = hint_of(batch ? 8 : 1, half, opt);
        assert_true((strstr(hint, "half precision") != NULL) == !half);
        assert_true((strstr(hint, "smaller batch") != NULL) == batch);
        if (recompute)
            assert_null(strstr(hint, "recompute"));
        assert_true((strstr(hint, "the optimiser's state") != NULL) == !offload);
        assert_true((strstr(ts_last_error()->message, "no cut into") != NULL) == cut);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_is_on_is_not_proposed)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
