/* launch.c - tessera run: starts a program in several processes, through mpirun.
 *
 * It only writes mpirun's command line. The processes find each other by what mpirun tells them
 * (ts_comm_open); Python scripts also by poprun's variables, of which two differ from process to
 * process and are set by a line of shell.
 */
#include "tool.h"
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern char **environ;

static struct {
    int64_t processes, replicas, ipus;
    const char *hosts, *mpi;
    bool tag, dry_run;
    words program;
} asked = {.processes = 1, .ipus = 1};

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
    {"mpi-global-args", "TEXT", KIND_TEXT, &asked.mpi,
     .help = "more options for mpirun, with blanks between them"},
    {"tag-output", NULL, KIND_FLAG, &asked.tag,
     .help = "put the number of the process before each line of output"},
    {"dry-run", NULL, KIND_FLAG, &asked.dry_run, .help = "print the command instead of running it"},
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
 * which would give a process only one: the processes of a machine share them by themselves. When it
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
    add("--bind-to");
    add("none");
    add("--mca");
    add("odls_base_sigkill_timeout");
    add("2");
    if (asked.tag)
        add("--tag-output");
}

static void add_given(void)
{
    char *copy = asked.mpi ? strdup(asked.mpi) : NULL, *rest = copy, *word;

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

/* "tessera" is this one; another machine has its own. */
static void add_program(void)
{
    char self[4096];
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

    add("sh");
    add("-c");
    add("POPDIST_REPLICA_INDEX_OFFSET=$((OMPI_COMM_WORLD_RANK * %" PRId64 ")) "
        "POPDIST_LOCAL_INSTANCE_INDEX=$OMPI_COMM_WORLD_LOCAL_RANK exec \"$0\" \"$@\"",
        asked.replicas / asked.processes);
    for (int i = 0; i < asked.program.count; i++)
        if (!i && n > 0 && !asked.hosts && !strcmp(asked.program.word[0], "tessera"))
            add("%.*s", (int)n, self);
        else
            add("%s", asked.program.word[i]);
}

static int start(void)
{
    execvp(line[0], line);
    if (errno == ENOENT)
        return explain(TS_ERR_UNSUPPORTED, NULL, "starting processes",
                       "install Open MPI: the package openmpi-bin has it",
                       "mpirun, which starts processes, is not there");
    return failure("cannot run mpirun: %s", strerror(errno));
}

static int run(void)
{
    if (!asked.replicas)
        asked.replicas = asked.processes;
    if (asked.replicas % asked.processes)
        return usage_error(
            "run", "%" PRId64 " replicas cannot be divided evenly among %" PRId64 " processes",
            asked.replicas, asked.processes);
    add_mpirun();
    add_given();
    add_environment();
    add_poprun();
    add_program();
    line[nline] = NULL;
    if (nline == MOST_WORDS)
        return failure("the command is too long: more than %d words", MOST_WORDS - 1);
    if (!asked.dry_run)
        return start();
    for (int i = 0; i < nline; i++) {
        if (i)
            putchar(' ');
        shell_quote(stdout, line[i]);
    }
    putchar('\n');
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
            "scripts find their place through poptorch.Options().Distributed or popdist.",
    .examples = "run -n 4 -- tessera train fashion-mnist --batch-size 16\n"
                "run -n 4 --hosts a:2,b:2 -- tessera train fashion-mnist\n"
                "run -n 2 --num-replicas 4 --dry-run -- python3 train.py\n",
};
