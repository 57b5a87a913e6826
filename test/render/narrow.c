/* narrow.c - convolutions that leave vectors half empty: few channels on one side or both, strides, batches that fill
 * no lanes. Each of them once went element by element, at a hundredth of the speed, and nothing said so: here every
 * contraction of a training step must be in vectors or panels, and be what the reference executor computes. */
#include "compare.h"
#include "render/render.h"
#include "run/run.h"
#include "support.h"

enum { CALLS = 2 };

typedef struct layer {
    int64_t samples, in, out, size, kernel, stride;
    bool transposed, line; /* pictures of one dim */
    int64_t dilation;
} layer;

/* A convolution with its gradients, behind one that gives it an input's gradient. */
static ts_graph *net(const layer *l)
{
    ts_graph *g = ts_graph_new("narrow");
    ts_value *x = l->line ? ts_input(g, "x", TS_F32, l->samples, l->in, 8 * l->size)
                          : ts_input(g, "x", TS_F32, l->samples, l->in, l->size, l->size);
    int64_t apart = l->dilation, pad = apart * (l->kernel - 1) / 2;

    x = l->line ? ts_conv1d(x, "a", l->in, 3, .padding = 1)
                : ts_conv2d(x, "a", l->in, 3, .padding = 1);
    if (l->transposed)
        x = l->line ? ts_conv_transpose1d(x, "b", l->out, l->kernel, .stride = l->stride,
                                          .padding = pad)
                    : ts_conv_transpose2d(x, "b", l->out, l->kernel, .stride = l->stride,
                                          .padding = pad);
    else
        x = l->line ? ts_conv1d(x, "b", l->out, l->kernel, .stride = l->stride, .padding = pad,
                                .dilation = apart)
                    : ts_conv2d(x, "b", l->out, l->kernel, .stride = l->stride, .padding = pad,
                                .dilation = apart);
    ts_loss(ts_mean(ts_square(x), 0, NULL, false));
    return g;
}

/* The functions of contractions, and those of them that have neither vectors nor panels. */
static int in_scalars(const char *source, int *contractions)
{
    int found = 0;

    for (const char *unit = strstr(source, "/* unit"), *next; unit; unit = next) {
        const char *conv = strstr(unit, " = conv"), *how[] = {"/* lanes ", "/* panels: ", "f32x"};
        bool any = false;
        next = strstr(unit + 1, "/* unit");
        if (!conv || (next && conv > next))
            continue;
        ++*contractions;
        for (int i = 0; i < TS_COUNT(how); i++) {
            const char *p = strstr(conv, how[i]);
            any = any || (p && (!next || p < next));
        }
        found += !any;
    }
    return found;
}

static void check(const layer *l)
{
    ts_optimizer sgd = ts_sgd(0.1);
    ts_options opt = {.cache_dir = "", .executor = TS_EXECUTOR_REFERENCE, .optimizer = &sgd};
    ts_graph *g = net(l);
    ts_executable *ref, *exe;
    results want = {0}, got = {0};
    int contractions = 0, scalars;

    assert_ok(ts_compile(g, &opt, &ref));
    assert_ok(run_all(ref, &opt, 1, CALLS, 7, 0, &want));
    opt.executor = TS_EXECUTOR_NATIVE;
    assert_ok(ts_compile(g, &opt, &exe));
    scalars = in_scalars(ts_executable_source(exe), &contractions);
    if (scalars || contractions < 3)
        fail_msg(
            "%ld samples, %ld to %ld channels, kernel %ld, stride %ld%s: %d of %d contractions "
            "are done element by element",
            (long)l->samples, (long)l->in, (long)l->out, (long)l->kernel, (long)l->stride,
            l->transposed ? ", transposed" : "", scalars, contractions);
    assert_ok(run_all(exe, &opt, 3, CALLS, 7, 0, &got));
    for (int i = 0; i < want.n; i++) {
        int64_t at;
        if (distance(&want, &got, i, false, &at) > 2e-5)
            fail_msg("%ld to %ld channels, kernel %ld, stride %ld: %s is not the reference's",
                     (long)l->in, (long)l->out, (long)l->kernel, (long)l->stride,
                     want.info[i].name);
    }
    results_free(&want);
    results_free(&got);
    ts_executable_free(ref);
    ts_executable_free(exe);
    ts_graph_free(g);
}

static void every_way(void **state)
{
    static const layer layers[] = {
        /* pictures are made: many channels to few, with channels last */
        {5, 32, 3, 12, 3, 1, false, false, 1},
        {5, 32, 3, 10, 4, 2, true, false, 1},
        {8, 48, 1, 9, 5, 1, false, false, 1},
        {3, 24, 12, 9, 3, 2, false, false, 1},
        {2, 32, 5, 9, 7, 2, false, false, 1},
        /* few channels throughout, a batch that fills no lanes: rows */
        {1, 5, 10, 12, 3, 2, false, false, 1},
        {1, 12, 20, 12, 4, 2, true, false, 1},
        {7, 20, 12, 12, 3, 2, true, false, 1},
        {3, 6, 5, 12, 2, 2, true, false, 1},
        {1, 12, 20, 12, 9, 4, false, true, 1},
        {7, 12, 20, 12, 4, 2, true, true, 1},
        /* strides and dilations that share a factor, and that do not */
        {1, 5, 10, 13, 3, 2, false, false, 2},
        {3, 12, 20, 13, 3, 3, false, false, 2},
        {5, 32, 32, 13, 3, 2, false, false, 2},
        {8, 12, 20, 13, 3, 2, false, false, 4},
        {2, 12, 6, 9, 3, 4, true, false, 2},
        {1, 12, 20, 12, 5, 1, false, true, 4},
        /* and in the lanes */
        {8, 5, 10, 9, 3, 2, false, false, 1},
        {16, 12, 3, 9, 4, 2, true, false, 1},
    };

    (void)state;
    for (int i = 0; i < TS_COUNT(layers); i++)
        check(&layers[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_way)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
