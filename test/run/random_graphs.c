/* random_graphs.c - random networks, natively and by the reference executor.
 *
 * A seed decides everything: the graph, the options (passes left out, instruction set, compiler,
 * optimizer, iterations), the data. Each graph runs in a process of its own, two at a time, so
 * generated code that crashes or hangs is a failure like any other. A failing graph is made smaller
 * while it still fails and written to fuzz-<seed>.ir in the build folder. `make replay SEED=17` shows
 * one graph and what each way to compile it makes of it.
 *
 *   FUZZ_SEED=17          only this one
 *   FUZZ_REPLAY=          that one in all ways, for `make replay`; =isa only those with "isa" in
 *                         their name
 *   FUZZ_COUNT=5000       how many; 160, fewer with sanitizers
 *   FUZZ_SECONDS=3600     as many as fit
 *   TS_ROUND=3            the third repetition of a soak: other seeds
 *
 * Where rounding is amplified (an argmax of equal numbers, relu of 0 in the backward pass) both
 * executors are right and differ. Such graphs are recognised by shaking the reference's own inputs
 * a little: what then moves as much as the difference found says nothing.
 */
#include "compare.h"
#include "random_graph.h"
#include "render/render.h"
#include "support.h"
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#if defined(__SANITIZE_ADDRESS__)
enum { COUNT = 60 };
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
enum { COUNT = 40 };
#else
enum { COUNT = 160 };
#endif
#else
enum { COUNT = 160 };
#endif

enum { JOBS = 2, CALLS = 2 };

/* --- the check --- */

static int coarseness(ts_dtype t)
{
    return t == TS_BF16 ? 4 : t == TS_F16 ? 3 : t == TS_F32 ? 2 : t == TS_F64 ? 1 : 0;
}

/* The coarsest dtype behind v; a state that changes has the whole graph behind it. */
static ts_dtype coarsest(const ts_graph *g, const ts_value *v, bool *seen)
{
    ts_dtype worst = v ? v->type.dtype : TS_F64;

    if (v && seen[v->id])
        return TS_F64;
    if (v)
        seen[v->id] = true;
    if (v && v->kind == TS_VALUE_NODE)
        for (int i = 0; i < v->node->nin; i++) {
            ts_dtype t = coarsest(g, v->node->in[i], seen);
            worst = coarseness(t) > coarseness(worst) ? t : worst;
        }
    if (!v || v->kind == TS_VALUE_STATE)
        for (int i = 0; i < g->nvalues; i++)
            worst = coarseness(g->values[i]->type.dtype) > coarseness(worst)
                        ? g->values[i]->type.dtype
                        : worst;
    return coarseness(worst) ? worst : TS_F64;
}

typedef struct verdict {
    bool failed;
    char why[2048];
} verdict;

static bool every; /* tell every difference, not only the first: make replay */

static void TS_PRINTF(2, 3) blame(verdict *v, const char *fmt, ...)
{
    va_list ap;
    char why[sizeof(v->why)];

    va_start(ap, fmt);
    vsnprintf(why, sizeof(why), fmt, ap);
    va_end(ap);
    if (every) {
        printf("\n    %s", why);
        fflush(stdout); /* the process that asks ends without */
    }
    if (v->failed)
        return;
    v->failed = true;
    memcpy(v->why, why, sizeof(why));
}

/* Does the reference itself move this much when its inputs are shaken by a rounding or two? */
static bool chaotic(const trial *t, const ts_executable *ref, const results *want, int i,
                    double found, double shake, bool halves)
{
    for (int k = 1; k <= 6; k++) {
        results r = {0};
        int64_t at;
        double d = 0;
        if (!run_all(ref, &t->opt, 1, CALLS, t->seed, shake * k, &r))
            d = distance(want, &r, i, halves, &at);
        results_free(&r);
        if (d > found / 3)
            return true;
    }
    return false;
}

static void compare(const trial *t, const ts_executable *ref, const results *want,
                    const results *got, verdict *v)
{
    const ts_graph *g = t->g;
    ts_dtype all = coarsest(g, NULL, NULL);

    for (int i = 0; i < want->n && (every || !v->failed); i++) {
        int o = i % TS_MAX(1, want->outputs);
        bool output = i < CALLS * want->outputs && o < g->noutputs,
             *seen = calloc((size_t)g->nvalues + 1, 1);
        ts_dtype c = output ? coarsest(g, g->outputs[o], seen) : all;
        double tol = tolerance_of(c), d;
        int64_t at;
        free(seen);
        d = distance(want, got, i, coarseness(c) > 2, &at);
        if (d <= tol)
            continue;
        if (chaotic(t, ref, want, i, d, tol / (coarseness(c) > 2 ? 20 : 100), coarseness(c) > 2)) {
            if (getenv("FUZZ_PRINT"))
                fprintf(stderr, "seed %lu: chaotic: %s %.3g\n", (unsigned long)t->seed,
                        want->info[i].name, d);
            continue;
        }
        blame(v, "%s %s of call %d, element %ld: %.9g, reference %.9g (relative error %.3g)",
              i < CALLS * want->outputs ? "output" : "state", want->info[i].name,
              i < CALLS * want->outputs ? i / want->outputs + 1 : CALLS, (long)at,
              ts_dtype_get(got->info[i].dtype, got->data[i], at),
              ts_dtype_get(want->info[i].dtype, want->data[i], at), d);
    }
}

/* The same bits, or NaN on both sides: which NaN is the compiler's choice. */
static bool same_bits(const results *x, const results *y, int i)
{
    size_t size = ts_dtype_size(x->info[i].dtype);
    const char *p = x->data[i], *q = y->data[i];

    for (int64_t k = 0; k < x->count[i]; k++, p += size, q += size) {
        double a = ts_dtype_get(x->info[i].dtype, x->data[i], k),
               b = ts_dtype_get(y->info[i].dtype, y->data[i], k);
        if (memcmp(p, q, size) && !(isnan(a) && isnan(b)))
            return false;
    }
    return true;
}

/* What clang makes of a graph has the bits of what the system's compiler makes of it. */
static void check_compilers(const trial *t, const results *clang, verdict *v)
{
    trial r = *t;
    ts_executable *exe = NULL;
    results got = {0};

    r.opt.cc = NULL;
    if (r.opt.optimizer)
        r.opt.optimizer = &r.optimizer;
    if (ts_compile(r.g, &r.opt, &exe) || run_all(exe, &r.opt, 1, CALLS, r.seed, 0, &got))
        blame(v, "compile with cc: %s", ts_error_text());
    for (int i = 0; i < clang->n && i < got.n && !v->failed; i++)
        if (!same_bits(clang, &got, i))
            blame(v, "%s has other bits from cc than from clang", got.info[i].name);
    results_free(&got);
    ts_executable_free(exe);
}

static void check_native(const trial *t, const ts_executable *ref, const ts_executable *exe,
                         verdict *v)
{
    results want = {0}, one = {0}, three = {0};

    if (run_all(ref, &t->opt, 1, CALLS, t->seed, 0, &want) ||
        run_all(exe, &t->opt, 1, CALLS, t->seed, 0, &one) ||
        run_all(exe, &t->opt, 3, CALLS, t->seed, 0, &three))
        blame(v, "run: %s", ts_error_text());
    if (!v->failed)
        compare(t, ref, &want, &one, v);
    for (int i = 0; i < one.n && i < three.n && (every || !v->failed); i++)
        if (memcmp(one.data[i], three.data[i],
                   (size_t)one.count[i] * ts_dtype_size(one.info[i].dtype)))
            blame(v, "%s has other bits with 3 threads than with 1", one.info[i].name);
    if (t->opt.cc && !v->failed)
        check_compilers(t, &one, v);
    results_free(&want);
    results_free(&one);
    results_free(&three);
}

static void check(const trial *t, verdict *v)
{
    trial r = *t;
    ts_executable *ref = NULL, *exe = NULL;

    r.opt.executor = TS_EXECUTOR_REFERENCE;
    if (r.opt.optimizer)
        r.opt.optimizer = &r.optimizer;
    if (ts_compile(r.g, &r.opt, &ref) == TS_ERR_GRAD) { /* nothing to train: infer */
        r.opt.optimizer = NULL;
        r.opt.gradient_accumulation = 0;
        ts_compile(r.g, &r.opt, &ref);
    }
    r.opt.executor = TS_EXECUTOR_NATIVE;
    if (!ref || ts_compile(r.g, &r.opt, &exe))
        blame(v, "compile: %s", ts_error_text());
    else if (!test_cuda_text(exe))
        blame(v, "NVRTC does not compile the text");
    else
        check_native(&r, ref, exe, v);
    ts_executable_free(exe);
    ts_executable_free(ref);
}

static void plain_signals(void)
{
    for (int sig = 1; sig < 32; sig++)
        signal(sig, SIG_DFL);
}

/* The same in a process that may crash or hang. */
static void check_apart(const trial *t, verdict *v)
{
    int pipes[2], status = 0;
    pid_t pid;
    ssize_t n;

    *v = (verdict){0};
    if (pipe(pipes))
        return;
    fflush(NULL);
    pid = fork();
    if (!pid) {
        plain_signals();
        alarm(60);
        check(t, v);
        n = write(pipes[1], v, sizeof(*v));
        _exit(n != sizeof(*v));
    }
    close(pipes[1]);
    n = read(pipes[0], v, sizeof(*v));
    close(pipes[0]);
    waitpid(pid, &status, 0);
    if (n != sizeof(*v)) {
        *v = (verdict){0};
        blame(v, WIFSIGNALED(status) ? "ended by signal %d" : "ended with status %d",
              WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    }
}

/* --- making a failing graph smaller --- */

/* What to leave out of a copy. */
typedef struct cut {
    int output, update, node; /* by index; -1: none. A node's results become inputs */
    int64_t from, to;         /* every size `from` becomes `to` */
} cut;

static int64_t resized(const cut *c, int64_t n)
{
    return c->from && n == c->from ? c->to : n;
}

static ts_type resized_type(const cut *c, ts_type t)
{
    for (int i = 0; i < t.rank; i++)
        t.dim[i] = resized(c, t.dim[i]);
    return t;
}

static void copy_state(ts_graph *out, const ts_state *s, const cut *c, ts_value **map)
{
    map[s->value->id] = ts_graph_add_state(out, s->value->name, resized_type(c, s->value->type),
                                           s->init, s->trained);
}

static ts_node *remake(ts_graph *out, const ts_node *n, const cut *c, ts_value **map)
{
    ts_value *in[64];
    ts_attr attr[16];
    ts_node *m;

    for (int i = 0; i < n->nin; i++)
        in[i] = map[n->in[i]->id];
    memcpy(attr, n->attr, sizeof(ts_attr) * (size_t)n->nattr);
    for (int i = 0; i < n->nattr && c->from; i++)
        if (attr[i].kind == 'l' &&
            (!strcmp(attr[i].name, "shape") || !strcmp(attr[i].name, "size"))) {
            int64_t *l = TS_NEWS(out->arena, int64_t, attr[i].n);
            for (int k = 0; k < attr[i].n; k++)
                l[k] = resized(c, attr[i].l[k]);
            attr[i].l = l;
        }
    m = ts_node_make(out, n->op, n->nin, in, n->nattr, attr);
    if (m && n->data)
        m->data = n->data; /* its start, when it got smaller */
    return m;
}

static bool *find_needed(ts_arena *a, const ts_graph *g, const cut *c)
{
    bool *need = TS_NEWS(a, bool, g->nvalues);

    for (int i = 0; i < g->noutputs; i++)
        if (i != c->output)
            need[g->outputs[i]->id] = true;
    for (int i = 0; i < g->nupdates; i++)
        if (i != c->update)
            need[g->updates[i].next->id] = need[g->updates[i].state->id] = true;
    if (g->loss)
        need[g->loss->id] = true;
    for (int i = g->nnodes - 1; i >= 0; i--) {
        const ts_node *n = g->nodes[i];
        bool any = false;
        for (int k = 0; k < n->nout; k++)
            any = any || need[n->out[k]->id];
        for (int k = 0; k < n->nin && any && i != c->node; k++)
            need[n->in[k]->id] = true;
    }
    return need;
}

/* NULL when what is left is not a graph. The copy may point into g, which must outlive it. */
static ts_graph *without(const ts_graph *g, const cut *c)
{
    ts_graph *out = ts_graph_new(g->name);
    ts_value **map = TS_NEWS(out->arena, ts_value *, g->nvalues);
    bool *need = find_needed(out->arena, g, c);

    for (int i = 0; i < g->ninputs; i++)
        if (need[g->inputs[i]->id])
            map[g->inputs[i]->id] =
                ts_graph_add_input(out, g->inputs[i]->name, resized_type(c, g->inputs[i]->type));
    for (int i = 0; i < g->nstates; i++)
        if (need[g->states[i].value->id])
            copy_state(out, &g->states[i], c, map);
    for (int i = 0; i < g->nnodes && !out->status; i++) {
        const ts_node *n = g->nodes[i];
        bool any = false;
        ts_node *m = NULL;
        for (int k = 0; k < n->nout; k++)
            any = any || need[n->out[k]->id];
        if (!any)
            continue;
        if (i != c->node && !(m = remake(out, n, c, map)))
            break;
        for (int k = 0; k < n->nout; k++)
            map[n->out[k]->id] =
                m ? m->out[k]
                  : ts_graph_add_input(out, ts_arena_printf(out->arena, "x_v%d", n->out[k]->id),
                                       resized_type(c, n->out[k]->type));
    }
    if (out->status) {
        ts_graph_free(out);
        return NULL;
    }
    for (int i = 0; i < g->noutputs; i++)
        if (i != c->output)
            ts_output(map[g->outputs[i]->id], g->output_names[i]);
    for (int i = 0; i < g->nupdates; i++)
        if (i != c->update &&
            ts_type_same(&map[g->updates[i].state->id]->type, &map[g->updates[i].next->id]->type))
            ts_assign(map[g->updates[i].state->id], map[g->updates[i].next->id]);
    if (g->loss)
        ts_loss(map[g->loss->id]);
    return out;
}

/* Fails in the same way: a compile error stays one, a wrong number stays one. */
static bool still(const trial *t, const verdict *first)
{
    verdict v;

    check_apart(t, &v);
    return v.failed && !strncmp(v.why, first->why, 5);
}

static bool try_cut(trial *t, const verdict *first, cut c)
{
    trial s = *t;

    s.g = without(t->g, &c);
    if (!s.g)
        return false;
    if (s.g->noutputs + s.g->nupdates + (s.g->loss != NULL) == 0 || !still(&s, first)) {
        ts_graph_free(s.g);
        return false;
    }
    t->g = s.g; /* the larger one stays: the smaller may point into it */
    return true;
}

static void minimise(trial *t, const verdict *first)
{
    double stop = ts_now() + 90;
    bool again = true;
    trial s = *t;

    s.opt.gradient_accumulation = s.opt.device_iterations = 0;
    s.opt.output_mode = TS_OUTPUT_DEFAULT;
    s.opt.optimizer = NULL;
    if (still(&s, first))
        *t = s;
    while (again && ts_now() < stop) {
        again = false;
        for (int i = t->g->noutputs - 1; i >= 0 && ts_now() < stop; i--)
            again |= try_cut(t, first, (cut){i, -1, -1, 0, 0});
        for (int i = t->g->nupdates - 1; i >= 0 && ts_now() < stop; i--)
            again |= try_cut(t, first, (cut){-1, i, -1, 0, 0});
        for (int i = t->g->nnodes - 1; i >= 0 && ts_now() < stop; i--)
            if (i < t->g->nnodes && t->g->nodes[i]->nin)
                again |= try_cut(t, first, (cut){-1, -1, i, 0, 0});
        for (int64_t from = 40; from > 1 && ts_now() < stop; from--)
            for (int64_t to = 1; to < from && ts_now() < stop; to = to * 2) {
                bool has = false;
                for (int i = 0; i < t->g->nvalues; i++)
                    for (int d = 0; d < t->g->values[i]->type.rank; d++)
                        has = has || t->g->values[i]->type.dim[d] == from;
                if (has && try_cut(t, first, (cut){-1, -1, -1, from, to}))
                    again = true;
            }
    }
}

/* The command that shows this graph again, in the build folder that we are from. */
static const char *replay_command(uint64_t seed)
{
    static char text[128];
    const char *root = getenv("TS_BUILD_ROOT"), *name = root ? strrchr(root, '/') : NULL;

    snprintf(text, sizeof(text), "make replay SEED=%lu", (unsigned long)seed);
    if (name && strcmp(name, "/build"))
        snprintf(text + strlen(text), sizeof(text) - strlen(text), " BUILD=%s", name + 1);
    return text;
}

static void describe(const trial *t, char *text, size_t size)
{
    const ts_options *o = &t->opt;

    snprintf(text, size,
             "# skip %s, isa %s, cc %s, iterations %d, accumulation %d, output mode %d, optimizer "
             "%d\n",
             o->skip ? o->skip : "nothing", o->isa ? o->isa : "native", o->cc ? o->cc : "default",
             o->device_iterations, o->gradient_accumulation, o->output_mode,
             o->optimizer ? (int)t->optimizer.kind : -1);
}

static void report(const trial *t, const verdict *v)
{
    const char *root = getenv("TS_BUILD_ROOT");
    char *text = ts_graph_text(t->g), path[512], options[512], head[4096];
    FILE *f;

    describe(t, options, sizeof(options));
    snprintf(head, sizeof(head), "# seed %lu: %s\n# %s\n%s", (unsigned long)t->seed, v->why,
             replay_command(t->seed), options);
    snprintf(path, sizeof(path), "%s/fuzz-%lu.ir", root ? root : ".", (unsigned long)t->seed);
    fprintf(stderr, "%s%s", head, text);
    f = fopen(path, "w");
    if (f) {
        fprintf(f, "%s%s", head, text);
        fclose(f);
    }
    free(text);
}

/* In a process of its own. */
static int one_seed(uint64_t seed)
{
    trial t;
    verdict v, last;

    test_random_graph(seed, &t);
    if (ts_graph_check(t.g)) {
        fprintf(stderr, "seed %lu: the generator made no graph: %s\n", (unsigned long)seed,
                ts_error_text());
        return 1;
    }
    if (getenv("FUZZ_PRINT"))
        report(&t, &(verdict){.why = "printed"});
    check_apart(&t, &v);
    if (!v.failed) {
        ts_graph_free(t.g);
        return 0;
    }
    fprintf(stderr, "seed %lu failed: %s\n", (unsigned long)seed, v.why);
    minimise(&t, &v);
    check_apart(&t, &last);
    if (t.opt.optimizer)
        t.opt.optimizer = &t.optimizer;
    report(&t, last.failed ? &last : &v);
    return 1;
}

/* --- one graph, in all ways --- */

/* A way to compile it. ASIS leaves what the seed chose. */
#define ASIS "="
typedef struct way {
    const char *name, *skip, *isa, *cc;
} way;

static const way ways[] = {
    {"as the seed says", ASIS, ASIS, ASIS},
    {"isa native", ASIS, NULL, ASIS},
    {"isa x86-64-v3", ASIS, "x86-64-v3", ASIS},
    {"isa portable", ASIS, "portable", ASIS},
    {"cc gcc", ASIS, ASIS, "gcc"},
    {"cc clang", ASIS, ASIS, "clang"},
    {"all passes", NULL, ASIS, ASIS},
    {"without simplify", "simplify", ASIS, ASIS},
    {"without crop", "crop", ASIS, ASIS},
    {"without layout", "layout", ASIS, ASIS},
    {"without winograd", "winograd", ASIS, ASIS},
    {"without split", "split", ASIS, ASIS},
    {"without fuse", "fuse", ASIS, ASIS},
    {"without spread", "spread", ASIS, ASIS},
    {"plainest", "simplify,crop,layout,winograd,split,fuse,spread", "portable", ASIS},
};

static const char *chosen(const char *way, const char *seed)
{
    return way && !strcmp(way, ASIS) ? seed : way;
}

/* NULL when this machine can try it, else why not. */
static const char *cannot(const trial *t)
{
    ts_isa isa;
    ts_arena *a = ts_arena_new();
    bool wide = t->opt.isa && !strcmp(t->opt.isa, "x86-64-v3"),
         has_isa = !wide || (!ts_isa_find(NULL, &isa) && isa.width >= 8),
         has_cc = ts_cc_identity(a, &t->opt) != NULL;

    ts_arena_free(a);
    return !has_isa ? "not on this machine" : !has_cc ? "no such compiler" : NULL;
}

static bool try_way(const trial *first, const way *w)
{
    trial t = *first;
    verdict v;
    const char *why_not;

    t.opt.skip = chosen(w->skip, t.opt.skip);
    t.opt.isa = chosen(w->isa, t.opt.isa);
    t.opt.cc = chosen(w->cc, t.opt.cc);
    why_not = cannot(&t);
    if (why_not) {
        printf("%-18s %s\n", w->name, why_not);
        return true;
    }
    printf("%-18s ", w->name);
    fflush(stdout);
    every = true;
    check_apart(&t, &v);
    every = false;
    printf("%s\n", v.failed ? "" : "same as the reference; same bits with 1 and 3 threads");
    return !v.failed;
}

/* Prints the graph, tries the ways whose name has `which` in it, and prints the smallest graph that
 * still fails. The exit status: 0 when nothing differs. */
static int replay(uint64_t seed, const char *which)
{
    trial t;
    char *text, options[512];
    int tried = 0, bad = 0;

    test_random_graph(seed, &t);
    text = ts_graph_text(t.g);
    describe(&t, options, sizeof(options));
    printf("# seed %lu\n%s%s\n", (unsigned long)seed, options, text);
    free(text);
    for (int i = 0; i < TS_COUNT(ways); i++)
        if (strstr(ways[i].name, which)) {
            bad += !try_way(&t, &ways[i]);
            tried++;
        }
    ts_graph_free(t.g);
    if (!tried)
        fprintf(stderr, "no way to compile it has '%s' in its name\n", which);
    printf("%d of %d differ\n", bad, tried);
    if (bad && !strstr(ways[0].name, which))
        return 1;
    fflush(stdout);
    return bad ? one_seed(seed) | 1 : tried == 0;
}

/* --- running them --- */

static long number(const char *name, long missing)
{
    const char *s = getenv(name);

    return s && s[0] ? atol(s) : missing;
}

static void random_graphs(void **state)
{
    long only = number("FUZZ_SEED", -1), count = number("FUZZ_COUNT", COUNT);
    double seconds = (double)number("FUZZ_SECONDS", 0), start = ts_now();
    uint64_t seed = only >= 0 ? (uint64_t)only : (uint64_t)number("TS_ROUND", 0) * 1000003u;
    uint64_t seeds[JOBS], failed[16];
    pid_t pids[JOBS] = {0};
    int running = 0, bad = 0;
    long begun = 0;
    char list[512] = "";

    (void)state;
    count = only >= 0 ? 1 : count;
    for (;;) {
        bool more = seconds > 0 ? ts_now() < start + seconds : begun < count;
        int status = 0;
        pid_t pid;
        if (bad >= TS_COUNT(failed))
            more = false;
        if (more && running < JOBS) {
            int k = 0;
            while (pids[k])
                k++;
            fflush(NULL);
            pids[k] = fork();
            if (!pids[k]) {
                plain_signals(); /* not cmocka's */
                _exit(one_seed(seed));
            }
            assert_true(pids[k] > 0);
            seeds[k] = seed++;
            running++;
            begun++;
            continue;
        }
        if (!running)
            break;
        pid = wait(&status);
        for (int k = 0; k < JOBS; k++)
            if (pids[k] == pid) {
                pids[k] = 0;
                running--;
                if (status && bad < TS_COUNT(failed))
                    failed[bad++] = seeds[k];
                if (WIFSIGNALED(status))
                    fprintf(stderr, "seed %lu: the generator ended by signal %d\n",
                            (unsigned long)seeds[k], WTERMSIG(status));
            }
    }
    for (int i = 0; i < bad; i++)
        snprintf(list + strlen(list), sizeof(list) - strlen(list), " %lu",
                 (unsigned long)failed[i]);
    if (seconds > 0)
        fprintf(stderr, "%ld graphs\n", begun);
    for (int i = 0; i < bad; i++)
        fprintf(stderr, "%s\n", replay_command(failed[i]));
    if (bad)
        fail_msg("%d of %ld graphs differ from the reference; seeds%s", bad, begun, list);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_graphs)};
    const char *which = getenv("FUZZ_REPLAY");

    if (which)
        return replay((uint64_t)number("FUZZ_SEED", 0), which);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
