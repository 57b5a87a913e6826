/* store.h - what is kept on disk between runs: trees of plain data as files.
 *
 *   ts_object_load:  file -> ts_input -> one reader per format -> ts_object
 *   ts_object_save:  ts_object -> one writer per format -> ts_file_out
 *
 * Readers trust nothing. A size is compared with the file's length before it is allocated, and
 * tensors take the file's length and little more (deflated entries: what deflate can do at best).
 * Other values are counted: a byte of a pickle can be a value of a hundred.
 */
#ifndef TS_STORE_H
#define TS_STORE_H

#include "base/base.h"
#include "tessera/store.h"

#define TS_STORE_DEPTH  200               /* nesting of lists, tuples and dicts           */
#define TS_METADATA     "__metadata__"    /* a dict of text in a dict of tensors          */
#define TS_STORE_VALUES ((size_t)1 << 24) /* of a tree that is read, shared ones each time */

/* Bytes with several owners: a storage and the tensors that are views of it. */
typedef struct ts_blob {
    size_t refs, bytes;
    bool blank; /* what it should have was not read: there are no bytes */
    _Alignas(64) uint8_t data[];
} ts_blob;

typedef struct ts_tensor {
    ts_array array;
    ts_blob *blob; /* array.data points into it */
} ts_tensor;

/* Kinds that exist only while a pickle is read. */
enum {
    TS_KIND_BYTES = TS_KIND_TENSOR + 1, /* text: the bytes                                    */
    TS_KIND_GLOBAL,                     /* text: "module.name"                                */
    TS_KIND_STORAGE,                    /* i: its place in ts_pickle.storages                 */
    TS_KIND_NUMPY_TYPE,                 /* i: a ts_dtype                                      */
    TS_KIND_NUMPY_ARRAY,                /* nothing yet; a tensor when its state comes         */
};

struct ts_object {
    int kind;        /* ts_kind or one of the above                       */
    size_t refs;     /* owners                                            */
    unsigned height; /* ts_object_survey: 0 not seen, else levels below+1 */
    size_t values;   /* ts_object_survey: in the tree from here down      */
    ts_object *next; /* in ts_object_free's list of those to take away    */
    union {
        int64_t i;
        double f;
        struct {
            char *s; /* ends in NUL */
            size_t len;
        } text;
        struct {
            ts_object **items, **keys; /* keys: dicts only                          */
            uint32_t *index;           /* dicts of some size: open addressing; i + 1 */
            size_t n, cap, nindex;
        } seq;
        ts_tensor *tensor;
    };
};

/* object.c */
ts_status ts_object_make(int kind, ts_object **out);
ts_status ts_object_make_text(int kind, const char *s, size_t len, ts_object **out);
ts_status ts_object_set_tensor(ts_object *o, const ts_array *a, ts_blob *blob); /* in place */
ts_status ts_object_put(ts_object *dict, ts_object *key, ts_object *child);     /* takes both */
void ts_object_clear(ts_object *o); /* a container loses its items */
/* Is it what a reader may hand out: nested and spread within limits, no cycle, no kind of
 * our own? */
ts_status ts_object_survey(ts_object *o);
ts_status ts_object_too_many(void); /* the error of a tree of more than TS_STORE_VALUES */
const char *ts_object_words(const ts_object *o, char *buf, size_t size); /* a key, for a message */
ts_status ts_store_grow(void **array, size_t *cap, size_t need, size_t item);
/* The bytes of an array of this dtype, rank and dims; fails when they are no array's. */
ts_status ts_array_size(const ts_array *a, size_t *bytes);

/* input.c: bytes of a file or of memory */
typedef struct ts_input {
    int fd; /* when mem is NULL */
    const uint8_t *mem;
    uint64_t size;
    uint64_t memory; /* what may come out of it; 0: the usual */
    bool shapes;     /* no tensors, only what they are like   */
} ts_input;
ts_status ts_input_open(ts_input *in, const char *path);
void ts_input_close(ts_input *in);
ts_status ts_input_read(const ts_input *in, uint64_t at, void *to, uint64_t len);
ts_status ts_blob_new(uint64_t bytes, ts_blob **out);
ts_status ts_blob_blank(uint64_t bytes, ts_blob **out);
uint64_t ts_input_memory(const ts_input *in);
ts_status ts_blob_read(const ts_input *in, uint64_t at, uint64_t len, ts_blob **out);
void ts_blob_free(ts_blob *b);

/* Reads forward, a few bytes at a time. */
typedef struct ts_cursor {
    const ts_input *in;
    uint64_t at;
    uint8_t *window; /* in->size bytes or less from `start` on, of a file */
    uint64_t start;
    size_t len, cap;
} ts_cursor;
ts_status ts_cursor_take(ts_cursor *c, uint64_t len,
                         const uint8_t **bytes); /* until the next take */
void ts_cursor_close(ts_cursor *c);
uint64_t ts_little(const uint8_t *p, int bytes); /* an unsigned number */

/* tensor.c: what the formats call the dtypes, and tensors from what they hold */
typedef struct ts_store_dtype {
    const char *torch, *storage, *safe, *numpy; /* numpy NULL: it has none */
} ts_store_dtype;
extern const ts_store_dtype ts_store_dtypes[];
#define TS_STORE_DTYPES (TS_BOOL + 1)
/* Which dtype has this name in the column at `offset` of the table; -1: none. */
int ts_store_dtype_find(size_t offset, const char *name, size_t len);
/* The elements at first, first + strides..., of a blob as a dense tensor; shares the blob when they
 * are dense already. `room` is what may still be allocated for those that are not. */
ts_status ts_tensor_view(ts_array *a, uint64_t first, const int64_t *strides, ts_blob *from,
                         uint64_t *room, ts_blob **out);
/* Any byte may stand in a file; a bool in C is 0 or 1. */
void ts_bools_tidy(ts_dtype t, void *data, size_t bytes);
void ts_array_strides(const ts_array *a, bool fortran, int64_t *strides); /* of a dense one */
/* Elements from `first` on, dense in C's or Fortran's order, as the tensor o or as a new one. */
ts_status ts_tensor_fill(ts_object *o, ts_array *a, uint64_t first, bool fortran, ts_blob *from);
ts_status ts_tensor_make(ts_array *a, uint64_t first, bool fortran, ts_blob *from, ts_object **out);

/* pickle.c: an interpreter of the pickle machine that builds plain data only */
typedef struct ts_storage {
    const ts_object *key; /* text */
    uint64_t bytes;
    ts_dtype dtype;
    ts_blob *data; /* ts_storage_fn fills it */
} ts_storage;
typedef struct ts_view { /* a tensor whose storage may still be to come */
    ts_object *o;
    ts_array array;
    size_t storage;
    uint64_t offset; /* in elements */
    int64_t strides[TS_MAX_RANK];
} ts_view;
typedef struct ts_objects {
    ts_object **at;
    size_t n, cap;
} ts_objects;
typedef struct ts_pickle {
    ts_cursor *in;
    uint64_t start, spent;
    ts_objects made;        /* owns every object that was made */
    ts_objects stack, memo; /* borrow them; a NULL on the stack is a mark */
    ts_storage *storages;
    size_t nstorages, storages_cap;
    ts_object *keys; /* dict: a storage's key -> its place */
    ts_view *views;
    size_t nviews, views_cap;
} ts_pickle;
/* Gives every storage its data. */
typedef ts_status ts_storage_fn(void *ctx, ts_pickle *p);
ts_status ts_pickle_load(ts_cursor *in, ts_storage_fn *fill, void *ctx, ts_object **out);
ts_status ts_pickle_make(ts_pickle *p, int kind, ts_object **out);
ts_status ts_pickle_keep(ts_pickle *p, ts_object *o); /* made elsewhere; NULL: that failed */
ts_status ts_pickle_spend(ts_pickle *p, uint64_t n);  /* n bytes or items not in the file as such */

/* rebuild.c: what a pickle may name and call */
ts_status ts_rebuild_find(ts_pickle *p, const char *module, size_t module_len, const char *name,
                          size_t name_len, ts_object **out);
ts_status ts_rebuild_call(ts_pickle *p, const ts_object *callee, ts_object *args, ts_object **out);
ts_status ts_rebuild_state(ts_pickle *p, ts_object *o, const ts_object *state);
ts_status ts_rebuild_storage(ts_pickle *p, const ts_object *id, ts_object **out);

/* zip.c */
typedef struct ts_zip ts_zip;
ts_status ts_zip_open(const ts_input *in, ts_zip **out);
void ts_zip_close(ts_zip *z);
int64_t ts_zip_count(const ts_zip *z);
const char *ts_zip_name(const ts_zip *z, int64_t i);
int64_t ts_zip_find(const ts_zip *z, const char *name); /* -1: none */
ts_status ts_zip_read(ts_zip *z, int64_t i, ts_blob **out);
bool ts_zip_shapes(const ts_zip *z); /* tensors are not to be read */
ts_status ts_zip_blank(ts_zip *z, int64_t i, ts_blob **out);
ts_status ts_zip_begin(ts_zip *z, int64_t i, size_t most, ts_blob **out); /* its first bytes */

typedef struct ts_zip_out {
    ts_file_out *file;
    uint64_t at;       /* bytes written */
    uint64_t n;        /* entries       */
    ts_text directory; /* written last  */
} ts_zip_out;
ts_status ts_zip_put(ts_zip_out *z, const char *name, const void *head, size_t head_len,
                     const void *data, size_t len); /* one entry: head, then data */
ts_status ts_zip_end(ts_zip_out *z, ts_status so_far);

/* One reader and one writer per format; _is looks at the first bytes. */
typedef struct ts_head {
    uint8_t data[32]; /* zeros after the end of a shorter file */
    uint64_t size;    /* of the file */
} ts_head;
ts_status ts_head_read(const ts_input *in, ts_head *h); /* store.c */
/* pth.c */
ts_status ts_pth_read(ts_zip *z, int64_t pickle, ts_object **out);
bool ts_legacy_is(const ts_head *h);
ts_status ts_legacy_read(const ts_input *in, ts_object **out);
/* pth_write.c */
ts_status ts_pth_write(const ts_object *o, ts_file_out *f);
/* safetensors.c */
bool ts_safetensors_is(const ts_head *h);
ts_status ts_safetensors_read(const ts_input *in, ts_object **out);
ts_status ts_safetensors_write(const ts_object *o, ts_file_out *f);
/* npy.c */
bool ts_npy_is(const ts_head *h);
ts_status ts_npy_read(const ts_input *in, ts_object **out);
ts_status ts_npy_write(const ts_object *o, ts_file_out *f);
ts_status ts_npz_read(ts_zip *z, ts_object **out);
ts_status ts_npz_write(const ts_object *o, ts_file_out *f);

#endif
