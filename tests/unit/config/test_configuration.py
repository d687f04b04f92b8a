"""The configuration: what may be written, in the file and in the environment."""

from pathlib import Path

import pytest

from gpuwatch.config import ConfigError, load, load_agent
from gpuwatch.config.settings import Settings
from gpuwatch.policies import PoolRules
from gpuwatch.policies.idle import IdleRules
from tests.support.builders.configurations import read

# What may be written


def test_an_empty_file_is_right(file: Path) -> None:
    """Every key has a default, so nothing needs to be written."""
    assert read(file) == Settings()


def test_no_file_is_right(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without a file anywhere the defaults are in force."""
    monkeypatch.setattr("gpuwatch.config.chosen_file.DEFAULT_PATH", tmp_path / "none.yaml")

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
    assert (
        read(file, "limits:\n  # max_stops_per_hour: 3\npools:\n  training:\n").rulebook.pool("training") == PoolRules()
    )


def test_durations_are_written_for_people(file: Path) -> None:
    """`1h30m` and `90s` name a duration; 0 needs no unit."""
    pools = read(file, "pools: {a: {warm_up: 1h30m}, b: {warm_up: 90s}, c: {warm_up: 0}, d: {warm_up: '0.0'}}").pools

    assert [pools[name].warm_up for name in "abcd"] == [5400.0, 90.0, 0.0, 0.0]


def test_an_unlisted_pool_follows_no_pool(file: Path) -> None:
    """The entry `default` holds for machines without a pool; nothing may be done to a pool without an entry."""
    found = read(file, "pools: {default: {min_nodes: 2}, training: {min_nodes: 5}}").rulebook

    assert [found.pool(name).min_nodes for name in ("training", "default")] == [5, 2]
    assert found.pool("other").idle.action == "report"
    assert found.unknown(["other", "training", "default"]) == ("other",)


def test_the_default_pool_exists_unwritten() -> None:
    """Without any pool in the file, machines without a pool follow the built-in rules."""
    assert Settings().rulebook.pool("default") == PoolRules()


def test_anchors_and_merges_save_repetition(file: Path) -> None:
    """YAML's aliases work, and what stands beside a merge wins."""
    pools = read(file, "pools:\n  a: &a {min_nodes: 2, warm_up: 1m}\n  b: *a\n  c: {warm_up: 2m, <<: *a}\n").pools

    assert (pools["b"], pools["c"]) == (pools["a"], PoolRules(min_nodes=2, warm_up=120.0))


def test_words_of_old_yaml_are_texts(file: Path) -> None:
    """A pool called `on` or `no`, and one called 7, are names like any other."""
    assert sorted(read(file, "pools: {on: {}, no: {}, 7: {}}").pools) == ["7", "no", "on"]


# The environment


@pytest.mark.parametrize("written", ["1.3", '"1.3"'])
def test_a_choice_that_looks_like_a_number_needs_no_quotes(file: Path, written: str) -> None:
    """1.3 is a number for YAML, and a version for everybody else."""
    text = f"agent: {{tls_min: {written}, tls_certificate: a.pem, tls_key: a.key}}"

    assert read(file, text).agent.tls_min == "1.3"


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
    found = read(file, "pools: {training: {min_nodes: 4}}", {"GPUWATCH_POOLS__training__IDLE__TIMEOUT": "45m"})

    idle = IdleRules(timeout=2700.0, fresh_timeout=None, unattended_grace_period=600.0)
    assert found.pools == {"training": PoolRules(min_nodes=4, idle=idle)}


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

    settings = load_agent(file, {"GPUWATCH_AGENT__SOURCE": "simulated"})

    assert (settings.port, settings.source) == (9500, "simulated")


def test_the_agent_does_not_judge_the_controllers_limits(file: Path) -> None:
    """An agent starts although its interval does not suit a limit that another machine obeys."""
    file.write_text("agent: {interval: 40s, activity: {max_gap: 5m}}")

    assert load_agent(file).interval == 40.0
    with pytest.raises(ConfigError, match=r"limits\.max_verdict_age"):
        load(file, {})
