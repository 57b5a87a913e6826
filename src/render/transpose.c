/* transpose.c - a tensor moved between rows and batch in the lanes, as blocks turned in registers.
 *
 *   rows   [n][f]            lanes   [n/L][f][L]
 *
 *   for each group of L samples and block of L features
 *     L vectors in, log2(L) rounds of shuffles, L vectors out
 *
 * As a loop kernel this is one load for each number: ten times slower, and on the critical path
 * between a convolution and a linear layer. Pieces are blocks of features, so that a thread turns
 * the features that it made and that it needs next.
 */
#include "render/render.h"

typedef struct turn {
    const ts_value *from, *to;
    int lanes;
    int64_t samples, features;
    bool to_lanes;
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

/* What is stored behind views that keep the samples and the order of their features. */
static const ts_value *behind(const ts_render *r, const ts_value *v)
{
    while (r->p->place[v->id].home == TS_HOME_NONE && v->kind == TS_VALUE_NODE &&
           v->node->op == TS_OP(reshape) && v->type.rank && v->node->in[0]->type.rank &&
           v->node->in[0]->type.dim[0] == v->type.dim[0])
        v = v->node->in[0];
    return r->p->place[v->id].home == TS_HOME_NONE ? NULL : v;
}

static bool takes(const ts_render *r, const ts_kernel *k, turn *t)
{
    const ts_value *y = k->roots[0], *x, *laid;

    if (k->nroots != 1 || k->copy || k->anchor || y->type.dtype != TS_F32 || y->type.rank < 2 ||
        y->node->op != TS_OP(nop))
        return false;
    x = behind(r, y->node->in[0]);
    if (!x || x->type.dtype != TS_F32 || x->layout.set == y->layout.set)
        return false;
    laid = y->layout.set ? y : x;
    *t = (turn){.from = x,
                .to = y,
                .lanes = laid->layout.lanes,
                .samples = y->type.dim[0],
                .to_lanes = laid == y};
    t->features = ts_type_count(&y->type) / TS_MAX(t->samples, 1);
    return lanes_first(laid) && t->samples % t->lanes == 0 && t->features >= t->lanes;
}

/* Where number j of the block starts, on the side of the rows or of the lanes. */
static const char *address(ts_render *r, const turn *t, bool lanes, const char *j)
{
    if (lanes)
        return ts_arena_printf(r->a, "%d * (%ld * g + f + %s)", t->lanes, (long)t->features, j);
    return ts_arena_printf(r->a, "%ld * (%d * g + %s) + f", (long)t->features, t->lanes, j);
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

static void whole_block(ts_render *r, ts_emit *e, const turn *t)
{
    const char *from = ts_render_pointer(r, t->from), *to = ts_render_pointer(r, t->to);
    int n = t->lanes;

    for (int j = 0; j < n; j++)
        ts_emit_line(e, "f32x%d t%d = *(const f32x%du *)(%s + %s);", n, j, n, from,
                     address(r, t, !t->to_lanes, ts_arena_printf(r->a, "%d", j)));
    shuffles(e, n);
    for (int j = 0; j < n; j++)
        ts_emit_line(e, "*(f32x%du *)(%s + %s) = t%d;", n, to,
                     address(r, t, t->to_lanes, ts_arena_printf(r->a, "%d", j)), j);
}

static void tail(ts_render *r, ts_emit *e, const turn *t)
{
    const char *from = ts_render_pointer(r, t->from), *to = ts_render_pointer(r, t->to);
    const char *rows = ts_arena_printf(r->a, "%ld * (%d * g + l) + f", (long)t->features, t->lanes);
    const char *lanes =
        ts_arena_printf(r->a, "%d * (%ld * g + f) + l", t->lanes, (long)t->features);
    int mark, mark2;

    ts_emit_line(e, "for (int64_t f = %ld; f < %ld; f++) {",
                 (long)(t->features / t->lanes * t->lanes), (long)t->features);
    ts_emit_open(e, &mark);
    ts_emit_line(e, "for (int64_t l = 0; l < %d; l++) {", t->lanes);
    ts_emit_open(e, &mark2);
    ts_emit_line(e, "%s[%s] = %s[%s];", to, t->to_lanes ? lanes : rows, from,
                 t->to_lanes ? rows : lanes);
    ts_emit_close(e, mark2);
    ts_emit_close(e, mark);
}

bool ts_render_transpose(ts_render *r, const ts_kernel *k, ts_cut *cut)
{
    turn t;
    ts_emit e;
    int64_t whole, blocks;
    int mark, mark2;

    if (!takes(r, k, &t))
        return false;
    whole = t.features / t.lanes;
    blocks = (t.features + t.lanes - 1) / t.lanes;
    ts_render_need(r, ts_arena_printf(r->a, "swap %d", t.lanes));
    ts_render_emitter(r, &e);
    ts_emit_line(&e, "for (int64_t i = lo; i < hi; i++) {");
    ts_emit_open(&e, &mark);
    ts_emit_line(&e, "const int64_t g = i / %ld, b = i %% %ld;", (long)blocks, (long)blocks);
    ts_emit_line(&e, "if (b < %ld) {", (long)whole);
    ts_emit_open(&e, &mark2);
    ts_emit_line(&e, "const int64_t f = %d * b;", t.lanes);
    whole_block(r, &e, &t);
    ts_emit_close(&e, mark2);
    if (whole < blocks) {
        ts_emit_line(&e, "else {");
        ts_emit_open(&e, &mark2);
        tail(r, &e, &t);
        ts_emit_close(&e, mark2);
    }
    ts_emit_close(&e, mark);
    cut->count = t.samples / t.lanes * blocks;
    cut->grain = TS_MAX(1, 4096 / (t.lanes * t.lanes)); /* numbers a thread should move at least */
    return true;
}
