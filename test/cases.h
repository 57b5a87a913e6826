/* cases.h - the list of op cases, test/op/cases.txt, as data: every mode of testing walks it.
 *
 *   conv  f32[2,4,9,8] f32[6,2,3,3]  stride=[2,1] groups=2   @range -1 1
 *   ^op   ^inputs                    ^attributes             ^hints
 *
 * Cases are written in f32; case_in() gives the same case in another float type. Hints:
 *   @range lo hi    what the inputs hold, uniform; -2 2 when not said. @range:1 is input 1 only
 *   @index n        the integer inputs hold 0..n-1
 *   @ints           the float inputs hold whole numbers: ties
 *   @values a b ..  input 0 holds these, again and again; @values:1 for input 1
 *   @frozen i ..    these inputs are not trained
 *   @kink           no finite differences: the case sits on a kink or a jump, or means to detach
 *   @only           in this dtype only
 *
 * A case becomes a graph: float inputs are trained parameters x0, x1, .., the others inputs of the
 * same names; the outputs are y0, y1, ..; the loss is the sum of y0 * dy0 with an input dy0,
 * when y0 is float. All numbers follow from the case's line and the tensor's name.
 */
#ifndef TS_TEST_CASES_H
#define TS_TEST_CASES_H

#include "run/run.h"

enum { CASE_INPUTS = 8, CASE_ATTRS = 12, CASE_VALUES = 136 };

typedef struct op_case {
    const char *text; /* the line */
    int line;
    const ts_op *op;
    int nin;
    ts_type in[CASE_INPUTS];
    int nattr;
    ts_attr attr[CASE_ATTRS];
    double lo[CASE_INPUTS], hi[CASE_INPUTS];
    int nvalues[CASE_INPUTS];
    double values[CASE_INPUTS][CASE_VALUES];
    unsigned frozen; /* a bit per input */
    bool ints, kink, only;
} op_case;

/* All cases; fails with TS_ERR_PARSE and the line number. */
ts_status cases_load(ts_arena *a, op_case **cases, int *count);
/* One line. */
ts_status case_read(ts_arena *a, const char *text, int line, op_case *c);
/* The case with every f32 made t; false where that makes no sense. */
bool case_in(const op_case *c, ts_dtype t, op_case *out);
/* The graph as a user builds it, loss included; the caller frees g. */
ts_status case_build(const op_case *c, ts_graph **g);
/* decompose and autodiff over g: outputs y0.. and, for every trained input a gradient reaches,
 * dx0.. There is no loss any more, so it compiles as inference. */
ts_status case_grad(ts_arena *a, const ts_graph *g, const ts_graph **out);
/* What an input or state of such a graph holds. */
void case_fill(const op_case *c, const ts_value *v, void *data);
/* Fills and runs g, forward or with gradients, on the reference executor; ts_ref_free(r). */
ts_status case_run(const op_case *c, const ts_graph *g, ts_ref **r);
/* The first element of `got` that differs from the reference's v by more than rounding,
 * -1: none. */
int64_t case_difference(const ts_graph *g, ts_ref *r, const ts_value *v, const void *got);

#endif
