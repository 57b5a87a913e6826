/* transpose.c - a tensor moved between rows and batch in the lanes, or between channels first and
 * last, as blocks turned in registers.
 *
 *   rows   [n][f]            lanes   [n/L][f][L]
 *   rows   [n][c][h w]       last    [n][h w][c]      L channels at a time
 *   weights [kh kw][c][o]    turned  [kh kw][o][c]    for the gradient of the input
 *   the same in blocks, [o/L][kh][c][kw][L] and [c/L][kh][o][kw][L], or kw before c
 *
 *   for each group of L rows and block of L features
 *     L vectors in, log2(L) rounds of shuffles, L vectors out
 *
 * As a loop kernel this is one load for each number: ten times slower, and on the critical path
 * between a convolution and a linear layer. Pieces are blocks of features, so that a thread turns
 * the features that it made and that it needs next.
 */
#include "render/render.h"

/* Matrices [rows][features] on one side, [features][rows] on the other. */
typedef struct turn {
    const ts_value *from, *to;
    int lanes;
    int64_t matrices, rows, features;
    bool to_lanes;
    bool blocks;   /* both sides are in blocks of a vector, */
    int64_t inner; /* in which every channel has so many of them */
} turn;

static bool lanes_first(const ts_value *v)
{
    if (!v->layout.set || v->layout.lanes < 2 || v->layout.lane_dim)
        return false;
    for (int i = 0; i < v->type.rank; i++)
        if (v->layout.order[i] != i)
            return false;
    return true;
}

/* 0 2 3 1 */
static bool channels_last(const ts_value *v)
{
    int rank = v->type.rank;

    if (!v->layout.set || v->layout.lanes > 1 || rank < 3 || v->layout.order[0] ||
        v->layout.order[rank - 1] != 1)
        return false;
    for (int i = 1; i < rank - 1; i++)
        if (v->layout.order[i] != i + 1)
            return false;
    return true;
}

/* The first samples of something, or other features of the same samples: those lie where they lay. */
static bool leaves_in_place(const ts_node *n)
{
    const ts_type *x = &n->in[0]->type, *y = &n->out[0]->type;

    if (n->op == TS_OP(slice))
        return x->rank && x->dim[0] > y->dim[0] && !ts_attr_int(n, "start", 0) &&
               ts_attr_int(n, "step", 1) == 1;
    return n->op == TS_OP(reshape) && y->rank && x->rank && x->dim[0] == y->dim[0];
}

static const ts_value *behind(const ts_render *r, const ts_value *v)
{
    while (r->p->place[v->id].home == TS_HOME_NONE && v->kind == TS_VALUE_NODE &&
           leaves_in_place(v->node))
        v = v->node->in[0];
    return r->p->place[v->id].home == TS_HOME_NONE ? NULL : v;
}

/* The widest vector that the channels fill. If they do not fill the last one it begins in the one before. */
static int lanes_of(const ts_render *r, int64_t channels)
{
    int n = r->m.isa.width;

    while (n > 2 && channels < n)
        n /= 2;
    return n;
}

/* Channels that are fewer than the shortest vector, those of a picture: its last lanes are nobody's. */
enum { SHORT = 4 };

static bool is_short(int64_t channels)
{
    return channels == 2 || channels == 3;
}

/* Is y, in rows, a view of something that has all of its samples in the lanes? */
static bool takes_view(ts_render *r, const ts_value *y, turn *t)
{
    const ts_value *x = y->node->in[0];
    const ts_atom *atoms[TS_MAX_RANK];
    const ts_ix *at[TS_MAX_RANK], *address;
    int64_t step = y->type.dim[0];

    while (r->p->place[x->id].home == TS_HOME_NONE && x->kind == TS_VALUE_NODE &&
           (x->node->op == TS_OP(permute) || x->node->op == TS_OP(reshape)))
        x = x->node->in[0];
    if (y->layout.set || x == y->node->in[0] || x->type.dtype != TS_F32 ||
        r->p->place[x->id].home == TS_HOME_NONE)
        return false;
    for (int d = 0; d < y->type.rank; d++) {
        atoms[d] = ts_atom_var(r->a, "d", 0, y->type.dim[d] - 1);
        at[d] = ts_ix_var(r->a, atoms[d]);
    }
    address = ts_render_address(r, y->node->in[0], at);
    for (int d = y->type.rank - 1; d >= 0 && address; d--) {
        int64_t want = d ? step : 1;
        if (y->type.dim[d] > 1 &&
            (!ts_ix_linear(address, atoms[d]) || ts_ix_coef(address, atoms[d]) != want))
            return false;
        step *= y->type.dim[d];
    }
    *t = (turn){.from = x,
                .to = y,
                .lanes = lanes_of(r, y->type.dim[0]),
                .matrices = 1,
                .rows = y->type.dim[0],
                .features = ts_type_count(&y->type) / y->type.dim[0]};
    return address && t->lanes >= 4 && t->features >= t->lanes;
}

/* Where the second part of the order begins, of a tensor whose last parts have changed places: a b c to a c b. `first`
 * is where the two differ; 0 if they do so otherwise. */
static int changed_places(const ts_layout *p, const ts_layout *q, int rank, int *first)
{
    int second, n;

    for (*first = 0; *first < rank && p->order[*first] == q->order[*first]; ++*first)
        ;
    for (second = *first; second < rank && p->order[second] != q->order[*first]; second++)
        ;
    n = rank - second;
    if (n < 1 || memcmp(q->order + *first, p->order + second, (size_t)n) ||
        memcmp(q->order + *first + n, p->order + *first, (size_t)(second - *first)))
        return 0;
    return second;
}

/* Does y lie as x does, but for its last dims, which have changed places? */
static bool takes_turned(ts_render *r, const ts_value *y, turn *t)
{
    const ts_value *x = y->node->in[0];
    const ts_layout *p = &x->layout, *q = &y->layout;
    int rank = y->type.rank, first, second;

    if (r->p->place[x->id].home == TS_HOME_NONE || x->type.dtype != TS_F32 || !p->set || !q->set ||
        p->lanes > 1 || q->lanes > 1 || !(second = changed_places(p, q, rank, &first)))
        return false;
    *t = (turn){.from = x, .to = y, .matrices = 1, .rows = 1, .features = 1, .to_lanes = true};
    for (int d = 0; d < rank; d++)
        *(d < first    ? &t->matrices
          : d < second ? &t->rows
                       : &t->features) *= x->type.dim[p->order[d]];
    t->lanes = lanes_of(r, t->rows);
    return t->lanes >= 4 && t->features >= t->lanes;
}

/* Where in the order both layouts have the channels that fill the other one's lanes, the rest being alike; or 0. */
static int crossing(const ts_layout *p, const ts_layout *q, int rank)
{
    int at = 1;

    while (at < rank && p->order[at] == q->order[at])
        at++;
    if (at == rank || p->order[at] != q->order[0] || q->order[at] != p->order[0] ||
        memcmp(p->order + at + 1, q->order + at + 1, (size_t)(rank - at - 1)))
        return 0;
    return at;
}

/* Are x and y in blocks, of the dims that change places? */
static bool takes_blocks(ts_render *r, const ts_value *y, turn *t)
{
    const ts_value *x = y->node->in[0];
    const ts_layout *p = &x->layout, *q = &y->layout;
    int rank = y->type.rank, at;

    if (r->p->place[x->id].home == TS_HOME_NONE || x->type.dtype != TS_F32 || !p->set || !q->set ||
        p->lanes != q->lanes || p->lanes < 4 || rank < 3 || p->lane_dim != p->order[0] ||
        q->lane_dim != q->order[0] || !(at = crossing(p, q, rank)))
        return false;
    *t = (turn){.from = x,
                .to = y,
                .lanes = p->lanes,
                .matrices = 1,
                .inner = 1,
                .rows = x->type.dim[p->order[0]],
                .features = x->type.dim[q->order[0]],
                .blocks = true};
    for (int d = 1; d < rank; d++)
        *(d < at ? &t->matrices : &t->inner) *= d == at ? 1 : x->type.dim[p->order[d]];
    return t->rows % t->lanes == 0 && t->features % t->lanes == 0;
}

static bool takes(ts_render *r, const ts_kernel *k, turn *t)
{
    const ts_value *y = k->roots[0], *x, *laid;

    if (k->nroots != 1 || k->copy || k->anchor || y->type.dtype != TS_F32 || y->type.rank < 2 ||
        y->node->op != TS_OP(nop))
        return false;
    if (takes_view(r, y, t) || takes_turned(r, y, t) || takes_blocks(r, y, t))
        return true;
    x = behind(r, y->node->in[0]);
    if (!x || x->type.dtype != TS_F32 || x->layout.set == y->layout.set)
        return false;
    laid = y->layout.set ? y : x;
    *t = (turn){.from = x, .to = y, .matrices = y->type.dim[0], .to_lanes = laid == y};
    if (lanes_first(laid)) {
        t->rows = t->lanes = laid->layout.lanes;
        if (t->matrices % t->lanes)
            return false;
        t->matrices /= t->lanes;
    } else if (channels_last(laid) && x == y->node->in[0]) {
        t->rows = y->type.dim[1];
        t->lanes = is_short(t->rows) ? SHORT : lanes_of(r, t->rows);
    } else
        return false;
    t->features = ts_type_count(&y->type) / TS_MAX(t->matrices * t->rows, 1);
    return t->lanes >= 4 && t->features >= t->lanes;
}

/* Where number j of the block starts, on the side of the rows or of the lanes. */
static const char *address(ts_render *r, const turn *t, bool lanes, const char *j)
{
    if (lanes)
        return ts_arena_printf(r->a, "m + %ld * (f + %s) + c", (long)t->rows, j);
    return ts_arena_printf(r->a, "m + %ld * (c + %s) + f", (long)t->features, j);
}

/* Round s swaps the off-diagonal halves of each 2s x 2s block of the square t. */
static void shuffles(ts_emit *e, int n)
{
    for (int s = 1; s < n; s *= 2) {
        ts_emit_line(e, "/* %d x %d */", s, s);
        for (int j = 0; j < n; j++)
            if (!(j & s))
                ts_emit_line(e, "SWAP_f32x%d_%d(t%d, t%d);", n, s, j, j + s);
    }
}

/* Is number j of a block, on the side of short channels, loaded and stored as a vector? What its lanes have too many of is
 * the next one's, which is written after it; behind the last ones is another block. */
static bool in_vector(const turn *t, int j)
{
    return t->rows >= t->lanes || t->rows * j + t->lanes <= t->rows * t->lanes;
}

static void load(ts_render *r, ts_emit *e, const turn *t, int j)
{
    const char *from = ts_render_pointer(r, t->from);
    const char *at = address(r, t, !t->to_lanes, ts_arena_printf(r->a, "%d", j));

    if (t->to_lanes && j >= t->rows)
        ts_emit_line(e, "f32x%d t%d = t0;", t->lanes, j);
    else if (t->to_lanes || in_vector(t, j))
        ts_emit_line(e, "f32x%d t%d = *(const f32x%du *)(%s + %s);", t->lanes, j, t->lanes, from,
                     at);
    else {
        ts_emit_line(e, "f32x%d t%d = t0;", t->lanes, j);
        for (int64_t i = 0; i < t->rows; i++)
            ts_emit_line(e, "t%d[%ld] = %s[%s + %ld];", j, (long)i, from, at, (long)i);
    }
}

static void store(ts_render *r, ts_emit *e, const turn *t, int j)
{
    const char *to = ts_render_pointer(r, t->to);
    const char *at = address(r, t, t->to_lanes, ts_arena_printf(r->a, "%d", j));

    if (!t->to_lanes && j >= t->rows)
        return;
    if (!t->to_lanes || in_vector(t, j)) {
        ts_emit_line(e, "*(f32x%du *)(%s + %s) = t%d;", t->lanes, to, at, j);
        return;
    }
    for (int64_t i = 0; i < t->rows; i++)
        ts_emit_line(e, "%s[%s + %ld] = t%d[%ld];", to, at, (long)i, j, (long)i);
}

static void whole_block(ts_render *r, ts_emit *e, const turn *t)
{
    for (int j = 0; j < t->lanes; j++)
        load(r, e, t, j);
    shuffles(e, t->lanes);
    for (int j = 0; j < t->lanes; j++)
        store(r, e, t, j);
}

static void tail(ts_render *r, ts_emit *e, const turn *t)
{
    const char *from = ts_render_pointer(r, t->from), *to = ts_render_pointer(r, t->to);
    const char *rows = address(r, t, false, "l"), *lanes = address(r, t, true, "0");
    int mark, mark2;

    ts_emit_line(e, "for (int64_t f = %ld; f < %ld; f++) {",
                 (long)(t->features / t->lanes * t->lanes), (long)t->features);
    ts_emit_open(e, &mark);
    ts_emit_line(e, "for (int64_t l = 0; l < %ld; l++) {", (long)TS_MIN(t->rows, t->lanes));
    ts_emit_open(e, &mark2);
    ts_emit_line(e, "%s[%s%s] = %s[%s%s];", to, t->to_lanes ? lanes : rows,
                 t->to_lanes ? " + l" : "", from, t->to_lanes ? rows : lanes,
                 t->to_lanes ? "" : " + l");
    ts_emit_close(e, mark2);
    ts_emit_close(e, mark);
}

/* Piece i: which matrix, which block of its features, which of its rows; all rows, one group after the other, where the
 * last two share some, so that nothing is written by two threads. */
static void place(ts_render *r, ts_emit *e, const turn *t, int64_t blocks, int64_t groups,
                  int *mark)
{
    ts_arena *a = r->a;
    bool all = t->rows % t->lanes;
    int64_t pieces = all ? 1 : groups;
    const ts_ix *i = ts_ix_var(a, ts_atom_var(a, "i", 0, t->matrices * blocks * pieces - 1));
    const ts_ix *m = ts_ix_mul(a, ts_ix_div(a, i, blocks * pieces), t->rows * t->features);
    const ts_ix *b = ts_ix_mod(a, ts_ix_div(a, i, pieces), blocks);
    const ts_ix *c = ts_ix_mul(a, ts_ix_mod(a, i, pieces), t->lanes);

    ts_emit_line(e, "const int64_t m = %s, b = %s;", ts_ix_text(a, m), ts_ix_text(a, b));
    if (all)
        ts_emit_line(e, "for (int64_t g = 0; g < %ld; g++) {", (long)groups);
    else
        ts_emit_line(e, "{");
    ts_emit_open(e, mark);
    if (all)
        ts_emit_line(e, "const int64_t c = min(%d * g, %ld);", t->lanes,
                     (long)TS_MAX(0, t->rows - t->lanes));
    else
        ts_emit_line(e, "const int64_t c = %s;", ts_ix_text(a, c));
}

/* The next digit of *i, as text. */
static const char *digit(ts_arena *a, const ts_ix **i, int64_t extent)
{
    const char *text = ts_ix_text(a, ts_ix_mod(a, *i, extent));

    *i = ts_ix_div(a, *i, extent);
    return text;
}

/* Piece i is a square of the result, in the order of memory but for what is inside of the channels. */
static void square(ts_render *r, ts_emit *e, const turn *t)
{
    const char *from = ts_render_pointer(r, t->from), *to = ts_render_pointer(r, t->to);
    int n = t->lanes;
    long rows = (long)t->rows / n, features = (long)t->features / n, m = (long)t->matrices,
         in = (long)t->inner, size = (long)n * n * in;
    const ts_ix *i = ts_ix_var(r->a, ts_atom_var(r->a, "i", 0, rows * features * m * in - 1));

    ts_emit_line(e, "const int64_t k = %s;", digit(r->a, &i, in));
    ts_emit_line(e, "const int64_t c = %s;", digit(r->a, &i, rows));
    ts_emit_line(e, "const int64_t m = %s;", digit(r->a, &i, m));
    ts_emit_line(e, "const int64_t f = %s;", ts_ix_text(r->a, i));
    ts_emit_line(e, "const float *const x = %s + %ld * ((c * %ld + m) * %ld + f) + %d * k;", from,
                 size, m, features, n);
    ts_emit_line(e, "float *const y = %s + %ld * ((f * %ld + m) * %ld + c) + %d * k;", to, size, m,
                 rows, n);
    for (int j = 0; j < n; j++)
        ts_emit_line(e, "f32x%d t%d = *(const f32x%du *)(x + %ld);", n, j, n, n * j * in);
    shuffles(e, n);
    for (int j = 0; j < n; j++)
        ts_emit_line(e, "*(f32x%du *)(y + %ld) = t%d;", n, n * j * in, j);
}

static int64_t squares(ts_render *r, ts_emit *e, const turn *t)
{
    int mark;

    ts_emit_line(e, "for (int64_t i = lo; i < hi; i++) {");
    ts_emit_open(e, &mark);
    square(r, e, t);
    ts_emit_close(e, mark);
    return t->matrices * t->inner * (t->rows / t->lanes) * (t->features / t->lanes);
}

/* Piece i: a block of features of a matrix, some or all of its rows. */
static int64_t strips(ts_render *r, ts_emit *e, const turn *t)
{
    int64_t whole = t->features / t->lanes, blocks = (t->features + t->lanes - 1) / t->lanes;
    int64_t groups = (t->rows + t->lanes - 1) / t->lanes;
    int mark, mark2, mark3;

    ts_emit_line(e, "for (int64_t i = lo; i < hi; i++) {");
    ts_emit_open(e, &mark);
    place(r, e, t, blocks, groups, &mark3);
    ts_emit_line(e, whole < blocks ? "if (b < %ld) {" : "{", (long)whole);
    ts_emit_open(e, &mark2);
    ts_emit_line(e, "const int64_t f = %d * b;", t->lanes);
    whole_block(r, e, t);
    ts_emit_close(e, mark2);
    if (whole < blocks) {
        ts_emit_line(e, "else {");
        ts_emit_open(e, &mark2);
        tail(r, e, t);
        ts_emit_close(e, mark2);
    }
    ts_emit_close(e, mark3);
    ts_emit_close(e, mark);
    return t->matrices * blocks * (t->rows % t->lanes ? 1 : groups);
}

bool ts_render_transpose(ts_render *r, const ts_kernel *k, ts_cut *cut)
{
    turn t;
    ts_emit e;

    if (!takes(r, k, &t))
        return false;
    ts_render_need(r, ts_arena_printf(r->a, "swap %d", t.lanes));
    ts_render_emitter(r, &e);
    cut->count = t.blocks ? squares(r, &e, &t) : strips(r, &e, &t);
    cut->cycles = ts_price_sums(&r->m, 2 * (double)ts_type_count(&t.to->type));
    cut->grain = ts_machine_grain(&r->m, cut->count, cut->cycles);
    return true;
}
