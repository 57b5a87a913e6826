/* plan.c - tessera plan: memory, stages and schedule, told before the run. Nothing is compiled. */
#include "tool.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static struct {
    const char *model;
    int64_t batch, classes;
    bool training, json;
} args = {.batch = 16};

static const option options[] = {
    {"MODEL", NULL, KIND_TEXT, &args.model, "the model: a name ('tessera models') or a file",
     .takes = TAKES_MODEL, .argument = true, .needed = true},
    {"batch-size", "N", KIND_INT, &args.batch, "samples in a batch", .low = 1, .high = 1 << 20},
    {"classes", "N", KIND_INT, &args.classes, "classes, when not those of the description",
     .low = 1, .high = INT32_MAX},
    {"training", NULL, KIND_FLAG, &args.training, .help = "the training step instead of inference"},
    {.name = "training", .kind = KIND_GROUP, .target = (void *)training_options},
    {.name = "devices", .kind = KIND_GROUP, .target = (void *)place_options},
    {.name = "devices, of a training step",
     .kind = KIND_GROUP,
     .target = (void *)place_training_options},
    {"json", NULL, KIND_FLAG, &args.json, .help = "print the plan as JSON"},
    {0},
};

typedef struct plan {
    ts_plan_info *info;
    char name[128];
    int64_t limit; /* bytes of a device; 0: none */
    bool refused;  /* it does not fit, and the last error says why */
} plan;

/* What is planned is shown without a limit; whether it fits the library says, as it will when it compiles. */
static int make(plan *out)
{
    ts_stats stats;
    step s;
    int code =
        step_open("plan", args.model,
                  &(ts_model_options){
                      .batch = args.batch, .classes = args.classes, .training = args.training},
                  &s);

    if (code)
        return code;
    printable(ts_model_name(s.model), out->name, sizeof(out->name));
    out->limit = s.opt.device_memory                  ? s.opt.device_memory
                 : s.opt.device_kind != TS_DEVICE_CPU ? ts_device_memory(s.opt.device_kind)
                                                      : 0;
    code = ts_plan_new(s.graph, &s.opt, &out->info) ? failed() : TOOL_OK;
    out->refused = !code && out->limit && ts_estimate(s.graph, &s.opt, &stats);
    step_close(&s);
    return code;
}

/* --- text --- */

static const char *size(int64_t bytes, char *out, size_t room)
{
    return bytes ? bytes_text(bytes, out, room) : "-";
}

static void print_head(const plan *p)
{
    const ts_plan_info *i = p->info;

    printf("%s: %s, batch size %" PRId64 ", %d device%s", p->name,
           args.training ? "training step" : "inference", args.batch, i->ndevices,
           i->ndevices == 1 ? "" : "s");
    if (i->phases)
        printf(", %d phase%s", i->phases, i->phases == 1 ? "" : "s");
    else if (i->ndevices > 1)
        printf(" %s", i->sharded ? "sharded" : "pipelined");
    if (i->replicas > 1)
        printf(", %d replicas of all of it", i->replicas);
    printf("\n");
}

static void print_devices(const plan *p)
{
    const ts_plan_info *x = p->info;
    char states[32], peak[32];
    int any = 0;

    printf("\n%-8s %12s %12s %7s %12s  sections\n", "device", "always live", "peak", "work",
           "modelled us");
    for (int d = 0; d < x->ndevices; d++) {
        printf("%-8d %12s %12s %6.1f%% %12.1f", d,
               size(x->devices[d].states, states, sizeof(states)),
               size(x->devices[d].peak, peak, sizeof(peak)), 100 * x->devices[d].share,
               1e6 * x->devices[d].seconds);
        for (int i = 0, n = 0; i < x->nsections; i++)
            if (x->sections[i].device == d && x->sections[i].kind != 'U')
                printf("%s%c%s%s", n++ ? ", " : "  ", x->sections[i].kind,
                       x->sections[i].blocks[0] ? " " : "", x->sections[i].blocks);
        printf("\n");
    }
    for (int d = 0; d < x->ndevices; d++)
        if (x->devices[d].sharded)
            printf("%s%s of the optimizer's state of device %d are kept by other replicas\n",
                   any++ ? "" : "\n", bytes_text(x->devices[d].sharded, peak, sizeof(peak)), d);
}

static void print_layers(const ts_plan_info *x)
{
    char states[32], kept[32];

    printf("\n%-24s %-8s %6s %12s %12s %12s %12s\n", "layer", "block", "device", "parameters",
           "states", "activations", "flops");
    for (int i = 0; i < x->nlayers; i++) {
        const ts_plan_layer *l = &x->layers[i];
        printf("%-24s %-8s %6d %12" PRId64 " %12s %12s %12.4g\n", l->name[0] ? l->name : "(other)",
               l->block, l->device, l->parameters, size(l->states, states, sizeof(states)),
               size(l->activations, kept, sizeof(kept)), l->flops);
    }
}

static void print_sends(const ts_plan_info *x)
{
    char bytes[32];

    if (!x->nsends)
        return;
    printf("\n%-8s %-8s %12s %8s  sent\n", "from", "to", "bytes", "at most");
    for (int i = 0; i < x->nsends; i++)
        printf("%-8d %-8d %12s %8d  %s%s%s\n", x->sends[i].from, x->sends[i].to,
               bytes_text(x->sends[i].bytes, bytes, sizeof(bytes)), x->sends[i].depth,
               x->sends[i].state ? "state " : "", x->sends[i].name,
               x->sends[i].host ? ", through the host's memory" : "");
}

static const struct {
    unsigned bit;
    const char *name;
} offloads[] = {{TS_OFFLOAD_WEIGHTS, "weights"},
                {TS_OFFLOAD_ACTIVATIONS, "activations"},
                {TS_OFFLOAD_ACCUMULATORS, "accumulators"},
                {TS_OFFLOAD_OPTIMIZER, "optimizer"}};

/* What a section loads or stores: "4 weights, 2 activations"; returns its bytes. */
static int64_t count_moves(const ts_plan_info *x, int section, bool load, char *out, size_t room)
{
    int64_t bytes = 0;
    size_t len = 0;

    out[0] = 0;
    for (int i = 0; i < COUNT(offloads); i++) {
        int n = 0;
        for (int k = 0; k < x->nmoves; k++)
            if (x->moves[k].section == section && x->moves[k].load == load &&
                x->moves[k].what == offloads[i].bit) {
                bytes += x->moves[k].bytes;
                n++;
            }
        if (n)
            len += (size_t)snprintf(out + len, room - len, "%s%d %s", len ? ", " : "", n,
                                    offloads[i].name);
    }
    return bytes;
}

/* A row for each section, in the order of a run. */
static void print_moves(const ts_plan_info *x)
{
    char loaded[32], stored[32], in[128], out[128];

    if (!x->nmoves)
        return;
    printf("\nhost memory  %s%s\n\n%-6s %-8s %-5s %12s %12s  moved\n",
           bytes_text(x->host, loaded, sizeof(loaded)), x->replicas > 1 ? " of each replica" : "",
           "phase", "device", "part", "loaded", "stored");
    for (int i = 0; i < x->nsections; i++) {
        int64_t load = count_moves(x, i, true, in, sizeof(in));
        int64_t store = count_moves(x, i, false, out, sizeof(out));
        printf("%-6d %-8d %-5c %12s %12s%s%s%s%s%s\n", x->sections[i].phase, x->sections[i].device,
               x->sections[i].kind, size(load, loaded, sizeof(loaded)),
               size(store, stored, sizeof(stored)), in[0] ? "  in: " : "", in,
               in[0] && out[0]    ? ";"
               : in[0] || !out[0] ? ""
                                  : " ",
               out[0] ? " out: " : "", out);
    }
}

/* The fullest tile of each device, and where the cycles of an iteration go. */
static void print_ipu(const ts_plan_info *x)
{
    const ts_plan_ipu *m = x->ipu;
    char peak[32], has[32], always[32], code[32], exchange[32], gaps[32];

    if (!m)
        return;
    printf("\nmodel of %s: %d tiles of %s\n\n%-8s %6s %12s %12s %12s %12s %12s %6s\n", m->name,
           m->tiles, bytes_text(m->tile_bytes, has, sizeof(has)), "device", "tile", "needs",
           "always live", "code", "exchange", "gaps", "over");
    for (int d = 0; d < x->ndevices; d++) {
        const ts_plan_ipu_device *t = &m->devices[d];
        printf("%-8d %6d %12s %12s %12s %12s %12s %6d\n", d, t->tile,
               size(t->peak, peak, sizeof(peak)), size(t->always, always, sizeof(always)),
               size(t->code, code, sizeof(code)), size(t->exchange, exchange, sizeof(exchange)),
               size(t->gaps, gaps, sizeof(gaps)), t->over);
    }
    printf("\ncycles     %.0f a step, %.1f us: compute %.0f, exchange %.0f, sync %.0f, host %.0f\n"
           "matrix     %.1f %% of the units while they work\n",
           m->step, 1e6 * m->step / m->hertz, m->compute, m->exchange, m->sync, m->host,
           100 * m->matrix_use);
    if (x->ndevices > 1)
        printf("balance    %.1f %%: the stages' mean beside the longest\n", 100 * m->balance);
}

static void print_schedule(const ts_plan_info *x)
{
    if (x->ndevices < 2 && !x->phases)
        return;
    printf("\nschedule of %d micro-batch%s%s\n%s", x->micro_batches,
           x->micro_batches == 1 ? "" : "es", args.training ? " and the weight update" : "",
           x->schedule);
    printf("F forward, B backward, X both, U update; %s the micro-batch\n\n"
           "bubble     %.1f %% of the devices' time, as modelled\n",
           x->phases ? "the numbers are the phase and" : "the number is", 100 * x->bubble);
    if (x->sharded && !x->phases && args.training && x->micro_batches == 1 &&
        strcmp(placed.schedule, "sharded"))
        printf("hint       --gradient-accumulation gives a pipeline micro-batches to overlap\n");
}

/* --- JSON --- */

static void json_devices(const ts_plan_info *x)
{
    printf(",\n  \"devices\": [");
    for (int i = 0; i < x->ndevices; i++) {
        printf("%s\n    {\"device\": %d, \"states\": %" PRId64 ", \"peak\": %" PRId64
               ", \"sharded\": %" PRId64 ", \"seconds\": ",
               i ? "," : "", i, x->devices[i].states, x->devices[i].peak, x->devices[i].sharded);
        json_value(x->devices[i].seconds);
        printf(", \"share\": ");
        json_value(x->devices[i].share);
        printf("}");
    }
    printf("],\n  \"sections\": [");
    for (int i = 0; i < x->nsections; i++) {
        const ts_plan_section *s = &x->sections[i];
        printf("%s\n    {\"device\": %d, \"phase\": %d, \"kind\": \"%c\", \"kernels\": %d, "
               "\"blocks\": ",
               i ? "," : "", s->device, s->phase, s->kind, s->kernels);
        json_quote(s->blocks);
        printf(", \"seconds\": ");
        json_value(s->seconds);
        printf("}");
    }
    printf("],\n  \"sends\": [");
    for (int i = 0; i < x->nsends; i++) {
        const ts_plan_send *s = &x->sends[i];
        printf("%s\n    {\"section\": %d, \"from\": %d, \"to\": %d, \"state\": %s, \"host\": %s, "
               "\"depth\": %d, \"bytes\": %" PRId64 ", \"name\": ",
               i ? "," : "", s->section, s->from, s->to, s->state ? "true" : "false",
               s->host ? "true" : "false", s->depth, s->bytes);
        json_quote(s->name);
        printf("}");
    }
}

static void json_moves(const ts_plan_info *x)
{
    printf("],\n  \"moves\": [");
    for (int i = 0; i < x->nmoves; i++) {
        const ts_plan_move *m = &x->moves[i];
        const char *what = "";
        for (int k = 0; k < COUNT(offloads); k++)
            what = offloads[k].bit == m->what ? offloads[k].name : what;
        printf("%s\n    {\"section\": %d, \"move\": \"%s\", \"what\": \"%s\", \"bytes\": %" PRId64
               ", \"name\": ",
               i ? "," : "", m->section, m->load ? "load" : "store", what, m->bytes);
        json_quote(m->name);
        printf("}");
    }
}

static void json_layers(const ts_plan_info *x)
{
    printf("],\n  \"layers\": [");
    for (int i = 0; i < x->nlayers; i++) {
        const ts_plan_layer *l = &x->layers[i];
        printf("%s\n    {\"layer\": ", i ? "," : "");
        json_quote(l->name);
        printf(", \"block\": ");
        json_quote(l->block);
        printf(", \"device\": %d, \"parameters\": %" PRId64 ", \"states\": %" PRId64
               ", \"activations\": %" PRId64 ", \"flops\": ",
               l->device, l->parameters, l->states, l->activations);
        json_value(l->flops);
        printf("}");
    }
}

static void json_ipu(const ts_plan_info *x)
{
    const ts_plan_ipu *m = x->ipu;

    if (!m)
        return;
    printf(",\n  \"ipu\": {\"name\": ");
    json_quote(m->name);
    printf(", \"tiles\": %d, \"tile_bytes\": %" PRId64 ", \"step\": %.0f, \"call\": %.0f, "
           "\"compute\": %.0f, \"exchange\": %.0f, \"sync\": %.0f, \"host\": %.0f, \"seconds\": ",
           m->tiles, m->tile_bytes, m->step, m->call, m->compute, m->exchange, m->sync, m->host);
    json_value(m->step / m->hertz);
    printf(", \"matrix_use\": ");
    json_value(m->matrix_use);
    printf(", \"balance\": ");
    json_value(m->balance);
    printf(", \"devices\": [");
    for (int d = 0; d < x->ndevices; d++)
        printf("%s{\"tile\": %d, \"peak\": %" PRId64 ", \"always\": %" PRId64 ", \"code\": %" PRId64
               ", \"exchange\": %" PRId64 ", \"gaps\": %" PRId64 ", \"over\": %d}",
               d ? ", " : "", m->devices[d].tile, m->devices[d].peak, m->devices[d].always,
               m->devices[d].code, m->devices[d].exchange, m->devices[d].gaps, m->devices[d].over);
    printf("]}");
}

static void print_json(const plan *p)
{
    const ts_plan_info *x = p->info;

    printf("{\n  \"model\": ");
    json_quote(p->name);
    printf(",\n  \"training\": %s,\n  \"batch_size\": %" PRId64
           ",\n  \"replicas\": %d,\n  \"micro_batches\": %d,\n  \"sharded\": %s,\n  \"phases\": "
           "%d,\n  "
           "\"host\": %" PRId64 ",\n  \"bubble\": ",
           args.training ? "true" : "false", args.batch, x->replicas, x->micro_batches,
           x->sharded ? "true" : "false", x->phases, x->host);
    json_value(x->bubble);
    json_devices(x);
    json_moves(x);
    json_layers(x);
    printf("]");
    json_ipu(x);
    printf(",\n  \"schedule\": ");
    json_quote(x->schedule);
    printf("\n}\n");
}

/* --- all --- */

static int run(void)
{
    plan p = {0};
    int code = make(&p);

    if (code)
        return code;
    if (args.json)
        print_json(&p);
    else {
        print_head(&p);
        print_devices(&p);
        print_layers(p.info);
        print_sends(p.info);
        print_moves(p.info);
        print_ipu(p.info);
        print_schedule(p.info);
    }
    fflush(stdout);
    code = p.refused ? failed() : TOOL_OK;
    ts_plan_free(p.info);
    return code;
}

const command plan_command = {
    .name = "plan",
    .summary = "Tells the memory, the stages and the schedule of a run before it runs",
    .options = options,
    .run = run,
    .more = "Nothing is compiled. Always live are weights, buffers and what the optimizer keeps; "
            "the\npeak is exactly what a device will have. Activations are what the forward pass "
            "keeps for\nthe backward pass. A device that needs more than --device-memory ends it "
            "with exit code 1.",
    .examples = "plan classifier --training --batch-size 64\n"
                "plan mnist-pipeline --training --gradient-accumulation 8 "
                "--stages 'B1|B2|B3|B4'\n"
                "plan mnist-pipeline --training --schedule phased --stages 'B1|B2|B3|B4'\n"
                "plan resnet18 --batch-size 1 --json\n",
};
