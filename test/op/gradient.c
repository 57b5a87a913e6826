/* Every gradient against central differences of the loss, in f64. */
#include "cases.h"
#include "pass/pass.h"
#include "support.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

/* Elements asked of each input; each takes two runs, so of cases with this much work, fewer. */
enum { PROBES = 24, PROBES_BRIEF = 8, LARGE = 1 << 20, LARGER_BY = 4 };

static const double step = 1e-5, tolerance = 1e-6;

static double loss_of(ts_ref *r, const ts_graph *g)
{
    ts_eval_ctx ctx = {.seed = 1};

    assert_int_equal(ts_ref_run(r, 0, &ctx), TS_OK);
    return *(double *)ts_ref_tensor(r, g->loss)->data;
}

static const ts_value *grad_output(const ts_graph *g, const char *param)
{
    for (int i = 0; i < g->noutputs; i++)
        if (g->output_names[i][0] == 'd' && !strcmp(g->output_names[i] + 1, param))
            return g->outputs[i];
    return NULL;
}

static int probes_of(const ts_graph *g)
{
    int probes = test_brief() ? PROBES_BRIEF : PROBES;
    double work = 0;

    for (int i = 0; i < g->nnodes; i++)
        work += ts_node_flops(g->nodes[i]);
    return work < LARGE ? probes : probes / LARGER_BY;
}

/* Compares d loss / d x; a missing gradient counts as zero. Returns the number of wrong
 * elements. */
static int check_input(const op_case *c, ts_ref *forward, const ts_graph *fg, ts_ref *backward,
                       const ts_graph *bg, const ts_value *x)
{
    const ts_value *d = grad_output(bg, x->name);
    double *at = ts_ref_tensor(forward, x)->data;
    const double *grad = d ? ts_ref_tensor(backward, d)->data : NULL;
    int64_t count = ts_type_count(&x->type), probes = probes_of(fg);
    int64_t stride = (count + probes - 1) / probes;
    int wrong = 0;

    for (int64_t i = 0; i < count; i += stride) {
        double x0 = at[i], h = step * fmax(1, fabs(x0)), up, down, want, got = grad ? grad[i] : 0;
        at[i] = x0 + h;
        up = loss_of(forward, fg);
        at[i] = x0 - h;
        down = loss_of(forward, fg);
        at[i] = x0;
        want = (up - down) / (2 * h);
        if (fabs(got - want) <= tolerance * fmax(1, fabs(want)))
            continue;
        if (!wrong++)
            print_error("%s\n  d%s[%ld] is %.10g, by differences %.10g\n", c->text, x->name,
                        (long)i, got, want);
    }
    return wrong;
}

static int check_case(const op_case *c)
{
    ts_arena *a = ts_arena_new();
    ts_graph *model;
    const ts_graph *fg, *bg;
    ts_ref *forward = NULL, *backward = NULL;
    int wrong = 0;

    if (case_build(c, &model) ||
        ts_pass_decompose(a, model, &(ts_options){.executor = TS_EXECUTOR_REFERENCE}, &fg) ||
        case_grad(a, model, &bg) || case_run(c, fg, &forward) || case_run(c, bg, &backward)) {
        print_error("%s\n%s", c->text, ts_error_text());
        wrong = 1;
    } else if (fg->loss) {
        for (int i = 0; i < fg->nstates; i++)
            wrong += check_input(c, forward, fg, backward, bg, fg->states[i].value);
    }
    ts_ref_free(forward);
    ts_ref_free(backward);
    ts_graph_free(model);
    ts_arena_free(a);
    return wrong;
}

static void gradients_are_differences(void **state)
{
    ts_arena *a = ts_arena_new();
    op_case *cases;
    int n, wrong = 0, asked = 0;

    (void)state;
    assert_int_equal(cases_load(a, &cases, &n), TS_OK);
    for (int i = 0; i < n; i++) {
        op_case c;
        if (cases[i].kink || !case_in(&cases[i], TS_F64, &c))
            continue;
        wrong += check_case(&c) != 0;
        asked++;
    }
    ts_arena_free(a);
    assert_int_equal(wrong, 0);
    assert_true(asked > 200);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(gradients_are_differences)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
