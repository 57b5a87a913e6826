/* numpy.c - arrays of samples and labels, as NumPy saves them.
 *
 *   .npz   x_train, y_train, x_test, y_test    one pair a split
 *          x, y    or    images, labels        the same pair for both
 *          others                              those that are asked for; several are joined
 *   .npy   samples; their labels, if any, are in a file of their own
 *
 * Bytes are images: [N, H, W] gets its channel, [N, H, W, C] has it moved to where we and PyTorch
 * want it. Everything else keeps its shape and becomes f32. Labels of three dims or more, which end
 * with the height and width of the samples, are of pixels.
 */
#include "data/data.h"
#include "graph/graph.h"
#include <limits.h>
#include <math.h>

typedef struct pair {
    const ts_array *x, *y; /* y NULL: no labels */
} pair;

static bool find_pair(const ts_object *o, ts_split split, pair *p)
{
    static const char *const names[][2] = {
        {"x_train", "y_train"}, {"x_test", "y_test"}, {"x", "y"}, {"images", "labels"}};

    for (int i = 0; i < TS_COUNT(names); i++) {
        if (i == (split == TS_SPLIT_TEST ? 0 : 1))
            continue;
        p->x = ts_object_array(ts_object_get(o, names[i][0]));
        p->y = ts_object_array(ts_object_get(o, names[i][1]));
        if (p->x && p->y)
            return true;
    }
    p->x = ts_object_array(ts_object_get(o, "x")); /* samples to predict for */
    p->y = NULL;
    return p->x != NULL;
}

/* The array of a name, or of this split: name_train. */
static const ts_array *find_array(const ts_object *o, const char *names, int i, ts_split split)
{
    const ts_array *x = NULL;
    char name[TS_MAX_NAME];

    for (int plain = 0; plain < 2 && !x; plain++)
        if (ts_join_name(names, i, split, plain, name, sizeof(name)))
            x = ts_object_array(ts_object_get(o, name));
    return x;
}

static ts_status no_array(const ts_object *o, const char *path, const char *names)
{
    ts_text all = {0};

    for (int64_t i = 0; i < ts_object_size(o) && i < 20; i++)
        ts_text_printf(&all, "%s%.60s", i ? ", " : "", ts_object_text(ts_object_key(o, i)));
    ts_fail(TS_ERR_PARSE, "%s has no array '%s'", path, names);
    ts_error_hint("it has %s", all.s ? all.s : "none");
    ts_text_free(&all);
    return TS_ERR_PARSE;
}

/* The array of a name, or those of several as one, which is *joined then. */
static ts_status find_named(const ts_object *o, const ts_dataset_options *opt, const char *names,
                            ts_array *joined, const ts_array **out)
{
    ts_array x[TS_JOINED];
    char name[TS_MAX_NAME];
    int n;

    *out = ts_object_array(ts_object_get(o, names));
    if (*out)
        return TS_OK;
    TS_TRY(ts_join_count(names, opt->name, &n));
    for (int i = 0; i < n; i++) {
        ts_join_name(names, i, 0, true, name, sizeof(name));
        *out = find_array(o, names, i, opt->split);
        if (!*out)
            return no_array(o, opt->name, name);
        x[i] = **out;
    }
    if (n == 1)
        return TS_OK;
    *out = joined;
    return ts_join_arrays(x, n, opt->name, joined);
}

static ts_status find_named_labels(const ts_object *o, const ts_dataset_options *opt,
                                   ts_array *joined, pair *p)
{
    if (opt->label)
        return find_named(o, opt, opt->label, joined, &p->y);
    if (opt->samples) {
        p->y = find_array(o, "y", 0, opt->split);
        p->y = p->y ? p->y : ts_object_array(ts_object_get(o, "labels"));
    }
    return TS_OK;
}

static ts_status check_pair(const char *path, const pair *p)
{
    if (!p->x->rank || !p->x->bytes)
        return ts_fail(TS_ERR_SHAPE, "%s has no samples: its array is empty or a single number",
                       path);
    if (!p->y)
        return TS_OK;
    if (!p->y->rank)
        return ts_fail(TS_ERR_SHAPE, "the labels of %s are a single number", path);
    if (p->y->dims[0] != p->x->dims[0])
        return ts_fail(TS_ERR_SHAPE, "%s has %ld samples and %ld labels", path, (long)p->x->dims[0],
                       (long)p->y->dims[0]);
    return TS_OK;
}

static bool is_channels(int64_t n)
{
    return n == 1 || n == 3;
}

static bool channels_last(const ts_array *x)
{
    return x->dtype == TS_U8 && x->rank == 4 && is_channels(x->dims[3]) &&
           !is_channels(x->dims[1]) && x->dims[1] <= INT_MAX && x->dims[2] <= INT_MAX;
}

/* The dims of one sample; returns the rank. */
static int sample_dims(const ts_array *x, int64_t *dims)
{
    int rank = 0;

    if (x->rank == 1 || (x->dtype == TS_U8 && x->rank == 3))
        dims[rank++] = 1;
    if (channels_last(x))
        dims[rank++] = x->dims[3];
    for (int i = 1; i < x->rank - channels_last(x); i++)
        dims[rank++] = x->dims[i];
    return rank;
}

static void copy_samples(const ts_array *x, ts_dataset *d)
{
    int64_t elements = (int64_t)(d->sample.bytes / ts_dtype_size(d->sample.dtype));

    if (channels_last(x))
        for (int64_t i = 0; i < d->count; i++) {
            ts_image im = {(int)x->dims[2], (int)x->dims[1], (int)x->dims[3],
                           (uint8_t *)x->data + i * elements};
            ts_image_to_planes(&im, ts_dataset_at(d, i));
        }
    else if (x->dtype == d->sample.dtype)
        memcpy(d->sample.data, x->data, (size_t)d->count * d->sample.bytes);
    else
        for (int64_t i = 0; i < d->count * elements; i++)
            ((float *)d->sample.data)[i] = (float)ts_dtype_get(x->dtype, x->data, i);
}

static ts_status copy_labels(const char *path, const ts_array *y, ts_dataset *d)
{
    for (int64_t i = 0; i < d->count * d->nlabels; i++) {
        double x = ts_dtype_get(y->dtype, y->data, i);
        if (!(x >= 0 && x <= INT32_MAX) || x != (int32_t)x) {
            ts_fail(TS_ERR_CORRUPT, "label %g of sample %ld in %s is not a class", x,
                    (long)(i / d->nlabels), path);
            ts_error_hint("labels are whole numbers that count the classes from 0");
            return TS_ERR_CORRUPT;
        }
        d->labels[i] = (int32_t)x;
    }
    return ts_dataset_number_classes(d, 0, path);
}

/* Numbers: several columns, or one that is not of whole numbers. */
static bool are_numbers(const ts_array *y, ts_task task)
{
    int64_t n = y->dims[0];

    if (task != TS_TASK_AUTO)
        return task == TS_TASK_NUMBERS;
    if (y->rank == 2 && y->dims[1] != 1)
        return true;
    for (int64_t i = 0; i < n; i++) {
        double x = ts_dtype_get(y->dtype, y->data, i);
        if (x != rint(x))
            return true;
    }
    return false;
}

static ts_status copy_targets(const ts_array *y, ts_dataset *d)
{
    int n = y->rank > 1 ? (int)y->dims[1] : 1;

    TS_TRY(ts_dataset_add_targets(d, n));
    for (int i = 0; i < n; i++)
        d->target_names[i] = ts_arena_printf(d->arena, "%d", i);
    for (int64_t i = 0; i < d->count * n; i++)
        d->targets[i] = (float)ts_dtype_get(y->dtype, y->data, i);
    return TS_OK;
}

/* One for each pixel: [N, H, W] or [N, planes, H, W]. */
static ts_status copy_pixels(const char *path, const ts_array *y, ts_dataset *d)
{
    if (!ts_dataset_fits_pixels(d, y)) {
        ts_fail(TS_ERR_SHAPE, "the labels of %s have %d dims; they need one, or two", path,
                y->rank);
        ts_error_hint("labels of pixels end with the height and width of the samples");
        return TS_ERR_SHAPE;
    }
    TS_TRY(ts_dataset_label_pixels(d, y->rank - 1, y->dims + 1));
    return copy_labels(path, y, d);
}

static ts_status make(const char *path, const pair *p, const ts_dataset_options *opt,
                      ts_dataset **out)
{
    int64_t limit = opt->limit;
    int64_t dims[TS_MAX_RANK], count = limit ? TS_MIN(limit, p->x->dims[0]) : p->x->dims[0];

    TS_TRY(ts_dataset_new(p->x->dtype == TS_U8 ? TS_U8 : TS_F32, count, sample_dims(p->x, dims),
                          dims, out));
    copy_samples(p->x, *out);
    if (!p->y)
        return TS_OK;
    if (p->y->rank > 2)
        return copy_pixels(path, p->y, *out);
    if (are_numbers(p->y, opt->task))
        return copy_targets(p->y, *out);
    if (p->y->rank == 2 && p->y->dims[1] != 1)
        return ts_fail(TS_ERR_SHAPE, "the labels of %s have %d dims; classes need one", path,
                       p->y->rank);
    return copy_labels(path, p->y, *out);
}

/* An .npy file's labels are where the caller says. What is joined is in joined[]. */
static ts_status choose(const ts_object *o, const ts_dataset_options *opt, ts_object **labels,
                        ts_array *joined, pair *p)
{
    p->x = ts_object_array(o);
    p->y = NULL;
    if (!p->x && opt->samples) {
        TS_TRY(find_named(o, opt, opt->samples, &joined[0], &p->x));
        return find_named_labels(o, opt, &joined[1], p);
    }
    if (!p->x) {
        if (find_pair(o, opt->split, p))
            return find_named_labels(o, opt, &joined[1], p);
        ts_fail(TS_ERR_PARSE, "%s has no samples and labels for this split", opt->name);
        ts_error_hint("its arrays are called x_train, y_train, x_test and y_test, or x and y, or "
                      "images and labels; --samples and --label name others");
        return TS_ERR_PARSE;
    }
    if (!opt->label)
        return TS_OK;
    TS_TRY(ts_object_load(opt->label, labels));
    p->y = ts_object_array(*labels);
    return p->y ? TS_OK : ts_fail(TS_ERR_PARSE, "%s has more than one array", opt->label);
}

ts_status ts_numpy_pair(const ts_array *x, const ts_array *y, const ts_dataset_options *opt,
                        ts_dataset **out)
{
    pair p = {x, y};

    TS_TRY(check_pair(opt->name, &p));
    return make(opt->name, &p, opt, out);
}

ts_status ts_numpy_take(const ts_object *o, const ts_dataset_options *opt, ts_dataset **out)
{
    ts_object *labels = NULL;
    ts_array joined[2] = {{0}};
    pair p;
    ts_status s = choose(o, opt, &labels, joined, &p);
    if (!s)
        s = ts_numpy_pair(p.x, p.y, opt, out);
    free(joined[0].data);
    free(joined[1].data);
    ts_object_free(labels);
    return s;
}

ts_status ts_numpy_open(const ts_dataset_options *opt, ts_dataset **out)
{
    ts_object *o;
    ts_status s;

    TS_TRY(ts_object_load(opt->name, &o));
    s = ts_numpy_take(o, opt, out);
    ts_object_free(o);
    return s;
}
