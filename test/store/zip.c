/* zip.c - archives as others write them, deflated too, and archives made to hurt. */
#include "files.h"
#include <zlib.h>

enum { LOCAL = 30, CENTRAL = 46 };

typedef struct member {
    const char *name;
    bytes data;    /* as it is in the archive */
    uint64_t size; /* as it says it is        */
    uint32_t crc;
    int method; /* 0 stored, 8 deflated    */
    uint64_t at;
    bool again; /* no data of its own: the bytes of the one before */
} member;

static void add_facts(bytes *b, const member *m)
{
    add_number(b, 20, 2);
    add_number(b, 0, 2);
    add_number(b, (uint64_t)m->method, 2);
    add_number(b, 0x210000, 4);
    add_number(b, m->crc, 4);
    add_number(b, m->data.len, 4);
    add_number(b, m->size, 4);
    add_number(b, strlen(m->name), 2);
    add_number(b, 0, 2);
}

static bytes archive(member *m, int n)
{
    bytes b = {0};
    size_t directory;

    for (int i = 0; i < n; i++) {
        if (m[i].again) {
            m[i].at = m[i - 1].at;
            continue;
        }
        m[i].at = b.len;
        ADD(&b, "PK\3\4");
        add_facts(&b, &m[i]);
        add(&b, m[i].name, strlen(m[i].name));
        add(&b, m[i].data.data, m[i].data.len);
    }
    directory = b.len;
    for (int i = 0; i < n; i++) {
        ADD(&b, "PK\1\2\x14\0");
        add_facts(&b, &m[i]);
        add_number(&b, 0, 2 + 2 + 2);
        add_number(&b, 0, 4);
        add_number(&b, m[i].at, 4);
        add(&b, m[i].name, strlen(m[i].name));
    }
    n = TS_MIN(n, 65535);
    ADD(&b, "PK\5\6\0\0\0\0");
    add_number(&b, (uint64_t)n, 2);
    add_number(&b, (uint64_t)n, 2);
    add_number(&b, b.len - 12 - directory, 4);
    add_number(&b, directory, 4);
    add_number(&b, 0, 2);
    return b;
}

static member stored(const char *name, bytes data)
{
    return (member){.name = name,
                    .data = data,
                    .size = data.len,
                    .crc = (uint32_t)crc32(0, data.data, (uInt)data.len)};
}

static member deflated(const char *name, bytes data)
{
    member m = stored(name, data);
    z_stream z = {.next_in = data.data, .avail_in = (uInt)data.len};
    bytes to = {.data = malloc(data.len + 100), .len = data.len + 100};

    assert_int_equal(deflateInit2(&z, 9, Z_DEFLATED, -15, 9, Z_DEFAULT_STRATEGY), Z_OK);
    z.next_out = to.data;
    z.avail_out = (uInt)to.len;
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    to.len = z.total_out;
    deflateEnd(&z);
    m.data = to;
    m.method = 8;
    return m;
}

static ts_status load(bytes b, ts_object **o)
{
    ts_status s = ts_object_load_memory(b.data, b.len, o);

    free(b.data);
    return s;
}

static bytes npy(void)
{
    ts_object *o = TENSOR(TS_I32, 1000);
    bytes b = saved(o, TS_FILE_NPY);

    ts_object_free(o);
    return b;
}

static void deflated_entries(void **state)
{
    bytes array = npy();
    member m[] = {deflated("a.npy", array), stored("b/c.npy", array)};
    ts_object *o;

    (void)state;
    assert_true(m[0].data.len < array.len);
    assert_ok(load(archive(m, 2), &o));
    assert_same(ts_object_get(o, "a"), ts_object_get(o, "b/c"));
    assert_int_equal(ts_object_array(ts_object_at(o, 0))->dims[0], 1000);
    ts_object_free(o);
    free(m[0].data.data);
    free(array.data);
}

static void empty_archive(void **state)
{
    ts_object *o;

    (void)state;
    assert_ok(load(archive(NULL, 0), &o));
    assert_int_equal(ts_object_kind(o), TS_KIND_DICT);
    assert_int_equal(ts_object_size(o), 0);
    ts_object_free(o);
}

static void other_archives(void **state)
{
    member m[] = {stored("mimetype", (bytes){.data = (uint8_t *)"x", .len = 1})};
    ts_object *o;

    (void)state;
    assert_fails(load(archive(m, 1), &o), TS_ERR_UNSUPPORTED,
                 "a zip archive with mimetype in it: no checkpoint");
    assert_null(o);
}

static void wrong_crc(void **state)
{
    bytes array = npy();
    member m = stored("a.npy", array);
    ts_object *o;

    (void)state;
    m.crc ^= 1;
    assert_fails(load(archive(&m, 1), &o), TS_ERR_CORRUPT, "a damaged zip archive: CRC error");
    assert_null(o);
    free(array.data);
}

static void impossible_sizes(void **state)
{
    bytes array = npy();
    member m = stored("a.npy", array), d = deflated("a.npy", array);
    ts_object *o;

    (void)state;
    m.size = 1 << 30;
    assert_fails(load(archive(&m, 1), &o), TS_ERR_CORRUPT,
                 "a.npy in the archive says it has 1073741824 bytes, which it cannot");
    d.size = 4000000000;
    assert_fails(load(archive(&d, 1), &o), TS_ERR_CORRUPT,
                 "a.npy in the archive says it has 4000000000 bytes, which it cannot");
    d.size = array.len + 1;
    assert_int_equal(load(archive(&d, 1), &o), TS_ERR_CORRUPT);
    d.size = array.len - 1;
    assert_int_equal(load(archive(&d, 1), &o), TS_ERR_CORRUPT);
    d.size = array.len;
    d.method = 12; /* bzip2 */
    assert_fails(load(archive(&d, 1), &o), TS_ERR_UNSUPPORTED,
                 "a.npy in the archive is neither stored nor deflated");
    free(d.data.data);
    free(array.data);
}

/* Many entries with the same bytes: a file of 4 kB that would unfold into any size. */
static void entries_over_each_other(void **state)
{
    enum { N = 50 };
    bytes array = npy();
    member m[N];
    char names[N][16];
    ts_object *o;

    (void)state;
    for (int i = 0; i < N; i++) {
        snprintf(names[i], sizeof(names[i]), "%02d.npy", i);
        m[i] = stored(names[i], array);
        m[i].again = i > 0;
    }
    assert_int_equal(load(archive(m, N), &o), TS_ERR_CORRUPT);
    assert_null(o);
    free(array.data);
}

static void two_of_one_name(void **state)
{
    bytes array = npy();
    member m[] = {stored("a.npy", array), stored("a.npy", array)};
    ts_object *o;

    (void)state;
    assert_ok(load(archive(m, 2), &o));
    assert_int_equal(ts_object_size(o), 1);
    ts_object_free(o);
    free(array.data);
}

/* --- .pth with members of our choice ---------------------------------------------------------- */

static ts_status load_pth(const char *extra, const char *content, ts_object **o)
{
    bytes pickle = {.data = (uint8_t *)"\x80\x02K\x07.", .len = 5};
    member m[] = {stored("net/data.pkl", pickle),
                  stored("net/version", (bytes){.data = (uint8_t *)"3\n", .len = 2}),
                  stored(extra, (bytes){.data = (uint8_t *)content, .len = strlen(content)})};

    return load(archive(m, 3), o);
}

static void what_newer_versions_add(void **state)
{
    static const char *const extras[] = {"net/.data/serialization_id", "net/.format_version",
                                         "net/.storage_alignment", "net/byteorder"};
    ts_object *o;

    (void)state;
    for (int i = 0; i < TS_COUNT(extras); i++) {
        assert_ok(load_pth(extras[i], "little", &o));
        assert_int_equal(ts_object_int(o, 0), 7);
        ts_object_free(o);
    }
    assert_fails(load_pth("net/byteorder", "big", &o), TS_ERR_UNSUPPORTED,
                 "a checkpoint of a big-endian machine");
}

static void missing_and_short_storages(void **state)
{
    ts_object *t = TENSOR(TS_F32, 5), *o;
    bytes pickle = pickled(t), data = {.data = (uint8_t *)"0123456789012345678901234", .len = 20};
    member m[] = {deflated("x/data.pkl", pickle), stored("x/data/0", data)};

    (void)state;
    assert_ok(load(archive(m, 2), &o));
    assert_memory_equal(ts_object_array(o)->data, data.data, 20);
    ts_object_free(o);
    assert_fails(load(archive(m, 1), &o), TS_ERR_CORRUPT, "there is no x/data/0 in the checkpoint");
    m[1] = stored("x/data/0", (bytes){.data = data.data, .len = 16});
    assert_fails(load(archive(m, 2), &o), TS_ERR_CORRUPT,
                 "x/data/0 has 16 bytes and should have 20");
    ts_object_free(t);
    free(m[0].data.data);
    free(pickle.data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(deflated_entries),
        cmocka_unit_test(empty_archive),
        cmocka_unit_test(other_archives),
        cmocka_unit_test(wrong_crc),
        cmocka_unit_test(impossible_sizes),
        cmocka_unit_test(entries_over_each_other),
        cmocka_unit_test(two_of_one_name),
        cmocka_unit_test(what_newer_versions_add),
        cmocka_unit_test(missing_and_short_storages),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
