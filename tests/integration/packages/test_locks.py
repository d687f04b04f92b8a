"""What is deployed is locked: each package at one version, by its files' hashes, as pyproject.toml wants it."""

import re
import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from gpuwatch.clouds.settings import CLOUDS
from tests.support.paths import ROOT

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
        if package != "gpuwatch":
            assert package in locked, f"{package} is not in requirements/{name}.lock: make lock"
            assert each.specifier.contains(locked[package][0]), (
                f"{package} {locked[package][0]} is not {each.specifier}"
            )


@pytest.mark.parametrize("name", LOCKED)
def test_every_package_has_its_hashes_and_no_address(name: str) -> None:
    """Wherever it is installed from, it is those files."""
    text = (ROOT / f"requirements/{name}.lock").read_text(encoding="utf-8")

    assert entries(name)
    assert [package for package, (_, hashes) in entries(name).items() if not hashes] == []
    assert len(entries(name)) == len(re.findall(r"^[^\s#]", text, re.MULTILINE)), "a line that is no locked package"
    assert "://" not in text
