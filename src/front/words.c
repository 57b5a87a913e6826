/* words.c - the table of words, and how their arguments are read.
 *
 * A row without an overload stands for all overloads of its name: numbers and tensors are told
 * apart when they are read, and trailing arguments that an overload lacks read as absent. Names
 * that begin with poptorch:: are calls that the tracer takes before PyTorch makes ATen calls of
 * them. In-place ops have no rows: add_ is add and a write (_memory.py).
 */
#include "front/words.h"

static const ts_word_row rows[] = {
    /* pointwise */
    {"aten::neg", ts_word_unary, "neg", 0},
    {"aten::abs", ts_word_unary, "abs", 0},
    {"aten::sign", ts_word_unary, "sign", 0},
    {"aten::reciprocal", ts_word_unary, "reciprocal", 0},
    {"aten::sqrt", ts_word_unary, "sqrt", 0},
    {"aten::rsqrt", ts_word_unary, "rsqrt", 0},
    {"aten::exp", ts_word_unary, "exp", 0},
    {"aten::expm1", ts_word_unary, "expm1", 0},
    {"aten::log", ts_word_unary, "log", 0},
    {"aten::log1p", ts_word_unary, "log1p", 0},
    {"aten::log2", ts_word_unary, "log2", 0},
    {"aten::log10", ts_word_unary, "log10", 0},
    {"aten::sin", ts_word_unary, "sin", 0},
    {"aten::cos", ts_word_unary, "cos", 0},
    {"aten::tanh", ts_word_unary, "tanh", 0},
    {"aten::erf", ts_word_unary, "erf", 0},
    {"aten::erfc", ts_word_unary, "erfc", 0},
    {"aten::erfinv", ts_word_unary, "erfinv", 0},
    {"aten::lgamma", ts_word_unary, "lgamma", 0},
    {"aten::digamma", ts_word_unary, "digamma", 0},
    {"aten::polygamma", ts_word_polygamma, 0, 0},
    {"aten::mvlgamma", ts_word_mvlgamma, 0, 0},
    {"aten::special_zeta", ts_word_zeta, 0, 0},
    {"aten::sigmoid", ts_word_unary, "sigmoid", 0},
    {"aten::relu", ts_word_unary, "relu", 0},
    {"aten::silu", ts_word_unary, "silu", 0},
    {"aten::floor", ts_word_unary, "floor", 0},
    {"aten::ceil", ts_word_unary, "ceil", 0},
    {"aten::round.default", ts_word_unary, "round", 0},
    {"aten::trunc", ts_word_unary, "trunc", 0},
    {"aten::square", ts_word_square, 0, 0},
    {"aten::isnan", ts_word_logical_not, "isnan", 0},
    {"aten::logical_not", ts_word_logical_not, "logical_not", 0},
    {"aten::bitwise_not", ts_word_bitwise, "not", 0},
    {"aten::tan", ts_word_tan, 0, 0},
    {"aten::sinh", ts_word_hyperbolic, "sinh", 0},
    {"aten::cosh", ts_word_hyperbolic, "cosh", 0},
    {"aten::asin", ts_word_arc, "asin", 0},
    {"aten::acos", ts_word_arc, "acos", 0},
    {"aten::atan", ts_word_arc, "atan", 0},
    {"aten::asinh", ts_word_arc, "asinh", 0},
    {"aten::acosh", ts_word_arc, "acosh", 0},
    {"aten::atanh", ts_word_arc, "atanh", 0},
    {"aten::frac", ts_word_frac, 0, 0},
    {"aten::deg2rad", ts_word_degrees, "deg2rad", 0},
    {"aten::rad2deg", ts_word_degrees, "rad2deg", 0},
    {"aten::exp2", ts_word_exp2, 0, 0},
    {"aten::special_exp2", ts_word_exp2, 0, 0},
    {"aten::ldexp", ts_word_ldexp, 0, 0},
    {"aten::sinc", ts_word_sinc, 0, 0},
    {"aten::logit", ts_word_logit, 0, 0},
    {"aten::sgn", ts_word_unary, "sign", 0},
    {"aten::signbit", ts_word_signbit, 0, 0},
    {"aten::round.decimals", ts_word_round_to, 0, 0},
    {"aten::nan_to_num", ts_word_nan_to_num, 0, 0},
    {"aten::isinf", ts_word_isinf, "isinf", 0},
    {"aten::isposinf", ts_word_isinf, "isposinf", 0},
    {"aten::isneginf", ts_word_isinf, "isneginf", 0},
    {"aten::isfinite", ts_word_isinf, "isfinite", 0},
    {"aten::add", ts_word_add, 0, 0},
    {"aten::sub", ts_word_sub, 0, 0},
    {"aten::rsub", ts_word_rsub, 0, 0},
    {"aten::mul", ts_word_binary, "mul", 0},
    {"aten::div", ts_word_div, 0, 0},
    {"aten::true_divide", ts_word_div, 0, 0},
    {"aten::floor_divide", ts_word_binary, "floor_divide", 0},
    {"aten::remainder", ts_word_binary, "remainder", 0},
    {"aten::fmod", ts_word_binary, "fmod", 0},
    {"aten::pow", ts_word_pow, 0, 0},
    {"aten::atan2", ts_word_binary, "atan2", 0},
    {"aten::maximum", ts_word_binary, "maximum", 0},
    {"aten::minimum", ts_word_binary, "minimum", 0},
    {"aten::xlogy", ts_word_xlogy, "log", 0},
    {"aten::special_xlog1py", ts_word_xlogy, "log1p", 0},
    {"aten::fmax", ts_word_fmax, "fmax", 0},
    {"aten::fmin", ts_word_fmax, "fmin", 0},
    {"aten::hypot", ts_word_hypot, 0, 0},
    {"aten::logaddexp", ts_word_logaddexp, "logaddexp", 0},
    {"aten::logaddexp2", ts_word_logaddexp, "logaddexp2", 0},
    {"aten::copysign", ts_word_copysign, 0, 0},
    {"aten::heaviside", ts_word_heaviside, 0, 0},
    {"aten::eq", ts_word_compare, "eq", 0},
    {"aten::ne", ts_word_compare, "ne", 0},
    {"aten::lt", ts_word_compare, "lt", 0},
    {"aten::le", ts_word_compare, "le", 0},
    {"aten::gt", ts_word_compare, "gt", 0},
    {"aten::ge", ts_word_compare, "ge", 0},
    {"aten::logical_and", ts_word_logical, "logical_and", 0},
    {"aten::logical_or", ts_word_logical, "logical_or", 0},
    {"aten::logical_xor", ts_word_logical, "logical_xor", 0},
    {"aten::bitwise_and", ts_word_bitwise, "and", 0},
    {"aten::bitwise_or", ts_word_bitwise, "or", 0},
    {"aten::bitwise_xor", ts_word_bitwise, "xor", 0},
    {"aten::__and__", ts_word_bitwise, "and", 0},
    {"aten::__or__", ts_word_bitwise, "or", 0},
    {"aten::__xor__", ts_word_bitwise, "xor", 0},
    {"aten::bitwise_left_shift", ts_word_bitwise, "left_shift", 0},
    {"aten::bitwise_right_shift", ts_word_bitwise, "right_shift", 0},
    {"aten::__lshift__", ts_word_bitwise, "left_shift", 0},
    {"aten::__rshift__", ts_word_bitwise, "right_shift", 0},
    {"aten::where.self", ts_word_where, 0, 0},
    {"aten::where.ScalarSelf", ts_word_where, 0, 0},
    {"aten::where.ScalarOther", ts_word_where, 0, 0},
    {"aten::masked_fill", ts_word_masked_fill, 0, 0},
    {"aten::addcmul", ts_word_addcmul, 0, 0},
    {"aten::addcdiv", ts_word_addcdiv, 0, 0},
    {"aten::lerp", ts_word_lerp, 0, 0},
    {"aten::clamp", ts_word_clamp, 0, 0},
    {"aten::clamp_min", ts_word_clamp_one, "maximum", 0},
    {"aten::clamp_max", ts_word_clamp_one, "minimum", 0},
    /* activations */
    {"aten::hardtanh", ts_word_hardtanh, 0, 0},
    {"aten::relu6", ts_word_relu6, 0, 0},
    {"aten::hardsigmoid", ts_word_hardsigmoid, 0, 0},
    {"aten::hardswish", ts_word_hardswish, 0, 0},
    {"aten::mish", ts_word_mish, 0, 0},
    {"aten::log_sigmoid", ts_word_log_sigmoid, 0, 0},
    {"aten::log_sigmoid_forward", ts_word_log_sigmoid, 0, 0},
    {"aten::softplus", ts_word_softplus, 0, 0},
    {"aten::leaky_relu", ts_word_leaky_relu, 0, 0},
    {"aten::elu", ts_word_elu, 0, 0},
    {"aten::celu", ts_word_celu, 0, 0},
    {"aten::selu", ts_word_selu, 0, 0},
    {"aten::gelu", ts_word_gelu, 0, 0},
    {"aten::prelu", ts_word_prelu, 0, 0},
    {"aten::_prelu_kernel", ts_word_prelu, 0, 0},
    {"aten::threshold", ts_word_threshold, 0, 0},
    {"aten::rrelu_with_noise", ts_word_rrelu, 0, 0},
    {"aten::hardshrink", ts_word_hardshrink, 0, 0},
    {"aten::softshrink", ts_word_softshrink, 0, 0},
    {"aten::glu", ts_word_glu, 0, 0},
    {"aten::_softmax", ts_word_softmax, "softmax", 0},
    {"aten::_safe_softmax", ts_word_safe_softmax, 0, 0},
    {"aten::_log_softmax", ts_word_softmax, "log_softmax", 0},
    /* copies and casts */
    {"aten::clone", ts_word_copy, 0, 0},
    {"aten::_to_copy", ts_word_copy, 0, 0},
    {"aten::contiguous", ts_word_copy, 0, 0},
    {"poptorch::copy", ts_word_copy, 0, 0},
    {"aten::fill", ts_word_fill, 0, 0},
    {"aten::zero", ts_word_fill, 0, 0},
    /* random */
    {"aten::bernoulli", ts_word_bernoulli, 0, 0},
    {"aten::rand", ts_word_rand, 0, 0},
    {"aten::rand_like", ts_word_rand, 0, 0},
    {"aten::randn", ts_word_randn, 0, 0},
    {"aten::randn_like", ts_word_randn, 0, 0},
    {"aten::uniform", ts_word_uniform, 0, 0},
    {"aten::normal", ts_word_normal, 0, 0},
    {"aten::exponential", ts_word_exponential, 0, 0},
    {"aten::randint.low", ts_word_randint, 0, 0},
    {"aten::randint", ts_word_randint, 0, 0},
    {"aten::randint_like.low_dtype", ts_word_randint, 0, 0},
    {"aten::randint_like", ts_word_randint, 0, 0},
    {"aten::random", ts_word_random, 0, 0},
    {"aten::randperm", ts_word_randperm, 0, 0},
    {"poptorch::dropout", ts_word_dropout, 0, 0},
    {"poptorch::feature_dropout", ts_word_feature_dropout, 0, 0},
    {"poptorch::nop", ts_word_nop, 0, 0},
    {"poptorch::checkpoint", ts_word_checkpoint, 0, 0},
    /* views */
    {"aten::view", ts_word_reshape, 0, ts_word_put_reshape},
    {"aten::_unsafe_view", ts_word_reshape, 0, ts_word_put_reshape},
    {"aten::_reshape_alias", ts_word_reshape, 0, ts_word_put_reshape},
    {"aten::reshape", ts_word_reshape, 0, ts_word_put_reshape},
    {"aten::squeeze", ts_word_reshape, 0, ts_word_put_reshape},
    {"aten::unsqueeze", ts_word_reshape, 0, ts_word_put_reshape},
    {"aten::alias", ts_word_reshape, 0, ts_word_put_reshape},
    {"aten::detach", ts_word_detach, 0, ts_word_put_reshape},
    {"aten::permute", ts_word_permute, "permute", ts_word_put_permute},
    {"aten::transpose", ts_word_permute, "transpose", ts_word_put_permute},
    {"aten::t", ts_word_permute, "t", ts_word_put_permute},
    {"aten::expand", ts_word_expand, 0, 0},
    {"aten::select", ts_word_select, 0, ts_word_put_select},
    {"aten::slice", ts_word_slice, 0, ts_word_put_slice},
    {"aten::split", ts_word_split, "split", ts_word_put_split},
    {"aten::split_with_sizes", ts_word_split, "sizes", ts_word_put_split},
    {"aten::unsafe_split", ts_word_split, "split", 0},
    {"aten::unsafe_split_with_sizes", ts_word_split, "sizes", 0},
    {"aten::unbind", ts_word_split, "unbind", ts_word_put_split},
    {"poptorch::places", ts_word_places, 0, ts_word_put_places},
    {"aten::unfold", ts_word_unfold, 0, 0},
    {"aten::diagonal", ts_word_diagonal, 0, ts_word_put_diagonal},
    {"aten::view_copy.default", ts_word_reshape, 0, 0},
    {"aten::squeeze_copy", ts_word_reshape, 0, 0},
    {"aten::unsqueeze_copy", ts_word_reshape, 0, 0},
    {"aten::permute_copy", ts_word_permute, "permute", 0},
    {"aten::transpose_copy", ts_word_permute, "transpose", 0},
    {"aten::t_copy", ts_word_permute, "t", 0},
    {"aten::expand_copy", ts_word_expand, 0, 0},
    {"aten::select_copy", ts_word_select, 0, 0},
    /* shapes */
    {"aten::flip", ts_word_flip, 0, 0},
    {"aten::roll", ts_word_roll, 0, 0},
    {"aten::repeat", ts_word_repeat, 0, 0},
    {"aten::cat", ts_word_cat, 0, 0},
    {"aten::stack", ts_word_stack, 0, 0},
    {"aten::constant_pad_nd", ts_word_pad, 0, 0},
    {"aten::reflection_pad1d", ts_word_reflection_pad, "reflect", 0},
    {"aten::reflection_pad2d", ts_word_reflection_pad, "reflect", 0},
    {"aten::reflection_pad3d", ts_word_reflection_pad, "reflect", 0},
    {"aten::replication_pad1d", ts_word_reflection_pad, "replicate", 0},
    {"aten::replication_pad2d", ts_word_reflection_pad, "replicate", 0},
    {"aten::replication_pad3d", ts_word_reflection_pad, "replicate", 0},
    {"aten::pixel_shuffle", ts_word_pixel_shuffle, "shuffle", 0},
    {"aten::pixel_unshuffle", ts_word_pixel_shuffle, "unshuffle", 0},
    {"aten::triu", ts_word_tri, "triu", 0},
    {"aten::tril", ts_word_tri, "tril", 0},
    {"aten::trace", ts_word_trace, 0, 0},
    {"aten::diag", ts_word_diag, 0, 0},
    {"aten::diagonal_copy", ts_word_diagonal, 0, 0},
    {"aten::diag_embed", ts_word_diag_embed, 0, 0},
    {"aten::block_diag", ts_word_block_diag, 0, 0},
    {"aten::rot90", ts_word_rot90, 0, 0},
    {"aten::channel_shuffle", ts_word_channel_shuffle, 0, 0},
    {"aten::native_channel_shuffle", ts_word_channel_shuffle, 0, 0},
    {"aten::select_scatter", ts_word_view_scatter, "select", 0},
    {"aten::slice_scatter", ts_word_view_scatter, "slice", 0},
    {"aten::diagonal_scatter", ts_word_view_scatter, "diagonal", 0},
    /* indexing */
    {"aten::index.Tensor", ts_word_index, 0, 0},
    {"aten::index_select", ts_word_index_select, 0, 0},
    {"aten::gather", ts_word_gather, 0, 0},
    {"aten::_unsafe_index", ts_word_index, 0, 0},
    {"aten::take", ts_word_take, 0, 0},
    {"aten::scatter.value", ts_word_scatter, 0, 0},
    {"aten::scatter.src", ts_word_scatter, 0, 0},
    {"aten::scatter.reduce", ts_word_scatter_reduce, 0, 0},
    {"aten::scatter.value_reduce", ts_word_scatter_reduce, 0, 0},
    {"aten::scatter_reduce", ts_word_scatter_reduce, 0, 0},
    {"aten::scatter_add", ts_word_scatter_add, 0, 0},
    {"aten::index_put", ts_word_index_put, 0, 0},
    {"aten::index_add", ts_word_index_add, 0, 0},
    {"aten::index_copy", ts_word_index_copy, 0, 0},
    {"aten::index_fill", ts_word_index_copy, 0, 0},
    {"aten::index_reduce", ts_word_index_reduce, 0, 0},
    {"aten::masked_scatter", ts_word_masked_scatter, 0, 0},
    {"aten::masked_select", ts_word_masked_select, 0, 0},
    {"aten::nonzero", ts_word_dynamic, 0, 0},
    {"aten::_unique2", ts_word_dynamic, 0, 0},
    {"aten::unique_dim", ts_word_dynamic, 0, 0},
    {"aten::unique_consecutive", ts_word_dynamic, 0, 0},
    {"aten::_embedding_bag", ts_word_embedding_bag, 0, 0},
    {"aten::_embedding_bag_forward_only", ts_word_embedding_bag, 0, 0},
    {"aten::embedding", ts_word_embedding, 0, 0},
    {"poptorch::one_hot", ts_word_one_hot, 0, 0},
    /* reductions */
    {"aten::sum", ts_word_reduce, "sum", 0},
    {"aten::mean", ts_word_reduce, "mean", 0},
    {"aten::amax", ts_word_reduce, "amax", 0},
    {"aten::amin", ts_word_reduce, "amin", 0},
    {"aten::prod", ts_word_reduce, "prod", 0},
    {"aten::logsumexp", ts_word_logsumexp, 0, 0},
    {"aten::max", ts_word_extreme, "max", 0},
    {"aten::min", ts_word_extreme, "min", 0},
    {"aten::argmax", ts_word_argument, "argmax", 0},
    {"aten::argmin", ts_word_argument, "argmin", 0},
    {"aten::any", ts_word_any, "amax", 0},
    {"aten::all", ts_word_any, "amin", 0},
    {"aten::var.correction", ts_word_variance, "var", 0},
    {"aten::std.correction", ts_word_variance, "std", 0},
    {"aten::var_mean.correction", ts_word_variance, "var", 0},
    {"aten::std_mean.correction", ts_word_variance, "std", 0},
    {"aten::norm", ts_word_norm, 0, 0},
    {"aten::linalg_vector_norm", ts_word_norm, 0, 0},
    {"aten::dist", ts_word_dist, 0, 0},
    {"aten::renorm", ts_word_renorm, 0, 0},
    {"aten::_weight_norm_interface", ts_word_weight_norm, 0, 0},
    {"aten::nansum", ts_word_nansum, 0, 0},
    {"aten::count_nonzero", ts_word_count_nonzero, 0, 0},
    {"aten::aminmax", ts_word_aminmax, 0, 0},
    /* running along a dim, sorting, counting */
    {"aten::cumsum", ts_word_cumulative, "add", 0},
    {"aten::cumprod", ts_word_cumulative, "mul", 0},
    {"aten::logcumsumexp", ts_word_cumulative, "log_add", 0},
    {"aten::_logcumsumexp", ts_word_cumulative, "log_add", 0},
    {"aten::cummax", ts_word_cummax, "cummax", 0},
    {"aten::cummin", ts_word_cummax, "cummin", 0},
    {"aten::sort.stable", ts_word_sort, "sort", 0},
    {"aten::sort", ts_word_sort, "sort", 0},
    {"aten::argsort.stable", ts_word_sort, "argsort", 0},
    {"aten::argsort", ts_word_sort, "argsort", 0},
    {"aten::topk", ts_word_topk, 0, 0},
    {"aten::median", ts_word_median, "median", 0},
    {"aten::nanmedian", ts_word_median, "nanmedian", 0},
    {"aten::kthvalue", ts_word_median, "kthvalue", 0},
    {"aten::bucketize", ts_word_bucketize, 0, 0},
    {"aten::searchsorted", ts_word_searchsorted, 0, 0},
    {"aten::isin", ts_word_isin, 0, 0},
    {"aten::bincount", ts_word_bincount, 0, 0},
    /* products and layers */
    {"aten::mm", ts_word_matmul, 0, 0},
    {"aten::bmm", ts_word_matmul, 0, 0},
    {"aten::mv", ts_word_matmul, 0, 0},
    {"aten::matmul", ts_word_matmul, 0, 0},
    {"aten::dot", ts_word_dot, 0, 0},
    {"aten::addmm", ts_word_addmm, 0, 0},
    {"aten::addmv", ts_word_addmm, 0, 0},
    {"aten::baddbmm", ts_word_addmm, 0, 0},
    {"aten::addbmm", ts_word_addbmm, 0, 0},
    {"aten::addr", ts_word_addr, 0, 0},
    {"aten::linalg_cross", ts_word_cross, 0, 0},
    {"aten::cross", ts_word_cross, 0, 0},
    {"aten::_trilinear", ts_word_trilinear, 0, 0},
    {"aten::_cdist_forward", ts_word_cdist, 0, 0},
    {"aten::_pdist_forward", ts_word_pdist, 0, 0},
    {"aten::linear", ts_word_linear, 0, 0},
    {"aten::convolution", ts_word_convolution, 0, 0},
    {"aten::max_pool2d_with_indices", ts_word_max_pool, 0, 0},
    {"aten::max_pool3d_with_indices", ts_word_max_pool, 0, 0},
    {"aten::max_pool1d", ts_word_max_pool, 0, 0},
    {"aten::max_pool2d", ts_word_max_pool, 0, 0},
    {"aten::avg_pool1d", ts_word_avg_pool, 0, 0},
    {"aten::avg_pool2d", ts_word_avg_pool, 0, 0},
    {"aten::avg_pool3d", ts_word_avg_pool, 0, 0},
    {"aten::_adaptive_avg_pool2d", ts_word_adaptive_avg_pool, 0, 0},
    {"aten::_adaptive_avg_pool3d", ts_word_adaptive_avg_pool, 0, 0},
    {"aten::adaptive_max_pool2d", ts_word_adaptive_max_pool, 0, 0},
    {"aten::adaptive_max_pool3d", ts_word_adaptive_max_pool, 0, 0},
    {"poptorch::max_pool2d_places", ts_word_max_places, 0, 0},
    {"poptorch::max_pool3d_places", ts_word_max_places, 0, 0},
    {"poptorch::adaptive_max_pool2d_places", ts_word_max_places, 0, 0},
    {"poptorch::adaptive_max_pool3d_places", ts_word_max_places, 0, 0},
    {"aten::max_unpool2d", ts_word_max_unpool, 0, 0},
    {"aten::max_unpool3d", ts_word_max_unpool, 0, 0},
    {"aten::im2col", ts_word_im2col, 0, 0},
    {"aten::col2im", ts_word_col2im, 0, 0},
    {"aten::upsample_bicubic2d", ts_word_bicubic, 0, 0},
    {"aten::_upsample_bilinear2d_aa", ts_word_smoothed, "bilinear", 0},
    {"aten::_upsample_bicubic2d_aa", ts_word_smoothed, "bicubic", 0},
    {"aten::_upsample_nearest_exact1d", ts_word_nearest_exact, 0, 0},
    {"aten::_upsample_nearest_exact2d", ts_word_nearest_exact, 0, 0},
    {"aten::_upsample_nearest_exact3d", ts_word_nearest_exact, 0, 0},
    {"aten::grid_sampler_2d", ts_word_grid_sample, 0, 0},
    {"aten::affine_grid_generator", ts_word_affine_grid, 0, 0},
    {"aten::upsample_nearest1d", ts_word_nearest, 0, 0},
    {"aten::upsample_nearest2d", ts_word_nearest, 0, 0},
    {"aten::upsample_nearest3d", ts_word_nearest, 0, 0},
    {"aten::upsample_linear1d", ts_word_linear_resize, 0, 0},
    {"aten::upsample_bilinear2d", ts_word_linear_resize, 0, 0},
    {"aten::upsample_trilinear3d", ts_word_linear_resize, 0, 0},
    {"aten::native_batch_norm", ts_word_batch_norm, 0, 0},
    {"aten::_native_batch_norm_legit.no_stats", ts_word_batch_norm_no_stats, 0, 0},
    {"aten::_native_batch_norm_legit", ts_word_batch_norm, 0, 0},
    {"aten::_native_batch_norm_legit_no_training", ts_word_batch_norm_eval, 0, 0},
    {"aten::native_group_norm", ts_word_group_norm, 0, 0},
    {"aten::native_layer_norm", ts_word_layer_norm, 0, 0},
    {"aten::_scaled_dot_product_flash_attention_for_cpu", ts_word_attention, 0, 0},
    /* losses */
    {"aten::nll_loss_forward", ts_word_nll_loss, 0, 0},
    {"aten::nll_loss2d_forward", ts_word_nll_loss, 0, 0},
    {"aten::mse_loss", ts_word_loss, "mse_loss", 0},
    {"aten::l1_loss", ts_word_loss, "l1_loss", 0},
    {"aten::smooth_l1_loss", ts_word_loss, "smooth_l1_loss", 0},
    {"aten::huber_loss", ts_word_huber, 0, 0},
    {"aten::soft_margin_loss", ts_word_soft_margin, 0, 0},
    {"aten::multi_margin_loss", ts_word_multi_margin, 0, 0},
    {"aten::multilabel_margin_loss_forward", ts_word_multilabel_margin, 0, 0},
    {"aten::_ctc_loss", ts_word_ctc, 0, 0},
    {"poptorch::cross_entropy", ts_word_cross_entropy, 0, 0},
    {"aten::binary_cross_entropy", ts_word_bce, 0, 0},
    {"aten::binary_cross_entropy_with_logits", ts_word_bce_logits, 0, 0},
    {"poptorch::identity_loss", ts_word_identity_loss, 0, 0},
};

enum { ROWS = sizeof(rows) / sizeof(rows[0]) };

const ts_word_row *ts_word_at(int i)
{
    return i >= 0 && i < ROWS ? &rows[i] : NULL;
}

/* "aten::add.Tensor": that row, else the row "aten::add". A program has some hundred calls, so a
 * walk will do. */
const ts_word_row *ts_word_find(const char *name)
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

ts_value *ts_call_refuse(ts_call *c, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(c->why, sizeof(c->why), fmt, ap);
    va_end(ap);
    return NULL;
}

static const ts_arg *argument(const ts_call *c, int i)
{
    static const ts_arg none;

    return i < c->nargs ? &c->args[i] : &none;
}

bool ts_call_has(const ts_call *c, int i)
{
    return argument(c, i)->kind != TS_ARG_NONE;
}

bool ts_call_flag(const ts_call *c, int i)
{
    return ts_call_int(c, i, 0) != 0;
}

int64_t ts_call_int(const ts_call *c, int i, int64_t otherwise)
{
    const ts_arg *a = argument(c, i);

    return a->kind == TS_ARG_INT      ? a->as.i
           : a->kind == TS_ARG_NUMBER ? (int64_t)a->as.f
                                      : otherwise;
}

double ts_call_number(const ts_call *c, int i, double otherwise)
{
    const ts_arg *a = argument(c, i);

    return a->kind == TS_ARG_NUMBER ? a->as.f : a->kind == TS_ARG_INT ? (double)a->as.i : otherwise;
}

const char *ts_call_text(const ts_call *c, int i, const char *otherwise)
{
    const ts_arg *a = argument(c, i);

    return a->kind == TS_ARG_TEXT ? a->as.s : otherwise;
}

int ts_call_count(const ts_call *c, int i)
{
    const ts_arg *a = argument(c, i);

    return a->kind == TS_ARG_INTS || a->kind == TS_ARG_NUMBERS ? a->n : -1;
}

double ts_call_item(const ts_call *c, int i, int k)
{
    const ts_arg *a = argument(c, i);

    return a->kind == TS_ARG_INTS ? (double)a->as.ints[k] : a->as.numbers[k];
}

int ts_call_ints(const ts_call *c, int i, int64_t *out)
{
    const ts_arg *a = argument(c, i);
    int n = TS_MIN(a->n, TS_MAX_RANK);

    if (a->kind == TS_ARG_INT) {
        out[0] = a->as.i;
        return 1;
    }
    if (ts_call_count(c, i) < 0)
        return 0;
    for (int k = 0; k < n; k++)
        out[k] = a->kind == TS_ARG_INTS ? a->as.ints[k] : (int64_t)a->as.numbers[k];
    return n;
}

void ts_call_ints_n(const ts_call *c, int i, int n, int64_t otherwise, int64_t *out)
{
    int64_t given[TS_MAX_RANK];
    int count = ts_call_ints(c, i, given);

    for (int k = 0; k < n; k++)
        out[k] = count == 0 ? otherwise : given[k < count ? k : count - 1];
}

ts_value *ts_call_tensor(ts_call *c, int i)
{
    const ts_arg *a = argument(c, i);

    return a->kind == TS_ARG_TENSOR ? a->as.v : NULL;
}

int ts_call_tensors(const ts_call *c, int i, int n, ts_value **out)
{
    const ts_arg *a = argument(c, i);
    int count = a->kind == TS_ARG_TENSORS ? a->n : 0;

    for (int k = 0; k < count && k < n; k++)
        out[k] = a->as.tensors[k];
    return count;
}

ts_value *ts_call_as(ts_call *c, int i, ts_dtype t)
{
    ts_value *v = ts_call_tensor(c, i);

    if (v)
        return ts_dtype_of(v) == t ? v : ts_cast(v, t);
    if (argument(c, i)->kind != TS_ARG_INT && argument(c, i)->kind != TS_ARG_NUMBER)
        return ts_call_refuse(c, "argument %d is neither a tensor nor a number", i + 1);
    return ts_scalar(c->g, t, ts_call_number(c, i, 0));
}

int ts_call_dim(const ts_call *c, int i, int rank)
{
    int64_t d = ts_call_int(c, i, 0);

    return (int)(d < 0 ? d + rank : d);
}

ts_value *ts_call_scalar(ts_call *c, double v)
{
    return ts_scalar(c->g, c->dtype, v);
}

ts_value *ts_call_op1(const char *op, ts_call *c, ts_value *x)
{
    return x ? ts_apply(c->g, op, 1, &x, "") : NULL;
}

ts_value *ts_call_op2(const char *op, ts_call *c, ts_value *x, ts_value *y)
{
    return x && y ? ts_apply(c->g, op, 2, (ts_value *[]){x, y}, "") : NULL;
}

/* --- the public calls ------------------------------------------------------------------------- */

const char *ts_word_name(int i)
{
    const ts_word_row *r = ts_word_at(i);

    return r ? r->name : NULL;
}

bool ts_word_known(const char *name)
{
    return name && ts_word_find(name);
}

static ts_status start(ts_call *c, ts_graph *g, const char *word, const ts_answer *answer, int n,
                       const ts_arg *args)
{
    TS_TRY(ts_graph_check(g));
    c->g = g;
    c->row = word ? ts_word_find(word) : NULL;
    c->args = args;
    c->nargs = n;
    c->dtype = answer->dtype;
    c->rank = answer->rank;
    memcpy(c->dims, answer->dims, sizeof(c->dims));
    return c->row ? TS_OK : ts_fail(TS_ERR_UNSUPPORTED, "there is no '%s'", word ? word : "NULL");
}

/* A rule that gave nothing has said why, or its graph has. */
static ts_status gave(const ts_call *c, const ts_value *v)
{
    if (v)
        return TS_OK;
    if (c->why[0])
        return ts_fail(TS_ERR_UNSUPPORTED, "%s is not supported", c->why);
    TS_TRY(ts_graph_check(c->g));
    return ts_fail(TS_ERR_INTERNAL, "%s made no value and left no error", c->row->name);
}

ts_status ts_word(ts_graph *g, const char *word, const ts_answer *answer, int nargs,
                  const ts_arg *args, int room, ts_value **out, int *nout)
{
    ts_call *c = calloc(1, sizeof(*c));
    int begin = ts_steps_begin(g);
    ts_status s;

    if (!c)
        return ts_fail(TS_ERR_MEMORY, "no memory for a call of %s", word);
    s = start(c, g, word, answer, nargs, args);
    if (!s) {
        c->out[0] = c->row->make(c);
        c->nout = TS_MAX(c->nout, 1);
        s = gave(c, c->out[0]);
    }
    if (!s) {
        ts_steps_end(g, begin, c->nout, c->out);
        *nout = TS_MIN(c->nout, room);
        memcpy(out, c->out, sizeof(*out) * (size_t)*nout);
    }
    free(c);
    return s;
}

ts_status ts_word_put(ts_graph *g, const char *word, const ts_answer *answer, int nargs,
                      const ts_arg *args, int which, ts_value *y, ts_value **out)
{
    ts_call *c = calloc(1, sizeof(*c));
    ts_value *x;
    ts_status s;

    if (!c)
        return ts_fail(TS_ERR_MEMORY, "no memory for a call of %s", word);
    s = start(c, g, word, answer, nargs, args);
    if (!s) {
        c->which = which;
        x = ts_call_tensor(c, 0);
        *out = c->row->put && x && y ? c->row->put(c, x, y)
                                     : ts_call_refuse(c, "writing through this view");
        s = gave(c, *out);
    }
    free(c);
    return s;
}
