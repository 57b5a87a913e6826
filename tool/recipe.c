/* recipe.c - what is done to data before a net sees it: how images are resized, how numbers are
 * normalised. A recipe comes from the options of a command, from a model's file, or is what is
 * usual; train writes it into the file, and eval, predict and export do the same again.
 *
 *   tessera.input       1 28 28                      the sizes of a sample
 *   tessera.resize      bilinear | bilinear 256      how; the shorter side first, then the middle
 *   tessera.normalize   0.5 0.5 | 0.4,0.5 0.2,0.3    means, then deviations: for all channels or each
 */
#include "net.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

recipe_args recipe_asked;

const option recipe_options[] = {
    {"resize", "SIZE", KIND_TEXT, &recipe_asked.resize,
     .help = "resize images: 28, or 28x32 (height x width), then perhaps bilinear or bicubic as in "
             "28,bicubic; for a net of another size, the shorter side, and the middle is taken"},
    {"mean", "X,...", KIND_TEXT, &recipe_asked.mean,
     .help = "what is subtracted of each number: one for all channels, or one for each; pixels are "
             "0 to 1"},
    {"std", "X,...", KIND_TEXT, &recipe_asked.std,
     .help = "what each number is divided by after that"},
    {0},
};

/* --- normal: means and deviations --- */

static bool normal_room(normal *n, int count)
{
    double *mean = realloc(n->mean, sizeof(*mean) * (size_t)count);
    double *deviation = mean ? realloc(n->deviation, sizeof(*mean) * (size_t)count) : NULL;

    n->mean = mean ? mean : n->mean;
    n->deviation = deviation ? deviation : n->deviation;
    return mean && deviation;
}

void normal_free(normal *n)
{
    free(n->mean);
    free(n->deviation);
    *n = (normal){0};
}

bool normal_set(normal *out, int n, const double *mean, const double *deviation)
{
    *out = (normal){0};
    if (!normal_room(out, n + 1))
        return false;
    out->n = n;
    memcpy(out->mean, mean, sizeof(*mean) * (size_t)n);
    memcpy(out->deviation, deviation, sizeof(*mean) * (size_t)n);
    return true;
}

/* The numbers of 0.5,0.4 up to a blank; 0 when it is not such a list. */
static int count_list(const char *s)
{
    int n = 1;

    for (; *s && *s != ' '; s++)
        n += *s == ',';
    return n;
}

/* 0.5,0.4 -> values; returns how many there are, 0 when it is not such a list. */
static int read_list(const char **text, double *values)
{
    const char *s = *text;
    char *end;
    int n = 0;

    for (;; s = end + 1) {
        if (!*s || strchr(" \t\n", *s))
            return 0;
        values[n] = strtod(s, &end);
        if (end == s || !isfinite(values[n++]))
            return 0;
        if (*end != ',')
            break;
    }
    *text = end;
    return n;
}

static bool read_normal(const char *text, normal *out)
{
    int deviations;

    out->n = read_list(&text, out->mean);
    text += strspn(text, " ");
    if (count_list(text) != out->n)
        return false;
    deviations = read_list(&text, out->deviation);
    for (int i = 0; i < deviations; i++)
        if (out->deviation[i] == 0)
            return false;
    return out->n && out->n == deviations && !text[strspn(text, " ")];
}

bool normal_read(const char *text, normal *out)
{
    *out = (normal){0};
    text += strspn(text, " ");
    if (!*text)
        return true;
    if (normal_room(out, count_list(text)) && read_normal(text, out))
        return true;
    normal_free(out);
    return false;
}

static void print_list(FILE *f, const double *values, int n)
{
    for (int i = 0; i < n; i++)
        fprintf(f, "%s%.9g", i ? "," : "", values[i]);
}

char *normal_text(const normal *n)
{
    char *text = NULL;
    size_t len;
    FILE *f = open_memstream(&text, &len);

    if (!f)
        return NULL;
    print_list(f, n->mean, n->n);
    if (n->n)
        fputc(' ', f);
    print_list(f, n->deviation, n->n);
    if (!fclose(f))
        return text;
    free(text);
    return NULL;
}

normal normal_usual(const char *data, ts_dtype dtype)
{
    bool digits = data && !strcmp(data, "mnist");
    normal out = {0};

    if (digits || dtype == TS_U8)
        (void)normal_set(&out, 1, (double[]){digits ? 0.1307 : 0.5},
                         (double[]){digits ? 0.3081 : 0.5});
    return out;
}

ts_normalize normal_view(const normal *n)
{
    return (ts_normalize){.mean = n->mean, .deviation = n->deviation, .n = n->n};
}

/* --- what the line says --- */

static bool read_side(const char **s, int *out)
{
    char *end;
    long v = **s >= '1' && **s <= '9' ? strtol(*s, &end, 10) : 0;

    if (v < 1 || v > 4096)
        return false;
    *out = (int)v;
    *s = end;
    return true;
}

static bool read_filter(const char *s, recipe *r)
{
    r->has_filter = true;
    r->filter = !strcmp(s, "bicubic") ? TS_FILTER_BICUBIC : TS_FILTER_BILINEAR;
    return !strcmp(s, "bicubic") || !strcmp(s, "bilinear");
}

/* "28", "28x32", "28,bicubic", "bicubic"; sizes stay 0 when there are none. */
static bool read_resize(const char *s, recipe *r, int *height, int *width)
{
    *height = *width = 0;
    if (*s < '0' || *s > '9')
        return read_filter(s, r);
    if (!read_side(&s, height))
        return false;
    *width = *height;
    if (*s == 'x' && (s++, !read_side(&s, width)))
        return false;
    return !*s || (*s == ',' && read_filter(s + 1, r));
}

int recipe_size(const char *command, recipe *r, int *height, int *width)
{
    *height = *width = 0;
    if (!recipe_asked.resize || read_resize(recipe_asked.resize, r, height, width))
        return TOOL_OK;
    return usage_error(command,
                       "--resize is '%s'; it must be like 28 or 28x32 or 28,bicubic, up to 4096",
                       recipe_asked.resize);
}

static int override_normal(const char *command, recipe *r)
{
    char *text = NULL;
    normal n;
    bool good;

    if (!recipe_asked.mean && !recipe_asked.std)
        return TOOL_OK;
    if (!recipe_asked.mean || !recipe_asked.std)
        return usage_error(command, "--mean and --std go together");
    good =
        asprintf(&text, "%s %s", recipe_asked.mean, recipe_asked.std) >= 0 && normal_read(text, &n);
    free(text);
    if (!good)
        return usage_error(command,
                           "--mean %s and --std %s make no sense: as many numbers as there are "
                           "channels, or one, and no deviation of 0",
                           recipe_asked.mean, recipe_asked.std);
    normal_free(&r->normal);
    r->normal = n;
    r->has_normal = true;
    return TOOL_OK;
}

int recipe_override(const char *command, recipe *r)
{
    int height, width, code = recipe_size(command, r, &height, &width);

    if (height)
        r->shorter = 0;
    if (!code && height &&
        (r->rank != 3 || height != (int)r->dims[1] || width != (int)r->dims[2])) {
        if (height != width)
            return usage_error(command,
                               "--resize %s: a net of another size needs one number, the "
                               "shorter side",
                               recipe_asked.resize);
        r->shorter = height;
    }
    return code ? code : override_normal(command, r);
}

void recipe_settle(recipe *r, const char *data, ts_dtype dtype, bool quiet)
{
    if (r->has_normal)
        return;
    normal_free(&r->normal);
    r->normal = normal_usual(data, dtype);
    if (!quiet && r->normal.n && !(data && dataset_has_name(data)))
        fprintf(stderr,
                "tessera: the file does not say how its images were normalised; mean %g and "
                "deviation %g are a guess, --mean and --std say otherwise\n",
                r->normal.mean[0], r->normal.deviation[0]);
}

ts_image_options recipe_image(const recipe *r)
{
    if (r->rank != 3)
        return (ts_image_options){0};
    return (ts_image_options){.channels = (int)r->dims[0],
                              .height = (int)r->dims[1],
                              .width = (int)r->dims[2],
                              .filter = r->filter,
                              .shorter = r->shorter};
}

/* --- in a file --- */

static char *dims_text(const recipe *r)
{
    char *text = NULL;
    size_t len;
    FILE *f = open_memstream(&text, &len);

    for (int i = 0; f && i < r->rank; i++)
        fprintf(f, "%s%lld", i ? " " : "", (long long)r->dims[i]);
    if (f && !fclose(f))
        return text;
    free(text);
    return NULL;
}

static ts_status put(ts_object *o, const char *key, char *text)
{
    ts_status s = text ? ts_object_set(o, key, ts_object_new_text(text)) : TS_ERR_MEMORY;

    free(text);
    return s;
}

ts_status recipe_put(const recipe *r, ts_object *o)
{
    char resize[64], shorter[24] = "";
    ts_status s = put(o, "tessera.input", dims_text(r));

    if (!s)
        s = put(o, "tessera.normalize", normal_text(&r->normal));
    if (s || !r->has_filter)
        return s;
    if (r->shorter)
        snprintf(shorter, sizeof(shorter), " %d", r->shorter);
    snprintf(resize, sizeof(resize), "%s%s",
             r->filter == TS_FILTER_BICUBIC ? "bicubic" : "bilinear", shorter);
    return put(o, "tessera.resize", strdup(resize));
}

/* "1 28 28" -> sizes; false when it is not such a text. */
static bool read_dims(const char *s, recipe *r)
{
    char *end;

    for (r->rank = 0; r->rank < TS_MAX_RANK - 1; s = end) {
        long long v = strtoll(s, &end, 10);
        if (end == s || v <= 0)
            break;
        r->dims[r->rank++] = v;
    }
    return r->rank > 0 && !s[strspn(s, " \n")];
}

/* "bilinear 256" */
static bool read_how(const char *s, recipe *r)
{
    char word[16] = "";
    size_t n = strcspn(s, " ");

    snprintf(word, sizeof(word), "%.*s", (int)n, s);
    s += n;
    if (*s == ' ' && (s++, !read_side(&s, &r->shorter)))
        return false;
    return read_filter(word, r) && !*s;
}

const char *recipe_read(recipe *r, const ts_model *m, recipe_fact *fact, const void *file)
{
    const char *input = fact(file, "tessera.input"), *how = fact(file, "tessera.normalize"),
               *resize = fact(file, "tessera.resize");

    *r = (recipe){.integers = ts_model_input_type(m) == TS_I32};
    r->rank = ts_model_input(m, r->dims);
    r->has_input = input != NULL;
    if (input && !read_dims(input, r))
        return "tessera.input";
    if (resize && !read_how(resize, r))
        return "tessera.resize";
    if (how && !normal_read(how, &r->normal))
        return "tessera.normalize";
    r->has_normal = how != NULL;
    return NULL;
}

void recipe_free(recipe *r)
{
    normal_free(&r->normal);
    *r = (recipe){0};
}
