/* view.c - ops that move elements: reshape, permute, expand, slice, pad, flip, concat.
 *
 * Each is a map from an output coordinate to an input coordinate, written twice: with numbers for
 * the reference (eval), with index expressions for the generated code (emit), where it costs
 * nothing.
 */
#include "op/emit.h"
#include "op/op.h"

/* --- reshape --- */

ts_status ts_infer_reshape(ts_node *n)
{
    const int64_t *shape;
    ts_type t = {.dtype = n->in[0]->type.dtype};
    int64_t have = ts_type_count(&n->in[0]->type), want = 1;
    int hole = -1;

    t.rank = ts_attr_list(n, "shape", &shape);
    for (int i = 0; i < t.rank; i++) {
        t.dim[i] = shape[i];
        if (shape[i] == -1 && hole < 0)
            hole = i;
        else if (shape[i] == -1)
            return ts_fail_at(n, TS_ERR_SHAPE, "reshape to size -1 in dims %d and %d; one may be",
                              hole, i);
        else if (shape[i] < 0 || shape[i] > TS_MAX_COUNT / TS_MAX(want, 1))
            return ts_fail_at(n, TS_ERR_SHAPE, "reshape to size %ld in dim %d", (long)shape[i], i);
        else
            want *= shape[i];
    }
    if (hole >= 0 && want && have % want == 0)
        want *= t.dim[hole] = have / want;
    if (want != have)
        return ts_fail_at(n, TS_ERR_SHAPE, "reshape cannot turn %ld elements into %ld", (long)have,
                          (long)want);
    return ts_node_set_out1(n, t);
}

ts_status ts_eval_reshape(const ts_node *n, const ts_eval_ctx *c, const ts_tensor *in,
                          ts_tensor *out)
{
    (void)n, (void)c;
    memcpy(out->data, in->data, ts_type_bytes(&out->type));
    return TS_OK;
}

const char *ts_emit_reshape(ts_emit *e, const ts_node *n, int out, const ts_ix *const *at)
{
    const ts_type *from = &n->in[0]->type, *to = &n->out[0]->type;
    const ts_ix *x[TS_MAX_RANK];
    int i = from->rank, j = to->rank;

    (void)out;
    /* Group dims from the right so that both sides of a group have the same size: a dim that is in
     * both shapes stays itself, and only what was really merged or split goes through a
     * flat index. */
    while (i > 0 || j > 0) {
        int64_t p = 1, q = 1;
        int i0 = i, j0 = j;
        const ts_ix *flat = ts_ix_const(e->a, 0);
        do {
            if (p <= q && i0 > 0)
                p *= from->dim[--i0];
            else if (j0 > 0)
                q *= to->dim[--j0];
            else
                p *= from->dim[--i0];
        } while (p != q || (i0 == i && j0 == j));
        while (i0 > 0 && j0 == 0)
            i0--; /* leading ones */
        while (j0 > 0 && i0 == 0)
            j0--;
        for (int d = j0; d < j; d++)
            flat = ts_ix_add(e->a, ts_ix_mul(e->a, flat, to->dim[d]), at[d]);
        for (int d = i - 1; d >= i0; d--) {
            x[d] = d == i0 ? flat : ts_ix_mod(e->a, flat, from->dim[d]);
            flat = ts_ix_div(e->a, flat, from->dim[d]);
        }
        i = i0;
        j = j0;
    }
    return ts_emit_at(e, n->in[0], x);
}

ts_status ts_grad_reshape(ts_node *n, ts_value *const *dy, ts_value **dx)
{
    dx[0] = ts_reshape_n(dy[0], n->in[0]->type.rank, n->in[0]->type.dim);
    return TS_OK;
}

/* --- permute: output dim i is input dim dims[i] --- */

ts_status ts_infer_permute(ts_node *n)
{
    const int64_t *dims;
    ts_type t = n->in[0]->type;
    int seen = 0;

    if (ts_attr_list(n, "dims", &dims) != t.rank)
        return ts_fail_at(n, TS_ERR_ARG, "permute needs %d dims", t.rank);
    for (int i = 0; i < t.rank; i++) {
        if (dims[i] < 0 || dims[i] >= t.rank || seen & (1 << dims[i]))
            return ts_fail_at(n, TS_ERR_ARG, "permute dims must name each of 0..%d once",
                              t.rank - 1);
        seen |= 1 << dims[i];
        t.dim[i] = n->in[0]->type.dim[dims[i]];
    }
    return ts_node_set_out1(n, t);
}

ts_status ts_eval_permute(const ts_node *n, const ts_eval_ctx *c, const ts_tensor *in,
                          ts_tensor *out)
{
    const int64_t *dims;
    int64_t at[TS_MAX_RANK];

    (void)c;
    ts_attr_list(n, "dims", &dims);
    for (ts_each it = ts_each_of(&out->type); it.more; ts_each_next(&it)) {
        for (int i = 0; i < out->type.rank; i++)
            at[dims[i]] = it.at[i];
        ts_dtype_set(out->type.dtype, out->data, it.flat,
                     ts_dtype_get(in->type.dtype, in->data, ts_flat(&in->type, at)));
    }
    return TS_OK;
}

const char *ts_emit_permute(ts_emit *e, const ts_node *n, int out, const ts_ix *const *at)
{
    const int64_t *dims;
    const ts_ix *x[TS_MAX_RANK];
    int rank = ts_attr_list(n, "dims", &dims);

    (void)out;
    for (int i = 0; i < rank; i++)
        x[dims[i]] = at[i];
    return ts_emit_at(e, n->in[0], x);
}

ts_status ts_grad_permute(ts_node *n, ts_value *const *dy, ts_value **dx)
{
    const int64_t *dims;
    int64_t back[TS_MAX_RANK];
    int rank = ts_attr_list(n, "dims", &dims);

    for (int i = 0; i < rank; i++)
        back[dims[i]] = i;
    dx[0] = ts_permute_n(dy[0], rank, back);
    return TS_OK;
}

/* --- expand --- */

ts_status ts_infer_expand(ts_node *n)
{
    const int64_t *shape;
    const ts_type *in = &n->in[0]->type;
    ts_type t = {.dtype = in->dtype};

    t.rank = ts_attr_list(n, "shape", &shape);
    if (t.rank < in->rank)
        return ts_fail_at(n, TS_ERR_SHAPE, "expand cannot go from rank %d to %d", in->rank, t.rank);
    for (int i = 0; i < t.rank; i++) {
        int k = i - (t.rank - in->rank);
        int64_t have = k < 0 ? 1 : in->dim[k];
        t.dim[i] = shape[i] == -1 ? have : shape[i];
        if (t.dim[i] < 0 || (have != 1 && have != t.dim[i]))
            return ts_fail_at(n, TS_ERR_SHAPE, "expand cannot make size %ld from %ld in dim %d",
                              (long)t.dim[i], (long)have, i);
    }
    return ts_node_set_out1(n, t);
}

ts_status ts_eval_expand(const ts_node *n, const ts_eval_ctx *c, const ts_tensor *in,
                         ts_tensor *out)
{
    int64_t at[TS_MAX_RANK];
    int extra = out->type.rank - in->type.rank;

    (void)n, (void)c;
    for (ts_each it = ts_each_of(&out->type); it.more; ts_each_next(&it)) {
        for (int i = 0; i < in->type.rank; i++)
            at[i] = in->type.dim[i] == 1 ? 0 : it.at[i + extra];
        ts_dtype_set(out->type.dtype, out->data, it.flat,
                     ts_dtype_get(in->type.dtype, in->data, ts_flat(&in->type, at)));
    }
    return TS_OK;
}

const char *ts_emit_expand(ts_emit *e, const ts_node *n, int out, const ts_ix *const *at)
{
    const ts_type *in = &n->in[0]->type;
    const ts_ix *x[TS_MAX_RANK];

    (void)out;
    for (int i = 0; i < in->rank; i++)
        x[i] = in->dim[i] == 1 ? ts_ix_const(e->a, 0) : at[i + n->out[0]->type.rank - in->rank];
    return ts_emit_at(e, n->in[0], x);
}

ts_status ts_grad_expand(ts_node *n, ts_value *const *dy, ts_value **dx)
{
    dx[0] = ts_sum_to(dy[0], &n->in[0]->type);
    return TS_OK;
}

/* --- slice: start, start+step, ... below end, along dim --- */

ts_status ts_infer_slice(ts_node *n)
{
    ts_type t = n->in[0]->type;
    int dim = ts_norm_dim(n, ts_attr_int(n, "dim", 0), t.rank);
    int64_t start = ts_attr_int(n, "start", 0), end = ts_attr_int(n, "end", 0);
    int64_t step = ts_attr_int(n, "step", 1);

    if (dim < 0)
        return TS_ERR_ARG;
    if (step < 1 || start < 0 || end > t.dim[dim] || start > end)
        return ts_fail_at(n, TS_ERR_ARG, "slice %ld:%ld:%ld is outside size %ld", (long)start,
                          (long)end, (long)step, (long)t.dim[dim]);
    t.dim[dim] = (end - start + step - 1) / step;
    return ts_node_set_out1(n, t);
}

ts_status ts_eval_slice(const ts_node *n, const ts_eval_ctx *c, const ts_tensor *in, ts_tensor *out)
{
    int dim = ts_norm_dim(n, ts_attr_int(n, "dim", 0), in->type.rank);
    int64_t at[TS_MAX_RANK];

    (void)c;
    for (ts_each it = ts_each_of(&out->type); it.more; ts_each_next(&it)) {
        memcpy(at, it.at, sizeof(at));
        at[dim] = ts_attr_int(n, "start", 0) + it.at[dim] * ts_attr_int(n, "step", 1);
        ts_dtype_set(out->type.dtype, out->data, it.flat,
                     ts_dtype_get(in->type.dtype, in->data, ts_flat(&in->type, at)));
    }
    return TS_OK;
}

static void copy_at(const ts_ix **x, const ts_ix *const *at, int rank)
{
    for (int i = 0; i < rank; i++)
        x[i] = at[i];
}

const char *ts_emit_slice(ts_emit *e, const ts_node *n, int out, const ts_ix *const *at)
{
    int rank = n->in[0]->type.rank, dim = ts_norm_dim(n, ts_attr_int(n, "dim", 0), rank);
    const ts_ix *x[TS_MAX_RANK];

    (void)out;
    copy_at(x, at, rank);
    x[dim] = ts_ix_addc(e->a, ts_ix_mul(e->a, at[dim], ts_attr_int(n, "step", 1)),
                        ts_attr_int(n, "start", 0));
    return ts_emit_at(e, n->in[0], x);
}

/* dx is zero outside the slice. With a step, each element is followed by step - 1 zeros: pad a new
 * inner dim. */
ts_status ts_grad_slice(ts_node *n, ts_value *const *dy, ts_value **dx)
{
    const ts_type *t = &n->in[0]->type, *o = &n->out[0]->type;
    int dim = ts_norm_dim(n, ts_attr_int(n, "dim", 0), t->rank);
    int64_t start = ts_attr_int(n, "start", 0), step = ts_attr_int(n, "step", 1);
    int64_t lo[TS_MAX_RANK] = {0}, hi[TS_MAX_RANK] = {0}, shape[TS_MAX_RANK];
    int64_t covered = o->dim[dim] * step, room = t->dim[dim] - start;
    ts_value *d = dy[0];

    if (step > 1) {
        if (t->rank == TS_MAX_RANK)
            return ts_fail_at(n, TS_ERR_UNSUPPORTED,
                              "the gradient of a stepped slice needs rank below %d", TS_MAX_RANK);
        memcpy(shape, o->dim, sizeof(shape));
        for (int i = t->rank; i > dim + 1; i--)
            shape[i] = o->dim[i - 1];
        shape[dim + 1] = 1;
        d = ts_reshape_n(d, t->rank + 1, shape);
        hi[dim + 1] = step - 1;
        d = ts_pad(d, t->rank + 1, lo, hi, 0);
        hi[dim + 1] = 0;
        memcpy(shape, o->dim, sizeof(shape));
        shape[dim] = covered;
        d = ts_reshape_n(d, t->rank, shape);
        if (covered > room)
            d = ts_slice(d, dim, 0, covered = room, 1);
    }
    lo[dim] = start;
    hi[dim] = room - covered;
    dx[0] = ts_pad(d, t->rank, lo, hi, 0);
    return TS_OK;
}

/* --- pad: lo and hi elements of `value` around each dim --- */

ts_status ts_infer_pad(ts_node *n)
{
    const int64_t *lo, *hi;
    ts_type t = n->in[0]->type;

    if (ts_attr_list(n, "lo", &lo) != t.rank || ts_attr_list(n, "hi", &hi) != t.rank)
        return ts_fail_at(n, TS_ERR_ARG, "pad needs %d lo and hi", t.rank);
    for (int i = 0; i < t.rank; i++) {
        if (lo[i] < 0 || hi[i] < 0)
            return ts_fail_at(n, TS_ERR_ARG, "pad by %ld, %ld in dim %d: use slice to crop",
                              (long)lo[i], (long)hi[i], i);
        t.dim[i] += lo[i] + hi[i];
    }
    return ts_node_set_out1(n, t);
}

ts_status ts_eval_pad(const ts_node *n, const ts_eval_ctx *c, const ts_tensor *in, ts_tensor *out)
{
    const int64_t *lo;
    int64_t at[TS_MAX_RANK];

    (void)c;
    ts_attr_list(n, "lo", &lo);
    for (ts_each it = ts_each_of(&out->type); it.more; ts_each_next(&it)) {
        bool inside = true;
        for (int i = 0; i < in->type.rank; i++) {
            at[i] = it.at[i] - lo[i];
            inside = inside && at[i] >= 0 && at[i] < in->type.dim[i];
        }
        ts_dtype_set(out->type.dtype, out->data, it.flat,
                     inside ? ts_dtype_get(in->type.dtype, in->data, ts_flat(&in->type, at))
                            : ts_attr_float(n, "value", 0));
    }
    return TS_OK;
}

typedef struct view_arg {
    const ts_value *v;
    const ts_ix *const *at;
} view_arg;

static const char *view_body(ts_emit *e, void *arg)
{
    const view_arg *x = arg;

    return ts_emit_at(e, x->v, x->at);
}

const char *ts_emit_pad(ts_emit *e, const ts_node *n, int out, const ts_ix *const *at)
{
    const int64_t *lo;
    const ts_type *t = &n->in[0]->type;
    const ts_ix *x[TS_MAX_RANK];
    int moved = 0;
    const ts_ix *tested[TS_MAX_RANK];
    int64_t size[TS_MAX_RANK];

    (void)out;
    ts_attr_list(n, "lo", &lo);
    for (int i = 0; i < t->rank; i++) {
        x[i] = ts_ix_addc(e->a, at[i], -lo[i]);
        if (t->dim[i] != n->out[0]->type.dim[i]) {
            tested[moved] = x[i];
            size[moved++] = t->dim[i];
        }
    }
    return ts_emit_guard(e, ts_emit_inside_all(e, moved, tested, size),
                         ts_emit_cond_by_lane(e, moved, tested, size), t->dtype,
                         ts_attr_float(n, "value", 0), view_body, &(view_arg){n->in[0], x});
}

ts_status ts_grad_pad(ts_node *n, ts_value *const *dy, ts_value **dx)
{
    const int64_t *lo;
    const ts_type *t = &n->in[0]->type;
    ts_value *d = dy[0];

    ts_attr_list(n, "lo", &lo);
    for (int i = 0; i < t->rank; i++)
        if (t->dim[i] != n->out[0]->type.dim[i])
            d = ts_slice(d, i, lo[i], lo[i] + t->dim[i], 1);
    dx[0] = d;
    return TS_OK;
}

/* --- flip --- */

static bool flipped(const ts_node *n, int dim)
{
    const int64_t *dims;
    int count = ts_attr_list(n, "dims", &dims);

    for (int i = 0; i < count; i++)
        if ((dims[i] < 0 ? dims[i] + n->in[0]->type.rank : dims[i]) == dim)
            return true;
    return false;
}

ts_status ts_infer_flip(ts_node *n)
{
    const int64_t *dims;
    int count = ts_attr_list(n, "dims", &dims);

    for (int i = 0; i < count; i++)
        if (ts_norm_dim(n, dims[i], n->in[0]->type.rank) < 0)
            return TS_ERR_ARG;
    return ts_node_set_out1(n, n->in[0]->type);
}

ts_status ts_eval_flip(const ts_node *n, const ts_eval_ctx *c, const ts_tensor *in, ts_tensor *out)
{
    int64_t at[TS_MAX_RANK];

    (void)c;
    for (ts_each it = ts_each_of(&out->type); it.more; ts_each_next(&it)) {
        for (int i = 0; i < in->type.rank; i++)
            at[i] = flipped(n, i) ? in->type.dim[i] - 1 - it.at[i] : it.at[i];
        ts_dtype_set(out->type.dtype, out->data, it.flat,
                     ts_dtype_get(in->type.dtype, in->data, ts_flat(&in->type, at)));
    }
    return TS_OK;
}

const char *ts_emit_flip(ts_emit *e, const ts_node *n, int out, const ts_ix *const *at)
{
    const ts_type *t = &n->in[0]->type;
    const ts_ix *x[TS_MAX_RANK];

    (void)out;
    for (int i = 0; i < t->rank; i++)
        x[i] = flipped(n, i) ? ts_ix_addc(e->a, ts_ix_mul(e->a, at[i], -1), t->dim[i] - 1) : at[i];
    return ts_emit_at(e, n->in[0], x);
}

ts_status ts_grad_flip(ts_node *n, ts_value *const *dy, ts_value **dx)
{
    dx[0] = ts_make1(n->op, dy[0], n->nattr, n->attr);
    return TS_OK;
}

/* --- concat --- */

ts_status ts_infer_concat(ts_node *n)
{
    ts_type t;
    int dim;

    t = n->in[0]->type;
    dim = ts_norm_dim(n, ts_attr_int(n, "dim", 0), t.rank);
    if (dim < 0)
        return TS_ERR_ARG;
    for (int i = 1; i < n->nin; i++) {
        const ts_type *u = &n->in[i]->type;
        if (u->dtype != t.dtype)
            return ts_fail_at(n, TS_ERR_TYPE, "concat needs equal dtypes, got %s and %s",
                              ts_dtype_name(t.dtype), ts_dtype_name(u->dtype));
        if (u->rank != t.rank)
            return ts_fail_at(n, TS_ERR_SHAPE, "concat needs equal ranks, got %d and %d", t.rank,
                              u->rank);
        for (int d = 0; d < t.rank; d++)
            if (d != dim && u->dim[d] != t.dim[d])
                return ts_fail_at(
                    n, TS_ERR_SHAPE,
                    "concat along dim %d needs equal sizes elsewhere, got %ld and %ld in dim %d",
                    dim, (long)t.dim[d], (long)u->dim[d], d);
        t.dim[dim] += u->dim[dim];
    }
    return ts_node_set_out1(n, t);
}

ts_status ts_eval_concat(const ts_node *n, const ts_eval_ctx *c, const ts_tensor *in,
                         ts_tensor *out)
{
    int dim = ts_norm_dim(n, ts_attr_int(n, "dim", 0), out->type.rank);
    int64_t at[TS_MAX_RANK];

    (void)c;
    for (ts_each it = ts_each_of(&out->type); it.more; ts_each_next(&it)) {
        int i = 0;
        memcpy(at, it.at, sizeof(at));
        while (at[dim] >= in[i].type.dim[dim])
            at[dim] -= in[i++].type.dim[dim];
        ts_dtype_set(out->type.dtype, out->data, it.flat,
                     ts_dtype_get(in[i].type.dtype, in[i].data, ts_flat(&in[i].type, at)));
    }
    return TS_OK;
}

typedef struct concat_arg {
    const ts_node *n;
    const ts_ix *const *at;
    int i;
    int64_t from;
} concat_arg;

/* if (at < size of tensor i) its element; else the same question for the rest */
static const char *concat_body(ts_emit *e, void *arg)
{
    concat_arg *c = arg;
    const ts_value *v = c->n->in[c->i];
    int dim = ts_norm_dim(c->n, ts_attr_int(c->n, "dim", 0), v->type.rank), mark;
    const ts_ix *x[TS_MAX_RANK], *rel = ts_ix_addc(e->a, c->at[dim], -c->from);
    concat_arg rest = {c->n, c->at, c->i + 1, c->from + v->type.dim[dim]};
    const char *cond = ts_emit_inside(e, rel, v->type.dim[dim]), *name;

    copy_at(x, c->at, v->type.rank);
    x[dim] = rel;
    if (c->i == c->n->nin - 1 || (cond && !cond[0]))
        return ts_emit_at(e, v, x);
    if (!cond)
        return concat_body(e, &rest);
    if (ts_emit_cond_by_lane(e, 1, &rel, &v->type.dim[dim]))
        return ts_emit_lanes(e, v->type.dtype, concat_body, c);
    name = ts_emit_name(e, "t");
    ts_emit_line(e, "%s %s;", ts_emit_ctype(e, v->type.dtype), name);
    ts_emit_line(e, "if (%s) {", cond);
    ts_emit_open(e, &mark);
    ts_emit_line(e, "%s = %s;", name, ts_emit_at(e, v, x));
    ts_emit_close(e, mark);
    ts_emit_line(e, "else {");
    ts_emit_open(e, &mark);
    ts_emit_line(e, "%s = %s;", name, concat_body(e, &rest));
    ts_emit_close(e, mark);
    return name;
}

const char *ts_emit_concat(ts_emit *e, const ts_node *n, int out, const ts_ix *const *at)
{
    (void)out;
    return concat_body(e, &(concat_arg){n, at, 0, 0});
}

ts_status ts_grad_concat(ts_node *n, ts_value *const *dy, ts_value **dx)
{
    int dim = ts_norm_dim(n, ts_attr_int(n, "dim", 0), n->out[0]->type.rank);
    int64_t from = 0;

    for (int i = 0; i < n->nin; i++) {
        int64_t size = n->in[i]->type.dim[dim];
        dx[i] = ts_slice(dy[0], dim, from, from + size, 1);
        from += size;
    }
    return TS_OK;
}
