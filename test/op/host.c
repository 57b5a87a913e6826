/* host.c - calls of the host: values, results, gradients, order and failures, in both executors and
 * in a net whose activations and weights do not lie row-major. */
#include "run/run.h"
#include "tessera.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { N = 4, SEEN = 32 };

typedef struct host {
    int ids[SEEN], calls;
    float seen[8][N]; /* by id: what came last */
    int fail_at;      /* this id fails */
} host;

/* 1 swaps its two inputs; the others only look. */
static ts_status called(void *arg, int id, const void *const *in, void *const *out)
{
    host *h = arg;

    h->ids[h->calls++ % SEEN] = id;
    if (id == h->fail_at)
        return ts_fail(TS_ERR_ARG, "call %d went wrong", id);
    if (id < 8)
        memcpy(h->seen[id], in[0], sizeof(h->seen[id]));
    if (id == 1) {
        memcpy(out[0], in[1], sizeof(float[N]));
        memcpy(out[1], in[0], sizeof(float[N]));
    } else
        assert_null(out);
    return TS_OK;
}

static ts_engine *start(const ts_graph *g, ts_options opt, host *h)
{
    ts_executable *exe;
    ts_engine *e = NULL;

    opt.cache_dir = "";
    if (ts_compile(g, &opt, &exe) ||
        ts_engine_new(
            exe,
            &(ts_run_options){.seed = 3, .threads = 2, .host = h ? called : NULL, .host_arg = h},
            &e))
        fail_msg("%s", ts_error_text());
    ts_executable_free(exe);
    return e;
}

/* The values are computed, not inputs, and the results are used in sums: what would be fused. */
static void in_the_middle(void **state)
{
    static const float x[2][N] = {{1, 2, 3, 4}, {5, 6, 7, 8}};
    ts_graph *g = ts_graph_new("g");
    ts_value *a = ts_input(g, "a", TS_F32, N), *out[2], *two;

    (void)state;
    two = ts_mul_scalar(a, 2);
    assert_int_equal(ts_host_call(1, 2, (ts_value *[]){two, ts_neg(a)}, "f32[4] f32[4]", out), 2);
    ts_output(ts_add_scalar(ts_mul(out[0], a), 1), "y");
    ts_output(ts_sum(ts_tap(out[1], 2, -1), 0, NULL, false), "s");
    for (ts_executor x_ = TS_EXECUTOR_NATIVE; x_ <= TS_EXECUTOR_REFERENCE; x_++) {
        host h = {.fail_at = -1};
        ts_engine *e = start(g, (ts_options){.executor = x_, .device_iterations = 2}, &h);
        float y[2][N], s[2];
        assert_int_equal(ts_engine_run(e, (const void *[]){x}, (void *[]){y, s}), TS_OK);
        for (int i = 0; i < 2 * N; i++)
            assert_float_equal(y[i / N][i % N], 1 - x[i / N][i % N] * x[i / N][i % N], 1e-6);
        assert_float_equal(s[0], 20, 1e-6);
        assert_float_equal(s[1], 52, 1e-6);
        assert_int_equal(h.calls, 4);
        assert_int_equal(h.ids[0] * 1000 + h.ids[1] * 100 + h.ids[2] * 10 + h.ids[3], 1212);
        assert_float_equal(h.seen[2][3], 16, 0);
        ts_engine_free(e);
    }
    ts_graph_free(g);
}

/* A tap of a parameter sees the whole gradient, and changes nothing. */
static void gradients(void **state)
{
    static const float x[N] = {1, -2, 3, 0.5f};
    float w[2][N], loss;

    (void)state;
    for (ts_executor executor = TS_EXECUTOR_NATIVE; executor <= TS_EXECUTOR_REFERENCE; executor++) {
        for (int tapped = 0; tapped < 2; tapped++) {
            ts_graph *g = ts_graph_new("g");
            ts_value *a = ts_input(g, "a", TS_F32, N);
            ts_value *p = ts_param(g, "w", TS_F32, ((ts_init){TS_INIT_FULL, 0.25, 0}), N);
            ts_optimizer sgd = ts_sgd(0.5);
            host h = {.fail_at = -1};
            ts_engine *e;
            ts_value *q = tapped ? ts_tap(p, 3, 4) : p;
            ts_loss(ts_sum(ts_add(ts_mul(q, a), ts_square(q)), 0, NULL, false));
            e = start(g, (ts_options){.optimizer = &sgd, .executor = executor}, &h);
            assert_int_equal(ts_engine_run(e, (const void *[]){x}, (void *[]){&loss}), TS_OK);
            assert_int_equal(ts_engine_read(e, "w", w[tapped], sizeof(w[0])), TS_OK);
            assert_int_equal(h.calls, tapped * 2);
            for (int i = 0; i < N && tapped; i++) {
                assert_float_equal(h.seen[3][i], 0.25, 0);
                assert_float_equal(h.seen[4][i], x[i] + 0.5f, 1e-6);
            }
            ts_engine_free(e);
            ts_graph_free(g);
        }
        assert_memory_equal(w[0], w[1], sizeof(w[0]));
    }
}

/* 5 computes (a b, a + k) of a, b and whole numbers k; 6 the gradients of a and b. */
static ts_status product(void *arg, int id, const void *const *in, void *const *out)
{
    const float *a = in[0], *b = in[1];
    const int *k = in[2];

    ++*(int *)arg;
    for (int i = 0; i < N && id == 5; i++) {
        ((float *)out[0])[i] = a[i] * b[i];
        ((float *)out[1])[i] = a[i] + (float)k[i];
    }
    for (int i = 0; i < N && id == 6; i++) {
        const float *y = in[3], *dy = in[5], *dz = in[6];

        if (y[i] != a[i] * b[i])
            return ts_fail(TS_ERR_INTERNAL, "element %d of the result is %g", i, (double)y[i]);
        ((float *)out[0])[i] = dy[i] * b[i] + dz[i];
        ((float *)out[1])[i] = dy[i] * a[i];
    }
    return TS_OK;
}

static ts_engine *trained(bool host, bool both, ts_executor executor, ts_run_options *run)
{
    ts_graph *g = ts_graph_new("g");
    ts_value *w = ts_param(g, "w", TS_F32, ((ts_init){TS_INIT_FULL, 0.25, 0}), N);
    ts_value *b = ts_input(g, "b", TS_F32, N), *k = ts_input(g, "k", TS_I32, N);
    ts_value *in[3] = {ts_tanh(w), b, k}, *out[2];
    ts_optimizer sgd = ts_sgd(0.5);
    ts_executable *exe;
    ts_engine *e = NULL;

    if (host)
        assert_int_equal(ts_host_op(5, 6, 3, in, "f32[4] f32[4]", out), 2);
    else {
        out[0] = ts_mul(in[0], in[1]);
        out[1] = ts_add(in[0], ts_cast(in[2], TS_F32));
    }
    out[0] = ts_square(out[0]);
    ts_loss(ts_sum(both ? ts_add(out[0], ts_square(out[1])) : out[0], 0, NULL, false));
    if (ts_compile(g, &(ts_options){.optimizer = &sgd, .executor = executor, .cache_dir = ""},
                   &exe) ||
        ts_engine_new(exe, run, &e))
        fail_msg("%s", ts_error_text());
    ts_executable_free(exe);
    ts_graph_free(g);
    return e;
}

/* An op of the host with a gradient trains as the same op of ours; a result that nobody uses has
 * the gradient 0. */
static void own_gradient(void **state)
{
    static const float b[N] = {1, -2, 3, 0.5f};
    static const int k[N] = {1, 2, -1, 0};
    float w[2][N], loss[2];

    (void)state;
    for (ts_executor x = TS_EXECUTOR_NATIVE; x <= TS_EXECUTOR_REFERENCE; x++) {
        for (int both = 0; both < 2; both++) {
            for (int host = 0; host < 2; host++) {
                int calls = 0;
                ts_engine *e =
                    trained(host, both, x, &(ts_run_options){.host = product, .host_arg = &calls});

                for (int i = 0; i < 3; i++)
                    assert_int_equal(
                        ts_engine_run(e, (const void *[]){b, k}, (void *[]){&loss[host]}), TS_OK);
                assert_int_equal(ts_engine_read(e, "w", w[host], sizeof(w[0])), TS_OK);
                assert_int_equal(calls, host * 6);
                ts_engine_free(e);
            }
            assert_float_equal(loss[0], loss[1], 1e-6);
            for (int i = 0; i < N; i++)
                assert_float_equal(w[0][i], w[1][i], 1e-6);
        }
    }
}

enum { B = 8, C = 3, S = 6 };
static float *wanted;

static ts_status row_major(void *arg, int id, const void *const *in, void *const *out)
{
    const float *x = in[0];

    (void)arg, (void)out;
    if (id == 7)
        for (int i = 0; i < B * C * S * S; i++)
            if (fabsf(x[i] - wanted[i]) > 1e-4f)
                return ts_fail(TS_ERR_INTERNAL, "element %d is %g, not %g", i, (double)x[i],
                               (double)wanted[i]);
    return TS_OK;
}

/* Activations with the batch in the lanes and weights with channels last reach the host
 * row-major. */
static void layouts(void **state)
{
    static float x[B * C * (S + 2) * (S + 2)], y[B * C * S * S];
    ts_run_options run = {.host = row_major};
    ts_executable *exe;
    ts_engine *e;

    (void)state;
    for (int i = 0; i < TS_COUNT(x); i++)
        x[i] = (float)(i * 7 % 13) - 6;
    wanted = y;
    for (int pass = 0; pass < 2; pass++) { /* the first without the host: what is wanted */
        ts_graph *g = ts_graph_new("g");
        ts_value *a = ts_input(g, "a", TS_F32, B, C, S + 2, S + 2), *z;
        ts_value *w = ts_param(g, "w", TS_F32, ((ts_init){TS_INIT_UNIFORM, -1, 1}), C, C, 3, 3);
        z = ts_apply(g, "conv", 2, (ts_value *[]){a, w}, 0, NULL);
        ts_output(pass ? ts_relu(ts_tap(z, 7, -1)) : z, "z");
        if (ts_compile(g, &(ts_options){.cache_dir = ""}, &exe) || ts_engine_new(exe, &run, &e))
            fail_msg("%s", ts_error_text());
        if (!pass)
            assert_int_equal(ts_engine_run(e, (const void *[]){x}, (void *[]){y}), TS_OK);
        else if (ts_engine_run(e, (const void *[]){x}, (void *[]){NULL}))
            fail_msg("%s", ts_error_text());
        ts_engine_free(e);
        ts_executable_free(exe);
        ts_graph_free(g);
    }
}

static void failures(void **state)
{
    static const float x[N] = {1, 2, 3, 4};
    ts_graph *g = ts_graph_new("g");
    ts_value *a = ts_input(g, "a", TS_F32, N);
    float y[N];

    (void)state;
    ts_output(ts_neg(ts_tap(ts_tap(a, 2, -1), 5, -1)), "y");
    for (ts_executor x_ = TS_EXECUTOR_NATIVE; x_ <= TS_EXECUTOR_REFERENCE; x_++) {
        host h = {.fail_at = 2};
        ts_engine *e = start(g, (ts_options){.executor = x_}, &h);
        assert_int_equal(ts_engine_run(e, (const void *[]){x}, (void *[]){y}), TS_ERR_ARG);
        assert_non_null(strstr(ts_error_text(), "call 2 went wrong"));
        assert_int_equal(h.calls, 1); /* what comes after it is not called */
        h.fail_at = -1;
        assert_int_equal(ts_engine_run(e, (const void *[]){x}, (void *[]){y}), TS_OK);
        assert_float_equal(y[2], -3, 0);
        ts_engine_free(e);
        e = start(g, (ts_options){.executor = x_}, NULL);
        assert_int_equal(ts_engine_run(e, (const void *[]){x}, (void *[]){y}), TS_ERR_ARG);
        assert_non_null(strstr(ts_error_text(), "ts_run_options.host is NULL"));
        ts_engine_free(e);
    }
    ts_graph_free(g);
}

static void refused_as(const char *types, const char *why)
{
    ts_graph *g = ts_graph_new("g");
    ts_value *a = ts_input(g, "a", TS_F32, N), *out[9];

    assert_int_equal(ts_host_call(1, 1, &a, types, out), 0);
    assert_true(ts_graph_check(g) != TS_OK);
    if (!strstr(ts_error_text(), why))
        fail_msg("%s\nshould say: %s", ts_error_text(), why);
    ts_graph_free(g);
}

static void refused(void **state)
{
    ts_graph *g = ts_graph_new("g");
    ts_value *p = ts_param(g, "w", TS_F32, ((ts_init){TS_INIT_FULL, 1, 0}), N), *out[2];
    ts_optimizer sgd = ts_sgd(0.5);
    ts_executable *exe;

    (void)state;
    refused_as("", "no results");
    refused_as(NULL, "no results");
    refused_as("f32", "a type like");
    refused_as("f32[4", "a type like");
    refused_as("q32[4]", "a type like");
    refused_as("f32[0]", "a type like");
    refused_as("f32[4]f32[1] f32[] i8[2,2] f32[] f32[] f32[] f32[] f32[]", "more than 8");
    assert_int_equal(ts_host_call(1, 1, &p, "f32[4]", out), 1);
    ts_loss(ts_sum(out[0], 0, NULL, false));
    assert_int_equal(ts_compile(g, &(ts_options){.optimizer = &sgd, .cache_dir = ""}, &exe),
                     TS_ERR_GRAD);
    assert_non_null(strstr(ts_error_text(), "host_call has no gradient"));
    ts_graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(in_the_middle), cmocka_unit_test(gradients),
        cmocka_unit_test(layouts),       cmocka_unit_test(failures),
        cmocka_unit_test(refused),       cmocka_unit_test(own_gradient),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
