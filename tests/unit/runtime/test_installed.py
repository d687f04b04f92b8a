"""How a missing part is installed: never from a name that is another program's, and from where this copy came."""

import json
import re
import subprocess
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

import gpuwatch
from gpuwatch.runtime import installed
from gpuwatch.runtime.installed import IMAGE_MARK, Kind, install_command, kind_of
from tests.support.paths import ROOT

# The word after `pip install` and its options, where it is the plain name: that is somebody else's package.
_STRANGER = re.compile(r"pip install(?: -\S+)* +['\"]?gpuwatch(?![-\w/.])")


class NotedByPip:
    """A distribution with pip's note of where it came from."""

    def __init__(self, origin: Mapping[str, Any] | str) -> None:
        """Keep the note."""
        self._origin = origin

    def read_text(self, name: str) -> str:
        """Give the note."""
        assert name == "direct_url.json"
        return self._origin if isinstance(self._origin, str) else json.dumps(self._origin)


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of gpuwatch that pip installed; the folder of its packages."""
    site = tmp_path / "venv/site-packages"
    (site / "gpuwatch").mkdir(parents=True)
    monkeypatch.setattr(gpuwatch, "__file__", str(site / "gpuwatch/__init__.py"))
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "venv"))
    noted(monkeypatch, {})
    return site


def noted(monkeypatch: pytest.MonkeyPatch, origin: Mapping[str, Any] | str) -> None:
    """Pip has noted this of the copy."""
    monkeypatch.setattr(metadata, "distribution", lambda _name: NotedByPip(origin))


def checkout(folder: Path) -> Path:
    """A clone of gpuwatch."""
    (folder / "gpuwatch").mkdir(parents=True)
    (folder / "pyproject.toml").touch()
    (folder / "gpuwatch/__init__.py").touch()
    return folder


def test_a_clone_is_installed_from_its_folder() -> None:
    """These tests run in one."""
    assert install_command("aws") == f"pip install '{ROOT}[aws]'"
    assert install_command("aws", upgrade=True) == f"pip install -U '{ROOT}[aws]'"


@pytest.mark.usefixtures("copy")
def test_what_pip_copied_from_a_clone_is_installed_from_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where its path needs quotes of its own."""
    place = checkout(tmp_path / "it's here")
    noted(monkeypatch, {"url": place.as_uri(), "dir_info": {}})

    assert (
        subprocess.run(
            ["sh", "-c", install_command("gcp").replace("pip install", "printf %s")],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        == f"{place}[gcp]"
    )


@pytest.mark.usefixtures("copy")
@pytest.mark.parametrize(
    ("origin", "wanted"),
    [
        ({}, "gpuwatch-fleet[aws]"),  # from an index
        ("not JSON", "gpuwatch-fleet[aws]"),
        ("[]", "gpuwatch-fleet[aws]"),
        ({"url": "file:///gone/gpuwatch_fleet-1.0.0-py3-none-any.whl", "archive_info": {}}, "gpuwatch-fleet[aws]"),
        ({"url": "file:///gone", "dir_info": {"editable": True}}, "gpuwatch-fleet[aws]"),
        (
            {"url": "https://me:secret@example.com/gpuwatch.git", "vcs_info": {"vcs": "git", "commit_id": "0" * 40}},
            "gpuwatch-fleet[aws] @ git+https://example.com/gpuwatch.git",
        ),
        (
            {"url": "https://example.com/gpuwatch_fleet-1.0.0-py3-none-any.whl", "archive_info": {}},
            "gpuwatch-fleet[aws] @ https://example.com/gpuwatch_fleet-1.0.0-py3-none-any.whl",
        ),
    ],
)
def test_a_wheel_is_installed_from_where_it_came(
    monkeypatch: pytest.MonkeyPatch, origin: Mapping[str, Any] | str, wanted: str
) -> None:
    """A place that is gone, and a password in a URL, are not repeated."""
    noted(monkeypatch, origin)

    assert install_command("aws") == f"pip install '{wanted}'"


@pytest.mark.usefixtures("copy")
def test_a_wheel_in_a_file_that_is_still_there_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The index need not have it."""
    wheel = tmp_path / "our wheels/gpuwatch_fleet-1.0.0-py3-none-any.whl"
    wheel.parent.mkdir()
    wheel.touch()
    noted(monkeypatch, {"url": wheel.as_uri(), "archive_info": {}})

    assert install_command("aws") == f"pip install 'gpuwatch-fleet[aws] @ {wheel.as_uri()}'"


def test_packages_images_and_the_one_file_are_told_what_to_install(
    copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is added to them by pip; what none of them has needs an environment of its own."""
    own = "pip install 'gpuwatch-fleet[forecast]', in a Python environment of its own"
    (tmp_path / "venv" / IMAGE_MARK).touch()
    assert install_command("aws") == "use the image of the controller"
    assert install_command("aws", upgrade=True) == "use a newer image of the controller"
    assert install_command("forecast") == own
    monkeypatch.setitem(sys.modules, "_bootstrap", installed)
    assert "the agent's part alone" in install_command("aws")
    monkeypatch.setattr(gpuwatch, "__file__", "/usr/lib/gpuwatch/app/gpuwatch/__init__.py")
    assert install_command("aws") == "install the package gpuwatch-controller"
    assert install_command("forecast") == own
    assert kind_of(copy, tmp_path, {}, one_file=False) is Kind.WHEEL


def test_no_page_or_message_installs_the_stranger_of_that_name() -> None:
    """A line that warns of it may name it."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    found = []
    for name in listed.split("\0"):
        path = ROOT / name
        if not path.is_file() or path.suffix in {".png", ".svg", ".gz"}:
            continue
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        found += [f"{name}: {line.strip()}" for line in lines if _STRANGER.search(line) and not _warns(line)]

    assert found == []


def _warns(line: str) -> bool:
    return "never" in line or "切勿" in line or "belongs to another" in line
