/* bar.c - progress bars on stderr, in tqdm's shape, and nested as tqdm nests them.
 *
 *   Epochs:  40%|████      | 2/5 [00:03<00:05,  1.71s/it, loss=0.345]
 *   Batches:  7%|▋         | 263/3750 [00:00<00:02, 1501.24it/s]
 *
 * The open bars are a stack of lines. Between two calls the cursor is on the first of them, so
 * whoever prints at any time finds an ordinary line; a bar further down is reached with newlines,
 * and left with "cursor up".
 */
#include "show/show.h"
#include <pthread.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { MAX_OPEN = 8, CELLS = 10, POSTFIX = 160 };
/* The terminal echoes ^C where the cursor stands, behind a bar: that, and the last column. */
enum { SPARE = 3 };
static const double INTERVAL = 0.1, SMOOTHING = 0.3;

struct ts_bar {
    char *label, *unit;
    char postfix[POSTFIX];
    int64_t n, total, drawn_n;
    double start, drawn, interval;
    double mean_n, mean_time; /* running means of what the last draws saw */
    int columns;              /* of the line as it stands */
    bool transient;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static ts_bar *open_bars[MAX_OPEN];
static int nopen;

/* --- one line --- */

static void add_clock(ts_text *out, double seconds)
{
    long long s = seconds < 1e15 ? (long long)seconds : 0;

    if (s >= 3600)
        ts_text_printf(out, "%lld:%02lld:%02lld", s / 3600, s / 60 % 60, s % 60);
    else
        ts_text_printf(out, "%02lld:%02lld", s / 60, s % 60);
}

static void add_rate(ts_text *out, double rate, const char *unit)
{
    if (!(rate > 0))
        ts_text_printf(out, "?%s/s", unit);
    else if (rate < 1)
        ts_text_printf(out, "%5.2fs/%s", 1 / rate, unit);
    else
        ts_text_printf(out, "%5.2f%s/s", rate, unit);
}

/* [elapsed<remaining, rate, postfix] */
static void add_times(ts_text *out, const ts_bar_view *v, bool known)
{
    double rate = v->rate > 0 ? v->rate : v->elapsed > 0 ? (double)v->n / v->elapsed : 0;

    ts_text_printf(out, "[");
    add_clock(out, v->elapsed);
    if (known && rate > 0) {
        ts_text_printf(out, "<");
        add_clock(out, (double)(v->total - v->n) / rate);
    } else if (known) {
        ts_text_printf(out, "<?");
    }
    if (v->unit[0]) {
        ts_text_printf(out, ", ");
        add_rate(out, rate, v->unit);
    }
    ts_text_printf(out, "%s%s]", v->postfix[0] ? ", " : "", v->postfix);
}

/* Whole cells, and the one where the bar ends in eighths (or tenths, with digits). */
static void add_cells(ts_text *out, double part, int ncells, bool ascii)
{
    static const char *const blocks[] = {" ", "▏", "▎", "▍", "▌", "▋", "▊", "▉", "█"};
    static const char *const digits[] = {" ", "1", "2", "3", "4", "5", "6", "7", "8", "9", "#"};
    const char *const *marks = ascii ? digits : blocks;
    int steps = ascii ? 10 : 8;
    int64_t filled = (int64_t)(part * ncells * steps);

    for (int i = 0; i < ncells; i++) {
        int64_t fill = filled - (int64_t)steps * i;
        ts_text_printf(out, "%s", marks[TS_MAX(0, TS_MIN(steps, fill))]);
    }
}

static void add_bar(ts_text *out, const ts_bar_view *v)
{
    double part = (double)v->n / (double)v->total;
    ts_text after = {0};
    int room;

    ts_text_printf(out, "%3.0f%%|", 100 * part);
    ts_text_printf(&after, "| %lld/%lld ", (long long)v->n, (long long)v->total);
    add_times(&after, v, true);
    room = v->width - ts_utf8_columns(out->s) - ts_utf8_columns(after.s);
    add_cells(out, part, v->width > 0 ? TS_MAX(1, room) : CELLS, v->ascii);
    ts_text_add(out, after.s, after.len);
    ts_text_free(&after);
}

void ts_bar_line(ts_text *out, const ts_bar_view *v)
{
    out->len = 0;
    if (v->label[0])
        ts_text_printf(out, "%s: ", v->label);
    if (v->total > 0 && v->n >= 0 && v->n <= v->total) {
        add_bar(out, v);
    } else {
        ts_text_printf(out, "%lld%s ", (long long)v->n, v->unit);
        add_times(out, v, false);
    }
    if (v->width > 0)
        out->s[out->len = ts_utf8_prefix(out->s, v->width)] = 0;
}

/* --- the screen --- */

static bool wanted(void)
{
    const char *s = getenv("TESSERA_PROGRESS"), *terminal = getenv("TERM");

    if (s && s[0])
        return strcmp(s, "0") != 0;
    return isatty(STDERR_FILENO) && !(terminal && !strcmp(terminal, "dumb"));
}

/* Asks the variables that choose the locale, not the locale: few programs call setlocale(). */
static bool ascii_only(void)
{
    static const char *const names[] = {"LC_ALL", "LC_CTYPE", "LANG"};

    for (int i = 0; i < TS_COUNT(names); i++) {
        const char *s = getenv(names[i]);
        if (s && s[0])
            return !strcasestr(s, "utf-8") && !strcasestr(s, "utf8");
    }
    return true;
}

static int screen_width(void)
{
    struct winsize w;
    const char *s = getenv("COLUMNS");
    int n = ioctl(STDERR_FILENO, TIOCGWINSZ, &w) ? 0 : w.ws_col;

    if (!n && s)
        n = (int)TS_MAX(0, TS_MIN(10000, strtol(s, NULL, 10)));
    return n > 0 ? TS_MAX(1, n - SPARE) : 0;
}

static void repeat(ts_text *out, const char *s, int times)
{
    for (int i = 0; i < times; i++)
        ts_text_add(out, s, strlen(s));
}

/* Writes a line `down` lines below the cursor, over the one that is there. */
static void put_line(ts_bar *b, const char *line, int down)
{
    ts_text out = {0};
    int columns = ts_utf8_columns(line);

    repeat(&out, "\n", down);
    ts_text_printf(&out, "\r%s", line);
    if (isatty(STDERR_FILENO))
        ts_text_printf(&out, "\033[K");
    else
        repeat(&out, " ", b->columns - columns);
    repeat(&out, "\033[A", down);
    fwrite(out.s, 1, out.len, stderr);
    fflush(stderr);
    b->columns = columns;
    ts_text_free(&out);
}

static void draw(ts_bar *b, double rate, int down)
{
    ts_text line = {0};
    ts_bar_view v = {.label = b->label, .unit = b->unit, .postfix = b->postfix, .n = b->n};

    v.total = b->total;
    v.elapsed = TS_MAX(0, ts_now() - b->start);
    v.rate = rate;
    v.width = screen_width();
    v.ascii = ascii_only();
    ts_bar_line(&line, &v);
    put_line(b, line.s, down);
    ts_text_free(&line);
}

static double current_rate(const ts_bar *b)
{
    return b->mean_time > 0 ? b->mean_n / b->mean_time : 0;
}

static int position(const ts_bar *b)
{
    int i = 0;

    while (i < nopen && open_bars[i] != b)
        i++;
    return i;
}

static void redraw_all(void)
{
    for (int i = 0; i < nopen; i++)
        draw(open_bars[i], current_rate(open_bars[i]), i);
}

/* --- the calls --- */

static char *clean_copy(const char *s)
{
    ts_text t = {0};

    ts_utf8_clean(&t, s ? s : "");
    return t.s;
}

ts_bar *ts_bar_open_every(const ts_bar_options *opt, double interval)
{
    ts_bar *b = opt->quiet || !wanted() ? NULL : calloc(1, sizeof(*b));

    if (!b)
        return NULL;
    b->label = clean_copy(opt->label);
    b->unit = clean_copy(opt->unit ? opt->unit : "it");
    b->total = opt->total;
    b->transient = opt->transient;
    b->interval = interval;
    b->start = b->drawn = ts_now();
    pthread_mutex_lock(&lock);
    if (nopen < MAX_OPEN) {
        open_bars[nopen++] = b;
        draw(b, 0, nopen - 1);
    }
    pthread_mutex_unlock(&lock);
    return b;
}

/* A bar is nothing to fail for: one that cannot be understood is not shown. */
ts_bar *ts_bar_open_sized(const ts_bar_options *opt, size_t size)
{
    ts_bar_options own;

    return ts_take_sized("ts_bar_open", opt, size, &own, sizeof(own))
               ? NULL
               : ts_bar_open_every(&own, INTERVAL);
}

/* The first means are of few draws: both are as much too small, so their quotient is right. */
static void measure(ts_bar *b, double now)
{
    b->mean_n += SMOOTHING * ((double)b->n - (double)b->drawn_n - b->mean_n);
    b->mean_time += SMOOTHING * (now - b->drawn - b->mean_time);
    b->drawn_n = b->n;
    b->drawn = now;
}

void ts_bar_update(ts_bar *b, int64_t more)
{
    double now;

    if (!b)
        return;
    pthread_mutex_lock(&lock);
    now = ts_now();
    if (__builtin_add_overflow(b->n, more, &b->n))
        b->n = INT64_MAX;
    if (now - b->drawn >= b->interval && position(b) < nopen) {
        measure(b, now);
        draw(b, current_rate(b), position(b));
    }
    pthread_mutex_unlock(&lock);
}

void ts_bar_postfix(ts_bar *b, const char *fmt, ...)
{
    char raw[POSTFIX];
    ts_text clean = {0};
    va_list ap;

    if (!b)
        return;
    va_start(ap, fmt);
    ts_vformat(raw, sizeof(raw), fmt, ap);
    va_end(ap);
    ts_utf8_clean(&clean, raw);
    pthread_mutex_lock(&lock);
    snprintf(b->postfix, sizeof(b->postfix), "%s", clean.s);
    pthread_mutex_unlock(&lock);
    ts_text_free(&clean);
}

void ts_bar_print(const char *line)
{
    pthread_mutex_lock(&lock);
    for (int i = 0; i < nopen; i++)
        put_line(open_bars[i], "", i);
    fprintf(stderr, "%s%s\n", nopen ? "\r" : "", line);
    redraw_all();
    pthread_mutex_unlock(&lock);
}

/* A bar that stays is written for the last time on the first line, and the others start
 * below it. */
static void take_off(ts_bar *b)
{
    int at = position(b), last = nopen - 1;

    if (at > last)
        return;
    if (b->transient) {
        put_line(open_bars[last], "", last);
    } else {
        draw(b, 0, 0);
        fputs("\n", stderr);
    }
    nopen = last;
    memmove(&open_bars[at], &open_bars[at + 1], sizeof(b) * (size_t)(nopen - at));
    redraw_all();
    if (b->transient && !nopen)
        fputs("\r", stderr);
}

void ts_bar_close(ts_bar *b)
{
    if (!b)
        return;
    pthread_mutex_lock(&lock);
    take_off(b);
    pthread_mutex_unlock(&lock);
    free(b->label);
    free(b->unit);
    free(b);
}

void ts_bar_finish(ts_bar *b)
{
    if (b)
        b->n = b->total;
    ts_bar_close(b);
}
