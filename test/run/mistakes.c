/* mistakes.c - what newcomers get wrong, each with an error that says what to do, and no crash:
 * nothing to return, NULL where something belongs, names that are not there, things freed in the
 * other order, labels that are no class. */
#include "run/run.h"
#include "support.h"
#include <math.h>

enum { ROWS = 4, FEATURES = 3, CLASSES = 5 };

static const float images[ROWS][FEATURES] = {{1, 0, 2}, {0, 1, 1}, {3, 1, 0}, {1, 1, 1}};
static const int32_t labels[ROWS] = {0, 1, 2, 3};

static ts_graph *net(bool output, bool loss)
{
    ts_graph *g = ts_graph_new("net");
    ts_value *x = ts_input(g, "x", TS_F32, ROWS, FEATURES);
    ts_value *y = ts_linear(x, "fc", CLASSES);

    if (output)
        ts_output(y, "y");
    if (loss)
        ts_loss(ts_cross_entropy(y, ts_input(g, "labels", TS_I32, ROWS),
                                 .reduction = TS_REDUCTION_SUM));
    return g;
}

static ts_executable *compile(ts_executor executor)
{
    ts_optimizer sgd = ts_sgd(0.5);
    ts_graph *g = net(true, true);
    ts_executable *x;

    assert_ok(ts_compile(g, &(ts_options){.optimizer = &sgd, .executor = executor}, &x));
    ts_graph_free(g);
    return x;
}

/* Compiling fails with these words, in the hint too. */
static void refused(ts_graph *g, const ts_options *opt, const char *words, const char *hint)
{
    ts_executable *x = (ts_executable *)g;

    assert_fails(ts_compile(g, opt, &x), TS_ERR_ARG, words);
    assert_non_null(strstr(ts_last_error()->hint, hint));
    assert_string_equal(ts_last_error()->doing, "compiling the graph 'net'");
    assert_null(x);
    ts_graph_free(g);
}

static void nothing_to_return(void **state)
{
    ts_optimizer sgd = ts_sgd(0.5);

    (void)state;
    refused(net(false, false), NULL,
            "nothing comes out of the graph 'net': it has no output and no loss",
            "ts_output(); a NULL");
    refused(net(true, false), &(ts_options){.optimizer = &sgd},
            "there is an optimizer, and no loss for it to minimise", "ts_loss()");
}

/* A text can make an output of what no op computes: its memory would be another's. */
static void outputs_that_nothing_computes(void **state)
{
    static const char *const sources[] = {"input %v : f32[2]", "state %v : f32[2] full(1)"};
    char text[256];
    ts_graph *g;

    (void)state;
    for (int i = 0; i < TS_COUNT(sources); i++) {
        snprintf(text, sizeof(text), "graph net\n%s\noutput y = %%v\n", sources[i]);
        assert_ok(ts_graph_parse(text, &g));
        refused(g, NULL, "no op computes output y", "nop(%x)");
    }
}

/* Nor what an op hands through: sort of a single number is that number, in memory of its own. */
static void outputs_that_are_operands(void **state)
{
    static const char text[] = "graph net\ninput %a : f32[]\nstate %b : f32[] full(5)\n"
                               "%1, %2 = sort(%a)\n%3, %4 = sort(%b)\n%5 = add(%a, %b)\n"
                               "output y = %1\noutput z = %3\noutput s = %5\n";
    float a = 3, y = 0, z = 0, s = 0;
    ts_options opt = {.cache_dir = "", .executor = *(ts_executor *)*state};
    ts_executable *x;
    ts_engine *e;
    ts_graph *g;

    assert_ok(ts_graph_parse(text, &g));
    assert_ok(ts_compile(g, &opt, &x));
    assert_ok(ts_engine_new(x, NULL, &e));
    assert_ok(ts_engine_run(e, (const void *const[]){&a}, (void *[]){&y, &z, &s}));
    assert_true(y == 3 && z == 5 && s == 8);
    ts_engine_free(e);
    ts_executable_free(x);
    ts_graph_free(g);
}

static void options_that_are_not_there(void **state)
{
    static const char *const no_name[] = {NULL};
    ts_group nowhere = {.nparams = 2}, nameless = {.params = no_name, .nparams = 1};
    ts_optimizer zero = {0}, sgd = ts_sgd(0.5);
    ts_options opt = {.optimizer = &sgd};

    (void)state;
    refused(net(true, true), &(ts_options){.skip = "layout, layuot"},
            "there is no pass 'layuot' to skip", "fuse");
    refused(net(true, true), &(ts_options){.optimizer = &zero},
            "loss_scaling of the optimizer is 0; it must be above 0", "ts_sgd()");
    sgd.ngroups = 1;
    refused(net(true, true), &opt, "the optimizer has 1 parameter groups at NULL", "");
    sgd.groups = &nowhere;
    refused(net(true, true), &opt, "parameter group 1 has 2 names at NULL", "");
    sgd.groups = &nameless;
    refused(net(true, true), &opt, "name 0 of parameter group 1 is NULL", "");
}

static void null_where_something_belongs(void **state)
{
    ts_executable *x = compile(TS_EXECUTOR_AUTO);
    uint64_t seed = 1, step = 1;
    ts_graph *g;
    ts_engine *e;

    (void)state;
    assert_fails(ts_graph_check(NULL), TS_ERR_ARG, "the graph is NULL");
    assert_null(ts_graph_text(NULL));
    assert_int_equal(ts_graph_parse(NULL, &g), TS_ERR_ARG);
    assert_int_equal(ts_graph_parse("", NULL), TS_ERR_ARG);
    assert_int_equal(ts_compile(NULL, NULL, &x), TS_ERR_ARG);
    assert_int_equal(ts_engine_new(NULL, NULL, &e), TS_ERR_ARG);
    assert_int_equal(ts_engine_new(x, NULL, NULL), TS_ERR_ARG);
    assert_fails(ts_engine_run(NULL, NULL, NULL), TS_ERR_ARG, "the engine is NULL");
    assert_non_null(strstr(ts_last_error()->hint, "ts_engine_new()"));
    assert_int_equal(ts_engine_read(NULL, "fc.bias", &seed, 8), TS_ERR_ARG);
    assert_int_equal(ts_engine_write(NULL, "fc.bias", &seed, 8), TS_ERR_ARG);
    assert_int_equal(ts_engine_set(NULL, "lr", 1), TS_ERR_ARG);
    assert_int_equal(ts_train(NULL, ROWS, NULL, NULL, NULL), TS_ERR_ARG);
    assert_int_equal(ts_engine_slots(NULL) + ts_engine_threads(NULL), 0);
    ts_engine_rng(NULL, &seed, &step);
    ts_engine_set_rng(NULL, 1, 1);
    assert_int_equal(seed + step, 0);
    assert_null(ts_executable_inspect(NULL));
    assert_null(ts_executable_source(NULL));
    assert_null(ts_executable_tensor(NULL, TS_ROLE_INPUT, 0));
    assert_null(ts_executable_tensor(x, (ts_role)3, 0));
    assert_int_equal(ts_executable_stats(NULL).kernels, 0);
    ts_executable_free(x);
}

static void wrong_calls_of_an_engine(void **state)
{
    ts_executable *x = compile(TS_EXECUTOR_AUTO);
    float bias[CLASSES];
    ts_engine *e;

    (void)state;
    assert_fails(ts_engine_new(x, &(ts_run_options){.threads = -1}, &e), TS_ERR_ARG,
                 "threads is -1; it must not be negative");
    assert_fails(ts_engine_new(x, &(ts_run_options){.threads = 1025}, &e), TS_ERR_ARG,
                 "threads is 1025; it can be at most 1024");
    assert_ok(ts_engine_new(x, &(ts_run_options){.threads = 2}, &e));
    assert_fails(ts_engine_run(e, NULL, NULL), TS_ERR_ARG, "input 0 (x) is NULL");
    assert_fails(ts_engine_run(e, (const void *[]){images, NULL}, NULL), TS_ERR_ARG,
                 "input 1 (labels) is NULL");
    assert_non_null(strstr(ts_last_error()->hint, "a run takes 2 inputs"));
    assert_fails(ts_engine_read(e, "fc.bais", bias, sizeof(bias)), TS_ERR_ARG,
                 "there is no state 'fc.bais'");
    assert_string_equal(ts_last_error()->hint,
                        "did you mean 'fc.bias'? ts_executable_inspect() lists them");
    assert_fails(ts_engine_read(e, "encoder", bias, sizeof(bias)), TS_ERR_ARG,
                 "there is no state 'encoder'");
    assert_string_equal(ts_last_error()->hint, "ts_executable_inspect() lists them");
    assert_fails(ts_engine_read(e, "fc.bias", bias, 4), TS_ERR_ARG,
                 "state 'fc.bias' has 20 bytes, not 4");
    assert_fails(ts_engine_read(e, "fc.bias", NULL, sizeof(bias)), TS_ERR_ARG,
                 "the data for state 'fc.bias' is NULL");
    assert_fails(ts_engine_write(e, NULL, bias, sizeof(bias)), TS_ERR_ARG,
                 "the name of the state is NULL");
    assert_int_equal(ts_engine_set(e, NULL, 1), TS_ERR_ARG);
    assert_int_equal(ts_engine_set(e, "momentum", 1), TS_ERR_ARG);
    assert_fails(ts_engine_set(e, "lr", NAN), TS_ERR_ARG, "the hyper-parameter 'lr' cannot be nan");
    assert_fails(ts_train(e, ROWS, (const void *[]){images, labels},
                          &(ts_train_options){.epochs = -1}, NULL),
                 TS_ERR_ARG, "epochs is -1; it must not be negative");
    assert_fails(ts_train(e, 3, (const void *[]){images, labels}, NULL, NULL), TS_ERR_ARG,
                 "one call takes 4 samples (1 micro-batches of 4), got 3");
    ts_engine_free(e);
    ts_executable_free(x);
}

/* Two engines outlive their executable, and it goes with the second. */
static void freed_in_the_other_order(void **state)
{
    const ts_executor *executor = *state;
    ts_executable *x = compile(*executor);
    float first, second;
    ts_engine *a, *b;

    assert_ok(ts_engine_new(x, &(ts_run_options){.threads = 1}, &a));
    assert_ok(ts_engine_new(x, &(ts_run_options){.threads = 2}, &b));
    ts_executable_free(x);
    assert_ok(ts_engine_run(a, (const void *[]){images, labels}, (void *[]){NULL, &first}));
    ts_engine_free(a);
    assert_ok(ts_engine_run(b, (const void *[]){images, labels}, (void *[]){NULL, &second}));
    ts_engine_free(b);
    assert_true(first == second && first > 0);
}

/* The bias after a step from 0 with these labels. */
static void step(const ts_executable *x, const int32_t *t, float *loss, float *bias)
{
    static const float zero[CLASSES][FEATURES];
    ts_engine *e;

    assert_ok(ts_engine_new(x, &(ts_run_options){.threads = 1}, &e));
    assert_ok(ts_engine_write(e, "fc.weight", zero, sizeof(zero)));
    assert_ok(ts_engine_write(e, "fc.bias", zero, sizeof(zero[0][0]) * CLASSES));
    assert_ok(ts_engine_run(e, (const void *[]){images, t}, (void *[]){NULL, loss}));
    assert_ok(ts_engine_read(e, "fc.bias", bias, sizeof(*bias) * CLASSES));
    ts_engine_free(e);
}

/* The loss is NaN, and such a sample adds nothing to the gradient. */
static void labels_that_are_no_class(void **state)
{
    static const int32_t wrong[] = {CLASSES, -1, INT32_MAX, INT32_MIN, -100};
    const ts_executor *executor = *state;
    ts_executable *x = compile(*executor);

    for (int i = 0; i < TS_COUNT(wrong); i++) {
        int32_t t[ROWS] = {wrong[i], 1, 1, 1};
        float loss, bias[CLASSES];
        step(x, t, &loss, bias);
        assert_true(isnan(loss));
        for (int c = 0; c < CLASSES; c++) /* lr * (1 for the label - 1 / classes) of three rows */
            assert_float_equal(bias[c], 0.5 * 3 * ((c == 1) - 1.0 / CLASSES), 1e-6);
    }
    ts_executable_free(x);
}

int main(void)
{
    static ts_executor native = TS_EXECUTOR_NATIVE, reference = TS_EXECUTOR_REFERENCE;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_to_return),
        cmocka_unit_test(outputs_that_nothing_computes),
        {"outputs_that_are_operands", outputs_that_are_operands, NULL, NULL, &native},
        {"outputs_that_are_operands, reference", outputs_that_are_operands, NULL, NULL, &reference},
        cmocka_unit_test(options_that_are_not_there),
        cmocka_unit_test(null_where_something_belongs),
        cmocka_unit_test(wrong_calls_of_an_engine),
        {"freed_in_the_other_order", freed_in_the_other_order, NULL, NULL, &native},
        {"freed_in_the_other_order, reference", freed_in_the_other_order, NULL, NULL, &reference},
        {"labels_that_are_no_class", labels_that_are_no_class, NULL, NULL, &native},
        {"labels_that_are_no_class, reference", labels_that_are_no_class, NULL, NULL, &reference},
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
