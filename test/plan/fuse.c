/* fuse.c - what is stored for those who read it. */
#include "plan/plan.h"
#include "support.h"
#include "tessera/ops.h"

/* A convolution steps through a picture; one whose pixels are repeated has no steps until it is in memory. */
static void repeated_pixels_are_stored(void **state)
{
    ts_arena *a = ts_arena_new();
    ts_graph *g = ts_graph_new("g");
    ts_value *x = ts_input(g, "x", TS_F32, 2, 16, 8, 8);
    const ts_program *p;

    (void)state;
    x = ts_upsample_nearest2d(ts_conv2d(x, "in", 16, 3, .padding = 1), 16, 16);
    ts_output(ts_conv2d(x, "out", 16, 3, .padding = 1), "y");
    assert_int_equal(ts_compile_plan(a, g, &(ts_options){.inference = true}, &p), TS_OK);
    for (int k = 0; k < p->nkernels; k++)
        for (int r = 0; p->kernels[k]->anchor && r < p->kernels[k]->nreads; r++)
            if (p->kernels[k]->roots[0]->type.dim[2] == 16 &&
                p->kernels[k]->reads[r]->type.rank == 4)
                assert_int_not_equal(p->kernels[k]->reads[r]->type.dim[2], 8);
    ts_arena_free(a);
    ts_graph_free(g);
}

/* What one convolution leaves in Winograd's tiles others, with a stride or a larger kernel, step through. */
static void tiles_are_stored_as_a_picture(void **state)
{
    ts_arena *a = ts_arena_new();
    ts_graph *g = ts_graph_new("g");
    ts_value *x = ts_input(g, "x", TS_F32, 16, 64, 12, 12);
    const ts_program *p;
    int pictures = 0;

    (void)state;
    setenv("TESSERA_MACHINE", "unit=32", 1);
    x = ts_conv2d(x, "in", 64, 3, .padding = 1, .no_bias = true);
    ts_output(ts_conv2d(x, "stride", 64, 3, .padding = 1, .stride = 2), "y");
    ts_output(ts_conv2d(x, "wide", 32, 5, .padding = 2), "z");
    assert_int_equal(ts_compile_plan(a, g, &(ts_options){.inference = true}, &p), TS_OK);
    for (int k = 0; k < p->nkernels; k++) {
        const ts_kernel *x = p->kernels[k];
        pictures += x->roots[0]->node->op == TS_OP(untile);
        for (int r = 0; x->anchor && x->anchor->op->flags & TS_CONV && r < x->nreads; r++)
            assert_in_range(x->reads[r]->type.rank, 1, 4);
    }
    assert_int_not_equal(pictures, 0);
    unsetenv("TESSERA_MACHINE");
    ts_arena_free(a);
    ts_graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(repeated_pixels_are_stored),
        cmocka_unit_test(tiles_are_stored_as_a_picture),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
