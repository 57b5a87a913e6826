/* run.h - executes: the reference executor over a graph, the engine over a built program. */
#ifndef TS_RUN_H
#define TS_RUN_H

#include "op/op.h"

/* ref.c: one phase of a graph, node by node. env[id] is each value's tensor; inputs and states are
 * the caller's, the rest is allocated here. Updates of the phase are applied to the states' tensors
 * at the end. */
typedef struct ts_ref ts_ref;
ts_status ts_ref_new(const ts_graph *g, ts_ref **out); /* allocates every value */
void ts_ref_free(ts_ref *r);
ts_status ts_ref_run(ts_ref *r, int phase, const ts_eval_ctx *c);
ts_tensor *ts_ref_tensor(ts_ref *r, const ts_value *v);
/* One node on its own: constant folding. */
ts_status ts_ref_fold(ts_arena *a, const ts_node *n, void **data);

/* init.c: the starting value of a state, from the seed and its name only */
void ts_init_fill(const ts_init *init, const char *name, uint64_t seed, ts_dtype t, int64_t count,
                  void *data);

#endif
