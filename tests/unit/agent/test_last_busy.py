"""agent/last_busy.py: what reset the idle time last, of each signal, over any life of a node."""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.agent import last_busy
from gpuwatch.agent.activity import ActivityRules, Memory, Sample, fold
from gpuwatch.agent.last_busy import KEPT_SECONDS, MOST, SETTINGS, Kept, remember, signal_of, with_owners
from gpuwatch.agent.settings import AgentSettings
from gpuwatch.model.activity import Activity, Evidence, State, WorkOwner
from gpuwatch.model.gpu import GpuReading
from tests.support.builders.gpu import GIB, a_busy_reading, a_process, a_reading, a_sample

RULES = ActivityRules()
SIGNALS = ("people", "cpu", "disk", "network", "jupyter", "slurm", "snooze")
DAY = 86400.0


def says(name: str, state: State = State.BUSY, **more: Any) -> Evidence:  # noqa: ANN401  any field of Evidence
    """A signal of the host."""
    given_: dict[str, Any] = {"observed": 1.4, "limit": 0.8, "unit": "cores", "source": "a test", **more}
    return Evidence(name=name, says=state, **given_)


class Life:
    """A node's folds, sample by sample, with what is remembered."""

    def __init__(self) -> None:
        """Nothing was seen."""
        self.memory = Memory()
        self.known: tuple[Kept, ...] = ()
        self.seconds = 0.0

    def sample(self, *entries: Any, host: tuple[Evidence, ...] = (), after: float = 1.0, **more: Any) -> None:  # noqa: ANN401  as a_sample
        """One more, so many seconds after the last."""
        self.seconds += after
        taken: Sample = replace(a_sample(self.seconds, *entries, **more), host=host)
        before, self.memory = self.memory, fold(self.memory, taken, RULES)
        self.known = remember(self.known, before, self.memory, RULES)

    @property
    def signals(self) -> list[str]:
        """By signal, newest first."""
        return [signal_of(each.evidence.name) for each in self.known]


HOSTS = st.lists(
    st.tuples(
        st.sets(st.sampled_from(SIGNALS)),
        st.sets(st.sampled_from(SIGNALS)),
        st.sampled_from([0.5, 5.0, 9.0, 30.0, 90.0, 4 * DAY]),
    ),
    max_size=30,
)


@given(HOSTS)
def test_the_newest_busy_sample_of_each_signal_is_there_until_it_is_a_week_old(
    steps: list[tuple[set[str], set[str], float]],
) -> None:
    """Whatever else is unknown or was seen in between; newest first; at most 16; with the time of that sample."""
    life, newest = Life(), dict[str, float]()
    for busy, unknown, after in steps:
        host = (*(says(name) for name in sorted(busy)), *(says(name, State.UNKNOWN) for name in sorted(unknown)))
        life.sample(a_reading(), host=host, after=after)
        newest.update(dict.fromkeys(busy, 1000.0 + life.seconds))
        found = {each.evidence.name: each.monotonic_seconds for each in life.known if each.evidence.says is State.BUSY}
        now = 1000.0 + life.seconds

        assert found == {name: at for name, at in newest.items() if now - at <= KEPT_SECONDS}
        assert [each.monotonic_seconds for each in life.known] == sorted(
            (each.monotonic_seconds for each in life.known), reverse=True
        )
        assert len(life.known) <= MOST
        assert len({each.key for each in life.known}) == len(life.known)


@given(HOSTS)
def test_an_idle_time_began_after_the_newest_entry(steps: list[tuple[set[str], set[str], float]]) -> None:
    """Nothing but the start of the agent begins an idle time without an entry that says why."""
    life = Life()
    life.sample(a_reading())
    for busy, unknown, after in steps:
        before = life.memory.node
        host = (*(says(name) for name in sorted(busy)), *(says(name, State.UNKNOWN) for name in sorted(unknown)))
        life.sample(a_reading(), host=host, after=min(after, DAY))
        node = life.memory.node
        if node.shown.state is State.IDLE and node.since != before.since:
            assert life.known, "the idle time began again, and nothing says why"
        if life.known and node.shown.state is State.IDLE:
            assert node.since is not None
            assert node.since >= life.known[0].at


@pytest.mark.parametrize("gpus", [1, 8, 16])
def test_gpus_are_merged_by_kind(gpus: int) -> None:
    """A machine with 16 GPUs has no more entries than one with one; of each kind the furthest above its limit."""
    life = Life()
    life.sample(a_reading(), host=(says("cpu"),))
    life.sample(*(a_busy_reading(number, power_watts=300.0 + 20 * number) for number in range(gpus)))

    assert life.signals == ["gpu.power", "gpu.utilization", "cpu"]
    assert life.known[0].evidence.name == f"gpu{gpus - 1}.power"


@pytest.mark.parametrize(
    ("name", "signal"),
    [
        ("gpu0.utilization_max", "gpu.utilization"),
        ("gpu12.mig3.sm_activity", "gpu.kernels"),
        ("gpuNone.nvlink", "gpu.traffic"),
        ("gpu1.memory_used", "gpu.memory"),
        ("gpu0.something_new", "gpu.other"),
        ("gpu_process_cpu", "gpu_process_cpu"),
    ],
)
def test_a_signal_has_one_name_on_all_machines(name: str, signal: str) -> None:
    """It is a label of a metric: a number of a GPU or of an instance in it would make series without end."""
    assert signal_of(name) == signal


def a_deadlock() -> GpuReading:
    """Full utilization at the power of rest, no memory traffic."""
    return a_reading(utilization_ratio=1.0, utilization_max_ratio=1.0, memory_bandwidth_utilization_ratio=0.0)


def test_busy_evidence_that_was_overruled_does_not_count() -> None:
    """A deadlock's utilization says busy, and the node is stalled: from then on that is what is remembered."""
    life = Life()
    for _ in range(80):
        life.sample(a_deadlock(), after=9.0)
    stalled_at = life.seconds

    assert life.memory.activity.state is State.STALLED
    busy, stalled = (
        next(each for each in life.known if each.evidence.says is state) for state in (State.BUSY, State.STALLED)
    )
    assert stalled.monotonic_seconds == 1000.0 + stalled_at
    assert busy.monotonic_seconds < stalled.monotonic_seconds
    assert stalled.evidence.setting == "agent.activity.stalled_timeout"


def test_idle_signals_of_a_busy_node_are_not_remembered() -> None:
    """Only what was busy; a signal that is unknown beside it did not decide anything."""
    life = Life()
    life.sample(a_reading(), host=(says("cpu"), says("disk", State.IDLE), says("people", State.UNKNOWN)))

    assert life.signals == ["cpu"]


def test_memory_that_was_held_and_a_process_that_was_alive_reset_the_idle_time_too() -> None:
    """Parked and occupied are not idle; what made them so is remembered as what it said."""
    life = Life()
    life.sample(a_reading(memory_used_bytes=20 * GIB, processes=(a_process(7),)))
    life.sample(a_reading())

    held = next(each for each in life.known if "memory" in each.evidence.name)
    assert (held.evidence.says, held.evidence.setting) == (State.PARKED, "agent.activity.held_memory_bytes")


def test_short_doubt_leaves_no_trace_and_long_doubt_does() -> None:
    """`forget_after` is where it begins to reset the idle time."""
    life = Life()
    life.sample(a_reading())
    for _ in range(8):
        life.sample(a_reading(), host=(says("people", State.UNKNOWN, note="no utmp"),), after=5.0)
    short = life.known
    for _ in range(8):
        life.sample(a_reading(), host=(says("people", State.UNKNOWN, note="no utmp"),), after=5.0)
    [doubt] = life.known

    assert short == ()
    assert (doubt.evidence.name, doubt.evidence.says) == ("doubt", State.UNKNOWN)
    assert doubt.evidence.note == "people: no utmp"
    assert doubt.evidence.setting == "agent.activity.forget_after"


def test_a_time_without_readings_is_a_reason() -> None:
    """A machine that slept for minutes begins its idle time again, and says so."""
    life = Life()
    life.sample(a_reading())
    life.sample(a_reading(), after=300.0)

    [gap] = life.known
    assert (gap.evidence.name, gap.evidence.note) == ("doubt", "there was no reading for 5m")
    assert life.memory.activity.held_seconds == 0.0


def test_an_owner_stays_with_its_evidence() -> None:
    """Who did it is still known when it is over."""
    life, owner = Life(), WorkOwner(user="root", unit="fluent-bit.service", process="fluent-bit", pid=812)
    life.sample(a_reading(), host=(says("cpu", owner=owner),))
    life.sample(a_reading(), host=(says("cpu", State.IDLE),), after=9.0)

    assert life.known[0].evidence.owner == owner


def keys(settings: type, path: str) -> Iterator[str]:
    """Every key below a dataclass of settings."""
    for field in fields(settings):
        found = getattr(field.default_factory, "__class__", None) and field.default_factory
        if isinstance(found, type) and is_dataclass(found):
            yield from keys(found, f"{path}.{field.name}")
        yield f"{path}.{field.name}"


@pytest.mark.parametrize("signal", sorted(SETTINGS))
def test_each_named_setting_exists(signal: str) -> None:
    """A key that people cannot set would be bad advice."""
    assert SETTINGS[signal] in set(keys(AgentSettings, "agent"))


def test_only_what_is_not_idle_names_a_setting_and_a_signals_own_word_stays() -> None:
    """Idle evidence needs no change, and verdicts of idle machines stay small."""
    own = says("cpu", setting="agent.evidence.cpu.other")

    assert last_busy.with_setting(says("cpu")).setting == "agent.evidence.cpu.busy_cores"
    assert last_busy.with_setting(says("cpu", State.IDLE)).setting is None
    assert last_busy.with_setting(says("snooze")).setting is None
    assert last_busy.with_setting(own) is own


def test_a_pid_alone_is_named_where_the_host_knows_it() -> None:
    """The driver lists pids; the table of processes has names. What is not known stays, and idle evidence too."""
    held = Evidence(
        name="gpu0.memory_used", says=State.PARKED, observed=3e9, limit=5e8, unit="bytes", source="NVML",
        owner=WorkOwner(pid=7),
    )  # fmt: skip
    other = replace(held, owner=WorkOwner(pid=8))
    alice = WorkOwner(user="alice", process="python3", pid=7)
    activity = Activity(state=State.PARKED, since=None, held_seconds=1.0, evidence=(held, other))
    found = with_owners(activity, {7: alice}.get)

    assert [entry.owner for entry in found.evidence] == [alice, WorkOwner(pid=8)]
    assert with_owners(replace(activity, state=State.IDLE), {7: alice}.get).evidence == activity.evidence


def test_a_user_whom_the_evidence_knows_stays() -> None:
    """A session's leader is root's sshd, and the session is alice's."""
    session = says("people", State.OCCUPIED, owner=WorkOwner(user="alice", pid=7))
    activity = Activity(state=State.OCCUPIED, since=None, held_seconds=1.0, evidence=(session,))
    leader = WorkOwner(user="root", unit="session-3.scope", process="sshd", pid=7)
    (found,) = with_owners(activity, {7: leader}.get).evidence

    assert found.owner == replace(leader, user="alice")
