"""torch.inference_mode() in a model's forward(), which a trace cannot follow: its tensors have no versions, and views in it do
not know what they are views of. While a trace is going on it is torch.no_grad(), which computes the same."""

import contextlib
from typing import Any, Iterator

import torch

_MODE = torch.inference_mode


def _enter(self: Any) -> None:
    self._poptorch_grad = torch.is_grad_enabled()
    torch.set_grad_enabled(self._poptorch_grad and not self.mode)


def _exit(self: Any, *exc: Any) -> None:
    torch.set_grad_enabled(self.__dict__.pop("_poptorch_grad"))


@contextlib.contextmanager
def withoutInferenceMode() -> Iterator[None]:
    """For a trace. What is decorated with the mode enters it through the same methods."""
    saved = _MODE.__enter__, _MODE.__exit__
    _MODE.__enter__, _MODE.__exit__ = _enter, _exit    # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        _MODE.__enter__, _MODE.__exit__ = saved    # type: ignore[method-assign]
