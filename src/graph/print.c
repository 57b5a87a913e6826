/* print.c - a graph as text; doc/ir.md is its grammar, front/text.c reads it back.
 *
 *   graph classifier
 *   input %x : f32[16,1,28,28]
 *   state %fc.weight : f32[10,784] uniform(-0.1, 0.1) trained
 *   %4 : f32[16,10] = linear(%x, %fc.weight) @layer "fc" @at "net.c":12
 *   output y = %4
 *   update %fc.weight = %9 phase 1
 *   grad %fc.weight = %8
 *   loss %7
 *   checkpoint %4
 */
#include "graph/graph.h"
#include "graph/row.h"
#include <inttypes.h>
#include <math.h>

bool ts_name_is_plain(const char *s)
{
    static const char word[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_.0123456789";

    return s && *s && !s[strspn(s, word)] && s[strspn(s, "0123456789")];
}

/* Length of the UTF-8 character at s, 0 if there is none: no stray or overlong bytes, no surrogates. */
static int utf8(const unsigned char *s)
{
    int n = s[0] < 0x80   ? 1
            : s[0] < 0xc2 ? 0
            : s[0] < 0xe0 ? 2
            : s[0] < 0xf0 ? 3
            : s[0] < 0xf5 ? 4
                          : 0;

    for (int i = 1; i < n; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) ||
        (s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] > 0x8f))
        return 0;
    return n;
}

const char *ts_name_wrong(const char *s)
{
    const unsigned char *p = (const unsigned char *)s;

    if (!s || !*s)
        return "is empty";
    if (strlen(s) > TS_MAX_NAME)
        return "is longer than 1000 bytes";
    for (int n; *p; p += n) {
        if (*p < ' ' || *p == 0x7f)
            return "has a control character in it";
        n = utf8(p);
        if (!n)
            return "is not UTF-8";
    }
    return NULL;
}

static void quoted(ts_text *t, const char *s)
{
    ts_text_printf(t, "\"");
    for (; *s; s++)
        if (*s == '"' || *s == '\\')
            ts_text_printf(t, "\\%c", *s);
        else if ((unsigned char)*s < ' ' || *s == 0x7f)
            ts_text_printf(t, "\\x%02x", (unsigned char)*s);
        else
            ts_text_add(t, s, 1);
    ts_text_printf(t, "\"");
}

/* Bare when it is a word that is not a number: %4 is always a node's value. */
static void name(ts_text *t, const char *s)
{
    if (ts_name_is_plain(s))
        ts_text_printf(t, "%s", s);
    else
        quoted(t, s ? s : "");
}

/* %name for inputs and states, %id for nodes' values */
static void value(ts_text *t, const ts_value *v)
{
    ts_text_printf(t, "%%");
    if (v->kind == TS_VALUE_NODE)
        ts_text_printf(t, "%d", v->id);
    else
        name(t, v->name);
}

/* The shortest text that reads back to the same number and is not mistaken for an integer. */
static void real(ts_text *t, double x)
{
    char s[40];

    if (isnan(x)) {
        ts_text_printf(t, "nan");
        return;
    }
    for (int digits = 15; digits <= 17; digits++) {
        ts_format(s, sizeof(s), "%.*g", digits, x);
        if (ts_to_real(s, NULL) == x)
            break;
    }
    ts_text_printf(t, "%s%s", s, s[strspn(s, "-0123456789")] ? "" : ".0");
}

static void type(ts_text *t, const ts_type *x)
{
    ts_text_printf(t, "%s[", ts_dtype_name(x->dtype));
    for (int i = 0; i < x->rank; i++)
        ts_text_printf(t, "%s%" PRId64, i ? "," : "", x->dim[i]);
    ts_text_printf(t, "]");
}

/* @layout 0231 or 0123/0x8 (lanes of 8 in dim 0); a scalar's is "-" */
static void layout(ts_text *t, const ts_value *v)
{
    if (!v->layout.set)
        return;
    ts_text_printf(t, " @layout %s", v->type.rank ? "" : "-");
    for (int i = 0; i < v->type.rank; i++)
        ts_text_printf(t, "%d", v->layout.order[i]);
    if (v->layout.lanes > 1)
        ts_text_printf(t, "/%dx%d", v->layout.lane_dim, v->layout.lanes);
}

static void attribute(ts_text *t, const ts_attr *x)
{
    ts_text_printf(t, " %s=", x->name);
    switch (x->kind) {
    case 'i':
        ts_text_printf(t, "%" PRId64, x->i);
        return;
    case 'f':
        real(t, x->f);
        return;
    case 's':
        quoted(t, x->s);
        return;
    default:
        ts_text_printf(t, "[");
        for (int i = 0; i < x->n; i++)
            ts_text_printf(t, "%s%" PRId64, i ? "," : "", x->l[i]);
        ts_text_printf(t, "]");
    }
}

/* A const's elements, exact: hexadecimal bytes. */
static void data(ts_text *t, const ts_node *n)
{
    static const char hex[] = "0123456789abcdef";
    const unsigned char *p = n->data;
    size_t bytes = ts_type_bytes(&n->out[0]->type);

    ts_text_printf(t, " data=");
    for (size_t i = 0; i < bytes; i++)
        ts_text_add(t, (char[]){hex[p[i] >> 4], hex[p[i] & 15]}, 2);
}

static void node(ts_text *t, const ts_node *n)
{
    for (int i = 0; i < n->nout; i++) {
        ts_text_printf(t, "%s", i ? ", " : "");
        value(t, n->out[i]);
        ts_text_printf(t, " : ");
        type(t, &n->out[i]->type);
        layout(t, n->out[i]);
    }
    ts_text_printf(t, " = %s(", n->op->name);
    for (int i = 0; i < n->nin; i++) {
        ts_text_printf(t, "%s", i ? ", " : "");
        value(t, n->in[i]);
    }
    ts_text_printf(t, ")");
    for (int i = 0; i < n->nattr; i++)
        attribute(t, &n->attr[i]);
    if (n->data)
        data(t, n);
    if (n->layer && n->layer[0]) {
        ts_text_printf(t, " @layer ");
        quoted(t, n->layer);
    }
    if (n->block && n->block[0]) {
        ts_text_printf(t, " @block ");
        quoted(t, n->block);
    }
    if (n->file) {
        ts_text_printf(t, " @at ");
        quoted(t, n->file);
        ts_text_printf(t, ":%d", n->line);
    }
    if (n->backward)
        ts_text_printf(t, " @backward");
    if (n->phase)
        ts_text_printf(t, " @phase %d", n->phase);
    for (int i = 0; i < n->nsub; i++) {
        ts_text_printf(t, " {\n");
        ts_graph_print(n->sub[i], t);
        ts_text_printf(t, "}");
    }
    ts_text_printf(t, "\n");
}

static void input(ts_text *t, const ts_value *v)
{
    ts_text_printf(t, "input ");
    value(t, v);
    ts_text_printf(t, " : ");
    type(t, &v->type);
    layout(t, v);
    ts_text_printf(t, "\n");
}

static void state(ts_text *t, const ts_state *s)
{
    static const char *const inits[] = {"full", "uniform", "normal"};

    ts_text_printf(t, "state ");
    value(t, s->value);
    ts_text_printf(t, " : ");
    type(t, &s->value->type);
    layout(t, s->value);
    ts_text_printf(t, " %s(", inits[s->init.kind]);
    real(t, s->init.a);
    ts_text_printf(t, ", ");
    real(t, s->init.b);
    ts_text_printf(t, ")%s",
                   s->trained                ? " trained"
                   : s->use == TS_USE_SUMMED ? " summed"
                   : s->use == TS_USE_MOMENT ? " moment"
                                             : "");
    if (s->of) {
        ts_text_printf(t, " share %d of ", s->parts);
        value(t, s->of);
    }
    ts_text_printf(t, "\n");
}

/* "update %w = %91" */
static void pair(ts_text *t, const char *what, const ts_value *to, const ts_value *from)
{
    ts_text_printf(t, "%s ", what);
    value(t, to);
    ts_text_printf(t, " = ");
    value(t, from);
}

void ts_graph_print(const ts_graph *g, ts_text *t)
{
    ts_text_printf(t, "graph ");
    name(t, g->name);
    ts_text_printf(t, "\n");
    for (int i = 0; i < g->ninputs; i++)
        input(t, g->inputs[i]);
    for (int i = 0; i < g->nstates; i++)
        state(t, &g->states[i]);
    for (int i = 0; i < g->nnodes; i++)
        node(t, g->nodes[i]);
    for (int i = 0; i < g->noutputs; i++) {
        ts_text_printf(t, "output ");
        name(t, g->output_names[i]);
        ts_text_printf(t, " = ");
        value(t, g->outputs[i]);
        ts_text_printf(t, "\n");
    }
    for (int i = 0; i < g->nupdates; i++) {
        pair(t, "update", g->updates[i].state, g->updates[i].next);
        ts_text_printf(t, " phase %d\n", g->updates[i].phase);
    }
    for (int i = 0; i < g->ngrads; i++) {
        pair(t, "grad", g->grads[i].param, g->grads[i].grad);
        ts_text_printf(t, "\n");
    }
    if (g->loss) {
        ts_text_printf(t, "loss ");
        value(t, g->loss);
        ts_text_printf(t, "%s\n", g->loss_is_output ? " output" : "");
    }
    for (int i = 0; i < g->nvalues; i++)
        if (g->values[i]->checkpoint) {
            ts_text_printf(t, "checkpoint ");
            value(t, g->values[i]);
            ts_text_printf(t, "\n");
        }
}
