/* processes.c - what test_processes.py runs under mpirun.
 *
 *   processes sums       sums and copies of all kinds, against what they must be
 *   processes train      trains with the others, and alone with as many replicas; prints a hash
 *   processes other      process 1 has another program
 *   processes die        process 1 kills itself while the others train
 *   processes stall      process 1 sleeps while the others wait for it
 */
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tessera.h>
#include <unistd.h>

enum { BATCH = 8, A = 2, D = 2, STEPS = 3, MANY = 5000011 };

static ts_comm *comm;

static void check(bool good, const char *what)
{
    if (good)
        return;
    fprintf(stderr, "process %d: %s: %s", comm ? comm->rank : -1, what, ts_error_text());
    exit(1);
}

/* --- sums --- */

static float number(int rank, int64_t i)
{
    uint32_t x = (uint32_t)i * 2654435761u + (uint32_t)rank * 40503u;

    return (float)(x >> 8) / 1000.0F - 7000.0F;
}

static void sum_floats(int64_t n)
{
    float *x = malloc((size_t)n * sizeof(float));
    double *y = malloc((size_t)n * sizeof(double));

    for (int64_t i = 0; i < n; i++) {
        x[i] = number(comm->rank, i);
        y[i] = 1.1 * (double)x[i];
    }
    check(!comm->sum(comm->self, TS_F32, x, n), "sum of f32");
    check(!comm->sum(comm->self, TS_F64, y, n), "sum of f64");
    for (int64_t i = 0; i < n; i++) {
        volatile float want = number(0, i); /* no wider sums */
        volatile double wide = 1.1 * (double)number(0, i);
        for (int r = 1; r < comm->size; r++) {
            want = want + number(r, i);
            wide = wide + 1.1 * (double)number(r, i);
        }
        check(x[i] == want, "f32 added in another order");
        check(y[i] == wide, "f64 added in another order");
    }
    free(x);
    free(y);
}

/* 2048 + 1 + 1 + ... in half precision: rounded once, not at each step. */
static void sum_halves(int64_t n)
{
    static const uint16_t want[] = {0, 0, 0x6800, 0x6801, 0x6802};
    uint16_t *x = malloc((size_t)n * sizeof(*x));

    for (int64_t i = 0; i < n; i++)
        x[i] = comm->rank ? 0x3c00 : 0x6800;
    check(!comm->sum(comm->self, TS_F16, x, n), "sum of f16");
    for (int64_t i = 0; i < n; i++)
        check(x[i] == want[comm->size], "f16 rounded at each step");
    free(x);
}

static void copy_bytes(int64_t n)
{
    unsigned char *x = malloc((size_t)n);

    for (int64_t i = 0; i < n; i++)
        x[i] = (unsigned char)(i * 7 + comm->rank);
    check(!comm->copy(comm->self, x, (size_t)n), "copy");
    for (int64_t i = 0; i < n; i++)
        check(x[i] == (unsigned char)(i * 7), "copied something else");
    free(x);
}

static void sums(void)
{
    static const int64_t counts[] = {1, 3, 100, 1025, 4099, MANY};

    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        sum_floats(counts[i]);
        sum_halves(counts[i]);
        copy_bytes(counts[i]);
    }
    copy_bytes(3 * MANY);
}

/* --- training --- */

static ts_graph *net(int64_t hidden)
{
    ts_graph *g = ts_graph_new("net");
    ts_value *x = ts_input(g, "images", TS_F32, BATCH, 1, 28, 28);
    ts_value *t = ts_input(g, "labels", TS_I32, BATCH);

    x = ts_max_pool2d(ts_relu(ts_conv2d(x, "conv", 5, 3)), 2);
    x = ts_relu(ts_linear(ts_flatten(x, 1), "fc1", hidden));
    x = ts_linear(ts_dropout(x, 0.25, true), "fc2", 10);
    ts_output(x, "scores");
    ts_loss(ts_cross_entropy(x, t));
    return g;
}

typedef struct trained {
    ts_executable *exe;
    ts_engine *e;
} trained;

/* R replicas in each of the processes of c. */
static trained make(const ts_comm *c, int replicas, int64_t hidden)
{
    ts_optimizer adam = ts_adam(0.01);
    ts_graph *g = net(hidden);
    trained t;

    check(!ts_compile(g,
                      &(ts_options){.optimizer = &adam,
                                    .device_iterations = D,
                                    .gradient_accumulation = A,
                                    .replicas = replicas,
                                    .shard_optimizer = c != NULL, /* alone, all is whole */
                                    .shard_least = 1,
                                    .processes = c ? c->size : 1},
                      &t.exe),
          "compile");
    check(!ts_engine_new(t.exe, &(ts_run_options){.threads = 1, .seed = 4, .comm = c}, &t.e),
          "engine");
    ts_graph_free(g);
    return t;
}

/* Rows are [D][A][all replicas][BATCH]; this process takes `replicas` of them from `first` on. */
static void step(trained *t, int first, int replicas, int all, int number)
{
    size_t pixels = (size_t)BATCH * 28 * 28;
    float *images = malloc((size_t)(D * A * replicas) * pixels * sizeof(float)), *to = images;
    int32_t *labels = malloc((size_t)(D * A * replicas * BATCH) * sizeof(int32_t)), *l = labels;

    for (int m = 0; m < D * A; m++)
        for (int r = first; r < first + replicas; r++) {
            unsigned at = (unsigned)((number * D * A + m) * all + r);
            for (size_t i = 0; i < pixels; i++)
                *to++ = (float)(((unsigned)i * 2654435761u + at * 97u) >> 9 & 1023) / 1024;
            for (int i = 0; i < BATCH; i++)
                *l++ = (int32_t)((at + (unsigned)i * 7) % 10);
        }
    check(!ts_engine_run(t->e, (const void *[]){images, labels}, (void *[]){NULL, NULL}), "run");
    free(images);
    free(labels);
}

static void end(trained *t)
{
    ts_engine_free(t->e);
    ts_executable_free(t->exe);
}

/* The largest difference of two engines' states; and a hash of the first's. */
static double compare(const trained *x, const trained *y, uint64_t *hash)
{
    const ts_tensor_info *s;
    double most = 0;

    for (int i = 0; (s = ts_executable_tensor(x->exe, TS_ROLE_STATE, i)); i++) {
        float *a = malloc(s->bytes), *b = malloc(s->bytes);
        check(!ts_engine_read(x->e, s->name, a, s->bytes), "read");
        check(!ts_engine_read(y->e, s->name, b, s->bytes), "read");
        for (size_t k = 0; k < s->bytes; k++)
            *hash = (*hash ^ ((unsigned char *)a)[k]) * 1099511628211u;
        for (size_t k = 0; k < s->bytes / sizeof(float); k++)
            most = fmax(most, fabs((double)a[k] - (double)b[k]));
        free(a);
        free(b);
    }
    return most;
}

static void train(void)
{
    for (int replicas = 1; replicas <= 2; replicas++) {
        int all = replicas * comm->size;
        trained t = make(comm, replicas, 32), alone = make(NULL, all, 32);
        uint64_t hash = 14695981039346656037u;
        for (int i = 0; i < STEPS; i++) {
            step(&t, comm->rank * replicas, replicas, all, i);
            step(&alone, 0, all, all, i);
        }
        double off = compare(&t, &alone, &hash);
        printf("process %d replicas %d off %g hash %016" PRIx64 "\n", comm->rank, replicas, off,
               hash);
        end(&t);
        end(&alone);
    }
}

/* Another start in each process; then process 0's in all. */
static void share(void)
{
    trained t = make(comm, 1, 32);
    float x[10];

    for (int i = 0; i < 10; i++)
        x[i] = (float)(comm->rank + i);
    check(!ts_engine_write(t.e, "fc2.bias", x, sizeof(x)), "write");
    ts_engine_set_rng(t.e, 8 + (uint64_t)comm->rank, 16);
    check(!ts_engine_copy(t.e), "copy of the states");
    check(!ts_engine_read(t.e, "fc2.bias", x, sizeof(x)), "read");
    for (int i = 0; i < 10; i++)
        check(x[i] == (float)i, "a state that is not process 0's");
    uint64_t seed, at;
    ts_engine_rng(t.e, &seed, &at);
    check(seed == 8 && at == 16, "a random generator that is not process 0's");
    end(&t);
}

static void disturb(const char *how)
{
    trained t = make(comm, 1, !strcmp(how, "other") && comm->rank == 1 ? 33 : 32);

    for (int i = 0;; i++) {
        if (comm->rank == 1 && i == 2 && !strcmp(how, "die"))
            raise(SIGKILL);
        if (comm->rank == 1 && i == 2 && !strcmp(how, "stall"))
            sleep(60);
        step(&t, comm->rank, 1, comm->size, i);
    }
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";

    check(!ts_comm_open(&comm), "open");
    if (!strcmp(what, "sums"))
        sums();
    else if (!strcmp(what, "train"))
        share(), train();
    else
        disturb(what);
    printf("process %d of %d is done\n", comm->rank, comm->size);
    ts_comm_close(comm);
    return 0;
}
