/* names.c - what other programs call the tensors of a model.
 *
 * Checkpoints of the same net differ in what says nothing of the net: a wrapper's prefix (module of
 * DistributedDataParallel, model of Lightning), bn for norm, blocks that have a number or a name.
 * Names are compared without these, on both sides:
 *
 *   module.net_core.down_blocks.0.convolution_1.bn.weight             in the file
 *          net_core.down_blocks.block_0.convolution_1.norm.weight     in the model
 *          net_core.down_blocks.0.convolution_1.norm.weight           both, bare
 *
 * Where two of them would be called alike, all are left as they are: they say what does not fit.
 */
#include "net.h"
#include <stdlib.h>
#include <string.h>

enum { LONGEST = 1024 };
#define DIGITS "0123456789"

/* --- a name without what does not count --- */

static bool begins(const char *s, const char *word)
{
    size_t n = strlen(word);

    return !strncmp(s, word, n) && (s[n] == '.' || !s[n]);
}

/* "block_3.conv" and "3.conv" -> "3.conv"; NULL for what is no number. */
static const char *number(const char *s)
{
    const char *p = strncmp(s, "block_", 6) ? s : s + 6;
    size_t n = strspn(p, DIGITS);

    return n && (p[n] == '.' || !p[n]) ? p : NULL;
}

static bool is_norm(const char *s)
{
    return !strncmp(s, "bn", 2) && strspn(s + 2, DIGITS) == strcspn(s + 2, ".");
}

/* Fails for a name that is too long. */
static bool make_bare(const char *s, char *out)
{
    size_t n = 0;

    for (const char *next; *s && n < LONGEST; s = next) {
        next = s + strcspn(s, ".");
        next += *next == '.';
        if (begins(s, "blocks") && (begins(next, "blocks") || number(next)))
            continue;
        if (is_norm(s))
            n += (size_t)snprintf(out + n, LONGEST - n, "norm%.*s", (int)(next - s - 2), s + 2);
        else {
            const char *p = number(s) ? number(s) : s;
            n += (size_t)snprintf(out + n, LONGEST - n, "%.*s", (int)(next - p), p);
        }
    }
    return n < LONGEST;
}

/* How long the wrappers' prefix is that all tensors of a dict have: "module.model." */
static size_t prefix(const ts_object *states)
{
    static const char *const wrappers[] = {"module", "model",   "net",      "network",
                                           "_net",   "_module", "_raw_net", "_orig_mod"};
    size_t len = 0;

    for (int w = 0; w < COUNT(wrappers);) {
        int64_t n = 0, with = 0;
        for (int64_t i = 0; i < ts_object_size(states); i++) {
            const char *key = ts_object_text(ts_object_key(states, i));
            n += key && ts_object_array(ts_object_at(states, i));
            with += key && strlen(key) > len && begins(key + len, wrappers[w]) &&
                    key[len + strlen(wrappers[w])] && ts_object_array(ts_object_at(states, i));
        }
        len += n && with == n ? strlen(wrappers[w]) + 1 : 0;
        w = n && with == n ? 0 : w + 1;
    }
    return len;
}

/* --- a dict with the model's names --- */

typedef struct model_names {
    const char *const *names;
    int n;
    char (*bare)[LONGEST];
    bool *taken;
} model_names;

static bool fits_already(const ts_object *states, const model_names *m)
{
    for (int i = 0; i < m->n; i++)
        if (!ts_object_get(states, m->names[i]))
            return false;
    return true;
}

/* The model's name for a tensor, or the file's own; NULL when two tensors would have it. */
static const char *name_of(const char *key, size_t skip, const model_names *m)
{
    char bare[LONGEST];
    int found = -1;

    if (strlen(key) <= skip || !make_bare(key + skip, bare))
        return key;
    for (int i = 0; i < m->n; i++) {
        if (strcmp(bare, m->bare[i]) != 0)
            continue;
        if (found >= 0 || m->taken[i])
            return NULL;
        found = i;
    }
    if (found < 0)
        return key;
    m->taken[found] = true;
    return m->names[found];
}

static ts_object *renamed(const ts_object *states, const model_names *m)
{
    ts_object *o = ts_object_new_dict();
    size_t skip = prefix(states);
    bool good = o != NULL;

    for (int64_t i = 0; good && i < ts_object_size(states); i++) {
        const char *key = ts_object_text(ts_object_key(states, i));
        const char *name = key ? name_of(key, skip, m) : NULL;
        good = name && !ts_object_get(o, name) &&
               !ts_object_set(o, name, ts_object_share(ts_object_at(states, i)));
    }
    if (!good) {
        ts_object_free(o);
        return NULL;
    }
    return o;
}

ts_object *weights_renamed(const ts_object *states, const char *const *names, int n)
{
    model_names m = {names, n, calloc((size_t)n + 1, sizeof(*m.bare)),
                     calloc((size_t)n + 1, sizeof(*m.taken))};
    ts_object *o = NULL;
    bool good = m.bare && m.taken && !fits_already(states, &m);

    for (int i = 0; good && i < n; i++)
        good = make_bare(names[i], m.bare[i]);
    if (good)
        o = renamed(states, &m);
    free(m.bare);
    free(m.taken);
    return o;
}
