/* mpi.c - libtessera_mpi.so: bytes between processes, over MPI.
 *
 * All goes by messages between two processes that are waited for here, not by MPI's collective
 * calls: those may add in any order, and when a process dies they wait for ever and cannot say for
 * whom. The wait looks a while, then sleeps in between, so that processes which share cores leave
 * them to those who compute. A process of this machine that we wait for is looked for once a
 * second; one of another machine is given up after the caller's time.
 *
 * MPI ends with the program: with exit status 0 it waits for the others, with another it ends them
 * all, because they would wait for us.
 */
#include "mpi/mpi.h"
#include <errno.h>
#include <limits.h>
#include <mpi.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Where a process can be asked for: processes of one space see each other's numbers. */
typedef struct place {
    char host[64];
    uint64_t space; /* the inode of its process numbers */
    int64_t pid;
} place;

static ts_mpi self;
static MPI_Comm world = MPI_COMM_NULL;
static MPI_Request *requests; /* [2 * size]: what comes from each, what goes to each */
static place *places;         /* [size] */
static bool ended;

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void describe(int error, char *out, size_t size)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int n;

    if (MPI_Error_string(error, text, &n))
        snprintf(text, sizeof(text), "MPI error %d", error);
    snprintf(out, size, "%s", text);
}

static bool lost(int rank, const char *why)
{
    self.lost = rank;
    if (why != self.error)
        snprintf(self.error, sizeof(self.error), "%s", why);
    return false;
}

static bool broken(int rank, int error)
{
    describe(error, self.error, sizeof(self.error));
    return lost(rank, self.error);
}

/* --- waiting --- */

static bool is_dead(int rank)
{
    const place *a = &places[self.rank], *b = &places[rank];

    return a->space == b->space && !strncmp(a->host, b->host, sizeof(a->host)) &&
           kill((pid_t)b->pid, 0) && errno == ESRCH;
}

static int whose(int request)
{
    return request % self.size;
}

/* Of those we wait for, one that is dead; or with `any` one that may live; or -1. */
static int missing(bool any)
{
    for (int i = 0; i < 2 * self.size; i++)
        if (requests[i] != MPI_REQUEST_NULL && (any || is_dead(whose(i))))
            return whose(i);
    return -1;
}

/* The first looks are free; then the cores are for others. */
static void rest(int looks)
{
    if (looks > 5000)
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    else if (looks > 200)
        sched_yield();
}

static bool wait_all(double seconds)
{
    double begin = now(), asked = begin;
    int done = 0, looks = 0, rank;

    for (;;) {
        double t;
        for (int i = 0, error; i < 2 * self.size; i++)
            if (requests[i] != MPI_REQUEST_NULL) {
                error = MPI_Test(&requests[i], &done, MPI_STATUS_IGNORE);
                if (error)
                    return broken(whose(i), error);
                if (done)
                    looks = 0;
            }
        if (missing(true) < 0)
            return true;
        rest(++looks);
        t = now();
        if (looks == 1)
            begin = t;
        if (t - asked > 1 && (rank = missing(false)) >= 0)
            return lost(rank, "it has ended");
        if (t - asked > 1)
            asked = t;
        if (seconds > 0 && t - begin > seconds)
            return lost(missing(true), "nothing has come from it for too long");
    }
}

static bool swap(const ts_mpi_piece *out, const ts_mpi_piece *in, double seconds)
{
    int error = 0;

    if (self.error[0]) /* what was begun then has no end */
        return false;
    for (int i = 0; i < 2 * self.size; i++)
        requests[i] = MPI_REQUEST_NULL;
    for (int k = 1; k < self.size && !error; k++) {
        int p = (self.rank + k) % self.size;
        if (in[p].bytes)
            error = MPI_Irecv(in[p].data, (int)in[p].bytes, MPI_BYTE, p, 0, world, &requests[p]);
        if (error)
            return broken(p, error);
    }
    for (int k = 1; k < self.size && !error; k++) {
        int p = (self.rank + k) % self.size;
        if (out[p].bytes)
            error = MPI_Isend(out[p].data, (int)out[p].bytes, MPI_BYTE, p, 0, world,
                              &requests[self.size + p]);
        if (error)
            return broken(p, error);
    }
    return wait_all(seconds);
}

/* --- beginning and end --- */

static void end(int code)
{
    int finalized = 1;

    if (ended || MPI_Finalized(&finalized) || finalized)
        return;
    ended = true;
    if (code || self.error[0])
        MPI_Abort(world, code ? code : 1);
    else
        MPI_Finalize();
}

/* A fork of us shares neither MPI nor its end. */
static void at_exit(int status, void *pid)
{
    if ((pid_t)(intptr_t)pid == getpid())
        end(status);
}

static int find_places(void)
{
    place here = {.pid = getpid()};
    struct stat st;

    gethostname(here.host, sizeof(here.host) - 1);
    here.space = stat("/proc/self/ns/pid", &st) ? 0 : (uint64_t)st.st_ino;
    return MPI_Allgather(&here, sizeof(here), MPI_BYTE, places, sizeof(here), MPI_BYTE, world);
}

static int begin(void)
{
    int given = MPI_THREAD_SINGLE, running = 0, error = MPI_Initialized(&running);

    if (!error && !running)
        error = MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &given);
    if (!error)
        error = MPI_Comm_dup(MPI_COMM_WORLD, &world);
    if (!error)
        error = MPI_Comm_set_errhandler(world, MPI_ERRORS_RETURN);
    if (!error)
        error = MPI_Comm_rank(world, &self.rank);
    if (!error)
        error = MPI_Comm_size(world, &self.size);
    if (!error && !running)
        on_exit(at_exit, (void *)(intptr_t)getpid());
    return error;
}

__attribute__((visibility("default"))) ts_mpi *ts_mpi_start(char *error, size_t size);

ts_mpi *ts_mpi_start(char *error, size_t size)
{
    int code;

    if (self.swap)
        return &self;
    code = begin();
    if (!code) {
        requests = calloc((size_t)self.size * 2, sizeof(MPI_Request));
        places = calloc((size_t)self.size, sizeof(place));
        code = requests && places ? find_places() : MPI_ERR_NO_MEM;
    }
    if (code) {
        describe(code, error, size);
        return NULL;
    }
    self.swap = swap;
    self.lost = -1;
    return &self;
}
