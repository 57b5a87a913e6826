/* pickle.c - an interpreter of the pickle machine, protocols 2 to 5, that builds plain data only.
 *
 * A pickle is a program for a machine with a stack and a memo. Python's machine calls whatever the
 * program names; this one knows the few names of rebuild.c and refuses all others, so reading a
 * checkpoint runs nobody's code.
 *
 * `made` owns every object until the end; the stack and the memo only borrow, so no opcode has to
 * count owners. A program can tie knots (a list that holds itself through another):
 * ts_object_survey refuses those, and what did not become part of the result is emptied before it
 * is let go.
 *
 * A program is also short for what it can ask to be built, by using what is in the memo again and
 * again. Putting an item into a container and copying bytes count against a budget that grows with
 * the bytes read, twice as fast as honest picklers need.
 */
#include "store/store.h"

static ts_status add(ts_objects *v, ts_object *o)
{
    TS_TRY(ts_store_grow((void **)&v->at, &v->cap, v->n + 1, sizeof(ts_object *)));
    v->at[v->n++] = o;
    return TS_OK;
}

ts_status ts_pickle_keep(ts_pickle *p, ts_object *o)
{
    ts_status s;

    if (!o)
        return ts_last_error()->code;
    s = p->made.n < TS_STORE_VALUES ? add(&p->made, o) : ts_object_too_many();
    if (s)
        ts_object_free(o);
    return s;
}

ts_status ts_pickle_make(ts_pickle *p, int kind, ts_object **out)
{
    TS_TRY(ts_object_make(kind, out));
    return ts_pickle_keep(p, *out);
}

ts_status ts_pickle_spend(ts_pickle *p, uint64_t n)
{
    p->spent += n;
    if (n > p->in->in->size || p->spent > 2 * (p->in->at - p->start) + 64)
        return ts_fail(TS_ERR_CORRUPT, "a pickle that builds much more than it holds");
    return TS_OK;
}

/* --- stack and memo --------------------------------------------------------------------------- */

static ts_status push(ts_pickle *p, ts_object *o)
{
    return add(&p->stack, o);
}

static ts_status keep_and_push(ts_pickle *p, ts_object *o)
{
    TS_TRY(ts_pickle_keep(p, o));
    return push(p, o);
}

static ts_status top(const ts_pickle *p, ts_object **out)
{
    *out = p->stack.n ? p->stack.at[p->stack.n - 1] : NULL;
    return *out ? TS_OK : ts_fail(TS_ERR_CORRUPT, "the pickle takes a value where there is none");
}

static ts_status pop(ts_pickle *p, ts_object **out)
{
    TS_TRY(top(p, out));
    p->stack.n--;
    return TS_OK;
}

/* Takes what is above the last mark, and the mark, off the stack; it stays readable at *items. */
static ts_status pop_to_mark(ts_pickle *p, ts_object ***items, size_t *n)
{
    size_t at = p->stack.n;

    while (at && p->stack.at[at - 1])
        at--;
    if (!at)
        return ts_fail(TS_ERR_CORRUPT, "the pickle looks for a mark where there is none");
    *items = p->stack.at + at;
    *n = p->stack.n - at;
    p->stack.n = at - 1;
    return TS_OK;
}

static ts_status memo_put(ts_pickle *p, uint64_t i)
{
    ts_object *o;

    TS_TRY(top(p, &o));
    if (i >= p->in->at - p->start) /* picklers count, and every count takes a byte or more */
        return ts_fail(TS_ERR_CORRUPT, "memo place %lu after %lu bytes", (unsigned long)i,
                       (unsigned long)(p->in->at - p->start));
    while (p->memo.n <= i)
        TS_TRY(add(&p->memo, NULL));
    p->memo.at[i] = o;
    return TS_OK;
}

static ts_status memo_get(ts_pickle *p, uint64_t i)
{
    if (i >= p->memo.n || !p->memo.at[i])
        return ts_fail(TS_ERR_CORRUPT, "nothing is in memo place %lu", (unsigned long)i);
    return push(p, p->memo.at[i]);
}

/* --- operands --------------------------------------------------------------------------------- */

static ts_status number(ts_pickle *p, int bytes, uint64_t *out)
{
    const uint8_t *b;

    TS_TRY(ts_cursor_take(p->in, (uint64_t)bytes, &b));
    *out = ts_little(b, bytes);
    return TS_OK;
}

/* A length in `bytes` bytes, then so many bytes. */
static ts_status counted(ts_pickle *p, int bytes, const char **s, size_t *len)
{
    const uint8_t *b;
    uint64_t n;

    TS_TRY(number(p, bytes, &n));
    TS_TRY(ts_cursor_take(p->in, n, &b));
    *s = (const char *)b;
    *len = n;
    return TS_OK;
}

/* Up to a newline, which is not part of it. */
static ts_status line(ts_pickle *p, char *buf, size_t size)
{
    const uint8_t *b;

    for (size_t n = 0; n < size; n++) {
        TS_TRY(ts_cursor_take(p->in, 1, &b));
        buf[n] = (char)*b;
        if (*b == '\n') {
            buf[n] = 0;
            return TS_OK;
        }
    }
    return ts_fail(TS_ERR_CORRUPT, "a name of more than %zu bytes", size);
}

/* --- opcodes ---------------------------------------------------------------------------------- */

static ts_status push_text(ts_pickle *p, int kind, int bytes)
{
    const char *s;
    size_t len;
    ts_object *o;

    TS_TRY(counted(p, bytes, &s, &len));
    TS_TRY(ts_object_make_text(kind, s, len, &o));
    return keep_and_push(p, o);
}

static ts_status push_int(ts_pickle *p, int bytes)
{
    uint64_t x;

    TS_TRY(number(p, bytes, &x));
    return keep_and_push(p, ts_object_new_int(bytes == 4 ? (int32_t)x : (int64_t)x));
}

/* Two's complement of any length. */
static ts_status push_long(ts_pickle *p, int bytes)
{
    const char *s;
    size_t len;
    uint64_t x;

    TS_TRY(counted(p, bytes, &s, &len));
    if (len > 8)
        return ts_fail(TS_ERR_UNSUPPORTED, "an integer of %zu bytes; up to 8 are read", len);
    x = ts_little((const uint8_t *)s, (int)len);
    if (len && len < 8 && (s[len - 1] & 0x80))
        x |= ~(uint64_t)0 << (8 * len);
    return keep_and_push(p, ts_object_new_int((int64_t)x));
}

static ts_status push_float(ts_pickle *p)
{
    const uint8_t *b;
    uint64_t bits = 0;
    double x;

    TS_TRY(ts_cursor_take(p->in, 8, &b));
    for (int i = 0; i < 8; i++)
        bits = bits << 8 | b[i];
    memcpy(&x, &bits, sizeof(x));
    return keep_and_push(p, ts_object_new_float(x));
}

static ts_status extend(ts_pickle *p, ts_object *list, ts_object *const *items, size_t n)
{
    TS_TRY(ts_pickle_spend(p, n));
    for (size_t i = 0; i < n; i++)
        TS_TRY(ts_object_append(list, ts_object_share(items[i])));
    return TS_OK;
}

static ts_status push_sequence(ts_pickle *p, int kind, ts_object *const *items, size_t n)
{
    ts_object *o;

    TS_TRY(ts_pickle_make(p, kind, &o));
    TS_TRY(extend(p, o, items, n));
    return push(p, o);
}

static ts_status push_marked(ts_pickle *p, int kind)
{
    ts_object **items;
    size_t n;

    TS_TRY(pop_to_mark(p, &items, &n));
    return push_sequence(p, kind, items, n);
}

static ts_status push_tuple(ts_pickle *p, size_t n)
{
    ts_object *last[3];

    for (size_t i = n; i--;)
        TS_TRY(pop(p, &last[i]));
    return push_sequence(p, TS_KIND_TUPLE, last, n);
}

static ts_status need_kind(const ts_object *o, int kind)
{
    if (o->kind == kind)
        return TS_OK;
    return ts_fail(TS_ERR_CORRUPT, "the pickle uses a %s as a %s", ts_kind_name(ts_object_kind(o)),
                   ts_kind_name((ts_kind)kind));
}

static ts_status append_marked(ts_pickle *p)
{
    ts_object **items, *list;
    size_t n;

    TS_TRY(pop_to_mark(p, &items, &n));
    TS_TRY(top(p, &list));
    TS_TRY(need_kind(list, TS_KIND_LIST));
    return extend(p, list, items, n);
}

static ts_status append_one(ts_pickle *p)
{
    ts_object *item, *list;

    TS_TRY(pop(p, &item));
    TS_TRY(top(p, &list));
    TS_TRY(need_kind(list, TS_KIND_LIST));
    return extend(p, list, &item, 1);
}

static ts_status set_items(ts_pickle *p, ts_object *dict, ts_object *const *items, size_t n)
{
    TS_TRY(need_kind(dict, TS_KIND_DICT));
    if (n % 2)
        return ts_fail(TS_ERR_CORRUPT, "a key without a value");
    TS_TRY(ts_pickle_spend(p, n));
    for (size_t i = 0; i < n; i += 2) {
        if (items[i]->kind != TS_KIND_TEXT && items[i]->kind != TS_KIND_INT)
            return ts_fail(TS_ERR_UNSUPPORTED, "a dict with a %s as a key; text and ints are read",
                           ts_kind_name(ts_object_kind(items[i])));
        TS_TRY(ts_object_put(dict, ts_object_share(items[i]), ts_object_share(items[i + 1])));
    }
    return TS_OK;
}

static ts_status set_marked(ts_pickle *p)
{
    ts_object **items, *dict;
    size_t n;

    TS_TRY(pop_to_mark(p, &items, &n));
    TS_TRY(top(p, &dict));
    return set_items(p, dict, items, n);
}

static ts_status set_one(ts_pickle *p)
{
    ts_object *pair[2], *dict;

    TS_TRY(pop(p, &pair[1]));
    TS_TRY(pop(p, &pair[0]));
    TS_TRY(top(p, &dict));
    return set_items(p, dict, pair, 2);
}

static ts_status push_dict_of_marked(ts_pickle *p)
{
    ts_object **items, *dict;
    size_t n;

    TS_TRY(pop_to_mark(p, &items, &n));
    TS_TRY(ts_pickle_make(p, TS_KIND_DICT, &dict));
    TS_TRY(set_items(p, dict, items, n));
    return push(p, dict);
}

static ts_status push_empty(ts_pickle *p, int kind)
{
    ts_object *o;

    TS_TRY(ts_pickle_make(p, kind, &o));
    return push(p, o);
}

static ts_status push_global(ts_pickle *p)
{
    char module[256], name[256];
    ts_object *o;

    TS_TRY(line(p, module, sizeof(module)));
    TS_TRY(line(p, name, sizeof(name)));
    TS_TRY(ts_rebuild_find(p, module, strlen(module), name, strlen(name), &o));
    return push(p, o);
}

static ts_status push_stack_global(ts_pickle *p)
{
    ts_object *module, *name, *o;

    TS_TRY(pop(p, &name));
    TS_TRY(pop(p, &module));
    TS_TRY(need_kind(module, TS_KIND_TEXT));
    TS_TRY(need_kind(name, TS_KIND_TEXT));
    TS_TRY(ts_rebuild_find(p, module->text.s, module->text.len, name->text.s, name->text.len, &o));
    return push(p, o);
}

static ts_status call(ts_pickle *p)
{
    ts_object *args, *callee, *result;

    TS_TRY(pop(p, &args));
    TS_TRY(pop(p, &callee));
    TS_TRY(need_kind(args, TS_KIND_TUPLE));
    TS_TRY(ts_rebuild_call(p, callee, args, &result));
    return push(p, result);
}

static ts_status set_state(ts_pickle *p)
{
    ts_object *state, *o;

    TS_TRY(pop(p, &state));
    TS_TRY(top(p, &o));
    return ts_rebuild_state(p, o, state);
}

static ts_status push_persistent(ts_pickle *p)
{
    ts_object *id, *o;

    TS_TRY(pop(p, &id));
    TS_TRY(ts_rebuild_storage(p, id, &o));
    return push(p, o);
}

static ts_status pop_any(ts_pickle *p)
{
    if (!p->stack.n)
        return ts_fail(TS_ERR_CORRUPT, "the pickle takes a value where there is none");
    p->stack.n--;
    return TS_OK;
}

static ts_status push_again(ts_pickle *p)
{
    ts_object *o;

    TS_TRY(top(p, &o));
    return push(p, o);
}

static ts_status drop_marked(ts_pickle *p)
{
    ts_object **items;
    size_t n;

    return pop_to_mark(p, &items, &n);
}

static ts_status protocol(ts_pickle *p)
{
    uint64_t v;

    TS_TRY(number(p, 1, &v));
    if (v < 2 || v > 5)
        return ts_fail(TS_ERR_UNSUPPORTED, "pickle protocol %lu; 2 to 5 are read",
                       (unsigned long)v);
    return TS_OK;
}

static ts_status at_memo(ts_pickle *p, int bytes, ts_status (*go)(ts_pickle *, uint64_t))
{
    uint64_t i;

    TS_TRY(number(p, bytes, &i));
    return go(p, i);
}

static ts_status frame(ts_pickle *p)
{
    uint64_t bytes; /* of use to those who read ahead */

    return number(p, 8, &bytes);
}

/* The letters are Python's; Lib/pickletools.py explains each. */
/* clang-format off */
static ts_status step(ts_pickle *p, uint8_t op)
{
    switch (op) {
    case 0x80: return protocol(p);
    case 0x95: return frame(p);
    case '(':  return push(p, NULL);
    case '0':  return pop_any(p);
    case '1':  return drop_marked(p);
    case '2':  return push_again(p);
    case 'N':  return push_empty(p, TS_KIND_NONE);
    case 0x88: return keep_and_push(p, ts_object_new_bool(true));
    case 0x89: return keep_and_push(p, ts_object_new_bool(false));
    case 'K':  return push_int(p, 1);
    case 'M':  return push_int(p, 2);
    case 'J':  return push_int(p, 4);
    case 0x8a: return push_long(p, 1);
    case 0x8b: return push_long(p, 4);
    case 'G':  return push_float(p);
    case 0x8c: return push_text(p, TS_KIND_TEXT, 1);
    case 'X':  return push_text(p, TS_KIND_TEXT, 4);
    case 0x8d: return push_text(p, TS_KIND_TEXT, 8);
    case 'U':  return push_text(p, TS_KIND_TEXT, 1); /* str of Python 2 */
    case 'T':  return push_text(p, TS_KIND_TEXT, 4);
    case 'C':  return push_text(p, TS_KIND_BYTES, 1);
    case 'B':  return push_text(p, TS_KIND_BYTES, 4);
    case 0x8e: return push_text(p, TS_KIND_BYTES, 8);
    case 0x96: return push_text(p, TS_KIND_BYTES, 8); /* bytearray */
    case ']':  return push_empty(p, TS_KIND_LIST);
    case 'a':  return append_one(p);
    case 'e':  return append_marked(p);
    case 'l':  return push_marked(p, TS_KIND_LIST);
    case 0x8f: return push_empty(p, TS_KIND_LIST); /* set */
    case 0x90: return append_marked(p);
    case 0x91: return push_marked(p, TS_KIND_LIST); /* frozenset */
    case ')':  return push_empty(p, TS_KIND_TUPLE);
    case 0x85: return push_tuple(p, 1);
    case 0x86: return push_tuple(p, 2);
    case 0x87: return push_tuple(p, 3);
    case 't':  return push_marked(p, TS_KIND_TUPLE);
    case '}':  return push_empty(p, TS_KIND_DICT);
    case 's':  return set_one(p);
    case 'u':  return set_marked(p);
    case 'd':  return push_dict_of_marked(p);
    case 'q':  return at_memo(p, 1, memo_put);
    case 'r':  return at_memo(p, 4, memo_put);
    case 0x94: return memo_put(p, p->memo.n);
    case 'h':  return at_memo(p, 1, memo_get);
    case 'j':  return at_memo(p, 4, memo_get);
    case 'c':  return push_global(p);
    case 0x93: return push_stack_global(p);
    case 'R':  return call(p);
    case 0x81: return call(p); /* cls.__new__(cls, *args) */
    case 'b':  return set_state(p);
    case 'Q':  return push_persistent(p);
    default:
        return ts_fail(TS_ERR_UNSUPPORTED, "pickle opcode 0x%02x is not one that torch.save uses",
                       op);
    }
}
/* clang-format on */

static ts_status fail_at(uint64_t byte)
{
    ts_error e = *ts_last_error();

    snprintf(e.where, sizeof(e.where), "byte %lu of the pickle", (unsigned long)byte);
    ts_error_set(&e);
    return e.code;
}

static ts_status run(ts_pickle *p, ts_object **root)
{
    const uint8_t *b;

    for (;;) {
        uint64_t at = p->in->at - p->start;
        TS_TRY(ts_cursor_take(p->in, 1, &b));
        if (*b == '.')
            return pop(p, root);
        if (step(p, *b))
            return fail_at(at);
    }
}

/* --- the whole -------------------------------------------------------------------------------- */

/* Views of one storage share it. Those that are not dense are copied, within bounds: a stride of 0
 * makes a tensor of any size from one element. */
static ts_status fill_views(ts_pickle *p)
{
    uint64_t room = 16 * p->in->in->size + ((uint64_t)16 << 20);

    for (size_t i = 0; i < p->nstorages; i++) {
        ts_storage *s = &p->storages[i];
        room += s->bytes;
        if (!s->data->blank)
            ts_bools_tidy(s->dtype, s->data->data, s->bytes); /* once, however many views it has */
    }
    for (size_t i = 0; i < p->nviews; i++) {
        ts_view *v = &p->views[i];
        ts_blob *b = NULL;
        ts_status s;
        TS_TRY(ts_tensor_view(&v->array, v->offset, v->strides, p->storages[v->storage].data, &room,
                              &b));
        s = ts_object_set_tensor(v->o, &v->array, b);
        ts_blob_free(b);
        TS_TRY(s);
    }
    return TS_OK;
}

static void let_go(ts_pickle *p, const ts_object *root)
{
    for (size_t i = 0; i < p->made.n; i++)
        if (!root || !p->made.at[i]->height)
            ts_object_clear(p->made.at[i]);
    for (size_t i = 0; i < p->made.n; i++)
        ts_object_free(p->made.at[i]);
    for (size_t i = 0; i < p->nstorages; i++)
        ts_blob_free(p->storages[i].data);
    ts_object_free(p->keys);
    free(p->made.at);
    free(p->stack.at);
    free(p->memo.at);
    free(p->storages);
    free(p->views);
}

static ts_status load(ts_pickle *p, ts_storage_fn *fill, void *ctx, ts_object **root)
{
    TS_TRY(ts_object_make(TS_KIND_DICT, &p->keys));
    TS_TRY(run(p, root));
    if (p->nstorages && !fill)
        return ts_fail(TS_ERR_CORRUPT, "a tensor where there can be none");
    if (fill)
        TS_TRY(fill(ctx, p));
    TS_TRY(fill_views(p));
    return ts_object_survey(*root);
}

ts_status ts_pickle_load(ts_cursor *in, ts_storage_fn *fill, void *ctx, ts_object **out)
{
    ts_pickle p = {.in = in, .start = in->at};
    ts_object *root = NULL;
    ts_status s = load(&p, fill, ctx, &root);

    *out = s ? NULL : ts_object_share(root);
    let_go(&p, *out);
    return s;
}
