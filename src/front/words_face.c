/* words_face.c - calls without PyTorch beside them, from C and from text: arguments by name, and
 * the type and shape that PyTorch would have answered.
 *
 *   "x min_val:f=-1 / eps:f?"    is read into ts_param, one each
 *   ts_call_bind                 puts arguments in their places, checks their kinds, fills in what
 * was left out, and finds the answer ts_shape_*                   the shape of the answer, for the
 * rules that ask for it
 */
#include "front/words.h"

/* --- parameters ------------------------------------------------------------------------------- */

/* One word of a row's arguments: "x", "bias?", "stride:e=1", "min:f?" */
static ts_param param_of(const char *s, size_t n, bool c)
{
    ts_param p = {.c = c};
    size_t name = strcspn(s, ":?= ");

    name = TS_MIN(TS_MIN(name, n), sizeof(p.name) - 1);
    memcpy(p.name, s, name);
    p.kind = 'x';
    if (name < n && s[name] == ':') {
        p.kind = s[name + 1];
        p.count = s[name + 2] >= '1' && s[name + 2] <= '9' ? s[name + 2] - '0' : 0;
    }
    p.optional = name < n && memchr(s + name, '?', n - name);
    if (name < n && memchr(s + name, '=', n - name)) {
        const char *eq = memchr(s + name, '=', n - name);

        p.given = true;
        memcpy(p.otherwise, eq + 1, TS_MIN(n - (size_t)(eq + 1 - s), sizeof(p.otherwise) - 1));
    }
    return p;
}

int ts_word_params(const ts_word_row *r, ts_param *out)
{
    const char *s = r->arguments ? r->arguments : "";
    bool c = true;
    int n = 0;

    while (*(s += strspn(s, " ")) && strncmp(s, "->", 2)) {
        size_t len = strcspn(s, " ");

        if (len == 1 && *s == '/')
            c = false;
        else if (n < TS_WORD_PARAMS)
            out[n++] = param_of(s, len, c);
        s += len;
    }
    return n;
}

int ts_call_find(const ts_call *c, const char *name)
{
    for (int i = 0; i < c->nparams; i++)
        if (!strcmp(c->params[i].name, name))
            return i;
    return -1;
}

/* --- binding ---------------------------------------------------------------------------------- */

static const char *kind_name(char kind)
{
    switch (kind) {
    case 'n':
        return "a tensor or a number";
    case 'f':
        return "a number";
    case 'i':
        return "an integer";
    case 'b':
        return "yes or no";
    case 's':
        return "text";
    case 'd':
        return "a dtype's name";
    case 'r':
        return "mean, sum or none";
    case 'l':
    case 'e':
        return "integers";
    case 'm':
        return "numbers";
    case 't':
        return "a list of tensors";
    default:
        return "a tensor";
    }
}

static bool is_dtype(const char *name)
{
    ts_dtype t;

    return name && !ts_dtype_parse(name, strlen(name), &t);
}

static bool is_reduction(const ts_arg *a)
{
    return a->kind == TS_ARG_INT ||
           (a->kind == TS_ARG_TEXT &&
            (!strcmp(a->as.s, "mean") || !strcmp(a->as.s, "sum") || !strcmp(a->as.s, "none")));
}

static bool fits(const ts_param *p, const ts_arg *a)
{
    bool whole = a->kind == TS_ARG_INT, number = whole || a->kind == TS_ARG_NUMBER;
    bool list = a->kind == TS_ARG_INTS || whole;

    switch (p->kind) {
    case 'n':
        return number || a->kind == TS_ARG_TENSOR;
    case 'f':
        return number;
    case 'i':
    case 'b':
        return whole;
    case 's':
        return a->kind == TS_ARG_TEXT;
    case 'd':
        return a->kind == TS_ARG_TEXT && is_dtype(a->as.s);
    case 'r':
        return is_reduction(a);
    case 'l': /* one for all, or one for each */
        return list && (!p->count || whole || a->n == 1 || a->n == p->count);
    case 'e':
        return list;
    case 'm':
        return a->kind == TS_ARG_NUMBERS || a->kind == TS_ARG_INTS;
    case 't':
        return a->kind == TS_ARG_TENSORS;
    default:
        return a->kind == TS_ARG_TENSOR;
    }
}

/* "0,1" as a list */
static ts_arg list_arg(ts_call *c, const char *text)
{
    int64_t *items = TS_NEWS(c->g->arena, int64_t, TS_MAX_RANK);
    ts_arg a = {.kind = TS_ARG_INTS, .as.ints = items};
    char *end = NULL;

    for (; *text && a.n < TS_MAX_RANK; text = end + (*end == ','))
        items[a.n++] = strtoll(text, &end, 10);
    return a;
}

static ts_arg otherwise_of(ts_call *c, const ts_param *p)
{
    if (!p->given)
        return ts_arg_none(NULL);
    if (strchr("sdr", p->kind))
        return ts_arg_text(NULL, p->otherwise);
    if (strchr("le", p->kind))
        return list_arg(c, p->otherwise);
    if (strchr("fn", p->kind))
        return ts_arg_number(NULL, strtod(p->otherwise, NULL));
    return ts_arg_int(NULL, strtoll(p->otherwise, NULL, 10));
}

static ts_status no_argument(const ts_call *c, const char *name)
{
    const char *names[TS_WORD_PARAMS];
    const char *near;

    for (int i = 0; i < c->nparams; i++)
        names[i] = c->params[i].name;
    ts_fail(TS_ERR_ARG, "%s has no argument '%s'", c->row->name, name);
    near = ts_nearest(name, names, c->nparams);
    if (near)
        ts_error_hint("did you mean '%s'? its arguments are: %s", near, c->row->arguments);
    else
        ts_error_hint("its arguments are: %s", c->row->arguments);
    return TS_ERR_ARG;
}

/* One number where there should be several stands for all of them. */
static ts_arg repeated(ts_call *c, const ts_param *p, const ts_arg *a)
{
    bool whole = a->kind == TS_ARG_INT;
    int64_t *items;

    if (p->kind != 'l' || p->count < 2 || (!whole && a->n != 1))
        return *a;
    items = TS_NEWS(c->g->arena, int64_t, p->count);
    for (int i = 0; i < p->count; i++)
        items[i] = whole ? a->as.i : a->as.ints[0];
    return (ts_arg){.name = a->name, .kind = TS_ARG_INTS, .n = p->count, .as.ints = items};
}

static ts_status misfit(const ts_call *c, const ts_param *p)
{
    const char *what = kind_name(p->kind);

    if (p->kind == 'l' && p->count > 1)
        return ts_fail(TS_ERR_ARG, "%s: '%s' must be %d %s, or one for all", c->row->name, p->name,
                       p->count, what);
    return ts_fail(TS_ERR_ARG, "%s: '%s' must be %s", c->row->name, p->name, what);
}

static ts_status place(ts_call *c, const ts_arg *a, int next)
{
    int i = a->name ? ts_call_find(c, a->name) : next;

    if (a->name && i < 0)
        return no_argument(c, a->name);
    if (a->kind == TS_ARG_NONE)
        return TS_OK;
    if (i >= c->nparams)
        return ts_fail(TS_ERR_ARG, "%s takes %d arguments", c->row->name, c->nparams);
    if (c->bound[i].kind != TS_ARG_NONE)
        return ts_fail(TS_ERR_ARG, "%s: '%s' is given twice", c->row->name, c->params[i].name);
    if (!fits(&c->params[i], a))
        return misfit(c, &c->params[i]);
    c->bound[i] = repeated(c, &c->params[i], a);
    return TS_OK;
}

/* What was left out: its default, or an error if it has none. */
static ts_status complete(ts_call *c)
{
    for (int i = 0; i < c->nparams; i++) {
        const ts_param *p = &c->params[i];

        if (c->bound[i].kind == TS_ARG_NONE)
            c->bound[i] = otherwise_of(c, p);
        if (c->bound[i].kind == TS_ARG_NONE && !p->optional)
            return ts_fail(TS_ERR_ARG, "%s needs '%s', %s", c->row->name, p->name,
                           kind_name(p->kind));
    }
    return TS_OK;
}

/* Is a dim one of the result, which has one more? */
static bool makes_dim(const ts_word_row *r)
{
    return r->make == ts_word_stack || r->shape == ts_shape_unsqueeze ||
           r->make == ts_word_diag_embed;
}

/* Dims must be there: rules count on it. */
static ts_status check_dims(ts_call *c)
{
    for (int i = 0; i < c->nparams; i++) {
        const ts_value *x = NULL;
        int64_t d = ts_call_int(c, i, 0);

        if (c->params[i].kind != 'i' || strncmp(c->params[i].name, "dim", 3) ||
            c->bound[i].kind == TS_ARG_NONE)
            continue;
        for (int k = 0; k < c->nparams && !x; k++)
            x = c->bound[k].kind == TS_ARG_TENSOR    ? c->bound[k].as.v
                : c->bound[k].kind == TS_ARG_TENSORS ? c->bound[k].as.tensors[0]
                                                     : NULL;
        int most = ts_rank(x) + makes_dim(c->row);
        if (x && (d < -TS_MAX(most, 1) || d >= TS_MAX(most, 1)))
            return ts_fail(TS_ERR_ARG, "%s: %s is %ld, of a tensor of rank %d", c->row->name,
                           c->params[i].name, (long)d, ts_rank(x));
    }
    return TS_OK;
}

/* --- the answer's type ------------------------------------------------------------------------ */

static void join_type(ts_type *all, bool *any, const ts_value *v)
{
    if (!v)
        return;
    if (*any)
        all->dtype = ts_dtype_promote(all, &v->type);
    else
        *all = v->type;
    all->rank = TS_MAX(all->rank, v->type.rank);
    *any = true;
}

/* What the tensors from argument `first` on promote to; a number with a fraction makes floats. */
static ts_dtype promoted(const ts_call *c, int first)
{
    ts_type all = {.dtype = TS_F32};
    bool any = false, fraction = false;

    for (int i = first; i < c->nparams; i++) {
        const ts_arg *a = &c->bound[i];

        fraction = fraction || (c->params[i].kind == 'n' && a->kind == TS_ARG_NUMBER);
        if (a->kind == TS_ARG_TENSOR)
            join_type(&all, &any, a->as.v);
        for (int k = 0; a->kind == TS_ARG_TENSORS && k < a->n; k++)
            join_type(&all, &any, a->as.tensors[k]);
    }
    return fraction && !ts_dtype_is_float(all.dtype) ? TS_F32 : all.dtype;
}

static ts_dtype floats(ts_dtype t)
{
    return ts_dtype_is_float(t) ? t : TS_F32;
}

static const ts_value *first_tensor(const ts_call *c)
{
    for (int i = 0; i < c->nparams; i++)
        if (c->bound[i].kind == TS_ARG_TENSOR)
            return c->bound[i].as.v;
    return NULL;
}

static ts_dtype named_dtype(const ts_call *c)
{
    int i = ts_call_find(c, "dtype");
    const char *name = i < 0 ? "f32" : ts_call_text(c, i, "f32");
    ts_dtype t = TS_F32;

    ts_dtype_parse(name, strlen(name), &t);
    return t;
}

static ts_dtype weights_dtype(ts_call *c)
{
    int i = ts_call_find(c, "weights");
    ts_value *w = i < 0 ? NULL : ts_call_tensor(c, i);

    return w ? ts_dtype_of(w) : TS_I64;
}

static ts_dtype answer_dtype(ts_call *c)
{
    const ts_value *x = first_tensor(c);
    ts_dtype own = x ? x->type.dtype : TS_F32;

    switch (c->row->type[0]) {
    case 'p':
        return promoted(c, 0);
    case 'f':
        return floats(promoted(c, 0));
    case 'v':
        return ts_call_has(c, 2) ? promoted(c, 0) : floats(promoted(c, 0));
    case 'w':
        return promoted(c, 1);
    case 't':
        return promoted(c, 0);
    case 's':
        return ts_dtype_is_float(own) ? own : TS_I64;
    case 'b':
        return TS_BOOL;
    case 'l':
        return TS_I64;
    case 'd':
        return named_dtype(c);
    case 'k':
        return weights_dtype(c);
    default:
        return own;
    }
}

ts_status ts_call_bind(ts_call *c, int n, const ts_arg *args)
{
    if (!c->row->arguments)
        return ts_fail(TS_ERR_UNSUPPORTED, "%s is for traces only", c->row->name);
    c->nparams = ts_word_params(c->row, c->params);
    for (int i = 0; i < n; i++)
        TS_TRY(place(c, &args[i], i));
    c->args = c->bound;
    c->nargs = c->nparams;
    TS_TRY(complete(c));
    TS_TRY(check_dims(c));
    c->dtype = answer_dtype(c);
    return c->row->shape(c);
}

/* --- the answer's shape ----------------------------------------------------------------------- */

static ts_status wrong(const ts_call *c, const char *what)
{
    return ts_fail(TS_ERR_SHAPE, "%s: %s", c->row->name, what);
}

static int64_t list_of(const ts_call *c, const char *name, int64_t out[TS_MAX_RANK])
{
    int i = ts_call_find(c, name);

    return i < 0 ? 0 : ts_call_ints(c, i, out);
}

static ts_status as(ts_call *c, int rank, const int64_t *dims)
{
    for (int i = 0; i < rank; i++)
        if (dims[i] < 0)
            return ts_fail(TS_ERR_SHAPE, "%s: a dim of size %ld", c->row->name, (long)dims[i]);
    c->rank = rank;
    for (int i = 0; i < rank; i++)
        c->dims[i] = dims[i];
    return TS_OK;
}

ts_status ts_shape_any(ts_call *c)
{
    (void)c;
    return TS_OK;
}

ts_status ts_shape_x(ts_call *c)
{
    const ts_value *x = first_tensor(c);

    return as(c, x->type.rank, x->type.dim);
}

ts_status ts_shape_wide(ts_call *c)
{
    int64_t dims[TS_MAX_RANK];
    int rank = 0;

    for (int i = 0; i < c->nparams; i++)
        rank = TS_MAX(rank, ts_rank(ts_call_tensor(c, i)));
    for (int d = 0; d < rank; d++)
        dims[d] = 1;
    for (int i = 0; i < c->nparams && strcmp(c->params[i].name, "src"); i++) {
        const ts_value *v = ts_call_tensor(c, i);
        for (int d = 0; d < ts_rank(v); d++)
            if (v->type.dim[d] != 1)
                dims[rank - ts_rank(v) + d] = v->type.dim[d];
    }
    return as(c, rank, dims);
}

ts_status ts_shape_size(ts_call *c)
{
    int64_t dims[TS_MAX_RANK];
    int n = (int)list_of(c, "size", dims);

    return as(c, n, dims);
}

ts_status ts_shape_n(ts_call *c)
{
    int64_t n = ts_call_int(c, ts_call_find(c, "n"), 0);

    return as(c, 1, &n);
}

ts_status ts_shape_minlength(ts_call *c)
{
    int64_t n = ts_call_int(c, ts_call_find(c, "minlength"), 0);

    return as(c, 1, &n);
}

ts_status ts_shape_one_hot(ts_call *c)
{
    int64_t dims[TS_MAX_RANK];
    int rank = ts_call_shape_of(first_tensor(c), dims);

    if (rank == TS_MAX_RANK)
        return wrong(c, "no dim is left");
    dims[rank] = ts_call_int(c, ts_call_find(c, "num_classes"), 0);
    return as(c, rank + 1, dims);
}

ts_status ts_shape_reshape(ts_call *c)
{
    int64_t dims[TS_MAX_RANK], known = 1, count = ts_type_count(&first_tensor(c)->type);
    int n = (int)list_of(c, "shape", dims), open = -1;

    for (int i = 0; i < n; i++) {
        if (dims[i] == -1 && open < 0)
            open = i;
        else
            known *= dims[i];
    }
    if (open >= 0)
        dims[open] = known > 0 ? count / known : 0;
    return as(c, n, dims);
}

ts_status ts_shape_squeeze(ts_call *c)
{
    const ts_type *t = &first_tensor(c)->type;
    int which = ts_call_has(c, 1) ? ts_call_dim(c, 1, t->rank) : -1, n = 0;
    int64_t dims[TS_MAX_RANK];

    for (int i = 0; i < t->rank; i++)
        if (t->dim[i] != 1 || (which >= 0 && i != which))
            dims[n++] = t->dim[i];
    return as(c, n, dims);
}

ts_status ts_shape_unsqueeze(ts_call *c)
{
    const ts_type *t = &first_tensor(c)->type;
    int at = ts_call_dim(c, 1, t->rank + 1);
    int64_t dims[TS_MAX_RANK];

    if (t->rank == TS_MAX_RANK)
        return wrong(c, "no dim is left");
    for (int i = 0; i <= t->rank; i++)
        dims[i] = i < at ? t->dim[i] : i == at ? 1 : t->dim[i - 1];
    return as(c, t->rank + 1, dims);
}

ts_status ts_shape_expand(ts_call *c)
{
    const ts_type *t = &first_tensor(c)->type;
    int64_t dims[TS_MAX_RANK];
    int n = (int)list_of(c, "size", dims);

    if (n < t->rank)
        return wrong(c, "fewer sizes than dims");
    for (int i = 0; i < n; i++)
        if (dims[i] == -1 && i >= n - t->rank)
            dims[i] = t->dim[i - (n - t->rank)];
    return as(c, n, dims);
}

/* Without the dim, or with size 1. */
ts_status ts_shape_fold(ts_call *c)
{
    const ts_type *t = &first_tensor(c)->type;
    int at = ts_call_find(c, "dim"), n = 0, dim;
    bool keep = ts_call_flag(c, ts_call_find(c, "keepdim"));
    int64_t dims[TS_MAX_RANK];

    if (!ts_call_has(c, at))
        return as(c, 0, NULL);
    dim = t->rank ? ts_call_dim(c, at, t->rank) : 0;
    for (int i = 0; i < t->rank; i++)
        if (i != dim || keep)
            dims[n++] = i == dim ? 1 : t->dim[i];
    return as(c, n, dims);
}

/* --- windows --- */

/* The digit of a word's name: over how many dims it goes. */
int ts_call_spatial(const ts_call *c)
{
    const char *digit = strpbrk(c->row->name, "123");

    return digit ? *digit - '0' : 2;
}

static ts_status picture(ts_call *c, int n, int64_t dims[TS_MAX_RANK], int *rank)
{
    *rank = ts_call_shape_of(first_tensor(c), dims);
    return *rank == n + 1 || *rank == n + 2 ? TS_OK : wrong(c, "a tensor of another rank");
}

static void each(const ts_call *c, const char *name, int n, int64_t otherwise, int64_t *out)
{
    int i = ts_call_find(c, name);

    for (int k = 0; i < 0 && k < n; k++)
        out[k] = otherwise;
    if (i >= 0)
        ts_call_ints_n(c, i, n, otherwise, out);
}

static int64_t windows(int64_t size, int64_t kernel, int64_t stride, int64_t pad, int64_t dilation,
                       bool ceil_mode)
{
    int64_t room = size + 2 * pad - dilation * (kernel - 1) - 1, n;

    if (stride < 1 || room < 0)
        return 0;
    n = (room + (ceil_mode ? stride - 1 : 0)) / stride + 1;
    return ceil_mode && (n - 1) * stride >= size + pad ? n - 1 : n; /* begins inside */
}

ts_status ts_shape_pool(ts_call *c)
{
    int64_t dims[TS_MAX_RANK], kernel[3], stride[3], padding[3], dilation[3], none[TS_MAX_RANK];
    int n = ts_call_spatial(c), rank;
    bool own = list_of(c, "stride", none) > 0;
    bool ceil_mode = ts_call_flag(c, ts_call_find(c, "ceil_mode"));

    TS_TRY(picture(c, n, dims, &rank));
    each(c, "kernel", n, 1, kernel);
    each(c, "stride", n, 1, stride);
    each(c, "padding", n, 0, padding);
    each(c, "dilation", n, 1, dilation);
    for (int i = 0; i < n; i++) {
        int64_t *d = &dims[rank - n + i];
        *d =
            windows(*d, kernel[i], own ? stride[i] : kernel[i], padding[i], dilation[i], ceil_mode);
        if (*d < 1)
            return wrong(c, "no window fits");
    }
    return as(c, rank, dims);
}

/* The last dims are the argument `size`, or what factors make of them. */
ts_status ts_shape_resize(ts_call *c)
{
    int64_t dims[TS_MAX_RANK], size[TS_MAX_RANK];
    int n = ts_call_spatial(c), rank, given = (int)list_of(c, "size", size);
    int at = ts_call_find(c, "scale_factors"), factors = at < 0 ? -1 : ts_call_count(c, at);

    TS_TRY(picture(c, n, dims, &rank));
    if (given != n && factors != n)
        return ts_fail(TS_ERR_ARG, "%s needs %d sizes", c->row->name, n);
    for (int i = 0; i < n; i++) {
        int64_t *d = &dims[rank - n + i];
        *d = given == n ? size[i] : (int64_t)((double)*d * ts_call_item(c, at, i));
        if (*d < 1)
            return wrong(c, "sizes are at least 1");
    }
    return as(c, rank, dims);
}

ts_status ts_shape_unpool(ts_call *c)
{
    return ts_shape_resize(c);
}

static ts_status columns(ts_call *c, const int64_t *size, int64_t *count, int64_t *taps)
{
    int64_t kernel[2], dilation[2], padding[2], stride[2];

    each(c, "kernel", 2, 1, kernel);
    each(c, "dilation", 2, 1, dilation);
    each(c, "padding", 2, 0, padding);
    each(c, "stride", 2, 1, stride);
    *taps = *count = 1;
    for (int i = 0; i < 2; i++) {
        int64_t n = windows(size[i], kernel[i], stride[i], padding[i], dilation[i], false);

        if (n < 1 || kernel[i] < 1 || (double)n * (double)*count > (double)TS_MAX_COUNT ||
            (double)kernel[i] * (double)*taps > (double)TS_MAX_COUNT)
            return wrong(c, "no window fits");
        *count *= n;
        *taps *= kernel[i];
    }
    return TS_OK;
}

ts_status ts_shape_im2col(ts_call *c)
{
    int64_t dims[TS_MAX_RANK], count, taps;
    int rank;

    TS_TRY(picture(c, 2, dims, &rank));
    TS_TRY(columns(c, dims + rank - 2, &count, &taps));
    dims[rank - 3] *= taps;
    dims[rank - 2] = count;
    return as(c, rank - 1, dims);
}

ts_status ts_shape_col2im(ts_call *c)
{
    int64_t dims[TS_MAX_RANK], size[TS_MAX_RANK], count, taps;
    int rank = ts_call_shape_of(first_tensor(c), dims);

    list_of(c, "size", size);
    TS_TRY(columns(c, size, &count, &taps));
    if (rank < 2 || rank > 3 || dims[rank - 2] % taps || dims[rank - 1] != count)
        return wrong(c, "columns that do not fit the windows");
    dims[rank - 2] /= taps;
    dims[rank - 1] = size[0];
    dims[rank] = size[1];
    return as(c, rank + 1, dims);
}

ts_status ts_shape_grid(ts_call *c)
{
    const ts_value *x = first_tensor(c), *grid = ts_call_tensor(c, 1);
    int64_t dims[TS_MAX_RANK];

    int n = ts_call_spatial(c);

    if (ts_rank(x) != n + 2 || ts_rank(grid) != n + 2 || ts_dim(grid, n + 1) != n)
        return wrong(c, n == 2 ? "a picture [N, C, H, W] and a grid [N, h, w, 2] are needed"
                               : "a picture [N, C, D, H, W] and a grid [N, d, h, w, 3] are needed");
    dims[0] = ts_dim(x, 0);
    dims[1] = ts_dim(x, 1);
    for (int i = 0; i < n; i++)
        dims[2 + i] = ts_dim(grid, 1 + i);
    return as(c, n + 2, dims);
}

/* histc: as many as there are bins */
ts_status ts_shape_bins(ts_call *c)
{
    int64_t bins = ts_call_int(c, ts_call_find(c, "bins"), 100);

    return as(c, 1, &bins);
}

/* multinomial: the last dim of the probabilities becomes the draws */
ts_status ts_shape_draws(ts_call *c)
{
    const ts_type *t = &first_tensor(c)->type;
    int64_t dims[TS_MAX_RANK];

    if (!t->rank)
        return wrong(c, "probabilities of one dim or more are needed");
    memcpy(dims, t->dim, sizeof(dims));
    dims[t->rank - 1] = ts_call_int(c, ts_call_find(c, "count"), 1);
    return as(c, t->rank, dims);
}

/* size is that of the picture, [N, C, H, W] or [N, C, D, H, W] */
ts_status ts_shape_affine_grid(ts_call *c)
{
    int64_t size[TS_MAX_RANK], dims[TS_MAX_RANK];
    int n = (int)list_of(c, "size", size);

    if (n != 4 && n != 5)
        return wrong(c, "4 or 5 sizes are needed");
    dims[0] = size[0];
    for (int i = 2; i < n; i++)
        dims[i - 1] = size[i];
    dims[n - 1] = n - 2;
    return as(c, n, dims);
}

/* An op of the engine as it is: its tensors are the inputs, the rest are attributes. */
ts_value *ts_word_engine(ts_call *c)
{
    ts_value *in[TS_WORD_PARAMS];
    ts_arg attr[TS_WORD_PARAMS];
    int nin = 0, n = 0;

    for (int i = 0; i < c->nparams; i++) {
        const ts_arg *a = &c->bound[i];

        if (a->kind == TS_ARG_TENSOR) {
            in[nin++] = a->as.v;
        } else if (a->kind != TS_ARG_NONE && !(a->kind == TS_ARG_INTS && !a->n)) {
            attr[n] = *a;
            attr[n++].name = c->params[i].name;
        }
    }
    return ts_apply(c->g, c->row->op, nin, in, n, attr);
}

/* --- the C functions -------------------------------------------------------------------------- */

/* The graph of a call's tensors; NULL where one that is needed is NULL, since its call failed. */
static ts_graph *graph_of(const ts_word_row *r, int n, const ts_arg *args)
{
    ts_param params[TS_WORD_PARAMS];
    int count = ts_word_params(r, params);
    ts_graph *g = NULL;

    for (int i = 0; i < n && i < count; i++) {
        const ts_arg *a = &args[i];

        if (a->kind == TS_ARG_NONE && strchr("xn", params[i].kind) && !params[i].optional)
            return NULL;
        if (a->kind == TS_ARG_TENSOR && !g)
            g = a->as.v->graph;
        for (int k = 0; a->kind == TS_ARG_TENSORS && k < a->n && !g; k++)
            g = a->as.tensors[k] ? a->as.tensors[k]->graph : NULL;
    }
    return g;
}

int ts_word_make(ts_graph *g, const char *word, int n, const ts_arg *args, int room, ts_value **out)
{
    const ts_word_row *r = ts_word_find(word);
    int nout = 0;

    for (int i = 0; i < room; i++)
        out[i] = NULL;
    g = g ? g : graph_of(r, n, args);
    if (!g || g->status)
        return 0;
    if (ts_word(g, word, NULL, n, args, room, out, &nout)) {
        ts_error e = *ts_last_error();
        ts_graph_refuse(g, e.code, e.hint[0] ? e.hint : NULL, "%s", e.message);
        return 0;
    }
    return nout;
}
