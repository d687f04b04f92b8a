"""Slips of the hand in the settings that would take machines away from their users, or blind a signal: refused."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.config import keys
from gpuwatch.config.keys import NAME, Kind
from gpuwatch.config.settings import Settings
from gpuwatch.model.duration import format_duration
from tests.support.builders.configurations import mistakes, read
from tests.support.each import for_each

KEYS = keys.declared_keys(Settings)
DURATIONS = [key for key in KEYS.values() if key.kind is Kind.DURATION]
FLOORS = [key for key in DURATIONS if key.floor is not None]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file to write configurations to."""
    return tmp_path / "gpuwatch.yaml"


def written(path: keys.Path, value: object) -> str:
    """A file that sets one key."""
    text = str(value)
    for part in reversed(path):
        text = f"{{{'default' if part == NAME else part}: {text}}}"
    return text


@for_each(DURATIONS, lambda key: key.dotted)
def test_no_duration_is_a_number_without_a_unit(key: keys.Key, file: Path) -> None:
    """`timeout: 30` may mean minutes: the refusal names key, value, and how those units are written that fit."""
    text = mistakes(file, written(key.path, 30))

    assert f"{key.dotted.replace(NAME, 'default')}: 30 has no unit\n" in text
    assert f"expected: {key.expected}; write 30" in text
    for unit, seconds in {"m for minutes": 1800, "s for seconds": 30}.items():
        assert (f"30{unit}" in text) is (key.floor is None or key.floor.allows(seconds))


@pytest.mark.parametrize("value", ['"30"', "' 30 '", "30.0", "1e3", "-5", "0.5", '"4"'])
def test_no_way_to_write_a_number_is_a_duration(file: Path, value: str) -> None:
    """Quotes and points change nothing."""
    assert "has no unit" in mistakes(file, f"pools: {{a: {{idle: {{parked: stop, parked_timeout: {value}}}}}}}")
    assert "has no unit" in mistakes(file, f"pools: {{a: {{idle: {{timeout: {value}}}}}}}")


@pytest.mark.parametrize("key", FLOORS, ids=lambda key: key.dotted)
def test_a_wait_below_its_minimum_is_refused_and_the_minimum_is_not(file: Path, key: keys.Key) -> None:
    """A wait of milliseconds, or of seconds where minutes are meant."""
    assert key.floor is not None
    path = key.dotted.replace(NAME, "default")
    least = key.floor.seconds
    cluster = {"GPUWATCH_KUBERNETES__IN_CLUSTER": "true"} if "kubernetes" in key.path else {}

    for short in ("1ms", "1s", format_duration(least - 1)):
        text = mistakes(file, written(key.path, short))
        assert f"{path}: {format_duration(0.001 if short == '1ms' else 1 if short == '1s' else least - 1)}" in text
        assert "limits.allow_short_waits: true" in text
    read(file, written(key.path, format_duration(least)), env=cluster)
    if key.floor.or_none:
        read(file, written(key.path, "0s"), env=cluster)


def test_tests_may_allow_short_waits_and_are_warned(file: Path) -> None:
    """One switch lifts the minima of waits, and nothing else."""
    short = "limits: {allow_short_waits: true}\npools: {default: {warm_up: 1s, idle: {timeout: 2s, grace_period: 1s}}}"
    settings = read(file, short)

    assert settings.pools["default"].idle.timeout == 2.0
    (caution,) = settings.cautions
    assert caution.startswith("limits.allow_short_waits is true: waits of seconds are accepted. It is for tests,")
    assert Settings().cautions == ()
    assert "has no unit" in mistakes(file, "limits: {allow_short_waits: true}\npools: {a: {idle: {timeout: 2}}}")
    assert "is too large" in mistakes(file, "limits: {allow_short_waits: true, max_verdict_age: 30d}")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("agent.activity.busy_utilization_ratio", 1),
        ("agent.activity.busy_utilization_ratio", 0.11),
        ("agent.activity.busy_power_ratio", 1),
        ("agent.activity.max_rest_power_ratio", 0.7),
        ("agent.activity.held_memory_bytes", 80 * 10**9),
        ("agent.activity.max_gap", "10m"),
        ("agent.activity.forget_after", "1h"),
        ("agent.evidence.cpu.busy_cores", 8),
        ("agent.evidence.gpu_process_cpu.busy_cores", 5),
        ("agent.evidence.disk.busy_bytes_per_second", 5e9),
        ("agent.evidence.network.busy_bytes_per_second", 1e9),
        ("agent.evidence.rdma.busy_bytes_per_second", 1e9),
        ("agent.evidence.connections.busy_bytes_per_second", 1e9),
        ("agent.evidence.people.interval", "1h"),
        ("agent.evidence.slurm.interval", "1h"),
        ("limits.max_verdict_age", "30d"),
        ("limits.mass_idleness_ratio", 1),
        ("limits.mass_idleness_nodes", 1000),
        ("interval", "1d"),
    ],
)
def test_a_number_that_would_switch_a_signal_off_is_refused(file: Path, key: str, value: object) -> None:
    """Where a signal is to be off, its own switch says so."""
    assert f"{key}: " in (text := mistakes(file, written(tuple(key.split(".")), value)))
    assert "is too large" in text


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("agent.evidence.people.silent_after", "30s"),
        ("agent.evidence.jupyter.silent_after", "30ms"),
        ("agent.evidence.model_servers.silent_after", "30s"),
        ("agent.evidence.snooze.max", "4m"),
        ("limits.mass_idleness_window", "2ms"),
    ],
)
def test_a_time_too_short_for_what_it_watches_is_refused(file: Path, key: str, value: str) -> None:
    """People pause for longer than that between two keystrokes."""
    assert "is too small" in mistakes(file, written(tuple(key.split(".")), value))


@pytest.mark.parametrize(
    ("text", "wrong", "right"),
    [
        ("cloud: {regions: [us-esat-1]}", "cloud.regions: 'us-esat-1' is no region of aws", "us-east-1"),
        ("cloud: {regions: [us-east-1, EU-central-1]}", "cloud.regions: 'EU-central-1' is no region", "eu-central-1"),
        ("cloud: {regions: [us-east-1a]}", "cloud.regions: 'us-east-1a' is no region of aws", "us-east-1"),
        ("cloud: {regions: [' us-east-1']}", "cloud.regions: ' us-east-1' is no region of aws", "us-east-1"),
        ("cloud: {regions: [ALL]}", "cloud.regions: 'ALL' is no region of aws", "all, in small letters"),
        (
            "cloud: {regions: [all, us-east-1]}",
            "cloud.regions: all stands there with other regions (us-east-1)",
            "[all], or names alone",
        ),
        (
            "{cloud: {regions: [all]}, pools: {a: {launch: {template: lt-1}}}}",
            "cloud.regions is [all], and pools.a.launch does not say in which region",
            "pools.a.launch.region",
        ),
        (
            "{cloud: {provider: gcp, regions: [all]}, pools: {a: {launch: {template: t, region: all}}}}",
            "pools.a.launch.region: 'all' is no region of gcp",
            "a region that it has",
        ),
        (
            "{clouds: {us: {provider: aws, regions: [all]}}, pools: {a: {launch: {template: lt-1, cloud: us}}}}",
            "clouds.us.regions is [all], and pools.a.launch does not say in which region",
            "pools.a.launch.region",
        ),
        ("cloud: {regions: [Frankfurt]}", "'Frankfurt' is no region of aws", "a region that it has"),
        (
            "cloud: {aws: {accounts: {a: {regions: [us-wset-2]}}}}",
            "cloud.aws.accounts.a.regions: 'us-wset-2' is no region of aws",
            "us-west-2",
        ),
        (
            "pools: {a: {launch: {template: lt-1, region: eu-wst-1}}}",
            "pools.a.launch.region: 'eu-wst-1' is no region of aws",
            "eu-west-1",
        ),
        ("pools: {a: {regions: [us-est-1]}}", "pools.a.regions: 'us-est-1' is no region of aws", "us-east-1"),
        (
            "pools: {a: {regions: [eu-*, EUR-*]}}",
            "pools.a.regions: 'EUR-*' is no region of aws",
            "a region that it has",
        ),
        ("pools: {a: {regions: [all]}}", "pools.a.regions: 'all' is no region of aws", "no pool's regions"),
        (
            "{clouds: {us: {regions: [us-east-1]}, g: {provider: gcp}}, pools: {a: {clouds: [us], regions: [uss-*]}}}",
            "pools.a.regions: 'uss-*' is no region of aws",
            "a region that it has",
        ),
    ],
)
def test_a_region_that_does_not_exist_is_refused(file: Path, text: str, wrong: str, right: str) -> None:
    """It would look like an empty fleet, or like a cloud that does not answer."""
    result = mistakes(file, text)

    assert wrong in result
    assert f"expected: {right}" in result


@pytest.mark.parametrize("region", ["eu-central-1", "us-gov-west-1", "cn-northwest-1", "ap-southeast-7"])
def test_regions_of_every_partition_are_known(file: Path, region: str) -> None:
    """GovCloud and China, too."""
    assert read(file, f"cloud: {{regions: [{region}]}}").cloud.regions == (region,)


@pytest.mark.parametrize("names", ["{Default: {}}", "{a-b: {}, a_b: {}}", "{train: {}, Train: {}}", "{'defa ult': {}}"])
def test_pools_that_people_cannot_tell_apart_are_refused(file: Path, names: str) -> None:
    """`Default` would leave the real default pool as it is."""
    assert "differ in case, blanks or punctuation only" in mistakes(file, f"pools: {names}")


@pytest.mark.parametrize("name", ["' train'", "'train '", "''", "'  '"])
def test_a_pools_name_has_no_blanks_around_it(file: Path, name: str) -> None:
    """Nobody sees them in a tag."""
    assert "is empty or has blanks around it" in mistakes(file, f"pools: {{{name}: {{}}}}")


@pytest.mark.parametrize("fleet", ["' lab'", "'lab '", "'  '"])
def test_a_fleets_name_has_no_blanks_around_it(file: Path, fleet: str) -> None:
    """No machine would ever be enrolled, and nobody would know why."""
    assert "fleet: " in (text := mistakes(file, f"fleet: {fleet}"))
    assert "has blanks around it" in text


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("budgets: {b: {pool: Prod}}", "budgets.b.pool"),
        ("notify: {receivers: {chat: {slack: {url_file: /s}, pools: [prod, Prod]}}}", "notify.receivers.chat.pools"),
    ],
)
def test_a_pool_that_another_section_names_must_exist(file: Path, text: str, key: str) -> None:
    """A budget of no pool would never be spent, and a message about none never sent."""
    result = mistakes(file, f"pools: {{prod: {{}}}}\n{text}")

    assert f"{key}: the settings have no pool 'Prod'" in result
    assert "expected: a pool of the settings. The nearest is 'prod'." in result


@given(name=st.text(max_size=12).filter(str.isprintable))
def test_any_spelling_of_default_but_itself_is_refused(name: str) -> None:
    """Whatever is put around or between its letters, if only case, blanks and punctuation differ."""
    from gpuwatch.model.slips import fold_text  # noqa: PLC0415  what the rule goes by
    from gpuwatch.policies import PoolRules, validation  # noqa: PLC0415  likewise

    found = list(validation.contradictions({name: PoolRules(), "x": PoolRules()}, {}))

    assert bool(found) == (
        name not in {"default", "x"}
        and (fold_text(name) in {"default", "x"} or name != name.strip() or not name.strip())
    )


_LONG, _BUILDING = "a" * 64, "Gruppe für Bildverarbeitung und maschinelles Lernen"


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        (f"{{fleet: {_LONG}, cloud: {{provider: gcp, regions: [us-central1]}}}}", f"fleet: '{_LONG}' does not fit"),
        (f"{{cloud: {{provider: gcp, regions: [us-central1]}}, pools: {{{_BUILDING}: {{}}}}}}", f"pools.{_BUILDING}: "),
        (
            f"{{clouds: {{g: {{provider: gcp, regions: [us-central1]}}}}, pools: {{{_LONG}: {{clouds: [g]}}}}}}",
            f"'{_LONG}' does not fit into a tag on gcp, the cloud g",
        ),
        ("{fleet: 'a#b', cloud: {provider: tencent, regions: [ap-beijing]}}", "fleet: 'a#b' does not fit into a tag"),
        (f"{{fleet: {'a' * 129}, cloud: {{provider: alibaba, regions: [cn-beijing]}}}}", "a tag's value takes 128"),
    ],
)
def test_a_name_that_no_tag_can_hold_is_refused(file: Path, text: str, wrong: str) -> None:
    """By its key and value: no machine could ever be of that fleet, or of that pool."""
    assert wrong in mistakes(file, text)


@pytest.mark.parametrize(
    "text",
    [
        f"{{cloud: {{provider: aws}}, pools: {{{_LONG}: {{}}}}}}",
        f"{{clouds: {{g: {{provider: gcp, regions: [us-central1]}}, a: {{}}}}, pools: {{{_LONG}: {{clouds: [a]}}}}}}",
        "{fleet: Forschung, cloud: {provider: gcp, regions: [us-central1]}, pools: {Bild: {}}}",
    ],
)
def test_a_name_is_held_to_the_clouds_in_which_it_is_used(file: Path, text: str) -> None:
    """Another cloud of the same settings may take less."""
    assert read(file, text) is not None
