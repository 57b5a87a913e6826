/* mpi.h - what the library and libtessera_mpi.so know of each other.
 *
 * The module moves bytes between processes and finds out who is gone; what they mean, and how they
 * are added up, is the library's business (run/comm.c). So the module needs no symbol of ours, and
 * a program that trains alone never loads MPI.
 */
#ifndef TS_MPI_H
#define TS_MPI_H

#include <stdbool.h>
#include <stddef.h>

typedef struct ts_mpi_piece {
    void *data;
    size_t bytes; /* at most INT_MAX; 0: nothing */
} ts_mpi_piece;

typedef struct ts_mpi {
    int rank, size;
    /* out[p] goes to process p, in[p] comes from it; one's own are not looked at. False: the fields
     * below say why. `seconds`: how long to wait without a byte; 0: for ever. */
    bool (*swap)(const ts_mpi_piece *out, const ts_mpi_piece *in, double seconds);
    int lost; /* the process that did not answer, or -1 */
    char error[512];
} ts_mpi;

/* The module's only symbol. Starts MPI when it is called for the first time; NULL, with `error`
 * filled in, when that fails. */
typedef ts_mpi *ts_mpi_start_fn(char *error, size_t size);
#define TS_MPI_START "ts_mpi_start"

#endif
