/* verify.c - each rule of a legal graph, broken on purpose. */
#include "op/op.h"
#include "support.h"

/* x -> matmul w -> relu -> sum; w and the buffer b are updated; everything there is to break. */
static const char legal[] = "graph g\n"
                            "input %x : f32[2,3]\n"
                            "state %w : f32[3,4] uniform(-1.0, 1.0) trained\n"
                            "state %b : f32[3,4] full(0.0, 0.0)\n"
                            "state %c : f32[3,4] full(0.0, 0.0)\n"
                            "%4 : f32[2,4] = matmul(%x, %w) @layer \"fc\" @at \"net.c\":5\n"
                            "%5 : f32[2,4] = relu(%4)\n"
                            "%6 : f32[] = sum(%5)\n"
                            "%7 : f32[3,4] = neg(%w) @backward\n"
                            "%8 : f32[3,4] = add(%w, %7) @phase 1\n"
                            "%9 : f32[1] = const() shape=[1] data=00000000\n"
                            "output y = %5\n"
                            "output loss = %6\n"
                            "update %b = %7 phase 0\n"
                            "update %w = %8 phase 1\n"
                            "grad %w = %7\n"
                            "loss %6 output\n";

static ts_graph *other; /* for values that belong elsewhere */
static ts_value *foreign;

static void bad_status(ts_graph *g)
{
    ts_fail(TS_ERR_SHAPE, "an earlier one");
    g->status = TS_ERR_SHAPE;
    g->error = *ts_last_error();
}

static void bad_id(ts_graph *g)
{
    g->values[5]->id = 4;
}

static void bad_owner(ts_graph *g)
{
    g->values[0]->index = 3;
}

static void bad_maker(ts_graph *g)
{
    g->values[5]->node = NULL;
}

static void bad_type(ts_graph *g)
{
    g->values[0]->type.dim[1] = -1;
}

static void bad_order(ts_graph *g)
{
    g->values[5]->layout = (ts_layout){.set = true, .order = {1, 1}};
}

static void wild_order(ts_graph *g)
{
    g->values[5]->layout = (ts_layout){.set = true, .order = {0, 33}};
}

static void bad_lanes(ts_graph *g)
{
    g->values[5]->layout = (ts_layout){.set = true, .order = {0, 1}, .lane_dim = 2, .lanes = 8};
}

static void negative_lanes(ts_graph *g)
{
    g->values[5]->layout = (ts_layout){.set = true, .order = {0, 1}, .lanes = -8};
}

static void bad_node_id(ts_graph *g)
{
    g->nodes[1]->id = 0;
}

static void foreign_input(ts_graph *g)
{
    g->nodes[1]->in[0] = foreign;
}

static void null_input(ts_graph *g)
{
    g->nodes[1]->in[0] = NULL;
}

static void foreign_result(ts_graph *g)
{
    ts_value *v = TS_NEW(g->arena, ts_value);

    *v = *g->nodes[0]->out[0];
    g->nodes[2]->out[0] = v;
    g->values[6]->kind = TS_VALUE_INPUT; /* or the value's own rule would see it first */
    g->values[6]->index = g->ninputs;
    TS_PUSH(g->arena, g->inputs, g->ninputs, g->values[6]);
}

static void wrong_order(ts_graph *g)
{
    ts_node *n = g->nodes[0];

    g->nodes[0] = g->nodes[1];
    g->nodes[1] = n;
    g->nodes[0]->id = 0;
    g->nodes[1]->id = 1;
}

static void too_few_inputs(ts_graph *g)
{
    g->nodes[0]->nin = 1;
}

static void other_op(ts_graph *g)
{
    g->nodes[1]->op = TS_OP(max_pool);
}

static void bad_phase(ts_graph *g)
{
    g->nodes[4]->phase = 2;
}

static void reads_later(ts_graph *g)
{
    g->nodes[0]->phase = 1;
}

static void no_data(ts_graph *g)
{
    g->nodes[5]->data = NULL;
}

static void wrong_data(ts_graph *g)
{
    g->nodes[1]->data = g;
}

static void has_sub(ts_graph *g)
{
    g->nodes[1]->nsub = 1;
    g->nodes[1]->sub = &other;
}

static void wrong_type(ts_graph *g)
{
    g->nodes[3]->out[0]->type.dim[1] = 5;
}

static void wrong_attr(ts_graph *g)
{
    int64_t dims[] = {7};
    ts_node *n = g->nodes[2];

    n->nattr = 1;
    n->attr = TS_NEW(g->arena, ts_attr);
    n->attr[0] = ts_attr_l("dims", 1, ts_arena_copy(g->arena, dims, sizeof(dims)));
}

static void same_name(ts_graph *g)
{
    g->states[1].value->name = "x";
}

static void no_name(ts_graph *g)
{
    g->inputs[0]->name = "";
}

static void foreign_output(ts_graph *g)
{
    g->outputs[0] = foreign;
}

static void foreign_loss(ts_graph *g)
{
    g->loss = foreign;
}

static void loss_not_last(ts_graph *g)
{
    g->noutputs = 1;
}

static void update_of_input(ts_graph *g)
{
    g->updates[0].state = g->inputs[0];
}

static void update_from_elsewhere(ts_graph *g)
{
    g->updates[0].next = foreign;
}

static void update_of_type(ts_graph *g)
{
    g->updates[0].next = g->values[5];
}

static void update_phase(ts_graph *g)
{
    g->updates[0].phase = -1;
}

static void update_too_early(ts_graph *g)
{
    g->updates[1].phase = 0;
}

static void share(ts_graph *g, int64_t count, ts_value *of)
{
    ts_value *v = ts_graph_add_state(g, "s", ts_type_of(TS_F32, 1, &count), (ts_init){0}, false);

    g->states[v->index].use = TS_USE_SHARE;
    g->states[v->index].of = of;
    g->states[v->index].parts = 2;
}

static void share_too_small(ts_graph *g)
{
    share(g, 1, g->states[0].value);
}

static void share_of_nothing(ts_graph *g)
{
    share(g, 1 << 20, NULL);
}

static void state_behind_share(ts_graph *g)
{
    share(g, 1 << 20, g->states[0].value);
    ts_graph_add_state(g, "late", ts_type_scalar(TS_F32), (ts_init){0}, false);
}

static void update_twice(ts_graph *g)
{
    ts_graph_add_update(g, g->states[1].value, g->values[7], 0);
}

static void update_hazard(ts_graph *g)
{
    ts_graph_add_update(g, g->states[2].value, g->states[1].value, 0);
}

static void grad_of_buffer(ts_graph *g)
{
    g->states[0].trained = false;
}

static void grad_from_elsewhere(ts_graph *g)
{
    g->grads[0].grad = foreign;
}

static void grad_of_type(ts_graph *g)
{
    g->grads[0].grad = g->values[5];
}

static void grad_twice(ts_graph *g)
{
    TS_PUSH(g->arena, g->grads, g->ngrads, g->grads[0]);
}

static const struct {
    void (*damage)(ts_graph *g);
    const char *message, *where;
} broken[] = {
    {bad_id, "value 5 of graph g is not at its id in the graph's values", ""},
    {bad_owner, "value 0 of graph g is no input, state or result of the graph", ""},
    {bad_maker, "value 5 of graph g is no input, state or result of the graph", ""},
    {bad_type, "value 0 of graph g has a type no tensor can have", ""},
    {bad_order, "value 5 of graph g has a layout that does not name each dim once", ""},
    {wild_order, "value 5 of graph g has a layout that does not name each dim once", ""},
    {bad_lanes, "value 5 of graph g has lanes in a dim it does not have", ""},
    {negative_lanes, "value 5 of graph g has lanes in a dim it does not have", ""},
    {bad_node_id, "relu is not at its id in the graph's nodes", "(relu)"},
    {foreign_input, "relu reads a value that is not of this graph (input 0)", "(relu)"},
    {null_input, "relu reads a value that is not of this graph (input 0)", "(relu)"},
    {foreign_result, "sum has a result that is not of this graph, or not its own (result 0)",
     "(sum)"},
    {wrong_order, "relu reads a value before it is computed (%4)", "(relu)"},
    {too_few_inputs, "matmul has the wrong number of inputs", "fc (matmul), net.c:5"},
    {other_op, "max_pool has the wrong number of results", "(max_pool)"},
    {bad_phase, "add is in a phase that is neither 0 nor 1", "(add)"},
    {reads_later, "relu runs for every micro-batch but reads a value of phase 1 (%4)", "(relu)"},
    {no_data, "const has data and is no const, or is a const without", "(const)"},
    {wrong_data, "relu has data and is no const, or is a const without", "(relu)"},
    {has_sub, "relu has a sub-graph", "(relu)"},
    {wrong_type, "neg does not have the type its shape rule gives (f32[3,5] and f32[3,4])",
     "(neg, backward)"},
    {wrong_attr,
     "sum does not have the type its shape rule gives (dim 7 is out of range for a tensor of rank "
     "2)",
     "(sum)"},
    {same_name, "graph g: inputs and states need names of their own (x)", ""},
    {no_name, "graph g: inputs and states need names of their own (one has none)", ""},
    {foreign_output, "graph g: an output is no value of the graph (output 0)", ""},
    {foreign_loss, "graph g: the loss is no value of the graph", ""},
    {loss_not_last, "graph g: the loss should be the last output", ""},
    {update_of_input, "graph g: an update needs a state and a value of the graph (update 0)", ""},
    {update_from_elsewhere, "graph g: an update needs a state and a value of the graph (update 0)",
     ""},
    {update_of_type,
     "graph g: an update has another type than its state (%b: f32[3,4] and f32[2,4])", ""},
    {update_phase, "graph g: an update is in no phase, or takes a value of a later one (%b)", ""},
    {update_too_early, "graph g: an update is in no phase, or takes a value of a later one (%w)",
     ""},
    {share_too_small,
     "graph g: a share needs a state that lies before it, and all shares room for all of it (%s)",
     ""},
    {share_of_nothing,
     "graph g: a share needs a state that lies before it, and all shares room for all of it (%s)",
     ""},
    {state_behind_share,
     "graph g: a share needs a state that lies before it, and all shares room for all of it "
     "(%late)",
     ""},
    {update_twice, "graph g: a state is updated twice in one phase (%b)", ""},
    {update_hazard, "graph g: an update takes a state that the same phase updates before (%b)", ""},
    {grad_of_buffer,
     "graph g: a gradient needs a trained parameter and a value of the graph (gradient 0)", ""},
    {grad_from_elsewhere,
     "graph g: a gradient needs a trained parameter and a value of the graph (gradient 0)", ""},
    {grad_of_type,
     "graph g: a gradient has another type than its parameter (%w: f32[3,4] and f32[2,4])", ""},
    {grad_twice, "graph g: a parameter has two gradients (%w)", ""},
};

static void broken_rules_are_named(void **state)
{
    (void)state;
    other = ts_graph_new("other");
    foreign = ts_input(other, "x", TS_F32, 3, 4);
    for (int i = 0; i < TS_COUNT(broken); i++) {
        ts_graph *g;
        assert_ok(ts_graph_parse(legal, &g));
        broken[i].damage(g);
        assert_fails(ts_graph_verify(g), TS_ERR_INTERNAL, broken[i].message);
        assert_string_equal(ts_last_error()->where, broken[i].where);
        assert_string_equal(ts_last_error()->doing, "checking graph g");
        ts_graph_free(g);
    }
    ts_graph_free(other);
}

static void an_earlier_error_comes_first(void **state)
{
    ts_graph *g;

    (void)state;
    assert_ok(ts_graph_parse(legal, &g));
    bad_status(g);
    ts_fail(TS_ERR_ARG, "a later one");
    assert_fails(ts_graph_verify(g), TS_ERR_SHAPE, "an earlier one");
    ts_graph_free(g);
}

/* Looking at a graph leaves it as it was. */
static void legal_graphs_stay_as_they_are(void **state)
{
    ts_graph *g;
    char *before, *after;
    int values;

    (void)state;
    assert_ok(ts_graph_parse(legal, &g));
    values = g->nvalues;
    before = ts_graph_text(g);
    assert_string_equal(before, legal);
    assert_ok(ts_graph_verify(g));
    after = ts_graph_text(g);
    assert_string_equal(before, after);
    assert_int_equal(g->nvalues, values);
    free(before);
    free(after);
    ts_graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(legal_graphs_stay_as_they_are),
        cmocka_unit_test(broken_rules_are_named),
        cmocka_unit_test(an_earlier_error_comes_first),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
