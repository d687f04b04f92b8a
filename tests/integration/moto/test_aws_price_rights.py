"""The policy iam/prices.json against what `prices.live` asks of AWS: neither less nor more, and not in China."""

from types import SimpleNamespace
from typing import Any

import boto3
import pytest

from gpuwatch.clouds.aws.iam import ROLES, policy
from gpuwatch.money.prices.providers.aws import AwsPrices
from gpuwatch.runtime.clock import ManualClock

ALLOWED = {action for each in ROLES["prices"] for action in each.actions}


def asked_for_prices(monkeypatch: pytest.MonkeyPatch, region: str) -> set[str]:
    """What prices.live asks of AWS for one machine type of a region."""
    session: Any = boto3.Session(aws_access_key_id="AKIA", aws_secret_access_key="s")  # noqa: S106  of nobody
    sent: set[str] = set()

    def answer(model: Any, **_: Any) -> tuple[Any, dict[str, Any]]:  # noqa: ANN401  botocore's event
        sent.add(f"{model.service_model.service_name}:{model.name}")
        return SimpleNamespace(status_code=200), {"PriceList": [], "SpotPriceHistory": []}

    session.events.register("before-call", answer)
    monkeypatch.setattr(AwsPrices, "_sessions", lambda _: {"aws": session, "aws-cn": session})
    assert list(AwsPrices(clock=ManualClock()).fetch([(region, "p5.48xlarge")])) == [((region, "p5.48xlarge"), [])]
    return sent


def test_the_role_for_prices_can_do_its_work_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside no other role; in China no region serves the list, and it is not asked for with keys of China."""
    assert asked_for_prices(monkeypatch, "eu-west-1") == ALLOWED
    assert ALLOWED - asked_for_prices(monkeypatch, "cn-north-1") == {"pricing:GetProducts"}


def test_list_prices_are_those_of_every_region() -> None:
    """One region serves the list of all; spot prices are asked of each."""
    document: Any = policy("prices", regions=["eu-west-1"])
    listed, spot = document["Statement"]

    assert "Condition" not in listed
    assert spot["Condition"] == {"StringEquals": {"aws:RequestedRegion": ["eu-west-1"]}}
