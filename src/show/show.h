/* show.h - what people look at: bars, tables, logs and plots. */
#ifndef TS_SHOW_H
#define TS_SHOW_H

#include "base/base.h"

/* utf8.c: texts of users, made fit for a screen, a picture or a protocol */
int ts_utf8_next(const char **s);                  /* code point; -1 and one byte on when invalid */
void ts_utf8_clean(ts_text *out, const char *s);   /* no invalid bytes, no control characters */
int ts_utf8_columns(const char *s);                /* of a terminal */
size_t ts_utf8_prefix(const char *s, int columns); /* bytes of it that fit */

/* events.c */
uint32_t ts_crc32c(const void *data, size_t n);

/* bar.c */
typedef struct ts_bar_view {
    const char *label, *unit, *postfix; /* unit "": no rate */
    int64_t n, total;
    double elapsed, rate; /* rate 0: the mean so far */
    int width;            /* columns; 0: unknown     */
    bool ascii;
} ts_bar_view;
void ts_bar_line(ts_text *out, const ts_bar_view *v);
ts_bar *ts_bar_open_every(const ts_bar_options *opt, double interval); /* seconds between draws */
void ts_bar_finish(ts_bar *b);                                         /* all is done: closes it */

#endif
