/* build.c - the C builder: errors stick, NULL goes through, messages name the op and the line. */
#include "op/op.h"
#include "support.h"

static ts_graph *g;
static ts_value *x, *i;

static int setup(void **state)
{
    (void)state;
    g = ts_graph_new("net");
    x = ts_input(g, "x", TS_F32, 2, 3);
    i = ts_input(g, "i", TS_I64, 2);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    ts_here(NULL, 0);
    ts_graph_free(g);
    return 0;
}

static void the_first_error_sticks(void **state)
{
    int nodes;

    (void)state;
    ts_here("model.c", 41);
    ts_scope_begin(g, "encoder");
    ts_scope_begin(g, "fc1");
    assert_null(ts_matmul(x, x));
    ts_scope_end(g);
    ts_scope_end(g);
    nodes = g->nnodes;
    ts_here("model.c", 99);
    assert_null(ts_relu(x));
    assert_null(ts_input(g, "y", TS_F32, 0));
    assert_null(ts_linear(x, "fc", 4));
    ts_output(x, "x");
    ts_loss(x);
    assert_int_equal(g->nnodes, nodes);
    assert_int_equal(g->noutputs, 0);
    assert_null(g->loss);
    ts_fail(TS_ERR_FILE, "something else in between");
    assert_fails(ts_graph_check(g), TS_ERR_SHAPE, "matmul needs equal inner sizes, got 3 and 2");
    assert_string_equal(ts_error_text(),
                        "shape error: matmul needs equal inner sizes, got 3 and 2\n"
                        "  at     encoder.fc1 (matmul), model.c:41\n"
                        "  while  inferring shapes\n");
    assert_int_equal(ts_graph_verify(g), TS_ERR_SHAPE);
}

/* Whatever is called with what a failed call returned. */
static void null_goes_through(void **state)
{
    ts_value *out[4], *none[] = {NULL, NULL};

    (void)state;
    assert_null(ts_matmul(x, x));
    assert_null(ts_relu(NULL));
    assert_null(ts_add(NULL, NULL));
    assert_null(ts_add(x, NULL));
    assert_null(ts_add(NULL, x));
    assert_null(ts_div(NULL, x));
    assert_null(ts_add_scalar(NULL, 1));
    assert_null(ts_where(NULL, x, x));
    assert_null(ts_cast(NULL, TS_F16));
    assert_null(ts_clamp(NULL, 0, 1));
    assert_null(ts_sum(NULL, 0, NULL, false));
    assert_null(ts_argmax(NULL, 0, false));
    assert_null(ts_reshape(NULL, 2));
    assert_null(ts_permute(NULL, 0));
    assert_null(ts_expand(NULL, 2));
    assert_null(ts_flatten(NULL, 0));
    assert_null(ts_transpose(NULL, 0, 1));
    assert_null(ts_slice(NULL, 0, 0, 1, 1));
    assert_null(ts_concat(2, none, 0));
    assert_null(ts_concat(0, NULL, 0));
    assert_non_null(strstr(ts_last_error()->message, "ts_concat needs at least one tensor"));
    assert_null(ts_concat(2, (ts_value *[]){x, NULL}, 0));
    assert_null(ts_stack(2, none, 0));
    assert_null(ts_stack(2, (ts_value *[]){x, NULL}, 0));
    assert_int_equal(ts_chunk(NULL, 2, 0, out), 0);
    assert_null(ts_pad(NULL, 1, (int64_t[]){1}, (int64_t[]){1}, 0));
    assert_null(ts_matmul(NULL, x));
    assert_null(ts_matmul(x, ts_cast(x, TS_F64)));
    assert_null(ts_gather(NULL, 0, i));
    assert_null(ts_embedding(NULL, x));
    assert_null(ts_one_hot(NULL, 3, TS_F32));
    assert_null(ts_softmax(NULL, 0));
    assert_null(ts_dropout(NULL, 0.5, true));
    assert_null(ts_attention(NULL, x, x, NULL));
    assert_null(ts_linear(NULL, "l", 3));
    assert_null(ts_conv2d(NULL, "c", 3, 3, 0));
    assert_null(ts_conv_transpose2d(NULL, "t", 3, 3, 0));
    assert_null(ts_max_pool2d(NULL, 2, 0));
    assert_null(ts_adaptive_avg_pool2d(NULL, 1, 1));
    assert_null(ts_upsample_bilinear2d(NULL, 2, 2, false));
    assert_null(ts_batch_norm(NULL, "b", 0));
    assert_null(ts_group_norm(NULL, "n", 2, 0));
    assert_null(ts_layer_norm(NULL, "m", 0));
    assert_null(ts_embedding_layer(NULL, "e", 3, 4));
    assert_null(ts_cross_entropy(NULL, i, 0));
    assert_null(ts_mse_loss(NULL, x, 0));
    assert_null(ts_identity_loss(NULL, TS_REDUCTION_MEAN));
    assert_null(ts_result(NULL, 0));
    assert_int_equal(ts_rank(NULL), 0);
    assert_int_equal(ts_dim(NULL, 0), 0);
    ts_assign(NULL, x);
    ts_freeze(NULL);
    ts_output(NULL, "y");
    ts_loss(NULL);
    ts_graph_free(NULL);
    assert_int_equal(ts_graph_check(g), TS_ERR_SHAPE);
}

/* Half and single, after the graph has failed: the cast inside gives NULL. */
static void mixed_types_after_a_failure(void **state)
{
    ts_value *h = ts_input(g, "h", TS_F16, 3, 4);

    (void)state;
    assert_null(ts_matmul(x, x));
    assert_null(ts_matmul(x, h));
    assert_null(ts_add(x, h));
    assert_null(ts_where(x, x, h));
}

/* --- each message --- */

static void bad_rank(void)
{
    ts_input_n(g, "y", TS_F32, 9, (int64_t[9]){1});
}

static void bad_dim(void)
{
    ts_param(g, "w", TS_F32, (ts_init){0}, 3, -1);
}

static void huge(void)
{
    ts_buffer(g, "b", TS_F32, (ts_init){0}, INT64_C(1) << 40, 1000);
}

static void no_name(void)
{
    ts_input(g, NULL, TS_F32, 1);
}

static void bad_dtype(void)
{
    ts_input(g, "y", (ts_dtype)42, 1);
}

static void same_name(void)
{
    ts_param(g, "x", TS_F32, (ts_init){0}, 3);
}

static void no_data(void)
{
    ts_const(g, TS_F32, NULL, 3);
}

static void no_op(void)
{
    ts_apply(g, "frobnicate", 1, (ts_value *[]){x}, 0, NULL);
}

static void bad_attr_kind(void)
{
    ts_apply(g, "sum", 1, (ts_value *[]){x}, 1, (ts_arg[]){ts_arg_tensor("dims", x)});
}

static void bad_attr_name(void)
{
    ts_apply(g, "sum", 1, (ts_value *[]){x}, 1, (ts_arg[]){ts_arg_int("two words", 1)});
}

static void same_attr(void)
{
    ts_apply(g, "sum", 1, (ts_value *[]){x}, 2,
             (ts_arg[]){ts_arg_int("keepdim", 1), ts_arg_int("keepdim", 1)});
}

static void input_count(void)
{
    ts_apply(g, "relu", 2, (ts_value *[]){x, x}, 0, NULL);
}

static void null_input(void)
{
    ts_apply(g, "add", 2, (ts_value *[]){x, NULL}, 0, NULL);
}

static void another_graph(void)
{
    ts_graph *h = ts_graph_new("h");

    ts_add(x, ts_input(h, "x", TS_F32, 2, 3));
    ts_graph_free(h);
}

static void shapes(void)
{
    ts_add(x, ts_full(g, TS_F32, 0, 4));
}

static void transpose(void)
{
    ts_transpose(x, 0, 2);
}

static void flatten(void)
{
    ts_flatten(x, 2);
}

static void stack(void)
{
    ts_stack(2, (ts_value *[]){x, x}, 3);
}

static void chunk(void)
{
    ts_value *out[2];

    assert_int_equal(ts_chunk(x, 2, 5, out), 0);
}

static void cast(void)
{
    ts_cast(x, (ts_dtype)42);
}

static void reshape(void)
{
    ts_reshape(x, 4, -1);
}

static void two_losses(void)
{
    ts_loss(ts_mean(x, 0, NULL, false));
    ts_loss(ts_mean(x, 0, NULL, false));
}

static void output_name(void)
{
    ts_output(x, NULL);
}

static void assign_input(void)
{
    ts_assign(x, x);
}

static void assign_twice(void)
{
    ts_value *b = ts_buffer(g, "b", TS_F32, (ts_init){0}, 2, 3);

    ts_assign(b, x);
    ts_assign(b, x);
}

static void linear_of_scalar(void)
{
    ts_linear(ts_scalar(g, TS_F32, 1), "fc", 10);
}

static void conv_rank(void)
{
    ts_conv2d(x, "conv", 8, 3, 0);
}

static void conv_spatial(void)
{
    ts_conv_layer(x, "conv", 9, 8, 3, &(ts_conv_options){0});
}

static void conv_groups(void)
{
    ts_conv2d(ts_full(g, TS_F32, 0, 1, 4, 8, 8), "conv", 8, 3, .groups = 3);
}

static void pool_spatial(void)
{
    ts_max_pool(x, 4, 2, &(ts_pool_options){0});
}

static void loss_name(void)
{
    ts_loss_o("no_loss", x, x, &(ts_loss_options){0});
}

static void loss_shapes(void)
{
    ts_mse_loss(x, i, 0);
}

static void no_result(void)
{
    ts_result(ts_relu(x), 1);
}

static void result_of_an_input(void)
{
    ts_result(x, 0);
}

static void null_dims(void)
{
    ts_input_n(g, "y", TS_F32, 2, NULL);
}

static void null_list(void)
{
    ts_sum(x, 2, NULL, false);
}

static void null_shape(void)
{
    ts_reshape_n(x, 2, NULL);
}

static void null_op(void)
{
    ts_apply(g, NULL, 1, &x, 0, NULL);
}

static void null_inputs(void)
{
    ts_apply(g, "relu", 1, NULL, 0, NULL);
}

static void negative_inputs(void)
{
    ts_apply(g, "relu", -1, &x, 0, NULL);
}

static void bad_init(void)
{
    ts_param(g, "w", TS_F32, ((ts_init){(ts_init_kind)9, 0, 0}), 3);
}

static void layer_name(void)
{
    ts_linear(x, NULL, 4);
}

static void scope_name(void)
{
    ts_scope_begin(g, NULL);
}

static void block_name(void)
{
    ts_block_begin(g, NULL);
}

static void bad_reduction(void)
{
    ts_cross_entropy(x, i, .reduction = (ts_reduction)7);
}

static void null_loss_name(void)
{
    ts_loss_o(NULL, x, x, NULL);
}

static void chunk_to_nowhere(void)
{
    ts_chunk(x, 2, 0, NULL);
}

static void label_shapes(void)
{
    ts_cross_entropy(x, x);
}

static const struct {
    void (*make)(void);
    ts_status code;
    const char *message, *where;
} mistakes[] = {
    {bad_rank, TS_ERR_SHAPE, "input y has rank 9; at most 8", "net.c:7"},
    {bad_dim, TS_ERR_SHAPE, "parameter w: dim 1 is -1, which no tensor can have", "net.c:7"},
    {huge, TS_ERR_SHAPE, "buffer b: dim 1 is 1000, which no tensor can have", "net.c:7"},
    {no_name, TS_ERR_ARG, "every input needs a name", "net.c:7"},
    {bad_dtype, TS_ERR_TYPE, "input y: 42 is not a dtype", "net.c:7"},
    {same_name, TS_ERR_ARG, "the name 'x' is already taken", "net.c:7"},
    {no_data, TS_ERR_ARG, "a constant needs data", "net.c:7"},
    {no_op, TS_ERR_UNSUPPORTED, "there is no op 'frobnicate'", "net.c:7"},
    {bad_attr_kind, TS_ERR_ARG,
     "sum: attribute 1, dims needs a name and must be an integer, a number, text or a list of "
     "integers",
     "net.c:7"},
    {bad_attr_name, TS_ERR_ARG, "sum has no attribute two words; it takes dims:l keepdim:i",
     "(sum), net.c:7"},
    {same_attr, TS_ERR_ARG, "sum: keepdim is given twice", "(sum), net.c:7"},
    {input_count, TS_ERR_ARG, "relu takes 1 input, got 2", "(relu), net.c:7"},
    {null_input, TS_ERR_ARG, "input 1 of add is NULL", "(add), net.c:7"},
    {another_graph, TS_ERR_ARG, "input 1 of add belongs to another graph", "(add), net.c:7"},
    {shapes, TS_ERR_SHAPE, "add cannot broadcast sizes 3 and 4 in dim 1", "(add), net.c:7"},
    {transpose, TS_ERR_ARG, "transpose of dims 0 and 2 in a tensor of rank 2", "net.c:7"},
    {flatten, TS_ERR_ARG, "flatten from dim 2 of a tensor of rank 2", "net.c:7"},
    {stack, TS_ERR_ARG, "stack along dim 3 of tensors of rank 2", "net.c:7"},
    {chunk, TS_ERR_ARG, "chunk into 2 along dim 5 of a tensor of rank 2", "net.c:7"},
    {cast, TS_ERR_ARG, "cast to 42, which is not a dtype", "net.c:7"},
    {reshape, TS_ERR_SHAPE, NULL, "(reshape), net.c:7"},
    {two_losses, TS_ERR_ARG, "the graph already has a loss", "net.c:7"},
    {output_name, TS_ERR_ARG, "every output needs a name", "net.c:7"},
    {assign_input, TS_ERR_ARG,
     "ts_assign needs a buffer and a value of its type, got no buffer and f32[2,3]", "net.c:7"},
    {assign_twice, TS_ERR_ARG, "b is assigned twice", "net.c:7"},
    {linear_of_scalar, TS_ERR_SHAPE, "layer fc: a scalar has no features", "net.c:7"},
    {conv_rank, TS_ERR_SHAPE,
     "layer conv: an input of rank 2 with 3 channels does not fit a 2-d convolution to 8 channels "
     "in 1 groups with a kernel of 3",
     "net.c:7"},
    {conv_spatial, TS_ERR_SHAPE,
     "layer conv: an input of rank 2 with 3 channels does not fit a 9-d convolution to 8 channels "
     "in 1 groups with a kernel of 3",
     "net.c:7"},
    {conv_groups, TS_ERR_SHAPE,
     "layer conv: an input of rank 4 with 4 channels does not fit a 2-d convolution to 8 channels "
     "in 3 groups with a kernel of 3",
     "net.c:7"},
    {pool_spatial, TS_ERR_SHAPE, "max_pool over 4 dims; 1 to 3 are possible", "net.c:7"},
    {loss_name, TS_ERR_ARG, "there is no loss 'no_loss'", "net.c:7"},
    {null_dims, TS_ERR_ARG, "input y: its 2 dims are NULL", "net.c:7"},
    {null_list, TS_ERR_ARG, "sum: the list dims of 2 items is NULL", "(sum), net.c:7"},
    {null_shape, TS_ERR_ARG, "reshape: the list shape of 2 items is NULL", "(reshape), net.c:7"},
    {null_op, TS_ERR_UNSUPPORTED, "there is no op 'NULL'", "net.c:7"},
    {null_inputs, TS_ERR_ARG, "relu: 1 inputs at NULL", "net.c:7"},
    {negative_inputs, TS_ERR_ARG, "relu: -1 inputs at an address", "net.c:7"},
    {bad_init, TS_ERR_ARG, "parameter w: there is no kind 9 of first values", "net.c:7"},
    {layer_name, TS_ERR_ARG, "every layer needs a name", "net.c:7"},
    {scope_name, TS_ERR_ARG, "every scope needs a name", "net.c:7"},
    {block_name, TS_ERR_ARG, "every block needs a name", "net.c:7"},
    {bad_reduction, TS_ERR_ARG, "there is no reduction 7", "net.c:7"},
    {null_loss_name, TS_ERR_ARG, "there is no loss 'NULL'", "net.c:7"},
    {chunk_to_nowhere, TS_ERR_ARG,
     "chunk into 2 along dim 0 of a tensor of rank 2, and no place for them", "net.c:7"},
    {label_shapes, TS_ERR_SHAPE,
     "cross_entropy: the target must be integers shaped like the input without its classes, got "
     "f32[2,3] for f32[2,3]",
     "(cross_entropy), net.c:7"},
    {no_result, TS_ERR_ARG, "there is no result 1 of relu", "net.c:7"},
    {result_of_an_input, TS_ERR_ARG, "there is no result 0 of an input or a parameter", "net.c:7"},
    {loss_shapes, TS_ERR_SHAPE,
     "mse_loss needs an input and a target of the same shape, got f32[2,3] and i64[2]",
     "(mse_loss), net.c:7"},
};

static void mistakes_are_named(void **state)
{
    for (int k = 0; k < TS_COUNT(mistakes); k++) {
        ts_here("net.c", 7);
        mistakes[k].make();
        assert_int_equal(ts_graph_check(g), mistakes[k].code);
        if (mistakes[k].message)
            assert_string_equal(ts_last_error()->message, mistakes[k].message);
        assert_string_equal(ts_last_error()->where, mistakes[k].where);
        teardown(state);
        setup(state);
    }
}

/* --- what is made --- */

static void scopes_name_layers_and_parameters(void **state)
{
    ts_value *y;

    (void)state;
    ts_scope_begin(g, "encoder");
    ts_block_begin(g, "first");
    y = ts_linear(x, "fc1", 4);
    ts_block_end(g);
    ts_scope_end(g);
    ts_scope_end(g); /* one too many does no harm */
    assert_string_equal(y->node->layer, "encoder.fc1");
    assert_string_equal(y->node->block, "first");
    assert_non_null(ts_graph_find_state(g, "encoder.fc1.weight"));
    assert_non_null(ts_graph_find_state(g, "encoder.fc1.bias"));
    assert_string_equal(ts_relu(y)->node->layer, "");
    assert_ok(ts_graph_verify(g));
}

static void types_promote(void **state)
{
    ts_value *h = ts_input(g, "h", TS_F16, 3), *b = ts_input(g, "b", TS_BOOL, 3);

    (void)state;
    assert_int_equal(ts_dtype_of(ts_add(x, h)), TS_F32);
    assert_int_equal(ts_dtype_of(ts_add(h, b)), TS_F16);
    assert_int_equal(ts_dtype_of(ts_add(h, ts_scalar(g, TS_F32, 1))), TS_F16);
    assert_int_equal(ts_dtype_of(ts_div(i, i)), TS_F32);
    assert_int_equal(ts_dtype_of(ts_eq(i, i)), TS_BOOL);
    assert_ok(ts_graph_verify(g));
}

static void shapes_are_as_in_pytorch(void **state)
{
    ts_value *out[4], *v = ts_full(g, TS_F32, 0, 3), *q = ts_full(g, TS_F32, 0, 5, 2, 3);

    (void)state;
    assert_int_equal(ts_rank(ts_matmul(v, v)), 0);
    assert_int_equal(ts_rank(ts_matmul(x, v)), 1);
    assert_int_equal(ts_rank(ts_matmul(q, ts_transpose(x, 0, 1))), 3);
    assert_int_equal(ts_dim(ts_flatten(q, 1), -1), 6);
    assert_int_equal(ts_dim(ts_flatten(q, -2), -1), 6);
    assert_int_equal(ts_rank(ts_flatten(ts_scalar(g, TS_F32, 1), 0)), 1);
    assert_int_equal(ts_dim(ts_stack(2, (ts_value *[]){x, x}, -1), 2), 2);
    assert_int_equal(ts_dim(ts_slice(q, 0, -2, INT64_MAX, 1), 0), 2);
    assert_int_equal(ts_dim(ts_slice(q, 0, -100, -1, 1), 0), ts_dim(q, 0) - 1);
    assert_int_equal(ts_chunk(q, 4, 0, out), 3);
    assert_int_equal(ts_dim(out[2], 0), 1);
    assert_int_equal(ts_dim(ts_sum(x, 0, NULL, true), 1), 1);
    assert_ok(ts_graph_verify(g));
}

static void results_of_a_node(void **state)
{
    ts_value *y = ts_max_pool2d(ts_full(g, TS_F32, 0, 1, 1, 4, 4), 2, 0);

    (void)state;
    assert_ptr_equal(ts_result(y, 0), y);
    assert_int_equal(ts_dtype_of(ts_result(y, 1)), TS_U8);
    assert_null(ts_result(y, 2));
}

static void random_nodes_have_streams(void **state)
{
    ts_value *a = ts_rand(g, TS_F32, 2), *b = ts_dropout(x, 0.5, true), *c = ts_randn(g, TS_F32, 2);

    (void)state;
    assert_int_equal(ts_attr_int(a->node, "stream", -1), 0);
    assert_int_equal(ts_attr_int(b->node, "stream", -1), 1);
    assert_int_equal(ts_attr_int(c->node, "stream", -1), 2);
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(the_first_error_sticks),
        CASE(null_goes_through),
        CASE(mixed_types_after_a_failure),
        CASE(mistakes_are_named),
        CASE(scopes_name_layers_and_parameters),
        CASE(types_promote),
        CASE(shapes_are_as_in_pytorch),
        CASE(results_of_a_node),
        CASE(random_nodes_have_streams),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
