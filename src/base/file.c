/* file.c - whole files, written so that a reader never sees half of one. */
#include "base/base.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
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

/* A file that becomes `target`, whatever that is now. */
static ts_status begin(ts_file_out *f)
{
    f->fd = ts_temp_file(f->target, f->temp, sizeof(f->temp));
    if (f->fd < 0 && errno == ENAMETOOLONG)
        return ts_fail(TS_ERR_FILE, "the path %.60s... is too long", f->path);
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
    ts_temp_sweep(f->target);
    return begin(f);
}

ts_status ts_file_end(ts_file_out *f, unsigned mode, ts_status s)
{
    if (!s && (ts_fault("fsync") || fsync(f->fd)))
        s = ts_fail(TS_ERR_FILE, "cannot flush %s to disk: %s", f->path, strerror(errno));
    if (!s && fchmod(f->fd, mode))
        s = ts_fail(TS_ERR_FILE, "cannot set the mode of %s: %s", f->path, strerror(errno));
    if (!s && (ts_fault("rename") || rename(f->temp, f->target)))
        s = ts_fail(TS_ERR_FILE, "cannot rename to %s: %s", f->path, strerror(errno));
    if (s)
        unlink(f->temp);
    else
        sync_folder(f->target);
    close(f->fd); /* and with it the lock: nothing has the temporary name any more */
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

/* Is the open file one to trust, code that will run here? If not, fails saying why. */
static ts_status check_ours(int fd, struct stat *st)
{
    if (fstat(fd, st))
        return ts_fail(TS_ERR_FILE, "it cannot be looked at: %s", strerror(errno));
    if (!S_ISREG(st->st_mode))
        return ts_fail(TS_ERR_CORRUPT, "it is not a regular file");
    if (st->st_uid != geteuid())
        return ts_fail(TS_ERR_CORRUPT, "it belongs to user %ld, not to user %ld", (long)st->st_uid,
                       (long)geteuid());
    if (st->st_mode & (S_IWGRP | S_IWOTH))
        return ts_fail(TS_ERR_CORRUPT, "others may write it, its mode is %03o",
                       (unsigned)st->st_mode & 0777);
    return TS_OK;
}

static ts_status read_all(int fd, size_t len, char **out)
{
    void *buf;
    size_t n = 0;

    TS_TRY(ts_alloc(len + 1, "a cached file", &buf));
    while (n < len) {
        ssize_t got = ts_fault("read") ? -1 : read(fd, (char *)buf + n, len - n);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) {
            free(buf);
            return ts_fail(TS_ERR_FILE, "it cannot be read: %s",
                           got ? strerror(errno) : "it shrank");
        }
        n += (size_t)got;
    }
    *out = buf;
    return TS_OK;
}

ts_status ts_file_read_ours(int fd, char **data, size_t *len)
{
    struct stat st;

    TS_TRY(check_ours(fd, &st));
    *len = (size_t)st.st_size;
    return read_all(fd, *len, data);
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
