"""How a probe is started: its command line, the GPUs that it must leave alone, and which one a probe fell silent at."""

from collections.abc import Iterable, Mapping, Sequence

from gpuwatch.agent.devices.messages import Step
from gpuwatch.agent.exporter.groups import groups_to_read
from gpuwatch.agent.settings import AgentSettings
from gpuwatch.model.gpu import GpuInfo
from gpuwatch.model.gpu_identity import STAND_IN
from gpuwatch.runtime.program import own_command


def probe_command(settings: AgentSettings) -> tuple[str, ...]:
    """The command line of the probe for these settings."""
    command = own_command("probe")
    command += [
        "--on-request",
        "--steps",
        "--source",
        settings.source,
        "--interval",
        str(settings.interval),
        "--seed",
        str(settings.seed),
        "--metrics",
        ",".join(sorted(groups_to_read(settings))),
    ]
    for flag, value in (("--script", settings.script), ("--capture", settings.capture)):
        if value is not None:
            command += [flag, value]
    return tuple(command)


def leaving_out(
    command: Sequence[str], uuids: Iterable[str], infos: Mapping[str, GpuInfo], *, careful: bool = False
) -> list[str]:
    """The command line of a probe that does not touch these GPUs; it learns where they and the others are.

    A `careful` one attaches no GPU when it opens the driver, and shows by its steps at which one it hangs.
    """
    left_out = list(uuids)
    flags = [part for uuid in left_out for part in ("--skip", uuid)]
    if left_out:
        placed = (info for info in infos.values() if info.index is not None or info.pci_bus_id)
        flags += [part for info in placed for part in ("--known", place(info))]
    return [*command, *flags, *(["--no-attach"] if careful else [])]


def place(info: GpuInfo) -> str:
    """A GPU as the probe's `--known` takes it."""
    return f"{info.uuid}={'' if info.index is None else info.index}={info.pci_bus_id or ''}"


def suspect(step: Step, expected: Mapping[str, GpuInfo]) -> GpuInfo | None:
    """The GPU of a step: one that was seen before, or a stand-in by its place; None for a step that is about none."""
    if step.what != "gpu":
        return None
    for info in expected.values():
        if step.uuid == info.uuid or (step.pci_bus_id is not None and step.pci_bus_id == info.pci_bus_id):
            return info
    if step.uuid is None and step.pci_bus_id is None:
        for info in expected.values():
            if info.index == step.index:
                return info
    place = step.index if step.pci_bus_id is None else step.pci_bus_id
    return GpuInfo(uuid=step.uuid or f"{STAND_IN}{place}", index=step.index, pci_bus_id=step.pci_bus_id)
