/* object.c - a tree of plain data.
 *
 * Objects count their owners, because a checkpoint shares: the same list under two names is one
 * object with two owners, so a file of a few bytes cannot unfold into gigabytes. Taking a tree away
 * uses a list instead of recursion: how deep a tree is nested is not ours to choose.
 *
 * A dict keeps its items in the order of insertion; from 9 items on it has an index beside them,
 * seeded with its own address so that nobody can prepare keys that collide.
 */
#include "graph/graph.h"
#include "store/store.h"
#include <math.h>
#include <xxhash.h>

static bool is_container(const ts_object *o)
{
    return o && (o->kind == TS_KIND_LIST || o->kind == TS_KIND_TUPLE || o->kind == TS_KIND_DICT);
}

static bool has_text(int kind)
{
    return kind == TS_KIND_TEXT || kind == TS_KIND_BYTES || kind == TS_KIND_GLOBAL;
}

/* --- memory ----------------------------------------------------------------------------------- */

static ts_status no_memory(size_t bytes)
{
    return ts_fail(TS_ERR_MEMORY, "cannot allocate %zu bytes for a checkpoint's values", bytes);
}

ts_status ts_store_grow(void **array, size_t *cap, size_t need, size_t item)
{
    size_t n = TS_MAX(need, *cap + *cap / 2 + 8), bytes;
    void *p;

    if (need <= *cap)
        return TS_OK;
    if (__builtin_mul_overflow(n, item, &bytes))
        return no_memory(SIZE_MAX);
    p = ts_fault("alloc") ? NULL : realloc(*array, bytes);
    if (!p)
        return no_memory(bytes);
    *array = p;
    *cap = n;
    return TS_OK;
}

ts_status ts_object_make(int kind, ts_object **out)
{
    ts_object *o = ts_fault("alloc") ? NULL : calloc(1, sizeof(*o));

    *out = o;
    if (!o)
        return no_memory(sizeof(*o));
    o->kind = kind;
    o->refs = 1;
    return TS_OK;
}

ts_status ts_object_make_text(int kind, const char *s, size_t len, ts_object **out)
{
    ts_object *o;

    *out = NULL;
    TS_TRY(ts_object_make(kind, &o));
    o->text.s = ts_fault("alloc") || len == SIZE_MAX ? NULL : malloc(len + 1);
    if (!o->text.s) {
        ts_object_free(o);
        return no_memory(len);
    }
    memcpy(o->text.s, s, len);
    o->text.s[len] = 0;
    o->text.len = len;
    *out = o;
    return TS_OK;
}

ts_status ts_object_set_tensor(ts_object *o, const ts_array *a, ts_blob *blob)
{
    ts_tensor *t = ts_fault("alloc") ? NULL : malloc(sizeof(*t));

    if (!t)
        return no_memory(sizeof(*t));
    blob->refs++;
    *t = (ts_tensor){*a, blob};
    if (has_text(o->kind))
        free(o->text.s);
    o->kind = TS_KIND_TENSOR;
    o->tensor = t;
    return TS_OK;
}

/* One owner less; the last one puts it on the list. */
static void leave(ts_object *o, ts_object **list)
{
    if (--o->refs)
        return;
    o->next = *list;
    *list = o;
}

static void leave_items(ts_object *o, ts_object **list)
{
    for (size_t i = 0; i < o->seq.n; i++) {
        leave(o->seq.items[i], list);
        if (o->kind == TS_KIND_DICT)
            leave(o->seq.keys[i], list);
    }
    free(o->seq.items);
    free(o->seq.keys);
    free(o->seq.index);
    memset(&o->seq, 0, sizeof(o->seq));
}

static void take_away(ts_object *list)
{
    while (list) {
        ts_object *o = list;
        list = o->next;
        if (is_container(o))
            leave_items(o, &list);
        else if (has_text(o->kind))
            free(o->text.s);
        else if (o->kind == TS_KIND_TENSOR) {
            ts_blob_free(o->tensor->blob);
            free(o->tensor);
        }
        free(o);
    }
}

void ts_object_free(ts_object *o)
{
    ts_object *list = NULL;

    if (!o)
        return;
    leave(o, &list);
    take_away(list);
}

void ts_object_clear(ts_object *o)
{
    ts_object *list = NULL;

    if (!is_container(o))
        return;
    leave_items(o, &list);
    take_away(list);
}

ts_object *ts_object_share(const ts_object *o)
{
    ts_object *shared = (ts_object *)o;

    if (!o)
        ts_fail(TS_ERR_ARG, "there is no object to share");
    else
        shared->refs++;
    return shared;
}

/* --- making ----------------------------------------------------------------------------------- */

static ts_object *new_object(int kind)
{
    ts_object *o;

    ts_object_make(kind, &o);
    return o;
}

ts_object *ts_object_new_none(void)
{
    return new_object(TS_KIND_NONE);
}

ts_object *ts_object_new_list(void)
{
    return new_object(TS_KIND_LIST);
}

ts_object *ts_object_new_tuple(void)
{
    return new_object(TS_KIND_TUPLE);
}

ts_object *ts_object_new_dict(void)
{
    return new_object(TS_KIND_DICT);
}

static ts_object *new_int(int kind, int64_t value)
{
    ts_object *o = new_object(kind);

    if (o)
        o->i = value;
    return o;
}

ts_object *ts_object_new_bool(bool value)
{
    return new_int(TS_KIND_BOOL, value);
}

ts_object *ts_object_new_int(int64_t value)
{
    return new_int(TS_KIND_INT, value);
}

ts_object *ts_object_new_float(double value)
{
    ts_object *o = new_object(TS_KIND_FLOAT);

    if (o)
        o->f = value;
    return o;
}

/* How many bytes the UTF-8 character at s has; 0: it is none. */
static size_t utf8_length(const uint8_t *s, size_t left)
{
    static const uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t n = s[0] < 0x80 ? 1 : s[0] >> 5 == 6 ? 2 : s[0] >> 4 == 14 ? 3 : s[0] >> 3 == 30 ? 4 : 0;
    uint32_t c = n == 1 ? s[0] : s[0] & (0x7fu >> n);

    if (!n || n > left)
        return 0;
    for (size_t i = 1; i < n; i++) {
        if (s[i] >> 6 != 2)
            return 0;
        c = c << 6 | (s[i] & 63);
    }
    return c < smallest[n] || c > 0x10ffff || c >> 11 == 0x1b ? 0 : n;
}

/* Everything we write wants UTF-8, and everything in C ends at a NUL. */
static ts_status check_text(const char *s, size_t len)
{
    for (size_t i = 0, n; i < len; i += n) {
        n = utf8_length((const uint8_t *)s + i, len - i);
        if (!n)
            return ts_fail(TS_ERR_ARG, "text of %zu bytes is not UTF-8 at byte %zu", len, i);
        if (!s[i])
            return ts_fail(TS_ERR_ARG, "text of %zu bytes has a NUL at byte %zu", len, i);
    }
    return TS_OK;
}

ts_object *ts_object_new_text(const char *text)
{
    ts_object *o = NULL;

    if (!text)
        ts_fail(TS_ERR_ARG, "there is no text");
    else if (!check_text(text, strlen(text)))
        ts_object_make_text(TS_KIND_TEXT, text, strlen(text), &o);
    return o;
}

ts_status ts_array_size(const ts_array *a, size_t *bytes)
{
    size_t n = 1;
    bool empty = false, over = false;

    if ((unsigned)a->dtype >= TS_STORE_DTYPES)
        return ts_fail(TS_ERR_TYPE, "%d is no dtype", (int)a->dtype);
    if (a->rank < 0 || a->rank > TS_MAX_RANK)
        return ts_fail(TS_ERR_SHAPE, "a tensor of rank %d; up to %d are supported", a->rank,
                       TS_MAX_RANK);
    for (int i = 0; i < a->rank; i++) {
        if (a->dims[i] < 0)
            return ts_fail(TS_ERR_SHAPE, "dim %d of a tensor is %ld", i, (long)a->dims[i]);
        empty |= !a->dims[i];
        over |= __builtin_mul_overflow(n, (size_t)TS_MAX(a->dims[i], 1), &n);
    }
    over |= __builtin_mul_overflow(n, ts_dtype_size(a->dtype), &n);
    if (over || n > PTRDIFF_MAX)
        return ts_fail(TS_ERR_SHAPE, "a tensor with more elements than memory has bytes");
    *bytes = empty ? 0 : n;
    return TS_OK;
}

ts_object *ts_object_new_tensor(const ts_array *a)
{
    ts_object *o = NULL;
    ts_array mine;
    ts_blob *b;
    size_t bytes;

    if (!a) {
        ts_fail(TS_ERR_ARG, "there is no array");
        return NULL;
    }
    if (ts_array_size(a, &bytes))
        return NULL;
    if (a->bytes != bytes || (bytes && !a->data)) {
        ts_fail(TS_ERR_ARG, "an array whose dims need %zu bytes has %zu", bytes,
                a->data ? a->bytes : 0);
        return NULL;
    }
    if (ts_blob_new(bytes, &b))
        return NULL;
    if (bytes)
        memcpy(b->data, a->data, bytes);
    mine = *a;
    ts_tensor_make(&mine, 0, false, b, &o);
    ts_blob_free(b);
    return o;
}

/* --- containers ------------------------------------------------------------------------------- */

static bool same_key(const ts_object *a, const ts_object *b)
{
    if (a->kind != b->kind)
        return false;
    if (a->kind == TS_KIND_INT)
        return a->i == b->i;
    return a->text.len == b->text.len && !memcmp(a->text.s, b->text.s, a->text.len);
}

static uint64_t hash(const ts_object *dict, const ts_object *key)
{
    uint64_t seed = (uintptr_t)dict;

    if (key->kind == TS_KIND_INT)
        return XXH3_64bits_withSeed(&key->i, sizeof(key->i), seed);
    return XXH3_64bits_withSeed(key->text.s, key->text.len, seed);
}

/* The index slot of key: the one that has it, or the free one where it belongs. */
static uint32_t *slot_of(const ts_object *d, const ts_object *key)
{
    size_t mask = d->seq.nindex - 1, at = hash(d, key) & mask;

    while (d->seq.index[at] && !same_key(d->seq.keys[d->seq.index[at] - 1], key))
        at = (at + 1) & mask;
    return &d->seq.index[at];
}

/* Where key is in the dict, or its size. */
static size_t find(const ts_object *d, const ts_object *key)
{
    if (d->seq.index) {
        uint32_t slot = *slot_of(d, key);
        return slot ? slot - 1 : d->seq.n;
    }
    for (size_t i = 0; i < d->seq.n; i++)
        if (same_key(d->seq.keys[i], key))
            return i;
    return d->seq.n;
}

/* Keeps the index at most half full, counting the item that is about to come. */
static ts_status index_room(ts_object *d)
{
    size_t n = TS_MAX(d->seq.nindex, (size_t)32);

    if (d->seq.n < 8 || (d->seq.n + 1) * 2 <= d->seq.nindex)
        return TS_OK;
    while (n < (d->seq.n + 1) * 4)
        n *= 2;
    free(d->seq.index);
    d->seq.index = ts_fault("alloc") ? NULL : calloc(n, sizeof(*d->seq.index));
    d->seq.nindex = d->seq.index ? n : 0;
    if (!d->seq.index)
        return no_memory(n * sizeof(*d->seq.index));
    for (size_t i = 0; i < d->seq.n; i++)
        *slot_of(d, d->seq.keys[i]) = (uint32_t)i + 1;
    return TS_OK;
}

static ts_status room_for_one(ts_object *o)
{
    size_t cap = o->seq.cap, keys_cap = cap;

    if (o->seq.n >= INT32_MAX)
        return ts_fail(TS_ERR_UNSUPPORTED, "a %s of more than %d items",
                       ts_kind_name(ts_object_kind(o)), INT32_MAX);
    if (o->kind == TS_KIND_DICT) {
        TS_TRY(index_room(o));
        TS_TRY(ts_store_grow((void **)&o->seq.keys, &keys_cap, o->seq.n + 1, sizeof(ts_object *)));
    }
    TS_TRY(ts_store_grow((void **)&o->seq.items, &cap, o->seq.n + 1, sizeof(ts_object *)));
    o->seq.cap = cap;
    return TS_OK;
}

static ts_status check_child(const ts_object *o, const ts_object *child)
{
    ts_status s = ts_last_error()->code;

    if (!child)
        return s ? s : ts_fail(TS_ERR_ARG, "there is no object to put in");
    if (child == o)
        return ts_fail(TS_ERR_ARG, "a %s cannot hold itself", ts_kind_name(ts_object_kind(o)));
    return TS_OK;
}

static ts_status append(ts_object *list, ts_object *child)
{
    if (ts_object_kind(list) != TS_KIND_LIST && ts_object_kind(list) != TS_KIND_TUPLE)
        return ts_fail(TS_ERR_ARG, "append needs a list or a tuple, got a %s",
                       ts_kind_name(ts_object_kind(list)));
    TS_TRY(check_child(list, child));
    TS_TRY(room_for_one(list));
    list->seq.items[list->seq.n++] = child;
    return TS_OK;
}

ts_status ts_object_append(ts_object *list, ts_object *child)
{
    ts_status s = append(list, child);

    if (s)
        ts_object_free(child);
    return s;
}

static ts_status put(ts_object *d, ts_object *key, ts_object *child)
{
    size_t at;

    if (ts_object_kind(d) != TS_KIND_DICT)
        return ts_fail(TS_ERR_ARG, "set needs a dict, got a %s", ts_kind_name(ts_object_kind(d)));
    TS_TRY(check_child(d, child));
    TS_TRY(check_child(d, key));
    at = find(d, key);
    if (at < d->seq.n) {
        ts_object_free(d->seq.items[at]);
        ts_object_free(key);
        d->seq.items[at] = child;
        return TS_OK;
    }
    TS_TRY(room_for_one(d));
    if (d->seq.index)
        *slot_of(d, key) = (uint32_t)d->seq.n + 1;
    d->seq.keys[d->seq.n] = key;
    d->seq.items[d->seq.n++] = child;
    return TS_OK;
}

ts_status ts_object_put(ts_object *dict, ts_object *key, ts_object *child)
{
    ts_status s = put(dict, key, child);

    if (s) {
        ts_object_free(key);
        ts_object_free(child);
    }
    return s;
}

ts_status ts_object_set(ts_object *dict, const char *key, ts_object *child)
{
    /* A NULL child means that the error of the call that made it is the one to tell. */
    return ts_object_put(dict, child ? ts_object_new_text(key) : NULL, child);
}

ts_status ts_object_set_int(ts_object *dict, int64_t key, ts_object *child)
{
    return ts_object_put(dict, child ? ts_object_new_int(key) : NULL, child);
}

/* --- looking ---------------------------------------------------------------------------------- */

ts_kind ts_object_kind(const ts_object *o)
{
    return o ? (ts_kind)o->kind : TS_KIND_NONE;
}

const char *ts_kind_name(ts_kind k)
{
    static const char *const names[] = {
        [TS_KIND_NONE] = "none",
        [TS_KIND_BOOL] = "bool",
        [TS_KIND_INT] = "int",
        [TS_KIND_FLOAT] = "float",
        [TS_KIND_TEXT] = "text",
        [TS_KIND_LIST] = "list",
        [TS_KIND_TUPLE] = "tuple",
        [TS_KIND_DICT] = "dict",
        [TS_KIND_TENSOR] = "tensor",
        [TS_KIND_BYTES] = "bytes object",
        [TS_KIND_GLOBAL] = "class or function",
        [TS_KIND_STORAGE] = "storage",
        [TS_KIND_NUMPY_TYPE] = "NumPy dtype",
        [TS_KIND_NUMPY_ARRAY] = "NumPy array",
    };

    return (unsigned)k < TS_COUNT(names) ? names[k] : "unknown";
}

int64_t ts_object_size(const ts_object *o)
{
    return is_container(o) ? (int64_t)o->seq.n : 0;
}

const ts_object *ts_object_at(const ts_object *o, int64_t i)
{
    return i >= 0 && i < ts_object_size(o) ? o->seq.items[i] : NULL;
}

const ts_object *ts_object_key(const ts_object *d, int64_t i)
{
    return ts_object_kind(d) == TS_KIND_DICT && ts_object_at(d, i) ? d->seq.keys[i] : NULL;
}

static const ts_object *get(const ts_object *d, const ts_object *key)
{
    return ts_object_kind(d) == TS_KIND_DICT ? ts_object_at(d, (int64_t)find(d, key)) : NULL;
}

const ts_object *ts_object_get(const ts_object *d, const char *key)
{
    ts_object k = {.kind = TS_KIND_TEXT};

    if (!key)
        return NULL;
    k.text.s = (char *)key;
    k.text.len = strlen(key);
    return get(d, &k);
}

const ts_object *ts_object_get_int(const ts_object *d, int64_t key)
{
    return get(d, &(ts_object){.kind = TS_KIND_INT, .i = key});
}

const char *ts_object_text(const ts_object *o)
{
    return ts_object_kind(o) == TS_KIND_TEXT ? o->text.s : NULL;
}

const ts_array *ts_object_array(const ts_object *o)
{
    return ts_object_kind(o) == TS_KIND_TENSOR ? &o->tensor->array : NULL;
}

const char *ts_object_words(const ts_object *o, char *buf, size_t size)
{
    if (ts_object_kind(o) == TS_KIND_INT)
        snprintf(buf, size, "%ld", (long)o->i);
    else
        snprintf(buf, size, "'%.60s'", ts_object_text(o) ? ts_object_text(o) : "");
    return buf;
}

static const ts_array *one_element(const ts_object *o)
{
    const ts_array *a = ts_object_array(o);

    return a && a->data && a->bytes == ts_dtype_size(a->dtype) ? a : NULL;
}

double ts_object_number(const ts_object *o, double otherwise)
{
    const ts_array *a = one_element(o);

    switch (ts_object_kind(o)) {
    case TS_KIND_BOOL:
    case TS_KIND_INT:
        return (double)o->i;
    case TS_KIND_FLOAT:
        return o->f;
    default:
        return a ? ts_dtype_get(a->dtype, a->data, 0) : otherwise;
    }
}

int64_t ts_object_int(const ts_object *o, int64_t otherwise)
{
    const ts_array *a = one_element(o);
    double x;

    if (ts_object_kind(o) == TS_KIND_BOOL || ts_object_kind(o) == TS_KIND_INT)
        return o->i;
    if (a && a->dtype == TS_I64)
        return *(const int64_t *)a->data;
    x = ts_object_number(o, NAN);
    return x >= -0x1p63 && x < 0x1p63 && x == floor(x) ? (int64_t)x : otherwise;
}

/* --- what a reader may hand out --------------------------------------------------------------- */

static ts_status too_deep(void)
{
    return ts_fail(TS_ERR_UNSUPPORTED, "lists, tuples and dicts nested deeper than %d",
                   TS_STORE_DEPTH);
}

ts_status ts_object_too_many(void)
{
    return ts_fail(TS_ERR_UNSUPPORTED, "a tree of more than %zu values", TS_STORE_VALUES);
}

static ts_status bytes_to_tensor(ts_object *o)
{
    ts_array a = {TS_U8, 1, {(int64_t)o->text.len}, o->text.len, NULL};
    ts_blob *b;
    ts_status s;

    TS_TRY(ts_blob_new(a.bytes, &b));
    memcpy(b->data, o->text.s, a.bytes);
    a.data = b->data;
    s = ts_object_set_tensor(o, &a, b);
    ts_blob_free(b);
    return s;
}

static ts_status survey_leaf(ts_object *o)
{
    if (o->kind == TS_KIND_TEXT)
        return check_text(o->text.s, o->text.len);
    if (o->kind == TS_KIND_BYTES)
        return bytes_to_tensor(o);
    if (o->kind == TS_KIND_GLOBAL)
        return ts_fail(TS_ERR_UNSUPPORTED, "%s as a value; only tensors and plain data are read",
                       o->text.s);
    if (o->kind > TS_KIND_TENSOR)
        return ts_fail(TS_ERR_UNSUPPORTED, "a %s as a value; only tensors and plain data are read",
                       ts_kind_name(ts_object_kind(o)));
    return TS_OK;
}

/* Each object once, though many lead to it: heights and counts are remembered. An object that is
 * met again below itself has `values` 0 still. */
static ts_status survey(ts_object *o, unsigned depth)
{
    unsigned height = 1;
    size_t values = 1;

    if (o->height)
        return !o->values ? ts_fail(TS_ERR_UNSUPPORTED, "a value that holds itself")
               : depth + o->height > TS_STORE_DEPTH ? too_deep()
                                                    : TS_OK;
    if (depth >= TS_STORE_DEPTH)
        return too_deep();
    o->height = 1;
    o->values = 0;
    if (!is_container(o))
        TS_TRY(survey_leaf(o));
    for (int64_t i = 0; i < ts_object_size(o); i++) {
        ts_object *child = o->seq.items[i];
        if (o->kind == TS_KIND_DICT)
            TS_TRY(survey(o->seq.keys[i], depth + 1));
        TS_TRY(survey(child, depth + 1));
        height = TS_MAX(height, child->height + 1);
        values += child->values;
        if (values > TS_STORE_VALUES)
            return ts_object_too_many();
    }
    o->height = height;
    o->values = values;
    return TS_OK;
}

ts_status ts_object_survey(ts_object *o)
{
    return survey(o, 0);
}
