"""The configuration: what may be written, what is refused, and how every mistake is told."""

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from string import ascii_lowercase, ascii_uppercase, digits

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gpuwatch.configuration import ConfigError, keys, load, load_agent, schema
from gpuwatch.configuration.keys import GROUPS, NAME, Key, Kind
from gpuwatch.configuration.manual import render_defaults
from gpuwatch.model.knobs import format_duration, parse_duration
from gpuwatch.policies import PoolRules
from gpuwatch.policies.idle import IdleRules
from gpuwatch.settings import Settings

KEYS = keys.declared(Settings)
VALUES = [key for key in KEYS.values() if key.kind not in GROUPS]
POOL = "training"


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file to write configurations to."""
    path = tmp_path_factory.mktemp("configuration") / "gpuwatch.yaml"
    path.touch()
    return path


def read(file: Path, text: str = "", env: Mapping[str, str] | None = None) -> Settings:
    """The settings of such a file in such an environment."""
    file.write_text(text)
    return load(file, env or {})


def mistakes(file: Path, text: str = "", env: Mapping[str, str] | None = None) -> str:
    """What is told of a file and an environment that are refused."""
    with pytest.raises(ConfigError) as caught:
        read(file, text, env)
    return str(caught.value).replace(f"{file}:", "FILE:").replace(str(file), "FILE")


# What may be written


def test_an_empty_file_is_right(file: Path) -> None:
    """Every key has a default, so nothing needs to be written."""
    assert read(file) == Settings()


def test_no_file_is_right(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without a file anywhere the defaults are in force."""
    monkeypatch.setattr("gpuwatch.configuration.reader.DEFAULT_PATH", tmp_path / "none.yaml")

    assert load(None, {}) == Settings()


def test_the_default_is_to_observe() -> None:
    """A machine is stopped only where somebody wrote `mode: enforce`."""
    assert Settings().mode == "observe"


def test_the_variable_names_the_file(file: Path) -> None:
    """GPUWATCH_CONFIG names the file where no argument does."""
    file.write_text("fleet: research")

    assert load(None, {"GPUWATCH_CONFIG": str(file)}).fleet == "research"


def test_a_section_with_nothing_in_it_holds_its_defaults(file: Path) -> None:
    """A section whose keys are all commented out is right."""
    assert read(file, "limits:\n  # max_stops_per_hour: 3\npools:\n  training:\n").pool("training") == PoolRules()


def test_durations_are_written_for_people(file: Path) -> None:
    """`1h30m`, `90s` and a number of seconds all name a duration."""
    pools = read(file, "pools: {a: {warm_up: 1h30m}, b: {warm_up: 90s}, c: {warm_up: 7.5}}").pools

    assert [pools[name].warm_up for name in "abc"] == [5400.0, 90.0, 7.5]


def test_an_unlisted_pool_follows_the_default_pool(file: Path) -> None:
    """The entry `default` holds for every pool that has none of its own."""
    found = read(file, "pools: {default: {min_nodes: 2}, training: {min_nodes: 5}}")

    assert [found.pool(name).min_nodes for name in ("training", "default", "other")] == [5, 2, 2]


def test_the_default_pool_exists_unwritten() -> None:
    """Without any pool in the file, every pool follows the built-in rules."""
    assert Settings().pool("anything") == PoolRules()


def test_anchors_and_merges_save_repetition(file: Path) -> None:
    """YAML's aliases work, and what stands beside a merge wins."""
    pools = read(file, "pools:\n  a: &a {min_nodes: 2, warm_up: 1m}\n  b: *a\n  c: {warm_up: 2m, <<: *a}\n").pools

    assert (pools["b"], pools["c"]) == (pools["a"], PoolRules(min_nodes=2, warm_up=120.0))


def test_words_of_old_yaml_are_texts(file: Path) -> None:
    """A pool called `on` or `no`, and one called 7, are names like any other."""
    assert sorted(read(file, "pools: {on: {}, no: {}, 7: {}}").pools) == ["7", "no", "on"]


# The environment


def test_the_environment_wins_over_the_file(file: Path) -> None:
    """An override changes its own key and leaves its neighbours to the file."""
    found = read(
        file,
        "mode: observe\nlimits: {max_stops_per_hour: 9, max_stops_per_round: 1}",
        {"GPUWATCH_MODE": "enforce", "GPUWATCH_LIMITS__MAX_STOPS_PER_HOUR": "3"},
    )

    assert (found.mode, found.limits.max_stops_per_hour, found.limits.max_stops_per_round) == ("enforce", 3, 1)


def test_a_variable_reaches_into_a_pool(file: Path) -> None:
    """Two underscores lead one step down, through the pool's name."""
    found = read(file, "pools: {training: {min_nodes: 4}}", {"GPUWATCH_POOLS__training__IDLE__AFTER": "45m"})

    assert found.pools == {"training": PoolRules(min_nodes=4, idle=IdleRules(after=2700.0))}


def test_a_pool_of_the_file_is_found_whatever_its_case(file: Path) -> None:
    """A variable in capitals means the pool that the file spells otherwise, not a new one."""
    found = read(file, "pools: {Training: {}}", {"GPUWATCH_POOLS__TRAINING__MIN_NODES": "2"})

    assert found.pools == {"Training": PoolRules(min_nodes=2)}


def test_a_variable_may_name_a_new_pool(file: Path) -> None:
    """In a container without a file the environment alone describes the pools."""
    assert read(file, env={"GPUWATCH_POOLS__batch__MIN_NODES": "1"}).pools == {"batch": PoolRules(min_nodes=1)}


@pytest.mark.parametrize("written", ["eu-west-1,eu-north-1", " eu-west-1 , eu-north-1", '["eu-west-1", "eu-north-1"]'])
def test_a_list_is_separated_by_commas(file: Path, written: str) -> None:
    """A variable holds a list as people write one, or as JSON."""
    assert read(file, env={"GPUWATCH_CLOUD__REGIONS": written}).cloud.regions == ("eu-west-1", "eu-north-1")


def test_an_address_is_set_by_node(file: Path) -> None:
    """A chosen name may also be the last part of a variable."""
    found = read(file, env={"GPUWATCH_SIGNALS__TARGETS__node1": "http://10.0.0.7:9460"})

    assert found.signals.targets == {"node1": "http://10.0.0.7:9460"}


def test_an_empty_variable_sets_nothing(file: Path) -> None:
    """Compose files pass unset variables on as empty ones; they leave the file in force."""
    assert read(file, "fleet: research", {"GPUWATCH_FLEET": ""}).fleet == "research"


@pytest.mark.parametrize(
    "name", ["GPUWATCH_PORT", "GPUWATCH_SERVICE_HOST", "GPUWATCH_PORT_9460_TCP_ADDR", "GPUWATCH_AGENT_SERVICE_PORT"]
)
def test_what_kubernetes_says_of_a_service_is_no_mistake(file: Path, name: str) -> None:
    """A Service named gpuwatch puts variables of our prefix into every pod; they are left alone."""
    assert read(file, env={name: "tcp://10.0.0.1:9460"}) == Settings()


# The agent


def test_the_agent_reads_its_section_of_the_same_file(file: Path) -> None:
    """One file may be given to every host, and variables override the agent's keys too."""
    file.write_text("mode: enforce\nagent: {port: 9500}")

    knobs = load_agent(file, {"GPUWATCH_AGENT__SOURCE": "simulated"})

    assert (knobs.port, knobs.source) == (9500, "simulated")


def test_the_agent_does_not_judge_the_controllers_limits(file: Path) -> None:
    """An agent starts although its interval does not suit a limit that another machine obeys."""
    file.write_text("agent: {interval: 40s, activity: {max_gap: 5m}}")

    assert load_agent(file).interval == 40.0
    with pytest.raises(ConfigError, match=r"limits\.max_verdict_age"):
        load(file, {})


# What is refused, and in which words

REFUSED = {
    "misspelt": ("mdoe: enforce", 'FILE:1: mdoe: is no key of the configuration (its value is "enforce")', "mode"),
    "misspelt below": (
        "pools:\n  a:\n    idle:\n      aftr: 30m",
        'FILE:4: pools.a.idle.aftr: is no key of the configuration (its value is "30m")',
        "pools.a.idle.after",
    ),
    "misplaced": (
        "max_stops_per_hour: 3",
        "FILE:1: max_stops_per_hour: is no key of the configuration (its value is 3)",
        "limits.max_stops_per_hour",
    ),
    "unheard of": (
        "ledger: {colour: red}",
        'FILE:1: ledger.colour: is no key of the configuration (its value is "red")',
        "one of path",
    ),
    "secret": (
        "cloud: {secret_key: hush}",
        "FILE:1: cloud.secret_key: is no key of the configuration (its value is (hidden))",
        "one of provider, regions, profile, endpoint_url",
    ),
    "no choice": ("mode: enforced", 'FILE:1: mode: "enforced" is none of the choices', "one of observe, enforce"),
    "no duration": (
        "interval: soon",
        'FILE:1: interval: "soon" is not a duration',
        "a duration at least 1s, written as 90s, 30m, 1h30m or 2d",
    ),
    "clock time": (
        "interval: 1:30",
        'FILE:1: interval: "1:30" is not a duration',
        "a duration at least 1s, written as 90s, 30m, 1h30m or 2d",
    ),
    "too small": ("interval: 10ms", 'FILE:1: interval: "10ms" is too small', "a duration at least 1s"),
    "not above": (
        "limits: {max_verdict_age: 0}",
        "FILE:1: limits.max_verdict_age: 0 is too small",
        "a duration above 0s",
    ),
    "too large": (
        "signals: {port: 70000}",
        "FILE:1: signals.port: 70000 is too large",
        "a whole number at least 1 and at most 65535",
    ),
    "no number": (
        "signals: {port: http}",
        'FILE:1: signals.port: "http" is not a whole number',
        "a whole number at least 1 and at most 65535",
    ),
    "a fraction": (
        "pools: {a: {min_nodes: 1.5}}",
        "FILE:1: pools.a.min_nodes: 1.5 is not a whole number",
        "a whole number at least 0",
    ),
    "a switch": (
        "pools: {a: {min_nodes: true}}",
        "FILE:1: pools.a.min_nodes: true is not a whole number",
        "a whole number at least 0",
    ),
    "not finite": ("interval: .inf", "FILE:1: interval: Infinity is not finite", "a duration at least 1s"),
    "no text": (
        "ledger: {path: 7}",
        "FILE:1: ledger.path: 7 is not a text",
        'a text that is not empty; write "7" with quotes',
    ),
    "empty text": ("ledger: {path: ''}", 'FILE:1: ledger.path: "" is empty', "a text that is not empty"),
    "no value": ("mode:", "FILE:1: mode: null is none of the choices", "one of observe, enforce"),
    "no list": (
        "cloud: {regions: eu-west-1}",
        'FILE:1: cloud.regions: "eu-west-1" is not a list of texts',
        "a list of texts, written as [one, another]",
    ),
    "a list's item": (
        "cloud: {regions: [eu-west-1, 7]}",
        "FILE:1: cloud.regions.1: 7 is not a list of texts",
        "a list of texts, written as [one, another]",
    ),
    "no section": ("ledger: x.db", 'FILE:1: ledger: "x.db" is not a section', "a section of path"),
    "a list for names": (
        "pools: [a]",
        "FILE:1: pools: a list is not a section of names",
        "a section of names",
    ),
    "twice": (
        "mode: observe\nfleet: x\nmode: enforce",
        "FILE:3: mode: is written twice, first in line 1",
        "one of the two",
    ),
    "tag": ("fleet: !secret x", "FILE:1: fleet: has the tag !secret", "a plain value without a tag"),
    "untrue tag": (
        "fleet: !!int x",
        "FILE:1: fleet: is no value: invalid literal for int() with base 10: 'x'",
        "a plain value",
    ),
    "no url": (
        "signals: {targets: {i-1: host:80}}",
        "FILE:1: signals.targets.i-1: 'host:80' is no URL",
        "a URL such as http://10.0.0.7:9460",
    ),
    "gap": (
        "agent:\n  interval: 20s\n",
        "FILE:2: agent.interval: agent.activity.max_gap (10s) does not exceed agent.interval (20s): no time counts",
        "an agent.activity.max_gap of several intervals, such as 3m20s",
    ),
    "restarts": (
        "agent: {restart_min: 10s, restart_max: 5s}",
        "FILE:1: agent.restart_max: agent.restart_max (5s) is shorter than agent.restart_min (10s)",
        "an agent.restart_max of 10s or more",
    ),
    "nothing to replay": (
        "agent: {source: replay}",
        "FILE:1: agent.source: agent.source is replay, but agent.capture names no recording",
        "agent.capture: the file of a recorded probe stream",
    ),
    "always stale": (
        "signals: {timeout: 40s}",
        (
            "FILE:1: signals.timeout: limits.max_verdict_age (30s) does not exceed "
            "signals.timeout + agent.interval (41s): good answers would count as stale"
        ),
        "a limits.max_verdict_age above 41s",
    ),
    "no mapping": (
        "- mode",
        "FILE:1: the file holds a list and no keys",
        "lines such as `mode: observe`, indented with spaces",
    ),
    "a tabulator": (
        "ledger:\n\tpath: x",
        "FILE:2: is no YAML: found character '\\t' that cannot start any token",
        "lines such as `mode: observe`, indented with spaces",
    ),
    "endless": (
        "pools: &a [*a]",
        "FILE: is no YAML: aliases repeat or contain each other without end",
        "lines such as `mode: observe`, indented with spaces",
    ),
}


@pytest.mark.parametrize(("text", "wrong", "right"), REFUSED.values(), ids=REFUSED)
def test_a_mistake_in_the_file_is_told_with_place_value_and_remedy(
    file: Path, text: str, wrong: str, right: str
) -> None:
    """Each kind of mistake names file, line, key and value, says what is wrong and what would be right."""
    assert mistakes(file, text) == f"{wrong}\n    right would be: {right}"


REFUSED_VARIABLES = {
    "misspelt": ({"GPUWATCH_MDOE": "enforce"}, "GPUWATCH_MDOE: is no setting", "GPUWATCH_MODE"),
    "one underscore": (
        {"GPUWATCH_LIMITS_MAX_STOPS_PER_HOUR": "3"},
        "GPUWATCH_LIMITS_MAX_STOPS_PER_HOUR: is no setting",
        "GPUWATCH_LIMITS__MAX_STOPS_PER_HOUR",
    ),
    "in a pool": (
        {"GPUWATCH_POOLS__training__IDLE__AFTR": "45m"},
        "GPUWATCH_POOLS__training__IDLE__AFTR: is no setting",
        "GPUWATCH_POOLS__training__IDLE__AFTER",
    ),
    "prefix": ({"GPUWATHC_MODE": "enforce"}, "GPUWATHC_MODE: is no setting", "GPUWATCH_MODE"),
    "small letters": ({"gpuwatch_mode": "enforce"}, "gpuwatch_mode: is no setting", "GPUWATCH_MODE"),
    "unheard of": (
        {"GPUWATCH_QQQQ": "1"},
        "GPUWATCH_QQQQ: is no setting",
        "one that `gpuwatch docs configuration` lists",
    ),
    "a whole section": (
        {"GPUWATCH_LEDGER": "{}"},
        "GPUWATCH_LEDGER: names a section",
        "one key of it, such as GPUWATCH_LEDGER__PATH",
    ),
    "twice": (
        {"GPUWATCH_MODE": "enforce", "GPUWATCH_Mode": "observe"},
        "GPUWATCH_Mode: sets mode, as does GPUWATCH_MODE",
        "one of the two",
    ),
    "bad value": (
        {"GPUWATCH_POOLS__training__IDLE__AFTER": "soon"},
        'GPUWATCH_POOLS__training__IDLE__AFTER: pools.training.idle.after: "soon" is not a duration',
        "a duration above 0s, written as 90s, 30m, 1h30m or 2d",
    ),
    "bad number": (
        {"GPUWATCH_POOLS__training__MIN_NODES": "true"},
        'GPUWATCH_POOLS__training__MIN_NODES: pools.training.min_nodes: "true" is not a whole number',
        "a whole number at least 0",
    ),
}


@pytest.mark.parametrize(("env", "wrong", "right"), REFUSED_VARIABLES.values(), ids=REFUSED_VARIABLES)
def test_a_mistake_in_the_environment_names_the_variable(
    file: Path, env: dict[str, str], wrong: str, right: str
) -> None:
    """A variable that names no key, or holds what its key does not take, is refused with the right one."""
    assert mistakes(file, env=env) == f"environment variable {wrong}\n    right would be: {right}"


def test_all_mistakes_are_told_at_once(file: Path) -> None:
    """Nobody has to run the check once for each mistake."""
    told = mistakes(file, "mdoe: x\nfleet: 3\ninterval: true", {"GPUWATCH_FLET": "x"})

    assert re.findall(r"^(?:FILE:\d+|environment variable): (\w+)|variable (\w+)", told, re.MULTILINE) == [
        ("interval", ""),
        ("", "GPUWATCH_FLET"),
        ("fleet", ""),
        ("mdoe", ""),
    ]


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    """A named file must exist: defaults in its place would be a surprise."""
    with pytest.raises(ConfigError, match=r"none\.yaml: cannot be read: No such file or directory"):
        load(tmp_path / "none.yaml", {})


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    """A folder in the file's place is told."""
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        load(tmp_path, {})


@pytest.mark.parametrize(
    ("value", "texts"),
    [
        ("us-east-1", ("us-east-1",)),
        ("us-east-1, eu-west-1", ("us-east-1", "eu-west-1")),
        ("[us-east-1, eu-west-1]", ("us-east-1", "eu-west-1")),
        ('["a, b", "c"]', ("a, b", "c")),
    ],
)
def test_a_variable_sets_a_list(value: str, texts: tuple[str, ...]) -> None:
    """Separated by commas; in brackets a text may hold a comma of its own."""
    assert load(None, {"GPUWATCH_CLOUD__REGIONS": value}).cloud.regions == texts


def test_a_variable_that_is_no_list_is_refused() -> None:
    """What begins like a list must be one: a command cut in pieces would be another command."""
    with pytest.raises(ConfigError, match="GPUWATCH_CLOUD__REGIONS: is no list"):
        load(None, {"GPUWATCH_CLOUD__REGIONS": '["sh", "-c", "exit 3'})


def test_a_pipe_is_refused_and_not_passed_over(tmp_path: Path) -> None:
    """What is named and cannot be read twice must not quietly mean "all defaults"."""
    os.mkfifo(tmp_path / "pipe")

    with pytest.raises(ConfigError, match="cannot be read: not a regular file"):
        load(tmp_path / "pipe", {})


def test_a_file_of_bytes_is_told(file: Path) -> None:
    """What is no UTF-8 is no configuration."""
    file.write_bytes(b"fleet: \xff")

    with pytest.raises(ConfigError, match="is no YAML: 'utf-8' codec"):
        load(file, {})


def test_a_bomb_of_aliases_is_refused(file: Path) -> None:
    """A small file that unfolds to millions of values is refused before it is unfolded."""
    lines = ["a0: &a0 [x]"] + [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 9)]

    assert "aliases repeat or contain each other without end" in mistakes(file, "\n".join(lines))


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


def named(key: Key) -> tuple[str, ...]:
    """A key's path with the pool's name in it."""
    return tuple(POOL if part == NAME else part for part in key.path)


@st.composite
def misspelt_paths(draw: st.DrawFn) -> tuple[str, ...]:
    """A key with a misspelling in one part of its path that is not the user's own name."""
    key = draw(st.sampled_from(VALUES))
    path = list(named(key))
    place = draw(st.sampled_from([place for place, part in enumerate(key.path) if part != NAME]))
    path[place] = misspell(draw, path[place], ascii_lowercase + digits + "_")
    return tuple(path[: place + 1]) if draw(st.booleans()) else tuple(path)


@settings(max_examples=150, deadline=None)
@given(path=misspelt_paths())
def test_any_misspelt_key_in_the_file_is_refused_by_name(file: Path, path: tuple[str, ...]) -> None:
    """One wrong character anywhere in any key is refused, and the refusal names the key as it was written."""
    assume(keys.pattern(KEYS, path) is None)
    content: object = "30m"
    for part in reversed(path):
        content = {part: content}
    wrong = next(length for length in range(1, len(path) + 1) if keys.pattern(KEYS, path[:length]) is None)

    assert f": {'.'.join(path[:wrong])}: is no key of the configuration" in mistakes(file, json.dumps(content))


@st.composite
def misspelt_variables(draw: st.DrawFn) -> str:
    """The variable of a key with one wrong character, the prefix included."""
    variable = draw(st.sampled_from(VALUES)).variable.replace(NAME, POOL)
    return misspell(draw, variable, ascii_uppercase + digits + "_")


@settings(max_examples=300, deadline=None)
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
    assert read(file, render_defaults()) == Settings(pools={"default": PoolRules()})


@pytest.mark.parametrize("key", VALUES, ids=lambda key: key.dotted)
def test_every_key_can_be_set_by_its_variable(file: Path, key: Key) -> None:
    """The variable that the manual names reaches its key: a value out of place is told under the key's own path."""
    wrong = {Kind.TEXT: None, Kind.LIST: None}.get(key.kind, "!")
    name = key.variable.replace(NAME, POOL)
    if wrong is None:
        try:
            found: object = read(file, env={name: "http://x"})
        except ConfigError as error:  # such a value needs another key, and is told under its own as well
            assert f"environment variable {name}: {'.'.join(named(key))}" in str(error)  # noqa: PT017  either is right
            return
        for part in named(key):
            found = found[part] if isinstance(found, dict) else getattr(found, part)
        assert found in {"http://x", ("http://x",)}
        return

    assert f"environment variable {name}: {'.'.join(named(key))}: " in mistakes(file, env={name: wrong})


@given(seconds=st.floats(0.001, 1e9))
def test_a_duration_told_can_be_written(seconds: float) -> None:
    """What `format_duration` says is read back as what it says."""
    told = format_duration(seconds)
    written = parse_duration(told)

    assert isinstance(written, float)
    assert format_duration(written) == told


@pytest.mark.parametrize("key", [key for key in VALUES if key.kind is Kind.DURATION], ids=lambda key: key.dotted)
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
    """A duration is a text of the right form, or a number within the bounds; its default is told as a text."""
    text, number = schema()["properties"]["interval"]["anyOf"]

    assert re.match(text["pattern"], "1h30m")
    assert not re.match(text["pattern"], "soon")
    assert (number["type"], number["minimum"]) == ("number", 1)
    assert schema()["properties"]["interval"]["default"] == "1m"
