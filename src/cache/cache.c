/* cache.c - executables of earlier compiles, found by what they were made from.
 *
 *   <folder>/<hash>.tse    an executable file; hash is over the key's named entries
 *   <folder>/<hash>.lock   held (flock) by the process that makes it, gone when it is made
 *
 * A program that finds nothing takes the lock, looks again, and compiles; the others wait for the
 * lock and then find the file. The lock dies with its process, so a killed one blocks nobody. A
 * file appears whole or not at all (temporary name, then rename).
 *
 * A cached file is code that will run here: one that another user owns or may write, that is a
 * link, or whose version, key or checksum is not right is not used, with a line that says why.
 * Nothing in this file fails a compile: a cache that does not work is a cache not used, and one
 * warning.
 */
#include "cache/cache.h"
#include "pass/pass.h"
#include "render/render.h"
#include <ctype.h>
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

enum { HASH = 32 };
static const int64_t default_limit = (int64_t)1 << 30;

struct ts_cache {
    char *folder, *path, *lock_path;
    const char *model;
    const ts_key *key;
    int64_t limit;
    int lock;
    bool off; /* cannot be written */
    ts_arena *a;
};

/* --- the key --- */

static void hex(XXH128_hash_t h, char *out)
{
    snprintf(out, HASH + 1, "%016llx%016llx", (unsigned long long)h.high64,
             (unsigned long long)h.low64);
}

/* The graph without the lines it was written on, which change nothing but what is said of
 * exceptions; elements of constants go
 * straight to the hash, as text they would take longer than all else. */
static const ts_graph *essence(ts_arena *a, const ts_graph *g, XXH3_state_t *h, bool lines)
{
    ts_graph *out = ts_arena_copy(a, g, sizeof(*g));

    out->nodes = TS_NEWS(a, ts_node *, g->nnodes);
    for (int i = 0; i < g->nnodes; i++) {
        ts_node *n = out->nodes[i] = ts_arena_copy(a, g->nodes[i], sizeof(*n));
        n->file = lines ? n->file : NULL;
        if (lines)
            XXH3_128bits_update(h, &n->inner, sizeof(n->inner));
        if (n->data)
            XXH3_128bits_update(h, n->data, ts_type_bytes(&n->out[0]->type));
        n->data = NULL;
        n->sub = TS_NEWS(a, ts_graph *, n->nsub);
        for (int k = 0; k < n->nsub; k++)
            n->sub[k] = (ts_graph *)essence(a, g->nodes[i]->sub[k], h, lines);
    }
    return out;
}

static const char *hash_graph(ts_arena *a, const ts_graph *g, bool lines)
{
    XXH3_state_t *h = XXH3_createState();
    ts_text t = {0};
    char *s = ts_arena_alloc(a, HASH + 1);

    if (!h)
        return "out of memory";
    XXH3_128bits_reset(h);
    ts_graph_print(essence(a, g, h, lines), &t);
    XXH3_128bits_update(h, t.s, t.len);
    hex(XXH3_128bits_digest(h), s);
    XXH3_freeState(h);
    ts_text_free(&t);
    return s;
}

/* The version, and the size and time of the file this code is in: a rebuilt library of the same
 * version may generate other code. */
static const char *library_text(ts_arena *a)
{
    Dl_info info;
    struct stat st;
    bool known = dladdr(&default_limit, &info) && info.dli_fname;

    if (!known || stat(strchr(info.dli_fname, '/') ? info.dli_fname : "/proc/self/exe", &st))
        return TS_VERSION;
    return ts_arena_printf(a, TS_VERSION " of %lld.%09ld, %lld bytes", (long long)st.st_mtim.tv_sec,
                           st.st_mtim.tv_nsec, (long long)st.st_size);
}

static void entry(ts_arena *a, ts_key *k, const char *name, const char *value)
{
    k->entries = ts_arena_grow(a, k->entries, k->nentries, sizeof(*k->entries));
    k->entries[k->nentries][0] = name;
    k->entries[k->nentries++][1] = value;
}

/* An entry for each option that is part of the program and not what it usually is. They are those
 * of the table: what is added there is here. */
static void option_entries(ts_arena *a, ts_key *k, const ts_options *opt)
{
    static const ts_options usual;
    const ts_option *o;

    for (int i = 0; (o = ts_option_at(TS_RECORD_OPTIONS, i)); i++) {
        const char *value = ts_option_value(a, TS_RECORD_OPTIONS, i, opt);
        if (ts_option_in_key(TS_RECORD_OPTIONS, i) == TS_KEY_PROGRAM &&
            strcmp(value, ts_option_value(a, TS_RECORD_OPTIONS, i, &usual)))
            entry(a, k, o->name, value);
    }
}

ts_key ts_cache_key(ts_arena *a, const ts_graph *model, const ts_options *opt, const char *cc)
{
    ts_key k = {0};
    ts_machine_model m = {.isa = {.name = "", .flags = ""}};
    ts_text all = {0};

    /* What the program depends on besides the options, each with a name of its own. */
    (void)ts_machine_find(opt->isa, &m);
    entry(a, &k, "model", hash_graph(a, model, opt->exceptions));
    entry(a, &k, "tessera", library_text(a));
    entry(a, &k, "abi", ts_arena_printf(a, "%d", (int)TS_MODULE_ABI));
    entry(a, &k, "isa", m.isa.name);
    entry(a, &k, "machine", ts_machine_text(a, &m));
    entry(a, &k, "compiler", cc);
    entry(a, &k, "flags", ts_cc_flags(a, &m.isa, cc));
    option_entries(a, &k, opt);
    for (int i = 0; i < k.nentries; i++)
        for (int j = 0; j < 2; j++) /* with its NUL, so that no two keys run together */
            ts_text_add(&all, k.entries[i][j], strlen(k.entries[i][j]) + 1);
    hex(XXH3_128bits(all.s, all.len), k.hash);
    ts_text_free(&all);
    return k;
}

/* --- the folder --- */

static const char *set(const char *name)
{
    const char *s = getenv(name);

    return s && s[0] ? s : NULL;
}

/* NULL: no cache */
static const char *find_folder(ts_arena *a, const ts_options *opt)
{
    const char *s = opt->cache_dir;

    s = s ? s : getenv("TESSERA_CACHE_DIR");
    s = s ? s : getenv("POPTORCH_CACHE_DIR");
    if (s)
        return s[0] ? s : NULL;
    s = set("XDG_CACHE_HOME");
    if (s && s[0] == '/')
        return ts_arena_printf(a, "%s/tessera", s);
    s = set("HOME");
    return s ? ts_arena_printf(a, "%s/.cache/tessera", s) : NULL;
}

ts_cache *ts_cache_open(const ts_options *opt, const char *model, const ts_key *key)
{
    ts_arena *a = ts_arena_new();
    const char *folder = find_folder(a, opt);
    ts_cache *c;

    if (!folder || strlen(folder) > PATH_MAX - 100) {
        ts_arena_free(a);
        return NULL;
    }
    c = TS_NEW(a, ts_cache);
    c->a = a;
    c->folder = ts_arena_strdup(a, folder);
    c->path = ts_arena_printf(a, "%s/%s.tse", folder, key->hash);
    c->lock_path = ts_arena_printf(a, "%s/%s.lock", folder, key->hash);
    c->model = model;
    c->key = key;
    c->limit = opt->cache_limit ? opt->cache_limit : default_limit;
    c->lock = -1;
    return c;
}

/* Once for the process: a full disk is no news the second time. */
static void warn_once(ts_cache *c, const char *why)
{
    static atomic_flag warned = ATOMIC_FLAG_INIT;

    c->off = true;
    if (!atomic_flag_test_and_set(&warned))
        ts_note(TS_LOG_WARN, "going on without the cache %s: %s", c->folder, why);
}

/* -1: cannot be had. Whoever held it may have removed it while we waited: then it locks nothing. */
static int take_lock(const char *path)
{
    struct stat held, there;

    for (;;) {
        int fd =
            ts_fault("lock") ? -1 : open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        int failed = fd < 0 ? -1 : flock(fd, LOCK_EX);
        if (fd < 0 || (failed && errno != EINTR)) {
            int why = errno;
            if (fd >= 0)
                close(fd);
            errno = why;
            return -1;
        }
        if (!failed && !fstat(fd, &held) && !lstat(path, &there) && held.st_ino == there.st_ino &&
            held.st_dev == there.st_dev)
            return fd;
        close(fd);
    }
}

static void lock(ts_cache *c)
{
    struct stat st;

    if (stat(c->folder, &st))
        ts_note(TS_LOG_INFO, "making the cache folder %s", c->folder);
    if (ts_file_mkdirs(c->folder))
        return warn_once(c, ts_last_error()->message);
    c->lock = take_lock(c->lock_path);
    if (c->lock < 0) {
        ts_fail(TS_ERR_FILE, "cannot lock %s: %s", c->lock_path, strerror(errno));
        warn_once(c, ts_last_error()->message);
    }
}

void ts_cache_close(ts_cache *c)
{
    if (!c)
        return;
    if (c->lock >= 0) {
        unlink(c->lock_path);
        flock(c->lock, LOCK_UN); /* a forked child may hold the descriptor too */
        close(c->lock);
    }
    ts_arena_free(c->a);
}

/* --- finding --- */

/* Is the open file one to trust? If not, fails saying why. */
static ts_status check_file(int fd, struct stat *st)
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

    TS_TRY(ts_alloc(len + 1, "a cached executable", &buf));
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

static ts_status unpack(const char *path, int fd, ts_executable **out)
{
    struct stat st;
    char *file = NULL;
    ts_status s;

    TS_TRY(check_file(fd, &st));
    TS_TRY(read_all(fd, (size_t)st.st_size, &file));
    s = ts_executable_unpack(path, file, (size_t)st.st_size, out);
    free(file);
    return s;
}

static ts_status check_made(const ts_executable *x, const ts_key *key)
{
    if (strcmp(x->version, TS_VERSION))
        return ts_fail(TS_ERR_CORRUPT, "tessera %s made it, this is %s", x->version, TS_VERSION);
    if (strcmp(x->key.hash, key->hash))
        return ts_fail(TS_ERR_CORRUPT, "it was made for another key, %s", x->key.hash);
    return TS_OK;
}

/* TS_OK with *out NULL: there is no such file. */
static ts_status load(ts_cache *c, ts_executable **out)
{
    int fd = ts_fault("open") ? -1 : open(c->path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    ts_executable *x = NULL;
    ts_status s;

    *out = NULL;
    if (fd < 0 && (errno == ENOENT || errno == ENOTDIR))
        return TS_OK;
    if (fd < 0)
        return ts_fail(TS_ERR_FILE, "it cannot be opened: %s",
                       errno == ELOOP ? "it is a symbolic link" : strerror(errno));
    s = unpack(c->path, fd, &x);
    if (!s)
        s = check_made(x, c->key);
    if (!s)
        s = ts_executable_start(x);
    if (!s)
        (void)futimens(fd, NULL); /* used now: the last to be evicted */
    close(fd);
    if (s) {
        ts_executable_free(x);
        return s;
    }
    x->stats.from_cache = true;
    *out = x;
    return TS_OK;
}

static bool is_entry(const char *name)
{
    for (int i = 0; i < HASH; i++)
        if (!isxdigit((unsigned char)name[i]))
            return false;
    return !strcmp(name + HASH, ".tse");
}

/* What an entry of that name is in a key; an option that is not there is what it usually is. */
static const char *entry_of(const ts_key *k, const char *name)
{
    for (int i = 0; i < k->nentries; i++)
        if (!strcmp(k->entries[i][0], name))
            return k->entries[i][1];
    return "the usual";
}

static void compare(const ts_key *was, const ts_key *is)
{
    const ts_key *both[] = {is, was};

    for (int b = 0; b < 2; b++)
        for (int i = 0; i < both[b]->nentries; i++) {
            const char *name = both[b]->entries[i][0];
            const char *old = entry_of(was, name), *new = entry_of(is, name);
            if (strcmp(old, new) && (!b || !strcmp(new, "the usual")))
                ts_note(TS_LOG_DEBUG, "cache miss: %s changed from %s to %s", name, old, new);
        }
}

static bool is_later(const struct timespec *t, const struct timespec *than)
{
    return t->tv_sec > than->tv_sec || (t->tv_sec == than->tv_sec && t->tv_nsec > than->tv_nsec);
}

/* The newest executable of a model, or NULL. */
static ts_executable *newest_of(const char *folder, const char *model)
{
    DIR *d = opendir(folder);
    ts_executable *newest = NULL;
    struct timespec when = {0};

    for (struct dirent *e; d && (e = readdir(d));) {
        int fd = is_entry(e->d_name)
                     ? openat(dirfd(d), e->d_name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW)
                     : -1;
        ts_executable *x = NULL, *old = newest;
        struct stat st;
        bool newer = fd >= 0 && !unpack(e->d_name, fd, &x) && !strcmp(x->name, model) &&
                     !fstat(fd, &st) && is_later(&st.st_mtim, &when);
        if (fd >= 0)
            close(fd);
        if (newer) {
            when = st.st_mtim;
            newest = x;
        }
        ts_executable_free(newer ? old : x);
    }
    if (d)
        closedir(d);
    return newest;
}

/* Which entries of the key differ from those of the newest executable of the same model. */
static void explain(ts_cache *c)
{
    ts_executable *newest = newest_of(c->folder, c->model);

    if (!newest)
        ts_note(TS_LOG_DEBUG, "cache miss: nothing of the model '%s' in %s", c->model, c->folder);
    if (newest)
        compare(&newest->key, c->key);
    ts_executable_free(newest);
}

const char *ts_cache_compiler(ts_arena *a, const ts_options *opt, const char *model)
{
    const char *folder = find_folder(a, opt);
    ts_executable *newest = folder ? newest_of(folder, model) : NULL;
    const char *cc = newest ? ts_arena_strdup(a, entry_of(&newest->key, "compiler")) : NULL;

    ts_executable_free(newest);
    return cc;
}

bool ts_cache_find(ts_cache *c, ts_executable **out)
{
    ts_status s;

    if (!c)
        return false;
    s = load(c, out);
    if (!*out) {
        lock(c);
        s = load(c, out); /* someone may have made it while we waited */
    }
    if (*out) {
        (void)ts_temp_left(AT_FDCWD, c->lock_path, true);
        ts_note(TS_LOG_DEBUG, "cache hit: %s", c->path);
        return true;
    }
    if (s)
        ts_note(c->off ? TS_LOG_DEBUG : TS_LOG_WARN, "not using the cached %s: %s", c->path,
                ts_last_error()->message); /* off: that has been said */
    else if (ts_noting(TS_LOG_DEBUG))
        explain(c);
    return false;
}

/* --- keeping --- */

typedef struct file {
    char name[HASH + 5];
    struct timespec used;
    int64_t bytes;
} file;

static int older_first(const void *p, const void *q)
{
    const file *a = p, *b = q;

    if (a->used.tv_sec != b->used.tv_sec)
        return a->used.tv_sec < b->used.tv_sec ? -1 : 1;
    return (a->used.tv_nsec > b->used.tv_nsec) - (a->used.tv_nsec < b->used.tv_nsec);
}

/* <hash>.lock, or <hash>.tse and what ts_file_write adds: of a process that was killed, unless it
 * is locked. */
static bool is_passing(const char *name)
{
    size_t n = strspn(name, "0123456789abcdef");

    return n == HASH && (!strcmp(name + n, ".lock") || !strncmp(name + n, ".tse.", 5));
}

static bool is_left(int folder, const char *name)
{
    return is_passing(name) && ts_temp_left(folder, name, false);
}

static file *list(ts_cache *c, DIR *d, int *n)
{
    file *files = NULL;

    for (struct dirent *e; (e = readdir(d));) {
        struct stat st;
        if (fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) || !S_ISREG(st.st_mode))
            continue;
        if (is_entry(e->d_name)) {
            file f = {.used = st.st_mtim, .bytes = st.st_size};
            memcpy(f.name, e->d_name, sizeof(f.name));
            TS_PUSH(c->a, files, *n, f);
        } else if (is_passing(e->d_name))
            (void)ts_temp_left(dirfd(d), e->d_name, true);
    }
    return files;
}

/* Removes what was not used for longest until the rest fits, but not what was just made. */
static void evict(ts_cache *c)
{
    DIR *d = opendir(c->folder);
    int64_t total = 0;
    int n = 0;
    file *files = d ? list(c, d, &n) : NULL;

    for (int i = 0; i < n; i++)
        total += files[i].bytes;
    if (n)
        qsort(files, (size_t)n, sizeof(*files), older_first);
    for (int i = 0; i < n && total > c->limit; i++) {
        if (!strncmp(files[i].name, c->key->hash, HASH) || unlinkat(dirfd(d), files[i].name, 0))
            continue;
        total -= files[i].bytes;
        ts_note(TS_LOG_DEBUG, "cache: %s/%s had to make room", c->folder, files[i].name);
    }
    if (d)
        closedir(d);
}

void ts_cache_put(ts_cache *c, const ts_executable *x)
{
    ts_text packed = {0};
    ts_status s;

    if (!c || c->off)
        return;
    s = ts_executable_pack(x, &packed);
    if (!s)
        s = ts_file_write_private(c->path, packed.s, packed.len);
    ts_text_free(&packed);
    if (s)
        return warn_once(c, ts_last_error()->message);
    evict(c);
}

/* --- looking into it --- */

int64_t ts_cache_limit(void)
{
    return default_limit;
}

ts_status ts_cache_folder(const char *dir, char *path, size_t size)
{
    ts_arena *a = ts_arena_new();
    const char *folder = find_folder(a, &(ts_options){.cache_dir = dir});
    bool fits = (size_t)snprintf(path, size, "%s", folder ? folder : "") < size;

    ts_arena_free(a);
    return fits ? TS_OK : ts_fail(TS_ERR_ARG, "the path of the cache does not fit %zu bytes", size);
}

/* A program only asks for what its own library made: the rest waits for eviction. */
static ts_status check_library(const ts_executable *x)
{
    ts_arena *a = ts_arena_new();
    const char *now = library_text(a);
    ts_status s = TS_OK;

    for (int i = 0; i < x->key.nentries && !s; i++)
        if (!strcmp(x->key.entries[i][0], "tessera") && strcmp(x->key.entries[i][1], now))
            s = ts_fail(TS_ERR_CORRUPT, "another build of the library made it");
    ts_arena_free(a);
    return s;
}

static void look_into(int folder, ts_cache_entry *e)
{
    int fd = openat(folder, e->file, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    ts_executable *x = NULL;
    ts_status s = fd < 0 ? ts_fail(TS_ERR_FILE, "it cannot be opened: %s", strerror(errno))
                         : unpack(e->file, fd, &x);

    if (fd >= 0)
        close(fd);
    if (!s) {
        snprintf(e->model, sizeof(e->model), "%s", x->name);
        s = check_library(x);
    }
    if (s)
        snprintf(e->problem, sizeof(e->problem), "%.255s", ts_last_error()->message);
    ts_executable_free(x);
}

static int used_last_first(const void *p, const void *q)
{
    const ts_cache_entry *a = p, *b = q;

    if (a->used != b->used)
        return a->used < b->used ? 1 : -1;
    return strcmp(a->file, b->file);
}

static ts_cache_entry *read_folder(ts_arena *a, DIR *d, int *n)
{
    ts_cache_entry *entries = NULL;

    for (struct dirent *f; (f = readdir(d));) {
        ts_cache_entry e = {0};
        struct stat st;
        if (strlen(f->d_name) >= sizeof(e.file) ||
            fstatat(dirfd(d), f->d_name, &st, AT_SYMLINK_NOFOLLOW))
            continue;
        memcpy(e.file, f->d_name, strlen(f->d_name));
        e.bytes = st.st_size;
        e.used = st.st_mtim.tv_sec;
        if (is_entry(f->d_name))
            look_into(dirfd(d), &e);
        else if (is_left(dirfd(d), f->d_name))
            snprintf(e.problem, sizeof(e.problem), "a process that was killed left it");
        else
            continue;
        TS_PUSH(a, entries, *n, e);
    }
    if (*n)
        qsort(entries, (size_t)*n, sizeof(*entries), used_last_first);
    return entries;
}

/* TS_OK with *out NULL: there is no cache. */
static ts_status open_folder(const char *dir, DIR **out)
{
    char path[PATH_MAX];

    *out = NULL;
    TS_TRY(ts_cache_folder(dir, path, sizeof(path)));
    if (path[0])
        *out = opendir(path);
    if (!path[0] || *out || errno == ENOENT)
        return TS_OK;
    return ts_fail(TS_ERR_FILE, "the cache %s cannot be opened: %s", path, strerror(errno));
}

ts_status ts_cache_list_sized(const char *dir, ts_cache_entry **entries, size_t size, int *count)
{
    const ts_cache_entry *found;
    ts_arena *a;
    void *out = NULL;
    DIR *d;
    ts_status s;

    *entries = NULL;
    *count = 0;
    TS_TRY(open_folder(dir, &d));
    if (!d)
        return TS_OK;
    a = ts_arena_new();
    found = read_folder(a, d, count);
    closedir(d);
    s = ts_alloc(sizeof(*found) * (size_t)(*count + 1), "the list of the cache", &out);
    if (!s && *count)
        memcpy(out, found, sizeof(*found) * (size_t)*count);
    ts_arena_free(a);
    if (!s)
        s = ts_give_list(&out, *count, sizeof(*found), size);
    *entries = out;
    return s;
}

ts_status ts_cache_remove(const char *dir, const char *file)
{
    DIR *d;
    ts_status s = TS_OK;
    struct stat st;

    TS_TRY(open_folder(dir, &d));
    if (!d || fstatat(dirfd(d), file, &st, AT_SYMLINK_NOFOLLOW) ||
        (!is_entry(file) && !is_left(dirfd(d), file)))
        s = ts_fail(TS_ERR_ARG, "the cache has no entry '%.100s'", file);
    else if (unlinkat(dirfd(d), file, 0))
        s = ts_fail(TS_ERR_FILE, "the cached %s cannot be removed: %s", file, strerror(errno));
    if (d)
        closedir(d);
    return s;
}
