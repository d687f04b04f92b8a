"""model/evidence_text.py: evidence as people read it, the same on terminals, pages and in mails."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.model.activity import State, WorkOwner
from gpuwatch.model.evidence_text import (
    amount_text,
    evidence_text,
    last_text,
    owner_text,
    owners_text,
    reset_text,
)
from tests.support.builders.fleet import a_verdict, an_activity
from tests.support.builders.last_busy import FLUENT_BIT, busy_last, cpu_evidence


@pytest.mark.parametrize(
    ("owner", "text"),
    [
        (WorkOwner(user="alice", unit="session-3.scope", process="python3", pid=4711),
         "alice's python3, pid 4711, session-3.scope"),
        (FLUENT_BIT, "fluent-bit, fluent-bit.service"),
        (WorkOwner(user="alice", pid=4711), "alice's process, pid 4711"),
        (WorkOwner(user="alice"), "alice"),
        (WorkOwner(pid=4711), "pid 4711"),
        (WorkOwner(unit="Slurm job 42"), "Slurm job 42"),
        (WorkOwner(), None),
        (None, None),
    ],
)  # fmt: skip
def test_an_owner_is_user_program_pid_and_unit_as_far_as_known(owner: WorkOwner | None, text: str | None) -> None:
    """Nothing is said for what is not known."""
    assert owner_text(owner) == text


def test_without_an_amount_the_note_says_what_the_process_does() -> None:
    """That a program waits for its time, or has just begun, is the reason; its name alone is none."""
    sleeper = WorkOwner(user="alice", process="sleep", pid=4711)
    note = "alice's sleep (pid 4711) waits for another 3h"
    waits = replace(cpu_evidence(owner=sleeper, note=note), name="processes", observed=None)

    assert evidence_text(waits) == f"processes was busy: {note}"
    assert evidence_text(replace(waits, note=None)) == "processes was busy: alice's sleep, pid 4711"
    assert "waits" not in evidence_text(cpu_evidence(owner=sleeper, note=note))


@given(st.builds(WorkOwner, user=st.text(), unit=st.text(), process=st.text(), pid=st.integers(1)), st.text())
def test_no_name_of_a_host_reaches_a_reader_unprintable_or_without_end(owner: WorkOwner, note: str) -> None:
    """Users name their programs; a terminal, a page and a mail show one line."""
    texts = [
        owner_text(owner) or "",
        evidence_text(cpu_evidence(owner=owner)),
        evidence_text(cpu_evidence(owner=None, note=note)),
    ]

    assert all(text.isprintable() for text in texts)
    assert max(map(len, texts)) < 400


@pytest.mark.parametrize(
    ("seen", "limit", "unit", "text"),
    [
        (1.4, 0.8, "cores", "1.4 cores, limit 0.8"),
        (0.37, 0.01, "ratio", "37 %, limit 1 %"),
        (1_103_000.0, 1e6, "bytes per second", "1.1 MB/s, limit 1"),
        (20.0 * 2**30, 512.0 * 2**20, "bytes", "21.5 GB, limit 0.54"),
        (8.55208e8, 5.36871e8, "bytes", "0.86 GB, limit 0.54"),
        (1.6672e7, None, "bytes per second", "16.7 MB/s"),
        (0.0004, 0.025, "cores", "0.0004 cores, limit 0.025"),
        (1234.0, 300.0, "watts", "1234 watts, limit 300"),
        (12.0, 1800.0, "seconds since input", "12s since input, limit 30m"),
        (90.0, 60.0, "seconds", "1m30s, limit 1m"),
        (2.0, None, "jobs", "2 jobs"),
        (0.0, None, "", "0"),
        (None, 1800.0, "seconds", None),
    ],
)
def test_an_amount_is_what_was_seen_of_the_limit(
    seen: float | None, limit: float | None, unit: str, text: str | None
) -> None:
    """In units that people read; a zero that was measured is shown, what was not seen is not."""
    assert amount_text(cpu_evidence(observed=seen, limit=limit, unit=unit)) == text


def test_an_idle_node_says_after_what_its_idle_time_began() -> None:
    """One sentence with the signal, the amount, who, and the setting to change."""
    verdict = busy_last(a_verdict(held=720.0, age=0.0), (cpu_evidence(), 720.0), (cpu_evidence(name="people"), 4000.0))

    assert reset_text(verdict) == (
        "Its idle time began 12m ago, after cpu was busy: 1.4 cores, limit 0.8, fluent-bit, fluent-bit.service. "
        "To change: agent.evidence.cpu.busy_cores."
    )
    assert (
        last_text(verdict)
        == "; its idle time began after cpu was busy: 1.4 cores, limit 0.8, fluent-bit, fluent-bit.service"
    )


def test_doubt_that_reset_the_idle_time_is_named() -> None:
    """With its words."""
    doubt = cpu_evidence(
        name="doubt", says=State.UNKNOWN, observed=90.0, limit=60.0, unit="seconds", owner=None, note="slept"
    )

    assert (reset_text(busy_last(a_verdict(age=0.0), (doubt, 7200.0))) or "").startswith(
        "Its idle time began 2h ago, after doubt made its use unknown: 1m30s, limit 1m, slept. To change"
    )


def test_an_agent_that_saw_nothing_busy_says_since_when_it_looks() -> None:
    """Else a reader would conclude that nothing happened before."""
    assert reset_text(busy_last(a_verdict(age=0.0))) == (
        "Its idle time began 2h ago. Nothing was busy since the agent started at 2026-03-01 12:00 UTC; what was before "
        "is not known."
    )


def test_a_busy_node_says_what_keeps_it_busy() -> None:
    """The newest evidence; an unknown node, and an agent that does not say, give no sentence."""
    busy = busy_last(a_verdict(state=State.BUSY, held=300.0), (cpu_evidence(), 0.0))

    assert (reset_text(busy) or "").startswith("It has been busy for 5m: cpu was busy: 1.4 cores, limit 0.8")
    assert reset_text(busy_last(a_verdict(state=State.UNKNOWN), (cpu_evidence(), 30.0))) is None
    assert reset_text(a_verdict()) is None
    assert last_text(busy) == last_text(a_verdict()) == last_text(None) == ""


def test_of_signals_that_were_busy_at_once_one_that_names_a_process_is_told() -> None:
    """It says more."""
    disk = cpu_evidence(name="disk", owner=None)
    verdict = busy_last(a_verdict(age=0.0), (disk, 90.0), (cpu_evidence(), 90.0), (cpu_evidence(name="network"), 99.0))

    assert "after cpu was busy" in (reset_text(verdict) or "")


def test_owners_are_those_of_evidence_that_is_not_idle() -> None:
    """By signal; evidence without an owner names nobody."""
    alive = cpu_evidence(
        name="processes", says=State.OCCUPIED, owner=WorkOwner(user="alice", process="python3", pid=4711)
    )
    at_rest = cpu_evidence(says=State.IDLE)
    activity = replace(an_activity(State.OCCUPIED), evidence=(alive, at_rest, cpu_evidence(owner=None)))

    assert owners_text(activity) == ("processes: alice's python3, pid 4711",)
