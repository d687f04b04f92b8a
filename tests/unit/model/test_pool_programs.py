"""What a pool's machines run in common is counted by votes, of which each machine has one."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.model.pool_programs import HostPrograms, PoolPrograms, PoolTally, census_id, key_of, salt_of

SALT = salt_of("default")
NAMES = ("acme-agent", "train", "k3s", "backup")
KEYS = {name: key_of(SALT, name) for name in NAMES}


def a_host(*lasting: str, recent: Sequence[str] = (), ports: tuple[int, ...] = (22,)) -> HostPrograms:
    """A machine that hands over these services by their names."""
    return HostPrograms(
        lasting="".join(KEYS[each] for each in lasting), recent="".join(KEYS[each] for each in recent), ports=ports
    )


def counted(hosts: Sequence[HostPrograms | None]) -> PoolPrograms | None:
    """What a pool of these machines says."""
    tally = PoolTally()
    for host in hosts:
        tally.add(host)
    return tally.census()


HOSTS = st.lists(
    st.one_of(
        st.none(),
        st.builds(
            lambda lasting, recent, ports: a_host(*lasting, recent=sorted(recent), ports=tuple(sorted(ports))),
            st.sets(st.sampled_from(NAMES)),
            st.sets(st.sampled_from(NAMES)),
            st.sets(st.sampled_from((22, 6443, 9100, 9460))),
        ),
    ),
    max_size=24,
)
ANYTHING = st.builds(
    HostPrograms,
    lasting=st.one_of(st.text(max_size=40), st.sampled_from([*KEYS.values(), "".join(KEYS.values()) * 30])),
    recent=st.text(max_size=40),
    ports=st.one_of(st.none(), st.lists(st.integers(-5, 70_000), max_size=40).map(tuple)),
)


def test_what_ten_of_twelve_machines_run_is_common_and_what_nine_run_is_not() -> None:
    """At least 80 %, counted in whole machines."""
    ten = counted([a_host("acme-agent")] * 10 + [a_host()] * 2)
    nine = counted([a_host("acme-agent")] * 9 + [a_host("train")] * 3)

    assert ten is not None
    assert nine is not None
    assert ten.common == {KEYS["acme-agent"]: 10}
    assert ten.machines == 12
    assert nine.common == {}


def test_eight_of_ten_are_common_where_all_eight_have_watched_for_a_day() -> None:
    """Seven are not, and no more are eight of which one has just begun."""
    eight = counted([a_host("acme-agent")] * 8 + [a_host()] * 2)
    seven = counted([a_host("acme-agent")] * 7 + [a_host()] * 3)
    young = counted([a_host("acme-agent")] * 7 + [a_host(recent=["acme-agent"])] + [a_host()] * 2)

    assert eight == PoolPrograms(machines=10, common={KEYS["acme-agent"]: 8}, ports={22: 10})
    assert seven == young == PoolPrograms(machines=10, ports={22: 10})


@given(st.lists(st.builds(a_host, st.sampled_from(NAMES)), max_size=9), st.integers(0, 30))
def test_fewer_than_ten_machines_that_hand_over_say_nothing(hosts: list[HostPrograms], older: int) -> None:
    """Agents of earlier versions beside them change nothing of that."""
    assert counted([*hosts, *[None] * older]) is None


def test_what_began_on_every_machine_today_is_not_common() -> None:
    """A job that somebody began on all machines has not been watched for a day."""
    census = counted([a_host("acme-agent", recent=["train"])] * 200)

    assert census is not None
    assert set(census.common) == {KEYS["acme-agent"]}


def test_a_machine_that_has_just_begun_votes_for_what_others_have_watched() -> None:
    """Else a pool that grows would never know what its machines have in common."""
    census = counted([a_host("acme-agent")] * 10 + [a_host(recent=["acme-agent"])] * 90)

    assert census is not None
    assert census.common == {KEYS["acme-agent"]: 100}


def test_agents_that_hand_nothing_over_count_as_machines_without_it() -> None:
    """Ten of a hundred are not the pool."""
    census = counted([a_host("acme-agent")] * 12 + [None] * 88)

    assert census is not None
    assert census.common == {}


def test_a_port_that_one_machine_alone_has_is_unusual() -> None:
    """The server of a cluster among its eleven agents; two pools in one have each their own ports."""
    census = counted([a_host(ports=(22, 10250))] * 11 + [a_host(ports=(22, 10250, 6443))])
    mixed = counted([a_host(ports=(22, 80))] * 8 + [a_host(ports=(22, 8080))] * 4)

    assert census is not None
    assert mixed is not None
    assert 6443 not in census.ports
    assert census.has_common_port(10250)
    assert not census.has_common_port(6443)
    assert set(mixed.ports) == {22, 80, 8080}


@given(HOSTS, st.integers(0, 23), ANYTHING)
def test_one_agent_has_one_vote_whatever_it_says(
    hosts: list[HostPrograms | None], place: int, said: HostPrograms
) -> None:
    """Whatever one agent says, only what is one vote from its limit may change for the others."""
    honest = counted([*hosts[:place], None, *hosts[place:]])
    broken = counted([*hosts[:place], said, *hosts[place:]])

    if honest is None or broken is None:  # it may be the tenth that hands something over
        handing = sum(host is not None for host in hosts)
        assert honest is broken or handing == 9
        return
    assert broken.machines == honest.machines
    for key in broken.common.keys() - honest.common.keys():
        without = sum(key in _keys(host) for host in hosts if host is not None)
        lasting = sum(key in host.lasting for host in hosts if host is not None)
        assert without + 1 == broken.common[key]
        assert lasting >= 7
    assert honest.common.keys() <= broken.common.keys()


@given(HOSTS, ANYTHING)
def test_what_an_agent_says_never_makes_a_service_of_itself_alone_common(
    hosts: list[HostPrograms | None], said: HostPrograms
) -> None:
    """What no other machine runs is never common, and no number of keys makes the census long."""
    census = counted([*hosts, said])

    if census is not None:
        known = {key for host in hosts if host is not None for key in _keys(host)}
        assert census.common.keys() <= known
        assert len(census.text) < 8000


@given(HOSTS, st.sampled_from(NAMES))
def test_work_and_gpus_on_more_machines_never_make_a_service_common(
    hosts: list[HostPrograms | None], name: str
) -> None:
    """A machine leaves out what worked or held a GPU: with fewer such votes nothing becomes common."""
    before = counted(hosts)
    key = KEYS[name]
    for place, host in enumerate(hosts):
        if host is None or key not in _keys(host):
            continue
        less = replace(host, lasting=_without(host.lasting, key), recent=_without(host.recent, key))
        after = counted([*hosts[:place], less, *hosts[place + 1 :]])
        assert (set() if after is None else after.common.keys()) <= (set() if before is None else before.common.keys())


@given(HOSTS)
def test_a_census_is_read_as_it_was_sent(hosts: list[HostPrograms | None]) -> None:
    """And its text, which its id is made of, does not depend on the order of the answers."""
    census, again = counted(hosts), counted(hosts[::-1])

    if census is not None and again is not None:
        assert PoolPrograms.from_text(census.text) == census
        assert census_id(census.text) == census_id(again.text)


@given(st.text(max_size=60))
def test_no_text_whatever_breaks_the_reader_of_a_census(text: str) -> None:
    """It is a census, or it is refused."""
    with suppress(ValueError):
        assert PoolPrograms.from_text(text).text


def test_a_census_that_is_too_long_is_refused() -> None:
    """A request's head has no room for more."""
    with pytest.raises(ValueError, match="no census"):
        PoolPrograms.from_text("12" + f"~{KEYS['train']}12" * 2000)


def test_keys_are_those_of_one_fleet() -> None:
    """The same program has another key in another fleet, and says nothing of its name."""
    assert key_of(salt_of("a"), "acme.service") == key_of(salt_of("a"), "acme.service")
    assert key_of(salt_of("a"), "acme.service") != key_of(salt_of("b"), "acme.service")
    assert len(KEYS["train"]) == 12
    assert "train" not in KEYS["train"]


def _keys(host: HostPrograms) -> set[str]:
    text = host.lasting + host.recent
    return {text[at : at + 12] for at in range(0, len(text), 12)}


def _without(keys: str, key: str) -> str:
    return "".join(each for each in (keys[at : at + 12] for at in range(0, len(keys), 12)) if each != key)
