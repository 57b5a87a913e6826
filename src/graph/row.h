/* row.h - what the graph knows of an op: its row of op/ops.h.
 *
 *   infer   the outputs' types from the inputs' (and attributes)
 *   grad    builds the gradient: dy[i] per output (NULL: none came), dx[i] per input (NULL: none)
 *   eval    the reference kernel: plain loops in double, obviously right
 *   emit    the generated code: the C text of one element (or vector of lanes) of an output
 *   spec    contractions only: the loop nest, for the register-blocked template
 *   expand  composites only: the same thing in smaller ops; then they need no other rule
 */
#ifndef TS_ROW_H
#define TS_ROW_H

#include "graph/graph.h"

typedef struct ts_emit ts_emit;
typedef struct ts_ix ts_ix;
typedef struct ts_spec ts_spec;

/* A tensor of the reference executor: row-major. */
typedef struct ts_tensor {
    ts_type type;
    void *data;
} ts_tensor;

typedef struct ts_eval_ctx {
    uint64_t seed, step; /* for random ops */
    /* host_call: what to call, with this first */
    void (*host)(void *engine, int id, const void *const *in, void *const *out);
    void *engine;
} ts_eval_ctx;

/* What passes, plan and renderer ask an op; none of them knows ops by name where a property will do. */
enum {
    TS_POINT = 1 << 0,  /* element i of the output needs element i of the inputs (broadcast)      */
    TS_VIEW = 1 << 1,   /* moves elements, computes nothing                                       */
    TS_REDUCE = 1 << 2, /* folds dims                                                             */
    TS_CONTRACT =
        1 << 3,         /* sums products: matmul, convolution                                     */
    TS_WINDOW = 1 << 4, /* each output reads a window of elements                                 */
    TS_RANDOM = 1 << 5, /* never merged with an equal node                                        */
    TS_COMPOSITE =
        1 << 6,         /* expanded before autodiff                                              */
    TS_NODIFF = 1 << 7, /* no gradient goes through, and that is right (comparison, argmax)       */
    TS_SOURCE = 1 << 8, /* no inputs: constants                                                   */
    TS_CONTROL =
        1 << 9,         /* has sub-graphs                                                         */
    TS_INDEX = 1 << 10, /* reads where another input says                                         */
    TS_HOST = 1 << 11,  /* calls the host: done once, in the order of the nodes, on plain memory  */
    TS_EXACT = 1 << 12, /* every result is a number of its dtype already: nothing to round        */
    TS_ROWS = 1 << 13,  /* emit writes a whole row, along `dim`; a kernel of its own              */
    TS_DATA = 1 << 14,  /* carries its elements with it: const                                    */
    TS_PATCH = 1 << 15, /* a view with elements of its own, or of several inputs: costs a branch  */
    TS_PICK = 1 << 16,  /* every result is an element of an input, chosen by another              */
    TS_ADDS = 1 << 17,  /* adds up what an index sends to the same place                          */
    TS_COVERED =
        1 << 18,        /* each output asks which windows of a stride cover it: pooling, backward */
    TS_CONV = 1 << 19,  /* a convolution, or the gradient of one                                  */
    TS_TILED = 1 << 20, /* a step of Winograd's method: one op for the user                       */
    TS_COMMUTES =
        1
        << 21, /* x op y is y op x, to the bit; not maximum, which of +0 and -0 returns the second */
    TS_ORDERS =
        1 << 22, /* compares: a NaN has no answer                                          */
    TS_STEPS =
        1
        << 23, /* steps of which each needs the one before: a kernel of its own, on plain memory */
    TS_BESIDE =
        1
        << 24, /* with TS_ROWS: emit makes several rows that lie side by side (ts_emit_columns)  */
};

struct ts_op {
    const char *name;
    int nin; /* -n: n or more */
    int nout;
    unsigned flags;
    ts_status (*infer)(ts_node *n);
    ts_status (*grad)(ts_node *n, ts_value *const *dy, ts_value **dx);
    ts_status (*eval)(const ts_node *n, const ts_eval_ctx *c, const ts_tensor *in, ts_tensor *out);
    const char *(*emit)(ts_emit *e, const ts_node *n, int out, const ts_ix *const *at);
    void (*spec)(ts_arena *a, const ts_node *n, ts_spec *spec);
    ts_status (*expand)(ts_graph *g, const ts_node *n, ts_value *const *in, ts_value **out);
    double (*ref)(double x, double y, double z);
    const char *formula;
    const char *attrs; /* "dims:l keepdim:i" */
    char result; /* pointwise: s same dtype as x, e that and exact, f floats, i integers, b bool */
};

/* graph.c: a shape rule ends with this */
void ts_node_set_out(ts_node *n, int nout, const ts_type *types);
ts_status ts_node_set_out1(ts_node *n, ts_type t);

#endif
