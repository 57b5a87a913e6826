/* page.c - tessera report: a profile as a page for the browser. */
#include "tool.h"
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static struct {
    const char *profile, *compare, *output;
    bool open, json;
} args;

static const option options[] = {
    {"DIR", NULL, KIND_TEXT, &args.profile, "the folder of a profile, or its profile.db",
     .takes = TAKES_FOLDER, .argument = true, .needed = true},
    {"compare", "DIR2", KIND_TEXT, &args.compare, "another profile to hold it against",
     .takes = TAKES_FOLDER},
    {"output", "FILE", KIND_TEXT, &args.output, "the page; report.html beside the profile",
     .takes = TAKES_FILE},
    {"open", NULL, KIND_FLAG, &args.open, .help = "open it in the browser"},
    {"json", NULL, KIND_FLAG, &args.json, .help = "print the result as JSON"},
    {0},
};

/* report.html in the folder, or beside the file. */
static void find_output(char *path, size_t size)
{
    const char *slash = strrchr(args.profile, '/');
    struct stat st;

    if (args.output)
        snprintf(path, size, "%s", args.output);
    else if (!stat(args.profile, &st) && S_ISDIR(st.st_mode))
        snprintf(path, size, "%s/report.html", args.profile);
    else
        snprintf(path, size, "%.*sreport.html", slash ? (int)(slash - args.profile) + 1 : 0,
                 args.profile);
}

/* xdg-open returns when the browser has the page, not when it is closed. */
static int show(const char *path)
{
    const char *opener =
#ifdef __APPLE__
        "open";
#else
        "xdg-open";
#endif
    int status = 0;
    pid_t child = fork();

    if (!child) {
        execlp(opener, opener, path, (char *)NULL);
        _exit(127);
    }
    if (child < 0 || waitpid(child, &status, 0) < 0 || !WIFEXITED(status) || WEXITSTATUS(status))
        return failure("%s cannot open %s; open it in a browser yourself", opener, path);
    return TOOL_OK;
}

static int run(void)
{
    char path[4096], shown[4096];

    find_output(path, sizeof(path));
    if (ts_report(args.profile, args.compare, path))
        return failed();
    if (args.json) {
        printf("{");
        json_text("page", path);
        printf("}\n");
    } else
        printf("%s\n", printable(path, shown, sizeof(shown)));
    return args.open ? show(path) : TOOL_OK;
}

const command report_command = {
    .name = "report",
    .summary = "Makes a page for the browser of a profile",
    .options = options,
    .run = run,
    .more =
        "One file that needs no network: a summary, memory, liveness, operations, the program with "
        "its\ngenerated C, what ran when, the graph, and with --compare the differences. It prints "
        "the\npage's path.",
    .examples = "report profile\nreport after --compare before --open\n",
};
