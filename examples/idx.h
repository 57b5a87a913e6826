/* idx.h - the images and labels of MNIST and Fashion-MNIST, all of them, as ts_train takes them. */
#ifndef IDX_H
#define IDX_H

#include "tessera/data.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { IDX_SIDE = 28, IDX_PIXELS = IDX_SIDE * IDX_SIDE, IDX_CLASSES = 10 };

typedef struct idx_set {
    ts_dataset *data;
    int64_t n;
    float *images;         /* n x 1 x 28 x 28, (pixel / 255 - mean) / deviation */
    const int32_t *labels; /* n, 0..9 */
} idx_set;

static inline void idx_free(idx_set *s)
{
    free(s->images);
    ts_dataset_free(s->data);
    *s = (idx_set){0};
}

static inline bool idx_fits(const char *folder, const ts_array *images, int classes)
{
    if (images->rank == 4 && images->dims[1] == 1 && images->dims[2] == IDX_SIDE &&
        images->dims[3] == IDX_SIDE && classes <= IDX_CLASSES)
        return true;
    fprintf(stderr, "%s does not hold images of 28 x 28 bytes with labels from 0 to 9\n", folder);
    return false;
}

/* Reads "train" or "t10k" from a folder, at most `limit` samples (0: all). On failure says why on
 * stderr and returns false. */
static inline bool idx_load(const char *folder, const char *which, int64_t limit, double mean,
                            double deviation, idx_set *s)
{
    ts_dataset_options o = {.name = folder,
                            .split = strcmp(which, "train") ? TS_SPLIT_TEST : TS_SPLIT_TRAIN,
                            .limit = limit};
    ts_normalize how = {&mean, &deviation, 1};
    ts_array images;

    *s = (idx_set){0};
    if (ts_dataset_load(&o, &s->data)) {
        fputs(ts_error_text(), stderr);
        return false;
    }
    images = ts_dataset_samples(s->data);
    s->n = ts_dataset_count(s->data);
    s->labels = ts_dataset_labels(s->data);
    s->images = malloc(images.bytes * sizeof(float));
    if (idx_fits(folder, &images, ts_dataset_classes(s->data)) && s->images &&
        !ts_to_tensor(&images, true, &how, s->images))
        return true;
    idx_free(s);
    return false;
}

#endif
