/* plots.c - where the pictures of a command go: the options --plots and --no-plots. */
#include "tool.h"
#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

static struct {
    const char *folder;
    bool none;
} args;

const option plot_options[] = {
    {"plots", "DIR", KIND_TEXT, &args.folder,
     "write pictures there; the current folder if not "
     "given",
     .takes = TAKES_FOLDER},
    {"no-plots", NULL, KIND_FLAG, &args.none, .help = "write no pictures"},
    {0},
};

bool plots_wanted(void)
{
    return !args.none;
}

int make_folder(const char *path, const char *of, const char *hint)
{
    char part[PATH_MAX];

    for (size_t n = 1; n <= strlen(path) && n < sizeof(part); n++) {
        if (path[n] && path[n] != '/')
            continue;
        snprintf(part, sizeof(part), "%.*s", (int)n, path);
        if (mkdir(part, 0777) && errno != EEXIST)
            return explain(TS_ERR_FILE, path, NULL, hint, "cannot make the folder %s for %s: %s",
                           part, of, strerror(errno));
    }
    return TOOL_OK;
}

int plot_path(const char *name, char *out, size_t size)
{
    const char *folder = args.folder ? args.folder : ".";

    if (args.folder && make_folder(folder, "pictures", PLOTS_HINT))
        return TOOL_FAILED;
    if ((size_t)snprintf(out, size, "%s%s%s", args.folder ? folder : "", args.folder ? "/" : "",
                         name) < size)
        return TOOL_OK;
    return failure("the path of the picture %s in %s is too long", name, folder);
}

int plot_done(ts_status s)
{
    if (!s)
        return TOOL_OK;
    if (s != TS_ERR_UNSUPPORTED || args.folder)
        return failed();
    args.none = true;
    fprintf(stderr, "tessera: no pictures: %s\n", ts_last_error()->message);
    return TOOL_OK;
}
