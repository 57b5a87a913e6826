/* winograd.c - 3x3 convolutions over many channels with fewer products: F(4x4, 3x3) has 36 for 16
 * outputs instead of 144, F(2x2, 3x3) 16 for 4 instead of 36.
 *
 *   before                          after
 *     %3 = conv %x, %w                %4 = mix(mix(windows %x))     B^T d B     [6,6,tiles,C]
 *                                     %5 = mix(mix %w)              G g G^T     [6,6,C,O]
 *                                     %6 = matmul %4, %5                        [36,tiles,O]
 *                                     %3 = mix(mix %6)              A^T m A     [4,4,tiles,O]
 *                                          laid back as an image
 *
 * The gradient of the input is the same with the kernel turned and transposed. The gradient of the
 * weight is G^T (V^T A dy A^T) G, V being the transformed input, which is made once for both.
 *
 * needs   no composite op; gradients and layouts already there
 *
 * It is for stride 1, no dilation, one group and at least 32 channels on both sides. On large maps
 * with channels last F(4x4, 3x3), whose error is about 2e-5 instead of 7e-6; with the batch in the
 * lanes, where it saves enough, F(2x2, 3x3), which is about as exact as the direct sum. Not with
 * no_winograd.
 */
#include "pass/pass.h"
#include <stddef.h>

/* Of a convolution in the lanes: operations and products of each transformed weight at least, bytes
 * of the transformed pictures at most, and how many times fewer products there must be. From some 25
 * layers on two cores of Zen 4, each alone. On one core of a Xeon, W2 of bench/ is 0.85 as fast with
 * WORK = 100e6, 0.87 with COLUMNS = 512, 0.82 with ROOM = 1 << 20; half or a quarter of the first two,
 * eight times the third and 1.25 or 2.1 for SAVES change no workload by more than the noise, 5 %. */
static const double WORK = 12e6, COLUMNS = 128, ROOM = 5 << 20, SAVES = 1.75;

/* Places of a picture with channels last, at least; an estimate. 256 changes no workload of bench/ by more
 * than the noise. */
enum { PLACES = 1024 };

static const float BT[36] = {4, 0,  -5, 0, 1, 0, 0, -4, -4, 1,  1, 0, 0, 4, -4, -1, 1, 0,
                             0, -2, -1, 2, 1, 0, 0, 2,  -1, -2, 1, 0, 0, 4, 0,  -5, 0, 1};
static const float G[18] = {1 / 4.f,  0,         0,        -1 / 6.f, -1 / 6.f, -1 / 6.f,
                            -1 / 6.f, 1 / 6.f,   -1 / 6.f, 1 / 24.f, 1 / 12.f, 1 / 6.f,
                            1 / 24.f, -1 / 12.f, 1 / 6.f,  0,        0,        1};
static const float AT[24] = {1, 1, 1, 1, 1, 0, 0, 1, -1, 2, -2, 0,
                             0, 1, 1, 4, 4, 0, 0, 1, -1, 8, -8, 1};
static const float BT2[16] = {1, 0, -1, 0, 0, 1, 1, 0, 0, -1, 1, 0, 0, 1, 0, -1};
static const float G2[12] = {1, 0, 0, 0.5f, 0.5f, 0.5f, 0.5f, -0.5f, 0.5f, 0, 0, 1};
static const float AT2[8] = {1, 1, 1, 0, 0, 1, -1, -1};

/* F(m x m, 3x3): tiles of m + 2 by m + 2 */
typedef struct form {
    int64_t m;
    const float *bt, *g, *at;
} form;

static const form large = {4, BT, G, AT}, fine = {2, BT2, G2, AT2};

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

static ts_value *windows(ts_value *x, const form *f, int64_t size, int64_t pad_h, int64_t pad_w,
                         int64_t th, int64_t tw)
{
    ts_attr attr[] = {ts_attr_l("kernel", 2, (int64_t[]){size, size}),
                      ts_attr_l("stride", 2, (int64_t[]){f->m, f->m}),
                      ts_attr_l("padding", 2, (int64_t[]){pad_h, pad_w}),
                      ts_attr_l("count", 2, (int64_t[]){th, tw})};

    return ts_make1(TS_OP(windows), x, 4, attr);
}

/* Both dims of the transform as one. */
static ts_value *flat(ts_value *v, int64_t rows, int64_t cols)
{
    return v ? ts_reshape(v, v->type.dim[0] * v->type.dim[1], rows, cols) : NULL;
}

static int64_t tiles(const form *f, int64_t size)
{
    return (size + f->m - 1) / f->m;
}

/* The transformed input, made once: the forward pass and the weight's gradient share it. */
typedef struct shared {
    const ts_value *x;
    int64_t m, pad_h, pad_w, th, tw;
    ts_value *v;
} shared;

typedef struct winograd {
    ts_arena *a;
    shared *made;
    int nmade;
} winograd;

static ts_value *transformed(winograd *p, ts_value *x, const form *f, int64_t pad_h, int64_t pad_w,
                             int64_t th, int64_t tw)
{
    shared want = {x, f->m, pad_h, pad_w, th, tw, NULL};

    for (int i = 0; i < p->nmade; i++)
        if (!memcmp(&p->made[i], &want, offsetof(shared, v)))
            return p->made[i].v;
    want.v = mix2(windows(x, f, f->m + 2, pad_h, pad_w, th, tw), f->bt, f->m + 2, f->m + 2, false);
    TS_PUSH(p->a, p->made, p->nmade, want);
    return want.v;
}

/* [m,m,n,th,tw,o] as a picture of y's size */
static ts_value *picture(ts_value *m, const ts_type *y)
{
    return m ? ts_make1(TS_OP(untile), m, 1, (ts_attr[]){ts_attr_l("shape", 2, y->dim + 2)}) : NULL;
}

/* y[n,o,h,w] from x[n,c,..] and w[o,c,3,3] */
static ts_value *convolve(winograd *p, ts_value *x, ts_value *w, int64_t pad_h, int64_t pad_w,
                          const ts_type *y)
{
    const form *f = &large;
    int64_t n = y->dim[0], o = y->dim[1], c = x->type.dim[1], t = f->m + 2;
    int64_t th = tiles(f, y->dim[2]), tw = tiles(f, y->dim[3]);
    ts_value *v = flat(transformed(p, x, f, pad_h, pad_w, th, tw), n * th * tw, c);
    ts_value *u = flat(mix2(ts_permute(w, 2, 3, 1, 0), f->g, t, 3, false), c, o);
    ts_value *m = ts_reshape(ts_matmul(v, u), t, t, n, th, tw, o);

    return picture(mix2(m, f->at, f->m, t, false), y);
}

/* dw[o,c,3,3] from x and dy */
static ts_value *weight_grad(winograd *p, ts_value *x, ts_value *dy, int64_t pad_h, int64_t pad_w)
{
    const form *f = &large;
    const ts_type *y = &dy->type;
    int64_t n = y->dim[0], o = y->dim[1], c = x->type.dim[1], t = f->m + 2;
    int64_t th = tiles(f, y->dim[2]), tw = tiles(f, y->dim[3]);
    ts_value *v = flat(transformed(p, x, f, pad_h, pad_w, th, tw), n * th * tw, c);
    ts_value *d =
        flat(mix2(windows(dy, f, f->m, 0, 0, th, tw), f->at, f->m, t, true), n * th * tw, o);
    ts_value *u = ts_reshape(ts_matmul(ts_transpose(v, 1, 2), d), t, t, c, o);

    return ts_permute(mix2(u, f->g, t, 3, true), 3, 2, 0, 1);
}

/* --- with the batch in the lanes ---
 *
 * The same with the samples last, so that they fill the vectors from the windows to the result. For
 * the gradient of the weight the sum is over them: there the transformed input is turned once. */

/* Of a vector that the samples fill, or 0. */
static int lanes_of(const ts_value *v)
{
    return v->layout.set && v->layout.lanes >= 8 && v->layout.lane_dim == 0 &&
                   v->type.dim[0] % v->layout.lanes == 0
               ? v->layout.lanes
               : 0;
}

static ts_value *laid(ts_value *v, const int8_t *order, int lanes)
{
    if (v) {
        v->layout = (ts_layout){
            .set = true, .lanes = (int16_t)lanes, .lane_dim = (int8_t)(v->type.rank - 1)};
        memcpy(v->layout.order, order, (size_t)v->type.rank);
    }
    return v;
}

/* [t,t,n,th,tw,c], in memory [th][tw][t][t][c][n] */
static ts_value *tiles_first(ts_value *v)
{
    return laid(v, (const int8_t[]){3, 4, 0, 1, 5, 2}, 0);
}

/* It as [t*t, c, th*tw*n] */
static ts_value *samples_last(ts_value *v)
{
    const int64_t *d = v ? v->type.dim : NULL;

    return v ? flat(ts_permute(v, 0, 1, 5, 3, 4, 2), d[5], d[3] * d[4] * d[2]) : NULL;
}

static ts_value *lane_convolve(winograd *p, ts_value *x, ts_value *w, int64_t pad_h, int64_t pad_w,
                               const ts_type *y)
{
    const form *f = &fine;
    int64_t n = y->dim[0], o = y->dim[1], c = x->type.dim[1], t = f->m + 2;
    int64_t th = tiles(f, y->dim[2]), tw = tiles(f, y->dim[3]);
    ts_value *v = samples_last(tiles_first(transformed(p, x, f, pad_h, pad_w, th, tw)));
    ts_value *u = flat(mix2(ts_permute(w, 2, 3, 0, 1), f->g, t, 3, false), o, c);
    ts_value *m = laid(ts_matmul(u, v), (const int8_t[]){2, 1, 0}, lanes_of(x));

    m = mix2(ts_reshape(m, t, t, o, th, tw, n), f->at, f->m, t, false);
    return picture(ts_permute(m, 0, 1, 5, 3, 4, 2), y);
}

static ts_value *lane_weight_grad(winograd *p, ts_value *x, ts_value *dy, int64_t pad_h,
                                  int64_t pad_w)
{
    const form *f = &fine;
    const ts_type *y = &dy->type;
    int64_t n = y->dim[0], o = y->dim[1], c = x->type.dim[1], t = f->m + 2;
    int64_t th = tiles(f, y->dim[2]), tw = tiles(f, y->dim[3]);
    ts_value *v = tiles_first(transformed(p, x, f, pad_h, pad_w, th, tw));
    ts_value *d = mix2(windows(dy, f, f->m, 0, 0, th, tw), f->at, f->m, t, true), *u;

    v = ts_make1(TS_OP(nop), ts_permute(v, 2, 3, 4, 0, 1, 5), 0, NULL); /* [n,th,tw,t,t,c] */
    v = flat(ts_permute(v, 3, 4, 1, 2, 0, 5), th * tw * n, c);
    u = laid(ts_matmul(samples_last(tiles_first(d)), v), (const int8_t[]){1, 0, 2}, 0);
    return ts_permute(mix2(ts_reshape(u, t, t, o, c), f->g, t, 3, true), 2, 3, 0, 1);
}

/* --- where it applies --- */

static bool ones(const ts_node *n, const char *name)
{
    const int64_t *l;
    int count = ts_attr_list(n, name, &l);

    return !count || (l[0] == 1 && l[1] == 1);
}

/* Multiply-adds of a convolution of so many places, done directly. */
static double direct(const ts_type *w, double places)
{
    return 9 * places * (double)w->dim[0] * (double)w->dim[1];
}

/* And in so many tiles, the transforms of the pictures' channels with them: those are mostly memory, in the
 * time of 200 multiply-adds a tile and channel (32 channels: 210 of 512 tiles in the lanes, 184 of 100
 * large ones). */
static double transformed_price(const form *f, const ts_type *w, double tiles)
{
    double o = (double)w->dim[0], c = (double)w->dim[1], t = (double)((f->m + 2) * (f->m + 2));

    return tiles * (t * o * c + 200 * (o + c));
}

/* With the batch in the lanes, which rounds as the direct sum does: is it quicker, and are the transforms
 * so small that nobody minds the memory? `places` are the outputs of the convolution; both gradients
 * have products for each of them too. */
static bool pays(const ts_value *x, const ts_type *w, int64_t places, int64_t tiles)
{
    double n = (double)x->type.dim[0], o = (double)w->dim[0], c = (double)w->dim[1];
    double sums = n * direct(w, (double)places), all = n * (double)tiles;

    return lanes_of(x) && sums >= transformed_price(&fine, w, all) && 2 * sums >= WORK &&
           9 * (double)places >= SAVES * 16 * (double)tiles && all >= COLUMNS &&
           64 * all * (o + c) <= ROOM;
}

/* Does the op's convolution fit: x one of its pictures, w its weight? */
static bool fits(const ts_node *n, const ts_type *x, const ts_type *w)
{
    return x->rank == 4 && x->dtype == TS_F32 && w->dim[2] == 3 && w->dim[3] == 3 &&
           ones(n, "stride") && ones(n, "dilation") && ts_attr_int(n, "groups", 1) == 1;
}

/* Channels last, a large map, and twice as fast: it rounds more. */
static bool is_large(const ts_value *x, const ts_type *w, const ts_type *y)
{
    double places = (double)(y->dim[2] * y->dim[3]);

    return ts_fills_lanes(w->dim[0]) && ts_fills_lanes(w->dim[1]) && !lanes_of(x) &&
           y->dim[0] % 8 != 0 && places >= PLACES &&
           direct(w, places) >=
               2 * transformed_price(&large, w, places / (double)(large.m * large.m));
}

static ts_value *rewrite(winograd *p, const ts_node *n, ts_value *const *in)
{
    const ts_type *a = &n->in[0]->type, *b = &n->in[1]->type, *o = &n->out[0]->type;
    bool forward = n->op == TS_OP(conv), input = n->op == TS_OP(conv_input);
    const ts_type *w = forward || input ? b : o,
                  *dy = forward ? o
                        : input ? a
                                : b,
                  *made = input ? o : dy;
    int64_t ph = 0, pw = 0;
    const int64_t *padding;
    bool lanes;

    if (!fits(n, a, w))
        return NULL;
    if (ts_attr_list(n, "padding", &padding)) {
        ph = padding[0];
        pw = padding[1];
    }
    lanes = pays(n->in[0], w, dy->dim[2] * dy->dim[3],
                 tiles(&fine, made->dim[2]) * tiles(&fine, made->dim[3]));
    if (ph > 2 || pw > 2 || (!lanes && !is_large(n->in[0], w, dy)))
        return NULL;
    if (forward)
        return (lanes ? lane_convolve : convolve)(p, in[0], in[1], ph, pw, o);
    if (input) {
        ts_value *t = ts_permute(in[1], 1, 0, 2, 3);
        t = ts_make1(TS_OP(flip), t, 1, (ts_attr[]){ts_attr_l("dims", 2, (int64_t[]){2, 3})});
        return (lanes ? lane_convolve : convolve)(p, in[0], t, 2 - ph, 2 - pw, o);
    }
    return (lanes ? lane_weight_grad : weight_grad)(p, in[0], in[1], ph, pw);
}

ts_status ts_pass_winograd(ts_arena *a, const ts_graph *in, const ts_options *opt,
                           const ts_graph **out)
{
    winograd p = {.a = a};
    ts_value **map;
    ts_graph *g;
    bool any = false;

    *out = in;
    if (opt->no_winograd || ts_pass_for_gpu(opt))
        return TS_OK;
    g = ts_graph_begin_copy(a, in, &map);
    for (int i = 0; i < in->nnodes; i++) {
        const ts_node *n = in->nodes[i];
        ts_value *x[2], *y = NULL;
        if (n->op->flags & TS_CONV) {
            x[0] = map[n->in[0]->id];
            x[1] = map[n->in[1]->id];
            g->like = n;
            y = rewrite(&p, n, x);
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
