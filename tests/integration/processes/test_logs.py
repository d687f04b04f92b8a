"""Log lines: text for people, with a priority for the journal, or one JSON object each."""

import json
import os
import re
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gpuwatch.config import ConfigError, load, load_handed
from tests.support.real.agents import eventually

_LOGS = """
import logging
from gpuwatch.runtime.log_format import log_to_stderr
log_to_stderr("%(levelname)s %(message)s", {form!r})
logging.info("one %s", "wäre\\n{{}}")
logging.info("by %s", "ann\\x1b[2J\\r\\u202e\\ud800")
try:
    raise ValueError("two\\nlines")
except ValueError:
    logging.getLogger("gpuwatch.cli.controller").exception("it failed")
"""


def printed(form: str, *, journal: bool = False) -> list[str]:
    """The lines of a program that logs one message and one failure."""
    reading, writing = os.pipe()
    status = os.fstat(writing)
    stream = f"{status.st_dev}:{status.st_ino}" if journal else "8:1"
    script = _LOGS.format(form=form)
    environment = {**os.environ, "JOURNAL_STREAM": stream}
    subprocess.run([sys.executable, "-c", script], stderr=writing, env=environment, check=True)
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8") as iowrapper:
        return iowrapper.read().splitlines()


def test_lines_for_the_journal_have_their_priority() -> None:
    """Each line of a traceback too, and none has a time of its own."""
    lines = printed("text", journal=True)

    assert lines[:2] == ["<6>INFO one wäre", "<6>    {}"]
    assert lines[3] == "<3>ERROR it failed"
    assert lines[-2:] == ["<3>    ValueError: two", "<3>    lines"]
    assert all(line.startswith("<3>    ") for line in lines[4:])


def test_lines_for_others_have_the_time() -> None:
    """A service of systemd that writes into a pipe is no different: the journal is another stream then."""
    assert re.match(r"\d{4}-\d\d-\d\d [\d:,]+ INFO one wäre$", printed("text")[0])


def test_nobody_s_words_begin_a_line_or_move_a_cursor() -> None:
    """A tag with a line end or an escape sequence forges no record and hides none."""
    lines = printed("text")

    assert [line for line in lines if not line.startswith("    ")] == [lines[0], lines[2], lines[3]]
    assert lines[2].endswith(r" INFO by ann\x1b[2J\r\u202e\ud800")


@pytest.mark.parametrize("journal", [False, True], ids=["pipe", "journal"])
def test_each_record_is_one_json_object(journal: bool) -> None:
    """Line ends in messages and tracebacks are within it; the journal still gets its priority."""
    lines = printed("json", journal=journal)
    begins = ["<6>", "<6>", "<3>"] if journal else ["", "", ""]
    one, _, failed = (json.loads(line.removeprefix(begin)) for line, begin in zip(lines, begins, strict=True))

    assert [line[:3] for line in lines] == (begins if journal else ['{"t'] * 3)
    assert abs((datetime.now(UTC) - datetime.fromisoformat(one.pop("time"))).total_seconds()) < 600  # noqa: TID251  wall
    assert one == {"level": "INFO", "logger": "root", "message": "one wäre\n{}"}
    assert failed["exception"].startswith("Traceback (most recent call last)")
    assert failed["exception"].endswith("ValueError: two\nlines")
    assert (failed["level"], failed["logger"], failed["message"]) == ("ERROR", "gpuwatch.cli.controller", "it failed")


def test_one_setting_is_for_controller_and_agent(tmp_path: Path) -> None:
    """A key at the file's top or GPUWATCH_LOG_FORMAT; both obey it, and text is the default."""
    file = tmp_path / "gpuwatch.yaml"
    file.write_text("log_format: json\n", encoding="utf-8")

    assert load(file, {}).log_format == load_handed(file, {}).log_format == "json"
    assert load_handed(file, {"GPUWATCH_LOG_FORMAT": "text"}).log_format == "text"
    assert load_handed(None, {}).log_format == "text"
    with pytest.raises(ConfigError, match=r"log_format: .logfmt. is not one of the choices"):
        load_handed(None, {"GPUWATCH_LOG_FORMAT": "logfmt"})


@pytest.mark.parametrize("service", ["agent", "controller"])
def test_a_service_logs_json_from_its_first_line_to_its_last(service: str, tmp_path: Path) -> None:
    """Of the real processes every line is an object, and after SIGHUP they log as the settings then say."""
    file, log = tmp_path / "gpuwatch.yaml", tmp_path / "log"
    (tmp_path / "quiet.yaml").write_text("gpus: [{name: NVIDIA L4, life: [{at: 0s}]}]\n", encoding="utf-8")
    settings = {
        "ledger": {"path": str(tmp_path / "ledger.db")},
        "cloud": {"regions": ["us-east-1"], "endpoint_url": "http://127.0.0.1:9"},
        "controller": {"port": 0},
        "agent": {
            "port": 0,
            "source": "simulated",
            "script": str(tmp_path / "quiet.yaml"),
            "control_socket": "none",
            "health_file": "none",
            "metadata": {"provider": "none"},
        },
    }
    file.write_text(json.dumps({"log_format": "json", **settings}), encoding="utf-8")
    with log.open("w") as stderr:
        running = subprocess.Popen([sys.executable, "-m", "gpuwatch", service, "--config", str(file)], stderr=stderr)
    try:
        eventually(lambda: "serve" in log.read_text(encoding="utf-8"), lambda: log.read_text(encoding="utf-8"))
        file.write_text(json.dumps(settings), encoding="utf-8")
        objects = log.read_text(encoding="utf-8")
        running.send_signal(signal.SIGHUP)
        eventually(lambda: log.read_text(encoding="utf-8").count("serve") > objects.count("serve"))
    finally:
        running.terminate()
        running.wait(30)

    assert all(json.loads(line)["message"] for line in objects.splitlines())
    assert re.search(r"^\d{4}-\d\d-\d\d [\d:,]+ INFO ", log.read_text(encoding="utf-8"), re.MULTILINE)
