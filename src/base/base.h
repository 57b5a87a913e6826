/* base.h - arena, text, errors, files. Knows nothing of tensors. */
#ifndef TS_BASE_H
#define TS_BASE_H

#define TS_NO_LOCATIONS /* nodes that passes and rules make inherit their line */
#include "tessera.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TS_TRY(call)                                                                               \
    do {                                                                                           \
        ts_status try_status_ = (call);                                                            \
        if (try_status_ != TS_OK)                                                                  \
            return try_status_;                                                                    \
    } while (0)
#define TS_COUNT(array)   ((int)(sizeof(array) / sizeof((array)[0])))
#define TS_PRINTF(f, a)   __attribute__((format(printf, f, a)))
#define TS_MIN(a, b)      ((a) < (b) ? (a) : (b))
#define TS_MAX(a, b)      ((a) > (b) ? (a) : (b))
#define TS_ROUND_UP(n, m) (((n) + (m)-1) / (m) * (m))

/* arena.c: memory that lives as long as one compile. Allocation never returns NULL. */
typedef struct ts_arena ts_arena;
ts_arena *ts_arena_new(void);
void ts_arena_free(ts_arena *a);
void *ts_arena_alloc(ts_arena *a, size_t bytes); /* zeroed */
void *ts_arena_copy(ts_arena *a, const void *p, size_t bytes);
char *ts_arena_strdup(ts_arena *a, const char *s);
char *ts_arena_printf(ts_arena *a, const char *fmt, ...) TS_PRINTF(2, 3);
char *ts_arena_vprintf(ts_arena *a, const char *fmt, va_list ap);
#define TS_NEW(a, type)     ((type *)ts_arena_alloc(a, sizeof(type)))
#define TS_NEWS(a, type, n) ((type *)ts_arena_alloc(a, sizeof(type) * (size_t)((n) > 0 ? (n) : 1)))
/* Appends to an arena-owned array: TS_PUSH(a, g->nodes, g->nnodes, n). Capacity is the next power
 * of 2. */
void *ts_arena_grow(ts_arena *a, void *array, int count, size_t item);
#define TS_PUSH(a, array, count, item)                                                             \
    ((array) = ts_arena_grow(a, array, count, sizeof(*(array))), (array)[(count)++] = (item))

/* number.c: printf and strtod of the C locale, whatever the program's is */
int ts_vformat(char *s, size_t size, const char *fmt, va_list ap);
int ts_format(char *s, size_t size, const char *fmt, ...) TS_PRINTF(3, 4);
double ts_to_real(const char *s, char **end);

/* random.c: numbers from a counter, and the order of n samples in an epoch */
uint64_t ts_random_bits(uint64_t seed, uint64_t stream, uint64_t step, uint64_t i);
double ts_random_unit(uint64_t seed, uint64_t stream, uint64_t step, uint64_t i); /* [0, 1) */
void ts_random_order(uint64_t seed, uint64_t epoch, int64_t n, int64_t *order);

/* text.c: a growing string */
typedef struct ts_text {
    char *s;
    size_t len, cap;
} ts_text;
void ts_text_printf(ts_text *t, const char *fmt, ...) TS_PRINTF(2, 3);
void ts_text_add(ts_text *t, const char *s, size_t len);
/* Somebody's words in generated C: as part of a comment or of a string literal, which they do not end. Whatever
 * a user named goes through here. */
void ts_text_c(ts_text *t, const char *s, size_t len);
char *ts_c_text(ts_arena *a, const char *s);
void ts_text_free(ts_text *t);

/* error.c */
ts_status ts_fail(ts_status code, const char *fmt, ...) TS_PRINTF(2, 3);
ts_status ts_fail_loc(const char *where, ts_status code, const char *fmt, ...) TS_PRINTF(3, 4);
void ts_error_hint(const char *fmt, ...) TS_PRINTF(1, 2);  /* on the last error */
void ts_error_doing(const char *fmt, ...) TS_PRINTF(1, 2); /* unless it already has one */
void ts_error_set(const ts_error *e);

/* options.c: the table of options. A record is one of the structs it has rows for. */
typedef enum ts_option_key {
    TS_KEY_PROGRAM, /* another value makes another program                       */
    TS_KEY_NAMED,   /* an entry of the key that says more stands for it          */
    TS_KEY_NOTHING  /* the program is the same                                   */
} ts_option_key;
ts_option_key ts_option_in_key(ts_record of, int i); /* of the row that ts_option_at gives */
const char *ts_option_value(ts_arena *a, ts_record of, int i, const void *record); /* as text */
ts_status ts_record_check(ts_record of, const void *record); /* each field by itself */
ts_status ts_options_check(const ts_options *opt);           /* and together */
enum { TS_MOST_DEVICES = 4096 };

/* sized.c: structs of callers that were built with another version of the header */
/* A copy of the caller's struct of `size` bytes, NULL: zeros; fails by the name of the call. */
ts_status ts_take_sized(const char *call, const void *in, size_t size, void *out, size_t room);
/* The same with the optimizer in it, which lives as long as the copy of it. */
ts_status ts_take_options(const char *call, const ts_options *in, size_t size,
                          size_t optimizer_size, ts_options *out, ts_optimizer *optimizer);
/* Our struct of `room` bytes as the caller knows it; and a malloced list of them, *list. */
void ts_give(const void *in, size_t room, void *out, size_t size);
ts_status ts_give_list(void *list, int n, size_t room, size_t size);

/* fault.c: test builds make the n-th allocation, file operation or compiler call fail. */
bool ts_fault(const char *what);
void ts_fault_arm(const char *what, int nth); /* nth < 0: off */
int ts_fault_count(void);                     /* points passed since the last arm */

/* alloc sized by the user's data: checked, aligned to 64, zeroed; fails with TS_ERR_MEMORY */
ts_status ts_alloc(size_t bytes, const char *what, void **out);
void ts_give_back(void); /* what this process has freed, to the system */

/* file.c */
ts_status ts_file_read(const char *path, char **data, size_t *len); /* free(*data); NUL added */
/* The open file, if it is this user's and nobody else may write it; fails saying why: "it ...". */
ts_status ts_file_read_ours(int fd, char **data, size_t *len);           /* free(*data) */
ts_status ts_file_write(const char *path, const void *data, size_t len); /* temp, fsync, rename */
ts_status ts_file_write_private(const char *path, const void *data, size_t len); /* mode 0600 */
/* At the end of an open file: all of it, or the file stays as it was. */
ts_status ts_file_append(int fd, const char *path, const void *data, size_t len);
/* The same in pieces: begin, put..., end. The end makes the file visible when all before went well,
 * and else takes it away; it returns the first failure. */
typedef struct ts_file_out {
    int fd;
    const char *path;
    char target[4096], temp[4096]; /* the file that path leads to, and what becomes it */
} ts_file_out;
ts_status ts_file_begin(ts_file_out *f, const char *path);
ts_status ts_file_put(ts_file_out *f, const void *data, size_t len);
ts_status ts_file_end(ts_file_out *f, unsigned mode, ts_status so_far);
ts_status ts_file_mkdirs(const char *path);
/* The first line of a file of our control group, as "cpu.max"; false when there is none. */
bool ts_file_control_group(const char *name, char *line, size_t size);

/* temp.c: what is there for the time being. Each is locked by the process that made it. */
int ts_temp_file(const char *target, char *path, size_t size); /* beside target; -1: errno */
void ts_temp_sweep(const char *path); /* files beside it that killed processes left */
/* Of what is locked by whoever needs it: does nobody any more? */
bool ts_temp_left(int folder, const char *entry, bool remove);
typedef struct ts_temp_folder {
    char path[3072];
    int lock; /* for processes that work there too */
} ts_temp_folder;
ts_status ts_temp_folder_new(ts_temp_folder *t); /* in $TMPDIR, mode 0700 */
void ts_temp_folder_remove(ts_temp_folder *t);   /* with the files in it */
void ts_temp_folder_keep(ts_temp_folder *t);     /* for people to look at */

/* log.c: one line on stderr when TESSERA_LOG allows (default: warnings) */
typedef enum ts_log_level { TS_LOG_ERROR, TS_LOG_WARN, TS_LOG_INFO, TS_LOG_DEBUG } ts_log_level;
void ts_note(ts_log_level level, const char *fmt, ...) TS_PRINTF(2, 3);
bool ts_noting(ts_log_level level); /* would it be shown? */
double ts_now(void);                /* seconds, monotonic */

/* threads.c: a team that runs a function together */
enum { TS_MOST_THREADS = 1024 };
typedef struct ts_team ts_team;
typedef void ts_team_fn(void *arg, int member, int size);
ts_status ts_team_new(int size, ts_team **out);
void ts_team_free(ts_team *t);
void ts_team_run(ts_team *t, ts_team_fn *fn, void *arg); /* returns when every member has */
void ts_team_run_some(ts_team *t, int members, ts_team_fn *fn, void *arg); /* the first of them */
void ts_team_wait(ts_team *t); /* inside fn: the barrier */
/* threads.c: waiting for something that others do; look, then check, then wait for a change */
typedef struct ts_signal ts_signal;
ts_status ts_signal_new(ts_signal **out);
void ts_signal_free(ts_signal *s);
unsigned ts_signal_look(ts_signal *s);
void ts_signal_send(ts_signal *s);
void ts_signal_wait(ts_signal *s, unsigned seen);
int ts_team_default_size(void); /* affinity, control group and OMP_NUM_THREADS */
int ts_core_count(void);        /* this process may run on */
double ts_core_quota(void);     /* cores' worth of time its control group allows; 0 for no limit */

#endif
