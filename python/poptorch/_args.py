"""Arguments and results of a model: nested tuples, lists, dicts, named tuples, dataclasses and registered types.

A structure is turned into a tree of _Leaf, _Constant and _Node once; later calls are matched against it,
and results are built from it. Matching is on the way of every call, so it does as little as it can.
"""

import dataclasses
import inspect
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import torch

from ._logging import logger
from .custom_arg import findParser
from .errors import check, createPoptorchError


class _Leaf:
    """A tensor, the index-th of its structure."""

    def __init__(self, index: int, tensor: torch.Tensor) -> None:
        self.index = index
        self.dtype = tensor.dtype
        self.shape = tensor.shape


class _Constant:
    """Anything else."""

    def __init__(self, value: Any) -> None:
        self.value = value


class _Node:
    """A container: `keys` of a dict, else None."""

    def __init__(self, kind: type, items: List[Any], keys: Optional[List] = None) -> None:
        self.kind = kind
        self.items = items
        self.keys = keys


class _Custom:
    """An object of a registered type."""

    def __init__(self, original: Any, parser: Any, items: List[_Leaf]) -> None:
        self.original = original
        self.parser = parser
        self.items = items


def _isNamedTuple(kind: type) -> bool:
    return issubclass(kind, tuple) and hasattr(kind, "_fields")


def flatten(value: Any, tensors: List[torch.Tensor]) -> Any:
    """The tree of a structure; its tensors are appended to `tensors`."""
    if isinstance(value, torch.Tensor):
        tensors.append(value)
        return _Leaf(len(tensors) - 1, value)
    parser = findParser(value)
    if parser is not None:
        return _Custom(value, parser, [flatten(t, tensors) for t in parser.yieldTensors(value)])
    if isinstance(value, (list, tuple)):
        return _Node(type(value), [flatten(v, tensors) for v in value])
    entries = _entries(value)
    if entries is not None:
        return _Node(type(value), [flatten(v, tensors) for v in entries.values()], list(entries))
    return _Constant(value)


def _entries(value: Any) -> Optional[Dict[Any, Any]]:
    """What a dict or a dataclass holds."""
    if isinstance(value, dict):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    return None


def _remade(kind: type, entries: Dict[Any, Any]) -> Any:
    """A dict or a dataclass, whatever its __init__ takes."""
    if issubclass(kind, dict):
        return kind(entries.items())
    made = object.__new__(kind)
    for name, value in entries.items():
        object.__setattr__(made, name, value)
    return made


def constants(tree: Any) -> Iterator[Any]:
    """What is in a tree and is no tensor."""
    if type(tree) is _Constant:
        yield tree.value
    for item in tree.items if type(tree) is _Node else ():
        yield from constants(item)


def rebuild(tree: Any, tensors: List[Any]) -> Any:
    """The structure of a tree, with these tensors."""
    kind = type(tree)
    if kind is _Leaf:
        return tensors[tree.index]
    if kind is _Constant:
        return tree.value
    if kind is _Custom:
        return tree.parser.reconstruct(tree.original, iter([tensors[i.index] for i in tree.items]))
    items = [rebuild(i, tensors) for i in tree.items]
    if tree.keys is not None:
        return _remade(tree.kind, dict(zip(tree.keys, items)))
    if tree.kind is list:
        return items
    return tree.kind(*items) if _isNamedTuple(tree.kind) else tree.kind(items)


def _mismatch(what: str, path: str, expected: Any, got: Any) -> Exception:
    return createPoptorchError(
        f"{what} mismatch for {path}: expected {expected} but got {got}. The model was compiled for other "
        "inputs: call destroy() on it, or wrap the module again")


def match(tree: Any, value: Any, path: str, tensors: List[torch.Tensor]) -> None:
    """Append the tensors of a structure that must be like the tree's; an Error says how it differs."""
    kind = type(tree)
    if kind is _Leaf:
        if not isinstance(value, torch.Tensor):
            raise _mismatch("Type", path, "torch.Tensor", type(value).__name__)
        if value.dtype is not tree.dtype:
            raise _mismatch("Data type", path, tree.dtype, value.dtype)
        if value.shape != tree.shape:
            raise _mismatch("Shape", path, tuple(tree.shape), tuple(value.shape))
        tensors.append(value)
    elif kind is _Constant:
        _matchConstant(tree.value, value, path)
    elif kind is _Custom:
        _matchCustom(tree, value, path, tensors)
    else:
        _matchNode(tree, value, path, tensors)


def _matchConstant(expected: Any, value: Any, path: str) -> None:
    if type(value) is not type(expected):
        raise _mismatch("Type", path, type(expected).__name__, type(value).__name__)
    if value is not expected and value != expected:
        raise _mismatch("Value", path, expected, value)


def _matchCustom(tree: _Custom, value: Any, path: str, tensors: List[torch.Tensor]) -> None:
    if type(value) is not type(tree.original):
        raise _mismatch("Type", path, type(tree.original).__name__, type(value).__name__)
    found = list(tree.parser.yieldTensors(value))
    if len(found) != len(tree.items):
        raise _mismatch("Length", path, len(tree.items), len(found))
    for i, (item, tensor) in enumerate(zip(tree.items, found)):
        match(item, tensor, f"{path}[{i}]", tensors)


def _matchNode(tree: _Node, value: Any, path: str, tensors: List[torch.Tensor]) -> None:
    if type(value) is not tree.kind:
        raise _mismatch("Type", path, tree.kind.__name__, type(value).__name__)
    if tree.keys is not None:
        entries = _entries(value) or {}
        if entries.keys() != set(tree.keys):
            raise _mismatch("Keys", path, sorted(map(str, tree.keys)), sorted(map(str, entries)))
        for key, item in zip(tree.keys, tree.items):
            match(item, entries[key], f"{path}[{key}]", tensors)
        return
    if len(value) != len(tree.items):
        raise _mismatch("Length", path, len(tree.items), len(value))
    for i, item in enumerate(tree.items):
        match(item, value[i], f"{path}[{i}]", tensors)


class Arguments:
    """The arguments of the first call: what later ones must be like, and how to call forward with them."""

    def __init__(self, forward: Callable, args: Tuple, kwargs: Dict[str, Any]) -> None:
        try:
            self.signature = inspect.signature(forward)
        except ValueError:
            raise createPoptorchError("The model's forward() has no signature, as that of a module that torch.jit "
                                      "compiled: wrap the module that it was made of") from None
        self.names = list(self.signature.parameters)
        bound = bind(self.signature, args, kwargs)
        self.count = len(args)
        self.keywords = set(kwargs)
        self.tensors: List[torch.Tensor] = []
        self.whole: Dict[int, torch.Tensor] = {}
        self.trees = {name: flatten(value, self.tensors) for name, value in bound.arguments.items()}
        self.leaves = [_Leaf(i, t) for i, t in enumerate(self.tensors)]
        # Calls with these many plain arguments need no binding: the common case.
        simple = all(p.kind is p.POSITIONAL_OR_KEYWORD for p in self.signature.parameters.values())
        self.positional = list(self.trees.items()) if simple and not kwargs else None
        if any(isinstance(v, dict) for v in (*args, *kwargs.values())):
            logger.warning("Dictionaries as arguments are only partly supported: their keys are fixed when "
                           "the model is compiled")

    def names_of_tensors(self) -> List[str]:
        """A name for each tensor, like x or x[1]."""
        out = [""] * len(self.tensors)

        def walk(tree: Any, path: str) -> None:
            if type(tree) is _Leaf:
                out[tree.index] = path
            elif type(tree) in (_Node, _Custom):
                keys = getattr(tree, "keys", None) or range(len(tree.items))
                for key, item in zip(keys, tree.items):
                    walk(item, f"{path}[{key}]")
        for name, tree in self.trees.items():
            walk(tree, name)
        return out

    def defaults(self) -> Dict[str, torch.Tensor]:
        """Copies of the tensors that forward has for arguments that were not given."""
        return {p.name: p.default.detach().clone() for p in self.signature.parameters.values()
                if isinstance(p.default, torch.Tensor) and p.name not in self.trees}

    def call(self, forward: Callable, tensors: List[torch.Tensor], defaults: Dict[str, torch.Tensor]) -> Any:
        """forward with other tensors in the same places."""
        bound = inspect.BoundArguments(self.signature, dict(defaults))    # type: ignore[arg-type]
        for name, tree in self.trees.items():
            bound.arguments[name] = rebuild(tree, tensors)
        return forward(*bound.args, **bound.kwargs)

    def forget(self, keep_whole: bool) -> None:
        """The first batch can go, the shapes stay; and whole numbers, when forward() has read some."""
        self.whole = {i: t.detach().clone() for i, t in enumerate(self.tensors) if keep_whole and not t.is_floating_point()}
        self.tensors = []

    def examples(self) -> Dict[str, Any]:
        """What a file keeps to make such arguments again: the structure, not the numbers, but those that forward() depends on."""
        return {"trees": self.trees, "leaves": [(leaf.dtype, tuple(leaf.shape)) for leaf in self.leaves], "whole": self.whole}

    def synthetic(self, mode: int, seed: int) -> List[torch.Tensor]:
        """Tensors like those of the first call, with zeros (mode 1), normal (2) or uniform (3) numbers. Whole
        numbers are 0: they may be classes or places, which others would not be."""
        generator = torch.Generator().manual_seed(seed)
        out = []
        for leaf in self.leaves:
            t = torch.zeros(leaf.shape)
            if leaf.dtype.is_floating_point and mode != 1:
                t = t.normal_(generator=generator) if mode == 2 else t.uniform_(generator=generator)
            out.append(t.to(leaf.dtype))
        return out

    def match(self, args: Tuple, kwargs: Dict[str, Any]) -> List[torch.Tensor]:
        """The tensors of a later call, which must be like the first."""
        tensors: List[torch.Tensor] = []
        if self.positional is not None and not kwargs and len(args) == self.count:
            for (name, tree), value in zip(self.positional, args):
                match(tree, value, name, tensors)
            return tensors
        found = bind(self.signature, args, kwargs).arguments
        if found.keys() != self.trees.keys():
            raise createPoptorchError(
                f"Number of positional arguments mismatch: expected {len(self.trees)} "
                f"({', '.join(self.trees)}) but got {len(found)} ({', '.join(found)}). Call destroy() on the "
                "model or wrap the module again to compile it for these")
        for name, tree in self.trees.items():
            match(tree, found[name], name, tensors)
        return tensors


def bind(signature: inspect.Signature, args: Tuple, kwargs: Dict[str, Any]) -> inspect.BoundArguments:
    """The arguments by the name of forward's parameters."""
    parameters = signature.parameters.values()
    if not any(p.kind is p.VAR_POSITIONAL for p in parameters):
        most = sum(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters)
        check(len(args) <= most, f"Too many arguments: forward takes {most}, got {len(args)}")
    if not any(p.kind is p.VAR_KEYWORD for p in parameters):
        for name in kwargs:
            check(name in signature.parameters, f"forward has no parameter called {name}")
    try:
        bound = signature.bind_partial(*args, **kwargs)
    except TypeError as e:
        raise AssertionError(f"Invalid arguments: {e}") from None
    for p in parameters:
        optional = p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) or p.default is not p.empty
        if p.name not in bound.arguments and not optional:
            raise createPoptorchError(f"Mandatory parameter {p.name} missing")
    return bound


def fromExamples(examples: Dict[str, Any]) -> Tuple[Tuple, Dict[str, Any]]:
    """Arguments like those of Arguments.examples(), all zero."""
    whole = examples.get("whole", {})
    tensors = [whole[i] if i in whole else torch.zeros(shape, dtype=dtype) for i, (dtype, shape) in enumerate(examples["leaves"])]
    return (), {name: rebuild(tree, tensors) for name, tree in examples["trees"].items()}
