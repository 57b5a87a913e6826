/* shipped.c - exported C as the compiler of this machine makes it: to see how fast and how good what
 * is shipped is. The sources go into a folder of their own, become a library that is loaded, and
 * are removed again.
 */
#include "net.h"
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PATH_ROOM = 400, FILES = 4 };

/* --- samples --- */

parts parts_of(const ts_model *m)
{
    int64_t dims[TS_MAX_RANK];
    ts_dtype type;
    parts p = {0};

    for (int rank; p.n < INPUTS && (rank = ts_model_input_at(m, p.n, dims, &type)) >= 0; p.n++) {
        p.size[p.n] = 1;
        for (int d = 0; d < rank; d++)
            p.size[p.n] *= dims[d];
        p.whole[p.n] = type != TS_F32;
        p.all += p.size[p.n];
    }
    return p;
}

static void copy_part(const parts *p, int i, const float *from, int64_t row, void *out)
{
    for (int64_t k = 0; k < p->size[i]; k++)
        if (p->whole[i])
            ((int32_t *)out)[row * p->size[i] + k] = (int32_t)from[k];
        else
            ((float *)out)[row * p->size[i] + k] = from[k];
}

void parts_split(const parts *p, int64_t rows, const float *samples, void *const *out)
{
    for (int64_t row = 0; row < rows; row++)
        for (int i = 0; i < p->n; samples += p->size[i++])
            copy_part(p, i, samples, row, out[i]);
}

/* --- building --- */

static const char *const ends[FILES] = {".c", ".h", "shim.c", "net.so"};

static void file_path(const char *folder, const char *name, int i, char *out, size_t size)
{
    snprintf(out, size, "%s/%s%s", folder, i < 2 ? name : "", ends[i]);
}

static bool write_text(const char *folder, const char *name, int i, const char *text)
{
    char path[PATH_ROOM + 100];
    FILE *f;
    bool good;

    file_path(folder, name, i, path, sizeof(path));
    f = fopen(path, "w");
    if (!f)
        return false;
    good = fputs(text, f) >= 0;
    return !fclose(f) && good;
}

/* A function that every net has alike. */
static bool write_shim(const char *folder, const char *name, int inputs)
{
    char text[4096];
    int n = snprintf(text, sizeof(text),
                     "#include \"%s.h\"\nvoid shim(const void *const *in, void *const *out);\n"
                     "void shim(const void *const *in, void *const *out)\n{\n    %s_run(",
                     name, name);

    for (int i = 0; i < inputs && n < (int)sizeof(text) - 64; i++)
        n += snprintf(text + n, sizeof(text) - (size_t)n, "in[%d], ", i);
    snprintf(text + n, sizeof(text) - (size_t)n, "out[0]);\n}\n");
    return write_text(folder, name, 2, text);
}

static bool runs(const char *folder, const char *const *words)
{
    int status;
    pid_t child = fork();

    if (child < 0)
        return false;
    if (!child) {
        if (!chdir(folder))
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
                (const char *[]){cc && cc[0] ? cc : "cc", "-std=c99", "-O3", "-w", "-shared",
                                 "-fPIC", "shim.c", source, "-lm", "-o", "net.so", NULL});
}

static bool load(const char *folder, const char *name, shipped *out)
{
    char path[PATH_ROOM + 100];
    void *run;

    file_path(folder, name, FILES - 1, path, sizeof(path));
    out->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    run = out->library ? dlsym(out->library, "shim") : NULL;
    memcpy(&out->run, &run, sizeof(run));
    return run != NULL;
}

bool shipped_open(const ts_c_files *c, const ts_model *m, int64_t batch, shipped *out)
{
    const char *where = getenv("TMPDIR");
    char folder[PATH_ROOM], path[PATH_ROOM + 100];
    bool good;

    *out = (shipped){.parts = parts_of(m), .batch = batch};
    for (int i = 0; i < out->parts.n; i++)
        if (!(out->in[i] = calloc((size_t)(batch * out->parts.size[i]), sizeof(float))))
            return false;
    snprintf(folder, sizeof(folder), "%.300s/tessera-XXXXXX", where && where[0] ? where : "/tmp");
    if (!mkdtemp(folder))
        return false;
    good = write_text(folder, c->name, 0, c->source) && write_text(folder, c->name, 1, c->header) &&
           write_shim(folder, c->name, out->parts.n) && build(folder, c->name) &&
           load(folder, c->name, out);
    for (int i = 0; i < FILES; i++) {
        file_path(folder, c->name, i, path, sizeof(path));
        unlink(path);
    }
    rmdir(folder);
    return good;
}

void shipped_close(shipped *s)
{
    if (s->library)
        dlclose(s->library);
    for (int i = 0; i < s->parts.n; i++)
        free(s->in[i]);
    *s = (shipped){0};
}

void shipped_run(const shipped *s, const void *samples, float *out)
{
    if (s->parts.n == 1) {
        s->run(&samples, (void *[]){out});
        return;
    }
    parts_split(&s->parts, s->batch, samples, s->in);
    s->run((const void *const *)s->in, (void *[]){out});
}

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The best of five looks of a twentieth of a second. */
double shipped_seconds(const shipped *s, const void *samples, float *out)
{
    double best = 1e30;

    for (int round = 0; round < 5; round++) {
        double start = now(), t;
        long n = 0;
        do {
            shipped_run(s, samples, out);
            n++;
        } while (now() - start < 0.05);
        t = (now() - start) / (double)n;
        best = t < best ? t : best;
    }
    return best;
}
