"""Every tag of a machine that a page, a remedy of doctor, a template or a message names is one that gpuwatch knows."""

import re
from collections.abc import Iterator
from pathlib import Path

from gpuwatch.clouds.gcp.owners import key_of, tags_of
from gpuwatch.clouds.tags import KNOWN, doubt

ROOT = Path(__file__).resolve().parents[2]
# Behind a path the same characters are the options of a mount (/run/gpuwatch:ro); a recording rule has underscores.
TAG = re.compile(r"(?<![\w/.:-])gpuwatch:[A-Za-z][A-Za-z-]*+(?![\w:])")
PAGE = ROOT / "docs/clouds/gcp.md"
# What pages show as slips of the hand.
SLIPS = {"gpuwatch:Protect", "gpuwatch:keep"}
TOLD = ("README.md", "README.zh-CN.md", "docs", "deploy", "examples", "gpuwatch", "alerts", "systemd", "packaging")
KINDS = {".md", ".tsv", ".py", ".yml", ".yaml", ".tf", ".json", ".html", ".js", ".txt"}


def texts() -> Iterator[tuple[Path, str]]:
    """Yield all that people read of gpuwatch, and what writes it."""
    for name in TOLD:
        place = ROOT / name
        files = [place] if place.is_file() else sorted(place.rglob("*")) if place.is_dir() else []
        for path in files:
            if path.is_file() and path.suffix in KINDS:
                yield path, path.read_text()


def test_no_tag_that_people_are_told_to_set_is_taken_for_a_slip() -> None:
    """A tag that is told of and not known would protect its machine for ever."""
    found = {(tag.rstrip("-"), path.name) for path, text in texts() for tag in TAG.findall(text)}
    told = {tag for tag, _ in found} - SLIPS
    assert "gpuwatch:slurm-node" in told
    assert told == {each for each in KNOWN if each.startswith("gpuwatch:")}, sorted(found)
    assert [doubt(tag) for tag in sorted(told)] == [None] * len(told)


def test_a_label_is_written_as_the_page_of_google_cloud_says() -> None:
    """Labels have no colon: each known tag has `-` there, and is read as the same tag."""
    assert "A label's key has `-` where the [tag](README.md#tags) has `:`" in PAGE.read_text(encoding="utf-8")
    assert {each: key_of(each) for each in KNOWN} == {each: each.replace(":", "-") for each in KNOWN}
    assert [doubt(next(iter(tags_of({key_of(each): "true"})))) for each in KNOWN] == [None] * len(KNOWN)
