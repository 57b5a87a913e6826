/* output.c - which micro-batches go to the host, and where; the host's rows are [D][A][R][B]. */
#include "run/engine.h"

int ts_engine_slots(const ts_engine *e)
{
    const ts_executable *x = e ? e->exe : NULL;

    if (!x)
        return 0;
    if (x->mode == TS_OUTPUT_ALL)
        return x->device_iterations * x->gradient_accumulation * x->replicas;
    return x->mode == TS_OUTPUT_EVERY_N
               ? x->device_iterations / x->output_period * x->gradient_accumulation * x->replicas
               : x->replicas;
}

int ts_output_slot(const ts_executable *x, int m)
{
    int A = x->gradient_accumulation, d = m / A, a = m % A;

    switch (x->mode) {
    case TS_OUTPUT_ALL:
        return m;
    case TS_OUTPUT_EVERY_N:
        return (d + 1) % x->output_period ? -1 : (d + 1) / x->output_period * A - A + a;
    case TS_OUTPUT_SUM:
        return 0;
    default:
        return m == x->device_iterations * A - 1 ? 0 : -1;
    }
}

static void add(ts_dtype t, void *sum, const void *x, size_t bytes)
{
    size_t n = bytes / ts_dtype_size(t);

    if (t == TS_F32) {
        for (size_t i = 0; i < n; i++)
            ((float *)sum)[i] += ((const float *)x)[i];
        return;
    }
    for (size_t i = 0; i < n; i++)
        ts_dtype_set(t, sum, (int64_t)i,
                     ts_dtype_get(t, sum, (int64_t)i) + ts_dtype_get(t, x, (int64_t)i));
}

void ts_output_give(const ts_engine *e, int output, int replica, int m, const void *from)
{
    const ts_executable *x = e->exe;
    const ts_slot *s = &x->outputs[output];
    int slot = ts_output_slot(x, m);
    char *to = e->out ? e->out[output] : NULL;

    if (slot < 0 || !to)
        return;
    to += (size_t)(slot * x->replicas + replica) * s->info.bytes;
    if (x->mode == TS_OUTPUT_SUM && m)
        add(s->info.dtype, to, from, s->info.bytes);
    else
        memcpy(to, from, s->info.bytes);
}

void ts_input_find(const ts_engine *e, int replica, int m, const void **in)
{
    const ts_executable *x = e->exe;

    for (int i = 0; i < x->ninputs; i++)
        in[i] =
            (const char *)e->in[i] + (size_t)(m * x->replicas + replica) * x->inputs[i].info.bytes;
}
