"""The report's section about disks and what is left over."""

import json

from gpuwatch.clouds import Leftover, LeftoverKind
from gpuwatch.money.report.blocks import Table, Words
from gpuwatch.money.report.report import Report
from gpuwatch.money.report.sections import sections
from gpuwatch.notify.reports import ReportContent
from gpuwatch.notify.transports.file import FORMATS
from tests.support.builders.ledger_fixture import a_report, the_fortnight

GIB = 1024**3
TITLE = "Disks and what is left over"


def a_disk(name: str, kind: LeftoverKind, *, gib: int = 100, **more: str) -> Leftover:
    """A gp3 disk."""
    return Leftover(**{"id": name, "kind": kind, "region": "r", "type": "gp3", "size_bytes": gib * GIB, **more})  # type: ignore[arg-type]  # fields of one dict


FOUND = (
    a_disk("vol-1", LeftoverKind.RUNNING_VOLUME, gib=1000, node_id="i-1"),
    a_disk("vol-2", LeftoverKind.UNATTACHED_VOLUME),
    a_disk("vol-3", LeftoverKind.UNATTACHED_VOLUME, type="gp9"),
    a_disk("snap-1", LeftoverKind.SNAPSHOT, gib=30, type=""),
    Leftover(id="eip-1", kind=LeftoverKind.UNUSED_ADDRESS, region="r"),
)


def parts(report: Report) -> list[object]:
    """What the section is made of."""
    return [part for section in sections(report) if section.title == TITLE for part in section.parts]


def test_each_kind_is_a_row_with_its_price_or_a_question_mark() -> None:
    """The dearest first; what has no price is in no sum, and said so, with the source of the others."""
    table, words = parts(a_report(the_fortnight(), left=FOUND))

    assert isinstance(table, Table)
    assert table.rows == (
        ("disks of machines in use", "1", "1,000", "$80.00"),
        ("disks, attached to nothing", "2", "200", "$8.00+?"),
        ("addresses, used by nothing", "1", "-", "$3.65"),
        ("snapshots of disks that are gone", "1", "30", "?"),
        ("all", "5", "1,230", "$91.65"),
    )
    assert isinstance(words, Words)
    assert words.sentences[1:] == (
        "2 without a known price are not in the sums.",
        "Prices of 2024-02-01: AWS list prices in us-east-1, aws.amazon.com/ebs/pricing and /vpc/pricing.",
    )


def test_without_an_answer_of_the_cloud_there_is_no_section() -> None:
    """Nothing is not the same as not asked."""
    assert parts(a_report(the_fortnight())) == []
    (words,) = parts(a_report(the_fortnight(), left=()))
    assert words == Words(("No disk and nothing left over was found.",))


def test_scripts_get_the_same_sums() -> None:
    """As texts, which lose nothing; null where the cloud was not asked."""
    storage = json.loads(FORMATS["json"](ReportContent(a_report(the_fortnight(), left=FOUND))))["storage"]

    assert storage["usd_per_month"] == "91.65"
    assert storage["by"][1] == {
        "kind": "unattached_volume",
        "count": 2,
        "size_bytes": 200 * GIB,
        "usd_per_month": "8.00",
        "without_price": 1,
    }
    assert json.loads(FORMATS["json"](ReportContent(a_report(the_fortnight()))))["storage"] is None


def test_disks_in_use_are_no_part_of_what_stopped_machines_cost() -> None:
    """The savings are the same with them."""
    without, with_them = (a_report(the_fortnight(), left=left).facts.saved for left in ((), FOUND))

    assert without == with_them


def test_the_page_and_the_mail_have_the_section() -> None:
    """As every other."""
    report = a_report(the_fortnight(), left=FOUND)

    assert all(TITLE in FORMATS[form](ReportContent(report)) for form in ("txt", "html"))
