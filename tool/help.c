/* help.c - the help of a command, from its table; and `tessera help`. */
#include "tool.h"
#include <string.h>

enum { LEFT = 28, WIDTH = 80 };

/* Prints words from column LEFT on; `column` letters are there already. */
static void wrap(const char *s, int column)
{
    int gap = column < LEFT ? LEFT - column : 2;

    for (column += gap; *s; s += strspn(s, " ")) {
        int n = (int)strcspn(s, " ");
        if (column > LEFT && column + 1 + n > WIDTH) {
            printf("\n");
            gap = column = LEFT;
        }
        column += printf("%*s%.*s", gap, "", n, s) - (gap > 1 ? gap : 0);
        gap = 1;
        s += n;
    }
    printf("\n");
}

/* What the target holds before is the default; outside the range it means "not given". */
static void print_default(const option *o, char *out, size_t size)
{
    double v = o->kind == KIND_REAL  ? *(double *)o->target
               : o->kind == KIND_INT ? (double)*(int64_t *)o->target
                                     : 0;
    const char *text = o->kind == KIND_WORD || (o->kind == KIND_TEXT && !o->argument)
                           ? *(const char **)o->target
                           : NULL;

    out[0] = 0;
    if (o->varies)
        return;
    if (v && v >= o->low && v <= o->high)
        snprintf(out, size, " (default %.15g)", v);
    else if (text)
        snprintf(out, size, " (default %s)", text);
}

static void row(const option *o)
{
    char text[512], otherwise[100];
    int column = printf("  %s%s%s%s", o->argument ? "" : "--", o->name, o->value ? " " : "",
                        o->value ? o->value : "");

    print_default(o, otherwise, sizeof(otherwise));
    snprintf(text, sizeof(text), "%s%s%s%s", o->help, o->choice ? ": " : "",
             o->choice ? o->choice : "", otherwise);
    wrap(text, column);
}

static bool has_arguments(const command *c)
{
    const option *o;

    for (int i = 0; (o = option_at(c, i)); i++)
        if (o->argument)
            return true;
    return false;
}

static void arguments(const command *c)
{
    const option *o;

    printf("\narguments\n");
    for (int i = 0; (o = option_at(c, i)); i++)
        if (o->argument)
            row(o);
}

/* Groups and titles begin a part of their own, but for a group in one of its name; a part without
 * options is not shown. */
static int parts(const option *o, const char *title)
{
    const char *outer = title;
    int shown = 0;

    for (; o && o->name; o++) {
        if (o->kind == KIND_TITLE)
            title = o->name;
        if (o->kind == KIND_GROUP) {
            bool same = outer && !strcmp(outer, o->name);
            shown += parts(o->target, same ? title : o->name);
            title = same ? NULL : "more options";
        }
        if (o->argument || o->kind == KIND_TITLE || o->kind == KIND_GROUP)
            continue;
        if (title)
            printf("\n%s\n", title);
        title = NULL;
        row(o);
        shown++;
    }
    return shown;
}

static void synopsis(const command *c)
{
    const option *o;

    printf("usage: tessera %s%s", c->name, c->only_words ? " [options]" : "");
    for (int i = 0; (o = option_at(c, i)); i++)
        if (o->argument)
            printf(o->needed ? " %s%s" : " [%s%s]", o->name, o->kind == KIND_WORDS ? "..." : "");
    printf("%s\n\n%s.\n", c->only_words ? "" : " [options]", c->summary);
}

static void examples(const char *s)
{
    if (!s)
        return;
    printf("\nexamples\n");
    for (size_t n; *s; s += n + (s[n] == '\n')) {
        n = strcspn(s, "\n");
        printf("  tessera %.*s\n", (int)n, s);
    }
}

static void help_all(void)
{
    printf("usage: tessera COMMAND [options]\n\n"
           "Trains neural networks with steps compiled ahead of time.\n\ncommands\n");
    for (int i = 0; commands[i]; i++)
        if (!commands[i]->hidden)
            wrap(commands[i]->summary, printf("  %s", commands[i]->name));
    printf("\noptions\n");
    wrap("this help, or that of a command", printf("  --help"));
    wrap("the version", printf("  --version"));
    printf("\nexit codes\n"
           "  0  done    1  failed, stderr says why    2  called in a wrong way\n"
           "  128 + n  ended by signal n: 130 after Ctrl-C\n");
}

void help(const command *c)
{
    if (!c) {
        help_all();
        return;
    }
    synopsis(c);
    if (c->more)
        printf("\n%s\n", c->more);
    if (has_arguments(c))
        arguments(c);
    if (!parts(c->options, "options"))
        printf("\noptions\n");
    wrap("this help", printf("  --help"));
    examples(c->examples);
}

/* --- tessera help --- */

static const char *name;

static const option options[] = {
    {"COMMAND", NULL, KIND_TEXT, &name, "the command to explain", .argument = true},
    {0},
};

static int run(void)
{
    const command *c = name ? find_command(name) : NULL;

    if (name && !c)
        return unknown_command(name);
    help(c);
    return TOOL_OK;
}

const command help_command = {
    .name = "help",
    .summary = "Explains a command",
    .options = options,
    .run = run,
    .examples = "help\nhelp compile\n",
};
