/* winograd.c - 3x3 convolutions over many channels by F(4x4, 3x3): 36 products for 16 outputs
 * instead of 144.
 *
 *   before                          after
 *     %3 = conv %x, %w                %4 = mix(mix(windows %x))     B^T d B     [6,6,tiles,C]
 *                                     %5 = mix(mix %w)              G g G^T     [6,6,C,O]
 *                                     %6 = matmul %4, %5                        [36,tiles,O]
 *                                     %3 = mix(mix %6)              A^T m A     [4,4,tiles,O], laid
 * back as an image
 *
 * The gradient of the input is the same with the kernel turned and transposed. The gradient of the
 * weight is G^T (V^T A dy A^T) G, V being the transformed input, which is made once for both.
 *
 * needs   no composite op; gradients and layouts already there
 * applies to stride 1, no dilation, one group, at least 32 channels on both sides, large maps and a
 * batch that would not fill the lanes; not with no_winograd: the error is about 2e-5 instead of
 * 7e-6
 */
#include "pass/pass.h"

static const float BT[36] = {4, 0,  -5, 0, 1, 0, 0, -4, -4, 1,  1, 0, 0, 4, -4, -1, 1, 0,
                             0, -2, -1, 2, 1, 0, 0, 2,  -1, -2, 1, 0, 0, 4, 0,  -5, 0, 1};
static const float G[18] = {1 / 4.f,  0,         0,        -1 / 6.f, -1 / 6.f, -1 / 6.f,
                            -1 / 6.f, 1 / 6.f,   -1 / 6.f, 1 / 24.f, 1 / 12.f, 1 / 6.f,
                            1 / 24.f, -1 / 12.f, 1 / 6.f,  0,        0,        1};
static const float AT[24] = {1, 1, 1, 1, 1, 0, 0, 1, -1, 2, -2, 0,
                             0, 1, 1, 4, 4, 0, 0, 1, -1, 8, -8, 1};

static ts_value *mix2(ts_value *x, const float *m, int64_t rows, int64_t cols, bool transposed)
{
    float turned[36];

    for (int64_t i = 0; i < rows && transposed; i++)
        for (int64_t j = 0; j < cols; j++)
            turned[j * rows + i] = m[i * cols + j];
    if (transposed) {
        int64_t t = rows;
        m = turned;
        rows = cols;
        cols = t;
    }
    for (int d = 0; d < 2 && x; d++) {
        ts_value *c = ts_const(x->graph, TS_F32, m, rows, cols);
        x = ts_make2(TS_OP(mix), x, c, 1, (ts_attr[]){ts_attr_i("dim", d)});
    }
    return x;
}

static ts_value *windows(ts_value *x, int64_t size, int64_t pad_h, int64_t pad_w, int64_t th,
                         int64_t tw)
{
    ts_attr attr[] = {ts_attr_l("kernel", 2, (int64_t[]){size, size}),
                      ts_attr_l("stride", 2, (int64_t[]){4, 4}),
                      ts_attr_l("padding", 2, (int64_t[]){pad_h, pad_w}),
                      ts_attr_l("count", 2, (int64_t[]){th, tw})};

    return ts_make1(TS_OP(windows), x, 4, attr);
}

static ts_value *flat36(ts_value *v, int64_t rows, int64_t cols)
{
    return ts_reshape(v, 36, rows, cols);
}

/* The transformed input, made once: the forward pass and the weight's gradient share it. */
static ts_value *transformed(ts_value *x, int64_t pad_h, int64_t pad_w, int64_t th, int64_t tw)
{
    ts_graph *g = x->graph;
    ts_value *v;

    for (int i = 0; i < g->nnodes;
         i++) { /* %1 = windows x; %2 = mix %1; %3 = mix %2: the consts lie in between */
        const ts_node *n = g->nodes[i];
        const int64_t *k, *p, *c;
        if (strcmp(n->op->name, "windows") || n->in[0] != x)
            continue;
        ts_attr_list(n, "kernel", &k);
        ts_attr_list(n, "padding", &p);
        ts_attr_list(n, "count", &c);
        if (k[0] == 6 && p[0] == pad_h && p[1] == pad_w && c[0] == th && c[1] == tw)
            return g->nodes[i + 4]->out[0];
    }
    v = windows(x, 6, pad_h, pad_w, th, tw);
    return mix2(v, BT, 6, 6, false);
}

/* y[n,o,h,w] from x[n,c,..] and w[o,c,3,3] */
static ts_value *convolve(ts_value *x, ts_value *w, int64_t pad_h, int64_t pad_w, const ts_type *y)
{
    int64_t n = y->dim[0], o = y->dim[1], h = y->dim[2], wd = y->dim[3], c = x->type.dim[1];
    int64_t th = (h + 3) / 4, tw = (wd + 3) / 4;
    ts_value *v = flat36(transformed(x, pad_h, pad_w, th, tw), n * th * tw, c);
    ts_value *u = flat36(mix2(ts_permute(w, 2, 3, 1, 0), G, 6, 3, false), c, o);
    ts_value *m = ts_reshape(ts_matmul(v, u), 6, 6, n, th, tw, o);

    m = ts_permute(mix2(m, AT, 4, 6, false), 2, 5, 3, 0, 4, 1); /* [n,o,th,4,tw,4] */
    m = ts_reshape(m, n, o, 4 * th, 4 * tw);
    if (4 * th > h)
        m = ts_slice(m, 2, 0, h, 1);
    return 4 * tw > wd ? ts_slice(m, 3, 0, wd, 1) : m;
}

/* dw[o,c,3,3] from x and dy */
static ts_value *weight_grad(ts_value *x, ts_value *dy, int64_t pad_h, int64_t pad_w)
{
    const ts_type *y = &dy->type;
    int64_t n = y->dim[0], o = y->dim[1], th = (y->dim[2] + 3) / 4, tw = (y->dim[3] + 3) / 4,
            c = x->type.dim[1];
    ts_value *v = flat36(transformed(x, pad_h, pad_w, th, tw), n * th * tw, c);
    ts_value *d = flat36(mix2(windows(dy, 4, 0, 0, th, tw), AT, 4, 6, true), n * th * tw, o);
    ts_value *u = ts_reshape(ts_matmul(ts_transpose(v, 1, 2), d), 6, 6, c, o);

    return ts_permute(mix2(u, G, 6, 3, true), 3, 2, 0, 1);
}

static bool ones(const ts_node *n, const char *name)
{
    const int64_t *l;
    int count = ts_attr_list(n, name, &l);

    return !count || (l[0] == 1 && l[1] == 1);
}

/* Does the op's convolution fit: x its input, y its output, w its weight? */
static bool fits(const ts_node *n, const ts_type *x, const ts_type *w, const ts_type *y)
{
    return x->rank == 4 && x->dtype == TS_F32 && w->dim[2] == 3 && w->dim[3] == 3 &&
           ones(n, "stride") && ones(n, "dilation") && ts_attr_int(n, "groups", 1) == 1 &&
           w->dim[0] >= 32 && w->dim[1] >= 32 && w->dim[0] % 8 == 0 && w->dim[1] % 8 == 0 &&
           x->dim[0] % 8 != 0 && y->dim[2] * y->dim[3] >= 1024;
}

static ts_value *rewrite(const ts_node *n, ts_value *const *in)
{
    const ts_type *a = &n->in[0]->type, *b = &n->in[1]->type, *o = &n->out[0]->type;
    const int64_t *padding;
    int64_t ph = 0, pw = 0;

    if (ts_attr_list(n, "padding", &padding)) {
        ph = padding[0];
        pw = padding[1];
    }
    if (ph > 2 || pw > 2)
        return NULL;
    if (!strcmp(n->op->name, "conv") && fits(n, a, b, o))
        return convolve(in[0], in[1], ph, pw, o);
    if (!strcmp(n->op->name, "conv_input") && fits(n, o, b, a)) {
        ts_value *w = ts_permute(in[1], 1, 0, 2, 3);
        w = ts_make1(TS_OP(flip), w, 1, (ts_attr[]){ts_attr_l("dims", 2, (int64_t[]){2, 3})});
        return convolve(in[0], w, 2 - ph, 2 - pw, o);
    }
    if (!strcmp(n->op->name, "conv_weight") && fits(n, a, o, b))
        return weight_grad(in[0], in[1], ph, pw);
    return NULL;
}

ts_status ts_pass_winograd(ts_arena *a, const ts_graph *in, const ts_options *opt,
                           const ts_graph **out)
{
    ts_value **map;
    ts_graph *g;
    bool any = false;

    *out = in;
    if (opt->no_winograd)
        return TS_OK;
    g = ts_graph_begin_copy(a, in, &map);
    for (int i = 0; i < in->nnodes; i++) {
        const ts_node *n = in->nodes[i];
        ts_value *x[2], *y = NULL;
        if (!strncmp(n->op->name, "conv", 4)) {
            x[0] = map[n->in[0]->id];
            x[1] = map[n->in[1]->id];
            g->like = n;
            y = rewrite(n, x);
            g->like = NULL;
            TS_TRY(ts_graph_check(g));
        }
        if (y) {
            y->layout = n->out[0]->layout;
            map[n->out[0]->id] = y;
        } else
            ts_graph_copy_node(g, n, map);
        any = any || y;
    }
    if (!any)
        return TS_OK;
    ts_graph_finish_copy(g, in, map);
    *out = g;
    return TS_OK;
}
