/* hdf5.c - HDF5 files through libhdf5: plain arrays, and the events of larcv3.
 *
 *   plain    x_train, y_train, x_test, y_test; x, y; images, labels: as in .npz (numpy.c)
 *
 *   larcv    /Data/sparse2d_NAME_group         a product: pictures that are nearly empty
 *              extents        first, N         of an event: its rows in the next two tables
 *              image_meta     number_of_voxels of a picture: its sizes
 *              voxel_extents  first, N, ID     of a picture: its rows in voxels; its projection
 *              voxels         id, value        a pixel that is not 0
 *
 * One product has the pictures and another their labels. Sample i is event i, its projections are
 * the planes of it: planes x height x width, where id = column * height + row. A product whose
 * values are whole numbers from 0 to 255 is taken for labels.
 *
 * A file is believed nothing: links and data outside it are refused, no filter is loaded for it,
 * and what a table claims is held against what so many bytes can hold when they are unpacked. Dense
 * pictures have no such bound, so they are held against the machine's memory. All of it happens in a
 * process of its own (apart.c), for libhdf5 itself does not survive every damage, and is not made for
 * several threads.
 */
#include "data/data.h"

#ifdef TS_HAVE_HDF5
#include <hdf5.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    MOST_RATIO = 1032, /* bytes that deflate can make of one */
    MOST_PRODUCTS = 64,
    MOST_SIDE = 1 << 15,
    MOST_PLANES = 64,
    LOOKED_AT = 1 << 16, /* values that say whether a product is labels */
    LABELS = 256,        /* such a product's classes */
};

typedef struct reading {
    const char *path;
    const ts_dataset_options *opt;
    hid_t file;
    size_t len; /* of the file */
} reading;

/* --- what libhdf5 says --- */

typedef struct said {
    char text[200];
} said;

/* The innermost message comes first. */
static herr_t take_message(unsigned n, const H5E_error2_t *e, void *out)
{
    said *s = out;

    if (!n && e->desc)
        ts_format(s->text, sizeof(s->text), ": %s", e->desc);
    return 0;
}

static ts_status unreadable(const reading *r, const char *what)
{
    said s = {""};

    H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, take_message, &s);
    H5Eclear2(H5E_DEFAULT);
    return ts_fail(TS_ERR_CORRUPT, "%s of %s does not read as HDF5%s", what, r->path, s.text);
}

static ts_status wrong(const reading *r, const char *product, const char *what)
{
    return ts_fail(TS_ERR_CORRUPT, "%s: %s %s", r->path, product, what);
}

/* Half of it, for what is read becomes a dataset. */
static ts_status check_memory(const reading *r, const char *what, double bytes)
{
    double all = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);

    if (bytes <= all / 2)
        return TS_OK;
    ts_fail(TS_ERR_MEMORY, "%s of %s takes %.1f GiB, more than half of the machine's %.1f", what,
            r->path, bytes / 0x1p30, all / 0x1p30);
    ts_error_hint("a limit of samples, or pictures made smaller, need less");
    return TS_ERR_MEMORY;
}

/* --- one dataset of the file --- */

typedef struct table {
    hid_t id, type;
    char name[256];
    int rank;
    int64_t dims[TS_MAX_RANK], rows;
} table;

static void close_table(table *t)
{
    if (t->type > 0)
        H5Tclose(t->type);
    if (t->id > 0)
        H5Dclose(t->id);
    t->type = t->id = 0;
}

/* What is somewhere else is not this file's. */
static bool is_here(hid_t file, const char *name)
{
    char part[256];
    H5L_info_t info;

    for (const char *p = name; p; p = strchr(p, '/')) {
        p += *p == '/';
        ts_format(part, sizeof(part), "%.*s", (int)(p - name + (ptrdiff_t)strcspn(p, "/")), name);
        if (H5Lexists(file, part, H5P_DEFAULT) <= 0 ||
            H5Lget_info(file, part, &info, H5P_DEFAULT) < 0 || info.type != H5L_TYPE_HARD)
            return false;
    }
    return true;
}

static bool is_plain(hid_t how)
{
    H5D_layout_t layout = H5Pget_layout(how);

    return (layout == H5D_COMPACT || layout == H5D_CONTIGUOUS || layout == H5D_CHUNKED) &&
           H5Pget_external_count(how) == 0;
}

/* Bytes of a chunk, which libhdf5 allocates; 0: there are none. */
static double chunk_bytes(hid_t how, int rank, double element)
{
    hsize_t dims[H5S_MAX_RANK];
    double bytes = element;

    if (H5Pget_layout(how) != H5D_CHUNKED || H5Pget_chunk(how, rank, dims) != rank)
        return 0;
    for (int i = 0; i < rank; i++)
        bytes *= (double)dims[i];
    return bytes;
}

/* A table that is larger than its file can be is a lie, whatever it is made of. */
static ts_status check_size(const reading *r, const table *t)
{
    double element = (double)H5Tget_size(t->type), bytes = element;
    double most = (double)MOST_RATIO * (double)r->len, chunk;
    hid_t how = H5Dget_create_plist(t->id);
    bool plain = how > 0 && is_plain(how);

    chunk = plain ? chunk_bytes(how, t->rank, element) : 0;
    if (how > 0)
        H5Pclose(how);
    for (int i = 0; i < t->rank; i++)
        bytes *= (double)t->dims[i];
    if (!plain)
        return ts_fail(TS_ERR_UNSUPPORTED, "%s of %s is kept outside of the file", t->name,
                       r->path);
    if (bytes <= most && chunk <= most)
        return TS_OK;
    return ts_fail(TS_ERR_CORRUPT, "%s of %s claims %.0f bytes, more than a file of %zu can hold",
                   t->name, r->path, TS_MAX(bytes, chunk), r->len);
}

static bool read_dims(table *t)
{
    hid_t space = H5Dget_space(t->id);
    hsize_t dims[H5S_MAX_RANK];
    int rank = space > 0 ? H5Sget_simple_extent_ndims(space) : -1;
    bool good = rank >= 0 && rank < TS_MAX_RANK && H5Sis_simple(space) > 0 &&
                H5Sget_simple_extent_dims(space, dims, NULL) == rank;

    t->rank = good ? rank : 0;
    for (int i = 0; i < t->rank; i++) {
        good = good && dims[i] <= INT64_MAX / 2;
        t->dims[i] = (int64_t)dims[i];
    }
    t->rows = rank > 0 ? t->dims[0] : 1;
    if (space > 0)
        H5Sclose(space);
    return good;
}

static ts_status open_table(const reading *r, const char *name, table *t)
{
    H5O_info_t info;
    ts_status s;

    *t = (table){0};
    ts_format(t->name, sizeof(t->name), "%s", name);
    if (!is_here(r->file, name))
        return ts_fail(TS_ERR_CORRUPT, "%s has no %s", r->path, name);
    if (H5Oget_info_by_name(r->file, name, &info, H5P_DEFAULT) < 0)
        return unreadable(r, name);
    if (info.type != H5O_TYPE_DATASET)
        return wrong(r, name, "is no array");
    t->id = H5Dopen2(r->file, name, H5P_DEFAULT);
    t->type = t->id > 0 ? H5Dget_type(t->id) : 0;
    s = t->type > 0 && read_dims(t) ? check_size(r, t) : unreadable(r, name);
    if (s)
        close_table(t);
    return s;
}

/* --- rows of tables with columns --- */

typedef struct column {
    const char *name;
    size_t at;
    hid_t type;
    int n; /* of an array of them; 0: one */
} column;

static bool has_column(const table *t, const column *c)
{
    hid_t type;
    bool good;
    int at = H5Tget_class(t->type) == H5T_COMPOUND ? H5Tget_member_index(t->type, c->name) : -1;
    hsize_t dims[H5S_MAX_RANK] = {0};

    if (at < 0)
        return false;
    type = H5Tget_member_type(t->type, (unsigned)at);
    if (c->n)
        good = H5Tget_class(type) == H5T_ARRAY && H5Tget_array_ndims(type) == 1 &&
               H5Tget_array_dims2(type, dims) == 1 && dims[0] == (hsize_t)c->n;
    else
        good = H5Tget_class(type) == H5T_INTEGER || H5Tget_class(type) == H5T_FLOAT;
    H5Tclose(type);
    return good;
}

static bool add_column(hid_t to, const column *c)
{
    hsize_t n = (hsize_t)c->n;
    hid_t type = c->n ? H5Tarray_create2(c->type, 1, &n) : H5Tcopy(c->type);
    bool good = type > 0 && H5Tinsert(to, c->name, c->at, type) >= 0;

    if (type > 0)
        H5Tclose(type);
    return good;
}

static ts_status read_part(const reading *r, const table *t, hid_t type, int64_t first, int64_t n,
                           void *out)
{
    hsize_t start = (hsize_t)first, count = (hsize_t)n;
    hid_t from = H5Dget_space(t->id), to = H5Screate_simple(1, &count, NULL);
    bool good = from > 0 && to > 0 &&
                H5Sselect_hyperslab(from, H5S_SELECT_SET, &start, NULL, &count, NULL) >= 0 &&
                H5Dread(t->id, type, to, from, H5P_DEFAULT, out) >= 0;

    if (to > 0)
        H5Sclose(to);
    if (from > 0)
        H5Sclose(from);
    return good ? TS_OK : unreadable(r, t->name);
}

/* Rows first .. first + n, as structs of `size` bytes. */
static ts_status read_rows(const reading *r, const table *t, const column *columns, size_t size,
                           int64_t first, int64_t n, void *out)
{
    hid_t type;
    bool good = true;
    ts_status s;

    if (t->rank != 1 || first < 0 || n < 0 || first > t->rows - n)
        return wrong(r, t->name, "has not the rows that it should");
    for (const column *c = columns; c->name; c++)
        if (!has_column(t, c))
            return ts_fail(TS_ERR_CORRUPT, "%s of %s has no column '%s' of numbers", t->name,
                           r->path, c->name);
    if (!n)
        return TS_OK;
    type = H5Tcreate(H5T_COMPOUND, size);
    for (const column *c = columns; good && c->name; c++)
        good = type > 0 && add_column(type, c);
    s = good ? read_part(r, t, type, first, n, out) : unreadable(r, t->name);
    if (type > 0)
        H5Tclose(type);
    return s;
}

/* --- products of larcv --- */

typedef struct extent {
    uint64_t first;
    uint32_t n, id;
} extent;
typedef struct voxel {
    uint64_t id;
    float value;
} voxel;
typedef struct meta {
    uint64_t sizes[2];
} meta;
typedef struct product {
    char name[128]; /* "sbndwire" */
    table voxels;
    extent *events, *planes; /* planes: of all events, one after the other */
    meta *metas;
    int64_t nevents, nplanes;
} product;

static void close_product(product *p)
{
    close_table(&p->voxels);
    free(p->events);
    free(p->planes);
    free(p->metas);
    *p = (product){0};
}

static ts_status open_part(const reading *r, const product *p, const char *part, table *t)
{
    char name[256];

    ts_format(name, sizeof(name), "Data/sparse2d_%s_group/%s", p->name, part);
    return open_table(r, name, t);
}

static ts_status read_all(const reading *r, const product *p, const char *part,
                          const column *columns, size_t size, void **out, int64_t *n)
{
    table t;
    ts_status s = open_part(r, p, part, &t);

    if (s)
        return s;
    *n = t.rows;
    s = check_memory(r, t.name, (double)t.rows * (double)size);
    if (!s)
        s = ts_alloc((size_t)t.rows * size, "a table of the file", out);
    if (!s)
        s = read_rows(r, &t, columns, size, 0, t.rows, *out);
    close_table(&t);
    return s;
}

static ts_status read_tables(const reading *r, product *p)
{
    const column first = {"first", offsetof(extent, first), H5T_NATIVE_UINT64, 0},
                 n = {"N", offsetof(extent, n), H5T_NATIVE_UINT32, 0},
                 id = {"ID", offsetof(extent, id), H5T_NATIVE_UINT32, 0};
    const column sizes = {"number_of_voxels", offsetof(meta, sizes), H5T_NATIVE_UINT64, 2};
    int64_t metas;

    TS_TRY(read_all(r, p, "extents", (const column[]){first, n, {0}}, sizeof(extent),
                    (void **)&p->events, &p->nevents));
    TS_TRY(read_all(r, p, "voxel_extents", (const column[]){first, n, id, {0}}, sizeof(extent),
                    (void **)&p->planes, &p->nplanes));
    TS_TRY(read_all(r, p, "image_meta", (const column[]){sizes, {0}}, sizeof(meta),
                    (void **)&p->metas, &metas));
    return metas == p->nplanes ? TS_OK : wrong(r, p->name, "has not a size for each projection");
}

static ts_status open_product(const reading *r, const char *name, product *p)
{
    ts_status s;

    *p = (product){0};
    ts_format(p->name, sizeof(p->name), "%s", name);
    s = read_tables(r, p);
    if (!s)
        s = open_part(r, p, "voxels", &p->voxels);
    if (s)
        close_product(p);
    return s;
}

static ts_status read_voxels(const reading *r, const product *p, int64_t first, int64_t n,
                             voxel *out)
{
    const column columns[] = {{"id", offsetof(voxel, id), H5T_NATIVE_UINT64, 0},
                              {"value", offsetof(voxel, value), H5T_NATIVE_FLOAT, 0},
                              {0}};

    return read_rows(r, &p->voxels, columns, sizeof(voxel), first, n, out);
}

static bool is_class(float v)
{
    return v >= 0 && v < LABELS && v == rintf(v);
}

static ts_status are_labels(const reading *r, const product *p, bool *out)
{
    int64_t n = TS_MIN(p->voxels.rows, (int64_t)LOOKED_AT);
    voxel *some;
    ts_status s;

    TS_TRY(ts_alloc((size_t)n * sizeof(*some), "some voxels", (void **)&some));
    s = read_voxels(r, p, 0, n, some);
    *out = n > 0;
    for (int64_t i = 0; !s && i < n; i++)
        *out = *out && is_class(some[i].value);
    free(some);
    return s;
}

/* --- which product is what --- */

typedef struct names {
    char at[MOST_PRODUCTS][128];
    int n;
} names;

static herr_t take_name(hid_t group, const char *link, const H5L_info_t *info, void *out)
{
    static const char begin[] = "sparse2d_", end[] = "_group";
    size_t len = strlen(link), b = strlen(begin), e = strlen(end);
    names *all = out;

    (void)group;
    if (all->n == MOST_PRODUCTS || info->type != H5L_TYPE_HARD || len <= b + e ||
        len - b - e >= sizeof(all->at[0]) || strncmp(link, begin, b) != 0 ||
        strcmp(link + len - e, end) != 0)
        return 0;
    ts_format(all->at[all->n++], sizeof(all->at[0]), "%.*s", (int)(len - b - e), link + b);
    return 0;
}

static ts_status find_products(const reading *r, names *all)
{
    hsize_t at = 0;
    hid_t group;
    herr_t bad;

    all->n = 0;
    if (!is_here(r->file, "Data"))
        return TS_OK;
    group = H5Gopen2(r->file, "Data", H5P_DEFAULT);
    if (group <= 0) {
        H5Eclear2(H5E_DEFAULT);
        return TS_OK; /* an array of that name */
    }
    bad = H5Literate(group, H5_INDEX_NAME, H5_ITER_INC, &at, take_name, all);
    H5Gclose(group);
    return bad < 0 ? unreadable(r, "Data") : TS_OK;
}

static ts_status which_product(const reading *r, const names *all, const char *what)
{
    char list[400] = "";

    for (int i = 0; i < all->n; i++) {
        size_t n = strlen(list);
        ts_format(list + n, sizeof(list) - n, "%s%.100s", i ? ", " : "", all->at[i]);
    }
    ts_fail(TS_ERR_ARG, "%s does not say which of its products are the %s: %s", r->path, what,
            list);
    ts_error_hint("--samples and --label name them");
    return TS_ERR_ARG;
}

static int find_name(const names *all, const char *name)
{
    for (int i = 0; name && i < all->n; i++)
        if (!strcmp(all->at[i], name))
            return i;
    return -1;
}

/* By their names, or by what their values are; labels -1: there are none. */
static ts_status choose(const reading *r, const names *all, int *samples, int *labels)
{
    int pictures = 0, classes = 0;

    *samples = find_name(all, r->opt->samples);
    *labels = find_name(all, r->opt->label);
    if ((r->opt->samples && *samples < 0) || (r->opt->label && *labels < 0))
        return which_product(r, all, r->opt->samples && *samples < 0 ? "samples" : "labels");
    for (int i = 0; i < all->n; i++) {
        product p;
        bool is;
        ts_status s;
        if (i == *samples || i == *labels)
            continue;
        TS_TRY(open_product(r, all->at[i], &p));
        s = are_labels(r, &p, &is);
        close_product(&p);
        TS_TRY(s);
        if (is && !r->opt->label && classes++ == 0)
            *labels = i;
        if (!is && !r->opt->samples && pictures++ == 0)
            *samples = i;
    }
    if (*samples < 0 || pictures > 1)
        return which_product(r, all, "samples");
    return classes > 1 ? which_product(r, all, "labels") : TS_OK;
}

/* --- events --- */

typedef struct event_shape {
    int64_t planes, height, width;
} event_shape;

/* The planes of an event; its sizes into s. */
static ts_status event_planes(const reading *r, const product *p, int64_t event, event_shape *s,
                              const extent **out)
{
    const extent *e = &p->events[event];

    if (e->n < 1 || e->n > MOST_PLANES || e->first > (uint64_t)p->nplanes ||
        e->n > (uint64_t)p->nplanes - e->first)
        return ts_fail(TS_ERR_CORRUPT, "event %ld of %s in %s has %u projections", (long)event,
                       p->name, r->path, e->n);
    *out = p->planes + e->first;
    s->planes = e->n;
    s->width = (int64_t)p->metas[e->first].sizes[0];
    s->height = (int64_t)p->metas[e->first].sizes[1];
    for (uint32_t i = 0; i < e->n; i++) {
        const uint64_t *size = p->metas[e->first + i].sizes;
        if (size[0] < 1 || size[0] > MOST_SIDE || size[1] < 1 || size[1] > MOST_SIDE ||
            (int64_t)size[0] != s->width || (int64_t)size[1] != s->height)
            return ts_fail(TS_ERR_CORRUPT,
                           "projection %u of event %ld of %s in %s has %llu x %llu pixels", i,
                           (long)event, p->name, r->path, (unsigned long long)size[0],
                           (unsigned long long)size[1]);
    }
    return TS_OK;
}

/* Plane k of the sample is the projection with the k-th smallest number. */
static ts_status plane_of(const reading *r, const product *p, const extent *planes, int64_t n,
                          int64_t which, int64_t *out)
{
    *out = 0;
    for (int64_t i = 0; i < n; i++) {
        *out += planes[i].id < planes[which].id;
        if (i != which && planes[i].id == planes[which].id)
            return ts_fail(TS_ERR_CORRUPT, "%s of %s has projection %u of an event twice", p->name,
                           r->path, planes[i].id);
    }
    return TS_OK;
}

typedef struct scratch {
    voxel *voxels;
    int64_t room;
    float *picture;  /* a plane in full size */
    int32_t *labels; /* NULL: there are none */
} scratch;

static ts_status want_voxels(scratch *w, int64_t n)
{
    if (n <= w->room)
        return TS_OK;
    free(w->voxels);
    w->room = 0;
    TS_TRY(ts_alloc((size_t)n * sizeof(voxel), "the voxels of a picture", (void **)&w->voxels));
    w->room = n;
    return TS_OK;
}

static ts_status bad_voxel(const reading *r, const product *p, const voxel *v)
{
    return ts_fail(TS_ERR_CORRUPT, "voxel %llu of %s in %s with the value %g is none of its %s",
                   (unsigned long long)v->id, p->name, r->path, v->value,
                   isfinite(v->value) ? "pixels or classes" : "numbers");
}

/* Pixels are column by column in the file and row by row in memory. */
static ts_status put_voxels(const reading *r, const product *p, const event_shape *s,
                            const extent *e, scratch *w, bool labels)
{
    uint64_t pixels = (uint64_t)(s->height * s->width);

    if (e->first > (uint64_t)p->voxels.rows || e->n > (uint64_t)p->voxels.rows - e->first)
        return wrong(r, p->name, "has a picture of voxels that are not there");
    TS_TRY(want_voxels(w, e->n));
    TS_TRY(read_voxels(r, p, (int64_t)e->first, e->n, w->voxels));
    memset(labels ? (void *)w->labels : (void *)w->picture, 0, pixels * sizeof(float));
    for (uint32_t i = 0; i < e->n; i++) {
        const voxel *v = &w->voxels[i];
        uint64_t at =
            v->id % (uint64_t)s->height * (uint64_t)s->width + v->id / (uint64_t)s->height;
        if (v->id >= pixels || !isfinite(v->value) || (labels && !is_class(v->value)))
            return bad_voxel(r, p, v);
        if (labels)
            w->labels[at] = (int32_t)v->value;
        else
            w->picture[at] = v->value;
    }
    return TS_OK;
}

static ts_status read_event(const reading *r, const product *p, int64_t event,
                            const event_shape *want, scratch *w, bool labels, ts_dataset *d)
{
    int64_t n = TS_MAX(1, r->opt->downsample), small = want->height * want->width / (n * n);
    const extent *planes;
    event_shape s;

    TS_TRY(event_planes(r, p, event, &s, &planes));
    if (memcmp(&s, want, sizeof(s)) != 0)
        return ts_fail(TS_ERR_SHAPE,
                       "event %ld of %s in %s is %ld x %ld x %ld, the first is "
                       "%ld x %ld x %ld",
                       (long)event, p->name, r->path, (long)s.planes, (long)s.height, (long)s.width,
                       (long)want->planes, (long)want->height, (long)want->width);
    for (int64_t i = 0; i < s.planes; i++) {
        int64_t plane;
        TS_TRY(plane_of(r, p, planes, s.planes, i, &plane));
        TS_TRY(put_voxels(r, p, &s, &planes[i], w, labels));
        plane += event * s.planes;
        if (labels)
            ts_pixels_largest(w->labels, s.height, s.width, (int)n, d->labels + plane * small);
        else
            ts_pixels_mean(w->picture, s.height, s.width, (int)n,
                           (float *)d->sample.data + plane * small);
    }
    return TS_OK;
}

/* Pictures are dense in memory, so a small file can be too much of them. */
static ts_status check_pictures(const reading *r, const product *p, const event_shape *s,
                                int64_t events)
{
    double n = TS_MAX(1, r->opt->downsample);

    return check_memory(r, p->name,
                        (sizeof(float) + sizeof(int32_t)) * (double)events * (double)s->planes *
                            (double)s->height * (double)s->width / (n * n));
}

/* Those of CosmicTagger's data have a meaning that the file does not say. */
static ts_status name_classes(const product *labels, ts_dataset *d, const char *path)
{
    static const char *const cosmic[] = {"background", "cosmic", "neutrino"};
    bool known = strstr(labels->name, "cosmicseg") != NULL;

    TS_TRY(ts_dataset_number_classes(d, 0, path));
    if (!known || d->nclasses > TS_COUNT(cosmic))
        return TS_OK;
    TS_TRY(ts_dataset_number_classes(d, TS_COUNT(cosmic), path));
    for (int i = 0; i < d->nclasses; i++)
        d->classes[i] = cosmic[i];
    return TS_OK;
}

static ts_status read_events(const reading *r, const product *x, const product *y,
                             const event_shape *s, ts_dataset *d)
{
    size_t bytes = (size_t)(s->height * s->width) * sizeof(float);
    scratch w = {0};
    ts_status bad = ts_alloc(bytes, "a picture", (void **)&w.picture);

    if (!bad && y)
        bad = ts_alloc(bytes, "its labels", (void **)&w.labels);
    for (int64_t i = 0; !bad && i < d->count; i++) {
        bad = read_event(r, x, i, s, &w, false, d);
        if (!bad && y)
            bad = read_event(r, y, i, s, &w, true, d);
    }
    free(w.picture);
    free(w.labels);
    free(w.voxels);
    if (!bad && y)
        bad = name_classes(y, d, r->path);
    return bad;
}

static ts_status make_events(const reading *r, const product *x, const product *y, ts_dataset **out)
{
    int64_t events = r->opt->limit ? TS_MIN(r->opt->limit, x->nevents) : x->nevents, dims[3];
    int n = TS_MAX(1, r->opt->downsample);
    const extent *planes;
    event_shape s;

    if (!events)
        return wrong(r, x->name, "has no events");
    if (y && y->nevents != x->nevents)
        return ts_fail(TS_ERR_CORRUPT, "%s has %ld events of %s and %ld of %s", r->path,
                       (long)x->nevents, x->name, (long)y->nevents, y->name);
    TS_TRY(event_planes(r, x, 0, &s, &planes));
    TS_TRY(ts_pixels_check(r->path, s.height, s.width, n));
    TS_TRY(check_pictures(r, x, &s, events));
    dims[0] = s.planes;
    dims[1] = s.height / n;
    dims[2] = s.width / n;
    TS_TRY(ts_dataset_new(TS_F32, events, 3, dims, out));
    (*out)->downsampled = true;
    if (y)
        TS_TRY(ts_dataset_label_pixels(*out, 3, dims));
    return read_events(r, x, y, &s, *out);
}

static ts_status read_larcv(const reading *r, const names *all, ts_dataset **out)
{
    product x = {0}, y = {0};
    int samples, labels;
    ts_status s;

    TS_TRY(choose(r, all, &samples, &labels));
    s = open_product(r, all->at[samples], &x);
    if (!s && labels >= 0)
        s = open_product(r, all->at[labels], &y);
    if (!s)
        s = make_events(r, &x, labels >= 0 ? &y : NULL, out);
    close_product(&x);
    close_product(&y);
    return s;
}

/* --- plain arrays --- */

static hid_t native_of(ts_dtype t)
{
    switch (t) {
    case TS_U8:
        return H5T_NATIVE_UINT8;
    case TS_I32:
        return H5T_NATIVE_INT32;
    case TS_I64:
        return H5T_NATIVE_INT64;
    case TS_F32:
        return H5T_NATIVE_FLOAT;
    default:
        return H5T_NATIVE_DOUBLE;
    }
}

/* The smallest type that holds what the file has; unsigned numbers beyond i64 are cut to its end. */
static bool type_of(const table *t, ts_dtype *out)
{
    size_t size = H5Tget_size(t->type);

    switch (H5Tget_class(t->type)) {
    case H5T_INTEGER:
        *out = size == 1 && H5Tget_sign(t->type) == H5T_SGN_NONE                 ? TS_U8
               : size < 4 || (size == 4 && H5Tget_sign(t->type) != H5T_SGN_NONE) ? TS_I32
                                                                                 : TS_I64;
        return true;
    case H5T_ENUM: /* h5py's bool */
        *out = TS_I64;
        return true;
    case H5T_FLOAT:
        *out = size <= 4 ? TS_F32 : TS_F64;
        return true;
    default:
        return false;
    }
}

/* The first `rows` of an array; free(out->data). */
static ts_status read_array(const reading *r, const char *name, int64_t rows, ts_array *out)
{
    hsize_t start[TS_MAX_RANK] = {0}, count[TS_MAX_RANK];
    hid_t from, to;
    ts_status s = TS_OK;
    table t;

    TS_TRY(open_table(r, name, &t));
    *out = (ts_array){.rank = t.rank};
    if (!t.rank || !type_of(&t, &out->dtype))
        s = wrong(r, name, t.rank ? "is no array of numbers" : "is a single number");
    out->bytes = ts_dtype_size(out->dtype);
    for (int i = 0; i < t.rank; i++) {
        out->dims[i] = i || !rows ? t.dims[i] : TS_MIN(rows, t.dims[i]);
        count[i] = (hsize_t)out->dims[i];
        out->bytes *= (size_t)out->dims[i]; /* check_size has bounded it */
    }
    if (!s)
        s = check_memory(r, name, (double)out->bytes);
    if (!s)
        s = ts_alloc(out->bytes, "an array of the file", &out->data);
    if (!s && out->bytes) {
        from = H5Dget_space(t.id);
        to = H5Screate_simple(t.rank, count, NULL);
        if (H5Sselect_hyperslab(from, H5S_SELECT_SET, start, NULL, count, NULL) < 0 ||
            H5Dread(t.id, native_of(out->dtype), to, from, H5P_DEFAULT, out->data) < 0)
            s = unreadable(r, name);
        H5Sclose(to);
        H5Sclose(from);
    }
    close_table(&t);
    if (s) {
        free(out->data);
        out->data = NULL;
    }
    return s;
}

/* NULL: the file has none. */
static ts_status choose_arrays(const reading *r, const char **x, const char **y)
{
    static const char *const usual[][2] = {
        {"x_train", "y_train"}, {"x_test", "y_test"}, {"x", "y"}, {"images", "labels"}};

    *x = r->opt->samples;
    *y = r->opt->label;
    for (int i = 0; !*x && i < TS_COUNT(usual); i++)
        if (i != (r->opt->split == TS_SPLIT_TEST ? 0 : 1) && is_here(r->file, usual[i][0]) &&
            (*y || is_here(r->file, usual[i][1]))) {
            *x = usual[i][0];
            *y = *y ? *y : usual[i][1];
        }
    if (!*x && is_here(r->file, "x"))
        *x = "x"; /* samples to predict for */
    for (int i = 0; *x && !*y && i < TS_COUNT(usual); i++)
        if (i != (r->opt->split == TS_SPLIT_TEST ? 0 : 1) && is_here(r->file, usual[i][1]))
            *y = usual[i][1];
    if (*x)
        return TS_OK;
    ts_fail(TS_ERR_PARSE, "%s has no samples and labels for this split", r->path);
    ts_error_hint(
        "its arrays are called x_train, y_train, x_test and y_test, or x and y, or images "
        "and labels; --samples and --label name others");
    return TS_ERR_PARSE;
}

/* "a,b": several arrays as one; a name that has a comma is itself. */
static ts_status read_samples(const reading *r, const char *names, ts_array *out)
{
    ts_array x[TS_JOINED] = {0};
    char name[1000];
    ts_status s = TS_OK;
    int n, all;

    if (!strchr(names, ',') || is_here(r->file, names))
        return read_array(r, names, r->opt->limit, out);
    TS_TRY(ts_join_count(names, r->path, &all));
    for (n = 0; !s && n < all; n++) {
        ts_join_name(names, n, r->opt->split, false, name, sizeof(name));
        if (!is_here(r->file, name))
            ts_join_name(names, n, r->opt->split, true, name, sizeof(name));
        s = read_array(r, name, r->opt->limit, &x[n]);
    }
    if (!s)
        s = ts_join_arrays(x, n, r->path, out);
    while (n)
        free(x[--n].data);
    return s;
}

static ts_status read_plain(const reading *r, ts_dataset **out)
{
    ts_array x = {0}, y = {0};
    const char *names[2];
    ts_status s;

    TS_TRY(choose_arrays(r, &names[0], &names[1]));
    TS_TRY(read_samples(r, names[0], &x));
    s = names[1] ? read_array(r, names[1], r->opt->limit, &y) : TS_OK;
    if (!s)
        s = ts_numpy_pair(&x, names[1] ? &y : NULL, r->opt, out);
    free(x.data);
    free(y.data);
    return s;
}

/* --- the file --- */

static ts_status read_file(const reading *r, ts_dataset **out)
{
    names *all;
    ts_status s;

    TS_TRY(ts_alloc(sizeof(*all), "the names of products", (void **)&all));
    s = find_products(r, all);
    if (!s)
        s = all->n ? read_larcv(r, all, out) : read_plain(r, out);
    free(all);
    return s;
}

/* Nothing is printed, and no filter is loaded. */
static ts_status read_here(const ts_dataset_options *opt, ts_dataset **out)
{
    reading r = {.path = opt->name, .opt = opt};
    struct stat st;
    ts_status s;

    if (stat(opt->name, &st) || !S_ISREG(st.st_mode))
        return ts_fail(TS_ERR_FILE, "%s is no file that can be read", opt->name);
    r.len = (size_t)st.st_size;
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    H5PLset_loading_state(0);
    r.file = H5Fopen(opt->name, H5F_ACC_RDONLY, H5P_DEFAULT);
    s = r.file > 0 ? read_file(&r, out) : unreadable(&r, "the beginning");
    if (r.file > 0)
        H5Fclose(r.file);
    return s;
}

ts_status ts_hdf5_open(const ts_dataset_options *opt, ts_dataset **out)
{
    return ts_dataset_apart(read_here, opt, out);
}

#else

ts_status ts_hdf5_open(const ts_dataset_options *opt, ts_dataset **out)
{
    (void)out;
    ts_fail(TS_ERR_UNSUPPORTED, "%s: this build does not read HDF5", opt->name);
    ts_error_hint("install libhdf5-dev and build again");
    return TS_ERR_UNSUPPORTED;
}

#endif
