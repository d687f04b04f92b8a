"""The clouds' own prices over their wire protocols, from doubles on loopback: pages, busy answers, nonsense."""

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal

import pytest
from google.auth.credentials import AnonymousCredentials

from gpuwatch.model.fleet import CapacityType
from gpuwatch.money.prices.fetch import Fetcher, FetchError, Wanted
from gpuwatch.money.prices.http import Asker
from gpuwatch.money.prices.providers.aws import AwsPrices
from gpuwatch.money.prices.providers.azure import AzurePrices
from gpuwatch.money.prices.providers.gcp import GcpPrices
from gpuwatch.runtime.clock import ManualClock
from tests.support.fakes.http_sink import Answer, Asked, azure_item, ec2_product, gcp_sku, serving, spot_history

NOW = datetime(2026, 11, 21, 9, tzinfo=UTC)
ND96: Wanted = ("eastus", "Standard_ND96asr_v4")
P5: Wanted = ("us-east-1", "p5.48xlarge")
A2: Wanted = ("us-central1", "a2-ultragpu-1g")

Fetched = dict[tuple[str, CapacityType], Decimal]  # by place and kind of capacity


@pytest.fixture
def clock() -> ManualClock:
    """A clock that does not really sleep."""
    return ManualClock(wall=NOW)


def fetched(fetcher: Fetcher, *wanted: Wanted) -> Fetched:
    """All prices of one fetch."""
    found = [each for _, news in fetcher.fetch(wanted) for each in news]
    assert {each.quote.as_of for each in found} <= {date(2026, 11, 21)}
    assert all(each.quote.source and each.quote.currency == "USD" for each in found)
    return {(each.place, each.capacity_type): each.quote.per_hour for each in found}


# Azure


def test_azures_prices_on_demand_and_spot_are_found_among_all_the_others(clock: ManualClock) -> None:
    """Windows, low priority, cloud services, reservations, the future and other sizes are not the price of Linux."""
    items = [
        azure_item(),
        azure_item(retailPrice=5.43, skuName="ND96asr_v4 Spot"),
        azure_item(retailPrice=31.6, productName="Virtual Machines NDasv4 A100 Series Windows"),
        azure_item(retailPrice=6.0, skuName="ND96asr_v4 Low Priority"),
        azure_item(retailPrice=28.0, productName="NDasv4 A100 Series Cloud Services"),
        azure_item(retailPrice=120000.0, type="Reservation"),
        azure_item(retailPrice=30.0, effectiveStartDate="2027-01-01T00:00:00Z"),
        azure_item(retailPrice=32.0, effectiveStartDate="2020-01-01T00:00:00Z"),
        azure_item(retailPrice=40.0, armSkuName="Standard_ND96amsr_A100_v4"),
        azure_item(retailPrice=40.0, armRegionName="westeurope"),
    ]
    with serving(lambda _: Answer(body={"Items": items, "NextPageLink": None})) as server:
        found = fetched(AzurePrices(clock=clock, endpoint_url=server.url), ND96)

    assert found == {
        ("eastus", CapacityType.ON_DEMAND): Decimal("27.197"),
        ("eastus", CapacityType.SPOT): Decimal("5.43"),
    }
    asked = server.asked[0].query["$filter"]
    assert "armRegionName eq 'eastus' and armSkuName eq 'Standard_ND96asr_v4'" in asked


def test_azures_next_page_may_name_the_port_of_https(clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the Retail Prices API writes its links; the address has no port."""
    asked: list[str] = []

    def ask(_: Asker, url: str) -> object:
        asked.append(url)
        more = "https://prices.azure.com:443/api/retail/prices?$skip=1000"
        return {"Items": [azure_item()], "NextPageLink": more if len(asked) == 1 else None}

    monkeypatch.setattr(Asker, "ask", ask)

    assert fetched(AzurePrices(clock=clock), ND96)
    assert asked[1:] == ["https://prices.azure.com:443/api/retail/prices?$skip=1000"]


def test_azures_pages_are_all_read(clock: ManualClock) -> None:
    """The next page's address is in the answer."""

    def respond(asked: Asked) -> Answer:
        if asked.query.get("$skip") == "1":
            return Answer(body={"Items": [azure_item()], "NextPageLink": ""})
        return Answer(body={"Items": [], "NextPageLink": f"{server.url}/api/retail/prices?$skip=1"})

    with serving(respond) as server:
        assert fetched(AzurePrices(clock=clock, endpoint_url=server.url), ND96) == {
            ("eastus", CapacityType.ON_DEMAND): Decimal("27.197")
        }


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("<html>", "gave no usable answer"),
        ({"Items": "none"}, "answered without Items"),
        ([], "answered without Items"),
        ({"Items": [{"productName": "x"}]}, "an item that cannot be read"),
        ({"Items": [], "NextPageLink": "http://127.0.0.9:1/api"}, "names another server for its next page"),
    ],
)
def test_azures_nonsense_is_no_price(body: object, why: str, clock: ManualClock) -> None:
    """It is an error that names what was wrong."""
    with serving(lambda _: Answer(body=body)) as server, pytest.raises(FetchError, match=why):
        fetched(AzurePrices(clock=clock, endpoint_url=server.url), ND96)


def test_azures_endless_pages_end(clock: ManualClock) -> None:
    """After twenty of them for one size."""
    with (
        serving(lambda _: Answer(body={"Items": [], "NextPageLink": f"{server.url}/api"})) as server,
        pytest.raises(FetchError, match="more than 20 pages"),
    ):
        fetched(AzurePrices(clock=clock, endpoint_url=server.url), ND96)


def test_a_busy_server_is_asked_again_as_late_as_it_says(clock: ManualClock) -> None:
    """HTTP 429 with Retry-After is waited for; the pause is on our clock."""
    answers = iter([Answer(status=429, headers={"Retry-After": "7"}), Answer(status=503)])
    good = Answer(body={"Items": [azure_item()]})
    with serving(lambda _: next(answers, good)) as server:
        assert fetched(AzurePrices(clock=clock, endpoint_url=server.url), ND96)

    assert len(server.asked) == 3
    assert clock.elapsed_seconds >= 9


@pytest.mark.parametrize(("status", "times"), [(429, 3), (500, 3), (400, 1), (403, 1), (302, 1)])
def test_a_server_that_does_not_answer_well_is_not_asked_for_ever(status: int, times: int, clock: ManualClock) -> None:
    """Three times where it may pass, once where it will not; no redirect is followed."""
    refusal = Answer(status=status, headers={"Location": "http://127.0.0.9:1/"})
    with serving(lambda _: refusal) as server, pytest.raises(FetchError, match=f"answered {status}"):
        fetched(AzurePrices(clock=clock, endpoint_url=server.url), ND96)

    assert len(server.asked) == times


def test_a_silent_server_is_given_up(clock: ManualClock) -> None:
    """After the time that a request has; nothing hangs."""
    with serving(lambda _: None) as server:
        fetcher = AzurePrices(clock=clock, endpoint_url=server.url)
        fetcher._asker.timeout_seconds = 0.1
        with pytest.raises(FetchError, match=r"gave no usable answer: .* did not answer in time"):
            fetched(fetcher, ND96)


# GCP


OPEN = AnonymousCredentials()  # type: ignore[no-untyped-call]  # google-auth's own
A2_ULTRA = [
    gcp_sku("A2 Instance Core running in Americas", "0.031611"),
    gcp_sku("A2 Instance Ram running in Americas", "0.004237", unit="GiBy.h"),
    gcp_sku("Nvidia Tesla A100 80GB GPU running in Americas", "3.928080"),
    gcp_sku("SSD backed Local Storage", "0.08", unit="GiBy.mo"),
    # What must not be taken for it.
    gcp_sku("Nvidia Tesla A100 GPU running in Americas", "2.933908"),
    gcp_sku("Nvidia Tesla A100 80GB GPU attached to DWS Defined Duration VMs running in Americas", "1.8"),
    gcp_sku("Commitment v1: Nvidia Tesla A100 80GB GPU running in Americas for 1 Year", "2.5", usage="Commit1Yr"),
    gcp_sku("Spot Preemptible A2 Instance Core running in Americas", "0.015", usage="Preemptible"),
    gcp_sku("N2 Instance Core running in Americas", "0.03"),
]


def test_gcps_price_is_the_sum_of_all_parts(clock: ManualClock) -> None:
    """vCPUs, memory, GPU and the local SSD that comes with it: the published price of the whole machine.

    $5.0688 is what the table of GCP's prices by machine has; the sum of the SKUs must be that.
    """
    pages = {None: {"skus": A2_ULTRA[:3], "nextPageToken": "2"}, "2": {"skus": A2_ULTRA[3:]}}
    with serving(lambda asked: Answer(body=pages[asked.query.get("pageToken")])) as server:
        found = fetched(GcpPrices(clock=clock, credentials=OPEN, endpoint_url=server.url), A2)

    assert {key: round(price, 4) for key, price in found.items()} == {
        ("us-central1", CapacityType.ON_DEMAND): Decimal("5.0688")
    }


@pytest.mark.parametrize("missing", range(4))
def test_gcps_machine_without_the_price_of_a_part_has_none(missing: int, clock: ManualClock) -> None:
    """An A100 for the price of its host is the error that others have made."""
    skus = [sku for number, sku in enumerate(A2_ULTRA) if number != missing]
    with serving(lambda _: Answer(body={"skus": skus})) as server:
        found = fetched(GcpPrices(clock=clock, credentials=OPEN, endpoint_url=server.url), A2)

    assert found == {}


_OTHERS = [
    gcp_sku("N1 Predefined Instance Core running in Americas", "0.031611"),
    gcp_sku("N1 Predefined Instance Ram running in Americas", "0.004237", unit="GiBy.h"),
    gcp_sku("Nvidia Tesla T4 GPU running in Americas", "0.35"),
    gcp_sku("Nvidia Tesla V100 GPU running in Americas", "2.48"),
    gcp_sku("Spot Preemptible N1 Predefined Instance Core running in Americas", "0.006655", usage="Preemptible"),
    gcp_sku(
        "Spot Preemptible N1 Predefined Instance Ram running in Americas",
        "0.000892",
        unit="GiBy.h",
        usage="Preemptible",
    ),
    gcp_sku("Nvidia Tesla T4 GPU attached to Spot Preemptible VMs running in Americas", "0.11", usage="Preemptible"),
    gcp_sku("A3Plus Instance Core running in Americas", "0.026924"),
    gcp_sku("A3Plus Instance Ram running in Americas", "0.002344", unit="GiBy.h"),
    gcp_sku("Nvidia H100 80GB Mega GPU running in Americas", "10.344276"),
    gcp_sku("SSD backed Local Storage", "0.08", unit="GiBy.mo"),
    gcp_sku("G4 Instance Core running in Americas", "0.02"),
    gcp_sku("G4 Instance Ram running in Americas", "0.003", unit="GiBy.h"),
    gcp_sku("RTX 6000 96GB running in Americas", "2.8"),
    # What must not be taken for them.
    gcp_sku("Calendar Mode Nvidia H100 80GB Mega GPU running in Americas", "5.1"),
    gcp_sku("Nvidia Tesla T4 Virtual Workstation GPU running in Americas", "0.55"),
    gcp_sku("Nvidia Tesla V100 GPU running in Americas", "0.74", usage="Preemptible"),
    gcp_sku("N1 Predefined Sole Tenancy Instance Core running in Americas", "0.03"),
    gcp_sku("Custom Instance Core running in Americas", "0.033174"),
]


@pytest.mark.parametrize(
    ("kind", "usd", "spot"),
    [
        ("n1-standard-8+1xnvidia-tesla-t4", "0.729998", "0.190000"),
        ("n1-standard-8+4xnvidia-tesla-v100", "10.299998", None),
        ("a3-megagpu-8g", "93.399902", None),
        ("g4-standard-48", "4.300000", None),
        ("g4-standard-6", "0.536000", None),
        ("a3-ultragpu-8g", None, None),
        ("a4-highgpu-8g", None, None),
    ],
)
def test_gcps_newer_families_and_attached_gpus_are_sums_too(
    kind: str, usd: str | None, spot: str | None, clock: ManualClock
) -> None:
    """An n1-standard-8 alone is $0.379998 in the table too; an eighth of a GPU is an eighth of its price."""
    with serving(lambda _: Answer(body={"skus": _OTHERS})) as server:
        found = fetched(GcpPrices(clock=clock, credentials=OPEN, endpoint_url=server.url), ("us-central1", kind))

    wanted = {CapacityType.ON_DEMAND: usd, CapacityType.SPOT: spot}
    assert {capacity: str(price) for (_, capacity), price in found.items()} == {
        capacity: text for capacity, text in wanted.items() if text is not None
    }


def test_gcps_other_regions_and_families_have_no_price(clock: ManualClock) -> None:
    """A SKU is sold in the regions that it names; a family that we cannot put together is left to the table."""
    with serving(lambda _: Answer(body={"skus": A2_ULTRA})) as server:
        fetcher = GcpPrices(clock=clock, credentials=OPEN, endpoint_url=server.url)
        found = fetched(
            fetcher, ("europe-west4", "a2-ultragpu-1g"), ("us-central1", "g4-standard-48"), ("us-east1", "x")
        )

    assert found == {}


@pytest.mark.parametrize(
    "sku",
    [
        {"category": {"usageType": "OnDemand"}},
        gcp_sku("A2 Instance Core running in Americas", "0.03") | {"pricingInfo": []},
        gcp_sku("A2 Instance Core running in Americas", "0.03", unit="mo"),
    ],
)
def test_gcps_nonsense_is_no_price(sku: dict[str, object], clock: ManualClock) -> None:
    """It is an error that says so."""
    with (
        serving(lambda _: Answer(body={"skus": [sku]})) as server,
        pytest.raises(FetchError, match="a SKU that cannot be read"),
    ):
        fetched(GcpPrices(clock=clock, credentials=OPEN, endpoint_url=server.url), A2)


def test_gcps_refusal_is_no_price(clock: ManualClock) -> None:
    """In Google's own words."""
    refusal = Answer(status=403, body={"error": {"code": 403, "message": "API not enabled", "status": "x"}})
    with serving(lambda _: refusal) as server, pytest.raises(FetchError, match="API not enabled"):
        fetched(GcpPrices(clock=clock, credentials=OPEN, endpoint_url=server.url), A2)


# AWS


class Ec2:
    """The price list and the spot price history at one address."""

    def __init__(self, products: Sequence[str] = (), history: Sequence[str] = ()) -> None:
        """Pages of each."""
        self.products, self.history = list(products), list(history)
        self.refusals: Iterator[Answer] = iter(())

    def __call__(self, asked: Asked) -> Answer:
        """What AWS answers."""
        refusal = next(self.refusals, None)
        if refusal is not None:
            return refusal
        if "x-amz-target" in asked.headers:
            number = int(json.loads(asked.body).get("NextToken", 0))
            token = {"NextToken": str(number + 1)} if number + 1 < len(self.products) else {}
            page = self.products[number : number + 1]
            return Answer(body={"FormatVersion": "aws_v1", "PriceList": page} | token)
        return Answer(body=self.history[int(asked.form.get("NextToken", "0"))])


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """The SDK's own chain finds these."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")


def test_ec2s_price_on_demand_and_the_spot_price_of_each_zone(clock: ManualClock) -> None:
    """The list price from all pages, and of each zone the newest change of its spot price."""
    history = [
        spot_history(
            ("us-east-1a", "20.5", "2026-11-20T00:00:00Z"), ("us-east-1b", "21", "2026-11-21T08:00:00Z"), following="1"
        ),
        spot_history(("us-east-1a", "19.9", "2026-11-21T07:00:00Z"), ("us-east-1b", "33", "2026-11-01T00:00:00Z")),
    ]
    with serving(Ec2([ec2_product("0.0000000000"), ec2_product("55.0400000000")], history)) as server:
        found = fetched(AwsPrices(clock=clock, endpoint_url=server.url), P5)

    assert found == {
        ("us-east-1", CapacityType.ON_DEMAND): Decimal("55.04"),
        ("us-east-1a", CapacityType.SPOT): Decimal("19.9"),
        ("us-east-1b", CapacityType.SPOT): Decimal(21),
    }
    filters = json.loads(server.asked[0].body)["Filters"]
    assert {each["Field"]: each["Value"] for each in filters} == {
        "operatingSystem": "Linux",
        "tenancy": "Shared",
        "preInstalledSw": "NA",
        "capacitystatus": "Used",
        "marketoption": "OnDemand",
        "instanceType": "p5.48xlarge",
        "regionCode": "us-east-1",
    }


def test_ec2s_throttling_is_waited_for(clock: ManualClock) -> None:
    """The SDK asks again."""
    double = Ec2([ec2_product("55.04")], [spot_history()])
    double.refusals = iter([Answer(status=400, body={"__type": "ThrottlingException", "message": "Rate exceeded"})])
    with serving(double) as server:
        assert fetched(AwsPrices(clock=clock, endpoint_url=server.url), P5)


@pytest.mark.parametrize(
    ("double", "why"),
    [
        (Ec2([ec2_product("55.04"), ec2_product("98.32")], [spot_history()]), "2 prices for p5.48xlarge in us-east-1"),
        (Ec2(["{}"], [spot_history()]), "a product that cannot be read"),
        (Ec2(["no json"], [spot_history()]), "a product that cannot be read"),
        (lambda _: Answer(status=403, body={"__type": "AccessDeniedException"}), "AccessDeniedException"),
    ],
)
def test_ec2s_nonsense_and_refusals_are_no_price(double: Ec2, why: str, clock: ManualClock) -> None:
    """Two prices for one machine are none: nobody can tell which is right."""
    with serving(double) as server, pytest.raises(FetchError, match=why):
        fetched(AwsPrices(clock=clock, endpoint_url=server.url), P5)
