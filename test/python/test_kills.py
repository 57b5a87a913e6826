"""A killed command leaves nothing for good: whatever it was doing with files, the next run of it removes what stayed.

A library before all others counts the calls that touch files or start processes, and kills the command (SIGKILL) at one of them. The
shell that clears up after a killed compile is not started: it could be killed as well.
"""

import os
import subprocess

import numpy as np
import pytest

KILLER = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static atomic_int calls;
static int at;

static __attribute__((constructor)) void begin(void)
{
    at = getenv("KILL_AT") ? atoi(getenv("KILL_AT")) : 0;
    unsetenv("LD_PRELOAD"); /* the compiler is let alone */
}

static __attribute__((destructor)) void end(void)
{
    FILE *f = getenv("KILL_COUNT") ? fopen(getenv("KILL_COUNT"), "w") : NULL;
    if (f) {
        fprintf(f, "%d", atomic_load(&calls));
        fclose(f);
    }
}

static void *real(const char *name)
{
    if (atomic_fetch_add(&calls, 1) + 1 == at)
        kill(getpid(), SIGKILL);
    return dlsym(RTLD_NEXT, name);
}

#define WRAP(result, name, params, ...) \
    result name params { result (*real_) params = (result (*) params)real(#name); return real_(__VA_ARGS__); }
WRAP(int, mkostemp, (char *t, int f), t, f)
WRAP(int, mkostemp64, (char *t, int f), t, f)
WRAP(char *, mkdtemp, (char *t), t)
WRAP(int, rename, (const char *a, const char *b), a, b)
WRAP(int, unlink, (const char *a), a)
WRAP(int, unlinkat, (int d, const char *a, int f), d, a, f)
WRAP(int, rmdir, (const char *a), a)
WRAP(int, mkdir, (const char *a, mode_t m), a, m)
WRAP(int, fsync, (int f), f)
WRAP(int, flock, (int f, int how), f, how)
WRAP(ssize_t, write, (int f, const void *d, size_t n), f, d, n)
WRAP(ssize_t, pwrite64, (int f, const void *d, size_t n, off_t o), f, d, n, o)
WRAP(pid_t, waitpid, (pid_t p, int *s, int o), p, s, o)
WRAP(int, posix_spawnp, (pid_t *p, const char *a, const posix_spawn_file_actions_t *f, const posix_spawnattr_t *h,
                         char *const *v, char *const *e), p, a, f, h, v, e)

int posix_spawn(pid_t *p, const char *a, const posix_spawn_file_actions_t *f, const posix_spawnattr_t *h, char *const *v,
                char *const *e)
{
    (void)p, (void)a, (void)f, (void)h, (void)v, (void)e;
    real("posix_spawn");
    return ENOENT;
}

#define OPEN(name, params, ...) \
    int name params \
    { \
        va_list ap; \
        va_start(ap, flags); \
        int mode = va_arg(ap, int); \
        va_end(ap); \
        int (*real_) params = (int (*) params)real(#name); \
        return real_(__VA_ARGS__, mode); \
    }
OPEN(open, (const char *path, int flags, ...), path, flags)
OPEN(open64, (const char *path, int flags, ...), path, flags)
OPEN(openat, (int folder, const char *path, int flags, ...), folder, path, flags)
OPEN(openat64, (int folder, const char *path, int flags, ...), folder, path, flags)
"""


@pytest.fixture(scope="module")
def killer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("killer")
    (folder / "killer.c").write_text(KILLER)
    subprocess.run(["cc", "-O1", "-w", "-shared", "-fPIC", "killer.c", "-o", "killer.so", "-ldl"], cwd=folder, check=True)
    return folder / "killer.so"


COMMANDS = {
    "train": "train data.npz --model mlp --batch-size 16 --epochs 2 --overwrite --csv log.csv --validate 0.2 --checkpoint-every 2",
    "eval": "eval model.pth --plots seen",
    "predict": "predict model.pth data.npz --csv predicted.csv",
    "export": "export model.pth --c out --quantize int8",
    "compile": "compile mlp --output mlp.tse",
    "profile": "profile mlp --calls 2 --batch-size 4 --output profile",
}


def files(folder):
    """All that is there, but what is compiled, of which another run may have made more, and the checkpoint of a killed run, which is
    set aside for its owner."""
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*")
                  if (p.suffix != ".tse" or p.name == "mlp.tse") and p.name != "mlp.resume.pth.old")


class Place:
    """A folder for the command to work in, with temporary files, cache and processes of its own."""

    def __init__(self, folder, build_dir, killer):
        self.folder, self.command, self.killer = folder, build_dir / "tessera", killer
        for name in ("work", "tmp", "cache", "run"):
            (folder / name).mkdir(parents=True)
        self.env = {**os.environ, "TMPDIR": str(folder / "tmp"), "TESSERA_CACHE_DIR": str(folder / "cache"),
                    "XDG_RUNTIME_DIR": str(folder / "run"), "LC_ALL": "C.UTF-8", "TESSERA_THREADS": "1"}
        x = np.random.RandomState(0).randn(96, 6).astype("f4")
        np.savez(folder / "work/data.npz", x=x, y=(x[:, 0] > 0).astype("i4"))

    def run(self, line, at=None, count=None):
        more = {} if at is None else {"LD_PRELOAD": str(self.killer), "KILL_AT": str(at)}
        if count:
            more["KILL_COUNT"] = str(count)
        done = subprocess.run([self.command, *line.split()], cwd=self.folder / "work", env={**self.env, **more}, text=True,
                              capture_output=True, timeout=120)
        assert done.returncode in ((0,) if not at else (0, -9)), done.stderr
        return done.returncode

    def forget(self):
        """What is compiled is compiled again; all else stays."""
        for path in (self.folder / "cache").glob("*.tse"):
            path.unlink()


@pytest.mark.parametrize("name", COMMANDS)
def test_the_next_run_leaves_nothing(tmp_path, build_dir, killer, name):
    clean, killed = Place(tmp_path / "clean", build_dir, killer), Place(tmp_path / "killed", build_dir, killer)
    model = COMMANDS["train"].replace("--overwrite", "--output model.pth --no-plots")
    count = tmp_path / "count"
    for place in (clean, killed):
        if name in ("eval", "predict", "export"):
            place.run(model)
        place.forget()
    assert clean.run(COMMANDS[name], 0, count) == 0
    calls, want = int(count.read_text()), files(clean.folder)
    clean.run(COMMANDS[name])    # the same again, which finds what is compiled, makes the same files
    assert files(clean.folder) == want and calls > 10
    round, n = int(os.environ.get("TS_ROUND", 0)), calls if os.environ.get("TS_SOAK") else 4
    kills = 0
    for i in range(n):
        kills += killed.run(COMMANDS[name], 1 + (i * calls // n + round) % calls) != 0
        killed.forget()
    assert kills > n // 2
    killed.run(COMMANDS[name])
    assert files(killed.folder) == want


def test_a_compiler_that_goes_on_is_waited_for(tmp_path, build_dir, killer):
    """Its folder is not taken from under it; when it is done, the next run removes it."""
    place = Place(tmp_path / "a", build_dir, killer)
    slow = tmp_path / "slow"
    slow.write_text("#!/bin/sh\n[ \"$1\" = --version ] && exec cc --version\necho begun > begun\nread line < go\nexec cc \"$@\"\n")
    slow.chmod(0o755)
    os.mkfifo(place.folder / "work/go")
    child = subprocess.Popen([place.command, *COMMANDS["compile"].split()], cwd=place.folder / "work", start_new_session=True,
                             env={**place.env, "TESSERA_CC": str(slow), "LD_PRELOAD": str(killer), "KILL_AT": "0"})
    while not (place.folder / "work/begun").exists():
        assert child.poll() is None
    child.kill()
    child.wait()
    assert len(list((place.folder / "tmp").iterdir())) == 1
    place.run(COMMANDS["compile"])
    assert len(list((place.folder / "tmp").iterdir())) == 1    # a process works there
    with open(place.folder / "work/go", "w") as f:
        f.write("\n")
    for _ in range(100):
        place.forget()
        place.run(COMMANDS["compile"])
        if not list((place.folder / "tmp").iterdir()):
            break
    assert not list((place.folder / "tmp").iterdir())


def test_folders_of_others_stay(tmp_path, build_dir, killer):
    place = Place(tmp_path / "a", build_dir, killer)
    names = ["tessera.backup", "tessera.12.abcdef", "tessera.12.abcdef.old", "tessera"]
    for name in names:
        (place.folder / "tmp" / name).mkdir()
        (place.folder / "tmp" / name / "mine").write_text("")
    os.symlink(place.folder / "tmp/tessera.backup", place.folder / "tmp/tessera.13.abcdef")
    place.run(COMMANDS["compile"])
    assert sorted(p.name for p in (place.folder / "tmp").iterdir()) == sorted([*names, "tessera.13.abcdef"])
    assert all((place.folder / "tmp" / name / "mine").exists() for name in names)
