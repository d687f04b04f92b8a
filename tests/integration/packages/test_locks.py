"""What is deployed is locked: each package at one version, by its files' hashes, as pyproject.toml wants it."""

import re
import socket
import subprocess
import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from gpuwatch.clouds.settings import CLOUDS
from gpuwatch.runtime.installed import DISTRIBUTION
from tests.support.paths import ROOT
from tools import advisories

LOCKED = {"agent": ("auth",), "controller": (*CLOUDS, "auth", "controller", "notify", "postgres")}


def entries(name: str) -> dict[str, tuple[str, list[str]]]:
    """Each package of a lock with its version and hashes."""
    text = (ROOT / f"requirements/{name}.lock").read_text(encoding="utf-8")
    found = re.findall(r"^(\S+)==(\S+)[^\n]*((?:\n    --hash=\S+(?: \\)?)*)", text, re.MULTILINE)
    return {
        canonicalize_name(package): (version, re.findall(r"sha256:\w{64}", rest)) for package, version, rest in found
    }


@pytest.mark.parametrize("name", LOCKED)
def test_every_dependency_is_locked_at_a_version_that_is_wanted(name: str) -> None:
    """A dependency that is added, or raised, needs `make lock`."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    wanted = [Requirement(each) for each in [*project["dependencies"], *(r for e in LOCKED[name] for r in extras[e])]]
    locked = entries(name)

    for each in wanted:
        package = canonicalize_name(each.name)
        if package != DISTRIBUTION:
            assert package in locked, f"{package} is not in requirements/{name}.lock: make lock"
            assert each.specifier.contains(locked[package][0]), (
                f"{package} {locked[package][0]} is not {each.specifier}"
            )


def test_locks_take_versions_that_have_wheels() -> None:
    """`make release` installs wheels alone: a version that exists only as source would end it."""
    told = subprocess.run(["make", "-n", "lock"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    commands = [line for line in told.splitlines() if "pip compile" in line]

    assert len(commands) == len(list((ROOT / "requirements").glob("*.lock")))
    assert [line for line in commands if "--only-binary :all:" not in line] == []


def test_the_tools_that_lock_and_audit_are_locked_themselves() -> None:
    """Each of the group, in the version that it wants."""
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["dependency-groups"]
    locked = entries("tools")

    for each in map(Requirement, groups["tools"]):
        assert each.specifier.contains(locked[canonicalize_name(each.name)][0]), f"{each}: make lock"


def test_the_locks_are_audited_by_each_run_that_can_reach_the_advisories() -> None:
    """All four of them; where nothing can be reached, a sentence says so."""
    told = subprocess.run(["make", "-n", "audit"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    ran = (ROOT / ".ci/run").read_text(encoding="utf-8")

    assert {f"requirements/{path.name}" for path in (ROOT / "requirements").glob("*.lock")} <= set(told.split())
    assert "\nmake audit-if-reachable" in ran
    assert '\nwait "$auditor" ||' in ran, "a bad package fails the run"


@pytest.mark.parametrize("error", [None, OSError(101, "Network is unreachable"), TimeoutError()])
def test_no_audit_without_advisories_is_said(
    error: OSError | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In one sentence, with what to do."""

    def connect(*_: object, **__: object) -> socket.socket:
        if error is not None:
            raise error
        return socket.socket()

    monkeypatch.setattr(socket, "create_connection", connect)

    assert advisories.main() == (error is not None)
    assert ("Run `make audit`" in capsys.readouterr().err) == (error is not None)


@pytest.mark.parametrize("name", [*LOCKED, "build", "tools"])
def test_every_package_has_its_hashes_and_no_address(name: str) -> None:
    """Wherever it is installed from, it is those files."""
    text = (ROOT / f"requirements/{name}.lock").read_text(encoding="utf-8")

    assert entries(name)
    assert [package for package, (_, hashes) in entries(name).items() if not hashes] == []
    assert len(entries(name)) == len(re.findall(r"^[^\s#]", text, re.MULTILINE)), "a line that is no locked package"
    assert "://" not in text
