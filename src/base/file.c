/* file.c - whole files, written so that a reader never sees half of one. */
#include "base/base.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

ts_status ts_file_read(const char *path, char **data, size_t *len)
{
    struct stat st;
    /* O_NONBLOCK: a pipe is refused below, not waited for */
    int fd = ts_fault("open") ? -1 : open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    size_t n = 0;
    void *buf = NULL;

    if (fd < 0)
        return ts_fail(TS_ERR_FILE, "cannot open %s: %s", path, strerror(errno));
    if (fstat(fd, &st) || !S_ISREG(st.st_mode)) {
        close(fd);
        return ts_fail(TS_ERR_FILE, "%s is not a regular file", path);
    }
    if (ts_alloc((size_t)st.st_size + 1, path, &buf)) {
        close(fd);
        return TS_ERR_MEMORY;
    }
    while (n < (size_t)st.st_size) {
        ssize_t got = ts_fault("read") ? -1 : read(fd, (char *)buf + n, (size_t)st.st_size - n);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) {
            ts_fail(TS_ERR_FILE, "cannot read %s: %s", path, got ? strerror(errno) : "it shrank");
            close(fd);
            free(buf);
            return TS_ERR_FILE;
        }
        n += (size_t)got;
    }
    close(fd);
    ((char *)buf)[n] = 0;
    *data = buf;
    *len = n;
    return TS_OK;
}

static ts_status put_all(int fd, const char *path, const char *data, size_t len)
{
    while (len) {
        ssize_t put = ts_fault("write") ? -1 : write(fd, data, len);
        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0)
            return ts_fail(TS_ERR_FILE, "cannot write %s: %s", path, strerror(errno));
        data += put;
        len -= (size_t)put;
    }
    return TS_OK;
}

ts_status ts_file_put(ts_file_out *f, const void *data, size_t len)
{
    return put_all(f->fd, f->path, data, len);
}

/* The folder entry itself must be on disk too, or a crash can lose the whole file. */
static void sync_folder(const char *path)
{
    char folder[PATH_MAX];
    char *slash;
    int fd;

    snprintf(folder, sizeof(folder), "%s", path);
    slash = strrchr(folder, '/');
    if (slash)
        *(slash == folder ? slash + 1 : slash) = 0;
    fd = open(slash ? folder : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        (void)fsync(fd);
        close(fd);
    }
}

/* --- what a killed process left --- */

enum { LEFT_SECONDS = 60 }; /* so long after its last byte: its process may be another machine's */

/* NAME.PID.XXXXXX, and no such process. */
static bool is_left(const char *entry, const char *name)
{
    size_t n = strlen(name);
    char *end;
    long pid;

    if (strncmp(entry, name, n) != 0 || entry[n] != '.')
        return false;
    pid = strtol(entry + n + 1, &end, 10);
    return pid > 0 && *end == '.' && strlen(end) == 7 && kill((pid_t)pid, 0) && errno == ESRCH;
}

static void remove_left(DIR *d, const char *entry)
{
    struct stat st;

    if (fstatat(dirfd(d), entry, &st, AT_SYMLINK_NOFOLLOW) || st.st_uid != geteuid() ||
        time(NULL) - st.st_mtime < LEFT_SECONDS)
        return;
    if (S_ISREG(st.st_mode))
        unlinkat(dirfd(d), entry, 0);
}

/* Files of this name that were never finished. */
static void sweep(const char *path)
{
    const char *slash = strrchr(path, '/');
    char folder[PATH_MAX];
    DIR *d;

    snprintf(folder, sizeof(folder), "%.*s", slash ? (int)(slash - path) + 1 : 1,
             slash ? path : ".");
    d = opendir(folder);
    for (struct dirent *e; d && (e = readdir(d));)
        if (is_left(e->d_name, slash ? slash + 1 : path))
            remove_left(d, e->d_name);
    if (d)
        closedir(d);
}

/* A file that becomes `target`, whatever that is now. */
static ts_status begin(ts_file_out *f)
{
    if ((size_t)snprintf(f->temp, sizeof(f->temp), "%s.%ld.XXXXXX", f->target, (long)getpid()) >=
        sizeof(f->temp))
        return ts_fail(TS_ERR_FILE, "the path %.60s... is too long", f->path);
    f->fd = ts_fault("create") ? -1 : mkostemp(f->temp, O_CLOEXEC);
    if (f->fd < 0)
        return ts_fail(TS_ERR_FILE, "cannot create a file beside %s: %s", f->path, strerror(errno));
    return TS_OK;
}

/* The user's: a link stays, and the file it leads to is replaced; a device, a pipe or a folder is
 * nothing that a file may take the place of. */
ts_status ts_file_begin(ts_file_out *f, const char *path)
{
    struct stat st;

    f->path = path;
    if (!stat(path, &st) && !S_ISREG(st.st_mode))
        return ts_fail(TS_ERR_FILE, "%s is not a regular file", path);
    if (!realpath(path, f->target))
        snprintf(f->target, sizeof(f->target), "%s", path);
    sweep(f->target);
    return begin(f);
}

ts_status ts_file_end(ts_file_out *f, unsigned mode, ts_status s)
{
    if (!s && (ts_fault("fsync") || fsync(f->fd)))
        s = ts_fail(TS_ERR_FILE, "cannot flush %s to disk: %s", f->path, strerror(errno));
    if (!s && fchmod(f->fd, mode))
        s = ts_fail(TS_ERR_FILE, "cannot set the mode of %s: %s", f->path, strerror(errno));
    if (close(f->fd) && !s)
        s = ts_fail(TS_ERR_FILE, "cannot close %s: %s", f->path, strerror(errno));
    if (!s && (ts_fault("rename") || rename(f->temp, f->target)))
        s = ts_fail(TS_ERR_FILE, "cannot rename to %s: %s", f->path, strerror(errno));
    if (s)
        unlink(f->temp);
    else
        sync_folder(f->target);
    return s;
}

/* Leaves errno as it is when it is not. */
static bool is_folder(const char *path)
{
    struct stat st;
    int why = errno;
    bool is = why == EEXIST && !stat(path, &st) && S_ISDIR(st.st_mode);

    errno = why;
    return is;
}

ts_status ts_file_mkdirs(const char *path)
{
    char part[PATH_MAX];
    size_t n = strlen(path);

    if (!n || n >= sizeof(part))
        return ts_fail(TS_ERR_FILE, "cannot create the folder '%.60s'", path);
    for (size_t i = 1; i <= n; i++) {
        if (path[i] && path[i] != '/')
            continue;
        memcpy(part, path, i);
        part[i] = 0;
        if (ts_fault("mkdir") || (mkdir(part, 0700) && !is_folder(part)))
            return ts_fail(TS_ERR_FILE, "cannot create the folder %s: %s", part, strerror(errno));
    }
    return TS_OK;
}

ts_status ts_file_write(const char *path, const void *data, size_t len)
{
    ts_file_out f;

    TS_TRY(ts_file_begin(&f, path));
    return ts_file_end(&f, 0644, ts_file_put(&f, data, len));
}

ts_status ts_file_append(int fd, const char *path, const void *data, size_t len)
{
    off_t end = lseek(fd, 0, SEEK_END);
    ts_status s = put_all(fd, path, data, len);

    if (s && end >= 0 && ftruncate(fd, end))
        ts_note(TS_LOG_WARN, "cannot take half a write off %s: %s", path, strerror(errno));
    return s;
}

ts_status ts_file_write_private(const char *path, const void *data, size_t len)
{
    ts_file_out f = {.path = path};

    snprintf(f.target, sizeof(f.target), "%s", path);
    TS_TRY(begin(&f));
    return ts_file_end(&f, 0600, ts_file_put(&f, data, len));
}

ts_status ts_file_temp_folder(char *path, size_t size)
{
    const char *tmp = getenv("TMPDIR");

    tmp = tmp && tmp[0] ? tmp : "/tmp";
    if ((size_t)snprintf(path, size, "%s/tessera.XXXXXX", tmp) >= size)
        return ts_fail(TS_ERR_FILE, "the path in TMPDIR, %.60s..., is too long", tmp);
    if (ts_fault("mkdir") || !mkdtemp(path))
        return ts_fail(TS_ERR_FILE, "cannot make a folder in %s: %s", tmp, strerror(errno));
    return TS_OK;
}

void ts_file_remove_folder(const char *path)
{
    DIR *d = opendir(path);

    for (struct dirent *e; d && (e = readdir(d));)
        unlinkat(dirfd(d), e->d_name, 0);
    if (d)
        closedir(d);
    rmdir(path);
}

bool ts_file_control_group(const char *name, char *line, size_t size)
{
    char path[512], group[256] = "";
    FILE *f = fopen("/proc/self/cgroup", "r");
    bool found;

    if (!f)
        return false;
    while (fgets(path, sizeof(path), f))
        if (!strncmp(path, "0::", 3)) {
            path[strcspn(path, "\n")] = 0;
            snprintf(group, sizeof(group), "%.255s", path + 3);
        }
    fclose(f);
    snprintf(path, sizeof(path), "/sys/fs/cgroup%s/%s", group, name);
    f = fopen(path, "r");
    found = f && fgets(line, (int)size, f);
    if (f)
        fclose(f);
    return found;
}
