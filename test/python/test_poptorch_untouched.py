"""Nothing of torch or numpy is left changed by a compile: a snapshot of both, slots of types included."""

import os
import subprocess
import sys

PROGRAM = r'''
import ctypes, os, sys, types
import numpy
import torch, torch.nn as nn, torch.nn.functional as F
import torch.utils.checkpoint
import poptorch

# Where a type has functions, as CPython lays it out: (offset, count) of those in itself, and its tables of numbers,
# sequences, mappings and coroutines.
OWN = [(48, 1), (64, 2), (88, 1), (120, 5), (184, 3), (216, 2), (264, 5), (312, 4)]
TABLES = [(80, 3), (96, 36), (104, 10), (112, 3)]


def words(address, count):
    return tuple((ctypes.c_size_t * count).from_address(address))


def slots(t):
    at = id(t)
    own = tuple(w for start, n in OWN for w in words(at + start, n))
    tables = tuple(words(words(at + start, 1)[0], n) if words(at + start, 1)[0] else None for start, n in TABLES)
    return own, tables


def snapshot():
    """{name: what it is}. Modules, functions and classes by identity, and what plain values are."""
    found = {}
    for name, module in sorted(sys.modules.items()):
        if not name.startswith(("torch", "numpy")) or not isinstance(module, types.ModuleType):
            continue
        for key, value in list(vars(module).items()):
            found[name, key] = value
            if isinstance(value, type) and (value.__module__ or "").startswith(("torch", "numpy")):
                found[name, key, "slots"] = slots(value)
                for k, v in list(vars(value).items()):
                    found[name, key, k] = v
    return found


def behaviour():
    a, x = torch.tensor(3.0), torch.arange(6.0)
    modes = torch._C._get_mkldnn_enabled(), torch.is_grad_enabled(), torch.get_default_dtype(), torch.get_num_threads()
    return [torch.tensor([a, a + 1]).tolist(), numpy.asarray(x)[1:3].tolist(), x[torch.tensor(1):4].tolist(),
            hasattr(type(a), "__getitem__"), isinstance(a, list), modes, len(torch.nn.modules.module._global_forward_hooks),
            len(torch.nn.modules.module._global_forward_pre_hooks), torch.overrides._get_current_function_mode()
            if hasattr(torch.overrides, "_get_current_function_mode") else None, numpy.geterr(), numpy.array([a, a]).tolist()]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.norm = nn.Linear(6, 6), nn.BatchNorm1d(6)
        self.encoder = nn.TransformerEncoderLayer(6, 2, 8, batch_first=True)
        self.rnn = nn.LSTM(6, 6, batch_first=True)

    def forward(self, x, i, t=None):
        y = torch.utils.checkpoint.checkpoint(lambda x: torch.tanh(self.fc(x)), x, use_reentrant=False)
        y = F.dropout(self.norm(y), 0.5, self.training) + x.view(4, 6)[i:i + 1]
        y = self.rnn(self.encoder(y.unsqueeze(0)))[0][0]
        return y if t is None else (y, F.cross_entropy(y, t, label_smoothing=0.1))


def work(fails):
    net = Net()
    options = poptorch.Options().showCompilationProgressBar(False)
    args = torch.randn(4, 6), torch.tensor(1)
    training = poptorch.trainingModel(net, options, poptorch.optim.Adam(net.parameters()))
    training(*args, torch.tensor([1, 0, 2, 5]))
    net.state_dict()
    training.destroy()
    poptorch.inferenceModel(net, options)(*args)
    if fails:    # what is taken must be given back then too
        try:
            poptorch.inferenceModel(lambda x: x if x.sum() > 0 else -x, options)(args[0])
            raise SystemExit("there should be an error")
        except poptorch.Error:
            pass


def changed(before, after):
    return [key for key, value in before.items() if key not in after or (after[key] is not value and (
        "slots" in key[2:] or callable(value) or isinstance(value, (type, property, staticmethod, classmethod)))
        and after[key] != value)]


work(True)    # what torch imports and looks up when it is first used
first, said = snapshot(), behaviour()
work(True)
second = snapshot()
assert behaviour() == said, (behaviour(), said)
assert not changed(first, second), changed(first, second)
print(len(first), "names")
'''

def run(program, environment):
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)


def test_torch_and_numpy_stay_as_they_were(build_dir):
    environment = {**os.environ, "PYTHONPATH": str(build_dir / "python"), "TESSERA_CC": "/nowhere/cc"}
    done = run(PROGRAM, environment)
    assert done.returncode == 0, done.stderr[-3000:]
    assert int(done.stdout.split()[0]) > 20000


def test_and_so_does_the_first_compile(build_dir):
    """The same with a snapshot from before anything was compiled: types, their members and their slots, but for
    those that torch fills in when it is first used."""
    first = PROGRAM.replace("work(True)    # what torch imports and looks up when it is first used", "")
    only = first.replace("first, said = snapshot(), behaviour()", "first, said = snapshot(), behaviour()\n"
                         "first = {k: v for k, v in first.items() if len(k) == 3\n"
                         "         and not k[0].startswith(('torch.compiler', 'torch._C._distributed'))}")
    environment = {**os.environ, "PYTHONPATH": str(build_dir / "python"), "TESSERA_CC": "/nowhere/cc"}
    done = run(only, environment)
    assert done.returncode == 0, done.stderr[-3000:]


def test_the_snapshot_sees_a_slot(build_dir):
    """What this package once did to torch.Tensor."""
    program = PROGRAM.replace("work(True)\nsecond", "torch.Tensor.__getitem__ = lambda x, i: x\n"
                              "del torch.Tensor.__getitem__\nsecond")
    environment = {**os.environ, "PYTHONPATH": str(build_dir / "python"), "TESSERA_CC": "/nowhere/cc"}
    program = program.replace("assert behaviour() == said", "assert True")
    assert "('torch', 'Tensor', 'slots')" in run(program, environment).stderr
