/* layout.c - kernels over tensors that do not lie row-major: permuted dims, and 8 or 16 elements of
 * one dim as the innermost lanes, with sizes the lanes divide and sizes they do not.
 *
 * Layouts are set by hand on the values of a decomposed graph; the rest is what ts_compile does.
 * Inputs and outputs stay row-major, as the layout pass must leave them.
 */
#include "compare.h"
#include "pass/pass.h"
#include "render/render.h"
#include "run/run.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#define DIMS(...)                                                                                  \
    (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[])                         \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }

/* --- a graph's result, from generated code --- */

static const ts_module *build(const ts_program *p, ts_arena *a, const ts_options *opt,
                              void **library)
{
    const ts_source *src;
    const ts_module *m = NULL;
    char *object = NULL;
    size_t bytes;

    *library = NULL;
    if (!ts_source_make(a, p, opt, &src) && !ts_cc_build(src, opt, NULL, &object, &bytes) &&
        !ts_library_open(object, bytes, library))
        m = ts_library_symbol(*library, "tessera_module");
    free(object);
    return m;
}

/* A copy of row-major data whose end is the end of readable memory: a kernel that reads too far
 * crashes. */
typedef struct edge {
    char *pages, *data;
    size_t bytes;
} edge;

static edge edge_new(const void *data, size_t bytes)
{
    size_t page = 4096, room = TS_ROUND_UP(bytes, page);
    edge e = {.bytes = room + page};

    e.pages = mmap(NULL, e.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(e.pages != MAP_FAILED);
    mprotect(e.pages + room, page, PROT_NONE);
    e.data = e.pages + room - bytes;
    if (data)
        memcpy(e.data, data, bytes);
    return e;
}

typedef struct rig {
    ts_arena *a;
    ts_graph *g;
    edge in[8];
    ts_ref *ref;
} rig;

static void fill(rig *r)
{
    for (int i = 0; i < r->g->ninputs; i++) {
        const ts_type *t = &r->g->inputs[i]->type;
        ts_tensor_info info = {
            .name = r->g->inputs[i]->name, .dtype = t->dtype, .bytes = ts_type_bytes(t)};
        ts_tensor *x = ts_ref_tensor(r->ref, r->g->inputs[i]);
        fill_input(&info, 1, 3, 0, x->data);
        r->in[i] = edge_new(x->data, info.bytes);
    }
}

/* One micro-batch, as the engine runs it: each kernel cut in `pieces`. */
static void run_module(const ts_module *m, const rig *r, char *block, int pieces)
{
    const void *in[8];
    ts_run_ctx c = {.m = block, .in = in};

    for (int i = 0; i < r->g->ninputs; i++)
        in[i] = r->in[i].data;
    for (int i = 0; i < m->nkernels; i++)
        for (int k = 0; k < pieces; k++) {
            int64_t lo = m->kernels[i].count * k / pieces,
                    hi = m->kernels[i].count * (k + 1) / pieces;
            if (lo < hi)
                m->kernels[i].run(&c, lo, hi, m->kernels[i].places);
        }
}

static void compare_outputs(const rig *r, const ts_program *p, const char *block, const char *how)
{
    for (int i = 0; i < r->g->noutputs; i++) {
        const ts_value *v = r->g->outputs[i];
        ts_tensor *want = ts_ref_tensor(r->ref, v);
        int64_t count = ts_type_count(&v->type);
        double most = 1e-6;
        for (int64_t k = 0; k < count; k++)
            most = fmax(most, fabs(ts_dtype_get(v->type.dtype, want->data, k)));
        for (int64_t k = 0; k < count; k++) {
            double x = ts_dtype_get(v->type.dtype, want->data, k);
            double y = ts_dtype_get(v->type.dtype, block + p->place[v->id].spot.offset, k);
            if (!(fabs(x - y) <= 1e-5 * most))
                fail_msg("%s: %s, element %ld: %.9g, reference %.9g", how, r->g->output_names[i],
                         (long)k, y, x);
        }
    }
}

static void run_native(rig *r, const char *skip, const char *isa, int pieces, const char *how)
{
    ts_options opt = {.skip = skip, .isa = isa};
    const ts_program *p;
    const ts_module *m;
    void *library;
    edge block;

    if (ts_plan(r->a, r->g, &opt, &p))
        fail_msg("%s", ts_error_text());
    m = build(p, r->a, &opt, &library);
    if (!m)
        fail_msg("%s: %s", how, ts_error_text());
    block = edge_new(NULL, p->peak_bytes);
    for (size_t i = 0; i + 4 <= p->peak_bytes; i += 4)
        memcpy(block.data + i, &(float){NAN}, 4); /* what nobody wrote must not count */
    run_module(m, r, block.data, pieces);
    compare_outputs(r, p, block.data, how);
    munmap(block.pages, block.bytes);
    ts_library_close(library);
}

/* --- layouts --- */

typedef enum style {
    PLAIN,
    REVERSED,
    LAST_FIRST,
    LANES8,
    LANES16,
    LANES8_LAST,
    LANES16_MIDDLE,
    MIXED,
    STYLES
} style;
static const char *const style_names[STYLES] = {"plain",
                                                "reversed",
                                                "second dim last",
                                                "8 lanes of dim 0",
                                                "16 lanes of dim 0",
                                                "8 lanes of the last dim",
                                                "16 lanes of dim 1",
                                                "mixed"};

static void lay_out(ts_value *v, style s, int turn)
{
    int rank = v->type.rank;

    if (s == MIXED)
        s = (style)(turn % MIXED);
    if (!rank || s == PLAIN)
        return;
    v->layout = (ts_layout){.set = true};
    for (int i = 0; i < rank; i++)
        v->layout.order[i] = (int8_t)(s == REVERSED ? rank - 1 - i : i);
    if (s == LAST_FIRST && rank > 2) { /* N C H W -> N H W C */
        for (int i = 1; i < rank - 1; i++)
            v->layout.order[i] = (int8_t)(i + 1);
        v->layout.order[rank - 1] = 1;
    }
    if (s >= LANES8 && s <= LANES16_MIDDLE) {
        v->layout.lanes = s == LANES8 || s == LANES8_LAST ? 8 : 16;
        v->layout.lane_dim = (int8_t)(s == LANES8_LAST                  ? rank - 1
                                      : s == LANES16_MIDDLE && rank > 1 ? 1
                                                                        : 0);
    }
}

static bool is_output(const ts_graph *g, const ts_value *v)
{
    for (int i = 0; i < g->noutputs; i++)
        if (g->outputs[i] == v)
            return true;
    return false;
}

static void lay_out_all(ts_graph *g, style s)
{
    for (int i = 0; i < g->nvalues; i++) {
        ts_value *v = g->values[i];
        v->layout = (ts_layout){0};
        if (v->kind == TS_VALUE_NODE && !is_output(g, v) && !(v->node->op->flags & TS_SOURCE))
            lay_out(v, s, i);
    }
}

/* The model in every layout. Frees it. */
static void check(ts_graph *model)
{
    const ts_graph *g = NULL;
    rig r = {.a = ts_arena_new()};
    ts_options opt = {0};

    if (ts_graph_check(model) || ts_pass_run(r.a, "decompose", model, &opt, &g) ||
        ts_ref_new(g, &r.ref))
        fail_msg("%s", ts_error_text());
    r.g = (ts_graph *)g;
    fill(&r);
    if (ts_ref_run(r.ref, 0, &(ts_eval_ctx){0}))
        fail_msg("%s", ts_error_text());
    for (style s = PLAIN; s < STYLES; s++) {
        if (g->inputs[0]->type.dim[0] % 16 == 0 && s < LANES8) /* these do not ask for the size */
            continue;
        lay_out_all(r.g, s);
        run_native(&r, s % 2 ? "fuse" : NULL, s % 3 ? NULL : "portable", 1 + s % 3, style_names[s]);
    }
    for (int i = 0; i < r.g->ninputs; i++)
        munmap(r.in[i].pages, r.in[i].bytes);
    ts_ref_free(r.ref);
    ts_graph_free(model);
    ts_arena_free(r.a);
}

/* A stored copy, so that there is something to lay out; and the way back. */
static ts_value *kept(ts_value *x)
{
    return ts_mul_scalar(ts_tanh(ts_exp(x)), 2);
}

static const int64_t batches[] = {16, 21};

static void pointwise(void **state)
{
    (void)state;
    for (int i = 0; i < TS_COUNT(batches); i++) {
        ts_graph *g = ts_graph_new("point");
        ts_value *x = ts_input(g, "x", TS_F32, batches[i], 3, 5),
                 *b = ts_input(g, "xb", TS_F32, 3, 1);
        ts_value *h = ts_input(g, "xh", TS_F16, batches[i], 3, 5),
                 *d = ts_input(g, "xd", TS_F64, batches[i], 3, 5);
        ts_value *y = kept(x), *z = ts_add(ts_mul(y, b), kept(ts_cast(h, TS_F32)));
        ts_value *less =
            ts_cast(ts_lt(ts_cast(ts_mul_scalar(z, 10), TS_I32), ts_scalar(g, TS_I32, 5)), TS_F32);
        ts_output(ts_add(ts_add(z, y), ts_cast(kept(d), TS_F32)), "y");
        ts_output(ts_mul(ts_add(less, y), z), "z");
        check(g);
    }
}

static void reduce(void **state)
{
    (void)state;
    for (int i = 0; i < TS_COUNT(batches); i++) {
        ts_graph *g = ts_graph_new("reduce");
        ts_value *x = kept(ts_input(g, "x", TS_F32, batches[i], 12, 9)), *y = ts_softmax(x, 1);
        ts_output(ts_add_scalar(ts_sum(x, DIMS(0), false), 1), "rows");
        ts_output(ts_sub(x, ts_amax(x, DIMS(2), true)), "last");
        ts_output(ts_mul_scalar(ts_mean(y, DIMS(0, 2), true), 2), "both");
        ts_output(ts_mul_scalar(ts_sum(ts_mul(x, y), 0, NULL, false), 2), "all");
        ts_output(ts_cast(ts_argmax(x, 1, false), TS_F32), "arg");
        check(g);
    }
}

static void view(void **state)
{
    (void)state;
    for (int i = 0; i < TS_COUNT(batches); i++) {
        ts_graph *g = ts_graph_new("view");
        int64_t n = batches[i];
        ts_value *x = kept(ts_input(g, "x", TS_F32, n, 4, 6)), *p = kept(ts_permute(x, 2, 0, 1)),
                 *parts[3];
        ts_output(ts_reshape(kept(ts_reshape(x, n * 2, 12)), n, 24), "reshape");
        ts_output(ts_add_scalar(p, 1), "permute");
        ts_output(ts_add_scalar(kept(ts_slice(x, 1, 1, 4, 2)), 1), "slice");
        ts_output(
            ts_add_scalar(kept(ts_pad(x, 3, (int64_t[]){1, 0, 2}, (int64_t[]){2, 1, 0}, 3)), 1),
            "pad");
        ts_output(ts_add_scalar(kept(ts_apply(g, "flip", 1, &x, 1,
                                              (ts_arg[]){ts_arg_ints("dims", DIMS(0, 2))})),
                                1),
                  "flip");
        parts[0] = x;
        parts[1] = kept(ts_slice(x, 0, 0, 3, 1));
        parts[2] = x;
        ts_output(ts_add_scalar(kept(ts_concat(3, parts, 0)), 1), "concat");
        ts_output(ts_add_scalar(
                      kept(ts_expand(ts_reshape(ts_sum(x, DIMS(1), false), n, 1, 6), n, 3, 6)), 1),
                  "expand");
        check(g);
    }
}

static void pool(void **state)
{
    (void)state;
    for (int i = 0; i < TS_COUNT(batches); i++) {
        ts_graph *g = ts_graph_new("pool");
        ts_value *x = kept(ts_input(g, "x", TS_F32, batches[i], 3, 7, 9));
        ts_value *y = ts_apply(g, "max_pool", 1, &x, 3,
                               (ts_arg[]){ts_arg_ints("kernel", DIMS(3, 2)),
                                          ts_arg_ints("padding", DIMS(1, 0)),
                                          ts_arg_ints("stride", DIMS(2, 2))});
        ts_value *in[] = {y, ts_result(y, 1)};
        ts_value *d = ts_apply(
            g, "max_pool_grad", 2, in, 4,
            (ts_arg[]){ts_arg_ints("kernel", DIMS(3, 2)), ts_arg_ints("padding", DIMS(1, 0)),
                       ts_arg_ints("stride", DIMS(2, 2)), ts_arg_ints("shape", DIMS(7, 9))});
        ts_output(ts_add_scalar(kept(y), 1), "max");
        ts_output(ts_add_scalar(kept(d), 1), "grad");
        ts_output(ts_add_scalar(ts_avg_pool2d(x, 3, .stride = 2, .padding = 1), 1), "average");
        check(g);
    }
}

static void matmul(void **state)
{
    (void)state;
    for (int i = 0; i < TS_COUNT(batches); i++) {
        ts_graph *g = ts_graph_new("matmul");
        ts_value *x = kept(ts_input(g, "x", TS_F32, batches[i], 4, 9)),
                 *w = kept(ts_input(g, "xw", TS_F32, 9, 17));
        ts_value *b = kept(ts_input(g, "xb", TS_F32, batches[i], 17, 3));
        ts_value *y = ts_relu(ts_matmul(x, w));
        ts_output(ts_add_scalar(ts_matmul(y, b), 1), "y");
        check(g);
    }
}

static void conv(void **state)
{
    (void)state;
    for (int i = 0; i < TS_COUNT(batches); i++) {
        ts_graph *g = ts_graph_new("conv");
        ts_value *x = kept(ts_input(g, "x", TS_F32, batches[i], 4, 6, 7)),
                 *w = kept(ts_input(g, "xw", TS_F32, 6, 2, 3, 2));
        ts_value *in[] = {x, w};
        ts_value *y =
            ts_apply(g, "conv", 2, in, 3,
                     (ts_arg[]){ts_arg_int("groups", 2), ts_arg_ints("padding", DIMS(1, 1)),
                                ts_arg_ints("stride", DIMS(1, 2))});
        ts_value *r = kept(y), *dx[] = {r, w}, *dw[] = {x, r};
        ts_output(ts_add_scalar(r, 1), "y");
        ts_output(ts_add_scalar(kept(ts_apply(g, "conv_input", 2, dx, 4,
                                              (ts_arg[]){ts_arg_int("groups", 2),
                                                         ts_arg_ints("padding", DIMS(1, 1)),
                                                         ts_arg_ints("stride", DIMS(1, 2)),
                                                         ts_arg_ints("shape", DIMS(6, 7))})),
                                1),
                  "dx");
        ts_output(ts_mul_scalar(ts_apply(g, "conv_weight", 2, dw, 4,
                                         (ts_arg[]){ts_arg_int("groups", 2),
                                                    ts_arg_ints("padding", DIMS(1, 1)),
                                                    ts_arg_ints("stride", DIMS(1, 2)),
                                                    ts_arg_ints("shape", DIMS(3, 2))}),
                                2),
                  "dw");
        check(g);
    }
}

static void indexing(void **state)
{
    (void)state;
    for (int i = 0; i < TS_COUNT(batches); i++) {
        ts_graph *g = ts_graph_new("index");
        int64_t n = batches[i];
        ts_value *x = kept(ts_input(g, "x", TS_F32, n, 9)), *k = ts_input(g, "n9", TS_I32, n, 4);
        ts_value *rows = ts_input(g, "n5", TS_I64, n), *in[] = {rows, x}, *sel[] = {x, rows};
        ts_output(ts_add_scalar(kept(ts_gather(x, 1, k)), 1), "gather");
        ts_output(
            ts_add_scalar(kept(ts_apply(g, "index_add", 2, in, 2,
                                        (ts_arg[]){ts_arg_int("dim", 0), ts_arg_int("size", 5)})),
                          1),
            "add");
        ts_output(
            ts_add_scalar(
                kept(ts_apply(g, "index_select", 2, sel, 1, (ts_arg[]){ts_arg_int("dim", 0)})), 1),
            "select");
        check(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pointwise), cmocka_unit_test(reduce), cmocka_unit_test(view),
        cmocka_unit_test(pool),      cmocka_unit_test(matmul), cmocka_unit_test(conv),
        cmocka_unit_test(indexing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
