/* share.c - kernels that differ only in where their tensors lie are compiled once; those that
 * differ in anything else are not, and either way the numbers are the reference executor's. */
#include "compare.h"
#include "render/render.h"
#include "run/run.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { LAYERS = 4 };

static int count(const char *text, const char *what)
{
    int n = 0;

    for (const char *p = strstr(text, what); p; p = strstr(p + 1, what))
        n++;
    return n;
}

/* How many kernels run a function that another runs, too: rows of the table, {k_..., "fc0 matmul", ... */
static int shared_in(const char *source)
{
    int n = 0;

    for (const char *p = strstr(source, "kernel table[] = {"); p && (p = strstr(p, "    {k_"));
         p++) {
        char row[64];
        snprintf(row, sizeof(row), "%.*s", (int)strcspn(p, ","), p);
        n += count(source, row) > 1;
    }
    return n;
}

/* How many kernels of the program share a function. Frees g. */
static int shared(ts_graph *g, ts_options opt)
{
    char why[256];
    ts_executable *exe = native_as_reference(g, opt, 1e-5, why, sizeof(why));
    int n;

    if (!exe)
        fail_msg("%s", why);
    n = shared_in(ts_executable_source(exe));
    ts_executable_free(exe);
    ts_graph_free(g);
    return n;
}

static ts_value *layers(ts_value *x)
{
    for (int i = 0; i < LAYERS; i++) {
        char name[16];
        snprintf(name, sizeof(name), "fc%d", i);
        x = ts_relu(ts_linear(x, name, 24));
    }
    return x;
}

static void equal_layers(void **state)
{
    ts_graph *g = ts_graph_new("equal");

    (void)state;
    ts_output(layers(ts_input(g, "x", TS_F32, 5, 24)), "y");
    /* the first reads an input, the last writes an output: the same function still */
    assert_int_equal(shared(g, (ts_options){.skip = "layout"}), LAYERS);
}

static void their_training(void **state)
{
    ts_graph *g = ts_graph_new("training");
    ts_value *x = ts_input(g, "x", TS_F32, 5, 24), *loss;
    ts_optimizer sgd = ts_sgd(0.1);

    (void)state;
    loss = ts_mse_loss(layers(x), ts_input(g, "xt", TS_F32, 5, 24));
    ts_loss(loss);
    ts_output(loss, "loss");
    assert_true(shared(g, (ts_options){.optimizer = &sgd}) > LAYERS);
}

/* Layers that differ in a factor only. */
static void other_constants(void **state)
{
    ts_graph *g = ts_graph_new("constants");
    ts_value *x = ts_input(g, "x", TS_F32, 5, 24);

    (void)state;
    x = ts_mul_scalar(ts_relu(ts_linear(x, "a", 24)), 2);
    x = ts_mul_scalar(ts_relu(ts_linear(x, "b", 24)), 3);
    ts_output(x, "y");
    assert_int_equal(shared(g, (ts_options){.skip = "layout"}), 0);
}

/* A dropout's numbers follow from its place in the graph, which is in its text. */
static void other_random_numbers(void **state)
{
    ts_graph *g = ts_graph_new("random");
    ts_value *x = ts_input(g, "x", TS_F32, 5, 24);

    (void)state;
    x = ts_dropout(ts_linear(x, "a", 24), 0.5, true);
    x = ts_dropout(ts_linear(x, "b", 24), 0.5, true);
    ts_output(x, "y");
    assert_int_equal(shared(g, (ts_options){.skip = "layout"}), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_layers),
        cmocka_unit_test(their_training),
        cmocka_unit_test(other_constants),
        cmocka_unit_test(other_random_numbers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
