/* options.c - reads a command line by the command's table: --name VALUE, --name=VALUE, flags,
 * switches
 * (--name, --name=no, --name no), and arguments in the order of the table. "--" ends the options.
 */
#include "tool.h"
#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

int usage_error(const char *command, const char *fmt, ...)
{
    va_list ap;
    int rank;

    ts_comm_place(&rank, NULL);
    if (rank) /* the first of the processes says the same */
        return TOOL_USAGE;
    fprintf(stderr, "tessera%s%s: ", command ? " " : "", command ? command : "");
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fprintf(stderr, "\n'tessera help%s%s' says more\n", command ? " " : "", command ? command : "");
    return TOOL_USAGE;
}

/* Counts i down over a table and the tables in it. */
static const option *walk(const option *o, int *i)
{
    for (; o && o->name; o++) {
        const option *inner = o->kind == KIND_GROUP ? walk(o->target, i) : NULL;
        if (inner)
            return inner;
        if (o->kind != KIND_GROUP && o->kind != KIND_TITLE && (*i)-- == 0)
            return o;
    }
    return NULL;
}

const option *option_at(const command *c, int i)
{
    return walk(c->options, &i);
}

static const option *find(const command *c, const char *name, size_t len)
{
    const option *o;

    for (int i = 0; (o = option_at(c, i)); i++)
        if (!o->argument && strlen(o->name) == len && !strncmp(o->name, name, len))
            return o;
    return NULL;
}

/* As other programs call it, which is nothing like our name. */
static const char *other_name(const command *c, const char *word)
{
    static const char *const names[][2] = {
        {"learning-rate", "lr"},
        {"learning_rate", "lr"},
        {"batch", "batch-size"},
        {"bs", "batch-size"},
        {"val", "validate"},
        {"validation", "validate"},
        {"early-stopping", "patience"},
        {"pretrained", "weights"},
        {"target", "label"},
        {"delimiter", "separator"},
        {"sep", "separator"},
        {"dtype", "precision"},
        {"out", "output"},
        {"force", "overwrite"},
    };

    for (int i = 0; i < COUNT(names); i++)
        if (!strcmp(names[i][0], word) && find(c, names[i][1], strlen(names[i][1])))
            return names[i][1];
    return NULL;
}

static int unknown_option(const command *c, const char *name, size_t len)
{
    const char *names[256], *near;
    char word[64];
    const option *o;
    int n = 0;

    for (int i = 0; n < COUNT(names) && (o = option_at(c, i)); i++)
        if (!o->argument)
            names[n++] = o->name;
    snprintf(word, sizeof(word), "%.*s", (int)len, name);
    near = other_name(c, word);
    near = near ? near : ts_nearest(word, names, n);
    if (near)
        return usage_error(c->name, "there is no option --%s; did you mean --%s?", word, near);
    return usage_error(c->name, "there is no option --%s", word);
}

/* --- values --- */

static const void *seen[256]; /* targets that the line gave a value */
static int nseen;

static void note(const option *o)
{
    if (nseen < COUNT(seen))
        seen[nseen++] = o->target;
}

bool given(const void *target)
{
    for (int i = 0; i < nseen; i++)
        if (seen[i] == target)
            return true;
    return false;
}

static const char *shown(const option *o, char *out, size_t size)
{
    snprintf(out, size, "%s%s", o->argument ? "" : "--", o->name);
    return out;
}

static int read_int(const command *c, const option *o, const char *s)
{
    char name[64], *end;
    long long v;

    errno = 0;
    v = strtoll(s, &end, 10);
    if (!*s || *end || isspace((unsigned char)*s))
        return usage_error(c->name, "%s must be a whole number, not '%s'",
                           shown(o, name, sizeof(name)), s);
    if (errno || v < (long long)o->low || v > (long long)o->high)
        return usage_error(c->name, "%s is %s; it can be %lld to %lld",
                           shown(o, name, sizeof(name)), s, (long long)o->low, (long long)o->high);
    *(int64_t *)o->target = v;
    return TOOL_OK;
}

static int read_real(const command *c, const option *o, const char *s)
{
    char name[64], *end;
    double v = strtod(s, &end);

    if (!*s || *end || s[strspn(s, "0123456789+-.eE")])
        return usage_error(c->name, "%s must be a number, not '%s'", shown(o, name, sizeof(name)),
                           s);
    if (!(v >= o->low && v <= o->high))
        return usage_error(c->name, "%s is %s; it can be %g to %g", shown(o, name, sizeof(name)), s,
                           o->low, o->high);
    *(double *)o->target = v;
    return TOOL_OK;
}

static int read_word(const command *c, const option *o, const char *s)
{
    size_t len = strlen(s), n;
    char name[64];

    for (const char *p = o->choice; *p; p += n + strspn(p + n, " ")) {
        n = strcspn(p, " ");
        if (n == len && !strncmp(p, s, n)) {
            *(const char **)o->target = s;
            return TOOL_OK;
        }
    }
    return usage_error(c->name, "%s is '%s'; it can be one of: %s", shown(o, name, sizeof(name)), s,
                       o->choice);
}

/* 1, 0, or -1 for another word. */
static int truth(const char *s)
{
    static const char *const words[] = {"no", "yes", "0", "1", "false", "true", "off", "on"};

    for (int i = 0; i < COUNT(words); i++)
        if (!strcmp(words[i], s))
            return i % 2;
    return -1;
}

static int read_truth(const command *c, const option *o, const char *s)
{
    if (truth(s) < 0)
        return usage_error(c->name, "--%s is '%s'; it can be yes or no", o->name, s);
    *(bool *)o->target = truth(s);
    return TOOL_OK;
}

static int read_value(const command *c, const option *o, char *s)
{
    char name[64];

    note(o);
    switch (o->kind) {
    case KIND_FLAG:
    case KIND_SWITCH:
        return read_truth(c, o, s);
    case KIND_INT:
        return read_int(c, o, s);
    case KIND_REAL:
        return read_real(c, o, s);
    case KIND_WORD:
        return read_word(c, o, s);
    default:
        if (!*s)
            return usage_error(c->name, "%s is empty", shown(o, name, sizeof(name)));
        *(const char **)o->target = s;
        return TOOL_OK;
    }
}

int option_read(const command *c, const option *o, char *text)
{
    return read_value(c, o, text);
}

const option *find_option(const command *c, const char *name)
{
    return find(c, name, strlen(name));
}

const char *option_text(const option *o, char *out, size_t size)
{
    const char *text;

    switch (o->kind) {
    case KIND_FLAG:
    case KIND_SWITCH:
        snprintf(out, size, "%s", *(bool *)o->target ? "yes" : "no");
        break;
    case KIND_INT:
        snprintf(out, size, "%lld", (long long)*(int64_t *)o->target);
        break;
    case KIND_REAL:
        snprintf(out, size, "%.17g", *(double *)o->target);
        break;
    default:
        text = *(const char **)o->target;
        snprintf(out, size, "%s", text ? text : "");
    }
    return out;
}

void option_set(const option *o, const char *text)
{
    switch (o->kind) {
    case KIND_FLAG:
    case KIND_SWITCH:
        *(bool *)o->target = !strcmp(text, "yes");
        break;
    case KIND_INT:
        *(int64_t *)o->target = strtoll(text, NULL, 10);
        break;
    case KIND_REAL:
        *(double *)o->target = strtod(text, NULL);
        break;
    default:
        *(const char **)o->target = text[0] ? text : NULL;
    }
}

/* --- fields of ts_options --- */

void follow_library(option *table)
{
    for (option *o = table; o->name; o++) {
        const ts_option *row = o->of ? ts_option_find(TS_RECORD_OPTIONS, o->of) : NULL;
        if (!row)
            continue;
        o->help = o->help ? o->help : row->about;
        if (o->kind != KIND_INT)
            continue;
        o->value = o->value ? o->value : "N";
        o->low = row->low ? (double)row->low : 1; /* 0 stands for not given */
        o->high = o->high ? o->high : (double)row->high;
        if (!o->varies)
            *(int64_t *)o->target = row->usual;
    }
}

int fill_options(const char *command, const option *table, ts_options *opt)
{
    char text[64];

    for (const option *o = table; o->name; o++)
        if (o->of && ts_options_set(opt, o->of, option_text(o, text, sizeof(text))))
            return usage_error(command, "--%s: %s", o->name, ts_last_error()->message);
    return TOOL_OK;
}

/* --- the line --- */

/* -l; of a flag, -ll is no more than -l */
static const option *find_letter(const command *c, const char *word)
{
    const option *o;

    for (int i = 0; (o = option_at(c, i)); i++)
        if (o->letter && word[1] == o->letter &&
            (!word[2] ||
             (o->kind == KIND_FLAG && !word[1 + strspn(word + 1, (char[]){o->letter, 0})])))
            return o;
    return NULL;
}

/* A word after a switch is its value unless it is the last, which must be something else. */
static int read_switch(const command *c, const option *o, char *value, char **argv, int argc,
                       int *i)
{
    if (!value && *i + 2 < argc && truth(argv[*i + 1]) >= 0)
        value = argv[++*i];
    return read_value(c, o, value ? value : (char *)"yes");
}

static int read_option(const command *c, char **argv, int argc, int *i)
{
    char *s = argv[*i] + 2;
    size_t len = strcspn(s, "=");
    bool letter = argv[*i][1] != '-';
    const option *o = letter ? find_letter(c, argv[*i]) : find(c, s, len);

    if (letter && !o)
        return usage_error(c->name, "'%s' is not an option; options begin with --", argv[*i]);
    if (!o)
        return unknown_option(c, s, len);
    if (o->kind == KIND_FLAG) {
        if (s[len])
            return usage_error(c->name, "--%s takes no value", o->name);
        *(bool *)o->target = true;
        note(o);
        return TOOL_OK;
    }
    if (o->kind == KIND_SWITCH)
        return read_switch(c, o, s[len] ? s + len + 1 : NULL, argv, argc, i);
    if (s[len])
        return read_value(c, o, s + len + 1);
    if (*i + 1 >= argc)
        return usage_error(c->name, "--%s needs a value: %s", o->name, o->value);
    return read_value(c, o, argv[++*i]);
}

/* The n-th argument of the table. */
static const option *argument_at(const command *c, int n)
{
    const option *o;

    for (int i = 0; (o = option_at(c, i)); i++)
        if (o->argument && (o->kind == KIND_WORDS || n-- == 0))
            return o;
    return NULL;
}

static int read_argument(const command *c, char **word, int n)
{
    const option *o = argument_at(c, n);

    if (!o)
        return usage_error(c->name, "'%s' is too much", *word);
    if (o->kind == KIND_WORDS) {
        words *w = o->target;
        if (!w->count++)
            w->word = word;
        w->word[w->count - 1] = *word; /* options in between were read already */
        return TOOL_OK;
    }
    return read_value(c, o, *word);
}

int parse(const command *c, int argc, char **argv)
{
    int arguments = 0, code = TOOL_OK;
    bool only_arguments = false;
    const option *o;

    nseen = 0;
    for (int i = 0; i < argc && !code; i++)
        if (!only_arguments && !strcmp(argv[i], "--"))
            only_arguments = true;
        else if (!only_arguments && argv[i][0] == '-' && argv[i][1])
            code = read_option(c, argv, argc, &i);
        else {
            code = read_argument(c, &argv[i], arguments++);
            only_arguments = only_arguments || c->only_words;
        }
    for (int i = 0; !code && (o = option_at(c, i)); i++)
        if (o->needed && !(o->kind == KIND_WORDS ? ((words *)o->target)->count
                                                 : *(const char **)o->target != NULL))
            code = usage_error(c->name, "%s%s is missing", o->argument ? "" : "--", o->name);
    return code;
}
