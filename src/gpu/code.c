/* code.c - all that a GPU needs to run a program as one run of bytes, and back.
 *
 * Numbers are eight bytes, little endian; text and data are their length and their bytes. The
 * executable keeps a checksum of it all, so what is checked here is only that nothing is read past
 * the end, should a file of another version come by.
 */
#include "gpu/gpu.h"

static const char magic[] = "tessera gpu 2";

/* --- writing --- */

static void put(ts_text *t, uint64_t x)
{
    char b[8];

    for (int i = 0; i < 8; i++)
        b[i] = (char)(x >> 8 * i);
    ts_text_add(t, b, sizeof(b));
}

static void put_bytes(ts_text *t, const void *p, size_t n)
{
    put(t, n);
    if (n)
        ts_text_add(t, p, n);
}

static void put_string(ts_text *t, const char *s)
{
    put(t, s != NULL);
    if (s)
        put_bytes(t, s, strlen(s));
}

static void put_at(ts_text *t, const ts_gpu_at *a)
{
    put(t, a->offset);
    put(t, a->stride);
    put(t, (uint64_t)a->how);
    put(t, (uint64_t)a->depth);
    put(t, a->bytes);
}

static void put_row(ts_text *t, const ts_gpu_row *r)
{
    put(t, (uint64_t)r->kind);
    put(t, (uint64_t)r->function);
    put(t, (uint64_t)r->groups);
    put(t, (uint64_t)r->threads);
    put(t, (uint64_t)r->shared);
    put(t, r->early);
    put(t, (uint64_t)r->phase);
    put_string(t, r->name);
    put(t, (uint64_t)r->nin);
    put(t, (uint64_t)r->nargs);
    for (int i = 0; i < r->nargs; i++)
        put_at(t, &r->args[i]);
    put(t, (uint64_t)(int64_t)r->id);
    put_string(t, r->checks);
    put(t, r->tap);
    put(t, r->bytes);
    put_at(t, &r->there);
}

void ts_gpu_pack(const ts_gpu_code *c, ts_text *out)
{
    put_bytes(out, magic, sizeof(magic));
    put(out, (uint64_t)c->nrows);
    for (int i = 0; i < c->nrows; i++)
        put_row(out, &c->rows[i]);
    put_row(out, &c->give);
    put_row(out, &c->tick);
    put_row(out, &c->both);
    put(out, (uint64_t)c->nfunctions);
    put(out, (uint64_t)c->chunk);
    put(out, (uint64_t)c->ninputs);
    for (int i = 0; i < c->ninputs; i++)
        put(out, c->inputs[i]);
    put(out, (uint64_t)c->noutputs);
    for (int i = 0; i < c->noutputs; i++)
        put(out, c->outputs[i]);
    put(out, c->base);
    put(out, c->constants);
    put_bytes(out, c->constant_data, c->nconstants);
    put_bytes(out, c->binary, c->nbinary);
}

/* --- reading --- */

typedef struct reader {
    ts_arena *a;
    const unsigned char *p;
    size_t left;
    bool bad;
} reader;

static uint64_t get(reader *r)
{
    uint64_t x = 0;

    if (r->left < 8) {
        r->bad = true;
        return 0;
    }
    for (int i = 0; i < 8; i++)
        x |= (uint64_t)r->p[i] << 8 * i;
    r->p += 8;
    r->left -= 8;
    return x;
}

/* With a NUL behind it. */
static char *get_bytes(reader *r, size_t *n)
{
    uint64_t len = get(r);
    char *s;

    if (r->bad || len > r->left) {
        r->bad = true;
        len = 0;
    }
    s = ts_arena_alloc(r->a, len + 1);
    memcpy(s, r->p, len);
    r->p += len;
    r->left -= len;
    if (n)
        *n = len;
    return s;
}

static const char *get_string(reader *r)
{
    return get(r) ? get_bytes(r, NULL) : NULL;
}

/* How many of something follow, each of at least eight bytes. */
static int get_count(reader *r)
{
    uint64_t n = get(r);

    if (n > r->left / 8) {
        r->bad = true;
        return 0;
    }
    return (int)n;
}

static ts_gpu_at get_at(reader *r)
{
    ts_gpu_at a = {.offset = get(r)};

    a.stride = get(r);
    a.how = (ts_gpu_how)get(r);
    a.depth = (int)get(r);
    a.bytes = get(r);
    return a;
}

static ts_gpu_row get_row(reader *r)
{
    ts_gpu_row x = {.kind = (ts_gpu_kind)get(r)};

    x.function = (int)get(r);
    x.groups = (int64_t)get(r);
    x.threads = (int)get(r);
    x.shared = (int)get(r);
    x.early = get(r) != 0;
    x.phase = (int)get(r);
    x.name = get_string(r);
    x.nin = (int)get(r);
    x.nargs = get_count(r);
    x.args = TS_NEWS(r->a, ts_gpu_at, x.nargs);
    for (int i = 0; i < x.nargs; i++)
        x.args[i] = get_at(r);
    x.id = (int)(int64_t)get(r);
    x.checks = get_string(r);
    x.tap = get(r) != 0;
    x.bytes = get(r);
    x.there = get_at(r);
    return x;
}

static size_t *get_places(reader *r, int *n)
{
    size_t *x;

    *n = get_count(r);
    x = TS_NEWS(r->a, size_t, *n);
    for (int i = 0; i < *n; i++)
        x[i] = get(r);
    return x;
}

static void read_code(reader *r, ts_gpu_code *c)
{
    c->nrows = get_count(r);
    c->rows = TS_NEWS(r->a, ts_gpu_row, c->nrows);
    for (int i = 0; i < c->nrows && !r->bad; i++)
        c->rows[i] = get_row(r);
    c->give = get_row(r);
    c->tick = get_row(r);
    c->both = get_row(r);
    c->nfunctions = (int)get(r);
    c->chunk = (int)get(r);
    c->inputs = get_places(r, &c->ninputs);
    c->outputs = get_places(r, &c->noutputs);
    c->base = get(r);
    c->constants = get(r);
    c->constant_data = get_bytes(r, &c->nconstants);
    c->binary = get_bytes(r, &c->nbinary);
}

ts_status ts_gpu_unpack(const void *bytes, size_t n, ts_gpu_code **out)
{
    reader r = {.a = ts_arena_new(), .p = bytes, .left = n};
    ts_gpu_code *c = TS_NEW(r.a, ts_gpu_code);
    size_t len;
    const char *first = get_bytes(&r, &len);

    c->arena = r.a;
    r.bad = r.bad || len != sizeof(magic) || memcmp(first, magic, len);
    if (!r.bad)
        read_code(&r, c);
    if (r.bad || r.left) {
        ts_gpu_code_free(c);
        return ts_fail(TS_ERR_CORRUPT, "the compiled step is not one for a GPU of this version");
    }
    *out = c;
    return TS_OK;
}

void ts_gpu_code_free(ts_gpu_code *c)
{
    if (c)
        ts_arena_free(c->arena);
}
