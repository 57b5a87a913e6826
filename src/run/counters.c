/* counters.c - what the processor counts of each kernel: cycles, instructions, misses.
 *
 * Reading a counter is a system call, a microsecond or so, and would be seen in the times of small
 * kernels. So kernels are counted in a call of their own, the one after the last that is timed:
 *
 *   call      0   1   2  ...  N-1 |  N       |  N+1 ...
 *             timed               |  counted |  as without a profile
 *
 * The counters of a thread are opened by the thread itself, as one group that is read at once. Many
 * machines have none to give: containers and virtual machines above all. The profile then says why
 * (run.uncounted), and all else goes on.
 */
#include "run/engine.h"
#include <errno.h>
#if defined(__linux__)
#include <linux/perf_event.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

const char *const ts_counter_names[TS_COUNTERS] = {"cycles", "instructions", "cache_misses",
                                                   "branch_misses"};

#if defined(__linux__)
static int open_one(int which, int group)
{
    static const uint64_t configs[TS_COUNTERS] = {
        PERF_COUNT_HW_CPU_CYCLES, PERF_COUNT_HW_INSTRUCTIONS, PERF_COUNT_HW_CACHE_MISSES,
        PERF_COUNT_HW_BRANCH_MISSES};
    struct perf_event_attr a = {.type = PERF_TYPE_HARDWARE,
                                .size = sizeof(a),
                                .config = configs[which],
                                .read_format = PERF_FORMAT_GROUP,
                                .exclude_kernel = 1,
                                .exclude_hv = 1,
                                .pinned = group < 0};

    return (int)syscall(SYS_perf_event_open, &a, 0, -1, group, PERF_FLAG_FD_CLOEXEC);
}

/* false: it did not count all the time, or not at all. */
static bool read_all(int group, uint64_t values[TS_COUNTERS])
{
    uint64_t raw[1 + TS_COUNTERS]; /* how many, and each */

    if (read(group, raw, sizeof(raw)) != (ssize_t)sizeof(raw) || raw[0] != TS_COUNTERS)
        return false;
    memcpy(values, raw + 1, sizeof(uint64_t) * TS_COUNTERS);
    return true;
}

static void close_one(int fd)
{
    close(fd);
}
#else
static int open_one(int which, int group)
{
    (void)which, (void)group;
    errno = ENOSYS;
    return -1;
}

static bool read_all(int group, uint64_t values[TS_COUNTERS])
{
    (void)group, (void)values;
    return false;
}

static void close_one(int fd)
{
    (void)fd;
}
#endif

static const ts_counter_source processor = {open_one, read_all, close_one};
const ts_counter_source *ts_counter_source_now = &processor;

void ts_counters_close(ts_counters *c)
{
    for (int i = 0; i < TS_COUNTERS; i++)
        if (c->open)
            ts_counter_source_now->close(c->fd[i]);
    c->open = false;
}

/* Of the thread that calls: 0, or errno. */
int ts_counters_open(ts_counters *c)
{
    for (int i = 0; i < TS_COUNTERS; i++) {
        c->fd[i] = ts_counter_source_now->open(i, i ? c->fd[0] : -1);
        if (c->fd[i] >= 0)
            continue;
        int why = errno;
        while (i--)
            ts_counter_source_now->close(c->fd[i]);
        return why;
    }
    c->open = true;
    return 0;
}

bool ts_counters_read(const ts_counters *c, uint64_t values[TS_COUNTERS])
{
    return c->open && ts_counter_source_now->read(c->fd[0], values);
}
