/* leaky.c - the leaky ReLU of custom.py. */
#include <tessera/custom.h>

static int forward(ts_custom_call *c)
{
    const float *x = (const float *)c->inputs[0].data;
    float *y = (float *)c->outputs[0].data, alpha = (float)ts_custom_find(c, "alpha")->floats[0];

    for (int64_t i = 0; i < c->outputs[0].count; i++)
        y[i] = x[i] > 0 ? x[i] : alpha * x[i];
    return 0;
}

/* Inputs are x, y and dy. */
static int gradient(ts_custom_call *c)
{
    const float *x = (const float *)c->inputs[0].data, *dy = (const float *)c->inputs[2].data;
    float *dx = (float *)c->outputs[0].data, alpha = (float)ts_custom_find(c, "alpha")->floats[0];

    for (int64_t i = 0; i < c->outputs[0].count; i++)
        dx[i] = x[i] > 0 ? dy[i] : alpha * dy[i];
    return 0;
}

TS_CUSTOM_OPS({"com.acme", "LeakyRelu", 1, forward, gradient, NULL})
