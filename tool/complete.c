/* complete.c - tessera completion: completion of command lines by bash and zsh, written from the
 * same tables that parse them. Runs when the tool is built; the result is installed.
 */
#include "tool.h"
#include <string.h>

static const char *shell;

static const option options[] = {
    {"SHELL", NULL, KIND_WORD, &shell, "the shell", .choice = "bash zsh", .argument = true,
     .needed = true},
    {0},
};

static bool has_names(const option *o)
{
    return o->takes == TAKES_MODEL || o->takes == TAKES_DATA;
}

/* Of the models or datasets that have one. */
static void names(const option *o)
{
    const char *(*at)(int) = o->takes == TAKES_MODEL ? ts_model_builtin : ts_dataset_builtin;

    for (int i = 0; at(i); i++)
        printf("%s%s", i ? " " : "", at(i));
}

static void visible_commands(void)
{
    for (int i = 0; commands[i]; i++)
        if (!commands[i]->hidden)
            printf("%s%s", i ? " " : "", commands[i]->name);
}

/* --- bash --- */

/* A line of what compgen prints for each word: names may have blanks and stars in them. */
#define BASH_WORDS     "mapfile -t COMPREPLY < <(compgen "
#define BASH_WORDS_END "\" -- \"$cur\")"

/* The words that can stand for the value of an option or argument. */
static void bash_value(const command *c, const option *o)
{
    printf(BASH_WORDS);
    if (o->takes == TAKES_FOLDER)
        printf("-d ");
    if (o->takes == TAKES_FILE || has_names(o))
        printf("-f ");
    printf("-W \"");
    if (has_names(o))
        names(o);
    else if (c == &help_command)
        visible_commands();
    else if (o->choice)
        printf("%s", o->choice);
    printf(BASH_WORDS_END);
}

static void bash_options(const command *c)
{
    const option *o;

    printf("    %s)\n        case \"$prev\" in\n", c->name);
    for (int i = 0; (o = option_at(c, i)); i++)
        if (!o->argument && o->kind != KIND_FLAG && o->kind != KIND_SWITCH) {
            printf("        --%s) ", o->name);
            bash_value(c, o);
            printf("; return ;;\n");
        }
    printf("        esac\n        case \"$cur\" in\n        -*) " BASH_WORDS "-W \"--help");
    for (int i = 0; (o = option_at(c, i)); i++)
        if (!o->argument)
            printf(" --%s", o->name);
    printf(BASH_WORDS_END "; return ;;\n        esac\n");
    for (int i = 0; (o = option_at(c, i)); i++)
        if (o->argument) {
            printf("        ");
            bash_value(c, o);
            printf("\n");
        }
    printf("        ;;\n");
}

static void bash(void)
{
    printf("# completion of tessera for bash; written by 'tessera completion bash'\n"
           "_tessera()\n{\n"
           "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}\n"
           "    COMPREPLY=()\n"
           "    if [ \"$COMP_CWORD\" -eq 1 ]; then\n        " BASH_WORDS "-W \"");
    visible_commands();
    printf(" --help --version" BASH_WORDS_END "\n        return\n    fi\n"
           "    case \"${COMP_WORDS[1]}\" in\n");
    for (int i = 0; commands[i]; i++)
        if (!commands[i]->hidden)
            bash_options(commands[i]);
    printf("    esac\n}\ncomplete -o filenames -F _tessera tessera\n");
}

/* --- zsh --- */

/* Text inside '...[...]...': neither may end early. */
static void zsh_text(const char *s)
{
    for (; *s; s++)
        if (*s == '\'')
            printf("'\\''");
        else
            printf(strchr("[]:\\", *s) ? "\\%c" : "%c", *s);
}

static void zsh_value(const command *c, const option *o)
{
    printf(":%s:", o->value ? o->value : o->name);
    if (o->takes == TAKES_FOLDER)
        printf("_files -/");
    else if (o->takes == TAKES_FILE)
        printf("_files");
    else if (has_names(o)) {
        printf("{ compadd ");
        names(o);
        printf("; _files }");
    } else if (c == &help_command) {
        printf("(");
        visible_commands();
        printf(")");
    } else if (o->choice) {
        printf("(");
        zsh_text(o->choice);
        printf(")");
    }
}

static void zsh_options(const command *c)
{
    const option *o;
    int n = 0;

    printf("    %s)\n        _arguments '--help[this help]'", c->name);
    for (int i = 0; (o = option_at(c, i)); i++) {
        if (o->argument && o->kind == KIND_WORDS)
            printf(" \\\n            '*");
        else if (o->argument)
            printf(" \\\n            '%d", ++n);
        else {
            printf(" \\\n            '--%s[", o->name);
            zsh_text(o->help);
            printf("]");
        }
        if (o->argument || (o->kind != KIND_FLAG && o->kind != KIND_SWITCH))
            zsh_value(c, o);
        printf("'");
    }
    printf("\n        ;;\n");
}

static void zsh(void)
{
    printf("#compdef tessera\n# written by 'tessera completion zsh'\n"
           "local -a commands\n"
           "if (( CURRENT == 2 )); then\n    commands=(\n");
    for (int i = 0; commands[i]; i++)
        if (!commands[i]->hidden) {
            printf("        '%s:", commands[i]->name);
            zsh_text(commands[i]->summary);
            printf("'\n");
        }
    printf("    )\n    _describe command commands\n    return\nfi\n"
           "shift words\n(( CURRENT-- ))\ncase $words[1] in\n");
    for (int i = 0; commands[i]; i++)
        if (!commands[i]->hidden)
            zsh_options(commands[i]);
    printf("esac\n");
}

static int run(void)
{
    strcmp(shell, "zsh") ? bash() : zsh();
    return TOOL_OK;
}

const command completion_command = {
    .name = "completion",
    .summary = "Writes the completion of command lines for a shell",
    .options = options,
    .run = run,
    .hidden = true,
};
