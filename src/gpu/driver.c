/* driver.c - the drivers by name, and the one device of each that a process has open. */
#include "gpu/gpu.h"
#include <dlfcn.h>
#include <pthread.h>

static const struct {
    ts_device_kind kind;
    const ts_gpu_driver *driver;
} drivers[] = {{TS_DEVICE_GPU, &ts_gpu_cuda}, {TS_DEVICE_OPENCL, &ts_gpu_opencl}};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static ts_gpu *opened[TS_COUNT(drivers)];

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

ts_status ts_gpu_open(const ts_gpu_driver *d, ts_gpu **out)
{
    const char *which = getenv("TESSERA_GPU");
    ts_status s = TS_OK;
    int i = 0;

    while (drivers[i].driver != d)
        i++;
    pthread_mutex_lock(&lock);
    if (!opened[i])
        s = d->open(which ? atoi(which) : 0, &opened[i]);
    *out = opened[i];
    pthread_mutex_unlock(&lock);
    return s;
}

ts_status ts_gpu_identity(ts_arena *a, const ts_gpu_driver *d, const char **out)
{
    ts_gpu *g;
    ts_gpu_info info;

    TS_TRY(ts_gpu_open(d, &g));
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
