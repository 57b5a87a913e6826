/* gzip.c - unpacks the bytes of a .gz file, checksum and length included.
 *
 * A few bytes can unpack to a thousand times as many, never more (1032 is deflate's limit), so the
 * room is at most that, and at most what the caller is ready to take.
 */
#include "data/data.h"
#include <limits.h>
#include <zlib.h>

enum { MOST_RATIO = 1032, GZIP_WINDOW = 15 + 16, SMALLEST = 18 /* header and trailer */ };

bool ts_gzip_is(const void *data, size_t len)
{
    const uint8_t *b = data;

    return len >= 2 && b[0] == 0x1f && b[1] == 0x8b;
}

typedef struct unpacking {
    const char *path;
    z_stream z;
    const uint8_t *in, *end;
    uint8_t *out;
    size_t len, cap, most;
} unpacking;

static ts_status corrupt(const unpacking *u, const char *what)
{
    ts_fail(TS_ERR_CORRUPT, "%s %s", u->path, what);
    ts_error_hint("copy or download the file again");
    return TS_ERR_CORRUPT;
}

/* Room for at least one byte more. */
static ts_status grow(unpacking *u)
{
    size_t cap = TS_MIN(u->cap ? 2 * u->cap : 1 << 16, u->most + 1);
    uint8_t *out;

    if (u->len > u->most)
        return ts_fail(TS_ERR_CORRUPT, "%s unpacks to more than the %zu bytes it may have", u->path,
                       u->most);
    out = ts_fault("alloc") ? NULL : realloc(u->out, cap);
    if (!out)
        return ts_fail(TS_ERR_MEMORY, "cannot allocate %zu bytes for %s", cap, u->path);
    u->out = out;
    u->cap = cap;
    return TS_OK;
}

/* One member; a file may have several in a row. */
static ts_status unpack_member(unpacking *u)
{
    int got = Z_OK;

    while (got != Z_STREAM_END) {
        if (u->len == u->cap)
            TS_TRY(grow(u));
        u->z.next_in = (Bytef *)u->in;
        u->z.avail_in = (uInt)TS_MIN((size_t)(u->end - u->in), (size_t)INT_MAX);
        u->z.next_out = u->out + u->len;
        u->z.avail_out = (uInt)TS_MIN(u->cap - u->len, (size_t)INT_MAX);
        got = inflate(&u->z, Z_NO_FLUSH);
        u->in = u->z.next_in;
        u->len = (size_t)(u->z.next_out - u->out);
        if (got == Z_BUF_ERROR || (got == Z_OK && u->in == u->end && u->z.avail_out))
            return corrupt(u, "is cut short");
        if (got == Z_MEM_ERROR)
            return ts_fail(TS_ERR_MEMORY, "cannot allocate memory to unpack %s", u->path);
        if (got != Z_OK && got != Z_STREAM_END)
            return corrupt(u, "is corrupt: its gzip data or checksum is wrong");
    }
    return TS_OK;
}

static ts_status unpack(unpacking *u)
{
    do {
        TS_TRY(unpack_member(u));
        inflateReset(&u->z);
    } while (ts_gzip_is(u->in, (size_t)(u->end - u->in)));
    if (u->in != u->end)
        return corrupt(u, "is corrupt: something follows its gzip data");
    if (u->len > u->most)
        return grow(u);
    return TS_OK;
}

ts_status ts_gzip_unpack(const char *path, const void *data, size_t len, size_t most, void **out,
                         size_t *out_len)
{
    unpacking u = {.path = path, .in = data, .end = (const uint8_t *)data + len};
    ts_status s;

    u.most = TS_MIN(most, len * MOST_RATIO);
    if (len < SMALLEST)
        return corrupt(&u, "is cut short");
    if (inflateInit2(&u.z, GZIP_WINDOW) != Z_OK)
        return ts_fail(TS_ERR_MEMORY, "cannot allocate memory to unpack %s", path);
    s = unpack(&u);
    inflateEnd(&u.z);
    if (s) {
        free(u.out);
        return s;
    }
    *out = u.out;
    *out_len = u.len;
    return TS_OK;
}
