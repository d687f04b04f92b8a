"""Agents renew their certificates, by clocks of the test's."""

import errno
import os
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from gpuwatch.agent.renewal import Renewal
from gpuwatch.controller.join.settings import JoinSettings
from gpuwatch.runtime import joined
from gpuwatch.runtime.tls import TlsFiles, client_context
from tests.support.real.joining import Controller, JoiningHost, a_controller, renewal_context, world_clock


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[Controller]:
    """One that listens."""
    with a_controller(tmp_path / "controller") as made:
        yield made


@pytest.fixture
def host(tmp_path: Path) -> JoiningHost:
    """A host that has not joined."""
    return JoiningHost(folder=tmp_path / "host")


def test_an_agent_renews_by_its_certificate_when_a_third_of_its_time_is_left(tmp_path: Path, host: JoiningHost) -> None:
    """After 59 days of 90 nothing is asked; after 61 a new certificate for the same key is there, without a token."""
    join = JoinSettings(host="127.0.0.1", port=0, folder=str(tmp_path / "controller"), lifetime=90 * 86400.0)
    controller = Controller(join=join, clock=world_clock(-61))
    controller.authority.keep_own(controller.clock.now())
    controller.begin()
    assert host.join(controller.url, controller.token()).exit_code == 0
    first, clock = host.certificate(), world_clock(-61)
    renewal = Renewal(host.agent, clock)
    clock.jump(59 * 86400.0)
    assert (renewal.step(), host.certificate()) == (False, first)
    clock.jump(2 * 86400.0)
    controller.clock.jump(61 * 86400.0)
    assert renewal.step()
    second = host.certificate()
    assert second.public_key() == first.public_key()
    assert second.not_valid_after_utc - first.not_valid_after_utc == timedelta(days=61)
    assert not renewal.step()
    controller.end()


def test_an_agent_whose_controller_is_away_keeps_its_certificate_and_tries_again(
    tmp_path: Path, host: JoiningHost, caplog: pytest.LogCaptureFixture
) -> None:
    """Every look says why; the first one after the controller is back succeeds."""
    join = JoinSettings(host="127.0.0.1", port=0, folder=str(tmp_path / "controller"), lifetime=90 * 86400.0)
    controller = Controller(join=join, clock=world_clock(-70))
    controller.begin()
    port = int(controller.url.rpartition(":")[2])
    assert host.join(controller.url, controller.token()).exit_code == 0
    first = host.certificate()
    controller.end()
    renewal = Renewal(host.agent, world_clock())
    assert (renewal.step(), host.certificate()) == (False, first)
    assert "is not renewed yet" in caplog.text
    controller.clock.jump(70 * 86400.0)
    controller.join = JoinSettings(host="127.0.0.1", port=port, folder=controller.join.folder)
    controller.begin()
    assert renewal.step()
    controller.end()


def test_a_host_cannot_fill_the_register_by_renewing(controller: Controller, host: JoiningHost) -> None:
    """Eight certificates that are valid at the same time are the most."""
    assert host.join(controller.url, controller.token()).exit_code == 0
    statuses = [controller.post(joined.RENEW_PATH, b"{}", renewal_context(host))[0] for _ in range(9)]
    assert statuses == [200] * 7 + [429] * 2


def test_nobody_renews_without_a_certificate_or_with_the_controllers(controller: Controller) -> None:
    """The controller's and Prometheus' own certificates are of the same authority and of no host."""
    assert controller.post(joined.RENEW_PATH, b"{}")[0] == 403
    folder = Path(controller.join.folder)
    for name in ("controller", "prometheus"):
        files = TlsFiles(
            section="x", certificate=folder / f"{name}.pem", key=folder / f"{name}.key", ca=folder / "ca.pem"
        )
        assert controller.post(joined.RENEW_PATH, b"{}", client_context(files))[0] == 403


def test_an_agent_on_a_full_disk_asks_for_nothing(
    tmp_path: Path, host: JoiningHost, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it could not keep it does not ask for: else it had used up its certificates when there is room again."""
    controller = Controller(
        join=JoinSettings(host="127.0.0.1", port=0, folder=str(tmp_path / "controller")), clock=world_clock(-70)
    )
    controller.begin()
    assert host.join(controller.url, controller.token()).exit_code == 0
    controller.clock.jump(70 * 86400.0)
    controller.begin()
    renewal = Renewal(host.agent, world_clock())

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    agent = host.agent
    assert agent.controller is not None
    moved = agent.controller.rpartition(":")[0] + ":" + controller.url.rpartition(":")[2]
    renewal._url = moved  # the port is another one after the restart
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        assert not renewal.step()
    assert "No space left" in caplog.text
    assert len(controller.book.hosts["i-1"].certificates) == 1
    assert renewal.step()
    controller.end()


def test_a_host_that_could_not_keep_its_certificates_gets_one_tomorrow(
    controller: Controller, host: JoiningHost
) -> None:
    """Answers that are lost use up what a host may have in a day, and no more than that."""
    assert host.join(controller.url, controller.token()).exit_code == 0
    renew: Callable[[], int] = lambda: controller.post(joined.RENEW_PATH, b"{}", renewal_context(host))[0]  # noqa: E731
    assert [renew() for _ in range(9)] == [200] * 7 + [429] * 2
    controller.clock.advance(86400)
    assert [renew(), renew()] == [200, 429]


def test_an_agent_whose_certificate_has_ended_says_that_it_must_join_again(
    controller: Controller, host: JoiningHost, caplog: pytest.LogCaptureFixture
) -> None:
    """It was off for longer than its certificate holds: the log says what to do, and before the end it does not."""
    assert host.join(controller.url, controller.token()).exit_code == 0
    controller.end()
    assert not Renewal(host.agent, world_clock(80)).step()
    assert "join again" not in caplog.text
    assert not Renewal(host.agent, world_clock(91)).step()
    assert "it has ended: let this host join again" in caplog.text


@pytest.mark.parametrize("days", [-60, 300])
def test_an_agent_keeps_its_certificate_from_a_controller_with_a_wrong_clock(
    tmp_path: Path, host: JoiningHost, caplog: pytest.LogCaptureFixture, days: int
) -> None:
    """One that begins in a year, or has ended already, would make the host unknown when the clock is right again."""
    join = JoinSettings(host="127.0.0.1", port=0, folder=str(tmp_path / "controller"), lifetime=30 * 86400.0)
    controller = Controller(join=join, clock=world_clock(-90))
    assert controller.authority.end > controller.clock.now()
    controller.clock.jump(90 * 86400.0)
    controller.begin()
    assert host.join(controller.url, controller.token()).exit_code == 0
    first = host.certificate()
    token = controller.token(hours=9000)
    controller.clock.jump(days * 86400.0)
    assert not Renewal(host.agent, world_clock(25)).step()
    assert "compare the clocks of both machines" in caplog.text
    assert host.certificate() == first
    late = JoiningHost(folder=tmp_path / "late", node_id="i-2")
    result = late.join(controller.url, token)
    assert (result.exit_code, "compare the clocks" in result.output, late.config.exists()) == (1, True, False)
    controller.end()
