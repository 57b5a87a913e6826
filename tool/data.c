/* data.c - tessera data: the datasets that have a name and where they are; what is in one. */
#include "net.h"
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

static struct {
    const char *name, *dir, *url;
    bool download, json;
} args;

static const option read_options[] = {
    {.name = "tables and texts", .kind = KIND_GROUP, .target = (void *)table_options},
    {.name = "tables and texts", .kind = KIND_GROUP, .target = (void *)text_options},
    {0},
};

static const option options[] = {
    {"DATA", NULL, KIND_TEXT, &args.name,
     "the dataset to look at: mnist, fashion-mnist, a folder or a file", .takes = TAKES_DATA,
     .argument = true},
    {"data-dir", "DIR", KIND_TEXT, &args.dir,
     "where the files of mnist or fashion-mnist are, or go", .takes = TAKES_FOLDER},
    {"download", NULL, KIND_FLAG, &args.download,
     .help = "download the files of mnist or fashion-mnist that are not there"},
    {"url", "URL", KIND_TEXT, &args.url,
     "the folder to download from, when not $TESSERA_MNIST_URL or $TESSERA_FASHION_MNIST_URL",
     .takes = TAKES_ANY},
    {.name = "tables and texts", .kind = KIND_GROUP, .target = (void *)read_options},
    {"json", NULL, KIND_FLAG, &args.json, .help = "print it as JSON"},
    {0},
};

enum { SPLITS = 2 };
static const ts_split splits[SPLITS] = {TS_SPLIT_TRAIN, TS_SPLIT_TEST};

/* Where both parts of a named set are; "" when one is nowhere. */
static int find(const char *name, char *path, size_t size)
{
    for (int i = 0; i < SPLITS; i++) {
        ts_dataset_options o = {.name = name, .split = splits[i], .dir = args.dir};
        if (ts_dataset_find(&o, path, size))
            return failed();
        if (!path[0])
            break;
    }
    return TOOL_OK;
}

static bool several_sizes; /* of images, which are looked at all the same */

static int open_split(const char *name, int split, ts_dataset **out)
{
    return dataset_open(&(dataset_options){.name = name,
                                           .dir = args.dir,
                                           .url = args.url,
                                           .split = splits[split],
                                           .several = &several_sizes},
                        out);
}

static void free_both(ts_dataset **d)
{
    for (int i = 0; i < SPLITS; i++)
        ts_dataset_free(d[i]);
}

static int open_both(const char *name, ts_dataset **d)
{
    int code = TOOL_OK;

    d[0] = d[1] = NULL;
    for (int i = 0; i < SPLITS && !code; i++)
        code = open_split(name, i, &d[i]); /* without a test set, the training set again */
    if (code)
        free_both(d);
    return code;
}

static const char *sample_text(const ts_dataset *d, char *out, size_t size)
{
    ts_array all = ts_dataset_samples(d);

    return shape_text(all.rank - 1, all.dims + 1, out, size);
}

/* --- all of them --- */

static int row(const char *name)
{
    char path[PATH_MAX], shape[64];
    ts_dataset *d[SPLITS];

    if (find(name, path, sizeof(path)))
        return TOOL_FAILED;
    if (!path[0]) {
        printf("%-14s %8s %8s  %-10s %7s  not here: 'tessera data %s' says what to do\n", name, "-",
               "-", "-", "-", name);
        return TOOL_OK;
    }
    if (open_both(name, d))
        return TOOL_FAILED;
    printf("%-14s %8" PRId64 " %8" PRId64 "  %-10s %7d  %s\n", name, ts_dataset_count(d[0]),
           ts_dataset_count(d[1]), sample_text(d[0], shape, sizeof(shape)),
           ts_dataset_classes(d[0]), path);
    free_both(d);
    return TOOL_OK;
}

static int json_row(int i)
{
    char path[PATH_MAX];

    if (find(ts_dataset_builtin(i), path, sizeof(path)))
        return TOOL_FAILED;
    printf("%s\n  {", i ? "," : "");
    json_text("dataset", ts_dataset_builtin(i));
    printf(", ");
    json_text("where", path[0] ? path : NULL);
    printf("}");
    return TOOL_OK;
}

static int list(void)
{
    int code = TOOL_OK;

    printf(args.json ? "[" : "%-14s %8s %8s  %-10s %7s  where\n", "dataset", "train", "test",
           "sample", "classes");
    for (int i = 0; ts_dataset_builtin(i) && !code; i++)
        code = args.json ? json_row(i) : row(ts_dataset_builtin(i));
    if (args.json)
        printf("\n]\n");
    return code;
}

/* --- one --- */

static int64_t class_count(const ts_dataset *d, int class)
{
    const int32_t *labels = ts_dataset_labels(d);
    int64_t n = 0;

    for (int64_t i = 0; i < ts_dataset_count(d) * ts_dataset_label_count(d); i++)
        n += labels[i] == class;
    return n;
}

/* A file that is not divided is both parts. */
static bool same_samples(ts_dataset *const *d)
{
    ts_array a = ts_dataset_samples(d[0]), b = ts_dataset_samples(d[1]);

    return a.bytes == b.bytes && !memcmp(a.data, b.data, a.bytes);
}

static void print_classes(ts_dataset *const *d, int parts)
{
    int n = ts_dataset_classes(d[0]), more = ts_dataset_classes(d[1]);

    n = more > n ? more : n;
    if (!n)
        return;
    printf("\n%-20s %8s", "class", parts > 1 ? "train" : "count");
    printf(parts > 1 ? " %8s\n" : "\n", "test");
    for (int i = 0; i < n; i++) {
        const char *name = ts_dataset_class_name(d[i >= ts_dataset_classes(d[0])], i);
        char shown[64];
        printf("%-20s", printable(name, shown, sizeof(shown)));
        for (int j = 0; j < parts; j++)
            printf(" %8" PRId64, class_count(d[j], i));
        printf("\n");
    }
}

static void describe_json(ts_dataset *const *d, const char *where)
{
    ts_array all = ts_dataset_samples(d[0]);
    bool whole = same_samples(d);
    int n = ts_dataset_classes(d[0]), targets = ts_dataset_target_count(d[0]);

    printf("{\n  ");
    json_text("dataset", args.name);
    printf(",\n  ");
    json_text("where", where);
    printf(",\n  ");
    if (several_sizes)
        printf("\"sample\": null");
    else
        json_sizes("sample", all.rank - 1, all.dims + 1);
    printf(",\n  ");
    json_text("dtype", ts_dtype_name(all.dtype));
    printf(",\n  \"train\": %" PRId64 ",\n  \"test\": %" PRId64 ",\n  \"classes\": [",
           ts_dataset_count(d[0]), whole ? 0 : ts_dataset_count(d[1]));
    for (int i = 0; i < n; i++) {
        printf("%s", i ? ", " : "");
        json_quote(ts_dataset_class_name(d[0], i));
    }
    printf("],\n  \"targets\": [");
    for (int i = 0; i < targets; i++) {
        printf("%s", i ? ", " : "");
        json_quote(ts_dataset_target_name(d[0], i));
    }
    printf("]\n}\n");
}

static void print_targets(const ts_dataset *d)
{
    for (int i = 0; i < ts_dataset_target_count(d); i++)
        printf("%-10s %s\n", i ? "" : "targets", ts_dataset_target_name(d, i));
}

static void describe(ts_dataset *const *d, const char *where)
{
    ts_array all = ts_dataset_samples(d[0]);
    normal usual = normal_usual(args.name, all.dtype);
    char *how = normal_text(&usual);
    bool whole = same_samples(d);
    char shape[64];

    printf("%-10s %s\n", "dataset", args.name);
    printf("%-10s %s\n", "where", where);
    if (several_sizes)
        printf("%-10s images of several sizes: 'tessera train' needs --resize SIZE\n", "sample");
    else
        printf("%-10s %s of %s\n", "sample", sample_text(d[0], shape, sizeof(shape)),
               ts_dtype_name(all.dtype));
    if (whole)
        printf("%-10s %" PRId64 ", not divided in train and test\n", "samples",
               ts_dataset_count(d[0]));
    else
        printf("%-10s %" PRId64 "\n%-10s %" PRId64 "\n", "train", ts_dataset_count(d[0]), "test",
               ts_dataset_count(d[1]));
    if (ts_dataset_target_count(d[0]))
        print_targets(d[0]);
    else
        printf("%-10s %d\n", "classes", ts_dataset_classes(d[0]));
    printf("%-10s %s\n", "normalise",
           how && how[0]              ? how
           : ts_dataset_columns(d[0]) ? "its columns, to mean 0 and deviation 1"
                                      : "no");
    print_classes(d, whole ? 1 : SPLITS);
    normal_free(&usual);
    free(how);
}

/* Looking at a dataset downloads nothing, also where an address is set. */
static int not_here(void)
{
    return explain(TS_ERR_FILE, args.dir ? args.dir : "the usual folders", "looking for the files",
                   strcmp(args.name, "fashion-mnist")
                       ? "--data-dir DIR names the folder that has them; --download --url URL "
                         "gets them from a folder of the web"
                       : "install Debian's package dataset-fashion-mnist; or --data-dir DIR names "
                         "the folder that has them; or --download --url URL gets them",
                   "the files of %s are not in $TESSERA_DATA_DIR, ./data or the cache folder",
                   args.name);
}

static int show(void)
{
    ts_dataset *d[SPLITS];
    char path[PATH_MAX];
    bool named = dataset_has_name(args.name);

    snprintf(path, sizeof(path), "%s", args.name);
    if (named && find(args.name, path, sizeof(path)))
        return TOOL_FAILED;
    if (!path[0] && !args.download)
        return not_here();
    if (open_both(args.name, d))
        return TOOL_FAILED;
    if (!path[0] && find(args.name, path, sizeof(path))) {
        free_both(d);
        return TOOL_FAILED;
    }
    (args.json ? describe_json : describe)(d, path);
    free_both(d);
    return TOOL_OK;
}

static int run(void)
{
    if ((args.download || args.url) && !(args.name && dataset_has_name(args.name)))
        return usage_error("data", "--download and --url are for a dataset that has a name");
    if (args.url && !args.download)
        return usage_error("data", "--url is for --download");
    return args.name ? show() : list();
}

const command data_command = {
    .name = "data",
    .summary = "Lists the datasets that have a name and where they are, or shows one",
    .options = options,
    .run = run,
    .more = "Other datasets are folders of IDX files, folders with a folder of images for each\n"
            "class or a targets.csv, CSV files, texts (.txt), NumPy's .npz and .npy files, and\n"
            "HDF5 files (.h5).",
    .examples = "data\ndata fashion-mnist\ndata houses.csv --label price --missing mean\n",
};
