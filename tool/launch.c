/* launch.c - tessera run: starts a program in several processes, through mpirun.
 *
 * It only writes mpirun's command line. The processes find each other by what mpirun tells them
 * (ts_comm_open); Python scripts also by poprun's variables, of which two differ from process to
 * process and are set by a line of shell.
 */
#include "tool.h"
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern char **environ;

enum { NOBODY = -1 };
static struct {
    int64_t processes, replicas, ipus, speaker;
    const char *hosts, *global, *local, *cache, *import, *export;
    bool tag, dry_run, numa, topology, overwrite, verbose;
    words program;
} asked = {.processes = 1, .ipus = 1, .speaker = NOBODY};

/* What poprun asks of the servers that lend IPUs, and of IPUs: there are none here. */
static struct {
    const char *host, *partition, *allocation;
    int64_t port, timeout, attempts, domains;
    bool update, reset, remove, offline;
} ignored;

#define IGNORED "poprun's; accepted, no effect here"
static const option ignored_options[] = {
    {"num-ilds", "N", KIND_INT, &ignored.domains, IGNORED, .low = 1, .high = 1 << 20},
    {"vipu-server-host", "NAME", KIND_TEXT, &ignored.host, .help = IGNORED},
    {"vipu-server-port", "N", KIND_INT, &ignored.port, IGNORED, .low = 1, .high = 65535},
    {"vipu-server-timeout", "N", KIND_INT, &ignored.timeout, IGNORED, .low = 1, .high = 1 << 20},
    {"vipu-partition", "NAME", KIND_TEXT, &ignored.partition, .help = IGNORED},
    {"vipu-partition-attempts", "N", KIND_INT, &ignored.attempts, IGNORED, .low = 1,
     .high = 1 << 20},
    {"vipu-allocation", "NAME", KIND_TEXT, &ignored.allocation, .help = IGNORED},
    {"vipu-cluster", "NAME", KIND_TEXT, &ignored.allocation, .help = IGNORED},
    {"update-partition", NULL, KIND_SWITCH, &ignored.update, .help = IGNORED},
    {"reset-partition", NULL, KIND_SWITCH, &ignored.reset, .help = IGNORED},
    {"remove-partition", NULL, KIND_SWITCH, &ignored.remove, .help = IGNORED},
    {"offline-mode", NULL, KIND_SWITCH, &ignored.offline, .help = IGNORED},
    {0},
};

static const option options[] = {
    {"PROGRAM", NULL, KIND_WORDS, &asked.program, "what to run, and its arguments",
     .argument = true, .needed = true},
    {"processes", "N", KIND_INT, &asked.processes, "how many processes; also -n", .low = 1,
     .high = 65536, .letter = 'n'},
    {"num-instances", "N", KIND_INT, &asked.processes, "the same, as poprun calls it", .low = 1,
     .high = 65536},
    {"hosts", "LIST", KIND_TEXT, &asked.hosts,
     .help = "machines, and how many processes each may take: a,b:2; also -H", .letter = 'H'},
    {"host", "LIST", KIND_TEXT, &asked.hosts, .help = "the same, as poprun calls it"},
    {"num-replicas", "N", KIND_INT, &asked.replicas,
     "replicas of all processes together; one in each when not given", .low = 1, .high = 1 << 20},
    {"ipus-per-replica", "N", KIND_INT, &asked.ipus, "devices of a replica", .low = 1,
     .high = 1024},
    {"numa-aware", NULL, KIND_SWITCH, &asked.numa,
     .help = "keep each process on the cores of one NUMA node"},
    {"executable-cache-path", "DIR", KIND_TEXT, &asked.cache,
     "where the processes keep what they compile", .takes = TAKES_FOLDER},
    {"only-output-from-instance", "N", KIND_INT, &asked.speaker,
     "show what this process prints, and nothing of the others", .low = 0, .high = 65535},
    {"tag-output", NULL, KIND_FLAG, &asked.tag,
     .help = "put the number of the process before each line of output"},
    {"print-topology", NULL, KIND_SWITCH, &asked.topology,
     .help = "print which process runs where and which replicas it has, first"},
    {"mpi-global-args", "TEXT", KIND_TEXT, &asked.global,
     .help = "more options for mpirun, with blanks between them"},
    {"mpi-local-args", "TEXT", KIND_TEXT, &asked.local,
     .help = "more options of mpirun for the program, as in '-x NAME=VALUE --wdir DIR'"},
    {"import-config", "FILE", KIND_TEXT, &asked.import,
     "take options that are not given from there", .takes = TAKES_FILE},
    {"export-config", "FILE", KIND_TEXT, &asked.export, "write the options that are given there",
     .takes = TAKES_FILE},
    {"overwrite-config", NULL, KIND_SWITCH, &asked.overwrite,
     .help = "even if there is such a file already"},
    {"verbose", NULL, KIND_FLAG, &asked.verbose,
     .help = "print the command, and what has no effect here; also -v, -vv", .letter = 'v'},
    {"dry-run", NULL, KIND_FLAG, &asked.dry_run, .help = "print the command instead of running it"},
    {.name = "ignored", .kind = KIND_GROUP, .target = (void *)ignored_options},
    {0},
};

/* --- mpirun's line --- */

enum { MOST_WORDS = 4096 };
static char *line[MOST_WORDS + 1];
static int nline;

static void add(const char *fmt, ...) PRINTF(1, 2);
static void add(const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    if (nline < MOST_WORDS && vasprintf(&line[nline], fmt, ap) >= 0)
        nline++;
    va_end(ap);
}

/* This machine may have fewer cores than there are processes. Cores are not dealt out by mpirun,
 * which would give a process only one: the processes of a machine, or of a NUMA node that they were
 * put on, share them by themselves. When it
 * is interrupted, mpirun waits as long as it is told here, once before it asks the processes to end
 * and again before it kills them: time to write a checkpoint. */
static void add_mpirun(void)
{
    add("mpirun");
    if (!geteuid())
        add("--allow-run-as-root");
    add("-n");
    add("%" PRId64, asked.processes);
    if (asked.hosts) {
        add("--host");
        add("%s", asked.hosts);
    } else {
        add("--oversubscribe");
    }
    if (asked.numa) {
        add("--map-by");
        add("numa");
    }
    add("--bind-to");
    add(asked.numa ? "numa:overload-allowed" : "none");
    add("--mca");
    add("odls_base_sigkill_timeout");
    add("2");
    if (asked.tag)
        add("--tag-output");
}

static void add_given(const char *text)
{
    char *copy = text ? strdup(text) : NULL, *rest = copy, *word;

    while (rest && (word = strsep(&rest, " ")))
        if (*word)
            add("%s", word);
    free(copy);
}

static void set(const char *name, int64_t value)
{
    add("-x");
    add("%s=%" PRId64, name, value);
}

/* What the processes of other machines would not inherit. */
static void add_environment(void)
{
    static const char *const kept[] = {"TESSERA_", "POPTORCH_",
                                       "OMP_NUM_THREADS=", "LD_LIBRARY_PATH=", "PYTHONPATH="};

    for (char **e = environ; asked.hosts && *e; e++)
        for (int i = 0; i < COUNT(kept); i++)
            if (!strncmp(*e, kept[i], strlen(kept[i]))) {
                add("-x");
                add("%.*s", (int)strcspn(*e, "="), *e);
            }
}

static void add_poprun(void)
{
    set("POPDIST_NUM_TOTAL_REPLICAS", asked.replicas);
    set("POPDIST_NUM_IPUS_PER_REPLICA", asked.ipus);
    set("POPDIST_NUM_LOCAL_REPLICAS", asked.replicas / asked.processes);
    set("POPDIST_UNIFORM_REPLICAS_PER_INSTANCE", 1);
}

/* Both names, as the one that is set outside would win over the other. */
static void add_cache(void)
{
    for (int i = 0; asked.cache && i < 2; i++) {
        add("-x");
        add("%s_CACHE_DIR=%s", i ? "POPTORCH" : "TESSERA", asked.cache);
    }
}

/* "tessera" is this one; another machine has its own. */
static void add_program(void)
{
    char self[4096], quiet[128] = "";
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

    if (asked.speaker != NOBODY)
        snprintf(quiet, sizeof(quiet),
                 "[ $OMPI_COMM_WORLD_RANK = %" PRId64 " ] || exec >/dev/null 2>&1; ",
                 asked.speaker);
    add("sh");
    add("-c");
    add("%sPOPDIST_REPLICA_INDEX_OFFSET=$((OMPI_COMM_WORLD_RANK * %" PRId64 ")) "
        "POPDIST_LOCAL_INSTANCE_INDEX=$OMPI_COMM_WORLD_LOCAL_RANK exec \"$0\" \"$@\"",
        quiet, asked.replicas / asked.processes);
    for (int i = 0; i < asked.program.count; i++)
        if (!i && n > 0 && !asked.hosts && !strcmp(asked.program.word[0], "tessera"))
            add("%.*s", (int)n, self);
        else
            add("%s", asked.program.word[i]);
}

/* --- what is said --- */

/* The machine of the process: mpirun fills one after the other. "a,b:2" has one place on a. */
static void host_of(int64_t process, char *out, size_t size)
{
    const char *p = asked.hosts ? asked.hosts : "";
    size_t n;

    for (; *p; p += n + (p[n] == ',')) {
        size_t name = strcspn(p, ",:");
        int64_t places = p[name] == ':' ? strtoll(p + name + 1, NULL, 10) : 1;
        n = strcspn(p, ",");
        if (process < places) {
            snprintf(out, size, "%.*s", (int)name, p);
            return;
        }
        process -= places;
    }
    snprintf(out, size, "%s", asked.hosts ? "-" : "localhost");
}

static void print_topology(void)
{
    int64_t each = asked.replicas / asked.processes;
    char host[256], replicas[64], devices[64];

    printf("%-8s %-20s %-12s %s\n", "process", "host", "replicas", "devices");
    for (int64_t i = 0; i < asked.processes; i++) {
        host_of(i, host, sizeof(host));
        snprintf(replicas, sizeof(replicas), "%" PRId64 "-%" PRId64, i * each, (i + 1) * each - 1);
        snprintf(devices, sizeof(devices), "%" PRId64 " x %" PRId64, each, asked.ipus);
        printf("%-8" PRId64 " %-20s %-12s %s\n", i, host, replicas, devices);
    }
    fflush(stdout);
}

static void print_line(FILE *f)
{
    for (int i = 0; i < nline; i++) {
        if (i)
            fputc(' ', f);
        shell_quote(f, line[i]);
    }
    fputc('\n', f);
}

static void say_more(void)
{
    for (const option *o = ignored_options; o->name; o++)
        if (given(o->target) &&
            !(o->target == &ignored.allocation && !strcmp(o->name, "vipu-cluster")))
            fprintf(stderr, "tessera run: --%s has no effect here\n", o->name);
    print_line(stderr);
}

/* --- all --- */

static int start(void)
{
    signal(SIGXFSZ, SIG_DFL);
    execvp(line[0], line);
    if (errno == ENOENT)
        return explain(TS_ERR_UNSUPPORTED, NULL, "starting processes",
                       "install Open MPI: the package openmpi-bin has it",
                       "mpirun, which starts processes, is not there");
    return failure("cannot run mpirun: %s", strerror(errno));
}

static int check(void)
{
    if (!asked.replicas)
        asked.replicas = asked.processes;
    if (asked.replicas % asked.processes)
        return usage_error(
            "run", "%" PRId64 " replicas cannot be divided evenly among %" PRId64 " processes",
            asked.replicas, asked.processes);
    if (asked.speaker >= asked.processes)
        return usage_error("run",
                           "--only-output-from-instance is %" PRId64
                           "; the processes have the numbers 0 to %" PRId64,
                           asked.speaker, asked.processes - 1);
    if (asked.overwrite && !asked.export)
        return usage_error("run", "--overwrite-config needs --export-config");
    return TOOL_OK;
}

static int configure(void)
{
    static const char *const once[] = {"import-config", "export-config", "overwrite-config",
                                       "dry-run", NULL};
    int code = asked.import ? config_import(&run_command, asked.import) : TOOL_OK;

    if (!code)
        code = check();
    if (!code && asked.export)
        code = config_export(&run_command, asked.export, asked.overwrite, once);
    return code;
}

static int run(void)
{
    int code = configure();

    if (code)
        return code;
    add_mpirun();
    add_given(asked.global);
    add_environment();
    add_poprun();
    add_cache();
    add_given(asked.local);
    add_program();
    line[nline] = NULL;
    if (nline == MOST_WORDS)
        return failure("the command is too long: more than %d words", MOST_WORDS - 1);
    if (asked.topology)
        print_topology();
    if (asked.verbose)
        say_more();
    if (!asked.dry_run)
        return start();
    print_line(stdout);
    return TOOL_OK;
}

const command run_command = {
    .name = "run",
    .summary = "Runs a program in several processes that train together, on one or many machines",
    .options = options,
    .run = run,
    .only_words = true,
    .more = "The options come before the program. It is started with Open MPI's mpirun; each "
            "process of\n"
            "'tessera train' takes its own part of the data, and the first one writes the files. "
            "Python\n"
            "scripts find their place through poptorch.Options().Distributed or popdist. It takes\n"
            "poprun's options, and is that command when it is called poprun.",
    .examples = "run -n 4 -- tessera train fashion-mnist --batch-size 16\n"
                "run -n 4 --hosts a:2,b:2 -- tessera train fashion-mnist\n"
                "run -n 2 --num-replicas 4 --dry-run -- python3 train.py\n",
};
