/* npy.c - NumPy's files: .npy is one array, .npz a zip of them.
 *
 *   \x93NUMPY  version (2 bytes)  length of the header (2 bytes, from version 2 on 4)
 *   {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }   padded to a multiple of 64
 *   the elements
 */
#include "store/store.h"

static const char magic[] = "\x93NUMPY";
enum { MAGIC = 6, HEADER_LIMIT = 1 << 16 };

bool ts_npy_is(const ts_head *h)
{
    return !memcmp(h->data, magic, MAGIC);
}

/* --- the header, a dict as Python prints it --------------------------------------------------- */

typedef struct header {
    const char *s, *end;
    ts_array array;
    bool fortran;
    unsigned seen; /* bits: descr, fortran_order, shape */
} header;

static ts_status bad_header(void)
{
    return ts_fail(TS_ERR_CORRUPT, "a .npy header that does not read");
}

static bool skip(header *h, char c)
{
    while (h->s < h->end && strchr(" \n\t", *h->s) && *h->s)
        h->s++;
    if (h->s == h->end || *h->s != c)
        return false;
    h->s++;
    return true;
}

static bool skip_word(header *h, const char *word)
{
    size_t n = strlen(word);

    skip(h, ' ');
    if ((size_t)(h->end - h->s) < n || memcmp(h->s, word, n))
        return false;
    h->s += n;
    return true;
}

static bool quoted(header *h, const char **s, size_t *n)
{
    const char *end;

    if (!skip(h, '\''))
        return false;
    end = memchr(h->s, '\'', (size_t)(h->end - h->s));
    if (!end)
        return false;
    *s = h->s;
    *n = (size_t)(end - h->s);
    h->s = end + 1;
    return true;
}

/* '<f4': byte order, letter, bytes */
static ts_status read_descr(header *h)
{
    const char *s;
    size_t n;
    int t;

    if (!quoted(h, &s, &n))
        return ts_fail(TS_ERR_UNSUPPORTED, "a .npy file of records; arrays of numbers are read");
    t = n < 2 ? -1 : ts_store_dtype_find(offsetof(ts_store_dtype, numpy), s + 1, n - 1);
    if (t >= 0 && s[0] == '>' && ts_dtype_size((ts_dtype)t) > 1)
        return ts_fail(TS_ERR_UNSUPPORTED, "a big-endian .npy file");
    if (t < 0 || !strchr("<>|=", s[0]) || !s[0])
        return ts_fail(TS_ERR_UNSUPPORTED, "a .npy file of type '%.*s'", (int)TS_MIN(n, 20), s);
    h->array.dtype = (ts_dtype)t;
    return TS_OK;
}

static ts_status read_order(header *h)
{
    h->fortran = skip_word(h, "True");
    return h->fortran || skip_word(h, "False") ? TS_OK : bad_header();
}

static bool read_dim(header *h, int64_t *out)
{
    int64_t x = 0;
    const char *from;

    skip(h, ' ');
    for (from = h->s; h->s < h->end && *h->s >= '0' && *h->s <= '9'; h->s++)
        if (__builtin_mul_overflow(x, 10, &x) || __builtin_add_overflow(x, *h->s - '0', &x))
            return false;
    *out = x;
    return h->s > from;
}

static ts_status read_shape(header *h)
{
    int64_t dim;

    if (!skip(h, '('))
        return bad_header();
    while (!skip(h, ')')) {
        if (!read_dim(h, &dim))
            return bad_header();
        if (h->array.rank == TS_MAX_RANK)
            return ts_fail(TS_ERR_UNSUPPORTED, "a .npy file of a rank over %d", TS_MAX_RANK);
        h->array.dims[h->array.rank++] = dim;
        skip(h, ',');
    }
    return TS_OK;
}

static ts_status read_entry(header *h)
{
    static const struct {
        const char *key;
        ts_status (*read)(header *h);
    } entries[] = {{"descr", read_descr}, {"fortran_order", read_order}, {"shape", read_shape}};
    const char *s;
    size_t n;

    if (!quoted(h, &s, &n) || !skip(h, ':'))
        return bad_header();
    for (int i = 0; i < TS_COUNT(entries); i++)
        if (strlen(entries[i].key) == n && !memcmp(entries[i].key, s, n) && !(h->seen & 1u << i)) {
            h->seen |= 1u << i;
            return entries[i].read(h);
        }
    return bad_header();
}

static ts_status read_dict(header *h)
{
    if (!skip(h, '{'))
        return bad_header();
    while (!skip(h, '}')) {
        TS_TRY(read_entry(h));
        skip(h, ',');
    }
    return h->seen == 7 ? ts_array_size(&h->array, &h->array.bytes) : bad_header();
}

static ts_status read_fields(ts_cursor *c, header *h)
{
    const uint8_t *b;
    uint64_t n;
    int wide;

    TS_TRY(ts_cursor_take(c, MAGIC + 2, &b));
    if (b[MAGIC] < 1 || b[MAGIC] > 3)
        return ts_fail(TS_ERR_UNSUPPORTED, "version %d of the .npy format; 1 to 3 are read",
                       b[MAGIC]);
    wide = b[MAGIC] == 1 ? 2 : 4;
    TS_TRY(ts_cursor_take(c, (uint64_t)wide, &b));
    n = ts_little(b, wide);
    if (n > HEADER_LIMIT)
        return ts_fail(TS_ERR_CORRUPT, "a .npy header of %lu bytes", (unsigned long)n);
    TS_TRY(ts_cursor_take(c, n, &b));
    h->s = (const char *)b;
    h->end = h->s + n;
    return read_dict(h);
}

/* Fills h and says where the elements start. */
static ts_status read_header(const ts_input *in, header *h, uint64_t *data)
{
    ts_cursor c = {.in = in};
    ts_status s = read_fields(&c, h);

    *data = c.at;
    ts_cursor_close(&c);
    return s;
}

/* --- arrays ----------------------------------------------------------------------------------- */

ts_status ts_npy_read(const ts_input *in, ts_object **out)
{
    header h = {0};
    uint64_t at;
    ts_blob *b;
    ts_status s;

    TS_TRY(read_header(in, &h, &at));
    TS_TRY(ts_blob_read(in, at, h.array.bytes, &b));
    s = ts_tensor_make(&h.array, 0, h.fortran, b, out);
    ts_blob_free(b);
    return s;
}

/* An entry of an archive is in memory already: where its elements are aligned they can stay. */
static ts_status read_blob(ts_blob *b, ts_object **out)
{
    ts_input in = {.mem = b->data, .size = b->bytes};
    header h = {0};
    ts_head head;
    uint64_t at;

    TS_TRY(ts_head_read(&in, &head));
    if (!ts_npy_is(&head))
        return ts_fail(TS_ERR_CORRUPT, "an entry of a .npz file is not a .npy file");
    TS_TRY(read_header(&in, &h, &at));
    if (at % ts_dtype_size(h.array.dtype) || h.array.bytes > b->bytes - at)
        return ts_npy_read(&in, out);
    return ts_tensor_make(&h.array, at / ts_dtype_size(h.array.dtype), h.fortran, b, out);
}

/* The header only. */
static ts_status read_shapes(const ts_blob *b, ts_object **out)
{
    ts_input in = {.mem = b->data, .size = b->bytes};
    header h = {0};
    ts_head head;
    ts_blob *blank;
    uint64_t at;
    ts_status s;

    TS_TRY(ts_head_read(&in, &head));
    if (!ts_npy_is(&head))
        return ts_fail(TS_ERR_CORRUPT, "an entry of a .npz file is not a .npy file");
    TS_TRY(read_header(&in, &h, &at));
    TS_TRY(ts_blob_blank(h.array.bytes, &blank));
    s = ts_tensor_make(&h.array, 0, h.fortran, blank, out);
    ts_blob_free(blank);
    return s;
}

static ts_status read_member(ts_zip *z, int64_t i, ts_object *dict)
{
    const char *name = ts_zip_name(z, i);
    size_t n = strlen(name);
    char *key;
    ts_object *o = NULL;
    ts_blob *b;
    ts_status s;

    if (n < 4 || strcmp(name + n - 4, ".npy"))
        return ts_fail(TS_ERR_UNSUPPORTED, "a zip archive with %.100s in it: no checkpoint", name);
    TS_TRY(ts_zip_shapes(z) ? ts_zip_begin(z, i, MAGIC + 6 + HEADER_LIMIT, &b)
                            : ts_zip_read(z, i, &b));
    s = ts_zip_shapes(z) ? read_shapes(b, &o) : read_blob(b, &o);
    ts_blob_free(b);
    TS_TRY(s);
    key = strndup(name, n - 4);
    s = key ? ts_object_set(dict, key, o) : ts_fail(TS_ERR_MEMORY, "cannot allocate %zu bytes", n);
    if (!key)
        ts_object_free(o);
    free(key);
    return s;
}

ts_status ts_npz_read(ts_zip *z, ts_object **out)
{
    ts_object *dict;
    ts_status s;

    *out = NULL;
    s = ts_object_make(TS_KIND_DICT, &dict);
    for (int64_t i = 0; !s && i < ts_zip_count(z); i++)
        s = read_member(z, i, dict);
    if (s)
        ts_object_free(dict);
    else
        *out = dict;
    return s;
}

/* --- writing ---------------------------------------------------------------------------------- */

static ts_status make_header(const ts_array *a, ts_text *t)
{
    const char *type = ts_store_dtypes[a->dtype].numpy;
    size_t n;

    if (!type)
        return ts_fail(TS_ERR_UNSUPPORTED, "NumPy has no type for %s", ts_dtype_name(a->dtype));
    ts_text_add(t, magic, MAGIC);
    ts_text_add(t, "\1\0\0\0", 4); /* version 1.0, and 2 bytes for the length */
    ts_text_printf(t, "{'descr': '%c%s', 'fortran_order': False, 'shape': (",
                   ts_dtype_size(a->dtype) == 1 ? '|' : '<', type);
    for (int i = 0; i < a->rank; i++)
        ts_text_printf(t, "%s%ld%s", i ? " " : "", (long)a->dims[i],
                       i + 1 < a->rank || a->rank == 1 ? "," : "");
    ts_text_printf(t, "), }");
    n = TS_ROUND_UP(t->len + 1, 64) - t->len;
    ts_text_printf(t, "%*s", (int)n, "\n");
    t->s[MAGIC + 2] = (char)(t->len - MAGIC - 4);
    t->s[MAGIC + 3] = (char)((t->len - MAGIC - 4) >> 8);
    return TS_OK;
}

ts_status ts_npy_write(const ts_object *o, ts_file_out *f)
{
    const ts_array *a = ts_object_array(o);
    ts_text t = {0};
    ts_status s;

    if (!a)
        return ts_fail(TS_ERR_TYPE, "a .npy file holds one tensor, not a %s",
                       ts_kind_name(ts_object_kind(o)));
    s = make_header(a, &t);
    if (!s)
        s = ts_file_put(f, t.s, t.len);
    if (!s)
        s = ts_file_put(f, a->data, a->bytes);
    ts_text_free(&t);
    return s;
}

static ts_status put_member(ts_zip_out *z, const ts_object *key, const ts_array *a)
{
    char buf[80];
    ts_text head = {0}, name = {0};
    ts_status s;

    if (!a || !ts_object_text(key))
        return ts_fail(TS_ERR_TYPE, "a .npz file holds tensors by name only; %s is none",
                       ts_object_words(key, buf, sizeof(buf)));
    ts_text_printf(&name, "%s.npy", ts_object_text(key));
    s = make_header(a, &head);
    if (!s)
        s = ts_zip_put(z, name.s, head.s, head.len, a->data, a->bytes);
    ts_text_free(&name);
    ts_text_free(&head);
    return s;
}

static ts_status put_members(ts_zip_out *z, const ts_object *o)
{
    if (ts_object_kind(o) != TS_KIND_DICT)
        return ts_fail(TS_ERR_TYPE, "a .npz file holds a dict of tensors, not a %s",
                       ts_kind_name(ts_object_kind(o)));
    for (int64_t i = 0; i < ts_object_size(o); i++)
        TS_TRY(put_member(z, ts_object_key(o, i), ts_object_array(ts_object_at(o, i))));
    return TS_OK;
}

ts_status ts_npz_write(const ts_object *o, ts_file_out *f)
{
    ts_zip_out z = {.file = f};

    return ts_zip_end(&z, put_members(&z, o));
}
