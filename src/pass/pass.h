/* pass.h - graph to graph. A pass is a function: the input stays as it is, the output is a new
 * graph in the same arena, or the input itself when there is nothing to do. pass.c has the order.
 */
#ifndef TS_PASS_H
#define TS_PASS_H

#include "op/op.h"

typedef ts_status ts_pass_fn(ts_arena *a, const ts_graph *in, const ts_options *opt,
                             const ts_graph **out);

/* pass.c */
ts_status ts_pass_all(ts_arena *a, const ts_graph *model, const ts_options *opt,
                      const ts_graph **out);
const char *ts_pass_name(int i); /* NULL past the last */
ts_status ts_pass_run(ts_arena *a, const char *name, const ts_graph *in, const ts_options *opt,
                      const ts_graph **out);

ts_pass_fn ts_pass_decompose; /* decompose.c  no composite op is left */
ts_pass_fn
    ts_pass_autodiff; /* autodiff.c   grads for the trained parameters; the loss is an output */
ts_pass_fn ts_pass_optimizer; /* optimizer.c  grads become updates of weights and optimiser state */
ts_pass_fn ts_pass_simplify;  /* simplify.c   fold, algebra, common subexpressions, dead code  */
ts_pass_fn ts_pass_transpose; /* transpose.c  a transposed product is made in its final shape            */
ts_pass_fn ts_pass_winograd;  /* winograd.c   3x3 convolutions over many channels by F(4,3)  */
ts_pass_fn ts_pass_layout;    /* layout.c     how each tensor lies in memory    */

#endif
