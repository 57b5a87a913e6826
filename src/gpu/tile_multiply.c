/* tile_multiply.c - the products of a step, from shared memory, and the results back to it.
 *
 * f32: a thread has 8 x 8 results or fewer. Halves: a warp has a block of 32 x 32 or so, which
 * tensor cores multiply 16 x 8 x 16 at a time (mma.sync); a thread has the results that this leaves
 * in its registers, rows lane / 4 and 8 more, columns 2 * (lane % 4) and the next. OpenCL has no such
 * instruction: there each thread adds up the same results by itself.
 */
#include "gpu/tile.h"

static bool is_half(const ts_tiles *t)
{
    return t->half != TS_F32;
}

static int results(const ts_tiles *t)
{
    return t->own_rows * t->own_columns / (is_half(t) ? 32 : 1);
}

/* How many threads, or warps, are side by side. */
static int across(const ts_tiles *t)
{
    return t->columns.tile / t->own_columns;
}

/* f32: row i of a thread is own_row + i * this. Rows that lie along the depth are read four depths at
 * a time, and neighbouring threads have neighbouring ones, in other banks. */
static int row_step(const ts_tiles *t)
{
    return t->rows.lies_deep ? t->rows.tile / t->own_rows : 1;
}

/* And column j, own_column + this: by fours where they lie side by side. */
static const char *column_of(const ts_tiles *t)
{
    ts_arena *a = t->w->r->a;

    if (t->columns.lies_deep)
        return ts_arena_printf(a, "j * %d", across(t));
    return ts_arena_printf(a, "j / 4 * %d + j %% 4", 4 * across(t));
}

/* f32: neighbouring threads have the same columns, and every other one the same rows, so that two of them
 * ask for the same 16 bytes of either side: shared memory serves half a warp of such pairs at once,
 * else a quarter. */
static void own_floats(ts_tiles *t)
{
    ts_emit_line(t->w->e, "const int32_t own_row = (own / %d * 2 + own %% 2) * %d;", 2 * across(t),
                 t->rows.lies_deep ? 1 : t->own_rows);
    ts_emit_line(t->w->e, "const int32_t own_column = own / 2 %% %d * %d;", across(t),
                 t->columns.lies_deep ? 1 : 4);
}

void ts_tile_start(ts_tiles *t)
{
    ts_emit *e = t->w->e;
    const char *type = is_half(t) ? "uint16_t" : "float";

    ts_emit_line(e, "const int32_t own = LOCAL %% %d, slice = LOCAL / %d;", t->slice, t->slice);
    if (is_half(t)) {
        ts_emit_line(e, "const int32_t lane = own %% 32, warp = own / 32;");
        ts_emit_line(e, "const int32_t own_row = warp / %d * %d, own_column = warp %% %d * %d;",
                     across(t), t->own_rows, across(t), t->own_columns);
    } else
        own_floats(t);
    ts_emit_line(e, "SHARED_PLACE %s *const rows_all = (SHARED_PLACE %s *)%s;", type, type,
                 t->shared);
    ts_emit_line(e, "SHARED_PLACE %s *const columns_all = rows_all + %d;", type,
                 t->stages * ts_tile_buffer(t, &t->rows));
    ts_emit_line(e, "float sum[%d];", results(t));
    ts_emit_line(e, "UNROLL(%d)", results(t));
    ts_emit_line(e, "for (int32_t i = 0; i < %d; i++)", results(t));
    ts_emit_line(e, "    sum[i] = 0.0f;");
}

/* --- f32 --- */

/* b[j * 4 + k]: column j at depth d + k */
static void load_columns(ts_tiles *t)
{
    ts_emit *e = t->w->e;
    int pitch = ts_tile_pitch(t, &t->columns);

    ts_emit_line(e, "    float b[%d];", 4 * t->own_columns);
    if (t->columns.lies_deep)
        for (int j = 0; j < t->own_columns; j++)
            ts_emit_line(e, "    LOAD4(b, %d, 1, columns_at + (own_column + %d) * %d + d)", 4 * j,
                         j * across(t), pitch);
    else
        for (int k = 0; k < 4; k++)
            for (int j = 0; j < t->own_columns; j += 4)
                ts_emit_line(e, "    LOAD4(b, %d, 4, columns_at + (d + %d) * %d + own_column + %d)",
                             4 * j + k, k, pitch, j * across(t));
}

/* a[r * 4 + k]: row i + r at depth d + k; four rows, or one where they lie along the depth */
static void load_rows(ts_tiles *t)
{
    ts_emit *e = t->w->e;
    int pitch = ts_tile_pitch(t, &t->rows);

    ts_emit_line(e, "        float a[%d];", t->rows.lies_deep ? 4 : 16);
    if (t->rows.lies_deep)
        ts_emit_line(e, "        LOAD4(a, 0, 1, rows_at + (own_row + i * %d) * %d + d)",
                     row_step(t), pitch);
    else
        for (int k = 0; k < 4; k++)
            ts_emit_line(e, "        LOAD4(a, %d, 4, rows_at + (d + %d) * %d + own_row + i)", k, k,
                         pitch);
}

static void multiply_floats(ts_tiles *t)
{
    ts_emit *e = t->w->e;
    int rows = t->rows.lies_deep ? 1 : 4;

    load_columns(t);
    ts_emit_line(e, "    UNROLL(%d)", t->own_rows / rows);
    ts_emit_line(e, "    for (int32_t i = 0; i < %d; i += %d) {", t->own_rows, rows);
    load_rows(t);
    ts_emit_line(e, "        UNROLL(4)");
    ts_emit_line(e, "        for (int32_t k = 0; k < 4; k++) {");
    ts_emit_line(e, "            UNROLL(%d)", rows);
    ts_emit_line(e, "            for (int32_t r = 0; r < %d; r++) {", rows);
    ts_emit_line(e, "                UNROLL(%d)", t->own_columns);
    ts_emit_line(e, "                for (int32_t j = 0; j < %d; j++)", t->own_columns);
    ts_emit_line(e, "                    sum[(i + r) * %d + j] += a[r * 4 + k] * b[j * 4 + k];",
                 t->own_columns);
    ts_emit_line(e, "            }");
    ts_emit_line(e, "        }");
    ts_emit_line(e, "    }");
}

/* --- tensor cores --- */

/* 16 x 16 halves of a side; which of them a lane points at, and whether they are turned. */
static void matrices(ts_tiles *t, const ts_side *s, const char *to, const char *own)
{
    bool rows = s == &t->rows;
    int pitch = ts_tile_pitch(t, s);
    const char *side = rows ? "lane / 8 % 2" : "lane / 16",
               *deep = rows ? "lane / 16" : "lane / 8 % 2";

    if (s->lies_deep)
        ts_emit_line(t->w->e,
                     "        load_matrices(%s + 4 * i, %s_at + (%s + i * 16 + %s * 8 + lane %% 8) "
                     "* %d + d + %s * 8);",
                     to, s->name, own, side, pitch, deep);
    else
        ts_emit_line(t->w->e,
                     "        load_turned(%s + 4 * i, %s_at + (d + %s * 8 + lane %% 8) * %d + %s + "
                     "i * 16 + %s * 8);",
                     to, s->name, deep, pitch, own, side);
}

static void with_tensor_cores(ts_tiles *t)
{
    ts_emit *e = t->w->e;
    int down = t->own_rows / 16, wide = t->own_columns / 8;

    ts_emit_line(e, "    uint32_t a[%d], b[%d];", 4 * down, 2 * wide);
    ts_emit_line(e, "    UNROLL(%d)", down);
    ts_emit_line(e, "    for (int32_t i = 0; i < %d; i++)", down);
    matrices(t, &t->rows, "a", "own_row");
    ts_emit_line(e, "    UNROLL(%d)", wide / 2);
    ts_emit_line(e, "    for (int32_t i = 0; i < %d; i++)", wide / 2);
    matrices(t, &t->columns, "b", "own_column");
    ts_emit_line(e, "    UNROLL(%d)", down);
    ts_emit_line(e, "    for (int32_t i = 0; i < %d; i++) {", down);
    ts_emit_line(e, "        UNROLL(%d)", wide);
    ts_emit_line(e, "        for (int32_t j = 0; j < %d; j++)", wide);
    ts_emit_line(e, "            multiply_%s(sum + (i * %d + j) * 4, a + 4 * i, b + 2 * j);",
                 ts_dtype_name(t->half), wide);
    ts_emit_line(e, "    }");
}

/* Element (own, depth) of a side, as a float. */
static const char *half_at(ts_tiles *t, const ts_side *s, const char *own)
{
    int pitch = ts_tile_pitch(t, s);

    return ts_arena_printf(t->w->r->a,
                           s->lies_deep ? "%s_to_f32(%s_at[(%s) * %d + k])"
                                        : "%s_to_f32(%s_at[(%s) + k * %d])",
                           ts_dtype_name(t->half), s->name, own, pitch);
}

static void one_by_one(ts_tiles *t)
{
    ts_emit *e = t->w->e;
    int wide = t->own_columns / 8;

    ts_emit_line(e, "    for (int32_t k = d; k < d + 16; k++)");
    ts_emit_line(e, "        for (int32_t i = 0; i < %d; i++)", results(t));
    ts_emit_line(e, "            sum[i] += %s *",
                 half_at(t, &t->rows,
                         ts_arena_printf(e->a, "own_row + i / %d * 16 + i / 2 %% 2 * 8 + lane / 4",
                                         4 * wide)));
    ts_emit_line(e, "                      %s;",
                 half_at(t, &t->columns,
                         ts_arena_printf(
                             e->a, "own_column + i / 4 %% %d * 8 + lane %% 4 * 2 + i %% 2", wide)));
}

static void multiply_halves(ts_tiles *t)
{
    ts_emit *e = t->w->e;

    ts_emit_line(e, "#ifdef __CUDACC__");
    with_tensor_cores(t);
    ts_emit_line(e, "#else");
    one_by_one(t);
    ts_emit_line(e, "#endif");
}

void ts_tile_multiply(ts_tiles *t)
{
    ts_emit *e = t->w->e;
    int part = t->step / t->slices;

    ts_emit_line(e, "UNROLL(%d)", is_half(t) ? 2 : 4);
    ts_emit_line(e, "for (int32_t d = slice * %d; d < slice * %d + %d; d += %d) {", part, part,
                 part, is_half(t) ? 16 : 4);
    if (is_half(t))
        multiply_halves(t);
    else
        multiply_floats(t);
    ts_emit_line(e, "}");
}

/* --- results --- */

/* How many results of a thread lie side by side. */
static int together(const ts_tiles *t)
{
    return is_half(t) ? 2 : t->columns.lies_deep ? 1 : 4;
}

/* Rows are as far apart as keeps those that a warp writes at once in other banks. */
int ts_tile_result_pitch(const ts_tiles *t)
{
    if (is_half(t))
        return t->columns.tile + 8;
    return t->columns.tile + (t->columns.lies_deep ? across(t) : 16);
}

/* Results from j on to `place`, or added to what is there. */
static void put(ts_tiles *t, int wide, const char *place, bool add)
{
    int n = together(t);

    ts_emit_line(t->w->e, "        UNROLL(%d)", wide / n);
    ts_emit_line(t->w->e, "        for (int32_t j = 0; j < %d; j += %d)", wide, n);
    ts_emit_line(t->w->e, "            %s%d(%s + %s, sum, i * %d + j)", add ? "ADD" : "PUT", n,
                 t->shared, place, wide);
}

static void put_floats(ts_tiles *t, int rows, bool add)
{
    ts_emit *e = t->w->e;

    ts_emit_line(e, "UNROLL(%d)", t->own_rows);
    ts_emit_line(e, "for (int32_t i = 0; i < %d; i++) {", t->own_rows);
    ts_emit_line(e, "    if ((own_row + i * %d) / %d == part) {", row_step(t), rows);
    put(t, t->own_columns,
        ts_arena_printf(e->a, "(own_row + i * %d) %% %d * %d + own_column + %s", row_step(t), rows,
                        ts_tile_result_pitch(t), column_of(t)),
        add);
    ts_emit_line(e, "    }");
    ts_emit_line(e, "}");
}

static void put_matrices(ts_tiles *t, int rows, bool add)
{
    ts_emit *e = t->w->e;
    int down = t->own_rows / 16, wide = t->own_columns / 8;

    ts_emit_line(e, "UNROLL(%d)", down);
    ts_emit_line(e, "for (int32_t i = 0; i < %d; i++) {", down);
    ts_emit_line(e, "    if ((own_row + i * 16) / %d == part) {", rows);
    put(t, 4 * wide,
        ts_arena_printf(
            e->a,
            "((own_row + i * 16) %% %d + j / 2 %% 2 * 8 + lane / 4) * %d + own_column + "
            "j / 4 * 8 + lane %% 4 * 2",
            rows, ts_tile_result_pitch(t)),
        add);
    ts_emit_line(e, "    }");
    ts_emit_line(e, "}");
}

/* One slice after the other: the order of the additions is always the same. */
void ts_tile_results(ts_tiles *t, int rows)
{
    ts_emit *e = t->w->e;

    for (int k = 0; k < t->slices; k++) {
        if (t->slices > 1)
            ts_emit_line(e, "if (slice == %d) {", k);
        if (is_half(t))
            put_matrices(t, rows, k > 0);
        else
            put_floats(t, rows, k > 0);
        if (t->slices > 1)
            ts_emit_line(e, "}");
        ts_emit_line(e, "BARRIER();");
    }
}
