"""PopTorch's name for the module of PoplarExecutor."""

from ._executor import PoplarExecutor  # noqa: F401
