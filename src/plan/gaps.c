/* gaps.c - which memory is taken when, and the lowest place that is free for a while.
 *
 *   time      0 1 2 3 4 5 6 7         cover: what is taken during all of a node's time
 *   root      ---------------         below: what is taken during any of it
 *             ------- -------
 *             --- --- --- ---         what is taken from 2 to 7 is covered by two nodes, and is
 *             - - - - - - - -         below those and the root
 *
 * A tree of halves of the time, and in every node sorted extents of memory, those that touch made
 * one. Whoever wants memory from one time to another asks a few dozen nodes: below the nodes that
 * its time covers, and the cover of all above them. That is exact, and a net of ten thousand
 * kernels needs no list of all that is alive at a time: what lies side by side is one extent.
 */
#include "plan/gaps.h"

typedef struct extent {
    size_t from, to;
} extent;

typedef struct extents {
    extent *list;
    int n;
} extents;

struct ts_gaps {
    ts_arena *a;
    extents *cover, *below; /* by node; the root is 1, the halves of i are 2 i and 2 i + 1 */
    int times;              /* a power of 2 */
    const extents **asked;  /* those that concern somebody */
    int nasked;
    int64_t work;
};

ts_gaps *ts_gaps_new(ts_arena *a, int times)
{
    ts_gaps *g = TS_NEW(a, ts_gaps);

    g->a = a;
    for (g->times = 1; g->times < times;)
        g->times *= 2;
    g->cover = TS_NEWS(a, extents, 2 * g->times);
    g->below = TS_NEWS(a, extents, 2 * g->times);
    return g;
}

int64_t ts_gaps_work(const ts_gaps *g)
{
    return g->work;
}

/* The first extent that ends behind `at`. */
static int first_behind(const extents *x, size_t at)
{
    int lo = 0, hi = x->n;

    while (lo < hi) {
        int mid = (lo + hi) / 2;
        if (x->list[mid].to > at)
            hi = mid;
        else
            lo = mid + 1;
    }
    return lo;
}

static void add(ts_gaps *g, extents *x, extent e)
{
    int i = e.from ? first_behind(x, e.from - 1) : 0, end = i;

    for (; end < x->n && x->list[end].from <= e.to; end++) {
        e.from = TS_MIN(e.from, x->list[end].from);
        e.to = TS_MAX(e.to, x->list[end].to);
    }
    if (end == i)
        TS_PUSH(g->a, x->list, x->n, e);
    else
        x->n -= end - i - 1;
    memmove(x->list + i + 1, x->list + (end == i ? i : end),
            sizeof(*x->list) * (size_t)(x->n - i - 1));
    x->list[i] = e;
    g->work++;
}

/* The node stands for times lo to hi. */
static void take(ts_gaps *g, int node, int lo, int hi, const ts_span *s, extent e)
{
    int mid = lo + (hi - lo) / 2;

    if (s->to < lo || hi < s->from)
        return;
    add(g, &g->below[node], e);
    if (s->from <= lo && hi <= s->to) {
        add(g, &g->cover[node], e);
        return;
    }
    take(g, 2 * node, lo, mid, s, e);
    take(g, 2 * node + 1, mid + 1, hi, s, e);
}

void ts_gaps_take(ts_gaps *g, const ts_span *spans, int n, size_t offset, size_t bytes)
{
    for (int i = 0; i < n && bytes; i++)
        take(g, 1, 0, g->times - 1, &spans[i], (extent){offset, offset + bytes});
}

static void ask(ts_gaps *g, int node, int lo, int hi, const ts_span *s)
{
    bool all = s->from <= lo && hi <= s->to;
    const extents *x = all ? &g->below[node] : &g->cover[node];
    int mid = lo + (hi - lo) / 2;

    if (s->to < lo || hi < s->from)
        return;
    g->work++;
    if (x->n)
        TS_PUSH(g->a, g->asked, g->nasked, x);
    if (all)
        return;
    ask(g, 2 * node, lo, mid, s);
    ask(g, 2 * node + 1, mid + 1, hi, s);
}

/* *at moves behind all of x that is in the way of so many bytes there. */
static void move_on(ts_gaps *g, const extents *x, size_t bytes, size_t *at)
{
    for (int i = first_behind(x, *at); i < x->n && x->list[i].from < *at + bytes; i++) {
        *at = x->list[i].to;
        g->work++;
    }
}

size_t ts_gaps_find(ts_gaps *g, const ts_span *spans, int n, size_t start, size_t bytes)
{
    size_t at = start, before;

    g->nasked = 0;
    g->asked = NULL;
    for (int i = 0; i < n; i++)
        ask(g, 1, 0, g->times - 1, &spans[i]);
    do {
        before = at;
        for (int i = 0; i < g->nasked; i++)
            move_on(g, g->asked[i], bytes, &at);
        g->work += g->nasked;
    } while (at != before);
    return at;
}
