/* build.c - the system's C compiler as a child process.
 *
 * gcc 12.2 judges a function that stores to arrays of two vector widths in one loop pure and
 * deletes the call; -fno-ipa-pure-const and -fno-ipa-modref together cure it
 * (test/render/miscompile.c). No compiler may make a*b+c one rounding by itself: whether it does
 * depends on the code around (gcc does not once it has moved the product out of a loop, and that
 * depends on where the plan put the operands), so a step's bits would depend on the plan. Where one
 * rounding is wanted the text says fma_f32x8(a, b, c).
 *
 * A long source is cut into units, compiled side by side: each is the prelude and some kernels, light
 * ones (render.h) or others. On one core that costs 8 % more; the number of units follows from what is
 * compiled alone, so that every machine makes the same object.
 *
 * Where object code is kept (kept.c), a long source's functions that are there are not compiled:
 *
 *     prelude  constants  k_5d0c  k_91fe  k_3377  pack_f32_16  table
 *                 |       found     |       |       found        |
 *     units       |                 k_91fe k_3377                 with the constants: this program's own
 *     linked      found files       and kept for others           the linker leaves out what nobody calls
 *
 * Functions that kernels call are in units of their own: gcc may know which registers a function leaves alone
 * that it sees, and in another program the linker may take another copy of it.
 */
#include "render/render.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

enum { UNIT_BYTES = 100 * 1024, MAX_UNITS = 64 };
enum {
    KEPT_BYTES = UNIT_BYTES
};                      /* fewer are compiled in less time than it takes to look for them */
enum { LOOK_MS = 100 }; /* between two looks at how far the compiler is */

#define COMMON   "-std=gnu11 -O2 -ffp-contract=off -fno-math-errno -fno-trapping-math"
#define GCC_ONLY "-fno-ipa-pure-const -fno-ipa-modref -fno-tree-bit-ccp"

/* Behind the others, of which it takes the place; what gcc leaves out took a fifth of -O1 and changed no kernel. */
#define LIGHTLY     "-O1"
#define LIGHTLY_GCC LIGHTLY " -fno-tree-dominator-opts -fno-tree-pta -fno-thread-jumps"
#define SHARED      "-shared"
#define KEPT        " -ffunction-sections" /* of files of which not all is used, */
#define PICKED      SHARED " -Wl,-gc-sections -Wl,-z,muldefs" /* and whose functions may be in several */
#define LIBRARIES   "-lm"

static const char *compiler(const ts_options *opt)
{
    const char *cc = opt->cc;

    cc = cc && cc[0] ? cc : getenv("TESSERA_CC");
    cc = cc && cc[0] ? cc : getenv("CC");
    return cc && cc[0] ? cc : "cc";
}

/* Splits "gcc -m64" at blanks into argv; quotes and backslashes keep blanks as a shell would. */
static void add_words(ts_arena *a, char ***argv, int *argc, const char *words)
{
    const char *p = words;

    for (p += strspn(p, " \t\n"); *p; p += strspn(p, " \t\n")) {
        char *word = ts_arena_alloc(a, strlen(p) + 1), quote = 0;
        size_t n = 0;
        for (; *p && (quote || !strchr(" \t\n", *p)); p++) {
            if (quote ? *p == quote : *p == '\'' || *p == '"')
                quote = quote ? 0 : *p;
            else if (*p == '\\' && quote != '\'' && p[1])
                word[n++] = *++p;
            else
                word[n++] = *p;
        }
        TS_PUSH(a, *argv, *argc, word);
    }
}

static void add_word(ts_arena *a, char ***argv, int *argc, const char *word)
{
    TS_PUSH(a, *argv, *argc, ts_arena_strdup(a, word));
}

/* Ours, but messages in English, whose "error:" is looked for, and scratch files in `folder`. */
static char **environment(ts_arena *a, const char *folder)
{
    char **env = NULL;
    int n = 0;

    for (char **e = environ; e && *e; e++)
        if (strncmp(*e, "LC_ALL=", 7) && strncmp(*e, "TMPDIR=", 7))
            TS_PUSH(a, env, n, *e);
    TS_PUSH(a, env, n, ts_arena_strdup(a, "LC_ALL=C"));
    TS_PUSH(a, env, n, ts_arena_printf(a, "TMPDIR=%s", folder));
    TS_PUSH(a, env, n, NULL);
    return env;
}

static void add_end(ts_arena *a, char ***argv, int *argc)
{
    TS_PUSH(a, *argv, *argc, NULL);
}

typedef struct ending {
    int status, signal; /* one of them, or */
    int start_errno;    /* it could not be started */
} ending;

static bool failed(const ending *e)
{
    return e->status || e->signal || e->start_errno;
}

/* Somebody stopped it; there is nothing wrong with the source. */
static bool interrupted(const ending *e)
{
    return e->signal == SIGINT || e->signal == SIGTERM || e->signal == SIGHUP;
}

/* Where a child's output goes: a file, or a descriptor. `held` is one that it has as long as it
 * runs, or -1. */
typedef struct channel {
    const char *log_path;
    int out, held;
} channel;

/* Returns its id, or fails with e->start_errno. */
static pid_t start(char **argv, char **env, channel to, ending *e)
{
    posix_spawn_file_actions_t files;
    pid_t pid = -1;

    *e = (ending){.start_errno = ENOENT};
    if (!argv[0] || ts_fault("compiler"))
        return -1;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
    if (to.log_path)
        posix_spawn_file_actions_addopen(&files, 1, to.log_path, O_WRONLY | O_CREAT | O_APPEND,
                                         0600);
    else
        posix_spawn_file_actions_adddup2(&files, to.out, 1);
    if (to.held >= 0)
        posix_spawn_file_actions_adddup2(&files, to.held, to.held);
    posix_spawn_file_actions_adddup2(&files, 1, 2);
    e->start_errno = posix_spawnp(&pid, argv[0], &files, NULL, argv, env);
    posix_spawn_file_actions_destroy(&files);
    return e->start_errno ? -1 : pid;
}

static ending wait_for(pid_t pid)
{
    int status;

    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return (ending){.start_errno = errno};
    if (WIFEXITED(status))
        return (ending){.status = WEXITSTATUS(status)};
    return (ending){.signal = WTERMSIG(status)};
}

static ending run(char **argv, char **env, channel to)
{
    ending e;
    pid_t pid = start(argv, env, to, &e);

    return pid < 0 ? e : wait_for(pid);
}

/* What `cc --version` says first: a line in the cache's key. NULL when there is no compiler. */
char *ts_cc_identity(ts_arena *a, const ts_options *opt)
{
    char **argv = NULL, line[256] = "";
    int argc = 0, out = memfd_create("tessera-cc", MFD_CLOEXEC);
    ending e;

    if (out < 0)
        return NULL;
    add_words(a, &argv, &argc, compiler(opt));
    add_word(a, &argv, &argc, "--version");
    add_end(a, &argv, &argc);
    e = run(argv, environ, (channel){.out = out, .held = -1});
    if (pread(out, line, sizeof(line) - 1, 0) < 0)
        line[0] = 0;
    close(out);
    line[strcspn(line, "\n")] = 0;
    return failed(&e) ? NULL : ts_arena_printf(a, "%s: %s", compiler(opt), line);
}

const char *ts_cc_flags(ts_arena *a, const ts_isa *isa, const char *identity)
{
    bool clang = identity && strstr(identity, "clang");
    const char *more = getenv("TESSERA_CFLAGS");

    return ts_arena_printf(a, COMMON "%s%s%s -Wno-psabi -fPIC -fvisibility=hidden%s%s",
                           isa->flags[0] ? " " : "", isa->flags, clang ? "" : " " GCC_ONLY,
                           more && more[0] ? " " : "", more ? more : "");
}

static bool is_plain(const char *s)
{
    return !s[strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 ._/=+,:-")];
}

/* A compiler whose name could end the comment that this is in, or needs quotes, is $CC. */
const char *ts_cc_by_hand(ts_arena *a, const ts_options *opt, const char *flags)
{
    const char *cc = compiler(opt);

    return ts_arena_printf(a, "%s %s " SHARED " -o step.so step.c " LIBRARIES,
                           is_plain(cc) ? cc : "$CC", is_plain(flags) ? flags : "$CFLAGS");
}

ts_status ts_cc_missing(const ts_options *opt)
{
    ts_fail(TS_ERR_COMPILER, "cannot run the C compiler '%s'", compiler(opt));
    ts_error_hint("install gcc or clang, or name one in TESSERA_CC");
    return TS_ERR_COMPILER;
}

/* The first line of the log that says error, or its first line. */
static const char *first_error(ts_arena *a, const char *log_path)
{
    char *log, *line, *end;
    size_t len;

    if (ts_file_read(log_path, &log, &len))
        return "no message";
    line = strstr(log, "error:");
    while (line && line > log && line[-1] != '\n')
        line--;
    line = line ? line : log;
    end = strchr(line, '\n');
    line = ts_arena_printf(a, "%.*s", (int)(end ? end - line : (long)strlen(line)), line);
    free(log);
    return line[0] ? line : "no message";
}

static ts_status report(ts_arena *a, const ts_options *opt, const ending *e, const char *c_path,
                        const char *log_path)
{
    if (e->start_errno)
        return ts_cc_missing(opt);
    if (e->signal)
        ts_fail(TS_ERR_COMPILER, "the C compiler '%s' was killed by signal %d (%s): %s",
                compiler(opt), e->signal, strsignal(e->signal), first_error(a, log_path));
    else
        ts_fail(TS_ERR_COMPILER, "the C compiler '%s' failed with status %d: %s", compiler(opt),
                e->status, first_error(a, log_path));
    if (interrupted(e))
        return TS_ERR_COMPILER;
    ts_error_hint("the source is kept in %s, its messages in %s", c_path, log_path);
    return TS_ERR_COMPILER;
}

/* --- units --- */

/* What is compiled alike. The last two are this program's; without kept object code there are two. */
enum { HEAVY, LIGHT, CALLED, OWN, OWN_LIGHT, KINDS };

/* A mark, and what is behind it up to the next one. */
typedef struct piece {
    const char *text, *name; /* NULL: what is of this program alone has none */
    size_t len;
    bool light, found;
    int kind;
} piece;

typedef struct unit {
    ts_text text;
    int kind;
    const char **names;
    int nnames;
} unit;

typedef struct job {
    ts_arena *a;
    const ts_source *src;
    const ts_options *opt;
    ts_kept_search kept; /* in NULL: nothing is */
    ts_temp_folder folder;
    const char *log_path;
    piece *pieces;
    int npieces;
    unit units[MAX_UNITS];
    int nunits;
    bool whole; /* the source is one unit */
    bool keep;  /* the folder: there is something to look at */
    bool stale; /* what was found does not link */
} job;

/* Is a mark at p, and of what? */
static bool read_mark(const char *p, piece *x, int *name)
{
    static const char begin[] = "/* unit", end[] = " */\n";

    if (strncmp(p, begin, strlen(begin)) != 0)
        return false;
    *x = (piece){.text = p};
    p += strlen(begin);
    x->light = !strncmp(p, TS_LIGHT, strlen(TS_LIGHT));
    p += x->light ? strlen(TS_LIGHT) : 0;
    *name = *p == ' ' ? (int)strspn(p + 1, "abcdefghijklmnopqrstuvwxyz0123456789_") : 0;
    x->name = *name ? p + 1 : NULL;
    return !strncmp(p + (*name ? *name + 1 : 0), end, strlen(end));
}

static const char *next_mark(const char *p, piece *x, int *name)
{
    while ((p = strstr(p, "\n/* unit")))
        if (read_mark(++p, x, name))
            return p;
    return NULL;
}

/* Returns the length of what is before the first. */
static size_t read_pieces(job *j)
{
    const char *text = j->src->text, *end = text + j->src->len;
    piece x;
    int name;

    for (const char *p = text; (p = next_mark(p, &x, &name));) {
        x.name = x.name ? ts_arena_printf(j->a, "%.*s", name, x.name) : NULL;
        if (j->npieces)
            j->pieces[j->npieces - 1].len = (size_t)(p - j->pieces[j->npieces - 1].text);
        x.len = (size_t)(end - p);
        TS_PUSH(j->a, j->pieces, j->npieces, x);
    }
    return j->npieces ? (size_t)(j->pieces[0].text - text) : j->src->len;
}

static bool is_long(const job *j)
{
    size_t named = 0;

    for (int i = 0; i < j->npieces; i++)
        named += j->pieces[i].name ? j->pieces[i].len : 0;
    return named > KEPT_BYTES;
}

static void find_kinds(job *j)
{
    int found = 0;

    for (int i = 0; i < j->npieces; i++) {
        piece *x = &j->pieces[i];
        x->kind = x->light ? LIGHT : HEAVY;
        if (!j->kept.in)
            continue;
        if (!x->name)
            x->kind = x->light ? OWN_LIGHT : OWN;
        else if (strncmp(x->name, TS_NAMED, strlen(TS_NAMED)) != 0)
            x->kind = CALLED;
        x->found = x->name && ts_kept_find(&j->kept, x->name, x->light);
        found += x->found;
    }
    if (j->kept.in)
        ts_note(TS_LOG_DEBUG, "%d of %d functions are in %s", found, j->npieces,
                j->kept.in->folder);
}

/* What is of one kind, in so many units from `first` on, each of about the same length. */
typedef struct share {
    size_t bytes, done;
    int first, n;
} share;

/* Bytes of all kinds, and units for them. Returns how many those are. */
static int divide(const job *j, share kinds[KINDS])
{
    int used = 0, n = 0;

    for (int i = 0; i < j->npieces; i++)
        if (!j->pieces[i].found)
            kinds[j->pieces[i].kind].bytes += j->pieces[i].len;
    for (int k = 0; k < KINDS; k++)
        used += kinds[k].bytes > 0;
    for (int k = 0; k < KINDS; k++) {
        kinds[k].first = n;
        if (kinds[k].bytes)
            kinds[k].n = (int)TS_MIN(kinds[k].bytes / UNIT_BYTES + 1, (size_t)(MAX_UNITS / used));
        n += kinds[k].n;
    }
    return n;
}

/* A kernel longer than a unit leaves the next one empty. */
static void drop_empty(job *j)
{
    int n = 0;

    for (int u = 0; u < j->nunits; u++) {
        unit x = j->units[u];
        if (!x.text.len)
            continue;
        j->units[u] = (unit){0};
        j->units[n++] = x;
    }
    j->nunits = n;
}

/* Constants are of this program. */
static void add_piece(job *j, unit *u, const piece *x, size_t head)
{
    bool others = j->kept.in && x->kind < OWN;

    u->kind = x->kind;
    if (!u->text.len)
        ts_text_add(&u->text, j->src->text, others ? j->src->prelude : head);
    ts_text_add(&u->text, x->text, x->len);
    if (others)
        TS_PUSH(j->a, u->names, u->nnames, x->name);
}

/* head | mark kernel | mark kernel | ... | mark table: each unit is the head and a run of kernels
 * of one kind. */
static void cut(job *j)
{
    size_t head = read_pieces(j);
    share kinds[KINDS] = {0};

    if (!is_long(j))
        j->kept.in = NULL;
    find_kinds(j);
    if (j->kept.in || head <= j->src->len - head) /* large constants are not worth repeating */
        j->nunits = divide(j, kinds);
    j->whole = !j->kept.in && j->nunits < 2;
    if (j->whole) {
        j->nunits = 1;
        ts_text_add(&j->units[0].text, j->src->text, j->src->len);
        return;
    }
    for (int i = 0; i < j->npieces; i++) {
        const piece *x = &j->pieces[i];
        share *k = &kinds[x->kind];
        if (x->found)
            continue;
        k->done += x->len;
        add_piece(j, &j->units[k->first + (int)((k->done - x->len) * (size_t)k->n / k->bytes)], x,
                  head);
    }
    drop_empty(j);
}

static const char *unit_path(job *j, int u, const char *suffix)
{
    return j->whole ? ts_arena_printf(j->a, "%s/step.%s", j->folder.path, suffix)
                    : ts_arena_printf(j->a, "%s/step%d.%s", j->folder.path, u, suffix);
}

/* cc <flags> <words> -o <to> <from...> */
static char **command(job *j, const char *words, const char *to, const char *const *from, int n)
{
    char **argv = NULL;
    int argc = 0;

    add_words(j->a, &argv, &argc, compiler(j->opt));
    add_words(j->a, &argv, &argc, j->src->flags);
    add_words(j->a, &argv, &argc, words);
    add_word(j->a, &argv, &argc, "-o");
    add_word(j->a, &argv, &argc, to);
    for (int i = 0; i < n; i++)
        add_word(j->a, &argv, &argc, from[i]);
    add_words(j->a, &argv, &argc, LIBRARIES);
    add_end(j->a, &argv, &argc);
    return argv;
}

static channel to_log(const job *j)
{
    return (channel){.log_path = j->log_path, .held = j->folder.lock};
}

static ts_status judge(job *j, const ending *e, const char *c_path)
{
    if (!failed(e))
        return TS_OK;
    j->keep = j->keep || (!e->start_errno && !interrupted(e));
    return report(j->a, j->opt, e, c_path, j->log_path);
}

/* The units that are left, and how those that were begun ended. */
typedef struct crew {
    job *j;
    const char *const *objects;
    pthread_mutex_t lock;
    pthread_cond_t ended; /* a unit */
    int begun, running;
    bool stop;
    size_t all, done,
        open;      /* bytes of text: of all units, of those that ended, of those that run */
    int functions; /* in the units that run */
    int told;      /* percents */
    ending ends[MAX_UNITS];
} crew;

/* Kernels, and the table. */
static int functions(const char *text)
{
    int n = 0, name;
    piece x;

    for (const char *p = text; (p = next_mark(p, &x, &name));)
        n++;
    return n;
}

/* From 40 to 90 percent, as the text is compiled. Of units that run counts what is seen of them. */
static void tell(crew *c)
{
    const ts_options *opt = c->j->opt;
    int seen = c->functions ? ts_cc_functions(c->j->folder.path) : 0;
    double open = seen ? (double)c->open * TS_MIN(seen, c->functions) / c->functions : 0;
    int percent = 40 + (int)(50 * ((double)c->done + open) / (double)c->all);

    if (percent > c->told)
        opt->progress(opt->progress_arg, percent);
    c->told = TS_MAX(percent, c->told);
}

/* Only the thread that asked for the compile may tell: who listens need not expect another. */
static bool tells(const crew *c, int member)
{
    return member == 0 && c->j->opt->progress;
}

/* Waits for a child, and looks how far it is meanwhile. */
static ending wait_telling(crew *c, pid_t pid)
{
    struct pollfd end = {.fd = (int)syscall(SYS_pidfd_open, pid, 0), .events = POLLIN};
    int n = 0;

    while (end.fd >= 0 && ((n = poll(&end, 1, LOOK_MS)) == 0 || (n < 0 && errno == EINTR))) {
        pthread_mutex_lock(&c->lock);
        tell(c);
        pthread_mutex_unlock(&c->lock);
    }
    if (end.fd >= 0)
        close(end.fd);
    return wait_for(pid);
}

/* The lock is held. Until all units have ended: others may still be at theirs. */
static void tell_the_rest(crew *c)
{
    struct timespec until;

    while (c->running) {
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += LOOK_MS * 1000000L;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        pthread_cond_timedwait(&c->ended, &c->lock, &until);
        tell(c);
    }
}

/* What a unit's compiler is told. One that is alone is compiled and linked at once. */
static const char *words_of(const job *j, int u)
{
    int kind = j->units[u].kind;
    bool light = kind == LIGHT || kind == OWN_LIGHT;

    if (j->whole)
        return SHARED;
    return ts_arena_printf(j->a, "%s -c%s",
                           !light                            ? ""
                           : strstr(j->src->flags, GCC_ONLY) ? LIGHTLY_GCC
                                                             : LIGHTLY,
                           j->kept.in ? KEPT : "");
}

static pid_t start_unit(crew *c, int u)
{
    const char *c_path = unit_path(c->j, u, "c"), *words = words_of(c->j, u);

    return start(command(c->j, words, c->objects[u], &c_path, 1),
                 environment(c->j->a, c->j->folder.path), to_log(c->j), &c->ends[u]);
}

/* A unit has begun (1) or ended (-1). */
static void count(crew *c, int u, int sign)
{
    const ts_text *t = &c->j->units[u].text;

    c->running += sign;
    c->open += (size_t)sign * t->len;
    c->functions += sign * functions(t->s);
    c->done += sign < 0 ? t->len : 0;
}

static void compile_unit(crew *c, int member, int u)
{
    pid_t pid = start_unit(c, u);

    count(c, u, 1);
    if (pid >= 0) {
        pthread_mutex_unlock(&c->lock);
        ending e = tells(c, member) ? wait_telling(c, pid) : wait_for(pid);
        pthread_mutex_lock(&c->lock);
        c->ends[u] = e;
    }
    count(c, u, -1);
    c->stop = c->stop || failed(&c->ends[u]);
    pthread_cond_signal(&c->ended);
}

/* What each member does: the next unit, until there is none or one has failed. The lock is held
 * but while waiting: the arena is shared. */
static void compile_some(void *arg, int member, int size)
{
    crew *c = arg;

    (void)size;
    pthread_mutex_lock(&c->lock);
    while (!c->stop && c->begun < c->j->nunits) {
        compile_unit(c, member, c->begun++);
        if (tells(c, member))
            tell(c);
    }
    if (tells(c, member))
        tell_the_rest(c);
    pthread_mutex_unlock(&c->lock);
}

/* As many at a time as there are cores. Of those that fail the first is reported. */
static ts_status compile_units(job *j, const char *const *objects)
{
    crew c = {.j = j,
              .objects = objects,
              .lock = PTHREAD_MUTEX_INITIALIZER,
              .ended = PTHREAD_COND_INITIALIZER,
              .told = 40};
    ts_team *team;

    for (int u = 0; u < j->nunits; u++)
        c.all += j->units[u].text.len;
    TS_TRY(ts_team_new(TS_MIN(ts_team_default_size(), j->nunits), &team));
    ts_team_run(team, compile_some, &c);
    ts_team_free(team);
    for (int u = 0; u < c.begun; u++)
        TS_TRY(judge(j, &c.ends[u], unit_path(j, u, "c")));
    return TS_OK;
}

static ts_status write_units(job *j)
{
    for (int u = 0; u < j->nunits; u++)
        TS_TRY(
            ts_file_write_private(unit_path(j, u, "c"), j->units[u].text.s, j->units[u].text.len));
    return TS_OK;
}

/* As files to link: their bytes were checked, and nobody else can write here. */
static ts_status write_found(job *j, const char ***objects, int *n)
{
    const ts_kept_object *o;

    for (int i = 0; i < j->kept.nfiles; i++) {
        const char *path = ts_arena_printf(j->a, "%s/kept%d.o", j->folder.path, i);
        o = ts_kept_found(&j->kept, i);
        if (!o)
            continue;
        TS_TRY(ts_file_write_private(path, o->code, o->bytes));
        TS_PUSH(j->a, *objects, *n, path);
    }
    return TS_OK;
}

/* A program that was linked is one whose units others can be linked of. */
static void keep_unit(job *j, const unit *u, const char *object)
{
    ts_kept_unit k = {.names = u->names, .nnames = u->nnames, .light = u->kind == LIGHT};
    char *code;

    if (!u->nnames || j->kept.in->full || ts_file_read(object, &code, &k.bytes))
        return;
    k.code = code;
    ts_kept_put(j->a, j->kept.in, &k);
    free(code);
}

static ts_status link_units(job *j, const char **objects, const char *so_path)
{
    int n = j->nunits;
    ending e;

    TS_TRY(write_found(j, &objects, &n));
    e = run(command(j, j->kept.in ? PICKED : SHARED, so_path, objects, n),
            environment(j->a, j->folder.path), to_log(j));
    j->stale = failed(&e) && !interrupted(&e) && n > j->nunits;
    TS_TRY(judge(j, &e, unit_path(j, 0, "c")));
    for (int u = 0; u < j->nunits && j->kept.in; u++)
        keep_unit(j, &j->units[u], objects[u]);
    return TS_OK;
}

static ts_status compile_job(job *j, const char *so_path)
{
    const char **objects = NULL;
    int n = 0;

    TS_TRY(write_units(j));
    for (int u = 0; u < j->nunits; u++)
        TS_PUSH(j->a, objects, n, j->whole ? so_path : unit_path(j, u, "o"));
    TS_TRY(compile_units(j, objects));
    return j->whole ? TS_OK : link_units(j, objects, so_path);
}

/* --- the folder --- */

typedef struct watcher {
    pid_t pid; /* -1: there is none */
    int line;  /* closes with this process */
} watcher;

/* A shell that removes the folder when this process ends without a word, by Ctrl-C or however it
 * is killed. A signal for all of us must not end it too, nor a terminal's before its trap is set:
 * it is in a group of its own. A compiler that outlives us may write once more while it is
 * removed. */
static watcher watch(char *folder)
{
    static char script[] =
        "trap '' INT TERM HUP; read word || for i in 1 2 3 4 5; do rm -rf -- \"$0\" && exit; "
        "sleep 0.2; done";
    char *argv[] = {"sh", "-c", script, folder, NULL};
    watcher w = {.pid = -1, .line = -1};
    posix_spawn_file_actions_t files;
    posix_spawnattr_t how;
    int ends[2];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends))
        return w;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, ends[1], 0);
    posix_spawn_file_actions_addopen(&files, 1, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_adddup2(&files, 1, 2);
    posix_spawnattr_init(&how);
    posix_spawnattr_setflags(&how, POSIX_SPAWN_SETPGROUP);
    if (posix_spawn(&w.pid, "/bin/sh", &files, &how, argv, environ))
        w.pid = -1;
    posix_spawnattr_destroy(&how);
    posix_spawn_file_actions_destroy(&files);
    close(ends[1]);
    w.line = ends[0];
    return w;
}

static void unwatch(const watcher *w)
{
    if (w->line >= 0) {
        (void)!send(w->line, "\n", 1, MSG_NOSIGNAL);
        close(w->line);
    }
    if (w->pid >= 0)
        wait_for(w->pid);
}

/* A compiler that says it is done and made nothing is one that failed. */
static ts_status take_object(const job *j, const char *so_path, char **object, size_t *bytes)
{
    if (!access(so_path, F_OK))
        return ts_file_read(so_path, object, bytes);
    ts_fail(TS_ERR_COMPILER, "the C compiler '%s' made no file, and said it was done",
            compiler(j->opt));
    ts_error_hint("name another one in TESSERA_CC");
    return TS_ERR_COMPILER;
}

static ts_status attempt(job *j, char **object, size_t *bytes)
{
    const char *so_path;
    ts_status s;
    watcher w;

    TS_TRY(ts_temp_folder_new(&j->folder));
    so_path = ts_arena_printf(j->a, "%s/step.so", j->folder.path);
    j->log_path = ts_arena_printf(j->a, "%s/cc.log", j->folder.path);
    w = watch(j->folder.path);
    cut(j);
    s = compile_job(j, so_path);
    if (!s)
        s = take_object(j, so_path, object, bytes);
    if (j->keep && !j->stale)
        ts_temp_folder_keep(&j->folder);
    else
        ts_temp_folder_remove(&j->folder);
    unwatch(&w);
    for (int u = 0; u < j->nunits; u++)
        ts_text_free(&j->units[u].text);
    return s;
}

ts_status ts_cc_build(const ts_source *src, const ts_options *opt, const ts_kept *kept,
                      char **object, size_t *bytes)
{
    ts_arena *a = ts_arena_new();
    job j = {.a = a, .src = src, .opt = opt, .kept = {.a = a, .in = kept}};
    ts_status s = attempt(&j, object, bytes);

    if (j.stale) {
        ts_note(TS_LOG_WARN, "not using the kernels in %s: %s", kept->folder,
                ts_last_error()->message);
        j = (job){.a = a, .src = src, .opt = opt};
        s = attempt(&j, object, bytes);
    }
    ts_arena_free(a);
    return s;
}
