/* safetensors.c - a length, a JSON header, the bytes of every tensor.
 *
 *   u64  {"fc.weight": {"dtype": "F32", "shape": [10, 4], "data_offsets": [0, 160]}, ...,
 *         "__metadata__": {"format": "pt"}}  bytes...
 *
 * Offsets count from the end of the header. We lay tensors out from the widest elements to the
 * narrowest, after a header of a multiple of 8 bytes, so that each is aligned for whoever maps the
 * file.
 */
#include "store/store.h"
#include <jansson.h>

enum { HEADER_LIMIT = 100 << 20 }; /* the format's own */

bool ts_safetensors_is(const ts_head *h)
{
    return h->data[8] == '{' && ts_little(h->data, 8) <= h->size - 8;
}

/* --- reading ---------------------------------------------------------------------------------- */

typedef struct reader {
    const ts_input *in;
    uint64_t data; /* where the tensors start */
    uint64_t left; /* bytes that are no tensor's yet */
    ts_object *dict;
} reader;

static ts_status bad(const char *key, const char *what)
{
    return ts_fail(TS_ERR_CORRUPT, "tensor '%.60s' has %s", key, what);
}

static ts_status read_dtype(const char *key, const json_t *j, ts_dtype *out)
{
    const char *name = json_string_value(j);
    int t = name ? ts_store_dtype_find(offsetof(ts_store_dtype, safe), name, strlen(name)) : -1;

    if (!name)
        return bad(key, "no dtype");
    if (t < 0)
        return ts_fail(TS_ERR_UNSUPPORTED, "tensor '%.60s' has dtype %.20s", key, name);
    *out = (ts_dtype)t;
    return TS_OK;
}

static ts_status read_shape(const char *key, const json_t *j, ts_array *a)
{
    size_t n = json_array_size(j);

    if (!json_is_array(j))
        return bad(key, "no shape");
    if (n > TS_MAX_RANK)
        return ts_fail(TS_ERR_UNSUPPORTED, "tensor '%.60s' has rank %zu; up to %d are supported",
                       key, n, TS_MAX_RANK);
    for (size_t i = 0; i < n; i++) {
        if (!json_is_integer(json_array_get(j, i)))
            return bad(key, "a shape that is not of integers");
        a->dims[i] = json_integer_value(json_array_get(j, i));
    }
    a->rank = (int)n;
    return TS_OK;
}

/* Tensors may not lie over each other: together they have at most the file's bytes. */
static ts_status read_place(reader *r, const char *key, const json_t *j, const ts_array *a,
                            uint64_t *at)
{
    const json_t *begin = json_array_get(j, 0), *end = json_array_get(j, 1);
    uint64_t size = r->in->size - r->data, b, e;

    if (!json_is_integer(begin) || !json_is_integer(end))
        return bad(key, "no data_offsets");
    b = (uint64_t)json_integer_value(begin);
    e = (uint64_t)json_integer_value(end);
    if (b > e || e > size || e - b != a->bytes || a->bytes > r->left)
        return ts_fail(TS_ERR_CORRUPT, "tensor '%.60s' needs %zu bytes and is at %lu to %lu of %lu",
                       key, a->bytes, (unsigned long)b, (unsigned long)e, (unsigned long)size);
    r->left -= a->bytes;
    *at = r->data + b;
    return TS_OK;
}

static ts_status read_data(reader *r, uint64_t at, ts_array *a, ts_object **out)
{
    ts_blob *b;
    ts_status s;

    TS_TRY(ts_blob_read(r->in, at, a->bytes, &b));
    s = ts_tensor_make(a, 0, false, b, out);
    ts_blob_free(b);
    return s;
}

static ts_status read_tensor(reader *r, const char *key, const json_t *j)
{
    ts_array a = {.rank = 0};
    ts_object *o;
    uint64_t at = 0;

    if (!json_is_object(j))
        return bad(key, "no description");
    TS_TRY(read_dtype(key, json_object_get(j, "dtype"), &a.dtype));
    TS_TRY(read_shape(key, json_object_get(j, "shape"), &a));
    TS_TRY(ts_array_size(&a, &a.bytes));
    TS_TRY(read_place(r, key, json_object_get(j, "data_offsets"), &a, &at));
    TS_TRY(read_data(r, at, &a, &o));
    return ts_object_set(r->dict, key, o);
}

static ts_status read_metadata(reader *r, json_t *j)
{
    ts_object *dict = ts_object_new_dict();
    ts_status s = ts_object_set(r->dict, TS_METADATA, dict);
    const char *key;
    json_t *value;

    TS_TRY(s);
    if (!json_is_object(j))
        return bad(TS_METADATA, "no names and texts");
    json_object_foreach(j, key, value)
    {
        if (!json_is_string(value))
            return bad(TS_METADATA, "a value that is no text");
        TS_TRY(ts_object_set(dict, key, ts_object_new_text(json_string_value(value))));
    }
    return TS_OK;
}

static ts_status read_entries(reader *r, json_t *header)
{
    const char *key;
    json_t *j;

    json_object_foreach(header, key, j)
    {
        if (!strcmp(key, TS_METADATA))
            TS_TRY(read_metadata(r, j));
        else
            TS_TRY(read_tensor(r, key, j));
    }
    return TS_OK;
}

static ts_status parse_header(ts_cursor *c, json_t **out)
{
    const uint8_t *b;
    json_error_t e;
    uint64_t n;

    TS_TRY(ts_cursor_take(c, 8, &b));
    n = ts_little(b, 8);
    if (n > HEADER_LIMIT)
        return ts_fail(TS_ERR_CORRUPT, "a header of %lu bytes; safetensors allows %d",
                       (unsigned long)n, HEADER_LIMIT);
    TS_TRY(ts_cursor_take(c, n, &b));
    *out = json_loadb((const char *)b, n, JSON_REJECT_DUPLICATES, &e);
    return *out ? TS_OK : ts_fail(TS_ERR_CORRUPT, "a header that is no JSON: %s", e.text);
}

static ts_status read_header(const ts_input *in, json_t **out, uint64_t *end)
{
    ts_cursor c = {.in = in};
    ts_status s = parse_header(&c, out);

    *end = c.at;
    ts_cursor_close(&c);
    return s;
}

ts_status ts_safetensors_read(const ts_input *in, ts_object **out)
{
    reader r = {.in = in};
    json_t *header;
    ts_status s;

    *out = NULL;
    TS_TRY(read_header(in, &header, &r.data));
    r.left = in->size - r.data;
    s = ts_object_make(TS_KIND_DICT, &r.dict);
    if (!s)
        s = read_entries(&r, header);
    json_decref(header);
    if (s)
        ts_object_free(r.dict);
    else
        *out = r.dict;
    return s;
}

/* --- writing ---------------------------------------------------------------------------------- */

/* The tensors from wide to narrow elements, each in the order of the dict. */
typedef ts_status each_fn(void *ctx, const char *key, const ts_array *a);

static ts_status each_tensor(const ts_object *o, each_fn *call, void *ctx)
{
    for (size_t size = 8; size; size /= 2)
        for (int64_t i = 0; i < ts_object_size(o); i++) {
            const ts_array *a = ts_object_array(ts_object_at(o, i));
            if (a && ts_dtype_size(a->dtype) == size)
                TS_TRY(call(ctx, ts_object_text(ts_object_key(o, i)), a));
        }
    return TS_OK;
}

typedef struct describer {
    json_t *header;
    uint64_t at;
} describer;

static ts_status no_memory(void)
{
    return ts_fail(TS_ERR_MEMORY, "no memory for the header of a safetensors file");
}

static ts_status describe(void *ctx, const char *key, const ts_array *a)
{
    describer *d = ctx;
    uint64_t end = d->at + a->bytes;
    json_t *shape = json_array(), *j;

    for (int i = 0; i < a->rank; i++)
        if (json_array_append_new(shape, json_integer(a->dims[i]))) {
            json_decref(shape);
            return no_memory();
        }
    j = json_pack("{s:s, s:o, s:[I, I]}", "dtype", ts_store_dtypes[a->dtype].safe, "shape", shape,
                  "data_offsets", (json_int_t)d->at, (json_int_t)end);
    d->at = end;
    return json_object_set_new(d->header, key, j) ? no_memory() : TS_OK;
}

static ts_status write_tensor(void *ctx, const char *key, const ts_array *a)
{
    (void)key;
    return ts_file_put(ctx, a->data, a->bytes);
}

static ts_status describe_metadata(json_t *header, const ts_object *o)
{
    json_t *j;

    if (!o)
        return TS_OK;
    j = json_object();
    if (json_object_set_new(header, TS_METADATA, j))
        return no_memory();
    for (int64_t i = 0; i < ts_object_size(o); i++) {
        const char *key = ts_object_text(ts_object_key(o, i));
        const char *text = ts_object_text(ts_object_at(o, i));
        if (!key || !text)
            return ts_fail(TS_ERR_TYPE, "the metadata of a safetensors file is text by name only");
        if (json_object_set_new(j, key, json_string(text)))
            return no_memory();
    }
    return TS_OK;
}

static ts_status check(const ts_object *o)
{
    char buf[80];

    if (ts_object_kind(o) != TS_KIND_DICT)
        return ts_fail(TS_ERR_TYPE, "a safetensors file holds a dict of tensors, not a %s",
                       ts_kind_name(ts_object_kind(o)));
    for (int64_t i = 0; i < ts_object_size(o); i++) {
        const char *key = ts_object_text(ts_object_key(o, i));
        ts_kind want = key && !strcmp(key, TS_METADATA) ? TS_KIND_DICT : TS_KIND_TENSOR;
        if (!key || ts_object_kind(ts_object_at(o, i)) != want)
            return ts_fail(TS_ERR_TYPE, "a safetensors file holds tensors by name only; %s is none",
                           ts_object_words(ts_object_key(o, i), buf, sizeof(buf)));
    }
    return TS_OK;
}

static ts_status write_header(const json_t *header, ts_file_out *f)
{
    char *text = json_dumps(header, JSON_COMPACT);
    uint64_t n = text ? TS_ROUND_UP(strlen(text), 8) : 0;
    ts_text t = {0};
    ts_status s;

    if (!text)
        return no_memory();
    for (int i = 0; i < 8; i++)
        ts_text_add(&t, &(char){(char)(n >> 8 * i)}, 1);
    ts_text_printf(&t, "%-*s", (int)n, text);
    s = ts_file_put(f, t.s, t.len);
    ts_text_free(&t);
    free(text);
    return s;
}

ts_status ts_safetensors_write(const ts_object *o, ts_file_out *f)
{
    describer d = {0};
    ts_status s;

    TS_TRY(check(o));
    d.header = json_object();
    s = describe_metadata(d.header, ts_object_get(o, TS_METADATA));
    if (!s)
        s = each_tensor(o, describe, &d);
    if (!s)
        s = write_header(d.header, f);
    json_decref(d.header);
    return s ? s : each_tensor(o, write_tensor, f);
}
