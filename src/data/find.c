/* find.c - the datasets known by name: where their files may be, and what must be in them.
 *
 *   DIR                     the folder that the caller names
 *   ROOT/NAME               ROOT: $TESSERA_DATA_DIR, ./data, the user's cache folder
 *   ROOT/FOLDER/raw         as torchvision's download leaves them
 *   /usr/share/datasets     as Debian's package installs them
 *
 * What is nowhere is downloaded, from an address that the user gives: none is built in.
 */
#include "data/data.h"
#include <limits.h>
#include <unistd.h>

static const ts_known_set known[] = {
    {
        .name = "mnist",
        .folder = "MNIST",
        .variable = "TESSERA_MNIST_URL",
        .classes = {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"},
        .files = {{"train-images-idx3-ubyte.gz", 47040016,
                   "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"},
                  {"train-labels-idx1-ubyte.gz", 60008,
                   "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"},
                  {"t10k-images-idx3-ubyte.gz", 7840016,
                   "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"},
                  {"t10k-labels-idx1-ubyte.gz", 10008,
                   "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"}},
    },
    {
        .name = "fashion-mnist",
        .folder = "FashionMNIST",
        .package = "dataset-fashion-mnist",
        .installed = "/usr/share/datasets/fashion-mnist",
        .variable = "TESSERA_FASHION_MNIST_URL",
        .classes = {"T-shirt", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker",
                    "Bag", "Ankle boot"},
        .files = {{"train-images-idx3-ubyte.gz", 47040016,
                   "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888"},
                  {"train-labels-idx1-ubyte.gz", 60008,
                   "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9"},
                  {"t10k-images-idx3-ubyte.gz", 7840016,
                   "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b"},
                  {"t10k-labels-idx1-ubyte.gz", 10008,
                   "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34"}},
    },
};

const ts_known_set *ts_known(const char *name)
{
    for (int i = 0; i < TS_COUNT(known); i++)
        if (!strcmp(known[i].name, name))
            return &known[i];
    return NULL;
}

const char *ts_dataset_builtin(int i)
{
    return i >= 0 && i < TS_COUNT(known) ? known[i].name : NULL;
}

static const char *set(const char *variable)
{
    const char *s = getenv(variable);

    return s && s[0] ? s : NULL;
}

/* Where downloads go, and one of the places to look. */
static bool cache_root(char *path)
{
    const char *cache = set("XDG_CACHE_HOME"), *home = set("HOME");

    if (cache && cache[0] == '/')
        return ts_path_join(path, PATH_MAX, cache, "tessera");
    return home && ts_path_join(path, PATH_MAX, home, ".cache/tessera");
}

static bool raw_folder(const ts_known_set *k, const char *root, char *path)
{
    return (size_t)snprintf(path, PATH_MAX, "%s/%s/raw", root, k->folder) < PATH_MAX;
}

static bool has_both(const char *folder, ts_split split)
{
    return ts_idx_files(folder, split) == 2;
}

static bool under(const ts_known_set *k, const char *root, ts_split split, char *path)
{
    return (raw_folder(k, root, path) && has_both(path, split)) ||
           (ts_path_join(path, PATH_MAX, root, k->name) && has_both(path, split));
}

static bool find(const ts_known_set *k, const ts_dataset_options *opt, char *path)
{
    char cache[PATH_MAX];

    if (opt->dir) {
        snprintf(path, PATH_MAX, "%s", opt->dir);
        return has_both(path, opt->split) || under(k, opt->dir, opt->split, path);
    }
    if (set("TESSERA_DATA_DIR") && under(k, set("TESSERA_DATA_DIR"), opt->split, path))
        return true;
    if (under(k, "data", opt->split, path))
        return true;
    if (cache_root(cache) && under(k, cache, opt->split, path))
        return true;
    snprintf(path, PATH_MAX, "%s", k->installed ? k->installed : "");
    return k->installed && has_both(path, opt->split);
}

ts_status ts_dataset_find_sized(const ts_dataset_options *given, size_t given_size, char *path,
                                size_t size)
{
    ts_dataset_options own, *opt = &own;
    const ts_known_set *k;
    char folder[PATH_MAX];

    TS_TRY(ts_take_sized("ts_dataset_find", given, given_size, opt, sizeof(*opt)));
    k = opt->name ? ts_known(opt->name) : NULL;
    if (!k || !path || !size || (unsigned)opt->split > TS_SPLIT_TEST)
        return ts_fail(TS_ERR_ARG,
                       "looking for a dataset needs a name that is known, a split and a "
                       "place for the path");
    if (!find(k, opt, folder))
        folder[0] = 0;
    if ((size_t)snprintf(path, size, "%s", folder) < size)
        return TS_OK;
    return ts_fail(TS_ERR_ARG, "the folder of %s does not fit in %zu bytes: %s", k->name, size,
                   folder);
}

static ts_status not_found(const ts_known_set *k, const ts_dataset_options *opt)
{
    if (opt->dir)
        ts_fail(TS_ERR_FILE, "the files of %s are not in %s, %s/%s or %s/%s/raw", k->name, opt->dir,
                opt->dir, k->name, opt->dir, k->folder);
    else
        ts_fail(TS_ERR_FILE,
                "the files of %s are not in $TESSERA_DATA_DIR, ./data, the cache folder%s%s",
                k->name, k->installed ? " or " : "", k->installed ? k->installed : "");
    if (k->package)
        ts_error_hint(
            "install Debian's package %s, name the folder that has them, or set %s to the "
            "address of a folder to download them from",
            k->package, k->variable);
    else
        ts_error_hint("name the folder that has them, or set %s to the address of a folder to "
                      "download them from; fashion-mnist is in Debian's package "
                      "dataset-fashion-mnist",
                      k->variable);
    return TS_ERR_FILE;
}

/* Where downloads go: under the folder named, $TESSERA_DATA_DIR or the cache folder. */
static ts_status download(const ts_known_set *k, const ts_dataset_options *opt, const char *url,
                          char *folder)
{
    const ts_known_file *files = k->files + (opt->split == TS_SPLIT_TEST ? 2 : 0);
    const char *root = opt->dir ? opt->dir : set("TESSERA_DATA_DIR");
    char cache[PATH_MAX];

    if (!root && !cache_root(cache))
        return ts_fail(TS_ERR_FILE, "there is no folder to download %s to: HOME is not set",
                       k->name);
    if (!raw_folder(k, root ? root : cache, folder))
        return ts_fail(TS_ERR_FILE, "the path of the folder to download %s to is too long",
                       k->name);
    TS_TRY(ts_download(url, folder, &files[0], opt));
    return ts_download(url, folder, &files[1], opt);
}

ts_status ts_known_open(const ts_known_set *k, const ts_dataset_options *opt, ts_dataset **out)
{
    const char *url = opt->url && opt->url[0] ? opt->url : set(k->variable);
    char folder[PATH_MAX];

    if (!find(k, opt, folder)) {
        if (!url)
            return not_found(k, opt);
        TS_TRY(download(k, opt, url, folder));
    }
    TS_TRY(ts_idx_open(folder, opt->split, opt->limit, TS_COUNT(k->classes), out));
    for (int i = 0; i < (*out)->nclasses; i++)
        (*out)->classes[i] = k->classes[i];
    return TS_OK;
}
