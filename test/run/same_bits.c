/* same_bits.c - any number of threads computes the same bits: weights, optimiser state, losses. */
#include "models/nets.h"
#include "run/run.h"
#include "support.h"

typedef struct net {
    const char *name;
    int64_t batch;
    int D, A;
} net;

enum { SAMPLES = 512, PIXELS = 28 * 28 };

static float images[SAMPLES][PIXELS];
static int32_t labels[SAMPLES];

static int updates(void)
{
    return test_brief() ? 50 : 200;
}

/* Ten blurred blobs and noise: enough structure for the loss to fall. */
static int fill(void **state)
{
    (void)state;
    for (int i = 0; i < SAMPLES; i++) {
        labels[i] = i % 10;
        for (int p = 0; p < PIXELS; p++)
            images[i][p] = (float)(ts_random_unit(1, 1, (uint64_t)i, (uint64_t)p) +
                                   (p / 79 == labels[i]) - 0.5);
    }
    return 0;
}

static ts_executable *compile(const net *n)
{
    ts_optimizer momentum = ts_sgd(0.01), sgd = ts_sgd(0.03), adamw = ts_adamw(0.001);
    ts_options opt = {.device_iterations = n->D,
                      .gradient_accumulation = n->A,
                      .output_mode = TS_OUTPUT_ALL,
                      .cache_dir = ""};
    ts_executable *x;
    ts_graph *g;

    momentum.hyper.momentum = 0.9;
    switch (n->name[0]) {
    case 'f':
        g = net_fashion(n->batch);
        opt.optimizer = &momentum;
        break;
    case 'd':
        g = net_digits(n->batch, true);
        opt.optimizer = &sgd;
        break;
    default:
        g = net_pipeline(n->batch);
        opt.optimizer = &adamw;
    }
    if (ts_compile(g, &opt, &x))
        fail_msg("%s", ts_error_text());
    ts_graph_free(g);
    return x;
}

/* Trains and returns the losses, then every state, in one block. */
static char *result(const ts_executable *x, const net *n, int threads, size_t *bytes)
{
    int calls = updates() / n->D, per_call = n->D * n->A;
    int64_t rows = n->batch * per_call;
    const ts_tensor_info *t;
    ts_engine *e;
    char *all, *at;

    *bytes = sizeof(float) * (size_t)(calls * per_call);
    for (int i = 0; (t = ts_executable_tensor(x, TS_ROLE_STATE, i)); i++)
        *bytes += t->bytes;
    at = all = test_malloc(*bytes);
    if (ts_engine_new(x, &(ts_run_options){.threads = threads, .seed = 42}, &e))
        fail_msg("%s", ts_error_text());
    for (int c = 0; c < calls; c++, at += sizeof(float) * (size_t)per_call) {
        int64_t from = c * 37 % (SAMPLES - rows + 1);
        if (ts_engine_run(e, (const void *[]){images[from], labels + from}, (void *[]){NULL, at}))
            fail_msg("%s", ts_error_text());
    }
    for (int i = 0; (t = ts_executable_tensor(x, TS_ROLE_STATE, i)); i++, at += t->bytes)
        assert_int_equal(ts_engine_read(e, t->name, at, t->bytes), TS_OK);
    ts_engine_free(e);
    return all;
}

static void test_same_bits(void **state)
{
    static const int threads[] = {2, 3, 4, 7};
    const net *n = *state;
    ts_executable *x = compile(n);
    size_t bytes;
    char *one = result(x, n, 1, &bytes);
    float first = ((float *)one)[0], last = ((float *)one)[updates() * n->A - 1];

    assert_true(last < first && last > 0);
    for (int i = 0; i < TS_COUNT(threads); i++) {
        char *many = result(x, n, threads[i], &bytes);
        if (memcmp(one, many, bytes))
            fail_msg("%s: %d threads and 1 differ", n->name, threads[i]);
        test_free(many);
    }
    test_free(one);
    ts_executable_free(x);
}

int main(void)
{
    static net fashion = {"fashion", 16, 10, 1}, digits = {"digits", 8, 10, 1},
               pipeline = {"pipeline", 40, 5, 2};
    const struct CMUnitTest tests[] = {
        {"test_fashion", test_same_bits, NULL, NULL, &fashion},
        {"test_digits", test_same_bits, NULL, NULL, &digits},
        {"test_pipeline", test_same_bits, NULL, NULL, &pipeline},
    };

    return cmocka_run_group_tests(tests, fill, NULL);
}
