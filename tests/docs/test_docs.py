"""The documentation says what the code does."""

import re
from pathlib import Path

from gpuwatch.cli.main import commands
from gpuwatch.config import keys, load, load_agent
from gpuwatch.config.keys import Key
from gpuwatch.config.settings import Settings
from tests.support.each import for_each
from tests.support.markdown import blocks
from tests.support.paths import ROOT
from tools.docs.configuration import PAGES as SETTINGS
from tools.docs.configuration import render_page

NAMES = (
    *("gpuwatch.yaml", "starter.yaml", "agent.yaml", "several-clusters.yaml"),
    *("spot-training.yaml", "spot-serving.yaml", "spot-batch.yaml"),
)
EXAMPLES = [ROOT / "docs/examples" / name for name in NAMES]


@for_each(SETTINGS)
def test_the_pages_of_settings_are_up_to_date(name: str) -> None:
    """docs/CONFIGURATION.md, and the page of each section, are what `make docs` writes."""
    assert (ROOT / name).read_text(encoding="utf-8") == render_page(name), "run `make docs`"


def test_no_page_of_settings_is_left_over() -> None:
    """That of a section that is gone would stay for ever."""
    assert {f"docs/settings/{path.name}" for path in (ROOT / "docs/settings").iterdir()} == set(SETTINGS[1:])


@for_each(EXAMPLES)
def test_every_example_loads(path: Path) -> None:
    """The example files are right as they stand, for the controller and for the agent, and say something."""
    assert load(path, {}) != Settings()
    assert load_agent(path) == load(path, {}).agent


def test_the_example_only_observes() -> None:
    """Nobody stops a machine by copying the example."""
    assert load(ROOT / "docs/examples/gpuwatch.yaml", {}).mode == "observe"


@for_each(keys.declared_keys(Settings).values(), lambda key: key.dotted)
def test_every_key_has_a_sentence(key: Key) -> None:
    """A setting without a sentence cannot be used by anybody who has not read the code."""
    assert key.sentence.endswith("."), f"{key.dotted} has no sentence"


# The README and the other pages


PAGES = sorted(path.relative_to(ROOT) for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


@for_each(PAGES)
def test_every_command_that_a_page_names_exists(page: Path) -> None:
    """`gpuwatch something` in a page is a command of this gpuwatch."""
    text = (ROOT / page).read_text(encoding="utf-8")
    named = set(re.findall(r"`gpuwatch ([a-z][a-z-]+)\b", text))
    named |= {name for block in blocks(page, "sh") for name in re.findall(r"^gpuwatch ([a-z-]+)", block, re.MULTILINE)}

    assert named <= set(commands.commands), f"{page} names {sorted(named - set(commands.commands))}"


@for_each(PAGES)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    """A relative link names a file or a folder of the repository."""
    links = re.findall(r"\]\((?!https?://|#)([^)#\s]+)", (ROOT / page).read_text(encoding="utf-8"))
    lost = [link for link in links if not ((ROOT / page).parent / link).exists()]

    assert lost == []


def test_the_readmes_configuration_loads(tmp_path: Path) -> None:
    """What a reader copies is accepted as it stands."""
    for number, block in enumerate(blocks(Path("README.md"), "yaml")):
        file = tmp_path / f"{number}.yaml"
        file.write_text(block, encoding="utf-8")
        assert load(file, {}).mode == "observe"
