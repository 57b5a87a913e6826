/* pace.c - how many of an engine's threads work, when that is left to us.
 *
 * Threads that meet many times in a step are fast while each has a core of its own. When another
 * program takes one of the cores, or the cores are far from each other, fewer threads are faster;
 * the results are the same bits. So now and then a few micro-batches run with the next smaller or
 * larger number, and if those were clearly faster, it stays:
 *
 *   2 2 2 2 2 2 2 2 1 2 2 2 2 2 2 2 2 2 2 2 2 2 1 1 1 1 1 1 1 1 1 2 1 1 1 1
 *                   trial: slower               faster              slower
 *
 * A trial costs what its micro-batches took longer than they would have; the next one waits until
 * that is a hundredth of the time.
 */
#include "run/run.h"

#define SOON  0.05 /* seconds between trials at least */
#define TRIAL 0.01 /* of one */
#define CHUNK 0.01 /* of what runs between two looks at the clock */
#define COST  0.01 /* share of the time that trials may cost */
#define GAIN  0.9  /* of the time is clearly faster */
#define WORSE 1.5  /* times what it was: something has changed */

void ts_pace_start(ts_pace *p, int threads, bool fixed)
{
    *p = (ts_pace){.most = threads, .threads = threads, .fixed = fixed || threads == 1};
}

static bool can(const ts_pace *p, bool fewer)
{
    return fewer ? p->threads > 1 : p->threads < p->most;
}

/* Halves: 12, 6, 3, 1. */
static int next_to(const ts_pace *p, bool fewer)
{
    int n = p->most;

    if (fewer)
        return p->threads / 2;
    while (n / 2 > p->threads)
        n /= 2;
    return n;
}

static void begin_trial(ts_pace *p)
{
    if (!can(p, p->fewer))
        p->fewer = !p->fewer;
    p->trial = next_to(p, p->fewer);
    p->warm = false;
    p->trial_count = 0;
    p->trial_seconds = 0;
}

int ts_pace_plan(ts_pace *p, int left, double now, int *threads)
{
    double n;

    *threads = p->threads;
    if (p->fixed)
        return left;
    if (!p->trial && p->seconds > 0 && now >= p->next)
        begin_trial(p);
    if (p->trial)
        *threads = p->trial;
    if (!p->seconds || (p->trial && !p->warm))
        return 1;
    n = (p->trial ? TRIAL : CHUNK) / p->seconds;
    return n < 1 ? 1 : n < left ? (int)n : left;
}

static void end_trial(ts_pace *p, double now)
{
    double each = p->trial_seconds / p->trial_count, wait = SOON;

    if (each < GAIN * p->seconds) {
        p->threads = p->trial;
        p->seconds = each;
    } else {
        double lost = p->trial_seconds + p->warm_seconds - (p->trial_count + 1) * p->seconds;
        wait = TS_MAX(SOON, lost / COST);
        p->fewer = !p->fewer;
    }
    p->trial = 0;
    p->wait = wait;
    p->next = now + wait;
}

void ts_pace_done(ts_pace *p, int count, double seconds, double now)
{
    double each = seconds / count;

    if (p->fixed)
        return;
    if (p->trial && !p->warm) { /* the data is still in the other cores' caches */
        p->warm = true;
        p->warm_seconds = seconds;
    } else if (p->trial) {
        p->trial_count += count;
        p->trial_seconds += seconds;
        if (p->trial_seconds >= TRIAL)
            end_trial(p, now);
    } else if (!p->seconds) {
        p->seconds = each;
        p->next = now + SOON;
    } else {
        if (each > WORSE * p->seconds)
            p->next = TS_MIN(p->next, now + p->wait / 10);
        p->seconds += 0.3 * (each - p->seconds);
    }
}
