/* tile.c - a large contraction in tiles, whatever it is: a product of matrices, a convolution, or
 * the gradient of one.
 *
 * Every axis of the result belongs to one operand, or to both. The axes of one operand are the rows,
 * those of the other the columns (the operand that has the axis along which the result lies in
 * memory, so that neighbouring threads store neighbours), and the summed axes are the depth:
 *
 *   group of 256 threads: 128 x 128 results, 8 x 8 of them in the registers of each thread
 *     for (step over the depth, 16 at a time)
 *         start to bring 128 x 16 elements of both operands, of two steps ahead, to shared memory
 *         those of this step: 16 x 64 products a thread
 *     the results to shared memory, for what comes after the sum
 *
 * With smaller tiles several slices of threads have the same results and a part of the depth each,
 * and are added up in the end, always in the same order. Where both operands are halves that were
 * widened, tensor cores multiply the halves themselves, which is the same product.
 */
#include "gpu/tile.h"

enum {
    LEAST_SIDE = 8,
    LEAST_TILES = 24,
    LEAST_DEPTH = 24,
    PROCESSORS = 132, /* of the GPU that sizes are chosen for: the bits depend on them */
};

/* --- strides --- */

static int add_axis(ts_spec *s, int of, int64_t extent)
{
    s->extent[s->naxes] = extent;
    s->axis[s->naxes] = s->axis[of];
    return s->naxes++;
}

/* The axis that dim d of the operand counts forwards, or backwards as its taps. */
static int axis_with(const ts_spec *s, const ts_affine *f, int64_t k, bool summed)
{
    for (int i = 0; i < s->naxes; i++)
        if (f->k[i] == k && (i >= s->nout) == summed)
            return i;
    return -1;
}

/* The gradient of the input of a convolution with stride 2 finds something at every second tap:
 *
 *   dx[y] = sum over ky of dy[(y + p - ky) / 2] * w[ky]
 *
 * Places y = 2*q + r of one remainder r have the same taps ky = 2*k + f, f = (r + p) % 2, and no
 * division is left: dy[q - k + (r + p - f) / 2]. */
static void halve(ts_tiles *t, int d)
{
    ts_spec *s = &t->s;
    ts_affine *dy = &s->a[d], *w = &s->b[d];
    int64_t p = dy->c;
    int y = axis_with(s, dy, 1, false), tap = axis_with(s, dy, -1, true), r;

    if (dy->div != 2 || y < 0 || tap < 0 || s->extent[y] % 2 || p < 0 || w->k[tap] != 1 ||
        s->naxes >= TS_AXES || s->out[d].k[y] != 1)
        return;
    s->extent[y] /= 2;
    s->extent[tap] = (s->extent[tap] + 1) / 2;
    r = add_axis(s, y, 2);
    s->out[d].k[y] = 2;
    s->out[d].k[r] = 1;
    *dy = (ts_affine){.c = p / 2};
    dy->k[y] = 1;
    dy->k[tap] = -1;
    dy->k[r] = p % 2;
    w->k[tap] = 2;
    w->k[r] = p % 2 ? -1 : 1;
    w->c += p % 2;
}

static void halve_strides(ts_tiles *t)
{
    for (int i = 0; i < t->s.naxes; i++)
        t->summed[i] = i >= t->s.nout;
    for (int d = 2; d < t->n->out[0]->type.rank && t->n->op == TS_OP(conv_input); d++)
        halve(t, d);
}

/* --- views --- */

/* How often an axis turns over in an address: through a reshape it may count two dims. */
static int64_t period(const ts_ix *x, const ts_atom *atom)
{
    for (int i = 0; i < x->n; i++) {
        const ts_atom *a = x->t[i].atom;
        int64_t k;
        if (a->kind == TS_ATOM_VAR || !ts_ix_uses(a->of, atom))
            continue;
        k = ts_ix_coef(a->of, atom);
        return k > 0 && a->by % k == 0 && ts_ix_linear(a->of, atom) ? a->by / k
                                                                    : period(a->of, atom);
    }
    return 0;
}

/* An axis in two: what counts it counts n of the outer one, and the inner one. */
static void cut_axis(ts_tiles *t, int axis, int64_t n)
{
    ts_spec *s = &t->s;
    int outer = add_axis(s, axis, s->extent[axis] / n);
    ts_affine *all[] = {s->a, s->b, s->out};

    s->extent[axis] = n;
    t->summed[outer] = t->summed[axis];
    for (int k = 0; k < 3; k++)
        for (int d = 0; d < TS_MAX_RANK; d++)
            all[k][d].k[outer] = n * all[k][d].k[axis];
}

/* Axes that are straight in both operands' memory. */
static void cut_axes(ts_tiles *t)
{
    for (int operand = 0; operand < 2; operand++)
        for (int i = 0; i < t->s.naxes && t->s.naxes < TS_AXES; i++) {
            int64_t n = ts_tile_period(t, operand, i, period);
            if (n > 1 && n < t->s.extent[i] && t->s.extent[i] % n == 0)
                cut_axis(t, i, n);
        }
}

/* --- what belongs where --- */

static bool uses(const ts_tiles *t, int operand, int axis)
{
    const ts_affine *f = operand ? t->s.b : t->s.a;

    for (int d = 0; d < t->n->in[operand]->type.rank; d++)
        if (f[d].k[axis])
            return true;
    return false;
}

static void give(ts_side *s, const ts_spec *spec, int axis)
{
    s->axis[s->naxes++] = axis;
    s->size *= spec->extent[axis];
}

/* The operand of the axis along which the result lies in memory; -1 when it is both's. */
static int last_operand(const ts_tiles *t)
{
    const ts_value *v = t->w->k->roots[0];

    for (int k = v->type.rank - 1; k >= 0; k--) {
        int d = v->layout.set ? v->layout.order[k] : k;
        for (int i = t->s.naxes - 1; i >= 0; i--)
            if (t->s.out[d].k[i] == 1 && t->s.extent[i] > 1 && uses(t, 0, i) != uses(t, 1, i))
                return uses(t, 1, i);
            else if (t->s.out[d].k[i] == 1 && t->s.extent[i] > 2)
                return -1;
    }
    return -1;
}

static bool divide_axes(ts_tiles *t)
{
    int columns = last_operand(t);

    if (columns < 0)
        return false;
    t->rows.operand = 1 - columns;
    t->columns.operand = columns;
    for (int i = 0; i < t->s.naxes; i++) {
        bool a = uses(t, 0, i), b = uses(t, 1, i);
        if (t->s.extent[i] == 1)
            continue;
        if (t->summed[i])
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

/* Neighbours in the operand's memory last. */
static void sort_side(ts_tiles *t, ts_side *s)
{
    int64_t stride[TS_AXES];

    for (int i = 0; i < s->naxes; i++) {
        stride[s->axis[i]] = ts_tile_stride(t, s->operand, s->axis[i]);
        if (!stride[s->axis[i]])
            return;
    }
    for (int i = 1; i < s->naxes; i++)
        for (int k = i; k > 0 && llabs(stride[s->axis[k]]) > llabs(stride[s->axis[k - 1]]); k--) {
            int x = s->axis[k];
            s->axis[k] = s->axis[k - 1];
            s->axis[k - 1] = x;
        }
}

/* --- the depth --- */

/* Is a step a block of the axes, as they are ordered? */
static bool find_blocks(ts_tiles *t)
{
    int64_t left = t->step;

    for (int i = t->depth.naxes - 1; i >= 0; i--) {
        int64_t n = t->s.extent[t->depth.axis[i]];
        if (left % n && n % left)
            return false;
        t->block[i] = TS_MIN(n, left);
        t->outer[i] = n / t->block[i];
        left /= t->block[i];
    }
    return left == 1;
}

static void last_axis(ts_side *s, int which)
{
    int axis = s->axis[which];

    memmove(&s->axis[which], &s->axis[which + 1],
            (size_t)(s->naxes - 1 - which) * sizeof(s->axis[0]));
    s->axis[s->naxes - 1] = axis;
}

/* The order of the depth's axes: one in which a step is a block, and of those the one whose vectors
 * are most. A sum may be taken in any order, if it is always the same. */
static void order_depth(ts_tiles *t)
{
    ts_side best = t->depth;
    int most = -1;

    for (int i = t->depth.naxes - 1; i >= 0; i--) {
        ts_side before = t->depth;
        int score;
        last_axis(&t->depth, i);
        t->regular = find_blocks(t);
        ts_tile_choose_units(t, &t->rows);
        ts_tile_choose_units(t, &t->columns);
        score = t->regular ? 1 + t->rows.vector + t->columns.vector : 0;
        if (score > most) {
            most = score;
            best = t->depth;
        }
        t->depth = before;
    }
    t->depth = best;
    t->regular = find_blocks(t);
    ts_tile_choose_units(t, &t->rows);
    ts_tile_choose_units(t, &t->columns);
}

/* --- sizes --- */

static int64_t count(const ts_tiles *t)
{
    return t->both.size * ts_tile_up(t->rows.size, t->rows.tile) *
           ts_tile_up(t->columns.size, t->columns.tile);
}

/* Larger tiles read less for each product; too few leave the GPU idle, and a tile that hangs over
 * the edge works for nothing. `quality` is how near the machine's best a size comes when each of its
 * processors has as many as it can hold, `resident`. */
typedef struct size {
    int rows, columns, own_rows, own_columns, step, slices, stages, resident;
    double quality;
} size;

static const size floats[] = {
    {128, 128, 8, 8, 16, 1, 3, 2, 0.95}, {128, 64, 8, 8, 16, 2, 3, 2, 0.95},
    {64, 128, 8, 8, 16, 2, 3, 2, 0.95},  {64, 64, 8, 8, 32, 4, 3, 2, 0.9},
    {64, 64, 8, 8, 16, 2, 4, 4, 1.0},    {128, 32, 8, 8, 16, 2, 4, 4, 0.85},
    {32, 128, 8, 8, 16, 2, 4, 4, 0.85},  {32, 64, 4, 8, 32, 4, 3, 3, 0.65},
    {64, 32, 8, 4, 32, 4, 3, 3, 0.65},   {32, 32, 4, 4, 32, 4, 4, 4, 0.55},
    {16, 64, 4, 4, 32, 4, 4, 4, 0.4},
};

/* The tensor cores': a warp's results. */
static const size halves[] = {
    {128, 128, 64, 32, 32, 1, 4, 2, 1.0}, {128, 64, 32, 32, 32, 1, 4, 2, 0.8},
    {64, 128, 32, 32, 32, 1, 4, 2, 0.8},  {64, 64, 32, 32, 32, 1, 4, 4, 0.65},
    {64, 64, 32, 32, 64, 2, 4, 2, 0.65},  {128, 32, 32, 32, 32, 1, 4, 4, 0.66},
    {32, 64, 32, 16, 64, 2, 4, 2, 0.4},   {32, 32, 16, 16, 64, 2, 4, 4, 0.36},
};

static void take_size(ts_tiles *t, const size *s)
{
    t->rows.tile = s->rows;
    t->columns.tile = s->columns;
    t->own_rows = s->own_rows;
    t->own_columns = s->own_columns;
    t->step = s->step;
    t->slices = s->slices;
    t->stages = s->stages;
    t->resident = s->resident;
    t->slice = s->rows * s->columns / (s->own_rows * s->own_columns) * (t->half != TS_F32 ? 32 : 1);
    t->threads = t->slice * t->slices;
}

/* The time of the processor with the most tiles; one that is not full does less a second. */
static double cost(const ts_tiles *t, const size *s)
{
    double each = (double)ts_tile_up(count(t), PROCESSORS), full = TS_MIN(each, s->resident);

    return each * s->rows * s->columns / s->quality * (0.4 + 0.6 * s->resident / full);
}

static bool choose_size(ts_tiles *t)
{
    bool half = t->half != TS_F32;
    const size *all = half ? halves : floats, *best = NULL;

    if (t->rows.size < LEAST_SIDE || t->columns.size < LEAST_SIDE || t->depth.size < LEAST_DEPTH)
        return false;
    for (int i = 0; i < (half ? TS_COUNT(halves) : TS_COUNT(floats)); i++) {
        double old = best ? (take_size(t, best), cost(t, best)) : 0;
        take_size(t, &all[i]);
        if (!best || cost(t, &all[i]) < old)
            best = &all[i];
    }
    take_size(t, best);
    return count(t) >= LEAST_TILES && count(t) <= 1 << 30;
}

/* --- halves --- */

/* The type that the operand was widened from: its values are exactly those. */
static ts_dtype widened(const ts_value *v)
{
    while (v->kind == TS_VALUE_NODE && v->node->op->flags & TS_VIEW &&
           !(v->node->op->flags & TS_PATCH))
        v = v->node->in[0];
    if (v->kind == TS_VALUE_NODE && v->node->op == TS_OP(cast) &&
        ts_dtype_is_half(v->node->in[0]->type.dtype))
        return v->node->in[0]->type.dtype;
    return TS_F32;
}

static void find_half(ts_tiles *t)
{
    ts_dtype a = widened(t->n->in[0]), b = widened(t->n->in[1]);

    t->half = a == b ? a : TS_F32;
    if (t->half != TS_F32)
        t->w->e->need(t->w->e->where, "tensor");
    if (t->half == TS_F16)
        t->w->e->need(t->w->e->where, "half");
}

/* --- the whole --- */

/* Which tile the group has. */
static void find_tile(ts_tiles *t)
{
    ts_emit *e = t->w->e;
    long rows = (long)ts_tile_up(t->rows.size, t->rows.tile),
         columns = (long)ts_tile_up(t->columns.size, t->columns.tile);

    ts_emit_line(e, "const %s columns_first = GROUP %% %ld * %d;", e->index, columns,
                 t->columns.tile);
    ts_emit_line(e, "const %s rows_first = GROUP / %ld %% %ld * %d;", e->index, columns, rows,
                 t->rows.tile);
    ts_emit_line(e, "const %s both = GROUP / %ld;", e->index, rows * columns);
}

static void fixed_axes(ts_tiles *t, const char *const *names, const ts_ix **axes)
{
    for (int i = 0; i < t->s.naxes; i++)
        axes[i] = ts_ix_const(t->w->r->a, 0);
    for (int i = 0; i < t->both.naxes; i++)
        axes[t->both.axis[i]] = ts_tile_axis(t, names[i], t->both.axis[i]);
}

/* Pointers to the step in shared memory. */
static void point(ts_tiles *t, const char *what, const char *step)
{
    const ts_side *sides[] = {&t->rows, &t->columns};

    for (int i = 0; i < 2; i++)
        ts_emit_line(t->w->e, "SHARED_PLACE %s *const %s_%s = %s_all + %s %% %d * %d;",
                     t->half != TS_F32 ? "uint16_t" : "float", sides[i]->name, what, sides[i]->name,
                     step, t->stages, ts_tile_buffer(t, sides[i]));
}

static void when(ts_tiles *t, const char *cond, int *mark)
{
    ts_emit_line(t->w->e, "if (%s) {", cond);
    ts_emit_open(t->w->e, mark);
}

static void load_next(ts_tiles *t, const ts_ix **axes, const char *there)
{
    const char *blocks[TS_AXES] = {NULL};
    int mark;

    when(t, there, &mark);
    point(t, "to", "next");
    ts_tile_find_step(t, blocks);
    ts_tile_load(t, &t->rows, axes, blocks);
    ts_tile_load(t, &t->columns, axes, blocks);
    ts_emit_close(t->w->e, mark);
    ts_emit_line(t->w->e, "COMMIT();");
}

/* A step is multiplied when it has arrived, and when nobody reads the place any more to which the
 * next one to load goes: both are so for all threads behind one barrier. */
static void steps(ts_tiles *t, const ts_ix **axes)
{
    ts_emit *e = t->w->e;
    const char *there =
        ts_arena_printf(e->a, "next < %ld", (long)ts_tile_up(t->depth.size, t->step));
    int mark, inner;

    ts_emit_line(e, "for (int32_t step = %d; step < %ld; step++) {", 1 - t->stages,
                 (long)ts_tile_up(t->depth.size, t->step));
    ts_emit_open(e, &mark);
    ts_emit_line(e, "const int32_t next = step + %d;", t->stages - 1);
    ts_emit_line(e, "if (step >= 0) {");
    ts_emit_line(e, "    ARRIVED(%d);", t->stages - 2);
    ts_emit_line(e, "    BARRIER();");
    ts_emit_line(e, "}");
    load_next(t, axes, there);
    when(t, "step >= 0", &inner);
    point(t, "at", "step");
    ts_tile_multiply(t);
    ts_emit_close(e, inner);
    if (!t->rows.vector || !t->columns.vector) {
        when(t, there, &inner);
        point(t, "to", "next");
        ts_tile_keep(t, &t->rows);
        ts_tile_keep(t, &t->columns);
        ts_emit_close(e, inner);
    }
    ts_emit_close(e, mark);
    ts_emit_line(e, "BARRIER();");
}

/* What comes after the sum, from the results in shared memory. */
static void finish(ts_tiles *t, const ts_ix **axes, int rows)
{
    ts_emit *e = t->w->e;
    const ts_ix *at[TS_MAX_RANK];
    const char *names[TS_AXES];
    const ts_side *sides[] = {&t->rows, &t->columns};
    int mark, inner;

    ts_emit_line(e, "for (int32_t i = LOCAL; i < %d; i += %d) {", rows * t->columns.tile,
                 t->threads);
    ts_emit_open(e, &mark);
    ts_emit_line(e,
                 "const %s row = rows_first + part * %d + i / %d, column = columns_first + i %% "
                 "%d;",
                 e->index, rows, t->columns.tile, t->columns.tile);
    ts_emit_line(e, "if (row < %ld && column < %ld) {", (long)t->rows.size, (long)t->columns.size);
    ts_emit_open(e, &inner);
    for (int k = 0; k < 2; k++) {
        ts_tile_decode(t, sides[k], k ? "column" : "row", names);
        for (int i = 0; i < sides[k]->naxes; i++)
            axes[sides[k]->axis[i]] = ts_tile_axis(t, names[i], sides[k]->axis[i]);
    }
    ts_emit_line(e, "const float s = %s[i / %d * %d + i %% %d];", t->shared, t->columns.tile,
                 ts_tile_result_pitch(t), t->columns.tile);
    for (int d = 0; d < t->n->out[0]->type.rank; d++)
        at[d] = ts_spec_ix(e->a, &t->s.out[d], t->s.naxes, axes);
    ts_emit_bind(e, t->n->out[0], at, "s");
    ts_render_body(e, t->w->k, at);
    ts_emit_close(e, inner);
    ts_emit_close(e, mark);
}

static int shared_floats(const ts_tiles *t, int results)
{
    int all = t->stages * (ts_tile_buffer(t, &t->rows) + ts_tile_buffer(t, &t->columns));

    return TS_MAX(t->half != TS_F32 ? all / 2 : all, results);
}

static void write_tiles(ts_tiles *t)
{
    ts_emit *e = t->w->e;
    const ts_ix *axes[TS_AXES];
    const char *names[TS_AXES];
    int rows = TS_MIN(t->rows.tile, TS_TILE_RESULTS / t->columns.tile), mark;

    t->shared = ts_gpu_much_shared(t->w, shared_floats(t, rows * ts_tile_result_pitch(t)));
    find_tile(t);
    ts_tile_decode(t, &t->both, "both", names);
    fixed_axes(t, names, axes);
    ts_tile_prepare(t, &t->rows);
    ts_tile_prepare(t, &t->columns);
    ts_tile_start(t);
    steps(t, axes);
    ts_emit_line(e, "for (int32_t part = 0; part < %d; part++) {", t->rows.tile / rows);
    ts_emit_open(e, &mark);
    ts_tile_results(t, rows);
    finish(t, axes, rows);
    if (rows < t->rows.tile)
        ts_emit_line(e, "BARRIER();");
    ts_emit_close(e, mark);
}

bool ts_gpu_tile(ts_gpu_writer *w)
{
    ts_tiles t = {.w = w,
                  .n = w->k->anchor,
                  .rows = {.size = 1, .name = "rows"},
                  .columns = {.size = 1, .name = "columns"},
                  .depth = {.size = 1},
                  .both = {.size = 1}};

    if (!t.n || !t.n->op->spec || w->row->threads || t.n->out[0]->type.dtype != TS_F32 ||
        !ts_type_same_shape(&t.n->out[0]->type, &w->k->roots[0]->type))
        return false;
    t.n->op->spec(w->r->a, t.n, &t.s);
    halve_strides(&t);
    cut_axes(&t);
    if (!divide_axes(&t))
        return false;
    find_half(&t);
    if (!choose_size(&t))
        return false;
    sort_side(&t, &t.rows);
    sort_side(&t, &t.columns);
    order_depth(&t);
    w->row->threads = t.threads;
    w->row->resident = t.resident;
    w->row->groups = count(&t);
    write_tiles(&t);
    return true;
}
