"""`gpuwatch status` beside a controller: its last round in place of a look of one's own, or the reason why not."""

import os
import socket
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch import __version__
from gpuwatch.cli.last_round import last_round, socket_beside
from gpuwatch.cli.main import commands
from gpuwatch.cli.quotas import Found
from gpuwatch.cli.round_server import LastRound, serve_rounds
from gpuwatch.config import load
from gpuwatch.config.chosen_file import fingerprint, ledger_path
from gpuwatch.controller.observe.settings import ObserveSettings
from gpuwatch.controller.round import Round
from gpuwatch.controller.web.serve import make_observers
from gpuwatch.controller.web.settings import ControllerSettings
from gpuwatch.controller.web.state import State
from gpuwatch.model.nodes_page import Gpu, NextAction, NodeRow, QuotaRow, RequiredApproval, StopRow
from gpuwatch.money.accounting.settings import CostSettings
from tests.support.builders.small_fleet import a_day

NOTHING = st.none()
TIMES = st.datetimes(timezones=st.just(UTC))
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
USD = st.decimals(allow_nan=False, allow_infinity=False)
ROWS = st.builds(
    NodeRow,
    gpus=st.lists(st.builds(Gpu, health=..., utilization_ratio=NOTHING | NUMBERS), max_size=2).map(tuple),
    owner=...,
    activity=...,
    held_seconds=NOTHING | NUMBERS,
    usd_per_hour=NOTHING | USD,
    notified_at=NOTHING | TIMES,
    next=NOTHING | st.builds(NextAction, at=TIMES, removal_at=NOTHING | TIMES, removal=..., refused_by=...),
    approval=NOTHING | st.builds(RequiredApproval, who=..., at=NOTHING | TIMES),
    stopped=NOTHING | st.builds(StopRow, by=..., at=NOTHING | TIMES),
    price_as_of=NOTHING | st.dates(),
    foreign=...,
    usd_per_hour_of_no_use=st.dictionaries(st.text(), USD, max_size=2),
)
LIMITS = Found(
    rows=(QuotaRow(name="P", cloud=None, region="us-east-1", unit="vCPUs", limit=384.0, used=192.0, left=192.0),),
    troubles=("Quotas in eu-west-1 unavailable: no answer",),
)


class Beside:
    """A controller of the small fleet that has just ended a round, its settings' file, and commands beside it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.asked = folder, 0
        self.desk, self.done = a_day()
        self.file = folder / "gpuwatch.yaml"
        self.file.write_text("fleet: lab\nledger: {path: ledger.db}\n", encoding="utf-8")
        self.state: State = make_observers(
            self.desk.parts,
            self.desk.ledger,
            "lab",
            server=ControllerSettings(),
            signals=ObserveSettings(),
            cost=CostSettings(),
        ).web.state  # type: ignore[union-attr]
        self.state.update(self.done, leading=True)

    @contextmanager
    def serves(self, known: str | None = None) -> Iterator[None]:
        """It answers; `known` is the fingerprint of its settings, if they are others."""
        last = LastRound(
            state=self.state,
            parts=self.desk.parts,
            fingerprint=known or fingerprint(self.file, os.environ),
            ask_limits=self._limits,
        )
        server = serve_rounds(self.folder / "ledger.db", last)
        assert server is not None
        try:
            yield
        finally:
            server.close()

    def status(self, *words: str) -> Result:
        """What the command prints."""
        return CliRunner().invoke(commands, ["--config", str(self.file), "status", *words])

    def _limits(self) -> Found:
        self.asked += 1
        return LIMITS


@pytest.fixture
def beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Beside:
    """The controller; a look of one's own would see the same round, without a cloud."""
    monkeypatch.delenv("COLUMNS", raising=False)
    made = Beside(tmp_path)

    @contextmanager
    def looked(_: Path | None) -> Iterator[tuple[object, Round]]:
        yield made.desk.parts, made.done

    monkeypatch.setattr("gpuwatch.cli.fleet.a_plan", looked)
    monkeypatch.setattr("gpuwatch.cli.quotas.ask_clouds", lambda _: LIMITS)
    return made


@pytest.mark.parametrize(
    "words", [(), ("--json",), ("--state", "idle", "--sort", "cost"), ("--pool", "nope"), ("--owner", "ana", "--json")]
)
def test_the_controllers_round_is_shown_as_a_look_of_ones_own(beside: Beside, words: tuple[str, ...]) -> None:
    """Every line, every field and the exit status; text alone says beneath where it comes from, and how old it is."""
    own = beside.status(*words)
    beside.desk.clock.advance(12.4)
    with beside.serves():
        theirs = beside.status(*words)

    note = "" if "--json" in words or own.exit_code == 2 else "From the controller's round 12s ago.\n"
    assert (theirs.exit_code, theirs.stdout, theirs.stderr) == (own.exit_code, own.stdout + note, own.stderr)


def _other_version(beside: Beside, patch: pytest.MonkeyPatch) -> None:
    del beside
    patch.setattr("gpuwatch.cli.round_server.__version__", "0.9.0")


def _too_old(beside: Beside, patch: pytest.MonkeyPatch) -> None:
    del patch
    beside.desk.clock.advance(3 * beside.desk.interval + 1)


def _slept(beside: Beside, patch: pytest.MonkeyPatch) -> None:
    del patch
    beside.desk.clock.suspend(3 * beside.desk.interval + 1)


def _standby(beside: Beside, patch: pytest.MonkeyPatch) -> None:
    del patch
    beside.state.update(None, leading=False)


def _failed(beside: Beside, patch: pytest.MonkeyPatch) -> None:
    del patch
    beside.state.update(None, leading=True)


def _blind(beside: Beside, patch: pytest.MonkeyPatch) -> None:
    del patch
    beside.state.update(replace(beside.done, trouble="The cloud gives no answer."), leading=True)


def _new(beside: Beside, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(beside.state, "_seen", type(beside.state._seen)())


def _breaks_off(beside: Beside, patch: pytest.MonkeyPatch) -> None:
    del beside
    patch.setattr("gpuwatch.cli.round_server.each_row", lambda *_: iter(()))


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (_other_version, f"it runs gpuwatch 0.9.0, this is {__version__}; restart it"),
        (_too_old, "its last round is 3m1s old"),
        (_slept, "its last round is 3m1s old"),
        (_standby, "this controller waits, "),
        (_failed, "The newest round failed; the controller's log says why."),
        (_blind, "The cloud gives no answer."),
        (_new, "no round has seen the fleet yet"),
        (_breaks_off, "its answer broke off "),
    ],
)
def test_a_round_that_is_not_plainly_of_now_is_not_shown(
    beside: Beside, monkeypatch: pytest.MonkeyPatch, spoil: Callable[[Beside, pytest.MonkeyPatch], None], why: str
) -> None:
    """The command looks itself, and says why."""
    own = beside.status()
    spoil(beside, monkeypatch)
    with beside.serves():
        said = beside.status()

    assert said.stdout.startswith(own.stdout)
    assert said.stdout.removeprefix(own.stdout).startswith(f"Asked now, and not taken from the controller here: {why}")
    assert beside.asked == (spoil is _breaks_off)


def test_other_settings_get_no_round(beside: Beside) -> None:
    """A file that was changed since, or a variable, may name another fleet: the command looks itself."""
    own = beside.status()
    with beside.serves():
        beside.file.write_text("fleet: other\nledger: {path: ledger.db}\n", encoding="utf-8")
        said = beside.status()

    assert said.stdout == (
        f"{own.stdout}Asked now, and not taken from the controller here: it has other settings: the file or a variable "
        "differs from what it read; reload it.\n"
    )


def test_without_a_controller_nothing_is_said_of_one(beside: Beside) -> None:
    """Neither where none ever ran nor where one was killed and left its socket."""
    own = beside.status()
    dead = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    dead.bind(str(socket_beside(beside.folder / "ledger.db")))
    dead.close()

    assert "controller" not in own.stdout.replace("Leading controller, or the last one", "")
    assert beside.status().stdout == own.stdout
    with beside.serves():  # the next controller takes its place
        assert "From the controller's round" in beside.status().stdout


def test_a_pause_counts_from_its_order_on(beside: Beside) -> None:
    """Who pauses a fleet and looks at once sees it: orders are of now, machines of the round."""
    now = beside.desk.clock.now()
    beside.desk.ledger.pause(None, "ann", "upgrade", now)
    with beside.serves():
        said = beside.status()

    assert "Paused: everything until somebody resumes it, by ann: upgrade" in said.stdout


def test_quotas_are_asked_for_every_five_minutes_at_most(beside: Beside) -> None:
    """A cloud counts what is asked of it; who looks each second costs it nothing."""
    with beside.serves():
        for _ in range(3):
            beside.status()
        asked = beside.asked
        beside.desk.clock.advance(301)
        beside.state.update(beside.desk.plan(), leading=True)
        beside.status()

    assert (asked, beside.asked) == (1, 2)


def test_only_the_controllers_user_and_root_may_ask(beside: Beside) -> None:
    """The socket has mode 0600 under any umask, a second controller leaves it alone, and it goes with its own."""
    path = socket_beside(beside.folder / "ledger.db")
    before = os.umask(0)
    try:
        with beside.serves():
            mode = stat.S_IMODE(path.stat().st_mode)
            last = LastRound(state=beside.state, parts=beside.desk.parts, fingerprint="", ask_limits=Found)
            second = serve_rounds(beside.folder / "ledger.db", last)
            shown = beside.status().stdout
    finally:
        os.umask(before)

    assert (mode, second, "From the controller's round" in shown, path.exists()) == (0o600, None, True, False)


@pytest.mark.parametrize("question", [b"", b"{}", b"\x00\xff", b'{"settings": 1}'])
def test_what_is_no_question_gets_no_answer(beside: Beside, question: bytes) -> None:
    """And the next one does."""
    with beside.serves(), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
        line.connect(str(socket_beside(beside.folder / "ledger.db")))
        line.sendall(question)
        line.shutdown(socket.SHUT_WR)
        answer = line.recv(100)

        assert answer == b""
        assert "From the controller's round" in beside.status().stdout


def test_in_a_shared_folder_another_users_program_is_asked_nothing(
    beside: Beside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anybody may listen in a folder such as /tmp: the kernel says who does."""
    own = beside.status()
    path = socket_beside(beside.folder / "ledger.db")
    monkeypatch.setattr("gpuwatch.cli.last_round._listener", lambda _: 4711)
    with beside.serves():
        said = beside.status()

    assert said.stdout == (
        f"{own.stdout}Asked now, and not taken from the controller here: user 4711 listens at {path}, and not the "
        "owner of that folder.\n"
    )
    assert beside.asked == 0


@given(st.lists(ROWS, max_size=2))
def test_every_node_arrives_as_it_was_sent(rows: list[NodeRow]) -> None:
    """No field is lost, and none is another."""
    assert msgspec.json.decode(msgspec.json.encode(rows), type=list[NodeRow]) == rows


@given(
    st.lists(st.sampled_from(["file", "text", "GPUWATCH_FLEET=a", "GPUWATCH_CONFIG=x", "HOME=y"]), unique=True),
)
def test_settings_are_the_same_only_with_the_same_file_text_and_variables(changes: list[str]) -> None:
    """What names the file, and the variables of others, do not count."""
    with TemporaryDirectory() as folder:
        first, second = Path(folder, "first.yaml"), Path(folder, "second.yaml")
        first.write_text("fleet: lab\n", encoding="utf-8")
        before = fingerprint(first, {})
        second.write_text("fleet: lab\n", encoding="utf-8")
        if "text" in changes:
            first.write_text("fleet: lab \n", encoding="utf-8")
        given_ = dict(each.split("=") for each in changes if "=" in each)
        after = fingerprint(second if "file" in changes else first, given_)

    assert (after == before) == (not {"file", "text", "GPUWATCH_FLEET=a"} & set(changes))


@pytest.mark.parametrize(
    ("text", "variables"),
    [
        ("", {}),
        ("fleet: lab\n", {}),
        ("ledger: {path: books/ledger.db}\n", {}),
        ("ledger:\n  path: /srv/ledger.db\n", {}),
        ("ledger: {url: postgresql://gpuwatch@db.internal/gpuwatch}\n", {}),
        ("ledger: {path: books/ledger.db}\n", {"GPUWATCH_LEDGER__PATH": "/srv/other.db"}),
        ("ledger: {path: books/ledger.db}\n", {"GPUWATCH_LEDGER__PATH": ""}),
    ],
)
def test_the_ledger_is_found_where_the_settings_have_it(tmp_path: Path, text: str, variables: dict[str, str]) -> None:
    """The short way to its path says what the long way says."""
    file = tmp_path / "gpuwatch.yaml"
    file.write_text(text, encoding="utf-8")

    assert str(ledger_path(file, variables)) == load(file, variables).ledger.path


@pytest.mark.parametrize(
    "text", ["{", "- a\n", "ledger: 3\n", "ledger: {path: 3}\n", "\x00", "a: !!bool x\n", 'a: !!float ""\n']
)
def test_a_file_with_mistakes_is_left_to_its_reader(tmp_path: Path, text: str) -> None:
    """Who looks for a controller by it finds none, and says nothing."""
    file = tmp_path / "gpuwatch.yaml"
    file.write_text(text, encoding="utf-8")

    assert last_round(file, {}) is None
    assert last_round(tmp_path / "none.yaml", {}) is None


def test_a_controllers_file_that_cannot_be_read_is_named_as_ever(tmp_path: Path) -> None:
    """Its settings have no fingerprint; the reader says what is wrong, with exit status 2."""
    done = CliRunner().invoke(commands, ["--config", str(tmp_path), "controller"])

    assert (done.exit_code, "cannot be read: Is a directory" in done.stderr) == (2, True), done.stderr
    assert fingerprint(tmp_path, {}) == ""
