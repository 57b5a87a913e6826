/* driver.c - the drivers by name, and the devices of each that a process has open. */
#include "gpu/gpu.h"
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>

static const struct {
    ts_device_kind kind;
    const ts_gpu_driver *driver;
} drivers[] = {{TS_DEVICE_GPU, &ts_gpu_cuda}, {TS_DEVICE_OPENCL, &ts_gpu_opencl}};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    const ts_gpu_driver *driver;
    int index, again; /* opened before, so many times */
    ts_gpu *gpu;
} opened[2 * TS_GPU_MOST];
static int nopened;

bool ts_gpu_is(ts_device_kind kind)
{
    return ts_gpu_driver_of(kind) != NULL;
}

const ts_gpu_driver *ts_gpu_driver_of(ts_device_kind kind)
{
    for (int i = 0; i < TS_COUNT(drivers); i++)
        if (drivers[i].kind == kind)
            return drivers[i].driver;
    return NULL;
}

const ts_gpu_driver *ts_gpu_driver_named(const char *isa)
{
    for (int i = 0; isa && i < TS_COUNT(drivers); i++) {
        size_t n = strlen(drivers[i].driver->name);
        if (!strncmp(isa, drivers[i].driver->name, n) && isa[n] == ' ')
            return drivers[i].driver;
    }
    return NULL;
}

/* "0,2": the numbers, which may repeat. The same device twice is two with memory of their own. */
static ts_status read_list(const char *text, int *index, int *n)
{
    const char *at = text;
    char *end;

    for (*n = 0; *n < TS_GPU_MOST; at = end + 1) {
        long i = strtol(at, &end, 10);
        if (end == at || i < 0 || i > INT_MAX)
            break;
        index[(*n)++] = (int)i;
        if (!*end)
            return TS_OK;
        if (*end != ',')
            break;
    }
    ts_fail(TS_ERR_ARG, "TESSERA_GPU is '%.100s'", text);
    ts_error_hint("it names GPUs by their numbers, from 0 on: 1, or 0,1");
    return TS_ERR_ARG;
}

static ts_status list_devices(const ts_gpu_driver *d, int *index, int *n)
{
    const char *which = getenv("TESSERA_GPU");

    if (which && *which)
        return read_list(which, index, n);
    *n = TS_MIN(TS_MAX(1, d->count()), TS_GPU_MOST);
    for (int i = 0; i < *n; i++)
        index[i] = i;
    return TS_OK;
}

ts_status ts_gpu_count(const ts_gpu_driver *d, int *out)
{
    int index[TS_GPU_MOST];

    return list_devices(d, index, out);
}

static ts_status open_once(const ts_gpu_driver *d, int index, int again, ts_gpu **out)
{
    for (int i = 0; i < nopened; i++)
        if (opened[i].driver == d && opened[i].index == index && opened[i].again == again) {
            *out = opened[i].gpu;
            return TS_OK;
        }
    if (nopened == TS_COUNT(opened))
        return ts_fail(TS_ERR_UNSUPPORTED, "%d GPUs are open already", nopened);
    TS_TRY(d->open(index, out));
    opened[nopened].driver = d;
    opened[nopened].index = index;
    opened[nopened].again = again;
    opened[nopened++].gpu = *out;
    return TS_OK;
}

ts_status ts_gpu_open(const ts_gpu_driver *d, int nth, ts_gpu **out)
{
    int index[TS_GPU_MOST], n, again = 0;
    ts_status s;

    TS_TRY(list_devices(d, index, &n));
    nth %= n;
    for (int i = 0; i < nth; i++)
        again += index[i] == index[nth];
    pthread_mutex_lock(&lock);
    s = open_once(d, index[nth], again, out);
    pthread_mutex_unlock(&lock);
    return s;
}

ts_status ts_gpu_identity(ts_arena *a, const ts_gpu_driver *d, const char **out)
{
    ts_gpu *g;
    ts_gpu_info info;

    TS_TRY(ts_gpu_open(d, 0, &g));
    d->describe(g, &info);
    *out = ts_arena_printf(a, "%s %s", d->name, info.architecture);
    return TS_OK;
}

const char *ts_gpu_choices(ts_arena *a, const char *identity)
{
    static const char *const names[] = {"TESSERA_GPU_TOGETHER", "TESSERA_OPENCL_FLAGS"};

    for (int i = 0; i < TS_COUNT(names); i++)
        if (getenv(names[i]))
            identity = ts_arena_printf(a, "%s %s=%s", identity, names[i], getenv(names[i]));
    return identity;
}

void *ts_gpu_library(const char *what, const char *const *names, const char *hint)
{
    ts_text tried = {0};
    void *library = NULL;

    for (int i = 0; names[i] && !library; i++) {
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
        ts_text_printf(&tried, "%s%s", i ? ", " : "", names[i]);
    }
    if (!library) {
        ts_fail(TS_ERR_UNSUPPORTED, "there is no %s here: looked for %s", what, tried.s);
        ts_error_hint("%s", hint);
    }
    ts_text_free(&tried);
    return library;
}
