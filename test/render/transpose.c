/* transpose.c - rows to batch in the lanes and back, for sizes that the lanes divide and others. */
#include "tessera.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef struct shape {
    int samples, features, lanes;
    const char *isa;
    bool blocks; /* turned in registers */
} shape;

/* x in the lanes, doubled there, and back as rows: both directions. */
static ts_executable *compile(const shape *s)
{
    char text[512];
    ts_graph *g;
    ts_executable *x = NULL;

    snprintf(text, sizeof(text),
             "graph g\n"
             "input %%x : f32[%d,1,%d]\n"
             "%%1 : f32[%d,1,%d] @layout 012/0x%d = nop(%%x)\n"
             "%%2 : f32[%d,1,%d] @layout 012/0x%d = add(%%1, %%1)\n"
             "%%3 : f32[%d,%d] = reshape(%%2) shape=[%d,%d]\n"
             "%%4 : f32[%d,%d] = nop(%%3)\n"
             "output y = %%4\n",
             s->samples, s->features, s->samples, s->features, s->lanes, s->samples, s->features,
             s->lanes, s->samples, s->features, s->samples, s->features, s->samples, s->features);
    if (ts_graph_parse(text, &g) || ts_compile(g,
                                               &(ts_options){.executor = TS_EXEC_NATIVE,
                                                             .isa = s->isa,
                                                             .skip = "simplify,layout,order,fuse",
                                                             .cache_dir = ""},
                                               &x))
        fail_msg("%s", ts_error_text());
    ts_graph_free(g);
    return x;
}

static void check(const shape *s, int threads)
{
    ts_executable *exe = compile(s);
    ts_engine *e;
    int n = s->samples * s->features;
    float *x = malloc(sizeof(float) * (size_t)n), *y = calloc((size_t)n, sizeof(float));

    assert_int_equal(!!strstr(ts_executable_source(exe), "SWAP_"), s->blocks);
    for (int i = 0; i < n; i++)
        x[i] = (float)i + 0.25f;
    if (ts_engine_new(exe, &(ts_run_options){.threads = threads}, &e) ||
        ts_engine_run(e, (const void *[]){x}, (void *[]){y}))
        fail_msg("%s", ts_error_text());
    for (int i = 0; i < n; i++)
        if (y[i] != 2 * x[i])
            fail_msg("%d x %d, lanes %d, %s: element %d is %g, not %g", s->samples, s->features,
                     s->lanes, s->isa ? s->isa : "this machine", i, (double)y[i], 2 * (double)x[i]);
    ts_engine_free(e);
    ts_executable_free(exe);
    free(x);
    free(y);
}

static void there_and_back(void **state)
{
    static const shape shapes[] = {
        {16, 64, 16, NULL, true},       {16, 37, 16, NULL, true}, {48, 100, 16, NULL, true},
        {8, 8, 8, "portable", true},    {24, 203, 8, NULL, true}, {40, 9, 8, "portable", true},
        {16, 15, 16, NULL, false},      {8, 7, 8, NULL, false}, /* less than a block */
        {20, 33, 8, "portable", false},                         /* lanes that are not full */
    };

    (void)state;
    for (size_t i = 0; i < sizeof(shapes) / sizeof(*shapes); i++)
        for (int threads = 1; threads <= 3; threads += 2)
            check(&shapes[i], threads);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(there_and_back)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
