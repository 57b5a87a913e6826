/* host.c - what a host_call does: the caller's function, one at a time; or a look at what the
 * checks of pass/guard.c found, which is ours. */
#include "run/engine.h"

/* The i-th line of the text, "what|where". */
static ts_status exception(const ts_engine *e, int code, const char *line, uint64_t step)
{
    static const char *const did[] = {"", "made an infinity", "made a NaN", "compared a NaN"};
    int what = (int)strcspn(line, "|"), where = (int)strcspn(line + what + 1, "\n");
    char at[sizeof(e->host_error.where)], replica[32] = "";
    uint64_t stride = ts_engine_stride(e);

    ts_format(at, sizeof(at), "%.*s", where, line + what + 1);
    if (stride > 1)
        ts_format(replica, sizeof(replica), " of replica %llu",
                  (unsigned long long)(step % stride));
    ts_fail_loc(at, TS_ERR_NUMBER, "%.*s %s in micro-batch %llu%s", what, line, did[code & 3],
                (unsigned long long)(step / stride), replica);
    ts_error_hint(
        "nothing that it was made of was infinite or NaN so far; the run went on to its end, "
        "and its states are what that left");
    return TS_ERR_NUMBER;
}

/* in: the codes, the lines of text, the step. */
static ts_status check(const ts_engine *e, const void *const *in)
{
    const float *codes = in[0];
    const char *line = in[1];

    for (int i = 0; line; i++) {
        if (codes[i] > 0)
            return exception(e, (int)codes[i], line, *(const uint64_t *)in[2]);
        line = strchr(line, '\n');
        line = line ? line + 1 : NULL;
    }
    return TS_OK;
}

/* A failure is kept for the end of the run, and no other call is made in it. */
void ts_host_run(void *engine, int id, const void *const *in, void *const *out)
{
    ts_engine *e = engine;
    double start;

    pthread_mutex_lock(&e->host_lock); /* devices may come at the same time */
    start = e->stamps ? ts_now() : 0;
    if (!e->host_status) {
        if (id < 0)
            e->host_status = check(e, in);
        else if (e->host)
            e->host_status = e->host(e->host_arg, id, in, out);
        else
            e->host_status =
                ts_fail(TS_ERR_ARG,
                        "the program calls the host (id %d), and ts_run_options.host is NULL", id);
        if (e->host_status)
            e->host_error = *ts_last_error();
    }
    if (e->stamps)
        ts_engine_note(e, "callback", id < 0 ? "checks" : "host call", start, ts_now());
    pthread_mutex_unlock(&e->host_lock);
}

ts_status ts_host_end(ts_engine *e, ts_status s)
{
    if (s || !e->host_status)
        return s;
    ts_error_set(&e->host_error);
    return e->host_status;
}
