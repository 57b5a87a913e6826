/* files.h - trees and files of them that the tests of store/ share. */
#ifndef TEST_STORE_FILES_H
#define TEST_STORE_FILES_H

#include "store/store.h"
#include "support.h"

#define UNUSED __attribute__((unused))

typedef struct bytes {
    uint8_t *data;
    size_t len, cap; /* cap: of what add() made */
} bytes;

/* A tensor whose bytes are small numbers, valid in every dtype. */
static UNUSED ts_object *tensor(ts_dtype t, int rank, const int64_t *dims)
{
    ts_array a = {.dtype = t, .rank = rank};
    ts_object *o;
    size_t n;

    for (int i = 0; i < rank; i++)
        a.dims[i] = dims[i];
    assert_ok(ts_array_size(&a, &n));
    a.bytes = n;
    a.data = malloc(n + 1);
    for (size_t i = 0; i < n; i++)
        ((uint8_t *)a.data)[i] = (uint8_t)(t == TS_BOOL ? i % 3 == 1 : i * 7 + 1);
    o = ts_object_new_tensor(&a);
    assert_non_null(o);
    free(a.data);
    return o;
}

#define TENSOR(t, ...)                                                                             \
    tensor(t, (int)(sizeof((int64_t[]){__VA_ARGS__}) / 8), (const int64_t[]){__VA_ARGS__})

/* A dict of a tensor of every dtype that `numpy` has, or of all. */
static UNUSED ts_object *tensors(bool numpy)
{
    ts_object *d = ts_object_new_dict();

    for (int t = 0; t < TS_STORE_DTYPES; t++)
        if (!numpy || ts_store_dtypes[t].numpy)
            assert_ok(ts_object_set(d, ts_dtype_name((ts_dtype)t), TENSOR((ts_dtype)t, 2, 3)));
    assert_ok(ts_object_set(d, "scalar", tensor(TS_F32, 0, NULL)));
    assert_ok(ts_object_set(d, "empty", TENSOR(TS_F32, 4, 0)));
    assert_ok(ts_object_set(d, "deep", TENSOR(TS_I64, 1, 2, 1, 2, 1, 1, 2, 1)));
    return d;
}

/* Every kind of object, in the shape of a training checkpoint. */
static UNUSED ts_object *checkpoint(void)
{
    ts_object *o = ts_object_new_dict(), *opt = ts_object_new_dict(), *state = ts_object_new_dict();
    ts_object *groups = ts_object_new_list(), *group = ts_object_new_dict(),
              *params = ts_object_new_list(), *slot = ts_object_new_dict(),
              *betas = ts_object_new_tuple();

    assert_ok(ts_object_set(o, "epoch", ts_object_new_int(3)));
    assert_ok(ts_object_set(o, "seed", ts_object_new_int(INT64_MIN)));
    assert_ok(ts_object_set(o, "loss", ts_object_new_float(0.1)));
    assert_ok(ts_object_set(o, "name", ts_object_new_text("n\xc3\xa4t")));
    assert_ok(ts_object_set(o, "model_state_dict", tensors(false)));
    assert_ok(ts_object_set(slot, "momentum_buffer", TENSOR(TS_F32, 5)));
    assert_ok(ts_object_set_int(state, 0, slot));
    assert_ok(ts_object_set(opt, "state", state));
    assert_ok(ts_object_set(group, "lr", ts_object_new_float(-0.0)));
    assert_ok(ts_object_set(group, "nesterov", ts_object_new_bool(true)));
    assert_ok(ts_object_set(group, "foreach", ts_object_new_none()));
    assert_ok(ts_object_append(betas, ts_object_new_float(0.9)));
    assert_ok(ts_object_append(betas, ts_object_new_float(0.999)));
    assert_ok(ts_object_set(group, "betas", betas));
    assert_ok(ts_object_append(params, ts_object_new_int(0)));
    assert_ok(ts_object_append(params, ts_object_new_int(-1)));
    assert_ok(ts_object_set(group, "params", params));
    assert_ok(ts_object_append(groups, group));
    assert_ok(ts_object_set(opt, "param_groups", groups));
    assert_ok(ts_object_set(o, "optimizer_state_dict", opt));
    return o;
}

static UNUSED void assert_same_array(const ts_array *a, const ts_array *b)
{
    assert_int_equal(a->dtype, b->dtype);
    assert_int_equal(a->rank, b->rank);
    assert_memory_equal(a->dims, b->dims, sizeof(a->dims[0]) * (size_t)a->rank);
    assert_int_equal(a->bytes, b->bytes);
    assert_memory_equal(a->data, b->data, a->bytes);
}

static UNUSED void assert_same(const ts_object *a, const ts_object *b)
{
    assert_int_equal(ts_object_kind(a), ts_object_kind(b));
    assert_int_equal(ts_object_size(a), ts_object_size(b));
    if (ts_object_kind(a) == TS_KIND_TENSOR)
        assert_same_array(ts_object_array(a), ts_object_array(b));
    if (ts_object_kind(a) == TS_KIND_TEXT)
        assert_string_equal(ts_object_text(a), ts_object_text(b));
    if (ts_object_kind(a) == TS_KIND_FLOAT)
        assert_memory_equal(&a->f, &b->f, sizeof(a->f));
    assert_int_equal(ts_object_int(a, 7), ts_object_int(b, 7));
    for (int64_t i = 0; i < ts_object_size(a); i++) {
        if (ts_object_kind(a) == TS_KIND_DICT)
            assert_same(ts_object_key(a, i), ts_object_key(b, i));
        assert_same(ts_object_at(a, i), ts_object_at(b, i));
    }
}

static UNUSED bytes read_bytes(const char *path)
{
    bytes b = {0};
    char *data;

    assert_ok(ts_file_read(path, &data, &b.len));
    b.data = (uint8_t *)data;
    return b;
}

/* What ts_object_save writes. */
static UNUSED bytes saved(const ts_object *o, ts_file_format format)
{
    char *folder = test_folder(), *path;
    bytes b;

    assert_true(asprintf(&path, "%s/file", folder) > 0);
    assert_ok(ts_object_save(o, path, format));
    assert_int_equal(test_folder_count(folder), 1);
    b = read_bytes(path);
    test_folder_remove(folder);
    free(folder);
    free(path);
    return b;
}

static UNUSED void add(bytes *b, const void *data, size_t len)
{
    if (b->len + len >= b->cap) {
        b->cap = 2 * (b->len + len) + 1;
        b->data = realloc(b->data, b->cap);
    }
    memcpy(b->data + b->len, data, len);
    b->len += len;
}

#define ADD(b, text) add(b, text, sizeof(text) - 1)

static UNUSED void add_number(bytes *b, uint64_t x, int n)
{
    for (int i = 0; i < n; i++)
        add(b, &(uint8_t){(uint8_t)(x >> 8 * i)}, 1);
}

/* An entry of a zip file. */
static UNUSED bytes entry(bytes zip, const char *name)
{
    ts_input in = {.mem = zip.data, .size = zip.len};
    ts_zip *z;
    ts_blob *b;
    bytes out = {0};

    assert_ok(ts_zip_open(&in, &z));
    assert_true(ts_zip_find(z, name) >= 0);
    assert_ok(ts_zip_read(z, ts_zip_find(z, name), &b));
    add(&out, b->data, b->bytes);
    ts_blob_free(b);
    ts_zip_close(z);
    return out;
}

/* The pickle of a tree as a .pth file has it. */
static UNUSED bytes pickled(const ts_object *o)
{
    bytes zip = saved(o, TS_FILE_PTH), b = entry(zip, "archive/data.pkl");

    free(zip.data);
    return b;
}

#define LEGACY_MAGIC "\x80\x02\x8a\x0al\xfc\x9c\x46\xf9 j\xa8P\x19."
#define LEGACY_HEAD                                                                                \
    LEGACY_MAGIC "\x80\x02M\xe9\x03."                                                              \
                 "\x80\x02}q\x00(X\x10\x00\x00\x00protocol_versionq\x01M\xe9\x03"                  \
                 "X\x0d\x00\x00\x00little_endianq\x02\x88u."

/* The tensors of a tree in the order in which the writer numbers them. */
static UNUSED int each_tensor(const ts_object *o, const ts_array **out, int n)
{
    if (ts_object_array(o))
        out[n++] = ts_object_array(o);
    for (int64_t i = 0; i < ts_object_size(o); i++)
        n = each_tensor(ts_object_at(o, i), out, n);
    return n;
}

/* The same tree as PyTorch wrote it before 1.6. */
static UNUSED bytes legacy(const ts_object *o)
{
    bytes b = {0}, pickle = pickled(o);
    const ts_array *tensors[64];
    int n = each_tensor(o, tensors, 0);
    char key[16];

    ADD(&b, LEGACY_HEAD);
    add(&b, pickle.data, pickle.len);
    ADD(&b, "\x80\x02](");
    for (int i = 0; i < n; i++) {
        snprintf(key, sizeof(key), "%d", i);
        ADD(&b, "X");
        add_number(&b, strlen(key), 4);
        add(&b, key, strlen(key));
    }
    ADD(&b, "e.");
    for (int i = 0; i < n; i++) {
        add_number(&b, tensors[i]->bytes / ts_dtype_size(tensors[i]->dtype), 8);
        add(&b, tensors[i]->data, tensors[i]->bytes);
    }
    free(pickle.data);
    return b;
}

/* --- pickles by hand --- */

/* Storages of counting floats, as a file would have them. */
static UNUSED ts_status counting(void *ctx, ts_pickle *p)
{
    (void)ctx;
    for (size_t i = 0; i < p->nstorages; i++) {
        TS_TRY(ts_blob_new(p->storages[i].bytes, &p->storages[i].data));
        for (size_t k = 0; k < p->storages[i].bytes / 4; k++)
            ((float *)p->storages[i].data->data)[k] = (float)k;
    }
    return TS_OK;
}

static UNUSED ts_status unpickle_tensors(bytes b, ts_object **out)
{
    ts_input in = {.mem = b.data, .size = b.len};
    ts_cursor c = {.in = &in};

    return ts_pickle_load(&c, counting, NULL, out);
}

static UNUSED void add_storage(bytes *b, const char *type, const char *key, int count)
{
    ADD(b, "(X\x07\x00\x00\x00storagectorch\n");
    add(b, type, strlen(type));
    ADD(b, "\nX");
    add_number(b, strlen(key), 4);
    add(b, key, strlen(key));
    ADD(b, "X\x03\x00\x00\x00"
           "cpuJ");
    add_number(b, (uint64_t)count, 4);
    ADD(b, "tQ");
}

static UNUSED void add_ints(bytes *b, int n, const int64_t *x)
{
    ADD(b, "(");
    for (int i = 0; i < n; i++) {
        ADD(b, "\x8a\x08");
        add_number(b, (uint64_t)x[i], 8);
    }
    ADD(b, "t");
}

#endif
