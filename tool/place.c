/* place.c - the options of every command that puts a net on devices.
 *
 *   --stages "B1|B2,B3@0"     stage 0: block B1 on device 0; stage 1: B2 and B3 on device 0 too
 *   --schedule phased
 *   --stages "B1/B2|B3"       phase 0: B1 on device 0 and B2 on device 1; phase 1: B3 on device 0
 *
 * The blocks are those of the model's description. A stage's device is its place in the list unless
 * it names another. In phases it is its place in the phase; with two groups of devices in turns,
 * the even or the odd device of that place.
 */
#include "tool.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define SCHEDULES "pipelined sharded phased parallel-phased"

placing placed = {.schedule = "pipelined", .device = "cpu"};

option place_options[] = {
    {"stages", "STAGES", KIND_TEXT, &placed.stages,
     .help = "blocks of the model on devices: stages separated by |, the blocks of a stage by "
             "commas, perhaps @DEVICE after them, as in 'B1|B2|B3,B4@0'; phased, | separates "
             "phases and / the stages of one"},
    {"devices", .kind = KIND_INT, .target = &placed.devices, .of = "devices"},
    {"schedule", "NAME", KIND_WORD, &placed.schedule, "how the stages work together",
     .choice = SCHEDULES},
    {"strategy", "NAME", KIND_WORD, &placed.schedule, "the same as --schedule",
     .choice = SCHEDULES},
    {"replicas", .kind = KIND_INT, .target = &placed.replicas, .of = "replicas"},
    {"queue-depth", .kind = KIND_INT, .target = &placed.queue, .of = "queue_depth"},
    {"offload", "WHAT", KIND_TEXT, &placed.offload,
     .help = "keep in the host's memory: optimizer, weights, accumulators, activations; several "
             "with commas; or all, as phased execution does, or none"},
    {"device", "KIND", KIND_WORD, &placed.device,
     "what the devices are: cpu, with a share of the machine's memory; a model of an IPU, with "
     "the 897 MiB of a GC200 (model, model:mk2) or the 304 MiB of an Mk1 (model:mk1); gpu, an "
     "NVIDIA "
     "GPU; or opencl, a GPU of another maker",
     .choice = "cpu model model:mk2 model:mk1 gpu opencl"},
    {"device-memory", "SIZE", KIND_TEXT, &placed.memory,
     .help = "what a device has, when not what its kind has, as in 304MiB, gc200 (897 MiB) or mk1 "
             "(304 MiB); a net that needs more is an error"},
    {0},
};

/* What only a backward pass and an optimizer have. */
option place_training_options[] = {
    {"separate-backward", .kind = KIND_FLAG, .target = &placed.separate, .of = "separate_backward"},
    {"shard-optimizer", .kind = KIND_FLAG, .target = &placed.shard, .of = "shard_optimizer"},
    {"shard-least", .kind = KIND_INT, .target = &placed.shard_least, .of = "shard_least",
     .help = "with --shard-optimizer: the state of tensors with fewer elements stays whole"},
    {"recompute", .kind = KIND_FLAG, .target = &placed.recompute, .of = "recompute"},
    {0},
};

static bool in_turns(void) /* even and odd devices */
{
    return !strcmp(placed.schedule, "parallel-phased");
}

static bool phased(void)
{
    return in_turns() || !strcmp(placed.schedule, "phased");
}

/* --- sizes and lists --- */

static const struct {
    const char *name, *device;
    ts_device_kind kind;
} models[] = {{"gc200", "model", TS_DEVICE_MK2},
              {"gc200", "model:mk2", TS_DEVICE_MK2},
              {"mk1", "model:mk1", TS_DEVICE_MK1},
              {"", "gpu", TS_DEVICE_GPU},
              {"", "opencl", TS_DEVICE_OPENCL}};

static ts_device_kind read_kind(void)
{
    for (int i = 0; i < COUNT(models); i++)
        if (!strcmp(models[i].device, placed.device))
            return models[i].kind;
    return TS_DEVICE_CPU;
}

ts_device_kind placed_gpu(void)
{
    ts_device_kind kind = read_kind();

    return kind == TS_DEVICE_GPU || kind == TS_DEVICE_OPENCL ? kind : TS_DEVICE_CPU;
}

static int read_memory(const char *command, int64_t *bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    char *end;
    double v;

    *bytes = 0;
    for (int i = 0; placed.memory && i < COUNT(models); i++)
        if (!strcmp(models[i].name, placed.memory))
            *bytes = ts_device_memory(models[i].kind);
    if (!placed.memory || *bytes)
        return TOOL_OK;
    v = isdigit((unsigned char)placed.memory[0]) ? strtod(placed.memory, &end) : 0;
    for (int i = 0; v > 0 && i < COUNT(units); i++)
        if (!strcmp(end + strspn(end, " "), units[i]) || (!i && !*end)) {
            for (int k = 0; k < i; k++)
                v *= 1024;
            if (v < 1 || v > 9e18)
                break;
            *bytes = (int64_t)v;
            return TOOL_OK;
        }
    return usage_error(command, "--device-memory is '%s'; it must be like 304MiB, or gc200 or mk1",
                       placed.memory);
}

static int read_offload(const char *command, ts_options *opt)
{
    const char *what = placed.offload ? placed.offload : phased() ? "all" : "none";

    if (ts_options_set(opt, "offload", what))
        return usage_error(command, "--%s", ts_last_error()->message);
    return TOOL_OK;
}

/* --- stages --- */

enum { MOST_STAGES = 4096 };

typedef struct stages {
    char *text; /* what the names point into */
    ts_stage *stage;
    const char **names; /* of all blocks, stage after stage */
    int n, nblocks;
} stages;

static size_t count_marks(const char *s, const char *marks)
{
    size_t n = 0;

    for (; *s; s++)
        n += strchr(marks, *s) != NULL;
    return n;
}

static char *trim(char *s)
{
    size_t n;

    s += strspn(s, " ");
    for (n = strlen(s); n && s[n - 1] == ' '; n--)
        s[n - 1] = 0;
    return s;
}

static int default_device(const stages *of, int phase)
{
    int place = 0;

    if (!phased())
        return of->n;
    for (int i = 0; i < of->n; i++)
        place += of->stage[i].phase == phase;
    return in_turns() ? 2 * place + phase % 2 : place;
}

/* "B3,B4@2" */
static int read_stage(const char *command, char *text, int phase, stages *out)
{
    ts_stage *s = &out->stage[out->n];
    char *at = strrchr(text, '@'), *end, *comma;

    *s = (ts_stage){
        .blocks = &out->names[out->nblocks], .device = default_device(out, phase), .phase = phase};
    if (at) {
        long device = strtol(at + 1, &end, 10);
        if (!isdigit((unsigned char)at[1]) || *trim(end) || device >= MOST_STAGES)
            return usage_error(command, "--stages has '@%s'; a device is a number from 0 to %d",
                               at + 1, MOST_STAGES - 1);
        s->device = (int)device;
        *at = 0;
    }
    if (in_turns() && s->device % 2 != phase % 2)
        return usage_error(command,
                           "--stages has a stage of phase %d on device %d; even phases run on even "
                           "devices and odd phases on odd ones",
                           phase, s->device);
    for (; text; text = comma) {
        comma = strchr(text, ',');
        if (comma)
            *comma++ = 0;
        text = trim(text);
        if (!*text)
            return usage_error(command, "--stages is '%s'; stage %d has a block without a name",
                               placed.stages, out->n);
        out->names[out->nblocks++] = text;
        s->nblocks++;
    }
    out->n++;
    return TOOL_OK;
}

/* They live as long as the program: ts_options borrows them. */
static int read_stages(const char *command, stages *out)
{
    const char *marks = phased() ? "|/" : "|";
    size_t n = count_marks(placed.stages, marks) + 1;
    char *text, *next;
    int code = TOOL_OK, phase = 0;

    if (n > MOST_STAGES)
        return usage_error(command, "--stages has %zu stages; there can be %d", n, MOST_STAGES);
    out->text = text = strdup(placed.stages);
    out->stage = calloc(n, sizeof(*out->stage));
    out->names = calloc(count_marks(placed.stages, "|/,") + 1, sizeof(*out->names));
    if (!out->text || !out->stage || !out->names)
        return failure("out of memory for %zu stages", n);
    for (; text && !code; text = next) {
        bool last = false;
        next = strpbrk(text, marks);
        if (next) {
            last = phased() && *next == '|';
            *next++ = 0;
        }
        code = read_stage(command, text, phase, out);
        phase += last;
    }
    return code;
}

/* --- blocks --- */

static bool has_block(const char *const *names, int n, const char *block)
{
    for (int i = 0; i < n; i++)
        if (!strcmp(names[i], block))
            return true;
    return false;
}

/* The blocks of the model in their order; free() it. */
static const char **find_blocks(const ts_model_layer *layers, int n, int *count)
{
    const char **blocks = calloc((size_t)n + 1, sizeof(*blocks));

    *count = 0;
    for (int i = 0; blocks && i < n; i++)
        if (layers[i].block[0] && !has_block(blocks, *count, layers[i].block))
            blocks[(*count)++] = layers[i].block;
    return blocks;
}

static int wrong_block(const ts_model *m, const char *const *blocks, int n, const char *what,
                       const char *block)
{
    char hint[1024] = "the blocks are ", shown[128];
    size_t len = strlen(hint);

    if (!n)
        return explain(TS_ERR_ARG, ts_model_name(m), "putting the model on devices",
                       "lines 'block NAME' in the description begin them; --devices N cuts a "
                       "model without",
                       "the model has no blocks");
    for (int i = 0; i < n && len < sizeof(hint); i++)
        len += (size_t)snprintf(hint + len, sizeof(hint) - len, "%s%s", i ? ", " : "", blocks[i]);
    return explain(TS_ERR_ARG, ts_model_name(m), "putting the model on devices", hint, what,
                   printable(block, shown, sizeof(shown)));
}

static int compare(const ts_model *m, const stages *s, const char *const *blocks, int n)
{
    for (int i = 0; i < s->nblocks; i++) {
        if (!has_block(blocks, n, s->names[i]))
            return wrong_block(m, blocks, n, "the model has no block '%s'", s->names[i]);
        if (has_block(s->names, i, s->names[i]))
            return wrong_block(m, blocks, n, "the block '%s' is in --stages twice", s->names[i]);
    }
    for (int i = 0; i < n; i++)
        if (!has_block(s->names, s->nblocks, blocks[i]))
            return wrong_block(m, blocks, n, "the block '%s' is in no stage", blocks[i]);
    return TOOL_OK;
}

static int check_blocks(const ts_model *m, const ts_model_options *o, const stages *s)
{
    ts_model_layer *layers;
    const char **blocks;
    int n, code;

    if (ts_model_layers(m, o, &layers, &n))
        return failed();
    blocks = find_blocks(layers, n, &n);
    code = blocks ? compare(m, s, blocks, n) : failure("out of memory for the blocks");
    free(blocks);
    free(layers);
    return code;
}

/* --- all --- */

int place(const char *command, const ts_model *m, const ts_model_options *o, ts_options *opt)
{
    static stages s;
    int code = read_memory(command, &opt->device_memory);

    if (!code)
        code = read_offload(command, opt);
    if (!code && phased() && !placed.stages)
        code = usage_error(command, "--schedule %s needs --stages that say the phases",
                           placed.schedule);
    if (!code && placed.separate && !phased())
        code = usage_error(command, "--separate-backward needs --schedule phased");
    if (!code && placed.stages && given(&placed.devices))
        code = usage_error(command, "--stages and --devices exclude each other");
    if (!code && placed.stages && !s.n)
        code = read_stages(command, &s);
    if (!code && placed.stages)
        code = check_blocks(m, o, &s);
    opt->device_kind = read_kind();
    opt->stages = s.stage;
    opt->nstages = s.n;
    opt->schedule = phased()                             ? TS_SCHEDULE_PHASED
                    : strcmp(placed.schedule, "sharded") ? TS_SCHEDULE_PIPELINED
                                                         : TS_SCHEDULE_SHARDED;
    if (!code)
        code = fill_options(command, place_options, opt);
    return code ? code : fill_options(command, place_training_options, opt);
}
