/* host.c - a call of the program that runs the engine, in the middle of the graph.
 *
 *   %2 = host_call(%x, %y) id=3 types="f32[4] i32[2]"     the host computes the results
 *   %3 = host_call(%x) id=4 gradient=5                    a tap: %x itself, which the host sees
 *   %5 = host_call(%x) id=6 types="f32[4]" gradient=7     an op of the host with a gradient:
 *   %8 = host_call(%x, %5, %dy) id=7 types="f32[4]"       that of %x, from %x, %5 and that of %5
 *
 *   %4 = host_call(%x) id=-1 checks="log|net.py:41"       the run looks at what was found (guard.c)
 *
 * Everything about such a call is the host's: nothing is folded, merged or fused with it, its
 * inputs and results lie row-major in memory, and calls are made in the order of the nodes by one
 * thread. The gradient of a tap is a tap; other calls have one when they name it.
 */
#include "op/op.h"
#include <ctype.h>

enum { MOST_RESULTS = 8 };

static ts_status one_type(const ts_node *n, const char **s, ts_type *t)
{
    const char *p = *s;
    char *end;

    *t = (ts_type){0};
    while (isalnum((unsigned char)*p))
        p++;
    if (*p != '[' || ts_dtype_parse(*s, (size_t)(p - *s), &t->dtype))
        return ts_fail_at(n, TS_ERR_ARG, "'%s' does not begin with a type like f32[2,3]", *s);
    for (p++; *p != ']'; p = *end == ',' ? end + 1 : end) {
        long size = strtol(p, &end, 10);
        if (end == p || size < 1 || t->rank == TS_MAX_RANK || (*end != ',' && *end != ']'))
            return ts_fail_at(n, TS_ERR_ARG, "'%s' does not begin with a type like f32[2,3]", *s);
        t->dim[t->rank++] = size;
    }
    for (p++; *p == ' '; p++)
        ;
    *s = p;
    if (!ts_type_possible(t))
        return ts_fail_at(n, TS_ERR_SHAPE, "a result of host_call is larger than a tensor can be");
    return TS_OK;
}

ts_status ts_infer_host_call(ts_node *n)
{
    const char *types = ts_attr_str(n, "types", NULL);
    ts_type t[MOST_RESULTS];
    int count = 0;

    if (!types && n->nin != 1)
        return ts_fail_at(n, TS_ERR_ARG, "host_call without types is a tap of one value, not of %d",
                          n->nin);
    if (!types)
        return ts_node_set_out1(n, n->in[0]->type);
    for (; *types; count++) {
        if (count == MOST_RESULTS)
            return ts_fail_at(n, TS_ERR_ARG, "host_call has more than %d results", MOST_RESULTS);
        TS_TRY(one_type(n, &types, &t[count]));
    }
    if (!count)
        return ts_fail_at(n, TS_ERR_ARG, "host_call has no results");
    ts_node_set_out(n, count, t);
    return TS_OK;
}

/* The call of the gradient: takes the inputs, the results and the results' gradients, gives those
 * of the inputs that are no whole numbers. */
static ts_status second_call(ts_node *n, int64_t id, ts_value *const *dy, ts_value **dx)
{
    ts_value *in[TS_MAX_INPUTS];
    ts_graph *g = n->out[0]->graph;
    const char *types = "";
    ts_attr attr[2] = {ts_attr_i("id", id)};
    ts_node *call;
    int nin = 0, k = 0;

    if (n->nin + 2 * n->nout > TS_MAX_INPUTS)
        return ts_fail_at(n, TS_ERR_ARG, "host_call has too many inputs for a gradient: %d",
                          n->nin);
    for (int i = 0; i < n->nin; i++) {
        in[nin++] = n->in[i];
        if (ts_dtype_is_float(n->in[i]->type.dtype))
            types = ts_arena_printf(g->arena, "%s%s%s", types, *types ? " " : "",
                                    ts_type_text(g->arena, &n->in[i]->type));
    }
    for (int i = 0; i < n->nout; i++)
        in[nin++] = n->out[i];
    for (int i = 0; i < n->nout; i++) {
        const ts_type *t = &n->out[i]->type;

        in[nin++] = dy[i] ? dy[i] : ts_full_n(g, t->dtype, 0, t->rank, t->dim);
    }
    attr[1] = ts_attr_s("types", types);
    call = ts_node_make(g, TS_OP(host_call), nin, in, TS_COUNT(attr), attr);
    for (int i = 0; call && i < n->nin; i++)
        if (ts_dtype_is_float(n->in[i]->type.dtype))
            dx[i] = call->out[k++];
    return call ? TS_OK : ts_last_error()->code;
}

ts_status ts_grad_host_call(ts_node *n, ts_value *const *dy, ts_value **dx)
{
    int64_t id = ts_attr_int(n, "gradient", -1);
    ts_attr attr = ts_attr_i("id", id);

    if (ts_attr_find(n, "types") && id >= 0)
        return second_call(n, id, dy, dx);
    if (ts_attr_find(n, "types")) {
        ts_fail_at(n, TS_ERR_GRAD, "host_call has no gradient, and a trained parameter needs one");
        ts_error_hint("call the host for inference only, or detach its inputs");
        return TS_ERR_GRAD;
    }
    dx[0] = id < 0 ? dy[0] : ts_make1(TS_OP(host_call), dy[0], 1, &attr);
    return TS_OK;
}

ts_status ts_eval_host_call(const ts_node *n, const ts_eval_ctx *c, const ts_tensor *in,
                            ts_tensor *out)
{
    const void *from[TS_MAX_INPUTS + 2];
    const char *checks = ts_attr_str(n, "checks", NULL);
    void *to[MOST_RESULTS];
    bool tap = !ts_attr_find(n, "types");

    for (int i = 0; i < n->nin; i++)
        from[i] = in[i].data;
    for (int i = 0; i < n->nout; i++)
        to[i] = out[i].data;
    if (tap)
        memcpy(to[0], from[0], ts_type_bytes(&out[0].type));
    if (!c->host)
        return ts_fail_at(n, TS_ERR_ARG, "the graph calls the host, and there is none to call");
    if (checks) {
        from[1] = checks;
        from[2] = &c->step;
    }
    c->host(c->engine, (int)ts_attr_int(n, "id", 0), from, tap ? NULL : to);
    return TS_OK;
}

/* It is always a kernel of its own (render.c): nobody asks for its elements. */
const char *ts_emit_host_call(ts_emit *e, const ts_node *n, int out, const ts_ix *const *at)
{
    (void)e, (void)n, (void)out, (void)at;
    return NULL;
}
