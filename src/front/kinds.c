/* kinds.c - what a line of a model's description can say besides the words of vocabulary.h: layers
 * that have weights, what goes by one sample instead of the batch, and losses. One row each, with
 * its arguments and their ranges, and next to it the call of tessera.h that it stands for.
 *
 * The ranges keep every size far from overflow; whether sizes fit together is the graph's to say.
 */
#include "front/front.h"

#define SIZE   2147483647.0 /* features, rows, pixels */
#define WINDOW 1023.0       /* of a kernel, and what goes with it */
#define REAL   1e30

static double num(const ts_line *l, const char *name)
{
    for (const ts_line_arg *a = l->kind->args; a->name; a++)
        if (!strcmp(a->name, name))
            return l->args[a - l->kind->args];
    return 0; /* a row without this argument: its default in tessera.h */
}

static int whole(const ts_line *l, const char *name)
{
    return (int)num(l, name);
}

static int64_t size(const ts_line_build *b, const ts_line *l, const char *name)
{
    double v = num(l, name);

    return v == TS_LINE_CLASSES ? b->classes : (int64_t)v;
}

/* --- layers with weights --- */

static const ts_line_arg linear_args[] = {
    {"out", 'n', TS_ARG_NEEDED, 1, SIZE, 0, NULL},
    {"bias", 'b', TS_ARG_NAMED, 0, 1, 1, NULL},
    {0},
};

static ts_value *linear(const ts_line_build *b, const ts_line *l, ts_value *x)
{
    return (num(l, "bias") ? ts_linear : ts_linear_no_bias)(x, l->name, size(b, l, "out"));
}

#define CONV_ARGS                                                                                  \
    {"out", 'n', TS_ARG_NEEDED, 1, SIZE, 0, NULL},                                                 \
        {"kernel", 'd', TS_ARG_NEEDED, 1, WINDOW, 0, NULL},                                        \
        {"stride", 'd', TS_ARG_NAMED, 1, WINDOW, 1, NULL},                                         \
        {"padding", 'd', TS_ARG_NAMED, 0, WINDOW, 0, NULL},                                        \
        {"dilation", 'd', TS_ARG_NAMED, 1, WINDOW, 1, NULL},                                       \
        {"groups", 'i', TS_ARG_NAMED, 1, SIZE, 1, NULL},                                           \
    {                                                                                              \
        "bias", 'b', TS_ARG_NAMED, 0, 1, 1, NULL                                                   \
    }

static const ts_line_arg conv_args[] = {CONV_ARGS, {0}};
static const ts_line_arg conv_transpose_args[] = {
    CONV_ARGS,
    {"output_padding", 'd', TS_ARG_NAMED, 0, WINDOW, 0, NULL},
    {0},
};

/* conv2d, conv_transpose1d: the digit says over how many dims */
int ts_kind_spatial(const ts_line_kind *k)
{
    const char *digit = k->name + strcspn(k->name, "123");

    return *digit ? *digit - '0' : 1;
}

static void by_dim(const ts_line *l, const char *name, int out[3])
{
    const ts_line_arg *a = l->kind->args;

    while (a->name && strcmp(a->name, name))
        a++;
    memcpy(out, l->dims[a->name ? a - l->kind->args : 0], sizeof(int[3]));
}

static ts_value *conv(const ts_line_build *b, const ts_line *l, ts_value *x)
{
    ts_window w = {.groups = whole(l, "groups"),
                   .no_bias = !num(l, "bias"),
                   .transposed = strstr(l->kind->name, "transpose") != NULL};

    by_dim(l, "kernel", w.kernel);
    by_dim(l, "stride", w.stride);
    by_dim(l, "padding", w.padding);
    by_dim(l, "dilation", w.dilation);
    if (w.transposed)
        by_dim(l, "output_padding", w.output_padding);
    return ts_window_layer(x, l->name, ts_kind_spatial(l->kind), size(b, l, "out"), &w);
}

#define EPS                                                                                        \
    {                                                                                              \
        "eps", 'f', TS_ARG_NAMED, 1e-12, 1, 1e-5, NULL                                             \
    }
#define AFFINE                                                                                     \
    {                                                                                              \
        "affine", 'b', TS_ARG_NAMED, 0, 1, 1, NULL                                                 \
    }

static const ts_line_arg batch_norm_args[] = {
    EPS,
    AFFINE,
    {"momentum", 'f', TS_ARG_NAMED, 1e-6, 1, 0.1, NULL},
    {0},
};
static const ts_line_arg group_norm_args[] = {
    {"groups", 'i', TS_ARG_NEEDED, 1, SIZE, 0, NULL},
    EPS,
    AFFINE,
    {0},
};
static const ts_line_arg layer_norm_args[] = {EPS, AFFINE, {0}};

static ts_norm_options norm_options(const ts_line *l)
{
    return (ts_norm_options){.eps = num(l, "eps"), .no_affine = !num(l, "affine")};
}

static ts_value *batch_norm(const ts_line_build *b, const ts_line *l, ts_value *x)
{
    ts_norm_options o = norm_options(l);

    o.momentum = num(l, "momentum");
    o.inference = !b->training;
    return ts_batch_norm_layer(x, l->name, &o);
}

static ts_value *group_norm(const ts_line_build *b, const ts_line *l, ts_value *x)
{
    ts_norm_options o = norm_options(l);

    (void)b;
    return ts_group_norm_layer(x, l->name, whole(l, "groups"), &o);
}

static ts_value *layer_norm(const ts_line_build *b, const ts_line *l, ts_value *x)
{
    ts_norm_options o = norm_options(l);

    (void)b;
    return ts_layer_norm_layer(x, l->name, &o);
}

static const ts_line_arg embedding_args[] = {
    {"rows", 'n', TS_ARG_NEEDED, 1, SIZE, 0, NULL},
    {"columns", 'i', TS_ARG_NEEDED, 1, SIZE, 0, NULL},
    {0},
};
static const ts_line_arg self_attention_args[] = {
    {"heads", 'i', TS_ARG_NEEDED, 1, 1024, 0, NULL},
    {"causal", 'b', TS_ARG_NAMED, 0, 1, 0, NULL},
    {"mask", 'x', TS_ARG_NAMED, 0, 0, TS_LINE_NONE, NULL},
    {0},
};
static const ts_line_arg attention_args[] = {
    {"causal", 'b', TS_ARG_NAMED, 0, 1, 0, NULL},
    {"mask", 'x', TS_ARG_NAMED, 0, 0, TS_LINE_NONE, NULL},
    {0},
};
static const ts_line_arg recurrent_args[] = {
    {"hidden", 'i', TS_ARG_NEEDED, 1, SIZE, 0, NULL},
    {"layers", 'i', TS_ARG_NAMED, 1, 64, 1, NULL},
    {"bidirectional", 'b', TS_ARG_NAMED, 0, 1, 0, NULL},
    {"bias", 'b', TS_ARG_NAMED, 0, 1, 1, NULL},
    {0},
};

/* lstm, gru, rnn */
static ts_value *recurrent(const ts_line_build *b, const ts_line *l, ts_value *x)
{
    (void)b;
    return ts_recurrent_layer(x, l->name, l->kind->name, whole(l, "hidden"), whole(l, "layers"),
                              num(l, "bidirectional") != 0, num(l, "bias") != 0);
}

/* --- earlier results --- */

int ts_line_several(const ts_line_build *b, int ref)
{
    const ts_line_ref *r = ref >= 0 ? &b->m->refs[ref] : NULL;

    return !r || r->line < 0 || r->item >= 0 ? 1 : b->results[r->line].n;
}

/* What a name stands for; of several results the one that the line is made for. */
static ts_value *behind(const ts_line_build *b, int ref)
{
    const ts_line_ref *r = &b->m->refs[ref];
    const ts_line_results *of = r->line < 0 ? NULL : &b->results[r->line];

    if (!of)
        return b->inputs[-1 - r->line];
    return of->v[r->item >= 0 ? r->item : of->n > 1 ? b->item : 0];
}

static ts_value *result(const ts_line_build *b, const ts_line *l, int i)
{
    return behind(b, l->refs[i]);
}

/* concat and stack without names, when there are several results */
bool ts_line_joins(const ts_line *l)
{
    if (!strcmp(l->kind->name, "concat"))
        return !l->nrefs;
    for (int i = 0; l->kind->word && i < TS_WORD_PARAMS; i++)
        if (l->given[i].kind == TS_ARG_TENSORS && l->given[i].n == 1 &&
            l->given[i].as.ints[0] == TS_LINE_RESULT)
            return true;
    return false;
}

int ts_line_references(const ts_line *l, int *refs, int room)
{
    const ts_line_arg *args = l->kind->args;
    int n = 0;

    for (int i = 0; i < l->nrefs && n < room; i++)
        refs[n++] = l->refs[i];
    for (int i = 0; args && args[i].name && n < room; i++)
        if (args[i].kind == 'x')
            refs[n++] = (int)l->args[i];
    for (int i = 0; l->kind->word && i < TS_WORD_PARAMS; i++) {
        const ts_arg *a = &l->given[i];
        if (a->kind == TS_ARG_TENSOR && n < room)
            refs[n++] = (int)a->as.i;
        for (int k = 0; a->kind == TS_ARG_TENSORS && k < a->n && n < room; k++)
            refs[n++] = (int)a->as.ints[k];
    }
    return n;
}

/* Puts several results where the next line takes them one by one. */
static ts_value *give(const ts_line_build *b, int n, int outputs, ts_value *const *all)
{
    ts_value **v = TS_NEWS(b->g->arena, ts_value *, outputs);

    memcpy(v, all, sizeof(*v) * (size_t)outputs);
    *b->made = (ts_line_results){.v = v, .n = n, .outputs = outputs};
    return v[0];
}

static ts_value *embedding(const ts_line_build *b, const ts_line *l, ts_value *x)
{
    return ts_embedding_layer(x, l->name, size(b, l, "rows"), whole(l, "columns"));
}

/* x of [batch, places, features], and a learned vector added for each place. */
static ts_value *positions(const ts_line_build *b, const ts_line *l, ts_value *x)
{
    (void)b;
    return ts_positions_layer(x, l->name);
}

/* True where there is something to see: a place sees itself and those before. */
static ts_value *causal_mask(const ts_line_build *b, int64_t n, int64_t keys)
{
    int64_t shape[] = {n, keys};

    return ts_le(ts_iota(b->g, 2, shape, 1, TS_I32), ts_iota(b->g, 2, shape, 0, TS_I32));
}

/* True, or not 0, where there is something to see; both masks where there are two. */
static ts_value *mask_of(const ts_line_build *b, const ts_line *l, int64_t n, int64_t keys)
{
    int ref = whole(l, "mask");
    ts_value *own = num(l, "causal") ? causal_mask(b, n, keys) : NULL;
    ts_value *mask = ref >= 0 ? behind(b, ref) : NULL;

    if (mask && ts_dtype_of(mask) != TS_BOOL)
        mask = ts_ne(mask, ts_scalar(b->g, ts_dtype_of(mask), 0));
    return own && mask ? ts_logical_and(own, mask) : own ? own : mask;
}

/* [batch, places, features] -> [batch, heads, places, features / heads] */
static ts_value *split_heads(ts_value *x, int64_t heads)
{
    x = ts_reshape_n(x, 4, (int64_t[]){ts_dim(x, 0), ts_dim(x, 1), heads, ts_dim(x, 2) / heads});
    return ts_permute_n(x, 4, (int64_t[]){0, 2, 1, 3});
}

/* Parameters as nn.MultiheadAttention has them: in_proj_weight and in_proj_bias for q, k and v
 * together, out_proj.weight and out_proj.bias. */
static ts_value *self_attention(const ts_line_build *b, const ts_line *l, ts_value *x)
{
    int64_t heads = whole(l, "heads"), n = ts_dim(x, 1), wide = ts_dim(x, 2);
    ts_value *all, *mask, *y;

    if (!x || ts_rank(x) != 3 || wide % heads)
        return x ? ts_graph_refuse(b->g, TS_ERR_SHAPE, NULL,
                                   "self_attention of %ld heads takes batch x places x features "
                                   "that they divide, not rank %d with %ld features",
                                   (long)heads, ts_rank(x), (long)wide)
                 : NULL;
    all = ts_projection_layer(x, l->name, "in_proj_weight", "in_proj_bias", 3 * wide);
    mask = mask_of(b, l, n, n);
    y = ts_attention(split_heads(ts_slice(all, 2, 0, wide, 1), heads),
                     split_heads(ts_slice(all, 2, wide, 2 * wide, 1), heads),
                     split_heads(ts_slice(all, 2, 2 * wide, 3 * wide, 1), heads), mask);
    y = ts_permute_n(y, 4, (int64_t[]){0, 2, 1, 3});
    y = ts_reshape_n(y, 3, (int64_t[]){ts_dim(x, 0), n, wide});
    return ts_projection_layer(y, l->name, "out_proj.weight", "out_proj.bias", wide);
}

/* --- what has other defaults than the word, and what no word is --- */

static const ts_line_arg scale_args[] = {{"factor", 'f', TS_ARG_NEEDED, -REAL, REAL, 1, NULL}, {0}};
#define DIM(otherwise)                                                                             \
    {                                                                                              \
        "dim", 'i', TS_ARG_NAMED, -TS_MAX_RANK, TS_MAX_RANK - 1, otherwise, NULL                   \
    }
static const ts_line_arg dim_args[] = {DIM(1), {0}};

static ts_value *scale(const ts_line_build *b, const ts_line *l, ts_value *x)
{
    (void)b;
    return ts_mul_scalar(x, num(l, "factor"));
}

static ts_value *softmax(const ts_line_build *b, const ts_line *l, ts_value *x)
{
    (void)b;
    return ts_softmax(x, whole(l, "dim"));
}

static ts_value *log_softmax(const ts_line_build *b, const ts_line *l, ts_value *x)
{
    (void)b;
    return ts_log_softmax(x, whole(l, "dim"));
}

/* --- shapes and earlier results --- */

static const ts_line_arg flatten_args[] = {
    {"start", 'i', TS_ARG_PLACED, 0, TS_MAX_RANK - 1, 1, NULL}, {0}};

static ts_value *flatten(const ts_line_build *b, const ts_line *l, ts_value *x)
{
    (void)b;
    return ts_flatten(x, whole(l, "start"));
}

/* The sizes are of one sample: the batch stays in front. */
static ts_value *reshape(const ts_line_build *b, const ts_line *l, ts_value *x)
{
    int64_t dims[TS_MAX_RANK + 1] = {ts_dim(x, 0)};

    (void)b;
    memcpy(dims + 1, l->sizes, sizeof(*dims) * (size_t)l->nsizes);
    return ts_reshape_n(x, l->nsizes + 1, dims);
}

static const ts_line_arg unflatten_args[] = {
    {"groups", 'i', TS_ARG_NEEDED, 1, SIZE, 0, NULL}, DIM(1), {0}};

/* A dim of groups*n becomes two: groups x n. */
static ts_value *unflatten(const ts_line_build *b, const ts_line *l, ts_value *x)
{
    int64_t groups = whole(l, "groups"), dims[TS_MAX_RANK + 1];
    int dim = whole(l, "dim"), rank = x ? ts_call_shape_of(x, dims) : 0;

    if (!x)
        return NULL;
    dim += dim < 0 ? rank : 0;
    if (rank >= TS_MAX_RANK || dim < 0 || dim >= rank || dims[dim] % groups)
        return ts_graph_refuse(b->g, TS_ERR_SHAPE, NULL,
                               "unflatten cannot make %ld groups of dim %d of a tensor of rank %d",
                               (long)groups, dim, rank);
    memmove(dims + dim + 1, dims + dim, sizeof(*dims) * (size_t)(rank - dim));
    dims[dim] = groups;
    dims[dim + 1] /= groups;
    return ts_reshape_n(x, rank + 1, dims);
}

static ts_value *mean(const ts_line_build *b, const ts_line *l, ts_value *x)
{
    (void)b;
    return ts_mean(x, 1, (int64_t[]){whole(l, "dim")}, false);
}

/* One result, or several that the next lines take one by one. */
static ts_value *from(const ts_line_build *b, const ts_line *l, ts_value *x)
{
    ts_value *all[TS_LINE_SEVERAL];
    ts_line_build each = *b;
    int n = 0;

    (void)x;
    for (int i = 0; i < l->nrefs; i++)
        for (each.item = 0; each.item < ts_line_several(b, l->refs[i]); each.item++) {
            if (n == TS_LINE_SEVERAL)
                return ts_graph_refuse(b->g, TS_ERR_ARG, NULL, "more than %d results at a time",
                                       TS_LINE_SEVERAL);
            all[n++] = behind(&each, l->refs[i]);
        }
    return n == 1 ? all[0] : give(b, n, n, all);
}

static ts_value *concat(const ts_line_build *b, const ts_line *l, ts_value *x)
{
    ts_value *xs[TS_LINE_REFS + 1] = {x};

    if (!l->nrefs && b->before.n == 1)
        return ts_graph_refuse(b->g, TS_ERR_ARG, "'-> a' after a layer keeps its result as 'a'",
                               "concat needs the name of an earlier result");
    if (!l->nrefs)
        return ts_concat(b->before.n, b->before.v, whole(l, "dim"));
    for (int i = 0; i < l->nrefs; i++)
        xs[i + 1] = result(b, l, i);
    return ts_concat(l->nrefs + 1, xs, whole(l, "dim"));
}

static const ts_line_arg chunk_args[] = {
    {"pieces", 'i', TS_ARG_NEEDED, 1, TS_LINE_SEVERAL, 0, NULL}, DIM(1), {0}};
static const ts_line_arg groups_args[] = {{"groups", 'i', TS_ARG_NEEDED, 1, SIZE, 0, NULL}, {0}};

/* Equal pieces along a dim. */
static ts_value *chunk(const ts_line_build *b, const ts_line *l, ts_value *x)
{
    int64_t n = whole(l, "pieces"), dim = whole(l, "dim"), all;
    ts_value *pieces[TS_LINE_SEVERAL];

    if (!x)
        return NULL;
    dim += dim < 0 ? ts_rank(x) : 0;
    all = dim >= 0 && dim < ts_rank(x) ? ts_dim(x, (int)dim) : 0;
    if (!all || all % n)
        return ts_graph_refuse(b->g, TS_ERR_SHAPE, NULL,
                               "chunk cannot cut %ld of dim %ld into %ld equal pieces", (long)all,
                               (long)dim, (long)n);
    for (int i = 0; i < n; i++)
        pieces[i] = ts_slice(x, (int)dim, i * (all / n), (i + 1) * (all / n), 1);
    return give(b, (int)n, (int)n, pieces);
}

/* N x groups*C x ... -> N*groups x C x ...: what follows is done to each group, and each is a
 * sample of its own. And back. */
static ts_value *regroup(const ts_line_build *b, const ts_line *l, ts_value *x)
{
    int64_t groups = whole(l, "groups"), dims[TS_MAX_RANK];
    bool to_batch = !strcmp(l->kind->name, "channels_to_batch");
    int rank = x ? ts_call_shape_of(x, dims) : 0;

    if (!x)
        return NULL;
    if (rank < 2 || dims[to_batch ? 1 : 0] % groups)
        return ts_graph_refuse(b->g, TS_ERR_SHAPE, NULL,
                               "%s in %ld groups does not fit a tensor of rank %d with %ld x %ld",
                               l->kind->name, (long)groups, rank, (long)dims[0],
                               rank < 2 ? 0 : (long)dims[1]);
    dims[0] = to_batch ? dims[0] * groups : dims[0] / groups;
    dims[1] = to_batch ? dims[1] / groups : dims[1] * groups;
    return ts_reshape_n(x, rank, dims);
}

/* The current result asks: softmax(x k^T / sqrt(d)) v. */
static ts_value *attention(const ts_line_build *b, const ts_line *l, ts_value *x)
{
    ts_value *k = result(b, l, 0);

    return ts_attention(x, k, result(b, l, 1),
                        x && k ? mask_of(b, l, ts_dim(x, -2), ts_dim(k, -2)) : NULL);
}

/* --- words --- */

/* What losses compare with comes from outside once, however many there are. */
static ts_value *compared(const ts_line_build *b, const char *name, ts_dtype dtype, int rank,
                          const int64_t *dims)
{
    for (int i = 0; i < b->g->ninputs; i++) {
        ts_value *v = b->g->inputs[i];
        if (strcmp(v->name, name) != 0)
            continue;
        if (v->type.dtype == dtype && v->type.rank == rank &&
            !memcmp(v->type.dim, dims, sizeof(*dims) * (size_t)rank))
            return v;
        return ts_graph_refuse(b->g, TS_ERR_SHAPE, NULL, "the losses need %s of different shapes",
                               name);
    }
    return ts_input_n(b->g, name, dtype, rank, dims);
}

/* Classes as integers: x without its dim 1. */
static ts_value *labels(const ts_line_build *b, ts_value *x)
{
    int64_t dims[TS_MAX_RANK] = {ts_dim(x, 0)};
    int rank = ts_rank(x);

    for (int i = 2; i < rank; i++)
        dims[i - 1] = ts_dim(x, i);
    return compared(b, "labels", TS_I32, rank > 1 ? rank - 1 : 1, dims);
}

/* Numbers like x's; where the loss counts classes, those as integers. */
static ts_value *targets(const ts_line_build *b, const char *loss, ts_value *x)
{
    int64_t dims[TS_MAX_RANK];
    int rank = ts_call_shape_of(x, dims);
    bool several = !strcmp(loss, "multilabel_margin_loss");

    if (!strcmp(loss, "multi_margin_loss"))
        return labels(b, x);
    return compared(b, several ? "labels" : "targets", several ? TS_I32 : ts_dtype_of(x), rank,
                    dims);
}

static ts_value *referred(const ts_line_build *b, const char *word, int64_t ref, ts_value *x)
{
    if (ref == TS_LINE_TARGET)
        return x ? targets(b, word, x) : NULL;
    return ref == TS_LINE_RESULT ? x : behind(b, (int)ref);
}

/* References become values. */
static ts_arg resolved(const ts_line_build *b, const char *word, const ts_arg *a, ts_value *x)
{
    ts_value **all;

    if (a->kind == TS_ARG_TENSOR)
        return ts_arg_tensor(NULL, referred(b, word, a->as.i, x));
    if (a->kind != TS_ARG_TENSORS)
        return *a;
    if (a->n == 1 && a->as.ints[0] == TS_LINE_RESULT)
        return ts_arg_tensors(NULL, b->before.n, b->before.v);
    all = TS_NEWS(b->g->arena, ts_value *, a->n);
    for (int i = 0; i < a->n; i++)
        all[i] = referred(b, word, a->as.ints[i], x);
    return ts_arg_tensors(NULL, a->n, all);
}

ts_value *ts_line_word(const ts_line_build *b, const ts_line *l, ts_value *x)
{
    ts_arg args[TS_WORD_PARAMS];
    ts_param params[TS_WORD_PARAMS];
    int n = ts_word_params(l->kind->word, params), made;
    ts_value *out[TS_LINE_SEVERAL + 1];

    for (int i = 0; i < n; i++) {
        args[i] = resolved(b, l->kind->name, &l->given[i], x);
        if (args[i].kind == TS_ARG_NONE && !strcmp(params[i].name, "training"))
            args[i] = ts_arg_int(NULL, b->training);
    }
    made = ts_word_make(b->g, l->kind->name, n, args, TS_COUNT(out), out);
    if (made > TS_LINE_SEVERAL)
        return ts_graph_refuse(b->g, TS_ERR_ARG, NULL, "%s makes more than %d results",
                               l->kind->name, TS_LINE_SEVERAL);
    return made > 1 ? give(b, strstr(l->kind->word->arguments, "-> *") ? made : 1, made, out)
                    : out[0];
}

const ts_line_kind ts_layer_kinds[] = {
    {"linear", linear, .args = linear_args, .weights = true},
    {"conv1d", conv, .args = conv_args, .weights = true},
    {"conv2d", conv, .args = conv_args, .weights = true},
    {"conv3d", conv, .args = conv_args, .weights = true},
    {"conv_transpose1d", conv, .args = conv_transpose_args, .weights = true},
    {"conv_transpose2d", conv, .args = conv_transpose_args, .weights = true},
    {"conv_transpose3d", conv, .args = conv_transpose_args, .weights = true},
    {"batch_norm", batch_norm, .args = batch_norm_args, .weights = true},
    {"group_norm", group_norm, .args = group_norm_args, .weights = true},
    {"layer_norm", layer_norm, .args = layer_norm_args, .weights = true},
    {"embedding", embedding, .args = embedding_args, .weights = true},
    {"positions", positions, .weights = true},
    {"self_attention", self_attention, .args = self_attention_args, .weights = true},
    {"lstm", recurrent, .args = recurrent_args, .weights = true},
    {"gru", recurrent, .args = recurrent_args, .weights = true},
    {"rnn", recurrent, .args = recurrent_args, .weights = true},

    {"scale", scale, .args = scale_args},
    {"softmax", softmax, .args = dim_args},
    {"log_softmax", log_softmax, .args = dim_args},

    {"flatten", flatten, .args = flatten_args},
    {"reshape", reshape, .least_sizes = 1},
    {"unflatten", unflatten, .args = unflatten_args},
    {"mean", mean, .args = dim_args},
    {"from", from, .several = true, .least_refs = 1, .most_refs = TS_LINE_REFS},
    {"concat", concat, .args = dim_args, .most_refs = TS_LINE_REFS},
    {"chunk", chunk, .args = chunk_args},
    {"channels_to_batch", regroup, .args = groups_args},
    {"batch_to_channels", regroup, .args = groups_args},
    {"attention", attention, .args = attention_args, .least_refs = 2, .most_refs = 2},
    {0},
};

/* --- losses --- */

/* Of every loss: how it is reduced, how much it counts, and of which result it is. */
#define REDUCTION                                                                                  \
    {"reduction", 'w', TS_ARG_NAMED, 0, 1, 0, "mean sum"},                                         \
        {"factor", 'f', TS_ARG_NAMED, 0, REAL, 1, NULL},                                           \
    {                                                                                              \
        "of", 'x', TS_ARG_NAMED, 0, 0, TS_LINE_NONE, NULL                                          \
    }
/* Of classes: how much a place counts, by a result or by how rare its class is in the batch. */
#define PLACES                                                                                     \
    {"weights", 'x', TS_ARG_NAMED, 0, 0, TS_LINE_NONE, NULL},                                      \
    {                                                                                              \
        "balance", 'b', TS_ARG_NAMED, 0, 1, 0, NULL                                                \
    }
#define IGNORE                                                                                     \
    {                                                                                              \
        "ignore_index", 'i', TS_ARG_NAMED, -SIZE, SIZE, NO_INDEX, NULL                             \
    }
#define NO_INDEX (-SIZE - 1)

static const ts_line_arg loss_args[] = {REDUCTION, {0}};
static const ts_line_arg nll_args[] = {REDUCTION, IGNORE, PLACES, {0}};
static const ts_line_arg focal_args[] = {
    REDUCTION, IGNORE, PLACES, {"gamma", 'f', TS_ARG_NAMED, 1, 16, 2, NULL}, {0}};
static const ts_line_arg cross_entropy_args[] = {
    REDUCTION,
    IGNORE,
    PLACES,
    {"label_smoothing", 'f', TS_ARG_NAMED, 0, 1, 0, NULL},
    {"soft", 'b', TS_ARG_NAMED, 0, 1, 0, NULL},
    {0},
};
static const ts_line_arg smooth_l1_args[] = {
    REDUCTION, {"beta", 'f', TS_ARG_NAMED, 1e-12, REAL, 1, NULL}, {0}};
static const ts_line_arg kl_div_args[] = {
    REDUCTION, {"log_target", 'b', TS_ARG_NAMED, 0, 1, 0, NULL}, {0}};

static ts_loss_options loss_options(const ts_line *l)
{
    return (ts_loss_options){.reduction =
                                 num(l, "reduction") ? TS_REDUCTION_SUM : TS_REDUCTION_MEAN,
                             .beta = num(l, "beta"),
                             .label_smoothing = num(l, "label_smoothing"),
                             .log_target = num(l, "log_target") != 0};
}

/* The scores, or an earlier result, which half precision may have made. */
static ts_value *loss_input(const ts_line_build *b, const ts_line *l, ts_value *x)
{
    int of = whole(l, "of");

    return of >= 0 ? ts_cast(behind(b, of), TS_F32) : x;
}

static ts_value *counted(const ts_line *l, ts_value *loss)
{
    return num(l, "factor") == 1 ? loss : ts_mul_scalar(loss, num(l, "factor"));
}

/* Targets like x: how probable each class is, as mixed samples have it. */
static ts_value *soft_loss(const ts_line_build *b, const ts_loss_options *o, ts_value *x)
{
    int64_t dims[TS_MAX_RANK], one = 1;
    int rank = ts_call_shape_of(x, dims);
    ts_value *t = compared(b, "targets", ts_dtype_of(x), rank, dims), *y;

    if (o->label_smoothing > 0)
        t = ts_add_scalar(ts_mul_scalar(t, 1 - o->label_smoothing),
                          o->label_smoothing / (double)ts_dim(x, 1));
    if (o->weight)
        t = ts_mul(t, ts_reshape_n(o->weight, 2, (int64_t[]){1, ts_dim(x, 1)}));
    y = ts_mul_scalar(ts_sum(ts_mul(t, ts_log_softmax(x, 1)), 1, &one, false), -1);
    return o->reduction == TS_REDUCTION_SUM ? ts_sum(y, 0, NULL, false)
                                            : ts_mean(y, 0, NULL, false);
}

static ts_value *class_weight(const ts_line_build *b, int64_t classes)
{
    float *w = TS_NEWS(b->g->arena, float, classes);

    for (int64_t i = 0; i < classes; i++)
        w[i] = (float)b->class_weights[i];
    return ts_const_n(b->g, TS_F32, w, 1, &classes);
}

/* One over how often each class is in the batch, so that all that there are count the same:
 * their mean is the mean over classes of the mean over their places. */
static ts_value *balanced(const ts_line_build *b, ts_value *labels, int64_t classes)
{
    ts_value **all = TS_NEWS(b->g->arena, ts_value *, classes);

    for (int64_t c = 0; c < classes; c++) {
        ts_value *is = ts_cast(ts_eq(labels, ts_scalar(b->g, TS_I32, (double)c)), TS_F32);
        ts_value *n = ts_reshape_n(ts_sum(is, 0, NULL, false), 1, (int64_t[]){1});
        all[c] = ts_div(
            ts_scalar(b->g, TS_F32, 1),
            ts_apply(b->g, "maximum", 2, (ts_value *[]){n, ts_scalar(b->g, TS_F32, 1)}, 0, NULL));
    }
    return classes > 1 ? ts_concat((int)classes, all, 0) : all[0];
}

/* (1 - p)^gamma: what is known already counts less (Lin et al., 2017). */
static ts_value *focal(const ts_line_build *b, const ts_line *l, ts_value *x, ts_value *t,
                       const ts_loss_options *o)
{
    ts_loss_options plain = {.reduction = TS_REDUCTION_NONE,
                             .has_ignore = o->has_ignore,
                             .ignore_index = o->ignore_index};
    ts_value *p = ts_exp(ts_neg(ts_cross_entropy_o(x, t, &plain)));

    return ts_apply(b->g, "pow", 2,
                    (ts_value *[]){ts_sub(ts_scalar(b->g, TS_F32, 1), p),
                                   ts_scalar(b->g, TS_F32, num(l, "gamma"))},
                    0, NULL);
}

/* The loss of each place, times what it counts; the mean is over the places' weights, if any. */
static ts_value *placed_loss(const ts_line_build *b, const ts_line *l, ts_value *x, ts_value *t,
                             ts_loss_options o)
{
    bool sum = o.reduction == TS_REDUCTION_SUM, nll = !strcmp(l->kind->name, "nll");
    int ref = whole(l, "weights");
    ts_value *y, *w = ref >= 0 ? ts_cast(behind(b, ref), TS_F32) : NULL;

    o.reduction = TS_REDUCTION_NONE;
    y = (nll ? ts_nll_loss_o : ts_cross_entropy_o)(x, t, &o);
    if (!strcmp(l->kind->name, "focal"))
        y = ts_mul(y, focal(b, l, x, t, &o));
    if (!w)
        return sum ? ts_sum(y, 0, NULL, false) : ts_mean(y, 0, NULL, false);
    y = ts_sum(ts_mul(y, w), 0, NULL, false);
    return sum ? y : ts_div(y, ts_sum(w, 0, NULL, false));
}

static ts_value *class_loss(const ts_line_build *b, const ts_line *l, ts_value *x)
{
    ts_loss_options o = loss_options(l);
    int64_t classes;
    ts_value *t;

    x = loss_input(b, l, x);
    if (!x)
        return NULL;
    classes = ts_dim(x, ts_rank(x) > 1 ? 1 : 0);
    o.weight = b->class_weights ? class_weight(b, classes) : NULL;
    if (num(l, "soft"))
        return counted(l, soft_loss(b, &o, x));
    t = labels(b, x);
    o.has_ignore = num(l, "ignore_index") != NO_INDEX;
    o.ignore_index = o.has_ignore ? whole(l, "ignore_index") : 0;
    if (t && num(l, "balance"))
        o.weight = o.weight ? ts_mul(o.weight, balanced(b, t, classes)) : balanced(b, t, classes);
    if (whole(l, "weights") >= 0 || !strcmp(l->kind->name, "focal"))
        return counted(l, placed_loss(b, l, x, t, o));
    return counted(l,
                   (strcmp(l->kind->name, "nll") ? ts_cross_entropy_o : ts_nll_loss_o)(x, t, &o));
}

static ts_value *element_loss(const ts_line_build *b, const ts_line *l, ts_value *x)
{
    ts_loss_options o = loss_options(l);
    int64_t dims[TS_MAX_RANK];

    x = loss_input(b, l, x);
    for (int i = 0; i < ts_rank(x); i++)
        dims[i] = ts_dim(x, i);
    return x ? counted(l, ts_loss_o(l->kind->op, x,
                                    compared(b, "targets", ts_dtype_of(x), ts_rank(x), dims), &o))
             : NULL;
}

static ts_value *identity_loss(const ts_line_build *b, const ts_line *l, ts_value *x)
{
    return counted(l, ts_identity_loss(loss_input(b, l, x), loss_options(l).reduction));
}

const ts_line_kind ts_loss_kinds[] = {
    {"cross_entropy", class_loss, .args = cross_entropy_args},
    {"nll", class_loss, .args = nll_args},
    {"focal", class_loss, .args = focal_args},
    {"mse", element_loss, .args = loss_args, .op = "mse_loss"},
    {"l1", element_loss, .args = loss_args, .op = "l1_loss"},
    {"smooth_l1", element_loss, .args = smooth_l1_args, .op = "smooth_l1_loss"},
    {"bce", element_loss, .args = loss_args, .op = "binary_cross_entropy"},
    {"bce_with_logits", element_loss, .args = loss_args, .op = "binary_cross_entropy_with_logits"},
    {"kl_div", element_loss, .args = kl_div_args, .op = "kl_div"},
    {"identity", identity_loss, .args = loss_args},
    {0},
};

/* --- what to write --- */

const char *ts_kind_args(ts_arena *a, const ts_line_kind *k)
{
    char *s = ts_arena_strdup(a, "");

    for (int i = 0; i < k->least_refs; i++)
        s = ts_arena_printf(a, "%s RESULT", s);
    if (k->most_refs > k->least_refs)
        s = ts_arena_printf(a, "%s ...", s);
    if (k->least_sizes)
        s = ts_arena_printf(a, "%s SIZE ...", s);
    for (const ts_line_arg *p = k->args; p && p->name; p++)
        s = ts_arena_printf(a, p->how == TS_ARG_NEEDED ? "%s %s" : "%s [%s=]", s, p->name);
    return s[0] ? s + 1 : "nothing";
}
