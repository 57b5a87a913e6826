/* engine.h - what the files of a running engine share. */
#ifndef TS_ENGINE_H
#define TS_ENGINE_H

#include "render/module.h"
#include "run/run.h"
#include <pthread.h>

typedef struct ts_lanes ts_lanes;
typedef struct ts_gpu_run ts_gpu_run;
typedef struct ts_stamps ts_stamps;

struct ts_engine {
    ts_executable *exe; /* shared: whoever is freed last takes it along */
    char **blocks;      /* [replica][device]; of a GPU, a mirror of its states */
    ts_gpu_run *gpu;    /* gpu.c: the devices are memory of a GPU; or NULL */
    char **remotes;     /* [replica]: what is kept in the host's memory */
    int threads;
    const ts_comm *comm;    /* other processes that train with us, or NULL */
    ts_attachment *devices; /* who else can see, [replica][device], or NULL */
    uint64_t seed, step;
    ts_team *team;      /* loop.c */
    ts_pace pace;       /* how many of it work */
    const void **feeds; /* each thread's pointers to the inputs of its micro-batch */
    ts_lanes *lanes;    /* lanes.c, instead of the two above */
    ts_ref **refs;   /* the reference executor's tensors for each replica, instead of all above */
    ts_times *times; /* of each micro-batch of a run */
    /* of the running call */
    const void *const *in;
    void *const *out;
    /* calls of the host */
    ts_host_fn *host;
    void *host_arg;
    pthread_mutex_t host_lock;
    ts_status host_status; /* of the first that failed in this run */
    ts_error host_error;
    ts_stamps *stamps; /* stamp.c: what is measured for the profile, or NULL */
};

static inline char *ts_engine_block(const ts_engine *e, int replica, int device)
{
    if (device == TS_REMOTE)
        return e->remotes[replica];
    return e->blocks[replica * e->exe->pipe.ndevices + device];
}

/* An output of micro-batch 0: on its device or, when it is a state, maybe with the host. */
static inline const char *ts_engine_output(const ts_engine *e, int replica, const ts_slot *s)
{
    return ts_engine_block(e, replica, s->at.device) + s->at.offset;
}

/* Random numbers differ for every micro-batch of every replica of every process: as if they had
 * come one after the other. */
static inline uint64_t ts_engine_stride(const ts_engine *e)
{
    return (uint64_t)e->exe->replicas * (uint64_t)(e->comm ? e->comm->size : 1);
}

/* The step of micro-batch m, counted in this call, of a replica. */
static inline uint64_t ts_engine_step(const ts_engine *e, int m, int replica)
{
    int rank = e->comm ? e->comm->rank : 0;

    return e->step + (uint64_t)m * ts_engine_stride(e) +
           (uint64_t)(rank * e->exe->replicas + replica);
}

/* The step of the update after micro-batch m: the same for all replicas, whose weights
 * are equal. */
static inline uint64_t ts_engine_update_step(const ts_engine *e, int m)
{
    return e->step + (uint64_t)m * ts_engine_stride(e);
}

char *ts_engine_state(const ts_engine *e, int replica, const ts_slot *s, ts_spot_at at);

/* output.c */
int ts_output_slot(const ts_executable *x, int m); /* of micro-batch m of the call, or -1 */
/* Gives a replica's result of micro-batch m to the host. */
void ts_output_give(const ts_engine *e, int output, int replica, int m, const void *from);
/* Points to micro-batch m of every input. */
void ts_input_find(const ts_engine *e, int replica, int m, const void **in);

/* host.c */
void ts_host_run(void *engine, int id, const void *const *in, void *const *out);
ts_status ts_host_end(ts_engine *e, ts_status s); /* of a run that ended with s */

/* exchange.c: gradients of all replicas and processes */
bool ts_exchange_needed(const ts_engine *e);
void ts_exchange_replicas(const ts_engine *e, int member, int size); /* a share of it */
ts_status ts_exchange_processes(const ts_engine *e);
/* After the update: is anything split over the replicas, and a share of bringing it together */
bool ts_exchange_shared(const ts_engine *e);
void ts_exchange_collect(const ts_engine *e, int member, int size);

/* monitor.c: the engine's devices, as other processes see them */
ts_status ts_monitor_enter(ts_engine *e, ts_attachment *given); /* NULL: its own */
void ts_monitor_leave(ts_engine *e);
void ts_monitor_begin(const ts_engine *e, int device); /* [replica][device] works */
void ts_monitor_end(const ts_engine *e, int device);

/* loop.c: one device, or the reference executor */
ts_status ts_loop_start(ts_engine *e);
ts_status ts_loop_native(ts_engine *e);
ts_status ts_loop_reference(ts_engine *e);
bool ts_run_kernel(const ts_module_kernel *k, const ts_run_ctx *c, int member, int size);

/* counters.c: what the processor counts of a thread, in a group that is read at once */
enum { TS_COUNTERS = 4 };
extern const char *const ts_counter_names[TS_COUNTERS];
typedef struct ts_counter_source {
    int (*open)(int which, int group); /* a descriptor of the calling thread's, or -1 and errno */
    bool (*read)(int group, uint64_t values[TS_COUNTERS]);
    void (*close)(int fd);
} ts_counter_source;
extern const ts_counter_source *ts_counter_source_now; /* the processor; tests have others */
typedef struct ts_counters {
    int fd[TS_COUNTERS];
    bool open;
} ts_counters;
int ts_counters_open(ts_counters *c); /* 0, or errno */
bool ts_counters_read(const ts_counters *c, uint64_t values[TS_COUNTERS]);
void ts_counters_close(ts_counters *c);

/* stamp.c: when each kernel of the first calls ran */
enum { /* instead of a kernel */
       TS_STAMP_SECTION = -1,
       TS_STAMP_OUTPUT = -2,
       TS_STAMP_SEND = -3,
       TS_STAMP_CALL = -4, /* another call begins */
};
typedef struct ts_stamp {
    uint64_t from, to; /* cycles */
    int kernel, section, micro, replica;
} ts_stamp;
typedef struct ts_stamp_ring { /* of a thread */
    _Alignas(64) ts_stamp *at;
    int n, kept, room; /* kept: of calls that are done */
    int64_t lost;
    bool counting; /* this call is counted, not timed */
    ts_counters counters;
    uint64_t *counts; /* [kernel][TS_COUNTERS]; NULL where there are none */
    bool uncounted;   /* they could not be read */
} ts_stamp_ring;
static inline uint64_t ts_cycles(void)
{
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
    uint64_t t;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(t));
    return t;
#else
    return (uint64_t)(ts_now() * 1e9);
#endif
}
ts_status ts_stamps_new(ts_engine *e);
void ts_stamps_free(ts_engine *e);
void ts_stamps_begin(const ts_engine *e); /* of a call */
void ts_stamps_end(const ts_engine *e);
ts_stamp_ring *ts_stamps_ring(const ts_engine *e, int thread); /* NULL: it is not measured */
void ts_stamp_end(ts_stamp_ring *r, ts_stamp s);               /* it ends now */
void ts_stamp_add(ts_stamp_ring *r, ts_stamp s);
/* A member's share of a section; s has what its kernels have in common. */
void ts_run_stamped(ts_stamp_ring *r, ts_stamp s, ts_team *team, const ts_module_kernel *k,
                    const ts_section *of, const ts_run_ctx *c, int member, int size);

/* gpu.c */
ts_status ts_gpu_run_new(ts_engine *e, bool in_one_go);
void ts_gpu_run_free(ts_engine *e);
bool ts_gpu_alone(const ts_engine *e); /* ts_gpu_loop runs it, not lanes.c */
ts_status ts_gpu_loop(ts_engine *e);
/* How long each kernel of the first device takes by itself. The states are not those of a run
 * afterwards: for benchmarks. */
ts_status ts_gpu_profile(ts_engine *e, double *seconds);
/* A state's mirror from the GPU and to it; nothing to do where there is no GPU. */
ts_status ts_gpu_pull(const ts_engine *e, int replica, const ts_slot *s, ts_spot_at at);
ts_status ts_gpu_push(const ts_engine *e, int replica, const ts_slot *s, ts_spot_at at);
ts_status ts_gpu_pull_all(const ts_engine *e);
ts_status ts_gpu_push_all(const ts_engine *e);
/* For lanes.c: a section; an output, `turn` bytes into its ring; what is sent, by its places. */
/* With a ring its kernels are timed. */
ts_status ts_gpu_section(ts_engine *e, int replica, const ts_section *s, const ts_run_ctx *c,
                         ts_stamp stamp, ts_stamp_ring *ring);
ts_status ts_gpu_give(ts_engine *e, int output, int replica, int m, size_t turn);
ts_status ts_gpu_send(ts_engine *e, int replica, const ts_send *s, size_t to, size_t from);

/* lanes.c: several devices */
ts_status ts_lanes_new(ts_engine *e, ts_lanes **out);
void ts_lanes_free(ts_lanes *l);
ts_status ts_lanes_run(ts_lanes *l);

#endif
