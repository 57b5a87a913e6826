/* fold.c - what is known now is computed now.
 *
 *   before                          after
 *     %1 = full 2                     %4 = full 6 [16,10]
 *     %2 = full 3
 *     %3 = mul %1, %2
 *     %4 = expand %3 [16,10]
 *
 * The reference kernels do the computing, so the numbers are those of the reference executor. A
 * result whose elements are all the same bits is a full, whatever its size; otherwise it is a const
 * if it is small and no exception (an infinity or a NaN made of numbers), for a const is data in
 * the generated program. Integers are folded while they are exact in the double the reference
 * computes in.
 */
#include "op/op.h"
#include "pass/pass.h"
#include <math.h>

enum {
    MOST_MADE = 4096,   /* elements of a new const */
    MOST_READ = 1 << 16 /* elements of the operands; more is left to the program */
};

static bool is_op(const ts_value *v, const ts_op *op)
{
    return v->kind == TS_VALUE_NODE && v->node->op == op;
}

bool ts_full_value(const ts_value *v, double *x)
{
    uint64_t bits = 0;

    if (!is_op(v, TS_OP(full)))
        return false;
    ts_dtype_set(v->type.dtype, &bits, 0, ts_attr_float(v->node, "value", 0));
    *x = ts_dtype_get(v->type.dtype, &bits, 0);
    return true;
}

/* A full of one element's bits, if a double can say them. NaN is NaN: which one, differs between
 * machines. */
static ts_value *full_of(ts_graph *g, const ts_type *t, const void *data)
{
    uint64_t bits = 0;
    double x = ts_dtype_get(t->dtype, data, 0);

    ts_dtype_set(t->dtype, &bits, 0, x);
    if (x == x && memcmp(&bits, data, ts_dtype_size(t->dtype)))
        return NULL;
    return ts_full_n(g, t->dtype, x == x ? x : NAN, t->rank, t->dim);
}

static bool all_same(const ts_type *t, const char *data)
{
    size_t size = ts_dtype_size(t->dtype);

    return !memcmp(data, data + size, ts_type_bytes(t) - size);
}

static ts_value *literal(ts_graph *g, const ts_type *t, const void *data)
{
    ts_value *v = all_same(t, data) ? full_of(g, t, data) : NULL;

    if (v || ts_type_count(t) > MOST_MADE)
        return v;
    return ts_const_n(g, t->dtype, data, t->rank, t->dim);
}

/* Products of these are exact in double. */
static bool exact_in_double(const ts_value *v)
{
    int64_t count = is_op(v, TS_OP(const)) ? ts_type_count(&v->type) : 1;

    if (ts_dtype_is_float(v->type.dtype))
        return true;
    for (int64_t i = 0; i < count; i++) {
        double x = is_op(v, TS_OP(const)) ? ts_dtype_get(v->type.dtype, v->node->data, i)
                                          : ts_attr_float(v->node, "value", 0);
        if (fabs(x) > 0x1p26)
            return false;
    }
    return true;
}

static bool operands_known(const ts_node *n, bool *all_full)
{
    *all_full = true;
    for (int i = 0; i < n->nin; i++) {
        bool full = is_op(n->in[i], TS_OP(full));
        if ((!full && !is_op(n->in[i], TS_OP(const))) || !exact_in_double(n->in[i]))
            return false;
        *all_full = *all_full && full;
    }
    return true;
}

static bool all_finite(const ts_type *t, const void *data)
{
    for (int64_t i = 0; i < ts_type_count(t) && ts_dtype_is_float(t->dtype); i++)
        if (!isfinite(ts_dtype_get(t->dtype, data, i)))
            return false;
    return true;
}

/* log(-1) is left to the program, which may have to say so (guard.c). */
static bool an_exception(const ts_node *n, const ts_type *t, const void *data)
{
    double x;

    if (n->op->flags & TS_VIEW || all_finite(t, data))
        return false;
    for (int i = 0; i < n->nin; i++)
        if (ts_full_value(n->in[i], &x) ? !isfinite(x)
                                        : !all_finite(&n->in[i]->type, n->in[i]->node->data))
            return false;
    return true;
}

/* Pointwise over fulls of any size: one element says it all. */
static ts_value *fold_scalar(const ts_node *n)
{
    uint64_t bits[4] = {0};
    ts_tensor in[3], out = {ts_type_scalar(n->out[0]->type.dtype), &bits[3]};

    for (int i = 0; i < n->nin; i++) {
        in[i] = (ts_tensor){ts_type_scalar(n->in[i]->type.dtype), &bits[i]};
        ts_dtype_set(in[i].type.dtype, in[i].data, 0, ts_attr_float(n->in[i]->node, "value", 0));
    }
    if (n->op->eval(n, &(ts_eval_ctx){0}, in, &out) || an_exception(n, &out.type, out.data))
        return NULL;
    return full_of(n->out[0]->graph, &n->out[0]->type, out.data);
}

/* Moving equal elements about gives equal elements. */
static ts_value *fold_view(const ts_node *n)
{
    double x, y;

    ts_full_value(n->in[0], &x);
    for (int i = 1; i < n->nin; i++) {
        ts_full_value(n->in[i], &y);
        if (memcmp(&x, &y, sizeof(x)))
            return NULL;
    }
    if (n->op == TS_OP(pad)) {
        uint64_t bits = 0;
        ts_dtype_set(n->out[0]->type.dtype, &bits, 0, ts_attr_float(n, "value", 0));
        y = ts_dtype_get(n->out[0]->type.dtype, &bits, 0);
        if (memcmp(&x, &y, sizeof(x)))
            return NULL;
    }
    return ts_full_n(n->out[0]->graph, n->out[0]->type.dtype, x, n->out[0]->type.rank,
                     n->out[0]->type.dim);
}

/* A const in another shape is the same data, however big. */
static ts_value *fold_reshape(const ts_node *n)
{
    const ts_type *t = &n->out[0]->type;

    return ts_const_n(n->out[0]->graph, t->dtype, n->in[0]->node->data, t->rank, t->dim);
}

static ts_value *fold_any(const ts_node *n)
{
    int64_t count = 0;
    void *data[8];

    for (int i = 0; i < n->nin; i++)
        count += ts_type_count(&n->in[i]->type);
    if (n->nout != 1 || count > MOST_READ || ts_type_count(&n->out[0]->type) > MOST_MADE ||
        ts_ref_fold(n->out[0]->graph->arena, n, data) || an_exception(n, &n->out[0]->type, data[0]))
        return NULL;
    return literal(n->out[0]->graph, &n->out[0]->type, data[0]);
}

ts_value *ts_rule_fold(const ts_node *n)
{
    const unsigned never = TS_RANDOM | TS_CONTROL | TS_COMPOSITE | TS_HOST;
    bool all_full;

    if (n->op == TS_OP(const))
        return all_same(&n->out[0]->type, n->data)
                   ? full_of(n->out[0]->graph, &n->out[0]->type, n->data)
                   : NULL;
    if (!n->nin || n->op->flags & never || !n->op->eval || !operands_known(n, &all_full))
        return NULL;
    if (all_full && n->op->flags & TS_POINT)
        return fold_scalar(n);
    if (all_full && n->op->flags & TS_VIEW) {
        ts_value *v = fold_view(n);
        if (v)
            return v;
    }
    if (!all_full && n->op == TS_OP(reshape))
        return fold_reshape(n);
    if (n->op == TS_OP(expand)) /* it costs nothing as it is; its data would */
        return NULL;
    return fold_any(n);
}
