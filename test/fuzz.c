/* fuzz.c - a mutator. Run i depends on i and the seeds only, so a failing run can be repeated. */
#include "fuzz.h"
#include "support.h"
#include <signal.h>
#include <unistd.h>

/* The address sanitizer is what makes damage show: most runs are its. */
#ifdef __has_feature
#if __has_feature(address_sanitizer)
#define MORE 8
#endif
#endif
#if !defined(MORE) && defined(__SANITIZE_ADDRESS__)
#define MORE 8
#endif
#ifndef MORE
#define MORE 1
#endif

enum { ROOM = 4096, MUTATIONS = 6, PATIENCE = 60 /* seconds a run may take */ };

typedef struct input {
    uint8_t *data;
    size_t len, cap;
} input;

typedef struct corpus {
    const void *const *seeds;
    const size_t *lens;
    int n;
} corpus;

/* --- mutations -------------------------------------------------------------------------------- */

static size_t below(test_random *r, size_t n)
{
    return n ? test_next(r) % n : 0;
}

static void flip_bit(input *in, test_random *r)
{
    if (in->len)
        in->data[below(r, in->len)] ^= (uint8_t)(1u << below(r, 8));
}

static void any_byte(input *in, test_random *r)
{
    if (in->len)
        in->data[below(r, in->len)] = (uint8_t)test_next(r);
}

/* 1, 2, 4 or 8 bytes, in either order. */
static void limit_number(input *in, test_random *r)
{
    static const uint64_t limits[] = {0,          1,          0x7f,       0x80,
                                      0xff,       0x7fff,     0x8000,     0xffff,
                                      0x7fffffff, 0x80000000, 0xffffffff, INT64_MAX,
                                      1ull << 63, UINT64_MAX, 1ull << 32, 1ull << 40};
    uint64_t x = limits[below(r, TS_COUNT(limits))];
    size_t n = (size_t)1 << below(r, 4), at;
    bool big = test_next(r) & 1;

    if (in->len < n)
        return;
    at = below(r, in->len - n + 1);
    for (size_t i = 0; i < n; i++)
        in->data[at + (big ? n - 1 - i : i)] = (uint8_t)(x >> 8 * i);
}

/* Puts bytes in place of those from `at` to `end`. */
static void replace(input *in, size_t at, size_t end, const void *with, size_t n)
{
    size_t tail = in->len - end;

    if (at + n + tail > in->cap)
        return;
    memmove(in->data + at + n, in->data + end, tail);
    memcpy(in->data + at, with, n);
    in->len = at + n + tail;
}

/* Numbers written as text. */
static void limit_digits(input *in, test_random *r)
{
    static const char *const limits[] = {"0",          "-1",
                                         "999999999",  "2147483648",
                                         "4294967296", "9223372036854775807",
                                         "1e999",      "18446744073709551616"};
    const char *with = limits[below(r, TS_COUNT(limits))];
    size_t at = below(r, in->len), end;

    while (at < in->len && (in->data[at] < '0' || in->data[at] > '9'))
        at++;
    for (end = at; end < in->len && in->data[end] >= '0' && in->data[end] <= '9'; end++)
        ;
    if (end > at)
        replace(in, at, end, with, strlen(with));
}

static void cut_end(input *in, test_random *r)
{
    in->len = below(r, in->len + 1);
}

static void remove_part(input *in, test_random *r)
{
    size_t at = below(r, in->len + 1), n = below(r, TS_MIN(in->len - at, (size_t)32) + 1);

    replace(in, at, at + n, "", 0);
}

/* A part of a seed somewhere, inserted or in place of as many bytes. */
static void insert_part(input *in, test_random *r, const corpus *c)
{
    int s = (int)below(r, (size_t)c->n);
    size_t from = below(r, c->lens[s] + 1), n = below(r, TS_MIN(c->lens[s] - from, (size_t)64) + 1);
    size_t at = below(r, in->len + 1), over = test_next(r) & 1 ? TS_MIN(n, in->len - at) : 0;

    replace(in, at, at + over, (const uint8_t *)c->seeds[s] + from, n);
}

/* The start of this input and the end of a seed. */
static void splice(input *in, test_random *r, const corpus *c)
{
    int s = (int)below(r, (size_t)c->n);
    size_t from = below(r, c->lens[s] + 1);

    replace(in, below(r, in->len + 1), in->len, (const uint8_t *)c->seeds[s] + from,
            c->lens[s] - from);
}

static void mutate(input *in, test_random *r, const corpus *c)
{
    switch (below(r, 12)) {
    case 0:
    case 1:
        flip_bit(in, r);
        break;
    case 2:
    case 3:
        any_byte(in, r);
        break;
    case 4:
    case 5:
        limit_number(in, r);
        break;
    case 6:
        limit_digits(in, r);
        break;
    case 7:
        cut_end(in, r);
        break;
    case 8:
        remove_part(in, r);
        break;
    case 9:
    case 10:
        insert_part(in, r, c);
        break;
    default:
        splice(in, r, c);
    }
}

/* --- saying which run it was ------------------------------------------------------------------ */

static const char *running;
static volatile long running_at;

static void report(void)
{
    char line[200];
    int n =
        snprintf(line, sizeof(line), "fuzz: %s failed at run %ld: TS_FUZZ=1 TS_FUZZ_FIRST=%ld\n",
                 running, running_at, running_at);

    if (running && write(STDERR_FILENO, line, (size_t)n) < 0)
        _exit(99);
}

static void die(int signal_number)
{
    report();
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

/* There only in builds with a sanitizer. */
__attribute__((weak)) void __sanitizer_set_death_callback(void (*callback)(void));

static const int deadly[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGALRM};

static void watch(struct sigaction *then)
{
    struct sigaction now = {.sa_handler = die};

    if (__sanitizer_set_death_callback)
        __sanitizer_set_death_callback(report);
    for (int i = 0; i < TS_COUNT(deadly); i++)
        sigaction(deadly[i], &now, &then[i]);
}

static void unwatch(const struct sigaction *then)
{
    alarm(0);
    running = NULL;
    for (int i = 0; i < TS_COUNT(deadly); i++)
        sigaction(deadly[i], &then[i], NULL);
}

/* --- the loop --------------------------------------------------------------------------------- */

static long from_environment(const char *name, long otherwise)
{
    const char *s = getenv(name);

    return s && *s ? atol(s) : otherwise;
}

static void run(long i, input *in, const corpus *c, void (*one)(const uint8_t *, size_t))
{
    test_random r = {(uint64_t)i * 0x9e3779b97f4a7c15u};
    int s = (int)below(&r, (size_t)c->n);
    uint8_t *exact;

    in->len = c->lens[s];
    memcpy(in->data, c->seeds[s], in->len);
    for (int64_t n = test_between(&r, 1, MUTATIONS); n; n--)
        mutate(in, &r, c);
    exact = malloc(in->len ? in->len : 1);
    memcpy(exact, in->data, in->len);
    running_at = i;
    alarm(PATIENCE);
    one(exact, in->len);
    free(exact);
}

void fuzz(const char *name, const void *const seeds[], const size_t lens[], int nseeds,
          long default_runs, void (*one)(const uint8_t *data, size_t len))
{
    long runs = from_environment("TS_FUZZ", default_runs * MORE);
    long first = from_environment("TS_FUZZ_FIRST", 0);
    corpus c = {seeds, lens, nseeds};
    input in = {.cap = ROOM};
    struct sigaction then[TS_COUNT(deadly)] = {0};

    for (int i = 0; i < nseeds; i++)
        in.cap = TS_MAX(in.cap, 2 * lens[i]);
    in.data = malloc(in.cap);
    running = name;
    watch(then);
    for (long i = first; i < first + runs; i++)
        run(i, &in, &c, one);
    unwatch(then);
    free(in.data);
}
