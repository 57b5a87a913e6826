/* shipped.c - exported C as the compiler of this machine makes it: to see how fast and how good what
 * is shipped is.
 */
#include "net.h"
#include <stdlib.h>
#include <time.h>

/* --- samples --- */

parts parts_of(const ts_model *m)
{
    int64_t dims[TS_MAX_RANK];
    ts_dtype type;
    parts p = {0};

    for (int rank; p.n < INPUTS && (rank = ts_model_input_at(m, p.n, dims, &type)) >= 0; p.n++) {
        p.size[p.n] = 1;
        for (int d = 0; d < rank; d++)
            p.size[p.n] *= dims[d];
        p.whole[p.n] = type != TS_F32;
        p.all += p.size[p.n];
    }
    return p;
}

static void copy_part(const parts *p, int i, const float *from, int64_t row, void *out)
{
    for (int64_t k = 0; k < p->size[i]; k++)
        if (p->whole[i])
            ((int32_t *)out)[row * p->size[i] + k] = (int32_t)from[k];
        else
            ((float *)out)[row * p->size[i] + k] = from[k];
}

void parts_split(const parts *p, int64_t rows, const float *samples, void *const *out)
{
    for (int64_t row = 0; row < rows; row++)
        for (int i = 0; i < p->n; samples += p->size[i++])
            copy_part(p, i, samples, row, out[i]);
}

/* --- running --- */

ts_status shipped_open(const ts_c_files *c, const ts_model *m, int64_t batch, shipped *out)
{
    *out = (shipped){.parts = parts_of(m), .batch = batch};
    for (int i = 0; i < out->parts.n; i++)
        if (!(out->in[i] = calloc((size_t)(batch * out->parts.size[i]), sizeof(float))))
            return TS_ERR_MEMORY;
    return ts_c_net_new(c, &out->net);
}

void shipped_close(shipped *s)
{
    ts_c_net_free(s->net);
    for (int i = 0; i < s->parts.n; i++)
        free(s->in[i]);
    *s = (shipped){0};
}

void shipped_run(const shipped *s, const void *samples, float *out)
{
    if (s->parts.n == 1) {
        ts_c_net_run(s->net, &samples, (void *[]){out});
        return;
    }
    parts_split(&s->parts, s->batch, samples, s->in);
    ts_c_net_run(s->net, (const void *const *)s->in, (void *[]){out});
}

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The best of five looks of a twentieth of a second. */
double shipped_seconds(const shipped *s, const void *samples, float *out)
{
    double best = 1e30;

    for (int round = 0; round < 5; round++) {
        double start = now(), t;
        long n = 0;
        do {
            shipped_run(s, samples, out);
            n++;
        } while (now() - start < 0.05);
        t = (now() - start) / (double)n;
        best = t < best ? t : best;
    }
    return best;
}
