/* simplify.c - each rule by its golden files, and every simplified graph against the one it came
 * from: the same values, to the bit where the rule promises it, on numbers that are not nice.
 *
 * test/pass/simplify/<case>.ir is the text of what the case builds here, <case>.want what becomes
 * of it. TS_GOLDEN_UPDATE=1 rewrites both.
 */
#include "pass/pass.h"
#include "run/run.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

typedef enum how { BITS, ZEROS, NEAR } how; /* to the bit; 0 is -0; about */

static void ok(ts_status s)
{
    if (s)
        fail_msg("%s", ts_error_text());
}

static const ts_graph *simplify(ts_arena *a, const ts_graph *g)
{
    const ts_graph *out;

    ok(ts_graph_check(g));
    ok(ts_pass_run(a, "simplify", g, &(ts_options){0}, &out));
    return out;
}

static char *text_of(ts_arena *a, const ts_graph *g)
{
    char *s = ts_graph_text(g), *copy = ts_arena_strdup(a, s);

    free(s);
    return copy;
}

/* --- numbers --- */

static uint64_t seed;

static uint64_t next(void)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return seed >> 33;
}

static int below(int n)
{
    return (int)(next() % (uint64_t)n);
}

static double ugly(int i)
{
    static const double values[] = {0.0,  -0.0, 1.0, -1.0,    INFINITY, -INFINITY, NAN,
                                    -2.5, 3.0,  0.5, 0x1p-60, 1e30,     7.0,       -0.1};

    return i < TS_COUNT(values) ? values[i] : (double)below(2000) / 256 - 4;
}

static double nice(void)
{
    return 0.25 + (double)below(4096) / 4096;
}

static void fill(ts_ref *r, const ts_value *v, bool is_nice)
{
    ts_tensor *t = ts_ref_tensor(r, v);
    int64_t count = ts_type_count(&t->type);

    for (int64_t i = 0; i < count; i++)
        ts_dtype_set(t->type.dtype, t->data, i,
                     is_nice || !ts_dtype_is_float(t->type.dtype) ? nice() * 3 : ugly(below(30)));
}

static ts_ref *run(const ts_graph *g, uint64_t with, bool is_nice)
{
    ts_ref *r;

    ok(ts_ref_new(g, &r));
    seed = with;
    for (int i = 0; i < g->ninputs; i++)
        fill(r, g->inputs[i], is_nice);
    for (int i = 0; i < g->nstates; i++)
        fill(r, g->states[i].value, is_nice);
    ok(ts_ref_run(r, 0, &(ts_eval_ctx){.seed = 1}));
    ok(ts_ref_run(r, 1, &(ts_eval_ctx){.seed = 1}));
    return r;
}

static bool same_number(double x, double y, how h, double tolerance)
{
    if (x != x || y != y)
        return x != x && y != y;
    if (h == BITS)
        return !memcmp(&x, &y, sizeof(x));
    return x == y || (h == NEAR && fabs(x - y) <= tolerance * (fabs(x) + fabs(y)));
}

static void same_tensor(ts_ref *r, const ts_value *v, ts_ref *s, const ts_value *w, how h,
                        double tolerance, const char *what)
{
    const ts_tensor *x = ts_ref_tensor(r, v), *y = ts_ref_tensor(s, w);
    int64_t count = ts_type_count(&x->type);

    assert_true(ts_type_same(&x->type, &y->type));
    for (int64_t i = 0; i < count; i++) {
        double p = ts_dtype_get(x->type.dtype, x->data, i);
        double q = ts_dtype_get(y->type.dtype, y->data, i);
        if (!same_number(p, q, h, tolerance))
            fail_msg("%s, element %ld: %a before, %a after\n%s", what, (long)i, p, q,
                     ts_graph_text(v->graph));
    }
}

/* Outputs, loss and every state after both phases. */
static void same_values(const ts_graph *g, const ts_graph *s, uint64_t with, bool is_nice, how h,
                        double tolerance)
{
    ts_ref *x = run(g, with, is_nice), *y = run(s, with, is_nice);

    assert_int_equal(g->noutputs, s->noutputs);
    assert_int_equal(g->nupdates, s->nupdates);
    for (int i = 0; i < g->noutputs; i++) {
        assert_string_equal(g->output_names[i], s->output_names[i]);
        same_tensor(x, g->outputs[i], y, s->outputs[i], h, tolerance, g->output_names[i]);
    }
    for (int i = 0; i < g->nstates; i++)
        same_tensor(x, g->states[i].value, y, s->states[i].value, h, tolerance,
                    g->states[i].value->name);
    ts_ref_free(x);
    ts_ref_free(y);
}

static void check_ordered(const ts_graph *g)
{
    for (int i = 0; i < g->nnodes; i++) {
        assert_int_equal(g->nodes[i]->id, i);
        assert_true(!i || g->nodes[i - 1]->phase <= g->nodes[i]->phase);
        for (int k = 0; k < g->nodes[i]->nin; k++)
            assert_true(g->nodes[i]->in[k]->id < g->nodes[i]->out[0]->id);
    }
}

static void check_idempotent(ts_arena *a, const ts_graph *g)
{
    assert_string_equal(text_of(a, g), text_of(a, simplify(a, g)));
}

/* --- one case a rule --- */

static ts_graph *g; /* of the case at hand */
static ts_value *x, *y, *c;

static ts_value *full(double v)
{
    return ts_scalar(g, TS_F32, v);
}

static ts_value *f1(const char *op, ts_value *v)
{
    return ts_point1(op, v);
}

static ts_value *pad1(ts_value *v, int64_t lo, int64_t hi)
{
    return ts_pad(v, 2, (int64_t[]){0, lo}, (int64_t[]){0, hi}, 0);
}

static ts_value *sorted(ts_value *v, int dim)
{
    return ts_gather(v, dim,
                     ts_apply(v->graph, "argsort", 1, &v, 1, (ts_arg[]){ts_arg_int("dim", dim)}));
}

static ts_value *flip(ts_value *v, int64_t dim)
{
    return ts_apply(g, "flip", 1, &v, 1, (ts_arg[]){ts_arg_ints("dims", 1, &dim)});
}

static ts_value *two_rands(void)
{
    ts_value *one = ts_rand(g, TS_F32, 2, 3);

    return ts_sub(one, ts_rand(g, TS_F32, 2, 3));
}

/* x, y : f32[2,3], c : bool[2,3]; `out` is the output */
#define CASES                                                                                      \
    CASE(dead_code, BITS, (f1("sin", x), ts_add(x, y)))                                            \
    CASE(add_zero, ZEROS, ts_add(full(0), ts_add(f1("exp", x), full(0))))                          \
    CASE(sub_zero, BITS, ts_sub(f1("exp", x), full(0)))                                            \
    CASE(mul_one, BITS, ts_mul(full(1), ts_mul(f1("abs", x), full(1))))                            \
    CASE(mul_minus_one, BITS, ts_mul(x, full(-1)))                                                 \
    CASE(mul_zero, BITS, ts_mul(x, full(0)))                                                       \
    CASE(sub_self, BITS, ts_sub(x, x))                                                             \
    CASE(div_one, BITS, ts_div(f1("abs", x), full(1)))                                             \
    CASE(div_power_of_2, BITS, ts_div(x, full(-4)))                                                \
    CASE(div_three, BITS, ts_div(x, full(3)))                                                      \
    CASE(neg_neg, BITS, ts_neg(ts_neg(f1("abs", x))))                                              \
    CASE(sub_neg, BITS, ts_sub(x, ts_neg(y)))                                                      \
    CASE(add_neg, BITS, ts_add(ts_add(x, ts_neg(y)), ts_neg(f1("abs", x))))                        \
    CASE(neg_add, BITS, ts_add(ts_neg(x), y))                                                      \
    CASE(mul_neg_neg, BITS, ts_mul(ts_neg(x), ts_neg(y)))                                          \
    CASE(div_neg_neg, BITS, ts_div(ts_neg(x), ts_neg(y)))                                          \
    CASE(mul_neg_const, BITS, ts_mul(ts_neg(x), full(3)))                                          \
    CASE(mul_mul, BITS, ts_mul(ts_mul(x, full(3)), full(0.5)))                                     \
    CASE(mul_mul_inexact, BITS, ts_mul(ts_mul(x, full(3)), full(7)))                               \
    CASE(pow_0, BITS, ts_pow(x, full(0)))                                                          \
    CASE(pow_1, BITS, f1("abs", ts_pow(x, full(1))))                                               \
    CASE(pow_2, BITS, ts_pow(x, full(2)))                                                          \
    CASE(pow_minus_1, BITS, ts_pow(x, full(-1)))                                                   \
    CASE(pow_half, ZEROS, ts_pow(f1("abs", x), full(0.5)))                                         \
    CASE(relu_relu, BITS, ts_relu(ts_relu(x)))                                                     \
    CASE(maximum_self, BITS, f1("exp", ts_minimum(ts_maximum(x, x), x)))                           \
    CASE(where_true, BITS, f1("exp", ts_where(ts_scalar(g, TS_BOOL, 1), x, y)))                    \
    CASE(where_equal, BITS, f1("exp", ts_where(c, x, x)))                                          \
    CASE(cast_back, BITS, f1("exp", ts_cast(ts_cast(x, TS_F64), TS_F32)))                          \
    CASE(cast_lossy, BITS, ts_cast(ts_cast(x, TS_F16), TS_F32))                                    \
    CASE(cast_cast, BITS, ts_cast(ts_cast(c, TS_I32), TS_F32))                                     \
    CASE(nop_detach, BITS, f1("exp", f1("nop", ts_detach(x))))                                     \
    CASE(fold_scalar, BITS, ts_mul(x, f1("exp", ts_add(full(1), full(1)))))                        \
    CASE(fold_nan, BITS, ts_mul(x, ts_log(full(-1))))                                              \
    CASE(fold_const, BITS, ts_mul(x, ts_add(ts_const(g, TS_F32, three, 3), full(1))))              \
    CASE(fold_const_equal, BITS, ts_mul(x, ts_const(g, TS_F32, twos, 2, 1)))                       \
    CASE(fold_big, BITS, ts_mul(x, ts_sum(ts_full(g, TS_F32, 2, 1000, 1000), 0, NULL, 0)))         \
    CASE(fold_view, BITS, ts_mul(x, ts_permute(ts_reshape(ts_full(g, TS_F32, 3, 6), 3, 2), 1, 0))) \
    CASE(reshape_const, BITS, ts_mul(x, ts_reshape(ts_const(g, TS_F32, three, 3), 1, 3)))          \
    CASE(reshape_same, BITS,                                                                       \
         f1("exp",                                                                                 \
            ts_apply(g, "reshape", 1, &x, 1, (ts_arg[]){ts_arg_ints("shape", 2, x->type.dim)})))   \
    CASE(reshape_reshape, BITS, ts_reshape(ts_reshape(x, 6), 3, 2))                                \
    CASE(permute_permute, BITS, ts_permute(ts_permute(ts_reshape(x, 1, 2, 3), 2, 0, 1), 2, 1, 0))  \
    CASE(permute_back, BITS, f1("exp", ts_permute(ts_permute(x, 1, 0), 1, 0)))                     \
    CASE(permute_ones, BITS, ts_permute(ts_reshape(x, 2, 1, 3), 1, 0, 2))                          \
    CASE(expand_same, BITS, f1("exp", ts_expand(x, 2, 3)))                                         \
    CASE(expand_expand, BITS, ts_expand(ts_expand(x, 4, 2, 3), 5, 4, 2, 3))                        \
    CASE(expand_reshape, BITS, ts_expand(ts_reshape(x, 1, 2, 3), 4, 2, 3))                         \
    CASE(expand_dropped, BITS, ts_mul(ts_expand(ts_slice(x, 0, 0, 1, 1), 2, 3), y))                \
    CASE(expand_pushed, BITS, ts_relu(ts_mul(ts_expand(x, 4, 2, 3), full(3))))                     \
    CASE(full_broadcast, BITS, ts_add(x, ts_full(g, TS_F32, 3, 2, 3)))                             \
    CASE(one_broadcast, BITS, ts_mul(x, ts_full(g, TS_F32, 1, 4, 2, 3)))                           \
    CASE(slice_all, BITS, f1("exp", ts_slice(x, 1, 0, 3, 1)))                                      \
    CASE(slice_slice, BITS, ts_slice(ts_slice(ts_reshape(x, 6), 0, 1, 6, 2), 0, 1, 3, 1))          \
    CASE(slice_expand, BITS, ts_slice(ts_expand(x, 4, 2, 3), 0, 1, 3, 1))                          \
    CASE(slice_pad, BITS, ts_slice(pad1(x, 2, 1), 1, 1, 4, 1))                                     \
    CASE(slice_pad_inside, BITS, ts_slice(pad1(x, 2, 1), 1, 2, 5, 1))                              \
    CASE(slice_padding, BITS, ts_mul(y, ts_slice(pad1(x, 3, 1), 1, 0, 3, 1)))                      \
    CASE(slice_concat, BITS, ts_slice(ts_concat(2, (ts_value *[]){x, y}, 1), 1, 4, 6, 1))          \
    CASE(slice_concat_both, BITS, ts_slice(ts_concat(2, (ts_value *[]){x, y}, 1), 1, 2, 4, 1))     \
    CASE(pad_nothing, BITS, f1("exp", pad1(x, 0, 0)))                                              \
    CASE(pad_pad, BITS, pad1(pad1(x, 1, 2), 3, 4))                                                 \
    CASE(concat_one, BITS, f1("exp", ts_concat(1, &x, 1)))                                         \
    CASE(flip_flip, BITS, f1("exp", flip(flip(x, 1), -1)))                                         \
    CASE(sum_ones, ZEROS, ts_sum(ts_reshape(x, 2, 1, 3), 1, (int64_t[]){1}, false))                \
    CASE(amax_ones, BITS, ts_amax(ts_reshape(x, 2, 1, 3), 1, (int64_t[]){1}, false))               \
    CASE(sum_expand, NEAR, ts_sum(ts_expand(x, 4, 2, 3), 1, (int64_t[]){0}, false))                \
    CASE(sum_expand_part, NEAR, ts_sum(ts_expand(x, 5, 2, 3), 2, (int64_t[]){0, 2}, true))         \
    CASE(sort_expand, BITS, sorted(ts_expand(x, 4, 2, 3), 2))                                      \
    CASE(sort_expanded, BITS, sorted(ts_expand(x, 4, 2, 3), 0))                                    \
    CASE(run_starts_expand, BITS,                                                                  \
         ts_apply(g, "run_starts", 1, (ts_value *[]){ts_expand(ts_cast(c, TS_I32), 4, 2, 3)}, 2,   \
                  (ts_arg[]){ts_arg_int("dim", 2), ts_arg_int("size", 3)}))                        \
    CASE(absorb_keepdim, BITS,                                                                     \
         ts_reshape(ts_sum(ts_reshape(x, 1, 2, 3), 2, (int64_t[]){0, -1}, true), 2))               \
    CASE(absorb_transpose, BITS, ts_permute(ts_matmul(ts_permute(x, 1, 0), y), 1, 0))              \
    CASE(merge, BITS, ts_mul(f1("exp", x), ts_add(f1("exp", x), y)))                               \
    CASE(merge_commuted, BITS, ts_sub(f1("exp", ts_mul(x, y)), ts_mul(y, x)))                      \
    CASE(merge_ordered, BITS, ts_mul(ts_sub(x, y), ts_sub(y, x)))                                  \
    CASE(random, BITS, two_rands())                                                                \
    CASE(result_copy, BITS, ts_detach(ts_sub(x, full(0))))                                         \
    CASE(result_const, BITS, f1("neg", ts_const(g, TS_F32, three, 3)))

static const float three[] = {1, 2, 3}, twos[] = {2, 2};

#define CASE(name, how, ...)                                                                       \
    static ts_value *build_##name(void)                                                            \
    {                                                                                              \
        return __VA_ARGS__;                                                                        \
    }
CASES
#undef CASE

static const struct rule_case {
    const char *name;
    how how;
    ts_value *(*build)(void);
} cases[] = {
#define CASE(name, how, ...) {#name, how, build_##name},
    CASES
#undef CASE
};

static void golden(const char *name, const char *kind, const char *text)
{
    const char *root = getenv("TS_SOURCE_ROOT");
    ts_arena *a = ts_arena_new();
    const char *path =
        ts_arena_printf(a, "%s/test/pass/simplify/%s.%s", root ? root : ".", name, kind);
    char *want;
    size_t len;

    if (getenv("TS_GOLDEN_UPDATE")) {
        ok(ts_file_write(path, text, strlen(text)));
    } else {
        ok(ts_file_read(path, &want, &len));
        assert_string_equal(text, want);
        free(want);
    }
    ts_arena_free(a);
}

static void run_case(void **state)
{
    const struct rule_case *t = *state;
    ts_arena *a = ts_arena_new();
    const ts_graph *s;

    g = ts_graph_new(t->name);
    x = ts_input(g, "x", TS_F32, 2, 3);
    y = ts_input(g, "y", TS_F32, 2, 3);
    c = ts_input(g, "c", TS_BOOL, 2, 3);
    ts_output(t->build(), "out");
    s = simplify(a, g);
    if (getenv("TS_GOLDEN_UPDATE"))
        golden(t->name, "ir", text_of(a, g));
    golden(t->name, "want", text_of(a, s));
    check_ordered(s);
    check_idempotent(a, s);
    for (uint64_t i = 0; i < 20; i++)
        same_values(g, s, i, false, t->how, 0x1p-23);
    ts_graph_free(g);
    ts_arena_free(a);
}

/* --- order --- */

/* exp(x) - neg(x) * sin(x), its parts made in the order the digits say */
static char *in_order(ts_arena *a, const char *digits)
{
    static const char *const ops[] = {"exp", "neg", "sin"};
    ts_value *part[3];
    char *text;

    g = ts_graph_new("order");
    x = ts_input(g, "x", TS_F32, 2, 3);
    for (int i = 0; i < 3; i++)
        part[digits[i] - '0'] = f1(ops[digits[i] - '0'], x);
    f1("tanh", part[1]);
    ts_output(ts_sub(part[0], ts_mul(part[1], part[2])), "out");
    text = text_of(a, simplify(a, g));
    ts_graph_free(g);
    return text;
}

static void order_of_arguments(void **state)
{
    static const char *const orders[] = {"012", "021", "102", "120", "201", "210"};
    ts_arena *a = ts_arena_new();
    const char *want = in_order(a, orders[0]);

    (void)state;
    for (int i = 1; i < TS_COUNT(orders); i++)
        assert_string_equal(want, in_order(a, orders[i]));
    ts_arena_free(a);
}

static void order_of_parts(void **state)
{
    ts_arena *a = ts_arena_new();
    ts_value *w, *t, *late, *back;
    const ts_graph *s;

    (void)state;
    g = ts_graph_new("parts");
    x = ts_input(g, "x", TS_F32, 2, 3);
    w = ts_param(g, "w", TS_F32, ((ts_init){0}), 2, 3);
    g->phase = 1;
    late = ts_sqrt(w);
    g->phase = 0;
    g->backward = true;
    back = f1("exp", x);
    g->backward = false;
    t = f1("sin", x);
    ts_graph_add_update(g, w, late, 1);
    ts_output(back, "back");
    ts_output(t, "t");
    s = simplify(a, g);
    assert_int_equal(s->nnodes, 3);
    assert_string_equal(s->nodes[0]->op->name, "sin");
    assert_string_equal(s->nodes[1]->op->name, "exp");
    assert_string_equal(s->nodes[2]->op->name, "sqrt");
    check_idempotent(a, s);
    ts_graph_free(g);
    ts_arena_free(a);
}

/* --- states: the same name, another value in another phase --- */

static void states_keep_time(void **state)
{
    ts_arena *a = ts_arena_new();
    ts_value *p, *q, *old, *less;
    const ts_graph *s;

    (void)state;
    g = ts_graph_new("states");
    p = ts_buffer(g, "p", TS_F32, ((ts_init){0}), 3);
    q = ts_buffer(g, "q", TS_F32, ((ts_init){0}), 3);
    /* swap in phase 0; phase 1 adds to q what p was before, and merges nothing over the border */
    old = ts_detach(p);
    less = ts_neg(p);
    ts_graph_add_update(g, p, f1("nop", q), 0);
    ts_graph_add_update(g, q, f1("nop", ts_neg(ts_neg(p))), 0);
    ts_output(f1("exp", p), "before");
    g->phase = 1;
    ts_graph_add_update(g, q, ts_add(ts_add(q, f1("nop", old)), ts_mul(f1("exp", p), ts_neg(less))),
                        1);
    g->phase = 0;
    s = simplify(a, g);
    for (uint64_t i = 0; i < 20; i++)
        same_values(g, s, i, false, BITS, 0);
    for (int i = 0; i < s->nupdates; i++)
        assert_int_equal(s->updates[i].next->kind, TS_VALUE_NODE);
    check_idempotent(a, s);
    ts_graph_free(g);
    ts_arena_free(a);
}

/* Zeros for two accumulators are written in place, not shared. */
static void results_from_nothing(void **state)
{
    ts_arena *a = ts_arena_new();
    ts_value *p, *q;
    const ts_graph *s;

    (void)state;
    g = ts_graph_new("zeros");
    p = ts_buffer(g, "p", TS_F32, ((ts_init){0}), 3);
    q = ts_buffer(g, "q", TS_F32, ((ts_init){0}), 3);
    ts_assign(p, ts_full(g, TS_F32, 0, 3));
    ts_assign(q, ts_full(g, TS_F32, 0, 3));
    s = simplify(a, g);
    assert_ptr_not_equal(s->updates[0].next, s->updates[1].next);
    ts_graph_free(g);
    ts_arena_free(a);
}

static void merged_place(void **state)
{
    ts_arena *a = ts_arena_new();
    ts_value *one, *two;
    const ts_graph *s;

    (void)state;
    g = ts_graph_new("place");
    x = ts_input(g, "x", TS_F32, 3);
    ts_scope_begin(g, "first");
    one = f1("exp", x);
    ts_scope_end(g);
    g->backward = true;
    two = f1("exp", x);
    g->backward = false;
    ts_output(ts_mul(one, two), "out");
    s = simplify(a, g);
    assert_int_equal(s->nnodes, 2);
    assert_string_equal(s->nodes[0]->layer, "first");
    assert_false(s->nodes[0]->backward);
    ts_graph_free(g);
    ts_arena_free(a);
}

/* --- random graphs --- */

enum { VALUES = 24 };

typedef struct garden {
    ts_value *v[VALUES];
    int n;
    ts_dtype t;
    bool smooth; /* no jumps, so that a rounding stays one */
    bool expands, sums;
} garden;

static ts_value *pick(garden *s)
{
    return s->v[below(s->n)];
}

static ts_value *number(garden *s)
{
    static const double values[] = {0, 1, -1, 2, 0.5, 3, -0.25, 1, -1};
    double v = values[below(TS_COUNT(values))];

    if (s->expands && below(3) == 0)
        return ts_full(g, s->t, v, 2, 3);
    return ts_scalar(g, s->t, v);
}

static ts_value *grow_point(garden *s)
{
    static const char *const one[] = {"neg",  "neg",  "nop",  "abs",    "relu", "detach",
                                      "tanh", "sqrt", "sign", "square", "step", "floor"};
    static const char *const two[] = {"add", "sub", "mul", "maximum", "minimum"};
    ts_value *v = pick(s), *w = below(2) ? number(s) : pick(s);

    switch (below(4)) {
    case 0:
        return f1(one[below(s->smooth ? 7 : TS_COUNT(one))], v);
    case 1:
        return below(2) ? ts_div(v, ts_scalar(g, s->t, below(2) ? 4 : -3))
                        : ts_pow(v, ts_scalar(g, s->t, below(3)));
    case 2:
        return ts_where(s->smooth ? ts_scalar(g, TS_BOOL, below(2)) : ts_gt(v, number(s)), v, w);
    default:
        return below(2) ? ts_point2(two[below(TS_COUNT(two))], v, w)
                        : ts_point2(two[below(TS_COUNT(two))], w, v);
    }
}

static ts_value *grow_view(garden *s)
{
    ts_value *v = pick(s);
    int rank = ts_rank(v), d = rank ? below(rank) : 0;
    int64_t size = ts_dim(v, d), from = rank ? below((int)size) : 0, lo[8] = {0}, hi[8] = {0},
            dims[8];

    if (!rank)
        return ts_reshape(v, 1);
    switch (below(7)) {
    case 0:
        return ts_slice(v, d, from, from + 1 + below((int)(size - from)), 1 + below(2));
    case 1:
        lo[d] = below(3), hi[d] = below(3);
        return ts_pad(v, rank, lo, hi, below(2));
    case 2:
        return ts_transpose(v, below(rank), below(rank));
    case 3:
        return ts_reshape(v, 1, -1);
    case 4:
        return flip(v, d);
    case 5:
        if (!s->expands || rank > 3)
            return ts_concat(2, (ts_value *[]){v, v}, d);
        dims[0] = 1 + below(3);
        for (int i = 0; i < rank; i++)
            dims[i + 1] = v->type.dim[i];
        return ts_expand_n(v, rank + 1, dims);
    default:
        return ts_reshape_n(v, rank, v->type.dim);
    }
}

static ts_value *grow_reduce(garden *s)
{
    ts_value *v = pick(s);
    int64_t d = ts_rank(v) ? below(ts_rank(v)) : 0;
    bool keep = below(2);

    if (!ts_rank(v))
        return f1("neg", v);
    return s->sums && below(2) ? ts_sum(v, 1, &d, keep) : ts_amax(v, 1, &d, keep);
}

static ts_graph *grow(uint64_t with, ts_dtype t, bool smooth)
{
    garden s = {.t = t, .smooth = smooth};

    seed = with * 977 + 5;
    s.expands = smooth || below(2);
    s.sums = smooth || !s.expands;
    g = ts_graph_new("random");
    s.v[s.n++] = ts_input(g, "x", t, 2, 3);
    s.v[s.n++] = ts_input(g, "y", t, 2, 3);
    s.v[s.n++] = ts_input(g, "z", t, 3);
    while (s.n < VALUES) {
        int what = below(8);
        ts_value *v = what < 5 ? grow_point(&s) : what < 7 ? grow_view(&s) : grow_reduce(&s);
        if (!v) { /* shapes that do not broadcast: forget it and go on */
            g->status = TS_OK;
            continue;
        }
        if (ts_type_count(&v->type) <= 400 && ts_rank(v) <= 5)
            s.v[s.n++] = v;
    }
    for (int i = 0; i < 3; i++)
        ts_output(s.v[VALUES - 1 - i * 3], (const char *[]){"a", "b", "c"}[i]);
    return g;
}

/* On any numbers. Without sums of broadcast values every rule is exact but for the sign of 0, and
 * nothing here divides by that. */
static void random_exact(void **state)
{
    static const ts_dtype types[] = {TS_F32, TS_F64, TS_F16, TS_BF16, TS_I32, TS_U8};
    int before = 0, after = 0;

    (void)state;
    for (uint64_t i = 0; i < 300; i++) {
        ts_arena *a = ts_arena_new();
        const ts_graph *s = simplify(a, grow(i, types[i % 6], false));
        check_ordered(s);
        check_idempotent(a, s);
        same_values(g, s, i, false, ZEROS, 0);
        before += g->nnodes;
        after += s->nnodes;
        ts_graph_free(g);
        ts_arena_free(a);
    }
    print_message("# 300 random graphs: %d nodes, simplified %d\n", before, after);
    assert_true(after < before);
}

/* Everything, on numbers near 1. */
static void random_near(void **state)
{
    (void)state;
    for (uint64_t i = 1000; i < 1300; i++) {
        ts_arena *a = ts_arena_new();
        const ts_graph *s = simplify(a, grow(i, TS_F64, true));
        check_idempotent(a, s);
        same_values(g, s, i, true, NEAR, 1e-6);
        ts_graph_free(g);
        ts_arena_free(a);
    }
}

/* A sum that is used as it is as well is not computed twice. */
static void absorb_only_ours(void **state)
{
    ts_arena *a = ts_arena_new();
    const ts_graph *s;
    ts_value *sum;
    int sums = 0;

    (void)state;
    g = ts_graph_new("shared");
    x = ts_input(g, "x", TS_F32, 2, 3);
    sum = ts_sum(x, 1, (int64_t[]){1}, true);
    ts_output(ts_reshape(sum, 2), "flat");
    ts_output(ts_sub(x, sum), "rest");
    s = simplify(a, g);
    for (int i = 0; i < s->nnodes; i++)
        sums += !strcmp(s->nodes[i]->op->name, "sum");
    assert_int_equal(sums, 1);
    ts_graph_free(g);
    ts_arena_free(a);
}

/* --- whole training steps, in f64: rules that round otherwise must not matter --- */

static ts_graph *net(int which, int64_t batch)
{
    ts_graph *n = ts_graph_new("net");
    ts_value *h, *in, *t;

    if (which == 4) {
        in = ts_input(n, "x", TS_F64, 1, 4, 8, 8);
        h = ts_relu(ts_batch_norm(ts_conv2d(in, "c1", 4, 3, .padding = 1), "b1"));
        h = ts_relu(ts_batch_norm(ts_conv2d(h, "c2", 4, 3, .padding = 1), "b2"));
        ts_loss(ts_sum(ts_square(h), 0, NULL, false));
        return n;
    }
    in = ts_input(n, "x", TS_F64, batch, 1, 28, 28);
    t = ts_input(n, "labels", TS_I32, batch);
    if (which == 1) {
        h = ts_max_pool2d(ts_relu(ts_conv2d(in, "conv1", 5, 3)), 2);
        h = ts_group_norm(ts_relu(ts_conv2d(h, "conv2", 12, 5)), "norm", 3);
        h = ts_relu(ts_linear(ts_flatten(h, 1), "fc1", 100));
        h = ts_log_softmax(ts_linear(h, "fc2", 10), 1);
        ts_output(h, "y");
        ts_loss(ts_nll_loss(h, t));
        return n;
    }
    h = ts_relu(ts_max_pool2d(ts_conv2d(in, "l1", which == 2 ? 32 : 10, which == 2 ? 3 : 5), 2));
    h = ts_relu(ts_max_pool2d(ts_conv2d(h, "l2", which == 2 ? 64 : 20, which == 2 ? 3 : 5), 2));
    h = ts_relu(ts_linear(ts_flatten(h, 1), "l3", which == 2 ? 128 : 256));
    h = ts_linear(which == 2 ? ts_dropout(h, 0.5, true) : h, "l4", 10);
    ts_output(h, "y");
    ts_loss(ts_cross_entropy(h, t));
    return n;
}

static void training(void **state)
{
    (void)state;
    for (int i = 0; i < 8; i++) {
        int which = 1 + i % 4;
        ts_optimizer o = which == 3 ? ts_adamw(0.001) : ts_sgd(0.01);
        ts_options opt = {.optimizer = &o, .gradient_accumulation = 1 + i / 4};
        ts_arena *a = ts_arena_new();
        const ts_graph *before, *s;
        g = net(which, 2);
        o.hyper.momentum = which == 1 || which == 4 ? 0.9 : 0;
        ok(ts_pass_run(a, "decompose", g, &opt, &before));
        ok(ts_pass_run(a, "autodiff", before, &opt, &before));
        ok(ts_pass_run(a, "optimizer", before, &opt, &before));
        s = simplify(a, before);
        print_message("# net %d, accumulation %d: %d nodes, simplified %d\n", which, 1 + i / 4,
                      before->nnodes, s->nnodes);
        check_ordered(s);
        check_idempotent(a, s);
        if (which != 2) /* its convolutions take the reference too long */
            same_values(before, s, 3, true, NEAR, 1e-9);
        ts_graph_free(g);
        ts_arena_free(a);
    }
}

int main(void)
{
    const struct CMUnitTest others[] = {
        cmocka_unit_test(order_of_arguments), cmocka_unit_test(order_of_parts),
        cmocka_unit_test(states_keep_time),   cmocka_unit_test(results_from_nothing),
        cmocka_unit_test(merged_place),       cmocka_unit_test(absorb_only_ours),
        cmocka_unit_test(random_exact),       cmocka_unit_test(random_near),
        cmocka_unit_test(training),
    };
    struct CMUnitTest tests[TS_COUNT(cases) + TS_COUNT(others)];

    for (int i = 0; i < TS_COUNT(cases); i++)
        tests[i] = (struct CMUnitTest){.name = cases[i].name,
                                       .test_func = run_case,
                                       .initial_state = (void *)(uintptr_t)&cases[i]};
    memcpy(tests + TS_COUNT(cases), others, sizeof(others));
    return _cmocka_run_group_tests("simplify", tests, TS_COUNT(tests), NULL, NULL);
}
