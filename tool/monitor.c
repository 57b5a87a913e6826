/* monitor.c - tessera monitor: the virtual devices of this machine and the processes that use them,
 * in the two tables of gc-monitor. */
#include "tool.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static struct {
    bool live, json;
} args;

static const option options[] = {
    {"live", NULL, KIND_FLAG, &args.live, .letter = 'l',
     .help = "show it again every second, until Ctrl-C; also -l"},
    {"json", NULL, KIND_FLAG, &args.json, .help = "print it as JSON"},
    {0},
};

typedef struct sample {
    ts_device_use *uses;
    int count;
    double at; /* seconds */
} sample;

static double seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int take(sample *s)
{
    s->at = seconds();
    return ts_device_list(&s->uses, &s->count) ? failed() : TOOL_OK;
}

/* The share of the time between two samples that a process used a device, of 1; at first that of
 * all its time. */
static double utilisation(const ts_device_use *u, const sample *before, double at)
{
    double busy = u->busy, time = u->seconds, share;

    for (int i = 0; i < before->count; i++)
        if (before->uses[i].pid == u->pid && before->uses[i].device == u->device &&
            before->uses[i].seconds <= u->seconds) {
            busy = u->busy - before->uses[i].busy;
            time = at - before->at;
        }
    share = time > 0 ? busy / time : 0;
    return share < 0 ? 0 : share > 1 ? 1 : share;
}

static int device_count(const sample *s)
{
    int n = ts_device_count();

    n = n ? n : 1;
    for (int i = 0; i < s->count; i++)
        n = s->uses[i].device >= n ? s->uses[i].device + 1 : n;
    return n;
}

/* Of a device: its processes and their memory. */
static int attached(const sample *s, int device, int64_t *memory)
{
    int n = 0;

    *memory = 0;
    for (int i = 0; i < s->count; i++)
        if (s->uses[i].device == device) {
            *memory += s->uses[i].memory;
            n++;
        }
    return n;
}

/* --- text --- */

/* "13s", "4m12s", "3h05m" */
static const char *time_text(double t, char *out, size_t size)
{
    long s = (long)t;

    if (s < 60)
        snprintf(out, size, "%lds", s);
    else if (s < 3600)
        snprintf(out, size, "%ldm%02lds", s / 60, s % 60);
    else
        snprintf(out, size, "%ldh%02ldm", s / 3600, s / 60 % 60);
    return out;
}

/* +----+------+ */
static void line(const int *widths, int n)
{
    for (int i = 0; i < n; i++) {
        putchar('+');
        for (int k = 0; k < widths[i]; k++)
            putchar('-');
    }
    puts("+");
}

/* In the middle of its column; what is too long ends in dots. */
static void put_cell(const char *text, int width)
{
    char cut[256];
    int n = (int)strlen(text), left;

    if (n > width) {
        snprintf(cut, sizeof(cut), "%.*s...", width - 3, text);
        text = cut;
        n = width;
    }
    left = (width - n) / 2;
    printf("|%*s%s%*s", left, "", text, width - n - left, "");
}

static void row(const char *const *cells, const int *widths, int n)
{
    for (int i = 0; i < n; i++)
        put_cell(cells[i], widths[i]);
    puts("|");
}

/* The columns from `from` to `to` and the lines between them. */
static int span(const int *widths, int from, int to)
{
    int sum = to - from - 1;

    for (int i = from; i < to; i++)
        sum += widths[i];
    return sum;
}

static const char *host(void)
{
    static char name[256];

    if (gethostname(name, sizeof(name) - 1) || !name[0])
        snprintf(name, sizeof(name), "this machine");
    return printable(name, name, sizeof(name));
}

static void device_table(const sample *s)
{
    static const char *const head[] = {"Host", "Processor", "Version",  "Kind",
                                       "ID",   "Memory",    "Processes"};
    enum { N = COUNT(head) };
    static const int widths[N] = {18, 28, 10, 7, 6, 12, 11};
    ts_machine_info m;
    char title[300], id[16], memory[32], users[16];
    int n = device_count(s), titles[2] = {15, 0};
    int64_t bytes;

    ts_machine(&m);
    titles[1] = span(widths, 0, N) - titles[0] - 1;
    snprintf(title, sizeof(title), "Machine: %.64s [active] has %d virtual device%s%s", host(), n,
             n == 1 ? "" : "s", ts_device_count() ? "" : ", more when asked for");
    line(titles, 2);
    row((const char *[]){"gc-monitor", title}, titles, 2);
    line(widths, N);
    row(head, widths, N);
    line(widths, N);
    for (int d = 0; d < n; d++) {
        snprintf(id, sizeof(id), "%d", d);
        snprintf(users, sizeof(users), "%d", attached(s, d, &bytes));
        row((const char *[]){host(), m.processor, ts_version(), "cpu", id,
                             bytes_text(bytes, memory, sizeof(memory)), users},
            widths, N);
    }
    line(widths, N);
}

static void process_table(const sample *s, const sample *before)
{
    static const char *const head[] = {"PID", "Command", "Time",  "User",
                                       "ID",  "Memory",  "Calls", "Busy"};
    enum { N = COUNT(head), OF_PROCESS = 4 };
    static const int widths[N] = {9, 40, 8, 12, 6, 12, 10, 8};
    char title[300], cells[N][160];
    const char *out[N];
    int titles[2] = {span(widths, 0, OF_PROCESS), span(widths, OF_PROCESS, N)};
    int whole = span(widths, 0, N);

    if (!s->count) {
        line(&whole, 1);
        row((const char *[]){"No attached processes"}, &whole, 1);
        line(&whole, 1);
        return;
    }
    snprintf(title, sizeof(title), "Attached processes on %.64s", host());
    line(titles, 2);
    row((const char *[]){title, "Device"}, titles, 2);
    line(widths, N);
    row(head, widths, N);
    line(widths, N);
    for (int i = 0; i < s->count; i++) {
        const ts_device_use *u = &s->uses[i];
        for (int k = 0; k < N; k++)
            out[k] = cells[k];
        snprintf(cells[0], sizeof(cells[0]), "%" PRId64, u->pid);
        printable(u->command, cells[1], sizeof(cells[1]));
        time_text(u->seconds, cells[2], sizeof(cells[2]));
        printable(u->user, cells[3], sizeof(cells[3]));
        snprintf(cells[4], sizeof(cells[4]), "%d%s", u->device, u->exclusive ? "*" : "");
        bytes_text(u->memory, cells[5], sizeof(cells[5]));
        snprintf(cells[6], sizeof(cells[6]), "%" PRId64, u->calls);
        snprintf(cells[7], sizeof(cells[7]), "%.0f%%", 100 * utilisation(u, before, s->at));
        row(out, widths, N);
    }
    line(widths, N);
}

/* --- JSON --- */

static void print_json(const sample *s, const sample *before)
{
    int64_t bytes;

    printf("{\"host\": ");
    json_quote(host());
    printf(", \"limit\": %d, \"devices\": [", ts_device_count());
    for (int d = 0; d < device_count(s); d++) {
        int n = attached(s, d, &bytes);
        printf("%s{\"id\": %d, \"kind\": \"cpu\", \"memory\": %" PRId64 ", \"processes\": %d}",
               d ? ", " : "", d, bytes, n);
    }
    printf("], \"processes\": [");
    for (int i = 0; i < s->count; i++) {
        const ts_device_use *u = &s->uses[i];
        printf("%s{\"pid\": %" PRId64 ", \"command\": ", i ? ", " : "", u->pid);
        json_quote(u->command);
        printf(", \"user\": ");
        json_quote(u->user);
        printf(", \"seconds\": ");
        json_value(u->seconds);
        printf(", \"id\": %d, \"exclusive\": %s, \"memory\": %" PRId64 ", \"calls\": %" PRId64
               ", \"utilisation\": ",
               u->device, u->exclusive ? "true" : "false", u->memory, u->calls);
        json_value(utilisation(u, before, s->at));
        printf("}");
    }
    printf("]}\n");
}

/* --- all --- */

static void print(const sample *s, const sample *before)
{
    if (args.json) {
        print_json(s, before);
        return;
    }
    device_table(s);
    process_table(s, before);
}

static void wait_for(long milliseconds)
{
    nanosleep(&(struct timespec){milliseconds / 1000, milliseconds % 1000 * 1000000}, NULL);
}

static int run(void)
{
    enum { BETWEEN = 200, SECOND = 1000 };
    sample before = {0}, now = {0};
    bool redraw = args.live && !args.json && isatty(1);
    int code = take(&before);

    while (!code) {
        if (before.count || redraw)
            wait_for(redraw && now.at > 0 ? SECOND : BETWEEN);
        code = take(&now);
        if (code)
            break;
        if (redraw)
            printf("\033[H\033[2J");
        print(&now, &before);
        if (!args.live || fflush(stdout))
            break;
        free(before.uses);
        before = now;
        now.uses = NULL;
        if (!redraw)
            wait_for(SECOND);
    }
    free(before.uses);
    free(now.uses);
    return code;
}

const command monitor_command = {
    .name = "monitor",
    .summary = "Shows the virtual devices of this machine and the processes that use them",
    .options = options,
    .run = run,
    .more =
        "Processes are those of this user. Busy is how much of its time a process works on the\n"
        "device, a * after the ID that nobody else may have it. gc-monitor is another name of\n"
        "this command.",
    .examples = "monitor\nmonitor --json\n",
};

const command gc_monitor_command = {
    .name = "gc-monitor",
    .summary = "Shows the virtual devices of this machine and the processes that use them",
    .options = options,
    .run = run,
    .examples = "gc-monitor\n",
    .hidden = true,
};
