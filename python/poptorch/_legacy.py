"""Names inside of PopTorch's executor that published programs read, by what this one calls them."""

from typing import Any, Dict, Optional


class Names:
    """What PoplarExecutor inherits them from. They can be read only."""

    _program: Any
    _engine: Any
    _description: Any
    _stale: bool

    @property
    def _executable(self) -> Optional[Any]:
        """What was compiled, or None: programs ask `model._executable is None`."""
        return None if self._program is None else self._program.executable

    @property
    def _executable_inputs(self) -> Optional[Any]:
        """The arguments it was compiled for."""
        return None if self._program is None else self._program.arguments

    @property
    def _is_attached(self) -> bool:
        """isAttachedToDevice()."""
        return self._engine is not None

    @property
    def _dict_optimizer(self) -> Dict[str, Any]:
        """The optimizer as a dictionary: its kind, groups and values."""
        return self._description or {}

    @property
    def _dirty_host_weights(self) -> bool:
        """Have the weights changed on the device since they were read?"""
        return self._stale
