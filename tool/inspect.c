/* inspect.c - tessera inspect: what is in a file. The first bytes say which kind it is. */
#include "tool.h"
#include <ctype.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct {
    const char *file;
    int64_t batch, classes;
} args = {.batch = 16};

static const option options[] = {
    {"FILE", NULL, KIND_TEXT, &args.file,
     "an executable, a checkpoint, a model's description, or the name of a model",
     .takes = TAKES_MODEL, .argument = true, .needed = true},
    {"batch-size", "N", KIND_INT, &args.batch, "of a model: samples in a batch", .low = 1,
     .high = 1 << 20},
    {"classes", "N", KIND_INT, &args.classes,
     "of a model: classes, when not those of the description", .low = 1, .high = INT32_MAX},
    {.name = "training", .kind = KIND_GROUP, .target = (void *)training_options},
    {0},
};

/* --- executables --- */

static int inspect_executable(void)
{
    ts_executable *x;

    if (ts_executable_load(args.file, &x))
        return failed();
    fputs(ts_executable_inspect(x), stdout);
    ts_executable_free(x);
    return TOOL_OK;
}

/* --- checkpoints --- */

typedef struct count {
    int64_t tensors, bytes;
} count;

static void print_leaf(const ts_object *o, const char *name, count *c)
{
    const ts_array *a = ts_object_array(o);
    char shape[128], size[32];

    if (a) {
        c->tensors++;
        c->bytes += (int64_t)a->bytes;
        printf("%-40s %-5s %-18s %10s\n", name, ts_dtype_name(a->dtype),
               shape_text(a->rank, a->dims, shape, sizeof(shape)),
               bytes_text((int64_t)a->bytes, size, sizeof(size)));
    } else if (ts_object_text(o))
        printf("%-40s %zu letters\n", name, strlen(ts_object_text(o)));
    else if (ts_object_kind(o) == TS_KIND_NONE)
        printf("%-40s none\n", name);
    else
        printf("%-40s %.15g\n", name, ts_object_number(o, 0));
}

static void print_tree(const ts_object *o, const char *name, count *c);

/* name.key or name.7; bytes that a terminal would obey are shown as '?' */
static void print_item(const ts_object *o, int64_t i, const char *name, count *c)
{
    const ts_object *key = ts_object_key(o, i);
    const char *text = ts_object_text(key), *dot = name[0] ? "." : "";
    char path[256];

    if (text)
        snprintf(path, sizeof(path), "%s%s%s", name, dot, text);
    else
        snprintf(path, sizeof(path), "%s%s%" PRId64, name, dot, key ? ts_object_int(key, 0) : i);
    for (char *p = path; *p; p++)
        if (!isprint((unsigned char)*p))
            *p = '?';
    print_tree(ts_object_at(o, i), path, c);
}

static void print_tree(const ts_object *o, const char *name, count *c)
{
    ts_kind k = ts_object_kind(o);

    if (k != TS_KIND_DICT && k != TS_KIND_LIST && k != TS_KIND_TUPLE)
        print_leaf(o, name, c);
    for (int64_t i = 0; i < ts_object_size(o); i++)
        print_item(o, i, name, c);
}

static int inspect_checkpoint(void)
{
    count c = {0};
    char size[32];
    ts_object *o;

    if (ts_load(args.file, &o))
        return failed();
    print_tree(o, "", &c);
    printf("\n%" PRId64 " tensors, %s\n", c.tensors, bytes_text(c.bytes, size, sizeof(size)));
    ts_object_free(o);
    return TOOL_OK;
}

/* --- models --- */

static int print_layers(const ts_model *m)
{
    ts_model_options o = {.batch = args.batch, .classes = args.classes};
    ts_model_layer *layers;
    char shape[128];
    int n;

    if (ts_model_layers(m, &o, &layers, &n))
        return failed();
    printf("\n%4s  %-24s %-20s %-16s %12s %12s  block\n", "line", "name", "layer", "result",
           "parameters", "flops");
    for (int i = 0; i < n; i++)
        printf("%4d  %-24s %-20s %-16s %12" PRId64 " %12.4g%s%s\n", layers[i].line, layers[i].name,
               layers[i].kind, shape_text(layers[i].rank, layers[i].dims, shape, sizeof(shape)),
               layers[i].parameters, layers[i].flops, layers[i].block[0] ? "  " : "",
               layers[i].block);
    free(layers);
    return TOOL_OK;
}

static ts_status plan(const ts_model *m, const ts_optimizer *optimizer, ts_stats *out)
{
    ts_model_options o = {
        .batch = args.batch, .classes = args.classes, .training = optimizer != NULL};
    ts_options opt = chosen_options();
    ts_graph *g;
    ts_status s = ts_model_graph(m, &o, &g);

    if (s)
        return s;
    opt.optimizer = optimizer;
    s = ts_estimate(g, &opt, out);
    ts_graph_free(g);
    return s;
}

static void print_plan(const char *name, const ts_stats *s)
{
    char state[32], work[32], peak[32];

    printf("%-14s %12.4g %8d %12s %12s %12s\n", name, s->flops, s->kernels,
           bytes_text((int64_t)s->state_bytes, state, sizeof(state)),
           bytes_text((int64_t)(s->peak_bytes - s->state_bytes), work, sizeof(work)),
           bytes_text((int64_t)s->peak_bytes, peak, sizeof(peak)));
}

/* A description without a loss has no training step. */
static int print_plans(const ts_model *m)
{
    ts_optimizer optimizer = chosen_optimizer();
    ts_stats training, inference;
    ts_graph *g;
    bool trains = !ts_model_graph(m, &(ts_model_options){.training = true}, &g);

    if (trains)
        ts_graph_free(g);
    if ((trains && plan(m, &optimizer, &training)) || plan(m, NULL, &inference))
        return failed();
    printf("\n%-14s %12s %8s %12s %12s %12s\n", "memory", "flops", "kernels", "states", "working",
           "in all");
    if (trains)
        print_plan("training step", &training);
    print_plan("inference", &inference);
    return TOOL_OK;
}

static int inspect_model(void)
{
    int64_t dims[TS_MAX_RANK];
    char shape[128];
    ts_model *m;
    int rank, code;

    if (ts_model_load(args.file, &m))
        return failed();
    rank = ts_model_input(m, dims);
    printf("%-14s %s\n", "model", ts_model_name(m));
    if (ts_model_about(m)[0])
        printf("%-14s %s\n", "about", ts_model_about(m));
    printf("%-14s %s\n", "input", shape_text(rank, dims, shape, sizeof(shape)));
    printf("%-14s %" PRId64 "\n", "parameters", ts_model_parameters(m));
    printf("%-14s %" PRId64 "\n", "batch size", args.batch);
    code = print_layers(m);
    if (!code)
        code = print_plans(m);
    ts_model_free(m);
    return code;
}

/* --- which --- */

/* The first bytes of the file, as many as there are; a pipe is not waited for. */
static size_t read_begin(char *begin, size_t size)
{
    int fd = open(args.file, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    ssize_t n = fd < 0 ? 0 : read(fd, begin, size);

    if (fd >= 0)
        close(fd);
    return n > 0 ? (size_t)n : 0;
}

/* Checkpoints and arrays of every format have bytes there that no description has. */
static bool is_text(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)s[i] < '\t' || (unsigned char)s[i] >= 0x80)
            return false;
    return true;
}

static int run(void)
{
    static const char executable[] = "\x89TSE\r\n\x1a\n";
    char begin[16];
    size_t n = read_begin(begin, sizeof(begin));

    if (n >= sizeof(executable) - 1 && !memcmp(begin, executable, sizeof(executable) - 1))
        return inspect_executable();
    return is_text(begin, n) ? inspect_model() : inspect_checkpoint();
}

const command inspect_command = {
    .name = "inspect",
    .summary = "Shows what is in an executable, a checkpoint or a model: tensors, layers, memory",
    .options = options,
    .run = run,
    .more = "A model's memory is planned as for running it; the C compiler is not needed. An\n"
            "executable is loaded to look at it: inspect only files from those whose programs you\n"
            "would run.",
    .examples = "inspect classifier\ninspect net.txt --batch-size 64 --optimizer adam\n"
                "inspect net.tsx\ninspect net.pth\n",
};
