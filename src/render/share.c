/* share.c - a kernel's function is named by its content and told where its tensors lie.
 *
 *   before                               after
 *     void k3(c, lo, hi, p)                void k_5d0c(c, lo, hi, p)
 *     {                                    {
 *         float *const v9 = c->m + 64;         float *const v9 = at(c, &p[0]);
 *         ... v9[i] ...                        ... v9[i] ...
 *     }                                    }
 *     void k8(c, lo, hi, p)                p3[] = {{64}};
 *     {                                    p8[] = {{512}};
 *         float *const v21 = c->m + 512;   table[] = {..., {k_5d0c, ..., p3}, {k_5d0c, ..., p8}};
 *         ... v21[i] ...
 *     }
 *
 * So kernels that differ only in where their tensors lie are one function, in this program and in others:
 * kept.c finds its object code by its name. The blocks of a deep net repeat the same shapes, and the
 * compiler takes nearly all of the time: of the 687 kernels of ViT-B/16's step 65 are different. What is compared
 * is the text itself, the pointers' names apart, so whatever a kernel depends on is compared: shapes,
 * layouts, constants, the number of a random node. Nothing is said of whether the pointers overlap, so an
 * update in place and one that is not may share.
 *
 * Here it is also decided what the compiler shall work hard on: of a long program the functions in
 * which a step spends most of its time for their length, as many as are compiled in a second. All
 * at -O1 costs a step up to 4 % (vgg, resnet18; U-Net and depthwise nothing) and saves 40 % of the time.
 */
#include "render/render.h"
#include <ctype.h>
#include <xxhash.h>

/* A kernel's text with its pointers numbered: `@1` for the second. */
typedef struct form {
    const char *text;
    size_t len;
    XXH128_hash_t hash;
    int first;     /* kernel of the same form */
    bool constant; /* reads a table of the program's head */
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

/* const12 */
static bool is_constant(const char *word)
{
    return !strncmp(word, "const", 5) && isdigit((unsigned char)word[5]);
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
        if (p > start) {
            at = pointer_index(w, start, (size_t)(p - start));
            f.constant = f.constant || is_constant(start);
        } else
            while (p < end && !in_word(*p))
                p++;
        if (at >= 0)
            ts_text_printf(&t, "@%d", at);
        else
            ts_text_add(&t, start, (size_t)(p - start));
    }
    f.text = ts_arena_copy(a, t.s, t.len + 1);
    f.len = t.len;
    f.hash = XXH3_128bits(t.s, t.len);
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
        while (f[f[i].first].len != f[i].len || memcmp(f[f[i].first].text, f[i].text, f[i].len))
            f[i].first++;
    }
    return f;
}

/* The function behind the first kernel of its form. */
static void write_function(ts_text *t, const char *body, const ts_written *w)
{
    ts_text_add(t, body + w->start, w->code - w->start);
    if (w->told)
        ts_text_printf(t, TS_KERNEL "{\n", w->run);
    for (int j = 0; j < w->npointers; j++)
        ts_text_printf(t, "    %s *const %s = at(c, &p[%d]);\n", w->pointers[j].type,
                       w->pointers[j].name, j);
    ts_text_printf(t, "%s", w->npointers ? "\n" : "");
    ts_text_add(t, body + w->code, w->end - w->code);
}

/* static const place p8[] = {{512, 0, 0, 1, 0}, ...}; behind what the kernel computes */
static void write_places(ts_text *t, const char *body, const ts_written *w, int i)
{
    if (w->repeats)
        ts_text_add(t, body + w->start, w->code - w->start);
    ts_text_printf(t, "static const place p%d[] = {", i);
    for (int j = 0; j < w->npointers; j++)
        ts_text_printf(t, "%s%s", !j ? "" : j % 4 ? ", " : ",\n    ", w->pointers[j].row);
    ts_text_printf(t, "};\n");
}

/* --- what is heavy --- */

enum { HEAVY_BYTES = 128 * 1024 }; /* of text: half a second of the compiler's time */

typedef struct weight {
    double cycles, bytes; /* all kernels of the form together */
    int kernel;           /* the first */
} weight;

/* Most cycles for their length first. */
static int by_weight(const void *p, const void *q)
{
    const weight *x = p, *y = q;
    double a = x->cycles * y->bytes, b = y->cycles * x->bytes;

    return a != b ? (a < b ? 1 : -1) : x->kernel - y->kernel;
}

static bool *find_heavy(ts_render *r, const ts_written *w, const form *f, const ts_cut *cuts, int n)
{
    bool *heavy = TS_NEWS(r->a, bool, n);
    weight *all = TS_NEWS(r->a, weight, n);
    double bytes = 0;

    for (int i = 0; i < n; i++) {
        all[i].kernel = i;
        all[f[i].first].cycles += cuts[i].cycles;
        all[f[i].first].bytes = (double)(w[f[i].first].end - w[f[i].first].code) + 1;
    }
    qsort(all, (size_t)n, sizeof(*all), by_weight);
    for (int i = 0; i < n; i++) {
        bytes += all[i].bytes;
        heavy[all[i].kernel] = bytes <= HEAVY_BYTES;
    }
    return heavy;
}

/* 96 bits of what it is: of a million kernels no two have one name by chance. What moves a tensor, or reads a
 * table of the program's head, is of this program. */
static const char *name_of(ts_render *r, int i, const form *f)
{
    return ts_arena_printf(r->a, TS_NAMED "%08x%016llx", (unsigned)f[i].hash.high64,
                           (unsigned long long)f[i].hash.low64);
}

static bool is_named(const ts_written *w, const form *f)
{
    return w->told && !f->constant;
}

static void write_mark(ts_text *t, const ts_written *w, const form *f, bool heavy)
{
    ts_text_printf(t, "\n");
    if (is_named(w, f))
        ts_text_printf(t, TS_UNIT_NAMED, heavy ? "" : TS_LIGHT, w->run);
    else
        ts_text_printf(t, "%s", heavy ? TS_UNIT : TS_UNIT_LIGHT);
}

bool ts_render_share(ts_render *r, ts_written *w, const ts_cut *cuts, int n, ts_text *places)
{
    form *f = find_forms(r, w, n);
    bool *heavy = find_heavy(r, w, f, cuts, n), light = false;
    size_t *at = TS_NEWS(r->a, size_t, n), *end = TS_NEWS(r->a, size_t, n);
    ts_text t = {0};

    for (int i = 0; i < n; i++) {
        int first = f[i].first;
        w[i].repeats = first != i;
        w[i].run =
            is_named(&w[first], &f[first]) ? name_of(r, first, f) : ts_render_kernel(r, first);
        if (w[i].told)
            write_places(places, r->body.s, &w[i], i);
        if (w[i].start == w[i].end || w[i].repeats)
            continue;
        light = light || !heavy[i];
        write_mark(&t, &w[i], &f[i], heavy[i]);
        at[i] = t.len;
        write_function(&t, r->body.s, &w[i]);
        end[i] = t.len;
    }
    for (int i = 0; i < n; i++) {
        w[i].start = at[f[i].first];
        w[i].end = end[f[i].first];
    }
    ts_text_free(&r->body);
    r->body = t;
    return light;
}
