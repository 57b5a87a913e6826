"""Graphs of fixed size for torch_geometric, as compiled models need them."""

try:
    import torch_geometric as _  # noqa: F401
except ImportError as e:
    raise ImportError("poptorch_geometric needs the package torch_geometric, which is not installed") from e
