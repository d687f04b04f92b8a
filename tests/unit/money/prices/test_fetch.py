"""Fetched prices: asked for in the background, kept on disk, and never lost by a failure."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from threading import Event

import pytest

from gpuwatch.model.fleet import CapacityType
from gpuwatch.model.money import Price
from gpuwatch.model.offers import PriceKey
from gpuwatch.money.prices.catalogue import ListPrice
from gpuwatch.money.prices.fetch import Found, Live, Wanted
from gpuwatch.money.prices.price_book import Book
from gpuwatch.money.prices.providers.azure import AzurePrices
from gpuwatch.runtime.clock import ManualClock
from tests.support.fakes.http_sink import Answer, Asked, PriceServer, azure_item, serving
from tests.support.real.agents import eventually

NOW = datetime(2026, 11, 21, 9, tzinfo=UTC)
EVERY = 6 * 3600.0
ND96 = PriceKey(instance_type="Standard_ND96asr_v4", region="eastus")
T4 = PriceKey(instance_type="Standard_NC4as_T4_v3", region="eastus")


@dataclass(slots=True)
class Azure:
    """Sizes with their prices; what is in `broken` is answered with nonsense."""

    prices: dict[str, float] = field(default_factory=lambda: {"Standard_ND96asr_v4": 26.5, "Standard_NC4as_T4_v3": 0.5})
    broken: set[str] = field(default_factory=set)
    busy: bool = False

    def __call__(self, asked: Asked) -> Answer:
        """What Azure answers."""
        if self.busy:
            return Answer(status=400)
        size = asked.query["$filter"].rpartition(" eq '")[2].rstrip("'")
        if size in self.broken:
            return Answer(body="nonsense")
        items = [azure_item(armSkuName=size, retailPrice=self.prices[size])] if size in self.prices else []
        return Answer(body={"Items": items})


@dataclass(slots=True)
class Desk:
    """A Live over Azure's double, and a book that asks it."""

    azure: Azure
    server: PriceServer
    directory: Path
    clock: ManualClock = field(default_factory=lambda: ManualClock(wall=NOW))

    def live(self, *, background: bool = False) -> Live:
        """As a process that starts now would have it."""
        return Live(
            {"azure": AzurePrices(clock=self.clock, endpoint_url=self.server.url)},
            directory=self.directory,
            clock=self.clock,
            every_seconds=EVERY,
            background=background,
        )

    def price(self, live: Live, hire: PriceKey) -> tuple[Decimal, date] | None:
        """What the book says, and as of when."""
        found = Book(provider="azure", live=live).find(hire, self.clock.now())
        return (found.usd_per_hour, found.as_of) if isinstance(found, Price) else None


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    """Azure, up and running."""
    azure = Azure()
    with serving(azure) as server:
        yield Desk(azure=azure, server=server, directory=tmp_path / "prices")


@pytest.mark.parametrize("absurd", [0.01, 1e-6, 2.6, 290.0, 1e9])
@pytest.mark.parametrize("first", [False, True])
def test_a_price_out_of_all_proportion_is_never_used(
    absurd: float, *, first: bool, desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    """One cent for eight A100s would draw all launches there, and a billion would block every budget."""
    live = desk.live()
    live.want("azure", "eastus", ND96.instance_type)
    if not first:
        live.refresh()
    before = desk.price(live, ND96)
    desk.azure.prices[ND96.instance_type] = absurd
    desk.clock.advance(2 * EVERY)
    live.refresh()
    after, said = desk.price(live, ND96), caplog.text
    desk.azure.prices[ND96.instance_type] = 26.5
    desk.clock.advance(2 * EVERY)
    live.refresh()

    assert after == before
    assert "Standard_ND96asr_v4/on_demand is out of proportion and is not used" in said
    assert desk.price(live, ND96) == (Decimal("26.5"), desk.clock.now().date())


def test_what_nobody_knows_may_cost_what_a_machine_can_cost(desk: Desk) -> None:
    """Of a type without any other price the first answer counts; a wrong one gives way within days."""
    new, hire = "Standard_ND999_v9", PriceKey(instance_type="Standard_ND999_v9", region="eastus")
    live = desk.live()
    live.want("azure", "eastus", new)
    known = []
    for price, days in ((1e9, 0), (0.01, 0), (300.0, 1), (300.0, 3)):
        desk.azure.prices[new] = price
        desk.clock.advance(days * 86400.0 + 2 * EVERY)
        live.refresh()
        found = desk.price(live, hire)
        known.append(None if found is None else found[0])

    assert known == [None, Decimal("0.01"), Decimal("0.01"), Decimal("300.0")]


TABLE = (Decimal("27.197"), date(2026, 6, 18))
FETCHED = (Decimal("26.5"), date(2026, 11, 21))


def test_nobody_waits_for_a_price(desk: Desk) -> None:
    """The first question gets what is in the table; what was asked about is fetched, and holds from then on."""
    live = desk.live()
    before = desk.price(live, ND96)
    live.refresh()

    assert before == TABLE
    assert desk.price(live, ND96) == FETCHED


def test_only_what_was_asked_about_is_fetched_and_only_when_it_is_old(desk: Desk) -> None:
    """One request for one size, and none before it is due again."""
    live = desk.live()
    desk.price(live, ND96)
    for hours in (0, 5.9, 0.2):
        desk.clock.advance(hours * 3600)
        live.refresh()

    assert len(desk.server.asked) == 2


@pytest.mark.parametrize("trouble", ["nonsense", "refusal", "the clock set back"])
def test_a_failure_takes_no_price_away(desk: Desk, trouble: str) -> None:
    """The old one holds, with its old date."""
    live = desk.live()
    desk.price(live, ND96)
    live.refresh()
    desk.clock.advance(10 * 86400)
    if trouble == "the clock set back":
        desk.clock.jump(-300 * 86400)
    desk.azure.broken, desk.azure.busy = {ND96.instance_type}, trouble == "refusal"

    assert len(live.refresh()) == 1
    assert desk.price(live, ND96) == FETCHED


def test_after_a_failure_there_is_a_pause(desk: Desk) -> None:
    """A quarter of an hour, however often somebody asks."""
    live = desk.live()
    desk.price(live, ND96)
    desk.azure.busy = True
    first, at_once = live.refresh(), live.refresh()
    desk.clock.advance(901)
    desk.azure.busy = False

    assert first == ["azure: Azure's Retail Prices API answered 400 Bad Request"]
    assert at_once == []
    assert live.refresh() == []
    assert desk.price(live, ND96) == FETCHED


def test_one_size_that_cannot_be_read_does_not_hold_up_the_others(desk: Desk) -> None:
    """It goes to the end of the queue."""
    live = desk.live()
    desk.azure.broken = {ND96.instance_type}
    desk.price(live, ND96)
    desk.price(live, T4)
    live.refresh()
    desk.clock.advance(901)
    live.refresh()

    assert desk.price(live, T4) == (Decimal("0.5"), date(2026, 11, 21))
    assert desk.price(live, ND96) == TABLE


def test_a_restart_keeps_what_was_fetched(desk: Desk) -> None:
    """From the disk, with its date, and without asking again before it is due."""
    first = desk.live()
    desk.price(first, ND96)
    first.refresh()
    desk.clock.advance(3600)
    second = desk.live()
    rows = desk.price(second, ND96)
    second.refresh()

    assert rows == FETCHED
    assert len(desk.server.asked) == 1


@pytest.mark.parametrize("damage", [b"", b"{", b'{"found": 7}', b"\xff\xfe"])
def test_a_damaged_file_is_as_none(desk: Desk, damage: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """The table holds, the log says it, and the next answer writes the file anew."""
    desk.directory.mkdir()
    file = desk.directory / "azure.json"
    file.write_bytes(damage)
    live = desk.live()
    before = desk.price(live, ND96)
    live.refresh()

    assert before == TABLE
    assert "azure.json cannot be used" in caplog.text
    assert desk.price(desk.live(), ND96) == FETCHED


def test_without_a_disk_the_prices_live_as_long_as_the_process(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    """Where nothing can be written, nothing fails."""
    desk.directory = desk.directory / "file" / "below"
    desk.directory.parent.parent.mkdir()
    desk.directory.parent.write_bytes(b"")
    live = desk.live()
    desk.price(live, ND96)
    live.refresh()

    assert desk.price(live, ND96) == FETCHED
    assert "cannot be kept over a restart" in caplog.text


def test_what_the_cloud_does_not_sell_is_not_asked_for_again_and_again(desk: Desk) -> None:
    """No price is an answer too."""
    live = desk.live()
    assert desk.price(live, replace(ND96, instance_type="Standard_None")) is None
    live.refresh()
    live.refresh()

    assert len(desk.server.asked) == 1


def test_in_the_background_a_question_is_enough(desk: Desk) -> None:
    """The answer comes by itself; the question did not wait for it."""
    live, may_answer = desk.live(background=True), Event()
    respond = desk.server.respond
    desk.server.respond = lambda asked: respond(asked) if may_answer.wait(60) else None

    assert desk.price(live, ND96) == TABLE
    may_answer.set()
    eventually(lambda: desk.price(live, ND96) == FETCHED, lambda: desk.price(live, ND96))


@dataclass(slots=True)
class Zones:
    """A cloud that tells spot prices by zone, or fails in a way that nobody has thought of."""

    fault: Exception | None = None

    def fetch(self, wanted: Sequence[Wanted]) -> Iterable[tuple[Wanted, Sequence[Found]]]:
        """Two zones."""
        if self.fault is not None:
            raise self.fault
        for region, kind in wanted:
            document = {f"{region}a": "19", f"{region}b": "21"}
            yield (
                (region, kind),
                [
                    Found(
                        place=zone,
                        instance_type=kind,
                        capacity_type=CapacityType.SPOT,
                        quote=ListPrice(per_hour=Decimal(usd), currency="USD", as_of=NOW.date(), source="a test"),
                    )
                    for zone, usd in document.items()
                ],
            )


def zoned(tmp_path: Path, cloud: Zones) -> Live:
    """What that cloud tells."""
    clock = ManualClock(wall=NOW)
    return Live({"aws": cloud}, directory=tmp_path, clock=clock, every_seconds=EVERY, background=False)


def test_a_spot_price_is_that_of_the_machines_zone(tmp_path: Path) -> None:
    """Two machines of one type in one region may cost different sums; in a zone that is not told, spot is unknown."""
    live = zoned(tmp_path, Zones())
    live.want("aws", "us-east-1", "p5.48xlarge")
    live.refresh()
    hire = PriceKey(instance_type="p5.48xlarge", region="us-east-1", capacity_type=CapacityType.SPOT)
    book = Book(provider="aws", live=live)
    found = {zone: book.find(replace(hire, zone=f"us-east-1{zone}"), NOW) for zone in "abc"}

    assert {zone: (price.usd_per_hour, price.exact) for zone, price in found.items() if isinstance(price, Price)} == {
        "a": (19, True),
        "b": (21, True),
        "c": (Decimal("55.04"), False),
    }


def test_a_fault_of_ours_is_told_and_costs_no_price(tmp_path: Path) -> None:
    """Whatever is raised ends in the log."""
    live = zoned(tmp_path, Zones(fault=ZeroDivisionError("oops")))
    live.want("aws", "us-east-1", "p5.48xlarge")

    assert live.refresh() == ["aws: ZeroDivisionError: oops"]
    assert live.offers("aws") == ()


def test_a_table_that_is_newer_than_what_was_fetched_holds(desk: Desk) -> None:
    """An update of gpuwatch after months without an answer brings newer prices than the cache has."""
    desk.clock.wall = datetime(2026, 6, 1, tzinfo=UTC)
    live = desk.live()
    desk.price(live, ND96)
    live.refresh()
    desk.clock.advance(timedelta(days=100).total_seconds())

    assert desk.price(live, ND96) == TABLE
