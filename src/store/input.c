/* input.c - the bytes of a file or of memory, read at any place or forward.
 *
 * Files are read, not mapped: a file that another program cuts short while it is mapped would kill
 * us with a signal. Every tensor is read straight to where it stays, so loading takes the memory of
 * the tensors and a small window.
 */
#include "store/store.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { WINDOW = 1 << 16 };

ts_status ts_input_open(ts_input *in, const char *path)
{
    struct stat st;
    /* Not blocking: opening a pipe would wait for its writer. */
    int fd = ts_fault("open") ? -1 : open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    if (fd < 0)
        return ts_fail(TS_ERR_FILE, "cannot open %s: %s", path, strerror(errno));
    if (fstat(fd, &st) || !S_ISREG(st.st_mode)) {
        close(fd);
        return ts_fail(TS_ERR_FILE, "%s is not a regular file", path);
    }
    *in = (ts_input){.fd = fd, .size = (uint64_t)st.st_size};
    return TS_OK;
}

void ts_input_close(ts_input *in)
{
    if (!in->mem)
        close(in->fd);
}

static ts_status read_file(int fd, uint64_t at, uint8_t *to, size_t len)
{
    while (len) {
        ssize_t got = ts_fault("read") ? -1 : pread(fd, to, len, (off_t)at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return ts_fail(TS_ERR_FILE, "cannot read %zu bytes at byte %lu: %s", len,
                           (unsigned long)at, got ? strerror(errno) : "the file shrank");
        to += got;
        at += (uint64_t)got;
        len -= (size_t)got;
    }
    return TS_OK;
}

static ts_status check_range(const ts_input *in, uint64_t at, uint64_t len)
{
    if (at <= in->size && len <= in->size - at)
        return TS_OK;
    return ts_fail(TS_ERR_CORRUPT, "%lu bytes are needed at byte %lu, the end is at byte %lu",
                   (unsigned long)len, (unsigned long)at, (unsigned long)in->size);
}

ts_status ts_input_read(const ts_input *in, uint64_t at, void *to, uint64_t len)
{
    TS_TRY(check_range(in, at, len));
    if (!in->mem)
        return read_file(in->fd, at, to, len);
    if (len)
        memcpy(to, in->mem + at, len);
    return TS_OK;
}

ts_status ts_blob_new(uint64_t bytes, ts_blob **out)
{
    void *p;

    *out = NULL;
    if (bytes > PTRDIFF_MAX)
        return ts_fail(TS_ERR_MEMORY, "cannot allocate %lu bytes for a tensor",
                       (unsigned long)bytes);
    TS_TRY(ts_alloc(sizeof(ts_blob) + bytes, "a tensor", &p));
    *out = p;
    (*out)->refs = 1;
    (*out)->bytes = bytes;
    return TS_OK;
}

/* As if it had been read, without its bytes. */
ts_status ts_blob_blank(uint64_t bytes, ts_blob **out)
{
    TS_TRY(ts_blob_new(0, out));
    (*out)->bytes = bytes;
    (*out)->blank = true;
    return TS_OK;
}

uint64_t ts_input_memory(const ts_input *in)
{
    const char *said = getenv("TESSERA_LOAD_MEMORY");
    char *end;
    uint64_t v = said ? strtoull(said, &end, 10) : 0;

    if (in->memory)
        return in->memory;
    if (v && !*end && *said != '-')
        return v;
    return ((uint64_t)1 << 30) + 16 * in->size;
}

ts_status ts_blob_read(const ts_input *in, uint64_t at, uint64_t len, ts_blob **out)
{
    ts_status s;

    *out = NULL;
    TS_TRY(check_range(in, at, len));
    if (in->shapes)
        return ts_blob_blank(len, out);
    TS_TRY(ts_blob_new(len, out));
    s = ts_input_read(in, at, (*out)->data, len);
    if (s) {
        ts_blob_free(*out);
        *out = NULL;
    }
    return s;
}

void ts_blob_free(ts_blob *b)
{
    if (b && !--b->refs)
        free(b);
}

static ts_status move_window(ts_cursor *c, uint64_t len)
{
    void *window = c->window;
    size_t n = TS_MIN(TS_MAX(len, WINDOW), c->in->size - c->at);

    TS_TRY(ts_store_grow(&window, &c->cap, n, 1));
    c->window = window;
    c->len = 0;
    TS_TRY(ts_input_read(c->in, c->at, c->window, n));
    c->start = c->at;
    c->len = n;
    return TS_OK;
}

ts_status ts_cursor_take(ts_cursor *c, uint64_t len, const uint8_t **bytes)
{
    TS_TRY(check_range(c->in, c->at, len));
    if (c->in->mem) {
        *bytes = c->in->mem + c->at;
    } else {
        if (!c->window || c->at < c->start || c->at + len > c->start + c->len)
            TS_TRY(move_window(c, len));
        *bytes = c->window + (c->at - c->start);
    }
    c->at += len;
    return TS_OK;
}

void ts_cursor_close(ts_cursor *c)
{
    free(c->window);
    c->window = NULL;
}

uint64_t ts_little(const uint8_t *p, int bytes)
{
    uint64_t x = 0;

    while (bytes--)
        x = x << 8 | p[bytes];
    return x;
}
