/* control.c - loops and conditions against the same thing written by hand, in both executors, with
 * gradients; and what they refuse. */
#include "run/run.h"
#include "tessera.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { N = 5 };

/* s, w -> tanh(s * w) + s, w */
static ts_value *body_of(ts_value *s, ts_value *w)
{
    return ts_add(ts_tanh(ts_mul(s, w)), s);
}

static ts_graph *body(void)
{
    ts_graph *g = ts_graph_new("body");
    ts_value *s = ts_input(g, "s", TS_F32, N), *w = ts_input(g, "w", TS_F32, N);

    ts_output(body_of(s, w), "s");
    ts_output(w, "w");
    return g;
}

static ts_graph *one_side(const char *op)
{
    ts_graph *g = ts_graph_new(op);
    ts_value *x = ts_input(g, "x", TS_F32, N);

    ts_output(ts_apply(g, op, 1, &x, 0, NULL), "y");
    return g;
}

/* A net with a trained w: as a loop or a condition, or written by hand. */
static ts_graph *net(bool loop, bool by_hand)
{
    ts_graph *g = ts_graph_new("net");
    ts_value *x = ts_input(g, "x", TS_F32, N), *c = ts_input(g, "c", TS_BOOL, 1), *y, *out[2];
    ts_value *w = ts_param(g, "w", TS_F32, ((ts_init){TS_INIT_UNIFORM, -1, 1}), N);

    if (loop && by_hand)
        y = body_of(body_of(body_of(x, w), w), w);
    else if (loop) {
        ts_graph *b = body();
        assert_int_equal(ts_for_loop(3, b, 2, (ts_value *[]){x, w}, out), 2);
        ts_graph_free(b); /* it was copied */
        y = out[0];
    } else if (by_hand)
        y = ts_where(c, ts_sigmoid(ts_mul(x, w)), ts_exp(ts_mul(x, w)));
    else {
        ts_graph *yes = one_side("sigmoid"), *no = one_side("exp");
        ts_value *z = ts_mul(x, w);
        assert_int_equal(ts_cond(c, yes, no, 1, &z, out), 1);
        ts_graph_free(yes);
        ts_graph_free(no);
        y = out[0];
    }
    ts_output(y, "y");
    ts_loss(ts_sum(ts_square(y), 0, NULL, false));
    return g;
}

/* Two steps of training: y and the weights. */
static void train(const ts_graph *g, ts_executor executor, bool c, float *y, float *w)
{
    static const float x[N] = {0.5f, -1.25f, 2, 0, -0.125f};
    ts_optimizer sgd = ts_sgd(0.1);
    ts_executable *exe;
    ts_engine *e;
    uint8_t condition = c;
    float loss;

    if (ts_compile(g, &(ts_options){.optimizer = &sgd, .executor = executor, .cache_dir = ""},
                   &exe) ||
        ts_engine_new(exe, &(ts_run_options){.seed = 3, .threads = 2}, &e))
        fail_msg("%s", ts_error_text());
    for (int i = 0; i < 2; i++)
        if (ts_engine_run(e, (const void *[]){x, &condition}, (void *[]){y, &loss}))
            fail_msg("%s", ts_error_text());
    assert_int_equal(ts_engine_read(e, "w", w, sizeof(float[N])), TS_OK);
    ts_engine_free(e);
    ts_executable_free(exe);
}

static void same_as_by_hand(bool loop, bool c)
{
    ts_graph *node = net(loop, false), *hand = net(loop, true);

    for (ts_executor e = TS_EXECUTOR_NATIVE; e <= TS_EXECUTOR_REFERENCE; e++) {
        float y[2][N], w[2][N];
        train(node, e, c, y[0], w[0]);
        train(hand, e, c, y[1], w[1]);
        for (int i = 0; i < N; i++) {
            assert_true(fabsf(y[0][i] - y[1][i]) <= 1e-6f * (1 + fabsf(y[1][i])));
            assert_true(fabsf(w[0][i] - w[1][i]) <= 1e-6f);
        }
    }
    ts_graph_free(node);
    ts_graph_free(hand);
}

static void a_loop(void **state)
{
    (void)state;
    same_as_by_hand(true, true);
}

static void a_condition(void **state)
{
    (void)state;
    same_as_by_hand(false, true);
    same_as_by_hand(false, false);
}

/* A loop in a side of a condition, through the text form. */
static void nested(void **state)
{
    static const char text[] = "graph g\n"
                               "input %x : f32[2]\n"
                               "input %c : bool[]\n"
                               "%1 = cond(%c, %x) {\n"
                               "graph yes\n"
                               "input %a : f32[2]\n"
                               "%1 = for_loop(%a) count=4 {\n"
                               "graph twice\n"
                               "input %s : f32[2]\n"
                               "%1 = add(%s, %s)\n"
                               "output s = %1\n"
                               "}\n"
                               "output y = %1\n"
                               "} {\n"
                               "graph no\n"
                               "input %a : f32[2]\n"
                               "%1 = neg(%a)\n"
                               "output y = %1\n"
                               "}\n"
                               "output y = %1\n";
    ts_graph *g, *again;
    char *one, *two;
    ts_executable *exe;
    ts_engine *e;

    (void)state;
    if (ts_graph_parse(text, &g))
        fail_msg("%s", ts_error_text());
    one = ts_graph_text(g);
    assert_int_equal(ts_graph_parse(one, &again), TS_OK);
    two = ts_graph_text(again);
    assert_string_equal(one, two);
    assert_int_equal(ts_compile(again, &(ts_options){.cache_dir = ""}, &exe), TS_OK);
    assert_int_equal(ts_engine_new(exe, NULL, &e), TS_OK);
    for (uint8_t c = 0; c < 2; c++) {
        float x[2] = {1, -3}, y[2];
        assert_int_equal(ts_engine_run(e, (const void *[]){x, &c}, (void *[]){y}), TS_OK);
        assert_true(y[0] == (c ? 16 : -1) && y[1] == (c ? -48 : 3));
    }
    ts_engine_free(e);
    ts_executable_free(exe);
    ts_graph_free(g);
    ts_graph_free(again);
    free(one);
    free(two);
}

#define BODY(type, line) " {\ngraph b\ninput %s : " type "\n" line "}\n"
#define SAME             "%1 = neg(%s)\noutput s = %1\n"

static void refused(void **state)
{
    static const char *const cases[][2] = {
        {"%1 = for_loop(%x) count=2\n", "for_loop needs 1 sub-graph, not 0"},
        {"%1 = for_loop(%x) count=0" BODY("f32[2]", SAME), "at least once, not 0"},
        {"%1 = for_loop(%x) count=-3" BODY("f32[2]", SAME), "at least once, not -3"},
        {"%1 = for_loop(%x) count=99999999" BODY("f32[2]", SAME), "more than the 20000"},
        {"%1 = for_loop(%x) count=2" BODY("f32[3]", SAME), "is f32[3], and gets f32[2]"},
        {"%1 = for_loop(%x, %x) count=2" BODY("f32[2]", SAME), "takes 1 inputs"},
        {"%1 = for_loop(%x) count=2" BODY("f32[2]", "%1 = sum(%s)\noutput s = %1\n"),
         "output 0 of the body b is f32[], and its input is f32[2]"},
        {"%1 = for_loop(%x) count=2" BODY("f32[2]", "%1 = neg(%s)\n"), "has 0 outputs"},
        {"%1 = cond(%x, %x)" BODY("f32[2]", SAME) "\n", "cond needs 2 sub-graphs, not 1"},
        {"%1 = cond(%x, %x)"
         " {\ngraph a\ninput %s : f32[2]\n" SAME "}" BODY("f32[2]", SAME),
         "a condition is one bool, not f32[2]"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        char text[1024];
        ts_graph *g;
        snprintf(text, sizeof(text), "graph g\ninput %%x : f32[2]\n%soutput y = %%1\n",
                 cases[i][0]);
        if (!ts_graph_parse(text, &g))
            fail_msg("%s was not refused", cases[i][0]);
        if (!strstr(ts_last_error()->message, cases[i][1]))
            fail_msg("\"%s\" does not say \"%s\"", ts_last_error()->message, cases[i][1]);
    }
}

/* In the calls of the builder: the graph remembers. */
static void refused_in_c(void **state)
{
    ts_graph *b = body(), *g = ts_graph_new("g"), *bad = ts_graph_new("bad");
    ts_value *x = ts_input(g, "x", TS_F32, N), *out[2];

    (void)state;
    ts_linear(ts_input(bad, "s", TS_F32, 1, N), "fc", 4);
    ts_output(ts_input(bad, "t", TS_F32, N), "t");
    assert_int_equal(ts_for_loop(2, bad, 2, (ts_value *[]){x, x}, out), 0);
    assert_int_equal(ts_graph_check(g), TS_ERR_UNSUPPORTED);
    assert_non_null(strstr(ts_last_error()->hint, "outside"));
    ts_graph_free(g);

    g = ts_graph_new("g");
    x = ts_input(g, "x", TS_F32, N);
    assert_int_equal(ts_for_loop(2, NULL, 1, &x, out), 0);
    assert_int_equal(ts_graph_check(g), TS_ERR_ARG);
    assert_int_equal(ts_for_loop(2, b, 2, (ts_value *[]){NULL, NULL}, out), 0);
    assert_int_equal(ts_cond(NULL, b, b, 0, NULL, out), 0);
    ts_graph_free(g);
    ts_graph_free(bad);
    ts_graph_free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_loop), cmocka_unit_test(a_condition),
                                       cmocka_unit_test(nested), cmocka_unit_test(refused),
                                       cmocka_unit_test(refused_in_c)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
