"""Where this process stands among those that `tessera run` (poprun) started together.

    import popdist
    import popdist.poptorch

    popdist.init()
    opts = popdist.poptorch.Options(ipus_per_replica=1)

All comes from the environment: poprun's POPDIST_* and mpirun's OMPI_COMM_WORLD_*. A script that is started
without a launcher is the only instance and has one replica.
"""

import functools
import os
from typing import Any, Callable, Iterable, Union


def _number(name: str, otherwise: int) -> int:
    text = os.environ.get(name, "")
    if not text:
        return otherwise
    try:
        return int(text)
    except ValueError:
        raise RuntimeError(f"{name} is {text!r} in the environment; the launcher makes it a number") from None


def isPopdistEnvSet() -> bool:
    """True when the script was started by the launcher."""
    return "POPDIST_NUM_TOTAL_REPLICAS" in os.environ


def init() -> None:
    """Check what the launcher says. The processes are connected when the first model is trained."""
    instances, replicas = getNumInstances(), getNumTotalReplicas()
    if not 0 <= getInstanceIndex() < instances:
        raise RuntimeError(f"This is instance {getInstanceIndex()} of {instances} by the environment")
    if replicas != instances * getNumLocalReplicas():
        raise RuntimeError(f"{replicas} replicas are not {getNumLocalReplicas()} in each of {instances} instances")


def getInstanceIndex() -> int:
    """The number of this process, from 0."""
    return _number("OMPI_COMM_WORLD_RANK", 0)


#: As mpi4py and horovod call it.
rank = getInstanceIndex


def getNumInstances() -> int:
    """How many processes there are."""
    return _number("OMPI_COMM_WORLD_SIZE", 1)


def getNumTotalReplicas() -> int:
    """Replicas of all processes together."""
    return _number("POPDIST_NUM_TOTAL_REPLICAS", getNumInstances())


def getNumLocalReplicas() -> int:
    """Replicas of this process."""
    return _number("POPDIST_NUM_LOCAL_REPLICAS", getNumTotalReplicas() // getNumInstances())


def getNumIpusPerReplica() -> int:
    """Devices of a replica."""
    return _number("POPDIST_NUM_IPUS_PER_REPLICA", 1)


def getReplicaIndexOffset() -> int:
    """The number of this process's first replica among all of them."""
    return _number("POPDIST_REPLICA_INDEX_OFFSET", getInstanceIndex() * getNumLocalReplicas())


def getLocalInstanceIndex() -> int:
    """The number of this process among those of its machine."""
    return _number("POPDIST_LOCAL_INSTANCE_INDEX", _number("OMPI_COMM_WORLD_LOCAL_RANK", 0))


def getDeviceId() -> int:
    """The first device of this process among those of its machine."""
    return getLocalInstanceIndex() * getNumLocalReplicas() * getNumIpusPerReplica()


def checkNumIpusPerReplica(num_ipus_per_replica: int) -> None:
    """A RuntimeError unless the launcher gave each replica so many devices."""
    if num_ipus_per_replica != getNumIpusPerReplica():
        raise RuntimeError(f"The model needs {num_ipus_per_replica} devices for a replica, and the launcher gave "
                           f"{getNumIpusPerReplica()}: start it with --ipus-per-replica {num_ipus_per_replica}")


def execute_on_instances(*instances: Union[int, Iterable[int]]) -> Callable:
    """A decorator: the function runs in these instances, and returns None in the others."""
    chosen = {i for item in instances for i in (item if isinstance(item, Iterable) else [item])}
    for i in chosen:
        if not 0 <= i < getNumInstances():
            raise ValueError(f"There is no instance {i}: there are {getNumInstances()}")

    def decorate(function: Callable) -> Callable:
        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs) if getInstanceIndex() in chosen else None
        return run
    return decorate
