"""The commands before a stop, run for real: by whom, with what, until when, and what is told of each."""

import os
import pwd
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuwatch.agent.before_stop_runs import (
    ADMINISTRATOR,
    OWN,
    BeforeStopSettings,
    Person,
    Ran,
    StopRequest,
    answer,
    people,
    run_commands,
)
from gpuwatch.runtime.clock import SystemClock

ASKED = StopRequest(verb="terminate", node_id="i-1")
CLOCK = SystemClock()
ME = pwd.getpwuid(os.geteuid())


def somebody(name: str, home: Path, uid: int = os.geteuid()) -> Person:
    """A person of this host; the tests' own user, unless they are root's."""
    return Person((name, "x", uid, os.getegid(), "", str(home), "/bin/sh"))


def a_home(folder: Path, script: str | None, mode: int = 0o755) -> Path:
    """A home with such a command before a stop."""
    folder.mkdir(parents=True)
    if script is not None:
        path = folder / OWN
        path.parent.mkdir(parents=True)
        path.write_text(script, "utf-8")
        path.chmod(mode)
    return folder


def ran(settings: BeforeStopSettings, *persons: Person) -> list[tuple[str, int | None, str]]:
    """Whose commands ran, how they ended and what they said."""

    def everybody() -> Iterator[Person]:
        yield from persons

    return [(each.whose, each.status, each.says) for each in run_commands(settings, ASKED, CLOCK, everybody).ran]


def test_each_gets_the_action_and_the_home_and_nothing_of_gpuwatchs_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A password's hash among the variables of the unit is not for people's programs."""
    monkeypatch.setenv("GPUWATCH_AGENT__BASIC_AUTH_USERS", "secret")
    script = "#!/bin/sh\necho $GPUWATCH_STOP_ACTION $GPUWATCH_STOP_NODE $HOME $USER $PWD $(env | grep -c secret)\n"
    home = a_home(tmp_path / "alice", script)
    settings = BeforeStopSettings(owners=True, command=("sh", "-c", "env | grep -c secret; echo $HOME-"))

    assert ran(settings, somebody("alice", home)) == [
        ("alice", 0, f"terminate i-1 {home} alice / 0"),
        (ADMINISTRATOR, 0, "-"),
    ]


def test_people_without_a_command_are_not_told_of(tmp_path: Path) -> None:
    """Most have none, and some have not even a home; a command that cannot be run is a failure, not an absence."""
    persons = [
        somebody("none", a_home(tmp_path / "none", None)),
        somebody("homeless", tmp_path / "nowhere"),
        somebody("closed", a_home(tmp_path / "closed", "#!/bin/sh\n", mode=0o600)),
        somebody("broken", a_home(tmp_path / "broken", "#!/no/such/shell\n")),
    ]

    found = ran(BeforeStopSettings(owners=True), *persons)

    assert [(whose, status) for whose, status, _ in found] == [("broken", None), ("closed", None)]
    assert all("could not be started" in says for _, _, says in found)


def test_one_that_takes_too_long_is_killed(tmp_path: Path) -> None:
    """The others have ended meanwhile: they run at the same time."""
    slow = a_home(tmp_path / "slow", "#!/bin/sh\nexec sleep 600\n")
    quick = a_home(tmp_path / "quick", "#!/bin/sh\necho done >&2; exit 9\n")
    found = ran(BeforeStopSettings(owners=True, timeout=4.0), somebody("slow", slow), somebody("quick", quick))

    assert found[0] == ("quick", 9, "done")
    assert found[1][:2] == ("slow", None)
    assert "did not end within 4s" in found[1][2]


def test_what_a_command_says_is_one_short_line_without_control_characters(tmp_path: Path) -> None:
    """It stands in messages, on a page and in a terminal."""
    home = a_home(tmp_path / "eve", "#!/bin/sh\nprintf 'x\\n\\033[2Jcleared %0500d' 1; exit 1\n")
    ((_, _, says),) = ran(BeforeStopSettings(owners=True), somebody("eve", home))

    assert "\033" not in says
    assert len(says) <= 200


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become somebody else")
def test_a_persons_command_has_that_persons_rights_alone(tmp_path: Path) -> None:
    """Root's files are closed to it, whoever runs it."""
    secret = tmp_path / "secret"
    secret.write_text("root's", "utf-8")
    secret.chmod(0o600)
    tmp_path.chmod(0o755)
    for parent in tmp_path.parents[:-2]:
        parent.chmod(parent.stat().st_mode | 0o011)
    home = a_home(tmp_path / "bob", f"#!/bin/sh\nid -u; cat {secret}; exit 0\n")
    ((whose, status, says),) = ran(BeforeStopSettings(owners=True), somebody("bob", home, 54321))

    assert (whose, status) == ("bob", 0)
    assert says == "54321"


def test_people_are_who_may_log_in_and_who_have_a_home(tmp_path: Path) -> None:
    """Not root, not a service, not nobody; each once."""
    (tmp_path / "me").mkdir()
    known = [somebody("svc", tmp_path, 999), somebody("alice", tmp_path, 1000), somebody("nobody", tmp_path, 65534)]
    found = [each.pw_name for each in people(tmp_path, lambda: known)]

    assert found == (["alice"] if os.geteuid() < 1000 else ["alice", ME.pw_name])


@pytest.mark.parametrize("asked", [b"", b"{}", b"[]", b'{"verb":"start","node_id":"i-1"}', b'{"verb":"stop"}', b"\xff"])
def test_what_is_no_request_runs_nothing(asked: bytes, tmp_path: Path) -> None:
    """The socket is the agent's alone, and even so."""
    mark = tmp_path / "ran"
    with pytest.raises(ValueError):  # noqa: PT011  any of msgspec's
        answer(BeforeStopSettings(command=("touch", str(mark))), asked, CLOCK)
    assert not mark.exists()


def test_the_seconds_are_those_that_it_took() -> None:
    """For the sentence of the notice."""
    (found,) = run_commands(BeforeStopSettings(command=("true",)), ASKED, CLOCK).ran

    assert found == Ran(whose=ADMINISTRATOR, status=0, seconds=found.seconds)
    assert 0.0 <= found.seconds < 30.0
