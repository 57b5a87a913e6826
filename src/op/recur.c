/* recur.c - the part of a recurrent layer that goes from step to step.
 *
 *   recur(x, w, b, h0) cell="gru"            h, saved = what comes out of every step, what its gradient needs
 *   recur(x, w, b, h0, c0) cell="lstm"
 *   recur_grad(dh, w, ..) cell="lstm"        the gradients of x, h0, ..
 *
 *   x   [steps, samples, gates * width]      what the layer's input adds to the gates: one product for all steps
 *   w   [gates * width, width], b            the product with the state before, and what is added to it
 *   h   [steps, samples, width]              the states
 *
 * With p = h W' + b of the step before, the gates in PyTorch's order:
 *
 *   tanh, relu   h = f(x + p)
 *   lstm         i, f, g, o = sigmoid, sigmoid, tanh, sigmoid of x + p;  c = f c + i g;  h = o tanh(c)
 *                saved: i f g o c
 *   gru          r, z = sigmoid of x + p;  n = tanh(x + r p);  h = (1 - z) n + z h;  saved: r z n p(of n)
 *
 * reverse=1 goes from the last step to the first. Samples do not depend on each other, so the generated code
 * (render/recur.c) takes some of them through all steps, whatever their number, and the threads never meet on
 * the way. The gradient goes the same way back and leaves the gates' gradients of all steps, of which the weights'
 * are one large product.
 *
 * strips=1: w as the kernel reads it, its columns in strips of 32 (pass/strips.c).
 *   recur        [gates * width / 32, width, 32]           the gates side by side
 *   recur_grad   [width / 32, gates * width, 32]           the state's elements side by side
 */
#include "op/recur.h"
#include <math.h>

/* --- shapes --- */

static const ts_recur_cell cells[] = {
    {"lstm", TS_RECUR_LSTM, 4, 5},
    {"gru", TS_RECUR_GRU, 3, 4},
    {"tanh", TS_RECUR_TANH, 1, 0},
    {"relu", TS_RECUR_RELU, 1, 0},
};

static const ts_recur_cell *find_cell(const ts_node *n)
{
    const char *name = ts_attr_str(n, "cell", "");

    for (int i = 0; i < TS_COUNT(cells); i++)
        if (!strcmp(cells[i].name, name))
            return &cells[i];
    ts_fail_at(n, TS_ERR_ARG, "%s of a cell '%.40s'; there are lstm, gru, tanh and relu",
               n->op->name, name);
    return NULL;
}

ts_recur ts_recur_of(const ts_node *n)
{
    bool back = n->op == TS_OP(recur_grad);
    const ts_type *x = &n->in[0]->type;
    const ts_recur_cell *cell = find_cell(n);

    return (ts_recur){.cell = cell,
                      .steps = x->dim[0],
                      .samples = x->dim[1],
                      .width = back ? x->dim[2] : n->in[3]->type.dim[1],
                      .reverse = ts_attr_int(n, "reverse", 0) != 0,
                      .strips = ts_attr_int(n, "strips", 0) != 0};
}

static ts_status check_shape(const ts_node *n, int i, int rank, const int64_t *dims)
{
    const ts_type *t = &n->in[i]->type;
    bool same = t->rank == rank && t->dtype == n->in[0]->type.dtype;

    for (int d = 0; d < rank && same; d++)
        same = t->dim[d] == dims[d];
    return same ? TS_OK
                : ts_fail_at(n, TS_ERR_SHAPE,
                             "operand %d of %s has another type than its others ask for", i,
                             n->op->name);
}

static int64_t strips_of(int64_t n)
{
    return (n + TS_RECUR_STRIP - 1) / TS_RECUR_STRIP;
}

static ts_status check_weight(const ts_node *n, const ts_recur *r)
{
    int64_t gates = r->cell->gates * r->width;
    bool back = n->op == TS_OP(recur_grad);
    int64_t across = back ? r->width : gates, along = back ? gates : r->width;

    if (!r->strips)
        return check_shape(n, 1, 2, (int64_t[]){gates, r->width});
    return check_shape(n, 1, 3, (int64_t[]){strips_of(across), along, TS_RECUR_STRIP});
}

/* Operands: how many, the first of rank 3, a float that sums are not rounded in. */
static ts_status check_operands(const ts_node *n, const ts_recur_cell *cell, int count)
{
    const ts_type *x = &n->in[0]->type;

    if (!cell)
        return TS_ERR_ARG;
    if (n->nin != count)
        return ts_fail_at(n, TS_ERR_ARG, "%s of a cell %s has %d operands, not %d", n->op->name,
                          cell->name, count, n->nin);
    TS_TRY(ts_check_float(n, n->in[0]));
    if (x->rank != 3 || ts_type_count(x) == 0)
        return ts_fail_at(n, TS_ERR_SHAPE, "%s needs steps, samples and elements", n->op->name);
    return TS_OK;
}

ts_status ts_infer_recur(ts_node *n)
{
    const ts_recur_cell *cell = find_cell(n);
    bool lstm = cell && cell->kind == TS_RECUR_LSTM;
    ts_type out[2];
    ts_recur r;

    TS_TRY(check_operands(n, cell, lstm ? 5 : 4));
    if (n->in[3]->type.rank != 2)
        return ts_fail_at(n, TS_ERR_SHAPE, "recur needs a first state [samples, width]");
    r = ts_recur_of(n);
    TS_TRY(check_shape(n, 0, 3, (int64_t[]){r.steps, r.samples, cell->gates * r.width}));
    TS_TRY(check_weight(n, &r));
    TS_TRY(check_shape(n, 2, 1, (int64_t[]){cell->gates * r.width}));
    for (int i = 3; i < n->nin; i++)
        TS_TRY(check_shape(n, i, 2, (int64_t[]){r.samples, r.width}));
    out[0] = out[1] = n->in[0]->type;
    out[0].dim[2] = r.width;
    out[1].dim[2] = cell->saved * r.width;
    ts_node_set_out(n, cell->saved ? 2 : 1, out);
    return TS_OK;
}

/* lstm: dh, w, saved, c0, the last c's; gru: dh, w, saved, h0, h; others: dh, w, h */
ts_status ts_infer_recur_grad(ts_node *n)
{
    const ts_recur_cell *cell = find_cell(n);
    ts_type out[3];
    ts_recur r;
    int64_t all[3], state[2];

    TS_TRY(check_operands(n, cell, cell && cell->saved ? 5 : 3));
    r = ts_recur_of(n);
    TS_TRY(check_weight(n, &r));
    memcpy(all, n->in[0]->type.dim, sizeof(all));
    memcpy(state, all + 1, sizeof(state));
    if (!cell->saved)
        TS_TRY(check_shape(n, 2, 3, all));
    if (cell->saved) {
        TS_TRY(check_shape(n, 2, 3, (int64_t[]){all[0], all[1], cell->saved * all[2]}));
        TS_TRY(check_shape(n, 3, 2, state));
        TS_TRY(cell->kind == TS_RECUR_LSTM ? check_shape(n, 4, 2, state)
                                           : check_shape(n, 4, 3, all));
    }
    out[0] = out[2] = n->in[0]->type;
    out[0].dim[2] *= cell->gates;
    out[1] = ts_type_of(n->in[0]->type.dtype, 2, state);
    if (cell->kind == TS_RECUR_LSTM)
        out[2] = out[1];
    ts_node_set_out(n, cell->saved ? 3 : 2, out);
    return TS_OK;
}

/* --- the gradient --- */

static ts_value *zeros(ts_graph *g, ts_dtype t, int rank, const int64_t *dims)
{
    return ts_full_n(g, t, 0, rank, dims);
}

static ts_value *rows_of(ts_value *v)
{
    return v ? ts_reshape_n(v, 2, (int64_t[]){-1, v->type.dim[2]}) : NULL;
}

static ts_value *turned(ts_value *v)
{
    return ts_permute_n(v, 2, (int64_t[]){1, 0});
}

/* The weight's gradient, of the rows whose gates have these gradients: those of a step with the state before. */
static ts_value *weight_grad(const ts_recur *r, ts_value *gates, ts_value *h, ts_value *h0)
{
    int64_t t = r->steps, one = r->reverse ? t - 1 : 0, from = r->reverse ? 0 : 1;
    ts_value *first = ts_matmul(turned(rows_of(ts_slice(gates, 0, one, one + 1, 1))), h0);
    ts_value *then = ts_slice(gates, 0, from, from + t - 1, 1);

    if (t == 1)
        return first;
    h = ts_slice(h, 0, 1 - from, t - from, 1);
    return ts_add(ts_matmul(turned(rows_of(then)), rows_of(h)), first);
}

/* The last c is a part of what is saved, and all of it that has a gradient. */
static ts_value *last_c(const ts_recur *r, ts_value *saved)
{
    int64_t at = r->reverse ? 0 : r->steps - 1, w = r->width;

    saved = ts_slice(ts_slice(saved, 0, at, at + 1, 1), 2, 4 * w, 5 * w, 1);
    return saved ? ts_reshape_n(saved, 2, (int64_t[]){r->samples, w}) : NULL;
}

static ts_node *backward(ts_node *n, const ts_recur *r, ts_value *const *dy)
{
    ts_graph *g = n->out[0]->graph;
    ts_dtype t = n->in[0]->type.dtype;
    int64_t all[] = {r->steps, r->samples, r->width};
    ts_value *dh = dy[0] ? dy[0] : zeros(g, t, 3, all), *in[5] = {dh, n->in[1], n->out[0]};
    ts_attr attr[] = {ts_attr_s("cell", r->cell->name), ts_attr_i("reverse", r->reverse)};

    if (r->cell->saved)
        in[2] = n->out[1];
    if (r->cell->kind == TS_RECUR_LSTM) {
        in[3] = n->in[4];
        in[4] = dy[1] ? last_c(r, dy[1]) : zeros(g, t, 2, all + 1);
    } else if (r->cell->kind == TS_RECUR_GRU) {
        in[3] = n->in[3];
        in[4] = n->out[0];
    }
    return ts_node_make(g, TS_OP(recur_grad), r->cell->saved ? 5 : 3, in, 2, attr);
}

static ts_value *sum_steps(ts_value *v)
{
    return ts_sum(v, 2, (int64_t[]){0, 1}, false);
}

ts_status ts_grad_recur(ts_node *n, ts_value *const *dy, ts_value **dx)
{
    ts_recur r = ts_recur_of(n);
    ts_node *back = backward(n, &r, dy);
    ts_value *h = n->out[0], *h0 = n->in[3], *gates, *part[2], *sums[2];

    if (!back)
        return n->out[0]->graph->status;
    dx[0] = gates = back->out[0];
    dx[3] = back->out[1];
    if (r.cell->kind == TS_RECUR_LSTM)
        dx[4] = back->out[2];
    if (r.cell->kind != TS_RECUR_GRU) {
        dx[1] = weight_grad(&r, gates, h, h0);
        dx[2] = sum_steps(gates);
        return n->out[0]->graph->status;
    }
    gates = ts_slice(gates, 2, 0, 2 * r.width, 1); /* r and z add x + p; of n, p is a factor's */
    part[0] = weight_grad(&r, gates, h, h0);
    part[1] = weight_grad(&r, back->out[2], h, h0);
    sums[0] = sum_steps(gates);
    sums[1] = sum_steps(back->out[2]);
    dx[1] = ts_concat(2, part, 0);
    dx[2] = ts_concat(2, sums, 0);
    return n->out[0]->graph->status;
}

/* --- reference --- */

/* Element (gate q, element k of the state before) of w. */
static double weight(const ts_recur *r, const ts_tensor *w, int64_t q, int64_t k, bool back)
{
    int64_t s = TS_RECUR_STRIP, at = q * r->width + k;

    if (r->strips && !back)
        at = (q / s * r->width + k) * s + q % s;
    else if (r->strips)
        at = (k / s * r->cell->gates * r->width + q) * s + k % s;
    return ts_dtype_get(w->type.dtype, w->data, at);
}

static double get(const ts_tensor *t, int64_t row, int64_t width, int64_t i)
{
    return ts_dtype_get(t->type.dtype, t->data, row * width + i);
}

static void set(const ts_tensor *t, int64_t row, int64_t width, int64_t i, double x)
{
    ts_dtype_set(t->type.dtype, t->data, row * width + i, x);
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

/* Element i of a step: its gates' x and p, and the state before, to the state after and what is saved. */
static double step(ts_recur_kind kind, const double *x, const double *p, double h, double c,
                   double *saved)
{
    switch (kind) {
    case TS_RECUR_LSTM:
        for (int g = 0; g < 4; g++)
            saved[g] = g == 2 ? tanh(x[g] + p[g]) : sigmoid(x[g] + p[g]);
        saved[4] = saved[1] * c + saved[0] * saved[2];
        return saved[3] * tanh(saved[4]);
    case TS_RECUR_GRU:
        saved[0] = sigmoid(x[0] + p[0]);
        saved[1] = sigmoid(x[1] + p[1]);
        saved[2] = tanh(x[2] + saved[0] * p[2]);
        saved[3] = p[2];
        return (1 - saved[1]) * saved[2] + saved[1] * h;
    case TS_RECUR_TANH:
        return tanh(x[0] + p[0]);
    default:
        return x[0] + p[0] > 0 ? x[0] + p[0] : x[0] + p[0] <= 0 ? 0 : x[0] + p[0];
    }
}

static void forward_sample(const ts_recur *r, const ts_tensor *in, ts_tensor *out, int64_t sample,
                           double *h, double *c)
{
    int64_t w = r->width, all = r->cell->gates * w;
    double *next = h + 2 * w;

    for (int64_t s = 0; s < r->steps; s++) {
        int64_t row = (r->reverse ? r->steps - 1 - s : s) * r->samples + sample;
        for (int64_t i = 0; i < w; i++) {
            double x[4], p[4], saved[5] = {0};
            for (int g = 0; g < r->cell->gates; g++) {
                x[g] = get(&in[0], row, all, g * w + i);
                p[g] = get(&in[2], 0, 0, g * w + i);
                for (int64_t k = 0; k < w; k++)
                    p[g] += weight(r, &in[1], g * w + i, k, false) * h[k];
            }
            next[i] = step(r->cell->kind, x, p, h[i], c[i], saved);
            c[i] = saved[4];
            set(&out[0], row, w, i, next[i]);
            for (int k = 0; k < r->cell->saved; k++)
                set(&out[1], row, r->cell->saved * w, k * w + i, saved[k]);
        }
        memcpy(h, next, (size_t)w * sizeof(*h));
    }
}

ts_status ts_eval_recur(const ts_node *n, const ts_eval_ctx *ctx, const ts_tensor *in,
                        ts_tensor *out)
{
    ts_recur r = ts_recur_of(n);
    int64_t w = r.width;
    double *h = calloc((size_t)(3 * w), sizeof(*h)), *c = h + w;

    (void)ctx;
    if (!h)
        return ts_fail(TS_ERR_MEMORY, "no memory for a state of %ld", (long)w);
    for (int64_t sample = 0; sample < r.samples; sample++) {
        for (int64_t i = 0; i < w; i++) {
            h[i] = get(&in[3], sample, w, i);
            c[i] = n->nin > 4 ? get(&in[4], sample, w, i) : 0;
        }
        forward_sample(&r, in, out, sample, h, c);
    }
    free(h);
    return TS_OK;
}

/* The gates' gradients, with p's of gru's n in the fourth; *carry is what goes to the state before without
 * the product, *dc what c's gradient is there. */
static void step_grad(ts_recur_kind kind, const double *s, double h, double before, double dh,
                      double *d, double *carry, double *dc)
{
    double all, t;

    *carry = 0;
    switch (kind) {
    case TS_RECUR_LSTM:
        t = tanh(s[4]);
        all = *dc + dh * s[3] * (1 - t * t);
        d[0] = all * s[2] * s[0] * (1 - s[0]);
        d[1] = all * before * s[1] * (1 - s[1]);
        d[2] = all * s[0] * (1 - s[2] * s[2]);
        d[3] = dh * t * s[3] * (1 - s[3]);
        *dc = all * s[1];
        return;
    case TS_RECUR_GRU:
        d[1] = dh * (before - s[2]) * s[1] * (1 - s[1]);
        d[2] = dh * (1 - s[1]) * (1 - s[2] * s[2]);
        d[0] = d[2] * s[3] * s[0] * (1 - s[0]);
        d[3] = d[2] * s[0];
        *carry = dh * s[1];
        return;
    case TS_RECUR_TANH:
        d[0] = dh * (1 - h * h);
        return;
    default:
        d[0] = h <= 0 ? 0 : dh;
    }
}

/* What lies before step s of the way back: c, h or nothing. */
static double before(const ts_recur *r, const ts_tensor *in, int64_t s, int64_t sample, int64_t i)
{
    int64_t row = (r->reverse ? s + 1 : r->steps - 2 - s) * r->samples + sample, w = r->width;

    if (!r->cell->saved)
        return 0;
    if (s == r->steps - 1)
        return get(&in[3], sample, w, i);
    return r->cell->kind == TS_RECUR_GRU ? get(&in[4], row, w, i)
                                         : get(&in[2], row, 5 * w, 4 * w + i);
}

static void backward_sample(const ts_recur *r, const ts_tensor *in, ts_tensor *out, int64_t sample,
                            double *dh, double *dc)
{
    int64_t w = r->width, gates = r->cell->gates, kept = TS_MAX(1, r->cell->saved);
    bool gru = r->cell->kind == TS_RECUR_GRU;
    double *d = dc + w;

    for (int64_t s = 0; s < r->steps; s++) {
        int64_t row = (r->reverse ? s : r->steps - 1 - s) * r->samples + sample;
        for (int64_t i = 0; i < w; i++) {
            double saved[5], one[4];
            for (int k = 0; k < kept; k++)
                saved[k] = get(&in[2], row, kept * w, k * w + i);
            step_grad(r->cell->kind, saved, saved[0], before(r, in, s, sample, i),
                      dh[i] + get(&in[0], row, w, i), one, &dh[i], &dc[i]);
            for (int g = 0; g < gates; g++) {
                set(&out[0], row, gates * w, g * w + i, one[g]);
                d[g * w + i] = gru && g == 2 ? one[3] : one[g];
            }
            if (gru)
                set(&out[2], row, w, i, one[3]);
        }
        for (int64_t k = 0; k < w; k++)
            for (int64_t q = 0; q < gates * w; q++)
                dh[k] += d[q] * weight(r, &in[1], q, k, true);
    }
}

ts_status ts_eval_recur_grad(const ts_node *n, const ts_eval_ctx *ctx, const ts_tensor *in,
                             ts_tensor *out)
{
    ts_recur r = ts_recur_of(n);
    bool lstm = r.cell->kind == TS_RECUR_LSTM;
    int64_t w = r.width;
    double *dh = calloc((size_t)(6 * w), sizeof(*dh)), *dc = dh + w;

    (void)ctx;
    if (!dh)
        return ts_fail(TS_ERR_MEMORY, "no memory for a state of %ld", (long)w);
    for (int64_t sample = 0; sample < r.samples; sample++) {
        for (int64_t i = 0; i < w; i++) {
            dh[i] = 0;
            dc[i] = lstm ? get(&in[4], sample, w, i) : 0;
        }
        backward_sample(&r, in, out, sample, dh, dc);
        for (int64_t i = 0; i < w; i++) {
            set(&out[1], sample, w, i, dh[i]);
            if (lstm)
                set(&out[2], sample, w, i, dc[i]);
        }
    }
    free(dh);
    return TS_OK;
}

/* --- written out --- */

static ts_value *gate(ts_value *v, int64_t w, int g)
{
    return ts_slice(v, 1, g * w, (g + 1) * w, 1);
}

static ts_value *lstm_step(ts_value *all, int64_t w, ts_value **c, ts_value **saved)
{
    for (int g = 0; g < 4; g++)
        saved[g] = g == 2 ? ts_tanh(gate(all, w, g)) : ts_sigmoid(gate(all, w, g));
    saved[4] = *c = ts_add(ts_mul(saved[1], *c), ts_mul(saved[0], saved[2]));
    return ts_mul(saved[3], ts_tanh(*c));
}

static ts_value *gru_step(ts_value *x, ts_value *p, int64_t w, ts_value *h, ts_value **saved)
{
    for (int g = 0; g < 2; g++)
        saved[g] = ts_sigmoid(ts_add(gate(x, w, g), gate(p, w, g)));
    saved[3] = gate(p, w, 2);
    saved[2] = ts_tanh(ts_add(gate(x, w, 2), ts_mul(saved[0], saved[3])));
    return ts_add(saved[2], ts_mul(saved[1], ts_sub(h, saved[2])));
}

static ts_status forward_steps(ts_graph *g, const ts_node *n, ts_value *const *in, ts_value **out)
{
    ts_recur r = ts_recur_of(n);
    ts_value **h = TS_NEWS(g->arena, ts_value *, r.steps),
             **kept = TS_NEWS(g->arena, ts_value *, r.steps);
    ts_value *state = in[3], *c = n->nin > 4 ? in[4] : NULL, *w = turned(in[1]);

    for (int64_t s = 0; s < r.steps; s++) {
        int64_t t = r.reverse ? r.steps - 1 - s : s;
        ts_value *x = rows_of(ts_slice(in[0], 0, t, t + 1, 1)), *saved[5];
        ts_value *p = ts_add(ts_matmul(state, w), in[2]);
        if (r.cell->kind == TS_RECUR_LSTM)
            state = lstm_step(ts_add(x, p), r.width, &c, saved);
        else if (r.cell->kind == TS_RECUR_GRU)
            state = gru_step(x, p, r.width, state, saved);
        else
            state = ts_point1(r.cell->name, ts_add(x, p));
        h[t] = state;
        kept[t] = r.cell->saved ? ts_concat(r.cell->saved, saved, 1) : NULL;
        TS_TRY(g->status);
    }
    out[0] = ts_stack((int)r.steps, h, 0);
    if (r.cell->saved)
        out[1] = ts_stack((int)r.steps, kept, 0);
    return g->status;
}

/* 1 - x, and x (1 - x): the slope of a sigmoid with this result */
static ts_value *rest(ts_value *x)
{
    return ts_sub(ts_full_like(x, 1), x);
}

static ts_value *slope(ts_value *x)
{
    return ts_mul(x, rest(x));
}

static ts_value *times(ts_value *x, ts_value *y, ts_value *z)
{
    return ts_mul(ts_mul(x, y), z);
}

static void lstm_step_grad(ts_value *const *s, ts_value *c, ts_value *dh, ts_value **dc,
                           ts_value **d)
{
    ts_value *t = ts_tanh(s[4]), *all = ts_add(*dc, times(dh, s[3], rest(ts_mul(t, t))));

    d[0] = times(all, s[2], slope(s[0]));
    d[1] = times(all, c, slope(s[1]));
    d[2] = times(all, s[0], rest(ts_mul(s[2], s[2])));
    d[3] = times(dh, t, slope(s[3]));
    *dc = ts_mul(all, s[1]);
}

static void gru_step_grad(ts_value *const *s, ts_value *h, ts_value *dh, ts_value **d)
{
    d[1] = times(dh, ts_sub(h, s[2]), slope(s[1]));
    d[2] = times(dh, rest(s[1]), rest(ts_mul(s[2], s[2])));
    d[0] = times(d[2], s[3], slope(s[0]));
    d[3] = ts_mul(d[2], s[0]);
}

static ts_value *step_of(ts_value *v, int64_t t)
{
    return rows_of(ts_slice(v, 0, t, t + 1, 1));
}

/* c or h before step t, on whose way back it is the s-th. */
static ts_value *state_before(const ts_recur *r, ts_value *const *in, int64_t s, int64_t t)
{
    bool lstm = r->cell->kind == TS_RECUR_LSTM;
    int64_t one = r->reverse ? t + 1 : t - 1;

    if (!r->cell->saved || s == r->steps - 1)
        return r->cell->saved ? in[3] : NULL;
    return lstm ? gate(step_of(in[2], one), r->width, 4) : step_of(in[4], one);
}

/* d: the gates' gradients, gru's p of n in the fourth. Returns those whose product with w goes on. */
static ts_value *gates_grad(const ts_recur *r, ts_value *kept, ts_value *state, ts_value *dh,
                            ts_value **d, ts_value **dc)
{
    ts_value *s[5];

    for (int k = 0; k < TS_MAX(1, r->cell->saved); k++)
        s[k] = gate(kept, r->width, k);
    if (r->cell->kind == TS_RECUR_LSTM)
        lstm_step_grad(s, state, dh, dc, d);
    else if (r->cell->kind == TS_RECUR_GRU)
        gru_step_grad(s, state, dh, d);
    else if (r->cell->kind == TS_RECUR_TANH)
        d[0] = ts_mul(dh, rest(ts_mul(s[0], s[0])));
    else
        d[0] = ts_mul(dh, ts_point1("step", s[0]));
    if (r->cell->kind == TS_RECUR_GRU)
        return ts_concat(3, (ts_value *[]){d[0], d[1], d[3]}, 1);
    return r->cell->gates > 1 ? ts_concat(r->cell->gates, d, 1) : d[0];
}

static ts_status backward_steps(ts_graph *g, const ts_node *n, ts_value *const *in, ts_value **out)
{
    ts_recur r = ts_recur_of(n);
    bool lstm = r.cell->kind == TS_RECUR_LSTM, gru = r.cell->kind == TS_RECUR_GRU;
    ts_value **dx = TS_NEWS(g->arena, ts_value *, r.steps),
             **dp = TS_NEWS(g->arena, ts_value *, r.steps);
    ts_value *carry = NULL, *dc = lstm ? in[4] : NULL;

    for (int64_t s = 0; s < r.steps; s++) {
        int64_t t = r.reverse ? s : r.steps - 1 - s;
        ts_value *dh = step_of(in[0], t), *d[4], *all, *kept = step_of(in[2], t);
        dh = carry ? ts_add(dh, carry) : dh;
        all = gates_grad(&r, kept, state_before(&r, in, s, t), dh, d, &dc);
        carry = ts_matmul(all, in[1]);
        if (gru)
            carry = ts_add(carry, ts_mul(dh, gate(kept, r.width, 1)));
        dx[t] = gru ? ts_concat(3, d, 1) : all;
        dp[t] = d[3];
        TS_TRY(g->status);
    }
    out[0] = ts_stack((int)r.steps, dx, 0);
    out[1] = carry;
    if (r.cell->saved)
        out[2] = lstm ? dc : ts_stack((int)r.steps, dp, 0);
    return g->status;
}

/* The same in nodes, a step after the other: where there is no kernel for the loop. */
ts_status ts_recur_written_out(ts_graph *g, const ts_node *n, ts_value *const *in, ts_value **out)
{
    if (ts_attr_int(n, "strips", 0))
        return ts_fail_at(n, TS_ERR_ARG, "%s with its weights in strips is for the loop only",
                          n->op->name);
    return n->op == TS_OP(recur) ? forward_steps(g, n, in, out) : backward_steps(g, n, in, out);
}

/* --- generated code --- */

/* They are kernels of their own (render/recur.c): nobody asks for their elements. */
const char *ts_emit_recur(ts_emit *e, const ts_node *n, int out, const ts_ix *const *at)
{
    (void)e, (void)n, (void)out, (void)at;
    return NULL;
}
