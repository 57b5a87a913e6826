/* pad.c - convolutions over rows read padding from memory instead of testing for it.
 *
 *   before                                  after
 *     %2 = conv %x, %w  padding=[1,1]         %2 = pad %x  lo=[0,0,1,1] hi=[0,0,1,1]
 *                                             %3 = conv %2, %w
 *     %4 = conv_input %dy, %w                 %5 = pad %dy lo=[0,0,2,2] hi=[0,0,2,2]
 *                                             %4 = conv_input %5, %w  padding=[2,2]
 *
 * Where neither the batch nor the channels fill the vectors (pass/layout.c), a row of the picture
 * does; a row that is cut short by padding cannot, and would be computed one by one. The gradient
 * of the input reads around its operand as a convolution with padding does. The copies cost far
 * less (a training step of a small net with a batch of 5: 1.8 -> 0.5 ms).
 *
 * Doubles are always so, because their products are made from panels (render/product.c), which have no tests. With a
 * stride the gradient of the input has zeros between the elements of dy too: more to multiply, but in panels (a training step of 64 to 128
 * channels of 28 x 28, one thread of Zen 5: 2.4 -> 0.25 s).
 *
 * needs   the layout pass to be over
 */
#include "pass/pass.h"

/* The sizes of the kernel in the spatial dims, and how many there are. */
static int kernel(const ts_node *n, const int64_t **size)
{
    *size = n->in[1]->type.dim + 2;
    if (n->op == TS_OP(conv_weight))
        ts_attr_list(n, "shape", size);
    return n->in[1]->type.rank - 2;
}

static bool is_double(const ts_node *n)
{
    return n->out[0]->type.dtype == TS_F64 && n->in[0]->type.dtype == TS_F64 &&
           n->in[1]->type.dtype == TS_F64;
}

/* How far the windows of a convolution's gradient reach around dy in dim d: where the stride divides they read dy at
 * (place + padding - tap) / stride. */
static int64_t reach(const ts_node *n, int d, int64_t padding, int64_t stride, int64_t apart)
{
    int64_t taps = n->in[1]->type.dim[2 + d], places = n->out[0]->type.dim[2 + d];
    int64_t before = TS_MAX(0, apart * (taps - 1) - padding) / stride;
    int64_t behind = (places - 1 + padding) / stride + 1 - n->in[0]->type.dim[2 + d];

    return TS_MAX(before, behind);
}

/* How much to put around the operand on each side; false: nothing, or this form does not do it. */
static bool around(const ts_node *n, int64_t *pad)
{
    const int64_t *padding, *stride, *dilation, *size;
    int spatial = kernel(n, &size), np = ts_attr_list(n, "padding", &padding);
    int ns = ts_attr_list(n, "stride", &stride), nd = ts_attr_list(n, "dilation", &dilation);
    bool any = false;

    for (int d = 0; d < spatial; d++) {
        int64_t p = np ? padding[d] : 0;
        pad[d] = p;
        if (n->op == TS_OP(conv_input)) {
            int64_t apart = nd ? dilation[d] : 1, steps = ns ? stride[d] : 1;
            pad[d] = apart * (size[d] - 1) - p;
            if (pad[d] < 0)
                return false;
            if (!is_double(n))
                pad[d] = reach(n, d, p, steps, apart);
            any = any || (is_double(n) && steps > 1);
        }
        any = any || pad[d];
    }
    return any;
}

static bool applies(const ts_node *n, int64_t *pad)
{
    if (!(n->op->flags & TS_CONV))
        return false;
    return !n->out[0]->layout.set && !n->in[0]->layout.set &&
           (n->in[0]->type.dtype == TS_F32 || is_double(n)) && around(n, pad);
}

/* x with `pad` around it; *last is what was made of it before, which will do if it is as large. */
static ts_value *padded(ts_value *x, const int64_t *pad, ts_value **last)
{
    int64_t both[TS_MAX_RANK] = {0};
    bool same = *last != NULL;

    for (int d = 2; d < x->type.rank; d++) {
        both[d] = pad[d - 2];
        same = same && (*last)->type.dim[d] == x->type.dim[d] + 2 * both[d];
    }
    if (!same)
        *last = ts_pad(x, x->type.rank, both, both, 0);
    return *last;
}

/* dy with zeros between its elements, and around them as many as the gradient's windows reach. */
static ts_value *spread(const ts_node *n, ts_value *dy, const int64_t *stride, const int64_t *pad,
                        const int64_t *reach)
{
    int64_t lo[TS_MAX_RANK] = {0}, hi[TS_MAX_RANK] = {0}, shape[TS_MAX_RANK];
    int rank = dy->type.rank;

    memcpy(shape, dy->type.dim, sizeof(shape));
    for (int d = 2; d < rank; d++) {
        int64_t size = shape[d], all = n->out[0]->type.dim[d] + reach[d - 2];
        shape[d] = size * stride[d - 2];
        dy = ts_unsqueeze(dy, d + 1);
        hi[d + 1] = stride[d - 2] - 1;
        dy = ts_pad(dy, rank + 1, lo, hi, 0);
        hi[d + 1] = 0;
        dy = ts_reshape_n(dy, rank, shape);
        shape[d] = TS_MIN(shape[d], all - pad[d - 2]);
        dy = ts_slice(dy, d, 0, shape[d], 1);
        lo[d] = pad[d - 2];
        hi[d] = all - pad[d - 2] - shape[d];
        dy = ts_pad(dy, rank, lo, hi, 0);
        shape[d] = all;
        lo[d] = hi[d] = 0;
    }
    return dy;
}

/* conv_input of a dy that was spread. */
static ts_value *without_strides(const ts_node *n, ts_value *const *map, const int64_t *pad)
{
    const int64_t *size, *stride, *dilation;
    int64_t one[TS_MAX_RANK], reach[TS_MAX_RANK], steps[TS_MAX_RANK];
    ts_attr attr[TS_MAX_ATTR + 2];
    int spatial = kernel(n, &size), nattr = 0;
    int ns = ts_attr_list(n, "stride", &stride), nd = ts_attr_list(n, "dilation", &dilation);

    for (int d = 0; d < spatial; d++) {
        one[d] = 1;
        steps[d] = ns ? stride[d] : 1;
        reach[d] = (nd ? dilation[d] : 1) * (size[d] - 1);
    }
    for (int i = 0; i < n->nattr; i++)
        if (strcmp(n->attr[i].name, "stride") && strcmp(n->attr[i].name, "padding"))
            attr[nattr++] = n->attr[i];
    attr[nattr++] = ts_attr_l("padding", spatial, reach);
    attr[nattr++] = ts_attr_l("stride", spatial, one);
    return ts_make2(n->op, spread(n, map[n->in[0]->id], steps, pad, reach), map[n->in[1]->id],
                    nattr, attr);
}

static ts_value *without_tests(const ts_node *n, ts_value *const *map, const int64_t *pad,
                               ts_value **last)
{
    const int64_t *size, *padding, *stride;
    int64_t now[TS_MAX_RANK] = {0};
    ts_attr attr[TS_MAX_ATTR + 1];
    int spatial = kernel(n, &size), nattr = ts_attrs_but(n, "padding", attr);
    int np = ts_attr_list(n, "padding", &padding), ns = ts_attr_list(n, "stride", &stride);

    for (int d = 0; d < spatial && n->op == TS_OP(conv_input); d++)
        now[d] = (np ? padding[d] : 0) + (ns ? stride[d] : 1) * pad[d];
    attr[nattr++] = ts_attr_l("padding", spatial, now);
    return ts_make2(n->op, padded(map[n->in[0]->id], pad, &last[n->in[0]->id]), map[n->in[1]->id],
                    nattr, attr);
}

ts_status ts_pass_pad(ts_arena *a, const ts_graph *in, const ts_options *opt, const ts_graph **out)
{
    ts_value **map, **last = TS_NEWS(a, ts_value *, in->nvalues);
    ts_graph *g;

    *out = in;
    if (opt->executor == TS_EXECUTOR_REFERENCE || ts_pass_for_gpu(opt))
        return TS_OK;
    g = ts_graph_begin_copy(a, in, &map);
    for (int i = 0; i < in->nnodes; i++) {
        const ts_node *n = in->nodes[i];
        int64_t pad[TS_MAX_RANK];
        if (!applies(n, pad)) {
            ts_graph_copy_node(g, n, map);
            continue;
        }
        g->like = n;
        map[n->out[0]->id] = is_double(n) && n->op == TS_OP(conv_input)
                                 ? without_strides(n, map, pad)
                                 : without_tests(n, map, pad, last);
        g->like = NULL;
        TS_TRY(ts_graph_check(g));
    }
    ts_graph_finish_copy(g, in, map);
    *out = g;
    return TS_OK;
}
