/* manifest.c - what a run needs to know of an executable, as JSON:
 *
 *   {"name": "net", "tessera": "0.1.0", "machine": "x86_64", "isa": "x86-64-v3", "abi": 3, ...
 *    "options": {"device_iterations": 1, ...}, "plan": {"peak_bytes": 4096, ...}, "devices": {...},
 *    "inputs": [{"name": "x", "dtype": "f32", "shape": [16, 784], "device": 0, "offset": 0}], ...
 *    "key": [["model", "6f1c..."], ["isa", "x86-64-v3"], ...]}
 *
 * A manifest comes from a file and the file from anyone: every number is checked against what the
 * engine will do with it. Numbers JSON does not have (infinity, NaN) are strings.
 */
#include "run/manifest.h"
#include "render/module.h"
#include <limits.h>
#include <math.h>
#include <sys/utsname.h>

static const char *const modes[] = {
    [TS_OUTPUT_FINAL] = "final",
    [TS_OUTPUT_ALL] = "all",
    [TS_OUTPUT_SUM] = "sum",
    [TS_OUTPUT_EVERY_N] = "every_n",
};
static const char *const inits[] = {
    [TS_INIT_FULL] = "full",
    [TS_INIT_UNIFORM] = "uniform",
    [TS_INIT_NORMAL] = "normal",
};

static int index_of(const char *const *names, int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (names[i] && !strcmp(names[i], name))
            return i;
    return -1;
}

static const char *machine(void)
{
    static _Thread_local struct utsname u;

    return uname(&u) ? "unknown" : u.machine;
}

/* --- writing --- */

static json_t *number(double x)
{
    if (isfinite(x))
        return json_real(x);
    return json_string(isnan(x) ? "nan" : x < 0 ? "-inf" : "inf");
}

static json_t *layout_json(const ts_slot *s)
{
    json_t *order = json_array();

    for (int i = 0; i < s->info.rank; i++)
        json_array_append_new(order, json_integer(s->layout.order[i]));
    return json_pack("{s:o, s:i, s:i}", "order", order, "lane_dim", s->layout.lane_dim, "lanes",
                     s->layout.lanes);
}

static json_t *copies_json(const ts_slot *s)
{
    json_t *list = json_array();

    for (int i = 0; i < s->ncopies; i++)
        json_array_append_new(
            list, json_pack("[i, I]", s->copies[i].device, (json_int_t)s->copies[i].offset));
    return list;
}

static json_t *slot_json(const ts_slot *s, bool state)
{
    json_t *shape = json_array(), *j;

    for (int i = 0; i < s->info.rank; i++)
        json_array_append_new(shape, json_integer(s->info.dims[i]));
    j = json_pack("{s:s, s:s, s:o, s:i, s:I, s:i, s:i}", "name", s->info.name, "dtype",
                  ts_dtype_name(s->info.dtype), "shape", shape, "device", s->at.device, "offset",
                  (json_int_t)s->at.offset, "section", s->section, "depth", s->depth);
    if (j && s->layout.set)
        json_object_set_new(j, "layout", layout_json(s));
    if (j && s->ncopies)
        json_object_set_new(j, "copies", copies_json(s));
    if (j && state)
        json_object_set_new(j, "use", json_integer(s->use));
    if (j && s->share)
        json_object_set_new(j, "share", json_pack("[I, b]", (json_int_t)s->share, s->scatter));
    if (j && s->grouped)
        json_object_set_new(j, "groups",
                            json_pack("[i, b, b]", s->groups, s->orthogonal, s->read_all));
    if (j && state)
        json_object_set_new(
            j, "init",
            json_pack("[s, o, o]", inits[s->init.kind], number(s->init.a), number(s->init.b)));
    return j;
}

static json_t *slots_json(const ts_slot *s, int n, bool state)
{
    json_t *list = json_array();

    for (int i = 0; i < n; i++)
        if (json_array_append_new(list, slot_json(&s[i], state))) {
            json_decref(list);
            return NULL;
        }
    return list;
}

static json_t *key_json(const ts_key *k)
{
    json_t *list = json_array();

    for (int i = 0; i < k->nentries; i++)
        if (json_array_append_new(list, json_pack("[s, s]", k->entries[i][0], k->entries[i][1]))) {
            json_decref(list);
            return NULL;
        }
    return list;
}

ts_status ts_manifest_write(const ts_executable *x, char **json)
{
    json_t *options =
        json_pack("{s:i, s:i, s:s, s:i, s:i, s:i, s:b}", "device_iterations", x->device_iterations,
                  "gradient_accumulation", x->gradient_accumulation, "output_mode", modes[x->mode],
                  "output_period", x->output_period, "replicas", x->replicas, "processes",
                  x->processes, "training", x->training);
    json_t *plan = json_pack(
        "{s:I, s:I, s:f, s:i}", "state_bytes", (json_int_t)x->stats.state_bytes, "peak_bytes",
        (json_int_t)x->stats.peak_bytes, "flops", x->stats.flops, "kernels", x->stats.kernels);
    json_t *j = json_pack(
        "{s:s, s:s, s:s, s:s, s:s, s:i, s:f, s:o, s:o, s:o, s:o, s:o, s:o, s:s, s:o}", "name",
        x->name, "tessera", x->version, "executor", x->object ? "native" : "reference", "machine",
        machine(), "isa", x->isa ? x->isa : "", "abi", (int)TS_MODULE_ABI, "compile_seconds",
        x->stats.compile_seconds, "options", options, "plan", plan, "devices",
        ts_manifest_devices(x), "inputs", slots_json(x->inputs, x->ninputs, false), "outputs",
        slots_json(x->outputs, x->noutputs, false), "states",
        slots_json(x->states, x->nstates, true), "hash", x->key.hash, "key", key_json(&x->key));

    *json = j && !ts_fault("manifest") ? json_dumps(j, JSON_COMPACT) : NULL;
    json_decref(j);
    if (!*json) {
        ts_fail(TS_ERR_ARG, "the manifest of '%s' cannot be written", x->name);
        ts_error_hint("names must be UTF-8");
        return TS_ERR_ARG;
    }
    return TS_OK;
}

/* --- reading --- */

typedef struct reader {
    const char *path;
    ts_executable *x;
    char at[96]; /* the part being read: "inputs[3]" */
} reader;

static ts_status bad(const reader *r, const char *what)
{
    return ts_fail(TS_ERR_CORRUPT, "%s: the manifest is wrong at %s: %s", r->path, r->at, what);
}

static bool read_number(const json_t *j, double *out)
{
    if (json_is_string(j)) {
        const char *s = json_string_value(j);
        *out = !strcmp(s, "nan") ? (double)NAN : s[0] == '-' ? -HUGE_VAL : HUGE_VAL;
        return true;
    }
    *out = json_number_value(j);
    return json_is_number(j);
}

static ts_status read_init(const reader *r, const json_t *j, ts_init *out)
{
    const char *kind = json_string_value(json_array_get(j, 0));
    int k = kind ? index_of(inits, TS_COUNT(inits), kind) : -1;

    if (k < 0 || !read_number(json_array_get(j, 1), &out->a) ||
        !read_number(json_array_get(j, 2), &out->b))
        return bad(r, "init must be like [\"uniform\", -1.0, 1.0]");
    out->kind = (ts_init_kind)k;
    return TS_OK;
}

static ts_status read_layout(const reader *r, json_t *j, ts_slot *s)
{
    json_t *order;
    int lane_dim, lanes;
    unsigned seen = 0;

    if (json_unpack(j, "{s:o, s:i, s:i}", "order", &order, "lane_dim", &lane_dim, "lanes", &lanes))
        return bad(r, "layout needs order, lane_dim and lanes");
    if ((int)json_array_size(order) != s->info.rank)
        return bad(r, "the layout's order must name each dimension once");
    for (int i = 0; i < s->info.rank; i++) {
        json_int_t d = json_integer_value(json_array_get(order, (size_t)i));
        if (d < 0 || d >= s->info.rank || seen >> d & 1)
            return bad(r, "the layout's order must name each dimension once");
        seen |= 1u << d;
        s->layout.order[i] = (int8_t)d;
    }
    if (lanes < 0 || lanes > INT16_MAX || lane_dim < 0 || lane_dim >= TS_MAX(1, s->info.rank) ||
        (lanes > 1 && !s->info.rank))
        return bad(r, "the layout's lanes do not fit the shape");
    s->layout.lane_dim = (int8_t)lane_dim;
    s->layout.lanes = (int16_t)lanes;
    s->layout.set = true;
    return TS_OK;
}

static ts_status read_shape(const reader *r, const json_t *shape, ts_slot *s)
{
    size_t bytes = ts_dtype_size(s->info.dtype);

    if (!json_is_array(shape) || json_array_size(shape) > TS_MAX_RANK)
        return bad(r, "shape must be a list of at most 8 sizes");
    s->info.rank = (int)json_array_size(shape);
    for (int i = 0; i < s->info.rank; i++) {
        const json_t *d = json_array_get(shape, (size_t)i);
        s->info.dims[i] = json_integer_value(d);
        if (!json_is_integer(d) || s->info.dims[i] < 0 ||
            __builtin_mul_overflow(bytes, (size_t)s->info.dims[i], &bytes) || bytes > SIZE_MAX / 4)
            return bad(r, "a size in the shape is impossible");
    }
    s->info.bytes = bytes;
    return TS_OK;
}

/* In the block: with lanes, a dimension is filled up to a multiple of them. */
static bool fits(const ts_executable *x, const ts_slot *s, ts_spot_at at)
{
    size_t room = s->info.bytes, block;

    if (at.device < TS_REMOTE || at.device >= x->pipe.ndevices)
        return false;
    block = at.device == TS_REMOTE ? x->remote_bytes : x->bytes[at.device].peak;

    if (s->layout.set && s->layout.lanes > 1) {
        size_t n = (size_t)s->info.dims[s->layout.lane_dim], lanes = (size_t)s->layout.lanes;
        if (n && __builtin_mul_overflow(room / n, TS_ROUND_UP(n, lanes), &room))
            return false;
    }
    if (s->share && s->use == TS_USE_MOMENT)
        room = (size_t)s->share * ts_dtype_size(s->info.dtype);
    else if (s->share)
        room = TS_MAX(room, (size_t)s->share * (size_t)x->replicas * ts_dtype_size(s->info.dtype));
    if (s->depth > 1 && (__builtin_mul_overflow(ts_ring_stride(room), (size_t)s->depth, &room)))
        return false;
    return room <= block && at.offset <= block - room;
}

static ts_status read_copies(const reader *r, const json_t *list, ts_slot *s)
{
    size_t n = json_array_size(list);

    s->copies = TS_NEWS(r->x->arena, ts_spot_at, n);
    for (size_t i = 0; i < n; i++) {
        ts_spot_at *at = &s->copies[i];
        json_int_t offset;
        if (json_unpack(json_array_get(list, i), "[i, I]", &at->device, &offset) || offset < 0)
            return bad(r, "a copy needs a device and an offset");
        at->offset = (size_t)offset;
        if (!fits(r->x, s, *at))
            return bad(r, "a copy lies outside the block");
    }
    s->ncopies = (int)n;
    return TS_OK;
}

static ts_status read_groups(const reader *r, json_t *list, ts_slot *s)
{
    int orthogonal, all, R = r->x->replicas;

    s->groups = 1;
    if (!list)
        return TS_OK;
    if (json_unpack(list, "[i, b, b]", &s->groups, &orthogonal, &all) || s->groups < 1 ||
        s->groups > R || R % s->groups || s->info.rank >= TS_MAX_RANK ||
        s->info.bytes > SIZE_MAX / 4 / (size_t)R)
        return bad(r, "its groups do not fit the replicas");
    s->grouped = true;
    s->orthogonal = orthogonal;
    s->read_all = all;
    return TS_OK;
}

/* All shares together have room for what lies in memory. */
static ts_status read_share(const reader *r, json_t *list, ts_slot *s)
{
    int scatter, R = r->x->replicas;
    size_t size = ts_dtype_size(s->info.dtype), count = s->info.bytes / size, all;
    json_int_t share;

    if (!list)
        return TS_OK;
    if (s->layout.set && s->layout.lanes > 1 && count)
        count = count / (size_t)s->info.dims[s->layout.lane_dim] *
                (size_t)TS_ROUND_UP(s->info.dims[s->layout.lane_dim], s->layout.lanes);
    if (json_unpack(list, "[I, b]", &share, &scatter) || share < 1 || R < 2 || s->groups > 1 ||
        __builtin_mul_overflow((size_t)share, (size_t)R * size, &all) || all / size < count)
        return bad(r, "its shares do not fit the replicas");
    s->share = share;
    s->scatter = scatter;
    return TS_OK;
}

static ts_status read_slot(const reader *r, json_t *j, bool in_block, bool state, ts_slot *s)
{
    const char *name, *dtype;
    json_t *shape, *layout = NULL, *init = NULL, *copies = NULL, *groups = NULL, *share = NULL;
    json_int_t offset;
    json_error_t e;
    int use = 0;

    if (json_unpack_ex(
            j, &e, 0, "{s:s, s:s, s:o, s:i, s:I, s:i, s:i, s?o, s?o, s?o, s?i, s?o, s?o}", "name",
            &name, "dtype", &dtype, "shape", &shape, "device", &s->at.device, "offset", &offset,
            "section", &s->section, "depth", &s->depth, "layout", &layout, "init", &init, "copies",
            &copies, "use", &use, "groups", &groups, "share", &share))
        return bad(r, e.text);
    if (s->depth < 1 || use < 0 || use > TS_USE_MOMENT)
        return bad(r, "its depth or use is impossible");
    s->use = (ts_use)use;
    s->info.name = ts_arena_strdup(r->x->arena, name);
    if (ts_dtype_parse(dtype, strlen(dtype), &s->info.dtype))
        return bad(r, "the dtype is not known");
    TS_TRY(read_shape(r, shape, s));
    TS_TRY(read_groups(r, groups, s));
    if (layout)
        TS_TRY(read_layout(r, layout, s));
    TS_TRY(read_share(r, share, s));
    if (state)
        TS_TRY(read_init(r, init, &s->init));
    s->at.offset = (size_t)offset;
    if (offset < 0 || (in_block && !fits(r->x, s, s->at)))
        return bad(r, "it lies outside the block");
    return read_copies(r, copies, s);
}

static ts_status read_slots(reader *r, const json_t *root, const char *role, ts_slot **slots,
                            int *n)
{
    json_t *list = json_object_get(root, role);
    bool state = !strcmp(role, "states"), in_block = r->x->stats.native && strcmp(role, "inputs");

    snprintf(r->at, sizeof(r->at), "%s", role);
    if (!json_is_array(list) || json_array_size(list) > INT_MAX)
        return bad(r, "it must be a list");
    *slots = TS_NEWS(r->x->arena, ts_slot, json_array_size(list));
    for (*n = 0; *n < (int)json_array_size(list); ++*n) {
        snprintf(r->at, sizeof(r->at), "%s[%d]", role, *n);
        TS_TRY(read_slot(r, json_array_get(list, (size_t)*n), in_block, state, &(*slots)[*n]));
    }
    return TS_OK;
}

static ts_status read_options(reader *r, json_t *root)
{
    ts_executable *x = r->x;
    const char *mode;
    int known, D, A, training;
    json_error_t e;

    snprintf(r->at, sizeof(r->at), "options");
    if (json_unpack_ex(root, &e, 0, "{s:{s:i, s:i, s:s, s:i, s:i, s:i, s:b}}", "options",
                       "device_iterations", &D, "gradient_accumulation", &A, "output_mode", &mode,
                       "output_period", &x->output_period, "replicas", &x->replicas, "processes",
                       &x->processes, "training", &training))
        return bad(r, e.text);
    x->training = training;
    x->device_iterations = D;
    x->gradient_accumulation = A;
    known = index_of(modes, TS_COUNT(modes), mode);
    if (known < 0)
        return bad(r, "the output mode is not known");
    x->mode = (ts_output_mode)known;
    if (x->replicas < 1 || x->replicas > 1024 || x->processes < 1)
        return bad(r, "the count of replicas is impossible");
    if (D < 1 || A < 1 || (int64_t)D * A > INT_MAX / x->replicas)
        return bad(r, "the counts of iterations are impossible");
    if (x->output_period < 1 || (x->mode == TS_OUTPUT_EVERY_N && D % x->output_period))
        return bad(r, "the output period does not divide the device iterations");
    return TS_OK;
}

static ts_status read_plan(reader *r, json_t *root)
{
    ts_stats *s = &r->x->stats;
    json_int_t state, peak;
    const char *wrong;
    json_error_t e;

    snprintf(r->at, sizeof(r->at), "plan");
    if (json_unpack_ex(root, &e, 0, "{s:{s:I, s:I, s:F, s:i}}", "plan", "state_bytes", &state,
                       "peak_bytes", &peak, "flops", &s->flops, "kernels", &s->kernels))
        return bad(r, e.text);
    if (state < 0 || peak < 0 || s->kernels < 0)
        return bad(r, "a size is negative");
    s->state_bytes = (size_t)state;
    s->peak_bytes = (size_t)peak;
    snprintf(r->at, sizeof(r->at), "devices");
    wrong = ts_manifest_read_devices(r->x, json_object_get(root, "devices"));
    return wrong ? bad(r, wrong) : TS_OK;
}

static ts_status read_key(reader *r, const json_t *root)
{
    ts_executable *x = r->x;
    json_t *list = json_object_get(root, "key");
    const char *hash = json_string_value(json_object_get(root, "hash"));
    size_t n = json_array_size(list);

    snprintf(r->at, sizeof(r->at), "key");
    if (!json_is_array(list) || !hash || strlen(hash) >= sizeof(x->key.hash))
        return bad(r, "it needs a list and a hash");
    strcpy(x->key.hash, hash);
    x->key.entries = ts_arena_alloc(x->arena, (n + 1) * sizeof(*x->key.entries));
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < 2; k++) {
            const char *s = json_string_value(json_array_get(json_array_get(list, i), k));
            if (!s)
                return bad(r, "each entry must be a name and a value");
            x->key.entries[i][k] = ts_arena_strdup(x->arena, s);
        }
    x->key.nentries = (int)n;
    return TS_OK;
}

static ts_status read_made(reader *r, json_t *root)
{
    ts_executable *x = r->x;
    const char *name, *version, *executor, *where, *isa;
    int abi;
    json_error_t e;

    snprintf(r->at, sizeof(r->at), "its top");
    if (json_unpack_ex(root, &e, 0, "{s:s, s:s, s:s, s:s, s:s, s:i, s:F}", "name", &name, "tessera",
                       &version, "executor", &executor, "machine", &where, "isa", &isa, "abi", &abi,
                       "compile_seconds", &x->stats.compile_seconds))
        return bad(r, e.text);
    x->stats.native = strcmp(executor, "reference") != 0;
    if (x->stats.native && abi != TS_MODULE_ABI)
        return ts_fail(TS_ERR_CORRUPT,
                       "%s was made by tessera %s with step interface %d; this library runs %d",
                       r->path, version, abi, (int)TS_MODULE_ABI);
    if (x->stats.native && strcmp(where, machine()))
        return ts_fail(TS_ERR_UNSUPPORTED, "%s is compiled for a %s; this machine is a %s", r->path,
                       where, machine());
    x->name = ts_arena_strdup(x->arena, name);
    x->version = ts_arena_strdup(x->arena, version);
    x->isa = x->stats.native ? ts_arena_strdup(x->arena, isa) : NULL;
    return TS_OK;
}

static ts_status read_all(reader *r, json_t *root)
{
    TS_TRY(read_made(r, root));
    TS_TRY(read_options(r, root));
    TS_TRY(read_plan(r, root));
    TS_TRY(read_slots(r, root, "inputs", &r->x->inputs, &r->x->ninputs));
    TS_TRY(read_slots(r, root, "outputs", &r->x->outputs, &r->x->noutputs));
    TS_TRY(read_slots(r, root, "states", &r->x->states, &r->x->nstates));
    ts_executable_finish(r->x);
    return read_key(r, root);
}

ts_status ts_manifest_read(const char *path, const char *json, size_t len, ts_executable *x)
{
    reader r = {.path = path, .x = x};
    json_error_t e;
    json_t *root = json_loadb(json, len, 0, &e);
    ts_status s;

    if (!root)
        return ts_fail(TS_ERR_CORRUPT, "%s: the manifest is not JSON: %s in column %d", path,
                       e.text, e.column);
    s = read_all(&r, root);
    json_decref(root);
    return s;
}
