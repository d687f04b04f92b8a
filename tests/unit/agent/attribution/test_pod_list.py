"""The kubelet's list in a file: written by a program that may ask, and believed while it is renewed."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuwatch.agent.attribution.attribution import Attribution
from gpuwatch.agent.attribution.grpc import CallError
from gpuwatch.agent.attribution.pod_list import read_list, write_list
from gpuwatch.agent.attribution.pod_resources import parse_list
from gpuwatch.agent.attribution.settings import AttributionSettings
from gpuwatch.runtime.clock import ManualClock, SystemClock
from tests.support.builders.gpu import a_reading
from tests.support.fakes.gpu_users import Host
from tests.support.fakes.kubelet import Kubelet, a_kubelet


@pytest.fixture
def kubelet(tmp_path: Path) -> Iterator[Kubelet]:
    """One that has given GPU-0 to one pod."""
    with a_kubelet(tmp_path) as running:
        yield running


def of_age(file: Path, clock: ManualClock, seconds: float) -> None:
    """The file was written so long ago."""
    at = clock.now().timestamp() - seconds
    os.utime(file, (at, at))


def test_the_list_is_written_as_the_kubelet_says_it(tmp_path: Path, kubelet: Kubelet) -> None:
    """Anybody may read it; the agent is another user."""
    file = tmp_path / "list"

    assert write_list(kubelet.path, file, SystemClock()) is None
    assert [each.pod for each in parse_list(read_list(file, SystemClock()))] == ["train-0"]
    assert file.stat().st_mode & 0o777 == 0o644
    assert [each.name for each in tmp_path.glob("list*")] == ["list"]


def test_without_the_kubelet_the_list_stays_as_it_was(tmp_path: Path, kubelet: Kubelet) -> None:
    """An answer that is none is not written: an empty list would say that no pod has a GPU."""
    file = tmp_path / "list"
    write_list(kubelet.path, file, SystemClock())
    before = file.read_bytes()
    kubelet.answer = lambda _: b"\xff\xff"

    assert "cannot be read" in (write_list(kubelet.path, file, SystemClock()) or "")
    assert "cannot be read" in (write_list(tmp_path / "none", file, SystemClock()) or "")
    assert file.read_bytes() == before


@pytest.mark.parametrize("seconds", [60.0, -60.0])
def test_a_list_that_is_not_renewed_is_no_answer(tmp_path: Path, seconds: float) -> None:
    """Nor is one of the future, after a step of the clock."""
    file, clock = tmp_path / "list", ManualClock()
    file.write_bytes(b"")
    of_age(file, clock, seconds)

    with pytest.raises(CallError, match="not renewed"):
        read_list(file, clock)


def test_the_agent_reads_the_list_until_it_grows_old(tmp_path: Path, kubelet: Kubelet) -> None:
    """Then it names pods by their processes again, and looks at all of them."""
    file, host = tmp_path / "list", Host(tmp_path / "host")
    assert write_list(kubelet.path, file, SystemClock()) is None
    settings = AttributionSettings(proc=str(host.proc), pod_resources_socket=str(file), pod_logs=str(host.pod_logs))
    attribution = Attribution(settings, host.clock, lambda: host.core.snapshot(host.clock.monotonic()))
    of_age(file, host.clock, 0.0)
    host.cycle(a_reading())
    attribution.refresh()
    assert attribution.pods() == {"GPU-0": ("team-a/train-0",)}
    assert attribution.others() is None

    host.clock.advance(200.0)
    host.cycle(a_reading())
    attribution.refresh()
    assert attribution.pods() == {}
    assert attribution.others() == frozenset()
