/* product.h - products from packed panels: product.c chooses and writes the kernel, panel.c the
 * functions that it calls. */
#ifndef TS_PRODUCT_H
#define TS_PRODUCT_H

#include "render/contract.h"

/* What panels hold: f32, pairs of bf16 that follow each other along the sum, f64, or tiles of 16 x 16
 * pairs: of columns as pairs are, completed by zeros to whole tiles, and of rows. */
typedef enum ts_panel {
    TS_PANEL_F32,
    TS_PANEL_PAIRS,
    TS_PANEL_F64,
    TS_PANEL_TILES,
    TS_PANEL_TILE_ROWS
} ts_panel;
enum { TS_TILE = 16 }; /* rows of a tile, floats or pairs in a row of it */

/* panel.c: names of the functions, which are written once a program */
/* void f(float *to, int64_t strip, const T *from, int64_t count, int64_t step, int64_t kstep, int64_t n):
 * to[k][i], `width` wide, of i < count elements `step` apart and k < n of them `kstep` apart; more elements
 * than `width` make strips, `strip` apart. */
const char *ts_panel_pack(ts_render *r, ts_panel p, ts_dtype from, int64_t width);
/* void f(int64_t n, const float *a, const float *b, float *c, int64_t step, int again): c[rows][vectors of
 * lanes], rows `step` apart, of n steps of panels a and b; `again` adds to what is there. b's rows are
 * `of` vectors. Of f64 all floats here are doubles, and a vector has half as many. Of tiles the steps are whole
 * tiles, and it is called between TILES_BEGIN() and TILES_END(). */
const char *ts_panel_multiply(ts_render *r, ts_panel p, int64_t rows, int vectors, int of);
/* The same of f32 rows where they lie, `step` apart, and `kstep` from one step of the sum to the next; and of
 * columns where they lie, in blocks of a vector that are `apart`, not 0. */
const char *ts_panel_multiply_at(ts_render *r, int64_t rows, int vectors, int of, int64_t step,
                                 int64_t kstep, int64_t apart);
void ts_panel_declare(ts_render *r, ts_text *out); /* for the head */
void ts_panel_functions(ts_render *r);             /* to the body, each a unit */

/* contract.c: the loop over those pieces of a nest, `first` to `first + total - 1`, that a thread has. */
void ts_contract_loop(ts_emit *e, const ts_cut *cut, int64_t first, int64_t total);

/* product.c: the floats in memory behind an operand, or NULL if it is computed on the way. */
const ts_value *ts_product_source(const ts_render *r, const ts_value *v);
/* product.c: writes the contraction from packed panels if that is cheaper than `other` cycles. */
bool ts_render_product(ts_render *r, const ts_kernel *k, const ts_spec *s, double other,
                       ts_cut *cut);

/* winograd.c: writes a convolution that the pass chose for it; false: its operands do not lie so. */
bool ts_render_winograd(ts_render *r, const ts_kernel *k, ts_cut *cut);
bool ts_winograd_declare(ts_render *r,
                         ts_text *out); /* as those of panel.c; whether there are any */
void ts_winograd_functions(ts_render *r);

#endif
