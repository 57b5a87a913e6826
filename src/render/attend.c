/* attend.c - several kernels as one that goes from rows to rows of their matrices (plan/attend.c).
 *
 *   for each batch                                cut among the threads
 *     pack what is the same for all rows          k and v: they stay in level 2
 *     for each band of rows
 *       q k'                                      panel.c, from packed panels to the thread's memory
 *       for each row: amax; exp; sum; div         one kernel after the other, a row stays in level 1
 *       p v                                       p packed from the thread's memory
 *       p' do, ds' q                              of the way back: added to sums that the thread keeps
 *     store the sums
 *
 * Matrices that only these kernels read are never in the device's memory; a band of each is in the thread's,
 * as large as fits its second cache. A pointer to such a band is moved back by what lies before it, so that
 * the emitter's addresses, which are those of the whole matrix, find it.
 *
 * A product has axes m, n and k, the sum. The group's rows are one of them: m of a product that makes a matrix or
 * multiplies one by its rows, k of one that sums over them, n of one with the matrix turned behind.
 *
 * Bands are cut by shape, and each element is summed by one piece in the order of bands: the bits do not
 * depend on who does it.
 */
#include "render/product.h"

enum { M, N, K };

typedef struct own {
    const ts_value *v;
    const char *name;
    int64_t row; /* elements of a row: 1 where it is one number */
    int64_t at;  /* floats of the thread's memory before it */
} own;

typedef struct band {
    ts_render *r;
    ts_emit *e;
    const ts_bands *b;
    own *owns;
    int64_t height, share, splits; /* rows of a band, and of a piece; pieces of a batch */
    int64_t floats;                /* of the thread's memory so far */
    const ts_ix *batch, *row;
    double cycles;
} band;

typedef struct product {
    band *x;
    const ts_kernel *k;
    const ts_node *n;
    ts_spec s;
    ts_panel panel;
    int rows;          /* the axis that the group's rows are */
    int64_t extent[3]; /* of all */
    const own *own[2]; /* the operand that is a band's, or NULL */
    bool turned[2];
    const ts_value *from[2]; /* the memory of one that is not, if it lies linearly */
    int64_t tile;
    int vectors;
    int64_t panels[2], strip[2], sums; /* in the thread's memory */
} product;

/* --- what the emitter asks --- */

static const own *find_own(const band *x, const ts_value *v)
{
    for (int i = 0; i < x->b->nown; i++)
        if (x->owns[i].v == v)
            return &x->owns[i];
    return NULL;
}

static bool stored(const void *where, const ts_value *v)
{
    const band *x = where;

    return x->r->p->place[v->id].home != TS_HOME_NONE || find_own(x, v);
}

static const char *pointer(const void *where, const ts_value *v)
{
    const band *x = where;
    const own *o = find_own(x, v);

    return o ? o->name : ts_render_pointer(x->r, v);
}

static void need(const void *where, const char *what)
{
    ts_render_need(((const band *)where)->r, what);
}

/* --- sizes --- */

static int64_t take(band *x, int64_t floats)
{
    int64_t at = x->floats;

    x->floats += TS_ROUND_UP(floats, 16) + 16;
    return at;
}

/* Bytes of a band's row in the thread's memory, and packed. */
static int64_t row_bytes(const band *x)
{
    int64_t bytes = 0;

    for (int i = 0; i < x->b->nown; i++) {
        const ts_value *v = x->b->own[i];
        int64_t row = ts_type_count(&v->type) / (x->b->batch * x->b->rows);
        bytes += row * ((int64_t)ts_dtype_size(v->type.dtype) + (row > 1 ? 4 : 0));
    }
    return bytes;
}

/* Do all bands of a batch need to be one thread's? */
static bool sums_rows(const product *p, int n)
{
    for (int i = 0; i < n; i++)
        if (p[i].rows == K)
            return true;
    return false;
}

/* Bands that stay in half of level 2, as even as vectors allow; and pieces enough for the cores. */
static void choose_bands(band *x, bool together)
{
    const ts_machine_model *m = &x->r->m;
    int64_t w = m->isa.width, rows = x->b->rows, want, count;

    x->height = TS_MAX(w, m->level2 / 2 / row_bytes(x));
    want = together ? 1 : (2 * m->cores + x->b->batch - 1) / x->b->batch;
    count = TS_MAX((rows + x->height - 1) / x->height, TS_MIN(want, (rows + w - 1) / w));
    x->height = TS_ROUND_UP((rows + count - 1) / count, w);
    count = (rows + x->height - 1) / x->height;
    x->splits = TS_MIN(want, count);
    x->share = (count + x->splits - 1) / x->splits * x->height;
    x->splits = (rows + x->share - 1) / x->share;
}

static void place_own(band *x)
{
    x->owns = TS_NEWS(x->r->a, own, x->b->nown);
    for (int i = 0; i < x->b->nown; i++) {
        const ts_value *v = x->b->own[i];
        int64_t row = ts_type_count(&v->type) / (x->b->batch * x->b->rows);
        int64_t bytes = x->height * row * (int64_t)ts_dtype_size(v->type.dtype);
        x->owns[i] = (own){v, ts_arena_printf(x->r->a, "o%d", i), row, take(x, (bytes + 3) / 4)};
    }
}

/* --- products --- */

/* Panels here are of f32. */
static const ts_value *source(const ts_render *r, const ts_value *v)
{
    v = ts_product_source(r, v);
    return v && v->type.dtype != TS_F64 ? v : NULL;
}

/* Coordinates of operand o: of the batch at hand, at `along` of its own axis and k of the sum. */
static void operand_at(const product *p, int o, const ts_ix *along, const ts_ix *k,
                       const ts_ix **at)
{
    const ts_type *t = &p->n->out[0]->type;
    ts_arena *a = p->x->r->a;
    const ts_ix *axes[TS_AXES], *rest = p->x->batch, *zero = ts_ix_const(a, 0);
    int rank = t->rank;

    for (int d = rank - 3; d >= 0; d--) {
        axes[d] = d ? ts_ix_mod(a, rest, t->dim[d]) : rest;
        rest = ts_ix_div(a, rest, t->dim[d]);
    }
    axes[rank - 2] = o ? zero : along;
    axes[rank - 1] = o ? along : zero;
    axes[rank] = k;
    for (int d = 0; d < p->n->in[o]->type.rank; d++)
        at[d] = ts_spec_ix(a, o ? &p->s.b[d] : &p->s.a[d], p->s.naxes, axes);
}

/* Where operand o lies, with an element of its axis called `x` and of the sum `k`; NULL: not so that a step along
 * either is the same everywhere. */
static const ts_ix *operand_address(const product *p, int o, int64_t *step, int64_t *kstep)
{
    ts_arena *a = p->x->r->a;
    const ts_atom *along = ts_atom_var(a, "x", 0, p->extent[o] - 1),
                  *k = ts_atom_var(a, "k", 0, p->extent[K] - 1);
    const ts_ix *at[TS_MAX_RANK], *address;

    operand_at(p, o, ts_ix_var(a, along), ts_ix_var(a, k), at);
    address = ts_render_address(p->x->r, p->n->in[o], at);
    if (!address || !ts_ix_linear(address, along) || !ts_ix_linear(address, k))
        return NULL;
    *step = ts_ix_coef(address, along);
    *kstep = ts_ix_coef(address, k);
    return address;
}

static void find_operand(product *p, int o)
{
    const band *x = p->x;
    const ts_value *v = ts_bands_matrix(x->r->p, x->b, p->n->in[o], &p->turned[o]);
    int64_t step, kstep;

    p->own[o] = v ? find_own(x, v) : NULL;
    if (p->own[o])
        return;
    p->turned[o] = false;
    p->from[o] = source(x->r, p->n->in[o]);
    if (p->from[o] && !operand_address(p, o, &step, &kstep))
        p->from[o] = NULL;
}

static ts_dtype operand_type(const product *p, int o)
{
    return p->own[o] ? p->own[o]->v->type.dtype : p->from[o] ? p->from[o]->type.dtype : TS_F32;
}

/* The matrix of the group that operand o is, in whoever's memory; the rows' axis follows from it. */
static void find_rows(product *p)
{
    const ts_bands *b = p->x->b;
    const ts_value *v;
    bool turned;

    p->rows = M;
    for (int o = 0; o < 2; o++) {
        v = ts_bands_matrix(p->x->r->p, b, p->n->in[o], &turned);
        for (int i = 0; v && i < b->nmatrices; i++)
            if (b->matrices[i] == v)
                p->rows = o ? (turned ? N : K) : turned ? K : M;
    }
}

static void find_product(product *p, band *x, const ts_kernel *k)
{
    const ts_node *n = k->anchor;
    const ts_type *t = &n->out[0]->type, *in = &n->in[0]->type;

    *p = (product){.x = x, .k = k, .n = n};
    ts_spec_matmul(x->r->a, n, &p->s);
    p->extent[M] = t->dim[t->rank - 2];
    p->extent[N] = t->dim[t->rank - 1];
    p->extent[K] = in->dim[in->rank - 1];
    find_rows(p);
}

/* Of an axis that is the rows', those of a band. */
static int64_t band_extent(const product *p, int axis)
{
    return axis == p->rows ? p->x->height : p->extent[axis];
}

static int64_t steps(const product *p)
{
    int64_t k = band_extent(p, K);

    return p->panel == TS_PANEL_PAIRS ? (k + 1) / 2 : k;
}

/* Cycles of a step of the innermost loop: as in product.c. */
static double step_cost(const ts_machine_model *m, int64_t rows, int64_t vectors)
{
    double each = 1 / ts_machine_rate(m, m->isa.width),
           loads = (double)vectors * each + (double)rows / m->units;

    return TS_MAX(TS_MAX((double)(rows * vectors) * each, 0.95 * loads), m->latency) + 0.1 * loads;
}

static double multiply_cost(const product *p, int64_t rows, int64_t vectors)
{
    const ts_machine_model *m = &p->x->r->m;
    int64_t all = (band_extent(p, N) + m->isa.width - 1) / m->isa.width, left = all % vectors;
    double k = (double)steps(p), strips = (double)((band_extent(p, M) + rows - 1) / rows);
    double one = k * step_cost(m, rows, vectors) + (double)(rows * vectors) * 6 / m->units + 24;
    double last = k * step_cost(m, rows, left) + (double)(rows * left) * 6 / m->units + 32;

    return strips * ((double)(all / vectors) * one + (left ? last : 0));
}

static void choose_tile(product *p)
{
    const ts_machine_model *m = &p->x->r->m;
    double best = -1;

    for (int v = 1; v <= 4; v++)
        for (int64_t r = 1; r <= m->isa.width && r * v <= ts_machine_accumulators(m); r++) {
            double cost = multiply_cost(p, r, v);
            if (best >= 0 && cost >= best)
                continue;
            best = cost;
            p->tile = r;
            p->vectors = v;
        }
    p->x->cycles +=
        best * (double)(p->x->b->batch * ((p->x->b->rows + p->x->height - 1) / p->x->height));
}

static int64_t lanes(const product *p)
{
    return p->vectors * (int64_t)p->x->r->m.isa.width;
}

static int64_t sums_stride(const product *p)
{
    return p->rows == K ? TS_ROUND_UP(p->extent[N], lanes(p)) : lanes(p);
}

static void place_product(product *p)
{
    int64_t w = p->x->r->m.isa.width, rows, columns;

    for (int o = 0; o < 2; o++)
        find_operand(p, o);
    p->panel =
        p->x->r->m.isa.pairs && operand_type(p, 0) == TS_BF16 && operand_type(p, 1) == TS_BF16
            ? TS_PANEL_PAIRS
            : TS_PANEL_F32;
    choose_tile(p);
    rows = (band_extent(p, M) + p->tile - 1) / p->tile;
    columns = (band_extent(p, N) + lanes(p) - 1) / lanes(p);
    p->strip[0] = TS_ROUND_UP(steps(p) * p->tile + w, 16);
    p->strip[1] = steps(p) * lanes(p);
    p->panels[0] = take(p->x, rows * p->strip[0]);
    p->panels[1] = take(p->x, columns * p->strip[1]);
    p->sums = take(p->x, p->rows == K ? rows * p->tile * sums_stride(p) : p->tile * lanes(p));
}

/* --- writing products --- */

static const char *axis_from(const product *p, int axis)
{
    return axis == p->rows ? "top" : "0";
}

static const char *axis_end(const product *p, int axis)
{
    return axis == p->rows ? "down" : ts_arena_printf(p->x->r->a, "%ld", (long)p->extent[axis]);
}

static const char *axis_count(const product *p, int axis)
{
    return axis == p->rows ? "down - top"
                           : ts_arena_printf(p->x->r->a, "%ld", (long)p->extent[axis]);
}

/* Is operand o the same for all bands? */
static bool is_fixed(const product *p, int o)
{
    return p->rows != o && p->rows != K;
}

static void pack_call(const product *p, int o, const char *from, ts_dtype t, int64_t step,
                      int64_t kstep)
{
    int64_t width = o ? lanes(p) : p->tile;

    ts_emit_line(p->x->e, "%s(mem + %ld, %ld, %s, %s, %ld, %ld, %s);",
                 ts_panel_pack(p->x->r, p->panel, t, width), (long)p->panels[o], (long)p->strip[o],
                 from, axis_count(p, o), (long)step, (long)kstep, axis_count(p, K));
}

static void pack_own(const product *p, int o)
{
    const own *w = p->own[o];
    bool across = p->turned[o] != (o == 1); /* the axis runs along the matrix's rows */

    pack_call(p, o,
              ts_arena_printf(p->x->r->a, "(%s *)(mem + %ld)",
                              ts_emit_memory_type(w->v->type.dtype), (long)w->at),
              w->v->type.dtype, across ? 1 : w->row, across ? w->row : 1);
}

/* An operand that lies anyhow, element by element. */
static void pack_singly(const product *p, int o)
{
    ts_emit *e = p->x->e;
    ts_arena *a = p->x->r->a;
    long width = (long)(o ? lanes(p) : p->tile);
    const ts_ix *at[TS_MAX_RANK];
    int mark, inner;

    ts_emit_line(e, "for (int64_t k = %s; k < %s; k++) {", axis_from(p, K), axis_end(p, K));
    ts_emit_open(e, &mark);
    ts_emit_line(e, "for (int64_t x = %s; x < %s; x++) {", axis_from(p, o), axis_end(p, o));
    ts_emit_open(e, &inner);
    operand_at(p, o, ts_ix_var(a, ts_atom_var(a, "x", 0, p->extent[o] - 1)),
               ts_ix_var(a, ts_atom_var(a, "k", 0, p->extent[K] - 1)), at);
    ts_emit_line(e, "const int64_t y = x - %s;", axis_from(p, o));
    ts_emit_line(e, "mem[%ld + y / %ld * %ld + %ld * (k - %s) + y %% %ld] = %s;",
                 (long)p->panels[o], width, (long)p->strip[o], width, axis_from(p, K), width,
                 ts_emit_at(e, p->n->in[o], at));
    ts_emit_close(e, inner);
    ts_emit_close(e, mark);
}

static void pack(const product *p, int o)
{
    ts_emit *e = p->x->e;
    int64_t step, kstep;
    const ts_ix *address;
    int mark;

    if (p->own[o]) {
        pack_own(p, o);
        return;
    }
    if (!p->from[o]) {
        pack_singly(p, o);
        return;
    }
    address = operand_address(p, o, &step, &kstep);
    ts_emit_line(e, "{");
    ts_emit_open(e, &mark);
    ts_emit_line(e, "const int64_t x = %s, k = %s;", axis_from(p, o), axis_from(p, K));
    ts_emit_line(e, "(void)x, (void)k;");
    pack_call(p, o,
              ts_arena_printf(e->a, "%s + %s", ts_render_pointer(p->x->r, p->from[o]),
                              ts_ix_text(e->a, address)),
              p->from[o]->type.dtype, step, kstep);
    ts_emit_close(e, mark);
}

/* Coordinates of the result at row m and column n. */
static void result_at(const product *p, const ts_ix *m, const ts_ix *n, const ts_ix **at)
{
    const ts_type *t = &p->n->out[0]->type;
    ts_arena *a = p->x->r->a;
    const ts_ix *rest = p->x->batch;

    for (int d = t->rank - 3; d >= 0; d--) {
        at[d] = d ? ts_ix_mod(a, rest, t->dim[d]) : rest;
        rest = ts_ix_div(a, rest, t->dim[d]);
    }
    at[t->rank - 2] = m;
    at[t->rank - 1] = n;
}

/* What the kernel stores, at the element or vector whose sum is named. */
static void store(const product *p, const char *sum, const ts_ix *const *at)
{
    ts_emit *e = p->x->e;
    ts_dtype t = p->n->out[0]->type.dtype;
    const char *names[TS_MAX_ROOTS];

    sum = ts_emit_temp(e, TS_F32, "%s", sum);
    if (ts_dtype_is_half(t)) {
        ts_render_need(p->x->r, "half");
        sum = ts_emit_temp(e, t, "round_%s_%s(%s)", ts_dtype_name(t), ts_emit_suffix(e, t), sum);
    }
    ts_emit_bind(e, p->n->out[0], at, sum);
    for (int r = 0; r < p->k->nroots; r++) {
        names[r] = ts_emit_recall(e, p->k->roots[r], at);
        if (names[r])
            continue;
        names[r] = ts_emit_node(e, p->k->roots[r], at);
        ts_emit_bind(e, p->k->roots[r], at, names[r]);
    }
    for (int r = 0; r < p->k->nroots; r++)
        ts_emit_store(e, p->k->roots[r], at, names[r]);
}

/* Columns z of the tile from `from` on, while there are `wide` of them. */
static void store_lanes(const product *p, const ts_ix *m, int wide, const char *from)
{
    ts_emit *e = p->x->e;
    ts_arena *a = e->a;
    const char *name = ts_emit_name(e, "n"), *sum;
    const ts_ix *n, *at[TS_MAX_RANK];
    int mark;

    ts_emit_line(e, "for (int64_t z = %s; z <= columns - %d; z += %d) {", from, wide, wide);
    ts_emit_open(e, &mark);
    ts_emit_line(e, "const int64_t %s = (n + z) / %d;", name, wide);
    n = ts_ix_mul(a, ts_ix_var(a, ts_atom_var(a, name, 0, p->extent[N] / wide - 1)), wide);
    if (wide > 1)
        n = ts_ix_add(a, n, ts_ix_var(a, e->lane));
    e->lanes = wide > 1 ? wide : 0;
    sum = ts_arena_printf(a, "(at + y * %ld + z)", (long)sums_stride(p));
    result_at(p, m, n, at);
    store(p,
          wide > 1 ? ts_arena_printf(a, "*(const f32x%du *)%s", wide, sum)
                   : ts_arena_printf(a, "*%s", sum),
          at);
    e->lanes = 0;
    ts_emit_close(e, mark);
}

/* What is left of the columns behind whole vectors goes in narrower ones if they fill them, else one by
 * one. */
static void epilogue(const product *p)
{
    ts_emit *e = p->x->e;
    ts_arena *a = e->a;
    int w = p->x->r->m.isa.width, narrow = w / 2, mark;
    int64_t n = p->extent[N];
    const char *name = ts_emit_name(e, "m");
    const ts_ix *m = ts_ix_var(a, ts_atom_var(a, name, 0, p->extent[M] - 1));

    ts_emit_line(e, "for (int64_t y = 0; y < rows; y++) {");
    ts_emit_open(e, &mark);
    ts_emit_line(e, "const int64_t %s = m + y;", name);
    e->lane = ts_atom_var(a, "l", 0, w - 1);
    if (n >= w)
        store_lanes(p, m, w, "0");
    if (n % w) {
        while (narrow > 1 && n % narrow)
            narrow /= 2;
        narrow = narrow < 4 ? 1 : narrow;
        e->lane = ts_atom_var(a, "l", 0, narrow - 1);
        store_lanes(p, m, narrow, ts_arena_printf(a, "columns / %d * %d", w, w));
    }
    ts_emit_close(e, mark);
}

static const char *function(const product *p)
{
    int64_t w = p->x->r->m.isa.width;
    int64_t left = p->rows == N ? 0 : (p->extent[N] % lanes(p) + w - 1) / w;
    const char *f = ts_panel_multiply(p->x->r, p->panel, p->tile, p->vectors, p->vectors), *last;

    if (!left)
        return f;
    last = ts_panel_multiply(p->x->r, p->panel, p->tile, (int)left, p->vectors);
    if (p->extent[N] < lanes(p))
        return last;
    return ts_arena_printf(p->x->r->a, "(columns > %ld ? %s : %s)", (long)(left * w), f, last);
}

/* Tile after tile: `body` of each. */
static void tiles(const product *p, void (*body)(const product *))
{
    ts_emit *e = p->x->e;
    int mark, inner;

    for (int axis = M; axis <= N; axis++) {
        const char *v = axis == M ? "m" : "n", *end = axis_end(p, axis);
        long by = (long)(axis == M ? p->tile : lanes(p));
        ts_emit_line(e, "for (int64_t %s = %s; %s < %s; %s += %ld) {", v, axis_from(p, axis), v,
                     end, v, by);
        ts_emit_open(e, axis == M ? &mark : &inner);
        ts_emit_line(e, "const int64_t %s = min(%ld, %s - %s);", axis == M ? "rows" : "columns", by,
                     end, v);
    }
    if (p->rows == K)
        ts_emit_line(e, "float *const at = mem + %ld + m * %ld + n;", (long)p->sums,
                     (long)sums_stride(p));
    else
        ts_emit_line(e, "float *const at = mem + %ld;", (long)p->sums);
    body(p);
    ts_emit_close(e, inner);
    ts_emit_close(e, mark);
}

static void multiply(const product *p)
{
    ts_emit *e = p->x->e;
    const char *count = axis_count(p, K);

    ts_emit_line(e,
                 "%s(%s, mem + %ld + (m - %s) / %ld * %ld, mem + %ld + (n - %s) / %ld * %ld, at, "
                 "%ld, %s);",
                 function(p),
                 p->panel == TS_PANEL_PAIRS ? ts_arena_printf(e->a, "(%s + 1) / 2", count) : count,
                 (long)p->panels[0], axis_from(p, M), (long)p->tile, (long)p->strip[0],
                 (long)p->panels[1], axis_from(p, N), (long)lanes(p), (long)p->strip[1],
                 (long)sums_stride(p), p->rows == K ? "top > first" : "0");
    if (p->rows == K)
        ts_emit_line(e, "(void)rows;");
    else
        epilogue(p);
}

static void ends(const product *p)
{
    epilogue(p);
}

static void write_product(const product *p)
{
    ts_emit *e = p->x->e;
    int mark;

    ts_emit_line(e, "{ /* tile %ld x %d vectors */", (long)p->tile, p->vectors);
    ts_emit_open(e, &mark);
    for (int o = 0; o < 2; o++)
        if (!is_fixed(p, o))
            pack(p, o);
    tiles(p, multiply);
    ts_emit_close(e, mark);
}

/* --- writing rows --- */

/* Coordinates of the element of this number in row-major order. */
static void unflatten(ts_arena *a, const ts_type *t, const ts_ix *flat, const ts_ix **at)
{
    for (int d = t->rank - 1; d >= 0; d--) {
        at[d] = d ? ts_ix_mod(a, flat, t->dim[d]) : flat;
        flat = ts_ix_div(a, flat, t->dim[d]);
    }
}

/* The row at hand, counted through all batches. */
static const ts_ix *row_number(const band *x)
{
    return ts_ix_add(x->r->a, ts_ix_mul(x->r->a, x->batch, x->b->rows), x->row);
}

static void at_column(const band *x, const ts_kernel *k, const ts_ix *column)
{
    const ts_ix *at[TS_MAX_RANK];
    ts_arena *a = x->r->a;

    unflatten(a, &k->roots[0]->type,
              ts_ix_add(a, ts_ix_mul(a, row_number(x), x->b->columns), column), at);
    ts_render_body(x->e, k, at);
}

/* The columns of a row in vectors; the last one may do some of the one before again. */
static void write_columns(const band *x, const ts_kernel *k)
{
    ts_emit *e = x->e;
    ts_arena *a = x->r->a;
    int64_t n = x->b->columns, w = x->r->m.isa.width, rest;
    int mark;

    w = n >= w ? w : n >= 8 ? 8 : n >= 4 ? 4 : 1;
    ts_emit_line(e, "for (int64_t b = 0; b < %ld; b++) {", (long)(n / w));
    ts_emit_open(e, &mark);
    e->lane = ts_atom_var(a, "l", 0, w - 1);
    e->lanes = w > 1 ? (int)w : 0;
    const ts_ix *b = ts_ix_mul(a, ts_ix_var(a, ts_atom_var(a, "b", 0, n / w - 1)), w);
    at_column(x, k, w > 1 ? ts_ix_add(a, b, ts_ix_var(a, e->lane)) : b);
    e->lanes = 0;
    ts_emit_close(e, mark);
    rest = n % w;
    if (!rest)
        return;
    while (w > 4 && w / 2 >= rest)
        w /= 2;
    ts_emit_line(e, "{");
    ts_emit_open(e, &mark);
    e->lane = ts_atom_var(a, "l", 0, w - 1);
    e->lanes = (int)w;
    at_column(x, k, ts_ix_addc(a, ts_ix_var(a, e->lane), n - w));
    e->lanes = 0;
    ts_emit_close(e, mark);
}

static void write_row(const band *x, const ts_kernel *k)
{
    const ts_ix *at[TS_MAX_RANK];
    int64_t all = x->b->batch * x->b->rows;
    int mark;

    ts_emit_line(x->e, "{");
    ts_emit_open(x->e, &mark);
    if (ts_type_count(&k->roots[0]->type) == all) {
        unflatten(x->r->a, &k->roots[0]->type, row_number(x), at);
        ts_render_body(x->e, k, at);
    } else
        write_columns(x, k);
    ts_emit_close(x->e, mark);
}

static bool is_product(const ts_kernel *k)
{
    return k->anchor && k->anchor->op == TS_OP(matmul);
}

/* Kernels from part i on that go row by row; returns the next that does not. */
static int write_rows(const band *x, int i)
{
    int mark;

    ts_emit_line(x->e, "for (int64_t i = top; i < down; i++) {");
    ts_emit_open(x->e, &mark);
    for (; i < x->b->nparts && !is_product(x->b->parts[i]); i++)
        write_row(x, x->b->parts[i]);
    ts_emit_close(x->e, mark);
    return i;
}

/* --- all --- */

static void write_band(const band *x, const product *p)
{
    ts_emit *e = x->e;

    ts_emit_line(e, "const int64_t down = min(top + %ld, last);", (long)x->height);
    ts_emit_line(e, "const int64_t before = batch * %ld + top;", (long)x->b->rows);
    ts_emit_line(e, "(void)before;");
    for (int i = 0; i < x->b->nown; i++) {
        const own *o = &x->owns[i];
        const char *t = ts_emit_memory_type(o->v->type.dtype);
        ts_emit_line(e, "%s *const %s = (%s *)((int64_t)(mem + %ld) - before * %ld);", t, o->name,
                     t, (long)o->at, (long)(o->row * (int64_t)ts_dtype_size(o->v->type.dtype)));
    }
    for (int i = 0; i < x->b->nparts;) {
        if (is_product(x->b->parts[i])) {
            write_product(p++);
            i++;
        } else
            i = write_rows(x, i);
    }
}

static void write_batch(const band *x, const product *p, int n)
{
    ts_emit *e = x->e;
    int mark;

    ts_emit_line(e, "const int64_t batch = piece / %ld;", (long)x->splits);
    ts_emit_line(e, "const int64_t first = piece %% %ld * %ld;", (long)x->splits, (long)x->share);
    ts_emit_line(e, "const int64_t last = min(first + %ld, %ld);", (long)x->share,
                 (long)x->b->rows);
    for (int i = 0; i < n; i++)
        for (int o = 0; o < 2; o++)
            if (is_fixed(&p[i], o))
                pack(&p[i], o);
    ts_emit_line(e, "for (int64_t top = first; top < last; top += %ld) {", (long)x->height);
    ts_emit_open(e, &mark);
    write_band(x, p);
    ts_emit_close(e, mark);
    for (int i = 0; i < n; i++)
        if (p[i].rows == K)
            tiles(&p[i], ends);
}

static int find_products(band *x, product *p)
{
    int n = 0;

    for (int i = 0; i < x->b->nparts; i++) {
        if (is_product(x->b->parts[i]))
            find_product(&p[n++], x, x->b->parts[i]);
        else
            x->cycles += ts_price_sums(&x->r->m, x->b->parts[i]->sums);
    }
    return n;
}

static void write(band *x, ts_cut *cut)
{
    product *p = TS_NEWS(x->r->a, product, x->b->nparts);
    int n = find_products(x, p), mark;

    choose_bands(x, sums_rows(p, n));
    place_own(x);
    for (int i = 0; i < n; i++)
        place_product(&p[i]);
    x->r->panel_bytes = TS_MAX(x->r->panel_bytes, 4 * (size_t)x->floats);
    ts_emit_line(x->e, "/* bands of %ld rows */", (long)x->height);
    ts_emit_line(x->e, "float *const mem = (float *)panels;");
    ts_emit_line(x->e, "for (int64_t piece = lo; piece < hi; piece++) {");
    ts_emit_open(x->e, &mark);
    write_batch(x, p, n);
    ts_emit_close(x->e, mark);
    cut->count = x->b->batch * x->splits;
    cut->cycles = x->cycles;
    cut->grain = ts_machine_grain(&x->r->m, cut->count, cut->cycles);
}

bool ts_render_attend(ts_render *r, const ts_kernel *k, ts_cut *cut)
{
    ts_emit e;
    band x = {.r = r, .e = &e, .b = k->bands};

    if (!k->bands)
        return false;
    ts_render_emitter(r, &e);
    e.where = &x;
    e.stored = stored;
    e.pointer = pointer;
    e.need = need;
    x.batch = ts_ix_var(r->a, ts_atom_var(r->a, "batch", 0, x.b->batch - 1));
    x.row = ts_ix_var(r->a, ts_atom_var(r->a, "i", 0, x.b->rows - 1));
    write(&x, cut);
    return true;
}
