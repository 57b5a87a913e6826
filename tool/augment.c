/* augment.c - --augment: what the loader does to images, in words.
 *
 *   --augment flip,shift=4,rotate=10,color=0.2,cutout=8,mixup=0.2      each may go without its number
 */
#include "train.h"
#include <stdlib.h>
#include <string.h>

static ts_augment how;

static const struct {
    const char *name;
    double usual;
    double *real;
    int *whole;
} changes[] = {
    {"flip", 0.5, &how.flip, NULL},
    {"vflip", 0.5, &how.flip_vertical, NULL},
    {"shift", 4, NULL, &how.shift},
    {"rotate", 10, &how.rotate, NULL},
    {"brightness", 0.2, &how.brightness, NULL},
    {"contrast", 0.2, &how.contrast, NULL},
    {"saturation", 0.2, &how.saturation, NULL},
    {"cutout", 8, NULL, &how.cutout},
    {"mixup", 0.2, &how.mixup, NULL},
};

static void set(int i, double v)
{
    if (changes[i].real)
        *changes[i].real = v;
    else
        *changes[i].whole = (int)v;
}

static int one(const char *word)
{
    size_t n = strcspn(word, "=");
    char *end = NULL;
    double v = word[n] ? strtod(word + n + 1, &end) : 0;

    if (word[n] && (end == word + n + 1 || *end || !(v >= 0 && v < 1e4)))
        return usage_error("train", "--augment has '%s'; a number from 0 on follows the '='", word);
    if (!strncmp(word, "color", n) && n == 5) { /* all three of them */
        how.brightness = how.contrast = how.saturation = word[n] ? v : 0.2;
        return TOOL_OK;
    }
    for (int i = 0; i < COUNT(changes); i++)
        if (strlen(changes[i].name) == n && !strncmp(changes[i].name, word, n)) {
            set(i, word[n] ? v : changes[i].usual);
            return TOOL_OK;
        }
    return usage_error("train",
                       "--augment has '%.*s'; it can be flip, vflip, shift, rotate, color, "
                       "brightness, contrast, saturation, cutout or mixup",
                       (int)n, word);
}

int read_augment(void)
{
    char *text = asked.augment ? strdup(asked.augment) : NULL, *rest = NULL;
    int code = TOOL_OK;

    how = (ts_augment){0};
    for (char *w = text ? strtok_r(text, ",", &rest) : NULL; w && !code;
         w = strtok_r(NULL, ",", &rest))
        code = one(w);
    free(text);
    return code;
}

const ts_augment *augmentation(void)
{
    return asked.augment ? &how : NULL;
}

bool is_mixed(void)
{
    return how.mixup > 0;
}
