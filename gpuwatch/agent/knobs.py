"""Every setting of the agent, with its bounds. `gpuwatch.settings` puts them into the configuration file."""

from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal

from annotated_types import Ge, Gt, Le, MinLen

from gpuwatch.agent.activity import ActivityRules
from gpuwatch.model.knobs import STRICT, Knob, Seconds

# A cycle may be this many intervals late, and its slowest GPU may use up its deadline, before values count as stale.
_LATE_INTERVALS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentKnobs:
    """One agent."""

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT

    host: Annotated[
        str, MinLen(1), Knob("Address to listen on. There is no authentication: keep beyond loopback to trusted nets.")
    ] = "127.0.0.1"
    port: Annotated[int, Ge(0), Le(65535), Knob("TCP port to listen on; 0 takes any free one.")] = 9460
    max_connections: Annotated[int, Ge(1), Le(10_000), Knob("Connections served at once; those beyond get 503.")] = 64
    connection_timeout: Annotated[
        Seconds, Gt(0), Le(300), Knob("A connection that completes no request within this time is closed.")
    ] = 20.0
    node_id: Annotated[
        str | None,
        Knob("The node's id in its cloud; without it, the EC2 instance id where there is one, else hostname."),
    ] = None
    interval: Annotated[Seconds, Ge(0.05), Le(60), Knob("Time from the start of one reading cycle to the next.")] = 1.0
    deadline: Annotated[
        Seconds, Ge(0.1), Le(300), Knob("A GPU not read within this time hangs: its probe is killed and replaced.")
    ] = 5.0
    start_deadline: Annotated[
        Seconds, Ge(0.5), Le(600), Knob("A fresh probe must say its first line within this time; drivers load slowly.")
    ] = 60.0
    restart_min: Annotated[
        Seconds, Ge(0.05), Le(60), Knob("Wait before a failed probe is replaced; doubles with each failure in a row.")
    ] = 1.0
    restart_max: Annotated[Seconds, Ge(0.05), Le(3600), Knob("The longest wait before a probe is replaced.")] = 60.0
    hung_retry: Annotated[
        Seconds, Gt(0), Le(86400), Knob("A GPU that hung is left alone this long; doubles with each further hang.")
    ] = 60.0
    source: Annotated[
        Literal["nvml", "simulated", "replay"],
        Knob("Where readings come from: the NVIDIA driver, a simulation, or a recorded probe stream."),
    ] = "nvml"
    script: Annotated[str | None, Knob("Load programme of the simulated source, a file.")] = None
    seed: Annotated[int, Ge(0), Knob("Seed of the simulated source.")] = 0
    capture: Annotated[str | None, Knob("Recorded probe stream that the replay source plays, a file.")] = None
    top_processes: Annotated[
        int, Ge(0), Le(1000), Knob("Largest GPU processes that get a series of their own, per GPU; the rest is summed.")
    ] = 16
    activity: ActivityRules = field(default_factory=ActivityRules)

    @property
    def stale_after_seconds(self) -> float:
        """The age at which the last cycle's values are no longer shown."""
        return _LATE_INTERVALS * self.interval + self.deadline
