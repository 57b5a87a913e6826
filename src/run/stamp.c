/* stamp.c - when each kernel of the first calls ran, for the profile.
 *
 *   thread 0   | k0 | k1    |wait| k2 | ...        a stamp is a kernel's share on a thread:
 *   thread 1   | k0   | k1 |wait | k2   | ...      two counts of the processor's clock
 *
 * The engine calls every kernel through a table, so it can look at the clock between them: the program
 * is the same, and so are its bits. Where threads do not wait, the end of a kernel is the start of
 * the next, one look for both. Each thread has memory of its own for the stamps of a call, made
 * beforehand; what does not fit is counted. After the call they become rows of the profile, which takes
 * longer than the call, and is no part of it.
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
    int call; /* that runs, or the next */
    bool off; /* all calls are over, or it failed */
    uint64_t cycles;
    double seconds; /* both at the start of the call */
    double rate;    /* cycles a second */
    int64_t lost;
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

static void add(ts_stamp_ring *r, ts_stamp s)
{
    if (r->n < r->room)
        r->at[r->n++] = s;
    else
        r->lost++;
}

void ts_stamp_end(ts_stamp_ring *r, ts_stamp s)
{
    s.to = ts_cycles();
    add(r, s);
}

/* As the walks of loop.c and lanes.c, with a look at the clock after each kernel. */
void ts_run_stamped(ts_stamp_ring *r, ts_stamp s, ts_team *team, const ts_module_kernel *k,
                    const ts_section *of, const ts_run_ctx *c, int member, int size)
{
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
        add(r, s);
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

void ts_stamps_begin(const ts_engine *e)
{
    ts_stamps *x = e->stamps;

    if (!x || x->off)
        return;
    for (int i = 0; i < x->threads; i++)
        x->rings[i].n = 0;
    x->seconds = ts_now();
    x->cycles = ts_cycles();
}

static double time_of(const ts_stamps *x, uint64_t cycles)
{
    return x->seconds + (double)(int64_t)(cycles - x->cycles) / x->rate;
}

/* Outputs and sends are the host's; the rest are rows of the table of events. */
static int make_events(ts_stamps *x, const ts_engine *e, ts_run_event *out)
{
    int n = 0;

    for (int t = 0; t < x->threads; t++)
        for (int i = 0; i < x->rings[t].n; i++) {
            const ts_stamp *s = &x->rings[t].at[i];
            double start = time_of(x, s->from), end = time_of(x, s->to);
            if (s->kernel == TS_STAMP_OUTPUT || s->kernel == TS_STAMP_SEND) {
                bool send = s->kernel == TS_STAMP_SEND;
                put(x, send ? "send" : "copy_out", send ? "to other devices" : "outputs", t, start,
                    end);
                continue;
            }
            out[n++] = (ts_run_event){.call = x->call,
                                      .replica = s->replica,
                                      .device = e->exe->pipe.sections[s->section].device,
                                      .thread = t,
                                      .kernel = s->kernel < 0 ? TS_DB_NULL : s->kernel,
                                      .section = s->section,
                                      .micro = s->micro,
                                      .start = start,
                                      .end = end};
        }
    return n;
}

static int count(const ts_stamps *x)
{
    int n = 0;

    for (int t = 0; t < x->threads; t++)
        n += x->rings[t].n;
    return n;
}

static ts_status write(ts_stamps *x, const ts_engine *e)
{
    ts_profile_times times = {.threads = e->threads, .calls = x->call + 1, .rate = x->rate};
    ts_run_event *events = malloc(sizeof(*events) * (size_t)(count(x) + 1));
    ts_host_event *host = malloc(sizeof(*host) * NOTES);
    ts_status s = TS_ERR_MEMORY;

    if (events && host) {
        times.nevents = make_events(x, e, events);
        for (int i = 0; i < x->nnotes; i++)
            host[i] = (ts_host_event){x->notes[i].kind, x->notes[i].name, x->notes[i].thread,
                                      x->notes[i].start, x->notes[i].end};
        for (int t = 0; t < x->threads; t++) {
            x->lost += x->rings[t].lost;
            x->rings[t].lost = 0;
        }
        times.events = events;
        times.host = host;
        times.nhost = x->nnotes;
        times.lost = x->lost;
        s = ts_profile_times_add(&e->exe->profile, &times);
    } else
        ts_fail(TS_ERR_MEMORY, "no memory to write the profile with");
    free(events);
    free(host);
    x->nnotes = 0;
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

/* The trace is made anew as calls double, and at the end. */
static bool trace_due(const ts_stamps *x)
{
    return (x->call & (x->call - 1)) == 0 || x->off;
}

void ts_stamps_end(const ts_engine *e)
{
    ts_stamps *x = e->stamps;
    uint64_t cycles = ts_cycles();
    double now = ts_now(), written;
    char name[32];

    if (!x || x->off)
        return;
    x->rate = (double)(cycles - x->cycles) / (now - x->seconds);
    snprintf(name, sizeof(name), "call %d", x->call);
    put(x, "call", name, 0, x->seconds, now);
    keep(x, write(x, e));
    x->call++;
    x->off = x->off || x->call >= e->exe->profile.calls;
    if (!x->status && trace_due(x))
        keep(x, ts_profile_trace(&e->exe->profile));
    written = ts_now();
    if (!x->off)
        put(x, "profile", "written", 0, now, written);
}

/* --- making it --- */

/* Those of a call on one thread, if it did everything. */
static int64_t stamps_of(const ts_executable *x)
{
    int64_t n = 0, D = x->device_iterations, A = x->gradient_accumulation;

    for (int i = 0; i < x->pipe.nsections; i++) {
        const ts_section *s = &x->pipe.sections[i];
        n += (s->count + 3) * (s->phase ? D : D * A) * x->replicas;
    }
    return n;
}

ts_status ts_stamps_new(ts_engine *e)
{
    int64_t room = TS_MIN(stamps_of(e->exe), ALL_STAMPS / e->threads);
    ts_stamps *x;

    if (!e->exe->profile.folder || !e->exe->module || atomic_exchange(&e->exe->profiled, 1))
        return TS_OK;
    TS_TRY(ts_alloc(sizeof(*x), "the profile", (void **)&x));
    e->stamps = x;
    pthread_mutex_init(&x->lock, NULL);
    x->threads = e->threads;
    TS_TRY(ts_alloc(sizeof(*x->rings) * (size_t)e->threads, "the profile", (void **)&x->rings));
    TS_TRY(ts_alloc(sizeof(*x->notes) * NOTES, "the profile", (void **)&x->notes));
    for (int i = 0; i < e->threads; i++) {
        x->rings[i].room = (int)room;
        TS_TRY(ts_alloc(sizeof(ts_stamp) * (size_t)room, "the times of kernels",
                        (void **)&x->rings[i].at));
    }
    return TS_OK;
}

ts_status ts_engine_profile(ts_engine *e)
{
    ts_stamps *x = e ? e->stamps : NULL;

    if (!x)
        return e ? TS_OK : ts_fail(TS_ERR_ARG, "the engine is NULL");
    if (!x->off && x->call) {
        for (int i = 0; i < x->threads; i++)
            x->rings[i].n = 0;
        x->call--; /* what was noted since belongs to the last */
        keep(x, write(x, e));
        keep(x, ts_profile_trace(&e->exe->profile));
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
    for (int i = 0; i < x->threads && x->rings; i++)
        free(x->rings[i].at);
    pthread_mutex_destroy(&x->lock);
    free(x->rings);
    free(x->notes);
    free(x);
}
