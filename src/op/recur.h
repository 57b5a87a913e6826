/* recur.h - recurrent layers: what the loops of op/recur.c, pass/strips.c and render/recur.c share. */
#ifndef TS_RECUR_H
#define TS_RECUR_H

#include "op/op.h"

typedef enum ts_recur_kind {
    TS_RECUR_LSTM,
    TS_RECUR_GRU,
    TS_RECUR_TANH,
    TS_RECUR_RELU
} ts_recur_kind;

typedef struct ts_recur_cell {
    const char *name;
    ts_recur_kind kind;
    int gates; /* of which each has `width` elements */
    int saved; /* parts that the gradient needs, of `width` elements each */
} ts_recur_cell;

typedef struct ts_recur {
    const ts_recur_cell *cell;
    int64_t steps, samples, width;
    bool reverse, strips;
} ts_recur;

enum { TS_RECUR_STRIP = 32 }; /* columns of w that lie side by side */

ts_recur ts_recur_of(const ts_node *n); /* a recur or recur_grad */
/* What a recur makes, as a step after the other. */
ts_status ts_recur_written_out(ts_graph *g, const ts_node *n, ts_value *const *in, ts_value **out);
/* scan.c: a scan as its log n steps */
ts_status ts_scan_written_out(ts_graph *g, const ts_node *n, ts_value *const *in, ts_value **out);

#endif
