"""`make prices` against doubles of the clouds' public catalogues: pages, busy answers, nonsense, and silence."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from gpuwatch.runtime.clock import ManualClock
from tests.support.fakes.http_sink import Answer, Asked, azure_item, ec2_list, serving
from tools.prices.__main__ import main

NOW = datetime(2026, 11, 23, 22, tzinfo=UTC)
TABLE = """provider\tregion\ttype\ton_demand\tspot\tas_of\tsource
aws\tus-east-1\tp5.48xlarge\t55.04\t\t2026-01-19\tkarpenter-aws
azure\teastus\tStandard_ND96asr_v4\t27.197\t\t2026-06-18\tkarpenter-azure
gcp\tus-central1\ta2-highgpu-1g\t3.673385\t1.1\t2026-08-03\tkarpenter-gcp
alibaba\tcn-beijing\tecs.gn7i-c16g1.4xlarge\t10.0934\t\t2024-10-01\tkarpenter-alicloud
"""
INDEX = "/offers/v1.0/aws/AmazonEC2/current/region_index.json"
FILE = "/offers/v1.0/aws/AmazonEC2/20261120170746/us-east-1/index.csv"
PAGE = "/price/ecs/ecs-pricing/zh"
LIST = "/aliyun/ecs-price-info/2.0.412/price/download/instancePrice.json"
AZURE = "/api/retail/prices"
SILENT = Answer(status=404)

Site = dict[str, Answer | Callable[[Asked], Answer | None]]

Run = Callable[..., int]


def aws_site(*machines: Mapping[str, str]) -> Site:
    """The index and the file of us-east-1."""
    regions = {"us-east-1": {"regionCode": "us-east-1", "currentVersionUrl": FILE.replace(".csv", ".json")}}
    return {INDEX: Answer(body={"formatVersion": "v1.0", "regions": regions}), FILE: Answer(body=ec2_list(*machines))}


def alibaba_site(**prices: str) -> Site:
    """The page and its list, with other systems and networks than those that are wanted."""
    listed = {
        f"cn-beijing::{kind}::{where}": {"hours": [{"price": "99.0" if "windows" in where else price, "period": "1"}]}
        for kind, price in {"ecs.gn7i-c16g1.4xlarge": "10.0934", **prices}.items()
        for where in ("vpc::linux::optimized", "vpc::linux::none", "vpc::windows::optimized")
    }
    return {
        PAGE: Answer(body='<script src="//g.alicdn.com/aliyun/ecs-price-info/2.0.412/index.js"></script>'),
        LIST: Answer(body={"pricingInfo": listed}),
    }


def azure_site(*items: Mapping[str, object]) -> Site:
    """These meters, each where it is asked for."""

    def respond(asked: Asked) -> Answer:
        here = [each for each in items if f"armSkuName eq '{each['armSkuName']}'" in asked.query["$filter"]]
        return Answer(body={"Items": here, "NextPageLink": None})

    return {AZURE: respond}


GOOD: Site = aws_site({}) | azure_site(azure_item()) | alibaba_site()


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A small table."""
    path = tmp_path / "prices.tsv"
    path.write_text(TABLE, encoding="utf-8")
    return path


@contextmanager
def running(table: Path, site: Site) -> Iterator[Run]:
    """The program, with every catalogue at one server."""

    def respond(asked: Asked) -> Answer | None:
        answer = site.get(asked.path, SILENT)
        return answer(asked) if callable(answer) else answer

    with serving(respond) as server:
        mirrors = [word for name in ("aws", "azure", "alibaba") for word in ("--endpoint", f"{name}={server.url}")]
        yield lambda *words: main([*mirrors, "--table", str(table), *words], ManualClock(wall=NOW))


def rows(table: Path) -> list[list[str]]:
    """The cells of each row."""
    return [line.split("\t") for line in table.read_text(encoding="utf-8").splitlines()[1:]]


def test_what_all_three_answer_gets_its_day_and_its_source(table: Path) -> None:
    """Prices that stay the same, too; what is not asked keeps its day."""
    with running(table, GOOD) as run:
        assert run() == 0

    assert rows(table) == [
        ["aws", "us-east-1", "p5.48xlarge", "55.04", "", "2026-11-23", "aws-price-list"],
        ["azure", "eastus", "Standard_ND96asr_v4", "27.197", "", "2026-11-23", "azure-retail-prices"],
        ["gcp", "us-central1", "a2-highgpu-1g", "3.673385", "1.1", "2026-08-03", "karpenter-gcp"],
        ["alibaba", "cn-beijing", "ecs.gn7i-c16g1.4xlarge", "10.0934", "", "2026-11-23", "alibaba-price-page"],
    ]


def test_a_change_and_a_new_machine_are_told_and_written(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A known machine type that came to a region of the table gets a row behind its neighbours."""
    site = GOOD | aws_site({"PricePerUnit": "50.0000000000"}, {"Instance Type": "g6.xlarge", "PricePerUnit": "0.8048"})
    with running(table, site) as run:
        assert run() == 0

    assert [row[2:4] for row in rows(table)][:2] == [["p5.48xlarge", "50"], ["g6.xlarge", "0.8048"]]
    told = capsys.readouterr().out
    assert "aws/us-east-1/p5.48xlarge was 55.04 and is 50\n" in told
    assert "aws/us-east-1/g6.xlarge is new: 0.8048\n" in told


@pytest.mark.parametrize(
    "other",
    [
        {"Operating System": "Windows", "PricePerUnit": "72"},
        {"Tenancy": "Dedicated", "PricePerUnit": "60"},
        {"CapacityStatus": "UnusedCapacityReservation", "PricePerUnit": "0"},
        {"Pre Installed S/W": "SQL Web", "PricePerUnit": "58"},
        {"TermType": "Reserved", "PricePerUnit": "200000", "Unit": "Quantity"},
        {"MarketOption": "CapacityBlock", "PricePerUnit": "31"},
        {"Location Type": "AWS Local Zone", "Region Code": "us-east-1-bos-1", "PricePerUnit": "66"},
        {"Instance Type": "m7i.large", "PricePerUnit": "0.1"},
    ],
)
def test_of_aws_only_linux_on_demand_on_shared_hosts_counts(other: Mapping[str, str], table: Path) -> None:
    """The file has every other way to rent the machine as well."""
    with running(table, GOOD | aws_site(other, {})) as run:
        assert run("--provider", "aws") == 0

    assert rows(table)[0][3] == "55.04"


@pytest.mark.parametrize(
    ("price", "doubt"),
    [
        ("165.13", "was 55.04 and would be 165.13, more than 3 times as much or as little"),
        ("18.3", "was 55.04 and would be 18.3, more than 3 times as much or as little"),
    ],
)
def test_a_jump_is_not_taken_unseen(price: str, doubt: str, table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing at all is written then, before somebody accepts it."""
    with running(table, GOOD | aws_site({"PricePerUnit": price})) as run:
        assert run() == 3
        assert table.read_text(encoding="utf-8") == TABLE
        assert f"aws/us-east-1/p5.48xlarge {doubt}" in capsys.readouterr().out
        assert run("--accept", "azure/*") == 3
        assert run("--accept", "aws/us-east-1/p5.*") == 0

    assert rows(table)[0][3] == price


def test_three_times_as_much_is_still_taken(table: Path) -> None:
    """The bound is in it."""
    with running(table, GOOD | aws_site({"PricePerUnit": "165.12"})) as run:
        assert run() == 0


def test_a_machine_that_vanished_goes_only_when_somebody_accepts_it(
    table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A catalogue without it may be a catalogue that was cut."""
    with running(table, GOOD | aws_site({"Instance Type": "g6.xlarge", "PricePerUnit": "0.8048"})) as run:
        assert run() == 3
        assert "aws/us-east-1/p5.48xlarge is no longer in the catalogue" in capsys.readouterr().out
        assert table.read_text(encoding="utf-8") == TABLE
        assert run("--accept") == 0

    assert [row[2] for row in rows(table) if row[0] == "aws"] == ["g6.xlarge"]


def test_azures_pages_and_busy_answers_are_waited_for(table: Path) -> None:
    """HTTP 429 with Retry-After, then two pages."""
    first = iter([Answer(status=429, headers={"Retry-After": "7"})])

    def respond(asked: Asked) -> Answer:
        busy = next(first, None)
        if busy is not None or "ND96asr_v4'" not in asked.query.get("$filter", "ND96asr_v4'"):
            return busy or Answer(body={"Items": [], "NextPageLink": None})
        if "$skip" in asked.query:
            return Answer(body={"Items": [azure_item(retailPrice=26.5)], "NextPageLink": None})
        host = asked.headers["host"]
        return Answer(body={"Items": [], "NextPageLink": f"http://{host}{AZURE}?$skip=1000"})

    with running(table, GOOD | {AZURE: respond}) as run:
        assert run("--provider", "azure") == 0

    assert rows(table)[1][3:6] == ["26.5", "", "2026-11-23"]


HTML = Answer(body="<!DOCTYPE html><html><body>Service unavailable</body></html>")


@pytest.mark.parametrize(
    ("cloud", "changed", "why"),
    [
        ("aws", {INDEX: HTML}, "AWS's price list gave no usable answer"),
        ("aws", {INDEX: Answer(body={"regions": {}})}, "AWS's price list names no file of us-east-1"),
        ("aws", {INDEX: Answer(status=503)}, "AWS's price list answered 503"),
        ("aws", {FILE: Answer(status=429)}, "AWS's price list answered 429"),
        ("aws", {FILE: HTML}, "no line with the names of its columns"),
        ("aws", {FILE: Answer(body=ec2_list({}, {}), cut_bytes=40)}, "it ended 40 bytes before its end"),
        ("aws", {FILE: Answer(body=ec2_list({}).replace("Tenancy", "Tenure"))}, 'it has no column "Tenancy"'),
        ("aws", {FILE: Answer(body=ec2_list({}) + '"SKU2","x"\n')}, "a line has 2 columns, the header has 17"),
        ("aws", aws_site({}, {"PricePerUnit": "54"}), "has 55.0400000000 and 54 for p5.48xlarge in us-east-1"),
        ("azure", {AZURE: HTML}, "Azure's Retail Prices API gave no usable answer"),
        ("azure", {AZURE: Answer(body={"Items": [azure_item()]}, cut_bytes=9)}, "gave no usable answer"),
        ("azure", azure_site(azure_item(currencyCode="EUR")), "answered in EUR, not in USD"),
        ("alibaba", {PAGE: HTML}, "names no list of prices"),
        ("alibaba", {LIST: HTML}, "Alibaba Cloud's page of prices gave no usable answer"),
        ("alibaba", {LIST: Answer(body={"pricingInfo": {}}, cut_bytes=3)}, "gave no usable answer"),
        ("alibaba", {LIST: Answer(body={"prices": {}})}, "gave a list that cannot be read"),
        ("alibaba", {LIST: Answer(body={"currency": "USD", "pricingInfo": {}})}, "is in USD, not in CNY"),
    ],
)
def test_a_catalogue_that_answers_nonsense_leaves_its_rows(
    cloud: str, changed: Site, why: str, table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is named with what was wrong; the others are renewed, and the exit status says that one is missing."""
    with running(table, {**GOOD, **changed}) as run:
        assert run() == 1

    told = capsys.readouterr().out
    assert why in told
    assert "Its 1 rows keep their day" in told
    renewed = {row[0] for row in rows(table) if row[5] == "2026-11-23"}
    assert renewed == {"aws", "azure", "alibaba"} - {cloud}


def test_without_a_network_the_table_is_as_it_was(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The text names every cloud, and the exit status is 1."""
    closed = [word for name in ("aws", "azure", "alibaba") for word in ("--endpoint", f"{name}=http://127.0.0.1:9")]

    assert main([*closed, "--table", str(table)], ManualClock(wall=NOW)) == 1

    told = capsys.readouterr().out
    assert table.read_text(encoding="utf-8") == TABLE
    assert f"No catalogue answered: {table} is as it was." in told
    assert told.count("gave no usable answer") == 3
    assert "gcp: not asked" in told
    assert "tencent: not asked" in told


def test_a_list_that_takes_too_long_is_given_up(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`--timeout` is for all that one cloud is asked."""
    with running(table, GOOD) as run:
        assert run("--provider", "aws", "--timeout", "-1") == 1

    assert "it took longer than --timeout" in capsys.readouterr().out
    assert table.read_text(encoding="utf-8") == TABLE


def test_an_address_without_a_name_is_a_mistake(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The text says what is expected."""
    with pytest.raises(SystemExit, match="2"):
        main(["--endpoint", "gcp=http://127.0.0.1:9", "--table", str(table)], ManualClock(wall=NOW))

    assert "expected NAME=URL, with a name of aws, azure, alibaba" in capsys.readouterr().err


def test_amounts_lose_no_digit(table: Path) -> None:
    """A price goes into the table as it was answered, without the zeros behind it."""
    with running(table, GOOD | aws_site({"PricePerUnit": "21.9576420000"})) as run:
        assert run("--provider", "aws") == 0

    assert Decimal(rows(table)[0][3]) == Decimal("21.957642")
    assert rows(table)[0][3] == "21.957642"


PUBLIC = {
    "zz_generated.pricing_aws.go": """
// generated at 2026-07-20T13:44:30Z for us-east-1
var InitialOnDemandPricesAWS = map[string]map[ec2types.InstanceType]float64{
	// us-east-1
	"us-east-1": {
		// p5 family
		"p5.48xlarge": 55.100000, "p5.4xlarge": 6.880000, "m5.large": 0.096000,
	},
}
""",
    "all_gpu_instances.js": """// Auto-generated
const allGPUInstances = [{"name": "p5.48xlarge", "pricing": {"us-east-1": {"onDemand": 1}, "us-west-2": {
  "onDemand": 55.04}, "us-west-2-lax-1": {"onDemand": 66}, "us-east-1-wl1-bos1": {"onDemand": 77}}}];
""",
    "zz_generated.pricing.go": """
// generated at 2026-06-18T03:43:41Z
func init() {
	initialOnDemandPrices["westeurope"] = map[string]float64{
		"Standard_ND96asr_v4":   35.357000,
		"Standard_NC6_Promo":    0.515000,
	}
}
""",
    "initial-prices.json": """{"prices": {"us-central1": {"on_demand": {"a2-highgpu-1g": 3.6733851234,
  "n1-standard-8": 0.379998, "e2-small": 1}, "spot": {"a2-highgpu-1g": 1.9}}}}""",
    "vms.csv": """InstanceType,AcceleratorName,AcceleratorCount,Region,AvailabilityZone,Price,SpotPrice
,T4,1,us-central1,us-central1-a,0.35,0.175
,T4,1,us-central1,us-central1-b,0.35,0.175
,T4,2,us-central1,us-central1-a,0.7,0.35
a2-highgpu-1g,A100,1,us-central1,us-central1-a,0.7,0.4
""",
    "initial-on-demand-prices.json": """{"cn-beijing": {"ecs.gn7i-c16g1.4xlarge": 10.0934,
  "ecs.ebmgn7ix.32xlarge": 0}}""",
}


def test_public_tables_are_read_as_facts(table: Path, tmp_path: Path) -> None:
    """GPU machines alone, with the day of each file; what is newer in the table stays, local zones are left out."""
    for name, text in PUBLIC.items():
        (tmp_path / name).write_text(text, encoding="utf-8")

    assert main(["--table", str(table), "--tables", str(tmp_path)], ManualClock(wall=NOW)) == 0
    assert rows(table) == [
        ["aws", "us-east-1", "p5.4xlarge", "6.88", "", "2026-07-20", "karpenter-aws"],
        ["aws", "us-east-1", "p5.48xlarge", "55.1", "", "2026-07-20", "karpenter-aws"],
        ["aws", "us-west-2", "p5.48xlarge", "55.04", "", "2025-11-30", "vantage"],
        ["azure", "eastus", "Standard_ND96asr_v4", "27.197", "", "2026-06-18", "karpenter-azure"],
        ["azure", "westeurope", "Standard_ND96asr_v4", "35.357", "", "2026-06-18", "karpenter-azure"],
        ["gcp", "us-central1", "a2-highgpu-1g", "3.673385", "1.1", "2026-08-03", "karpenter-gcp"],
        ["gcp", "us-central1", "nvidia-tesla-t4", "0.35", "0.175", "2025-10-01", "skypilot-gcp"],
        ["gcp", "us-central1", "n1-standard-8", "0.379998", "", "2026-08-03", "karpenter-gcp"],
        ["alibaba", "cn-beijing", "ecs.gn7i-c16g1.4xlarge", "10.0934", "", "2024-12-31", "karpenter-alibaba"],
    ]


def test_a_folder_without_any_table_changes_nothing(table: Path, tmp_path: Path) -> None:
    """It says which files it knows."""
    assert main(["--table", str(table), "--tables", str(tmp_path)], ManualClock(wall=NOW)) == 1
    assert table.read_text(encoding="utf-8") == TABLE


def test_one_region_may_be_asked_for_and_china_is_not(table: Path) -> None:
    """AWS in China sells by another list: its rows keep their day, and nobody looks for them in this one."""
    table.write_text(
        TABLE
        + "aws\tcn-north-1\tg5.xlarge\t9.51389\t\t2024-11-06\tkarpenter-aws\n"
        + "aws\teu-west-1\tg5.xlarge\t1.123\t\t2025-11-30\tvantage\n",
        encoding="utf-8",
    )
    with running(table, GOOD) as run:
        assert run("--provider", "aws", "--region", "us-east-1") == 0

    days = {(row[1], row[2]): row[5] for row in rows(table) if row[0] == "aws"}
    assert days == {
        ("us-east-1", "p5.48xlarge"): "2026-11-23",
        ("cn-north-1", "g5.xlarge"): "2024-11-06",
        ("eu-west-1", "g5.xlarge"): "2025-11-30",
    }
