/* plan.h - what a compile would plan.
 */
#ifndef TESSERA_PLAN_H
#define TESSERA_PLAN_H

#include <tessera.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The same in detail: what each device and each layer needs, and who runs what when. Nothing is
 * compiled, and the memory of a device is no limit here. */
typedef struct ts_plan_device {
    int64_t states,
        peak;        /* bytes: always live; with the working memory, as many as the block has */
    double seconds;  /* of a micro-batch, modelled on one core */
    double share;    /* of the work of all, of 1 */
    int64_t sharded; /* bytes of optimiser state that other replicas keep instead */
} ts_plan_device;
typedef struct ts_plan_section { /* what a device does of a micro-batch without waiting */
    int device, kernels;
    int phase;          /* phased: its number; the backward pass counts on. 0 else */
    char kind;          /* F forward, B backward, X both, U the weight update */
    const char *blocks; /* "B1 B2", or "" */
    double seconds;
} ts_plan_section;
typedef struct ts_plan_move { /* between the host's memory and a device, in the order of a run */
    int section;
    unsigned what;    /* a TS_OFFLOAD_* bit */
    bool load;        /* to the device; else to the host */
    const char *name; /* of the state or the layer */
    int64_t bytes;
} ts_plan_move;
typedef struct ts_plan_send { /* what is copied to another device when a section is done */
    int section, from, to;
    const char *name; /* of the state or the layer */
    bool state;
    bool host;     /* into the host's memory, from where the other device loads it */
    int depth;     /* micro-batches of it that can wait there */
    int64_t bytes; /* of one */
} ts_plan_send;
typedef struct ts_plan_layer {
    const char *name, *block; /* "" for none */
    int device;
    int64_t parameters;  /* elements of trained weights                                   */
    int64_t states;      /* bytes: weights, buffers, what the optimiser keeps             */
    int64_t activations; /* bytes kept for the backward pass, of all micro-batches under way */
    double flops;        /* forward and backward, of a micro-batch */
} ts_plan_layer;
/* What a model of an IPU says (TS_DEVICE_MK2, TS_DEVICE_MK1). Cycles are of its clock; of kinds, those of an
 * iteration on all devices. doc/ipu-model.md says how far off it may be. */
typedef struct ts_plan_ipu_device {
    int64_t always, peak, code, exchange,
        gaps;       /* bytes of the fullest tile; the peak is all of it */
    int tile, over; /* its number; tiles that need more than they have */
    double cycles;  /* of a micro-batch */
} ts_plan_ipu_device;
typedef struct ts_plan_ipu {
    const char *name;
    int tiles; /* of each device */
    int64_t tile_bytes;
    double hertz;
    double step, call; /* cycles of an iteration; of a call with all of them */
    double compute, exchange, sync, host;
    double matrix_use; /* of the matrix units while they work, of 1 */
    double balance;    /* mean of the stages over the longest, of 1 */
    const ts_plan_ipu_device *devices;
} ts_plan_ipu;
typedef struct ts_plan_info {
    int ndevices, nsections, nsends, nlayers, nmoves;
    const ts_plan_device *devices;
    const ts_plan_section *sections;
    const ts_plan_send *sends;
    const ts_plan_move *moves;
    const ts_plan_layer *layers; /* in the order of their work */
    bool sharded;
    int phases;                  /* of the forward pass; 0: not phased */
    int64_t host;                /* bytes in the host's memory, of a replica */
    int replicas, micro_batches; /* of an iteration */
    double bubble;               /* idle share of the devices' time, modelled */
    const char *schedule;        /* drawn: a row for each device, a column for each step */
    const ts_plan_ipu *ipu;      /* NULL: the devices are no model of one */
} ts_plan_info;
TS_API ts_status ts_plan_new_sized(const ts_graph *g, const ts_options *opt, size_t size,
                                   size_t optimizer_size, ts_plan_info **out);
static inline ts_status ts_plan_new(const ts_graph *g, const ts_options *opt, ts_plan_info **out)
{
    return ts_plan_new_sized(g, opt, sizeof(ts_options), sizeof(ts_optimizer), out);
}
TS_API void ts_plan_free(ts_plan_info *p);

/* Writes the profile of ts_options.profile as ts_compile would, and compiles nothing. A plan that does
 * not fit is written too, and TS_ERR_MEMORY. */
TS_API ts_status ts_profile_plan_sized(const ts_graph *g, const ts_options *opt, size_t size,
                                       size_t optimizer_size);
static inline ts_status ts_profile_plan(const ts_graph *g, const ts_options *opt)
{
    return ts_profile_plan_sized(g, opt, sizeof(ts_options), sizeof(ts_optimizer));
}

/* The profile of an executable that ts_executable_load() read: the graph and the options must be those
 * that it was compiled with, ts_options.profile apart. Its first engine from now on is timed. When
 * they would make another program now, TS_ERR_ARG, and the executable stays as it is. */
TS_API ts_status ts_profile_loaded_sized(ts_executable *x, const ts_graph *g, const ts_options *opt,
                                         size_t size, size_t optimizer_size);
static inline ts_status ts_profile_loaded(ts_executable *x, const ts_graph *g,
                                          const ts_options *opt)
{
    return ts_profile_loaded_sized(x, g, opt, sizeof(ts_options), sizeof(ts_optimizer));
}

#ifdef __cplusplus
}
#endif
#endif
