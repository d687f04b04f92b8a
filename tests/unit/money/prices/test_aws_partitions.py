"""AWS's prices in several partitions: each is asked with credentials of its own, and none with another's."""

import re
from pathlib import Path

import pytest

from gpuwatch.money.prices.fetch import FetchError, Found, Wanted
from gpuwatch.money.prices.providers.aws import AwsPrices
from gpuwatch.runtime.clock import ManualClock
from tests.support.fakes.http_sink import Answer, Asked, ec2_product, serving, spot_history

PUBLIC: Wanted = ("us-east-1", "p5.48xlarge")
CHINA: Wanted = ("cn-north-1", "p4d.24xlarge")
GOVERNMENT: Wanted = ("us-gov-west-1", "p4d.24xlarge")
_SCOPE = re.compile(r"Credential=(?P<key>\w+)/\d+/(?P<region>[^/]+)/(?P<service>[^/]+)/")

_REFUSED = (
    "<Response><Errors><Error><Code>AuthFailure</Code><Message>AWS was not able to validate the provided access "
    "credentials</Message></Error></Errors><RequestID>0</RequestID></Response>"
)


class Aws:
    """The price list and the spot price history of all partitions at one address, which keeps who asked for what."""

    def __init__(self, *refused: str) -> None:
        """Keys that are refused."""
        self.refused = refused
        self.asked: set[tuple[str, ...]] = set()

    def __call__(self, asked: Asked) -> Answer:
        """What AWS answers to that key."""
        scope = _SCOPE.search(asked.headers["authorization"])
        assert scope is not None
        self.asked.add(scope.group("key", "region", "service"))
        if scope["key"] in self.refused:
            if scope["service"] == "pricing":
                return Answer(status=400, body={"__type": "UnrecognizedClientException", "message": "no such key"})
            return Answer(status=401, body=_REFUSED)
        if scope["service"] == "pricing":
            return Answer(body={"FormatVersion": "aws_v1", "PriceList": [ec2_product("55.04")]})
        return Answer(body=spot_history((f"{scope['region']}a", "19.9", "2026-01-04T07:00:00Z")))


@pytest.fixture(autouse=True)
def profiles(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The SDK's file with credentials of two partitions."""
    keys = tmp_path / "credentials"
    text = "[{0}]\naws_access_key_id = {1}\naws_secret_access_key = secret\n"
    keys.write_text(text.format("home", "PUBLICKEY") + text.format("china", "CHINAKEY"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(keys))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)


def fetched(aws: Aws, *profiles: tuple[str, str]) -> tuple[list[Found], str]:
    """What came, and what went wrong in the end."""
    found: list[Found] = []
    with serving(aws) as server:
        prices = AwsPrices(clock=ManualClock(), profiles=profiles, endpoint_url=server.url)
        try:
            for _, news in prices.fetch([CHINA, PUBLIC, GOVERNMENT]):
                found += news
        except FetchError as error:
            return found, str(error)
    return found, ""


def told(found: list[Found]) -> list[tuple[str, str, str]]:
    """Place, kind of capacity and currency."""
    return [(each.place, str(each.capacity_type), each.quote.currency) for each in found]


OF_CHINA = [("cn-north-1a", "spot", "CNY")]
OF_PUBLIC = [("us-east-1", "on_demand", "USD"), ("us-east-1a", "spot", "USD")]


def test_each_partition_is_asked_with_its_own_credentials_and_in_its_own_money() -> None:
    """GovCloud, where there are none, is not asked; China has no price list, and its spot prices are in yuan."""
    aws = Aws()
    found, wrong = fetched(aws, ("home", "us-east-1"), ("china", "cn-north-1"))

    assert (told(found), wrong) == (OF_CHINA + OF_PUBLIC, "")
    assert aws.asked == {
        ("CHINAKEY", "cn-north-1", "ec2"),
        ("PUBLICKEY", "us-east-1", "ec2"),
        ("PUBLICKEY", "us-east-1", "pricing"),
    }


@pytest.mark.parametrize(
    ("profile", "prices", "asked"),
    [
        (("china", "cn-north-1"), OF_CHINA, {("CHINAKEY", "cn-north-1", "ec2")}),
        (
            ("home", "eu-west-1"),
            OF_PUBLIC,
            {("PUBLICKEY", "us-east-1", "ec2"), ("PUBLICKEY", "us-east-1", "pricing")},
        ),
    ],
)
def test_no_key_is_sent_to_another_partition(
    profile: tuple[str, str], prices: list[tuple[str, str, str]], asked: set[tuple[str, ...]]
) -> None:
    """A region without credentials has no fetched price, and that is no failure."""
    aws = Aws()
    found, wrong = fetched(aws, profile)

    assert (told(found), wrong, aws.asked) == (prices, "", asked)


@pytest.mark.parametrize(("refused", "left"), [("CHINAKEY", OF_PUBLIC), ("PUBLICKEY", OF_CHINA)])
def test_a_partition_without_an_answer_keeps_back_no_other(refused: str, left: list[tuple[str, str, str]]) -> None:
    """What was given is good; what failed is said."""
    found, wrong = fetched(Aws(refused), ("home", "us-east-1"), ("china", "cn-north-1"))

    assert told(found) == left
    assert "AWS gave no prices" in wrong
