/* device.h - the machine, its virtual devices, and who uses them.
 *
 * The machine's virtual devices, and who uses them. A device is an id and a block of memory; those
 * of one machine share its cores. An engine attaches the devices it needs when it is made: those
 * its process has, else the first that nobody uses. `tessera monitor` shows them. The processes of
 * a user know of each other by small files in $XDG_RUNTIME_DIR/tessera or /tmp/tessera-UID; those
 * of processes that died count nothing. TESSERA_MONITOR=0 keeps a process out of it.
 */
#ifndef TESSERA_DEVICE_H
#define TESSERA_DEVICE_H

#include <tessera.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ts_attach_options {
    int count;      /* of devices; 0 means 1                                             */
    const int *ids; /* count of them; NULL: the first that nobody uses                   */
    bool exclusive; /* no other process may have them, now and while they are attached   */
    double wait;    /* seconds to wait until they are free; negative: as long as it takes */
} ts_attach_options;
/* For engines to come (ts_run_options.devices), or to keep others away. $TESSERA_DEVICES, unless 0,
 * is how many devices there are; else any number can be asked for. */
TS_API ts_status ts_device_attach_sized(const ts_attach_options *opt, size_t size,
                                        ts_attachment **out);
static inline ts_status ts_device_attach(const ts_attach_options *opt, ts_attachment **out)
{
    return ts_device_attach_sized(opt, sizeof(*opt), out);
}
TS_API void ts_device_detach(ts_attachment *a); /* engines that use it keep it until freed */
TS_API int ts_device_id(const ts_attachment *a, int i); /* of its i-th device; -1 past the last */
TS_API int ts_device_count(void);                       /* 0: any number */

typedef struct ts_device_use { /* a process and one of its devices */
    int device;
    int64_t pid;
    char command[128], user[64];
    double seconds; /* since it was attached          */
    double busy;    /* of these, that it worked       */
    int64_t memory; /* bytes of it that are taken     */
    int64_t calls;  /* of engines, or sections done   */
    bool exclusive;
} ts_device_use;
/* All that are attached now, by process and device; free(*uses). Nobody is no error. */
TS_API ts_status ts_device_list_sized(ts_device_use **uses, size_t size, int *count);
static inline ts_status ts_device_list(ts_device_use **uses, int *count)
{
    return ts_device_list_sized(uses, sizeof(**uses), count);
}

/* The GPUs of that kind, in words: name, memory and what is compiled for, with `; ` between two. Without
 * one the call fails, and the error says what was looked for. TESSERA_GPU names those to use: 1, or 0,1. */
TS_API ts_status ts_device_describe(ts_device_kind kind, char *text, size_t size);

typedef struct ts_machine_info {
    char processor[128]; /* its name, or "" */
    int cores;           /* online                                                    */
    int allowed;         /* of these, by the process's affinity                       */
    double quota;        /* cores' worth of time by the control group; 0: no limit    */
    int threads;         /* what an engine takes by default                           */
    const char *isa;     /* what is compiled for by default; "" when TESSERA_ISA is not known */
    int64_t level1, level2, level3; /* bytes of the data caches; 0: not known         */
    int64_t memory, available;      /* bytes; 0: not known                            */
    char compiler[256];             /* its command and version; "" when there is none */
} ts_machine_info;
TS_API void ts_machine_sized(ts_machine_info *out, size_t size);
static inline void ts_machine(ts_machine_info *out)
{
    ts_machine_sized(out, sizeof(*out));
}

#ifdef __cplusplus
}
#endif
#endif
