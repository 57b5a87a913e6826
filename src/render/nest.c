/* nest.c - the loops of an exported kernel: one thread, no vectors, every dim a loop of its own.
 *
 * A plain loop nest sums one element of a contraction after the other. No compiler may reorder such
 * a sum, so none makes vectors of it. Two forms can be vectors, and are quick without:
 *
 *   row   for (c, y, x)                    a row of the result is summed at once: convolutions,
 *             for (i) s[i] += w * a[i];    and matrices that lie along the result
 *   dot   for (k)                          eight sums side by side: both operands lie along the
 *             s0 += a[8 * k] * b[8 * k],   summed axis, as in a linear layer. Written out, because
 *             s1 += a[8 * k + 1] * ...     gcc -O2 keeps an array of sums in memory: 88 us, not 21
 *
 *   whole  for (ky, kx) for (c)            integers: any order gives the same sum, so the plain loop
 *              s += a[c] * b[c];           is one that compilers make vectors of
 *
 * Padding is clipped out of a row. What neither form takes (a transposed convolution with a stride,
 * operands that are computed on the way) stays a plain nest.
 */
#include "render/render.h"

enum { WAYS = 8, LONGEST_ROW = 1024 }; /* a row is on the stack */

typedef struct contraction {
    ts_render *r;
    ts_emit *e;
    const ts_kernel *k;
    const ts_node *n;
    ts_spec s;
    int rank;                      /* of the result */
    int row;                       /* the axis that is its last dim, or -1 */
    int along;                     /* the operand that a row runs along: 0 or 1 */
    const ts_ix *axes[TS_AXES];    /* what each axis is, as far as its loop is open */
    const ts_ix *out[TS_MAX_RANK]; /* the result's coordinates */
    const ts_ix *at[2][TS_MAX_RANK];
} contraction;

/* --- operands --- */

static const ts_affine *affine(const contraction *c, int operand)
{
    return operand ? c->s.b : c->s.a;
}

static void coordinates(contraction *c, int operand)
{
    for (int d = 0; d < c->n->in[operand]->type.rank; d++)
        c->at[operand][d] = ts_spec_ix(c->e->a, &affine(c, operand)[d], c->s.naxes, c->axes);
}

/* How far apart in memory the neighbours along an axis are in both operands; false when that cannot
 * be said. */
static bool steps(contraction *c, int axis, int64_t step[2])
{
    const ts_atom *atoms[TS_AXES];

    for (int i = 0; i < c->s.naxes; i++) {
        atoms[i] = ts_atom_var(c->e->a, c->s.axis[i], 0, c->s.extent[i] - 1);
        c->axes[i] = ts_ix_var(c->e->a, atoms[i]);
    }
    for (int o = 0; o < 2; o++) {
        const ts_ix *address;
        coordinates(c, o);
        address = ts_render_address(c->r, c->n->in[o], c->at[o]);
        if (!address || !ts_ix_linear(address, atoms[axis]))
            return false;
        step[o] = ts_ix_coef(address, atoms[axis]);
    }
    return true;
}

static bool divides(const contraction *c)
{
    for (int o = 0; o < 2; o++)
        for (int d = 0; d < c->n->in[o]->type.rank; d++)
            if (affine(c, o)[d].div > 1)
                return true;
    return false;
}

static bool uses(const contraction *c, int operand, int d, int axis)
{
    return affine(c, operand)[d].k[axis] != 0;
}

/* The condition for the coordinates to be inside, of the dims that do not run along `axis`. */
static const char *inside(contraction *c, int axis)
{
    const char *all = "";

    for (int o = 0; o < 2; o++)
        for (int d = 0; d < c->n->in[o]->type.rank && all; d++) {
            const char *one = "";
            if (axis < 0 || !uses(c, o, d, axis))
                one = ts_emit_inside(c->e, c->at[o][d], c->n->in[o]->type.dim[d]);
            all = !one      ? NULL
                  : !one[0] ? all
                  : all[0]  ? ts_arena_printf(c->e->a, "%s && %s", all, one)
                            : one;
        }
    return all;
}

/* --- loops --- */

static void open_outputs(contraction *c, int dims, int *marks)
{
    const ts_type *t = &c->n->out[0]->type;

    for (int d = 0; d < dims; d++) {
        c->out[d] = ts_ix_const(c->e->a, 0);
        marks[d] = -1;
        if (t->dim[d] == 1)
            continue;
        c->out[d] = ts_ix_var(c->e->a, ts_emit_loop(c->e, "i", 0, t->dim[d]));
        ts_emit_open(c->e, &marks[d]);
    }
}

static void close(contraction *c, int n, const int *marks)
{
    while (n--)
        if (marks[n] >= 0)
            ts_emit_close(c->e, marks[n]);
}

/* Loops over the summed axes up to `last`, and inside them what must hold. */
static void open_sums(contraction *c, int last, int *marks)
{
    for (int i = c->s.nout; i < last; i++) {
        c->axes[i] = ts_ix_const(c->e->a, 0);
        marks[i] = -1;
        if (c->s.extent[i] == 1)
            continue;
        c->axes[i] = ts_ix_var(c->e->a, ts_emit_loop(c->e, c->s.axis[i], 0, c->s.extent[i]));
        ts_emit_open(c->e, &marks[i]);
    }
}

static void close_sums(contraction *c, int last, const int *marks)
{
    close(c, last - c->s.nout, marks + c->s.nout);
}

static void add_product(contraction *c, const char *sum)
{
    const char *x = ts_emit_at(c->e, c->n->in[0], c->at[0]),
               *y = ts_emit_at(c->e, c->n->in[1], c->at[1]);

    ts_emit_product(c->e, c->n->out[0]->type.dtype, sum, x, y);
}

/* What comes after the sum: the kernel's roots at the result's coordinates. */
static void finish(contraction *c, const char *sum)
{
    ts_emit_bind(c->e, c->n->out[0], c->out, sum);
    ts_render_body(c->e, c->k, c->out);
}

/* --- a row at once --- */

/* Narrows lo and hi, C texts, to where k * row + rest is inside 0..size-1. */
static void clip(contraction *c, int operand, int d, const char **lo, const char **hi)
{
    ts_arena *a = c->e->a;
    int64_t k = affine(c, operand)[d].k[c->row], size = c->n->in[operand]->type.dim[d], least, most,
            extent = c->s.extent[c->row];
    const ts_ix *rest = c->at[operand][d]; /* the row's axis is 0 here */
    const char *text = ts_ix_text(a, rest), *name;

    ts_ix_range(rest, &least, &most);
    if (least < 0) {
        name = ts_emit_name(c->e, "lo");
        ts_emit_line(c->e, "const int32_t %s = %s < 0 ? (%ld - (%s)) / %ld : 0;", name, text,
                     (long)k - 1, text, (long)k);
        *lo = name;
    }
    if (most + k * (extent - 1) >= size) {
        name = ts_emit_name(c->e, "hi");
        ts_emit_line(c->e, "const int32_t %s = %s > %ld ? (%ld - (%s)) / %ld : %ld;", name, text,
                     (long)(size - 1 - k * (extent - 1)), (long)(size - 1 + k), text, (long)k,
                     (long)extent);
        *hi = name;
    }
}

/* s[x] += w * a[x] for the part of the row where a is inside. */
static void add_row(contraction *c, const char *s)
{
    ts_arena *a = c->e->a;
    int other = 1 - c->along, mark;
    int64_t extent = c->s.extent[c->row];
    const char *lo = "0", *hi = ts_arena_printf(a, "%ld", (long)extent), *x;

    c->axes[c->row] = ts_ix_const(a, 0);
    coordinates(c, 0);
    coordinates(c, 1);
    ts_emit_at(c->e, c->n->in[other], c->at[other]); /* once for the row; remembered */
    for (int d = 0; d < c->n->in[c->along]->type.rank; d++)
        if (uses(c, c->along, d, c->row))
            clip(c, c->along, d, &lo, &hi);
    x = ts_emit_name(c->e, "x");
    ts_emit_line(c->e, "for (int32_t %s = %s; %s < %s; %s++) {", x, lo, x, hi, x);
    ts_emit_open(c->e, &mark);
    c->axes[c->row] = ts_ix_var(a, ts_atom_var(a, x, 0, extent - 1));
    coordinates(c, c->along);
    add_product(c, ts_arena_printf(a, "%s[%s]", s, x));
    ts_emit_close(c->e, mark);
}

static void row_form(contraction *c)
{
    int marks[TS_AXES], outer[TS_MAX_RANK], mark, guard = -1;
    const char *s = ts_emit_name(c->e, "s"), *cond, *x;
    ts_dtype t = c->n->out[0]->type.dtype;
    int64_t extent = c->s.extent[c->row];

    open_outputs(c, c->rank - 1, outer);
    c->out[c->rank - 1] = ts_ix_const(c->e->a, 0);
    ts_spec_axes(c->e->a, &c->s, c->rank, c->out, c->axes);
    ts_emit_line(c->e, "%s %s[%ld] = {0};", ts_emit_ctype(c->e, t), s, (long)extent);
    open_sums(c, c->s.naxes, marks);
    coordinates(c, 0);
    coordinates(c, 1);
    cond = inside(c, c->row);
    if (cond && cond[0]) {
        ts_emit_line(c->e, "if (%s) {", cond);
        ts_emit_open(c->e, &guard);
    }
    if (cond)
        add_row(c, s);
    if (guard >= 0)
        ts_emit_close(c->e, guard);
    close_sums(c, c->s.naxes, marks);
    x = ts_emit_name(c->e, "x");
    ts_emit_line(c->e, "for (int32_t %s = 0; %s < %ld; %s++) {", x, x, (long)extent, x);
    ts_emit_open(c->e, &mark);
    c->out[c->rank - 1] = ts_ix_var(c->e->a, ts_atom_var(c->e->a, x, 0, extent - 1));
    finish(c, ts_arena_printf(c->e->a, "%s[%s]", s, x));
    ts_emit_close(c->e, mark);
    close(c, c->rank - 1, outer);
}

/* --- sums side by side --- */

/* One part of the summed axis: sum w takes the elements ways * k + w. */
static void dot_part(contraction *c, int axis, const char *const *sums, int64_t from, int64_t to,
                     int ways)
{
    const ts_ix *k = ts_ix_var(c->e->a, ts_emit_loop(c->e, c->s.axis[axis], from, to));
    int mark;

    ts_emit_open(c->e, &mark);
    for (int w = 0; w < ways; w++) {
        c->axes[axis] = ts_ix_addc(c->e->a, ts_ix_mul(c->e->a, k, ways), w);
        coordinates(c, 0);
        coordinates(c, 1);
        add_product(c, sums[w]);
    }
    ts_emit_close(c->e, mark);
}

static void dot_form(contraction *c)
{
    int marks[TS_AXES], outer[TS_MAX_RANK], axis = c->s.naxes - 1;
    const char *sums[WAYS];
    ts_dtype t = c->n->out[0]->type.dtype;
    int64_t extent = c->s.extent[axis];

    open_outputs(c, c->rank, outer);
    ts_spec_axes(c->e->a, &c->s, c->rank, c->out, c->axes);
    for (int w = 0; w < WAYS; w++) {
        sums[w] = ts_emit_name(c->e, "s");
        ts_emit_line(c->e, "%s %s = 0;", ts_emit_ctype(c->e, t), sums[w]);
    }
    open_sums(c, axis, marks);
    dot_part(c, axis, sums, 0, extent / WAYS, WAYS);
    if (extent % WAYS)
        dot_part(c, axis, sums, extent / WAYS * WAYS, extent, 1);
    close_sums(c, axis, marks);
    for (int half = WAYS / 2; half; half /= 2)
        for (int w = 0; w < half; w++)
            ts_emit_line(c->e, "%s += %s;", sums[w], sums[w + half]);
    finish(c, sums[0]);
    close(c, c->rank, outer);
}

/* --- sums of integers --- */

static void whole_form(contraction *c, int axis)
{
    int marks[TS_AXES], outer[TS_MAX_RANK], mark, guard = -1;
    const char *s = ts_emit_name(c->e, "s"), *cond;
    int64_t extent = c->s.extent[axis];

    open_outputs(c, c->rank, outer);
    ts_spec_axes(c->e->a, &c->s, c->rank, c->out, c->axes);
    ts_emit_line(c->e, "%s %s = 0;", ts_emit_ctype(c->e, c->n->out[0]->type.dtype), s);
    c->s.extent[axis] = 1; /* its loop is the innermost */
    open_sums(c, c->s.naxes, marks);
    coordinates(c, 0);
    coordinates(c, 1);
    cond = inside(c, axis);
    if (cond && cond[0]) {
        ts_emit_line(c->e, "if (%s) {", cond);
        ts_emit_open(c->e, &guard);
    }
    if (cond) {
        c->axes[axis] = ts_ix_var(c->e->a, ts_emit_loop(c->e, c->s.axis[axis], 0, extent));
        ts_emit_open(c->e, &mark);
        coordinates(c, 0);
        coordinates(c, 1);
        add_product(c, s);
        ts_emit_close(c->e, mark);
    }
    if (guard >= 0)
        ts_emit_close(c->e, guard);
    close_sums(c, c->s.naxes, marks);
    finish(c, s);
    close(c, c->rank, outer);
}

/* --- which form --- */

/* The axis that alone is the last dim of the result. */
static int row_axis(const contraction *c)
{
    int found = -1;

    for (int i = 0; i < c->s.nout; i++)
        if (c->rank && c->s.out[c->rank - 1].k[i] && c->s.extent[i] > 1) {
            if (found >= 0 || c->s.out[c->rank - 1].k[i] != 1)
                return -1;
            found = i;
        }
    return found;
}

/* Does anything of the sum fall outside? */
static bool clipped(contraction *c)
{
    int64_t lo, hi;

    for (int o = 0; o < 2; o++)
        for (int d = 0; d < c->n->in[o]->type.rank; d++) {
            ts_ix_range(c->at[o][d], &lo, &hi);
            if (lo < 0 || hi >= c->n->in[o]->type.dim[d])
                return true;
        }
    return false;
}

static bool takes_dot(contraction *c)
{
    int64_t step[2];
    int axis = c->s.naxes - 1;

    return c->s.naxes > c->s.nout && c->s.extent[axis] >= WAYS && steps(c, axis, step) &&
           step[0] == 1 && step[1] == 1 && !clipped(c);
}

/* Are all the coordinates that move with the axis inside? */
static bool never_clipped(contraction *c, int axis)
{
    int64_t lo, hi;

    for (int o = 0; o < 2; o++)
        for (int d = 0; d < c->n->in[o]->type.rank; d++) {
            ts_ix_range(c->at[o][d], &lo, &hi);
            if (uses(c, o, d, axis) && (lo < 0 || hi >= c->n->in[o]->type.dim[d]))
                return false;
        }
    return true;
}

/* The longest of the sums of integers that lies in a row in both operands; -1: there is none. */
static int whole_axis(contraction *c)
{
    int best = -1;
    int64_t step[2];

    for (int i = c->s.nout; i < c->s.naxes && !ts_dtype_is_float(c->n->out[0]->type.dtype); i++)
        if (c->s.extent[i] >= WAYS && (best < 0 || c->s.extent[i] > c->s.extent[best]) &&
            steps(c, i, step) && step[0] == 1 && step[1] == 1 && never_clipped(c, i))
            best = i;
    return best;
}

/* How many coordinates of the operand move with the axis; -1 when one moves backwards. */
static int moves(const contraction *c, int operand, int axis)
{
    int n = 0;

    for (int d = 0; d < c->n->in[operand]->type.rank; d++) {
        if (affine(c, operand)[d].k[axis] < 0)
            return -1;
        n += uses(c, operand, d, axis);
    }
    return n;
}

static bool takes_row(contraction *c)
{
    int64_t step[2];

    c->row = row_axis(c);
    if (c->row < 0 || c->s.extent[c->row] > LONGEST_ROW || !steps(c, c->row, step))
        return false;
    c->along = step[1] ? 1 : 0;
    return step[c->along] > 0 && moves(c, c->along, c->row) == 1 &&
           moves(c, 1 - c->along, c->row) == 0;
}

static bool contract(ts_render *r, ts_emit *e, const ts_kernel *k)
{
    contraction c = {.r = r, .e = e, .k = k, .n = k->anchor};
    int whole;

    if (!c.n || !c.n->op->spec || !ts_type_same_shape(&c.n->out[0]->type, &k->roots[0]->type))
        return false;
    c.n->op->spec(r->a, c.n, &c.s);
    c.rank = c.n->out[0]->type.rank;
    if (divides(&c))
        return false;
    whole = whole_axis(&c);
    if (whole >= 0)
        whole_form(&c, whole);
    else if (takes_dot(&c))
        dot_form(&c);
    else if (takes_row(&c))
        row_form(&c);
    else
        return false;
    return true;
}

/* --- the rest --- */

static void flat(ts_render *r, ts_emit *e, const ts_kernel *k)
{
    const ts_type *t = &k->roots[0]->type;
    int64_t count = ts_type_count(t);
    const ts_ix *at[TS_MAX_RANK], *rest;
    int mark;

    rest = ts_ix_var(r->a, ts_emit_loop(e, "i", 0, count));
    ts_emit_open(e, &mark);
    for (int d = t->rank - 1; d >= 0; d--) {
        at[d] = d ? ts_ix_mod(r->a, rest, t->dim[d]) : rest;
        rest = ts_ix_div(r->a, rest, t->dim[d]);
    }
    ts_render_body(e, k, at);
    ts_emit_close(e, mark);
}

static void nest(ts_render *r, ts_emit *e, const ts_kernel *k)
{
    const ts_type *t = &k->roots[0]->type;
    const ts_ix *at[TS_MAX_RANK];
    int marks[TS_MAX_RANK], depth = 0;

    for (int d = 0; d < t->rank; d++) {
        at[d] = ts_ix_const(r->a, 0);
        if (t->dim[d] == 1 || d == ts_render_row_dim(k))
            continue;
        at[d] = ts_ix_var(r->a, ts_emit_loop(e, "i", 0, t->dim[d]));
        ts_emit_open(e, &marks[depth++]);
    }
    ts_render_body(e, k, at);
    while (depth--)
        ts_emit_close(e, marks[depth]);
}

ts_status ts_render_nest(ts_render *r, const ts_kernel *k)
{
    ts_emit e;

    if (k->nroots > TS_MAX_ROOTS)
        return ts_fail(TS_ERR_INTERNAL, "a kernel with %d roots", k->nroots);
    ts_render_emitter(r, &e);
    if (contract(r, &e, k))
        return TS_OK;
    if (ts_render_is_flat(r, k))
        flat(r, &e, k);
    else
        nest(r, &e, k);
    return TS_OK;
}
