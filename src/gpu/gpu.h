/* gpu.h - program to kernels for a GPU, and the drivers that run them.
 *
 *   text.c      the whole text: a kernel for every kernel of the plan, and the table of launches
 *   sum.c       a contraction or reduction with several threads an element, added up in a fixed tree
 *   tile.c      a large contraction in tiles: shared memory and registers, or tensor cores;
 *               tile_load.c, tile_multiply.c
 *   prelude.c   what makes one text CUDA C and OpenCL C
 *   code.c      text, table and binary as one run of bytes, the executable's object
 *   driver.c    the drivers by name, and the device that is open
 *   cuda.c      NVIDIA's driver and run-time compiler, opened when they are asked for
 *   opencl.c    any OpenCL: other makers' GPUs, and PoCL, which runs the tests without a GPU
 *
 * All that a device has of a run is one piece of memory:
 *
 *   0         what changes from micro-batch to micro-batch (ts_gpu_ctx)
 *   ...       constants
 *   ...       inputs of `chunk` micro-batches, one tensor after the other
 *   ...       outputs of as many
 *   base      the device block, as plan/memory.c laid it out
 *
 * A call of the engine sends the inputs, a piece while the one before is computed, starts the launches
 * of all their micro-batches, and fetches the outputs. The kernels find their micro-batch in the ctx, which the last of each moves
 * on, so the launches of all micro-batches are the same and can be recorded once (a CUDA graph).
 */
#ifndef TS_GPU_H
#define TS_GPU_H

#include "render/render.h"

/* The prelude repeats this. */
typedef struct ts_gpu_ctx {
    uint64_t seed, step;
    uint64_t mb, replica; /* as in ts_run_ctx */
    uint64_t at;          /* the micro-batch's place in the chunk */
    uint64_t stride;      /* from one step to the next */
} ts_gpu_ctx;

enum { TS_GPU_CTX = 128 }; /* bytes kept for it */

/* Where a tensor is: at `offset` and, depending on the micro-batch or replica, a multiple of
 * `stride` further. */
typedef enum ts_gpu_how { TS_GPU_FIXED, TS_GPU_CHUNK, TS_GPU_RING, TS_GPU_SHARE } ts_gpu_how;
typedef struct ts_gpu_at {
    size_t offset, stride;
    ts_gpu_how how;
    int depth;    /* of a ring */
    size_t bytes; /* of the tensor */
} ts_gpu_at;

typedef enum ts_gpu_kind {
    TS_GPU_LAUNCH,
    TS_GPU_HOST,  /* calls the host */
    TS_GPU_LOAD,  /* a tensor from the host's memory */
    TS_GPU_STORE, /* and back */
    TS_GPU_DONE,  /* by the launch before, which does several small kernels */
} ts_gpu_kind;

/* A row of the table: a kernel of the plan. */
typedef struct ts_gpu_row {
    ts_gpu_kind kind;
    int function; /* k12 */
    int64_t groups;
    int threads;  /* of a group */
    int resident; /* groups that a processor should hold at once, 0: any */
    int shared;   /* bytes of shared memory, beside what the text says */
    bool early;   /* may come to the processors before the last launch has ended */
    int phase;
    const char *name;
    int nargs, nin; /* of a call of the host: its inputs come first, then its outputs */
    ts_gpu_at *args;
    int id;             /* host */
    const char *checks; /* host: of pass/guard.c, or NULL */
    bool tap;           /* host: gets its input only, which is its output too */
    size_t bytes;       /* of what is moved, or tapped */
    ts_gpu_at there;    /* in the host's memory */
} ts_gpu_row;

typedef struct ts_gpu_code {
    ts_arena *arena; /* of all of it */
    ts_gpu_row *rows;
    int nrows;                   /* the kernels of the plan */
    ts_gpu_row give, tick, both; /* outputs to their place; on to the next micro-batch */
    int nfunctions;
    int chunk; /* micro-batches that are sent at once */
    int ninputs, noutputs;
    size_t *inputs, *outputs; /* where they begin; a micro-batch takes the tensor's bytes */
    size_t base;              /* of the block */
    size_t constants, nconstants;
    const char *constant_data;
    const char *text;
    const void *binary;
    size_t nbinary;
} ts_gpu_code;

/* text.c: everything but the binary */
ts_status ts_gpu_text(ts_arena *a, const ts_program *p, const ts_options *opt, ts_gpu_code *out);

/* sum.c, tile.c: false when the kernel is not for them; else writes it and sets how it is run */
typedef struct ts_gpu_text_state ts_gpu_writer;
struct ts_gpu_text_state {
    ts_render *r;
    ts_emit *e;
    const ts_kernel *k;
    ts_gpu_row *row; /* its threads are set already when it is done together with others */
    ts_text *shared; /* arrays of the group */
};
const char *ts_gpu_shared(ts_gpu_writer *w, const char *type, int n);
const char *ts_gpu_much_shared(ts_gpu_writer *w, int floats);
void ts_gpu_unflatten(ts_arena *a, const ts_value *v, int skip, const ts_ix *rest,
                      const ts_ix **at);
bool ts_gpu_tile(ts_gpu_writer *w);
bool ts_gpu_sum(ts_gpu_writer *w);

/* prelude.c: what comes before the kernels `code` */
void ts_gpu_prelude(ts_render *r, const char *code, ts_text *out);

/* code.c */
void ts_gpu_pack(const ts_gpu_code *c, ts_text *out);
ts_status ts_gpu_unpack(const void *bytes, size_t n, ts_gpu_code **out);
void ts_gpu_code_free(ts_gpu_code *c);

/* --- drivers --- */

typedef struct ts_gpu ts_gpu; /* an open device */
typedef struct ts_gpu_module ts_gpu_module;
typedef struct ts_gpu_memory ts_gpu_memory;
typedef struct ts_gpu_recording ts_gpu_recording; /* launches in a row */

typedef struct ts_gpu_launch {
    const ts_gpu_row *row;
    ts_gpu_memory *memory;
} ts_gpu_launch;

typedef struct ts_gpu_span {
    double start, end;
} ts_gpu_span;

typedef struct ts_gpu_info {
    char name[128];
    char architecture[64]; /* "sm_90": what a binary is for, with the compiler's version */
    int64_t memory;
} ts_gpu_info;

typedef struct ts_gpu_driver {
    const char *name;
    int (*count)(void); /* devices that a program has if TESSERA_GPU does not say which; 0: none */
    ts_status (*open)(int index, ts_gpu **out); /* TS_ERR_UNSUPPORTED: there is none */
    void (*describe)(const ts_gpu *g, ts_gpu_info *out);
    /* free() the binary */
    ts_status (*compile)(ts_gpu *g, const char *text, void **binary, size_t *bytes);
    ts_status (*load)(ts_gpu *g, const void *binary, size_t bytes, int nfunctions,
                      ts_gpu_module **out);
    void (*unload)(ts_gpu *g, ts_gpu_module *m);
    ts_status (*alloc)(ts_gpu *g, size_t bytes, ts_gpu_memory **out); /* zeroed */
    void (*release)(ts_gpu *g, ts_gpu_memory *m);
    ts_status (*write)(ts_gpu *g, ts_gpu_memory *m, size_t at, const void *from, size_t bytes);
    /* The same beside the launches: those that are started after sent() wait for it. */
    ts_status (*send)(ts_gpu *g, ts_gpu_memory *m, size_t at, const void *from, size_t bytes);
    ts_status (*sent)(ts_gpu *g);
    ts_status (*read)(ts_gpu *g, ts_gpu_memory *m, size_t at, void *to, size_t bytes);
    /* From one device to another, or to itself: after what was started on both. */
    ts_status (*copy)(ts_gpu *to_gpu, ts_gpu_memory *to, size_t to_at, ts_gpu *from_gpu,
                      ts_gpu_memory *from, size_t from_at, size_t bytes);
    ts_status (*record)(ts_gpu *g, ts_gpu_module *m, int n, const ts_gpu_launch *launches,
                        ts_gpu_recording **out);
    void (*forget)(ts_gpu *g, ts_gpu_recording *r);
    ts_status (*replay)(ts_gpu *g, ts_gpu_recording *r); /* does not wait */
    /* The launches with the driver's events around each; returns when all are done. spans[i] is when launch i
     * began and ended, in seconds since the first began. */
    ts_status (*timed)(ts_gpu *g, ts_gpu_module *m, int n, const ts_gpu_launch *launches,
                       ts_gpu_span *spans);
    ts_status (*wait)(ts_gpu *g);
} ts_gpu_driver;

extern const ts_gpu_driver ts_gpu_cuda, ts_gpu_opencl;

/* cuda.c: a text for an architecture, sm_90; needs NVRTC and no GPU. free() the binary. */
ts_status ts_gpu_cuda_compile(const char *text, const char *target, void **binary, size_t *bytes);

/* driver.c */
bool ts_gpu_is(ts_device_kind kind);
const ts_gpu_driver *ts_gpu_driver_of(ts_device_kind kind);
const ts_gpu_driver *ts_gpu_driver_named(const char *isa); /* "cuda sm_90": by its first word */
/* How many devices there are for a program, at least 1: TESSERA_GPU=0,2 says which, from 0 on. */
enum { TS_GPU_MOST = 64 };
ts_status ts_gpu_count(const ts_gpu_driver *d, int *out);
/* The nth of them, opened by the first who asks; it stays open. */
ts_status ts_gpu_open(const ts_gpu_driver *d, int nth, ts_gpu **out);
/* "cuda sm_90, NVRTC 13.0": what a binary depends on. */
ts_status ts_gpu_identity(ts_arena *a, const ts_gpu_driver *d, const char **out);
/* The same, and what the environment says of the text and of how it is compiled: for the cache. */
const char *ts_gpu_choices(ts_arena *a, const char *identity);
/* A library that is looked for under several names; NULL and an error that lists them. */
void *ts_gpu_library(const char *what, const char *const *names, const char *hint);

#endif
