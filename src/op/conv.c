/* conv.c - convolution over 1 to 3 spatial dims, and its two transposes.
 *
 *   conv         y[n,o,p]  = sum x[n, c, p*stride + k*dilation - padding] w[o,c,k]
 *   conv_input   x's gradient, which is also the transposed convolution: inputs dy, w
 *   conv_weight  w's gradient: inputs x, dy
 *
 * Attributes stride, padding, dilation are lists over the spatial dims, groups an int; the
 * transposes add `shape`, the spatial sizes of what they make. The three are each other's
 * gradients. conv_weight with `parts` has a sum for so many parts of the first spatial dim of dy,
 * and a first dim that counts them; pass/split.c makes it, behind the gradients.
 */
#include "op/emit.h"
#include "op/op.h"

typedef struct conv {
    int spatial;
    int64_t groups;
    int64_t stride[3], padding[3], dilation[3];
} conv;

static ts_status attrs(const ts_node *n, conv *c)
{
    const struct {
        const char *name;
        int64_t *to, missing;
    } lists[] = {
        {"stride", c->stride, 1}, {"padding", c->padding, 0}, {"dilation", c->dilation, 1}};

    c->spatial = n->in[0]->type.rank - 2;
    c->groups = ts_attr_int(n, "groups", 1);
    if (c->spatial < 1 || c->spatial > 3 || n->in[1]->type.rank != c->spatial + 2)
        return ts_fail_at(n, TS_ERR_SHAPE,
                          "%s needs inputs of rank 3 to 5 and equal rank, got %d and %d",
                          n->op->name, n->in[0]->type.rank, n->in[1]->type.rank);
    if (n->in[0]->type.dtype != n->in[1]->type.dtype)
        return ts_fail_at(n, TS_ERR_TYPE, "%s needs equal dtypes, got %s and %s", n->op->name,
                          ts_dtype_name(n->in[0]->type.dtype), ts_dtype_name(n->in[1]->type.dtype));
    for (int i = 0; i < TS_COUNT(lists); i++) {
        const int64_t *l;
        int count = ts_attr_list(n, lists[i].name, &l);
        if (count && count != c->spatial)
            return ts_fail_at(n, TS_ERR_ARG, "%s needs %d values for %s, got %d", n->op->name,
                              c->spatial, lists[i].name, count);
        for (int d = 0; d < c->spatial; d++) {
            lists[i].to[d] = count ? l[d] : lists[i].missing;
            if (lists[i].to[d] < lists[i].missing || lists[i].to[d] > INT32_MAX)
                return ts_fail_at(n, TS_ERR_ARG, "%s: %s is %ld", n->op->name, lists[i].name,
                                  (long)lists[i].to[d]);
        }
    }
    return c->groups < 1
               ? ts_fail_at(n, TS_ERR_ARG, "%s: groups is %ld", n->op->name, (long)c->groups)
               : TS_OK;
}

/* x's channels and w's must fit the groups; o the output channels. */
static ts_status check_channels(const ts_node *n, const conv *c, int64_t x, int64_t w, int64_t o)
{
    if (o % c->groups || w > TS_MAX_COUNT / c->groups || x != w * c->groups)
        return ts_fail_at(
            n, TS_ERR_SHAPE,
            "%s: input has %ld channels, weight takes %ld in each of %ld groups and gives %ld",
            n->op->name, (long)x, (long)w, (long)c->groups, (long)o);
    return TS_OK;
}

/* Is there a convolution over x elements with k taps? In double: sizes may be the user's jokes. */
static bool fits(const conv *c, int d, int64_t x, int64_t k)
{
    return x >= 1 && k >= 1 && x <= TS_MAX_COUNT &&
           (double)c->dilation[d] * (double)(k - 1) + 1 <= (double)(x + 2 * c->padding[d]);
}

static int64_t out_size(const conv *c, int d, int64_t x, int64_t k)
{
    return (x + 2 * c->padding[d] - c->dilation[d] * (k - 1) - 1) / c->stride[d] + 1;
}

ts_status ts_infer_conv(ts_node *n)
{
    conv c;
    const ts_type *x = &n->in[0]->type, *w = &n->in[1]->type;
    ts_type t = *x;

    TS_TRY(attrs(n, &c));
    TS_TRY(check_channels(n, &c, x->dim[1], w->dim[1], w->dim[0]));
    t.dim[1] = w->dim[0];
    for (int d = 0; d < c.spatial; d++) {
        if (!fits(&c, d, x->dim[2 + d], w->dim[2 + d]))
            return ts_fail_at(n, TS_ERR_SHAPE,
                              "conv: the kernel (%ld, dilation %ld) is larger than the input (%ld, "
                              "padding %ld)",
                              (long)w->dim[2 + d], (long)c.dilation[d], (long)x->dim[2 + d],
                              (long)c.padding[d]);
        t.dim[2 + d] = out_size(&c, d, x->dim[2 + d], w->dim[2 + d]);
    }
    return ts_node_set_out1(n, t);
}

static ts_status shape_attr(const ts_node *n, const conv *c, const int64_t **shape)
{
    if (ts_attr_list(n, "shape", shape) != c->spatial)
        return ts_fail_at(n, TS_ERR_ARG, "%s needs %d sizes in shape", n->op->name, c->spatial);
    return TS_OK;
}

ts_status ts_infer_conv_input(ts_node *n)
{
    conv c;
    const ts_type *dy = &n->in[0]->type, *w = &n->in[1]->type;
    const int64_t *shape;
    ts_type t = *dy;

    TS_TRY(attrs(n, &c));
    TS_TRY(shape_attr(n, &c, &shape));
    if (w->dim[0] % c.groups || w->dim[1] > TS_MAX_COUNT / c.groups)
        return ts_fail_at(n, TS_ERR_SHAPE, "%s: weight of %ld by %ld channels in %ld groups",
                          n->op->name, (long)w->dim[0], (long)w->dim[1], (long)c.groups);
    if (dy->dim[1] != w->dim[0])
        return ts_fail_at(n, TS_ERR_SHAPE, "%s: input has %ld channels, weight takes %ld",
                          n->op->name, (long)dy->dim[1], (long)w->dim[0]);
    t.dim[1] = w->dim[1] * c.groups;
    for (int d = 0; d < c.spatial; d++) {
        t.dim[2 + d] = shape[d];
        if (!fits(&c, d, shape[d], w->dim[2 + d]) ||
            out_size(&c, d, shape[d], w->dim[2 + d]) != dy->dim[2 + d])
            return ts_fail_at(n, TS_ERR_SHAPE, "%s: no convolution of size %ld gives %ld",
                              n->op->name, (long)shape[d], (long)dy->dim[2 + d]);
    }
    return ts_node_set_out1(n, t);
}

ts_status ts_infer_conv_weight(ts_node *n)
{
    conv c;
    const ts_type *x = &n->in[0]->type, *dy = &n->in[1]->type;
    const int64_t *shape;
    int64_t parts = ts_attr_int(n, "parts", 1);
    ts_type t = *x;

    TS_TRY(attrs(n, &c));
    TS_TRY(shape_attr(n, &c, &shape));
    if (parts < 1 || dy->dim[2] % parts)
        return ts_fail_at(n, TS_ERR_ARG, "%s: %ld rows in %ld parts", n->op->name, (long)dy->dim[2],
                          (long)parts);
    t.dim[0] = dy->dim[1];
    t.dim[1] = x->dim[1] / c.groups;
    TS_TRY(check_channels(n, &c, x->dim[1], t.dim[1], t.dim[0]));
    if (x->dim[0] != dy->dim[0])
        return ts_fail_at(n, TS_ERR_SHAPE, "%s: batches of %ld and %ld", n->op->name,
                          (long)x->dim[0], (long)dy->dim[0]);
    for (int d = 0; d < c.spatial; d++) {
        t.dim[2 + d] = shape[d];
        if (!fits(&c, d, x->dim[2 + d], shape[d]) ||
            out_size(&c, d, x->dim[2 + d], shape[d]) != dy->dim[2 + d])
            return ts_fail_at(n, TS_ERR_SHAPE, "%s: a kernel of %ld on %ld does not give %ld",
                              n->op->name, (long)shape[d], (long)x->dim[2 + d],
                              (long)dy->dim[2 + d]);
    }
    if (parts > 1) {
        memmove(t.dim + 1, t.dim, (size_t)t.rank++ * sizeof(*t.dim));
        t.dim[0] = parts;
    }
    return ts_node_set_out1(n, t);
}

/* --- loop nests. Axes: n, g, then channels and places. --- */

static const char *const place_names[] = {"z", "y", "x"}, *const tap_names[] = {"kz", "ky", "kx"};

static void start(const ts_node *n, conv *c, ts_spec *s)
{
    attrs(n, c);
    *s = (ts_spec){0};
    for (int i = 0; i < TS_MAX_RANK; i++)
        s->a[i].div = s->b[i].div = s->out[i].div = 1;
}

static int axis(ts_spec *s, const char *name, int64_t extent)
{
    s->extent[s->naxes] = extent;
    s->axis[s->naxes] = name;
    return s->naxes++;
}

/* n g o place | c tap */
void ts_spec_conv(ts_arena *arena, const ts_node *n, ts_spec *s)
{
    conv c;
    const ts_type *w = &n->in[1]->type, *y = &n->out[0]->type;
    int in, g, o, p[3], ci;
    int64_t og;

    (void)arena;
    start(n, &c, s);
    og = w->dim[0] / c.groups;
    in = axis(s, "n", y->dim[0]);
    g = axis(s, "g", c.groups);
    o = axis(s, "o", og);
    for (int d = 0; d < c.spatial; d++)
        p[d] = axis(s, place_names[3 - c.spatial + d], y->dim[2 + d]);
    s->nout = s->naxes;
    ci = axis(s, "c", w->dim[1]);
    s->out[0].k[in] = s->a[0].k[in] = 1;
    s->out[1].k[g] = s->b[0].k[g] = og;
    s->out[1].k[o] = s->b[0].k[o] = 1;
    s->a[1].k[g] = w->dim[1];
    s->a[1].k[ci] = s->b[1].k[ci] = 1;
    for (int d = 0; d < c.spatial; d++) {
        int k = axis(s, tap_names[3 - c.spatial + d], w->dim[2 + d]);
        s->out[2 + d].k[p[d]] = 1;
        s->b[2 + d].k[k] = 1;
        s->a[2 + d].k[p[d]] = c.stride[d];
        s->a[2 + d].k[k] = c.dilation[d];
        s->a[2 + d].c = -c.padding[d];
    }
}

/* n g c place | o tap: dy at (place + padding - tap*dilation) / stride */
void ts_spec_conv_input(ts_arena *arena, const ts_node *n, ts_spec *s)
{
    conv c;
    const ts_type *w = &n->in[1]->type, *x = &n->out[0]->type;
    int in, g, o, p[3], ci;
    int64_t og;

    (void)arena;
    start(n, &c, s);
    og = w->dim[0] / c.groups;
    in = axis(s, "n", x->dim[0]);
    g = axis(s, "g", c.groups);
    ci = axis(s, "c", w->dim[1]);
    for (int d = 0; d < c.spatial; d++)
        p[d] = axis(s, place_names[3 - c.spatial + d], x->dim[2 + d]);
    s->nout = s->naxes;
    o = axis(s, "o", og);
    s->out[0].k[in] = s->a[0].k[in] = 1;
    s->out[1].k[g] = w->dim[1];
    s->out[1].k[ci] = s->b[1].k[ci] = 1;
    s->a[1].k[g] = s->b[0].k[g] = og;
    s->a[1].k[o] = s->b[0].k[o] = 1;
    for (int d = 0; d < c.spatial; d++) {
        int k = axis(s, tap_names[3 - c.spatial + d], w->dim[2 + d]);
        s->out[2 + d].k[p[d]] = 1;
        s->b[2 + d].k[k] = 1;
        s->a[2 + d].k[p[d]] = 1;
        s->a[2 + d].k[k] = -c.dilation[d];
        s->a[2 + d].c = c.padding[d];
        s->a[2 + d].div = c.stride[d];
    }
}

/* part g o c tap | n place */
void ts_spec_conv_weight(ts_arena *arena, const ts_node *n, ts_spec *s)
{
    conv c;
    const ts_type *x = &n->in[0]->type, *dy = &n->in[1]->type;
    const int64_t *shape;
    int in, g, o, k[3], ci;
    int64_t og, cg, parts = ts_attr_int(n, "parts", 1), rows = dy->dim[2] / parts;
    ts_affine *out = s->out + (parts > 1);

    (void)arena;
    start(n, &c, s);
    ts_attr_list(n, "shape", &shape);
    og = dy->dim[1] / c.groups;
    cg = x->dim[1] / c.groups;
    if (parts > 1) {
        int part = axis(s, "part", parts);
        s->out[0].k[part] = 1;
        s->a[2].k[part] = c.stride[0] * rows;
        s->b[2].k[part] = rows;
    }
    g = axis(s, "g", c.groups);
    o = axis(s, "o", og);
    ci = axis(s, "c", cg);
    for (int d = 0; d < c.spatial; d++)
        k[d] = axis(s, tap_names[3 - c.spatial + d], shape[d]);
    s->nout = s->naxes;
    in = axis(s, "n", x->dim[0]);
    out[0].k[g] = og;
    out[0].k[o] = out[1].k[ci] = 1;
    s->a[0].k[in] = s->b[0].k[in] = 1;
    s->a[1].k[g] = cg;
    s->a[1].k[ci] = 1;
    s->b[1].k[g] = og;
    s->b[1].k[o] = 1;
    for (int d = 0; d < c.spatial; d++) {
        int p = axis(s, place_names[3 - c.spatial + d], d ? dy->dim[2 + d] : rows);
        out[2 + d].k[k[d]] = 1;
        s->b[2 + d].k[p] = 1;
        s->a[2 + d].k[p] = c.stride[d];
        s->a[2 + d].k[k[d]] = c.dilation[d];
        s->a[2 + d].c = -c.padding[d];
    }
}

/* --- gradients --- */

static ts_value *transposed(ts_node *n, const char *op, ts_value *x, ts_value *y,
                            const ts_type *like)
{
    ts_attr attr[TS_MAX_ATTR + 1];
    int count = ts_attrs_but(n, "shape", attr);

    if (like)
        attr[count++] = ts_attr_l("shape", like->rank - 2, like->dim + 2);
    return ts_make2(ts_op_find(op), x, y, count, attr);
}

ts_status ts_grad_conv(ts_node *n, ts_value *const *dy, ts_value **dx)
{
    dx[0] = transposed(n, "conv_input", dy[0], n->in[1], &n->in[0]->type);
    dx[1] = transposed(n, "conv_weight", n->in[0], dy[0], &n->in[1]->type);
    return TS_OK;
}

ts_status ts_grad_conv_input(ts_node *n, ts_value *const *dy, ts_value **dx)
{
    dx[0] = transposed(n, "conv", dy[0], n->in[1], NULL);
    dx[1] = transposed(n, "conv_weight", dy[0], n->in[0], &n->in[1]->type);
    return TS_OK;
}

ts_status ts_grad_conv_weight(ts_node *n, ts_value *const *dy, ts_value **dx)
{
    if (ts_attr_int(n, "parts", 1) > 1)
        return ts_fail_at(n, TS_ERR_GRAD, "conv_weight in parts has no gradient");
    dx[0] = transposed(n, "conv_input", n->in[1], dy[0], &n->in[0]->type);
    dx[1] = transposed(n, "conv", n->in[0], dy[0], NULL);
    return TS_OK;
}
