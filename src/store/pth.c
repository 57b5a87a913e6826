/* pth.c - PyTorch's checkpoints, read.
 *
 *   since 1.6, a zip:  NAME/data.pkl      the tree, as a pickle
 *                      NAME/data/KEY      the bytes of a storage
 *                      NAME/version, NAME/byteorder, ...
 *                      NAME/extra/KEY     a text of the metadata; torch.load leaves it alone
 *   before, a file:    pickles of a magic number, a version, facts of the machine, the tree, the
 *                      storages' keys; then, for each key, a count of elements and their bytes
 *
 * pth_write.c writes the first.
 */
#include "store/store.h"

/* --- zip -------------------------------------------------------------------------------------- */

typedef struct archive {
    ts_zip *zip;
    const char *name; /* of the pickle; the folder is what comes before "data.pkl" */
    int folder;       /* its length */
} archive;

static int64_t find(const archive *a, const char *file, char *path, size_t size)
{
    snprintf(path, size, "%.*s%s", a->folder, a->name, file);
    return ts_zip_find(a->zip, path);
}

static ts_status read_storage(const archive *a, ts_storage *s)
{
    char file[128], path[1024];
    int64_t i;

    snprintf(file, sizeof(file), "data/%.100s", ts_object_text(s->key));
    i = find(a, file, path, sizeof(path));
    if (i < 0)
        return ts_fail(TS_ERR_CORRUPT, "there is no %s in the checkpoint", path);
    TS_TRY((ts_zip_shapes(a->zip) ? ts_zip_blank : ts_zip_read)(a->zip, i, &s->data));
    if (s->data->bytes != s->bytes)
        return ts_fail(TS_ERR_CORRUPT, "%s has %zu bytes and should have %lu", path, s->data->bytes,
                       (unsigned long)s->bytes);
    return TS_OK;
}

static ts_status read_storages(void *ctx, ts_pickle *p)
{
    for (size_t i = 0; i < p->nstorages; i++)
        TS_TRY(read_storage(ctx, &p->storages[i]));
    return TS_OK;
}

static ts_status big_endian(void)
{
    return ts_fail(TS_ERR_UNSUPPORTED, "a checkpoint of a big-endian machine");
}

/* "little" or, on few machines, "big"; not there before PyTorch 2.1 */
static ts_status check_order(const archive *a)
{
    char path[1024];
    int64_t i = find(a, "byteorder", path, sizeof(path));
    ts_blob *b;
    bool big;

    if (i < 0)
        return TS_OK;
    TS_TRY(ts_zip_read(a->zip, i, &b));
    big = b->bytes == 3 && !memcmp(b->data, "big", 3);
    ts_blob_free(b);
    return big ? big_endian() : TS_OK;
}

static ts_status read_extra(const archive *a, int64_t i, const char *key, ts_object *metadata)
{
    ts_object *text;
    ts_blob *b;
    ts_status s;

    TS_TRY(ts_zip_read(a->zip, i, &b));
    s = ts_object_make_text(TS_KIND_TEXT, (const char *)b->data, b->bytes, &text);
    ts_blob_free(b);
    return s ? s : ts_object_set(metadata, key, text);
}

static ts_status read_extras(const archive *a, ts_object *metadata)
{
    char folder[1024];
    size_t n = (size_t)snprintf(folder, sizeof(folder), "%.*sextra/", a->folder, a->name);

    for (int64_t i = 0; i < ts_zip_count(a->zip); i++) {
        const char *name = ts_zip_name(a->zip, i);
        if (!strncmp(name, folder, n) && name[n])
            TS_TRY(read_extra(a, i, name + n, metadata));
    }
    return ts_object_survey(metadata);
}

/* The metadata of a dict under its key, unless the dict has one of its own. */
static ts_status add_metadata(const archive *a, ts_object *o)
{
    ts_object *metadata;
    ts_status s;

    if (o->kind != TS_KIND_DICT || ts_object_get(o, TS_METADATA))
        return TS_OK;
    TS_TRY(ts_object_make(TS_KIND_DICT, &metadata));
    s = read_extras(a, metadata);
    if (!s && ts_object_size(metadata))
        return ts_object_set(o, TS_METADATA, metadata);
    ts_object_free(metadata);
    return s;
}

ts_status ts_pth_read(ts_zip *z, int64_t pickle, ts_object **out)
{
    archive a = {z, ts_zip_name(z, pickle), 0};
    ts_input in = {0};
    ts_cursor c = {.in = &in};
    ts_blob *b;
    ts_status s;

    a.folder = (int)(strlen(a.name) - strlen("data.pkl"));
    TS_TRY(check_order(&a));
    TS_TRY(ts_zip_read(z, pickle, &b));
    in.mem = b->data;
    in.size = b->bytes;
    s = ts_pickle_load(&c, read_storages, &a, out);
    ts_blob_free(b);
    if (!s)
        s = add_metadata(&a, *out);
    if (s) {
        ts_object_free(*out);
        *out = NULL;
    }
    return s;
}

/* --- before 1.6 ------------------------------------------------------------------------------- */

/* A pickle of 0x1950a86a20f9469cfc6c, as every protocol from 2 on writes it but for its head. */
static const uint8_t magic[] = {0x8a, 10,   0x6c, 0xfc, 0x9c, 0x46, 0xf9,
                                0x20, 0x6a, 0xa8, 0x50, 0x19, '.'};

/* Where the magic number's pickle ends, or 0. From protocol 4 on there is a frame around it. */
static uint64_t magic_end(const ts_head *h)
{
    size_t at = h->data[2] == 0x95 ? 11 : 2;

    return h->data[0] == 0x80 && !memcmp(h->data + at, magic, sizeof(magic)) ? at + sizeof(magic)
                                                                             : 0;
}

bool ts_legacy_is(const ts_head *h)
{
    return magic_end(h) != 0;
}

static ts_status read_plain(ts_cursor *c, ts_object **out)
{
    return ts_pickle_load(c, NULL, NULL, out);
}

static ts_status check_version(ts_cursor *c)
{
    ts_object *o;
    int64_t version;

    TS_TRY(read_plain(c, &o));
    version = ts_object_int(o, -1);
    ts_object_free(o);
    if (version != 1001)
        return ts_fail(TS_ERR_UNSUPPORTED, "version %ld of PyTorch's old file format; 1001 is read",
                       (long)version);
    return TS_OK;
}

static ts_status check_machine(ts_cursor *c)
{
    ts_object *o;
    bool little;

    TS_TRY(read_plain(c, &o));
    little = ts_object_int(ts_object_get(o, "little_endian"), 1);
    ts_object_free(o);
    return little ? TS_OK : big_endian();
}

static ts_status read_raw(ts_cursor *c, ts_pickle *p, const ts_object *key)
{
    const ts_object *known = ts_object_text(key) ? ts_object_get(p->keys, ts_object_text(key)) : 0;
    const uint8_t *b;
    ts_storage *s;

    if (!known || p->storages[known->i].data)
        return ts_fail(TS_ERR_CORRUPT, "a storage that no tensor uses, or one twice");
    s = &p->storages[known->i];
    TS_TRY(ts_cursor_take(c, 8, &b));
    if (ts_little(b, 8) != s->bytes / ts_dtype_size(s->dtype))
        return ts_fail(TS_ERR_CORRUPT, "storage %.60s has %lu elements and should have %lu",
                       ts_object_text(key), (unsigned long)ts_little(b, 8),
                       (unsigned long)(s->bytes / ts_dtype_size(s->dtype)));
    TS_TRY(ts_blob_read(c->in, c->at, s->bytes, &s->data));
    c->at += s->bytes;
    return TS_OK;
}

static ts_status read_listed(ts_cursor *c, ts_pickle *p, const ts_object *keys)
{
    for (int64_t i = 0; i < ts_object_size(keys); i++)
        TS_TRY(read_raw(c, p, ts_object_at(keys, i)));
    for (size_t i = 0; i < p->nstorages; i++)
        if (!p->storages[i].data)
            return ts_fail(TS_ERR_CORRUPT, "storage %.60s is not in the file",
                           ts_object_text(p->storages[i].key));
    return TS_OK;
}

static ts_status read_raws(void *ctx, ts_pickle *p)
{
    ts_cursor *c = ctx;
    ts_object *keys;
    ts_status s;

    TS_TRY(read_plain(c, &keys));
    s = read_listed(c, p, keys);
    ts_object_free(keys);
    return s;
}

static ts_status read_legacy(ts_cursor *c, ts_object **out)
{
    TS_TRY(check_version(c));
    TS_TRY(check_machine(c));
    return ts_pickle_load(c, read_raws, c, out);
}

ts_status ts_legacy_read(const ts_input *in, ts_object **out)
{
    ts_cursor c = {.in = in};
    ts_head h;
    ts_status s;

    TS_TRY(ts_head_read(in, &h));
    c.at = magic_end(&h);
    s = read_legacy(&c, out);
    ts_cursor_close(&c);
    return s;
}
