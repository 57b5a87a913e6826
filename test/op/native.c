/* Generated code against the reference: every case, its outputs and gradients, on every instruction
 * set this machine can run.
 *
 * A compilation costs the C compiler's start however small the graph is, so many cases share one:
 *
 *   graph cases
 *   input %3.dy0, state %3.x0, ...      case 3
 *   %17 = ...
 *   output 3.y0, output 3.dx0
 *
 * With TESSERA_DEVICE the same on a GPU.
 *
 * A case that differs is run again alone, and both are reported: a bug of the op shows in both, one
 * of fusion or planning may need its neighbours.
 */
#include "cases.h"
#include "support.h"

enum { BATCH = 48 }; /* cases of a compilation */

/* One case in a batch. */
typedef struct part {
    const op_case *c;
    ts_graph *model;
    const ts_graph *g; /* outputs and gradients */
    ts_ref *want;
} part;

static ts_arena *arena;
static op_case *cases;
static int ncases;

/* --- building --- */

static ts_status make_part(ts_arena *a, const op_case *c, part *p)
{
    *p = (part){.c = c};
    TS_TRY(case_build(c, &p->model));
    TS_TRY(case_grad(a, p->model, &p->g));
    return case_run(c, p->g, &p->want);
}

static void free_part(part *p)
{
    ts_ref_free(p->want);
    ts_graph_free(p->model);
}

static void add_part(ts_arena *a, ts_graph *all, const part *p)
{
    ts_value **map = TS_NEWS(a, ts_value *, p->g->nvalues);
    int line = p->c->line;

    for (int i = 0; i < p->g->ninputs; i++) {
        const ts_value *v = p->g->inputs[i];
        map[v->id] = ts_graph_add_input(all, ts_arena_printf(a, "%d.%s", line, v->name), v->type);
    }
    for (int i = 0; i < p->g->nstates; i++) {
        const ts_value *v = p->g->states[i].value;
        map[v->id] = ts_graph_add_state(all, ts_arena_printf(a, "%d.%s", line, v->name), v->type,
                                        (ts_init){0}, false);
    }
    for (int i = 0; i < p->g->nnodes; i++)
        ts_graph_copy_node(all, p->g->nodes[i], map);
    for (int i = 0; i < p->g->noutputs; i++)
        ts_graph_add_output(all, map[p->g->outputs[i]->id],
                            ts_arena_printf(a, "%d.%s", line, p->g->output_names[i]));
}

/* --- running --- */

static void *filled(ts_arena *a, const part *p, const ts_value *v)
{
    void *data = ts_arena_alloc(a, ts_type_bytes(&v->type));

    case_fill(p->c, v, data);
    return data;
}

/* Runs the parts in e; got[i] are the outputs, in their order. */
static ts_status run_parts(ts_arena *a, ts_engine *e, int n, const part *parts, void **got)
{
    const void **in = NULL;
    int nin = 0, nout = 0;

    for (int i = 0; i < n; i++) {
        const ts_graph *g = parts[i].g;
        for (int k = 0; k < g->ninputs; k++)
            TS_PUSH(a, in, nin, filled(a, &parts[i], g->inputs[k]));
        for (int k = 0; k < g->nstates; k++) {
            const ts_value *v = g->states[k].value;
            TS_TRY(ts_engine_write(e, ts_arena_printf(a, "%d.%s", parts[i].c->line, v->name),
                                   filled(a, &parts[i], v), ts_type_bytes(&v->type)));
        }
        for (int k = 0; k < g->noutputs; k++)
            got[nout++] = ts_arena_alloc(a, ts_type_bytes(&g->outputs[k]->type));
    }
    return ts_engine_run(e, in, got);
}

static ts_status compile_and_run(ts_arena *a, const char *isa, int n, const part *parts, void **got)
{
    ts_options opt = {
        .executor = TS_EXECUTOR_NATIVE, .cache_dir = "", .isa = isa, .no_winograd = true};
    ts_graph *all = ts_graph_in(a, "cases");
    ts_executable *x = NULL;
    ts_engine *e = NULL;
    ts_status s;

    for (int i = 0; i < n; i++)
        add_part(a, all, &parts[i]);
    s = ts_compile(all, &opt, &x);
    if (!s && !test_cuda_text(x))
        s = TS_ERR_COMPILER;
    if (!s)
        s = ts_engine_new(x, &(ts_run_options){.threads = 2, .seed = 1}, &e);
    if (!s)
        s = run_parts(a, e, n, parts, got);
    ts_engine_free(e);
    ts_executable_free(x);
    return s;
}

/* --- comparing --- */

/* The first element of output k that differs, -1: none. */
static int64_t difference(const part *p, int k, const void *got)
{
    return case_difference(p->g, p->want, p->g->outputs[k], got);
}

static bool agrees(const part *p, void *const *got)
{
    for (int k = 0; k < p->g->noutputs; k++)
        if (difference(p, k, got[k]) >= 0)
            return false;
    return true;
}

static void report(const part *p, const char *how, void *const *got)
{
    for (int k = 0; k < p->g->noutputs; k++) {
        const ts_value *v = p->g->outputs[k];
        int64_t i = difference(p, k, got[k]);
        if (i >= 0)
            print_error("  %s: %s[%ld] of %s is %.9g, the reference has %.9g\n", how,
                        p->g->output_names[k], (long)i, ts_dtype_name(v->type.dtype),
                        ts_dtype_get(v->type.dtype, got[k], i),
                        ts_dtype_get(v->type.dtype, ts_ref_tensor(p->want, v)->data, i));
    }
}

/* --- batches --- */

/* One case by itself, for the report. Returns whether it is wrong. */
static bool alone(const char *isa, const part *p, void *const *before)
{
    ts_arena *a = ts_arena_new();
    void **got = TS_NEWS(a, void *, p->g->noutputs);
    ts_status s = compile_and_run(a, isa, 1, p, got);
    bool wrong = s || !agrees(p, got);

    if (wrong || before)
        print_error("%s, on %s\n", p->c->text, isa ? isa : "this machine");
    if (s)
        print_error("%s", ts_error_text());
    if (before)
        report(p, "among others", before);
    if (!s)
        report(p, "alone", got);
    ts_arena_free(a);
    return wrong || before;
}

static int run_batch(const char *isa, int n, const op_case *const *c)
{
    ts_arena *a = ts_arena_new();
    part parts[BATCH];
    void **got;
    int made = 0, nout = 0, wrong = 0;

    for (int i = 0; i < n; i++) {
        if (!make_part(a, c[i], &parts[made])) {
            nout += parts[made++].g->noutputs;
            continue;
        }
        print_error("%s\n%s", c[i]->text, ts_error_text());
        free_part(&parts[made]);
        wrong++;
    }
    got = TS_NEWS(a, void *, nout + 1);
    double start = ts_now();
    ts_status bad = compile_and_run(a, isa, made, parts, got);
    if (getenv("TS_TEST_VERBOSE"))
        print_message("%s: lines %d to %d in %.1f s\n", isa ? isa : "this machine", c[0]->line,
                      c[n - 1]->line, ts_now() - start);
    if (bad) {
        print_error("%s", ts_error_text());
        for (int i = 0; i < made; i++)
            alone(isa, &parts[i], NULL);
        wrong++;
    } else
        for (int i = 0; i < made; got += parts[i++].g->noutputs)
            if (!agrees(&parts[i], got))
                wrong += alone(isa, &parts[i], got);
    for (int i = 0; i < made; i++)
        free_part(&parts[i]);
    ts_arena_free(a);
    return wrong;
}

/* OpenCL on a processor compiles for long: of an op's cases the first and every tenth; a soak has all. */
static bool is_slow(void)
{
    const char *device = test_device();

    return device && !strcmp(device, "opencl") && !test_soaks();
}

static bool left_to_soak(int i)
{
    if (!is_slow() || i % 10 == 0)
        return false;
    for (int k = 0; k < i; k++)
        if (cases[k].op == cases[i].op)
            return true;
    return false;
}

/* Every `step`-th case from `first` on, as dtype t. In brief, and where it is slow, every other batch of them: the same
 * batches as ever, which were compiled before (tools/cc-once). */
static void run_cases(const char *isa, ts_dtype t, int first, int step)
{
    const op_case *batch[BATCH];
    int n = 0, wrong = 0, ran = 0, turn = 0;
    bool half = (test_brief() || is_slow()) && step > 1;
    ts_arena *a = ts_arena_new();

    for (int i = first; i < ncases; i += step) {
        op_case *c = TS_NEW(a, op_case);
        if ((step == 1 && left_to_soak(i)) || !case_in(&cases[i], t, c))
            continue;
        batch[n++] = c;
        ran++;
        if (n == BATCH) {
            wrong += half && turn++ % 2 ? 0 : run_batch(isa, n, batch);
            n = 0;
        }
    }
    if (n && !(half && turn % 2))
        wrong += run_batch(isa, n, batch);
    ts_arena_free(a);
    assert_int_equal(wrong, 0);
    assert_true(ran > 20);
}

static void as_written(void **state)
{
    (void)state;
    run_cases(NULL, TS_F32, 0, 1);
}

/* What PyTorch leaves open or does not have; cases.txt is compared with it. */
static void what_is_ours_alone(void **state)
{
#define FAR                                                                                        \
    " @values nan inf -inf 1e30 -1e30 3e9 -3e9 300 -300 127.5 -128.5 255.5 256 -0.5 2147483520 "   \
    "-2147483648 9.3e18 -9.3e18"
    static const char *const texts[] = {
        "cast f32[18] dtype=i8" FAR,
        "cast f32[18] dtype=u8" FAR,
        "cast f32[18] dtype=i32" FAR,
        "cast f32[18] dtype=i64" FAR,
        "cast f64[18] dtype=i8" FAR,
        "cast f64[18] dtype=u8" FAR,
        "cast f64[18] dtype=i32" FAR,
        "cast f64[18] dtype=i64" FAR,
        "cast f16[18] dtype=i8" FAR,
        "cast bf16[18] dtype=i32" FAR,
        "full shape=[3] value=0x1p63 dtype=i64",
        "max_pool i32[1,1,4,4] kernel=[2,2] padding=[1,1] @range -9 -5",
        "max_pool i64[1,1,4,4] kernel=[2,2] padding=[1,1] @range -9 -5",
        "max_pool i8[1,1,4,40] kernel=[2,2] padding=[1,1] @range -9 -5",
    };
    op_case ours[TS_COUNT(texts)];
    const op_case *batch[TS_COUNT(texts)];

    (void)state;
    for (int i = 0; i < TS_COUNT(texts); i++) {
        assert_ok(case_read(arena, texts[i], i, &ours[i]));
        batch[i] = &ours[i];
    }
    assert_int_equal(run_batch(NULL, TS_COUNT(texts), batch), 0);
    assert_int_equal(run_batch("portable", TS_COUNT(texts), batch), 0);
}

/* Floats beyond an integer's range end at its ends. */
static void casts_saturate(void **state)
{
    static const int want[] = {0, 127, -128, 127, -128, 127, -128, 127, -128, 127, -128};
    ts_arena *a = ts_arena_new();
    op_case c;
    part p;

    (void)state;
    assert_ok(case_read(a, "cast f32[18] dtype=i8" FAR, 1, &c));
    assert_ok(make_part(a, &c, &p));
    for (int i = 0; i < TS_COUNT(want); i++)
        assert_int_equal(((int8_t *)ts_ref_tensor(p.want, p.g->outputs[0])->data)[i], want[i]);
    free_part(&p);
    ts_arena_free(a);
}

static void on_x86_64_v3(void **state)
{
    (void)state;
    if (test_device())
        skip();
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        run_cases("x86-64-v3", TS_F32, 0, 3);
        return;
    }
#endif
    skip();
}

static void portable(void **state)
{
    (void)state;
    if (test_device())
        skip();
    run_cases("portable", TS_F32, 1, 3);
}

static void in_f64(void **state)
{
    (void)state;
    run_cases(NULL, TS_F64, 0, 4);
}

static void in_f16(void **state)
{
    (void)state;
    run_cases(NULL, TS_F16, 1, 6);
}

static void in_bf16(void **state)
{
    (void)state;
    run_cases(NULL, TS_BF16, 2, 6);
}

static int setup(void **state)
{
    (void)state;
    (void)test_device();
    arena = ts_arena_new();
    if (cases_load(arena, &cases, &ncases)) {
        print_error("%s", ts_error_text());
        return 1;
    }
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    ts_arena_free(arena);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_written),     cmocka_unit_test(what_is_ours_alone),
        cmocka_unit_test(casts_saturate), cmocka_unit_test(on_x86_64_v3),
        cmocka_unit_test(portable),       cmocka_unit_test(in_f64),
        cmocka_unit_test(in_f16),         cmocka_unit_test(in_bf16),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
