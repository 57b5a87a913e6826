/* threads.c - a fixed team of threads that runs one function together, and the barrier between its
 * steps.
 *
 * The caller is member 0. Idle members sleep; inside a run they spin for a moment at the barrier,
 * because the next step is usually a microsecond away, and then sleep too, because on a shared core
 * spinning would starve the very thread that is waited for.
 */
#include "base/base.h"
#include <limits.h>
#include <linux/futex.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { SPINS = 4000, MEMBERS = 2 * TS_MOST_THREADS };

struct ts_team {
    int size;
    int active; /* members of the run: those below it */
    pthread_t *threads;
    _Alignas(64) atomic_uint arrived;
    _Alignas(64) atomic_uint turn; /* barrier generation: what members wait for */
    atomic_uint sleepers;
    _Alignas(64) atomic_uint job; /* run generation * MEMBERS + who takes part */
    atomic_bool quit;
    ts_team_fn *fn;
    void *arg;
};

typedef struct member {
    ts_team *team;
    int index;
} member;

static void futex_wait(atomic_uint *word, unsigned seen)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}

static void futex_wake(atomic_uint *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

static void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

/* Watches a word for a moment: true when it changed. */
static bool spin(atomic_uint *word, unsigned seen)
{
    for (int i = 0; i < SPINS; i++) {
        if (atomic_load_explicit(word, memory_order_acquire) != seen)
            return true;
        relax();
    }
    return false;
}

void ts_team_wait(ts_team *t)
{
    unsigned turn = atomic_load_explicit(&t->turn, memory_order_relaxed);
    unsigned last = (unsigned)t->active - 1; /* read before the others may go on to the next run */

    if (!last)
        return;
    if (atomic_fetch_add_explicit(&t->arrived, 1, memory_order_acq_rel) == last) {
        atomic_store_explicit(&t->arrived, 0, memory_order_relaxed);
        atomic_store(&t->turn, turn + 1);
        if (atomic_load(&t->sleepers))
            futex_wake(&t->turn);
        return;
    }
    if (spin(&t->turn, turn))
        return;
    atomic_fetch_add(&t->sleepers, 1);
    while (atomic_load(&t->turn) == turn)
        futex_wait(&t->turn, turn);
    atomic_fetch_sub(&t->sleepers, 1);
}

/* --- a signal: a number that only changes --- */

struct ts_signal {
    _Alignas(64) atomic_uint count;
    atomic_uint sleepers;
};

unsigned ts_signal_look(ts_signal *s)
{
    return atomic_load(&s->count);
}

void ts_signal_send(ts_signal *s)
{
    atomic_fetch_add(&s->count, 1);
    if (atomic_load(&s->sleepers))
        futex_wake(&s->count);
}

void ts_signal_wait(ts_signal *s, unsigned seen)
{
    if (spin(&s->count, seen))
        return;
    atomic_fetch_add(&s->sleepers, 1);
    while (atomic_load(&s->count) == seen)
        futex_wait(&s->count, seen);
    atomic_fetch_sub(&s->sleepers, 1);
}

ts_status ts_signal_new(ts_signal **out)
{
    return ts_alloc(sizeof(ts_signal), "a signal", (void **)out);
}

void ts_signal_free(ts_signal *s)
{
    free(s);
}

/* --- the team --- */

/* Nobody waits for a member that takes no part, so it must not look at more than the job's word. */
static void *work(void *arg)
{
    member m = *(member *)arg;
    ts_team *t = m.team;
    unsigned seen = 0;

    free(arg);
    for (;;) {
        if (!spin(&t->job, seen)) /* the next call often comes at once */
            while (atomic_load(&t->job) == seen)
                futex_wait(&t->job, seen);
        seen = atomic_load(&t->job);
        if (atomic_load(&t->quit))
            return NULL;
        if ((unsigned)m.index >= seen % MEMBERS)
            continue;
        t->fn(t->arg, m.index, t->active);
        ts_team_wait(t);
    }
}

void ts_team_run_some(ts_team *t, int members, ts_team_fn *fn, void *arg)
{
    t->fn = fn;
    t->arg = arg;
    t->active = members;
    if (members > 1) {
        unsigned run = atomic_load_explicit(&t->job, memory_order_relaxed) / MEMBERS + 1;
        atomic_store(&t->job, run * MEMBERS + (unsigned)members);
        futex_wake(&t->job);
    }
    fn(arg, 0, members);
    ts_team_wait(t);
}

void ts_team_run(ts_team *t, ts_team_fn *fn, void *arg)
{
    ts_team_run_some(t, t->size, fn, arg);
}

static void stop(ts_team *t, int started)
{
    atomic_store(&t->quit, true);
    atomic_fetch_add(&t->job, MEMBERS);
    futex_wake(&t->job);
    for (int i = 1; i < started; i++)
        pthread_join(t->threads[i], NULL);
}

void ts_team_free(ts_team *t)
{
    if (!t)
        return;
    stop(t, t->size);
    free(t->threads);
    free(t);
}

ts_status ts_team_new(int size, ts_team **out)
{
    ts_team *t = aligned_alloc(64, TS_ROUND_UP(sizeof(*t), 64));

    if (t) {
        memset(t, 0, sizeof(*t));
        t->threads = calloc((size_t)size, sizeof(pthread_t));
    }
    if (!t || !t->threads) {
        free(t);
        return ts_fail(TS_ERR_MEMORY, "cannot allocate a team of %d threads", size);
    }
    t->size = size;
    for (int i = 1; i < size; i++) {
        member *m = malloc(sizeof(*m));
        if (m)
            *m = (member){t, i};
        if (!m || ts_fault("thread") || pthread_create(&t->threads[i], NULL, work, m)) {
            free(m);
            stop(t, i);
            free(t->threads);
            free(t);
            return ts_fail(TS_ERR_MEMORY, "cannot start thread %d of %d", i, size);
        }
    }
    *out = t;
    return TS_OK;
}

/* "max 100000" or "150000 100000" */
double ts_core_quota(void)
{
    double quota = 0, period = 0;
    char text[64];

    if (!ts_file_control_group("cpu.max", text, sizeof(text)) ||
        sscanf(text, "%lf %lf", &quota, &period) != 2)
        return 0;
    return quota > 0 && period > 0 ? quota / period : 0;
}

int ts_core_count(void)
{
    cpu_set_t set;

    return sched_getaffinity(0, sizeof(set), &set) ? (int)sysconf(_SC_NPROCESSORS_ONLN)
                                                   : CPU_COUNT(&set);
}

/* Processes that a launcher started on this machine and left on all of its cores share them. */
static int share(int cores)
{
    const char *local = getenv("OMPI_COMM_WORLD_LOCAL_SIZE");
    int n = local ? atoi(local) : 1;

    return n > 1 && cores >= sysconf(_SC_NPROCESSORS_ONLN) ? TS_MAX(1, cores / n) : cores;
}

int ts_team_default_size(void)
{
    const char *omp = getenv("OMP_NUM_THREADS");
    int n, limit = (int)ceil(ts_core_quota());

    if (omp && atoi(omp) > 0)
        return TS_MIN(atoi(omp), 256);
    n = TS_MAX(1, TS_MIN(share(ts_core_count()), 256));
    return limit && limit < n ? limit : n;
}
