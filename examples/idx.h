/* idx.h - reads the images and labels of MNIST and Fashion-MNIST: IDX files, gzipped or not.
 *
 *   big-endian words:  0x00000803  count  28  28    then count * 784 bytes   (images)
 *                      0x00000801  count            then count bytes         (labels)
 */
#ifndef IDX_H
#define IDX_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <zlib.h>

enum { IDX_SIDE = 28, IDX_PIXELS = IDX_SIDE * IDX_SIDE, IDX_CLASSES = 10 };

typedef struct idx_set {
    int64_t n;
    float *images;   /* n x 1 x 28 x 28, (pixel / 255 - mean) / deviation */
    int32_t *labels; /* n, 0..9 */
} idx_set;

static inline void idx_free(idx_set *s)
{
    free(s->images);
    free(s->labels);
    *s = (idx_set){0};
}

static inline bool idx_fail(const char *path, const char *what)
{
    fprintf(stderr, "%s: %s\n", path, what);
    return false;
}

/* The file itself or, where that is not there, the same with .gz. */
static inline gzFile idx_open(const char *folder, const char *name, char *path, size_t size)
{
    gzFile f;

    snprintf(path, size, "%s/%s", folder, name);
    if (access(path, F_OK))
        snprintf(path, size, "%s/%s.gz", folder, name);
    f = gzopen(path, "rb");
    if (!f)
        idx_fail(path, "cannot be opened");
    return f;
}

static inline bool idx_read(gzFile f, const char *path, void *data, unsigned bytes)
{
    int got = gzread(f, data, bytes), error;

    if (got == (int)bytes)
        return true;
    gzerror(f, &error);
    return idx_fail(path, error == Z_DATA_ERROR ? "is corrupt" : "is cut short");
}

/* At the end of a whole file: nothing follows, and gzip's checksum is right. */
static inline bool idx_end(gzFile f, const char *path)
{
    uint8_t more;
    int got = gzread(f, &more, 1), error = Z_OK;

    if (got > 0)
        return idx_fail(path, "is longer than it says");
    gzerror(f, &error);
    if (got == 0 && (error == Z_OK || error == Z_STREAM_END))
        return true;
    return idx_fail(path, error == Z_BUF_ERROR ? "is cut short" : "is corrupt");
}

static inline bool idx_words(gzFile f, const char *path, uint32_t *words, int n)
{
    uint8_t b[4];

    for (int i = 0; i < n; i++) {
        if (!idx_read(f, path, b, 4))
            return false;
        words[i] = (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
    }
    return true;
}

static inline bool idx_read_images(gzFile f, const char *path, int64_t limit, double mean,
                                   double deviation, idx_set *s)
{
    uint8_t row[IDX_PIXELS];
    uint32_t head[4];

    if (!idx_words(f, path, head, 4))
        return false;
    if (head[0] != 0x803 || head[2] != IDX_SIDE || head[3] != IDX_SIDE || !head[1])
        return idx_fail(path, "does not hold images of 28 x 28 bytes");
    s->n = limit > 0 && limit < head[1] ? limit : head[1];
    s->images = malloc(sizeof(float[IDX_PIXELS]) * (size_t)s->n);
    if (!s->images)
        return idx_fail(path, "needs more memory than there is");
    for (int64_t i = 0; i < s->n; i++) {
        if (!idx_read(f, path, row, sizeof(row)))
            return false;
        for (int p = 0; p < IDX_PIXELS; p++)
            s->images[i * IDX_PIXELS + p] = (float)((row[p] / 255.0 - mean) / deviation);
    }
    return s->n < head[1] || idx_end(f, path);
}

static inline bool idx_read_labels(gzFile f, const char *path, idx_set *s)
{
    uint32_t head[2];
    uint8_t label;

    if (!idx_words(f, path, head, 2))
        return false;
    if (head[0] != 0x801 || head[1] < s->n)
        return idx_fail(path, "does not hold a label for each image");
    s->labels = malloc(sizeof(int32_t) * (size_t)s->n);
    if (!s->labels)
        return idx_fail(path, "needs more memory than there is");
    for (int64_t i = 0; i < s->n; i++) {
        if (!idx_read(f, path, &label, 1))
            return false;
        if (label >= IDX_CLASSES)
            return idx_fail(path, "has a label above 9");
        s->labels[i] = label;
    }
    return s->n < head[1] || idx_end(f, path);
}

/* Reads "train" or "t10k" from a folder, at most `limit` samples (0: all). On failure says why on
 * stderr and returns false. */
static inline bool idx_load(const char *folder, const char *which, int64_t limit, double mean,
                            double deviation, idx_set *s)
{
    char path[4096], name[64];
    bool good = false;
    gzFile f;

    *s = (idx_set){0};
    snprintf(name, sizeof(name), "%s-images-idx3-ubyte", which);
    if ((f = idx_open(folder, name, path, sizeof(path)))) {
        good = idx_read_images(f, path, limit, mean, deviation, s);
        gzclose(f);
    }
    snprintf(name, sizeof(name), "%s-labels-idx1-ubyte", which);
    if (good && (good = (f = idx_open(folder, name, path, sizeof(path))) != NULL)) {
        good = idx_read_labels(f, path, s);
        gzclose(f);
    }
    if (!good)
        idx_free(s);
    return good;
}

#endif
