/* opencl.c - any OpenCL device: GPUs of other makers, and PoCL, which makes one of the processor.
 *
 * The library is opened when a program asks for it, so nothing is needed to build; what is used of
 * it is declared here. Commands go to one queue, which runs them in their order.
 */
#include "gpu/gpu.h"
#include <dlfcn.h>

typedef struct cl_platform *platform_id;
typedef struct cl_device *device_id;
typedef struct cl_context *context_id;
typedef struct cl_queue *queue_id;
typedef struct cl_buffer *buffer_id;
typedef struct cl_code *program_id;
typedef struct cl_function *kernel_id;
typedef struct cl_event *event_id;
typedef int32_t cl_int;
typedef uint32_t cl_uint;
typedef uint64_t cl_bits;

enum {
    DEVICE_GLOBAL_MEM = 0x101f,
    DEVICE_NAME = 0x102b,
    DRIVER_VERSION = 0x102d,
    DEVICE_VERSION = 0x102f,
    PROGRAM_BINARY_SIZES = 0x1165,
    PROGRAM_BINARIES = 0x1166,
    PROGRAM_LOG = 0x1183,
    READ_WRITE = 1,
    WITH_TIMES = 2, /* of a queue's commands */
    BEGAN = 0x1282,
    ENDED = 0x1283,
};

/* return type, name, arguments */
#define FUNCTIONS(F)                                                                               \
    F(cl_int, clGetPlatformIDs, (cl_uint, platform_id *, cl_uint *))                               \
    F(cl_int, clGetDeviceIDs, (platform_id, cl_bits, cl_uint, device_id *, cl_uint *))             \
    F(cl_int, clGetDeviceInfo, (device_id, cl_uint, size_t, void *, size_t *))                     \
    F(context_id, clCreateContext,                                                                 \
      (const intptr_t *, cl_uint, const device_id *, void *, void *, cl_int *))                    \
    F(queue_id, clCreateCommandQueue, (context_id, device_id, cl_bits, cl_int *))                  \
    F(program_id, clCreateProgramWithSource,                                                       \
      (context_id, cl_uint, const char **, const size_t *, cl_int *))                              \
    F(program_id, clCreateProgramWithBinary,                                                       \
      (context_id, cl_uint, const device_id *, const size_t *, const unsigned char **, cl_int *,   \
       cl_int *))                                                                                  \
    F(cl_int, clBuildProgram,                                                                      \
      (program_id, cl_uint, const device_id *, const char *, void *, void *))                      \
    F(cl_int, clGetProgramInfo, (program_id, cl_uint, size_t, void *, size_t *))                   \
    F(cl_int, clGetProgramBuildInfo, (program_id, device_id, cl_uint, size_t, void *, size_t *))   \
    F(cl_int, clReleaseProgram, (program_id))                                                      \
    F(kernel_id, clCreateKernel, (program_id, const char *, cl_int *))                             \
    F(cl_int, clReleaseKernel, (kernel_id))                                                        \
    F(cl_int, clSetKernelArg, (kernel_id, cl_uint, size_t, const void *))                          \
    F(buffer_id, clCreateBuffer, (context_id, cl_bits, size_t, void *, cl_int *))                  \
    F(cl_int, clReleaseMemObject, (buffer_id))                                                     \
    F(cl_int, clEnqueueWriteBuffer,                                                                \
      (queue_id, buffer_id, cl_uint, size_t, size_t, const void *, cl_uint, void *, void *))       \
    F(cl_int, clEnqueueReadBuffer,                                                                 \
      (queue_id, buffer_id, cl_uint, size_t, size_t, void *, cl_uint, void *, void *))             \
    F(cl_int, clEnqueueCopyBuffer,                                                                 \
      (queue_id, buffer_id, buffer_id, size_t, size_t, size_t, cl_uint, void *, void *))           \
    F(cl_int, clEnqueueFillBuffer,                                                                 \
      (queue_id, buffer_id, const void *, size_t, size_t, size_t, cl_uint, void *, void *))        \
    F(cl_int, clEnqueueNDRangeKernel,                                                              \
      (queue_id, kernel_id, cl_uint, const size_t *, const size_t *, const size_t *, cl_uint,      \
       void *, event_id *))                                                                        \
    F(cl_int, clGetEventProfilingInfo, (event_id, cl_uint, size_t, void *, size_t *))              \
    F(cl_int, clReleaseEvent, (event_id))                                                          \
    F(cl_int, clFinish, (queue_id))

#define POINTER(type, name, args) static type(*name) args;
FUNCTIONS(POINTER)
#undef POINTER

struct ts_gpu {
    device_id device;
    context_id context;
    queue_id queue;
    queue_id timer; /* whose commands are timed; made by the first profile */
    ts_gpu_info info;
    bool pocl;
};

struct ts_gpu_module {
    program_id program;
    kernel_id *kernels;
    int n;
};

struct ts_gpu_memory {
    buffer_id buffer;
};

struct ts_gpu_recording {
    ts_gpu_module *module;
    int n;
    ts_gpu_launch launches[];
};

static const char help[] =
    "install the OpenCL loader (ocl-icd-libopencl1) and a driver of the device; pocl-opencl-icd "
    "runs on the processor";

static ts_status failed(const char *call, cl_int error)
{
    return ts_fail(error == -4 || error == -61 || error == -5 ? TS_ERR_MEMORY : TS_ERR_INTERNAL,
                   "OpenCL: %s failed with error %d", call, (int)error);
}

#define CALL(name, ...)                                                                            \
    do {                                                                                           \
        cl_int error_ = name(__VA_ARGS__);                                                         \
        if (error_)                                                                                \
            return failed(#name, error_);                                                          \
    } while (0)

/* --- opening --- */

static ts_status find_functions(void)
{
    static const char *const names[] = {"libOpenCL.so.1", "libOpenCL.so", NULL};
    void *library = ts_gpu_library("OpenCL", names, help);

    if (!library)
        return TS_ERR_UNSUPPORTED;
#define FIND(type, name, args)                                                                     \
    *(void **)&name = dlsym(library, #name);                                                       \
    if (!name)                                                                                     \
        return ts_fail(TS_ERR_UNSUPPORTED, "the OpenCL library has no %s", #name);
    FUNCTIONS(FIND)
#undef FIND
    return TS_OK;
}

/* The index-th device of all platforms. */
static ts_status find_device(int index, device_id *out)
{
    platform_id platforms[16];
    device_id devices[16];
    cl_uint nplatforms = 0, n = 0;
    int seen = 0;

    if (clGetPlatformIDs(TS_COUNT(platforms), platforms, &nplatforms))
        nplatforms = 0;
    for (cl_uint i = 0; i < nplatforms && i < TS_COUNT(platforms); i++) {
        if (clGetDeviceIDs(platforms[i], 0xffffffff, TS_COUNT(devices), devices, &n))
            continue;
        for (cl_uint k = 0; k < n && k < TS_COUNT(devices); k++)
            if (seen++ == index) {
                *out = devices[k];
                return TS_OK;
            }
    }
    if (seen)
        ts_fail(TS_ERR_UNSUPPORTED, "there is no OpenCL device %d; there are %d", index, seen);
    else
        ts_fail(TS_ERR_UNSUPPORTED, "libOpenCL.so.1 finds no device");
    ts_error_hint("%s", seen ? "TESSERA_GPU says which, from 0 on: 0, or 0,1" : help);
    return TS_ERR_UNSUPPORTED;
}

static void learn(ts_gpu *g)
{
    uint64_t memory = 0;
    char driver[48] = "", version[256] = "";

    (void)clGetDeviceInfo(g->device, DEVICE_NAME, sizeof(g->info.name), g->info.name, NULL);
    (void)clGetDeviceInfo(g->device, DRIVER_VERSION, sizeof(driver), driver, NULL);
    (void)clGetDeviceInfo(g->device, DEVICE_VERSION, sizeof(version), version, NULL);
    (void)clGetDeviceInfo(g->device, DEVICE_GLOBAL_MEM, sizeof(memory), &memory, NULL);
    g->info.memory = (int64_t)memory;
    g->pocl = strstr(version, "pocl") || strstr(version, "PoCL");
    snprintf(g->info.architecture, sizeof(g->info.architecture), "%.20s %.40s", driver,
             g->info.name);
}

/* What OpenCL lists may be unlike: a GPU, and the processor. Who wants several says so. */
static int count_devices(void)
{
    return 1;
}

static ts_status open_device(int index, ts_gpu **out)
{
    ts_gpu *g = calloc(1, sizeof(*g));
    cl_int error = 0;
    ts_status s = g ? find_functions() : ts_fail(TS_ERR_MEMORY, "cannot allocate a device");

    if (!s)
        s = find_device(index, &g->device);
    if (!s) {
        g->context = clCreateContext(NULL, 1, &g->device, NULL, NULL, &error);
        s = error ? failed("clCreateContext", error) : TS_OK;
    }
    if (!s) {
        g->queue = clCreateCommandQueue(g->context, g->device, 0, &error);
        s = error ? failed("clCreateCommandQueue", error) : TS_OK;
    }
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

static ts_status build(ts_gpu *g, program_id p)
{
    const char *flags = getenv("TESSERA_OPENCL_FLAGS");
    cl_int error = clBuildProgram(p, 1, &g->device, flags ? flags : "-cl-std=CL1.2 -w", NULL, NULL);
    char log[2048] = "";

    if (!error)
        return TS_OK;
    (void)clGetProgramBuildInfo(p, g->device, PROGRAM_LOG, sizeof(log) - 1, log, NULL);
    return ts_fail(TS_ERR_COMPILER, "OpenCL cannot compile the kernels (error %d): %s", (int)error,
                   log);
}

static ts_status take_binary(program_id p, void **binary, size_t *bytes)
{
    CALL(clGetProgramInfo, p, PROGRAM_BINARY_SIZES, sizeof(*bytes), bytes, NULL);
    *binary = malloc(*bytes + 1);
    if (!*binary)
        return ts_fail(TS_ERR_MEMORY, "cannot allocate the compiled kernels");
    CALL(clGetProgramInfo, p, PROGRAM_BINARIES, sizeof(*binary), binary, NULL);
    return TS_OK;
}

/* PoCL compiles a kernel when it first runs, and keeps it by its text: its binaries, of all kernels
 * for sizes that it has to guess, take longer to make and are compiled again. */
static ts_status compile(ts_gpu *g, const char *text, void **binary, size_t *bytes)
{
    size_t len = strlen(text);
    cl_int error = 0;
    program_id p;
    ts_status s;

    *binary = g->pocl ? strdup(text) : NULL;
    *bytes = len;
    if (g->pocl)
        return *binary ? TS_OK : ts_fail(TS_ERR_MEMORY, "cannot keep the kernels' text");
    p = clCreateProgramWithSource(g->context, 1, &text, &len, &error);
    if (error)
        return failed("clCreateProgramWithSource", error);
    s = build(g, p);
    if (!s)
        s = take_binary(p, binary, bytes);
    (void)clReleaseProgram(p);
    return s;
}

static void unload(ts_gpu *g, ts_gpu_module *m)
{
    (void)g;
    if (!m)
        return;
    for (int i = 0; i < m->n && m->kernels; i++)
        if (m->kernels[i])
            (void)clReleaseKernel(m->kernels[i]);
    if (m->program)
        (void)clReleaseProgram(m->program);
    free(m->kernels);
    free(m);
}

static ts_status find_kernels(ts_gpu_module *m)
{
    cl_int error = 0;
    char name[32];

    for (int i = 0; i < m->n; i++) {
        snprintf(name, sizeof(name), "k%d", i);
        m->kernels[i] = clCreateKernel(m->program, name, &error);
        if (error)
            return failed("clCreateKernel", error);
    }
    return TS_OK;
}

static ts_status load(ts_gpu *g, const void *binary, size_t bytes, int nfunctions,
                      ts_gpu_module **out)
{
    ts_gpu_module *m = calloc(1, sizeof(*m));
    const unsigned char *p = binary;
    const char *text = binary;
    cl_int error = 0, status = 0;
    ts_status s = TS_OK;

    if (!m || !(m->kernels = calloc((size_t)nfunctions + 1, sizeof(*m->kernels)))) {
        free(m);
        return ts_fail(TS_ERR_MEMORY, "cannot allocate %d kernels", nfunctions);
    }
    m->n = nfunctions;
    if (g->pocl)
        m->program = clCreateProgramWithSource(g->context, 1, &text, &bytes, &error);
    else
        m->program =
            clCreateProgramWithBinary(g->context, 1, &g->device, &bytes, &p, &status, &error);
    if (error || status)
        s = failed("clCreateProgramWithBinary", error ? error : status);
    if (!s)
        s = build(g, m->program);
    if (!s)
        s = find_kernels(m);
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
    const char zero = 0;
    cl_int error = 0;

    if (!m)
        return ts_fail(TS_ERR_MEMORY, "cannot allocate a device's memory");
    m->buffer = clCreateBuffer(g->context, READ_WRITE, bytes, NULL, &error);
    if (!error)
        error = clEnqueueFillBuffer(g->queue, m->buffer, &zero, 1, 0, bytes, 0, NULL, NULL);
    if (error) {
        free(m);
        return ts_fail(TS_ERR_MEMORY, "the OpenCL device has no %zu bytes (error %d)", bytes,
                       (int)error);
    }
    *out = m;
    return TS_OK;
}

static void release(ts_gpu *g, ts_gpu_memory *m)
{
    (void)g;
    if (m)
        (void)clReleaseMemObject(m->buffer);
    free(m);
}

static ts_status write_memory(ts_gpu *g, ts_gpu_memory *m, size_t at, const void *from,
                              size_t bytes)
{
    if (bytes)
        CALL(clEnqueueWriteBuffer, g->queue, m->buffer, 1, at, bytes, from, 0, NULL, NULL);
    return TS_OK;
}

/* One queue, in order. */
static ts_status sent(ts_gpu *g)
{
    (void)g;
    return TS_OK;
}

static ts_status read_memory(ts_gpu *g, ts_gpu_memory *m, size_t at, void *to, size_t bytes)
{
    if (bytes)
        CALL(clEnqueueReadBuffer, g->queue, m->buffer, 1, at, bytes, to, 0, NULL, NULL);
    return TS_OK;
}

/* Devices have a context each, so what goes from one to another goes by the host's memory. */
static ts_status copy_staged(ts_gpu *to_gpu, ts_gpu_memory *to, size_t to_at, ts_gpu *from_gpu,
                             ts_gpu_memory *from, size_t from_at, size_t bytes)
{
    void *stage = malloc(bytes);
    ts_status s = stage ? TS_OK : ts_fail(TS_ERR_MEMORY, "cannot allocate %zu bytes", bytes);

    if (!s)
        s = read_memory(from_gpu, from, from_at, stage, bytes);
    if (!s)
        s = write_memory(to_gpu, to, to_at, stage, bytes);
    free(stage);
    return s;
}

static ts_status copy_memory(ts_gpu *to_gpu, ts_gpu_memory *to, size_t to_at, ts_gpu *from_gpu,
                             ts_gpu_memory *from, size_t from_at, size_t bytes)
{
    if (!bytes)
        return TS_OK;
    if (to_gpu != from_gpu)
        return copy_staged(to_gpu, to, to_at, from_gpu, from, from_at, bytes);
    CALL(clEnqueueCopyBuffer, to_gpu->queue, from->buffer, to->buffer, from_at, to_at, bytes, 0,
         NULL, NULL);
    return TS_OK;
}

/* --- launches --- */

static ts_status record(ts_gpu *g, ts_gpu_module *m, int n, const ts_gpu_launch *launches,
                        ts_gpu_recording **out)
{
    ts_gpu_recording *r = calloc(1, sizeof(*r) + (size_t)n * sizeof(*launches));

    (void)g;
    if (!r)
        return ts_fail(TS_ERR_MEMORY, "cannot allocate a list of %d launches", n);
    r->module = m;
    r->n = n;
    if (n)
        memcpy(r->launches, launches, (size_t)n * sizeof(*launches));
    *out = r;
    return TS_OK;
}

static void forget(ts_gpu *g, ts_gpu_recording *r)
{
    (void)g;
    free(r);
}

static ts_status launch(queue_id q, ts_gpu_module *m, const ts_gpu_launch *l, event_id *event)
{
    const ts_gpu_row *row = l->row;
    kernel_id k = m->kernels[row->function];
    size_t local = (size_t)row->threads, all = local * (size_t)row->groups;

    CALL(clSetKernelArg, k, 0, sizeof(l->memory->buffer), &l->memory->buffer);
    for (int i = 0; i < row->nargs; i++) {
        uint64_t at = row->args[i].offset;
        CALL(clSetKernelArg, k, (cl_uint)i + 1, sizeof(at), &at);
    }
    CALL(clEnqueueNDRangeKernel, q, k, 1, NULL, &all, &local, 0, NULL, event);
    return TS_OK;
}

static ts_status replay(ts_gpu *g, ts_gpu_recording *r)
{
    for (int i = 0; i < r->n; i++)
        TS_TRY(launch(g->queue, r->module, &r->launches[i], NULL));
    return TS_OK;
}

/* The other queue's, once those before are done. */
static ts_status run_timed(ts_gpu *g, ts_gpu_module *m, int n, const ts_gpu_launch *launches,
                           event_id *events, ts_gpu_span *spans)
{
    cl_int error = 0;
    uint64_t zero = 0, at;

    if (!g->timer)
        g->timer = clCreateCommandQueue(g->context, g->device, WITH_TIMES, &error);
    if (error)
        return failed("clCreateCommandQueue", error);
    CALL(clFinish, g->queue);
    for (int i = 0; i < n; i++)
        TS_TRY(launch(g->timer, m, &launches[i], &events[i]));
    CALL(clFinish, g->timer);
    for (int i = 0; i < n; i++) {
        CALL(clGetEventProfilingInfo, events[i], BEGAN, sizeof(at), &at, NULL);
        zero = i ? zero : at;
        spans[i].start = (double)(at - zero) / 1e9;
        CALL(clGetEventProfilingInfo, events[i], ENDED, sizeof(at), &at, NULL);
        spans[i].end = (double)(at - zero) / 1e9;
    }
    return TS_OK;
}

static ts_status timed(ts_gpu *g, ts_gpu_module *m, int n, const ts_gpu_launch *launches,
                       ts_gpu_span *spans)
{
    event_id *events = calloc((size_t)n + 1, sizeof(*events));
    ts_status s = events ? run_timed(g, m, n, launches, events, spans)
                         : ts_fail(TS_ERR_MEMORY, "cannot allocate %d events", n);

    for (int i = 0; i < n && events; i++)
        if (events[i])
            (void)clReleaseEvent(events[i]);
    free(events);
    return s;
}

static ts_status wait(ts_gpu *g)
{
    CALL(clFinish, g->queue);
    return TS_OK;
}

const ts_gpu_driver ts_gpu_opencl = {
    .name = "opencl",
    .count = count_devices,
    .open = open_device,
    .describe = describe,
    .compile = compile,
    .load = load,
    .unload = unload,
    .alloc = allocate,
    .release = release,
    .write = write_memory,
    .send = write_memory,
    .sent = sent,
    .read = read_memory,
    .copy = copy_memory,
    .record = record,
    .forget = forget,
    .replay = replay,
    .timed = timed,
    .wait = wait,
};
