"""Random numbers that forward() draws on the host.

Those of torch are drawn by the device, in every run, but for a few distributions (_trace.py tells of them). Those of Python and of
numpy are drawn while the model is traced, once, and what is made of them is the same in every run: that has to be said. A draw changes its
generator. So the states are compared of all generators in sight: the two that everybody shares, and those that modules and the functions of
forward() hold. One that forward() makes anew, without a seed, asks the system for numbers.
"""

import contextlib
import functools
import inspect
import random
import sys
from typing import Any, Callable, Dict, Iterator, List, Set, Tuple

import torch


@functools.lru_cache(None)
def mayDraw(func: Any) -> bool:
    """Has this op of PyTorch a use for a generator?"""
    return any(tag.name == "nondeterministic_seeded" for tag in func.tags)


def _kinds() -> Tuple[type, ...]:
    numpy = sys.modules.get("numpy")
    return (random.Random, *((numpy.random.Generator, numpy.random.RandomState) if numpy is not None else ()))    # type: ignore


def _shared() -> Iterator[Tuple[str, Any]]:
    yield "random", random.random.__self__    # type: ignore[attr-defined]
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        yield "numpy.random", numpy.random.mtrand._rand    # type: ignore[attr-defined]


def _held(model: torch.nn.Module) -> Iterator[Tuple[str, Any]]:
    """What modules have for attributes, and their forward() for globals and closures."""
    seen: Set[int] = set()
    for module in model.modules():
        for name, value in vars(module).items():
            yield f"{type(module).__name__}.{name}", value
        function = inspect.unwrap(getattr(module.forward, "__func__", module.forward))
        yield from _enclosed(function)
        names = getattr(function, "__globals__", {})
        if id(names) not in seen:
            seen.add(id(names))
            yield from names.items()


def _enclosed(function: Any) -> Iterator[Tuple[str, Any]]:
    cells = getattr(function, "__closure__", None) or ()
    for name, cell in zip(function.__code__.co_freevars if cells else (), cells):
        with contextlib.suppress(ValueError):    # one that holds nothing yet
            yield name, cell.cell_contents


def _state(generator: Any) -> Any:
    if isinstance(generator, random.SystemRandom):
        return None    # has none; it asks the system
    if isinstance(generator, random.Random):
        return generator.getstate()
    bits = getattr(generator, "bit_generator", None)
    return repr(bits.state if bits is not None else [v.tobytes() if hasattr(v, "tobytes") else v for v in generator.get_state()])


def _states(model: torch.nn.Module) -> List[Tuple[str, Any, Any]]:
    kinds = _kinds()
    found: Dict[int, Tuple[str, Any]] = {}
    for name, value in (*_shared(), *_held(model)):
        if issubclass(type(value), kinds):    # asks nothing of the value
            found.setdefault(id(value), (name, value))
    return [(name, generator, _state(generator)) for name, generator in found.values()]


@contextlib.contextmanager
def told(model: torch.nn.Module, warn: Callable[[str], None]) -> Iterator[None]:
    """Tell of what is drawn in here."""
    before, ask, asked = _states(model), random._urandom, []    # type: ignore[attr-defined]

    def noted(size: int) -> bytes:
        asked.append("a generator without a seed")
        return ask(size)
    random._urandom = noted    # type: ignore[attr-defined]
    try:
        yield
    finally:
        random._urandom = ask    # type: ignore[attr-defined]
    drawn = [name for name, generator, state in before if _state(generator) != state] + asked[:1]
    if drawn:
        warn(f"forward() has drawn random numbers on the host, with {', '.join(drawn)}: what it made of them is the same in every "
             "run. Draw them with torch, or before the call")
