"""Rounds that bill: nodes at a price an hour."""

from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal

from gpuwatch.model.decision import Observation
from gpuwatch.model.fleet import Node, NodeReport, State
from gpuwatch.model.money import Price
from tests.fleets import a_node, a_verdict, an_observation


def a_round(at: datetime, *nodes: Node, usd: str | None = "10", as_of: date = date(2026, 1, 1)) -> Observation:
    """These nodes at one price an hour; without any, one node with two GPUs that has been busy for long."""
    if not nodes:
        nodes = (a_busy_node("i-1", at),)
    price = None if usd is None else Price(usd_per_hour=Decimal(usd), as_of=as_of, source="a list")
    kinds = {} if price is None else {node.instance_type: price for node in nodes}
    return replace(an_observation(*nodes, now=at), prices=kinds)


def a_busy_node(name: str, at: datetime) -> Node:
    """Two GPUs, both at work."""
    return a_node(name, gpu_count=2, signal=NodeReport(verdict=a_verdict(name, State.BUSY, 9000.0, gpus=2, at=at)))
