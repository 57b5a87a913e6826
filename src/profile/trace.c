/* trace.c - what the database has of times, as trace.json for Perfetto and chrome://tracing.
 *
 *   process "host"        a thread a kind: compile, calls, copies, waits for the loader
 *   process "replica 0"   "device 0"            sections, and in them the kernels of the thread that led
 *                         "device 0, thread 1"  the other threads' shares
 *
 * An arrow (a flow) goes from a section that sends to each that reads what it sent, of the same
 * micro-batch. Times are microseconds from the profile's zero, as the format wants them.
 */
#include "profile/profile.h"
#include <inttypes.h>

enum {
    HOST = 1,
    FIRST = 2,
    THREADS = 4096
}; /* processes: the host, replica 0; threads of a device */

typedef struct slice { /* a section's run */
    int call, replica, section, micro, device;
    double start, end;
} slice;

typedef struct arrows { /* a row of the table send */
    int from, to;
} arrows;

typedef struct trace {
    ts_arena *a;
    ts_text t;
    int rows; /* written */
    slice *slices;
    int nslices;
    arrows *sends;
    int nsends;
    int lead; /* thread of the section that the kernels at hand belong to */
    int64_t *tracks;
    int ntracks;
} trace;

/* --- JSON --- */

static void quote(ts_text *t, const char *s)
{
    ts_text_add(t, "\"", 1);
    for (; *s; s++)
        if ((unsigned char)*s < 0x20 || *s == 0x7f)
            ts_text_printf(t, "\\u%04x", (unsigned)(unsigned char)*s);
        else if (*s == '"' || *s == '\\')
            ts_text_printf(t, "\\%c", *s);
        else
            ts_text_add(t, s, 1);
    ts_text_add(t, "\"", 1);
}

static void number(ts_text *t, double x)
{
    char s[32];

    ts_format(s, sizeof(s), "%.3f", x);
    ts_text_printf(t, "%s", s);
}

/* {"ph": "X", "pid": 1, "tid": 0, "name": "..."; what follows closes it. */
static void begin(trace *x, char ph, int pid, int64_t tid, const char *name)
{
    ts_text_printf(&x->t, "%s{\"ph\": \"%c\", \"pid\": %d, \"tid\": %" PRId64 ", \"name\": ",
                   x->rows++ ? ",\n" : "", ph, pid, tid);
    quote(&x->t, name);
}

static void times(trace *x, double start, double end)
{
    ts_text_printf(&x->t, ", \"ts\": ");
    number(&x->t, 1e6 * start);
    ts_text_printf(&x->t, ", \"dur\": ");
    number(&x->t, 1e6 * (end > start ? end - start : 0));
}

static void named(trace *x, const char *what, int pid, int64_t tid, const char *name)
{
    begin(x, 'M', pid, tid, what);
    ts_text_printf(&x->t, ", \"args\": {\"name\": ");
    quote(&x->t, name);
    ts_text_printf(&x->t, "}}");
}

/* --- tracks --- */

static bool known(trace *x, int pid, int64_t tid)
{
    int64_t track = (int64_t)pid * THREADS * THREADS + tid;

    for (int i = x->ntracks - 1; i >= 0; i--)
        if (x->tracks[i] == track)
            return true;
    TS_PUSH(x->a, x->tracks, x->ntracks, track);
    return false;
}

/* The track of a device's leading thread, -1, or of another one. */
static int64_t track(trace *x, int replica, int device, int thread)
{
    int64_t tid = (int64_t)device * THREADS + thread + 2;

    if (!known(x, replica + FIRST, -1))
        named(x, "process_name", replica + FIRST, 0, ts_arena_printf(x->a, "replica %d", replica));
    if (!known(x, replica + FIRST, tid))
        named(x, "thread_name", replica + FIRST, tid,
              thread < 0 ? ts_arena_printf(x->a, "device %d", device)
                         : ts_arena_printf(x->a, "device %d, thread %d", device, thread));
    return tid;
}

/* --- sections and kernels --- */

enum {
    CALL,
    REPLICA,
    DEVICE,
    THREAD,
    KERNEL,
    SECTION,
    MICRO,
    START,
    END,
    KIND,
    BLOCKS,
    NAME,
    OP,
    PASS,
    LAYER,
    FLOPS,
    READ,
    WRITTEN,
    MODELLED
};
static const char events[] =
    "SELECT e.call, e.replica, e.device, e.thread, e.kernel, e.section, e.micro, e.start, e.end,"
    " s.kind, s.name, k.name, k.op, k.pass, l.name, k.flops, k.read, k.written, k.modelled"
    " FROM event e LEFT JOIN section s ON s.id = e.section LEFT JOIN kernel k ON k.id = e.kernel"
    " LEFT JOIN layer l ON l.id = k.layer"
    " ORDER BY e.call, e.replica, e.section, e.micro, e.kernel IS NOT NULL, e.start";

static void section_args(trace *x, const slice *s)
{
    ts_text_printf(&x->t,
                   ", \"cat\": \"section\", \"args\": {\"call\": %d, \"section\": %d, "
                   "\"micro\": %d}}",
                   s->call, s->section, s->micro);
}

static void add_section(trace *x, const ts_db *d)
{
    slice s = {.call = (int)ts_db_int(d, CALL),
               .replica = (int)ts_db_int(d, REPLICA),
               .section = (int)ts_db_int(d, SECTION),
               .micro = (int)ts_db_int(d, MICRO),
               .device = (int)ts_db_int(d, DEVICE),
               .start = ts_db_real(d, START),
               .end = ts_db_real(d, END)};
    const char *kind = ts_db_text(d, KIND), *blocks = ts_db_text(d, BLOCKS);
    const char *what = !strcmp(kind, "both") ? "forward and backward" : kind;
    int64_t tid = track(x, s.replica, s.device, -1);

    x->lead = (int)ts_db_int(d, THREAD);
    TS_PUSH(x->a, x->slices, x->nslices, s);
    begin(x, 'X', s.replica + FIRST, tid,
          ts_arena_printf(x->a, "%s%s%s %d", what, blocks[0] ? " " : "", blocks, s.micro));
    times(x, s.start, s.end);
    section_args(x, &s);
}

static void add_kernel(trace *x, const ts_db *d)
{
    int thread = (int)ts_db_int(d, THREAD), replica = (int)ts_db_int(d, REPLICA);
    int64_t tid = track(x, replica, (int)ts_db_int(d, DEVICE), thread == x->lead ? -1 : thread);

    begin(x, 'X', replica + FIRST, tid, ts_db_text(d, NAME));
    times(x, ts_db_real(d, START), ts_db_real(d, END));
    ts_text_printf(&x->t, ", \"cat\": \"kernel\", \"args\": {\"layer\": ");
    quote(&x->t, ts_db_text(d, LAYER));
    ts_text_printf(&x->t, ", \"op\": ");
    quote(&x->t, ts_db_text(d, OP));
    ts_text_printf(&x->t, ", \"pass\": ");
    quote(&x->t, ts_db_text(d, PASS));
    ts_text_printf(&x->t,
                   ", \"kernel\": %" PRId64 ", \"call\": %" PRId64 ", \"micro\": %" PRId64
                   ", \"thread\": %d, \"read\": %" PRId64 ", \"written\": %" PRId64 ", \"flops\": ",
                   ts_db_int(d, KERNEL), ts_db_int(d, CALL), ts_db_int(d, MICRO), thread,
                   ts_db_int(d, READ), ts_db_int(d, WRITTEN));
    number(&x->t, ts_db_real(d, FLOPS));
    ts_text_printf(&x->t, ", \"modelled_us\": ");
    number(&x->t, 1e6 * ts_db_real(d, MODELLED));
    ts_text_printf(&x->t, "}}");
}

static void add_event(void *arg, const ts_db *d)
{
    if (ts_db_null(d, KERNEL))
        add_section(arg, d);
    else
        add_kernel(arg, d);
}

/* --- arrows --- */

static int by_slice(const void *p, const void *q)
{
    const slice *a = p, *b = q;

    return a->call != b->call         ? a->call - b->call
           : a->replica != b->replica ? a->replica - b->replica
           : a->section != b->section ? a->section - b->section
                                      : a->micro - b->micro;
}

/* A state is sent for steps to come: only what belongs to a micro-batch has an arrow. */
static void add_send(void *arg, const ts_db *d)
{
    trace *x = arg;

    for (const char *s = ts_db_text(d, 1); *s;) {
        char *end;
        int to = (int)strtol(s, &end, 10);
        if (end == s)
            break;
        TS_PUSH(x->a, x->sends, x->nsends, ((arrows){(int)ts_db_int(d, 0), to}));
        s = end;
    }
}

static void end_of_arrow(trace *x, char ph, const slice *s, int id)
{
    begin(x, ph, s->replica + FIRST, track(x, s->replica, s->device, -1), "send");
    ts_text_printf(&x->t, ", \"cat\": \"send\", \"id\": %d, %s\"ts\": ", id,
                   ph == 'f' ? "\"bp\": \"e\", " : "");
    /* it must lie within the slice, whose end is no part of it */
    number(&x->t, 1e6 * (ph == 'f' ? s->start : s->end - (s->end - s->start) / 100));
    ts_text_printf(&x->t, "}");
}

static void draw_arrows(trace *x)
{
    int id = 0;

    if (x->nslices)
        qsort(x->slices, (size_t)x->nslices, sizeof(slice), by_slice);
    for (int i = 0; i < x->nslices; i++)
        for (int k = 0; k < x->nsends; k++) {
            slice want = x->slices[i];
            const slice *to;
            if (x->sends[k].from != want.section)
                continue;
            want.section = x->sends[k].to;
            to = bsearch(&want, x->slices, (size_t)x->nslices, sizeof(slice), by_slice);
            if (!to)
                continue;
            end_of_arrow(x, 's', &x->slices[i], ++id);
            end_of_arrow(x, 'f', to, id);
        }
}

/* --- the host --- */

static const struct {
    const char *kinds, *name; /* those of one thread of the trace never cross each other */
} host_tracks[] = {{"call", "calls"},
                   {"compile pass plan render cc load attach profile", "tessera"},
                   {"copy_in copy_out", "copies"},
                   {"loader", "loader"},
                   {"callback", "callbacks"},
                   {"send", "sends"}};

static bool among(const char *words, const char *word)
{
    size_t n = strlen(word);

    for (const char *s = words; (s = strstr(s, word)); s += n)
        if ((s == words || s[-1] == ' ') && (!s[n] || s[n] == ' '))
            return true;
    return false;
}

static void add_host(void *arg, const ts_db *d)
{
    trace *x = arg;
    const char *kind = ts_db_text(d, 0), *label = "others";
    int thread = (int)ts_db_int(d, 2), row = TS_COUNT(host_tracks);
    int64_t tid;

    for (int i = 0; i < TS_COUNT(host_tracks); i++)
        if (kind[0] && among(host_tracks[i].kinds, kind)) {
            row = i;
            label = host_tracks[i].name;
        }
    tid = (int64_t)row * THREADS + thread + 1;
    if (!known(x, HOST, -1))
        named(x, "process_name", HOST, 0, "host");
    if (!known(x, HOST, tid))
        named(x, "thread_name", HOST, tid,
              thread ? ts_arena_printf(x->a, "%s, thread %d", label, thread) : label);
    begin(x, 'X', HOST, tid, ts_db_text(d, 1));
    times(x, ts_db_real(d, 3), ts_db_real(d, 4));
    ts_text_printf(&x->t, ", \"cat\": ");
    quote(&x->t, kind);
    ts_text_printf(&x->t, "}");
}

/* --- all --- */

static void write_all(trace *x, ts_db *d)
{
    ts_text_printf(&x->t, "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n");
    ts_db_ask(d, "SELECT kind, name, thread, start, end FROM host ORDER BY start", add_host, x);
    ts_db_ask(d, events, add_event, x);
    ts_db_ask(d,
              "SELECT section, readers FROM send WHERE section IN"
              " (SELECT id FROM section WHERE phase = 0)",
              add_send, x);
    draw_arrows(x);
    ts_text_printf(&x->t, "\n]}\n");
}

ts_status ts_profile_trace(const ts_profile *to)
{
    trace x = {.a = ts_arena_new()};
    ts_db *d = NULL;
    ts_status s = ts_db_open(ts_arena_printf(x.a, "%s/profile.db", to->folder), &d);

    if (!s)
        write_all(&x, d);
    s = ts_db_close(d);
    if (!s)
        s = ts_file_write(ts_arena_printf(x.a, "%s/trace.json", to->folder), x.t.s, x.t.len);
    ts_text_free(&x.t);
    ts_arena_free(x.a);
    return s;
}
