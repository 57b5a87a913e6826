/* pipeline.h - who does what when, on several devices.
 *
 * A section is what one device does of one micro-batch without waiting for another device: the
 * forward part of a stage, its backward part, its share of the weight update. In the order of a
 * device each of its sections comes once for every micro-batch (phase 0) or weight update (phase
 * 1). The order is fixed when the program is made; at run time a device waits until the others have
 * come far enough for its next item.
 *
 *   device 0   F0 F1 F2 F3       B0 F4 B1 ...  U
 *   device 1      F0 F1 F2    B0 F3 B1 ...     U
 *   device 2         F0 F1 B0 F2 B1 ...        U
 *   device 3            FB0 FB1 FB2 ...        U       the last stage turns round
 *
 * Nothing here knows graphs or kernels: the plan fills it in, the executable keeps it, the engine
 * runs it.
 */
#ifndef TS_PIPELINE_H
#define TS_PIPELINE_H

#include "base/base.h"

typedef struct ts_section {
    int phase, device;
    int step;             /* phased execution: forward 0, 1, 2, backward 2, 3, 4; 0 else */
    int level;            /* in its phase and step: how many devices the data has come through */
    int first, count;     /* its kernels, which follow each other */
    double seconds;       /* of one micro-batch or update, modelled */
    size_t loads, stores; /* bytes from the host's memory, and to it */
    const char *name;     /* the blocks in it, for people */
} ts_section;

/* What is copied to another device when a section is done: a value of this micro-batch, or a state
 * that the section has updated. */
typedef struct ts_send {
    int section, device; /* from, to */
    bool state;
    bool remote;            /* to the host's memory: the device loads it when it needs it */
    size_t from, to, bytes; /* offsets in the two blocks, or `to` in the host's memory */
    int from_depth, depth;  /* micro-batches kept at each end */
    int nreaders;
    const int *readers; /* sections of `device` that read it */
} ts_send;

/* What a section keeps for later ones of its own device. */
typedef struct ts_stash {
    int section, last; /* made in, read for the last time in */
    int depth;
} ts_stash;

/* Micro-batches kept side by side each begin at a vector's boundary. */
static inline size_t ts_ring_stride(size_t bytes)
{
    return TS_ROUND_UP(bytes, 64);
}

typedef struct ts_pipeline {
    int ndevices;
    bool sharded;
    ts_section *sections; /* phase 0 first, by level */
    int nsections;
    ts_send *sends;
    int nsends;
} ts_pipeline;

typedef struct ts_device_bytes {
    size_t states, peak; /* always live; with the working memory */
} ts_device_bytes;

/* One step of a device: a section of micro-batch m of the iteration. */
typedef struct ts_item {
    int section, m;
} ts_item;

/* The order of one iteration: M micro-batches, then the update. */
typedef struct ts_order {
    int ndevices, micro_batches;
    ts_item **items; /* [device][n] */
    int *n, *nfirst; /* of all; of those in phase 0 */
    int **needs;     /* [device][n * ndevices]: how many items another device must have done before,
                        counted from the start of the iteration; negative: of an earlier one */
    int **when, *took; /* [section][m]: when it begins, and how long a section takes, as assumed */
    int **at;          /* [section][m]: its index in the device's items */
} ts_order;

/* Fills in the depth of every send and stash: the least that the order needs and, between devices,
 * queue - 1 more. */
void ts_pipeline_depths(ts_arena *a, ts_pipeline *p, int micro_batches, int queue,
                        ts_stash *stashes, int nstashes);
void ts_order_make(ts_arena *a, const ts_pipeline *p, int micro_batches, ts_order *out);
/* The idle share of the devices' time in phase 0, modelled. */
double ts_order_bubble(ts_arena *a, const ts_pipeline *p, const ts_order *o);

#endif
