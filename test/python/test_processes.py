"""Several processes that train together, started by mpirun on this machine: the library, the command, poptorch
scripts and popdist; what happens when one of them is lost; and the launcher, `tessera run`."""

import fcntl
import json
import os
import re
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time

import numpy as np
import pytest
import torch

pytestmark = pytest.mark.skipif(not shutil.which("mpirun"), reason="needs mpirun (openmpi-bin)")
LIMIT = 100    # seconds; nothing may wait for a process that is gone


@pytest.fixture
def environment(build_dir):
    """Of a fresh shell: nothing of a launcher."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("OMPI_", "PMIX_", "PMI_", "SLURM_", "POPDIST_"))}
    return {**kept, "TESSERA_CACHE_DIR": str(build_dir / "test-cache"), "PYTHONPATH": str(build_dir / "python")}


@pytest.fixture
def mpi(build_dir):
    """Skips only what was built without MPI on purpose, or where it is not installed."""
    if not (build_dir / "libtessera_mpi.so").exists():
        options = json.loads((build_dir / "meson-info" / "intro-buildoptions.json").read_text())
        wanted = next(o["value"] for o in options if o["name"] == "mpi") != "disabled"
        installed = subprocess.run(["pkg-config", "--exists", "ompi-c"]).returncode == 0
        assert not (wanted and installed), "MPI is installed, and the build has left it out"
        pytest.skip("needs a build with MPI (libopenmpi-dev)")


@pytest.fixture
def mpirun(tmp_path, environment, mpi):
    """mpirun(2, command...): what it printed, and its status."""
    def run(n, *command, options=(), code=0, **set):
        root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
        done = subprocess.run(["mpirun", *root, "--oversubscribe", "--bind-to", "none", "-n", str(n), *options,
                               *map(str, command)], cwd=tmp_path, env={**environment, **set}, timeout=LIMIT,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if code is not None:
            assert done.returncode == code, done.stdout + done.stderr
        return done
    return run


@pytest.fixture
def program(build_dir):
    return build_dir / "test" / "tools_processes"


# --- the library


@pytest.mark.parametrize("n", [2, 3, 4])
def test_sums_are_in_the_order_of_ranks(mpirun, program, n):
    done = mpirun(n, program, "sums")
    assert sorted(done.stdout.splitlines()) == [f"process {i} of {n} is done" for i in range(n)]


@pytest.mark.parametrize("n", [2, 4])
def test_processes_train_as_one_with_their_replicas(mpirun, program, n):
    """The same bits in all of them and in every run; equal to one process with as many replicas."""
    text = mpirun(n, program, "train").stdout
    for replicas in (1, 2):
        found = re.findall(rf"process \d replicas {replicas} off (\S+) hash (\w+)", text)
        assert len(found) == n and len({h for _, h in found}) == 1, text
        assert all(float(off) <= (0 if replicas == 1 else 1e-6) for off, _ in found), text
    if n == 2:
        assert sorted(mpirun(n, program, "train").stdout.splitlines()) == sorted(text.splitlines())


def test_another_program_is_noticed(mpirun, program):
    done = mpirun(2, program, "other", code=1)
    assert "process error: process 1 has another program" in done.stderr


def test_a_process_that_dies_ends_the_others(mpirun, program):
    done = mpirun(2, program, "die", code=137)
    assert "killed" in (done.stdout + done.stderr).lower()


def test_a_process_that_dies_unnoticed_is_named(mpirun, program):
    """mpirun looks away; the others find out by themselves."""
    done = mpirun(2, program, "die", options=["--enable-recovery"], code=None)
    assert "process error: process 1 of 2 is gone: it has ended" in done.stderr, done.stderr
    assert "--resume" in done.stderr


def test_a_process_that_says_nothing_is_given_up(mpirun, program):
    done = mpirun(2, program, "stall", code=1, TESSERA_COMM_TIMEOUT="2")
    assert "process 1 of 2 is gone: nothing has come from it for too long" in done.stderr


# --- tessera train


@pytest.fixture
def command(tmp_path):
    """`train` on 640 pictures, bright in the place that their class says."""
    draw = np.random.default_rng(5)
    y = draw.integers(0, 10, 700)
    x = draw.integers(0, 100, (700, 28, 28))
    for i, c in enumerate(y):
        x[i, 2 * c + 2:2 * c + 6, 4:24] += 120
    np.savez(tmp_path / "data.npz", x_train=x[:640].astype(np.uint8), y_train=y[:640], x_test=x[640:].astype(np.uint8),
             y_test=y[640:])
    return ["train", "data.npz", "--model", "classifier", "--epochs", "2", "--device-iterations", "5", "--no-plots"]


@pytest.fixture
def train(build_dir, command):
    return [build_dir / "tessera", *command]


def states(path):
    return torch.load(path)


def far(a, b):
    """The largest difference of two state dicts."""
    assert a.keys() == b.keys()
    return max((a[k] - b[k]).abs().max().item() for k in a)


def test_the_command_trains_as_one_process_that_accumulates(mpirun, train, tmp_path):
    done = mpirun(2, *train, "--json", "--csv", "p.csv", "--output", "two.pth")
    assert done.stderr == ""
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert [e["event"] for e in events].count("start") == 1 and events[0]["processes"] == 2
    mpirun(2, *train, "--quiet", "--output", "again.pth")
    one = mpirun(1, *train, "--json", "--gradient-accumulation", "2", "--output", "one.pth")
    assert far(states(tmp_path / "two.pth"), states(tmp_path / "again.pth")) == 0
    assert far(states(tmp_path / "two.pth"), states(tmp_path / "one.pth")) <= 1e-6
    alone = [json.loads(line) for line in one.stdout.splitlines()]
    for key in ("loss", "accuracy"):
        ours, theirs = ([e[key] for e in some if e["event"] == "epoch"] for some in (events, alone))
        assert ours == pytest.approx(theirs, abs=1e-6)


def test_without_mpi_it_says_what_is_missing(train, environment, tmp_path, build_dir):
    """A build that has none, or one whose module is gone."""
    there = (build_dir / "libtessera_mpi.so").exists()
    place = {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2", "TESSERA_MPI": "/nowhere.so" if there else ""}
    done = subprocess.run(train, cwd=tmp_path, env={**environment, **place}, timeout=LIMIT, capture_output=True, text=True)
    assert done.returncode == 1 and "cannot load MPI, through which processes train together" in done.stderr
    assert ("TESSERA_MPI names another place" if there else "install libopenmpi-dev and build again") in done.stderr


def test_errors_say_which_process(mpirun, train):
    usage = mpirun(2, *train, "--nonsense", code=None)
    assert usage.returncode == 2 and usage.stderr.count("there is no option --nonsense") == 1
    done = mpirun(2, *train, "--batch-size", "1000", code=1)
    assert "1000 x 5 x 1 x 1, in each process" in done.stderr


def begin(command, environment, tmp_path):
    return subprocess.Popen(list(map(str, command)), cwd=tmp_path, env=environment, stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def children(pid):
    """The processes below this one, with their environments."""
    found = []
    for p in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{p}/stat") as f:
                parent = int(f.read().rsplit(")", 1)[1].split()[1])
            with open(f"/proc/{p}/environ") as f:
                env = dict(e.split("=", 1) for e in f.read().split("\0") if "=" in e)
        except OSError:
            continue
        if parent == pid:
            found.append((int(p), env))
    return found


def wait_for_event(child, event, times=1):
    while times and (line := child.stdout.readline()):
        times -= json.loads(line)["event"] == event
    assert not times, child.stderr.read()


@pytest.fixture(params=["12"])
def long(build_dir, command, request, mpi):
    """A run that takes a while, started by `tessera run`, with a checkpoint after every five updates."""
    epochs = request.param
    command[command.index("--epochs") + 1] = epochs
    return [build_dir / "tessera", "run", "-n", "2", "--", "tessera", *command, "--json", "--checkpoint-every", "5",
            "--output", "long.pth"]


def test_a_killed_process_ends_the_run_and_another_goes_on(long, environment, tmp_path, build_dir):
    child = begin(long, environment, tmp_path)
    wait_for_event(child, "checkpoint", 4)
    victim = next(p for p, env in children(child.pid) if env.get("OMPI_COMM_WORLD_RANK") == "1")
    os.kill(victim, signal.SIGKILL)
    out, err = child.communicate(timeout=LIMIT)
    assert child.returncode not in (0, None)
    assert "process 1 of 2 is gone" in err or "rank 1" in err, err
    whole = list(map(str, long[long.index("tessera") + 1:]))
    whole[whole.index("--checkpoint-every") + 1] = "1000"
    done = subprocess.run([build_dir / "tessera", *whole, "--resume"],
                          cwd=tmp_path, env=environment, timeout=LIMIT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    start = json.loads(done.stdout.splitlines()[0])
    assert start["processes"] == 1 and start["gradient_accumulation"] == 2 and start["step"] >= 20
    whole[whole.index("long.pth")] = "whole.pth"
    done = subprocess.run([build_dir / "tessera", *whole, "--gradient-accumulation", "2"], cwd=tmp_path,
                          env=environment, timeout=LIMIT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert far(states(tmp_path / "long.pth"), states(tmp_path / "whole.pth")) <= 1e-6


@pytest.mark.parametrize("long", ["100000"], indirect=True)
def test_ctrl_c_stops_all_at_the_same_step(long, environment, tmp_path, build_dir):
    """Even when they wait for somebody to read their output, which mpirun does not after Ctrl-C."""
    os.mkfifo(tmp_path / "out")
    out = os.open(tmp_path / "out", os.O_RDWR)
    room = fcntl.fcntl(out, fcntl.F_SETPIPE_SZ, 4096)
    at = long.index("tessera")
    long[at:at + 1] = ["sh", "-c", 'exec "$@" >out', "sh", build_dir / "tessera"]
    long[long.index("--checkpoint-every") + 1] = "1"
    child = begin(long, environment, tmp_path)
    end = time.monotonic() + LIMIT
    while struct.unpack("i", fcntl.ioctl(out, termios.FIONREAD, b"    "))[0] < room - 200 and time.monotonic() < end:
        time.sleep(0.05)
    time.sleep(0.5)
    before = torch.load(tmp_path / "long.resume.pth")["step"]
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=LIMIT)
    os.close(out)
    assert child.returncode
    assert "tessera run -n 2 -- tessera train" in err, err
    assert torch.load(tmp_path / "long.resume.pth")["step"] > before > 0


def test_processes_that_do_not_divide_the_updates_are_refused(mpirun, train):
    mpirun(2, *train, "--quiet", "--limit", "320", "--output", "x.pth")
    done = mpirun(3, *train, "--limit", "320", "--resume", "--epochs", "3", "--output", "x.pth", code=1)
    assert "2 batches make one update" in done.stderr and "do not divide among 3 processes" in done.stderr
    assert "tessera: process 2: " in done.stderr or "tessera: process 1: " in done.stderr or done.stderr.count(
        "tessera: ") == 1


# --- poptorch


SCRIPT = """
import sys
import torch
import poptorch
{imports}

torch.manual_seed(int(sys.argv[1]))
model = torch.nn.Sequential(torch.nn.Linear(12, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4))

class WithLoss(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = model
    def forward(self, x, t):
        y = self.net(x)
        return y, torch.nn.functional.cross_entropy(y, t)

torch.manual_seed(7)
x, t = torch.randn(96, 12), torch.randint(0, 4, (96,))
{options}
opts.randomSeed(3)
loader = poptorch.DataLoader(opts, torch.utils.data.TensorDataset(x, t), batch_size=4, shuffle=False)
training = poptorch.trainingModel(WithLoss(), opts, optimizer=poptorch.optim.SGD(model.parameters(), lr=0.1,
                                                                                momentum=0.9))
for epoch in range(2):
    for a, b in loader:
        training(a, b)
training.copyWeightsToHost()
torch.save(model.state_dict(), sys.argv[2].format(opts.Distributed.processId))
"""


def script(tmp_path, name, options, imports=""):
    path = tmp_path / name
    path.write_text(SCRIPT.format(options=options, imports=imports))
    return [sys.executable, path]


def by_torch(rows):
    """The weights after the script's run, with so many rows of a process in an update; a process has one half of the
    data."""
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(12, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    torch.manual_seed(7)
    x, t = torch.randn(96, 12), torch.randint(0, 4, (96,))
    for _ in range(2):
        for i in range(0, 48, rows):
            both = [*range(i, i + rows), *range(48 + i, 48 + i + rows)]
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x[both]), t[both]).backward()
            optimizer.step()
    return model.state_dict()


def test_a_poptorch_script_reduces_gradients(mpirun, tmp_path, environment):
    """Each process starts with other weights; process 0's are taken. Equal to torch with all rows."""
    run = script(tmp_path, "s.py", "opts = poptorch.Options()")
    mpirun(2, "sh", "-c", 'exec "$@" $((OMPI_COMM_WORLD_RANK + 1)) "out{}.pth"', "sh", *run)
    assert far(states(tmp_path / "out0.pth"), states(tmp_path / "out1.pth")) == 0
    assert far(states(tmp_path / "out0.pth"), by_torch(4)) <= 1e-6


NORM = """
import torch
import poptorch

opts = poptorch.Options()
me = opts.Distributed.processId
torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 2))
mine = torch.nn.BatchNorm1d(3)
loss = torch.nn.CrossEntropyLoss()
class WithLoss(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = model
    def forward(self, x, t):
        y = self.net(x)
        return y, loss(y, t)

training = poptorch.trainingModel(WithLoss(), opts, poptorch.optim.SGD(model.parameters(), lr=0.1))
torch.manual_seed(10 + me)
for _ in range(3):
    x = torch.randn(8, 3) + me
    training(x, torch.randint(0, 2, (8,)))
    mine(x)
training.copyWeightsToHost()
torch.save((model.state_dict(), mine.state_dict()), f"norm{me}.pth")
"""


def test_each_process_has_its_own_statistics(mpirun, tmp_path):
    """Of batch norm: those of its rows, as torch finds them. The weights are the same everywhere."""
    (tmp_path / "n.py").write_text(NORM)
    mpirun(2, sys.executable, "n.py")
    (first, a), (second, b) = (torch.load(tmp_path / f"norm{i}.pth") for i in range(2))
    for net, own in ((first, a), (second, b)):
        for name in ("running_mean", "running_var"):
            assert (net[f"0.{name}"] - own[name]).abs().max() <= 1e-6
    assert (first["0.running_mean"] - second["0.running_mean"]).abs().max() > 0.1
    for name in ("0.weight", "0.bias", "1.weight", "1.bias"):
        assert torch.equal(first[name], second[name]), name


def test_popdist_has_replicas_in_each_process(tmp_path, environment, build_dir, mpi):
    run = script(tmp_path, "s.py", "opts = popdist.poptorch.Options(ipus_per_replica=1)", "import popdist.poptorch")
    line = [build_dir / "tessera", "run", "-n", "2", "--num-replicas", "4", "--", *run, "1", "out{}.pth"]
    done = subprocess.run(line, cwd=tmp_path, env=environment, timeout=LIMIT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert far(states(tmp_path / "out0.pth"), states(tmp_path / "out1.pth")) == 0
    assert far(states(tmp_path / "out0.pth"), by_torch(8)) <= 1e-6


def test_a_place_that_nobody_gave_is_an_error(tmp_path, environment):
    run = script(tmp_path, "s.py", "opts = poptorch.Options(); opts.Distributed.configureProcessId(1, 2)")
    done = subprocess.run([*run, "1", "x.pth"], cwd=tmp_path, env=environment, timeout=LIMIT, capture_output=True,
                          text=True)
    assert done.returncode == 1 and "process 1 of 2, and the launcher that it is process 0 of 1" in done.stderr


def test_an_exception_in_one_process_ends_all(mpirun, tmp_path):
    run = script(tmp_path, "s.py", "opts = poptorch.Options()")
    text = (tmp_path / "s.py").read_text()
    call = "        training(a, b)\n"
    (tmp_path / "s.py").write_text(text.replace(call, f"{call}        assert opts.Distributed.processId == 0, 'broken'\n"))
    done = mpirun(2, *run, "1", "x{}.pth", code=None)
    assert done.returncode and "AssertionError: broken" in done.stderr


@pytest.fixture
def popdist(monkeypatch):
    import popdist as module
    import popdist.poptorch
    for name in list(os.environ):
        if name.startswith(("POPDIST_", "OMPI_")):
            monkeypatch.delenv(name)
    return module


def test_popdist_without_a_launcher(popdist):
    popdist.init()
    assert not popdist.isPopdistEnvSet()
    assert (popdist.getInstanceIndex(), popdist.getNumInstances(), popdist.getNumLocalReplicas()) == (0, 1, 1)
    options = popdist.poptorch.Options()
    assert (options.replication_factor, options.Distributed.numProcesses) == (1, 1)


def test_popdist_reads_the_environment(popdist, monkeypatch):
    for name, value in {"OMPI_COMM_WORLD_RANK": 1, "OMPI_COMM_WORLD_SIZE": 2, "POPDIST_NUM_TOTAL_REPLICAS": 8,
                        "POPDIST_NUM_LOCAL_REPLICAS": 4, "POPDIST_NUM_IPUS_PER_REPLICA": 2,
                        "POPDIST_REPLICA_INDEX_OFFSET": 4, "POPDIST_LOCAL_INSTANCE_INDEX": 1}.items():
        monkeypatch.setenv(name, str(value))
    popdist.init()
    assert popdist.isPopdistEnvSet()
    assert (popdist.getNumTotalReplicas(), popdist.getNumLocalReplicas(), popdist.getNumIpusPerReplica()) == (8, 4, 2)
    assert (popdist.getReplicaIndexOffset(), popdist.getLocalInstanceIndex(), popdist.getDeviceId()) == (4, 1, 8)
    popdist.checkNumIpusPerReplica(2)
    with pytest.raises(RuntimeError, match="--ipus-per-replica 3"):
        popdist.checkNumIpusPerReplica(3)
    options = popdist.poptorch.Options(ipus_per_replica=2).deviceIterations(3)
    assert (options.replication_factor, options.ipu_id, options.device_iterations) == (4, 8, 3)
    assert (options.Distributed.processId, options.Distributed.numProcesses) == (1, 2)
    assert options.clone().Distributed.processId == 1
    for refused in (lambda: options.useIpuId(0), lambda: options.replicationFactor(1), options.Distributed.disable,
                    lambda: options.Distributed.setEnvVarNames("A", "B"),
                    lambda: options.Distributed.configureProcessId(0, 1)):
        with pytest.raises(RuntimeError, match="the launcher has decided"):
            refused()
    called = []
    assert popdist.execute_on_instances({1})(lambda: called.append(1) or 5)() == 5
    assert popdist.execute_on_instances(0)(lambda: called.append(2))() is None
    assert called == [1]
    with pytest.raises(ValueError, match="no instance 2"):
        popdist.execute_on_instances(2)
    monkeypatch.setenv("POPDIST_NUM_LOCAL_REPLICAS", "3")
    with pytest.raises(RuntimeError, match="8 replicas are not 3 in each of 2 instances"):
        popdist.init()
    monkeypatch.setenv("POPDIST_NUM_LOCAL_REPLICAS", "x")
    with pytest.raises(RuntimeError, match="POPDIST_NUM_LOCAL_REPLICAS is 'x'"):
        popdist.init()


# --- tessera run


@pytest.fixture
def launch(build_dir, tmp_path, environment):
    def run(*args, **set):
        return subprocess.run([build_dir / "tessera", "run", *args], cwd=tmp_path, env={**environment, **set},
                              timeout=LIMIT, capture_output=True, text=True)
    return run


def test_the_line_that_it_writes(launch, build_dir):
    words = shlex.split(launch("-n", "4", "--dry-run", "--", "tessera", "train", "a b", "--epochs", "2").stdout)
    assert words[0] == "mpirun" and words[words.index("-n") + 1] == "4" and "--oversubscribe" in words
    assert ("--allow-run-as-root" in words) == (os.geteuid() == 0)
    assert words[-5:] == [str(build_dir / "tessera"), "train", "a b", "--epochs", "2"]
    assert "POPDIST_NUM_TOTAL_REPLICAS=4" in words and "POPDIST_NUM_LOCAL_REPLICAS=1" in words


def test_hosts_and_more(launch):
    done = launch("--num-instances", "2", "--host", "a,b:2", "--num-replicas", "4", "--mpi-global-args",
                  "--mca  btl tcp,self", "--tag-output", "--dry-run", "tessera", "train", "--quiet")
    words = shlex.split(done.stdout)
    assert words[words.index("--host") + 1] == "a,b:2" and "--oversubscribe" not in words
    assert words[words.index("btl") - 1:words.index("btl") + 2] == ["--mca", "btl", "tcp,self"]
    assert "POPDIST_NUM_LOCAL_REPLICAS=2" in words and "--tag-output" in words
    assert words[words.index("TESSERA_CACHE_DIR") - 1] == "-x"    # other machines do not inherit it
    assert words[-3:] == ["tessera", "train", "--quiet"]


def test_poprun(build_dir, environment, tmp_path):
    """Its name and its options; those of the servers that lend IPUs do nothing, and -v says so."""
    (tmp_path / "poprun").symlink_to(build_dir / "tessera")
    line = ("-vv --num-instances 2 --num-replicas 4 --ipus-per-replica 2 --num-ilds 1 --host a,b:3 --numa-aware 1 "
            "--vipu-server-host here --vipu-server-port 8090 --vipu-server-timeout 120 --vipu-partition p "
            "--vipu-partition-attempts 1 --vipu-cluster c --update-partition=yes --reset-partition no "
            "--remove-partition 0 --offline-mode off --executable-cache-path /c --print-topology true "
            "--mpi-global-args=--mca --mpi-local-args '-x A=1' --only-output-from-instance 1 --dry-run "
            "python3 train.py --host x")
    done = subprocess.run([tmp_path / "poprun", *shlex.split(line)], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    table, words = done.stdout.rsplit("mpirun", 1)
    assert [row.split() for row in table.splitlines()] == [
        ["process", "host", "replicas", "devices"], ["0", "a", "0-1", "2", "x", "2"], ["1", "b", "2-3", "2", "x", "2"]]
    words = shlex.split(words)
    assert words[-4:] == ["python3", "train.py", "--host", "x"]
    assert words[words.index("--map-by") + 1] == "numa" and words[words.index("--bind-to") + 1].startswith("numa")
    assert "TESSERA_CACHE_DIR=/c" in words and "POPTORCH_CACHE_DIR=/c" in words
    assert words.index("--mca") < words.index("A=1") < words.index("sh")
    nothing = re.findall(r"^tessera run: --([\w-]+) has no effect here$", done.stderr, re.M)
    assert len(nothing) == 11 and "vipu-partition" in nothing and "offline-mode" in nothing
    assert done.stderr.splitlines()[-1].startswith("mpirun ")


def test_only_one_process_is_heard(launch):
    args = ["--only-output-from-instance", "1", "--numa-aware", "--executable-cache-path", "/c", "-n", "2"]
    done = launch(*args, "--", "sh", "-c", "echo $OMPI_COMM_WORLD_RANK $POPTORCH_CACHE_DIR; echo no >&2")
    assert (done.stdout, done.stderr) == ("1 /c\n", "no\n")


def test_files_of_options(launch, tmp_path):
    given = ["-n", "2", "--num-replicas", "4", "--hosts", "a:2", "--numa-aware", "no", "--mpi-local-args", "-x A=b c"]
    first = launch(*given, "--export-config", "c", "--dry-run", "x")
    assert (tmp_path / "c").read_text() == ("processes 2\nhosts a:2\nnum-replicas 4\nnuma-aware no\n"
                                            "mpi-local-args -x A=b c\n")
    assert launch("--import-config", "c", "--dry-run", "x").stdout == first.stdout
    assert "-n 1 " in launch("--import-config", "c", "--num-instances", "1", "--dry-run", "x").stdout    # given wins
    done = launch("--export-config", "c", "--dry-run", "x")
    assert done.returncode == 1 and "c is there already" in done.stderr and "--overwrite-config" in done.stderr
    assert launch("--export-config", "c", "--overwrite-config", "-n", "3", "--dry-run", "x").returncode == 0
    assert (tmp_path / "c").read_text() == "processes 3\n"
    for text, code, words in (("num-instances x", 2, "--num-instances must be a whole number"),
                              ("# a\n\nnumm 3", 2, "there is no option --numm\n"), ("numa-aware perhaps", 2, "yes or no"),
                              ("num-replicas 5\nprocesses 2", 2, "5 replicas cannot be divided")):
        (tmp_path / "c").write_text(text)
        done = launch("--import-config", "c", "--dry-run", "x")
        assert done.returncode == code and words in done.stderr, done.stderr
        assert "divided" in words or f"that is line {text.count(chr(10)) + 1} of c" in done.stderr
    done = launch("--import-config", "nowhere", "x")
    assert done.returncode == 1 and "cannot read nowhere" in done.stderr


@pytest.mark.parametrize("args, words", [
    ([], "PROGRAM is missing"),
    (["-n", "2", "--only-output-from-instance", "2", "x"], "the processes have the numbers 0 to 1"),
    (["--numa-aware=maybe", "x"], "--numa-aware is 'maybe'; it can be yes or no"),
    (["--vipu-server-port", "70000", "x"], "--vipu-server-port is 70000"),
    (["--overwrite-config", "x"], "--overwrite-config needs --export-config"),
    (["-n", "0", "x"], "--processes is 0"),
    (["-n"], "--processes needs a value"),
    (["-q", "x"], "'-q' is not an option"),
    (["-n", "3", "--num-replicas", "4", "x"], "4 replicas cannot be divided evenly among 3 processes"),
])
def test_it_is_called_in_a_wrong_way(launch, args, words):
    done = launch(*args)
    assert done.returncode == 2 and words in done.stderr


def test_no_mpirun(launch):
    done = launch("-n", "2", "--", "true", PATH="/nowhere")
    assert done.returncode == 1 and "mpirun" in done.stderr and "openmpi-bin" in done.stderr


def test_each_process_knows_its_replicas(launch):
    names = ["POPDIST_REPLICA_INDEX_OFFSET", "POPDIST_LOCAL_INSTANCE_INDEX", "POPDIST_NUM_TOTAL_REPLICAS",
             "POPDIST_NUM_LOCAL_REPLICAS", "POPDIST_NUM_IPUS_PER_REPLICA", "POPDIST_UNIFORM_REPLICAS_PER_INSTANCE"]
    done = launch("-n", "2", "--num-replicas", "6", "--", "sh", "-c", "echo " + " ".join("$" + n for n in names))
    assert sorted(done.stdout.splitlines()) == ["0 0 6 3 1 1", "3 1 6 3 1 1"], done.stderr


def test_examples_of_the_help(launch):
    for line in re.findall(r"^  tessera run (.*)$", launch("--help").stdout.split("examples")[1], re.M):
        assert launch("--dry-run", *shlex.split(line)).stdout.startswith("mpirun ")


# --- two machines


if os.environ.get("TS_SOAK"):
    def test_two_network_namespaces(environment, build_dir, tmp_path, program, mpi):
        """Two hosts of their own addresses, joined by a virtual cable; mpirun reaches the second through nsenter."""
        if os.geteuid() != 0 or not shutil.which("ip"):
            pytest.skip("needs root and ip(8) for network namespaces")
        setup = """
            ip netns add tsA && ip netns add tsB &&
            ip link add vA netns tsA type veth peer name vB netns tsB &&
            ip -n tsA addr add 10.77.0.1/24 dev vA && ip -n tsB addr add 10.77.0.2/24 dev vB &&
            ip -n tsA link set vA up && ip -n tsB link set vB up && ip -n tsA link set lo up && ip -n tsB link set lo up
        """
        made = subprocess.run(["sh", "-c", setup], capture_output=True, text=True)
        try:
            if made.returncode:
                pytest.skip(f"network namespaces are not permitted here: {made.stderr.strip()}")
            # instead of ssh HOST COMMAND: the second host is the other namespace, with a host name of its own
            agent = tmp_path / "agent"
            agent.write_text('#!/bin/sh\nshift\nexec ip netns exec tsB unshare --uts sh -c "hostname tsB; $*"\n')
            agent.chmod(0o755)
            line = ["ip", "netns", "exec", "tsA", "mpirun", "--allow-run-as-root", "-n", "2", "--host",
                    "10.77.0.1:1,10.77.0.2:1", "--mca", "plm_rsh_agent", str(agent), "--mca", "btl", "tcp,self",
                    "--bind-to", "none", "-x", "TESSERA_CACHE_DIR", str(program), "train"]
            done = subprocess.run(line, env=environment, timeout=LIMIT, capture_output=True, text=True, cwd=tmp_path)
            assert done.returncode == 0, done.stdout + done.stderr
            assert len(set(re.findall(r"hash (\w+)", done.stdout))) == 2    # of one and of two replicas
        finally:
            subprocess.run(["sh", "-c", "ip netns del tsA; ip netns del tsB"], capture_output=True)
