/* data.h - files -> a dataset in memory -> batches.
 *
 *   find.c download.c      a name       -> a folder of IDX files
 *   idx.c folder.c csv.c
 *   numpy.c hdf5.c text.c  a file       -> a dataset
 *   calls.c                a function   -> the same, sample by sample
 *   apart.c                that, by a process of its own
 *   png.c jpeg.c           image bytes  -> pixels
 *   image.c resize.c       pixels       -> the pixels asked for
 *   pixels.c               pictures and their labels -> smaller ones
 *   scale.c                u8 or f32    -> normalised f32
 *   augment.c              an image     -> one changed at random
 *   loader.c               a dataset    -> batches, on threads
 *
 * Every parser works on bytes in memory: a file is read whole first, so that the sizes it claims
 * can be held against its length before anything is allocated.
 */
#ifndef TS_DATA_H
#define TS_DATA_H

#include "base/base.h"
#include "tessera/data.h"
#include "tessera/store.h"

struct ts_dataset {
    ts_arena *arena; /* class names */
    int64_t count;
    ts_array sample; /* shape, dtype (u8, f32 or i32) and bytes of one; data is the first */
    int32_t *labels; /* count x nlabels */
    int64_t nlabels; /* of a sample: 1, of a text one for each token, of a picture of each pixel */
    int label_rank; /* labels of pixels: their dims, of which the last two are the picture's; else 0 */
    int64_t label_dims[TS_MAX_RANK];
    int nclasses;
    const char **classes;
    bool downsampled;   /* as the options say, by who read it */
    ts_sample_fn *read; /* makes a sample; NULL: they are in memory. Else there is room for one */
    void *read_arg;
    float *targets; /* count x ntargets; NULL: none */
    int ntargets;
    const char **target_names;
    const char *tokens;  /* of a text: ts_tokens_text; NULL: it is none */
    const char *columns; /* of a table: what they are, as a text; NULL: it is none */
};

/* dataset.c: room for count samples; dims are of one */
ts_status ts_dataset_new(ts_dtype dtype, int64_t count, int rank, const int64_t *dims,
                         ts_dataset **out);
/* So many labels a sample, all 0. */
ts_status ts_dataset_more_labels(ts_dataset *d, int64_t n);
/* So many dims of labels a sample: one for each pixel. All 0. */
ts_status ts_dataset_label_pixels(ts_dataset *d, int rank, const int64_t *dims);
/* What of d is no samples, labels or targets: names, and room for those; labels of such dims. */
ts_status ts_dataset_like(const ts_dataset *d, int label_rank, const int64_t *label_dims,
                          ts_dataset *out);
/* calls.c: a sample that the program makes; label and targets have room */
ts_status ts_dataset_read(const ts_dataset *d, int64_t row, void *sample, int32_t *label,
                          float *targets);
/* text.c */
ts_status ts_text_open(const ts_dataset_options *opt, ts_dataset **out);
/* Room for n numbers to be learned of each sample. */
ts_status ts_dataset_add_targets(ts_dataset *d, int n);
/* Are those labels of its pixels? */
bool ts_dataset_fits_pixels(const ts_dataset *d, const ts_array *y);
/* i32: classes, one a sample or one a pixel; f32: targets. */
ts_status ts_dataset_set_labels(ts_dataset *d, const ts_array *y, const char *path);
void *ts_dataset_at(const ts_dataset *d, int64_t i);
/* Classes 0..n-1 called by their numbers; fails when a label is outside. n = 0: as many as there
 * are. `path` is for the message. */
ts_status ts_dataset_number_classes(ts_dataset *d, int n, const char *path);
bool ts_path_join(char *path, size_t size, const char *folder, const char *name);

/* gzip.c: bytes of a .gz file, unpacked; free(*out). At most `most` bytes come out. */
bool ts_gzip_is(const void *data, size_t len);
ts_status ts_gzip_unpack(const char *path, const void *data, size_t len, size_t most, void **out,
                         size_t *out_len);

/* idx.c: dims of an IDX file of bytes; *body points into data */
typedef struct ts_idx {
    int rank;
    int64_t dims[TS_MAX_RANK];
    const uint8_t *body;
    size_t bytes; /* of the body */
} ts_idx;
ts_status ts_idx_parse(const char *path, const void *data, size_t len, ts_idx *out);
int ts_idx_files(const char *folder, ts_split split); /* how many of the two it has */
ts_status ts_idx_open(const char *folder, ts_split split, int64_t limit, int classes,
                      ts_dataset **out);

/* image.c: one image. Pixels are as files have them: row by row, the channels of a pixel
 * together. */
typedef struct ts_image {
    int width, height, channels; /* channels: 1 or 3 */
    uint8_t *pixels;             /* free() them */
} ts_image;
/* Fails when an image of this size is more than a file of len bytes can honestly hold: `most`
 * pixels a byte. */
ts_status ts_image_check(const char *path, int64_t width, int64_t height, size_t len, int most);
ts_status ts_image_decode(const char *path, const void *data, size_t len, ts_image *out);
ts_status ts_image_read(const char *path, const ts_image_options *opt, ts_image *out);
ts_status ts_image_options_check(const ts_image_options *opt);
ts_status ts_image_apply(const ts_image_options *opt, ts_image *im);
void ts_image_to_planes(const ts_image *im, uint8_t *out);
/* A dataset of u8 images (channels x height x width) becomes one of changed images. */
ts_status ts_dataset_apply(const ts_image_options *opt, ts_dataset **d);

/* png.c, jpeg.c: what Pillow's convert gives, "L" for gray files and "RGB" for the others */
ts_status ts_png_decode(const char *path, const void *data, size_t len, ts_image *out);
ts_status ts_jpeg_decode(const char *path, const void *data, size_t len, ts_image *out);

/* resize.c */
ts_status ts_resize(const ts_image *in, int width, int height, ts_filter filter, ts_image *out);

/* folder.c: a folder of classes */
ts_status ts_folder_open(const char *path, const ts_dataset_options *opt, ts_dataset **out);

/* csv.c: parsing cuts the text up; data[len] must be 0 */
ts_status ts_csv_parse(const char *path, char *data, size_t len, const ts_dataset_options *opt,
                       ts_dataset **out);
/* file,NAME,...: files with numbers or a class; all of it in the arena. Of `opt` only what concerns
 * the columns counts. */
typedef struct ts_csv_files {
    const char **files, **names;
    float *targets; /* n x ntargets */
    int n, ntargets;
    int32_t *labels; /* where ntargets is 0 */
    const char **classes;
    int nclasses;
} ts_csv_files;
ts_status ts_csv_list(ts_arena *a, const char *path, const ts_dataset_options *opt,
                      ts_csv_files *out);
ts_status ts_data_csv(const char *path, const ts_dataset_options *opt, ts_dataset **out);

/* numpy.c */
/* join.c: up to TS_JOINED arrays of a file as one; free(out->data) */
enum { TS_JOINED = 16 };
ts_status ts_join_arrays(const ts_array *x, int count, const char *path, ts_array *out);
ts_status ts_join_count(const char *names, const char *path, int *count); /* of "a,b" 2 */
bool ts_join_name(const char *names, int i, ts_split split, bool plain, char *out, size_t size);
ts_status ts_numpy_open(const ts_dataset_options *opt, ts_dataset **out);
ts_status ts_numpy_take(const ts_object *o, const ts_dataset_options *opt, ts_dataset **out);
/* Samples and labels, which may be NULL, as a dataset. */
ts_status ts_numpy_pair(const ts_array *x, const ts_array *y, const ts_dataset_options *opt,
                        ts_dataset **out);

/* apart.c: what reads may crash on a damaged file; it does so in a process of its own */
typedef ts_status ts_read_fn(const ts_dataset_options *opt, ts_dataset **out);
ts_status ts_dataset_apart(ts_read_fn *read, const ts_dataset_options *opt, ts_dataset **out);

/* hdf5.c */
ts_status ts_hdf5_open(const ts_dataset_options *opt, ts_dataset **out);

/* pixels.c: one pixel for each block of n x n, which divides both sizes */
ts_status ts_pixels_check(const char *path, int64_t height, int64_t width, int n);
void ts_pixels_mean(const float *in, int64_t height, int64_t width, int n, float *out);
void ts_pixels_largest(const int32_t *in, int64_t height, int64_t width, int n, int32_t *out);
ts_status ts_dataset_downsample(const char *path, int n, ts_dataset **d);

/* find.c: the sets known by name */
typedef struct ts_known_file {
    const char *name;
    size_t bytes;       /* unpacked; packed it is never larger */
    const char *sha256; /* of the unpacked bytes: packing differs between those who offer it */
} ts_known_file;
typedef struct ts_known_set {
    const char *name, *folder, *package; /* folder: torchvision's name for it */
    const char *installed;               /* where the package puts it */
    const char *variable;                /* of the environment: where to download it from */
    const char *classes[10];
    ts_known_file files[4]; /* images and labels of train, then of test */
} ts_known_set;
/* download.c: one file of a set into a folder, resumed where an earlier try ended, and checked */
ts_status ts_download(const char *url, const char *folder, const ts_known_file *file,
                      const ts_dataset_options *opt);

const ts_known_set *ts_known(const char *name);
ts_status ts_known_open(const ts_known_set *k, const ts_dataset_options *opt, ts_dataset **out);

/* augment.c: scratch has room for a sample; n labels of its pixels move with them, 0: none */
ts_status ts_augment_check(const ts_augment *how, const ts_array *sample);
void ts_augment_run(const ts_augment *how, const ts_array *shape, const ts_normalize *normal,
                    uint64_t random, float *sample, float *scratch, int32_t *labels, int64_t n);
double ts_augment_share(const ts_augment *how, uint64_t random); /* of the first of two mixed */

/* scale.c: u8 or f32 samples -> f32; i32 stay as they are */
typedef struct ts_scale {
    ts_dtype dtype;
    int64_t channels, plane; /* a sample is channels x plane elements */
    float *table;            /* u8: channels x 256 */
    float *mean, *deviation; /* f32: channels of each; NULL: as it is */
} ts_scale;
ts_status ts_scale_new(const ts_array *sample, const ts_normalize *how, ts_scale *out);
void ts_scale_run(const ts_scale *s, const void *sample, float *out);
void ts_scale_free(ts_scale *s);

#endif
