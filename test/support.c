/* support.c - what the tests share. */
#include "support.h"
#include "gpu/gpu.h"
#include <dirent.h>
#include <unistd.h>

/* splitmix64 */
uint64_t test_next(test_random *r)
{
    uint64_t z = r->state += 0x9e3779b97f4a7c15u;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

int64_t test_between(test_random *r, int64_t lo, int64_t hi)
{
    return lo + (int64_t)(test_next(r) % (uint64_t)(hi - lo + 1));
}

char *test_folder(void)
{
    const char *tmp = getenv("TMPDIR");
    char *path = NULL;

    assert_true(asprintf(&path, "%s/tessera-test-XXXXXX", tmp && *tmp ? tmp : "/tmp") > 0);
    assert_non_null(mkdtemp(path));
    return path;
}

/* Calls once per entry that is not . or .. */
static int each_entry(const char *path, void (*call)(const char *file))
{
    DIR *d = opendir(path);
    char file[4096];
    int n = 0;

    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) {
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
            continue;
        n++;
        snprintf(file, sizeof(file), "%s/%s", path, e->d_name);
        if (call)
            call(file);
    }
    closedir(d);
    return n;
}

static void remove_entry(const char *file)
{
    if (unlink(file))
        test_folder_remove(file);
}

void test_folder_remove(const char *path)
{
    each_entry(path, remove_entry);
    rmdir(path);
}

int test_folder_count(const char *path)
{
    return each_entry(path, NULL);
}

float *test_states(const ts_executable *x, const ts_engine *e, size_t *count)
{
    const ts_tensor_info *t;
    float *all, *at;

    *count = 0;
    for (int i = 0; (t = ts_executable_tensor(x, TS_ROLE_STATE, i)); i++)
        *count += t->bytes / sizeof(float);
    at = all = calloc(*count, sizeof(float));
    for (int i = 0; (t = ts_executable_tensor(x, TS_ROLE_STATE, i)); i++) {
        assert_ok(ts_engine_read(e, t->name, at, t->bytes));
        at += t->bytes / sizeof(float);
    }
    return all;
}

bool test_soaks(void)
{
    return getenv("TS_ROUND") != NULL;
}

bool test_brief(void)
{
    return getenv("TS_BRIEF") != NULL;
}

static bool compiles_for(const char *text, const char *target)
{
    void *binary = NULL;
    size_t bytes;
    ts_status s = ts_gpu_cuda_compile(text, target, &binary, &bytes);

    free(binary);
    if (s == TS_ERR_COMPILER)
        print_error("%s", ts_error_text());
    else if (s)
        print_message("# %s\n", ts_last_error()->message);
    if (s == TS_ERR_UNSUPPORTED)
        unsetenv("TS_NVRTC");
    return s != TS_ERR_COMPILER;
}

bool test_cuda_text(const ts_executable *x)
{
    const char *text = x ? ts_executable_source(x) : NULL;

    if (!getenv("TS_NVRTC") || !text || !strstr(text, "__CUDACC__"))
        return true;
    return compiles_for(text, "sm_80") && (!getenv("TS_NVRTC") || compiles_for(text, "sm_90"));
}

const char *test_device(void)
{
    const char *name = getenv("TESSERA_DEVICE");
    bool gpu = name && !strcmp(name, "gpu"), opencl = name && !strcmp(name, "opencl");

    if (!gpu && !opencl)
        return NULL;
    if (ts_device_memory(gpu ? TS_DEVICE_GPU : TS_DEVICE_OPENCL) > 0)
        return name;
    print_message("1..0 # SKIP %s\n", ts_last_error()->message);
    exit(77);
}
