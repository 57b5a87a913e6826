/* store_convert.c - reads one file and writes another; the endings say the formats. For
 * test/python/test_store.py.
 *
 *   store_convert IN OUT
 */
#include "tessera/store.h"
#include <stdio.h>

int main(int argc, char **argv)
{
    ts_object *o = NULL;
    ts_status s;

    if (argc != 3) {
        fputs("usage: store_convert IN OUT\n", stderr);
        return 2;
    }
    s = ts_object_load(argv[1], &o);
    if (!s)
        s = ts_object_save(o, argv[2], TS_FILE_AUTO);
    if (s)
        fputs(ts_error_text(), stderr);
    ts_object_free(o);
    return s ? 1 : 0;
}
