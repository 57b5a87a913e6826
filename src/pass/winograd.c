/* winograd.c - 3x3 convolutions over many channels with fewer products: F(4x4, 3x3) has 36 for 16
 * outputs instead of 144, F(2x2, 3x3) 16 for 4 instead of 36.
 *
 *   before                          after, channels last
 *     %3 = conv %x, %w                %3 = conv %x, %w   winograd=4     render/winograd.c does the rest
 *
 *                                   after, the batch in the lanes
 *                                     %4 = mix(mix(windows %x))     B^T d B     [4,4,tiles,C]
 *                                     %5 = mix(mix %w)              G g G^T     [4,4,C,O]
 *                                     %6 = matmul %4, %5                        [16,tiles,O]
 *                                     %3 = mix(mix %6)              A^T m A     [2,2,tiles,O]
 *                                          laid back as an image
 *
 * The gradient of the input is the same with the kernel turned and transposed. The gradient of the
 * weight is G^T (V^T A dy A^T) G, V being the transformed input, which is made once for both.
 *
 * needs   no composite op; gradients and layouts already there
 *
 * It is for stride 1, no dilation, one group and channels that fill the lanes on both sides. With
 * channels last and large maps F(4x4, 3x3), whose error is about 2e-5 instead of 7e-6; with the batch in the
 * lanes, where it saves enough, F(2x2, 3x3), which is about as exact as the direct sum. Not with no_winograd.
 */
#include "machine/machine.h"
#include "pass/pass.h"
#include <stddef.h>

/* Of a convolution in the lanes: operations and products of each transformed weight at least, bytes
 * of the transformed pictures at most, and how many times fewer products there must be. From some 25
 * layers on two cores of Zen 4, each alone. On one core of a Xeon, W2 of bench/ is 0.85 as fast with
 * WORK = 100e6, 0.87 with COLUMNS = 512, 0.82 with ROOM = 1 << 20; half or a quarter of the first two,
 * eight times the third and 1.25 or 2.1 for SAVES change no workload by more than the noise, 5 %. */
static const double WORK = 12e6, COLUMNS = 128, ROOM = 5 << 20, SAVES = 1.75;

/* With channels last: how many times faster it must be, and channels at most, whose transformed weights fit
 * a thread's panels. */
static const double GAIN = 1.4;
enum { MOST = 1024 };

/* Places of a map at least. What it rounds decides now and then which side of 0 an element is on; in small maps
 * one of them is seen: with maps of 16 x 16 and less the losses of resnet18 are 1e-3 from PyTorch's after two
 * steps, and those layers are less than 1.2 times faster. */
enum { PLACES = 1024 };

static const float BT2[16] = {1, 0, -1, 0, 0, 1, 1, 0, 0, -1, 1, 0, 0, 1, 0, -1};
static const float G2[12] = {1, 0, 0, 0.5f, 0.5f, 0.5f, 0.5f, -0.5f, 0.5f, 0, 0, 1};
static const float AT2[8] = {1, 1, 1, 0, 0, 1, -1, -1};

/* F(m x m, 3x3): tiles of m + 2 by m + 2 */
typedef struct form {
    int64_t m;
    const float *bt, *g, *at;
} form;

static const form fine = {2, BT2, G2, AT2};

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
    ts_machine_model m;
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

/* And in so many tiles of the batch in the lanes, the transforms of the pictures' channels with them: those
 * are mostly memory, in the time of 200 multiply-adds a tile and channel (32 channels: 210 of 512 tiles) on a unit
 * that takes 32 bytes, of 400 on one of 64 (24, 32 and 40 channels were 1.63, 1.05 and 1.24 times as slow so). */
static double transformed_price(const ts_machine_model *m, const ts_type *w, double tiles)
{
    double o = (double)w->dim[0], c = (double)w->dim[1], moves = 200.0 / 32 * TS_MAX(m->unit, 32);

    return tiles * (16 * o * c + moves * (o + c));
}

/* What a multiply-add takes with so many samples in the lanes, of one with whole vectors: eight of 16 lanes take the
 * time of 16, unless a unit has them in two turns anyway. */
static double half_filled(const ts_machine_model *m, int lanes)
{
    double whole = m->isa.width * ts_machine_rate(m, m->isa.width);

    return TS_MAX(1, whole / (lanes * ts_machine_rate(m, lanes)));
}

/* With the batch in the lanes, which rounds as the direct sum does: is it quicker, and are the transforms
 * so small that nobody minds the memory? `places` are the outputs of the convolution; both gradients
 * have products for each of them too. */
static bool pays(const ts_machine_model *m, int lanes, const ts_type *x, const ts_type *w,
                 int64_t places, int64_t tiles)
{
    double n = (double)x->dim[0], o = (double)w->dim[0], c = (double)w->dim[1];
    double sums = n * direct(w, (double)places), all = n * (double)tiles;

    return lanes >= 8 && sums * half_filled(m, lanes) > transformed_price(m, w, all) &&
           2 * sums >= WORK && 9 * (double)places >= SAVES * 16 * (double)tiles && all >= COLUMNS &&
           64 * all * (o + c) <= ROOM;
}

/* Does the op's convolution fit: x one of its pictures, w its weight? */
static bool fits(const ts_node *n, const ts_type *x, const ts_type *w)
{
    return x->rank == 4 && x->dtype == TS_F32 && w->dim[2] == 3 && w->dim[3] == 3 &&
           ones(n, "stride") && ones(n, "dilation") && ts_attr_int(n, "groups", 1) == 1;
}

bool ts_winograd_fits(const ts_node *n, const ts_type *y)
{
    const ts_type *w = n->op == TS_OP(conv_weight) ? &n->out[0]->type : &n->in[1]->type;

    return fits(n, &n->in[0]->type, w) && y->dim[2] * y->dim[3] >= PLACES;
}

/* --- channels last --- */

static int64_t tiles_of_four(int64_t size)
{
    return (size + 3) / 4;
}

/* As render/winograd.c does it, in multiply-adds: the products, the transforms of tiles, each channel of x and
 * of y, and those of the weights, for each core. */
static double price_of_four(const ts_machine_model *m, const ts_type *w, const ts_type *y)
{
    double o = (double)w->dim[0], c = (double)w->dim[1];
    double tiles = (double)(y->dim[0] * tiles_of_four(y->dim[2]) * tiles_of_four(y->dim[3]));

    return tiles * (48 * o * c + 336 * (o + c)) + 128 * m->cores * o * c;
}

static bool channels_last(const ts_value *v)
{
    return v->layout.set && v->layout.lanes <= 1 && v->type.rank == 4 && v->layout.order[3] == 1;
}

/* A large map, channels that fill the lanes, and enough faster, for it rounds more. */
static bool is_large(const ts_machine_model *m, const ts_type *w, const ts_type *y)
{
    int64_t lanes = m->isa.width;

    return y->dim[2] * y->dim[3] >= PLACES && w->dim[0] >= lanes && w->dim[1] >= lanes &&
           TS_MAX(w->dim[0], w->dim[1]) <= MOST &&
           direct(w, (double)(y->dim[0] * y->dim[2] * y->dim[3])) >= GAIN * price_of_four(m, w, y);
}

/* The gradient of a weight of few channels is summed in parts of the rows, which the cores share. Multiply-adds of
 * it for each pair of channels: a part's tiles, and its sums back to taps; of the core that has most of them, and
 * of all, for fewer threads than cores. */
static double price_of_parts(const ts_machine_model *m, const ts_type *dy, int64_t parts,
                             int64_t blocks)
{
    int64_t tiles = dy->dim[0] * tiles_of_four(dy->dim[2] / parts) * tiles_of_four(dy->dim[3]);
    int64_t pieces = parts * blocks, turns = (pieces + m->cores - 1) / m->cores;

    return (48 * (double)tiles + 128) * ((double)turns + (double)pieces / m->cores);
}

/* Of the numbers that divide the rows and give each core two pieces the one with the least work, or 1. */
static int64_t weight_parts(const ts_machine_model *m, const ts_type *w, const ts_type *dy)
{
    int64_t blocks = ((w->dim[0] + 63) / 64) * ((w->dim[1] + 63) / 64);
    int64_t want = (2 * m->cores + blocks - 1) / blocks, best = 1;

    for (int64_t parts = want; want > 1 && parts < 4 * want; parts++)
        if (dy->dim[2] % parts == 0 && dy->dim[2] / parts >= 4 &&
            (best == 1 ||
             price_of_parts(m, dy, parts, blocks) < price_of_parts(m, dy, best, blocks)))
            best = parts;
    return best;
}

/* The node again, to be done in tiles of 4 x 4. */
static ts_value *in_fours(const ts_machine_model *m, const ts_node *n, ts_value *const *in)
{
    ts_attr attr[TS_MAX_ATTR + 2];
    int count = ts_attrs_but(n, "parts", attr);
    int64_t parts =
        n->op == TS_OP(conv_weight) ? weight_parts(m, &n->out[0]->type, &n->in[1]->type) : 1;
    ts_value *y;

    attr[count++] = ts_attr_i("winograd", 4);
    if (parts > 1)
        attr[count++] = ts_attr_i("parts", parts);
    y = ts_make2(n->op, in[0], in[1], count, attr);
    if (!y || parts == 1)
        return y;
    y->layout = (ts_layout){.set = true, .order = {0, 3, 4, 2, 1}};
    return ts_sum(y, 1, (const int64_t[]){0}, false);
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

    if (!fits(n, a, w))
        return NULL;
    if (ts_attr_list(n, "padding", &padding)) {
        ph = padding[0];
        pw = padding[1];
    }
    if (ph > 2 || pw > 2)
        return NULL;
    if (channels_last(n->in[0]) && is_large(&p->m, w, dy))
        return in_fours(&p->m, n, in);
    if (!pays(&p->m, lanes_of(n->in[0]), a, w, dy->dim[2] * dy->dim[3],
              tiles(&fine, made->dim[2]) * tiles(&fine, made->dim[3])))
        return NULL;
    if (forward)
        return lane_convolve(p, in[0], in[1], ph, pw, o);
    if (input) {
        ts_value *t = ts_permute(in[1], 1, 0, 2, 3);
        t = ts_make1(TS_OP(flip), t, 1, (ts_attr[]){ts_attr_l("dims", 2, (int64_t[]){2, 3})});
        return lane_convolve(p, in[0], t, 2 - ph, 2 - pw, o);
    }
    return lane_weight_grad(p, in[0], in[1], ph, pw);
}

double ts_winograd_price(const ts_machine_model *m, const ts_options *opt, const ts_node *n,
                         int lanes)
{
    const ts_type *x = &n->in[0]->type, *w = &n->in[1]->type, *y = &n->out[0]->type;
    double o = (double)w->dim[0], sums = ts_node_sums(n);
    bool in_tiles = !opt->no_winograd && fits(n, x, w);
    int64_t places = 1, count = 1;

    if (!lanes && in_tiles && is_large(m, w, y))
        return price_of_four(m, w, y);
    if (!lanes)
        return sums * (double)TS_ROUND_UP(w->dim[0], m->isa.width) / o;
    for (int d = 2; d < y->rank; d++) {
        places *= y->dim[d];
        count *= tiles(&fine, y->dim[d]);
    }
    if (in_tiles && pays(m, lanes, x, w, places, count))
        return transformed_price(m, w, (double)(x->dim[0] * count));
    return sums * half_filled(m, lanes);
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
    TS_TRY(ts_machine_find(opt->isa, &p.m));
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
