/* words_recur.c - recurrent layers: lstm, gru and plain ones, of any number of layers, one or two directions.
 *
 *   for each layer and direction
 *     x W' + b of all steps        one product
 *     recur                        the steps (op/recur.c)
 *
 * Arguments are those of ATen's lstm.input: weights and biases in a list, [w_ih, w_hh, b_ih, b_hh] for each
 * direction of each layer. Halves are computed in f32, and rounded where they come out of a layer.
 */
#include "front/words.h"
#include <limits.h>

enum { MOST_PARAMS = 1024 };

typedef struct recurrent {
    ts_call *c;
    ts_value *params[MOST_PARAMS], *h0, *c0;
    int each, directions;
    ts_dtype t; /* that is computed in */
} recurrent;

static ts_value *as(const recurrent *r, ts_value *v)
{
    return v && ts_dtype_of(v) != r->t ? ts_cast(v, r->t) : v;
}

/* Row i of the first states, [samples, width]. */
static ts_value *state(const recurrent *r, ts_value *v, int i)
{
    v = as(r, ts_slice(v, 0, i, i + 1, 1));
    return v ? ts_reshape_n(v, 2, (int64_t[]){v->type.dim[1], v->type.dim[2]}) : NULL;
}

static ts_value *param(const recurrent *r, int i, int which)
{
    if (which < r->each)
        return as(r, r->params[i * r->each + which]);
    return ts_full_n(r->c->g, r->t, 0, 1, r->params[i * r->each]->type.dim);
}

/* One direction of a layer: its states of all steps, and the last ones. */
static ts_value *direction(const recurrent *r, ts_value *x, int i, ts_value **h, ts_value **c)
{
    bool back = i % r->directions, lstm = r->c0 != NULL;
    ts_attr attr[] = {ts_attr_s("cell", r->c->row->op), ts_attr_i("reverse", back)};
    ts_value *w = param(r, i, 1), *in[5], *saved;
    int64_t last, width;
    ts_node *n;

    in[0] = ts_add(ts_matmul(as(r, x), ts_transpose(param(r, i, 0), 0, 1)), param(r, i, 2));
    in[1] = w;
    in[2] = param(r, i, 3);
    in[3] = state(r, r->h0, i);
    in[4] = lstm ? state(r, r->c0, i) : NULL;
    if (!in[0] || !w || !in[2] || !in[3] || (lstm && !in[4]))
        return NULL;
    n = ts_node_make(r->c->g, TS_OP(recur), lstm ? 5 : 4, in, 2, attr);
    if (!n)
        return NULL;
    last = back ? 0 : in[0]->type.dim[0] - 1;
    width = w->type.dim[1];
    *h = ts_slice(n->out[0], 0, last, last + 1, 1);
    saved = lstm ? ts_slice(n->out[1], 0, last, last + 1, 1) : NULL;
    *c = lstm ? ts_slice(saved, 2, 4 * width, 5 * width, 1) : NULL;
    return n->out[0];
}

static ts_value *rounded(const recurrent *r, ts_value *v)
{
    return v && ts_dtype_of(v) != r->c->dtype ? ts_cast(v, r->c->dtype) : v;
}

/* What is wrong with the lists, if anything. */
static bool check_lists(recurrent *r, int layers)
{
    ts_call *c = r->c;
    int n = ts_call_tensors(c, 2, MOST_PARAMS, r->params), all;
    ts_value *states[2] = {0};

    r->each = ts_call_flag(c, 3) ? 4 : 2;
    all = layers < 1 || layers > MOST_PARAMS ? 0 : layers * r->directions;
    if (!all || n != all * r->each) {
        ts_call_refuse(c, "%d weights and biases for %d layers and directions", n, all);
        return false;
    }
    if (!strcmp(c->row->op, "lstm")) {
        if (ts_call_tensors(c, 1, 2, states) != 2) {
            ts_call_refuse(c, "an lstm has two first states");
            return false;
        }
        r->c0 = states[1];
    } else
        states[0] = ts_call_tensor(c, 1);
    r->h0 = states[0];
    for (int i = 0; i < n; i++)
        if (!r->params[i])
            return false;
    if (!r->h0 || ts_rank(r->h0) != 3 || r->h0->type.dim[0] != all ||
        (r->c0 && !ts_type_same_shape(&r->c0->type, &r->h0->type))) {
        ts_call_refuse(c, "first states of another shape than [layers, samples, width]");
        return false;
    }
    return true;
}

/* The results' directions side by side. */
static ts_value *layer(const recurrent *r, ts_value *x, int i, ts_value **h, ts_value **c)
{
    ts_value *y[2];

    for (int d = 0; d < r->directions; d++) {
        int at = i * r->directions + d;
        y[d] = rounded(r, direction(r, x, at, &h[at], &c[at]));
        h[at] = rounded(r, h[at]);
        c[at] = rounded(r, c[at]);
        if (!y[d])
            return NULL;
    }
    return r->directions == 1 ? y[0] : ts_concat(2, y, 2);
}

/* lstm(x, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first) */
ts_value *ts_word_recurrent(ts_call *c)
{
    recurrent r = {.c = c, .directions = ts_call_flag(c, 7) ? 2 : 1};
    int layers = (int)TS_MIN(ts_call_int(c, 4, 1), INT_MAX);
    bool first = ts_call_flag(c, 8);
    ts_value *y = ts_call_tensor(c, 0), *h[MOST_PARAMS] = {0}, *cells[MOST_PARAMS] = {0};

    if (!y || ts_rank(y) != 3)
        return y ? ts_call_refuse(c, "an input of rank %d; it has steps, samples and elements",
                                  ts_rank(y))
                 : NULL;
    c->dtype = ts_dtype_of(y);
    r.t = ts_dtype_is_half(c->dtype) ? TS_F32 : c->dtype;
    if (!check_lists(&r, layers))
        return NULL;
    y = first ? ts_transpose(y, 0, 1) : y;
    for (int i = 0; i < layers && y; i++) {
        y = layer(&r, y, i, h, cells);
        if (i < layers - 1 && ts_call_number(c, 5, 0) > 0 && ts_call_flag(c, 6))
            y = ts_dropout(y, ts_call_number(c, 5, 0), true);
    }
    c->out[1] = y ? ts_concat(layers * r.directions, h, 0) : NULL;
    c->out[2] = y && r.c0 ? ts_concat(layers * r.directions, cells, 0) : NULL;
    c->nout = r.c0 ? 3 : 2;
    return y && first ? ts_transpose(y, 0, 1) : y;
}
