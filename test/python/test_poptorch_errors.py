"""What users read: messages, the bar, the cache's lines; and the rules of setOptimizer."""

import os
import re
import subprocess
import sys

import pytest
import torch
import torch.nn as nn

import poptorch
from poptorch import _logging
from poptorch_helpers import Small, inference, log, nothing_cached, options, refused, step, training  # noqa: F401

BAR = r"Graph compilation: 100%\|█+\| 100/100 \[\d\d:\d\d<\d\d:\d\d\]"


# --- the bar --------------------------------------------------------------------------------------

def test_the_bar(capfd):
    pytest.importorskip("tqdm")
    inference(lambda x: x + 1, poptorch.Options())(torch.ones(1))
    err = capfd.readouterr().err
    assert re.search(BAR, err) and "Graph compilation:   0%|          | 0/100 [00:00<?]" in err
    inference(lambda x: x + 1)(torch.ones(1))
    assert "Graph compilation" not in capfd.readouterr().err


@pytest.mark.parametrize("layers, words", [(7, "-O0"), (3, "-O2")])
def test_the_bar_moves_with_the_compiler(layers, words, tmp_path, monkeypatch):
    """From 40 to 90 percent is the C compiler's, which takes nearly all of the time: a part of the text after the other where
    there are several, and else by what gcc has written."""
    told, compiler = [], tmp_path / "cc"
    compiler.write_text(f'#!/bin/sh\nexec gcc "$@" {words}\n')    # a quick one for the long text
    compiler.chmod(0o755)
    monkeypatch.setenv("TESSERA_CC", str(compiler))
    monkeypatch.setattr("poptorch._compile._Bar.__call__", lambda self, percent: told.append(percent))
    made = [layer for i in range(layers) for layer in (nn.Conv2d(3 + i, 4 + i, 3, padding=1), nn.Tanh(), nn.GroupNorm(1, 4 + i))]
    net = nn.Sequential(*made, nn.Flatten(), nn.Linear((3 + layers) * 144, 1))
    net.forward = lambda x, forward=net.forward: forward(x).square().mean()
    training(net, poptorch.Options())[1](torch.randn(2, 3, 12, 12))
    assert told == sorted(told) and told[0] == 0 and told[-1] == 100
    assert len({p for p in told if 40 < p < 90}) >= 2, told


def test_without_a_compiler_what_is_cached_runs(tmp_path, capfd, monkeypatch):
    def make():
        model = inference(lambda x: x * 3, options().enableExecutableCaching(str(tmp_path)))
        assert model(torch.ones(2)).tolist() == [3, 3]
        return model._program.executable.stats()
    assert make()["native"]
    monkeypatch.setenv("TESSERA_CC", "/nowhere/cc")
    stats = make()
    assert stats["from_cache"] and stats["native"] and "compiler" not in capfd.readouterr().err
    inference(lambda x: x * 4)(torch.ones(2))
    said = capfd.readouterr().err
    assert "cannot run the C compiler '/nowhere/cc'" in said and "install gcc or clang, or name one in TESSERA_CC" in said


WRONG = {
    "a value": "x.item()", "an operation": "torch.geqrf(x.view(1, 1))[0]", "shapes": "torch.cat([x, x.view(1)])",
    "python": "x + {}['missing']",
}


@pytest.mark.parametrize("name", WRONG)
def test_what_a_cell_shows_of_an_error(name, build_dir, tmp_path):
    """The program's own lines, of which the last is the one in forward(), and what is wrong with it: no hundred lines of others."""
    file = tmp_path / "cell.py"
    file.write_text(f"""import poptorch, torch
class Inner(torch.nn.Module):
    def forward(self, x):
        return {WRONG[name]}
net = torch.nn.Sequential(torch.nn.Sequential(torch.nn.TransformerEncoderLayer(1, 1), Inner()))
poptorch.inferenceModel(net, poptorch.Options().showCompilationProgressBar(False))(torch.ones(1, 1))
""")
    environment = {**os.environ, "PYTHONPATH": str(build_dir / "python")}
    out = subprocess.run([sys.executable, str(file)], env=environment, capture_output=True, text=True, timeout=60)
    lines = out.stderr.splitlines()
    assert out.returncode == 1 and len(lines) <= 24, out.stderr
    shown = [line for line in lines if line.startswith("  File ") and "poptorch/" not in line]
    assert all("cell.py" in line for line in shown) and 'cell.py", line 4' in shown[-1] or "cell.py:4" in out.stderr, out.stderr


# --- the cache ------------------------------------------------------------------------------------

def files(folder):
    return [f for f in os.listdir(folder) if not f.startswith(".") and not f.endswith(".lock")]


def test_cache(tmp_path, capfd, monkeypatch):
    pytest.importorskip("tqdm")
    folder = tmp_path / "new"
    calls = []

    def make():
        model = inference(lambda x: calls.append(1) or x * 3,
                          poptorch.Options().enableExecutableCaching(str(folder)))
        assert model(torch.ones(2)).tolist() == [3, 3]
        return model
    first = make()
    err = capfd.readouterr().err
    line = (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z popart:devicex \d+\.\d+ W: Specified directory not found\. "
            f'Creating "{folder}"')
    assert re.search(line, err) and len(files(folder)) == 1
    second = make()
    err = capfd.readouterr().err
    assert "Creating" not in err and re.search(BAR, err) and len(files(folder)) == 1    # the bar all the same
    assert len(calls) == 2    # and so does tracing
    assert not first._program.executable.stats()["from_cache"] and second._program.executable.stats()["from_cache"]
    monkeypatch.setenv("POPTORCH_CACHE_DIR", str(folder))
    third = inference(lambda x: x * 3)
    third(torch.ones(2))
    assert third._program.executable.stats()["from_cache"]
    fourth = inference(lambda x: x * 3, options().enableExecutableCaching(None))    # the method wins
    fourth(torch.ones(2))
    assert not fourth._program.executable.stats()["from_cache"]


def test_cache_of_weights_and_rates(tmp_path):
    """Values of weights and of variable hyper-parameters are not in the key."""
    for lr in (0.5, 0.25):
        net = Small()
        _, model = training(net, options().enableExecutableCaching(str(tmp_path)),
                            torch.optim.SGD(net.parameters(), lr=lr))
        step(model)
    assert model._program.executable.stats()["from_cache"] and len(files(tmp_path)) == 1


def test_cache_and_the_simulated_device(tmp_path, log):
    inference(lambda x: x * 3, options().enableExecutableCaching(str(tmp_path)).useIpuModel(True))(torch.ones(2))
    assert "[warning] enableExecutableCaching() has no effect" in log() and not files(tmp_path)


def test_a_simulated_device_has_an_ipus_memory(monkeypatch):
    monkeypatch.setenv("POPTORCH_IPU_MODEL_VERSION", "ipu1")
    net = nn.Linear(9100, 9100, bias=False, device="meta").to_empty(device="cpu")
    with pytest.raises(poptorch.Error, match="device 0 needs .* and has 304.0 MiB") as caught:
        inference(net, options().useIpuModel(True)).compile(torch.ones(1, 9100))
    assert "the largest are weight (" in str(caught.value) and "offload weights (-" in str(caught.value)


def test_halves_are_no_cure_for_halves():
    for net, words in ((nn.Linear(550, 550), True), (nn.Linear(550, 550).half(), False)):
        opts = options().useIpuModel(True)
        opts._Popart.set("deviceMemory", 100000)
        with pytest.raises(poptorch.Error, match="more devices") as caught:
            inference(net, opts).compile(torch.ones(1, 550, dtype=net.weight.dtype))
        assert ("half precision" in str(caught.value)) == words


def test_the_memory_of_a_device_can_be_set():
    opts = options().useIpuModel(True)
    opts._Popart.set("deviceMemory", 1000000)
    with pytest.raises(poptorch.Error, match=r"device 0 needs .* and has 976\.6 KiB"):
        inference(nn.Linear(550, 550), opts).compile(torch.ones(1, 550))


def test_processes_without_a_cache(log):
    opts = options()
    opts.Distributed.configureProcessId(0, 2)
    inference(lambda x: x * 3, opts).compile(torch.ones(2))
    assert "[warning] Several processes without enableExecutableCaching()" in log()


# --- errors ---------------------------------------------------------------------------------------

def test_errors_of_the_compiler_are_errors():
    with pytest.raises(poptorch.Error) as e:
        inference(lambda x: poptorch.CPU(torch.sin, "s")(x) + 1)(torch.ones(2, dtype=torch.float64).expand(2))
        raise poptorch.createPoptorchError("made")
    assert str(e.value) == "'poptorch_py_error': made"
    assert e.value.type == "poptorch_py_error" and e.value.message == "made" and e.value.location == ""
    assert issubclass(poptorch.RecoverableError, poptorch.Error)
    assert issubclass(poptorch.UnrecoverableError, poptorch.Error)
    assert issubclass(poptorch.ConfigFileError, Exception) and not issubclass(poptorch.ConfigFileError, poptorch.Error)


def test_uncaught_exceptions(build_dir):
    code = "import poptorch; raise poptorch.createPoptorchError('mine')"
    environment = {**os.environ, "PYTHONPATH": str(build_dir / "python")}
    out = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60)
    assert out.returncode == 1
    assert re.search(r"\[\d\d:\d\d:\d\d\.\d{3}\] \[poptorch::python\] \[critical\] Error: 'poptorch_py_error': mine",
                     out.stderr)


def test_messages_name_the_line():
    with pytest.raises(poptorch.Error) as e:
        inference(lambda x: torch.geqrf(x)[1])(torch.eye(2))
    assert "geqrf" in str(e.value) and "test_poptorch_errors.py:" in str(e.value)


# --- setOptimizer ---------------------------------------------------------------------------------

def sgd(net, **kwargs):
    return poptorch.optim.SGD(net.parameters(), **kwargs)


def test_attributes_wait_for_set_optimizer():
    net = Small()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.0)
    _, model = training(net, optimizer=optimizer)
    before = net.fc.weight.detach().clone()
    step(model)
    optimizer.param_groups[0]["lr"] = 1.0
    step(model)
    assert torch.equal(net.fc.weight, before)
    model.setOptimizer(optimizer)
    step(model)
    assert not torch.equal(net.fc.weight, before)


def test_set_optimizer_while_detached():
    net = Small()
    _, model = training(net, optimizer=sgd(net, lr=0.0))
    step(model)
    before = net.fc.weight.detach().clone()
    model.detachFromDevice()
    model.setOptimizer(sgd(net, lr=1.0))
    step(model)
    assert not torch.equal(net.fc.weight, before)


@pytest.mark.parametrize("first, later", [
    ({"lr": 0.1}, {"lr": 0.1, "momentum": 0.5}), ({"lr": 0.1}, {"lr": 0.1, "weight_decay": 0.1}),
    ({"lr": 0.1, "momentum": 0.5}, {"lr": 0.1}), ({"lr": 0.1}, {"lr": 0.1, "loss_scaling": 2.0})])
def test_what_set_optimizer_refuses(first, later):
    net = Small()
    _, model = training(net, optimizer=sgd(net, **first))
    step(model)
    with pytest.raises((poptorch.Error, ValueError)):
        model.setOptimizer(sgd(net, **later))
    step(model)    # goes on with the old one


def test_set_optimizer_refuses_other_kinds_and_groups():
    net = nn.Sequential(nn.Linear(3, 2))

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net

        def forward(self, x, t):
            return torch.nn.functional.mse_loss(self.net(x), t)
    _, model = training(Net(), optimizer=sgd(net, lr=0.1))
    model.setOptimizer(poptorch.optim.Adam(net.parameters(), lr=0.1))    # before compiling anything goes
    model.setOptimizer(sgd(net, lr=0.1))
    model(torch.randn(4, 3), torch.randn(4, 2))
    for other in (poptorch.optim.Adam(net.parameters(), lr=0.1),
                  poptorch.optim.SGD([{"params": [net[0].weight]}, {"params": [net[0].bias]}], lr=0.1)):
        with pytest.raises((poptorch.Error, ValueError)):
            model.setOptimizer(other)


def test_a_new_optimizer_takes_over():
    net = Small()
    old = sgd(net, lr=0.1, momentum=0.5)
    _, model = training(net, optimizer=old)
    step(model)
    new = sgd(net, lr=0.2, momentum=0.5)
    model.setOptimizer(new)
    state = old.state_dict()["ipu_state"]    # was read back before it was let go
    assert state["Accl1___fc.weight"].abs().sum() > 0
    step(model)
    assert torch.equal(old.state_dict()["ipu_state"]["Accl1___fc.weight"], state["Accl1___fc.weight"])
    assert not torch.equal(new.state_dict()["ipu_state"]["Accl1___fc.weight"], state["Accl1___fc.weight"])


def test_parameters_in_no_group_and_strangers():
    net = Small()
    _, model = training(net, optimizer=poptorch.optim.SGD([net.fc.weight], lr=0.5))
    before = net.fc.bias.detach().clone()
    step(model)
    assert not torch.equal(net.fc.bias, before)    # with the optimizer's defaults
    _, model = training(Small(), optimizer=torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=1.0))
    with pytest.raises(KeyError):
        step(model)


# --- what has no effect says so -------------------------------------------------------------------

def test_settings_without_effect(log):
    opts = options()
    opts.Precision.enableStochasticRounding(True).setPartialsType(torch.half)
    opts._Popart.set("outlineThreshold", 1.5).set("autoRecomputation", 1)
    poptorch.setLogLevel("INFO")
    try:
        inference(lambda x: x + 1, opts)(torch.ones(1))
    finally:
        poptorch.setLogLevel("WARN")
    text = log()
    assert "[info] The session option outlineThreshold has no effect" in text
    assert "autoRecomputation" not in text and "enableStochasticRounding" not in text


def test_types_that_do_not_exist():
    refused(lambda x: torch.fft.rfft(x).cumprod(0).abs(), r"complex.* not supported \(.*test_poptorch_errors.py:\d+\)")


def test_session_options():
    """Those that programs set for hardware are known; a name with a slip is not."""
    opts = options()
    for key in ("disableGradAccumulationTensorStreams", "scheduleNonWeightUpdateGradientConsumersEarly",
                "subgraphCopyingStrategy", "accumulateOuterFragmentSettings.schedule", "decomposeGradSum"):
        opts._Popart.set(key, 1)
    assert inference(lambda x: x + 1, opts)(torch.ones(1)).item() == 2
    with pytest.raises(poptorch.Error, match="Unknown session option: decomposeGradSums, replicatedGraphCount"):
        slip = options()
        slip._Popart.set("decomposeGradSums", True).set("replicatedGraphCount", 2).set("enableOutlining", False)
        inference(lambda x: x + 1, slip)(torch.ones(1))


def test_lines_of_files_to_skip(tmp_path):
    (tmp_path / "helper_of_mine.py").write_text("def read(x):\n    return x.item()\n")
    scope = {}
    path = str(tmp_path / "helper_of_mine.py")
    exec(compile(open(path).read(), path, "exec"), scope)
    with pytest.raises(poptorch.Error, match=r"helper_of_mine\.py:2"):
        inference(lambda x: scope["read"](x))(torch.ones(1))
    with pytest.raises(poptorch.Error, match=r"test_poptorch_errors\.py:\d+"):
        inference(lambda x: scope["read"](x), options().appendToLocationExcludes("helper_of"))(torch.ones(1))


@pytest.mark.parametrize("where", ["stdout", "stderr", "file", "no/such/folder"])
def test_where_lines_of_the_layers_below_go(where, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("POPTORCH_LOG_DEST", where if where.startswith("std") else str(tmp_path / where))
    _logging.engineWarning("something")
    out, err = capsys.readouterr()
    file = tmp_path / where
    found = {"stdout": out, "stderr": err, "file": file.read_text() if file.exists() else ""}.get(where, err)
    assert found.endswith("W: something\n") and ("No such file" in err) == ("/" in where)
