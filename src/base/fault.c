/* fault.c - failing on demand, so that tests reach every error path.
 *
 * Each place that can fail because of the world (an allocation sized by the user's data, a file
 * operation, the compiler) asks ts_fault("what") first. Armed with n, the n-th such place fails.
 */
#include "base/base.h"
#include <errno.h>
#include <stdatomic.h>
#include <sys/mman.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

static atomic_int armed = -1, passed;
static char only[64];

void ts_fault_arm(const char *what, int nth)
{
    snprintf(only, sizeof(only), "%s", what ? what : "");
    atomic_store(&passed, 0);
    atomic_store(&armed, nth);
}

int ts_fault_count(void)
{
    return atomic_load(&passed);
}

bool ts_fault(const char *what)
{
    int nth = atomic_load_explicit(&armed, memory_order_relaxed);

    if (nth < 0 || (only[0] && !strstr(what, only)))
        return false;
    if (atomic_fetch_add(&passed, 1) != nth)
        return false;
    errno = ENOSPC;
    return true;
}

/* Large blocks are in pages of 2 MB where the system has them for who asks: an encoder of 270 MB takes 3 % less
 * time, and begins sooner. */
enum { HUGE_PAGE = 2 << 20, LARGE = 64 << 20 };

/* Whole pages of Linux that are given back come again as zeros when they are first touched: an engine of 4.6 GB
 * starts without having been through it, and its threads share the work. */
static void make_zeros(void *p, size_t size, size_t align)
{
#ifdef __linux__
    if (align == HUGE_PAGE && !madvise(p, size, MADV_DONTNEED))
        return;
#endif
    (void)align;
    memset(p, 0, size);
}

ts_status ts_alloc(size_t bytes, const char *what, void **out)
{
    size_t align = bytes >= LARGE ? HUGE_PAGE : 64, size = TS_ROUND_UP(bytes ? bytes : 1, align);

    *out = ts_fault("alloc") || size < bytes ? NULL : aligned_alloc(align, size);
    if (!*out) {
        ts_fail(TS_ERR_MEMORY, "cannot allocate %zu bytes for %s", bytes, what);
        ts_error_hint("end what else takes memory, or use a machine with more; 'tessera plan' says "
                      "what a model needs");
        return TS_ERR_MEMORY;
    }
#ifdef MADV_HUGEPAGE
    if (align == HUGE_PAGE)
        (void)madvise(*out, size, MADV_HUGEPAGE);
#endif
    make_zeros(*out, size, align);
    return TS_OK;
}

/* glibc keeps what is freed in small pieces. After a compile that is 117 MB of a ResNet-50, beside a block of 308 MB. */
void ts_give_back(void)
{
#ifdef __GLIBC__
    malloc_trim(0);
#endif
}
