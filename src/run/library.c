/* library.c - a shared object from memory.
 *
 * dlopen wants a file. An anonymous one (memfd) leaves nothing behind and does not care whether the
 * temporary folder may hold programs; where the kernel does not allow it, a file in a private
 * folder that is removed as soon as it is open.
 */
#include "run/run.h"
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

/* dlopen gives back what it has open under the same name, and file descriptors' numbers come back:
 * so each load writes a number of its own into its name, a bit as "./" or "//", which mean nothing
 * to the kernel. */
static void unique_name(int fd, char *name, size_t size)
{
    static atomic_uint loads;
    unsigned number = atomic_fetch_add(&loads, 1);
    size_t n = (size_t)snprintf(name, size, "/proc/self/");

    for (int bit = 0; bit < 32; bit++)
        n += (size_t)snprintf(name + n, size - n, number >> bit & 1 ? "./" : "//");
    snprintf(name + n, size - n, "fd/%d", fd);
}

static bool write_all(int fd, const char *data, size_t len)
{
    while (len) {
        ssize_t put = ts_fault("write") ? -1 : write(fd, data, len);
        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0)
            return false;
        data += put;
        len -= (size_t)put;
    }
    return true;
}

static void *open_anonymous(const void *object, size_t bytes)
{
    char name[128];
    void *library = NULL;
    int fd = ts_fault("memfd") ? -1 : memfd_create("tessera", MFD_CLOEXEC);

    if (fd < 0)
        return NULL;
    if (write_all(fd, object, bytes)) {
        unique_name(fd, name, sizeof(name));
        library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    }
    close(fd);
    return library;
}

static ts_status open_file(const char *path, const void *object, size_t bytes, void **library)
{
    TS_TRY(ts_file_write_private(path, object, bytes));
    *library = ts_fault("dlopen") ? NULL : dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!*library) {
        const char *why = dlerror();
        return ts_fail(TS_ERR_CORRUPT, "cannot load the compiled step: %s", why ? why : path);
    }
    return TS_OK;
}

ts_status ts_library_open(const void *object, size_t bytes, void **library)
{
    ts_temp_folder folder;
    char path[4096];
    ts_status s;

    *library = open_anonymous(object, bytes);
    if (*library)
        return TS_OK;
    TS_TRY(ts_temp_folder_new(&folder));
    snprintf(path, sizeof(path), "%s/step.so", folder.path);
    s = open_file(path, object, bytes, library);
    ts_temp_folder_remove(&folder);
    return s;
}

void *ts_library_symbol(void *library, const char *name)
{
    return dlsym(library, name);
}

void ts_library_close(void *library)
{
    if (library)
        dlclose(library);
}
