"""Operations that users write in C and C++: values, gradients, attributes, shapes and what goes wrong."""

import ctypes
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import poptorch
from poptorch import custom_ops
from poptorch_helpers import inference, nothing_cached, options, training    # noqa: F401

ROOT = Path(__file__).resolve().parents[2]

# (a * b * scale summed over the last dim, rows of a that index says), with a gradient; and others for errors.
SOURCE = r"""
#include <tessera/custom.h>
#include <string.h>
#include <stdio.h>

#define F(t) ((float *)(t).data)

static int check(ts_custom_call *c)
{
    const ts_custom_tensor *a = &c->inputs[0], *b = &c->inputs[1];

    if (c->ninputs == 3 && a->data == NULL && a->rank == 2 && b->count == a->count && c->inputs[2].type == TS_CUSTOM_TYPE_I64 &&
        c->outputs[0].dims[0] == a->dims[0])
        return 0;
    snprintf(c->error, sizeof(c->error), "%d inputs, the first of rank %d", c->ninputs, a->rank);
    return 1;
}

static int forward(ts_custom_call *c)
{
    int64_t rows = c->inputs[0].dims[0], n = c->inputs[0].dims[1];
    float scale = (float)ts_custom_find(c, "scale")->floats[0];
    const int64_t *at = (const int64_t *)c->inputs[2].data;

    for (int64_t i = 0; i < rows; i++) {
        F(c->outputs[0])[i] = 0;
        for (int64_t j = 0; j < n; j++)
            F(c->outputs[0])[i] += scale * F(c->inputs[0])[i * n + j] * F(c->inputs[1])[i * n + j];
    }
    for (int64_t i = 0; i < c->inputs[2].count; i++)
        memcpy(F(c->outputs[1]) + i * n, F(c->inputs[0]) + at[i] * n, sizeof(float) * (size_t)n);
    return 0;
}

static int gradient(ts_custom_call *c)
{
    int64_t rows = c->inputs[0].dims[0], n = c->inputs[0].dims[1];
    float scale = (float)ts_custom_find(c, "scale")->floats[0];
    const int64_t *at = (const int64_t *)c->inputs[2].data;

    if (c->noutputs != 3 || c->outputs[2].data != NULL)    /* whole numbers have none */
        return 1;
    for (int64_t i = 0; i < rows * n; i++) {
        F(c->outputs[0])[i] = scale * F(c->inputs[1])[i] * F(c->inputs[5])[i / n];
        F(c->outputs[1])[i] = scale * F(c->inputs[0])[i] * F(c->inputs[5])[i / n];
    }
    for (int64_t i = 0; i < c->inputs[2].count * n; i++)
        F(c->outputs[0])[at[i / n] * n + i % n] += F(c->inputs[6])[i];
    return 0;
}

static int echo(ts_custom_call *c)
{
    const ts_custom_attribute *a = ts_custom_find(c, "list"), *s = ts_custom_find(c, "word");

    for (int64_t i = 0; i < c->outputs[0].count; i++)
        F(c->outputs[0])[i] = i < a->count ? (float)a->ints[i] : (float)strlen(s->strings[0]);
    return ts_custom_find(c, "absent") != NULL;
}

static int broken(ts_custom_call *c)
{
    strcpy(c->error, "the moon is full");
    return c->ninputs;
}

TS_CUSTOM_OPS({"test", "Dot", 2, forward, gradient, check}, {"test", "Echo", 1, echo, NULL, NULL},
              {"test", "Broken", 1, broken, NULL, NULL})
"""


def dot(a, b, at, scale=0.5):
    return poptorch.custom_op([a, b, at], "Dot", "test", 2, [a.new_zeros(a.shape[0]), a.new_zeros((len(at), a.shape[1]))],
                              {"scale": scale})


def plain(a, b, at, scale=0.5):
    return (a * b).sum(1) * scale, a[at]


@pytest.fixture(autouse=True, params=["c", "cpp"])
def loaded(request, tmp_path, monkeypatch):
    monkeypatch.setattr(custom_ops, "_loaded", {})
    file = tmp_path / f"ops.{request.param}"
    file.write_text(SOURCE)
    assert custom_ops.load(file) == ["test.Dot", "test.Echo", "test.Broken"]


AT = torch.tensor([2, 0])


def test_values_on_the_host_and_on_the_device():
    a, b = torch.randn(4, 3), torch.randn(4, 3)
    for got in (dot(a, b, AT), inference(lambda a, b: dot(a.tanh().atanh(), b.T.contiguous().T, AT.to(a.device)))(a, b)):
        for x, y in zip(got, plain(a, b, AT)):
            torch.testing.assert_close(x, y, rtol=1e-4, atol=1e-5)


def test_gradients_for_pytorch():
    a, b = torch.randn(4, 3, requires_grad=True), torch.randn(4, 3, requires_grad=True)
    x, y = dot(a, b, AT)
    got = torch.autograd.grad((x.square().sum() + y.square().sum()), (a, b))
    x, y = plain(a, b, AT)
    for g, h in zip(got, torch.autograd.grad((x.square().sum() + y.square().sum()), (a, b))):
        torch.testing.assert_close(g, h)


class Net(torch.nn.Module):
    def __init__(self, op):
        super().__init__()
        torch.manual_seed(0)
        self.fc, self.w, self.op = torch.nn.Linear(3, 3), torch.nn.Parameter(torch.randn(4, 3)), op

    def forward(self, x):
        a, b = self.op(self.fc(x).tanh(), self.w, AT.to(x.device))
        return a, poptorch.identity_loss((a.square().sum() + b.sum()), "sum")


@pytest.mark.parametrize("iterations, accumulation", [(1, 1), (2, 3)])
def test_training_is_that_of_the_same_in_pytorch(iterations, accumulation):
    opts = options().deviceIterations(iterations)
    opts.Training.gradientAccumulation(accumulation)
    nets = [training(Net(op), opts, None) for op in (dot, plain)]
    for i in range(3):
        torch.manual_seed(i)
        x = torch.randn(4 * iterations * accumulation, 3)
        losses = [model(x)[1] for _, model in nets]
        torch.testing.assert_close(*losses, rtol=1e-4, atol=1e-5)
    for p, q in zip(nets[0][0].parameters(), nets[1][0].parameters()):
        torch.testing.assert_close(p.detach(), q.detach(), rtol=1e-4, atol=1e-5)


def test_one_of_two_results_is_used():
    class Second(Net):
        def forward(self, x):
            return poptorch.identity_loss(self.op(self.fc(x), self.w, AT.to(x.device))[1].square(), "sum")
    nets = [training(Second(op)) for op in (dot, plain)]
    for _, model in nets:
        model(torch.ones(4, 3))
    for p, q in zip(nets[0][0].parameters(), nets[1][0].parameters()):
        torch.testing.assert_close(p.detach(), q.detach())


def test_attributes():
    x = torch.zeros(4)

    def echo(x, attributes=None):
        return poptorch.custom_op([x], "Echo", "test", 1, [x], attributes or {"list": [3, 1], "word": "tree"})[0]
    assert inference(echo)(x).tolist() == echo(x).tolist() == [3, 1, 4, 4]
    for bad in ({"list": [1, 2.0]}, {1: 2}, {"word": "Bäume"}, {"list": []}, {"list": {}}, {"list": None}, [1], {"ä": 1}):
        with pytest.raises(ValueError, match="ttribute"):
            echo(x, bad)


def test_shapes_that_do_not_fit():
    with pytest.raises(poptorch.Error, match=r"Custom operation test.Dot version 2 .*check failed: 3 inputs, the first of rank 1"):
        inference(lambda x: poptorch.custom_op([x, x, AT.to(x.device)], "Dot", "test", 2, [x], {"scale": 1.0})[0])(torch.ones(3))


def test_what_goes_wrong_while_it_runs():
    def broken(x):
        return poptorch.custom_op([x], "Broken", "test", 1, [x])[0]
    for call in (broken, inference(broken)):
        with pytest.raises(poptorch.Error, match="test.Broken version 1 .*forward failed: the moon is full"):
            call(torch.ones(2))


def test_without_a_gradient():
    class Echoing(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.w = torch.nn.Parameter(torch.ones(2))

        def forward(self):
            y, = poptorch.custom_op([self.w], "Echo", "test", 1, [self.w], {"list": [1], "word": ""})
            return poptorch.identity_loss(y, "sum")
    with pytest.raises(poptorch.Error, match="host_call has no gradient"):
        training(Echoing())[1]()
    w = torch.ones(2, requires_grad=True)
    with pytest.raises(poptorch.Error, match="test.Echo version 1 .* has no gradient"):
        poptorch.custom_op([w], "Echo", "test", 1, [w], {"list": [1], "word": ""})[0].sum().backward()


def test_names_that_nobody_has():
    x = torch.ones(2)
    with pytest.raises(poptorch.Error, match=r"no operation test.Dot version 1 was loaded \(there are: test.Dot version 2, "):
        poptorch.custom_op([x], "Dot", "test", 1, [x])
    with pytest.raises(poptorch.Error, match="at least one input"):
        poptorch.custom_op([], "Dot", "test", 2, [x])
    with pytest.raises(poptorch.Error, match="torch.complex64"):
        poptorch.custom_op([x.to(torch.complex64)], "Dot", "test", 2, [x])
    with pytest.raises(poptorch.Error, match="use poptorch.custom_op"):
        torch.ops.poptorch.custom_operation([x], "Echo", "test", 1, 1, [x], "7")


def test_files_that_are_none(tmp_path):
    with pytest.raises(poptorch.Error, match="there is no /"):
        custom_ops.load(tmp_path / "absent.c")
    wrong = tmp_path / "wrong.c"
    wrong.write_text("int f(void) { return nothing; }")
    with pytest.raises(poptorch.Error, match="(?s)does not compile:.*wrong.c:1.*nothing"):
        custom_ops.load(wrong)
    wrong.write_text("int f(void) { return 1; }")
    with pytest.raises(poptorch.Error, match="has no ts_custom_ops"):
        custom_ops.load(wrong)
    text = tmp_path / "text.so"
    text.write_text("no library")
    with pytest.raises(poptorch.Error, match="cannot be loaded"):
        custom_ops.load(text)


def test_a_library_that_the_program_loads_is_found(tmp_path):
    source, library = tmp_path / "own.c", tmp_path / "libown.so"
    source.write_text(SOURCE.replace('"test"', '"own"'))
    subprocess.run(["cc", "-shared", "-fPIC", "-I", custom_ops.include(), source, "-o", library], check=True)
    ctypes.cdll.LoadLibrary(str(library))
    x = torch.ones(2)
    assert poptorch.custom_op([x], "Echo", "own", 1, [x], {"list": [5], "word": "a"})[0].tolist() == [5, 1]


def test_the_header_is_strict_c_and_cpp(tmp_path):
    file = tmp_path / "ops.c"
    file.write_text(SOURCE)
    for command in (["cc", "-std=c99"], ["c++", "-x", "c++", "-std=c++11"]):
        subprocess.run([*command, "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-I", custom_ops.include(), "-c", file, "-o",
                        tmp_path / "o"], check=True)


def test_the_example_of_the_manual(tmp_path):
    text = (ROOT / "doc/python.md").read_text()
    section = text[text.index("## Operations of your own"):]
    (tmp_path / "scaled.c").write_text(re.search(r"```c\n(.*?)```", section, re.S)[1])
    (tmp_path / "example.py").write_text(re.search(r"```python\n(.*?)```", section, re.S)[1])
    done = subprocess.run([sys.executable, "example.py"], cwd=tmp_path, text=True, stdout=subprocess.PIPE,
                          env={**os.environ, "PYTHONPATH": str(Path(poptorch.__file__).parents[1])}, check=True)
    assert "trained with ScaledCube" in done.stdout
