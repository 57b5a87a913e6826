/* tile.h - a contraction in tiles: what its parts tell each other.
 *
 *   tile.c            which axes are rows, columns and depth; the size of tiles; the whole
 *   tile_load.c       operands from memory to registers and on to shared memory
 *   tile_multiply.c   a step's products, by the threads or by tensor cores; results to shared memory
 */
#ifndef TS_GPU_TILE_H
#define TS_GPU_TILE_H

#include "gpu/gpu.h"

enum {
    TS_TILE_PAD = 4,       /* floats between the rows of a tile in shared memory */
    TS_TILE_HALF_PAD = 8,  /* and halves: rows begin at 16 bytes, in other banks each */
    TS_TILE_RESULTS = 8192 /* that are in shared memory at the same time */
};

typedef struct ts_side {
    int operand;
    int axis[TS_AXES]; /* of the spec, the last one fastest */
    int naxes;
    int64_t size;
    int tile; /* elements of a group */
    const char *name;

    /* A thread loads some units: neighbours along the depth (deep) or along the side. */
    int unit;                     /* elements */
    bool deep, vector;            /* vector: 16 bytes, that go straight to shared memory */
    bool turned;                  /* without vectors: neighbouring threads along the depth */
    bool lies_deep;               /* in shared memory: [side][depth], else [depth][side] */
    const ts_value *stored;       /* what a vector is loaded from */
    int loads;                    /* units of a thread, */
    int *place;                   /* and which of the side's places each is at */
    const ts_ix **index[TS_AXES]; /* of axis i, by place */
    const char **inside;          /* C conditions by place, or NULL */
} ts_side;

typedef struct ts_tiles {
    ts_gpu_writer *w;
    const ts_node *n;
    ts_spec s;
    bool summed[TS_AXES];
    ts_side rows, columns, depth, both;
    ts_dtype half; /* tensor cores multiply operands of this type; else TS_F32 */
    int threads, resident;
    int own_rows, own_columns; /* results of a thread; with tensor cores, of a warp */
    int step, slices;          /* the depth of a step; each slice of the threads has a part of it */
    int stages;                /* steps that are in shared memory at the same time */
    int slice;                 /* threads of a slice */
    bool regular;              /* a step is a block of the depth's axes */
    int64_t block[TS_AXES], outer[TS_AXES]; /* by place in depth.axis: its part inside a step, and
                                               how many steps there are along it */
    const char *shared;
} ts_tiles;

static inline int64_t ts_tile_up(int64_t n, int64_t by)
{
    return (n + by - 1) / by;
}

/* Elements of a row of a side in shared memory, and of a step of it. */
int ts_tile_pitch(const ts_tiles *t, const ts_side *s);
int ts_tile_buffer(const ts_tiles *t, const ts_side *s);

/* tile_load.c */
int64_t ts_tile_stride(ts_tiles *t, int operand, int axis); /* 0 when that cannot be said */
int64_t ts_tile_period(ts_tiles *t, int operand, int axis,
                       int64_t (*period)(const ts_ix *x, const ts_atom *atom));
void ts_tile_choose_units(ts_tiles *t, ts_side *s);
void ts_tile_decode(ts_tiles *t, const ts_side *s, const char *number, const char **names);
const ts_ix *ts_tile_axis(ts_tiles *t, const char *name, int axis);
void ts_tile_prepare(ts_tiles *t, ts_side *s);
void ts_tile_find_step(ts_tiles *t, const char **blocks);
/* The side's part of step `next`: vectors to shared memory, all else to registers, */
void ts_tile_load(ts_tiles *t, const ts_side *s, const ts_ix **axes, const char *const *blocks);
/* and from those to shared memory. */
void ts_tile_keep(ts_tiles *t, const ts_side *s);

/* tile_multiply.c */
void ts_tile_start(ts_tiles *t);
void ts_tile_multiply(ts_tiles *t);
int ts_tile_result_pitch(const ts_tiles *t);
void ts_tile_results(ts_tiles *t, int rows); /* the rows of part `part` to shared memory */

#endif
