"""How a probe is started: its command line, and where the GPUs are that it must leave alone."""

from collections.abc import Iterable, Mapping, Sequence

from gpuwatch.agent.exporter.groups import groups_to_read
from gpuwatch.agent.settings import AgentSettings
from gpuwatch.model.gpu import GpuInfo
from gpuwatch.runtime.reexec import own_command


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
