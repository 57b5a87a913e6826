"""How many micro-batches a call takes and which of their results it returns."""

from typing import Any, List, Optional, Tuple

import torch

from .enums import CommGroupType, OutputMode
from .errors import check, createPoptorchError

_MODES = {OutputMode.Final: 1, OutputMode.All: 2, OutputMode.Sum: 3, OutputMode.EveryN: 4}


class Batching:
    """D, A, R and the output mode, and what the engine is asked for in their place.

    Where the engine cannot have replicas (see useReplicas), R of them are R times as many micro-batches of an
    update when training, and R times as many iterations otherwise; the sums are the same. Where the results of a
    mode then differ, the engine returns all of them and pick() chooses; so it does when everything is wanted for
    another reason.
    """

    def __init__(self, options: Any, training: bool) -> None:
        self.iterations = options.device_iterations
        self.accumulation = options.Training.gradient_accumulation if training else 1
        self.replicas = options.replication_factor
        self.mode = OutputMode(options.output_mode)
        self.period = options.output_return_period if self.mode == OutputMode.EveryN else 1
        self.total = self.iterations * self.accumulation * self.replicas
        self.groups = self.replicas // options.input_group_size
        self.passed = self.total // options.input_group_size
        self._of_replica = _groups(self.replicas, self.groups, options.input_cgt)
        self.all_results = False
        self.runs = 1    # of the engine in a call
        self.engine_mode = _MODES[self.mode]
        self._training = training
        self.useReplicas(True)

    def useReplicas(self, use: bool) -> None:
        """Let the engine have replicas, or compute them one after the other."""
        self.engine_replicas = self.replicas if use else 1
        more = self.replicas // self.engine_replicas
        self.engine_iterations = self.iterations // self.runs * (1 if self._training else more)
        self.engine_accumulation = self.accumulation * (more if self._training else 1)
        same = self.mode == OutputMode.All or (self.mode == OutputMode.EveryN and self._training)
        if more > 1 and not same:
            self.wantAll()

    def split(self) -> None:
        """One run of the engine for each iteration, so that somebody can look at what they leave behind."""
        self.runs = self.iterations
        self.wantAll()

    def times(self, times: List[Any]) -> List[Any]:
        """The engine's times as one for every micro-batch: its replicas work at the same time."""
        return [t for t in times for _ in range(self.engine_replicas)]

    def wantAll(self) -> None:
        """Let the engine return the results of every micro-batch."""
        self.engine_mode = _MODES[OutputMode.All]
        self.all_results = True

    def _chosen(self, mode: OutputMode, period: int) -> List[Tuple[int, int]]:
        """(iteration, accumulation) of the results that a mode returns; Sum: where the sums are complete."""
        if mode in (OutputMode.Final, OutputMode.Sum):
            return [(self.iterations - 1, self.accumulation - 1)]
        return [(d, a) for d in range(period - 1, self.iterations, period) for a in range(self.accumulation)]

    def microBatches(self) -> List[int]:
        """Of the micro-batches of a run, in order, those whose results are returned."""
        return [(d * self.accumulation + a) * self.replicas + r
                for d, a in self._chosen(self.mode, self.period) for r in range(self.replicas)]

    def slots(self) -> int:
        """Micro-batch results in what a call returns."""
        return self.replicas * len(self._chosen(self.mode, self.period))

    def returned(self, dims: Tuple[int, ...]) -> Tuple[int, ...]:
        """The shape in which a call returns an output that has these dims in a micro-batch."""
        return _stacked(self.slots(), dims)

    def engineShape(self, dims: Tuple[int, ...]) -> Tuple[int, ...]:
        """The shape of what the engine returns of an output that has these dims in a micro-batch."""
        return _stacked(self.total if self.all_results else self.slots(), dims)

    def pick(self, t: torch.Tensor, dims: Tuple[int, ...], mode: Optional[OutputMode] = None,
             period: int = 1) -> torch.Tensor:
        """Of the results of all micro-batches, those that the mode returns; by default the model's."""
        if mode is None:
            mode, period = self.mode, self.period
        parts = t.reshape(self.iterations, self.accumulation, self.replicas, *dims)
        if mode == OutputMode.Sum:
            parts = parts.sum((0, 1), dtype=t.dtype)
        else:
            parts = torch.stack([parts[d, a] for d, a in self._chosen(mode, period)])
        return parts.reshape(_stacked(parts.numel() // max(1, _count(dims)), dims))

    def pickState(self, values: List[torch.Tensor], mode: OutputMode, period: int) -> torch.Tensor:
        """Of a state, what the mode returns. It has these values before the first iteration and after each: it
        changes with the last micro-batch of one. All replicas have the same."""
        last = self.accumulation - 1
        if len(values) == 1:
            every = values[0].expand(self.total, *values[0].shape)
        else:
            every = torch.stack([values[d + (a == last)] for d in range(self.iterations)
                                 for a in range(self.accumulation)]).repeat_interleave(self.replicas, 0)
        return self.pick(every, tuple(values[0].shape), mode, period)

    def pickSums(self, t: torch.Tensor, dims: Tuple[int, ...], mode: OutputMode, period: int,
                 running: bool) -> torch.Tensor:
        """Of the gradients of all micro-batches, what has come together of them in an accumulator."""
        parts = t.reshape(self.iterations, self.accumulation, self.replicas, *dims).cumsum(1)
        if running:
            counts = torch.arange(1, self.accumulation + 1, dtype=t.dtype)
            parts = parts / counts.reshape(-1, *[1] * (len(dims) + 1))
        return self.pick(parts, dims, mode, period)

    def microBatch(self, name: str, t: torch.Tensor) -> torch.Tensor:
        """The first micro-batch of an argument, a copy."""
        if self.passed == 1:
            return t.detach().clone(memory_format=torch.contiguous_format)
        replicas = f"replicationFactor ({self.replicas})"
        if self.groups != self.replicas:
            replicas += f" / inputReplicaGrouping ({self.replicas // self.groups})"
        check(t.dim() > 0 and t.shape[0] % self.passed == 0,
              f"Invalid batch dimension: {name} has shape {tuple(t.shape)}, its first dimension must be a "
              f"multiple of {self.passed} = deviceIterations ({self.iterations}) x gradientAccumulation "
              f"({self.accumulation}) x {replicas}")
        rows = t.shape[0] // self.passed
        return t.detach()[:rows].clone(memory_format=torch.contiguous_format)

    def forReplicas(self, t: torch.Tensor) -> torch.Tensor:
        """An argument with the rows of each group once for every replica in it."""
        if self.groups == self.replicas:
            return t
        parts = t.reshape(self.passed // self.groups, self.groups, -1)
        return parts[:, self._of_replica].contiguous()


    def ofGroups(self, t: torch.Tensor) -> torch.Tensor:
        """The opposite of forReplicas(): of each group, what its first replica has."""
        if self.groups == self.replicas:
            return t
        first = [self._of_replica.index(g) for g in range(self.groups)]
        return t.reshape(self.passed // self.groups, self.replicas, -1)[:, first]


def _groups(replicas: int, groups: int, kind: CommGroupType) -> List[int]:
    """The group of each replica."""
    if kind == CommGroupType.Orthogonal:
        return [r % groups for r in range(replicas)]
    return [r // (replicas // groups) for r in range(replicas)]


def _count(dims: Tuple[int, ...]) -> int:
    return torch.Size(dims).numel()


def _stacked(slots: int, dims: Tuple[int, ...]) -> Tuple[int, ...]:
    if dims:
        return (slots * dims[0], *dims[1:])
    return (slots,) if slots > 1 else ()
