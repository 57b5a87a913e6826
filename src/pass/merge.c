/* merge.c - find the node that already computes the same: op, inputs, attributes, data, phase.
 *
 *   before                          after
 *     %2 = exp %x                     %2 = exp %x
 *     %3 = exp %x                     %4 = mul %2, %2
 *     %4 = mul %2, %3
 *
 * Phases stay apart, because a state may change between them; so do pipeline blocks, because a
 * merged node would be a copy between devices. Random nodes differ in their stream, and are never
 * merged even when they do not.
 */
#include "pass/pass.h"

struct ts_merge {
    ts_node **slot; /* open addressing */
    uint64_t mask;
};

ts_merge *ts_merge_new(ts_arena *a, int nodes)
{
    ts_merge *m = TS_NEW(a, ts_merge);
    uint64_t size = 16;

    while (size < 2 * (uint64_t)nodes)
        size *= 2;
    m->slot = TS_NEWS(a, ts_node *, size);
    m->mask = size - 1;
    return m;
}

/* FNV-1a */
static uint64_t mix(uint64_t h, const void *p, size_t bytes)
{
    const unsigned char *c = p;

    for (size_t i = 0; i < bytes; i++)
        h = (h ^ c[i]) * 0x100000001b3u;
    return h;
}

static uint64_t hash_attr(uint64_t h, const ts_attr *x)
{
    h = mix(h, x->name, strlen(x->name));
    h = mix(h, &x->i, sizeof(x->i));
    h = mix(h, &x->f, sizeof(x->f));
    if (x->kind == 's')
        h = mix(h, x->s, strlen(x->s));
    if (x->kind == 'l')
        h = mix(h, x->l, sizeof(int64_t) * (size_t)x->n);
    return h;
}

static uint64_t hash(const ts_node *n)
{
    uint64_t h = mix(0xcbf29ce484222325u, n->op->name, strlen(n->op->name)), ids = 0;

    for (int i = 0; i < n->nin; i++) {
        uint64_t id = mix(h, &n->in[i]->id, sizeof(int));
        ids = n->op->flags & TS_COMMUTES ? ids + id : mix(ids, &id, sizeof(id));
    }
    h = mix(h, &ids, sizeof(ids));
    for (int i = 0; i < n->nattr; i++)
        h = hash_attr(h, &n->attr[i]);
    return n->data ? mix(h, n->data, ts_type_bytes(&n->out[0]->type)) : h;
}

/* To the bit: 0 is not -0, and a NaN is itself. */
static bool same_attr(const ts_attr *x, const ts_attr *y)
{
    if (strcmp(x->name, y->name) || x->kind != y->kind)
        return false;
    switch (x->kind) {
    case 'i':
        return x->i == y->i;
    case 'f':
        return !memcmp(&x->f, &y->f, sizeof(x->f));
    case 's':
        return !strcmp(x->s, y->s);
    default:
        return x->n == y->n && (!x->n || !memcmp(x->l, y->l, sizeof(int64_t) * (size_t)x->n));
    }
}

static bool same_inputs(const ts_node *x, const ts_node *y)
{
    bool straight = x->nin == y->nin;

    for (int i = 0; i < x->nin && straight; i++)
        straight = x->in[i] == y->in[i];
    return straight || (x->op->flags & TS_COMMUTES && x->in[0] == y->in[1] && x->in[1] == y->in[0]);
}

static bool same_place(const ts_node *x, const ts_node *y)
{
    return x->phase == y->phase && !strcmp(x->block ? x->block : "", y->block ? y->block : "");
}

static bool same(const ts_node *x, const ts_node *y)
{
    if (x->op != y->op || x->nattr != y->nattr || x->nout != y->nout || !same_place(x, y) ||
        !same_inputs(x, y) || !x->data != !y->data)
        return false;
    for (int i = 0; i < x->nout; i++)
        if (!ts_type_same(&x->out[i]->type, &y->out[i]->type))
            return false;
    for (int i = 0; i < x->nattr; i++)
        if (!same_attr(&x->attr[i], &y->attr[i]))
            return false;
    return !x->data || x->data == y->data ||
           !memcmp(x->data, y->data, ts_type_bytes(&x->out[0]->type));
}

ts_node *ts_merge_find(ts_merge *m, ts_node *n)
{
    uint64_t i = hash(n) & m->mask;

    if (n->op->flags & (TS_RANDOM | TS_CONTROL | TS_HOST) || n->nsub)
        return NULL;
    for (; m->slot[i]; i = (i + 1) & m->mask)
        if (same(m->slot[i], n))
            return m->slot[i] == n ? NULL : m->slot[i];
    m->slot[i] = n;
    return NULL;
}
