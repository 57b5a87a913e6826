/* model.c - for test/python/test_models.py: a model's parameters, and its scores for weights and
 * samples that come from PyTorch.
 *
 *   model NAME BATCH SIZE...                   prints "name 5 1 3 3" for each state
 *   model NAME BATCH SIZE... < IN > OUT        with MODEL_RUN set: IN has the states in that order
 *                                              and the batch, OUT takes the scores; all f32
 */
#include "tessera/model.h"
#include <stdio.h>
#include <stdlib.h>

static void must(ts_status s)
{
    if (!s)
        return;
    fputs(ts_error_text(), stderr);
    exit(1);
}

static void *read_floats(size_t bytes)
{
    void *p = malloc(bytes);

    if (!p || fread(p, 1, bytes, stdin) != bytes) {
        fprintf(stderr, "%zu bytes of input are missing\n", bytes);
        exit(1);
    }
    return p;
}

static void list(const ts_executable *x)
{
    const ts_tensor_info *t;

    for (int i = 0; (t = ts_executable_tensor(x, TS_ROLE_STATE, i)); i++) {
        printf("%s", t->name);
        for (int d = 0; d < t->rank; d++)
            printf(" %ld", (long)t->dims[d]);
        printf("\n");
    }
}

static void run(const ts_executable *x)
{
    const ts_tensor_info *t, *out = ts_executable_tensor(x, TS_ROLE_OUTPUT, 0);
    void *images, *scores = malloc(out->bytes);
    ts_engine *e;

    must(ts_engine_new(x, NULL, &e));
    for (int i = 0; (t = ts_executable_tensor(x, TS_ROLE_STATE, i)); i++) {
        void *data = read_floats(t->bytes);
        must(ts_engine_write(e, t->name, data, t->bytes));
        free(data);
    }
    images = read_floats(ts_executable_tensor(x, TS_ROLE_INPUT, 0)->bytes);
    must(ts_engine_run(e, (const void *[]){images}, (void *[]){scores}));
    fwrite(scores, 1, out->bytes, stdout);
    ts_engine_free(e);
    free(images);
    free(scores);
}

int main(int argc, char **argv)
{
    int64_t dims[TS_MAX_RANK];
    ts_executable *x;
    ts_model *m;
    ts_graph *g;

    if (argc < 4 || argc > 3 + TS_MAX_RANK)
        return 2;
    for (int i = 3; i < argc; i++)
        dims[i - 3] = atoi(argv[i]);
    must(ts_model_load(argv[1], &m));
    must(ts_model_graph(
        m, &(ts_model_options){.batch = atoi(argv[2]), .rank = argc - 3, .dims = dims}, &g));
    must(ts_compile(
        g,
        &(ts_options){.executor = getenv("MODEL_RUN") ? TS_EXECUTOR_NATIVE : TS_EXECUTOR_REFERENCE},
        &x));
    getenv("MODEL_RUN") ? run(x) : list(x);
    ts_executable_free(x);
    ts_graph_free(g);
    ts_model_free(m);
    return 0;
}
