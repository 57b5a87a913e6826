"""What getPerfCounters() and the latencies are made of."""

from typing import Dict, List, Tuple

Counters = Dict[str, List[List[float]]]
NAMES = ("input", "input_complete", "output", "output_complete")


def counters(started: float, done: float, times: List[Tuple[float, float, float]], returned: List[int],
             inputs: int, outputs: int) -> Counters:
    """When each micro-batch's inputs were offered and taken, and its outputs ready and returned.

    The engine reads its inputs where they are, so taking them is one moment; the first ones are offered
    when the call begins, and the last outputs are returned when it ends.
    """
    taken = [t[0] for t in times]
    offered = [started, *taken[1:]]
    ready = [times[i][1] for i in returned]
    given = [*(times[i][2] for i in returned[:-1]), done]
    return {"input": [list(offered) for _ in range(inputs)], "input_complete": [list(taken) for _ in range(inputs)],
            "output": [list(ready) for _ in range(outputs)],
            "output_complete": [list(given) for _ in range(outputs)]}


def latency(c: Counters, first: str, last: str) -> Tuple[float, float, float]:
    """(least, most, mean) seconds from one event to another, step by step.

    With more steps of inputs than of outputs, a group of them leads to one output: its first counts.
    """
    if not any(c["output"]) or not any(c["input"]):
        return 0.0, 0.0, 0.0
    pick = max if first == "input_complete" else min
    start = [pick(step) for step in zip(*c[first])]
    end = [max(step) for step in zip(*c[last])]
    group = max(1, len(start) // len(end))
    start = [min(start[i * group:(i + 1) * group]) for i in range(len(end))]
    seconds = [b - a for a, b in zip(start, end)]
    return min(seconds), max(seconds), sum(seconds) / len(seconds)
