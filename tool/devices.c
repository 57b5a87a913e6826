/* devices.c - tessera devices: what a training step can use on this machine. */
#include "tool.h"
#include <inttypes.h>

static void size_row(const char *name, int64_t bytes)
{
    char text[32];

    printf("%-18s %s\n", name, bytes ? bytes_text(bytes, text, sizeof(text)) : "unknown");
}

static int run(void)
{
    ts_machine_info m;

    ts_machine(&m);
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
    return TOOL_OK;
}

const command devices_command = {
    .name = "devices",
    .summary = "Shows what this machine offers: cores, instructions, caches, memory, compiler",
    .run = run,
    .examples = "devices\n",
};
