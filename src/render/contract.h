/* contract.h - a contraction and how it is blocked: tile.c chooses, contract.c writes. */
#ifndef TS_CONTRACT_H
#define TS_CONTRACT_H

#include "render/render.h"

typedef struct ts_bound { /* 0 <= index in one dim of an operand < size must be tested */
    const ts_affine *f;
    int64_t size;
} ts_bound;

typedef struct ts_nest {
    ts_render *r;
    const ts_kernel *k;
    const ts_node *n;
    ts_spec s;
    int64_t step[3][TS_AXES]; /* a, b, out: distance in memory for one step along an axis */
    bool linear[3][TS_AXES];
    int64_t period[TS_AXES]; /* of an axis that is not linear: by what to split it */
    ts_bound bounds[2 * TS_MAX_RANK];
    int nbounds;
    bool edged[TS_AXES]; /* no tile goes along it: its edges are long */
    /* the choice */
    int lane;    /* axis, -1: scalars */
    bool across; /* the lane axis is summed */
    int width;
    int tile[2];     /* axes or -1 */
    int64_t size[2]; /* of the tile */
    bool unroll[TS_AXES];
    bool empty;    /* nothing is summed: the result is zero */
    double cycles; /* modelled, of one core; and cost: of all that share it */
    double cost;
} ts_nest;

/* tile.c */
/* Finds where the operands lie and chooses lanes and tile; false when this template is not
 * for it. */
bool ts_nest_choose(ts_nest *x);
/* The same of vectors that are put together of elements that lie apart, for what has no others. */
bool ts_nest_choose_apart(ts_nest *x);
/* Only the first: every address linear in every axis, and the bounds. */
bool ts_nest_linear(ts_nest *x);
/* Cycles that a chosen nest waits for operands that do not stay in a core's cache. */
double ts_nest_rereads(const ts_nest *x);
/* The width in which what is left of the lanes from `from` on is done. */
int ts_nest_rest(const ts_nest *x, int64_t from);
/* Does the product update a weight in place? */
bool ts_nest_updates(const ts_nest *x);
/* Does padding bound this axis? */
bool ts_nest_bounded(const ts_nest *x, int axis);
/* Bytes of operand o that a piece reads, its lanes in vectors of `width`; or all pieces along axis `whole`, not -1. */
double ts_nest_footprint(const ts_nest *x, int o, int width, int whole);
/* The coordinates of an operand or result with these axes. */
void ts_nest_at(ts_nest *x, const ts_affine *f, int rank, const ts_ix *const *axes,
                const ts_ix **at);

#endif
