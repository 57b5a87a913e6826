/* apart.c - a dataset read by a process of its own.
 *
 * A library that reads a format may crash on a damaged file: libhdf5 1.10 does on one of 4000 that
 * test/data/fuzz.c's mutator makes. That must not end a training run or a notebook. So the file is
 * read in a child, which hands the dataset over in a piece of memory that has no name:
 *
 *   | parcel: sizes, error | samples | labels | targets | names, each with a 0 behind it |
 *
 * The child writes the parcel last. A parcel that is not there, or not of the memory's size, was not
 * finished.
 */
#include "data/data.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct parcel {
    ts_error error; /* code TS_OK: the dataset follows */
    int64_t count, nlabels;
    int nclasses, ntargets, label_rank;
    bool downsampled;
    ts_array sample;
    int64_t label_dims[TS_MAX_RANK];
    int64_t whole; /* bytes of all */
} parcel;

/* --- the child --- */

static bool put(int fd, const void *data, size_t n)
{
    const char *p = data;

    while (n) {
        ssize_t done = write(fd, p, n);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return false;
        p += done;
        n -= (size_t)done;
    }
    return true;
}

static bool put_names(int fd, const char **names, int n)
{
    for (int i = 0; i < n; i++)
        if (!put(fd, names[i], strlen(names[i]) + 1))
            return false;
    return true;
}

static bool put_dataset(int fd, const ts_dataset *d)
{
    return put(fd, d->sample.data, d->sample.bytes * (size_t)d->count) &&
           put(fd, d->labels, (size_t)(d->count * d->nlabels) * sizeof(*d->labels)) &&
           (!d->ntargets ||
            put(fd, d->targets, (size_t)d->count * (size_t)d->ntargets * sizeof(float))) &&
           put_names(fd, d->classes, d->nclasses) && put_names(fd, d->target_names, d->ntargets);
}

static void send(int fd, const ts_dataset *d)
{
    parcel p = {.error = *ts_last_error()};
    bool good = lseek(fd, sizeof(p), SEEK_SET) == sizeof(p);

    if (d) {
        p.error = (ts_error){0};
        p.count = d->count;
        p.nlabels = d->nlabels;
        p.nclasses = d->nclasses;
        p.ntargets = d->ntargets;
        p.label_rank = d->label_rank;
        p.downsampled = d->downsampled;
        p.sample = d->sample;
        memcpy(p.label_dims, d->label_dims, sizeof(p.label_dims));
        good = good && put_dataset(fd, d);
    }
    p.whole = lseek(fd, 0, SEEK_CUR);
    if (good && lseek(fd, 0, SEEK_SET) == 0)
        put(fd, &p, sizeof(p));
}

/* Nobody hears of its crash but the parent. */
static void be_quiet(void)
{
    static const int fatal[] = {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL, SIGINT, SIGTERM};
    int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);

    for (int i = 0; i < TS_COUNT(fatal); i++)
        signal(fatal[i], SIG_DFL);
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    if (nowhere >= 0)
        dup2(nowhere, STDERR_FILENO);
}

static _Noreturn void read_and_send(ts_read_fn *read, const ts_dataset_options *opt, int fd)
{
    ts_dataset *d = NULL;

    be_quiet();
    send(fd, read(opt, &d) ? NULL : d);
    _exit(0);
}

/* --- the parent --- */

static const char *take_name(ts_arena *a, const char **p, const char *end)
{
    const char *name = *p, *zero = name < end ? memchr(name, 0, (size_t)(end - name)) : NULL;

    *p = zero ? zero + 1 : end;
    return ts_arena_strdup(a, zero ? name : "");
}

static bool is_whole(const parcel *p, size_t len)
{
    return len >= sizeof(*p) && p->whole == (int64_t)len;
}

/* Bytes before the names; a child whose memory was damaged may have sent anything. */
static bool holds(const parcel *p, const ts_dataset *d)
{
    double each = (double)d->sample.bytes + (double)d->nlabels * sizeof(*d->labels) +
                  (double)d->ntargets * sizeof(float);

    return (double)sizeof(*p) + (double)d->count * each <= (double)p->whole;
}

static ts_status unpack(const parcel *p, ts_dataset **out)
{
    const char *at = (const char *)(p + 1), *end = (const char *)p + p->whole;
    ts_dataset *d;

    TS_TRY(ts_dataset_new(p->sample.dtype, p->count, p->sample.rank, p->sample.dims, out));
    d = *out;
    d->downsampled = p->downsampled;
    TS_TRY(p->label_rank ? ts_dataset_label_pixels(d, p->label_rank, p->label_dims)
                         : ts_dataset_more_labels(d, p->nlabels));
    if (p->ntargets)
        TS_TRY(ts_dataset_add_targets(d, p->ntargets));
    if (!holds(p, d))
        return ts_fail(TS_ERR_CORRUPT, "the file's reader made nonsense of it");
    memcpy(d->sample.data, at, d->sample.bytes * (size_t)d->count);
    at += d->sample.bytes * (size_t)d->count;
    memcpy(d->labels, at, (size_t)(d->count * d->nlabels) * sizeof(*d->labels));
    at += (size_t)(d->count * d->nlabels) * sizeof(*d->labels);
    if (p->ntargets)
        memcpy(d->targets, at, (size_t)d->count * (size_t)d->ntargets * sizeof(float));
    at += (size_t)d->count * (size_t)d->ntargets * sizeof(float);
    d->nclasses = p->nclasses;
    d->classes = TS_NEWS(d->arena, const char *, d->nclasses);
    for (int i = 0; i < d->nclasses; i++)
        d->classes[i] = take_name(d->arena, &at, end);
    for (int i = 0; i < d->ntargets; i++)
        d->target_names[i] = take_name(d->arena, &at, end);
    return TS_OK;
}

static ts_status receive(const ts_dataset_options *opt, int fd, ts_dataset **out)
{
    struct stat st;
    size_t len = fstat(fd, &st) ? 0 : (size_t)st.st_size;
    const parcel *p =
        len < sizeof(*p) ? MAP_FAILED : mmap(NULL, len, PROT_READ, MAP_PRIVATE, fd, 0);
    ts_status s;

    if (p == MAP_FAILED || !is_whole(p, len))
        s = ts_fail(TS_ERR_CORRUPT, "%s is damaged in a way that its reader does not survive",
                    opt->name);
    else if (p->error.code) {
        ts_error_set(&p->error);
        s = p->error.code;
    } else
        s = unpack(p, out);
    if (p != MAP_FAILED)
        munmap((void *)p, len);
    return s;
}

ts_status ts_dataset_apart(ts_read_fn *read, const ts_dataset_options *opt, ts_dataset **out)
{
    int fd = memfd_create("tessera dataset", MFD_CLOEXEC), status;
    ts_status s;
    pid_t child;

    *out = NULL;
    if (fd < 0)
        return ts_fail(TS_ERR_MEMORY, "no memory to read %s into: %s", opt->name, strerror(errno));
    child = ts_fault("fork") ? -1 : fork();
    if (!child)
        read_and_send(read, opt, fd);
    while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    s = child < 0 ? ts_fail(TS_ERR_MEMORY, "cannot start a process to read %s: %s", opt->name,
                            strerror(errno))
                  : receive(opt, fd, out);
    close(fd);
    if (s) {
        ts_dataset_free(*out);
        *out = NULL;
    }
    return s;
}
