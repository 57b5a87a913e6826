/* tile.c - a large contraction in tiles, whatever it is: a product of matrices, a convolution, or
 * the gradient of one.
 *
 * Every axis of the result belongs to one operand, or to both. The axes of one operand are the rows,
 * those of the other the columns (the operand that has the result's last axis, so that neighbouring
 * threads store neighbours), and the summed axes are the depth:
 *
 *   group of 256 threads: 64 x 64 results, 8 x 8 of them in the registers of each of 64 threads,
 *   and that four times: a slice of 64 threads has a quarter of the depth
 *     for (step over the depth, 32 at a time)
 *         the next 64 x 32 elements of both operands from memory to registers
 *         the last ones, in shared memory: 8 x 64 products a thread
 *         registers to shared memory, in the other one of two buffers
 *     the slices' results added up in shared memory, for what comes after the sum
 *
 * An element of an operand is what its emit rule says, so operands that are computed on the way, and
 * padding, cost no more than here and there an instruction. What an axis of the rows or columns is
 * does not change from step to step and is worked out before.
 */
#include "gpu/gpu.h"

enum {
    PAD = 4, /* elements between the rows of a tile in shared memory, against bank conflicts */
    LEAST_SIDE = 8,
    LEAST_TILES = 24,
    ENOUGH_THREADS = 64 << 10,
    LEAST_DEPTH = 24,
};

typedef struct side {
    int operand;
    int axis[TS_AXES]; /* of the spec, the last one fastest */
    int naxes;
    int64_t size;
    int tile;    /* elements of a group */
    bool across; /* neighbouring threads load neighbours along the depth, not along the side */
    const char *name;
    const char *
        *index[TS_AXES]; /* C variables: of axis i, for each element that the thread loads */
    const char **inside; /* C conditions, or NULL */
} side;

typedef struct tiles {
    ts_gpu_writer *w;
    const ts_node *n;
    ts_spec s;
    side rows, columns, depth, both;
    int threads;
    int own_rows, own_columns, step; /* results of a thread; the depth of a step */
    int slice,
        slices; /* threads that share the results, and how often: each has a part of a step */
    const char *shared;
    int most; /* elements of the shared array */
} tiles;

/* --- what belongs where --- */

static bool uses(const ts_affine *f, int rank, int axis)
{
    for (int d = 0; d < rank; d++)
        if (f[d].k[axis])
            return true;
    return false;
}

static void give(side *s, const ts_spec *spec, int axis)
{
    s->axis[s->naxes++] = axis;
    s->size *= spec->extent[axis];
}

/* The operand of the result's last axis of more than one element; -1 when it is both's. */
static int last_operand(const tiles *t)
{
    int rank = t->n->out[0]->type.rank;

    for (int d = rank - 1; d >= 0; d--)
        for (int i = t->s.nout - 1; i >= 0; i--)
            if (t->s.out[d].k[i] == 1 && t->s.extent[i] > 1) {
                bool a = uses(t->s.a, t->n->in[0]->type.rank, i),
                     b = uses(t->s.b, t->n->in[1]->type.rank, i);
                return a && b ? -1 : b;
            }
    return -1;
}

static bool divide_axes(tiles *t)
{
    int columns = last_operand(t);

    if (columns < 0)
        return false;
    t->rows.operand = 1 - columns;
    t->columns.operand = columns;
    for (int i = 0; i < t->s.naxes; i++) {
        bool a = uses(t->s.a, t->n->in[0]->type.rank, i),
             b = uses(t->s.b, t->n->in[1]->type.rank, i);
        if (t->s.extent[i] == 1)
            continue;
        if (i >= t->s.nout)
            give(&t->depth, &t->s, i);
        else if (a && b)
            give(&t->both, &t->s, i);
        else if (a || b)
            give(a == (columns == 0) ? &t->columns : &t->rows, &t->s, i);
        else
            return false;
    }
    return true;
}

/* --- sizes --- */

static int64_t up(int64_t n, int64_t by)
{
    return (n + by - 1) / by;
}

static int64_t count(const tiles *t)
{
    return t->both.size * up(t->rows.size, t->rows.tile) * up(t->columns.size, t->columns.tile);
}

/* Larger tiles read less for each product; too few threads leave the GPU idle, and a tile that hangs
 * over the edge works for nothing. `quality` is how near the machine's best a size comes when there
 * are enough of it. */
static const struct {
    int rows, columns, own_rows, own_columns, step, slices;
    double quality;
} sizes[] = {
    {128, 64, 8, 8, 16, 2, 1.0}, {64, 64, 8, 8, 32, 4, 0.9}, {32, 128, 4, 8, 32, 2, 0.8},
    {32, 32, 4, 4, 32, 4, 0.6},  {32, 32, 4, 4, 64, 8, 0.5}, {16, 64, 4, 4, 32, 4, 0.5},
};

static void take_size(tiles *t, int i)
{
    t->rows.tile = sizes[i].rows;
    t->columns.tile = sizes[i].columns;
    t->own_rows = sizes[i].own_rows;
    t->own_columns = sizes[i].own_columns;
    t->step = sizes[i].step;
    t->slices = sizes[i].slices;
    t->slice = t->rows.tile * t->columns.tile / (t->own_rows * t->own_columns);
    t->threads = t->slice * t->slices;
}

static double score(const tiles *t, int i)
{
    double area = (double)(count(t) * t->rows.tile * t->columns.tile),
           all = (double)(t->both.size * t->rows.size * t->columns.size),
           threads = (double)(count(t) * t->threads);

    return sizes[i].quality * all / area * TS_MIN(1, threads / ENOUGH_THREADS);
}

static bool choose_size(tiles *t)
{
    double best = 0;
    int which = 0;

    if (t->rows.size < LEAST_SIDE || t->columns.size < LEAST_SIDE || t->depth.size < LEAST_DEPTH)
        return false;
    for (int i = 0; i < TS_COUNT(sizes); i++) {
        take_size(t, i);
        if (score(t, i) > best) {
            best = score(t, i);
            which = i;
        }
    }
    take_size(t, which);
    return count(t) >= LEAST_TILES;
}

static const ts_affine *affine(const tiles *t, int operand)
{
    return operand ? t->s.b : t->s.a;
}

/* How far apart in memory neighbours along an axis are; 0 when that cannot be said. */
static int64_t stride(tiles *t, int operand, int axis)
{
    ts_arena *a = t->w->r->a;
    const ts_value *v = t->n->in[operand];
    const ts_ix *axes[TS_AXES], *at[TS_MAX_RANK], *address;
    const ts_atom *atom = NULL;

    for (int i = 0; i < t->s.naxes; i++) {
        const ts_atom *x = ts_atom_var(a, t->s.axis[i], 0, t->s.extent[i] - 1);
        atom = i == axis ? x : atom;
        axes[i] = ts_ix_var(a, x);
    }
    for (int d = 0; d < v->type.rank; d++)
        at[d] = ts_spec_ix(a, &affine(t, operand)[d], t->s.naxes, axes);
    address = ts_render_address(t->w->r, v, at);
    return address && ts_ix_linear(address, atom) ? ts_ix_coef(address, atom) : 0;
}

static void choose_across(tiles *t, side *s)
{
    int64_t along = s->naxes ? stride(t, s->operand, s->axis[s->naxes - 1]) : 0;
    int64_t deep = t->depth.naxes ? stride(t, s->operand, t->depth.axis[t->depth.naxes - 1]) : 0;

    s->across = along != 1 && along != -1 && (deep == 1 || deep == -1);
}

/* --- loading --- */

static int loads(const tiles *t, const side *s)
{
    return s->tile * t->step / t->threads;
}

/* Element j of the side that the thread loads, counted in the tile. */
static const char *place(const tiles *t, const side *s, int j)
{
    ts_arena *a = t->w->r->a;

    if (s->across)
        return ts_arena_printf(a, "LOCAL / %d + %d", t->step, j * (t->threads / t->step));
    if (t->threads >= s->tile)
        return ts_arena_printf(a, "LOCAL %% %d", s->tile);
    return ts_arena_printf(a, "LOCAL + %d", j % (s->tile / t->threads) * t->threads);
}

/* Its depth. */
static const char *depth_of(const tiles *t, const side *s, int j)
{
    ts_arena *a = t->w->r->a;

    if (s->across)
        return ts_arena_printf(a, "LOCAL %% %d", t->step);
    if (t->threads >= s->tile)
        return ts_arena_printf(a, "LOCAL / %d + %d", s->tile, j * (t->threads / s->tile));
    return ts_arena_printf(a, "%d", j / (s->tile / t->threads));
}

/* How many different places of the side a thread loads. */
static int places(const tiles *t, const side *s)
{
    if (s->across)
        return loads(t, s);
    return t->threads >= s->tile ? 1 : s->tile / t->threads;
}

/* A C variable for each axis of a number that counts through them. */
static void decode(tiles *t, const side *s, const char *number, const char **names)
{
    ts_emit *e = t->w->e;
    ts_arena *a = e->a;
    const ts_ix *rest = ts_ix_var(a, ts_atom_var(a, number, 0, TS_MAX(0, s->size - 1)));

    for (int i = s->naxes - 1; i >= 0; i--) {
        int64_t n = t->s.extent[s->axis[i]];
        names[i] = ts_emit_name(e, t->s.axis[s->axis[i]]);
        ts_emit_line(e, "const %s %s = %s;", e->index, names[i],
                     ts_ix_text(a, ts_ix_mod(a, rest, n)));
        rest = ts_ix_div(a, rest, n);
    }
}

/* "const int32_t m3 = min(64 * group + place, size - 1)", and whether that is it. */
static const char *clamped(tiles *t, const char *first, const char *at, int64_t size, bool fits,
                           const char **inside)
{
    ts_emit *e = t->w->e;
    const char *own = ts_emit_name(e, "m"), *safe;

    *inside = NULL;
    ts_emit_line(e, "const %s %s = %s + %s;", e->index, own, first, at);
    if (fits)
        return own;
    safe = ts_emit_name(e, "m");
    ts_emit_line(e, "const %s %s = %s < %ld ? %s : %ld;", e->index, safe, own, (long)size, own,
                 (long)size - 1);
    *inside = ts_arena_printf(e->a, "%s < %ld", own, (long)size);
    return safe;
}

static void prepare(tiles *t, side *s)
{
    ts_emit *e = t->w->e;
    int n = places(t, s);
    const char *names[TS_AXES];

    s->inside = TS_NEWS(e->a, const char *, n);
    for (int i = 0; i < s->naxes; i++)
        s->index[i] = TS_NEWS(e->a, const char *, n);
    for (int j = 0; j < n; j++) {
        const char *m = clamped(t, ts_arena_printf(e->a, "%s_first", s->name), place(t, s, j),
                                s->size, s->size % s->tile == 0, &s->inside[j]);
        decode(t, s, m, names);
        for (int i = 0; i < s->naxes; i++)
            s->index[i][j] = names[i];
    }
    ts_emit_line(e, "float %s_next[%d];", s->name, loads(t, s));
}

static const ts_ix *variable(tiles *t, const char *name, int axis)
{
    ts_arena *a = t->w->r->a;

    return ts_ix_var(a, ts_atom_var(a, name, 0, t->s.extent[axis] - 1));
}

static void load_one(tiles *t, const side *s, int j, const ts_ix **axes)
{
    ts_emit *e = t->w->e;
    int mark, p = places(t, s) == 1 ? 0 : s->across ? j : j % places(t, s);
    const char *names[TS_AXES], *k, *deep, *x, *cond = s->inside[p];

    ts_emit_line(e, "{");
    ts_emit_open(e, &mark);
    k = clamped(t, "k0", depth_of(t, s, j), t->depth.size, t->depth.size % t->step == 0, &deep);
    decode(t, &t->depth, k, names);
    for (int i = 0; i < t->depth.naxes; i++)
        axes[t->depth.axis[i]] = variable(t, names[i], t->depth.axis[i]);
    for (int i = 0; i < s->naxes; i++)
        axes[s->axis[i]] = variable(t, s->index[i][p], s->axis[i]);
    x = ts_emit_operand(e, t->n, s->operand, &t->s, axes);
    if (deep)
        cond = cond ? ts_arena_printf(e->a, "%s && %s", cond, deep) : deep;
    ts_emit_line(e, cond ? "%s_next[%d] = %s ? %s : 0.0f;" : "%s_next[%d] = %s%s;", s->name, j,
                 cond ? cond : "", x);
    ts_emit_close(e, mark);
}

static void load(tiles *t, const side *s, const ts_ix **axes)
{
    for (int j = 0; j < loads(t, s); j++)
        load_one(t, s, j, axes);
}

/* Where a side's tile begins in the shared array, of the buffer `b`. */
static const char *buffer(const tiles *t, const side *s, const char *b)
{
    int rows = t->step * (t->rows.tile + PAD), columns = t->step * (t->columns.tile + PAD);

    return ts_arena_printf(t->w->r->a, "%d + %s * %d", s == &t->rows ? 0 : 2 * rows, b,
                           s == &t->rows ? rows : columns);
}

static void keep(tiles *t, const side *s)
{
    for (int j = 0; j < loads(t, s); j++)
        ts_emit_line(t->w->e, "%s[%s + (%s) * %d + (%s)] = %s_next[%d];", t->shared,
                     buffer(t, s, "(step & 1)"), depth_of(t, s, j), s->tile + PAD, place(t, s, j),
                     s->name, j);
}

/* --- multiplying --- */

static void multiply(tiles *t)
{
    ts_emit *e = t->w->e;
    int row = t->rows.tile + PAD, column = t->columns.tile + PAD,
        across = t->columns.tile / t->own_columns, part = t->step / t->slices;

    ts_emit_line(e, "UNROLL(2)");
    ts_emit_line(e, "for (int32_t d = slice * %d; d < slice * %d + %d; d++) {", part, part, part);
    ts_emit_line(e, "    float a[%d], b[%d];", t->own_rows, t->own_columns);
    for (int i = 0; i < t->own_rows; i += 4)
        ts_emit_line(e, "    LOAD4(a, %d, %s + %s + d * %d + (own / %d) * %d + %d)", i, t->shared,
                     buffer(t, &t->rows, "(~step & 1)"), row, across, t->own_rows, i);
    for (int i = 0; i < t->own_columns; i += 4)
        ts_emit_line(e, "    LOAD4(b, %d, %s + %s + d * %d + (own %% %d) * 4 + %d)", i, t->shared,
                     buffer(t, &t->columns, "(~step & 1)"), column, across,
                     i / 4 * (t->columns.tile / 2));
    ts_emit_line(e, "    UNROLL(%d)", t->own_rows);
    ts_emit_line(e, "    for (int32_t i = 0; i < %d; i++) {", t->own_rows);
    ts_emit_line(e, "        UNROLL(%d)", t->own_columns);
    ts_emit_line(e, "        for (int32_t j = 0; j < %d; j++)", t->own_columns);
    ts_emit_line(e, "            sum[i * %d + j] += a[i] * b[j];", t->own_columns);
    ts_emit_line(e, "    }");
    ts_emit_line(e, "}");
}

/* --- the whole --- */

/* Which tile the group has. */
static void find_tile(tiles *t)
{
    ts_emit *e = t->w->e;
    long rows = (long)up(t->rows.size, t->rows.tile),
         columns = (long)up(t->columns.size, t->columns.tile);

    ts_emit_line(e, "const %s columns_first = GROUP %% %ld * %d;", e->index, columns,
                 t->columns.tile);
    ts_emit_line(e, "const %s rows_first = GROUP / %ld %% %ld * %d;", e->index, columns, rows,
                 t->rows.tile);
    ts_emit_line(e, "const int32_t own = LOCAL %% %d, slice = LOCAL / %d;", t->slice, t->slice);
    ts_emit_line(e, "const %s both = GROUP / %ld;", e->index, rows * columns);
}

static void fixed_axes(tiles *t, const char *const *names, const ts_ix **axes)
{
    for (int i = 0; i < t->s.naxes; i++)
        axes[i] = ts_ix_const(t->w->r->a, 0);
    for (int i = 0; i < t->both.naxes; i++)
        axes[t->both.axis[i]] = variable(t, names[i], t->both.axis[i]);
}

static void steps(tiles *t, const ts_ix **axes)
{
    ts_emit *e = t->w->e;
    long all = (long)up(t->depth.size, t->step);
    int mark, inner;

    ts_emit_line(e, "float sum[%d];", t->own_rows * t->own_columns);
    ts_emit_line(e, "UNROLL(%d)", t->own_rows * t->own_columns);
    ts_emit_line(e, "for (int32_t i = 0; i < %d; i++)", t->own_rows * t->own_columns);
    ts_emit_line(e, "    sum[i] = 0.0f;");
    ts_emit_line(e, "for (int32_t step = 0; step <= %ld; step++) {", all);
    ts_emit_open(e, &mark);
    ts_emit_line(e, "const %s k0 = step * %d;", e->index, t->step);
    ts_emit_line(e, "if (step < %ld) {", all);
    ts_emit_open(e, &inner);
    load(t, &t->rows, axes);
    load(t, &t->columns, axes);
    ts_emit_close(e, inner);
    ts_emit_line(e, "if (step > 0) {");
    ts_emit_open(e, &inner);
    multiply(t);
    ts_emit_close(e, inner);
    ts_emit_line(e, "if (step < %ld) {", all);
    ts_emit_open(e, &inner);
    keep(t, &t->rows);
    keep(t, &t->columns);
    ts_emit_close(e, inner);
    ts_emit_line(e, "BARRIER();");
    ts_emit_close(e, mark);
}

/* One slice after the other: the order of the additions is always the same. */
static void results_to_shared(tiles *t)
{
    ts_emit *e = t->w->e;
    int across = t->columns.tile / t->own_columns;

    for (int k = 0; k < t->slices; k++) {
        ts_emit_line(e, t->slices > 1 ? "if (slice == %d) {" : "{", k);
        ts_emit_line(e, "    UNROLL(%d)", t->own_rows);
        ts_emit_line(e, "    for (int32_t i = 0; i < %d; i++) {", t->own_rows);
        ts_emit_line(e, "        UNROLL(%d)", t->own_columns);
        ts_emit_line(e, "        for (int32_t j = 0; j < %d; j++)", t->own_columns);
        ts_emit_line(e,
                     "            %s[((own / %d) * %d + i) * %d + j / 4 * %d + (own %% %d) * 4 + "
                     "j %% 4] %s= sum[i * %d + j];",
                     t->shared, across, t->own_rows, t->columns.tile, t->columns.tile / 2, across,
                     k ? "+" : "", t->own_columns);
        ts_emit_line(e, "    }");
        ts_emit_line(e, "}");
        ts_emit_line(e, "BARRIER();");
    }
}

/* The result's coordinates from the axes. */
static void coordinates(tiles *t, const ts_ix *const *axes, const ts_ix **at)
{
    for (int d = 0; d < t->n->out[0]->type.rank; d++)
        at[d] = ts_spec_ix(t->w->r->a, &t->s.out[d], t->s.nout, axes);
}

static void finish(tiles *t, const ts_ix **axes)
{
    ts_emit *e = t->w->e;
    const ts_ix *at[TS_MAX_RANK];
    const char *names[TS_AXES];
    const side *sides[] = {&t->rows, &t->columns};
    int mark, inner;

    ts_emit_line(e, "for (int32_t i = LOCAL; i < %d; i += %d) {", t->rows.tile * t->columns.tile,
                 t->threads);
    ts_emit_open(e, &mark);
    ts_emit_line(e, "const %s row = rows_first + i / %d, column = columns_first + i %% %d;",
                 e->index, t->columns.tile, t->columns.tile);
    ts_emit_line(e, "if (row < %ld && column < %ld) {", (long)t->rows.size, (long)t->columns.size);
    ts_emit_open(e, &inner);
    for (int k = 0; k < 2; k++) {
        decode(t, sides[k], k ? "column" : "row", names);
        for (int i = 0; i < sides[k]->naxes; i++)
            axes[sides[k]->axis[i]] = variable(t, names[i], sides[k]->axis[i]);
    }
    ts_emit_line(e, "const float s = %s[i];", t->shared);
    coordinates(t, axes, at);
    ts_emit_bind(e, t->n->out[0], at, "s");
    ts_render_body(e, t->w->k, at);
    ts_emit_close(e, inner);
    ts_emit_close(e, mark);
}

static void write_tiles(tiles *t)
{
    const ts_ix *axes[TS_AXES];
    const char *names[TS_AXES];

    t->most = TS_MAX(2 * t->step * (t->rows.tile + t->columns.tile + 2 * PAD),
                     t->rows.tile * t->columns.tile);
    t->shared = ts_gpu_shared(t->w, "float", t->most);
    find_tile(t);
    decode(t, &t->both, "both", names);
    fixed_axes(t, names, axes);
    prepare(t, &t->rows);
    prepare(t, &t->columns);
    steps(t, axes);
    results_to_shared(t);
    finish(t, axes);
}

bool ts_gpu_tile(ts_gpu_writer *w)
{
    tiles t = {.w = w,
               .n = w->k->anchor,
               .rows = {.size = 1, .name = "rows"},
               .columns = {.size = 1, .name = "columns"},
               .depth = {.size = 1},
               .both = {.size = 1}};

    if (!t.n || !t.n->op->spec || w->row->threads || t.n->out[0]->type.dtype != TS_F32 ||
        !ts_type_same_shape(&t.n->out[0]->type, &w->k->roots[0]->type))
        return false;
    t.n->op->spec(w->r->a, t.n, &t.s);
    if (!divide_axes(&t) || !choose_size(&t) || count(&t) > 1 << 30)
        return false;
    choose_across(&t, &t.rows);
    choose_across(&t, &t.columns);
    w->row->threads = t.threads;
    w->row->groups = count(&t);
    write_tiles(&t);
    return true;
}
