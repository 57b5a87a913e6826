/* adapt.c - the model of a run: a description, changed by what the line says and by the data.
 *
 *   --loss mse, --label-smoothing 0.1      another line `loss`; a regression gets mse, labels
 *                                          bce_with_logits, when nobody says
 *   --freeze 'conv*'                       a line `freeze conv*`
 *   --class-weights balanced               lines `class_weights`, by how many there are of each
 *   --precision bf16                       a line `precision`
 *
 * What is trained is the changed text, and the model's file has it: nothing is changed in any other
 * way, so whoever reads the file sees the net as it was trained.
 */
#include "train.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static bool begins(const char *line, const char *word)
{
    size_t n = strlen(word);

    line += strspn(line, " \t");
    return !strncmp(line, word, n) && (!line[n] || strchr(" \t\r\n#", line[n]));
}

/* --- the loss --- */

static bool is_class_loss(const char *kind)
{
    return !strcmp(kind, "cross_entropy") || !strcmp(kind, "nll") || !strcmp(kind, "focal");
}

/* "loss cross_entropy reduction=sum" -> the kind, and what follows it */
static const char *read_loss(const char *line, char *kind, size_t size)
{
    size_t n;

    line += strspn(line, " \t");
    line += strlen("loss");
    line += strspn(line, " \t");
    n = strcspn(line, " \t\r\n#");
    snprintf(kind, size, "%.*s", (int)n, line);
    return line + n;
}

static const char *wanted_loss(const run *r, const char *now)
{
    if (asked.loss)
        return asked.loss;
    if ((r->recipe.task != TASK_NUMBERS && r->recipe.task != TASK_LABELS) || !is_class_loss(now))
        return now;
    return r->recipe.task == TASK_NUMBERS ? "mse" : "bce_with_logits";
}

/* A loss of scores takes no log-probabilities: with nll its log_softmax goes. */
static void put_loss(const run *r, FILE *f, const char *line)
{
    char now[64];
    const char *rest = read_loss(line, now, sizeof(now)), *kind = wanted_loss(r, now);
    bool mixed = is_mixed();

    if (!strcmp(now, "nll") && (asked.smoothing > 0 || mixed))
        kind = "cross_entropy";
    fprintf(f, "loss %s", kind);
    if (!strcmp(kind, now))
        fprintf(f, "%.*s", (int)strcspn(rest, "#\r\n"), rest);
    if (asked.smoothing > 0)
        fprintf(f, " label_smoothing=%g", asked.smoothing);
    if (mixed)
        fprintf(f, " soft=yes");
    fputc('\n', f);
}

static bool drops_softmax(const run *r, const char *text)
{
    const char *loss = NULL;
    char now[64];

    for (const char *p = text; p; p = strchr(p, '\n') ? strchr(p, '\n') + 1 : NULL)
        if (begins(p, "loss"))
            loss = p;
    if (!loss)
        return false;
    read_loss(loss, now, sizeof(now));
    return !strcmp(now, "nll") &&
           (strcmp(wanted_loss(r, now), "nll") || asked.smoothing > 0 || is_mixed());
}

/* --- weights of classes --- */

static bool put_balanced(const run *r, FILE *f)
{
    int64_t *counts = calloc((size_t)r->classes, sizeof(*counts)),
            n = ts_dataset_count(r->data) * ts_dataset_label_count(r->data);
    const int32_t *labels = ts_dataset_labels(r->data);

    for (int64_t i = 0; counts && i < n; i++)
        counts[labels[i]]++;
    for (int i = 0; counts && i < r->classes; i++)
        fprintf(f, "class_weights %.9g\n",
                counts[i] ? (double)n / ((double)counts[i] * r->classes) : 1);
    free(counts);
    return counts != NULL;
}

static int put_weights(const run *r, FILE *f)
{
    const char *s = asked.class_weights;
    int n = 0;

    if (!s)
        return TOOL_OK;
    if (r->recipe.task != TASK_CLASSES && r->recipe.task != TASK_PIXELS)
        return usage_error("train", "--class-weights is for classes");
    if (!strcmp(s, "balanced"))
        return put_balanced(r, f) ? TOOL_OK : failure("out of memory");
    for (char *end; *s; s = *end ? end + 1 : end, n++) {
        double v = strtod(s, &end);
        if (end == s || (*end && *end != ',') || !(v >= 0))
            return usage_error("train",
                               "--class-weights is '%s'; it must be like 1,0.5,2 or balanced",
                               asked.class_weights);
        fprintf(f, "class_weights %.9g\n", v);
    }
    if (n != r->classes)
        return usage_error("train", "--class-weights has %d numbers, and there are %d classes", n,
                           r->classes);
    return TOOL_OK;
}

/* --- all of it --- */

static void put_frozen(FILE *f)
{
    char *text = asked.freeze ? strdup(asked.freeze) : NULL, *rest = NULL;

    for (char *p = text ? strtok_r(text, ",", &rest) : NULL; p; p = strtok_r(NULL, ",", &rest))
        fprintf(f, "freeze %s\n", p);
    free(text);
}

static int put_all(const run *r, const char *text, FILE *f)
{
    bool drop = drops_softmax(r, text);
    const char *next, *softmax = NULL;
    int code = TOOL_OK, losses = 0;

    for (const char *p = text; drop && p && *p; p = strchr(p, '\n') ? strchr(p, '\n') + 1 : NULL)
        if (begins(p, "log_softmax"))
            softmax = p;
    for (const char *p = text; p && *p && !code; p = next) {
        size_t n = strcspn(p, "\n");
        next = p[n] ? p + n + 1 : NULL;
        if (begins(p, "loss") && losses++) {
            if (!asked.loss) /* which stands for all of them */
                put_loss(r, f, p);
        } else if (begins(p, "loss")) {
            put_frozen(f);
            if (strcmp(asked.precision, "f32") != 0)
                fprintf(f, "precision %s\n", asked.precision);
            code = put_weights(r, f);
            put_loss(r, f, p);
        } else if (asked.class_weights && begins(p, "classes")) {
            fprintf(f, "classes %d\n", r->classes); /* as many as there are weights */
        } else if (p != softmax) {
            fprintf(f, "%.*s\n", (int)n, p);
        }
    }
    return code;
}

int adapt_model(run *r)
{
    const char *text = ts_model_text(r->model);
    char *changed = NULL, name[256];
    size_t len;
    FILE *f = open_memstream(&changed, &len);
    ts_model *m = NULL;
    int code;

    if (!f)
        return failure("out of memory for the model");
    r->source = strdup(text);
    code = put_all(r, text, f);
    if (fclose(f) && !code)
        code = failure("out of memory for the model");
    snprintf(name, sizeof(name), "%s", ts_model_name(r->model));
    if (!code && strcmp(changed, text) != 0) {
        if (ts_model_parse(changed, name, &m))
            code = failed();
        else {
            ts_model_free(r->model);
            r->model = m;
        }
    }
    free(changed);
    return code;
}

/* --- weights to begin with --- */

static bool same_shape(const ts_tensor_info *t, const ts_array *a)
{
    return a && a->rank == t->rank && same_kind(a->dtype, t->dtype) &&
           !memcmp(a->dims, t->dims, sizeof(*a->dims) * (size_t)a->rank);
}

/* What has the same name and shape; the rest, such as the head for other classes, starts anew. */
int take_weights(run *r)
{
    const ts_object *states = weights_states(r->start);
    const ts_tensor_info *t;
    int64_t taken = 0, anew = 0;
    char first[256] = "";
    const char *name;

    for (int i = 0; (name = ts_graph_state(r->graph, i, NULL)); i++) {
        const ts_array *a = ts_object_array(ts_object_get(states, name));
        t = find_tensor(r, name);
        if (t && same_shape(t, a)) {
            if (write_state(r->engine, t, a))
                return TOOL_FAILED;
            taken++;
        } else if (!anew++)
            printable(name, first, sizeof(first));
    }
    if (!taken)
        return explain(TS_ERR_SHAPE, asked.weights, "taking weights to begin with",
                       "'tessera inspect' shows its names and shapes",
                       "no tensor of %s has the name and shape of one of the model %s",
                       asked.weights, ts_model_name(r->model));
    say("%lld of %lld tensors are those of %s%s%s%s", (long long)taken, (long long)(taken + anew),
        asked.weights, anew ? "; new is " : "", first, anew > 1 ? " and others" : "");
    return TOOL_OK;
}

/* The model is the file's own when none is named. */
int open_weights(run *r)
{
    weights w;
    int code = weights_load(asked.weights, false, &w);

    if (code)
        return code;
    if (!w.states)
        code = explain(TS_ERR_ARG, asked.weights, "taking weights to begin with", NULL,
                       "%s has no state dict", asked.weights);
    if (!code && !given(&asked.model)) {
        code = weights_identify(&w, NULL);
        if (!code && !w.model)
            code = explain(TS_ERR_ARG, asked.weights, "taking weights to begin with",
                           "--model NAME|FILE names it", "%s does not say which model it is of",
                           asked.weights);
        if (!code && w.recipe.has_normal && !w.recipe.columns) { /* what its weights are used to */
            r->recipe.normal = w.recipe.normal;
            r->recipe.has_normal = true;
            w.recipe.normal = (normal){0};
        }
        r->model = w.model;
        w.model = NULL;
    }
    r->start = code ? NULL : ts_object_share(w.file);
    weights_free(&w);
    return code;
}
