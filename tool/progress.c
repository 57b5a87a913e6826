/* progress.c - how far a run is, in numbers that a checkpoint keeps so that a run that goes on ends
 * with the same loss, table and curve as one that never stopped.
 *
 * The curve has room for so many points. When it is full, two neighbours become their mean and each
 * point from then on stands for twice as many calls: a run of any length fits.
 */
#include "train.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void add_point(curve *c, double y)
{
    if (c->n == CURVE_POINTS) {
        for (int i = 0; i < CURVE_POINTS / 2; i++)
            c->points[i] = (c->points[2 * i] + c->points[2 * i + 1]) / 2;
        c->n /= 2;
        c->stride *= 2;
    }
    c->points[c->n++] = y;
}

static void add_loss(curve *c, double loss)
{
    c->stride = c->stride ? c->stride : 1;
    c->sum += loss;
    if (++c->pending < c->stride)
        return;
    add_point(c, c->sum / (double)c->pending);
    c->sum = 0;
    c->pending = 0;
}

void progress_call(progress *p, double loss, int64_t batches, int64_t right, int64_t updates)
{
    p->call++;
    p->updates += updates;
    p->loss += loss;
    p->batches += batches;
    p->right += right;
    add_loss(&p->curve, loss / (double)batches);
}

double progress_loss(const progress *p)
{
    return p->batches ? p->loss / (double)p->batches : NAN;
}

/* --- pixels --- */

bool progress_pixels(progress *p, int classes)
{
    if (p->pixels.classes)
        return true;
    p->pixels.now = calloc((size_t)classes * (size_t)classes, sizeof(*p->pixels.now));
    p->pixels.classes = p->pixels.now ? classes : 0;
    return p->pixels.now != NULL;
}

void progress_count(progress *p, const double *confusions)
{
    int n = p->pixels.classes;

    for (int64_t i = 0; i < (int64_t)n * n; i++)
        p->pixels.now[i] += (int64_t)confusions[i];
}

static bool end_pixels(progress *p)
{
    int n = p->pixels.classes;
    size_t row = sizeof(double) * (size_t)(n + 1);
    double *rows = n ? realloc(p->pixels.rows, row * (size_t)(p->epoch + 1)) : NULL;

    if (!n || !rows)
        return !n;
    p->pixels.rows = rows;
    rows += p->epoch * (n + 1);
    rows[0] = nonzero_of(p->pixels.now, n);
    for (int c = 0; c < n; c++)
        rows[c + 1] = iou_of(p->pixels.now, n, c);
    memset(p->pixels.now, 0, sizeof(*p->pixels.now) * (size_t)n * (size_t)n);
    return true;
}

double progress_nonzero(const progress *p, int64_t epoch)
{
    return p->pixels.rows[epoch * (p->pixels.classes + 1)];
}

double progress_iou(const progress *p, int64_t epoch, int class)
{
    return p->pixels.rows[epoch * (p->pixels.classes + 1) + class + 1];
}

double progress_mean_iou(const progress *p, int64_t epoch)
{
    double sum = 0;
    int n = 0;

    for (int c = 0; c < p->pixels.classes; c++)
        if (!isnan(progress_iou(p, epoch, c))) {
            sum += progress_iou(p, epoch, c);
            n++;
        }
    return n ? sum / n : NAN;
}

/* --- epochs --- */

bool progress_epoch(progress *p, int64_t samples, int64_t answers)
{
    epoch_row *rows = realloc(p->rows, sizeof(*rows) * (size_t)(p->epoch + 1));

    if (!rows || !end_pixels(p)) {
        p->rows = rows ? rows : p->rows;
        return false;
    }
    rows[p->epoch++] = (epoch_row){progress_loss(p),
                                   (double)p->right / (double)(samples * answers),
                                   p->seconds,
                                   p->seconds > 0 ? (double)samples / p->seconds : 0,
                                   NAN,
                                   NAN};
    p->rows = rows;
    p->call = p->batches = p->right = 0;
    p->loss = p->seconds = 0;
    return true;
}

void progress_free(progress *p)
{
    free(p->rows);
    free(p->pixels.now);
    free(p->pixels.rows);
    p->rows = NULL;
    p->pixels = (pixel_progress){0};
}

/* --- as a dict --- */

enum { COLUMNS = sizeof(epoch_row) / sizeof(double) };

static ts_object *numbers(const double *x, int64_t n, int64_t columns)
{
    ts_array a = {.dtype = TS_F64, .rank = 2, .dims = {n, columns}, .data = (void *)x};

    a.bytes = (size_t)(n * columns) * sizeof(double);
    return ts_object_new_tensor(&a);
}

static ts_status put_int(ts_object *o, const char *key, int64_t v)
{
    return ts_object_set(o, key, ts_object_new_int(v));
}

static ts_status put_real(ts_object *o, const char *key, double v)
{
    return ts_object_set(o, key, ts_object_new_float(v));
}

static bool put_pixels(ts_object *o, const progress *p)
{
    int64_t n = p->pixels.classes, count = n * n;
    double *now = n ? malloc(sizeof(*now) * (size_t)count) : NULL;
    bool good;

    for (int64_t i = 0; now && i < count; i++)
        now[i] = (double)p->pixels.now[i];
    good = !n || (now && !ts_object_set(o, "confusion", numbers(now, n, n)) &&
                  !ts_object_set(o, "pixels",
                                 numbers(p->pixels.rows ? p->pixels.rows : now,
                                         p->pixels.rows ? p->epoch : 0, n + 1)));
    free(now);
    return good;
}

ts_object *progress_object(const progress *p)
{
    static const double none[1];
    ts_object *o = ts_object_new_dict();

    if (o && !put_int(o, "epoch", p->epoch) && !put_int(o, "call", p->call) &&
        !put_int(o, "updates", p->updates) && !put_real(o, "loss", p->loss) &&
        !put_real(o, "seconds", p->seconds) && !put_int(o, "batches", p->batches) &&
        !put_int(o, "right", p->right) &&
        !ts_object_set(o, "epochs", numbers(p->rows ? &p->rows->loss : none, p->epoch, COLUMNS)) &&
        !ts_object_set(o, "curve", numbers(p->curve.points, p->curve.n, 1)) &&
        !put_int(o, "curve_stride", p->curve.stride) &&
        !put_int(o, "curve_pending", p->curve.pending) && !put_real(o, "curve_sum", p->curve.sum) &&
        put_pixels(o, p))
        return o;
    ts_object_free(o);
    return NULL;
}

static bool get_int(const ts_object *o, const char *key, int64_t *out)
{
    *out = ts_object_int(ts_object_get(o, key), -1);
    return *out >= 0;
}

static bool get_numbers(const ts_object *o, const char *key, int64_t most, int64_t columns,
                        const ts_array **out)
{
    const ts_array *a = ts_object_array(ts_object_get(o, key));

    *out = a;
    return a && a->dtype == TS_F64 && a->rank == 2 && a->dims[0] <= most && a->dims[1] == columns;
}

static bool read_curve(curve *c, const ts_object *o)
{
    const ts_array *points;

    if (!get_numbers(o, "curve", CURVE_POINTS, 1, &points) ||
        !get_int(o, "curve_stride", &c->stride) || !get_int(o, "curve_pending", &c->pending))
        return false;
    c->n = points->dims[0];
    memcpy(c->points, points->data, points->bytes);
    c->sum = ts_object_number(ts_object_get(o, "curve_sum"), 0);
    return true;
}

static bool read_pixels(progress *p, const ts_object *o)
{
    const ts_array *now = ts_object_array(ts_object_get(o, "confusion")), *rows;
    int64_t n = now && now->rank == 2 ? now->dims[0] : 0;

    if (!now)
        return true;
    if (n < 1 || n > INT16_MAX || !get_numbers(o, "confusion", n, n, &now) ||
        !get_numbers(o, "pixels", p->epoch, n + 1, &rows) || rows->dims[0] != p->epoch)
        return false;
    free(p->pixels.now);
    free(p->pixels.rows);
    p->pixels = (pixel_progress){.rows = malloc(rows->bytes + 1)};
    if (!p->pixels.rows || !progress_pixels(p, (int)n))
        return false;
    memcpy(p->pixels.rows, rows->data, rows->bytes);
    progress_count(p, now->data);
    return true;
}

bool progress_read(progress *p, const ts_object *o)
{
    const ts_array *rows;

    if (!get_int(o, "epoch", &p->epoch) || !get_int(o, "call", &p->call) ||
        !get_int(o, "updates", &p->updates) || !get_int(o, "batches", &p->batches) ||
        !get_int(o, "right", &p->right) || !get_numbers(o, "epochs", p->epoch, COLUMNS, &rows) ||
        rows->dims[0] != p->epoch || !read_curve(&p->curve, o))
        return false;
    p->loss = ts_object_number(ts_object_get(o, "loss"), 0);
    p->seconds = ts_object_number(ts_object_get(o, "seconds"), 0);
    free(p->rows);
    p->rows = malloc(rows->bytes + 1);
    if (!p->rows)
        return false;
    memcpy(p->rows, rows->data, rows->bytes);
    return read_pixels(p, o);
}
