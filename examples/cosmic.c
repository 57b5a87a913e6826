/* cosmic.c - which pixels of a neutrino detector's pictures are of cosmic rays, and which of
 * neutrinos: CosmicTagger without Python. Events of an HDF5 file in, a network that is a text
 * (`tessera models uresnet-a21`), losses, steps a second and IoU out.
 *
 *   build/examples/cosmic cosmic_tagging_light.h5 --downsample 2 --precision half --devices 4
 *   build/examples/cosmic events.h5 --model net.txt --steps 300
 */
#include "tessera.h"
#include "tessera/data.h"
#include "tessera/model.h"
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct cosmic {
    const char *data, *model, *precision;
    int downsample, steps, devices;
    double lr;
    ts_dataset *events;
    ts_model *net;
    ts_executable *exe;
    ts_engine *engine;
    ts_loader *loader;
    int64_t classes, places;
    float *scores;
    int64_t *counts; /* [is * classes + said], of the last time through the events */
} cosmic;

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* --- the line --- */

static void usage(FILE *f)
{
    fputs("usage: cosmic FILE [options]\n"
          "  --model NAME|FILE   the network (uresnet-a21)\n"
          "  --downsample N      pictures N times smaller (1)\n"
          "  --precision TYPE    f32, bf16 or half (f32)\n"
          "  --devices N         cut the network for so many (1)\n"
          "  --steps N           updates of the weights, one event each (25)\n"
          "  --lr X              of Adam (0.001)\n",
          f);
}

static int whole(const char *name, const char *text)
{
    char *end;
    long v = strtol(text, &end, 10);

    if (end != text && !*end && v >= 1 && v <= 1000000)
        return (int)v;
    fprintf(stderr, "cosmic: --%s takes a number from 1, not '%s'\n", name, text);
    exit(2);
}

static void read_line(int argc, char **argv, cosmic *c)
{
    static const struct option known[] = {{"model", 1, NULL, 'm'},     {"downsample", 1, NULL, 'd'},
                                          {"precision", 1, NULL, 'p'}, {"steps", 1, NULL, 's'},
                                          {"devices", 1, NULL, 'n'},   {"lr", 1, NULL, 'r'},
                                          {"help", 0, NULL, 'h'},      {0}};
    int o;

    while ((o = getopt_long(argc, argv, "h", known, NULL)) != -1) {
        if (o == 'm')
            c->model = optarg;
        else if (o == 'd')
            c->downsample = whole("downsample", optarg);
        else if (o == 'p')
            c->precision = strcmp(optarg, "half") ? optarg : "f16";
        else if (o == 's')
            c->steps = whole("steps", optarg);
        else if (o == 'n')
            c->devices = whole("devices", optarg);
        else if (o == 'r')
            c->lr = atof(optarg);
        else {
            usage(o == 'h' ? stdout : stderr);
            exit(o == 'h' ? 0 : 2);
        }
    }
    if (optind != argc - 1) {
        usage(stderr);
        exit(2);
    }
    c->data = argv[optind];
}

/* --- the network --- */

/* The description with a line `precision` before its loss. */
static ts_status load_net(cosmic *c)
{
    char *text = NULL;
    const char *loss, *all;
    ts_status s = ts_model_load(c->model, &c->net);

    if (s || !strcmp(c->precision, "f32"))
        return s;
    all = ts_model_text(c->net);
    loss = strstr(all, "\nloss ");
    if (!loss ||
        asprintf(&text, "%.*s\nprecision %s%s", (int)(loss - all), all, c->precision, loss) < 0) {
        fprintf(stderr, "cosmic: the model has no loss\n");
        exit(1);
    }
    ts_model_free(c->net);
    c->net = NULL;
    s = ts_model_parse(text, c->model, &c->net);
    free(text);
    return s;
}

static ts_status compile(cosmic *c)
{
    ts_array sample;
    ts_optimizer adam = ts_adam(c->lr);
    ts_options how = {.optimizer = &adam, .devices = c->devices, .output_mode = TS_OUTPUT_ALL};
    ts_model_options net = {.batch = 1, .classes = ts_dataset_classes(c->events), .training = true};
    ts_graph *g = NULL;
    ts_status s = ts_dataset_sample(c->events, 0, &sample);

    adam.automatic_scaling = !strcmp(c->precision, "f16");
    if (adam.automatic_scaling)
        adam.loss_scaling = 65536;
    net.rank = sample.rank;
    net.dims = sample.dims;
    if (!s)
        s = ts_model_graph(c->net, &net, &g);
    if (!s)
        s = ts_compile(g, &how, &c->exe);
    ts_graph_free(g);
    return s;
}

/* Scores are 1 x classes x the labels' dims. */
static ts_status prepare(cosmic *c)
{
    const ts_tensor_info *t;
    ts_status s = ts_engine_new(c->exe, NULL, &c->engine);

    if (!s)
        s = ts_loader_new(c->events, &(ts_loader_options){.shuffle = true, .seed = 42}, &c->loader);
    if (s)
        return s;
    t = ts_executable_tensor(c->exe, TS_ROLE_OUTPUT, 0);
    c->classes = t->dims[1];
    c->places = ts_dataset_label_count(c->events);
    if ((int64_t)(t->bytes / sizeof(float)) != c->classes * c->places) {
        fprintf(stderr, "cosmic: the network does not give scores for every label\n");
        exit(1);
    }
    c->scores = malloc(t->bytes);
    c->counts = calloc((size_t)(c->classes * c->classes), sizeof(*c->counts));
    return TS_OK;
}

/* --- training --- */

static void count(cosmic *c, const int32_t *labels)
{
    for (int64_t i = 0; i < c->places; i++) {
        int64_t best = 0;
        for (int64_t k = 1; k < c->classes; k++)
            if (c->scores[k * c->places + i] > c->scores[best * c->places + i])
                best = k;
        c->counts[labels[i] * c->classes + best]++;
    }
}

static double iou(const cosmic *c, int64_t k)
{
    int64_t both = c->counts[k * c->classes + k], any = -both;

    for (int64_t i = 0; i < c->classes; i++)
        any += c->counts[k * c->classes + i] + c->counts[i * c->classes + k];
    return any ? (double)both / (double)any : 0;
}

static ts_status train(cosmic *c)
{
    int64_t events = ts_dataset_count(c->events);
    double began = now();

    for (int step = 0; step < c->steps; step++) {
        float loss;
        ts_batch b;
        ts_status s = ts_loader_next(c->loader, &b);
        if (!s)
            s = ts_engine_run(c->engine, (const void *[]){b.samples, b.labels},
                              (void *[]){c->scores, &loss});
        if (s)
            return s;
        if (step >= c->steps - events)
            count(c, b.labels);
        if (step % events == events - 1 || step == c->steps - 1)
            printf("step %d: loss %.5f, %.3f steps/s\n", step + 1, loss,
                   (step + 1) / (now() - began));
    }
    for (int64_t k = 0; k < c->classes; k++)
        printf("IoU %s: %.4f\n", ts_dataset_class_name(c->events, (int)k), iou(c, k));
    return TS_OK;
}

static ts_status run(cosmic *c)
{
    ts_status s = ts_dataset_load(
        &(ts_dataset_options){.name = c->data, .downsample = c->downsample}, &c->events);

    if (!s)
        s = load_net(c);
    if (!s)
        s = compile(c);
    if (!s)
        s = prepare(c);
    return s ? s : train(c);
}

int main(int argc, char **argv)
{
    cosmic c = {.model = "uresnet-a21",
                .precision = "f32",
                .downsample = 1,
                .steps = 25,
                .devices = 1,
                .lr = 0.001};
    ts_status s;

    read_line(argc, argv, &c);
    s = run(&c);
    if (s)
        fputs(ts_error_text(), stderr);
    ts_loader_free(c.loader);
    ts_engine_free(c.engine);
    ts_executable_free(c.exe);
    ts_model_free(c.net);
    ts_dataset_free(c.events);
    free(c.scores);
    free(c.counts);
    return s ? 1 : 0;
}
