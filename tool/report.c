/* report.c - what the commands print: errors to stderr, sizes, and whether stdout took it all. */
#include "tool.h"
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

/* Of processes that run together, all but the first say which they are. */
static void begin_error(void)
{
    int rank;

    ts_comm_place(&rank, NULL);
    if (rank)
        fprintf(stderr, "tessera: process %d: ", rank);
    else
        fputs("tessera: ", stderr);
}

int failed(void)
{
    begin_error();
    fputs(ts_error_text(), stderr);
    return TOOL_FAILED;
}

int failure(const char *fmt, ...)
{
    va_list ap;

    begin_error();
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fputc('\n', stderr);
    return TOOL_FAILED;
}

int explain(ts_status code, const char *at, const char *doing, const char *hint, const char *fmt,
            ...)
{
    va_list ap;

    begin_error();
    fprintf(stderr, "%s: ", ts_status_name(code));
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    if (at)
        fprintf(stderr, "\n  at     %s", at);
    if (doing)
        fprintf(stderr, "\n  while  %s", doing);
    if (hint)
        fprintf(stderr, "\n  hint   %s", hint);
    fputc('\n', stderr);
    return TOOL_FAILED;
}

const char *printable(const char *s, char *out, size_t size)
{
    if (s != out)
        snprintf(out, size, "%s", s);
    for (unsigned char *p = (unsigned char *)out; *p;) {
        int n = utf8_letter(p);
        bool obeyed = *p < ' ' || *p == 0x7f || (*p == 0xc2 && p[1] < 0xa0); /* U+0080 to U+009F */
        for (n = n ? n : (obeyed = true); n; n--, p++)
            if (obeyed)
                *p = '?';
    }
    return out;
}

const char *bytes_text(int64_t bytes, char *out, size_t size)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double v = (double)bytes;
    int u = 0;

    while (v >= 1024 && u < COUNT(units) - 1) {
        v /= 1024;
        u++;
    }
    snprintf(out, size, u && v < 100 ? "%.1f %s" : "%.0f %s", v, units[u]);
    return out;
}

const char *shape_text(int rank, const int64_t *dims, char *out, size_t size)
{
    size_t n = 0;

    out[0] = 0;
    for (int i = 0; i < rank && n < size; i++)
        n += (size_t)snprintf(out + n, size - n, "%s%" PRId64, i ? "x" : "", dims[i]);
    return out;
}

int finish_output(int code)
{
    bool lost = ferror(stdout);

    errno = 0;
    lost = fflush(stdout) || lost;
    if (!lost || code > 128) /* after a signal perhaps nobody reads it: stop.c */
        return code;
    failure("cannot write to standard output%s%s", errno ? ": " : "", errno ? strerror(errno) : "");
    return code ? code : TOOL_FAILED;
}
