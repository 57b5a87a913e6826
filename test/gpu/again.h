/* again.h - a test program of the CPU, run again with its kernels on a GPU.
 *
 * That is PoCL, OpenCL on the processor, unless TESSERA_DEVICE says otherwise. Kernels of these tests
 * run once, so they are not optimised: PoCL takes four times as long to compile them if they are.
 */
#ifndef TEST_AGAIN_H
#define TEST_AGAIN_H

#include "support.h"
#include <sys/wait.h>
#include <unistd.h>

/* Is there no device, or did another build of the library do all this already? */
static inline bool again_needless(ts_device_kind *kind)
{
    const char *name = getenv("TESSERA_DEVICE");

    *kind = name && !strcmp(name, "gpu") ? TS_DEVICE_GPU : TS_DEVICE_OPENCL;
    if (test_brief())
        return true;
    if (ts_device_memory(*kind) > 0)
        return false;
    print_message("# %s\n", ts_last_error()->message);
    return true;
}

/* build/test/op_native; its output is shown when it fails. */
static inline void again(const char *program, const char *graphs)
{
    ts_device_kind kind;
    char path[4096], log[4096], *text;
    size_t len;
    int status;
    pid_t child;

    if (again_needless(&kind))
        skip();
    snprintf(path, sizeof(path), "%s/test/%s", getenv("TS_BUILD_ROOT"), program);
    snprintf(log, sizeof(log), "%s/test/%s-gpu.log", getenv("TS_BUILD_ROOT"), program);
    child = fork();
    assert_true(child >= 0);
    if (!child) {
        setenv("TESSERA_DEVICE", kind == TS_DEVICE_GPU ? "gpu" : "opencl", 1);
        setenv("TESSERA_OPENCL_FLAGS", "-cl-std=CL1.2 -w -cl-opt-disable", 0);
        setenv("FUZZ_COUNT", graphs, 1);
        if (freopen(log, "w", stdout) && dup2(fileno(stdout), 2) >= 0)
            execl(path, path, (char *)NULL);
        _exit(127);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return;
    assert_ok(ts_file_read(log, &text, &len));
    print_error("%s\n", len > 4000 ? text + len - 4000 : text);
    free(text);
    fail_msg("%s ended with status %d; %s has all it said", program, status, log);
}

#endif
