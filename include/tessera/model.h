/* model.h - a net as a text of a few lines.
 *
 * A net as a text of a few lines, by name or from a file; doc/models.md describes the language.
 *
 *   ts_model_load("classifier", &m);
 *   ts_model_graph(m, &(ts_model_options){.batch = 16, .training = true}, &g);
 *
 * The graph's input is "images", or what the description calls it; its output is "scores". Training adds the loss and, by its kind,
 * the input "labels" (classes as i32) or "targets" (the output's shape).
 */
#ifndef TESSERA_MODEL_H
#define TESSERA_MODEL_H

#include <tessera.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ts_model ts_model;
typedef struct ts_model_options {
    int64_t batch;       /* 0: 1 */
    int rank;            /* of one sample; 0: the shape that the description says */
    const int64_t *dims; /* its sizes. Of a model with several inputs rank 1 and as many numbers as
                            all of them have: the graph has one input, f32, and theirs are parts of
                            it, one after the other */
    int64_t classes;     /* 0: what the description says */
    bool training;       /* with loss, dropout and batch statistics */
} ts_model_options;

TS_API ts_status ts_model_load(const char *name_or_path, ts_model **out);
/* `file` is for the messages and, without folder and suffix, the model's name. */
TS_API ts_status ts_model_parse(const char *text, const char *file, ts_model **out);
TS_API void ts_model_free(ts_model *m);
TS_API ts_status ts_model_graph_sized(const ts_model *m, const ts_model_options *o, size_t size,
                                      ts_graph **out);
static inline ts_status ts_model_graph(const ts_model *m, const ts_model_options *o, ts_graph **out)
{
    return ts_model_graph_sized(m, o, sizeof(*o), out);
}

/* The i-th model that has a name; NULL past the last. */
TS_API const char *ts_model_builtin(int i);
TS_API const char *ts_model_name(const ts_model *m);
TS_API const char *ts_model_text(const ts_model *m);  /* the description as it was read   */
TS_API const char *ts_model_about(const ts_model *m); /* the comment it begins with, or "" */
/* Writes the sizes of one sample and returns their number. */
TS_API int ts_model_input(const ts_model *m, int64_t dims[TS_MAX_RANK]);
/* The i-th input's name, "images" where the description gives none; NULL past the last. The calls
 * about "the" input are about the first. */
TS_API const char *ts_model_input_name(const ts_model *m, int i);
/* The sizes and type of the i-th; returns their number, or -1 past the last. */
TS_API int ts_model_input_at(const ts_model *m, int i, int64_t dims[TS_MAX_RANK], ts_dtype *dtype);
TS_API ts_dtype ts_model_input_type(const ts_model *m); /* f32, or i32: it takes indices */
TS_API int64_t ts_model_classes(const ts_model *m);     /* 0: the description does not say */
TS_API int64_t ts_model_parameters(const ts_model *m);

typedef struct ts_model_layer {
    const char *name, *kind, *block; /* "" for none; of the model */
    int line;
    int rank; /* of the result, with the batch */
    int64_t dims[TS_MAX_RANK];
    int64_t parameters; /* trained */
    double flops;       /* forward */
} ts_model_layer;
/* One for each layer in order; free(*layers). */
TS_API ts_status ts_model_layers_sized(const ts_model *m, const ts_model_options *o, size_t size,
                                       ts_model_layer **layers, size_t layer_size, int *count);
static inline ts_status ts_model_layers(const ts_model *m, const ts_model_options *o,
                                        ts_model_layer **layers, int *count)
{
    return ts_model_layers_sized(m, o, sizeof(*o), layers, sizeof(**layers), count);
}

#ifdef __cplusplus
}
#endif
#endif
