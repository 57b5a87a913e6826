/* grad.c - ts_gradients: derivatives of derivatives, through composites, against formulae; and a loss that
 * depends on one. */
#include "support.h"
#include <math.h>

enum { N = 5 };

static const double at[N] = {-1.5, -0.25, 0.5, 1, 2};

/* f(x) = silu(x) x, and its first three derivatives, by differences */
static double formula(int order, double x)
{
    double h = 1e-2, sum = 0;
    static const double weight[4][5] = {{0, 0, 1, 0, 0},
                                        {1. / 12, -8. / 12, 0, 8. / 12, -1. / 12},
                                        {-1. / 12, 16. / 12, -30. / 12, 16. / 12, -1. / 12},
                                        {-0.5, 1, 0, -1, 0.5}};

    for (int k = 0; k < 5; k++) {
        double z = x + h * (k - 2);
        sum += weight[order][k] * z * z / (1 + exp(-z));
    }
    return sum / pow(h, order);
}

static void third_derivatives(void **state)
{
    ts_graph *g = ts_graph_new("net");
    int64_t n = N;
    ts_value *x = ts_const_n(g, TS_F64, at, 1, &n), *y = ts_mul(ts_silu(x), x);
    ts_executable *exe = NULL;
    ts_engine *e = NULL;
    double found[4][N];

    (void)state;
    ts_output(y, "y0");
    for (int i = 1; i < 4; i++) {
        assert_ok(ts_gradients(1, &y, NULL, 1, &x, &y));
        ts_output(y, (const char *[]){"", "y1", "y2", "y3"}[i]);
    }
    assert_ok(ts_compile(g, &(ts_options){.executor = TS_EXECUTOR_REFERENCE}, &exe));
    assert_ok(ts_engine_new(exe, NULL, &e));
    assert_ok(ts_engine_run(e, NULL, (void *[]){found[0], found[1], found[2], found[3]}));
    for (int order = 0; order < 4; order++)
        for (int i = 0; i < N; i++)
            if (fabs(found[order][i] - formula(order, at[i])) > 1e-3)
                fail_msg("derivative %d at %g is %g, not %g", order, at[i], found[order][i],
                         formula(order, at[i]));
    ts_engine_free(e);
    ts_executable_free(exe);
    ts_graph_free(g);
}

/* y = w x^2: dy/dx = 2 w x is to be 6 x, so w learns 3. */
static void a_loss_of_a_derivative(void **state)
{
    ts_graph *g = ts_graph_new("net");
    int64_t n = N;
    float w = 0;
    ts_value *x = ts_cast(ts_const_n(g, TS_F64, at, 1, &n), TS_F32), *p, *y, *dx;
    ts_init init = {.kind = TS_INIT_FULL, .a = 1};
    ts_optimizer sgd = ts_sgd(0.05);
    ts_executable *exe = NULL;
    ts_engine *e = NULL;

    (void)state;
    p = ts_param_n(g, "w", TS_F32, init, 0, NULL);
    y = ts_mul(p, ts_square(x));
    assert_ok(ts_gradients(1, &y, NULL, 1, &x, &dx));
    ts_loss(ts_mse_loss(dx, ts_mul_scalar(x, 6)));
    assert_ok(
        ts_compile(g, &(ts_options){.optimizer = &sgd, .executor = TS_EXECUTOR_REFERENCE}, &exe));
    assert_ok(ts_engine_new(exe, NULL, &e));
    for (int i = 0; i < 60; i++) {
        float loss;
        assert_ok(ts_engine_run(e, NULL, (void *[]){&loss}));
    }
    assert_ok(ts_engine_read(e, "w", &w, sizeof(w)));
    assert_true(fabsf(w - 3) < 1e-3f);
    ts_engine_free(e);
    ts_executable_free(exe);
    ts_graph_free(g);
}

static void what_does_not_depend_is_0(void **state)
{
    ts_graph *g = ts_graph_new("net");
    ts_value *x = ts_input(g, "x", TS_F32, 3), *z = ts_input(g, "z", TS_F32, 2), *y = ts_exp(x),
             *d[2];

    (void)state;
    assert_ok(ts_gradients(1, &y, NULL, 2, (ts_value *[]){x, z}, d));
    assert_non_null(d[1]);
    assert_int_equal(ts_dim(d[1], 0), 2);
    assert_int_equal(ts_gradients(1, (ts_value *[]){NULL}, NULL, 1, &x, d), TS_ERR_ARG);
    assert_int_equal(ts_gradients(1, &y, &z, 1, &x, d), TS_ERR_SHAPE);
    ts_graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(third_derivatives),
        cmocka_unit_test(a_loss_of_a_derivative),
        cmocka_unit_test(what_does_not_depend_is_0),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
