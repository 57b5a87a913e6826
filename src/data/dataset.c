/* dataset.c - samples and labels in memory: which reader opens what, and what callers may ask. */
#include "data/data.h"
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <sys/stat.h>

enum { MOST_CLASSES = 1 << 20 };

ts_status ts_dataset_new(ts_dtype dtype, int64_t count, int rank, const int64_t *dims,
                         ts_dataset **out)
{
    size_t bytes = ts_dtype_size(dtype), all;
    ts_dataset *d;
    ts_status s;

    for (int i = 0; i < rank; i++)
        if (dims[i] <= 0 || __builtin_mul_overflow(bytes, (size_t)dims[i], &bytes))
            return ts_fail(TS_ERR_SHAPE, "dim %d of a sample cannot be %ld", i, (long)dims[i]);
    if (count <= 0)
        return ts_fail(TS_ERR_ARG, "a dataset of %ld samples is of no use", (long)count);
    if (__builtin_mul_overflow(bytes, (size_t)count, &all) || count > PTRDIFF_MAX / 8)
        return ts_fail(TS_ERR_MEMORY, "%ld samples of %zu bytes do not fit in memory", (long)count,
                       bytes);
    TS_TRY(ts_alloc(sizeof(*d), "a dataset", (void **)&d));
    d->arena = ts_arena_new();
    d->count = count;
    d->nlabels = 1;
    d->sample = (ts_array){.dtype = dtype, .rank = rank, .bytes = bytes};
    for (int i = 0; i < rank; i++)
        d->sample.dims[i] = dims[i];
    s = ts_alloc(all, "the samples", &d->sample.data);
    if (!s)
        s = ts_alloc((size_t)count * sizeof(int32_t), "the labels", (void **)&d->labels);
    if (s)
        ts_dataset_free(d);
    else
        *out = d;
    return s;
}

void ts_dataset_free(ts_dataset *d)
{
    if (!d)
        return;
    free(d->sample.data);
    free(d->labels);
    free(d->targets);
    ts_arena_free(d->arena);
    free(d);
}

ts_status ts_dataset_more_labels(ts_dataset *d, int64_t n)
{
    free(d->labels);
    d->labels = NULL;
    d->nlabels = n;
    return ts_alloc((size_t)(d->count * n) * sizeof(int32_t), "the labels", (void **)&d->labels);
}

ts_status ts_dataset_label_pixels(ts_dataset *d, int rank, const int64_t *dims)
{
    int64_t n = 1;

    d->label_rank = rank;
    for (int i = 0; i < rank; i++)
        n *= d->label_dims[i] = dims[i];
    return ts_dataset_more_labels(d, n);
}

ts_status ts_dataset_add_targets(ts_dataset *d, int n)
{
    TS_TRY(ts_alloc((size_t)d->count * (size_t)n * sizeof(float), "the targets",
                    (void **)&d->targets));
    d->ntargets = n;
    d->target_names = TS_NEWS(d->arena, const char *, n);
    return TS_OK;
}

void *ts_dataset_at(const ts_dataset *d, int64_t i)
{
    return (char *)d->sample.data + (size_t)i * d->sample.bytes;
}

static ts_status check_label(int64_t i, int32_t label, int classes, const char *path)
{
    if (label >= 0 && label < classes)
        return TS_OK;
    ts_fail(TS_ERR_CORRUPT, "label %d of sample %ld in %s is not one of 0..%d", label, (long)i,
            path, classes - 1);
    ts_error_hint("labels count the classes from 0");
    return TS_ERR_CORRUPT;
}

ts_status ts_dataset_number_classes(ts_dataset *d, int n, const char *path)
{
    int32_t most = 0;

    for (int64_t i = 0; i < d->count * d->nlabels; i++) {
        TS_TRY(check_label(i / d->nlabels, d->labels[i], n ? n : MOST_CLASSES, path));
        most = TS_MAX(most, d->labels[i]);
    }
    d->nclasses = n ? n : most + 1;
    d->classes = TS_NEWS(d->arena, const char *, d->nclasses);
    for (int i = 0; i < d->nclasses; i++)
        d->classes[i] = ts_arena_printf(d->arena, "%d", i);
    return TS_OK;
}

bool ts_path_join(char *path, size_t size, const char *folder, const char *name)
{
    return (size_t)snprintf(path, size, "%s/%s", folder, name) < size;
}

/* --- what numbers may be --- */

/* "sample 3 of data.npz": counted from 0, as NumPy does. */
static ts_status bad_number(const char *path, int64_t at, int64_t elements, double x,
                            const char *what)
{
    return ts_fail(TS_ERR_CORRUPT, "number %ld of sample %ld in %s is %g, %s",
                   (long)(at % elements), (long)(at / elements), path, x, what);
}

/* A NaN in the data is a NaN in every weight one step later. */
static ts_status check_finite(const ts_dataset *d, const char *path)
{
    int64_t elements = (int64_t)(d->sample.bytes / sizeof(float));
    const float *x = d->sample.data;

    for (int64_t i = 0; i < d->count * elements; i++)
        if (!isfinite(x[i])) {
            bad_number(path, i, elements, x[i], "which nothing can be learned from");
            ts_error_hint("leave the sample out, or put a number in its place");
            return TS_ERR_CORRUPT;
        }
    return TS_OK;
}

/* f32 in place; bytes grow, from the last. */
static ts_status to_integers(ts_dataset *d, const char *path)
{
    enum { MOST = 1 << 24 }; /* from here on an f32 is not every whole number */
    int64_t elements = (int64_t)(d->sample.bytes / ts_dtype_size(d->sample.dtype)), i;
    size_t bytes = (size_t)elements * sizeof(int32_t);
    int32_t *to;

    TS_TRY(ts_alloc(bytes * (size_t)d->count, "the samples", (void **)&to));
    for (i = 0; i < d->count * elements; i++) {
        double x = d->sample.dtype == TS_U8 ? ((const uint8_t *)d->sample.data)[i]
                                            : ((const float *)d->sample.data)[i];
        if (x != rint(x) || fabs(x) > MOST)
            break;
        to[i] = (int32_t)x;
    }
    if (i < d->count * elements) {
        bad_number(path, i, elements, ((const float *)d->sample.data)[i], "which is no index");
        ts_error_hint("the model takes whole numbers: its input is i32");
        free(to);
        return TS_ERR_CORRUPT;
    }
    free(d->sample.data);
    d->sample.data = to;
    d->sample.bytes = bytes;
    d->sample.dtype = TS_I32;
    return TS_OK;
}

static ts_status check_targets(const ts_dataset *d, const char *path)
{
    for (int64_t i = 0; i < d->count * d->ntargets; i++)
        if (!isfinite(d->targets[i]))
            return ts_fail(TS_ERR_CORRUPT, "target %ld of sample %ld in %s is %g",
                           (long)(i % d->ntargets), (long)(i / d->ntargets), path, d->targets[i]);
    return TS_OK;
}

static ts_status check_numbers(ts_dataset *d, const ts_dataset_options *opt)
{
    if (d->sample.dtype == TS_F32)
        TS_TRY(check_finite(d, opt->name));
    TS_TRY(check_targets(d, opt->name));
    return opt->integers && d->sample.dtype != TS_I32 ? to_integers(d, opt->name) : TS_OK;
}

/* --- opening --- */

static ts_status unknown(const char *name)
{
    ts_fail(TS_ERR_FILE, "cannot open %s: %s", name, strerror(errno));
    ts_error_hint("a dataset is mnist, fashion-mnist, or the path of a folder or file");
    return TS_ERR_FILE;
}

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);

    return n >= m && !strcasecmp(s + n - m, end);
}

static ts_status read_file(const ts_dataset_options *opt, ts_dataset **out)
{
    if (ends_with(opt->name, ".csv"))
        return ts_data_csv(opt->name, opt, out);
    if (ends_with(opt->name, ".npy") || ends_with(opt->name, ".npz"))
        return ts_numpy_open(opt, out);
    if (ends_with(opt->name, ".h5") || ends_with(opt->name, ".hdf5"))
        return ts_hdf5_open(opt, out);
    if (ends_with(opt->name, ".txt"))
        return ts_text_open(opt, out);
    ts_fail(TS_ERR_UNSUPPORTED, "%s is not called like a dataset we can read", opt->name);
    ts_error_hint(
        "files are .csv, .npy, .npz, .h5 or .txt; IDX files and images are opened by their folder");
    return TS_ERR_UNSUPPORTED;
}

/* Images that come from files of their own have the options applied one by one. */
static ts_status open_any(const ts_dataset_options *opt, ts_dataset **out)
{
    const ts_known_set *k = ts_known(opt->name);
    struct stat st;

    if (!k && stat(opt->name, &st))
        return unknown(opt->name);
    if (k)
        TS_TRY(ts_known_open(k, opt, out));
    else if (!S_ISDIR(st.st_mode))
        TS_TRY(read_file(opt, out));
    else if (ts_idx_files(opt->name, opt->split))
        TS_TRY(ts_idx_open(opt->name, opt->split, opt->limit, 0, out));
    else
        return ts_folder_open(opt->name, opt, out);
    return ts_dataset_apply(opt->image, out);
}

/* Events of a file that says where its pixels are were made smaller as they were read. */
static ts_status open_sized(const ts_dataset_options *opt, ts_dataset **out)
{
    TS_TRY(open_any(opt, out));
    return (*out)->downsampled ? TS_OK : ts_dataset_downsample(opt->name, opt->downsample, out);
}

static ts_status check_options(const ts_dataset_options *opt)
{
    if (!opt->name || !opt->name[0])
        return ts_fail(TS_ERR_ARG, "a dataset needs a name or a path");
    if (opt->limit < 0)
        return ts_fail(TS_ERR_ARG, "the limit of samples cannot be %ld", (long)opt->limit);
    if (opt->split != TS_SPLIT_TRAIN && opt->split != TS_SPLIT_TEST)
        return ts_fail(TS_ERR_ARG, "there is no split %d", (int)opt->split);
    if (opt->downsample < 0 || opt->downsample > 1024)
        return ts_fail(TS_ERR_ARG, "pictures cannot be made %d times smaller", opt->downsample);
    return ts_image_options_check(opt->image);
}

ts_status ts_dataset_load_sized(const ts_dataset_options *given, size_t size, size_t image_size,
                                ts_dataset **out)
{
    ts_dataset_options own, *opt = &own;
    ts_image_options image;
    ts_dataset *d = NULL;
    ts_status s;

    *out = NULL;
    TS_TRY(ts_take_sized("ts_dataset_load", given, size, opt, sizeof(*opt)));
    TS_TRY(ts_take_sized("ts_dataset_load", opt->image, image_size, &image, sizeof(image)));
    opt->image = &image;
    TS_TRY(check_options(opt));
    s = open_sized(opt, &d);
    if (!s)
        s = check_numbers(d, opt);
    if (s) {
        ts_dataset_free(d);
        ts_error_doing("opening the dataset %s (%s)", opt->name,
                       opt->split == TS_SPLIT_TEST ? "test" : "train");
        return s;
    }
    *out = d;
    return TS_OK;
}

/* --- asking --- */

int64_t ts_dataset_count(const ts_dataset *d)
{
    return d->count;
}

int ts_dataset_classes(const ts_dataset *d)
{
    return d->nclasses;
}

const char *ts_dataset_class_name(const ts_dataset *d, int i)
{
    return i >= 0 && i < d->nclasses ? d->classes[i] : NULL;
}

ts_status ts_dataset_sample(const ts_dataset *d, int64_t i, ts_array *out)
{
    if (i < 0 || i >= d->count)
        return ts_fail(TS_ERR_ARG, "there is no sample %ld: the dataset has %ld", (long)i,
                       (long)d->count);
    *out = d->sample;
    if (d->read)
        return ts_dataset_read(d, i, d->sample.data, d->labels, d->targets);
    out->data = ts_dataset_at(d, i);
    return TS_OK;
}

ts_array ts_dataset_samples(const ts_dataset *d)
{
    ts_array all = d->sample;

    if (d->read)
        return (ts_array){.dtype = d->sample.dtype};
    all.rank++;
    all.dims[0] = d->count;
    for (int i = 1; i < all.rank; i++)
        all.dims[i] = d->sample.dims[i - 1];
    all.bytes *= (size_t)d->count;
    return all;
}

int ts_dataset_target_count(const ts_dataset *d)
{
    return d->ntargets;
}

const float *ts_dataset_targets(const ts_dataset *d)
{
    return d->read ? NULL : d->targets;
}

const char *ts_dataset_target_name(const ts_dataset *d, int i)
{
    return i >= 0 && i < d->ntargets ? d->target_names[i] : NULL;
}

int64_t ts_dataset_label_count(const ts_dataset *d)
{
    return d->nlabels;
}

int ts_dataset_label_shape(const ts_dataset *d, int64_t dims[TS_MAX_RANK])
{
    memcpy(dims, d->label_dims, sizeof(*dims) * (size_t)d->label_rank);
    return d->label_rank;
}

const char *ts_dataset_tokens(const ts_dataset *d)
{
    return d->tokens;
}

const char *ts_dataset_columns(const ts_dataset *d)
{
    return d->columns;
}

/* --- of others --- */

ts_status ts_dataset_like(const ts_dataset *d, int label_rank, const int64_t *label_dims,
                          ts_dataset *out)
{
    out->nclasses = d->nclasses;
    out->classes = TS_NEWS(out->arena, const char *, d->nclasses);
    for (int i = 0; i < d->nclasses; i++)
        out->classes[i] = ts_arena_strdup(out->arena, d->classes[i]);
    out->columns = d->columns ? ts_arena_strdup(out->arena, d->columns) : NULL;
    out->tokens = d->tokens ? ts_arena_strdup(out->arena, d->tokens) : NULL;
    if (label_rank)
        TS_TRY(ts_dataset_label_pixels(out, label_rank, label_dims));
    else if (d->nlabels > 1)
        TS_TRY(ts_dataset_more_labels(out, d->nlabels));
    if (!d->ntargets)
        return TS_OK;
    TS_TRY(ts_dataset_add_targets(out, d->ntargets));
    for (int i = 0; i < d->ntargets; i++)
        out->target_names[i] = ts_arena_strdup(out->arena, d->target_names[i]);
    return TS_OK;
}

ts_status ts_dataset_pick(const ts_dataset *d, int64_t n, const int64_t *rows, ts_dataset **out)
{
    size_t targets = d ? (size_t)d->ntargets * sizeof(float) : 0;
    ts_status s;

    *out = NULL;
    if (!d || !rows)
        return ts_fail(TS_ERR_ARG, "picking samples needs a dataset and their numbers");
    for (int64_t i = 0; i < n; i++)
        if (rows[i] < 0 || rows[i] >= d->count)
            return ts_fail(TS_ERR_ARG, "there is no sample %ld: the dataset has %ld", (long)rows[i],
                           (long)d->count);
    TS_TRY(ts_dataset_new(d->sample.dtype, n, d->sample.rank, d->sample.dims, out));
    s = ts_dataset_like(d, d->label_rank, d->label_dims, *out);
    for (int64_t i = 0; !s && i < n && d->read; i++)
        s = ts_dataset_read(d, rows[i], ts_dataset_at(*out, i), (*out)->labels + i,
                            targets ? (*out)->targets + i * d->ntargets : NULL);
    for (int64_t i = 0; !s && i < n && !d->read; i++) {
        memcpy(ts_dataset_at(*out, i), ts_dataset_at(d, rows[i]), d->sample.bytes);
        memcpy((*out)->labels + i * d->nlabels, d->labels + rows[i] * d->nlabels,
               (size_t)d->nlabels * sizeof(int32_t));
        if (targets)
            memcpy((*out)->targets + i * d->ntargets, d->targets + rows[i] * d->ntargets, targets);
    }
    if (s) {
        ts_dataset_free(*out);
        *out = NULL;
    }
    return s;
}

bool ts_dataset_fits_pixels(const ts_dataset *d, const ts_array *y)
{
    const int64_t *x = d->sample.dims + d->sample.rank - 2;

    return y->rank > 2 && d->sample.rank >= 2 && y->dims[0] >= d->count &&
           y->dims[y->rank - 2] == x[0] && y->dims[y->rank - 1] == x[1];
}

static ts_status set_pixels(ts_dataset *d, const ts_array *y, const char *path)
{
    if (!ts_dataset_fits_pixels(d, y))
        return ts_fail(TS_ERR_SHAPE, "labels of pixels have the last two dims of the %ld samples",
                       (long)d->count);
    TS_TRY(ts_dataset_label_pixels(d, y->rank - 1, y->dims + 1));
    memcpy(d->labels, y->data, (size_t)(d->count * d->nlabels) * sizeof(int32_t));
    return ts_dataset_number_classes(d, 0, path);
}

ts_status ts_dataset_set_labels(ts_dataset *d, const ts_array *y, const char *path)
{
    int n = y->rank > 1 ? (int)y->dims[1] : 1;

    if (y->dtype == TS_I32 && y->rank > 2)
        return set_pixels(d, y, path);
    if (y->rank < 1 || y->rank > 2 || y->dims[0] < d->count)
        return ts_fail(TS_ERR_SHAPE, "labels are one or some for each of %ld samples",
                       (long)d->count);
    if (y->dtype == TS_I32 && n == 1) {
        memcpy(d->labels, y->data, (size_t)d->count * sizeof(int32_t));
        return ts_dataset_number_classes(d, 0, path);
    }
    if (y->dtype != TS_F32)
        return ts_fail(TS_ERR_TYPE, "labels are i32, one a sample, or f32; not %s",
                       ts_dtype_name(y->dtype));
    TS_TRY(ts_dataset_add_targets(d, n));
    for (int i = 0; i < n; i++)
        d->target_names[i] = ts_arena_printf(d->arena, "%d", i);
    memcpy(d->targets, y->data, (size_t)d->count * (size_t)n * sizeof(float));
    return TS_OK;
}

ts_status ts_dataset_from(const ts_array *x, const ts_array *y, ts_dataset **out)
{
    ts_status s;

    if (!x || !out)
        return ts_fail(TS_ERR_ARG, "a dataset needs samples and a place for it");
    *out = NULL;
    if (x->rank < 1 || (x->dtype != TS_U8 && x->dtype != TS_F32 && x->dtype != TS_I32))
        return ts_fail(TS_ERR_TYPE, "samples are u8, f32 or i32 with their count in front");
    TS_TRY(ts_dataset_new(x->dtype, x->dims[0], x->rank - 1, x->dims + 1, out));
    memcpy((*out)->sample.data, x->data, (*out)->sample.bytes * (size_t)(*out)->count);
    s = y ? ts_dataset_set_labels(*out, y, "memory") : TS_OK;
    if (!s && x->dtype == TS_F32)
        s = check_finite(*out, "memory");
    if (!s)
        s = check_targets(*out, "memory");
    if (s) {
        ts_dataset_free(*out);
        *out = NULL;
    }
    return s;
}

const int32_t *ts_dataset_labels(const ts_dataset *d)
{
    return d->read ? NULL : d->labels;
}
