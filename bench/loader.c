/* loader.c - how many samples a second the loader makes, and how long a set takes to open.
 *
 *   loader [NAME] [BATCH]       fashion-mnist and 16 unless given; shuffled, ToTensor and Normalize
 *
 * One line for each number of threads: -1 means that ts_loader_next makes the batches itself. The
 * second figure is of the time the processor spent, which a busy machine does not spoil.
 */
#include "base/base.h"
#include "tessera/data.h"
#include <time.h>

enum { SECONDS = 2 };

static double cpu_seconds(void)
{
    return (double)clock() / CLOCKS_PER_SEC;
}

static void measure(const ts_dataset *d, int64_t batch, int threads)
{
    double mean = 0.5, deviation = 0.5, start, now, cpu;
    ts_loader_options o = {.batch = batch,
                           .shuffle = true,
                           .threads = threads,
                           .prefetch = 16,
                           .normalize = {&mean, &deviation, 1}};
    ts_loader *l;
    ts_batch b;
    int64_t rows = 0;

    if (ts_loader_new(d, &o, &l))
        return;
    start = now = ts_now();
    cpu = cpu_seconds();
    while (now - start < SECONDS) {
        for (int i = 0; i < 64 && !ts_loader_next(l, &b); i++)
            rows += b.rows;
        now = ts_now();
    }
    cpu = cpu_seconds() - cpu;
    printf("threads %2d %12.0f rows/s %12.0f rows a processor second, batches of %ld\n", threads,
           (double)rows / (now - start), (double)rows / cpu, (long)batch);
    ts_loader_free(l);
}

int main(int argc, char **argv)
{
    ts_dataset_options o = {.name = argc > 1 ? argv[1] : "fashion-mnist"};
    int64_t batch = argc > 2 ? atoll(argv[2]) : 16;
    double start = ts_now();
    ts_dataset *d;

    if (ts_dataset_load(&o, &d)) {
        fputs(ts_error_text(), stderr);
        return 1;
    }
    printf("%-8s %10.3f s to open %ld samples\n", o.name, ts_now() - start,
           (long)ts_dataset_count(d));
    for (int threads = -1; threads <= 2; threads += threads < 0 ? 2 : 1)
        measure(d, batch, threads);
    ts_dataset_free(d);
    return 0;
}
