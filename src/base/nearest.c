/* nearest.c - the word that a mistyped one was probably meant to be.
 *
 * The distance is the number of letters inserted, left out, changed or swapped with their
 * neighbour; a third of the word may be wrong.
 */
#include "base/base.h"

enum { LONGEST = 40 };

static int distance(const char *a, int la, const char *b, int lb)
{
    int d[LONGEST + 1][LONGEST + 1];

    for (int i = 0; i <= la; i++)
        for (int j = 0; j <= lb; j++) {
            if (!i || !j) {
                d[i][j] = i + j;
                continue;
            }
            d[i][j] = TS_MIN(d[i - 1][j], d[i][j - 1]) + 1;
            d[i][j] = TS_MIN(d[i][j], d[i - 1][j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                d[i][j] = TS_MIN(d[i][j], d[i - 2][j - 2] + 1);
        }
    return d[la][lb];
}

const char *ts_nearest(const char *word, const char *const *words, int n)
{
    size_t len = word ? strlen(word) : 0;
    const char *best = NULL;
    int least = TS_MAX(1, (int)TS_MIN(len, (size_t)LONGEST) / 3) + 1;

    if (len < 2 || len > LONGEST)
        return NULL;
    for (int i = 0; i < n; i++) {
        size_t other = strlen(words[i]);
        int d = other > LONGEST ? least : distance(word, (int)len, words[i], (int)other);
        if (d < least) {
            least = d;
            best = words[i];
        }
    }
    return best;
}
