/* cases.c - reads test/op/cases.txt and makes graphs of its lines. */
#include "cases.h"
#include "pass/pass.h"
#include <math.h>

/* --- reading --- */

static ts_status bad(const op_case *c, const char *what, const char *word)
{
    return ts_fail(TS_ERR_PARSE, "cases.txt:%d: %s '%s'", c->line, what, word);
}

/* "f32[2,3]" */
static ts_status read_type(const op_case *c, const char *word, ts_type *t)
{
    const char *p = strchr(word, '[');

    *t = (ts_type){0};
    if (!p || ts_dtype_parse(word, (size_t)(p - word), &t->dtype))
        return bad(c, "not a type", word);
    for (p++; *p != ']'; p += *p == ',') {
        char *end;
        if (t->rank == TS_MAX_RANK)
            return bad(c, "too many dims", word);
        t->dim[t->rank++] = strtol(p, &end, 10);
        if (end == p)
            return bad(c, "not a size", word);
        p = end;
    }
    return TS_OK;
}

/* "stride=[2,1]" "groups=2" "eps=1e-3" "reduction=sum" */
static ts_status read_attr(ts_arena *a, op_case *c, const char *word)
{
    const char *eq = strchr(word, '=');
    char *name = ts_arena_printf(a, "%.*s", (int)(eq - word), word), *end;
    int64_t list[CASE_VALUES];
    int n = 0;

    if (c->nattr == CASE_ATTRS)
        return bad(c, "too many attributes", word);
    if (eq[1] == '[') {
        for (const char *p = eq + 2; *p && *p != ']' && n < CASE_VALUES; p = end + (*end == ',')) {
            list[n++] = strtol(p, &end, 10);
            if (end == p)
                return bad(c, "not a list", word);
        }
        c->attr[c->nattr++] =
            ts_attr_l(name, n, ts_arena_copy(a, list, sizeof(*list) * (size_t)(n ? n : 1)));
        return TS_OK;
    }
    ts_attr x = ts_attr_i(name, strtol(eq + 1, &end, 10));
    if (*end)
        x = ts_attr_f(name, strtod(eq + 1, &end));
    if (*end)
        x = ts_attr_s(name, ts_arena_strdup(a, eq + 1));
    c->attr[c->nattr++] = x;
    return TS_OK;
}

/* The numbers after a hint; moves *word to the last of them. */
static int read_numbers(char **words, int *word, double *x, int room)
{
    int n = 0;

    while (n < room && words[*word + 1] && words[*word + 1][0] != '@')
        x[n++] = strtod(words[++*word], NULL);
    return n;
}

static ts_status read_hint(op_case *c, char **words, int *word)
{
    char *name = words[*word], *colon = strchr(name, ':');
    int only = colon ? atoi(colon + 1) : -1, n;
    double x[CASE_VALUES];

    if (colon)
        *colon = 0;
    if (only >= CASE_INPUTS)
        return bad(c, "no such input in", name);
    n = read_numbers(words, word, x, CASE_VALUES);
    if (!strcmp(name, "@range") && n == 2) {
        for (int i = 0; i < CASE_INPUTS; i++)
            if (only < 0 || i == only) {
                c->lo[i] = x[0];
                c->hi[i] = x[1];
            }
    } else if (!strcmp(name, "@index") && n == 1) {
        for (int i = 0; i < c->nin; i++)
            if ((only < 0 || i == only) && !ts_dtype_is_float(c->in[i].dtype)) {
                c->lo[i] = 0;
                c->hi[i] = x[0] - 1;
            }
    } else if (!strcmp(name, "@values") && n > 0) {
        only = only < 0 ? 0 : only;
        c->nvalues[only] = n;
        memcpy(c->values[only], x, sizeof(x));
    } else if (!strcmp(name, "@frozen") && n > 0) {
        for (int i = 0; i < n; i++)
            c->frozen |= 1u << (int)x[i];
    } else if (!strcmp(name, "@ints"))
        c->ints = true;
    else if (!strcmp(name, "@kink"))
        c->kink = true;
    else if (!strcmp(name, "@only"))
        c->only = true;
    else
        return bad(c, "not a hint", name);
    return TS_OK;
}

ts_status case_read(ts_arena *a, const char *text, int line, op_case *c)
{
    char *words[128] = {0}, *save = NULL, *copy = ts_arena_strdup(a, text);
    int n = 0;

    *c = (op_case){.text = text, .line = line};
    for (int i = 0; i < CASE_INPUTS; i++) {
        c->lo[i] = -2;
        c->hi[i] = 2;
    }
    for (char *w = strtok_r(copy, " ", &save); w && n < 127; w = strtok_r(NULL, " ", &save))
        words[n++] = w;
    c->op = ts_op_find(words[0]);
    if (!c->op)
        return bad(c, "no op", words[0]);
    for (int i = 1; i < n; i++) {
        if (words[i][0] == '@')
            TS_TRY(read_hint(c, words, &i));
        else if (strchr(words[i], '='))
            TS_TRY(read_attr(a, c, words[i]));
        else if (c->nin == CASE_INPUTS)
            return bad(c, "too many inputs", words[i]);
        else
            TS_TRY(read_type(c, words[i], &c->in[c->nin++]));
    }
    return TS_OK;
}

ts_status cases_load(ts_arena *a, op_case **cases, int *count)
{
    const char *root = getenv("TS_SOURCE_ROOT");
    char *data;
    size_t len;
    int line = 0;

    *cases = NULL;
    *count = 0;
    TS_TRY(
        ts_file_read(ts_arena_printf(a, "%s/test/op/cases.txt", root ? root : "."), &data, &len));
    for (char *p = data, *next; p; p = next) {
        op_case c;
        ts_status s;
        char *end = strchr(p, '\n');
        next = end ? end + 1 : NULL;
        if (end)
            *end = 0;
        line++;
        p += strspn(p, " ");
        if (!*p || *p == '#')
            continue;
        if ((s = case_read(a, ts_arena_strdup(a, p), line, &c))) {
            free(data);
            return s;
        }
        TS_PUSH(a, *cases, *count, c);
    }
    free(data);
    return TS_OK;
}

bool case_in(const op_case *c, ts_dtype t, op_case *out)
{
    bool some = false;

    *out = *c;
    if (t == TS_F32)
        return true;
    for (int i = 0; i < c->nin; i++)
        if (c->in[i].dtype == TS_F32) {
            out->in[i].dtype = t;
            some = true;
        }
    for (int i = 0; i < c->nattr; i++)
        if (c->op->flags & TS_SOURCE && c->attr[i].kind == 's' && !strcmp(c->attr[i].s, "f32")) {
            out->attr[i].s = ts_dtype_name(t);
            some = true;
        }
    return some && !c->only;
}

/* --- graphs --- */

/* A const holds what input 0 would. */
static ts_value *make_const(const op_case *c, ts_graph *g, const ts_type *t)
{
    ts_value like = {.type = *t, .name = "x0"};
    void *data = ts_arena_alloc(g->arena, ts_type_bytes(t));

    case_fill(c, &like, data);
    return ts_const_n(g, t->dtype, data, t->rank, t->dim);
}

static ts_node *make_node(const op_case *c, ts_graph *g)
{
    ts_value *in[CASE_INPUTS];

    for (int i = 0; i < c->nin; i++) {
        const ts_type *t = &c->in[i];
        const char *name = ts_arena_printf(g->arena, "x%d", i);
        if (ts_dtype_is_float(t->dtype) && !(c->frozen & (1u << i)))
            in[i] = ts_param_n(g, name, t->dtype, (ts_init){0}, t->rank, t->dim);
        else
            in[i] = ts_input_n(g, name, t->dtype, t->rank, t->dim);
    }
    if (!strcmp(c->op->name, "const")) {
        ts_value *v = make_const(c, g, &c->in[0]);
        return v ? v->node : NULL;
    }
    return ts_node_make(g, c->op, c->nin, in, c->nattr, c->attr);
}

ts_status case_build(const op_case *c, ts_graph **out)
{
    ts_graph *g = *out = ts_graph_new(c->op->name);
    ts_node *n = make_node(c, g);

    if (!n)
        return ts_graph_check(g);
    for (int i = 0; i < n->nout; i++)
        ts_output(n->out[i], ts_arena_printf(g->arena, "y%d", i));
    if (ts_dtype_is_float(n->out[0]->type.dtype)) {
        const ts_type *t = &n->out[0]->type;
        ts_value *dy = ts_input_n(g, "dy0", t->dtype, t->rank, t->dim);
        ts_loss(ts_sum(ts_mul(n->out[0], dy), 0, NULL, false));
    }
    return ts_graph_check(g);
}

ts_status case_grad(ts_arena *a, const ts_graph *in, const ts_graph **out)
{
    ts_optimizer sgd = {.kind = TS_OPTIMIZER_SGD, .hyper.lr = 1, .loss_scaling = 1};
    ts_options opt = {.optimizer = &sgd, .executor = TS_EXECUTOR_REFERENCE};
    const ts_graph *forward, *g;
    ts_value **map;
    ts_graph *copy;
    ts_status s = TS_OK;

    TS_TRY(ts_pass_decompose(a, in, &opt, &forward));
    g = forward;
    if (forward->loss)
        s = ts_pass_autodiff(a, forward, &opt, &g);
    if (s == TS_ERR_GRAD && strstr(ts_last_error()->message, "nothing to train"))
        g = forward;
    else
        TS_TRY(s);
    copy = ts_graph_begin_copy(a, g, &map);
    for (int i = 0; i < g->nnodes; i++)
        ts_graph_copy_node(copy, g->nodes[i], map);
    for (int i = 0; i < in->noutputs; i++)
        ts_graph_add_output(copy, map[g->outputs[i]->id], g->output_names[i]);
    for (int i = 0; i < g->ngrads; i++)
        ts_graph_add_output(copy, map[g->grads[i].grad->id],
                            ts_arena_printf(a, "d%s", g->grads[i].param->name));
    *out = copy;
    return TS_OK;
}

void case_fill(const op_case *c, const ts_value *v, void *data)
{
    uint64_t stream = 0;
    int64_t count = ts_type_count(&v->type);
    int i = v->name[0] == 'x' ? atoi(v->name + 1) : -1; /* -1: dy, -1..1 */
    double lo = i < 0 ? -1 : c->lo[i], hi = i < 0 ? 1 : c->hi[i];
    bool whole = !ts_dtype_is_float(v->type.dtype) || (c->ints && i >= 0);

    if (v->type.dtype == TS_BOOL) {
        lo = 0;
        hi = 1;
    }
    for (const char *p = c->text; *p; p++)
        stream = stream * 31 + (unsigned char)*p;
    for (const char *p = v->name; *p; p++)
        stream = stream * 31 + (unsigned char)*p;
    for (int64_t k = 0; k < count; k++) {
        double u = ts_random_unit(1, stream, 0, (uint64_t)k);
        double x = whole ? floor(lo + u * (hi - lo + 1)) : lo + u * (hi - lo);
        if (i >= 0 && c->nvalues[i])
            x = c->values[i][k % c->nvalues[i]];
        ts_dtype_set(v->type.dtype, data, k, x);
    }
}

ts_status case_run(const op_case *c, const ts_graph *g, ts_ref **r)
{
    ts_eval_ctx ctx = {.seed = 1};
    ts_status s;

    TS_TRY(ts_ref_new(g, r));
    for (int i = 0; i < g->ninputs; i++)
        case_fill(c, g->inputs[i], ts_ref_tensor(*r, g->inputs[i])->data);
    for (int i = 0; i < g->nstates; i++)
        case_fill(c, g->states[i].value, ts_ref_tensor(*r, g->states[i].value)->data);
    s = ts_ref_run(*r, 0, &ctx);
    if (s) {
        ts_ref_free(*r);
        *r = NULL;
    }
    return s;
}

/* --- comparing --- */

/* Of the largest element: the reference rounds once an op, fused code once a kernel. */
static double tolerance(const ts_graph *g, ts_dtype t)
{
    static const double by[] = {
        [TS_F32] = 1e-5, [TS_F64] = 1e-11, [TS_F16] = 5e-3, [TS_BF16] = 4e-2};
    double most = 0;

    if (!ts_dtype_is_float(t))
        return 0;
    for (int i = 0; i < g->nvalues; i++)
        if (ts_dtype_is_float(g->values[i]->type.dtype))
            most = fmax(most, by[g->values[i]->type.dtype]);
    return most;
}

static double largest(const ts_tensor *t)
{
    int64_t count = ts_type_count(&t->type);
    double most = 1e-2;

    for (int64_t i = 0; i < count; i++) {
        double x = fabs(ts_dtype_get(t->type.dtype, t->data, i));
        most = x > most && x < INFINITY ? x : most;
    }
    return most;
}

static bool close_to(double got, double want, double by)
{
    if (isnan(want) || isnan(got))
        return isnan(want) && isnan(got);
    return got == want || fabs(got - want) <= by;
}

int64_t case_difference(const ts_graph *g, ts_ref *r, const ts_value *v, const void *got)
{
    const ts_tensor *want = ts_ref_tensor(r, v);
    double by = tolerance(g, v->type.dtype) * largest(want);
    int64_t count = ts_type_count(&v->type);

    for (int64_t i = 0; i < count; i++)
        if (!close_to(ts_dtype_get(v->type.dtype, got, i),
                      ts_dtype_get(v->type.dtype, want->data, i), by))
            return i;
    return -1;
}
