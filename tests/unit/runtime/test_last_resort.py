"""An error that nobody foresaw is one line for people, and a record in a daemon's log."""

import errno
import logging
import sys

import pytest

from gpuwatch import __main__ as program
from gpuwatch.config import load
from gpuwatch.runtime.program import VARIABLE, report, sentence


def _raised() -> Exception:
    """An error with a traceback of its own."""
    try:
        dict[str, str]()["\x1b[2Jcolour"]
    except KeyError as error:
        return error
    raise AssertionError


def test_a_command_prints_one_line_and_where_the_rest_is(capsys: pytest.CaptureFixture[str]) -> None:
    """What happened, that it is a bug, and how to see the traceback; what a terminal obeys is shown by its code."""
    status = report(_raised(), "status", {})
    printed = capsys.readouterr()

    assert (status, printed.out) == (2, "")
    assert printed.err.startswith("gpuwatch status: unexpected error: KeyError: ")
    assert "This is a bug in gpuwatch" in printed.err
    assert f"{VARIABLE}=1 gpuwatch status" in printed.err
    assert "Traceback" not in printed.err
    assert "\x1b" not in printed.err


def test_the_traceback_is_printed_where_it_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    """Before the line, so that the line is still the last."""
    report(_raised(), "status", {VARIABLE: "1"})
    printed = capsys.readouterr().err

    assert printed.index("Traceback") < printed.index("unexpected error")
    assert "in _raised" in printed
    assert "\x1b" not in printed


def test_a_daemon_logs_the_traceback(caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]) -> None:
    """In the form of its log, and the service manager starts it again."""
    with caplog.at_level(logging.INFO):
        status = report(_raised(), "controller", {})

    (record,) = caplog.records
    assert status == 1
    assert record.levelno == logging.CRITICAL
    assert record.exc_info is not None
    assert record.exc_info[0] is KeyError
    assert capsys.readouterr().out == ""


def test_a_full_disk_is_no_bug() -> None:
    """The machine's own troubles are named with their place."""
    said = sentence(OSError(errno.ENOSPC, "No space left on device", "/var/lib/gpuwatch/ledger.db"), "gpuwatch pause")

    assert said.startswith("gpuwatch pause: /var/lib/gpuwatch/ledger.db: No space left on device.")
    assert "bug" not in said


@pytest.mark.parametrize("code", [errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.EIO])
def test_a_path_that_cannot_be_is_no_bug(code: int) -> None:
    """Whoever typed it is told what is wrong with it."""
    assert "bug" not in sentence(OSError(code, "cannot be", "x" * 5000), "gpuwatch config")


def test_long_words_are_cut() -> None:
    """A dump of a whole answer helps nobody."""
    assert len(sentence(ValueError("x" * 100_000), "gpuwatch status")) < 600


@pytest.mark.parametrize("command", ["status", "agent"])
def test_the_program_has_it_around_everything(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    """Commands and daemons alike; what is no error, such as the end that a command asks for, is left alone."""
    monkeypatch.setattr(sys, "argv", ["gpuwatch", command])
    monkeypatch.setattr(program, "_run", lambda: 1 / 0)
    status = program.main()

    assert status == {"status": 2, "agent": 1}[command]
    assert "Traceback" not in capsys.readouterr().out

    def ends() -> int:
        raise SystemExit(3)

    monkeypatch.setattr(program, "_run", ends)
    with pytest.raises(SystemExit):
        program.main()


def test_the_variable_is_no_setting() -> None:
    """It looks like one, and settings that do not exist are refused."""
    load(None, {VARIABLE: "1"})
