/* error.c - the thread's last error: code, message, where, doing, hint. */
#include "base/base.h"

static _Thread_local ts_error last;
static _Thread_local char text[sizeof(ts_error) + 128];

static void set(char *field, size_t size, const char *fmt, va_list ap)
{
    ts_vformat(field, size, fmt, ap);
}

/* The words may come from the last error itself, so it is replaced only when they are written. */
static ts_status fail(const char *where, ts_status code, const char *fmt, va_list ap)
{
    ts_error e = {.code = code};

    snprintf(e.where, sizeof(e.where), "%s", where ? where : "");
    set(e.message, sizeof(e.message), fmt, ap);
    last = e;
    return code;
}

ts_status ts_fail_loc(const char *where, ts_status code, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    fail(where, code, fmt, ap);
    va_end(ap);
    return code;
}

ts_status ts_fail(ts_status code, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    fail(NULL, code, fmt, ap);
    va_end(ap);
    return code;
}

void ts_error_hint(const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    set(last.hint, sizeof(last.hint), fmt, ap);
    va_end(ap);
}

void ts_error_doing(const char *fmt, ...)
{
    va_list ap;

    if (last.doing[0])
        return;
    va_start(ap, fmt);
    set(last.doing, sizeof(last.doing), fmt, ap);
    va_end(ap);
}

void ts_error_set(const ts_error *e)
{
    last = *e;
}

const ts_error *ts_last_error(void)
{
    return &last;
}

const char *ts_status_name(ts_status code)
{
    static const char *const names[] = {
        [TS_OK] = "no error",
        [TS_ERR_ARG] = "argument error",
        [TS_ERR_SHAPE] = "shape error",
        [TS_ERR_TYPE] = "type error",
        [TS_ERR_GRAD] = "gradient error",
        [TS_ERR_UNSUPPORTED] = "not supported",
        [TS_ERR_PARSE] = "parse error",
        [TS_ERR_MEMORY] = "out of memory",
        [TS_ERR_FILE] = "file error",
        [TS_ERR_COMPILER] = "compiler error",
        [TS_ERR_CORRUPT] = "corrupt file",
        [TS_ERR_INTERNAL] = "internal error",
        [TS_ERR_PROCESS] = "process error",
        [TS_ERR_NUMBER] = "floating-point exception",
    };

    return (unsigned)code < TS_COUNT(names) ? names[code] : "unknown error";
}

const char *ts_error_text(void)
{
    size_t n = 0;

    n += (size_t)snprintf(text + n, sizeof(text) - n, "%s: %s\n", ts_status_name(last.code),
                          last.message);
    if (last.where[0])
        n += (size_t)snprintf(text + n, sizeof(text) - n, "  at     %s\n", last.where);
    if (last.doing[0])
        n += (size_t)snprintf(text + n, sizeof(text) - n, "  while  %s\n", last.doing);
    if (last.hint[0])
        n += (size_t)snprintf(text + n, sizeof(text) - n, "  hint   %s\n", last.hint);
    return text;
}

const char *ts_version(void)
{
    return TS_VERSION;
}
