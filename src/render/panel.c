/* panel.c - the functions that products from packed panels are made of, each written once a program.
 *
 *   pack       a strip of an operand, however it lies, as [k][i]: elements that are multiplied
 *              together side by side, strips of the sum one behind the other
 *   multiply   a strip of rows times a strip of columns, the sums in registers
 *
 * A strip that lies along the sum is turned in registers, a square of vectors at a time. Elements past
 * `count` are those before them again, or whatever was there: nobody stores what they are multiplied to.
 * A strip narrower than a vector is written in whole vectors, each over the end of the one before.
 */
#include "render/product.h"

static const char *panel_name(ts_panel p, ts_dtype t)
{
    switch (p) {
    case TS_PANEL_PAIRS:
        return "pairs";
    case TS_PANEL_TILES:
        return "tiles";
    case TS_PANEL_TILE_ROWS:
        return "tilerows";
    default:
        return ts_dtype_name(t);
    }
}

const char *ts_panel_pack(ts_render *r, ts_panel p, ts_dtype from, int64_t width)
{
    const char *name = panel_name(p, from);

    if (p != TS_PANEL_F64)
        ts_render_need(r, ts_arena_printf(r->a, "swap %d", r->m.isa.width));
    if (from == TS_F16 || from == TS_BF16)
        ts_render_need(r, "half");
    if (p == TS_PANEL_TILES || p == TS_PANEL_TILE_ROWS)
        ts_render_need(r, "tiles");
    ts_render_need(r, ts_arena_printf(r->a, "pack %s %ld", name, (long)width));
    return ts_arena_printf(r->a, "pack_%s_%ld", name, (long)width);
}

const char *ts_panel_multiply(ts_render *r, ts_panel p, int64_t rows, int vectors, int of)
{
    const char *name = panel_name(p, p == TS_PANEL_F64 ? TS_F64 : TS_F32);

    ts_render_need(r, ts_arena_printf(r->a, "multiply %s_%ld_%d_%d %s %ld %d %d 1 %ld 0", name,
                                      (long)rows, vectors, of, name, (long)rows, vectors, of,
                                      (long)rows));
    return ts_arena_printf(r->a, "multiply_%s_%ld_%d_%d", name, (long)rows, vectors, of);
}

const char *ts_panel_multiply_at(ts_render *r, int64_t rows, int vectors, int of, int64_t step,
                                 int64_t kstep, int64_t apart)
{
    const char *by = apart ? ts_arena_printf(r->a, "_by_%ld", (long)apart) : "";
    const char *name = ts_arena_printf(r->a, "f32_%ld_%d_%d_of_%ld_%ld%s", (long)rows, vectors, of,
                                       (long)step, (long)kstep, by);

    ts_render_need(r,
                   ts_arena_printf(r->a, "multiply %s f32 %ld %d %d %ld %ld %ld", name, (long)rows,
                                   vectors, of, (long)step, (long)kstep, (long)apart));
    return ts_arena_printf(r->a, "multiply_%s", name);
}

/* --- packing --- */

#define PACK                                                                                       \
    "void pack_%s_%d(%s *to, int64_t strip, const %s *from, int64_t count, int64_t step, "         \
    "int64_t kstep, int64_t n)"

static const char *memory_type(const char *name)
{
    return !strcmp(name, "f32") ? "float" : !strcmp(name, "f64") ? "double" : "uint16_t";
}

static const char *panel_type(const char *name)
{
    return !strcmp(name, "f64") ? "double" : "float";
}

/* One vector of row j of the square, at step k of the sum. */
static const char *row_load(ts_render *r, const char *name, int w, int j)
{
    const char *at = ts_arena_printf(r->a, "from + min(p + %d, count - 1) * step + ", j);

    if (!strcmp(name, "f32"))
        return ts_arena_printf(r->a, "*(const f32x%du *)(%sk)", w, at);
    if (!strcmp(name, "pairs"))
        return ts_arena_printf(r->a, "*(const f32x%du *)(%s2 * k)", w, at);
    return ts_arena_printf(r->a, "load_%sx%d(%sk)", name, w, at);
}

/* Squares of vectors, strip after strip; the last one of a strip begins in the one before it. */
static void turn(ts_render *r, ts_text *t, const char *name, int w, int width)
{
    int rows = TS_MIN(w, width);

    ts_text_printf(t, "        for (int64_t p = 0; p < count;) {\n");
    ts_text_printf(t, "            float *const at = to + p / %d * strip + p %% %d;\n", width,
                   width);
    ts_text_printf(t, "            for (int64_t k = 0;; k = min(k + %d, n - %d)) {\n", w, w);
    for (int j = 0; j < w; j++)
        ts_text_printf(t, "                f32x%d t%d = %s;\n", w, j,
                       j < rows ? row_load(r, name, w, j) : "{0}");
    for (int s = 1; s < w; s *= 2)
        for (int j = 0; j < w; j++)
            if (!(j & s))
                ts_text_printf(t, "                SWAP_f32x%d_%d(t%d, t%d);\n", w, s, j, j + s);
    for (int j = 0; j < w; j++)
        ts_text_printf(t, "                *(f32x%du *)(at + (k + %d) * %d) = t%d;\n", w, j, width,
                       j);
    ts_text_printf(t, "                if (k == n - %d)\n                    break;\n", w);
    ts_text_printf(t, "            }\n");
    if (width % rows)
        ts_text_printf(t, "            p += p %% %d == %d ? %d : min(%d, %d - p %% %d);\n", width,
                       width - rows, rows, rows, width - rows, width);
    else
        ts_text_printf(t, "            p += %d;\n", rows);
    ts_text_printf(t, "        }\n");
}

/* One element, as the panel has it. */
static const char *element(ts_render *r, const char *name, const char *at)
{
    if (!strcmp(name, "f32"))
        return ts_arena_printf(r->a, "from[%s]", at);
    return ts_arena_printf(r->a, "%s_to_f32(from[%s])", name, at);
}

/* Elements that lie side by side, for some steps of the sum a strip, then the next: strips are often powers of 2 apart, and one
 * set of level 1 does not hold them all. */
static void copy(ts_render *r, ts_text *t, const char *name, int width)
{
    int w = TS_MIN(r->m.isa.width, width);
    bool f32 = !strcmp(name, "f32");

    ts_text_printf(t,
                   "    if (step == 1) {\n"
                   "        for (int64_t some = 0; some < n; some += 8)\n"
                   "            for (int64_t i = 0; i < count; i += %d)\n"
                   "                for (int64_t k = some; k < min(some + 8, n); k++) {\n"
                   "                    const %s *x = from + kstep * k + i, *const end = x + "
                   "min(%d, count - i);\n"
                   "                    float *at = to + i / %d * strip + %d * k;\n"
                   "                    if (x + %d == end) {\n",
                   width, memory_type(name), width, width, width, width);
    if (f32)
        ts_text_printf(t, "                        memcpy(at, x, %d);\n", 4 * width);
    else
        ts_text_printf(t,
                       "                        for (int j = 0; j < %d; j += %d)\n"
                       "                            *(f32x%du *)(at + j) = load_%sx%d(x + j);\n",
                       width, w, w, name, w);
    ts_text_printf(t, "                        continue;\n                    }\n");
    if (w < width) {
        ts_text_printf(t, "                    for (; x + %d <= end; x += %d, at += %d)\n", w, w,
                       w);
        if (f32)
            ts_text_printf(t, "                        memcpy(at, x, %d);\n", 4 * w);
        else
            ts_text_printf(t, "                        *(f32x%du *)at = load_%sx%d(x);\n", w, name,
                           w);
    }
    ts_text_printf(t,
                   "                    for (; x < end; x++)\n"
                   "                        *at++ = %s;\n"
                   "                }\n        return;\n    }\n",
                   f32 ? "*x" : ts_arena_printf(r->a, "%s_to_f32(*x)", name));
}

/* Doubles, of which there are no vectors to turn: strip after strip. */
static void pack_doubles(ts_text *t, int width)
{
    ts_text_printf(t,
                   "    for (int64_t i = 0; i < count; i += %d) {\n"
                   "        const int64_t last = min(%d, count - i);\n"
                   "        const double *const x = from + step * i;\n"
                   "        double *const at = to + i / %d * strip;\n"
                   "        if (step == 1 && last == %d)\n"
                   "            for (int64_t k = 0; k < n; k++)\n"
                   "                memcpy(at + %d * k, x + kstep * k, %d);\n"
                   "        else\n"
                   "            for (int64_t k = 0; k < n; k++)\n"
                   "                for (int64_t j = 0; j < last; j++)\n"
                   "                    at[%d * k + j] = x[step * j + kstep * k];\n"
                   "    }\n",
                   width, width, width, width, width, 8 * width, width);
}

static void pack_plain(ts_render *r, ts_text *t, const char *name, int width)
{
    int w = r->m.isa.width;

    if (!strcmp(name, "f64")) {
        pack_doubles(t, width);
        return;
    }
    ts_text_printf(t, "    if (kstep == 1 && n >= %d) {\n", w);
    turn(r, t, name, w, width);
    ts_text_printf(t, "        return;\n    }\n");
    if (!strcmp(name, "f32") || width % w == 0)
        copy(r, t, name, width);
    ts_text_printf(t,
                   "    for (int64_t k = 0; k < n; k++)\n"
                   "        for (int64_t i = 0; i < count; i++)\n"
                   "            to[i / %d * strip + %d * k + i %% %d] = %s;\n",
                   width, width, width, element(r, name, "step * i + kstep * k"));
}

/* `lanes` pairs of two rows that lie side by side, from x + i on, to `at`. */
static void zip_vector(ts_text *t, const char *indent, const char *at, int lanes)
{
    ts_text_printf(t,
                   "%s*(f32x%du *)(%s) = (f32x%d)((u32x%d)load_bf16x%d(x + i) >> 16 | "
                   "(u32x%d)load_bf16x%d(x + i + kstep));\n",
                   indent, lanes, at, lanes, lanes, lanes, lanes, lanes);
}

/* Strips no wider than a vector of `lanes`: each is one, over the end of what the next step writes. */
static void zip_narrow(ts_arena *a, ts_text *t, int width, int lanes)
{
    ts_text_printf(t, "            float *at = to + %d * done;\n", width);
    ts_text_printf(t, "            for (; i + %d <= count; i += %d, at += strip)\n", lanes, width);
    zip_vector(t, "                ", "at", lanes);
    if (width % 4)
        return;
    ts_text_printf(t, "            for (; i + 4 <= count; i += 4)\n");
    zip_vector(t, "                ",
               ts_arena_printf(a, "to + i / %d * strip + %d * done + i %% %d", width, width, width),
               4);
}

static void zip_wide(ts_text *t, int width, int lanes)
{
    ts_text_printf(t,
                   "            for (float *at = to + %d * done; i + %d <= count; at += strip)\n"
                   "                for (int j = 0; j < %d && i + %d <= count; i += %d, j += %d)\n",
                   width, lanes, width, lanes, lanes, lanes);
    zip_vector(t, "                    ", "at + j", lanes);
}

/* Two rows that lie side by side as one of pairs. */
static void zip(ts_arena *a, ts_text *t, int width, int w)
{
    int lanes = width <= 4 ? 4 : width <= 8 ? TS_MIN(8, w) : w;

    ts_text_printf(t, "    if (step == 1)\n"
                      "        for (; done < n; done++) {\n"
                      "            const uint16_t *const x = from + kstep * 2 * done;\n"
                      "            int64_t i = 0;\n");
    if (width <= lanes)
        zip_narrow(a, t, width, lanes);
    else
        zip_wide(t, width, width % w ? 4 : w);
    ts_text_printf(t,
                   "            for (; i < count; i++) {\n"
                   "                const uint16_t pair[2] = {x[i], x[i + kstep]};\n"
                   "                memcpy(to + i / %d * strip + %d * done + i %% %d, pair, 4);\n"
                   "            }\n        }\n",
                   width, width, width);
}

/* Pairs along the sum as 32 bits: where the operand lies along the sum they lie so already. A last one
 * without a second is completed by zero. */
static void pack_pairs(ts_render *r, ts_text *t, int width)
{
    int w = r->m.isa.width;

    ts_text_printf(t, "    const int64_t all = n;\n    int64_t done = 0;\n    n /= 2;\n");
    ts_text_printf(t, "    if (kstep == 1 && n >= %d) {\n", w);
    turn(r, t, "pairs", w, width);
    ts_text_printf(t, "        done = n;\n    }\n");
    if (width <= w || width % 4 == 0)
        zip(r->a, t, width, w);
    ts_text_printf(
        t,
        "    for (; done < (all + 1) / 2; done++)\n"
        "        for (int64_t i = 0; i < count; i++) {\n"
        "            const uint16_t *const x = from + step * i + kstep * 2 * done;\n"
        "            const uint16_t pair[2] = {x[0], 2 * done + 1 < all ? x[kstep] : 0};\n"
        "            memcpy(to + i / %d * strip + %d * done + i %% %d, pair, 4);\n"
        "        }\n",
        width, width, width);
}

/* Steps that complete a tile: zeros times zeros, of all strips. */
static void complete(ts_text *t, int width)
{
    ts_text_printf(t,
                   "    for (; done %% %d; done++)\n"
                   "        for (int64_t i = 0; i < count; i += %d)\n"
                   "            memset(to + i / %d * strip + %d * done, 0, %d);\n",
                   TS_TILE, width, width, width, 4 * width);
}

/* 16 rows of 16 pairs from 32 rows of the sum, in which they lie across it. */
static void turn_pairs(ts_text *t, int width)
{
    ts_text_printf(t, "        for (int64_t i = 0; i + 16 <= count; i += 16)\n"
                      "            for (int64_t k = 0; k < whole; k += 32) {\n"
                      "                const uint16_t *const x = from + kstep * k + i;\n");
    for (int j = 0; j < TS_TILE; j++)
        ts_text_printf(
            t,
            "                f32x16 t%d = (f32x16)((u32x16)load_bf16x16(x + kstep * %d) >> 16 | "
            "(u32x16)load_bf16x16(x + kstep * %d));\n",
            j, 2 * j, 2 * j + 1);
    for (int s = 1; s < TS_TILE; s *= 2)
        for (int j = 0; j < TS_TILE; j++)
            if (!(j & s))
                ts_text_printf(t, "                SWAP_f32x16_%d(t%d, t%d);\n", s, j, j + s);
    ts_text_printf(
        t,
        "                float *const at = to + i / %d * strip + (i %% %d + k / 32 * %d) * 16;\n",
        width, width, width);
    for (int j = 0; j < TS_TILE; j++)
        ts_text_printf(t, "                *(f32x16u *)(at + %d) = t%d;\n", 16 * j, j);
    ts_text_printf(t, "            }\n");
}

/* Tiles of rows, one behind the other along the sum: [k / 32][i][k % 32]. Whole ones by vectors, where the
 * operand lies along the sum or across it; the others by elements, completed by zeros. */
static void pack_tile_rows(ts_text *t, int width)
{
    ts_text_printf(t, "    const int64_t whole = n / 32 * 32, all = (n + 31) / 32 * 32;\n\n"
                      "    if (step == 1) {\n");
    turn_pairs(t, width);
    ts_text_printf(t,
                   "    }\n"
                   "    for (int64_t i = 0; i < count; i++) {\n"
                   "        const uint16_t *const x = from + step * i;\n"
                   "        float *at = to + i / %d * strip + i %% %d * 16;\n"
                   "        int64_t k = step == 1 && i < count / 16 * 16 ? whole : 0;\n"
                   "        at += k / 32 * %d;\n"
                   "        for (; kstep == 1 && k < whole; k += 32, at += %d)\n"
                   "            memcpy(at, x + k, 64);\n"
                   "        for (; k < all; k += 32, at += %d)\n"
                   "            for (int64_t j = 0; j < 32; j++) {\n"
                   "                const uint16_t one = k + j < n ? x[kstep * (k + j)] : 0;\n"
                   "                memcpy((char *)at + 2 * j, &one, 2);\n"
                   "            }\n    }\n",
                   width, width, 16 * width, 16 * width, 16 * width);
}

static void pack(ts_render *r, ts_text *t, const char *name, int width)
{
    ts_text_printf(t, PACK "\n{\n", name, width, panel_type(name), memory_type(name));
    if (!strcmp(name, "tilerows"))
        pack_tile_rows(t, width);
    else if (!strcmp(name, "pairs") || !strcmp(name, "tiles"))
        pack_pairs(r, t, width);
    else
        pack_plain(r, t, name, width);
    if (!strcmp(name, "tiles"))
        complete(t, width);
    ts_text_printf(t, "}\n");
}

/* --- multiplying --- */

#define MULTIPLY                                                                                   \
    "void multiply_%s(int64_t n, const %s *a, const %s *b, %s *c, int64_t step, int again)"

/* A function that is needed: its name, what the panels hold, its tile, the vectors of a row of columns; how far
 * apart rows are, and steps, and vectors of columns: 0 side by side. */
typedef struct need {
    char name[80], panel[16];
    int rows, vectors, of;
    long apart, kstep, columns;
} need;

static bool read_need(const char *text, need *m)
{
    return sscanf(text, "multiply %79s %15s %d %d %d %ld %ld %ld", m->name, m->panel, &m->rows,
                  &m->vectors, &m->of, &m->apart, &m->kstep, &m->columns) == 8;
}

/* A dot product of pairs is one instruction, of which C has no name that all compilers know. */
static void add_product(ts_text *t, const char *name, int width, int i, int j)
{
    if (!strcmp(name, "f64"))
        ts_text_printf(t, "        ADD(c%d_%d, x, b%d);\n", i, j, j);
    else if (!strcmp(name, "pairs"))
        ts_text_printf(t,
                       "        __asm__(\"vdpbf16ps %%2, %%1, %%0\" : \"+v\"(c%d_%d) : "
                       "\"v\"(b%d), \"v\"(x));\n",
                       i, j, j);
    else
        ts_text_printf(t, "        c%d_%d = fma_f32x%d(x, b%d, c%d_%d);\n", i, j, width, j, i, j);
}

/* Two tiles by two: the sums in the first four tile registers, rows and columns in the others. */
static void multiply_tiles(ts_text *t, const need *m)
{
    int down = m->rows / TS_TILE, right = m->vectors;

    ts_text_printf(t, MULTIPLY "\n{\n", m->name, "float", "float", "float");
    for (int how = 0; how < 2; how++) {
        ts_text_printf(t, how ? "    else {\n" : "    if (again) {\n");
        for (int i = 0; i < down * right; i++)
            if (how)
                ts_text_printf(t, "        TILE_ZERO(%d);\n", i);
            else
                ts_text_printf(t, "        TILE_LOAD(%d, c + %d * step + %d, 4 * step);\n", i,
                               i / right * TS_TILE, i % right * TS_TILE);
        ts_text_printf(t, "    }\n");
    }
    ts_text_printf(t, "    for (; n > 0; n -= %d, a += %d, b += %d) {\n", TS_TILE,
                   TS_TILE * m->rows, TS_TILE * TS_TILE * m->of);
    for (int j = 0; j < right; j++)
        ts_text_printf(t, "        TILE_LOAD(%d, b + %d, %d);\n", 6 + j, j * TS_TILE,
                       4 * TS_TILE * m->of);
    for (int i = 0; i < down; i++) {
        ts_text_printf(t, "        TILE_LOAD(%d, a + %d, %d);\n", 4 + i, i * TS_TILE * TS_TILE,
                       4 * TS_TILE);
        for (int j = 0; j < right; j++)
            ts_text_printf(t, "        TILE_DOT(%d, %d, %d);\n", i * right + j, 4 + i, 6 + j);
    }
    ts_text_printf(t, "    }\n");
    for (int i = 0; i < down * right; i++)
        ts_text_printf(t, "    TILE_STORE(%d, c + %d * step + %d, 4 * step);\n", i,
                       i / right * TS_TILE, i % right * TS_TILE);
    ts_text_printf(t, "}\n");
}

/* The sums so far come while the tile is multiplied: they may be far away. */
static void fetch_sums(ts_render *r, ts_text *t, int rows, int bytes)
{
    ts_text_printf(t, "\n    for (int i = 0; i < %d; i++) {\n", rows);
    for (int j = 0; j < bytes; j += r->m.line)
        ts_text_printf(t, "        __builtin_prefetch((char *)(c + i * step) + %d, 1);\n", j);
    ts_text_printf(t, "    }\n");
}

static void multiply(ts_render *r, ts_text *t, const need *m)
{
    bool f64 = !strcmp(m->panel, "f64");
    int w = f64 ? r->m.isa.width / 2 : r->m.isa.width, rows = m->rows, vectors = m->vectors;
    const char *type = panel_type(m->panel), *kind = f64 ? "f64" : "f32";

    ts_text_printf(t, MULTIPLY "\n{\n", m->name, type, type, type);
    if (f64) /* rounded once where the processor can, as the emitter's sums are */
        ts_text_printf(
            t,
            "#undef ADD\n"
            "#if defined(__FMA__)\n"
            "#define ADD(c, x, b) \\\n"
            "    __asm__(\"vfmadd231pd %%2, %%1, %%0\" : \"+v\"(c) : \"v\"(b), \"v\"(x))\n"
            "#else\n"
            "#define ADD(c, x, b) c += x * b\n"
            "#endif\n"
            "    typedef double f64x%d __attribute__((vector_size(%d)));\n"
            "    typedef f64x%d f64x%du __attribute__((aligned(8), may_alias));\n",
            w, 8 * w, w, w);
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < vectors; j++)
            ts_text_printf(t, "    %sx%d c%d_%d = {0};\n", kind, w, i, j);
    fetch_sums(r, t, rows, (int)(f64 ? sizeof(double) : sizeof(float)) * vectors * w);
    ts_text_printf(t, "    for (; n > 0; n--, a += %ld, b += %d) {\n        %sx%d x;\n", m->kstep,
                   m->columns ? w : m->of * w, kind, w);
    for (int j = 0; j < vectors; j++)
        ts_text_printf(t, "        const %sx%d b%d = *(const %sx%du *)(b + %ld);\n", kind, w, j,
                       kind, w, j * (m->columns ? m->columns : w));
    for (int i = 0; i < rows; i++) {
        if (f64)
            ts_text_printf(t, "        x = a[%ld] - (f64x%d){0};\n", i * m->apart, w);
        else
            ts_text_printf(t, "        x = SPLAT(f32x%d, a[%ld]);\n", w, i * m->apart);
        for (int j = 0; j < vectors; j++)
            add_product(t, m->panel, w, i, j);
    }
    /* else the compiler keeps the addresses of all rows, and there is no room for them */
    ts_text_printf(t, "    }\n    __asm__(\"\" : \"+r\"(step));\n    if (again) {\n");
    ts_text_printf(t, "        const %s *s = c;\n", type);
    for (int i = 0; i < rows; i++, ts_text_printf(t, "        s += step;\n"))
        for (int j = 0; j < vectors; j++)
            ts_text_printf(t, "        c%d_%d += *(const %sx%du *)(s + %d);\n", i, j, kind, w,
                           j * w);
    ts_text_printf(t, "    }\n");
    for (int i = 0; i < rows; i++, ts_text_printf(t, "    c += step;\n"))
        for (int j = 0; j < vectors; j++)
            ts_text_printf(t, "    *(%sx%du *)(c + %d) = c%d_%d;\n", kind, w, j * w, i, j);
    ts_text_printf(t, "}\n");
}

/* --- all of them --- */

/* Their declarations, in the head of every unit. */
void ts_panel_declare(ts_render *r, ts_text *out)
{
    char name[16];
    int width;
    need m;
    bool any = ts_winograd_declare(r, out);

    for (int i = 0; i < r->nneeds; i++) {
        if (sscanf(r->needs[i], "pack %15s %d", name, &width) == 2)
            ts_text_printf(out, "%s" PACK ";\n", any ? "" : "\n", name, width, panel_type(name),
                           memory_type(name));
        else if (read_need(r->needs[i], &m))
            ts_text_printf(out, "%s" MULTIPLY ";\n", any ? "" : "\n", m.name, panel_type(m.panel),
                           panel_type(m.panel), panel_type(m.panel));
        else
            continue;
        any = true;
    }
    if (any)
        ts_text_printf(out, "extern _Thread_local char panels[];\n");
}

void ts_panel_functions(ts_render *r)
{
    char name[16];
    int width;
    need m;

    for (int i = 0; i < r->nneeds; i++) {
        if (sscanf(r->needs[i], "pack %15s %d", name, &width) == 2) {
            ts_text_printf(&r->body, "\n" TS_UNIT_NAMED, "",
                           ts_arena_printf(r->a, "pack_%s_%d", name, width));
            pack(r, &r->body, name, width);
        } else if (read_need(r->needs[i], &m)) {
            ts_text_printf(&r->body, "\n" TS_UNIT_NAMED, "",
                           ts_arena_printf(r->a, "multiply_%s", m.name));
            if (!strcmp(m.panel, "tiles"))
                multiply_tiles(&r->body, &m);
            else
                multiply(r, &r->body, &m);
        }
    }
    ts_winograd_functions(r);
    if (r->panel_bytes)
        ts_text_printf(
            &r->body, "\n" TS_UNIT "_Thread_local __attribute__((aligned(64))) char panels[%zu];\n",
            r->panel_bytes);
}
