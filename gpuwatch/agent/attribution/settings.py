"""The settings of the owners of GPU processes. `agent.settings` composes this as `agent.attribution`."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_types import MinLen

from gpuwatch.model.setting import STRICT, Setting


@dataclass(frozen=True, slots=True, kw_only=True)
class AttributionSettings:
    """Who uses the GPUs: user, container, pod, Slurm job and systemd unit of each process, each as its own series."""

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT

    enabled: Annotated[bool, Setting("false: owners are not looked up, and no series says who uses a GPU.")] = True
    user_names: Annotated[bool, Setting("false: the label `user` is left out everywhere.")] = True
    slurm_environment: Annotated[
        bool,
        Setting("Read only SLURM_JOB_ID from the environment of a process, if its cgroup names no job."),
    ] = True
    slurm_jobs: Annotated[
        bool,
        Setting(
            "Write a line to the log when a Slurm job that used GPUs is over: what it used "
            "(docs/slurm.md#what-a-finished-job-used)."
        ),
    ] = True
    proc: Annotated[str, MinLen(1), Setting("Where the host's /proc is mounted.")] = "/proc"
    pod_resources_socket: Annotated[
        str,
        MinLen(1),
        Setting("The kubelet's pod-resources socket, asked for pod names where it exists; or a file with its answer."),
    ] = "/var/lib/kubelet/pod-resources/kubelet.sock"
    pod_logs: Annotated[
        str, MinLen(1), Setting("The kubelet's folder of logs; the names in it show which pod an uid is.")
    ] = "/var/log/pods"
