"""The whole line with real processes: stub driver, agents, Google Cloud's fake over HTTP, controller, commands."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuwatch.model.decision import NOTIFIED_TAG
from tests.support.clouds.daily_story import told
from tests.support.clouds.faults import Fault, when
from tests.support.clouds.gcp.site import GcpSite, a_gcp_site
from tests.support.golden_text import check
from tests.support.real.agents import eventually

STOP = "compute.instances.stop"


@pytest.fixture
def site(tmp_path: Path, nvml_library: Path) -> Iterator[GcpSite]:
    """The cloud on loopback, and nothing else yet."""
    with a_gcp_site(tmp_path, nvml_library) as site:
        yield site


def test_an_idle_machine_is_stopped_and_a_busy_and_a_reserved_one_are_left_alone(site: GcpSite) -> None:
    """From the driver to the cloud, with an answer that is lost on the way; then its bill stands still."""
    idle, busy, reserved = site.launch("forgotten", 0.0), site.launch("trainer", 0.9), site.launch("reserved", 0.0)
    site.world.told(reserved)["scheduling"]["provisioningModel"] = "RESERVATION_BOUND"
    server = site.world.server
    server.plan.strike(Fault.CUT, when(operation=STOP))
    controller = site.controller(site.configure("enforce"))

    eventually(lambda: NOTIFIED_TAG in site.tags(idle), site.log)
    eventually(lambda: site.state(idle) == "TERMINATED", site.log)
    eventually(lambda: site.settled_stops(idle) == 1, site.log)

    assert server.count(STOP) == 1
    assert (site.state(busy), site.state(reserved)) == ("RUNNING", "RUNNING")
    check("stories/gcp-processes.txt", told(site, server, idle, busy))
    status = {row["id"]: row for row in json.loads(site.run("status", "--json").stdout)["nodes"]}
    assert (status[idle]["state"], status[busy]["activity"]) == ("stopped", "busy")
    assert "reserv" in " ".join(site.run("explain", "reserved").stdout.split())
    assert "the cloud shows it stopped" in site.run("explain", "forgotten").stdout
    controller.send_signal(signal.SIGTERM)
    assert controller.wait(15) == 0
    assert "PRIVATE KEY" not in site.log()
