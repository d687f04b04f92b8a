"""docs/pictures/recording.svg is what its tool draws: an animated picture of the terminal, small enough for a page."""

from pathlib import Path
from xml.etree import ElementTree as ET

from tests.support.paths import ROOT
from tools.recording import record

FILE = ROOT / "docs/pictures/recording.svg"
_LARGEST_BYTES = 200_000


def test_the_recording_shows_a_stop_and_its_reason(tmp_path: Path) -> None:
    """Drawn anew: whole XML, a frame for each round until machines are stopped, then the explanation of one."""
    drawn = record(tmp_path)

    root = ET.fromstring(drawn)  # noqa: S314  our own
    words = "".join(root.itertext())
    assert "stop batch-1" in words
    assert "$ gpuwatch explain" in words
    assert "It will get its notice now and be stopped at" in words
    assert len([each for each in root.iter() if each.get("class", "").startswith("f f")]) > 10


def test_the_file_is_small_and_in_the_readme() -> None:
    """GitHub shows it as a picture."""
    assert FILE.stat().st_size < _LARGEST_BYTES
    assert "(docs/pictures/recording.svg)" in (ROOT / "README.md").read_text(encoding="utf-8")
