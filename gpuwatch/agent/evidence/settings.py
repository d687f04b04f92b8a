"""What may be set about each signal of the host. `agent.knobs` composes this as `agent.evidence`."""

from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from annotated_types import Ge, Gt, Le, MinLen

from gpuwatch.model.duration import Seconds
from gpuwatch.model.setting import STRICT, Knob

_Text = Annotated[str, MinLen(1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalKnobs:
    """What every signal has."""

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT

    enabled: Annotated[bool, Knob("false: it is not looked at, and says nothing.")] = True
    interval: Annotated[
        Seconds, Ge(0.1), Le(300), Knob("From look to look; not looked at for three of them, it is unknown.")
    ] = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PeopleKnobs(SignalKnobs):
    """People at terminals: busy while one of them has typed lately."""

    interval: Annotated[
        Seconds, Ge(0.1), Le(300), Knob("From look to look; not looked at for three of them, it is unknown.")
    ] = 5.0
    silent_after: Annotated[
        Seconds, Ge(300), Knob("A session without input for less than this is a person at work: busy.")
    ] = 1800.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessKnobs(SignalKnobs):
    """CPU time of the processes that hold a GPU: they may compute there while the GPU waits."""

    busy_cores: Annotated[
        float, Gt(0), Le(1), Knob("All of them together using more than this many CPU cores are busy.")
    ] = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuKnobs(SignalKnobs):
    """CPU time of the whole host: data being prepared, programs being built, models evaluated without a GPU."""

    busy_cores: Annotated[
        float, Gt(0), Le(4), Knob("All programs together using more than this many CPU cores are busy.")
    ] = 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskKnobs(SignalKnobs):
    """Traffic of the local disks: data being prepared, checkpoints being written."""

    busy_bytes_per_second: Annotated[
        float, Gt(0), Le(1e8), Knob("More than this, read and written together, is busy.")
    ] = 5e6


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkKnobs(SignalKnobs):
    """Traffic of the network cards: data sets coming, results going, requests being served."""

    busy_bytes_per_second: Annotated[float, Gt(0), Le(1e8), Knob("More than this, in and out together, is busy.")] = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class InhibitorKnobs(SignalKnobs):
    """Programs that asked systemd not to shut down, sleep or fall idle (systemd-inhibit): busy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JupyterKnobs(SignalKnobs):
    """Jupyter kernels that compute, or did lately, on servers found by their runtime files."""

    interval: Annotated[
        Seconds, Ge(0.1), Le(300), Knob("From look to look; not looked at for three of them, it is unknown.")
    ] = 30.0
    silent_after: Annotated[
        Seconds, Ge(300), Knob("A kernel whose last activity is less than this ago is in use: busy.")
    ] = 1800.0
    runtime_dirs: Annotated[
        tuple[_Text, ...],
        Knob("Runtime folders besides the users' own; unlike those, one that cannot be read makes it unknown."),
    ] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmKnobs(SignalKnobs):
    """Slurm jobs on this node, where slurmd or squeue is installed: busy."""

    interval: Annotated[
        Seconds,
        Ge(0.1),
        Le(300),
        Knob("From look to look; each asks the Slurm controller. After three missed ones it is unknown."),
    ] = 60.0
    node_name: Annotated[_Text | None, Knob("This node's name in Slurm; without it, the short host name.")] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepKnobs(SignalKnobs):
    """Leases that people take with `gpuwatch keep 4h --reason …`: busy until they end."""

    interval: Annotated[
        Seconds, Ge(0.1), Le(300), Knob("From look to look; not looked at for three of them, it is unknown.")
    ] = 2.0
    directory: Annotated[
        _Text, Knob("Where leases lie; the agent makes it, with mode 1777, if it may. It must not outlive a reboot.")
    ] = "/run/gpuwatch/leases"
    max: Annotated[
        Seconds, Ge(3600), Knob("The longest lease; a longer one ends as if it were that long. Renewing is possible.")
    ] = 86400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandKnobs:
    """The administrator's own signal: exit status 0 is busy, 1 is idle, anything else is unknown."""

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT

    argv: Annotated[
        tuple[_Text, ...],
        Knob("Program and arguments, run without a shell and killed after `deadline`; empty: there is none."),
    ] = ()
    interval: Annotated[Seconds, Ge(0.1), Le(300), Knob("From run to run; after three missed ones it is unknown.")] = (
        60.0
    )

    @property
    def enabled(self) -> bool:
        """Whether there is a command."""
        return bool(self.argv)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostKnobs:
    """What people and programs do on the host. Any busy signal makes the node busy; one that fails makes it unknown."""

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT

    enabled: Annotated[bool, Knob("false: the GPUs alone are judged. A person at work is then not seen.")] = True
    deadline: Annotated[Seconds, Ge(0.1), Le(300), Knob("A signal that takes longer to look at is unknown.")] = 5.0
    people: PeopleKnobs = field(default_factory=PeopleKnobs)
    gpu_process_cpu: ProcessKnobs = field(default_factory=ProcessKnobs)
    cpu: CpuKnobs = field(default_factory=CpuKnobs)
    disk: DiskKnobs = field(default_factory=DiskKnobs)
    network: NetworkKnobs = field(default_factory=NetworkKnobs)
    inhibitors: InhibitorKnobs = field(default_factory=InhibitorKnobs)
    jupyter: JupyterKnobs = field(default_factory=JupyterKnobs)
    slurm: SlurmKnobs = field(default_factory=SlurmKnobs)
    keep: KeepKnobs = field(default_factory=KeepKnobs)
    command: CommandKnobs = field(default_factory=CommandKnobs)
