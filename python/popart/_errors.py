"""The errors of popart, and the one that names say which are not supported."""

from poptorch.errors import Error


class popart_exception(Error):
    """An error of the layer below PopTorch."""

    type = "popart_exception"


class popart_internal_exception(popart_exception):
    """One that is a bug of that layer."""

    type = "popart_internal_exception"


def unavailable(name: str) -> popart_exception:
    """The error for what builds or runs a model without PopTorch."""
    return popart_exception(f"popart.{name} is not supported: models are built, compiled and run with poptorch "
                            "(poptorch.trainingModel, poptorch.inferenceModel)")
