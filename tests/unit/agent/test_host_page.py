"""agent/host_page: one host as people look at it, with names and without secrets."""

from dataclasses import replace

import msgspec
import pytest

from gpuwatch.agent.attribution.cgroup import Placement
from gpuwatch.agent.attribution.pods import Workload
from gpuwatch.agent.host_page import Known, page_of
from gpuwatch.agent.processes.process import Kind, ProcessView
from gpuwatch.agent.published import Trouble
from gpuwatch.model.activity import State
from gpuwatch.model.gpu import DownCause
from gpuwatch.model.host_page import HOST_SCHEMA, HostGpu, HostPage, HostProcess
from tests.support.builders.gpu import GIB, a_busy_reading, a_down, a_process, a_reading
from tests.support.builders.host_page import (
    PEOPLE,
    Someone,
    a_full_host,
    a_page,
    a_snapshot,
    a_snooze,
    a_split_gpu,
    holds,
    known,
)


def gpu_of(page: HostPage, index: int) -> HostGpu:
    """The GPU with that number."""
    return next(gpu for gpu in page.gpus if gpu.index == index)


def process_of(page: HostPage, pid: int) -> HostProcess:
    """The process with that pid."""
    return next(process for process in page.processes if process.pid == pid)


def test_a_page_survives_its_journey() -> None:
    """What an agent encodes is what `gpuwatch top` decodes; times end in Z."""
    page = a_full_host()
    sent = msgspec.json.encode(page)

    assert msgspec.json.decode(sent, type=HostPage) == page
    assert msgspec.json.decode(sent)["schema"] == HOST_SCHEMA
    assert msgspec.json.decode(sent)["verdict"]["at"].endswith("Z")
    assert msgspec.json.decode(sent)["snoozes"][0]["expires_at"] == "2026-01-05T08:00:00Z"


def test_gpus_come_in_the_order_of_their_numbers() -> None:
    """Down or not."""
    page = a_page(a_down(2), a_reading(3), a_reading(0), a_reading(1))

    assert [gpu.index for gpu in page.gpus] == [0, 1, 2, 3]


def test_measurements_are_as_they_were_read() -> None:
    """In base units; what the driver does not say is null and not 0."""
    reading = a_busy_reading(temperature_celsius=64.0, memory_used_bytes=5 * GIB, sm_activity_ratio=None)
    (gpu,) = a_page(reading).gpus

    assert (gpu.utilization_ratio, gpu.temperature_celsius, gpu.power_watts) == (0.8, 64.0, 600.0)
    assert (gpu.memory_used_bytes, gpu.memory_total_bytes) == (5 * GIB, 80 * GIB)
    assert gpu.sm_activity_ratio is None
    assert gpu.state is State.BUSY


def test_a_gpu_that_is_down_has_its_cause_and_a_remedy_and_no_measurement() -> None:
    """A number that cannot be read is absent, never the last one."""
    gpu = gpu_of(a_page(a_reading(0), a_down(1, DownCause.LOST, "GPU is lost")), 1)

    assert gpu.down is not None
    assert (gpu.down.cause, gpu.down.detail, gpu.down.remedy) == ("lost", "GPU is lost", "reboot the host")
    assert gpu.why.startswith("lost: GPU is lost; reboot")
    assert gpu.utilization_ratio is None
    assert not gpu.processes_listed


@pytest.mark.parametrize("cause", DownCause)
def test_every_cause_of_a_gpu_that_is_down_is_in_its_row(cause: DownCause) -> None:
    """Each with its words."""
    (gpu,) = a_page(a_down(0, cause, "as the driver says")).gpus

    assert gpu.down is not None
    assert gpu.down.cause == cause.value
    assert "as the driver says" in gpu.why


def test_a_missing_driver_is_the_hosts_trouble_with_its_remedy() -> None:
    """And the remedy of every GPU that it takes down."""
    trouble = Trouble(cause="driver_not_loaded", detail="no kernel module", remedy="modprobe nvidia")
    snapshot = replace(a_snapshot(a_down(0, DownCause.DRIVER, "no kernel module")), trouble=trouble)
    page = page_of(snapshot, hostname="trainer-7")

    assert page.trouble is not None
    assert (page.trouble.cause, page.trouble.remedy) == ("driver_not_loaded", "modprobe nvidia")
    assert page.gpus[0].down is not None
    assert page.gpus[0].down.remedy == "modprobe nvidia"


def test_a_process_on_several_gpus_is_one_process() -> None:
    """Its memory is summed; one that computes and draws on a GPU is listed twice, and counts once there."""
    twice = [*holds(7, gib={7: 3}), *holds(7, gib={7: 2}, kind=a_process(1).kind.GRAPHICS)]
    page = a_page(a_busy_reading(0, processes=tuple(twice)), a_busy_reading(1, processes=tuple(holds(7))))
    (process,) = page.processes

    assert [use.index for use in process.gpus] == [0, 0, 1]
    assert process.memory_bytes == 13 * GIB


def test_memory_that_the_driver_does_not_tell_is_not_zero() -> None:
    """As in a container without the right to see it."""
    (process,) = a_page(a_reading(processes=(a_process(7, None),))).processes

    assert process.memory_bytes is None


def test_who_uses_a_gpu_is_named() -> None:
    """User, program, kind, and the pod, container, job or unit."""
    page = a_full_host()
    pod, job = process_of(page, 5001), process_of(page, 5002)

    assert (pod.namespace, pod.pod, pod.container) == ("serving", "llama-0", "srv")
    assert (job.slurm_job, job.user, job.program, job.kind) == ("81234", "carol", "python3", "people")
    assert process_of(page, 4801).unit == "jupyter.service"
    assert process_of(page, 7001).kind == "service"
    assert process_of(page, 7003).dead


def test_a_process_that_is_not_known_has_its_pid_alone() -> None:
    """No owner was looked up yet: nothing is guessed."""
    (process,) = a_page(a_reading(processes=tuple(holds(99)))).processes

    assert (process.user, process.program, process.kind, process.cpu_cores, process.dead) == (None,) * 4 + (False,)


def test_the_name_of_a_program_comes_from_its_owner_until_the_table_has_it() -> None:
    """The process table is renewed seldom; a new process is named before."""
    everyone = known([Someone(pid=7, program="train")])
    users = everyone.users
    assert users is not None
    owners = {7: replace(users.owners[7], name="python3")}
    fresh = replace(everyone, users=replace(users, owners=owners), table=None)
    page = page_of(a_snapshot(a_reading(processes=tuple(holds(7)))), hostname="trainer-7", known=fresh)

    assert page.processes[0].program == "python3"


@pytest.mark.parametrize(
    ("view", "usable"),
    [
        (ProcessView(monotonic_seconds=0.0, processes={}), True),
        (ProcessView(monotonic_seconds=0.0, processes={}, doubt="the agent does not see all processes"), False),
        (ProcessView(monotonic_seconds=-100.0, processes={}), False),
        (None, False),
    ],
    ids=["good", "another PID namespace", "old", "none"],
)
def test_a_doubtful_table_of_processes_names_nobody(view: ProcessView | None, usable: bool) -> None:
    """In another PID namespace the same numbers are other processes."""
    found = Known.at_moment(None, view, frozenset({7}), now_monotonic=1.0)

    assert (found.table is not None) is usable
    assert found.own == (frozenset({7}) if usable else frozenset())


def test_so_many_processes_are_listed_and_the_others_counted() -> None:
    """Largest first: a page has a bound."""
    many = tuple(holds(*range(1, 601), gib={pid: pid / 100 for pid in range(1, 601)}))
    page = a_page(a_busy_reading(processes=many))

    assert len(page.processes) == 512
    assert page.processes_left_out == 88
    assert page.processes[0].pid == 600


def test_mig_instances_are_listed_with_their_size() -> None:
    """Each with its profile, memory and activity."""
    (gpu,) = a_page(a_split_gpu(0)).gpus

    assert [instance.id for instance in gpu.instances] == list(range(1, 8))
    assert (gpu.instances[0].profile, gpu.instances[0].sm_activity_ratio) == ("1g.10gb", 0.8)


def test_snoozes_are_told_with_user_reason_and_end() -> None:
    """As `gpuwatch snooze --list` tells them."""
    (snooze,) = a_page(a_reading(), snoozes=[a_snooze()]).snoozes

    assert (snooze.user, snooze.reason) == ("alice", "evaluation")


def test_a_page_has_no_command_line() -> None:
    """Whatever a process was started with: only its short name is there."""
    fields = set(HostProcess.__dataclass_fields__)

    assert not {name for name in fields if "command" in name or "arg" in name or "environ" in name}


def test_without_kubelet_a_pod_is_shown_by_its_uid() -> None:
    """A name would be a guess."""
    uid = "0a1b2c3d-0000-1111-2222-333344445555"
    someone = Someone(pid=7, place=Placement(pod_uid=uid), kind=Kind.PEOPLE)
    (process,) = a_page(a_reading(processes=tuple(holds(7))), people=[someone]).processes

    assert (process.pod, process.pod_uid) == (None, uid)


def test_the_story_has_all_its_people() -> None:
    """The made host of the golden files is whole: twelve processes on eight GPUs."""
    page = a_full_host()

    assert {process.pid for process in page.processes} == {each.pid for each in PEOPLE}
    assert len(page.gpus) == 8
    assert Workload(namespace="serving", pod="llama-0", container="srv") in [each.pod for each in PEOPLE]
