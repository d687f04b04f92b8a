"""Power of one's own hosts: off and on only where BMC and agent are of one machine, and never by force."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuwatch.clouds import (
    AuthFailedError,
    CloudError,
    CloudUnavailableError,
    NotSentError,
    PermitExpiredError,
    ProtectedError,
)
from gpuwatch.clouds.hosts.settings import HostSettings, HostsSettings, PowerSettings
from gpuwatch.clouds.hosts.sources import read_targets
from gpuwatch.clouds.permit import in_force
from gpuwatch.clouds.silence import Past
from gpuwatch.model.decision import DECISION_TAG
from gpuwatch.model.fleet import NodeState
from gpuwatch.model.power import PowerAnswer
from tests.support.builders.fleet import a_permit
from tests.support.clouds.faults import Fault, when
from tests.support.clouds.hosts.bmc import ONE, PASSWORD, TWO, UUIDS, PoweredLab, powered_lab


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[PoweredLab]:
    """Two hosts that run, with their BMCs."""
    with powered_lab(tmp_path) as made:
        yield made


def test_a_host_is_switched_off_cleanly_and_on_again_and_its_bmc_says_so(lab: PoweredLab) -> None:
    """Only `GracefulShutdown` and `On` are sent, each once; the neighbour is left alone."""
    assert (lab.seen(ONE).state, lab.seen(ONE).cannot_stop) == (NodeState.RUNNING, None)

    assert lab.cloud.stop(ONE, "key", permit=a_permit()).ran
    lab.silence(ONE)
    assert [node.state for node in lab.cloud.nodes()] == [NodeState.STOPPED, NodeState.RUNNING, NodeState.RUNNING]
    assert not lab.cloud.stop(ONE, "key", permit=a_permit()).ran

    lab.cloud.start(ONE, "key")
    assert lab.seen(ONE).state is NodeState.RUNNING
    lab.cloud.start(ONE, "key")
    assert (lab.bmcs[ONE].asked_for, lab.bmcs[TWO].asked_for) == (["GracefulShutdown", "On"], [])


def test_swapped_bmcs_switch_nothing_off(lab: PoweredLab, caplog: pytest.LogCaptureFixture) -> None:
    """The worst mistake of a rack: each BMC's address is at the other host. Both are refused, and it is said once."""
    lab.bmcs[ONE].uuid, lab.bmcs[TWO].uuid = lab.bmcs[TWO].uuid, lab.bmcs[ONE].uuid
    for name in (ONE, TWO):
        assert "is not its own" in (lab.seen(name).cannot_stop or "")
        with pytest.raises(ProtectedError, match="is not its own: it shows the system UUID"):
            lab.cloud.stop(name, "key", permit=a_permit())
    assert lab.bmcs[ONE].asked_for == lab.bmcs[TWO].asked_for == []
    assert len([each for each in caplog.messages if f"{ONE} is not switched off or on: the BMC" in each]) == 1


def test_addresses_that_swap_between_the_list_and_the_stop_switch_nothing_off(lab: PoweredLab) -> None:
    """DHCP gave them out anew after the last look: the last question is about the machine that answers now."""
    lab.cloud.nodes()
    lab.bmcs[ONE].uuid = UUIDS[TWO]
    with pytest.raises(ProtectedError, match="is not its own"):
        lab.cloud.stop(ONE, "key", permit=a_permit())
    assert lab.bmcs[ONE].asked_for == []


@pytest.mark.parametrize("uuid", [None, "", "Not Specified", "0" * 32, "03000200-0400-0500-0006-000700080009"])
def test_a_host_without_a_uuid_of_its_own_is_not_switched_off(lab: PoweredLab, uuid: str | None) -> None:
    """Nothing then proves that the BMC is its own, also where both say the same."""
    lab.bmcs[ONE].uuid = uuid or ""
    lab.agents[ONE] = PowerAnswer(node_id=ONE, system_uuid=uuid)
    assert "nothing proves that the BMC" in (lab.seen(ONE).cannot_stop or "")
    with pytest.raises(ProtectedError):
        lab.cloud.stop(ONE, "key", permit=a_permit())
    lab.silence(ONE)
    lab.bmcs[ONE].power = "Off"
    assert lab.seen(ONE).state is NodeState.UNKNOWN
    with pytest.raises(NotSentError):
        lab.cloud.start(ONE, "key")
    assert lab.bmcs[ONE].asked_for == []


def test_two_hosts_that_say_one_uuid_prove_nothing(lab: PoweredLab) -> None:
    """A cloned board: each BMC would fit either."""
    lab.agents[TWO] = PowerAnswer(node_id=TWO, system_uuid=UUIDS[ONE])
    lab.bmcs[TWO].uuid = UUIDS[ONE]
    lab.cloud.nodes()
    for name in (ONE, TWO):
        assert "has the same system UUID" in (lab.seen(name).cannot_stop or "")


def test_a_uuid_in_the_other_byte_order_is_the_same(lab: PoweredLab) -> None:
    """Many BMCs write the first three parts as they are in memory."""
    lab.bmcs[ONE].uuid = "44454c4c-5100-104a-8056-c4c04f4e3533"
    assert lab.seen(ONE).cannot_stop is None


def test_a_silent_agent_keeps_its_host_on(lab: PoweredLab) -> None:
    """Nothing was sent, and the next round asks again."""
    lab.cloud.nodes()
    lab.silence(ONE)
    with pytest.raises(NotSentError, match="its agent gives no answer"):
        lab.cloud.stop(ONE, "key", permit=a_permit())
    assert lab.bmcs[ONE].asked_for == []


def test_a_permit_that_has_run_out_sends_nothing(lab: PoweredLab) -> None:
    """The lead may be lost while the BMC is asked."""
    with pytest.raises(PermitExpiredError):
        lab.cloud.stop(ONE, "key", permit=a_permit(leads=lambda: False))
    lab.bmcs[TWO].power = "Off"
    lab.seen(TWO)
    lab.silence(TWO)
    with in_force(a_permit(leads=lambda: False)), pytest.raises(PermitExpiredError):
        lab.cloud.start(TWO, "key")
    with in_force(a_permit(leads=lambda: False)), pytest.raises(PermitExpiredError):
        lab.cloud.tag(ONE, {DECISION_TAG: "k"}, "key")
    assert lab.bmcs[ONE].asked_for == lab.bmcs[TWO].asked_for == []


def test_an_accepted_shutdown_after_which_the_host_stays_on_is_no_stop(lab: PoweredLab) -> None:
    """A task that was accepted is no machine that is off."""
    lab.bmcs[ONE].obeys = False
    assert lab.cloud.stop(ONE, "key", permit=a_permit()).ran
    assert lab.seen(ONE).state is NodeState.RUNNING


def test_a_bmc_that_shows_an_old_off_is_not_believed_against_the_agent(lab: PoweredLab) -> None:
    """An agent that answers is on a host that runs; and nothing is switched off through such a BMC."""
    lab.bmcs[ONE].shows = "Off"
    assert lab.seen(ONE).state is NodeState.RUNNING
    assert "its agent answers" in (lab.seen(ONE).cannot_stop or "")


@pytest.mark.parametrize(
    ("shown", "state"),
    [("PoweringOff", NodeState.STOPPING), ("PoweringOn", NodeState.PENDING), ("Paused", NodeState.UNKNOWN)],
)
def test_other_states_are_neither_off_nor_on(lab: PoweredLab, shown: str, state: NodeState) -> None:
    """What a BMC does not say in so many words is unknown."""
    lab.cloud.nodes()
    lab.silence(ONE)
    lab.bmcs[ONE].shows = shown
    assert lab.seen(ONE).state is state


@pytest.mark.parametrize("status", [401, 403, 404, 500, 503])
def test_a_bmc_that_refuses_or_resets_says_nothing_of_its_host(lab: PoweredLab, status: int) -> None:
    """A running host stays as its agent shows it, and is not stopped; one that is off is unknown, and never gone."""
    lab.bmcs[TWO].power = "Off"
    lab.seen(TWO)
    lab.silence(TWO)
    assert lab.seen(TWO).state is NodeState.STOPPED
    for name in (ONE, TWO):
        lab.bmcs[name].refuses = status
    running, off, _ = lab.cloud.nodes()
    assert (running.state, off.state, off.last_shown) == (NodeState.RUNNING, NodeState.UNKNOWN, NodeState.STOPPED)
    assert f"HTTP {status}" in (running.cannot_stop or "")
    with pytest.raises(NotSentError):
        lab.cloud.stop(ONE, "key", permit=a_permit())
    with pytest.raises(NotSentError):
        lab.cloud.start(TWO, "key")
    assert PASSWORD not in f"{running}{off}"


@pytest.mark.parametrize(("status", "error"), [(400, CloudError), (401, AuthFailedError), (500, CloudUnavailableError)])
def test_what_a_bmc_answers_to_the_change_is_a_no_or_a_doubt(
    lab: PoweredLab, status: int, error: type[CloudError]
) -> None:
    """From 500 on nobody knows; below, nothing was done. It is sent once."""
    lab.cloud.nodes()
    lab.bmcs[ONE].refuses_resets = status
    with pytest.raises(error) as raised:
        lab.cloud.stop(ONE, "key", permit=a_permit())
    assert (type(raised.value), lab.bmcs[ONE].asked_for) == (error, ["GracefulShutdown"])


@pytest.mark.parametrize("fault", [Fault.RESET_AFTER, Fault.RESET_BEFORE])
def test_a_connection_that_breaks_in_the_change_is_a_doubt(lab: PoweredLab, fault: Fault) -> None:
    """Nobody knows whether the host goes down, and it is not asked again."""
    lab.cloud.nodes()
    lab.servers[ONE].plan.strike(fault, when(operation="POST"))
    with pytest.raises(CloudUnavailableError):
        lab.cloud.stop(ONE, "key", permit=a_permit())
    assert len(lab.bmcs[ONE].asked_for) <= 1


def test_a_bmc_whose_certificate_nobody_signed_gets_no_password(lab: PoweredLab) -> None:
    """Most BMCs come with one; cloud.hosts.power.ca is the remedy."""
    rules = lab.settings.power["train"]
    bare = PowerSettings(user=rules.user, password_file=rules.password_file)
    lab.settings = HostsSettings(machines=lab.settings.machines, power={"train": bare})
    lab.cloud = lab.anew()
    assert "certificate" in (lab.seen(ONE).cannot_stop or "")
    assert lab.bmcs[ONE].users == set()


def test_a_bmc_without_a_clean_shutdown_or_without_on_switches_nothing_off(lab: PoweredLab) -> None:
    """A forced end is never a way, and what cannot be started again is not stopped."""
    lab.bmcs[ONE].allowed = ["On", "ForceOff"]
    lab.bmcs[TWO].allowed = ["GracefulShutdown", "ForceOn"]
    assert "does not offer GracefulShutdown" in (lab.seen(ONE).cannot_stop or "")
    assert "does not offer On" in (lab.seen(TWO).cannot_stop or "")


def test_of_several_systems_behind_one_bmc_the_hosts_own_is_asked(lab: PoweredLab) -> None:
    """A chassis with two nodes: the UUID chooses, never the order."""
    lab.bmcs[ONE].systems = [UUIDS[TWO]]
    assert lab.seen(ONE).cannot_stop is None
    lab.bmcs[ONE].uuid = "4c4c4544-0051-4a10-8056-c4c04f4e3599"
    assert "shows 2 systems" in (lab.seen(ONE).cannot_stop or "")


def test_a_restart_remembers_whose_bmc_it_is_while_the_host_is_off(lab: PoweredLab) -> None:
    """The ledger's newest round has the UUID: so a host can be switched on whose agent cannot answer."""
    lab.cloud.stop(ONE, "key", permit=a_permit())
    lab.cloud.tag(ONE, {DECISION_TAG: "k"}, "key")
    lab.silence(ONE)
    past = Past(nodes=tuple(lab.cloud.nodes()))
    lab.cloud = lab.anew()
    assert lab.seen(ONE).state is NodeState.UNKNOWN
    lab.cloud = lab.anew()
    lab.cloud.recall(lambda: past)
    assert (lab.seen(ONE).state, lab.seen(ONE).tags[DECISION_TAG]) == (NodeState.STOPPED, "k")
    lab.bmcs[ONE].refuses = 503
    assert lab.seen(ONE).last_shown is NodeState.STOPPED


def test_a_host_that_does_not_come_up_is_stopped_and_says_why(lab: PoweredLab) -> None:
    """It is asked for again by the round, and its owner is told; it never counts as running."""
    lab.cloud.stop(ONE, "key", permit=a_permit())
    lab.silence(ONE)
    lab.bmcs[ONE].obeys = False
    lab.cloud.start(ONE, "key")
    assert (lab.seen(ONE).state, lab.seen(ONE).failed_start) == (NodeState.STOPPED, None)
    lab.clock.advance(301.0)
    assert "is still off" in (lab.seen(ONE).failed_start or "")
    lab.bmcs[ONE].power = "On"
    assert (lab.seen(ONE).state, lab.seen(ONE).failed_start) == (NodeState.RUNNING, None)


def test_hosts_of_other_pools_have_no_power_and_a_host_without_a_bmc_says_so(lab: PoweredLab) -> None:
    """Power is opt-in a pool; a host is never ended."""
    with pytest.raises(ProtectedError, match="no power control"):
        lab.cloud.stop("gpu-3", "key", permit=a_permit())
    with pytest.raises(ProtectedError, match="cannot terminate"):
        lab.cloud.terminate(ONE, "key", permit=a_permit())
    lab.settings = HostsSettings(machines={ONE: HostSettings(pool="train")}, power=lab.settings.power)
    lab.cloud = lab.anew()
    assert "no BMC is named" in (lab.seen(ONE).cannot_stop or "")


def test_an_agent_powers_its_own_host_off_and_its_bmc_switches_it_on(tmp_path: Path) -> None:
    """The BMC is not asked for the end; what the agent refuses is not done, and is said before any notice."""
    with powered_lab(tmp_path, stop_by="agent") as lab:
        assert lab.cloud.stop(ONE, "key", permit=a_permit()).ran
        assert (lab.questions[-1], lab.bmcs[ONE].asked_for) == ((ONE, True), [])
        lab.bmcs[ONE].power = "Off"
        lab.silence(ONE)
        lab.cloud.start(ONE, "key")
        assert lab.bmcs[ONE].asked_for == ["On"]

        why = "its agent.poweroff is not set"
        lab.agents[TWO] = PowerAnswer(node_id=TWO, system_uuid=UUIDS[TWO], refused=why)
        assert lab.seen(TWO).cannot_stop == why
        with pytest.raises(ProtectedError, match=why):
            lab.cloud.stop(TWO, "key", permit=a_permit())
        lab.agents[ONE] = PowerAnswer(node_id=ONE, system_uuid=UUIDS[ONE])
        with pytest.raises(PermitExpiredError):
            lab.cloud.stop(ONE, "key", permit=a_permit(leads=lambda: False))
        assert [each for each in lab.questions if each[1]] == [(ONE, True)]


@pytest.mark.parametrize(
    ("power", "machine", "told"),
    [
        ({"stop_by": "ipmi"}, {}, "stop_by is ipmi, and cloud.hosts.power.train.start_by is redfish"),
        ({"password_file": None}, {}, "cloud.hosts.power.train.password_file is not set"),
        ({"broadcast": "10.0.0.255/24"}, {}, "'10.0.0.255/24' is not a broadcast address"),
        ({}, {"bmc": "https://10.0.1.1"}, "'https://10.0.1.1' is not the address of a BMC"),
        ({}, {"bmc": "10.0.1.1:99999"}, "'10.0.1.1:99999' is not the address of a BMC"),
        ({}, {"mac": "52:54:00:12:34"}, "'52:54:00:12:34' is not a MAC address"),
        (
            {"stop_by": "agent", "start_by": "wake", "user": None, "password_file": None},
            {"bmc": "[fd00::1]:8443"},
            None,
        ),
    ],
)
def test_mistakes_in_the_settings_are_named(
    power: dict[str, str | None], machine: dict[str, str], told: str | None
) -> None:
    """Also that one BMC speaks one language; Wake-on-LAN needs no user."""
    rules = PowerSettings(**{"user": "u", "password_file": "p", **power})  # type: ignore[arg-type]
    settings = HostsSettings(machines={ONE: HostSettings(**machine)}, power={"train": rules})
    found = [each.wrong for each in settings.contradictions()]
    assert len(found) == (told is not None)
    assert told is None or told in found[0]


@pytest.mark.parametrize(
    ("labels", "targets", "told"),
    [
        ({"bmc": "10.0.1.1"}, ["a", "b"], "has a label `bmc`, which names one host, and 2 targets"),
        ({"mac": "52-54-00-12-34-56"}, ["a", "b"], "has a label `mac`, which names one host"),
        ({"bmc": "http://b"}, ["a"], "'http://b' is not the address of a BMC"),
        ({"mac": "5"}, ["a"], "'5' is not a MAC address"),
    ],
)
def test_mistakes_in_a_file_are_named(tmp_path: Path, labels: dict[str, str], targets: list[str], told: str) -> None:
    """One BMC for two hosts would switch off the wrong one."""
    file = tmp_path / "hosts.json"
    file.write_text(json.dumps([{"targets": targets, "labels": labels}]), encoding="utf-8")
    with pytest.raises(ValueError, match=re.escape(told)):
        read_targets(file)
    right = [{"targets": ["a"], "labels": {"bmc": "10.0.1.1:8443", "mac": "52-54-00-12-34-56", "rack": "r"}}]
    file.write_text(json.dumps(right), encoding="utf-8")
    (found,) = read_targets(file)
    assert (found.bmc, found.mac, found.tags) == ("10.0.1.1:8443", "52-54-00-12-34-56", {"rack": "r"})
