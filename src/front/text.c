/* text.c - reads a graph's text form, as graph/print.c writes it and doc/ir.md describes it.
 *
 * One statement a line, read from left to right with one character of lookahead. Names live in a
 * hash table per graph (sub-graphs see only their own). Nodes are made with the op's own shape
 * rule, so a type in the text is a claim that is checked, and may be left out. Where one of the
 * steps fails the rest is not read: the first error, with its line, is the one that matters.
 */
#include "op/op.h"
#include <ctype.h>
#include <errno.h>
#include <math.h>

#define MAX_DEPTH 32 /* sub-graphs inside sub-graphs */

typedef struct reader {
    const char *p;
    int line;
    int depth;
    ts_arena *a;
} reader;

/* What %name stands for. Open addressing; the size is a power of 2. */
typedef struct entry {
    const char *name;
    ts_value *v;
} entry;
typedef struct names {
    entry *at;
    int used, size;
} names;

typedef struct graph_reader {
    reader *r;
    ts_graph *g;
    names names;
} graph_reader;

/* A node's line before it is a node. */
typedef struct parts {
    int nout, nin, nattr, nsub;
    struct result {
        const char *name, *key;
        bool typed;
        ts_type type;
        ts_layout layout;
    } * out;
    ts_value **in;
    ts_attr *attr;
    ts_graph **sub;
    const ts_op *op;
    ts_node place; /* layer, block, file, line, backward, phase */
    const char *hex;
    size_t nhex;
    bool has_data;
} parts;

/* --- characters --- */

static void skip_space(reader *r)
{
    while (*r->p == ' ' || *r->p == '\t' || *r->p == '\r')
        r->p++;
    if (*r->p == '#')
        r->p += strcspn(r->p, "\n");
}

/* To the first character of a statement. */
static void skip_lines(reader *r)
{
    for (skip_space(r); *r->p == '\n'; skip_space(r)) {
        r->p++;
        r->line++;
    }
}

static size_t word_length(const char *p)
{
    static const char word[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_.0123456789";

    return strspn(p, word); /* isalnum depends on the locale */
}

/* What stands at the cursor, for a message. */
static const char *found(const reader *r)
{
    size_t n = word_length(r->p);

    if (!*r->p)
        return "the end of the text";
    if (*r->p == '\n')
        return "the end of the line";
    if (!isprint((unsigned char)*r->p))
        return ts_arena_printf(r->a, "byte 0x%02x", (unsigned char)*r->p);
    return ts_arena_printf(r->a, "'%.*s'", (int)TS_MIN(TS_MAX(n, 1), 40), r->p);
}

static ts_status expected(const reader *r, const char *what)
{
    return ts_fail(TS_ERR_PARSE, "line %d: expected %s, got %s", r->line, what, found(r));
}

static ts_status wrong(const reader *r, const char *fmt, ...) TS_PRINTF(2, 3);
static ts_status wrong(const reader *r, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    ts_fail(TS_ERR_PARSE, "line %d: %s", r->line, ts_arena_vprintf(r->a, fmt, ap));
    va_end(ap);
    return TS_ERR_PARSE;
}

/* The words of an error from elsewhere, with our line. */
static ts_status at_line(int line)
{
    ts_error e = *ts_last_error();

    ts_fail_loc(e.where, TS_ERR_PARSE, "line %d: %.900s", line, e.message);
    ts_error_doing("%s", e.doing);
    return TS_ERR_PARSE;
}

/* Takes c if it comes next. */
static bool take(reader *r, char c)
{
    skip_space(r);
    if (*r->p != c)
        return false;
    r->p++;
    return true;
}

static ts_status need(reader *r, char c)
{
    return take(r, c) ? TS_OK : expected(r, (char[]){'\'', c, '\'', 0});
}

static ts_status end_of_line(reader *r)
{
    skip_space(r);
    return *r->p == '\n' || !*r->p ? TS_OK : expected(r, "the end of the line");
}

static bool take_word(reader *r, const char *word)
{
    size_t n = strlen(word);

    skip_space(r);
    if (word_length(r->p) != n || memcmp(r->p, word, n))
        return false;
    r->p += n;
    return true;
}

/* --- names, strings, numbers --- */

static ts_status word(reader *r, const char *what, const char **out)
{
    size_t n;

    skip_space(r);
    n = word_length(r->p);
    if (!n)
        return expected(r, what);
    *out = ts_arena_printf(r->a, "%.*s", (int)TS_MIN(n, 4096), r->p);
    if (n > 4096)
        return wrong(r, "a name of %zu characters is too long", n);
    r->p += n;
    return TS_OK;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* "a\"b\\c\x0a" */
static ts_status string(reader *r, const char **out)
{
    size_t room = 0, n = 0;
    char *s;

    TS_TRY(need(r, '"'));
    for (const char *p = r->p; *p && *p != '"' && *p != '\n'; p += *p == '\\' && p[1] ? 2 : 1)
        room += 2;
    s = ts_arena_alloc(r->a, room + 1);
    while (*r->p != '"') {
        if (!*r->p || *r->p == '\n')
            return expected(r, "'\"' at the end of the string");
        if (*r->p != '\\') {
            s[n++] = *r->p++;
        } else if (r->p[1] == '"' || r->p[1] == '\\') {
            s[n++] = r->p[1];
            r->p += 2;
        } else if (r->p[1] == 'x' && hex_digit(r->p[2]) >= 0 && hex_digit(r->p[3]) >= 0 &&
                   (r->p[2] != '0' || r->p[3] != '0')) {
            s[n++] = (char)(hex_digit(r->p[2]) * 16 + hex_digit(r->p[3]));
            r->p += 4;
        } else {
            return wrong(r, "a string knows \\\", \\\\ and \\x with two digits only");
        }
    }
    r->p++;
    *out = s;
    return TS_OK;
}

static ts_status name(reader *r, const char *what, const char **out)
{
    skip_space(r);
    return *r->p == '"' ? string(r, out) : word(r, what, out);
}

/* The name after a %. Its key in the table keeps quoted bares apart: %"4" is an input someone
 * called 4, %4 a node's value. */
static ts_status value_name(reader *r, const char **out, const char **key)
{
    bool bare;

    TS_TRY(need(r, '%'));
    if (*r->p != '"' && !word_length(r->p))
        return expected(r, "a name after '%'");
    bare = *r->p != '"';
    TS_TRY(name(r, "a name", out));
    *key = bare || ts_name_is_plain(*out) ? *out : ts_arena_printf(r->a, "\"%s", *out);
    return TS_OK;
}

static ts_status integer(reader *r, const char *what, int64_t lo, int64_t hi, int64_t *out)
{
    char *end;

    skip_space(r);
    if (!isdigit((unsigned char)r->p[*r->p == '-']))
        return expected(r, what);
    errno = 0;
    *out = strtoll(r->p, &end, 10);
    if (errno || *out < lo || *out > hi)
        return wrong(r, "%.*s is out of range for %s", (int)TS_MIN(end - r->p, 40), r->p, what);
    r->p = end;
    return TS_OK;
}

static bool starts_number(const char *p)
{
    p += *p == '-';
    return isdigit((unsigned char)*p) || !strncmp(p, "inf", 3) || !strncmp(p, "nan", 3);
}

static ts_status real(reader *r, double *out)
{
    char *end;

    skip_space(r);
    if (!starts_number(r->p))
        return expected(r, "a number");
    *out = ts_to_real(r->p, &end);
    r->p = end;
    return TS_OK;
}

/* --- types and layouts --- */

/* f32[16,10] */
static ts_status type(reader *r, ts_type *t)
{
    const char *start;
    size_t n;

    *t = (ts_type){0};
    skip_space(r);
    start = r->p;
    n = word_length(start);
    if (!n || ts_dtype_parse(start, n, &t->dtype))
        return expected(r, "a dtype");
    r->p += n;
    TS_TRY(need(r, '['));
    while (!take(r, ']')) {
        if (t->rank)
            TS_TRY(need(r, ','));
        if (t->rank == TS_MAX_RANK)
            return wrong(r, "a tensor has at most %d dims", TS_MAX_RANK);
        TS_TRY(integer(r, "a size", 0, INT64_C(1) << 47, &t->dim[t->rank++]));
    }
    if (!ts_type_possible(t))
        return wrong(r, "%.*s is larger than any tensor can be", (int)(r->p - start), start);
    return TS_OK;
}

/* 0231, 0123/0x8, or - for a scalar */
static ts_status layout_of(reader *r, const ts_type *t, ts_layout *l)
{
    int64_t dim, lanes;
    int seen = 0;

    *l = (ts_layout){.set = true};
    skip_space(r);
    if (!t->rank && take(r, '-'))
        return TS_OK;
    for (int i = 0; i < t->rank; i++) {
        int d = *r->p - '0';
        if (d < 0 || d >= t->rank || seen & 1 << d)
            return expected(
                r, ts_arena_printf(r->a, "a layout naming each of dims 0 to %d once", t->rank - 1));
        seen |= 1 << d;
        l->order[i] = (int8_t)d;
        r->p++;
    }
    if (*r->p != '/')
        return TS_OK;
    r->p++;
    TS_TRY(integer(r, "the lanes' dim", 0, t->rank - 1, &dim));
    if (*r->p++ != 'x')
        return r->p--, expected(r, "'x' and the number of lanes");
    TS_TRY(integer(r, "the number of lanes", 2, INT16_MAX, &lanes));
    l->lane_dim = (int8_t)dim;
    l->lanes = (int16_t)lanes;
    return TS_OK;
}

static ts_status maybe_layout(reader *r, const ts_type *t, ts_layout *l)
{
    *l = (ts_layout){0};
    if (!take(r, '@'))
        return TS_OK;
    if (!take_word(r, "layout"))
        return expected(r, "'layout' after '@'");
    return layout_of(r, t, l);
}

/* --- the names of a graph --- */

static uint64_t hash(const char *s)
{
    uint64_t h = 0xcbf29ce484222325u; /* FNV-1a */

    for (; *s; s++)
        h = (h ^ (unsigned char)*s) * 0x100000001b3u;
    return h;
}

static entry *slot(const names *t, const char *name)
{
    for (uint64_t i = hash(name);; i++) {
        entry *e = &t->at[i & (uint64_t)(t->size - 1)];
        if (!e->name || !strcmp(e->name, name))
            return e;
    }
}

static ts_value *lookup(const names *t, const char *name)
{
    return t->size ? slot(t, name)->v : NULL;
}

static void grow(ts_arena *a, names *t)
{
    names bigger = {.size = t->size ? 2 * t->size : 64, .used = t->used};

    bigger.at = TS_NEWS(a, entry, bigger.size);
    for (int i = 0; i < t->size; i++)
        if (t->at[i].name)
            *slot(&bigger, t->at[i].name) = t->at[i];
    *t = bigger;
}

static ts_status define(graph_reader *b, const char *key, ts_value *v)
{
    entry *e;

    if (2 * b->names.used >= b->names.size)
        grow(b->r->a, &b->names);
    e = slot(&b->names, key);
    if (e->name)
        return wrong(b->r, "%%%s is already defined", key + (*key == '"'));
    *e = (entry){key, v};
    b->names.used++;
    return TS_OK;
}

/* A value defined above. */
static ts_status value(graph_reader *b, ts_value **out)
{
    const char *name, *key;

    TS_TRY(value_name(b->r, &name, &key));
    *out = lookup(&b->names, key);
    return *out ? TS_OK : wrong(b->r, "%%%s is not defined above", name);
}

/* --- nodes --- */

static ts_status results(reader *r, parts *p)
{
    do {
        struct result o = {0};
        TS_TRY(value_name(r, &o.name, &o.key));
        if (take(r, ':')) {
            o.typed = true;
            TS_TRY(type(r, &o.type));
            TS_TRY(maybe_layout(r, &o.type, &o.layout));
        }
        TS_PUSH(r->a, p->out, p->nout, o);
    } while (take(r, ','));
    return need(r, '=');
}

static ts_status arguments(graph_reader *b, parts *p)
{
    reader *r = b->r;

    TS_TRY(need(r, '('));
    while (!take(r, ')')) {
        ts_value *v;
        if (p->nin)
            TS_TRY(need(r, ','));
        TS_TRY(value(b, &v));
        TS_PUSH(r->a, p->in, p->nin, v);
    }
    return TS_OK;
}

static ts_status list(reader *r, ts_attr *x)
{
    int64_t *l = NULL;

    x->kind = 'l';
    TS_TRY(need(r, '['));
    while (!take(r, ']')) {
        int64_t i;
        if (x->n)
            TS_TRY(need(r, ','));
        TS_TRY(integer(r, "an integer", INT64_MIN, INT64_MAX, &i));
        TS_PUSH(r->a, l, x->n, i);
    }
    x->l = l;
    return TS_OK;
}

/* 3 is an integer; 3.0, 1e3, inf and nan are not. */
static bool is_integer(const char *p)
{
    size_t sign = *p == '-', digits = strspn(p + sign, "0123456789");
    char next = p[sign + digits];

    return digits && next != '.' && next != 'e' && next != 'E';
}

static ts_status number(reader *r, ts_attr *x)
{
    if (is_integer(r->p)) {
        x->kind = 'i';
        return integer(r, "an integer", INT64_MIN, INT64_MAX, &x->i);
    }
    x->kind = 'f';
    return real(r, &x->f);
}

/* data=0a1b2c: decoded when the node, and so the size, is known */
static ts_status data(reader *r, parts *p)
{
    if (p->has_data)
        return wrong(r, "data is given twice");
    p->has_data = true;
    p->hex = r->p;
    while (hex_digit(*r->p) >= 0)
        r->p++;
    p->nhex = (size_t)(r->p - p->hex);
    return TS_OK;
}

/* key=value */
static ts_status attribute(reader *r, parts *p)
{
    ts_attr x = {0};

    TS_TRY(word(r, "an attribute, '@', '{' or the end of the line", &x.name));
    TS_TRY(need(r, '='));
    if (!strcmp(x.name, "data"))
        return data(r, p);
    skip_space(r);
    if (*r->p == '"') {
        x.kind = 's';
        TS_TRY(string(r, &x.s));
    } else if (*r->p == '[') {
        TS_TRY(list(r, &x));
    } else if (starts_number(r->p)) {
        TS_TRY(number(r, &x));
    } else {
        return expected(r, "a number, a string or a list");
    }
    TS_PUSH(r->a, p->attr, p->nattr, x);
    return TS_OK;
}

/* What stands after '@'. */
static ts_status annotation(reader *r, ts_node *place)
{
    int64_t i;

    if (take_word(r, "layer"))
        return string(r, &place->layer);
    if (take_word(r, "block"))
        return string(r, &place->block);
    if (take_word(r, "backward"))
        return place->backward = true, TS_OK;
    if (take_word(r, "phase")) {
        TS_TRY(integer(r, "a phase", 0, 1, &i));
        return place->phase = (int)i, TS_OK;
    }
    if (take_word(r, "at")) {
        TS_TRY(string(r, &place->file));
        TS_TRY(need(r, ':'));
        TS_TRY(integer(r, "a line number", INT32_MIN, INT32_MAX, &i));
        return place->line = (int)i, TS_OK;
    }
    return expected(r, "layer, block, at, backward or phase after '@'");
}

static ts_status graph(reader *r, ts_arena *a, ts_graph **out);

/* { graph ... } */
static ts_status sub_graph(reader *r, ts_arena *a, parts *p)
{
    ts_graph *g;

    if (++r->depth > MAX_DEPTH)
        return wrong(r, "sub-graphs are nested more than %d deep", MAX_DEPTH);
    TS_TRY(graph(r, a, &g));
    TS_TRY(need(r, '}'));
    r->depth--;
    TS_PUSH(r->a, p->sub, p->nsub, g);
    return TS_OK;
}

static ts_status operation(graph_reader *b, parts *p)
{
    reader *r = b->r;
    const char *op;

    TS_TRY(word(r, "an op", &op));
    p->op = ts_op_find(op);
    if (!p->op)
        return wrong(r, "there is no op '%s'", op);
    TS_TRY(arguments(b, p));
    for (skip_space(r); *r->p && *r->p != '\n'; skip_space(r)) {
        if (take(r, '@'))
            TS_TRY(annotation(r, &p->place));
        else if (take(r, '{'))
            TS_TRY(sub_graph(r, b->g->arena, p));
        else
            TS_TRY(attribute(r, p));
    }
    return TS_OK;
}

/* The const's bytes. */
static ts_status set_data(graph_reader *b, const parts *p, ts_node *n)
{
    bool wants = p->op == TS_OP(const);
    size_t bytes = ts_type_bytes(&n->out[0]->type);
    unsigned char *to;

    if (wants != p->has_data)
        return wrong(b->r, wants ? "const needs data" : "%s takes no data", p->op->name);
    if (!wants)
        return TS_OK;
    if (p->nhex != 2 * bytes)
        return wrong(b->r, "data has %zu digits; %s needs %zu", p->nhex,
                     ts_type_text(b->r->a, &n->out[0]->type), 2 * bytes);
    to = ts_arena_alloc(b->g->arena, bytes);
    for (size_t i = 0; i < bytes; i++)
        to[i] = (unsigned char)(hex_digit(p->hex[2 * i]) * 16 + hex_digit(p->hex[2 * i + 1]));
    n->data = to;
    return TS_OK;
}

static ts_status check_result(graph_reader *b, const struct result *o, const ts_value *v)
{
    if (!o->typed || ts_type_same(&o->type, &v->type))
        return TS_OK;
    return wrong(b->r, "%%%s is said to be %s, but %s makes it %s", o->name,
                 ts_type_text(b->r->a, &o->type), v->node->op->name,
                 ts_type_text(b->r->a, &v->type));
}

/* %4 : f32[16,10] = linear(%x, %fc.weight) @layer "fc" */
static ts_status node(graph_reader *b)
{
    parts p = {.place = {.layer = "", .block = ""}};
    reader *r = b->r;
    ts_graph *g = b->g;
    int line = r->line;
    ts_node *n;

    TS_TRY(results(r, &p));
    TS_TRY(operation(b, &p));
    p.place.layer = ts_arena_strdup(g->arena, p.place.layer);
    p.place.block = ts_arena_strdup(g->arena, p.place.block);
    p.place.file = ts_arena_strdup(g->arena, p.place.file);
    g->like = &p.place;
    n = ts_node_make_sub(g, p.op, p.nin, p.in, p.nattr, p.attr, p.nsub, p.sub);
    g->like = NULL;
    if (!n)
        return at_line(line);
    if (n->nout != p.nout)
        return wrong(r, "%s has %d result%s, got %d name%s", p.op->name, n->nout,
                     n->nout == 1 ? "" : "s", p.nout, p.nout == 1 ? "" : "s");
    for (int i = 0; i < p.nout; i++) {
        TS_TRY(check_result(b, &p.out[i], n->out[i]));
        TS_TRY(define(b, p.out[i].key, n->out[i]));
        n->out[i]->layout = p.out[i].layout;
    }
    return set_data(b, &p, n);
}

/* --- the other statements --- */

/* input %x : f32[16,784] */
static ts_status input(graph_reader *b)
{
    ts_layout layout;
    const char *name, *key;
    ts_value *v;
    ts_type t;

    TS_TRY(value_name(b->r, &name, &key));
    TS_TRY(need(b->r, ':'));
    TS_TRY(type(b->r, &t));
    TS_TRY(maybe_layout(b->r, &t, &layout));
    v = ts_graph_add_input(b->g, name, t);
    v->layout = layout;
    return define(b, key, v);
}

/* uniform(-0.1, 0.1) */
static ts_status init(reader *r, ts_init *out)
{
    static const char *const kinds[] = {"full", "uniform", "normal"};
    int k = 0;

    while (k < TS_COUNT(kinds) && !take_word(r, kinds[k]))
        k++;
    if (k == TS_COUNT(kinds))
        return expected(r, "full, uniform or normal");
    *out = (ts_init){.kind = (ts_init_kind)k};
    TS_TRY(need(r, '('));
    TS_TRY(real(r, &out->a));
    if (take(r, ','))
        TS_TRY(real(r, &out->b));
    return need(r, ')');
}

/* share 4 of %fc.weight */
static ts_status maybe_share(graph_reader *b, ts_state *s)
{
    int64_t parts;

    if (!take_word(b->r, "share"))
        return TS_OK;
    TS_TRY(integer(b->r, "the number of shares", 2, 1024, &parts));
    if (!take_word(b->r, "of"))
        return expected(b->r, "'of'");
    s->parts = (int)parts;
    s->use = s->use == TS_USE_MOMENT ? s->use : TS_USE_SHARE;
    return value(b, &s->of);
}

/* state %fc.weight : f32[10,784] uniform(-0.1, 0.1) trained */
static ts_status state(graph_reader *b)
{
    ts_layout layout;
    const char *name, *key;
    ts_value *v;
    ts_init i;
    ts_type t;

    TS_TRY(value_name(b->r, &name, &key));
    TS_TRY(need(b->r, ':'));
    TS_TRY(type(b->r, &t));
    TS_TRY(maybe_layout(b->r, &t, &layout));
    TS_TRY(init(b->r, &i));
    v = ts_graph_add_state(b->g, name, t, i, take_word(b->r, "trained"));
    v->layout = layout;
    if (take_word(b->r, "summed"))
        b->g->states[v->index].use = TS_USE_SUMMED;
    else if (take_word(b->r, "moment"))
        b->g->states[v->index].use = TS_USE_MOMENT;
    TS_TRY(maybe_share(b, &b->g->states[v->index]));
    return define(b, key, v);
}

/* output y = %4 */
static ts_status output(graph_reader *b)
{
    const char *label;
    ts_value *v;

    TS_TRY(name(b->r, "the output's name", &label));
    TS_TRY(need(b->r, '='));
    TS_TRY(value(b, &v));
    ts_graph_add_output(b->g, v, label);
    return TS_OK;
}

/* update %fc.weight = %9 phase 1 */
static ts_status update(graph_reader *b)
{
    ts_value *to, *next;
    int64_t phase = 0;

    TS_TRY(value(b, &to));
    TS_TRY(need(b->r, '='));
    TS_TRY(value(b, &next));
    if (take_word(b->r, "phase"))
        TS_TRY(integer(b->r, "a phase", 0, 1, &phase));
    ts_graph_add_update(b->g, to, next, (int)phase);
    return TS_OK;
}

/* grad %fc.weight = %8 */
static ts_status grad(graph_reader *b)
{
    ts_grad d;

    TS_TRY(value(b, &d.param));
    TS_TRY(need(b->r, '='));
    TS_TRY(value(b, &d.grad));
    TS_PUSH(b->g->arena, b->g->grads, b->g->ngrads, d);
    return TS_OK;
}

/* loss %7 output */
static ts_status loss(graph_reader *b)
{
    if (b->g->loss)
        return wrong(b->r, "the graph already has a loss");
    TS_TRY(value(b, &b->g->loss));
    b->g->loss_is_output = take_word(b->r, "output");
    return TS_OK;
}

/* checkpoint %4 */
static ts_status checkpoint(graph_reader *b)
{
    ts_value *v;

    TS_TRY(value(b, &v));
    ts_value_mark(v, true);
    return TS_OK;
}

static ts_status statement(graph_reader *b)
{
    static const struct {
        const char *word;
        ts_status (*read)(graph_reader *b);
    } kinds[] = {
        {"input", input}, {"state", state}, {"output", output},         {"update", update},
        {"grad", grad},   {"loss", loss},   {"checkpoint", checkpoint},
    };

    if (*b->r->p == '%')
        return node(b);
    for (int i = 0; i < TS_COUNT(kinds); i++)
        if (take_word(b->r, kinds[i].word))
            return kinds[i].read(b);
    return expected(b->r, "input, state, output, update, grad, loss, checkpoint or a node");
}

/* From `graph` to the end of the text or the brace that closes a sub-graph. */
static ts_status graph(reader *r, ts_arena *a, ts_graph **out)
{
    graph_reader b = {.r = r};
    const char *title;

    skip_lines(r);
    if (!take_word(r, "graph"))
        return expected(r, "'graph' and its name");
    TS_TRY(name(r, "the graph's name", &title));
    TS_TRY(end_of_line(r));
    b.g = ts_graph_in(a, title);
    for (skip_lines(r); *r->p && !(r->depth && *r->p == '}'); skip_lines(r)) {
        TS_TRY(statement(&b));
        TS_TRY(end_of_line(r));
    }
    *out = b.g;
    return TS_OK;
}

/* A graph that reads but breaks a rule is the text's fault, not ours. */
static ts_status verify(const ts_graph *g)
{
    ts_error e;

    if (!ts_graph_verify(g))
        return TS_OK;
    e = *ts_last_error();
    e.code = TS_ERR_PARSE;
    ts_error_set(&e);
    return TS_ERR_PARSE;
}

ts_status ts_graph_read(ts_arena *a, const char *text, ts_graph **out)
{
    reader r = {.p = text, .line = 1, .a = ts_arena_new()};
    ts_status s = graph(&r, a, out);

    if (!s)
        s = verify(*out);
    ts_arena_free(r.a);
    if (s)
        ts_error_doing("reading IR text");
    return s;
}

ts_status ts_graph_parse(const char *text, ts_graph **out)
{
    ts_arena *a;
    ts_status s;

    if (!text || !out)
        return ts_fail(TS_ERR_ARG, "reading IR needs a text and a place for the graph");
    a = ts_arena_new();
    s = ts_graph_read(a, text, out);
    if (s) {
        ts_arena_free(a);
        *out = NULL;
        return s;
    }
    (*out)->owns_arena = true;
    return TS_OK;
}
