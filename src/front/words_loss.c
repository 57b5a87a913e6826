/* words_loss.c - losses that are made of many ops: connectionist temporal classification,
 * margins.
 *
 * The simple ones are rows of the engine's own losses, in words_layer.c.
 */
#include <math.h>
#include <string.h>

#include "front/words.h"

/* multi_margin_loss(x, target, p, margin, weight, reduction):
 * sum over the other classes of max(0, margin - x[target] + x)^p / C */
ts_value *ts_word_multi_margin(ts_call *c)
{
    ts_value *x = ts_call_as(c, 0, c->dtype), *t = ts_call_tensor(c, 1),
             *weight = ts_call_tensor(c, 4);
    int64_t n, classes, last = 1;
    ts_value *at, *z, *own;

    if (!x || !t)
        return NULL;
    classes = ts_rank(x) ? ts_dim(x, -1) : 1;
    n = ts_rank(x) > 1 ? ts_dim(x, 0) : 1;
    x = ts_reshape_n(x, 2, (int64_t[]){n, classes});
    at = ts_cast(ts_reshape_n(t, 2, (int64_t[]){n, 1}), TS_I64);
    z = ts_add(ts_sub(ts_call_as(c, 3, c->dtype), ts_gather(x, 1, at)), x);
    z = ts_relu(z);
    if (ts_call_number(c, 2, 1) == 2)
        z = ts_square(z);
    if (weight)
        z = ts_mul(z, ts_apply(c->g, "index_select", 2, (ts_value *[]){weight, at}, 1,
                               (ts_arg[]){ts_arg_int("dim", 0)}));
    own = ts_eq(at, ts_reshape_n(ts_call_counted(c->g, classes, 0, 1), 2, (int64_t[]){1, classes}));
    z = ts_sum(ts_where(own, ts_call_scalar(c, 0), z), 1, &last, false);
    z = ts_mul_scalar(z, 1 / (double)classes);
    return ts_call_reduced(c, ts_rank(t) ? z : ts_reshape_n(z, 0, NULL), 5);
}

/* multilabel_margin_loss_forward(x, target, reduction): the targets of a row end at the first -1;
 * sum over targets t and other classes i of max(0, 1 - x[t] + x[i]) / C */
ts_value *ts_word_multilabel_margin(ts_call *c)
{
    ts_value *x = ts_call_as(c, 0, c->dtype), *t = ts_call_tensor(c, 1), *valid, *is, *z, *at, *k;
    int64_t n, classes, both[] = {1, 2}, first = 1;
    bool batch = x && ts_rank(x) > 1;

    c->nout = 1;
    if (!x || !t)
        return NULL;
    classes = ts_rank(x) ? ts_dim(x, -1) : 1;
    n = batch ? ts_dim(x, 0) : 1;
    x = ts_reshape_n(x, 2, (int64_t[]){n, classes});
    t = ts_reshape_n(ts_cast(t, TS_I64), 2, (int64_t[]){n, classes});
    valid = ts_cast(ts_ge(t, ts_scalar(c->g, TS_I64, 0)), TS_I32);
    valid = ts_cast(ts_call_scan(c, valid, 1, "mul"), TS_BOOL);
    at = ts_call_op2("maximum", c, t, ts_scalar(c->g, TS_I64, 0));
    k = ts_reshape_n(ts_call_counted(c->g, classes, 0, 1), 3, (int64_t[]){1, 1, classes});
    valid = ts_reshape_n(valid, 3, (int64_t[]){n, classes, 1}); /* [n, target, class] */
    is = ts_eq(ts_reshape_n(at, 3, (int64_t[]){n, classes, 1}), k);
    is = ts_cast(ts_call_op2("logical_and", c, is, valid), TS_I32);
    is = ts_cast(ts_call_fold(c, "amax", is, 1, &first, true), TS_BOOL); /* [n, 1, class] */
    z = ts_reshape_n(ts_gather(x, 1, at), 3, (int64_t[]){n, classes, 1});
    z = ts_sub(ts_reshape_n(x, 3, (int64_t[]){n, 1, classes}), z);
    z = ts_relu(ts_add_scalar(z, 1));
    valid = ts_call_op2("logical_and", c, valid, ts_call_op1("logical_not", c, is));
    z = ts_sum(ts_where(valid, z, ts_call_scalar(c, 0)), 2, both, false);
    z = ts_mul_scalar(z, 1 / (double)classes);
    return ts_call_reduced(c, batch ? z : ts_reshape_n(z, 0, NULL), 2);
}

/* --- connectionist temporal classification ----------------------------------------------------
 *
 * alpha[t][s] = log probability of all paths that have said the first s of "blank l1 blank l2 ..
 * blank" after t steps (Graves et al., 2006):
 *
 *   alpha[t][s] = log(e^alpha[s] + e^alpha[s-1] + e^alpha[s-2]) + log p[t][label s]
 *
 * the last only where label s is neither blank nor label s-2. Impossible is a large negative number
 * here and not -inf, whose differences are NaN. Written out step by step: T is a size, so it is
 * known.
 */
enum { STEPS = 512 };
static const double impossible = -1e30;

typedef struct ctc {
    ts_value *labels;            /* [N, S]: 0 .. 2L of "blank l1 blank .." */
    ts_value *skip;              /* [N, S]: may s-2 come before? */
    ts_value *steps, *lengths;   /* [N, 1] in i64: how many steps, how many labels */
    int64_t n, classes, size, t; /* size: S = 2 L + 1 */
} ctc;

/* Lengths as [N, 1]: a tensor, or a list. */
static ts_value *lengths_of(ts_call *c, int arg, int64_t n)
{
    ts_value *v = ts_call_tensor(c, arg);
    int64_t numbers[1024];

    if (v)
        return ts_cast(ts_reshape_n(v, 2, (int64_t[]){n, 1}), TS_I64);
    if (ts_call_count(c, arg) != n || n > 1024)
        return ts_call_refuse(c, "lengths that are neither a tensor nor a list of %lld",
                              (long long)n);
    for (int i = 0; i < n; i++)
        numbers[i] = (int64_t)ts_call_item(c, arg, i);
    return ts_const_n(c->g, TS_I64, numbers, 2, (int64_t[]){n, 1});
}

/* [N, L]: targets that come one after the other are laid out in rows. */
static ts_value *target_rows(ts_call *c, ts_value *targets, const ctc *s)
{
    ts_value *at;
    int64_t all;

    targets = ts_cast(targets, TS_I64);
    if (!targets || ts_rank(targets) == 2)
        return targets;
    all = ts_dim(targets, 0);
    at = ts_sub(ts_call_scan(c, s->lengths, 0, "add"), s->lengths);
    at = ts_add(at, ts_reshape_n(ts_call_counted(c->g, all, 0, 1), 2, (int64_t[]){1, all}));
    at = ts_call_op2("minimum", c, at, ts_scalar(c->g, TS_I64, (double)(all - 1)));
    return ts_apply(c->g, "index_select", 2, (ts_value *[]){targets, at}, 1,
                    (ts_arg[]){ts_arg_int("dim", 0)});
}

/* x[s - by], `with` where there is none */
static ts_value *back(ts_value *x, int64_t by, double with)
{
    int64_t lo[] = {0, by}, hi[] = {0, 0};

    return ts_pad(ts_slice(x, 1, 0, ts_dim(x, 1) - by, 1), 2, lo, hi, with);
}

static bool start_ctc(ts_call *c, ctc *s)
{
    ts_value *p = ts_call_tensor(c, 0), *rows,
             *blank = ts_scalar(c->g, TS_I64, ts_call_number(c, 4, 0));
    int64_t l;

    if (!p || !ts_call_tensor(c, 1) || ts_rank(p) != 3)
        return ts_call_refuse(c, "log probabilities of rank %d; 3 are needed", p ? ts_rank(p) : 0);
    *s = (ctc){.t = ts_dim(p, 0), .n = ts_dim(p, 1), .classes = ts_dim(p, 2)};
    if (s->t > STEPS)
        return ts_call_refuse(c, "more than %d steps", STEPS);
    s->steps = lengths_of(c, 2, s->n);
    s->lengths = lengths_of(c, 3, s->n);
    if (!s->steps || !s->lengths)
        return false;
    rows = target_rows(c, ts_call_tensor(c, 1), s);
    if (!rows)
        return false;
    l = ts_dim(rows, 1);
    s->size = 2 * l + 1;
    rows = ts_reshape_n(rows, 3, (int64_t[]){s->n, l, 1}); /* blank l1, blank l2, .., blank */
    rows = ts_concat(2, (ts_value *[]){ts_expand_n(blank, 3, (int64_t[]){s->n, l, 1}), rows}, 2);
    rows = ts_reshape_n(rows, 2, (int64_t[]){s->n, 2 * l});
    s->labels = ts_concat(2, (ts_value *[]){rows, ts_expand_n(blank, 2, (int64_t[]){s->n, 1})}, 1);
    s->skip = ts_call_op2("logical_and", c, ts_ne(s->labels, blank),
                          ts_ne(s->labels, back(s->labels, 2, -1)));
    return s->skip != NULL;
}

/* log p[t][label s]: [N, S] */
static ts_value *said(ts_call *c, const ctc *s, int64_t t)
{
    ts_value *p = ts_slice(ts_call_as(c, 0, c->dtype), 0, t, t + 1, 1);

    p = ts_reshape_n(p, 2, (int64_t[]){s->n, s->classes});
    return ts_gather(p, 1, s->labels);
}

static ts_value *next_alpha(ts_call *c, const ctc *s, ts_value *alpha, int64_t t)
{
    ts_value *two = ts_where(s->skip, back(alpha, 2, impossible), ts_call_scalar(c, impossible));
    ts_value *in[] = {alpha, back(alpha, 1, impossible), two}, *y;
    int64_t last = 2;

    y = ts_add(ts_logsumexp(ts_stack(3, in, 2), 1, &last, false), said(c, s, t));
    y = ts_call_op2("maximum", c, y, ts_call_scalar(c, impossible));
    return ts_where(ts_gt(s->steps, ts_scalar(c->g, TS_I64, (double)t)), y, alpha);
}

/* _ctc_loss(log_probs [T, N, C], targets, input_lengths, target_lengths, blank, zero_infinity) */
ts_value *ts_word_ctc(ts_call *c)
{
    ts_value *alpha, *k, *end, *over;
    int64_t last = 1;
    ctc s;

    c->nout = 1;
    if (!start_ctc(c, &s))
        return NULL;
    k = ts_reshape_n(ts_call_counted(c->g, s.size, 0, 1), 2, (int64_t[]){1, s.size});
    alpha = ts_where(ts_lt(k, ts_scalar(c->g, TS_I64, 2)), said(c, &s, 0),
                     ts_call_scalar(c, impossible));
    for (int64_t t = 1; t < s.t; t++)
        alpha = next_alpha(c, &s, alpha, t);
    over = ts_mul_scalar(s.lengths, 2); /* the last blank, or the last label */
    end = ts_call_op2("logical_or", c, ts_eq(k, over), ts_eq(k, ts_add_scalar(over, -1)));
    alpha = ts_where(end, alpha, ts_call_scalar(c, impossible));
    alpha = ts_neg(ts_logsumexp(alpha, 1, &last, false));
    return ts_where(ts_gt(alpha, ts_call_scalar(c, -impossible / 2)), ts_call_scalar(c, INFINITY),
                    alpha);
}
