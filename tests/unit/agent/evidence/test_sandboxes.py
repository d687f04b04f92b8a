"""agent/evidence/sandboxes.py: pods that have a sandbox and no container yet."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from shutil import rmtree

from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.agent.attribution.cgroup import Placement
from gpuwatch.agent.evidence.sandboxes import SANDBOX, Sandboxes, lone_sandboxes
from gpuwatch.agent.evidence.settings import WorkSettings
from gpuwatch.agent.evidence.work import Processes
from gpuwatch.agent.processes.kinds import OF_CLUSTER
from gpuwatch.agent.processes.process import Process, ProcessView
from gpuwatch.model.activity import Evidence, State
from tests.support.fakes.host import FolderHost
from tests.support.fakes.proc_files import put_process

POD = "0a1b2c3d-0000-4000-8000-0123456789ab"
GROUP = f"/kubepods.slice/kubepods-pod{POD.replace('-', '_')}.slice/cri-containerd-{'ab' * 32}.scope"


def process(pid: int, name: str, pod: str | None, *, rule: str = "", state: str = "S") -> Process:
    """One of a pod, or of none."""
    return Process(
        pid=pid,
        started_ticks=pid,
        parent=1,
        group=pid,
        session=pid,
        tty=0,
        state=state,
        name=name,
        executable=name,
        uid=0,
        placement=Placement(pod_uid=pod),
        rule=rule,
    )


def lone(each: Iterable[Process]) -> set[str]:
    """The pods without a container."""
    return set(lone_sandboxes({one.pid: one for one in each}))


@given(
    st.lists(st.tuples(st.sampled_from([SANDBOX, "python3", "nginx"]), st.sampled_from(["a", "b", "c"])), max_size=8)
)
def test_a_pod_waits_while_its_sandbox_is_alone(members: list[tuple[str, str]]) -> None:
    """Any other process of the pod is its container."""
    found = lone(process(number, name, pod) for number, (name, pod) in enumerate(members, 1))
    assert found == {pod for _, pod in members} - {pod for name, pod in members if name != SANDBOX}


def test_the_clusters_own_pods_and_programs_called_pause_elsewhere_do_not_wait() -> None:
    """A daemon set between two versions; a person's program without a pod. What has died is no container."""
    assert lone([process(1, SANDBOX, "a", rule=OF_CLUSTER), process(2, SANDBOX, None)]) == set()
    assert lone([process(1, SANDBOX, "a"), process(2, "python3", "a", state="Z")]) == {"a"}


def test_a_pod_that_has_waited_for_an_hour_is_no_longer_young() -> None:
    """Its image does not exist; a pod that came since is young again."""
    first, later = process(1, SANDBOX, "a"), process(2, SANDBOX, "b")
    seen = Sandboxes()

    def young(at: float, *each: Process) -> bool | None:
        view = ProcessView(monotonic_seconds=at, processes={one.pid: one for one in each})
        found = seen.newest_waiting(view, at)
        return None if found is None else found.is_young

    assert [young(0.0, first), young(3599.0, first), young(3600.0, first)] == [True, True, False]
    assert young(3610.0, first, later) is True
    assert young(3620.0) is None
    assert young(3630.0, replace(first)) is True


def test_a_pod_before_its_first_container_is_doubt_and_occupies_the_node_from_then_on(tmp_path: Path) -> None:
    """A slow pull of an image."""
    host = FolderHost(tmp_path)
    signal = Processes(WorkSettings(), host.roots)
    host.write("proc/uptime", "9000.00 1.00\n")

    def says(seconds: float) -> Evidence:
        host.pass_time(seconds)
        (found,) = signal.find_evidence(host.moment())
        return found

    put_process(host.roots.proc, 1, "systemd", cgroup="/init.scope", uid=0, parent=0)
    before = says(70)
    put_process(host.roots.proc, 3000, SANDBOX, cgroup=GROUP, uid=65535, parent=1)
    waits, later = says(70), says(3700)
    rmtree(host.roots.proc / "3000")

    assert [each.says for each in (before, waits, later, says(70))] == [
        State.IDLE,
        State.UNKNOWN,
        State.OCCUPIED,
        State.IDLE,
    ]
    assert waits.note == "a pod waits for its first container"
    assert waits.owner is not None
    assert waits.owner.unit == f"pod {POD}"
