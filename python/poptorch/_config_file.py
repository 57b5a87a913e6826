"""Reads an options file: setter calls, one a line.

The lines look like Python and are parsed as such, but never executed: an options file is data that
travels with experiments, and must not be able to do more than set options. So a line is a call on the
options object, and arguments are made of literals, calls and names of the few things an option can need.
"""

import ast
import os
from typing import Any, Dict

import torch

from .errors import ConfigFileError


class _Names:
    """A module as the file sees it: attributes from a dictionary."""

    def __init__(self, name: str, values: Dict[str, Any]) -> None:
        self.__dict__.update(values)
        self._name = name

    def __getattr__(self, attr: str) -> Any:
        raise AttributeError(f"{self._name}.{attr} cannot be used in an options file")


_DTYPES = {name: value for name, value in vars(torch).items() if isinstance(value, torch.dtype)}


def applyFile(options: Any, path: str, poptorch_names: Dict[str, Any]) -> None:
    """Call on `options` what the file says. `poptorch_names` is what `poptorch.X` can be."""
    names = {"poptorch": _Names("poptorch", poptorch_names), "torch": _Names("torch", _DTYPES)}
    with open(path, encoding="utf-8") as f:
        for number, line in enumerate(f, 1):
            line = line.strip()
            if line and not line.startswith("#"):
                _applyLine(options, line, names, f"line {number} of {os.path.basename(path)}")


def _applyLine(options: Any, line: str, names: Dict[str, Any], where: str) -> None:
    try:
        tree = ast.parse(line, mode="eval").body
        if not isinstance(tree, ast.Call):
            raise SyntaxError("not a call of a setter")
        _checkNodes(tree)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as e:    # what the parser raises
        raise ConfigFileError(f"{type(e).__name__} at {where}: {e}\n> {line}") from e
    _call(tree, options, names)


_ALLOWED = (ast.Call, ast.Attribute, ast.Name, ast.Load, ast.Constant, ast.List, ast.Tuple, ast.Dict,
            ast.UnaryOp, ast.USub, ast.UAdd, ast.keyword)


def _checkNodes(tree: ast.AST) -> None:
    """Refuse whatever _value() below does not know."""
    for node in ast.walk(tree):
        if not isinstance(node, _ALLOWED):
            raise SyntaxError(f"{type(node).__name__} is not allowed here")
        if isinstance(node, ast.keyword) and node.arg is None:
            raise SyntaxError("** is not allowed here")
        if isinstance(node, ast.Dict) and None in node.keys:
            raise SyntaxError("** is not allowed here")
        name = getattr(node, "attr", getattr(node, "id", ""))
        if name.startswith("_") and name != "_Popart":
            raise SyntaxError(f"{name} is not allowed here")
        owner = getattr(node, "value", None) if isinstance(node, ast.Attribute) else None
        if owner is not None and not isinstance(owner, (ast.Attribute, ast.Call, ast.Name)):
            raise SyntaxError(f".{name} of a literal is not allowed here")


def _call(tree: ast.Call, root: Any, names: Dict[str, Any]) -> Any:
    """`root` is what a bare name is an attribute of; None inside of arguments."""
    function = _target(tree.func, root, names)
    args = [_value(a, names) for a in tree.args]
    return function(*args, **{str(k.arg): _value(k.value, names) for k in tree.keywords})


def _target(node: ast.AST, root: Any, names: Dict[str, Any]) -> Any:
    if isinstance(node, ast.Name):
        if root is not None:
            return getattr(root, node.id)
        if node.id not in names:
            raise NameError(f"name '{node.id}' is not defined")
        return names[node.id]
    if isinstance(node, ast.Attribute):
        return getattr(_target(node.value, root, names), node.attr)
    if isinstance(node, ast.Call):
        return _call(node, root, names)
    raise TypeError("only a name can be called")


def _value(node: ast.AST, names: Dict[str, Any]) -> Any:
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.List):
        return [_value(e, names) for e in node.elts]
    if isinstance(node, ast.Tuple):
        return tuple(_value(e, names) for e in node.elts)
    if isinstance(node, ast.Dict):
        return {_value(k, names): _value(v, names) for k, v in zip(node.keys, node.values) if k is not None}
    if isinstance(node, ast.UnaryOp):
        operand = _value(node.operand, names)
        return -operand if isinstance(node.op, ast.USub) else +operand
    return _target(node, None, names)
