"""How etcd and kube-apiserver are built: pinned, from their Go modules, once for all checkouts, and named where not."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.kubernetes_programs import KINDS_OF, PROGRAMS, BuildError, replaces, toolchain
from tests.support.paths import TESTS

SCRIPT = TESTS / "support/kubernetes_programs.py"
GO_MOD = """
require (
\tgithub.com/blang/semver/v4 v4.0.0
\tk8s.io/api v0.0.0
\tk8s.io/klog/v2 v2.140.0
\tk8s.io/apimachinery v0.0.0
\tk8s.io/utils v0.0.0-20260210185600-b8788abfbbc2
)
"""
# Stands in for Go: it writes what it was asked, and "builds" a program.
FAKE_GO = """#!/bin/sh
echo "$*" >>"$ASKED"
case "$1" in
    env) echo "go1.26.1"; echo local ;;
    mod) echo '{"GoMod": "'"$MODULE"'", "Dir": "'"$DIR"'", "Sum": "'"${SUM:-h1:another}"'"}' ;;
    get) [ -z "${REFUSE:-}" ] || { echo "no such host" >&2; exit 1; } ;;
    build) cp go.mod "$ASKED.mod"; echo program >made ;;
esac
"""


def build(folder: Path, *names: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """The script with a stand-in for Go, and a cache of its own."""
    (folder / "bin").mkdir(exist_ok=True)
    go = folder / "bin/go"
    go.write_text(FAKE_GO, encoding="ascii")
    go.chmod(0o755)
    (folder / "go.mod").write_text(GO_MOD, encoding="ascii")
    own = {
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
        "ASKED": str(folder / "asked"),
        "MODULE": str(folder / "go.mod"),
        "DIR": str(folder / "module"),
        "XDG_CACHE_HOME": str(folder / "cache"),
    }
    command: Sequence[str | Path] = [sys.executable, SCRIPT, *names]
    environment = {**os.environ, **own, **variables}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_modules_of_the_repository_get_the_versions_they_were_published_under() -> None:
    """Those alone that it names with v0.0.0: a pseudo-version is another module's, and stays."""
    assert replaces(GO_MOD, "v1.36.3") == [
        "replace k8s.io/api => k8s.io/api v0.36.3",
        "replace k8s.io/apimachinery => k8s.io/apimachinery v0.36.3",
    ]


def test_a_program_is_built_once_and_kept(tmp_path: Path) -> None:
    """At its version; the second time asks Go nothing."""
    first = build(tmp_path, "kube-apiserver")
    asked = (tmp_path / "asked").read_text()
    second = build(tmp_path, "kube-apiserver")
    made = tmp_path / f"cache/gpuwatch-tests/kube-apiserver-{PROGRAMS['kube-apiserver'].version}/kube-apiserver"

    assert first.returncode == second.returncode == 0, first.stdout + first.stderr
    assert made.read_text() == "program\n"
    assert [path.name for path in made.parent.iterdir()] == ["kube-apiserver"]
    assert "replace k8s.io/api => k8s.io/api v0.36.3" in (tmp_path / "asked.mod").read_text()
    assert "gitVersion=v1.36.3" in asked
    assert (tmp_path / "asked").read_text() == asked
    assert second.stdout == ""


def test_what_cannot_be_built_is_named_with_the_reason(tmp_path: Path) -> None:
    """And nothing half-made is taken for a program later."""
    done = build(tmp_path, "etcd", REFUSE="yes")

    assert done.returncode == 1
    assert "Could not build etcd: `go get` failed: no such host; its tests are skipped." in done.stdout
    assert build(tmp_path, "etcd").returncode == 0


def test_definitions_are_those_of_the_pinned_module(tmp_path: Path) -> None:
    """A module of another checksum than the table's defines nothing; what is fetched is kept, and asks Go no more."""
    wanted = KINDS_OF["jobset"]
    for each in wanted.files:
        file = tmp_path / "module" / each
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("kind: CustomResourceDefinition\n", encoding="ascii")

    refused = build(tmp_path, "jobset")
    assert refused.returncode == 1
    assert f"{wanted.module} {wanted.version} has the checksum h1:another" in refused.stdout
    assert build(tmp_path, "jobset", SUM=wanted.checksum).returncode == 0
    asked = (tmp_path / "asked").read_text()
    assert build(tmp_path, "jobset").returncode == 0
    assert (tmp_path / "asked").read_text() == asked
    kept = tmp_path / f"cache/gpuwatch-tests/definitions-jobset-{wanted.version}"
    assert [path.name for path in kept.iterdir()] == [Path(each).name for each in wanted.files]


def test_what_one_lacks_keeps_no_other_from_being_made(tmp_path: Path) -> None:
    """Whatever fails first, the others are tried."""
    done = build(tmp_path, "jobset", "etcd")

    assert done.returncode == 1
    assert (tmp_path / f"cache/gpuwatch-tests/etcd-{PROGRAMS['etcd'].version}/etcd").exists()


def test_without_go_it_says_where_go_is_to_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    """No compiler, or one that is too old, is a sentence."""
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)

    with pytest.raises(BuildError, match=r"no `go` here \(https://go\.dev/dl"):
        toolchain()
