/* config.c - files of options for a command, as poprun's --import-config and --export-config:
 *
 *   # two processes on each machine
 *   num-instances 4
 *   host a:2,b:2
 *   numa-aware yes
 *
 * A line is a name and a value, checked as on the command line; what the line has given wins.
 */
#include "tool.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int read_line(const command *c, char *line)
{
    size_t len = strcspn(line, " \t=");
    char *value = line + len + strspn(line + len, " \t=");
    const option *o;

    line[len] = 0;
    o = find_option(c, line);
    if (!o)
        return usage_error(c->name, "there is no option --%s", line);
    if (given(o->target))
        return TOOL_OK;
    if (o->kind != KIND_TEXT && o->kind != KIND_WORD)
        return option_read(c, o, value);
    value = strdup(value); /* it stays */
    return value ? option_read(c, o, value) : failure("out of memory for the options");
}

static char *trim(char *s)
{
    size_t n;

    s += strspn(s, " \t");
    for (n = strlen(s); n && strchr(" \t\r\n", s[n - 1]); n--)
        s[n - 1] = 0;
    return s;
}

int config_import(const command *c, const char *path)
{
    FILE *f = fopen(path, "r");
    char line[4096], *s;
    int code = f ? TOOL_OK : failure("cannot read %s: %s", path, strerror(errno)), number = 0;

    while (!code && f && fgets(line, sizeof(line), f)) {
        number++;
        s = trim(line);
        if (*s && *s != '#')
            code = read_line(c, s);
    }
    if (code && number)
        fprintf(stderr, "that is line %d of %s\n", number, path);
    if (f)
        fclose(f);
    return code;
}

static bool is_one_of(const char *name, const char *const *names)
{
    for (; *names; names++)
        if (!strcmp(name, *names))
            return true;
    return false;
}

/* Of several names for one thing, the first. */
static bool is_again(const command *c, int at)
{
    for (int i = 0; i < at; i++)
        if (option_at(c, i)->target == option_at(c, at)->target)
            return true;
    return false;
}

int config_export(const command *c, const char *path, bool overwrite, const char *const *skip)
{
    FILE *f = fopen(path, overwrite ? "w" : "wx");
    char text[4096];
    const option *o;
    bool good;

    if (!f && errno == EEXIST)
        return explain(TS_ERR_FILE, path, "writing the options", "--overwrite-config replaces it",
                       "%s is there already", path);
    if (!f)
        return failure("cannot write %s: %s", path, strerror(errno));
    for (int i = 0; (o = option_at(c, i)); i++)
        if (!o->argument && given(o->target) && !is_again(c, i) && !is_one_of(o->name, skip))
            fprintf(f, "%s %s\n", o->name, option_text(o, text, sizeof(text)));
    good = !ferror(f);
    return !fclose(f) && good ? TOOL_OK : failure("cannot write %s: %s", path, strerror(errno));
}
