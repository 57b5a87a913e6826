/* init.c - the starting value of a state. */
#include "run/run.h"
#include <math.h>

/* FNV-1a: a stream number from a name, so that adding a layer does not change the others'
 * weights. */
static uint64_t stream_of(const char *name)
{
    uint64_t h = 0xcbf29ce484222325u;

    for (; *name; name++)
        h = (h ^ (unsigned char)*name) * 0x100000001b3u;
    return h;
}

void ts_init_fill(const ts_init *init, const char *name, uint64_t seed, ts_dtype t, int64_t count,
                  void *data)
{
    uint64_t stream = stream_of(name);

    for (int64_t i = 0; i < count; i++) {
        double x = init->a;
        if (init->kind == TS_INIT_UNIFORM)
            x = init->a + (init->b - init->a) * ts_random_unit(seed, stream, 0, (uint64_t)i);
        if (init->kind == TS_INIT_NORMAL)
            x = init->a + init->b *
                              sqrt(-2 * log(1 - ts_random_unit(seed, stream, 0, (uint64_t)i))) *
                              cos(6.283185307179586 * ts_random_unit(seed, stream, 1, (uint64_t)i));
        ts_dtype_set(t, data, i, x);
    }
}
