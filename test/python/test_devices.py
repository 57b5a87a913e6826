"""Several devices from the command line: stages and replicas, plans, and tessera monitor across processes."""

import json
import os
import re
import signal
import subprocess
import time

import numpy as np
import pytest
from PIL import Image

OK, FAILED, USAGE = 0, 1, 2
STAGES = ["--gradient-accumulation", 4, "--model", "mnist-pipeline", "--batch-size", 8, "--no-plots"]


@pytest.fixture
def tool(build_dir, tmp_path):
    """tool("plan", ...) runs a command; tool.start leaves it running. The runtime folder is the test's own."""
    (tmp_path / "run").mkdir(mode=0o700)
    env = {**os.environ, "TESSERA_CACHE_DIR": str(build_dir / "test-cache"), "LC_ALL": "C.UTF-8",
           "XDG_RUNTIME_DIR": str(tmp_path / "run")}
    children = []

    def start(*args, program="tessera", **how):
        child = subprocess.Popen([build_dir / program, *map(str, args)], cwd=tmp_path, text=True,
                                 env={**env, **how.pop("set", {})}, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                 **how)
        children.append(child)
        return child

    def run(*args, code=OK, **how):
        child = start(*args, **how)
        out, run.err = child.communicate(timeout=120)
        assert child.returncode == code, out + run.err
        return out
    run.start = start
    yield run
    for child in children:
        if child.poll() is None:
            child.kill()
            child.communicate()


@pytest.fixture
def data(tmp_path):
    """256 images of noise in 10 classes."""
    rng = np.random.default_rng(3)
    np.savez(tmp_path / "some.npz", x=rng.integers(0, 256, (256, 28, 28), np.uint8), y=rng.integers(0, 10, 256))
    return "some.npz"


# --- train


def tool_fails(tool, *args):
    tool(*args, code=FAILED)
    return tool.err


def test_stages_and_devices_give_the_same_bits(tool, data, tmp_path):
    args = ["train", data, *STAGES, "--epochs", 1, "--optimizer", "adam"]
    tool(*args, "--output", "one.pth")
    one = (tmp_path / "one.pth").read_bytes()
    for name, more in {"four": ["--stages", "B1|B2|B3|B4", "--queue-depth", 1],
                       "cut": ["--devices", 3, "--recompute", "--offload", "optimizer,activations"],
                       "back": ["--stages", " B1 | B2 | B3 , B4@0 ", "--strategy", "sharded"],
                       "phases": ["--stages", "B1 / B2 | B3,B4@1", "--schedule", "phased",
                                  "--separate-backward"]}.items():
        tool(*args, *more, "--output", f"{name}.pth")
        assert (tmp_path / f"{name}.pth").read_bytes() == one, name
    out = tool(*args, "--devices", 2, "--output", "halves.pth")
    assert re.search(r"Cut for 2 devices: layer1.*\|.*layer4.*; \d+ % of their time idle", out)
    assert "needs" in tool_fails(tool, *args, "--device-memory", "100KiB", "--output", "small.pth")
    out = tool(*args, "--gradient-accumulation", 1, "--stages", "B1,B2|B3,B4", "--output", "turns.pth")
    assert "nothing to overlap" in out


def test_killed_on_a_pipeline_and_resumed_on_one_device(tool, data, tmp_path):
    args = ["train", data, *STAGES, "--epochs", 6, "--device-iterations", 1, "--optimizer", "adam"]
    tool(*args, "--output", "whole.pth")
    child = tool.start(*args, "--stages", "B1,B2|B3,B4", "--output", "part.pth", "--checkpoint-every", 3, "--json")
    for line in child.stdout:
        event = json.loads(line)
        if event["event"] == "checkpoint" and event["step"] >= 12:
            break
    child.kill()
    child.communicate()
    assert not (tmp_path / "part.pth").exists()
    out = tool("train", data, "--resume", "--output", "part.pth", "--no-plots", "--json")
    events = [json.loads(line) for line in out.splitlines()]
    assert 12 <= events[0]["step"] < 48 and events[-1]["event"] == "end"
    assert (tmp_path / "part.pth").read_bytes() == (tmp_path / "whole.pth").read_bytes()


def test_replicas_take_more_samples(tool, data, tmp_path):
    args = ["train", data, *STAGES, "--epochs", 1, "--device-iterations", 2]
    out = tool(*args, "--replicas", 3, "--output", "r.pth")
    assert "64 of the samples" in out and "a call of 192" in out    # 8 x 4 x 2 x 3
    tool(*args, "--replicas", 3, "--stages", "B1,B2|B3,B4", "--output", "s.pth")
    assert (tmp_path / "r.pth").read_bytes() == (tmp_path / "s.pth").read_bytes()
    tool("train", data, "--resume", "--replicas", 2, "--output", "r.pth", "--epochs", 2, code=FAILED)
    assert "--replicas is '2' here and '3'" in tool.err
    tool("train", data, "--resume", "--output", "r.pth", "--epochs", 2, "--no-plots")
    tool(*args, "--replicas", 5, "--device-iterations", 1, "--gradient-accumulation", 8, "--output", "x.pth",
         code=FAILED)
    assert "takes 320 samples (8 x 1 x 8 x 5), the data has 256" in tool.err


def test_sharded_optimizer(tool, data, tmp_path):
    """The same file, with less memory for each device; the plan says by how much."""
    args = ["train", data, *STAGES, "--epochs", 1, "--device-iterations", 2, "--optimizer", "adam", "--replicas", 2]
    tool(*args, "--output", "whole.pth")
    tool(*args, "--shard-optimizer", "--shard-least", 64, "--output", "split.pth")
    assert (tmp_path / "whole.pth").read_bytes() == (tmp_path / "split.pth").read_bytes()
    plan = ["plan", "classifier", "--training", "--optimizer", "adam", "--replicas", 4]
    whole, split = (json.loads(tool(*plan, "--json", *more))["devices"][0] for more in ([], ["--shard-optimizer"]))
    assert whole["sharded"] == 0 < split["sharded"]
    assert abs(whole["states"] - split["states"] - split["sharded"]) <= 0.01 * split["sharded"]
    assert re.search(r"[\d.]+ .iB of the optimizer's state of device 0 are kept by other replicas",
                     tool(*plan, "--shard-optimizer"))
    assert "kept by other" not in tool(*plan)
    tool(*plan[:-3], "lamb", "--replicas", 4, "--shard-optimizer", code=FAILED)
    assert "shard_optimizer is not supported with LAMB" in tool.err


@pytest.mark.parametrize("stages, words", [
    ("B1|B2|B3", "the block 'B4' is in no stage"),
    ("B1|B2|B3,B5|B4", "the model has no block 'B5'"),
    ("B1|B2|B3,B4,B1", "the block 'B1' is in --stages twice"),
])
def test_wrong_blocks(tool, stages, words):
    for command in ("plan", "compile"):
        tool(command, "mnist-pipeline", "--stages", stages, code=FAILED)
        assert words in tool.err and "hint   the blocks are B1, B2, B3, B4" in tool.err
    tool("plan", "mlp", "--stages", "B1", code=FAILED)
    assert "the model has no blocks" in tool.err and "--devices N" in tool.err


def test_compile_and_inspect(tool):
    tool("compile", "mnist-pipeline", "--training", "--gradient-accumulation", 4, "--stages", "B1,B2|B3,B4", "--output",
         "p.tsx")
    text = tool("inspect", "p.tsx")
    assert "devices                2, pipelined\n" in text
    assert re.search(r"^sections\n.*\n +0 +0 batch +0 +0 .*  B1 B2$", text, re.M) and "\nsends\n" in text


# --- plan


def test_plan(tool):
    args = ["plan", "mnist-pipeline", "--training", "--gradient-accumulation", 8, "--stages", "B1|B2|B3|B4"]
    text = tool(*args)
    assert "4 devices pipelined" in text and re.search(r"^layer3 +B3 +2 +82176 ", text, re.M)
    assert re.search(r"fill +main +flush\ndevice 0 +F0 +F1 ", text) and re.search(r"^bubble +\d+\.\d %", text, re.M)
    plan = json.loads(tool(*args, "--json"))
    assert [d["device"] for d in plan["devices"]] == [0, 1, 2, 3] and plan["micro_batches"] == 8
    assert abs(sum(d["share"] for d in plan["devices"]) - 1) < 1e-6 and 0 < plan["bubble"] < 1
    assert all(0 < d["states"] < d["peak"] for d in plan["devices"])
    assert {s["kind"] for s in plan["sections"]} == {"F", "B", "X", "U"}
    assert sum(layer["parameters"] for layer in plan["layers"]) == 90026
    smaller = json.loads(tool(*args, "--json", "--batch-size", 8))
    assert smaller["devices"][0]["peak"] < plan["devices"][0]["peak"]
    turns = json.loads(tool(*args, "--json", "--schedule", "sharded"))
    assert turns["sharded"] and turns["bubble"] > plan["bubble"]
    assert turns["devices"][0]["peak"] < plan["devices"][0]["peak"]    # one micro-batch at a time


def test_plan_from_checkpoints(tool, tmp_path):
    (tmp_path / "deep.model").write_text("input 1 32 32\nrepeat i 8\nc{i}: conv2d 8 3 padding=1\nn{i}: batch_norm\nrelu\n"
                                         "checkpoint\nend\nflatten\nout: linear 10\nloss cross_entropy\n")
    plain, again = (json.loads(tool("plan", "deep.model", "--training", "--json", *more))["devices"][0]["peak"]
                    for more in ([], ["--recompute"]))
    assert again < 0.75 * plain


def test_plan_of_phases(tool):
    args = ["plan", "mnist-pipeline", "--training", "--gradient-accumulation", 2, "--stages", "B1|B2|B3|B4",
            "--schedule"]
    text = tool(*args, "phased")
    assert "1 device, 4 phases\n" in text and re.search(r"^host memory +\d", text, re.M)
    assert re.search(r"^2 +0 +F +\S+ KiB +\S+ KiB  in: 2 weights; out: 1 activations$", text, re.M)
    plain, phased, two = (json.loads(tool(*args, *how, "--json")) for how in (
        ["sharded"], ["phased"], ["parallel-phased"]))
    assert len(plain["devices"]) == 4 and plain["host"] == 0 and plain["moves"] == []
    assert phased["phases"] == 4 and [s["phase"] for s in phased["sections"]] == [0, 1, 2, 3, 4, 5, 6, 0, 1, 2, 3]
    # the largest phase, not the sum: that of B3, with its 82176 weights and their sums
    assert 8 * 82176 < phased["devices"][0]["peak"] < sum(d["peak"] for d in plain["devices"]) / 3
    assert phased["host"] > 8 * 90026
    assert {(m["move"], m["what"]) for m in phased["moves"] if m["name"] == "layer3.weight"} == {
        ("load", "weights"), ("store", "weights")}
    assert [s["device"] for s in two["sections"]] == [0, 1, 0, 1, 0, 1, 0, 0, 1, 0, 1]
    assert all(s["host"] for s in two["sends"]) and two["devices"][1]["peak"] < two["devices"][0]["peak"]
    kept = json.loads(tool(*args, "phased", "--offload", "none", "--json"))
    assert kept["host"] == 0 and kept["devices"][0]["peak"] > phased["devices"][0]["peak"]
    for more, words in ((["phased", "--offload", "some"], "or all, or none"), (["sharded", "--separate-backward"],
                        "needs --schedule phased"), (["parallel-phased", "--stages", "B1|B2@0|B3|B4"],
                        "a stage of phase 1 on device 0; even phases run on even")):
        tool(*args, *more, code=USAGE)
        assert words in tool.err
    tool("plan", "mlp", "--schedule", "phased", code=USAGE)
    assert "needs --stages" in tool.err


def test_plan_says_what_does_not_fit(tool):
    args = ["plan", "mlp", "--training", "--device-memory"]
    for size in ("gc200", "mk1", "1GiB", "2.5 MiB", "3000000", "3000000B"):
        tool(*args, size)
    peak = json.loads(tool(*args, "1GiB", "--json"))["devices"][0]["peak"]
    assert "device" in tool(*args, "900KiB", code=FAILED)
    assert re.search(r"device 0 needs 1\d+\.\d KiB, .* and has 900.0 KiB", tool.err)
    tool(*args, peak)
    tool(*args, peak - 1, code=FAILED)
    assert f"device 0 needs {peak / 1024:.1f} KiB (1 bytes more than there are)" in tool.err


@pytest.mark.parametrize("cure, option", [
    ("offload the optimiser's state (-", ["--offload", "optimizer"]), ("offload accumulators (-", ["--offload", "accumulators"]),
    ("offload weights (-", ["--offload", "weights"]), ("recompute (-", ["--recompute"]), ("a smaller batch", ["--batch-size", 1])])
def test_no_cure_is_proposed_that_is_on(tool, cure, option):
    for on in (False, True):
        tool("plan", "mnist-pipeline", "--training", "--batch-size", 4, "--device-memory", "30KiB", "--gradient-accumulation", 8, "--stages",
             "B1|B2|B3|B4", "--optimizer", "adam", *(option if on else []), code=FAILED)
        assert (cure in tool.err) != on and "use more devices, half precision" in tool.err


def test_models_of_ipus_have_their_memory(tool):
    args = ["plan", "resnet18", "--training", "--batch-size", 16]
    tool(*args, "--device", "model")
    for kind in ("model:mk1", "mk1"):
        tool(*args, *(["--device", kind] if ":" in kind else ["--device-memory", kind]), code=FAILED)
        assert re.search(r"device 0 needs \d+\.\d MiB, .* and has 304.0 MiB", tool.err)
    tool(*args, "--device", "model:mk1", "--device-memory", "2GiB")    # what is set wins
    tool("compile", "resnet18", "--training", "--batch-size", 16, "--device", "model:mk1", code=FAILED)
    assert "device 0 needs" in tool.err and "and has 304.0 MiB" in tool.err and "the largest are" in tool.err
    tool("plan", "mlp", "--device", "gc200", code=USAGE)
    assert "cpu model model:mk2 model:mk1 gpu opencl" in tool.err


# --- eval and predict


def test_eval_and_predict_on_devices(tool, data, tmp_path):
    """The same numbers however the net is placed; 256 samples are not a multiple of what a call takes."""
    Image.fromarray(np.load(tmp_path / data)["x"][0]).save(tmp_path / "x.png")
    tool("train", data, *STAGES, "--epochs", 1, "--output", "net.pth", "--quiet")
    args = ["eval", "net.pth", "--data", data, "--no-plots", "--json", "--batch-size", 24]
    one = json.loads(tool(*args))
    assert one["samples"] == 256
    for more in (["--stages", "B1|B2|B3|B4"], ["--stages", "B1,B2|B3,B4", "--strategy", "sharded"],
                 ["--devices", 2, "--device-iterations", 5, "--replicas", 2, "--device", "model:mk1"],
                 ["--replicas", 3, "--offload", "weights"]):
        got = json.loads(tool(*args, *more))
        assert got == one, more
    args = ["predict", "net.pth", "x.png", "--no-plots", "--json"]
    one = json.loads(tool(*args))
    assert json.loads(tool(*args, "--stages", "B1|B2,B3|B4", "--replicas", 2)) == one
    for command in (["eval", "net.pth", "--data", data], ["predict", "net.pth", "x.png"]):
        tool(*command, "--device-memory", "100KiB", code=FAILED)
        assert "device 0 needs" in tool.err and "layer3.weight" in tool.err
        tool(*command, "--stages", "B1|B2", code=FAILED)
        assert "the block 'B3' is in no stage" in tool.err
        tool(*command, "--device-memory", "x", code=USAGE)
        assert f"tessera {command[0]}: --device-memory is 'x'" in tool.err


# --- monitor


def processes(tool, **how):
    return json.loads(tool("monitor", "--json", **how))["processes"]


def wait_until(condition):
    for _ in range(600):
        if condition():
            return
        time.sleep(0.05)
    assert condition()


def test_monitor_sees_processes_and_their_death(tool, data, tmp_path):
    assert "No attached processes" in tool("monitor") and processes(tool) == []
    long = ["train", data, *STAGES, "--epochs", 1000000]
    one = tool.start(*long, "--stages", "B1,B2|B3,B4", "--output", "a.pth")
    wait_until(lambda: len(processes(tool)) == 2)
    two = tool.start(*long, "--output", "b.pth")
    wait_until(lambda: len({p["pid"] for p in processes(tool)}) == 2)
    wait_until(lambda: all(p["calls"] > 0 for p in processes(tool)))
    seen = processes(tool)
    assert [p["id"] for p in seen if p["pid"] == one.pid] == [0, 1]
    assert [p["id"] for p in seen if p["pid"] == two.pid] == [2]
    for p in seen:
        assert p["command"].startswith("tessera train some.npz") and p["memory"] > 0 and 0 < p["utilisation"] <= 1
    table = tool("monitor")
    assert len({len(line) for line in table.split("+\n+")[-1].splitlines()}) <= 2
    assert re.search(rf"^\| +{two.pid} +\|tessera train some.npz .*\| +\d+s +\| +\S+ +\| +2 +\|", table, re.M)
    assert re.search(r"\| +gc-monitor +\| +Machine: .* \[active\] has 3 virtual devices", table)
    assert "in use: 0, 1, 2\n" in tool("devices")
    one.send_signal(signal.SIGKILL)
    wait_until(lambda: {p["pid"] for p in processes(tool)} == {two.pid})
    assert len(list((tmp_path / "run/tessera").iterdir())) == 1    # the file of the dead is gone too
    two.send_signal(signal.SIGTERM)
    two.communicate(timeout=60)
    assert processes(tool) == [] and list((tmp_path / "run/tessera").iterdir()) == []


def test_monitor_live(tool, build_dir, tmp_path):
    (tmp_path / "gc-monitor").symlink_to(build_dir / "tessera")
    child = tool.start("-l", "--json", program=tmp_path / "gc-monitor")
    assert [json.loads(child.stdout.readline())["processes"] for _ in range(2)] == [[], []]
    child.send_signal(signal.SIGINT)
    child.communicate(timeout=60)
    assert child.returncode in (130, -signal.SIGINT)


def test_monitor_ignores_a_folder_it_does_not_own(tool, tmp_path):
    folder = tmp_path / "run/tessera"
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)
    (folder / "1.1.0").write_bytes(b"x" * 4096)
    assert processes(tool) == []
    folder.chmod(0o700)
    (folder / f"{os.getpid()}.1.0").write_bytes(os.urandom(320))
    (folder / "2.2.2").symlink_to("/etc/passwd")
    os.mkfifo(folder / "3.3.3")
    assert processes(tool) == []


def test_the_number_of_devices(tool):
    four = {"TESSERA_DEVICES": "4"}
    assert [d["id"] for d in json.loads(tool("monitor", "--json", set=four))["devices"]] == [0, 1, 2, 3]
    assert re.search(r"^virtual devices +4$", tool("devices", set=four), re.M)
