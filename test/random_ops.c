/* random_ops.c - one function a family of ops: each picks inputs, brings them into a shape that the
 * op takes, and says what it knows of the result. */
#include "random_gen.h"

static item op_unary(gen *q)
{
    item x = tame(pick_float(q));
    ts_value *v = x.v, *one;

    if (x.exact && odds(q, 50)) {
        static const char *const ops[] = {"neg",   "abs",  "sign",  "square", "relu", "step",
                                          "floor", "ceil", "round", "trunc",  "nop",  "detach"};
        const char *op = ops[roll(q, TS_COUNT(ops))];
        double mag = !strcmp(op, "square") ? x.mag * x.mag : x.mag;
        return mag > most_exact(v->type.dtype) ? none : made(ts_point1(op, v), true, mag);
    }
    one = ts_scalar(q->g, v->type.dtype, 1);
    switch (roll(q, 26)) {
    case 0:
        return made(ts_neg(v), false, x.mag);
    case 1:
        return made(ts_abs(v), false, x.mag);
    case 2:
        return made(ts_square(v), false, x.mag * x.mag);
    case 3:
        return made(ts_reciprocal(ts_add(ts_abs(v), one)), false, 1);
    case 4:
        return made(ts_sqrt(ts_add(ts_abs(v), one)), false, x.mag + 1);
    case 5:
        return made(ts_rsqrt(ts_add(ts_square(v), one)), false, 1);
    case 6:
        return made(ts_exp(ts_tanh(v)), false, 3);
    case 7:
        return made(ts_point1("expm1", ts_tanh(v)), false, 3);
    case 8:
        return made(ts_log(ts_add(ts_square(v), one)), false, 6);
    case 9:
        return made(ts_point1("log1p", ts_abs(v)), false, 6);
    case 10:
        return made(ts_point1(odds(q, 50) ? "log2" : "log10", ts_add(ts_abs(v), one)), false, 6);
    case 11:
        return made(ts_point1("sin", v), false, 1);
    case 12:
        return made(ts_point1("cos", v), false, 1);
    case 13:
    case 14:
        return made(ts_tanh(v), false, 1);
    case 15:
        return made(ts_erf(v), false, 1);
    case 16:
        return made(ts_sigmoid(v), false, 1);
    case 17:
        return made(ts_relu(v), false, x.mag);
    case 18:
        return made(ts_leaky_relu(v, 0.1), false, x.mag);
    case 19:
        return made(odds(q, 70) ? ts_gelu(v)
                                : ts_apply(q->g, "gelu", 1, &v, 1,
                                           (ts_arg[]){ts_arg_text("approximate", "tanh")}),
                    false, x.mag);
    case 20:
        return made(ts_silu(v), false, x.mag);
    case 21:
        return made(ts_elu(v, 0.7), false, x.mag);
    case 22:
        return made(ts_softplus(v), false, x.mag + 1);
    case 23:
        return made(ts_clamp(v, -0.5, 0.75), false, 1);
    case 24:
        return made(ts_dropout(v, 0.3, odds(q, 80)), false, 2 * x.mag);
    default:
        return made(ts_detach(v), x.exact, x.mag);
    }
}

static item op_binary(gen *q)
{
    item x = tame(pick_float(q)), y = tame(partner(q, x, false));

    switch (roll(q, 10)) {
    case 0:
    case 1:
        return made(ts_add(x.v, y.v), x.exact && y.exact, x.mag + y.mag);
    case 2:
    case 3:
        return made(ts_sub(x.v, y.v), x.exact && y.exact, x.mag + y.mag);
    case 4:
    case 5:
        return made(ts_mul(x.v, y.v), x.exact && y.exact, x.mag * y.mag);
    case 6:
        return made(ts_div(x.v, ts_add_scalar(ts_abs(y.v), 1)), false, x.mag);
    case 7:
        return made(odds(q, 50) ? ts_maximum(x.v, y.v) : ts_minimum(x.v, y.v), x.exact && y.exact,
                    fmax(x.mag, y.mag));
    case 8:
        return made(ts_pow(ts_add_scalar(ts_abs(x.v), 0.5), ts_tanh(y.v)), false, x.mag + 2);
    default:
        return made(ts_point2("atan2", ts_add_scalar(ts_abs(x.v), 0.5), y.v), false, 4);
    }
}

static item op_compare(gen *q)
{
    static const char *const ops[] = {"eq", "ne",          "lt",         "le",         "gt",
                                      "ge", "logical_and", "logical_or", "logical_xor"};
    item x = pick_exact(q), y = partner(q, x, true);

    if (odds(q, 20))
        return made(ts_point1(odds(q, 50) && is_float(x) ? "isnan" : "logical_not", x.v), true, 1);
    return made(ts_point2(ops[roll(q, TS_COUNT(ops))], x.v, y.v), true, 1);
}

static item op_int(gen *q)
{
    static const char *const ops[] = {"add",     "sub",          "mul",       "maximum",
                                      "minimum", "floor_divide", "remainder", "fmod"};
    item x = pick_exact(q), y = partner(q, x, true);
    const char *op = ops[roll(q, TS_COUNT(ops))];
    double mag = !strcmp(op, "mul") ? x.mag * y.mag : x.mag + y.mag;
    ts_dtype t = ts_dtype_promote(&x.v->type, &y.v->type);

    if (mag > most_exact(t) && t != TS_U8 && t != TS_I8)
        return none;
    if (strstr("floor_divide remainder fmod", op)) { /* never by 0 */
        if (t == TS_BOOL)
            return none;
        y = made(ts_add_scalar(ts_point1("abs", y.v), 1), true, y.mag + 1);
        if (t == TS_U8 || t == TS_I8) /* 255 + 1 is 0 */
            y = made(ts_cast(ts_full_n(q->g, TS_I32, 3, 0, NULL), t), true, 3);
    }
    return made(ts_point2(op, x.v, y.v), true, mag);
}

static item op_where(gen *q)
{
    item c = pick_exact(q), x = partner(q, c, false), y;

    if (c.v->type.dtype != TS_BOOL)
        c = made(odds(q, 50) ? ts_cast(c.v, TS_BOOL)
                             : ts_gt(c.v, ts_scalar(q->g, c.v->type.dtype, 0)),
                 true, 1);
    y = partner(q, x, false);
    if (!broadcasts(c, y))
        y = same_shape_leaf(q, x, some_float(q), false);
    if (!broadcasts(c, y) || !broadcasts(x, y))
        return none;
    return made(ts_where(c.v, x.v, y.v), x.exact && y.exact, fmax(x.mag, y.mag));
}

static item op_cast(gen *q)
{
    item x = pick(q);
    ts_dtype t = odds(q, 60) ? some_float(q) : some_int(q);

    if (is_float(x) && !ts_dtype_is_float(t) && !x.exact)
        return none;
    if ((t == TS_U8 || t == TS_I8) && is_float(x) && x.mag > 100)
        return none;
    return made(ts_cast(x.v, t), x.exact, x.mag);
}

static item op_view(gen *q)
{
    item x = pick(q);
    ts_type t = x.v->type;
    int64_t dims[TS_MAX_RANK], hi[TS_MAX_RANK] = {0}, lo[TS_MAX_RANK] = {0};
    int d = t.rank ? roll(q, t.rank) : 0;

    switch (roll(q, 8)) {
    case 0:
        return of_rank(q, x, roll(q, 6));
    case 1: {
        int64_t flat = count_of(x);
        return made(ts_reshape_n(x.v, 1, &flat), x.exact, x.mag);
    }
    case 2:
        for (int i = 0; i < t.rank; i++)
            dims[i] = i;
        for (int i = t.rank - 1; i > 0; i--) {
            int j = roll(q, i + 1);
            int64_t k = dims[i];
            dims[i] = dims[j];
            dims[j] = k;
        }
        return made(ts_permute_n(x.v, t.rank, dims), x.exact, x.mag);
    case 3:
        if (t.rank && t.dim[d] != 1 && odds(q, 50) && count_of(x) > t.dim[d]) {
            x = made(ts_slice(x.v, d, 0, 1, 1), x.exact, x.mag);
            t = x.v->type;
        }
        if (t.rank < 5 && count_of(x) < ELEMENTS / 4) {
            memmove(t.dim + 1, t.dim, sizeof(t.dim[0]) * (size_t)t.rank);
            t.dim[0] = 1 + roll(q, 3);
            t.rank++;
        }
        for (int i = 0; i < t.rank; i++)
            if (t.dim[i] == 1 && ts_type_count(&t) < ELEMENTS / 9)
                t.dim[i] = 1 + roll(q, 9);
        return made(ts_expand_n(x.v, t.rank, t.dim), x.exact, x.mag);
    case 4: {
        int64_t from, to;
        if (!t.rank)
            return none;
        from = roll(q, (int)t.dim[d]);
        to = from + 1 + roll(q, (int)(t.dim[d] - from));
        return made(ts_slice(x.v, d, from, to, 1 + roll(q, 3)), x.exact, x.mag);
    }
    case 5:
        for (int i = 0; i < t.rank; i++)
            if (odds(q, 50)) {
                lo[i] = roll(q, 3);
                hi[i] = roll(q, 3);
                t.dim[i] += lo[i] + hi[i];
            }
        if (ts_type_count(&t) > ELEMENTS)
            return none;
        return made(ts_pad(x.v, t.rank, lo, hi, odds(q, 60) ? 0 : 1), x.exact, x.mag + 1);
    case 6:
        if (!t.rank)
            return none;
        dims[0] = d;
        dims[1] = roll(q, t.rank);
        return made(ts_apply(q->g, "flip", 1, &x.v, 1,
                             (ts_arg[]){ts_arg_ints("dims", dims[1] == d ? 1 : 2, dims)}),
                    x.exact, x.mag);
    default: {
        ts_value *xs[4] = {x.v};
        int n = 1 + roll(q, 3);
        bool exact = x.exact;
        double mag = x.mag;
        if (!t.rank || count_of(x) * 4 > ELEMENTS)
            return none;
        for (int i = 1; i < n; i++) {
            ts_type s = x.v->type;
            s.dim[d] = 1 + roll(q, 5);
            item y = odds(q, 40) ? x : leaf(q, t.dtype, &s, x.exact);
            if (y.v->type.dtype != t.dtype)
                y.v = ts_cast(y.v, t.dtype);
            exact = exact && y.exact;
            mag = fmax(mag, y.mag);
            xs[i] = y.v;
        }
        return made(ts_concat(n, xs, d), exact, mag);
    }
    }
}

static int some_dims(gen *q, int rank, int64_t *dims)
{
    int n = 0;

    for (int i = 0; i < rank; i++)
        if (odds(q, 45))
            dims[n++] = odds(q, 20) ? i - rank : i;
    return n;
}

static item op_reduce(gen *q)
{
    item x = tame(pick(q));
    int64_t dims[TS_MAX_RANK], folded;
    int n = some_dims(q, x.v->type.rank, dims);
    bool keep = odds(q, 40), f = is_float(x);
    ts_value *y;

    switch (roll(q, 7)) {
    case 0:
    case 1:
        if (x.v->type.dtype == TS_F16 && x.mag * (double)count_of(x) > 3e4)
            return none;
        y = ts_sum(x.v, n, dims, keep);
        folded = count_of(x) / ts_type_count(&y->type);
        return made(y, x.exact, x.mag * (double)folded);
    case 2:
        return f ? made(ts_mean(x.v, n, dims, keep), false, x.mag) : none;
    case 3:
        return made(ts_amax(x.v, n, dims, keep), x.exact, x.mag);
    case 4:
        return made(ts_apply(q->g, "amin", 1, &x.v, 2,
                             (ts_arg[]){ts_arg_ints("dims", n, dims), ts_arg_int("keepdim", keep)}),
                    x.exact, x.mag);
    case 5:
        if (!f)
            return none;
        y = ts_apply(q->g, "prod", 1,
                     (ts_value *[]){ts_add_scalar(ts_mul_scalar(ts_tanh(x.v), 0.1), 1)}, 2,
                     (ts_arg[]){ts_arg_ints("dims", n, dims), ts_arg_int("keepdim", keep)});
        return made(ts_tanh(y), false, 1);
    default:
        return f ? made(ts_logsumexp(x.v, n, dims, keep), false, x.mag + 9) : none;
    }
}

static item op_arg(gen *q)
{
    item x = pick_exact(q);
    int64_t dim;

    if (!x.v->type.rank)
        return none;
    dim = roll(q, x.v->type.rank);
    return made(ts_apply(q->g, odds(q, 50) ? "argmax" : "argmin", 1, &x.v, 2,
                         (ts_arg[]){ts_arg_ints("dims", (int)odds(q, 80), &dim),
                                    ts_arg_int("keepdim", odds(q, 40))}),
                true, (double)count_of(x));
}

static item op_softmax(gen *q)
{
    item x = tame(pick_float(q));
    int dim;

    if (!x.v->type.rank)
        return none;
    dim = roll(q, x.v->type.rank);
    return odds(q, 50) ? made(ts_softmax(x.v, dim), false, 1)
                       : made(ts_log_softmax(x.v, dim), false, 2 * x.mag + 9);
}

static item scaled(item x, double by, int64_t terms)
{
    double mag = x.mag * by * (double)terms;

    if (x.v && mag > 20)
        return made(ts_mul_scalar(x.v, 1 / sqrt((double)terms)), false,
                    x.mag * by * sqrt((double)terms));
    return made(x.v, false, mag);
}

static item op_matmul(gen *q)
{
    item x = tame(pick_float(q)), y;
    ts_type t, s;

    x = of_rank(q, x, 2 + roll(q, 3));
    t = x.v->type;
    s = t;
    s.dim[t.rank - 2] = t.dim[t.rank - 1];
    s.dim[t.rank - 1] = 1 + roll(q, 20);
    if (odds(q, 40))
        s = ts_type_of(TS_F32, 2, s.dim + t.rank - 2);
    for (int i = 0; i < s.rank - 2; i++)
        if (odds(q, 40))
            s.dim[i] = 1;
    if (odds(q, 30)) { /* the batch comes from the other side */
        for (int i = 0; i < t.rank - 2; i++)
            if (t.dim[i] == 1 && s.rank == t.rank)
                s.dim[i] = 1 + roll(q, 3);
    }
    y = leaf(q, x.v->type.dtype, &s, false);
    if (count_of(x) / t.dim[t.rank - 1] * s.dim[s.rank - 1] > ELEMENTS || count_of(y) > ELEMENTS)
        return none;
    if (y.v->type.dtype != x.v->type.dtype)
        y.v = ts_cast(y.v, x.v->type.dtype);
    if (odds(q, 30)) /* op rather than builder: leading dims stay */
        return scaled(
            made(ts_apply(q->g, "matmul", 2, (ts_value *[]){x.v, y.v}, 0, NULL), false, x.mag), 1,
            t.dim[t.rank - 1]);
    return scaled(made(ts_matmul(x.v, y.v), false, x.mag), 1, t.dim[t.rank - 1]);
}

static item op_linear(gen *q)
{
    item x = tame(pick_float(q));
    char name[32];

    if (x.v->type.rank < 1 || count_of(x) / ts_dim(x.v, -1) > 500)
        return none;
    snprintf(name, sizeof(name), "fc%d%s", q->leaves, odd_end(q->leaves));
    q->leaves++;
    return made(ts_linear(x.v, name, 1 + roll(q, 12)), false, 3 * x.mag);
}

typedef struct window {
    int64_t kernel[3], stride[3], padding[3], dilation[3], out[3];
    int64_t taps, places;
} window;

static bool some_window(gen *q, int spatial, const int64_t *size, bool pool, window *w)
{
    w->taps = w->places = 1;
    for (int d = 0; d < spatial; d++) {
        w->kernel[d] = 1 + roll(q, (int)TS_MIN(size[d], 4));
        w->stride[d] = 1 + roll(q, 3);
        w->dilation[d] = pool ? 1 : 1 + roll(q, 2);
        w->padding[d] = roll(q, pool ? (int)w->kernel[d] / 2 + 1 : 3);
        int64_t room = size[d] + 2 * w->padding[d] - w->dilation[d] * (w->kernel[d] - 1) - 1;
        if (room < 0)
            return false;
        w->out[d] = room / w->stride[d] + 1;
        w->taps *= w->kernel[d];
        w->places *= w->out[d];
    }
    return true;
}

static ts_attr *conv_attrs(const window *w, int spatial, int64_t groups, const int64_t *shape,
                           int *n)
{
    static ts_attr a[5];

    *n = 0;
    a[(*n)++] = ts_attr_l("stride", spatial, w->stride);
    a[(*n)++] = ts_attr_l("padding", spatial, w->padding);
    a[(*n)++] = ts_attr_l("dilation", spatial, w->dilation);
    a[(*n)++] = ts_attr_i("groups", groups);
    if (shape)
        a[(*n)++] = ts_attr_l("shape", spatial, shape);
    return a;
}

static item op_conv(gen *q)
{
    int spatial = 1 + roll(q, 3), n;
    item x = of_rank(q, tame(pick_float(q)), spatial + 2), w;
    ts_type t = x.v->type, s = t;
    int64_t groups = 1, each, out;
    window win;
    ts_attr *attr;

    for (int64_t k = 2; k <= 4; k++)
        if (t.dim[1] % k == 0 && odds(q, 30))
            groups = k;
    if (odds(q, 15))
        groups = t.dim[1];
    each = 1 + roll(q, 4);
    out = groups * each;
    if (!some_window(q, spatial, t.dim + 2, false, &win) || out > 64)
        return none;
    s.dim[0] = out;
    s.dim[1] = t.dim[1] / groups;
    memcpy(s.dim + 2, win.kernel, sizeof(int64_t) * (size_t)spatial);
    int64_t terms = s.dim[1] * win.taps, made_count = t.dim[0] * out * win.places;
    if (made_count > ELEMENTS || made_count * terms > 400000 || ts_type_count(&s) > ELEMENTS)
        return none;
    w = leaf(q, t.dtype, &s, false);
    w.v = ts_cast(w.v, t.dtype);
    attr = conv_attrs(&win, spatial, groups, NULL, &n);
    item y = made(ts_make2(TS_OP(conv), x.v, w.v, n, attr), false, x.mag);
    int which = roll(q, 4);
    if (which < 2 || !y.v)
        return scaled(y, 1, terms);
    y = tame(scaled(y, 1, terms));
    y.v = ts_cast(y.v, t.dtype);
    if (which == 2) { /* back to x's shape */
        attr = conv_attrs(&win, spatial, groups, t.dim + 2, &n);
        return scaled(made(ts_make2(TS_OP(conv_input), y.v, w.v, n, attr), false, y.mag), 1,
                      each * win.taps);
    }
    attr = conv_attrs(&win, spatial, groups, s.dim + 2, &n);
    return scaled(made(ts_make2(TS_OP(conv_weight), x.v, y.v, n, attr), false, y.mag), x.mag,
                  t.dim[0] * win.places);
}

static item op_layer_conv(gen *q)
{
    item x = of_rank(q, tame(pick_float(q)), 4);
    ts_type t = x.v->type;
    char name[32];
    int k = 1 + roll(q, 3), out = 1 + roll(q, 6);

    if (t.dim[2] < k || t.dim[3] < k || t.dim[1] > 20 || count_of(x) * out * k * k > 200000)
        return none;
    snprintf(name, sizeof(name), "conv%d%s", q->leaves, odd_end(q->leaves));
    q->leaves++;
    if (odds(q, 40) && count_of(x) < 800)
        return made(ts_conv_transpose2d(x.v, name, out, k, .stride = 1 + roll(q, 2)), false,
                    3 * x.mag);
    return made(ts_conv2d(x.v, name, out, k, .padding = roll(q, 2), .stride = 1 + roll(q, 2),
                          .no_bias = odds(q, 30)),
                false, 3 * x.mag);
}

static item op_pool(gen *q)
{
    int spatial = 1 + roll(q, 3);
    item x = of_rank(q, tame(pick(q)), spatial + 2), y;
    bool max = odds(q, 50), f = is_float(x);
    int64_t ceil_mode = odds(q, 30);
    ts_value *v;
    window w;

    if (!f && (!max || x.v->type.dtype == TS_BOOL))
        return none;
    if (!some_window(q, spatial, x.v->type.dim + 2, true, &w))
        return none;
    v = ts_apply(q->g,
                 max           ? "max_pool"
                 : odds(q, 50) ? "avg_pool"
                               : "sum_pool",
                 1, &x.v, 4,
                 (ts_arg[]){ts_arg_ints("kernel", spatial, w.kernel),
                            ts_arg_ints("stride", spatial, w.stride),
                            ts_arg_ints("padding", spatial, w.padding),
                            ts_arg_int("ceil_mode", ceil_mode)});
    y = made(v, x.exact && max, x.mag * (max ? 1 : (double)w.taps));
    if (max && x.exact && odds(q, 50)) {
        q->pool[q->n++] = made(ts_result(v, 1), true, (double)w.taps);
        if (f && odds(q, 50) && v) {
            ts_attr attr[] = {
                ts_attr_l("kernel", spatial, w.kernel), ts_attr_l("stride", spatial, w.stride),
                ts_attr_l("padding", spatial, w.padding),
                ts_attr_l("shape", spatial, x.v->type.dim + 2), ts_attr_i("ceil_mode", ceil_mode)};
            ts_value *g = ts_make2(TS_OP(max_pool_grad), v, ts_result(v, 1), 5, attr);
            return made(g, x.exact, x.mag * (double)w.taps);
        }
    }
    return y;
}

static item op_resize(gen *q)
{
    item x = of_rank(q, tame(pick_float(q)), 4);
    ts_type t = x.v->type;
    int64_t h = 1 + roll(q, 9), w = 1 + roll(q, 9);

    if (t.dim[0] * t.dim[1] * h * w > ELEMENTS || t.dim[0] * t.dim[1] * h * t.dim[3] > ELEMENTS)
        return none;
    switch (roll(q, 3)) {
    case 0:
        return made(ts_upsample_nearest2d(x.v, h, w), x.exact, x.mag);
    case 1:
        return made(ts_upsample_bilinear2d(x.v, h, w, odds(q, 50)), false, x.mag);
    default:
        return made(ts_adaptive_avg_pool2d(x.v, h, w), false, x.mag);
    }
}

/* An index with values in 0..n-1. */
static ts_value *index_leaf(gen *q, int64_t n, int rank, const int64_t *dims)
{
    char name[48];
    static const ts_dtype types[] = {TS_I32, TS_I64, TS_U8};
    ts_dtype t = types[roll(q, 3)];

    snprintf(name, sizeof(name), "n%ld_%d", (long)n, q->leaves++);
    return ts_input_n(q->g, name, n > 255 && t == TS_U8 ? TS_I32 : t, rank, dims);
}

static item op_index(gen *q)
{
    item x = tame(pick(q));
    ts_type t = x.v->type, s = t;
    int d = t.rank ? roll(q, t.rank) : 0;
    ts_value *i;

    if (!t.rank || t.dtype == TS_BOOL)
        return none;
    for (int k = 0; k < t.rank; k++)
        s.dim[k] = k == d ? 1 + roll(q, 9) : 1 + roll(q, (int)t.dim[k]);
    switch (roll(q, 5)) {
    case 0:
        i = index_leaf(q, t.dim[d], t.rank, s.dim);
        return made(ts_gather(x.v, d, i), x.exact, x.mag);
    case 1: {
        i = index_leaf(q, 5, t.rank, t.dim);
        s = t;
        s.dim[d] = 5;
        for (int k = 0; k < t.rank; k++)
            s.dim[k] += k == d ? 0 : roll(q, 2);
        if (ts_type_count(&s) > ELEMENTS)
            return none;
        return made(ts_apply(q->g, "scatter_add", 2, (ts_value *[]){i, x.v}, 2,
                             (ts_arg[]){ts_arg_int("dim", d), ts_arg_ints("shape", s.rank, s.dim)}),
                    x.exact, x.mag * (double)t.dim[d]);
    }
    case 2: {
        int64_t dims[2] = {1 + roll(q, 6), 1 + roll(q, 3)};
        int rank = roll(q, 3);
        if (t.rank + rank - 1 > 6 || count_of(x) / t.dim[d] * 24 > ELEMENTS)
            return none;
        i = index_leaf(q, t.dim[d], rank, dims);
        return made(ts_apply(q->g, "index_select", 2, (ts_value *[]){x.v, i}, 1,
                             (ts_arg[]){ts_arg_int("dim", d)}),
                    x.exact, x.mag);
    }
    case 3:
        i = index_leaf(q, 6, 1, &t.dim[d]);
        if (count_of(x) / t.dim[d] * 6 > ELEMENTS)
            return none;
        return made(ts_apply(q->g, "index_add", 2, (ts_value *[]){i, x.v}, 2,
                             (ts_arg[]){ts_arg_int("dim", d), ts_arg_int("size", 6)}),
                    x.exact, x.mag * (double)t.dim[d]);
    default:
        if (count_of(x) * 7 > ELEMENTS || t.rank > 5)
            return none;
        i = index_leaf(q, 7, t.rank, t.dim);
        return made(ts_one_hot(i, 7, odds(q, 50) ? TS_F32 : some_int(q)), true, 1);
    }
}

static item op_norm(gen *q)
{
    item x = tame(pick_float(q));
    char name[32];

    snprintf(name, sizeof(name), "norm%d%s", q->leaves, odd_end(q->leaves));
    q->leaves++;
    switch (roll(q, 3)) {
    case 0:
        if (x.v->type.rank < 1 || ts_dim(x.v, -1) < 2)
            return none;
        return made(ts_layer_norm(x.v, name, .eps = 0.1), false, 5);
    case 1:
        x = of_rank(q, x, 3 + roll(q, 2));
        if (count_of(x) / x.v->type.dim[1] < 2)
            return none;
        return made(ts_batch_norm(x.v, name, .eps = 0.1, .inference = odds(q, 25)), false, 5);
    default:
        x = of_rank(q, x, 3 + roll(q, 2));
        return made(ts_group_norm(x.v, name, (int)(x.v->type.dim[1] % 2 ? 1 : 2), .eps = 0.1),
                    false, 5);
    }
}

static item op_attention(gen *q)
{
    item x = of_rank(q, tame(pick_float(q)), 2 + roll(q, 2)), k, v;

    if (ts_dim(x.v, -2) > 40)
        return none;
    k = odds(q, 50) ? x : leaf(q, x.v->type.dtype, &x.v->type, false);
    v = odds(q, 50) ? x : leaf(q, x.v->type.dtype, &x.v->type, false);
    if (k.v->type.dtype != x.v->type.dtype || v.v->type.dtype != x.v->type.dtype)
        return none;
    return made(ts_attention(x.v, k.v, v.v, NULL), false, x.mag);
}

static item op_loss(gen *q)
{
    item x = tame(pick_float(q)), y;
    ts_reduction r = (ts_reduction)roll(q, 3);
    double mag = r == TS_REDUCTION_SUM ? (double)count_of(x) * 4 : 10;
    ts_type t = x.v->type;

    switch (roll(q, 5)) {
    case 0:
        if (t.rank != 2)
            x = of_rank(q, x, 2);
        t = x.v->type;
        return made(
            ts_cross_entropy_o(
                x.v, index_leaf(q, t.dim[1], 1, t.dim),
                &(ts_loss_options){.reduction = r, .label_smoothing = odds(q, 30) ? 0.1 : 0}),
            false, mag);
    case 1:
        y = leaf(q, t.dtype, &t, false);
        return made(ts_mse_loss(x.v, ts_cast(y.v, t.dtype), .reduction = r), false, mag);
    case 2:
        y = leaf(q, t.dtype, &t, false);
        return made(ts_smooth_l1_loss(x.v, ts_cast(y.v, t.dtype), .reduction = r), false, mag);
    case 3:
        y = leaf(q, t.dtype, &t, false);
        return made(ts_bce_with_logits(x.v, ts_sigmoid(ts_cast(y.v, t.dtype)), .reduction = r),
                    false, mag);
    default:
        return made(ts_identity_loss(x.v, r), x.exact && r != TS_REDUCTION_MEAN, mag);
    }
}

item test_random_leaf(gen *q)
{
    ts_type t = some_shape(q, roll(q, 6));

    if (odds(q, 15)) {
        ts_attr attr[] = {ts_attr_s("dtype", ts_dtype_name(odds(q, 50) ? TS_F32 : some_int(q))),
                          ts_attr_l("shape", t.rank, t.dim),
                          ts_attr_i("dim", t.rank ? roll(q, t.rank) : 0)};
        if (t.rank)
            return made(ts_node_out(ts_node_make(q->g, TS_OP(iota), 0, NULL, 3, attr)), true, 33);
    }
    if (odds(q, 25))
        return leaf(q, some_int(q), &t, true);
    return leaf(q, some_float(q), &t, odds(q, 25));
}

static item op_state(gen *q)
{
    item x = tame(pick(q));
    char name[32];
    ts_value *b;

    snprintf(name, sizeof(name), "s%d", q->leaves++);
    b = ts_buffer_n(q->g, name, x.v->type.dtype, (ts_init){TS_INIT_FULL, 1, 0}, x.v->type.rank,
                    x.v->type.dim);
    if (!is_float(x)) {
        ts_assign(b, x.v);
        return made(b, x.exact, x.mag);
    }
    switch (roll(q, 4)) {
    case 0: /* a moving average, read at the element that is written */
        ts_assign(b, ts_add(ts_mul_scalar(b, 0.5), ts_mul_scalar(x.v, 0.5)));
        break;
    case 1: { /* read elsewhere */
        ts_value *f = b;
        if (b->type.rank)
            f = ts_apply(q->g, "flip", 1, &b, 1,
                         (ts_arg[]){ts_arg_ints("dims", 1, (int64_t[]){b->type.rank - 1})});
        ts_assign(b, ts_add(ts_mul_scalar(f, 0.5), ts_mul_scalar(x.v, 0.5)));
        break;
    }
    case 2: /* just a copy, of a node, an input or another state */
        ts_assign(b, x.v);
        break;
    default: { /* of its own sum */
        ts_value *m = ts_mean(b, 0, NULL, false);
        ts_assign(b, ts_add(ts_mul_scalar(x.v, 0.5), ts_cast(m, b->type.dtype)));
    }
    }
    return made(b, false, fmax(1, x.mag));
}

/* As often as they are listed. */
static item (*const families[])(gen *) = {
    op_unary,   op_unary,      op_unary,  op_binary,        op_binary,        op_binary,
    op_compare, op_compare,    op_int,    op_int,           op_int,           op_where,
    op_cast,    op_cast,       op_cast,   op_view,          op_view,          op_view,
    op_view,    op_view,       op_reduce, op_reduce,        op_arg,           op_softmax,
    op_matmul,  op_matmul,     op_linear, op_conv,          op_conv,          op_pool,
    op_pool,    op_layer_conv, op_resize, op_index,         op_index,         op_index,
    op_norm,    op_attention,  op_loss,   test_random_leaf, test_random_leaf, op_state,
    op_state,
};

item test_random_op(gen *q)
{
    return families[roll(q, TS_COUNT(families))](q);
}
