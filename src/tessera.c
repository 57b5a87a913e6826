/* tessera.c - the public calls; compile() is the table of contents. Start here.
 *
 *   graph --pass--> graph --plan--> program --render--> C --cc--> executable --run--> results
 */
#include "pass/pass.h"
#include "plan/plan.h"
#include "render/render.h"
#include "run/run.h"
#include <dlfcn.h>
#include <unistd.h>

static ts_slot slot(ts_arena *a, const ts_value *v, const char *name, const ts_program *p)
{
    ts_slot s = {.value = v->id};

    s.info.name = ts_arena_strdup(a, name);
    s.info.dtype = v->type.dtype;
    s.info.rank = v->type.rank;
    memcpy(s.info.dims, v->type.dim, sizeof(s.info.dims));
    s.info.bytes = ts_type_bytes(&v->type);
    s.layout = v->layout;
    if (p)
        s.offset = p->place[v->id].offset;
    return s;
}

/* What a run needs to know, copied out of the compile. */
static void describe(ts_executable *x, const ts_graph *g, const ts_program *p, const ts_options *opt)
{
    for (int i = 0; i < g->ninputs; i++)
        TS_PUSH(x->arena, x->inputs, x->ninputs, slot(x->arena, g->inputs[i], g->inputs[i]->name, p));
    for (int i = 0; i < g->noutputs; i++)
        TS_PUSH(x->arena, x->outputs, x->noutputs, slot(x->arena, g->outputs[i], g->output_names[i], p));
    for (int i = 0; i < g->nstates; i++) {
        ts_slot s = slot(x->arena, g->states[i].value, g->states[i].value->name, p);
        s.init = g->states[i].init;
        TS_PUSH(x->arena, x->states, x->nstates, s);
    }
    x->device_iterations = TS_MAX(1, opt->device_iterations);
    x->gradient_accumulation = TS_MAX(1, opt->gradient_accumulation);
    x->output_period = TS_MAX(1, opt->output_period);
    x->mode = opt->output_mode;
    if (x->mode == TS_OUT_DEFAULT)
        x->mode = opt->optimizer ? TS_OUT_FINAL : TS_OUT_ALL;
    if (p) {
        x->block_bytes = p->peak_bytes;
        x->stats.state_bytes = p->state_bytes;
        x->stats.peak_bytes = p->peak_bytes;
        x->stats.kernels = p->nkernels;
        x->stats.flops = p->flops;
    }
}

static ts_status load_library(ts_executable *x, const char *path)
{
    const ts_module *m;

    x->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!x->library)
        return ts_fail(TS_ERR_CORRUPT, "cannot load the compiled step: %s", dlerror());
    m = dlsym(x->library, "tessera_module");
    if (!m || m->abi != TS_MODULE_ABI)
        return ts_fail(TS_ERR_CORRUPT, "the compiled step %s is of another version", path);
    x->module = m;
    return TS_OK;
}

static ts_status build(ts_executable *x, const ts_source *src, const ts_options *opt)
{
    char folder[] = "/tmp/tessera.XXXXXX", so[64];
    ts_status s;

    x->source = ts_arena_strdup(x->arena, src->text);
    x->isa = ts_arena_strdup(x->arena, src->isa.name);
    if (!mkdtemp(folder))
        return ts_fail(TS_ERR_FILE, "cannot make a folder in /tmp");
    snprintf(so, sizeof(so), "%s/step.so", folder);
    s = ts_cc_build(src, opt, folder, so);
    if (!s)
        s = load_library(x, so);
    return s;
}

static ts_status compile(ts_arena *a, const ts_graph *model, const ts_options *opt, ts_executable *x)
{
    const ts_graph *g;
    const ts_program *p;
    const ts_source *src;

    model = ts_graph_import(a, model); /* the user may free theirs before x */
    TS_TRY(ts_pass_all(a, model, opt, &g)); /* pass/    graph   -> graph    */
    if (opt->executor == TS_EXEC_REFERENCE) {
        x->graph = g;
        describe(x, g, NULL, opt);
        return TS_OK;
    }
    TS_TRY(ts_plan(a, g, opt, &p));            /* plan/    graph   -> program  */
    TS_TRY(ts_source_make(a, p, opt, &src));   /* render/  program -> C text   */
    describe(x, g, p, opt);
    return build(x, src, opt);                 /* render/  C text  -> .so      */
}

static ts_status check_options(const ts_options *opt)
{
    int D = TS_MAX(1, opt->device_iterations), N = TS_MAX(1, opt->output_period);

    if (opt->device_iterations < 0 || opt->gradient_accumulation < 0 || opt->output_period < 0)
        return ts_fail(TS_ERR_ARG,
                       "device iterations %d, gradient accumulation %d and output period %d must "
                       "not be negative",
                       opt->device_iterations, opt->gradient_accumulation, opt->output_period);
    if (opt->output_mode == TS_OUT_EVERY_N && D % N)
        return ts_fail(TS_ERR_ARG, "an output period of %d does not divide %d device iterations", N,
                       D);
    return TS_OK;
}

ts_status ts_compile(const ts_graph *g, const ts_options *opt, ts_executable **out)
{
    static const ts_options defaults;
    ts_arena *a = ts_arena_new();
    ts_executable *x = TS_NEW(a, ts_executable);
    double start = ts_now();
    ts_status s;

    x->arena = a;
    opt = opt ? opt : &defaults;
    s = ts_graph_check(g);
    if (!s)
        s = check_options(opt);
    if (!s)
        s = compile(a, g, opt, x);
    if (s) {
        ts_executable_free(x);
        return s;
    }
    x->stats.compile_seconds = ts_now() - start;
    x->stats.native = x->module != NULL;
    *out = x;
    return TS_OK;
}

void ts_executable_free(ts_executable *x)
{
    if (!x)
        return;
    if (x->library)
        dlclose(x->library);
    ts_arena_free(x->arena);
}

const char *ts_executable_source(const ts_executable *x)
{
    return x->source;
}

ts_stats ts_executable_stats(const ts_executable *x)
{
    return x->stats;
}

const ts_tensor_info *ts_executable_tensor(const ts_executable *x, ts_role role, int i)
{
    const ts_slot *s = role == TS_ROLE_INPUT ? x->inputs : role == TS_ROLE_OUTPUT ? x->outputs : x->states;
    int n = role == TS_ROLE_INPUT ? x->ninputs : role == TS_ROLE_OUTPUT ? x->noutputs : x->nstates;

    return i >= 0 && i < n ? &s[i].info : NULL;
}
