/* readers.c - planning looks at about as many things as there are kernels: of two nets, one four
 * times as deep as the other, it looks at about four times as many. Counted, not timed. */
#include "plan/plan.h"
#include "tessera.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

/* Residual blocks with norms and momentum: values that live long, states that are updated in place. */
static ts_graph *deep(int depth)
{
    ts_graph *g = ts_graph_new("deep");
    ts_value *x = ts_input(g, "x", TS_F32, 8, 16, 24, 24), *t = ts_input(g, "t", TS_I32, 8);

    for (int i = 0; i < depth; i++) {
        char conv[32], norm[32];
        snprintf(conv, sizeof(conv), "conv%d", i);
        snprintf(norm, sizeof(norm), "norm%d", i);
        x = ts_add(x, ts_relu(ts_group_norm(ts_conv2d(x, conv, 16, 3, .padding = 1), norm, 4)));
    }
    ts_loss(ts_nll_loss(ts_log_softmax(ts_linear(ts_flatten(x, 1), "fc", 10), 1), t));
    return g;
}

static int64_t work(int depth, const ts_options *opt, int *kernels)
{
    ts_arena *a = ts_arena_new();
    ts_graph *g = deep(depth);
    const ts_graph *lowered;
    const ts_program *p = NULL;
    int64_t n;

    if (ts_plan_passes(a, g, opt, &lowered) || ts_plan(a, lowered, opt, &p))
        fail_msg("%s", ts_error_text());
    n = p->work;
    *kernels = p->nkernels;
    ts_arena_free(a);
    ts_graph_free(g);
    return n;
}

static void check(const ts_options *opt)
{
    int few, many;
    int64_t small = work(16, opt, &few), large = work(64, opt, &many);

    assert_true(many > 3 * few && small > few);
    if (large > 6 * small)
        fail_msg("%d kernels took %ld steps, %d took %ld", few, (long)small, many, (long)large);
}

static void test_updates_at_once(void **state)
{
    ts_optimizer sgd = ts_sgd(0.01);

    (void)state;
    sgd.hyper.momentum = 0.9;
    check(&(ts_options){.optimizer = &sgd});
}

static void test_accumulation(void **state)
{
    ts_optimizer adam = ts_adam(0.01);

    (void)state;
    check(&(ts_options){.optimizer = &adam, .gradient_accumulation = 4});
}

static void test_inference(void **state)
{
    (void)state;
    check(&(ts_options){0});
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_updates_at_once),
                                       cmocka_unit_test(test_accumulation),
                                       cmocka_unit_test(test_inference)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
