/* build.c - the system's C compiler as a child process, and which instructions it may use.
 *
 * gcc 12.2 judges a function that stores to arrays of two vector widths in one loop pure and
 * deletes the call; -fno-ipa-pure-const and -fno-ipa-modref together cure it
 * (test/render/miscompile.c). Contraction of a*b+c to one rounding is asked for explicitly, the
 * same with every compiler.
 */
#include "render/render.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

#define COMMON                                                                                     \
    "-std=gnu11 -O2 -fno-ipa-pure-const -fno-ipa-modref -ffp-contract=fast -fno-math-errno "       \
    "-fno-trapping-math"

static const ts_isa isas[] = {
    {"x86-64-v4", COMMON " -march=x86-64-v4 -mtune=native", 16, 32},
    {"x86-64-v3", COMMON " -march=x86-64-v3", 8, 16},
    {"portable", COMMON, 4, 16},
};

/* The best of them this machine runs; those after it in the table run too. */
static const char *this_machine(void)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
        __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2")) {
        if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
            __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw"))
            return "x86-64-v4";
        return "x86-64-v3";
    }
#endif
    return "portable";
}

static int isa_index(const char *name)
{
    for (int i = 0; i < TS_COUNT(isas); i++)
        if (!strcmp(isas[i].name, name))
            return i;
    return -1;
}

ts_status ts_isa_check(const char *isa)
{
    int i = isa_index(isa);

    if (i >= 0 && i >= isa_index(this_machine()))
        return TS_OK;
    ts_fail(TS_ERR_UNSUPPORTED, "the step is compiled for %s; this machine runs %s", isa,
            this_machine());
    ts_error_hint("compile it on this machine, or with isa = \"portable\"");
    return TS_ERR_UNSUPPORTED;
}

ts_status ts_isa_find(const char *name, ts_isa *out)
{
    const char *env = getenv("TESSERA_ISA");

    name = name ? name : env && env[0] ? env : this_machine();
    if (isa_index(name) >= 0) {
        *out = isas[isa_index(name)];
        return TS_OK;
    }
    ts_fail(TS_ERR_ARG, "the instruction set '%s' is not known", name);
    ts_error_hint("use x86-64-v4, x86-64-v3 or portable");
    return TS_ERR_ARG;
}

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

/* Runs `argv` with its output in log_path, or to the descriptor `out`. */
static ending run(char **argv, char **env, const char *log_path, int out)
{
    posix_spawn_file_actions_t files;
    ending e = {0};
    pid_t pid;
    int status;

    if (!argv[0] || ts_fault("compiler"))
        return (ending){.start_errno = ENOENT};
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
    if (log_path)
        posix_spawn_file_actions_addopen(&files, 1, log_path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    else
        posix_spawn_file_actions_adddup2(&files, out, 1);
    posix_spawn_file_actions_adddup2(&files, 1, 2);
    e.start_errno = posix_spawnp(&pid, argv[0], &files, NULL, argv, env);
    posix_spawn_file_actions_destroy(&files);
    if (e.start_errno)
        return e;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return (ending){.start_errno = errno};
    if (WIFEXITED(status))
        e.status = WEXITSTATUS(status);
    else
        e.signal = WTERMSIG(status);
    return e;
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
    e = run(argv, environ, NULL, out);
    if (pread(out, line, sizeof(line) - 1, 0) < 0)
        line[0] = 0;
    close(out);
    line[strcspn(line, "\n")] = 0;
    return failed(&e) ? NULL : ts_arena_printf(a, "%s: %s", compiler(opt), line);
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
    ts_error_hint("the source is kept in %s, its messages in %s", c_path, log_path);
    return TS_ERR_COMPILER;
}

static ts_status compile_in(ts_arena *a, const ts_source *src, const ts_options *opt,
                            const char *folder, const char *so_path, bool *keep)
{
    const char *c_path = ts_arena_printf(a, "%s/step.c", folder);
    const char *log_path = ts_arena_printf(a, "%s/cc.log", folder);
    char **argv = NULL;
    int argc = 0;
    ending e;

    TS_TRY(ts_file_write_private(c_path, src->text, src->len));
    add_words(a, &argv, &argc, compiler(opt));
    add_words(a, &argv, &argc, src->isa.flags);
    add_words(a, &argv, &argc, TS_CC_LINK " -o");
    add_word(a, &argv, &argc, so_path);
    add_word(a, &argv, &argc, c_path);
    add_word(a, &argv, &argc, "-lm");
    add_end(a, &argv, &argc);
    e = run(argv, environment(a, folder), log_path, -1);
    *keep = failed(&e) && !e.start_errno;
    return failed(&e) ? report(a, opt, &e, c_path, log_path) : TS_OK;
}

ts_status ts_cc_build(const ts_source *src, const ts_options *opt, char **object, size_t *bytes)
{
    ts_arena *a = ts_arena_new();
    char folder[3072];
    bool keep = false;
    ts_status s = ts_file_temp_folder(folder, sizeof(folder));

    if (!s) {
        const char *so_path = ts_arena_printf(a, "%s/step.so", folder);
        s = compile_in(a, src, opt, folder, so_path, &keep);
        if (!s)
            s = ts_file_read(so_path, object, bytes);
        if (!keep)
            ts_file_remove_folder(folder);
    }
    ts_arena_free(a);
    return s;
}
