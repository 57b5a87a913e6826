/* profile.c - tessera profile: a model's plan and the times of a few steps on random data, as
 * profile.db and trace.json in a folder. */
#include "tool.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct {
    const char *model, *output;
    int64_t batch, classes, calls, threads;
    bool inference, plan_only, quiet, json;
} args = {.batch = 16, .output = "profile", .calls = 10};

static const option options[] = {
    {"MODEL", NULL, KIND_TEXT, &args.model, "the model: a name ('tessera models') or a file",
     .takes = TAKES_MODEL, .argument = true, .needed = true},
    {"output", "DIR", KIND_TEXT, &args.output, "the folder of the profile", .takes = TAKES_FOLDER},
    {"calls", "N", KIND_INT, &args.calls, "calls that are made and timed", .low = 1,
     .high = 1 << 20},
    {"plan-only", NULL, KIND_FLAG, &args.plan_only, .help = "compile and run nothing"},
    {"batch-size", "N", KIND_INT, &args.batch, "samples in a batch", .low = 1, .high = 1 << 20},
    {"classes", "N", KIND_INT, &args.classes, "classes, when not those of the description",
     .low = 1, .high = INT32_MAX},
    {"inference", NULL, KIND_FLAG, &args.inference,
     .help = "inference instead of the training step"},
    {"threads", "N", KIND_INT, &args.threads, "threads that work; 0: those of the cores", .low = 0,
     .high = 1024},
    {.name = "training", .kind = KIND_GROUP, .target = (void *)training_options},
    {.name = "devices", .kind = KIND_GROUP, .target = (void *)place_options},
    {.name = "devices, of a training step",
     .kind = KIND_GROUP,
     .target = (void *)place_training_options},
    {"quiet", NULL, KIND_FLAG, &args.quiet, .help = "no bar and no report"},
    {"json", NULL, KIND_FLAG, &args.json, .help = "print the result as JSON"},
    {0},
};

/* --- random data --- */

static uint64_t next(uint64_t *state) /* splitmix64 */
{
    uint64_t z = *state += 0x9e3779b97f4a7c15;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

static void fill_floats(float *x, size_t n, uint64_t *state)
{
    for (size_t i = 0; i < n; i++)
        x[i] = (float)(next(state) >> 40) / (1 << 23) - 1;
}

/* Labels and tokens are 0 or 1, which every net has. Halves stay 0: no number of them is wrong. */
static void fill(const ts_tensor_info *t, void *data, size_t bytes, uint64_t *state)
{
    size_t size = ts_dtype_size(t->dtype);

    if (t->dtype == TS_F32) {
        fill_floats(data, bytes / sizeof(float), state);
        return;
    }
    memset(data, 0, bytes);
    if (t->dtype == TS_I32 || t->dtype == TS_I64 || t->dtype == TS_U8 || t->dtype == TS_BOOL)
        for (size_t i = 0; i < bytes; i += size) /* the low byte comes first */
            ((char *)data)[i] = (char)(next(state) & 1);
}

typedef struct buffers {
    void **data;
    int n;
} buffers;

static void drop(buffers *b)
{
    for (int i = 0; i < b->n; i++)
        free(b->data[i]);
    free(b->data);
}

static int take(const ts_executable *x, ts_role role, int64_t times, buffers *b)
{
    const ts_tensor_info *t;
    uint64_t state = 1;

    while (ts_executable_tensor(x, role, b->n))
        b->n++;
    b->data = calloc((size_t)b->n + 1, sizeof(void *));
    for (int i = 0; b->data && i < b->n; i++) {
        t = ts_executable_tensor(x, role, i);
        b->data[i] = malloc(t->bytes * (size_t)times + 1);
        if (!b->data[i])
            return failure("no memory for %lld micro-batches of '%s'", (long long)times, t->name);
        fill(t, b->data[i], t->bytes * (size_t)times, &state);
    }
    return b->data ? TOOL_OK : failure("no memory");
}

/* --- running --- */

static int64_t per_call(const ts_options *opt)
{
    int64_t D = opt->device_iterations, A = opt->gradient_accumulation, R = opt->replicas;

    return (D ? D : 1) * (A ? A : 1) * (R ? R : 1);
}

/* The reference executor is not timed: then there is none. */
static bool has_trace(void)
{
    char path[4096];

    snprintf(path, sizeof(path), "%s/trace.json", args.output);
    return !access(path, R_OK);
}

/* The last call is the one that is counted, where the machine can count. */
static int make_calls(ts_engine *e, const buffers *in, const buffers *out)
{
    for (int64_t i = 0; i <= args.calls; i++)
        if (ts_engine_run(e, (const void *const *)in->data, out->data))
            return failed();
    return ts_engine_profile(e) ? failed() : TOOL_OK;
}

static int run_steps(const ts_executable *x, const ts_options *opt)
{
    buffers in = {0}, out = {0};
    ts_engine *e = NULL;
    int code = TOOL_OK;

    if (ts_engine_new(x, &(ts_run_options){.threads = (int)args.threads, .seed = 1}, &e))
        return failed();
    code = take(x, TS_ROLE_INPUT, per_call(opt), &in);
    code = code ? code : take(x, TS_ROLE_OUTPUT, per_call(opt), &out);
    code = code ? code : make_calls(e, &in, &out);
    ts_engine_free(e);
    drop(&in);
    drop(&out);
    return code;
}

static int measure_model(const ts_graph *g, ts_options *opt)
{
    ts_executable *x;
    int code;

    if (ts_compile(g, opt, &x))
        return failed();
    code = run_steps(x, opt);
    ts_executable_free(x);
    return code;
}

static void report(void)
{
    if (args.json) {
        printf("{");
        json_text("folder", args.output);
        printf(", ");
        json_text("database", "profile.db");
        printf(", ");
        json_text("trace", has_trace() ? "trace.json" : NULL);
        printf(", \"calls\": %lld}\n", (long long)(args.plan_only ? 0 : args.calls));
    } else if (!args.quiet)
        printf("%s/profile.db%s\n", args.output, has_trace() ? " and trace.json" : "");
}

static int run(void)
{
    step s;
    int code =
        step_open("profile", args.model,
                  &(ts_model_options){
                      .batch = args.batch, .classes = args.classes, .training = !args.inference},
                  &s);

    if (code)
        return code;
    s.opt.progress = args.quiet || args.plan_only ? NULL : ts_progress_bar;
    s.opt.profile = args.output;
    s.opt.profile_calls = (int)args.calls;
    if (args.plan_only)
        code = ts_profile_plan(s.graph, &s.opt) ? failed() : TOOL_OK;
    else
        code = measure_model(s.graph, &s.opt);
    if (!code)
        report();
    step_close(&s);
    return code;
}

const command profile_command = {
    .name = "profile",
    .summary = "Shows what a model's step is made of and what its kernels take",
    .options = options,
    .run = run,
    .more = "profile.db is an SQLite database: 'tessera report DIR' makes a page of it, profile.md "
            "of the\n"
            "documentation has its tables. A model that does not fit leaves one too, without "
            "times. trace.json is\n"
            "for ui.perfetto.dev.",
    .examples = "profile classifier --batch-size 16 --output prof\n"
                "profile mnist-pipeline --gradient-accumulation 8 --stages 'B1|B2|B3|B4'\n"
                "profile resnet18 --plan-only --device model\n",
};
