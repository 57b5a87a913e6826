/* render.c - the whole source: prelude, constants, kernels with their IR above them, and the table
 * the engine walks. */
#include "render/product.h"
#include <inttypes.h>
#include <math.h>

void ts_render_need(ts_render *r, const char *what)
{
    for (int i = 0; i < r->nneeds; i++)
        if (!strcmp(r->needs[i], what))
            return;
    TS_PUSH(r->a, r->needs, r->nneeds, ts_arena_strdup(r->a, what));
}

static void need(const void *where, const char *what)
{
    ts_render_need((ts_render *)where, what);
}

static bool stored(const void *where, const ts_value *v)
{
    const ts_render *r = where;

    return r->p->place[v->id].home != TS_HOME_NONE;
}

/* A name as part of an identifier, whatever the locale: 40 letters of it at most. */
static const char *word(ts_arena *a, const char *name)
{
    char *s = ts_arena_printf(a, "%.40s", name);

    for (char *p = s; *p; p++)
        if (!((*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') || (*p >= '0' && *p <= '9')))
            *p = '_';
    return s;
}

/* What kernel k is about: its anchor, or what it stores first. NULL: it only moves. */
static const ts_node *subject(const ts_kernel *k)
{
    if (k->anchor)
        return k->anchor;
    return k->copy || k->load || k->store ? NULL : k->roots[0]->node;
}

static const char *deed(const ts_kernel *k)
{
    const ts_node *n = subject(k);

    return n ? n->op->name : k->load ? "load" : k->store ? "store" : "copy";
}

/* k2_conv1_conv */
const char *ts_render_kernel(const ts_render *r, int i)
{
    const ts_kernel *k = r->p->kernels[i];
    const ts_node *n = subject(k);
    const char *layer = n && n->layer ? n->layer : "";

    return ts_arena_printf(r->a, "k%d_%s%s%s%s", i, word(r->a, layer), layer[0] ? "_" : "", deed(k),
                           n && n->backward ? "_backward" : "");
}

/* %12 is v12, the state conv1.weight is conv1_weight, the input x is in_x */
const char *ts_render_pointer(const void *where, const ts_value *v)
{
    const ts_render *r = where;

    if (r->names && r->names[v->id])
        return r->names[v->id];
    if (v->kind == TS_VALUE_NODE)
        return ts_arena_printf(r->a, r->p->place[v->id].home == TS_HOME_CONST ? "const%d" : "v%d",
                               v->id);
    return ts_arena_printf(r->a, "%s_%s_%d", v->kind == TS_VALUE_INPUT ? "in" : "s",
                           word(r->a, v->name), v->index);
}

void ts_render_emitter(ts_render *r, ts_emit *e)
{
    *e =
        (ts_emit){.a = r->a,
                  .out = &r->body,
                  .indent = 1,
                  .next = &r->next,
                  .prefix = r->prefix ? r->prefix : "",
                  .index = r->prefix ? "int32_t" : "int64_t", /* small processors have no 64 bits */
                  .plain = r->prefix != NULL,
                  .where = r,
                  .stored = stored,
                  .pointer = ts_render_pointer,
                  .need = need};
}

/* Where a value lies in the block: micro-batches take turns in what a pipeline keeps of several,
 * and each replica has its share of what is split. */
static const char *address(ts_render *r, const ts_value *v, int device)
{
    const ts_spot *s = ts_place_spot(r->p, v, device);

    if (s->shares)
        return ts_arena_printf(r->a, "%zu + c->replica * %zu", s->offset, s->bytes);
    if (s->depth == 1)
        return ts_arena_printf(r->a, "%zu", s->offset);
    return ts_arena_printf(r->a, "%zu + c->mb %% %d * %zu", s->offset, s->depth,
                           ts_ring_stride(s->bytes));
}

/* Of what stays where it is the depth is 0, and nothing but the offset is looked at. */
static const char *place_row(ts_render *r, const ts_value *v, int device)
{
    const ts_spot *s = ts_place_spot(r->p, v, device);

    if (!s->shares && s->depth == 1)
        return ts_arena_printf(r->a, "{%zu}", s->offset);
    return ts_arena_printf(r->a, "{%zu, %zu, %zu, %d}", s->offset, s->shares ? s->bytes : 0,
                           s->depth > 1 ? ts_ring_stride(s->bytes) : 0, s->depth);
}

static void add_pointer(ts_render *r, const ts_kernel *k, ts_written *w, const ts_value *v,
                        bool written)
{
    const ts_place *p = &r->p->place[v->id];
    const char *t = ts_emit_memory_type(v->type.dtype);
    ts_pointer q = {.name = ts_render_pointer(r, v)};

    if (p->home == TS_HOME_INPUT) {
        q.type = ts_arena_printf(r->a, "const %s", t);
        q.row = ts_arena_printf(r->a, "{0, 0, 0, 1, %d}", v->index + 1);
    } else if (p->home == TS_HOME_BLOCK) {
        q.type = ts_arena_printf(r->a, "%s%s", written ? "" : "const ", t);
        q.row = place_row(r, v, k->device);
    } else
        return;
    TS_PUSH(r->a, w->pointers, w->npointers, q);
}

/* To all that the kernel writes and reads. */
static void find_pointers(ts_render *r, const ts_kernel *k, ts_written *w)
{
    for (int n = 0; n < k->nroots; n++)
        add_pointer(r, k, w, k->roots[n], true);
    for (int n = 0; n < k->nreads; n++) {
        bool root = false;
        for (int m = 0; m < k->nroots; m++)
            root = root || k->roots[m] == k->reads[n];
        if (!root)
            add_pointer(r, k, w, k->reads[n], false);
    }
}

/* The nodes of a kernel as IR, for the reader of the C. */
static void describe(ts_render *r, const ts_value *v, bool *seen)
{
    if (v->kind != TS_VALUE_NODE || seen[v->id])
        return;
    seen[v->id] = true;
    for (int i = 0; i < v->node->nin; i++)
        if (r->p->place[v->node->in[i]->id].home == TS_HOME_NONE)
            describe(r, v->node->in[i], seen);
    ts_text_printf(&r->body, " * %%%d : %s = %s(", v->id, ts_type_text(r->a, &v->type),
                   v->node->op->name);
    for (int i = 0; i < v->node->nin; i++) {
        const ts_value *x = v->node->in[i];
        if (r->names && r->names[x->id])
            ts_text_printf(&r->body, "%s%s", i ? ", " : "", r->names[x->id]);
        else if (x->kind == TS_VALUE_NODE)
            ts_text_printf(&r->body, "%s%%%d", i ? ", " : "", x->id);
        else
            ts_text_printf(&r->body, "%s%%%s", i ? ", " : "", ts_c_text(r->a, x->name));
    }
    ts_text_printf(&r->body, ")%s%s\n", v->node->layer && v->node->layer[0] ? "  " : "",
                   v->node->layer ? ts_c_text(r->a, v->node->layer) : "");
}

void ts_render_describe(ts_render *r, const ts_kernel *k)
{
    bool *seen = TS_NEWS(r->a, bool, r->p->g->nvalues);

    for (int n = 0; n < k->nroots && !k->copy; n++)
        describe(r, k->roots[n], seen);
    if (k->copy)
        ts_text_printf(&r->body, " * %%%s <- %%%d\n", ts_c_text(r->a, k->roots[0]->name),
                       k->copy->id);
}

/* The comment, and what share.c writes the function's head from. */
static void kernel_head(ts_render *r, const ts_kernel *k, ts_written *w)
{
    w->told = true;
    w->start = r->body.len;
    ts_text_printf(&r->body, "/*\n");
    ts_render_describe(r, k);
    ts_text_printf(&r->body, " */\n");
    w->code = r->body.len;
    find_pointers(r, k, w);
}

static void element(ts_text *t, ts_dtype type, const void *data, int64_t i)
{
    double x = ts_dtype_get(type, data, i);

    if (type == TS_F16 || type == TS_BF16)
        ts_text_printf(t, "0x%04x", ((const uint16_t *)data)[i]);
    else if (type == TS_I64)
        ts_text_printf(t, "%" PRId64, ((const int64_t *)data)[i]);
    else if (!ts_dtype_is_float(type))
        ts_text_printf(t, "%ld", (long)x);
    else if (isnan(x))
        ts_text_printf(t, "__builtin_nan(\"\")");
    else if (isinf(x))
        ts_text_printf(t, "%s__builtin_inf()", x < 0 ? "-" : "");
    else
        ts_text_printf(t, type == TS_F32 ? "%af" : "%a", x);
}

static void constants(ts_render *r, ts_text *out)
{
    const ts_graph *g = r->p->g;

    for (int i = 0; i < g->nnodes; i++) {
        const ts_value *v = g->nodes[i]->nout ? g->nodes[i]->out[0] : NULL;
        int64_t count;
        if (!v || r->p->place[v->id].home != TS_HOME_CONST)
            continue;
        count = ts_type_count(&v->type);
        ts_text_printf(out, "\nstatic const %s const%d[%ld] = {",
                       ts_emit_memory_type(v->type.dtype), v->id, (long)count);
        for (int64_t j = 0; j < count; j++) {
            ts_text_printf(out, j % 8 ? ", " : j ? ",\n    " : "\n    ");
            element(out, v->type.dtype, v->node->data, j);
        }
        ts_text_printf(out, "\n};\n");
    }
}

/* One line of the table: what the engine needs to know of kernel i. */
static void table_row(ts_render *r, int i, const ts_cut *cut, const ts_written *written)
{
    const ts_kernel *k = r->p->kernels[i];
    const ts_node *n = subject(k);
    int first = k->again ? k->again->index : i;
    const ts_written *w = &written[first];

    ts_text_printf(
        &r->body, "    {%s, \"%s%s%s%s%s\", %ld, %ld, %d, %d, %s},\n", w->run,
        n && n->layer ? ts_c_text(r->a, n->layer) : "", n && n->layer && n->layer[0] ? " " : "",
        deed(k), n && n->backward ? " backward" : "", k->again ? " again" : "", (long)cut->count,
        (long)cut->grain, k->phase, k->wait, w->told ? ts_arena_printf(r->a, "p%d", first) : "0");
}

/* A tensor between the block and the host's memory, in pieces of a page. */
static void move(ts_render *r, const ts_kernel *k, ts_cut *cut)
{
    enum { PAGE = 4096 };
    const ts_value *v = k->load ? k->load : k->store;
    const ts_spot *s = ts_place_spot(r->p, v, k->device);
    size_t bytes = s->bytes;
    const char *there = s->remote_depth == 1
                            ? ts_arena_printf(r->a, "%zu", s->remote_at)
                            : ts_arena_printf(r->a, "%zu + c->mb %% %d * %zu", s->remote_at,
                                              s->remote_depth, ts_ring_stride(bytes));

    ts_text_printf(&r->body, "/* %s %s */\n" TS_KERNEL "{\n", deed(k),
                   v->name ? ts_c_text(r->a, v->name) : "an activation",
                   ts_render_kernel(r, k->index));
    ts_text_printf(&r->body, "    char *const here = c->m + %s, *const there = c->remote + %s;\n",
                   address(r, v, k->device), there);
    ts_text_printf(&r->body, "    size_t at = (size_t)lo * %d, end = (size_t)hi * %d;\n\n", PAGE,
                   PAGE);
    ts_text_printf(&r->body, "    end = end < %zu ? end : %zu;\n", bytes, bytes);
    ts_text_printf(&r->body, "    memcpy(%s + at, %s + at, end - at);\n}\n",
                   k->load ? "here" : "there", k->load ? "there" : "here");
    *cut = (ts_cut){.count = (int64_t)((bytes + PAGE - 1) / PAGE),
                    .dim = -1,
                    .cycles = (double)bytes / r->m.memory};
    cut->grain = ts_machine_grain(&r->m, cut->count, cut->cycles);
}

/* What a check of the run needs besides the findings: whose they are, and when it was. */
static void checks(ts_render *r, const char *text)
{
    ts_text_printf(&r->body, ", \"");
    ts_text_c(&r->body, text, strlen(text));
    ts_text_printf(&r->body, "\", &c->step");
}

/* A host_call: addresses of what it takes and of what it gives. */
static bool host_call(ts_render *r, const ts_kernel *k)
{
    const ts_node *n = k->anchor;
    bool tap;

    if (!n || !(n->op->flags & TS_HOST))
        return false;
    tap = !ts_attr_find(n, "types");
    ts_text_printf(&r->body, "    const void *const in[] = {");
    for (int i = 0; i < n->nin; i++)
        ts_text_printf(&r->body, "%s%s", i ? ", " : "", ts_render_pointer(r, n->in[i]));
    if (ts_attr_find(n, "checks"))
        checks(r, ts_attr_str(n, "checks", ""));
    ts_text_printf(&r->body, "};\n    void *const out[] = {");
    for (int i = 0; i < n->nout; i++)
        ts_text_printf(&r->body, "%s%s", i ? ", " : "", ts_render_pointer(r, n->out[i]));
    ts_text_printf(&r->body, "};\n\n    (void)lo, (void)hi;\n");
    if (tap)
        ts_text_printf(&r->body, "    memcpy(out[0], in[0], %zu);\n",
                       ts_type_bytes(&n->out[0]->type));
    ts_text_printf(&r->body, "    c->host(c->engine, %ld, in, %s);\n",
                   (long)ts_attr_int(n, "id", 0), tap ? "0" : "out");
    return true;
}

/* Where each kernel's text is, for those who show it. */
static void find_texts(ts_render *r, const ts_written *written, const ts_cut *cuts)
{
    r->texts = TS_NEWS(r->a, ts_kernel_text, r->p->nkernels);
    for (int i = 0; i < r->p->nkernels; i++) {
        const ts_kernel *k = r->p->kernels[i];
        int of = k->again ? k->again->index : i;
        r->texts[i] = (ts_kernel_text){.name = ts_render_kernel(r, of),
                                       .pieces = TS_MAX(1, cuts[i].count / cuts[i].grain),
                                       .cycles = cuts[i].cycles,
                                       .at = written[of].start,
                                       .len = written[of].end - written[of].start};
    }
}

static ts_status kernels(ts_render *r)
{
    int n = r->p->nkernels;
    ts_written *written = TS_NEWS(r->a, ts_written, n);
    ts_cut *cuts = TS_NEWS(r->a, ts_cut, n);
    bool *alone = TS_NEWS(r->a, bool, n), light;
    ts_text places = {0};

    r->cut_dim = TS_NEWS(r->a, int, r->p->g->nvalues);
    for (int i = 0; i < r->p->g->nvalues; i++)
        r->cut_dim[i] = -1;
    for (int i = 0; i < n; i++) {
        const ts_kernel *k = r->p->kernels[i];
        r->next = 0;
        cuts[i] = (ts_cut){.count = 1, .grain = 1, .dim = -1};
        if (k->again || k->load || k->store) {
            written[i].start = written[i].code = r->body.len;
            if (k->again)
                cuts[i] = cuts[k->again->index];
            else
                move(r, k, &cuts[i]);
            written[i].end = r->body.len;
            alone[i] = cuts[i].count / cuts[i].grain < 2;
            continue;
        }
        kernel_head(r, k, &written[i]);
        if (!host_call(r, k) && !ts_render_attend(r, k, &cuts[i]) &&
            !ts_render_recur(r, k, &cuts[i]) && !ts_render_transpose(r, k, &cuts[i]) &&
            !ts_render_contract(r, k, &cuts[i])) {
            r->body.len = written[i].code;
            r->body.s[r->body.len] = 0;
            TS_TRY(ts_render_loops(r, k, &cuts[i]));
        }
        ts_text_printf(&r->body, "}\n");
        written[i].end = r->body.len;
        alone[i] = cuts[i].count / cuts[i].grain < 2;
        for (int j = 0; j < k->nroots; j++)
            r->cut_dim[k->roots[j]->id] = alone[i] ? -1 : cuts[i].dim;
    }
    ts_plan_waits(r->p, alone);
    light = ts_render_share(r, written, cuts, n, &places);
    find_texts(r, written, cuts);
    ts_panel_functions(r);
    ts_text_printf(&r->body, "\n%s", light ? TS_UNIT_LIGHT : TS_UNIT);
    for (int i = 0; i < n; i++)
        if (!r->p->kernels[i]->again && !written[i].repeats)
            ts_text_printf(&r->body, "kernel_fn %s;\n", written[i].run);
    ts_text_add(&r->body, places.s, places.len);
    ts_text_free(&places);
    ts_text_printf(&r->body, "\nstatic const kernel table[] = {\n");
    for (int i = 0; i < n; i++) {
        r->cycles += cuts[i].cycles;
        table_row(r, i, &cuts[i], written);
    }
    ts_text_printf(&r->body, "    {0},\n};\n");
    ts_text_printf(
        &r->body,
        "__attribute__((visibility(\"default\"))) const module tessera_module = {%d, %d, table};\n",
        TS_MODULE_ABI, n);
    return TS_OK;
}

ts_status ts_source_make(ts_arena *a, const ts_program *p, const ts_options *opt,
                         const ts_source **out)
{
    ts_render r = {.a = a, .p = p, .m = p->machine};
    ts_source *s = TS_NEW(a, ts_source);
    ts_text all = {0};
    ts_status status;

    status = kernels(&r);
    if (!status) {
        ts_prelude(&r, &all);
        s->prelude = all.len;
        constants(&r, &all);
        for (int i = 0; i < p->nkernels; i++)
            r.texts[i].at += all.len;
        s->kernels = r.texts;
        ts_text_add(&all, r.body.s, r.body.len);
        s->isa = r.m.isa;
        s->cycles = r.cycles;
        s->flags = ts_cc_flags(a, &r.m.isa, ts_cc_identity(a, opt));
        ts_text_printf(&all, "/* %s */\n", ts_c_text(a, ts_cc_by_hand(a, opt, s->flags)));
        s->text = ts_arena_copy(a, all.s, all.len + 1);
        s->len = all.len;
        *out = s;
    }
    ts_text_free(&r.body);
    ts_text_free(&all);
    return status;
}
