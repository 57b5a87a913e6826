/* devices.c - tessera devices: what a training step can use on this machine. */
#include "tool.h"
#include <inttypes.h>
#include <stdlib.h>

enum { MOST = 4096 }; /* devices */

static bool json;

static const option options[] = {
    {"json", NULL, KIND_FLAG, &json, .help = "print it as JSON"},
    {0},
};

static void size_row(const char *name, int64_t bytes)
{
    char text[32];

    printf("%-18s %s\n", name, bytes ? bytes_text(bytes, text, sizeof(text)) : "unknown");
}

/* "any number; in use: 0, 1" */
static int virtual_row(void)
{
    int n = ts_device_count(), count, last = -1;
    ts_device_use *uses;

    if (ts_device_list(&uses, &count))
        return failed();
    printf("%-18s ", "virtual devices");
    if (n)
        printf("%d", n);
    else
        printf("as many as asked for; TESSERA_DEVICES can say how many");
    for (int device = 0, shown = 0; device < MOST; device++)
        for (int i = 0; i < count; i++)
            if (uses[i].device == device && device != last) {
                printf("%s%d", shown++ ? ", " : "; in use: ", device);
                last = device;
            }
    printf("\n");
    free(uses);
    return TOOL_OK;
}

/* Its name, or why there is none. */
static void gpu_row(const char *name, ts_device_kind kind)
{
    char text[256];

    printf("%-18s %s\n", name,
           ts_device_describe(kind, text, sizeof(text)) ? ts_last_error()->message : text);
}

static int print_json(const ts_machine_info *m)
{
    char gpu[256], opencl[256];

    printf("{");
    json_text("processor", m->processor);
    printf(", \"cores\": %d, \"allowed\": %d, \"quota\": %.9g, \"threads\": %d, ", m->cores,
           m->allowed, m->quota, m->threads);
    json_text("isa", m->isa);
    printf(", \"level1\": %" PRId64 ", \"level2\": %" PRId64 ", \"level3\": %" PRId64
           ", \"memory\": %" PRId64 ", \"available\": %" PRId64 ", ",
           (int64_t)m->level1, (int64_t)m->level2, (int64_t)m->level3, (int64_t)m->memory,
           (int64_t)m->available);
    json_text("compiler", m->compiler[0] ? m->compiler : NULL);
    printf(", ");
    json_text("gpu", ts_device_describe(TS_DEVICE_GPU, gpu, sizeof(gpu)) ? NULL : gpu);
    printf(", ");
    json_text("opencl",
              ts_device_describe(TS_DEVICE_OPENCL, opencl, sizeof(opencl)) ? NULL : opencl);
    printf(", \"virtual_devices\": %d}\n", ts_device_count());
    return TOOL_OK;
}

static int run(void)
{
    ts_machine_info m;

    ts_machine(&m);
    if (json)
        return print_json(&m);
    printf("%-18s %s\n", "processor", m.processor[0] ? m.processor : "unknown");
    printf("%-18s %d\n", "cores", m.cores);
    printf("%-18s %d\n", "cores allowed", m.allowed);
    if (m.quota > 0)
        printf("%-18s %g cores\n", "quota", m.quota);
    printf("%-18s %d\n", "threads by default", m.threads);
    printf("%-18s %s\n", "instructions", m.isa[0] ? m.isa : "TESSERA_ISA names none that is known");
    size_row("level 1 cache", m.level1);
    size_row("level 2 cache", m.level2);
    size_row("level 3 cache", m.level3);
    size_row("memory", m.memory);
    size_row("memory available", m.available);
    printf("%-18s %s\n", "compiler",
           m.compiler[0] ? m.compiler
                         : "none: the reference executor runs, slowly; install gcc or clang");
    gpu_row("gpu", TS_DEVICE_GPU);
    gpu_row("opencl", TS_DEVICE_OPENCL);
    return virtual_row();
}

const command devices_command = {
    .name = "devices",
    .summary = "Shows what this machine offers: cores, caches, memory, compiler, devices",
    .options = options,
    .run = run,
    .examples = "devices\n",
};
