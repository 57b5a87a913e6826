/* sweep.c - no cliffs: of nets that differ by one in one size the modelled cost differs by no more than
 * their share of work and a quarter, up and down.
 *
 * TS_SWEEP=1 prints the costs, as bench/sweep prints times.
 */
#include "models/sizes.h"
#include "plan/plan.h"
#include "render/render.h"
#include "support.h"

static double cycles(const size_family *f, int size)
{
    ts_optimizer sgd = ts_sgd(0.1);
    ts_options opt = {.optimizer = &sgd};
    ts_arena *a = ts_arena_new();
    ts_graph *g = f->make(size);
    const ts_graph *after;
    const ts_program *p;
    const ts_source *src;
    double n;

    assert_ok(ts_plan_passes(a, g, &opt, &after));
    assert_ok(ts_plan(a, after, &opt, &p));
    assert_ok(ts_source_make(a, p, &opt, &src));
    n = src->cycles;
    ts_arena_free(a);
    ts_graph_free(g);
    return n;
}

static void neighbours_cost_alike(void **state)
{
    const size_family *f = *state;
    double before = cycles(f, f->from);

    for (int size = f->from + 1; size <= f->to; size++) {
        double now = cycles(f, size), work = f->work(size) / f->work(size - 1);
        if (getenv("TS_SWEEP"))
            print_message("%s %d: %.0f cycles, %.3f times those before, work %.3f\n", f->name, size,
                          now, now / before, work);
        if (now > f->most * work * before || before > f->most * now)
            fail_msg(
                "%s %d costs %.0f cycles, and %d %.0f: %.2f times as many for %.2f times the work",
                f->name, size, now, size - 1, before, now / before, work);
        before = now;
    }
}

int main(void)
{
    struct CMUnitTest tests[TS_COUNT(size_families)];

    setenv("TESSERA_ISA", "x86-64-v4", 1);
    setenv("TESSERA_MACHINE", TEST_MACHINE, 1);
    for (int i = 0; i < TS_COUNT(size_families); i++)
        tests[i] = (struct CMUnitTest){.name = size_families[i].name,
                                       .test_func = neighbours_cost_alike,
                                       .initial_state = (void *)&size_families[i]};
    return _cmocka_run_group_tests("sweep", tests, TS_COUNT(size_families), NULL, NULL);
}
