/* layer.c - layers: an op with parameters named after the layer and PyTorch's default
 * initialisation.
 *
 * PyTorch initialises linear and convolution weights with kaiming_uniform(a = sqrt 5), which is
 * uniform in
 * +-1/sqrt(fan_in), and biases the same.
 */
#include "front/front.h"
#include "op/op.h"
#include <math.h>

static ts_value *param(ts_graph *g, const char *layer, const char *what, ts_dtype t, ts_init init,
                       int rank, const int64_t *dims)
{
    const char *path = g->scope ? "" : NULL;
    ts_scope *s = g->scope;
    ts_value *p;

    if (!layer)
        return ts_graph_refuse(g, TS_ERR_ARG, NULL, "every layer needs a name");
    for (; s; s = s->up)
        path = path[0] ? ts_arena_printf(g->arena, "%s.%s", s->name, path) : s->name;
    p = ts_param_n(g,
                   path ? ts_arena_printf(g->arena, "%s.%s.%s", path, layer, what)
                        : ts_arena_printf(g->arena, "%s.%s", layer, what),
                   g->half ? TS_F32 : t, init, rank, dims);
    return p && p->type.dtype != t ? ts_cast(p, t) : p;
}

static ts_init fan_in(double n)
{
    return (ts_init){TS_INIT_UNIFORM, -1 / sqrt(n), 1 / sqrt(n)};
}

static ts_value *linear(ts_value *x, const char *name, int64_t out, bool bias)
{
    int64_t in = ts_dim(x, -1);
    ts_value *args[3] = {x}, *y;
    ts_graph *g;

    if (!x)
        return NULL;
    g = x->graph;
    if (!in)
        return ts_graph_refuse(g, TS_ERR_SHAPE, NULL, "layer %s: a scalar has no features",
                               name ? name : "NULL");
    args[1] = param(g, name, "weight", x->type.dtype, fan_in((double)in), 2, (int64_t[]){out, in});
    if (bias)
        args[2] = param(g, name, "bias", x->type.dtype, fan_in((double)in), 1, &out);
    ts_scope_begin(g, name);
    y = ts_node_out(ts_node_make(g, TS_OP(linear), bias ? 3 : 2, args, 0, NULL));
    ts_scope_end(g);
    return y;
}

ts_value *ts_linear(ts_value *x, const char *name, int64_t out)
{
    return linear(x, name, out, true);
}

ts_value *ts_linear_no_bias(ts_value *x, const char *name, int64_t out)
{
    return linear(x, name, out, false);
}

static int conv_attrs(const ts_conv_options *o, int spatial, int64_t lists[4][3], ts_attr *attr,
                      bool transposed)
{
    const char *const names[] = {"stride", "padding", "dilation", "output_padding"};
    int values[] = {o->stride ? o->stride : 1, o->padding, o->dilation ? o->dilation : 1,
                    o->output_padding},
        n = 0;

    for (int i = 0; i < (transposed ? 4 : 3); i++) {
        for (int d = 0; d < spatial; d++)
            lists[i][d] = values[i];
        attr[n++] = ts_attr_l(names[i], spatial, lists[i]);
    }
    attr[n++] = ts_attr_i("groups", o->groups ? o->groups : 1);
    return n;
}

static ts_value *conv(ts_value *x, const char *name, int spatial, int64_t out, int64_t kernel,
                      const ts_conv_options *o, bool transposed)
{
    ts_conv_options own;
    int64_t groups, c = ts_dim(x, 1), taps = 1, lists[4][3], dims[5];
    ts_value *args[3] = {x}, *y;
    ts_attr attr[6];
    ts_graph *g;
    double fan;
    int n;

    if (!x)
        return NULL;
    g = x->graph;
    o = ts_graph_options(g, o, TS_END_OF(ts_conv_options, no_bias), &own, sizeof(own));
    if (!o)
        return NULL;
    groups = o->groups ? o->groups : 1;
    if (spatial < 1 || spatial > 3 || x->type.rank != spatial + 2 || groups < 1 || c % groups ||
        out % groups || kernel < 1)
        return ts_graph_refuse(
            g, TS_ERR_SHAPE, NULL,
            "layer %s: an input of rank %d with %ld channels does not fit a "
            "%d-d convolution to %ld channels in %ld groups with a kernel of %ld",
            name ? name : "NULL", x->type.rank, (long)c, spatial, (long)out, (long)groups,
            (long)kernel);
    n = conv_attrs(o, spatial, lists, attr, transposed);
    dims[0] = transposed ? c : out;
    dims[1] = (transposed ? out : c) / groups;
    for (int d = 0; d < spatial; d++) {
        dims[2 + d] = kernel;
        taps *= kernel;
    }
    fan = (double)dims[1] * (double)taps;
    args[1] = param(g, name, "weight", x->type.dtype, fan_in(fan), spatial + 2, dims);
    if (!o->no_bias)
        args[2] = param(g, name, "bias", x->type.dtype, fan_in(fan), 1, &out);
    ts_scope_begin(g, name);
    y = ts_node_out(ts_node_make(g, transposed ? TS_OP(conv_transpose) : TS_OP(conv_bias),
                                 o->no_bias ? 2 : 3, args, n, attr));
    ts_scope_end(g);
    return y;
}

ts_value *ts_conv_layer(ts_value *x, const char *name, int spatial, int64_t out, int64_t kernel,
                        const ts_conv_options *o)
{
    return conv(x, name, spatial, out, kernel, o, false);
}

ts_value *ts_conv_transpose_layer(ts_value *x, const char *name, int spatial, int64_t out,
                                  int64_t kernel, const ts_conv_options *o)
{
    return conv(x, name, spatial, out, kernel, o, true);
}

static ts_value *pool(const char *op, ts_value *x, int spatial, int64_t kernel,
                      const ts_pool_options *o)
{
    ts_pool_options own;
    int64_t lists[3][3] = {{0}};
    ts_attr attr[5];
    int n = 0;

    if (!x)
        return NULL;
    o = ts_graph_options(x->graph, o, TS_END_OF(ts_pool_options, exclude_pad), &own, sizeof(own));
    if (!o)
        return NULL;
    if (spatial < 1 || spatial > 3)
        return ts_graph_refuse(x->graph, TS_ERR_SHAPE, NULL, "%s over %d dims; 1 to 3 are possible",
                               op, spatial);
    for (int d = 0; d < spatial; d++) {
        lists[0][d] = kernel;
        lists[1][d] = o->stride ? o->stride : kernel;
        lists[2][d] = o->padding;
    }
    attr[n++] = ts_attr_l("kernel", spatial, lists[0]);
    attr[n++] = ts_attr_l("stride", spatial, lists[1]);
    attr[n++] = ts_attr_l("padding", spatial, lists[2]);
    if (o->ceil_mode)
        attr[n++] = ts_attr_i("ceil_mode", 1);
    if (o->exclude_pad)
        attr[n++] = ts_attr_i("exclude_pad", 1);
    return ts_make1(ts_op_find(op), x, n, attr);
}

ts_value *ts_max_pool(ts_value *x, int spatial, int64_t kernel, const ts_pool_options *o)
{
    return pool("max_pool", x, spatial, kernel, o);
}

ts_value *ts_avg_pool(ts_value *x, int spatial, int64_t kernel, const ts_pool_options *o)
{
    return pool("avg_pool", x, spatial, kernel, o);
}

static ts_value *resize(const char *op, ts_value *x, int64_t h, int64_t w, bool align_corners)
{
    int64_t size[] = {h, w};
    ts_attr attr[] = {ts_attr_l("size", 2, size), ts_attr_i("align_corners", 1)};

    return ts_make1(ts_op_find(op), x, align_corners ? 2 : 1, attr);
}

ts_value *ts_adaptive_avg_pool2d(ts_value *x, int64_t h, int64_t w)
{
    return resize("adaptive_avg_pool", x, h, w, false);
}

ts_value *ts_upsample_nearest2d(ts_value *x, int64_t h, int64_t w)
{
    return resize("upsample_nearest", x, h, w, false);
}

ts_value *ts_upsample_bilinear2d(ts_value *x, int64_t h, int64_t w, bool align_corners)
{
    return resize("upsample_bilinear", x, h, w, align_corners);
}

/* --- norms --- */

static const ts_norm_options *norm_options(ts_graph *g, const ts_norm_options *o,
                                           ts_norm_options *own)
{
    return ts_graph_options(g, o, TS_END_OF(ts_norm_options, inference), own, sizeof(*own));
}

static ts_attr eps_of(const ts_norm_options *o)
{
    return ts_attr_f("eps", o->eps > 0 ? o->eps : 1e-5);
}

static ts_init full(double v)
{
    return (ts_init){TS_INIT_FULL, v, 0};
}

ts_value *ts_batch_norm_layer(ts_value *x, const char *name, const ts_norm_options *o)
{
    int64_t c = ts_dim(x, 1);
    ts_value *args[5] = {x}, *y;
    ts_norm_options own;
    ts_attr attr[3];
    ts_graph *g;

    if (!x || !(o = norm_options(x->graph, o, &own)))
        return NULL;
    g = x->graph;
    attr[0] = eps_of(o);
    attr[1] = ts_attr_f("momentum", o->momentum > 0 ? o->momentum : 0.1);
    attr[2] = ts_attr_i("training", !o->inference);
    args[1] = param(g, name, "running_mean", TS_F32, full(0), 1, &c);
    args[2] = param(g, name, "running_var", TS_F32, full(1), 1, &c);
    ts_freeze(args[1]);
    ts_freeze(args[2]);
    if (!o->no_affine) {
        args[3] = param(g, name, "weight", x->type.dtype, full(1), 1, &c);
        args[4] = param(g, name, "bias", x->type.dtype, full(0), 1, &c);
    }
    ts_scope_begin(g, name);
    y = ts_node_out(ts_node_make(g, TS_OP(batch_norm), o->no_affine ? 3 : 5, args, 3, attr));
    ts_scope_end(g);
    if (y && !o->inference) {
        ts_assign(args[1], y->node->out[1]);
        ts_assign(args[2], y->node->out[2]);
    }
    return y;
}

static ts_value *affine_norm(const char *op, ts_value *x, const char *name,
                             const ts_norm_options *o, int rank, const int64_t *dims, ts_attr extra)
{
    ts_value *args[3] = {x}, *y;
    ts_norm_options own;
    ts_attr attr[2];

    if (!x || !(o = norm_options(x->graph, o, &own)))
        return NULL;
    attr[0] = eps_of(o);
    attr[1] = extra;
    if (!o->no_affine) {
        args[1] = param(x->graph, name, "weight", x->type.dtype, full(1), rank, dims);
        args[2] = param(x->graph, name, "bias", x->type.dtype, full(0), rank, dims);
    }
    ts_scope_begin(x->graph, name);
    y = ts_node_out(ts_node_make(x->graph, ts_op_find(op), o->no_affine ? 1 : 3, args, 2, attr));
    ts_scope_end(x->graph);
    return y;
}

ts_value *ts_group_norm_layer(ts_value *x, const char *name, int groups, const ts_norm_options *o)
{
    int64_t c = ts_dim(x, 1);

    return affine_norm("group_norm", x, name, o, 1, &c, ts_attr_i("groups", groups));
}

ts_value *ts_layer_norm_layer(ts_value *x, const char *name, const ts_norm_options *o)
{
    int64_t c = ts_dim(x, -1);

    return affine_norm("layer_norm", x, name, o, 1, &c, ts_attr_i("ndims", 1));
}

ts_value *ts_embedding_layer(ts_value *index, const char *name, int64_t rows, int64_t cols)
{
    ts_value *w;

    if (!index)
        return NULL;
    w = param(index->graph, name, "weight", TS_F32, (ts_init){TS_INIT_NORMAL, 0, 1}, 2,
              (int64_t[]){rows, cols});
    w = ts_embedding(index, w);
    return index->graph->half ? ts_cast(w, index->graph->half) : w;
}

ts_value *ts_positions_layer(ts_value *x, const char *name)
{
    ts_value *w;

    if (!x)
        return NULL;
    if (x->type.rank != 3)
        return ts_graph_refuse(x->graph, TS_ERR_SHAPE, NULL,
                               "positions take batch x places x features, not rank %d",
                               x->type.rank);
    w = param(x->graph, name, "weight", x->type.dtype, (ts_init){TS_INIT_NORMAL, 0, 0.02}, 2,
              x->type.dim + 1);
    return ts_add(x, w);
}

ts_value *ts_projection_layer(ts_value *x, const char *name, const char *weight, const char *bias,
                              int64_t out)
{
    int64_t in = ts_dim(x, -1);
    ts_value *args[3] = {x}, *y;

    if (!x)
        return NULL;
    args[1] =
        param(x->graph, name, weight, x->type.dtype, fan_in((double)in), 2, (int64_t[]){out, in});
    args[2] = param(x->graph, name, bias, x->type.dtype, (ts_init){TS_INIT_FULL, 0, 0}, 1, &out);
    ts_scope_begin(x->graph, name);
    y = ts_node_out(ts_node_make(x->graph, TS_OP(linear), 3, args, 0, NULL));
    ts_scope_end(x->graph);
    return y;
}
