"""alerts/recording.yml: what it is made from, what it records, and that verdicts by it are those by the samples."""

import random
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuwatch.controller.observe.exporters import DIALECTS
from gpuwatch.model.activity import State
from tests.support.builders.exporters import NOW, Damage, a_day, a_machine, a_source, an_agent, an_exporter, at_rest
from tests.support.components import require
from tests.support.paths import ROOT
from tests.support.real.tsdb import History, prometheus
from tools.recording_rules import render

RULES = ROOT / "alerts" / "recording.yml"
NODES = 25


def test_the_file_is_what_the_tables_say() -> None:
    """`make docs` has been run."""
    assert RULES.read_text() == render()


@pytest.mark.component("prometheus")
def test_promtool_agrees_with_the_rules_and_what_they_record() -> None:
    """Their syntax, and the values in alerts/recording_test.yml."""
    for arguments in (["check", "rules", "recording.yml"], ["test", "rules", "recording_test.yml"]):
        command: list[str | Path] = [require("promtool"), *arguments]
        ran = subprocess.run(command, cwd=RULES.parent, capture_output=True, text=True, check=False)

        assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, dict[str, dict[str, list[float]]]]]:
    """A Prometheus that has scraped and recorded, and when each node was seen at work, by dialect."""
    history, folder = History(), tmp_path_factory.mktemp("recorded")
    worked = {dialect: a_day(history, dialect, random.Random(dialect), NODES - 1) for dialect in DIALECTS}
    for dialect in DIALECTS:
        an_exporter(history, dialect, f"10.0.0.{NODES - 1}:9400")
    an_agent(history, "10.0.0.1:9460", "i-1", State.BUSY, gpu_states=(State.IDLE, State.BUSY))
    record(folder, history)
    with prometheus(folder / "recorded", History()) as url:
        yield url, worked


@pytest.mark.component("prometheus")
@pytest.mark.parametrize("dialect", sorted(DIALECTS))
def test_verdicts_by_recorded_series_are_never_more_idle(
    dialect: str, recorded: tuple[str, dict[str, dict[str, list[float]]]]
) -> None:
    """Over nodes with work, gaps and broken samples; and one at rest without a gap is idle by them, too."""
    (url, worked), nodes = recorded, [a_machine(f"i-{number}", f"10.0.0.{number}") for number in range(NODES)]
    plain = a_source(url, dialect).observe(nodes).nodes
    seen = a_source(url, dialect, rules=True).observe(nodes).nodes

    pairs = [(one.activity.state, other.activity.state) for one, other in zip(plain, seen, strict=True)]
    assert pairs[-1] == (State.IDLE, State.IDLE), seen[-1].activity
    assert [pair for pair in pairs if pair[0] is State.BUSY and pair[1] in {State.IDLE, State.PARKED}] == []
    assert [node.id for node in seen[:-1] if any(map(at_rest(node), worked[dialect][node.id]))] == []


@pytest.mark.component("prometheus")
def test_an_agents_gpus_are_counted_by_recorded_series(
    recorded: tuple[str, dict[str, dict[str, list[float]]]],
) -> None:
    """As they are by the samples themselves."""
    node = a_machine("i-1", "10.0.0.1")
    plain, seen = (
        a_source(recorded[0], "gpuwatch", rules=rules).observe([node]).nodes[0].verdict for rules in (False, True)
    )

    assert plain is not None
    assert seen is not None
    assert len(seen.gpus) == node.gpu_count
    assert seen.gpus == plain.gpus


def record(folder: Path, history: History) -> None:
    """Leave in the data of `recorded` that history and what the rules make of it, evaluated by a real Prometheus."""
    with prometheus(folder / "plain", history) as url:
        command = [
            "tsdb",
            "create-blocks-from",
            "rules",
            f"--start={NOW - 5000:.0f}",
            f"--end={NOW:.0f}",
            f"--url={url}",
        ]
        command += ["--eval-interval=15s", f"--output-dir={folder / 'plain' / 'data'}", str(RULES)]
        ran = subprocess.run([require("promtool"), *command], capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stdout + ran.stderr
    (folder / "recorded").mkdir()
    (folder / "plain" / "data").rename(folder / "recorded" / "data")


def test_damage_happens() -> None:
    """The test above is worth nothing if samples arrive whole."""
    kinds = {len(list(Damage(seed)("utilization", 0, [(float(at), 0.0) for at in range(300)]))) for seed in range(40)}

    assert len(kinds) > len(DIALECTS)
