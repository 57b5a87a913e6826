/* monitor.c - the machine's virtual devices and who uses them, across processes.
 *
 *   $XDG_RUNTIME_DIR/tessera or /tmp/tessera-UID      mode 0700, ours
 *     4711.88123.0                                    pid, its start time, the n-th attachment
 *       header: who; then a row a device: id, memory, calls, busy time
 *
 * An attachment is such a file, mapped by its process. The engine counts in the mapping: two stores
 * and an add for a call or a section, and nobody waits. Others read the file. A process that is
 * killed leaves its file; whoever looks next sees that no process has that pid and start time, and
 * removes it. The name has both, so it cannot be that of a later process.
 *
 * Ids are given while the folder is locked. What is in the folder is not trusted: only regular
 * files of this user, of the right size, that say what their name says, count.
 */
#include "run/engine.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <pwd.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { MOST_DEVICES = 4096, MOST_FILES = 65536, FORMAT = 1 };
static const char MAGIC[8] = "tsdevic";

typedef struct device_row {
    _Alignas(64) int32_t id;
    int32_t exclusive;
    _Atomic int64_t memory;
    _Atomic uint64_t calls, busy; /* nanoseconds */
    _Atomic uint64_t since;       /* when it began what it does, on the monotonic clock; 0: idle */
} device_row;

typedef struct header {
    char magic[8];
    uint32_t format, count;
    int64_t pid;
    uint64_t started;  /* the process, in ticks after boot  */
    uint64_t space;    /* its pid namespace                 */
    uint64_t attached; /* on the monotonic clock, nanoseconds */
    char command[128];
} header;

typedef struct board {
    _Alignas(64) header head;
    device_row rows[];
} board;

struct ts_attachment {
    board *board; /* in shared memory, or our own when nobody is to know */
    size_t bytes;
    bool mapped;
    char path[PATH_MAX]; /* "" for none */
    int64_t pid;         /* that made it: not that of a fork */
    atomic_int users;
    struct ts_attachment *next; /* of those that have a file */
};

static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
static ts_attachment *all; /* of this process, with a file */

static uint64_t nanoseconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static size_t board_bytes(int count)
{
    return sizeof(board) + sizeof(device_row) * (size_t)count;
}

/* --- processes --- */

static size_t read_small(const char *path, char *out, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, out, size - 1);

    if (fd >= 0)
        close(fd);
    n = n > 0 ? n : 0;
    out[n] = 0;
    return (size_t)n;
}

/* When a process started, in ticks after boot; 0: there is none. Field 22 of its stat; the name
 * before it may have blanks and parentheses in it. A zombie is gone already. */
static uint64_t start_of(int64_t pid)
{
    char path[64], text[1024], *p;

    snprintf(path, sizeof(path), "/proc/%" PRId64 "/stat", pid);
    if (!read_small(path, text, sizeof(text)))
        return 0;
    p = strrchr(text, ')');
    if (!p || p[1] != ' ' || p[2] == 'Z' || p[2] == 'X')
        return 0;
    for (int field = 2; p && field < 22; field++)
        p = strchr(p + 1, ' ');
    return p ? strtoull(p, NULL, 10) : 0;
}

static uint64_t pid_space(void)
{
    struct stat st;

    return stat("/proc/self/ns/pid", &st) ? 0 : (uint64_t)st.st_ino;
}

/* "tessera train fashion-mnist": the program without its folder, and what follows. */
static void own_command(char *out, size_t size)
{
    char text[4096];
    size_t n = read_small("/proc/self/cmdline", text, sizeof(text));
    char *slash = strrchr(text, '/'), *at = slash ? slash + 1 : text;

    for (char *p = at; p < text + n; p++)
        if (*p == 0)
            *p = p + 1 < text + n ? ' ' : 0;
    snprintf(out, size, "%.*s", (int)size - 1, at);
}

static void fill_header(header *h, int count)
{
    memcpy(h->magic, MAGIC, sizeof(h->magic));
    h->format = FORMAT;
    h->count = (uint32_t)count;
    h->pid = getpid();
    h->started = start_of(h->pid);
    h->space = pid_space();
    h->attached = nanoseconds();
    own_command(h->command, sizeof(h->command));
}

/* --- the folder --- */

static bool switched_off(void)
{
    const char *s = getenv("TESSERA_MONITOR");

    return s && !strcmp(s, "0");
}

/* Opens it; -1: it is not there or not ours alone, and errno says why. */
static int open_folder(char *path, size_t size, bool make)
{
    const char *run = getenv("XDG_RUNTIME_DIR");
    struct stat st;
    int fd;

    if (run && run[0] == '/')
        snprintf(path, size, "%s/tessera", run);
    else
        snprintf(path, size, "/tmp/tessera-%ld", (long)geteuid());
    if (make && mkdir(path, 0700) && errno != EEXIST)
        return -1;
    fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return -1;
    if (!fstat(fd, &st) && st.st_uid == geteuid() && !(st.st_mode & 077))
        return fd;
    close(fd);
    errno = EPERM;
    return -1;
}

/* Somebody who was stopped while he had the lock must not stop us. */
static bool lock_folder(int fd)
{
    for (int i = 0; i < 200; i++) {
        if (!flock(fd, LOCK_EX | LOCK_NB))
            return true;
        if (errno != EWOULDBLOCK && errno != EINTR)
            return false;
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    return false;
}

/* --- reading it --- */

/* "4711.88123.0" */
static bool read_name(const char *name, int64_t *pid, uint64_t *started)
{
    unsigned n;
    int end = 0;

    return name[0] >= '1' && name[0] <= '9' &&
           sscanf(name, "%9" SCNd64 ".%20" SCNu64 ".%9u%n", pid, started, &n, &end) == 3 &&
           !name[end];
}

/* The file as it is now, or NULL; free() it. */
static board *read_board(int folder, const char *name)
{
    int fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    struct stat st;
    board *b = NULL;
    bool whole;

    if (fd < 0)
        return NULL;
    if (!fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_uid == geteuid() &&
        st.st_size >= (off_t)board_bytes(0) && st.st_size <= (off_t)board_bytes(MOST_DEVICES))
        b = aligned_alloc(64, TS_ROUND_UP((size_t)st.st_size, 64));
    whole = b && read(fd, b, (size_t)st.st_size) == (ssize_t)st.st_size &&
            !memcmp(b->head.magic, MAGIC, sizeof(MAGIC)) && b->head.format == FORMAT &&
            b->head.count <= MOST_DEVICES && board_bytes((int)b->head.count) == (size_t)st.st_size;
    close(fd);
    if (whole)
        return b;
    free(b);
    return NULL;
}

typedef void visit_fn(void *arg, const board *b);

/* One entry of the folder: counted when its process lives, removed when it does not. */
static void visit(int folder, const char *name, uint64_t space, visit_fn *fn, void *arg)
{
    int64_t pid;
    uint64_t started;
    board *b = read_name(name, &pid, &started) ? read_board(folder, name) : NULL;

    if (!b)
        return;
    b->head.command[sizeof(b->head.command) - 1] = 0;
    if (b->head.pid == pid && b->head.started == started && b->head.space == space) {
        if (start_of(pid) == started)
            fn(arg, b);
        else
            (void)unlinkat(folder, name, 0);
    }
    free(b);
}

static void visit_all(int folder, visit_fn *fn, void *arg)
{
    int again = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), n = 0;
    uint64_t space = pid_space();
    DIR *d = again < 0 ? NULL : fdopendir(again);

    if (!d && again >= 0)
        close(again);
    for (struct dirent *e; d && n < MOST_FILES && (e = readdir(d)); n++)
        visit(folder, e->d_name, space, fn, arg);
    if (d)
        closedir(d);
}

/* --- ids --- */

int ts_device_count(void)
{
    const char *s = getenv("TESSERA_DEVICES");
    long n = s ? strtol(s, NULL, 10) : 0;

    return n < 0 ? 0 : (int)TS_MIN(n, MOST_DEVICES);
}

static int most_devices(void)
{
    return ts_device_count() ? ts_device_count() : MOST_DEVICES;
}

/* How each id is used: bits */
enum { OURS = 1, THEIRS = 2, EXCLUSIVE = 4 };
typedef struct usage {
    int64_t pid;
    uint8_t of[MOST_DEVICES];
} usage;

static void add_usage(void *arg, const board *b)
{
    usage *u = arg;

    for (uint32_t i = 0; i < b->head.count; i++) {
        const device_row *r = &b->rows[i];
        if (r->id < 0 || r->id >= MOST_DEVICES)
            continue;
        u->of[r->id] |= b->head.pid == u->pid ? OURS : THEIRS;
        if (r->exclusive && b->head.pid != u->pid)
            u->of[r->id] |= EXCLUSIVE;
    }
}

static bool is_free(const usage *u, int id, bool exclusive)
{
    return !(u->of[id] & (exclusive ? THEIRS : EXCLUSIVE));
}

/* The lowest ids that pass: bits all of which, or none of which, are set. */
static int pick(const usage *u, int *ids, int n, int count, int with, int without)
{
    int most = most_devices();

    for (int id = 0; id < most && n < count; id++) {
        bool known = false;
        for (int i = 0; i < n; i++)
            known = known || ids[i] == id;
        if (!known && (u->of[id] & with) == with && !(u->of[id] & without))
            ids[n++] = id;
    }
    return n;
}

/* True when there are enough. An engine is never refused: it shares devices, in the end all. */
static bool find_ids(const usage *u, const ts_attach_options *o, bool engine, int *ids)
{
    int n = 0, count = o->count;

    if (o->ids) {
        memcpy(ids, o->ids, sizeof(int) * (size_t)count);
        for (int i = 0; i < count; i++)
            if (!is_free(u, ids[i], o->exclusive))
                return false;
        return true;
    }
    if (engine)
        n = pick(u, ids, n, count, OURS, 0);
    n = pick(u, ids, n, count, 0, OURS | THEIRS);
    if (engine) {
        n = pick(u, ids, n, count, 0, EXCLUSIVE);
        for (int i = n; i < count; i++)
            ids[i] = i % most_devices();
        n = count;
    }
    return n == count;
}

/* --- files --- */

static void remove_files(void)
{
    pthread_mutex_lock(&guard);
    for (ts_attachment *a = all; a; a = a->next)
        if (a->pid == getpid())
            unlink(a->path);
    pthread_mutex_unlock(&guard);
}

static void remember(ts_attachment *a)
{
    static bool registered;

    pthread_mutex_lock(&guard);
    a->next = all;
    all = a;
    if (!registered)
        registered = !atexit(remove_files);
    pthread_mutex_unlock(&guard);
}

/* Blocks are reserved: a full disk must not stop the process when it counts. */
static board *map_file(int folder, const char *name, size_t bytes)
{
    int fd = openat(folder, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    void *at = MAP_FAILED;

    if (fd < 0)
        return NULL;
    if (!posix_fallocate(fd, 0, (off_t)bytes))
        at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (at == MAP_FAILED)
        unlinkat(folder, name, 0);
    return at == MAP_FAILED ? NULL : at;
}

/* Readers see no magic before all else is there. */
static bool publish(ts_attachment *a, int folder, const char *path, const header *h,
                    const device_row *rows)
{
    static atomic_uint made;
    char name[96];
    header blank = *h;

    snprintf(name, sizeof(name), "%" PRId64 ".%" PRIu64 ".%u", h->pid, h->started,
             atomic_fetch_add(&made, 1));
    if ((size_t)snprintf(a->path, sizeof(a->path), "%s/%s", path, name) >= sizeof(a->path))
        return false;
    a->board = map_file(folder, name, a->bytes);
    if (!a->board)
        return false;
    a->mapped = true;
    memset(blank.magic, 0, sizeof(blank.magic));
    memcpy(a->board->rows, rows, sizeof(device_row) * h->count);
    a->board->head = blank;
    atomic_thread_fence(memory_order_release);
    memcpy(a->board->head.magic, MAGIC, sizeof(MAGIC));
    remember(a);
    return true;
}

/* Without a file: the counting goes on, and nobody sees it. */
static bool keep_private(ts_attachment *a, const header *h, const device_row *rows)
{
    a->path[0] = 0;
    a->board = aligned_alloc(64, TS_ROUND_UP(a->bytes, 64));
    if (!a->board)
        return false;
    a->board->head = *h;
    memcpy(a->board->rows, rows, sizeof(device_row) * h->count);
    return true;
}

/* --- attaching --- */

typedef struct request {
    ts_attach_options o;
    bool engine;
} request;

typedef struct scratch {
    usage usage;
    int *ids;
    device_row *rows;
} scratch;

static void fill_rows(const request *r, const int *ids, device_row *rows)
{
    memset(rows, 0, sizeof(*rows) * (size_t)r->o.count);
    for (int i = 0; i < r->o.count; i++) {
        rows[i].id = ids[i];
        rows[i].exclusive = r->o.exclusive;
    }
}

typedef enum outcome { DONE, BUSY, BROKEN } outcome;

/* With the folder locked. */
static outcome attach_in(ts_attachment *a, const request *r, int folder, const char *path,
                         const header *h, scratch *x)
{
    visit_all(folder, add_usage, &x->usage);
    if (!find_ids(&x->usage, &r->o, r->engine, x->ids))
        return BUSY;
    fill_rows(r, x->ids, x->rows);
    return publish(a, folder, path, h, x->rows) ? DONE : BROKEN;
}

static outcome try_attach(ts_attachment *a, const request *r, scratch *x)
{
    char path[PATH_MAX];
    header h = {0};
    outcome result = BROKEN;
    int folder;

    fill_header(&h, r->o.count);
    memset(&x->usage, 0, sizeof(x->usage));
    x->usage.pid = h.pid;
    if (switched_off()) { /* nobody is asked and nobody is told */
        (void)find_ids(&x->usage, &r->o, r->engine, x->ids);
        fill_rows(r, x->ids, x->rows);
        return keep_private(a, &h, x->rows) ? DONE : BROKEN;
    }
    folder = h.started ? open_folder(path, sizeof(path), true) : -1;
    if (folder >= 0 && lock_folder(folder))
        result = attach_in(a, r, folder, path, &h, x);
    if (folder >= 0)
        close(folder); /* and the lock */
    return result;
}

static ts_status refuse(const request *r, outcome why, const usage *u)
{
    int id = -1;

    if (why == BROKEN) {
        ts_fail(TS_ERR_FILE, "cannot write to the folder of attached devices: %s", strerror(errno));
        ts_error_hint("it is $XDG_RUNTIME_DIR/tessera or /tmp/tessera-UID, and must be this user's "
                      "alone; TESSERA_MONITOR=0 goes without");
        return TS_ERR_FILE;
    }
    for (int i = 0; r->o.ids && i < r->o.count && id < 0; i++)
        id = is_free(u, r->o.ids[i], r->o.exclusive) ? -1 : r->o.ids[i];
    if (id >= 0)
        ts_fail(TS_ERR_ARG, "device %d is in use by another process", id);
    else
        ts_fail(TS_ERR_ARG, "%d devices are not free; TESSERA_DEVICES says that there are %d",
                r->o.count, ts_device_count());
    ts_error_hint("'tessera monitor' shows who has which; ts_attach_options.wait waits for them");
    return TS_ERR_ARG;
}

static ts_status check(const ts_attach_options *o)
{
    int most = most_devices();

    if (o->count < 1 || o->count > most)
        return ts_fail(TS_ERR_ARG, "%d devices cannot be attached; there are %d", o->count, most);
    for (int i = 0; o->ids && i < o->count; i++) {
        if (o->ids[i] < 0 || o->ids[i] >= most)
            return ts_fail(TS_ERR_ARG, "there is no device %d; they have the numbers 0 to %d",
                           o->ids[i], most - 1);
        for (int k = 0; k < i; k++)
            if (o->ids[k] == o->ids[i])
                return ts_fail(TS_ERR_ARG, "device %d is asked for twice", o->ids[i]);
    }
    return TS_OK;
}

static outcome try_until(ts_attachment *a, const request *r, scratch *x)
{
    double end = ts_now() + r->o.wait;
    outcome result;

    while ((result = try_attach(a, r, x)) == BUSY && (r->o.wait < 0 || ts_now() < end))
        nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    return result;
}

static ts_status attach(const request *r, ts_attachment **out)
{
    size_t n = (size_t)r->o.count;
    ts_attachment *a = calloc(1, sizeof(*a));
    scratch *x = calloc(1, sizeof(*x));
    ts_status s = TS_ERR_MEMORY;
    outcome result = BROKEN;

    if (x) {
        x->ids = calloc(n, sizeof(*x->ids));
        x->rows = aligned_alloc(64, sizeof(*x->rows) * n);
    }
    if (a && x && x->ids && x->rows) {
        a->bytes = board_bytes(r->o.count);
        a->pid = getpid();
        atomic_init(&a->users, 1);
        result = try_until(a, r, x);
        s = result == DONE ? TS_OK : refuse(r, result, &x->usage);
    } else
        ts_fail(s, "no memory to attach %zu devices", n);
    if (s) {
        free(a);
        a = NULL;
    }
    if (x) {
        free(x->ids);
        free(x->rows);
    }
    free(x);
    *out = a;
    return s;
}

ts_status ts_device_attach_sized(const ts_attach_options *opt, size_t size, ts_attachment **out)
{
    request r = {0};

    if (!out)
        return ts_fail(TS_ERR_ARG, "attaching devices needs a place for the attachment");
    *out = NULL;
    TS_TRY(ts_take_sized("ts_device_attach", opt, size, &r.o, sizeof(r.o)));
    if (!r.o.count)
        r.o.count = 1;
    TS_TRY(check(&r.o));
    return attach(&r, out);
}

void ts_device_detach(ts_attachment *a)
{
    if (!a || atomic_fetch_sub(&a->users, 1) > 1)
        return;
    if (a->path[0]) {
        pthread_mutex_lock(&guard);
        for (ts_attachment **p = &all; *p; p = &(*p)->next)
            if (*p == a) {
                *p = a->next;
                break;
            }
        pthread_mutex_unlock(&guard);
        if (a->pid == getpid())
            unlink(a->path);
    }
    if (a->mapped)
        munmap(a->board, a->bytes);
    else
        free(a->board);
    free(a);
}

int ts_device_id(const ts_attachment *a, int i)
{
    return a && i >= 0 && i < (int)a->board->head.count ? a->board->rows[i].id : -1;
}

/* --- engines --- */

static int devices_of(const ts_executable *x)
{
    return TS_MAX(1, x->pipe.ndevices) * x->replicas;
}

static void add_memory(const ts_engine *e, int sign)
{
    const ts_executable *x = e->exe;
    int n = devices_of(x);

    for (int i = 0; e->devices && (x->module || x->gpu) && i < n; i++)
        atomic_fetch_add_explicit(&e->devices->board->rows[i].memory,
                                  sign * (int64_t)x->bytes[i % x->pipe.ndevices].peak,
                                  memory_order_relaxed);
}

/* Its own, quietly: a run does not fail because nobody can see it. */
static ts_attachment *attach_own(int count)
{
    ts_error before = *ts_last_error();
    ts_attachment *a = NULL;

    if (!switched_off() && count <= MOST_DEVICES &&
        attach(&(request){.o.count = count, .engine = true}, &a))
        ts_error_set(&before);
    return a;
}

ts_status ts_monitor_enter(ts_engine *e, ts_attachment *given)
{
    int n = devices_of(e->exe);

    if (given && (int)given->board->head.count < n) {
        ts_fail(TS_ERR_ARG, "the run needs %d devices and is given %d", n,
                (int)given->board->head.count);
        ts_error_hint("attach as many as devices of the pipeline times replicas");
        return TS_ERR_ARG;
    }
    if (given)
        atomic_fetch_add(&given->users, 1);
    e->devices = given ? given : attach_own(n);
    add_memory(e, 1);
    return TS_OK;
}

void ts_monitor_leave(ts_engine *e)
{
    add_memory(e, -1);
    ts_device_detach(e->devices);
    e->devices = NULL;
}

void ts_monitor_begin(const ts_engine *e, int device)
{
    if (e->devices)
        atomic_store_explicit(&e->devices->board->rows[device].since, nanoseconds(),
                              memory_order_relaxed);
}

void ts_monitor_end(const ts_engine *e, int device)
{
    device_row *r = e->devices ? &e->devices->board->rows[device] : NULL;
    uint64_t since;

    if (!r)
        return;
    since = atomic_exchange_explicit(&r->since, 0, memory_order_relaxed);
    atomic_fetch_add_explicit(&r->busy, nanoseconds() - since, memory_order_relaxed);
    atomic_fetch_add_explicit(&r->calls, 1, memory_order_relaxed);
}

/* --- listing --- */

typedef struct listing {
    ts_device_use *uses;
    int n, room;
    uint64_t now;
    char user[64];
    bool failed;
} listing;

static ts_device_use *find_use(listing *l, int64_t pid, int device)
{
    for (int i = 0; i < l->n; i++)
        if (l->uses[i].pid == pid && l->uses[i].device == device)
            return &l->uses[i];
    if (l->n == l->room) {
        int room = TS_MAX(16, 2 * l->room);
        void *more = realloc(l->uses, sizeof(*l->uses) * (size_t)room);
        if (!more) {
            l->failed = true;
            return NULL;
        }
        l->uses = more;
        l->room = room;
    }
    l->uses[l->n] = (ts_device_use){.device = device, .pid = pid};
    return &l->uses[l->n++];
}

static void add_row(listing *l, const board *b, const device_row *r)
{
    uint64_t since = atomic_load_explicit(&r->since, memory_order_relaxed);
    uint64_t busy = atomic_load_explicit(&r->busy, memory_order_relaxed);
    double age = l->now > b->head.attached ? 1e-9 * (double)(l->now - b->head.attached) : 0;
    ts_device_use *u = find_use(l, b->head.pid, r->id);

    if (!u)
        return;
    if (since && since < l->now)
        busy += l->now - since;
    snprintf(u->command, sizeof(u->command), "%s", b->head.command);
    snprintf(u->user, sizeof(u->user), "%s", l->user);
    u->seconds = TS_MAX(u->seconds, age);
    u->busy += 1e-9 * (double)busy;
    u->memory += atomic_load_explicit(&r->memory, memory_order_relaxed);
    u->calls += (int64_t)atomic_load_explicit(&r->calls, memory_order_relaxed);
    u->exclusive = u->exclusive || r->exclusive;
}

static void add_board(void *arg, const board *b)
{
    for (uint32_t i = 0; i < b->head.count; i++)
        if (b->rows[i].id >= 0 && b->rows[i].id < MOST_DEVICES)
            add_row(arg, b, &b->rows[i]);
}

static int by_process(const void *x, const void *y)
{
    const ts_device_use *a = x, *b = y;

    if (a->pid != b->pid)
        return a->pid < b->pid ? -1 : 1;
    return a->device - b->device;
}

ts_status ts_device_list_sized(ts_device_use **uses, size_t size, int *count)
{
    char path[PATH_MAX], names[4096];
    struct passwd who, *found = NULL;
    listing l = {0};
    int folder;

    if (!uses || !count)
        return ts_fail(TS_ERR_ARG, "the list of devices in use needs a place for it");
    *uses = NULL;
    *count = 0;
    folder = open_folder(path, sizeof(path), false);
    if (folder < 0)
        return TS_OK;
    if (getpwuid_r(geteuid(), &who, names, sizeof(names), &found) || !found)
        snprintf(l.user, sizeof(l.user), "%ld", (long)geteuid());
    else
        snprintf(l.user, sizeof(l.user), "%s", found->pw_name);
    l.now = nanoseconds();
    visit_all(folder, add_board, &l);
    close(folder);
    if (l.failed) {
        free(l.uses);
        return ts_fail(TS_ERR_MEMORY, "no memory for the list of devices in use");
    }
    if (l.n)
        qsort(l.uses, (size_t)l.n, sizeof(*l.uses), by_process);
    TS_TRY(ts_give_list(&l.uses, l.n, sizeof(*l.uses), size));
    *uses = l.uses;
    *count = l.n;
    return TS_OK;
}
