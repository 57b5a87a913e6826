/* pth_write.c - PyTorch's checkpoints, written as torch.save writes them since 1.6.
 *
 * The pickle is protocol 2 and needs no memo: every value is written where it stands. Tensors that
 * share their bytes (tied weights) name the same storage, so those are in the file once and are
 * tied again after torch.load. The archive is always called "archive": what is inside does not
 * depend on the file's name. Metadata, a dict of text under "__metadata__" of a dict, goes to
 * entries of their own, so that torch.load of a state dict gives tensors only.
 */
#include "store/store.h"

#define FOLDER "archive/"

typedef struct writer {
    ts_text pickle;
    ts_object *keys;        /* dict: "address" of the bytes -> number of the storage */
    const ts_array **bytes; /* of each storage */
    size_t n, cap;
    const ts_object *metadata; /* or NULL */
} writer;

static void op(writer *w, char c)
{
    ts_text_add(&w->pickle, &c, 1);
}

static void little(writer *w, uint64_t x, int bytes)
{
    for (int i = 0; i < bytes; i++)
        op(w, (char)(x >> 8 * i));
}

static void put_text(writer *w, const char *s, size_t len)
{
    op(w, 'X');
    little(w, len, 4);
    ts_text_add(&w->pickle, s, len);
}

static void put_words(writer *w, const char *s)
{
    put_text(w, s, strlen(s));
}

static void put_int(writer *w, int64_t x)
{
    bool small = x == (int32_t)x;

    op(w, small ? 'J' : (char)0x8a);
    if (!small)
        op(w, 8);
    little(w, (uint64_t)x, small ? 4 : 8);
}

static void put_float(writer *w, double x)
{
    uint64_t bits;

    memcpy(&bits, &x, sizeof(bits));
    op(w, 'G');
    little(w, __builtin_bswap64(bits), 8);
}

static void put_ints(writer *w, const int64_t *x, int n)
{
    op(w, '(');
    for (int i = 0; i < n; i++)
        put_int(w, x[i]);
    op(w, 't');
}

static ts_status add_storage(writer *w, const ts_array *a)
{
    void *bytes = w->bytes;

    TS_TRY(ts_store_grow(&bytes, &w->cap, w->n + 1, sizeof(*w->bytes)));
    w->bytes = bytes;
    w->bytes[w->n++] = a;
    return TS_OK;
}

/* The number of the storage with these bytes and this dtype. */
static ts_status storage_of(writer *w, const ts_array *a, int64_t *out)
{
    char key[64];
    const ts_object *known;

    snprintf(key, sizeof(key), "%p %zu %d", a->data, a->bytes, (int)a->dtype);
    known = ts_object_get(w->keys, key);
    *out = known ? known->i : (int64_t)w->n;
    if (known)
        return TS_OK;
    TS_TRY(add_storage(w, a));
    return ts_object_set(w->keys, key, ts_object_new_int(*out));
}

/* _rebuild_tensor_v2(storage, 0, size, strides, requires_grad=False, hooks=OrderedDict()) */
static ts_status put_tensor(writer *w, const ts_array *a)
{
    int64_t strides[TS_MAX_RANK], storage;
    char key[24];

    TS_TRY(storage_of(w, a, &storage));
    ts_array_strides(a, false, strides);
    ts_text_printf(&w->pickle, "ctorch._utils\n_rebuild_tensor_v2\n((");
    put_words(w, "storage");
    ts_text_printf(&w->pickle, "ctorch\n%s\n", ts_store_dtypes[a->dtype].storage);
    snprintf(key, sizeof(key), "%ld", (long)storage);
    put_words(w, key);
    put_words(w, "cpu");
    put_int(w, (int64_t)(a->bytes / ts_dtype_size(a->dtype)));
    ts_text_printf(&w->pickle, "tQ");
    put_int(w, 0);
    put_ints(w, a->dims, a->rank);
    put_ints(w, strides, a->rank);
    op(w, (char)0x89);
    ts_text_printf(&w->pickle, "ccollections\nOrderedDict\n)RtR");
    return TS_OK;
}

/* What goes to entries of its own, or NULL. */
static const ts_object *metadata_of(const ts_object *o)
{
    const ts_object *m = ts_object_get(o, TS_METADATA);

    for (int64_t i = 0; i < ts_object_size(m); i++) {
        const char *key = ts_object_text(ts_object_key(m, i));
        if (!key || !key[0] || !ts_object_text(ts_object_at(m, i)))
            return NULL;
    }
    return ts_object_kind(m) == TS_KIND_DICT && ts_object_size(m) ? m : NULL;
}

static ts_status put_object(writer *w, const ts_object *o, int depth);

static ts_status put_items(writer *w, const ts_object *o, int depth)
{
    for (int64_t i = 0; i < ts_object_size(o); i++) {
        if (ts_object_at(o, i) == w->metadata && depth == 0)
            continue;
        if (o->kind == TS_KIND_DICT)
            TS_TRY(put_object(w, ts_object_key(o, i), depth + 1));
        TS_TRY(put_object(w, ts_object_at(o, i), depth + 1));
    }
    return TS_OK;
}

/* An empty one, a mark, the items, and the letter that puts them in. */
static ts_status put_container(writer *w, const ts_object *o, const char *begin, char end,
                               int depth)
{
    if (depth >= TS_STORE_DEPTH)
        return ts_fail(TS_ERR_UNSUPPORTED, "lists, tuples and dicts nested deeper than %d",
                       TS_STORE_DEPTH);
    ts_text_printf(&w->pickle, "%s", begin);
    TS_TRY(put_items(w, o, depth));
    op(w, end);
    return TS_OK;
}

static ts_status put_object(writer *w, const ts_object *o, int depth)
{
    switch (ts_object_kind(o)) {
    case TS_KIND_NONE:
        op(w, 'N');
        return TS_OK;
    case TS_KIND_BOOL:
        op(w, (char)(o->i ? 0x88 : 0x89));
        return TS_OK;
    case TS_KIND_INT:
        put_int(w, o->i);
        return TS_OK;
    case TS_KIND_FLOAT:
        put_float(w, o->f);
        return TS_OK;
    case TS_KIND_TEXT:
        if (o->text.len > UINT32_MAX)
            return ts_fail(TS_ERR_UNSUPPORTED, "text of %zu bytes", o->text.len);
        put_text(w, o->text.s, o->text.len);
        return TS_OK;
    case TS_KIND_LIST:
        return put_container(w, o, "](", 'e', depth);
    case TS_KIND_TUPLE:
        return put_container(w, o, "(", 't', depth);
    case TS_KIND_DICT:
        return put_container(w, o, "}(", 'u', depth);
    case TS_KIND_TENSOR:
        return put_tensor(w, ts_object_array(o));
    }
    return ts_fail(TS_ERR_INTERNAL, "a %s in a tree", ts_kind_name(ts_object_kind(o)));
}

static ts_status make_pickle(writer *w, const ts_object *o)
{
    TS_TRY(ts_object_make(TS_KIND_DICT, &w->keys));
    op(w, (char)0x80);
    op(w, 2);
    TS_TRY(put_object(w, o, 0));
    op(w, '.');
    return TS_OK;
}

static ts_status put_extra(ts_zip_out *z, const ts_object *key, const ts_object *text)
{
    ts_text name = {0};
    ts_status s;

    ts_text_printf(&name, FOLDER "extra/%s", ts_object_text(key));
    s = ts_zip_put(z, name.s, NULL, 0, text->text.s, text->text.len);
    ts_text_free(&name);
    return s;
}

static ts_status put_entries(const writer *w, ts_zip_out *z)
{
    char name[64];

    TS_TRY(ts_zip_put(z, FOLDER "data.pkl", NULL, 0, w->pickle.s, w->pickle.len));
    TS_TRY(ts_zip_put(z, FOLDER "byteorder", NULL, 0, "little", 6));
    for (size_t i = 0; i < w->n; i++) {
        snprintf(name, sizeof(name), FOLDER "data/%zu", i);
        TS_TRY(ts_zip_put(z, name, NULL, 0, w->bytes[i]->data, w->bytes[i]->bytes));
    }
    for (int64_t i = 0; i < ts_object_size(w->metadata); i++)
        TS_TRY(put_extra(z, ts_object_key(w->metadata, i), ts_object_at(w->metadata, i)));
    return ts_zip_put(z, FOLDER "version", NULL, 0, "3\n", 2);
}

static ts_status write_archive(const writer *w, ts_file_out *f)
{
    ts_zip_out z = {.file = f};

    return ts_zip_end(&z, put_entries(w, &z));
}

ts_status ts_pth_write(const ts_object *o, ts_file_out *f)
{
    writer w = {.metadata = metadata_of(o)};
    ts_status s = make_pickle(&w, o);

    if (!s)
        s = write_archive(&w, f);
    ts_text_free(&w.pickle);
    ts_object_free(w.keys);
    free(w.bytes);
    return s;
}
