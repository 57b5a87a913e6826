/* sort.c - sorting along a dim, as passes that merge sorted runs into runs twice as long.
 *
 *   sort(x)               places = 0, 1, 2, ..; for w = 1, 2, 4, ..: places = merge(x, places)
 * width=w values = gather(x, places) merge(x, places)      x[places] lies in sorted runs of
 * `width`; the same for runs of 2 width
 *
 * A pass answers for each element by itself, as every op does: element k of a merged run takes i
 * elements of the first run and k - i of the second, and i is found by halving (the merge path of
 * Odeh, Green, Mwassi, Shmueli and Birk). So a row of n costs n log^2 n, by any thread in any
 * order. Equal elements keep their order; NaN is larger than all, as PyTorch has it. Only places
 * move, so the gradient is gather's.
 */
#include "op/op.h"
#include "render/emit.h"

static int dim_of(const ts_node *n)
{
    return ts_norm_dim(n, ts_attr_int(n, "dim", -1), n->in[0]->type.rank);
}

ts_status ts_infer_merge(ts_node *n)
{
    const ts_type *places = &n->in[1]->type;

    if (!ts_type_same_shape(&n->in[0]->type, places) || places->dtype != TS_I64)
        return ts_fail_at(n, TS_ERR_TYPE, "merge needs a place in i64 for each element");
    if (ts_attr_int(n, "width", 1) < 1)
        return ts_fail_at(n, TS_ERR_ARG, "merge of runs of %ld", (long)ts_attr_int(n, "width", 1));
    if (dim_of(n) < 0)
        return TS_ERR_ARG;
    return ts_node_set_out1(n, *places);
}

/* --- reference --- */

typedef struct row {
    const ts_tensor *x, *places;
    int64_t at[TS_MAX_RANK];
    int dim;
    bool down;
} row;

static int64_t place(row *r, int64_t i)
{
    r->at[r->dim] = i;
    return (int64_t)ts_dtype_get(TS_I64, r->places->data, ts_flat(&r->places->type, r->at));
}

/* x at the i-th place; a place outside the row reads its end. */
static double behind(row *r, int64_t i)
{
    int64_t at = place(r, i), last = r->x->type.dim[r->dim] - 1;

    r->at[r->dim] = at < 0 ? 0 : TS_MIN(at, last);
    return ts_dtype_get(r->x->type.dtype, r->x->data, ts_flat(&r->x->type, r->at));
}

/* Does the element behind the i-th place come before the one behind the j-th, and not as its equal?
 */
static bool precedes(row *r, int64_t i, int64_t j)
{
    double x = behind(r, r->down ? j : i), y = behind(r, r->down ? i : j);

    return x < y || (x == x && y != y);
}

ts_status ts_eval_merge(const ts_node *n, const ts_eval_ctx *c, const ts_tensor *in, ts_tensor *out)
{
    row r = {.x = &in[0], .places = &in[1], .dim = dim_of(n)};
    int64_t size = in[0].type.dim[r.dim], width = ts_attr_int(n, "width", 1);

    (void)c;
    r.down = ts_attr_int(n, "descending", 0);
    for (ts_each it = ts_each_of(&out->type); it.more; ts_each_next(&it)) {
        int64_t at = it.at[r.dim];
        if (at % (2 * width)) /* a pair of runs at its first element */
            continue;
        memcpy(r.at, it.at, sizeof(r.at));
        for (int64_t a = at, b = at + width, k = at; k < TS_MIN(at + 2 * width, size); k++) {
            bool second = a >= TS_MIN(at + width, size) ||
                          (b < TS_MIN(at + 2 * width, size) && precedes(&r, b, a));
            double from = (double)place(&r, second ? b++ : a++);
            r.at[r.dim] = k;
            ts_dtype_set(TS_I64, out->data, ts_flat(&out->type, r.at), from);
        }
    }
    return TS_OK;
}

/* --- generated code --- */

typedef struct merge_arg {
    const ts_node *n;
    const ts_ix *const *at;
    int dim;
} merge_arg;

static const char *at_var(ts_emit *e, const merge_arg *m, const ts_value *v, const char *index)
{
    const ts_ix *x[TS_MAX_RANK];
    int64_t size = v->type.dim[m->dim];

    for (int d = 0; d < v->type.rank; d++)
        x[d] = m->at[d];
    x[m->dim] = ts_ix_var(e->a, ts_atom_var(e->a, index, 0, size - 1));
    return ts_emit_at(e, v, x);
}

/* x at the i-th place, as behind() has it. */
static const char *element(ts_emit *e, const merge_arg *m, const char *i)
{
    const char *at = ts_emit_name(e, "i"), *p = ts_emit_name(e, "p"), *v;
    long last = (long)m->n->in[0]->type.dim[m->dim] - 1;

    ts_emit_line(e, "int64_t %s = %s;", at, i);
    v = at_var(e, m, m->n->in[1], at);
    ts_emit_line(e, "int64_t %s = %s < 0 ? 0 : %s > %ld ? %ld : %s;", p, v, v, last, last, v);
    return at_var(e, m, m->n->in[0], p);
}

/* "the element behind i comes before the one behind j" */
static const char *before(ts_emit *e, const merge_arg *m, const char *i, const char *j)
{
    bool down = ts_attr_int(m->n, "descending", 0);
    const char *x = element(e, m, down ? j : i), *y = element(e, m, down ? i : j);

    if (!ts_dtype_is_float(m->n->in[0]->type.dtype))
        return ts_arena_printf(e->a, "%s < %s", x, y);
    return ts_arena_printf(e->a, "%s < %s || (%s == %s && %s != %s)", x, y, x, x, y, y);
}

/* lo = how many of the first k elements are of the first run, which starts at `from`. */
static void halve(ts_emit *e, const merge_arg *m, const char *from, const char *k, const char *lo,
                  const char *hi)
{
    const char *mid = ts_emit_name(e, "m"), *i, *j;
    long width = (long)ts_attr_int(m->n, "width", 1);
    int mark;

    ts_emit_line(e, "while (%s < %s) {", lo, hi);
    ts_emit_open(e, &mark);
    ts_emit_line(e, "int64_t %s = (%s + %s) / 2;", mid, lo, hi);
    i = ts_arena_printf(e->a, "%s + %s", from, mid);
    j = ts_arena_printf(e->a, "%s + %ld + %s - 1 - %s", from, width, k, mid);
    ts_emit_line(e, "if (%s)", before(e, m, j, i));
    ts_emit_line(e, "    %s = %s;", hi, mid);
    ts_emit_line(e, "else");
    ts_emit_line(e, "    %s = %s + 1;", lo, mid);
    ts_emit_close(e, mark);
}

static const char *merge_body(ts_emit *e, void *arg)
{
    const merge_arg *m = arg;
    long size = (long)m->n->in[0]->type.dim[m->dim], width = (long)ts_attr_int(m->n, "width", 1);
    const char *p = ts_ix_text(e->a, m->at[m->dim]), *from = ts_emit_name(e, "f");
    const char *k = ts_emit_name(e, "k"), *na = ts_emit_name(e, "a"), *nb = ts_emit_name(e, "b");
    const char *lo = ts_emit_name(e, "l"), *hi = ts_emit_name(e, "h"), *take = ts_emit_name(e, "t");
    const char *i, *j;
    int mark;

    ts_emit_line(e, "int64_t %s = (%s) / %ld * %ld, %s = (%s) - %s;", from, p, 2 * width, 2 * width,
                 k, p, from);
    ts_emit_line(e, "int64_t %s = %ld - %s < %ld ? %ld - %s : %ld;", na, size, from, width, size,
                 from, width);
    ts_emit_line(e, "int64_t %s = %ld - %s - %s < %ld ? %ld - %s - %s : %ld;", nb, size, from, na,
                 width, size, from, na, width);
    ts_emit_line(e, "int64_t %s = %s > %s ? %s - %s : 0, %s = %s < %s ? %s : %s;", lo, k, nb, k, nb,
                 hi, k, na, k, na);
    halve(e, m, from, k, lo, hi);
    i = ts_arena_printf(e->a, "%s + %s", from, lo);
    j = ts_arena_printf(e->a, "%s + %ld + %s - %s", from, width, k, lo);
    ts_emit_line(e, "int64_t %s = %s < %s ? %s : %s;", take, lo, na, i, j);
    ts_emit_line(e, "if (%s < %s && %s - %s < %s) {", lo, na, k, lo, nb);
    ts_emit_open(e, &mark);
    ts_emit_line(e, "if (%s)", before(e, m, j, i));
    ts_emit_line(e, "    %s = %s;", take, j);
    ts_emit_close(e, mark);
    return at_var(e, m, m->n->in[1], take);
}

const char *ts_emit_merge(ts_emit *e, const ts_node *n, int out, const ts_ix *const *at)
{
    merge_arg m = {n, at, dim_of(n)};

    (void)out;
    return e->lanes ? ts_emit_lanes(e, TS_I64, merge_body, &m) : merge_body(e, &m);
}

/* --- sort --- */

ts_value *ts_sort_places(ts_value *keys, int dim, bool descending)
{
    const ts_type *t = &keys->type;
    ts_attr shape[] = {ts_attr_l("shape", t->rank, t->dim), ts_attr_i("dim", dim),
                       ts_attr_s("dtype", "i64")};
    ts_value *places = ts_node_out(ts_node_make(keys->graph, TS_OP(iota), 0, NULL, 3, shape));

    for (int64_t width = 1; width < t->dim[dim]; width *= 2) {
        ts_attr attr[] = {ts_attr_i("dim", dim), ts_attr_i("width", width),
                          ts_attr_i("descending", descending)};
        places = ts_make2(TS_OP(merge), keys, places, 3, attr);
    }
    return places;
}

ts_status ts_expand_sort(ts_graph *g, const ts_node *n, ts_value *const *in, ts_value **out)
{
    const ts_type *t = &in[0]->type;
    int dim = t->rank ? dim_of(n) : 0;

    if (dim < 0)
        return TS_ERR_ARG;
    if (!t->rank) {
        out[0] = in[0];
        out[1] = ts_scalar(g, TS_I64, 0);
        return g->status;
    }
    out[1] = ts_sort_places(ts_detach(in[0]), dim, ts_attr_int(n, "descending", 0));
    out[0] = ts_gather(in[0], dim, out[1]);
    return g->status;
}
