/* idx.c - the files of MNIST and Fashion-MNIST.
 *
 *   big-endian words:  00 00 08 RANK   dim 0   dim 1   ...    then as many bytes as the dims say
 *
 * 08 is the type, unsigned bytes; other types exist on paper only.
 */
#include "data/data.h"
#include <limits.h>
#include <unistd.h>

enum { UNSIGNED_BYTE = 0x08, WORD = 4 };

/* No dataset of bytes that fits in memory is larger; it bounds what a .gz may unpack to. */
static const size_t most_bytes = (size_t)1 << 34;

static ts_status corrupt(const char *path, const char *what)
{
    ts_fail(TS_ERR_CORRUPT, "%s %s", path, what);
    ts_error_hint("copy or download the file again");
    return TS_ERR_CORRUPT;
}

static uint32_t word(const uint8_t *b)
{
    return (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
}

ts_status ts_idx_parse(const char *path, const void *data, size_t len, ts_idx *out)
{
    const uint8_t *b = data;
    size_t want = 1, head;

    *out = (ts_idx){0};
    if (len < WORD)
        return corrupt(path, "is cut short");
    if (b[0] || b[1] || b[2] != UNSIGNED_BYTE || !b[3] || b[3] > TS_MAX_RANK) {
        ts_fail(TS_ERR_PARSE,
                "%s starts with %02x %02x %02x %02x, which is not an IDX file of bytes", path, b[0],
                b[1], b[2], b[3]);
        ts_error_hint("IDX files start with 00 00 08 and the number of dims, gzipped or not");
        return TS_ERR_PARSE;
    }
    out->rank = b[3];
    head = WORD * (size_t)(1 + out->rank);
    if (len < head)
        return corrupt(path, "is cut short");
    for (int i = 0; i < out->rank; i++) {
        out->dims[i] = word(b + WORD * (1 + i));
        if (__builtin_mul_overflow(want, (size_t)out->dims[i], &want))
            return corrupt(path, "claims a size that cannot be");
    }
    if (len - head != want)
        return ts_fail(TS_ERR_CORRUPT, "%s should have %zu bytes after its header and has %zu",
                       path, want, len - head);
    out->body = b + head;
    out->bytes = want;
    return TS_OK;
}

/* The file itself or, where that is not there, the same with .gz. */
static bool find(const char *folder, const char *name, char *path)
{
    char packed[64];

    snprintf(packed, sizeof(packed), "%s.gz", name);
    return (ts_path_join(path, PATH_MAX, folder, name) && !access(path, F_OK)) ||
           (ts_path_join(path, PATH_MAX, folder, packed) && !access(path, F_OK));
}

static const char *const names[][2] = {
    [TS_SPLIT_TRAIN] = {"train-images-idx3-ubyte", "train-labels-idx1-ubyte"},
    [TS_SPLIT_TEST] = {"t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"},
};

int ts_idx_files(const char *folder, ts_split split)
{
    char path[PATH_MAX];

    return find(folder, names[split][0], path) + find(folder, names[split][1], path);
}

/* *data holds what *idx points into. */
static ts_status read_file(const char *folder, const char *name, char *path, void **data,
                           ts_idx *idx)
{
    char *file;
    size_t len;

    *data = NULL;
    if (!find(folder, name, path))
        return ts_fail(TS_ERR_FILE, "neither %s nor %s.gz is in %s", name, name, folder);
    TS_TRY(ts_file_read(path, &file, &len));
    *data = file;
    if (ts_gzip_is(file, len)) {
        ts_status s = ts_gzip_unpack(path, file, len, most_bytes, data, &len);
        free(file);
        if (s) {
            *data = NULL;
            return s;
        }
    }
    return ts_idx_parse(path, *data, len, idx);
}

static ts_status check_counts(const char *path, const ts_idx *images, const ts_idx *labels)
{
    if (labels->rank != 1)
        return ts_fail(TS_ERR_CORRUPT, "%s has %d dims, and labels have one", path, labels->rank);
    if (labels->dims[0] != images->dims[0])
        return ts_fail(TS_ERR_CORRUPT, "%s has %ld labels, and there are %ld images", path,
                       (long)labels->dims[0], (long)images->dims[0]);
    return TS_OK;
}

/* count x height x width: an image has one channel. */
static ts_status make(const char *path, const ts_idx *images, int64_t limit, ts_dataset **out)
{
    int64_t count = images->dims[0], dims[3] = {1, images->dims[1], images->dims[2]};

    if (images->rank != 3 || !images->bytes) {
        ts_fail(TS_ERR_CORRUPT, "%s has %d dims and %zu bytes, which are no images", path,
                images->rank, images->bytes);
        ts_error_hint("images have three dims: how many, height and width");
        return TS_ERR_CORRUPT;
    }
    TS_TRY(ts_dataset_new(TS_U8, limit ? TS_MIN(limit, count) : count, 3, dims, out));
    memcpy((*out)->sample.data, images->body, (size_t)(*out)->count * (*out)->sample.bytes);
    return TS_OK;
}

static ts_status add_labels(const char *folder, ts_split split, const ts_idx *images, int classes,
                            ts_dataset *d)
{
    char path[PATH_MAX];
    void *data;
    ts_idx labels;
    ts_status s = read_file(folder, names[split][1], path, &data, &labels);

    if (!s)
        s = check_counts(path, images, &labels);
    for (int64_t i = 0; !s && i < d->count; i++)
        d->labels[i] = labels.body[i];
    if (!s)
        s = ts_dataset_number_classes(d, classes, path);
    free(data);
    return s;
}

ts_status ts_idx_open(const char *folder, ts_split split, int64_t limit, int classes,
                      ts_dataset **out)
{
    char path[PATH_MAX];
    void *data;
    ts_idx images;
    ts_dataset *d = NULL;
    ts_status s = read_file(folder, names[split][0], path, &data, &images);

    if (!s)
        s = make(path, &images, limit, &d);
    free(data);
    if (!s)
        s = add_labels(folder, split, &images, classes, d);
    if (s) {
        ts_dataset_free(d);
        return s;
    }
    *out = d;
    return TS_OK;
}
