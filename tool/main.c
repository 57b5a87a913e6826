/* main.c - tessera COMMAND [options]: finds the command, reads its options, runs it. Start here.
 *
 * Exit codes: 0 done; 1 it failed, and stderr says why; 2 it was called in a wrong way; 128 + n
 * ended by signal n, so 130 after Ctrl-C.
 */
#include "tool.h"
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

const command *const commands[] = {
    &train_command,  &eval_command,       &predict_command, &generate_command,   &export_command,
    &models_command, &data_command,       &inspect_command, &plan_command,       &profile_command,
    &report_command, &compile_command,    &cache_command,   &devices_command,    &monitor_command,
    &run_command,    &gc_monitor_command, &help_command,    &completion_command, NULL,
};

words command_line;

/* Options of ts_options are what the library's table says. */
static void follow(void)
{
    follow_library(training_options);
    follow_library(place_options);
    follow_library(place_training_options);
}

const command *find_command(const char *name)
{
    for (int i = 0; commands[i]; i++)
        if (!strcmp(commands[i]->name, name))
            return commands[i];
    return NULL;
}

int unknown_command(const char *name)
{
    const char *names[COUNT(commands)], *near;
    int n = 0;

    for (int i = 0; commands[i]; i++)
        if (!commands[i]->hidden)
            names[n++] = commands[i]->name;
    near = ts_nearest(name, names, n);
    if (near)
        return usage_error(NULL, "there is no command '%s'; did you mean '%s'?", name, near);
    return usage_error(NULL, "there is no command '%s'", name);
}

/* A descriptor that is closed would be given to the next file opened, and what is printed would go
 * there. One that cannot be used fails instead. */
static void fill_descriptors(void)
{
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd ? O_RDONLY : O_WRONLY) != fd)
            exit(TOOL_FAILED);
}

static int obey(const command *c, int argc, char **argv)
{
    int code;

    for (int i = 0; i < argc && strcmp(argv[i], "--") && (!c->only_words || argv[i][0] == '-'); i++)
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) {
            help(c);
            return TOOL_OK;
        }
    code = parse(c, argc, argv);
    return code ? code : c->run();
}

static int run(int argc, char **argv)
{
    const char *first = argc > 1 ? argv[1] : NULL;
    const command *c;

    if (!first)
        return usage_error(NULL, "a command is missing");
    if (!strcmp(first, "--help") || !strcmp(first, "-h")) {
        help(NULL);
        return TOOL_OK;
    }
    if (!strcmp(first, "--version")) {
        printf("tessera %s\n", ts_version());
        return TOOL_OK;
    }
    if (first[0] == '-')
        return usage_error(NULL, "'%s' is not an option; a command comes first", first);
    c = find_command(first);
    return c ? obey(c, argc - 2, argv + 2) : unknown_command(first);
}

/* The command that has the name of the program: a link called gc-monitor or poprun. */
static const command *own_name(const char *path)
{
    const char *slash = path ? strrchr(path, '/') : NULL, *name = slash ? slash + 1 : path;

    if (name && !strcmp(name, "poprun"))
        return &run_command;
    return name && !strcmp(name, gc_monitor_command.name) ? &gc_monitor_command : NULL;
}

int main(int argc, char **argv)
{
    const command *own = argc ? own_name(argv[0]) : NULL;

    fill_descriptors();
    signal(SIGXFSZ, SIG_IGN); /* a file that may not grow is an error, like a full disk */
    follow();
    command_line = (words){argv + 1, argc - 1};
    return finish_output(own ? obey(own, argc - 1, argv + 1) : run(argc, argv));
}
