/* files.c - exported C on its way: into a folder, or through this machine's compiler.
 *
 * All files are written under other names first and renamed when all are there. A file that is
 * there and not ours is left alone unless it may be replaced.
 */
#include "export/export.h"
#include <errno.h>
#include <limits.h>
#include <unistd.h>

enum { FILES = 4 };

typedef struct place {
    char path[PATH_MAX];
    const char *text; /* NULL: there is none */
    ts_file_out out;
} place;

/* --- into a folder --- */

/* Is there such a file, and not made by us? */
static bool foreign(const char *path)
{
    char head[256];
    FILE *f = fopen(path, "r");
    size_t n;

    if (!f)
        return errno != ENOENT;
    n = fread(head, 1, sizeof(head) - 1, f);
    fclose(f);
    head[n] = 0;
    return !strstr(head, "made by Tessera");
}

static ts_status refuse(const char *path)
{
    ts_fail(TS_ERR_FILE, "%s is there, and no export wrote it", path);
    ts_error_hint("choose another folder, or replace it: --force of 'tessera export'");
    return TS_ERR_FILE;
}

static ts_status find_places(const ts_c_files *f, const char *folder, bool replace, place *at)
{
    const char *const texts[FILES] = {f->header, f->source, f->example, f->expected};
    const char *const ends[FILES] = {".h", ".c", "main.c", "expected.txt"};
    bool ours = false; /* main.c is there and ours; then so is expected.txt, which cannot say so */

    for (int i = 0; i < FILES; i++) {
        const char *name = ends[i][0] == '.' ? f->name : "";
        if ((size_t)snprintf(at[i].path, sizeof(at[i].path), "%s/%s%s", folder, name, ends[i]) >=
            sizeof(at[i].path))
            return ts_fail(TS_ERR_FILE, "the path of the folder %.60s... is too long", folder);
        at[i].text = texts[i];
        if (texts[i] && !replace && !(ours && i == FILES - 1) && foreign(at[i].path))
            return refuse(at[i].path);
        ours = !access(at[i].path, F_OK);
    }
    return TS_OK;
}

/* Those that were begun are ended, whatever happens: with a failure none is there. */
static ts_status write_places(place *at)
{
    ts_status s = TS_OK;
    int begun = 0;

    for (; begun < FILES && !s; begun++)
        if (at[begun].text && (s = ts_file_begin(&at[begun].out, at[begun].path)))
            break;
    for (int i = 0; i < begun && !s; i++)
        if (at[i].text)
            s = ts_file_put(&at[i].out, at[i].text, strlen(at[i].text));
    for (int i = 0; i < begun; i++)
        if (at[i].text)
            s = ts_file_end(&at[i].out, 0644, s);
    return s;
}

ts_status ts_c_files_write(const ts_c_files *f, const char *folder, bool replace)
{
    place *at;
    ts_status s;

    if (!f || !f->header || !folder || !folder[0])
        return ts_fail(TS_ERR_ARG, "writing C needs the files of an export and a folder");
    TS_TRY(ts_alloc(FILES * sizeof(*at), "the files", (void **)&at));
    s = find_places(f, folder, replace, at);
    if (!s)
        s = write_places(at);
    free(at);
    return s;
}

/* --- through the compiler --- */

struct ts_c_net {
    void *library;
    void (*run)(const void *const *in, void *const *out);
};

static void put_arguments(ts_text *t, const ts_c_files *f)
{
    for (int i = 0; i < f->inputs; i++)
        ts_text_printf(t, "%sin[%d]", i ? ", " : "", i);
    for (int i = 0; i < f->outputs; i++)
        ts_text_printf(t, "%sout[%d]", i || f->inputs ? ", " : "", i);
}

/* One file of all: the header, the source without the line that includes it, and a function that
 * every net has alike. */
static ts_status one_text(const ts_c_files *f, ts_text *t)
{
    char include[100];
    const char *at;

    snprintf(include, sizeof(include), "#include \"%s.h\"\n", f->name);
    at = strstr(f->source, include);
    if (!at)
        return ts_fail(TS_ERR_ARG, "the source of '%s' is not that of an export", f->name);
    ts_text_add(t, f->header, strlen(f->header));
    ts_text_add(t, f->source, (size_t)(at - f->source));
    ts_text_add(t, at + strlen(include), strlen(at + strlen(include)));
    ts_text_printf(t,
                   "\nvoid tessera_run(const void *const *in, void *const *out);\n"
                   "void tessera_run(const void *const *in, void *const *out)\n{\n"
                   "    %s_run(",
                   f->name);
    put_arguments(t, f);
    ts_text_printf(t, ");\n}\n");
    return TS_OK;
}

static ts_status compile(const ts_c_files *f, char **object, size_t *bytes)
{
    ts_text all = {0};
    ts_source src = {.flags = "-std=c99 -O3 -w -fPIC"};
    ts_status s = one_text(f, &all);

    src.text = all.s;
    src.len = all.len;
    if (!s)
        s = ts_cc_build(&src, &(ts_options){0}, NULL, object, bytes);
    ts_text_free(&all);
    return s;
}

static ts_status load(const char *object, size_t bytes, ts_c_net *n)
{
    void *run;

    TS_TRY(ts_library_open(object, bytes, &n->library));
    run = ts_library_symbol(n->library, "tessera_run");
    memcpy(&n->run, &run, sizeof(run));
    return run ? TS_OK : ts_fail(TS_ERR_COMPILER, "the compiled net has no function to call");
}

ts_status ts_c_net_new(const ts_c_files *f, ts_c_net **out)
{
    char *object = NULL;
    size_t bytes;
    ts_status s;

    if (!f || !f->header || !f->source || !out)
        return ts_fail(TS_ERR_ARG, "a net of C needs the files of an export and a place for it");
    TS_TRY(ts_alloc(sizeof(**out), "a net", (void **)out));
    s = compile(f, &object, &bytes);
    if (!s)
        s = load(object, bytes, *out);
    free(object);
    if (s) {
        ts_error_doing("compiling the exported net '%s'", f->name);
        ts_c_net_free(*out);
        *out = NULL;
    }
    return s;
}

void ts_c_net_run(const ts_c_net *n, const void *const *inputs, void *const *outputs)
{
    n->run(inputs, outputs);
}

void ts_c_net_free(ts_c_net *n)
{
    if (!n)
        return;
    ts_library_close(n->library);
    free(n);
}
