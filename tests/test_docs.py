"""The documentation says what the code does."""

from pathlib import Path

import pytest

from gpuwatch.configuration import keys, load, load_agent
from gpuwatch.configuration.keys import Key
from gpuwatch.configuration.manual import render_configuration_md
from gpuwatch.settings import Settings

ROOT = Path(__file__).parent.parent
EXAMPLES = [ROOT / "docs/examples" / name for name in ("gpuwatch.yaml", "agent.yaml")]


def test_the_configuration_page_is_up_to_date() -> None:
    """docs/CONFIGURATION.md is what `gpuwatch docs configuration` prints."""
    assert (ROOT / "docs/CONFIGURATION.md").read_text() == render_configuration_md(), (
        "run `gpuwatch docs configuration > docs/CONFIGURATION.md`"
    )


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_every_example_loads(path: Path) -> None:
    """The example files are right as they stand, for the controller and for the agent, and say something."""
    assert load(path, {}) != Settings()
    assert load_agent(path) == load(path, {}).agent


def test_the_example_only_observes() -> None:
    """Nobody stops a machine by copying the example."""
    assert load(ROOT / "docs/examples/gpuwatch.yaml", {}).mode == "observe"


@pytest.mark.parametrize("key", keys.declared(Settings).values(), ids=lambda key: key.dotted)
def test_every_key_has_a_sentence(key: Key) -> None:
    """A knob without a sentence cannot be used by anybody who has not read the code."""
    assert key.sentence.endswith("."), f"{key.dotted} has no sentence"
