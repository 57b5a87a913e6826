/* temp.c - files and folders for the time being, and what killed processes left of them.
 *
 *   NAME.PID.XXXXXX           becomes NAME when it is whole
 *   tessera.PID.XXXXXX/lock   a folder in $TMPDIR
 *
 * Whoever makes one holds a lock (flock) on it until it is gone, so what can be locked is nobody's
 * any more, and the next who makes one of the name removes it. A process' number would not tell:
 * another machine or container has others. Where a file system knows no locks nothing is removed.
 */
#include "base/base.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SUFFIX = 6, TRIES = 100 };

/* False: somebody took it for a left one before it was locked, and removed it. */
static bool hold(int fd)
{
    struct stat st;

    while (flock(fd, LOCK_EX) && errno == EINTR)
        ;
    return fstat(fd, &st) || st.st_nlink;
}

/* NAME.PID.XXXXXX */
static bool is_temp(const char *entry, const char *name)
{
    size_t n = strlen(name), digits;

    if (strncmp(entry, name, n) != 0 || entry[n] != '.')
        return false;
    digits = strspn(entry + n + 1, "0123456789");
    entry += n + 1 + digits;
    return digits && *entry == '.' && strlen(entry) == SUFFIX + 1;
}

bool ts_temp_left(int folder, const char *entry, bool remove)
{
    int fd = openat(folder, entry, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    struct stat st;
    bool left;

    if (fd < 0)
        return false;
    left = !fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_uid == geteuid() &&
           !flock(fd, LOCK_EX | LOCK_NB);
    if (left && remove)
        unlinkat(folder, entry, 0);
    close(fd);
    return left;
}

/* --- files --- */

void ts_temp_sweep(const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    char folder[PATH_MAX];
    DIR *d;

    snprintf(folder, sizeof(folder), "%.*s", slash ? (int)(slash - path) + 1 : 1,
             slash ? path : ".");
    d = opendir(folder);
    for (struct dirent *e; d && (e = readdir(d));)
        if (is_temp(e->d_name, name))
            (void)ts_temp_left(dirfd(d), e->d_name, true);
    if (d)
        closedir(d);
}

int ts_temp_file(const char *target, char *path, size_t size)
{
    for (int i = 0; i < TRIES; i++) {
        int fd;
        if ((size_t)snprintf(path, size, "%s.%ld.XXXXXX", target, (long)getpid()) >= size) {
            errno = ENAMETOOLONG;
            return -1;
        }
        fd = ts_fault("create") ? -1 : mkostemp(path, O_CLOEXEC);
        if (fd < 0 || hold(fd))
            return fd;
        close(fd);
    }
    errno = EBUSY;
    return -1;
}

/* --- folders --- */

static void empty(int folder)
{
    int own = dup(folder); /* closedir closes it */
    DIR *d = own < 0 ? NULL : fdopendir(own);

    for (struct dirent *e; d && (e = readdir(d));)
        if (strcmp(e->d_name, "lock") != 0)
            unlinkat(folder, e->d_name, 0);
    if (d)
        closedir(d);
}

/* Without a lock only if there is nothing in it: it is one that is being made, or one that was
 * kept for people. */
static void remove_folder(int parent, const char *entry)
{
    int folder = openat(parent, entry, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int lock = folder < 0 ? -1 : openat(folder, "lock", O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    struct stat st;

    if (folder >= 0 && !fstat(folder, &st) && st.st_uid == geteuid()) {
        if (lock >= 0 && !flock(lock, LOCK_EX | LOCK_NB)) {
            empty(folder);
            unlinkat(folder, "lock", 0);
        }
        unlinkat(parent, entry, AT_REMOVEDIR);
    }
    if (lock >= 0)
        close(lock);
    if (folder >= 0)
        close(folder);
}

static void sweep_folders(const char *tmp)
{
    DIR *d = opendir(tmp);

    for (struct dirent *e; d && (e = readdir(d));)
        if (is_temp(e->d_name, "tessera"))
            remove_folder(dirfd(d), e->d_name);
    if (d)
        closedir(d);
}

/* False: try again. */
static bool lock_folder(ts_temp_folder *t)
{
    char path[PATH_MAX];

    snprintf(path, sizeof(path), "%s/lock", t->path);
    t->lock = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (t->lock >= 0 && hold(t->lock))
        return true;
    if (t->lock >= 0)
        close(t->lock);
    rmdir(t->path);
    t->lock = -1;
    return false;
}

ts_status ts_temp_folder_new(ts_temp_folder *t)
{
    const char *tmp = getenv("TMPDIR");

    tmp = tmp && tmp[0] ? tmp : "/tmp";
    sweep_folders(tmp);
    for (int i = 0; i < TRIES; i++) {
        if ((size_t)snprintf(t->path, sizeof(t->path), "%s/tessera.%ld.XXXXXX", tmp,
                             (long)getpid()) >= sizeof(t->path))
            return ts_fail(TS_ERR_FILE, "the path in TMPDIR, %.60s..., is too long", tmp);
        if (ts_fault("mkdir") || !mkdtemp(t->path))
            break;
        if (lock_folder(t))
            return TS_OK;
    }
    return ts_fail(TS_ERR_FILE, "cannot make a folder in %s: %s", tmp, strerror(errno));
}

void ts_temp_folder_remove(ts_temp_folder *t)
{
    int folder = open(t->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    if (folder >= 0) {
        empty(folder);
        unlinkat(folder, "lock", 0);
        close(folder);
    }
    rmdir(t->path);
    close(t->lock);
}

void ts_temp_folder_keep(ts_temp_folder *t)
{
    char path[PATH_MAX];

    snprintf(path, sizeof(path), "%s/lock", t->path);
    unlink(path);
    close(t->lock);
}
