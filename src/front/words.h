/* words.h - the vocabulary: the functions and layers of the user's world, as calls over graph
 * values.
 *
 *   words.c        the table: one row a word, and how arguments are read
 *   words_point.c  pointwise ops, comparisons, activations, random numbers
 *   words_shape.c  views with their inverses, joining, reductions
 *   words_index.c  reading and writing at an index
 *   words_order.c  running sums, sorting, counting
 *   words_layer.c  products, convolutions, pools, norms, losses
 *   words_window.c windows by tables: unfold, uneven pools, resizing, sampling
 *   words_loss.c   losses of many ops
 *
 * A call comes with its arguments in the order of ATen's schema, and with the dtype and shape of
 * its answer. A face that has PyTorch beside it knows those from PyTorch: they settle type
 * promotion and every shape argument with a -1 in it, so that no rule is written a second time
 * here: a pointwise op casts its operands to the dtype of the answer, a view of any name reshapes
 * to the shape of the answer.
 */
#ifndef TS_WORDS_H
#define TS_WORDS_H

#include "op/op.h"

enum { TS_WORD_RESULTS = 4096 }; /* pieces that are split or joined: steps of a recurrent layer */

typedef struct ts_call ts_call;
typedef ts_value *ts_word_fn(ts_call *c);
/* A view's inverse: x with the elements that the view shows replaced by those of y. */
typedef ts_value *ts_word_put_fn(ts_call *c, ts_value *x, ts_value *y);

typedef struct ts_word_row {
    const char *name; /* "aten::add.Tensor", or "aten::add" for all its overloads  */
    ts_word_fn *make;
    const char *op;      /* for the rows that only differ in the engine's op          */
    ts_word_put_fn *put; /* views only; NULL: cannot be written through               */
} ts_word_row;

struct ts_call {
    ts_graph *g;
    const ts_word_row *row;
    const ts_arg *args;
    int nargs;
    /* The first result; for a view of several results, the one that is meant. */
    ts_dtype dtype;
    int rank;
    int64_t dims[TS_MAX_RANK];
    int which;                      /* result that a put is about */
    ts_value *out[TS_WORD_RESULTS]; /* [0] is what make returned; NULL: not given    */
    int nout;
    char why[200]; /* set by ts_call_refuse */
};

/* words.c */
const ts_word_row *ts_word_find(const char *name);
const ts_word_row *ts_word_at(int i); /* NULL past the last */
ts_value *ts_call_refuse(ts_call *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
bool ts_call_has(const ts_call *c, int i);  /* there, and not none */
bool ts_call_flag(const ts_call *c, int i); /* False where it is absent */
int64_t ts_call_int(const ts_call *c, int i, int64_t otherwise);
double ts_call_number(const ts_call *c, int i, double otherwise);
const char *ts_call_text(const ts_call *c, int i, const char *otherwise);
/* A list of ints; a single int is a list of one. Writes at most TS_MAX_RANK, returns the number. */
int ts_call_ints(const ts_call *c, int i, int64_t *out);
/* The same, made n long by repeating a single value; `otherwise` for an empty list. */
void ts_call_ints_n(const ts_call *c, int i, int n, int64_t otherwise, int64_t *out);
/* The length of a list, -1 when it is none; and a number of it. */
int ts_call_count(const ts_call *c, int i);
double ts_call_item(const ts_call *c, int i, int k);
ts_value *ts_call_tensor(ts_call *c, int i); /* NULL when it is no tensor */
/* A tensor or number, as t. */
ts_value *ts_call_as(ts_call *c, int i, ts_dtype t);
/* A list of tensors; NULL entries for none. Returns the number, at most n. */
int ts_call_tensors(const ts_call *c, int i, int n, ts_value **out);
int ts_call_dim(const ts_call *c, int i, int rank); /* a dim made positive */
ts_value *ts_call_scalar(ts_call *c, double v);     /* of the result's dtype */
ts_value *ts_call_op1(const char *op, ts_call *c, ts_value *x);
ts_value *ts_call_op2(const char *op, ts_call *c, ts_value *x, ts_value *y);

/* ts_word_point.c */
ts_word_fn ts_word_unary, ts_word_binary, ts_word_add, ts_word_sub, ts_word_rsub, ts_word_div,
    ts_word_compare, ts_word_logical, ts_word_bitwise, ts_word_logical_not, ts_word_where,
    ts_word_masked_fill, ts_word_addcmul, ts_word_addcdiv, ts_word_lerp, ts_word_clamp,
    ts_word_clamp_one, ts_word_copy, ts_word_fill, ts_word_hardtanh, ts_word_hardsigmoid,
    ts_word_hardswish, ts_word_mish, ts_word_log_sigmoid, ts_word_softplus, ts_word_leaky_relu,
    ts_word_elu, ts_word_celu, ts_word_selu, ts_word_gelu, ts_word_prelu, ts_word_threshold,
    ts_word_hardshrink, ts_word_softshrink, ts_word_glu, ts_word_tan, ts_word_hyperbolic,
    ts_word_arc, ts_word_polygamma, ts_word_mvlgamma, ts_word_zeta, ts_word_frac, ts_word_xlogy,
    ts_word_relu6, ts_word_bernoulli, ts_word_rand, ts_word_randn, ts_word_uniform, ts_word_normal,
    ts_word_dropout, ts_word_feature_dropout, ts_word_nop, ts_word_checkpoint, ts_word_square,
    ts_word_pow, ts_word_degrees, ts_word_exp2, ts_word_ldexp, ts_word_sinc, ts_word_logit,
    ts_word_fmax, ts_word_hypot, ts_word_logaddexp, ts_word_signbit, ts_word_copysign,
    ts_word_heaviside, ts_word_nan_to_num, ts_word_isinf, ts_word_round_to, ts_word_rrelu,
    ts_word_exponential, ts_word_randint, ts_word_random, ts_word_randperm;

/* ts_word_shape.c */
ts_word_fn ts_word_reshape, ts_word_detach, ts_word_permute, ts_word_expand, ts_word_select,
    ts_word_slice, ts_word_split, ts_word_unfold, ts_word_places, ts_word_flip, ts_word_roll,
    ts_word_repeat, ts_word_cat, ts_word_stack, ts_word_pad, ts_word_reduce, ts_word_extreme,
    ts_word_argument, ts_word_any, ts_word_variance, ts_word_norm, ts_word_softmax,
    ts_word_logsumexp, ts_word_tri, ts_word_pixel_shuffle, ts_word_reflection_pad, ts_word_dist,
    ts_word_renorm, ts_word_weight_norm, ts_word_nansum, ts_word_count_nonzero, ts_word_aminmax,
    ts_word_diagonal, ts_word_trace, ts_word_diag, ts_word_diag_embed, ts_word_block_diag,
    ts_word_rot90, ts_word_view_scatter, ts_word_channel_shuffle;
ts_word_put_fn ts_word_put_reshape, ts_word_put_permute, ts_word_put_select, ts_word_put_slice,
    ts_word_put_split, ts_word_put_places, ts_word_put_diagonal;
int ts_call_shape_of(const ts_value *v, int64_t dims[TS_MAX_RANK]); /* returns the rank */
/* The constant start, start + step, ..: n of them, i64 */
ts_value *ts_call_counted(ts_graph *g, int64_t n, int64_t start, int64_t step);
/* A reduction by name; no dims: all */
ts_value *ts_call_fold(ts_call *c, const char *op, ts_value *x, int n, const int64_t *dims,
                       bool keepdim);
ts_value *ts_call_p_norm(ts_call *c, ts_value *x, double p, int n, const int64_t *dims, bool keep);

/* ts_word_index.c */
ts_word_fn ts_word_index, ts_word_take, ts_word_index_select, ts_word_gather, ts_word_scatter,
    ts_word_scatter_add, ts_word_scatter_reduce, ts_word_index_reduce, ts_word_index_add,
    ts_word_index_copy, ts_word_index_put, ts_word_masked_scatter, ts_word_masked_select,
    ts_word_dynamic, ts_word_max_unpool, ts_word_embedding_bag, ts_word_embedding, ts_word_one_hot;

/* ts_word_order.c */
ts_word_fn ts_word_cumulative, ts_word_cummax, ts_word_sort, ts_word_topk, ts_word_median,
    ts_word_bucketize, ts_word_searchsorted, ts_word_isin, ts_word_bincount;
ts_value *ts_call_log_add(ts_call *c, ts_value *x, ts_value *y); /* log(e^x + e^y) */
/* y[i] = x[0] op .. op x[i] along dim; op: add, mul, log_add */
ts_value *ts_call_scan(ts_call *c, ts_value *x, int dim, const char *op);

/* ts_word_window.c */
ts_word_fn ts_word_im2col, ts_word_col2im, ts_word_window_max, ts_word_max_places,
    ts_word_adaptive_max_pool, ts_word_nearest_exact, ts_word_nearest, ts_word_linear_resize,
    ts_word_bicubic, ts_word_smoothed, ts_word_affine_grid, ts_word_grid_sample;

/* ts_word_loss.c */
ts_word_fn ts_word_multi_margin, ts_word_multilabel_margin, ts_word_ctc;
ts_value *ts_call_reduced(ts_call *c, ts_value *x, int reduction); /* the number of that argument */

/* ts_word_layer.c */
ts_word_fn ts_word_matmul, ts_word_addmm, ts_word_dot, ts_word_linear, ts_word_convolution,
    ts_word_max_pool, ts_word_avg_pool, ts_word_adaptive_avg_pool, ts_word_batch_norm,
    ts_word_batch_norm_eval, ts_word_batch_norm_no_stats, ts_word_group_norm, ts_word_layer_norm,
    ts_word_nll_loss, ts_word_loss, ts_word_bce, ts_word_bce_logits, ts_word_huber,
    ts_word_soft_margin, ts_word_cross_entropy, ts_word_identity_loss, ts_word_attention,
    ts_word_addbmm, ts_word_addr, ts_word_cross, ts_word_trilinear, ts_word_cdist, ts_word_pdist;
ts_word_fn ts_word_safe_softmax; /* the softmax of attention */

#endif
