"""The clouds' price APIs on loopback, as they are on the wire: pages, busy answers, nonsense and silence."""

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One request."""

    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]  # by names in small letters
    body: str

    @property
    def form(self) -> dict[str, str]:
        """The body of AWS's query protocol."""
        return {name: values[0] for name, values in parse_qs(self.body).items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What comes back."""

    body: object = None  # a text as it is, anything else as JSON
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    cut_bytes: int = 0  # how much of the body never comes


class PriceServer(ThreadingHTTPServer):
    """Answers as `respond` says; None is silence until the server is closed."""

    daemon_threads = True

    def __init__(self, respond: Callable[[Asked], Answer | None]) -> None:
        """Any free port of loopback."""
        super().__init__(("127.0.0.1", 0), _Handler)
        self.respond = respond
        self.asked: list[Asked] = []
        self.closed = threading.Event()

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: PriceServer

    def do_GET(self) -> None:
        """Azure and GCP."""
        size = int(self.headers.get("Content-Length") or 0)
        parts = urlsplit(self.path)
        asked = Asked(
            path=parts.path,
            query={name: values[0] for name, values in parse_qs(parts.query).items()},
            headers={name.lower(): value for name, value in self.headers.items()},
            body=self.rfile.read(size).decode(),
        )
        self.server.asked.append(asked)
        answer = self.server.respond(asked)
        if answer is None:
            self.server.closed.wait()
            return
        body = answer.body if isinstance(answer.body, str) else json.dumps(answer.body)
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body.encode())))
        self.end_headers()
        self.wfile.write(body.encode()[: len(body.encode()) - answer.cut_bytes])

    do_POST = do_GET  # noqa: N815  AWS

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def serving(respond: Callable[[Asked], Answer | None]) -> Iterator[PriceServer]:
    """A server that runs."""
    server = PriceServer(respond)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.closed.set()
        server.shutdown()
        server.server_close()
        thread.join()


def azure_item(**changed: object) -> dict[str, object]:
    """One meter of a machine as the Retail Prices API lists it."""
    return {
        "currencyCode": "USD",
        "tierMinimumUnits": 0.0,
        "retailPrice": 27.197,
        "unitPrice": 27.197,
        "armRegionName": "eastus",
        "location": "US East",
        "effectiveStartDate": "2024-05-01T00:00:00Z",
        "meterName": "ND96asr_v4",
        "productName": "Virtual Machines NDasv4 A100 Series",
        "skuName": "ND96asr_v4",
        "serviceName": "Virtual Machines",
        "unitOfMeasure": "1 Hour",
        "type": "Consumption",
        "isPrimaryMeterRegion": True,
        "armSkuName": "Standard_ND96asr_v4",
    } | changed


def gcp_sku(description: str, usd: str, *, unit: str = "h", usage: str = "OnDemand") -> dict[str, object]:
    """One SKU of Compute Engine as the Cloud Billing catalogue lists it."""
    whole, _, part = usd.partition(".")
    price = {"currencyCode": "USD", "units": whole, "nanos": int(part.ljust(9, "0"))}
    return {
        "description": description,
        "category": {"resourceFamily": "Compute", "usageType": usage},
        "serviceRegions": ["us-central1", "us-east1"],
        "pricingInfo": [
            {"pricingExpression": {"usageUnit": unit, "tieredRates": [{"startUsageAmount": 0, "unitPrice": price}]}}
        ],
    }


def ec2_product(usd: str, *, currency: str = "USD") -> str:
    """One product of the EC2 price list with its terms."""
    dimension = {"unit": "Hrs", "pricePerUnit": {currency: usd}}
    return json.dumps(
        {
            "product": {"attributes": {"instanceType": "p5.48xlarge", "regionCode": "us-east-1"}},
            "terms": {"OnDemand": {"A.B": {"priceDimensions": {"A.B.C": dimension}}}},
        }
    )


def ec2_list(*machines: Mapping[str, str]) -> str:
    """A region's file of the EC2 price list as CSV: lines about the list, the header, and a line for each price."""
    lines = [{**EC2_LINE, **machine} for machine in machines]
    rows = [list(EC2_LINE), *(list(line.values()) for line in lines)]
    quoted = [",".join(f'"{cell}"' for cell in row) for row in rows]
    head = [
        '"FormatVersion","v1.0"',
        '"Disclaimer","Prices, and ""terms"""',
        '"Publication Date","2026-11-20T17:07:46Z"',
    ]
    return "\n".join([*head, '"Version","20261120170746"', '"OfferCode","AmazonEC2"', *quoted]) + "\n"


EC2_LINE = {
    "SKU": "BS3PUKRA82E3XGF5",
    "OfferTermCode": "JRTCKXETXF",
    "TermType": "OnDemand",
    "PriceDescription": "$55.04 per On Demand Linux p5.48xlarge Instance Hour",
    "EffectiveDate": "2026-11-01",
    "Unit": "Hrs",
    "PricePerUnit": "55.0400000000",
    "Currency": "USD",
    "Product Family": "Compute Instance",
    "Location Type": "AWS Region",
    "Instance Type": "p5.48xlarge",
    "Tenancy": "Shared",
    "Operating System": "Linux",
    "CapacityStatus": "Used",
    "Pre Installed S/W": "NA",
    "Region Code": "us-east-1",
    "MarketOption": "OnDemand",
}


def spot_history(*entries: tuple[str, str, str], following: str = "") -> str:
    """A page of EC2's spot price history: zone, price, time."""
    items = "".join(
        f"<item><instanceType>p5.48xlarge</instanceType><productDescription>Linux/UNIX</productDescription>"
        f"<spotPrice>{price}</spotPrice><timestamp>{at}</timestamp><availabilityZone>{zone}</availabilityZone></item>"
        for zone, price, at in entries
    )
    return (
        '<DescribeSpotPriceHistoryResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"><requestId>0</requestId>'
        f"<spotPriceHistorySet>{items}</spotPriceHistorySet><nextToken>{following}</nextToken>"
        "</DescribeSpotPriceHistoryResponse>"
    )
