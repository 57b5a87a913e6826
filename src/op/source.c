/* source.c - tensors from nothing: full, const, iota. */
#include "op/emit.h"
#include "op/op.h"

static ts_status type_from_attrs(ts_node *n, ts_type *t)
{
    const char *name = ts_attr_str(n, "dtype", "f32");
    const int64_t *shape;

    t->rank = ts_attr_list(n, "shape", &shape);
    TS_TRY(ts_dtype_parse(name, strlen(name), &t->dtype));
    for (int i = 0; i < t->rank; i++) {
        if (shape[i] < 0)
            return ts_fail_at(n, TS_ERR_SHAPE, "dim %d of %s is %ld; sizes are at least 0", i,
                              n->op->name, (long)shape[i]);
        t->dim[i] = shape[i];
    }
    return TS_OK;
}

static ts_status infer(ts_node *n)
{
    ts_type t = {0};

    TS_TRY(type_from_attrs(n, &t));
    return ts_node_set_out1(n, t);
}

ts_status ts_infer_full(ts_node *n)
{
    return infer(n);
}

ts_status ts_infer_const(ts_node *n)
{
    return infer(n);
}

ts_status ts_infer_iota(ts_node *n)
{
    int64_t dim = ts_attr_int(n, "dim", 0);
    ts_type t = {0};

    TS_TRY(type_from_attrs(n, &t));
    if (dim < 0 || dim >= TS_MAX(t.rank, 1))
        return ts_fail_at(n, TS_ERR_ARG, "iota along dim %ld of a tensor of rank %d", (long)dim,
                          t.rank);
    return ts_node_set_out1(n, t);
}

ts_status ts_eval_full(const ts_node *n, const ts_eval_ctx *c, const ts_tensor *in, ts_tensor *out)
{
    int64_t count = ts_type_count(&out->type);

    (void)c, (void)in;
    for (int64_t i = 0; i < count; i++)
        ts_dtype_set(out->type.dtype, out->data, i, ts_attr_float(n, "value", 0));
    return TS_OK;
}

const char *ts_emit_full(ts_emit *e, const ts_node *n, int out, const ts_ix *const *at)
{
    double x = ts_attr_float(n, "value", 0);
    ts_dtype t = n->out[0]->type.dtype;
    uint64_t rounded;

    (void)out, (void)at;
    if (t == TS_F16 || t == TS_BF16) { /* as it would be in memory */
        ts_dtype_set(t, &rounded, 0, x);
        x = ts_dtype_get(t, &rounded, 0);
    }
    return ts_emit_temp(e, t, "%s", ts_emit_literal(e, t, x));
}

ts_status ts_eval_const(const ts_node *n, const ts_eval_ctx *c, const ts_tensor *in, ts_tensor *out)
{
    (void)c, (void)in;
    memcpy(out->data, n->data, ts_type_bytes(&out->type));
    return TS_OK;
}

/* A const always lies in memory (a static array of the source): nobody asks for its code. */
const char *ts_emit_const(ts_emit *e, const ts_node *n, int out, const ts_ix *const *at)
{
    (void)e, (void)n, (void)out, (void)at;
    return NULL;
}

/* iota: the coordinate along `dim` */
ts_status ts_eval_iota(const ts_node *n, const ts_eval_ctx *c, const ts_tensor *in, ts_tensor *out)
{
    int64_t dim = ts_attr_int(n, "dim", 0);

    (void)c, (void)in;
    for (ts_each it = ts_each_of(&out->type); it.more; ts_each_next(&it))
        ts_dtype_set(out->type.dtype, out->data, it.flat, (double)it.at[dim]);
    return TS_OK;
}

const char *ts_emit_iota(ts_emit *e, const ts_node *n, int out, const ts_ix *const *at)
{
    const ts_ix *x = n->out[0]->type.rank ? at[ts_attr_int(n, "dim", 0)] : ts_ix_const(e->a, 0);
    ts_dtype t = n->out[0]->type.dtype;
    const char *name;
    int lanes = e->lanes;

    (void)out;
    if (!lanes)
        return ts_emit_temp(e, t, "(%s)(%s)", ts_emit_ctype(e, t), ts_ix_text(e->a, x));
    name = ts_emit_name(e, "t");
    ts_emit_line(e, "%s %s;", ts_emit_ctype(e, t), name);
    ts_emit_line(e, "for (int %s = 0; %s < %d; %s++)", e->lane->name, e->lane->name, lanes,
                 e->lane->name);
    ts_emit_line(e, "    %s[%s] = (%s)(%s);", name, e->lane->name,
                 ts_dtype_is_float(t) ? "float" : "int32_t", ts_ix_text(e->a, x));
    return name;
}
