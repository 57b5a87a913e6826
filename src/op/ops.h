/* ops.h - every op, one row. Included several times with different POINT, OP and MACRO.
 *
 *   POINT     a formula over x, y, z, written once: compiled it is the reference, as text it is the
 *             generated code. The capital names (SEL, EXP, ...) are macros with a scalar and a
 *             vector meaning.
 *             res: s the inputs' dtype, e that and never rounded, f that and floats only,
 *                  i that and integers only, b bool; with c: x and y may change places, with o: it
 *                  orders, and a NaN has no answer, with p: it picks
 *             grad: the gradient rule, `none` for no gradient
 *   OP        flags, then the names of its rules; `none` where it has none
 *   MACRO     a composition; only says how to expand
 *   CONTROL   a composition of sub-graphs; has as many outputs as the first of them
 *   ATTRS     the attributes an OP or MACRO takes and their kinds:
 *             i integer, f number, s text, l list of integers. A POINT has none.
 *
 * `in` is the number of inputs; -2 means 2 or more.
 */
#ifndef ATTRS
#define ATTRS(name, list)
#endif
#ifndef CONTROL
#define CONTROL(name, nin, expand)
#endif
/* clang-format off */

/*     name         in res  gradient    formula */
POINT( neg,          1, e, neg,         -x )
POINT( abs,          1, e, abs,         ABS(x) )
POINT( sign,         1, e, none,        SEL(x > 0, ONE(x), SEL(x < 0, -ONE(x), ZERO(x))) )
POINT( square,       1, s, square,      x * x )
POINT( reciprocal,   1, f, reciprocal,  ONE(x) / x )
POINT( sqrt,         1, f, sqrt,        SQRT(x) )
POINT( rsqrt,        1, f, rsqrt,       ONE(x) / SQRT(x) )
POINT( exp,          1, f, exp,         EXP(x) )
POINT( expm1,        1, f, expm1,       EXPM1(x) )
POINT( log,          1, f, log,         LOG(x) )
POINT( log1p,        1, f, log1p,       LOG1P(x) )
POINT( log2,         1, f, log2,        LOG(x) * NUM(1.4426950408889634) )
POINT( log10,        1, f, log10,       LOG(x) * NUM(0.4342944819032518) )
POINT( sin,          1, f, sin,         SIN(x) )
POINT( cos,          1, f, cos,         COS(x) )
POINT( tanh,         1, f, tanh,        TANH(x) )
POINT( erf,          1, f, erf,         ERF(x) )
POINT( erfc,         1, f, erfc,        ERFC(x) )
POINT( erfinv,       1, f, erfinv,      ERFINV(x) )
POINT( lgamma,       1, f, lgamma,      LGAMMA(x) )
POINT( digamma,      1, f, digamma,     DIGAMMA(x) )
POINT( sigmoid,      1, f, sigmoid,     ONE(x) / (ONE(x) + EXP(-x)) )
POINT( relu,         1, e, relu,        SEL(x > 0, x, SEL(x <= 0, ZERO(x), x)) )
POINT( step,         1, e, none,        SEL(x <= 0, ZERO(x), ONE(x)) )
POINT( floor,        1, e, none,        FLOOR(x) )
POINT( ceil,         1, e, none,        CEIL(x) )
POINT( round,        1, e, none,        RINT(x) )
POINT( trunc,        1, e, none,        TRUNC(x) )
POINT( isnan,        1, b, none,        CMP(x != x) )
POINT( logical_not,  1, b, none,        CMP(x == 0) )
POINT( bitwise_not,  1, i, none,        NOT(x) )
POINT( detach,       1, e, none,        x )
POINT( nop,          1, e, nop,         x )

POINT( add,          2, sc,add,         x + y )
POINT( sub,          2, s, sub,         x - y )
POINT( mul,          2, sc,mul,         x * y )
POINT( div,          2, f, div,         x / y )
POINT( floor_divide, 2, s, none,        FLOORDIV(x, y) )
POINT( remainder,    2, s, remainder,   REMAINDER(x, y) )
POINT( fmod,         2, e, fmod,        FMOD(x, y) )
POINT( pow,          2, s, pow,         POW(x, y) )
POINT( atan2,        2, f, atan2,       ATAN2(x, y) )
POINT( zeta,         2, f, zeta,        ZETA(x, y) )
POINT( maximum,      2, e, maximum,     SEL(x > y, x, SEL(x <= y, y, x + y)) )
POINT( minimum,      2, e, minimum,     SEL(x < y, x, SEL(x >= y, y, x + y)) )
POINT( eq,           2, bc,none,        CMP(x == y) )
POINT( ne,           2, bc,none,        CMP(x != y) )
POINT( lt,           2, bo,none,        CMP(x < y) )
POINT( le,           2, bo,none,        CMP(x <= y) )
POINT( gt,           2, bo,none,        CMP(x > y) )
POINT( ge,           2, bo,none,        CMP(x >= y) )
POINT( logical_and,  2, bc,none,        CMP(x != 0) & CMP(y != 0) )
POINT( logical_or,   2, bc,none,        CMP(x != 0) | CMP(y != 0) )
POINT( logical_xor,  2, bc,none,        CMP(x != 0) ^ CMP(y != 0) )
POINT( bitwise_and,  2, i, none,        AND(x, y) )
POINT( bitwise_or,   2, i, none,        OR(x, y) )
POINT( bitwise_xor,  2, i, none,        XOR(x, y) )
POINT( bitwise_left_shift,  2, i, none, SHL(x, y) )
POINT( bitwise_right_shift, 2, i, none, SHR(x, y) )
POINT( where,        3, ep,where,       SEL(x != 0, y, z) )

/*  name        in out flags                      infer       grad        eval        emit spec */
OP( cast,           1, 1, TS_POINT,                cast,          cast,          cast,          cast,          none )
OP( round_random,   1, 1, TS_POINT | TS_RANDOM,    round_random,  cast,          round_random,  round_random,  none )
OP( full,           0, 1, TS_SOURCE,               full,          none,          full,          full,          none )
OP( const,          0, 1, TS_SOURCE | TS_DATA,     const,         none,          const,         const,         none )
OP( iota,           0, 1, TS_SOURCE,               iota,          none,          iota,          iota,          none )
OP( rand,           0, 1, TS_SOURCE | TS_RANDOM,   rand,          none,          rand,          rand,          none )

OP( reshape,        1, 1, TS_VIEW,                 reshape,       reshape,       reshape,       reshape,       none )
OP( permute,        1, 1, TS_VIEW,                 permute,       permute,       permute,       permute,       none )
OP( expand,         1, 1, TS_VIEW,                 expand,        expand,        expand,        expand,        none )
OP( slice,          1, 1, TS_VIEW,                 slice,         slice,         slice,         slice,         none )
OP( pad,            1, 1, TS_VIEW | TS_PATCH,      pad,           pad,           pad,           pad,           none )
OP( flip,           1, 1, TS_VIEW,                 flip,          flip,          flip,          flip,          none )
OP( concat,        -1, 1, TS_VIEW | TS_PATCH,      concat,        concat,        concat,        concat,        none )

OP( sum,            1, 1, TS_REDUCE,               reduce,        sum,           reduce,        reduce,        none )
OP( amax,           1, 1, TS_REDUCE | TS_EXACT,    reduce,        amax,          reduce,        reduce,        none )
OP( amin,           1, 1, TS_REDUCE | TS_EXACT,    reduce,        amax,          reduce,        reduce,        none )
OP( prod,           1, 1, TS_REDUCE,               reduce,        prod,          reduce,        reduce,        none )
OP( argmax,         1, 1, TS_REDUCE | TS_NODIFF,   argreduce,     none,          argreduce,     argreduce,     none )
OP( argmin,         1, 1, TS_REDUCE | TS_NODIFF,   argreduce,     none,          argreduce,     argreduce,     none )

OP( matmul,         2, 1, TS_CONTRACT,             matmul,        matmul,        matmul,        contract,      matmul )
OP( conv,           2, 1, TS_CONTRACT | TS_CONV,   conv,          conv,          conv,          contract,      conv )
OP( conv_input,     2, 1, TS_CONTRACT | TS_CONV,   conv_input,    conv_input,    conv_input,    contract,      conv_input )
OP( conv_weight,    2, 1, TS_CONTRACT | TS_CONV,   conv_weight,   conv_weight,   conv_weight,   contract,      conv_weight )

OP( max_pool,       1, 2, TS_WINDOW | TS_EXACT,    max_pool,      max_pool,      max_pool,      max_pool,      none )
OP( max_pool_grad,  2, 1, TS_WINDOW | TS_COVERED,  max_pool_grad, max_pool_grad, pool_grad,     pool_grad,     none )
OP( sum_pool,       1, 1, TS_WINDOW,               sum_pool,      sum_pool,      sum_pool,      sum_pool,      none )
OP( sum_pool_grad,  1, 1, TS_WINDOW | TS_COVERED,  sum_pool_grad, sum_pool_grad, pool_grad,     pool_grad,     none )

OP( windows,        1, 1, TS_VIEW | TS_TILED,      windows,       none,          windows,       windows,       none )
OP( untile,         1, 1, TS_VIEW,                 untile,        none,          untile,        untile,        none )
OP( mix,            2, 1, TS_TILED,                mix,           mix,           mix,           mix,           none )

OP( gather,         2, 1, TS_INDEX | TS_EXACT | TS_PICK, gather,        gather,        gather,        gather,        none )
OP( scatter_add,    2, 1, TS_INDEX | TS_ADDS,      scatter_add,   scatter_add,   scatter_add,   scatter_add,   none )
OP( index_select,   2, 1, TS_INDEX | TS_EXACT | TS_PICK, index_select,  index_select,  index_select,  index_select,  none )
OP( index_add,      2, 1, TS_INDEX | TS_ADDS,      index_add,     index_add,     index_add,     index_add,     none )

OP( run_starts,     1, 1, TS_WINDOW | TS_ROWS | TS_NODIFF | TS_EXACT, run_starts,    none,          run_starts,    run_starts,    none )
OP( run_add,        3, 1, TS_INDEX | TS_ADDS,      run_add,       none,          run_add,       run_add,       none )

OP( host_call,     -1, 0, TS_HOST,                 host_call,     host_call,     host_call,     host_call,     none )
OP( argsort,        1, 1, TS_WINDOW | TS_ROWS | TS_NODIFF | TS_EXACT, argsort, none,     argsort,       argsort,       none )

/*     name          in out expand */
MACRO( leaky_relu,                         1, 1, leaky_relu )
MACRO( gelu,                               1, 1, gelu )
MACRO( silu,                               1, 1, silu )
MACRO( elu,                                1, 1, elu )
MACRO( softplus,                           1, 1, softplus )
MACRO( clamp,                              1, 1, clamp )
MACRO( mean,                               1, 1, mean )
MACRO( logsumexp,                          1, 1, logsumexp )
MACRO( softmax,                            1, 1, softmax )
MACRO( log_softmax,                        1, 1, log_softmax )
MACRO( linear,                            -2, 1, linear )
MACRO( conv_bias,                         -2, 1, conv_bias )
MACRO( conv_transpose,                    -2, 1, conv_transpose )
MACRO( attention,                         -3, 1, attention )
MACRO( dropout,                            1, 1, dropout )
MACRO( randn,                              0, 1, randn )
MACRO( batch_norm,                        -3, 3, batch_norm )
MACRO( group_norm,                        -1, 1, group_norm )
MACRO( layer_norm,                        -1, 1, layer_norm )
MACRO( avg_pool,                           1, 1, avg_pool )
MACRO( adaptive_avg_pool,                  1, 1, adaptive_avg_pool )
MACRO( upsample_nearest,                   1, 1, upsample_nearest )
MACRO( upsample_bilinear,                  1, 1, upsample_bilinear )
MACRO( sort,                               1, 2, sort )
MACRO( one_hot,                            1, 1, one_hot )
MACRO( embedding,                          2, 1, embedding )
MACRO( nll_loss,                          -2, 1, nll_loss )
MACRO( cross_entropy,                     -2, 1, cross_entropy )
MACRO( mse_loss,                           2, 1, mse_loss )
MACRO( l1_loss,                            2, 1, l1_loss )
MACRO( smooth_l1_loss,                     2, 1, smooth_l1_loss )
MACRO( binary_cross_entropy,              -2, 1, bce )
MACRO( binary_cross_entropy_with_logits,  -2, 1, bce_logits )
MACRO( kl_div,                             2, 1, kl_div )
MACRO( identity_loss,                      1, 1, identity_loss )

/*       name      in  expansion */
CONTROL( for_loop, -1, for_loop )
CONTROL( cond,     -1, cond )

/*     name                               attributes */
ATTRS( cast,                             "dtype:s" )
ATTRS( round_random,                     "dtype:s stream:i" )
ATTRS( full,                             "dtype:s shape:l value:f" )
ATTRS( const,                            "dtype:s shape:l" )
ATTRS( iota,                             "dtype:s shape:l dim:i" )
ATTRS( rand,                             "dtype:s shape:l stream:i" )
ATTRS( randn,                            "dtype:s shape:l stream:i" )
ATTRS( dropout,                          "p:f training:i stream:i" )

ATTRS( reshape,                          "shape:l" )
ATTRS( permute,                          "dims:l" )
ATTRS( expand,                           "shape:l" )
ATTRS( slice,                            "dim:i start:i end:i step:i" )
ATTRS( pad,                              "lo:l hi:l value:f" )
ATTRS( flip,                             "dims:l" )
ATTRS( concat,                           "dim:i" )

ATTRS( sum,                              "dims:l keepdim:i" )
ATTRS( amax,                             "dims:l keepdim:i" )
ATTRS( amin,                             "dims:l keepdim:i" )
ATTRS( prod,                             "dims:l keepdim:i" )
ATTRS( argmax,                           "dims:l keepdim:i" )
ATTRS( argmin,                           "dims:l keepdim:i" )
ATTRS( mean,                             "dims:l keepdim:i" )
ATTRS( logsumexp,                        "dims:l keepdim:i" )
ATTRS( softmax,                          "dim:i" )
ATTRS( log_softmax,                      "dim:i" )

ATTRS( matmul,                           "" )
ATTRS( linear,                           "" )
ATTRS( attention,                        "scale:f" )
ATTRS( conv,                             "stride:l padding:l dilation:l groups:i" )
ATTRS( conv_input,                       "stride:l padding:l dilation:l groups:i shape:l" )
ATTRS( conv_weight,                      "stride:l padding:l dilation:l groups:i shape:l parts:i" )
ATTRS( conv_bias,                        "stride:l padding:l dilation:l groups:i" )
ATTRS( conv_transpose,                   "stride:l padding:l dilation:l groups:i output_padding:l" )

ATTRS( max_pool,                         "kernel:l stride:l padding:l ceil_mode:i" )
ATTRS( max_pool_grad,                    "kernel:l stride:l padding:l ceil_mode:i shape:l" )
ATTRS( sum_pool,                         "kernel:l stride:l padding:l ceil_mode:i" )
ATTRS( sum_pool_grad,                    "kernel:l stride:l padding:l ceil_mode:i shape:l" )
ATTRS( avg_pool,                         "kernel:l stride:l padding:l ceil_mode:i exclude_pad:i" )
ATTRS( windows,                          "kernel:l stride:l padding:l count:l" )
ATTRS( untile,                           "shape:l" )
ATTRS( mix,                              "dim:i" )
ATTRS( adaptive_avg_pool,                "size:l" )
ATTRS( upsample_nearest,                 "size:l" )
ATTRS( upsample_bilinear,                "size:l align_corners:i" )

ATTRS( gather,                           "dim:i" )
ATTRS( scatter_add,                      "dim:i shape:l" )
ATTRS( index_select,                     "dim:i" )
ATTRS( index_add,                        "dim:i size:i" )
ATTRS( run_starts,                       "dim:i size:i" )
ATTRS( run_add,                          "dim:i" )
ATTRS( host_call,                        "id:i gradient:i types:s checks:s" )
ATTRS( argsort,                          "dim:i count:i descending:i" )
ATTRS( sort,                             "dim:i count:i descending:i" )
ATTRS( one_hot,                          "classes:i dtype:s" )
ATTRS( embedding,                        "" )

ATTRS( leaky_relu,                       "negative_slope:f" )
ATTRS( gelu,                             "approximate:s" )
ATTRS( silu,                             "" )
ATTRS( elu,                              "alpha:f" )
ATTRS( softplus,                         "beta:f threshold:f" )
ATTRS( clamp,                            "min:f max:f" )

ATTRS( batch_norm,                       "eps:f momentum:f training:i" )
ATTRS( group_norm,                       "eps:f groups:i" )
ATTRS( layer_norm,                       "eps:f ndims:i" )

ATTRS( nll_loss,                         "reduction:s ignore_index:i" )
ATTRS( cross_entropy,                    "reduction:s ignore_index:i label_smoothing:f" )
ATTRS( mse_loss,                         "reduction:s" )
ATTRS( l1_loss,                          "reduction:s" )
ATTRS( smooth_l1_loss,                   "reduction:s beta:f" )
ATTRS( binary_cross_entropy,             "reduction:s" )
ATTRS( binary_cross_entropy_with_logits, "reduction:s has_weight:i" )
ATTRS( kl_div,                           "reduction:s log_target:i" )
ATTRS( identity_loss,                    "reduction:s" )
ATTRS( for_loop,                         "count:i" )
ATTRS( cond,                             "" )
/* clang-format on */
#undef ATTRS
#undef CONTROL
