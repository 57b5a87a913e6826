/* manifest_devices.c - the manifest's part about devices:
 *
 *   "devices": {"memory": [[states, peak], ...], "remote": bytes, "sharded": false,
 *               "sections": [[phase, device, step, level, first, count, seconds, loads, stores,
 *                             "B1"], ...],
 *               "sends": [[section, device, state, remote, from, to, bytes, from_depth, depth,
 *                          readers], ...]}
 */
#include "run/manifest.h"
#include <limits.h>

enum { MOST = 4096 }; /* devices; sections are few more */

/* --- writing --- */

static json_t *section_json(const ts_section *s)
{
    return json_pack("[i, i, i, i, i, i, f, I, I, s]", s->phase, s->device, s->step, s->level,
                     s->first, s->count, s->seconds, (json_int_t)s->loads, (json_int_t)s->stores,
                     s->name);
}

static json_t *send_json(const ts_send *s)
{
    json_t *readers = json_array();

    for (int i = 0; i < s->nreaders; i++)
        json_array_append_new(readers, json_integer(s->readers[i]));
    return json_pack("[i, i, b, b, I, I, I, i, i, o]", s->section, s->device, s->state, s->remote,
                     (json_int_t)s->from, (json_int_t)s->to, (json_int_t)s->bytes, s->from_depth,
                     s->depth, readers);
}

json_t *ts_manifest_devices(const ts_executable *x)
{
    json_t *memory = json_array(), *sections = json_array(), *sends = json_array();

    for (int i = 0; i < x->pipe.ndevices; i++)
        json_array_append_new(memory, json_pack("[I, I]", (json_int_t)x->bytes[i].states,
                                                (json_int_t)x->bytes[i].peak));
    for (int i = 0; i < x->pipe.nsections; i++)
        json_array_append_new(sections, section_json(&x->pipe.sections[i]));
    for (int i = 0; i < x->pipe.nsends; i++)
        json_array_append_new(sends, send_json(&x->pipe.sends[i]));
    return json_pack("{s:o, s:I, s:b, s:o, s:o}", "memory", memory, "remote",
                     (json_int_t)x->remote_bytes, "sharded", x->pipe.sharded, "sections", sections,
                     "sends", sends);
}

/* --- reading: NULL, or what is wrong --- */

static const char *read_memory(ts_executable *x, const json_t *list)
{
    size_t n = json_array_size(list);

    if (n > MOST)
        return "there are too many devices";
    x->pipe.ndevices = (int)n;
    x->bytes = TS_NEWS(x->arena, ts_device_bytes, n);
    for (size_t i = 0; i < n; i++) {
        json_int_t states, peak;
        if (json_unpack(json_array_get(list, i), "[I, I]", &states, &peak))
            return "a device needs two sizes";
        if (states < 0 || peak < 0)
            return "a size is negative";
        x->bytes[i] = (ts_device_bytes){(size_t)states, (size_t)peak};
    }
    return NULL;
}

static const char *read_sections(ts_executable *x, const json_t *list)
{
    size_t n = json_array_size(list);
    int next = 0;

    x->pipe.sections = TS_NEWS(x->arena, ts_section, n);
    for (size_t i = 0; i < n; i++) {
        ts_section *s = &x->pipe.sections[i];
        const char *name;
        json_int_t loads, stores;
        if (json_unpack(json_array_get(list, i), "[i, i, i, i, i, i, F, I, I, s]", &s->phase,
                        &s->device, &s->step, &s->level, &s->first, &s->count, &s->seconds, &loads,
                        &stores, &name))
            return "a section needs nine numbers and a name";
        if ((s->phase != 0 && s->phase != 1) || s->device < 0 || s->device >= x->pipe.ndevices ||
            s->level < 0 || s->level > INT_MAX / 2 || s->step < 0)
            return "a section is on no device";
        if (loads < 0 || stores < 0)
            return "a size is negative";
        s->loads = (size_t)loads;
        s->stores = (size_t)stores;
        if (s->first != next || s->count < 0 || s->count > x->stats.kernels - next)
            return "a section has kernels that are not there";
        next += s->count;
        s->name = ts_arena_strdup(x->arena, name);
        x->pipe.nsections++;
    }
    return next == x->stats.kernels ? NULL : "some kernels are in no section";
}

static bool inside(size_t block, json_int_t offset, json_int_t bytes, int depth)
{
    size_t room;

    return offset >= 0 && bytes >= 0 && depth >= 1 &&
           !__builtin_mul_overflow(ts_ring_stride((size_t)bytes), (size_t)depth - 1, &room) &&
           !__builtin_add_overflow(room, (size_t)bytes, &room) && room <= block &&
           (size_t)offset <= block - room;
}

static const char *read_readers(ts_executable *x, const json_t *list, ts_send *s)
{
    size_t n = json_array_size(list);
    int *readers = TS_NEWS(x->arena, int, n);

    for (size_t i = 0; i < n; i++) {
        json_int_t r = json_integer_value(json_array_get(list, i));
        if (r < 0 || r >= x->pipe.nsections || x->pipe.sections[r].device != s->device)
            return "what is sent is read on another device";
        readers[i] = (int)r;
    }
    s->readers = readers;
    s->nreaders = (int)n;
    return NULL;
}

static const char *read_sends(ts_executable *x, const json_t *list)
{
    size_t n = json_array_size(list);

    x->pipe.sends = TS_NEWS(x->arena, ts_send, n);
    for (size_t i = 0; i < n; i++) {
        ts_send *s = &x->pipe.sends[i];
        json_int_t from, to, bytes;
        int state, remote;
        const char *wrong;
        json_t *readers;
        if (json_unpack(json_array_get(list, i), "[i, i, b, b, I, I, I, i, i, o]", &s->section,
                        &s->device, &state, &remote, &from, &to, &bytes, &s->from_depth, &s->depth,
                        &readers))
            return "a send needs eight numbers and its readers";
        if (s->section < 0 || s->section >= x->pipe.nsections || s->device < 0 ||
            s->device >= x->pipe.ndevices || s->device == x->pipe.sections[s->section].device)
            return "something is sent to no device";
        if (!inside(x->bytes[x->pipe.sections[s->section].device].peak, from, bytes,
                    s->from_depth) ||
            !inside(remote ? x->remote_bytes : x->bytes[s->device].peak, to, bytes, s->depth))
            return "what is sent lies outside the block";
        s->state = state;
        s->remote = remote;
        s->from = (size_t)from;
        s->to = (size_t)to;
        s->bytes = (size_t)bytes;
        wrong = read_readers(x, readers, s);
        if (wrong)
            return wrong;
        x->pipe.nsends++;
    }
    return NULL;
}

const char *ts_manifest_read_devices(ts_executable *x, json_t *j)
{
    json_t *memory, *sections, *sends;
    const char *wrong;
    json_int_t remote;
    int sharded;

    if (json_unpack(j, "{s:o, s:I, s:b, s:o, s:o}", "memory", &memory, "remote", &remote, "sharded",
                    &sharded, "sections", &sections, "sends", &sends) ||
        remote < 0)
        return "it needs memory, sections and sends";
    x->remote_bytes = (size_t)remote;
    x->pipe.sharded = sharded;
    wrong = read_memory(x, memory);
    if (!wrong)
        wrong = read_sections(x, sections);
    if (!wrong)
        wrong = read_sends(x, sends);
    if (!wrong && x->stats.native && !x->pipe.ndevices)
        wrong = "there is no device";
    return wrong;
}
