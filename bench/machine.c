/* machine.c - what this machine can do: the f32 multiply-add peak on one and two cores, and how
 * long a cache line takes from one core to the other. Prints
 *
 *   {"fma_1": flop/s, "fma_2": flop/s, "latency_ns": one way}
 */
#include "peak.h"
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* --- two threads --- */

static cpu_set_t allowed; /* before anyone is pinned: a thread inherits the mask of its maker */

static void pin(int which)
{
    cpu_set_t one;

    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &allowed) && which-- == 0)
            CPU_SET(i, &one);
    if (CPU_COUNT(&one))
        pthread_setaffinity_np(pthread_self(), sizeof(one), &one);
}

static void *other_peak(void *arg)
{
    pin(1);
    *(double *)arg = peak(0.3);
    return NULL;
}

/* The ball goes to and fro; a round that takes long (somebody else had the core) is not the
 * shortest, and after a second nobody plays on. */
enum { BATCHES = 2000, ROUNDS = 50 };
static _Alignas(64) atomic_int ball;
static atomic_bool over;

static bool wait_for(int value)
{
    while (atomic_load_explicit(&ball, memory_order_acquire) != value)
        if (atomic_load_explicit(&over, memory_order_relaxed))
            return false;
    return true;
}

static void *answer(void *arg)
{
    pin(1);
    for (int i = 0; i < BATCHES * ROUNDS && wait_for(2 * i + 1); i++)
        atomic_store_explicit(&ball, 2 * i + 2, memory_order_release);
    return arg;
}

/* Nanoseconds one way, in the best of many short batches. */
static double latency(void)
{
    double best = 1e9, begin = now(), start, end = begin;
    pthread_t t;

    if (pthread_create(&t, NULL, answer, NULL))
        return 0;
    for (int b = 0; b < BATCHES && end - begin < 1; b++) {
        start = now();
        for (int i = b * ROUNDS; i < (b + 1) * ROUNDS; i++) {
            atomic_store_explicit(&ball, 2 * i + 1, memory_order_release);
            wait_for(2 * i + 2);
        }
        end = now();
        best = end - start < best ? end - start : best;
    }
    atomic_store(&over, true);
    pthread_join(t, NULL);
    return best / (2.0 * ROUNDS) * 1e9;
}

int main(void)
{
    double one = 0, two = 0;

    sched_getaffinity(0, sizeof(allowed), &allowed);
    pin(0);
    for (int try = 0; try < 5; try++) {
        double mine, theirs = 0, alone = peak(0.3);
        pthread_t t;
        one = alone > one ? alone : one;
        if (pthread_create(&t, NULL, other_peak, &theirs))
            continue;
        mine = peak(0.3);
        pthread_join(t, NULL);
        two = mine + theirs > two ? mine + theirs : two;
    }
    printf("{\"fma_1\": %.0f, \"fma_2\": %.0f, \"latency_ns\": %.0f}\n", one, two, latency());
    return 0;
}
