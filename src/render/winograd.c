/* winograd.c - convolutions of 3x3 with fewer products, F(4x4, 3x3), some tiles at a time
 * (Winograd 1980; Lavin and Gray 2016).
 *
 *   conv, conv_input                                  conv_weight
 *     for each piece: a block of channels, some tiles   for each piece: a part of the rows, blocks of channels
 *       the block's weights, G g G^T                      for some tiles at a time
 *         (once for all pieces below each other)            the tiles of x, B^T d B
 *       the tiles of x, B^T d B                             the tiles of dy, A e A^T
 *       36 products [tiles, c] [c, o]                       36 products [c, tiles] [tiles, o], added
 *       the tiles of y, A^T m A, and the epilogue         G^T u G, and the epilogue
 *
 * The pass of the same name chose the node for it (attribute `winograd`). What is transformed never
 * leaves a core's cache: it is 2.25 times the picture, and moving it takes longer than what the method
 * saves (16 channels of 320 x 512: 3 times as long). The functions are in a program once.
 *
 * Channels are in the lanes. Those that do not fill the last vector are completed by the ones before,
 * done again: a row of a block that is shorter than a vector then begins before its place, over the end
 * of the row before, where nothing is; so there is room before the first.
 *
 * Each element is summed by one piece in the order of the channels, or of the tiles: the bits do not
 * depend on who does it.
 */
#include "render/product.h"

enum {
    SIZE = 4,   /* results of a tile, each way                                         */
    TILE = 6,   /* and what it reads                                                   */
    SPOTS = 36, /* of a tile, each a product of its own                                */
    MOST = 64,  /* channels each way of a block of a weight's gradient: 600 KB of sums */
    MANY = 48,  /* tiles at a time                                                     */
};

/* Bytes of the transformed weights of a block, at most: they come from the third cache if need be, each for
 * a tile of accumulators. */
static const int64_t WEIGHTS = 5 << 19;

/* An operand in memory: element 0 and the distances. */
typedef struct place {
    const ts_value *from;
    int64_t base, step[TS_MAX_RANK];
} place;

typedef struct winograd {
    ts_render *r;
    const ts_kernel *k;
    const ts_node *n;
    int lanes;
    bool weight; /* the gradient of the weight */
    place x, w;  /* what is read in tiles of 6; the weight, or dy in tiles of 4 */
    bool turned; /* the gradient of the input: the weight is turned */
    int64_t c, o, size[2], pad[2], made[2]; /* of x; of y, or of a part of dy */
    int64_t parts, down, across, tiles;     /* of a part */
    /* the choice */
    int64_t columns, blocks; /* of o */
    int64_t lines, heaps;    /* of c, in a weight's gradient */
    int64_t together;        /* tiles */
    int rows, vectors;       /* of accumulators */
} winograd;

/* --- where it applies --- */

static bool locate(ts_render *r, const ts_value *v, place *p)
{
    const ts_ix *at[TS_MAX_RANK], *address;
    const ts_atom *atoms[TS_MAX_RANK];

    p->from = v;
    while (r->p->place[p->from->id].home == TS_HOME_NONE) {
        if (p->from->kind != TS_VALUE_NODE || !(p->from->node->op->flags & TS_VIEW))
            return false;
        p->from = p->from->node->in[0];
    }
    for (int d = 0; d < v->type.rank; d++) {
        atoms[d] = ts_atom_var(r->a, ts_arena_printf(r->a, "d%d", d), 0, v->type.dim[d] - 1);
        at[d] = ts_ix_var(r->a, atoms[d]);
    }
    address = ts_render_address(r, v, at);
    if (!address || p->from->type.dtype != TS_F32)
        return false;
    p->base = address->c;
    for (int d = 0; d < v->type.rank; d++) {
        if (v->type.dim[d] > 1 && !ts_ix_linear(address, atoms[d]))
            return false;
        p->step[d] = v->type.dim[d] > 1 ? ts_ix_coef(address, atoms[d]) : 0;
    }
    return true;
}

static bool plain_roots(const ts_kernel *k)
{
    for (int r = 0; r < k->nroots; r++)
        if (k->roots[r]->type.dtype == TS_F64 || k->roots[r]->type.dtype == TS_I64)
            return false;
    return k->nroots <= 64;
}

static int64_t tiles(int64_t size)
{
    return (size + SIZE - 1) / SIZE;
}

static bool find(winograd *g)
{
    const ts_node *n = g->n;
    const ts_type *x = &n->in[0]->type, *w, *y;
    const int64_t *padding;
    int count = ts_attr_list(n, "padding", &padding);

    g->weight = n->op == TS_OP(conv_weight);
    g->turned = n->op == TS_OP(conv_input);
    g->parts = ts_attr_int(n, "parts", 1);
    w = &n->in[1]->type;
    y = g->weight ? w : &n->out[0]->type;
    g->c = x->dim[1];
    g->o = y->dim[1];
    for (int d = 0; d < 2; d++) {
        g->size[d] = x->dim[2 + d];
        g->made[d] = y->dim[2 + d] / (d ? 1 : g->parts);
        g->pad[d] = count ? padding[d] : 0;
        if (g->turned)
            g->pad[d] = 2 - g->pad[d];
    }
    g->down = tiles(g->made[0]);
    g->across = tiles(g->made[1]);
    g->tiles = x->dim[0] * g->down * g->across;
    if (!locate(g->r, n->in[0], &g->x) || !locate(g->r, n->in[1], &g->w))
        return false;
    return g->c >= g->lanes && g->o >= g->lanes && g->x.step[1] == 1 &&
           g->w.step[g->weight || g->turned ? 1 : 0] == 1;
}

/* --- the choice --- */

static int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* `n` in blocks of whole vectors, at most `most` of them. */
static int64_t block_of(int64_t n, int64_t most, int lanes)
{
    int64_t vectors = ceil_div(n, lanes);

    return lanes * ceil_div(vectors, ceil_div(vectors, TS_MAX(1, most)));
}

/* Accumulators: as many vectors as share a broadcast, and of rows as many as there is room for. */
static void choose_tile(winograd *g, int64_t rows)
{
    int64_t v = g->columns / g->lanes, most;

    g->vectors = (int)(v <= 4 ? v : v % 3 == 0 ? 3 : 4);
    most = ts_machine_accumulators(&g->r->m) / g->vectors;
    g->rows = (int)ceil_div(rows, ceil_div(rows, most));
}

/* So many tiles that what is transformed takes half of the second cache; and so large blocks, of a weight's
 * gradient too, that each core has pieces. */
static void choose(winograd *g)
{
    const ts_machine_model *m = &g->r->m;
    int64_t pieces, most, here;

    if (g->weight) {
        int64_t down = MOST / g->lanes, right = MOST / g->lanes;
        while (g->parts * ceil_div(g->c, down * g->lanes) * ceil_div(g->o, right * g->lanes) <
                   2 * m->cores &&
               down + right > 2)
            *(down >= right ? &down : &right) /= 2;
        g->columns = block_of(g->o, right, g->lanes);
        g->lines = block_of(g->c, down, g->lanes);
        g->heaps = ceil_div(g->c, g->lines);
        choose_tile(g, g->lines);
        g->together = TS_MIN(g->tiles, MANY);
    } else {
        g->columns = block_of(g->o, WEIGHTS / (4 * SPOTS * g->c * g->lanes), g->lanes);
        g->lines = g->c;
        g->heaps = 1;
        here = m->level2 / 2 / (4 * SPOTS * (g->c + g->columns));
        pieces = ceil_div(4 * m->cores, ceil_div(g->o, g->columns));
        most = TS_MIN(TS_MIN(MANY, TS_MAX(here, 8)), ceil_div(g->tiles, pieces));
        choose_tile(g, TS_MAX(most, 1));
        g->together = TS_ROUND_UP(most, g->rows);
    }
    g->blocks = ceil_div(g->o, g->columns);
}

/* Floats of the panels, each with room before it. */
typedef struct panels {
    int64_t v, u, m, patch; /* tiles of x, weights or their sums, tiles of y */
} panels;

static panels sizes(const winograd *g)
{
    int64_t lines = g->weight ? TS_ROUND_UP(g->lines, g->rows) : g->lines;

    return (panels){.v = SPOTS * g->together * g->lines + 2 * MOST,
                    .u = SPOTS * lines * g->columns + 2 * MOST,
                    .m = SPOTS * g->together * g->columns + 2 * MOST,
                    .patch = SPOTS * TS_MAX(g->columns, g->lanes)};
}

/* Multiply-adds in whose time a tile of a channel of x, and of y or dy, is transformed, and a weight; and a
 * product is made: 16 channels of 320 x 512 take 1600 cycles a tile, 1460 without the memory. */
enum { INTO = 24 * 16, OUT_OF = 18 * 16, KERNEL = 8 * 16 };
static const double PRODUCT = 1.35;

static double cycles(const winograd *g)
{
    double c = (double)g->c, o = (double)g->o, all = (double)(g->tiles * g->parts);
    double into = INTO * c * (double)g->blocks, out = OUT_OF * o * (double)g->heaps;

    return ts_price_sums(&g->r->m, all * (PRODUCT * SPOTS * c * o + into + out) +
                                       KERNEL * c * o * (double)g->parts);
}

/* --- writing --- */

typedef struct writer {
    winograd *g;
    ts_emit *e;
    int mark[8], depth;
} writer;

static void open(writer *w, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    ts_emit_line(w->e, "%s {", ts_arena_vprintf(w->e->a, fmt, ap));
    va_end(ap);
    ts_emit_open(w->e, &w->mark[w->depth++]);
}

static void close(writer *w)
{
    ts_emit_close(w->e, w->mark[--w->depth]);
}

static const char *sums_name(writer *w, int vectors)
{
    winograd *g = w->g;
    long along = g->weight ? (long)g->lines : 1, down = g->weight ? 1 : (long)g->lines;
    const char *what = ts_arena_printf(w->e->a, "%d_%d_%ld_%ld_%ld", g->rows, vectors, along, down,
                                       (long)g->columns);

    ts_render_need(g->r, ts_arena_printf(w->e->a, "winograd sums %s", what));
    return ts_arena_printf(w->e->a, "winograd_sums_%s", what);
}

/* The places of tile t: sample, row and column of its first result. */
static void decode(writer *w)
{
    winograd *g = w->g;
    ts_emit *e = w->e;

    ts_emit_line(e, "const int64_t n = t / %ld, y = %d * (t / %ld %% %ld), x = %d * (t %% %ld);",
                 (long)(g->down * g->across), SIZE, (long)g->across, (long)g->down, SIZE,
                 (long)g->across);
}

/* Tiles of an operand to a panel, `size` rows and columns of each from (top, left) on, of which
 * those inside are read: channels first .. last - 1. */
static void transform(writer *w, const place *p, const char *panel, int size, int64_t channels,
                      int64_t width, const char *first, const char *last)
{
    winograd *g = w->g;
    ts_emit *e = w->e;
    const char *f = size == TILE ? "in" : "back";
    const char *row =
        g->parts > 1 ? ts_arena_printf(e->a, "(y + %ld * part)", (long)g->made[0]) : "y";
    long rows = (long)(size == TILE ? g->size[0] : g->made[0]),
         cols = (long)(size == TILE ? g->size[1] : g->made[1]), ys = (long)p->step[2],
         xs = (long)p->step[3], pad[2] = {0, 0};

    if (size == TILE) {
        pad[0] = (long)g->pad[0];
        pad[1] = (long)g->pad[1];
    }
    ts_emit_line(e, "const int64_t top = max(0, %ld - %s), bottom = min(%d, %ld - %s);", pad[0],
                 size == TILE ? row : "y", size, rows + pad[0], size == TILE ? row : "y");
    ts_emit_line(e, "const int64_t left = max(0, %ld - x), right = min(%d, %ld - x);", pad[1], size,
                 cols + pad[1]);
    ts_emit_line(e, "const int whole = bottom - top == %d && right - left == %d;", size, size);
    open(w, "for (int64_t z = %s; z < %s; z += %d)", first, last, g->lanes);
    ts_emit_line(e, "const int64_t at = min(z, %ld);", (long)(channels - g->lanes));
    ts_emit_line(e,
                 "const float *const from = %s + (%ld + %ld * n + %ld * (%s - %ld) + %ld * "
                 "(x - %ld) + at);",
                 ts_render_pointer(g->r, p->from), (long)p->base, (long)p->step[0], ys, row, pad[0],
                 xs, pad[1]);
    ts_emit_line(e, "float *const to = %s + (t - first) * %ld + (at - %s);", panel, (long)width,
                 first);
    ts_emit_line(e, "if (!whole)");
    ts_emit_line(e, "    winograd_patch(pp, from, %ld, %ld, top, bottom, left, right, %d);", ys, xs,
                 size);
    ts_emit_line(e, "winograd_%s(to, %ld, whole ? from : pp, whole ? %ld : %d, whole ? %ld : %d);",
                 f, (long)(g->together * width), ys, size * g->lanes, xs, g->lanes);
    close(w);
}

/* The 36 products. */
static void multiply(writer *w, const char *a, const char *b, const char *to, const char *again)
{
    winograd *g = w->g;
    ts_emit *e = w->e;
    long lanes = (long)g->vectors * g->lanes, c = (long)g->columns, t = (long)g->together;
    long lines = (long)(g->weight ? TS_ROUND_UP(g->lines, g->rows) : g->lines);
    int left = (int)(g->columns / g->lanes % g->vectors);
    const char *n = g->weight ? "count" : ts_arena_printf(e->a, "%ld", (long)g->c);
    const char *all = g->weight ? "down - top" : "count";
    long as = g->weight ? t * (long)g->lines : t * (long)g->lines,
         bs = g->weight ? t * c : lines * c, cs = g->weight ? lines * c : t * c,
         row = g->weight ? 1 : (long)g->lines;

    open(w, "for (int64_t p = 0; p < %d; p++)", SPOTS);
    open(w, "for (int64_t z = 0; z < %ld; z += %ld)", c, lanes);
    open(w, "for (int64_t y = 0; y < %s; y += %d)", all, g->rows);
    ts_emit_line(
        e, "%s(%s, %s + p * %ld + y * %ld, %s + p * %ld + z, %s + p * %ld + y * %ld + z, %s);",
        left ? ts_arena_printf(e->a, "(z + %ld > %ld ? %s : %s)", lanes, c, sums_name(w, left),
                               sums_name(w, g->vectors))
             : sums_name(w, g->vectors),
        n, a, as, row, b, bs, to, cs, c, again);
    close(w);
    close(w);
    close(w);
}

static const ts_ix *variable(writer *w, const char *prefix, int64_t extent, const char *text)
{
    const char *name = ts_emit_name(w->e, prefix);

    ts_emit_line(w->e, "const int64_t %s = %s;", name, text);
    return ts_ix_var(w->e->a, ts_atom_var(w->e->a, name, 0, extent - 1));
}

/* Roots at `at`, the anchor there being what the text loads. */
static void store(writer *w, const ts_ix *const *at, const char *load)
{
    const ts_kernel *k = w->g->k;
    ts_emit *e = w->e;
    const char *names[64];

    ts_emit_bind(e, k->anchor->out[0], at, ts_emit_temp(e, TS_F32, "%s", load));
    for (int r = 0; r < k->nroots; r++) {
        names[r] = ts_emit_recall(e, k->roots[r], at);
        if (!names[r]) {
            names[r] = ts_emit_node(e, k->roots[r], at);
            ts_emit_bind(e, k->roots[r], at, names[r]);
        }
    }
    for (int r = 0; r < k->nroots; r++)
        ts_emit_store(e, k->roots[r], at, names[r]);
}

/* Channels of a block from `from` on, `lanes` at a time; dim `d` of the result counts them. */
static void store_lanes(writer *w, const ts_ix **at, int d, int lanes, const char *from,
                        const char *load)
{
    ts_emit *e = w->e;
    const ts_ix *i;

    open(w, "for (int64_t z = %s; z <= width - %d; z += %d)", from, lanes, lanes);
    e->lanes = lanes > 1 ? lanes : 0;
    e->lane = ts_atom_var(e->a, "l", 0, lanes - 1);
    i = variable(w, "o", w->g->o / lanes,
                 ts_arena_printf(e->a, lanes > 1 ? "(begin + z) / %d" : "begin + z", lanes));
    at[d] = lanes > 1 ? ts_ix_add(e->a, ts_ix_mul(e->a, i, lanes), ts_ix_var(e->a, e->lane)) : i;
    store(w, at,
          lanes > 1 ? ts_arena_printf(e->a, "*(const f32x%du *)(%s)", lanes, load)
                    : ts_arena_printf(e->a, "*(%s)", load));
    e->lanes = 0;
    close(w);
}

/* Behind whole vectors narrower ones if they are filled, else one by one. */
static void store_row(writer *w, const ts_ix **at, int d, const char *load)
{
    int lanes = w->g->lanes, narrow = lanes / 2;

    store_lanes(w, at, d, lanes, "0", load);
    if (w->g->o % lanes == 0)
        return;
    while (narrow > 1 && w->g->o % narrow)
        narrow /= 2;
    store_lanes(w, at, d, narrow < 4 ? 1 : narrow,
                ts_arena_printf(w->e->a, "width / %d * %d", lanes, lanes), load);
}

static void write_picture(writer *w)
{
    winograd *g = w->g;
    ts_emit *e = w->e;
    const ts_ix *at[TS_MAX_RANK];
    const place *k = &g->w;
    long c = (long)g->columns, per = (long)ceil_div(g->tiles, g->together);
    int in = g->turned ? 0 : 1;
    long ys = (long)k->step[2], xs = (long)k->step[3], base = (long)k->base;

    if (g->turned) {
        base += 2 * ys + 2 * xs;
        ys = -ys;
        xs = -xs;
    }
    ts_emit_line(e, "int64_t made = -1;");
    open(w, "for (int64_t i = lo; i < hi; i++)");
    ts_emit_line(e,
                 "const int64_t block = i / %ld, begin = block * %ld, end = min(begin + %ld, %ld);",
                 per, c, c, (long)g->o);
    ts_emit_line(e, "const int64_t first = i %% %ld * %ld, last = min(first + %ld, %ld);", per,
                 (long)g->together, (long)g->together, (long)g->tiles);
    ts_emit_line(e, "const int64_t count = last - first, width = end - begin;");
    open(w, "if (made != block)");
    open(w, "for (int64_t c = 0; c < %ld; c++)", (long)g->c);
    open(w, "for (int64_t z = begin; z < end; z += %d)", g->lanes);
    ts_emit_line(e, "const int64_t at = min(z, %ld);", (long)(g->o - g->lanes));
    ts_emit_line(
        e,
        "winograd_kernel(pu + c * %ld + (at - begin), %ld, %s + (%ld + c * %ld + at), %ld, %ld);",
        c, (long)g->lines * c, ts_render_pointer(g->r, k->from), base, (long)k->step[in], ys, xs);
    close(w);
    close(w);
    ts_emit_line(e, "made = block;");
    close(w);
    open(w, "for (int64_t t = first; t < last; t++)");
    decode(w);
    transform(w, &g->x, "pv", TILE, g->c, g->c, "0", ts_arena_printf(e->a, "%ld", (long)g->c));
    close(w);
    multiply(w, "pv", "pu", "pm", "0");
    open(w, "for (int64_t t = first; t < last; t++)");
    decode(w);
    open(w, "for (int64_t z = 0; z < width; z += %d)", g->lanes);
    ts_emit_line(e, "winograd_out(pp + z, %ld, pm + (t - first) * %ld + z, %ld, %ld);", c, c,
                 TILE * (long)g->together * c, (long)g->together * c);
    close(w);
    open(w, "for (int64_t j = 0; j < min(%d, %ld - y); j++)", SIZE, (long)g->made[0]);
    open(w, "for (int64_t k = 0; k < min(%d, %ld - x); k++)", SIZE, (long)g->made[1]);
    at[0] = ts_ix_var(e->a, ts_atom_var(e->a, "n", 0, g->n->out[0]->type.dim[0] - 1));
    at[2] = variable(w, "y", g->made[0], "y + j");
    at[3] = variable(w, "x", g->made[1], "x + k");
    store_row(w, at, 1, ts_arena_printf(e->a, "pp + (%d * j + k) * %ld + z", SIZE, c));
    close(w);
    close(w);
    close(w);
    close(w);
}

static void write_weight(writer *w)
{
    winograd *g = w->g;
    ts_emit *e = w->e;
    const ts_ix *at[TS_MAX_RANK];
    long c = (long)g->columns, lines = (long)TS_ROUND_UP(g->lines, g->rows);
    int d = g->parts > 1;

    open(w, "for (int64_t i = lo; i < hi; i++)");
    ts_emit_line(e, "const int64_t begin = i %% %ld * %ld, end = min(begin + %ld, %ld);",
                 (long)g->blocks, c, c, (long)g->o);
    ts_emit_line(e, "const int64_t top = i / %ld %% %ld * %ld, down = min(top + %ld, %ld);",
                 (long)g->blocks, (long)g->heaps, (long)g->lines, (long)g->lines, (long)g->c);
    ts_emit_line(e, "const int64_t part = i / %ld, width = end - begin;",
                 (long)(g->blocks * g->heaps));
    ts_emit_line(e, "(void)part;");
    open(w, "for (int64_t first = 0; first < %ld; first += %ld)", (long)g->tiles,
         (long)g->together);
    ts_emit_line(e, "const int64_t last = min(first + %ld, %ld), count = last - first;",
                 (long)g->together, (long)g->tiles);
    open(w, "for (int64_t t = first; t < last; t++)");
    decode(w);
    ts_emit_line(e, "const int64_t c0 = top, c1 = down;");
    open(w, "");
    transform(w, &g->x, "pv", TILE, g->c, g->lines, "c0", "c1");
    close(w);
    open(w, "");
    transform(w, &g->w, "pm", SIZE, g->o, g->columns, "begin", "end");
    close(w);
    close(w);
    multiply(w, "pv", "pm", "pu", "first > 0");
    close(w);
    open(w, "for (int64_t u = top; u < down; u++)");
    open(w, "for (int64_t z = 0; z < width; z += %d)", g->lanes);
    ts_emit_line(e, "winograd_taps(pp + z, %ld, pu + (u - top) * %ld + z, %ld, %ld);", c, c,
                 TILE * lines * c, lines * c);
    close(w);
    open(w, "for (int64_t j = 0; j < 3; j++)");
    open(w, "for (int64_t k = 0; k < 3; k++)");
    if (d)
        at[0] = ts_ix_var(e->a, ts_atom_var(e->a, "part", 0, g->parts - 1));
    at[d + 1] = ts_ix_var(e->a, ts_atom_var(e->a, "u", 0, g->c - 1));
    at[d + 2] = ts_ix_var(e->a, ts_atom_var(e->a, "j", 0, 2));
    at[d + 3] = ts_ix_var(e->a, ts_atom_var(e->a, "k", 0, 2));
    store_row(w, at, d, ts_arena_printf(e->a, "pp + (3 * j + k) * %ld + z", c));
    close(w);
    close(w);
    close(w);
    close(w);
}

bool ts_render_winograd(ts_render *r, const ts_kernel *k, ts_cut *cut)
{
    winograd g = {.r = r, .k = k, .n = k->anchor, .lanes = r->m.isa.width};
    ts_emit e;
    writer w = {.g = &g, .e = &e};
    panels p;

    if (!(k->anchor->op->flags & TS_CONV) || !ts_attr_int(k->anchor, "winograd", 0) ||
        !plain_roots(k) || !find(&g))
        return false;
    choose(&g);
    p = sizes(&g);
    r->panel_bytes = TS_MAX(r->panel_bytes, 4 * (size_t)(p.v + p.u + p.m + p.patch + MOST));
    ts_render_need(r, "winograd");
    ts_render_emitter(r, &e);
    ts_emit_line(&e, "/* winograd: %ld tiles together, block of %ld, %d x %d vectors */",
                 (long)g.together, (long)g.columns, g.rows, g.vectors);
    ts_emit_line(&e,
                 "float *const pv = (float *)panels + %d, *const pu = pv + %ld, *const pm = pu + "
                 "%ld, *const pp = pm + %ld;",
                 MOST, (long)p.v, (long)p.u, (long)p.m);
    (g.weight ? write_weight : write_picture)(&w);
    cut->count = g.weight ? g.parts * g.heaps * g.blocks : g.blocks * ceil_div(g.tiles, g.together);
    cut->cycles = cycles(&g);
    cut->dim = g.weight ? 0 : g.blocks > 1 ? 1 : g.n->out[0]->type.dim[0] > 1 ? 0 : 2;
    cut->grain = ts_machine_grain(&r->m, cut->count, cut->cycles);
    return true;
}

/* --- the functions --- */

/* One dim of each transform: r of d. V is a vector, F a multiply-add, K a number in every lane. */
static const char forms[] =
    "#define TO_SPOTS(r, d)                                                        \\\n"
    "    do {                                                                      \\\n"
    "        const V a = F(K(-4), d[2], d[4]), b = F(K(-4), d[1], d[3]);           \\\n"
    "        const V e = d[4] - d[2], f = d[3] - d[1];                             \\\n"
    "        r[0] = F(K(4), d[0], F(K(-5), d[2], d[4]));                           \\\n"
    "        r[1] = a + b;                                                         \\\n"
    "        r[2] = a - b;                                                         \\\n"
    "        r[3] = F(K(2), f, e);                                                 \\\n"
    "        r[4] = F(K(-2), f, e);                                                \\\n"
    "        r[5] = F(K(4), d[1], F(K(-5), d[3], d[5]));                           \\\n"
    "    } while (0)\n"
    "#define FROM_SPOTS(r, d)                                                      \\\n"
    "    do {                                                                      \\\n"
    "        const V a = d[1] + d[2], b = d[1] - d[2];                             \\\n"
    "        const V e = d[3] + d[4], f = d[3] - d[4];                             \\\n"
    "        r[0] = d[0] + a + e;                                                  \\\n"
    "        r[1] = F(K(2), f, b);                                                 \\\n"
    "        r[2] = F(K(4), e, a);                                                 \\\n"
    "        r[3] = F(K(8), f, b) + d[5];                                          \\\n"
    "    } while (0)\n"
    "#define BACK_TO_SPOTS(r, d)                                                   \\\n"
    "    do {                                                                      \\\n"
    "        const V a = d[0] + d[2], b = d[1] + d[3];                             \\\n"
    "        const V e = F(K(4), d[2], d[0]), f = F(K(8), d[3], d[1] + d[1]);      \\\n"
    "        r[0] = d[0];                                                          \\\n"
    "        r[1] = a + b;                                                         \\\n"
    "        r[2] = a - b;                                                         \\\n"
    "        r[3] = e + f;                                                         \\\n"
    "        r[4] = e - f;                                                         \\\n"
    "        r[5] = d[3];                                                          \\\n"
    "    } while (0)\n"
    "#define KERNEL_TO_SPOTS(r, d)                                                 \\\n"
    "    do {                                                                      \\\n"
    "        const V a = (d[0] + d[2]) * K(-1 / 6.f), b = d[1] * K(-1 / 6.f);      \\\n"
    "        const V e = F(K(1 / 24.f), d[0], d[2] * K(1 / 6.f));                  \\\n"
    "        const V f = d[1] * K(1 / 12.f);                                       \\\n"
    "        r[0] = d[0] * K(0.25f);                                               \\\n"
    "        r[1] = a + b;                                                         \\\n"
    "        r[2] = a - b;                                                         \\\n"
    "        r[3] = e + f;                                                         \\\n"
    "        r[4] = e - f;                                                         \\\n"
    "        r[5] = d[2];                                                          \\\n"
    "    } while (0)\n"
    "#define KERNEL_FROM_SPOTS(r, d)                                               \\\n"
    "    do {                                                                      \\\n"
    "        const V a = (d[1] + d[2]) * K(-1 / 6.f), e = d[3] + d[4];             \\\n"
    "        const V f = (d[2] - d[1]) * K(1 / 6.f);                               \\\n"
    "        r[0] = F(K(0.25f), d[0], F(K(1 / 24.f), e, a));                       \\\n"
    "        r[1] = F(K(1 / 12.f), d[3] - d[4], f);                                \\\n"
    "        r[2] = F(K(1 / 6.f), e, a) + d[5];                                    \\\n"
    "    } while (0)\n";

static const struct {
    const char *name, *form;
    int from, to;
} transforms[] = {{"in", "TO_SPOTS", TILE, TILE},
                  {"out", "FROM_SPOTS", TILE, SIZE},
                  {"back", "BACK_TO_SPOTS", SIZE, TILE},
                  {"kernel", "KERNEL_TO_SPOTS", 3, TILE},
                  {"taps", "KERNEL_FROM_SPOTS", TILE, 3}};

#define TRANSFORM                                                                                  \
    "void winograd_%s(float *to, int64_t step, const float *x, int64_t ys, int64_t xs)"
#define PATCH                                                                                      \
    "void winograd_patch(float *to, const float *x, int64_t ys, int64_t xs, int64_t top, "         \
    "int64_t bottom, int64_t left, int64_t right, int64_t size)"
#define SUMS                                                                                       \
    "void winograd_sums_%d_%d_%d_%d_%d(int64_t n, const float *a, const float *b, float *c, int "  \
    "again)"

/* Columns first, into a square that is n wide; then its rows. */
static void write_transform(ts_text *t, const char *name, const char *form, int n, int m)
{
    ts_text_printf(t, TRANSFORM "\n{\n    V t[%d][%d];\n\n", name, m, n);
    ts_text_printf(t, "    for (int i = 0; i < %d; i++, x += xs) {\n        V d[%d], r[%d];\n", n,
                   n, m);
    for (int j = 0; j < n; j++)
        ts_text_printf(t, "        d[%d] = *(const U *)(x + %d * ys);\n", j, j);
    ts_text_printf(t, "        %s(r, d);\n", form);
    for (int j = 0; j < m; j++)
        ts_text_printf(t, "        t[%d][i] = r[%d];\n", j, j);
    ts_text_printf(t, "    }\n    for (int j = 0; j < %d; j++) {\n        V r[%d];\n", m, m);
    ts_text_printf(t, "        %s(r, t[j]);\n", form);
    for (int i = 0; i < m; i++)
        ts_text_printf(t, "        *(U *)to = r[%d];\n        to += step;\n", i);
    ts_text_printf(t, "    }\n}\n");
}

static void write_patch(ts_text *t)
{
    ts_text_printf(t, PATCH "\n{\n"
                            "    for (int64_t j = 0; j < size; j++)\n"
                            "        for (int64_t i = 0; i < size; i++, to += sizeof(V) / 4)\n"
                            "            if (j >= top && j < bottom && i >= left && i < right)\n"
                            "                *(U *)to = *(const U *)(x + j * ys + i * xs);\n"
                            "            else\n"
                            "                *(U *)to = K(0);\n"
                            "}\n");
}

/* rows x vectors of c, of n steps: of a they are `along` apart and its rows `down`, of b and c rows are
 * `width`. */
static void write_sums(ts_text *t, int w, int rows, int vectors, int along, int down, int width)
{
    ts_text_printf(t, SUMS "\n{\n", rows, vectors, along, down, width);
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < vectors; j++)
            ts_text_printf(t, "    f32x%d c%d_%d = {0};\n", w, i, j);
    ts_text_printf(t, "\n    if (again) {\n");
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < vectors; j++)
            ts_text_printf(t, "        c%d_%d = *(const f32x%du *)(c + %d);\n", i, j, w,
                           i * width + j * w);
    ts_text_printf(t, "    }\n    for (; n > 0; n--, a += %d, b += %d) {\n        f32x%d x;\n",
                   along, width, w);
    for (int j = 0; j < vectors; j++)
        ts_text_printf(t, "        const f32x%d b%d = *(const f32x%du *)(b + %d);\n", w, j, w,
                       j * w);
    for (int i = 0; i < rows; i++) {
        ts_text_printf(t, "        x = SPLAT(f32x%d, a[%d]);\n", w, i * down);
        for (int j = 0; j < vectors; j++)
            ts_text_printf(t, "        c%d_%d = fma_f32x%d(x, b%d, c%d_%d);\n", i, j, w, j, i, j);
    }
    ts_text_printf(t, "    }\n");
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < vectors; j++)
            ts_text_printf(t, "    *(f32x%du *)(c + %d) = c%d_%d;\n", w, i * width + j * w, i, j);
    ts_text_printf(t, "}\n");
}

static bool is_sums(const char *need, int *n)
{
    return sscanf(need, "winograd sums %d_%d_%d_%d_%d", n, n + 1, n + 2, n + 3, n + 4) == 5;
}

bool ts_winograd_declare(ts_render *r, ts_text *out)
{
    bool any = false;
    int n[5];

    for (int i = 0; i < r->nneeds; i++) {
        if (is_sums(r->needs[i], n))
            ts_text_printf(out, SUMS ";\n", n[0], n[1], n[2], n[3], n[4]);
        if (strcmp(r->needs[i], "winograd") != 0)
            continue;
        any = true;
        ts_text_printf(out, "\n" PATCH ";\n");
        for (int k = 0; k < TS_COUNT(transforms); k++)
            ts_text_printf(out, TRANSFORM ";\n", transforms[k].name);
    }
    return any;
}

static void write_transforms(ts_text *t, int w)
{
    ts_text_printf(t,
                   "\n" TS_UNIT "typedef f32x%d V;\ntypedef f32x%du U;\n"
                   "#define F(a, b, c) fma_f32x%d(a, b, c)\n#define K(x) SPLAT(V, (float)(x))\n%s",
                   w, w, w, forms);
    write_patch(t);
    for (int k = 0; k < TS_COUNT(transforms); k++)
        write_transform(t, transforms[k].name, transforms[k].form, transforms[k].from,
                        transforms[k].to);
}

void ts_winograd_functions(ts_render *r)
{
    int n[5];

    for (int i = 0; i < r->nneeds; i++) {
        if (!strcmp(r->needs[i], "winograd"))
            write_transforms(&r->body, r->m.isa.width);
        if (!is_sums(r->needs[i], n))
            continue;
        ts_text_printf(&r->body, "\n" TS_UNIT);
        write_sums(&r->body, r->m.isa.width, n[0], n[1], n[2], n[3], n[4]);
    }
}
