"""The tessera command: help, exit codes, errors, lost output, hostile files, completions, its manual page."""

import os
import re
import resource
import shlex
import signal
import subprocess
import time

import numpy as np
import pytest
import torch

OK, FAILED, USAGE = 0, 1, 2
COMMANDS = ["train", "eval", "predict", "generate", "export", "models", "data", "inspect", "plan", "profile", "report",
            "compile", "cache", "devices", "monitor", "run", "help"]


@pytest.fixture
def tool(build_dir, tmp_path):
    def run(*args, **how):
        how.setdefault("env", {**os.environ, "TESSERA_CACHE_DIR": str(build_dir / "test-cache"), **how.pop("set", {})})
        how.setdefault("stdout", subprocess.PIPE)
        return subprocess.run([build_dir / "tessera", *map(str, args)], stderr=subprocess.PIPE, text=True,
                              errors="replace", cwd=tmp_path, timeout=120, **how)
    return run


def expect(done, code, *words):
    """It ended with this code and said these words, in one message without a crash."""
    text = done.stderr + (done.stdout or "")
    assert done.returncode == code, text
    for word in words:
        assert word in text
    if code:
        assert done.stderr.startswith("tessera"), done.stderr


def options(tool, command):
    """The options that its help lists, with the names of their values."""
    return dict(re.findall(r"^  --([\w-]+)(?: ([A-Z]+))?  ?", tool(command, "--help").stdout, re.M))


# --- help and usage


def test_help_lists_the_commands(tool):
    done = tool("--help")
    expect(done, OK, "usage: tessera COMMAND")
    assert re.findall(r"^  ([a-z]+) {2,}[A-Z]", done.stdout, re.M) == COMMANDS
    assert done.stdout == tool("help").stdout == tool("-h").stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(tool, command):
    done = tool("help", command)
    expect(done, OK, f"usage: tessera {command}", "examples\n  tessera ")
    assert done.stderr == ""
    assert done.stdout == tool(command, "--help").stdout == tool(command, "--nonsense", "-h").stdout
    assert all(len(line) <= 100 and line == line.rstrip() for line in done.stdout.splitlines())


@pytest.mark.parametrize("command", [c for c in COMMANDS if c not in ("train", "run")])
def test_the_examples_in_the_help_are_right(tool, command, tmp_path):
    """They run, or miss nothing but the user's file. Those of train take long: test_train.py runs them on less data;
    test_processes.py has those of run."""
    for line in re.findall(r"^  tessera (.*)$", tool("help", command).stdout.split("examples")[1], re.M):
        args = shlex.split(re.sub(r" > .*", "", line))
        done = tool(*args, set={"TESSERA_CACHE_DIR": str(tmp_path / "cache")})
        assert done.returncode == OK or (("net." in line or "houses." in line or command == "report") and done.returncode == FAILED), done.stderr


def test_version(tool, root):
    version = re.search(r'TS_VERSION\s+"(.*?)"', (root / "include/tessera.h").read_text())[1]
    assert tool("--version").stdout == f"tessera {version}\n"


@pytest.mark.parametrize("args, words", [
    ([], ["a command is missing"]),
    (["inspct"], ["no command 'inspct'", "did you mean 'inspect'?"]),
    (["xyzzy"], ["no command 'xyzzy'"]),
    (["--what"], ["'--what' is not an option"]),
    (["help", "modles"], ["did you mean 'models'?"]),
    (["compile"], ["MODEL is missing"]),
    (["compile", "mlp", "lenet"], ["'lenet' is too much"]),
    (["compile", "mlp", "--bach-size", "3"], ["no option --bach-size", "did you mean --batch-size?"]),
    (["compile", "mlp", "--zzzzzz"], ["no option --zzzzzz"]),
    (["compile", "mlp", "--learning-rate", "3"], ["no option --learning-rate", "did you mean --lr?"]),
    (["models", "--learning-rate", "3"], ["no option --learning-rate\n"]),
    (["compile", "mlp", "-x"], ["'-x' is not an option"]),
    (["compile", "mlp", "-l"], ["'-l' is not an option"]),
    (["monitor", "-lx"], ["'-lx' is not an option"]),
    (["plan", "mnist-pipeline", "--stages", "B1|"], ["stage 1 has a block without a name"]),
    (["plan", "mnist-pipeline", "--stages", "B1@-1"], ["'@-1'; a device is a number from 0 to 4095"]),
    (["plan", "mnist-pipeline", "--stages", "B1", "--devices", "2"], ["--stages and --devices exclude each other"]),
    (["plan", "mlp", "--schedule", "piped"], ["it can be one of: pipelined sharded"]),
    (["plan", "mlp", "--offload", "weights,much"], ["--offload has 'much'"]),
    (["plan", "mlp", "--device-memory", "12MB"], ["--device-memory is '12MB'"]),
    (["plan", "mlp", "--device-memory", "-1"], ["--device-memory is '-1'"]),
    (["plan", "mlp", "--replicas", "0"], ["--replicas is 0; it can be 1 to 1024"]),
    (["compile", "mlp", "--batch-size"], ["--batch-size needs a value: N"]),
    (["compile", "mlp", "--batch-size="], ["must be a whole number, not ''"]),
    (["compile", "mlp", "--batch-size", "0"], ["--batch-size is 0; it can be 1 to 1048576"]),
    (["compile", "mlp", "--batch-size", "-3"], ["--batch-size is -3"]),
    (["compile", "mlp", "--batch-size", "16x"], ["must be a whole number, not '16x'"]),
    (["compile", "mlp", "--batch-size", " 16"], ["must be a whole number"]),
    (["compile", "mlp", "--batch-size", "9" * 30], ["it can be 1 to 1048576"]),
    (["compile", "mlp", "--lr", "nan"], ["--lr must be a number, not 'nan'"]),
    (["compile", "mlp", "--lr", "1e999"], ["--lr is 1e999; it can be 0 to"]),
    (["compile", "mlp", "--lr", "0x1"], ["--lr must be a number"]),
    (["compile", "mlp", "--optimizer", "sdg"], ["--optimizer is 'sdg'; it can be one of: sgd adam"]),
    (["compile", "mlp", "--training=yes"], ["--training takes no value"]),
    (["compile", "mlp", "--output", ""], ["--output is empty"]),
    (["cache", "cleen"], ["ACTION is 'cleen'; it can be one of: list clean path"]),
    (["cache", "--all"], ["--all and --older are for 'cache clean'"]),
    (["cache", "clean", "--older", "soon"], ["--older must be a whole number"]),
    (["devices", "all"], ["'all' is too much"]),
    (["completion", "fish"], ["it can be one of: bash zsh"]),
])
def test_wrong_command_lines(tool, args, words):
    done = tool(*args)
    expect(done, USAGE, "says more", *words)
    assert done.stdout == ""


def test_options_of_the_compiler_are_the_librarys(tool, root):
    """What doc/options.md, which is the library's table, says of an option is what the command says."""
    rows = [[cell.strip() for cell in line.split("|")[1:-1]]
            for line in (root / "doc/options.md").read_text().split("## ts_")[1].splitlines() if line.startswith("| `")]
    table = {name.strip("`"): (values, usual, about) for name, values, usual, _, about in rows}
    words = " ".join(tool("help", "plan").stdout.split())
    for name in ("devices", "replicas", "queue_depth", "recompute", "separate_backward", "shard_optimizer",
                 "device_iterations", "gradient_accumulation"):
        values, usual, about = table[name]
        value = " N" if values != "yes, no" else ""
        default = f" (default {usual})" if usual and name != "device_iterations" else ""
        assert f"--{name.replace('_', '-')}{value} {about}{default}" in words
    for name in ("schedule", "offload"):
        assert all(word in words for word in table[name][0].split(": ")[1].split())


def test_options_stand_anywhere(tool, tmp_path):
    expect(tool("compile", "--batch-size=2", "--output", "a.tsx", "mlp", "--quiet"), OK)
    expect(tool("compile", "--quiet", "--", "mlp"), OK)
    assert {f.name for f in tmp_path.iterdir()} == {"a.tsx", "mlp.tsx"}


# --- output that is lost


@pytest.mark.parametrize("args", [["models"], ["help"], ["inspect", "mlp"], ["devices"], ["completion", "bash"]])
def test_a_full_disk_is_an_error(tool, args):
    with open("/dev/full", "w") as full:
        expect(tool(*args, stdout=full), FAILED, "cannot write to standard output: No space left on device")


def test_a_closed_pipe_ends_quietly(tool):
    for args in (["models"], ["inspect", "resnet18"]):
        read, write = os.pipe()
        os.close(read)
        done = tool(*args, stdout=write)
        os.close(write)
        assert done.returncode == -13 and done.stderr == ""    # as every other tool: ended by SIGPIPE


def test_a_closed_stdout_is_an_error_and_no_file_takes_it(tool, build_dir, tmp_path):
    script = f"'{build_dir}/tessera' compile mlp --batch-size 2 --output x.tsx >&-"
    done = subprocess.run(["sh", "-c", script], cwd=tmp_path, stderr=subprocess.PIPE, text=True,
                          env={**os.environ, "TESSERA_CACHE_DIR": str(build_dir / "test-cache")})
    expect(done, FAILED, "cannot write to standard output")
    expect(tool("inspect", "x.tsx"), OK, "executor")


# --- models and inspect


def test_models_prints_descriptions_that_read_back(tool, tmp_path):
    names = [line.split()[0] for line in tool("models").stdout.splitlines()[1:]]
    assert {"classifier", "mnist-cnn", "mnist-pipeline", "mlp", "lenet", "resnet18"} <= set(names)
    for name in names:
        text = tool("models", name).stdout
        (tmp_path / f"{name}.txt").write_text(text)
        assert tool("inspect", f"{name}.txt").stdout == tool("inspect", name).stdout
        assert tool("models", f"{name}.txt").stdout == text


def test_inspect_shows_layers_and_memory(tool):
    text = tool("inspect", "mnist-pipeline", "--batch-size", 40).stdout
    rows = [line.split() for line in text.splitlines()]
    assert ["5", "layer1.conv", "conv2d", "40x10x24x24", "260", "1.175e+07", "B1"] in rows
    assert ["parameters", "90026"] in rows
    assert any(r[:2] == ["training", "step"] for r in rows) and any(r[:1] == ["inference"] for r in rows)


def test_inspect_without_a_loss(tool, tmp_path):
    (tmp_path / "net.txt").write_text("input 4\nf: linear 2\n")
    done = tool("inspect", "net.txt")
    expect(done, OK, "inference")
    assert "training" not in done.stdout


def test_memory_depends_on_the_optimizer(tool):
    lines = [tool("inspect", "mlp", "--optimizer", o).stdout.splitlines()[-2:] for o in ("sgd", "adam")]
    assert lines[0][0] != lines[1][0] and lines[0][1] == lines[1][1]


def test_inspect_shows_checkpoints(tool, tmp_path):
    torch.save({"fc.weight": torch.zeros(3, 4), "step": 7, "more": {"a\x1b[2Jb": [torch.ones(2, dtype=torch.int64)]}},
               tmp_path / "x.pth")
    np.save(tmp_path / "x.npy", np.zeros((5, 2), np.float32))
    done = tool("inspect", "x.pth")
    rows = [line.split() for line in done.stdout.splitlines()]
    expect(done, OK, "2 tensors of 14 numbers, 64 B", "\nmore\n  a?[2Jb.0 ")
    assert ["fc.weight", "f32", "3x4", "48", "B"] in rows
    assert ["step", "7"] in rows
    assert ["a?[2Jb.0", "i64", "2", "16", "B"] in rows
    expect(tool("inspect", "x.npy"), OK, "5x2", "1 tensor of 10 numbers, 40 B")


@pytest.mark.parametrize("args, words", [
    (["models", "clasifier"], ["no model 'clasifier'", "did you mean 'classifier'?"]),
    (["inspect", "no/such/file"], ["no model 'no/such/file', and no file of that name"]),
    (["inspect", "/"], ["/ is not a regular file"]),
    (["compile", "mlp", "--output", "no/such/folder/x.tsx", "--quiet"], ["cannot create a file beside no/such"]),
    (["compile", "mlp", "--keep-c", "no/such/x.c", "--quiet"], ["cannot open no/such/x.c"]),
    (["compile", "mlp", "--keep-c", "/dev/full", "--quiet"], ["cannot write /dev/full: No space left"]),
    (["inspect", "classifier", "--batch-size", 1048576, "--classes", 2147483647], ["shape error"]),
])
def test_failures_say_why(tool, args, words):
    expect(tool(*args), FAILED, *words)


def test_no_compiler(tool):
    nowhere = {"TESSERA_CC": "/nowhere/cc", "TESSERA_CACHE_DIR": ""}
    expect(tool("compile", "mlp", "--keep-c", "x.c", set=nowhere), FAILED, "no compiler was found")
    expect(tool("devices", set=nowhere), OK, "compiler           none")
    expect(tool("inspect", "mlp", set=nowhere), OK, "training step")


# --- compile


def test_compile_writes_what_inspect_reads(tool, tmp_path):
    done = tool("compile", "classifier", "--training", "--momentum", 0.9, "--keep-c", "step.c",
                "--device-iterations", 3)
    expect(done, OK, "classifier.tsx: training step, ", " kernels, ")
    text = tool("inspect", "classifier.tsx").stdout
    assert re.search(r"^device_iterations +3$", text, re.M)
    for name in ("conv1.weight", "fc2.bias", "fc1.weight.momentum", "labels"):
        assert re.search(rf"^  {re.escape(name)} ", text, re.M), name
    source = (tmp_path / "step.c").read_text()
    assert "tessera_module" in source
    subprocess.run(["cc", "-std=gnu11", "-march=native", "-w", "-fsyntax-only", "step.c"], cwd=tmp_path, check=True)


def test_compile_for_other_classes(tool):
    expect(tool("compile", "lenet", "--classes", 26, "--quiet"), OK)
    assert re.search(r"^  scores +f32\[16,26\]", tool("inspect", "lenet.tsx").stdout, re.M)


def test_the_bar_is_for_terminals(tool):
    assert tool("compile", "mlp").stderr == ""
    assert "100%" in tool("compile", "mlp", set={"TESSERA_PROGRESS": "1"}).stderr
    assert tool("compile", "mlp", "--quiet", set={"TESSERA_PROGRESS": "1"}).stderr == ""


def test_interrupted(build_dir, tmp_path):
    """Ctrl-C while the C compiler runs: gone at once, and a shell sees 130."""
    (tmp_path / "cc").write_text('#!/bin/sh\n[ "$1" = --version ] && exec echo cc\ntouch started\nexec sleep 60\n')
    (tmp_path / "cc").chmod(0o755)
    child = subprocess.Popen([build_dir / "tessera", "compile", "mlp"], cwd=tmp_path, start_new_session=True,
                             env={**os.environ, "TESSERA_CC": "./cc", "TESSERA_CACHE_DIR": "", "TMPDIR": str(tmp_path)})
    while not (tmp_path / "started").exists() and child.poll() is None:
        time.sleep(0.01)
    os.killpg(child.pid, signal.SIGINT)
    assert child.wait(20) == -signal.SIGINT
    assert not (tmp_path / "mlp.tsx").exists()


# --- cache


def test_cache(tool, tmp_path):
    own = {"TESSERA_CACHE_DIR": str(tmp_path / "cache")}
    expect(tool("cache", set=own), OK, "0 entries, 0 B of at most 1.0 GiB")
    assert tool("cache", "path", set=own).stdout == own["TESSERA_CACHE_DIR"] + "\n"
    for model in ("mlp", "lenet", "classifier"):
        expect(tool("compile", model, "--quiet", set=own), OK)
    files = sorted((tmp_path / "cache").iterdir(), key=lambda f: f.stat().st_mtime)
    files[0].write_bytes(b"nonsense")
    old = time.time() - 10 * 86400
    os.utime(files[1], (old, old))
    text = tool("cache", set=own).stdout
    assert re.search(r"^classifier .* ok$", text, re.M) and re.search(r"^lenet +.*  10 days .* ok$", text, re.M)
    assert "3 entries" in text and "\n-  " in text
    expect(tool("cache", "clean", set=own), OK, "1 entry removed, 8 B; 2 kept")
    expect(tool("cache", "clean", "--older", 11, set=own), OK, "0 entries removed, 0 B; 2 kept")
    expect(tool("cache", "clean", "--older", 9, set=own), OK, "1 entry removed")
    expect(tool("cache", "clean", "--all", set=own), OK, "1 entry removed")
    assert list((tmp_path / "cache").iterdir()) == []
    expect(tool("cache", set={"TESSERA_CACHE_DIR": ""}), FAILED, "the cache is turned off")
    expect(tool("cache", env={"PATH": os.environ["PATH"]}), FAILED, "or there is no HOME")
    expect(tool("cache", set={"TESSERA_CACHE_DIR": "/etc/passwd"}), FAILED, "cannot be opened: Not a directory")


# --- hostile files


HOSTILE = {
    "empty": b"",
    "zeros": bytes(1000),
    "noise": bytes((i * 7919 + i // 256) % 256 for i in range(5000)),
    "text": b"Dear reader,\nthis is not a model.\n",
    "one long line": b"x" * 1000000,
    "huge": b"#\n" * 600000,
    "words": b"input 1\n" + b"relu " * 100000,
    "names": b"input 1\n" + b"%s%n%x: relu\n",
    "repeats": b"input 1\nrepeat a 2000\nrepeat b 2000\nrepeat c 2000\nrelu\nend\nend\nend\n",
    "growing": b"input 1000\nrepeat i 1000\n-> x\nconcat x\nend\n",
    "sizes": b"input 2147483647 2147483647\nf: linear 2147483647\n",
    "deep": b"input 4\nrepeat i 1000\nf{i}: linear 4\nrelu\nend\n",
    "escape": b"input 1\n\x1b[2J: relu\n",
    "executable": b"\x89TSE\r\n\x1a\n" + bytes(500),
    "executable cut": b"\x89TSE\r\n\x1a\n",
    "zip": b"PK\3\4" + bytes(100),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files(tool, tmp_path, name):
    (tmp_path / "file").write_bytes(HOSTILE[name])
    limit = lambda: resource.setrlimit(resource.RLIMIT_CPU, (20, 20))
    done = tool("inspect", "file", preexec_fn=limit)
    if name == "deep":
        return expect(done, OK)
    expect(done, FAILED)
    assert "internal error" not in done.stderr
    assert all(c.isprintable() or c == "\n" for c in done.stderr)
    assert len(done.stderr) < 2000


def test_not_a_file(tool, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    expect(tool("models", "/dev/zero"), FAILED, "is not a regular file")
    expect(tool("inspect", "pipe"), FAILED, "is not a regular file")


# --- completions and the manual


def complete(build_dir, *words, cwd="/"):
    """What bash offers for the last of the words."""
    quoted = " ".join(f"'{w}'" for w in ("tessera", *words))
    script = (f"source '{build_dir}/tool/tessera'; COMP_WORDS=({quoted}); COMP_CWORD={len(words)}; _tessera; "
              'printf "%s\\n" "${COMPREPLY[@]}"')
    done = subprocess.run(["bash", "--norc", "-c", script], capture_output=True, text=True, cwd=cwd)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    return set(filter(None, done.stdout.split("\n")))


def test_bash_completes(build_dir, tool):
    assert complete(build_dir, "") == {*COMMANDS, "--help", "--version"}
    assert complete(build_dir, "comp") == {"compile"}
    assert complete(build_dir, "help", "c") == {"compile", "cache"}
    assert complete(build_dir, "compile", "--optimizer", "adamw") == {"adamw"}
    assert complete(build_dir, "compile", "mnist") == {"mnist-cnn", "mnist-pipeline"}
    assert complete(build_dir, "data", "mni") == {"mnist"}
    assert complete(build_dir, "eval", "net.pth", "--data", "fashion") == {"fashion-mnist"}
    assert complete(build_dir, "predict", "net.pth", "--invert", "") == {"auto", "never"}
    assert complete(build_dir, "cache", "") == {"list", "clean", "path"}
    assert complete(build_dir, "compile", "mlp", "--output", "/et") == {"/etc"}
    for command in COMMANDS:
        assert complete(build_dir, command, "--") == {f"--{name}" for name in options(tool, command)}


def test_bash_completes_names_with_blanks(build_dir, tmp_path):
    for name in ("a shoe.png", "a*.png"):
        (tmp_path / name).touch()
    assert complete(build_dir, "predict", "net.pth", "a", cwd=tmp_path) == {"a shoe.png", "a*.png"}


def test_completions_are_those_of_the_tool(build_dir, tool):
    assert (build_dir / "tool" / "tessera").read_text() == tool("completion", "bash").stdout
    zsh = (build_dir / "tool" / "_tessera").read_text()
    assert zsh == tool("completion", "zsh").stdout
    assert zsh.startswith("#compdef tessera\n")
    for command in COMMANDS:
        part = zsh.split(f"\n    {command})\n")[1].split(";;")[0]
        assert set(re.findall(r"'--([\w-]+)\[", part)) == set(options(tool, command))


def test_the_manual_has_every_command_and_option(root, tool):
    page = (root / "doc/man/tessera.1").read_text().replace("\\-", "-")
    parts = dict(re.findall(r"^\.SS tessera (\w+)(.*?)(?=^\.S[SH])", page, re.M | re.S))
    for command in COMMANDS:
        assert command in parts, command
        known = set(options(tool, command)) - {"help"}
        assert known == set(re.findall(r"--([a-z][\w-]*)", parts[command])), command


def test_the_manual_has_every_variable(root):
    """But for those of people who work on the kernels of GPUs."""
    page = (root / "doc/man/tessera.1").read_text()
    read = {name for path in [*(root / "src").rglob("*.c"), *(root / "tool").glob("*.c")]
            for name in re.findall(r'"((?:TESSERA|POPTORCH)_[A-Z_]+)"', path.read_text())}
    assert len(read) > 10 and read - {"TESSERA_GPU_TOGETHER", "TESSERA_OPENCL_FLAGS"} <= set(re.findall(r"[A-Z_]+", page))


def test_the_layers_in_the_documentation_are_those_there_are(root, tool, tmp_path):
    """Each one the document names is known, with all the options it names; test/front/model.c has the converse."""
    text = (root / "doc/models.md").read_text()
    for row in re.findall(r"^\| (`.*?) \| (.*?) \| (.*?) \|$", text.split("## Losses")[0].split("## Layers with")[1], re.M):
        named = re.findall(r"`(\w+)=", row[2])
        for layer in re.findall(r"`(\w+)`", row[0]):
            (tmp_path / "net.txt").write_text(f"input 3\nf: {layer} zzzz=1\n")
            done = tool("inspect", "net.txt")
            if layer == "reshape":
                continue
            expect(done, FAILED, f"{layer} has no option 'zzzz'")
            known = re.search(rf"{layer} takes (.*)", done.stderr)[1]
            for option in named:
                assert f"[{option}=]" in known, (layer, option)
