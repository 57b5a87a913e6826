/* profile.h - what a program is and what its runs took, as a database that people and pages read.
 *
 *   db.c      rows to SQLite; the only file that knows it
 *   plan.c    a program's tables: devices, sections, kernels, values
 *   events.c  the times of a run, added to a database that is there
 *   trace.c   the same times as trace.json
 *
 *   <folder>/profile.db     doc/profile.md has its tables
 *   <folder>/trace.json     for Perfetto and chrome://tracing
 *
 * The plan's part is written before anything is compiled or allocated, so a model that does not fit
 * leaves one too. Times are added by the engine.
 */
#ifndef TS_PROFILE_H
#define TS_PROFILE_H

#include "base/base.h"

enum { TS_PROFILE_VERSION = 1 };

/* db.c. A failure is kept, and nothing more is written: the last call tells of it. */
typedef struct ts_db ts_db;
enum { TS_DB_NULL = INT32_MIN };                     /* an int that is not there */
ts_status ts_db_new(ts_db **out);                    /* in memory, with all tables */
ts_status ts_db_open(const char *path, ts_db **out); /* a file that is there */
/* A row. Of kinds, one letter a column: i int, l int64_t, r double, t text or NULL. */
void ts_db_add(ts_db *d, const char *table, const char *kinds, ...);
void ts_db_set(ts_db *d, const char *key, const char *value); /* of the table run */
/* What is asked for, row by row; the first argument of all is the same. */
typedef void ts_db_row_fn(void *arg, const ts_db *d);
void ts_db_ask(ts_db *d, const char *sql, ts_db_row_fn *row, void *arg);
int64_t ts_db_int(const ts_db *d, int column); /* of the row at hand */
double ts_db_real(const ts_db *d, int column);
const char *ts_db_text(const ts_db *d, int column); /* "" for none */
bool ts_db_null(const ts_db *d, int column);
ts_status ts_db_save(ts_db *d, const char *path); /* all of it, or the file stays as it was */
ts_status ts_db_close(ts_db *d);                  /* says what went wrong since it was opened */

/* A profile that is being made: where, and what its times are counted from. */
typedef struct ts_profile {
    const char *folder; /* NULL: there is none */
    int calls;          /* that are measured */
    double zero;        /* of the monotonic clock, as all times below */
} ts_profile;

/* plan.c. `refused` is what the budget said, or NULL; src is NULL for what is not C. */
struct ts_program;
struct ts_source;
typedef struct ts_profiled {
    const ts_graph *model;
    const struct ts_program *p;
    const struct ts_source *src;
    const ts_options *opt;
    const char *refused;
    const char *unmeasured; /* why there will be no times, or NULL */
} ts_profiled;
ts_status ts_profile_write(ts_arena *a, const ts_profile *to, const ts_profiled *x);

/* events.c */

/* What the host did: a compile's phases, copies, waits. */
typedef struct ts_host_event {
    const char *kind, *name;
    int thread;
    double start, end;
} ts_host_event;
/* A kernel, or a section as a whole: then kernel is TS_DB_NULL. */
typedef struct ts_run_event {
    int call, replica, device, thread, kernel, section, micro;
    double start, end;
} ts_run_event;
ts_status ts_profile_host(const ts_profile *to, const ts_host_event *e, int n);
typedef struct ts_profile_times { /* of a call */
    const ts_run_event *events;
    int nevents;
    const ts_host_event *host;
    int nhost;
    int threads, calls;    /* that work; so far */
    double rate;           /* cycles a second of the counter */
    int64_t lost;          /* events that there was no room for, so far */
    const char *uncounted; /* why the processor counts nothing, or NULL */
} ts_profile_times;
ts_status ts_profile_times_add(const ts_profile *to, const ts_profile_times *x);

typedef struct ts_kernel_count { /* what the processor counted in one run of a kernel */
    int kernel;
    const char *name;
    double value;
} ts_kernel_count;
ts_status ts_profile_counts(const ts_profile *to, const ts_kernel_count *c, int n);

/* trace.c: trace.json from what the database has */
ts_status ts_profile_trace(const ts_profile *to);

#endif
