/* clock.c - how long exported C takes, as the compiler of this machine makes it: the sources and a
 * program of a few lines that runs the net go into a folder of their own, which is removed again.
 */
#include "tool.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PATH_ROOM = 400 };

static const char timer[] =
    "#include \"%s.h\"\n"
    "#include <stdio.h>\n"
    "#include <time.h>\n"
    "static double in[%s_INPUT], out[%s_OUTPUT];\n"
    "int main(void)\n"
    "{\n"
    "    double best = 1e30;\n"
    "    for (int round = 0; round < 5; round++) {\n"
    "        clock_t start = clock();\n"
    "        long n = 0;\n"
    "        while (clock() - start < CLOCKS_PER_SEC / 20)\n"
    "            for (int i = 0; i < 4; i++, n++)\n"
    "                %s_run((const void *)in, (void *)out);\n"
    "        double t = (double)(clock() - start) / CLOCKS_PER_SEC / (double)n;\n"
    "        best = t < best ? t : best;\n"
    "    }\n"
    "    printf(\"%%.9g\\n\", best);\n"
    "    return 0;\n"
    "}\n";

static bool write_text(const char *folder, const char *name, const char *suffix, const char *text)
{
    char path[PATH_ROOM + 100];
    FILE *f;
    bool good;

    snprintf(path, sizeof(path), "%s/%s%s", folder, name, suffix);
    f = fopen(path, "w");
    if (!f)
        return false;
    good = fputs(text, f) >= 0;
    return !fclose(f) && good;
}

static bool write_timer(const char *folder, const char *name)
{
    char upper[64], text[sizeof(timer) + 400];
    size_t n = strlen(name);

    for (size_t i = 0; i <= n && i < sizeof(upper); i++)
        upper[i] = (char)toupper((unsigned char)name[i]);
    upper[sizeof(upper) - 1] = 0;
    snprintf(text, sizeof(text), timer, name, upper, upper, name);
    return write_text(folder, "timer", ".c", text);
}

/* Runs words[0] in the folder; what it prints goes to `out`, which may be -1. */
static bool runs(const char *folder, const char *const *words, int out)
{
    int status;
    pid_t child = fork();

    if (child < 0)
        return false;
    if (!child) {
        if (chdir(folder) || (out >= 0 && dup2(out, STDOUT_FILENO) < 0))
            _exit(127);
        execvp(words[0], (char *const *)words);
        _exit(127);
    }
    return waitpid(child, &status, 0) == child && WIFEXITED(status) && !WEXITSTATUS(status);
}

static bool build(const char *folder, const char *name)
{
    const char *cc = getenv("TESSERA_CC") ? getenv("TESSERA_CC") : getenv("CC");
    char source[100];

    snprintf(source, sizeof(source), "%s.c", name);
    return runs(folder,
                (const char *[]){cc && cc[0] ? cc : "cc", "-std=c99", "-O3", "-w", "timer.c",
                                 source, "-lm", "-o", "timer", NULL},
                -1);
}

static bool run_timer(const char *folder, double *seconds)
{
    char path[PATH_ROOM + 20], text[64] = "";
    FILE *f;
    bool good;

    snprintf(path, sizeof(path), "%s/seconds", folder);
    f = fopen(path, "w+");
    if (!f)
        return false;
    good = runs(folder, (const char *[]){"./timer", NULL}, fileno(f));
    rewind(f);
    good = good && fgets(text, sizeof(text), f);
    fclose(f);
    *seconds = strtod(text, NULL);
    return good && *seconds > 0;
}

static void remove_all(const char *folder, const char *name)
{
    const char *const files[] = {"timer.c", "timer", "seconds"};
    char path[PATH_ROOM + 100];

    for (int i = 0; i < 5; i++) {
        snprintf(path, sizeof(path), "%s/%s%s", folder, i < 3 ? files[i] : name,
                 i < 3    ? ""
                 : i == 3 ? ".c"
                          : ".h");
        unlink(path);
    }
    rmdir(folder);
}

bool clock_c(const ts_c_files *c, double *seconds)
{
    const char *where = getenv("TMPDIR");
    char folder[PATH_ROOM];
    bool good;

    snprintf(folder, sizeof(folder), "%.300s/tessera-XXXXXX", where && where[0] ? where : "/tmp");
    if (!mkdtemp(folder))
        return false;
    good = write_text(folder, c->name, ".c", c->source) &&
           write_text(folder, c->name, ".h", c->header) && write_timer(folder, c->name) &&
           build(folder, c->name) && run_timer(folder, seconds);
    remove_all(folder, c->name);
    return good;
}
