/* cuda.c - NVIDIA's GPUs: the driver and the run-time compiler, opened when a program asks for them.
 *
 * Nothing of CUDA is needed to build: the few functions that are used are declared here and looked
 * up by name. Launches in a row are captured once as a graph; starting it again costs the processor
 * a few microseconds however many there are.
 */
#include "gpu/gpu.h"
#include <dlfcn.h>
#include <pthread.h>

typedef int result;
typedef int device_id;
typedef struct cuda_context *context_id;
typedef struct cuda_stream *stream_id;
typedef struct cuda_event *event_id;
typedef struct cuda_module *module_id;
typedef struct cuda_function *function_id;
typedef struct cuda_graph *graph_id;
typedef struct cuda_graph_exec *exec_id;
typedef unsigned long long address;
typedef struct nvrtc_program *program_id;

typedef struct launch_attribute {
    int id;
    char pad[4];
    union {
        int value;
        char room[64];
    };
} launch_attribute;

typedef struct launch_config {
    unsigned grid[3], block[3], shared;
    stream_id stream;
    launch_attribute *attributes;
    unsigned nattributes;
} launch_config;

enum {
    STAGES = 4,
    STAGE = 2 << 20,  /* bytes */
    SMALL = 64 << 10, /* bytes that the driver takes at once */
    COPIERS = 6,
    MEMORY_TYPE = 2,        /* of an address, */
    HOST = 1,               /* the host's, that the GPU can read */
    EARLY = 6,              /* programmatic stream serialization */
    SHARED_MOST = 8,        /* a function's largest dynamic shared memory */
    SHARED_FREE = 48 << 10, /* that needs no asking */
    LEAST_MAJOR = 8,        /* copies to shared memory that go on by themselves */
    ATTRIBUTE_MAJOR = 75,
    ATTRIBUTE_MINOR = 76,
    NON_BLOCKING = 1,
    WITHOUT_TIMING = 2,
    CAPTURE_THREAD = 1,
    OUT_OF_MEMORY = 2,
};

#define DRIVER(F)                                                                                  \
    F(result, cuInit, "cuInit", (unsigned))                                                        \
    F(result, cuDriverGetVersion, "cuDriverGetVersion", (int *))                                   \
    F(result, cuGetErrorString, "cuGetErrorString", (result, const char **))                       \
    F(result, cuDeviceGetCount, "cuDeviceGetCount", (int *))                                       \
    F(result, cuDeviceGet, "cuDeviceGet", (device_id *, int))                                      \
    F(result, cuDeviceGetName, "cuDeviceGetName", (char *, int, device_id))                        \
    F(result, cuDeviceTotalMem, "cuDeviceTotalMem_v2", (size_t *, device_id))                      \
    F(result, cuDeviceGetAttribute, "cuDeviceGetAttribute", (int *, int, device_id))               \
    F(result, cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", (context_id *, device_id))     \
    F(result, cuCtxSetCurrent, "cuCtxSetCurrent", (context_id))                                    \
    F(result, cuStreamCreate, "cuStreamCreate", (stream_id *, unsigned))                           \
    F(result, cuStreamSynchronize, "cuStreamSynchronize", (stream_id))                             \
    F(result, cuStreamWaitEvent, "cuStreamWaitEvent", (stream_id, event_id, unsigned))             \
    F(result, cuEventCreate, "cuEventCreate", (event_id *, unsigned))                              \
    F(result, cuEventSynchronize, "cuEventSynchronize", (event_id))                                \
    F(result, cuMemHostAlloc, "cuMemHostAlloc", (void **, size_t, unsigned))                       \
    F(result, cuPointerGetAttribute, "cuPointerGetAttribute", (void *, int, address))              \
    F(result, cuEventRecord, "cuEventRecord", (event_id, stream_id))                               \
    F(result, cuEventElapsedTime, "cuEventElapsedTime", (float *, event_id, event_id))             \
    F(result, cuEventDestroy, "cuEventDestroy_v2", (event_id))                                     \
    F(result, cuStreamBeginCapture, "cuStreamBeginCapture_v2", (stream_id, int))                   \
    F(result, cuStreamEndCapture, "cuStreamEndCapture", (stream_id, graph_id *))                   \
    F(result, cuGraphInstantiate, "cuGraphInstantiateWithFlags",                                   \
      (exec_id *, graph_id, unsigned long long))                                                   \
    F(result, cuGraphUpload, "cuGraphUpload", (exec_id, stream_id))                                \
    F(result, cuGraphLaunch, "cuGraphLaunch", (exec_id, stream_id))                                \
    F(result, cuGraphExecDestroy, "cuGraphExecDestroy", (exec_id))                                 \
    F(result, cuGraphDestroy, "cuGraphDestroy", (graph_id))                                        \
    F(result, cuModuleLoadData, "cuModuleLoadData", (module_id *, const void *))                   \
    F(result, cuModuleUnload, "cuModuleUnload", (module_id))                                       \
    F(result, cuModuleGetFunction, "cuModuleGetFunction",                                          \
      (function_id *, module_id, const char *))                                                    \
    F(result, cuFuncSetAttribute, "cuFuncSetAttribute", (function_id, int, int))                   \
    F(result, cuLaunchKernelEx, "cuLaunchKernelEx",                                                \
      (const launch_config *, function_id, void **, void **))                                      \
    F(result, cuMemAlloc, "cuMemAlloc_v2", (address *, size_t))                                    \
    F(result, cuMemFree, "cuMemFree_v2", (address))                                                \
    F(result, cuMemsetD8Async, "cuMemsetD8Async", (address, unsigned char, size_t, stream_id))     \
    F(result, cuMemcpyHtoDAsync, "cuMemcpyHtoDAsync_v2",                                           \
      (address, const void *, size_t, stream_id))                                                  \
    F(result, cuMemcpyDtoHAsync, "cuMemcpyDtoHAsync_v2", (void *, address, size_t, stream_id))     \
    F(result, cuMemcpyDtoDAsync, "cuMemcpyDtoDAsync_v2", (address, address, size_t, stream_id))    \
    F(result, cuMemcpyPeerAsync, "cuMemcpyPeerAsync",                                              \
      (address, context_id, address, context_id, size_t, stream_id))

#define COMPILER(F)                                                                                \
    F(result, nvrtcVersion, "nvrtcVersion", (int *, int *))                                        \
    F(result, nvrtcCreateProgram, "nvrtcCreateProgram",                                            \
      (program_id *, const char *, const char *, int, const char *const *, const char *const *))   \
    F(result, nvrtcCompileProgram, "nvrtcCompileProgram", (program_id, int, const char *const *))  \
    F(result, nvrtcGetCUBINSize, "nvrtcGetCUBINSize", (program_id, size_t *))                      \
    F(result, nvrtcGetCUBIN, "nvrtcGetCUBIN", (program_id, char *))                                \
    F(result, nvrtcGetProgramLogSize, "nvrtcGetProgramLogSize", (program_id, size_t *))            \
    F(result, nvrtcGetProgramLog, "nvrtcGetProgramLog", (program_id, char *))                      \
    F(result, nvrtcDestroyProgram, "nvrtcDestroyProgram", (program_id *))

#define POINTER(type, name, symbol, args) static type(*name) args;
DRIVER(POINTER)
COMPILER(POINTER)
#undef POINTER

/* Memory that the GPU reads by itself: what is sent goes through it, a piece after the other. */
typedef struct stage {
    char *host;
    event_id sent;
} stage;

struct ts_gpu {
    device_id device;
    context_id context;
    stream_id stream, copies; /* of the launches; of what is sent beside them */
    event_id sent, turn;      /* what was sent; where another GPU's copies wait for the launches */
    stage stages[STAGES];
    int next;
    ts_team *team; /* copies to the stages: one thread does 8 GB/s, the GPU fetches 50 */
    pthread_mutex_t sending;
    ts_gpu_info info;
    char target[16]; /* sm_90 */
    bool early;      /* kernels start before the last one has ended, and wait for it themselves */
};

struct ts_gpu_module {
    module_id module;
    function_id *functions;
};

struct ts_gpu_memory {
    address at;
};

struct ts_gpu_recording {
    graph_id graph;
    exec_id exec;
};

static ts_status failed(const char *call, result error)
{
    const char *what = NULL;

    if (cuGetErrorString)
        (void)cuGetErrorString(error, &what);
    return ts_fail(error == OUT_OF_MEMORY ? TS_ERR_MEMORY : TS_ERR_INTERNAL,
                   "CUDA: %s failed: %s (error %d)", call, what ? what : "unknown", error);
}

#define CALL(name, ...)                                                                            \
    do {                                                                                           \
        result error_ = name(__VA_ARGS__);                                                         \
        if (error_)                                                                                \
            return failed(#name, error_);                                                          \
    } while (0)

/* --- opening --- */

#define FIND(type, name, symbol, args)                                                             \
    *(void **)&name = dlsym(library, symbol);                                                      \
    if (!name)                                                                                     \
        return ts_fail(TS_ERR_UNSUPPORTED, "%s has no %s: it is too old", what, symbol);

static ts_status find_driver(void)
{
    static const char *const names[] = {"libcuda.so.1", "libcuda.so", NULL};
    const char *what = "NVIDIA's driver, libcuda.so.1,";
    void *library = ts_gpu_library("driver of an NVIDIA GPU", names,
                                   "install NVIDIA's driver; without such a GPU, leave out the "
                                   "device, or take opencl");

    if (!library)
        return TS_ERR_UNSUPPORTED;
    DRIVER(FIND)
    return TS_OK;
}

static ts_status find_compiler(void)
{
    static const char *const names[] = {"libnvrtc.so.13",   "libnvrtc.so.12",
                                        "libnvrtc.so",      "/usr/local/cuda/lib64/libnvrtc.so",
                                        "libnvrtc.so.11.2", NULL};
    const char *what = "NVIDIA's run-time compiler, libnvrtc,";
    void *library;

    if (nvrtcDestroyProgram)
        return TS_OK;
    library = ts_gpu_library("run-time compiler of CUDA", names,
                             "install NVRTC, of the CUDA toolkit (cuda-nvrtc); LD_LIBRARY_PATH can "
                             "say where it is");
    if (!library)
        return TS_ERR_UNSUPPORTED;
    COMPILER(FIND)
    return TS_OK;
}

static int count_devices(void)
{
    int n = 0;

    return find_driver() || cuInit(0) || cuDeviceGetCount(&n) ? 0 : n;
}

static ts_status find_device(int index, ts_gpu *g)
{
    int count = 0, major = 0;
    result error = cuInit(0);

    if (error || cuDeviceGetCount(&count) || !count) {
        ts_fail(TS_ERR_UNSUPPORTED, "libcuda.so.1 finds no GPU (error %d)", error);
        ts_error_hint("nvidia-smi tells whether the driver sees one; leave out the device, or take "
                      "opencl");
        return TS_ERR_UNSUPPORTED;
    }
    if (index < 0 || index >= count) {
        ts_fail(TS_ERR_UNSUPPORTED, "there is no GPU %d; there are %d", index, count);
        ts_error_hint("TESSERA_GPU says which, from 0 on: 0, or 0,1");
        return TS_ERR_UNSUPPORTED;
    }
    CALL(cuDeviceGet, &g->device, index);
    CALL(cuDeviceGetAttribute, &major, ATTRIBUTE_MAJOR, g->device);
    if (major < LEAST_MAJOR) {
        ts_fail(TS_ERR_UNSUPPORTED, "GPU %d has compute capability %d; %d is needed", index, major,
                LEAST_MAJOR);
        ts_error_hint("take opencl, or a GPU of 2020 or later");
        return TS_ERR_UNSUPPORTED;
    }
    CALL(cuDevicePrimaryCtxRetain, &g->context, g->device);
    CALL(cuCtxSetCurrent, g->context);
    CALL(cuStreamCreate, &g->stream, NON_BLOCKING);
    CALL(cuStreamCreate, &g->copies, NON_BLOCKING);
    CALL(cuEventCreate, &g->sent, WITHOUT_TIMING);
    CALL(cuEventCreate, &g->turn, WITHOUT_TIMING);
    (void)pthread_mutex_init(&g->sending, NULL);
    TS_TRY(ts_team_new(TS_MIN(COPIERS, ts_team_default_size()), &g->team));
    return TS_OK;
}

static void learn(ts_gpu *g)
{
    int major = 0, minor = 0, compiler[2] = {0, 0};
    size_t memory = 0;

    (void)cuDeviceGetAttribute(&major, ATTRIBUTE_MAJOR, g->device);
    (void)cuDeviceGetAttribute(&minor, ATTRIBUTE_MINOR, g->device);
    (void)cuDeviceTotalMem(&memory, g->device);
    (void)cuDeviceGetName(g->info.name, sizeof(g->info.name), g->device);
    (void)nvrtcVersion(&compiler[0], &compiler[1]);
    g->info.memory = (int64_t)memory;
    g->early = major >= 9;
    snprintf(g->target, sizeof(g->target), "sm_%d%d", major, minor);
    snprintf(g->info.architecture, sizeof(g->info.architecture), "%s, NVRTC %d.%d", g->target,
             compiler[0], compiler[1]);
}

static ts_status open_device(int index, ts_gpu **out)
{
    ts_gpu *g = calloc(1, sizeof(*g));
    ts_status s = g ? find_driver() : ts_fail(TS_ERR_MEMORY, "cannot allocate a device");

    if (!s)
        s = find_device(index, g);
    if (!s)
        s = find_compiler();
    if (s) {
        free(g);
        return s;
    }
    learn(g);
    *out = g;
    return TS_OK;
}

static void describe(const ts_gpu *g, ts_gpu_info *out)
{
    *out = g->info;
}

/* --- programs --- */

static ts_status not_compiled(program_id p, const char *target)
{
    size_t n = 0;
    char *log;

    (void)nvrtcGetProgramLogSize(p, &n);
    log = calloc(1, n + 1);
    if (log)
        (void)nvrtcGetProgramLog(p, log);
    ts_fail(TS_ERR_COMPILER, "NVRTC cannot compile the kernels for %s: %.1500s", target,
            log ? log : "");
    free(log);
    return TS_ERR_COMPILER;
}

static ts_status take_binary(program_id p, void **binary, size_t *bytes)
{
    if (nvrtcGetCUBINSize(p, bytes) || !(*binary = malloc(*bytes + 1)) || nvrtcGetCUBIN(p, *binary))
        return ts_fail(TS_ERR_COMPILER, "NVRTC does not give the compiled kernels");
    return TS_OK;
}

ts_status ts_gpu_cuda_compile(const char *text, const char *target, void **binary, size_t *bytes)
{
    char arch[32];
    const char *const options[] = {arch, "-default-device", "-w"};
    program_id p = NULL;
    ts_status s = TS_OK;

    *binary = NULL;
    TS_TRY(find_compiler());
    snprintf(arch, sizeof(arch), "-arch=%s", target);
    if (nvrtcCreateProgram(&p, text, "step.cu", 0, NULL, NULL))
        return ts_fail(TS_ERR_COMPILER, "NVRTC does not take the kernels' text");
    if (nvrtcCompileProgram(p, TS_COUNT(options), options))
        s = not_compiled(p, target);
    if (!s)
        s = take_binary(p, binary, bytes);
    (void)nvrtcDestroyProgram(&p);
    return s;
}

static ts_status compile(ts_gpu *g, const char *text, void **binary, size_t *bytes)
{
    return ts_gpu_cuda_compile(text, g->target, binary, bytes);
}

static void unload(ts_gpu *g, ts_gpu_module *m)
{
    if (!m)
        return;
    (void)cuCtxSetCurrent(g->context);
    if (m->module)
        (void)cuModuleUnload(m->module);
    free(m->functions);
    free(m);
}

static ts_status find_functions(ts_gpu_module *m, const void *binary, int n)
{
    char name[32];

    CALL(cuModuleLoadData, &m->module, binary);
    for (int i = 0; i < n; i++) {
        snprintf(name, sizeof(name), "k%d", i);
        CALL(cuModuleGetFunction, &m->functions[i], m->module, name);
    }
    return TS_OK;
}

static ts_status load(ts_gpu *g, const void *binary, size_t bytes, int nfunctions,
                      ts_gpu_module **out)
{
    ts_gpu_module *m = calloc(1, sizeof(*m));
    ts_status s;

    (void)bytes;
    if (!m || !(m->functions = calloc((size_t)nfunctions + 1, sizeof(*m->functions)))) {
        free(m);
        return ts_fail(TS_ERR_MEMORY, "cannot allocate %d kernels", nfunctions);
    }
    (void)cuCtxSetCurrent(g->context);
    s = find_functions(m, binary, nfunctions);
    if (s) {
        unload(g, m);
        return s;
    }
    *out = m;
    return TS_OK;
}

/* --- memory --- */

static ts_status allocate(ts_gpu *g, size_t bytes, ts_gpu_memory **out)
{
    ts_gpu_memory *m = calloc(1, sizeof(*m));
    result error;

    if (!m)
        return ts_fail(TS_ERR_MEMORY, "cannot allocate a device's memory");
    (void)cuCtxSetCurrent(g->context);
    error = cuMemAlloc(&m->at, bytes);
    if (error) {
        free(m);
        ts_fail(TS_ERR_MEMORY, "the GPU has no %zu bytes left (error %d)", bytes, error);
        ts_error_hint("other programs may use it too: nvidia-smi lists them");
        return TS_ERR_MEMORY;
    }
    *out = m;
    CALL(cuMemsetD8Async, m->at, 0, bytes, g->stream);
    CALL(cuStreamSynchronize, g->stream); /* what is sent beside it must not come before */
    return TS_OK;
}

static void release(ts_gpu *g, ts_gpu_memory *m)
{
    if (!m)
        return;
    (void)cuCtxSetCurrent(g->context);
    (void)cuMemFree(m->at);
    free(m);
}

static ts_status write_memory(ts_gpu *g, ts_gpu_memory *m, size_t at, const void *from,
                              size_t bytes)
{
    (void)cuCtxSetCurrent(g->context);
    if (bytes)
        CALL(cuMemcpyHtoDAsync, m->at + at, from, bytes, g->stream);
    return TS_OK;
}

typedef struct piece {
    char *to;
    const char *from;
    size_t bytes;
} piece;

static void copy_part(void *arg, int member, int size)
{
    const piece *p = arg;
    size_t each = TS_ROUND_UP(p->bytes / (size_t)size + 1, 4096), first = each * (size_t)member;

    if (first < p->bytes)
        memcpy(p->to + first, p->from + first, TS_MIN(each, p->bytes - first));
}

/* The next stage, once the GPU has fetched what was in it. */
static ts_status free_stage(ts_gpu *g, stage **out)
{
    stage *s = *out = &g->stages[g->next++ % STAGES];

    if (s->host) {
        CALL(cuEventSynchronize, s->sent);
        return TS_OK;
    }
    CALL(cuEventCreate, &s->sent, WITHOUT_TIMING);
    CALL(cuMemHostAlloc, (void **)&s->host, STAGE, 0);
    return TS_OK;
}

static ts_status send_staged(ts_gpu *g, address to, const char *from, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += STAGE) {
        piece p = {.from = from + at, .bytes = TS_MIN(STAGE, bytes - at)};
        stage *s;
        TS_TRY(free_stage(g, &s));
        p.to = s->host;
        ts_team_run(g->team, copy_part, &p);
        CALL(cuMemcpyHtoDAsync, to + at, s->host, p.bytes, g->copies);
        CALL(cuEventRecord, s->sent, g->copies);
    }
    return TS_OK;
}

static bool can_fetch(const void *from)
{
    unsigned type = 0;

    return !cuPointerGetAttribute(&type, MEMORY_TYPE, (address)(uintptr_t)from) && type == HOST;
}

static ts_status send(ts_gpu *g, ts_gpu_memory *m, size_t at, const void *from, size_t bytes)
{
    ts_status s;

    (void)cuCtxSetCurrent(g->context);
    if (!bytes)
        return TS_OK;
    if (bytes <= SMALL || can_fetch(from)) {
        CALL(cuMemcpyHtoDAsync, m->at + at, from, bytes, g->copies);
        return TS_OK;
    }
    (void)pthread_mutex_lock(&g->sending);
    s = send_staged(g, m->at + at, from, bytes);
    (void)pthread_mutex_unlock(&g->sending);
    return s;
}

static ts_status sent(ts_gpu *g)
{
    (void)cuCtxSetCurrent(g->context);
    CALL(cuEventRecord, g->sent, g->copies);
    CALL(cuStreamWaitEvent, g->stream, g->sent, 0);
    return TS_OK;
}

static ts_status read_memory(ts_gpu *g, ts_gpu_memory *m, size_t at, void *to, size_t bytes)
{
    (void)cuCtxSetCurrent(g->context);
    if (bytes)
        CALL(cuMemcpyDtoHAsync, to, m->at + at, bytes, g->stream);
    CALL(cuStreamSynchronize, g->stream);
    return TS_OK;
}

/* What `first` has started comes before what `then` will start. */
static ts_status in_turn(ts_gpu *first, ts_gpu *then)
{
    (void)cuCtxSetCurrent(first->context);
    CALL(cuEventRecord, first->turn, first->stream);
    (void)cuCtxSetCurrent(then->context);
    CALL(cuStreamWaitEvent, then->stream, first->turn, 0);
    return TS_OK;
}

/* Between two GPUs the sender copies, once the receiver has used what was there before. */
static ts_status copy_memory(ts_gpu *to_gpu, ts_gpu_memory *to, size_t to_at, ts_gpu *from_gpu,
                             ts_gpu_memory *from, size_t from_at, size_t bytes)
{
    (void)cuCtxSetCurrent(from_gpu->context);
    if (!bytes)
        return TS_OK;
    if (to_gpu == from_gpu) {
        CALL(cuMemcpyDtoDAsync, to->at + to_at, from->at + from_at, bytes, to_gpu->stream);
        return TS_OK;
    }
    TS_TRY(in_turn(to_gpu, from_gpu));
    CALL(cuMemcpyPeerAsync, to->at + to_at, to_gpu->context, from->at + from_at, from_gpu->context,
         bytes, from_gpu->stream);
    return in_turn(from_gpu, to_gpu);
}

/* --- launches --- */

enum { MOST_ARGS = 128 };

static ts_status launch(ts_gpu *g, ts_gpu_module *m, const ts_gpu_launch *l)
{
    const ts_gpu_row *row = l->row;
    address at[MOST_ARGS + 1];
    void *args[MOST_ARGS + 1];
    launch_attribute early = {.id = EARLY, .value = 1};
    launch_config config = {.grid = {(unsigned)row->groups, 1, 1},
                            .block = {(unsigned)row->threads, 1, 1},
                            .shared = (unsigned)row->shared,
                            .stream = g->stream,
                            .attributes = &early,
                            .nattributes = g->early && row->early};

    if (row->nargs > MOST_ARGS)
        return ts_fail(TS_ERR_INTERNAL, "a kernel with %d tensors", row->nargs);
    at[0] = l->memory->at;
    for (int i = 0; i < row->nargs; i++)
        at[i + 1] = l->memory->at + row->args[i].offset;
    for (int i = 0; i <= row->nargs; i++)
        args[i] = &at[i];
    if (row->shared > SHARED_FREE)
        CALL(cuFuncSetAttribute, m->functions[row->function], SHARED_MOST, row->shared);
    CALL(cuLaunchKernelEx, &config, m->functions[row->function], args, NULL);
    return TS_OK;
}

static void forget(ts_gpu *g, ts_gpu_recording *r)
{
    if (!r)
        return;
    (void)cuCtxSetCurrent(g->context);
    if (r->exec)
        (void)cuGraphExecDestroy(r->exec);
    if (r->graph)
        (void)cuGraphDestroy(r->graph);
    free(r);
}

static ts_status capture(ts_gpu *g, ts_gpu_module *m, int n, const ts_gpu_launch *launches,
                         ts_gpu_recording *r)
{
    ts_status s = TS_OK;

    CALL(cuStreamBeginCapture, g->stream, CAPTURE_THREAD);
    for (int i = 0; i < n && !s; i++)
        s = launch(g, m, &launches[i]);
    if (s) {
        (void)cuStreamEndCapture(g->stream, &r->graph);
        return s;
    }
    CALL(cuStreamEndCapture, g->stream, &r->graph);
    CALL(cuGraphInstantiate, &r->exec, r->graph, 0);
    CALL(cuGraphUpload, r->exec, g->stream);
    return TS_OK;
}

static ts_status record(ts_gpu *g, ts_gpu_module *m, int n, const ts_gpu_launch *launches,
                        ts_gpu_recording **out)
{
    ts_gpu_recording *r = calloc(1, sizeof(*r));
    ts_status s;

    if (!r)
        return ts_fail(TS_ERR_MEMORY, "cannot allocate a list of %d launches", n);
    (void)cuCtxSetCurrent(g->context);
    s = capture(g, m, n, launches, r);
    if (s) {
        forget(g, r);
        return s;
    }
    *out = r;
    return TS_OK;
}

static ts_status replay(ts_gpu *g, ts_gpu_recording *r)
{
    (void)cuCtxSetCurrent(g->context);
    CALL(cuGraphLaunch, r->exec, g->stream);
    return TS_OK;
}

/* Between the launches of a stream the time goes on, so an end is the next one's start. */
static ts_status run_timed(ts_gpu *g, ts_gpu_module *m, int n, const ts_gpu_launch *launches,
                           event_id *events, ts_gpu_span *spans)
{
    float ms;

    for (int i = 0; i <= n; i++)
        CALL(cuEventCreate, &events[i], 0);
    CALL(cuEventRecord, events[0], g->stream);
    for (int i = 0; i < n; i++) {
        TS_TRY(launch(g, m, &launches[i]));
        CALL(cuEventRecord, events[i + 1], g->stream);
    }
    CALL(cuStreamSynchronize, g->stream);
    for (int i = 0; i < n; i++) {
        spans[i].start = i ? spans[i - 1].end : 0;
        CALL(cuEventElapsedTime, &ms, events[0], events[i + 1]);
        spans[i].end = (double)ms / 1e3;
    }
    return TS_OK;
}

static ts_status timed(ts_gpu *g, ts_gpu_module *m, int n, const ts_gpu_launch *launches,
                       ts_gpu_span *spans)
{
    event_id *events = calloc((size_t)n + 1, sizeof(*events));
    ts_status s;

    if (!events)
        return ts_fail(TS_ERR_MEMORY, "cannot allocate %d events", n);
    (void)cuCtxSetCurrent(g->context);
    s = run_timed(g, m, n, launches, events, spans);
    for (int i = 0; i <= n; i++)
        if (events[i])
            (void)cuEventDestroy(events[i]);
    free(events);
    return s;
}

static ts_status wait(ts_gpu *g)
{
    (void)cuCtxSetCurrent(g->context);
    CALL(cuStreamSynchronize, g->stream);
    return TS_OK;
}

const ts_gpu_driver ts_gpu_cuda = {
    .name = "cuda",
    .count = count_devices,
    .open = open_device,
    .describe = describe,
    .compile = compile,
    .load = load,
    .unload = unload,
    .alloc = allocate,
    .release = release,
    .write = write_memory,
    .send = send,
    .sent = sent,
    .read = read_memory,
    .copy = copy_memory,
    .record = record,
    .forget = forget,
    .replay = replay,
    .timed = timed,
    .wait = wait,
};
