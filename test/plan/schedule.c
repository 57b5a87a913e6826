/* schedule.c - the order of kernels: what a weight's gradient is made of is not kept for longer than the weight needs it. */
#include "plan/plan.h"
#include "support.h"

enum { LAYERS = 6, WIDTH = 512 };

static ts_graph *net(void)
{
    ts_graph *g = ts_graph_new("g");
    ts_value *x = ts_input(g, "x", TS_F32, 64, WIDTH);
    ts_init init = {TS_INIT_UNIFORM, -0.1, 0.1};

    for (int i = 0; i < LAYERS; i++) {
        char name[8];
        snprintf(name, sizeof(name), "w%d", i);
        x = ts_tanh(ts_matmul(x, ts_param(g, name, TS_F32, init, WIDTH, WIDTH)));
    }
    ts_loss(ts_mean(x, 0, NULL, false));
    return g;
}

static bool updates(const ts_program *p, const ts_kernel *k)
{
    for (int r = 0; r < k->nroots; r++)
        if (p->place[k->roots[r]->id].alias)
            return true;
    return false;
}

/* An update in place takes no memory, and frees the layer's operands: each comes when it can, and does not wait for
 * the end, however large the weight and its momentum are beside what they free. */
static void updates_come_early(void **state)
{
    ts_optimizer sgd = ts_sgd(0.1);
    ts_arena *a = ts_arena_new();
    ts_graph *g = net();
    const ts_program *p;
    int last = 0;

    (void)state;
    sgd.hyper.momentum = 0.9;
    assert_int_equal(ts_compile_plan(a, g, &(ts_options){.optimizer = &sgd}, &p), TS_OK);
    while (last < p->nkernels && updates(p, p->kernels[p->nkernels - 1 - last]))
        last++;
    assert_in_range(last, 1, 2);
    ts_arena_free(a);
    ts_graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(updates_come_early),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
