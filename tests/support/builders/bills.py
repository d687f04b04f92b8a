"""Bills as clouds write them: a table of rows, each a mapping of the columns that matter; the rest is empty."""

import csv
import io
from collections.abc import Mapping, Sequence

from gpuwatch.money.bill.parse import Columns

LEGACY_CUR = Columns(
    node="lineItem/ResourceId",
    start="lineItem/UsageStartDate",
    cost="lineItem/UnblendedCost",
    end="lineItem/UsageEndDate",
    currency="lineItem/CurrencyCode",
    usage="lineItem/UsageType",
    hours="lineItem/UsageAmount",
    line="lineItem/LineItemType",
)
CUR_2 = Columns(
    node="line_item_resource_id",
    start="line_item_usage_start_date",
    cost="line_item_unblended_cost",
    end="line_item_usage_end_date",
    currency="line_item_currency_code",
    usage="line_item_usage_type",
    hours="line_item_usage_amount",
    line="line_item_line_item_type",
)


def table(rows: Sequence[Mapping[str, object]]) -> str:
    """A CSV table with every column that a row has."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    made = csv.DictWriter(text, names, restval="", lineterminator="\n")
    made.writeheader()
    made.writerows(rows)
    return text.getvalue()


def snake_case(legacy: str) -> str:
    """The name of CUR 2.0 for a legacy column: `lineItem/ResourceId` is `line_item_resource_id`."""
    letters = "".join(f"_{each.lower()}" if each.isupper() else each for each in legacy.replace("/", "_"))
    return letters.replace("__", "_")


def cur_line(node: str, hour: int, kind: str = "Usage", **more: object) -> dict[str, object]:
    """An hour of a p4d.24xlarge on 2026-03-02 in a legacy report at $32.7726; `more` by the column's last word."""
    named = {name if "/" in name else f"lineItem/{name}": value for name, value in more.items()}
    return {
        "lineItem/ResourceId": node,
        "lineItem/UsageStartDate": f"2026-03-02T{hour:02}:00:00Z",
        "lineItem/UsageEndDate": f"2026-03-02T{hour:02}:59:59Z",
        "lineItem/LineItemType": kind,
        "lineItem/UsageType": "BoxUsage:p4d.24xlarge",
        "lineItem/UsageAmount": "1",
        "lineItem/UnblendedCost": "32.7726",
        "lineItem/CurrencyCode": "USD",
        "pricing/publicOnDemandCost": "32.7726",
        "product/instanceType": "p4d.24xlarge",
        "product/regionCode": "us-east-1",
        **named,
    }


def focus_line(node: str, hour: int, **more: object) -> dict[str, object]:
    """An hour of a p4d.24xlarge on 2026-03-02 in FOCUS 1.2, on demand at list price."""
    return {
        "ResourceId": node,
        "ResourceType": "EC2 Instance",
        "ServiceCategory": "Compute",
        "ServiceSubcategory": "Virtual Machines",
        "ChargePeriodStart": f"2026-03-02T{hour:02}:00:00Z",
        "ChargePeriodEnd": f"2026-03-02T{hour + 1:02}:00:00Z",
        "ChargeCategory": "Usage",
        "ChargeClass": "null",
        "BilledCost": "32.7726",
        "EffectiveCost": "32.7726",
        "ListCost": "32.7726",
        "ContractedCost": "32.7726",
        "PricingQuantity": "1",
        "PricingUnit": "Hours",
        "PricingCategory": "Standard",
        "BillingCurrency": "USD",
        "RegionId": "us-east-1",
        "SkuPriceDetails": '{"InstanceType":"p4d.24xlarge"}',
        **more,
    }
