"""What nobody has seen on a real cloud is one table: its page, the doctor and the table say the same."""

import re
from collections.abc import Mapping

import pytest

from gpuwatch.cli.doctor import cloud as doctor
from gpuwatch.cli.doctor.controller import CHECKS
from gpuwatch.cli.doctor.report import Severity
from gpuwatch.clouds.settings import CLOUDS, CloudSettings
from gpuwatch.clouds.unseen import HEADING, UNSEEN, Unseen, unseen_of
from tests.support.builders.doctor_findings import a_controller
from tests.support.paths import ROOT
from tools.docs.__main__ import PARTS
from tools.docs.clouds import with_unseen

# What must have a row until somebody has seen it: words of what is said there.
OPEN: Mapping[str, tuple[str, ...]] = {
    "aws": ("weights", "StateReason", "roles with a path", "launch template", "prices"),
    "azure": ("tags of members", "protection of members", "shows no disk", "depend on a template", "prices"),
    "gcp": ("depend on a template", "conditions", "zone cannot be reached", "prices"),
    "alibaba": ("empty 200", "RAM", "prices"),
    "driver": ("keeps the protocol",),
    "tencent": ("TKE", "notices", "RemoveInstances", "prices"),
    "hosts": ("resolvers", "BMCs"),
}
# How a page said by hand what belongs into the table.
BY_HAND = re.compile(r"\b(?:not proven|untried|never (?:been )?tried|(?:not been|was not) tried)\b", re.IGNORECASE)


def page(cloud: str) -> str:
    """The page of a cloud."""
    return (ROOT / f"docs/clouds/{cloud}.md").read_text(encoding="utf-8")


def test_every_cloud_has_its_rows() -> None:
    """And no row is of a cloud that there is not; within a cloud each is named once."""
    assert {each.cloud for each in UNSEEN} == set(CLOUDS) == set(OPEN)
    assert len({(each.cloud, each.what) for each in UNSEEN}) == len(UNSEEN)


@pytest.mark.parametrize("cloud", CLOUDS)
def test_the_page_of_a_cloud_is_up_to_date(cloud: str) -> None:
    """Under the one heading, with all that a row says, and nothing of another cloud."""
    text = page(cloud)
    assert text == with_unseen(cloud, text) == PARTS[f"docs/clouds/{cloud}.md"](text), "run `make docs`"
    assert text.count(HEADING) == 1
    section = text.partition(f"## {HEADING}\n")[2]
    assert [row.split(" | ")[0].removeprefix("| ") for row in section.splitlines() if row.startswith("| ")][2:] == [
        each.what for each in unseen_of(cloud)
    ]


@pytest.mark.parametrize("cloud", CLOUDS)
def test_a_page_says_by_hand_nothing_that_belongs_into_the_table(cloud: str) -> None:
    """Two lists of the same would part."""
    assert BY_HAND.findall(page(cloud).partition(f"## {HEADING}\n")[0]) == []


def test_a_section_is_replaced_and_the_rest_of_its_page_stays() -> None:
    """Also where something follows it; a page without its heading is a mistake."""
    before, after = "# A cloud\n\nText.\n\n", "## Later\nMore.\n"
    made = with_unseen("aws", f"{before}## {HEADING}\nold\n\n{after}")
    assert made.startswith(before)
    assert made.endswith(after)
    assert "\nold\n" not in made
    with pytest.raises(ValueError, match="0 headings"):
        with_unseen("aws", before)


@pytest.mark.parametrize("cloud", CLOUDS)
def test_the_doctor_names_what_is_open_for_the_clouds_of_the_settings(cloud: str) -> None:
    """Once for each cloud, without asking it, all that the table has, and nothing of others; it is no failure."""
    settings = {"clouds": {"one": CloudSettings(provider=cloud), "two": CloudSettings(provider=cloud)}}
    (found,) = doctor.unseen(a_controller(AssertionError("nothing is asked"), settings=settings))
    assert found.severity is Severity.NOTE
    assert found.looked_at == f"{cloud}: not yet seen on the real cloud"
    assert found.seen.split("; ") == [each.what for each in unseen_of(cloud)]


def test_the_doctor_asks_for_it() -> None:
    """It is one of the checks of a controller, and several clouds are several findings."""
    assert doctor.unseen in [each.look for each in CHECKS]
    settings = {"clouds": {name: CloudSettings(provider=name) for name in CLOUDS}}
    found = list(doctor.unseen(a_controller(AssertionError(), settings=settings)))
    assert [each.looked_at.partition(":")[0] for each in found] == list(CLOUDS)


@pytest.mark.parametrize("cloud", OPEN)
def test_what_is_known_to_be_open_has_a_row(cloud: str) -> None:
    """A row goes with a recorded answer, and not by itself."""
    names = [each.what for each in unseen_of(cloud)]
    assert [words for words in OPEN[cloud] if not any(words in name for name in names)] == []


@pytest.mark.parametrize("each", UNSEEN, ids=lambda each: f"{each.cloud}-{each.what}")
def test_a_row_is_short_where_it_is_named_and_whole_where_it_is_explained(each: Unseen) -> None:
    """A few words for the doctor; sentences for what is taken for granted and for how to see it."""
    assert len(each.what) <= 50
    assert not each.what.endswith(".")
    assert not set("|;") & set(each.what)
    assert each.taken.endswith(".")
    assert each.see.endswith(".")
    assert "|" not in each.taken + each.see
