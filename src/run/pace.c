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
 * A trial costs what its micro-batches took longer than they would have, and ends early when they
 * do. The first comes when two micro-batches are a twentieth of the time, and the wait for the next one doubles
 * until that cost is a hundredth. Time is what the engine itself has run: others may do anything between two calls.
 *
 * The figures are what trials may cost and what counts as different: choices, and none of the machine's. Of steps
 * of 130 ms every third was one of a trial when the first came after 50 ms, whatever a step took: 0.77 of the
 * speed in the first five seconds (test/run/pace.c), and 0.85 of torch 2 where 1.2 was there (an encoder).
 */
#include "run/run.h"

#define SOON  0.05 /* seconds between trials at least */
#define TRIAL 0.01 /* of one, or two micro-batches */
#define FIRST 0.05 /* share of the time that two micro-batches of the first may be */
#define CHUNK 0.01 /* of what runs between two looks at the clock */
#define PARTS 4    /* looks at the clock in a trial */
#define COST  0.01 /* share that trials may cost */
#define GAIN  0.9  /* of the time is clearly faster */
#define WORSE 1.5  /* times what it was: something has changed, or a trial is lost */

void ts_pace_start(ts_pace *p, int threads, bool fixed)
{
    *p = (ts_pace){
        .most = threads, .threads = threads, .fixed = fixed || threads == 1, .wait = SOON};
}

/* Seconds between two trials at least. */
static double soon(const ts_pace *p)
{
    return TS_MAX(SOON, 2 * p->seconds / FIRST);
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

int ts_pace_plan(ts_pace *p, int left, int *threads)
{
    double n;

    *threads = p->threads;
    if (p->fixed)
        return left;
    if (!p->trial && p->seconds > 0 && p->clock >= p->next)
        begin_trial(p);
    if (p->trial)
        *threads = p->trial;
    if (!p->seconds || (p->trial && !p->warm))
        return 1;
    n = (p->trial ? TRIAL / PARTS : CHUNK) / p->seconds;
    return n < 1 ? 1 : n < left ? (int)n : left;
}

/* Fewer threads must do better on average, and as soon as they do much worse it is over. More are given three
 * chances: if one of them was better, they have the cores again. */
static bool is_over(const ts_pace *p)
{
    if (p->trial > p->threads)
        return p->trial_best < GAIN * p->seconds ||
               (p->trial_count >= 3 && p->trial_seconds >= TRIAL);
    return p->trial_seconds >= TRIAL || p->trial_seconds > WORSE * p->trial_count * p->seconds;
}

static void end_trial(ts_pace *p)
{
    double each = p->trial > p->threads ? p->trial_best : p->trial_seconds / p->trial_count;

    if (each < GAIN * p->seconds) { /* perhaps for a moment only */
        p->threads = p->trial;
        p->seconds = each;
        p->wait = TS_MAX(SOON, 4 * each);
    } else {
        double lost = p->trial_seconds + p->warm_seconds - (p->trial_count + 1) * p->seconds;
        p->wait = TS_MIN(2 * p->wait, TS_MAX(soon(p), lost / COST));
        p->fewer = !p->fewer;
    }
    p->trial = 0;
    p->next = p->clock + p->wait;
}

void ts_pace_done(ts_pace *p, int count, double seconds)
{
    double each = seconds / count;

    if (p->fixed)
        return;
    p->clock += seconds;
    if (p->trial && !p->warm) { /* the data is still in the other cores' caches */
        p->warm = true;
        p->warm_seconds = seconds;
    } else if (p->trial) {
        p->trial_count += count;
        p->trial_seconds += seconds;
        p->trial_best = p->trial_count > count ? TS_MIN(p->trial_best, each) : each;
        if (is_over(p))
            end_trial(p);
    } else if (!p->seconds) {
        p->seconds = each;
        p->wait = soon(p);
        p->next = p->clock + p->wait;
    } else {
        if (each > WORSE * p->seconds)
            p->next = TS_MIN(p->next, p->clock + p->wait / 10);
        p->seconds += 0.3 * (each - p->seconds);
    }
}
