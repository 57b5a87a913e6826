/* op.h - the table of ops, and what their rules share: one row of ops.h an op, its rules in the
 * family's file. graph/row.h says what a row is.
 */
#ifndef TS_OP_H
#define TS_OP_H

#include "graph/row.h"

/* op.c */
const ts_op *ts_op_find(const char *name); /* NULL when there is none */
const ts_op *ts_op_at(int i);              /* the i-th row, NULL past the last */
double ts_node_flops(const ts_node *n);
/* By the plain method, and without what lies beyond the borders. */
double ts_node_useful_flops(const ts_node *n);
/* price.c: multiply-adds in whose time an element of a pointwise op is made, by its formula; those of
 * all a node does */
double ts_op_price(const ts_op *op);
double ts_node_sums(const ts_node *n);
/* The row itself: TS_OP(relu). A name that is no op does not compile. */
#define TS_OP(name) (&ts_ops[TS_ID_##name])
extern const ts_op ts_ops[];
enum {
#define POINT(name, ...)   TS_ID_##name,
#define OP(name, ...)      TS_ID_##name,
#define MACRO(name, ...)   TS_ID_##name,
#define CONTROL(name, ...) TS_ID_##name,
#include "op/ops.h"
#undef POINT
#undef OP
#undef MACRO
};

/* helpers for rules; the builders of tessera.h are used as well */
ts_value *ts_make1(const ts_op *op, ts_value *x, int nattr, const ts_attr *attr);
ts_value *ts_make2(const ts_op *op, ts_value *x, ts_value *y, int nattr, const ts_attr *attr);
ts_value *ts_full_like(ts_value *x, double value);  /* rank 0, broadcasts */
ts_value *ts_wide(ts_value *x);                     /* halves as f32: where sums grow */
ts_value *ts_sum_to(ts_value *v, const ts_type *t); /* undoes a broadcast */
ts_value *ts_point1(const char *op, ts_value *x);
ts_value *ts_point2(const char *op, ts_value *x, ts_value *y); /* promotes */
ts_value *ts_point3(const char *op, ts_value *x, ts_value *y, ts_value *z);
int ts_norm_dim(const ts_node *n, int64_t dim,
                int rank); /* -1 counts from the end; -1 when out of range */
/* For ops that take several numbers of inputs; the table says how many at least. */
ts_status ts_check_most(const ts_node *n, int most);
ts_status ts_check_float(const ts_node *n, const ts_value *v);
/* n's attributes but the one called `name`; room for TS_MAX_ATTR. Returns how many. */
int ts_attrs_but(const ts_node *n, const char *name, ts_attr *attr);
ts_status ts_broadcast(const ts_node *n, int nin, ts_value *const *in, ts_type *out);

/* Counts through an index space: for (ts_each it = ts_each_of(&t); it.more; ts_each_next(&it)) */
typedef struct ts_each {
    ts_type t;
    int64_t at[TS_MAX_RANK];
    int64_t flat;
    bool more;
} ts_each;
ts_each ts_each_of(const ts_type *t);
void ts_each_next(ts_each *it);
int64_t ts_flat(const ts_type *t, const int64_t *at); /* row-major index */

/* Zeros to add up in, so that the reference rounds each element of t once. store() writes them to t
 * and frees them; start() fails with TS_ERR_MEMORY. */
ts_status ts_sums_start(const ts_tensor *t, double **sums);
void ts_sums_store(double *sums, ts_tensor *t);

/* grad.c: the gradients of y (times the seeds; NULL: ones) by x; dx[i] is NULL where y does not depend on
 * x[i]. Composites may be on the way. */
ts_status ts_graph_grad(ts_graph *g, int ny, ts_value *const *y, ts_value *const *seeds, int nx,
                        ts_value *const *x, ts_value **dx);

/* sort.c: where the first `count` elements of `keys` in sorted order along dim lie, equal ones in
 * theirs */
ts_value *ts_sort_places(ts_value *keys, int dim, int64_t count, bool down);

/* reduce.c: the lanes and the dim they fill when n is summed one output at a time; 0 for none */
int ts_reduce_lanes(const ts_node *n, int *dim);

/* ref.c: one phase of a graph, node by node. env[id] is each value's tensor; inputs and states are
 * the caller's, the rest is allocated here. Updates of the phase are applied to the states' tensors
 * at the end. */
typedef struct ts_ref ts_ref;
ts_status ts_ref_new(const ts_graph *g, ts_ref **out); /* allocates every value */
void ts_ref_replica(ts_ref *r, int replica);           /* whose shares it has; at first 0's */
void ts_ref_free(ts_ref *r);
ts_status ts_ref_run(ts_ref *r, int phase, const ts_eval_ctx *c);
ts_tensor *ts_ref_tensor(ts_ref *r, const ts_value *v);
/* One node on its own: constant folding. */
ts_status ts_ref_fold(ts_arena *a, const ts_node *n, void **data);

/* Rule prototypes come from the table: a row whose rule is missing does not link. */
#define POINT(name, nin, res, grad, ...)                                                           \
    ts_status ts_grad_##grad(ts_node *, ts_value *const *, ts_value **);
#define OP(name, nin, nout, flags, infer, grad, eval, emit, spec)                                  \
    ts_status ts_infer_##infer(ts_node *);                                                         \
    ts_status ts_grad_##grad(ts_node *, ts_value *const *, ts_value **);                           \
    ts_status ts_eval_##eval(const ts_node *, const ts_eval_ctx *, const ts_tensor *,              \
                             ts_tensor *);                                                         \
    const char *ts_emit_##emit(ts_emit *, const ts_node *, int, const ts_ix *const *);             \
    void ts_spec_##spec(ts_arena *, const ts_node *, ts_spec *);
#define MACRO(name, nin, nout, expand)                                                             \
    ts_status ts_expand_##expand(ts_graph *, const ts_node *, ts_value *const *, ts_value **);
#define CONTROL(name, nin, expand) MACRO(name, nin, 0, expand)
#include "op/ops.h"
#undef POINT
#undef OP
#undef MACRO
ts_status ts_infer_point(ts_node *n);
ts_status ts_infer_composite(ts_node *n);
ts_status ts_eval_point(const ts_node *, const ts_eval_ctx *, const ts_tensor *, ts_tensor *);
const char *ts_emit_point(ts_emit *, const ts_node *, int, const ts_ix *const *);

#endif
