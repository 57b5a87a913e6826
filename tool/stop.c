/* stop.c - Ctrl-C while a net trains: the first asks the loop to end after the call of the engine
 * that runs, the second ends the program at once. A signal that was ignored before, as under nohup,
 * stays ignored.
 *
 * In several processes nobody may read the output any more: mpirun stops when it is interrupted, a
 * while before it tells the processes. One that waited for its output to be read would be killed
 * without a checkpoint, so from then on what does not fit is lost instead. The pipes are the
 * process's own there; the terminal that a process without a launcher writes to is its shell's too.
 */
#include "train.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

static volatile sig_atomic_t came;
static const int signals[] = {SIGINT, SIGTERM};
static struct sigaction before[COUNT(signals)];
static bool launched;

/* A write that waits is begun anew after the signal, and then does not wait. */
static void on_signal(int signal)
{
    int was = errno;

    if (came)
        _exit(128 + signal);
    came = signal;
    for (int fd = STDOUT_FILENO; launched && fd <= STDERR_FILENO; fd++)
        fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    errno = was;
}

void stop_catch(void)
{
    struct sigaction ours = {.sa_handler = on_signal, .sa_flags = SA_RESTART};

    launched = ranks() != NULL;
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
