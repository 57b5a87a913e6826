/* stop.c - Ctrl-C while a net trains: the first asks the loop to end after the call of the engine
 * that runs, the second ends the program at once. A signal that was ignored before, as under nohup,
 * stays ignored.
 */
#include "train.h"
#include <signal.h>
#include <unistd.h>

static volatile sig_atomic_t came;
static const int signals[] = {SIGINT, SIGTERM};
static struct sigaction before[COUNT(signals)];

static void on_signal(int signal)
{
    if (came)
        _exit(128 + signal);
    came = signal;
}

void stop_catch(void)
{
    struct sigaction ours = {.sa_handler = on_signal, .sa_flags = SA_RESTART};

    sigemptyset(&ours.sa_mask);
    for (int i = 0; i < COUNT(signals); i++)
        if (!sigaction(signals[i], NULL, &before[i]) && before[i].sa_handler != SIG_IGN)
            sigaction(signals[i], &ours, NULL);
}

int stop_signal(void)
{
    return came;
}

void stop_release(void)
{
    for (int i = 0; i < COUNT(signals); i++)
        sigaction(signals[i], &before[i], NULL);
}
