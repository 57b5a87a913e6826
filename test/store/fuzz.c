/* fuzz.c - damaged files of every format: refused or read, never more than that. */
#include "fuzz.h"
#include "files.h"

enum { RUNS = 4000 };

static void load_and_free(const uint8_t *data, size_t len)
{
    ts_object *o;

    if (ts_object_load_memory(data, len, &o))
        assert_null(o);
    ts_object_free(o);
}

/* Storages of zeros, up to a size that keeps the test fast. */
static ts_status zeros(void *ctx, ts_pickle *p)
{
    (void)ctx;
    for (size_t i = 0; i < p->nstorages; i++) {
        if (p->storages[i].bytes > 1 << 16)
            return ts_fail(TS_ERR_CORRUPT, "large");
        TS_TRY(ts_blob_new(p->storages[i].bytes, &p->storages[i].data));
    }
    return TS_OK;
}

static void unpickle(const uint8_t *data, size_t len)
{
    ts_input in = {.mem = data, .size = len};
    ts_cursor c = {.in = &in};
    ts_object *o;

    ts_pickle_load(&c, zeros, NULL, &o);
    ts_object_free(o);
}

static void npz_member(const uint8_t *data, size_t len)
{
    ts_input in = {.mem = data, .size = len};
    ts_head h;
    ts_object *o = NULL;

    assert_ok(ts_head_read(&in, &h));
    if (ts_npy_is(&h) && !ts_npy_read(&in, &o))
        assert_true(ts_object_array(o)->bytes <= len);
    ts_object_free(o);
}

static void fuzz_two(const char *name, bytes a, bytes b, void (*one)(const uint8_t *, size_t))
{
    fuzz(name, (const void *[]){a.data, b.data}, (size_t[]){a.len, b.len}, 2, RUNS, one);
    free(a.data);
    free(b.data);
}

static void fuzz_pickle(void **state)
{
    /* What our writer does not write: memo, sets, bytes, frames, NumPy, calls by the stack. */
    static const char other[] =
        "\x80\x04\x95\x00\x00\x00\x00\x00\x00\x00\x00}\x94(\x8c\x01"
        "a\x94]\x94(K\x01M\x00\x01J\xff"
        "\xff\xff\xff\x8a\x02\x00\x80G?\xf0\x00\x00\x00\x00\x00\x00NK\x05\x88\x89h\x01"
        "e\x8c\x01"
        "b\x94\x8f\x94(K\x01\x90\x8c\x01"
        "c\x94(K\x02\x91\x8c\x01"
        "d\x94\x8c\x15numpy.core.multiarray"
        "\x94\x8c\x06scalar\x94\x93\x94\x8c\x05numpy\x94\x8c\x05"
        "dtype\x94\x93\x94\x8c\x02"
        "f8\x94"
        "\x89\x88\x87\x94R\x94(K\x03\x8c\x01<\x94NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00t\x94"
        "bC\x08\x00\x00\x00\x00\x00\x00\xf0?\x94\x86\x94R\x94\x8c\x01"
        "e\x94\x8c\x0b"
        "collections"
        "\x94\x8c\x0bOrderedDict\x94\x93\x94)R\x94\x8c\x01"
        "f\x94K\x01\x85\x94\x8c\x01g\x94"
        "(K\x01K\x02K\x03K\x04t\x94u.";
    bytes plain = {0};
    ts_object *o = checkpoint();

    (void)state;
    ADD(&plain, other);
    unpickle(plain.data, plain.len);
    fuzz_two("pickle", pickled(o), plain, unpickle);
    ts_object_free(o);
}

static void fuzz_zip(void **state)
{
    ts_object *o = checkpoint(), *t = tensors(true);

    (void)state;
    fuzz_two("zip", saved(o, TS_FILE_PTH), saved(t, TS_FILE_NPZ), load_and_free);
    ts_object_free(o);
    ts_object_free(t);
}

static void fuzz_legacy(void **state)
{
    ts_object *o = checkpoint(), *t = tensors(false);

    (void)state;
    fuzz_two("legacy", legacy(o), legacy(t), load_and_free);
    ts_object_free(o);
    ts_object_free(t);
}

static void fuzz_safetensors(void **state)
{
    ts_object *o = tensors(false), *t = ts_object_new_dict(), *m = ts_object_new_dict();

    (void)state;
    assert_ok(ts_object_set(m, "format", ts_object_new_text("pt")));
    assert_ok(ts_object_set(t, "__metadata__", m));
    assert_ok(ts_object_set(t, "w", TENSOR(TS_BF16, 3)));
    fuzz_two("safetensors", saved(o, TS_FILE_SAFETENSORS), saved(t, TS_FILE_SAFETENSORS),
             load_and_free);
    ts_object_free(o);
    ts_object_free(t);
}

static void fuzz_npy(void **state)
{
    ts_object *o = TENSOR(TS_F32, 2, 3), *t = TENSOR(TS_BOOL, 5);
    bytes fortran = {0};

    (void)state;
    ADD(&fortran, "\x93NUMPY\2\0");
    ADD(&fortran, "\x3c\0\0\0{'descr': '<f8', 'fortran_order': True, 'shape': (3, 2), }  ");
    add(&fortran, (double[6]){1, 2, 3}, 48);
    load_and_free(fortran.data, fortran.len);
    fuzz_two("npy", saved(o, TS_FILE_NPY), fortran, npz_member);
    fuzz_two("npy", saved(t, TS_FILE_NPY), saved(o, TS_FILE_NPY), load_and_free);
    ts_object_free(o);
    ts_object_free(t);
}

/* Nothing in common with any format but the first bytes. */
static void fuzz_noise(void **state)
{
    bytes a = {0}, b = {0};
    test_random r = {1};

    (void)state;
    ADD(&a, LEGACY_MAGIC);
    ADD(&b, "PK\3\4\x93NUMPY{\"");
    for (int i = 0; i < 300; i++) {
        add_number(&a, test_next(&r), 1);
        add_number(&b, test_next(&r), 1);
    }
    fuzz_two("noise", a, b, load_and_free);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fuzz_pickle), cmocka_unit_test(fuzz_zip),
        cmocka_unit_test(fuzz_legacy), cmocka_unit_test(fuzz_safetensors),
        cmocka_unit_test(fuzz_npy),    cmocka_unit_test(fuzz_noise),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
