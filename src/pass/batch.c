/* batch.c - a batch that does not fill the lanes, in parts that do or that need none.
 *
 *   before, 9 samples                    after
 *     %1 = conv %x, %w  [9,5,26,26]        %2 = slice %x 0..8       %4 = slice %x 8..9
 *     %5 = sum %1       [..]               %3 = conv %2, %w         %6 = conv %4, %w
 *                                          %1 = concat %3, %6   [9,5,26,26]
 *
 * With the batch in the lanes (layout.c) a sample takes less than half the time that it takes by itself, with
 * the rows of its pictures in the lanes. So of 9 samples 8 go together and one alone; and 12 are filled up
 * to 16 by doing the last of them again, which is no other number than it was and gets no gradient. Where a unit takes 16 lanes
 * at once, 40 are filled up to 48.
 * Each part goes on by itself until somebody wants all samples: a sum over them, an output. Wide
 * convolutions do nearly as well alone, with channels in the lanes: of 13 samples 5 are alone, and so are 7
 * of 7.
 *
 * needs   no composite op; comes before the gradients, which follow by themselves
 * keeps   every element; sums over the samples are made of those of the parts
 */
#include "pass/pass.h"

enum {
    LANES = 8, /* samples that fill a vector, two of them or a half          */
    PARTS = 2,
};

/* Samples in the lanes that take the time of one alone: 19 to 20 us against 8.2 for a classifier of 5 and
 * 12 channels, on a unit that takes 16 lanes at once 11.7 against 3.7; with channels last 103 to 121 against 103 for 32
 * and 64. */
static const double alone = 2.5, alone_in_16 = 3.2, alone_wide = 1.1;

/* Samples that fill half of a vector which a unit takes whole: of that classifier 8 take 47 us, 16 59. */
static const double half_filled = 1.6;

typedef struct part {
    int64_t from, to; /* samples */
    int64_t size;     /* with those that fill it up */
} part;

typedef struct batch {
    ts_graph *g;
    ts_value **map; /* whole values, or NULL: only parts are there */
    ts_value *(*parts)[PARTS];
    bool *made; /* in parts */
    int64_t n;
    bool wide; /* one alone has its channels in the lanes */
    part part[PARTS];
    int count;
} batch;

/* --- values --- */

/* Rows `p` of a whole value. */
static ts_value *cut(ts_value *v, const part *p)
{
    ts_type t = v->type;
    ts_value *fill;

    if (p->to - p->from < t.dim[0])
        v = ts_slice(v, 0, p->from, p->to, 1);
    if (!v || p->size == p->to - p->from)
        return v;
    fill = ts_slice(v, 0, p->to - p->from - 1, p->to - p->from, 1);
    t.dim[0] = p->size - (p->to - p->from);
    return ts_concat(2, (ts_value *[]){v, ts_expand_n(fill, t.rank, t.dim)}, 0);
}

static bool samples_first(const batch *b, const ts_value *v)
{
    return v->type.rank && v->type.dim[0] == b->n;
}

static ts_value *part_of(batch *b, const ts_value *v, int i)
{
    ts_value **p = &b->parts[v->id][i];

    if (!*p)
        *p = cut(b->map[v->id], &b->part[i]);
    return *p;
}

static ts_value *whole(batch *b, const ts_value *v)
{
    ts_value *in[PARTS];

    if (b->map[v->id])
        return b->map[v->id];
    for (int i = 0; i < b->count; i++) {
        int64_t size = b->part[i].to - b->part[i].from;
        in[i] = b->parts[v->id][i];
        if (in[i] && in[i]->type.dim[0] > size)
            in[i] = ts_slice(in[i], 0, 0, size, 1);
    }
    b->map[v->id] = b->count == 1 ? in[0] : ts_concat(b->count, in, 0);
    return b->map[v->id];
}

/* --- nodes --- */

static bool has(const ts_node *n, const char *list, int64_t dim)
{
    const int64_t *dims;
    int count = ts_attr_list(n, list, &dims), rank = n->in[0]->type.rank;

    for (int i = 0; i < count; i++)
        if (dims[i] == dim || dims[i] + rank == dim)
            return true;
    return !count;
}

/* Does a view keep the samples first, each by itself? */
static bool view_keeps(const batch *b, const ts_node *n)
{
    const int64_t *dims;

    if (n->op == TS_OP(permute))
        return ts_attr_list(n, "dims", &dims) && dims[0] == 0;
    if (n->op == TS_OP(slice))
        return ts_norm_dim(n, ts_attr_int(n, "dim", 0), n->in[0]->type.rank) > 0;
    if (n->op == TS_OP(concat)) {
        for (int i = 0; i < n->nin; i++)
            if (!samples_first(b, n->in[i]))
                return false;
        return ts_norm_dim(n, ts_attr_int(n, "dim", 0), n->in[0]->type.rank) > 0;
    }
    if (n->op == TS_OP(expand))
        return n->in[0]->type.rank == n->out[0]->type.rank;
    return n->op == TS_OP(reshape);
}

/* Is each sample of n's result made of the same sample of its first input? */
static bool keeps(const batch *b, const ts_node *n)
{
    if (n->nout < 1 || n->nsub || !samples_first(b, n->out[0]))
        return false;
    if (n->op->flags & TS_POINT && !(n->op->flags & TS_RANDOM))
        return true;
    if (!n->nin || !samples_first(b, n->in[0]))
        return false;
    if (n->op == TS_OP(conv) || n->op == TS_OP(conv_input) || n->op == TS_OP(max_pool) ||
        n->op == TS_OP(sum_pool))
        return true;
    if (n->op == TS_OP(matmul)) /* two gradients of a large weight would be two passes over it */
        return b->count == 1 && n->in[0]->type.rank > 1 && n->in[1]->type.rank == 2;
    if (n->op->flags & TS_REDUCE)
        return !has(n, "dims", 0);
    return n->op->flags & TS_VIEW && view_keeps(b, n);
}

/* Has any input parts already? What nobody cut is computed whole. */
static bool in_parts(const batch *b, const ts_node *n)
{
    for (int i = 0; i < n->nin; i++)
        if (b->made[n->in[i]->id])
            return true;
    return false;
}

/* Must input i of n be cut? */
static bool is_cut(const batch *b, const ts_node *n, int i)
{
    if (n->op->flags & TS_POINT || n->op == TS_OP(concat))
        return n->in[i]->type.rank == n->out[0]->type.rank && samples_first(b, n->in[i]);
    return i == 0;
}

static void compute_part(batch *b, const ts_node *n, int i)
{
    ts_value *in[TS_MAX_INPUTS];
    ts_attr attr[TS_MAX_ATTR + 1];
    bool sized = !(n->op->flags & TS_CONV); /* its shape is that of all samples */
    int count = ts_attrs_but(n, sized ? "shape" : "", attr);
    int64_t shape[TS_MAX_RANK];
    ts_node *c;

    for (int k = 0; k < n->nin; k++)
        in[k] = is_cut(b, n, k) ? part_of(b, n->in[k], i) : whole(b, n->in[k]);
    memcpy(shape, n->out[0]->type.dim, sizeof(shape));
    shape[0] = b->part[i].size;
    if (count < n->nattr)
        attr[count++] = ts_attr_l("shape", n->out[0]->type.rank, shape);
    c = ts_node_make(b->g, n->op, n->nin, in, count, attr);
    for (int k = 0; c && k < n->nout; k++) {
        b->parts[n->out[k]->id][i] = c->out[k];
        b->made[n->out[k]->id] = true;
        c->out[k]->checkpoint = n->out[k]->checkpoint;
    }
}

static ts_status copy_node(batch *b, const ts_node *n)
{
    b->g->like = n;
    if (keeps(b, n) && in_parts(b, n)) {
        for (int i = 0; i < b->count; i++)
            compute_part(b, n, i);
        b->g->like = NULL;
        return ts_graph_check(b->g);
    }
    for (int i = 0; i < n->nin; i++)
        whole(b, n->in[i]);
    b->g->like = NULL;
    TS_TRY(ts_graph_check(b->g));
    ts_graph_copy_node(b->g, n, b->map);
    return ts_graph_check(b->g);
}

/* --- where it applies --- */

/* The samples of all convolutions, if they are as many; else 0. */
static int64_t samples(const ts_graph *g, bool *channels)
{
    int64_t n = 0;
    double all = 0, wide = 0;

    for (int i = 0; i < g->nnodes; i++) {
        const ts_node *c = g->nodes[i];
        if (c->op != TS_OP(conv) && c->op != TS_OP(conv_input))
            continue;
        if (n && c->in[0]->type.dim[0] != n)
            return 0;
        n = c->in[0]->type.dim[0];
        all += ts_node_flops(c);
        wide += ts_conv_wide(c) ? ts_node_flops(c) : 0;
    }
    *channels = ts_channels_last(wide, all);
    return ts_mostly_products(g) ? 0 : n;
}

/* Is all of a picture wanted somewhere, as by each batch norm? Its parts would be put together there. */
static bool torn(batch *b, const ts_graph *g)
{
    bool found = false;

    b->count = 2;
    for (int i = 0; i < g->nnodes && !found; i++) {
        const ts_node *n = g->nodes[i];
        bool apart = in_parts(b, n), kept = keeps(b, n);
        for (int k = 0; k < n->nout; k++)
            b->made[n->out[k]->id] = apart && kept;
        found = apart && !kept && n->in[0]->type.rank > 2 && !(n->op->flags & TS_VIEW);
    }
    for (int i = 0; i < g->nnodes; i++)
        for (int k = 0; k < g->nodes[i]->nout; k++)
            b->made[g->nodes[i]->out[k]->id] = false;
    b->count = 0;
    return found;
}

/* What n samples in the lanes take, those of a vector that a unit takes whole as 1: eight of 16 lanes take nearly what
 * 16 do. */
static double in_lanes(const ts_machine_model *m, int64_t n)
{
    bool half = m->unit >= 64 && ts_batch_lanes(m, n) < 16;

    return (double)n * (half ? half_filled : 1);
}

/* Filled up to whole lanes, in that of two ways which takes less. */
static int64_t fill(const ts_machine_model *m, int64_t n)
{
    int64_t few = TS_ROUND_UP(n, LANES), many = TS_ROUND_UP(n, 2 * LANES);

    return in_lanes(m, many) < in_lanes(m, few) ? many : few;
}

/* So many that the rest of the batch is alone beside them. */
static int64_t leave(const ts_machine_model *m, int64_t n, double one)
{
    int64_t many = n / LANES * LANES, few = n / (2 * LANES) * (2 * LANES);

    return few && in_lanes(m, few) + one * (double)(many - few) < in_lanes(m, many) ? few : many;
}

/* How many samples go where: all alone, some of them, or none, filled up; the least time. */
static void choose(batch *b, const ts_machine_model *m, const ts_graph *g)
{
    double one = b->wide ? alone_wide : m->unit >= 64 ? alone_in_16 : alone;
    int64_t most = fill(m, b->n), full = leave(m, b->n, one), rest = b->n - full;
    double filled = in_lanes(m, most), apart = in_lanes(m, full) + one * (double)rest,
           all = one * (double)b->n;

    if (most == b->n || (!b->wide && b->n == 4)) /* which four lanes take */
        return;
    if (b->n % LANES == 0 && torn(b, g)) /* 40 samples with batch norms: 1.1 ms, 1.9 filled up */
        return;
    if (full && rest && apart < TS_MIN(filled, all) && !torn(b, g)) {
        b->part[0] = (part){0, full, full};
        b->part[1] = (part){full, b->n, rest};
        b->count = 2;
    } else if (filled < all) {
        b->part[0] = (part){0, b->n, most};
        b->count = 1;
    }
}

ts_status ts_pass_batch(ts_arena *a, const ts_graph *in, const ts_options *opt,
                        const ts_graph **out)
{
    ts_machine_model m;
    batch b = {0};

    *out = in;
    b.n = samples(in, &b.wide);
    if (opt->executor == TS_EXECUTOR_REFERENCE || ts_pass_for_gpu(opt) || !b.n ||
        ts_pass_skipped(opt, "layout"))
        return TS_OK;
    b.made = TS_NEWS(a, bool, in->nvalues);
    for (int i = 0; i < in->ninputs; i++)
        b.made[in->inputs[i]->id] = samples_first(&b, in->inputs[i]);
    TS_TRY(ts_machine_find(opt->isa, &m));
    choose(&b, &m, in);
    if (!b.count)
        return TS_OK;
    b.g = ts_graph_begin_copy(a, in, &b.map);
    b.parts = (ts_value * (*)[PARTS]) ts_arena_alloc(a, (size_t)in->nvalues * sizeof(*b.parts));
    for (int i = 0; i < in->nnodes; i++)
        TS_TRY(copy_node(&b, in->nodes[i]));
    for (int i = 0; i < in->noutputs; i++)
        whole(&b, in->outputs[i]);
    for (int i = 0; i < in->nupdates; i++)
        whole(&b, in->updates[i].next);
    if (in->loss)
        whole(&b, in->loss);
    TS_TRY(ts_graph_check(b.g));
    ts_graph_finish_copy(b.g, in, b.map);
    *out = b.g;
    return TS_OK;
}
