/* Every op of ops.h has a case in cases.txt, and every case runs on the reference in every dtype.
 */
#include "cases.h"
#include "support.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static ts_arena *arena;
static op_case *cases;
static int ncases;

static int setup(void **state)
{
    (void)state;
    arena = ts_arena_new();
    if (cases_load(arena, &cases, &ncases)) {
        print_error("%s", ts_error_text());
        return 1;
    }
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    ts_arena_free(arena);
    return 0;
}

static void every_op_has_a_case(void **state)
{
    int missing = 0;

    (void)state;
    for (int i = 0; ts_op_at(i); i++) {
        int found = 0;
        for (int k = 0; k < ncases; k++)
            found += cases[k].op == ts_op_at(i);
        if (!found && !(ts_op_at(i)->flags & (TS_CONTROL | TS_HOST))) { /* control.c, host.c */
            print_error("no case for %s\n", ts_op_at(i)->name);
            missing++;
        }
    }
    assert_int_equal(missing, 0);
}

/* Has every output that autodiff promised the type of what it is the gradient of? */
static bool types_fit(const ts_graph *g)
{
    for (int i = 0; i < g->noutputs; i++) {
        const ts_value *x = ts_graph_find_state(g, g->output_names[i] + 1);
        if (g->output_names[i][0] == 'd' && (!x || !ts_type_same(&x->type, &g->outputs[i]->type)))
            return false;
    }
    return true;
}

static bool runs(const op_case *c)
{
    ts_arena *a = ts_arena_new();
    ts_graph *model;
    const ts_graph *g = NULL;
    ts_ref *r = NULL;
    bool ok = !case_build(c, &model) && !case_grad(a, model, &g) && !case_run(c, g, &r);

    if (!ok)
        print_error("%s\n%s", c->text, ts_error_text());
    else if (!types_fit(g)) {
        print_error("%s\na gradient has another type than its input\n", c->text);
        ok = false;
    }
    ts_ref_free(r);
    ts_graph_free(model);
    ts_arena_free(a);
    return ok;
}

static void every_case_runs_in(ts_dtype t)
{
    int failed = 0, ran = 0;

    for (int i = 0; i < ncases; i++) {
        op_case c;
        if ((test_brief() && t != TS_F32 && i % 2) || !case_in(&cases[i], t, &c))
            continue;
        failed += !runs(&c);
        ran++;
    }
    assert_int_equal(failed, 0);
    assert_true(ran > 100);
}

static void every_case_runs_as_written(void **state)
{
    (void)state;
    every_case_runs_in(TS_F32);
}

static void every_case_runs_in_f64(void **state)
{
    (void)state;
    every_case_runs_in(TS_F64);
}

static void every_case_runs_in_f16(void **state)
{
    (void)state;
    every_case_runs_in(TS_F16);
}

static void every_case_runs_in_bf16(void **state)
{
    (void)state;
    every_case_runs_in(TS_BF16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_op_has_a_case),     cmocka_unit_test(every_case_runs_as_written),
        cmocka_unit_test(every_case_runs_in_f64),  cmocka_unit_test(every_case_runs_in_f16),
        cmocka_unit_test(every_case_runs_in_bf16),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
