"""Several clouds in one file: each under a name, with its own mistakes at its own keys."""

from pathlib import Path

import pytest

from gpuwatch.clouds.settings import CloudSettings
from gpuwatch.config import ConfigError, load

TWO = """
clouds:
  bj: {regions: [cn-north-1]}
  us: {regions: [us-east-1], aws: {profile: research}}
"""


def read(tmp_path: Path, text: str, **env: str) -> str | dict[str, CloudSettings]:
    """The clouds of that file, or the errors without the file's name."""
    file = tmp_path / "gpuwatch.yaml"
    file.write_text(text, encoding="utf-8")
    try:
        return dict(load(file, env).named_clouds)
    except ConfigError as error:
        return str(error).replace(str(file), "FILE")


def test_clouds_keep_their_names_and_their_order(tmp_path: Path) -> None:
    """Each has all that the section `cloud` has."""
    found = read(tmp_path, TWO)

    assert isinstance(found, dict)
    assert [(name, cloud.regions, cloud.aws.profile) for name, cloud in found.items()] == [
        ("bj", ("cn-north-1",), None),
        ("us", ("us-east-1",), "research"),
    ]


def test_the_summary_names_the_clouds(tmp_path: Path) -> None:
    """`config check` and the controller's first line show where it will look."""
    file = tmp_path / "gpuwatch.yaml"
    file.write_text(TWO, encoding="utf-8")

    assert ", clouds bj (aws), us (aws), pools default (" in load(file, {}).summary
    assert "clouds" not in load(None, {"GPUWATCH_CONFIG": ""}).summary


def test_one_cloud_needs_no_name(tmp_path: Path) -> None:
    """The short form stays what it was."""
    assert read(tmp_path, "cloud: {regions: [us-east-1]}") == {"": CloudSettings(regions=("us-east-1",))}
    assert read(tmp_path, "") == {"": CloudSettings()}


def test_a_variable_sets_one_clouds_key(tmp_path: Path) -> None:
    """As it does for other names."""
    found = read(tmp_path, TWO, GPUWATCH_CLOUDS__BJ__REGIONS="cn-northwest-1")

    assert isinstance(found, dict)
    assert found["bj"].regions == ("cn-northwest-1",)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("clouds: {}", ["FILE:1: clouds: a section is empty"]),
        ("clouds: {bj: {provider: awz}}", ["FILE:1: clouds.bj.provider: no cloud is named 'awz'", "aws"]),
        ("clouds: {bj: {regions: [us-east-11]}}", ["clouds.bj.regions: 'us-east-11' is no region", "us-east-1"]),
        ("clouds: {Bei Jing: {}}", ["clouds.Bei Jing: 'Bei Jing' is no name of a cloud", "1 to 32 of a-z"]),
        ("clouds: {'': {}}", ["clouds.: the name '' is empty"]),
        ("clouds: {a-b: {}, ab: {}}", ["'ab' and 'a-b' differ in punctuation only"]),
        ("clouds: {bj: {endpoint_url: here}}", ["clouds.bj.endpoint_url: 'here' is not a valid URL"]),
        (
            "clouds: {bj: {aws: {accounts: {a: {role_arn: x}, b: {}, c: {}}}}}",
            [
                "clouds.bj.aws.accounts.a.role_arn: 'x' is no role's ARN",
                "clouds.bj.aws.accounts.c is the same account as clouds.bj.aws.accounts.b",
            ],
        ),
        ("cloud: {}\nclouds: {bj: {}}", ["FILE:1: cloud: the sections cloud and clouds are both written", "one of"]),
        (
            f"{TWO}pools: {{a: {{clouds: [bk]}}}}",
            ["pools.a.clouds: the settings have no cloud 'bk'", "nearest is 'bj'"],
        ),
        ("pools: {a: {clouds: [bj]}}", ["the settings have no cloud 'bj'", "or clouds in `clouds`"]),
        (
            f"{TWO}budgets: {{ml: {{cloud: bk}}}}",
            ["budgets.ml.cloud: the settings have no cloud 'bk'", "nearest is 'bj'"],
        ),
        ("budgets: {ml: {cloud: aws}}", ["budgets.ml.cloud: the settings have no cloud 'aws'"]),
        (f"{TWO}pools: {{a: {{launch: {{cloud: eu}}}}}}", ["pools.a.launch.cloud: the settings have no cloud 'eu'"]),
        (
            f"{TWO}pools: {{a: {{launch: {{template: lt-1}}}}}}",
            ["pools.a.launch has a template and does not say in which cloud it is", "launch.cloud: one of bj, us"],
        ),
        (
            f"{TWO}pools: {{a: {{clouds: [bj], launch: {{template: lt-1, cloud: us}}}}}}",
            ["pools.a.launch.cloud (us) is not among pools.a.clouds (bj)"],
        ),
        (
            f"{TWO}pools: {{a: {{launch: {{cloud: us, region: us-east-9}}}}}}",
            ["pools.a.launch.region: 'us-east-9' is no region of aws"],
        ),
        (
            "pools: {a: {regions: [eu-*], launch: {template: lt-1, region: us-east-1}}}",
            ["pools.a.launch.region is 'us-east-1', which is not among pools.a.regions (eu-*)"],
        ),
        (
            "pools: {a: {regions: [us-east-1], launch: {template: lt-1}}}",
            ["pools.a.launch.region is missing, and must be one of pools.a.regions (us-east-1)"],
        ),
        (
            "pools: {a: {regions: [eu-*], offers: {x: {template: lt-1, instance_type: g6.xlarge, region: us-east-1}}}}",
            ["pools.a.offers.x.region is 'us-east-1', which is not among pools.a.regions (eu-*)"],
        ),
    ],
)
def test_what_is_wrong_is_told_at_its_key(tmp_path: Path, text: str, expected: list[str]) -> None:
    """Where, what, and what would be right."""
    found = read(tmp_path, text)

    assert isinstance(found, str)
    for part in expected:
        assert part in found


def test_a_variable_of_the_short_form_beside_the_map_is_refused(tmp_path: Path) -> None:
    """It would name no cloud of the map."""
    found = read(tmp_path, TWO, GPUWATCH_CLOUD__PROVIDER="aws")

    assert isinstance(found, str)
    assert "the sections cloud and clouds are both written" in found


@pytest.mark.parametrize(
    "pools",
    [
        "a: {clouds: [bj]}",
        "a: {clouds: [us, bj], launch: {template: lt-1, cloud: us, region: us-east-2}}",
        "a: {launch: {template: lt-1, cloud: bj}}",
    ],
)
def test_pools_name_their_clouds(tmp_path: Path, pools: str) -> None:
    """Those that they are for, and the one in which they launch."""
    assert isinstance(read(tmp_path, f"{TWO}pools: {{{pools}}}"), dict)
