"""The graph that a trace writes, and what is noted beside it.

A Record takes values, never tensors: `_lower` is the one place where an op becomes nodes. Each node gets the
user's line, the scope's name and the block it belongs to; each value the names of getTensorNames() and the losses
that it depends on. What is not supported is collected, so that one error can name all of it.
"""

import contextlib
import os
import sys
import types
from typing import Any, Dict, FrozenSet, Iterator, List, Optional, Sequence, Set, Tuple

import torch

from . import _core, _overlap, blocks
from ._logging import getLogLevel, logger
from .errors import Error, createPoptorchError

_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep
TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
_CONTEXTS = contextlib.__file__


#: Parts of the names of files that userLine() passes over: Options.sourceLocationExcludes of the trace that runs.
excluded: Sequence[str] = ()


def userLine() -> Tuple[str, int]:
    """The innermost line that is neither torch's nor ours, nor in an excluded file."""
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith((_HERE, TORCH, "<frozen")) and not any(e in name for e in excluded):
            return name, frame.f_lineno
        frame = frame.f_back
    return "?", 0


def shortened(e: Exception) -> Exception:
    """The exception without the frames of torch and of this package, of which there are a hundred: what is left is the program's
    own way to the line. With POPTORCH_LOG_LEVEL=DEBUG they stay."""
    return e if getLogLevel().startswith(("DEBUG", "TRACE")) else e.with_traceback(_ownFrames(e.__traceback__))


def _ownFrames(tb: Optional[types.TracebackType]) -> Optional[types.TracebackType]:
    if tb is None:
        return None
    rest = _ownFrames(tb.tb_next)
    if tb.tb_frame.f_code.co_filename.startswith((_HERE, TORCH, "<frozen", _CONTEXTS)):
        return rest
    return types.TracebackType(rest, tb.tb_frame, tb.tb_lasti, tb.tb_lineno)


def needsValue(what: str, drawn: bool = False) -> Exception:
    file, line = userLine()
    why = "forward() cannot branch on, print or convert what the device computes"
    if drawn:
        why = "it is a random number, another one in every run. Set the probability it is compared with (a layerdrop, say) to 0, " \
            "or call eval() on that module"
    return createPoptorchError(f"{what} is not known while the model is traced ({file}:{line}): {why}")


class SizeAsked(Error):
    """Raised inside the tracer where the number of elements that a computed mask chooses would have to be known."""


class Missing(Exception):
    """Raised inside the tracer for a call that cannot be lowered."""


def valuesIn(value: Any) -> Iterator[Any]:
    if isinstance(value, _core.Value):
        yield value
    elif isinstance(value, (list, tuple)):
        for v in value:
            yield from valuesIn(v)


class Record:
    """The graph, and its names, places, blocks and losses."""

    def __init__(self, name: str, options: Any) -> None:
        self.graph = _core.Graph(name)
        self.options = options
        self.overlap = _overlap.Overlap(options)
        self.names: Dict[str, Any] = {}         # values by the names of getTensorNames()
        self.convolutions: Optional[List[int]] = None    # of the MultiConv that is open
        self.missing: Dict[str, Tuple[str, int]] = {}
        self.losses: List[Any] = []
        self.demoted: Set[int] = set()
        self.asked: Set[int] = set()    # of the losses, those of identity_loss()
        self.placements: List[blocks.Placement] = []    # of the operations, where it changes
        # (device, phase): its blocks; what is in no block is on the first
        self.stages: Dict[Tuple[int, int], List[str]] = {(0, 0): []}
        self._recorder: Optional[blocks.Recorder] = None
        self._scopes: List[str] = []
        self._repeats: Dict[str, int] = {}
        self._feeds: Dict[int, FrozenSet[int]] = {}    # id of a value: the losses it depends on
        self._values: List[Any] = []                   # keeps those ids their own

    def named(self, name: str, value: Any) -> Any:
        """Give a value its name; the second of a name is name/1."""
        if name in self.names:
            n = self._repeats[name] = self._repeats.get(name, 0) + 1
            name = f"{name}/{n}"
        self.names[name] = value
        return value

    def beginScope(self, name: str) -> None:
        """Names of operations begin with name/ from here on."""
        self._scopes.append(name)
        self.graph.scope_begin(name)

    def endScope(self) -> None:
        """The end of beginScope()."""
        self._scopes.pop()
        self.graph.scope_end()

    # --- operations ---

    def _lower(self, op: str, spec: Tuple[str, Tuple[int, ...]], args: Tuple) -> List[Any]:
        self.graph.here(*userLine())
        self._enterBlock()
        self.overlap.read.update(map(id, valuesIn(args)))
        values = self.graph.lower(op, spec[0], spec[1], args)
        name = "/".join((*self._scopes, op.partition("::")[2].partition(".")[0]))
        for i, v in enumerate(values):
            if v is not None:
                self.named(f"{name}:{i}", self._tracked(v, args))
        if self.convolutions is not None and op.startswith("aten::convolution"):
            self._group(values[0], args)
        return list(values)

    def _tracked(self, value: Any, inputs: Any) -> Any:
        self._values.append(value)
        feeds: FrozenSet[int] = frozenset()
        for v in valuesIn(inputs):
            feeds |= self._feeds.get(id(v), frozenset())
        if feeds:
            self._feeds[id(value)] = feeds
        return value

    def _group(self, value: Any, args: Tuple) -> None:
        """A convolution in a MultiConv must not need another one's result. Those are marked with numbers
        below 0, which no loss has."""
        feeds = frozenset().union(*(self._feeds.get(id(v), frozenset()) for v in valuesIn(args)))
        if feeds & set(self.convolutions):    # type: ignore[arg-type]
            raise createPoptorchError("The convolutions in a poptorch.MultiConv must not depend on each other")
        mark = -1 - len(self._values)
        self.convolutions.append(mark)    # type: ignore[union-attr]
        self._feeds[id(value)] = feeds | {mark}

    def _enterBlock(self) -> None:
        if self._recorder is None:
            return
        place, last = self._recorder.place(), self.placements[-1] if self.placements else None
        if place == last:
            return
        if last is not None and last.block is not None:
            self.graph.block_end()
        if place.block is not None:
            self.graph.block_begin(self._graphBlock(place.block, (place.ipu, place.phase)))
        self.placements.append(place)

    def _graphBlock(self, name: str, place: Tuple[int, int]) -> str:
        """A block's name in the graph, noted for its device and phase. One that comes again on another device is
        two blocks there."""
        if any(name in names for other, names in self.stages.items() if other != place):
            name = f"{name} on {place[0]}"
        names = self.stages.setdefault(place, [])
        if name not in names:
            names.append(name)
        return name

    def numPipelineStages(self) -> int:
        """Of the operations so far."""
        return self._recorder.numPipelineStages(self.placements) if self._recorder is not None else 1

    # --- losses ---

    def _addLoss(self, value: Any, asked: bool = False) -> None:
        self.named("loss", value)
        if asked:
            self.asked.add(len(self.losses))
        before = self._feeds.get(id(value), frozenset())
        self.demoted |= before
        self._feeds[id(value)] = before | {len(self.losses)}
        self.losses.append(value)

    def standing(self) -> List[int]:
        """The losses that feed no other."""
        return [k for k in range(len(self.losses)) if k not in self.demoted]

    def theLoss(self) -> Any:
        """The one loss that feeds no other."""
        left = [self.losses[k] for k in self.standing()]
        if not left:
            raise createPoptorchError("Couldn't find a loss in graph! A training model's forward() must "
                                      "compute one: return it first, or wrap it in poptorch.identity_loss")
        if len(left) > 1:
            raise createPoptorchError("Multiple independent losses found in graph: wrap the final loss in "
                                      "poptorch.identity_loss, e.g. identity_loss(a + b, reduction='sum')")
        return left[0]

    # --- complaints ---

    def _note(self, why: str) -> None:
        self.missing.setdefault(why, userLine())

    def checkMissing(self) -> None:
        """An Error that names everything that is not supported."""
        if not self.missing:
            return
        lines = [f"  {why}  ({file}:{line})" for why, (file, line) in sorted(self.missing.items())]
        raise createPoptorchError("The model uses operations that are not supported:\n" + "\n".join(lines))

    def warn(self, message: str) -> None:
        """Log it, and stop after Options.maxRepeatLogs() of the same."""
        n = self._repeats[message] = self._repeats.get(message, 0) + 1
        if n <= self.options.max_repeat_logs:
            logger.warning("%s", message)
