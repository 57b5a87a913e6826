/* text.c - the text of all kernels, and the table of how they are run.
 *
 *   KERNEL((256, 1), k3, READ(float, p1) WRITE(float, p0))
 *   {
 *       BIND(const float, p1)
 *       BIND(float, p0)
 *
 *       for (int32_t i = FIRST; i < 1152; i += STEP) {      a thread an element
 *           const float t0 = p1[i];
 *           p0[i] = relu_f32(t0);
 *       }
 *   }
 *
 * The body is what the ops' emit rules say in scalar mode, as for exported C. A kernel's tensors are
 * called by their place in its list, so that kernels that do the same with others are one function,
 * launched with other addresses: a deep net repeats its blocks, and compiling takes most of the time.
 */
#include "gpu/gpu.h"

enum {
    THREADS = 256,      /* of a group */
    SPREAD = 128,       /* of a group of a small kernel: more groups keep more of the GPU busy */
    MOST_GROUPS = 2112, /* more wait for others to end, and starting them takes time too */
    MOST_ARGS = 96,     /* a kernel with more tensors has their addresses in its text */
    TOGETHER = 512,     /* threads of a group that does several small kernels */
    MOST_TOGETHER = 16,
    MOST_BESIDE = 4,
    BESIDE_GROUPS = 1056, /* of each */
    LIGHT_THREADS = 64 << 10,
    LIGHT_WORK = 16, /* operations of a thread */
    LET_GROUPS = 1024,
    TINY_ROOTS = 2048,
    TINY_FLOPS = 6144,
    STAGED = 256 << 20, /* bytes of inputs and outputs that are sent at once */
    ALIGN = 256,
};

typedef struct texts {
    ts_render r;
    ts_gpu_code *code;
    const char **bodies, **bounds; /* of the functions so far */
    size_t *constants;             /* by value id: where it lies */
    int together;                  /* kernels of a launch, at most */
} texts;

/* --- where things are --- */

static size_t room(size_t bytes)
{
    return TS_ROUND_UP(bytes, ALIGN);
}

static int micro_batches(const ts_options *opt)
{
    return TS_MAX(1, opt->device_iterations) * TS_MAX(1, opt->gradient_accumulation);
}

static void place_constants(texts *t)
{
    const ts_graph *g = t->r.p->g;
    ts_text data = {0};

    t->constants = TS_NEWS(t->r.a, size_t, g->nvalues);
    for (int i = 0; i < g->nnodes; i++) {
        const ts_value *v = g->nodes[i]->nout ? g->nodes[i]->out[0] : NULL;
        static const char zeros[16];
        if (!v || t->r.p->place[v->id].home != TS_HOME_CONST)
            continue;
        t->constants[v->id] = TS_GPU_CTX + data.len;
        ts_text_add(&data, v->node->data, ts_type_bytes(&v->type));
        ts_text_add(&data, zeros, (16 - data.len % 16) % 16);
    }
    t->code->constants = TS_GPU_CTX;
    t->code->nconstants = data.len;
    t->code->constant_data = ts_arena_copy(t->r.a, data.s ? data.s : "", data.len + 1);
    ts_text_free(&data);
}

/* Constants, inputs and outputs before the block. */
static void place_all(texts *t, const ts_options *opt)
{
    const ts_graph *g = t->r.p->g;
    ts_gpu_code *c = t->code;
    size_t each = 1, at;

    place_constants(t);
    c->ninputs = g->ninputs;
    c->noutputs = g->noutputs;
    c->inputs = TS_NEWS(t->r.a, size_t, g->ninputs);
    c->outputs = TS_NEWS(t->r.a, size_t, g->noutputs);
    for (int i = 0; i < g->ninputs; i++)
        each += ts_type_bytes(&g->inputs[i]->type);
    for (int i = 0; i < g->noutputs; i++)
        each += ts_type_bytes(&g->outputs[i]->type);
    c->chunk = TS_MAX(1, (int)TS_MIN((size_t)micro_batches(opt), STAGED / each));
    at = room(c->constants + c->nconstants);
    for (int i = 0; i < g->ninputs; i++) {
        c->inputs[i] = at;
        at += room(ts_type_bytes(&g->inputs[i]->type) * (size_t)c->chunk);
    }
    for (int i = 0; i < g->noutputs; i++) {
        c->outputs[i] = at;
        at += room(ts_type_bytes(&g->outputs[i]->type) * (size_t)c->chunk);
    }
    c->base = at;
}

static ts_gpu_at where(const texts *t, const ts_value *v, int device)
{
    const ts_gpu_code *c = t->code;
    ts_gpu_at at = {.bytes = ts_layout_bytes(v)};
    const ts_spot *s;

    if (t->r.p->place[v->id].home == TS_HOME_CONST) {
        at.offset = t->constants[v->id];
        return at;
    }
    if (t->r.p->place[v->id].home == TS_HOME_INPUT) {
        at.offset = c->inputs[v->index];
        at.stride = at.bytes;
        at.how = TS_GPU_CHUNK;
        return at;
    }
    s = ts_place_spot(t->r.p, v, device);
    at.offset = c->base + s->offset;
    at.depth = s->depth;
    at.stride = s->shares ? s->bytes : ts_ring_stride(s->bytes);
    at.how = s->shares ? TS_GPU_SHARE : s->depth > 1 ? TS_GPU_RING : TS_GPU_FIXED;
    return at;
}

/* --- the head of a kernel --- */

typedef struct tensor {
    const ts_value *v;
    bool written, alone; /* shares its memory with no other of the kernel */
    ts_gpu_at at;
} tensor;

static int list_tensors(texts *t, const ts_kernel *k, tensor **out)
{
    int n = 0;

    *out = NULL;
    for (int i = 0; i < k->nroots; i++)
        TS_PUSH(t->r.a, *out, n, ((tensor){k->roots[i], true, false, {0}}));
    for (int i = 0; i < k->nreads; i++) {
        bool root = t->r.p->place[k->reads[i]->id].home == TS_HOME_NONE;
        for (int j = 0; j < k->nroots; j++)
            root = root || k->roots[j] == k->reads[i];
        if (!root)
            TS_PUSH(t->r.a, *out, n, ((tensor){k->reads[i], false, false, {0}}));
    }
    for (int i = 0; i < n; i++)
        (*out)[i].at = where(t, (*out)[i].v, k->device);
    return n;
}

static bool in_block(const texts *t, const ts_value *v)
{
    return t->r.p->place[v->id].home == TS_HOME_BLOCK;
}

/* What is read and nowhere written by the kernel: the compiler may load it when it likes. */
static void find_alone(const texts *t, tensor *x, int n, bool together)
{
    for (int i = 0; i < n; i++) {
        size_t from = x[i].at.offset, to = from + ts_layout_bytes(x[i].v);
        x[i].alone =
            !x[i].written && (!in_block(t, x[i].v) || (x[i].at.how == TS_GPU_FIXED && !together));
        for (int j = 0; j < n && x[i].alone && in_block(t, x[i].v); j++)
            x[i].alone =
                !x[j].written ||
                (x[j].at.how == TS_GPU_FIXED &&
                 (x[j].at.offset + ts_layout_bytes(x[j].v) <= from || x[j].at.offset >= to));
    }
}

/* " + c->at * 12544", in elements */
static const char *further(ts_arena *a, const ts_gpu_at *at, ts_dtype type)
{
    size_t n = at->stride / ts_dtype_size(type);

    if (at->how == TS_GPU_CHUNK)
        return ts_arena_printf(a, " + c->at * %zu", n);
    if (at->how == TS_GPU_RING)
        return ts_arena_printf(a, " + c->mb %% %d * %zu", at->depth, n);
    return at->how == TS_GPU_SHARE ? ts_arena_printf(a, " + c->replica * %zu", n) : NULL;
}

static void name_tensors(texts *t, const tensor *x, int n, int first, bool on)
{
    for (int i = 0; i < n; i++)
        t->r.names[x[i].v->id] = on ? ts_arena_printf(t->r.a, "P%d", first + i) : NULL;
}

static void write_args(texts *t, const tensor *x, int n, int first)
{
    for (int i = 0; i < n; i++)
        ts_text_printf(&t->r.body, ", %s(%s, P%d%s)",
                       x[i].written ? "WRITE"
                       : x[i].alone ? "READ"
                                    : "SHARE",
                       ts_emit_memory_type(x[i].v->type.dtype), first + i,
                       x[i].at.how == TS_GPU_FIXED ? "" : "_");
}

static void write_pointers(texts *t, const tensor *x, int n, int first, bool literal)
{
    for (int i = 0; i < n; i++) {
        int p = first + i;
        const char *type = ts_emit_memory_type(x[i].v->type.dtype),
                   *c = x[i].written ? "" : "const ",
                   *more = further(t->r.a, &x[i].at, x[i].v->type.dtype);
        if (literal)
            ts_text_printf(&t->r.body, "    LITERAL(%s%s, P%d%s, %zu)\n", c, type, p,
                           more ? "_" : "", x[i].at.offset);
        else
            ts_text_printf(&t->r.body, "    BIND(%s%s, P%d%s)\n", c, type, p, more ? "_" : "");
        if (more)
            ts_text_printf(&t->r.body, "    GLOBAL %s%s *const P%d = P%d_%s;\n", c, type, p, p,
                           more);
    }
    ts_text_printf(&t->r.body, "\n");
}

/* --- bodies --- */

/* Do all the kernel's numbers of elements fit 31 bits, with room to step over the end? */
static bool is_small(const ts_kernel *k)
{
    int64_t most = 1 << 30;

    for (int i = 0; i < k->nroots; i++)
        if (ts_type_count(&k->roots[i]->type) >= most)
            return false;
    for (int i = 0; i < k->nreads; i++)
        if (ts_type_count(&k->reads[i]->type) >= most)
            return false;
    for (int i = 0; k->anchor && i < k->anchor->nin; i++)
        if (ts_type_count(&k->anchor->in[i]->type) >= most)
            return false;
    return true;
}

/* A row that has its threads already is one of several done together. */
static void set_grid(ts_gpu_row *row, int64_t count)
{
    if (row->threads)
        return;
    row->threads = count > 65536 ? THREADS : SPREAD;
    row->groups = TS_MAX(1, TS_MIN((count + row->threads - 1) / row->threads, MOST_GROUPS));
}

/* Coordinates of element `rest`, counted as v lies in memory: threads side by side store side by
 * side. */
void ts_gpu_unflatten(ts_arena *a, const ts_value *v, int skip, const ts_ix *rest, const ts_ix **at)
{
    const ts_type *t = &v->type;

    for (int k = t->rank - 1; k >= 0; k--) {
        int d = v->layout.set ? v->layout.order[k] : k;
        at[d] = d == skip ? ts_ix_const(a, 0) : ts_ix_mod(a, rest, t->dim[d]);
        rest = d == skip ? rest : ts_ix_div(a, rest, t->dim[d]);
    }
}

/* A thread an element; or a row, where the op makes whole rows. */
static void loop(ts_gpu_writer *w)
{
    const ts_type *t = &w->k->roots[0]->type;
    int row = ts_render_row_dim(w->k), mark;
    int64_t count = ts_type_count(t) / (row >= 0 ? TS_MAX(1, t->dim[row]) : 1);
    const ts_ix *at[TS_MAX_RANK];
    const char *var = row >= 0 ? "row" : "i";
    const ts_ix *i = ts_ix_var(w->r->a, ts_atom_var(w->r->a, var, 0, TS_MAX(0, count - 1)));

    if (count > (int64_t)MOST_GROUPS * THREADS)
        ts_emit_line(w->e, "UNROLL(4)");
    ts_emit_line(w->e, "for (%s %s = FIRST; %s < %ld; %s += STEP) {", w->e->index, var, var,
                 (long)count, var);
    ts_emit_open(w->e, &mark);
    ts_gpu_unflatten(w->r->a, w->k->roots[0], row, i, at);
    ts_render_body(w->e, w->k, at);
    ts_emit_close(w->e, mark);
    set_grid(w->row, count);
}

static ts_status write_body(texts *t, const ts_kernel *k, ts_gpu_row *row, ts_text *shared)
{
    ts_emit e;
    ts_gpu_writer w = {&t->r, &e, k, row, shared};

    if (k->nroots > TS_MAX_ROOTS)
        return ts_fail(TS_ERR_INTERNAL, "a kernel with %d roots", k->nroots);
    ts_render_emitter(&t->r, &e);
    e.gpu = true;
    e.index = is_small(k) ? "int32_t" : "int64_t";
    if (!ts_gpu_tile(&w) && !ts_gpu_sum(&w))
        loop(&w);
    return TS_OK;
}

/* An array of n elements that a group shares. OpenCL has them at the top of the kernel only; bodies
 * that come one after the other use the same one. */
const char *ts_gpu_shared(ts_gpu_writer *w, const char *type, int n)
{
    const char *name = ts_arena_printf(w->r->a, "shared_%s_%d", type, n),
               *line = ts_arena_printf(w->r->a, "    SHARED %s %s[%d];\n", type, name, n);

    if (!w->shared->s || !strstr(w->shared->s, line))
        ts_text_printf(w->shared, "%s", line);
    return name;
}

/* One that may be larger than the text can say: the row does, and there is one of them. */
const char *ts_gpu_much_shared(ts_gpu_writer *w, int floats)
{
    w->row->shared = TS_MAX(w->row->shared, (int)sizeof(float) * floats);
    return "shared";
}

static void insert(ts_text *t, size_t at, const ts_text *what)
{
    size_t tail = t->len - at;

    if (!what->len)
        return;
    ts_text_add(t, what->s, what->len); /* makes room */
    memmove(t->s + at + what->len, t->s + at, tail);
    memcpy(t->s + at, what->s, what->len);
}

/* --- functions --- */

/* The function whose text is what the body has from `start` on; the text goes if it is there
 * already. The comment before it goes with it. */
static int function(texts *t, const ts_gpu_row *row, size_t comment, size_t start)
{
    ts_gpu_code *c = t->code;
    const char *text = ts_arena_strdup(t->r.a, t->r.body.s + start), *all, *head,
               *bounds =
                   ts_arena_printf(t->r.a, "(%d, %d)", row->threads, TS_MAX(1, row->resident));

    for (int i = 0; i < c->nfunctions; i++)
        if (!strcmp(t->bodies[i], text) && !strcmp(t->bounds[i], bounds)) {
            t->r.body.len = comment;
            t->r.body.s[comment] = 0;
            return i;
        }
    head = ts_arena_strdup(t->r.a, t->r.body.s + comment);
    all = ts_arena_printf(t->r.a, "%.*sKERNEL%s(%s, k%d%s", (int)(start - comment), head,
                          text[0] == ')' ? "0" : "", bounds, c->nfunctions, text);
    t->r.body.len = comment;
    ts_text_add(&t->r.body, all, strlen(all));
    t->bodies = ts_arena_grow(t->r.a, t->bodies, c->nfunctions, sizeof(*t->bodies));
    t->bounds = ts_arena_grow(t->r.a, t->bounds, c->nfunctions, sizeof(*t->bounds));
    t->bodies[c->nfunctions] = text;
    t->bounds[c->nfunctions] = bounds;
    return c->nfunctions++;
}

static const char *row_name(ts_arena *a, const ts_kernel *k)
{
    const ts_node *n = k->anchor                        ? k->anchor
                       : k->copy || k->load || k->store ? NULL
                                                        : k->roots[0]->node;
    const char *what = n ? n->op->name : k->load ? "load" : k->store ? "store" : "copy";

    return ts_arena_printf(a, "%s%s%s%s%s", n && n->layer ? n->layer : "",
                           n && n->layer && n->layer[0] ? " " : "", what,
                           n && n->backward ? " backward" : "", k->again ? " again" : "");
}

static void take_args(texts *t, ts_gpu_row *row, const tensor *x, int n)
{
    for (int i = 0; i < n; i++)
        TS_PUSH(t->r.a, row->args, row->nargs, x[i].at);
}

/* The body of a kernel, and a comment of what it is; its tensors are p<first>, ... */
static ts_status write_one(texts *t, const ts_kernel *k, const tensor *x, int n, int first,
                           ts_gpu_row *row, ts_text *shared)
{
    ts_status s;

    name_tensors(t, x, n, first, true);
    s = write_body(t, k, row, shared);
    name_tensors(t, x, n, 0, false);
    return s;
}

/* Kernels that become one function. */
typedef struct bundle {
    int first, count;
    bool beside;      /* each has groups of its own; else one group does one after the other */
    ts_gpu_row *each; /* what each would be by itself, if beside */
    tensor **x;
    int *n;
} bundle;

/* Is starting it most of the work? Then it may be on the processors before the one before has ended;
 * groups with much to do would come to lie unevenly, where there happened to be room. */
static bool is_light(const texts *t, const bundle *b, const ts_gpu_row *row)
{
    int64_t threads = row->groups * row->threads;
    double work = 0;

    for (int i = 0; i < b->count; i++)
        work += t->r.p->kernels[b->first + i]->flops;
    return row->groups == 1 || (threads <= LIGHT_THREADS && work <= LIGHT_WORK * (double)threads);
}

/* What it says to its neighbours; many groups would all have to. */
static const char *begin(const ts_gpu_row *row)
{
    if (row->early)
        return "    LET_NEXT\n    WAIT_LAST\n";
    return row->groups <= LET_GROUPS ? "    LET_NEXT\n" : "";
}

/* The lists of tensors, and a comment that says what is computed. Returns whether they are too many
 * to be arguments. */
static bool list_bundle(texts *t, bundle *b)
{
    int all = 0;

    b->x = TS_NEWS(t->r.a, tensor *, b->count);
    b->n = TS_NEWS(t->r.a, int, b->count);
    ts_text_printf(&t->r.body, "\n/*\n");
    for (int i = 0; i < b->count; i++) {
        const ts_kernel *k = t->r.p->kernels[b->first + i];
        b->n[i] = list_tensors(t, k, &b->x[i]);
        find_alone(t, b->x[i], b->n[i], b->count > 1 && !b->beside);
        all += b->n[i];
        ts_render_describe(&t->r, k);
    }
    ts_text_printf(&t->r.body, " */\n");
    return all > MOST_ARGS;
}

static double work_of_group(const texts *t, const bundle *b, int i)
{
    return t->r.p->kernels[b->first + i]->flops / (double)TS_MAX(1, b->each[i].groups);
}

/* Groups start in their order: those with the most to do come first, and the others fill what is left. */
static int64_t first_group(const texts *t, const bundle *b, int i)
{
    double own = work_of_group(t, b, i);
    int64_t first = 0;

    for (int k = 0; k < b->count; k++) {
        double other = work_of_group(t, b, k);
        if (other > own || (other == own && k < i))
            first += b->each[k].groups;
    }
    return first;
}

/* What comes before body i: a barrier, or the choice of groups. */
static void write_between(texts *t, const bundle *b, int i)
{
    int64_t first;

    if (!b->beside) {
        ts_text_printf(&t->r.body, i ? "    }\n    BARRIER();\n    {\n" : "    {\n");
        return;
    }
    first = first_group(t, b, i);
    ts_text_printf(&t->r.body, "    %sif (group >= %ld && group < %ld) {\n", i ? "} else " : "",
                   (long)first, (long)(first + b->each[i].groups));
    ts_text_printf(&t->r.body, "    const int64_t all_groups = group;\n    {\n");
    ts_text_printf(&t->r.body, "    const int64_t group = all_groups - %ld, groups = %ld;\n",
                   (long)first, (long)b->each[i].groups);
}

static ts_status write_bodies(texts *t, bundle *b, ts_gpu_row *row, ts_text *shared, bool literal)
{
    ts_status s = TS_OK;

    row->threads = b->count > 1 ? TOGETHER : 0;
    for (int i = 0, at = 0; i < b->count && !s; at += b->n[i++]) {
        ts_gpu_row own = {0};
        if (b->count > 1)
            write_between(t, b, i);
        write_pointers(t, b->x[i], b->n[i], at, literal);
        s = write_one(t, t->r.p->kernels[b->first + i], b->x[i], b->n[i], at,
                      b->beside ? &own : row, shared);
        if (b->beside)
            ts_text_printf(&t->r.body, "    }\n");
    }
    ts_text_printf(&t->r.body, b->count > 1 ? "    }\n}\n" : "}\n");
    if (b->count > 1)
        row->groups = 1;
    if (!b->beside)
        return s;
    row->groups = 0;
    row->threads = b->each[0].threads;
    for (int i = 0; i < b->count; i++) {
        row->groups += b->each[i].groups;
        row->shared = TS_MAX(row->shared, b->each[i].shared);
        if (b->each[i].resident && (!row->resident || b->each[i].resident < row->resident))
            row->resident = b->each[i].resident; /* more of them would have too few registers */
    }
    return s;
}

/* What is only read may be loaded whenever the compiler likes, but not before a kernel that came
 * early has waited. */
static void read_late(texts *t, size_t start, size_t top)
{
    char *end = t->r.body.s + top;

    for (char *p = t->r.body.s + start; (p = strstr(p, "READ(")) && p < end; p++)
        memcpy(p, "LATE", 4);
}

static ts_status launch(texts *t, bundle *b)
{
    ts_gpu_row *row = &t->code->rows[b->first];
    size_t comment = t->r.body.len, start, top;
    ts_text shared = {0};
    ts_status s;
    bool literal = list_bundle(t, b);

    t->r.next = 0;
    start = t->r.body.len;
    for (int i = 0, at = 0; i < b->count && !literal; at += b->n[i++]) {
        write_args(t, b->x[i], b->n[i], at);
        take_args(t, row, b->x[i], b->n[i]);
    }
    ts_text_printf(&t->r.body, ")\n{\n    CONTEXT\n");
    top = t->r.body.len;
    s = write_bodies(t, b, row, &shared, literal);
    row->early = is_light(t, b, row);
    if (row->early)
        read_late(t, start, top);
    if (row->shared)
        ts_text_printf(&shared, "    SHARED_MUCH(float, shared, %d)\n",
                       row->shared / (int)sizeof(float));
    ts_text_printf(&shared, "%s", begin(row));
    insert(&t->r.body, top, &shared);
    ts_text_free(&shared);
    row->function = function(t, row, comment, start);
    return s;
}

static void call_host(texts *t, const ts_kernel *k, ts_gpu_row *row)
{
    const ts_node *n = k->anchor;

    row->kind = TS_GPU_HOST;
    row->id = (int)ts_attr_int(n, "id", 0);
    row->checks = ts_attr_find(n, "checks") ? ts_attr_str(n, "checks", "") : NULL;
    row->tap = !ts_attr_find(n, "types");
    row->bytes = row->tap ? ts_type_bytes(&n->out[0]->type) : 0;
    row->nin = n->nin;
    row->nargs = n->nin + n->nout;
    row->args = TS_NEWS(t->r.a, ts_gpu_at, row->nargs);
    for (int i = 0; i < n->nin; i++)
        row->args[i] = where(t, n->in[i], k->device);
    for (int i = 0; i < n->nout; i++)
        row->args[n->nin + i] = where(t, n->out[i], k->device);
}

static void move(texts *t, const ts_kernel *k, ts_gpu_row *row)
{
    const ts_value *v = k->load ? k->load : k->store;
    const ts_spot *s = ts_place_spot(t->r.p, v, k->device);

    row->kind = k->load ? TS_GPU_LOAD : TS_GPU_STORE;
    row->bytes = s->bytes;
    row->nargs = 1;
    row->args = TS_NEWS(t->r.a, ts_gpu_at, 1);
    row->args[0] = where(t, v, k->device);
    row->there = (ts_gpu_at){.offset = s->remote_at,
                             .stride = ts_ring_stride(s->bytes),
                             .how = s->remote_depth > 1 ? TS_GPU_RING : TS_GPU_FIXED,
                             .depth = s->remote_depth,
                             .bytes = s->bytes};
}

static bool is_launch(const ts_kernel *k)
{
    return !k->again && !k->load && !k->store && !(k->anchor && k->anchor->op->flags & TS_HOST);
}

/* So little that one group does it in about the time that it takes to start another kernel. */
static bool is_tiny(const ts_kernel *k)
{
    return is_launch(k) && ts_render_row_dim(k) < 0 &&
           ts_type_count(&k->roots[0]->type) <= TINY_ROOTS && k->flops <= TINY_FLOPS;
}

/* PoCL takes time that grows with the square of a kernel's barriers to compile it, and starts one in
 * no time. */
static int most_together(const ts_options *opt)
{
    const char *given = getenv("TESSERA_GPU_TOGETHER");

    if (given)
        return TS_MAX(1, atoi(given));
    return opt->device_kind == TS_DEVICE_OPENCL ? 1 : MOST_TOGETHER;
}

/* How many kernels from the first on are one launch. */
static int count_together(const ts_program *p, int first, int most)
{
    int n = 1;

    while (n < most && first + n < p->nkernels && is_tiny(p->kernels[first]) &&
           is_tiny(p->kernels[first + n]) &&
           p->kernels[first + n]->section == p->kernels[first]->section)
        n++;
    return n;
}

/* Was one of them, or is one, listed again by itself? Then they stay apart. */
static bool runs_again(const ts_program *p, int first, int count)
{
    for (int i = 0; i < p->nkernels; i++)
        for (int k = first; k < first + count; k++)
            if (p->kernels[i]->again == p->kernels[k])
                return true;
    return false;
}

/* --- side by side --- */

/* Memory of the block that a kernel touches, or all of it where that depends on the micro-batch. */
static void reach(const texts *t, const tensor *x, size_t *from, size_t *to)
{
    *from = x->at.offset;
    *to = x->at.offset + x->at.bytes;
    if (in_block(t, x->v) && x->at.how != TS_GPU_FIXED) {
        *from = 0;
        *to = SIZE_MAX;
    }
}

/* Does either of two kernels write what the other one touches? */
static bool collide(texts *t, const ts_kernel *a, const ts_kernel *b)
{
    tensor *x, *y;
    int n = list_tensors(t, a, &x), m = list_tensors(t, b, &y);

    for (int i = 0; i < n; i++)
        for (int k = 0; k < m; k++) {
            size_t from[2], to[2];
            if (!x[i].written && !y[k].written)
                continue;
            reach(t, &x[i], &from[0], &to[0]);
            reach(t, &y[k], &from[1], &to[1]);
            if (from[0] < to[1] && from[1] < to[0])
                return true;
        }
    return false;
}

/* What kernel i would be by itself: its text is written and dropped. */
static ts_status measure(texts *t, int i, ts_gpu_row *row)
{
    size_t len = t->r.body.len;
    ts_text shared = {0};
    const ts_kernel *k = t->r.p->kernels[i];
    tensor *x;
    int n = list_tensors(t, k, &x);
    ts_status s;

    *row = (ts_gpu_row){0};
    s = write_one(t, k, x, n, 0, row, &shared);
    ts_text_free(&shared);
    t->r.body.len = len;
    t->r.body.s[len] = 0;
    return s;
}

/* Kernels from b->first on that have nothing to do with each other, of groups of the same size: one
 * launch, in which all of them have their groups. */
static ts_status find_beside(texts *t, bundle *b)
{
    const ts_program *p = t->r.p;
    ts_gpu_row *each = TS_NEWS(t->r.a, ts_gpu_row, MOST_BESIDE);
    int n = 1, args = p->kernels[b->first]->nreads + p->kernels[b->first]->nroots;

    if (t->together == 1)
        return TS_OK;
    TS_TRY(measure(t, b->first, &each[0]));
    while (n < MOST_BESIDE && each[0].groups <= BESIDE_GROUPS && b->first + n < p->nkernels) {
        const ts_kernel *k = p->kernels[b->first + n];
        bool fits = is_launch(k) && !is_tiny(k) && k->section == p->kernels[b->first]->section &&
                    ts_render_row_dim(k) < 0;
        args += k->nreads + k->nroots;
        for (int i = 0; i < n && fits; i++)
            fits = !collide(t, p->kernels[b->first + i], k);
        if (!fits || args > MOST_ARGS)
            break;
        TS_TRY(measure(t, b->first + n, &each[n]));
        if (each[n].threads != each[0].threads || each[n].groups > BESIDE_GROUPS)
            break;
        n++;
    }
    if (n > 1 && !runs_again(p, b->first, n)) {
        b->count = n;
        b->beside = true;
        b->each = each;
    }
    return TS_OK;
}

static void label(texts *t, int i)
{
    const ts_kernel *k = t->r.p->kernels[i];

    t->code->rows[i].phase = k->phase;
    t->code->rows[i].name = row_name(t->r.a, k);
}

/* From kernel i on; returns how many it did. */
static ts_status write_kernel(texts *t, int i, int *done)
{
    const ts_kernel *k = t->r.p->kernels[i];
    ts_gpu_row *row = &t->code->rows[i];

    *done = 1;
    if (k->again)
        *row = t->code->rows[k->again->index];
    else if (k->anchor && k->anchor->op->flags & TS_HOST)
        call_host(t, k, row);
    else if (k->load || k->store)
        move(t, k, row);
    else {
        bundle b = {.first = i, .count = count_together(t->r.p, i, t->together)};
        if (b.count > 1 && runs_again(t->r.p, i, b.count))
            b.count = 1;
        if (b.count == 1)
            TS_TRY(find_beside(t, &b));
        TS_TRY(launch(t, &b));
        *done = b.count;
    }
    for (int n = 0; n < *done; n++) {
        label(t, i + n);
        if (n)
            t->code->rows[i + n].kind = TS_GPU_DONE;
    }
    return TS_OK;
}

/* --- between micro-batches --- */

/* Outputs to where the host fetches them from, and the step of the next micro-batch. Both at once
 * are done by one group: nobody may still look at what the tick changes. */
static void write_end(texts *t, bool outputs, bool tick, const char *name, ts_gpu_row *row)
{
    const ts_graph *g = t->r.p->g;
    int64_t most = 1;

    for (int i = 0; i < g->noutputs && outputs; i++)
        most = TS_MAX(most, ts_type_count(&g->outputs[i]->type));
    *row = (ts_gpu_row){.name = name, .function = t->code->nfunctions++};
    set_grid(row, most);
    if (tick) {
        row->groups = 1;
        row->threads = outputs ? 512 : 32;
    }
    row->early = row->groups == 1;
    ts_text_printf(&t->r.body, "\nKERNEL0((%d, 1), k%d)\n{\n    CONTEXT\n%s", row->threads,
                   row->function, begin(row));
    for (int i = 0; i < g->noutputs && outputs; i++) {
        const ts_value *v = g->outputs[i];
        const char *type = ts_emit_memory_type(v->type.dtype);
        int64_t n = ts_type_count(&v->type);
        ts_gpu_at at = where(t, v, -1);
        ts_text_printf(&t->r.body, "    LITERAL(const %s, v%d, %zu)\n    LITERAL(%s, o%d, %zu)\n",
                       type, i, at.offset, type, i, t->code->outputs[i]);
        ts_text_printf(&t->r.body,
                       "    for (int64_t i = FIRST; i < %ld; i += STEP)\n"
                       "        o%d[c->at * %ld + i] = v%d[i];\n",
                       (long)n, i, (long)n, i);
    }
    if (tick)
        ts_text_printf(&t->r.body, "    BARRIER();\n    if (FIRST == 0)\n        TICK();\n");
    ts_text_printf(&t->r.body, "}\n");
}

/* --- all --- */

static ts_status write_all(texts *t)
{
    for (int i = 0, done; i < t->code->nrows; i += done)
        TS_TRY(write_kernel(t, i, &done));
    write_end(t, true, false, "outputs", &t->code->give);
    write_end(t, false, true, "next", &t->code->tick);
    write_end(t, true, true, "outputs and next", &t->code->both);
    return TS_OK;
}

ts_status ts_gpu_text(ts_arena *a, const ts_program *p, const ts_options *opt, ts_gpu_code *out)
{
    texts t = {.r = {.a = a, .p = p, .prefix = ""}, .code = out, .together = most_together(opt)};
    ts_text all = {0};
    ts_status s;

    *out = (ts_gpu_code){.nrows = p->nkernels, .rows = TS_NEWS(a, ts_gpu_row, p->nkernels)};
    t.r.names = TS_NEWS(a, const char *, p->g->nvalues);
    place_all(&t, opt);
    s = write_all(&t);
    if (!s) {
        ts_gpu_prelude(&t.r, t.r.body.s, &all);
        ts_text_add(&all, t.r.body.s, t.r.body.len);
        out->text = ts_arena_strdup(a, all.s);
    }
    ts_text_free(&t.r.body);
    ts_text_free(&all);
    return s;
}
