/* product.c - large products of operands that lie anyhow: blocks for the caches, packed panels, tiles
 * of accumulators.
 *
 *   for each piece, a block of columns and of rows       cut among the threads
 *     for each block of the sum
 *       pack the columns                                 stays in level 2; once for all pieces below
 *       for each strip of rows                           each other, where the sum is one block
 *         pack the rows                                  stays in level 1; not those that are there anyway
 *         for each strip of columns
 *           multiply                                     panel.c: sums in registers
 *           epilogue: bias, activation, update, store    after the last block of the sum
 *
 * contract.c reads the operands where they lie, which is best while they are small and lie along the
 * lanes. Here an operand may lie along the sum, across it, or in pieces, as halves or as f32: packing
 * turns and widens it, for each element once in hundreds of multiply-adds; and what is read in the
 * innermost loop lies side by side, so no size and no distance between rows is worse than another.
 * The price of both decides, and so the sizes of blocks, of the tile and of the pieces.
 *
 * An axis is, by which of the operands it moves: rows, columns, a batch (both: pieces of their own), or
 * summed. Axes that follow each other in every tensor are one. Of rows that do not, one is in the
 * tile, the others are pieces; of sums, one is in the innermost loop and the others around it.
 *
 * Each element is summed by one piece, block after block, in the order of the sum: the bits do not depend
 * on who does it.
 */
#include "render/product.h"

/* Along one axis; bytes of a thread; cache lines of a row that are packed together. None of them matters much: half,
 * twice or a quarter of each changes 39 products of 64 to 1024, one thread of Zen 4, by 2 % in the mean, which is the noise. */
enum { MOST_PIECES = 64, MOST_PANEL = 4 << 20, LINES = 4 };

/* Axes that follow each other, outermost first; `extent` of all. */
typedef struct group {
    int n, axis[TS_AXES];
    int64_t extent;
} group;

typedef struct product {
    ts_nest x;
    ts_panel panel;
    int wide; /* the operand whose elements fill the lanes: 1, or 0 */
    ts_machine_model
        m; /* as it is for the elements: of doubles half as many in a vector and a cache */
    const ts_value *from[2]; /* what the operands are views of */
    group rows, lanes, sum;
    int outer[TS_AXES], nouter; /* pieces of their own; those from `fixed` on do not move the */
    int fixed;                  /* columns */
    int far[TS_AXES], nfar;     /* summed axes around the innermost */
    int64_t fixeds, turns, fars;
    int64_t apart; /* floats from a vector of columns to the next, read where they lie; 0: packed */
    /* the choice */
    int64_t tile; /* rows */
    int vectors;
    int64_t strips;                     /* of rows packed together */
    bool in_place;                      /* rows are read where they lie */
    int64_t height, width, down, right; /* of a piece, and pieces: all turns' strips of rows */
    int64_t block, blocks;              /* steps of the sum, or of the axes around it */
    double cycles, cost;
} product;

/* --- the operands --- */

static bool only_moves(const ts_node *n)
{
    if (n->op == TS_OP(cast))
        return ts_dtype_is_half(n->in[0]->type.dtype) && n->out[0]->type.dtype == TS_F32;
    return n->op->flags & TS_VIEW && !(n->op->flags & (TS_PATCH | TS_TILED));
}

const ts_value *ts_product_source(const ts_render *r, const ts_value *v)
{
    while (r->p->place[v->id].home == TS_HOME_NONE) {
        if (v->kind != TS_VALUE_NODE || !only_moves(v->node))
            return NULL;
        v = v->node->in[0];
    }
    return ts_dtype_is_float(v->type.dtype) ? v : NULL;
}

static bool is_double(const product *p)
{
    return p->panel == TS_PANEL_F64;
}

static const char *element_type(const product *p)
{
    return is_double(p) ? "double" : "float";
}

static void halve(ts_machine_model *m)
{
    m->isa.width /= 2;
    m->level1 /= 2;
    m->level2 /= 2;
}

static bool find_sources(product *p)
{
    for (int o = 0; o < 2; o++) {
        p->from[o] = ts_product_source(p->x.r, p->x.n->in[o]);
        if (!p->from[o])
            return false;
    }
    if (is_double(p))
        return p->from[0]->type.dtype == TS_F64 && p->from[1]->type.dtype == TS_F64;
    p->panel = TS_PANEL_F32;
    if (p->from[0]->type.dtype == TS_BF16 && p->from[1]->type.dtype == TS_BF16)
        p->panel = p->m.isa.tiles ? TS_PANEL_TILES : p->m.isa.pairs ? TS_PANEL_PAIRS : TS_PANEL_F32;
    return true;
}

/* --- axes --- */

/* Does axis i go on where group g ends, in the operands and, of three tensors, in the result? */
static bool follows(const ts_nest *x, const group *g, int i, int tensors)
{
    int inner = g->axis[g->n - 1];

    for (int o = 0; o < tensors; o++)
        if (x->step[o][i] != g->extent * x->step[o][inner])
            return false;
    return true;
}

static bool has(const group *g, int axis)
{
    for (int i = 0; i < g->n; i++)
        if (g->axis[i] == axis)
            return true;
    return false;
}

/* All that follows `inner`, of those axes. */
static group grow(const ts_nest *x, int inner, const int *axes, int n, int tensors)
{
    group g = {.n = 1, .axis = {inner}, .extent = x->s.extent[inner]};

    for (int i = 0; i < n; i++) {
        if (has(&g, axes[i]) || !follows(x, &g, axes[i], tensors))
            continue;
        memmove(g.axis + 1, g.axis, (size_t)g.n * sizeof(int));
        g.axis[0] = axes[i];
        g.n++;
        g.extent *= x->s.extent[axes[i]];
        i = -1;
    }
    return g;
}

/* Is g the better group? The longest, but of those of `enough` one whose results lie nearest to each other: then the threads
 * cut the result where other kernels do, and not between neighbours. */
static bool better(const ts_nest *x, const group *g, const group *best, int64_t enough)
{
    bool one = g->extent >= enough, other = best->extent >= enough;

    if (one && other)
        return x->step[2][g->axis[g->n - 1]] < x->step[2][best->axis[best->n - 1]];
    return g->extent > best->extent;
}

/* The best group of those axes; the others are appended to `rest`. */
static group best_group(const ts_nest *x, const int *axes, int n, int64_t enough, int *rest,
                        int *nrest)
{
    group best = {.extent = 1};

    for (int i = 0; i < n; i++) {
        group g = grow(x, axes[i], axes, n, 3);
        if (better(x, &g, &best, enough))
            best = g;
    }
    for (int i = 0; i < n; i++)
        if (!has(&best, axes[i]))
            rest[(*nrest)++] = axes[i];
    return best;
}

/* The axis along which the result lies, if it belongs to one operand. */
static bool find_lanes(product *p)
{
    ts_nest *x = &p->x;

    for (int i = 0; i < x->s.nout; i++)
        if (x->s.extent[i] > 1 && x->step[2][i] == 1) {
            p->wide = x->step[1][i] != 0;
            p->lanes = (group){.n = 1, .axis = {i}, .extent = x->s.extent[i]};
            return !x->step[0][i] != !x->step[1][i];
        }
    return false;
}

static int64_t step(const product *p, int operand, const group *g)
{
    return p->x.step[operand][g->axis[g->n - 1]];
}

static int64_t extents(const ts_nest *x, const int *axes, int n)
{
    int64_t all = 1;

    for (int i = 0; i < n; i++)
        all *= x->s.extent[axes[i]];
    return all;
}

/* Columns in blocks of a vector, [o/16][k][16], are panels already: the blocks of one axis go side by side. */
static void join_blocks(product *p, const int *columns, int n)
{
    ts_nest *x = &p->x;

    if (p->panel != TS_PANEL_F32 || p->from[p->wide]->type.dtype != TS_F32 || p->nfar ||
        p->lanes.extent != p->m.isa.width || step(p, p->wide, &p->sum) != p->m.isa.width)
        return;
    for (int i = 0; i < n; i++)
        if (p->lanes.n == 1 || x->s.extent[columns[i]] * p->m.isa.width > p->lanes.extent) {
            p->lanes = (group){.n = 2, .axis = {columns[i], p->lanes.axis[p->lanes.n - 1]}};
            p->lanes.extent = x->s.extent[columns[i]] * p->m.isa.width;
            p->apart = x->step[p->wide][columns[i]];
        }
}

static bool find_groups(product *p)
{
    ts_nest *x = &p->x;
    int columns[TS_AXES], rows[TS_AXES], sums[TS_AXES], nc = 0, nr = 0, ns = 0;

    if (!find_lanes(p))
        return false;
    for (int i = 0; i < x->s.naxes; i++) {
        bool wide = x->step[p->wide][i], other = x->step[!p->wide][i];
        if (x->s.extent[i] == 1 || has(&p->lanes, i))
            continue;
        if (i >= x->s.nout)
            sums[ns++] = i;
        else if (wide && !other)
            columns[nc++] = i;
        else if (other && !wide)
            rows[nr++] = i;
        else
            p->outer[p->nouter++] = i;
    }
    p->sum = best_group(x, sums, ns, INT64_MAX, p->far, &p->nfar);
    if (!p->sum.n)
        return false;
    if (p->lanes.extent % p->m.isa.width == 0)
        p->lanes = grow(x, p->lanes.axis[0], columns, nc, 2);
    join_blocks(p, columns, nc);
    for (int i = 0; i < nc; i++)
        if (!has(&p->lanes, columns[i]))
            p->outer[p->nouter++] = columns[i];
    p->fixed = p->nouter;
    p->rows = best_group(x, rows, nr, p->m.isa.width, p->outer, &p->nouter);
    p->fixeds = extents(x, p->outer, p->fixed);
    p->turns = extents(x, p->outer + p->fixed, p->nouter - p->fixed);
    p->fars = extents(x, p->far, p->nfar);
    return p->rows.n;
}

/* --- the price --- */

/* Elements of the sum that come together: a pair, or what a tile has. */
static int64_t together(const product *p)
{
    return p->panel == TS_PANEL_TILES ? 2 * TS_TILE : p->panel == TS_PANEL_PAIRS ? 2 : 1;
}

static bool has_pairs(const product *p)
{
    return together(p) > 1;
}

/* Steps of the innermost loop for so many of the sum, of which a pair is one. */
static int64_t steps(const product *p, int64_t sums)
{
    return has_pairs(p) ? TS_ROUND_UP(sums, together(p)) / 2 : sums;
}

static int64_t all_steps(const product *p)
{
    return p->fars * steps(p, p->sum.extent);
}

/* Cycles of one step of the innermost loop: as in tile.c. */
static double step_cost(const product *p, int64_t rows, int vectors)
{
    const ts_machine_model *m = &p->m;

    /* a tile's 16 rows take 16 cycles, its loads 8 */
    if (p->panel == TS_PANEL_TILES)
        return (double)(rows / TS_TILE * vectors) + 0.1 * (double)(rows / TS_TILE + vectors);

    double each = 1 / ts_machine_rate(m, m->isa.width),
           loads = vectors * each + (double)rows / m->units,
           near = vectors * (double)m->isa.width * 4 / m->near; /* columns come from level 2 */

    return TS_MAX(TS_MAX((double)(rows * vectors) * each, 0.95 * loads), TS_MAX(near, m->latency)) +
           0.1 * loads + 0.2 * near;
}

/* Of one batch, without packing. */
static double multiply_cost(const product *p, int64_t rows, int vectors)
{
    const ts_machine_model *m = &p->m;
    int64_t all = (p->lanes.extent + m->isa.width - 1) / m->isa.width, left = all % vectors;
    double strips = (double)((p->rows.extent + rows - 1) / rows), k = (double)all_steps(p);
    double one = k * step_cost(p, rows, vectors) + (double)(rows * vectors) * 6 / m->units + 24;
    double last = k * step_cost(p, rows, (int)left) + (double)(rows * left) * 6 / m->units + 32;

    return strips * ((double)(all / vectors) * one + (left ? last : 0));
}

static void choose_tile(product *p)
{
    const ts_machine_model *m = &p->m;
    bool tiles = p->panel == TS_PANEL_TILES;
    int64_t one = tiles ? TS_TILE : 1, most = tiles ? 2 * TS_TILE : m->isa.width,
            room = tiles ? 4 * TS_TILE : ts_machine_accumulators(m);
    double best = -1;

    for (int v = 1; v <= (tiles ? 2 : 4); v++)
        for (int64_t r = one; r <= most && r * v <= room; r += one) {
            double cost = multiply_cost(p, r, v);
            if (best < 0 || cost < best) {
                best = cost;
                p->tile = r;
                p->vectors = v;
            }
        }
}

/* Cycles to pack an element of an operand whose tile runs along group g, so many elements wide: turned,
 * copied or one by one. */
static double pack_price(const product *p, int o, const group *g, int64_t width)
{
    const ts_machine_model *m = &p->m;
    double vector = 1 / (ts_machine_rate(m, m->isa.width) * m->isa.width);
    double size = (double)ts_dtype_size(p->from[o]->type.dtype);
    double bytes = size * (double)(g->extent * p->sum.extent * p->fars);
    double away = bytes > (double)m->level2 ? 2 * size / m->far : 0; /* far, and line by line */
    int rounds = 0;

    if (p->apart && o == p->wide)
        return away;
    while (1 << rounds < m->isa.width)
        rounds++;
    if (step(p, o, &p->sum) == 1)
        return away + (rounds + 2) * vector / (has_pairs(p) ? 2 : 1);
    return away + (step(p, o, g) == 1 ? 2.0 / (double)TS_MIN(width, m->isa.width) : 1.5);
}

/* Rows that stay in level 1 as they are, whole strips of them and in other sets of it: 4 KB apart they would all be in one.
 * Packing them would take longer than it saves. */
static bool stay(const product *p)
{
    int64_t apart = step(p, !p->wide, &p->rows), kstep = step(p, !p->wide, &p->sum);

    return p->panel == TS_PANEL_F32 && p->from[!p->wide]->type.dtype == TS_F32 && !p->nfar &&
           p->blocks == 1 && p->rows.extent >= p->tile && kstep == 1 && apart % 1024 &&
           4 * p->rows.extent * p->sum.extent <= p->m.level1;
}

/* The sum in blocks, so that a strip of rows takes that many eighths of level 1 at most. */
static void make_blocks(product *p, int eighths)
{
    int64_t all = p->nfar ? p->fars : p->sum.extent, one = p->nfar ? steps(p, p->sum.extent) : 1;
    int64_t most = TS_MAX(1, p->m.level1 * eighths / 8 / (4 * p->tile * one));

    if (has_pairs(p) && !p->nfar)
        most = TS_MAX(2 * most, together(p));
    p->blocks = (all + most - 1) / most;
    p->block = (all + p->blocks - 1) / p->blocks;
    if (!p->nfar)
        p->block = TS_ROUND_UP(p->block, together(p));
    p->blocks = (all + p->block - 1) / p->block;
    /* rows that lie side by side come in whole lines */
    int64_t side = LINES * p->m.line / (int64_t)ts_dtype_size(p->from[!p->wide]->type.dtype);
    p->strips = step(p, !p->wide, &p->sum) == 1 ? 1 : (side + p->tile - 1) / p->tile;
    p->in_place = stay(p);
}

static int64_t block_steps(const product *p)
{
    return p->nfar ? p->block * steps(p, p->sum.extent) : steps(p, p->block);
}

/* Floats from one strip of rows to the next: the last vector of one reaches beyond it. */
static int64_t strip_size(const product *p)
{
    return TS_ROUND_UP(block_steps(p) * p->tile + p->m.isa.width, 16);
}

/* Floats of the panels: strips of rows, the columns, the sums. */
static void panel_sizes(const product *p, int64_t *rows, int64_t *columns, int64_t *sums)
{
    int64_t lanes = p->vectors * (int64_t)p->m.isa.width;

    *rows = p->in_place ? 0 : p->strips * strip_size(p);
    *columns = p->apart ? 0 : block_steps(p) * p->width;
    *sums = p->blocks > 1 ? p->height * p->width : p->tile * lanes;
}

/* From one row of them to the next. */
static int64_t sums_stride(const product *p)
{
    return p->blocks > 1 ? p->width : p->vectors * (int64_t)p->m.isa.width;
}

static bool fits(const product *p)
{
    int64_t rows, columns, sums, near = block_steps(p) * p->width;

    panel_sizes(p, &rows, &columns, &sums);
    return (4 * near <= p->m.level2 / 2 || p->width <= p->vectors * p->m.isa.width) &&
           4 * (rows + columns + sums) <= MOST_PANEL;
}

/* Cycles of all, the pieces being down x right of each batch. Columns that are one block of the sum
 * are packed once by each thread that comes to them. */
static double whole_cost(const product *p, double multiply)
{
    double batches = (double)(p->fixeds * p->turns), k = (double)(p->fars * p->sum.extent);
    double rows = (double)p->rows.extent * k * pack_price(p, !p->wide, &p->rows, p->tile);
    double columns = (double)p->lanes.extent * k * pack_price(p, p->wide, &p->lanes, p->width);
    double packs = (double)(p->fixeds * p->right) + p->m.cores - 1;
    double sums = batches * (double)(p->rows.extent * p->lanes.extent * (p->blocks - 1)) * 8 /
                  p->m.near; /* there and back */

    if (p->in_place)
        rows = 0;
    if (p->blocks > 1)
        packs = (double)(p->fixeds * p->down * p->right);
    return batches * multiply + batches * (double)p->right * rows +
           packs / (double)p->right * columns + sums;
}

/* Strips of rows of one turn, and of all. */
static int64_t strips_of_turn(const product *p)
{
    return (p->rows.extent + p->tile - 1) / p->tile;
}

static int64_t all_strips(const product *p)
{
    return p->turns * strips_of_turn(p);
}

/* Elements of the result in the pieces before i. */
static double done_before(const product *p, int64_t i)
{
    int64_t batch = p->right * p->down, block = i % batch / p->down, left = i % p->down;
    int64_t columns = TS_MIN(p->width, p->lanes.extent - block * p->width);
    int64_t rows = all_strips(p) * p->tile;

    return (double)(i / batch) * (double)rows * (double)p->lanes.extent +
           (double)rows * (double)(block * p->width) +
           (double)columns * (double)TS_MIN(left * p->height, rows);
}

/* The part of the work that the core with most of it has: the last pieces of rows and columns are
 * smaller. */
static double longest_share(const product *p)
{
    int64_t pieces = p->fixeds * p->down * p->right;
    int64_t cores = TS_MIN(p->m.cores, pieces);
    double most = 0;

    for (int64_t c = 0; c < cores; c++)
        most = TS_MAX(most, done_before(p, pieces * (c + 1) / cores) -
                                done_before(p, pieces * c / cores));
    return most / done_before(p, pieces);
}

/* The best pieces for these blocks of the sum, if better than `best`. Where columns are packed once anyway, each turn has
 * pieces of its own. */
static void try_pieces(product *p, product *best)
{
    const ts_machine_model *m = &p->m;
    int64_t lanes = p->vectors * (int64_t)m->isa.width;
    int64_t down = all_strips(p), right = (p->lanes.extent + lanes - 1) / lanes,
            turns = p->blocks > 1 ? 1 : p->turns;
    double multiply = multiply_cost(p, p->tile, p->vectors);

    for (int64_t i = turns; i <= TS_MIN(down, MOST_PIECES * turns); i += turns)
        for (int64_t j = 1; j <= TS_MIN(right, MOST_PIECES); j++) {
            p->height = (down + i - 1) / i * p->tile;
            p->width = (right + j - 1) / j * lanes;
            p->down = (down * p->tile + p->height - 1) / p->height;
            p->right = (p->lanes.extent + p->width - 1) / p->width;
            if (p->down != i || p->right != j || !fits(p))
                continue;
            p->cycles = whole_cost(p, multiply);
            p->cost = TS_MIN(p->cycles, p->cycles * longest_share(p) + m->meet);
            if (best->cost < 0 || p->cost < best->cost)
                *best = *p;
        }
}

static void choose_pieces(product *p)
{
    product best = *p;

    best.cost = -1;
    for (int eighths = 6; eighths > 0; eighths--) {
        make_blocks(p, eighths);
        try_pieces(p, &best);
    }
    *p = best;
}

/* --- writing --- */

typedef struct writer {
    product *p;
    ts_emit *e;
    const ts_ix *axes[TS_AXES];
} writer;

static const ts_ix *variable(writer *w, const char *prefix, int64_t extent, const char *fmt, ...)
{
    const char *name = ts_emit_name(w->e, prefix), *text;
    va_list ap;

    va_start(ap, fmt);
    text = ts_arena_vprintf(w->e->a, fmt, ap);
    va_end(ap);
    ts_emit_line(w->e, "const int64_t %s = %s;", name, text);
    return ts_ix_var(w->e->a, ts_atom_var(w->e->a, name, 0, extent - 1));
}

/* The axes of a group at place i of it. */
static void spread(writer *w, const group *g, const ts_ix *i)
{
    for (int k = g->n - 1; k >= 0; k--) {
        int64_t extent = w->p->x.s.extent[g->axis[k]];
        w->axes[g->axis[k]] = k ? ts_ix_mod(w->e->a, i, extent) : i;
        i = ts_ix_div(w->e->a, i, extent);
    }
}

/* Digits of *i: the axes from..to-1 of a list. */
static void decode(writer *w, const int *list, int from, int to, const ts_ix **i)
{
    for (int k = to - 1; k >= from; k--) {
        int64_t extent = w->p->x.s.extent[list[k]];
        w->axes[list[k]] = variable(w, w->p->x.s.axis[list[k]], extent, "%s",
                                    ts_ix_text(w->e->a, ts_ix_mod(w->e->a, *i, extent)));
        *i = ts_ix_div(w->e->a, *i, extent);
    }
}

static const char *address(writer *w, int o)
{
    ts_nest *x = &w->p->x;
    const ts_ix *at[TS_MAX_RANK];

    ts_nest_at(x, o ? x->s.b : x->s.a, x->n->in[o]->type.rank, w->axes, at);
    return ts_ix_text(x->r->a, ts_render_address(x->r, x->n->in[o], at));
}

static ts_panel panel_of(const product *p, int o)
{
    return p->panel == TS_PANEL_TILES && o != p->wide ? TS_PANEL_TILE_ROWS : p->panel;
}

/* `count` elements of operand o from `place` on to `to`, in strips; the sum from `k` on. */
static void pack(writer *w, int o, const group *g, const char *to, const char *strip,
                 const ts_ix *place, const char *count, int64_t width)
{
    product *p = w->p;
    ts_emit *e = w->e;
    const char *f = ts_panel_pack(p->x.r, panel_of(p, o), p->from[o]->type.dtype, width);
    const char *from = ts_render_pointer(p->x.r, p->from[o]);
    long along = (long)step(p, o, g), down = (long)step(p, o, &p->sum);
    int mark;

    spread(w, g, place);
    if (!p->nfar) {
        spread(w, &p->sum, ts_ix_var(e->a, ts_atom_var(e->a, "k", 0, p->sum.extent - 1)));
        ts_emit_line(e, "%s(%s, %s, %s + %s, %s, %ld, %ld, sums);", f, to, strip, from,
                     address(w, o), count, along, down);
        return;
    }
    ts_emit_line(e, "for (int64_t f = 0; f < sums; f++) {");
    ts_emit_open(e, &mark);
    const ts_ix *i = variable(w, "f", p->fars, "k + f");
    spread(w, &p->sum, ts_ix_const(e->a, 0));
    decode(w, p->far, 0, p->nfar, &i);
    ts_emit_line(e, "%s(%s + %ld * f, %s, %s + %s, %s, %ld, %ld, %ld);", f, to,
                 (long)(steps(p, p->sum.extent) * width), strip, from, address(w, o), count, along,
                 down, (long)p->sum.extent);
    ts_emit_close(e, mark);
}

/* Roots at the element or vector whose sum is named. */
static void store(writer *w, const char *sum)
{
    ts_nest *x = &w->p->x;
    ts_emit *e = w->e;
    ts_dtype t = x->n->out[0]->type.dtype;
    const ts_ix *at[TS_MAX_RANK];
    const char *names[TS_MAX_ROOTS];

    sum = ts_emit_temp(e, is_double(w->p) ? TS_F64 : TS_F32, "%s", sum);
    if (ts_dtype_is_half(t)) {
        ts_render_need(x->r, "half");
        sum = ts_emit_temp(e, t, "round_%s_%s(%s)", ts_dtype_name(t), ts_emit_suffix(e, t), sum);
    }
    ts_nest_at(x, x->s.out, x->n->out[0]->type.rank, w->axes, at);
    ts_emit_bind(e, x->n->out[0], at, sum);
    for (int r = 0; r < x->k->nroots; r++) {
        names[r] = ts_emit_recall(e, x->k->roots[r], at);
        if (!names[r]) {
            names[r] = ts_emit_node(e, x->k->roots[r], at);
            ts_emit_bind(e, x->k->roots[r], at, names[r]);
        }
    }
    for (int r = 0; r < x->k->nroots; r++)
        ts_emit_store(e, x->k->roots[r], at, names[r]);
}

/* Columns z of the tile from `from` on, while there are `lanes` of them. */
static void store_lanes(writer *w, int lanes, const char *from)
{
    ts_emit *e = w->e;
    int64_t n = w->p->lanes.extent;
    const ts_ix *i;
    int mark;

    ts_emit_line(e, "for (int64_t z = %s; z <= columns - %d; z += %d) {", from, lanes, lanes);
    ts_emit_open(e, &mark);
    e->lanes = lanes > 1 ? lanes : 0;
    i = ts_ix_mul(e->a, variable(w, "n", n / lanes, lanes > 1 ? "(n + z) / %d" : "n + z", lanes),
                  lanes);
    if (lanes > 1)
        i = ts_ix_add(e->a, i, ts_ix_var(e->a, e->lane));
    spread(w, &w->p->lanes, i);
    store(w, lanes > 1 ? ts_arena_printf(e->a, "*(const f32x%du *)(at + y * %ld + z)", lanes,
                                         (long)sums_stride(w->p))
                       : ts_arena_printf(e->a, "at[y * %ld + z]", (long)sums_stride(w->p)));
    e->lanes = 0;
    ts_emit_close(e, mark);
}

/* What is left of the columns behind whole vectors goes in narrower ones, the last few one by one. */
static void store_rest(writer *w, int64_t left)
{
    ts_emit *e = w->e;
    int lanes = w->p->m.isa.width;

    for (int narrow = lanes / 2; left > 0; narrow /= 2) {
        narrow = narrow < 4 ? 1 : narrow;
        if (left < narrow)
            continue;
        e->lane = ts_atom_var(e->a, "l", 0, narrow - 1);
        store_lanes(w, narrow,
                    ts_arena_printf(e->a, "columns / %d * %d", narrow > 1 ? 2 * narrow : 4,
                                    narrow > 1 ? 2 * narrow : 4));
        left %= narrow;
    }
}

static void epilogue(writer *w)
{
    ts_emit *e = w->e;
    int lanes = w->p->m.isa.width;
    int64_t n = w->p->lanes.extent;
    const ts_ix *m;
    int mark;

    ts_emit_line(e, "for (int64_t y = 0; y < rows; y++) {");
    ts_emit_open(e, &mark);
    m = variable(w, "m", w->p->rows.extent, "m + y");
    spread(w, &w->p->rows, m);
    if (is_double(w->p)) { /* which the emitter has no vectors of */
        store_lanes(w, 1, "0");
        ts_emit_close(e, mark);
        return;
    }
    e->lane = ts_atom_var(e->a, "l", 0, lanes - 1);
    if (n >= lanes)
        store_lanes(w, lanes, "0");
    store_rest(w, n % lanes);
    ts_emit_close(e, mark);
}

static const char *multiply_function(const product *p, int vectors)
{
    int o = !p->wide;

    if (p->in_place || p->apart)
        return ts_panel_multiply_at(p->x.r, p->tile, vectors, p->vectors,
                                    p->in_place ? step(p, o, &p->rows) : 1,
                                    p->in_place ? step(p, o, &p->sum) : p->tile, p->apart);
    return ts_panel_multiply(p->x.r, p->panel, p->tile, vectors, p->vectors);
}

/* Rows where they lie: the last strip begins `above` rows higher, so that it is whole. */
static void point_at_rows(writer *w)
{
    product *p = w->p;
    ts_emit *e = w->e;
    bool whole = p->rows.extent % p->tile == 0;
    const char *row = "m";

    if (!whole) {
        ts_emit_line(e, "const int64_t above = max(m + %ld - %ld, 0), row = m - above;",
                     (long)p->tile, (long)p->rows.extent);
        row = "row";
    }
    spread(w, &p->rows, ts_ix_var(e->a, ts_atom_var(e->a, row, 0, p->rows.extent - 1)));
    spread(w, &p->sum, ts_ix_const(e->a, 0));
    ts_emit_line(e, "const float *const ma = %s + %s;",
                 ts_render_pointer(p->x.r, p->from[!p->wide]), address(w, !p->wide));
    ts_emit_line(e, whole ? "float *const at = pc;" : "float *const at = pc + above * %ld;",
                 (long)sums_stride(p));
}

static void point_at_panels(writer *w)
{
    product *p = w->p;
    ts_emit *e = w->e;

    ts_emit_line(e, "const %s *const ma = pa + (m - first) / %ld * %ld;", element_type(p),
                 (long)p->tile, (long)strip_size(p));
    if (p->blocks > 1)
        ts_emit_line(e,
                     "%s *const at = pc + ((strip - begin) * %ld + m - first) * %ld + (n - left);",
                     element_type(p), (long)p->tile, (long)p->width);
    else
        ts_emit_line(e, "%s *const at = pc;", element_type(p));
}

static void point_at_columns(writer *w)
{
    product *p = w->p;
    ts_arena *a = w->e->a;

    spread(w, &p->lanes, ts_ix_var(a, ts_atom_var(a, "n", 0, p->lanes.extent - 1)));
    spread(w, &p->sum, ts_ix_var(a, ts_atom_var(a, "k", 0, p->sum.extent - 1)));
    ts_emit_line(w->e, "const float *const mb = %s + %s;",
                 ts_render_pointer(p->x.r, p->from[p->wide]), address(w, p->wide));
}

static void multiply(writer *w)
{
    product *p = w->p;
    ts_emit *e = w->e;
    int64_t width = p->m.isa.width, lanes = p->vectors * width;
    int64_t left = (p->lanes.extent % lanes + width - 1) / width;
    const char *f = multiply_function(p, p->vectors);
    int mark;

    ts_emit_line(e, "const int64_t columns = min(%ld, right - n);", (long)lanes);
    if (p->in_place)
        point_at_rows(w);
    else
        point_at_panels(w);
    if (left && left < p->vectors) {
        const char *last = multiply_function(p, (int)left);
        f = p->lanes.extent < lanes
                ? last
                : ts_arena_printf(e->a, "(columns > %ld ? %s : %s)", (long)(left * width), f, last);
    }
    if (p->apart)
        point_at_columns(w);
    ts_emit_line(e, "%s(steps, ma, %s, %s, %ld, k > 0);", f,
                 p->apart ? "mb" : "pb + (n - left) * steps", p->in_place ? "pc" : "at",
                 (long)sums_stride(p));
    if (p->blocks > 1) {
        ts_emit_line(e, "if (k + sums == %ld) {", (long)(p->nfar ? p->fars : p->sum.extent));
        ts_emit_open(e, &mark);
        epilogue(w);
        ts_emit_close(e, mark);
    } else
        epilogue(w);
}

static void pack_columns(writer *w)
{
    product *p = w->p;
    ts_emit *e = w->e;
    long lanes = (long)p->vectors * p->m.isa.width;
    int mark;

    ts_emit_line(e, p->blocks > 1 ? "{" : "if (packed != block) {");
    ts_emit_open(e, &mark);
    pack(w, p->wide, &p->lanes, "pb", ts_arena_printf(e->a, "%ld * steps", lanes),
         ts_ix_var(e->a, ts_atom_var(e->a, "left", 0, p->lanes.extent - 1)), "right - left", lanes);
    if (p->blocks == 1)
        ts_emit_line(e, "packed = block;");
    ts_emit_close(e, mark);
}

/* Tiles between the packing of some strips and of the next. */
static int64_t tiles_between(const product *p)
{
    return p->strips * (p->width / (p->vectors * p->m.isa.width));
}

/* Are packed rows fetched? They lie side by side along the sum or across it. */
static bool fetches(const product *p)
{
    return !p->in_place && !p->nfar &&
           (step(p, !p->wide, &p->sum) == 1 || step(p, !p->wide, &p->rows) == 1);
}

/* While these strips are multiplied the rows of the next come near, a part of them with each tile. */
static void fetch_rows(writer *w)
{
    product *p = w->p;
    ts_emit *e = w->e;
    int o = !p->wide;
    bool along = step(p, o, &p->sum) == 1;
    long size = (long)ts_dtype_size(p->from[o]->type.dtype);
    long apart = size * (long)step(p, o, along ? &p->rows : &p->sum);
    long end = (long)p->rows.extent;
    const char *rows =
        ts_arena_printf(e->a, "min(%ld, %ld - last)", (long)(p->strips * p->tile), end);

    ts_render_need(p->x.r, "fetch");
    spread(w, &p->rows, ts_ix_var(e->a, ts_atom_var(e->a, "last", 0, p->rows.extent - 1)));
    spread(w, &p->sum, ts_ix_var(e->a, ts_atom_var(e->a, "k", 0, p->sum.extent - 1)));
    ts_emit_line(e, "if (last < %ld)", end);
    ts_emit_line(e, "    fetch(%s + %s, %s, %ld, %ld * %s, part++, %ld);",
                 ts_render_pointer(p->x.r, p->from[o]), address(w, o), along ? rows : "sums", apart,
                 size, along ? "sums" : rows, (long)tiles_between(p));
}

/* Some strips of rows with all columns of the piece. */
static void strips(writer *w)
{
    product *p = w->p;
    ts_emit *e = w->e;
    int mark, mark2;

    if (!p->in_place)
        pack(w, !p->wide, &p->rows, "pa", ts_arena_printf(e->a, "%ld", (long)strip_size(p)),
             ts_ix_var(e->a, ts_atom_var(e->a, "first", 0, p->rows.extent - 1)), "last - first",
             p->tile);
    if (fetches(p))
        ts_emit_line(e, "int64_t part = 0;");
    ts_emit_line(e, "for (int64_t m = first; m < last; m += %ld) {", (long)p->tile);
    ts_emit_open(e, &mark);
    ts_emit_line(e, "const int64_t rows = min(%ld, last - m);", (long)p->tile);
    ts_emit_line(e, "for (int64_t n = left; n < right; n += %ld) {",
                 (long)p->vectors * p->m.isa.width);
    ts_emit_open(e, &mark2);
    if (fetches(p))
        fetch_rows(w);
    multiply(w);
    ts_emit_close(e, mark2);
    ts_emit_close(e, mark);
}

/* From strip number `strip` on those that are packed together: of one turn and of the piece. */
static void find_strips(writer *w)
{
    product *p = w->p;
    ts_emit *e = w->e;
    int64_t one = strips_of_turn(p);
    const ts_ix *strip = ts_ix_var(e->a, ts_atom_var(e->a, "strip", 0, all_strips(p) - 1));
    const ts_ix *turn = ts_ix_div(e->a, strip, one);

    ts_emit_line(e, "const int64_t first = %s;",
                 ts_ix_text(e->a, ts_ix_mul(e->a, ts_ix_mod(e->a, strip, one), p->tile)));
    decode(w, p->outer, p->fixed, p->nouter, &turn);
    ts_emit_line(e, "const int64_t last = min(first + min(%ld, end - strip) * %ld, %ld);",
                 (long)p->strips, (long)p->tile, (long)p->rows.extent);
    ts_emit_line(e, "next = strip + (last - first + %ld) / %ld;", (long)p->tile - 1, (long)p->tile);
}

static void sum_block(writer *w)
{
    product *p = w->p;
    ts_emit *e = w->e;
    long all = (long)(p->nfar ? p->fars : p->sum.extent);
    int mark, mark2;

    ts_emit_line(e, "for (int64_t k = 0; k < %ld; k += %ld) {", all, (long)p->block);
    ts_emit_open(e, &mark);
    ts_emit_line(e, "const int64_t sums = min(%ld, %ld - k);", (long)p->block, all);
    if (p->nfar)
        ts_emit_line(e, "const int64_t steps = sums * %ld;", (long)steps(p, p->sum.extent));
    else
        ts_emit_line(e, "const int64_t steps = %s;",
                     p->panel == TS_PANEL_TILES   ? "(sums + 31) / 32 * 16"
                     : p->panel == TS_PANEL_PAIRS ? "(sums + 1) / 2"
                                                  : "sums");
    if (!p->apart)
        pack_columns(w);
    ts_emit_line(e, "for (int64_t strip = begin, next; strip < end; strip = next) {");
    ts_emit_open(e, &mark2);
    find_strips(w);
    strips(w);
    ts_emit_close(e, mark2);
    ts_emit_close(e, mark);
}

/* Piece i: the batch and columns, which are packed once for those that follow; then the rows. */
static void find_piece(writer *w)
{
    product *p = w->p;
    ts_emit *e = w->e;
    ts_arena *a = e->a;
    int64_t all = p->fixeds * p->right * p->down;
    const ts_ix *i = ts_ix_var(a, ts_atom_var(a, "i", 0, all - 1)), *block;

    ts_emit_line(e, "const int64_t begin = %s;",
                 ts_ix_text(a, ts_ix_mul(a, ts_ix_mod(a, i, p->down), p->height / p->tile)));
    ts_emit_line(e, "const int64_t end = min(begin + %ld, %ld);", (long)(p->height / p->tile),
                 (long)all_strips(p));
    block = ts_ix_div(a, i, p->down);
    if (p->blocks == 1 && !p->apart)
        ts_emit_line(e, "const int64_t block = %s;", ts_ix_text(a, block));
    ts_emit_line(e, "const int64_t left = %s;",
                 ts_ix_text(a, ts_ix_mul(a, ts_ix_mod(a, block, p->right), p->width)));
    ts_emit_line(e, "const int64_t right = min(left + %ld, %ld);", (long)p->width,
                 (long)p->lanes.extent);
    i = ts_ix_div(a, block, p->right);
    decode(w, p->outer, 0, p->fixed, &i);
}

/* The result's dim that the outermost axis of more than one piece walks. */
static int cut_dim(const product *p)
{
    int axis = p->fixed        ? p->outer[0]
               : p->right > 1  ? p->lanes.axis[0]
               : p->nouter > 0 ? p->outer[0]
                               : p->rows.axis[0];

    for (int d = 0; d < p->x.n->out[0]->type.rank; d++)
        if (p->x.s.out[d].k[axis])
            return d;
    return -1;
}

static void write(product *p, ts_cut *cut)
{
    ts_render *r = p->x.r;
    ts_emit e;
    writer w = {.p = p, .e = &e};
    int64_t rows, columns, sums, pieces = p->fixeds * p->down * p->right;
    bool again = cut->phase > 0; /* a nest after another */
    int mark, scope = 0;

    panel_sizes(p, &rows, &columns, &sums);
    r->panel_bytes =
        TS_MAX(r->panel_bytes, (is_double(p) ? 8 : 4) * (size_t)(rows + columns + sums));
    ts_render_emitter(r, &e);
    ts_emit_line(&e, "/* panels: tile %ld x %d vectors, piece %ld x %ld, sum %ld */", (long)p->tile,
                 p->vectors, (long)p->height, (long)p->width, (long)p->block);
    if (again) {
        ts_emit_line(&e, "{");
        ts_emit_open(&e, &scope);
    }
    ts_emit_line(&e, "%s *const pa = (%s *)panels, *const pb = pa + %ld, *const pc = pb + %ld;",
                 element_type(p), element_type(p), (long)rows, (long)columns);
    if (p->blocks == 1 && !p->apart)
        ts_emit_line(&e, "int64_t packed = -1;");
    if (p->panel == TS_PANEL_TILES)
        ts_emit_line(&e, "TILES_BEGIN();");
    for (int i = 0; i < p->x.s.naxes; i++)
        w.axes[i] = ts_ix_const(r->a, 0);
    ts_contract_loop(&e, cut, 0, pieces);
    ts_emit_open(&e, &mark);
    find_piece(&w);
    sum_block(&w);
    ts_emit_close(&e, mark);
    if (p->panel == TS_PANEL_TILES)
        ts_emit_line(&e, "TILES_END();");
    if (again)
        ts_emit_close(&e, scope);
    cut->count = pieces;
    cut->cycles += p->cycles;
    cut->dim = cut_dim(p);
}

bool ts_render_product(ts_render *r, const ts_kernel *k, const ts_spec *s, double other,
                       ts_cut *cut)
{
    product p = {.x = {.r = r, .k = k, .n = k->anchor, .s = *s, .lane = -1, .tile = {-1, -1}}};

    p.m = r->m;
    if (k->anchor->out[0]->type.dtype == TS_F64) {
        p.panel = TS_PANEL_F64;
        halve(&p.m);
    }
    if (!ts_nest_linear(&p.x) || p.x.nbounds || !find_sources(&p) || !find_groups(&p))
        return false;
    choose_tile(&p);
    choose_pieces(&p);
    for (int o = 0; o < 2; o++) /* elsewhere they would be widened for every multiply-add */
        other *= ts_dtype_is_half(p.from[o]->type.dtype) ? 2 : 1;
    if (p.cost < 0 || p.cost >= other)
        return false;
    write(&p, cut);
    return true;
}
