/* lower.c - the table of ATen ops, and how their arguments are read.
 *
 * A row without an overload stands for all overloads of its name: numbers and tensors are told
 * apart when they are read, and trailing arguments that an overload lacks read as absent. Names
 * that begin with poptorch:: are calls that the tracer takes before PyTorch makes ATen calls of
 * them. In-place ops have no rows: add_ is add and a write (_memory.py).
 */
#include <stdarg.h>
#include <string.h>

#include "lower.h"

static const lower_row rows[] = {
    /* pointwise */
    {"aten::neg", lower_unary, "neg", 0},
    {"aten::abs", lower_unary, "abs", 0},
    {"aten::sign", lower_unary, "sign", 0},
    {"aten::reciprocal", lower_unary, "reciprocal", 0},
    {"aten::sqrt", lower_unary, "sqrt", 0},
    {"aten::rsqrt", lower_unary, "rsqrt", 0},
    {"aten::exp", lower_unary, "exp", 0},
    {"aten::expm1", lower_unary, "expm1", 0},
    {"aten::log", lower_unary, "log", 0},
    {"aten::log1p", lower_unary, "log1p", 0},
    {"aten::log2", lower_unary, "log2", 0},
    {"aten::log10", lower_unary, "log10", 0},
    {"aten::sin", lower_unary, "sin", 0},
    {"aten::cos", lower_unary, "cos", 0},
    {"aten::tanh", lower_unary, "tanh", 0},
    {"aten::erf", lower_unary, "erf", 0},
    {"aten::erfc", lower_unary, "erfc", 0},
    {"aten::erfinv", lower_unary, "erfinv", 0},
    {"aten::lgamma", lower_unary, "lgamma", 0},
    {"aten::digamma", lower_unary, "digamma", 0},
    {"aten::polygamma", lower_polygamma, 0, 0},
    {"aten::mvlgamma", lower_mvlgamma, 0, 0},
    {"aten::special_zeta", lower_zeta, 0, 0},
    {"aten::sigmoid", lower_unary, "sigmoid", 0},
    {"aten::relu", lower_unary, "relu", 0},
    {"aten::silu", lower_unary, "silu", 0},
    {"aten::floor", lower_unary, "floor", 0},
    {"aten::ceil", lower_unary, "ceil", 0},
    {"aten::round.default", lower_unary, "round", 0},
    {"aten::trunc", lower_unary, "trunc", 0},
    {"aten::square", lower_square, 0, 0},
    {"aten::isnan", lower_logical_not, "isnan", 0},
    {"aten::logical_not", lower_logical_not, "logical_not", 0},
    {"aten::bitwise_not", lower_bitwise, "not", 0},
    {"aten::tan", lower_tan, 0, 0},
    {"aten::sinh", lower_hyperbolic, "sinh", 0},
    {"aten::cosh", lower_hyperbolic, "cosh", 0},
    {"aten::asin", lower_arc, "asin", 0},
    {"aten::acos", lower_arc, "acos", 0},
    {"aten::atan", lower_arc, "atan", 0},
    {"aten::asinh", lower_arc, "asinh", 0},
    {"aten::acosh", lower_arc, "acosh", 0},
    {"aten::atanh", lower_arc, "atanh", 0},
    {"aten::frac", lower_frac, 0, 0},
    {"aten::deg2rad", lower_degrees, "deg2rad", 0},
    {"aten::rad2deg", lower_degrees, "rad2deg", 0},
    {"aten::exp2", lower_exp2, 0, 0},
    {"aten::special_exp2", lower_exp2, 0, 0},
    {"aten::ldexp", lower_ldexp, 0, 0},
    {"aten::sinc", lower_sinc, 0, 0},
    {"aten::logit", lower_logit, 0, 0},
    {"aten::sgn", lower_unary, "sign", 0},
    {"aten::signbit", lower_signbit, 0, 0},
    {"aten::round.decimals", lower_round_to, 0, 0},
    {"aten::nan_to_num", lower_nan_to_num, 0, 0},
    {"aten::isinf", lower_isinf, "isinf", 0},
    {"aten::isposinf", lower_isinf, "isposinf", 0},
    {"aten::isneginf", lower_isinf, "isneginf", 0},
    {"aten::isfinite", lower_isinf, "isfinite", 0},
    {"aten::add", lower_add, 0, 0},
    {"aten::sub", lower_sub, 0, 0},
    {"aten::rsub", lower_rsub, 0, 0},
    {"aten::mul", lower_binary, "mul", 0},
    {"aten::div", lower_div, 0, 0},
    {"aten::true_divide", lower_div, 0, 0},
    {"aten::floor_divide", lower_binary, "floor_divide", 0},
    {"aten::remainder", lower_binary, "remainder", 0},
    {"aten::fmod", lower_binary, "fmod", 0},
    {"aten::pow", lower_pow, 0, 0},
    {"aten::atan2", lower_binary, "atan2", 0},
    {"aten::maximum", lower_binary, "maximum", 0},
    {"aten::minimum", lower_binary, "minimum", 0},
    {"aten::xlogy", lower_xlogy, "log", 0},
    {"aten::special_xlog1py", lower_xlogy, "log1p", 0},
    {"aten::fmax", lower_fmax, "fmax", 0},
    {"aten::fmin", lower_fmax, "fmin", 0},
    {"aten::hypot", lower_hypot, 0, 0},
    {"aten::logaddexp", lower_logaddexp, "logaddexp", 0},
    {"aten::logaddexp2", lower_logaddexp, "logaddexp2", 0},
    {"aten::copysign", lower_copysign, 0, 0},
    {"aten::heaviside", lower_heaviside, 0, 0},
    {"aten::eq", lower_compare, "eq", 0},
    {"aten::ne", lower_compare, "ne", 0},
    {"aten::lt", lower_compare, "lt", 0},
    {"aten::le", lower_compare, "le", 0},
    {"aten::gt", lower_compare, "gt", 0},
    {"aten::ge", lower_compare, "ge", 0},
    {"aten::logical_and", lower_logical, "logical_and", 0},
    {"aten::logical_or", lower_logical, "logical_or", 0},
    {"aten::logical_xor", lower_logical, "logical_xor", 0},
    {"aten::bitwise_and", lower_bitwise, "and", 0},
    {"aten::bitwise_or", lower_bitwise, "or", 0},
    {"aten::bitwise_xor", lower_bitwise, "xor", 0},
    {"aten::__and__", lower_bitwise, "and", 0},
    {"aten::__or__", lower_bitwise, "or", 0},
    {"aten::__xor__", lower_bitwise, "xor", 0},
    {"aten::bitwise_left_shift", lower_bitwise, "left_shift", 0},
    {"aten::bitwise_right_shift", lower_bitwise, "right_shift", 0},
    {"aten::__lshift__", lower_bitwise, "left_shift", 0},
    {"aten::__rshift__", lower_bitwise, "right_shift", 0},
    {"aten::where.self", lower_where, 0, 0},
    {"aten::where.ScalarSelf", lower_where, 0, 0},
    {"aten::where.ScalarOther", lower_where, 0, 0},
    {"aten::masked_fill", lower_masked_fill, 0, 0},
    {"aten::addcmul", lower_addcmul, 0, 0},
    {"aten::addcdiv", lower_addcdiv, 0, 0},
    {"aten::lerp", lower_lerp, 0, 0},
    {"aten::clamp", lower_clamp, 0, 0},
    {"aten::clamp_min", lower_clamp_one, "maximum", 0},
    {"aten::clamp_max", lower_clamp_one, "minimum", 0},
    /* activations */
    {"aten::hardtanh", lower_hardtanh, 0, 0},
    {"aten::relu6", lower_relu6, 0, 0},
    {"aten::hardsigmoid", lower_hardsigmoid, 0, 0},
    {"aten::hardswish", lower_hardswish, 0, 0},
    {"aten::mish", lower_mish, 0, 0},
    {"aten::log_sigmoid", lower_log_sigmoid, 0, 0},
    {"aten::log_sigmoid_forward", lower_log_sigmoid, 0, 0},
    {"aten::softplus", lower_softplus, 0, 0},
    {"aten::leaky_relu", lower_leaky_relu, 0, 0},
    {"aten::elu", lower_elu, 0, 0},
    {"aten::celu", lower_celu, 0, 0},
    {"aten::selu", lower_selu, 0, 0},
    {"aten::gelu", lower_gelu, 0, 0},
    {"aten::prelu", lower_prelu, 0, 0},
    {"aten::_prelu_kernel", lower_prelu, 0, 0},
    {"aten::threshold", lower_threshold, 0, 0},
    {"aten::rrelu_with_noise", lower_rrelu, 0, 0},
    {"aten::hardshrink", lower_hardshrink, 0, 0},
    {"aten::softshrink", lower_softshrink, 0, 0},
    {"aten::glu", lower_glu, 0, 0},
    {"aten::_softmax", lower_softmax, "softmax", 0},
    {"aten::_safe_softmax", lower_safe_softmax, 0, 0},
    {"aten::_log_softmax", lower_softmax, "log_softmax", 0},
    /* copies and casts */
    {"aten::clone", lower_copy, 0, 0},
    {"aten::_to_copy", lower_copy, 0, 0},
    {"aten::contiguous", lower_copy, 0, 0},
    {"poptorch::copy", lower_copy, 0, 0},
    {"aten::fill", lower_fill, 0, 0},
    {"aten::zero", lower_fill, 0, 0},
    /* random */
    {"aten::bernoulli", lower_bernoulli, 0, 0},
    {"aten::rand", lower_rand, 0, 0},
    {"aten::rand_like", lower_rand, 0, 0},
    {"aten::randn", lower_randn, 0, 0},
    {"aten::randn_like", lower_randn, 0, 0},
    {"aten::uniform", lower_uniform, 0, 0},
    {"aten::normal", lower_normal, 0, 0},
    {"aten::exponential", lower_exponential, 0, 0},
    {"aten::randint.low", lower_randint, 0, 0},
    {"aten::randint", lower_randint, 0, 0},
    {"aten::randint_like.low_dtype", lower_randint, 0, 0},
    {"aten::randint_like", lower_randint, 0, 0},
    {"aten::random", lower_random, 0, 0},
    {"aten::randperm", lower_randperm, 0, 0},
    {"poptorch::dropout", lower_dropout, 0, 0},
    {"poptorch::feature_dropout", lower_feature_dropout, 0, 0},
    {"poptorch::nop", lower_nop, 0, 0},
    {"poptorch::checkpoint", lower_checkpoint, 0, 0},
    /* views */
    {"aten::view", lower_reshape, 0, lower_put_reshape},
    {"aten::_unsafe_view", lower_reshape, 0, lower_put_reshape},
    {"aten::_reshape_alias", lower_reshape, 0, lower_put_reshape},
    {"aten::reshape", lower_reshape, 0, lower_put_reshape},
    {"aten::squeeze", lower_reshape, 0, lower_put_reshape},
    {"aten::unsqueeze", lower_reshape, 0, lower_put_reshape},
    {"aten::alias", lower_reshape, 0, lower_put_reshape},
    {"aten::detach", lower_detach, 0, lower_put_reshape},
    {"aten::permute", lower_permute, "permute", lower_put_permute},
    {"aten::transpose", lower_permute, "transpose", lower_put_permute},
    {"aten::t", lower_permute, "t", lower_put_permute},
    {"aten::expand", lower_expand, 0, 0},
    {"aten::select", lower_select, 0, lower_put_select},
    {"aten::slice", lower_slice, 0, lower_put_slice},
    {"aten::split", lower_split, "split", lower_put_split},
    {"aten::split_with_sizes", lower_split, "sizes", lower_put_split},
    {"aten::unsafe_split", lower_split, "split", 0},
    {"aten::unsafe_split_with_sizes", lower_split, "sizes", 0},
    {"aten::unbind", lower_split, "unbind", lower_put_split},
    {"poptorch::places", lower_places, 0, lower_put_places},
    {"aten::unfold", lower_unfold, 0, 0},
    {"aten::diagonal", lower_diagonal, 0, lower_put_diagonal},
    {"aten::view_copy.default", lower_reshape, 0, 0},
    {"aten::squeeze_copy", lower_reshape, 0, 0},
    {"aten::unsqueeze_copy", lower_reshape, 0, 0},
    {"aten::permute_copy", lower_permute, "permute", 0},
    {"aten::transpose_copy", lower_permute, "transpose", 0},
    {"aten::t_copy", lower_permute, "t", 0},
    {"aten::expand_copy", lower_expand, 0, 0},
    {"aten::select_copy", lower_select, 0, 0},
    /* shapes */
    {"aten::flip", lower_flip, 0, 0},
    {"aten::roll", lower_roll, 0, 0},
    {"aten::repeat", lower_repeat, 0, 0},
    {"aten::cat", lower_cat, 0, 0},
    {"aten::stack", lower_stack, 0, 0},
    {"aten::constant_pad_nd", lower_pad, 0, 0},
    {"aten::reflection_pad1d", lower_reflection_pad, "reflect", 0},
    {"aten::reflection_pad2d", lower_reflection_pad, "reflect", 0},
    {"aten::reflection_pad3d", lower_reflection_pad, "reflect", 0},
    {"aten::replication_pad1d", lower_reflection_pad, "replicate", 0},
    {"aten::replication_pad2d", lower_reflection_pad, "replicate", 0},
    {"aten::replication_pad3d", lower_reflection_pad, "replicate", 0},
    {"aten::pixel_shuffle", lower_pixel_shuffle, "shuffle", 0},
    {"aten::pixel_unshuffle", lower_pixel_shuffle, "unshuffle", 0},
    {"aten::triu", lower_tri, "triu", 0},
    {"aten::tril", lower_tri, "tril", 0},
    {"aten::trace", lower_trace, 0, 0},
    {"aten::diag", lower_diag, 0, 0},
    {"aten::diagonal_copy", lower_diagonal, 0, 0},
    {"aten::diag_embed", lower_diag_embed, 0, 0},
    {"aten::block_diag", lower_block_diag, 0, 0},
    {"aten::rot90", lower_rot90, 0, 0},
    {"aten::channel_shuffle", lower_channel_shuffle, 0, 0},
    {"aten::native_channel_shuffle", lower_channel_shuffle, 0, 0},
    {"aten::select_scatter", lower_view_scatter, "select", 0},
    {"aten::slice_scatter", lower_view_scatter, "slice", 0},
    {"aten::diagonal_scatter", lower_view_scatter, "diagonal", 0},
    /* indexing */
    {"aten::index.Tensor", lower_index, 0, 0},
    {"aten::index_select", lower_index_select, 0, 0},
    {"aten::gather", lower_gather, 0, 0},
    {"aten::_unsafe_index", lower_index, 0, 0},
    {"aten::take", lower_take, 0, 0},
    {"aten::scatter.value", lower_scatter, 0, 0},
    {"aten::scatter.src", lower_scatter, 0, 0},
    {"aten::scatter.reduce", lower_scatter_reduce, 0, 0},
    {"aten::scatter.value_reduce", lower_scatter_reduce, 0, 0},
    {"aten::scatter_reduce", lower_scatter_reduce, 0, 0},
    {"aten::scatter_add", lower_scatter_add, 0, 0},
    {"aten::index_put", lower_index_put, 0, 0},
    {"aten::index_add", lower_index_add, 0, 0},
    {"aten::index_copy", lower_index_copy, 0, 0},
    {"aten::index_fill", lower_index_copy, 0, 0},
    {"aten::index_reduce", lower_index_reduce, 0, 0},
    {"aten::masked_scatter", lower_masked_scatter, 0, 0},
    {"aten::masked_select", lower_masked_select, 0, 0},
    {"aten::nonzero", lower_dynamic, 0, 0},
    {"aten::_unique2", lower_dynamic, 0, 0},
    {"aten::unique_dim", lower_dynamic, 0, 0},
    {"aten::unique_consecutive", lower_dynamic, 0, 0},
    {"aten::_embedding_bag", lower_embedding_bag, 0, 0},
    {"aten::_embedding_bag_forward_only", lower_embedding_bag, 0, 0},
    {"aten::embedding", lower_embedding, 0, 0},
    {"poptorch::one_hot", lower_one_hot, 0, 0},
    /* reductions */
    {"aten::sum", lower_reduce, "sum", 0},
    {"aten::mean", lower_reduce, "mean", 0},
    {"aten::amax", lower_reduce, "amax", 0},
    {"aten::amin", lower_reduce, "amin", 0},
    {"aten::prod", lower_reduce, "prod", 0},
    {"aten::logsumexp", lower_logsumexp, 0, 0},
    {"aten::max", lower_extreme, "max", 0},
    {"aten::min", lower_extreme, "min", 0},
    {"aten::argmax", lower_argument, "argmax", 0},
    {"aten::argmin", lower_argument, "argmin", 0},
    {"aten::any", lower_any, "amax", 0},
    {"aten::all", lower_any, "amin", 0},
    {"aten::var.correction", lower_variance, "var", 0},
    {"aten::std.correction", lower_variance, "std", 0},
    {"aten::var_mean.correction", lower_variance, "var", 0},
    {"aten::std_mean.correction", lower_variance, "std", 0},
    {"aten::norm", lower_norm, 0, 0},
    {"aten::linalg_vector_norm", lower_norm, 0, 0},
    {"aten::dist", lower_dist, 0, 0},
    {"aten::renorm", lower_renorm, 0, 0},
    {"aten::_weight_norm_interface", lower_weight_norm, 0, 0},
    {"aten::nansum", lower_nansum, 0, 0},
    {"aten::count_nonzero", lower_count_nonzero, 0, 0},
    {"aten::aminmax", lower_aminmax, 0, 0},
    /* running along a dim, sorting, counting */
    {"aten::cumsum", lower_cumulative, "add", 0},
    {"aten::cumprod", lower_cumulative, "mul", 0},
    {"aten::logcumsumexp", lower_cumulative, "log_add", 0},
    {"aten::_logcumsumexp", lower_cumulative, "log_add", 0},
    {"aten::cummax", lower_cummax, "cummax", 0},
    {"aten::cummin", lower_cummax, "cummin", 0},
    {"aten::sort.stable", lower_sort, "sort", 0},
    {"aten::sort", lower_sort, "sort", 0},
    {"aten::argsort.stable", lower_sort, "argsort", 0},
    {"aten::argsort", lower_sort, "argsort", 0},
    {"aten::topk", lower_topk, 0, 0},
    {"aten::median", lower_median, "median", 0},
    {"aten::nanmedian", lower_median, "nanmedian", 0},
    {"aten::kthvalue", lower_median, "kthvalue", 0},
    {"aten::bucketize", lower_bucketize, 0, 0},
    {"aten::searchsorted", lower_searchsorted, 0, 0},
    {"aten::isin", lower_isin, 0, 0},
    {"aten::bincount", lower_bincount, 0, 0},
    /* products and layers */
    {"aten::mm", lower_matmul, 0, 0},
    {"aten::bmm", lower_matmul, 0, 0},
    {"aten::mv", lower_matmul, 0, 0},
    {"aten::matmul", lower_matmul, 0, 0},
    {"aten::dot", lower_dot, 0, 0},
    {"aten::addmm", lower_addmm, 0, 0},
    {"aten::addmv", lower_addmm, 0, 0},
    {"aten::baddbmm", lower_addmm, 0, 0},
    {"aten::addbmm", lower_addbmm, 0, 0},
    {"aten::addr", lower_addr, 0, 0},
    {"aten::linalg_cross", lower_cross, 0, 0},
    {"aten::cross", lower_cross, 0, 0},
    {"aten::_trilinear", lower_trilinear, 0, 0},
    {"aten::_cdist_forward", lower_cdist, 0, 0},
    {"aten::_pdist_forward", lower_pdist, 0, 0},
    {"aten::linear", lower_linear, 0, 0},
    {"aten::convolution", lower_convolution, 0, 0},
    {"aten::max_pool2d_with_indices", lower_max_pool, 0, 0},
    {"aten::max_pool3d_with_indices", lower_max_pool, 0, 0},
    {"aten::max_pool1d", lower_max_pool, 0, 0},
    {"aten::max_pool2d", lower_max_pool, 0, 0},
    {"aten::avg_pool1d", lower_avg_pool, 0, 0},
    {"aten::avg_pool2d", lower_avg_pool, 0, 0},
    {"aten::avg_pool3d", lower_avg_pool, 0, 0},
    {"aten::_adaptive_avg_pool2d", lower_adaptive_avg_pool, 0, 0},
    {"aten::_adaptive_avg_pool3d", lower_adaptive_avg_pool, 0, 0},
    {"aten::adaptive_max_pool2d", lower_adaptive_max_pool, 0, 0},
    {"aten::adaptive_max_pool3d", lower_adaptive_max_pool, 0, 0},
    {"poptorch::max_pool2d_places", lower_max_places, 0, 0},
    {"poptorch::max_pool3d_places", lower_max_places, 0, 0},
    {"poptorch::adaptive_max_pool2d_places", lower_max_places, 0, 0},
    {"poptorch::adaptive_max_pool3d_places", lower_max_places, 0, 0},
    {"aten::max_unpool2d", lower_max_unpool, 0, 0},
    {"aten::max_unpool3d", lower_max_unpool, 0, 0},
    {"aten::im2col", lower_im2col, 0, 0},
    {"aten::col2im", lower_col2im, 0, 0},
    {"aten::upsample_bicubic2d", lower_bicubic, 0, 0},
    {"aten::_upsample_bilinear2d_aa", lower_smoothed, "bilinear", 0},
    {"aten::_upsample_bicubic2d_aa", lower_smoothed, "bicubic", 0},
    {"aten::_upsample_nearest_exact1d", lower_nearest_exact, 0, 0},
    {"aten::_upsample_nearest_exact2d", lower_nearest_exact, 0, 0},
    {"aten::_upsample_nearest_exact3d", lower_nearest_exact, 0, 0},
    {"aten::grid_sampler_2d", lower_grid_sample, 0, 0},
    {"aten::affine_grid_generator", lower_affine_grid, 0, 0},
    {"aten::upsample_nearest1d", lower_nearest, 0, 0},
    {"aten::upsample_nearest2d", lower_nearest, 0, 0},
    {"aten::upsample_nearest3d", lower_nearest, 0, 0},
    {"aten::upsample_linear1d", lower_linear_resize, 0, 0},
    {"aten::upsample_bilinear2d", lower_linear_resize, 0, 0},
    {"aten::upsample_trilinear3d", lower_linear_resize, 0, 0},
    {"aten::native_batch_norm", lower_batch_norm, 0, 0},
    {"aten::_native_batch_norm_legit.no_stats", lower_batch_norm_no_stats, 0, 0},
    {"aten::_native_batch_norm_legit", lower_batch_norm, 0, 0},
    {"aten::_native_batch_norm_legit_no_training", lower_batch_norm_eval, 0, 0},
    {"aten::native_group_norm", lower_group_norm, 0, 0},
    {"aten::native_layer_norm", lower_layer_norm, 0, 0},
    {"aten::_scaled_dot_product_flash_attention_for_cpu", lower_attention, 0, 0},
    /* losses */
    {"aten::nll_loss_forward", lower_nll_loss, 0, 0},
    {"aten::nll_loss2d_forward", lower_nll_loss, 0, 0},
    {"aten::mse_loss", lower_loss, "mse_loss", 0},
    {"aten::l1_loss", lower_loss, "l1_loss", 0},
    {"aten::smooth_l1_loss", lower_loss, "smooth_l1_loss", 0},
    {"aten::huber_loss", lower_huber, 0, 0},
    {"aten::soft_margin_loss", lower_soft_margin, 0, 0},
    {"aten::multi_margin_loss", lower_multi_margin, 0, 0},
    {"aten::multilabel_margin_loss_forward", lower_multilabel_margin, 0, 0},
    {"aten::_ctc_loss", lower_ctc, 0, 0},
    {"poptorch::cross_entropy", lower_cross_entropy, 0, 0},
    {"aten::binary_cross_entropy", lower_bce, 0, 0},
    {"aten::binary_cross_entropy_with_logits", lower_bce_logits, 0, 0},
    {"poptorch::identity_loss", lower_identity_loss, 0, 0},
};

enum { ROWS = sizeof(rows) / sizeof(rows[0]) };

const lower_row *lower_at(int i)
{
    return i >= 0 && i < ROWS ? &rows[i] : NULL;
}

/* "aten::add.Tensor": that row, else the row "aten::add". A program has some hundred calls, so a
 * walk will do. */
const lower_row *lower_find(const char *name)
{
    const char *dot = strchr(name, '.');
    size_t base = dot ? (size_t)(dot - name) : strlen(name);

    for (int i = 0; i < ROWS; i++)
        if (!strcmp(rows[i].name, name))
            return &rows[i];
    for (int i = 0; i < ROWS; i++)
        if (strlen(rows[i].name) == base && !strncmp(rows[i].name, name, base))
            return &rows[i];
    return NULL;
}

ts_value *lower_refuse(ts_call *c, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(c->why, sizeof(c->why), fmt, ap);
    va_end(ap);
    return NULL;
}

static PyObject *argument(const ts_call *c, int i)
{
    return i < PyTuple_GET_SIZE(c->args) ? PyTuple_GET_ITEM(c->args, i) : Py_None;
}

bool lower_has(const ts_call *c, int i)
{
    return argument(c, i) != Py_None;
}

bool lower_flag(const ts_call *c, int i)
{
    return argument(c, i) == Py_True || lower_int(c, i, 0) != 0;
}

static int64_t as_int(PyObject *o, int64_t otherwise)
{
    long long v = otherwise;

    if (PyLong_Check(o))
        v = PyLong_AsLongLong(o);
    else if (PyFloat_Check(o))
        v = (long long)PyFloat_AS_DOUBLE(o);
    if (v == -1 && PyErr_Occurred()) {
        PyErr_Clear();
        return otherwise;
    }
    return v;
}

int64_t lower_int(const ts_call *c, int i, int64_t otherwise)
{
    return as_int(argument(c, i), otherwise);
}

double lower_number(const ts_call *c, int i, double otherwise)
{
    PyObject *o = argument(c, i);

    return PyFloat_Check(o)  ? PyFloat_AS_DOUBLE(o)
           : PyLong_Check(o) ? (double)as_int(o, 0)
                             : otherwise;
}

const char *lower_text(const ts_call *c, int i, const char *otherwise)
{
    PyObject *o = argument(c, i);
    const char *s = PyUnicode_Check(o) ? PyUnicode_AsUTF8(o) : NULL;

    return s ? s : otherwise;
}

int lower_ints(const ts_call *c, int i, int64_t *out)
{
    PyObject *o = argument(c, i);
    Py_ssize_t n;

    if (PyLong_Check(o)) {
        out[0] = as_int(o, 0);
        return 1;
    }
    if (!PyList_Check(o) && !PyTuple_Check(o))
        return 0;
    n = PySequence_Fast_GET_SIZE(o);
    n = n > TS_MAX_RANK ? TS_MAX_RANK : n;
    for (Py_ssize_t k = 0; k < n; k++)
        out[k] = as_int(PySequence_Fast_GET_ITEM(o, k), 0);
    return (int)n;
}

void lower_ints_n(const ts_call *c, int i, int n, int64_t otherwise, int64_t *out)
{
    int64_t given[TS_MAX_RANK];
    int count = lower_ints(c, i, given);

    for (int k = 0; k < n; k++)
        out[k] = count == 0 ? otherwise : given[k < count ? k : count - 1];
}

ts_value *lower_tensor(ts_call *c, int i)
{
    return core_value(argument(c, i));
}

int lower_tensors(const ts_call *c, int i, int n, ts_value **out)
{
    PyObject *o = argument(c, i);
    Py_ssize_t count = PyList_Check(o) || PyTuple_Check(o) ? PySequence_Fast_GET_SIZE(o) : 0;

    for (Py_ssize_t k = 0; k < count && k < n; k++)
        out[k] = core_value(PySequence_Fast_GET_ITEM(o, k));
    return (int)count;
}

ts_value *lower_as(ts_call *c, int i, ts_dtype t)
{
    ts_value *v = lower_tensor(c, i);

    if (v && (t == TS_U8 || t == TS_I8) && lower_is_float(ts_dtype_of(v)))
        v = ts_cast(v, TS_I32); /* -1.0 becomes 255: the low byte */
    if (v)
        return ts_dtype_of(v) == t ? v : ts_cast(v, t);
    if (!PyLong_Check(argument(c, i)) && !PyFloat_Check(argument(c, i)))
        return lower_refuse(c, "argument %d is neither a tensor nor a number", i + 1);
    return ts_scalar(c->g, t, lower_number(c, i, 0));
}

int lower_dim(const ts_call *c, int i, int rank)
{
    int64_t d = lower_int(c, i, 0);

    return (int)(d < 0 ? d + rank : d);
}

ts_value *lower_scalar(ts_call *c, double v)
{
    return ts_scalar(c->g, c->dtype, v);
}

bool lower_is_float(ts_dtype t)
{
    return t == TS_F32 || t == TS_F16 || t == TS_BF16 || t == TS_F64;
}

ts_value *lower_op1(const char *op, ts_call *c, ts_value *x)
{
    return x ? ts_apply(c->g, op, 1, &x, "") : NULL;
}

ts_value *lower_op2(const char *op, ts_call *c, ts_value *x, ts_value *y)
{
    return x && y ? ts_apply(c->g, op, 2, (ts_value *[]){x, y}, "") : NULL;
}
