"""agent/evidence/scheduled: work that recurs too often to be waited for, and its runs."""

from pathlib import Path

import pytest

from gpuwatch.agent.attribution.cgroup import Placement
from gpuwatch.agent.evidence.base import Moment
from gpuwatch.agent.evidence.scheduled.signal import Scheduled
from gpuwatch.agent.evidence.settings import ScheduledSettings
from gpuwatch.agent.processes.process import Process, ProcessView
from gpuwatch.model.activity import Evidence, State
from tests.support.fakes.queued_work import ALICE_UID, QueueHost

HOUR = 3600.0


@pytest.fixture
def host(tmp_path: Path) -> QueueHost:
    """Nothing is queued."""
    return QueueHost(tmp_path)


def a_process(pid: int, name: str, parent: int, *, uid: int = ALICE_UID, unit: str = "cron.service") -> Process:
    """A process in a unit."""
    return Process(
        pid=pid, started_ticks=1, parent=parent, group=pid, session=pid, tty=0, state="S", name=name, executable=None,
        uid=uid, placement=Placement(systemd_unit=unit),
    )  # fmt: skip


def after_a_run(host: QueueHost, *processes: Process, hours: float) -> Evidence:
    """What the signal says so long after the last of these processes held a GPU."""
    signal = Scheduled(ScheduledSettings(), host.roots, 5.0)
    began = host.clock.monotonic()
    view = ProcessView(monotonic_seconds=began, processes={each.pid: each for each in processes})
    signal.runs.note(view, {processes[-1].pid}, began)
    host.clock.advance(hours * HOUR)
    (found,) = signal.find_evidence(Moment(at=host.clock.now(), monotonic_seconds=host.clock.monotonic()))
    return found


CRON = a_process(10, "cron", 1, uid=0)
SHELL = a_process(11, "sh", 10)


def test_a_persons_frequent_job_occupies_the_node(host: QueueHost) -> None:
    """Somebody counts on it; it is found as other machines are that somebody left something on."""
    host.crontab("*/15 * * * * /home/alice/collect.sh\n")
    found = host.scheduled()

    assert (found.says, found.note) == (State.OCCUPIED, "alice's cron job (line 1) runs often")
    assert found.owner is not None
    assert found.owner.user == "alice"


@pytest.mark.parametrize("place", ["roots crontab", "the machines", "an administrators timer"])
def test_the_housekeeping_of_the_machine_does_not(host: QueueHost, place: str) -> None:
    """Most machines have some. A new agent first sees one run."""
    if place == "roots crontab":
        host.crontab("*/15 * * * * /root/clean\n", "root")
    elif place == "the machines":
        host.write("etc/cron.d/backup", "*/15 * * * * root /usr/bin/backup\n")
    else:
        host.timer("OnCalendar=hourly")
    signal = Scheduled(ScheduledSettings(), host.roots, 5.0)
    first = host.tells(signal)
    host.clock.advance(1.3 * HOUR)

    assert host.tells(signal).says is State.IDLE
    assert first.says is (State.IDLE if place == "the machines" else State.OCCUPIED)


def test_a_users_frequent_timer_occupies_the_node(host: QueueHost) -> None:
    """As a crontab does."""
    host.logged_in()
    host.timer("OnCalendar=hourly", "eval.timer", "home/alice/.config/systemd/user")

    assert host.scheduled().says is State.OCCUPIED


def test_a_frequent_job_with_runs_on_a_gpu_keeps_the_node(host: QueueHost) -> None:
    """Hourly inference of half a minute; one run without work does not end it, two do."""
    host.crontab("17 * * * * /home/alice/score.sh\n")
    score = a_process(12, "python3", 11)
    says = [after_a_run(host, CRON, SHELL, score, hours=hours).says for hours in (0.5, 2.0, 2.2)]

    assert says == [State.BUSY, State.BUSY, State.OCCUPIED]
    assert after_a_run(host, CRON, SHELL, score, hours=1.0).note == (
        "alice's cron job (line 1) runs often, and a run lately held a GPU"
    )


def test_a_session_of_a_cron_job_is_that_jobs(host: QueueHost) -> None:
    """pam_systemd moves it out of cron's unit."""
    host.crontab("17 * * * * /home/alice/score.sh\n")
    score = a_process(12, "python3", 11, unit="session-812.scope")

    assert after_a_run(host, CRON, SHELL, score, hours=1.0).says is State.BUSY


@pytest.mark.parametrize(
    ("unit", "says"),
    [("transcribe.service", State.BUSY), ("other.service", State.OCCUPIED)],
    ids=["its own", "another"],
)
def test_the_service_of_a_frequent_timer_on_a_gpu_keeps_the_node(host: QueueHost, unit: str, says: State) -> None:
    """An administrator's timer is housekeeping until its service has held a GPU."""
    host.timer("OnCalendar=hourly", "transcribe.timer")

    assert after_a_run(host, a_process(12, "transcribe", 1, uid=0, unit=unit), hours=1.0).says is says


def test_a_run_by_hand_is_not_crons(host: QueueHost) -> None:
    """Alice's own training in a login says nothing about her crontab."""
    host.crontab("*/15 * * * * /home/alice/collect.sh\n")
    train = a_process(12, "python3", 1, unit="session-3.scope")

    assert after_a_run(host, train, hours=0.1).says is State.OCCUPIED
