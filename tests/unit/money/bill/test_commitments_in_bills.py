"""What commitments make of a bill: an hour costs its effective rate, and nothing is counted twice or lost."""

import json
import random
from collections.abc import Mapping, Sequence
from datetime import UTC
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwatch.money.bill.charge import BillError, Charge
from gpuwatch.money.bill.parse import charges
from gpuwatch.money.bill.reconcile import Bill, gather_charges
from gpuwatch.runtime.json_document import read_json
from tests.support.builders.bills import cur_line, focus_line, snake_case
from tests.support.nightly import examples

PLAN = {"LineItemType": "SavingsPlanCoveredUsage", "savingsPlan/SavingsPlanEffectiveCost": "13.17"}


def read(rows: Sequence[Mapping[str, object]]) -> list[Charge]:
    """The charges of a table of these rows."""
    header = list(dict.fromkeys(name for row in rows for name in row))
    return list(
        charges(header, [{n: str(v) for n, v in row.items()} for row in rows], lambda at: at.date(), None, read_json)
    )


def bill_of(rows: Sequence[Mapping[str, object]], **rates: str) -> Bill:
    """Their bill, in dollars."""
    return gather_charges(read(rows), frozenset({"i-1", "vm-1", "42"}), {code: Decimal(r) for code, r in rates.items()})


def in_cur_2(rows: Sequence[Mapping[str, object]]) -> list[dict[str, object]]:
    """The same rows in the naming of CUR 2.0."""
    return [{snake_case(name): value for name, value in row.items()} for row in rows]


@pytest.mark.parametrize("naming", [list, in_cur_2], ids=["legacy", "2.0"])
def test_an_hour_of_a_savings_plan_costs_its_effective_cost(naming: type[list[dict[str, object]]]) -> None:
    """The negation takes back the list price of the covered line: together they were $0."""
    covered = [cur_line("i-1", hour, **PLAN) for hour in range(3)]
    negated = [
        cur_line("i-1", hour, "SavingsPlanNegation", UnblendedCost="-32.7726", UsageAmount="1") for hour in range(3)
    ]
    found = bill_of(naming(covered + negated))
    [line] = found.lines.values()

    assert line.usd == line.committed_usd == Fraction("39.51")
    assert line.list_usd == 3 * Fraction("32.7726")
    assert line.hours == 3
    assert found.by_kind == {}


def test_what_no_hour_used_of_a_commitment_is_told_apart_from_what_was_paid_for_it() -> None:
    """Fees are in no sum; the unused part of them is, and is no machine's."""
    plan = cur_line(
        "arn:aws:savingsplans::1:savingsplan/x", 0, "SavingsPlanRecurringFee",
        UsageType="ComputeSP:1yrNoUpfront", UnblendedCost="20", UsageEndDate="2026-04-01T00:00:00Z",
        **{"savingsPlan/TotalCommitmentToDate": "20", "savingsPlan/UsedCommitment": "13.17"},
    )  # fmt: skip
    reserved = cur_line(
        "arn:aws:ec2:us-east-1:1:reserved-instances/y", 0, "RIFee", UnblendedCost="700", UsageAmount="744",
        UsageEndDate="2026-04-01T00:00:00Z",
        **{
            "reservation/ReservationARN": "arn:y",
            "reservation/UnusedAmortizedUpfrontFeeForBillingPeriod": "4",
            "reservation/UnusedRecurringFee": "1.5",
        },
    )  # fmt: skip
    upfront = cur_line("", 0, "Fee", UnblendedCost="9000", **{"reservation/ReservationARN": "arn:y"})
    found = bill_of([cur_line("i-1", 0, **PLAN), plan, reserved, upfront])

    assert found.fees_usd == 20 + 700 + 9000
    assert found.by_kind == {"unused commitments": Fraction("12.33")}
    assert [line.usd for line in found.lines.values()] == [Fraction("13.17")]


def test_a_reservation_and_negotiated_prices() -> None:
    """Net columns hold where they are; a discount of its own line lowers the price of the machine that it names."""
    reserved = cur_line(
        "i-1", 0, "DiscountedUsage", UnblendedCost="0",
        **{"reservation/EffectiveCost": "20", "reservation/NetEffectiveCost": "18"},
    )  # fmt: skip
    apart = [cur_line("i-1", 0), cur_line("i-1", 0, "EdpDiscount", UnblendedCost="-2.6218", UsageAmount="1")]
    net = [
        cur_line("i-1", 0, NetUnblendedCost="30.1508"),
        cur_line("i-1", 0, "EdpDiscount", UnblendedCost="-2.6218", NetUnblendedCost="0"),
    ]

    assert [line.usd for line in bill_of([reserved]).lines.values()] == [18]
    for rows in (apart, net):
        [line] = bill_of(rows).lines.values()
        assert [line.usd, line.hours, line.list_usd] == [Fraction("30.1508"), 1, Fraction("32.7726")]


def test_taxes_credits_and_refunds_are_no_price() -> None:
    """They stand apart even where they name the machine, and where they name nothing."""
    found = bill_of(
        [
            cur_line("i-1", 0),
            cur_line("i-1", 0, "Credit", UnblendedCost="-10"),
            cur_line("i-1", 0, "Refund", UnblendedCost="-3"),
            cur_line("", 0, "Tax", UnblendedCost="5"),
            cur_line("i-1", 0, UnblendedCost="-2", **{"bill/BillType": "Refund"}),
        ]
    )

    assert [line.usd for line in found.lines.values()] == [Fraction("32.7726")]
    assert found.by_kind == {"credits": -10, "refunds": -5, "taxes": 5}


def test_a_covered_hour_without_an_effective_cost_is_not_silently_free() -> None:
    """An actual-cost export has zero for what a reservation covers: its cost is not known."""
    reserved = read([cur_line("i-1", 0, "DiscountedUsage", UnblendedCost="0")])
    azure = read([an_azure_line("OnDemand", "0.9"), an_azure_line("Reservation", "0")])

    assert [each.amortized for each in reserved] == [False]
    assert [each.amortized for each in azure] == [True, False]


def an_azure_line(model: str, cost: str, **more: object) -> dict[str, object]:
    """An hour of an ND96 in an enterprise agreement's export."""
    return {
        "Date": "03/02/2026",
        "ResourceId": "/subscriptions/s/resourceGroups/r/providers/Microsoft.Compute/virtualMachines/vm-1",
        "ChargeType": "Usage",
        "MeterCategory": "Virtual Machines",
        "MeterName": "ND96asr_v4",
        "PricingModel": model,
        "CostInBillingCurrency": cost,
        "BillingCurrencyCode": "USD",
        "Quantity": "1",
        "UnitOfMeasure": "1 Hour",
        "PayGPrice": "27.197",
        "ResourceLocation": "East US",
        "AdditionalInfo": '{"ServiceType":"Standard_ND96asr_v4","VMName":null}',
        **more,
    }


def test_azures_amortized_export() -> None:
    """What is covered has its rate; what was not used, refunds and the purchase itself stand apart."""
    found = bill_of(
        [
            an_azure_line("Reservation", "16.3"),
            an_azure_line("Spot", "5", MeterName="ND96asr_v4 Spot"),
            an_azure_line("Reservation", "40", ChargeType="UnusedReservation", ResourceId=""),
            an_azure_line("OnDemand", "-7", ChargeType="Refund"),
            an_azure_line("Reservation", "90000", ChargeType="Purchase", ReservationId="r-1"),
            an_azure_line("OnDemand", "3", MeterCategory="Bandwidth", MeterName="Standard Data Transfer Out"),
        ]
    )
    [line] = found.lines.values()

    assert [line.usd, line.committed_usd, line.hours] == [Fraction("21.3"), Fraction("16.3"), 2]
    assert line.list_usd == 2 * Fraction("27.197")
    assert found.by_kind == {"unused commitments": 40, "refunds": -7, "egress": 3}
    assert found.fees_usd == 90000
    charge = read([an_azure_line("Spot", "5")])[0]
    assert (charge.region, charge.instance_type, charge.spot) == ("eastus", "Standard_ND96asr_v4", True)


def test_focus_rows_of_each_kind() -> None:
    """Used, unused, bought, corrected, credited, taxed: each in its place, and nulls are nothing."""
    used = {"CommitmentDiscountStatus": "Used", "CommitmentDiscountId": "ri", "PricingCategory": "Committed"}
    found = bill_of(
        [
            focus_line("i-1", 0),
            focus_line("arn:aws:ec2:us-east-1:1:instance/i-1", 1, BilledCost="0", EffectiveCost="20", **used),
            focus_line("i-1", 2, EffectiveCost="20", **{**used, "CommitmentDiscountStatus": "Unused"}),
            focus_line(
                "ri", 3, ChargeCategory="Purchase", BilledCost="560", EffectiveCost="0", CommitmentDiscountId="ri"
            ),
            focus_line("i-1", 4, ChargeClass="Correction", EffectiveCost="-4"),
            focus_line("", 5, ChargeCategory="Tax", EffectiveCost="6"),
            focus_line("i-1", 6, ChargeCategory="Credit", EffectiveCost="-8"),
            focus_line("i-1", 7, EffectiveCost="-3"),
            focus_line("i-1", 8, EffectiveCost="2", PricingUnit="GB", SkuMeter="DataTransfer", SkuPriceDetails="null"),
        ]
    )
    [line] = found.lines.values()

    assert [line.usd, line.committed_usd, line.hours] == [Fraction("52.7726"), 20, 2]
    assert line.list_usd == 2 * Fraction("32.7726")
    assert found.fees_usd == 560
    assert found.by_kind == {
        "unused commitments": 20, "corrections": -4, "taxes": 6, "credits": -8, "refunds": -3, "other": 2,
    }  # fmt: skip


def test_an_hour_that_is_covered_in_part_is_one_hour() -> None:
    """The priced quantity counts: the consumed one says a whole hour in both rows."""
    found = bill_of(
        [
            focus_line("i-1", 0, PricingQuantity="0.25", ConsumedQuantity="1", CommitmentDiscountStatus="Used"),
            focus_line("i-1", 0, PricingQuantity="0.75", ConsumedQuantity="1", ConsumedUnit="Hours"),
        ]
    )

    assert [line.hours for line in found.lines.values()] == [1]


def a_google_line(item: str, cost: str, hours: str = "1", **more: object) -> dict[str, object]:
    """A part of an hour of an A2 machine, as JSON lines of BigQuery are flattened."""
    return {
        "usagestarttime": "2026-03-02 00:00:00 UTC",
        "usageendtime": "2026-03-02 01:00:00 UTC",
        "servicedescription": "Compute Engine",
        "skudescription": item,
        "cost": cost,
        "currency": "USD",
        "resourceglobalname": "//compute.googleapis.com/projects/1/zones/us-central1-a/instances/42",
        "usageamountinpricingunits": hours,
        "usagepricingunit": "hour",
        "locationregion": "us-central1",
        "systemlabels": json.dumps(
            [
                {"key": "compute.googleapis.com/machine_spec", "value": "a2-highgpu-8g"},
                {"key": "compute.googleapis.com/cores", "value": "96"},
            ]
        ),
        **more,
    }


def test_google_charges_for_the_parts_of_a_machine_and_credits_what_is_committed() -> None:
    """The fee of a region is what its credited parts cost; a promotion is no price, and sustained use is one."""
    committed = [{"type": "COMMITTED_USAGE_DISCOUNT", "amount": -4}]
    rows = [
        a_google_line("A2 Instance Core running in Americas", "4", "96", credits=json.dumps(committed)),
        a_google_line("A2 Instance Ram running in Americas", "2", "1360"),
        a_google_line(
            "Nvidia Tesla A100 GPU running in Americas", "20", "8",
            credits=json.dumps([{"type": "PROMOTION", "amount": -5}, {"type": "DISCOUNT", "amount": -1.5}]),
        ),
        a_google_line("Commitment v1: A2 Cpu in Americas for 1 Year", "2.5", resourceglobalname=""),
        a_google_line("Network Internet Egress from Americas", "1"),
    ]  # fmt: skip
    found = bill_of(rows)
    [line] = found.lines.values()

    assert [line.usd, line.hours] == [Fraction("2.5") + 2 + Fraction("18.5"), 1]
    assert line.committed_usd == Fraction("2.5")
    assert line.list_usd == 26
    assert found.by_kind == {"credits": -5, "egress": 1}
    assert bill_of(rows[3:4]).by_kind == {"unused commitments": Fraction("2.5")}


def test_an_alibaba_bill_in_either_language() -> None:
    """Prices before taxes and coupons, list prices beside them; what a savings plan deducts is committed."""
    english = {
        "Billing Date": "2026-03-02", "Instance ID": "i-1", "Product Code": "ecs", "Subscription Type": "PayAsYouGo",
        "Billing Item": "Instance Type", "Instance Spec": "ecs.gn7i-c8g1.2xlarge", "Region": "cn-hangzhou",
        "Pretax Gross Amount": "240", "Pretax Amount": "190", "Deducted By Coupons": "2", "Currency": "CNY",
        "Usage": "86400", "Usage Unit": "Second",
    }  # fmt: skip
    chinese = {
        "账单日期": "2026-03-02", "实例ID": "i-1", "产品Code": "ecs", "计费项": "实例规格",
        "实例规格": "ecs.gn7i-c8g1.2xlarge", "地域": "华东1 杭州", "官网价": "240", "应付金额": "0",
        "节省计划抵扣金额": "150", "币种": "CNY", "用量": "24", "用量单位": "小时",
    }  # fmt: skip
    found = bill_of([english], CNY="0.125")
    [line] = found.lines.values()

    assert [line.usd, line.list_usd, line.hours] == [24, 30, 24]
    assert found.by_kind == {"credits": Fraction("-0.25")}
    [covered] = read([chinese])
    assert (covered.committed, covered.amortized, covered.region) == (True, False, None)


def test_alibabas_hours_are_chinas_and_its_coupons_are_no_discount() -> None:
    """Half-hours add up to hours; what is written as midnight is eight hours earlier in UTC."""
    half = {
        "UsageStartTime": "2026-03-02 00:30:00", "InstanceID": "i-1", "ProductCode": "ecs", "BillingItem": "instance",
        "PretaxGrossAmount": "5.045", "InvoiceDiscount": "1.5135", "PretaxAmount": "3.5315", "DeductedByCoupons": "1",
        "Currency": "CNY", "Usage": "0.5", "UsageUnit": "Hour",
    }  # fmt: skip
    found = gather_charges(
        charges(list(half), [half, half], lambda at: at.astimezone(UTC).date(), None, read_json),
        frozenset({"i-1"}),
        {"CNY": Decimal(1)},
    )
    [(_, day)], [line] = found.lines.keys(), found.lines.values()

    assert [line.usd, line.list_usd, line.hours] == [Fraction("7.063"), Fraction("10.09"), 1]
    assert day.isoformat() == "2026-03-01"
    disk = read([{**half, "BillingItem": "system disk"}])
    assert not any(each.machine for each in disk)


def test_what_a_bill_says_twice_counts_once() -> None:
    """Rows of split cost allocation repeat their instance by pod; a support fee is no machine."""
    pods = [
        cur_line("arn:pod/a", 0, UnblendedCost="0", **{"splitLineItem/ParentResourceId": "i-1"}),
        cur_line("arn:pod/b", 0, UnblendedCost="0", **{"splitLineItem/ParentResourceId": "i-1"}),
    ]
    fee = cur_line("", 0, "Fee", UnblendedCost="1000", UsageType="", UsageAmount="1")
    found = bill_of([cur_line("i-1", 0), *pods, fee])

    assert [[line.usd, line.hours] for line in found.lines.values()] == [[Fraction("32.7726"), 1]]


def test_a_row_that_has_its_dollars_needs_no_rate() -> None:
    """Billed in euros, priced in dollars (FOCUS 1.2): the dollars of the row hold; without them a rate is needed."""
    euros = focus_line(
        "i-1", 0, BillingCurrency="EUR", EffectiveCost="90", ListCost="180",
        PricingCurrency="USD", PricingCurrencyEffectiveCost="100", ConsumedQuantity="\\N",
        CommitmentDiscountStatus="NULL",
    )  # fmt: skip
    [line] = bill_of([euros]).lines.values()

    assert [line.usd, line.list_usd, line.committed_usd] == [100, 200, 0]
    with pytest.raises(BillError, match=r"in EUR, of which prices\.rates has no rate"):
        bill_of([focus_line("i-1", 0, BillingCurrency="EUR")])


def test_a_list_price_that_is_not_known_is_no_discount_of_all() -> None:
    """Null is not zero; a machine that the ledger knows needs no type of resource."""
    found = bill_of([focus_line("i-1", 0, ListCost="", ResourceType=""), focus_line("other", 0, ResourceType="")])

    assert [(key[0], line.list_usd) for key, line in found.lines.items()] == [("i-1", None)]
    assert found.list_usd is None
    assert found.by_kind == {"other": Fraction("32.7726")}


LINES = [
    cur_line("i-1", 0, **PLAN),
    cur_line("i-1", 0, "SavingsPlanNegation", UnblendedCost="-32.7726"),
    cur_line("i-1", 1),
    cur_line("i-1", 1, "EdpDiscount", UnblendedCost="-1.5", UsageAmount="1"),
    cur_line("i-1", 2, CurrencyCode="EUR", UnblendedCost="30"),
    cur_line("i-1", 2, "Tax", UnblendedCost="5"),
    cur_line("vol-1", 3, UsageType="EBS:VolumeUsage.gp3", UnblendedCost="2", UsageAmount="4"),
]


@settings(max_examples=examples(40))
@given(st.integers(0, 2**32), st.lists(st.integers(1, 5), min_size=len(LINES), max_size=len(LINES)))
def test_neither_the_order_of_rows_nor_how_they_are_split_changes_a_bill(seed: int, pieces: Sequence[int]) -> None:
    """Each line may come as several lines with parts of its hours and money, anywhere in the file."""
    split: list[Mapping[str, object]] = []
    words = ("UnblendedCost", "UsageAmount", "publicOnDemandCost", "EffectiveCost")
    amounts = sorted({name for row in LINES for name in row if name.endswith(words)})
    for row, count in zip(LINES, pieces, strict=True):
        parts = {name: Decimal(str(row[name])) for name in amounts if name in row}
        first = {name: (value / count).quantize(Decimal("0.0001")) for name, value in parts.items()}
        split += [{**row, **first}] * (count - 1)
        split.append({**row, **{name: value - first[name] * (count - 1) for name, value in parts.items()}})
    random.Random(seed).shuffle(split)

    assert bill_of(split, EUR="1.25") == bill_of(LINES, EUR="1.25")
