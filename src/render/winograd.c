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
 * Channels are in the lanes. The last vector is half as wide where that holds the rest of them. Those that do
 * not fill it are completed by the ones before, done again: a row of a block that is shorter than a vector then
 * begins before its place, over the end of the row before, where nothing is; so there is room before the first.
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
    int last;                /* lanes of a block's last vector */
    int64_t row_c, row_o;    /* floats from row to row of a panel: halves of vectors */
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

/* The last vector of n channels: half of one if that is enough. */
static int last_lanes(int64_t n, int lanes)
{
    return lanes >= 8 && n % lanes && n % lanes <= lanes / 2 ? lanes / 2 : lanes;
}

/* n channels in vectors. */
static int64_t filled(int64_t n, int lanes)
{
    return TS_ROUND_UP(n, lanes) - lanes + last_lanes(n, lanes);
}

/* `n` in blocks of whole vectors, at most `most` of them; or in one, whose last vector may be narrow. */
static int64_t block_of(int64_t n, int64_t most, int lanes)
{
    int64_t vectors = ceil_div(n, lanes);

    most = TS_MAX(1, most);
    return vectors <= most ? filled(n, lanes) : lanes * ceil_div(vectors, ceil_div(vectors, most));
}

/* Accumulators: as many vectors as share a broadcast, and of rows as many as there is room for. */
static void choose_tile(winograd *g, int64_t rows)
{
    int64_t v = g->columns / g->lanes, most; /* a narrow one is by itself */

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
        g->lines = TS_MIN(g->c, block_of(g->c, down, g->lanes));
        g->heaps = ceil_div(g->c, g->lines);
        choose_tile(g, g->lines);
        g->together = ceil_div(g->tiles, ceil_div(g->tiles, MANY));
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
    g->last = last_lanes(g->columns, g->lanes);
    g->row_c = TS_ROUND_UP(g->lines, g->lanes / 2);
    g->row_o = TS_ROUND_UP(g->columns, g->lanes / 2);
}

/* Lines of a panel of o that are written: the gradient of a weight is summed in whole tiles. */
static int64_t lines_written(const winograd *g)
{
    return g->weight ? TS_ROUND_UP(g->lines, g->rows) : g->lines;
}

/* Floats of the panels, each with room before it. */
typedef struct panels {
    int64_t v, u, m, patch; /* tiles of x, weights or their sums, tiles of y */
} panels;

static panels sizes(const winograd *g)
{
    return (panels){.v = SPOTS * g->together * g->row_c + 2 * MOST,
                    .u = SPOTS * lines_written(g) * g->row_o + 2 * MOST,
                    .m = SPOTS * g->together * g->row_o + 2 * MOST,
                    .patch = SPOTS * TS_MAX(g->row_o, g->lanes)};
}

/* Multiply-adds in whose time a tile of a channel of x, and of y or dy, is transformed, and a weight; and a
 * product is made: 16 channels of 320 x 512 take 1600 cycles a tile, 1460 without the memory. */
enum { INTO = 24 * 16, OUT_OF = 18 * 16, KERNEL = 8 * 16 };
static const double PRODUCT = 1.35;

static double cycles(const winograd *g)
{
    double c = (double)filled(g->c, g->lanes), o = (double)(g->blocks * g->columns);
    double all = (double)(g->tiles * g->parts), sums = PRODUCT * SPOTS * (double)g->c * o;
    double into = INTO * c * (double)g->blocks, out = OUT_OF * o * (double)g->heaps;

    return ts_price_sums(&g->r->m, all * (sums + into + out) + KERNEL * c * o * (double)g->parts);
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
    ts_emit_line(w->e, *fmt ? "%s {" : "%s{", ts_arena_vprintf(w->e->a, fmt, ap));
    va_end(ap);
    ts_emit_open(w->e, &w->mark[w->depth++]);
}

static void close(writer *w)
{
    ts_emit_close(w->e, w->mark[--w->depth]);
}

static const char *sums_name(writer *w, int vectors, int lanes)
{
    winograd *g = w->g;
    long along = g->weight ? (long)g->row_c : 1, down = g->weight ? 1 : (long)g->row_c;
    const char *what = ts_arena_printf(w->e->a, "%d_%d_%ld_%ld_%ld_%d", g->rows, vectors, along,
                                       down, (long)g->row_o, lanes);

    ts_render_need(g->r, ts_arena_printf(w->e->a, "winograd sums %s", what));
    return ts_arena_printf(w->e->a, "winograd_sums_%s", what);
}

/* A variable of the text that counts to `extent`; and one that is made of another. */
static const ts_ix *counter(writer *w, const char *name, int64_t extent)
{
    return ts_ix_var(w->e->a, ts_atom_var(w->e->a, name, 0, extent - 1));
}

static void declare(writer *w, const char *name, const ts_ix *x)
{
    ts_emit_line(w->e, "const int64_t %s = %s;", name, ts_ix_text(w->e->a, x));
}

/* The samples, and the parts, in which the tiles are. */
static const ts_ix *sample(writer *w)
{
    return counter(w, "n", w->g->n->in[0]->type.dim[0]);
}

static const ts_ix *part(writer *w)
{
    return counter(w, "part", w->g->parts);
}

/* The places of tile t: sample, row and column of its first result. */
static void decode(writer *w)
{
    winograd *g = w->g;
    ts_arena *a = w->e->a;
    const ts_ix *t = counter(w, "t", g->tiles);

    if (g->n->in[0]->type.dim[0] > 1)
        declare(w, "n", ts_ix_div(a, t, g->down * g->across));
    declare(w, "y", ts_ix_mul(a, ts_ix_mod(a, ts_ix_div(a, t, g->across), g->down), SIZE));
    declare(w, "x", ts_ix_mul(a, ts_ix_mod(a, t, g->across), SIZE));
}

/* How a transform is called that does so many lanes. */
static const char *function(writer *w, const char *name, int lanes)
{
    const char *what = ts_arena_printf(w->e->a, "winograd %d", lanes);

    ts_render_need(w->g->r, what);
    return ts_arena_printf(w->e->a, "winograd_%s_%d", name, lanes);
}

typedef void step_fn(writer *w, int lanes, const void *of);

/* Channels from `first` on, a vector at a time, the last perhaps a narrow one: z counts them and `at` is where
 * the vector begins, of `channels` in all. */
static void each_vector(writer *w, const char *first, const char *end, int64_t channels, int last,
                        step_fn *step, const void *of)
{
    int lanes = w->g->lanes;
    const char *whole = last < lanes ? ts_arena_printf(w->e->a, "%s - %d", end, last)
                                     : ts_arena_printf(w->e->a, "%s", end);

    open(w, "for (int64_t z = %s; z < %s; z += %d)", first, whole, lanes);
    ts_emit_line(w->e, "const int64_t at = min(z, %ld);", (long)(channels - lanes));
    step(w, lanes, of);
    close(w);
    if (last == lanes)
        return;
    open(w, "");
    ts_emit_line(w->e, "const int64_t at = %ld;", (long)(channels - last));
    step(w, last, of);
    close(w);
}

/* Tiles of an operand to a panel: `size` rows and columns of each from (top, left) on, of which those
 * inside are read. */
typedef struct source {
    const place *p;
    const char *panel, *first; /* channel of the block */
    int size;
    int64_t width;
} source;

/* Row y of a part, in the picture. */
static const ts_ix *row_of(writer *w)
{
    const winograd *g = w->g;
    ts_arena *a = w->e->a;

    return ts_ix_add(a, counter(w, "y", SIZE * g->down), ts_ix_mul(a, part(w), g->made[0]));
}

static const char *address(writer *w, const source *s)
{
    const winograd *g = w->g;
    const int64_t *step = s->p->step;
    ts_arena *a = w->e->a;
    bool padded = s->size == TILE;
    const ts_ix *y = ts_ix_addc(a, row_of(w), padded ? -g->pad[0] : 0);
    const ts_ix *x = ts_ix_addc(a, counter(w, "x", SIZE * g->across), padded ? -g->pad[1] : 0);

    y = ts_ix_add(a, ts_ix_mul(a, y, step[2]), ts_ix_mul(a, x, step[3]));
    y = ts_ix_add(a, y, ts_ix_mul(a, sample(w), step[0]));
    return ts_ix_text(a, ts_ix_addc(a, y, s->p->base));
}

static void transform_vector(writer *w, int lanes, const void *of)
{
    const source *s = of;
    const place *p = s->p;
    winograd *g = w->g;
    ts_emit *e = w->e;
    bool padded = s->size == TILE;
    long ys = (long)p->step[2], xs = (long)p->step[3];

    ts_emit_line(e, "const float *const from = %s + (%s + at);", ts_render_pointer(g->r, p->from),
                 address(w, s));
    ts_emit_line(e, "float *const to = %s + (t - first) * %ld + (at - %s);", s->panel,
                 (long)s->width, s->first);
    ts_emit_line(e, "if (!whole)");
    ts_emit_line(e, "    %s(pp, from, %ld, %ld, top, bottom, left, right, %d);",
                 function(w, "patch", lanes), ys, xs, s->size);
    ts_emit_line(e, "%s(to, %ld, whole ? from : pp, whole ? %ld : %d, whole ? %ld : %d);",
                 function(w, padded ? "in" : "back", lanes), (long)(g->together * s->width), ys,
                 s->size * lanes, xs, lanes);
}

/* Channels first .. end - 1 of `channels`. */
static void transform(writer *w, const source *s, const char *end, int64_t channels, int last)
{
    winograd *g = w->g;
    bool padded = s->size == TILE;
    const char *row = padded ? ts_ix_text(w->e->a, row_of(w)) : "y";
    long rows = (long)(padded ? g->size[0] + g->pad[0] : g->made[0]);
    long cols = (long)(padded ? g->size[1] + g->pad[1] : g->made[1]);

    ts_emit_line(w->e, "const int64_t top = max(0, %ld - (%s)), bottom = min(%d, %ld - (%s));",
                 padded ? (long)g->pad[0] : 0, row, s->size, rows, row);
    ts_emit_line(w->e, "const int64_t left = max(0, %ld - x), right = min(%d, %ld - x);",
                 padded ? (long)g->pad[1] : 0, s->size, cols);
    ts_emit_line(w->e, "const int whole = bottom - top == %d && right - left == %d;", s->size,
                 s->size);
    each_vector(w, s->first, end, channels, last, transform_vector, s);
}

/* Columns from z on of all rows of spot p, of so many vectors. */
static void sum_rows(writer *w, const char *z, const char *sums, const char *again)
{
    winograd *g = w->g;
    long tiles = (long)(g->together * g->row_o), lines = (long)(lines_written(g) * g->row_o);
    long a = (long)(g->together * g->row_c), row = g->weight ? 1 : (long)g->row_c;

    open(w, "for (int64_t y = 0; y < %s; y += %d)", g->weight ? "down - top" : "count", g->rows);
    ts_emit_line(
        w->e, "%s(%s, pv + p * %ld + y * %ld, %s + p * %ld + %s, %s + p * %ld + y * %ld + %s, %s);",
        sums, g->weight ? "count" : ts_arena_printf(w->e->a, "%ld", (long)g->c), a, row,
        g->weight ? "pm" : "pu", g->weight ? tiles : lines, z, g->weight ? "pu" : "pm",
        g->weight ? lines : tiles, (long)g->row_o, z, again);
    close(w);
}

/* The 36 products. */
static void multiply(writer *w, const char *again)
{
    winograd *g = w->g;
    ts_arena *a = w->e->a;
    long step = (long)g->vectors * g->lanes, whole = (long)(g->columns / g->lanes * g->lanes);
    const char *sums = sums_name(w, g->vectors, g->lanes);

    open(w, "for (int64_t p = 0; p < %d; p++)", SPOTS);
    open(w, "for (int64_t z = 0; z < %ld; z += %ld)", whole, step);
    if (whole % step)
        sums = ts_arena_printf(a, "(z + %ld > %ld ? %s : %s)", step, whole,
                               sums_name(w, (int)(whole % step / g->lanes), g->lanes), sums);
    sum_rows(w, "z", sums, again);
    close(w);
    if (g->last < g->lanes)
        sum_rows(w, ts_arena_printf(a, "%ld", whole), sums_name(w, 1, g->last), again);
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
    const char *names[TS_MAX_ROOTS];

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

/* Behind whole vectors narrower ones, and at last one by one: as a block's last channels need them. */
static void store_row(writer *w, const ts_ix **at, int d, const char *load)
{
    int lanes = w->g->lanes, left = (int)(w->g->o % lanes);
    const char *from = "0";

    for (int n = lanes; n >= 4; n /= 2) {
        if (n < lanes && !(left & n))
            continue;
        store_lanes(w, at, d, n, from, load);
        from = ts_arena_printf(w->e->a, "width / %d * %d", n, n);
    }
    if (left % 4)
        store_lanes(w, at, d, 1, from, load);
}

/* Weights of channel c. */
static void kernel_vector(writer *w, int lanes, const void *of)
{
    const winograd *g = w->g;
    const place *k = &g->w;
    long ys = (long)k->step[2], xs = (long)k->step[3], base = (long)k->base, row = (long)g->row_o;

    (void)of;
    if (g->turned) {
        base += 2 * ys + 2 * xs;
        ys = -ys;
        xs = -xs;
    }
    ts_emit_line(w->e, "%s(pu + c * %ld + (at - begin), %ld, %s + (%ld + c * %ld + at), %ld, %ld);",
                 function(w, "kernel", lanes), row, (long)g->lines * row,
                 ts_render_pointer(g->r, k->from), base, (long)k->step[g->turned ? 0 : 1], ys, xs);
}

/* What the products made, back: of a tile, or of a row of the weight's gradient. */
typedef struct products {
    const char *name, *from;
    int64_t rows; /* of a spot */
} products;

static void back_vector(writer *w, int lanes, const void *of)
{
    const products *p = of;
    long row = (long)w->g->row_o;

    ts_emit_line(w->e, "%s(pp + at, %ld, %s * %ld + at, %ld, %ld);", function(w, p->name, lanes),
                 row, p->from, row, TILE * (long)p->rows * row, (long)p->rows * row);
}

static void back(writer *w, const char *name, const char *from, int64_t rows)
{
    const winograd *g = w->g;
    bool narrow = g->last < g->lanes;

    each_vector(w, "0", narrow ? ts_arena_printf(w->e->a, "%ld", (long)g->columns) : "width",
                g->columns, g->last, back_vector, &(products){name, from, rows});
}

/* Block i of `size` of n: from where to where. */
static void span(writer *w, const char *from, const char *to, const ts_ix *i, int64_t size,
                 int64_t n)
{
    declare(w, from, ts_ix_mul(w->e->a, i, size));
    ts_emit_line(w->e, "const int64_t %s = min(%s + %ld, %ld);", to, from, (long)size, (long)n);
}

static void write_picture(writer *w)
{
    winograd *g = w->g;
    ts_emit *e = w->e;
    const ts_ix *at[TS_MAX_RANK];
    const source x = {&g->x, "pv", "0", TILE, g->row_c};
    int64_t per = ceil_div(g->tiles, g->together);
    const ts_ix *i = counter(w, "i", per * g->blocks);

    ts_emit_line(e, "int64_t made = -1;");
    open(w, "for (int64_t i = lo; i < hi; i++)");
    declare(w, "block", ts_ix_div(e->a, i, per));
    span(w, "begin", "end", ts_ix_div(e->a, i, per), g->columns, g->o);
    span(w, "first", "last", ts_ix_mod(e->a, i, per), g->together, g->tiles);
    ts_emit_line(e, "const int64_t count = last - first, width = end - begin;");
    open(w, "if (made != block)");
    open(w, "for (int64_t c = 0; c < %ld; c++)", (long)g->c);
    each_vector(w, "begin", "end", g->o, g->last, kernel_vector, NULL);
    close(w);
    ts_emit_line(e, "made = block;");
    close(w);
    open(w, "for (int64_t t = first; t < last; t++)");
    decode(w);
    transform(w, &x, ts_arena_printf(e->a, "%ld", (long)g->c), g->c, last_lanes(g->c, g->lanes));
    close(w);
    multiply(w, "0");
    open(w, "for (int64_t t = first; t < last; t++)");
    decode(w);
    back(w, "out", "pm + (t - first)", g->together);
    open(w, "for (int64_t j = 0; j < min(%d, %ld - y); j++)", SIZE, (long)g->made[0]);
    open(w, "for (int64_t k = 0; k < min(%d, %ld - x); k++)", SIZE, (long)g->made[1]);
    at[0] = sample(w);
    at[2] = variable(w, "y", g->made[0], "y + j");
    at[3] = variable(w, "x", g->made[1], "x + k");
    store_row(w, at, 1, ts_arena_printf(e->a, "pp + (%d * j + k) * %ld + z", SIZE, (long)g->row_o));
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
    const source x = {&g->x, "pv", "c0", TILE, g->row_c},
                 dy = {&g->w, "pm", "begin", SIZE, g->row_o};
    const ts_ix *i = counter(w, "i", g->parts * g->heaps * g->blocks);
    int d = g->parts > 1;

    open(w, "for (int64_t i = lo; i < hi; i++)");
    span(w, "begin", "end", ts_ix_mod(e->a, i, g->blocks), g->columns, g->o);
    span(w, "top", "down", ts_ix_mod(e->a, ts_ix_div(e->a, i, g->blocks), g->heaps), g->lines,
         g->c);
    if (d)
        declare(w, "part", ts_ix_div(e->a, i, g->blocks * g->heaps));
    ts_emit_line(e, "const int64_t width = end - begin;");
    open(w, "for (int64_t first = 0; first < %ld; first += %ld)", (long)g->tiles,
         (long)g->together);
    ts_emit_line(e, "const int64_t last = min(first + %ld, %ld), count = last - first;",
                 (long)g->together, (long)g->tiles);
    open(w, "for (int64_t t = first; t < last; t++)");
    decode(w);
    ts_emit_line(e, "const int64_t c0 = top, c1 = down;");
    open(w, "");
    transform(w, &x, "c1", g->c, g->heaps > 1 ? g->lanes : last_lanes(g->c, g->lanes));
    close(w);
    open(w, "");
    transform(w, &dy, "end", g->o, g->last);
    close(w);
    close(w);
    multiply(w, "first > 0");
    close(w);
    open(w, "for (int64_t u = top; u < down; u++)");
    back(w, "taps", "pu + (u - top)", lines_written(g));
    open(w, "for (int64_t j = 0; j < 3; j++)");
    open(w, "for (int64_t k = 0; k < 3; k++)");
    if (d)
        at[0] = part(w);
    at[d + 1] = counter(w, "u", g->c);
    at[d + 2] = counter(w, "j", 3);
    at[d + 3] = counter(w, "k", 3);
    store_row(w, at, d, ts_arena_printf(e->a, "pp + (3 * j + k) * %ld + z", (long)g->row_o));
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
    "void winograd_%s_%d(float *to, int64_t step, const float *x, int64_t ys, int64_t xs)"
#define PATCH                                                                                      \
    "void winograd_patch_%d(float *to, const float *x, int64_t ys, int64_t xs, int64_t top, "      \
    "int64_t bottom, int64_t left, int64_t right, int64_t size)"
#define SUMS                                                                                       \
    "void winograd_sums_%d_%d_%d_%d_%d_%d(int64_t n, const float *a, const float *b, float *c, "   \
    "int again)"

/* Columns first, into a square that is n wide; then its rows. */
static void write_transform(ts_text *t, int w, const char *name, const char *form, int n, int m)
{
    ts_text_printf(t, TRANSFORM "\n{\n    V t[%d][%d];\n\n", name, w, m, n);
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

static void write_patch(ts_text *t, int w)
{
    ts_text_printf(t,
                   PATCH "\n{\n"
                         "    for (int64_t j = 0; j < size; j++)\n"
                         "        for (int64_t i = 0; i < size; i++, to += %d)\n"
                         "            if (j >= top && j < bottom && i >= left && i < right)\n"
                         "                *(U *)to = *(const U *)(x + j * ys + i * xs);\n"
                         "            else\n"
                         "                *(U *)to = K(0);\n"
                         "}\n",
                   w, w);
}

/* What a function of sums is made for, as its name has it: rows x vectors of c; of a steps are `along` apart and
 * rows `down`, of b and c rows are `width`. */
typedef struct sums {
    int rows, vectors, along, down, width, lanes;
} sums;

static bool is_sums(const char *need, sums *s)
{
    return sscanf(need, "winograd sums %d_%d_%d_%d_%d_%d", &s->rows, &s->vectors, &s->along,
                  &s->down, &s->width, &s->lanes) == 6;
}

static void sums_head(ts_text *t, const sums *s, const char *end)
{
    ts_text_printf(t, SUMS "%s", s->rows, s->vectors, s->along, s->down, s->width, s->lanes, end);
}

static void write_sums(ts_text *t, const sums *s)
{
    int w = s->lanes;

    sums_head(t, s, "\n{\n");
    for (int i = 0; i < s->rows; i++)
        for (int j = 0; j < s->vectors; j++)
            ts_text_printf(t, "    f32x%d c%d_%d = {0};\n", w, i, j);
    ts_text_printf(t, "\n    if (again) {\n");
    for (int i = 0; i < s->rows; i++)
        for (int j = 0; j < s->vectors; j++)
            ts_text_printf(t, "        c%d_%d = *(const f32x%du *)(c + %d);\n", i, j, w,
                           i * s->width + j * w);
    ts_text_printf(t, "    }\n    for (; n > 0; n--, a += %d, b += %d) {\n        f32x%d x;\n",
                   s->along, s->width, w);
    for (int j = 0; j < s->vectors; j++)
        ts_text_printf(t, "        const f32x%d b%d = *(const f32x%du *)(b + %d);\n", w, j, w,
                       j * w);
    for (int i = 0; i < s->rows; i++) {
        ts_text_printf(t, "        x = SPLAT(f32x%d, a[%d]);\n", w, i * s->down);
        for (int j = 0; j < s->vectors; j++)
            ts_text_printf(t, "        c%d_%d = fma_f32x%d(x, b%d, c%d_%d);\n", i, j, w, j, i, j);
    }
    ts_text_printf(t, "    }\n");
    for (int i = 0; i < s->rows; i++)
        for (int j = 0; j < s->vectors; j++)
            ts_text_printf(t, "    *(f32x%du *)(c + %d) = c%d_%d;\n", w, i * s->width + j * w, i,
                           j);
    ts_text_printf(t, "}\n");
}

/* Lanes of the transforms that are needed, or 0. */
static int transform_lanes(const char *need)
{
    int lanes = 0;

    return sscanf(need, "winograd %d", &lanes) == 1 ? lanes : 0;
}

bool ts_winograd_declare(ts_render *r, ts_text *out)
{
    bool any = false;
    sums s;

    for (int i = 0; i < r->nneeds; i++) {
        int lanes = transform_lanes(r->needs[i]);
        if (is_sums(r->needs[i], &s))
            sums_head(out, &s, ";\n");
        if (!lanes)
            continue;
        any = true;
        ts_text_printf(out, "\n" PATCH ";\n", lanes);
        for (int k = 0; k < TS_COUNT(transforms); k++)
            ts_text_printf(out, TRANSFORM ";\n", transforms[k].name, lanes);
    }
    return any;
}

static void write_transforms(ts_arena *a, ts_text *t, int w)
{
    ts_text_printf(t,
                   "\n" TS_UNIT_NAMED "#define V f32x%d\n#define U f32x%du\n"
                   "#define F(a, b, c) fma_f32x%d(a, b, c)\n#define K(x) SPLAT(V, (float)(x))\n%s",
                   "", ts_arena_printf(a, "winograd_transforms_%d", w), w, w, w, forms);
    write_patch(t, w);
    for (int k = 0; k < TS_COUNT(transforms); k++)
        write_transform(t, w, transforms[k].name, transforms[k].form, transforms[k].from,
                        transforms[k].to);
    ts_text_printf(t, "#undef V\n#undef U\n#undef F\n#undef K\n");
    for (int k = 0; k < TS_COUNT(transforms); k++)
        ts_text_printf(t, "#undef %s\n", transforms[k].form);
}

void ts_winograd_functions(ts_render *r)
{
    sums s;

    for (int i = 0; i < r->nneeds; i++) {
        if (transform_lanes(r->needs[i]))
            write_transforms(r->a, &r->body, transform_lanes(r->needs[i]));
        if (!is_sums(r->needs[i], &s))
            continue;
        ts_text_printf(&r->body, "\n" TS_UNIT_NAMED, "",
                       ts_arena_printf(r->a, "winograd_sums_%s", strrchr(r->needs[i], ' ') + 1));
        write_sums(&r->body, &s);
    }
}
