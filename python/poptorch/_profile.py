"""What the engine option autoReport, or PVTI_OPTIONS, asks for, in <autoReport.directory>/<training | inference | Options.modelName>:

    profile.db    what the program is, written at compile time, and what its kernels took in the first runs
    trace.json    the same times, for Perfetto and chrome://tracing
    plan.txt      the tensors, the kernels, the memory of each device

The library writes the first two; poptorch.profiling.openReport() reads the database. The original writes profile.pop
instead, which only its own viewer reads.
"""

from pathlib import Path
from typing import Any, Dict, Optional

from . import _core, profiling
from .errors import createPoptorchError

_RUNS = 2
_PARTS = ("all", "outputGraphProfile", "outputExecutionProfile")


def _asked(options: Dict[str, str], *names: str) -> bool:
    return any(str(options.get(f"autoReport.{n}", "false")).lower() == "true" for n in names)


def _engine(options: Any) -> Dict[str, str]:
    """The engine's options. A trace of the host (PVTI_OPTIONS) has the program's beside it, in the same folder."""
    asked = options.engine_options
    if _asked(asked, *_PARTS) or not profiling.enabled() or not _core.profiles:
        return asked
    return {**asked, "autoReport.outputExecutionProfile": "true", "autoReport.directory": profiling._folder()}


def _runs(options: Dict[str, str]) -> int:
    """That are timed."""
    return int(options.get("autoReport.executionProfileProgramRunCount", _RUNS))


def folder(options: Any, training: bool) -> Optional[Path]:
    """Where the profile goes, if one is asked for; the first of several processes makes it."""
    asked = _engine(options)
    if not _asked(asked, *_PARTS) or options.Distributed.processId != 0:
        return None
    name = options.model_name if options.exists("model_name") else "training" if training else "inference"
    return Path(asked.get("autoReport.directory", ".")) / name


def compileOptions(options: Any, training: bool) -> Dict[str, Any]:
    """What _core.compile takes."""
    where = folder(options, training)
    return {} if where is None else {"profile": str(where), "profile_calls": max(1, _runs(_engine(options)))}


def times(options: Any) -> bool:
    """Will the first runs be timed?"""
    asked = _engine(options)
    return _asked(asked, "all", "outputExecutionProfile") and _runs(asked) > 0


def start(executable: Any, engine: Any, options: Any, training: bool) -> bool:
    """Write plan.txt, if asked for; and time the runs to come, or not."""
    where = folder(options, training)
    if where is None:
        return False
    asked = _engine(options)
    if _asked(asked, "all", "outputGraphProfile"):
        try:
            where.mkdir(parents=True, exist_ok=True)
            (where / "plan.txt").write_text(executable.inspect())
        except OSError as e:
            raise createPoptorchError(f"The profile cannot be written: {e}: autoReport.directory and "
                                      "enableProfiling() say where to") from None
    if times(options):
        profiling._follow(engine)
        return True
    engine.profile()
    return False
