/* rebuild.c - what a pickle may name and call: the table at the end is the whole list.
 *
 * torch.save writes a tensor as a call, _rebuild_tensor_v2(storage, offset, size, strides, ...),
 * where the storage is a "persistent id" whose bytes lie elsewhere in the file. They may come after
 * the pickle (the old format), so a tensor is noted as a view and gets its data in the end.
 */
#include "store/store.h"

/* --- arguments -------------------------------------------------------------------------------- */

static ts_status bad(const char *what)
{
    return ts_fail(TS_ERR_CORRUPT, "%s with arguments that it never has", what);
}

static bool has_kind(const ts_object *o, int kind)
{
    return o && o->kind == kind;
}

static bool is_global(const ts_object *o, const char *name)
{
    return has_kind(o, TS_KIND_GLOBAL) && !strcmp(o->text.s, name);
}

/* Python 2 had one type for text and bytes. */
static bool is_bytes(const ts_object *o)
{
    return has_kind(o, TS_KIND_BYTES) || has_kind(o, TS_KIND_TEXT);
}

/* A tuple of ints as dims or strides. */
static ts_status int_tuple(const ts_object *o, int *rank, int64_t *out)
{
    int64_t n = ts_object_size(o);

    if (!has_kind(o, TS_KIND_TUPLE) && !has_kind(o, TS_KIND_LIST))
        return bad("a tensor");
    if (n > TS_MAX_RANK)
        return ts_fail(TS_ERR_UNSUPPORTED, "a tensor of rank %ld; up to %d are supported", (long)n,
                       TS_MAX_RANK);
    for (int64_t i = 0; i < n; i++) {
        if (!has_kind(ts_object_at(o, i), TS_KIND_INT))
            return bad("a tensor");
        out[i] = ts_object_at(o, i)->i;
    }
    *rank = (int)n;
    return TS_OK;
}

/* --- collections ------------------------------------------------------------------------------ */

static ts_status put_pair(ts_pickle *p, ts_object *dict, const ts_object *pair)
{
    const ts_object *key = ts_object_at(pair, 0), *value = ts_object_at(pair, 1);

    if (ts_object_size(pair) != 2 || (!has_kind(key, TS_KIND_TEXT) && !has_kind(key, TS_KIND_INT)))
        return bad("a dict");
    TS_TRY(ts_pickle_spend(p, 2));
    return ts_object_put(dict, ts_object_share(key), ts_object_share(value));
}

/* OrderedDict(), or of a list of pairs; Counter(dict); defaultdict(factory). */
static ts_status make_dict(ts_pickle *p, ts_object *args, ts_object **out)
{
    const ts_object *from = ts_object_at(args, 0);

    if (has_kind(from, TS_KIND_DICT)) {
        *out = (ts_object *)from;
        return TS_OK;
    }
    TS_TRY(ts_pickle_make(p, TS_KIND_DICT, out));
    for (int64_t i = 0; i < ts_object_size(from); i++)
        TS_TRY(put_pair(p, *out, ts_object_at(from, i)));
    return TS_OK;
}

/* Of a list or tuple, the other: set([...]), torch.Size((...)). */
static ts_status make_sequence(ts_pickle *p, ts_object *args, int kind, ts_object **out)
{
    const ts_object *from = ts_object_at(args, 0);

    TS_TRY(ts_pickle_make(p, kind, out));
    TS_TRY(ts_pickle_spend(p, (uint64_t)ts_object_size(from)));
    if (has_kind(from, TS_KIND_DICT))
        return bad("a set");
    for (int64_t i = 0; i < ts_object_size(from); i++)
        TS_TRY(ts_object_append(*out, ts_object_share(ts_object_at(from, i))));
    return TS_OK;
}

static ts_status make_list(ts_pickle *p, ts_object *args, ts_object **out)
{
    return make_sequence(p, args, TS_KIND_LIST, out);
}

static ts_status make_tuple(ts_pickle *p, ts_object *args, ts_object **out)
{
    return make_sequence(p, args, TS_KIND_TUPLE, out);
}

/* What is called with the thing itself: a parameter with its tensor, a device with its name. */
static ts_status first_argument(ts_pickle *p, ts_object *args, ts_object **out)
{
    (void)p;
    *out = (ts_object *)ts_object_at(args, 0);
    return *out ? TS_OK : bad("a call");
}

/* _codecs.encode(text, 'latin1'): how protocol 2 writes bytes. bytes(): how it writes none. */
static ts_status make_bytes(ts_pickle *p, ts_object *args, ts_object **out)
{
    const ts_object *from = ts_object_at(args, 0);
    size_t len = has_kind(from, TS_KIND_TEXT) ? from->text.len : 0, n = 0;
    char *to;

    if (ts_object_size(args) && !has_kind(from, TS_KIND_TEXT))
        return bad("bytes");
    TS_TRY(ts_pickle_spend(p, len));
    TS_TRY(ts_object_make_text(TS_KIND_BYTES, len ? from->text.s : "", len, out));
    TS_TRY(ts_pickle_keep(p, *out));
    to = (*out)->text.s;
    for (size_t i = 0; i < len; i++) {
        uint8_t c = (uint8_t)to[i];
        if (c >= 0x80) { /* latin1 is U+0080 to U+00ff: C2 or C3, and one byte more */
            if ((c != 0xc2 && c != 0xc3) || i + 1 == len)
                return ts_fail(TS_ERR_CORRUPT, "bytes written as text that is not latin1");
            c = (uint8_t)((c & 3) << 6 | ((uint8_t)to[++i] & 63));
        }
        to[n++] = (char)c;
    }
    to[n] = 0;
    (*out)->text.len = n;
    return TS_OK;
}

/* --- tensors ---------------------------------------------------------------------------------- */

static ts_status storage_type(const ts_object *o, ts_dtype *out)
{
    int t;

    if (!has_kind(o, TS_KIND_GLOBAL))
        return bad("a storage");
    if (strstr(o->text.s, "UntypedStorage")) {
        *out = TS_U8;
        return TS_OK;
    }
    if (strncmp(o->text.s, "torch.", 6))
        return bad("a storage");
    t = ts_store_dtype_find(offsetof(ts_store_dtype, storage), o->text.s + 6, o->text.len - 6);
    if (t < 0)
        return bad("a storage");
    *out = (ts_dtype)t;
    return TS_OK;
}

static ts_status add_storage(ts_pickle *p, const ts_object *key, ts_dtype t, uint64_t count)
{
    void *storages = p->storages;
    uint64_t bytes;

    if (__builtin_mul_overflow(count, ts_dtype_size(t), &bytes))
        return ts_fail(TS_ERR_CORRUPT, "a storage of %lu elements", (unsigned long)count);
    TS_TRY(ts_store_grow(&storages, &p->storages_cap, p->nstorages + 1, sizeof(*p->storages)));
    p->storages = storages;
    p->storages[p->nstorages] = (ts_storage){key, bytes, t, NULL};
    TS_TRY(ts_object_put(p->keys, ts_object_share(key), ts_object_new_int((int64_t)p->nstorages)));
    p->nstorages++;
    return TS_OK;
}

/* ('storage', class, key, where it was, elements), and in the old format a sixth: None. */
ts_status ts_rebuild_storage(ts_pickle *p, const ts_object *id, ts_object **out)
{
    const ts_object *word = ts_object_at(id, 0), *key = ts_object_at(id, 2),
                    *count = ts_object_at(id, 4), *known;
    ts_dtype t = TS_U8;

    if (!ts_object_text(word) || strcmp(ts_object_text(word), "storage") || !ts_object_text(key) ||
        !has_kind(count, TS_KIND_INT) || count->i < 0)
        return bad("a storage");
    if (ts_object_at(id, 5) && !has_kind(ts_object_at(id, 5), TS_KIND_NONE))
        return ts_fail(TS_ERR_UNSUPPORTED, "a storage that is a view of another");
    TS_TRY(storage_type(ts_object_at(id, 1), &t));
    known = ts_object_get(p->keys, ts_object_text(key));
    TS_TRY(ts_pickle_make(p, TS_KIND_STORAGE, out));
    (*out)->i = known ? known->i : (int64_t)p->nstorages;
    if (!known)
        return add_storage(p, key, t, (uint64_t)count->i);
    if (p->storages[known->i].dtype != t ||
        p->storages[known->i].bytes / ts_dtype_size(t) != (uint64_t)count->i)
        return ts_fail(TS_ERR_CORRUPT, "storage %.60s with two types or sizes",
                       ts_object_text(key));
    return TS_OK;
}

static ts_status add_view(ts_pickle *p, ts_view *v, ts_object **out)
{
    void *views = p->views;
    size_t bytes;

    TS_TRY(ts_array_size(&v->array, &bytes));
    TS_TRY(ts_store_grow(&views, &p->views_cap, p->nviews + 1, sizeof(*p->views)));
    p->views = views;
    TS_TRY(ts_pickle_make(p, TS_KIND_NONE, out));
    v->o = *out;
    p->views[p->nviews++] = *v;
    return TS_OK;
}

/* (storage, offset, size, strides, ...); the dtype is the storage's or the given one. */
static ts_status view(ts_pickle *p, ts_object *args, int dtype, ts_object **out)
{
    const ts_object *storage = ts_object_at(args, 0), *offset = ts_object_at(args, 1);
    ts_view v = {.storage = 0};
    int nstrides;

    if (!has_kind(storage, TS_KIND_STORAGE) || !has_kind(offset, TS_KIND_INT) || offset->i < 0)
        return bad("a tensor");
    v.storage = (size_t)storage->i;
    v.offset = (uint64_t)offset->i;
    v.array.dtype = dtype < 0 ? p->storages[v.storage].dtype : (ts_dtype)dtype;
    TS_TRY(int_tuple(ts_object_at(args, 2), &v.array.rank, v.array.dims));
    TS_TRY(int_tuple(ts_object_at(args, 3), &nstrides, v.strides));
    if (nstrides != v.array.rank)
        return ts_fail(TS_ERR_CORRUPT, "a tensor of rank %d with %d strides", v.array.rank,
                       nstrides);
    return add_view(p, &v, out);
}

static ts_status rebuild_tensor(ts_pickle *p, ts_object *args, ts_object **out)
{
    return view(p, args, -1, out);
}

/* (storage, offset, size, strides, requires_grad, hooks, dtype): dtypes without a storage class */
static ts_status rebuild_tensor_v3(ts_pickle *p, ts_object *args, ts_object **out)
{
    const char *name = ts_object_text(ts_object_at(args, 6));
    int t = -1;

    if (name && !strncmp(name, "torch.", 6))
        t = ts_store_dtype_find(offsetof(ts_store_dtype, torch), name + 6, strlen(name + 6));
    if (t < 0)
        return ts_fail(TS_ERR_UNSUPPORTED, "a tensor of dtype %.60s", name ? name : "none");
    return view(p, args, t, out);
}

/* (function, class, arguments, state): a tensor with attributes, which are left out */
static ts_status rebuild_from_type(ts_pickle *p, ts_object *args, ts_object **out)
{
    const ts_object *f = ts_object_at(args, 0), *inner = ts_object_at(args, 2);

    if (!has_kind(inner, TS_KIND_TUPLE) || is_global(f, "torch._tensor._rebuild_from_type_v2"))
        return bad("a tensor");
    return ts_rebuild_call(p, f, (ts_object *)inner, out);
}

/* --- NumPy ------------------------------------------------------------------------------------ */

/* dtype('f4', False, True); its byte order follows as its state. */
static ts_status numpy_dtype(ts_pickle *p, ts_object *args, ts_object **out)
{
    const ts_object *name = ts_object_at(args, 0);
    int t;

    if (!is_bytes(name))
        return bad("numpy.dtype");
    t = ts_store_dtype_find(offsetof(ts_store_dtype, numpy), name->text.s, name->text.len);
    if (t < 0)
        return ts_fail(TS_ERR_UNSUPPORTED, "numpy.dtype('%.20s') has no counterpart here",
                       name->text.s);
    TS_TRY(ts_pickle_make(p, TS_KIND_NUMPY_TYPE, out));
    (*out)->i = t;
    return TS_OK;
}

/* (3, '<', ...) */
static ts_status numpy_dtype_state(const ts_object *state)
{
    const ts_object *order = ts_object_at(state, 1);

    if (!is_bytes(order) || order->text.len != 1)
        return bad("numpy.dtype");
    if (order->text.s[0] == '>')
        return ts_fail(TS_ERR_UNSUPPORTED, "a big-endian NumPy array");
    return TS_OK;
}

/* The bytes at `data` become the tensor o. */
static ts_status numpy_fill(ts_pickle *p, ts_object *o, const ts_object *shape,
                            const ts_object *type, bool fortran, const ts_object *data)
{
    ts_array a = {.rank = 0};
    ts_blob *b;
    ts_status s;

    if (!is_bytes(data) || !has_kind(type, TS_KIND_NUMPY_TYPE))
        return ts_fail(TS_ERR_UNSUPPORTED, "a NumPy array that is not one of plain numbers");
    a.dtype = (ts_dtype)type->i;
    TS_TRY(int_tuple(shape, &a.rank, a.dims));
    TS_TRY(ts_array_size(&a, &a.bytes));
    if (a.bytes != data->text.len)
        return ts_fail(TS_ERR_CORRUPT, "a NumPy array of %zu bytes has %zu", a.bytes,
                       data->text.len);
    TS_TRY(ts_pickle_spend(p, a.bytes));
    TS_TRY(ts_blob_new(a.bytes, &b));
    memcpy(b->data, data->text.s, a.bytes);
    s = ts_tensor_fill(o, &a, 0, fortran, b);
    ts_blob_free(b);
    return s;
}

/* _reconstruct(ndarray, (0,), b'b'): everything follows as its state. */
static ts_status numpy_array(ts_pickle *p, ts_object *args, ts_object **out)
{
    if (!is_global(ts_object_at(args, 0), "numpy.ndarray"))
        return bad("a NumPy array");
    return ts_pickle_make(p, TS_KIND_NUMPY_ARRAY, out);
}

/* (version, shape, dtype, fortran, bytes) */
static ts_status numpy_array_state(ts_pickle *p, ts_object *o, const ts_object *state)
{
    return numpy_fill(p, o, ts_object_at(state, 1), ts_object_at(state, 2),
                      ts_object_int(ts_object_at(state, 3), 0), ts_object_at(state, 4));
}

/* _frombuffer(bytes, dtype, shape, 'C' or 'F'): protocol 5 */
static ts_status numpy_from_buffer(ts_pickle *p, ts_object *args, ts_object **out)
{
    const char *order = ts_object_text(ts_object_at(args, 3));

    TS_TRY(ts_pickle_make(p, TS_KIND_NUMPY_ARRAY, out));
    return numpy_fill(p, *out, ts_object_at(args, 2), ts_object_at(args, 1),
                      order && order[0] == 'F', ts_object_at(args, 0));
}

/* scalar(dtype, bytes) */
static ts_status numpy_scalar(ts_pickle *p, ts_object *args, ts_object **out)
{
    const ts_object *type = ts_object_at(args, 0), *data = ts_object_at(args, 1);
    ts_object shape = {.kind = TS_KIND_TUPLE}, tensor = {.kind = TS_KIND_NUMPY_ARRAY};
    ts_object *o;

    TS_TRY(numpy_fill(p, &tensor, &shape, type, false, data));
    if (type->i == TS_BOOL)
        o = ts_object_new_bool(ts_object_int(&tensor, 0));
    else if (type->i == TS_F16 || type->i == TS_F32 || type->i == TS_F64)
        o = ts_object_new_float(ts_object_number(&tensor, 0));
    else
        o = ts_object_new_int(ts_object_int(&tensor, 0));
    ts_blob_free(tensor.tensor->blob);
    free(tensor.tensor);
    *out = o;
    return ts_pickle_keep(p, o);
}

/* --- the list --------------------------------------------------------------------------------- */

typedef ts_status make_fn(ts_pickle *p, ts_object *args, ts_object **out);

/* Without a function: only named, never called. */
static const struct {
    const char *name;
    make_fn *make;
} names[] = {
    {"collections.OrderedDict", make_dict},
    {"collections.Counter", make_dict},
    {"collections.defaultdict", make_dict},
    {"builtins.set", make_list},
    {"builtins.frozenset", make_list},
    {"builtins.bytes", make_bytes},
    {"builtins.dict", NULL},
    {"builtins.list", NULL},
    {"builtins.int", NULL},
    {"builtins.float", NULL},
    {"_codecs.encode", make_bytes},
    {"torch.Size", make_tuple},
    {"torch.device", first_argument},
    {"torch.Tensor", NULL},
    {"torch.nn.parameter.Parameter", NULL},
    {"torch._utils._rebuild_tensor", rebuild_tensor},
    {"torch._utils._rebuild_tensor_v2", rebuild_tensor},
    {"torch._utils._rebuild_tensor_v3", rebuild_tensor_v3},
    {"torch._utils._rebuild_parameter", first_argument},
    {"torch._utils._rebuild_parameter_with_state", first_argument},
    {"torch._tensor._rebuild_from_type_v2", rebuild_from_type},
    {"torch.storage.UntypedStorage", NULL},
    {"torch.storage._UntypedStorage", NULL},
    {"torch.UntypedStorage", NULL},
    {"numpy.dtype", numpy_dtype},
    {"numpy.ndarray", NULL},
    {"numpy.core.multiarray.scalar", numpy_scalar},
    {"numpy._core.multiarray.scalar", numpy_scalar},
    {"numpy.core.multiarray._reconstruct", numpy_array},
    {"numpy._core.multiarray._reconstruct", numpy_array},
    {"numpy.core.numeric._frombuffer", numpy_from_buffer},
    {"numpy._core.numeric._frombuffer", numpy_from_buffer},
};

static int find_name(const char *name)
{
    for (int i = 0; i < TS_COUNT(names); i++)
        if (!strcmp(names[i].name, name))
            return i;
    return -1;
}

static bool is_torch_name(const char *name, size_t column)
{
    return !strncmp(name, "torch.", 6) &&
           ts_store_dtype_find(column, name + 6, strlen(name + 6)) >= 0;
}

static ts_status refuse(const char *name)
{
    size_t n = strlen(name);

    if (!strncmp(name, "torch.", 6) && n > 13 && !strcmp(name + n - 7, "Storage"))
        return ts_fail(TS_ERR_UNSUPPORTED, "tensors of %s are not supported", name);
    ts_fail(TS_ERR_UNSUPPORTED, "the checkpoint asks for %s; only tensors and plain data are read",
            name);
    if (strncmp(name, "torch._utils.", 13))
        ts_error_hint(
            "save what state_dict() returns, and numbers, text, lists and dicts beside it");
    return TS_ERR_UNSUPPORTED;
}

/* "module.name" with Python 2's builtins under today's name. Fails for what no name can be: it goes
 * into messages. */
static ts_status join(const char *module, size_t nm, const char *name, size_t nn, char *out,
                      size_t size)
{
    bool fine = nm + nn + 2 <= size && nm && nn;

    for (size_t i = 0; fine && i < nm + nn; i++) {
        char c = i < nm ? module[i] : name[i - nm];
        fine = c > ' ' && c < 0x7f;
    }
    if (!fine)
        return ts_fail(TS_ERR_CORRUPT, "a name of %zu and %zu bytes that is none", nm, nn);
    if (nm == 11 && !memcmp(module, "__builtin__", 11)) {
        module = "builtins";
        nm = 8;
    }
    snprintf(out, size, "%.*s.%.*s", (int)nm, module, (int)nn, name);
    return TS_OK;
}

ts_status ts_rebuild_find(ts_pickle *p, const char *module, size_t module_len, const char *name,
                          size_t name_len, ts_object **out)
{
    char full[256];
    int kind = TS_KIND_GLOBAL;

    TS_TRY(join(module, module_len, name, name_len, full, sizeof(full)));
    if (is_torch_name(full, offsetof(ts_store_dtype, torch)))
        kind = TS_KIND_TEXT; /* torch.float32: its name */
    else if (find_name(full) < 0 && !is_torch_name(full, offsetof(ts_store_dtype, storage)))
        return refuse(full);
    TS_TRY(ts_object_make_text(kind, full, strlen(full), out));
    return ts_pickle_keep(p, *out);
}

ts_status ts_rebuild_call(ts_pickle *p, const ts_object *callee, ts_object *args, ts_object **out)
{
    int i = has_kind(callee, TS_KIND_GLOBAL) ? find_name(callee->text.s) : -1;

    if (i < 0 || !names[i].make)
        return ts_fail(TS_ERR_UNSUPPORTED, "the checkpoint calls %s, which is not for calling",
                       has_kind(callee, TS_KIND_GLOBAL) ? callee->text.s
                                                        : ts_kind_name(ts_object_kind(callee)));
    return names[i].make(p, args, out);
}

ts_status ts_rebuild_state(ts_pickle *p, ts_object *o, const ts_object *state)
{
    switch (o->kind) {
    case TS_KIND_DICT: /* an OrderedDict's attributes: a state dict has _metadata */
        return TS_OK;
    case TS_KIND_NUMPY_TYPE:
        return numpy_dtype_state(state);
    case TS_KIND_NUMPY_ARRAY:
        return numpy_array_state(p, o, state);
    default:
        return bad("a state");
    }
}
