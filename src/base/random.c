/* random.c - random numbers from a counter: element i depends on the seed, the stream, the step and
 * i only, so any thread may make it at any time, and a resumed run makes the same again.
 *
 * Two rounds of the splitmix64 finaliser (Steele, Lea, Flood 2014) over the mixed key and the
 * counter.
 */
#include "base/base.h"

enum { SHUFFLE_STREAM = 0x5f1e };

static uint64_t mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

uint64_t ts_random_bits(uint64_t seed, uint64_t stream, uint64_t step, uint64_t i)
{
    uint64_t key = mix(seed + 0x9e3779b97f4a7c15u * (stream + 1)) + 0x9e3779b97f4a7c15u * step;

    return mix(mix(key) + 0x9e3779b97f4a7c15u * (i + 1));
}

/* 24 bits, so that the same number is exact in f32 */
double ts_random_unit(uint64_t seed, uint64_t stream, uint64_t step, uint64_t i)
{
    return (double)(ts_random_bits(seed, stream, step, i) >> 40) * 0x1p-24;
}

/* 48 bits: enough for any number of samples that fits in memory. */
static int64_t random_below(uint64_t seed, uint64_t epoch, int64_t i, int64_t n)
{
    double hi = ts_random_unit(seed, SHUFFLE_STREAM, epoch, 2 * (uint64_t)i);
    double lo = ts_random_unit(seed, SHUFFLE_STREAM, epoch, 2 * (uint64_t)i + 1);

    return (int64_t)((hi + lo * 0x1p-24) * (double)n);
}

/* Fisher and Yates, from the identity each time. */
void ts_random_order(uint64_t seed, uint64_t epoch, int64_t n, int64_t *order)
{
    for (int64_t i = 0; i < n; i++)
        order[i] = i;
    for (int64_t i = n - 1; i > 0; i--) {
        int64_t j = random_below(seed, epoch, i, i + 1), moved = order[i];
        order[i] = order[j];
        order[j] = moved;
    }
}
