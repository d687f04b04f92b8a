"""The whole line with real processes: stub driver, agents, the pretended Azure over HTTPS, controller, commands."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuwatch.model.decision import NOTIFIED_TAG
from tests.support.clouds.azure.site import AzureSite, an_azure_site
from tests.support.clouds.azure.tokens import SECRET
from tests.support.clouds.azure.world import COMPUTE
from tests.support.clouds.daily_story import told
from tests.support.clouds.faults import Fault, when
from tests.support.golden_text import check
from tests.support.real.agents import eventually

DEALLOCATE = "VirtualMachines_Deallocate"


@pytest.fixture
def site(tmp_path: Path, nvml_library: Path) -> Iterator[AzureSite]:
    """The cloud on loopback, and nothing else yet."""
    with an_azure_site(tmp_path, nvml_library) as site:
        yield site


def test_an_idle_machine_is_deallocated_and_a_busy_and_a_host_bound_one_are_left_alone(site: AzureSite) -> None:
    """From the driver to the cloud, with an answer that is lost on the way; then its bill stands still."""
    idle, busy, bound = site.launch("forgotten", 0.0), site.launch("trainer", 0.9), site.launch("bound", 0.0)
    site.world.vm(bound).properties["host"] = {"id": f"{COMPUTE}/hostGroups/hosts/hosts/one"}
    server = site.world.server
    server.plan.strike(Fault.RESET_AFTER, when(operation=DEALLOCATE))
    controller = site.controller(site.configure("enforce"))

    eventually(lambda: NOTIFIED_TAG in site.tags(idle), site.log)
    eventually(lambda: site.state(idle) == "deallocated", site.log)
    eventually(lambda: site.settled_stops(idle) == 1, site.log)

    assert server.count(DEALLOCATE) == 1
    assert (site.state(busy), site.state(bound)) == ("running", "running")
    check("stories/azure-processes.txt", told(site, server, idle, busy))
    status = {row["id"]: row for row in json.loads(site.run("status", "--json").stdout)["nodes"]}
    assert (status[idle]["state"], status[busy]["activity"]) == ("stopped", "busy")
    assert "Dedicated Host" in " ".join(site.run("explain", "bound").stdout.split())
    assert "the cloud shows it stopped" in site.run("explain", "forgotten").stdout
    controller.send_signal(signal.SIGTERM)
    assert controller.wait(15) == 0
    assert SECRET not in site.log()
