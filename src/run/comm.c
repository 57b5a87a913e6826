/* comm.c - processes that a launcher started together: what they are, and sums over all of them.
 *
 *   process 0   a0 b0 c0          a | . | .          a b c
 *   process 1   a1 b1 c1   --->   . | b | .   --->   a b c
 *   process 2   a2 b2 c2          . | . | c          a b c
 *                        each adds up a piece,   and gives it
 *                        in the order of ranks   to all others
 *
 * What moves the bytes is a module of its own (mpi/mpi.c), loaded here. The order of the additions
 * is ours, so the bits do not depend on the network. Few numbers go to everybody in one step.
 */
#include "mpi/mpi.h"
#include "run/run.h"
#include <dlfcn.h>
#include <unistd.h>

enum {
    STEP = 8 << 20,  /* bytes that are added up at a time */
    FEW = 4096,      /* bytes that go to everybody at once */
    PATIENCE = 1800, /* seconds */
};

typedef struct processes {
    ts_comm comm; /* first: what the caller has */
    ts_mpi *mpi;
    ts_mpi_piece *out, *in; /* [size] */
    char *parts;            /* STEP bytes: the pieces that came */
    double patience;
} processes;

/* --- the launcher --- */

static int number(const char *name, int otherwise)
{
    const char *s = getenv(name);
    char *end;
    long n = s ? strtol(s, &end, 10) : 0;

    return s && *s && !*end && n >= 0 && n <= 1 << 20 ? (int)n : otherwise;
}

/* Slurm's variables are also there in a batch script, which is no process of a step. */
void ts_comm_place(int *rank, int *size)
{
    static const char *const known[][3] = {
        {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", NULL},
        {"PMI_RANK", "PMI_SIZE", NULL},
        {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_STEP_ID"},
    };
    int r = -1, n = 0;

    for (int i = 0; i < TS_COUNT(known) && r < 0; i++) {
        r = number(known[i][0], -1);
        n = number(known[i][1], 0);
        if (r >= n || (known[i][2] && !getenv(known[i][2])))
            r = -1;
    }
    if (rank)
        *rank = r < 0 ? 0 : r;
    if (size)
        *size = r < 0 ? 1 : n;
}

/* --- bytes --- */

static ts_status gone(const processes *c)
{
    if (c->mpi->lost < 0)
        ts_fail(TS_ERR_PROCESS, "the processes lost each other: %s", c->mpi->error);
    else
        ts_fail(TS_ERR_PROCESS, "process %d of %d is gone: %s", c->mpi->lost, c->comm.size,
                c->mpi->error);
    ts_error_doing("exchanging data with the other processes");
    ts_error_hint("start the processes again and go on from the last checkpoint (tessera train "
                  "--resume)");
    return TS_ERR_PROCESS;
}

static ts_status swap(const processes *c)
{
    return c->mpi->swap(c->out, c->in, c->patience) ? TS_OK : gone(c);
}

/* --- adding --- */

/* parts[r * n + i], in the order of r. Half precision is rounded once, as replicas do it. */
static void add_parts(ts_dtype t, const char *parts, int size, int64_t n, char *sum)
{
    size_t bytes = (size_t)n * ts_dtype_size(t);

    if (t == TS_F32) {
        memcpy(sum, parts, bytes);
        for (int r = 1; r < size; r++)
            for (int64_t i = 0; i < n; i++)
                ((float *)sum)[i] += ((const float *)(parts + (size_t)r * bytes))[i];
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        double x = ts_dtype_get(t, parts, i);
        for (int r = 1; r < size; r++)
            x += ts_dtype_get(t, parts + (size_t)r * bytes, i);
        ts_dtype_set(t, sum, i, x);
    }
}

/* Everybody's numbers to everybody. */
static ts_status sum_few(const processes *c, ts_dtype t, char *data, int64_t n)
{
    size_t bytes = (size_t)n * ts_dtype_size(t);

    for (int p = 0; p < c->comm.size; p++) {
        c->out[p] = (ts_mpi_piece){data, bytes};
        c->in[p] = (ts_mpi_piece){c->parts + (size_t)p * bytes, bytes};
    }
    memcpy(c->in[c->comm.rank].data, data, bytes);
    TS_TRY(swap(c));
    add_parts(t, c->parts, c->comm.size, n, data);
    return TS_OK;
}

static ts_mpi_piece piece_of(const processes *c, ts_dtype t, char *data, int64_t n, int p)
{
    int64_t lo = n * p / c->comm.size, hi = n * (p + 1) / c->comm.size;

    return (ts_mpi_piece){data + (size_t)lo * ts_dtype_size(t),
                          (size_t)(hi - lo) * ts_dtype_size(t)};
}

/* A piece for each; then everybody's piece for all. */
static ts_status sum_many(const processes *c, ts_dtype t, char *data, int64_t n)
{
    ts_mpi_piece own = piece_of(c, t, data, n, c->comm.rank);

    for (int p = 0; p < c->comm.size; p++) {
        c->out[p] = piece_of(c, t, data, n, p);
        c->in[p] = (ts_mpi_piece){c->parts + (size_t)p * own.bytes, own.bytes};
    }
    memcpy(c->in[c->comm.rank].data, own.data, own.bytes);
    TS_TRY(swap(c));
    add_parts(t, c->parts, c->comm.size, (int64_t)(own.bytes / ts_dtype_size(t)), own.data);
    for (int p = 0; p < c->comm.size; p++) {
        c->out[p] = own;
        c->in[p] = piece_of(c, t, data, n, p);
    }
    return swap(c);
}

static ts_status sum(void *self, ts_dtype t, void *data, int64_t count)
{
    const processes *c = self;
    /* a piece is one element longer where they do not divide, so parts holds a few fewer */
    int64_t size = (int64_t)ts_dtype_size(t), most = STEP / size - c->comm.size;

    for (int64_t at = 0; at < count; at += most) {
        int64_t n = TS_MIN(most, count - at);
        char *from = (char *)data + at * size;
        if (n * size <= FEW)
            TS_TRY(sum_few(c, t, from, n));
        else
            TS_TRY(sum_many(c, t, from, n));
    }
    return TS_OK;
}

static ts_status copy(void *self, void *data, size_t bytes)
{
    const processes *c = self;

    for (size_t at = 0; at < bytes; at += STEP) {
        ts_mpi_piece now = {(char *)data + at, TS_MIN((size_t)STEP, bytes - at)};
        for (int p = 0; p < c->comm.size; p++) {
            c->out[p] = c->comm.rank ? (ts_mpi_piece){0} : now;
            c->in[p] = c->comm.rank && !p ? now : (ts_mpi_piece){0};
        }
        TS_TRY(swap(c));
    }
    return TS_OK;
}

/* --- opening --- */

static ts_status no_module(const char *why)
{
    ts_fail(TS_ERR_UNSUPPORTED, "cannot load MPI, through which processes train together: %s", why);
#ifdef TS_HAVE_MPI
    ts_error_hint(
        "libtessera_mpi.so belongs beside libtessera.so; TESSERA_MPI names another place");
#else
    ts_error_hint("this build has no MPI: install libopenmpi-dev and build again");
#endif
    return TS_ERR_UNSUPPORTED;
}

/* $TESSERA_MPI, beside this library, or where the system looks. It stays: MPI ends with the
 * program. Its own plugins look for MPI's symbols among the global ones. */
static void *load(void)
{
    const int how = RTLD_NOW | RTLD_GLOBAL | RTLD_NODELETE;
    const char *given = getenv("TESSERA_MPI"), *slash;
    char path[4096];
    Dl_info info;

    if (given && *given)
        return dlopen(given, how);
    if (dladdr((void *)&ts_comm_open, &info) && info.dli_fname &&
        (slash = strrchr(info.dli_fname, '/'))) {
        snprintf(path, sizeof(path), "%.*s/libtessera_mpi.so", (int)(slash - info.dli_fname),
                 info.dli_fname);
        if (!access(path, R_OK))
            return dlopen(path, how);
    }
    return dlopen("libtessera_mpi.so", how);
}

static ts_status start(ts_mpi **out)
{
    void *module = load();
    ts_mpi_start_fn *begin;
    char error[512] = "";

    if (!module)
        return no_module(dlerror());
    *(void **)&begin = dlsym(module, TS_MPI_START);
    if (!begin)
        return no_module(dlerror());
    *out = begin(error, sizeof(error));
    return *out ? TS_OK : ts_fail(TS_ERR_PROCESS, "MPI does not start: %s", error);
}

/* MPI that knows nothing of the launcher makes every process one that is alone, and each would
 * train by itself. */
static ts_status check(const ts_mpi *m)
{
    int rank, size;

    ts_comm_place(&rank, &size);
    if (m->size == size)
        return TS_OK;
    ts_fail(TS_ERR_PROCESS, "the launcher started %d processes, and MPI knows %d", size, m->size);
    ts_error_hint("start them with Open MPI's mpirun, or with 'srun --mpi=pmix'");
    return TS_ERR_PROCESS;
}

static double patience(void)
{
    int seconds = number("TESSERA_COMM_TIMEOUT", PATIENCE);

    return seconds;
}

static ts_status connect(processes *c)
{
    TS_TRY(start(&c->mpi));
    TS_TRY(check(c->mpi));
    c->comm =
        (ts_comm){.rank = c->mpi->rank, .size = c->mpi->size, .sum = sum, .self = c, .copy = copy};
    c->patience = patience();
    TS_TRY(ts_alloc((size_t)c->comm.size * sizeof(*c->out), "the processes", (void **)&c->out));
    TS_TRY(ts_alloc((size_t)c->comm.size * sizeof(*c->in), "the processes", (void **)&c->in));
    return ts_alloc((size_t)TS_MAX(STEP, c->comm.size * FEW), "what processes send",
                    (void **)&c->parts);
}

static ts_status sum_alone(void *self, ts_dtype t, void *data, int64_t count)
{
    (void)self, (void)t, (void)data, (void)count;
    return TS_OK;
}

static ts_status copy_alone(void *self, void *data, size_t bytes)
{
    (void)self, (void)data, (void)bytes;
    return TS_OK;
}

ts_status ts_comm_open(ts_comm **out)
{
    processes *c;
    ts_status s = TS_OK;
    int size;

    if (!out)
        return ts_fail(TS_ERR_ARG, "there is no place for the comm");
    *out = NULL;
    TS_TRY(ts_alloc(sizeof(*c), "the processes", (void **)&c));
    c->comm = (ts_comm){.size = 1, .sum = sum_alone, .self = c, .copy = copy_alone};
    ts_comm_place(NULL, &size);
    if (size > 1)
        s = connect(c);
    if (s)
        ts_comm_close(&c->comm);
    else
        *out = &c->comm;
    return s;
}

void ts_comm_close(ts_comm *comm)
{
    processes *c = (processes *)comm;

    if (!c)
        return;
    free(c->out);
    free(c->in);
    free(c->parts);
    free(c);
}
