/* lower.h - ATen calls into a graph.
 *
 *   lower.c        the table: one row an ATen op, and how arguments are read
 *   lower_point.c  pointwise ops, comparisons, activations, random numbers
 *   lower_shape.c  views with their inverses, joining, reductions
 *   lower_index.c  reading and writing at an index
 *   lower_order.c  running sums, sorting, counting
 *   lower_layer.c  products, convolutions, pools, norms, losses
 *   lower_window.c windows by tables: unfold, uneven pools, resizing, sampling
 *   lower_loss.c   losses of many ops
 *
 * A call comes with its arguments in the order of ATen's schema, the defaults filled in, and with
 * the dtype and shape of what PyTorch itself answered. Those settle type promotion and every shape
 * argument with a -1 in it, so that no rule is written a second time here: a pointwise op casts its
 * operands to the dtype of the answer, a view of any name reshapes to the shape of the answer.
 */
#ifndef POPTORCH_LOWER_H
#define POPTORCH_LOWER_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#define TS_NO_LOCATIONS
#include "tessera.h"

enum { LOWER_RESULTS = 4096 }; /* pieces that are split or joined: steps of a recurrent layer */

typedef struct ts_call ts_call;
typedef ts_value *lower_fn(ts_call *c);
/* A view's inverse: x with the elements that the view shows replaced by those of y. */
typedef ts_value *lower_put_fn(ts_call *c, ts_value *x, ts_value *y);

typedef struct lower_row {
    const char *name; /* "aten::add.Tensor", or "aten::add" for all its overloads  */
    lower_fn *make;
    const char *op;    /* for the rows that only differ in the engine's op          */
    lower_put_fn *put; /* views only; NULL: cannot be written through               */
} lower_row;

struct ts_call {
    ts_graph *g;
    const lower_row *row;
    PyObject *args; /* a tuple */
    /* PyTorch's first result; for a view of several results, the one that is meant. */
    ts_dtype dtype;
    int rank;
    int64_t dims[TS_MAX_RANK];
    int which;                    /* result that a put is about */
    ts_value *out[LOWER_RESULTS]; /* [0] is what make returned; NULL: not given    */
    int nout;
    char why[200]; /* set by lower_refuse */
};

/* _core.c: the value inside a Python object, or NULL. */
ts_value *core_value(PyObject *o);

/* lower.c */
const lower_row *lower_find(const char *name);
const lower_row *lower_at(int i); /* NULL past the last */
ts_value *lower_refuse(ts_call *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
bool lower_has(const ts_call *c, int i);  /* there, and not None */
bool lower_flag(const ts_call *c, int i); /* False where it is absent */
int64_t lower_int(const ts_call *c, int i, int64_t otherwise);
double lower_number(const ts_call *c, int i, double otherwise);
const char *lower_text(const ts_call *c, int i, const char *otherwise);
/* A list of ints; a single int is a list of one. Writes at most TS_MAX_RANK, returns the number. */
int lower_ints(const ts_call *c, int i, int64_t *out);
/* The same, made n long by repeating a single value; `otherwise` for an empty list. */
void lower_ints_n(const ts_call *c, int i, int n, int64_t otherwise, int64_t *out);
ts_value *lower_tensor(ts_call *c, int i); /* NULL when it is no tensor */
/* A tensor or number, as t. */
ts_value *lower_as(ts_call *c, int i, ts_dtype t);
/* A list of tensors; NULL entries for None. Returns the number, at most n. */
int lower_tensors(const ts_call *c, int i, int n, ts_value **out);
int lower_dim(const ts_call *c, int i, int rank); /* a dim made positive */
ts_value *lower_scalar(ts_call *c, double v);     /* of the result's dtype */
bool lower_is_float(ts_dtype t);
ts_value *lower_op1(const char *op, ts_call *c, ts_value *x);
ts_value *lower_op2(const char *op, ts_call *c, ts_value *x, ts_value *y);

/* lower_point.c */
lower_fn lower_unary, lower_binary, lower_add, lower_sub, lower_rsub, lower_div, lower_compare,
    lower_logical, lower_bitwise, lower_logical_not, lower_where, lower_masked_fill, lower_addcmul,
    lower_addcdiv, lower_lerp, lower_clamp, lower_clamp_one, lower_copy, lower_fill, lower_hardtanh,
    lower_hardsigmoid, lower_hardswish, lower_mish, lower_log_sigmoid, lower_softplus,
    lower_leaky_relu, lower_elu, lower_celu, lower_selu, lower_gelu, lower_prelu, lower_threshold,
    lower_hardshrink, lower_softshrink, lower_glu, lower_tan, lower_hyperbolic, lower_arc,
    lower_polygamma, lower_mvlgamma, lower_zeta, lower_frac, lower_xlogy, lower_relu6,
    lower_bernoulli, lower_rand, lower_randn, lower_uniform, lower_normal, lower_dropout,
    lower_feature_dropout, lower_nop, lower_checkpoint, lower_square, lower_pow, lower_degrees,
    lower_exp2, lower_ldexp, lower_sinc, lower_logit, lower_fmax, lower_hypot, lower_logaddexp,
    lower_signbit, lower_copysign, lower_heaviside, lower_nan_to_num, lower_isinf, lower_round_to,
    lower_rrelu, lower_exponential, lower_randint, lower_random, lower_randperm;

/* lower_shape.c */
lower_fn lower_reshape, lower_detach, lower_permute, lower_expand, lower_select, lower_slice,
    lower_split, lower_unfold, lower_places, lower_flip, lower_roll, lower_repeat, lower_cat,
    lower_stack, lower_pad, lower_reduce, lower_extreme, lower_argument, lower_any, lower_variance,
    lower_norm, lower_softmax, lower_logsumexp, lower_tri, lower_pixel_shuffle,
    lower_reflection_pad, lower_dist, lower_renorm, lower_weight_norm, lower_nansum,
    lower_count_nonzero, lower_aminmax, lower_diagonal, lower_trace, lower_diag, lower_diag_embed,
    lower_block_diag, lower_rot90, lower_view_scatter, lower_channel_shuffle;
lower_put_fn lower_put_reshape, lower_put_permute, lower_put_select, lower_put_slice,
    lower_put_split, lower_put_places, lower_put_diagonal;
int lower_shape_of(const ts_value *v, int64_t dims[TS_MAX_RANK]); /* returns the rank */
/* The constant start, start + step, ..: n of them, i64 */
ts_value *lower_counted(ts_graph *g, int64_t n, int64_t start, int64_t step);
/* A reduction by name; no dims: all */
ts_value *lower_fold(ts_call *c, const char *op, ts_value *x, int n, const int64_t *dims,
                     bool keepdim);
ts_value *lower_p_norm(ts_call *c, ts_value *x, double p, int n, const int64_t *dims, bool keep);

/* lower_index.c */
lower_fn lower_index, lower_take, lower_index_select, lower_gather, lower_scatter,
    lower_scatter_add, lower_scatter_reduce, lower_index_reduce, lower_index_add, lower_index_copy,
    lower_index_put, lower_masked_scatter, lower_masked_select, lower_dynamic, lower_max_unpool,
    lower_embedding_bag, lower_embedding, lower_one_hot;

/* lower_order.c */
lower_fn lower_cumulative, lower_cummax, lower_sort, lower_topk, lower_median, lower_bucketize,
    lower_searchsorted, lower_isin, lower_bincount;
ts_value *lower_log_add(ts_call *c, ts_value *x, ts_value *y); /* log(e^x + e^y) */
/* y[i] = x[0] op .. op x[i] along dim; op: add, mul, log_add */
ts_value *lower_scan(ts_call *c, ts_value *x, int dim, const char *op);

/* lower_window.c */
lower_fn lower_im2col, lower_col2im, lower_window_max, lower_max_places, lower_adaptive_max_pool,
    lower_nearest_exact, lower_nearest, lower_linear_resize, lower_bicubic, lower_smoothed,
    lower_affine_grid, lower_grid_sample;

/* lower_loss.c */
lower_fn lower_multi_margin, lower_multilabel_margin, lower_ctc;
ts_value *lower_reduced(ts_call *c, ts_value *x, int reduction); /* the number of that argument */

/* lower_layer.c */
lower_fn lower_matmul, lower_addmm, lower_dot, lower_linear, lower_convolution, lower_max_pool,
    lower_avg_pool, lower_adaptive_avg_pool, lower_batch_norm, lower_batch_norm_eval,
    lower_batch_norm_no_stats, lower_group_norm, lower_layer_norm, lower_nll_loss, lower_loss,
    lower_bce, lower_bce_logits, lower_huber, lower_soft_margin, lower_cross_entropy,
    lower_identity_loss, lower_attention, lower_addbmm, lower_addr, lower_cross, lower_trilinear,
    lower_cdist, lower_pdist;
lower_fn lower_safe_softmax; /* the softmax of attention */

#endif
