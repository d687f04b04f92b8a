"""Wake-on-LAN: what is off without a BMC to say so, and the packet that wakes it."""

from collections.abc import Iterator

import pytest

from gpuwatch.clouds import BusyError, CloudError, NotSentError, ProtectedError
from gpuwatch.clouds.hosts.power import magic_packet
from gpuwatch.clouds.permit import in_force
from gpuwatch.clouds.silence import Past
from gpuwatch.model.fleet import NodeState
from gpuwatch.model.power import PowerAnswer
from tests.support.builders.fleet import a_permit
from tests.support.clouds.hosts.bmc import MAC, ONE, TWO, Woken


@pytest.fixture
def lab() -> Iterator[Woken]:
    """Both hosts run."""
    made = Woken()
    yield made
    made.heard.close()


def test_silence_alone_is_never_off(lab: Woken) -> None:
    """A host that is unplugged, or that its owner switched off, is unknown, and no packet is sent for it."""
    assert lab.seen(ONE).cannot_stop is None
    lab.silence(ONE)
    lab.clock.advance(9999.0)
    assert lab.seen(ONE).state is NodeState.RUNNING  # which the controller takes for unknown: the agent is silent
    lab.cloud.start(ONE, "key")
    assert lab.packets() == []


def test_a_stop_that_the_agent_took_is_off_after_a_minute_of_silence_and_a_packet_wakes_it(lab: Woken) -> None:
    """First it is on its way down, as long as this boot answers, and a minute longer."""
    assert lab.cloud.stop(ONE, "key", permit=a_permit()).ran
    assert lab.questions[-1] == (ONE, True)
    assert lab.seen(ONE).state is NodeState.STOPPING
    lab.silence(ONE)
    assert lab.seen(ONE).state is NodeState.STOPPING
    with pytest.raises(BusyError):
        lab.cloud.start(ONE, "key")
    lab.clock.advance(61.0)
    assert lab.seen(ONE).state is NodeState.STOPPED

    with in_force(a_permit()):
        lab.cloud.start(ONE, "key")
    assert lab.packets() == [magic_packet(MAC)]
    assert lab.seen(ONE).state is NodeState.STOPPED
    lab.clock.advance(301.0)
    assert "is still off" in (lab.seen(ONE).failed_start or "")
    lab.agents[ONE] = PowerAnswer(node_id=ONE, boot_id="2")
    assert (lab.seen(ONE).state, lab.seen(ONE).failed_start) == (NodeState.RUNNING, None)


def test_a_packet_is_the_address_sixteen_times_after_six_bytes_of_ones() -> None:
    """102 bytes, however the address is written."""
    assert magic_packet(MAC) == magic_packet(MAC.replace(":", "-")) == b"\xff" * 6 + b"\x52\x54\0\x12\x34\x56" * 16


def test_a_host_that_its_owner_switched_on_and_off_again_is_unknown(lab: Woken) -> None:
    """The last stop was not ours."""
    lab.goes_down()
    assert lab.seen(ONE).state is NodeState.STOPPED
    lab.agents[ONE] = PowerAnswer(node_id=ONE, boot_id="2")
    assert lab.seen(ONE).state is NodeState.RUNNING
    lab.silence(ONE)
    lab.clock.advance(9999.0)
    assert lab.seen(ONE).state is NodeState.RUNNING


def test_a_shutdown_that_hangs_is_no_stop(lab: Woken) -> None:
    """The same boot answers five minutes later: the host runs."""
    lab.cloud.stop(ONE, "key", permit=a_permit())
    lab.clock.advance(301.0)
    assert lab.seen(ONE).state is NodeState.RUNNING


def test_something_that_answers_there_is_no_host_that_is_off(lab: Woken) -> None:
    """A refused connection, or a stranger's certificate, comes from a host that runs."""
    lab.goes_down()
    lab.agents[ONE] = CloudError("its agent's port refuses connections")
    assert lab.seen(ONE).state is NodeState.UNKNOWN
    with pytest.raises(NotSentError):
        lab.cloud.start(ONE, "key")


def test_a_doubt_about_the_order_leaves_silence_unknown(lab: Woken) -> None:
    """No agent has said yes."""
    lab.cloud.nodes()
    lab.silence(ONE)
    with pytest.raises(NotSentError):
        lab.cloud.stop(ONE, "key", permit=a_permit())
    lab.clock.advance(9999.0)
    assert lab.seen(ONE).state is NodeState.RUNNING


def test_a_restart_remembers_what_is_off_and_what_was_told_to_go_down(lab: Woken) -> None:
    """By the ledger's newest round, or by the accepted stop where it ended before a round."""
    running = tuple(lab.cloud.nodes())
    lab.goes_down()
    off = tuple(lab.cloud.nodes())
    for past in (Past(nodes=off), Past(nodes=running, accepted=frozenset({ONE}))):
        lab.cloud = lab.anew()
        lab.cloud.recall(lambda past=past: past)  # type: ignore[misc]
        assert lab.seen(ONE).state is NodeState.STOPPED
    lab.cloud = lab.anew()
    lab.cloud.recall(lambda: Past(nodes=running))
    assert lab.seen(ONE).state is NodeState.RUNNING


def test_a_host_without_a_card_to_wake_is_not_stopped(lab: Woken) -> None:
    """It could not come back; nor is one whose agent refuses, and nor is any where no agent can be asked."""
    with pytest.raises(ProtectedError, match="no MAC address is named"):
        lab.cloud.stop(TWO, "key", permit=a_permit())
    lab.agents[ONE] = PowerAnswer(node_id=ONE, refused="its agent.poweroff is not set")
    with pytest.raises(ProtectedError, match=r"agent\.poweroff is not set"):
        lab.cloud.stop(ONE, "key", permit=a_permit())
