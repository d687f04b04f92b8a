"""What machine types bring, where no machine of the type shows it: for launches and groups. Each is asked for once."""

import threading
from collections.abc import Iterable

from gpuwatch.clouds import CloudError
from gpuwatch.clouds.alibaba.places import Region
from gpuwatch.clouds.errors import reading

_NVIDIA = "NVIDIA"


class MachineTypes:
    """The GPUs of each type, by its name."""

    def __init__(self) -> None:
        """Nothing is known yet."""
        self._gpus: dict[str, tuple[int, bool]] = {}
        self._lock = threading.Lock()

    def has_gpus(self, place: Region, names: Iterable[str]) -> bool:
        """Whether any of these types has GPUs that the agent can read.

        Raises:
            CloudError: no answer.

        """
        return any((self.gpus(place, name) or (0, False))[0] > 0 for name in names)

    def gpus(self, place: Region, name: str) -> tuple[int, bool] | None:
        """How many GPUs a type has, and whether they are NVIDIA's; None: the region does not describe the type.

        Source: DescribeInstanceTypes, one type a call, because one unknown name fails a whole call.
        """
        with self._lock:
            if name in self._gpus:
                return self._gpus[name]
        call = "ecs:DescribeInstanceTypes"
        try:
            answer = place.reading.ask(call, {"InstanceTypes": [name]})
        except CloudError as error:
            if error.code.startswith("InvalidInstanceType"):
                return None
            raise
        with reading(place.reading.asked(call)):
            described = {each["InstanceTypeId"]: each for each in answer["InstanceTypes"]["InstanceType"]}
            if name not in described:
                return None
            found = gpus_of(described[name])
        with self._lock:
            self._gpus[name] = found
        return found


def gpus_of(described: dict[str, object]) -> tuple[int, bool]:
    """The GPUs that a type or a machine is described with; a slice of one counts as one.

    Alibaba writes a slice as GPUAmount 0 or 1 with the GPUSpec "NVIDIA A10*1/12".
    """
    spec = str(described.get("GPUSpec") or "")
    amount = int(float(str(described["GPUAmount"] or 0)))
    return max(amount, 1 if spec else 0), not spec or _NVIDIA in spec.upper()
