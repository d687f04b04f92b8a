"""agent/evidence/scheduled/crontabs.py: a container whose cron has work to do."""

from dataclasses import replace
from pathlib import Path

import pytest

from gpuwatch.agent.attribution.cgroup import Placement
from gpuwatch.agent.evidence.scheduled.signal import Scheduled
from gpuwatch.agent.evidence.settings import ScheduledSettings
from gpuwatch.agent.processes.process import Kind, Process, ProcessView
from gpuwatch.model.activity import Evidence, State
from tests.support.fakes.queued_work import QueueHost


def said(host: QueueHost, *, name: str = "cron", container: str | None = "0123456789ab") -> Evidence:
    """What the signal says while a program of this name runs there."""
    daemon = Process(
        pid=77, started_ticks=1, parent=1, group=77, session=77, tty=0, state="S", name=name, executable=name, uid=0,
        placement=Placement(container_id=container), kind=Kind.PEOPLE,
    )  # fmt: skip
    view = ProcessView(monotonic_seconds=0.0, processes={77: daemon})
    (found,) = Scheduled(ScheduledSettings(), host.roots, 5.0).find_evidence(replace(host.moment(), processes=view))
    return found


@pytest.mark.parametrize(
    ("place", "line"),
    [
        ("etc/cron.d/retrain", "0 2 * * * root /app/retrain.sh"),
        ("etc/crontabs/root", "0 2 * * * /app/retrain.sh"),
        ("var/spool/cron/crontabs/root", "0 2 * * * /app/retrain.sh"),
    ],
)
def test_a_nightly_job_in_a_container_keeps_the_node(tmp_path: Path, place: str, line: str) -> None:
    """Wherever images keep their tables, root's too."""
    host = QueueHost(tmp_path)
    host.write(f"proc/77/root/{place}", f"{line}\n")
    found = said(host)

    assert found.says is State.BUSY
    assert "root's cron job (line 1) in container 0123456789ab is due" in (found.note or "")


@pytest.mark.parametrize(
    ("place", "line"),
    [
        ("etc/cron.d/e2scrub_all", "10 3 * * * root /sbin/e2scrub_all"),
        ("etc/crontab", "25 6 * * * root run-parts /etc/cron.daily"),
        ("etc/crontabs/root", "0 2 * * * run-parts /etc/periodic/daily"),
        ("etc/cron.d/retrain", "no time"),
    ],
)
def test_what_images_bring_keeps_nothing(tmp_path: Path, place: str, line: str) -> None:
    """Nor does a line that cannot be read: the container occupies the node by itself."""
    host = QueueHost(tmp_path)
    host.write(f"proc/77/root/{place}", f"{line}\n")

    assert said(host).says is State.IDLE


@pytest.mark.parametrize(("name", "container"), [("python3", "0123456789ab"), ("cron", None)])
def test_only_containers_with_cron_are_looked_into(tmp_path: Path, name: str, container: str | None) -> None:
    """A table without a daemon is due at no time."""
    host = QueueHost(tmp_path)
    host.write("proc/77/root/etc/cron.d/retrain", "0 2 * * * root /app/retrain.sh\n")

    assert said(host, name=name, container=container).says is State.IDLE
