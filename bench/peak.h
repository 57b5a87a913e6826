/* peak.h - the f32 multiply-adds that one core can do in a second, times 2, measured. */
#ifndef TS_PEAK_H
#define TS_PEAK_H

#include <stdint.h>
#include <time.h>

/* Of this thread on its processor: what others do there meanwhile does not count. */
static double busy(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* --- multiply-adds: twelve independent chains hide the latency of each --- */

enum { CHAINS = 12, INNER = 1 << 16 };
static volatile float sink;

#define EACH(X)    X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)
#define DECLARE(i) vec a##i = c + (float)i;
#define STEP(i)    a##i = a##i * b + c;
#define ADD(i)     all += a##i;
#define PEAK(name, lanes, attribute)                                                               \
    attribute static double name(double seconds)                                                   \
    {                                                                                              \
        typedef float vec __attribute__((vector_size(4 * (lanes))));                               \
        vec c = (vec){0} + 1e-3f, b = (vec){0} + 0.999f, all = {0};                                \
        EACH(DECLARE)                                                                              \
        double start = busy(), end;                                                                \
        int64_t rounds = 0;                                                                        \
        do {                                                                                       \
            for (int i = 0; i < INNER; i++) {                                                      \
                EACH(STEP)                                                                         \
            }                                                                                      \
            rounds++;                                                                              \
            end = busy();                                                                          \
        } while (end - start < seconds);                                                           \
        EACH(ADD)                                                                                  \
        sink = all[0];                                                                             \
        return 2.0 * (lanes)*CHAINS * INNER * (double)rounds / (end - start);                      \
    }

PEAK(peak_plain, 4, )
#if defined(__x86_64__)
PEAK(peak_avx2, 8, __attribute__((target("avx2,fma"))))
PEAK(peak_avx512, 16, __attribute__((target("avx512f,avx512vl,fma"))))
#endif

static double peak(double seconds)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f"))
        return peak_avx512(seconds);
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return peak_avx2(seconds);
#endif
    return peak_plain(seconds);
}

#endif
