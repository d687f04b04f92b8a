"""Profiles as they are read: what is not written is filled in once, and `config show` says where each value is from."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from gpuwatch.cli.config import config
from gpuwatch.config.settings import Settings
from gpuwatch.policies import PoolRules
from gpuwatch.policies.idle_settings import IdleRules, resolve_rules
from tests.support.builders.configurations import mistakes, read
from tests.support.builders.fleet import HOUR


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file to write configurations to."""
    return tmp_path / "gpuwatch.yaml"


def shown(file: Path, text: str, *options: str) -> dict[str, dict[str, str]]:
    """What `config show --json` says of such a file."""
    file.write_text(text)
    done = CliRunner().invoke(config, ["show", "--config", str(file), "--json", *options])
    assert done.exit_code == 0, done.output
    found: dict[str, dict[str, str]] = json.loads(done.output)["settings"]
    return found


@pytest.mark.parametrize("text", ["", "pools:", "pools: {default: }", "pools: {default: {idle: }}"])
def test_what_is_not_written_is_balanced(file: Path, text: str) -> None:
    """Wherever the file ends: the values are those of the profile balanced."""
    assert read(file, text).rulebook.pool("default") == PoolRules()


def test_a_word_decides_what_is_not_written(file: Path) -> None:
    """In its pool alone; nothing is inherited."""
    pools = read(file, "pools: {a: {profile: eager, idle: {stalled: report}}, b: {profile: cautious}, c: {}}").pools

    assert pools["a"].idle == resolve_rules(IdleRules(stalled="report"), "eager", {"stalled"})
    assert pools["b"].idle == resolve_rules(IdleRules(), "cautious")
    assert pools["c"] == PoolRules()


def test_a_value_that_equals_a_default_counts_as_written(file: Path) -> None:
    """`timeout: 30m` in a cautious pool is half an hour, though other pools have it without saying so."""
    found = read(file, "pools: {a: {profile: cautious, idle: {timeout: 30m, parked: stop}}}").pools["a"].idle

    assert (found.timeout, found.parked, found.occupied) == (1800.0, "stop", "report")


def test_variables_and_anchors_write_as_well(file: Path) -> None:
    """As they do everywhere."""
    text = "pools:\n  a: &a {profile: eager, idle: {parked: report}}\n  b: {<<: *a, profile: cautious}\n"
    env = {"GPUWATCH_POOLS__A__PROFILE": "balanced", "GPUWATCH_POOLS__B__IDLE__OCCUPIED": "stop"}
    pools = read(file, text, env).pools

    assert (pools["a"].idle.parked, pools["a"].idle.occupied_timeout) == ("report", 16 * HOUR)
    assert (pools["b"].idle.parked, pools["b"].idle.occupied, pools["b"].idle.stalled) == ("report", "stop", "report")


def test_a_slip_is_told(file: Path) -> None:
    """In the word, and in waits that a profile would decide."""
    assert "expected: one of cautious, balanced, eager" in mistakes(file, "pools: {a: {profile: bold}}")
    assert "30s is too short" in mistakes(file, "pools: {a: {idle: {occupied_timeout: 30s}}}")
    assert "30s is too short" in mistakes(file, "pools: {a: {idle: {owner_grace_period: 30s}}}")
    assert "expected: one of stop, terminate, report" in mistakes(file, "pools: {a: {idle: {occupied: }}}")


def test_a_profiles_own_wait_may_exceed_what_prometheus_shows(file: Path) -> None:
    """Such nodes then stay; a wait that somebody has written is refused."""
    source = "signals: {source: promql, promql: {url: 'http://p:9090', dialect: dcgm, lookback: 2h}}\n"

    assert read(file, source).rulebook.pool("default").idle.parked == "stop"
    assert "parked_timeout" in mistakes(file, source + "pools: {a: {idle: {parked: stop, parked_timeout: 3h}}}")


def test_every_setting_is_shown_with_its_source(file: Path) -> None:
    """A line of the file, the profile with its name, or the default."""
    found = shown(file, "pools:\n  night.batch:\n    profile: eager\n    idle: {occupied: report}\n")

    assert found["pools.night.batch.profile"] == {"value": "eager", "source": f"{file}:3"}
    assert found["pools.night.batch.idle.occupied"] == {"value": "report", "source": f"{file}:4"}
    assert found["pools.night.batch.idle.timeout"] == {"value": "learned", "source": "profile eager"}
    assert found["pools.night.batch.idle.fresh_timeout"] == {"value": "15m", "source": "profile eager"}
    assert found["pools.night.batch.idle.owner_grace_period"] == {"value": "30m", "source": "profile eager"}
    assert found["pools.night.batch.idle.action"] == {"value": "stop", "source": "default"}
    assert found["pools.night.batch.approval"] == {"value": "false", "source": "default"}
    assert found["pools.default.idle.occupied_timeout"] == {"value": "16h", "source": "profile balanced"}


def test_one_pool_can_be_shown(file: Path) -> None:
    """A pool that there is not is a mistake."""
    assert all(key.startswith("pools.a.") for key in shown(file, "pools: {a: {}, b: {}}", "--pool", "a"))
    done = CliRunner().invoke(config, ["show", "--config", str(file), "--pool", "A"])
    assert (done.exit_code, "no such pool" in done.output) == (2, True)


def test_the_text_has_a_line_for_each_setting(file: Path) -> None:
    """Key, value and source in columns."""
    file.write_text("pools: {default: {profile: cautious}}")
    done = CliRunner().invoke(config, ["show", "--config", str(file)])
    (line,) = [each for each in done.output.splitlines() if each.startswith("pools.default.idle.timeout ")]

    assert line.split() == ["pools.default.idle.timeout", "2h", "profile", "cautious"]


def test_a_broken_file_is_told_as_everywhere(file: Path) -> None:
    """With status 2."""
    file.write_text("pools: {a: {profile: bold}}")
    done = CliRunner().invoke(config, ["show", "--config", str(file)])

    assert (done.exit_code, "is not one of the choices" in done.output) == (2, True)


def test_the_summary_names_the_profile() -> None:
    """`config check` and the controller's first line."""
    assert "pools default (balanced: stop after 15m idle, later a learned wait)" in Settings().summary
