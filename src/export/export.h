/* export.h - what export.c and example.c share: a net on its way to C files. */
#ifndef TS_EXPORT_H
#define TS_EXPORT_H

#include "render/render.h"
#include "run/run.h"
#include "tessera/export.h"

/* An input or output as the caller passes it. */
typedef struct ts_param {
    const ts_value *v; /* in `model` */
    const char *name;  /* of the parameter */
    const char *size;  /* of the macro that counts its elements */
    const char *type;  /* of an element */
    int64_t count;
    int graph; /* which input or output of the user's graph it is */
} ts_param;

typedef struct ts_export {
    ts_arena *a;
    const ts_export_options *opt;
    const ts_graph *g; /* the user's */
    const char *name, *upper;
    ts_graph *model; /* g with constants for its states and without what no output needs */
    ts_param *in, *out;
    int nin, nout;
    struct ts_rounded { /* weights as bytes: what they are as floats again */
        const ts_value *state;
        const float *data;
    } * rounded;
    int nrounded;
    int products;    /* of bytes by bytes */
    bool classifies; /* one sample in, one score for each class out */
    ts_render r;
    ts_text code; /* constants and kernels */
} ts_export;

/* engine.c: one of g, whose weights are constants, with these outputs; the caller frees both */
ts_status ts_export_engine(ts_export *x, const ts_graph *g, int nout, const ts_value *const *out,
                           ts_executable **exe, ts_engine **e);
/* quantize.c: g with products of bytes by bytes, calibrated on the samples of the options */
ts_status ts_export_quantize(ts_export *x, const ts_graph *g, const ts_graph **out);
/* example.c: the program and what it must print */
ts_status ts_export_example(ts_export *x, ts_c_files *out);
/* export.c */
void ts_export_number(ts_text *t, ts_dtype type, const void *data, int64_t i); /* as a C constant */
void ts_export_array(ts_text *t, ts_dtype type, const void *data, int64_t count); /* { ... } */

#endif
