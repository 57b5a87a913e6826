/* words_grad.c - PyTorch's backward operations, which a program that differentiates inside of forward()
 * calls: the word they belong to is made again of the same arguments, and differentiated (op/grad.c). So they
 * have no formulae of their own, and have gradients again.
 *
 *   aten::hardshrink_backward(dy, x, lambd)   y = hardshrink(x, lambd); dx = the gradient of y by x, times dy
 *
 * dy has the type of the word's answer. What a backward operation does not have, because the word is linear
 * in it, is zeros.
 */
#include <stdlib.h>
#include <string.h>

#include "front/words.h"

/* One row of what only a trace says: c->row->op is "word places by".
 *   places   the word's arguments, letters: a .. z the backward operation's first, second ..; - none;
 *            0 .. 9 that number; A .. Z zeros of the shape that argument is a list of, in the type of dy
 *   by       which of the word's arguments the results are the gradients of, digits */
typedef struct plan {
    char word[48], places[TS_WORD_PARAMS + 1], by[TS_WORD_PARAMS + 1];
} plan;

static ts_arg zeros(ts_call *c, int i, ts_dtype t)
{
    int64_t dims[TS_MAX_RANK];
    int rank = ts_call_ints(c, i, dims);

    return ts_arg_tensor(NULL, ts_full_n(c->g, t, 0, rank, dims));
}

static ts_arg argument(ts_call *c, char place, ts_dtype t)
{
    static const ts_arg none;

    if (place >= 'A' && place <= 'Z')
        return zeros(c, place - 'A', t);
    if (place >= '0' && place <= '9')
        return ts_arg_int(NULL, place - '0');
    return place >= 'a' && place - 'a' < c->nargs ? c->args[place - 'a'] : none;
}

/* The word's call, with the answer that dy is the gradient of. */
static ts_call *again(ts_call *c, const plan *p, const ts_value *dy, ts_arg *args)
{
    ts_call *f = calloc(1, sizeof(*f));

    if (!f)
        return ts_graph_refuse(c->g, TS_ERR_MEMORY, NULL, "no memory for a call of %s", p->word);
    f->g = c->g;
    f->row = ts_word_find(p->word);
    f->args = args;
    f->nargs = (int)strlen(p->places);
    for (int i = 0; i < f->nargs; i++)
        args[i] = argument(c, p->places[i], ts_dtype_of(dy));
    f->dtype = ts_dtype_of(dy);
    f->rank = ts_call_shape_of(dy, f->dims);
    return f;
}

/* Differentiates y by the arguments that `by` names; results come in that order, zeros where y does not
 * depend on one. */
static ts_value *differentiated(ts_call *c, const plan *p, ts_value *y, ts_value *dy,
                                const ts_arg *args)
{
    ts_value *x[TS_WORD_PARAMS], *dx[TS_WORD_PARAMS] = {0};
    int n = (int)strlen(p->by);

    for (int i = 0; i < n; i++)
        if (!(x[i] = args[p->by[i] - '0'].as.v))
            return NULL;
    if (ts_gradients(1, &y, &dy, n, x, dx))
        return NULL;
    memcpy(c->out, dx, sizeof(*dx) * (size_t)n);
    c->nout = n;
    return c->out[0];
}

/* One argument may be made of another, cdist(x, x + 1): each is a value of its own here, so that the
 * gradient by one does not go through the other. */
static void part(const plan *p, ts_arg *args)
{
    for (const char *i = p->by; *i; i++)
        if (args[*i - '0'].as.v)
            args[*i - '0'].as.v = ts_point1("nop", args[*i - '0'].as.v);
}

static ts_value *made(ts_call *c, const plan *p, ts_value *dy)
{
    ts_arg args[TS_WORD_PARAMS] = {{0}};
    ts_call *f = again(c, p, dy, args);
    ts_value *y, *dx = NULL;

    part(p, args);
    y = f ? f->row->make(f) : NULL;
    if (y && ts_dtype_of(y) != ts_dtype_of(dy))
        y = ts_cast(y, ts_dtype_of(dy));
    if (y)
        dx = differentiated(c, p, y, dy, args);
    else if (f && f->why[0])
        memcpy(c->why, f->why, sizeof(c->why));
    free(f);
    return dx;
}

ts_value *ts_word_backward(ts_call *c)
{
    ts_value *dy = ts_call_tensor(c, 0);
    plan p = {0};

    if (!dy || sscanf(c->row->op, "%47s %16s %16s", p.word, p.places, p.by) != 3)
        return NULL;
    return made(c, &p, dy);
}

/* smooth_l1_loss_backward(dy, x, target, reduction, beta): of the loss of each element, for dy may have any shape
 * that x broadcasts with; the second derivative has x's */
ts_value *ts_word_smooth_l1_backward(ts_call *c)
{
    ts_value *dy = ts_call_tensor(c, 0), *x = ts_call_tensor(c, 1);
    plan p = {"smooth_l1_loss", "bc0e", "0"};

    if (!dy || !x)
        return NULL;
    dy = ts_expand_n(dy, ts_rank(x), x->type.dim);
    if (!strcmp(ts_call_reduction(c, 3), "mean"))
        dy = ts_mul_scalar(dy, 1 / (double)ts_type_count(&x->type));
    return made(c, &p, dy);
}

/* convolution_backward(dy, x, w, bias_sizes, stride, padding, dilation, transposed, output_padding, groups):
 * of x, of w, and of the bias, which is the sum over all but the channels */
ts_value *ts_word_convolution_backward(ts_call *c)
{
    plan p = {"aten::convolution", "bc-efghij", "01"};
    ts_value *dy = ts_call_tensor(c, 0), *dx;
    int64_t dims[TS_MAX_RANK];
    int n = 0;

    if (!dy || !(dx = made(c, &p, dy)))
        return NULL;
    for (int i = 0; i < ts_rank(dy); i++)
        if (i != 1)
            dims[n++] = i;
    c->out[2] = ts_sum(dy, n, dims, false);
    c->nout = 3;
    return dx;
}

/* embedding_dense_backward(dy, at, rows, padding_idx, scale_grad_by_freq) */
ts_value *ts_word_embedding_backward(ts_call *c)
{
    ts_value *dy = ts_call_tensor(c, 0), *at = ts_call_tensor(c, 1), *skip;
    int64_t rows = ts_call_int(c, 2, 0), count, width;

    if (ts_call_flag(c, 4))
        return ts_call_refuse(c,
                              "the gradient of an embedding with scale_grad_by_freq in forward()");
    if (!dy || !at)
        return NULL;
    count = ts_type_count(&at->type);
    width = ts_dim(dy, ts_rank(dy) - 1);
    at = ts_reshape_n(at, 1, &count);
    dy = ts_reshape_n(dy, 2, (int64_t[]){count, width});
    skip = ts_eq(at, ts_full_like(at, ts_call_number(c, 3, -1)));
    dy = ts_where(ts_unsqueeze(skip, 1), ts_full_like(dy, 0), dy);
    return ts_apply(c->g, "index_add", 2, (ts_value *[]){at, dy}, 2,
                    (ts_arg[]){ts_arg_int("dim", 0), ts_arg_int("size", rows)});
}
