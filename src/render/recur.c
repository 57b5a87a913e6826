/* recur.c - a recurrent layer's loop over its steps, forward and back.
 *
 *   for each block of samples                     cut among the threads, in tiles of rows
 *     for each step
 *       pack the states                           panel.c: [element][sample], a tile of samples side by side
 *       for each strip of w                       packed once for all (pass/strips.c): stays in level 1
 *         for each tile: multiply                 p = h W', sums in registers
 *       for each sample: the cell                 gates, state; stored for the gradient
 *
 * A sample needs nothing of another, so a thread takes its own through all steps and meets nobody. What goes from
 * step to step is in the thread's panels. The way back is the same with the cell first: it makes the gates'
 * gradients of the step, which times w are the gradient of the state before.
 *
 * A width that vectors do not fill ends with a vector that does some elements again; so states are read from one
 * memory and written to another. Every element is summed in the order of the state, whoever does it.
 */
#include "op/recur.h"
#include "render/product.h"

enum {
    VECTORS = 2, /* of a tile's row                                             */
    LEAST = 4,   /* samples that a tile takes in the time of one: the latency's */
};

typedef struct recur {
    ts_render *r;
    ts_emit *e;
    const ts_node *n;
    ts_recur q;
    bool back;
    int64_t gates;       /* elements of all gates */
    int64_t sum, across; /* elements that are summed, and results of a row */
    int64_t tile, tiles, block, strip, row;
    int lanes; /* of the cell's vectors, 1: none */
} recur;

/* --- sizes --- */

/* Tiles as even as possible, and enough of them for the cores. */
static void choose_tile(recur *x)
{
    const ts_machine_model *m = &x->r->m;
    int64_t most = TS_MAX(1, ts_machine_accumulators(m) / VECTORS), n = x->q.samples;
    int64_t cores = TS_MIN(m->cores, (n + LEAST - 1) / LEAST);

    x->tiles = TS_ROUND_UP((n + most - 1) / most, cores);
    x->tile = (n + x->tiles - 1) / x->tiles;
    x->tiles = (n + x->tile - 1) / x->tile;
}

/* Floats of a sample in the panels, but the strip of packed states. */
static int64_t sample_floats(const recur *x)
{
    return x->back ? 2 * x->row + 2 * x->q.width : 4 * x->q.width + x->row;
}

/* As many samples together as leave level 2 to w. */
static void choose_block(recur *x)
{
    int64_t room = x->r->m.level2 / 4 / 4, each;

    x->row = TS_ROUND_UP(x->across, TS_RECUR_STRIP);
    each = sample_floats(x) + x->sum;
    x->block = TS_MAX(1, TS_MIN(room / each / x->tile, x->tiles)) * x->tile;
    x->strip = TS_ROUND_UP(x->sum * x->tile + x->r->m.isa.width, 16);
}

static void choose(recur *x)
{
    int w = x->r->m.isa.width;

    x->gates = x->q.cell->gates * x->q.width;
    x->sum = x->back ? x->gates : x->q.width;
    x->across = x->back ? x->q.width : x->gates;
    x->lanes = x->q.width >= w ? w : x->q.width >= 8 ? 8 : x->q.width >= 4 ? 4 : 1;
    choose_tile(x);
    choose_block(x);
}

/* --- expressions of the cell --- */

static const char *name_of(recur *x, const ts_value *v)
{
    return ts_render_pointer(x->r, v);
}

static bool is_stored(recur *x, int out)
{
    return out < x->n->nout && x->e->stored(x->e->where, x->n->out[out]);
}

/* Elements j.. of the part of a row that `base` points to. */
static const char *load(recur *x, const char *base, int64_t part)
{
    const char *at = ts_arena_printf(x->r->a, "%s + %ld + j", base, (long)(part * x->q.width));

    if (x->lanes == 1)
        return ts_emit_temp(x->e, TS_F32, "*(%s)", at);
    return ts_emit_temp(x->e, TS_F32, "*(const f32x%du *)(%s)", x->lanes, at);
}

static void store(recur *x, const char *base, int64_t part, const char *value)
{
    long at = (long)(part * x->q.width);

    if (x->lanes == 1)
        ts_emit_line(x->e, "%s[%ld + j] = %s;", base, at, value);
    else
        ts_emit_line(x->e, "*(f32x%du *)(%s + %ld + j) = %s;", x->lanes, base, at, value);
}

static const char *call(recur *x, const char *op, const char *v)
{
    const char *suffix = ts_emit_suffix(x->e, TS_F32);

    ts_render_need(x->r, ts_arena_printf(x->r->a, "op %s %s", op, suffix));
    return ts_emit_temp(x->e, TS_F32, "%s_%s(%s)", op, suffix, v);
}

static const char *plus(recur *x, const char *a, const char *b)
{
    return ts_emit_temp(x->e, TS_F32, "%s + %s", a, b);
}

/* for each sample of the block, for each vector of its state */
static void open_cell(recur *x, int *mark, int *inner)
{
    ts_emit *e = x->e;

    ts_emit_line(e, "for (int64_t y = 0; y < rows; y++) {");
    ts_emit_open(e, mark);
    ts_emit_line(e, "const int64_t row = t * %ld + first + y;", (long)x->q.samples);
    ts_emit_line(e, "for (int64_t j = 0;; j = min(j + %d, %ld)) {", x->lanes,
                 (long)(x->q.width - x->lanes));
    ts_emit_open(e, inner);
    e->lanes = x->lanes > 1 ? x->lanes : 0;
}

static void close_cell(recur *x, int mark, int inner)
{
    ts_emit *e = x->e;

    e->lanes = 0;
    ts_emit_line(e, "if (j == %ld)", (long)(x->q.width - x->lanes));
    ts_emit_line(e, "    break;");
    ts_emit_close(e, inner);
    ts_emit_close(e, mark);
}

static const char *row_at(recur *x, const ts_value *v, const char *row)
{
    return ts_arena_printf(x->r->a, "(%s + %s * %ld)", name_of(x, v), row,
                           (long)v->type.dim[v->type.rank - 1]);
}

static const char *mine(recur *x, const char *memory, int64_t floats)
{
    return ts_arena_printf(x->r->a, "(%s + y * %ld)", memory, (long)floats);
}

/* --- products --- */

/* Rows of `from`, `step` apart, as tiles of packed rows; of elements from `k` of the sum on. */
static void pack(recur *x, const char *from, int64_t step, int64_t k, int64_t n)
{
    const char *f = ts_panel_pack(x->r, TS_PANEL_F32, TS_F32, x->tile);

    ts_emit_line(x->e, "%s(pa + %ld, %ld, %s, rows, %ld, 1, %ld);", f, (long)(k * x->tile),
                 (long)x->strip, from, (long)step, (long)n);
}

static void multiply(recur *x, const char *to, bool again)
{
    ts_emit *e = x->e;
    int w = x->r->m.isa.width, of = TS_RECUR_STRIP / w;
    const char *f = ts_panel_multiply(x->r, TS_PANEL_F32, x->tile, VECTORS, of);
    int mark, inner;

    ts_emit_line(e, "for (int64_t q = 0; q < %ld; q += %d) {", (long)x->row, TS_RECUR_STRIP);
    ts_emit_open(e, &mark);
    ts_emit_line(e, "for (int64_t m = 0; m < rows; m += %ld) {", (long)x->tile);
    ts_emit_open(e, &inner);
    for (int i = 0; i < TS_RECUR_STRIP; i += VECTORS * w)
        ts_emit_line(
            e, "%s(%ld, pa + m / %ld * %ld, %s + q * %ld + %d, %s + m * %ld + q + %d, %ld, %d);", f,
            (long)x->sum, (long)x->tile, (long)x->strip, name_of(x, x->n->in[1]), (long)x->sum, i,
            to, (long)x->row, i, (long)x->row, again);
    ts_emit_close(e, inner);
    ts_emit_close(e, mark);
}

/* --- forward --- */

static void keep(recur *x, int part, const char *value)
{
    if (is_stored(x, 1))
        store(x, row_at(x, x->n->out[1], "row"), part, value);
}

/* x's part of a gate, and p's: the product and what is added to it. */
static const char *input_of(recur *x, int gate)
{
    return load(x, row_at(x, x->n->in[0], "row"), gate);
}

static const char *product_of(recur *x, int gate)
{
    return plus(x, load(x, mine(x, "sums", x->row), gate), load(x, name_of(x, x->n->in[2]), gate));
}

static const char *gate_of(recur *x, int gate, const char *op)
{
    return call(x, op, plus(x, input_of(x, gate), product_of(x, gate)));
}

static const char *lstm(recur *x)
{
    const char *i = gate_of(x, 0, "sigmoid"), *f = gate_of(x, 1, "sigmoid"),
               *g = gate_of(x, 2, "tanh"), *o = gate_of(x, 3, "sigmoid");
    const char *c = ts_emit_temp(x->e, TS_F32, "%s * %s + %s * %s", f,
                                 load(x, mine(x, "cell", x->q.width), 0), i, g);
    const char *parts[] = {i, f, g, o, c};

    for (int k = 0; k < 5; k++)
        keep(x, k, parts[k]);
    store(x, mine(x, "next", x->q.width), 0, c);
    return ts_emit_temp(x->e, TS_F32, "%s * %s", o, call(x, "tanh", c));
}

static const char *gru(recur *x)
{
    const char *r = gate_of(x, 0, "sigmoid"), *z = gate_of(x, 1, "sigmoid"), *p = product_of(x, 2);
    const char *n =
        call(x, "tanh", ts_emit_temp(x->e, TS_F32, "%s + %s * %s", input_of(x, 2), r, p));
    const char *parts[] = {r, z, n, p};

    for (int k = 0; k < 4; k++)
        keep(x, k, parts[k]);
    return ts_emit_temp(x->e, TS_F32, "%s + %s * (%s - %s)", n, z,
                        load(x, mine(x, "h", x->q.width), 0), n);
}

static void forward_step(recur *x)
{
    const char *h;
    int mark, inner;

    ts_emit_line(x->e, "const int64_t t = %s;",
                 x->q.reverse ? ts_arena_printf(x->r->a, "%ld - s", (long)x->q.steps - 1) : "s");
    pack(x, "h", x->q.width, 0, x->q.width);
    multiply(x, "sums", false);
    open_cell(x, &mark, &inner);
    h = x->q.cell->kind == TS_RECUR_LSTM  ? lstm(x)
        : x->q.cell->kind == TS_RECUR_GRU ? gru(x)
                                          : gate_of(x, 0, x->q.cell->name);
    store(x, mine(x, "hn", x->q.width), 0, h);
    if (is_stored(x, 0))
        store(x, row_at(x, x->n->out[0], "row"), 0, h);
    close_cell(x, mark, inner);
}

/* --- back --- */

static const char *saved(recur *x, int part)
{
    return load(x, row_at(x, x->n->in[2], "row"), part);
}

static void gate_grad(recur *x, int gate, const char *fmt, ...) TS_PRINTF(3, 4);
static void gate_grad(recur *x, int gate, const char *fmt, ...)
{
    const char *text;
    va_list ap;

    va_start(ap, fmt);
    text = ts_arena_vprintf(x->r->a, fmt, ap);
    va_end(ap);
    store(x, row_at(x, x->n->out[0], "row"), gate, ts_emit_temp(x->e, TS_F32, "%s", text));
}

static void lstm_back(recur *x, const char *dh)
{
    const char *i = saved(x, 0), *f = saved(x, 1), *g = saved(x, 2), *o = saved(x, 3);
    const char *t = call(x, "tanh", saved(x, 4)), *c = load(x, "before", 0);
    const char *dc = ts_emit_temp(x->e, TS_F32, "%s + %s * %s * (1.0f - %s * %s)",
                                  load(x, mine(x, "cell", x->q.width), 0), dh, o, t, t);

    gate_grad(x, 0, "%s * %s * %s * (1.0f - %s)", dc, g, i, i);
    gate_grad(x, 1, "%s * %s * %s * (1.0f - %s)", dc, c, f, f);
    gate_grad(x, 2, "%s * %s * (1.0f - %s * %s)", dc, i, g, g);
    gate_grad(x, 3, "%s * %s * %s * (1.0f - %s)", dh, t, o, o);
    store(x, mine(x, "next", x->q.width), 0, ts_emit_temp(x->e, TS_F32, "%s * %s", dc, f));
}

static void gru_back(recur *x, const char *dh)
{
    const char *r = saved(x, 0), *z = saved(x, 1), *n = saved(x, 2), *p = saved(x, 3);
    const char *dn = ts_emit_temp(x->e, TS_F32, "%s * (1.0f - %s) * (1.0f - %s * %s)", dh, z, n, n);

    gate_grad(x, 0, "%s * %s * %s * (1.0f - %s)", dn, p, r, r);
    gate_grad(x, 1, "%s * (%s - %s) * %s * (1.0f - %s)", dh, load(x, "before", 0), n, z, z);
    gate_grad(x, 2, "%s", dn);
    store(x, row_at(x, x->n->out[2], "row"), 0, ts_emit_temp(x->e, TS_F32, "%s * %s", dn, r));
    store(x, mine(x, "hn", x->row), 0, ts_emit_temp(x->e, TS_F32, "%s * %s", dh, z));
}

/* The sample's c or h before this step, which is the last one on the way back. */
static void find_before(recur *x)
{
    bool is_c = x->q.cell->kind == TS_RECUR_LSTM;
    const ts_value *v = x->n->in[is_c ? 2 : 4];

    if (!x->q.cell->saved)
        return;
    ts_emit_line(x->e, "const float *const before = s == %ld ? %s : %s + %ld;",
                 (long)x->q.steps - 1, row_at(x, x->n->in[3], "(first + y)"),
                 row_at(x, v,
                        ts_arena_printf(x->r->a, "(row %c %ld)", x->q.reverse ? '+' : '-',
                                        (long)x->q.samples)),
                 is_c ? (long)(4 * x->q.width) : 0);
}

static void cell_back(recur *x)
{
    const char *dh;
    int mark, inner;

    open_cell(x, &mark, &inner);
    find_before(x);
    dh = plus(x, load(x, mine(x, "h", x->row), 0), load(x, row_at(x, x->n->in[0], "row"), 0));
    if (x->q.cell->kind == TS_RECUR_LSTM)
        lstm_back(x, dh);
    else if (x->q.cell->kind == TS_RECUR_GRU)
        gru_back(x, dh);
    else if (x->q.cell->kind == TS_RECUR_TANH) {
        const char *h = saved(x, 0);
        gate_grad(x, 0, "%s * (1.0f - %s * %s)", dh, h, h);
    } else
        gate_grad(x, 0, "%s * %s", dh, call(x, "step", saved(x, 0)));
    close_cell(x, mark, inner);
}

static void backward_step(recur *x)
{
    bool is_gru = x->q.cell->kind == TS_RECUR_GRU;
    int64_t whole = is_gru ? 2 * x->q.width : x->gates;

    ts_emit_line(x->e, "const int64_t t = %s;",
                 x->q.reverse ? "s" : ts_arena_printf(x->r->a, "%ld - s", (long)x->q.steps - 1));
    cell_back(x);
    ts_emit_line(x->e, "const int64_t row = t * %ld + first;", (long)x->q.samples);
    pack(x, row_at(x, x->n->out[0], "row"), x->gates, 0, whole);
    if (is_gru)
        pack(x, row_at(x, x->n->out[2], "row"), x->q.width, whole, x->q.width);
    multiply(x, "hn", is_gru);
}

/* --- all --- */

static void copy_rows(recur *x, const char *to, int64_t tostep, const char *from, int64_t fromstep)
{
    ts_emit_line(x->e, "for (int64_t y = 0; y < rows; y++)");
    if (from)
        ts_emit_line(x->e, "    memcpy(%s + y * %ld, %s + y * %ld, %ld);", to, (long)tostep, from,
                     (long)fromstep, (long)x->q.width * 4);
    else
        ts_emit_line(x->e, "    memset(%s + y * %ld, 0, %ld);", to, (long)tostep,
                     (long)x->q.width * 4);
}

static const char *states(recur *x, const ts_value *v)
{
    return row_at(x, v, "first");
}

static void begin(recur *x)
{
    int64_t w = x->q.width;
    bool has_c = x->q.cell->kind == TS_RECUR_LSTM;

    if (x->back)
        copy_rows(x, "h", x->row, NULL, 0);
    else
        copy_rows(x, "h", w, states(x, x->n->in[3]), w);
    if (has_c)
        copy_rows(x, "cell", w, states(x, x->n->in[4]), w);
}

static void end(recur *x)
{
    int64_t w = x->q.width;

    if (!x->back)
        return;
    if (is_stored(x, 1))
        copy_rows(x, states(x, x->n->out[1]), w, "h", x->row);
    if (x->q.cell->kind == TS_RECUR_LSTM && is_stored(x, 2))
        copy_rows(x, states(x, x->n->out[2]), w, "cell", w);
}

static void memory(recur *x)
{
    int64_t rows = x->block, h = rows * (x->back ? x->row : x->q.width), c = rows * x->q.width;
    int64_t packed = x->block / x->tile * x->strip, sums = x->back ? 0 : rows * x->row;

    x->r->panel_bytes = TS_MAX(x->r->panel_bytes, 4 * (size_t)(packed + sums + 2 * h + 2 * c));
    ts_emit_line(x->e, "float *const pa = (float *)panels, *h = pa + %ld, *hn = h + %ld;",
                 (long)packed, (long)h);
    ts_emit_line(x->e, "float *cell = hn + %ld, *next = cell + %ld, *const sums = next + %ld;",
                 (long)h, (long)c, (long)c);
    ts_emit_line(x->e, "(void)cell, (void)next, (void)sums;");
}

static void block(recur *x)
{
    ts_emit *e = x->e;
    int mark;

    ts_emit_line(e, "const int64_t rows = min(%ld, last - first);", (long)x->block);
    begin(x);
    ts_emit_line(e, "for (int64_t s = 0; s < %ld; s++) {", (long)x->q.steps);
    ts_emit_open(e, &mark);
    if (x->back)
        backward_step(x);
    else
        forward_step(x);
    ts_emit_line(e, "float *const h1 = h, *const cell1 = cell;");
    ts_emit_line(e, "h = hn, hn = h1, cell = next, next = cell1;");
    ts_emit_close(e, mark);
    end(x);
}

static void write(recur *x, ts_cut *cut)
{
    ts_emit *e = x->e;
    int mark;

    ts_emit_line(e, "/* steps %ld: tile %ld, block %ld */", (long)x->q.steps, (long)x->tile,
                 (long)x->block);
    memory(x);
    ts_emit_line(e, "const int64_t last = min(hi * %ld, %ld);", (long)x->tile, (long)x->q.samples);
    ts_emit_line(e, "for (int64_t first = lo * %ld; first < last; first += %ld) {", (long)x->tile,
                 (long)x->block);
    ts_emit_open(e, &mark);
    block(x);
    ts_emit_close(e, mark);
    cut->count = x->tiles;
    cut->dim = 1;
    cut->cycles = ts_price_kernel(&x->r->m, ts_node_sums(x->n), 0);
    cut->grain = ts_machine_grain(&x->r->m, cut->count, cut->cycles);
}

bool ts_render_recur(ts_render *r, const ts_kernel *k, ts_cut *cut)
{
    ts_emit e;
    recur x = {.r = r, .e = &e, .n = k->anchor};

    if (!k->anchor || !(k->anchor->op->flags & TS_STEPS))
        return false;
    x.q = ts_recur_of(k->anchor);
    x.back = k->anchor->op == TS_OP(recur_grad);
    ts_render_emitter(r, &e);
    choose(&x);
    write(&x, cut);
    return true;
}
