/* exchange.c - the gradients of all replicas are added up, in their order, before the update.
 *
 *   replica 0   g0 ----+                     g0 + g1 + g2
 *   replica 1   g1 ----+--> + in order -->   g0 + g1 + g2
 *   replica 2   g2 ----+                     g0 + g1 + g2
 *
 * Then the same over the processes. Each thread takes a piece of every accumulator and writes the
 * sum to all replicas: they stay equal, bit for bit, and so do runs with other numbers of threads.
 */
#include "run/engine.h"

bool ts_exchange_needed(const ts_engine *e)
{
    return e->exe->training && ts_engine_stride(e) > 1;
}

static void sum_f32(char **of, int n, int64_t lo, int64_t hi)
{
    for (int64_t i = lo; i < hi; i++) {
        float sum = ((float *)of[0])[i];
        for (int r = 1; r < n; r++)
            sum += ((float *)of[r])[i];
        for (int r = 0; r < n; r++)
            ((float *)of[r])[i] = sum;
    }
}

static void sum_any(ts_dtype t, char **of, int n, int64_t lo, int64_t hi)
{
    for (int64_t i = lo; i < hi; i++) {
        double sum = ts_dtype_get(t, of[0], i);
        for (int r = 1; r < n; r++)
            sum += ts_dtype_get(t, of[r], i);
        for (int r = 0; r < n; r++)
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
    if (n < 2)
        return;
    if (s->info.dtype == TS_F32)
        sum_f32(of, n, lo, hi);
    else
        sum_any(s->info.dtype, of, n, lo, hi);
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

ts_status ts_exchange_processes(const ts_engine *e)
{
    const ts_executable *x = e->exe;

    for (int i = 0; i < x->nstates && e->comm && e->comm->size > 1; i++) {
        const ts_slot *s = &x->states[i];
        char *first = ts_engine_state(e, 0, s, s->at);
        if (s->use != TS_USE_SUMMED)
            continue;
        TS_TRY(e->comm->sum(e->comm->self, s->info.dtype, first, elements(e, s)));
        for (int r = 1; r < x->replicas; r++)
            memcpy(ts_engine_state(e, r, s, s->at), first,
                   (size_t)elements(e, s) * ts_dtype_size(s->info.dtype));
    }
    return TS_OK;
}
