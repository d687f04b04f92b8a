"""The doctor and local disks: on a host what is on them, at the controller which pool needs a decision."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.agent.settings import AgentSettings
from gpuwatch.cli.doctor import host as doctor
from gpuwatch.cli.doctor import signals
from gpuwatch.cli.doctor.context import AgentCase
from gpuwatch.config.settings import Settings
from gpuwatch.model.activity import LocalDisks
from gpuwatch.model.fleet import Node, NodeReport
from gpuwatch.policies import PoolRules
from gpuwatch.policies.idle import IdleRules
from gpuwatch.runtime.clock import SystemClock
from tests.support.builders.doctor_findings import codes, the
from tests.support.builders.fleet import a_node, a_verdict
from tests.support.fakes import disk_hosts as hosts
from tests.support.fakes.disks import DiskHost


def a_host(made: DiskHost, source: str = "nvml") -> AgentCase:
    """The doctor's view of a host of folders."""
    roots = made.roots
    return AgentCase(
        settings=AgentSettings(source=source),  # type: ignore[arg-type]
        clock=SystemClock(),
        dev=roots.dev,
        proc=roots.proc,
        sys=roots.sys,
        run=roots.run,
    )


def test_what_is_on_local_disks_is_said(tmp_path: Path) -> None:
    """With the disk and the reason, where there is one."""
    made = DiskHost(tmp_path)
    without = the(doctor.local_disks(a_host(made)), "local_disks")
    hosts.raw_database(made)
    used = the(doctor.local_disks(a_host(made)), "local_disks")

    assert without.seen == "none"
    assert used.seen == "used: nvme1n1: it was written to since the boot"


def test_local_disks_that_cannot_be_seen_are_a_warning(tmp_path: Path) -> None:
    """A container without the host's /run/udev; an agent of simulated GPUs does not look."""
    made = DiskHost(tmp_path)
    hosts.no_database(made)

    finding = the(doctor.local_disks(a_host(made)), "local_disks.unseen")
    assert "udev" in finding.seen
    assert codes(doctor.local_disks(a_host(made, "simulated"))) == []


def a_machine(node_id: str, local_disks: LocalDisks | None, **other: object) -> Node:
    """Of a type with instance store."""
    verdict = replace(a_verdict(node_id), local_disks=local_disks)
    facts: dict[str, Any] = {"instance_store": True, "signal": NodeReport(verdict=verdict), **other}
    return a_node(node_id, **facts)


def undecided(*nodes: Node, **rules: object) -> list[str]:
    """The findings' words."""
    pool = PoolRules(idle=IdleRules(**rules))  # type: ignore[arg-type]
    settings = Settings(fleet="lab", pools={"default": pool, "training": pool})
    return [each.seen for each in signals.undecided_disks(settings, nodes)]


def test_a_pool_whose_machines_use_local_disks_needs_a_decision() -> None:
    """One sentence a pool, with the machines and the exact key."""
    words = undecided(
        a_machine("i-1", LocalDisks.USED),
        a_machine("i-2", LocalDisks.UNUSED),
        a_machine("i-3", None, pool="training"),
    )

    assert len(words) == 2
    assert "i-1" in words[0]
    assert "i-2" not in words[0]
    assert "pools.default.idle.instance_store" in words[0]
    assert "pools.training.idle.instance_store" in words[1]


@pytest.mark.parametrize("decision", ["keep", "discard"])
def test_a_decision_ends_the_question(decision: str) -> None:
    """Either one."""
    assert undecided(a_machine("i-1", LocalDisks.USED), instance_store=decision) == []


@pytest.mark.parametrize(
    "node",
    [
        a_machine("i-1", LocalDisks.UNUSED),
        a_machine("i-1", LocalDisks.NONE),
        a_machine("i-1", LocalDisks.USED, instance_store=False),
        a_machine("i-1", LocalDisks.USED, enrolled=False),
        a_machine("i-1", None, signal=NodeReport(failure="no answer")),
    ],
)
def test_nothing_to_decide(node: Node) -> None:
    """Nothing is lost, it is not ours, or it is silent, which is another finding."""
    assert undecided(node) == []
