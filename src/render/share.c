/* share.c - kernels that differ only in where their tensors lie become one function.
 *
 *   before                               after
 *     void k3(c, lo, hi)                   void k3(c, lo, hi)
 *     {                                    {
 *         float *const v9 = c->m + 64;         k3_at(c, lo, hi, c->m + 64);
 *         ... v9[i] ...                    }
 *     }                                    void k3_at(c, lo, hi, float *const v9)
 *     void k8(c, lo, hi)                   {
 *     {                                        ... v9[i] ...
 *         float *const v21 = c->m + 512;   }
 *         ... v21[i] ...                   void k8(c, lo, hi)
 *     }                                    {
 *                                              k3_at(c, lo, hi, c->m + 512);
 *                                          }
 *
 * The blocks of a deep net repeat the same shapes, and the compiler takes nearly all of the time:
 * of the 687 kernels of ViT-B/16's step 65 are different. What is compared is the text itself,
 * the pointers' names apart, so whatever a kernel depends on is compared: shapes, layouts,
 * constants, the number of a random node. Nothing is said of whether the pointers overlap, so an
 * update in place and one that is not may share.
 */
#include "render/render.h"
#include <ctype.h>
#include <xxhash.h>

/* A kernel's text with its pointers numbered: `@1` for the second. */
typedef struct form {
    const char *text;
    size_t len;
    uint64_t hash;
    int first; /* kernel of the same form */
    bool repeated;
} form;

static int pointer_index(const ts_written *w, const char *word, size_t len)
{
    for (int i = 0; i < w->npointers; i++)
        if (strlen(w->pointers[i].name) == len && !memcmp(w->pointers[i].name, word, len))
            return i;
    return -1;
}

static bool in_word(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

static form form_of(ts_arena *a, const ts_written *w, const char *body)
{
    const char *p = body + w->code, *end = body + w->end;
    ts_text t = {0};
    form f = {0};

    for (int i = 0; i < w->npointers; i++)
        ts_text_printf(&t, "%s,", w->pointers[i].type);
    while (p < end) {
        const char *start = p;
        int at = -1;
        while (p < end && in_word(*p))
            p++;
        if (p > start)
            at = pointer_index(w, start, (size_t)(p - start));
        else
            while (p < end && !in_word(*p))
                p++;
        if (at >= 0)
            ts_text_printf(&t, "@%d", at);
        else
            ts_text_add(&t, start, (size_t)(p - start));
    }
    f.text = ts_arena_copy(a, t.s, t.len + 1);
    f.len = t.len;
    f.hash = XXH3_64bits(t.s, t.len);
    ts_text_free(&t);
    return f;
}

static form *find_forms(ts_render *r, const ts_written *w, int n)
{
    form *f = TS_NEWS(r->a, form, n);

    for (int i = 0; i < n; i++) {
        f[i].first = i;
        if (w[i].start == w[i].end) /* it runs again: written before */
            continue;
        f[i] = form_of(r->a, &w[i], r->body.s);
        f[i].first = 0;
        while (f[f[i].first].hash != f[i].hash || f[f[i].first].len != f[i].len ||
               memcmp(f[f[i].first].text, f[i].text, f[i].len))
            f[i].first++;
        f[f[i].first].repeated = f[f[i].first].repeated || f[i].first < i;
    }
    return f;
}

/* Adds ", word" to a list, on a new line when this one is long. `from` is where its line starts. */
static void add_item(ts_text *t, size_t *from, const char *word)
{
    bool full = t->len - *from + strlen(word) > 96;

    if (full)
        *from = t->len + 1;
    ts_text_printf(t, full ? ",\n           %s" : ", %s", word);
}

/* void k3_fc_matmul_at(const ctx *c, int64_t lo, int64_t hi, float *const v9, const float *const v7) */
static void signature(ts_render *r, ts_text *t, const ts_written *w, int i)
{
    size_t from = t->len;

    ts_text_printf(t, "void %s_at(const ctx *c, int64_t lo, int64_t hi", ts_render_kernel(r, i));
    for (int j = 0; j < w->npointers; j++)
        add_item(t, &from,
                 ts_arena_printf(r->a, "%s *const %s", w->pointers[j].type, w->pointers[j].name));
    ts_text_printf(t, ")");
}

static void call(ts_render *r, ts_text *t, const ts_written *w, int i, int first)
{
    size_t from;

    ts_text_printf(t, TS_KERNEL "{\n", ts_render_kernel(r, i));
    from = t->len;
    ts_text_printf(t, "    %s_at(c, lo, hi", ts_render_kernel(r, first));
    for (int j = 0; j < w->npointers; j++)
        add_item(t, &from, w->pointers[j].place);
    ts_text_printf(t, ");\n}\n");
}

/* A kernel that calls the function, and the function behind the first of them. */
static void write_shared(ts_render *r, ts_text *t, const ts_written *w, int i, int first)
{
    const char *body = r->body.s;

    ts_text_printf(t, "\n" TS_UNIT);
    signature(r, t, &w[first], first);
    ts_text_printf(t, ";\n");
    ts_text_add(t, body + w[i].comment, w[i].function - w[i].comment);
    call(r, t, &w[i], i, first);
    if (i != first)
        return;
    ts_text_printf(t, "\n");
    signature(r, t, &w[i], i);
    ts_text_printf(t, "\n{\n");
    ts_text_add(t, body + w[i].code, w[i].end - w[i].code);
}

void ts_render_share(ts_render *r, ts_written *w, int n)
{
    form *f = find_forms(r, w, n);
    size_t *at = TS_NEWS(r->a, size_t, n + 1);
    ts_text t = {0};

    for (int i = 0; i < n; i++) {
        at[i] = t.len;
        if (f[f[i].first].repeated)
            write_shared(r, &t, w, i, f[i].first);
        else
            ts_text_add(&t, r->body.s + w[i].start, w[i].end - w[i].start);
    }
    at[n] = t.len;
    for (int i = 0; i < n; i++) {
        w[i].start = at[i];
        w[i].end = at[i + 1];
    }
    ts_text_free(&r->body);
    r->body = t;
}
