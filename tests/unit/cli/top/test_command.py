"""cli/top/command: options, exit status, and JSON for programs."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gpuwatch.cli.main import commands
from gpuwatch.cli.top.source import AgentSource, NoAgentError
from gpuwatch.model.host_page import HostPage
from tests.support.builders.gpu import a_down
from tests.support.builders.host_page import a_full_host, a_page

URL = "http://127.0.0.1:9460"


def top(*arguments: str, keys: str = "") -> Result:
    """`gpuwatch top` without a terminal."""
    return CliRunner().invoke(commands, ["top", *arguments], input=keys)


@pytest.fixture(autouse=True)
def asked(monkeypatch: pytest.MonkeyPatch) -> list[AgentSource]:
    """Every agent is that of the full host; those that were asked."""
    found: list[AgentSource] = []

    def page(self: AgentSource) -> HostPage:
        found.append(self)
        return a_full_host()

    monkeypatch.setattr(AgentSource, "page", page)
    return found


def test_without_a_terminal_it_prints_once() -> None:
    """Whole, however long a line is, and without colours; `| grep` finds everything."""
    done = top("--agent", URL)

    assert done.exit_code == 0
    assert "degraded: A bad memory row waits for a reset to be replaced (reset it)" in done.output
    assert "\x1b" not in done.output
    assert not any(line.endswith(" ") for line in done.output.splitlines())


def test_columns_says_how_wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """As other programs read it."""
    monkeypatch.setenv("COLUMNS", "60")

    assert max(map(len, top("--agent", URL, "--once").output.splitlines())) == 60


def test_json_is_one_object_with_its_schema() -> None:
    """For programs: the page as the agent gives it, and a note on where it comes from."""
    done = json.loads(top("--agent", URL, "--json").output)

    assert (done["schema"], done["note"], done["hostname"]) == ("gpuwatch.top/1", "", "trainer-7")
    assert done["verdict"]["activity"]["state"] == "busy"
    assert done["verdict"]["at"].endswith("Z")
    assert done["gpus"][0]["memory_total_bytes"] == 80 << 30
    assert done["gpus"][6]["down"]["cause"] == "lost"
    assert {each["pid"] for each in done["processes"]} >= {4711, 5001}
    assert not {key for each in done["processes"] for key in each if "command" in key}


def test_json_keeps_its_fields() -> None:
    """Programs rest on them: a field that goes, or changes its meaning, needs a new schema."""
    done = json.loads(top("--agent", URL, "--json").output)

    assert list(done) == [
        *("schema", "note", "hostname", "why", "verdict", "driver_version", "cuda_version", "gpus", "processes"),
        *("processes_left_out", "snoozes", "trouble"),
    ]
    assert list(done["gpus"][0]) == [
        *("uuid", "index", "name", "state", "held_seconds", "why", "health", "pci_bus_id", "utilization_ratio"),
        *("utilization_max_ratio", "sm_activity_ratio", "memory_used_bytes", "memory_total_bytes", "power_watts"),
        *("power_limit_watts", "temperature_celsius", "clock_events", "processes_listed", "instances", "down"),
    ]
    assert list(done["processes"][0]) == [
        *("pid", "gpus", "user", "program", "kind", "cpu_cores", "container", "namespace", "pod", "pod_uid"),
        *("slurm_job", "unit", "dead"),
    ]


def test_a_host_whose_gpus_cannot_be_read_is_exit_status_1(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a script notices; the page is printed all the same."""
    monkeypatch.setattr(AgentSource, "page", lambda _: a_page(a_down(0)))
    done = top("--agent", URL, "--once")

    assert done.exit_code == 1
    assert "lost: GPU is lost" in done.output


def test_an_agent_that_was_named_and_does_not_answer_is_exit_status_2(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be another host's: nothing is read here in its place."""

    def gone(_: AgentSource) -> HostPage:
        raise NoAgentError("no agent answers at http://gpu-9:9460: Connection refused")

    monkeypatch.setattr(AgentSource, "page", gone)
    done = top("--agent", "http://gpu-9:9460", "--once")

    assert (done.exit_code, done.output) == (2, "no agent answers at http://gpu-9:9460: Connection refused\n")


def test_the_agent_is_found_by_the_configuration(asked: list[AgentSource], tmp_path: Path) -> None:
    """As other commands read it; a variable wins."""
    file = tmp_path / "gpuwatch.yaml"
    file.write_text("agent: {host: 127.0.0.7, port: 1234}\n", encoding="utf-8")

    assert top("--config", str(file), "--once").exit_code == 0
    assert asked[-1].url == "http://127.0.0.7:1234"


def test_a_configuration_that_this_user_may_not_read_is_as_none(
    asked: list[AgentSource], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """People may look at GPUs who may not see the settings; one that they name themselves must be readable."""
    closed = tmp_path / "gpuwatch.yaml"
    closed.write_text("agent: {port: 1234}\n", encoding="utf-8")
    monkeypatch.delenv("GPUWATCH_CONFIG", raising=False)
    monkeypatch.setattr("gpuwatch.config.chosen_file.DEFAULT_PATH", closed)
    monkeypatch.setattr("os.access", lambda *_, **__: False)

    assert top("--once").exit_code == 0
    assert asked[-1].url == "http://127.0.0.1:9460"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--agent", "ftp://x"), "is not the URL of an agent"),
        (("--agent", URL, "--config", "x.yaml"), "give one of them"),
        (("--password-file", "x"), "goes with --user"),
        (("--interval", "0s"), "not above 0"),
        (("--user", "ann", "--password-file", "/nowhere"), "cannot be read"),
    ],
)
def test_options_that_cannot_be_are_explained(arguments: tuple[str, ...], words: str) -> None:
    """Exit status 2 and what would be right."""
    done = top(*arguments)

    assert done.exit_code == 2
    assert words in done.output


def test_a_password_comes_from_a_file_or_the_keyboard(asked: list[AgentSource], tmp_path: Path) -> None:
    """Never from the command line, which everybody on the host can read."""
    file = tmp_path / "password"
    file.write_text("secret\n", encoding="utf-8")

    top("--agent", URL, "--user", "ann", "--password-file", str(file))
    typed = top("--agent", URL, "--user", "ann", keys="secret\n")

    assert [each._headers["Authorization"] for each in asked] == ["Basic YW5uOnNlY3JldA=="] * 2
    assert "secret" not in typed.output


def test_a_broken_configuration_is_told() -> None:
    """As every command tells it."""
    done = top("--config", "/nowhere/gpuwatch.yaml")

    assert done.exit_code == 2


def test_nothing_of_the_controllers_is_loaded() -> None:
    """A GPU host has none of it; and the help of all commands loads no table."""
    script = "import sys, gpuwatch.cli.top.live, gpuwatch.cli.top.source; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    heavy = {"aiohttp", "apscheduler", "boto3", "jinja2", "sqlalchemy", "cryptography"}

    assert heavy & {name.partition(".")[0] for name in loaded} == set()
    assert not any(name.startswith("gpuwatch.controller") for name in loaded)
