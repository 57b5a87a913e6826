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

/* The parameter of a layer that is used again; NULL: it has none yet, or another. */
static ts_value *existing(ts_graph *g, const char *name, ts_dtype t, int rank, const int64_t *dims)
{
    ts_value *p = g->shares ? ts_graph_find_state(g, name) : NULL;
    ts_type want = ts_type_of(t, rank, dims);

    if (!p || ts_type_same(&p->type, &want))
        return p;
    return ts_graph_refuse(g, TS_ERR_SHAPE, NULL, "%s is %s, and used again it would be %s", name,
                           ts_type_text(g->arena, &p->type), ts_type_text(g->arena, &want));
}

static ts_value *param(ts_graph *g, const char *layer, const char *what, ts_dtype t, ts_init init,
                       int rank, const int64_t *dims)
{
    const char *path = g->scope ? "" : NULL, *name;
    ts_scope *s = g->scope;
    ts_dtype kept = g->half ? TS_F32 : t;
    ts_value *p;

    if (!layer)
        return ts_graph_refuse(g, TS_ERR_ARG, NULL, "every layer needs a name");
    for (; s; s = s->up)
        path = path[0] ? ts_arena_printf(g->arena, "%s.%s", s->name, path) : s->name;
    name = path ? ts_arena_printf(g->arena, "%s.%s.%s", path, layer, what)
                : ts_arena_printf(g->arena, "%s.%s", layer, what);
    p = existing(g, name, kept, rank, dims);
    p = p || g->status ? p : ts_param_n(g, name, kept, init, rank, dims);
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

static int conv_attrs(const ts_window *w, int spatial, int64_t lists[4][3], ts_attr *attr)
{
    const char *const names[] = {"stride", "padding", "dilation", "output_padding"};
    const int *const values[] = {w->stride, w->padding, w->dilation, w->output_padding};
    int n = 0;

    for (int i = 0; i < (w->transposed ? 4 : 3); i++) {
        for (int d = 0; d < spatial; d++)
            lists[i][d] = values[i][d];
        attr[n++] = ts_attr_l(names[i], spatial, lists[i]);
    }
    attr[n++] = ts_attr_i("groups", w->groups);
    return n;
}

static ts_value *refuse_conv(const ts_value *x, const char *name, int spatial, int64_t out,
                             const ts_window *w)
{
    return ts_graph_refuse(x->graph, TS_ERR_SHAPE, NULL,
                           "layer %s: an input of rank %d with %ld channels does not fit a "
                           "%d-d convolution to %ld channels in %ld groups with a kernel of %ld",
                           name ? name : "NULL", x->type.rank, (long)ts_dim(x, 1), spatial,
                           (long)out, (long)w->groups, (long)w->kernel[0]);
}

/* PyTorch's weights: out x in/groups x kernel, and in x out/groups x kernel when transposed. */
static double conv_dims(int64_t c, int64_t out, int spatial, const ts_window *w, int64_t dims[5])
{
    double fan;

    dims[0] = w->transposed ? c : out;
    dims[1] = (w->transposed ? out : c) / w->groups;
    fan = (double)dims[1];
    for (int d = 0; d < spatial; d++) {
        dims[2 + d] = w->kernel[d];
        fan *= w->kernel[d];
    }
    return fan;
}

ts_value *ts_window_layer(ts_value *x, const char *name, int spatial, int64_t out,
                          const ts_window *w)
{
    int64_t c = ts_dim(x, 1), lists[4][3], dims[5];
    ts_value *args[3] = {x}, *y;
    ts_attr attr[6];
    ts_graph *g;
    double fan;
    int n;

    if (!x)
        return NULL;
    g = x->graph;
    if (spatial < 1 || spatial > 3 || x->type.rank != spatial + 2 || w->groups < 1 ||
        c % w->groups || out % w->groups || w->kernel[0] < 1)
        return refuse_conv(x, name, spatial, out, w);
    n = conv_attrs(w, spatial, lists, attr);
    fan = conv_dims(c, out, spatial, w, dims);
    args[1] = param(g, name, "weight", x->type.dtype, fan_in(fan), spatial + 2, dims);
    if (!w->no_bias)
        args[2] = param(g, name, "bias", x->type.dtype, fan_in(fan), 1, &out);
    ts_scope_begin(g, name);
    y = ts_node_out(ts_node_make(g, w->transposed ? TS_OP(conv_transpose) : TS_OP(conv_bias),
                                 w->no_bias ? 2 : 3, args, n, attr));
    ts_scope_end(g);
    return y;
}

static ts_value *conv(ts_value *x, const char *name, int spatial, int64_t out, int64_t kernel,
                      const ts_conv_options *o, bool transposed)
{
    ts_conv_options own;
    ts_window w = {.transposed = transposed};

    if (!x || !(o = ts_graph_options(x->graph, o, TS_END_OF(ts_conv_options, no_bias), &own,
                                     sizeof(own))))
        return NULL;
    w.groups = o->groups ? o->groups : 1;
    w.no_bias = o->no_bias;
    for (int d = 0; d < 3; d++) {
        w.kernel[d] = kernel < 0 || kernel > INT32_MAX ? 0 : (int)kernel;
        w.stride[d] = o->stride ? o->stride : 1;
        w.padding[d] = o->padding;
        w.dilation[d] = o->dilation ? o->dilation : 1;
        w.output_padding[d] = o->output_padding;
    }
    return ts_window_layer(x, name, spatial, out, &w);
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

/* Statistics that a layer used again goes on from, as they were left the last time. */
static ts_value *latest(const ts_graph *g, ts_value *state)
{
    for (int i = 0; i < g->nupdates; i++)
        if (g->updates[i].state == state)
            return g->updates[i].next;
    return state;
}

static void renew(ts_graph *g, ts_value *state, ts_value *next)
{
    for (int i = 0; i < g->nupdates; i++)
        if (g->shares && g->updates[i].state == state) {
            g->updates[i].next = next;
            return;
        }
    ts_assign(state, next);
}

ts_value *ts_batch_norm_layer(ts_value *x, const char *name, const ts_norm_options *o)
{
    int64_t c = ts_dim(x, 1);
    ts_value *args[5] = {x}, *state[2], *y;
    ts_norm_options own;
    ts_attr attr[3];
    ts_graph *g;

    if (!x || !(o = norm_options(x->graph, o, &own)))
        return NULL;
    g = x->graph;
    attr[0] = eps_of(o);
    attr[1] = ts_attr_f("momentum", o->momentum > 0 ? o->momentum : 0.1);
    attr[2] = ts_attr_i("training", !o->inference);
    state[0] = param(g, name, "running_mean", TS_F32, full(0), 1, &c);
    state[1] = param(g, name, "running_var", TS_F32, full(1), 1, &c);
    for (int i = 0; i < 2; i++) {
        ts_freeze(state[i]);
        args[1 + i] = latest(g, state[i]);
    }
    if (!o->no_affine) {
        args[3] = param(g, name, "weight", x->type.dtype, full(1), 1, &c);
        args[4] = param(g, name, "bias", x->type.dtype, full(0), 1, &c);
    }
    ts_scope_begin(g, name);
    y = ts_node_out(ts_node_make(g, TS_OP(batch_norm), o->no_affine ? 3 : 5, args, 3, attr));
    ts_scope_end(g);
    if (y && !o->inference) {
        renew(g, state[0], y->node->out[1]);
        renew(g, state[1], y->node->out[2]);
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

/* nn.MultiheadAttention begins with Xavier's bound for the three together, and a linear layer's for
 * what leaves. */
ts_value *ts_projection_layer(ts_value *x, const char *name, const char *weight, const char *bias,
                              int64_t out)
{
    int64_t in = ts_dim(x, -1);
    double bound = out == in ? 1 / sqrt((double)in) : sqrt(6 / (double)(in + out));
    ts_value *args[3] = {x}, *y;

    if (!x)
        return NULL;
    args[1] = param(x->graph, name, weight, x->type.dtype,
                    (ts_init){TS_INIT_UNIFORM, -bound, bound}, 2, (int64_t[]){out, in});
    args[2] = param(x->graph, name, bias, x->type.dtype, (ts_init){TS_INIT_FULL, 0, 0}, 1, &out);
    ts_scope_begin(x->graph, name);
    y = ts_node_out(ts_node_make(x->graph, TS_OP(linear), 3, args, 0, NULL));
    ts_scope_end(x->graph);
    return y;
}

/* --- recurrent layers ---
 *
 * As nn.LSTM, nn.GRU and nn.RNN with batch_first: the same parameters, the same order of gates, and
 * the first state is 0. The products with x are made for all places at once; the steps are written
 * out, so that gradients and fusion need to know nothing about them.
 */

enum { MOST_STEPS = 4096 };

typedef struct cell {
    const char *kind;
    ts_value *x;             /* the gates' share of one place: batch x gates*hidden */
    ts_value *weight, *bias; /* of the state; bias NULL: none */
    ts_value *h, *c;
} cell;

static int gates_of(const char *kind)
{
    return !strcmp(kind, "lstm") ? 4 : !strcmp(kind, "gru") ? 3 : 1;
}

static ts_value *from_state(const cell *s)
{
    ts_value *args[] = {s->h, s->weight, s->bias};

    return ts_node_out(ts_node_make(s->h->graph, TS_OP(linear), s->bias ? 3 : 2, args, 0, NULL));
}

/* i, f, g, o */
static void lstm_step(cell *s)
{
    ts_value *gate[4] = {NULL};

    ts_chunk(ts_add(s->x, from_state(s)), 4, 1, gate);
    s->c = ts_add(ts_mul(ts_sigmoid(gate[1]), s->c), ts_mul(ts_sigmoid(gate[0]), ts_tanh(gate[2])));
    s->h = ts_mul(ts_sigmoid(gate[3]), ts_tanh(s->c));
}

/* r, z, n: the reset gate is applied to the product with the state, bias and all */
static void gru_step(cell *s)
{
    ts_value *x[3] = {NULL}, *h[3] = {NULL}, *r, *z, *n;

    ts_chunk(s->x, 3, 1, x);
    ts_chunk(from_state(s), 3, 1, h);
    r = ts_sigmoid(ts_add(x[0], h[0]));
    z = ts_sigmoid(ts_add(x[1], h[1]));
    n = ts_tanh(ts_add(x[2], ts_mul(r, h[2])));
    s->h = ts_add(n, ts_mul(z, ts_sub(s->h, n)));
}

static void step(cell *s)
{
    if (!strcmp(s->kind, "lstm"))
        lstm_step(s);
    else if (!strcmp(s->kind, "gru"))
        gru_step(s);
    else
        s->h = ts_tanh(ts_add(s->x, from_state(s)));
}

static ts_value *gate_param(ts_value *x, const char *name, const char *what, int layer,
                            bool backward, int64_t hidden, int rank, const int64_t *dims)
{
    const char *full =
        ts_arena_printf(x->graph->arena, "%s_l%d%s", what, layer, backward ? "_reverse" : "");

    return param(x->graph, name, full, x->type.dtype, fan_in((double)hidden), rank, dims);
}

/* All steps of a layer in one direction, joined in the order of their places. */
static ts_value *walk(cell *s, ts_value *gates, int64_t hidden, bool backward)
{
    int64_t batch = ts_dim(gates, 0), n = ts_dim(gates, 1);
    ts_graph *g = gates->graph;
    ts_value **all = TS_NEWS(g->arena, ts_value *, n);

    s->h = ts_full_n(g, gates->type.dtype, 0, 2, (int64_t[]){batch, hidden});
    s->c = s->h;
    for (int64_t i = 0; i < n && !g->status; i++) {
        int64_t t = backward ? n - 1 - i : i;
        s->x =
            ts_reshape_n(ts_slice(gates, 1, t, t + 1, 1), 2, (int64_t[]){batch, ts_dim(gates, 2)});
        step(s);
        all[t] = ts_reshape_n(s->h, 3, (int64_t[]){batch, 1, hidden});
    }
    return g->status ? NULL : ts_concat((int)n, all, 1);
}

static ts_value *direction(ts_value *x, const char *name, const char *kind, int layer,
                           bool backward, int64_t hidden, bool bias)
{
    int64_t rows = gates_of(kind) * hidden, in = ts_dim(x, 2);
    cell s = {.kind = kind};
    ts_value *args[3] = {x};

    args[1] = gate_param(x, name, "weight_ih", layer, backward, hidden, 2, (int64_t[]){rows, in});
    s.weight =
        gate_param(x, name, "weight_hh", layer, backward, hidden, 2, (int64_t[]){rows, hidden});
    if (bias) {
        args[2] = gate_param(x, name, "bias_ih", layer, backward, hidden, 1, &rows);
        s.bias = gate_param(x, name, "bias_hh", layer, backward, hidden, 1, &rows);
    }
    if (x->graph->status)
        return NULL;
    return walk(&s, ts_node_out(ts_node_make(x->graph, TS_OP(linear), bias ? 3 : 2, args, 0, NULL)),
                hidden, backward);
}

ts_value *ts_recurrent_layer(ts_value *x, const char *name, const char *kind, int64_t hidden,
                             int layers, bool both, bool bias)
{
    if (x && (x->type.rank != 3 || ts_dim(x, 1) < 1 || ts_dim(x, 1) > MOST_STEPS))
        return ts_graph_refuse(x->graph, TS_ERR_SHAPE, NULL,
                               "%s takes batch x places x features with 1 to %d places, not rank "
                               "%d with %ld",
                               kind, MOST_STEPS, x->type.rank, (long)ts_dim(x, 1));
    for (int i = 0; i < layers && x; i++) {
        ts_value *ways[2] = {direction(x, name, kind, i, false, hidden, bias)};
        if (both)
            ways[1] = direction(x, name, kind, i, true, hidden, bias);
        x = both ? ts_concat(2, ways, 2) : ways[0];
    }
    return x;
}
