"""The page's scripts use the words of the rest."""

import re

from gpuwatch.model.activity import MEANINGS, State
from tests.support.paths import ROOT


def test_states_are_explained_in_the_same_sentences() -> None:
    """Terminal and page say the same of each state; only the page shows machines that are off."""
    script = (ROOT / "gpuwatch/controller/web/words.js").read_text(encoding="utf-8")
    (block,) = re.findall(r"const MEANINGS = \{(.*?)\};", script, re.DOTALL)
    said = dict(re.findall(r'(\w+): "([^"]+)"', block))

    assert said.pop("off")
    assert said == {state.value: words for state, words in MEANINGS.items()}
    assert set(MEANINGS) == set(State)
