/* tile_load.c - operands of a tile: from memory to shared memory.
 *
 * A thread loads units of a side. Where neighbours of an operand lie side by side in memory, a unit
 * is 16 bytes that go to shared memory as they are, while the threads do something else (cp.async).
 * Where not, an element is what its emit rule says, in a register on its way: so operands that are
 * computed, and padding, cost no more than here and there an instruction. What lies along the depth
 * in memory does so in shared memory too, shared[side][depth], and else shared[depth][side].
 *
 * Along the depth a step is a block of its axes, if their sizes allow: a convolution with 64
 * channels takes 16 of them at one tap. Then what a step has in common is worked out once, and what
 * an axis of the side is does not change from step to step and is worked out before.
 */
#include "gpu/tile.h"

static const ts_affine *affine(const ts_tiles *t, int operand)
{
    return operand ? t->s.b : t->s.a;
}

static bool is_half(const ts_tiles *t)
{
    return t->half != TS_F32;
}

/* --- what lies side by side --- */

/* The coordinates of an operand. */
static void operand_at(ts_tiles *t, int operand, const ts_ix *const *axes, const ts_ix **at)
{
    for (int d = 0; d < t->n->in[operand]->type.rank; d++)
        at[d] = ts_spec_ix(t->w->r->a, &affine(t, operand)[d], t->s.naxes, axes);
}

/* Where the operand's element is, with a variable for each axis; `unit` of them along `axis`. */
static const ts_ix *address(ts_tiles *t, int operand, int axis, int unit, const ts_atom **atom)
{
    ts_arena *a = t->w->r->a;
    const ts_ix *axes[TS_AXES], *at[TS_MAX_RANK];

    for (int i = 0; i < t->s.naxes; i++) {
        int64_t n = i == axis ? t->s.extent[i] / unit : t->s.extent[i];
        const ts_atom *x = ts_atom_var(a, t->s.axis[i], 0, TS_MAX(1, n) - 1);
        *atom = i == axis ? x : *atom;
        axes[i] = ts_ix_mul(a, ts_ix_var(a, x), i == axis ? unit : 1);
    }
    operand_at(t, operand, axes, at);
    return ts_render_address(t->w->r, t->n->in[operand], at);
}

int64_t ts_tile_stride(ts_tiles *t, int operand, int axis)
{
    const ts_atom *atom = NULL;
    const ts_ix *x = address(t, operand, axis, 1, &atom);

    return x && ts_ix_linear(x, atom) ? ts_ix_coef(x, atom) : 0;
}

/* 0 where the axis is straight, or nothing can be said. */
int64_t ts_tile_period(ts_tiles *t, int operand, int axis,
                       int64_t (*period)(const ts_ix *x, const ts_atom *atom))
{
    const ts_atom *atom = NULL;
    const ts_ix *x = address(t, operand, axis, 1, &atom);

    return x && !ts_ix_linear(x, atom) ? period(x, atom) : 0;
}

/* Does every unit along the axis begin at 16 bytes? */
static bool is_aligned(ts_tiles *t, int operand, int axis, int unit)
{
    const ts_atom *atom = NULL;
    const ts_ix *x = address(t, operand, axis, unit, &atom);

    if (!x || x->c % unit)
        return false;
    for (int i = 0; i < x->n; i++)
        if (x->t[i].k % unit)
            return false;
    return true;
}

/* Is the operand there along the whole axis, wherever the others are? */
static bool is_whole(ts_tiles *t, int operand, int axis)
{
    ts_arena *a = t->w->r->a;
    const ts_type *type = &t->n->in[operand]->type;
    const ts_ix *axes[TS_AXES], *at[TS_MAX_RANK];
    int64_t lo, hi;

    for (int i = 0; i < t->s.naxes; i++)
        axes[i] = ts_ix_var(a, ts_atom_var(a, t->s.axis[i], 0, t->s.extent[i] - 1));
    operand_at(t, operand, axes, at);
    for (int d = 0; d < type->rank; d++) {
        const ts_affine *f = &affine(t, operand)[d];
        ts_ix_range(at[d], &lo, &hi);
        if (f->div > 1 || (f->k[axis] && (lo < 0 || hi >= type->dim[d])))
            return false;
    }
    return true;
}

/* The tensor in memory that the operand is, seen through views, and as halves through the cast that
 * widens them; NULL if it is computed. */
static const ts_value *plain(ts_tiles *t, int operand)
{
    const ts_program *p = t->w->r->p;
    const ts_value *v = t->n->in[operand];
    bool widened = false;

    while (p->place[v->id].home == TS_HOME_NONE) {
        const ts_node *n = v->node;
        bool cast = n->op == TS_OP(cast) && n->in[0]->type.dtype == t->half && !widened;
        if (!cast && !(n->op->flags & TS_VIEW && !(n->op->flags & TS_PATCH)))
            return NULL;
        widened = widened || cast;
        v = n->in[0];
    }
    if (v->type.dtype != t->half)
        return NULL;
    if (p->place[v->id].home == TS_HOME_INPUT && ts_layout_bytes(v) % 16)
        return NULL;
    if (p->place[v->id].home == TS_HOME_BLOCK && ts_place_spot(p, v, t->w->k->device)->shares)
        return NULL;
    return v;
}

static bool is_vector(ts_tiles *t, const ts_side *s, int axis, int64_t run)
{
    int unit = is_half(t) ? 8 : 4;

    return run % unit == 0 && ts_tile_stride(t, s->operand, axis) == 1 &&
           is_aligned(t, s->operand, axis, unit) && is_whole(t, s->operand, axis);
}

void ts_tile_choose_units(ts_tiles *t, ts_side *s)
{
    const ts_side *d = &t->depth;
    int last = s->naxes ? s->axis[s->naxes - 1] : -1,
        deepest = d->naxes ? d->axis[d->naxes - 1] : -1;
    int64_t along = last >= 0 ? ts_tile_stride(t, s->operand, last) : 0,
            deep = deepest >= 0 ? ts_tile_stride(t, s->operand, deepest) : 0;

    s->unit = is_half(t) ? 8 : 4;
    s->stored = plain(t, s->operand);
    s->vector = s->deep = s->lies_deep = s->turned = false;
    if (s->stored && t->regular && last >= 0)
        s->vector = is_vector(t, s, last, t->s.extent[last]);
    if (s->stored && t->regular && !s->vector && deepest >= 0)
        s->vector = s->deep = s->lies_deep = is_vector(t, s, deepest, t->block[d->naxes - 1]);
    if (s->vector)
        return;
    s->turned = along != 1 && along != -1 && (deep == 1 || deep == -1);
    s->unit = is_half(t) ? 8 : 1;
    s->deep = is_half(t) || s->turned;
    s->lies_deep = is_half(t);
}

/* --- which unit --- */

/* The first element of a thread's unit j: its places along the side and the depth. */
static void unit_at(const ts_tiles *t, const ts_side *s, const ts_atom *local, int j,
                    const ts_ix **side, const ts_ix **deep)
{
    ts_arena *a = t->w->r->a;
    const ts_ix *q = ts_ix_addc(a, ts_ix_var(a, local), (int64_t)j * t->threads);
    int along = s->tile / (s->deep ? 1 : s->unit), down = t->step / (s->deep ? s->unit : 1);

    if (s->deep && (s->vector || s->turned)) {
        *side = ts_ix_div(a, q, down);
        *deep = ts_ix_mod(a, q, down);
    } else {
        *side = ts_ix_mod(a, q, along);
        *deep = ts_ix_div(a, q, along);
    }
    *side = ts_ix_mul(a, *side, s->deep ? 1 : s->unit);
    *deep = ts_ix_mul(a, *deep, s->deep ? s->unit : 1);
}

static int units(const ts_tiles *t, const ts_side *s)
{
    return s->tile * t->step / s->unit;
}

/* "LOCAL" of those threads that have a unit. */
static const ts_atom *local_of(const ts_tiles *t, const ts_side *s)
{
    return ts_atom_var(t->w->r->a, "LOCAL", 0, TS_MIN(t->threads, units(t, s)) - 1);
}

/* --- before the steps --- */

void ts_tile_decode(ts_tiles *t, const ts_side *s, const char *number, const char **names)
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

const ts_ix *ts_tile_axis(ts_tiles *t, const char *name, int axis)
{
    ts_arena *a = t->w->r->a;

    return ts_ix_var(a, ts_atom_var(a, name, 0, t->s.extent[axis] - 1));
}

/* "const int32_t m3 = min(first + place, size - 1)", and whether that is it. */
static const char *clamped(ts_tiles *t, const char *first, const char *at, int64_t size, bool fits,
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

/* Place p of the side, in units where those lie along it: C variables for its axes. */
static void prepare_place(ts_tiles *t, ts_side *s, int p, const ts_ix *at)
{
    ts_emit *e = t->w->e;
    ts_arena *a = e->a;
    int unit = s->deep ? 1 : s->unit;
    const char *first = ts_arena_printf(a, unit > 1 ? "%s_first / %d" : "%s_first", s->name, unit),
               *m = clamped(t, first, ts_ix_text(a, ts_ix_div(a, at, unit)), s->size / unit,
                            s->size % s->tile == 0, &s->inside[p]);
    const ts_ix *rest = ts_ix_var(a, ts_atom_var(a, m, 0, TS_MAX(1, s->size / unit) - 1));

    for (int i = s->naxes - 1; i >= 0; i--) {
        int64_t by = i == s->naxes - 1 ? unit : 1, n = t->s.extent[s->axis[i]] / by;
        const char *name = ts_emit_name(e, t->s.axis[s->axis[i]]);
        ts_emit_line(e, "const %s %s = %s;", e->index, name, ts_ix_text(a, ts_ix_mod(a, rest, n)));
        s->index[i][p] = ts_ix_mul(a, ts_ix_var(a, ts_atom_var(a, name, 0, n - 1)), by);
        rest = ts_ix_div(a, rest, n);
    }
}

void ts_tile_prepare(ts_tiles *t, ts_side *s)
{
    ts_arena *a = t->w->r->a;
    const ts_atom *local = local_of(t, s);
    const ts_ix **known, *deep;
    int n = 0;

    s->loads = (int)ts_tile_up(units(t, s), t->threads);
    s->place = TS_NEWS(a, int, s->loads);
    s->inside = TS_NEWS(a, const char *, s->loads);
    known = TS_NEWS(a, const ts_ix *, s->loads);
    for (int i = 0; i < s->naxes; i++)
        s->index[i] = TS_NEWS(a, const ts_ix *, s->loads);
    for (int j = 0; j < s->loads; j++) {
        int p = 0;
        unit_at(t, s, local, j, &known[n], &deep);
        while (!ts_ix_same(known[p], known[n]))
            p++;
        s->place[j] = p;
        if (p == n)
            prepare_place(t, s, n++, known[p]);
    }
    if (s->vector)
        return;
    if (is_half(t))
        ts_emit_line(t->w->e, "uint32_t %s_next[%d];", s->name, 4 * s->loads);
    else
        ts_emit_line(t->w->e, "float %s_next[%d];", s->name, s->unit * s->loads);
}

/* --- a step --- */

/* Which block of each axis of the depth the step is: once for all loads. */
void ts_tile_find_step(ts_tiles *t, const char **blocks)
{
    ts_emit *e = t->w->e;
    ts_arena *a = e->a;
    int64_t all = ts_tile_up(t->depth.size, t->step);
    const ts_ix *rest = ts_ix_var(a, ts_atom_var(a, "next", 0, all - 1));

    for (int i = t->depth.naxes - 1; i >= 0 && t->regular; i--) {
        blocks[i] = NULL;
        if (t->outer[i] == 1)
            continue;
        blocks[i] = ts_emit_name(e, t->s.axis[t->depth.axis[i]]);
        ts_emit_line(e, "const %s %s = %s;", e->index, blocks[i],
                     ts_ix_text(a, ts_ix_mod(a, rest, t->outer[i])));
        rest = ts_ix_div(a, rest, t->outer[i]);
    }
}

/* The depth's axes at `deep` in the step. Returns a condition or NULL. */
static const char *deep_axes(ts_tiles *t, const ts_ix *deep, const char *const *blocks,
                             const ts_ix **axes)
{
    ts_arena *a = t->w->r->a;
    const ts_side *d = &t->depth;
    const char *names[TS_AXES], *inside, *k;

    if (!t->regular) {
        k = clamped(t, ts_arena_printf(a, "next * %d", t->step), ts_ix_text(a, deep), d->size,
                    d->size % t->step == 0, &inside);
        ts_tile_decode(t, d, k, names);
        for (int i = 0; i < d->naxes; i++)
            axes[d->axis[i]] = ts_tile_axis(t, names[i], d->axis[i]);
        return inside;
    }
    for (int i = d->naxes - 1; i >= 0; i--) {
        const ts_ix *x = ts_ix_mod(a, deep, t->block[i]);
        deep = ts_ix_div(a, deep, t->block[i]);
        if (blocks[i])
            x = ts_ix_add(a, x,
                          ts_ix_mul(a, ts_ix_var(a, ts_atom_var(a, blocks[i], 0, t->outer[i] - 1)),
                                    t->block[i]));
        axes[d->axis[i]] = x;
    }
    return NULL;
}

static const char * and (ts_arena * a, const char *x, const char *y)
{
    if (!x || !x[0] || !y || !y[0])
        return x && x[0] ? x : y && y[0] ? y : NULL;
    return ts_arena_printf(a, "%s && %s", x, y);
}

/* Where a unit is in shared memory. */
static const char *kept_at(const ts_tiles *t, const ts_side *s, const ts_ix *side,
                           const ts_ix *deep)
{
    ts_arena *a = t->w->r->a;
    int pitch = ts_tile_pitch(t, s);

    return ts_ix_text(a, s->lies_deep ? ts_ix_add(a, ts_ix_mul(a, side, pitch), deep)
                                      : ts_ix_add(a, ts_ix_mul(a, deep, pitch), side));
}

static void copy_vector(ts_tiles *t, const ts_side *s, const char *to, const ts_ix **axes,
                        const char *cond)
{
    ts_emit *e = t->w->e;
    const ts_type *type = &t->n->in[s->operand]->type;
    const ts_ix *at[TS_MAX_RANK];

    operand_at(t, s->operand, axes, at);
    for (int d = 0; d < type->rank; d++)
        cond = and(e->a, cond, ts_emit_inside(e, at[d], type->dim[d]));
    ts_emit_line(e, "COPY16(%s_to + %s, %s + %s, %s)", s->name, to, e->pointer(e->where, s->stored),
                 ts_ix_text(e->a, ts_render_address(t->w->r, t->n->in[s->operand], at)),
                 cond ? cond : "1");
}

/* Element i of unit j, as the emit rule has it. */
static const char *element(ts_tiles *t, const ts_side *s, const ts_ix *deep, int i,
                           const ts_ix **axes, const char *const *blocks, const char *cond)
{
    ts_emit *e = t->w->e;
    const char *inside = deep_axes(t, ts_ix_addc(e->a, deep, i), blocks, axes), *x;

    x = ts_emit_operand(e, t->n, s->operand, &t->s, axes);
    cond = and(e->a, cond, inside);
    return cond ? ts_arena_printf(e->a, "(%s ? %s : 0.0f)", cond, x) : x;
}

/* Two halves, which the floats are: no rounding. */
static void put_pair(ts_tiles *t, const ts_side *s, int at, const char *low, const char *high)
{
    ts_emit *e = t->w->e;

    if (t->half == TS_BF16)
        ts_emit_line(e, "%s_next[%d] = AS_BITS(%s) >> 16 | (AS_BITS(%s) & 0xffff0000u);", s->name,
                     at, low, high);
    else
        ts_emit_line(e, "%s_next[%d] = (uint32_t)f32_to_f16(%s) | (uint32_t)f32_to_f16(%s) << 16;",
                     s->name, at, low, high);
}

static void load_one(ts_tiles *t, const ts_side *s, const ts_atom *local, int j, const ts_ix **axes,
                     const char *const *blocks)
{
    ts_emit *e = t->w->e;
    const ts_ix *side, *deep;
    const char *cond = s->inside[s->place[j]];
    int mark;

    ts_emit_line(e, "{");
    ts_emit_open(e, &mark);
    unit_at(t, s, local, j, &side, &deep);
    for (int i = 0; i < s->naxes; i++)
        axes[s->axis[i]] = s->index[i][s->place[j]];
    if (s->vector) {
        deep_axes(t, deep, blocks, axes);
        copy_vector(t, s, kept_at(t, s, side, deep), axes, cond);
    } else if (is_half(t))
        for (int i = 0; i < s->unit; i += 2) {
            const char *low = element(t, s, deep, i, axes, blocks, cond);
            put_pair(t, s, 4 * j + i / 2, low, element(t, s, deep, i + 1, axes, blocks, cond));
        }
    else
        ts_emit_line(e, "%s_next[%d] = %s;", s->name, j,
                     element(t, s, deep, 0, axes, blocks, cond));
    ts_emit_close(e, mark);
}

/* Threads without a unit stay out. */
static bool some_idle(const ts_tiles *t, const ts_side *s)
{
    return units(t, s) < t->threads;
}

void ts_tile_load(ts_tiles *t, const ts_side *s, const ts_ix **axes, const char *const *blocks)
{
    const ts_atom *local = local_of(t, s);
    int mark;

    if (some_idle(t, s)) {
        ts_emit_line(t->w->e, "if (LOCAL < %d) {", units(t, s));
        ts_emit_open(t->w->e, &mark);
    }
    for (int j = 0; j < s->loads; j++)
        load_one(t, s, local, j, axes, blocks);
    if (some_idle(t, s))
        ts_emit_close(t->w->e, mark);
}

/* --- to shared memory --- */

int ts_tile_pitch(const ts_tiles *t, const ts_side *s)
{
    return (s->lies_deep ? t->step : s->tile) + (is_half(t) ? TS_TILE_HALF_PAD : TS_TILE_PAD);
}

int ts_tile_buffer(const ts_tiles *t, const ts_side *s)
{
    return (s->lies_deep ? s->tile : t->step) * ts_tile_pitch(t, s);
}

void ts_tile_keep(ts_tiles *t, const ts_side *s)
{
    ts_emit *e = t->w->e;
    const ts_atom *local = local_of(t, s);
    const ts_ix *side, *deep;

    if (s->vector)
        return;
    if (some_idle(t, s))
        ts_emit_line(e, "if (LOCAL < %d) {", units(t, s));
    for (int j = 0; j < s->loads; j++) {
        unit_at(t, s, local, j, &side, &deep);
        if (is_half(t))
            ts_emit_line(e, "PUT_AS(uint4, %s_to + %s, %s_next, %d)", s->name,
                         kept_at(t, s, side, deep), s->name, 4 * j);
        else
            ts_emit_line(e, "%s_to[%s] = %s_next[%d];", s->name, kept_at(t, s, side, deep), s->name,
                         j);
    }
    if (some_idle(t, s))
        ts_emit_line(e, "}");
}
