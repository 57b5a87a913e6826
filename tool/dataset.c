/* dataset.c - opens the dataset that a command is given, as a net takes it. */
#include "net.h"
#include <dirent.h>
#include <string.h>
#include <sys/stat.h>

/* A folder of images; one of IDX files has some whose name says so. */
static bool is_image_folder(const char *path)
{
    struct dirent *e;
    struct stat st;
    DIR *d = stat(path, &st) || !S_ISDIR(st.st_mode) ? NULL : opendir(path);
    bool idx = false;

    if (!d)
        return false;
    while (!idx && (e = readdir(d)))
        idx = strstr(e->d_name, "-idx3-ubyte") || strstr(e->d_name, "-idx1-ubyte");
    closedir(d);
    return !idx;
}

bool show_download(void *arg, const char *file, int64_t done, int64_t total)
{
    download *d = arg;

    if (strcmp(d->file, file)) {
        ts_bar_close(d->bar);
        snprintf(d->file, sizeof(d->file), "%s", file);
        d->bar = ts_bar_open(&(ts_bar_options){.label = d->file, .unit = "B", .total = total});
        d->done = 0;
    }
    ts_bar_update(d->bar, done - d->done);
    d->done = done;
    return true;
}

bool dataset_has_name(const char *name)
{
    for (int i = 0; ts_dataset_builtin(i); i++)
        if (!strcmp(ts_dataset_builtin(i), name))
            return true;
    return false;
}

/* Do images of the dataset have to be resized for the net? */
static bool other_size(const recipe *r, const ts_dataset *d)
{
    ts_array all = ts_dataset_samples(d);

    return all.dtype == TS_U8 && all.rank == 4 && r->rank == 3 &&
           memcmp(all.dims + 1, r->dims, sizeof(*r->dims) * 3);
}

/* To look at images of several sizes they are made one size. */
static ts_status load_several(const dataset_options *o, ts_dataset_options *opt, ts_dataset **out)
{
    ts_status s = ts_dataset_load(opt, out);

    if (s != TS_ERR_SHAPE || !o->several || opt->image || !is_image_folder(o->name))
        return s;
    opt->image = &(ts_image_options){.height = 8, .width = 8};
    s = ts_dataset_load(opt, out);
    opt->image = NULL;
    *o->several = *o->several || !s;
    return s;
}

static ts_status load(const dataset_options *o, ts_dataset_options *opt, ts_image_options *size,
                      ts_dataset **out)
{
    const recipe *r = o->recipe;
    ts_status s;

    if (r && r->rank == 3 && !dataset_has_name(o->name) && is_image_folder(o->name))
        opt->image = size;
    s = load_several(o, opt, out);
    if (!s && r && r->has_input && other_size(r, *out)) {
        ts_dataset_free(*out);
        opt->image = size;
        s = ts_dataset_load(opt, out);
    }
    return s;
}

/* One that is damaged is there. */
bool set_is_missing(void)
{
    ts_status s = ts_last_error()->code;

    return s != TS_ERR_CORRUPT && s != TS_ERR_SHAPE && s != TS_ERR_MEMORY;
}

/* A dataset of one's own may have no test set: then it is measured on what there is, which is said. */
static ts_status load_what_there_is(const dataset_options *o, ts_dataset_options *opt,
                                    ts_image_options *size, ts_dataset **out)
{
    ts_status s = load(o, opt, size, out);
    ts_error first = *ts_last_error();

    if (!s || opt->split != TS_SPLIT_TEST || dataset_has_name(o->name) || !set_is_missing())
        return s;
    opt->split = TS_SPLIT_TRAIN;
    if (load(o, opt, size, out))
        return s;
    if (o->other)
        *o->other = true;
    if (!o->quiet)
        fprintf(stderr, "tessera: the training set is taken: %s\n", first.message);
    return TS_OK;
}

int dataset_open(const dataset_options *o, ts_dataset **out)
{
    const recipe *r = o->recipe;
    download shown = {0};
    ts_dataset_options opt = {.name = o->name,
                              .split = o->split,
                              .limit = o->limit,
                              .dir = o->dir,
                              .url = o->url,
                              .progress = o->quiet ? NULL : show_download,
                              .progress_arg = &shown};
    ts_image_options size = r ? recipe_image(r) : (ts_image_options){0};
    static const recipe plain;
    ts_status s;

    if (recipe_table("data", r ? r : &plain, &opt))
        return TOOL_USAGE;
    s = load_what_there_is(o, &opt, &size, out);
    ts_bar_close(shown.bar);
    if (s)
        return failed();
    if (!r || !recipe_check(r, o->name, *out))
        return TOOL_OK;
    ts_dataset_free(*out);
    *out = NULL;
    return TOOL_FAILED;
}
