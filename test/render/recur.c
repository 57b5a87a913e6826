/* recur.c - recurrent layers' loops against the reference executor, trained: blocks of samples of several tiles, tiles that
 * are not full, widths that vectors do not fill, both directions; and the same bits for any number of threads.
 *
 * The machine has caches of a few kilobytes, so that few samples have many blocks. */
#include "compare.h"
#include "run/run.h"
#include "support.h"

#define SMALL                                                                                      \
    "cores=4 line=64 level1=4096 level2=16384 level3=65536 unit=32 units=2 latency=4 near=32 "     \
    "far=25 memory=8 meet=64 hertz=3.5e9"

enum { CALLS = 2 };

static ts_value *weight(ts_graph *g, const char *layer, const char *name, int64_t rows,
                        int64_t columns)
{
    char text[64];
    ts_init init = {TS_INIT_UNIFORM, -0.3, 0.3};

    snprintf(text, sizeof(text), "%s.%s", layer, name);
    return columns ? ts_param(g, text, TS_F32, init, rows, columns)
                   : ts_param(g, text, TS_F32, init, rows);
}

/* Two layers in two directions of a cell with so many gates, and the sum of squares of all it makes. */
static ts_value *layer(ts_value *x, const char *cell, int gates, int64_t samples, int64_t width)
{
    ts_graph *g = x->graph;
    ts_value *params[16], *y, *h, *c = NULL, *state = ts_input(g, cell, TS_F32, 4, samples, width);
    int64_t in = 5;

    for (int i = 0; i < 4; i++) {
        char name[4][8];
        for (int k = 0; k < 4; k++)
            snprintf(name[k], sizeof(name[k]), "w%d_%d", i, k);
        in = i < 2 ? 5 : 2 * width;
        params[4 * i] = weight(g, cell, name[0], gates * width, in);
        params[4 * i + 1] = weight(g, cell, name[1], gates * width, width);
        params[4 * i + 2] = weight(g, cell, name[2], gates * width, 0);
        params[4 * i + 3] = weight(g, cell, name[3], gates * width, 0);
    }
    if (gates == 4)
        y = ts_lstm(x, 2, (ts_value *[]){state, state}, 16, params, true, 2, 0, true, true, false,
                    &h, &c);
    else if (gates == 3)
        y = ts_gru(x, state, 16, params, true, 2, 0, true, true, false, &h);
    else
        y = ts_rnn_relu(x, state, 16, params, true, 2, 0, true, true, false, &h);
    ts_output(y, cell);
    h = ts_add(ts_sum(ts_square(y), 0, NULL, false), ts_sum(h, 0, NULL, false));
    return c ? ts_add(h, ts_sum(ts_square(c), 0, NULL, false)) : h;
}

static ts_graph *model(int64_t samples, int64_t width)
{
    ts_graph *g = ts_graph_new("recurrent");
    ts_value *x = ts_input(g, "x", TS_F32, 4, samples, 5);

    ts_loss(ts_add(ts_add(layer(x, "lstm", 4, samples, width), layer(x, "gru", 3, samples, width)),
                   layer(x, "relu", 1, samples, width)));
    return g;
}

static void same(const results *p, const results *q, double least, const char *how)
{
    for (int i = 0; i < p->n; i++) {
        int64_t at;
        if (distance(p, q, i, false, &at) > least)
            fail_msg("%s: %s, element %ld: %.9g, not %.9g", how, p->info[i].name, (long)at,
                     ts_dtype_get(q->info[i].dtype, q->data[i], at),
                     ts_dtype_get(p->info[i].dtype, p->data[i], at));
    }
}

static void check(ts_graph *g, const char *isa, const char *skip, const results *want)
{
    ts_optimizer sgd = ts_sgd(0.01);
    ts_options opt = {.cache_dir = "",
                      .executor = TS_EXECUTOR_NATIVE,
                      .isa = isa,
                      .optimizer = &sgd,
                      .skip = skip};
    results one = {0}, three = {0};
    ts_executable *x;

    assert_ok(ts_compile(g, &opt, &x));
    assert_int_equal(strstr(ts_executable_source(x), "/* steps ") == NULL, skip != NULL);
    assert_ok(run_all(x, &opt, 1, CALLS, 7, 0, &one));
    assert_ok(run_all(x, &opt, 3, CALLS, 7, 0, &three));
    same(want, &one, 1e-4, isa ? isa : "native");
    same(&one, &three, 0, "three threads");
    results_free(&one);
    results_free(&three);
    ts_executable_free(x);
}

static void trains(void **state)
{
    static const int64_t sizes[][2] = {{29, 20}, {3, 7}, {1, 2}};
    ts_optimizer sgd = ts_sgd(0.01);
    ts_options opt = {.cache_dir = "", .executor = TS_EXECUTOR_REFERENCE, .optimizer = &sgd};

    (void)state;
    setenv("TESSERA_MACHINE", SMALL, 1);
    for (int i = 0; i < TS_COUNT(sizes); i++) {
        ts_graph *g = model(sizes[i][0], sizes[i][1]);
        ts_executable *ref;
        results want = {0};
        assert_ok(ts_compile(g, &opt, &ref));
        assert_ok(run_all(ref, &opt, 1, CALLS, 7, 0, &want));
        check(g, NULL, NULL, &want);
        if (!i) /* tiles that are one vector, or not a whole number of them */
            check(g, "x86-64-v3", NULL, &want), check(g, "portable", NULL, &want);
        if (i == 1)
            check(g, "portable", "strips", &want);
        results_free(&want);
        ts_executable_free(ref);
        ts_graph_free(g);
    }
    unsetenv("TESSERA_MACHINE");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(trains)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
