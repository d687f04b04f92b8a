"""The text of `gpuwatch scan` in terminals of several widths."""

from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from rich.cells import cell_len

from gpuwatch.cli.scan_table import remarks, table
from gpuwatch.clouds.survey import CloudUse
from gpuwatch.model.fleet import CapacityType, NodeState
from gpuwatch.money.scan import ScanDocument, ScanMachine, ScanPlace, ScanSum

NOW = datetime(2026, 3, 1, tzinfo=UTC)
USE = CloudUse(
    cpu_mean_ratio=0.02,
    cpu_max_ratio=0.31,
    received_bytes_per_second=2_000_000.0,
    sent_bytes_per_second=1_100_000.0,
)


def a_row(**more: Any) -> ScanMachine:  # noqa: ANN401  any field
    """A forgotten machine."""
    row: dict[str, Any] = {
        "id": "i-0123456789abcdef0",
        "name": "try-out",
        "cloud": "",
        "provider": "aws",
        "region": "ap-southeast-2",
        "zone": "ap-southeast-2a",
        "account": "123456789012",
        "instance_type": "p4d.24xlarge",
        "gpu_count": 8,
        "capacity_type": CapacityType.ON_DEMAND,
        "state": NodeState.RUNNING,
        "launched_at": NOW,
        "age_seconds": 86400.0 * 41,
        "billed": True,
        "price_source": "a list",
        "usd_per_hour": Decimal("32.7726"),
        "watched": False,
        "enrolled": False,
        "known": False,
        "why": "not enrolled; region not watched",
        "fleet": None,
        "pool": None,
        "owner": "anna@example.org",
        "managed_by": None,
        "tags": {},
        "use": USE,
    }
    made: dict[str, Any] = {**row, **more}
    return ScanMachine(**made)


def a_place(**more: Any) -> ScanPlace:  # noqa: ANN401  of any field
    """A region that answered."""
    place = {"cloud": "", "provider": "aws", "where": "x", "region": "x", "watched": True, "machines": 1}
    return ScanPlace(**{**place, "refused": None, "trouble": None, "unmonitored": None, **more})


def a_document(*rows: ScanMachine, places: tuple[ScanPlace, ...] = ()) -> ScanDocument:
    """With plain sums."""
    zero = Decimal(0)
    return ScanDocument(
        at=NOW,
        days=7,
        complete=True,
        machines=list(rows),
        places=[*places],
        known=ScanSum(machines=0, gpus=0, usd_per_hour=zero, usd_per_day=zero, unpriced=0),
        unknown=ScanSum(machines=2, gpus=16, usd_per_hour=Decimal("32.77"), usd_per_day=Decimal("786.54"), unpriced=1),
    )


STOPPED = a_row(id="i-1", name="i-1", billed=False, usd_per_hour=None, use=None, owner=None, known=True, watched=True)


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    """The id, the price and what is known of it stay."""
    lines = table(a_document(a_row(), STOPPED), width)

    assert max(cell_len(line.plain) for line in lines) <= width
    assert all(title in lines[0].plain for title in ("$/H", "MACHINE", "KNOWN AS"))


def test_eighty_columns_have_place_and_type() -> None:
    """What people need to find the machine, and to see whether it is worth it."""
    head, *rows = [line.plain for line in table(a_document(a_row(), STOPPED), 80)]

    assert head.split() == ["$/H", "MACHINE", "REGION", "TYPE", "CPU", "KNOWN", "AS"]
    assert rows[0].split()[:5] == ["32.77", "i-0123456789abcdef0", "ap-southeast-2", "p4d.24xlarge", "2%/31%"]
    assert next(row for row in rows if "i-1 " in row).split()[0] == "-"


def test_a_wide_terminal_has_everything() -> None:
    """Also a price that is not known."""
    head, first, second = [line.plain for line in table(a_document(a_row(), a_row(usd_per_hour=None)), None)]

    assert head.split()[:11] == [
        "$/H",
        "MACHINE",
        "NAME",
        "REGION",
        "TYPE",
        "GPUS",
        "STATE",
        "AGE",
        "CPU",
        "NET",
        "OWNER",
    ]
    assert "41d" in first
    assert "3.1 MB/s" in first
    assert "anna@example.org" in first
    assert second.split()[0] == "?"


def test_several_clouds_are_named() -> None:
    """In one cloud the column is not there."""
    assert "CLOUD" in table(a_document(a_row(cloud="bj"), a_row(cloud="aws")), None)[0].plain
    assert "CLOUD" not in table(a_document(a_row(cloud="bj")), None)[0].plain


def test_nothing_found_is_a_sentence() -> None:
    """An empty table would look like a failure."""
    assert [line.plain for line in table(a_document(), 80)] == ["No GPU machine was found."]


def test_where_no_region_answers_nothing_is_said_of_machines() -> None:
    """Without credentials nobody has looked: the reader must not believe that there is no machine."""
    silent = a_document(places=(a_place(trouble="no usable AWS credentials"),))
    assert [line.plain for line in table(silent, 80)] == ["No region answered."]


def test_the_sums_and_what_is_not_known_are_said() -> None:
    """Each region that did not answer by its name, with the reason."""
    places = (
        a_place(),
        a_place(where="mars", refused="UnauthorizedOperation"),
        a_place(where="venus", trouble="EC2 DescribeInstances in venus: no usable answer (ReadTimeoutError)"),
        a_place(where="moon", unmonitored="AccessDenied"),
    )

    said = list(remarks(a_document(a_row(), places=places), ["CloudWatch"]))

    assert said == [
        "1 GPU machine in 2 regions that answered.",
        (
            "Known to this controller: 0, $0.00/h, $0.00/day. "
            "Unknown: 2, $32.77/h, $786.54/day (the price of 1 is not known)."
        ),
        "No controller looks at ap-southeast-2: add the region to the settings, or remove its machines.",
        (
            "CPU (mean/highest) and NET (in and out) of the last 7 days are from CloudWatch, which does not see GPUs: "
            "low values do not prove that a machine is idle."
        ),
        "Warning: mars: we may not look there (UnauthorizedOperation).",
        "Warning: venus: EC2 DescribeInstances in venus: no usable answer (ReadTimeoutError)",
        "The cloud's monitor says nothing of moon: AccessDenied",
    ]


@pytest.mark.parametrize(
    ("rate", "shown"), [(0.0, "0 B/s"), (999.0, "999 B/s"), (1500.0, "1.5 kB/s"), (3e9, "3.0 GB/s")]
)
def test_rates_have_units(rate: float, shown: str) -> None:
    """Both directions together."""
    use = replace(USE, received_bytes_per_second=rate, sent_bytes_per_second=None)

    assert shown in table(a_document(a_row(use=use)), None)[1].plain
