/* machine.c - the machine that a program is made for: instructions, cores, caches, costs.
 *
 * Three sources, the later ones win:
 *
 *   the system      cores, cache sizes: sysconf, which asks the processor or /sys
 *   a table         what cannot be read, by instruction set and processor, measured once by hand
 *   TESSERA_MACHINE "cores=8 level2=524288": tests, other machines, processes that must agree
 *
 * A program must not depend on what else the machine does, so nothing is measured here. In cycles the
 * numbers of the table hold for a decade of processors within a factor that no choice depends on;
 * bench/machine.c measures some of them, to see.
 */
#include "machine/machine.h"
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

/* "in-c" is for tests on machines without AMX: the same kernels, their tiles in arrays. */
static const ts_isa isas[] = {
    {"x86-64-v4-amx", "-march=x86-64-v4 -mavx512bf16 -mtune=native", 16, 32, true, true},
    {"x86-64-v4-bf16", "-march=x86-64-v4 -mavx512bf16 -mtune=native", 16, 32, true, false},
    {"x86-64-v4", "-march=x86-64-v4 -mtune=native", 16, 32, false, false},
    {"x86-64-v4-amx-in-c", "-march=x86-64-v4 -DTILES_IN_C", 16, 32, false, true},
    {"x86-64-v3", "-march=x86-64-v3", 8, 16, false, false},
    {"portable", "", 4, 16, false, false},
};

/* AMX with bf16, and the system lets us have its registers: asked once, and true for all threads. */
static bool may_use_tiles(void)
{
#if defined(__x86_64__) && defined(__linux__)
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XTILEDATA = 18, AMX_BF16 = 1 << 22, AMX_TILE = 1 << 24 };
    unsigned a = 0, b = 0, c = 0, d = 0;

    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && d & AMX_BF16 && d & AMX_TILE &&
           !syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XTILEDATA);
#else
    return false;
#endif
}

static const char *best_with_halves(void)
{
    return may_use_tiles() ? "x86-64-v4-amx" : "x86-64-v4-bf16";
}

/* The best of them this machine runs; those after it in the table run too. */
static const char *this_isa(void)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
        __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2")) {
        if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
            __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw"))
            return __builtin_cpu_supports("avx512bf16") ? best_with_halves() : "x86-64-v4";
        return "x86-64-v3";
    }
#endif
    return "portable";
}

static int isa_index(const char *name)
{
    for (int i = 0; i < TS_COUNT(isas); i++)
        if (!strcmp(isas[i].name, name))
            return i;
    return -1;
}

ts_status ts_isa_check(const char *isa)
{
    int i = isa_index(isa);

    if (i >= 0 && i >= isa_index(this_isa()))
        return TS_OK;
    ts_fail(TS_ERR_UNSUPPORTED, "the step is compiled for %s; this machine runs %s", isa,
            this_isa());
    ts_error_hint("compile it on this machine, or with isa = \"portable\"");
    return TS_ERR_UNSUPPORTED;
}

ts_status ts_isa_find(const char *name, ts_isa *out)
{
    const char *env = getenv("TESSERA_ISA");

    name = name ? name : env && env[0] ? env : this_isa();
    if (isa_index(name) >= 0) {
        *out = isas[isa_index(name)];
        return TS_OK;
    }
    ts_fail(TS_ERR_ARG, "the instruction set '%s' is not known", name);
    ts_error_hint("use x86-64-v4-amx, x86-64-v4-bf16, x86-64-v4, x86-64-v3 or portable");
    return TS_ERR_ARG;
}

/* --- what the system says --- */

static int64_t power_of_2(int64_t n)
{
    int64_t p = 1;

    while (2 * p <= n)
        p *= 2;
    return p;
}

static int64_t size_of(int name, int64_t otherwise)
{
    long n = sysconf(name);

    return n > 0 ? power_of_2(n) : otherwise;
}

/* Zen 4, two cores of a virtual machine: 116 GFLOP/s with AVX2 and with AVX-512, so a unit takes 32
 * bytes; copies at 108 GB/s from level 2, 95 from level 3 and 27 from memory; a line goes to the other core
 * in 47 to 480 ns, and threads meet after two to four of those. */
static ts_machine_model system_model(void)
{
    return (ts_machine_model){.cores = (int)TS_MAX(2, power_of_2(sysconf(_SC_NPROCESSORS_ONLN))),
                              .line = (int)size_of(_SC_LEVEL1_DCACHE_LINESIZE, 64),
                              .level1 = size_of(_SC_LEVEL1_DCACHE_SIZE, 32 << 10),
                              .level2 = size_of(_SC_LEVEL2_CACHE_SIZE, 512 << 10),
                              .level3 = size_of(_SC_LEVEL3_CACHE_SIZE, 0),
                              .unit = 16,
                              .units = 2,
                              .latency = 4,
                              .near = 32,
                              .far = 25,
                              .memory = 8,
                              .meet = 512,
                              .hertz = 3.5e9};
}

/* Does the processor do 64 bytes in two halves, one after the other? AMD's did up to Zen 4. */
static bool halves(void)
{
#if defined(__x86_64__)
    unsigned a = 0, b = 0, c = 0, d = 0, family;

    if (!__get_cpuid(0, &a, &b, &c, &d) || c != signature_AMD_ecx)
        return false;
    __get_cpuid(1, &a, &b, &c, &d);
    family = ((a >> 8) & 15) + ((a >> 20) & 255);
    return family <= 0x19;
#else
    return false;
#endif
}

static ts_machine_model here; /* this machine, but for the instruction set */
static bool here_halves;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void look(void)
{
    here = system_model();
    here_halves = halves();
}

ts_status ts_machine_find(const char *isa, ts_machine_model *out)
{
    const char *given = getenv("TESSERA_MACHINE");
    ts_isa found;

    TS_TRY(ts_isa_find(isa, &found));
    pthread_once(&once, look);
    *out = here;
    out->isa = found;
    out->unit = TS_MIN(4 * found.width, here_halves ? 32 : 64);
    return given ? ts_machine_parse(given, out) : TS_OK;
}

/* --- as text --- */

static const struct {
    const char *name;
    char kind; /* i int, l int64_t, f double */
    size_t at;
} fields[] = {
#define FIELD(kind, name)                                                                          \
    {                                                                                              \
#name, kind, offsetof(ts_machine_model, name)                                              \
    }
    FIELD('i', cores),  FIELD('i', line), FIELD('l', level1), FIELD('l', level2),
    FIELD('l', level3), FIELD('i', unit), FIELD('i', units),  FIELD('i', latency),
    FIELD('f', near),   FIELD('f', far),  FIELD('f', memory), FIELD('f', meet),
    FIELD('f', hertz),
#undef FIELD
};

static double get(const ts_machine_model *m, int i)
{
    const void *p = (const char *)m + fields[i].at;

    return fields[i].kind == 'i'   ? *(const int *)p
           : fields[i].kind == 'l' ? (double)*(const int64_t *)p
                                   : *(const double *)p;
}

static void set(ts_machine_model *m, int i, double x)
{
    void *p = (char *)m + fields[i].at;

    if (fields[i].kind == 'i')
        *(int *)p = (int)x;
    else if (fields[i].kind == 'l')
        *(int64_t *)p = (int64_t)x;
    else
        *(double *)p = x;
}

const char *ts_machine_text(ts_arena *a, const ts_machine_model *m)
{
    const char *s = "";

    for (int i = 0; i < TS_COUNT(fields); i++)
        s = ts_arena_printf(a, "%s%s%s=%.15g", s, i ? " " : "", fields[i].name, get(m, i));
    return s;
}

static ts_status bad_part(const char *part, size_t len)
{
    ts_fail(TS_ERR_ARG, "'%.*s' does not describe a machine", (int)TS_MIN(len, 60), part);
    ts_error_hint("TESSERA_MACHINE is like \"cores=2 level2=1048576\"; man tessera has the names");
    return TS_ERR_ARG;
}

/* Sizes are whole, and only the last cache may be missing; a price of 0 would divide. */
static bool fits(int i, double x)
{
    bool whole = fields[i].kind != 'f';

    if (whole && (x < 0 || x > 0x1p40 || x != (double)(int64_t)x))
        return false;
    if (fields[i].kind == 'i' && x > 0x1p20)
        return false;
    return x > 0 ? x < 1e15 : x == 0 && !strcmp(fields[i].name, "level3");
}

ts_status ts_machine_parse(const char *text, ts_machine_model *m)
{
    for (const char *p = text + strspn(text, " "); *p; p += strspn(p, " ")) {
        size_t len = strcspn(p, " "), name = strcspn(p, "= ");
        int i = 0;
        char *end;
        double x;
        while (i < TS_COUNT(fields) &&
               (strlen(fields[i].name) != name || strncmp(fields[i].name, p, name)))
            i++;
        if (i == TS_COUNT(fields) || p[name] != '=')
            return bad_part(p, len);
        x = ts_to_real(p + name + 1, &end);
        if (end != p + len || end == p + name + 1 || !fits(i, x))
            return bad_part(p, len);
        set(m, i, x);
        p += len;
    }
    return TS_OK;
}
