"""What the engine option autoReport asks for, in <autoReport.directory>/<training | inference | Options.modelName>:

    plan.txt      at compile time: the tensors, the kernels, the memory of each device
    trace.json    what each device did when in the first runs, for chrome://tracing or Perfetto

The original writes profile.pop instead, which only its own viewer reads.
"""

import contextlib
import json
from pathlib import Path
from typing import Any, Dict, List, Optional

from . import _core
from .errors import createPoptorchError

_EVENTS = 100000
_RUNS = 2


def _asked(options: Dict[str, str], name: str) -> bool:
    return any(str(options.get(f"autoReport.{n}", "false")).lower() == "true" for n in ("all", name))


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    except OSError as e:
        raise createPoptorchError(f"The profile cannot be written: {e}: autoReport.directory and enableProfiling() "
                                  "say where to") from None


class Trace:
    """The first runs of an engine. Written after each of them, so that it is there however the program ends."""

    def __init__(self, path: Path, runs: int) -> None:
        self.path = path
        self.left = runs
        self._events: List[Dict[str, Any]] = []

    def before(self, engine: Any) -> None:
        """Of a run."""
        self._keep(engine, _EVENTS)

    def after(self, engine: Any) -> None:
        """Of a run."""
        events = engine.events()
        if not events:
            events = [(0, 0, 0, False, m, begun, end) for m, (begun, end, _) in enumerate(engine.times())]
        for replica, device, section, update, m, start, end in events:
            name = "weight update" if update else f"section {section}, micro-batch {m}"
            self._events.append({"name": name, "ph": "X", "pid": replica, "tid": device, "ts": 1e6 * start,
                                 "dur": 1e6 * (end - start)})
        self.left -= 1
        if not self.left:
            self._keep(engine, 0)
        _write(self.path, json.dumps({"traceEvents": self._events}))

    @staticmethod
    def _keep(engine: Any, events: int) -> None:
        with contextlib.suppress(_core.Error):    # one device without phases has the times of its micro-batches
            engine.trace(events)


def start(executable: Any, options: Any, training: bool) -> Optional[Trace]:
    """Write plan.txt, if asked for; the trace to keep, if there is to be one."""
    asked = options.engine_options
    name = options.model_name if options.exists("model_name") else "training" if training else "inference"
    folder = Path(asked.get("autoReport.directory", ".")) / name
    if _asked(asked, "outputGraphProfile"):
        _write(folder / "plan.txt", executable.inspect())
    runs = int(asked.get("autoReport.executionProfileProgramRunCount", _RUNS))
    return Trace(folder / "trace.json", runs) if _asked(asked, "outputExecutionProfile") and runs > 0 else None
