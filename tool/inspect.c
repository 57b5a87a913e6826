/* inspect.c - tessera inspect: what is in a file. The first bytes say which kind it is. */
#include "net.h"
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct {
    const char *file;
    int64_t batch, classes;
    bool json;
} args = {.batch = 16};

static const option options[] = {
    {"FILE", NULL, KIND_TEXT, &args.file,
     "an executable, a checkpoint, a model's description, or the name of a model",
     .takes = TAKES_MODEL, .argument = true, .needed = true},
    {"batch-size", "N", KIND_INT, &args.batch, "of a model: samples in a batch", .low = 1,
     .high = 1 << 20},
    {"classes", "N", KIND_INT, &args.classes,
     "of a model: classes, when not those of the description", .low = 1, .high = INT32_MAX},
    {"json", NULL, KIND_FLAG, &args.json, .help = "print it as JSON"},
    {.name = "training", .kind = KIND_GROUP, .target = (void *)training_options},
    {0},
};

/* --- executables --- */

static int inspect_executable(void)
{
    ts_executable *x;

    if (ts_executable_load(args.file, &x))
        return failed();
    if (args.json) {
        printf("{\"kind\": \"executable\", ");
        json_text("text", ts_executable_inspect(x));
        printf("}\n");
    } else {
        fputs(ts_executable_inspect(x), stdout);
    }
    ts_executable_free(x);
    return TOOL_OK;
}

/* --- models --- */

static void print_layers(const ts_model_layer *layers, int n)
{
    char shape[128];

    printf("\n%4s  %-24s %-20s %-16s %12s %12s  block\n", "line", "name", "layer", "result",
           "parameters", "flops");
    for (int i = 0; i < n; i++)
        printf("%4d  %-24s %-20s %-16s %12" PRId64 " %12.4g%s%s\n", layers[i].line, layers[i].name,
               layers[i].kind, shape_text(layers[i].rank, layers[i].dims, shape, sizeof(shape)),
               layers[i].parameters, layers[i].flops, layers[i].block[0] ? "  " : "",
               layers[i].block);
}

static ts_status plan(const ts_model *m, ts_model_options o, const ts_optimizer *optimizer,
                      ts_stats *out)
{
    ts_options opt = chosen_options();
    ts_graph *g;
    ts_status s;

    o.training = optimizer != NULL;
    s = ts_model_graph(m, &o, &g);
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
static int print_plans(const ts_model *m, const ts_model_options *o)
{
    ts_optimizer optimizer = chosen_optimizer();
    ts_stats training, inference;
    ts_graph *g;
    bool trains = !ts_model_graph(m, &(ts_model_options){.batch = 2, .training = true}, &g);

    if (trains)
        ts_graph_free(g);
    if ((trains && plan(m, *o, &optimizer, &training)) || plan(m, *o, NULL, &inference))
        return failed();
    printf("\n%-14s %12s %8s %12s %12s %12s\n", "memory", "flops", "kernels", "states", "working",
           "in all");
    if (trains)
        print_plan("training step", &training);
    print_plan("inference", &inference);
    return TOOL_OK;
}

static int json_model(const ts_model *m, const ts_model_options *o)
{
    ts_model_layer *layers;
    int n;

    if (ts_model_layers(m, o, &layers, &n))
        return failed();
    printf("{\"kind\": \"model\", ");
    json_text("model", ts_model_name(m));
    printf(", ");
    json_text("about", ts_model_about(m));
    printf(", \"parameters\": %" PRId64 ", \"layers\": [", ts_model_parameters(m));
    for (int i = 0; i < n; i++) {
        printf("%s\n  {", i ? "," : "");
        json_text("name", layers[i].name);
        printf(", ");
        json_text("kind", layers[i].kind);
        printf(", ");
        json_sizes("result", layers[i].rank, layers[i].dims);
        printf(", \"parameters\": %" PRId64 ", \"flops\": %.9g}", layers[i].parameters,
               layers[i].flops);
    }
    printf("]}\n");
    free(layers);
    return TOOL_OK;
}

/* o says the sizes of a sample, or 0 where the description's are meant. */
static int print_model(const ts_model *m, const ts_model_options *o)
{
    int64_t dims[TS_MAX_RANK];
    char shape[128];
    int rank = ts_model_input(m, dims), n;
    ts_model_layer *layers;
    int64_t parameters = 0;

    if (ts_model_layers(m, o, &layers, &n))
        return failed();
    for (int i = 0; i < n; i++)
        parameters += layers[i].parameters;
    printf("%-14s %s\n", "model", ts_model_name(m));
    if (ts_model_about(m)[0])
        printf("%-14s %s\n", "about", ts_model_about(m));
    printf("%-14s %s\n", "input",
           shape_text(o->rank ? o->rank : rank, o->rank ? o->dims : dims, shape, sizeof(shape)));
    printf("%-14s %" PRId64 "\n", "parameters", parameters);
    printf("%-14s %" PRId64 "\n", "batch size", o->batch);
    print_layers(layers, n);
    free(layers);
    return print_plans(m, o);
}

static int inspect_model(void)
{
    ts_model *m;
    int code = check_optimizer("inspect");

    if (code)
        return code;
    if (ts_model_load(args.file, &m))
        return failed();
    code = (args.json ? json_model : print_model)(
        m, &(ts_model_options){.batch = args.batch, .classes = args.classes});
    ts_model_free(m);
    return code;
}

/* --- checkpoints --- */

typedef struct count {
    int64_t tensors, numbers, bytes;
} count;

static void print_tensor(const ts_array *a, const char *name, count *c)
{
    char shape[128], size[32];

    c->tensors++;
    c->numbers += (int64_t)(a->bytes / ts_dtype_size(a->dtype));
    c->bytes += (int64_t)a->bytes;
    printf("%-40s %-5s %-18s %10s\n", name, ts_dtype_name(a->dtype),
           a->rank ? shape_text(a->rank, a->dims, shape, sizeof(shape)) : "one number",
           bytes_text((int64_t)a->bytes, size, sizeof(size)));
}

/* A short text in its line; lines of short words after one another; else all lines, indented. */
static void print_text(const char *text, const char *name)
{
    size_t len = strlen(text), n;
    bool one_line = len <= 100 || !strchr(text, '\n');
    char line[512];

    printf(one_line ? "%-40s" : "%s", name);
    for (const char *p = text; *p; p += n + (p[n] == '\n')) {
        n = strcspn(p, "\n");
        snprintf(line, sizeof(line), "%.*s", (int)(n < sizeof(line) ? n : sizeof(line) - 1), p);
        if (one_line)
            printf("%s%s", p == text ? " " : ", ", printable(line, line, sizeof(line)));
        else
            printf("\n    %s", printable(line, line, sizeof(line)));
    }
    printf("\n");
}

static void print_leaf(const ts_object *o, const char *name, count *c)
{
    if (ts_object_array(o))
        print_tensor(ts_object_array(o), name, c);
    else if (ts_object_text(o))
        print_text(ts_object_text(o), name);
    else if (ts_object_kind(o) == TS_KIND_NONE)
        printf("%-40s none\n", name);
    else if (ts_object_kind(o) == TS_KIND_BOOL)
        printf("%-40s %s\n", name, ts_object_number(o, 0) ? "true" : "false");
    else
        printf("%-40s %.15g\n", name, ts_object_number(o, 0));
}

static bool is_number(const ts_object *o)
{
    ts_kind k = ts_object_kind(o);

    return k == TS_KIND_INT || k == TS_KIND_FLOAT;
}

/* A list of numbers, such as an optimizer's parameters, takes one line. */
static bool print_numbers(const ts_object *o, const char *name)
{
    enum { MOST = 16 };
    int64_t n = ts_object_size(o);

    for (int64_t i = 0; i < n; i++)
        if (ts_object_kind(o) == TS_KIND_DICT || !is_number(ts_object_at(o, i)))
            return false;
    printf("%-40s", name);
    for (int64_t i = 0; i < n && i < MOST; i++)
        printf("%s%.15g", i ? ", " : " ", ts_object_number(ts_object_at(o, i), 0));
    if (n > MOST)
        printf(", ... %" PRId64 " in all", n);
    printf(n ? "\n" : " empty\n");
    return true;
}

static void print_tree(const ts_object *o, const char *name, count *c);

/* name.key or name.7 */
static void print_item(const ts_object *o, int64_t i, const char *name, count *c)
{
    const ts_object *key = ts_object_key(o, i);
    const char *text = ts_object_text(key), *dot = name[strspn(name, " ")] ? "." : "";
    char path[256];

    if (text)
        snprintf(path, sizeof(path), "%s%s%s", name, dot, text);
    else
        snprintf(path, sizeof(path), "%s%s%" PRId64, name, dot, key ? ts_object_int(key, 0) : i);
    print_tree(ts_object_at(o, i), printable(path, path, sizeof(path)), c);
}

static bool is_leaf(const ts_object *o)
{
    ts_kind k = ts_object_kind(o);

    return k != TS_KIND_DICT && k != TS_KIND_LIST && k != TS_KIND_TUPLE;
}

static void print_tree(const ts_object *o, const char *name, count *c)
{
    if (is_leaf(o)) {
        print_leaf(o, name, c);
        return;
    }
    if (name[0] && print_numbers(o, name))
        return;
    for (int64_t i = 0; i < ts_object_size(o); i++)
        print_item(o, i, name, c);
}

/* What lies below a key of the whole comes under that key. */
static void print_whole(const ts_object *o, count *c)
{
    for (int64_t i = 0; i < ts_object_size(o); i++) {
        const char *key = ts_object_text(ts_object_key(o, i));
        const ts_object *item = ts_object_at(o, i);
        char shown[256];

        if (key && !strcmp(key, "__metadata__"))
            continue;
        if (!key || is_leaf(item) || !ts_object_size(item)) {
            print_item(o, i, "", c);
            continue;
        }
        printf("%s\n", printable(key, shown, sizeof(shown)));
        print_tree(item, "  ", c);
    }
    if (is_leaf(o))
        print_leaf(o, "(all)", c);
}

static void print_metadata(const ts_object *file)
{
    const ts_object *facts = ts_object_get(file, "__metadata__");
    count none = {0};

    if (!ts_object_size(facts))
        return;
    for (int64_t i = 0; i < ts_object_size(facts); i++)
        print_item(facts, i, "", &none);
    printf("\n");
}

/* What is known of the net when the file, or the names in it, tell which it is. */
static int print_net(weights *w)
{
    ts_model_options o = {.batch = args.batch};
    int code = w->states ? weights_identify(w, NULL) : TOOL_OK;

    if (code || !w->model)
        return code;
    o.rank = w->recipe.rank;
    o.dims = w->recipe.dims;
    o.classes = args.classes ? args.classes : w->classes;
    printf("\n");
    return print_model(w->model, &o);
}

static void json_object(const ts_object *o)
{
    const ts_array *a = ts_object_array(o);
    bool dict = ts_object_kind(o) == TS_KIND_DICT;

    if (a) {
        printf("{");
        json_text("dtype", ts_dtype_name(a->dtype));
        printf(", ");
        json_sizes("shape", a->rank, a->dims);
        printf("}");
    } else if (ts_object_text(o)) {
        json_quote(ts_object_text(o));
    } else if (!is_leaf(o)) {
        printf(dict ? "{" : "[");
        for (int64_t i = 0; i < ts_object_size(o); i++) {
            const ts_object *key = ts_object_key(o, i);
            printf("%s", i ? ", " : "");
            if (dict && ts_object_text(key))
                json_quote(ts_object_text(key));
            else if (dict)
                printf("\"%" PRId64 "\"", ts_object_int(key, 0));
            if (dict)
                printf(": ");
            json_object(ts_object_at(o, i));
        }
        printf(dict ? "}" : "]");
    } else if (ts_object_kind(o) == TS_KIND_BOOL) {
        printf(ts_object_number(o, 0) ? "true" : "false");
    } else {
        json_value(ts_object_number(o, NAN));
    }
}

static int inspect_checkpoint(void)
{
    count c = {0};
    char size[32];
    weights w;
    int code = weights_load(args.file, true, &w);

    if (code)
        return code;
    if (args.json) {
        printf("{\"kind\": \"checkpoint\", \"content\": ");
        json_object(w.file);
        printf("}\n");
        weights_free(&w);
        return TOOL_OK;
    }
    print_metadata(w.file);
    print_whole(w.file, &c);
    printf("\n%" PRId64 " %s of %" PRId64 " numbers, %s\n", c.tensors,
           c.tensors == 1 ? "tensor" : "tensors", c.numbers,
           bytes_text(c.bytes, size, sizeof(size)));
    code = print_net(&w);
    weights_free(&w);
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
    .more =
        "Of a checkpoint whose model is known, by what the file says or by the names and shapes\n"
        "of its parameters, the layers and the memory are shown too.\n"
        "A model's memory is planned as for running it; the C compiler is not needed. An\n"
        "executable is loaded to look at it: inspect only files from those whose programs you\n"
        "would run.",
    .examples = "inspect classifier\ninspect net.txt --batch-size 64 --optimizer adam\n"
                "inspect net.tsx\ninspect net.pth --batch-size 1\n",
};
