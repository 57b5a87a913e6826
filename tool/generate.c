/* generate.c - tessera generate: text, token by token, from a net that says what comes next.
 *
 * The net takes a window of so many tokens. The last ones are put at its beginning, and the scores
 * at the last of them are of the token that follows; what stands behind it in the window is not seen.
 */
#include "net.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct {
    const char *file, *prompt, *model;
    int64_t length, top, seed, threads;
    double temperature;
    bool json;
} args = {.length = 200, .temperature = 0.8, .seed = 42};

static const option options[] = {
    {"FILE", NULL, KIND_TEXT, &args.file, "the checkpoint of a net that was trained on text",
     .takes = TAKES_FILE, .argument = true, .needed = true},
    {"prompt", "TEXT", KIND_TEXT, &args.prompt,
     .help = "what the text begins with; a new line when "
             "not given"},
    {"length", "N", KIND_INT, &args.length, "tokens to add", .low = 1, .high = 1e9},
    {"temperature", "X", KIND_REAL, &args.temperature,
     "how much chance decides: 0 takes the most probable token", .low = 0, .high = 100},
    {"top", "N", KIND_INT, &args.top, "choose among the N most probable tokens only", .low = 1,
     .high = INT32_MAX},
    {"seed", "N", KIND_INT, &args.seed, "of what is chosen", .low = 0,
     .high = (double)(INT64_C(1) << 53)},
    {"model", "NAME|FILE", KIND_TEXT, &args.model,
     "the model of the weights, when the checkpoint does not say", .takes = TAKES_MODEL},
    {"threads", "N", KIND_INT, &args.threads, "threads to compute with", .low = 1, .high = 1024},
    {"json", NULL, KIND_FLAG, &args.json, .help = "print the result as JSON"},
    {0},
};

typedef struct writer {
    weights w;
    net n;
    ts_tokens *tokens;
    int32_t *ids, *window;
    int64_t nids;
    float *scores; /* of the next token */
    FILE *out;     /* the text */
    char *text;
    size_t len;
} writer;

static double chance(void)
{
    static uint64_t state;
    uint64_t z;

    state = (state ? state : (uint64_t)args.seed * 2 + 1) + 0x9e3779b97f4a7c15u; /* splitmix64 */
    z = state;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (double)((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

/* The score that `top` tokens have or exceed. */
static float threshold(const writer *w)
{
    float least = INFINITY;

    for (int64_t k = 0; args.top && k < args.top && k < w->n.classes; k++) {
        float next = -INFINITY;
        for (int64_t c = 0; c < w->n.classes; c++)
            if (w->scores[c] < least && w->scores[c] > next)
                next = w->scores[c];
        least = next;
    }
    return args.top ? least : -INFINITY;
}

static int32_t choose(const writer *w)
{
    float most = w->scores[0], least = threshold(w);
    double sum = 0, at;
    int32_t best = 0;

    for (int32_t c = 1; c < w->n.classes; c++)
        if (w->scores[c] > most) {
            most = w->scores[c];
            best = c;
        }
    if (args.temperature == 0)
        return best;
    for (int64_t c = 0; c < w->n.classes; c++)
        sum += w->scores[c] >= least ? exp((w->scores[c] - most) / args.temperature) : 0;
    at = chance() * sum;
    for (int32_t c = 0; c < w->n.classes; c++) {
        at -= w->scores[c] >= least ? exp((w->scores[c] - most) / args.temperature) : 0;
        if (at < 0)
            return c;
    }
    return best;
}

static int put(writer *w, int32_t token)
{
    size_t len;
    const char *s = ts_tokens_at(w->tokens, token, &len);

    if (!s)
        return failure("the net gives token %d, which its vocabulary has not", (int)token);
    fwrite(s, 1, len, w->out);
    if (w->out == stdout)
        fflush(stdout);
    return TOOL_OK;
}

static int next(writer *w)
{
    int64_t wide = w->n.row, used = w->nids < wide ? w->nids : wide;

    memset(w->window, 0, sizeof(*w->window) * (size_t)wide);
    memcpy(w->window, w->ids + w->nids - used, sizeof(*w->ids) * (size_t)used);
    if (ts_engine_run(w->n.engine, (const void *[]){w->window}, (void *[]){w->n.out}))
        return failed();
    for (int64_t c = 0; c < w->n.classes; c++)
        w->scores[c] = w->n.out[c * w->n.places + used - 1];
    w->ids[w->nids] = choose(w);
    return put(w, w->ids[w->nids++]);
}

static int no_text(void)
{
    return explain(TS_ERR_ARG, args.file, "preparing to write text",
                   "'tessera train FILE.txt' trains one", "%s is no net of texts", args.file);
}

/* Without a prompt a line begins; a text that has no lines begins with its first character. */
static ts_status encode_prompt(writer *w, int32_t **ids, int64_t *n)
{
    static char first[8];
    size_t len = 0;
    const char *s;

    if (args.prompt)
        return ts_tokens_encode(w->tokens, args.prompt, strlen(args.prompt), ids, n);
    args.prompt = "\n";
    if (!ts_tokens_encode(w->tokens, args.prompt, 1, ids, n))
        return TS_OK;
    s = ts_tokens_at(w->tokens, 0, &len);
    snprintf(first, sizeof(first), "%.*s", (int)len, s);
    args.prompt = first;
    return ts_tokens_encode(w->tokens, first, strlen(first), ids, n);
}

static int begin(writer *w)
{
    int32_t *ids;
    int64_t n;

    if (w->n.places != w->n.row)
        return no_text();
    if (ts_tokens_parse(w->w.recipe.tokens, &w->tokens) || encode_prompt(w, &ids, &n))
        return failed();
    w->ids = malloc(sizeof(*ids) * (size_t)(n + args.length + 1));
    w->window = malloc(sizeof(*ids) * (size_t)w->n.row);
    w->scores = malloc(sizeof(*w->scores) * (size_t)w->n.classes);
    w->out = args.json ? open_memstream(&w->text, &w->len) : stdout;
    if (!w->ids || !w->window || !w->scores || !w->out || !n) {
        free(ids);
        return n ? failure("out of memory for the text")
                 : usage_error("generate", "--prompt is empty");
    }
    memcpy(w->ids, ids, sizeof(*ids) * (size_t)n);
    w->nids = n;
    free(ids);
    fputs(args.prompt, w->out);
    return TOOL_OK;
}

static int end(writer *w)
{
    if (!args.json) {
        putchar('\n');
        return TOOL_OK;
    }
    fclose(w->out);
    w->out = NULL;
    printf("{\n  \"file\": ");
    json_quote(args.file);
    printf(",\n  \"tokens\": %lld,\n  \"text\": ", (long long)w->nids);
    json_quote(w->text);
    printf("\n}\n");
    return TOOL_OK;
}

static int run(void)
{
    writer w = {0};
    net_options o = {.batch = 1, .iterations = 1, .threads = (int)args.threads, .quiet = args.json};
    int code = weights_open(args.file, args.model, &w.w);

    if (!code && (w.w.recipe.task != TASK_TEXT || !w.w.recipe.tokens))
        code = no_text();
    if (!code)
        code = net_from_weights(&w.w, &o, &w.n);
    if (!code)
        code = begin(&w);
    for (int64_t i = 0; !code && i < args.length; i++)
        code = next(&w);
    if (!code)
        code = end(&w);
    if (args.json && w.out)
        fclose(w.out);
    free(w.text);
    free(w.ids);
    free(w.window);
    free(w.scores);
    ts_tokens_free(w.tokens);
    net_free(&w.n);
    weights_free(&w.w);
    return code;
}

const command generate_command = {
    .name = "generate",
    .summary = "Writes text with the model of a checkpoint that was trained on text",
    .options = options,
    .run = run,
    .examples = "generate net.pth --prompt 'Once' --length 500\n"
                "generate net.pth --temperature 0.5 --top 20 --seed 7\n",
};
