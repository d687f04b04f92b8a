"""The whole line with real processes: stub driver, agents, each cloud's fake over HTTP, controller, commands."""

import json
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.model.decision import NOTIFIED_TAG
from tests.support.clouds.daily_story import told
from tests.support.clouds.faults import Fault, when
from tests.support.components import loaded
from tests.support.golden_text import check
from tests.support.real.agents import eventually


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A cloud's site of real processes, and the words that its cloud has for what happens there."""

    opened: str  # the module's context manager
    stop: str  # the call
    lost: Fault = Fault.CUT  # how the stop's answer is lost on the way
    running: str
    stopped: str
    bind: Callable[[Any, str], None]  # a machine becomes one that a stop does not take off the bill
    bound: str  # why it is left alone
    never_logged: str  # of its key
    off_the_bill: str | None = None  # the cloud's word for a stop that ends the bill; None: each does, see `golden`
    golden: str | None = None  # what left for the cloud, what the ledger says, and what is billed


def prepay(word: str) -> Callable[[Any, str], None]:
    """It is paid for a year, as two clouds say it."""

    def bind(site: Any, node_id: str) -> None:  # noqa: ANN401  each cloud's own site
        site.fake.state.machines[node_id].charge = word

    return bind


def put_on_a_dedicated_host(site: Any, node_id: str) -> None:  # noqa: ANN401  Azure's site
    """A host costs the same, whatever runs on it."""
    compute = loaded("tests.support.clouds.azure.world").COMPUTE
    site.world.vm(node_id).properties["host"] = {"id": f"{compute}/hostGroups/hosts/hosts/one"}


def bind_to_a_reservation(site: Any, node_id: str) -> None:  # noqa: ANN401  Google Cloud's site
    """What is reserved costs the same without its machine."""
    site.world.told(node_id)["scheduling"]["provisioningModel"] = "RESERVATION_BOUND"


SITES = {
    "alibaba": Site(
        opened="an_alibaba_site",
        stop="StopInstance",
        running="Running",
        stopped="Stopped",
        bind=prepay("PrePaid"),
        bound="It is prepaid",
        never_logged="a-secret",
        off_the_bill="StopCharging",
    ),
    "azure": Site(
        opened="an_azure_site",
        stop="VirtualMachines_Deallocate",
        lost=Fault.RESET_AFTER,
        running="running",
        stopped="deallocated",
        bind=put_on_a_dedicated_host,
        bound="Dedicated Host",
        never_logged="hunter2",
        golden="stories/azure-processes.txt",
    ),
    "gcp": Site(
        opened="a_gcp_site",
        stop="compute.instances.stop",
        running="RUNNING",
        stopped="TERMINATED",
        bind=bind_to_a_reservation,
        bound="reserv",
        never_logged="PRIVATE KEY",
        golden="stories/gcp-processes.txt",
    ),
    "tencent": Site(
        opened="a_tencent_site",
        stop="StopInstances",
        running="RUNNING",
        stopped="STOPPED",
        bind=prepay("PREPAID"),
        bound="It is prepaid",
        never_logged="notarealkey",
        off_the_bill="STOP_CHARGING",
    ),
}


# Their adapters keep the contracts each day; the line of processes is the same for all.
EACH = [each if each == "azure" else pytest.param(each, marks=pytest.mark.nightly) for each in SITES]


@pytest.fixture(params=EACH)
def at(request: pytest.FixtureRequest, tmp_path: Path, nvml_library: Path) -> Iterator[tuple[Any, Site]]:
    """Each cloud on loopback, and nothing else yet."""
    module = loaded(f"tests.support.clouds.{request.param}.site")
    with getattr(module, SITES[request.param].opened)(tmp_path, nvml_library) as site:
        yield site, SITES[request.param]


def test_an_idle_machine_is_stopped_off_the_bill_and_a_busy_and_a_bound_one_are_left_alone(
    at: tuple[Any, Site],
) -> None:
    """From the driver to the cloud, with an answer that is lost on the way; status and explain say why."""
    site, words = at
    server = site.world.server if hasattr(site, "world") else site.server
    idle, busy, bound = site.launch("forgotten", 0.0), site.launch("trainer", 0.9), site.launch("bound", 0.0)
    words.bind(site, bound)
    server.plan.strike(words.lost, when(operation=words.stop))
    controller = site.controller(site.configure("enforce"))

    eventually(lambda: NOTIFIED_TAG in site.tags(idle), site.log)
    eventually(lambda: site.state(idle) == words.stopped, site.log)
    eventually(lambda: site.settled_stops(idle) == 1, site.log)

    assert server.count(words.stop) == 1
    assert (site.state(busy), site.state(bound)) == (words.running, words.running)
    if words.off_the_bill is not None:
        assert site.fake.state.machines[idle].stopped_mode == words.off_the_bill
    if words.golden is not None:
        check(words.golden, told(site, server, idle, busy))
    status = {row["id"]: row for row in json.loads(site.run("status", "--json").stdout)["nodes"]}
    assert (status[idle]["state"], status[busy]["activity"]) == ("stopped", "busy")
    assert words.bound in " ".join(site.run("explain", "bound").stdout.split())
    assert "the cloud shows it stopped" in site.run("explain", "forgotten").stdout
    controller.send_signal(signal.SIGTERM)
    assert controller.wait(15) == 0
    assert words.never_logged not in site.log()
