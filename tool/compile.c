/* compile.c - tessera compile: a model's training step or inference as an executable file. */
#include "tool.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct {
    const char *model, *output, *keep_c, *isa;
    int64_t batch, classes;
    bool training, quiet, json;
} args = {.batch = 16};

static const option options[] = {
    {"MODEL", NULL, KIND_TEXT, &args.model, "the model: a name ('tessera models') or a file",
     .takes = TAKES_MODEL, .argument = true, .needed = true},
    {"batch-size", "N", KIND_INT, &args.batch, "samples in a batch", .low = 1, .high = 1 << 20},
    {"classes", "N", KIND_INT, &args.classes, "classes, when not those of the description",
     .low = 1, .high = INT32_MAX},
    {"training", NULL, KIND_FLAG, &args.training, .help = "the training step instead of inference"},
    {.name = "training", .kind = KIND_GROUP, .target = (void *)training_options},
    {.name = "devices", .kind = KIND_GROUP, .target = (void *)place_options},
    {.name = "devices, of a training step",
     .kind = KIND_GROUP,
     .target = (void *)place_training_options},
    {"isa", "NAME", KIND_WORD, &args.isa, "instructions to use",
     .choice = "x86-64-v4-amx x86-64-v4-bf16 x86-64-v4 x86-64-v3 portable"},
    {"output", "FILE", KIND_TEXT, &args.output, "the executable; MODEL.tsx when not given",
     .takes = TAKES_FILE},
    {"keep-c", "FILE", KIND_TEXT, &args.keep_c, "write the generated C there too",
     .takes = TAKES_FILE},
    {"quiet", NULL, KIND_FLAG, &args.quiet, .help = "no bar and no report"},
    {"json", NULL, KIND_FLAG, &args.json, .help = "print the result as JSON"},
    {0},
};

static int make(ts_executable **x, char *name, size_t size)
{
    step s;
    int code =
        step_open("compile", args.model,
                  &(ts_model_options){
                      .batch = args.batch, .classes = args.classes, .training = args.training},
                  &s);

    if (code)
        return code;
    snprintf(name, size, "%s", ts_model_name(s.model));
    s.opt.isa = args.isa;
    s.opt.progress = args.quiet ? NULL : ts_progress_bar;
    code = ts_compile(s.graph, &s.opt, x) ? failed() : TOOL_OK;
    step_close(&s);
    return code;
}

static int write_source(const ts_executable *x)
{
    const char *source = ts_executable_source(x);
    FILE *f;

    if (!source)
        return failure(
            "there is no generated C: no compiler was found, the reference executor runs");
    f = fopen(args.keep_c, "w");
    if (!f)
        return failure("cannot open %s: %s", args.keep_c, strerror(errno));
    if (fputs(source, f) < 0 || ferror(f)) {
        fclose(f);
        return failure("cannot write %s: %s", args.keep_c, strerror(errno));
    }
    return fclose(f) ? failure("cannot write %s: %s", args.keep_c, strerror(errno)) : TOOL_OK;
}

static void report(const ts_executable *x, const char *output)
{
    ts_stats s = ts_executable_stats(x);
    char peak[32];

    if (args.json) {
        printf("{");
        json_text("output", output);
        printf(", \"native\": %s, \"kernels\": %d, \"flops\": %.9g, \"peak_bytes\": %zu, "
               "\"from_cache\": %s, \"seconds\": %.4g}\n",
               s.native ? "true" : "false", s.kernels, s.flops, s.peak_bytes,
               s.from_cache ? "true" : "false", s.compile_seconds);
        return;
    }
    if (args.quiet)
        return;
    printf("%s: %s, ", output, args.training ? "training step" : "inference");
    if (s.native)
        printf("%d kernels, %.4g flops a batch, %s, ", s.kernels, s.flops,
               bytes_text((int64_t)s.peak_bytes, peak, sizeof(peak)));
    else
        printf("reference executor, ");
    printf("%s in %.2f s\n", s.from_cache ? "from the cache" : "compiled", s.compile_seconds);
}

static int run(void)
{
    char name[128], output[160];
    ts_executable *x;
    int code = make(&x, name, sizeof(name));

    if (code)
        return code;
    snprintf(output, sizeof(output), "%s.tsx", name);
    if (ts_executable_save(x, args.output ? args.output : output))
        code = failed();
    if (!code && args.keep_c)
        code = write_source(x);
    if (!code)
        report(x, args.output ? args.output : output);
    ts_executable_free(x);
    return code;
}

const command compile_command = {
    .name = "compile",
    .summary = "Compiles a model ahead of time and writes an executable file",
    .options = options,
    .run = run,
    .more = "The file is for this machine's instructions unless --isa says otherwise. It holds a\n"
            "program: load only files from those whose programs you would run.",
    .examples = "compile classifier --batch-size 16 --training --momentum 0.9\n"
                "compile mnist-pipeline --training --gradient-accumulation 8 "
                "--stages 'B1|B2|B3|B4'\n"
                "compile net.txt --batch-size 1 --output net.tsx --keep-c net.c\n",
};
