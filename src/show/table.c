/* table.c - cells in aligned columns: names to the left, numbers to the right. */
#include "show/show.h"

static void pad(ts_text *t, int columns)
{
    while (columns-- > 0)
        ts_text_add(t, " ", 1);
}

static int widest(const char *const *cells, int rows, int columns)
{
    int w = 0;

    for (int i = 0; i < rows; i++) {
        const char *s = cells[(size_t)i * (size_t)columns];
        w = TS_MAX(w, ts_utf8_columns(s ? s : ""));
    }
    return w;
}

char *ts_table_text(const char *const *cells, int rows, int columns)
{
    ts_text t = {0};
    int *width = calloc((size_t)TS_MAX(1, columns), sizeof(*width));

    for (int j = 0; width && j < columns; j++)
        width[j] = widest(cells + j, rows, columns);
    for (int i = 0; width && i < rows; i++)
        for (int j = 0; j < columns; j++) {
            const char *s = cells[(size_t)i * (size_t)columns + (size_t)j];
            int room = width[j] - ts_utf8_columns(s ? s : "");

            pad(&t, j ? 2 + room : 0);
            ts_utf8_clean(&t, s ? s : "");
            pad(&t, j || columns == 1 ? 0 : room);
            if (j == columns - 1)
                ts_text_add(&t, "\n", 1);
        }
    ts_text_add(&t, "", 0);
    free(width);
    return t.s;
}
