/* models.c - tessera models: the nets that have a name, and their descriptions. */
#include "tool.h"
#include <inttypes.h>
#include <string.h>

static const char *name;
static bool json;

static const option options[] = {
    {"MODEL", NULL, KIND_TEXT, &name, "print the description of this one", .takes = TAKES_MODEL,
     .argument = true},
    {"json", NULL, KIND_FLAG, &json, .help = "print it as JSON"},
    {0},
};

static int row(const char *model)
{
    int64_t dims[TS_MAX_RANK];
    char shape[64];
    ts_model *m;

    if (ts_model_load(model, &m))
        return failed();
    if (json) {
        printf("%s\n  {", strcmp(model, ts_model_builtin(0)) ? "," : "");
        json_text("model", model);
        printf(", ");
        json_sizes("input", ts_model_input(m, dims), dims);
        printf(", \"parameters\": %" PRId64 ", ", ts_model_parameters(m));
        json_text("about", ts_model_about(m));
        printf("}");
        ts_model_free(m);
        return TOOL_OK;
    }
    shape_text(ts_model_input(m, dims), dims, shape, sizeof(shape));
    printf("%-16s %-10s %11" PRId64 "  %s\n", model, shape, ts_model_parameters(m),
           ts_model_about(m));
    ts_model_free(m);
    return TOOL_OK;
}

static int list(void)
{
    int code = TOOL_OK;

    printf(json ? "[" : "%-16s %-10s %11s  about\n", "model", "input", "parameters");
    for (int i = 0; ts_model_builtin(i) && !code; i++)
        code = row(ts_model_builtin(i));
    if (json)
        printf("\n]\n");
    return code;
}

static int run(void)
{
    ts_model *m;

    if (!name)
        return list();
    if (ts_model_load(name, &m))
        return failed();
    if (json) {
        printf("{");
        json_text("model", name);
        printf(", ");
        json_text("text", ts_model_text(m));
        printf("}\n");
    } else {
        fputs(ts_model_text(m), stdout);
    }
    ts_model_free(m);
    return TOOL_OK;
}

const command models_command = {
    .name = "models",
    .summary = "Lists the models that have a name, or prints the description of one",
    .options = options,
    .run = run,
    .more = "A description is a text of a few lines; a copy of one is a good start for a model of\n"
            "your own, which every command takes as a file.",
    .examples = "models\nmodels classifier > net.txt\n",
};
