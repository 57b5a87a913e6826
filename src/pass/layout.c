/* layout.c - how each tensor lies in memory.
 *
 *   before                              after
 *     input %x : f32[16,1,28,28]          %1 = nop %x            @layout 0123/0x16
 *     %2 = conv %x, %w                    %2 = conv %1, %w       @layout 0123/0x16
 *
 * needs   no composite op
 * keeps   values, types; inputs and outputs stay row-major, the host's layout
 * leaves  a layout on the activations of a network of convolutions
 *
 * Three ways to fill vector registers, chosen for the whole network:
 *   batch in the lanes   when the batch is a multiple of 8, unless channels last are quicker: nothing is wasted at 1, 5 or 10
 *       channels, and weights, pooling, norms and softmax need no shuffles. [N,C,H,W] lies as
 *       [N/L][C][H][W][L]. Convolution weights keep PyTorch's layout: they are broadcast.
 *   channels last        otherwise, when most work is in convolutions whose channels are
 *       multiples of 8: [N][H][W][C], and [N][H][W][G][C/G] where a norm cuts them into groups.
 *       Weights lie as [kh][kw][in][out], those that are more than stays in level 1 as
 *       [out/L][kh][in][kw][L] or, trained and with their optimiser states,
 *       [out/L][kh][kw][in][L]; the gradient of the input reads a transposed copy.
 *   four of the batch    otherwise, when it is a multiple of 4.
 * None of them where three quarters of the work are products of matrices: rows suit those.
 *
 * A part of the batch that does not fill the lanes (batch.c) has channels last beside them if its
 * convolutions are wide; their weights lie as for the lanes and are copied.
 *
 * A GPU has channels last where those are multiples of 8, 16 bytes of halves, and rows otherwise.
 */
#include "pass/pass.h"

typedef enum scheme { ROWS, BATCH_LANES, CHANNELS_LAST } scheme;

typedef struct layouts {
    ts_arena *a;
    const ts_graph *in;
    ts_graph *g;
    ts_value **map;
    int *batch;    /* which dim of each value counts samples, -1 for none */
    int *channels; /* how many dims behind it are channels                */
    bool *picture; /* is it what convolutions and pooling take and make?  */
    scheme scheme;
    bool last; /* channels last for what does not fill the lanes */
    int lanes;
    int *group;    /* values that must lie alike, each under its group's first one */
    bool *weight;  /* by group: convolution weights, their gradients and optimiser states */
    bool *linear;  /* by group: the same of linear layers */
    bool *updated; /* by group: weights that a gradient changes */
    bool *plain;   /* by group: weights whose channels lie in rows, not in blocks of a vector */
    ts_machine_model m;
    int width;    /* floats in a vector */
    int64_t many; /* floats of a weight that are more than stays near */
    bool gpu;
} layouts;

/* --- which dim is the batch --- */

static int view_batch(const ts_node *n, int b)
{
    const ts_type *in = &n->in[0]->type, *out = &n->out[0]->type;
    const int64_t *dims;

    if (n->op == TS_OP(permute)) {
        int rank = ts_attr_list(n, "dims", &dims);
        for (int i = 0; i < rank; i++)
            if (dims[i] == b)
                return i;
        return -1;
    }
    if (n->op == TS_OP(reshape)) /* a leading batch that stays as it is */
        return b == 0 && out->rank && out->dim[0] == in->dim[0] ? 0 : -1;
    if (n->op == TS_OP(expand))
        return b + out->rank - in->rank;
    return b;
}

static int reduce_batch(const ts_node *n, int b)
{
    const int64_t *dims;
    int count = ts_attr_list(n, "dims", &dims), rank = n->in[0]->type.rank, before = 0;

    if (ts_attr_int(n, "keepdim", 0))
        return b; /* of size 1 if it was summed, and still in front of the channels */
    for (int i = 0; i < count; i++) {
        int d = (int)(dims[i] < 0 ? dims[i] + rank : dims[i]);
        if (d == b)
            return -1;
        before += d < b;
    }
    if (!count)
        return -1;
    return b - before;
}

static int node_batch(const layouts *l, const ts_node *n)
{
    int b = n->nin ? l->batch[n->in[0]->id] : -1, rank = n->nout ? n->out[0]->type.rank : 0;

    /* What a convolution counts in dim 0 are samples, whatever made them of the inputs' dims: the planes of
     * an event, the windows of a picture. */
    if (n->op->flags & TS_CONV)
        return n->op == TS_OP(conv_weight) ? -1 : 0;
    if (n->op->flags & TS_POINT) {
        for (int i = 0; i < n->nin; i++)
            if (l->batch[n->in[i]->id] >= 0)
                return l->batch[n->in[i]->id] + rank - n->in[i]->type.rank;
        return -1;
    }
    if (n->op->flags & TS_SOURCE || b < 0)
        return n->op == TS_OP(gather) || n->op == TS_OP(scatter_add) ? l->batch[n->in[1]->id] : -1;
    if (n->op->flags & TS_VIEW)
        return view_batch(n, b);
    if (n->op->flags & TS_REDUCE)
        return reduce_batch(n, b);
    if (n->op == TS_OP(matmul))
        return b == n->in[0]->type.rank - 1 ? -1 : b;
    return b == 0 ? 0 : -1;
}

static void find_batch(layouts *l)
{
    for (int i = 0; i < l->in->nvalues; i++)
        l->batch[i] = -1;
    for (int i = 0; i < l->in->ninputs; i++)
        if (l->in->inputs[i]->type.rank)
            l->batch[l->in->inputs[i]->id] = 0;
    for (int i = 0; i < l->in->nnodes; i++)
        for (int k = 0; k < l->in->nodes[i]->nout; k++)
            l->batch[l->in->nodes[i]->out[k]->id] = node_batch(l, l->in->nodes[i]);
}

/* --- which dims are channels --- */

/* [N,C,H,W] -> [N,G,C/G,H,W], as group norm does it */
static bool cuts_channels(const ts_type *in, const ts_type *out)
{
    return in->rank > 2 && out->rank == in->rank + 1 && in->dim[0] == out->dim[0] &&
           in->dim[1] == out->dim[1] * out->dim[2] &&
           !memcmp(in->dim + 2, out->dim + 3, sizeof(*in->dim) * (size_t)(in->rank - 2));
}

/* Channels in two dims lie last together: then the cut is a view, and what a convolution reads through it is
 * a row of channels. With one of them last, a weight's gradient took a hundred times as long. */
static int node_channels(const layouts *l, const ts_node *n)
{
    const ts_type *out = &n->out[0]->type;
    int most = 1;

    if (n->op == TS_OP(reshape))
        return cuts_channels(&n->in[0]->type, out) ? 2 : 1;
    if (!(n->op->flags & (TS_POINT | TS_REDUCE)) && n->op != TS_OP(expand))
        return 1;
    for (int i = 0; i < n->nin; i++)
        if (n->in[i]->type.rank == out->rank)
            most = TS_MAX(most, l->channels[n->in[i]->id]);
    return most;
}

static void find_channels(layouts *l)
{
    for (int i = 0; i < l->in->nvalues; i++)
        l->channels[i] = 1;
    for (int i = 0; i < l->in->nnodes; i++)
        for (int k = 0; k < l->in->nodes[i]->nout; k++)
            l->channels[l->in->nodes[i]->out[k]->id] = node_channels(l, l->in->nodes[i]);
}

/* --- what is a picture --- */

static bool any_picture(const layouts *l, const ts_node *n)
{
    for (int i = 0; i < n->nin; i++)
        if (l->picture[n->in[i]->id])
            return true;
    for (int i = 0; i < n->nout; i++)
        if (l->picture[n->out[i]->id])
            return true;
    return false;
}

/* Is v of that rank, and was it no picture so far? */
static bool mark(layouts *l, const ts_value *v, int rank)
{
    if (l->picture[v->id] || v->type.rank != rank || rank < 3)
        return false;
    return l->picture[v->id] = true;
}

/* Do n's operands and results lie alike? */
static bool keeps_picture(const ts_node *n)
{
    if (n->op == TS_OP(reshape))
        return cuts_channels(&n->in[0]->type, &n->out[0]->type) ||
               cuts_channels(&n->out[0]->type, &n->in[0]->type);
    return n->op->flags & (TS_POINT | TS_REDUCE) ||
           (n->op->flags & TS_VIEW && n->op != TS_OP(permute));
}

/* Marks what n makes pictures of, backward too: false when that was all known. */
static bool mark_node(layouts *l, const ts_node *n)
{
    bool pool = n->op->flags & TS_WINDOW && !(n->op->flags & (TS_ROWS | TS_STEPS)), any = false;
    bool seed = pool || n->op->flags & TS_CONV, cut = n->op == TS_OP(reshape);
    int pictures = n->op == TS_OP(conv) || n->op == TS_OP(conv_input) ? 1 : n->nin;

    if (!seed && !(keeps_picture(n) && any_picture(l, n)))
        return false;
    for (int i = 0; i < pictures; i++)
        any = mark(l, n->in[i], cut ? n->in[i]->type.rank : n->out[0]->type.rank) || any;
    for (int i = 0; i < n->nout && n->op != TS_OP(conv_weight); i++)
        any = mark(l, n->out[i], n->out[i]->type.rank) || any;
    return any;
}

/* Pictures are what convolutions and pooling take and make, and what is computed of such element by element. A net of
 * both has rows of tokens besides, [N,T,C], which are products' and lie as they are. On a GPU all is alike. */
static void find_pictures(layouts *l)
{
    const ts_graph *g = l->in;
    bool more = true;

    for (int i = 0; i < g->nvalues; i++)
        l->picture[i] = l->gpu;
    while (more && !l->gpu) {
        more = false;
        for (int i = 0; i < g->nnodes; i++)
            more = mark_node(l, g->nodes[i]) || more;
        for (int i = g->nnodes - 1; i >= 0; i--)
            more = mark_node(l, g->nodes[i]) || more;
    }
}

/* --- the choice --- */

/* Vectors that a last one completes are mostly full from 16 on, and below at multiples of 8. */
bool ts_fills_lanes(int64_t channels)
{
    return channels >= 16 || channels % 8 == 0;
}

bool ts_conv_wide(const ts_node *n)
{
    const ts_type *w = &n->in[1]->type;

    return ts_fills_lanes(w->dim[0]) && ts_fills_lanes(w->dim[1]) && n->in[0]->type.dtype == TS_F32;
}

/* The same for a GPU, in loads of 16 bytes of halves. */
static bool in_vectors(const ts_node *n)
{
    const ts_type *w = &n->in[1]->type;

    return w->dim[0] % 8 == 0 && w->dim[1] % 8 == 0 && n->in[0]->type.dtype == TS_F32;
}

bool ts_channels_last(double wide, double all)
{
    return all > 0 && wide >= 0.8 * all; /* the first one has the image's 1 or 3 channels */
}

bool ts_mostly_products(const ts_graph *g)
{
    double products = 0, others = 0;

    for (int i = 0; i < g->nnodes; i++) {
        const ts_node *n = g->nodes[i];
        if (n->op->flags & TS_CONTRACT)
            *(n->op == TS_OP(matmul) ? &products : &others) += ts_node_flops(n);
    }
    return products > 3 * others;
}

int ts_batch_lanes(const ts_machine_model *m, int64_t samples)
{
    return samples % 16 == 0 && m->isa.width >= 16 ? 16 : 8;
}

/* With the samples in the lanes an element of a weight's gradient is the sum of a vector's lanes, and updated by
 * itself: 30 to 41 cycles (256 and 512 channels, 3x3, of Zen 4), which is nothing beside the sums of a large picture and
 * all there is of a small one (32 samples of 1 x 1, 512 channels: 27 ms of a core; channels last 1.4). */
static double price_of_elements(const layouts *l, double elements)
{
    enum { ELEMENT = 30 };

    return ELEMENT * elements * l->width * ts_machine_rate(&l->m, l->width);
}

static bool is_forward(const ts_node *n)
{
    return n->op == TS_OP(conv) || (n->op == TS_OP(conv_input) && !n->backward);
}

/* Are channels last quicker than the samples in the lanes? A unit that takes 64 bytes waits for pictures in the lanes, of
 * which level 1 holds few channels: there 16 to 256 of them take 0.9 to 1.36 times as long; on one of 32 bytes, 0.7 to
 * 1.0 times. Training does the sums three times. */
static bool is_quicker(const layouts *l, const ts_options *opt)
{
    double last = 0, lanes = 0, elements = 0, gain = l->m.unit >= 64 ? 1.1 : 0.9;

    for (int i = 0; i < l->in->nnodes; i++) {
        const ts_node *n = l->in->nodes[i];
        if (n->op == TS_OP(conv_weight))
            elements += (double)ts_type_count(&n->out[0]->type);
        if (!is_forward(n))
            continue;
        last += ts_winograd_price(&l->m, opt, n, 0);
        lanes += ts_winograd_price(&l->m, opt, n, l->lanes);
    }
    return (elements > 0 ? 3 : 1) * (last - gain * lanes) <= price_of_elements(l, elements);
}

/* Of the parts of a batch (batch.c) the larger one decides; the other lies in rows if it does not fill
 * the lanes. */
static ts_status choose(layouts *l, const ts_options *opt)
{
    int64_t n = 0;
    double all = 0, wide = 0; /* flops */
    bool products = ts_mostly_products(l->in);

    TS_TRY(ts_machine_find(opt->isa, &l->m));
    l->width = l->m.isa.width;
    l->many = l->m.level1 / 4;
    for (int i = 0; i < l->in->nnodes; i++) {
        const ts_node *c = l->in->nodes[i];
        if (!is_forward(c))
            continue;
        n = TS_MAX(n, c->in[0]->type.dim[0]);
        all += ts_node_flops(c);
        wide += (ts_pass_for_gpu(opt) ? in_vectors(c) : ts_conv_wide(c)) ? ts_node_flops(c) : 0;
    }
    l->gpu = ts_pass_for_gpu(opt);
    if (products && l->gpu)
        return TS_OK;
    l->last = ts_channels_last(wide, all);
    if (products || l->gpu) /* whose threads are the lanes: 16 bytes of channels are one load */
        l->scheme = l->last ? CHANNELS_LAST : ROWS;
    else if (n && n % 8 == 0) {
        l->lanes = ts_batch_lanes(&l->m, n);
        l->scheme = l->last && is_quicker(l, opt) ? CHANNELS_LAST : BATCH_LANES;
    } else if (l->last)
        l->scheme = CHANNELS_LAST;
    else if (n && n % 4 == 0) {
        l->scheme = BATCH_LANES;
        l->lanes = 4;
    }
    return TS_OK;
}

ts_status ts_layout_in_lanes(ts_arena *a, const ts_graph *g, const ts_options *opt, bool *yes)
{
    layouts l = {.a = a, .in = g};

    TS_TRY(choose(&l, opt));
    *yes = l.scheme == BATCH_LANES;
    return TS_OK;
}

static ts_layout plain(int rank)
{
    ts_layout x = {.set = true};

    for (int i = 0; i < rank; i++)
        x.order[i] = (int8_t)i;
    return x;
}

static bool wide_type(ts_dtype t)
{
    return t == TS_F64 || t == TS_I64;
}

/* The layout of an activation, or not set. */
static ts_layout activation(const layouts *l, const ts_value *v)
{
    ts_layout x = plain(v->type.rank);
    int rank = v->type.rank;

    int b = l->batch[v->id];

    if (b < 0 || wide_type(v->type.dtype))
        return (ts_layout){0};
    /* behind dim 0 lie the parts of a product, pass/split.c */
    if (l->scheme == BATCH_LANES && b < 2 && rank >= 2 + b && v->type.dim[b] % l->lanes == 0) {
        x.lanes = (int16_t)l->lanes;
        x.lane_dim = (int8_t)b;
        return x;
    }
    if (b > 0)
        return (ts_layout){0};
    if (l->last && rank >= 3 && l->picture[v->id]) {
        int channels = TS_MIN(l->channels[v->id], rank - 1);
        for (int i = 1; i < rank; i++)
            x.order[i] = (int8_t)(i < rank - channels ? i + channels : i - rank + channels + 1);
        return x;
    }
    return (ts_layout){0};
}

static bool channels_last(const layouts *l, const ts_value *v)
{
    ts_layout x = activation(l, v);

    return x.set && !x.lanes;
}

/* --- weights, with channels last --- */

static int group_of(layouts *l, int v)
{
    while (l->group[v] != v)
        v = l->group[v] = l->group[l->group[v]];
    return v;
}

static const ts_value *unturned(const ts_value *v)
{
    return v->kind == TS_VALUE_NODE && v->node->op == TS_OP(permute) ? v->node->in[0] : v;
}

/* Should the weight of n lie in blocks? They are for a core's vectors: a GPU's threads share rows. */
static bool wants_blocks(const layouts *l, const ts_node *n)
{
    const ts_type *w = n->op == TS_OP(conv_weight) ? &n->out[0]->type : &n->in[1]->type;
    const ts_type *y = n->op == TS_OP(conv)         ? &n->out[0]->type
                       : n->op == TS_OP(conv_input) ? &n->in[0]->type
                                                    : &n->in[1]->type;

    return !l->gpu && w->dim[0] % l->width == 0 && w->dim[1] % l->width == 0 && w->rank == 4 &&
           w->dtype == TS_F32 && ts_type_count(w) >= l->many && !ts_winograd_fits(n, y);
}

/* A weight, its gradient and its optimiser states meet in pointwise ops and updates. */
static void find_weights(layouts *l)
{
    const ts_graph *g = l->in;

    for (int i = 0; i < g->nvalues; i++)
        l->group[i] = i;
    for (int i = 0; i < g->nnodes; i++) {
        const ts_node *n = g->nodes[i];
        for (int k = 0; k < n->nin && n->op->flags & TS_POINT; k++)
            if (ts_type_same_shape(&n->in[k]->type, &n->out[0]->type))
                l->group[group_of(l, n->in[k]->id)] = group_of(l, n->out[0]->id);
    }
    for (int i = 0; i < g->nupdates; i++)
        l->group[group_of(l, g->updates[i].state->id)] = group_of(l, g->updates[i].next->id);
    for (int i = 0; i < g->nstates; i++) /* shares that meet are of states that lie alike */
        for (int k = 0; k < i && g->states[i].use == TS_USE_SHARE; k++)
            if (g->states[k].use == TS_USE_SHARE &&
                group_of(l, g->states[i].value->id) == group_of(l, g->states[k].value->id))
                l->group[group_of(l, g->states[i].of->id)] = group_of(l, g->states[k].of->id);
    for (int i = 0; i < g->nnodes; i++) {
        const ts_node *n = g->nodes[i];
        if (n->op == TS_OP(conv) || n->op == TS_OP(conv_input))
            l->weight[group_of(l, n->in[1]->id)] = true;
        if (n->op == TS_OP(conv_weight) && ts_attr_int(n, "parts", 1) == 1)
            l->weight[group_of(l, n->out[0]->id)] = true;
        if (n->op == TS_OP(conv_weight))
            l->updated[group_of(l, n->out[0]->id)] = true;
        if (n->op->flags & TS_CONV && !wants_blocks(l, n))
            l->plain[group_of(l, n->op == TS_OP(conv_weight) ? n->out[0]->id : n->in[1]->id)] =
                true;
        if (n->op == TS_OP(matmul) && unturned(n->in[1])->kind == TS_VALUE_STATE)
            l->linear[group_of(l, unturned(n->in[1])->id)] = true;
    }
}

/* [o, c, kh, kw] as [kh][kw][c][o], or, for the gradient of the input, [kh][kw][o][c]. What is last fills vectors: where
 * one of the two has too few channels for that, as the output of a net that makes pictures, it is the other (32 to 3
 * channels, 3x3: the sums went one by one, 1.9 GFLOP/s a core). */
static ts_layout weight_layout(const layouts *l, const ts_type *w, bool transposed)
{
    ts_layout x = {.set = true};
    int last = transposed;

    if (!l->gpu && !ts_fills_lanes(w->dim[last]) && ts_fills_lanes(w->dim[!last]))
        last = !last;
    for (int i = 0; i < w->rank - 2; i++)
        x.order[i] = (int8_t)(i + 2);
    x.order[w->rank - 2] = (int8_t)!last;
    x.order[w->rank - 1] = (int8_t)last;
    return x;
}

/* The same in blocks of a vector of o, [o/16][kh][c][kw][16], or of c: a piece of a convolution, which has one of
 * them, reads the whole of it in one go, in rows a line of each row, two to a page. Updates suit [o/16][kh][kw][c][16]:
 * weights of 512 x 512 take 2.1 ms instead of 2.5, and convolutions with a stride 0.63 instead of 0.75. */
static ts_layout block_layout(const layouts *l, bool transposed, bool updated)
{
    int8_t c = !transposed;

    return (ts_layout){.set = true,
                       .order = {transposed, 2, updated ? 3 : c, updated ? c : 3},
                       .lanes = (int16_t)l->width,
                       .lane_dim = transposed};
}

static ts_layout weight_laid(layouts *l, const ts_value *v, bool transposed)
{
    return l->plain[group_of(l, v->id)]
               ? weight_layout(l, &v->type, transposed)
               : block_layout(l, transposed, l->updated[group_of(l, v->id)]);
}

/* The rows of a linear layer's weight begin at a vector each: loads and stores do not straddle
 * cache lines, and threads that update neighbouring columns share none. */
static ts_layout row_layout(const layouts *l)
{
    ts_layout x = plain(2);

    x.lane_dim = 1;
    x.lanes = (int16_t)l->width;
    return x;
}

/* The gradient of a weight, of a part of the batch that has channels last. */
static bool of_a_part(const layouts *l, const ts_value *v)
{
    return l->scheme == BATCH_LANES && v->kind == TS_VALUE_NODE &&
           v->node->op == TS_OP(conv_weight) && channels_last(l, v->node->in[0]) &&
           ts_attr_int(v->node, "parts", 1) == 1;
}

/* Parts of a weight's gradient: each like the weight. */
static ts_layout parts_layout(const layouts *l, const ts_value *v)
{
    ts_type one = v->type;
    ts_layout x;

    one.rank--;
    memmove(one.dim, one.dim + 1, sizeof(*one.dim) * (size_t)one.rank);
    x = weight_layout(l, &one, false);
    for (int i = one.rank; i > 0; i--)
        x.order[i] = (int8_t)(x.order[i - 1] + 1);
    x.order[0] = 0;
    return x;
}

static bool in_parts(const layouts *l, const ts_value *v)
{
    return l->scheme == CHANNELS_LAST && v->kind == TS_VALUE_NODE &&
           v->node->op == TS_OP(conv_weight) && ts_attr_int(v->node, "parts", 1) > 1 &&
           (l->gpu || !ts_fills_lanes(v->type.dim[1]));
}

static ts_layout layout_of(layouts *l, const ts_value *v)
{
    if (of_a_part(l, v))
        return weight_layout(l, &v->type, false);
    if (in_parts(l, v))
        return parts_layout(l, v);
    if (l->scheme == BATCH_LANES && l->linear[group_of(l, v->id)] && v->type.rank == 2 &&
        v->type.dtype == TS_F32 && v->type.dim[1] % l->width && v->type.dim[1] > 4 * l->width)
        return row_layout(l);
    if (l->scheme == CHANNELS_LAST && l->weight[group_of(l, v->id)] && v->type.rank > 2)
        return weight_laid(l, v, false);
    return activation(l, v);
}

/* --- rewriting --- */

static ts_value *relaid(layouts *l, ts_value *v, ts_layout to, const ts_node *like)
{
    ts_value *y;

    l->g->like = like;
    y = ts_point1("nop", v);
    l->g->like = NULL;
    if (y)
        y->layout = to;
    return y;
}

/* A copy of the batch's features side by side, for a product that sums over the batch and has them
 * in its lanes. */
static ts_value *rows_for_product(layouts *l, const ts_node *n, ts_value *v)
{
    int b = l->batch[n->in[1]->id], rank = n->in[1]->type.rank;

    if (n->op != TS_OP(matmul) || b != rank - 2 || l->scheme != BATCH_LANES ||
        n->in[1]->kind != TS_VALUE_NODE)
        return v;
    return relaid(l, v, (ts_layout){0}, n);
}

/* Does n make features of a picture with channels last? They lie otherwise than those of a linear layer's
 * weight, and a product of the two has no vectors: so the picture is turned before. */
static bool flattens(const layouts *l, const ts_node *n)
{
    const ts_type *x = n->nin ? &n->in[0]->type : NULL;

    return n->op == TS_OP(reshape) && channels_last(l, n->in[0]) && x->rank > 2 && x->dim[1] > 1 &&
           ts_type_count(x) > x->dim[0] * x->dim[1] && n->out[0]->type.rank == 2 &&
           n->out[0]->type.dim[0] == x->dim[0];
}

/* The gradient of a weight in blocks sums over all places of a picture. With channels last those are a line each, and
 * share few sets of the first cache: with copies, of x channel by channel and of dy in blocks as the weight is, they lie
 * side by side. A copy's element takes half a cycle, as 16 multiply-adds do, and may cost a thirtieth of the sums
 * (kernels of 512 channels, 4 x 4 x 4 places, two threads of Zen 5: 1.64 -> 1.03 core ms; 256 of 8 x 8: 0.50 -> 0.26). */
static bool wants_copies(layouts *l, const ts_node *n)
{
    enum { COPY = 15, MEETINGS = 40 };
    const ts_type *w;
    double elements;

    if (n->op != TS_OP(conv_weight) || !wants_blocks(l, n) ||
        l->plain[group_of(l, n->out[0]->id)] || !channels_last(l, n->in[0]) ||
        ts_attr_int(n, "parts", 1) != 1)
        return false;
    w = &n->out[0]->type;
    elements = (double)(ts_type_count(&n->in[0]->type) + ts_type_count(&n->in[1]->type));
    return w->dim[2] * w->dim[3] > 1 &&
           ts_price_sums(&l->m, ts_node_sums(n)) >= COPY * elements + MEETINGS * l->m.meet;
}

static void copy_operands(layouts *l, const ts_node *n, ts_value **in)
{
    ts_layout channels = {.set = true, .order = {1, 0, 2, 3}}, blocks = channels;

    blocks.lanes = (int16_t)l->width;
    blocks.lane_dim = 1;
    in[0] = relaid(l, in[0], channels, n);
    in[1] = relaid(l, in[1], blocks, n);
}

/* Pictures that came of something without samples, as words of an embedding do, lie in rows: turned into the lanes before
 * a convolution meets them there (32 samples of 60 words, 100 channels: a weight's gradient 30 -> 1.4 ms of a core). */
static void turn_pictures(layouts *l, const ts_node *n, ts_value **in)
{
    ts_layout x = plain(n->in[0]->type.rank);

    x.lanes = (int16_t)l->lanes;
    for (int i = 0; i < (n->op == TS_OP(conv_weight) ? 2 : 1); i++)
        if (!in[i]->layout.set && in[i]->type.dim[0] % l->lanes == 0 && in[i]->type.dtype == TS_F32)
            in[i] = relaid(l, in[i], x, n);
}

static ts_status copy_node(layouts *l, const ts_node *n, ts_value **rows)
{
    ts_value **in = TS_NEWS(l->a, ts_value *, n->nin);
    ts_node *c;

    for (int i = 0; i < n->nin; i++)
        in[i] = l->map[n->in[i]->id];
    if (n->op == TS_OP(matmul)) {
        ts_value **made = &rows[n->in[1]->id];
        if (!*made)
            *made = rows_for_product(l, n, in[1]);
        in[1] = *made;
    }
    if (n->op->flags & TS_CONV && l->scheme == BATCH_LANES)
        turn_pictures(l, n, in);
    if (flattens(l, n))
        in[0] = relaid(l, in[0], (ts_layout){0}, n);
    if (n->op == TS_OP(conv_input) && channels_last(l, n->in[0]) && !l->gpu)
        in[1] = relaid(l, in[1], weight_laid(l, n->in[1], true), n);
    if (wants_copies(l, n))
        copy_operands(l, n, in);
    if (n->op == TS_OP(conv) && l->scheme == BATCH_LANES && channels_last(l, n->in[0]))
        in[1] = relaid(l, in[1], weight_layout(l, &in[1]->type, false), n);
    for (int i = 0; i < n->nin && n->op->flags & (TS_HOST | TS_STEPS); i++)
        if (in[i]->layout.set)
            in[i] = relaid(l, in[i], (ts_layout){0}, n);
    c = ts_node_clone(l->g, n, in);
    for (int i = 0; i < n->nout; i++) {
        ts_layout x = layout_of(l, n->out[i]);
        l->map[n->out[i]->id] = c->out[i];
        if (n->op == TS_OP(slice) && n->in[0]->kind == TS_VALUE_INPUT && x.set) /* batch.c */
            l->map[n->out[i]->id] = relaid(l, c->out[i], x, n);
        else if (!(n->op->flags & (TS_HOST | TS_STEPS)))
            c->out[i]->layout = x;
        else if (x.set)
            l->map[n->out[i]->id] = relaid(l, c->out[i], x, n);
    }
    return ts_graph_check(l->g);
}

ts_status ts_pass_layout(ts_arena *a, const ts_graph *in, const ts_options *opt,
                         const ts_graph **out)
{
    layouts l = {.a = a,
                 .in = in,
                 .batch = TS_NEWS(a, int, in->nvalues),
                 .channels = TS_NEWS(a, int, in->nvalues),
                 .picture = TS_NEWS(a, bool, in->nvalues),
                 .group = TS_NEWS(a, int, in->nvalues),
                 .weight = TS_NEWS(a, bool, in->nvalues),
                 .linear = TS_NEWS(a, bool, in->nvalues),
                 .updated = TS_NEWS(a, bool, in->nvalues),
                 .plain = TS_NEWS(a, bool, in->nvalues)};
    ts_value **rows = TS_NEWS(a, ts_value *, in->nvalues);
    const ts_node *first = in->nnodes ? in->nodes[0] : NULL;

    *out = in;
    find_batch(&l);
    find_channels(&l);
    TS_TRY(choose(&l, opt));
    if (l.scheme == ROWS || !first || opt->executor == TS_EXECUTOR_REFERENCE)
        return TS_OK;
    find_pictures(&l);
    find_weights(&l);
    l.g = ts_graph_begin_copy(a, in, &l.map);
    for (int i = 0; i < in->nstates; i++)
        l.map[in->states[i].value->id]->layout = layout_of(&l, in->states[i].value);
    for (int i = 0; i < in->ninputs; i++) {
        ts_layout x = activation(&l, in->inputs[i]);
        if (x.set && (x.lanes || l.scheme == CHANNELS_LAST)) /* else its parts are laid */
            l.map[in->inputs[i]->id] = relaid(&l, l.map[in->inputs[i]->id], x, first);
    }
    for (int i = 0; i < in->nnodes; i++)
        TS_TRY(copy_node(&l, in->nodes[i], rows));
    for (int i = 0; i < in->noutputs; i++) {
        ts_value **v = &l.map[in->outputs[i]->id];
        if ((*v)->layout.set)
            *v = relaid(&l, *v, (ts_layout){0}, (*v)->node);
    }
    ts_graph_finish_copy(l.g, in, l.map);
    *out = l.g;
    return TS_OK;
}
