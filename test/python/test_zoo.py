"""The models people bring that Debian has the library of; test/zoo/models.py has the others, and `make soak` runs them."""

import importlib.util
import os
import pathlib

import pytest

ROOT = pathlib.Path(os.environ.get("TS_SOURCE_ROOT", pathlib.Path(__file__).parents[2]))


def zoo():
    spec = importlib.util.spec_from_file_location("models", ROOT / "test" / "zoo" / "models.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["tv-vit", "tv-swin", "tv-convnext"])
def test_models(name, monkeypatch):
    """Five steps: losses within 1e-4 of PyTorch's, updates within 1e-3."""
    monkeypatch.setenv("TESSERA_CACHE_DIR", "")
    models = zoo()
    try:
        loss, update, _ = models.compare(name)
    except models.Missing as e:
        pytest.skip(str(e))
    assert loss <= models.LOSS_LIMIT and update <= models.UPDATE_LIMIT


def test_a_model_that_is_wrong_is_told(monkeypatch, capsys):
    """One that trains with another learning rate than PyTorch."""
    import torch

    class Net(torch.nn.Linear):
        def forward(self, x):
            return super().forward(x).square().mean()
    models = zoo()
    models.model("none", "line", lambda: (Net(3, 2), {"x": torch.ones(2, 3)}))
    assert models.row("line", "sgd", 2)[0]
    rates = iter([0.1, 0.2])
    models.OPTIMIZERS["sgd"] = lambda p: torch.optim.SGD(p, lr=next(rates))
    ok, line = models.row("line", "sgd", 2)
    assert not ok and line.endswith("WRONG")
    models.model("none", "broken", lambda: 1 // 0)
    assert models.row("broken", "sgd", 2) == (False, "ZeroDivisionError: integer division or modulo by zero")
