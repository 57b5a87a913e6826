/* Wrong inputs and attributes: the right status, and a message that names the op and the values.
 * Hostile ones: never a crash, whatever they are. */
#include "cases.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static const struct {
    ts_status code;
    const char *text;  /* as in cases.txt */
    const char *words; /* in the message */
} wrong[] = {
    /* pointwise */
    {TS_ERR_SHAPE, "add f32[2,3] f32[4]", "sizes 3 and 4"},
    {TS_ERR_SHAPE, "where bool[2] f32[3] f32[3]", "sizes 2 and 3"},
    {TS_ERR_TYPE, "add f32[2] i32[2]", "f32 and i32"},
    {TS_ERR_TYPE, "where bool[2] f32[2] f64[2]", "f32 and f64"},
    {TS_ERR_TYPE, "exp i32[2]", "i32"},
    {TS_ERR_TYPE, "div i64[2] i64[2]", "i64"},
    {TS_ERR_ARG, "add f32[2]", "takes 2 inputs, got 1"},
    {TS_ERR_ARG, "neg f32[2] f32[2]", "takes 1 input, got 2"},
    {TS_ERR_PARSE, "cast f32[2] dtype=f99", "f99"},
    {TS_ERR_PARSE, "cast f32[2]", "dtype"},
    /* attributes */
    {TS_ERR_ARG, "relu f32[2] alpha=1", "no attributes, got alpha"},
    {TS_ERR_ARG, "sum f32[2] keepdims=1", "keepdims; it takes dims:l keepdim:i"},
    {TS_ERR_ARG, "conv f32[1,3,5] f32[2,3,3] stride=2", "stride is a list of integers, got an int"},
    {TS_ERR_ARG, "sum f32[2] keepdim=yes", "keepdim is an integer, got a text"},
    {TS_ERR_ARG, "dropout f32[2] p=[1]", "p is a number, got a list"},
    {TS_ERR_ARG, "sum f32[2] keepdim=1 keepdim=1", "twice"},
    /* from nothing */
    {TS_ERR_SHAPE, "full shape=[2,-1]", "is -1"},
    {TS_ERR_SHAPE, "full shape=[2,-3]", "is -3"},
    {TS_ERR_ARG, "full shape=[1,1,1,1,1,1,1,1,1]", "9 items"},
    {TS_ERR_SHAPE, "full shape=[4000000000,4000000000]", "4000000000"},
    {TS_ERR_PARSE, "full shape=[2] dtype=int", "int"},
    {TS_ERR_ARG, "iota shape=[2,3] dim=2", "dim 2"},
    {TS_ERR_ARG, "iota shape=[] dim=1", "dim 1"},
    {TS_ERR_ARG, "iota shape=[2] dim=-1", "dim -1"},
    {TS_ERR_TYPE, "rand shape=[2] dtype=i32", "i32"},
    {TS_ERR_TYPE, "round_random f32[2] dtype=i32", "i32 of f32"},
    {TS_ERR_TYPE, "round_random f64[2] dtype=f16", "f16 of f64"},
    {TS_ERR_TYPE, "rand shape=[2] dtype=f16", "f16"},
    {TS_ERR_TYPE, "randn shape=[2] dtype=i32", "i32"},
    {TS_ERR_ARG, "dropout f32[2] p=1.5", "1.5"},
    {TS_ERR_ARG, "dropout f32[2] p=nan", "nan"},
    {TS_ERR_TYPE, "dropout i32[2]", "i32"},
    /* views */
    {TS_ERR_SHAPE, "reshape f32[2,3] shape=[4]", "6 elements into 4"},
    {TS_ERR_SHAPE, "reshape f32[2,3] shape=[4,-1]", "6 elements into 4"},
    {TS_ERR_SHAPE, "reshape f32[2,3] shape=[-1,-1]", "size -1 in dims 0 and 1"},
    {TS_ERR_SHAPE, "reshape f32[2,3] shape=[0,6]", "6 elements into 0"},
    {TS_ERR_ARG, "reshape f32[1] shape=[1,1,1,1,1,1,1,1,1]", "9 items"},
    {TS_ERR_SHAPE, "reshape f32[2] shape=[4294967296,4294967296,-1]", "4294967296"},
    {TS_ERR_ARG, "permute f32[2,3] dims=[0]", "2 dims"},
    {TS_ERR_ARG, "permute f32[2,3] dims=[1,1]", "0..1"},
    {TS_ERR_ARG, "permute f32[2,3] dims=[0,9223372036854775807]", "9223372036854775807"},
    {TS_ERR_SHAPE, "expand f32[2,3] shape=[3]", "rank 2 to 1"},
    {TS_ERR_SHAPE, "expand f32[2,3] shape=[4,3]", "4 from 2"},
    {TS_ERR_ARG, "expand f32[] shape=[1,1,1,1,1,1,1,1,1,1]", "10 items"},
    {TS_ERR_ARG, "expand f32[1] shape=[9223372036854775807]", "9223372036854775807"},
    {TS_ERR_ARG, "slice f32[5] start=3 end=2", "3:2:1"},
    {TS_ERR_ARG, "slice f32[5] start=0 end=6", "size 5"},
    {TS_ERR_ARG, "slice f32[5] start=-1 end=3", "-1:3"},
    {TS_ERR_ARG, "slice f32[5] start=0 end=3 step=0", "0:3:0"},
    {TS_ERR_ARG, "slice f32[5] dim=1 start=0 end=3", "dim 1"},
    {TS_ERR_ARG, "slice f32[] start=0 end=1", "rank 0"},
    {TS_ERR_ARG, "pad f32[2,3] lo=[1] hi=[1]", "2 lo"},
    {TS_ERR_ARG, "pad f32[2] lo=[-1] hi=[1]", "-1, 1"},
    {TS_ERR_ARG, "pad f32[2] lo=[9223372036854775807] hi=[9223372036854775807]",
     "9223372036854775807"},
    {TS_ERR_ARG, "flip f32[2] dims=[1]", "dim 1"},
    {TS_ERR_ARG, "concat dim=0", "got 0"},
    {TS_ERR_ARG, "concat f32[] f32[]", "rank 0"},
    {TS_ERR_SHAPE, "concat f32[2,3] f32[3,4]", "3 and 4 in dim 1"},
    {TS_ERR_SHAPE, "concat f32[2,3] f32[3]", "2 and 1"},
    {TS_ERR_TYPE, "concat f32[2] f64[2]", "f32 and f64"},
    /* reductions */
    {TS_ERR_ARG, "sum f32[2,3] dims=[2]", "dim 2"},
    {TS_ERR_ARG, "sum f32[2,3] dims=[-3]", "dim -3"},
    {TS_ERR_ARG, "amax f32[2,3] dims=[1,-1]", "dim 1 twice"},
    {TS_ERR_ARG, "prod f32[] dims=[0]", "rank 0"},
    {TS_ERR_ARG, "argmax f32[2,3] dims=[0,1]", "one dim"},
    {TS_ERR_TYPE, "mean i32[2]", "i32"},
    {TS_ERR_ARG, "mean f32[2] dims=[1]", "dim 1"},
    {TS_ERR_ARG, "logsumexp f32[2] dims=[7]", "dim 7"},
    {TS_ERR_TYPE, "logsumexp i32[2]", "i32"},
    {TS_ERR_ARG, "softmax f32[2] dim=1", "dim 1"},
    {TS_ERR_ARG, "softmax f32[] dim=1", "dim 1"},
    {TS_ERR_TYPE, "softmax i64[2]", "i64"},
    {TS_ERR_ARG, "log_softmax f32[2] dim=-2", "dim -2"},
    /* contractions */
    {TS_ERR_SHAPE, "matmul f32[3] f32[3]", "rank 1 and 1"},
    {TS_ERR_SHAPE, "matmul f32[2,3] f32[4,2]", "3 and 4"},
    {TS_ERR_SHAPE, "matmul f32[2,2,3] f32[3,3,2]", "2 and 3"},
    {TS_ERR_TYPE, "matmul f32[2,3] f16[3,2]", "f32 and f16"},
    {TS_ERR_ARG, "linear f32[3]", "at least 2 inputs, got 1"},
    {TS_ERR_ARG, "linear f32[1] f32[1] f32[1] f32[1]", "at most 3 inputs, got 4"},
    {TS_ERR_ARG, "linear", "got 0"},
    {TS_ERR_SHAPE, "linear f32[3,4] f32[5,6]", "takes 6 features, its input has 4"},
    {TS_ERR_SHAPE, "linear f32[3,4] f32[4]", "rank 2"},
    {TS_ERR_SHAPE, "linear f32[] f32[2,3]", "0"},
    {TS_ERR_SHAPE, "linear f32[3,4] f32[5,4] f32[4]", "5 elements"},
    {TS_ERR_SHAPE, "conv f32[2,3] f32[2,3]", "2 and 2"},
    {TS_ERR_SHAPE, "conv f32[1,3,5,5] f32[1,3,5]", "4 and 3"},
    {TS_ERR_SHAPE, "conv f32[1,3,5] f32[2,4,3]", "3 channels, weight takes 4"},
    {TS_ERR_SHAPE, "conv f32[1,4,5] f32[3,2,3] groups=2", "gives 3"},
    {TS_ERR_SHAPE, "conv f32[1,3,5] f32[2,3,6]", "kernel (6"},
    {TS_ERR_SHAPE, "conv f32[1,3,5] f32[2,3,3] dilation=[2147483647]", "2147483647"},
    {TS_ERR_TYPE, "conv f32[1,3,5] f64[2,3,3]", "f32 and f64"},
    {TS_ERR_ARG, "conv f32[1,3,5] f32[2,3,3] stride=[0]", "stride is 0"},
    {TS_ERR_ARG, "conv f32[1,3,5] f32[2,3,3] stride=[1,1]", "1 values for stride, got 2"},
    {TS_ERR_ARG, "conv f32[1,3,5] f32[2,3,3] padding=[-1]", "padding is -1"},
    {TS_ERR_ARG, "conv f32[1,3,5] f32[2,3,3] padding=[9223372036854775807]", "9223372036854775807"},
    {TS_ERR_ARG, "conv f32[1,3,5] f32[2,3,3] groups=0", "groups is 0"},
    {TS_ERR_ARG, "conv_input f32[1,3,5] f32[3,2,3]", "1 sizes"},
    {TS_ERR_SHAPE, "conv_input f32[1,3,5] f32[3,2,3] shape=[9]", "size 9 gives 5"},
    {TS_ERR_SHAPE, "conv_input f32[1,3,1] f32[3,2,4] stride=[3] shape=[2]", "size 2 gives 1"},
    {TS_ERR_SHAPE, "conv_input f32[1,4,5] f32[3,2,3] shape=[7]", "4 channels"},
    {TS_ERR_SHAPE, "conv_weight f32[1,3,5] f32[2,3,3] shape=[3]", "batches of 1 and 2"},
    {TS_ERR_ARG, "conv_weight f32[1,3,5] f32[1,3,3] shape=[3] parts=2", "3 rows in 2 parts"},
    {TS_ERR_ARG, "conv_weight f32[1,3,5] f32[1,3,3] shape=[3] parts=0", "3 rows in 0 parts"},
    {TS_ERR_ARG, "conv_weight f32[1,3,5] f32[1,3,3] shape=[9223372036854775807]",
     "9223372036854775807"},
    {TS_ERR_ARG, "conv_bias f32[1,3,5]", "got 1"},
    {TS_ERR_SHAPE, "conv_bias f32[1,3,5] f32[2,3,3] f32[3]", "2 elements"},
    {TS_ERR_ARG, "conv_transpose", "got 0"},
    {TS_ERR_SHAPE, "conv_transpose f32[3,4] f32[3,4]", "2 and 2"},
    {TS_ERR_ARG, "conv_transpose f32[1,3,5,5] f32[3,2,3,3] stride=[2]",
     "2 values for stride, got 1"},
    {TS_ERR_ARG, "conv_transpose f32[1,3,5] f32[3,2,3] output_padding=[-1]", "-1"},
    {TS_ERR_SHAPE, "conv_transpose f32[1,3,5] f32[3,2,3] padding=[9]", "size -11"},
    {TS_ERR_ARG, "conv_transpose f32[1,3,5] f32[3,2,3] output_padding=[1]", "output_padding 1"},
    {TS_ERR_ARG, "attention f32[2,3] f32[2,3]", "got 2"},
    {TS_ERR_SHAPE, "attention f32[2,3] f32[2,2,3] f32[2,3]", "2, 3, 2"},
    {TS_ERR_SHAPE, "attention f32[2,3] f32[2,4] f32[2,3]", "3 and 4"},
    {TS_ERR_SHAPE, "attention f32[] f32[] f32[]", "0, 0, 0"},
    /* pooling and resizing */
    {TS_ERR_SHAPE, "max_pool f32[1,2,3]", "rank 2, got 3"},
    {TS_ERR_SHAPE, "max_pool f32[1,2,3] kernel=[2,2]", "rank 4, got 3"},
    {TS_ERR_ARG, "max_pool f32[1,2,3] kernel=[-2]", "kernel -2"},
    {TS_ERR_ARG, "max_pool f32[1,2,3] kernel=[2] stride=[0]", "stride 0"},
    {TS_ERR_ARG, "max_pool f32[1,2,3] kernel=[2] padding=[2]", "padding 2"},
    {TS_ERR_ARG, "max_pool f32[1,2,3] kernel=[2] stride=[1,1]", "1 strides"},
    {TS_ERR_SHAPE, "max_pool f32[1,2,3] kernel=[4]", "kernel (4)"},
    {TS_ERR_UNSUPPORTED, "max_pool f32[1,1,9,9] kernel=[99999,99999] padding=[49999,49999]",
     "window"},
    {TS_ERR_SHAPE, "max_pool_grad f32[1,2,3] u8[1,2,4] kernel=[2] shape=[6]", "6 windows"},
    {TS_ERR_TYPE, "max_pool_grad f32[1,2,3] f32[1,2,3] kernel=[2] shape=[6]", "f32"},
    {TS_ERR_SHAPE, "max_pool_grad f32[1,2,3] u8[1,2,3] kernel=[2] shape=[9]", "size 9 has 4"},
    {TS_ERR_SHAPE, "sum_pool f32[] kernel=[2]", "got 0"},
    {TS_ERR_SHAPE, "sum_pool_grad f32[1,2,3] kernel=[2] shape=[0]", "size 0"},
    {TS_ERR_SHAPE, "avg_pool f32[1,2,3] kernel=[4]", "kernel (4)"},
    {TS_ERR_TYPE, "avg_pool i32[1,2,3] kernel=[2]", "i32"},
    {TS_ERR_SHAPE, "adaptive_avg_pool f32[1,2,3] size=[2,2]", "rank 4, got 3"},
    {TS_ERR_ARG, "adaptive_avg_pool f32[1,2,3] size=[0]", "size 0"},
    {TS_ERR_UNSUPPORTED, "adaptive_avg_pool f32[1,1,9999] size=[99999]", "9999 to 99999"},
    {TS_ERR_ARG, "upsample_nearest f32[1,2,3] size=[-1]", "size -1"},
    {TS_ERR_ARG, "upsample_nearest f32[1,2,3] size=[9223372036854775807]", "9223372036854775807"},
    {TS_ERR_SHAPE, "upsample_bilinear f32[1,2,3]", "0 dims"},
    {TS_ERR_TYPE, "upsample_bilinear i32[1,2,3] size=[6]", "i32"},
    /* indexing */
    {TS_ERR_TYPE, "gather f32[3] f32[3]", "f32"},
    {TS_ERR_TYPE, "gather f32[3] bool[3]", "bool"},
    {TS_ERR_SHAPE, "gather f32[3] i64[3,1]", "rank 1, got 2"},
    {TS_ERR_SHAPE, "gather f32[3,4] i64[4,4] dim=1", "size 4 in dim 0, the tensor 3"},
    {TS_ERR_ARG, "gather f32[3] i64[3] dim=1", "dim 1"},
    {TS_ERR_ARG, "gather f32[] i64[]", "rank 0"},
    {TS_ERR_SHAPE, "scatter_add i64[3] f32[4] shape=[5]", "same shape"},
    {TS_ERR_ARG, "scatter_add i64[3] f32[3]", "rank 1"},
    {TS_ERR_SHAPE, "scatter_add i64[3,4] f32[3,4] dim=1 shape=[2,9]", "size 2 from 3"},
    {TS_ERR_TYPE, "index_select f32[3] f32[3]", "f32"},
    {TS_ERR_ARG, "index_select f32[3] i64[3] dim=1", "dim 1"},
    {TS_ERR_SHAPE, "index_select f32[1,1,1,1,1,1,1,1] i64[1,1]", "rank 9"},
    {TS_ERR_ARG, "index_select f32[] i64[1]", "rank 0"},
    {TS_ERR_ARG, "index_add i64[3] f32[3]", "size -1"},
    {TS_ERR_SHAPE, "index_add i64[3] f32[4] size=2", "3, source size 4"},
    {TS_ERR_SHAPE, "index_add i64[3,4] f32[4] size=2", "rank 2 and a source of rank 1"},
    {TS_ERR_ARG, "run_starts i64[3]", "size 0"},
    {TS_ERR_TYPE, "run_starts f32[3] size=4", "integer index"},
    {TS_ERR_TYPE, "run_add i32[3] f32[4] i64[4]", "in i64"},
    {TS_ERR_SHAPE, "run_add i64[1] f32[4] i64[4]", "broadcast to its source"},
    {TS_ERR_SHAPE, "run_add i64[3] f32[4,2] i64[4,1]", "broadcast to its source"},
    {TS_ERR_SHAPE, "run_add i64[3,1] f32[4,2] i64[4,3]", "broadcast to its source"},
    {TS_ERR_SHAPE, "index_add i64[] f32[1,1,1,1,1,1,1,1] size=2", "rank 8"},
    {TS_ERR_ARG, "recur f32[1,1,4] f32[4,1] f32[4] f32[1,1] cell=lstm", "5 operands"},
    {TS_ERR_ARG, "recur f32[1,1,4] f32[4,1] f32[4] f32[1,1] cell=none", "cell 'none'"},
    {TS_ERR_SHAPE, "recur f32[1,4] f32[4,1] f32[4] f32[1,1] cell=tanh", "steps"},
    {TS_ERR_SHAPE, "recur f32[1,1,3] f32[3,1] f32[3] f32[1] cell=gru", "first state"},
    {TS_ERR_SHAPE, "recur f32[1,1,3] f32[3,2] f32[3] f32[1,1] cell=gru", "operand 1"},
    {TS_ERR_SHAPE, "recur_grad f32[1,1,3] f32[3,3] f32[1,1,4] cell=relu", "operand 2"},
    {TS_ERR_SHAPE, "scatter_amax i64[3] f32[4] f32[5]", "same shape"},
    {TS_ERR_SHAPE, "scatter_amin i64[3,4] f32[3,4] f32[5,5]", "size 4 into size 5"},
    {TS_ERR_TYPE, "scatter_amin i64[3] f32[3] i32[5]", "f32 into i32"},
    {TS_ERR_ARG, "row_scatter i64[3] f32[3] f32[5] how=none", "how='none'"},
    {TS_ERR_ARG, "scan f32[3] how=none", "how='none'"},
    {TS_ERR_TYPE, "scan bool[3] how=add", "scan of bool"},
    {TS_ERR_ARG, "scan_places f32[3] how=add", "how='add'"},
    {TS_ERR_TYPE, "row_scatter i64[3] f16[3] f16[5] how=add", "halves"},
    {TS_ERR_SHAPE, "run_amax i64[4] f32[6] i64[6] f32[4]", "another type"},
    {TS_ERR_TYPE, "one_hot f32[3] classes=2", "f32"},
    {TS_ERR_ARG, "one_hot i64[3]", "0 classes"},
    {TS_ERR_ARG, "one_hot i64[1,1,1,1,1,1,1,1] classes=2", "rank 8"},
    {TS_ERR_SHAPE, "embedding i64[3] f32[3]", "got 1"},
    {TS_ERR_TYPE, "embedding f32[3] f32[3,4]", "f32"},
    /* activations */
    {TS_ERR_TYPE, "leaky_relu i32[2]", "i32"},
    {TS_ERR_TYPE, "gelu i32[2]", "i32"},
    {TS_ERR_ARG, "gelu f32[2] approximate=sin", "'sin'"},
    {TS_ERR_TYPE, "silu u8[2]", "u8"},
    {TS_ERR_TYPE, "elu i32[2]", "i32"},
    {TS_ERR_TYPE, "softplus bool[2]", "bool"},
    /* norms */
    {TS_ERR_ARG, "batch_norm f32[2,3] f32[3]", "got 2"},
    {TS_ERR_SHAPE, "batch_norm f32[3] f32[3] f32[3]", "got 1"},
    {TS_ERR_SHAPE, "batch_norm f32[2,3] f32[3] f32[4]", "3 elements"},
    {TS_ERR_SHAPE, "batch_norm f32[1,3] f32[3] f32[3]", "more than one value"},
    {TS_ERR_TYPE, "batch_norm i32[2,3] f32[3] f32[3]", "i32"},
    {TS_ERR_ARG, "group_norm", "got 0"},
    {TS_ERR_SHAPE, "group_norm f32[2,6,3] groups=4", "6 channels into 4"},
    {TS_ERR_SHAPE, "group_norm f32[2,6,3] groups=0", "into 0"},
    {TS_ERR_SHAPE, "group_norm f32[6]", "groups"},
    {TS_ERR_SHAPE, "group_norm f32[2,6,3] f32[3] groups=2", "6 elements"},
    {TS_ERR_SHAPE, "layer_norm f32[2,3] ndims=3", "3 dims"},
    {TS_ERR_SHAPE, "layer_norm f32[2,3] ndims=4294967297", "4294967297"},
    {TS_ERR_SHAPE, "layer_norm f32[]", "1 dims"},
    {TS_ERR_SHAPE, "layer_norm f32[2,3] f32[2,3]", "last 1 dims"},
    {TS_ERR_TYPE, "layer_norm i32[2,3]", "i32"},
    /* losses */
    {TS_ERR_ARG, "nll_loss f32[2,3]", "got 1"},
    {TS_ERR_ARG, "nll_loss f32[2,3] i64[2] reduction=average", "'average'"},
    {TS_ERR_SHAPE, "nll_loss f32[2,3] i64[3]", "target"},
    {TS_ERR_SHAPE, "nll_loss f32[2,3] i64[2] f32[2]", "3 elements"},
    {TS_ERR_SHAPE, "cross_entropy f32[2,3] f32[2,3]", "target"},
    {TS_ERR_SHAPE, "cross_entropy f32[] i64[]", "rank 1"},
    {TS_ERR_TYPE, "cross_entropy i64[2,3] i64[2]", "i64"},
    {TS_ERR_SHAPE, "mse_loss f32[2,3] f32[2]", "same shape"},
    {TS_ERR_TYPE, "l1_loss i32[2] i32[2]", "i32"},
    {TS_ERR_ARG, "smooth_l1_loss f32[2] f32[2] beta=-1", "-1"},
    {TS_ERR_ARG, "binary_cross_entropy f32[2]", "got 1"},
    {TS_ERR_SHAPE, "binary_cross_entropy f32[2] f32[2] f32[3,2]", "input 2"},
    {TS_ERR_ARG, "binary_cross_entropy_with_logits f32[2] f32[2] has_weight=1", "got 2"},
    {TS_ERR_SHAPE, "kl_div f32[2,3] f32[3] reduction=batchmean", "same shape"},
    {TS_ERR_SHAPE, "kl_div f32[] f32[] reduction=batchmean", "rank 0"},
    {TS_ERR_ARG, "identity_loss f32[2] reduction=max", "'max'"},
};

static void mistakes_are_explained(void **state)
{
    ts_arena *a = ts_arena_new();
    int bad = 0;

    (void)state;
    for (int i = 0; i < TS_COUNT(wrong); i++) {
        op_case c;
        ts_graph *g;
        ts_status s;
        const char *text;
        assert_int_equal(case_read(a, wrong[i].text, i, &c), TS_OK);
        s = case_build(&c, &g);
        text = s ? ts_error_text() : "no error";
        if (s != wrong[i].code || !strstr(text, wrong[i].words) || !strstr(text, c.op->name)) {
            print_error("%s\n  wants %s with '%s', got %s", wrong[i].text,
                        ts_status_name(wrong[i].code), wrong[i].words, text);
            bad++;
        }
        ts_graph_free(g);
    }
    ts_arena_free(a);
    assert_int_equal(bad, 0);
}

/* --- hostile: every case with each attribute and input made nonsense in turn --- */

static const int64_t nasty[] = {-1,        0,        3, 300, -4096, INT32_MAX, (int64_t)1 << 40,
                                INT64_MAX, INT64_MIN};

/* Builds it and everything behind it; only has to come back, and not with "our bug". */
static int try(const op_case *c)
{
    ts_arena *a = ts_arena_new();
    const ts_graph *out;
    ts_graph *g;
    ts_status s = case_build(c, &g);
    int bad = 0;

    if (!s)
        s = case_grad(a, g, &out);
    if (s == TS_ERR_INTERNAL || (s && !ts_last_error()->message[0])) {
        print_error("%s\n%s", c->text, ts_error_text());
        bad = 1;
    }
    ts_graph_free(g);
    ts_arena_free(a);
    return bad;
}

static int try_attrs(const op_case *base)
{
    int64_t many[20];
    int bad = 0;

    for (int i = 0; i < base->nattr; i++) {
        for (int k = 0; k < TS_COUNT(nasty); k++) {
            op_case c = *base;
            ts_attr *x = &c.attr[i];
            for (int m = 0; m < TS_COUNT(many); m++)
                many[m] = x->kind == 'l' && m < x->n ? x->l[m] : 1;
            x->i = nasty[k];
            x->f = (double)nasty[k];
            x->s = x->kind == 's' ? "nonsense" : NULL;
            if (x->kind == 'l') {
                many[k % (x->n ? x->n : 1)] = nasty[k];
                x->l = many;
            }
            bad += try(&c);
            if (x->kind == 'l') {
                x->n = (int[]){0, 1, 2, 7, 9, 20}[k % 6];
                bad += try(&c);
            }
            x->kind = x->kind == 'i' ? 'f' : 'i';
            bad += try(&c);
        }
        op_case without = *base;
        without.attr[i] = without.attr[--without.nattr];
        bad += try(&without);
    }
    return bad;
}

static int try_inputs(const op_case *base)
{
    int bad = 0;

    for (int i = 0; i < base->nin; i++) {
        op_case c = *base;
        c.in[i].rank = 0;
        bad += try(&c);
        c = *base;
        c.in[i].rank = TS_MAX_RANK;
        for (int d = base->in[i].rank; d < TS_MAX_RANK; d++)
            c.in[i].dim[d] = 1;
        bad += try(&c);
        for (int d = 0; d < base->in[i].rank; d++) {
            c = *base;
            c.in[i].dim[d] += 1;
            bad += try(&c);
            c.in[i].dim[d] = (int64_t)1 << 40;
            bad += try(&c);
        }
        for (ts_dtype t = TS_F32; t <= TS_BOOL; t++) {
            c = *base;
            c.in[i].dtype = t;
            bad += try(&c);
        }
    }
    for (int n = 0; n < CASE_INPUTS; n++) {
        op_case c = *base;
        for (int i = base->nin; i < n; i++)
            c.in[i] = base->nin ? base->in[0] : ts_type_scalar(TS_F32);
        c.nin = n;
        bad += try(&c);
    }
    return bad;
}

static void nonsense_is_survived(void **state)
{
    ts_arena *a = ts_arena_new();
    op_case *cases;
    int n, bad = 0;

    (void)state;
    assert_int_equal(cases_load(a, &cases, &n), TS_OK);
    for (int i = 0; i < n; i++)
        if (strcmp(cases[i].op->name, "const")) /* its data is the test's own */
            bad += try_attrs(&cases[i]) + try_inputs(&cases[i]);
    ts_arena_free(a);
    assert_int_equal(bad, 0);
}

static ts_value *apply(ts_graph **g, const char *op)
{
    ts_value *x;

    *g = ts_graph_new("g");
    x = ts_input(*g, "x", TS_F32, 2, 3);
    return ts_apply(*g, op, 1, &x, 0, NULL);
}

/* What has no gradient says so when one is needed. */
static void a_missing_gradient_is_named(void **state)
{
    static const char *const lines[] = {
        "windows f32[1,1,4,4] kernel=[2,2] stride=[2,2] padding=[0,0] count=[2,2]",
        "windows has no gradient", "conv_weight f32[1,3,6] f32[1,3,4] shape=[3] parts=2",
        "in parts has no gradient"};

    (void)state;
    for (int i = 0; i < TS_COUNT(lines); i += 2) {
        ts_arena *a = ts_arena_new();
        const ts_graph *out;
        ts_graph *g;
        op_case c;
        assert_int_equal(case_read(a, lines[i], 1, &c), TS_OK);
        assert_int_equal(case_build(&c, &g), TS_OK);
        assert_int_equal(case_grad(a, g, &out), TS_ERR_GRAD);
        assert_non_null(strstr(ts_error_text(), lines[i + 1]));
        ts_graph_free(g);
        ts_arena_free(a);
    }
}

static void stack_says_what_is_wrong(void **state)
{
    ts_graph *g = ts_graph_new("g");
    ts_value *x = ts_input(g, "x", TS_F32, 2, 3);

    (void)state;
    assert_null(ts_stack(1, &x, 4));
    assert_int_equal(ts_graph_check(g), TS_ERR_ARG);
    assert_non_null(strstr(ts_error_text(), "stack along dim 4"));
    ts_graph_free(g);
}

static void apply_knows_what_it_cannot_make(void **state)
{
    ts_graph *g;

    (void)state;
    assert_null(apply(&g, "no_such_op"));
    assert_int_equal(ts_graph_check(g), TS_ERR_UNSUPPORTED);
    assert_non_null(strstr(ts_error_text(), "no_such_op"));
    ts_graph_free(g);
    assert_null(apply(&g, "const"));
    assert_int_equal(ts_graph_check(g), TS_ERR_ARG);
    ts_graph_free(g);
}

static void attributes_are_counted(void **state)
{
    ts_graph *g = ts_graph_new("g");
    ts_value *x = ts_input(g, "x", TS_F32, 2, 3);
    ts_attr bad[] = {ts_attr_l("dims", -1, (int64_t[]){0}), ts_attr_l("dims", 2, NULL),
                     ts_attr_s("dtype", NULL)};

    (void)state;
    for (int i = 0; i < TS_COUNT(bad); i++) {
        assert_null(ts_node_make(g, i < 2 ? TS_OP(sum) : TS_OP(cast), 1, &x, 1, &bad[i]));
        assert_int_equal(ts_graph_check(g), TS_ERR_ARG);
        g->status = TS_OK;
    }
    ts_graph_free(g);
}

/* Rules keep attributes in arrays of TS_MAX_ATTR + 1, and name them where they read them. */
static void declarations_are_well_formed(void **state)
{
    const ts_op *op;

    (void)state;
    for (int i = 0; (op = ts_op_at(i)); i++) {
        int n = 0;
        for (const char *p = op->attrs; *p; n++) {
            size_t len = strcspn(p, ":");
            assert_true(len > 0 && p[len] && strchr("ifsl", p[len + 1]));
            p += len + 2;
            assert_true(!*p || *p == ' ');
            p += *p == ' ';
        }
        assert_true(n <= TS_MAX_ATTR);
    }
}

static void inputs_must_be_there(void **state)
{
    ts_graph *g = ts_graph_new("g"), *other = ts_graph_new("other");
    ts_value *in[] = {ts_input(g, "x", TS_F32, 2), NULL};

    (void)state;
    assert_null(ts_node_make(g, TS_OP(add), 2, in, 0, NULL));
    assert_int_equal(ts_graph_check(g), TS_ERR_ARG);
    assert_non_null(strstr(ts_error_text(), "input 1 of add"));
    ts_graph_free(g);
    g = ts_graph_new("g");
    in[0] = ts_input(g, "x", TS_F32, 2);
    in[1] = ts_input(other, "y", TS_F32, 2);
    assert_null(ts_node_make(g, TS_OP(add), 2, in, 0, NULL));
    assert_int_equal(ts_graph_check(g), TS_ERR_ARG);
    assert_non_null(strstr(ts_error_text(), "another graph"));
    ts_graph_free(g);
    ts_graph_free(other);
}

static void products_of_vectors(void **state)
{
    ts_graph *g = ts_graph_new("g");
    ts_value *v = ts_input(g, "v", TS_F32, 3), *m = ts_input(g, "m", TS_F32, 2, 3);
    ts_value *b = ts_input(g, "b", TS_F32, 5, 3, 4);

    (void)state;
    assert_int_equal(ts_rank(ts_matmul(v, v)), 0);
    assert_int_equal(ts_rank(ts_matmul(m, v)), 1);
    assert_int_equal(ts_dim(ts_matmul(m, v), 0), 2);
    assert_int_equal(ts_rank(ts_matmul(v, b)), 2);
    assert_int_equal(ts_dim(ts_matmul(v, b), 1), 4);
    ts_graph_free(g);
}

static void concat_takes_many(void **state)
{
    ts_graph *g = ts_graph_new("g");
    ts_value *x[200], *y;

    (void)state;
    for (int i = 0; i < TS_COUNT(x); i++)
        x[i] = ts_full(g, TS_I32, i, 1);
    y = ts_concat(TS_COUNT(x), x, 0);
    assert_int_equal(ts_graph_check(g), TS_OK);
    assert_int_equal(ts_dim(y, 0), 200);
    ts_ref *r;
    assert_int_equal(ts_ref_new(g, &r), TS_OK);
    assert_int_equal(ts_ref_run(r, 0, &(ts_eval_ctx){0}), TS_OK);
    for (int i = 0; i < TS_COUNT(x); i++)
        assert_int_equal(((int32_t *)ts_ref_tensor(r, y)->data)[i], i);
    ts_ref_free(r);
    ts_graph_free(g);
}

/* As PyTorch: integers become f32 where only floats make sense; halves stay below 1. */
static void builders_choose_dtypes(void **state)
{
    ts_graph *g = ts_graph_new("g");
    ts_value *i = ts_input(g, "i", TS_I32, 3), *h = ts_rand(g, TS_F16, 4999), *b;
    ts_ref *r;

    (void)state;
    assert_int_equal(ts_dtype_of(ts_exp(i)), TS_F32);
    assert_int_equal(ts_dtype_of(ts_div(i, i)), TS_F32);
    assert_int_equal(ts_dtype_of(ts_mul_scalar(i, 0.5)), TS_F32);
    assert_int_equal(ts_dtype_of(ts_mul_scalar(i, 2)), TS_I32);
    assert_int_equal(ts_dtype_of(ts_add(i, ts_scalar(g, TS_F16, 1))), TS_F16);
    b = ts_rand(g, TS_BF16, 4999);
    assert_int_equal(ts_graph_check(g), TS_OK);
    assert_int_equal(ts_ref_new(g, &r), TS_OK);
    assert_int_equal(ts_ref_run(r, 0, &(ts_eval_ctx){.seed = 1}), TS_OK);
    for (int k = 0; k < 4999; k++) {
        assert_true(ts_dtype_get(TS_F16, ts_ref_tensor(r, h)->data, k) < 1);
        assert_true(ts_dtype_get(TS_BF16, ts_ref_tensor(r, b)->data, k) < 1);
    }
    ts_ref_free(r);
    ts_graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mistakes_are_explained),
        cmocka_unit_test(nonsense_is_survived),
        cmocka_unit_test(a_missing_gradient_is_named),
        cmocka_unit_test(stack_says_what_is_wrong),
        cmocka_unit_test(apply_knows_what_it_cannot_make),
        cmocka_unit_test(attributes_are_counted),
        cmocka_unit_test(declarations_are_well_formed),
        cmocka_unit_test(inputs_must_be_there),
        cmocka_unit_test(products_of_vectors),
        cmocka_unit_test(concat_takes_many),
        cmocka_unit_test(builders_choose_dtypes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
