/* cache.c - executables of earlier compiles, found by what they were made from.
 *
 *   <folder>/<hash>.tse    an executable file; hash is over the key's named entries
 *   <folder>/<hash>.lock   held (flock) by the process that makes it, gone when it is made
 *   <folder>/kernels/      object code of kernels, for programs that are not here yet: render/kept.c
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

#define KERNELS "kernels" /* the folder of their object code */

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

static ts_status unpack(const char *path, int fd, ts_executable **out)
{
    char *file;
    size_t len;
    ts_status s;

    TS_TRY(ts_file_read_ours(fd, &file, &len));
    s = ts_executable_unpack(path, file, len, out);
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

/* kernels/<key>.o, all but the folder */
static bool is_kernel(const char *name)
{
    return strspn(name, "0123456789abcdef") == TS_KEPT_KEY && !strcmp(name + TS_KEPT_KEY, ".o");
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

const ts_kept *ts_cache_kept(ts_cache *c)
{
    static const char *const maker[] = {"abi", "isa", "compiler", "flags"};
    ts_kept *k;
    ts_text t = {0};

    if (!c)
        return NULL;
    k = TS_NEW(c->a, ts_kept);
    for (int i = 0; i < TS_COUNT(maker); i++)
        ts_text_printf(&t, "%s\n", entry_of(c->key, maker[i]));
    k->folder = ts_arena_printf(c->a, "%s/" KERNELS, c->folder);
    k->origin = entry_of(c->key, "tessera");
    k->maker = ts_arena_copy(c->a, t.s, t.len + 1);
    k->full = c->off;
    ts_text_free(&t);
    return k;
}

/* Several names may be one file, of object code. */
typedef struct file {
    const char *name;
    struct timespec used;
    int64_t bytes;
    ino_t inode;
} file;

static int older_first(const void *p, const void *q)
{
    const file *a = p, *b = q;

    if (a->used.tv_sec != b->used.tv_sec)
        return a->used.tv_sec < b->used.tv_sec ? -1 : 1;
    if (a->used.tv_nsec != b->used.tv_nsec)
        return a->used.tv_nsec < b->used.tv_nsec ? -1 : 1;
    return (a->inode > b->inode) - (a->inode < b->inode);
}

/* <hash>.lock, or <hash>.tse or .o and what ts_file_write adds: of a process that was killed, unless
 * it is locked. */
static bool is_passing(const char *name)
{
    size_t n = strspn(name, "0123456789abcdef");

    return n == HASH && (!strcmp(name + n, ".lock") || !strncmp(name + n, ".tse.", 5) ||
                         !strncmp(name + n, ".o.", 3));
}

static bool is_left(int folder, const char *name)
{
    return is_passing(name) && ts_temp_left(folder, name, false);
}

/* Adds the files of a folder whose names are to be trusted, as "kernels/...". */
static void list(ts_cache *c, DIR *d, const char *prefix, file **files, int *n)
{
    for (struct dirent *e; d && (e = readdir(d));) {
        struct stat st;
        if (fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) || !S_ISREG(st.st_mode))
            continue;
        if (prefix[0] ? is_kernel(e->d_name) : is_entry(e->d_name)) {
            file f = {.name = ts_arena_printf(c->a, "%s%s", prefix, e->d_name),
                      .used = st.st_mtim,
                      .bytes = st.st_size,
                      .inode = st.st_ino};
            TS_PUSH(c->a, *files, *n, f);
        } else if (is_passing(e->d_name))
            (void)ts_temp_left(dirfd(d), e->d_name, true);
    }
}

/* NULL: there are none. */
static DIR *open_kernels(DIR *d)
{
    int fd = openat(dirfd(d), KERNELS, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *kernels = fd < 0 ? NULL : fdopendir(fd);

    if (fd >= 0 && !kernels)
        close(fd);
    return kernels;
}

/* Oldest first. A file's bytes are those of the last of its names. */
static file *list_all(ts_cache *c, DIR *d, int *n, int64_t *total)
{
    DIR *kernels = open_kernels(d);
    file *files = NULL;

    list(c, d, "", &files, n);
    list(c, kernels, KERNELS "/", &files, n);
    if (kernels)
        closedir(kernels);
    if (*n)
        qsort(files, (size_t)*n, sizeof(*files), older_first);
    for (int i = 0; i < *n; i++) {
        if (i + 1 < *n && files[i].inode == files[i + 1].inode)
            files[i].bytes = 0;
        *total += files[i].bytes;
    }
    return files;
}

/* Removes what was not used for longest until the rest fits, but not what was just made. */
static void evict(ts_cache *c)
{
    DIR *d = opendir(c->folder);
    int64_t total = 0;
    int n = 0;
    file *files = d ? list_all(c, d, &n, &total) : NULL;

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
static ts_status check_library(const char *library, size_t len)
{
    ts_arena *a = ts_arena_new();
    const char *now = library_text(a);
    bool same = strlen(now) == len && !memcmp(now, library, len);

    ts_arena_free(a);
    return same ? TS_OK : ts_fail(TS_ERR_CORRUPT, "another build of the library made it");
}

static ts_status look_into_executable(ts_cache_entry *e, int fd)
{
    ts_executable *x = NULL;
    ts_status s = unpack(e->file, fd, &x);

    if (!s) {
        const char *library = entry_of(&x->key, "tessera");
        snprintf(e->model, sizeof(e->model), "%s", x->name);
        s = check_library(library, strlen(library));
    }
    ts_executable_free(x);
    return s;
}

static ts_status look_into_kernels(int fd)
{
    ts_kept_object o;
    char *file;
    size_t len;
    ts_status s;

    TS_TRY(ts_file_read_ours(fd, &file, &len));
    s = ts_kept_unpack(file, len, &o);
    if (!s)
        s = check_library(o.origin, (size_t)o.origin_len);
    free(file);
    return s;
}

static void look_into(int folder, ts_cache_entry *e)
{
    int fd = openat(folder, e->file, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    ts_status s = fd < 0       ? ts_fail(TS_ERR_FILE, "it cannot be opened: %s", strerror(errno))
                  : e->kernels ? look_into_kernels(fd)
                               : look_into_executable(e, fd);

    if (fd >= 0)
        close(fd);
    if (s)
        snprintf(e->problem, sizeof(e->problem), "%.255s", ts_last_error()->message);
}

static int used_last_first(const void *p, const void *q)
{
    const ts_cache_entry *a = p, *b = q;

    if (a->used != b->used)
        return a->used < b->used ? 1 : -1;
    return strcmp(a->file, b->file);
}

typedef struct listing {
    ts_arena *a;
    ts_cache_entry *entries;
    ino_t *inodes;
    int n, ninodes;
} listing;

static void add_entry(listing *l, const ts_cache_entry *e, ino_t inode)
{
    TS_PUSH(l->a, l->entries, l->n, *e);
    TS_PUSH(l->a, l->inodes, l->ninodes, inode);
}

/* Of object code, which has a name for each kernel, one entry. */
static bool is_known(listing *l, ino_t inode)
{
    for (int i = 0; i < l->n; i++)
        if (l->entries[i].kernels && l->inodes[i] == inode) {
            l->entries[i].kernels++;
            return true;
        }
    return false;
}

static void read_folder(listing *l, DIR *root, DIR *d, const char *prefix)
{
    for (struct dirent *f; (f = readdir(d));) {
        ts_cache_entry e = {0};
        struct stat st;
        int n = snprintf(e.file, sizeof(e.file), "%s%s", prefix, f->d_name);
        if (n >= (int)sizeof(e.file) || fstatat(dirfd(d), f->d_name, &st, AT_SYMLINK_NOFOLLOW))
            continue;
        e.bytes = st.st_size;
        e.used = st.st_mtim.tv_sec;
        e.kernels = prefix[0] && is_kernel(f->d_name);
        if (e.kernels && is_known(l, st.st_ino))
            continue;
        if (e.kernels || (!prefix[0] && is_entry(f->d_name)))
            look_into(dirfd(root), &e);
        else if (is_left(dirfd(d), f->d_name))
            snprintf(e.problem, sizeof(e.problem), "a process that was killed left it");
        else
            continue;
        add_entry(l, &e, st.st_ino);
    }
}

static listing read_all(ts_arena *a, DIR *d)
{
    listing l = {.a = a};
    DIR *kernels = open_kernels(d);

    read_folder(&l, d, d, "");
    if (kernels) {
        read_folder(&l, d, kernels, KERNELS "/");
        closedir(kernels);
    }
    if (l.n)
        qsort(l.entries, (size_t)l.n, sizeof(*l.entries), used_last_first);
    return l;
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
    listing found;
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
    found = read_all(a, d);
    *count = found.n;
    closedir(d);
    s = ts_alloc(sizeof(**entries) * (size_t)(found.n + 1), "the list of the cache", &out);
    if (!s && found.n)
        memcpy(out, found.entries, sizeof(**entries) * (size_t)found.n);
    ts_arena_free(a);
    if (!s)
        s = ts_give_list(&out, *count, sizeof(**entries), size);
    *entries = out;
    return s;
}

/* With all of its names. */
static int remove_kernels(DIR *d, const struct stat *file)
{
    DIR *kernels = open_kernels(d);
    int failed = kernels ? 0 : -1;

    for (struct dirent *e; kernels && !failed && (e = readdir(kernels));) {
        struct stat st;
        if (is_kernel(e->d_name) && !fstatat(dirfd(kernels), e->d_name, &st, AT_SYMLINK_NOFOLLOW) &&
            st.st_ino == file->st_ino)
            failed = unlinkat(dirfd(kernels), e->d_name, 0);
    }
    if (kernels)
        closedir(kernels);
    return failed;
}

ts_status ts_cache_remove(const char *dir, const char *file)
{
    bool inside = !strncmp(file, KERNELS "/", strlen(KERNELS "/"));
    const char *name = inside ? file + strlen(KERNELS "/") : file;
    bool kernel = inside && is_kernel(name);
    DIR *d;
    ts_status s = TS_OK;
    struct stat st;

    TS_TRY(open_folder(dir, &d));
    if (!d || strchr(name, '/') || fstatat(dirfd(d), file, &st, AT_SYMLINK_NOFOLLOW) ||
        (!kernel && (inside || !is_entry(name)) &&
         !(is_passing(name) && ts_temp_left(dirfd(d), file, false))))
        s = ts_fail(TS_ERR_ARG, "the cache has no entry '%.100s'", file);
    else if (kernel ? remove_kernels(d, &st) : unlinkat(dirfd(d), file, 0))
        s = ts_fail(TS_ERR_FILE, "the cached %s cannot be removed: %s", file, strerror(errno));
    if (d)
        closedir(d);
    return s;
}
