/* pool.c - max and sum pooling over 1 to 3 spatial dims, and their gradients; the average is a
 * composition.
 *
 * max_pool has two outputs: the maximum and its place in the window (0 .. taps-1; the first maximum
 * wins, NaN beats all). The gradients are written as gathers: an input element asks every window
 * that covers it, so elements can be computed in any order by any thread. Attributes: kernel,
 * stride, padding (lists over the spatial dims), ceil_mode; avg_pool: exclude_pad.
 */
#include "op/emit.h"
#include "op/op.h"
#include <math.h>

typedef struct pool {
    int spatial;
    int64_t kernel[3], stride[3], padding[3];
} pool;

static ts_status attrs(const ts_node *n, pool *p)
{
    const int64_t *k, *s, *pad;
    double taps = 1;

    p->spatial = ts_attr_list(n, "kernel", &k);
    if (p->spatial < 1 || p->spatial > 3 || n->in[0]->type.rank != p->spatial + 2)
        return ts_fail_at(n, TS_ERR_SHAPE, "%s over %d dims needs an input of rank %d, got %d",
                          n->op->name, p->spatial, p->spatial + 2, n->in[0]->type.rank);
    if ((ts_attr_list(n, "stride", &s) && ts_attr_list(n, "stride", &s) != p->spatial) ||
        (ts_attr_list(n, "padding", &pad) && ts_attr_list(n, "padding", &pad) != p->spatial))
        return ts_fail_at(n, TS_ERR_ARG, "%s needs %d strides and paddings", n->op->name,
                          p->spatial);
    for (int d = 0; d < p->spatial; d++) {
        p->kernel[d] = k[d];
        p->stride[d] = s ? s[d] : k[d];
        p->padding[d] = pad ? pad[d] : 0;
        if (k[d] < 1 || k[d] > INT32_MAX || p->stride[d] < 1 || p->stride[d] > INT32_MAX ||
            p->padding[d] < 0 || p->padding[d] > k[d] / 2)
            return ts_fail_at(n, TS_ERR_ARG,
                              "%s: kernel %ld, stride %ld, padding %ld (at most half the kernel)",
                              n->op->name, (long)k[d], (long)p->stride[d], (long)p->padding[d]);
        taps *= (double)k[d];
    }
    if (taps > INT32_MAX)
        return ts_fail_at(n, TS_ERR_UNSUPPORTED, "%s: a window of %.0f elements", n->op->name,
                          taps);
    return TS_OK;
}

/* *t goes from the type of the pooled tensor to that of the windows. */
static ts_status out_type(const ts_node *n, const pool *p, ts_type *t)
{
    bool ceil_mode = ts_attr_int(n, "ceil_mode", 0);

    for (int d = 0; d < p->spatial; d++) {
        int64_t x = t->dim[2 + d], room = x + 2 * p->padding[d] - p->kernel[d], s = p->stride[d];
        /* ceil mode takes a window that hangs over on the right, even over a kernel larger than the
         * input, unless it would start in the padding there */
        if (room < 0 && (!ceil_mode || room + s - 1 < 0))
            return ts_fail_at(n, TS_ERR_SHAPE,
                              "%s: the kernel (%ld) is larger than the padded input (%ld)",
                              n->op->name, (long)p->kernel[d], (long)(x + 2 * p->padding[d]));
        t->dim[2 + d] = room < 0 ? 1 : room / s + 1;
        if (ceil_mode && room > 0 && room % s && t->dim[2 + d] * s < x + p->padding[d])
            t->dim[2 + d]++;
    }
    return TS_OK;
}

ts_status ts_infer_max_pool(ts_node *n)
{
    pool p;
    ts_type t[2];
    int64_t taps = 1;

    TS_TRY(attrs(n, &p));
    t[0] = n->in[0]->type;
    TS_TRY(out_type(n, &p, &t[0]));
    for (int d = 0; d < p.spatial; d++)
        taps *= p.kernel[d];
    t[1] = t[0];
    t[1].dtype = taps <= 256 ? TS_U8 : TS_I32;
    ts_node_set_out(n, 2, t);
    return TS_OK;
}

ts_status ts_infer_sum_pool(ts_node *n)
{
    pool p;
    ts_type t = n->in[0]->type;

    TS_TRY(attrs(n, &p));
    TS_TRY(out_type(n, &p, &t));
    return ts_node_set_out1(n, t);
}

/* `shape`: the spatial sizes of the pooled input */
static ts_status infer_grad(ts_node *n)
{
    pool p;
    const int64_t *shape;
    ts_type t = n->in[0]->type, windows;

    TS_TRY(attrs(n, &p));
    if (ts_attr_list(n, "shape", &shape) != p.spatial)
        return ts_fail_at(n, TS_ERR_ARG, "%s needs %d sizes in shape", n->op->name, p.spatial);
    for (int d = 0; d < p.spatial; d++) {
        if (shape[d] < 1)
            return ts_fail_at(n, TS_ERR_SHAPE, "%s to size %ld", n->op->name, (long)shape[d]);
        t.dim[2 + d] = shape[d];
    }
    windows = t;
    TS_TRY(out_type(n, &p, &windows));
    for (int d = 0; d < p.spatial; d++)
        if (windows.dim[2 + d] != n->in[0]->type.dim[2 + d])
            return ts_fail_at(n, TS_ERR_SHAPE, "%s: size %ld has %ld windows, the input %ld",
                              n->op->name, (long)shape[d], (long)windows.dim[2 + d],
                              (long)n->in[0]->type.dim[2 + d]);
    return ts_node_set_out1(n, t);
}

ts_status ts_infer_max_pool_grad(ts_node *n)
{
    if (!ts_type_same_shape(&n->in[0]->type, &n->in[1]->type))
        return ts_fail_at(n, TS_ERR_SHAPE,
                          "max_pool_grad needs a place for each of its %ld windows",
                          (long)ts_type_count(&n->in[0]->type));
    if (ts_dtype_is_float(n->in[1]->type.dtype))
        return ts_fail_at(n, TS_ERR_TYPE, "max_pool_grad needs integer places, got %s",
                          ts_dtype_name(n->in[1]->type.dtype));
    return infer_grad(n);
}

ts_status ts_infer_sum_pool_grad(ts_node *n)
{
    return infer_grad(n);
}

/* --- reference --- */

/* Tap k of window `o`: its input coordinates; false outside. */
static bool tap_at(const pool *p, const ts_type *x, const int64_t *o, int64_t k, int64_t *at)
{
    at[0] = o[0];
    at[1] = o[1];
    for (int d = p->spatial - 1; d >= 0; d--) {
        at[2 + d] = o[2 + d] * p->stride[d] - p->padding[d] + k % p->kernel[d];
        k /= p->kernel[d];
        if (at[2 + d] < 0 || at[2 + d] >= x->dim[2 + d])
            return false;
    }
    return true;
}

static int64_t taps_of(const pool *p)
{
    int64_t taps = 1;

    for (int d = 0; d < p->spatial; d++)
        taps *= p->kernel[d];
    return taps;
}

ts_status ts_eval_max_pool(const ts_node *n, const ts_eval_ctx *c, const ts_tensor *in,
                           ts_tensor *out)
{
    pool p;
    int64_t at[TS_MAX_RANK];

    (void)c;
    TS_TRY(attrs(n, &p));
    for (ts_each it = ts_each_of(&out->type); it.more; ts_each_next(&it)) {
        double best = 0;
        int64_t where = -1;
        for (int64_t k = 0; k < taps_of(&p); k++) {
            double x;
            if (!tap_at(&p, &in->type, it.at, k, at))
                continue;
            x = ts_dtype_get(in->type.dtype, in->data, ts_flat(&in->type, at));
            if (where < 0 || (best == best && !(x <= best))) {
                best = x;
                where = k;
            }
        }
        ts_dtype_set(out[0].type.dtype, out[0].data, it.flat, best);
        ts_dtype_set(out[1].type.dtype, out[1].data, it.flat, (double)where);
    }
    return TS_OK;
}

ts_status ts_eval_sum_pool(const ts_node *n, const ts_eval_ctx *c, const ts_tensor *in,
                           ts_tensor *out)
{
    pool p;
    int64_t at[TS_MAX_RANK];

    (void)c;
    TS_TRY(attrs(n, &p));
    for (ts_each it = ts_each_of(&out->type); it.more; ts_each_next(&it)) {
        double sum = 0;
        for (int64_t k = 0; k < taps_of(&p); k++)
            if (tap_at(&p, &in->type, it.at, k, at))
                sum += ts_dtype_get(in->type.dtype, in->data, ts_flat(&in->type, at));
        ts_dtype_set(out->type.dtype, out->data, it.flat, sum);
    }
    return TS_OK;
}

/* Gives each window's gradient back to its taps: to all of them, or with a second input to the one
 * it names. */
ts_status ts_eval_pool_grad(const ts_node *n, const ts_eval_ctx *c, const ts_tensor *in,
                            ts_tensor *out)
{
    pool p;
    int64_t at[TS_MAX_RANK];
    double *sums;

    (void)c;
    TS_TRY(attrs(n, &p));
    TS_TRY(ts_sums_start(out, &sums));
    for (ts_each it = ts_each_of(&in->type); it.more; ts_each_next(&it)) {
        double dy = ts_dtype_get(in->type.dtype, in->data, it.flat);
        double only = n->nin > 1 ? ts_dtype_get(in[1].type.dtype, in[1].data, it.flat) : 0;
        for (int64_t k = 0; k < taps_of(&p); k++)
            if ((n->nin == 1 || (double)k == only) && tap_at(&p, &out->type, it.at, k, at))
                sums[ts_flat(&out->type, at)] += dy;
    }
    ts_sums_store(sums, out);
    return TS_OK;
}

/* --- generated code --- */

enum { UNROLL = 64 }; /* taps written out; a larger window is a loop */

/* One tap: its place in the window in each dim, numbers when written out, else loop variables. */
typedef struct tap_ix {
    const ts_ix *k[3], *flat;
} tap_ix;

static tap_ix tap_number(ts_emit *e, const pool *p, int64_t k)
{
    tap_ix t = {.flat = ts_ix_const(e->a, k)};

    for (int d = p->spatial - 1; d >= 0; d--) {
        t.k[d] = ts_ix_const(e->a, k % p->kernel[d]);
        k /= p->kernel[d];
    }
    return t;
}

/* Opens loops over the taps; closed by close_taps. */
static tap_ix open_taps(ts_emit *e, const pool *p, int *marks)
{
    tap_ix t = {.flat = ts_ix_const(e->a, 0)};

    for (int d = 0; d < p->spatial; d++) {
        t.k[d] = p->kernel[d] == 1 ? ts_ix_const(e->a, 0)
                                   : ts_ix_var(e->a, ts_emit_loop(e, "k", 0, p->kernel[d]));
        if (p->kernel[d] > 1)
            ts_emit_open(e, &marks[d]);
        t.flat = ts_ix_add(e->a, ts_ix_mul(e->a, t.flat, p->kernel[d]), t.k[d]);
    }
    return t;
}

static void close_taps(ts_emit *e, const pool *p, const int *marks)
{
    for (int d = p->spatial - 1; d >= 0; d--)
        if (p->kernel[d] > 1)
            ts_emit_close(e, marks[d]);
}

/* What is done with each tap. */
typedef void tap_fn(ts_emit *e, const ts_node *n, const pool *p, const ts_ix *const *at,
                    const tap_ix *t, void *arg);

static void each_tap(ts_emit *e, const ts_node *n, const pool *p, const ts_ix *const *at,
                     tap_fn *call, void *arg)
{
    int64_t taps = taps_of(p);
    int marks[3];
    tap_ix t;

    for (int64_t k = 0; k < taps && taps <= UNROLL; k++) {
        t = tap_number(e, p, k);
        call(e, n, p, at, &t, arg);
    }
    if (taps <= UNROLL)
        return;
    t = open_taps(e, p, marks);
    call(e, n, p, at, &t, arg);
    close_taps(e, p, marks);
}

typedef struct tap_arg {
    const ts_value *v;
    const ts_ix *x[TS_MAX_RANK];
} tap_arg;

static const char *tap_body(ts_emit *e, void *arg)
{
    tap_arg *t = arg;

    return ts_emit_at(e, t->v, t->x);
}

/* The element under a tap of the window at `at`, `other` where it is outside; NULL: it
 * always is. */
static const char *tap(ts_emit *e, const ts_node *n, const pool *p, const ts_ix *const *at,
                       const tap_ix *k, double other)
{
    tap_arg t = {.v = n->in[0], .x = {at[0], at[1]}};
    const char *cond;

    for (int d = 0; d < p->spatial; d++)
        t.x[2 + d] =
            ts_ix_addc(e->a, ts_ix_add(e->a, ts_ix_mul(e->a, at[2 + d], p->stride[d]), k->k[d]),
                       -p->padding[d]);
    cond = ts_emit_inside_all(e, p->spatial, t.x + 2, n->in[0]->type.dim + 2);
    if (!cond)
        return NULL;
    return ts_emit_guard(e, cond,
                         ts_emit_cond_by_lane(e, p->spatial, t.x + 2, n->in[0]->type.dim + 2),
                         n->in[0]->type.dtype, other, tap_body, &t);
}

typedef struct pick_arg {
    const char *best, *where;
    double lowest;
    bool begun;
} pick_arg;

typedef struct window {
    const pool *p;
    const ts_ix *const *at;
} window;

/* How many taps of the window at `at` lie in the padding before dim d: max(0, this). */
static const ts_ix *before(ts_emit *e, const window *w, int d)
{
    const ts_ix *start = ts_ix_mul(e->a, w->at[2 + d], -w->p->stride[d]);

    return ts_ix_addc(e->a, start, w->p->padding[d]);
}

/* The first tap that is an element: the place of the largest when all are -inf. */
static const char *first_tap(ts_emit *e, void *arg)
{
    const window *w = arg;
    const char *flat = "";

    for (int d = 0; d < w->p->spatial; d++) {
        const char *k = ts_ix_text(e->a, before(e, w, d));
        int64_t lo, hi;
        ts_ix_range(before(e, w, d), &lo, &hi);
        if (flat[0])
            flat = ts_arena_printf(e->a, "%s * %ld + ", flat, (long)w->p->kernel[d]);
        flat = hi <= 0 ? ts_arena_printf(e->a, "(%s0)", flat)
                       : ts_arena_printf(e->a, "(%s(%s > 0 ? %s : 0))", flat, k, k);
    }
    return ts_arena_printf(e->a, "(int32_t)%s", flat);
}

/* Declares the largest so far, `x`, and its place. */
static void begin_pick(ts_emit *e, const ts_node *n, const pool *p, const ts_ix *const *at,
                       const char *x, pick_arg *a)
{
    ts_dtype type = n->in[0]->type.dtype, place = n->out[1]->type.dtype;
    window w = {p, at};
    bool padded = false, by_lane = false;
    const char *first = "0";

    for (int d = 0; d < p->spatial; d++) {
        int64_t lo, hi;
        ts_ix_range(before(e, &w, d), &lo, &hi);
        padded = padded || hi > 0;
        by_lane = by_lane || (hi > 0 && e->lanes && ts_ix_uses(at[2 + d], e->lane));
    }
    if (padded)
        first = by_lane ? ts_emit_lanes(e, place, first_tap, &w) : first_tap(e, &w);
    ts_emit_line(e, "%s %s = %s;", ts_emit_ctype(e, type), a->best, x);
    if (e->plain)
        ts_emit_line(e, "int32_t %s = %s;", a->where, first);
    else
        ts_emit_line(e, "%s %s = %s;", ts_emit_ctype(e, place), a->where,
                     e->lanes && !(padded && by_lane) ? ts_emit_splat(e, place, first) : first);
    a->begun = true;
}

/* The larger one and its tap; the first wins, NaN beats all. */
static void plain_pick(ts_emit *e, ts_dtype t, const pick_arg *a, const char *x, const char *tap)
{
    if (ts_dtype_is_float(t))
        ts_emit_line(e, "if (%s == %s && !(%s <= %s)) {", a->best, a->best, x, a->best);
    else
        ts_emit_line(e, "if (%s > %s) {", x, a->best);
    ts_emit_line(e, "    %s = %s;", a->best, x);
    ts_emit_line(e, "    %s = (int32_t)(%s);", a->where, tap);
    ts_emit_line(e, "}");
}

static void pick(ts_emit *e, const ts_node *n, const pool *p, const ts_ix *const *at,
                 const tap_ix *t, void *arg)
{
    pick_arg *a = arg;
    ts_dtype type = n->in[0]->type.dtype;
    const char *x = tap(e, n, p, at, t, a->lowest);

    if (x && !a->begun)
        return begin_pick(e, n, p, at, x, a);
    if (!x)
        return;
    if (e->plain)
        return plain_pick(e, type, a, x, ts_ix_text(e->a, t->flat));
    e->need(e->where, ts_arena_printf(e->a, "beats %s", ts_emit_suffix(e, type)));
    ts_emit_line(e, "PICK(%s, %s, %s, %s, (int32_t)(%s));",
                 e->lanes ? ts_emit_suffix(e, type) : "scalar", a->best, a->where, x,
                 ts_ix_text(e->a, t->flat));
}

/* Below every element of the type, or equal to the lowest. */
static double lowest(ts_dtype t)
{
    return ts_dtype_is_float(t) ? -INFINITY : t == TS_I64 ? -0x1p63 : INT32_MIN;
}

/* Both outputs come from one pass over the window; whichever is asked first leaves the other in the
 * memo. */
const char *ts_emit_max_pool(ts_emit *e, const ts_node *n, int out, const ts_ix *const *at)
{
    pool p;
    ts_dtype t = n->in[0]->type.dtype;
    pick_arg a = {ts_emit_name(e, "b"), ts_emit_name(e, "w"), lowest(t), false};

    attrs(n, &p);
    if (taps_of(&p) > UNROLL)
        begin_pick(e, n, &p, at, ts_emit_literal(e, t, a.lowest), &a);
    each_tap(e, n, &p, at, pick, &a);
    if (e->plain)
        ts_emit_line(e, "(void)%s, (void)%s;", a.best, a.where); /* one of them may do */
    ts_emit_bind(e, n->out[1 - out], at, out ? a.best : a.where);
    return out ? a.where : a.best;
}

typedef struct cover {
    const ts_node *n;
    const ts_ix *o[TS_MAX_RANK]; /* the window asked */
    const char *k;               /* which tap of it we would be */
    bool pairs;                  /* and the next one, in every second lane */
} cover;

/* 0, 1, 0, 1, .. */
static const char *odd_lanes(ts_emit *e)
{
    const char *s = "0, 1";

    for (int l = 2; l < e->lanes; l += 2)
        s = ts_arena_printf(e->a, "%s, 0, 1", s);
    return ts_arena_printf(e->a, "(i32x%d){%s}", e->lanes, s);
}

static const char *cover_body(ts_emit *e, void *arg)
{
    cover *c = arg;
    ts_dtype t = c->n->in[0]->type.dtype;
    const char *d = ts_emit_at(e, c->n->in[0], c->o), *w;

    if (c->n->nin == 1)
        return d;
    w = ts_emit_at(e, c->n->in[1], c->o);
    if (e->lanes) {
        e->need(e->where, ts_arena_printf(e->a, "lanes %d", e->lanes));
        return ts_emit_temp(e, t, "(%s)((%s == (int32_t)(%s)%s%s) & (i32x%d)%s)",
                            ts_emit_ctype(e, t), w, c->k, c->pairs ? " + " : "",
                            c->pairs ? odd_lanes(e) : "", e->lanes, d);
    }
    return ts_emit_temp(e, t, "%s == %s ? %s : 0", w, c->k, d);
}

/* Two taps side by side that never overlap, and lanes along them: both are one step, of each window
 * twice. */
static bool in_pairs(ts_emit *e, const ts_node *n, const pool *p, const ts_ix *const *at)
{
    int d = p->spatial - 1;
    const ts_ix *x = at[2 + d];
    const char *in;

    if (p->stride[d] != 2 || p->kernel[d] != 2 || p->padding[d] || !ts_emit_runs(e, x, 2))
        return false;
    in = ts_emit_inside(e, ts_ix_div(e->a, x, 2), n->in[0]->type.dim[2 + d]);
    return in && !in[0];
}

/* Adds what the window gives whose tap k is our element: there is one when (x + padding - k) %
 * stride is 0, at (x + padding - k) / stride. A kernel's worth of strides is added before the
 * division and taken off after it, so that it divides nothing negative. */
static void add_cover(ts_emit *e, const ts_node *n, const pool *p, const ts_ix *const *at,
                      const tap_ix *k, void *acc)
{
    ts_dtype t = n->in[0]->type.dtype;
    cover c = {.n = n, .o = {at[0], at[1]}, .k = ts_ix_text(e->a, k->flat)};
    const char *cond = "";
    bool by_lane = false;
    int last = p->spatial - 1;
    int64_t tap = 1;

    c.pairs = in_pairs(e, n, p, at) && ts_ix_is_const(k->k[last], &tap);
    if (c.pairs && tap)
        return; /* done with the tap before */
    if (c.pairs)
        c.o[2 + last] = ts_ix_div(e->a, at[2 + last], 2);
    for (int d = c.pairs ? last - 1 : last; d >= 0; d--) {
        const ts_ix *top = ts_ix_addc(e->a, at[2 + d], p->padding[d] + p->kernel[d] * p->stride[d]);
        const ts_ix *phase;
        const char *in;
        int64_t rest = 1;

        top = ts_ix_add(e->a, top, ts_ix_mul(e->a, k->k[d], -1));
        phase = ts_ix_mod(e->a, top, p->stride[d]);
        if (!ts_ix_is_const(phase, &rest)) {
            cond = ts_arena_printf(e->a, "%s%s%s == 0", cond, cond[0] ? " && " : "",
                                   ts_ix_text(e->a, phase));
            by_lane = by_lane || (e->lanes && ts_ix_uses(phase, e->lane));
        } else if (rest)
            return;
        c.o[2 + d] = ts_ix_addc(e->a, ts_ix_div(e->a, top, p->stride[d]), -p->kernel[d]);
        in = ts_emit_inside(e, c.o[2 + d], n->in[0]->type.dim[2 + d]);
        if (!in)
            return;
        if (in[0]) {
            cond = ts_arena_printf(e->a, "%s%s%s", cond, cond[0] ? " && " : "", in);
            by_lane = by_lane || (e->lanes && ts_ix_uses(c.o[2 + d], e->lane));
        }
    }
    ts_emit_line(e, "%s += %s;", (const char *)acc,
                 ts_emit_guard(e, cond, by_lane, t, 0, cover_body, &c));
}

static void add_tap(ts_emit *e, const ts_node *n, const pool *p, const ts_ix *const *at,
                    const tap_ix *t, void *acc)
{
    const char *x = tap(e, n, p, at, t, 0);

    if (x)
        ts_emit_line(e, "%s += %s;", (const char *)acc, x);
}

/* The sum of what `add` finds under the taps. */
static const char *emit_sum(ts_emit *e, const ts_node *n, const ts_ix *const *at, tap_fn *add)
{
    pool p;
    ts_dtype t = n->in[0]->type.dtype;
    const char *acc = ts_emit_name(e, "s");

    attrs(n, &p);
    ts_emit_line(e, "%s %s = %s;", ts_emit_ctype(e, t), acc, ts_emit_literal(e, t, 0));
    each_tap(e, n, &p, at, add, (void *)acc);
    return acc;
}

const char *ts_emit_sum_pool(ts_emit *e, const ts_node *n, int out, const ts_ix *const *at)
{
    (void)out;
    return emit_sum(e, n, at, add_tap);
}

/* Are there large windows side by side, of which each element is in one? Small ones are done together
 * (render/kernel.c, find_steps), where the taps are numbers. */
static bool apart(const pool *p)
{
    bool large = false;

    for (int d = 0; d < p->spatial; d++) {
        if (p->stride[d] != p->kernel[d])
            return false;
        large = large || p->kernel[d] > 4;
    }
    return large;
}

typedef struct place_arg {
    const ts_node *n;
    const ts_ix *const *at;
} place_arg;

/* What that window gives. */
static const char *apart_body(ts_emit *e, void *arg)
{
    const place_arg *a = arg;
    cover c = {.n = a->n, .o = {a->at[0], a->at[1]}};
    const ts_ix *flat = ts_ix_const(e->a, 0);
    pool p;

    attrs(a->n, &p);
    for (int d = 0; d < p.spatial; d++) {
        const ts_ix *x = ts_ix_addc(e->a, a->at[2 + d], p.padding[d]);
        c.o[2 + d] = ts_ix_div(e->a, x, p.stride[d]);
        flat = ts_ix_add(e->a, ts_ix_mul(e->a, flat, p.kernel[d]), ts_ix_mod(e->a, x, p.stride[d]));
    }
    c.k = ts_ix_text(e->a, flat);
    return ts_emit_guard(e, ts_emit_inside_all(e, p.spatial, c.o + 2, a->n->in[0]->type.dim + 2),
                         false, a->n->in[0]->type.dtype, 0, cover_body, &c);
}

const char *ts_emit_pool_grad(ts_emit *e, const ts_node *n, int out, const ts_ix *const *at)
{
    place_arg a = {n, at};
    pool p;

    (void)out;
    attrs(n, &p);
    if (!apart(&p))
        return emit_sum(e, n, at, add_cover);
    return e->lanes && ts_emit_cond_by_lane(e, p.spatial, at + 2, NULL)
               ? ts_emit_lanes(e, n->in[0]->type.dtype, apart_body, &a)
               : apart_body(e, &a);
}

/* --- gradients --- */

static ts_value *grad_op(ts_node *n, const char *op, int nin, ts_value *const *in)
{
    const ts_type *x = &n->in[0]->type;
    ts_attr attr[TS_MAX_ATTR + 1];
    int count = ts_attrs_but(n, "shape", attr);

    attr[count++] = ts_attr_l("shape", x->rank - 2, x->dim + 2);
    return ts_node_out(
        ts_node_make(in[0] ? in[0]->graph : NULL, ts_op_find(op), nin, in, count, attr));
}

ts_status ts_grad_max_pool(ts_node *n, ts_value *const *dy, ts_value **dx)
{
    if (dy[0])
        dx[0] = grad_op(n, "max_pool_grad", 2, (ts_value *[]){dy[0], n->out[1]});
    return TS_OK;
}

/* Tap k of every window of x: [N, C, windows] */
static ts_value *tap_of(const pool *p, ts_value *x, const ts_type *windows, int64_t k)
{
    for (int d = p->spatial - 1; d >= 0; d--) {
        int64_t start = k % p->kernel[d];

        x = ts_slice(x, 2 + d, start, start + (windows->dim[2 + d] - 1) * p->stride[d] + 1,
                     p->stride[d]);
        k /= p->kernel[d];
    }
    return x;
}

/* What max_pool_grad sent to a place comes back from there. */
ts_status ts_grad_max_pool_grad(ts_node *n, ts_value *const *dy, ts_value **dx)
{
    const ts_type *windows = &n->in[0]->type;
    int64_t lo[TS_MAX_RANK] = {0}, hi[TS_MAX_RANK] = {0};
    ts_value *x, *sum = NULL, *here;
    pool p;

    TS_TRY(attrs(n, &p));
    for (int d = 0; d < p.spatial; d++) {
        int64_t reach = (windows->dim[2 + d] - 1) * p.stride[d] + p.kernel[d];

        lo[2 + d] = p.padding[d];
        hi[2 + d] = TS_MAX(reach - p.padding[d] - dy[0]->type.dim[2 + d], 0);
    }
    x = ts_pad(dy[0], windows->rank, lo, hi, 0);
    for (int64_t k = 0; k < taps_of(&p); k++) {
        here = ts_eq(n->in[1], ts_full_like(n->in[1], (double)k));
        here = ts_where(here, tap_of(&p, x, windows, k), ts_full_like(dy[0], 0));
        sum = sum ? ts_add(sum, here) : here;
    }
    dx[0] = sum;
    return TS_OK;
}

ts_status ts_grad_sum_pool(ts_node *n, ts_value *const *dy, ts_value **dx)
{
    dx[0] = grad_op(n, "sum_pool_grad", 1, dy);
    return TS_OK;
}

/* The adjoint of the adjoint. */
ts_status ts_grad_sum_pool_grad(ts_node *n, ts_value *const *dy, ts_value **dx)
{
    ts_attr attr[TS_MAX_ATTR + 1];
    int count = ts_attrs_but(n, "shape", attr);

    dx[0] = ts_make1(TS_OP(sum_pool), dy[0], count, attr);
    return TS_OK;
}

/* --- average: the sum over what the window counts --- */

/* What a window counts in one dim: PyTorch counts padding, but nothing beyond it (ceil mode). */
static int64_t counted(const ts_node *n, const pool *p, int d, int64_t o, int64_t size)
{
    int64_t from = o * p->stride[d] - p->padding[d];
    int64_t to = TS_MIN(from + p->kernel[d], size + p->padding[d]);

    if (ts_attr_int(n, "exclude_pad", 0))
        return TS_MIN(to, size) - TS_MAX(from, 0);
    return to - from;
}

/* avg_pool(x) = sum_pool(x) * [1 / count of each window] */
ts_status ts_expand_avg_pool(ts_graph *g, const ts_node *n, ts_value *const *in, ts_value **out)
{
    pool p;
    ts_attr attr[TS_MAX_ATTR];
    ts_value *sum;
    ts_type t;
    int count = ts_attrs_but(n, "exclude_pad", attr);
    double *inverse, first;
    bool uneven = false;

    TS_TRY(attrs(n, &p));
    TS_TRY(ts_check_float(n, in[0]));
    sum = ts_make1(TS_OP(sum_pool), ts_wide(in[0]), count, attr);
    if (!sum)
        return g->status;
    t = sum->type;
    t.dim[0] = t.dim[1] = 1;
    t.dtype = TS_F64;
    if (ts_type_count(&t) > 1 << 24) /* they become a constant */
        return ts_fail_at(n, TS_ERR_UNSUPPORTED, "avg_pool of %ld windows",
                          (long)ts_type_count(&t));
    inverse = TS_NEWS(g->arena, double, ts_type_count(&t));
    for (ts_each it = ts_each_of(&t); it.more; ts_each_next(&it)) {
        double windows = 1;
        for (int d = 0; d < p.spatial; d++)
            windows *= (double)counted(n, &p, d, it.at[2 + d], in[0]->type.dim[2 + d]);
        inverse[it.flat] = 1 / windows;
        uneven = uneven || inverse[it.flat] != inverse[0];
    }
    first = inverse[0];
    out[0] =
        uneven
            ? ts_mul(sum, ts_cast(ts_const_n(g, TS_F64, inverse, t.rank, t.dim), sum->type.dtype))
            : ts_mul_scalar(sum, first);
    out[0] = ts_cast(out[0], in[0]->type.dtype);
    return g->status;
}
