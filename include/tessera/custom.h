/* tessera/custom.h - an operation of your own, in C or C++, for poptorch.custom_op().
 *
 * A file has one or more operations and ends with a list of them:
 *
 *     #include <tessera/custom.h>
 *
 *     static int cube(ts_custom_call *c)
 *     {
 *         const float *x = c->inputs[0].data;
 *         float *y = c->outputs[0].data;
 *
 *         for (int64_t i = 0; i < c->outputs[0].count; i++)
 *             y[i] = x[i] * x[i] * x[i];
 *         return 0;
 *     }
 *
 *     static int cube_gradient(ts_custom_call *c)
 *     {
 *         const float *x = c->inputs[0].data, *dy = c->inputs[2].data;
 *         float *dx = c->outputs[0].data;
 *
 *         for (int64_t i = 0; i < c->outputs[0].count; i++)
 *             dx[i] = 3 * x[i] * x[i] * dy[i];
 *         return 0;
 *     }
 *
 *     TS_CUSTOM_OPS({"my.ops", "Cube", 1, cube, cube_gradient, NULL})
 *
 * poptorch.custom_ops.load("cube.c") compiles and loads it, and takes a shared object too; then
 * poptorch.custom_op([x], "Cube", "my.ops", 1, example_outputs=[x]) is part of a model. The file
 * needs no library, only this header, which is written in C99 and C++11.
 *
 * A call runs in the middle of a step, which waits for it, one at a time. It must not keep the
 * addresses, and gives the same results whenever it gets the same numbers.
 */
#ifndef TESSERA_CUSTOM_H
#define TESSERA_CUSTOM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Types of elements. Those of 16 bits come as their bits, for C has no type for them. */
typedef enum ts_custom_type {
    TS_CUSTOM_TYPE_F32 = 1,
    TS_CUSTOM_TYPE_F16,
    TS_CUSTOM_TYPE_BF16,
    TS_CUSTOM_TYPE_F64,
    TS_CUSTOM_TYPE_I8,
    TS_CUSTOM_TYPE_U8,
    TS_CUSTOM_TYPE_I32,
    TS_CUSTOM_TYPE_I64,
    TS_CUSTOM_TYPE_BOOL, /* bytes of 0 and 1 */
} ts_custom_type;

/* Elements lie side by side, the last dim first. data is NULL in a check, and for what is not
 * asked for. */
typedef struct ts_custom_tensor {
    void *data;
    const int64_t *dims;
    int32_t rank;
    int32_t type; /* a ts_custom_type */
    int64_t count;
} ts_custom_tensor;

/* An attribute of the call: numbers or strings. One that is no list has a count of 1. */
typedef struct ts_custom_attribute {
    const char *name;
    int64_t count;
    const int64_t *ints;        /* or NULL */
    const double *floats;       /* or NULL */
    const char *const *strings; /* or NULL */
} ts_custom_attribute;

typedef struct ts_custom_call {
    const ts_custom_tensor *inputs;
    const ts_custom_tensor *outputs; /* to be filled in */
    const ts_custom_attribute *attributes;
    int32_t ninputs, noutputs, nattributes;
    char error[500]; /* why it failed */
} ts_custom_call;

/* Returns 0, or another number after a reason was written to the call's `error`. */
typedef int ts_custom_fn(ts_custom_call *call);

typedef struct ts_custom_op {
    const char *domain, *name; /* as in poptorch.custom_op() */
    int32_t version;
    /* From the inputs to the outputs. */
    ts_custom_fn *forward;
    /* Its inputs are those of forward, then the outputs of forward, then the gradients of these;
     * its outputs the gradients of forward's inputs, where whole numbers have none: data is NULL.
     * NULL: the operation has no gradient. */
    ts_custom_fn *gradient;
    /* When a model is compiled: do types, shapes and attributes fit together? The outputs are
     * those of example_outputs. NULL: any do. */
    ts_custom_fn *check;
} ts_custom_op;

/* What a shared object is asked for: operations, and one without a name behind them. */
const ts_custom_op *ts_custom_ops(void);

#define TS_CUSTOM_OPS(...)                                                                         \
    const ts_custom_op *ts_custom_ops(void)                                                        \
    {                                                                                              \
        static const ts_custom_op list[] = {__VA_ARGS__, {NULL, NULL, 0, NULL, NULL, NULL}};       \
        return list;                                                                               \
    }

/* The attribute of that name, or NULL. */
static inline const ts_custom_attribute *ts_custom_find(const ts_custom_call *c, const char *name)
{
    for (int i = 0; i < c->nattributes; i++) {
        const char *a = c->attributes[i].name, *b = name;

        while (*a && *a == *b)
            a++, b++;
        if (*a == *b)
            return &c->attributes[i];
    }
    return NULL;
}

#ifdef __cplusplus
}
#endif

#endif
