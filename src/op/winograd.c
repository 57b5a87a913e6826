/* winograd.c - the three ops that fast convolution is made of (Winograd 1980; Lavin and Gray 2016).
 *
 *   windows(x)   [N,C,H,W] -> [kh,kw,N,th,tw,C], overlapping tiles:
 *                y[a,b,n,i,j,c] = x[n,c,i*sh+a-ph,j*sw+b-pw], 0 outside.
 *                Attributes kernel, stride, padding, count (th, tw)
 *   untile(x)    [kh,kw,N,th,tw,C] -> [N,C,H,W]   tiles that do not overlap, back as a picture:
 *                y[n,c,h,w] = x[h%kh,w%kw,n,h/kh,w/kw,c]. Attribute shape (H, W)
 *   mix(x, m)    y[..,i,..] = sum over l of m[i,l] x[..,l,..] along `dim`, m a matrix; a constant
 *                one is written out term by term, zeros and ones known
 */
#include "op/emit.h"
#include "op/op.h"

typedef struct tiling {
    int64_t kernel[2], stride[2], padding[2], count[2];
} tiling;

static ts_status attrs(const ts_node *n, tiling *t)
{
    const struct {
        const char *name;
        int64_t *to, least;
    } lists[] = {{"kernel", t->kernel, 1},
                 {"stride", t->stride, 1},
                 {"padding", t->padding, 0},
                 {"count", t->count, 1}};

    for (int i = 0; i < TS_COUNT(lists); i++) {
        const int64_t *l;
        if (ts_attr_list(n, lists[i].name, &l) != 2 || l[0] < lists[i].least ||
            l[1] < lists[i].least)
            return ts_fail_at(n, TS_ERR_ARG, "windows needs 2 values of %s, at least %ld",
                              lists[i].name, (long)lists[i].least);
        lists[i].to[0] = l[0];
        lists[i].to[1] = l[1];
    }
    return TS_OK;
}

ts_status ts_infer_windows(ts_node *n)
{
    const ts_type *x = &n->in[0]->type;
    ts_type y = {.dtype = x->dtype, .rank = 6};
    tiling t;

    TS_TRY(attrs(n, &t));
    if (x->rank != 4)
        return ts_fail_at(n, TS_ERR_SHAPE, "windows needs an input of rank 4, got %d", x->rank);
    y.dim[0] = t.kernel[0];
    y.dim[1] = t.kernel[1];
    y.dim[2] = x->dim[0];
    y.dim[3] = t.count[0];
    y.dim[4] = t.count[1];
    y.dim[5] = x->dim[1];
    return ts_node_set_out1(n, y);
}

ts_status ts_eval_windows(const ts_node *n, const ts_eval_ctx *c, const ts_tensor *in,
                          ts_tensor *out)
{
    tiling t;

    (void)c;
    TS_TRY(attrs(n, &t));
    for (ts_each it = ts_each_of(&out->type); it.more; ts_each_next(&it)) {
        int64_t at[4] = {it.at[2], it.at[5], it.at[3] * t.stride[0] + it.at[0] - t.padding[0],
                         it.at[4] * t.stride[1] + it.at[1] - t.padding[1]};
        bool in_y = at[2] >= 0 && at[2] < in->type.dim[2],
             in_x = at[3] >= 0 && at[3] < in->type.dim[3];
        ts_dtype_set(out->type.dtype, out->data, it.flat,
                     in_y && in_x ? ts_dtype_get(in->type.dtype, in->data, ts_flat(&in->type, at))
                                  : 0);
    }
    return TS_OK;
}

typedef struct window_arg {
    const ts_value *v;
    const ts_ix *x[4];
} window_arg;

static const char *window_body(ts_emit *e, void *arg)
{
    window_arg *w = arg;

    return ts_emit_at(e, w->v, w->x);
}

const char *ts_emit_windows(ts_emit *e, const ts_node *n, int out, const ts_ix *const *at)
{
    window_arg w = {.v = n->in[0], .x = {at[2], at[5]}};
    tiling t;

    (void)out;
    attrs(n, &t);
    for (int d = 0; d < 2; d++)
        w.x[2 + d] = ts_ix_addc(
            e->a, ts_ix_add(e->a, ts_ix_mul(e->a, at[3 + d], t.stride[d]), at[d]), -t.padding[d]);
    return ts_emit_guard(e, ts_emit_inside_all(e, 2, w.x + 2, n->in[0]->type.dim + 2),
                         ts_emit_cond_by_lane(e, 2, w.x + 2, n->in[0]->type.dim + 2),
                         n->in[0]->type.dtype, 0, window_body, &w);
}

/* --- untile --- */

ts_status ts_infer_untile(ts_node *n)
{
    const ts_type *x = &n->in[0]->type;
    ts_type y = {.dtype = x->dtype, .rank = 4, .dim = {x->dim[2], x->dim[5]}};
    const int64_t *shape;

    if (x->rank != 6)
        return ts_fail_at(n, TS_ERR_SHAPE, "untile needs an input of rank 6, got %d", x->rank);
    if (ts_attr_list(n, "shape", &shape) != 2)
        return ts_fail_at(n, TS_ERR_ARG, "untile needs 2 values of shape");
    for (int d = 0; d < 2; d++) {
        y.dim[2 + d] = shape[d];
        if (shape[d] < 1 || shape[d] > x->dim[d] * x->dim[3 + d])
            return ts_fail_at(n, TS_ERR_SHAPE, "untile cannot make %ld of %ld tiles of %ld",
                              (long)shape[d], (long)x->dim[3 + d], (long)x->dim[d]);
    }
    return ts_node_set_out1(n, y);
}

ts_status ts_eval_untile(const ts_node *n, const ts_eval_ctx *c, const ts_tensor *in,
                         ts_tensor *out)
{
    const int64_t *m = in->type.dim;

    (void)n, (void)c;
    for (ts_each it = ts_each_of(&out->type); it.more; ts_each_next(&it)) {
        int64_t h = it.at[2], w = it.at[3];
        int64_t at[6] = {h % m[0], w % m[1], it.at[0], h / m[0], w / m[1], it.at[1]};
        ts_dtype_set(out->type.dtype, out->data, it.flat,
                     ts_dtype_get(in->type.dtype, in->data, ts_flat(&in->type, at)));
    }
    return TS_OK;
}

const char *ts_emit_untile(ts_emit *e, const ts_node *n, int out, const ts_ix *const *at)
{
    const int64_t *m = n->in[0]->type.dim;
    const ts_ix *x[6] = {[2] = at[0], [5] = at[1]};

    (void)out;
    for (int d = 0; d < 2; d++) {
        x[d] = ts_ix_mod(e->a, at[2 + d], m[d]);
        x[3 + d] = ts_ix_div(e->a, at[2 + d], m[d]);
    }
    return ts_emit_at(e, n->in[0], x);
}

/* --- mix --- */

static int mix_dim(const ts_node *n)
{
    return ts_norm_dim(n, ts_attr_int(n, "dim", 0), n->in[0]->type.rank);
}

ts_status ts_infer_mix(ts_node *n)
{
    ts_type t = n->in[0]->type;
    const ts_value *m = n->in[1];
    int dim = mix_dim(n);

    if (dim < 0)
        return TS_ERR_ARG;
    if (!ts_dtype_is_float(t.dtype) || !ts_dtype_is_float(m->type.dtype))
        return ts_fail_at(n, TS_ERR_TYPE, "mix needs floats, got %s and %s", ts_dtype_name(t.dtype),
                          ts_dtype_name(m->type.dtype));
    if (m->type.rank != 2 || m->type.dim[1] != t.dim[dim])
        return ts_fail_at(n, TS_ERR_SHAPE, "mix needs a matrix with %ld columns", (long)t.dim[dim]);
    t.dim[dim] = m->type.dim[0];
    return ts_node_set_out1(n, t);
}

ts_status ts_eval_mix(const ts_node *n, const ts_eval_ctx *c, const ts_tensor *in, ts_tensor *out)
{
    int dim = mix_dim(n);
    int64_t at[TS_MAX_RANK], len = in[0].type.dim[dim];

    (void)c;
    for (ts_each it = ts_each_of(&out->type); it.more; ts_each_next(&it)) {
        double sum = 0;
        memcpy(at, it.at, sizeof(at));
        for (int64_t l = 0; l < len; l++) {
            at[dim] = l;
            sum += ts_dtype_get(in[1].type.dtype, in[1].data, it.at[dim] * len + l) *
                   ts_dtype_get(in[0].type.dtype, in[0].data, ts_flat(&in[0].type, at));
        }
        ts_dtype_set(out->type.dtype, out->data, it.flat, sum);
    }
    return TS_OK;
}

static const void *constant(const ts_value *m)
{
    return m->kind == TS_VALUE_NODE && m->node->op == TS_OP(const) ? m->node->data : NULL;
}

/* Element i of the mixed dim is a constant in the kernels made for it (see kernel.c); otherwise a
 * loop. */
const char *ts_emit_mix(ts_emit *e, const ts_node *n, int out, const ts_ix *const *at)
{
    int dim = mix_dim(n), mark;
    const void *m = constant(n->in[1]);
    int64_t row, len = n->in[0]->type.dim[dim];
    ts_dtype t = n->out[0]->type.dtype;
    const ts_ix *x[TS_MAX_RANK];
    const char *sum = NULL, *name, *one, *factor;

    (void)out;
    for (int d = 0; d < n->in[0]->type.rank; d++)
        x[d] = at[d];
    if (!ts_ix_is_const(at[dim], &row) || !m) {
        const ts_atom *l;
        const ts_ix *mat[2];
        name = ts_emit_name(e, "s");
        ts_emit_line(e, "%s %s = %s;", ts_emit_ctype(e, t), name, ts_emit_literal(e, t, 0));
        l = ts_emit_loop(e, "r", 0, len);
        ts_emit_open(e, &mark);
        x[dim] = mat[1] = ts_ix_var(e->a, l);
        mat[0] = at[dim];
        one = ts_emit_at(e, n->in[0], x);
        factor = ts_emit_at(e, n->in[1], mat);
        ts_emit_product(e, t, name, factor, one);
        ts_emit_close(e, mark);
        return name;
    }
    for (int64_t l = 0; l < len; l++) {
        double f = ts_dtype_get(n->in[1]->type.dtype, m, row * len + l);
        if (f == 0)
            continue;
        x[dim] = ts_ix_const(e->a, l);
        one = ts_emit_at(e, n->in[0], x);
        factor = f == 1    ? ""
                 : f == -1 ? "-"
                           : ts_arena_printf(e->a, "%s * ", ts_emit_number(e, t, f));
        sum = sum ? ts_arena_printf(e->a, "%s + %s%s", sum, factor, one)
                  : ts_arena_printf(e->a, "%s%s", factor, one);
    }
    return ts_emit_temp(e, t, "%s", sum ? sum : ts_emit_literal(e, t, 0));
}

/* x with its mixed dim last, as a matrix */
static ts_value *rows_of(ts_value *x, int dim)
{
    int last = x->type.rank - 1;

    if (dim != last)
        x = ts_transpose(x, dim, last);
    return x ? ts_reshape(x, ts_type_count(&x->type) / x->type.dim[last], x->type.dim[last]) : NULL;
}

/* dx = m^T dy, dm = dy^T x, both along dim */
ts_status ts_grad_mix(ts_node *n, ts_value *const *dy, ts_value **dx)
{
    int dim = mix_dim(n);
    ts_attr attr[] = {ts_attr_i("dim", dim)};
    ts_value *d, *x;

    x = ts_transpose(n->in[1], 0, 1);
    dx[0] = ts_make2(TS_OP(mix), dy[0], x, 1, attr);
    d = rows_of(dy[0], dim);
    x = rows_of(n->in[0], dim);
    dx[1] = ts_cast(ts_matmul(d ? ts_transpose(d, 0, 1) : NULL, x), n->in[1]->type.dtype);
    return TS_OK;
}
