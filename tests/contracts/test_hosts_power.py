"""Power of one's own hosts against OpenStack's emulator of BMCs (sushy-tools), and what `Cloud` promises of changes."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Thread

import pytest
from werkzeug.serving import make_server

from gpuwatch.clouds import NotFoundError, NotSentError
from gpuwatch.clouds.hosts.settings import HostSettings, HostsSettings
from gpuwatch.model.fleet import NodeState
from gpuwatch.model.stops import why_not_ours
from tests.support.builders.fleet import a_permit
from tests.support.clouds.hosts.bmc import ONE, TWO, UUIDS, PoweredLab, powered_lab
from tests.support.real.certificates import Authority


@contextmanager
def emulated(folder: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The emulator with both hosts behind one BMC, as in a chassis; its machines obey at once. Gives its port."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # what it stands on still loads cgi
        from sushy_tools.emulator import main  # noqa: PLC0415  within the filter
        from sushy_tools.emulator.resources.systems import fakedriver  # noqa: PLC0415  as above
    monkeypatch.setattr(fakedriver.random, "randint", lambda *_: -1)
    monkeypatch.setattr(main.app, "_cache", {}, raising=False)
    systems = [{"uuid": uuid, "name": name, "power_state": "On", "nics": []} for name, uuid in UUIDS.items()]
    told = {"FAKE_DRIVER": True, "FAKE_SYSTEMS": systems, "STATE_DIR": str(folder)}
    main.app.configure(extra_config={f"SUSHY_EMULATOR_{name}": value for name, value in told.items()})
    issued = authority.issue("emulator")
    certificate = (str(issued.certificate), str(issued.key))
    server = make_server("127.0.0.1", 0, main.app, threaded=True, ssl_context=certificate)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server.port
    finally:
        server.shutdown()
        thread.join()


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PoweredLab]:
    """Two hosts behind it."""
    with powered_lab(tmp_path) as made:
        authority = Authority(tmp_path / "emulator")
        with emulated(tmp_path, authority, monkeypatch) as port:
            machines = {name: HostSettings(pool="train", bmc=f"127.0.0.1:{port}") for name in UUIDS}
            rules = replace(made.settings.power["train"], ca=str(authority.ca))
            made.settings = HostsSettings(machines=machines, power={"train": rules})
            made.cloud = made.anew()
            yield made


def test_a_stop_and_a_start_are_what_the_cloud_protocol_promises(lab: PoweredLab) -> None:
    """Done already is success and says so; the stop is ours by the answer; the other machine of the BMC stays on."""
    assert [node.state for node in lab.cloud.nodes()] == [NodeState.RUNNING] * 2
    answer = lab.cloud.stop(ONE, "key", permit=a_permit())
    assert why_not_ours(answer, lab.seen(ONE).last_stop) is None
    lab.silence(ONE)
    assert [node.state for node in lab.cloud.nodes()] == [NodeState.STOPPED, NodeState.RUNNING]
    again = lab.cloud.stop(ONE, "key", permit=a_permit())
    assert why_not_ours(again, None) is not None

    lab.cloud.start(ONE, "key")
    assert lab.seen(ONE).state is NodeState.RUNNING
    lab.cloud.start(ONE, "key")
    assert lab.seen(TWO).state is NodeState.RUNNING


def test_a_host_that_nobody_knows_or_that_gives_no_answer_is_not_changed(lab: PoweredLab) -> None:
    """The typed errors of the protocol: nothing was sent."""
    for change in (lambda: lab.cloud.stop("gpu-9", "k", permit=a_permit()), lambda: lab.cloud.start("gpu-9", "k")):
        with pytest.raises(NotFoundError):
            change()
    lab.cloud.nodes()
    lab.silence(TWO)
    with pytest.raises(NotSentError):
        lab.cloud.stop(TWO, "key", permit=a_permit())
    assert lab.seen(TWO).state is NodeState.RUNNING
