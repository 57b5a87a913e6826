/* matmul.c - [.., m, k] x [.., k, n], leading dims broadcast; and what all contractions share. */
#include "op/emit.h"
#include "op/op.h"
#include <assert.h>

ts_status ts_infer_matmul(ts_node *n)
{
    const ts_type *a = &n->in[0]->type, *b = &n->in[1]->type;
    ts_type t = {.dtype = a->dtype, .rank = TS_MAX(a->rank, b->rank)};

    if (a->rank < 2 || b->rank < 2)
        return ts_fail_at(n, TS_ERR_SHAPE, "matmul needs matrices, got rank %d and %d", a->rank,
                          b->rank);
    if (a->dtype != b->dtype)
        return ts_fail_at(n, TS_ERR_TYPE, "matmul needs equal dtypes, got %s and %s",
                          ts_dtype_name(a->dtype), ts_dtype_name(b->dtype));
    if (a->dim[a->rank - 1] != b->dim[b->rank - 2])
        return ts_fail_at(n, TS_ERR_SHAPE, "matmul needs equal inner sizes, got %ld and %ld",
                          (long)a->dim[a->rank - 1], (long)b->dim[b->rank - 2]);
    for (int d = 0; d < t.rank - 2; d++) {
        int i = d - (t.rank - a->rank), j = d - (t.rank - b->rank);
        int64_t p = i < 0 ? 1 : a->dim[i], q = j < 0 ? 1 : b->dim[j];
        if (p != q && p != 1 && q != 1)
            return ts_fail_at(n, TS_ERR_SHAPE, "matmul cannot broadcast batch sizes %ld and %ld",
                              (long)p, (long)q);
        t.dim[d] = TS_MAX(p, q);
    }
    t.dim[t.rank - 2] = a->dim[a->rank - 2];
    t.dim[t.rank - 1] = b->dim[b->rank - 1];
    return ts_node_set_out1(n, t);
}

/* batch..., m, n | k */
void ts_spec_matmul(ts_arena *arena, const ts_node *node, ts_spec *s)
{
    const ts_type *a = &node->in[0]->type, *b = &node->in[1]->type, *o = &node->out[0]->type;
    int r = o->rank, k = r;

    (void)arena;
    *s = (ts_spec){.naxes = r + 1, .nout = r};
    for (int i = 0; i < TS_MAX_RANK; i++)
        s->a[i].div = s->b[i].div = s->out[i].div = 1;
    for (int d = 0; d < r; d++) {
        s->extent[d] = o->dim[d];
        s->axis[d] = d == r - 2 ? "m" : d == r - 1 ? "n" : "b";
        s->out[d].k[d] = 1;
    }
    s->extent[k] = a->dim[a->rank - 1];
    s->axis[k] = "k";
    for (int d = 0; d < r - 2; d++) {
        int i = d - (r - a->rank), j = d - (r - b->rank);
        if (i >= 0 && a->dim[i] != 1)
            s->a[i].k[d] = 1;
        if (j >= 0 && b->dim[j] != 1)
            s->b[j].k[d] = 1;
    }
    s->a[a->rank - 2].k[r - 2] = 1;
    s->a[a->rank - 1].k[k] = 1;
    s->b[b->rank - 2].k[k] = 1;
    s->b[b->rank - 1].k[r - 1] = 1;
}

static ts_value *swap_last(ts_value *v)
{
    return v ? ts_transpose(v, v->type.rank - 2, v->type.rank - 1) : NULL;
}

ts_status ts_grad_matmul(ts_node *n, ts_value *const *dy, ts_value **dx)
{
    dx[0] = ts_sum_to(ts_matmul(dy[0], swap_last(n->in[1])), &n->in[0]->type);
    dx[1] = ts_sum_to(ts_matmul(swap_last(n->in[0]), dy[0]), &n->in[1]->type);
    return TS_OK;
}

/* --- any contraction, from its spec --- */

/* The index in one dim, or -1 when this term does not exist. */
static int64_t place(const ts_affine *f, int naxes, const int64_t *at, int64_t size)
{
    int64_t x = f->c;

    for (int i = 0; i < naxes; i++)
        x += f->k[i] * at[i];
    if (x < 0 || x % f->div)
        return -1;
    x /= f->div;
    return x < size ? x : -1;
}

static int64_t flat_place(const ts_affine *f, int naxes, const int64_t *at, const ts_type *t)
{
    int64_t flat = 0;

    for (int d = 0; d < t->rank; d++) {
        int64_t i = place(&f[d], naxes, at, t->dim[d]);
        if (i < 0)
            return -1;
        flat = flat * t->dim[d] + i;
    }
    return flat;
}

/* Along the innermost sum, j = 0, 1, ...: an operand's elements are at from + step * j, for j from first to
 * end; what lies outside adds nothing. */
typedef struct run {
    int64_t from, step, first, end;
} run;

static int64_t divide_up(int64_t x, int64_t by)
{
    return x > 0 ? (x + by - 1) / by : -(-x / by);
}

/* Leaves those j for which x + k * j is an index of a dim. */
static void keep_inside(run *r, int64_t x, int64_t k, int64_t dim)
{
    int64_t first = 0, end = r->end;

    if (!k)
        end = x < 0 || x >= dim ? 0 : end;
    else if (k > 0)
        first = divide_up(-x, k), end = divide_up(dim - x, k);
    else
        first = divide_up(x - dim + 1, -k), end = divide_up(x + 1, -k);
    r->first = first > r->first ? first : r->first;
    r->end = end < r->end ? end : r->end;
}

/* False: its elements are not at equal distances, as where a stride divides the index. */
static bool find_run(const ts_affine *f, const ts_spec *s, const int64_t *at, const ts_type *t,
                     run *r)
{
    int inner = s->naxes - 1;

    *r = (run){.end = s->extent[inner]};
    for (int d = 0; d < t->rank; d++) {
        int64_t x = f[d].c, k = f[d].k[inner], div = f[d].div;
        for (int i = 0; i < inner; i++)
            x += f[d].k[i] * at[i];
        if (k % div)
            return false;
        if (x % div)
            r->end = 0;
        keep_inside(r, x / div, k / div, t->dim[d]);
        r->from = r->from * t->dim[d] + x / div;
        r->step = r->step * t->dim[d] + k / div;
    }
    return true;
}

#define DOT(type)                                                                                  \
    for (int64_t j = first; j < end; j++)                                                          \
    sum += (double)((const type *)a->data)[p->from + p->step * j] *                                \
           ((const type *)b->data)[q->from + q->step * j]

static double add_runs(double sum, const ts_tensor *a, const run *p, const ts_tensor *b,
                       const run *q)
{
    int64_t first = p->first > q->first ? p->first : q->first;
    int64_t end = p->end < q->end ? p->end : q->end;
    ts_dtype t = a->type.dtype, u = b->type.dtype;

    if (t == TS_F64 && u == TS_F64)
        DOT(double);
    else if (t == TS_F32 && u == TS_F32)
        DOT(float);
    else
        for (int64_t j = first; j < end; j++)
            sum += ts_dtype_get(t, a->data, p->from + p->step * j) *
                   ts_dtype_get(u, b->data, q->from + q->step * j);
    return sum;
}

static double add_places(double sum, const ts_spec *s, int64_t *at, const ts_tensor *in)
{
    int64_t *j = &at[s->naxes - 1];

    for (*j = 0; *j < s->extent[s->naxes - 1]; ++*j) {
        int64_t p = flat_place(s->a, s->naxes, at, &in[0].type),
                q = flat_place(s->b, s->naxes, at, &in[1].type);
        if (p >= 0 && q >= 0)
            sum += ts_dtype_get(in[0].type.dtype, in[0].data, p) *
                   ts_dtype_get(in[1].type.dtype, in[1].data, q);
    }
    *j = 0;
    return sum;
}

/* The next of the axes from `first` to before `end`, the last one fastest; false: that was all. */
static bool next_place(const ts_spec *s, int first, int end, int64_t *at)
{
    for (int i = end - 1; i >= first; i--) {
        if (++at[i] < s->extent[i])
            return true;
        at[i] = 0;
    }
    return false;
}

static double sum_at(const ts_spec *s, int64_t *at, const ts_tensor *in)
{
    double sum = 0;
    run p, q;

    do {
        if (find_run(s->a, s, at, &in[0].type, &p) && find_run(s->b, s, at, &in[1].type, &q))
            sum = add_runs(sum, &in[0], &p, &in[1], &q);
        else
            sum = add_places(sum, s, at, in);
    } while (next_place(s, s->nout, s->naxes - 1, at));
    return sum;
}

static bool straight(const ts_affine *f, int rank, int axis)
{
    for (int d = 0; d < rank; d++)
        if (f[d].k[axis] % f[d].div)
            return false;
    return true;
}

static void swap_axes(ts_affine *f, int rank, int i, int j)
{
    for (int d = 0; d < rank; d++) {
        int64_t k = f[d].k[i];
        f[d].k[i] = f[d].k[j];
        f[d].k[j] = k;
    }
}

/* Makes the longest of the sums whose elements are at equal distances the innermost: its places are found
 * once for all of it. */
static void longest_inside(ts_spec *s, const ts_tensor *in)
{
    int last = s->naxes - 1, best = last;
    int64_t longest = 0;

    for (int i = s->nout; i <= last; i++)
        if (s->extent[i] > longest && straight(s->a, in[0].type.rank, i) &&
            straight(s->b, in[1].type.rank, i)) {
            longest = s->extent[i];
            best = i;
        }
    swap_axes(s->a, in[0].type.rank, best, last);
    swap_axes(s->b, in[1].type.rank, best, last);
    longest = s->extent[best];
    s->extent[best] = s->extent[last];
    s->extent[last] = longest;
}

static ts_status eval(const ts_node *n, const ts_tensor *in, ts_tensor *out)
{
    ts_arena *a = ts_arena_new();
    int64_t at[TS_AXES] = {0};
    ts_spec s;

    n->op->spec(a, n, &s);
    ts_arena_free(a);
    assert(s.naxes > s.nout);
    longest_inside(&s, in);
    do {
        double sum = sum_at(&s, at, in);
        ts_dtype_set(out->type.dtype, out->data, flat_place(s.out, s.naxes, at, &out->type), sum);
    } while (next_place(&s, 0, s.nout, at));
    return TS_OK;
}

ts_status ts_eval_matmul(const ts_node *n, const ts_eval_ctx *c, const ts_tensor *in,
                         ts_tensor *out)
{
    (void)c;
    return eval(n, in, out);
}

ts_status ts_eval_conv(const ts_node *n, const ts_eval_ctx *c, const ts_tensor *in, ts_tensor *out)
{
    (void)c;
    return eval(n, in, out);
}

ts_status ts_eval_conv_input(const ts_node *n, const ts_eval_ctx *c, const ts_tensor *in,
                             ts_tensor *out)
{
    (void)c;
    return eval(n, in, out);
}

ts_status ts_eval_conv_weight(const ts_node *n, const ts_eval_ctx *c, const ts_tensor *in,
                              ts_tensor *out)
{
    (void)c;
    return eval(n, in, out);
}

static double contract_flops(const ts_node *n)
{
    ts_arena *a = ts_arena_new();
    ts_spec s;
    double f = 2;

    n->op->spec(a, n, &s);
    ts_arena_free(a);
    for (int i = 0; i < s.naxes; i++)
        f *= (double)s.extent[i];
    return f;
}

double ts_node_flops(const ts_node *n)
{
    if (n->op->flags & TS_CONTRACT) /* by Winograd's method 36 products for 16 results of 9 taps */
        return contract_flops(n) /
               (n->op->flags & TS_CONV && ts_attr_int(n, "winograd", 0) ? 4 : 1);
    if (n->op->flags & (TS_VIEW | TS_SOURCE))
        return 0;
    if (n->op->flags & TS_REDUCE)
        return (double)ts_type_count(&n->in[0]->type);
    if (n->op->flags & TS_STEPS) /* every row of gates with all of w */
        return 2 * (double)ts_type_count(&n->out[0]->type) / (double)n->out[0]->type.dim[2] *
               (double)ts_type_count(&n->in[1]->type);
    if (n->op == TS_OP(argsort)) /* a round for each byte of an element */
        return 32 * (double)ts_type_count(&n->in[0]->type);
    return (double)ts_type_count(&n->out[0]->type);
}

/* By the plain method. A convolution's gradient of its input meets every element of dy with every weight of its channel, and
 * no more. */
double ts_node_useful_flops(const ts_node *n)
{
    const ts_value *dy;
    double useful;

    if (!(n->op->flags & TS_CONTRACT))
        return ts_node_flops(n);
    if (n->op != TS_OP(conv_input))
        return contract_flops(n);
    dy = n->in[0];
    if (dy->kind == TS_VALUE_NODE && dy->node->op == TS_OP(pad)) /* borders that a pass has made */
        dy = dy->node->in[0];
    useful = 2 * (double)ts_type_count(&dy->type) * (double)ts_type_count(&n->in[1]->type) /
             (double)TS_MAX(1, n->in[1]->type.dim[0]);
    return TS_MIN(contract_flops(n), useful);
}

typedef struct term_arg {
    const ts_node *n;
    const ts_ix *a[TS_MAX_RANK], *b[TS_MAX_RANK];
} term_arg;

static const char *term_body(ts_emit *e, void *arg)
{
    term_arg *t = arg;
    const char *x = ts_emit_at(e, t->n->in[0], t->a), *y = ts_emit_at(e, t->n->in[1], t->b);

    return ts_emit_temp(e, t->n->in[0]->type.dtype, "%s * %s", x, y);
}

/* "and" of "inside" and "divisible" for every dim of an operand; fills in the coordinates. */
static const char *operand(ts_emit *e, const ts_affine *f, int naxes, const ts_ix *const *axes,
                           const ts_type *t, const ts_ix **x, const char *cond, bool *by_lane)
{
    for (int d = 0; d < t->rank && cond; d++) {
        const ts_ix *i = ts_spec_ix(e->a, &f[d], naxes, axes);
        const char *in;
        bool lane = e->lanes && ts_ix_uses(i, e->lane), tests = false;
        if (f[d].div > 1) {
            const char *s = ts_ix_text(e->a, i);
            cond = ts_arena_printf(e->a, "%s%s(%s) >= 0 && (%s) %% %ld == 0", cond,
                                   cond[0] ? " && " : "", s, s, (long)f[d].div);
            i = ts_ix_div(e->a, i, f[d].div);
            tests = true;
        }
        in = ts_emit_inside(e, i, t->dim[d]);
        if (!in)
            return NULL;
        if (in[0])
            cond = ts_arena_printf(e->a, "%s%s%s", cond, cond[0] ? " && " : "", in);
        if (lane && (tests || in[0]))
            *by_lane = true;
        x[d] = i;
    }
    return cond;
}

/* An output dim is one axis, or group * size + rest. */
void ts_spec_axes(ts_arena *a, const ts_spec *s, int rank, const ts_ix *const *at,
                  const ts_ix **axes)
{
    for (int d = 0; d < rank; d++) {
        const ts_ix *rest = at[d];
        for (int i = 0; i < s->nout; i++)
            if (s->out[d].k[i] > 1) {
                axes[i] = ts_ix_div(a, rest, s->out[d].k[i]);
                rest = ts_ix_mod(a, rest, s->out[d].k[i]);
            }
        /* a group of one channel: both have factor 1, and the inner one is 0 */
        for (int i = 0; i < s->nout; i++)
            if (s->out[d].k[i] == 1)
                axes[i] = s->extent[i] == 1 ? ts_ix_const(a, 0) : rest;
    }
}

/* The two operands' coordinates in `arg`, and what must hold for them; NULL: it never does. */
static const char *term(ts_emit *e, const ts_spec *s, const ts_ix *const *axes, term_arg *arg,
                        bool *by_lane)
{
    ts_value *const *in = arg->n->in;
    const char *cond = operand(e, s->a, s->naxes, axes, &in[0]->type, arg->a, "", by_lane);

    return operand(e, s->b, s->naxes, axes, &in[1]->type, arg->b, cond, by_lane);
}

const char *ts_emit_term(ts_emit *e, const ts_node *n, const ts_spec *s, const ts_ix *const *axes)
{
    bool by_lane = false;
    term_arg arg = {.n = n};
    const char *cond = term(e, s, axes, &arg, &by_lane);

    return ts_emit_guard(e, cond, by_lane, n->out[0]->type.dtype, 0, term_body, &arg);
}

/* As the blocked template adds it: the same bits. A condition that differs by lane is a product that
 * may be 0. */
static void add_term(ts_emit *e, const ts_node *n, const ts_spec *s, const ts_ix *const *axes,
                     const char *sum)
{
    ts_dtype t = n->out[0]->type.dtype;
    bool by_lane = false;
    term_arg arg = {.n = n};
    const char *cond = term(e, s, axes, &arg, &by_lane);
    const char *x, *y;
    int mark;

    if (!cond)
        return;
    if (by_lane) {
        ts_emit_line(e, "%s += %s;", sum, ts_emit_guard(e, cond, true, t, 0, term_body, &arg));
        return;
    }
    if (cond[0]) {
        ts_emit_line(e, "if (%s) {", cond);
        ts_emit_open(e, &mark);
    }
    x = ts_emit_at(e, n->in[0], arg.a);
    y = ts_emit_at(e, n->in[1], arg.b);
    ts_emit_product(e, t, sum, x, y);
    if (cond[0])
        ts_emit_close(e, mark);
}

typedef struct operand_arg {
    const ts_value *v;
    const ts_ix *at[TS_MAX_RANK];
} operand_arg;

static const char *operand_body(ts_emit *e, void *arg)
{
    const operand_arg *x = arg;

    return ts_emit_at(e, x->v, x->at);
}

const char *ts_emit_operand(ts_emit *e, const ts_node *n, int which, const ts_spec *s,
                            const ts_ix *const *axes)
{
    operand_arg arg = {.v = n->in[which]};
    bool by_lane = false;
    const char *cond =
        operand(e, which ? s->b : s->a, s->naxes, axes, &arg.v->type, arg.at, "", &by_lane);

    return ts_emit_guard(e, cond, by_lane, arg.v->type.dtype, 0, operand_body, &arg);
}

/* The plain nest, for what the blocked template does not take: sums one output element. */
const char *ts_emit_contract(ts_emit *e, const ts_node *n, int out, const ts_ix *const *at)
{
    ts_spec s;
    const ts_ix *axes[TS_AXES];
    int marks[TS_AXES], depth = 0;
    const char *acc = ts_emit_name(e, "s");
    ts_dtype t = n->out[0]->type.dtype;

    (void)out;
    n->op->spec(e->a, n, &s);
    ts_spec_axes(e->a, &s, n->out[0]->type.rank, at, axes);
    ts_emit_line(e, "%s %s = %s;", ts_emit_ctype(e, t), acc, ts_emit_literal(e, t, 0));
    for (int i = s.nout; i < s.naxes; i++) {
        if (s.extent[i] == 1) {
            axes[i] = ts_ix_const(e->a, 0);
            continue;
        }
        axes[i] = ts_ix_var(e->a, ts_emit_loop(e, s.axis[i], 0, s.extent[i]));
        ts_emit_open(e, &marks[depth++]);
    }
    add_term(e, n, &s, axes, acc);
    while (depth--)
        ts_emit_close(e, marks[depth]);
    return acc;
}
