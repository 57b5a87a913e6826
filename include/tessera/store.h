/* store.h - checkpoints and arrays as files.
 *
 * What is kept between runs is a tree of plain data: numbers, text, tensors, and lists, tuples and
 * dicts of them. It reads from and writes to PyTorch's, safetensors' and NumPy's files:
 *
 *   ts_object *o;
 *   if (ts_object_load("model.pth", &o))
 *       fputs(ts_error_text(), stderr);
 *   const ts_array *w = ts_object_array(ts_object_get(o, "fc.weight"));
 *   ...
 *   ts_object_free(o);
 *
 * Reading runs no code: a checkpoint that asks for more than tensors and plain data is refused by
 * the name of what it asks for.
 */
#ifndef TESSERA_STORE_H
#define TESSERA_STORE_H

#include <tessera.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum ts_kind {
    TS_KIND_NONE,
    TS_KIND_BOOL,
    TS_KIND_INT,   /* 64 bits                                          */
    TS_KIND_FLOAT, /* a double                                         */
    TS_KIND_TEXT,  /* UTF-8                                            */
    TS_KIND_LIST,
    TS_KIND_TUPLE,
    TS_KIND_DICT, /* in the order of insertion; keys are text or ints */
    TS_KIND_TENSOR
} ts_kind;
typedef struct ts_object ts_object; /* a value of such a tree, with all below it */

/* Making: NULL when there is no memory or the argument is wrong; ts_last_error() says which. */
TS_API ts_object *ts_object_new_none(void);
TS_API ts_object *ts_object_new_bool(bool value);
TS_API ts_object *ts_object_new_int(int64_t value);
TS_API ts_object *ts_object_new_float(double value);
TS_API ts_object *ts_object_new_text(const char *text); /* copied */
TS_API ts_object *ts_object_new_list(void);
TS_API ts_object *ts_object_new_tuple(void);
TS_API ts_object *ts_object_new_dict(void);
TS_API ts_object *ts_object_new_tensor(const ts_array *a); /* copied */
/* Put child at the end of a list or tuple, or under a key of a dict (in place of what was there).
 * The container takes child over, also when the call fails; a NULL child, from a call above that
 * failed, fails with that call's error. So calls nest and only the outer status is looked at. */
TS_API ts_status ts_object_append(ts_object *list, ts_object *child);
TS_API ts_status ts_object_set(ts_object *dict, const char *key, ts_object *child);
TS_API ts_status ts_object_set_int(ts_object *dict, int64_t key, ts_object *child);
/* One more owner of o, to put it into a second tree; do not change it from then on. */
TS_API ts_object *ts_object_share(const ts_object *o);
TS_API void ts_object_free(ts_object *o);

/* Looking: what is borrowed lives as long as the tree. A NULL or another kind of object has no
 * items, so calls nest here too. */
TS_API ts_kind ts_object_kind(const ts_object *o); /* of NULL: none */
TS_API const char *ts_kind_name(ts_kind k);
TS_API int64_t ts_object_size(const ts_object *o); /* items of a list, tuple or dict */
TS_API const ts_object *ts_object_at(const ts_object *o, int64_t i);           /* or NULL */
TS_API const ts_object *ts_object_key(const ts_object *dict, int64_t i);       /* or NULL */
TS_API const ts_object *ts_object_get(const ts_object *dict, const char *key); /* or NULL */
TS_API const ts_object *ts_object_get_int(const ts_object *dict, int64_t key); /* or NULL */
/* The number in a bool, int, float or tensor of one element; `otherwise` in anything else. */
TS_API double ts_object_number(const ts_object *o, double otherwise);
TS_API int64_t ts_object_int(const ts_object *o, int64_t otherwise); /* nor in a fraction */
TS_API const char *ts_object_text(const ts_object *o);               /* or NULL */
TS_API const ts_array *ts_object_array(const ts_object *o);          /* or NULL */

typedef enum ts_file_format {
    TS_FILE_AUTO,        /* by the name's ending: .pth .pt .ckpt, .safetensors, .npz, .npy */
    TS_FILE_PTH,         /* any tree; torch.load reads it. "__metadata__" in a dict, if it is a dict
                            of text, is kept beside the tree: ts_object_load gives it back,
                            torch.load does not see it                              */
    TS_FILE_SAFETENSORS, /* a dict of tensors; "__metadata__" may be a dict of text  */
    TS_FILE_NPZ,         /* a dict of tensors                                       */
    TS_FILE_NPY          /* one tensor                                              */
} ts_file_format;
/* The format is known by the content: .pth as torch.save writes it, of 1.6 and later and before,
 * safetensors, .npz, .npy. Views become row-major tensors, an OrderedDict a dict, a set a list, a
 * torch.Size a tuple, a NumPy scalar a number, a NumPy array a tensor, bytes a tensor of u8, a
 * dtype its name; a state dict's _metadata is left out. */
TS_API ts_status ts_object_load(const char *path, ts_object **out);
typedef struct ts_load_options {
    /* Bytes that what is packed in the file may unfold to; a file that asks for more is refused.
     * 0: $TESSERA_LOAD_MEMORY, else 1 GiB and 16 times the file's length. */
    int64_t memory;
    bool shapes; /* read no tensor: their dtype and shape only, and `data` is NULL */
} ts_load_options;
TS_API ts_status ts_object_load_with_sized(const char *path, const ts_load_options *opt,
                                           size_t size, ts_object **out);
static inline ts_status ts_object_load_with(const char *path, const ts_load_options *opt,
                                            ts_object **out)
{
    return ts_object_load_with_sized(path, opt, sizeof(*opt), out);
}
TS_API ts_status ts_object_load_memory(const void *data, size_t len, ts_object **out);
/* The file is there whole or not at all: a save that fails leaves the one before as it was. A link
 * stays, and leads to the new file; a device or a pipe is refused. */
TS_API ts_status ts_object_save(const ts_object *o, const char *path, ts_file_format format);

/* All states of an engine, weights, buffers and the optimiser's, as a dict of tensors in a file; and
 * back: what the file has under the name of a state is taken, in PyTorch's checkpoints too, floats of
 * any size. One of another shape is an error, and then nothing is changed. */
TS_API ts_status ts_engine_save(const ts_engine *e, const char *path);
TS_API ts_status ts_engine_load(ts_engine *e, const char *path);

#ifdef __cplusplus
}
#endif
#endif
