"""poptorch.Options for a process that poprun started: its place among the others is the launcher's to say."""

from typing import Any, Optional

import poptorch
import popdist
from poptorch.options import _DistributedOptions


def _refusal(name: str) -> RuntimeError:
    return RuntimeError(f"{name} cannot be called on popdist.poptorch.Options: the launcher has decided")


class _Distributed(_DistributedOptions):
    """Distributed, as the launcher has it."""

    def __init__(self) -> None:
        super(_DistributedOptions, self).__init__()    # not from mpirun's variables
        self._add(num_distributed_processes=popdist.getNumInstances(),
                  distributed_process_id=popdist.getInstanceIndex())

    def disable(self) -> Any:
        """Refused."""
        raise _refusal("Distributed.disable")

    def setEnvVarNames(self, var_num_processes: str, var_process_id: str) -> Any:
        """Refused."""
        raise _refusal("Distributed.setEnvVarNames")

    def configureProcessId(self, process_id: int, num_processes: int) -> Any:
        """Refused."""
        raise _refusal("Distributed.configureProcessId")


class Options(poptorch.Options):
    """Options with the replicas, process and device that the launcher chose.

        opts = popdist.poptorch.Options(ipus_per_replica=2)
    """

    def __init__(self, ipus_per_replica: Optional[int] = None) -> None:
        popdist.init()
        if ipus_per_replica is not None:
            popdist.checkNumIpusPerReplica(ipus_per_replica)
        super().__init__()
        self._ipus_per_replica = popdist.getNumIpusPerReplica()
        self._distributed = _Distributed()
        super().replicationFactor(popdist.getNumLocalReplicas())
        super().useIpuId(popdist.getDeviceId())

    @property
    def ipus_per_replica(self) -> int:
        """Devices of a replica."""
        return self._ipus_per_replica

    def replicationFactor(self, replication_factor: int) -> "Options":
        """Refused."""
        raise _refusal("replicationFactor")

    def useIpuId(self, ipu_id: int) -> "Options":
        """Refused."""
        raise _refusal("useIpuId")
