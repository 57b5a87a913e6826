/* cache.c - tessera cache: the compiled steps that are kept, and how to be rid of them. */
#include "tool.h"
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static struct {
    const char *action;
    bool all, json;
    int64_t older;
} args = {.action = "list", .older = -1};

static const option options[] = {
    {"ACTION", NULL, KIND_WORD, &args.action, "what to do", .choice = "list clean path",
     .argument = true},
    {"all", NULL, KIND_FLAG, &args.all, .help = "clean: remove every entry"},
    {"older", "DAYS", KIND_INT, &args.older,
     "clean: also remove what was not used for so many days", .low = 0, .high = 36500},
    {"json", NULL, KIND_FLAG, &args.json, .help = "print the list as JSON"},
    {0},
};

static const char *age_text(int64_t seconds, char *out, size_t size)
{
    static const struct {
        int64_t seconds;
        const char *name;
    } units[] = {{86400, "days"}, {3600, "hours"}, {60, "minutes"}, {1, "seconds"}};

    for (int i = 0; i < COUNT(units); i++)
        if (seconds >= 2 * units[i].seconds || i == COUNT(units) - 1) {
            snprintf(out, size, "%" PRId64 " %s", seconds / units[i].seconds, units[i].name);
            break;
        }
    return out;
}

static void row(const ts_cache_entry *e)
{
    char size[32], age[32];
    int64_t seconds = (int64_t)time(NULL) - e->used;

    printf("%-20.20s %10s %11s  %.12s  %s\n", e->model[0] ? e->model : "-",
           bytes_text(e->bytes, size, sizeof(size)),
           age_text(seconds > 0 ? seconds : 0, age, sizeof(age)), e->file,
           e->problem[0] ? e->problem : "ok");
}

/* Of object code people want to know how much there is, not file by file. */
typedef struct kernels {
    int count, files;
    int64_t bytes;
} kernels;

static kernels count_kernels(const ts_cache_entry *entries, int n)
{
    kernels k = {0};

    for (int i = 0; i < n; i++) {
        k.count += entries[i].kernels;
        k.files += entries[i].kernels > 0;
        k.bytes += entries[i].kernels ? entries[i].bytes : 0;
    }
    return k;
}

static int list_json(const char *folder, const ts_cache_entry *entries, int n)
{
    kernels k = count_kernels(entries, n);
    int rows = 0;

    printf("{");
    json_text("folder", folder);
    printf(", \"limit\": %" PRId64
           ", \"kernels\": {\"count\": %d, \"files\": %d, \"bytes\": %" PRId64 "}, \"entries\": [",
           ts_cache_limit(), k.count, k.files, k.bytes);
    for (int i = 0; i < n; i++) {
        if (entries[i].kernels)
            continue;
        printf("%s\n  {", rows++ ? "," : "");
        json_text("model", entries[i].model);
        printf(", ");
        json_text("file", entries[i].file);
        printf(", \"bytes\": %" PRId64 ", \"used\": %" PRId64 ", ", entries[i].bytes,
               (int64_t)entries[i].used);
        json_text("problem", entries[i].problem[0] ? entries[i].problem : NULL);
        printf("}");
    }
    printf("]}\n");
    return TOOL_OK;
}

static int list(const char *folder, const ts_cache_entry *entries, int n)
{
    kernels k = count_kernels(entries, n);
    int64_t total = 0;
    char size[32], limit[32];
    int rows = n - k.files;

    printf("folder  %s\n", folder);
    if (rows)
        printf("\n%-20s %10s %11s  %-12s  state\n", "model", "size", "last used", "file");
    for (int i = 0; i < n; i++) {
        if (!entries[i].kernels)
            row(&entries[i]);
        total += entries[i].bytes;
    }
    if (k.files)
        printf("\n%d kernels for other programs, %s\n", k.count,
               bytes_text(k.bytes, size, sizeof(size)));
    printf("%s%d %s, %s of at most %s\n", n ? "\n" : "", rows, rows == 1 ? "entry" : "entries",
           bytes_text(total, size, sizeof(size)),
           bytes_text(ts_cache_limit(), limit, sizeof(limit)));
    return TOOL_OK;
}

static bool unwanted(const ts_cache_entry *e)
{
    return args.all || e->problem[0] ||
           (args.older >= 0 && (int64_t)time(NULL) - e->used >= args.older * 86400);
}

static int clean(const ts_cache_entry *entries, int n)
{
    int64_t total = 0;
    int count = 0;
    char size[32];

    for (int i = 0; i < n; i++) {
        if (!unwanted(&entries[i]))
            continue;
        if (ts_cache_remove(NULL, entries[i].file))
            return failed();
        total += entries[i].bytes;
        count++;
    }
    printf("%d %s removed, %s; %d kept\n", count, count == 1 ? "entry" : "entries",
           bytes_text(total, size, sizeof(size)), n - count);
    return TOOL_OK;
}

static int run(void)
{
    bool cleans = !strcmp(args.action, "clean");
    char folder[PATH_MAX];
    ts_cache_entry *entries;
    int n, code;

    if ((args.all || args.older >= 0) && !cleans)
        return usage_error("cache", "--all and --older are for 'cache clean'");
    if (ts_cache_folder(NULL, folder, sizeof(folder)))
        return failed();
    if (!folder[0])
        return failure("the cache is turned off: TESSERA_CACHE_DIR or POPTORCH_CACHE_DIR is empty, "
                       "or there is no HOME");
    if (!strcmp(args.action, "path")) {
        printf("%s\n", folder);
        return TOOL_OK;
    }
    if (ts_cache_list(NULL, &entries, &n))
        return failed();
    code = cleans      ? clean(entries, n)
           : args.json ? list_json(folder, entries, n)
                       : list(folder, entries, n);
    free(entries);
    return code;
}

const command cache_command = {
    .name = "cache",
    .summary = "Lists the compiled steps that are kept, or removes them",
    .options = options,
    .run = run,
    .more =
        "Without an action it lists. 'clean' removes what cannot be used any more: files that are\n"
        "damaged or that another build of the library made. 'path' prints the folder, which\n"
        "TESSERA_CACHE_DIR sets. Kernels are object code of compiled steps, of which others are\n"
        "made: a net that was changed in part is compiled in part.",
    .examples = "cache\ncache clean --older 30\ncache clean --all\n",
};
