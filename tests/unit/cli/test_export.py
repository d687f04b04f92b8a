"""`gpuwatch export`: what comes with gpuwatch reaches a folder whole, and nobody's changes are lost."""

import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from gpuwatch.cli.main import commands
from gpuwatch.cli.shipped import files_below
from tests.support.paths import ROOT

KINDS = ("alerts", "dashboards", "units", "iam", "helm", "kustomize")


def export(*arguments: str | Path) -> Result:
    """The command's outcome."""
    return CliRunner().invoke(commands, ["export", *map(str, arguments)])


def texts(folder: Path) -> dict[str, str]:
    """Every file below a folder."""
    return {
        path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.mark.parametrize("kind", KINDS)
def test_each_file_that_is_written_is_named(kind: str, tmp_path: Path) -> None:
    """Its path and that it is new; the folder is made."""
    done = export(kind, tmp_path / "a" / "b")

    assert done.exit_code == 0, done.output
    found = texts(tmp_path / "a" / "b")
    assert found
    for name in found:
        assert f"written    {tmp_path}/a/b/{name}\n" in done.output


def test_what_python_compiled_is_no_file_of_ours(tmp_path: Path) -> None:
    """In a clone, `make docs` leaves bytecode beside the dashboards."""
    (tmp_path / "source" / "__pycache__").mkdir(parents=True)
    (tmp_path / "source" / "__pycache__" / "boards.cpython-311.pyc").write_bytes(b"\xa7\r\r\n")
    (tmp_path / "source" / "boards.py").write_text("BOARDS = ()\n", encoding="utf-8")

    assert dict(files_below(tmp_path)) == {"source/boards.py": "BOARDS = ()\n"}


@pytest.mark.parametrize("kind", KINDS)
def test_a_second_export_changes_no_file(kind: str, tmp_path: Path) -> None:
    """Files that are right already are left as they are, without --force."""
    export(kind, tmp_path)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
    done = export(kind, tmp_path)

    assert done.exit_code == 0
    assert done.output.count("unchanged") == len(before)
    assert {path: path.stat().st_mtime_ns for path in before} == before


@pytest.mark.parametrize("kind", KINDS[1:])  # alerts are one file
def test_a_changed_file_is_kept_unless_force_is_given(kind: str, tmp_path: Path) -> None:
    """And no other file is written beside it: an old file and new ones would be a mixture."""
    export(kind, tmp_path)
    right = texts(tmp_path)
    first, *_, last = sorted(tmp_path.rglob("*.*"))
    first.write_text("mine", encoding="utf-8")
    last.unlink()
    refused = export(kind, tmp_path)

    assert refused.exit_code == 2
    assert str(first) in refused.output
    assert "--force" in refused.output
    assert first.read_text(encoding="utf-8") == "mine"
    assert not last.exists()
    forced = export(kind, tmp_path, "--force")
    assert f"replaced   {first}\n" in forced.output
    assert texts(tmp_path) == right


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """Where a file is in the way, there is a sentence and exit status 2."""
    (tmp_path / "file").write_text("", encoding="utf-8")
    done = export("units", tmp_path / "file" / "below")

    assert done.exit_code == 2
    assert f"{tmp_path}/file/below" in done.output
    assert "cannot be written" in done.output


def test_dashboards_are_those_of_the_repository(tmp_path: Path) -> None:
    """Byte for byte, and nothing but them."""
    export("dashboards", tmp_path)

    assert texts(tmp_path) == {
        path.name: path.read_text(encoding="utf-8") for path in (ROOT / "dashboards").glob("*.json")
    }


def test_provisioning_names_the_folder_and_the_prometheus_of_this_grafana(tmp_path: Path) -> None:
    """Nobody edits the files by hand, nor again after an upgrade."""
    where = ("--grafana-folder", "/srv/boards", "--prometheus", "https://prometheus.example.com:9090/p")
    done = export("dashboards", tmp_path, "--provisioning", *where)
    providers = yaml.safe_load((tmp_path / "provisioning/dashboards/gpuwatch.yaml").read_text(encoding="utf-8"))
    sources = yaml.safe_load((tmp_path / "provisioning/datasources/gpuwatch.yaml").read_text(encoding="utf-8"))

    assert done.exit_code == 0, done.output
    assert providers["providers"][0]["options"]["path"] == "/srv/boards"
    assert sources["datasources"][0]["url"] == "https://prometheus.example.com:9090/p"
    assert (tmp_path / "fleet.json").exists()


def test_config_maps_are_what_the_sidecar_of_grafana_looks_for(tmp_path: Path) -> None:
    """Each dashboard in one of its own, with the label, below the largest size of an object."""
    export("dashboards", tmp_path, "--configmaps")
    for path in (ROOT / "dashboards").glob("*.json"):
        written = (tmp_path / f"gpuwatch-{path.stem}.yaml").read_text(encoding="utf-8")
        manifest = yaml.safe_load(written)

        assert manifest["kind"] == "ConfigMap"
        assert manifest["metadata"]["labels"]["grafana_dashboard"] == "1"
        assert json.loads(manifest["data"][f"gpuwatch-{path.name}"]) == json.loads(path.read_text(encoding="utf-8"))
        assert len(written) < 1024 * 1024


def test_units_start_the_program_that_was_named(tmp_path: Path) -> None:
    """Nothing else in them differs from those of the repository."""
    export("units", tmp_path, "--exec", "/opt/gpuwatch/bin/gpuwatch")
    shipped = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "systemd").iterdir()}

    assert texts(tmp_path) == {
        name: text.replace("=/usr/local/bin/gpuwatch ", "=/opt/gpuwatch/bin/gpuwatch ")
        for name, text in shipped.items()
    }
    for which in ("agent", "controller"):
        unit = (tmp_path / f"gpuwatch-{which}.service").read_text(encoding="utf-8")
        assert f"\nExecStart=/opt/gpuwatch/bin/gpuwatch {which}\n" in unit


def test_iam_policies_are_for_the_fleet_that_was_named(tmp_path: Path) -> None:
    """Without options they are the files of the repository."""
    export("iam", tmp_path / "default")
    export("iam", tmp_path / "lab", "--fleet", "lab", "--region", "us-east-1", "--region", "eu-west-1")
    ours, other = texts(tmp_path / "default"), texts(tmp_path / "lab")

    assert ours == {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "iam").glob("*.json")}
    assert set(other) == set(ours)
    assert '"aws:ResourceTag/gpuwatch:fleet": "lab"' in other["reclaim.json"]
    assert "default" not in other["reclaim.json"]
    assert json.loads(other["observe.json"])["Statement"][0]["Condition"] == {
        "StringEquals": {"aws:RequestedRegion": ["us-east-1", "eu-west-1"]}
    }


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("units", "--exec", "bin/gpuwatch"), "absolute path"),
        (("units", "--exec", "/opt/my programs/gpuwatch"), "without blanks"),
        (("iam", "--fleet", "*"), "'*' must be the value of a tag"),
        (("iam", "--provider", "awz"), "'awz' is not one of"),
        (("iam", "--fleet", " "), "must be the value of a tag"),
        (("dashboards", "--prometheus", "prometheus:9090"), "http://"),
        (("dashboards", "--grafana-folder", "boards"), "absolute path"),
        (("dashboards", "--provisioning", "--configmaps"), "choose one"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_would_not_work_is_refused(arguments: tuple[str, ...], words: str, tmp_path: Path) -> None:
    """Before a file is written; a fleet `*` would allow to stop machines of all fleets."""
    kind, *options = arguments
    done = export(kind, tmp_path / "out", *options)

    assert done.exit_code == 2
    assert words in done.output
    assert not (tmp_path / "out").exists()
