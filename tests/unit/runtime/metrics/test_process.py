"""runtime/metrics/process.py: the figures of this process are those that all Prometheus clients show."""

from pathlib import Path

import pytest
from prometheus_client.process_collector import ProcessCollector

from gpuwatch.runtime.metrics.process import ProcessFigures, process_families


def test_the_figures_are_prometheus_clients() -> None:
    """The same names; what does not change from one look to the next has the same value."""
    ours = {name: value for name, _, value in ProcessFigures().samples()}
    theirs = {
        sample.name: sample.value for each in ProcessCollector(registry=None).collect() for sample in each.samples
    }
    same = {"process_start_time_seconds", "process_max_fds", "process_open_fds"}

    assert {family.name for family in process_families("x")} == set(ours)
    assert {name: ours[name] for name in same} == pytest.approx({name: theirs[name] for name in same}, abs=1)
    assert ours["process_cpu_seconds_total"] == pytest.approx(theirs["process_cpu_seconds_total"], abs=1.0)
    assert ours["process_resident_memory_bytes"] == pytest.approx(theirs["process_resident_memory_bytes"], rel=0.2)


def test_what_cannot_be_read_has_no_sample(tmp_path: Path) -> None:
    """Of a /proc without anything nothing is told; without the time of boot all but the start."""
    own = tmp_path / "self"
    bare = list(ProcessFigures(tmp_path).samples())
    own.mkdir()
    (own / "stat").write_text(f"1 (a) b) S {' '.join(map(str, range(4, 53)))}", encoding="ascii")
    (own / "fd").mkdir()
    (own / "limits").write_text("Max open files            unlimited            4096\n", encoding="ascii")

    assert bare == []
    assert [name for name, _, _ in ProcessFigures(tmp_path).samples()] == [
        "process_resident_memory_bytes",
        "process_cpu_seconds_total",
        "process_open_fds",
    ]
