/* text.c - texts as tokens, for nets that say what comes next.
 *
 * A vocabulary is either of characters, those of the text in their order, or of byte pairs: the 256
 * bytes, and then, as often as asked, the pair of neighbours that is most frequent becomes a token
 * (Sennrich, Haddow and Birch 2016; of equals, the pair of smallest numbers). It is a text itself,
 * which goes with the model:
 *
 *   chars                  pairs
 *   \n                     101 32
 *   a                      116 104
 *
 * A dataset has windows of so many tokens that follow each other; the labels of a window are the
 * same tokens one place on. The last tenth of a text is its test set.
 */
#include "data/data.h"

enum { BYTES = 256, MOST_TOKENS = 1 << 16, USUAL_WINDOW = 64 };

struct ts_tokens {
    ts_arena *arena;
    bool pairs;
    const char **text; /* of each token; it may have zeros */
    int *len;
    int n, nlen;
    struct merge {
        int a, b;
    } * merge; /* of token BYTES + i */
    int nmerge;
};

/* --- characters --- */

/* Bytes of the UTF-8 letter at s; 1 for what is none. */
static int letter(const unsigned char *s, size_t left)
{
    size_t n = s[0] >= 0xf0 ? 4 : s[0] >= 0xe0 ? 3 : s[0] >= 0xc2 ? 2 : 1;

    for (size_t i = 1; i < n; i++)
        if (i >= left || (s[i] & 0xc0) != 0x80)
            return 1;
    return (int)n;
}

static void add_token(ts_tokens *t, const char *s, int len)
{
    char *copy = ts_arena_alloc(t->arena, (size_t)len + 1);

    memcpy(copy, s, (size_t)len);
    TS_PUSH(t->arena, t->text, t->n, (const char *)copy);
    TS_PUSH(t->arena, t->len, t->nlen, len);
}

static int compare(const ts_tokens *t, int i, const char *s, int len)
{
    int order = memcmp(t->text[i], s, (size_t)TS_MIN(t->len[i], len));

    return order ? order : t->len[i] - len;
}

/* Where s is in the sorted tokens, or would be. */
static int place(const ts_tokens *t, const char *s, int len, bool *found)
{
    int low = 0, high = t->n;

    while (low < high) {
        int mid = (low + high) / 2;
        if (compare(t, mid, s, len) < 0)
            low = mid + 1;
        else
            high = mid;
    }
    *found = low < t->n && !compare(t, low, s, len);
    return low;
}

static ts_status find_chars(ts_tokens *t, const char *text, size_t len)
{
    for (size_t i = 0; i < len;) {
        int n = letter((const unsigned char *)text + i, len - i);
        bool found;
        int at = place(t, text + i, n, &found);
        if (!found) {
            add_token(t, text + i, n);
            for (int k = t->n - 1; k > at; k--) {
                const char *s = t->text[k];
                int l = t->len[k];
                t->text[k] = t->text[k - 1];
                t->len[k] = t->len[k - 1];
                t->text[k - 1] = s;
                t->len[k - 1] = l;
            }
        }
        if (t->n > MOST_TOKENS)
            return ts_fail(TS_ERR_UNSUPPORTED, "the text has more than %d different characters",
                           MOST_TOKENS);
        i += (size_t)n;
    }
    return TS_OK;
}

/* --- byte pairs --- */

static void add_bytes(ts_tokens *t)
{
    t->pairs = true;
    for (int i = 0; i < BYTES; i++)
        add_token(t, (char[]){(char)i}, 1);
}

static void add_merge(ts_tokens *t, int a, int b)
{
    int n = t->len[a] + t->len[b];
    char *s = ts_arena_alloc(t->arena, (size_t)n + 1);
    struct merge both = {a, b};

    memcpy(s, t->text[a], (size_t)t->len[a]);
    memcpy(s + t->len[a], t->text[b], (size_t)t->len[b]);
    add_token(t, s, n);
    TS_PUSH(t->arena, t->merge, t->nmerge, both);
}

static int64_t merge_pair(int32_t *ids, int64_t n, int a, int b, int to)
{
    int64_t kept = 0;

    for (int64_t i = 0; i < n; i++)
        if (ids[i] == a && i + 1 < n && ids[i + 1] == b) {
            ids[kept++] = to;
            i++;
        } else {
            ids[kept++] = ids[i];
        }
    return kept;
}

/* The most frequent pair; counts has room for n x n of the tokens so far. */
static int64_t best_pair(const int32_t *ids, int64_t n, int tokens, uint32_t *counts, int *a,
                         int *b)
{
    int64_t best = 0, at = 0;

    memset(counts, 0, (size_t)tokens * (size_t)tokens * sizeof(*counts));
    for (int64_t i = 0; i + 1 < n; i++)
        counts[(int64_t)ids[i] * tokens + ids[i + 1]]++;
    for (int64_t i = 0; i < (int64_t)tokens * tokens; i++)
        if (counts[i] > best) {
            best = counts[i];
            at = i;
        }
    *a = (int)(at / tokens);
    *b = (int)(at % tokens);
    return best;
}

static ts_status find_pairs(ts_tokens *t, const char *text, size_t len, int most)
{
    int64_t n = (int64_t)len;
    uint32_t *counts = NULL;
    int32_t *ids = NULL;
    ts_status s = ts_alloc(len * sizeof(*ids), "the tokens", (void **)&ids);

    if (!s)
        s = ts_alloc((size_t)most * (size_t)most * sizeof(*counts), "pairs of tokens",
                     (void **)&counts);
    for (int64_t i = 0; !s && i < n; i++)
        ids[i] = (unsigned char)text[i];
    for (int a, b; !s && t->n < most && best_pair(ids, n, t->n, counts, &a, &b) > 1;) {
        n = merge_pair(ids, n, a, b, t->n);
        add_merge(t, a, b);
    }
    free(ids);
    free(counts);
    return s;
}

/* --- as a text --- */

static void put_char(ts_text *out, const char *s, int n)
{
    for (int i = 0; i < n; i++)
        if (s[i] == '\n' || s[i] == '\\' || !s[i] || (n == 1 && s[i] < 0))
            ts_text_printf(out, "\\x%02x", (unsigned char)s[i]);
        else
            ts_text_add(out, s + i, 1);
    ts_text_add(out, "\n", 1);
}

const char *ts_tokens_text(const ts_tokens *t)
{
    ts_text out = {0};
    const char *text;

    ts_text_printf(&out, t->pairs ? "pairs\n" : "chars\n");
    for (int i = 0; !t->pairs && i < t->n; i++)
        put_char(&out, t->text[i], t->len[i]);
    for (int i = 0; i < t->nmerge; i++)
        ts_text_printf(&out, "%d %d\n", t->merge[i].a, t->merge[i].b);
    text = ts_arena_strdup(t->arena, out.s);
    ts_text_free(&out);
    return text;
}

static ts_status bad_tokens(void)
{
    return ts_fail(TS_ERR_PARSE, "the description of the tokens does not read");
}

static ts_status read_char(ts_tokens *t, const char *s, size_t n)
{
    char token[8];
    int len = 0;

    for (size_t i = 0; i < n; i++) {
        unsigned v;
        if (len == 4)
            return bad_tokens();
        if (s[i] == '\\') {
            if (i + 3 >= n || sscanf(s + i, "\\x%2x", &v) != 1)
                return bad_tokens();
            token[len++] = (char)v;
            i += 3;
        } else {
            token[len++] = s[i];
        }
    }
    if (!len || (t->n && compare(t, t->n - 1, token, len) >= 0))
        return bad_tokens();
    add_token(t, token, len);
    return TS_OK;
}

static ts_status read_pair(ts_tokens *t, const char *s)
{
    int a, b;

    if (sscanf(s, "%6d %6d", &a, &b) != 2 || a < 0 || b < 0 || a >= t->n || b >= t->n ||
        t->len[a] + t->len[b] > 4096)
        return bad_tokens();
    add_merge(t, a, b);
    return TS_OK;
}

static ts_status read_tokens(ts_tokens *t, const char *s)
{
    bool pairs = !strncmp(s, "pairs\n", 6);
    size_t n;

    if (!pairs && strncmp(s, "chars\n", 6) != 0)
        return bad_tokens();
    if (pairs)
        add_bytes(t);
    for (s += 6; *s; s += n + (s[n] == '\n')) {
        n = strcspn(s, "\n");
        if (t->n >= MOST_TOKENS)
            return bad_tokens();
        TS_TRY(pairs ? read_pair(t, s) : read_char(t, s, n));
    }
    return t->n ? TS_OK : bad_tokens();
}

static ts_tokens *new_tokens(void)
{
    ts_arena *a = ts_arena_new();
    ts_tokens *t = TS_NEW(a, ts_tokens);

    t->arena = a;
    return t;
}

void ts_tokens_free(ts_tokens *t)
{
    if (t)
        ts_arena_free(t->arena);
}

ts_status ts_tokens_parse(const char *text, ts_tokens **out)
{
    ts_status s;

    if (!text || !out)
        return ts_fail(TS_ERR_ARG, "tokens need a description and a place for them");
    *out = new_tokens();
    s = read_tokens(*out, text);
    if (s) {
        ts_tokens_free(*out);
        *out = NULL;
    }
    return s;
}

int ts_tokens_count(const ts_tokens *t)
{
    return t->n;
}

const char *ts_tokens_at(const ts_tokens *t, int i, size_t *len)
{
    if (i < 0 || i >= t->n)
        return NULL;
    *len = (size_t)t->len[i];
    return t->text[i];
}

/* --- text -> numbers --- */

static ts_status encode_chars(const ts_tokens *t, const char *text, size_t len, int32_t *ids,
                              int64_t *n)
{
    *n = 0;
    for (size_t i = 0; i < len;) {
        int bytes = letter((const unsigned char *)text + i, len - i), at;
        bool found;
        at = place(t, text + i, bytes, &found);
        if (!found)
            return ts_fail(TS_ERR_ARG, "'%.*s' at byte %zu is no character that the net knows",
                           bytes, text + i, i);
        ids[(*n)++] = at;
        i += (size_t)bytes;
    }
    return TS_OK;
}

ts_status ts_tokens_encode(const ts_tokens *t, const char *text, size_t len, int32_t **ids,
                           int64_t *n)
{
    ts_status s;

    TS_TRY(ts_alloc((len + 1) * sizeof(**ids), "the tokens", (void **)ids));
    if (!t->pairs) {
        s = encode_chars(t, text, len, *ids, n);
        if (s) {
            free(*ids);
            *ids = NULL;
        }
        return s;
    }
    *n = (int64_t)len;
    for (size_t i = 0; i < len; i++)
        (*ids)[i] = (unsigned char)text[i];
    for (int i = 0; i < t->nmerge; i++)
        *n = merge_pair(*ids, *n, t->merge[i].a, t->merge[i].b, BYTES + i);
    return TS_OK;
}

/* --- a dataset of windows --- */

static ts_status make(const ts_dataset_options *opt, const ts_tokens *t, const int32_t *ids,
                      int64_t n, ts_dataset **out)
{
    int64_t window = opt->window ? opt->window : USUAL_WINDOW;
    int64_t test = (n - 1) / window / 10, all = (n - 1) / window, first, count;

    first = opt->split == TS_SPLIT_TEST ? all - test : 0;
    count = opt->split == TS_SPLIT_TEST ? test : all - test;
    count = opt->limit ? TS_MIN(opt->limit, count) : count;
    if (count < 1)
        return ts_fail(TS_ERR_ARG, "%s has %ld tokens, too few for windows of %ld", opt->name,
                       (long)n, (long)window);
    TS_TRY(ts_dataset_new(TS_I32, count, 1, &window, out));
    TS_TRY(ts_dataset_more_labels(*out, window));
    memcpy((*out)->sample.data, ids + first * window, (size_t)(count * window) * sizeof(*ids));
    memcpy((*out)->labels, ids + first * window + 1, (size_t)(count * window) * sizeof(*ids));
    (*out)->nclasses = t->n;
    (*out)->classes = TS_NEWS((*out)->arena, const char *, t->n);
    for (int i = 0; i < t->n; i++)
        (*out)->classes[i] = ts_arena_printf((*out)->arena, "%.*s", t->len[i], t->text[i]);
    (*out)->tokens = ts_arena_strdup((*out)->arena, ts_tokens_text(t));
    return TS_OK;
}

static ts_status find_tokens(const ts_dataset_options *opt, const char *text, size_t len,
                             ts_tokens **out)
{
    if (opt->tokens)
        return ts_tokens_parse(opt->tokens, out);
    if (opt->vocabulary && (opt->vocabulary <= BYTES || opt->vocabulary > 8192))
        return ts_fail(TS_ERR_ARG, "a vocabulary of byte pairs has %d to 8192 tokens, not %d",
                       BYTES + 1, opt->vocabulary);
    *out = new_tokens();
    if (!opt->vocabulary)
        return find_chars(*out, text, len);
    add_bytes(*out);
    return find_pairs(*out, text, len, opt->vocabulary);
}

ts_status ts_text_open(const ts_dataset_options *opt, ts_dataset **out)
{
    ts_tokens *t = NULL;
    int32_t *ids = NULL;
    char *text;
    size_t len;
    int64_t n;
    ts_status s;

    TS_TRY(ts_file_read(opt->name, &text, &len));
    s = find_tokens(opt, text, len, &t);
    if (!s)
        s = ts_tokens_encode(t, text, len, &ids, &n);
    if (!s)
        s = make(opt, t, ids, n, out);
    ts_tokens_free(t);
    free(ids);
    free(text);
    return s;
}
