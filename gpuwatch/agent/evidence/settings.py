"""What may be set about each signal of the host. `agent.settings` composes this as `agent.evidence`."""

from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

from annotated_types import Ge, Gt, Le, MaxLen, MinLen

from gpuwatch.model.duration import Seconds
from gpuwatch.model.setting import STRICT, Setting

_Text = Annotated[str, MinLen(1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceSourceSettings:
    """The settings that every signal has."""

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT

    enabled: Annotated[bool, Setting("false: it is not looked at, and says nothing.")] = True
    interval: Annotated[
        Seconds, Ge(0.1), Le(300), Setting("From look to look; not looked at for three of them, it is unknown.")
    ] = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSettings(EvidenceSourceSettings):
    """People at terminals: busy while one of them has typed lately."""

    interval: Annotated[
        Seconds, Ge(0.1), Le(300), Setting("From look to look; not looked at for three of them, it is unknown.")
    ] = 5.0
    silent_after: Annotated[
        Seconds, Ge(300), Setting("A session without input for less than this is a person at work: busy.")
    ] = 1800.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkSettings(EvidenceSourceSettings):
    """Programs of users, containers and jobs: busy while they work, occupied while one is alive."""

    busy_cores: Annotated[
        float,
        Gt(0),
        Le(1),
        Setting("People's programs together using more than this many CPU cores, over a minute, are busy."),
    ] = 0.025
    busy_bytes_per_second: Annotated[
        float, Gt(0), Le(1e8), Setting("People's programs reading and writing more than this together are busy.")
    ] = 50e3


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuProcessSettings(EvidenceSourceSettings):
    """CPU time of the processes that hold a GPU: they may compute there while the GPU waits."""

    busy_cores: Annotated[
        float, Gt(0), Le(1), Setting("All of them together using more than this many CPU cores are busy.")
    ] = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuSettings(EvidenceSourceSettings):
    """CPU time of the whole host: data being prepared, programs being built, models evaluated without a GPU."""

    busy_cores: Annotated[
        float, Gt(0), Le(4), Setting("All programs together using more than this many CPU cores are busy.")
    ] = 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskSettings(EvidenceSourceSettings):
    """Traffic of the local disks: data being prepared, checkpoints being written."""

    busy_bytes_per_second: Annotated[
        float, Gt(0), Le(1e8), Setting("More than this, read and written together, is busy.")
    ] = 5e6


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkSettings(EvidenceSourceSettings):
    """Traffic of the network cards: data sets coming, results going, requests being served."""

    busy_bytes_per_second: Annotated[
        float, Gt(0), Le(1e8), Setting("More than this, in and out together, is busy.")
    ] = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class RdmaSettings(EvidenceSourceSettings):
    """Traffic of RDMA ports (InfiniBand, EFA, RoCE): file systems and other nodes, past the network cards' counters."""

    busy_bytes_per_second: Annotated[
        float, Gt(0), Le(1e8), Setting("More than this, in and out together, is busy.")
    ] = 1e5


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionSettings(EvidenceSourceSettings):
    """TCP connections of people's programs with other hosts, and traffic of people's containers."""

    busy_bytes_per_second: Annotated[
        float, Gt(0), Le(1e8), Setting("More than this, in and out together, mean of a minute, is busy.")
    ] = 1000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelServerSettings:
    """Model servers that count their requests: vLLM, SGLang, TGI, Triton, llama.cpp, Ollama."""

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT

    endpoints: Annotated[
        dict[str, _Text],
        MaxLen(16),
        Setting(
            "Their pages by a name of your choice: http://127.0.0.1:8000/metrics, of Ollama /api/ps. Loopback alone."
        ),
    ] = field(default_factory=dict)
    discover: Annotated[
        bool,
        Setting(
            "Also read /metrics of people's vLLM, SGLang, TGI, TEI, Triton and llama.cpp on this host's network. "
            "Connections to a server that gets no requests are then monitoring, not use."
        ),
    ] = True
    interval: Annotated[
        Seconds, Ge(0.1), Le(300), Setting("From look to look; not looked at for three of them, it is unknown.")
    ] = 30.0
    silent_after: Annotated[
        Seconds, Ge(300), Setting("A server that was asked less than this ago is in use: busy.")
    ] = 1800.0

    @property
    def enabled(self) -> bool:
        """Whether a server is configured, or may be found."""
        return bool(self.endpoints) or self.discover


@dataclass(frozen=True, slots=True, kw_only=True)
class InhibitorSettings(EvidenceSourceSettings):
    """Programs that asked systemd not to shut down, sleep or fall idle (systemd-inhibit): busy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JupyterSettings(EvidenceSourceSettings):
    """Jupyter kernels that compute, or did lately, on servers found by their runtime files."""

    interval: Annotated[
        Seconds, Ge(0.1), Le(300), Setting("From look to look; not looked at for three of them, it is unknown.")
    ] = 30.0
    silent_after: Annotated[
        Seconds, Ge(300), Setting("A kernel is in use, so busy, for so long after its last activity.")
    ] = 1800.0
    runtime_dirs: Annotated[
        tuple[_Text, ...],
        Setting("Runtime folders besides the users' own; unlike those, one that cannot be read makes it unknown."),
    ] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmSettings(EvidenceSourceSettings):
    """Slurm jobs on this node, where slurmd or squeue is installed: busy."""

    interval: Annotated[
        Seconds,
        Ge(0.1),
        Le(300),
        Setting("From look to look; each asks the Slurm controller. After three missed ones it is unknown."),
    ] = 60.0
    node_name: Annotated[_Text | None, Setting("This node's name in Slurm; without it, the short host name.")] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledSettings(EvidenceSourceSettings):
    """Work that people queued for later (at, crontabs, systemd timers): busy until it has begun."""

    interval: Annotated[
        Seconds, Ge(0.1), Le(300), Setting("From look to look; not looked at for three of them, it is unknown.")
    ] = 60.0
    sources: Annotated[
        tuple[Literal["at", "cron", "timers", "user_timers", "events"], ...],
        Setting(
            "What is looked at: at and batch jobs, crontabs, the system's timers, users' own timers; what starts at an "
            "event: path and socket units, incron."
        ),
    ] = ("at", "cron", "timers", "user_timers", "events")
    horizon: Annotated[
        Seconds, Ge(0), Le(604800), Setting("Recurring work keeps the node from this long before it is due.")
    ] = 93600.0
    once_horizon: Annotated[
        Seconds,
        Ge(0),
        Le(31622400),
        Setting("Work that runs once keeps the node from this long before it is due; overdue, for as long."),
    ] = 604800.0
    min_period: Annotated[
        Seconds,
        Ge(0),
        Le(604800),
        Setting("Work that recurs sooner than this is housekeeping, and is judged by what its runs do."),
    ] = 21600.0
    ignored: Annotated[
        tuple[_Text, ...],
        Setting("Timers, by names with `*`, that are the machine's own although no package's folder holds them."),
    ] = ("snap.*",)


@dataclass(frozen=True, slots=True, kw_only=True)
class SnoozeSettings(EvidenceSourceSettings):
    """Snoozes that people take with `gpuwatch snooze 4h --reason …`: busy until they end."""

    interval: Annotated[
        Seconds, Ge(0.1), Le(300), Setting("From look to look; not looked at for three of them, it is unknown.")
    ] = 2.0
    directory: Annotated[
        _Text,
        Setting("Where snoozes lie; the agent makes it, with mode 1777, if it may. It must not outlive a reboot."),
    ] = "/run/gpuwatch/snoozes"
    max: Annotated[
        Seconds,
        Ge(3600),
        Setting("The longest snooze; a longer one ends as if it were that long. Renewing is possible."),
    ] = 86400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSettings(EvidenceSourceSettings):
    """What each pod with GPUs does by itself, by its control group, processes and network."""

    enabled: Annotated[
        bool,
        Setting("false: pods are not looked at one by one, and a machine's own signals keep all pods on it."),
    ] = True
    busy_cores: Annotated[
        float,
        Gt(0),
        Le(1),
        Setting("A pod using more than this many CPU cores over a minute, GPU processes aside, is busy."),
    ] = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalDiskSettings(EvidenceSourceSettings):
    """Whether local disks (EC2's instance store) hold anything that a stop would lose. It is no evidence of use."""

    enabled: Annotated[
        bool, Setting("false: they are not looked at, and count as used wherever the machine's type has them.")
    ] = True
    interval: Annotated[
        Seconds,
        Ge(0.1),
        Le(300),
        Setting("From look to look; each confirmation looks again. After three missed ones it is not known."),
    ] = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandSettings:
    """The administrator's own signal: exit status 0 is busy, 1 is idle, anything else is unknown."""

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT

    argv: Annotated[
        tuple[_Text, ...],
        Setting("Program and arguments, run without a shell and killed after `deadline`; empty: no command."),
    ] = ()
    interval: Annotated[
        Seconds, Ge(0.1), Le(300), Setting("From run to run; after three missed ones it is unknown.")
    ] = 60.0

    @property
    def enabled(self) -> bool:
        """Whether a command is configured."""
        return bool(self.argv)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceSettings:
    """What people and programs do on the host. Any busy signal makes the node busy; one that fails makes it unknown."""

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT

    enabled: Annotated[bool, Setting("false: the GPUs alone are judged. A person at work is then not seen.")] = True
    deadline: Annotated[Seconds, Ge(0.1), Le(300), Setting("A signal that takes longer to look at is unknown.")] = 5.0
    people: SessionSettings = field(default_factory=SessionSettings)
    processes: WorkSettings = field(default_factory=WorkSettings)
    gpu_process_cpu: GpuProcessSettings = field(default_factory=GpuProcessSettings)
    cpu: CpuSettings = field(default_factory=CpuSettings)
    disk: DiskSettings = field(default_factory=DiskSettings)
    network: NetworkSettings = field(default_factory=NetworkSettings)
    rdma: RdmaSettings = field(default_factory=RdmaSettings)
    connections: ConnectionSettings = field(default_factory=ConnectionSettings)
    model_servers: ModelServerSettings = field(default_factory=ModelServerSettings)
    inhibitors: InhibitorSettings = field(default_factory=InhibitorSettings)
    jupyter: JupyterSettings = field(default_factory=JupyterSettings)
    slurm: SlurmSettings = field(default_factory=SlurmSettings)
    scheduled: ScheduledSettings = field(default_factory=ScheduledSettings)
    snooze: SnoozeSettings = field(default_factory=SnoozeSettings)
    pods: PodSettings = field(default_factory=PodSettings)
    local_disks: LocalDiskSettings = field(default_factory=LocalDiskSettings)
    command: CommandSettings = field(default_factory=CommandSettings)
