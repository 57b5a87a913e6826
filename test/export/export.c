/* Exported C: every op case through a strict C99 compiler against the reference, and what
 * ts_export_c refuses.
 *
 * Many cases share a translation unit, which also shows that their names do not meet:
 *
 *   #include "c12.c"
 *   void c12_call(const void *const *in, void *const *out) { c12_run(in[0], out[0]); }
 */
#include "cases.h"
#include "compare.h"
#include "pass/pass.h"
#include "random_graph.h"
#include "support.h"
#include <dlfcn.h>

enum { BATCH = 80 };
#define STRICT "-std=c99 -Wall -Wextra -pedantic -Werror"

typedef struct part {
    const op_case *c;
    ts_graph *built;
    ts_graph *g;           /* everything it reads is an input */
    const ts_graph *small; /* the same without composite ops, for the reference */
    ts_ref *want;
} part;

static ts_arena *arena;
static op_case *cases;
static int ncases;

/* --- a case as a graph of inputs only: with constants there would be nothing left to export --- */

static ts_status make_part(ts_arena *a, const op_case *c, part *p)
{
    ts_value **map;

    *p = (part){.c = c};
    TS_TRY(case_build(c, &p->built));
    p->g = ts_graph_in(a, c->op->name);
    map = TS_NEWS(a, ts_value *, p->built->nvalues);
    for (int i = 0; i < p->built->ninputs; i++) {
        const ts_value *v = p->built->inputs[i];
        map[v->id] = ts_graph_add_input(p->g, v->name, v->type);
    }
    for (int i = 0; i < p->built->nstates; i++) {
        const ts_value *v = p->built->states[i].value;
        map[v->id] = ts_graph_add_input(p->g, v->name, v->type);
    }
    for (int i = 0; i < p->built->nnodes; i++)
        ts_graph_copy_node(p->g, p->built->nodes[i], map);
    for (int i = 0; i < p->built->noutputs; i++)
        ts_graph_add_output(p->g, map[p->built->outputs[i]->id], p->built->output_names[i]);
    TS_TRY(ts_pass_decompose(a, p->g, &(ts_options){0}, &p->small));
    return case_run(c, p->small, &p->want);
}

static void free_part(part *p)
{
    ts_ref_free(p->want);
    ts_graph_free(p->built);
}

static bool is_random(const op_case *c)
{
    return strstr(c->op->name, "rand") ||
           (!strcmp(c->op->name, "dropout") && !strstr(c->text, "training=0"));
}

/* What the outputs need: only such inputs are parameters. */
static bool *needed(ts_arena *a, const ts_graph *g)
{
    bool *need = TS_NEWS(a, bool, g->nvalues);

    for (int i = 0; i < g->noutputs; i++)
        need[g->outputs[i]->id] = true;
    for (int i = g->nnodes - 1; i >= 0; i--)
        for (int k = 0; k < g->nodes[i]->nout; k++)
            for (int m = 0; m < g->nodes[i]->nin && need[g->nodes[i]->out[k]->id]; m++)
                need[g->nodes[i]->in[m]->id] = true;
    return need;
}

/* --- files --- */

static void write_text(const char *folder, const char *name, const char *end, const char *text)
{
    char path[4096];

    snprintf(path, sizeof(path), "%s/%s%s", folder, name, end);
    assert_ok(ts_file_write(path, text, strlen(text)));
}

/* Exports g as `name` and puts it in the unit. */
static ts_status add_graph(const char *folder, const char *name, const ts_graph *g, ts_text *unit)
{
    ts_arena *a = ts_arena_new();
    bool *need = needed(a, g);
    ts_c_files f;
    int n = 0;
    ts_status s = ts_export_c(g, &(ts_export_options){.name = name, .no_example = true}, &f);

    if (!s) {
        write_text(folder, name, ".c", f.source);
        write_text(folder, name, ".h", f.header);
        ts_c_files_free(&f);
        ts_text_printf(unit,
                       "#include \"%s.c\"\n"
                       "void %s_call(const void *const *in, void *const *out);\n"
                       "void %s_call(const void *const *in, void *const *out)\n"
                       "{\n    (void)in;\n    %s_run(",
                       name, name, name, name);
        for (int i = 0; i < g->ninputs; i++)
            if (need[g->inputs[i]->id])
                ts_text_printf(unit, "%sin[%d]", n++ ? ", " : "", i);
        for (int i = 0; i < g->noutputs; i++)
            ts_text_printf(unit, "%sout[%d]", n++ ? ", " : "", i);
        ts_text_printf(unit, ");\n}\n");
    }
    ts_arena_free(a);
    return s;
}

static bool there_is(const char *compiler)
{
    char command[256];

    snprintf(command, sizeof(command), "command -v %s >/dev/null 2>&1", compiler);
    return !system(command);
}

static void compile(const char *folder, const char *compiler, const char *flags)
{
    char command[4096];

    snprintf(command, sizeof(command), "cd %s && %s " STRICT " %s >log 2>&1", folder, compiler,
             flags);
    if (system(command)) {
        snprintf(command, sizeof(command), "head -40 %s/log >&2", folder);
        fail_msg("%s refuses the exported C%s", compiler, system(command) ? "" : ": see above");
    }
}

/* Compiles the unit and loads it; whatever is undefined in it ends the test. */
static void *load(const char *folder, const ts_text *unit)
{
    char path[4096];
    void *library;

    write_text(folder, "unit", ".c", unit->s);
    compile(
        folder, "cc",
        "-O1 -fsanitize=undefined -fno-sanitize-recover=all -shared -fPIC unit.c -lm -o unit.so");
    if (there_is("clang"))
        compile(folder, "clang", "-fsyntax-only unit.c");
    snprintf(path, sizeof(path), "%s/unit.so", folder);
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    assert_non_null(library);
    return library;
}

/* --- running --- */

typedef void call_fn(const void *const *in, void *const *out);

static int check_part(ts_arena *a, void *library, const part *p)
{
    const void **in = TS_NEWS(a, const void *, p->g->ninputs);
    void **out = TS_NEWS(a, void *, p->g->noutputs);
    call_fn *call = (call_fn *)dlsym(library, ts_arena_printf(a, "c%d_call", p->c->line));
    int wrong = 0;

    assert_non_null(call);
    for (int i = 0; i < p->g->ninputs; i++)
        in[i] = ts_ref_tensor(p->want, p->small->inputs[i])->data;
    for (int i = 0; i < p->g->noutputs; i++)
        out[i] = ts_arena_alloc(a, ts_type_bytes(&p->g->outputs[i]->type));
    call(in, out);
    for (int i = 0; i < p->g->noutputs; i++) {
        const ts_value *v = p->small->outputs[i];
        int64_t k = case_difference(p->small, p->want, v, out[i]);
        if (k < 0)
            continue;
        wrong++;
        print_error("%s: y%d[%ld] is %.9g, the reference has %.9g\n", p->c->text, i, (long)k,
                    ts_dtype_get(v->type.dtype, out[i], k),
                    ts_dtype_get(v->type.dtype, ts_ref_tensor(p->want, v)->data, k));
    }
    return wrong;
}

static int run_batch(int n, const op_case *const *c)
{
    ts_arena *a = ts_arena_new();
    char *folder = test_folder();
    part parts[BATCH];
    ts_text unit = {0};
    void *library;
    int wrong = 0;

    for (int i = 0; i < n; i++) {
        assert_ok(make_part(a, c[i], &parts[i]));
        if (add_graph(folder, ts_arena_printf(a, "c%d", c[i]->line), parts[i].g, &unit))
            fail_msg("%s\n%s", c[i]->text, ts_error_text());
    }
    library = load(folder, &unit);
    for (int i = 0; i < n; i++) {
        wrong += check_part(a, library, &parts[i]);
        free_part(&parts[i]);
    }
    dlclose(library);
    test_folder_remove(folder);
    free(folder);
    ts_text_free(&unit);
    ts_arena_free(a);
    return wrong;
}

/* Every `step`-th case as dtype t. */
static void run_cases(ts_dtype t, int step)
{
    const op_case *batch[BATCH];
    int n = 0, wrong = 0, ran = 0;
    ts_arena *a = ts_arena_new();

    for (int i = 0; i < ncases; i += step) {
        op_case *c = TS_NEW(a, op_case);
        if (is_random(&cases[i]) || !case_in(&cases[i], t, c))
            continue;
        batch[n++] = c;
        ran++;
        if (n == BATCH) {
            wrong += run_batch(n, batch);
            n = 0;
        }
    }
    if (n)
        wrong += run_batch(n, batch);
    ts_arena_free(a);
    assert_int_equal(wrong, 0);
    assert_true(ran > 20);
}

static void as_written(void **state)
{
    (void)state;
    run_cases(TS_F32, test_brief() ? 4 : 1);
}

static void in_other_types(void **state)
{
    (void)state;
    run_cases(TS_F64, 9);
    run_cases(TS_F16, 11);
    run_cases(TS_BF16, 13);
}

/* --- random networks: what is fused, and memory that is shared --- */

static bool halves(const ts_graph *g)
{
    for (int i = 0; i < g->nvalues; i++)
        if (g->values[i]->type.dtype == TS_F16 || g->values[i]->type.dtype == TS_BF16)
            return true;
    return false;
}

static int check_random(void *library, const char *name, const trial *t)
{
    const ts_options opt = {.executor = TS_EXECUTOR_REFERENCE};
    call_fn *call = (call_fn *)dlsym(library, ts_arena_printf(arena, "%s_call", name));
    const ts_tensor_info *info;
    void *in[256], *out[256];
    ts_executable *x;
    results want, got = {0};
    int wrong = 0, n = 0;

    assert_ok(ts_compile(t->g, &opt, &x));
    assert_ok(run_all(x, &opt, 1, 1, 0, 0, &want));
    for (; (info = ts_executable_tensor(x, TS_ROLE_INPUT, n)); n++) {
        in[n] = malloc(info->bytes + 1);
        fill_input(info, 1, 0, 0, in[n]);
    }
    for (int i = 0; i < t->g->noutputs; i++)
        out[i] = results_add(&got, ts_executable_tensor(x, TS_ROLE_OUTPUT, i), 1);
    call((const void *const *)in, out);
    for (int64_t i = 0, at; i < t->g->noutputs; i++) {
        double d = distance(&want, &got, (int)i, false, &at);
        if (d <= tolerance_of(TS_F32))
            continue;
        wrong++;
        print_error("%s: output %d differs by %g\n", name, (int)i, d);
    }
    while (n--)
        free(in[n]);
    results_free(&want);
    results_free(&got);
    ts_executable_free(x);
    return wrong;
}

/* Seeds whose results depend on how a last bit is rounded are left out, see run/random_graphs.c. */
static void random_networks(void **state)
{
    enum { SEEDS = 100 };
    trial t[SEEDS];
    bool made[SEEDS];
    char *folder = test_folder(), name[32];
    ts_text unit = {0};
    int ran = 0, wrong = 0;
    void *library;

    (void)state;
    for (int i = 0; i < SEEDS; i++) {
        test_random_graph((uint64_t)i, &t[i]);
        snprintf(name, sizeof(name), "r%d", i);
        made[i] = !halves(t[i].g) && t[i].g->noutputs;
        t[i].g->nupdates = 0; /* one run, so they change nothing */
        if (made[i] && add_graph(folder, name, t[i].g, &unit)) {
            assert_int_equal(ts_last_error()->code, TS_ERR_UNSUPPORTED);
            assert_non_null(strstr(ts_last_error()->message, "no random numbers"));
            made[i] = false;
        }
    }
    library = load(folder, &unit);
    for (int i = 0; i < SEEDS; i++) {
        snprintf(name, sizeof(name), "r%d", i);
        if (made[i]) {
            wrong += check_random(library, name, &t[i]);
            ran++;
        }
        ts_graph_free(t[i].g);
    }
    dlclose(library);
    test_folder_remove(folder);
    free(folder);
    ts_text_free(&unit);
    assert_int_equal(wrong, 0);
    assert_true(ran > 20);
}

/* --- products of bytes --- */

enum { SAMPLES = 4, IMAGE = 3 * 9 * 10, SCORES = 7 };

/* Every kind of product: few channels, many, groups, one channel each, transposed, a matrix; what
 * is negative and what is not. */
static ts_graph *net_of_products(void)
{
    ts_graph *g = ts_graph_new("products");
    ts_value *x = ts_input(g, "x", TS_F32, 1, 3, 9, 10), *y;

    x = ts_relu(ts_conv2d(x, "few", 16, 3, .padding = 1));
    y = ts_conv2d(x, "many", 16, 3, .padding = 1);
    x = ts_add(y, ts_conv2d(x, "apart", 16, 3, .padding = 1, .groups = 16));
    x = ts_relu(ts_conv2d(x, "grouped", 24, 3, .padding = 2, .stride = 2, .groups = 2));
    x = ts_conv_transpose2d(x, "back", 8, 2, .stride = 2);
    x = ts_tanh(ts_conv2d(x, "strided", 12, 3, .stride = 2, .dilation = 2));
    ts_output(ts_linear(ts_flatten(x, 1), "fc", SCORES), "y");
    return g;
}

static void fill_samples(float *x)
{
    for (int i = 0; i < SAMPLES * IMAGE; i++)
        x[i] = (float)((i * 7919) % 1999) / 1000 - 1;
}

static void scores_of(const ts_graph *g, const float *x, float *y)
{
    ts_executable *exe;
    ts_engine *e;

    assert_ok(ts_compile(g, &(ts_options){.executor = TS_EXECUTOR_REFERENCE}, &exe));
    assert_ok(ts_engine_new(exe, NULL, &e));
    for (int i = 0; i < SAMPLES; i++)
        assert_ok(ts_engine_run(e, (const void *[]){x + i * IMAGE}, (void *[]){y + i * SCORES}));
    ts_engine_free(e);
    ts_executable_free(exe);
}

static void products_of_bytes(void **state)
{
    static float x[SAMPLES * IMAGE], want[SAMPLES * SCORES], got[SAMPLES * SCORES];
    const ts_export_options o = {.name = "net",
                                 .int8 = true,
                                 .calibration = (const void *const[]){x},
                                 .calibrations = SAMPLES};
    ts_graph *g = net_of_products();
    char *folder = test_folder();
    double most = 0, apart = 0;
    ts_text unit = {0};
    ts_c_files f;
    call_fn *call;
    void *library;

    (void)state;
    fill_samples(x);
    assert_ok(ts_export_c(g, &o, &f));
    assert_int_equal(f.int8_products, 7);
    assert_non_null(strstr(f.source, "static const int8_t "));
    assert_null(strstr(f.source, "/* f32[16,16,3,3] */"));
    write_text(folder, "net", ".c", f.source);
    write_text(folder, "net", ".h", f.header);
    ts_text_printf(&unit, "#include \"net.c\"\n"
                          "void call(const void *const *in, void *const *out);\n"
                          "void call(const void *const *in, void *const *out)\n"
                          "{\n    net_run(in[0], out[0]);\n}\n");
    library = load(folder, &unit);
    call = (call_fn *)dlsym(library, "call");
    for (int i = 0; i < SAMPLES; i++)
        call((const void *[]){x + i * IMAGE}, (void *[]){got + i * SCORES});
    scores_of(g, x, want);
    for (int i = 0; i < SAMPLES * SCORES; i++) {
        most = fmax(most, fabs(want[i]));
        apart = fmax(apart, fabs(want[i] - got[i]));
    }
    assert_true(apart > 0 && apart < 0.04 * most);
    dlclose(library);
    test_folder_remove(folder);
    free(folder);
    ts_text_free(&unit);
    ts_c_files_free(&f);
    ts_graph_free(g);
}

static void calibration_needs_samples(void **state)
{
    float x[IMAGE];
    ts_graph *g = net_of_products();
    ts_c_files f;

    (void)state;
    assert_fails(ts_export_c(g, &(ts_export_options){.int8 = true, .calibrations = 2}, &f),
                 TS_ERR_ARG, "2 batches to calibrate with, and no samples");
    assert_fails(ts_export_c(g, &(ts_export_options){.calibrations = 2}, &f), TS_ERR_ARG,
                 "2 batches to calibrate with, for an export without int8");
    for (int i = 0; i < IMAGE; i++)
        x[i] = i == 9 ? NAN : 0;
    assert_fails(
        ts_export_c(g,
                    &(ts_export_options){
                        .int8 = true, .calibration = (const void *const[]){x}, .calibrations = 1},
                    &f),
        TS_ERR_NUMBER, "the samples to calibrate with make numbers in the net that are not finite");
    ts_graph_free(g);
}

/* --- what is refused, and names --- */

static ts_graph *linear_net(const char *name)
{
    ts_graph *g = ts_graph_new(name);

    ts_output(ts_linear(ts_input(g, "x", TS_F32, 1, 4), "fc", 3), "y");
    return g;
}

static void random_numbers_are_refused(void **state)
{
    ts_graph *g = ts_graph_new("net");
    ts_c_files f;

    (void)state;
    ts_output(ts_dropout(ts_input(g, "x", TS_F32, 1, 4), 0.5, true), "y");
    assert_fails(ts_export_c(g, NULL, &f), TS_ERR_UNSUPPORTED,
                 "exported C has no random numbers, and 'rand' makes some");
    assert_null(f.source);
    ts_graph_free(g);
}

static void updates_are_refused(void **state)
{
    ts_graph *g = ts_graph_new("net");
    ts_c_files f;

    (void)state;
    ts_output(ts_batch_norm(ts_input(g, "x", TS_F32, 2, 3, 4, 4), "bn"), "y");
    assert_fails(ts_export_c(g, NULL, &f), TS_ERR_UNSUPPORTED,
                 "the graph changes its state 'bn.running_mean'; only inference is exported");
    ts_graph_free(g);
}

static void names_are_identifiers(void **state)
{
    static const char *const bad[] = {"", "1net", "my-net", "_net", "a b", "n/../x"};
    ts_graph *g = linear_net("7 nets, *one* / more");
    char longest[65];
    ts_c_files f;

    (void)state;
    for (int i = 0; i < TS_COUNT(bad); i++)
        assert_int_equal(
            ts_export_c(g, &(ts_export_options){.name = bad[i], .no_example = true}, &f),
            TS_ERR_ARG);
    memset(longest, 'a', 64);
    longest[64] = 0;
    assert_fails(ts_export_c(g, &(ts_export_options){.name = longest, .no_example = true}, &f),
                 TS_ERR_ARG, "the name of an exported net has 64 letters; up to 63 are allowed");
    assert_ok(ts_export_c(g, &(ts_export_options){.no_example = true}, &f));
    assert_string_equal(f.name, "n7_nets___one____more");
    ts_c_files_free(&f);
    ts_graph_free(g);
}

static void weights_must_fit(void **state)
{
    float numbers[12] = {0};
    ts_array w = {TS_F32, 2, {4, 3}, sizeof(numbers), numbers};
    ts_graph *g = linear_net("net");
    ts_object *dict = ts_object_new_dict();
    ts_export_options opt = {.weights = dict, .no_example = true};
    ts_c_files f;

    (void)state;
    assert_fails(ts_export_c(g, &opt, &f), TS_ERR_ARG, "the weights have no tensor 'fc.weight'");
    assert_ok(ts_object_set(dict, "fc.weight", ts_object_new_tensor(&w)));
    assert_fails(ts_export_c(g, &opt, &f), TS_ERR_SHAPE,
                 "the weights have f32[4,3] for 'fc.weight', the net wants f32[3,4]");
    assert_fails(ts_export_c(NULL, &opt, &f), TS_ERR_ARG,
                 "an export needs a graph and a place for the files");
    ts_object_free(dict);
    ts_graph_free(g);
}

/* From an engine, from a dict of doubles, or as they start: the same weights are the same text. */
static void weights_from_anywhere(void **state)
{
    ts_graph *g = linear_net("net");
    ts_object *dict = ts_object_new_dict();
    ts_executable *x;
    ts_engine *e;
    ts_c_files f[3];

    (void)state;
    assert_ok(ts_compile(g, &(ts_options){.executor = TS_EXECUTOR_REFERENCE}, &x));
    assert_ok(ts_engine_new(x, NULL, &e));
    for (int i = 0; i < 2; i++) {
        const ts_tensor_info *t = ts_executable_tensor(x, TS_ROLE_STATE, i);
        double wide[12];
        float numbers[12];
        ts_array w = {TS_F64, t->rank, {0}, 2 * t->bytes, wide};
        memcpy(w.dims, t->dims, sizeof(w.dims));
        assert_ok(ts_engine_read(e, t->name, numbers, t->bytes));
        for (size_t k = 0; k < t->bytes / sizeof(float); k++)
            wide[k] = numbers[k];
        assert_ok(ts_object_set(dict, t->name, ts_object_new_tensor(&w)));
    }
    assert_ok(ts_export_c(g, &(ts_export_options){.no_example = true}, &f[0]));
    assert_ok(ts_export_c(g, &(ts_export_options){.engine = e, .no_example = true}, &f[1]));
    assert_ok(ts_export_c(g, &(ts_export_options){.weights = dict, .no_example = true}, &f[2]));
    assert_string_equal(f[0].source, f[1].source);
    assert_string_equal(f[0].source, f[2].source);
    assert_non_null(strstr(f[0].source, "static const float net_fc_bias[3] = {"));
    for (int i = 0; i < 3; i++)
        ts_c_files_free(&f[i]);
    ts_object_free(dict);
    ts_engine_free(e);
    ts_executable_free(x);
    ts_graph_free(g);
}

/* What a description says cannot end the comment it stands in. */
static void comments_stay_comments(void **state)
{
    ts_graph *g = linear_net("net");
    ts_export_options opt = {.about = "a */ int evil; /* b\n\n*/", .no_example = true};
    ts_c_files f;

    (void)state;
    assert_ok(ts_export_c(g, &opt, &f));
    assert_non_null(strstr(f.header, " * a *\\057 int evil; /\\052 b\n *\n * *\\057\n */\n"));
    ts_c_files_free(&f);
    ts_graph_free(g);
}

/* An output that is an input, a constant, or comes twice. */
static void outputs_that_nothing_computes(void **state)
{
    static const float numbers[] = {1, 2, 3, 4};
    char *folder = test_folder();
    ts_graph *g = ts_graph_new("net");
    ts_value *x = ts_input(g, "x", TS_F32, 4), *y = ts_relu(x);
    ts_c_files f;

    (void)state;
    ts_output(x, "x");
    ts_output(y, "y");
    ts_output(y, "again");
    ts_output(ts_const(g, TS_F32, numbers, 4), "numbers");
    assert_ok(ts_export_c(g, NULL, &f));
    write_text(folder, "net", ".c", f.source);
    write_text(folder, "net", ".h", f.header);
    write_text(folder, "main", ".c", f.example);
    write_text(folder, "expected", ".txt", f.expected);
    compile(folder, "cc",
            "-O2 main.c net.c -lm -o net && ./net > got.txt && cmp got.txt expected.txt");
    ts_c_files_free(&f);
    ts_graph_free(g);
    test_folder_remove(folder);
    free(folder);
}

static int setup(void **state)
{
    (void)state;
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

/* --- into a folder, and through the compiler of this machine --- */

/* Two inputs, one of whole numbers, and two outputs. */
static ts_graph *two_and_two(void)
{
    ts_graph *g = ts_graph_new("two");
    ts_value *x = ts_input(g, "x", TS_F32, 4), *i = ts_input(g, "i", TS_I32, 4);

    ts_output(ts_add(x, ts_cast(i, TS_F32)), "sum");
    ts_output(ts_mul_scalar(x, 2), "double");
    return g;
}

static void what_is_shipped_runs_here(void **state)
{
    const float x[] = {1, 2, 3, 4};
    const int32_t i[] = {10, 20, 30, 40};
    float sum[4], twice[4];
    ts_graph *g = two_and_two();
    ts_c_files f;
    ts_c_net *n;

    (void)state;
    assert_ok(ts_export_c(g, &(ts_export_options){.no_example = true}, &f));
    assert_int_equal(f.inputs, 2);
    assert_int_equal(f.outputs, 2);
    assert_ok(ts_c_net_new(&f, &n));
    ts_c_net_run(n, (const void *[]){x, i}, (void *[]){sum, twice});
    for (int k = 0; k < 4; k++) {
        assert_true(sum[k] == x[k] + (float)i[k]);
        assert_true(twice[k] == 2 * x[k]);
    }
    ts_c_net_free(n);
    ts_c_net_free(NULL);
    setenv("TESSERA_CC", "/nowhere/cc", 1);
    assert_int_equal(ts_c_net_new(&f, &n), TS_ERR_COMPILER);
    assert_null(n);
    unsetenv("TESSERA_CC");
    assert_int_equal(ts_c_net_new(NULL, &n), TS_ERR_ARG);
    assert_int_equal(ts_c_net_new(&(ts_c_files){0}, &n), TS_ERR_ARG);
    ts_c_files_free(&f);
    ts_graph_free(g);
}

/* All files or none, whatever fails; and none of somebody else's. */
static void a_folder_has_all_or_none(void **state)
{
    char *folder = test_folder();
    ts_graph *g = two_and_two();
    ts_c_files f;

    (void)state;
    assert_ok(ts_export_c(g, &(ts_export_options){0}, &f));
    write_text(folder, "", "main.c", "int main(void) { return 0; }");
    assert_fails(ts_c_files_write(&f, folder, false), TS_ERR_FILE,
                 ts_arena_printf(arena, "%s/main.c is there, and no export wrote it", folder));
    assert_int_equal(test_folder_count(folder), 1);
    for (int nth = 0; nth < 8; nth++) { /* four files are begun, then written */
        ts_fault_arm(nth < 4 ? "create" : "write", nth % 4);
        assert_int_equal(ts_c_files_write(&f, folder, true), TS_ERR_FILE);
        assert_int_equal(test_folder_count(folder), 1);
    }
    ts_fault_arm(NULL, -1);
    assert_ok(ts_c_files_write(&f, folder, true));
    assert_ok(ts_c_files_write(&f, folder, false)); /* ours */
    assert_int_equal(test_folder_count(folder), 4);
    assert_int_equal(ts_c_files_write(&f, "/nowhere", false), TS_ERR_FILE);
    assert_int_equal(ts_c_files_write(&f, NULL, false), TS_ERR_ARG);
    ts_c_files_free(&f);
    ts_graph_free(g);
    test_folder_remove(folder);
    free(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_written),
        cmocka_unit_test(in_other_types),
        cmocka_unit_test(random_networks),
        cmocka_unit_test(products_of_bytes),
        cmocka_unit_test(calibration_needs_samples),
        cmocka_unit_test(random_numbers_are_refused),
        cmocka_unit_test(updates_are_refused),
        cmocka_unit_test(names_are_identifiers),
        cmocka_unit_test(weights_must_fit),
        cmocka_unit_test(weights_from_anywhere),
        cmocka_unit_test(comments_stay_comments),
        cmocka_unit_test(outputs_that_nothing_computes),
        cmocka_unit_test(what_is_shipped_runs_here),
        cmocka_unit_test(a_folder_has_all_or_none),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
