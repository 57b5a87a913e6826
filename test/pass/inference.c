/* inference.c - one graph, trained and used: the net alone computes what a graph that was built for
 * inference does, with the states of the training. */
#include "op/op.h"
#include "support.h"
#include "tessera/model.h"

static const char net[] = "input 2 3 3\n"
                          "c: conv2d 4 2\n"
                          "n: batch_norm\n"
                          "relu\n"
                          "dropout 0.5\n"
                          "flatten\n"
                          "f: linear 3\n"
                          "loss cross_entropy\n";

enum { BATCH = 4, PIXELS = 18, CLASSES = 3 };

static float sample[BATCH * PIXELS];
static const int32_t labels[BATCH] = {0, 1, 2, 1};

static ts_executable *compile(const ts_graph *g, ts_options o)
{
    ts_executable *x;

    assert_ok(ts_compile(g, &o, &x));
    return x;
}

static ts_engine *engine(const ts_executable *x)
{
    ts_engine *e;

    assert_ok(ts_engine_new(x, NULL, &e));
    return e;
}

static void train(ts_engine *e)
{
    float out[BATCH * CLASSES], loss;

    for (int i = 0; i < BATCH * PIXELS; i++)
        sample[i] = (float)(i * 7 % 11) - 5;
    for (int i = 0; i < 5; i++)
        assert_ok(ts_engine_run(e, (const void *[]){sample, labels}, (void *[]){out, &loss}));
}

static void copy_states(const ts_executable *x, const ts_engine *from, ts_engine *to)
{
    const ts_tensor_info *t;
    char data[4096];

    for (int i = 0; (t = ts_executable_tensor(x, TS_ROLE_STATE, i)); i++) {
        assert_true(t->bytes <= sizeof(data));
        assert_ok(ts_engine_read(from, t->name, data, t->bytes));
        assert_ok(ts_engine_write(to, t->name, data, t->bytes));
    }
}

static void one_graph_trains_and_infers(void **state)
{
    ts_optimizer sgd = ts_sgd(0.1);
    float ours[BATCH * CLASSES], theirs[BATCH * CLASSES];
    ts_executable *t, *x, *y;
    ts_engine *trained, *a, *b;
    ts_graph *g, *other;
    ts_model *m;

    (void)state;
    assert_ok(ts_model_parse(net, "net.txt", &m));
    assert_ok(ts_model_graph(m, &(ts_model_options){.batch = BATCH, .training = true}, &g));
    assert_ok(ts_model_graph(m, &(ts_model_options){.batch = BATCH}, &other));
    t = compile(g, (ts_options){.optimizer = &sgd});
    x = compile(g, (ts_options){.inference = true});
    y = compile(other, (ts_options){0});
    trained = engine(t);
    a = engine(x);
    b = engine(y);
    train(trained);
    assert_null(ts_executable_tensor(x, TS_ROLE_INPUT, 1)); /* no labels */
    assert_null(ts_executable_tensor(x, TS_ROLE_OUTPUT, 1));
    copy_states(x, trained, a);
    copy_states(y, trained, b);
    assert_ok(ts_engine_run(a, (const void *[]){sample}, (void *[]){ours}));
    assert_ok(ts_engine_run(b, (const void *[]){sample}, (void *[]){theirs}));
    assert_memory_equal(ours, theirs, sizeof(ours));
    ts_engine_free(trained);
    ts_engine_free(a);
    ts_engine_free(b);
    ts_executable_free(t);
    ts_executable_free(x);
    ts_executable_free(y);
    ts_graph_free(g);
    ts_graph_free(other);
    ts_model_free(m);
}

static void what_inference_cannot_be_is_refused(void **state)
{
    ts_graph *g = ts_graph_new("net"), *random = ts_graph_new("random");
    ts_value *x = ts_input(g, "x", TS_F32, 4), *y = ts_input(random, "x", TS_F32, 4);
    ts_optimizer sgd = ts_sgd(0.1);
    ts_executable *out;

    (void)state;
    ts_loss(ts_mean(ts_linear(ts_reshape(x, 1, 4), "f", 2), 0, NULL, false));
    assert_fails(ts_compile(g, &(ts_options){.inference = true}, &out), TS_ERR_ARG,
                 "nothing comes out of the graph 'net' in inference: its only result is the loss");
    assert_fails(ts_compile(g, &(ts_options){.inference = true, .optimizer = &sgd}, &out),
                 TS_ERR_ARG, "a graph is compiled for inference or with an optimizer, not both");
    ts_output(ts_add(y, ts_rand(random, TS_F32, 4)), "y");
    assert_fails(ts_compile(random, &(ts_options){.inference = true}, &out), TS_ERR_UNSUPPORTED,
                 "the graph makes random numbers by 'rand', which inference has not");
    ts_graph_free(g);
    ts_graph_free(random);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(one_graph_trains_and_infers),
                                       cmocka_unit_test(what_inference_cannot_be_is_refused)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
