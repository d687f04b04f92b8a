"""`gpuwatch unused`: what is billed and serves no running machine, with its price."""

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from gpuwatch.cli.main import commands
from gpuwatch.clouds import Leftover, LeftoverKind
from gpuwatch.money import unused
from gpuwatch.runtime.clock import ManualClock
from gpuwatch.runtime.json_document import json_text
from tests.support.fakes.cloud_worlds import MINE
from tests.support.fakes.moto_faults import REGION, MotoFaults
from tests.support.fakes.several_clouds import Clouds, silent

TODAY = date(2026, 11, 23)
GIB = 1024**3


def a_volume(number: int, **more: Any) -> Leftover:  # noqa: ANN401  any field
    """A gp3 volume of 100 GiB that nothing uses."""
    fields = {"kind": LeftoverKind.UNATTACHED_VOLUME, "region": REGION, "type": "gp3", "size_bytes": 100 * GIB}
    return Leftover(**{"id": f"vol-{number}", **fields, **more})


ADDRESS = Leftover(id="eipalloc-1", kind=LeftoverKind.UNUSED_ADDRESS, region=REGION)
UNKNOWN = a_volume(9, type="gp9")


@pytest.mark.parametrize(
    ("left", "usd"),
    [
        (a_volume(1), Decimal("8.00")),
        (a_volume(1, iops=4000), Decimal("13.00")),
        (a_volume(1, size_bytes=None), None),
        (UNKNOWN, None),
        (ADDRESS, Decimal("3.65")),
    ],
)
def test_each_has_a_list_price_or_none(left: Leftover, usd: Decimal | None) -> None:
    """None is not known, never free."""
    assert unused.usd_per_month(left) == usd


def test_people_read_the_dearest_first_and_the_sum() -> None:
    """What has no price is said to have none, and stays out of the sum."""
    stopped = a_volume(
        2, kind=LeftoverKind.STOPPED_VOLUME, node_id="i-1", size_bytes=200 * GIB, account="123456789012", name="data"
    )

    assert unused.as_text([a_volume(1), UNKNOWN, ADDRESS, stopped], today=TODAY).splitlines() == [
        "$/MONTH  ID          TYPE         WHAT                         WHERE                   NAME",
        " $16.00  vol-2       gp3 200 GiB  volume of the stopped i-1    us-east-1 123456789012  data",
        "  $8.00  vol-1       gp3 100 GiB  volume, attached to nothing  us-east-1",
        "  $3.65  eipalloc-1               address, used by nothing     us-east-1",
        "      ?  vol-9       gp9 100 GiB  volume, attached to nothing  us-east-1",
        "4 left over, $27.65 a month, and 1 without a known price.",
        "Prices of 2024-02-01, 1026 days old: AWS list prices in us-east-1,",
        "aws.amazon.com/ebs/pricing and /vpc/pricing.",
    ]


def test_in_a_terminal_of_80_columns_no_line_is_cut_or_wrapped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Real ids are long: names go first, then places; what is left out is said."""
    monkeypatch.setenv("COLUMNS", "80")
    stopped = a_volume(
        2, kind=LeftoverKind.STOPPED_VOLUME, node_id="i-0123456789abcdef0", account="123456789012", name="a long name"
    )
    lines = unused.as_text([replace(stopped, id="vol-0123456789abcdef0"), ADDRESS], today=TODAY).splitlines()

    assert max(map(len, lines)) <= 80
    assert "volume of the stopped i-0123456789abcdef0" in lines[1]
    assert any("NAME" in line and "wider terminal" in line for line in lines)


IN_USE = a_volume(5, kind=LeftoverKind.RUNNING_VOLUME, node_id="i-1", size_bytes=500 * GIB)
SNAPSHOT = Leftover(
    id="snap-1",
    kind=LeftoverKind.SNAPSHOT,
    region=REGION,
    size_bytes=30 * GIB,
    made=datetime(2025, 3, 4, tzinfo=UTC),
)


def test_disks_in_use_are_summed_apart() -> None:
    """They are not left over, and cost as much; what has no price is said to have none."""
    disk = replace(IN_USE, id="vol-6", type="gp9")

    assert unused.as_text([a_volume(1), IN_USE, disk], today=TODAY).splitlines()[2:4] == [
        "1 left over, $8.00 a month.",
        "Not left over: 2 disks of machines in use, 1,000 GiB, $40.00 a month, and 1 without a known price.",
    ]
    assert unused.as_text([IN_USE], today=TODAY).splitlines()[:2] == [
        "Nothing is left over: every volume and every address belongs to a machine that runs.",
        "Not left over: 1 disk of machines in use, 500 GiB, $40.00 a month.",
    ]


def test_scripts_get_each_disk_in_use_and_its_own_sum() -> None:
    """The sum of what is left over is without them."""
    result = json.loads(json_text("unused", unused.unused_document([a_volume(1), IN_USE], today=TODAY)))

    assert [(row["id"], row["node_id"], row["usd_per_month"]) for row in result["in_use"]] == [
        ("vol-5", "i-1", "40.00")
    ]
    assert (result["usd_per_month"], result["in_use_usd_per_month"]) == ("8.00", "40.00")


def test_a_snapshot_is_told_with_its_age_and_without_a_price() -> None:
    """What it holds is less than its volume was, and AWS does not say how much."""
    row = unused.as_text([SNAPSHOT], today=TODAY).splitlines()[1]

    assert " ".join(row.split()) == f"? snap-1 30 GiB snapshot of a volume that is gone, made 2025-03-04 {REGION}"
    assert unused.unused_document([SNAPSHOT], today=TODAY).unused[0].made == SNAPSHOT.made


def test_sums_are_by_kind_and_the_dearest_comes_first() -> None:
    """Each with how many lack a price."""
    sums = unused.by_kind([SNAPSHOT, a_volume(1), UNKNOWN, IN_USE, ADDRESS])

    assert [(each.kind, each.count, each.usd_per_month, each.without_price) for each in sums] == [
        (LeftoverKind.RUNNING_VOLUME, 1, Decimal("40.00"), 0),
        (LeftoverKind.UNATTACHED_VOLUME, 2, Decimal("8.00"), 1),
        (LeftoverKind.UNUSED_ADDRESS, 1, Decimal("3.65"), 0),
        (LeftoverKind.SNAPSHOT, 1, Decimal(0), 1),
    ]


def test_another_clouds_address_has_no_price_of_aws() -> None:
    """The table knows those of AWS alone."""
    assert unused.usd_per_month(replace(ADDRESS, provider="gcp")) is None


def test_a_silent_place_is_named_once() -> None:
    """Both lists lack it."""
    clouds = Clouds("bj", "us")
    clouds["us"].down = silent()

    _, lacking = unused.list_leftovers(clouds.all)

    assert [each.cloud for each in lacking] == ["us"]


def test_nothing_left_is_said_in_a_sentence() -> None:
    """An empty table would look like a failure."""
    assert unused.as_text([], today=TODAY).startswith("Nothing is left over")


@pytest.mark.parametrize("found", [[], [a_volume(1), ADDRESS, UNKNOWN]])
def test_scripts_get_every_price_as_text(found: Sequence[Leftover]) -> None:
    """Money is no float in JSON either, and a price that is not known is null."""
    result = json.loads(json_text("unused", unused.unused_document(found, today=TODAY)))

    assert [row["usd_per_month"] for row in result["unused"]] == ["8.00", "3.65", None][: len(found)]
    assert result["usd_per_month"] == ("11.65" if found else "0.00")
    assert (result["prices_as_of"], result["prices_age_days"]) == ("2024-02-01", 1026)


def test_the_command_asks_the_cloud_of_the_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gpuwatch unused --json reads the account and touches nothing in it."""
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    file = tmp_path / "gpuwatch.yaml"
    file.write_text(f"fleet: lab\ncloud: {{regions: [{REGION}]}}\n")
    with MotoFaults(ManualClock()) as ec2:
        node_id = ec2.launch(MINE)
        volume = ec2.client.create_volume(AvailabilityZone=f"{REGION}a", Size=10, VolumeType="gp3")["VolumeId"]
        ec2.calls.clear()

        result = CliRunner().invoke(commands, ["unused", "--config", str(file), "--json"])

        assert result.exit_code == 0, result.output
        document = json.loads(result.stdout)
        assert [row["id"] for row in document["unused"]] == [volume]
        assert [row["node_id"] for row in document["in_use"]] == [node_id]
        assert {call.action for call in ec2.calls if not call.action.startswith(("Describe", "GetCaller"))} == set()
