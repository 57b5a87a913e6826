/* host.c - what a host_call does: the caller's function, one at a time. */
#include "run/engine.h"

/* A failure is kept for the end of the run, and no other call is made in it. */
void ts_host_run(void *engine, int id, const void *const *in, void *const *out)
{
    ts_engine *e = engine;

    pthread_mutex_lock(&e->host_lock); /* devices may come at the same time */
    if (!e->host_status) {
        if (e->host)
            e->host_status = e->host(e->host_arg, id, in, out);
        else
            e->host_status =
                ts_fail(TS_ERR_ARG,
                        "the program calls the host (id %d), and ts_run_options.host is NULL", id);
        if (e->host_status)
            e->host_error = *ts_last_error();
    }
    pthread_mutex_unlock(&e->host_lock);
}

ts_status ts_host_end(ts_engine *e, ts_status s)
{
    if (s || !e->host_status)
        return s;
    ts_error_set(&e->host_error);
    return e->host_status;
}
