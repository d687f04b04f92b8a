"""The configuration's keys: no misspelling passes, each can be set by its variable, the schema has them all."""

import json
import re
from pathlib import Path
from string import ascii_lowercase, ascii_uppercase, digits

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gpuwatch.config import ConfigError, keys, load, schema
from gpuwatch.config.keys import NAME, Key, Kind
from gpuwatch.config.one_or_several import path_in_settings
from gpuwatch.config.settings import Settings
from gpuwatch.model.duration import format_duration, parse_duration
from gpuwatch.policies import PoolRules
from tests.support.builders.configurations import KEYS, POOL, VALUES, mistakes, named, read
from tests.support.each import for_each
from tests.support.nightly import examples
from tools.docs.configuration import render_defaults

# Misspelling, in general


def misspell(draw: st.DrawFn, word: str, alphabet: str) -> str:
    """The word with one character left out, put in, exchanged or swapped with the next."""
    place = draw(st.integers(0, len(word) - 1))
    letter = draw(st.sampled_from(alphabet))
    before, at, after = word[:place], word[place], word[place + 1 :]
    changed = (
        before + after,
        before + letter + at + after,
        before + letter + after,
        before + after[:1] + at + after[1:],
    )
    return draw(st.sampled_from(changed))


@st.composite
def misspelt_paths(draw: st.DrawFn) -> tuple[str, ...]:
    """A key with a misspelling in one part of its path that is not the user's own name."""
    key = draw(st.sampled_from(VALUES))
    path = list(named(key))
    place = draw(st.sampled_from([place for place, part in enumerate(key.path) if part != NAME]))
    path[place] = misspell(draw, path[place], ascii_lowercase + digits + "_")
    return tuple(path[: place + 1]) if draw(st.booleans()) else tuple(path)


@settings(max_examples=examples(80), deadline=None)
@given(path=misspelt_paths())
def test_any_misspelt_key_in_the_file_is_refused_by_name(file: Path, path: tuple[str, ...]) -> None:
    """One wrong character anywhere in any key is refused, and the refusal names the key as it was written."""
    assume(keys.pattern(KEYS, path) is None)
    content: object = "30m"
    for part in reversed(path):
        content = {part: content}
    wrong = next(length for length in range(1, len(path) + 1) if keys.pattern(KEYS, path[:length]) is None)

    assert f": {'.'.join(path[:wrong])}: is not a key of the configuration" in mistakes(file, json.dumps(content))


@st.composite
def misspelt_variables(draw: st.DrawFn) -> str:
    """The variable of a key with one wrong character, the prefix included."""
    variable = draw(st.sampled_from(VALUES)).variable.replace(NAME, POOL)
    return misspell(draw, variable, ascii_uppercase + digits + "_")


@settings(max_examples=examples(150), deadline=None)
@given(name=misspelt_variables())
def test_any_misspelt_variable_is_refused_by_name(file: Path, name: str) -> None:
    """One wrong character anywhere in any variable is refused, and the refusal names the variable."""
    right = (key.variable.removeprefix("GPUWATCH_").replace(NAME, "((?!__).)+") for key in VALUES)
    assume(not re.fullmatch(f"GPUWATCH_(?i:{'|'.join(right)})", name))

    assert f"environment variable {name}: " in mistakes(file, env={name: "30m"})


@given(name=st.sampled_from(["PATH", "HOME", "AWS_PROFILE", "NVIDIA_VISIBLE_DEVICES", "GPU_COUNT", "WATCH_MODE"]))
def test_other_peoples_variables_are_left_alone(file: Path, name: str) -> None:
    """A variable that does not look like ours is nobody's mistake."""
    file.write_text("")

    assert load(file, {name: "x"}) == Settings()


# The declarations


def test_every_default_written_out_is_the_default(file: Path) -> None:
    """A file with every key at its default passes every bound and changes nothing but naming the default pool."""
    assert read(file, render_defaults()) == Settings(pools={"default": PoolRules()}), render_defaults()


@for_each(VALUES, lambda key: key.dotted)
def test_every_key_can_be_set_by_its_variable(key: Key, file: Path) -> None:
    """The variable that the manual names reaches its key: a value out of place is told under the key's own path."""
    wrong = {Kind.TEXT: None, Kind.LIST: None}.get(key.kind, "!")
    name = key.variable.replace(NAME, POOL)
    if wrong is None:
        try:
            found: object = read(file, env={name: "http://x"})
        except ConfigError as error:  # such a value needs another key, and is told under its own as well
            # A name that is a sentence of its own, such as a step's threshold, is judged by the section that it is in.
            # Likewise a section that lacks what only another of its keys can say.
            whole = key.path[-1] == NAME or key.path[0] in {"kubernetes", "slurm"} or "offers" in key.path
            place = named(key)[:-1] if whole else named(key)
            assert ".".join(place) in str(error)  # noqa: PT017  either is right
            return
        for part in path_in_settings(named(key)):
            found = found[part] if isinstance(found, dict) else getattr(found, part)
        assert found in {"http://x", ("http://x",)}
        return

    assert f"environment variable {name}: {'.'.join(named(key))}: " in mistakes(file, env={name: wrong})


@given(seconds=st.floats(0.001, 1e9))
def test_a_duration_told_can_be_written(seconds: float) -> None:
    """What `format_duration` says is read back as what it says."""
    text = format_duration(seconds)
    written = parse_duration(text)

    assert isinstance(written, float)
    assert format_duration(written) == text


@given(st.floats())
def test_any_number_can_be_shown_as_a_duration(seconds: float) -> None:
    """Also one that a broken or hostile agent sends: a message about it must not raise an error of its own."""
    assert format_duration(seconds).endswith(("s", "m", "h", "d"))


@for_each(
    [key for key in VALUES if key.kind is Kind.DURATION and isinstance(key.default, int | float)],
    lambda key: key.dotted,
)
def test_a_default_duration_loses_nothing_in_the_manual(key: Key) -> None:
    """Defaults are durations that two units tell exactly."""
    assert parse_duration(key.show(key.default)) == key.default


# The schema


def test_the_schema_describes_every_key() -> None:
    """An editor shows each key's sentence, knows the misspelt ones, and offers the choices."""
    document = schema()
    pool = document["$defs"]["PoolRules"]

    assert document["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert document["properties"]["mode"]["enum"] == ["observe", "enforce"]
    assert not pool["additionalProperties"]
    assert pool["properties"]["min_nodes"]["description"] == KEYS["pools", NAME, "min_nodes"].sentence


def test_the_schema_takes_durations_and_bounds() -> None:
    """A duration is a text of the right form, or 0; its default is told as a text."""
    text, nothing = schema()["properties"]["interval"]["anyOf"]

    assert re.match(text["pattern"], "1h30m")
    assert not re.match(text["pattern"], "soon")
    assert nothing == {"const": 0}
    assert schema()["properties"]["interval"]["default"] == "1m"
