/* exchange.c - the gradients of all replicas are added up, in their order, before the update.
 *
 *   replica 0   g0 ----+                     g0 + g1 + g2
 *   replica 1   g1 ----+--> + in order -->   g0 + g1 + g2
 *   replica 2   g2 ----+                     g0 + g1 + g2
 *
 * What is split over the replicas (ts_options.shard_optimizer) goes to the replica of each share
 * only; it updates that share of the weights, and afterwards all get it from there.
 *
 * Then the same over the processes. Each thread takes a piece of every accumulator and writes the
 * sum to all replicas: they stay equal, bit for bit, and so do runs with other numbers of threads.
 */
#include "run/engine.h"

bool ts_exchange_needed(const ts_engine *e)
{
    return e->exe->training && ts_engine_stride(e) > 1;
}

/* The sum goes to those from `first` up to `end`. */
static void sum_f32(char **of, int n, int first, int end, int64_t lo, int64_t hi)
{
    for (int64_t i = lo; i < hi; i++) {
        float sum = ((float *)of[0])[i];
        for (int r = 1; r < n; r++)
            sum += ((float *)of[r])[i];
        for (int r = first; r < end; r++)
            ((float *)of[r])[i] = sum;
    }
}

static void sum_any(ts_dtype t, char **of, int n, int first, int end, int64_t lo, int64_t hi)
{
    for (int64_t i = lo; i < hi; i++) {
        double sum = ts_dtype_get(t, of[0], i);
        for (int r = 1; r < n; r++)
            sum += ts_dtype_get(t, of[r], i);
        for (int r = first; r < end; r++)
            ts_dtype_set(t, of[r], i, sum);
    }
}

/* With lanes, a layout may fill up a dimension; what is there is zero in all replicas. */
static int64_t elements(const ts_engine *e, const ts_slot *s)
{
    int64_t n = (int64_t)(s->info.bytes / ts_dtype_size(s->info.dtype)), of, lanes;

    if (e->refs || !s->layout.set || s->layout.lanes < 2)
        return n;
    of = s->info.dims[s->layout.lane_dim];
    lanes = s->layout.lanes;
    return of ? n / of * ((of + lanes - 1) / lanes * lanes) : 0;
}

/* The replicas of one group, in their order. */
static void sum_group(const ts_engine *e, const ts_slot *s, int group, int64_t lo, int64_t hi)
{
    int R = e->exe->replicas, n = 0;
    char *of[1024];

    for (int r = 0; r < R; r++)
        if (ts_slot_group(s, R, r) == group)
            of[n++] = ts_engine_state(e, r, s, s->at);
    for (int r = 0; r < n && n > 1; r++) {
        int64_t from = s->scatter ? TS_MAX(lo, s->share * r) : lo;
        int64_t to = s->scatter ? TS_MIN(hi, s->share * (r + 1)) : hi;
        int first = s->scatter ? r : 0, end = s->scatter ? r + 1 : n;
        if (s->info.dtype == TS_F32)
            sum_f32(of, n, first, end, from, to);
        else
            sum_any(s->info.dtype, of, n, first, end, from, to);
        if (!s->scatter)
            return;
    }
}

void ts_exchange_replicas(const ts_engine *e, int member, int size)
{
    const ts_executable *x = e->exe;

    for (int i = 0; i < x->nstates && x->replicas > 1; i++) {
        const ts_slot *s = &x->states[i];
        int64_t n = elements(e, s), lo = n * member / size, hi = n * (member + 1) / size;
        for (int group = 0; group < s->groups && s->use == TS_USE_SUMMED; group++)
            sum_group(e, s, group, lo, hi);
    }
}

/* Each replica's share is added up where it is. */
static ts_status sum_shares(const ts_engine *e, const ts_slot *s)
{
    size_t size = ts_dtype_size(s->info.dtype);
    int64_t n = elements(e, s);

    for (int r = 0; r < e->exe->replicas && s->share * r < n; r++)
        TS_TRY(e->comm->sum(e->comm->self, s->info.dtype,
                            ts_engine_state(e, r, s, s->at) + (size_t)(s->share * r) * size,
                            TS_MIN(s->share, n - s->share * r)));
    return TS_OK;
}

ts_status ts_exchange_processes(const ts_engine *e)
{
    const ts_executable *x = e->exe;

    for (int i = 0; i < x->nstates && e->comm && e->comm->size > 1; i++) {
        const ts_slot *s = &x->states[i];
        char *first = ts_engine_state(e, 0, s, s->at);
        if (s->use != TS_USE_SUMMED)
            continue;
        if (s->scatter) {
            TS_TRY(sum_shares(e, s));
            continue;
        }
        TS_TRY(e->comm->sum(e->comm->self, s->info.dtype, first, elements(e, s)));
        for (int r = 1; r < x->replicas; r++)
            memcpy(ts_engine_state(e, r, s, s->at), first,
                   (size_t)elements(e, s) * ts_dtype_size(s->info.dtype));
    }
    return TS_OK;
}

/* --- what is split over the replicas --- */

bool ts_exchange_shared(const ts_engine *e)
{
    for (int i = 0; i < e->exe->nstates; i++)
        if (e->exe->states[i].share)
            return true;
    return false;
}

/* Rows that are filled up to vectors: what fills them was updated too, and has to stay 0. */
static void clear_filling(const ts_engine *e, const ts_slot *s, char *to, int64_t lo, int64_t hi)
{
    size_t size = ts_dtype_size(s->info.dtype);
    int64_t n, row;

    if (e->refs || !s->layout.set || s->layout.lanes < 2)
        return;
    n = s->info.dims[s->layout.lane_dim];
    row = TS_ROUND_UP(n, s->layout.lanes);
    for (int64_t i = lo; i < hi; i++)
        if (i % row >= n)
            memset(to + (size_t)i * size, 0, size);
}

/* Elements [lo, hi) of a weight from the replicas that updated them to all others. */
static void collect(const ts_engine *e, const ts_slot *s, int64_t lo, int64_t hi)
{
    size_t size = ts_dtype_size(s->info.dtype);
    int R = e->exe->replicas;

    for (int to = 0; to < R; to++)
        for (int k = -1; k < (e->refs ? 0 : s->ncopies); k++) {
            char *there = ts_engine_state(e, to, s, k < 0 ? s->at : s->copies[k]);
            for (int r = 0; r < R; r++) {
                int64_t from = TS_MAX(lo, s->share * r), end = TS_MIN(hi, s->share * (r + 1));
                if (from < end && (r != to || k >= 0))
                    memcpy(there + (size_t)from * size,
                           ts_engine_state(e, r, s, s->at) + (size_t)from * size,
                           (size_t)(end - from) * size);
            }
            clear_filling(e, s, there, lo, hi);
        }
}

void ts_exchange_collect(const ts_engine *e, int member, int size)
{
    for (int i = 0; i < e->exe->nstates; i++) {
        const ts_slot *s = &e->exe->states[i];
        int64_t n = elements(e, s), lo = n * member / size, hi = n * (member + 1) / size;
        size_t bytes = ts_dtype_size(s->info.dtype);
        if (!s->share || s->use == TS_USE_MOMENT)
            continue;
        if (s->use == TS_USE_OTHER)
            collect(e, s, lo, hi);
        for (int r = 0; r < e->exe->replicas && s->use == TS_USE_SUMMED; r++)
            memset(ts_engine_state(e, r, s, s->at) + (size_t)lo * bytes, 0,
                   (size_t)(hi - lo) * bytes);
    }
}
