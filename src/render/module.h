/* module.h - what generated code and engine agree on. The prelude repeats these declarations;
 * TS_MODULE_ABI changes with them. */
#ifndef TS_MODULE_H
#define TS_MODULE_H

#include "tessera.h"

enum { TS_MODULE_ABI = 4 };

typedef struct ts_run_ctx {
    char *m;               /* the device block */
    char *remote;          /* what is kept in the host's memory */
    const void *const *in; /* this micro-batch's inputs */
    uint64_t seed, step;   /* of the random generator */
    uint64_t mb;      /* micro-batches so far: where this one lies in what is kept of several */
    uint64_t replica; /* of this process */
    void (*host)(void *engine, int id, const void *const *in, void *const *out); /* host_call */
    void *engine;
} ts_run_ctx;

/* Where a tensor of a kernel lies. */
typedef struct ts_module_place {
    uint64_t offset; /* in the block */
    uint64_t share;  /* bytes of a replica's part of it, or 0 */
    uint64_t stride; /* from one micro-batch to the next of `depth`, or 0 */
    int32_t depth;   /* 0: it stays where it is, and the rest is 0 */
    int32_t input;   /* its number and 1 more; 0: it is in the block */
} ts_module_place;

typedef void ts_kernel_fn(const ts_run_ctx *c, int64_t lo, int64_t hi, const ts_module_place *p);

typedef struct ts_module_kernel {
    ts_kernel_fn *run;
    const char *name;
    int64_t count, grain;
    int32_t phase, wait;
    const ts_module_place *places; /* NULL: it has none */
} ts_module_kernel;

typedef struct ts_module {
    int32_t abi, nkernels;
    const ts_module_kernel *kernels;
} ts_module;

#endif
