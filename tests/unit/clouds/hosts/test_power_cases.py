"""Real cases of labs with power: BMCs that are slow, locked, shared or elsewhere, and hosts with another name."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuwatch.clouds import CloudError, NotSentError
from gpuwatch.clouds.hosts.settings import HostSettings, HostsSettings
from gpuwatch.clouds.silence import Past
from gpuwatch.model.fleet import NodeState
from gpuwatch.model.power import PowerAnswer
from tests.support.builders.fleet import a_permit
from tests.support.clouds.hosts.bmc import ONE, TWO, UUIDS, PoweredLab, Woken, powered_lab

_SYSTEMS = "/redfish/v1/Systems"


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[PoweredLab]:
    """Two hosts that run, with their BMCs."""
    with powered_lab(tmp_path) as made:
        yield made


def goes_off(lab: PoweredLab, name: str) -> None:
    """A host is off, as its BMC says, and its agent is silent."""
    lab.bmcs[name].power = "Off"
    lab.silence(name)


def test_a_host_with_a_new_name_has_power_under_it(lab: PoweredLab, tmp_path: Path) -> None:
    """The name that left the file is no other host with the same UUID."""
    file, new = tmp_path / "hosts.json", "gpu-9"
    machine = lab.settings.machines[ONE]

    def write(name: str) -> None:
        labels = {"pool": "train", "bmc": machine.bmc}
        file.write_text(json.dumps([{"targets": [name], "labels": labels}]), encoding="utf-8")

    write(ONE)
    lab.settings = HostsSettings(file=str(file), power=lab.settings.power)
    lab.cloud = lab.anew()
    assert lab.seen(ONE).cannot_stop is None
    lab.agents[new] = PowerAnswer(node_id=new, system_uuid=UUIDS[ONE])
    write(new)
    for _ in range(2):
        lab.cloud.nodes()
        lab.clock.advance(61.0)
    assert [(node.id, node.cannot_stop) for node in lab.cloud.nodes()] == [(new, None)]


def test_a_host_whose_agent_answers_runs_though_its_bmc_is_silent_since_it_was_off(lab: PoweredLab) -> None:
    """Its owner pressed the button while the BMCs' network was down; it is busy, and everybody sees it."""
    lab.cloud.nodes()
    was = lab.agents[ONE]
    goes_off(lab, ONE)
    assert lab.seen(ONE).state is NodeState.STOPPED
    lab.bmcs[ONE].refuses = 503
    assert lab.seen(ONE).state is NodeState.UNKNOWN
    lab.agents[ONE] = was
    found = lab.seen(ONE)
    assert found.state is NodeState.RUNNING
    assert "HTTP 503" in (found.cannot_stop or "")


@pytest.mark.parametrize("shown", ["PoweringOn", "PoweringOff"])
def test_a_bmc_that_falls_silent_on_the_way_up_or_down_leaves_its_host_unknown(lab: PoweredLab, shown: str) -> None:
    """An order on that was never sent is not told as done."""
    lab.cloud.nodes()
    lab.silence(ONE)
    lab.bmcs[ONE].shows = shown
    lab.seen(ONE)
    lab.bmcs[ONE].refuses = 503
    assert lab.seen(ONE).state is NodeState.UNKNOWN
    with pytest.raises(NotSentError):
        lab.cloud.start(ONE, "key")


def test_a_refused_login_is_tried_ever_more_rarely_until_the_password_changes(lab: PoweredLab, tmp_path: Path) -> None:
    """Many BMCs lock a user after some failures, for all who use it; a new password is tried at once."""
    lab.bmcs[ONE].refuses = 401
    for _ in range(24 * 60):
        lab.seen(ONE)
        lab.clock.advance(60.0)
    assert lab.bmcs[ONE].looks < 32
    looks = lab.bmcs[ONE].looks
    lab.bmcs[ONE].refuses = None
    (tmp_path / "password").write_text("another", encoding="utf-8")
    assert lab.seen(ONE).cannot_stop is None
    assert lab.bmcs[ONE].looks > looks


def test_a_login_that_a_chassis_refuses_is_tried_once_for_all_its_hosts(lab: PoweredLab) -> None:
    """All are asked about at the same time, and one look at each would lock the user."""
    names = [f"gpu-{number}" for number in range(1, 9)]
    lab.settings = HostsSettings(machines=dict.fromkeys(names, lab.settings.machines[ONE]), power=lab.settings.power)
    uuids = {name: f"4c4c4544-0051-4a10-8056-c4c04f4e35{number:02}" for number, name in enumerate(names, start=33)}
    lab.agents = {name: PowerAnswer(node_id=name, system_uuid=uuid) for name, uuid in uuids.items()}
    lab.bmcs[ONE].systems = list(uuids.values())[1:]
    lab.bmcs[ONE].refuses, lab.cloud = 401, lab.anew()
    for _ in range(2):
        looks = lab.bmcs[ONE].looks
        assert all("HTTP 401" in (node.cannot_stop or "") for node in lab.cloud.nodes())
        assert lab.bmcs[ONE].looks == looks + 1
        lab.clock.advance(61.0)


def test_a_login_that_a_chassis_takes_no_more_is_tried_once_for_all_its_hosts(lab: PoweredLab) -> None:
    """Somebody changes it on the BMC between two rounds: one host tries the old one, and the pause grows."""
    names = [f"gpu-{number}" for number in range(1, 9)]
    lab.settings = HostsSettings(machines=dict.fromkeys(names, lab.settings.machines[ONE]), power=lab.settings.power)
    uuids = {name: f"4c4c4544-0051-4a10-8056-c4c04f4e35{number:02}" for number, name in enumerate(names, start=33)}
    lab.agents = {name: PowerAnswer(node_id=name, system_uuid=uuid) for name, uuid in uuids.items()}
    lab.bmcs[ONE].systems = list(uuids.values())[1:]
    lab.cloud = lab.anew()
    assert "HTTP 401" not in str([node.cannot_stop for node in lab.cloud.nodes()])
    lab.clock.advance(61.0)
    lab.bmcs[ONE].refuses, looks = 401, lab.bmcs[ONE].looks
    for _ in range(60):
        lab.cloud.nodes()
        lab.clock.advance(61.0)
    assert lab.bmcs[ONE].looks - looks <= 7


def test_a_label_of_a_file_is_no_word_of_an_agent(lab: PoweredLab, tmp_path: Path) -> None:
    """A list of machines that has their UUIDs proves no BMC, also not over a restart."""
    file = tmp_path / "hosts.json"
    labels = {"pool": "train", "bmc": lab.settings.machines[ONE].bmc, "system-uuid": UUIDS[ONE]}
    file.write_text(json.dumps([{"targets": [ONE], "labels": labels}]), encoding="utf-8")
    lab.settings = HostsSettings(file=str(file), power=lab.settings.power)
    goes_off(lab, ONE)
    for _ in range(2):
        lab.cloud = lab.anew()
        past = Past(nodes=tuple(lab.cloud.nodes()))
        lab.cloud = lab.anew()
        lab.cloud.recall(lambda past=past: past)  # type: ignore[misc]
    assert lab.seen(ONE).state is NodeState.UNKNOWN


def test_a_bmc_that_shows_its_host_on_is_named_and_a_doubtful_one_is_not(lab: PoweredLab) -> None:
    """A host that hangs is told from one that is off or cut off."""
    lab.bmcs[TWO].uuid = UUIDS[ONE]
    assert [node.bmc_on for node in lab.cloud.nodes()] == [lab.settings.machines[ONE].bmc, None, None]
    lab.silence(ONE)
    assert lab.seen(ONE).bmc_on is not None
    lab.bmcs[ONE].power = "Off"
    assert lab.seen(ONE).bmc_on is None


def test_a_chassis_is_read_once_for_each_of_its_hosts(lab: PoweredLab) -> None:
    """Two hosts behind one BMC keep their own systems: the next look at both is two reads."""
    machine = lab.settings.machines[ONE]
    lab.bmcs[ONE].systems = [UUIDS[TWO]]
    lab.settings = HostsSettings(machines=dict.fromkeys(UUIDS, machine), power=lab.settings.power)
    lab.cloud = lab.anew()
    lab.cloud.nodes()
    before = lab.bmcs[ONE].looks
    lab.cloud.nodes()
    assert lab.bmcs[ONE].looks - before == 2


def test_a_look_at_a_slow_bmc_ends(lab: PoweredLab) -> None:
    """Each answer of a chassis with sixteen systems is late, and none too late by itself: others do not wait for it."""
    lab.bmcs[ONE].systems = [f"4c4c4544-0051-4a10-8056-c4c04f4e35{number:02}" for number in range(15)]
    lab.bmcs[ONE].late = lambda: lab.clock.advance(9.0)
    assert "did not answer in time" in (lab.seen(ONE).cannot_stop or "")
    assert lab.bmcs[ONE].looks <= 4


def test_a_bmc_that_names_another_path_of_its_own_is_asked_there(lab: PoweredLab) -> None:
    """Some makers write their paths with a slash at the end, and send askers from one to the other."""
    lab.bmcs[ONE].redirects = {_SYSTEMS: f"{_SYSTEMS}/"}
    assert lab.seen(ONE).cannot_stop is None


@pytest.mark.parametrize(
    "elsewhere",
    ["https://10.0.0.9/redfish/v1/Systems/", "//10.0.0.9/redfish/v1/", "/login", "https://[", "/redfish/v1/\u00e9"],
)
def test_a_password_never_follows_to_another_place(lab: PoweredLab, elsewhere: str) -> None:
    """Nor to a page that is none of Redfish, nor to what is no address."""
    lab.bmcs[ONE].redirects = {_SYSTEMS: elsewhere}
    assert "HTTP 308" in (lab.seen(ONE).cannot_stop or "")


@pytest.mark.parametrize("path", ["https://[", "/redfish/v1/\u00e9", "/redfish/v1/\u2100", "//\u2100/redfish/v1/"])
def test_a_bmc_with_a_damaged_path_hides_no_other_host(lab: PoweredLab, path: str) -> None:
    """Its own host cannot be switched off; all others are as they were."""
    lab.bmcs[ONE].path = path
    found = {node.id: node for node in lab.cloud.nodes()}
    assert "no path of Redfish" in (found[ONE].cannot_stop or "")
    assert found[TWO].cannot_stop is None


def test_a_bmc_that_sends_askers_round_in_a_circle_is_left(lab: PoweredLab) -> None:
    """One other path, and no more."""
    lab.bmcs[ONE].redirects = {_SYSTEMS: f"{_SYSTEMS}/x", f"{_SYSTEMS}/x": _SYSTEMS}
    assert "HTTP 308" in (lab.seen(ONE).cannot_stop or "")
    assert lab.bmcs[ONE].looks <= 4


def test_a_name_that_two_hosts_share_is_no_name_of_either() -> None:
    """gpu-1 of two domains, and one address is the other's: the idle one of another pool is not powered off for it."""
    made = Woken()
    names = ("gpu-1.a.example", "gpu-1.b.example")
    machines = {name: HostSettings(pool="train", mac=made.settings.machines[ONE].mac) for name in names}
    made.settings = HostsSettings(machines=machines, power=made.settings.power)
    made.cloud = made.anew()
    made.agents = dict.fromkeys(names, CloudError("not asked"))
    assert [node.name for node in made.cloud.nodes()] == list(names)
    made.heard.close()


class Outage:
    """A host that has been off and on once, as everybody saw, and is switched off by us."""

    def __init__(self, lab: PoweredLab, *, warm: bool = False) -> None:
        self.lab, self.bmc, self.agent = lab, lab.bmcs[ONE], lab.agents[ONE]
        self.bmc.reset_at = "2020-01-01T00:00:00+00:00"  # its clock has lost its battery
        self.lab.cloud.nodes()
        self.is_off("Off")
        self.lab.seen(ONE)
        self.is_on(self.bmc.reset_at if warm else "2020-01-01T00:10:00+00:00")
        self.lab.seen(ONE)

    def is_off(self, power: str) -> None:
        """It is off now."""
        self.bmc.power = power
        self.lab.silence(ONE)

    def is_on(self, reset_at: str | None) -> None:
        """It is on now, and its BMC shows that time from now on."""
        self.bmc.power, self.bmc.reset_at, self.lab.agents[ONE] = "On", reset_at, self.agent

    def restart(self) -> None:
        """No controller looked for an hour, and another process has begun."""
        past = Past(nodes=tuple(self.lab.cloud.nodes()))
        self.lab.clock.advance(3600.0)
        self.lab.cloud = self.lab.anew()
        self.lab.cloud.recall(lambda: past)

    @property
    def proved(self) -> bool:
        """Whether it is off, and its BMC says that it was not on since."""
        found = self.lab.seen(ONE)
        assert found.state is NodeState.STOPPED
        return found.sight is None


def test_a_bmc_with_the_same_last_reset_says_that_its_host_stayed_off_over_outages(lab: PoweredLab) -> None:
    """By whatever clock the BMC has; over several outages, and also where it writes the time anew as the host ends."""
    made = Outage(lab)
    lab.cloud.stop(ONE, "key", permit=a_permit())
    lab.silence(ONE)
    made.bmc.reset_at = "2020-01-01T00:20:00+00:00"
    assert made.proved
    for _ in range(3):
        made.restart()
        assert made.proved
    made.bmc.refuses = 503
    assert lab.seen(ONE).sight is not None
    lab.clock.advance(3600.0)
    made.bmc.refuses = None
    assert made.proved


def test_a_bmc_that_changes_the_time_at_warm_resets_alone_proves_nothing(lab: PoweredLab) -> None:
    """Its host is started, and restarts itself ten minutes later: that is no proof that a start changes the time."""
    made = Outage(lab, warm=True)
    lab.clock.advance(600.0)
    made.is_on("2020-01-01T00:20:00+00:00")
    lab.seen(ONE)
    made.is_off("Off")
    lab.seen(ONE)
    made.restart()
    assert not made.proved


def test_a_start_that_does_not_change_the_time_ends_the_proof(lab: PoweredLab) -> None:
    """A warm reset in the firmware's own test had changed it once: the newest start says more."""
    made = Outage(lab)
    made.is_off("Off")
    assert made.proved
    made.is_on(made.bmc.reset_at)
    lab.seen(ONE)
    made.is_off("Off")
    lab.seen(ONE)
    made.restart()
    assert not made.proved


def test_a_host_that_was_on_during_an_outage_is_its_owners_until_it_runs_again(lab: PoweredLab) -> None:
    """Another time is another start."""
    made = Outage(lab)
    made.is_off("Off")
    assert made.proved
    made.restart()
    made.bmc.reset_at = "2020-01-01T01:00:00+00:00"
    assert not made.proved
    made.restart()
    assert not made.proved


def test_a_host_that_went_off_during_an_outage_is_proved_only_by_the_time_at_which_it_ran(lab: PoweredLab) -> None:
    """A BMC that writes the time at the end, too, cannot say whether there was a start before that."""
    made = Outage(lab)
    for reset_at, proved in ((made.bmc.reset_at, True), ("2020-01-01T05:00:00+00:00", False)):
        made.restart()
        made.is_off("Off")
        made.bmc.reset_at = reset_at
        assert made.proved is proved
        made.is_on("2020-01-01T02:00:00+00:00")
        lab.seen(ONE)


@pytest.mark.parametrize("shown", [None, "2020-01-01T00:00:00Z", "", "soon", "1 2 3 4"])
def test_a_bmc_that_never_changes_the_time_proves_nothing(lab: PoweredLab, shown: str | None) -> None:
    """Nor does one that shows none: such a host stays its owner's after an outage."""
    made = Outage(lab)
    for _ in range(2):
        made.is_on(shown)
        lab.seen(ONE)
        made.is_off("Off")
        lab.seen(ONE)
    assert not made.proved
    made.restart()
    assert not made.proved
