/* ranks.c - tessera train in several processes, which mpirun or srun started together.
 *
 *   a call of the engine, all processes     [iteration][accumulation][process][batch]
 *   what process 1 of 3 takes of it         .  1  .  .  1  .  .  1  .
 *
 * So a run of P processes computes what one process with P times the accumulation does. Process 0
 * writes the files and talks; the others are heard when something is wrong. All of them must make
 * the same calls in the same order, so what one of them decides by itself, as after Ctrl-C, is
 * agreed upon first.
 */
#include "train.h"
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

static ts_comm *processes;
static int agreed; /* the signal that all of them end on */

int ranks_open(void)
{
    if (ts_comm_open(&processes))
        return failed();
    if (is_first())
        return TOOL_OK;
    asked.quiet = asked.no_plots = true;
    asked.json = false;
    asked.csv = asked.logdir = asked.plots = NULL;
    return TOOL_OK;
}

void ranks_close(void)
{
    ts_comm_close(processes);
    processes = NULL;
}

const ts_comm *ranks(void)
{
    return processes && processes->size > 1 ? processes : NULL;
}

int rank_count(void)
{
    return processes ? processes->size : 1;
}

bool is_first(void)
{
    return !processes || !processes->rank;
}

int ranks_total(double *loss, int64_t *right)
{
    double all[3] = {*loss, (double)*right, stop_signal() != 0};

    if (!ranks())
        agreed = stop_signal();
    else if (processes->sum(processes->self, TS_F64, all, COUNT(all)))
        return failed();
    else if (all[2] > 0)
        agreed = stop_signal() ? stop_signal() : SIGTERM;
    *loss = all[0];
    *right = (int64_t)all[1];
    return TOOL_OK;
}

int ranks_sum(double *x, int64_t n)
{
    return ranks() && processes->sum(processes->self, TS_F64, x, n) ? failed() : TOOL_OK;
}

int ranks_stop(void)
{
    return ranks() ? agreed : stop_signal();
}

int ranks_wait(void)
{
    double nothing = 0;

    return ranks() && processes->sum(processes->self, TS_F64, &nothing, 1) ? failed() : TOOL_OK;
}

/* --- going on --- */

static int read_all(const char *path, char **bytes, int64_t *size)
{
    FILE *f = fopen(path, "rb");
    int code = TOOL_FAILED;

    if (f && !fseek(f, 0, SEEK_END) && (*size = ftell(f)) >= 0 && !fseek(f, 0, SEEK_SET) &&
        (*bytes = malloc((size_t)*size + 1)) && fread(*bytes, 1, (size_t)*size, f) == (size_t)*size)
        code = TOOL_OK;
    if (f)
        fclose(f);
    return code ? failure("cannot read %s", path) : TOOL_OK;
}

/* The others need not have the file. */
int ranks_load(const char *path, ts_object **file)
{
    int64_t size = 0;
    char *bytes = NULL;
    int code = TOOL_OK;

    if (!ranks())
        return ts_object_load(path, file) ? failed() : TOOL_OK;
    if (is_first())
        code = read_all(path, &bytes, &size);
    if (!code && processes->copy(processes->self, &size, sizeof(size)))
        code = failed();
    if (!code && !is_first() && !(bytes = malloc((size_t)size + 1)))
        code = failure("no memory for the checkpoint, %" PRId64 " bytes", size);
    if (!code && processes->copy(processes->self, bytes, (size_t)size))
        code = failed();
    if (!code && ts_object_load_memory(bytes, (size_t)size, file))
        code = failed();
    free(bytes);
    return code;
}

/* Another number of processes goes on with the same updates when their batches can be dealt out
 * anew: two processes, or one that accumulates twice as many. */
int resume_processes(const run *r, const ts_object *own)
{
    int64_t then = ts_object_int(ts_object_get(own, "processes"), 1), batches;

    if (then < 1 || then > INT32_MAX || then == rank_count())
        return TOOL_OK;
    batches = chosen.accumulation * then;
    if (batches % rank_count())
        return explain(TS_ERR_ARG, r->resume, "going on from a checkpoint",
                       "go on with as many processes as before, or with one",
                       "%" PRId64 " batches make one update of the run to go on with; they do not "
                       "divide among %d processes",
                       batches, rank_count());
    chosen.accumulation = batches / rank_count();
    say("The run had %" PRId64 " processes; now each takes %" PRId64 " of the %" PRId64
        " batches of an update",
        then, chosen.accumulation, batches);
    return TOOL_OK;
}
