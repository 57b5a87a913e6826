/* arena.c - blocks that grow and are freed in one call; everything a compile makes lives here.
 *
 *   first -> [ block | used....free ] -> [ block | used.free ] -> NULL
 *
 * Allocation never fails from the caller's view: when the machine cannot even hold the IR we abort
 * with a message, the library's only abort.
 */
#include "base/base.h"
#include <stdint.h>

#define BLOCK (64 * 1024)

typedef struct block {
    struct block *next;
    size_t used, size;
    _Alignas(16) char data[];
} block;

struct ts_arena {
    block *first;
};

static void *must_alloc(size_t bytes)
{
    void *p = bytes > SIZE_MAX / 2 ? NULL : calloc(1, bytes);

    if (!p) {
        fprintf(stderr, "tessera: out of memory for the compiler's own data (%zu bytes)\n", bytes);
        abort();
    }
    return p;
}

ts_arena *ts_arena_new(void)
{
    return must_alloc(sizeof(ts_arena));
}

void ts_arena_free(ts_arena *a)
{
    if (!a)
        return;
    for (block *b = a->first, *next; b; b = next) {
        next = b->next;
        free(b);
    }
    free(a);
}

void *ts_arena_alloc(ts_arena *a, size_t bytes)
{
    block *b = a->first;

    bytes = bytes > SIZE_MAX / 2 ? bytes : TS_ROUND_UP(bytes, 16); /* the former is refused below */
    if (!b || b->size - b->used < bytes) {
        size_t size = TS_MAX(bytes, (size_t)BLOCK);
        b = must_alloc(sizeof(block) + size);
        b->size = size;
        b->next = a->first;
        a->first = b;
    }
    b->used += bytes;
    return b->data + b->used - bytes;
}

void *ts_arena_copy(ts_arena *a, const void *p, size_t bytes)
{
    void *q = ts_arena_alloc(a, bytes);

    if (bytes)
        memcpy(q, p, bytes);
    return q;
}

char *ts_arena_strdup(ts_arena *a, const char *s)
{
    return s ? ts_arena_copy(a, s, strlen(s) + 1) : NULL;
}

char *ts_arena_vprintf(ts_arena *a, const char *fmt, va_list ap)
{
    va_list again;
    int n;
    char *s;

    va_copy(again, ap);
    n = ts_vformat(NULL, 0, fmt, again);
    va_end(again);
    s = ts_arena_alloc(a, (size_t)n + 1);
    ts_vformat(s, (size_t)n + 1, fmt, ap);
    return s;
}

char *ts_arena_printf(ts_arena *a, const char *fmt, ...)
{
    va_list ap;
    char *s;

    va_start(ap, fmt);
    s = ts_arena_vprintf(a, fmt, ap);
    va_end(ap);
    return s;
}

void *ts_arena_grow(ts_arena *a, void *array, int count, size_t item)
{
    void *bigger;

    if (count && (count & (count - 1)))
        return array; /* not a power of 2: there is room up to the next one */
    bigger = ts_arena_alloc(a, item * (size_t)(count ? 2 * count : 1));
    if (count)
        memcpy(bigger, array, item * (size_t)count);
    return bigger;
}
