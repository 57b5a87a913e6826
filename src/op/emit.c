/* emit.c - turns "the element of v at these coordinates" into C.
 *
 *   ts_emit_at(v, at)
 *     already computed here?      -> its variable (the memo; scoped by braces)
 *     v lies in memory?           -> a load: vector, scalar, or lane by lane, as its address allows
 *     otherwise                   -> its op's emit rule, which asks for the inputs the same way
 */
#include "op/emit.h"
#include <inttypes.h>
#include <math.h>

static bool wide(ts_dtype t)
{
    return t == TS_F64 || t == TS_I64;
}

static const char *scalar_type(ts_dtype t)
{
    switch (t) {
    case TS_F64:
        return "double";
    case TS_I64:
        return "int64_t";
    case TS_I8:
    case TS_U8:
    case TS_I32:
    case TS_BOOL:
        return "int32_t";
    default:
        return "float";
    }
}

const char *ts_emit_memory_type(ts_dtype t)
{
    switch (t) {
    case TS_F32:
        return "float";
    case TS_F64:
        return "double";
    case TS_F16:
    case TS_BF16:
        return "uint16_t";
    case TS_I8:
        return "int8_t";
    case TS_U8:
    case TS_BOOL:
        return "uint8_t";
    case TS_I32:
        return "int32_t";
    default:
        return "int64_t";
    }
}

const char *ts_emit_ctype(ts_emit *e, ts_dtype t)
{
    if (!e->lanes)
        return scalar_type(t);
    return ts_arena_printf(e->a, "%sx%d", ts_dtype_is_float(t) ? "f32" : "i32", e->lanes);
}

const char *ts_emit_suffix(ts_emit *e, ts_dtype t)
{
    if (e->lanes)
        return ts_emit_ctype(e, t);
    return t == TS_F64 ? "f64" : t == TS_I64 ? "i64" : ts_dtype_is_float(t) ? "f32" : "i32";
}

void ts_emit_line(ts_emit *e, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    ts_text_printf(e->out, "%*s%s\n", 4 * e->indent, "", ts_arena_vprintf(e->a, fmt, ap));
    va_end(ap);
}

const char *ts_emit_name(ts_emit *e, const char *prefix)
{
    return ts_arena_printf(e->a, "%s%d", prefix, (*e->next)++);
}

const char *ts_emit_temp(ts_emit *e, ts_dtype t, const char *fmt, ...)
{
    const char *name = ts_emit_name(e, "t"), *text;
    va_list ap;

    va_start(ap, fmt);
    text = ts_arena_vprintf(e->a, fmt, ap);
    va_end(ap);
    ts_emit_line(e, "const %s %s = %s;", ts_emit_ctype(e, t), name, text);
    return name;
}

void ts_emit_product(ts_emit *e, ts_dtype t, const char *sum, const char *x, const char *y)
{
    if (e->plain || e->gpu || !ts_dtype_is_float(t))
        ts_emit_line(e, "%s += %s * %s;", sum, x, y);
    else
        ts_emit_line(e, "%s = fma_%s(%s, %s, %s);", sum, ts_emit_suffix(e, t), x, y, sum);
}

void ts_emit_open(ts_emit *e, int *mark)
{
    *mark = e->nmemo;
    e->indent++;
}

void ts_emit_close(ts_emit *e, int mark)
{
    e->nmemo = mark;
    e->indent--;
    ts_emit_line(e, "}");
}

const ts_atom *ts_emit_loop(ts_emit *e, const char *prefix, int64_t lo, int64_t hi)
{
    const char *name = ts_emit_name(e, prefix);

    ts_emit_line(e, "for (%s %s = %ld; %s < %ld; %s++) {", e->index, name, (long)lo, name, (long)hi,
                 name);
    return ts_atom_var(e->a, name, lo, hi - 1);
}

/* --- memo --- */

static const char *key_of(ts_emit *e, const ts_value *v, const ts_ix *const *at)
{
    const char *key = "";

    for (int i = 0; i < v->type.rank; i++)
        key = ts_arena_printf(e->a, "%s%s,", key, ts_ix_text(e->a, at[i]));
    return key;
}

static void remember(ts_emit *e, const ts_value *v, const char *key, const char *name)
{
    ts_memo m = {.v = v, .key = key, .name = name, .scalar = !e->lanes};

    TS_PUSH(e->a, e->memo, e->nmemo, m);
}

void ts_emit_bind(ts_emit *e, const ts_value *v, const ts_ix *const *at, const char *name)
{
    remember(e, v, key_of(e, v, at), name);
    e->memo[e->nmemo - 1].own = true;
}

static const char *recall(ts_emit *e, const ts_value *v, const char *key)
{
    for (int i = e->nmemo - 1; i >= 0; i--)
        if (e->memo[i].v == v && e->memo[i].scalar == !e->lanes && !strcmp(e->memo[i].key, key))
            return e->memo[i].name;
    return NULL;
}

const char *ts_emit_recall(ts_emit *e, const ts_value *v, const ts_ix *const *at)
{
    return recall(e, v, key_of(e, v, at));
}

/* --- addresses --- */

const ts_ix *ts_emit_address(ts_arena *a, const ts_value *v, const ts_ix *const *at)
{
    const ts_layout *l = &v->layout;
    const ts_ix *x = ts_ix_const(a, 0);

    for (int i = 0; i < v->type.rank; i++) {
        int d = l->set ? l->order[i] : i;
        int64_t n = v->type.dim[d];
        const ts_ix *c = at[d];
        if (n == 1)
            continue;
        if (l->set && l->lanes > 1 && d == l->lane_dim) {
            c = ts_ix_div(a, c, l->lanes);
            n = (n + l->lanes - 1) / l->lanes;
        }
        x = ts_ix_add(a, ts_ix_mul(a, x, n), c);
    }
    if (l->set && l->lanes > 1)
        x = ts_ix_add(a, ts_ix_mul(a, x, l->lanes), ts_ix_mod(a, at[l->lane_dim], l->lanes));
    return x;
}

size_t ts_layout_bytes(const ts_value *v)
{
    int64_t n = 1;

    for (int i = 0; i < v->type.rank; i++) {
        int64_t d = v->type.dim[i];
        n *= v->layout.set && v->layout.lanes > 1 && i == v->layout.lane_dim
                 ? TS_ROUND_UP(d, v->layout.lanes)
                 : d;
    }
    return (size_t)n * ts_dtype_size(v->type.dtype);
}

/* --- loads and stores --- */

static const char *scalar_load(ts_emit *e, const ts_value *v, const char *address)
{
    const char *p = e->pointer(e->where, v);

    switch (v->type.dtype) {
    case TS_F16:
        e->need(e->where, "half");
        return ts_arena_printf(e->a, "%sf16_to_f32(%s[%s])", e->prefix, p, address);
    case TS_BF16:
        e->need(e->where, "half");
        return ts_arena_printf(e->a, "%sbf16_to_f32(%s[%s])", e->prefix, p, address);
    default:
        return ts_arena_printf(e->a, "%s[%s]", p, address);
    }
}

/* 8 or 16 elements side by side: f32 and i32 as they are, narrower ones widened */
static const char *vector_load(ts_emit *e, const ts_value *v, const char *address)
{
    const char *p = e->pointer(e->where, v), *t = ts_dtype_name(v->type.dtype);
    int n = e->lanes;

    if (v->type.dtype == TS_F32 || v->type.dtype == TS_I32)
        return ts_arena_printf(e->a, "*(const %sx%du *)(%s + %s)", t, n, p, address);
    e->need(e->where, v->type.dtype == TS_F16 || v->type.dtype == TS_BF16 ? "half" : "narrow");
    return ts_arena_printf(e->a, "load_%sx%d(%s + %s)", t, n, p, address);
}

typedef struct at_arg {
    const ts_value *v;
    const ts_ix *const *at;
} at_arg;

static const char *at_body(ts_emit *e, void *arg)
{
    const at_arg *x = arg;

    return ts_emit_at(e, x->v, x->at);
}

/* x where the lane is 0. */
static const ts_ix *without_lane(ts_emit *e, const ts_ix *x)
{
    int64_t k = ts_ix_coef(x, e->lane);

    return ts_ix_add(e->a, x, ts_ix_mul(e->a, ts_ix_var(e->a, e->lane), -k));
}

/* The address of lane 0. */
static const char *first_lane(ts_emit *e, const ts_ix *x)
{
    return ts_ix_text(e->a, without_lane(e, x));
}

bool ts_emit_runs(ts_emit *e, const ts_ix *x, int by)
{
    bool whole = e->lanes >= 4 * by && ts_ix_linear(x, e->lane) && ts_ix_coef(x, e->lane) == 1 &&
                 x->c % by == 0;

    for (int i = 0; i < x->n; i++)
        whole = whole && (x->t[i].atom == e->lane || x->t[i].k % by == 0);
    return whole;
}

/* x / by + the rest, of lanes in runs: where the first run lies; NULL: it is not so. */
static const ts_ix *first_run(ts_emit *e, const ts_ix *x, int by)
{
    const ts_atom *part = NULL;
    const ts_ix *rest;

    for (int i = 0; i < x->n; i++)
        if (x->t[i].k == 1 && x->t[i].atom->kind == TS_ATOM_DIV && x->t[i].atom->by == by &&
            ts_emit_runs(e, x->t[i].atom->of, by))
            part = x->t[i].atom;
    if (!part)
        return NULL;
    rest = ts_ix_add(e->a, x, ts_ix_mul(e->a, ts_ix_var(e->a, part), -1));
    if (ts_ix_uses(rest, e->lane))
        return NULL;
    return ts_ix_add(e->a, rest, ts_ix_div(e->a, without_lane(e, part->of), by));
}

/* A vector in which each element from `first` on is `by` times. */
static const char *repeated(ts_emit *e, const ts_value *v, const ts_ix *first, int by)
{
    const char *type = ts_emit_ctype(e, v->type.dtype), *half;

    if (by == 1)
        return vector_load(e, v, ts_ix_text(e->a, first));
    e->need(e->where, ts_arena_printf(e->a, "twice %d", e->lanes));
    e->lanes /= 2;
    half = repeated(e, v, first, by / 2);
    e->lanes *= 2;
    return ts_arena_printf(e->a, "twice_%s(%s)", type, half);
}

/* Every second element, or every element twice or four times: whole vectors, and their lanes in another order. */
static const char *paired_load(ts_emit *e, const ts_value *v, const ts_ix *x)
{
    if (v->type.dtype == TS_F32 && ts_ix_linear(x, e->lane) && ts_ix_coef(x, e->lane) == 2) {
        e->need(e->where, ts_arena_printf(e->a, "apart %d", e->lanes));
        return ts_arena_printf(e->a, "apart_f32x%d(%s + %s)", e->lanes, e->pointer(e->where, v),
                               first_lane(e, x));
    }
    for (int by = 2; by <= 4; by *= 2) {
        const ts_ix *first = first_run(e, x, by);
        if (first)
            return repeated(e, v, first, by);
    }
    return NULL;
}

static bool runs_backwards(const ts_ix *x)
{
    for (int i = 0; i < x->n; i++)
        if (x->t[i].k < 0)
            return true;
    return false;
}

/* gcc 12.2 vectorises a sum over elements read backwards in groups, and reads the wrong ones
 * (test/render/kernels.c, backward_sum); not where there is assembly, nor what is volatile. */
static const char *backward_load(ts_emit *e, const ts_value *v, const char *address)
{
    const char *t = ts_emit_memory_type(v->type.dtype), *p = e->pointer(e->where, v);

    if (e->gpu)
        return scalar_load(e, v, address);
    if (e->plain && v->type.dtype != TS_F16 && v->type.dtype != TS_BF16)
        return ts_arena_printf(e->a, "*(const volatile %s *)(%s + %s)", t, p, address);
    if (!e->plain)
        ts_emit_line(e, "__asm__(\"\");");
    return scalar_load(e, v, address);
}

static const char *load(ts_emit *e, const ts_value *v, const ts_ix *const *at)
{
    const ts_ix *x = ts_emit_address(e->a, v, at);
    const char *text = ts_ix_text(e->a, x), *pairs;

    if (e->loaded)
        e->loaded(e->where, v, x);
    if (!e->lanes)
        return ts_emit_temp(e, v->type.dtype, "%s",
                            runs_backwards(x) ? backward_load(e, v, text)
                                              : scalar_load(e, v, text));
    if (!ts_ix_uses(x, e->lane))
        return ts_emit_temp(e, v->type.dtype, "%s",
                            ts_emit_splat(e, v->type.dtype, scalar_load(e, v, text)));
    if (ts_ix_linear(x, e->lane) && ts_ix_coef(x, e->lane) == 1)
        return ts_emit_temp(e, v->type.dtype, "%s", vector_load(e, v, first_lane(e, x)));
    pairs = paired_load(e, v, x);
    if (pairs)
        return ts_emit_temp(e, v->type.dtype, "%s", pairs);
    return ts_emit_lanes(e, v->type.dtype, at_body, &(at_arg){v, at});
}

const char *ts_emit_memory(ts_emit *e, const ts_value *v, const ts_ix *const *at)
{
    return load(e, v, at);
}

void ts_emit_store(ts_emit *e, const ts_value *v, const ts_ix *const *at, const char *name)
{
    const ts_ix *x = ts_emit_address(e->a, v, at);
    const char *p = e->pointer(e->where, v), *t = ts_dtype_name(v->type.dtype);
    const char *text = ts_ix_text(e->a, x);

    if (e->lanes && ts_ix_linear(x, e->lane) && ts_ix_coef(x, e->lane) == 1) {
        text = first_lane(e, x);
        if (v->type.dtype == TS_F32 || v->type.dtype == TS_I32) {
            ts_emit_line(e, "*(%sx%du *)(%s + %s) = %s;", t, e->lanes, p, text, name);
            return;
        }
        e->need(e->where, v->type.dtype == TS_F16 || v->type.dtype == TS_BF16 ? "half" : "narrow");
        ts_emit_line(e, "store_%sx%d(%s + %s, %s);", t, e->lanes, p, text, name);
        return;
    }
    if (e->lanes) {
        ts_emit_line(e, "for (int %s = 0; %s < %d; %s++)", e->lane->name, e->lane->name, e->lanes,
                     e->lane->name);
        name = ts_arena_printf(e->a, "%s[%s]", name, e->lane->name);
        e->indent++;
    }
    switch (v->type.dtype) {
    case TS_F16:
    case TS_BF16:
        e->need(e->where, "half");
        ts_emit_line(e, "%s[%s] = %sf32_to_%s(%s);", p, text, e->prefix, t, name);
        break;
    case TS_BOOL:
        ts_emit_line(e, "%s[%s] = %s != 0;", p, text, name);
        break;
    default:
        ts_emit_line(e, "%s[%s] = %s;", p, text, name);
    }
    if (e->lanes)
        e->indent--;
}

/* --- evaluation --- */

static const char *node_body(ts_emit *e, void *arg)
{
    const at_arg *x = arg;

    return x->v->node->op->emit(e, x->v->node, x->v->index, x->at);
}

const char *ts_emit_lanes(ts_emit *e, ts_dtype t, const char *(*body)(ts_emit *, void *), void *arg)
{
    const char *name = ts_emit_name(e, "t"), *one;
    const ts_atom *lane = e->lane;
    int lanes = e->lanes, mark;

    e->singles++;
    ts_emit_line(e, "%s %s;", ts_emit_ctype(e, t), name);
    ts_emit_line(e, "for (int %s = 0; %s < %d; %s++) {", lane->name, lane->name, lanes, lane->name);
    ts_emit_open(e, &mark);
    e->lanes = 0;
    one = body(e, arg);
    ts_emit_line(e, "%s[%s] = %s;", name, lane->name, one);
    e->lanes = lanes;
    ts_emit_close(e, mark);
    return name;
}

/* Of what is looked up the source counts, which is of the result's dtype: an index is a number for all lanes, or its rule
 * goes through them itself. */
static bool touches_wide(const ts_node *n)
{
    if (n->op->flags & TS_INDEX)
        return wide(n->out[0]->type.dtype);
    for (int i = 0; i < n->nin; i++)
        if (wide(n->in[i]->type.dtype))
            return true;
    return false;
}

/* A byte or bool is an int32_t here; arithmetic that leaves its range wraps as it would
 * in memory. */
static const char *wrapped(ts_emit *e, const ts_value *v, const char *name)
{
    const ts_op *op = v->node->op;

    if (op->result == 'b' || op->flags & (TS_VIEW | TS_WINDOW))
        return name;
    switch (v->type.dtype) {
    case TS_U8:
        return ts_emit_temp(e, TS_U8, "%s & 255", name);
    case TS_I8:
        return ts_emit_temp(e, TS_I8, e->plain ? "(int8_t)%s" : "(%s << 24) >> 24", name);
    case TS_BOOL:
        return ts_emit_temp(e, TS_BOOL, e->lanes ? "-(%s != 0)" : "%s != 0", name);
    default:
        return name;
    }
}

const char *ts_emit_node(ts_emit *e, const ts_value *v, const ts_ix *const *at)
{
    if (e->lanes && touches_wide(v->node))
        return wrapped(e, v, ts_emit_lanes(e, v->type.dtype, node_body, &(at_arg){v, at}));
    return wrapped(e, v, v->node->op->emit(e, v->node, v->index, at));
}

/* One lane of a vector that this kernel made and has not stored yet: memory does not have it. */
static const char *lane_of(ts_emit *e, const ts_value *v, const ts_ix *const *at, const char *key)
{
    bool by_lane = false;

    for (int d = 0; d < v->type.rank && e->lane; d++)
        by_lane = by_lane || ts_ix_uses(at[d], e->lane);
    for (int i = e->nmemo - 1; i >= 0 && !e->lanes; i--) {
        const ts_memo *m = &e->memo[i];
        if (m->v == v && m->own && !m->scalar && !strcmp(m->key, key))
            return ts_arena_printf(e->a, "%s[%s]", m->name, by_lane ? e->lane->name : "0");
    }
    return NULL;
}

const char *ts_emit_at(ts_emit *e, const ts_value *v, const ts_ix *const *at)
{
    const char *key = key_of(e, v, at), *name = recall(e, v, key);

    name = name ? name : lane_of(e, v, at, key);
    if (name)
        return name;
    if (e->stored(e->where, v))
        name = load(e, v, at);
    else
        name = ts_emit_node(e, v, at);
    remember(e, v, key, name);
    return name;
}

/* --- columns --- */

/* A vector's names are none for a narrower one. */
static void columns_body(ts_emit *e, void (*body)(ts_emit *, void *), void *arg)
{
    int mark = e->nmemo;

    body(e, arg);
    e->nmemo = mark;
    e->part++;
}

/* From column `from` on as many as fill vectors. */
static int64_t columns_vectors(ts_emit *e, const ts_ix **at, void (*body)(ts_emit *, void *),
                               void *arg)
{
    const ts_ix *first = at[e->column];
    int64_t done = 0;

    for (int w = e->width; w >= 4; w /= 2)
        for (; done + w <= e->columns; done += w) {
            e->lane = ts_atom_var(e->a, "l", 0, w - 1);
            e->lanes = w;
            at[e->column] =
                ts_ix_addc(e->a, ts_ix_add(e->a, first, ts_ix_var(e->a, e->lane)), done);
            columns_body(e, body, arg);
            e->lanes = 0;
        }
    at[e->column] = first;
    return done;
}

/* No column reads what another one writes. */
static void columns_loop(ts_emit *e, int64_t done, const ts_ix **at,
                         void (*body)(ts_emit *, void *), void *arg)
{
    const ts_ix *first = at[e->column];
    const ts_atom *x;
    int mark;

    if (!e->plain && !e->gpu)
        ts_text_printf(e->out, "#pragma GCC ivdep\n");
    x = ts_emit_loop(e, "x", done, e->columns);
    ts_emit_open(e, &mark);
    at[e->column] = ts_ix_add(e->a, first, ts_ix_var(e->a, x));
    columns_body(e, body, arg);
    ts_emit_close(e, mark);
    at[e->column] = first;
}

void ts_emit_columns(ts_emit *e, int how, const ts_ix **at, void (*body)(ts_emit *, void *),
                     void *arg)
{
    const ts_ix *first = at[e->column];
    int64_t done = 0;

    e->part = 0;
    if (!e->columns) {
        columns_body(e, body, arg);
        return;
    }
    if (how & TS_COLUMNS_VECTORS)
        done = columns_vectors(e, at, body, arg);
    if (done + 1 < e->columns && !(how & TS_COLUMNS_APART)) {
        columns_loop(e, done, at, body, arg);
        return;
    }
    for (; done < e->columns; done++) {
        at[e->column] = ts_ix_addc(e->a, first, done);
        columns_body(e, body, arg);
    }
    at[e->column] = first;
}

/* --- conditions --- */

/* x in vectors, where each of them is all on one side of every multiple of n: 16 b + l < 32 asks what b < 2 does, once
 * for all lanes. NULL elsewhere. */
static const ts_ix *in_vectors(ts_emit *e, const ts_ix *x, int64_t n)
{
    const ts_ix *block;

    if (!e->lanes || n % e->lanes || !ts_ix_uses(x, e->lane))
        return NULL;
    block = ts_ix_div(e->a, x, e->lanes);
    return ts_ix_uses(block, e->lane) ? NULL : block;
}

const char *ts_emit_inside(ts_emit *e, const ts_ix *x, int64_t n)
{
    const ts_ix *block = in_vectors(e, x, n);
    int64_t lo, hi;
    const char *t;

    if (block)
        return ts_emit_inside(e, block, n / e->lanes);
    t = ts_ix_text(e->a, x);
    ts_ix_range(x, &lo, &hi);
    if (lo >= 0 && hi < n)
        return "";
    if (hi < 0 || lo >= n)
        return NULL;
    if (lo >= 0)
        return ts_arena_printf(e->a, "%s < %ld", t, (long)n);
    if (hi < n)
        return ts_arena_printf(e->a, "%s >= 0", t);
    return ts_arena_printf(e->a, "%s >= 0 && %s < %ld", t, t, (long)n);
}

const char *ts_emit_inside_all(ts_emit *e, int rank, const ts_ix *const *x, const int64_t *n)
{
    const char *all = "";

    for (int i = 0; i < rank; i++) {
        const char *one = ts_emit_inside(e, x[i], n[i]);
        if (!one)
            return NULL;
        if (one[0])
            all = all[0] ? ts_arena_printf(e->a, "%s && %s", all, one) : one;
    }
    return all;
}

bool ts_emit_cond_by_lane(ts_emit *e, int rank, const ts_ix *const *x, const int64_t *n)
{
    for (int i = 0; i < rank && e->lanes; i++)
        if (ts_ix_uses(x[i], e->lane) && !(n && in_vectors(e, x[i], n[i])))
            return true;
    return false;
}

typedef struct guard_arg {
    const char *cond;
    ts_dtype t;
    double other;
    const char *(*body)(ts_emit *, void *);
    void *arg;
} guard_arg;

static const char *guard_body(ts_emit *e, void *arg)
{
    const guard_arg *g = arg;

    return ts_emit_guard(e, g->cond, false, g->t, g->other, g->body, g->arg);
}

const char *ts_emit_guard(ts_emit *e, const char *cond, bool by_lane, ts_dtype t, double other,
                          const char *(*body)(ts_emit *, void *), void *arg)
{
    const char *name, *in;
    int mark;

    if (!cond)
        return ts_emit_temp(e, t, "%s", ts_emit_literal(e, t, other));
    if (!cond[0])
        return body(e, arg);
    if (e->lanes && by_lane)
        return ts_emit_lanes(e, t, guard_body, &(guard_arg){cond, t, other, body, arg});
    name = ts_emit_name(e, "t");
    ts_emit_line(e, "%s %s = %s;", ts_emit_ctype(e, t), name, ts_emit_literal(e, t, other));
    ts_emit_line(e, "if (%s) {", cond);
    ts_emit_open(e, &mark);
    in = body(e, arg);
    ts_emit_line(e, "%s = %s;", name, in);
    ts_emit_close(e, mark);
    return name;
}

const char *ts_emit_number(ts_emit *e, ts_dtype t, double x)
{
    const char *s;

    if (ts_dtype_is_float(t) && t != TS_F64)
        x = (float)x;          /* which may be infinite */
    if (!ts_dtype_is_float(t)) /* C has no literal of the lowest number */
        s = x <= -0x1p63  ? "INT64_MIN"
            : x >= 0x1p63 ? "INT64_MAX" /* which is no double */
                          : ts_arena_printf(e->a, "%" PRId64, (int64_t)x);
    else if (isnan(x))
        s = e->plain ? "NAN" : "__builtin_nanf(\"\")";
    else if (isinf(x))
        s = ts_arena_printf(e->a, "%s%s", x > 0 ? "" : "-",
                            e->plain ? "INFINITY" : "__builtin_inff()");
    else if (t == TS_F64 && !e->plain)
        s = ts_arena_printf(e->a, "%a /* %g */", x, x);
    else {
        s = ts_arena_printf(e->a, t == TS_F64 ? "%.17g" : "%.9g", x);
        s = ts_arena_printf(e->a, "%s%s%s", s, strpbrk(s, ".en") ? "" : ".0",
                            t == TS_F64 ? "" : "f");
    }
    return s;
}

const char *ts_emit_splat(ts_emit *e, ts_dtype t, const char *x)
{
    return ts_arena_printf(e->a, "SPLAT(%s, %s)", ts_emit_ctype(e, t), x);
}

const char *ts_emit_literal(ts_emit *e, ts_dtype t, double x)
{
    const char *s = ts_emit_number(e, t, x);

    return e->lanes ? ts_emit_splat(e, t, s) : s;
}

const ts_ix *ts_spec_ix(ts_arena *a, const ts_affine *f, int naxes, const ts_ix *const *axes)
{
    const ts_ix *x = ts_ix_const(a, f->c);

    for (int i = 0; i < naxes; i++)
        if (f->k[i])
            x = ts_ix_add(a, x, ts_ix_mul(a, axes[i], f->k[i]));
    return x;
}
