"""PURE: the lines of Alibaba Cloud's bills by instance and by billing item, with English, Chinese or API column names.

Rules, by alibabacloud.com/help, "Instance bill" and "Split bill":

1. An hour costs the amount after discounts and before taxes: PretaxGrossAmount less InvoiceDiscount, or PretaxAmount
   with the coupons that it lacks; or the amortized amount, where the bill has it. The list price is PretaxGrossAmount.
   Coupons (vouchers) are credits, and no price. Times without an offset are China's.
2. What savings plans and packages take off is part of the bill as a deduction: such a line's hours are committed, and
   without an amortized amount its cost is not known.
3. Subscriptions are paid for ahead: without an amortized amount they are fees.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta, timezone
from decimal import Decimal

from gpuwatch.money.bill.charge import CREDITS, EGRESS, OTHER, REFUNDS, Charge, LocalDay, Row, day_of

_GROSS = ("pretaxgrossamount", "官网价", "目录总价", "listprice")
REQUIRED_ANY = (
    ("instanceid", "实例id", "资产资源实例id"),
    ("pretaxamount", "应付金额", "amountdue"),
)
_DISCOUNT = ("invoicediscount", "优惠金额", "discountamount")
_CHINA = timezone(timedelta(hours=8))
_AMORTIZED = ("amortizedpretaxamount", "amortizedamount", "分摊应付金额", "currentmonthamortizedpretaxamount")
_DAY = ("billingdate", "账单日期", "消费时间", "usagestarttime", "starttime", "开始时间", "date", "日期")
_DEDUCTED = (
    "deductedbyresourcepackage",
    "deductedbysavingsplan",
    "savingsplandeductedamount",
    "资源包抵扣",
    "节省计划抵扣金额",
    "节省计划抵扣",
)
_COUPONS = ("deductedbycoupons", "优惠券抵扣", "代金券抵扣", "deductedbycashcoupons")
_ECS = re.compile(r"ecs|elastic compute|云服务器", re.IGNORECASE)
_INSTANCE = re.compile(r"instance|ecs\.|computing|规格|实例|cloud_server", re.IGNORECASE)
_APART = re.compile(r"disk|traffic|bandwidth|snapshot|image|磁盘|云盘|流量|带宽|快照|镜像", re.IGNORECASE)
_REGION = re.compile(r"[a-z]{2}(-[a-z0-9]+)+")
_HOURS = re.compile(r"hours?|小时|h", re.IGNORECASE)
_SECONDS = re.compile(r"seconds?|秒|s", re.IGNORECASE)


def is_alibaba(row: Row) -> bool:
    """Whether the columns are those of such a bill."""
    return all(row.has(*names) for names in REQUIRED_ANY)


def alibaba_charges(row: Row, local_day: LocalDay) -> Iterator[Charge]:
    """What one line says: nothing, one thing, or that and its coupons."""
    begin, written = row.time(*_DAY, zone=_CHINA), row.text(*_DAY)
    amortized, coupons = row.number(*_AMORTIZED), row.amount(*_COUPONS)
    made = Charge(
        resource=row.text("instanceid", "实例id", "资产资源实例id").split(";")[0],
        day=begin.date(),
        cost=_price(row) if amortized is None else amortized,
        currency=row.text("currency", "币种") or "CNY",
        machine=False,
        hours=None,
        plain=True,
    )
    if coupons:
        yield replace(made, cost=-coupons, kind=CREDITS, plain=False)
    item = row.text("billingitem", "billingitemname", "计费项", "计费项名称")
    product = f"{row.text('productcode', '产品code')} {row.text('productname', '产品', 'product')}"
    if row.text("item", "billtype", "账单类型") in {"Refund", "退款"} or made.cost < 0:
        made = replace(made, kind=REFUNDS, plain=False)
    elif _APART.search(item):
        made = replace(made, kind=EGRESS if re.search("out|流出|流量", item) else OTHER)
    elif (_ECS.search(product) or not product.strip()) and (not item or _INSTANCE.search(item)):
        ahead = row.text("subscriptiontype", "付费类型", "消费类型").casefold() in {
            "subscription",
            "预付费",
            "包年包月",
        }
        if ahead and amortized is None:
            made = replace(made, fee=True, plain=False)
        else:
            made = _machine(row, replace(made, day=day_of(begin, None, local_day, row.line, dated=True)), amortized)
            if len(written) > len("2026-03-01"):
                made = replace(made, day=local_day(begin))
    if made.cost or made.hours:
        yield made


def _price(row: Row) -> Decimal:
    """What is to be paid before coupons (rule 1)."""
    gross, discount = row.number(*_GROSS), row.number(*_DISCOUNT)
    if gross is not None and discount is not None:
        return gross - discount - row.amount(*_DEDUCTED)
    return row.amount("pretaxamount", "应付金额", "amountdue") + row.amount(*_COUPONS)


def _machine(row: Row, common: Charge, amortized: Decimal | None) -> Charge:
    """What an hour of a machine costs."""
    deducted = row.amount(*_DEDUCTED)
    quantity, unit = row.number("usage", "用量"), row.text("usageunit", "用量单位")
    hours = None
    if quantity is not None and _HOURS.fullmatch(unit):
        hours = quantity
    elif quantity is not None and _SECONDS.fullmatch(unit):
        hours = quantity / 3600
    region = row.text("regionid", "region", "地域", "地域code")
    return replace(
        common,
        machine=True,
        hours=hours,
        plain=not deducted,
        committed=bool(deducted),
        amortized=not deducted or amortized is not None,
        list_cost=row.number(*_GROSS),
        region=region if _REGION.fullmatch(region) else None,
        instance_type=row.text("instancespec", "实例规格", "spec") or None,
        spot=row.text("spotinstance", "抢占式实例").casefold() in {"true", "yes", "是"},
    )
