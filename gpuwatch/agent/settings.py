"""The settings of the agent, with their bounds. `gpuwatch.config.settings` puts them into the configuration file."""

from dataclasses import dataclass, field
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Le, MinLen

from gpuwatch.agent.activity import ActivityRules
from gpuwatch.agent.attribution.settings import AttributionSettings
from gpuwatch.agent.before_stop_runs import BeforeStopSettings
from gpuwatch.agent.evidence.settings import EvidenceSettings
from gpuwatch.agent.health.verdict import HealthRules
from gpuwatch.agent.metadata.settings import MetadataSettings
from gpuwatch.agent.processes.patterns import ProcessPattern
from gpuwatch.model.duration import Seconds
from gpuwatch.model.metric import Chosen
from gpuwatch.model.setting import Setting
from gpuwatch.runtime.http.settings import ServerSettings

# A cycle may be this many intervals late, and its slowest GPU may use up its deadline, before values count as stale.
_LATE_INTERVALS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings(ServerSettings):
    """The settings of the agent."""

    port: Annotated[int, Ge(0), Le(65535), Setting("TCP port to listen on; 0 takes any free one.")] = 9460
    controller: Annotated[
        str | None,
        Setting("Where this agent renews its certificate; `gpuwatch agent join` writes it (docs/join.md)."),
    ] = None
    notice_users: Annotated[
        tuple[Annotated[str, MinLen(1)], ...],
        Setting(
            "Users (by password, or by their certificate's common name) who may send notices to terminals, have the "
            "commands before a stop run, and have the host powered off. Empty: every client that may read metrics."
        ),
    ] = ()
    control_socket: Annotated[
        str, MinLen(1), Setting("Unix socket for `gpuwatch agent release` and `acquire`; `none`: no socket.")
    ] = "/run/gpuwatch/agent.sock"
    wall: Annotated[
        bool,
        Setting(
            "Write notices with wall(1) to everybody who is logged in on a terminal "
            "(docs/notifications.md#on-the-hosts-terminals)."
        ),
    ] = True
    poweroff: Annotated[
        bool,
        Setting(
            "The controller may have this host powered off, by root's gpuwatch-poweroff.socket "
            "(docs/clouds/hosts-power.md)."
        ),
    ] = False
    node_id: Annotated[
        str | None,
        Setting("The node's id in its cloud; without it, the instance id of board or metadata, else the host name."),
    ] = None
    interval: Annotated[Seconds, Ge(0.05), Le(60), Setting("Time from the start of one reading cycle to the next.")] = (
        1.0
    )
    deadline: Annotated[
        Seconds, Ge(0.1), Le(300), Setting("A GPU not read within this time hangs: its probe is killed and replaced.")
    ] = 5.0
    late: Annotated[
        Seconds,
        Ge(0.1),
        Le(300),
        Setting("A GPU not read within this time is suspect: a second probe leaves it out, and takes over if faster."),
    ] = 1.5
    start_deadline: Annotated[
        Seconds,
        Ge(0.5),
        Le(600),
        Setting("A new probe must write its first line within this time; drivers load slowly."),
    ] = 60.0
    restart_min: Annotated[
        Seconds,
        Ge(0.05),
        Le(60),
        Setting("Wait before a failed probe is replaced; doubles with each failure in a row."),
    ] = 1.0
    restart_max: Annotated[Seconds, Ge(0.05), Le(3600), Setting("The longest wait before a probe is replaced.")] = 60.0
    hung_retry: Annotated[
        Seconds, Gt(0), Le(86400), Setting("A GPU that hung is not read for this long; doubles with each further hang.")
    ] = 60.0
    source: Annotated[
        Literal["auto", "nvml", "amdsmi", "both", "simulated", "replay"],
        Setting(
            "Where readings come from: the NVIDIA driver (nvml), AMD's (amdsmi), both, a simulation, or a recorded "
            "probe stream. auto: AMD's driver where there is no GPU of NVIDIA (docs/amd.md#which-driver-is-read)."
        ),
    ] = "auto"
    script: Annotated[str | None, Setting("File with the load profile of the simulated source.")] = None
    seed: Annotated[int, Ge(0), Setting("Seed of the simulated source.")] = 0
    capture: Annotated[str | None, Setting("File with the recorded probe stream that the replay source plays.")] = None
    top_processes: Annotated[
        int,
        Ge(0),
        Le(1000),
        Setting("Largest GPU processes that get a series of their own, per GPU; the rest is summed."),
    ] = 16
    compat: Annotated[
        tuple[Literal["dcgm", "nvidia_smi", "nvitop"], ...],
        Setting(
            "Other exporters: their metric names are served as well, for their dashboards (docs/compatibility.md)."
        ),
    ] = ()
    metrics: Annotated[
        tuple[Chosen, ...],
        Setting(
            "Groups of metrics on the page, and `default` or `all` for many; what no group shows is not read "
            "(docs/METRICS.md). `core` is always there."
        ),
    ] = ("default",)
    compat_only: Annotated[
        bool, Setting("Serve the names of `compat` alone: as many series as those exporters have, and none of ours.")
    ] = False
    kernel_log: Annotated[
        str, MinLen(1), Setting("Kernel log that is searched for GPU errors (XIDs); `none`: it is not read.")
    ] = "/dev/kmsg"
    health_file: Annotated[
        str,
        MinLen(1),
        Setting("File with the GPUs' health, for the next agent; `none`: health starts again at each start."),
    ] = "/run/gpuwatch/health.json"
    workloads: Annotated[
        tuple[ProcessPattern, ...],
        Setting(
            "Processes that are people's work, whatever the built-in rules say: unit:, program:, user: or slice: "
            "with a name, as in `unit:train-*.service`."
        ),
    ] = ()
    services: Annotated[
        tuple[ProcessPattern, ...],
        Setting("Processes that are the machine's own and never keep it, in the same form; `workloads` comes first."),
    ] = ()
    activity: ActivityRules = field(default_factory=ActivityRules)
    health: HealthRules = field(default_factory=HealthRules)
    evidence: EvidenceSettings = field(default_factory=EvidenceSettings)
    metadata: MetadataSettings = field(default_factory=MetadataSettings)
    attribution: AttributionSettings = field(default_factory=AttributionSettings)
    before_stop: BeforeStopSettings = field(default_factory=BeforeStopSettings)

    @property
    def reads_this_host(self) -> bool:
        """Whether readings are of this host's GPUs; other sources report GPUs and processes of another one."""
        return self.source not in {"simulated", "replay"}

    @property
    def stale_after_seconds(self) -> float:
        """The age at which the last cycle's values are no longer shown."""
        return _LATE_INTERVALS * self.interval + self.deadline


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentHandover:
    """The settings that an agent gets: its own section, and the form of its log lines."""

    agent: AgentSettings
    log_format: Literal["text", "json"]
