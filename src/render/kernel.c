/* kernel.c - a loop kernel: loops over the roots' elements in the order they lie in memory, one
 * emitted body.
 *
 *   static void k3(const ctx *c, int64_t lo, int64_t hi)
 *   {
 *       for (int64_t i = lo; i < hi; i++) {            the outer dims, cut among the threads
 *           for (int64_t x = 0; x < 24; x += 8) {      the innermost dim, a vector at a time
 *               const f32x8 t1 = *(const f32x8u *)(v12 + 26 * i + x);
 *               ...
 *           }
 *           for (int64_t x = 24; x < 26; x++) { ... }  what is left
 *       }
 *   }
 */
#include "render/render.h"

typedef struct loops {
    int rank;
    int dim[TS_MAX_RANK + 1]; /* logical dim of each physical one, outermost first */
    int64_t size[TS_MAX_RANK + 1];
    int lanes; /* of the layout: the last physical dim is the low part of lane_dim */
    int lane_dim;
    int64_t step[TS_MAX_RANK + 1]; /* elements of a cut dim done together, 1 by default */
    int outer;                     /* the physical dim that the threads share first */
    int64_t low; /* the last dim is this one times `low`, and another, `under`; 0: it is itself */
    int under;
} loops;

static void physical(const ts_value *v, loops *l)
{
    *l = (loops){.lanes = v->layout.set && v->layout.lanes > 1 ? v->layout.lanes : 0,
                 .lane_dim = v->layout.lane_dim};
    for (int i = 0; i < v->type.rank; i++) {
        int d = v->layout.set ? v->layout.order[i] : i;
        int64_t n = v->type.dim[d];
        if (l->lanes && d == l->lane_dim)
            n = (n + l->lanes - 1) / l->lanes;
        else if (n == 1)
            continue;
        l->dim[l->rank] = d;
        l->step[l->rank] = 1;
        l->size[l->rank++] = n;
    }
}

/* Same shape and layout all the way down, or one number: then the kernel is one flat loop. */
static bool flat(const ts_render *r, const ts_kernel *k, const ts_value *v, bool *seen)
{
    if (seen[v->id])
        return true;
    seen[v->id] = true;
    if (r->p->place[v->id].home != TS_HOME_NONE)
        return ts_type_count(&v->type) == 1 ||
               (ts_type_same_shape(&v->type, &k->roots[0]->type) && ts_same_layout(v, k->roots[0]));
    if (v->node->op == TS_OP(full))
        return true;
    if (!(v->node->op->flags & TS_POINT))
        return false;
    for (int i = 0; i < v->node->nin; i++)
        if (!flat(r, k, v->node->in[i], seen))
            return false;
    return true;
}

bool ts_render_is_flat(const ts_render *r, const ts_kernel *k)
{
    bool *seen = TS_NEWS(r->a, bool, r->p->g->nvalues);

    if (k->copy)
        return ts_same_layout(k->copy, k->roots[0]);
    if (k->anchor)
        return false;
    for (int i = 0; i < k->nroots; i++) {
        if (!(k->roots[i]->node->op->flags & TS_POINT))
            return false;
        for (int j = 0; j < k->roots[i]->node->nin; j++)
            if (!flat(r, k, k->roots[i]->node->in[j], seen))
                return false;
    }
    return true;
}

static bool wide(ts_dtype t)
{
    return t == TS_F64 || t == TS_I64;
}

static bool vector_ok(const ts_kernel *k)
{
    for (int i = 0; i < k->nroots; i++)
        if (wide(k->roots[i]->type.dtype))
            return false;
    return !(k->copy && wide(k->copy->type.dtype));
}

/* A reduction whose innermost dim is summed works across the lanes by itself, one output at
 * a time. */
static bool reduces_across(const ts_kernel *k)
{
    int dim;

    return k->anchor && k->anchor->op->flags & TS_REDUCE && !(k->anchor->op->flags & TS_NODIFF) &&
           ts_reduce_lanes(k->anchor, &dim);
}

int ts_render_row_dim(const ts_kernel *k)
{
    const ts_node *n = k->anchor;

    if (!n || !(n->op->flags & TS_ROWS))
        return -1;
    return ts_norm_dim(n, ts_attr_int(n, "dim", n->op == TS_OP(argsort) ? -1 : 0),
                       n->out[0]->type.rank);
}

void ts_render_body(ts_emit *e, const ts_kernel *k, const ts_ix *const *at)
{
    const char *names[TS_MAX_ROOTS];

    if (k->copy) {
        ts_emit_store(e, k->roots[0], at, ts_emit_at(e, k->copy, at));
        return;
    }
    if (ts_render_row_dim(k) >= 0) {
        k->anchor->op->emit(e, k->anchor, 0, at);
        return;
    }
    for (int i = 0; i < k->nroots; i++) {
        const ts_value *v = k->roots[i];
        /* the roots are stored, so ask the node itself, and leave the result where other roots find
         * it */
        names[i] = ts_emit_recall(e, v, at);
        if (!names[i]) {
            names[i] = ts_emit_node(e, v, at);
            ts_emit_bind(e, v, at, names[i]);
        }
    }
    for (int i = 0; i < k->nroots; i++)
        ts_emit_store(e, k->roots[i], at, names[i]);
}

static void logical(ts_render *r, const loops *l, const ts_ix *const *phys, const ts_ix *lane,
                    const ts_ix **at);

/* The gradient of pooling with stride s asks, for each element, which windows cover it; that
 * depends on its place modulo s. So s neighbours are done together, where the places are constants
 * and the window is loaded once. So are a matrix's rows, which share its columns' loads. */
static void find_steps(const ts_render *r, const ts_value *v, const ts_type *shape, loops *l)
{
    const int64_t *stride;
    int64_t rows[TS_MAX_RANK];
    const ts_value *mix;

    if (!v->node)
        return;
    if (v->node->op == TS_OP(mix)) {
        for (int i = 0; i < l->rank; i++)
            if (l->dim[i] == ts_attr_int(v->node, "dim", 0))
                l->step[i] = l->size[i];
        if (r->p->place[v->node->in[0]->id].home == TS_HOME_NONE)
            find_steps(r, v->node->in[0], shape, l);
        return;
    }
    if (!ts_type_same_shape(&v->type, shape))
        return;
    mix = ts_mix_behind(v, rows);
    if (mix && r->p->place[mix->id].home == TS_HOME_NONE) {
        for (int i = 0; i < l->rank; i++)
            l->step[i] = rows[l->dim[i]];
        return;
    }
    if (v->node->op->flags & TS_COVERED) {
        int n = ts_attr_list(v->node, "stride", &stride);
        n = n ? n : ts_attr_list(v->node, "kernel", &stride);
        for (int i = 0; i < l->rank; i++)
            if (l->dim[i] >= 2 && l->dim[i] - 2 < n && stride[l->dim[i] - 2] <= 4)
                l->step[i] = stride[l->dim[i] - 2];
    } else if (v->node->op->flags & TS_POINT)
        for (int i = 0; i < v->node->nin; i++)
            if (r->p->place[v->node->in[i]->id].home == TS_HOME_NONE)
                find_steps(r, v->node->in[i], shape, l);
}

/* The body at every combination of neighbours of the cut dims from d on. */
static void steps_body(ts_render *r, ts_emit *e, const ts_kernel *k, const loops *l, int d, int cut,
                       const ts_ix **phys, const ts_ix *lane)
{
    const ts_ix *at[TS_MAX_RANK], *base;
    int mark;

    while (d < cut && l->step[d] == 1)
        d++;
    if (d == cut) {
        logical(r, l, phys, lane, at);
        ts_render_body(e, k, at);
        return;
    }
    base = ts_ix_mul(r->a, phys[d], l->step[d]);
    for (int64_t o = 0; o < l->step[d]; o++) {
        const ts_ix *block = phys[d];
        const char *cond = ts_emit_inside(e, ts_ix_addc(r->a, base, o), l->size[d]);
        if (cond && cond[0]) {
            ts_emit_line(e, "if (%s) {", cond);
            ts_emit_open(e, &mark);
        }
        phys[d] = ts_ix_addc(r->a, base, o);
        if (cond)
            steps_body(r, e, k, l, d + 1, cut, phys, lane);
        phys[d] = block;
        if (cond && cond[0])
            ts_emit_close(e, mark);
    }
}

/* Logical coordinates from one index per physical dim and the lane. */
static void logical(ts_render *r, const loops *l, const ts_ix *const *phys, const ts_ix *lane,
                    const ts_ix **at)
{
    for (int i = 0; i < TS_MAX_RANK; i++)
        at[i] = ts_ix_const(r->a, 0);
    for (int i = 0; i < l->rank; i++)
        at[l->dim[i]] = phys[i];
    if (l->low) {
        at[l->under] = ts_ix_mod(r->a, phys[l->rank - 1], l->low);
        at[l->dim[l->rank - 1]] = ts_ix_div(r->a, phys[l->rank - 1], l->low);
    }
    if (l->lanes)
        at[l->lane_dim] = ts_ix_add(r->a, ts_ix_mul(r->a, at[l->lane_dim], l->lanes), lane);
}

/* The physical indices from a flat one over dims 0..count-1, of which `outer` is the slowest. */
static void unflatten(ts_render *r, const loops *l, int count, const ts_ix *flat_ix,
                      const ts_ix **phys)
{
    for (int i = count - 1; i >= 0; i--) {
        int64_t size = (l->size[i] + l->step[i] - 1) / l->step[i];
        if (i == l->outer)
            continue;
        phys[i] = ts_ix_mod(r->a, flat_ix, size);
        flat_ix = ts_ix_div(r->a, flat_ix, size);
    }
    if (count)
        phys[l->outer] = flat_ix;
}

/* The threads share a kernel along the dim in which the largest thing it reads was shared, so that
 * most of it comes from the cache of the core that wrote it. */
static void follow(ts_render *r, const ts_kernel *k, loops *l, int count)
{
    const ts_value *largest = NULL;

    for (int i = 0; i < k->nreads; i++) {
        const ts_value *v = k->reads[i];
        if (r->cut_dim[v->id] >= 0 && v->type.rank == k->roots[0]->type.rank &&
            (!largest || ts_type_bytes(&v->type) > ts_type_bytes(&largest->type)))
            largest = v;
    }
    for (int i = 0; largest && i < count; i++)
        if (l->dim[i] == r->cut_dim[largest->id] && l->size[i] > l->step[i])
            l->outer = i;
}

/* Of one core: its arithmetic in vectors and `more` loads, or its memory. */
static double cycles(const ts_render *r, const ts_kernel *k, double more)
{
    double bytes = 0;

    for (int i = 0; i < k->nreads; i++)
        bytes += (double)ts_type_bytes(&k->reads[i]->type);
    for (int i = 0; i < k->nroots; i++)
        bytes += (double)ts_type_bytes(&k->roots[i]->type);
    return ts_price_kernel(&r->m, k->sums + more, bytes);
}

static void loop_line(ts_emit *e, const char *var, const char *lo, const char *hi, int step)
{
    if (step == 1)
        ts_emit_line(e, "for (int64_t %s = %s; %s < %s; %s++) {", var, lo, var, hi, var);
    else
        ts_emit_line(e, "for (int64_t %s = %s; %s < %s; %s += %d) {", var, lo, var, hi, var, step);
}

/* Everything is one array: vectors of it, then the rest. Cut by vectors; the last piece also does
 * the tail. */
static void flat_kernel(ts_render *r, ts_emit *e, const ts_kernel *k, loops *l, ts_cut *cut)
{
    int64_t count = l->lanes ? l->lanes : 1, width = vector_ok(k) ? r->m.isa.width : 1, vectors;
    const ts_ix *phys[TS_MAX_RANK + 1], *at[TS_MAX_RANK], *flat_ix, *hi;
    int mark;

    for (int i = 0; i < l->rank; i++)
        count *= l->size[i];
    vectors = count / width;
    cut->count = vectors + (count % width != 0);
    cut->cycles = cycles(r, k, (double)count);
    cut->grain = ts_machine_grain(&r->m, cut->count, cut->cycles);
    if (vectors) {
        const ts_atom *i = ts_atom_var(r->a, "i", 0, vectors - 1),
                      *lane = ts_atom_var(r->a, "l", 0, width - 1);
        loop_line(e, "i", "lo", ts_arena_printf(r->a, "min(hi, %ld)", (long)vectors), 1);
        ts_emit_open(e, &mark);
        flat_ix =
            ts_ix_add(r->a, ts_ix_mul(r->a, ts_ix_var(r->a, i), width), ts_ix_var(r->a, lane));
        e->lane = width > 1 ? lane : NULL;
        e->lanes = width > 1 ? (int)width : 0;
        hi = l->lanes ? ts_ix_div(r->a, flat_ix, l->lanes) : flat_ix;
        unflatten(r, l, l->rank, hi, phys);
        logical(r, l, phys, l->lanes ? ts_ix_mod(r->a, flat_ix, l->lanes) : NULL, at);
        ts_render_body(e, k, at);
        e->lanes = 0;
        ts_emit_close(e, mark);
    }
    if (count % width) {
        const ts_atom *i = ts_atom_var(r->a, "i", vectors * width, count - 1);
        ts_emit_line(e, "if (hi == %ld)", (long)cut->count);
        loop_line(e, "i", ts_arena_printf(r->a, "%ld", (long)(vectors * width)),
                  ts_arena_printf(r->a, "%ld", (long)count), 1);
        ts_emit_open(e, &mark);
        flat_ix = ts_ix_var(r->a, i);
        hi = l->lanes ? ts_ix_div(r->a, flat_ix, l->lanes) : flat_ix;
        unflatten(r, l, l->rank, hi, phys);
        logical(r, l, phys, l->lanes ? ts_ix_mod(r->a, flat_ix, l->lanes) : NULL, at);
        ts_render_body(e, k, at);
        ts_emit_close(e, mark);
    }
}

/* The lanes as one vector; or one by one, as must be those of a last block that lane_dim does not
 * fill: what is beyond its size exists in this layout only, and the operands of other layouts end
 * before it. */
static void lanes_body(ts_render *r, ts_emit *e, const ts_kernel *k, const loops *l, int cut,
                       const ts_ix **phys, bool vec)
{
    int64_t size = k->roots[0]->type.dim[l->lane_dim], full = size / l->lanes,
            rest = size % l->lanes;
    const char *block = "";
    int mark, mark2, high = 0; /* the dim that counts blocks of lanes */

    while (l->dim[high] != l->lane_dim)
        high++;
    block = ts_ix_text(r->a, phys[high]);
    ts_emit_line(e, rest ? "if (%s < %ld) {" : "{", block, (long)full);
    ts_emit_open(e, &mark);
    if (vec) {
        e->lane = ts_atom_var(r->a, "l", 0, l->lanes - 1);
        e->lanes = l->lanes;
        steps_body(r, e, k, l, 0, cut, phys, ts_ix_var(r->a, e->lane));
        e->lanes = 0;
    } else {
        loop_line(e, "l", "0", ts_arena_printf(r->a, "%d", l->lanes), 1);
        ts_emit_open(e, &mark2);
        steps_body(r, e, k, l, 0, cut, phys,
                   ts_ix_var(r->a, ts_atom_var(r->a, "l", 0, l->lanes - 1)));
        ts_emit_close(e, mark2);
    }
    ts_emit_close(e, mark);
    if (!rest)
        return;
    ts_emit_line(e, "else {");
    ts_emit_open(e, &mark);
    loop_line(e, "l", ts_arena_printf(r->a, "%ld", (long)(full * l->lanes)),
              ts_arena_printf(r->a, "%ld", (long)size), 1);
    ts_emit_open(e, &mark2);
    phys[high] = ts_ix_const(r->a, 0);
    steps_body(r, e, k, l, 0, cut, phys,
               ts_ix_var(r->a, ts_atom_var(r->a, "l", full * l->lanes, size - 1)));
    ts_emit_close(e, mark2);
    ts_emit_close(e, mark);
}

/* The values that were written lane by lane since the last time: a load and an insertion for each
 * element, of which neighbours that are done together are written together. */
static void charge(ts_emit *e, ts_cut *cut, const loops *l, double elements)
{
    for (int i = 0; i < l->rank; i++)
        elements /= (double)l->step[i];
    cut->cycles += 2 * e->singles * elements;
    e->singles = 0;
}

/* Does the kernel read what it writes? Then nothing may be done twice. */
static bool updates(const ts_render *r, const ts_kernel *k)
{
    for (int i = 0; i < k->nroots; i++)
        if (r->p->place[k->roots[i]->id].alias)
            return true;
    return false;
}

/* Are there too few outer elements for the threads? Then long sums are shared vector by vector. */
static bool by_vectors(const ts_render *r, const ts_kernel *k, int64_t count, int64_t vectors)
{
    return k->anchor && count < 2 * r->m.cores && vectors > 1;
}

/* A vector of the innermost dim, in units of it, so that div and mod by it simplify. */
static void vector_body(ts_render *r, ts_emit *e, const ts_kernel *k, const loops *l, int inner,
                        const ts_ix **phys, const ts_ix *b, int64_t width)
{
    e->lane = ts_atom_var(r->a, "l", 0, width - 1);
    e->lanes = (int)width;
    phys[inner] = ts_ix_add(r->a, ts_ix_mul(r->a, b, width), ts_ix_var(r->a, e->lane));
    steps_body(r, e, k, l, 0, inner, phys, NULL);
    e->lanes = 0;
}

/* What is left behind the vectors: one that does some elements again, or one by one. */
static void rest_body(ts_render *r, ts_emit *e, const ts_kernel *k, const loops *l, int inner,
                      const ts_ix **phys, int64_t width, ts_cut *cut)
{
    int64_t size = l->size[inner], main_part = size / width * width;
    double rows = (double)(ts_type_count(&k->roots[0]->type) / size);
    int mark;

    if (!updates(r, k)) {
        while (width > 4 && width / 2 >= size - main_part)
            width /= 2;
        ts_emit_line(e, "{");
        ts_emit_open(e, &mark);
        e->lane = ts_atom_var(r->a, "l", 0, width - 1);
        e->lanes = (int)width;
        phys[inner] = ts_ix_addc(r->a, ts_ix_var(r->a, e->lane), size - width);
        steps_body(r, e, k, l, 0, inner, phys, NULL);
        e->lanes = 0;
        ts_emit_close(e, mark);
        charge(e, cut, l, rows * (double)width);
        return;
    }
    loop_line(e, "x", ts_arena_printf(r->a, "%ld", (long)main_part),
              ts_arena_printf(r->a, "%ld", (long)size), 1);
    ts_emit_open(e, &mark);
    phys[inner] = ts_ix_var(r->a, ts_atom_var(r->a, "x", main_part, size - 1));
    steps_body(r, e, k, l, 0, inner, phys, NULL);
    ts_emit_close(e, mark);
}

/* Makes one dim of the last two, where the last is 2 or 4 elements and both are whole vectors: the channels of a group
 * that a norm cut them into. What each group has once is loaded so (emit.c, repeated); one by one, such a kernel took 4
 * times as long. */
static void join_short(const ts_render *r, loops *l)
{
    int64_t low = l->rank > 1 ? l->size[l->rank - 1] : 0, width = r->m.isa.width;

    if ((low != 2 && low != 4) || 4 * low > width || l->lanes || l->size[l->rank - 2] * low % width)
        return;
    l->low = low;
    l->under = l->dim[--l->rank];
    l->size[l->rank - 1] *= low;
}

/* Outer dims flattened into the cut, the innermost one in vectors; the last vector may do some
 * elements of the one before again, rather than a few one by one. */
static void nest_kernel(ts_render *r, ts_emit *e, const ts_kernel *k, loops *l, ts_cut *cut)
{
    bool vec = vector_ok(k) && !reduces_across(k), shared;
    int inner; /* dims that are cut */
    int64_t count = 1, size, width, vectors;
    const ts_ix *phys[TS_MAX_RANK + 1], *i, *b;
    int mark, mark2;

    if (vec && !k->copy)
        join_short(r, l);
    inner = l->lanes ? l->rank : l->rank - 1;
    /* one output at a time, or an innermost dim shorter than a vector: cut everything */
    if (!l->lanes && (l->rank == 0 || !vec || l->size[inner] < 4))
        inner = l->rank;
    for (int n = 0; n < k->nroots && !k->copy; n++)
        find_steps(r, k->roots[n], &k->roots[0]->type, l);
    for (int d = inner; d < l->rank; d++)
        l->step[d] = 1; /* the innermost dim is the vectors' */
    for (int d = 0; d < inner; d++)
        count *= (l->size[d] + l->step[d] - 1) / l->step[d];
    size = inner < l->rank ? l->size[inner] : 1;
    width = size >= r->m.isa.width ? r->m.isa.width : size >= 8 ? 8 : 4;
    vectors = size / width;
    shared = by_vectors(r, k, count, vectors);
    if (!shared)
        follow(r, k, l, inner);
    cut->count = shared ? count * vectors : count;
    cut->cycles = cycles(r, k, 0);
    cut->grain = ts_machine_grain(&r->m, cut->count, cut->cycles);
    loop_line(e, "i", "lo", "hi", 1);
    ts_emit_open(e, &mark);
    i = ts_ix_var(r->a, ts_atom_var(r->a, "i", 0, cut->count - 1));
    unflatten(r, l, inner, shared ? ts_ix_div(r->a, i, vectors) : i, phys);
    if (l->lanes) {
        lanes_body(r, e, k, l, inner, phys, vec);
        ts_emit_close(e, mark);
        return;
    }
    if (inner == l->rank) {
        steps_body(r, e, k, l, 0, inner, phys, NULL);
        ts_emit_close(e, mark);
        return;
    }
    b = shared ? ts_ix_mod(r->a, i, vectors)
               : ts_ix_var(r->a, ts_atom_var(r->a, "b", 0, vectors - 1));
    if (shared)
        ts_emit_line(e, "{");
    else
        loop_line(e, "b", "0", ts_arena_printf(r->a, "%ld", (long)vectors), 1);
    ts_emit_open(e, &mark2);
    vector_body(r, e, k, l, inner, phys, b, width);
    ts_emit_close(e, mark2);
    charge(e, cut, l, (double)(ts_type_count(&k->roots[0]->type) / size * vectors * width));
    if (vectors * width < size) {
        if (shared)
            ts_emit_line(e, "if (%s == %ld) {", ts_ix_text(r->a, b), (long)(vectors - 1));
        if (shared)
            ts_emit_open(e, &mark2);
        rest_body(r, e, k, l, inner, phys, width, cut);
        if (shared)
            ts_emit_close(e, mark2);
    }
    ts_emit_close(e, mark);
}

/* The last dim before `end` that has several elements; -1: none. */
static int long_dim(const ts_value *v, int end)
{
    while (--end >= 0 && v->type.dim[end] == 1)
        ;
    return end;
}

/* The dim of rows side by side that the kernel can make together; -1: none. Rows below each other are worth it where each
 * is a chain of steps, and not where they are looked up. */
static int column_dim(const ts_kernel *k, int row)
{
    const ts_value *v = k->roots[0];
    int last = long_dim(v, v->type.rank);

    for (int i = 0; v->layout.set && i < v->type.rank; i++)
        if (v->layout.order[i] != i || v->layout.lanes > 1)
            return -1;
    if (last == row && k->anchor->nin == 1)
        last = long_dim(v, row);
    return last != row && k->anchor->op->flags & TS_BESIDE ? last : -1;
}

/* So many columns together that all cores have some, if there are enough; vectors that a core keeps in registers. */
static int64_t columns_together(const ts_render *r, const ts_value *v, bool below, int64_t rows,
                                int64_t columns)
{
    int64_t width = below ? 8 : r->m.isa.width,
            each = below || wide(v->type.dtype) ? width : 4 * width;

    while (each > width && rows * ((columns + each - 1) / each) < 2 * r->m.cores)
        each /= 2;
    return TS_MIN(each, columns);
}

/* The rows at `at` and the columns after it: whole pieces, or the last one. */
static void columns_body(ts_render *r, ts_emit *e, const ts_kernel *k, const ts_ix **at,
                         const ts_ix *piece, int64_t each)
{
    int64_t size = k->roots[0]->type.dim[e->column], pieces = size / each;
    bool whole = size % each == 0;
    int mark;

    e->columns = each;
    at[e->column] = ts_ix_mul(r->a, piece, each);
    if (!whole) {
        ts_emit_line(e, "if (%s < %ld) {", ts_ix_text(r->a, piece), (long)pieces);
        ts_emit_open(e, &mark);
    }
    ts_render_body(e, k, at);
    if (whole)
        return;
    ts_emit_close(e, mark);
    ts_emit_line(e, "else {");
    ts_emit_open(e, &mark);
    e->columns = size % each;
    at[e->column] = ts_ix_const(r->a, pieces * each);
    ts_render_body(e, k, at);
    ts_emit_close(e, mark);
}

/* The threads share the rows. */
static void rows_kernel(ts_render *r, ts_emit *e, const ts_kernel *k, ts_cut *cut)
{
    const ts_type *t = &k->roots[0]->type;
    int dim = ts_render_row_dim(k), column = column_dim(k, dim), mark;
    const ts_ix *at[TS_MAX_RANK], *rest, *piece = NULL;
    int64_t rows = ts_type_count(t) / t->dim[dim], size = column < 0 ? 1 : t->dim[column];
    int64_t each =
                column < 0 ? 1 : columns_together(r, k->roots[0], column < dim, rows / size, size),
            pieces = (size + each - 1) / each;

    cut->count = rows / size * pieces;
    cut->cycles = cycles(r, k, 0);
    cut->grain = ts_machine_grain(&r->m, cut->count, cut->cycles);
    loop_line(e, "row", "lo", "hi", 1);
    ts_emit_open(e, &mark);
    rest = ts_ix_var(r->a, ts_atom_var(r->a, "row", 0, cut->count - 1));
    for (int d = t->rank - 1; d >= 0; d--) {
        int64_t n = d == dim ? 1 : d == column ? pieces : t->dim[d];
        at[d] = ts_ix_mod(r->a, rest, n);
        rest = ts_ix_div(r->a, rest, n);
        piece = d == column ? at[d] : piece;
    }
    e->column = TS_MAX(column, 0);
    e->width = r->m.isa.width;
    if (column < 0)
        ts_render_body(e, k, at);
    else
        columns_body(r, e, k, at, piece, each);
    ts_emit_close(e, mark);
}

ts_status ts_render_loops(ts_render *r, const ts_kernel *k, ts_cut *cut)
{
    ts_emit e;
    loops l;

    if (k->nroots > TS_MAX_ROOTS)
        return ts_fail(TS_ERR_INTERNAL, "a kernel with %d roots", k->nroots);
    ts_render_emitter(r, &e);
    cut->cycles = 0;
    if (ts_render_row_dim(k) >= 0) {
        rows_kernel(r, &e, k, cut);
        return TS_OK;
    }
    physical(k->roots[0], &l);
    if (ts_render_is_flat(r, k))
        flat_kernel(r, &e, k, &l, cut);
    else
        nest_kernel(r, &e, k, &l, cut);
    charge(&e, cut, &l, (double)ts_type_count(&k->roots[0]->type));
    while (l.outer + 1 < l.rank && l.size[l.outer] == 1)
        l.outer++;
    cut->dim = l.rank ? l.dim[l.outer] : -1;
    return TS_OK;
}
