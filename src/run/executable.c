/* executable.c - an executable as one file, and back.
 *
 *      0  magic      "\x89TSE\r\n\x1a\n": not text, and shows when it was copied as text
 *      8  version    of this layout
 *     12  parts      how many
 *     16  table      offset, bytes and SHA-256 of each part
 *    208  checksum   SHA-256 of all above
 *    240  manifest   JSON: what a run needs to know (manifest.c)
 *         object     the shared object, or empty
 *         source     its C, or empty
 *         graph      the IR text, for the reference executor only
 *
 * Numbers are little endian. The parts follow each other without gaps up to the end of the file, so
 * every byte is under a checksum, and nothing is looked at before its checksum is right.
 */
#include "gpu/gpu.h"
#include "machine/machine.h"
#include "render/module.h"
#include "run/run.h"
#include <openssl/sha.h>

static const char magic[8] = "\x89TSE\r\n\x1a\n";
enum { MANIFEST, OBJECT, SOURCE, GRAPH, PARTS };
static const char *const part_names[PARTS] = {"manifest", "shared object", "C source", "graph"};
enum {
    VERSION = 2,
    TABLE = 16,
    ROW = 8 + 8 + SHA256_DIGEST_LENGTH,
    CHECKSUM = TABLE + PARTS * ROW,
    HEADER = CHECKSUM + SHA256_DIGEST_LENGTH,
};

typedef struct part {
    const char *data;
    size_t bytes;
} part;

ts_executable *ts_executable_new(void)
{
    ts_arena *a = ts_arena_new();
    ts_executable *x = TS_NEW(a, ts_executable);

    x->arena = a;
    x->version = TS_VERSION;
    atomic_init(&x->users, 1);
    return x;
}

static void finish(ts_slot *s, int replicas)
{
    int rows = s->read_all ? replicas : s->groups;

    s->whole = s->info;
    if (!s->grouped)
        return;
    s->whole.rank++;
    memmove(s->whole.dims + 1, s->info.dims, sizeof(*s->info.dims) * (size_t)s->info.rank);
    s->whole.dims[0] = rows;
    s->whole.bytes *= (size_t)rows;
}

void ts_executable_finish(ts_executable *x)
{
    for (int i = 0; i < x->ninputs; i++)
        finish(&x->inputs[i], x->replicas);
    for (int i = 0; i < x->noutputs; i++)
        finish(&x->outputs[i], x->replicas);
    for (int i = 0; i < x->nstates; i++)
        finish(&x->states[i], x->replicas);
}

ts_executable *ts_executable_share(const ts_executable *x)
{
    ts_executable *mine = (ts_executable *)x;

    atomic_fetch_add(&mine->users, 1);
    return mine;
}

void ts_executable_free(ts_executable *x)
{
    if (!x || atomic_fetch_sub(&x->users, 1) > 1)
        return;
    ts_gpu_stop(x);
    ts_library_close(x->library);
    ts_graph_free(x->graph);
    ts_arena_free(x->arena);
}

/* --- writing --- */

static void put(unsigned char *p, uint64_t x, int bytes)
{
    for (int i = 0; i < bytes; i++)
        p[i] = (unsigned char)(x >> 8 * i);
}

static uint64_t get(const unsigned char *p, int bytes)
{
    uint64_t x = 0;

    for (int i = 0; i < bytes; i++)
        x |= (uint64_t)p[i] << 8 * i;
    return x;
}

static void write_header(const part *parts, unsigned char *h)
{
    uint64_t offset = HEADER;

    memcpy(h, magic, sizeof(magic));
    put(h + 8, VERSION, 4);
    put(h + 12, PARTS, 4);
    for (int i = 0; i < PARTS; i++) {
        unsigned char *row = h + TABLE + i * ROW;
        put(row, offset, 8);
        put(row + 8, parts[i].bytes, 8);
        SHA256((const unsigned char *)parts[i].data, parts[i].bytes, row + 16);
        offset += parts[i].bytes;
    }
    SHA256(h, CHECKSUM, h + CHECKSUM);
}

static part text_part(const char *s)
{
    return (part){s ? s : "", s ? strlen(s) : 0};
}

ts_status ts_executable_pack(const ts_executable *x, ts_text *file)
{
    unsigned char header[HEADER];
    char *manifest;
    part parts[PARTS];

    TS_TRY(ts_manifest_write(x, &manifest));
    parts[MANIFEST] = text_part(manifest);
    parts[OBJECT] = x->object ? (part){x->object, x->object_bytes} : text_part("");
    parts[SOURCE] = text_part(x->source);
    parts[GRAPH] = text_part(x->ir);
    write_header(parts, header);
    ts_text_add(file, (char *)header, HEADER);
    for (int i = 0; i < PARTS; i++)
        ts_text_add(file, parts[i].data, parts[i].bytes);
    free(manifest);
    return TS_OK;
}

ts_status ts_executable_save(const ts_executable *x, const char *path)
{
    ts_text file = {0};
    ts_status s;

    if (!x || !path || !path[0])
        return ts_fail(TS_ERR_ARG, "saving an executable needs an executable and a path");
    s = ts_executable_pack(x, &file);
    if (!s)
        s = ts_file_write(path, file.s, file.len);
    ts_text_free(&file);
    if (s)
        ts_error_doing("saving the executable %s", path);
    return s;
}

/* --- reading --- */

static ts_status check_header(const char *path, const unsigned char *h, size_t len)
{
    unsigned char sum[SHA256_DIGEST_LENGTH];
    uint64_t version;

    if (len < sizeof(magic) || memcmp(h, magic, sizeof(magic)))
        return ts_fail(TS_ERR_CORRUPT, "%s is not a Tessera executable: its first bytes say so",
                       path);
    if (len < HEADER)
        return ts_fail(TS_ERR_CORRUPT, "%s is cut off in its header: %zu bytes of %d", path, len,
                       (int)HEADER);
    version = get(h + 8, 4);
    if (version != VERSION)
        return ts_fail(TS_ERR_CORRUPT, "%s has format version %u; this library reads version %d",
                       path, (unsigned)version, (int)VERSION);
    SHA256(h, CHECKSUM, sum);
    if (memcmp(sum, h + CHECKSUM, sizeof(sum)))
        return ts_fail(TS_ERR_CORRUPT, "%s: the checksum of the header (bytes 0 to %d) is wrong",
                       path, (int)HEADER - 1);
    if (get(h + 12, 4) != PARTS)
        return ts_fail(TS_ERR_CORRUPT, "%s has %u parts, not %d", path, (unsigned)get(h + 12, 4),
                       (int)PARTS);
    return TS_OK;
}

/* Row i of the table: its part must begin where the last one ended, and fit, and be whole. */
static ts_status check_part(const char *path, const char *file, size_t len, int i, uint64_t begin,
                            part *out)
{
    const unsigned char *row = (const unsigned char *)file + TABLE + i * ROW;
    uint64_t offset = get(row, 8), bytes = get(row + 8, 8);
    unsigned char sum[SHA256_DIGEST_LENGTH];

    if (offset != begin)
        return ts_fail(TS_ERR_CORRUPT, "%s: the %s begins at byte %llu, not %llu", path,
                       part_names[i], (unsigned long long)offset, (unsigned long long)begin);
    if (bytes > len - begin)
        return ts_fail(TS_ERR_CORRUPT,
                       "%s is cut off in its %s: the file has %zu bytes, the part ends at %llu",
                       path, part_names[i], len, (unsigned long long)(begin + bytes));
    SHA256((const unsigned char *)file + begin, bytes, sum);
    if (memcmp(sum, row + 16, sizeof(sum)))
        return ts_fail(TS_ERR_CORRUPT,
                       "%s: the checksum of the %s (%llu bytes at byte %llu) is wrong", path,
                       part_names[i], (unsigned long long)bytes, (unsigned long long)begin);
    *out = (part){file + begin, bytes};
    return TS_OK;
}

static ts_status check_parts(const char *path, const char *file, size_t len, part *parts)
{
    uint64_t begin = HEADER;

    TS_TRY(check_header(path, (const unsigned char *)file, len));
    for (int i = 0; i < PARTS; i++) {
        TS_TRY(check_part(path, file, len, i, begin, &parts[i]));
        begin += parts[i].bytes;
    }
    if (begin != len)
        return ts_fail(TS_ERR_CORRUPT, "%s has %llu bytes after its end at byte %llu", path,
                       (unsigned long long)(len - begin), (unsigned long long)begin);
    return TS_OK;
}

/* A part as text of its own, or NULL for none. */
static const char *copy_text(ts_arena *a, part p)
{
    char *s = p.bytes ? ts_arena_alloc(a, p.bytes + 1) : NULL;

    return s ? memcpy(s, p.data, p.bytes) : NULL;
}

static ts_status fill(const char *path, const part *parts, ts_executable *x)
{
    TS_TRY(ts_manifest_read(path, parts[MANIFEST].data, parts[MANIFEST].bytes, x));
    x->source = copy_text(x->arena, parts[SOURCE]);
    x->ir = copy_text(x->arena, parts[GRAPH]);
    if (parts[OBJECT].bytes) {
        x->object = ts_arena_copy(x->arena, parts[OBJECT].data, parts[OBJECT].bytes);
        x->object_bytes = parts[OBJECT].bytes;
    }
    if (x->stats.native ? !x->object : !x->ir)
        return ts_fail(TS_ERR_CORRUPT, "%s has no %s", path,
                       part_names[x->stats.native ? OBJECT : GRAPH]);
    return TS_OK;
}

ts_status ts_executable_unpack(const char *path, const char *file, size_t len, ts_executable **out)
{
    part parts[PARTS];
    ts_executable *x;
    ts_status s;

    TS_TRY(check_parts(path, file, len, parts));
    x = ts_executable_new();
    s = fill(path, parts, x);
    if (s) {
        ts_executable_free(x);
        return s;
    }
    *out = x;
    return TS_OK;
}

static ts_status start_module(ts_executable *x)
{
    const ts_module *m;

    TS_TRY(ts_library_open(x->object, x->object_bytes, &x->library));
    m = ts_library_symbol(x->library, "tessera_module");
    if (!m)
        return ts_fail(TS_ERR_CORRUPT, "the compiled step has no table of kernels");
    if (m->abi != TS_MODULE_ABI)
        return ts_fail(TS_ERR_CORRUPT, "the compiled step has interface %d; this library runs %d",
                       m->abi, (int)TS_MODULE_ABI);
    if (m->nkernels != x->stats.kernels)
        return ts_fail(TS_ERR_CORRUPT, "the compiled step has %d kernels, its manifest says %d",
                       m->nkernels, x->stats.kernels);
    x->module = m;
    return TS_OK;
}

/* The values that a role's slots stand for, in the graph just read. */
static ts_status bind(const char *role, ts_slot *s, int n, int found,
                      const ts_value *(*at)(const ts_graph *, int), const ts_graph *g)
{
    if (n != found)
        return ts_fail(TS_ERR_CORRUPT, "the graph has %d %ss, its manifest says %d", found, role,
                       n);
    for (int i = 0; i < n; i++) {
        const ts_value *v = at(g, i);
        ts_type t = ts_type_of(s[i].info.dtype, s[i].info.rank, s[i].info.dims);
        if (s[i].share && s[i].use == TS_USE_MOMENT)
            t = ts_type_of(s[i].info.dtype, 1, &s[i].share);
        if (!ts_type_same(&v->type, &t))
            return ts_fail(TS_ERR_CORRUPT,
                           "the graph's %s %s has another type than its manifest says", role,
                           s[i].info.name);
        s[i].value = v->id;
    }
    return TS_OK;
}

static const ts_value *input_at(const ts_graph *g, int i)
{
    return g->inputs[i];
}

static const ts_value *output_at(const ts_graph *g, int i)
{
    return g->outputs[i];
}

static const ts_value *state_at(const ts_graph *g, int i)
{
    return g->states[i].value;
}

static ts_status start_graph(ts_executable *x)
{
    int shares = 0; /* behind the states that the host sees */

    TS_TRY(ts_graph_parse(x->ir, &x->graph));
    TS_TRY(bind("input", x->inputs, x->ninputs, x->graph->ninputs, input_at, x->graph));
    TS_TRY(bind("output", x->outputs, x->noutputs, x->graph->noutputs, output_at, x->graph));
    for (int i = 0; i < x->graph->nstates; i++)
        shares += x->graph->states[i].use == TS_USE_SHARE;
    return bind("state", x->states, x->nstates, x->graph->nstates - shares, state_at, x->graph);
}

void ts_executable_profile(ts_executable *x, const ts_profile *p)
{
    x->profile = *p;
    x->profile.folder = ts_arena_strdup(x->arena, p->folder);
}

ts_status ts_executable_start(ts_executable *x)
{
    if (x->object && ts_gpu_driver_named(x->isa))
        TS_TRY(ts_gpu_start(x));
    else if (x->object) {
        TS_TRY(ts_isa_check(x->isa));
        TS_TRY(start_module(x));
    } else
        TS_TRY(start_graph(x));
    x->inspect = ts_inspect(x->arena, x);
    return TS_OK;
}

ts_status ts_executable_load(const char *path, ts_executable **out)
{
    ts_executable *x = NULL;
    char *file;
    size_t len;
    ts_status s;

    if (!path || !out)
        return ts_fail(TS_ERR_ARG, "loading an executable needs a path and a place for it");
    *out = NULL;
    s = ts_file_read(path, &file, &len);
    if (!s) {
        s = ts_executable_unpack(path, file, len, &x);
        free(file);
    }
    if (!s)
        s = ts_executable_start(x);
    if (s) {
        ts_error_doing("loading the executable %s", path);
        ts_executable_free(x);
        return s;
    }
    *out = x;
    return TS_OK;
}

/* --- what it says of itself --- */

const char *ts_executable_inspect(const ts_executable *x)
{
    return x ? x->inspect : NULL;
}

const char *ts_executable_source(const ts_executable *x)
{
    return x ? x->source : NULL;
}

void ts_executable_stats_sized(const ts_executable *x, ts_stats *out, size_t size)
{
    static const ts_stats none;

    ts_give(x ? &x->stats : &none, sizeof(none), out, size);
}

const ts_tensor_info *ts_executable_tensor(const ts_executable *x, ts_role role, int i)
{
    const ts_slot *s;
    int n;

    if (!x || (unsigned)role > TS_ROLE_STATE)
        return NULL;
    s = role == TS_ROLE_INPUT ? x->inputs : role == TS_ROLE_OUTPUT ? x->outputs : x->states;
    n = role == TS_ROLE_INPUT ? x->ninputs : role == TS_ROLE_OUTPUT ? x->noutputs : x->nstates;
    return i >= 0 && i < n ? &s[i].whole : NULL;
}
