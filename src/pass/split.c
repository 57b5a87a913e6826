/* split.c - a large sum with few results in two steps, so that threads can share it.
 *
 *   before                                        after
 *     %2 = sum %1 dims=[0,2,3]   f32[32]            %3 = sum %1 dims=[3] keepdim   f32[2,32,160,1]
 *       of [2,32,160,256]                           %2 = sum %3 dims=[0,2,3]       f32[32]
 *
 * The first step has a result for every row, the second adds the rows. The cut depends on the shape
 * only, so the bits do not depend on the threads; and each rounds less than one long chain would.
 *
 *     %3 = matmul %1, %2   f32[16,100]              %4 = matmul of parts   f32[4,16,100]
 *       from [16,972] and [972,100]                 %3 = sum %4 dims=[0]   f32[16,100]
 *
 * A product of few rows with a large weight matrix moves more weights than results. The update of
 * the weights is cut among the threads by their last dim (render/contract.c), a linear layer's
 * input features, and so is the product that has that dim in its result; with its sum in parts the
 * product that sums over it is too, and each core keeps its share of the weights in its own cache.
 *
 *     %3 = conv_weight %1, %2   f32[5,1,3,3]        %4 = conv_weight of parts   f32[2,5,1,3,3]
 *       from [16,1,28,28], [16,5,26,26]             %3 = sum %4 dims=[0]        f32[5,1,3,3]
 *
 * Pictures of few channels are cut among the threads by rows, their channels being done together;
 * with the sum in parts of the rows, the gradient of the weights reads what its core wrote.
 *
 * A GPU has more threads than any of this: its sums are cut along any dims into as many parts as keep
 * it busy, and so are products and weights' gradients with too few results.
 *
 * needs   no composite op
 */
#include "machine/machine.h"
#include "pass/pass.h"

/* Results of a sum that are too few to share; rows of a picture that are enough to. Of one core's time
 * neither takes any (FEW of 128 to 2048, ROWS of 2 to 32: W1 to W4 within the noise, 5 %); they are
 * for two. */
enum { FEW = 512, ROWS = 8 };

/* So many samples for each core are shared evenly without their rows. */
enum { SAMPLES = 4 };

/* The results of a sum that keep a GPU busy, those whose terms lie side by side (a whole group adds up one, gpu/sum.c),
 * and a sum that is worth another kernel. */
enum { RESULTS = 8192, ROW_RESULTS = 512, LONG_SUM = 128 << 10 };

/* The fewest rows of a result that a GPU computes by tiles. */
enum { SIDE = 8 };

/* A sum must be worth a meeting of the threads; for each result there must be enough to add up that
 * the second step is little beside the first. */
static bool splits(const ts_machine_model *m, const ts_node *n)
{
    double all, made;

    if (!(n->op->flags & TS_REDUCE) || n->op->flags & TS_NODIFF ||
        !ts_dtype_is_float(n->out[0]->type.dtype))
        return false;
    all = (double)ts_type_count(&n->in[0]->type);
    made = (double)ts_type_count(&n->out[0]->type);
    return ts_price_sums(m, all) >= m->meet && made <= FEW && all >= 32 * made;
}

/* Which dims are summed, and how many of them are more than one long. */
static int find_summed(const ts_node *n, bool *summed)
{
    const ts_type *t = &n->in[0]->type;
    const int64_t *dims;
    int count = ts_attr_list(n, "dims", &dims), total = 0;

    for (int d = 0; d < t->rank; d++) {
        summed[d] = !count;
        for (int i = 0; i < count; i++)
            summed[d] = summed[d] || (dims[i] < 0 ? dims[i] + t->rank : dims[i]) == d;
        total += summed[d] && t->dim[d] > 1;
    }
    return total;
}

/* The rows to leave for the second step: the first summed dim behind the batch and the channels,
 * else any that is long enough; -1 when only one dim is summed. */
static int row_dim(const ts_node *n, const bool *summed)
{
    const ts_type *t = &n->in[0]->type;
    int best = -1;

    for (int d = t->rank - 1; d >= 0; d--)
        if (summed[d] && t->dim[d] >= ROWS && (best < 0 || d >= 2))
            best = d;
    return best;
}

/* Which summed dims wait for the second step: the rows, and the samples before them, which are what the threads share of
 * everything else: a core then adds up what it wrote. The rows wait with few samples only, and with those that are in
 * the lanes of vectors the samples do not. Short dims between the channels and the rows, those of a group that a norm cut
 * the channels into, wait too: channels that lie side by side are then added up as vectors (4 in a group: 8 times as fast). */
static void find_left(const ts_machine_model *m, const ts_node *n, bool in_lanes,
                      const bool *summed, int row, bool *left)
{
    const ts_type *t = &n->in[0]->type;
    bool samples = !in_lanes && row > 0 && summed[0] && t->dim[0] > 1, more = false;

    for (int d = row + 1; d < t->rank; d++)
        more = more || summed[d];
    for (int d = 0; d < t->rank; d++)
        left[d] = summed[d] && more && d >= 2 && d < row;
    left[0] = left[0] || samples;
    left[row] = !samples || (more && t->dim[0] < SAMPLES * m->cores);
}

static ts_value *split_sum(const ts_node *n, ts_value *x, const bool *summed, const bool *left)
{
    int64_t first[TS_MAX_RANK];
    int count = 0;

    for (int d = 0; d < n->in[0]->type.rank; d++)
        if (summed[d] && !left[d])
            first[count++] = d;
    if (!count)
        return NULL;
    ts_attr attr[] = {ts_attr_l("dims", count, first), ts_attr_i("keepdim", 1)};
    return ts_make1(n->op, ts_make1(n->op, x, 2, attr), n->nattr, n->attr);
}

/* NULL: it is too small, or of one dim. */
static ts_value *split_reduce(const ts_machine_model *m, const ts_node *n, ts_value *x,
                              bool in_lanes)
{
    bool summed[TS_MAX_RANK], left[TS_MAX_RANK];
    int row;

    if (!splits(m, n) || find_summed(n, summed) < 2)
        return NULL;
    row = row_dim(n, summed);
    if (row < 0)
        return NULL;
    find_left(m, n, in_lanes, summed, row, left);
    return split_sum(n, x, summed, left);
}

/* Does v lie the other way round in memory, its first dim last? */
static bool turned(const ts_value *v)
{
    return v->kind == TS_VALUE_NODE && v->node->op == TS_OP(permute);
}

/* In so many parts a product is summed: two for each core, so that it is shared evenly. */
static int64_t product_parts(const ts_machine_model *m)
{
    return TS_MIN(2 * m->cores, 16);
}

/* The partial products are written and read once; that must be little beside reading the weights, and the
 * weights must be more than passes through a core's first cache. */
static bool splits_product(const ts_machine_model *m, const ts_node *n)
{
    const ts_type *x, *y;

    if (n->op != TS_OP(matmul) || n->in[0]->type.rank != 2 || n->in[1]->type.rank != 2 ||
        !turned(n->in[1]))
        return false;
    x = &n->in[0]->type;
    y = &n->out[0]->type;
    return y->dtype == TS_F32 && 4 * x->dim[1] * y->dim[1] >= 2 * m->level1 &&
           2 * product_parts(m) * x->dim[0] <= x->dim[1];
}

/* What does not fill the parts is a product of its own, a small one. */
static ts_value *split_product(ts_value *x, ts_value *y, int64_t parts)
{
    int64_t m = x->type.dim[0], all = x->type.dim[1], k = all / parts, n = y->type.dim[1];
    ts_value *left = x, *right = y, *sum;

    if (k * parts < all) {
        left = ts_slice(x, 1, 0, k * parts, 1);
        right = ts_slice(y, 0, 0, k * parts, 1);
    }
    left = ts_permute(ts_reshape(left, m, parts, k), 1, 0, 2);
    sum = ts_sum(ts_matmul(left, ts_reshape(right, parts, k, n)), 1, (const int64_t[]){0}, false);
    if (k * parts == all)
        return sum;
    return ts_add(sum,
                  ts_matmul(ts_slice(x, 1, k * parts, all, 1), ts_slice(y, 0, k * parts, all, 1)));
}

/* In how many parts to sum the rows of a picture: the smallest number above 1 that divides them, if
 * the channels are too few for each thread to have its own; else 1. */
static int64_t row_parts(const ts_machine_model *m, const ts_node *n)
{
    const ts_type *dy;
    int64_t few = 4 * m->cores;

    if (n->op != TS_OP(conv_weight) || n->out[0]->type.dtype != TS_F32 ||
        ts_attr_int(n, "parts", 1) > 1 || ts_price_node(m, n) < 8 * m->meet)
        return 1;
    dy = &n->in[1]->type;
    for (int64_t parts = 2; parts < few && dy->dim[1] < few && dy->rank > 3; parts++)
        if (dy->dim[2] % parts == 0 && dy->dim[2] >= ROWS)
            return parts;
    return 1;
}

static ts_value *split_rows(const ts_node *n, ts_value *x, ts_value *dy, int64_t parts)
{
    ts_attr attr[TS_MAX_ATTR + 1];
    int count = ts_attrs_but(n, "parts", attr);

    attr[count++] = ts_attr_i("parts", parts);
    return ts_sum(ts_make2(n->op, x, dy, count, attr), 1, (const int64_t[]){0}, false);
}

/* --- for a GPU --- */

/* The summed dims of x, and how much of each is left for the second step: so many partial results
 * that all threads have one, the outer dims first. True if that is worth it. */
static bool sum_parts(const ts_node *n, bool *summed, int64_t *parts)
{
    const ts_type *t;
    int64_t all, made, need, results;
    bool any = false;

    if (!(n->op->flags & TS_REDUCE) || n->op->flags & TS_NODIFF ||
        !ts_dtype_is_float(n->out[0]->type.dtype))
        return false;
    t = &n->in[0]->type;
    all = ts_type_count(t);
    made = TS_MAX(1, ts_type_count(&n->out[0]->type));
    (void)find_summed(n, summed);
    /* pictures may yet be laid out with their channels last */
    results = t->rank > 0 && t->rank < 4 && summed[t->rank - 1] ? ROW_RESULTS : RESULTS;
    if (all < LONG_SUM || results / made < 2 || all / made < 8 * ROWS)
        return false;
    need = TS_MIN(results / made, all / made / ROWS);
    for (int d = 0; d < t->rank; d++) {
        parts[d] = summed[d] && t->dim[d] <= need ? t->dim[d] : 1;
        while (summed[d] && t->dim[d] > need && 2 * parts[d] <= need &&
               t->dim[d] % (2 * parts[d]) == 0)
            parts[d] *= 2;
        need /= parts[d];
        any = any || parts[d] > 1;
    }
    return any;
}

/* [64,32,16,16] summed over all but channels, 64 and 2 parts: as [64,1,32,2,8,16] over 1, 4 and 5,
 * and then the rest. */
static ts_value *split_sum_for_gpu(const ts_node *n, ts_value *x, const bool *summed,
                                   const int64_t *parts)
{
    const ts_type *t = &n->in[0]->type;
    int64_t shape[TS_MAX_RANK], first[TS_MAX_RANK], second[TS_MAX_RANK], one = 1;
    int rank = 0, count = 0, left = 0, at = 0;
    ts_value *y;

    for (int d = 0; d < t->rank; d++) {
        if (summed[d] && parts[d] > 1) {
            second[left++] = at++;
            shape[rank++] = parts[d];
        }
        if (summed[d] && parts[d] == t->dim[d])
            continue;
        if (summed[d])
            first[count++] = rank;
        at += !summed[d];
        shape[rank++] = t->dim[d] / (summed[d] ? parts[d] : one);
    }
    if (!count || rank > TS_MAX_RANK)
        return NULL;
    y = ts_reshape_n(x, rank, shape);
    y = ts_make1(n->op, y, 1, (ts_attr[]){ts_attr_l("dims", count, first)});
    y = ts_make1(n->op, y, 1, (ts_attr[]){ts_attr_l("dims", left, second)});
    return ts_reshape_n(y, n->out[0]->type.rank, n->out[0]->type.dim);
}

/* A GPU has a tile of the result for each of its groups of threads; where those are few and the sum
 * is long, each has a part of the sum. So many that there are enough, each power of two that divides
 * it and leaves a part long enough. */
static int64_t gpu_parts(int64_t rows, int64_t columns, int64_t sum, int64_t whole, int64_t least)
{
    int64_t down = rows >= 64 ? 64 : 32, across = columns >= 64 ? 64 : 32, parts = 1,
            tiles = ((rows + down - 1) / down) * ((columns + across - 1) / across);

    while (tiles * parts < 256 && whole % (2 * parts) == 0 && sum / (2 * parts) >= least)
        parts *= 2;
    return parts;
}

static ts_value *split_for_gpu(const ts_node *n, ts_value *const *map)
{
    bool summed[TS_MAX_RANK];
    int64_t cuts[TS_MAX_RANK];
    const ts_type *x = n->nin ? &n->in[0]->type : NULL, *y = n->nout ? &n->out[0]->type : NULL;
    ts_attr attr[TS_MAX_ATTR + 1];
    int64_t parts;
    int count;

    if (sum_parts(n, summed, cuts))
        return split_sum_for_gpu(n, map[n->in[0]->id], summed, cuts);
    if (n->op == TS_OP(matmul) && x->rank == 2 && n->in[1]->type.rank == 2 && y->dtype == TS_F32 &&
        x->dim[0] >= 24 && y->dim[1] >= 24 && x->dim[1] >= 512) {
        parts = gpu_parts(x->dim[0], y->dim[1], x->dim[1], x->dim[1], 128);
        return parts > 1 ? split_product(map[n->in[0]->id], map[n->in[1]->id], parts) : NULL;
    }
    if (n->op != TS_OP(conv_weight) || y->dtype != TS_F32 || ts_attr_int(n, "parts", 1) > 1 ||
        y->rank < 4 || y->dim[0] < SIDE || ts_attr_int(n, "groups", 1) > 1)
        return NULL;
    x = &n->in[1]->type; /* dy: [n, o, places] */
    parts = gpu_parts(y->dim[0], ts_type_count(y) / y->dim[0], ts_type_count(x) / x->dim[1],
                      x->dim[2], 256);
    if (parts == 1)
        return NULL;
    count = ts_attrs_but(n, "parts", attr);
    attr[count++] = ts_attr_i("parts", parts);
    return ts_sum(ts_make2(n->op, map[n->in[0]->id], map[n->in[1]->id], count, attr), 1,
                  (const int64_t[]){0}, false);
}

/* n in two steps, or NULL. The parts of products are for the caches of cores. */
static ts_value *split(const ts_machine_model *m, const ts_node *n, ts_value *const *map,
                       bool in_lanes)
{
    ts_value *y = split_reduce(m, n, n->nin ? map[n->in[0]->id] : NULL, in_lanes);

    if (y)
        return y;
    if (splits_product(m, n))
        return split_product(map[n->in[0]->id], map[n->in[1]->id], product_parts(m));
    if (row_parts(m, n) > 1)
        return split_rows(n, map[n->in[0]->id], map[n->in[1]->id], row_parts(m, n));
    return NULL;
}

ts_status ts_pass_split(ts_arena *a, const ts_graph *in, const ts_options *opt,
                        const ts_graph **out)
{
    ts_value **map;
    ts_graph *g = ts_graph_begin_copy(a, in, &map);
    ts_machine_model m;
    bool in_lanes;

    TS_TRY(ts_machine_find(opt->isa, &m));
    TS_TRY(ts_layout_in_lanes(a, in, opt, &in_lanes));
    for (int i = 0; i < in->nnodes; i++) {
        const ts_node *n = in->nodes[i];
        ts_value *y;
        g->like = n;
        y = ts_pass_for_gpu(opt) ? split_for_gpu(n, map) : split(&m, n, map, in_lanes);
        g->like = NULL;
        if (y)
            map[n->out[0]->id] = y;
        else
            ts_graph_copy_node(g, n, map);
        TS_TRY(ts_graph_check(g));
    }
    ts_graph_finish_copy(g, in, map);
    *out = g;
    return TS_OK;
}
