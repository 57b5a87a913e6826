"""PopTorch programs on Tessera: wrap a torch module, and its training step is compiled and run as a whole.

    model = poptorch.trainingModel(net, options=poptorch.Options(),
                                   optimizer=poptorch.optim.SGD(net.parameters(), lr=0.01))
    output, loss = model(images, labels)
"""

import faulthandler as _faulthandler
import os as _os

import torch as _torch

_MINIMUM = (1, 13)
_found = tuple(int(n) for n in _torch.__version__.split(".")[:2])
assert _found >= _MINIMUM, (f"poptorch needs torch {_MINIMUM[0]}.{_MINIMUM[1]} or later, "
                            f"found {_torch.__version__}")

_os.environ.setdefault("RDMAV_FORK_SAFE", "1")

try:
    from . import _core
except ImportError as _e:
    raise ImportError(f"poptorch's extension module cannot be loaded ({_e}); install the package with "
                      "`pip install .`, or build it with `make python` and put build/python on PYTHONPATH") from _e

from . import (_impl, _poplar_executor, _torch_ops, _utils, autocasting, custom_ops, enums, ops, optim, options,  # noqa: E402,F401
               poptorch_core, profiling, signatures)
from ._executor import (PoplarExecutor, inferenceModel, load, registerPostCompileHook,  # noqa: E402
                        registerPreCompileHook, trainingModel)
from ._poptorch_data import PoptorchData  # noqa: E402
from ._logging import installExceptHook as _installExceptHook, setLogLevel  # noqa: E402
from .autocasting import autocast  # noqa: E402
from .blocks import *  # noqa: E402,F401,F403
from .custom_arg import *  # noqa: E402,F401,F403
from .data import *  # noqa: E402,F401,F403
from .enums import *  # noqa: E402,F401,F403
from .errors import *  # noqa: E402,F401,F403
from .ops import *  # noqa: E402,F401,F403
from .options import Options, TensorLocationSettings  # noqa: E402

_faulthandler.enable()
_installExceptHook()
_torch_ops.install()

__version__ = _core.version
