"""runtime/program.py: which build runs, and of which commit where that is known."""

import importlib
import sys
import zipfile
from pathlib import Path

import pytest

import gpuwatch
from gpuwatch.runtime import program as module
from gpuwatch.runtime.program import BUILD, build


@pytest.fixture
def beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the package, as it is installed."""
    monkeypatch.setattr(gpuwatch, "__file__", str(tmp_path / "__init__.py"))
    return tmp_path


def test_version_and_python_are_always_known(beside: Path) -> None:
    """The revision is not, where nobody wrote it down."""
    assert not list(beside.iterdir())
    assert dict(zip(BUILD, build(), strict=True)) == {
        "version": gpuwatch.__version__,
        "revision": None,
        "python_version": ".".join(str(part) for part in sys.version_info[:3]),
    }


@pytest.mark.parametrize(
    ("text", "revision"),
    [
        (b"4571d6d0c2\n", "4571d6d0c2"),
        (b"", None),
        (b"fatal: not a git repository", None),
        (b"\xff\x00", None),
        (b"a" * 65, None),
    ],
)
def test_the_revision_is_what_the_build_wrote_down(beside: Path, text: bytes, revision: str | None) -> None:
    """One word; what is none is not shown."""
    (beside / "revision.txt").write_bytes(text)

    assert build()[1] == revision


def test_it_is_read_out_of_an_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a zipapp there is no file to open."""
    archive = tmp_path / "gpuwatch.pyz"
    with zipfile.ZipFile(archive, "w") as made:
        made.writestr("packed/__init__.py", "")
        made.writestr("packed/revision.txt", "c0ffee\n")
    monkeypatch.syspath_prepend(str(archive))
    packed = importlib.import_module("packed")
    monkeypatch.setattr(packed, "__version__", "1", raising=False)
    monkeypatch.setattr(module, "gpuwatch", packed)

    assert build()[:2] == ("1", "c0ffee")
