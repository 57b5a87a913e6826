/* help.c - the help of a command, from its table; and `tessera help`. */
#include "tool.h"
#include <string.h>

enum { LEFT = 28, WIDTH = 80 };

/* Prints words from column LEFT on, the first line continuing at `column`. */
static void wrap(const char *s, int column)
{
    printf("%*s", column < LEFT ? LEFT - column : 2, "");
    for (column = column < LEFT ? LEFT : column + 2; *s;) {
        int n = (int)strcspn(s, " ");
        if (column > LEFT && column + n > WIDTH)
            column = printf("\n%*s", LEFT, "") - 1;
        column += printf("%.*s%s", n, s, s[n] ? " " : "");
        s += n + (int)strspn(s + n, " ");
    }
    printf("\n");
}

static void print_default(const option *o, char *out, size_t size)
{
    double real = o->kind == KIND_REAL ? *(double *)o->target : 0;
    int64_t whole = o->kind == KIND_INT ? *(int64_t *)o->target : 0;
    const char *text =
        o->kind == KIND_TEXT || o->kind == KIND_WORD ? *(const char **)o->target : NULL;

    out[0] = 0;
    if (real)
        snprintf(out, size, " (default %g)", real);
    else if (whole)
        snprintf(out, size, " (default %lld)", (long long)whole);
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

static void rows(const command *c, const char *title, bool arguments)
{
    const option *o;
    bool first = true;

    for (int i = 0; (o = option_at(c, i)); i++) {
        if (o->argument != arguments)
            continue;
        if (first)
            printf("\n%s\n", title);
        first = false;
        row(o);
    }
}

static void synopsis(const command *c)
{
    const option *o;

    printf("usage: tessera %s", c->name);
    for (int i = 0; (o = option_at(c, i)); i++)
        if (o->argument)
            printf(o->needed ? " %s%s" : " [%s%s]", o->name, o->kind == KIND_WORDS ? "..." : "");
    printf(" [options]\n\n%s.\n", c->summary);
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
    rows(c, "arguments", true);
    rows(c, "options", false);
    if (!option_at(c, 0) || option_at(c, 0)->argument)
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
