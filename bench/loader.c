/* loader.c - how many samples a second the loader makes, and how long a set takes to open.
 *
 *   loader [NAME] [BATCH]       fashion-mnist and 16 unless given; shuffled, ToTensor and Normalize
 *
 * One line for each number of threads: -1 means that ts_loader_next makes the batches itself.
 */
#include "base/base.h"

enum { SECONDS = 2 };

static double rows_a_second(const ts_dataset *d, int64_t batch, int threads)
{
    double mean = 0.5, deviation = 0.5, start, now;
    ts_loader_options o = {.batch = batch,
                           .shuffle = true,
                           .threads = threads,
                           .prefetch = 16,
                           .normalize = {&mean, &deviation, 1}};
    ts_loader *l;
    ts_batch b;
    int64_t rows = 0;

    if (ts_loader_new(d, &o, &l))
        return -1;
    start = now = ts_now();
    while (now - start < SECONDS) {
        for (int i = 0; i < 64 && !ts_loader_next(l, &b); i++)
            rows += b.rows;
        now = ts_now();
    }
    ts_loader_free(l);
    return (double)rows / (now - start);
}

int main(int argc, char **argv)
{
    ts_data_options o = {.name = argc > 1 ? argv[1] : "fashion-mnist"};
    int64_t batch = argc > 2 ? atoll(argv[2]) : 16;
    double start = ts_now();
    ts_dataset *d;

    if (ts_data_open(&o, &d)) {
        fputs(ts_error_text(), stderr);
        return 1;
    }
    printf("%-8s %10.3f s to open %ld samples\n", o.name, ts_now() - start,
           (long)ts_dataset_count(d));
    for (int threads = -1; threads <= 2; threads += threads < 0 ? 2 : 1)
        printf("threads %2d %14.0f rows/s in batches of %ld\n", threads,
               rows_a_second(d, batch, threads), (long)batch);
    ts_dataset_free(d);
    return 0;
}
