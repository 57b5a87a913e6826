/* data.h - samples, images, and batches made ahead.
 *
 * Samples of one shape with their labels, in memory; and batches of them, made ahead by threads.
 *
 *   ts_dataset *d;
 *   ts_loader *l;
 *   ts_batch b;
 *   if (ts_dataset_load(&(ts_dataset_options){.name = "fashion-mnist"}, &d) ||
 *       ts_loader_new(d, &(ts_loader_options){.batch = 16, .shuffle = true}, &l))
 *       fputs(ts_error_text(), stderr);
 *   while (!ts_loader_next(l, &b) && b.epoch < 5)
 *       ts_engine_run(e, (const void *[]){b.samples, b.labels}, outputs);
 */
#ifndef TESSERA_DATA_H
#define TESSERA_DATA_H

#include <tessera.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ts_dataset ts_dataset;
typedef enum ts_split { TS_SPLIT_TRAIN, TS_SPLIT_TEST } ts_split;
typedef enum ts_task {
    TS_TASK_AUTO,    /* by what the labels are                          */
    TS_TASK_CLASSES, /* one of some classes                             */
    TS_TASK_NUMBERS  /* numbers, one or several: targets                */
} ts_task;
typedef enum ts_filter { TS_FILTER_BILINEAR, TS_FILTER_BICUBIC } ts_filter;

/* What is done to the pixels of an image, in this order. All zero: nothing. The results are
 * Pillow's: Image.convert, Image.resize, ImageOps.grayscale, ImageOps.invert. */
typedef struct ts_image_options {
    int height, width; /* resize to this, whatever the proportions; 0: keep the size         */
    ts_filter filter;  /* BILINEAR as torchvision's Resize, BICUBIC as Pillow's own default  */
    int channels;      /* 1: grayscale, 3: colour; 0: colour for image files, else as it is  */
    bool invert_light; /* 255 - x everywhere when the pixel in column 1, row 1 is above 200:
                          a light background, where Fashion-MNIST has a black one; needs a
                          grayscale image                                                   */
    int shorter;       /* resize so that the shorter side has so many pixels, proportions kept,
                          and take height x width out of the middle, as torchvision's Resize and
                          CenterCrop do; 0: no                                              */
} ts_image_options;

/* Reports how far a download is; return false to stop it. */
typedef bool ts_download_fn(void *arg, const char *file, int64_t done, int64_t total);

typedef struct ts_dataset_options {
    /* "mnist", "fashion-mnist", or the path of
     *   a folder of IDX files, gzipped or not     train-images-idx3-ubyte[.gz] and so on
     *   a folder of classes                       DIR/CLASS/NAME.png, .jpg or .jpeg, perhaps
     *                                             below DIR/train and DIR/test
     *   a folder with targets.csv                 images, and numbers or a class: a column `file`,
     *                                             and others
     *   a CSV file                                a row a sample: numbers and words, and labels
     *   an .npz file                              x and y, images and labels, or x_train, y_train,
     *                                             x_test, y_test
     *   an HDF5 file, .h5 or .hdf5                arrays called as in .npz; or larcv's events: sparse2d
     *                                             products, each projection a plane of the sample
     *   a .txt file                               text as tokens: windows, and the token that follows
     *                                             each; the last tenth is the test set
     *   an .npy file                              samples; u8 of [N, H, W] or [N, H, W, C] are
     *                                             images, here as in .npz */
    const char *name;
    ts_split split;
    /* Use so many samples only: the first, or of a folder of classes some of each; 0: all. */
    int64_t limit;
    const ts_image_options *image; /* of IDX, image and NumPy u8 samples; NULL: as they are */
    /* Where the files of a named set are, or go; NULL: $TESSERA_DATA_DIR, ./data, ~/.cache/tessera,
     * and what Debian's packages install. */
    const char *dir;
    /* Where to download them from when they are not there; NULL: $TESSERA_MNIST_URL or
     * $TESSERA_FASHION_MNIST_URL. */
    const char *url;
    ts_download_fn *progress;
    void *progress_arg;
    int stall_seconds;   /* a download fails after so long without a byte; 0: 30           */
    const char *label;   /* CSV: its column, a name or a number (0 is the first, -1 the last), or
                          several with commas; NULL: the one called "label", else the last. An
                          .npy file: the .npy file of its labels; NULL: it has none. An HDF5
                          file: its array or product                                    */
    int header;          /* CSV: 1 the first line has names, -1 it has not, 0 look at it  */
    bool integers;       /* samples become i32, for nets that take indices; a number that is not
                          whole, or beyond 2^24, is an error                               */
    ts_task task;        /* what the labels are. Numbers are targets, as i32 labels are classes */
    const char *drop;    /* CSV: columns to leave out, with commas                           */
    const char *missing; /* CSV: what becomes of a value that is missing: "mean", that of its
                          column (of words: none of them), or "drop", the row; NULL: an error */
    const char *columns; /* CSV: what the columns are, as ts_dataset_columns of another file says */
    int64_t window;      /* text: tokens of a sample; 0: 64                                    */
    int vocabulary;      /* text: so many tokens of byte pairs, above 256; 0: its characters   */
    const char *tokens;  /* text: the vocabulary, as ts_dataset_tokens of another says         */
    char separator;      /* CSV: 0: a comma, semicolon, tab or bar, by the first line          */
    const char
        *samples;   /* .npz, HDF5: the array, or the product, of the samples; `label` is that of
                          their labels. NULL: those called as above; of products the one that has
                          no whole numbers, and the labels are the one that has. Several with
                          commas: a sample is the numbers of all of them, f32, for nets of several
                          inputs. Arrays of a split may be called name_train and name_test      */
    int downsample; /* pictures: one pixel for each block of n x n, the mean; of labels the
                          largest. It divides both sizes; 0 means 1                           */
} ts_dataset_options;

TS_API ts_status ts_dataset_load_sized(const ts_dataset_options *opt, size_t size,
                                       size_t image_size, ts_dataset **out);
static inline ts_status ts_dataset_load(const ts_dataset_options *opt, ts_dataset **out)
{
    return ts_dataset_load_sized(opt, sizeof(*opt), sizeof(ts_image_options), out);
}
/* The i-th dataset that has a name; NULL past the last. */
TS_API const char *ts_dataset_builtin(int i);
/* The folder where the files of a named set are, "" when they are nowhere; downloads nothing. */
TS_API ts_status ts_dataset_find_sized(const ts_dataset_options *opt, size_t size, char *path,
                                       size_t room);
static inline ts_status ts_dataset_find(const ts_dataset_options *opt, char *path, size_t room)
{
    return ts_dataset_find_sized(opt, sizeof(*opt), path, room);
}
TS_API void ts_dataset_free(ts_dataset *d);
TS_API int64_t ts_dataset_count(const ts_dataset *d);
/* How many classes the labels count, 0 where there are no labels; and their names, NULL past the
 * last. */
TS_API int ts_dataset_classes(const ts_dataset *d);
TS_API const char *ts_dataset_class_name(const ts_dataset *d, int i);
/* Sample i as it is stored, u8, f32 or i32; an image is channels x height x width. Borrowed. */
TS_API ts_status ts_dataset_sample(const ts_dataset *d, int64_t i, ts_array *out);
/* All samples: the same with the count in front. Borrowed. */
TS_API ts_array ts_dataset_samples(const ts_dataset *d);
/* Numbers to be learned: how many of each sample, 0 for none; count x as many; and their names. */
TS_API int ts_dataset_target_count(const ts_dataset *d);
TS_API const float *ts_dataset_targets(const ts_dataset *d);
TS_API const char *ts_dataset_target_name(const ts_dataset *d, int i);
/* What the columns of a table are, for ts_dataset_options.columns of another file of the same table;
 * NULL: it is none. */
TS_API const char *ts_dataset_columns(const ts_dataset *d);
/* Some of the samples, copied: n of them, by their numbers. */
TS_API ts_status ts_dataset_pick(const ts_dataset *d, int64_t n, const int64_t *rows,
                                 ts_dataset **out);
/* A dataset of what is in memory, copied: samples of u8, f32 or i32 with the count in front, and
 * labels, i32 [count] for classes, i32 [count, .., height, width] for classes of pixels, or f32
 * [count, n] for targets; NULL: none. */
TS_API ts_status ts_dataset_from(const ts_array *samples, const ts_array *labels, ts_dataset **out);
/* A dataset whose samples the program makes: `read` writes sample i, its class and its targets,
 * and returns false to fail. The loader calls it on its threads, several at a time; the same i is
 * the same sample. Nothing is kept: ts_dataset_sample gives one until its next call, all samples,
 * labels and targets are NULL. */
typedef bool ts_sample_fn(void *arg, int64_t i, void *sample, int32_t *label, float *targets);
typedef struct ts_dataset_calls {
    int64_t count;
    ts_dtype dtype; /* of samples: u8, f32 or i32 */
    int rank;       /* of one sample */
    const int64_t *dims;
    int classes,
        targets; /* what is learned: one of so many classes, or so many numbers; or neither */
    ts_sample_fn *read;
    void *arg;
} ts_dataset_calls;
TS_API ts_status ts_dataset_call_sized(const ts_dataset_calls *from, size_t size, ts_dataset **out);
static inline ts_status ts_dataset_call(const ts_dataset_calls *from, ts_dataset **out)
{
    return ts_dataset_call_sized(from, sizeof(*from), out);
}
TS_API const int32_t *ts_dataset_labels(const ts_dataset *d); /* count of them; all 0 for none */
/* Labels of a sample: 1; of a text one for each token, of a picture perhaps one for each pixel. */
TS_API int64_t ts_dataset_label_count(const ts_dataset *d);
/* Labels of pixels: their rank and dims, height x width or planes x height x width; else 0. */
TS_API int ts_dataset_label_shape(const ts_dataset *d, int64_t dims[TS_MAX_RANK]);
/* The vocabulary of a text, for ts_dataset_options.tokens and ts_tokens_parse; NULL: it is none. */
TS_API const char *ts_dataset_tokens(const ts_dataset *d);

/* A vocabulary: text to numbers and back. */
typedef struct ts_tokens ts_tokens;
TS_API ts_status ts_tokens_parse(const char *text, ts_tokens **out);
TS_API void ts_tokens_free(ts_tokens *t);
TS_API const char *ts_tokens_text(const ts_tokens *t); /* its description; borrowed */
TS_API int ts_tokens_count(const ts_tokens *t);
/* The bytes of a token, borrowed; NULL: there is none such. */
TS_API const char *ts_tokens_at(const ts_tokens *t, int i, size_t *len);
/* free(*ids). A character that the vocabulary has not is an error. */
TS_API ts_status ts_tokens_encode(const ts_tokens *t, const char *text, size_t len, int32_t **ids,
                                  int64_t *n);

/* (x - mean) / deviation, after u8 became x / 255: PyTorch's ToTensor and Normalize, bit for bit.
 * One number for all channels or one for each (the first dim of a sample); n = 0: only ToTensor. */
typedef struct ts_normalize {
    const double *mean, *deviation;
    int n;
} ts_normalize;
/* A sample, or with `batched` many of them, as f32. out has room for as many elements. */
TS_API ts_status ts_to_tensor(const ts_array *samples, bool batched, const ts_normalize *how,
                              float *out);
/* A PNG or JPEG file as u8, channels x height x width; free(out->data). */
TS_API ts_status ts_image_load_sized(const char *path, const ts_image_options *opt, size_t size,
                                     ts_array *out);
static inline ts_status ts_image_load(const char *path, const ts_image_options *opt, ts_array *out)
{
    return ts_image_load_sized(path, opt, sizeof(*opt), out);
}

/* Images changed at random, by the loader's seed, the epoch and the sample: the same for any number
 * of threads. All zero: nothing. What lies outside the picture is black. */
typedef struct ts_augment {
    double flip, flip_vertical; /* how probable it is that left and right, or up and down, change */
    int shift;                  /* up to so many pixels each way; padding and a random crop       */
    double rotate;              /* up to so many degrees each way                                 */
    double brightness, contrast,
        saturation; /* by factors of 1 - x to 1 + x                       */
    int cutout;     /* the side of a square that becomes the mean         */
    double mixup;   /* two samples are mixed by shares of Beta(mixup, mixup), and so are their
                     targets; of classes, the batch's targets are how probable each one is        */
} ts_augment;

typedef struct ts_loader ts_loader;
typedef struct ts_loader_options {
    int64_t batch; /* rows a call: what one run of the engine takes; 0 means 1           */
    bool shuffle;  /* by seed and epoch, as ts_train does; else as they are stored       */
    uint64_t seed;
    bool drop_last; /* leave out the rows that do not fill a batch; else pad it with 0    */
    int threads;    /* that make batches; 0 means 1; -1: none, ts_loader_next makes them  */
    int prefetch;   /* batches made ahead; 0: 2, or as many as there are threads          */
    /* Loaders of `parts` processes: of `parts` batches that follow each other, each makes one of
     * its own. They are dealt out in runs of `chunk` rows, to part 0 first; 0: one run, the batch.
     * A chunk divides the batch, and drop_last is needed. */
    int part, parts; /* this one, and how many; parts 0 means 1 */
    int64_t chunk;
    ts_normalize normalize;
    /* Changes a sample after that, in place. Runs on the loader's threads. What it does should
     * depend on its arguments only: `random` is made of seed, epoch and sample, so that the result
     * is the same for any number of threads. Return false to fail. */
    bool (*augment)(void *arg, float *sample, int32_t label, uint64_t random);
    void *augment_arg;
    ts_normalize targets; /* the same for the targets, one for all or one for each; n = 0: none */
    const ts_augment *images; /* before `augment`; NULL: as they are; must live as long */
} ts_loader_options;
typedef struct ts_batch {
    const float *samples;   /* batch of them; valid until the loader's next call. Of integers the
                              same memory is `indices`                            */
    const int32_t *labels;  /* batch of them, times the labels of a sample         */
    int64_t rows;           /* how many are real; what follows them is 0           */
    int64_t epoch, step;    /* where this batch stands, both from 0                */
    const float *targets;   /* batch x target count, of mixed classes x their number; or NULL */
    const int32_t *indices; /* the samples of a dataset of integers; NULL: they are numbers */
} ts_batch;

/* The loader needs d to live on. */
TS_API ts_status ts_loader_new_sized(const ts_dataset *d, const ts_loader_options *opt, size_t size,
                                     ts_loader **out);
static inline ts_status ts_loader_new(const ts_dataset *d, const ts_loader_options *opt,
                                      ts_loader **out)
{
    return ts_loader_new_sized(d, opt, sizeof(*opt), out);
}
TS_API void ts_loader_free(ts_loader *l);
/* The next batch; after the last of an epoch comes the first of the next, without end. */
TS_API ts_status ts_loader_next_sized(ts_loader *l, ts_batch *out, size_t size);
static inline ts_status ts_loader_next(ts_loader *l, ts_batch *out)
{
    return ts_loader_next_sized(l, out, sizeof(*out));
}
TS_API int64_t ts_loader_steps(const ts_loader *l); /* batches an epoch */
/* Which batch ts_loader_next gives next; a checkpoint keeps the two numbers, and a loader of the
 * same data and options that seeks there continues with the same batches. */
TS_API void ts_loader_position(const ts_loader *l, int64_t *epoch, int64_t *step);
TS_API ts_status ts_loader_seek(ts_loader *l, int64_t epoch, int64_t step);

#ifdef __cplusplus
}
#endif
#endif
