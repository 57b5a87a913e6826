/* ipu.h - a model of an IPU: what a program would need of its tiles, and take of its time. */
#ifndef TS_IPU_H
#define TS_IPU_H

#include "plan/plan.h"

/* A device. Of a pair, the first is for f32 and the second for halves. */
typedef struct ts_ipu {
    const char *name;
    int tiles;
    int64_t tile_bytes;
    double hertz;
    double multiply[2]; /* multiply-adds of the matrix unit of a tile in a cycle */
    double reached[2];  /* of that, in products of large matrices */
    double channels[2]; /* that it takes at once */
    double vector[2];   /* elements of a vector */
    double in, out;     /* bytes that a tile receives and sends in a cycle */
    double host, link;  /* bytes a second from the host, and between devices */
} ts_ipu;

typedef struct ts_ipu_cycles { /* of one run of a kernel */
    double compute, exchange, sync, host;
    double matrix_use; /* of the matrix units of all tiles, of 1; 0: it does not use them */
    double in;         /* bytes that arrive on a tile */
} ts_ipu_cycles;
typedef struct ts_ipu_tile { /* bytes; the peak has all the others in it */
    int64_t always, peak, code, exchange, gaps;
} ts_ipu_tile;
typedef struct ts_ipu_model {
    const ts_ipu *ipu;
    ts_ipu_cycles *kernels; /* of each of the program's */
    ts_ipu_tile **tiles;    /* [device][tile] */
    double *stage;          /* cycles of each device for a micro-batch */
    double step, call;      /* cycles of an iteration; of a call */
    double balance;         /* mean of the stages over the longest, of 1 */
} ts_ipu_model;

const ts_ipu *ts_ipu_of(ts_device_kind kind); /* NULL: it is no model */
void ts_ipu_price(ts_arena *a, const ts_ipu *ipu, const ts_program *p, const ts_options *opt,
                  ts_ipu_model *out);

#endif
