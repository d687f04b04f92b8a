"""agent/attribution/cgroup.py: what /proc/PID/cgroup tells, line by line as runtimes and schedulers write it."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.agent.attribution.cgroup import Placement, parse_cgroup

ID = "4c01db0b339c4cc1b7de4a2b0f1c8a9d5e6f7a8b9c0d1e2f3a4b5c6d7e8f9a0b"
OUTER = "f" * 64
SHORT = ID[:12]
UID = "2d2ac6b4-4e3b-4f2a-9d5c-0c1b2a3d4e5f"
UID_ = UID.replace("-", "_")
STATIC = "0123456789abcdef0123456789abcdef"

PATHS: dict[str, tuple[str, Placement]] = {
    "root of the tree": ("0::/", Placement()),
    "docker, cgroup v1": (f"5:devices:/docker/{ID}", Placement(container_id=SHORT)),
    "docker, cgroup v2 with systemd": (f"0::/system.slice/docker-{ID}.scope", Placement(container_id=SHORT)),
    "docker, cgroup v2 with cgroupfs": (f"0::/docker/{ID}", Placement(container_id=SHORT)),
    "containerd of nerdctl": (f"0::/system.slice/nerdctl-{ID}.scope", Placement(container_id=SHORT)),
    "containerd by itself": (f"0::/default/{ID}", Placement(container_id=SHORT)),
    "an ECS task": (f"4:memory:/ecs/{STATIC}/{ID}", Placement(container_id=SHORT)),
    "podman as root": (f"0::/machine.slice/libpod-{ID}.scope/container", Placement(container_id=SHORT)),
    "podman of a user": (
        f"0::/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{ID}.scope/container",
        Placement(systemd_unit="user@1000.service"),
    ),
    "podman's monitor is no container": (f"0::/machine.slice/libpod-conmon-{ID}.scope", Placement()),
    "CRI-O": (
        f"0::/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{UID_}.slice/crio-{ID}.scope",
        Placement(container_id=SHORT, pod_uid=UID),
    ),
    "CRI-O's monitor is in the pod, but no container": (
        f"0::/kubepods.slice/kubepods-pod{UID_}.slice/crio-conmon-{ID}.scope",
        Placement(pod_uid=UID),
    ),
    "containerd, systemd driver": (
        f"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UID_}.slice/cri-containerd-{ID}.scope",
        Placement(container_id=SHORT, pod_uid=UID),
    ),
    "containerd, systemd driver, guaranteed": (
        f"0::/kubepods.slice/kubepods-pod{UID_}.slice/cri-containerd-{ID}.scope",
        Placement(container_id=SHORT, pod_uid=UID),
    ),
    "containerd, systemd slices under cgroupfs": (
        f"3:cpuset:/system.slice/containerd.service/kubepods-burstable-pod{UID_}.slice:cri-containerd:{ID}",
        Placement(container_id=SHORT, pod_uid=UID),
    ),
    "containerd, cgroupfs driver": (
        f"11:memory:/kubepods/burstable/pod{UID}/{ID}",
        Placement(container_id=SHORT, pod_uid=UID),
    ),
    "a static pod": (
        f"0::/kubepods/besteffort/pod{STATIC}/{ID}",
        Placement(container_id=SHORT, pod_uid=STATIC),
    ),
    "seen from another container's cgroup namespace": (
        f"0::/../../kubepods-besteffort-pod{UID_}.slice/cri-containerd-{ID}.scope",
        Placement(container_id=SHORT, pod_uid=UID),
    ),
    "Kubernetes in Docker: the inner one runs it": (
        f"0::/docker/{OUTER}/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{UID_}.slice/crio-{ID}.scope",
        Placement(container_id=SHORT, pod_uid=UID),
    ),
    "a service": ("0::/system.slice/jupyterhub.service", Placement(systemd_unit="jupyterhub.service")),
    "a service's own subgroup": ("0::/system.slice/a.service/worker/1", Placement(systemd_unit="a.service")),
    "a service, cgroup v1": ("1:name=systemd:/system.slice/triton.service", Placement(systemd_unit="triton.service")),
    "another hierarchy names no unit": ("7:cpu,cpuacct:/system.slice/triton.service", Placement()),
    "a login": ("0::/user.slice/user-1000.slice/session-42.scope", Placement(systemd_unit="session-42.scope")),
    "a user's service": (
        "0::/user.slice/user-1000.slice/user@1000.service/app.slice/train@3.service",
        Placement(systemd_unit="train@3.service"),
    ),
    "a service within a container is not the host's": (
        f"0::/system.slice/docker-{ID}.scope/system.slice/inner.service",
        Placement(container_id=SHORT),
    ),
    "Slurm, cgroup v1": ("9:devices:/slurm/uid_1000/job_4242/step_0/task_0", Placement(slurm_job="4242")),
    "Slurm, cgroup v1, several slurmd": ("9:devices:/slurm_n1/uid_1000/job_4242", Placement(slurm_job="4242")),
    "Slurm, cgroup v2": (
        "0::/system.slice/slurmstepd.scope/job_4242/step_batch/user/task_0",
        Placement(slurm_job="4242", systemd_unit="slurmstepd.scope"),
    ),
    "Slurm, cgroup v2, several slurmd": (
        "0::/system.slice/n1_slurmstepd.scope/job_4242/step_0",
        Placement(slurm_job="4242", systemd_unit="n1_slurmstepd.scope"),
    ),
    "slurmd in a pod": (
        f"0::/kubepods.slice/kubepods-pod{UID_}.slice/cri-containerd-{ID}.scope/system.slice/slurmstepd.scope/job_7/s",
        Placement(container_id=SHORT, pod_uid=UID, slurm_job="7"),
    ),
    "a pod that a user made up": (
        f"0::/user.slice/user-7.slice/user@7.service/kubepods.slice/kubepods-pod{UID_}.slice/cri-containerd-{ID}.scope",
        Placement(systemd_unit="user@7.service"),
    ),
    "a container that a user made up": (
        f"0::/user.slice/user-7.slice/user@7.service/app.slice/docker-{ID}.scope",
        Placement(systemd_unit="user@7.service"),
    ),
    "a job that a user made up": (
        "0::/user.slice/user-7.slice/user@7.service/app.slice/slurmstepd.scope/job_7/step_0",
        Placement(systemd_unit="slurmstepd.scope"),
    ),
    "made up, seen from another cgroup namespace": (
        f"0::/../../user.slice/user-7.slice/user@7.service/docker-{ID}.scope",
        Placement(systemd_unit="user@7.service"),
    ),
    "a folder of that name elsewhere": (
        f"0::/system.slice/docker-{ID}.scope/user.slice/x",
        Placement(container_id=SHORT),
    ),
    "a job of nobody's": ("0::/home/job_4242", Placement()),
    "63 digits are no id": (f"0::/docker/{ID[:-1]}", Placement()),
    "a pod's uid of mixed signs is none": (f"0::/kubepods/pod{UID[:10]}_{UID[11:]}", Placement()),
}


@pytest.mark.parametrize("name", PATHS)
def test_a_line_is_understood(name: str) -> None:
    """Each form that is documented or seen gives exactly these facts."""
    line, placement = PATHS[name]

    assert parse_cgroup(f"{line}\n") == placement


def test_the_lines_of_cgroup_v1_are_put_together() -> None:
    """Each hierarchy may tell another part; what the first one that knows says counts."""
    text = f"""12:pids:/
9:devices:/slurm/uid_1000/job_4242/step_0
5:memory:/docker/{ID}
1:name=systemd:/system.slice/slurmd.service
0::/system.slice/other.service
"""

    assert parse_cgroup(text) == Placement(container_id=SHORT, slurm_job="4242", systemd_unit="slurmd.service")


@given(st.text() | st.text("0:/aefpodslurm_job-.scvi\n" + "1"))
def test_any_text_is_taken_and_only_known_forms_get_out(text: str) -> None:
    """Garbage raises nothing, and what comes out is hexadecimal, digits or the name of a unit."""
    found = parse_cgroup(text)

    assert re.fullmatch(r"[0-9a-f]{12}", found.container_id or "0" * 12)
    assert re.fullmatch(r"[0-9a-f-]{32,36}", found.pod_uid or "0" * 32)
    assert re.fullmatch(r"[0-9]{1,10}", found.slurm_job or "0")
    assert re.fullmatch(r"[A-Za-z0-9:_.\\@-]+\.(service|scope)", found.systemd_unit or "a.scope")
