/* scan.c - running sums and products along a dim, and the places of the largest so far.
 *
 *   scan(x) dim how reverse     y[k] = x[0] op .. op x[k], op being add or mul; from the end if reverse
 *   scan_places(x) dim how      the last place of the largest (max) or smallest (min) of x[0] .. x[k]; a NaN stays
 *
 * A row is a chain of steps, so the generated code makes rows side by side together, in vectors or with a variable for
 * each: one chain waits for its adder for most of its time. Floats are added up in double, as PyTorch does.
 *
 * The gradient of a sum is the sum from the other end. That of a product is sum(dy y from k on) / x[k]; before the first zero of
 * a row that holds, behind it all is zero, and the zero itself has what the product is without it.
 */
#include "op/emit.h"
#include "op/op.h"
#include "op/recur.h"

static int dim_of(const ts_node *n)
{
    return ts_norm_dim(n, ts_attr_int(n, "dim", 0), n->in[0]->type.rank);
}

static bool is_how(const ts_node *n, const char *how)
{
    return !strcmp(ts_attr_str(n, "how", ""), how);
}

static ts_status check_how(const ts_node *n, const char *one, const char *other)
{
    if (dim_of(n) < 0)
        return TS_ERR_ARG;
    if (is_how(n, one) || is_how(n, other))
        return TS_OK;
    return ts_fail_at(n, TS_ERR_ARG, "%s with how='%.20s'", n->op->name, ts_attr_str(n, "how", ""));
}

ts_status ts_infer_scan(ts_node *n)
{
    ts_dtype t = n->in[0]->type.dtype;

    TS_TRY(check_how(n, "add", "mul"));
    if (t == TS_BOOL)
        return ts_fail_at(n, TS_ERR_TYPE, "scan of %s", ts_dtype_name(t));
    return ts_node_set_out1(n, n->in[0]->type);
}

ts_status ts_infer_scan_places(ts_node *n)
{
    ts_type t = n->in[0]->type;

    TS_TRY(check_how(n, "max", "min"));
    t.dtype = TS_I64;
    return ts_node_set_out1(n, t);
}

/* --- reference --- */

/* The first element of each row, and how far it is to the next. */
typedef struct line {
    int64_t first, step, size;
} line;

static bool line_at(const ts_node *n, const ts_type *t, const ts_each *it, line *l)
{
    int dim = dim_of(n);

    *l = (line){it->flat, 1, t->dim[dim]};
    for (int d = dim + 1; d < t->rank; d++)
        l->step *= t->dim[d];
    return !it->at[dim];
}

static void scan_ints(const ts_node *n, const int64_t *x, int64_t *y, const line *l)
{
    bool down = ts_attr_int(n, "reverse", 0), mul = is_how(n, "mul");
    uint64_t all = mul;

    for (int64_t k = 0; k < l->size; k++) {
        int64_t i = l->first + l->step * (down ? l->size - 1 - k : k);
        all = mul ? all * (uint64_t)x[i] : all + (uint64_t)x[i];
        y[i] = (int64_t)all;
    }
}

static void scan_numbers(const ts_node *n, const ts_tensor *in, ts_tensor *out, const line *l)
{
    bool down = ts_attr_int(n, "reverse", 0), mul = is_how(n, "mul");
    double all = mul;

    for (int64_t k = 0; k < l->size; k++) {
        int64_t i = l->first + l->step * (down ? l->size - 1 - k : k);
        double x = ts_dtype_get(in->type.dtype, in->data, i);
        all = mul ? all * x : all + x;
        ts_dtype_set(out->type.dtype, out->data, i, all);
    }
}

ts_status ts_eval_scan(const ts_node *n, const ts_eval_ctx *c, const ts_tensor *in, ts_tensor *out)
{
    line l;

    (void)c;
    for (ts_each it = ts_each_of(&out->type); it.more; ts_each_next(&it)) {
        if (!line_at(n, &out->type, &it, &l))
            continue;
        if (out->type.dtype == TS_I64)
            scan_ints(n, in->data, out->data, &l);
        else
            scan_numbers(n, in, out, &l);
    }
    return TS_OK;
}

/* Is x the new best, y being the best so far? */
static bool wins(bool max, double x, double y)
{
    return x != x || (max ? x >= y : x <= y);
}

ts_status ts_eval_scan_places(const ts_node *n, const ts_eval_ctx *c, const ts_tensor *in,
                              ts_tensor *out)
{
    const ts_dtype t = in->type.dtype;
    bool max = is_how(n, "max"), whole = t == TS_I64;
    const int64_t *ints = in->data;
    int64_t best;
    line l;

    (void)c;
    for (ts_each it = ts_each_of(&out->type); it.more; ts_each_next(&it)) {
        if (!line_at(n, &out->type, &it, &l))
            continue;
        best = 0;
        for (int64_t k = 1; k < l.size; k++) {
            int64_t i = l.first + l.step * k, b = l.first + l.step * best;
            bool better =
                whole ? (max ? ints[i] >= ints[b] : ints[i] <= ints[b])
                      : wins(max, ts_dtype_get(t, in->data, i), ts_dtype_get(t, in->data, b));
            best = better ? k : best;
            ts_dtype_set(TS_I64, out->data, i, (double)best);
        }
        ts_dtype_set(TS_I64, out->data, l.first, 0);
    }
    return TS_OK;
}

/* --- generated code --- */

enum { LANES = 8 }; /* doubles in a vector */

typedef struct scan {
    const ts_node *n;
    const char *name; /* of the variables, before the part's number */
    const char *k;
    const ts_ix *x[TS_MAX_RANK];
} scan;

static bool adds_doubles(const ts_emit *e, const ts_node *n)
{
    ts_dtype t = n->in[0]->type.dtype;

    return ts_dtype_is_float(t) && t != TS_F64 && !e->plain && !e->gpu;
}

/* The type in which is added up: doubles, which have a name in vectors; of integers one that wraps. */
static const char *sum_type(ts_emit *e, const ts_node *n)
{
    ts_dtype t = n->in[0]->type.dtype;

    if (adds_doubles(e, n))
        return e->lanes ? ts_arena_printf(e->a, "double_x%d", e->lanes) : "double";
    return t == TS_I64                           ? "uint64_t"
           : t == TS_F64 || ts_dtype_is_float(t) ? ts_emit_ctype(e, t)
                                                 : "uint32_t";
}

static void declare_sum(ts_emit *e, void *arg)
{
    const scan *s = arg;
    const char *type = sum_type(e, s->n), *first = is_how(s->n, "mul") ? "1" : "0";

    if (e->lanes) {
        ts_emit_line(e, "typedef double %s_%s%d __attribute__((vector_size(%d)));", type, s->name,
                     e->part, 8 * e->lanes);
        ts_emit_line(e, "%s_%s%d %s%d = %s - (%s_%s%d){0};", type, s->name, e->part, s->name,
                     e->part, first, type, s->name, e->part);
        return;
    }
    ts_emit_line(e, "%s %s%d = %s;", type, s->name, e->part, first);
}

static void add_one(ts_emit *e, void *arg)
{
    const scan *s = arg;
    const ts_value *y = s->n->out[0];
    const char *sum = ts_arena_printf(e->a, "%s%d", s->name, e->part), *type = sum_type(e, s->n),
               *x = ts_emit_at(e, s->n->in[0], s->x), *op = is_how(s->n, "mul") ? "*" : "+";

    if (e->lanes) {
        ts_emit_line(e, "%s %s= __builtin_convertvector(%s, %s_%s);", sum, op, x, type, sum);
        sum = ts_arena_printf(e->a, "__builtin_convertvector(%s, f32x%d)", sum, e->lanes);
    } else {
        ts_emit_line(e, "%s %s= (%s)%s;", sum, op, type, x);
        sum = ts_arena_printf(e->a, "(%s)%s", ts_emit_ctype(e, y->type.dtype), sum);
    }
    ts_emit_store(e, y, s->x, ts_emit_temp(e, y->type.dtype, "%s", sum));
}

static void begin(ts_emit *e, scan *s, const ts_node *n, const ts_ix *const *at)
{
    s->n = n;
    s->name = ts_emit_name(e, "s");
    s->name = ts_arena_printf(e->a, "%s_", s->name);
    for (int d = 0; d < n->out[0]->type.rank; d++)
        s->x[d] = at[d];
    s->x[dim_of(n)] = ts_ix_const(e->a, 0);
    e->width = TS_MIN(e->width, LANES);
}

/* for (k) {, up or down */
static void open_steps(ts_emit *e, scan *s, bool down, int *mark)
{
    int64_t size = s->n->in[0]->type.dim[dim_of(s->n)];

    s->k = ts_emit_name(e, "k");
    if (down)
        ts_emit_line(e, "for (%s %s = %ld; %s >= 0; %s--) {", e->index, s->k, (long)size - 1, s->k,
                     s->k);
    else
        ts_emit_line(e, "for (%s %s = 0; %s < %ld; %s++) {", e->index, s->k, s->k, (long)size,
                     s->k);
    ts_emit_open(e, mark);
    if (size > 1)
        s->x[dim_of(s->n)] = ts_ix_var(e->a, ts_atom_var(e->a, s->k, 0, size - 1));
}

const char *ts_emit_scan(ts_emit *e, const ts_node *n, int out, const ts_ix *const *at)
{
    int how = TS_COLUMNS_APART | (adds_doubles(e, n) ? TS_COLUMNS_VECTORS : 0), mark, last;
    scan s;

    (void)out;
    last = n->in[0]->type.rank - 1;
    while (last > 0 && n->in[0]->type.dim[last] == 1)
        last--;
    if (e->column != last)
        how = TS_COLUMNS_APART; /* rows are not side by side in memory */
    begin(e, &s, n, at);
    ts_emit_columns(e, how, s.x, declare_sum, &s);
    open_steps(e, &s, ts_attr_int(n, "reverse", 0), &mark);
    ts_emit_columns(e, how, s.x, add_one, &s);
    ts_emit_close(e, mark);
    return NULL;
}

static void declare_best(ts_emit *e, void *arg)
{
    const scan *s = arg;
    ts_dtype t = s->n->in[0]->type.dtype;

    ts_emit_line(e, "int64_t %s%d = 0;", s->name, e->part);
    ts_emit_line(e, "%s %sx%d = %s;", ts_emit_ctype(e, t), s->name, e->part,
                 ts_emit_at(e, s->n->in[0], s->x));
}

static void best_one(ts_emit *e, void *arg)
{
    const scan *s = arg;
    const char *x = ts_emit_at(e, s->n->in[0], s->x),
               *best = ts_arena_printf(e->a, "%sx%d", s->name, e->part),
               *at = ts_arena_printf(e->a, "%s%d", s->name, e->part), *nan = "";

    if (ts_dtype_is_float(s->n->in[0]->type.dtype))
        nan = ts_arena_printf(e->a, " || %s != %s", x, x);
    ts_emit_line(e, "if (%s %s %s%s)", x, is_how(s->n, "max") ? ">=" : "<=", best, nan);
    ts_emit_line(e, "    %s = %s, %s = %s;", best, x, at, s->k);
    ts_emit_store(e, s->n->out[0], s->x, at);
}

const char *ts_emit_scan_places(ts_emit *e, const ts_node *n, int out, const ts_ix *const *at)
{
    scan s;
    int mark;

    (void)out;
    begin(e, &s, n, at);
    ts_emit_columns(e, TS_COLUMNS_APART, s.x, declare_best, &s);
    open_steps(e, &s, false, &mark);
    ts_emit_columns(e, TS_COLUMNS_APART, s.x, best_one, &s);
    ts_emit_close(e, mark);
    return NULL;
}

/* --- gradient --- */

static ts_value *scanned(ts_value *x, int dim, const char *how, bool reverse)
{
    ts_attr attr[] = {ts_attr_i("dim", dim), ts_attr_s("how", how), ts_attr_i("reverse", reverse)};

    return ts_make1(TS_OP(scan), x, 3, attr);
}

/* c counts the zeros so far: 0 before the first, and 1 at it. */
static ts_value *grad_product(ts_value *x, ts_value *y, ts_value *dy, int dim, bool down)
{
    ts_value *none = ts_full_like(x, 0), *one = ts_full_like(x, 1), *zero = ts_eq(x, none), *c,
             *first, *others, *rest;

    c = scanned(ts_cast(zero, x->type.dtype), dim, "add", down);
    first = ts_where(zero, c, none);
    first = ts_eq(first, one);
    others = scanned(ts_where(first, one, x), dim, "mul", down);
    others = scanned(ts_mul(dy, others), dim, "add", !down);
    rest = ts_div(scanned(ts_mul(dy, y), dim, "add", !down), ts_where(zero, one, x));
    return ts_where(ts_eq(c, none), rest, ts_where(first, others, none));
}

ts_status ts_grad_scan(ts_node *n, ts_value *const *dy, ts_value **dx)
{
    bool down = ts_attr_int(n, "reverse", 0);
    int dim = dim_of(n);

    dx[0] = is_how(n, "add") ? scanned(dy[0], dim, "add", !down)
                             : grad_product(n->in[0], n->out[0], dy[0], dim, down);
    return TS_OK;
}

/* --- for many threads --- */

static ts_value *shifted(ts_value *x, int dim, int64_t by, bool down, double with)
{
    int64_t lo[TS_MAX_RANK] = {0}, hi[TS_MAX_RANK] = {0}, size = x->type.dim[dim];

    *(down ? &hi[dim] : &lo[dim]) = by;
    x = down ? ts_slice(x, dim, by, size, 1) : ts_slice(x, dim, 0, size - by, 1);
    return ts_pad(x, x ? x->type.rank : 0, lo, hi, with);
}

/* In log2 n steps: after step k each element holds the 2^k before it (Hillis and Steele). */
ts_status ts_scan_written_out(ts_graph *g, const ts_node *n, ts_value *const *in, ts_value **out)
{
    bool down = ts_attr_int(n, "reverse", 0), mul = is_how(n, "mul");
    int dim = dim_of(n);
    ts_value *x = in[0];

    for (int64_t by = 1; x && by < n->in[0]->type.dim[dim]; by *= 2) {
        ts_value *before = shifted(x, dim, by, down, mul);
        x = mul ? ts_mul(before, x) : ts_add(before, x);
    }
    out[0] = x;
    return g->status;
}
