/* run.h - executes: the reference executor over a graph, the engine over a built program. */
#ifndef TS_RUN_H
#define TS_RUN_H

#include "op/op.h"
#include "plan/pipeline.h"
#include "profile/profile.h"
#include "tessera/device.h"
#include <stdatomic.h>

/* init.c: the starting value of a state, from the seed and its name only */
void ts_init_fill(const ts_init *init, const char *name, uint64_t seed, ts_dtype t, int64_t count,
                  void *data);

/* pace.c: how many threads work, by trial */
typedef struct ts_pace {
    int most, threads; /* there are; work */
    bool fixed;        /* always most */
    double seconds;    /* of a micro-batch, 0: not known yet */
    double clock;      /* seconds that it ran so far */
    double next, wait; /* the next trial; it comes so long after the last */
    bool fewer;        /* which way it goes */
    int trial;         /* threads of the trial that runs, or 0 */
    bool warm;         /* its first micro-batch is over */
    int trial_count;
    double trial_seconds, trial_best, warm_seconds; /* best: of a micro-batch */
} ts_pace;
void ts_pace_start(ts_pace *p, int threads, bool fixed);
/* How many of the micro-batches that are left to run now, and with how many threads. */
int ts_pace_plan(ts_pace *p, int left, int *threads);
void ts_pace_done(ts_pace *p, int count, double seconds);

/* engine.c */
ts_status ts_engine_executable(const ts_engine *e, const ts_executable **out); /* not of NULL */

/* What an executable was made from, by name: the cache finds it by `hash` and can say what
 * changed. */
typedef struct ts_key {
    const char *(*entries)[2]; /* name, value */
    int nentries;
    char hash[33]; /* hexadecimal XXH128 of all of them; "" for none */
} ts_key;

enum { TS_REMOTE = -1 };    /* instead of a device: the host's memory */
typedef struct ts_spot_at { /* where a tensor lies */
    int device;
    size_t offset; /* in the device's block */
} ts_spot_at;

typedef struct ts_slot { /* an input, output or state as the engine sees it */
    ts_tensor_info info;
    ts_layout layout;
    ts_spot_at at;
    int ncopies; /* states: on other devices that read it */
    ts_spot_at *copies;
    int section, depth; /* outputs: who makes it, and how many micro-batches of it are kept */
    ts_use use;         /* states */
    ts_init init;
    int value;       /* its id in the graph, for the reference executor */
    bool grouped;    /* states: its groups of replicas are a dim of their own for the host */
    int groups;      /* that have a value each; 1: all share one */
    bool orthogonal; /* every groups-th replica, not neighbours */
    bool read_all;   /* the host reads the value of each replica */
    /* Split over the replicas, so many elements of what lies in memory for each: a moment is kept
     * by its replica only, a weight is collected after the update, a sum cleared. Or 0. */
    int64_t share;
    bool scatter;         /* a sum goes to the replica of its share only */
    ts_tensor_info whole; /* as the host sees it: with the groups */
} ts_slot;

struct ts_executable {
    ts_arena *arena;  /* holds all of it but library and graph */
    atomic_int users; /* the program and its engines */
    const char *name;
    const char *version; /* of the library that made it */
    ts_slot *inputs, *outputs, *states;
    int ninputs, noutputs, nstates;
    int device_iterations, gradient_accumulation, output_period;
    ts_output_mode mode;
    int replicas, processes;
    bool training;
    ts_pipeline pipe;
    ts_device_bytes *bytes; /* of each device */
    size_t remote_bytes;
    ts_stats stats;
    ts_key key;
    const char *isa, *source, *inspect;
    const void *object; /* the shared object's bytes */
    size_t object_bytes;
    void *library;                  /* dlopen's */
    const struct ts_module *module; /* NULL: the reference executor runs `graph` */
    struct ts_gpu_program *gpu;     /* instead of library and module: gpu.c */
    const char *ir;                 /* the graph's text */
    ts_graph *graph;
    ts_profile profile;  /* that an engine adds to; no part of its file */
    atomic_int profiled; /* there is such an engine */
};

/* executable.c: fills in what the host sees of the slots */
void ts_executable_finish(ts_executable *x);
/* Which of a state's groups a replica is in. */
static inline int ts_slot_group(const ts_slot *s, int replicas, int replica)
{
    return s->orthogonal ? replica % s->groups : replica / (replicas / s->groups);
}
/* describe.c: what a run needs to know of a program; p is NULL for the reference executor */
struct ts_program;
void ts_executable_describe(ts_executable *x, const ts_graph *g, const struct ts_program *p,
                            const ts_options *opt);
/* executable.c: an executable as one file, and back */
ts_executable *ts_executable_new(void);
ts_executable *ts_executable_share(const ts_executable *x);        /* ts_executable_free it too */
void ts_executable_profile(ts_executable *x, const ts_profile *p); /* its engines' */
/* Makes it run: loads `object`, or reads `ir`. */
ts_status ts_executable_start(ts_executable *x);
ts_status ts_executable_pack(const ts_executable *x, ts_text *file);
/* `path` is for the messages. Does not start it. */
ts_status ts_executable_unpack(const char *path, const char *file, size_t len, ts_executable **out);

/* gpu.c: the same for a GPU, and the end of it */
typedef struct ts_gpu_program ts_gpu_program;
ts_status ts_gpu_start(ts_executable *x);
void ts_gpu_stop(ts_executable *x);
const struct ts_gpu_code *ts_gpu_code_of(const ts_executable *x);

/* manifest.c: its part in JSON */
ts_status ts_manifest_write(const ts_executable *x, char **json); /* free() it */
ts_status ts_manifest_read(const char *path, const char *json, size_t len, ts_executable *x);

/* library.c: a shared object from memory; nothing is left on the disk */
ts_status ts_library_open(const void *object, size_t bytes, void **library);
void *ts_library_symbol(void *library, const char *name); /* NULL: there is none */
void ts_library_close(void *library);

/* inspect.c */
char *ts_inspect(ts_arena *a, const ts_executable *x);

#endif
