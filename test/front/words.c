/* words.c - words from C: functions of tessera/ops.h, arguments by name, and what is wrong with
 * them. */
#include "front/words.h"
#include "run/run.h"
#include "support.h"
#include <math.h>

static ts_graph *g;
static ts_value *x, *image;

static int setup(void **state)
{
    (void)state;
    g = ts_graph_new("words");
    x = ts_input(g, "x", TS_F32, 4, 6);
    image = ts_input(g, "image", TS_F32, 2, 4, 8, 8);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    ts_graph_free(g);
    return 0;
}

static void has_type(const ts_value *v, ts_dtype t, int rank, const int64_t *dims)
{
    assert_ok(ts_graph_check(g));
    assert_non_null(v);
    assert_int_equal(v->type.dtype, t);
    assert_int_equal(v->type.rank, rank);
    for (int i = 0; i < rank; i++)
        assert_int_equal(v->type.dim[i], dims[i]);
}
#define DIMS(...)                                                                                  \
    (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[])                         \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }

/* The same nodes, whichever way it is said. */
static void a_function_is_its_word(void **state)
{
    ts_value *y = NULL;
    int n = 0, before;

    (void)state;
    before = g->nnodes;
    ts_hardtanh(x, -2, 0.5);
    before = g->nnodes - before;
    assert_ok(ts_word(g, "hardtanh", NULL, 3,
                      (ts_arg[]){ts_arg_number("max_val", 0.5), ts_arg_tensor("x", x),
                                 ts_arg_number("min_val", -2)},
                      1, &y, &n));
    assert_int_equal(n, 1);
    assert_int_equal(g->nnodes % before, 0);
    for (int i = 0; i < before; i++) {
        const ts_node *a = g->nodes[g->nnodes - 2 * before + i],
                      *b = g->nodes[g->nnodes - before + i];
        assert_ptr_equal(a->op, b->op);
        assert_int_equal(a->nattr, b->nattr);
        for (int k = 0; k < a->nattr; k++)
            assert_true(a->attr[k].f == b->attr[k].f && a->attr[k].i == b->attr[k].i);
    }
    /* aten::NAME is the word too */
    assert_ok(ts_word(g, "aten::hardtanh", NULL, 1, (ts_arg[]){ts_arg_tensor(NULL, x)}, 1, &y, &n));
    has_type(y, TS_F32, DIMS(4, 6));
}

static void results_and_lists(void **state)
{
    ts_value *places = NULL, *out[8];
    ts_value *i = ts_iota(g, 1, (int64_t[]){4}, 0, TS_I64);

    (void)state;
    has_type(ts_topk(x, 2, 1, true, &places), TS_F32, DIMS(4, 2));
    has_type(places, TS_I64, DIMS(4, 2));
    has_type(ts_topk(x, 2, 1, true, NULL), TS_F32, DIMS(4, 2));
    assert_int_equal(ts_split_into(x, 4, 1, 8, out), 2);
    has_type(out[1], TS_F32, DIMS(4, 2));
    assert_int_equal(ts_unbind_into(x, 0, 2, out), 2);
    has_type(ts_index(x, 2, (ts_value *[]){NULL, i}), TS_F32, DIMS(4, 4));
    has_type(ts_block_diag(2, (ts_value *[]){x, x}), TS_F32, DIMS(8, 12));
    has_type(ts_constant_pad(x, 2, (int64_t[]){1, 2}, 0), TS_F32, DIMS(4, 9));
    has_type(ts_adaptive_max_pool2d(image, 3, 5), TS_F32, DIMS(2, 4, 3, 5));
    has_type(ts_reshape(x, 2, -1), TS_F32, DIMS(2, 12));
    has_type(ts_huber_loss(x, x, TS_REDUCTION_NONE, 0.5), TS_F32, DIMS(4, 6));
    has_type(ts_conv2d_with(image, ts_full(g, TS_F32, 1, 3, 4, 3, 3), NULL, 2, 1, 1, 1), TS_F32,
             DIMS(2, 3, 4, 4));
}

/* Tensors of nothing: only here, for a trace has them by its own names. */
static void made_of_nothing(void **state)
{
    ts_value *out[1];
    int n;

    (void)state;
    has_type(ts_randperm(g, 7), TS_I64, DIMS(7));
    has_type(ts_iota(g, 2, (int64_t[]){2, 3}, 1, TS_F32), TS_F32, DIMS(2, 3));
    has_type(ts_round_random(x, "f16", 3), TS_F16, DIMS(4, 6));
    for (int i = 0; i < 2; i++) {
        assert_ok(ts_word(
            g, i ? "rand" : "randn", NULL, 2,
            (ts_arg[]){ts_arg_ints("size", 2, (int64_t[]){2, 3}), ts_arg_text("dtype", "f64")}, 1,
            out, &n));
        has_type(out[0], TS_F64, DIMS(2, 3));
    }
}

static const struct {
    const char *word;
    int n;
    ts_arg args[4];
    ts_status code;
    const char *message;
} wrong[] = {
    {"hardtahn", 0, {{0}}, TS_ERR_UNSUPPORTED, "there is no word 'hardtahn'"},
    {"hardtanh", 0, {{0}}, TS_ERR_ARG, "hardtanh needs 'x', a tensor"},
    {"hardtanh", 1, {{"mini", TS_ARG_INT, 0, {0}}}, TS_ERR_ARG, "hardtanh has no argument 'mini'"},
    {"hardtanh", 1, {{"x", TS_ARG_INT, 0, {0}}}, TS_ERR_ARG, "hardtanh: 'x' must be a tensor"},
    {"hardtanh",
     2,
     {{"min_val", TS_ARG_INT, 0, {0}}, {"min_val", TS_ARG_INT, 0, {0}}},
     TS_ERR_ARG,
     "hardtanh: 'min_val' is given twice"},
    {"aten::sort.stable", 0, {{0}}, TS_ERR_UNSUPPORTED, "aten::sort.stable is for traces only"},
};

static void mistakes_are_named(void **state)
{
    (void)state;
    for (int i = 0; i < TS_COUNT(wrong); i++) {
        ts_value *y = NULL;
        int n = 0;
        assert_fails(ts_word(g, wrong[i].word, NULL, wrong[i].n, wrong[i].args, 1, &y, &n),
                     wrong[i].code, wrong[i].message);
        assert_ok(ts_graph_check(g)); /* nothing has happened to it */
    }
    /* a function's mistake is the graph's */
    assert_null(ts_cumsum(x, 2));
    assert_fails(ts_graph_check(g), TS_ERR_ARG, "cumsum: dim is 2, of a tensor of rank 2");
    assert_null(ts_mish(x));
}

static void nothing_comes_of_nothing(void **state)
{
    (void)state;
    assert_null(ts_mish(NULL));
    assert_null(ts_lerp(x, NULL, x));
    assert_ok(ts_graph_check(g));
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_function_is_its_word), TEST(results_and_lists),        TEST(made_of_nothing),
        TEST(mistakes_are_named),     TEST(nothing_comes_of_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
