/* tessera.h - compile a neural network's whole training step ahead of time and run it.
 *
 *   ts_graph *g = ts_graph_new("net");
 *   ts_value *x = ts_input(g, "x", TS_F32, 16, 784);
 *   ts_value *t = ts_input(g, "labels", TS_I32, 16);
 *   ts_value *y = ts_linear(x, "fc", 10);
 *   ts_output(y, "y");
 *   ts_loss(ts_cross_entropy(y, t));
 *
 *   ts_optimizer sgd = ts_sgd(0.01);
 *   ts_executable *exe;
 *   ts_engine *e;
 *   if (ts_compile(g, &(ts_options){.optimizer = &sgd}, &exe) || ts_engine_new(exe, NULL, &e))
 *       fputs(ts_error_text(), stderr);
 *   ts_engine_run(e, (const void *[]){images, labels}, (void *[]){y_out, loss_out});
 *
 * Building never fails halfway: a call that cannot be done returns NULL, remembers why, and every
 * later call on a NULL value returns NULL; ts_compile() reports the first error with the line of
 * the program that caused it. Every other call that can fail returns a ts_status; the words are in
 * ts_last_error() of the calling thread.
 *
 * _new makes, _load reads a file, _open takes hold of something outside that _close lets go. What
 * they and ts_compile give you, you free. Anything else belongs to its owner: a value to its graph,
 * an error to its thread.
 *
 * This is the core: graphs, compiling, running. The rest has headers of its own:
 *   tessera/model.h    nets as texts                   tessera/plan.h     memory and order of a run
 *   tessera/data.h     datasets, images, batches       tessera/device.h   devices, and the machine
 *   tessera/store.h    checkpoints and arrays          tessera/cache.h    what was compiled before
 *   tessera/show.h     plots, logs, progress bars      tessera/export.h   a trained net as plain C
 *   tessera/custom.h   an operation of your own, for poptorch.custom_op
 *
 * Structs of options and of results may grow at their end from one version to the next. The calls
 * that take one are inline here and tell the library its size as the program knows it
 * (ts_compile_sized for ts_compile), so a program built with an older header runs with a newer
 * library: what it does not know is 0. One that is newer than the library is refused when it sets
 * what the library does not know. Structs that lie within others or in arrays of the caller stay
 * as they are.
 *
 * Any thread may call, and several at a time, with graphs and engines of their own: one of these is
 * used by one thread at a time. An executable does not change; several threads may make engines of
 * it.
 */
#ifndef TESSERA_H
#define TESSERA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
#include <initializer_list>
template <class T> const T *ts_sized_(T &&options)
{
    options.size = sizeof(T);
    return &options;
}
extern "C" {
#endif

#define TS_VERSION  "0.5.0"
#define TS_API      __attribute__((visibility("default")))
#define TS_MAX_RANK 8

/* --- status and errors ------------------------------------------------------------------------ */

typedef enum ts_status {
    TS_OK = 0,
    TS_ERR_ARG,         /* a wrong argument                                    */
    TS_ERR_SHAPE,       /* shapes that do not fit together                     */
    TS_ERR_TYPE,        /* dtypes that do not fit together                     */
    TS_ERR_GRAD,        /* a gradient that does not exist                      */
    TS_ERR_UNSUPPORTED, /* a thing we know and cannot do                       */
    TS_ERR_PARSE,       /* IR text or a file that does not read                */
    TS_ERR_MEMORY,      /* not enough memory for the user's tensors            */
    TS_ERR_FILE,        /* a file that cannot be opened, read or written       */
    TS_ERR_COMPILER,    /* the C compiler failed                               */
    TS_ERR_CORRUPT,     /* a file whose checksum, owner or version is wrong    */
    TS_ERR_INTERNAL,    /* our bug: the verifier or an invariant says so       */
    TS_ERR_PROCESS,     /* a process that trains with this one is gone         */
    TS_ERR_NUMBER,      /* an infinity or a NaN (ts_options.exceptions)        */
} ts_status;

typedef struct ts_error {
    ts_status code;
    char message[1024]; /* what, with the offending values        */
    char where[512];    /* the layer and the user's line, or ""   */
    char doing[256];    /* what was being done, or ""             */
    char hint[512];     /* what to do about it, or ""             */
} ts_error;

/* The calling thread's last error. Valid until its next failing call. */
TS_API const ts_error *ts_last_error(void);
/* The same as text: "shape error: ...\n  at ...\n  while ...\n  hint ...\n". */
TS_API const char *ts_error_text(void);
/* "shape error" for TS_ERR_SHAPE, and so on. */
TS_API const char *ts_status_name(ts_status code);
TS_API const char *ts_version(void);
/* The one of n words that a mistyped word was probably meant to be, or NULL. */
TS_API const char *ts_nearest(const char *word, const char *const *words, int n);

/* --- graphs ----------------------------------------------------------------------------------- */

typedef enum ts_dtype {
    TS_F32,
    TS_F16,
    TS_BF16,
    TS_F64,
    TS_I8,
    TS_U8,
    TS_I32,
    TS_I64,
    TS_BOOL
} ts_dtype;

typedef struct ts_graph ts_graph; /* a network; owns its values                        */
typedef struct ts_value ts_value; /* one tensor in it: static shape and dtype          */

TS_API ts_graph *ts_graph_new(const char *name);
TS_API void ts_graph_free(ts_graph *g);
/* The error that stopped the building of g, or TS_OK; also sets the thread's error. */
TS_API ts_status ts_graph_check(const ts_graph *g);
/* The text form; free() it. It reads back with ts_graph_parse to the same graph. */
TS_API char *ts_graph_text(const ts_graph *g);
TS_API ts_status ts_graph_parse(const char *text, ts_graph **out);

/* The i-th weight or buffer, in the order they were made: its name, and whether it is trained. NULL
 * past the last. Borrowed from g. */
TS_API const char *ts_graph_state(const ts_graph *g, int i, bool *trained);

TS_API int ts_rank(const ts_value *v);
TS_API int64_t ts_dim(const ts_value *v, int i); /* negative i counts from the end; 0: none such */
TS_API ts_dtype ts_dtype_of(const ts_value *v);
TS_API size_t ts_dtype_size(ts_dtype t);
TS_API const char *ts_dtype_name(ts_dtype t);

/* A dense row-major tensor outside a graph. */
typedef struct ts_array {
    ts_dtype dtype;
    int rank;
    int64_t dims[TS_MAX_RANK];
    size_t bytes; /* the product of dims times the size of dtype */
    void *data;
} ts_array;

/* Names of inputs, parameters, outputs, layers, scopes and blocks are UTF-8 text of 1 to 1000 bytes without
 * control characters. Whatever they are, they stay names in the generated code.
 *
 * ts_input(g, "x", TS_F32, 16, 1, 28, 28): what a run feeds, in the order of these calls.
 * ts_const(g, TS_F32, data, 3, 4): a constant tensor, copied. ts_scalar: one number, rank 0. */
TS_API ts_value *ts_input_n(ts_graph *g, const char *name, ts_dtype t, int rank,
                            const int64_t *dims);
TS_API ts_value *ts_const_n(ts_graph *g, ts_dtype t, const void *data, int rank,
                            const int64_t *dims);
TS_API ts_value *ts_full_n(ts_graph *g, ts_dtype t, double value, int rank, const int64_t *dims);
TS_API ts_value *ts_scalar(ts_graph *g, ts_dtype t, double value);

/* How a parameter starts. The numbers depend on the engine's seed and the parameter's name only. */
typedef enum ts_init_kind { TS_INIT_FULL, TS_INIT_UNIFORM, TS_INIT_NORMAL } ts_init_kind;
typedef struct ts_init {
    ts_init_kind kind;
    double a, b; /* FULL: a; UNIFORM: a..b; NORMAL: mean a, deviation b */
} ts_init;
/* A tensor that lives across runs: a weight (trained) or a buffer (written by ts_assign only). */
TS_API ts_value *ts_param_n(ts_graph *g, const char *name, ts_dtype t, ts_init init, int rank,
                            const int64_t *dims);
/* An f32 parameter that starts as PyTorch's linear weights do, within 1 / sqrt(fan in):
 * ts_weight(g, "w", 10, 784). */
TS_API ts_value *ts_weight_n(ts_graph *g, const char *name, int rank, const int64_t *dims);
TS_API ts_value *ts_buffer_n(ts_graph *g, const char *name, ts_dtype t, ts_init init, int rank,
                             const int64_t *dims);
TS_API void ts_assign(ts_value *buffer,
                      ts_value *next);  /* buffer's value for the next micro-batch */
TS_API void ts_freeze(ts_value *param); /* requires_grad = False                */

TS_API void ts_output(ts_value *v, const char *name); /* returned by a run, in the order of calls */
TS_API void
ts_loss(ts_value *v); /* what training minimises; summed when not scalar; an output too */

/* Names and places. Nodes made between begin and end belong to the block (pipeline stage) or have
 * their layer name prefixed. ts_here is what the macros at the end of this file
 * call. */
TS_API void ts_block_begin(ts_graph *g, const char *block);
TS_API void ts_block_end(ts_graph *g);
TS_API void ts_scope_begin(ts_graph *g, const char *name);
TS_API void ts_scope_end(ts_graph *g);
TS_API void ts_here(const char *file, int line);
/* Nodes made from begin on are steps of one op, all but its results: ts_options.exceptions looks at
 * those only. */
TS_API int ts_steps_begin(const ts_graph *g);
TS_API void ts_steps_end(ts_graph *g, int begin, int nresults, ts_value *const *results);

/* What the macros below make of their arguments: the number of dims and the dims, and options that
 * live as long as the call and know their size, so that they can grow. C++ has no compound literals,
 * and designators since C++20. */
#define TS_FIRST_(...)                TS_FIRST_OF_(__VA_ARGS__, 0)
#define TS_FIRST_OF_(first, ...)      first
#define TS_REST_(type, ...)           TS_REST_OF_(type, __VA_ARGS__, )
#define TS_REST_OF_(type, first, ...) TS_OPTIONS_(type, __VA_ARGS__)
#ifdef __cplusplus
#define TS_DIMS_(...)                                                                              \
    static_cast<int>(std::initializer_list<int64_t>{__VA_ARGS__}.size()),                          \
        std::initializer_list<int64_t>{__VA_ARGS__}.begin()
#define TS_OPTIONS_(type, ...) ts_sized_(type{__VA_ARGS__})
#else
#define TS_DIMS_(...)                                                                              \
    (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (const int64_t[])                   \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }
#define TS_OPTIONS_(type, ...) (&(type){.size = sizeof(type), __VA_ARGS__})
#endif
#define ts_input(g, name, t, ...)        ts_input_n(g, name, t, TS_DIMS_(__VA_ARGS__))
#define ts_const(g, t, data, ...)        ts_const_n(g, t, data, TS_DIMS_(__VA_ARGS__))
#define ts_full(g, t, value, ...)        ts_full_n(g, t, value, TS_DIMS_(__VA_ARGS__))
#define ts_param(g, name, t, init, ...)  ts_param_n(g, name, t, init, TS_DIMS_(__VA_ARGS__))
#define ts_weight(g, name, ...)          ts_weight_n(g, name, TS_DIMS_(__VA_ARGS__))
#define ts_buffer(g, name, t, init, ...) ts_buffer_n(g, name, t, init, TS_DIMS_(__VA_ARGS__))

/* --- ops --------------------------------------------------------------------------------------
 * Names and meaning are PyTorch's; pointwise ops broadcast and promote like PyTorch's. An op is
 * what a graph is made of (doc/ops.md), a word what a user calls (doc/words.md), and becomes one op
 * or many. Both can be made by name; every word and op also has a C function, in tessera/ops.h. */

/* An argument: first those without a name, in the order of doc/words.md, then any by name. One that
 * is left out has its default. */
typedef enum ts_arg_kind {
    TS_ARG_NONE,
    TS_ARG_INT, /* and bool */
    TS_ARG_NUMBER,
    TS_ARG_TEXT, /* and dtypes, by name */
    TS_ARG_TENSOR,
    TS_ARG_INTS,
    TS_ARG_NUMBERS,
    TS_ARG_TENSORS /* NULL: none */
} ts_arg_kind;
typedef struct ts_arg {
    const char *name; /* NULL: by its place */
    ts_arg_kind kind;
    int n; /* of a list */
    union {
        int64_t i;
        double f;
        const char *s;
        ts_value *v;
        const int64_t *ints;
        const double *numbers;
        ts_value *const *tensors;
    } as;
} ts_arg;
/* What they point at must live as long as the call that takes them; a NULL tensor is none. */
static inline ts_arg ts_arg_none(const char *name)
{
    ts_arg a;

    a.name = name;
    a.kind = TS_ARG_NONE;
    a.n = 0;
    a.as.i = 0;
    return a;
}
static inline ts_arg ts_arg_int(const char *name, int64_t i)
{
    ts_arg a = ts_arg_none(name);

    a.kind = TS_ARG_INT;
    a.as.i = i;
    return a;
}
static inline ts_arg ts_arg_number(const char *name, double f)
{
    ts_arg a = ts_arg_none(name);

    a.kind = TS_ARG_NUMBER;
    a.as.f = f;
    return a;
}
static inline ts_arg ts_arg_text(const char *name, const char *s)
{
    ts_arg a = ts_arg_none(name);

    a.kind = s ? TS_ARG_TEXT : TS_ARG_NONE;
    a.as.s = s;
    return a;
}
static inline ts_arg ts_arg_tensor(const char *name, ts_value *v)
{
    ts_arg a = ts_arg_none(name);

    a.kind = v ? TS_ARG_TENSOR : TS_ARG_NONE;
    a.as.v = v;
    return a;
}
static inline ts_arg ts_arg_ints(const char *name, int n, const int64_t *ints)
{
    ts_arg a = ts_arg_none(name);

    a.kind = TS_ARG_INTS;
    a.n = n;
    a.as.ints = ints;
    return a;
}
static inline ts_arg ts_arg_numbers(const char *name, int n, const double *numbers)
{
    ts_arg a = ts_arg_none(name);

    a.kind = TS_ARG_NUMBERS;
    a.n = n;
    a.as.numbers = numbers;
    return a;
}
static inline ts_arg ts_arg_tensors(const char *name, int n, ts_value *const *tensors)
{
    ts_arg a = ts_arg_none(name);

    a.kind = TS_ARG_TENSORS;
    a.n = n;
    a.as.tensors = tensors;
    return a;
}
/* The type of a word's first result, as PyTorch has it; whoever does not know it gives NULL. */
typedef struct ts_answer {
    ts_dtype dtype;
    int rank;
    int64_t dims[TS_MAX_RANK];
} ts_answer;
/* Any op of doc/ops.md: the inputs, then attributes by name:
 *     ts_apply(g, "sum", 1, &x, 2,
 *              (ts_arg[]){ts_arg_ints("dims", 2, dims), ts_arg_int("keepdim", 1)}) */
TS_API ts_value *ts_apply(ts_graph *g, const char *op, int nin, ts_value *const *in, int nattr,
                          const ts_arg *attr);
/* Any word of doc/words.md ("hardswish"), or PyTorch's name of it ("aten::hardswish"):
 *     ts_word(g, "gelu", NULL, 2, (ts_arg[]){ts_arg_tensor("x", x), ts_arg_text("approximate",
 * "tanh")}, 1, &y, &n) Writes at most `room` results and their number; NULL for one that the word
 * does not give. What cannot be is TS_ERR_UNSUPPORTED, and g is as it was. */
TS_API ts_status ts_word(ts_graph *g, const char *word, const ts_answer *answer, int nargs,
                         const ts_arg *args, int room, ts_value **out, int *nout);
/* Writing through a view: the word's first argument, with the elements that result `which` shows
 * replaced by y's. */
TS_API ts_status ts_word_put(ts_graph *g, const char *word, const ts_answer *answer, int nargs,
                             const ts_arg *args, int which, ts_value *y, ts_value **out);
TS_API bool ts_word_known(const char *word);
/* The i-th name: words, other names of them, and what only a trace says, with "aten::" before it;
 * NULL past the last. */
TS_API const char *ts_word_name(int i);

/* Output i of the node that made v (max_pool has 2: values and indices). */
TS_API ts_value *ts_result(ts_value *v, int i);

/* What no row of the table can say; the rest is in tessera/ops.h. */
TS_API ts_value *ts_add_scalar(ts_value *x, double s);
TS_API ts_value *ts_mul_scalar(ts_value *x, double s);
TS_API ts_value *ts_cast(ts_value *x, ts_dtype t);
/* Splits like torch.chunk: writes at most n values to out and returns how many, 0 on error. */
TS_API int ts_chunk(ts_value *x, int n, int dim, ts_value **out);
/* lo[i] values before and hi[i] after those of dim i. */
TS_API ts_value *ts_pad(ts_value *x, int rank, const int64_t *lo, const int64_t *hi, double value);

/* The gradients of y[0] .. by x[0] .., added up over y, as values of the graph: dx[i] has the type of x[i], and is 0
 * where nothing depends on it. seeds[i] is what the gradient of y[i] begins with; NULL, or a NULL in it, is ones. What
 * they make can be differentiated again: a loss may depend on derivatives. */
TS_API ts_status ts_gradients(int ny, ts_value *const *y, ts_value *const *seeds, int nx,
                              ts_value *const *x, ts_value **dx);
/* A loop: `body`, a graph with n inputs and n outputs of the same types, runs `count` times, fed
 * with its own outputs. Its parameters are inputs too. Writes the last outputs and returns their
 * number, 0 on failure. The loop is written out when it is compiled. body is copied. */
TS_API int ts_for_loop(int64_t count, const ts_graph *body, int n, ts_value *const *in,
                       ts_value **out);
/* The outputs of `yes` where the condition, one bool, is true, and else those of `no`: two graphs
 * that take the same n inputs. Both are computed. */
TS_API int ts_cond(ts_value *condition, const ts_graph *yes, const ts_graph *no, int n,
                   ts_value *const *in, ts_value **out);
/* Calls ts_run_options.host with this id, in every micro-batch: n values go in, results of `types`
 * ("f32[4,10] i32[4]", at most 8) come out. Writes them and returns their number, 0 on failure. No
 * gradient. Calls happen in the order of the graph; one whose results nobody uses does not. */
TS_API int ts_host_call(int id, int n, ts_value *const *in, const char *types, ts_value **out);
/* The same with a gradient: in training the host is also called with `gradient`, for those of the
 * values that are no whole numbers, in their order. It takes the n values, the results, and the
 * results' gradients. At most 64 of these together. */
TS_API int ts_host_op(int id, int gradient, int n, ts_value *const *in, const char *types,
                      ts_value **out);
/* x itself, which the host sees as `id`; in training it also sees the gradient of the result as
 * `gradient` (-1: not). */
TS_API ts_value *ts_tap(ts_value *x, int id, int gradient);
TS_API ts_value *ts_embedding(ts_value *index, ts_value *weight);
TS_API ts_value *ts_one_hot(ts_value *index, int64_t classes, ts_dtype t);
/* softmax(q k^T / sqrt(d) + mask) v over the last two dims; mask may be NULL, or bools that are
 * true where there is something to see. */
TS_API ts_value *ts_attention(ts_value *q, ts_value *k, ts_value *v, ts_value *mask);

/* Uniform in [0,1) and standard normal; numbers depend on the seed, the node and the
 * element only. */
TS_API ts_value *ts_rand_n(ts_graph *g, ts_dtype t, int rank, const int64_t *dims);
TS_API ts_value *ts_randn_n(ts_graph *g, ts_dtype t, int rank, const int64_t *dims);
#define ts_rand(g, t, ...)  ts_rand_n(g, t, TS_DIMS_(__VA_ARGS__))
#define ts_randn(g, t, ...) ts_randn_n(g, t, TS_DIMS_(__VA_ARGS__))

/* --- layers: ops with named parameters and PyTorch's default initialisation ------------------- */

/* In each of these `size` is sizeof the struct, set by the macros below. 0 in one that is made by hand
 * means the fields that are there now: those of a later version are then not looked at. */
typedef struct ts_conv_options {
    size_t size;
    int stride, padding, dilation, groups; /* 0 means PyTorch's default: 1, 0, 1, 1 */
    int output_padding;                    /* transposed only                       */
    bool no_bias;
} ts_conv_options;
typedef struct ts_pool_options {
    size_t size;
    int stride, padding; /* stride 0: the kernel */
    bool ceil_mode, exclude_pad;
} ts_pool_options;
typedef struct ts_norm_options {
    size_t size;
    double eps, momentum; /* 0: 1e-5 and 0.1 */
    bool no_affine;
    bool inference; /* batch norm: use the running statistics and do not update them */
} ts_norm_options;

/* ts_conv2d(x, "conv1", 32, 3, .padding = 1): x is [N, C, H, W], 3 the kernel, and options may
 * follow; weight and bias are conv1.weight, conv1.bias. The 1-d form takes [N, C, L], the 3-d one
 * [N, C, D, H, W]. ts_max_pool2d(x, 2, .stride = 1): 2 is the kernel. ts_batch_norm(x, "bn1"),
 * ts_layer_norm(x, "ln"), over the last dim, and ts_group_norm(x, "gn", 4), where 4 is the groups,
 * are alike. */
#define ts_conv1d(x, name, out, ...)                                                               \
    ts_conv_layer(x, name, 1, out, TS_FIRST_(__VA_ARGS__), TS_REST_(ts_conv_options, __VA_ARGS__))
#define ts_conv2d(x, name, out, ...)                                                               \
    ts_conv_layer(x, name, 2, out, TS_FIRST_(__VA_ARGS__), TS_REST_(ts_conv_options, __VA_ARGS__))
#define ts_conv3d(x, name, out, ...)                                                               \
    ts_conv_layer(x, name, 3, out, TS_FIRST_(__VA_ARGS__), TS_REST_(ts_conv_options, __VA_ARGS__))
#define ts_conv_transpose1d(x, name, out, ...)                                                     \
    ts_conv_transpose_layer(x, name, 1, out, TS_FIRST_(__VA_ARGS__),                               \
                            TS_REST_(ts_conv_options, __VA_ARGS__))
#define ts_conv_transpose2d(x, name, out, ...)                                                     \
    ts_conv_transpose_layer(x, name, 2, out, TS_FIRST_(__VA_ARGS__),                               \
                            TS_REST_(ts_conv_options, __VA_ARGS__))
#define ts_conv_transpose3d(x, name, out, ...)                                                     \
    ts_conv_transpose_layer(x, name, 3, out, TS_FIRST_(__VA_ARGS__),                               \
                            TS_REST_(ts_conv_options, __VA_ARGS__))
#define ts_max_pool1d(x, ...)                                                                      \
    ts_max_pool(x, 1, TS_FIRST_(__VA_ARGS__), TS_REST_(ts_pool_options, __VA_ARGS__))
#define ts_max_pool2d(x, ...)                                                                      \
    ts_max_pool(x, 2, TS_FIRST_(__VA_ARGS__), TS_REST_(ts_pool_options, __VA_ARGS__))
#define ts_max_pool3d(x, ...)                                                                      \
    ts_max_pool(x, 3, TS_FIRST_(__VA_ARGS__), TS_REST_(ts_pool_options, __VA_ARGS__))
#define ts_avg_pool1d(x, ...)                                                                      \
    ts_avg_pool(x, 1, TS_FIRST_(__VA_ARGS__), TS_REST_(ts_pool_options, __VA_ARGS__))
#define ts_avg_pool2d(x, ...)                                                                      \
    ts_avg_pool(x, 2, TS_FIRST_(__VA_ARGS__), TS_REST_(ts_pool_options, __VA_ARGS__))
#define ts_avg_pool3d(x, ...)                                                                      \
    ts_avg_pool(x, 3, TS_FIRST_(__VA_ARGS__), TS_REST_(ts_pool_options, __VA_ARGS__))
#define ts_batch_norm(x, ...)                                                                      \
    ts_batch_norm_layer(x, TS_FIRST_(__VA_ARGS__), TS_REST_(ts_norm_options, __VA_ARGS__))
#define ts_group_norm(x, name, ...)                                                                \
    ts_group_norm_layer(x, name, TS_FIRST_(__VA_ARGS__), TS_REST_(ts_norm_options, __VA_ARGS__))
#define ts_layer_norm(x, ...)                                                                      \
    ts_layer_norm_layer(x, TS_FIRST_(__VA_ARGS__), TS_REST_(ts_norm_options, __VA_ARGS__))

/* Of the last dim, whatever stands before it. */
TS_API ts_value *ts_linear(ts_value *x, const char *name, int64_t out);
TS_API ts_value *ts_linear_no_bias(ts_value *x, const char *name, int64_t out);
TS_API ts_value *ts_conv_layer(ts_value *x, const char *name, int spatial, int64_t out,
                               int64_t kernel, const ts_conv_options *o);
TS_API ts_value *ts_conv_transpose_layer(ts_value *x, const char *name, int spatial, int64_t out,
                                         int64_t kernel, const ts_conv_options *o);
TS_API ts_value *ts_max_pool(ts_value *x, int spatial, int64_t kernel, const ts_pool_options *o);
TS_API ts_value *ts_avg_pool(ts_value *x, int spatial, int64_t kernel, const ts_pool_options *o);
TS_API ts_value *ts_batch_norm_layer(ts_value *x, const char *name, const ts_norm_options *o);
TS_API ts_value *ts_group_norm_layer(ts_value *x, const char *name, int groups,
                                     const ts_norm_options *o);
TS_API ts_value *ts_layer_norm_layer(ts_value *x, const char *name, const ts_norm_options *o);
TS_API ts_value *ts_embedding_layer(ts_value *index, const char *name, int64_t rows, int64_t cols);

/* --- losses ----------------------------------------------------------------------------------- */

typedef enum ts_reduction { TS_REDUCTION_MEAN, TS_REDUCTION_SUM, TS_REDUCTION_NONE } ts_reduction;
typedef struct ts_loss_options {
    size_t size; /* as above */
    ts_reduction reduction;
    ts_value *weight;     /* nll, cross-entropy: per class; bce: per element      */
    ts_value *pos_weight; /* bce_with_logits                                      */
    bool has_ignore;      /* nll, cross-entropy: rows labelled ignore_index count nothing */
    int64_t ignore_index;
    double label_smoothing; /* cross-entropy */
    double beta;            /* smooth_l1; 0 means 1 */
    bool log_target;        /* kl_div */
} ts_loss_options;
/* ts_cross_entropy(scores, labels, .label_smoothing = 0.1): what is predicted, the target, and
 * options. A class is a number from 0 to C - 1. Nobody looks at them while a run goes on: one
 * outside, unless it is ignore_index, makes the loss NaN, and its sample adds nothing to the
 * gradient. */
#define TS_LOSS_(op, x, ...)                                                                       \
    ts_loss_o(op, x, TS_FIRST_(__VA_ARGS__), TS_REST_(ts_loss_options, __VA_ARGS__))
#define ts_nll_loss(x, ...)                                                                        \
    ts_nll_loss_o(x, TS_FIRST_(__VA_ARGS__), TS_REST_(ts_loss_options, __VA_ARGS__))
#define ts_cross_entropy(x, ...)                                                                   \
    ts_cross_entropy_o(x, TS_FIRST_(__VA_ARGS__), TS_REST_(ts_loss_options, __VA_ARGS__))
#define ts_mse_loss(x, ...)        TS_LOSS_("mse_loss", x, __VA_ARGS__)
#define ts_l1_loss(x, ...)         TS_LOSS_("l1_loss", x, __VA_ARGS__)
#define ts_smooth_l1_loss(x, ...)  TS_LOSS_("smooth_l1_loss", x, __VA_ARGS__)
#define ts_bce_loss(x, ...)        TS_LOSS_("binary_cross_entropy", x, __VA_ARGS__)
#define ts_bce_with_logits(x, ...) TS_LOSS_("binary_cross_entropy_with_logits", x, __VA_ARGS__)
#define ts_kl_div(x, ...)          TS_LOSS_("kl_div", x, __VA_ARGS__)
TS_API ts_value *ts_nll_loss_o(ts_value *logp, ts_value *target, const ts_loss_options *o);
TS_API ts_value *ts_cross_entropy_o(ts_value *logits, ts_value *target, const ts_loss_options *o);
TS_API ts_value *ts_loss_o(const char *op, ts_value *x, ts_value *target, const ts_loss_options *o);

#include "tessera/ops.h"

/* --- optimisers ------------------------------------------------------------------------------- */

typedef enum ts_optimizer_kind {
    TS_OPTIMIZER_SGD,
    TS_OPTIMIZER_ADAM,
    TS_OPTIMIZER_ADAMW,
    TS_OPTIMIZER_RMSPROP,
    TS_OPTIMIZER_LAMB,
    TS_OPTIMIZER_ADAGRAD,
    TS_OPTIMIZER_ADADELTA,
    TS_OPTIMIZER_ADAMAX,
    TS_OPTIMIZER_NADAM,
    TS_OPTIMIZER_RADAM,
    TS_OPTIMIZER_RPROP,
    TS_OPTIMIZER_ASGD,
    TS_OPTIMIZER_ADAFACTOR,
    TS_OPTIMIZER_MUON
} ts_optimizer_kind;

/* Muon: what the learning rate of a matrix of A rows and B columns is multiplied with. */
typedef enum ts_lr_adjust {
    TS_LR_ADJUST_ORIGINAL,          /* sqrt(max(1, A / B))    */
    TS_LR_ADJUST_MATCH_RMS_ADAMW,   /* 0.2 sqrt(max(A, B))    */
    TS_LR_ADJUST_SPECTRAL_UNCLAMPED /* sqrt(A / B)            */
} ts_lr_adjust;

/* Hyper-parameters of a group of parameters. Those that `variable` marks (one bit each, TS_HYPER_*)
 * can be changed between runs with ts_engine_set; the others are compiled in. */
typedef struct ts_hyper {
    double lr, momentum, dampening, weight_decay;
    double beta1, beta2, eps, alpha, max_weight_norm, velocity_scaling;
    bool nesterov;
    double lr_decay, initial_accumulator_value;     /* Adagrad                            */
    double momentum_decay;                          /* NAdam                              */
    double lambd, t0;                               /* ASGD                               */
    double eta_minus, eta_plus, step_min, step_max; /* Rprop                              */
    double beta2_decay, eps2, clip;                 /* Adafactor; its d is called clip    */
    double ns_a, ns_b, ns_c;                        /* Muon: of the Newton-Schulz steps   */
    int ns_steps;
    ts_lr_adjust adjust_lr;
    bool amsgrad;                /* Adam, AdamW: the greatest mean square so far counts        */
    bool maximize;               /* go up instead of down                                      */
    bool decoupled_weight_decay; /* Adam, NAdam, RAdam: decay as AdamW does                    */
} ts_hyper;
enum {
    TS_HYPER_LR = 1,
    TS_HYPER_MOMENTUM = 2,
    TS_HYPER_DAMPENING = 4,
    TS_HYPER_WEIGHT_DECAY = 8,
    TS_HYPER_BETAS = 16,
    TS_HYPER_EPS = 32,
    TS_HYPER_ALPHA = 64,
    TS_HYPER_MAX_WEIGHT_NORM = 128,
    TS_HYPER_LOSS_SCALING = 256,
    TS_HYPER_VELOCITY_SCALING = 512
};
typedef struct ts_group {
    const char *const *params; /* names; a name ending in '*' is a prefix                         */
    int nparams;
    ts_hyper hyper;
} ts_group;
typedef struct ts_optimizer {
    ts_optimizer_kind kind;
    ts_hyper hyper;         /* of every parameter in no group                     */
    const ts_group *groups; /* group i's variables are named like "lr.i" (from 1) */
    int ngroups;
    unsigned variable;     /* TS_HYPER_* bits; the constructors below mark lr    */
    double loss_scaling;   /* 1 */
    double max_grad_norm;  /* global L2 norm; 0: no clipping                      */
    double max_grad_value; /* clamp each element to +-value first; 0: no clipping */
    bool bias_correction, centered, tf_variant, combined_accum;
    ts_dtype accum_type, first_type, second_type; /* f32 or f16 storage of the state */
    /* The loss scale finds itself, starting with loss_scaling: it doubles with every update of the
     * weights, and halves when more than a share of the elements of all f16 gradients (of all, if
     * none is f16) are above an edge in magnitude; from 1 to 2^24, for an f16 loss to 2^15. With a
     * gradient that is infinite or no number it halves, and that update is not made: weights and
     * optimiser state stay. It is the state "loss_scaling". */
    bool automatic_scaling;
    double scaling_edge;  /* of the greatest f16, 65504; 0 means 0.125                    */
    double scaling_share; /* 0 means 1e-7                                                 */
    int scaling_period;   /* updates from one change of the scale to the next; 0 means 1  */
} ts_optimizer;
/* PyTorch's defaults for everything but the learning rate, which may change between runs. */
TS_API void ts_optimizer_init(ts_optimizer_kind kind, double lr, ts_optimizer *out, size_t size);
static inline ts_optimizer ts_optimizer_of(ts_optimizer_kind kind, double lr)
{
    ts_optimizer o;
    ts_optimizer_init(kind, lr, &o, sizeof(o));
    return o;
}
static inline ts_optimizer ts_sgd(double lr)
{
    return ts_optimizer_of(TS_OPTIMIZER_SGD, lr);
}
static inline ts_optimizer ts_adam(double lr)
{
    return ts_optimizer_of(TS_OPTIMIZER_ADAM, lr);
}
static inline ts_optimizer ts_adamw(double lr)
{
    return ts_optimizer_of(TS_OPTIMIZER_ADAMW, lr);
}
static inline ts_optimizer ts_rmsprop(double lr)
{
    return ts_optimizer_of(TS_OPTIMIZER_RMSPROP, lr);
}
static inline ts_optimizer ts_lamb(double lr)
{
    return ts_optimizer_of(TS_OPTIMIZER_LAMB, lr);
}
static inline ts_optimizer ts_adagrad(double lr)
{
    return ts_optimizer_of(TS_OPTIMIZER_ADAGRAD, lr);
}
static inline ts_optimizer ts_adadelta(double lr)
{
    return ts_optimizer_of(TS_OPTIMIZER_ADADELTA, lr);
}
static inline ts_optimizer ts_adamax(double lr)
{
    return ts_optimizer_of(TS_OPTIMIZER_ADAMAX, lr);
}
static inline ts_optimizer ts_nadam(double lr)
{
    return ts_optimizer_of(TS_OPTIMIZER_NADAM, lr);
}
static inline ts_optimizer ts_radam(double lr)
{
    return ts_optimizer_of(TS_OPTIMIZER_RADAM, lr);
}
static inline ts_optimizer ts_rprop(double lr)
{
    return ts_optimizer_of(TS_OPTIMIZER_RPROP, lr);
}
static inline ts_optimizer ts_asgd(double lr)
{
    return ts_optimizer_of(TS_OPTIMIZER_ASGD, lr);
}
static inline ts_optimizer ts_adafactor(double lr)
{
    return ts_optimizer_of(TS_OPTIMIZER_ADAFACTOR, lr);
}
static inline ts_optimizer ts_muon(double lr)
{
    return ts_optimizer_of(TS_OPTIMIZER_MUON, lr);
}

/* --- compile ---------------------------------------------------------------------------------- */

typedef enum ts_output_mode {
    TS_OUTPUT_DEFAULT,
    TS_OUTPUT_FINAL,
    TS_OUTPUT_ALL,
    TS_OUTPUT_SUM,
    TS_OUTPUT_EVERY_N
} ts_output_mode;
typedef enum ts_executor {
    TS_EXECUTOR_AUTO,
    TS_EXECUTOR_NATIVE,
    TS_EXECUTOR_REFERENCE
} ts_executor;

/* The blocks (ts_block_begin) that one device runs. What is in no block goes with the first stage.
 * A device may have several stages. */
typedef struct ts_stage {
    const char *const *blocks;
    int nblocks;
    int device;
    int phase; /* TS_SCHEDULE_PHASED: from 0, without gaps; several stages may be of one */
} ts_stage;
/* How the stages work together. The results are the same bits with each of them.
 *
 * Phased execution is for nets that do not fit: all devices do one phase after the other, forward
 * 0, 1, 2 and backward 2, 3, 4, and what is offloaded is on a device only in the phases that use
 * it, and while it is used again in the next one. The last phase forward is the first backward,
 * unless that is separate. With one device the memory that it needs is that of the largest phase;
 * with phases on even and odd devices in turns, two groups share it. */
typedef enum ts_schedule {
    TS_SCHEDULE_PIPELINED, /* different micro-batches at a time; forward and backward in turns */
    TS_SCHEDULE_SHARDED,   /* one micro-batch at a time, from device to device                 */
    TS_SCHEDULE_PHASED     /* one micro-batch at a time, phase after phase                     */
} ts_schedule;
/* What is kept in the host's memory and brought to the device when it is needed: bits of
 * ts_options.offload. */
enum {
    TS_OFFLOAD_OPTIMIZER = 1,    /* the optimiser's state */
    TS_OFFLOAD_WEIGHTS = 2,      /* parameters and buffers */
    TS_OFFLOAD_ACCUMULATORS = 4, /* gradients summed over micro-batches */
    TS_OFFLOAD_ACTIVATIONS = 8,  /* what the forward pass keeps for the backward pass, what a device
                                    gets from another, and what a phase leaves for later ones */
    TS_OFFLOAD_ALL = 15
};

/* What a device is. Those of a CPU and the models compute on this machine's cores; a model of an
 * IPU has an IPU's memory. TESSERA_DEVICE=gpu or opencl chooses one for programs that name none. */
typedef enum ts_device_kind {
    TS_DEVICE_CPU, /* a share of the machine's memory: what the other devices leave */
    TS_DEVICE_MK2, /* a model of a GC200: 1472 tiles of 624 KiB, 897 MiB            */
    TS_DEVICE_MK1, /* a model of an Mk1: 1216 tiles of 256 KiB, 304 MiB             */
    TS_DEVICE_GPU, /* an NVIDIA GPU: its driver and NVRTC are opened when it is asked for; doc/gpu.md */
    TS_DEVICE_OPENCL /* an OpenCL device                                            */
} ts_device_kind;
/* What a device of the kind has, in bytes; of TS_DEVICE_CPU, what all of them have together;
 * 0 when there is no such GPU. */
TS_API int64_t ts_device_memory(ts_device_kind kind);
/* A parameter or buffer with a value of its own for each group of replicas instead of one for all.
 * Its tensor is read and written with one dim more in front, the groups (of the replicas when
 * `read_all`; such a tensor can be written with a row for each group too), and so are the
 * optimiser's states of it. All groups start with the same value. The gradients of a group's
 * replicas are added up among them only; as for every parameter, a mean divides by the A * R
 * micro-batches of all replicas, which the loss is the mean of. */
typedef enum ts_grouping {
    TS_GROUPING_ALL,         /* one value for all, as without                           */
    TS_GROUPING_CONSECUTIVE, /* of 4 replicas in groups of 2: {0, 1}, {2, 3}            */
    TS_GROUPING_ORTHOGONAL,  /* {0, 2}, {1, 3}                                          */
    TS_GROUPING_NONE         /* each has its own: {0}, {1}, {2}, {3}                    */
} ts_grouping;
typedef struct ts_replica_group {
    const char *state; /* the parameter's name */
    ts_grouping grouping;
    int size;      /* replicas in a group; TS_GROUPING_ALL and TS_GROUPING_NONE need none  */
    bool read_all; /* reading gives a value for each replica, not for each group     */
} ts_replica_group;

/* All zero is a good default: inference, or with an optimizer, training. */
typedef struct ts_options {
    const ts_optimizer *optimizer; /* NULL: inference, the loss is an ordinary output       */
    int device_iterations;         /* D, 0 means 1                                          */
    int gradient_accumulation;     /* A, 0 means 1                                          */
    bool accumulate_sum;           /* reduce the A gradients by sum instead of mean         */
    bool accumulate_running;       /* keep a running mean: safe in half precision           */
    ts_output_mode output_mode;    /* default: Final for training, All for inference        */
    int output_period;             /* N of EveryN, counted in device iterations             */
    ts_executor executor;          /* AUTO: native, or reference where there is no compiler */
    const char *cache_dir;         /* NULL: $TESSERA_CACHE_DIR, $POPTORCH_CACHE_DIR, or the
                                      user's cache folder; "" turns the cache off           */
    int64_t cache_limit;           /* bytes, 0: 1 GiB                                       */
    const char *cc;                /* NULL: $TESSERA_CC, $CC or cc                          */
    const char *isa;               /* NULL: this machine; or "x86-64-v3", "portable", ...   */
    const char *skip;              /* passes not to run, by name: "fuse,layout"             */
    const char *dump_dir;          /* write the graph after each pass, and the plan, there   */
    bool no_winograd;              /* exact convolution only                                */
    const ts_stage *stages;        /* on which device each block runs; none: one device     */
    int nstages;
    int devices;              /* without stages: cut the net for so many devices, 0 means 1     */
    ts_schedule schedule;     /* of several devices, or phases                                  */
    bool separate_backward;   /* phased: the last phase runs forward, ends, and runs backward  */
    bool offload_by_pass;     /* phased: what is offloaded leaves after its last use in the forward
                                 or the backward pass, not after each phase                     */
    int queue_depth;          /* micro-batches that may wait between two devices, 0 means 2     */
    bool recompute;           /* training: the backward pass runs parts of the forward pass again
                                 instead of reading what was kept, with the same bits. In a
                                 pipeline all but a stage's inputs and ts_checkpoint()s; on one
                                 device and sharded, what lies before the last checkpoint       */
    bool stochastic_rounding; /* f16 and bf16 results, and weights and states after their update,
                                 are rounded up or down at random instead of to nearest: up as
                                 likely as the number is close to it, so right on average. The same
                                 seed gives the same bits                                       */
    int replicas;             /* data-parallel copies, their gradients reduced together; 0: 1   */
    int processes;            /* that train together, each with its replicas and buffers, such as
                                 a batch norm's statistics, of its own; 0: 1                    */
    const ts_replica_group *replica_groups; /* states that not all replicas share             */
    int nreplica_groups;
    unsigned offload;           /* TS_OFFLOAD_* bits                                              */
    int64_t offload_least[4];   /* elements of the smallest tensor of the optimiser, of weights, of
                                   accumulators and of activations that leaves; 0 means 2         */
    bool shard_optimizer;       /* each replica keeps and updates only its part of the optimiser's
                                   state; the same bits, but for stochastic rounding             */
    int64_t shard_least;        /* state of smaller tensors stays whole, in elements; 0: 8192     */
    ts_device_kind device_kind; /* what the devices are                                         */
    int64_t device_memory;      /* bytes a device has; a plan that needs more fails. 0: as many as
                                   the kind has                                                   */
    void (*progress)(void *arg, int percent); /* of the compilation: 0..100, -1: it failed  */
    void *progress_arg;
    /* Look at the result of every op: an infinity or a NaN in it that what it was made of did not
     * have (x / 0, log(-1), inf - inf, 0 * inf, an overflow), or a comparison with a NaN, fails
     * ts_engine_run with TS_ERR_NUMBER, which names the op and its line. The results of the run are
     * the same bits; it takes about twice as long. */
    bool exceptions;
    /* Of a graph that was built to be trained, the net alone: its loss, its updates and the inputs
     * that only those need are left out, batch norm takes its running statistics, dropout does
     * nothing. The states have the same names, so one graph compiles to an executable that trains
     * and one that infers. What is random otherwise is refused. */
    bool inference;
    /* A folder for profile.db (doc/profile.md): what the program is, written before it is compiled, so
     * also when it does not fit, and what the kernels of the first calls took, for which engines of
     * it add; and the times as trace.json. The results of a run are the same bits. */
    const char *profile;
    int profile_calls; /* of an engine that are timed, 0 means 10 */
} ts_options;

/* The fields of these structs by name: what each can be, and its line for people. doc/options.md is
 * the same as a page. */
typedef enum ts_record {
    TS_RECORD_OPTIONS,     /* ts_options     */
    TS_RECORD_RUN_OPTIONS, /* ts_run_options */
    TS_RECORD_OPTIMIZER,   /* ts_optimizer   */
    TS_RECORD_HYPER        /* ts_hyper       */
} ts_record;
typedef enum ts_option_kind {
    TS_OPTION_BOOL, /* "yes" or "no"                                                   */
    TS_OPTION_INT,  /* "8"; of an array, one for all or "2,2,8,2"                      */
    TS_OPTION_REAL, /* "0.001"                                                         */
    TS_OPTION_WORD, /* one of its words, or its number                                 */
    TS_OPTION_BITS, /* some of its words with commas, "all", "none", or their number   */
    TS_OPTION_TEXT, /* any; borrowed                                                   */
    TS_OPTION_DATA  /* a pointer or a struct: set in the struct, not by name           */
} ts_option_kind;
typedef struct ts_option {
    const char *name; /* of the field */
    ts_option_kind kind;
    int64_t low, high; /* INT: what it can be         */
    int64_t usual;     /* INT: what 0 means           */
    const char *words; /* WORD, BITS: with blanks     */
    bool program;      /* another value makes another program, found under another key */
    const char *about;
} ts_option;
/* The i-th field of a struct, NULL past the last; and by name, or NULL. */
TS_API const ts_option *ts_option_at(ts_record of, int i);
TS_API const ts_option *ts_option_find(ts_record of, const char *name);
/* A field from text, checked, and as text. `size` is that of the record. */
TS_API ts_status ts_record_set(ts_record of, void *record, size_t size, const char *name,
                               const char *value);
TS_API ts_status ts_record_get(ts_record of, const void *record, size_t size, const char *name,
                               char *out, size_t room);
static inline ts_status ts_options_set(ts_options *o, const char *name, const char *value)
{
    return ts_record_set(TS_RECORD_OPTIONS, o, sizeof(*o), name, value);
}
static inline ts_status ts_optimizer_set(ts_optimizer *o, const char *name, const char *value)
{
    return ts_record_set(TS_RECORD_OPTIMIZER, o, sizeof(*o), name, value);
}
static inline ts_status ts_hyper_set(ts_hyper *h, const char *name, const char *value)
{
    return ts_record_set(TS_RECORD_HYPER, h, sizeof(*h), name, value);
}

typedef struct ts_executable ts_executable;

TS_API ts_status ts_compile_sized(const ts_graph *g, const ts_options *opt, size_t size,
                                  size_t optimizer_size, ts_executable **out);
static inline ts_status ts_compile(const ts_graph *g, const ts_options *opt, ts_executable **out)
{
    return ts_compile_sized(g, opt, sizeof(ts_options), sizeof(ts_optimizer), out);
}
TS_API void ts_executable_free(ts_executable *x);
/* One file with all that a run needs. Loading checks every byte of it, but what it holds is a
 * program: load files from those whose programs you would run. */
TS_API ts_status ts_executable_save(const ts_executable *x, const char *path);
TS_API ts_status ts_executable_load(const char *path, ts_executable **out);
/* What is inside: one line a fact (versions, ISA, inputs, outputs, parameters, memory plan,
 * kernels). Borrowed from x. */
TS_API const char *ts_executable_inspect(const ts_executable *x);
/* The generated C, or NULL for the reference executor. Borrowed. */
TS_API const char *ts_executable_source(const ts_executable *x);

typedef struct ts_tensor_info {
    const char *name;
    ts_dtype dtype;
    int rank;
    int64_t dims[TS_MAX_RANK]; /* inputs, outputs: of one micro-batch */
    size_t bytes;
} ts_tensor_info;
typedef enum ts_role { TS_ROLE_INPUT, TS_ROLE_OUTPUT, TS_ROLE_STATE } ts_role;
/* The i-th input, output or state (weights, buffers, optimiser state, hyper-parameters); NULL past
 * the last. */
TS_API const ts_tensor_info *ts_executable_tensor(const ts_executable *x, ts_role role, int i);

typedef struct ts_stats {
    double compile_seconds; /* of ts_compile, whole           */
    bool from_cache;
    bool native;        /* false: the reference executor  */
    size_t state_bytes; /* always live                    */
    size_t peak_bytes;  /* the plan's block, state included */
    double flops;       /* of one micro-batch             */
    int kernels;
} ts_stats;
TS_API void ts_executable_stats_sized(const ts_executable *x, ts_stats *out, size_t size);
static inline ts_stats ts_executable_stats(const ts_executable *x)
{
    ts_stats out;
    ts_executable_stats_sized(x, &out, sizeof(out));
    return out;
}
/* What ts_compile would plan, without the C compiler and the cache: flops, kernels,
 * exact memory. */
TS_API ts_status ts_estimate_sized(const ts_graph *g, const ts_options *opt, size_t size,
                                   size_t optimizer_size, ts_stats *out, size_t out_size);
static inline ts_status ts_estimate(const ts_graph *g, const ts_options *opt, ts_stats *out)
{
    return ts_estimate_sized(g, opt, sizeof(ts_options), sizeof(ts_optimizer), out, sizeof(*out));
}

/* --- run -------------------------------------------------------------------------------------- */

typedef struct ts_engine ts_engine;
/* Processes that train together, as ts_options.processes says. `sum` replaces data by the sum of
 * all processes' data, added in the order of their ranks: the same bits everywhere. `copy` replaces
 * it by process 0's; it may be NULL. All processes make the same calls in the same order. */
typedef struct ts_comm {
    int rank, size;
    ts_status (*sum)(void *self, ts_dtype t, void *data, int64_t count);
    void *self;
    ts_status (*copy)(void *self, void *data, size_t bytes);
} ts_comm;
/* The processes that mpirun or srun started together, over MPI, which is loaded here and nowhere
 * else; started by neither, this process alone, of size 1. A process that does not answer fails the
 * call with TS_ERR_PROCESS: one of the same machine when it has ended, another after
 * $TESSERA_COMM_TIMEOUT seconds (1800; 0: never). MPI ends with the program: exit status 0 waits
 * for the others, another one ends them all. Close it after the engines that use it. */
TS_API ts_status ts_comm_open(ts_comm **out);
TS_API void ts_comm_close(ts_comm *c);
/* Which of how many this process is by the launcher's environment; loads nothing. */
TS_API void ts_comm_place(int *rank, int *size);

typedef struct ts_attachment ts_attachment; /* see tessera/device.h */

/* What ts_host_call and ts_tap call: takes the addresses of the call's values, fills in the results
 * (out is NULL for a tap). Runs in the middle of a step, which waits for it, on a thread of the
 * engine's choice, one call at a time; it must not use the engine. Anything but TS_OK is what
 * ts_engine_run returns. */
typedef ts_status ts_host_fn(void *arg, int id, const void *const *in, void *const *out);
typedef struct ts_run_options {
    /* 0: up to $OMP_NUM_THREADS, else the cores this process may use; fewer of them work while that
     * is faster, because other programs need the cores. The results do not depend on it. */
    int threads;
    uint64_t seed;
    const ts_comm *comm; /* NULL: this process alone */
    ts_host_fn *host;    /* for a graph that calls it */
    void *host_arg;
    ts_attachment *devices; /* NULL: the engine attaches its own */
} ts_run_options;

/* Makes the device block and the initial parameters. The engine shares x: which of the two is freed
 * first does not matter. With a comm, all processes make this call together, and it fails where one
 * has another program than process 0. */
TS_API ts_status ts_engine_new_sized(const ts_executable *x, const ts_run_options *opt, size_t size,
                                     ts_engine **out);
static inline ts_status ts_engine_new(const ts_executable *x, const ts_run_options *opt,
                                      ts_engine **out)
{
    return ts_engine_new_sized(x, opt, sizeof(*opt), out);
}
TS_API void ts_engine_free(ts_engine *e);
/* One call: D device iterations of A micro-batches for each of R replicas. in[i] points to D*A*R
 * micro-batches of input i, in this order: a micro-batch for each replica, then the next for each.
 * out[i] takes what the output mode returns of output i, ts_engine_slots() micro-batches in the
 * same order (NULL: not wanted). The loss, if any, is the last output. Allocates nothing. */
TS_API ts_status ts_engine_run(ts_engine *e, const void *const *in, void *const *out);
/* When the last run took the inputs of each micro-batch, had computed it, and had given its outputs
 * to the caller: seconds of the monotonic clock. One row for each of the D*A micro-batches, zeros
 * before the first run; the engine's memory. */
typedef struct ts_times {
    double begun, computed, given;
} ts_times;
TS_API const ts_times *ts_engine_times(const ts_engine *e, int *count);
/* How many micro-batch results a run returns for each output, those of all replicas counted: R for
 * Final and Sum, D*A*R for All, D/N*A*R for EveryN. */
TS_API int ts_engine_slots(const ts_engine *e);
/* State by name, in PyTorch's layout: weights, buffers, "fc.weight.momentum", "lr", ... */
TS_API ts_status ts_engine_read(const ts_engine *e, const char *name, void *data, size_t bytes);
TS_API ts_status ts_engine_write(ts_engine *e, const char *name, const void *data, size_t bytes);
TS_API ts_status ts_engine_set(ts_engine *e, const char *hyper, double value);
/* The random generator: seed, and how many micro-batches it has served. */
TS_API void ts_engine_rng(const ts_engine *e, uint64_t *seed, uint64_t *step);
TS_API void ts_engine_set_rng(ts_engine *e, uint64_t seed, uint64_t step);
TS_API int ts_engine_threads(const ts_engine *e);
/* Weights, buffers, the optimiser's state and the random generator as process 0 has them, in all
 * processes of the engine's comm, which call this together. Alone, it does nothing. */
TS_API ts_status ts_engine_copy(ts_engine *e);

/* What the devices of a pipeline did when. The trace keeps the first `capacity` events from here
 * on; 0 turns it off. */
typedef struct ts_trace_event {
    int replica, device, section;
    bool update;         /* the weight update, not a micro-batch */
    int64_t micro_batch; /* of the call */
    double start, end;   /* seconds, from a point in the past */
} ts_trace_event;
TS_API ts_status ts_engine_trace(ts_engine *e, int capacity);
TS_API const ts_trace_event *ts_engine_events(const ts_engine *e, int *count);

/* For an executable with ts_options.profile: adds what the host did, as "loader" or "callback", by the
 * monotonic clock, in seconds; and ends the measuring before all calls are over, saying whether
 * everything was written. Without a profile they do nothing. */
TS_API void ts_engine_note(ts_engine *e, const char *kind, const char *name, double start,
                           double end);
TS_API ts_status ts_engine_profile(ts_engine *e);

/* One call for the usual case: n samples in memory, shuffled by the seed, trained for some epochs.
 * data[i] holds n samples of input i one after the other; every input has the batch as its first
 * dim. Samples that do not fill a last call of an epoch are left out. */
typedef struct ts_train_options {
    int epochs;    /* 0 means 1 */
    uint64_t seed; /* shuffles  */
    bool no_shuffle;
    /* after each call of the engine; return false to stop */
    bool (*report)(void *arg, int epoch, int64_t step, int64_t steps, double loss);
    void *arg;
} ts_train_options;
/* last_loss, unless NULL, takes the mean of the losses that the last call returned. */
TS_API ts_status ts_train_sized(ts_engine *e, int64_t n, const void *const *data,
                                const ts_train_options *opt, size_t size, double *last_loss);
static inline ts_status ts_train(ts_engine *e, int64_t n, const void *const *data,
                                 const ts_train_options *opt, double *last_loss)
{
    return ts_train_sized(e, n, data, opt, sizeof(*opt), last_loss);
}

/* --- source lines -----------------------------------------------------------------------------
 * A call that makes nodes notes the line it stands on, so that an error can name it. Define
 * TS_NO_LOCATIONS before including this header to do without, or to call ts_here yourself. */
#ifndef TS_NO_LOCATIONS
/* clang-format off */
#define ts_apply(...)                 TS_AT_(ts_apply(__VA_ARGS__))
#define ts_result(...)                TS_AT_(ts_result(__VA_ARGS__))
#define ts_input_n(...)               TS_AT_(ts_input_n(__VA_ARGS__))
#define ts_const_n(...)               TS_AT_(ts_const_n(__VA_ARGS__))
#define ts_full_n(...)                TS_AT_(ts_full_n(__VA_ARGS__))
#define ts_scalar(...)                TS_AT_(ts_scalar(__VA_ARGS__))
#define ts_param_n(...)               TS_AT_(ts_param_n(__VA_ARGS__))
#define ts_buffer_n(...)              TS_AT_(ts_buffer_n(__VA_ARGS__))
#define ts_add_scalar(...)            TS_AT_(ts_add_scalar(__VA_ARGS__))
#define ts_mul_scalar(...)            TS_AT_(ts_mul_scalar(__VA_ARGS__))
#define ts_cast(...)                  TS_AT_(ts_cast(__VA_ARGS__))
#define ts_chunk(...)                 TS_AT_(ts_chunk(__VA_ARGS__))
#define ts_for_loop(...)              TS_AT_(ts_for_loop(__VA_ARGS__))
#define ts_cond(...)                  TS_AT_(ts_cond(__VA_ARGS__))
#define ts_host_call(...)             TS_AT_(ts_host_call(__VA_ARGS__))
#define ts_host_op(...)               TS_AT_(ts_host_op(__VA_ARGS__))
#define ts_tap(...)                   TS_AT_(ts_tap(__VA_ARGS__))
#define ts_pad(...)                   TS_AT_(ts_pad(__VA_ARGS__))
#define ts_embedding(...)             TS_AT_(ts_embedding(__VA_ARGS__))
#define ts_one_hot(...)               TS_AT_(ts_one_hot(__VA_ARGS__))
#define ts_attention(...)             TS_AT_(ts_attention(__VA_ARGS__))
#define ts_rand_n(...)                TS_AT_(ts_rand_n(__VA_ARGS__))
#define ts_randn_n(...)               TS_AT_(ts_randn_n(__VA_ARGS__))
#define ts_linear(...)                TS_AT_(ts_linear(__VA_ARGS__))
#define ts_linear_no_bias(...)        TS_AT_(ts_linear_no_bias(__VA_ARGS__))
#define ts_conv_layer(...)            TS_AT_(ts_conv_layer(__VA_ARGS__))
#define ts_conv_transpose_layer(...)  TS_AT_(ts_conv_transpose_layer(__VA_ARGS__))
#define ts_max_pool(...)              TS_AT_(ts_max_pool(__VA_ARGS__))
#define ts_avg_pool(...)              TS_AT_(ts_avg_pool(__VA_ARGS__))
#define ts_batch_norm_layer(...)      TS_AT_(ts_batch_norm_layer(__VA_ARGS__))
#define ts_group_norm_layer(...)      TS_AT_(ts_group_norm_layer(__VA_ARGS__))
#define ts_layer_norm_layer(...)      TS_AT_(ts_layer_norm_layer(__VA_ARGS__))
#define ts_embedding_layer(...)       TS_AT_(ts_embedding_layer(__VA_ARGS__))
#define ts_nll_loss_o(...)            TS_AT_(ts_nll_loss_o(__VA_ARGS__))
#define ts_cross_entropy_o(...)       TS_AT_(ts_cross_entropy_o(__VA_ARGS__))
#define ts_loss_o(...)                TS_AT_(ts_loss_o(__VA_ARGS__))
#define ts_assign(...)                TS_AT_(ts_assign(__VA_ARGS__))
#define ts_output(...)                TS_AT_(ts_output(__VA_ARGS__))
#define ts_loss(...)                  TS_AT_(ts_loss(__VA_ARGS__))
/* clang-format on */
#endif

#ifdef __cplusplus
}
#endif
#endif
