/* data.c - what the library makes of datasets and images, for test/python/test_data.py.
 *
 *   data open NAME KEY=VALUE ...      prints what is in it; out=FILE takes the samples, FILE.labels
 *                                     the labels
 *   data image PATH KEY=VALUE ...     prints its shape; out=FILE takes the pixels
 *   data batches NAME KEY=VALUE ...   out=FILE takes the f32 samples of steps=N batches,
 *                                     FILE.labels their labels
 *
 * An error is printed on stderr, as it is; the status is then 1.
 */
#include "tessera/data.h"
#include "tessera/show.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct {
    ts_dataset_options data;
    ts_image_options image;
    ts_loader_options load;
    int64_t steps;
    const char *out;
} args;

static double mean[3], deviation[3];

static int read_list(const char *s, double *out)
{
    int n = 0;
    char *end;

    for (; n < 3 && *s; s = *end ? end + 1 : end)
        out[n++] = strtod(s, &end);
    return n;
}

static bool show(void *arg, const char *file, int64_t done, int64_t total)
{
    int64_t *stop = arg;

    fprintf(stderr, "%s %" PRId64 "/%" PRId64 "\n", file, done, total);
    return *stop < 0 || done < *stop;
}

static void set(const char *key, const char *value)
{
    static int64_t stop = -1;
    ts_dataset_options *d = &args.data;
    ts_loader_options *l = &args.load;
    long n = strtol(value, NULL, 10);

    if (!strcmp(key, "dir"))
        d->dir = value;
    else if (!strcmp(key, "url"))
        d->url = value;
    else if (!strcmp(key, "split"))
        d->split = !strcmp(value, "test") ? TS_SPLIT_TEST : TS_SPLIT_TRAIN;
    else if (!strcmp(key, "limit"))
        d->limit = n;
    else if (!strcmp(key, "label"))
        d->label = value;
    else if (!strcmp(key, "header"))
        d->header = (int)n;
    else if (!strcmp(key, "stall"))
        d->stall_seconds = (int)n;
    else if (!strcmp(key, "stop"))
        stop = n;
    else if (!strcmp(key, "height"))
        args.image.height = (int)n;
    else if (!strcmp(key, "width"))
        args.image.width = (int)n;
    else if (!strcmp(key, "channels"))
        args.image.channels = (int)n;
    else if (!strcmp(key, "filter"))
        args.image.filter = !strcmp(value, "bicubic") ? TS_FILTER_BICUBIC : TS_FILTER_BILINEAR;
    else if (!strcmp(key, "invert"))
        args.image.invert_light = n != 0;
    else if (!strcmp(key, "batch"))
        l->batch = n;
    else if (!strcmp(key, "seed"))
        l->shuffle = true, l->seed = (uint64_t)n;
    else if (!strcmp(key, "threads"))
        l->threads = (int)n;
    else if (!strcmp(key, "mean"))
        l->normalize.n = read_list(value, mean);
    else if (!strcmp(key, "deviation"))
        read_list(value, deviation);
    else if (!strcmp(key, "steps"))
        args.steps = n;
    else if (!strcmp(key, "out"))
        args.out = value;
    else
        exit(2);
    d->progress = show;
    d->progress_arg = &stop;
}

static void write_all(const char *suffix, const void *data, size_t bytes)
{
    char path[4096];
    FILE *f;

    if (!args.out)
        return;
    snprintf(path, sizeof(path), "%s%s", args.out, suffix);
    f = fopen(path, "ab");
    if (!f || fwrite(data, 1, bytes, f) != bytes || fclose(f))
        exit(3);
}

static void print_shape(const ts_array *a)
{
    printf("dtype %s\nshape", ts_dtype_name(a->dtype));
    for (int i = 0; i < a->rank; i++)
        printf(" %" PRId64, a->dims[i]);
    printf("\n");
}

static ts_status open_set(const char *name)
{
    ts_dataset *d;
    ts_array all;
    ts_status s;

    args.data.name = name;
    args.data.image = &args.image;
    s = ts_dataset_load(&args.data, &d);
    if (s)
        return s;
    all = ts_dataset_samples(d);
    print_shape(&all);
    for (int i = 0; i < ts_dataset_classes(d); i++)
        printf("class %s\n", ts_dataset_class_name(d, i));
    write_all("", all.data, all.bytes);
    write_all(".labels", ts_dataset_labels(d), (size_t)ts_dataset_count(d) * sizeof(int32_t));
    ts_dataset_free(d);
    return TS_OK;
}

static ts_status image(const char *path)
{
    ts_array a;
    ts_status s = ts_image_load(path, &args.image, &a);

    if (s)
        return s;
    print_shape(&a);
    write_all("", a.data, a.bytes);
    free(a.data);
    return TS_OK;
}

static ts_status write_batches(const ts_dataset *d)
{
    ts_array all = ts_dataset_samples(d);
    size_t elements = all.bytes / ts_dtype_size(all.dtype) / (size_t)ts_dataset_count(d);
    ts_loader *l;
    ts_batch b;
    ts_status s = ts_loader_new(d, &args.load, &l);

    all.dtype = TS_F32;
    all.dims[0] = 0;
    for (int64_t i = 0; !s && i < args.steps; i++) {
        s = ts_loader_next(l, &b);
        if (s)
            break;
        all.dims[0] += b.rows;
        write_all("", b.samples, (size_t)b.rows * elements * sizeof(float));
        write_all(".labels", b.labels, (size_t)b.rows * sizeof(int32_t));
    }
    print_shape(&all);
    ts_loader_free(l);
    return s;
}

static ts_status batches(const char *name)
{
    ts_dataset *d;
    ts_status s;

    args.data.name = name;
    args.data.image = &args.image;
    s = ts_dataset_load(&args.data, &d);
    if (s)
        return s;
    args.load.normalize.mean = mean;
    args.load.normalize.deviation = deviation;
    s = write_batches(d);
    ts_dataset_free(d);
    return s;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        ts_status (*run)(const char *what);
    } commands[] = {{"open", open_set}, {"image", image}, {"batches", batches}};

    for (int i = 3; i < argc; i++) {
        char *equals = strchr(argv[i], '=');
        if (!equals)
            return 2;
        *equals = 0;
        set(argv[i], equals + 1);
    }
    for (int i = 0; argc > 2 && i < 3; i++)
        if (!strcmp(argv[1], commands[i].name)) {
            if (!commands[i].run(argv[2]))
                return 0;
            fputs(ts_error_text(), stderr);
            return 1;
        }
    return 2;
}
