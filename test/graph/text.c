/* text.c - the text form: every op round-trips, errors say what and where, nonsense does no harm.
 */
#include "op/op.h"
#include "support.h"
#include <math.h>

/* Values the cases below may use. */
static const char header[] = "graph t\n"
                             "input %s : f32[]\n"
                             "input %v : f32[4]\n"
                             "input %m : f32[3,4]\n"
                             "input %n : f32[4,5]\n"
                             "input %x : f32[2,4,6,6]\n"
                             "input %b : bool[3,4]\n"
                             "input %c : i64[3]\n"
                             "input %i : i64[3,4]\n"
                             "input %j : i64[2]\n"
                             "input %q : f32[2,3,4]\n"
                             "input %t : f32[2,2,1,3,3,4]\n"
                             "input %r : f32[2,6,4]\n"
                             "input %y : f32[2,8,4,4]\n"
                             "input %p : f32[2,4,3,3]\n"
                             "input %pi : u8[2,4,3,3]\n"
                             "state %w : f32[8,4,3,3] uniform(-0.1, 0.1) trained\n"
                             "state %wt : f32[4,8,3,3] normal(0.0, 1.0) trained\n"
                             "state %w8 : f32[8] full(0.0, 0.0) trained\n";

/* One or more nodes for each op that is not simply pointwise. */
static const struct {
    const char *op, *line;
} cases[] = {
    {"where", "%0 = where(%b, %m, %m)"},
    {"cast", "%0 : f16[3,4] = cast(%m) dtype=\"f16\""},
    {"round_random", "%0 : f16[3,4] = round_random(%m) dtype=\"f16\" stream=2"},
    {"full", "%0 : f32[2,3] = full() dtype=\"f32\" shape=[2,3] value=-0.5"},
    {"full", "%0 = full() value=inf"},
    {"full", "%0 = full() value=-inf"},
    {"full", "%0 = full() value=nan"},
    {"full", "%0 = full() value=1e15"},
    {"full", "%0 = full() value=-1e300"},
    {"full", "%0 = full() value=5e-324"},
    {"full", "%0 = full() value=-0.0"},
    {"full", "%0 = full() value=7 dtype=\"i64\""},
    {"const", "%0 : i32[2] = const() dtype=\"i32\" shape=[2] data=01000000ff00ff7f"},
    {"const", "%0 : f64[] = const() dtype=\"f64\" data=000000000000f03f"},
    {"iota", "%0 : i64[3] = iota() dtype=\"i64\" shape=[3] dim=0"},
    {"rand", "%0 : f32[4] = rand() shape=[4] stream=3"},
    {"reshape", "%0 : f32[2,6] = reshape(%m) shape=[2,-1]"},
    {"permute", "%0 : f32[4,3] = permute(%m) dims=[1,0]"},
    {"expand", "%0 : f32[3,4] = expand(%v) shape=[3,4]"},
    {"slice", "%0 : f32[3,2] = slice(%m) dim=1 start=0 end=4 step=2"},
    {"pad", "%0 : f32[5,4] = pad(%m) lo=[1,0] hi=[1,0] value=0.0"},
    {"flip", "%0 = flip(%m) dims=[0,-1]"},
    {"concat", "%0 : f32[6,4] = concat(%m, %m) dim=0"},
    {"sum", "%0 : f32[3] = sum(%m) dims=[1]"},
    {"sum", "%0 : f32[] = sum(%m)"},
    {"amax", "%0 : f32[3,1] = amax(%m) dims=[-1] keepdim=1"},
    {"amin", "%0 = amin(%m) dims=[0]"},
    {"prod", "%0 = prod(%m) dims=[0]"},
    {"argmax", "%0 : i64[3] = argmax(%m) dims=[1]"},
    {"argmin", "%0 = argmin(%m)"},
    {"matmul", "%0 : f32[3,5] = matmul(%m, %n)"},
    {"conv", "%0 : f32[2,8,4,4] = conv(%x, %w) stride=[1,1] groups=1"},
    {"conv_input", "%0 : f32[2,4,6,6] = conv_input(%y, %w) shape=[6,6]"},
    {"conv_weight", "%0 : f32[8,4,3,3] = conv_weight(%x, %y) shape=[3,3]"},
    {"max_pool", "%0 : f32[2,4,3,3], %1 : u8[2,4,3,3] = max_pool(%x) kernel=[2,2]"},
    {"max_pool_grad", "%0 = max_pool_grad(%p, %pi) kernel=[2,2] shape=[6,6]"},
    {"sum_pool", "%0 = sum_pool(%x) kernel=[2,2] stride=[2,2] padding=[0,0]"},
    {"sum_pool_grad", "%0 = sum_pool_grad(%p) kernel=[2,2] shape=[6,6]"},
    {"windows", "%0 = windows(%x) kernel=[4,4] stride=[2,2] padding=[1,1] count=[3,3]"},
    {"untile", "%0 : f32[1,4,5,6] = untile(%t) shape=[5,6]"},
    {"mix", "%0 : f32[3,5] = mix(%n, %m) dim=0"},
    {"gather", "%0 = gather(%m, %i) dim=1"},
    {"host_call", "%0 : f32[3,5] = host_call(%m) id=4 types=\"f32[3,5]\""},
    {"scatter_add", "%0 : f32[3,9] = scatter_add(%i, %m) dim=1 shape=[3,9]"},
    {"bitwise_not", "%0 = bitwise_not(%i)"},
    {"bitwise_and", "%0 = bitwise_and(%i, %i)"},
    {"bitwise_or", "%0 = bitwise_or(%i, %i)"},
    {"bitwise_xor", "%0 = bitwise_xor(%i, %i)"},
    {"bitwise_left_shift", "%0 = bitwise_left_shift(%i, %i)"},
    {"bitwise_right_shift", "%0 = bitwise_right_shift(%i, %i)"},
    {"argsort", "%0 = argsort(%m) dim=1 count=2 descending=1"},
    {"run_starts", "%0 : i64[4] = run_starts(%c) size=4"},
    {"run_add", "%0 = iota() shape=[4,1] dtype=\"i64\"\n%1 : f32[3,4] = run_add(%0, %m, %0)"},
    {"recur",
     "%0 : f32[4,4] = expand(%v) shape=[4,4]\n%1 = recur(%q, %0, %v, %m) cell=\"tanh\" reverse=1"},
    {"recur_grad",
     "%0 : f32[4,4] = expand(%v) shape=[4,4]\n%1, %2 : f32[3,4] = recur_grad(%q, %0, %q) "
     "cell=\"relu\""},
    {"scatter_amax", "%0 : f32[3,4] = scatter_amax(%i, %m, %m) dim=1"},
    {"scatter_amin", "%0 : f32[3,4] = scatter_amin(%i, %m, %m)"},
    {"scatter_prod", "%0 : f32[3,4] = scatter_prod(%i, %m, %m)"},
    {"scan", "%0 = scan(%m) dim=1 how=\"add\" reverse=1"},
    {"scan_places", "%0 = scan_places(%m) dim=1 how=\"max\""},
    {"row_scatter", "%0 : f32[3,4] = row_scatter(%i, %m, %m) dim=1 how=\"put\""},
    {"run_amax", "%0 = iota() shape=[4,1] dtype=\"i64\"\n%1 : f32[3,4] = run_amax(%0, %m, %0, %m)"},
    {"run_amin", "%0 = iota() shape=[4,1] dtype=\"i64\"\n%1 : f32[3,4] = run_amin(%0, %m, %0, %m)"},
    {"sort", "%0, %1 : i64[3,2] = sort(%m) dim=1 count=2 descending=1"},
    {"index_select", "%0 : f32[2,4] = index_select(%m, %j) dim=0"},
    {"index_add", "%0 : f32[7,4] = index_add(%c, %m) dim=0 size=7"},
    {"leaky_relu", "%0 = leaky_relu(%m) negative_slope=0.20000000000000001"},
    {"gelu", "%0 = gelu(%m) approximate=\"tanh\""},
    {"silu", "%0 = silu(%m)"},
    {"elu", "%0 = elu(%m) alpha=1.0"},
    {"softplus", "%0 = softplus(%m)"},
    {"clamp", "%0 = clamp(%m) min=0.0 max=6.0"},
    {"mean", "%0 : f32[] = mean(%m)"},
    {"logsumexp", "%0 : f32[3] = logsumexp(%m) dims=[1]"},
    {"softmax", "%0 = softmax(%m) dim=-1"},
    {"log_softmax", "%0 = log_softmax(%m) dim=1"},
    {"linear", "%0 : f32[4,3] = linear(%n, %lw, %lb)"},
    {"conv_bias", "%0 = conv_bias(%x, %w, %w8) padding=[1,1]"},
    {"conv_transpose", "%0 = conv_transpose(%x, %wt, %w8) stride=[2,2]"},
    {"attention", "%0 : f32[2,3,4] = attention(%q, %r, %r)"},
    {"dropout", "%0 = dropout(%m) p=0.5 training=1 stream=0"},
    {"randn", "%0 : f32[2] = randn() shape=[2] stream=1"},
    {"batch_norm", "%0, %1 : f32[4], %2 : f32[4] = batch_norm(%x, %v, %v) eps=1.0e-5"},
    {"group_norm", "%0 = group_norm(%x, %v, %v) groups=2"},
    {"layer_norm", "%0 = layer_norm(%m) ndims=1"},
    {"avg_pool", "%0 = avg_pool(%x) kernel=[3,3] padding=[1,1] exclude_pad=1"},
    {"adaptive_avg_pool", "%0 : f32[2,4,4,3] = adaptive_avg_pool(%x) size=[4,3]"},
    {"upsample_nearest", "%0 : f32[2,4,12,9] = upsample_nearest(%x) size=[12,9]"},
    {"upsample_bilinear", "%0 = upsample_bilinear(%x) size=[7,6] align_corners=1"},
    {"one_hot", "%0 : i64[3,9] = one_hot(%c) classes=9"},
    {"embedding", "%0 : f32[2,4] = embedding(%j, %m)"},
    {"nll_loss", "%0 : f32[] = nll_loss(%m, %c) reduction=\"sum\" ignore_index=-100"},
    {"cross_entropy", "%0 = cross_entropy(%m, %c, %v) label_smoothing=0.1"},
    {"mse_loss", "%0 = mse_loss(%m, %m)"},
    {"l1_loss", "%0 = l1_loss(%m, %m)"},
    {"smooth_l1_loss", "%0 = smooth_l1_loss(%m, %m) beta=0.5"},
    {"binary_cross_entropy", "%0 = binary_cross_entropy(%m, %m)"},
    {"binary_cross_entropy_with_logits", "%0 = binary_cross_entropy_with_logits(%m, %m)"},
    {"kl_div", "%0 = kl_div(%m, %m) reduction=\"batchmean\""},
    {"identity_loss", "%0 = identity_loss(%m) reduction=\"none\""},
};

static const char linear_params[] = "state %lw : f32[3,5] full(1.0, 0.0)\n"
                                    "state %lb : f32[3] full(1.0, 0.0)\n";

/* The i-th text for an op, or NULL: pointwise ops follow from their row. */
static char *case_text(ts_arena *a, const ts_op *op, int i)
{
    static const char *const args[] = {"", "%m", "%m, %v", ""};

    for (int k = 0; k < TS_COUNT(cases); k++)
        if (!strcmp(cases[k].op, op->name) && i-- == 0)
            return ts_arena_printf(a, "%s%s%s\noutput y = %%0\n", header, linear_params,
                                   cases[k].line);
    if (op->ref && op->nin < 3 && op->result != 'i' && i == 0)
        return ts_arena_printf(a, "%s%%0 = %s(%s)\noutput y = %%0\n", header, op->name,
                               args[op->nin]);
    return NULL;
}

static char *again(const char *text)
{
    ts_graph *g;
    char *out;

    if (ts_graph_parse(text, &g))
        fail_msg("%s%s", ts_error_text(), text);
    out = ts_graph_text(g);
    ts_graph_free(g);
    return out;
}

/* What is printed reads back and prints the same. Returns it. */
static char *round_trip(const char *text)
{
    char *one = again(text), *two = again(one);

    assert_string_equal(one, two);
    free(two);
    return one;
}

static void every_op_round_trips(void **state)
{
    ts_arena *a = ts_arena_new();
    const ts_op *op;

    (void)state;
    for (int i = 0; (op = ts_op_at(i)); i++) {
        const char *text = case_text(a, op, 0);
        if (!text && !(op->flags & TS_CONTROL))
            fail_msg("no case for op %s: add one to the table", op->name);
        for (int k = 0; (text = case_text(a, op, k)); k++) {
            char *printed = round_trip(text);
            assert_non_null(strstr(printed, ts_arena_printf(a, "= %s(", op->name)));
            free(printed);
        }
    }
    ts_arena_free(a);
}

/* What is printed stays as it is written, except for names of nodes' values. */
static void the_whole_grammar(void **state)
{
    static const char text[] =
        "graph \"odd name\"\n"
        "input %x : f32[2,3]\n"
        "input %\"7\" : f32[] @layout -\n"
        "input %\"a \\\"b\\\\ \\x0a%\" : f32[2,3] @layout 10\n"
        "state %0.weight : f32[8,3] @layout 01/0x8 uniform(-0.5, 0.5) trained\n"
        "state %lr : f32[] full(0.01, 0.0)\n"
        "state %noise : f32[2,3] normal(0.0, inf)\n"
        "%6 : f32[2,8] @layout 10/1x4 = linear(%x, %0.weight) @layer \"fc \\\"1\\\"\" @block "
        "\"front\" @at \"a b.c\":12\n"
        "%7 : f32[] = sum(%6)\n"
        "%8 : f32[] = full() dtype=\"f32\" value=1.0 @backward\n"
        "%9 : f32[8,3] = expand(%8) shape=[8,3] @layer \"fc\" @backward @phase 1\n"
        "%10 : f32[2,3] = add(%x, %\"a \\\"b\\\\ \\x0a%\")\n"
        "output y = %6\n"
        "output \"the loss\" = %7\n"
        "update %noise = %10 phase 0\n"
        "update %0.weight = %9 phase 1\n"
        "grad %0.weight = %9\n"
        "loss %7 output\n";
    char *back = again(text);

    (void)state;
    assert_string_equal(back, text + 0);
    free(back);
}

static void comments_names_and_spacing(void **state)
{
    char *back = again("# a comment\n\n  graph g # another\r\n"
                       "\tinput %in:f32[ 2 , 3 ]\n"
                       "%a=relu( %in )# no space needed\n"
                       "%99 = neg(%a)\n"
                       "output y=%99\n\n# the end");

    (void)state;
    assert_string_equal(back, "graph g\ninput %in : f32[2,3]\n"
                              "%1 : f32[2,3] = relu(%in)\n"
                              "%2 : f32[2,3] = neg(%1)\n"
                              "output y = %2\n");
    free(back);
}

static void shares_read_back(void **state)
{
    static const char text[] = "graph g\n"
                               "state %w : f32[5,7] full(0.0, 0.0) trained\n"
                               "state %w.momentum : f32[16] full(0.0, 0.0) moment share 4 of %w\n"
                               "state %w.share : f32[16] full(0.0, 0.0) share 4 of %w\n"
                               "%3 : f32[16] = add(%w.share, %w.momentum)\n"
                               "output y = %3\n";
    ts_graph *g;
    char *back = again(text);

    (void)state;
    assert_string_equal(back, text);
    assert_ok(ts_graph_parse(text, &g));
    assert_int_equal(g->states[1].use, TS_USE_MOMENT);
    assert_int_equal(g->states[2].use, TS_USE_SHARE);
    assert_int_equal(g->states[2].parts, 4);
    assert_ptr_equal(g->states[2].of, g->states[0].value);
    ts_graph_free(g);
    assert_int_equal(ts_graph_parse("graph g\nstate %w : f32[4] full(0.0, 0.0) share 4 %w\n", &g),
                     TS_ERR_PARSE);
    assert_int_equal(
        ts_graph_parse("graph g\nstate %w : f32[4] full(0.0, 0.0) share 4 of %v\n", &g),
        TS_ERR_PARSE);
    free(back);
}

/* A built graph, places and all: built, printed, read and printed it is the same but for ids. */
static void built_graphs_read_back(void **state)
{
    ts_graph *g = ts_graph_new("net");
    ts_value *x = ts_input(g, "x", TS_F32, 2, 1, 8, 8), *t = ts_input(g, "t", TS_I64, 2), *y;
    char *text, *back;
    ts_graph *h;

    (void)state;
    ts_here("net.c", 7);
    ts_block_begin(g, "stage 0");
    y = ts_checkpoint(ts_relu(ts_batch_norm(ts_conv2d(x, "conv", 4, 3, .padding = 1), "bn")));
    assert_ptr_equal(ts_checkpoint(x), x);
    ts_block_end(g);
    y = ts_linear(ts_flatten(ts_max_pool2d(y, 2, 0), 1), "0", 10);
    ts_output(y, "y");
    ts_loss(ts_cross_entropy(y, t, 0));
    ts_here(NULL, 0);
    assert_ok(ts_graph_check(g));
    assert_ok(ts_graph_verify(g));
    text = ts_graph_text(g);
    back = round_trip(text);
    assert_ok(ts_graph_parse(text, &h));
    assert_int_equal(h->nnodes, g->nnodes);
    for (int i = 0; i < g->nnodes; i++) {
        assert_ptr_equal(h->nodes[i]->op, g->nodes[i]->op);
        assert_string_equal(h->nodes[i]->layer, g->nodes[i]->layer);
        assert_string_equal(h->nodes[i]->block, g->nodes[i]->block);
        assert_string_equal(h->nodes[i]->file, "net.c");
        assert_int_equal(h->nodes[i]->line, 7);
        assert_int_equal(h->nodes[i]->out[0]->checkpoint, g->nodes[i]->op == TS_OP(relu));
    }
    assert_non_null(strstr(text, "\ncheckpoint %"));
    assert_false(h->inputs[0]->checkpoint); /* it is there anyway */
    assert_int_equal(h->nupdates, 2);
    free(text);
    free(back);
    ts_graph_free(g);
    ts_graph_free(h);
}

/* --- errors --- */

#define G "graph g\ninput %x : f32[2,3]\n"

static const struct {
    const char *text, *message;
} errors[] = {
    {"", "line 1: expected 'graph' and its name, got the end of the text"},
    {"\n\nnetwork g\n", "line 3: expected 'graph' and its name, got 'network'"},
    {"graph\n", "line 1: expected the graph's name, got the end of the line"},
    {"graph g h\n", "line 1: expected the end of the line, got 'h'"},
    {"graph \"g", "line 1: expected '\"' at the end of the string, got the end of the text"},
    {"graph \"\\q\"", "line 1: a string knows \\\", \\\\ and \\x with two digits only"},
    {"graph \"\\x00\"", "line 1: a string knows \\\", \\\\ and \\x with two digits only"},
    {G "inputs %y : f32[]", "line 3: expected input, state, output, update, grad, loss, checkpoint "
                            "or a node, got 'inputs'"},
    {G "\x01", "line 3: expected input, state, output, update, grad, loss, checkpoint or a node, "
               "got byte 0x01"},
    {G "}",
     "line 3: expected input, state, output, update, grad, loss, checkpoint or a node, got '}'"},
    {G "input y : f32[]", "line 3: expected '%', got 'y'"},
    {G "input %: f32[]", "line 3: expected a name after '%', got ':'"},
    {G "input %x : f32[]", "line 3: %x is already defined"},
    {G "input %y f32[]", "line 3: expected ':', got 'f32'"},
    {G "input %y : float[]", "line 3: expected a dtype, got 'float'"},
    {G "input %y : f32", "line 3: expected '[', got the end of the text"},
    {G "input %y : f32[2", "line 3: expected ',', got the end of the text"},
    {G "input %y : f32[2,]", "line 3: expected a size, got ']'"},
    {G "input %y : f32[-1]", "line 3: -1 is out of range for a size"},
    {G "input %y : f32[99999999999999999999]",
     "line 3: 99999999999999999999 is out of range for a size"},
    {G "input %y : f32[10000000,10000000,10]",
     "line 3: f32[10000000,10000000,10] is larger than any tensor can be"},
    {G "input %y : f32[1,1,1,1,1,1,1,1,1]", "line 3: a tensor has at most 8 dims"},
    {G "input %y : f32[2] @lanes", "line 3: expected 'layout' after '@', got 'lanes'"},
    {G "input %y : f32[2,2] @layout 00",
     "line 3: expected a layout naming each of dims 0 to 1 once, got '0'"},
    {G "input %y : f32[2,2] @layout 01/2x8", "line 3: 2 is out of range for the lanes' dim"},
    {G "input %y : f32[2,2] @layout 01/0", "line 3: expected 'x' and the number of lanes, got the "
                                           "end of the text"},
    {G "input %y : f32[2,2] @layout 01/0x1", "line 3: 1 is out of range for the number of lanes"},
    {G "state %s : f32[]", "line 3: expected full, uniform or normal, got the end of the text"},
    {G "state %s : f32[] full(x)", "line 3: expected a number, got 'x'"},
    {G "state %s : f32[] full(1", "line 3: expected ')', got the end of the text"},
    {G "state %s : f32[] full(1) training", "line 3: expected the end of the line, got 'training'"},
    {G "%y : f32[2,3]", "line 3: expected '=', got the end of the text"},
    {G "%y = relux(%x)", "line 3: there is no op 'relux'"},
    {G "%y = relu %x", "line 3: expected '(', got '%'"},
    {G "%y = relu(%z)", "line 3: %z is not defined above"},
    {G "%y = relu(%y)", "line 3: %y is not defined above"},
    {G "%y = relu(%x", "line 3: expected ',', got the end of the text"},
    {G "%x = relu(%x)", "line 3: %x is already defined"},
    {G "%y = relu(%x, %x)", "line 3: relu takes 1 input, got 2"},
    {G "%y = add(%x)", "line 3: add takes 2 inputs, got 1"},
    {G "%y = concat() dim=0", "line 3: concat takes at least 1 input, got 0"},
    {G "%y, %z = relu(%x)", "line 3: relu has 1 result, got 2 names"},
    {G "%y : f32[3,2] = relu(%x)", "line 3: %y is said to be f32[3,2], but relu makes it f32[2,3]"},
    {G "%y : f16[2,3] = relu(%x)", "line 3: %y is said to be f16[2,3], but relu makes it f32[2,3]"},
    {G "%y = matmul(%x, %x)", "line 3: matmul needs equal inner sizes, got 3 and 2"},
    {G "%y = reshape(%x) shape=3", "line 3: reshape: shape is a list of integers, got an integer"},
    {G "%y = sum(%x) dims=[5]", "line 3: dim 5 is out of range for a tensor of rank 2"},
    {G "%y = sum(%x) dims=[0] dims=[1]", "line 3: sum: dims is given twice"},
    {G "%y = sum(%x) keepdims=1",
     "line 3: sum has no attribute keepdims; it takes dims:l keepdim:i"},
    {G "%y = relu(%x) alpha=1", "line 3: relu takes no attributes, got alpha"},
    {G "%y = sum(%x) keepdim=1.5", "line 3: sum: keepdim is an integer, got a number"},
    {G "%y = cast(%x) dtype=3", "line 3: cast: dtype is a text, got an integer"},
    {G "%y = sum(%x) dims=", "line 3: expected a number, a string or a list, got the end of the "
                             "text"},
    {G "%y = sum(%x) dims=[0", "line 3: expected ',', got the end of the text"},
    {G "%y = sum(%x) dims=[x]", "line 3: expected an integer, got 'x'"},
    {G "%y = sum(%x) dims=[0,0,0,0,0,0,0,0,0]", "line 3: sum: dims has 9 items; at most 8"},
    {G "%y = sum(%x) keepdim=99999999999999999999",
     "line 3: 99999999999999999999 is out of range for an integer"},
    {G "%y = slice(%x) end=9223372036854775807",
     "line 3: slice: end is 9223372036854775807, which no tensor needs"},
    {G "%y = sum(%x) keepdim", "line 3: expected '=', got the end of the text"},
    {G "%y = sum(%x) , %x",
     "line 3: expected an attribute, '@', '{' or the end of the line, got ','"},
    {G "%y = full() shape=[1000000,1000000,1000000]",
     "line 3: full would give f32[1000000,1000000,1000000], which no tensor can be"},
    {G "%y = pad(%x) lo=[1,1] hi=[99999999999999,1]",
     "line 3: pad would give f32[100000000000002,5], which no tensor can be"},
    {G "%y = relu(%x) data=00", "line 3: relu takes no data"},
    {G "%y = const() dtype=\"i32\"", "line 3: const needs data"},
    {G "%y = const() dtype=\"i32\" data=00", "line 3: data has 2 digits; i32[] needs 8"},
    {G "%y = const() dtype=\"i32\" data=0000000g", "line 3: expected '=', got the end of the text"},
    {G "%y = const() data=00000000 data=00000000", "line 3: data is given twice"},
    {G "%y = relu(%x) @phase 2", "line 3: 2 is out of range for a phase"},
    {G "%y = relu(%x) @layer fc", "line 3: expected '\"', got 'fc'"},
    {G "%y = relu(%x) @at \"f\"", "line 3: expected ':', got the end of the text"},
    {G "%y = relu(%x) @where",
     "line 3: expected layer, block, at, backward or phase after '@', got 'where'"},
    {G "%y = relu(%x) {\ngraph b\n}\n", "line 3: relu has no sub-graphs"},
    {G "%y = relu(%x) {\ngraph b\n", "line 5: expected '}', got the end of the text"},
    {G "%y = relu(%x) {\ngraph b\n%z = relu(%x)\n}", "line 5: %x is not defined above"},
    {G "output = %x", "line 3: expected the output's name, got '='"},
    {G "output y = %y", "line 3: %y is not defined above"},
    {G "loss %x\nloss %x", "line 4: the graph already has a loss"},
    {G "update %x = %x", "graph g: an update needs a state and a value of the graph (update 0)"},
    {G "state %s : f32[] full(0)\nupdate %s = %x",
     "graph g: an update has another type than its state (%s: f32[] and f32[2,3])"},
    {G "state %s : f32[] full(0)\nupdate %s = %s phase 2", "line 4: 2 is out of range for a phase"},
    {G "grad %x = %x",
     "graph g: a gradient needs a trained parameter and a value of the graph (gradient 0)"},
    {G "loss %x output", "graph g: the loss should be the last output"},
    {G "%1 = relu(%x) @phase 1\n%2 = relu(%1)",
     "relu runs for every micro-batch but reads a value of phase 1 (%1)"},
};

static void errors_say_what_and_where(void **state)
{
    (void)state;
    for (int i = 0; i < TS_COUNT(errors); i++) {
        ts_graph *g = (ts_graph *)1;
        assert_int_equal(ts_graph_parse(errors[i].text, &g), TS_ERR_PARSE);
        assert_null(g);
        assert_string_equal(ts_last_error()->message, errors[i].message);
    }
}

static void errors_carry_the_place(void **state)
{
    ts_graph *g;

    (void)state;
    assert_int_equal(ts_graph_parse(G "%y = matmul(%x, %x) @layer \"fc\" @at \"net.py\":41", &g),
                     TS_ERR_PARSE);
    assert_string_equal(ts_error_text(),
                        "parse error: line 3: matmul needs equal inner sizes, got 3 and 2\n"
                        "  at     fc (matmul), net.py:41\n"
                        "  while  inferring shapes\n");
    assert_int_equal(ts_graph_parse("x", &g), TS_ERR_PARSE);
    assert_string_equal(ts_last_error()->doing, "reading IR text");
}

static void deep_nesting_is_refused(void **state)
{
    ts_text t = {0};
    ts_graph *g;

    (void)state;
    for (int i = 0; i < 100000; i++)
        ts_text_printf(&t, "graph g\ninput %%x : f32[]\n%%y = relu(%%x) {\n");
    assert_fails(ts_graph_parse(t.s, &g), TS_ERR_PARSE,
                 "line 99: sub-graphs are nested more than 32 deep");
    ts_text_free(&t);
}

static void long_texts_are_quick(void **state)
{
    ts_text t = {0};
    ts_graph *g;
    double start = ts_now();

    (void)state;
    ts_text_printf(&t, "graph g\ninput %%0 : f32[4]\n");
    for (int i = 1; i <= 50000; i++)
        ts_text_printf(&t, "%%%d = relu(%%%d)\n", i, i - 1);
    assert_ok(ts_graph_parse(t.s, &g));
    assert_int_equal(g->nnodes, 50000);
    assert_true(ts_now() - start < 20);
    ts_graph_free(g);
    ts_text_free(&t);
}

/* --- nonsense --- */

/* A valid text of every kind of line. */
static char *corpus(ts_arena *a, int i)
{
    int n = 0;
    const ts_op *op;
    char *text;

    for (int k = 0; (op = ts_op_at(k)); k++)
        for (int j = 0; (text = case_text(a, op, j)); j++)
            if (n++ == i)
                return text;
    return NULL;
}

static void try_to_read(const char *text)
{
    ts_graph *g;
    char *back;

    if (ts_graph_parse(text, &g))
        return;
    assert_ok(ts_graph_verify(g));
    back = ts_graph_text(g);
    ts_graph_free(g);
    free(round_trip(back));
    free(back);
}

static void every_truncation_is_harmless(void **state)
{
    ts_arena *a = ts_arena_new();
    char *text;

    (void)state;
    for (int i = 0; (text = corpus(a, i)); i++)
        for (size_t n = strlen(text), k = n > 60 ? n - 60 : 0; k < n; k++) {
            char *cut = ts_arena_strdup(a, text);
            cut[k] = 0;
            try_to_read(cut);
        }
    ts_arena_free(a);
}

/* Puts a number that rules may stumble over in the place of the digits around s[at]. */
static void awkward_number(test_random *r, char *s, size_t at, size_t room)
{
    static const char *const numbers[] = {"0",          "1",          "-1",
                                          "9",          "65",         "4294967296",
                                          "2147483647", "1000000007", "9223372036854775807",
                                          "nan",        "1e308",      "-9223372036854775808"};
    const char *number = numbers[test_next(r) % TS_COUNT(numbers)];
    size_t from = at + strcspn(s + at, "0123456789"), n = strspn(s + from, "0123456789");

    if (strlen(s) + strlen(number) + 1 > room)
        return;
    memmove(s + from + strlen(number), s + from + n, strlen(s + from + n) + 1);
    memcpy(s + from, number, strlen(number));
}

/* Takes the bytes from s[at] to the next comma away. */
static void drop_item(char *s, size_t at)
{
    size_t n = strcspn(s + at, ",\n");

    n += s[at + n] == ',';
    memmove(s + at, s + at + n, strlen(s + at + n) + 1);
}

/* Changes a few places: a character to another one, to one of the language, away, doubled, moved; a
 * number; an item of a list. */
static void mutate(test_random *r, char *s, size_t room)
{
    static const char language[] = "%@=()[]{},:\"\\#.-0123456789x/\n eE";
    int edits = (int)test_between(r, 1, 4);

    for (int i = 0; i < edits; i++) {
        size_t n = strlen(s), at = n ? test_next(r) % n : 0;
        if (!n || n + 2 > room)
            return;
        switch (test_next(r) % 8) {
        case 0:
            s[at] = (char)test_between(r, 1, 255);
            break;
        case 1:
            s[at] = language[test_next(r) % (sizeof(language) - 1)];
            break;
        case 2:
            memmove(s + at, s + at + 1, n - at);
            break;
        case 3:
            memmove(s + at + 1, s + at, n - at + 1);
            break;
        case 4:
        case 5:
            awkward_number(r, s, at, room);
            break;
        case 6:
            drop_item(s, at);
            break;
        default: {
            size_t other = test_next(r) % n;
            char c = s[at];
            s[at] = s[other];
            s[other] = c;
        }
        }
    }
}

static void mutations_are_harmless(void **state)
{
    test_random r = {12345};
    ts_arena *a = ts_arena_new();
    char *text, buffer[4096];

    (void)state;
    for (int i = 0; (text = corpus(a, i)); i++) {
        /* the header is the same in all: leave most of it out, so that edits fall on the nodes */
        size_t skip = i % 4 ? strlen(header) : 0;
        for (int k = 0; k < 200; k++) {
            size_t n = strlen(text);
            assert_true(n + 64 < sizeof(buffer));
            memcpy(buffer, text, n + 1);
            mutate(&r, buffer + skip, sizeof(buffer) - skip);
            try_to_read(buffer);
        }
    }
    ts_arena_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_op_round_trips),   cmocka_unit_test(shares_read_back),
        cmocka_unit_test(the_whole_grammar),      cmocka_unit_test(comments_names_and_spacing),
        cmocka_unit_test(built_graphs_read_back), cmocka_unit_test(errors_say_what_and_where),
        cmocka_unit_test(errors_carry_the_place), cmocka_unit_test(deep_nesting_is_refused),
        cmocka_unit_test(long_texts_are_quick),   cmocka_unit_test(every_truncation_is_harmless),
        cmocka_unit_test(mutations_are_harmless),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
