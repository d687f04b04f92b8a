"""The parts that MIG has split a GPU into. Handles go stale and are reused, so the parts are listed in each cycle."""

from dataclasses import dataclass
from typing import Any

from gpuwatch.agent.devices.nvml.calls import Absence, Device, Table, Visit, Way
from gpuwatch.agent.devices.nvml.gpm import release
from gpuwatch.agent.devices.nvml.processes import compute_pids
from gpuwatch.agent.devices.plausible import impossible_sizes
from gpuwatch.model.mig import MigDevice, MigInstance

_ON = 1


@dataclass(frozen=True, slots=True)
class Mig(Way):
    """The GPU instances with their compute instances. One that fails makes the whole unknown."""

    table: Table  # what is read of each instance

    def value_for(self, visit: Visit) -> Any:  # noqa: ANN401  the row knows the type
        """The instances by id; NOTHING where MIG is off."""
        if visit.device.slow.get("mig_mode") != _ON:
            _keep_instances(visit.device, {})
            return Absence.NOTHING
        listed = _list_instances(visit)
        if isinstance(listed, Absence):
            return listed
        _keep_instances(visit.device, listed)
        return tuple(self._instance(visit, key, handles) for key, handles in sorted(listed.items(), key=_by_id))

    def _instance(self, visit: Visit, key: "_Key", handles: list[Any]) -> MigInstance:
        part = visit.device.parts[key]
        part.handle, part.parent = handles[0], visit.device.handle
        within = Visit(part, self.table, visit.now)
        values = within.read()
        visit.failure = visit.failure or within.failure
        wrong = impossible_sizes(values)
        values |= dict.fromkeys(wrong)
        visit.implausible |= within.implausible | wrong
        return MigInstance(
            id=key[0],
            devices=key[1],
            process_count=_count(part, handles, visit),
            activity_unsupported="gpm" in part.unsupported,
            **values,
        )


_Key = tuple[int, tuple[MigDevice, ...]]  # a GPU instance by its id, and what it consists of


def _by_id(item: tuple[_Key, Any]) -> int:
    return item[0][0]


def _count(part: Device, handles: list[Any], visit: Visit) -> int | None:
    """How many processes the compute instances of a GPU instance list, each through its own handle."""
    pids: set[int] = set()
    for handle in handles:
        within = Visit(Device(handle=handle, unsupported=part.unsupported), Table({}), visit.now)
        listed = compute_pids(within)
        if listed is None:
            return None
        pids |= listed
    return len(pids)


def _list_instances(visit: Visit) -> dict[_Key, list[Any]] | Absence:
    """The GPU instances there are, each with the handles of its compute instances; its memory is read through any."""
    count = visit.call("mig", "nvmlDeviceGetMaxMigDeviceCount")
    if isinstance(count, Absence):
        return Absence.FAILED
    devices: dict[int, tuple[MigDevice, ...]] = {}
    handles: dict[int, list[Any]] = {}
    for index in range(count):
        handle = visit.call("mig", "nvmlDeviceGetMigDeviceHandleByIndex", index)
        if handle is Absence.NOTHING:
            continue
        result = handle if isinstance(handle, Absence) else _identify_device(visit, handle)
        if isinstance(result, Absence):
            return Absence.FAILED
        instance, device = result
        devices[instance] = (*devices.get(instance, ()), device)
        handles.setdefault(instance, []).append(handle)
    return {(instance, parts): handles[instance] for instance, parts in devices.items()}


def _identify_device(visit: Visit, handle: Any) -> tuple[int, MigDevice] | Absence:  # noqa: ANN401  pynvml is untyped
    """What a handle stands for now; only the uuid is asked for where it is known already."""
    uuid = visit.ask("mig", "nvmlDeviceGetUUID", handle)
    if isinstance(uuid, Absence):
        return uuid
    for instance, devices in visit.device.parts:
        for device in devices:
            if device.uuid == uuid:
                return instance, device
    instance = visit.ask("mig", "nvmlDeviceGetGpuInstanceId", handle)
    compute = visit.ask("mig", "nvmlDeviceGetComputeInstanceId", handle)
    name = visit.ask("mig", "nvmlDeviceGetName", handle)
    if isinstance(instance, Absence) or isinstance(compute, Absence):
        return Absence.FAILED
    profile = None if isinstance(name, Absence) else name.rpartition("MIG ")[2]
    return instance, MigDevice(uuid=uuid, compute_instance=compute, profile=profile)


def _keep_instances(device: Device, listed: dict[_Key, Any]) -> None:
    """Remember these instances and no others. Which figures the GPU itself has depends on whether there are any."""
    if device.parts.keys() == listed.keys():
        return
    for key in device.parts.keys() - listed.keys():
        release(device.parts.pop(key))
    for key in listed.keys() - device.parts.keys():
        device.parts[key] = Device(instance=key[0])
    device.forget()
