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

enum {
    TS_POINT = 1,    /* element i of the output needs element i of the inputs (broadcast)        */
    TS_VIEW = 2,     /* moves elements, computes nothing                                        */
    TS_REDUCE = 4,   /* folds dims                                                              */
    TS_CONTRACT = 8, /* sums products: matmul, convolution                                      */
    TS_WINDOW = 16,  /* each output reads a window of elements                                  */
    TS_RANDOM = 32,  /* never merged with an equal node                                         */
    TS_COMPOSITE = 64, /* expanded before autodiff                                                */
    TS_NODIFF = 128,   /* no gradient goes through, and that is right (comparison, argmax, round) */
    TS_SOURCE = 256,   /* no inputs: constants                                                    */
    TS_CONTROL = 512,  /* has sub-graphs                                                          */
    TS_INDEX = 1024,   /* reads where another input says                                          */
    TS_HOST = 2048,    /* calls the host: done once, in the order of the nodes, on plain memory   */
    TS_ROWS = 8192,    /* emit writes a whole row, along `dim`; a kernel of its own               */
    TS_EXACT = 4096,   /* every result is a number of its dtype already: nothing to round         */
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
