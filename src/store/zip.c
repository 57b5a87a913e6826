/* zip.c - zip archives: read with libzip, written here.
 *
 * libzip reads through our ts_input, so memory and files take the same path and tests can make each
 * read fail. Its own checks (bounds, inflating, CRC) are kept; ours are about size: entries may not
 * say that they are larger than they can be, nor lie over each other, which would make a small file
 * unfold into a large one.
 *
 * It does not write for us: its output is a file or buffer of its own, not our temporary file with
 * its flush and rename, and it cannot start an entry's data at a multiple of 64, which lets others
 * map a tensor. What we write is the simplest archive there is: stored entries, zip64 always, so
 * that no size is a special case.
 */
#include "store/store.h"
#include <zip.h>
#include <zlib.h>

struct ts_zip {
    const ts_input *in;
    uint64_t at;      /* where libzip reads */
    uint64_t left;    /* bytes that entries not read yet can have */
    uint64_t room;    /* bytes that may come out of them          */
    ts_status failed; /* of a read that libzip asked for */
    zip_error_t error;
    zip_t *zip;
};

/* --- reading ---------------------------------------------------------------------------------- */

static zip_int64_t fail_source(ts_zip *z)
{
    zip_error_set(&z->error, ZIP_ER_READ, 0);
    return -1;
}

static zip_int64_t source_read(ts_zip *z, void *data, zip_uint64_t len)
{
    uint64_t n = TS_MIN(len, z->in->size - z->at);

    z->failed = ts_input_read(z->in, z->at, data, n);
    if (z->failed)
        return fail_source(z);
    z->at += n;
    return (zip_int64_t)n;
}

static zip_int64_t source_seek(ts_zip *z, void *data, zip_uint64_t len)
{
    zip_int64_t to = zip_source_seek_compute_offset(z->at, z->in->size, data, len, &z->error);

    if (to < 0)
        return -1;
    z->at = (uint64_t)to;
    return 0;
}

static zip_int64_t source_stat(const ts_zip *z, zip_stat_t *st)
{
    zip_stat_init(st);
    st->valid = ZIP_STAT_SIZE;
    st->size = z->in->size;
    return sizeof(*st);
}

static zip_int64_t source(void *ctx, void *data, zip_uint64_t len, zip_source_cmd_t cmd)
{
    ts_zip *z = ctx;

    switch (cmd) {
    case ZIP_SOURCE_OPEN:
        z->at = 0;
        return 0;
    case ZIP_SOURCE_READ:
        return source_read(z, data, len);
    case ZIP_SOURCE_SEEK:
        return source_seek(z, data, len);
    case ZIP_SOURCE_TELL:
        return (zip_int64_t)z->at;
    case ZIP_SOURCE_STAT:
        return source_stat(z, data);
    case ZIP_SOURCE_ERROR:
        return zip_error_to_data(&z->error, data, len);
    case ZIP_SOURCE_CLOSE:
    case ZIP_SOURCE_FREE:
        return 0;
    case ZIP_SOURCE_SUPPORTS:
        return zip_source_make_command_bitmap(
            ZIP_SOURCE_OPEN, ZIP_SOURCE_READ, ZIP_SOURCE_CLOSE, ZIP_SOURCE_STAT, ZIP_SOURCE_ERROR,
            ZIP_SOURCE_FREE, ZIP_SOURCE_SEEK, ZIP_SOURCE_TELL, ZIP_SOURCE_SUPPORTS, -1);
    default:
        zip_error_set(&z->error, ZIP_ER_OPNOTSUPP, 0);
        return -1;
    }
}

static ts_status broken(ts_zip *z, zip_error_t *e)
{
    if (z->failed)
        return z->failed;
    return ts_fail(TS_ERR_CORRUPT, "a damaged zip archive: %s", zip_error_strerror(e));
}

static ts_status open_zip(ts_zip *z)
{
    zip_error_t e;
    zip_source_t *src;
    ts_status s = TS_OK;

    zip_error_init(&e);
    src = zip_source_function_create(source, z, &e);
    z->zip = src ? zip_open_from_source(src, ZIP_RDONLY, &e) : NULL;
    if (!z->zip) {
        s = broken(z, &e);
        zip_source_free(src);
    }
    zip_error_fini(&e);
    return s;
}

ts_status ts_zip_open(const ts_input *in, ts_zip **out)
{
    void *p;
    ts_status s;

    *out = NULL;
    TS_TRY(ts_alloc(sizeof(ts_zip), "a zip archive", &p));
    *out = p;
    **out = (ts_zip){.in = in, .left = in->size, .room = ts_input_memory(in)};
    zip_error_init(&(*out)->error);
    s = open_zip(*out);
    if (s) {
        ts_zip_close(*out);
        *out = NULL;
    }
    return s;
}

void ts_zip_close(ts_zip *z)
{
    if (z->zip)
        zip_discard(z->zip);
    zip_error_fini(&z->error);
    free(z);
}

int64_t ts_zip_count(const ts_zip *z)
{
    return zip_get_num_entries(z->zip, 0);
}

const char *ts_zip_name(const ts_zip *z, int64_t i)
{
    const char *name = zip_get_name(z->zip, (zip_uint64_t)i, ZIP_FL_ENC_RAW);

    return name ? name : "";
}

int64_t ts_zip_find(const ts_zip *z, const char *name)
{
    return zip_name_locate(z->zip, name, ZIP_FL_ENC_RAW);
}

static ts_status check_entry(ts_zip *z, const zip_stat_t *st)
{
    enum { DEFLATE_BEST = 1032 }; /* no deflated byte becomes more bytes than that */
    bool stored = st->comp_method == ZIP_CM_STORE;

    if (st->encryption_method != ZIP_EM_NONE || (!stored && st->comp_method != ZIP_CM_DEFLATE))
        return ts_fail(TS_ERR_UNSUPPORTED, "%.100s in the archive is neither stored nor deflated",
                       st->name);
    if (st->comp_size > z->left || (stored && st->size != st->comp_size) ||
        st->size / DEFLATE_BEST > st->comp_size)
        return ts_fail(TS_ERR_CORRUPT,
                       "%.100s in the archive says it has %lu bytes, which it cannot", st->name,
                       (unsigned long)st->size);
    z->left -= st->comp_size;
    return TS_OK;
}

/* A few bytes can unfold to a thousand times as many. */
static ts_status check_room(ts_zip *z, const zip_stat_t *st)
{
    if (st->size <= z->room) {
        z->room -= st->size;
        return TS_OK;
    }
    ts_fail(TS_ERR_MEMORY,
            "%.100s in the archive unfolds to %lu bytes; the %lu bytes of the file may take %lu",
            st->name, (unsigned long)st->size, (unsigned long)z->in->size,
            (unsigned long)ts_input_memory(z->in));
    ts_error_hint("set TESSERA_LOAD_MEMORY to the bytes it may take, if you trust it");
    return TS_ERR_MEMORY;
}

/* All of it, and the end: only there the CRC is compared. */
static ts_status read_all(ts_zip *z, zip_file_t *f, ts_blob *b)
{
    uint8_t more;
    size_t n = 0;
    zip_int64_t got = 1;

    while (n < b->bytes && got > 0) { /* libzip counts some things in 32 bits */
        got = zip_fread(f, b->data + n, TS_MIN(b->bytes - n, (size_t)1 << 30));
        n += got > 0 ? (size_t)got : 0;
    }
    if (n == b->bytes)
        got = zip_fread(f, &more, 1);
    if (got < 0)
        return broken(z, zip_file_get_error(f));
    if (n < b->bytes || got)
        return ts_fail(TS_ERR_CORRUPT, "an entry of the archive has not the %zu bytes it should",
                       b->bytes);
    return TS_OK;
}

static ts_status find_entry(ts_zip *z, int64_t i, zip_stat_t *st)
{
    zip_stat_init(st);
    if (zip_stat_index(z->zip, (zip_uint64_t)i, ZIP_FL_ENC_RAW, st))
        return broken(z, zip_get_error(z->zip));
    return check_entry(z, st);
}

bool ts_zip_shapes(const ts_zip *z)
{
    return z->in->shapes;
}

ts_status ts_zip_blank(ts_zip *z, int64_t i, ts_blob **out)
{
    zip_stat_t st;

    TS_TRY(find_entry(z, i, &st));
    return ts_blob_blank(st.size, out);
}

static ts_status read_begin(ts_zip *z, zip_file_t *f, ts_blob *b)
{
    zip_int64_t got = zip_fread(f, b->data, b->bytes);

    if (got < 0)
        return broken(z, zip_file_get_error(f));
    b->bytes = (size_t)got;
    return TS_OK;
}

static ts_status read_entry(ts_zip *z, int64_t i, uint64_t bytes,
                            ts_status (*read)(ts_zip *z, zip_file_t *f, ts_blob *b), ts_blob **out)
{
    zip_file_t *f;
    ts_status s;

    TS_TRY(ts_blob_new(bytes, out));
    f = zip_fopen_index(z->zip, (zip_uint64_t)i, 0);
    s = f ? read(z, f, *out) : broken(z, zip_get_error(z->zip));
    if (f)
        zip_fclose(f);
    if (s) {
        ts_blob_free(*out);
        *out = NULL;
    }
    return s;
}

ts_status ts_zip_begin(ts_zip *z, int64_t i, size_t most, ts_blob **out)
{
    zip_stat_t st;

    *out = NULL;
    TS_TRY(find_entry(z, i, &st));
    return read_entry(z, i, TS_MIN(st.size, most), read_begin, out);
}

ts_status ts_zip_read(ts_zip *z, int64_t i, ts_blob **out)
{
    zip_stat_t st;

    *out = NULL;
    TS_TRY(find_entry(z, i, &st));
    TS_TRY(check_room(z, &st));
    return read_entry(z, i, st.size, read_all, out);
}

/* --- writing ---------------------------------------------------------------------------------- */

enum {
    ALIGN = 64,
    VERSION = 45,        /* 4.5: zip64 */
    UTF8 = 0x800,        /* the names are */
    DATE = 1 << 5 | 1,   /* 1980-01-01, always: the same tree gives the same file */
    LOCAL = 30,          /* bytes of an entry's header, without its name */
    LOCAL_ZIP64 = 20,    /* of the field that holds its sizes */
    CENTRAL_ZIP64 = 28,  /* the same, and its place */
    PADDING_ID = 0x4246, /* "FB", as PyTorch writes it */
};

static void put(ts_text *t, int bytes, uint64_t x)
{
    char b[8];

    for (int i = 0; i < bytes; i++)
        b[i] = (char)(x >> 8 * i);
    ts_text_add(t, b, (size_t)bytes);
}

/* What the entry's own header and the directory have in common. */
static void put_facts(ts_text *t, uint32_t crc, size_t name_len, uint64_t extra)
{
    put(t, 2, VERSION);
    put(t, 2, UTF8);
    put(t, 2, 0); /* stored */
    put(t, 2, 0); /* time */
    put(t, 2, DATE);
    put(t, 4, crc);
    put(t, 4, UINT32_MAX); /* both sizes are in the zip64 field */
    put(t, 4, UINT32_MAX);
    put(t, 2, name_len);
    put(t, 2, extra);
}

static void put_header(ts_text *t, const char *name, uint32_t crc, uint64_t size, uint64_t at)
{
    uint64_t n = strlen(name), data = at + LOCAL + n + LOCAL_ZIP64 + 4;
    uint64_t padding = TS_ROUND_UP(data, ALIGN) - data;

    put(t, 4, 0x04034b50);
    put_facts(t, crc, n, LOCAL_ZIP64 + 4 + padding);
    ts_text_add(t, name, n);
    put(t, 2, 1);
    put(t, 2, LOCAL_ZIP64 - 4);
    put(t, 8, size);
    put(t, 8, size);
    put(t, 2, PADDING_ID);
    put(t, 2, padding);
    for (uint64_t i = 0; i < padding; i++)
        put(t, 1, 0);
}

static void put_directory(ts_text *t, const char *name, uint32_t crc, uint64_t size, uint64_t at)
{
    put(t, 4, 0x02014b50);
    put(t, 2, VERSION);
    put_facts(t, crc, strlen(name), CENTRAL_ZIP64);
    put(t, 2, 0); /* comment */
    put(t, 2, 0); /* disk */
    put(t, 2, 0); /* attributes */
    put(t, 4, 0);
    put(t, 4, UINT32_MAX);
    ts_text_add(t, name, strlen(name));
    put(t, 2, 1);
    put(t, 2, CENTRAL_ZIP64 - 4);
    put(t, 8, size);
    put(t, 8, size);
    put(t, 8, at);
}

static ts_status write_text(ts_zip_out *z, ts_text *t)
{
    ts_status s = ts_file_put(z->file, t->s, t->len);

    z->at += t->len;
    ts_text_free(t);
    return s;
}

ts_status ts_zip_put(ts_zip_out *z, const char *name, const void *head, size_t head_len,
                     const void *data, size_t len)
{
    uint32_t crc = (uint32_t)crc32_z(crc32_z(0, head, head_len), data, len);
    uint64_t at = z->at;
    ts_text t = {0};

    if (strlen(name) > UINT16_MAX)
        return ts_fail(TS_ERR_ARG, "a name of %zu bytes; archives have up to %d", strlen(name),
                       UINT16_MAX);
    put_header(&t, name, crc, head_len + len, at);
    TS_TRY(write_text(z, &t));
    TS_TRY(ts_file_put(z->file, head, head_len));
    TS_TRY(ts_file_put(z->file, data, len));
    z->at += head_len + len;
    z->n++;
    put_directory(&z->directory, name, crc, head_len + len, at);
    return TS_OK;
}

/* Where the directory is; an old-style end that says "look there" follows. */
static void put_end64(ts_text *t, uint64_t n, uint64_t at, uint64_t size)
{
    put(t, 4, 0x06064b50);
    put(t, 8, 44); /* bytes that follow of this record */
    put(t, 2, VERSION);
    put(t, 2, VERSION);
    put(t, 4, 0); /* disks */
    put(t, 4, 0);
    put(t, 8, n);
    put(t, 8, n);
    put(t, 8, size);
    put(t, 8, at);
    put(t, 4, 0x07064b50); /* and where this record is */
    put(t, 4, 0);
    put(t, 8, at + size);
    put(t, 4, 1);
}

ts_status ts_zip_end(ts_zip_out *z, ts_status so_far)
{
    ts_text *t = &z->directory;
    uint64_t all = z->n ? UINT64_MAX : 0; /* NumPy knows an empty archive by its plain end */

    if (so_far) {
        ts_text_free(t);
        return so_far;
    }
    if (z->n)
        put_end64(t, z->n, z->at, t->len);
    put(t, 4, 0x06054b50);
    put(t, 4, 0); /* disks */
    put(t, 2, all);
    put(t, 2, all);
    put(t, 4, all);
    put(t, 4, all);
    put(t, 2, 0); /* comment */
    return write_text(z, t);
}
