/* keep.c - what a run leaves on disk, and going on from it.
 *
 *   classifier.pth          the result: a state dict, with the model and more as metadata
 *   classifier.resume.pth   {'epoch', 'step', 'loss', 'model_state_dict', 'optimizer_state_dict',
 *                            'tessera': {'options', 'progress', 'states', 'rng_seed', 'rng_step',
 *                                        'samples', and the result's metadata}}
 *
 * A file is there whole or not at all, and after a crash the one before is (ts_object_save). Options that
 * change what is computed are in the checkpoint as text; a run that goes on takes those it is not
 * given from there, and one that is given another value is told both.
 */
#include "train.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const meaning[] = {
    "model",
    "batch-size",
    "optimizer",
    "lr",
    "seed",
    "momentum",
    "weight-decay",
    "beta1",
    "beta2",
    "gradient-accumulation",
    "limit",
    "resize",
    "device-iterations",
    "grayscale",
    "replicas",
    "crop",
    "mean",
    "std",
    "clip",
    "ema",
    "precision",
    "loss",
    "freeze",
    "augment",
    "label-smoothing",
    "class-weights",
    "validate",
    "label",
    "drop",
    "missing",
    "task",
    "separator",
    "scale",
    "lr-schedule",
    "warmup",
    "lr-every",
    "lr-gamma",
    "window",
    "vocabulary",
    "samples",
    "downsample",
};

/* --- metadata --- */

static int check_text(const char *name, const char *text)
{
    char shown[256];

    for (int n, at = 0; text[at]; at += n)
        if (!(n = utf8_letter((const unsigned char *)text + at)))
            return usage_error("train", "%s is '%s', which is not UTF-8", name,
                               printable(text, shown, sizeof(shown)));
    return TOOL_OK;
}

int check_texts(void)
{
    int code = check_text("DATA", asked.data);
    char text[PATH_MAX], name[64];

    for (int i = 0; !code && i < COUNT(meaning); i++) {
        snprintf(name, sizeof(name), "--%s", meaning[i]);
        option_text(find_option(&train_command, meaning[i]), text, sizeof(text));
        code = check_text(name, text);
    }
    return code;
}

static ts_status put_text(ts_object *o, const char *key, const char *text)
{
    return ts_object_set(o, key, ts_object_new_text(text));
}

static const char *name_of(const ts_dataset *d, int i)
{
    return ts_dataset_target_count(d) ? ts_dataset_target_name(d, i) : ts_dataset_class_name(d, i);
}

/* A line each: classes, or what the numbers or labels are called. */
static char *class_names(const ts_dataset *d)
{
    char *text = NULL;
    size_t len = 0;
    FILE *f = open_memstream(&text, &len);
    const char *name;

    for (int i = 0; f && (name = name_of(d, i)); i++) {
        if (i)
            fputc('\n', f);
        escape_name(f, name);
    }
    if (f && fclose(f)) {
        free(text);
        return NULL;
    }
    return text;
}

static ts_status put_facts(const run *r, ts_object *o)
{
    char *classes = class_names(r->data);
    ts_status s = classes ? TS_OK : TS_ERR_MEMORY;

    if (!s && !(s = put_text(o, "tessera.model", ts_model_text(r->model))) &&
        !(s = put_text(o, "tessera.model.name", ts_model_name(r->model))) &&
        !(s = put_text(o, "tessera.data", asked.data)) &&
        !(s = put_text(o, "tessera.classes", classes)) && !(s = recipe_put(&r->recipe, o)))
        s = put_text(o, "tessera.version", ts_version());
    free(classes);
    return s;
}

/* --- saving --- */

ts_object *engine_states(const run *r)
{
    ts_object *o = ts_object_new_dict();
    const char *name;

    for (int i = 0; o && (name = ts_graph_state(r->graph, i, NULL)); i++)
        if (ts_object_set(o, name, engine_tensor(r, name))) {
            ts_object_free(o);
            return NULL;
        }
    return o;
}

static bool is_model_state(const run *r, const char *name)
{
    const char *s;

    for (int i = 0; (s = ts_graph_state(r->graph, i, NULL)); i++)
        if (!strcmp(s, name))
            return true;
    return false;
}

/* What neither the model nor PyTorch's optimizers have: lr, accumulators, counts. */
static ts_object *other_states(const run *r)
{
    ts_object *o = ts_object_new_dict();
    const ts_tensor_info *t;

    for (int i = 0; o && (t = ts_executable_tensor(r->exe, TS_ROLE_STATE, i)); i++)
        if (!is_model_state(r, t->name) && !is_optimizer_state(r, t->name) &&
            ts_object_set(o, t->name, engine_tensor(r, t->name))) {
            ts_object_free(o);
            return NULL;
        }
    return o;
}

static ts_object *options_object(void)
{
    ts_object *o = ts_object_new_dict();
    char text[PATH_MAX];

    for (int i = 0; o && i < COUNT(meaning); i++)
        if (put_text(o, meaning[i],
                     option_text(find_option(&train_command, meaning[i]), text, sizeof(text)))) {
            ts_object_free(o);
            return NULL;
        }
    return o;
}

static uint64_t hash(uint64_t h, const void *data, size_t bytes)
{
    const unsigned char *p = data;
    uint64_t word;

    for (; bytes >= sizeof(word); bytes -= sizeof(word), p += sizeof(word)) {
        memcpy(&word, p, sizeof(word));
        h = (h ^ word) * 0x9e3779b97f4a7c15u;
        h ^= h >> 29;
    }
    for (; bytes; bytes--)
        h = (h ^ *p++) * 0x100000001b3u;
    return h;
}

/* Of all that is learned from: the data is the same wherever it lies, and not when it changed. */
int64_t data_hash(const ts_dataset *d)
{
    ts_array all = ts_dataset_samples(d);
    uint64_t h = hash(0, all.dims, sizeof(*all.dims) * (size_t)all.rank);

    h = hash(h, all.data, all.bytes);
    h = hash(h, ts_dataset_labels(d),
             (size_t)(ts_dataset_count(d) * ts_dataset_label_count(d)) * sizeof(int32_t));
    h = hash(h, ts_dataset_targets(d),
             (size_t)(ts_dataset_count(d) * ts_dataset_target_count(d)) * sizeof(float));
    return (int64_t)(h >> 1);
}

static ts_object *own_object(const run *r)
{
    ts_object *o = ts_object_new_dict();
    uint64_t seed, step;

    ts_engine_rng(r->engine, &seed, &step);
    if (o && !put_facts(r, o) && !ts_object_set(o, "options", options_object()) &&
        !ts_object_set(o, "epochs", ts_object_new_int(asked.epochs)) &&
        !ts_object_set(o, "processes", ts_object_new_int(rank_count())) &&
        !ts_object_set(o, "progress", progress_object(&r->done)) &&
        !ts_object_set(o, "states", other_states(r)) &&
        !ts_object_set(o, "rng_seed", ts_object_new_int((int64_t)seed)) &&
        !ts_object_set(o, "rng_step", ts_object_new_int((int64_t)step)) &&
        !ts_object_set(o, "samples", ts_object_new_int(ts_dataset_count(r->data))) &&
        !ts_object_set(o, "data_hash", ts_object_new_int(r->hash)) &&
        !put_text(o, "source", r->source ? r->source : ts_model_text(r->model)) &&
        (!r->best || !ts_object_set(o, "best", ts_object_share(r->best))) &&
        (!r->average || !ts_object_set(o, "average", ts_object_share(r->average))))
        return o;
    ts_object_free(o);
    return NULL;
}

static double last_loss(const progress *p)
{
    return p->batches || !p->epoch ? progress_loss(p) : p->rows[p->epoch - 1].loss;
}

int keep_run(const run *r)
{
    ts_object *o = ts_object_new_dict();
    int code;

    if (!o || ts_object_set(o, "epoch", ts_object_new_int(r->done.epoch)) ||
        ts_object_set(o, "step", ts_object_new_int(r->done.updates)) ||
        ts_object_set(o, "model_state_dict", engine_states(r)) ||
        ts_object_set(o, "optimizer_state_dict", optimizer_object(r)) ||
        ts_object_set(o, "loss", ts_object_new_float(last_loss(&r->done))) ||
        ts_object_set(o, "tessera", own_object(r)) || ts_object_save(o, r->resume, TS_FILE_PTH))
        code = failed();
    else
        code = TOOL_OK;
    ts_object_free(o);
    return code;
}

/* The same tensors in a dict of its own, which metadata can be put into. */
static ts_object *copy_dict(const ts_object *from)
{
    ts_object *o = ts_object_new_dict();

    for (int64_t i = 0; o && i < ts_object_size(from); i++)
        if (ts_object_set(o, ts_object_text(ts_object_key(from, i)),
                          ts_object_share(ts_object_at(from, i)))) {
            ts_object_free(o);
            return NULL;
        }
    return o;
}

static ts_object *copy_shared(ts_object *from)
{
    ts_object *o = from ? copy_dict(from) : NULL;

    ts_object_free(from);
    return o;
}

int keep_result(run *r, ts_object **states)
{
    ts_object *facts = ts_object_new_dict();

    *states = r->best ? copy_dict(r->best) : copy_shared(model_states(r));
    if (*states && facts && !put_facts(r, facts) &&
        !ts_object_set(*states, "__metadata__", ts_object_share(facts)) &&
        !ts_object_save(*states, r->output, TS_FILE_AUTO)) {
        ts_object_free(facts);
        return TOOL_OK;
    }
    ts_object_free(facts);
    ts_object_free(*states);
    *states = NULL;
    return failed();
}

/* --- going on --- */

static int damaged(const run *r, const char *what)
{
    return explain(TS_ERR_CORRUPT, r->resume, "going on from a checkpoint",
                   "train anew without --resume", "%s", what);
}

static int differs(const run *r, const char *name, const char *now, const char *then)
{
    return explain(TS_ERR_ARG, r->resume, "going on from a checkpoint",
                   "leave the option out to go on, or train anew without --resume",
                   "%s is '%s' here and '%s' in the run to go on with", name, now, then);
}

static bool same_value(const option *o, const char *now, const char *then)
{
    return !strcmp(now, then) || (o->kind == KIND_REAL && strtod(now, NULL) == strtod(then, NULL));
}

/* The learning rate is what people want to change on the way. */
static bool may_change(const char *name)
{
    static const char *const rates[] = {"lr", "lr-schedule", "warmup", "lr-every", "lr-gamma"};

    for (int i = 0; i < COUNT(rates); i++)
        if (!strcmp(rates[i], name))
            return true;
    return false;
}

/* Options that checkpoints of earlier versions do not tell of: they had none, so they are not given. */
static bool came_later(const char *name)
{
    return !strcmp(name, "beta1") || !strcmp(name, "beta2");
}

static int resume_option(const run *r, const ts_object *options, const char *name)
{
    const option *o = find_option(&train_command, name);
    const char *then = ts_object_text(ts_object_get(options, name));
    char now[PATH_MAX], title[64];

    if (!then && came_later(name))
        return TOOL_OK;
    if (!then)
        return damaged(r, "the checkpoint does not say how its run was started");
    option_text(o, now, sizeof(now));
    snprintf(title, sizeof(title), "--%s", name);
    if (given(o->target) && may_change(name))
        return TOOL_OK;
    if (given(o->target) && !same_value(o, now, then))
        return differs(r, title, now[0] ? now : "not given", then[0] ? then : "not given");
    option_set(o, then);
    return TOOL_OK;
}

/* What is divided by; a file may say anything. */
static bool in_range(const char *name)
{
    const option *o = find_option(&train_command, name);
    double v = (double)*(int64_t *)o->target;

    return v >= o->low && v <= o->high;
}

static int resume_all(const run *r, const ts_object *options)
{
    int code = TOOL_OK;

    for (int i = 0; !code && i < COUNT(meaning); i++)
        code = resume_option(r, options, meaning[i]);
    if (!code && !(in_range("batch-size") && in_range("device-iterations") &&
                   in_range("gradient-accumulation") && in_range("replicas")))
        return damaged(r, "the checkpoint's options make no sense");
    return code;
}

/* The description is in the checkpoint; a file of it that changed since is another model. */
static int resume_model(run *r, const ts_object *own, bool named)
{
    const char *text = ts_object_text(ts_object_get(own, "tessera.model"));
    const char *name = ts_object_text(ts_object_get(own, "tessera.model.name")), *source;

    if (!text || !name)
        return damaged(r, "the checkpoint has no model");
    if (named && ts_model_load(asked.model, &r->model))
        return failed();
    source = ts_object_text(ts_object_get(own, "source"));
    r->source = strdup(source ? source : text);
    if (named && strcmp(ts_model_text(r->model), r->source) != 0)
        return explain(TS_ERR_ARG, r->resume, "going on from a checkpoint",
                       "leave out --model to go on with the one of the checkpoint",
                       "the description of the model %s is not that of the run to go on with",
                       asked.model);
    ts_model_free(r->model);
    r->model = NULL;
    return ts_model_parse(text, name, &r->model) ? failed() : TOOL_OK;
}

static int resume_epochs(const run *r, const ts_object *own)
{
    int64_t epochs = ts_object_int(ts_object_get(own, "epochs"), 0);
    int64_t done = ts_object_int(ts_object_get(ts_object_get(own, "progress"), "epoch"), -1);

    if (!given(&asked.epochs))
        asked.epochs = epochs;
    if (epochs < 1 || done < 0)
        return damaged(r, "the checkpoint does not say how many epochs its run has");
    if (done > asked.epochs)
        return explain(TS_ERR_ARG, r->resume, "going on from a checkpoint",
                       "give more --epochs to train on",
                       "--epochs is %lld, and %lld are done already", (long long)asked.epochs,
                       (long long)done);
    return TOOL_OK;
}

static int nothing_to_resume(const run *r)
{
    return explain(TS_ERR_FILE, r->resume, "going on from a checkpoint",
                   "train without --resume first; --output says which run is meant",
                   "there is nothing to resume: %s is not there", r->resume);
}

int resume_options(run *r, ts_object **file)
{
    bool named = given(&asked.model);
    const ts_object *own;
    const char *data;
    int code;

    if (is_first() && access(r->resume, F_OK) && errno == ENOENT)
        return nothing_to_resume(r);
    code = ranks_load(r->resume, file);
    if (code)
        return code;
    own = ts_object_get(*file, "tessera");
    data = ts_object_text(ts_object_get(own, "tessera.data"));
    if (!data)
        return damaged(r, "it is no checkpoint of a training run");
    if (strcmp(data, asked.data) && dataset_has_name(data) && dataset_has_name(asked.data))
        return differs(r, "the data", asked.data, data);
    code = resume_all(r, ts_object_get(own, "options"));
    if (!code)
        code = resume_processes(r, own);
    if (!code)
        code = resume_epochs(r, own);
    return code ? code : resume_model(r, own, named);
}

static int resume_state(run *r, const ts_object *file, const ts_tensor_info *t)
{
    const ts_object *own = ts_object_get(file, "tessera");
    const ts_array *a = ts_object_array(ts_object_get(weights_states(file), t->name));
    char what[256];

    if (!a)
        a = optimizer_state(r, ts_object_get(file, "optimizer_state_dict"), t->name);
    if (!a)
        a = ts_object_array(ts_object_get(ts_object_get(own, "states"), t->name));
    if (!a || a->dtype != t->dtype || a->rank != t->rank ||
        memcmp(a->dims, t->dims, sizeof(*a->dims) * (size_t)a->rank) != 0) {
        snprintf(what, sizeof(what), "the checkpoint has no %s that fits the model", t->name);
        return damaged(r, what);
    }
    return ts_engine_write(r->engine, t->name, a->data, a->bytes) ? failed() : TOOL_OK;
}

int resume_run(run *r, const ts_object *file)
{
    const ts_object *own = ts_object_get(file, "tessera");
    int64_t samples = ts_object_int(ts_object_get(own, "samples"), -1);
    const ts_tensor_info *t;
    int code = TOOL_OK;
    char now[32], then[32];

    if (samples != ts_dataset_count(r->data)) {
        snprintf(now, sizeof(now), "%" PRId64, ts_dataset_count(r->data));
        snprintf(then, sizeof(then), "%" PRId64, samples);
        return differs(r, "the number of samples", now, then);
    }
    if (ts_object_int(ts_object_get(own, "data_hash"), -1) != r->hash)
        return explain(TS_ERR_ARG, r->resume, "going on from a checkpoint",
                       "train anew without --resume, or give the data that it was",
                       "the data %s is not what the run to go on with learned from", asked.data);
    if (!progress_read(&r->done, ts_object_get(own, "progress")) || r->done.call >= r->calls)
        return damaged(r, "the checkpoint does not say how far its run is");
    for (int i = 0; !code && (t = ts_executable_tensor(r->exe, TS_ROLE_STATE, i)); i++)
        code = resume_state(r, file, t);
    r->best = ts_object_get(own, "best") ? ts_object_share(ts_object_get(own, "best")) : NULL;
    r->average =
        ts_object_get(own, "average") ? ts_object_share(ts_object_get(own, "average")) : NULL;
    ts_engine_set_rng(r->engine, (uint64_t)ts_object_int(ts_object_get(own, "rng_seed"), 0),
                      (uint64_t)ts_object_int(ts_object_get(own, "rng_step"), 0));
    return code;
}

/* --- whose output it is --- */

/* Held to the end of the process, whatever ends it; the file goes when the run does. */
int claim_output(run *r)
{
    char path[PATH_MAX + 8];
    struct stat mine, there;

    snprintf(path, sizeof(path), "%s.lock", r->resume);
    r->lock = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (r->lock < 0)
        return explain(TS_ERR_FILE, path, "preparing to train", "--output chooses another folder",
                       "cannot write beside the output: %s", strerror(errno));
    if (flock(r->lock, LOCK_EX | LOCK_NB) || fstat(r->lock, &mine) || stat(path, &there) ||
        mine.st_ino != there.st_ino) {
        close(r->lock);
        r->lock = -1;
        return explain(TS_ERR_FILE, r->output, "preparing to train",
                       "wait for it, or choose another --output",
                       "another run is training this model");
    }
    if (asked.resume || asked.overwrite || access(r->output, F_OK))
        return TOOL_OK;
    return explain(TS_ERR_FILE, r->output, "preparing to train",
                   "--overwrite trains it anew, --resume goes on, --output FILE writes another",
                   "%s is there already, a finished model", r->output);
}

void release_output(run *r)
{
    char path[PATH_MAX + 8];

    if (r->lock <= 0)
        return;
    snprintf(path, sizeof(path), "%s.lock", r->resume);
    unlink(path);
    close(r->lock);
    r->lock = 0;
}

int set_aside(const run *r)
{
    char old[PATH_MAX + 8];
    ts_object *file;
    int64_t epochs, done, steps;

    if (access(r->resume, F_OK) || ts_object_load(r->resume, &file))
        return TOOL_OK;
    epochs = ts_object_int(ts_object_get(ts_object_get(file, "tessera"), "epochs"), 0);
    done = ts_object_int(ts_object_get(file, "epoch"), 0);
    steps = ts_object_int(ts_object_get(file, "step"), 0);
    ts_object_free(file);
    if (done >= epochs || !steps)
        return TOOL_OK;
    snprintf(old, sizeof(old), "%s.old", r->resume);
    if (rename(r->resume, old))
        return explain(TS_ERR_FILE, r->resume, "setting aside a checkpoint of another run", NULL,
                       "cannot rename it to %s: %s", old, strerror(errno));
    say("An unfinished run (%lld of %lld epochs) was there; its checkpoint is now %s",
        (long long)done, (long long)epochs, old);
    return TOOL_OK;
}
