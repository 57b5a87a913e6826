/* folder.c - a folder of classes, as torchvision's ImageFolder reads it:
 *
 *   DIR/cat/1.png      or     DIR/train/cat/1.png     classes and files in the order of their names
 *   DIR/dog/2.jpg             DIR/test/dog/2.jpg      (bytes, not the locale's)
 *
 * or a folder with a file targets.csv, which has a column `file`, the images' names, and numbers,
 * or a column of words, which are classes:
 *
 *   file,age,smiles          file,kind
 *   1.png,34,1               1.png,cat
 *
 * All images are decoded when the folder is opened: a damaged one is reported before the first step
 * and not in the last, and an epoch costs no decoding.
 */
#include "data/data.h"
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct listing { /* of image files */
    ts_arena *a;
    const char **classes;
    int nclasses;
    const char **paths;
    int *labels;
    int npaths, nlabels; /* the same number */
    ts_csv_files list;   /* of targets.csv; n = 0: there is none */
} listing;

static bool is_folder(const char *path)
{
    struct stat st;

    return !stat(path, &st) && S_ISDIR(st.st_mode);
}

static bool is_image(const char *name)
{
    const char *dot = strrchr(name, '.');

    return dot &&
           (!strcasecmp(dot, ".png") || !strcasecmp(dot, ".jpg") || !strcasecmp(dot, ".jpeg"));
}

static int visible(const struct dirent *e)
{
    return e->d_name[0] != '.';
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

/* The names in a folder, sorted, in the arena. */
static ts_status list(ts_arena *a, const char *path, const char ***names, int *count)
{
    struct dirent **entries;
    int n = ts_fault("open") ? -1 : scandir(path, &entries, visible, by_name);

    if (n < 0)
        return ts_fail(TS_ERR_FILE, "cannot list the folder %s: %s", path, strerror(errno));
    *names = TS_NEWS(a, const char *, n);
    for (int i = 0; i < n; i++) {
        (*names)[i] = ts_arena_strdup(a, entries[i]->d_name);
        free(entries[i]);
    }
    free(entries);
    *count = n;
    return TS_OK;
}

static ts_status list_class(listing *l, const char *folder)
{
    int before = l->npaths, n;
    const char **names;

    TS_TRY(list(l->a, folder, &names, &n));
    for (int i = 0; i < n; i++) {
        const char *path = ts_arena_printf(l->a, "%s/%s", folder, names[i]);
        if (!is_image(names[i]) || is_folder(path))
            continue;
        TS_PUSH(l->a, l->paths, l->npaths, path);
        TS_PUSH(l->a, l->labels, l->nlabels, l->nclasses);
    }
    if (l->npaths == before) {
        ts_fail(TS_ERR_FILE, "the class folder %s has no images", folder);
        ts_error_hint("images are files called .png, .jpg or .jpeg");
        return TS_ERR_FILE;
    }
    return TS_OK;
}

static ts_status list_targets(listing *l, const char *path, const char *file,
                              const ts_dataset_options *opt)
{
    TS_TRY(ts_csv_list(l->a, file, opt, &l->list));
    l->classes = l->list.classes;
    l->nclasses = l->list.nclasses;
    for (int i = 0; i < l->list.n; i++) {
        TS_PUSH(l->a, l->paths, l->npaths,
                (const char *)ts_arena_printf(l->a, "%s/%s", path, l->list.files[i]));
        TS_PUSH(l->a, l->labels, l->nlabels, l->list.labels ? l->list.labels[i] : 0);
    }
    return TS_OK;
}

static ts_status list_classes(listing *l, const char *path, const ts_dataset_options *opt)
{
    const char **names, *file;
    int n;

    file = ts_arena_printf(l->a, "%s/targets.csv", path);
    if (!access(file, F_OK))
        return list_targets(l, path, file, opt);
    TS_TRY(list(l->a, path, &names, &n));
    for (int i = 0; i < n; i++) {
        const char *folder = ts_arena_printf(l->a, "%s/%s", path, names[i]);
        if (!is_folder(folder))
            continue;
        TS_TRY(list_class(l, folder));
        TS_PUSH(l->a, l->classes, l->nclasses, names[i]);
    }
    if (l->nclasses)
        return TS_OK;
    ts_fail(TS_ERR_FILE, "the folder %s has no class folders and no IDX files", path);
    ts_error_hint("put the images of each class into a folder of its own: %.200s/cat/1.png", path);
    return TS_ERR_FILE;
}

/* DIR/train or DIR/test where there is one of them, else DIR for both. */
static ts_status choose_split(ts_arena *a, const char *path, ts_split split, const char **out)
{
    const char *train = ts_arena_printf(a, "%s/train", path);
    const char *test = ts_arena_printf(a, "%s/test", path);

    *out = split == TS_SPLIT_TEST ? test : train;
    if (is_folder(*out))
        return TS_OK;
    if (is_folder(train) || is_folder(test))
        return ts_fail(TS_ERR_FILE, "the folder %s has no folder %s", path,
                       split == TS_SPLIT_TEST ? "test" : "train");
    *out = path;
    return TS_OK;
}

/* Sample i of count is image i * npaths / count: with a limit, some of each class. */
static int chosen(const listing *l, int64_t i, int64_t count)
{
    return (int)(i * l->npaths / count);
}

static ts_status same_size(const listing *l, const ts_dataset *d, const ts_image *im, int at)
{
    if (im->height == d->sample.dims[1] && im->width == d->sample.dims[2])
        return TS_OK;
    ts_fail(TS_ERR_SHAPE, "%s has %d x %d pixels, and %s has %ld x %ld", l->paths[at], im->width,
            im->height, l->paths[0], (long)d->sample.dims[2], (long)d->sample.dims[1]);
    ts_error_hint("images of several sizes must be resized: 'tessera train' has --resize SIZE");
    return TS_ERR_SHAPE;
}

static ts_status add(const listing *l, const ts_image_options *opt, int64_t i, int64_t count,
                     ts_dataset **d)
{
    int at = chosen(l, i, count);
    ts_image im;
    ts_status s;

    TS_TRY(ts_image_read(l->paths[at], opt, &im));
    s = *d ? same_size(l, *d, &im, at)
           : ts_dataset_new(TS_U8, count, 3, (int64_t[]){im.channels, im.height, im.width}, d);
    if (!s) {
        ts_image_to_planes(&im, ts_dataset_at(*d, i));
        (*d)->labels[i] = l->labels[at];
    }
    free(im.pixels);
    return s;
}

static void name_classes(const listing *l, ts_dataset *d)
{
    d->nclasses = l->nclasses;
    d->classes = TS_NEWS(d->arena, const char *, l->nclasses);
    for (int i = 0; i < l->nclasses; i++)
        d->classes[i] = ts_arena_strdup(d->arena, l->classes[i]);
}

static ts_status set_targets(const listing *l, ts_dataset *d)
{
    int n = l->list.ntargets;

    TS_TRY(ts_dataset_add_targets(d, n));
    for (int i = 0; i < n; i++)
        d->target_names[i] = ts_arena_strdup(d->arena, l->list.names[i]);
    for (int64_t i = 0; i < d->count; i++)
        memcpy(d->targets + i * n, l->list.targets + chosen(l, i, d->count) * n,
               (size_t)n * sizeof(float));
    return TS_OK;
}

static ts_status open_folder(listing *l, const char *path, const ts_dataset_options *opt,
                             ts_dataset **d)
{
    int64_t count;

    TS_TRY(choose_split(l->a, path, opt->split, &path));
    TS_TRY(list_classes(l, path, opt));
    count = opt->limit ? TS_MIN(opt->limit, l->npaths) : l->npaths;
    for (int64_t i = 0; i < count; i++)
        TS_TRY(add(l, opt->image, i, count, d));
    name_classes(l, *d);
    return l->list.ntargets ? set_targets(l, *d) : TS_OK;
}

ts_status ts_folder_open(const char *path, const ts_dataset_options *opt, ts_dataset **out)
{
    listing l = {.a = ts_arena_new()};
    ts_dataset *d = NULL;
    ts_status s = open_folder(&l, path, opt, &d);

    ts_arena_free(l.a);
    if (s)
        ts_dataset_free(d);
    else
        *out = d;
    return s;
}
