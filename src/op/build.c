/* build.c - makes nodes: the calls of tessera.h for inputs, states, places and ops. Passes and
 * rules use them as programs do. */
#include "op/op.h"
#include <math.h>

/* --- inputs, constants, states --- */

/* Names are UTF-8 text of 1 to 1000 bytes without control characters. */
static bool named(ts_graph *g, const char *what, const char *name)
{
    const char *wrong = ts_name_wrong(name);

    if (!wrong)
        return true;
    if (!name)
        return ts_graph_refuse(g, TS_ERR_ARG, NULL, "every %s needs a name", what);
    return ts_graph_refuse(g, TS_ERR_ARG,
                           "a name is UTF-8 text of 1 to 1000 bytes without control characters",
                           "the name of the %s %s", what, wrong);
}

static bool usable(ts_graph *g, const char *what, const char *name, ts_dtype t, int rank,
                   const int64_t *dims)
{
    double count = 1;

    if (!g || g->status)
        return false;
    if ((unsigned)t > TS_BOOL)
        return ts_graph_refuse(g, TS_ERR_TYPE, NULL, "%s %s: %d is not a dtype", what, name,
                               (int)t);
    if (rank < 0 || rank > TS_MAX_RANK)
        return ts_graph_refuse(g, TS_ERR_SHAPE, NULL, "%s %s has rank %d; at most %d", what, name,
                               rank, TS_MAX_RANK);
    if (rank && !dims)
        return ts_graph_refuse(g, TS_ERR_ARG, NULL, "%s %s: its %d dims are NULL", what, name,
                               rank);
    for (int i = 0; i < rank; i++) {
        count *= (double)dims[i];
        if (dims[i] < 0 || count > TS_MAX_COUNT)
            return ts_graph_refuse(g, TS_ERR_SHAPE, NULL,
                                   "%s %s: dim %d is %ld, which no tensor can have", what, name, i,
                                   (long)dims[i]);
    }
    return true;
}

static bool free_name(ts_graph *g, const char *what, const char *name)
{
    bool taken;

    if (!named(g, what, name))
        return false;
    taken = ts_graph_find_state(g, name) != NULL;
    for (int i = 0; i < g->ninputs; i++)
        taken = taken || !strcmp(g->inputs[i]->name, name);
    if (taken)
        ts_graph_refuse(g, TS_ERR_ARG,
                        "every layer needs a name of its own; ts_scope_begin() puts one before it",
                        "the name '%s' is already taken", name);
    return !taken;
}

ts_value *ts_input_n(ts_graph *g, const char *name, ts_dtype t, int rank, const int64_t *dims)
{
    if (!usable(g, "input", name, t, rank, dims) || !free_name(g, "input", name))
        return NULL;
    return ts_graph_add_input(g, name, ts_type_of(t, rank, dims));
}

static ts_value *state(ts_graph *g, const char *what, const char *name, ts_dtype t, ts_init init,
                       int rank, const int64_t *dims, bool trained)
{
    if (!usable(g, what, name, t, rank, dims) || !free_name(g, what, name))
        return NULL;
    if ((unsigned)init.kind > TS_INIT_NORMAL)
        return ts_graph_refuse(g, TS_ERR_ARG, NULL, "%s %s: there is no kind %d of first values",
                               what, name, (int)init.kind);
    return ts_graph_add_state(g, name, ts_type_of(t, rank, dims), init, trained);
}

ts_value *ts_param_n(ts_graph *g, const char *name, ts_dtype t, ts_init init, int rank,
                     const int64_t *dims)
{
    return state(g, "parameter", name, t, init, rank, dims, true);
}

ts_value *ts_weight_n(ts_graph *g, const char *name, int rank, const int64_t *dims)
{
    double fan = 1;

    for (int i = rank > 1 ? 1 : 0; dims && i < rank; i++)
        fan *= (double)TS_MAX(1, dims[i]);
    return ts_param_n(g, name, TS_F32, (ts_init){TS_INIT_UNIFORM, -1 / sqrt(fan), 1 / sqrt(fan)},
                      rank, dims);
}

ts_value *ts_buffer_n(ts_graph *g, const char *name, ts_dtype t, ts_init init, int rank,
                      const int64_t *dims)
{
    return state(g, "buffer", name, t, init, rank, dims, false);
}

void ts_freeze(ts_value *param)
{
    if (param && param->kind == TS_VALUE_STATE)
        param->graph->states[param->index].trained = false;
}

/* What a run gives back or keeps is made by a node: an input's memory is the caller's, a state's
 * changes. */
static ts_value *computed(ts_value *v)
{
    return v->kind == TS_VALUE_NODE && v->node->op != TS_OP(const) ? v : ts_point1("nop", v);
}

void ts_assign(ts_value *buffer, ts_value *next)
{
    ts_graph *g = buffer ? buffer->graph : NULL;

    if (!buffer || !next || g->status)
        return;
    if (buffer->kind != TS_VALUE_STATE || next->graph != g ||
        !ts_type_same(&buffer->type, &next->type)) {
        ts_graph_refuse(g, TS_ERR_ARG, "the value must have the buffer's dtype and shape",
                        "ts_assign needs a buffer and a value of its type, got %s and %s",
                        buffer->kind == TS_VALUE_STATE ? ts_type_text(g->arena, &buffer->type)
                                                       : "no buffer",
                        ts_type_text(g->arena, &next->type));
        return;
    }
    if (next == buffer)
        return;
    for (int i = 0; i < g->nupdates; i++)
        if (g->updates[i].state == buffer) {
            ts_graph_refuse(g, TS_ERR_ARG, NULL, "%s is assigned twice", buffer->name);
            return;
        }
    if ((next = computed(next)))
        ts_graph_add_update(g, buffer, next, 0);
}

void ts_output(ts_value *v, const char *name)
{
    if (!v || v->graph->status)
        return;
    if (named(v->graph, "output", name) && (v = computed(v)))
        ts_graph_add_output(v->graph, v, name);
}

void ts_loss(ts_value *v)
{
    if (!v || v->graph->status)
        return;
    if (v->graph->loss) {
        ts_graph_refuse(v->graph, TS_ERR_ARG, "add the parts and mark their sum",
                        "the graph already has a loss");
        return;
    }
    v->graph->loss = computed(v);
}

static ts_value *make0(ts_graph *g, const char *op, ts_dtype t, int rank, const int64_t *dims,
                       ts_attr extra)
{
    ts_attr attr[] = {ts_attr_s("dtype", ts_dtype_name(t)), ts_attr_l("shape", rank, dims), extra};

    return ts_node_out(ts_node_make(g, ts_op_find(op), 0, NULL, extra.name ? 3 : 2, attr));
}

ts_value *ts_full_n(ts_graph *g, ts_dtype t, double value, int rank, const int64_t *dims)
{
    return usable(g, "tensor", "", t, rank, dims)
               ? make0(g, "full", t, rank, dims, ts_attr_f("value", value))
               : NULL;
}

ts_value *ts_scalar(ts_graph *g, ts_dtype t, double value)
{
    return ts_full_n(g, t, value, 0, NULL);
}

ts_value *ts_const_n(ts_graph *g, ts_dtype t, const void *data, int rank, const int64_t *dims)
{
    ts_value *v;

    if (!usable(g, "constant", "", t, rank, dims))
        return NULL;
    if (!data)
        return ts_graph_refuse(g, TS_ERR_ARG, NULL, "a constant needs data");
    v = make0(g, "const", t, rank, dims, (ts_attr){0});
    if (v)
        v->node->data = ts_arena_copy(g->arena, data, ts_type_bytes(&v->type));
    return v;
}

/* Each random node gets a stream of its own: the count of those before it. */
static int64_t next_stream(const ts_graph *g)
{
    int64_t n = 0;

    for (int i = 0; i < g->nnodes; i++)
        n += ts_attr_find(g->nodes[i], "stream") != NULL;
    return n;
}

/* Halves get as many bits as they hold exactly, so that they stay below 1. */
ts_value *ts_rand_n(ts_graph *g, ts_dtype t, int rank, const int64_t *dims)
{
    bool half = t == TS_F16 || t == TS_BF16;
    double steps = t == TS_F16 ? 0x1p11 : 0x1p8;
    ts_value *u;

    if (!usable(g, "tensor", "", t, rank, dims))
        return NULL;
    u = make0(g, "rand", half ? TS_F32 : t, rank, dims, ts_attr_i("stream", next_stream(g)));
    if (!half)
        return u;
    u = ts_point1("floor", ts_mul_scalar(u, steps));
    return ts_cast(ts_mul_scalar(u, 1 / steps), t);
}

ts_value *ts_randn_n(ts_graph *g, ts_dtype t, int rank, const int64_t *dims)
{
    return usable(g, "tensor", "", t, rank, dims)
               ? make0(g, "randn", t, rank, dims, ts_attr_i("stream", next_stream(g)))
               : NULL;
}

/* --- scopes --- */

static void push(ts_graph *g, ts_scope **top, const char *name)
{
    ts_scope *s = TS_NEW(g->arena, ts_scope);

    s->name = ts_arena_strdup(g->arena, name);
    s->up = *top;
    *top = s;
}

void ts_block_begin(ts_graph *g, const char *block)
{
    if (g && named(g, "block", block))
        push(g, &g->block, block);
}

void ts_block_end(ts_graph *g)
{
    if (g && g->block)
        g->block = g->block->up;
}

void ts_scope_begin(ts_graph *g, const char *name)
{
    if (g && named(g, "scope", name))
        push(g, &g->scope, name);
}

void ts_scope_end(ts_graph *g)
{
    if (g && g->scope)
        g->scope = g->scope->up;
}

int ts_steps_begin(const ts_graph *g)
{
    return g ? g->nnodes : 0;
}

void ts_steps_end(ts_graph *g, int begin, int nresults, ts_value *const *results)
{
    for (int i = TS_MAX(0, begin); g && i < g->nnodes; i++) {
        bool result = false;
        for (int k = 0; k < nresults; k++)
            result = result || (results[k] && results[k]->node == g->nodes[i]);
        g->nodes[i]->inner = g->nodes[i]->inner || !result;
    }
}

/* --- any op by name --- */

static ts_attr attr_of(const ts_arg *a)
{
    switch (a->kind) {
    case TS_ARG_NUMBER:
        return ts_attr_f(a->name, a->as.f);
    case TS_ARG_TEXT:
        return ts_attr_s(a->name, a->as.s);
    case TS_ARG_INTS:
        return ts_attr_l(a->name, a->n, a->as.ints);
    default:
        return ts_attr_i(a->name, a->as.i);
    }
}

/* Those that are given; -1, and the graph remembers why, when one cannot be an attribute. */
static int read_attrs(ts_graph *g, const char *op, int n, const ts_arg *args, ts_attr *attr)
{
    int count = 0;

    for (int i = 0; i < n; i++) {
        const char *name = args[i].name;
        if (!name || args[i].kind == TS_ARG_TENSOR || args[i].kind == TS_ARG_TENSORS ||
            args[i].kind == TS_ARG_NUMBERS || count == TS_MAX_ATTR - 1) {
            ts_graph_refuse(g, TS_ERR_ARG, NULL,
                            "%s: attribute %d%s%s needs a name and must be an integer, a number, "
                            "text or a list of integers",
                            op, i + 1, name ? ", " : "", name ? name : "");
            return -1;
        }
        if (args[i].kind != TS_ARG_NONE)
            attr[count++] = attr_of(&args[i]);
    }
    return count;
}

static void *no_op(ts_graph *g, const char *name)
{
    const char **names = NULL, *near, *hint = "ops.md in the documentation has all of them";
    int n = 0;

    for (const ts_op *op; (op = ts_op_at(n));)
        TS_PUSH(g->arena, names, n, op->name);
    near = ts_nearest(name, names, n);
    if (near)
        hint = ts_arena_printf(g->arena, "did you mean '%s'? %s", near, hint);
    return ts_graph_refuse(g, TS_ERR_UNSUPPORTED, hint, "there is no op '%s'",
                           name ? name : "NULL");
}

static bool has_stream(int n, const ts_attr *attr)
{
    for (int i = 0; i < n; i++)
        if (!strcmp(attr[i].name, "stream"))
            return true;
    return false;
}

ts_value *ts_apply(ts_graph *g, const char *name, int nin, ts_value *const *in, int nattr,
                   const ts_arg *attrs)
{
    const ts_op *op = name ? ts_op_find(name) : NULL;
    ts_attr attr[TS_MAX_ATTR];
    int n;

    if (!g || g->status)
        return NULL;
    if (!op)
        return no_op(g, name);
    if (!strcmp(name, "const"))
        return ts_graph_refuse(g, TS_ERR_ARG, NULL, "a const needs its data: ts_const_n");
    if (nin < 0 || (nin && !in))
        return ts_graph_refuse(g, TS_ERR_ARG, NULL, "%s: %d inputs at %s", name, nin,
                               in ? "an address" : "NULL");
    if (nattr < 0 || (nattr && !attrs))
        return ts_graph_refuse(g, TS_ERR_ARG, NULL, "%s: %d attributes at %s", name, nattr,
                               attrs ? "an address" : "NULL");
    n = read_attrs(g, name, nattr, attrs, attr);
    if (n < 0)
        return NULL;
    if (strstr(op->attrs, "stream:") && !has_stream(n, attr))
        attr[n++] = ts_attr_i("stream", next_stream(g));
    return ts_node_out(ts_node_make(g, op, nin, in, n, attr));
}

ts_value *ts_result(ts_value *v, int i)
{
    if (!v || v->graph->status)
        return NULL;
    if (!v->node || i < 0 || i >= v->node->nout)
        return ts_graph_refuse(v->graph, TS_ERR_ARG, NULL, "there is no result %d of %s", i,
                               v->node ? v->node->op->name : "an input or a parameter");
    return v->node->out[i];
}

/* --- pointwise --- */

#define UNARY(name)                                                                                \
    ts_value *ts_##name(ts_value *x)                                                               \
    {                                                                                              \
        return ts_point1(#name, x);                                                                \
    }
#define BINARY(name)                                                                               \
    ts_value *ts_##name(ts_value *x, ts_value *y)                                                  \
    {                                                                                              \
        return ts_point2(#name, x, y);                                                             \
    }
UNARY(neg)
UNARY(abs)
UNARY(exp)
UNARY(log)
UNARY(sqrt)
UNARY(rsqrt)
UNARY(square)
UNARY(reciprocal)
UNARY(tanh)
UNARY(erf)
UNARY(sigmoid)
UNARY(relu)
UNARY(gelu)
UNARY(silu)
UNARY(softplus)
UNARY(detach)

ts_value *ts_checkpoint(ts_value *x)
{
    ts_value_mark(x, true);
    return x;
}

BINARY(add)
BINARY(sub)
BINARY(mul)
BINARY(div)
BINARY(pow)
BINARY(maximum)
BINARY(minimum)
BINARY(eq)
BINARY(ne)
BINARY(lt)
BINARY(le)
BINARY(gt)
BINARY(ge)

/* A fraction makes f32 of integers, as in PyTorch. */
static ts_value *for_scalar(ts_value *x, double s)
{
    return x && !ts_dtype_is_float(x->type.dtype) && s != rint(s) ? ts_cast(x, TS_F32) : x;
}

ts_value *ts_add_scalar(ts_value *x, double s)
{
    x = for_scalar(x, s);
    return ts_add(x, ts_full_like(x, s));
}

ts_value *ts_mul_scalar(ts_value *x, double s)
{
    x = for_scalar(x, s);
    return ts_mul(x, ts_full_like(x, s));
}

ts_value *ts_where(ts_value *c, ts_value *x, ts_value *y)
{
    ts_dtype t;

    if (!c || !x || !y)
        return NULL;
    t = ts_dtype_promote(&x->type, &y->type);
    c = ts_cast(c, TS_BOOL);
    x = ts_cast(x, t);
    return ts_point3("where", c, x, ts_cast(y, t));
}

ts_value *ts_cast(ts_value *x, ts_dtype t)
{
    ts_attr attr;

    if (!x || x->type.dtype == t)
        return x;
    if ((unsigned)t > TS_BOOL)
        return ts_graph_refuse(x->graph, TS_ERR_ARG, NULL, "cast to %d, which is not a dtype",
                               (int)t);
    attr = ts_attr_s("dtype", ts_dtype_name(t));
    return ts_make1(TS_OP(cast), x, 1, &attr);
}

static ts_value *with_float(const char *op, ts_value *x, const char *name, double v)
{
    ts_attr attr[] = {ts_attr_f(name, v)};

    return ts_make1(ts_op_find(op), x, 1, attr);
}

ts_value *ts_leaky_relu(ts_value *x, double negative_slope)
{
    return with_float("leaky_relu", x, "negative_slope", negative_slope);
}

ts_value *ts_elu(ts_value *x, double alpha)
{
    return with_float("elu", x, "alpha", alpha);
}

ts_value *ts_clamp(ts_value *x, double lo, double hi)
{
    ts_attr attr[] = {ts_attr_f("min", lo), ts_attr_f("max", hi)};

    return ts_make1(TS_OP(clamp), x, 2, attr);
}

/* --- reductions --- */

static ts_value *reduce(const char *op, ts_value *x, int ndims, const int64_t *dims, bool keepdim)
{
    ts_attr attr[2];
    int n = 0;

    if (ndims)
        attr[n++] = ts_attr_l("dims", ndims, dims);
    if (keepdim)
        attr[n++] = ts_attr_i("keepdim", 1);
    return ts_make1(ts_op_find(op), x, n, attr);
}

ts_value *ts_sum(ts_value *x, int ndims, const int64_t *dims, bool keepdim)
{
    return reduce("sum", x, ndims, dims, keepdim);
}

ts_value *ts_mean(ts_value *x, int ndims, const int64_t *dims, bool keepdim)
{
    return reduce("mean", x, ndims, dims, keepdim);
}

ts_value *ts_amax(ts_value *x, int ndims, const int64_t *dims, bool keepdim)
{
    return reduce("amax", x, ndims, dims, keepdim);
}

ts_value *ts_argmax(ts_value *x, int dim, bool keepdim)
{
    return reduce("argmax", x, 1, (int64_t[]){dim}, keepdim);
}

ts_value *ts_logsumexp(ts_value *x, int ndims, const int64_t *dims, bool keepdim)
{
    return reduce("logsumexp", x, ndims, dims, keepdim);
}

/* --- views --- */

ts_value *ts_reshape_n(ts_value *x, int rank, const int64_t *dims)
{
    ts_attr attr[] = {ts_attr_l("shape", rank, dims)};

    if (x && x->type.rank == rank && (dims || !rank) &&
        (!rank || !memcmp(x->type.dim, dims, sizeof(*dims) * (size_t)rank)))
        return x;
    return ts_make1(TS_OP(reshape), x, 1, attr);
}

ts_value *ts_permute_n(ts_value *x, int rank, const int64_t *dims)
{
    ts_attr attr[] = {ts_attr_l("dims", rank, dims)};

    return ts_make1(TS_OP(permute), x, 1, attr);
}

ts_value *ts_expand_n(ts_value *x, int rank, const int64_t *dims)
{
    ts_attr attr[] = {ts_attr_l("shape", rank, dims)};

    return ts_make1(TS_OP(expand), x, 1, attr);
}

ts_value *ts_flatten(ts_value *x, int start_dim)
{
    int64_t dims[TS_MAX_RANK];

    if (!x || !x->type.rank)
        return ts_reshape(x, 1); /* as PyTorch: a scalar becomes a vector of one */
    if (start_dim < -x->type.rank || start_dim >= x->type.rank)
        return ts_graph_refuse(x->graph, TS_ERR_ARG, NULL,
                               "flatten from dim %d of a tensor of rank %d", start_dim,
                               x->type.rank);
    start_dim += start_dim < 0 ? x->type.rank : 0;
    memcpy(dims, x->type.dim, sizeof(dims));
    dims[start_dim] = 1;
    for (int i = start_dim; i < x->type.rank; i++)
        dims[start_dim] *= x->type.dim[i];
    return ts_reshape_n(x, start_dim + 1, dims);
}

ts_value *ts_transpose(ts_value *x, int a, int b)
{
    int64_t dims[TS_MAX_RANK];
    int rank = ts_rank(x);

    a = a < 0 ? a + rank : a;
    b = b < 0 ? b + rank : b;
    if (!x)
        return NULL;
    if (a < 0 || b < 0 || a >= rank || b >= rank)
        return ts_graph_refuse(x->graph, TS_ERR_ARG, NULL,
                               "transpose of dims %d and %d in a tensor of rank %d", a, b, rank);
    for (int i = 0; i < rank; i++)
        dims[i] = i == a ? b : i == b ? a : i;
    return ts_permute_n(x, rank, dims);
}

/* From the end when negative, and never outside. */
static int64_t slice_place(int64_t i, int64_t size)
{
    return i < 0 ? TS_MAX(i + size, 0) : TS_MIN(i, size);
}

ts_value *ts_slice(ts_value *x, int dim, int64_t start, int64_t end, int64_t step)
{
    int64_t size = ts_dim(x, dim), from = slice_place(start, size), to = slice_place(end, size);
    ts_attr attr[] = {ts_attr_i("dim", dim), ts_attr_i("start", from),
                      ts_attr_i("end", TS_MAX(from, to)), ts_attr_i("step", step)};

    return ts_make1(TS_OP(slice), x, step == 1 ? 3 : 4, attr);
}

/* More than a node takes: concat by concat. */
ts_value *ts_concat(int n, ts_value *const *xs, int dim)
{
    ts_attr attr[] = {ts_attr_i("dim", dim)};

    while (n > TS_MAX_INPUTS && xs && xs[0]) {
        int rest = n - TS_MAX_INPUTS + 1;
        ts_value **fewer = TS_NEWS(xs[0]->graph->arena, ts_value *, rest);
        fewer[0] = ts_concat(TS_MAX_INPUTS, xs, dim);
        for (int i = 1; i < rest; i++)
            fewer[i] = xs[TS_MAX_INPUTS + i - 1];
        xs = fewer;
        n = rest;
    }
    if (n <= 0 || !xs)
        ts_fail(TS_ERR_ARG, "ts_concat needs at least one tensor, got %d", n); /* no graph knows */
    return n > 0 && xs && xs[0]
               ? ts_node_out(ts_node_make(xs[0]->graph, TS_OP(concat), n, xs, 1, attr))
               : NULL;
}

ts_value *ts_stack(int n, ts_value *const *xs, int dim)
{
    ts_value **rows;

    if (n < 1 || !xs || !xs[0])
        return NULL;
    rows = TS_NEWS(xs[0]->graph->arena, ts_value *, n);
    for (int i = 0; i < n; i++) {
        int64_t dims[TS_MAX_RANK];
        int rank = ts_rank(xs[i]), at = dim < 0 ? dim + rank + 1 : dim;
        if (!xs[i])
            return NULL;
        if (rank >= TS_MAX_RANK || at < 0 || at > rank)
            return ts_graph_refuse(xs[0]->graph, TS_ERR_ARG, NULL,
                                   "stack along dim %d of tensors of rank %d", dim, rank);
        for (int d = 0; d <= rank; d++)
            dims[d] = d < at ? xs[i]->type.dim[d] : d == at ? 1 : xs[i]->type.dim[d - 1];
        rows[i] = ts_reshape_n(xs[i], rank + 1, dims);
    }
    return ts_concat(n, rows, dim);
}

int ts_chunk(ts_value *x, int n, int dim, ts_value **out)
{
    int64_t size = ts_dim(x, dim), each = n > 0 ? (size + n - 1) / n : 0;
    int count = 0;

    if (!x)
        return 0;
    if (!each || !out) {
        ts_graph_refuse(x->graph, TS_ERR_ARG, NULL,
                        "chunk into %d along dim %d of a tensor of rank %d%s", n, dim, ts_rank(x),
                        out ? "" : ", and no place for them");
        return 0;
    }
    dim = dim < 0 ? dim + ts_rank(x) : dim;
    for (int64_t from = 0; from < size; from += each)
        if (!(out[count++] = ts_slice(x, dim, from, TS_MIN(from + each, size), 1)))
            return 0;
    return count;
}

ts_value *ts_pad(ts_value *x, int rank, const int64_t *lo, const int64_t *hi, double value)
{
    ts_attr attr[] = {ts_attr_l("lo", rank, lo), ts_attr_l("hi", rank, hi),
                      ts_attr_f("value", value)};

    return ts_make1(TS_OP(pad), x, 3, attr);
}

/* --- products, indexing --- */

/* Leading dims of x fold into its rows when y is one matrix. Vectors are matrices with one row or
 * column. */
ts_value *ts_matmul(ts_value *x, ts_value *y)
{
    ts_type t;
    ts_value *z;
    ts_dtype dt;

    if (!x || !y)
        return NULL;
    dt = ts_dtype_promote(&x->type, &y->type);
    x = ts_cast(x, dt);
    y = ts_cast(y, dt);
    if (!x || !y)
        return NULL;
    t = x->type;
    if (t.rank == 1 && y->type.rank >= 1) {
        z = ts_matmul(ts_reshape(x, 1, t.dim[0]), y);
        if (!z || y->type.rank == 1)
            return ts_reshape_n(z, 0, NULL); /* a dot product */
        ts_type o = z->type;
        o.dim[o.rank - 2] = o.dim[o.rank - 1];
        return ts_reshape_n(z, o.rank - 1, o.dim);
    }
    if (y->type.rank == 1) {
        z = ts_matmul(x, ts_reshape(y, y->type.dim[0], 1));
        return z ? ts_reshape_n(z, z->type.rank - 1, z->type.dim) : NULL;
    }
    if (t.rank > 2 && y->type.rank == 2) {
        z = ts_make2(TS_OP(matmul),
                     ts_reshape(x, ts_type_count(&t) / t.dim[t.rank - 1], t.dim[t.rank - 1]), y, 0,
                     NULL);
        t.dim[t.rank - 1] = y->type.dim[1];
        return z ? ts_reshape_n(z, t.rank, t.dim) : NULL;
    }
    return ts_make2(TS_OP(matmul), x, y, 0, NULL);
}

ts_value *ts_gather(ts_value *x, int dim, ts_value *index)
{
    ts_attr attr[] = {ts_attr_i("dim", dim)};

    return ts_make2(TS_OP(gather), x, index, 1, attr);
}

ts_value *ts_embedding(ts_value *index, ts_value *weight)
{
    return ts_make2(TS_OP(embedding), index, weight, 0, NULL);
}

ts_value *ts_one_hot(ts_value *index, int64_t classes, ts_dtype t)
{
    ts_attr attr[] = {ts_attr_i("classes", classes), ts_attr_s("dtype", ts_dtype_name(t))};

    return ts_make1(TS_OP(one_hot), index, 2, attr);
}

static ts_value *with_dim(const char *op, ts_value *x, int dim)
{
    ts_attr attr[] = {ts_attr_i("dim", dim)};

    return ts_make1(ts_op_find(op), x, 1, attr);
}

ts_value *ts_softmax(ts_value *x, int dim)
{
    return with_dim("softmax", x, dim);
}

ts_value *ts_log_softmax(ts_value *x, int dim)
{
    return with_dim("log_softmax", x, dim);
}

ts_value *ts_dropout(ts_value *x, double p, bool training)
{
    ts_attr attr[] = {ts_attr_f("p", p), ts_attr_i("training", training), {0}};

    if (!x)
        return NULL;
    attr[2] = ts_attr_i("stream", next_stream(x->graph));
    return ts_make1(TS_OP(dropout), x, 3, attr);
}

ts_value *ts_attention(ts_value *q, ts_value *k, ts_value *v, ts_value *mask)
{
    ts_value *in[] = {q, k, v, mask};

    return q ? ts_node_out(ts_node_make(q->graph, TS_OP(attention), mask ? 4 : 3, in, 0, NULL))
             : NULL;
}

/* --- losses --- */

static const char *const reductions[] = {"mean", "sum", "none"};

static const ts_loss_options *loss_options(ts_value *x, const ts_loss_options *o,
                                           ts_loss_options *own)
{
    return x ? ts_graph_options(x->graph, o, TS_END_OF(ts_loss_options, log_target), own,
                                sizeof(*own))
             : NULL;
}

/* NULL, and x's graph remembers, when there is none such. */
static const char *reduction_name(ts_value *x, ts_reduction r)
{
    if ((unsigned)r <= TS_REDUCTION_NONE)
        return reductions[r];
    return ts_graph_refuse(x->graph, TS_ERR_ARG,
                           "use TS_REDUCTION_MEAN, TS_REDUCTION_SUM or TS_REDUCTION_NONE",
                           "there is no reduction %d", (int)r);
}

static ts_value *class_loss(const char *op, ts_value *x, ts_value *t, const ts_loss_options *o)
{
    ts_value *in[3] = {x, t};
    ts_loss_options own;
    ts_attr attr[3];
    int n = 0;

    if (!(o = loss_options(x, o, &own)) || !reduction_name(x, o->reduction))
        return NULL;
    in[2] = o->weight;
    attr[n++] = ts_attr_s("reduction", reductions[o->reduction]);
    if (o->has_ignore)
        attr[n++] = ts_attr_i("ignore_index", o->ignore_index);
    if (o->label_smoothing > 0)
        attr[n++] = ts_attr_f("label_smoothing", o->label_smoothing);
    return ts_node_out(ts_node_make(x->graph, ts_op_find(op), o->weight ? 3 : 2, in, n, attr));
}

ts_value *ts_nll_loss_o(ts_value *logp, ts_value *target, const ts_loss_options *o)
{
    return class_loss("nll_loss", logp, target, o);
}

ts_value *ts_cross_entropy_o(ts_value *logits, ts_value *target, const ts_loss_options *o)
{
    return class_loss("cross_entropy", logits, target, o);
}

ts_value *ts_loss_o(const char *op, ts_value *x, ts_value *target, const ts_loss_options *o)
{
    ts_value *in[4] = {x, target};
    ts_loss_options own;
    ts_attr attr[4];
    int n = 0, nin = 2;
    bool logits = op && !strcmp(op, "binary_cross_entropy_with_logits");

    if (!(o = loss_options(x, o, &own)) || !reduction_name(x, o->reduction))
        return NULL;
    if (!op || !ts_op_find(op))
        return ts_graph_refuse(x->graph, TS_ERR_ARG, NULL, "there is no loss '%s'",
                               op ? op : "NULL");
    attr[n++] = ts_attr_s("reduction", reductions[o->reduction]);
    if (o->beta > 0)
        attr[n++] = ts_attr_f("beta", o->beta);
    if (o->log_target)
        attr[n++] = ts_attr_i("log_target", 1);
    if (o->weight)
        in[nin++] = o->weight;
    if (o->pos_weight)
        in[nin++] = o->pos_weight;
    if (o->pos_weight && !logits)
        return ts_graph_refuse(x->graph, TS_ERR_ARG, NULL, "%s has no pos_weight", op);
    if (o->weight && logits)
        attr[n++] = ts_attr_i("has_weight", 1);
    return ts_node_out(ts_node_make(x->graph, ts_op_find(op), nin, in, n, attr));
}

ts_value *ts_identity_loss(ts_value *x, ts_reduction r)
{
    ts_attr attr;

    if (!x || !reduction_name(x, r))
        return NULL;
    attr = ts_attr_s("reduction", reductions[r]);
    return ts_make1(TS_OP(identity_loss), x, 1, &attr);
}
