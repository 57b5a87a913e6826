/* events.c - a log that TensorBoard shows.
 *
 * A file of records, each
 *
 *   length (8 bytes) | masked crc32c of it (4) | an Event | masked crc32c of the Event (4)
 *
 * all little-endian. An Event is a protobuf message; the few fields we write are numbered below,
 * and encoding them takes less code than a library's build rules. The first Event names the format.
 * Records collect in memory and go to the file together, so that it always ends with a whole one.
 */
#include "show/show.h"
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

enum { FLUSH_BYTES = 1 << 16, MAX_BYTES = 1 << 26 };
static const double FLUSH_SECONDS = 2;

/* Field numbers of the messages, as TensorBoard's .proto files give them. */
enum {
    EVENT_TIME = 1,
    EVENT_STEP = 2,
    EVENT_VERSION = 3,
    EVENT_SUMMARY = 5,
    SUMMARY_VALUE = 1,
    VALUE_TAG = 1,
    VALUE_SIMPLE = 2,
    VALUE_IMAGE = 4,
    VALUE_TENSOR = 8,
    VALUE_METADATA = 9,
    IMAGE_HEIGHT = 1,
    IMAGE_WIDTH = 2,
    IMAGE_COLORSPACE = 3,
    IMAGE_BYTES = 4,
    METADATA_PLUGIN = 1,
    PLUGIN_NAME = 1,
    TENSOR_DTYPE = 1,
    TENSOR_SHAPE = 2,
    TENSOR_STRING = 8,
    SHAPE_DIM = 2,
    DIM_SIZE = 1,
    DT_STRING = 7
};

struct ts_events {
    char *path;
    int fd;
    ts_text records; /* not in the file yet */
    double flushed;
};

/* --- protobuf --- */

static void add_varint(ts_text *t, uint64_t v)
{
    for (; v >= 0x80; v >>= 7)
        ts_text_add(t, &(char){(char)(v | 0x80)}, 1);
    ts_text_add(t, &(char){(char)v}, 1);
}

static void add_little(ts_text *t, uint64_t v, int bytes)
{
    for (int i = 0; i < bytes; i++)
        ts_text_add(t, &(char){(char)(v >> 8 * i)}, 1);
}

enum { WIRE_VARINT, WIRE_64, WIRE_BYTES, WIRE_32 = 5 };

static void add_key(ts_text *t, int field, int wire)
{
    add_varint(t, (uint64_t)(field << 3 | wire));
}

static void add_int(ts_text *t, int field, int64_t v)
{
    add_key(t, field, WIRE_VARINT);
    add_varint(t, (uint64_t)v);
}

static void add_double(ts_text *t, int field, double v)
{
    uint64_t bits;

    memcpy(&bits, &v, sizeof(bits));
    add_key(t, field, WIRE_64);
    add_little(t, bits, 8);
}

static void add_float(ts_text *t, int field, float v)
{
    uint32_t bits;

    memcpy(&bits, &v, sizeof(bits));
    add_key(t, field, WIRE_32);
    add_little(t, bits, 4);
}

static void add_bytes(ts_text *t, int field, const void *data, size_t n)
{
    add_key(t, field, WIRE_BYTES);
    add_varint(t, n);
    ts_text_add(t, data, n);
}

static void add_string(ts_text *t, int field, const char *s)
{
    add_bytes(t, field, s, strlen(s));
}

/* Adds a message and forgets it. */
static void add_message(ts_text *t, int field, ts_text *inner)
{
    add_bytes(t, field, inner->s ? inner->s : "", inner->len);
    ts_text_free(inner);
}

/* --- records --- */

/* CRC-32C (Castagnoli, reflected 0x82f63b78), a byte at a time: events are few and small. */
uint32_t ts_crc32c(const void *data, size_t n)
{
    static _Atomic uint32_t table[256];
    const unsigned char *p = data;
    uint32_t crc = ~0u;

    if (!table[255])
        for (uint32_t i = 0; i < 256; i++) {
            uint32_t c = i;
            for (int k = 0; k < 8; k++)
                c = c & 1 ? c >> 1 ^ 0x82f63b78u : c >> 1;
            table[i] = c;
        }
    while (n--)
        crc = table[(crc ^ *p++) & 0xff] ^ crc >> 8;
    return ~crc;
}

static void add_crc(ts_text *t, const void *data, size_t n)
{
    uint32_t crc = ts_crc32c(data, n);

    add_little(t, (uint32_t)((crc >> 15 | crc << 17) + 0xa282ead8u), 4);
}

static void add_record(ts_text *t, ts_text *event)
{
    size_t at = t->len;

    add_little(t, event->len, 8);
    add_crc(t, t->s + at, 8);
    ts_text_add(t, event->s, event->len);
    add_crc(t, event->s, event->len);
    ts_text_free(event);
}

static double wall_time(void)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

ts_status ts_events_flush(ts_events *e)
{
    ts_status s;

    if (!e)
        return ts_fail(TS_ERR_ARG, "there are no events to flush: the log is not open");
    s = ts_file_append(e->fd, e->path, e->records.s, e->records.len);
    if (s) {
        ts_error_doing("writing events for TensorBoard");
        ts_error_hint("the events since the last flush are lost; the file is whole without them");
    }
    e->records.len = 0;
    e->flushed = ts_now();
    return s;
}

/* --- summaries --- */

/* As it is, which is how PyTorch writes tags; but protobuf takes no invalid UTF-8. */
static void add_tag(ts_text *value, const char *tag, const char *suffix)
{
    ts_text clean = {0};

    ts_utf8_clean(&clean, tag);
    ts_text_add(&clean, suffix, strlen(suffix));
    add_message(value, VALUE_TAG, &clean);
}

/* One Event with one Value; frees the value. */
static ts_status put(ts_events *e, int64_t step, ts_text *value)
{
    ts_text event = {0}, summary = {0};

    add_double(&event, EVENT_TIME, wall_time());
    add_int(&event, EVENT_STEP, step);
    add_message(&summary, SUMMARY_VALUE, value);
    add_message(&event, EVENT_SUMMARY, &summary);
    add_record(&e->records, &event);
    if (e->records.len < FLUSH_BYTES && ts_now() - e->flushed < FLUSH_SECONDS)
        return TS_OK;
    return ts_events_flush(e);
}

static ts_status check(const ts_events *e, const char *tag, const void *what)
{
    if (e && tag && what)
        return TS_OK;
    return ts_fail(TS_ERR_ARG, "an event needs an open log, a tag and something to show");
}

ts_status ts_events_scalar(ts_events *e, const char *tag, int64_t step, double value)
{
    ts_text v = {0};

    TS_TRY(check(e, tag, &value));
    add_tag(&v, tag, "");
    add_float(&v, VALUE_SIMPLE, (float)value);
    return put(e, step, &v);
}

static uint32_t big(const unsigned char *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

ts_status ts_events_image(ts_events *e, const char *tag, int64_t step, const void *png,
                          size_t bytes)
{
    /* the signature, then the IHDR chunk: length, name, width, height, depth, colour */
    static const int channels[] = {1, 0, 3, 3, 2, 0, 4};
    const unsigned char *p = png;
    ts_text v = {0}, image = {0};

    TS_TRY(check(e, tag, png));
    if (bytes < 33 || memcmp(p, "\x89PNG\r\n\x1a\n", 8) || memcmp(p + 12, "IHDR", 4) || p[25] > 6)
        return ts_fail(TS_ERR_ARG, "the image for '%s' (%zu bytes) is not a PNG", tag, bytes);
    if (bytes > MAX_BYTES)
        return ts_fail(TS_ERR_ARG, "the image for '%s' has %zu bytes; TensorBoard takes up to %d",
                       tag, bytes, MAX_BYTES);
    add_int(&image, IMAGE_HEIGHT, big(p + 20));
    add_int(&image, IMAGE_WIDTH, big(p + 16));
    add_int(&image, IMAGE_COLORSPACE, channels[p[25]]);
    add_bytes(&image, IMAGE_BYTES, png, bytes);
    add_tag(&v, tag, "");
    add_message(&v, VALUE_IMAGE, &image);
    return put(e, step, &v);
}

/* A tensor of one string, and the name of the plug-in that shows it. */
ts_status ts_events_text(ts_events *e, const char *tag, int64_t step, const char *text)
{
    ts_text v = {0}, tensor = {0}, shape = {0}, dim = {0}, metadata = {0}, plugin = {0};

    TS_TRY(check(e, tag, text));
    add_tag(&v, tag, "/text_summary");
    add_int(&tensor, TENSOR_DTYPE, DT_STRING);
    add_int(&dim, DIM_SIZE, 1);
    add_message(&shape, SHAPE_DIM, &dim);
    add_message(&tensor, TENSOR_SHAPE, &shape);
    add_string(&tensor, TENSOR_STRING, text);
    add_message(&v, VALUE_TENSOR, &tensor);
    add_string(&plugin, PLUGIN_NAME, "text");
    add_message(&metadata, METADATA_PLUGIN, &plugin);
    add_message(&v, VALUE_METADATA, &metadata);
    return put(e, step, &v);
}

/* --- the file --- */

/* Unique by its last two numbers on this machine, by its first and the name among machines. */
static char *file_path(const char *folder)
{
    static atomic_int count;
    char host[256] = "";
    char *path = NULL;

    if (gethostname(host, sizeof(host) - 1) || !host[0] || strchr(host, '/'))
        snprintf(host, sizeof(host), "localhost");
    if (asprintf(&path, "%s/events.out.tfevents.%010lld.%s.%ld.%d", folder, (long long)time(NULL),
                 host, (long)getpid(), atomic_fetch_add(&count, 1)) < 0)
        return NULL;
    return path;
}

static ts_status create(ts_events *e, const char *folder)
{
    ts_text first = {0};

    e->path = file_path(folder);
    if (!e->path)
        return ts_fail(TS_ERR_MEMORY, "no memory for the events in %s", folder);
    TS_TRY(ts_file_mkdirs(folder));
    e->fd = ts_fault("create")
                ? -1
                : open(e->path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0644);
    if (e->fd < 0)
        return ts_fail(TS_ERR_FILE, "cannot create %s: %s", e->path, strerror(errno));
    add_double(&first, EVENT_TIME, wall_time());
    add_string(&first, EVENT_VERSION, "brain.Event:2");
    add_record(&e->records, &first);
    return ts_events_flush(e);
}

static void drop(ts_events *e)
{
    if (e->fd >= 0)
        close(e->fd);
    ts_text_free(&e->records);
    free(e->path);
    free(e);
}

ts_status ts_events_open(const char *folder, ts_events **out)
{
    ts_events *e;
    ts_status s;

    if (!folder || !out)
        return ts_fail(TS_ERR_ARG, "events need a folder and a place for their handle");
    *out = NULL;
    e = calloc(1, sizeof(*e));
    if (!e)
        return ts_fail(TS_ERR_MEMORY, "no memory for the events in %s", folder);
    e->fd = -1;
    s = create(e, folder);
    if (s) {
        if (e->fd >= 0)
            unlink(e->path);
        drop(e);
        ts_error_doing("opening a log for TensorBoard in %s", folder);
        return s;
    }
    *out = e;
    return TS_OK;
}

ts_status ts_events_close(ts_events *e)
{
    ts_status s;

    if (!e)
        return TS_OK;
    s = ts_events_flush(e);
    drop(e);
    return s;
}
