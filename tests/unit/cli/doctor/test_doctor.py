"""The doctor as a whole: its checks are kept apart, its report and its page say everything, its command its status."""

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from gpuwatch.cli.doctor.report import (
    KINDS,
    Examination,
    Finding,
    Severity,
    as_text,
    doctor_document,
    fine,
    make_finding,
)
from gpuwatch.cli.doctor.runner import Check, examine
from gpuwatch.runtime.clock import SystemClock
from tests.support.builders.doctor_findings import codes, the
from tests.support.each import for_each
from tests.support.paths import ROOT
from tools.docs.doctor import line_of, render_doctor_md


def well(_: object) -> Iterator[Finding]:
    """A check that finds nothing wrong."""
    yield fine("well", "it", "it is well")


def test_a_check_that_hangs_takes_no_other_with_it() -> None:
    """It is told as a problem when its time is over; the others' findings are there."""
    never = threading.Event()

    def hang(_: object) -> Iterator[Finding]:
        never.wait()
        yield fine("hang", "it", "never")

    checks = (Check(name="hang", look=hang, seconds=0.1), Check(name="well", look=well))
    findings = examine(checks, None, SystemClock())
    never.set()

    assert [each.code for each in findings] == ["check.no_answer", "well"]
    assert findings[0].severity is Severity.PROBLEM


def test_a_check_that_breaks_is_told_without_its_words() -> None:
    """An exception's text may hold a secret: only its kind and place are told."""

    def broken(_: object) -> Iterator[Finding]:
        raise RuntimeError("password=hunter2")
        yield

    findings = examine((Check(name="broken", look=broken), Check(name="well", look=well)), None, SystemClock())

    assert codes(findings) == ["check.broken"]
    assert "RuntimeError" in findings[0].seen
    assert "hunter2" not in str(findings)


def test_text_and_json_say_the_same() -> None:
    """Each finding has what was looked at, what was seen and, unless fine, a remedy."""
    findings = (make_finding("metadata.hop_limit", "the service", "no token"), fine("port", "port 9460", "it is free"))
    examination = Examination(part="agent", version="1.0", user="gpuwatch (uid 5)", findings=findings)
    text, listed = as_text(examination), doctor_document(examination)

    assert listed.problems == 1
    assert listed.warnings == 0
    assert "1 problem, 0 warnings, 1 fine." in text
    assert "looked at as gpuwatch (uid 5)" in text
    for each in findings:
        assert each.looked_at in text
        assert each.seen in text
        assert (each.remedy is None) == (each.severity is Severity.FINE)
    assert KINDS["metadata.hop_limit"].remedy in " ".join(text.split())


def test_the_page_is_up_to_date() -> None:
    """docs/doctor.md is what `make docs` writes."""
    assert (ROOT / "docs/doctor.md").read_text() == render_doctor_md(), "run `make docs`"


@cache
def sources() -> str:
    """The code of all checks."""
    return "".join(path.read_text() for path in (ROOT / "gpuwatch/cli/doctor").glob("*.py"))


@cache
def lines_of_the_page() -> list[str]:
    """The page, made once."""
    return render_doctor_md().splitlines()


@for_each(KINDS)
def test_every_finding_has_its_line_on_the_page(code: str) -> None:
    """Code, meaning and remedy; and some check can find it."""
    kind = KINDS[code]

    assert line_of(kind) in lines_of_the_page()
    assert re.split(r" (?<!\\)\| ", line_of(kind))[3].removesuffix(" |").replace("\\|", "|") == kind.remedy
    assert f'"{code}"' in sources() or code.startswith("driver."), f"no check finds {code}"


def test_no_finding_is_fine_or_has_no_remedy() -> None:
    """A flaw is a problem or a warning, and each can be mended; of a note people can learn more."""
    assert all(each.severity is not Severity.FINE and each.remedy.endswith(".") for each in KINDS.values())


def test_a_gpu_host_needs_nothing_of_the_controllers() -> None:
    """The agent's checks load no HTTP client, no SDK, no database, no scheduler."""
    script = "import sys, gpuwatch.cli.doctor.agent, gpuwatch.cli.doctor.runner; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    heavy = {"aiohttp", "apscheduler", "boto3", "rich", "sqlalchemy"}

    assert heavy & {name.partition(".")[0] for name in loaded} == set()


def doctor(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """`gpuwatch doctor` as a process of its own."""
    command = [sys.executable, "-m", "gpuwatch", "doctor", *arguments]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    environment |= {"AWS_CONFIG_FILE": "/dev/null", "AWS_EC2_METADATA_DISABLED": "true", **variables}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)


def test_a_problem_is_exit_status_1() -> None:
    """A controller without a region cannot list its fleet; what rests on the fleet was not looked at."""
    done = doctor("controller", "--json", GPUWATCH_LEDGER__PATH="/nowhere/at/all/ledger.db")
    result = json.loads(done.stdout)

    assert done.returncode == 1, done.stderr
    assert result["part"] == "controller"
    seen = {each["code"]: each["severity"] for each in result["findings"]}
    assert seen["cloud.unusable"] == "problem"
    assert seen["cloud.skipped"] == "warning"
    assert "check.broken" not in seen, result


def test_warnings_alone_are_exit_status_0(tmp_path: Path) -> None:
    """An agent of a simulated GPU has no driver to be missing."""
    done = doctor(
        "agent",
        GPUWATCH_AGENT__SOURCE="simulated",
        GPUWATCH_AGENT__PORT="0",
        GPUWATCH_AGENT__METADATA__PROVIDER="none",
        GPUWATCH_AGENT__HEALTH_FILE=str(tmp_path / "health.json"),
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 problems" in done.stdout


def test_a_mistake_in_the_settings_is_exit_status_2() -> None:
    """They are judged first, in the words of every other command."""
    done = doctor("agent", GPUWATCH_AGENT__PORT="eighty")

    assert done.returncode == 2
    assert "agent.port" in done.stderr


def test_nobody_answers_where_nothing_runs() -> None:
    """`--alive` is for health checks: exit status 1 unless it answers."""
    done = doctor("agent", "--alive", "--json", GPUWATCH_AGENT__PORT="1")
    result = json.loads(done.stdout)

    assert done.returncode == 1
    assert [each["code"] for each in result["findings"]] == ["running.down"]


def test_one_finding_is_found_by_its_code() -> None:
    """What the tests look for is there exactly once."""
    findings = [make_finding("gpus.none", "GPUs", "none"), fine("gpus", "GPUs", "2")]

    assert the(findings, "gpus.none").seen == "none"
