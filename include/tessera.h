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
 * What _new, _load and ts_compile give you, you free. Anything else belongs to its owner: a value
 * to its graph, an error to its thread.
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
template <class T> const T *ts_address_of_(const T &options)
{
    return &options;
}
extern "C" {
#endif

#define TS_VERSION  "0.1.0"
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

/* ts_input(g, "x", TS_F32, 16, 1, 28, 28): what a run feeds, in the order of these calls.
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
 * live as long as the call. ISO C wants something for every "..." and between every pair of braces:
 * the options' `unused`. C++ has no compound literals, and designators since C++20. */
#define TS_FIRST_(...)                TS_FIRST_OF_(__VA_ARGS__, 0)
#define TS_FIRST_OF_(first, ...)      first
#define TS_REST_OF_(type, first, ...) TS_OPTIONS_(type, __VA_ARGS__)
#ifdef __cplusplus
#define TS_DIMS_(...)                                                                              \
    static_cast<int>(std::initializer_list<int64_t>{__VA_ARGS__}.size()),                          \
        std::initializer_list<int64_t>{__VA_ARGS__}.begin()
#define TS_REST_(type, ...)    TS_REST_OF_(type, __VA_ARGS__, )
#define TS_OPTIONS_(type, ...) ts_address_of_(type{__VA_ARGS__})
#else
#define TS_DIMS_(...)                                                                              \
    (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (const int64_t[])                   \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }
#define TS_REST_(type, ...)    TS_REST_OF_(type, __VA_ARGS__, .unused = 0)
#define TS_OPTIONS_(type, ...) (&(type){__VA_ARGS__})
#endif
#define ts_input(g, name, t, ...)        ts_input_n(g, name, t, TS_DIMS_(__VA_ARGS__))
#define ts_const(g, t, data, ...)        ts_const_n(g, t, data, TS_DIMS_(__VA_ARGS__))
#define ts_full(g, t, value, ...)        ts_full_n(g, t, value, TS_DIMS_(__VA_ARGS__))
#define ts_param(g, name, t, init, ...)  ts_param_n(g, name, t, init, TS_DIMS_(__VA_ARGS__))
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
/* x itself, which the host sees as `id`; in training it also sees the gradient of the result as
 * `gradient` (-1: not). */
TS_API ts_value *ts_tap(ts_value *x, int id, int gradient);
TS_API ts_value *ts_embedding(ts_value *index, ts_value *weight);
TS_API ts_value *ts_one_hot(ts_value *index, int64_t classes, ts_dtype t);
/* softmax(q k^T / sqrt(d) + mask) v over the last two dims; mask may be NULL, or bools that are
 * true where there is something to see. */
TS_API ts_value *ts_attention(ts_value *q, ts_value *k, ts_value *v, ts_value *mask);

/* Uniform in [0,1) and standard normal; numbers depend on the seed, the node and the element only.
 */
TS_API ts_value *ts_rand_n(ts_graph *g, ts_dtype t, int rank, const int64_t *dims);
TS_API ts_value *ts_randn_n(ts_graph *g, ts_dtype t, int rank, const int64_t *dims);
#define ts_rand(g, t, ...)  ts_rand_n(g, t, TS_DIMS_(__VA_ARGS__))
#define ts_randn(g, t, ...) ts_randn_n(g, t, TS_DIMS_(__VA_ARGS__))

/* --- layers: ops with named parameters and PyTorch's default initialisation --------------------
 */

typedef struct ts_conv_options {
    int stride, padding, dilation, groups; /* 0 means PyTorch's default: 1, 0, 1, 1 */
    int output_padding;                    /* transposed only                       */
    bool no_bias;
    bool unused; /* for the macros below */
} ts_conv_options;
typedef struct ts_pool_options {
    int stride, padding; /* stride 0: the kernel */
    bool ceil_mode, exclude_pad;
    bool unused; /* for the macros below */
} ts_pool_options;
typedef struct ts_norm_options {
    double eps, momentum; /* 0: 1e-5 and 0.1 */
    bool no_affine;
    bool inference; /* batch norm: use the running statistics and do not update them */
    bool unused;    /* for the macros below */
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

/* --- losses ------------------------------------------------------------------------------------
 */

typedef enum ts_reduction { TS_MEAN, TS_SUM, TS_NONE } ts_reduction;
typedef struct ts_loss_options {
    ts_reduction reduction;
    ts_value *weight;     /* nll, cross-entropy: per class; bce: per element      */
    ts_value *pos_weight; /* bce_with_logits                                      */
    bool has_ignore;      /* nll, cross-entropy: rows labelled ignore_index count nothing */
    int64_t ignore_index;
    double label_smoothing; /* cross-entropy */
    double beta;            /* smooth_l1; 0 means 1 */
    bool log_target;        /* kl_div */
    bool unused;            /* for the macros below */
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

/* --- optimisers --------------------------------------------------------------------------------
 */

typedef enum ts_optimizer_kind { TS_SGD, TS_ADAM, TS_ADAMW, TS_RMSPROP, TS_LAMB } ts_optimizer_kind;

/* Hyper-parameters of a group of parameters. Those that `variable` marks (one bit each, TS_HYPER_*)
 * can be changed between runs with ts_engine_set; the others are compiled in. */
typedef struct ts_hyper {
    double lr, momentum, dampening, weight_decay;
    double beta1, beta2, eps, alpha, max_weight_norm, velocity_scaling;
    bool nesterov;
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
TS_API ts_optimizer ts_sgd(double lr);
TS_API ts_optimizer ts_adam(double lr);
TS_API ts_optimizer ts_adamw(double lr);
TS_API ts_optimizer ts_rmsprop(double lr);
TS_API ts_optimizer ts_lamb(double lr);

/* --- compile -----------------------------------------------------------------------------------
 */

typedef enum ts_output_mode {
    TS_OUT_DEFAULT,
    TS_OUT_FINAL,
    TS_OUT_ALL,
    TS_OUT_SUM,
    TS_OUT_EVERY_N
} ts_output_mode;
typedef enum ts_executor { TS_EXEC_AUTO, TS_EXEC_NATIVE, TS_EXEC_REFERENCE } ts_executor;

/* The blocks (ts_block_begin) that one device runs. What is in no block goes with the first stage.
 * A device may have several stages. */
typedef struct ts_stage {
    const char *const *blocks;
    int nblocks;
    int device;
    int phase; /* TS_PHASED: from 0, without gaps; several stages may be of one */
} ts_stage;
/* How the stages work together. The results are the same bits with each of them.
 *
 * Phased execution is for nets that do not fit: all devices do one phase after the other, forward
 * 0, 1, 2 and backward 2, 3, 4, and what is offloaded is on a device only in the phases that use
 * it, and while it is used again in the next one. The last phase forward is the first backward,
 * unless that is separate. With one device the memory that it needs is that of the largest phase;
 * with phases on even and odd devices in turns, two groups share it. */
typedef enum ts_schedule {
    TS_PIPELINED, /* different micro-batches at a time; forward and backward in turns          */
    TS_SHARDED,   /* one micro-batch at a time, from device to device                          */
    TS_PHASED     /* one micro-batch at a time, phase after phase                              */
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

/* What a device is. All of them compute on this machine's cores; a model of an IPU has an IPU's
 * memory.
 */
typedef enum ts_device_kind {
    TS_DEVICE_CPU, /* a share of the machine's memory: what the other devices leave */
    TS_DEVICE_MK2, /* a model of a GC200: 1472 tiles of 624 KiB, 897 MiB            */
    TS_DEVICE_MK1  /* a model of an Mk1: 1216 tiles of 256 KiB, 304 MiB             */
} ts_device_kind;
/* What a device of the kind has, in bytes; of TS_DEVICE_CPU, what all of them have together. */
TS_API int64_t ts_device_memory(ts_device_kind kind);
/* A parameter or buffer with a value of its own for each group of replicas instead of one for all.
 * Its tensor is read and written with one dim more in front, the groups (of the replicas when
 * `read_all`; such a tensor can be written with a row for each group too), and so are the
 * optimiser's states of it. All groups start with the same value. The gradients of a group's
 * replicas are reduced among them only: their mean is that of its A * size micro-batches, so
 * replicas without groups in common train as runs of their own would. */
typedef enum ts_grouping {
    TS_GROUP_ALL,         /* one value for all, as without                           */
    TS_GROUP_CONSECUTIVE, /* of 4 replicas in groups of 2: {0, 1}, {2, 3}            */
    TS_GROUP_ORTHOGONAL,  /* {0, 2}, {1, 3}                                          */
    TS_GROUP_NONE         /* each has its own: {0}, {1}, {2}, {3}                    */
} ts_grouping;
typedef struct ts_replica_group {
    const char *state; /* the parameter's name */
    ts_grouping grouping;
    int size;      /* replicas in a group; TS_GROUP_ALL and TS_GROUP_NONE need none  */
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
} ts_options;

typedef struct ts_executable ts_executable;

TS_API ts_status ts_compile(const ts_graph *g, const ts_options *opt, ts_executable **out);
/* For ts_options.progress: a bar on stderr, like those of ts_bar_open. */
TS_API void ts_progress_bar(void *arg, int percent);
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
TS_API ts_stats ts_executable_stats(const ts_executable *x);
/* What ts_compile would plan, without the C compiler and the cache: flops, kernels, exact memory.
 */
TS_API ts_status ts_estimate(const ts_graph *g, const ts_options *opt, ts_stats *out);

/* The same in detail: what each device and each layer needs, and who runs what when. Nothing is
 * compiled, and the memory of a device is no limit here. */
typedef struct ts_plan_device {
    int64_t states,
        peak;        /* bytes: always live; with the working memory, as many as the block has */
    double seconds;  /* of a micro-batch, modelled on one core */
    double share;    /* of the work of all, of 1 */
    int64_t sharded; /* bytes of optimiser state that other replicas keep instead */
} ts_plan_device;
typedef struct ts_plan_section { /* what a device does of a micro-batch without waiting */
    int device, kernels;
    int phase;          /* phased: its number; the backward pass counts on. 0 else */
    char kind;          /* F forward, B backward, X both, U the weight update */
    const char *blocks; /* "B1 B2", or "" */
    double seconds;
} ts_plan_section;
typedef struct ts_plan_move { /* between the host's memory and a device, in the order of a run */
    int section;
    unsigned what;    /* a TS_OFFLOAD_* bit */
    bool load;        /* to the device; else to the host */
    const char *name; /* of the state or the layer */
    int64_t bytes;
} ts_plan_move;
typedef struct ts_plan_send { /* what is copied to another device when a section is done */
    int section, from, to;
    const char *name; /* of the state or the layer */
    bool state;
    bool host;     /* into the host's memory, from where the other device loads it */
    int depth;     /* micro-batches of it that can wait there */
    int64_t bytes; /* of one */
} ts_plan_send;
typedef struct ts_plan_layer {
    const char *name, *block; /* "" for none */
    int device;
    int64_t parameters;  /* elements of trained weights                                   */
    int64_t states;      /* bytes: weights, buffers, what the optimiser keeps             */
    int64_t activations; /* bytes kept for the backward pass, of all micro-batches under way */
    double flops;        /* forward and backward, of a micro-batch */
} ts_plan_layer;
typedef struct ts_plan_info {
    int ndevices, nsections, nsends, nlayers, nmoves;
    const ts_plan_device *devices;
    const ts_plan_section *sections;
    const ts_plan_send *sends;
    const ts_plan_move *moves;
    const ts_plan_layer *layers; /* in the order of their work */
    bool sharded;
    int phases;                  /* of the forward pass; 0: not phased */
    int64_t host;                /* bytes in the host's memory, of a replica */
    int replicas, micro_batches; /* of an iteration */
    double bubble;               /* idle share of the devices' time, modelled */
    const char *schedule;        /* drawn: a row for each device, a column for each step */
} ts_plan_info;
TS_API ts_status ts_plan_new(const ts_graph *g, const ts_options *opt, ts_plan_info **out);
TS_API void ts_plan_free(ts_plan_info *p);

/* --- run ---------------------------------------------------------------------------------------
 */

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

typedef struct ts_attachment ts_attachment; /* see devices, below */

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
TS_API ts_status ts_engine_new(const ts_executable *x, const ts_run_options *opt, ts_engine **out);
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

/* One call for the usual case: n samples in memory, shuffled by the seed, trained for some epochs.
 * data[i] holds n samples of input i one after the other; every input has the batch as its first
 * dim. Samples that do not fill a last call of an epoch are left out. */
typedef struct ts_train_options {
    int epochs;         /* 0 means 1 */
    ts_run_options run; /* the seed shuffles; the engine has its threads already */
    bool no_shuffle;
    /* after each call of the engine; return false to stop */
    bool (*report)(void *arg, int epoch, int64_t step, int64_t steps, double loss);
    void *arg;
} ts_train_options;
/* last_loss, unless NULL, takes the mean of the losses that the last call returned. */
TS_API ts_status ts_train(ts_engine *e, int64_t n, const void *const *data,
                          const ts_train_options *opt, double *last_loss);

/* --- devices -----------------------------------------------------------------------------------
 * The machine's virtual devices, and who uses them. A device is an id and a block of memory; those
 * of one machine share its cores. An engine attaches the devices it needs when it is made: those
 * its process has, else the first that nobody uses. `tessera monitor` shows them. The processes of
 * a user know of each other by small files in $XDG_RUNTIME_DIR/tessera or /tmp/tessera-UID; those
 * of processes that died count nothing. TESSERA_MONITOR=0 keeps a process out of it. */

typedef struct ts_attach_options {
    int count;      /* of devices; 0 means 1                                             */
    const int *ids; /* count of them; NULL: the first that nobody uses                   */
    bool exclusive; /* no other process may have them, now and while they are attached   */
    double wait;    /* seconds to wait until they are free; negative: as long as it takes */
} ts_attach_options;
/* For engines to come (ts_run_options.devices), or to keep others away. $TESSERA_DEVICES, unless 0,
 * is how many devices there are; else any number can be asked for. */
TS_API ts_status ts_device_attach(const ts_attach_options *opt, ts_attachment **out);
TS_API void ts_device_detach(ts_attachment *a); /* engines that use it keep it until freed */
TS_API int ts_device_id(const ts_attachment *a, int i); /* of its i-th device; -1 past the last */
TS_API int ts_device_count(void);                       /* 0: any number */

typedef struct ts_device_use { /* a process and one of its devices */
    int device;
    int64_t pid;
    char command[128], user[64];
    double seconds; /* since it was attached          */
    double busy;    /* of these, that it worked       */
    int64_t memory; /* bytes of it that are taken     */
    int64_t calls;  /* of engines, or sections done   */
    bool exclusive;
} ts_device_use;
/* All that are attached now, by process and device; free(*uses). Nobody is no error. */
TS_API ts_status ts_device_list(ts_device_use **uses, int *count);

/* --- models ------------------------------------------------------------------------------------
 * A net as a text of a few lines, by name or from a file; doc/models.md describes the language.
 *
 *   ts_model_load("classifier", &m);
 *   ts_model_graph(m, &(ts_model_options){.batch = 16, .training = true}, &g);
 *
 * The graph's input is "images"; its output is "scores". Training adds the loss and, by its kind,
 * the input "labels" (classes as i32) or "targets" (the output's shape). */
typedef struct ts_model ts_model;
typedef struct ts_model_options {
    int64_t batch;       /* 0: 1 */
    int rank;            /* of one sample; 0: the shape that the description says */
    const int64_t *dims; /* its sizes */
    int64_t classes;     /* 0: what the description says */
    bool training;       /* with loss, dropout and batch statistics */
} ts_model_options;

TS_API ts_status ts_model_load(const char *name_or_path, ts_model **out);
/* `file` is for the messages and, without folder and suffix, the model's name. */
TS_API ts_status ts_model_parse(const char *text, const char *file, ts_model **out);
TS_API void ts_model_free(ts_model *m);
TS_API ts_status ts_model_graph(const ts_model *m, const ts_model_options *o, ts_graph **out);

/* The i-th model that has a name; NULL past the last. */
TS_API const char *ts_model_builtin(int i);
TS_API const char *ts_model_name(const ts_model *m);
TS_API const char *ts_model_text(const ts_model *m);  /* the description as it was read   */
TS_API const char *ts_model_about(const ts_model *m); /* the comment it begins with, or "" */
/* Writes the sizes of one sample and returns their number. */
TS_API int ts_model_input(const ts_model *m, int64_t dims[TS_MAX_RANK]);
TS_API int64_t ts_model_classes(const ts_model *m); /* 0: the description does not say */
TS_API int64_t ts_model_parameters(const ts_model *m);

typedef struct ts_model_layer {
    const char *name, *kind, *block; /* "" for none; of the model */
    int line;
    int rank; /* of the result, with the batch */
    int64_t dims[TS_MAX_RANK];
    int64_t parameters; /* trained */
    double flops;       /* forward */
} ts_model_layer;
/* One for each layer in order; free(*layers). */
TS_API ts_status ts_model_layers(const ts_model *m, const ts_model_options *o,
                                 ts_model_layer **layers, int *count);

/* --- the machine and the cache -----------------------------------------------------------------
 */

typedef struct ts_machine_info {
    char processor[128]; /* its name, or "" */
    int cores;           /* online                                                    */
    int allowed;         /* of these, by the process's affinity                       */
    double quota;        /* cores' worth of time by the control group; 0: no limit    */
    int threads;         /* what an engine takes by default                           */
    const char *isa;     /* what is compiled for by default; "" when TESSERA_ISA is not known */
    int64_t level1, level2, level3; /* bytes of the data caches; 0: not known         */
    int64_t memory, available;      /* bytes; 0: not known                            */
    char compiler[256];             /* its command and version; "" when there is none */
} ts_machine_info;
TS_API void ts_machine(ts_machine_info *out);

typedef struct ts_cache_entry {
    char file[64];     /* its name in the folder                     */
    char model[64];    /* of the executable in it, or ""             */
    char problem[256]; /* why it is not used any more, or ""         */
    int64_t bytes;
    int64_t used; /* when it was made or last used: seconds since 1970 */
} ts_cache_entry;
/* In these calls dir is as ts_options.cache_dir. The folder as a path; "" when the cache is off. */
TS_API ts_status ts_cache_folder(const char *dir, char *path, size_t size);
TS_API int64_t ts_cache_limit(void); /* bytes it may hold by default */
/* All that is in it, the last used first; free(*entries). No folder is no entry. */
TS_API ts_status ts_cache_list(const char *dir, ts_cache_entry **entries, int *count);
TS_API ts_status ts_cache_remove(const char *dir, const char *file);

/* --- files: checkpoints and arrays -------------------------------------------------------------
 * What is kept between runs is a tree of plain data: numbers, text, tensors, and lists, tuples and
 * dicts of them. It reads from and writes to PyTorch's, safetensors' and NumPy's files:
 *
 *   ts_object *o;
 *   if (ts_load("model.pth", &o))
 *       fputs(ts_error_text(), stderr);
 *   const ts_array *w = ts_object_array(ts_object_get(o, "fc.weight"));
 *   ...
 *   ts_object_free(o);
 *
 * Reading runs no code: a checkpoint that asks for more than tensors and plain data is refused by
 * the name of what it asks for. */

typedef enum ts_kind {
    TS_KIND_NONE,
    TS_KIND_BOOL,
    TS_KIND_INT,   /* 64 bits                                          */
    TS_KIND_FLOAT, /* a double                                         */
    TS_KIND_TEXT,  /* UTF-8                                            */
    TS_KIND_LIST,
    TS_KIND_TUPLE,
    TS_KIND_DICT, /* in the order of insertion; keys are text or ints */
    TS_KIND_TENSOR
} ts_kind;
typedef struct ts_object ts_object; /* a value of such a tree, with all below it */

/* Making: NULL when there is no memory or the argument is wrong; ts_last_error() says which. */
TS_API ts_object *ts_object_new_none(void);
TS_API ts_object *ts_object_new_bool(bool value);
TS_API ts_object *ts_object_new_int(int64_t value);
TS_API ts_object *ts_object_new_float(double value);
TS_API ts_object *ts_object_new_text(const char *text); /* copied */
TS_API ts_object *ts_object_new_list(void);
TS_API ts_object *ts_object_new_tuple(void);
TS_API ts_object *ts_object_new_dict(void);
TS_API ts_object *ts_object_new_tensor(const ts_array *a); /* copied */
/* Put child at the end of a list or tuple, or under a key of a dict (in place of what was there).
 * The container takes child over, also when the call fails; a NULL child, from a call above that
 * failed, fails with that call's error. So calls nest and only the outer status is looked at. */
TS_API ts_status ts_object_append(ts_object *list, ts_object *child);
TS_API ts_status ts_object_set(ts_object *dict, const char *key, ts_object *child);
TS_API ts_status ts_object_set_int(ts_object *dict, int64_t key, ts_object *child);
/* One more owner of o, to put it into a second tree; do not change it from then on. */
TS_API ts_object *ts_object_share(const ts_object *o);
TS_API void ts_object_free(ts_object *o);

/* Looking: what is borrowed lives as long as the tree. A NULL or another kind of object has no
 * items, so calls nest here too. */
TS_API ts_kind ts_object_kind(const ts_object *o); /* of NULL: none */
TS_API const char *ts_kind_name(ts_kind k);
TS_API int64_t ts_object_size(const ts_object *o); /* items of a list, tuple or dict */
TS_API const ts_object *ts_object_at(const ts_object *o, int64_t i);           /* or NULL */
TS_API const ts_object *ts_object_key(const ts_object *dict, int64_t i);       /* or NULL */
TS_API const ts_object *ts_object_get(const ts_object *dict, const char *key); /* or NULL */
TS_API const ts_object *ts_object_get_int(const ts_object *dict, int64_t key); /* or NULL */
/* The number in a bool, int, float or tensor of one element; `otherwise` in anything else. */
TS_API double ts_object_number(const ts_object *o, double otherwise);
TS_API int64_t ts_object_int(const ts_object *o, int64_t otherwise); /* nor in a fraction */
TS_API const char *ts_object_text(const ts_object *o);               /* or NULL */
TS_API const ts_array *ts_object_array(const ts_object *o);          /* or NULL */

typedef enum ts_file_format {
    TS_FILE_AUTO,        /* by the name's ending: .pth .pt .ckpt, .safetensors, .npz, .npy */
    TS_FILE_PTH,         /* any tree; torch.load reads it. "__metadata__" in a dict, if it is a dict
                            of text, is kept beside the tree: ts_load gives it back, torch.load
                            does not see it                                         */
    TS_FILE_SAFETENSORS, /* a dict of tensors; "__metadata__" may be a dict of text  */
    TS_FILE_NPZ,         /* a dict of tensors                                       */
    TS_FILE_NPY          /* one tensor                                              */
} ts_file_format;
/* The format is known by the content: .pth as torch.save writes it, of 1.6 and later and before,
 * safetensors, .npz, .npy. Views become row-major tensors, an OrderedDict a dict, a set a list, a
 * torch.Size a tuple, a NumPy scalar a number, a NumPy array a tensor, bytes a tensor of u8, a
 * dtype its name; a state dict's _metadata is left out. */
TS_API ts_status ts_load(const char *path, ts_object **out);
TS_API ts_status ts_load_memory(const void *data, size_t len, ts_object **out);
/* The file is there whole or not at all: a save that fails leaves the one before as it was. A link
 * stays, and leads to the new file; a device or a pipe is refused. */
TS_API ts_status ts_save(const ts_object *o, const char *path, ts_file_format format);

/* --- data --------------------------------------------------------------------------------------
 * Samples of one shape with their labels, in memory; and batches of them, made ahead by threads.
 *
 *   ts_dataset *d;
 *   ts_loader *l;
 *   ts_batch b;
 *   if (ts_data_open(&(ts_data_options){.name = "fashion-mnist"}, &d) ||
 *       ts_loader_new(d, &(ts_loader_options){.batch = 16, .shuffle = true}, &l))
 *       fputs(ts_error_text(), stderr);
 *   while (!ts_loader_next(l, &b) && b.epoch < 5)
 *       ts_engine_run(e, (const void *[]){b.samples, b.labels}, outputs);
 */

typedef struct ts_dataset ts_dataset;
typedef enum ts_split { TS_SPLIT_TRAIN, TS_SPLIT_TEST } ts_split;
typedef enum ts_filter { TS_BILINEAR, TS_BICUBIC } ts_filter;

/* What is done to the pixels of an image, in this order. All zero: nothing. The results are
 * Pillow's: Image.convert, Image.resize, ImageOps.grayscale, ImageOps.invert. */
typedef struct ts_image_options {
    int height, width; /* resize to this, whatever the proportions; 0: keep the size         */
    ts_filter filter;  /* BILINEAR as torchvision's Resize, BICUBIC as Pillow's own default  */
    int channels;      /* 1: grayscale, 3: colour; 0: colour for image files, else as it is  */
    bool invert_light; /* 255 - x everywhere when the pixel in column 1, row 1 is above 200:
                          a light background, where Fashion-MNIST has a black one; needs a
                          grayscale image                                                   */
} ts_image_options;

/* Reports how far a download is; return false to stop it. */
typedef bool ts_download_fn(void *arg, const char *file, int64_t done, int64_t total);

typedef struct ts_data_options {
    /* "mnist", "fashion-mnist", or the path of
     *   a folder of IDX files, gzipped or not     train-images-idx3-ubyte[.gz] and so on
     *   a folder of classes                       DIR/CLASS/NAME.png, .jpg or .jpeg, perhaps
     *                                             below DIR/train and DIR/test
     *   a CSV file                                a row a sample: numbers and one label
     *   an .npz file                              x and y, images and labels, or x_train, y_train,
     *                                             x_test, y_test
     *   an .npy file                              samples; u8 of [N, H, W] or [N, H, W, C] are
     *                                             images, here as in .npz */
    const char *name;
    ts_split split;
    int64_t limit;          /* use so many samples only: the first, or of a folder of
                               classes some of each; 0: all                             */
    ts_image_options image; /* of IDX, image and NumPy u8 samples                       */
    const char *dir;        /* where the files of a named set are, or go; NULL: $TESSERA_DATA_DIR,
                               ./data, ~/.cache/tessera, and what Debian's packages install    */
    const char *url;        /* where to download the files of a named set from when they are not
                               there; NULL: $TESSERA_MNIST_URL or $TESSERA_FASHION_MNIST_URL   */
    ts_download_fn *progress;
    void *progress_arg;
    int stall_seconds; /* a download fails after so long without a byte; 0: 30           */
    const char *label; /* CSV: its column, a name or a number (0 is the first, -1 the last);
                          NULL: the one called "label", else the last. An .npy file: the
                          .npy file of its labels; NULL: it has none                    */
    int header;        /* CSV: 1 the first line has names, -1 it has not, 0 look at it  */
} ts_data_options;

TS_API ts_status ts_data_open(const ts_data_options *opt, ts_dataset **out);
/* The i-th dataset that has a name; NULL past the last. */
TS_API const char *ts_data_builtin(int i);
/* The folder where the files of a named set are, "" when they are nowhere; downloads nothing. */
TS_API ts_status ts_data_find(const ts_data_options *opt, char *path, size_t size);
TS_API void ts_dataset_free(ts_dataset *d);
TS_API int64_t ts_dataset_count(const ts_dataset *d);
/* How many classes the labels count, 0 where there are no labels; and their names, NULL past the
 * last. */
TS_API int ts_dataset_classes(const ts_dataset *d);
TS_API const char *ts_dataset_class_name(const ts_dataset *d, int i);
/* Sample i as it is stored, u8 or f32; an image is channels x height x width. Borrowed. */
TS_API ts_status ts_dataset_sample(const ts_dataset *d, int64_t i, ts_array *out);
/* All samples: the same with the count in front. Borrowed. */
TS_API ts_array ts_dataset_samples(const ts_dataset *d);
TS_API const int32_t *ts_dataset_labels(const ts_dataset *d); /* count of them; all 0 for none */

/* (x - mean) / deviation, after u8 became x / 255: PyTorch's ToTensor and Normalize, bit for bit.
 * One number for all channels or one for each (the first dim of a sample); n = 0: only ToTensor. */
typedef struct ts_normalize {
    const double *mean, *deviation;
    int n;
} ts_normalize;
/* A sample, or with `batched` many of them, as f32. out has room for as many elements. */
TS_API ts_status ts_to_tensor(const ts_array *samples, bool batched, const ts_normalize *how,
                              float *out);
/* A PNG or JPEG file as u8, channels x height x width; free(out->data). */
TS_API ts_status ts_image_load(const char *path, const ts_image_options *opt, ts_array *out);

typedef struct ts_loader ts_loader;
typedef struct ts_loader_options {
    int64_t batch; /* rows a call: what one run of the engine takes; 0 means 1           */
    bool shuffle;  /* by seed and epoch, as ts_train does; else as they are stored       */
    uint64_t seed;
    bool drop_last; /* leave out the rows that do not fill a batch; else pad it with 0    */
    int threads;    /* that make batches; 0 means 1; -1: none, ts_loader_next makes them  */
    int prefetch;   /* batches made ahead; 0: 2, or as many as there are threads          */
    /* Loaders of `parts` processes: of `parts` batches that follow each other, each makes one of
     * its own. They are dealt out in runs of `chunk` rows, to part 0 first; 0: one run, the batch.
     * A chunk divides the batch, and drop_last is needed. */
    int part, parts; /* this one, and how many; parts 0 means 1 */
    int64_t chunk;
    ts_normalize normalize;
    /* Changes a sample after that, in place. Runs on the loader's threads. What it does should
     * depend on its arguments only: `random` is made of seed, epoch and sample, so that the result
     * is the same for any number of threads. Return false to fail. */
    bool (*augment)(void *arg, float *sample, int32_t label, uint64_t random);
    void *augment_arg;
} ts_loader_options;
typedef struct ts_batch {
    const float *samples;  /* batch of them; valid until the loader's next call   */
    const int32_t *labels; /* batch of them                                       */
    int64_t rows;          /* how many are real; what follows them is 0           */
    int64_t epoch, step;   /* where this batch stands, both from 0                */
} ts_batch;

/* The loader needs d to live on. */
TS_API ts_status ts_loader_new(const ts_dataset *d, const ts_loader_options *opt, ts_loader **out);
TS_API void ts_loader_free(ts_loader *l);
/* The next batch; after the last of an epoch comes the first of the next, without end. */
TS_API ts_status ts_loader_next(ts_loader *l, ts_batch *out);
TS_API int64_t ts_loader_steps(const ts_loader *l); /* batches an epoch */
/* Which batch ts_loader_next gives next; a checkpoint keeps the two numbers, and a loader of the
 * same data and options that seeks there continues with the same batches. */
TS_API void ts_loader_position(const ts_loader *l, int64_t *epoch, int64_t *step);
TS_API ts_status ts_loader_seek(ts_loader *l, int64_t epoch, int64_t step);

/* --- seeing ------------------------------------------------------------------------------------
 * Pictures are PNG files at twice the usual resolution, replaced in one step: a reader sees the old
 * one or the new one. Texts are UTF-8; those that are too long end in an ellipsis. Up to 1000
 * pictures or classes and 64 series fit in one. A build without the cairo library draws none. */

typedef struct ts_picture {
    const void *data;
    ts_dtype dtype;    /* TS_U8, 0..255, or TS_F32                              */
    int channels;      /* 1 gray, 3 red green blue                              */
    int height, width; /* rows from the top                                     */
    bool planar;       /* [C][H][W], as tensors are; else [H][W][C], as files are */
    float lo, hi;      /* f32: what is black and white; both 0 means 0 and 1    */
} ts_picture;

/* A grid of n pictures, labels[i] under each (labels or one of them NULL: nothing). */
TS_API ts_status ts_plot_samples(const char *path, const char *title, const ts_picture *pictures,
                                 const char *const *labels, int n);
/* counts[i * n + j]: how many of class i were taken for class j. The accuracy joins the title. */
TS_API ts_status ts_plot_confusion(const char *path, const char *title, const int64_t *counts,
                                   const char *const *classes, int n);

typedef struct ts_series {
    const char *name;
    const double *x; /* NULL: 1, 2, 3, ... */
    const double *y; /* NaN or infinite: a gap */
    int64_t n;
    bool right;       /* measured on the right axis */
    double smoothing; /* 0: as it is; towards 1, the weight of the past in a running mean */
} ts_series;
typedef struct ts_curves {
    const char *title, *x_label, *y_label, *right_label;
    const ts_series *series;
    int nseries;
    bool linear; /* no log scale, however far the values spread (else: over 3 decades) */
} ts_curves;
TS_API ts_status ts_plot_curves(const char *path, const ts_curves *c);

typedef struct ts_prediction {
    const char *title;          /* NULL: the best class and its score    */
    ts_picture original, input; /* the file's picture and what the net saw; data NULL: left out */
    const char *const *classes;
    const float *scores; /* of the n classes; the best ten are shown */
    int n;
} ts_prediction;
TS_API ts_status ts_plot_image(const char *path, const ts_prediction *p);

/* Events for TensorBoard: a new file in a folder that is made if need be. Tags, steps and values
 * are written as PyTorch's SummaryWriter writes them. They reach the disk after two seconds, with a
 * flush and at the close, which frees e whatever it returns. */
typedef struct ts_events ts_events;
TS_API ts_status ts_events_open(const char *folder, ts_events **out);
TS_API ts_status ts_events_scalar(ts_events *e, const char *tag, int64_t step, double value);
TS_API ts_status ts_events_image(ts_events *e, const char *tag, int64_t step, const void *png,
                                 size_t bytes);
TS_API ts_status ts_events_text(ts_events *e, const char *tag, int64_t step, const char *text);
TS_API ts_status ts_events_flush(ts_events *e);
TS_API ts_status ts_events_close(ts_events *e);

/* A table that grows on disk, row by row. With resume, rows are added to those of an earlier run
 * whose columns must be the same; a row that a crash cut short is dropped. */
typedef struct ts_csv ts_csv;
TS_API ts_status ts_csv_open(const char *path, const char *const *columns, int n, bool resume,
                             ts_csv **out);
TS_API ts_status ts_csv_row(ts_csv *c, const char *const *cells); /* NULL: an empty cell */
TS_API ts_status ts_csv_numbers(ts_csv *c, const double *values); /* NaN: an empty cell  */
TS_API void ts_csv_close(ts_csv *c);

/* Bars on stderr, in the shape of tqdm's:
 *
 *   Epochs:  40%|████      | 2/5 [00:03<00:05,  1.71s/it, loss=0.345]
 *
 * One opened while others are open is drawn below them. Nothing is shown when stderr is no
 * terminal or a dumb one (TERM); TESSERA_PROGRESS=1 shows bars always, TESSERA_PROGRESS=0 never. A
 * NULL bar is allowed everywhere. */
typedef struct ts_bar ts_bar;
typedef struct ts_bar_options {
    const char *label;
    const char *unit; /* NULL: "it"                          */
    int64_t total;    /* 0: not known                        */
    bool transient;   /* leaves nothing when it is closed    */
    bool quiet;       /* shows nothing                       */
} ts_bar_options;
TS_API ts_bar *ts_bar_open(const ts_bar_options *opt);
TS_API void ts_bar_update(ts_bar *b, int64_t more); /* so many more are done */
/* What stands last, such as "loss=0.345"; seen with the next update. */
TS_API void ts_bar_postfix(ts_bar *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* A line on stderr that stays above the open bars. */
TS_API void ts_bar_print(const char *line);
TS_API void ts_bar_close(ts_bar *b);

/* rows x columns of cells in aligned text, the first column to the left and the others to the
 * right; free() it. */
TS_API char *ts_table_text(const char *const *cells, int rows, int columns);

/* --- export ------------------------------------------------------------------------------------
 * A trained net's inference as C that needs nothing but libm: one source with the weights inside
 * and its header, C99 without extensions, no allocation. Every name in them begins with the net's.
 *
 *   void NAME_run(const float *input, float *output);
 *   void NAME_run_in(float *scratch, const float *input, float *output);   scratch from the caller
 *   int NAME_classify(const float *input);      the best of the scores, of one sample
 *
 * A net with several inputs or outputs takes them in their order, as in_... and out_...  */
typedef struct ts_export_options {
    const char *name; /* a C identifier, and the files' name; NULL: made of the graph's    */
    /* The states' values: a dict of tensors by their names, floats of any size, or an engine of the
     * same net. Both NULL: what an engine starts with. */
    const ts_object *weights;
    const ts_engine *engine;
    const char *about;          /* lines for the header's comment, or NULL                  */
    const void *const *samples; /* for the example, one for each input as the graph has it;
                                   NULL: made-up numbers                                    */
    bool no_example;
} ts_export_options;
typedef struct ts_c_files {
    char *header, *source; /* NAME.h, NAME.c                                              */
    char *example;         /* main.c, a program that runs a sample and prints the results  */
    char *expected;        /* what it prints, by an engine of this machine                 */
    char name[64];
    size_t constant_bytes, scratch_bytes;
    int kernels;
} ts_c_files;
/* g is the net as inference: no update, no random number. Its loss is left out. */
TS_API ts_status ts_export_c(const ts_graph *g, const ts_export_options *opt, ts_c_files *out);
TS_API void ts_c_files_free(ts_c_files *f);

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
