/* remake.c - what the backward pass makes again is what the forward pass made, to the bit, and less is kept for it. */
#include "compare.h"
#include "support.h"
#include "tessera.h"

/* A norm and two activations between products that are large enough for both to pay. */
static ts_graph *net(void)
{
    ts_graph *g = ts_graph_new("net");
    ts_value *x = ts_input(g, "x", TS_F32, 512, 16);

    x = ts_layer_norm(ts_linear(x, "in", 512), "norm");
    x = ts_linear(ts_gelu(ts_linear(x, "wide", 24576)), "narrow", 512);
    x = ts_linear(ts_silu(ts_linear(x, "again", 12288)), "out", 512);
    ts_output(x, "y");
    ts_loss(ts_mean(ts_square(x), 0, NULL, false));
    return g;
}

static size_t train(ts_options opt, const char *skip, int threads, results *r)
{
    ts_executable *x;
    size_t bytes;

    opt.executor = TS_EXECUTOR_NATIVE;
    opt.skip = skip;
    x = trained_by_sgd(net(), opt, threads, r);
    if (!x)
        fail_msg("%s", ts_error_text());
    bytes = ts_executable_stats(x).peak_bytes;
    ts_executable_free(x);
    return bytes;
}

static void same(ts_options opt, size_t least)
{
    results want, got;
    size_t kept = train(opt, "remake", 1, &want), less = train(opt, NULL, 2, &got);
    int64_t at;

    for (int i = 0; i < want.n; i++)
        if (distance(&want, &got, i, false, &at) > 0)
            fail_msg("%s, element %ld, differs", want.info[i].name, (long)at);
    if (less + least > kept)
        fail_msg("%zu bytes instead of %zu", less, kept);
    results_free(&want);
    results_free(&got);
}

static void same_bits(void **state)
{
    (void)state;
    same((ts_options){0}, 20 << 20);
}

/* A pipeline keeps what the backward pass needs for each micro-batch under way. */
static void in_a_pipeline(void **state)
{
    (void)state;
    same((ts_options){.devices = 2, .gradient_accumulation = 2}, 20 << 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(same_bits),
                                       cmocka_unit_test(in_a_pipeline)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
