"""agent/evidence/slurm.py: what each node state of Slurm says, by the table of sinfo(1), NODE STATE CODES."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.agent.evidence.slurm import state_says
from gpuwatch.model.activity import State

BUSY, IDLE, UNKNOWN = State.BUSY, State.IDLE, State.UNKNOWN

# Each state as %T and as %t print it, and what it means where squeue shows no job.
STATES = {
    ("allocated", "alloc"): BUSY,
    ("mixed", "mix"): BUSY,
    ("completing", "comp"): BUSY,
    ("draining", "drng"): BUSY,  # its jobs still run
    ("failing", "failg"): BUSY,
    ("planned", "plnd"): BUSY,  # reserved for a pending job
    ("idle",): IDLE,
    ("drained", "drain"): IDLE,  # takes no jobs, and has none
    ("blocked", "block"): UNKNOWN,
    ("down",): UNKNOWN,
    ("fail",): UNKNOWN,
    ("future", "futr"): UNKNOWN,
    ("inval",): UNKNOWN,
    ("maint",): UNKNOWN,
    ("perfctrs", "npc"): UNKNOWN,
    ("power_down", "pow_dn"): UNKNOWN,
    ("powered_down",): UNKNOWN,
    ("powering_down",): UNKNOWN,
    ("powering_up", "power_up", "pow_up"): UNKNOWN,
    ("reboot_issued",): UNKNOWN,
    ("reboot_requested", "boot"): UNKNOWN,
    ("reserved", "resv"): UNKNOWN,
    ("unknown", "unk"): UNKNOWN,
}
# What each flag makes of an idle node.
FLAGS = {
    "*": UNKNOWN,  # slurmctld cannot reach slurmd
    "~": UNKNOWN,  # powered off, and yet the agent runs
    "#": UNKNOWN,  # powering up or being configured
    "!": UNKNOWN,  # to be powered off
    "%": UNKNOWN,  # being powered off
    "$": UNKNOWN,  # in a maintenance reservation
    "@": UNKNOWN,  # to be rebooted
    "^": UNKNOWN,  # being rebooted
    "-": BUSY,  # planned for a job
    "+": BUSY,  # a job completes
}
WORDS = [word for words in STATES for word in words]
MEANT = {word: says for words, says in STATES.items() for word in words}


@pytest.mark.parametrize("word", WORDS)
def test_each_state(word: str) -> None:
    """In either case."""
    assert (state_says(word), state_says(word.upper())) == (MEANT[word], MEANT[word])


@pytest.mark.parametrize("flag", FLAGS)
@pytest.mark.parametrize("word", ["idle", "drained"])
def test_each_flag(word: str, flag: str) -> None:
    """No flag leaves a node idle."""
    assert state_says(word + flag) is FLAGS[flag]


@pytest.mark.parametrize(
    ("state", "says"),
    [
        ("IDLE+PLANNED", BUSY),
        ("IDLE+COMPLETING", BUSY),
        ("MIXED+DRAIN", BUSY),
        ("MIXED+CLOUD", BUSY),
        ("MIXED-", BUSY),
        ("ALLOCATED+", BUSY),
        ("ALLOCATED+MAINTENANCE*", BUSY),
        ("IDLE+DRAIN", IDLE),
        ("IDLE+CLOUD", IDLE),
        ("IDLE+DYNAMIC_NORM", IDLE),
        ("IDLE+CLOUD+POWERED_DOWN", UNKNOWN),
        ("IDLE+CLOUD+POWERING_UP#", UNKNOWN),
        ("IDLE+NOT_RESPONDING", UNKNOWN),
        ("IDLE+MAINTENANCE", UNKNOWN),
        ("IDLE+RESERVED", UNKNOWN),
        ("IDLE+REBOOT_REQUESTED", UNKNOWN),
        ("IDLE+CLOUD*", UNKNOWN),
        ("DOWN+CLOUD", UNKNOWN),
        ("CLOUD", UNKNOWN),
        ("idle idle", UNKNOWN),
        ("idle?", UNKNOWN),
        ("+idle", UNKNOWN),
        ("idle++drained", UNKNOWN),
        ("", UNKNOWN),
        ("*", UNKNOWN),
        ("\u0131dle", UNKNOWN),
    ],
)
def test_states_together(state: str, says: State) -> None:
    """As `scontrol show node` and `sinfo -O StateComplete` join them."""
    assert state_says(state) is says


@given(
    words=st.lists(st.sampled_from([*WORDS, "cloud", "something_new"]), min_size=1, max_size=4),
    flags=st.text("*~#!%$@^+-", max_size=3),
)
def test_nothing_makes_a_state_less_busy(words: list[str], flags: str) -> None:
    """Any word or flag of a job is busy; idle needs every word to say so, and no flag."""
    says = state_says("+".join(words) + flags)
    busy = any(MEANT.get(word) is BUSY for word in words) or set(flags) & {"-", "+"}

    assert (says is BUSY) == bool(busy)
    if says is IDLE:
        assert not flags
        assert all(MEANT.get(word) is IDLE or word == "cloud" for word in words)


@given(st.text(max_size=20))
def test_an_unknown_word_is_doubt(state: str) -> None:
    """Whatever a later Slurm, or something that is no Slurm, says."""
    if state.lower() not in {"idle", "drained", "drain"}:
        assert state_says(state) is not IDLE or set(state.lower().split("+")) <= {"idle", "drained", "drain", "cloud"}
