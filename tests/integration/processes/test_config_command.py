"""`gpuwatch config` and `gpuwatch docs` as an operator runs them: real processes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpuwatch import __version__

DEADLINE_SECONDS = 60


def gpuwatch(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """One run of the command line in a clean environment."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("GPUWATCH_")}
    return subprocess.run(
        [sys.executable, "-m", "gpuwatch", *arguments],
        env=clean | variables,
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file to write configurations to."""
    return tmp_path / "gpuwatch.yaml"


DECIDED = "pools: {default: {idle: {instance_store: keep}}, training: {idle: {timeout: 1h, instance_store: discard}}}"


def test_a_right_file_is_confirmed_in_one_line(file: Path) -> None:
    """`config check` says in one line what is in force, and ends with 0."""
    file.write_text(f"fleet: research\n{DECIDED}\nprices: {{warn_older_than: 36500d}}\n")

    done = gpuwatch("config", "check", "--config", str(file), GPUWATCH_MODE="enforce")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (
        f"OK: {file}: mode enforce, fleet research, a round every 1m, pools default "
        "(balanced: stop after 15m idle, later a learned wait), training (balanced: stop after 1h idle), "
        "ledger /var/lib/gpuwatch/ledger.db\n"
    )


def test_pools_that_stop_machines_ask_what_to_do_about_local_disks(file: Path) -> None:
    """Each pool that may stop a machine and has no decision about local disks is named, the default pool too."""
    file.write_text(
        "pools:\n"
        "  training: {idle: {timeout: 1h}}\n"
        "  kept: {idle: {instance_store: keep}}\n"
        "  watched: {profile: cautious, idle: {action: report}}\n"
    )

    done = gpuwatch("config", "check", "--config", str(file))

    assert (done.returncode, done.stderr) == (0, "")
    (line,) = [each for each in done.stdout.splitlines() if each.startswith("Decide: ")]
    assert line.endswith("in use until you set pools.default.idle.instance_store, pools.training.idle.instance_store:")


def test_mistakes_go_to_stderr_with_status_2(file: Path) -> None:
    """`config check` names every mistake with its remedy, and ends with 2."""
    file.write_text("mode: enforce\nledgr: {}\n")

    done = gpuwatch("config", "check", "--config", str(file), GPUWATCH_FLETE="x")

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "environment variable GPUWATCH_FLETE: is not a setting\n    expected: GPUWATCH_FLEET\n"
        f"{file}:2: ledgr: is not a key of the configuration (its value is a section)\n    expected: ledger\n"
    )


def test_the_variable_names_the_file_to_check(file: Path) -> None:
    """Without --config the file of GPUWATCH_CONFIG is checked."""
    file.write_text("fleet: other")

    assert f"OK: {file}: mode observe, fleet other," in gpuwatch("config", "check", GPUWATCH_CONFIG=str(file)).stdout


def test_the_schema_is_json() -> None:
    """`config schema` prints what editors read."""
    assert json.loads(gpuwatch("config", "schema").stdout)["title"] == "gpuwatch.yaml"


def test_help_names_every_command() -> None:
    """`gpuwatch --help` lists the agent and the probe too, although they start without this command line."""
    listed = gpuwatch("--help").stdout

    assert {"agent", "probe", "config", "doctor"} <= {line.split()[0] for line in listed.splitlines() if line.strip()}


@pytest.mark.parametrize("name", ["agent", "probe"])
def test_agent_and_probe_answer_through_either_door(name: str) -> None:
    """The lean start and the command line lead to the same parser."""
    through_click = [
        sys.executable,
        "-c",
        "import sys; from gpuwatch.cli.main import main; sys.exit(main())",
        name,
        "--help",
    ]

    found = subprocess.run(through_click, capture_output=True, text=True, timeout=DEADLINE_SECONDS, check=False)

    assert (found.returncode, found.stdout) == (0, gpuwatch(name, "--help").stdout)


def test_help_does_not_load_what_it_does_not_need() -> None:
    """`gpuwatch --help` stays quick: no validator, no SDK, no scheduler."""
    script = "import sys, gpuwatch.cli.main; print(*{name.partition('.')[0] for name in sys.modules})"

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert not {"pydantic", "yaml", "boto3", "aiohttp", "apscheduler", "rich"} & set(done.stdout.split())


def test_an_unknown_command_is_refused() -> None:
    """A command that does not exist ends with 2 and says so."""
    done = gpuwatch("confg")

    assert done.returncode == 2
    assert "No such command 'confg'" in done.stderr


def test_the_version_is_told() -> None:
    """`gpuwatch --version` prints it."""
    assert gpuwatch("--version").stdout == f"gpuwatch, version {__version__}\n"
