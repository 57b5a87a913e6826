/* export.h - a trained net as plain C.
 *
 * A trained net's inference as C that needs nothing but libm: one source with the weights inside
 * and its header, C99 without extensions, no allocation. Every name in them begins with the net's.
 *
 *   void NAME_run(const float *input, float *output);
 *   void NAME_run_in(float *scratch, const float *input, float *output);   scratch from the caller
 *   int NAME_classify(const float *input);      the best of the scores, of one sample
 *
 * A net with several inputs or outputs takes them in their order, as in_... and out_...
 */
#ifndef TESSERA_EXPORT_H
#define TESSERA_EXPORT_H

#include <tessera/store.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ts_export_options {
    const char *name; /* a C identifier, and the files' name; NULL: made of the graph's    */
    /* The states' values: a dict of tensors by their names, floats of any size, or an engine of the
     * same net. Both NULL: what an engine starts with. */
    const ts_object *weights;
    const ts_engine *engine;
    const char *about;          /* lines for the header's comment, or NULL                  */
    const void *const *samples; /* for the example, one for each input as the graph has it;
                                   NULL: made-up numbers                                    */
    bool no_example;
    bool
        int8; /* weights of more than 4096 elements and two or more dims as bytes, with a scale for each
                  row of dim 0; they are made floats again where they are used */
    /* With int8: batches of samples for each input, one after the other as the graph has them, and
     * how many. What products by weights multiply is then bytes too, with scales that fit these
     * samples, and their sums are i32: faster, and of weights of any size. */
    const void *const *calibration;
    int64_t calibrations;
} ts_export_options;
typedef struct ts_c_files {
    char *header, *source; /* NAME.h, NAME.c                                              */
    char *example;         /* main.c, a program that runs a sample and prints the results  */
    char *expected;        /* what it prints, by an engine of this machine                 */
    char name[64];
    size_t constant_bytes, scratch_bytes;
    int kernels;
    int int8_products;   /* of bytes by bytes: calibrated */
    int inputs, outputs; /* arguments of NAME_run */
} ts_c_files;
/* g is the net as inference: no update, no random number. Its loss is left out. */
TS_API ts_status ts_export_c_sized(const ts_graph *g, const ts_export_options *opt, size_t size,
                                   ts_c_files *out, size_t out_size);
static inline ts_status ts_export_c(const ts_graph *g, const ts_export_options *opt,
                                    ts_c_files *out)
{
    return ts_export_c_sized(g, opt, sizeof(*opt), out, sizeof(*out));
}
TS_API void ts_c_files_free(ts_c_files *f);
/* NAME.h, NAME.c and, if there is an example, main.c and expected.txt into a folder that is there:
 * all of them or none. A file of such a name that no export wrote stays, and is an error, unless
 * `replace`. */
TS_API ts_status ts_c_files_write(const ts_c_files *f, const char *folder, bool replace);

/* The C as this machine's compiler makes it (-O3; TESSERA_CC, CC, or cc), loaded: to see how fast
 * and how good what is shipped is. Inputs and outputs are the arguments of NAME_run. */
typedef struct ts_c_net ts_c_net;
TS_API ts_status ts_c_net_new(const ts_c_files *f, ts_c_net **out);
TS_API void ts_c_net_run(const ts_c_net *n, const void *const *inputs, void *const *outputs);
TS_API void ts_c_net_free(ts_c_net *n);

#ifdef __cplusplus
}
#endif
#endif
