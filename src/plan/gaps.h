/* gaps.h - which memory is taken when. */
#ifndef TS_GAPS_H
#define TS_GAPS_H

#include "base/base.h"

typedef struct ts_span {
    int from, to; /* kernels; both belong to it */
} ts_span;

typedef struct ts_gaps ts_gaps;

ts_gaps *ts_gaps_new(ts_arena *a, int times); /* of times 0 .. times - 1 */
void ts_gaps_take(ts_gaps *g, const ts_span *spans, int n, size_t offset, size_t bytes);
/* The lowest offset from `start` on with so many bytes that are free at all those times. */
size_t ts_gaps_find(ts_gaps *g, const ts_span *spans, int n, size_t start, size_t bytes);
int64_t ts_gaps_work(const ts_gaps *g);

#endif
