/* build.c - the system's C compiler as a child process, and which instructions it may use.
 *
 * gcc 12.2 judges a function that stores to arrays of two vector widths in one loop pure and
 * deletes the call; -fno-ipa-pure-const and -fno-ipa-modref together cure it
 * (test/render/miscompile.c). clang has neither, and says so: then we do without. Contraction of
 * a*b+c to one rounding is asked for explicitly, the same with every compiler.
 */
#include "render/render.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

#define COMMON   "-std=gnu11 -O2 -ffp-contract=fast -fno-math-errno -fno-trapping-math"
#define GCC_ONLY "-fno-ipa-pure-const -fno-ipa-modref"

static const ts_isa isas[] = {
    {"x86-64-v4", COMMON " -march=x86-64-v4 -mtune=native", 16, 32},
    {"x86-64-v3", COMMON " -march=x86-64-v3", 8, 16},
    {"portable", COMMON, 4, 16},
};

static const char *this_machine(void)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw"))
        return "x86-64-v4";
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return "x86-64-v3";
#endif
    return "portable";
}

ts_status ts_isa_find(const char *name, ts_isa *out)
{
    const char *env = getenv("TESSERA_ISA");

    name = name ? name : env && env[0] ? env : this_machine();
    for (int i = 0; i < TS_COUNT(isas); i++)
        if (!strcmp(isas[i].name, name)) {
            *out = isas[i];
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

/* Runs `argv` with its output in log_path; returns the exit status, -1 when it could not start. */
static int run(char **argv, const char *log_path)
{
    posix_spawn_file_actions_t files;
    pid_t pid;
    int status, failed;

    if (ts_fault("compiler"))
        return -1;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&files, 1, log_path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_adddup2(&files, 1, 2);
    failed = posix_spawnp(&pid, argv[0], &files, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&files);
    if (failed)
        return -1;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Splits "gcc -m64" and flags at blanks into argv. */
static void add_words(ts_arena *a, char ***argv, int *argc, const char *words)
{
    while (*words) {
        size_t n = strcspn(words, " ");
        if (n)
            TS_PUSH(a, *argv, *argc, ts_arena_printf(a, "%.*s", (int)n, words));
        words += n;
        words += strspn(words, " ");
    }
}

bool ts_cc_present(const ts_options *opt)
{
    ts_arena *a = ts_arena_new();
    char **argv = NULL;
    int argc = 0, status;

    add_words(a, &argv, &argc, compiler(opt));
    TS_PUSH(a, argv, argc, ts_arena_strdup(a, "--version"));
    TS_PUSH(a, argv, argc, NULL);
    status = run(argv, "/dev/null");
    ts_arena_free(a);
    return !status;
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
    return line;
}

static int run_compiler(ts_arena *a, const ts_options *opt, const char *flags, const char *more,
                        const char *c_path, const char *so_path, const char *log_path)
{
    char **argv = NULL;
    int argc = 0;

    add_words(a, &argv, &argc, compiler(opt));
    add_words(a, &argv, &argc, flags);
    add_words(a, &argv, &argc, more);
    add_words(a, &argv, &argc, "-w -fPIC -shared -fvisibility=hidden -o");
    TS_PUSH(a, argv, argc, ts_arena_strdup(a, so_path));
    TS_PUSH(a, argv, argc, ts_arena_strdup(a, c_path));
    TS_PUSH(a, argv, argc, ts_arena_strdup(a, "-lm"));
    TS_PUSH(a, argv, argc, NULL);
    return run(argv, log_path);
}

ts_status ts_cc_build(const ts_source *src, const ts_options *opt, const char *folder,
                      const char *so_path)
{
    ts_arena *a = ts_arena_new();
    const char *c_path = ts_arena_printf(a, "%s/step.c", folder),
               *log_path = ts_arena_printf(a, "%s/cc.log", folder);
    int status;
    ts_status s = ts_file_write(c_path, src->text, src->len);

    if (s) {
        ts_arena_free(a);
        return s;
    }
    status = run_compiler(a, opt, src->isa.flags, GCC_ONLY, c_path, so_path, log_path);
    if (status > 0 && strstr(first_error(a, log_path), "-fno-ipa-"))
        status = run_compiler(a, opt, src->isa.flags, "", c_path, so_path, log_path);
    if (status < 0)
        s = ts_fail(TS_ERR_COMPILER, "cannot run the C compiler '%s'", compiler(opt));
    else if (status) {
        s = ts_fail(TS_ERR_COMPILER, "the C compiler '%s' failed with status %d: %s", compiler(opt),
                    status, first_error(a, log_path));
        ts_error_hint("the source is kept in %s, its messages in %s", c_path, log_path);
    }
    ts_arena_free(a);
    return s;
}
