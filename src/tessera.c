/* tessera.c - the public calls; compile() is the table of contents. Start here.
 *
 *   graph --pass--> graph --plan--> program --render--> C --cc--> executable --run--> results
 */
#include "cache/cache.h"
#include "gpu/gpu.h"
#include "pass/pass.h"
#include "plan/plan.h"
#include "profile/profile.h"
#include "render/render.h"
#include "run/run.h"
#include "tessera/device.h"
#include "tessera/plan.h"

/* --- options --- */

static ts_status check_options(const ts_graph *g, const ts_options *opt)
{
    ts_machine_model m;

    TS_TRY(ts_options_check(opt));
    TS_TRY(ts_pass_check(g, opt));
    TS_TRY(ts_plan_check_phases(g, opt));
    if (opt->executor == TS_EXECUTOR_REFERENCE)
        return TS_OK;
    TS_TRY(ts_machine_find(opt->isa, &m));
    return ts_isa_check(m.isa.name);
}

/* TESSERA_DEVICE is for programs that know nothing of GPUs. */
static ts_status choose_device(ts_options *opt)
{
    static const struct {
        const char *name;
        ts_device_kind kind;
    } known[] = {{"gpu", TS_DEVICE_GPU}, {"opencl", TS_DEVICE_OPENCL}};
    const char *name = getenv("TESSERA_DEVICE");

    if (!name || !name[0] || !strcmp(name, "cpu") || ts_gpu_is(opt->device_kind))
        return TS_OK;
    for (int i = 0; i < TS_COUNT(known); i++)
        if (!strcmp(known[i].name, name)) {
            opt->device_kind = known[i].kind;
            return TS_OK;
        }
    return ts_fail(TS_ERR_ARG, "TESSERA_DEVICE is '%s'; it must be cpu, gpu or opencl", name);
}

static ts_status gpu_memory(ts_device_kind kind, int64_t *bytes)
{
    const ts_gpu_driver *d = ts_gpu_driver_of(kind);
    ts_gpu_info info;
    ts_gpu *g;

    TS_TRY(ts_gpu_open(d, 0, &g));
    d->describe(g, &info);
    *bytes = info.memory;
    return TS_OK;
}

ts_status ts_device_describe(ts_device_kind kind, char *text, size_t size)
{
    const ts_gpu_driver *d = ts_gpu_driver_of(kind);
    size_t used = 0;
    int n;

    if (!d || !text)
        return ts_fail(TS_ERR_ARG, "only a GPU is described, and in a text that is there");
    TS_TRY(ts_gpu_count(d, &n));
    for (int i = 0; i < n; i++) {
        ts_gpu_info info;
        ts_gpu *g;
        TS_TRY(ts_gpu_open(d, i, &g));
        d->describe(g, &info);
        if (used < size)
            used += (size_t)snprintf(text + used, size - used, "%s%s, %.1f GiB, %s", i ? "; " : "",
                                     info.name, (double)info.memory / (1 << 30), info.architecture);
    }
    return TS_OK;
}

int64_t ts_device_memory(ts_device_kind kind)
{
    int64_t bytes = 0;

    if (!ts_gpu_is(kind))
        return ts_plan_kind_memory(kind);
    return gpu_memory(kind, &bytes) ? 0 : bytes;
}

/* A model's or a GPU's memory is a limit as if it were given; a share of the machine's is seen to by
 * the plan. The reference executor runs on the processor. */
static ts_status with_device(const ts_options *asked, ts_options *with)
{
    *with = asked ? *asked : (ts_options){0};
    if (with->executor == TS_EXECUTOR_REFERENCE && ts_gpu_is(with->device_kind))
        with->device_kind = TS_DEVICE_CPU;
    if (with->executor != TS_EXECUTOR_REFERENCE)
        TS_TRY(choose_device(with));
    if (with->device_memory || with->device_kind == TS_DEVICE_CPU)
        return TS_OK;
    if (ts_gpu_is(with->device_kind))
        return gpu_memory(with->device_kind, &with->device_memory);
    with->device_memory = ts_plan_kind_memory(with->device_kind);
    return TS_OK;
}

/* --- executables --- */

static void copy_key(ts_executable *x, const ts_key *k)
{
    x->key = *k;
    x->key.entries = ts_arena_copy(x->arena, k->entries, sizeof(*k->entries) * (size_t)k->nentries);
    for (int i = 0; i < k->nentries; i++)
        for (int j = 0; j < 2; j++)
            x->key.entries[i][j] = ts_arena_strdup(x->arena, k->entries[i][j]);
}

/* The reference executor runs the graph itself: from its text, so that nothing of the compile or of
 * the user's graph is needed any more, and a saved one runs the same. */
static ts_status interpret(const ts_graph *g, const ts_options *opt, ts_executable **out)
{
    ts_executable *x = *out = ts_executable_new();
    ts_text t = {0};

    ts_executable_describe(x, g, NULL, opt);
    ts_graph_print(g, &t);
    x->ir = ts_arena_strdup(x->arena, t.s);
    ts_text_free(&t);
    return ts_executable_start(x);
}

static ts_status build(const ts_program *p, const ts_source *src, const ts_key *key,
                       const ts_options *opt, const ts_kept *kept, ts_executable **out)
{
    ts_executable *x = *out = ts_executable_new();
    char *object;

    ts_executable_describe(x, p->g, p, opt);
    copy_key(x, key);
    x->source = ts_arena_copy(x->arena, src->text, src->len + 1);
    x->isa = ts_arena_strdup(x->arena, src->isa.name);
    TS_TRY(ts_cc_build(src, opt, kept, &object, &x->object_bytes));
    x->object = ts_arena_copy(x->arena, object, x->object_bytes);
    free(object);
    return ts_executable_start(x);
}

/* The same for a GPU: its kernels' text in place of C, its driver in place of the C compiler. */
static ts_status build_gpu(ts_arena *a, const ts_program *p, const ts_key *key,
                           const ts_options *opt, ts_executable **out)
{
    const ts_gpu_driver *d = ts_gpu_driver_of(opt->device_kind);
    ts_executable *x = *out = ts_executable_new();
    ts_gpu_code code;
    ts_text object = {0};
    const char *identity;
    void *binary;
    ts_gpu *g;

    TS_TRY(ts_gpu_text(a, p, opt, &code));
    TS_TRY(ts_gpu_open(d, 0, &g));
    TS_TRY(ts_gpu_identity(a, d, &identity));
    ts_executable_describe(x, p->g, p, opt);
    copy_key(x, key);
    x->source = ts_arena_strdup(x->arena, code.text);
    x->isa = ts_arena_strdup(x->arena, identity);
    TS_TRY(d->compile(g, code.text, &binary, &code.nbinary));
    code.binary = binary;
    ts_gpu_pack(&code, &object);
    free(binary);
    x->object = ts_arena_copy(x->arena, object.s, object.len);
    x->object_bytes = object.len;
    ts_text_free(&object);
    return ts_executable_start(x);
}

/* --- compile --- */

/* After a tick of 0 there is one of 100 or, when the compilation failed, of -1. */
static void tick(const ts_options *opt, int percent)
{
    if (opt->progress)
        opt->progress(opt->progress_arg, percent);
}

/* The compiler's identity, or NULL: the reference executor. Where there is no compiler it is that
 * of the one that made what is in the cache. */
static ts_status find_compiler(ts_arena *a, const ts_graph *model, const ts_options *opt,
                               const char **cc, bool *missing)
{
    *cc = NULL;
    *missing = false;
    if (opt->executor == TS_EXECUTOR_REFERENCE)
        return TS_OK;
    if (ts_gpu_is(opt->device_kind)) {
        TS_TRY(ts_gpu_identity(a, ts_gpu_driver_of(opt->device_kind), cc));
        *cc = ts_gpu_choices(a, *cc);
        return TS_OK;
    }
    *cc = ts_cc_identity(a, opt);
    *missing = !*cc;
    if (*missing)
        *cc = ts_cache_compiler(a, opt, model->name);
    return TS_OK;
}

/* Nothing was cached either. */
static ts_status no_compiler(const ts_options *opt)
{
    ts_cc_missing(opt);
    if (opt->executor == TS_EXECUTOR_NATIVE)
        return TS_ERR_COMPILER;
    ts_note(TS_LOG_WARN, "%s; the reference executor runs instead, slowly: %s",
            ts_last_error()->message, ts_last_error()->hint);
    return TS_OK;
}

/* A compilation, and what is noted of it for the profile. */
typedef struct job {
    ts_arena *a;
    const ts_graph *model;
    const ts_options *opt;
    ts_profile profile;
    ts_host_event phases[8];
    int nphases;
} job;

/* A phase that began then has ended now. */
static void phase(job *j, const char *kind, const char *name, double start)
{
    double end = ts_now();

    ts_note(TS_LOG_DEBUG, "%s: %s, %.2f ms", kind, name, 1e3 * (end - start));
    if (j->nphases < TS_COUNT(j->phases))
        j->phases[j->nphases++] = (ts_host_event){kind, name, 0, start, end};
}

typedef struct lowered {
    const ts_graph *g;
    const ts_program *p;  /* NULL: for the reference executor */
    const ts_source *src; /* NULL: not C */
} lowered;

/* All that comes before a compiler. */
static ts_status lower(job *j, const ts_options *opt, bool native, lowered *out)
{
    ts_arena *a = j->a;
    double start = ts_now();

    *out = (lowered){0};
    TS_TRY(ts_plan_passes(a, j->model, opt, &out->g)); /* pass/    graph   -> graph    */
    phase(j, "pass", j->model->name, start);
    tick(opt, 20);
    if (!native && !j->profile.folder)
        return TS_OK;
    start = ts_now();
    TS_TRY(ts_plan(a, out->g, opt, &out->p)); /* plan/    graph   -> program  */
    phase(j, "plan", ts_arena_printf(a, "%d kernels", out->p->nkernels), start);
    tick(opt, 30);
    if (!native || ts_gpu_is(opt->device_kind))
        return TS_OK;
    start = ts_now();
    TS_TRY(ts_source_make(a, out->p, opt, &out->src)); /* render/  program -> C text   */
    phase(j, "render", ts_arena_printf(a, "%zu bytes", out->src->len), start);
    tick(opt, 40);
    return TS_OK;
}

/* profile/ program -> profile.db; `refused` is what the budget said, or NULL. */
static ts_status see(job *j, const ts_options *opt, const lowered *l, const char *refused)
{
    ts_profiled x = {.model = j->model, .p = l->p, .src = l->src, .opt = opt, .refused = refused};
    ts_status s;

    if (!j->profile.folder)
        return TS_OK;
    if (!l->src && !ts_gpu_is(opt->device_kind))
        x.unmeasured = "the reference executor has no kernels";
    if (x.unmeasured && !refused)
        ts_note(TS_LOG_WARN, "the profile has no times: %s", x.unmeasured);
    s = ts_profile_write(j->a, &j->profile, &x);
    if (s)
        ts_error_doing("writing the profile of the graph '%s'", j->model->name);
    return s;
}

/* The plan that does not fit, as it would be with more memory. What the caller hears stays the
 * budget's word. */
static void see_refused(job *j, bool native)
{
    ts_options unlimited = *j->opt;
    ts_error e = *ts_last_error();
    lowered l;
    const char *words = ts_arena_printf(j->a, "%s\n%s", e.message, e.hint);

    unlimited.device_memory = INT64_MAX;
    unlimited.dump_dir = NULL;
    unlimited.progress = NULL;
    if (lower(j, &unlimited, native, &l) || see(j, j->opt, &l, words)) {
        ts_note(TS_LOG_WARN, "no profile of what does not fit: %s", ts_last_error()->message);
        ts_error_set(&e);
        return;
    }
    ts_error_set(&e);
    ts_error_hint("%s; %s/profile.db shows what is where", e.hint, j->profile.folder);
}

/* kept: what was compiled before, or NULL */
static ts_status make(job *j, const ts_key *key, const ts_kept *kept, ts_executable **out)
{
    const ts_options *opt = j->opt;
    double start;
    lowered l;

    TS_TRY(lower(j, opt, key != NULL, &l));
    TS_TRY(see(j, opt, &l, NULL));
    if (!key)
        return interpret(l.g, opt, out);
    start = ts_now();
    if (ts_gpu_is(opt->device_kind)) {
        TS_TRY(build_gpu(j->a, l.p, key, opt, out)); /* gpu/     program -> kernels  */
        phase(j, "cc", "gpu", start);
        return TS_OK;
    }
    TS_TRY(build(l.p, l.src, key, opt, kept, out)); /* render/  C text  -> .so      */
    phase(j, "cc", "C compiler", start);
    return TS_OK;
}

/* A learning rate that may change while it trains is no part of the program, so not of its key. */
static ts_key key_of(ts_arena *a, const ts_graph *model, const ts_options *opt, const char *cc)
{
    ts_options fixed = *opt;

    if (opt->optimizer)
        fixed.optimizer = ts_optimizer_fixed(a, opt->optimizer);
    return ts_cache_key(a, model, &fixed, cc);
}

/* A cached executable starts with the values of the optimizer it was made with: here are ours. */
static void start_with(ts_arena *a, ts_executable *x, const ts_optimizer *o)
{
    for (int i = 0; o && i < x->nstates; i++)
        (void)ts_optimizer_start(a, o, x->states[i].info.name, &x->states[i].init.a);
}

/* A program that is in the cache is planned all the same when it is to be seen. */
static ts_status see_cached(job *j)
{
    lowered l;

    if (!j->profile.folder)
        return TS_OK;
    TS_TRY(lower(j, j->opt, true, &l));
    return see(j, j->opt, &l, NULL);
}

static ts_status compile(job *j, bool *native, ts_executable **out)
{
    ts_arena *a = j->a;
    const ts_graph *model = j->model;
    const ts_options *opt = j->opt;
    const char *cc;
    ts_key key;
    ts_cache *cache;
    bool missing;
    ts_status s = TS_OK;

    TS_TRY(find_compiler(a, model, opt, &cc, &missing));
    if (!cc && missing)
        TS_TRY(no_compiler(opt));
    *native = cc != NULL;
    if (!cc)
        return make(j, NULL, NULL, out);
    key = key_of(a, model, opt, cc);
    cache = opt->dump_dir ? NULL : ts_cache_open(opt, model->name, &key); /* a hit dumps nothing */
    tick(opt, 5);
    if (ts_cache_find(cache, out)) {
        start_with(a, *out, opt->optimizer);
        s = see_cached(j);
    } else if (missing) {
        s = no_compiler(opt);
        s = s ? s : make(j, NULL, NULL, out);
    } else {
        s = make(j, &key, ts_cache_kept(cache), out);
        if (!s) {
            tick(opt, 95);
            ts_cache_put(cache, *out);
        }
    }
    ts_cache_close(cache);
    return s;
}

/* Which folder, if any: of processes that train together the first one's is made. */
static ts_profile profile_of(const ts_options *opt)
{
    bool asked = opt->profile && opt->profile[0];
    int rank = 0;

    if (asked)
        ts_comm_place(&rank, NULL);
    return (ts_profile){.folder = asked && !rank ? opt->profile : NULL,
                        .calls = opt->profile_calls ? opt->profile_calls : 10,
                        .zero = ts_now()};
}

static ts_status compile_job(ts_arena *a, const ts_graph *g, const ts_options *opt,
                             ts_executable **out)
{
    job j = {.a = a, .model = g, .opt = opt, .profile = profile_of(opt)};
    bool native = true;
    ts_status s = compile(&j, &native, out);

    if (!j.profile.folder)
        return s;
    if (s == TS_ERR_MEMORY)
        see_refused(&j, native);
    if (s)
        return s;
    phase(&j, "compile", g->name, j.profile.zero);
    ts_executable_profile(*out, &j.profile);
    return ts_profile_host(&j.profile, j.phases, j.nphases);
}

static ts_status compile_checked(const ts_graph *g, const ts_options *asked, ts_executable **out)
{
    ts_options with;
    const ts_options *opt = &with;
    double start = ts_now();
    ts_executable *x = NULL;
    ts_arena *a;
    ts_status s;

    if (!g || !out)
        return ts_fail(TS_ERR_ARG, "compiling needs a graph and a place for the executable");
    *out = NULL;
    s = ts_graph_check(g);
    if (!s)
        s = with_device(asked, &with);
    if (!s)
        s = check_options(g, opt);
    if (!s) {
        tick(opt, 0);
        a = ts_arena_new();
        s = compile_job(a, g, opt, &x);
        ts_arena_free(a);
    }
    if (s) {
        ts_error_doing("compiling the graph '%s'", g->name);
        ts_executable_free(x);
        if (asked)
            tick(asked, -1);
        return s;
    }
    x->stats.compile_seconds = ts_now() - start;
    *out = x;
    tick(opt, 100);
    return TS_OK;
}

ts_status ts_compile_sized(const ts_graph *g, const ts_options *opt, size_t size,
                           size_t optimizer_size, ts_executable **out)
{
    ts_options own;
    ts_optimizer optimizer;

    TS_TRY(ts_take_options("ts_compile", opt, size, optimizer_size, &own, &optimizer));
    return compile_checked(g, &own, out);
}

/* --- estimate --- */

ts_status ts_compile_plan(ts_arena *a, const ts_graph *g, const ts_options *opt,
                          const ts_program **out)
{
    TS_TRY(ts_graph_check(g));
    TS_TRY(check_options(g, opt));
    TS_TRY(ts_plan_passes(a, g, opt, &g));
    return ts_plan(a, g, opt, out);
}

static ts_status estimate(const ts_graph *g, const ts_options *opt, ts_stats *out)
{
    ts_options with;
    const ts_program *p;
    ts_arena *a;
    ts_status s;

    TS_TRY(with_device(opt, &with));
    a = ts_arena_new();
    s = ts_compile_plan(a, g, &with, &p);
    if (!s)
        *out = (ts_stats){.native = true,
                          .state_bytes = p->state_bytes,
                          .peak_bytes = p->peak_bytes,
                          .flops = p->flops,
                          .kernels = p->nkernels};
    ts_arena_free(a);
    return s;
}

ts_status ts_estimate_sized(const ts_graph *g, const ts_options *opt, size_t size,
                            size_t optimizer_size, ts_stats *out, size_t out_size)
{
    ts_options own;
    ts_optimizer optimizer;
    ts_stats stats;

    if (!g || !out)
        return ts_fail(TS_ERR_ARG, "an estimate needs a graph and a place for the numbers");
    TS_TRY(ts_take_options("ts_estimate", opt, size, optimizer_size, &own, &optimizer));
    TS_TRY(estimate(g, &own, &stats));
    ts_give(&stats, sizeof(stats), out, out_size);
    return TS_OK;
}

/* --- profile --- */

/* Is it the program that was loaded? Its text says so. */
static ts_status check_loaded(const ts_executable *x, const ts_graph *g, const lowered *l)
{
    if (l->src && x->source && !strcmp(l->src->text, x->source))
        return TS_OK;
    ts_fail(TS_ERR_ARG, "the executable is not what would be made of the graph '%s' now", g->name);
    ts_error_hint("another version or machine, or other options made it: compile the graph again");
    return TS_ERR_ARG;
}

/* x: what was loaded, or NULL for the plan alone. */
static ts_status profile_plan(ts_arena *a, const ts_graph *g, const ts_options *opt,
                              ts_executable *x)
{
    job j = {.a = a, .model = g, .opt = opt, .profile = profile_of(opt)};
    lowered l;
    ts_status s;

    if (!j.profile.folder && x)
        return TS_OK; /* of several processes the first one's is made */
    if (!j.profile.folder)
        return ts_fail(TS_ERR_ARG, "a profile needs a folder: ts_options.profile");
    TS_TRY(ts_graph_check(g));
    TS_TRY(check_options(g, opt));
    s = lower(&j, opt, true, &l);
    if (s == TS_ERR_MEMORY)
        see_refused(&j, true);
    TS_TRY(s);
    if (x && !ts_gpu_is(opt->device_kind))
        TS_TRY(check_loaded(x, g, &l));
    TS_TRY(see(&j, opt, &l, NULL));
    if (x)
        ts_executable_profile(x, &j.profile);
    return ts_profile_host(&j.profile, j.phases, j.nphases);
}

static ts_status profile_checked(ts_executable *x, const ts_graph *g, const ts_options *own)
{
    ts_options with;
    ts_arena *a;
    ts_status s;

    TS_TRY(with_device(own, &with));
    a = ts_arena_new();
    s = profile_plan(a, g, &with, x);
    ts_arena_free(a);
    if (s)
        ts_error_doing("planning the graph '%s'", g->name);
    return s;
}

ts_status ts_profile_plan_sized(const ts_graph *g, const ts_options *opt, size_t size,
                                size_t optimizer_size)
{
    ts_options own;
    ts_optimizer optimizer;

    if (!g)
        return ts_fail(TS_ERR_ARG, "a profile needs a graph");
    TS_TRY(ts_take_options("ts_profile_plan", opt, size, optimizer_size, &own, &optimizer));
    return profile_checked(NULL, g, &own);
}

ts_status ts_profile_loaded_sized(ts_executable *x, const ts_graph *g, const ts_options *opt,
                                  size_t size, size_t optimizer_size)
{
    ts_options own;
    ts_optimizer optimizer;

    if (!x || !g)
        return ts_fail(TS_ERR_ARG, "the profile of an executable needs it and its graph");
    TS_TRY(ts_take_options("ts_profile_loaded", opt, size, optimizer_size, &own, &optimizer));
    return profile_checked(x, g, &own);
}
