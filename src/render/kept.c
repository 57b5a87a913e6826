/* kept.c - object code of kernels, from one compile to the next.
 *
 *   <folder>/<key>.o    a name for each function in a file, all hard links to that file
 *
 *     object of several functions | library \n key \n key \n ... | magic  length of the object  SHA-256
 *
 * A function's key is over its name, which follows from its text (share.c), and all else that its code depends
 * on: the library, whose prelude it uses, the compiler and its flags, the instruction set, and how hard the
 * compiler worked. Work spared changes no bit, so code that was worked on serves where less is asked for.
 *
 * What is read here will run: a file that another user owns or may write, that is a link, or whose
 * checksum or key is not right is not used, with a line that says why, and its functions are compiled again.
 * Nothing in this file fails a compile. A file appears whole or not at all, and under its other names once it is
 * whole. Two processes may keep the same function in two files; the linker takes either.
 */
#include "render/render.h"
#include <errno.h>
#include <fcntl.h>
#include <openssl/sha.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

static const char magic[] = "kernels of tessera\n";
enum {
    MAGIC = sizeof(magic) - 1,
    LENGTH = 8,
    FOOT = MAGIC + LENGTH + SHA256_DIGEST_LENGTH,
    ROW = TS_KEPT_KEY + 1
};

struct ts_kept_file {
    dev_t device;
    ino_t inode;
    ts_kept_object object;
    bool good;
};

/* --- a file --- */

static ts_status read_lines(const char *end, ts_kept_object *o)
{
    const char *line = o->origin, *keys = memchr(line, '\n', (size_t)(end - line));

    if (!keys || (size_t)(end - ++keys) % ROW)
        return ts_fail(TS_ERR_CORRUPT, "its list of kernels is damaged");
    o->origin_len = keys - 1 - line;
    o->keys = keys;
    o->nkeys = (int)((size_t)(end - keys) / ROW);
    return TS_OK;
}

ts_status ts_kept_unpack(const char *file, size_t len, ts_kept_object *o)
{
    const char *foot = file + len - FOOT;
    unsigned char sum[SHA256_DIGEST_LENGTH];
    uint64_t bytes;

    if (len < FOOT || memcmp(foot, magic, MAGIC))
        return ts_fail(TS_ERR_CORRUPT, "it is cut off, or no object of kernels");
    SHA256((const unsigned char *)file, len - sizeof(sum), sum);
    if (memcmp(file + len - sizeof(sum), sum, sizeof(sum)))
        return ts_fail(TS_ERR_CORRUPT, "its checksum is wrong");
    memcpy(&bytes, foot + MAGIC, sizeof(bytes));
    if (bytes > len - FOOT)
        return ts_fail(TS_ERR_CORRUPT, "its object is %llu bytes of %zu", (unsigned long long)bytes,
                       len);
    *o = (ts_kept_object){.code = file, .bytes = (size_t)bytes, .origin = file + bytes};
    return read_lines(foot, o);
}

void ts_kept_pack(const ts_kept_object *o, ts_text *t)
{
    uint64_t bytes = o->bytes;
    unsigned char sum[SHA256_DIGEST_LENGTH];

    ts_text_add(t, o->code, o->bytes);
    ts_text_printf(t, "%.*s\n", (int)o->origin_len, o->origin);
    ts_text_add(t, o->keys, (size_t)o->nkeys * ROW);
    ts_text_add(t, magic, MAGIC);
    ts_text_add(t, (const char *)&bytes, sizeof(bytes));
    SHA256((const unsigned char *)t->s, t->len, sum);
    ts_text_add(t, (const char *)sum, sizeof(sum));
}

static bool has_key(const ts_kept_object *o, const char *key)
{
    for (int i = 0; i < o->nkeys; i++)
        if (!strncmp(o->keys + (size_t)i * ROW, key, TS_KEPT_KEY))
            return true;
    return false;
}

/* --- finding --- */

static void key_of(const ts_kept *k, const char *name, bool light, char *key)
{
    ts_text t = {0};
    XXH128_hash_t h;

    ts_text_printf(&t, "%s\n%s\n%s\n%s\n", k->origin, k->maker, light ? "light" : "", name);
    h = XXH3_128bits(t.s, t.len);
    snprintf(key, ROW, "%016llx%016llx", (unsigned long long)h.high64, (unsigned long long)h.low64);
    ts_text_free(&t);
}

static const char *path_of(ts_arena *a, const ts_kept *k, const char *key)
{
    return ts_arena_printf(a, "%s/%s.o", k->folder, key);
}

static ts_kept_file *known(const ts_kept_search *s, const struct stat *st)
{
    for (int i = 0; i < s->nfiles; i++)
        if (s->files[i]->device == st->st_dev && s->files[i]->inode == st->st_ino)
            return s->files[i];
    return NULL;
}

/* Of a file that is known and not good that has been said. */
static ts_status read_file(ts_kept_search *s, int fd, ts_kept_file **out)
{
    struct stat st;
    ts_kept_file *f;
    ts_status status;
    char *data;
    size_t len;

    if (fstat(fd, &st))
        return ts_fail(TS_ERR_FILE, "it cannot be looked at: %s", strerror(errno));
    *out = known(s, &st);
    if (*out)
        return TS_OK;
    f = *out = TS_NEW(s->a, ts_kept_file);
    f->device = st.st_dev;
    f->inode = st.st_ino;
    TS_PUSH(s->a, s->files, s->nfiles, f);
    TS_TRY(ts_file_read_ours(fd, &data, &len));
    status = ts_kept_unpack(ts_arena_copy(s->a, data, len), len, &f->object);
    free(data);
    if (status)
        return status;
    (void)futimens(fd, NULL); /* used now: the last to be evicted */
    f->good = true;
    return TS_OK;
}

/* TS_OK with *out NULL: there is no such file, or why it is not used was said. */
static ts_status look(ts_kept_search *s, const char *path, const char *key, ts_kept_file **out)
{
    int fd = ts_fault("open") ? -1 : open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    ts_kept_file *f = NULL;
    ts_status status;

    *out = NULL;
    if (fd < 0 && (errno == ENOENT || errno == ENOTDIR))
        return TS_OK;
    if (fd < 0 && errno == ELOOP)
        return ts_fail(TS_ERR_CORRUPT, "it is a symbolic link");
    if (fd < 0)
        return ts_fail(TS_ERR_FILE, "it cannot be opened: %s", strerror(errno));
    status = read_file(s, fd, &f);
    close(fd);
    if (!status && f->good && !has_key(&f->object, key))
        return ts_fail(TS_ERR_CORRUPT, "it was made for other kernels");
    if (!status && !f->good)
        unlink(path);
    if (!status && f->good)
        *out = f;
    return status;
}

static bool find(ts_kept_search *s, const char *name, bool light)
{
    char key[ROW];
    const char *path;
    ts_kept_file *f;

    key_of(s->in, name, light, key);
    path = path_of(s->a, s->in, key);
    if (!look(s, path, key, &f))
        return f != NULL;
    ts_note(s->warned ? TS_LOG_DEBUG : TS_LOG_WARN, "not using the kernels in %s: %s", path,
            ts_last_error()->message);
    s->warned = true; /* a whole folder of another user is one line */
    if (ts_last_error()->code == TS_ERR_CORRUPT)
        unlink(path); /* what is made instead takes its place */
    return false;
}

bool ts_kept_find(ts_kept_search *s, const char *name, bool light)
{
    return find(s, name, false) || (light && find(s, name, true));
}

const ts_kept_object *ts_kept_found(const ts_kept_search *s, int i)
{
    return i < s->nfiles && s->files[i]->good ? &s->files[i]->object : NULL;
}

/* --- keeping --- */

/* One name more. Another process may have been first. */
static ts_status add_name(const char *path, const char *name)
{
    if (ts_fault("link") || (link(path, name) && errno != EEXIST))
        return ts_fail(TS_ERR_FILE, "cannot link %s: %s", name, strerror(errno));
    return TS_OK;
}

static ts_status write_names(ts_arena *a, const ts_kept *k, const ts_kept_object *o)
{
    const char *first = path_of(a, k, ts_arena_printf(a, "%.*s", TS_KEPT_KEY, o->keys));
    ts_text t = {0};
    ts_status s;

    TS_TRY(ts_file_mkdirs(k->folder));
    ts_kept_pack(o, &t);
    s = ts_file_write_private(first, t.s, t.len);
    ts_text_free(&t);
    for (int i = 1; i < o->nkeys && !s; i++)
        s = add_name(
            first,
            path_of(a, k, ts_arena_printf(a, "%.*s", TS_KEPT_KEY, o->keys + (size_t)i * ROW)));
    return s;
}

void ts_kept_put(ts_arena *a, const ts_kept *k, const ts_kept_unit *u)
{
    ts_text keys = {0};
    ts_kept_object o = {.code = u->code,
                        .bytes = u->bytes,
                        .origin = k->origin,
                        .origin_len = (long)strlen(k->origin),
                        .nkeys = u->nnames};
    char key[ROW];

    for (int i = 0; i < u->nnames; i++) {
        key_of(k, u->names[i], u->light, key);
        ts_text_printf(&keys, "%s\n", key);
    }
    o.keys = keys.s;
    if (write_names(a, k, &o))
        ts_note(TS_LOG_DEBUG, "kernels are not kept: %s", ts_last_error()->message);
    ts_text_free(&keys);
}
