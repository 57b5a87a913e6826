/* engine.c - an engine's weights as a file: a run goes on with the same bits, names that do not fit
 * change nothing. */
#include "support.h"
#include "tessera/store.h"
#include <tessera.h>

static ts_executable *compile(int64_t out)
{
    ts_graph *g = ts_graph_new("net");
    ts_value *x = ts_input(g, "x", TS_F32, 4, 6), *t = ts_input(g, "t", TS_I32, 4);
    ts_value *w = ts_weight(g, "scale", 6);
    ts_optimizer adam = ts_adam(0.01);
    ts_executable *exe;

    ts_loss(ts_cross_entropy(ts_linear(ts_mul(x, w), "fc", out), t));
    assert_ok(ts_compile(
        g, &(ts_options){.optimizer = &adam, .executor = TS_EXECUTOR_REFERENCE, .cache_dir = ""},
        &exe));
    ts_graph_free(g);
    return exe;
}

static float step(ts_engine *e)
{
    static const float x[24] = {1, 2, -1, 0.5f, 3, 1, 0, 1};
    static const int32_t t[4] = {0, 1, 1, 0};
    float loss;

    assert_ok(ts_engine_run(e, (const void *[]){x, t}, (void *[]){&loss}));
    return loss;
}

static void a_run_goes_on_from_a_file(void **state)
{
    char path[] = "/tmp/tessera-engine-XXXXXX.pth";
    ts_executable *exe = compile(2), *other = compile(3);
    ts_engine *a, *b, *c;
    float before[18], after[18];

    (void)state;
    assert_true(mkstemps(path, 4) >= 0);
    assert_ok(ts_engine_new(exe, &(ts_run_options){.seed = 1}, &a));
    assert_ok(ts_engine_new(exe, &(ts_run_options){.seed = 2}, &b));
    assert_ok(ts_engine_new(other, NULL, &c));
    for (int i = 0; i < 3; i++)
        step(a);
    assert_ok(ts_engine_save(a, path));
    assert_ok(ts_engine_load(b, path));
    for (int i = 0; i < 3; i++) {
        float x = step(a), y = step(b);
        assert_memory_equal(&x, &y, sizeof(x));
    }
    assert_ok(ts_engine_read(c, "fc.weight", before, sizeof(before)));
    assert_fails(ts_engine_load(c, path), TS_ERR_SHAPE,
                 "fc.weight has 48 bytes of f32 in the file and 72 of f32 in the engine");
    assert_ok(ts_engine_read(c, "fc.weight", after, sizeof(after)));
    assert_memory_equal(before, after, sizeof(before));
    assert_fails(ts_engine_load(c, "/nowhere.pth"), TS_ERR_FILE,
                 "cannot open /nowhere.pth: No such file or directory");
    remove(path);
    ts_engine_free(a);
    ts_engine_free(b);
    ts_engine_free(c);
    ts_executable_free(exe);
    ts_executable_free(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_run_goes_on_from_a_file)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
