/* events.c - the times of a compilation and of runs, added to a database that is there.
 *
 * Times come as seconds of the monotonic clock and are kept from the profile's own zero on.
 */
#include "profile/profile.h"

/* What began before there was a profile, such as a program's own trace point around its first
 * call, begins with it. */
static void add_host(ts_db *d, const ts_profile *to, const ts_host_event *e, int n)
{
    for (int i = 0; i < n; i++)
        ts_db_add(d, "host", "ittirr", TS_DB_NULL, e[i].kind, e[i].name, e[i].thread,
                  TS_MAX(0.0, e[i].start - to->zero), TS_MAX(0.0, e[i].end - to->zero));
}

static ts_status open_in(const ts_profile *to, ts_text *path, ts_db **out)
{
    ts_text_printf(path, "%s/profile.db", to->folder);
    return ts_db_open(path->s, out);
}

ts_status ts_profile_host(const ts_profile *to, const ts_host_event *e, int n)
{
    ts_text path = {0};
    ts_status s;
    ts_db *d;

    if (!open_in(to, &path, &d))
        add_host(d, to, e, n);
    s = ts_db_close(d);
    ts_text_free(&path);
    return s;
}

static void add_events(ts_db *d, const ts_profile *to, const ts_run_event *e, int n)
{
    for (int i = 0; i < n; i++)
        ts_db_add(d, "event", "iiiiiiirr", e[i].call, e[i].replica, e[i].device, e[i].thread,
                  e[i].kernel, e[i].section, e[i].micro, e[i].start - to->zero,
                  e[i].end - to->zero);
}

static void set_number(ts_db *d, const char *key, double x)
{
    char s[32];

    ts_format(s, sizeof(s), "%.12g", x);
    ts_db_set(d, key, s);
}

static void take_number(void *arg, const ts_db *d)
{
    *(double *)arg = ts_db_real(d, 0);
}

static double number(ts_db *d, const char *key)
{
    char sql[96];
    double x = 0;

    ts_format(sql, sizeof(sql), "SELECT CAST(value AS REAL) FROM run WHERE key = '%s'", key);
    ts_db_ask(d, sql, take_number, &x);
    return x;
}

/* As many threads as there were: the plan only knew how many there usually are. */
static void set_threads(ts_db *d, int threads)
{
    static const char *const shared[] = {"peak_gflops", "bandwidth_gbs"};
    double before = number(d, "threads");

    for (int i = 0; i < TS_COUNT(shared); i++)
        if (before > 0 && number(d, shared[i]) > 0)
            set_number(d, shared[i], number(d, shared[i]) * threads / before);
    set_number(d, "threads", threads);
}

ts_status ts_profile_times_add(const ts_profile *to, const ts_profile_times *x)
{
    ts_text path = {0};
    ts_status s;
    ts_db *d;

    if (!open_in(to, &path, &d)) {
        add_events(d, to, x->events, x->nevents);
        add_host(d, to, x->host, x->nhost);
        ts_db_set(d, "source", "measured");
        set_number(d, "calls", x->calls);
        set_threads(d, x->threads);
        set_number(d, "cycles_per_second", x->rate);
        if (x->uncounted)
            ts_db_set(d, "uncounted", x->uncounted);
        if (x->lost)
            set_number(d, "lost_events", (double)x->lost);
    }
    s = ts_db_close(d);
    ts_text_free(&path);
    return s;
}

ts_status ts_profile_counts(const ts_profile *to, const ts_kernel_count *c, int n)
{
    ts_text path = {0};
    ts_status s;
    ts_db *d;

    if (!open_in(to, &path, &d))
        for (int i = 0; i < n; i++)
            ts_db_add(d, "counter", "itr", c[i].kernel, c[i].name, c[i].value);
    s = ts_db_close(d);
    ts_text_free(&path);
    return s;
}
