/* stamp.c - when each kernel of the first calls ran, for the profile.
 *
 *   thread 0   | k0 | k1    |wait| k2 | ...        a stamp is a kernel's share on a thread:
 *   thread 1   | k0   | k1 |wait | k2   | ...      two counts of the processor's clock
 *
 * The engine calls every kernel through a table, so it can look at the clock between them: the program
 * is the same, and so are its bits. Where threads do not wait, the end of a kernel is the start of
 * the next, one look for both. Each thread has memory of its own for the stamps, made and touched
 * beforehand; what does not fit is counted. They become rows of the profile after 1, 2, 4, 8, ... calls
 * and at the end: writing takes longer than a call and leaves the caches full of something else, so
 * that the next call is slower than it would be (one of W4 by 2 to 3 %).
 *
 * On a GPU the driver's events say it (gpu.c), which are put on the same clock.
 *
 * A profile that cannot be written does not fail a run: the measuring ends, and ts_engine_profile says
 * why.
 */
#include "run/engine.h"

enum { ALL_STAMPS = 1 << 21, NOTES = 4096 }; /* of all threads; what the host notes in a call */

typedef struct note {
    char kind[16], name[100];
    int thread;
    double start, end;
} note;

struct ts_stamps {
    ts_stamp_ring *rings; /* of each thread */
    int threads;
    int call;    /* that runs, or the next */
    int written; /* calls that are in the profile */
    int of_call; /* stamps of one on a thread, at most */
    bool off;    /* all calls are over, or it failed */
    double begun;
    uint64_t cycles;
    double seconds; /* both when the first call began that is not written */
    double rate;    /* cycles a second */
    int64_t lost;
    bool counts;          /* the call after the last that is timed is counted */
    char uncounted[160];  /* or why there are no counters */
    pthread_mutex_t lock; /* of the notes: callbacks come from any thread */
    note *notes;
    int nnotes;
    ts_status status;
    ts_error error;
};

/* --- while it runs --- */

ts_stamp_ring *ts_stamps_ring(const ts_engine *e, int thread)
{
    return e->stamps && !e->stamps->off ? &e->stamps->rings[thread] : NULL;
}

void ts_stamp_add(ts_stamp_ring *r, ts_stamp s)
{
    if (r->n < r->room)
        r->at[r->n++] = s;
    else
        r->lost++;
}

void ts_stamp_end(ts_stamp_ring *r, ts_stamp s)
{
    s.to = ts_cycles();
    ts_stamp_add(r, s);
}

/* The same walk with the processor's counters read around each kernel. A thread opens its own. */
static void run_counted(ts_stamp_ring *r, ts_team *team, const ts_module_kernel *k,
                        const ts_section *of, const ts_run_ctx *c, int member, int size)
{
    uint64_t before[TS_COUNTERS], after[TS_COUNTERS];

    if (!r->counters.open && ts_counters_open(&r->counters))
        r->uncounted = true;
    for (int i = of->first; i < of->first + of->count; i++) {
        if (i > of->first && k[i].wait)
            ts_team_wait(team);
        bool known = ts_counters_read(&r->counters, before);
        if (!ts_run_kernel(&k[i], c, member, size))
            continue;
        known = known && ts_counters_read(&r->counters, after);
        r->uncounted = r->uncounted || !known;
        for (int j = 0; j < TS_COUNTERS && known; j++)
            r->counts[i * TS_COUNTERS + j] += after[j] - before[j];
    }
}

/* As the walks of loop.c and lanes.c, with a look at the clock after each kernel. */
void ts_run_stamped(ts_stamp_ring *r, ts_stamp s, ts_team *team, const ts_module_kernel *k,
                    const ts_section *of, const ts_run_ctx *c, int member, int size)
{
    if (r->counting) {
        run_counted(r, team, k, of, c, member, size);
        return;
    }
    s.from = ts_cycles();
    for (int i = of->first; i < of->first + of->count; i++) {
        if (i > of->first && k[i].wait) {
            ts_team_wait(team);
            s.from = ts_cycles();
        }
        if (!ts_run_kernel(&k[i], c, member, size))
            continue;
        s.to = ts_cycles();
        s.kernel = i;
        ts_stamp_add(r, s);
        s.from = s.to;
    }
}

/* --- what the host does --- */

static void put(ts_stamps *x, const char *kind, const char *name, int thread, double start,
                double end)
{
    pthread_mutex_lock(&x->lock);
    if (x->nnotes < NOTES) {
        note *n = &x->notes[x->nnotes++];
        snprintf(n->kind, sizeof(n->kind), "%s", kind);
        snprintf(n->name, sizeof(n->name), "%s", name);
        n->thread = thread;
        n->start = start;
        n->end = end;
    } else
        x->lost++;
    pthread_mutex_unlock(&x->lock);
}

void ts_engine_note(ts_engine *e, const char *kind, const char *name, double start, double end)
{
    if (e && e->stamps && !e->stamps->off && kind && name)
        put(e->stamps, kind, name, 0, start, end);
}

/* --- a call --- */

/* Every thread's stamps of a call begin with one that says so. What a call that failed has left is
 * not kept. */
void ts_stamps_begin(const ts_engine *e)
{
    ts_stamps *x = e->stamps;

    if (!x || x->off)
        return;
    for (int i = 0; i < x->threads; i++)
        x->rings[i].counting = x->call >= e->exe->profile.calls;
    x->begun = ts_now();
    if (x->written == x->call) {
        x->seconds = x->begun;
        x->cycles = ts_cycles();
    }
    for (int i = 0; i < x->threads; i++) {
        x->rings[i].n = x->rings[i].kept;
        ts_stamp_add(&x->rings[i], (ts_stamp){.kernel = TS_STAMP_CALL});
    }
}

static double time_of(const ts_stamps *x, uint64_t cycles)
{
    return x->seconds + (double)(int64_t)(cycles - x->cycles) / x->rate;
}

static ts_run_event event_of(const ts_stamps *x, const ts_engine *e, const ts_stamp *s, int thread)
{
    return (ts_run_event){.replica = s->replica,
                          .device = e->exe->pipe.sections[s->section].device,
                          .thread = thread,
                          .kernel = s->kernel < 0 ? TS_DB_NULL : s->kernel,
                          .section = s->section,
                          .micro = s->micro,
                          .start = time_of(x, s->from),
                          .end = time_of(x, s->to)};
}

/* Outputs and sends are the host's; the rest are rows of the table of events. */
static void make_events(const ts_stamps *x, const ts_engine *e, int thread, ts_profile_times *out,
                        ts_run_event *events, ts_host_event *host)
{
    const ts_stamp_ring *r = &x->rings[thread];
    int call = x->written - 1;

    for (const ts_stamp *s = r->at; s < r->at + r->kept; s++)
        if (s->kernel == TS_STAMP_CALL)
            call++;
        else if (s->kernel == TS_STAMP_OUTPUT || s->kernel == TS_STAMP_SEND) {
            bool send = s->kernel == TS_STAMP_SEND;
            host[out->nhost++] =
                (ts_host_event){send ? "send" : "copy_out", send ? "to other devices" : "outputs",
                                thread, time_of(x, s->from), time_of(x, s->to)};
        } else {
            events[out->nevents] = event_of(x, e, s, thread);
            events[out->nevents++].call = call;
        }
}

static size_t count(const ts_stamps *x)
{
    size_t n = 0;

    for (int t = 0; t < x->threads; t++)
        n += (size_t)x->rings[t].kept;
    return n;
}

static ts_status write_all(ts_stamps *x, const ts_engine *e, ts_run_event *events,
                           ts_host_event *host)
{
    ts_profile_times times = {.threads = e->threads,
                              .calls = x->call,
                              .rate = x->rate,
                              .uncounted = x->counts ? NULL : x->uncounted,
                              .events = events,
                              .host = host};

    for (int i = 0; i < x->nnotes; i++)
        host[times.nhost++] =
            (ts_host_event){x->notes[i].kind, x->notes[i].name, x->notes[i].thread,
                            x->notes[i].start, x->notes[i].end};
    for (int t = 0; t < x->threads; t++) {
        make_events(x, e, t, &times, events, host);
        x->lost += x->rings[t].lost;
        x->rings[t].lost = 0;
        x->rings[t].kept = 0;
    }
    times.lost = x->lost;
    x->nnotes = 0;
    x->written = x->call;
    return ts_profile_times_add(&e->exe->profile, &times);
}

static ts_status write(ts_stamps *x, const ts_engine *e)
{
    ts_run_event *events = malloc(sizeof(*events) * (count(x) + 1));
    ts_host_event *host = malloc(sizeof(*host) * (count(x) + NOTES));
    ts_status s = events && host ? write_all(x, e, events, host)
                                 : ts_fail(TS_ERR_MEMORY, "no memory to write the profile with");

    free(events);
    free(host);
    return s;
}

static void keep(ts_stamps *x, ts_status s)
{
    if (!s || x->status)
        return;
    x->status = s;
    x->error = *ts_last_error();
    x->off = true;
    ts_note(TS_LOG_WARN, "the profile ends here: %s", x->error.message);
}

/* As calls double, at the end, and when another call might not have room. */
static bool due(const ts_stamps *x)
{
    return (x->call & (x->call - 1)) == 0 || x->off || x->nnotes > NOTES / 2 ||
           x->rings[0].kept + x->of_call > x->rings[0].room;
}

static void save(ts_stamps *x, const ts_engine *e)
{
    double start = ts_now();

    keep(x, write(x, e));
    if (!x->status)
        keep(x, ts_profile_trace(&e->exe->profile));
    if (!x->off)
        put(x, "profile", "written", 0, start, ts_now());
}

/* --- the call that is counted --- */

/* Its stamps are no times: they are forgotten. */
static ts_status write_counts(ts_stamps *x, const ts_engine *e)
{
    const ts_executable *exe = e->exe;
    int n = exe->module->nkernels * TS_COUNTERS;
    ts_kernel_count *rows = malloc(sizeof(*rows) * (size_t)(n + 1));
    ts_status s;

    if (!rows)
        return ts_fail(TS_ERR_MEMORY, "no memory to write the profile with");
    for (int i = 0; i < n; i++) {
        int k = i / TS_COUNTERS, D = exe->device_iterations * exe->replicas;
        double sum = 0;
        for (int t = 0; t < x->threads; t++)
            sum += (double)x->rings[t].counts[i];
        rows[i] = (ts_kernel_count){
            k, ts_counter_names[i % TS_COUNTERS],
            sum / (exe->module->kernels[k].phase ? D : D * exe->gradient_accumulation)};
    }
    s = ts_profile_counts(&exe->profile, rows, n);
    free(rows);
    return s;
}

static void end_counts(ts_stamps *x, const ts_engine *e)
{
    bool known = true;

    for (int i = 0; i < x->threads; i++) {
        known = known && !x->rings[i].uncounted;
        ts_counters_close(&x->rings[i].counters);
    }
    if (known)
        keep(x, write_counts(x, e));
    else
        ts_note(TS_LOG_INFO, "the profile has no counters: they could not be read all the time");
    x->off = true;
}

void ts_stamps_end(const ts_engine *e)
{
    ts_stamps *x = e->stamps;
    uint64_t cycles = ts_cycles();
    double now = ts_now();
    char name[32];

    if (!x || x->off)
        return;
    if (x->rings[0].counting) {
        end_counts(x, e);
        return;
    }
    x->rate = (double)(cycles - x->cycles) / (now - x->seconds);
    snprintf(name, sizeof(name), "call %d", x->call);
    put(x, "call", name, 0, x->begun, now);
    for (int i = 0; i < x->threads; i++)
        x->rings[i].kept = x->rings[i].n;
    x->call++;
    x->off = x->call >= e->exe->profile.calls && !x->counts;
    if (due(x) || x->call >= e->exe->profile.calls)
        save(x, e);
}

/* --- making it --- */

/* Those of a call on one thread, if it did everything. */
static int64_t stamps_of(const ts_executable *x)
{
    int64_t n = 1, D = x->device_iterations, A = x->gradient_accumulation;

    for (int i = 0; i < x->pipe.nsections; i++) {
        const ts_section *s = &x->pipe.sections[i];
        n += (s->count + 3) * (s->phase ? D : D * A) * x->replicas;
    }
    return n;
}

/* Whether this machine has counters to give is found out once. */
static ts_status make_counts(ts_stamps *x, const ts_executable *exe)
{
    size_t bytes;
    ts_counters c = {0};
    int why;

    if (!exe->module) {
        snprintf(x->uncounted, sizeof(x->uncounted), "those of a GPU are not read");
        return TS_OK;
    }
    bytes = sizeof(uint64_t) * TS_COUNTERS * (size_t)exe->module->nkernels;
    why = ts_counters_open(&c);
    ts_counters_close(&c);
    if (why) {
        snprintf(x->uncounted, sizeof(x->uncounted), "perf_event_open: %s", strerror(why));
        ts_note(TS_LOG_INFO, "the profile has no counters: %s", x->uncounted);
        return TS_OK;
    }
    for (int i = 0; i < x->threads; i++)
        TS_TRY(ts_alloc(bytes, "the counters of kernels", (void **)&x->rings[i].counts));
    x->counts = true;
    return TS_OK;
}

ts_status ts_stamps_new(ts_engine *e)
{
    int64_t one = TS_MIN(stamps_of(e->exe), ALL_STAMPS / e->threads);
    int64_t room = TS_MIN(one * e->exe->profile.calls, ALL_STAMPS / e->threads);
    ts_stamps *x;

    if (!e->exe->profile.folder || (!e->exe->module && !e->gpu) ||
        atomic_exchange(&e->exe->profiled, 1))
        return TS_OK;
    TS_TRY(ts_alloc(sizeof(*x), "the profile", (void **)&x));
    e->stamps = x;
    pthread_mutex_init(&x->lock, NULL);
    x->threads = e->threads;
    x->of_call = (int)one;
    TS_TRY(ts_alloc(sizeof(*x->rings) * (size_t)e->threads, "the profile", (void **)&x->rings));
    TS_TRY(ts_alloc(sizeof(*x->notes) * NOTES, "the profile", (void **)&x->notes));
    for (int i = 0; i < e->threads; i++) {
        x->rings[i].room = (int)room;
        TS_TRY(ts_alloc(sizeof(ts_stamp) * (size_t)room, "the times of kernels",
                        (void **)&x->rings[i].at));
    }
    return make_counts(x, e->exe);
}

ts_status ts_engine_profile(ts_engine *e)
{
    ts_stamps *x = e ? e->stamps : NULL;

    if (!x)
        return e ? TS_OK : ts_fail(TS_ERR_ARG, "the engine is NULL");
    if (!x->off && x->call) {
        x->off = true;
        save(x, e); /* what was noted since the last call as well */
    }
    x->off = true;
    if (x->status)
        ts_error_set(&x->error);
    return x->status;
}

void ts_stamps_free(ts_engine *e)
{
    ts_stamps *x = e->stamps;

    if (!x)
        return;
    (void)ts_engine_profile(e);
    for (int i = 0; i < x->threads && x->rings; i++) {
        free(x->rings[i].at);
        free(x->rings[i].counts);
    }
    pthread_mutex_destroy(&x->lock);
    free(x->rings);
    free(x->notes);
    free(x);
}
