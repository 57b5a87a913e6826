"""What a file of PoplarExecutor.save() holds beside the executable."""

import dataclasses
from typing import Any, Optional

from . import _args, _core, _file


@dataclasses.dataclass
class PoptorchData:
    """The record of a saved model: PoptorchData.fromFile("model.poptorch").options."""

    version: str = _core.version
    executable_inputs: Any = None      #: (args, kwargs) like those it was compiled for
    options: Any = None
    training: Optional[bool] = None
    model: Any = None                  #: None: saved with export_model=False
    rng_state: Any = None
    optimizer: Any = None

    @staticmethod
    def fromFile(filename: str) -> "PoptorchData":
        """AssertionError for a file of another version, Error for one that save() did not write."""
        record = _file.read(filename)
        return PoptorchData(record["version"], _args.fromExamples(record["call"]), record["options"], record["training"],
                            record["model"], record["rng"], record["optimizer"])
