/* measure.c - how good numbers and labels are: what a net gave against what was true.
 *
 *   numbers   RMSE and mean absolute error in the data's own units; R2 is 1 - errors / deviations
 *   labels    F1 of yes where the probability is 0.5 or more; AUC, the chance that a yes is ranked
 *             above a no (ties count half)
 *   pixels    IoU of a class; accuracy of all and of those that are not background, class 0
 *
 * Several targets: the mean of theirs.
 */
#include "net.h"
#include <math.h>
#include <stdlib.h>

typedef struct pair {
    float p, t;
} pair;

static int by_probability(const void *a, const void *b)
{
    float x = ((const pair *)a)->p, y = ((const pair *)b)->p;

    return x < y ? -1 : x > y;
}

/* Ranks of the yes, those of equals shared; NaN where all are the same. */
static double area(pair *all, int64_t n)
{
    double ranks = 0, yes = 0;

    qsort(all, (size_t)n, sizeof(*all), by_probability);
    for (int64_t i = 0, j; i < n; i = j) {
        double rank;
        for (j = i; j < n && all[j].p == all[i].p; j++)
            ;
        rank = (double)(i + 1 + j) / 2;
        for (int64_t k = i; k < j; k++) {
            yes += all[k].t > 0.5f;
            ranks += all[k].t > 0.5f ? rank : 0;
        }
    }
    if (yes == 0 || yes == (double)n)
        return NAN;
    return (ranks - yes * (yes + 1) / 2) / (yes * ((double)n - yes));
}

static void label(net_result *r, const float *targets, int c, pair *all)
{
    int64_t both = 0, said = 0, is = 0;
    double auc;

    for (int64_t i = 0; i < r->count; i++) {
        bool yes = r->predicted[i * r->classes + c] >= 0.5f, t = targets[i * r->classes + c] > 0.5f;
        both += yes && t;
        said += yes;
        is += t;
        r->right += yes == t;
        all[i] = (pair){r->predicted[i * r->classes + c], t};
    }
    r->f1 += said + is ? 2.0 * (double)both / (double)(said + is) / r->classes : 0;
    auc = area(all, r->count);
    r->auc += isfinite(auc) ? auc / r->classes : 0.5 / r->classes;
}

static void number(net_result *r, const float *targets, int c)
{
    double mean = 0, square = 0, away = 0, absolute = 0, n = (double)r->count;

    for (int64_t i = 0; i < r->count; i++)
        mean += targets[i * r->classes + c] / n;
    for (int64_t i = 0; i < r->count; i++) {
        double t = targets[i * r->classes + c], e = r->predicted[i * r->classes + c] - t;
        square += e * e;
        absolute += fabs(e);
        away += (t - mean) * (t - mean);
    }
    r->rmse += square / n / r->classes;
    r->mae += absolute / n / r->classes;
    r->r2 += away > 0 ? (1 - square / away) / r->classes : 0;
}

int measure(net_result *r, const float *targets)
{
    pair *all = malloc(sizeof(*all) * (size_t)(r->count + 1));

    if (!all)
        return failure("out of memory for %lld results", (long long)r->count);
    for (int c = 0; c < r->classes; c++)
        if (r->task == TASK_LABELS)
            label(r, targets, c, all);
        else
            number(r, targets, c);
    free(all);
    r->rmse = sqrt(r->rmse);
    r->accuracy = (double)r->right / ((double)r->count * r->classes);
    return TOOL_OK;
}

/* --- pixels --- */

double iou_of(const int64_t *counts, int n, int c)
{
    int64_t both = counts[(int64_t)c * n + c], any = -both;

    for (int i = 0; i < n; i++)
        any += counts[(int64_t)c * n + i] + counts[(int64_t)i * n + c];
    return any ? (double)both / (double)any : NAN;
}

double mean_iou_of(const int64_t *counts, int n, int first)
{
    double sum = 0;
    int found = 0;

    for (int c = first; c < n; c++) {
        double v = iou_of(counts, n, c);
        if (isnan(v))
            continue;
        sum += v;
        found++;
    }
    return found ? sum / found : NAN;
}

double nonzero_of(const int64_t *counts, int n)
{
    int64_t right = 0, all = 0;

    for (int64_t i = n; i < (int64_t)n * n; i++) {
        all += counts[i];
        right += i / n == i % n ? counts[i] : 0;
    }
    return all ? (double)right / (double)all : NAN;
}

/* --- what a run is judged by --- */

const char *metric_name(task t)
{
    return t == TASK_NUMBERS ? "rmse" : t == TASK_PIXELS ? "mean_iou" : "accuracy";
}

double metric_of(const net_result *r)
{
    return r->task == TASK_NUMBERS ? r->rmse : r->task == TASK_PIXELS ? r->mean_iou : r->accuracy;
}

const char *metric_text(task t, double v, char *out, size_t size)
{
    if (t == TASK_NUMBERS)
        snprintf(out, size, "RMSE %.6g", v);
    else if (t == TASK_PIXELS)
        snprintf(out, size, "mean IoU %.4f", v);
    else
        snprintf(out, size, "accuracy %.2f %%", 100 * v);
    return out;
}
