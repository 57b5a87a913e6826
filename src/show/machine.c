/* machine.c - what a step can use here: cores, instructions, caches, memory, the compiler. */
#include "render/render.h"
#include "run/run.h"
#include <inttypes.h>
#include <unistd.h>

/* The value of "key : value" or "key: value" in a file of /proc; "" when there is none. */
static void proc_value(const char *path, const char *key, char *out, size_t size)
{
    FILE *f = fopen(path, "r");
    char line[512];
    size_t n = strlen(key);

    out[0] = 0;
    while (f && !out[0] && fgets(line, sizeof(line), f)) {
        const char *colon = strchr(line, ':');
        if (!colon || strncmp(line, key, n) || line[n + strspn(line + n, " \t")] != ':')
            continue;
        colon += 1 + strspn(colon + 1, " \t");
        snprintf(out, size, "%.*s", (int)strcspn(colon, "\n"), colon);
    }
    if (f)
        fclose(f);
}

static int64_t kilobytes(const char *key)
{
    char s[64];

    proc_value("/proc/meminfo", key, s, sizeof(s));
    return (int64_t)strtoll(s, NULL, 10) * 1024;
}

static int64_t known(long n)
{
    return n > 0 ? n : 0;
}

static void find_compiler(char *out, size_t size)
{
    static const ts_options defaults;
    ts_arena *a = ts_arena_new();
    const char *cc = ts_cc_identity(a, &defaults);

    snprintf(out, size, "%s", cc ? cc : "");
    ts_arena_free(a);
}

static void look(ts_machine_info *out)
{
    ts_isa isa = {.name = ""};
    ts_error before = *ts_last_error();

    *out = (ts_machine_info){
        .cores = (int)sysconf(_SC_NPROCESSORS_ONLN),
        .allowed = ts_core_count(),
        .quota = ts_core_quota(),
        .threads = ts_team_default_size(),
        .level1 = known(sysconf(_SC_LEVEL1_DCACHE_SIZE)),
        .level2 = known(sysconf(_SC_LEVEL2_CACHE_SIZE)),
        .level3 = known(sysconf(_SC_LEVEL3_CACHE_SIZE)),
        .memory = kilobytes("MemTotal"),
        .available = kilobytes("MemAvailable"),
    };
    (void)ts_isa_find(NULL, &isa);
    ts_error_set(&before);
    out->isa = isa.name;
    proc_value("/proc/cpuinfo", "model name", out->processor, sizeof(out->processor));
    find_compiler(out->compiler, sizeof(out->compiler));
}

void ts_machine_sized(ts_machine_info *out, size_t size)
{
    ts_machine_info own;

    look(&own);
    ts_give(&own, sizeof(own), out, size);
}
