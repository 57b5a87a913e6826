/* compare.h - runs a graph natively and by the reference executor and looks for differences. Used
 * by the tests of generated code; every function is static because each test is a program of its
 * own.
 *
 * What a run is fed follows from the inputs' names, so that a graph needs no data beside it:
 *
 *   x...      floats in -1..1
 *   k...      whole numbers in -3..3 (0..3 for u8, 0..1 for bool): comparisons of them never tie by
 *             rounding
 *   n<N>...   indices in 0..N-1
 */
#ifndef TS_TEST_COMPARE_H
#define TS_TEST_COMPARE_H

#include "op/op.h"
#include <math.h>

/* How far generated code may be from the reference, relative to the largest element of a tensor:
 * a few roundings of the coarsest dtype involved, times what a graph of some depth makes
 * of them. */
static inline double tolerance_of(ts_dtype coarsest)
{
    return coarsest == TS_BF16  ? 5e-2
           : coarsest == TS_F16 ? 1e-2
           : coarsest == TS_F32 ? 2e-4
                                : 1e-10;
}

static inline uint64_t next_random(uint64_t *s)
{
    uint64_t z = *s += 0x9e3779b97f4a7c15u;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static inline double next_unit(uint64_t *s)
{
    return (double)(next_random(s) >> 40) * 0x1p-24;
}

static inline void fill_input(const ts_tensor_info *t, int copies, uint64_t seed, double shake,
                              void *data)
{
    int64_t count = (int64_t)(t->bytes / ts_dtype_size(t->dtype)) * copies;
    uint64_t s = seed, noise = seed + 1;
    bool whole = !ts_dtype_is_float(t->dtype) || t->name[0] == 'k';

    for (const char *p = t->name; *p; p++)
        s = (s ^ (unsigned char)*p) * 0x100000001b3u;
    for (int64_t i = 0; i < count; i++) {
        double x = 2 * next_unit(&s) - 1;
        if (t->name[0] == 'n')
            x = floor((x + 1) / 2 * atof(t->name + 1));
        else if (t->dtype == TS_BOOL)
            x = x > 0;
        else if (t->dtype == TS_U8)
            x = floor(2 * (x + 1));
        else if (whole)
            x = rint(3 * x);
        else
            x *= 1 + shake * (2 * next_unit(&noise) - 1);
        ts_dtype_set(t->dtype, data, i, x);
    }
}

/* Everything a run gives back: `calls` calls' outputs, then the states. */
typedef struct results {
    void **data;
    ts_tensor_info *info;
    int64_t *count;
    int n, outputs;
} results;

static inline void results_free(results *r)
{
    for (int i = 0; i < r->n; i++)
        free(r->data[i]);
    free(r->data);
    free(r->info);
    free(r->count);
    *r = (results){0};
}

static inline void *results_add(results *r, const ts_tensor_info *t, int copies)
{
    size_t n = (size_t)r->n + 1;

    r->data = realloc(r->data, n * sizeof(*r->data));
    r->info = realloc(r->info, n * sizeof(*r->info));
    r->count = realloc(r->count, n * sizeof(*r->count));
    r->info[r->n] = *t;
    r->count[r->n] = (int64_t)(t->bytes / ts_dtype_size(t->dtype)) * copies;
    return r->data[r->n++] = calloc(1, t->bytes * (size_t)copies + 1);
}

static inline ts_status shake_states(const ts_executable *exe, ts_engine *e, uint64_t seed,
                                     double shake)
{
    const ts_tensor_info *t;
    ts_status s = TS_OK;

    for (int i = 0; !s && (t = ts_executable_tensor(exe, TS_ROLE_STATE, i)); i++) {
        void *data = malloc(t->bytes + 1);
        int64_t count = (int64_t)(t->bytes / ts_dtype_size(t->dtype));
        s = ts_engine_read(e, t->name, data, t->bytes);
        for (int64_t k = 0; k < count && ts_dtype_is_float(t->dtype) && t->name[0] != 'k'; k++) {
            double x = ts_dtype_get(t->dtype, data, k), u = 2 * next_unit(&seed) - 1;
            ts_dtype_set(t->dtype, data, k, x + shake * u * (fabs(x) + 0.01));
        }
        if (!s)
            s = ts_engine_write(e, t->name, data, t->bytes);
        free(data);
    }
    return s;
}

static inline ts_status run_engine(const ts_executable *exe, ts_engine *e, int batches, int calls,
                                   uint64_t seed, double shake, results *r)
{
    const ts_tensor_info *t;
    void *in[256], *out[256];
    int nin = 0, nout = 0;
    ts_status s = TS_OK;

    for (; (t = ts_executable_tensor(exe, TS_ROLE_INPUT, nin)); nin++) {
        in[nin] = malloc(t->bytes * (size_t)batches + 1);
        fill_input(t, batches, seed, shake, in[nin]);
    }
    if (shake > 0)
        s = shake_states(exe, e, seed, shake);
    for (int c = 0; c < calls && !s; c++) {
        for (nout = 0; (t = ts_executable_tensor(exe, TS_ROLE_OUTPUT, nout)); nout++)
            out[nout] = results_add(r, t, ts_engine_slots(e));
        r->outputs = nout;
        s = ts_engine_run(e, (const void *const *)in, out);
    }
    for (int i = 0; i < nin; i++)
        free(in[i]);
    for (int i = 0; !s && (t = ts_executable_tensor(exe, TS_ROLE_STATE, i)); i++)
        s = ts_engine_read(e, t->name, results_add(r, t, 1), t->bytes);
    return s;
}

static inline ts_status run_all(const ts_executable *exe, const ts_options *opt, int threads,
                                int calls, uint64_t seed, double shake, results *r)
{
    int batches = TS_MAX(1, opt->device_iterations) * TS_MAX(1, opt->gradient_accumulation);
    ts_engine *e;
    ts_status s = ts_engine_new(exe, &(ts_run_options){.threads = threads, .seed = seed}, &e);

    *r = (results){0};
    if (s)
        return s;
    s = run_engine(exe, e, batches, calls, seed, shake, r);
    ts_engine_free(e);
    return s;
}

/* Three steps of SGD with momentum; frees g. Its executable, or NULL: ts_error_text() says why. */
static inline ts_executable *trained_by_sgd(ts_graph *g, ts_options opt, int threads, results *r)
{
    ts_optimizer sgd = ts_sgd(0.1);
    ts_executable *x = NULL;

    sgd.hyper.momentum = 0.9;
    opt.optimizer = &sgd;
    opt.cache_dir = "";
    if (!ts_compile(g, &opt, &x) && run_all(x, &opt, threads, 3, 5, 0, r)) {
        ts_executable_free(x);
        x = NULL;
    }
    ts_graph_free(g);
    return x;
}

/* How far apart two results are, relative to the largest element; *at is where. Whole numbers
 * differ by 1 or not at all. Half precision may overflow in one and not in the other, which keeps
 * more digits on the way. */
static inline double distance(const results *p, const results *q, int i, bool halves, int64_t *at)
{
    ts_dtype t = p->info[i].dtype;
    double most = 1e-2, worst = 0; /* below that it is what cancellation left over */

    for (int64_t k = 0; k < p->count[i]; k++) {
        double x = ts_dtype_get(t, p->data[i], k);
        most = isfinite(x) ? fmax(most, fabs(x)) : most;
    }
    *at = 0;
    for (int64_t k = 0; k < p->count[i]; k++) {
        double x = ts_dtype_get(t, p->data[i], k), y = ts_dtype_get(t, q->data[i], k);
        double d = fabs(x - y) / most;
        if (x == y || (x != x && y != y) || (halves && (!isfinite(x) || !isfinite(y))))
            continue;
        if (!ts_dtype_is_float(t))
            d = 1;
        else if (!isfinite(x) || !isfinite(y))
            d = 1e30;
        if (d > worst) {
            worst = d;
            *at = k;
        }
    }
    return worst;
}

/* The executable of a graph that gives the reference's numbers, within `most`; NULL, and why. */
static inline ts_executable *native_as_reference(const ts_graph *g, ts_options opt, double most,
                                                 char *why, size_t size)
{
    ts_executable *ref = NULL, *exe = NULL;
    results want = {0}, got = {0};
    bool ok;

    opt.cache_dir = "";
    opt.executor = TS_EXECUTOR_REFERENCE;
    ok = !ts_compile(g, &opt, &ref) && !run_all(ref, &opt, 1, 2, 7, 0, &want);
    opt.executor = TS_EXECUTOR_NATIVE;
    ok = ok && !ts_compile(g, &opt, &exe) && !run_all(exe, &opt, 2, 2, 7, 0, &got);
    snprintf(why, size, "%s", ok ? "" : ts_error_text());
    for (int i = 0; i < want.n && ok; i++) {
        int64_t at;
        double d = distance(&want, &got, i, false, &at);
        ok = d <= most;
        snprintf(why, size, "%s, element %ld: off by %g", want.info[i].name, (long)at, d);
    }
    results_free(&want);
    results_free(&got);
    ts_executable_free(ref);
    if (!ok)
        ts_executable_free(exe);
    return ok ? exe : NULL;
}

#endif
