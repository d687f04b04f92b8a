"""The whole line with real processes: stub driver, agents, Tencent Cloud's fake over HTTP, controller, commands."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuwatch.model.decision import NOTIFIED_TAG
from tests.support.clouds.faults import Fault, when
from tests.support.clouds.tencent.site import TencentSite, a_tencent_site
from tests.support.real.agents import eventually


@pytest.fixture
def site(tmp_path: Path, nvml_library: Path) -> Iterator[TencentSite]:
    """The cloud on loopback, and nothing else yet."""
    with a_tencent_site(tmp_path, nvml_library) as site:
        yield site


def test_an_idle_machine_is_stopped_off_the_bill_and_a_busy_and_a_prepaid_one_are_left_alone(
    site: TencentSite,
) -> None:
    """From the driver to the cloud, with an answer that is lost on the way; status and explain say why."""
    idle, busy, prepaid = site.launch("forgotten", 0.0), site.launch("trainer", 0.9), site.launch("yearly", 0.0)
    site.fake.state.machines[prepaid].charge = "PREPAID"
    assert site.server is not None
    site.server.plan.strike(Fault.CUT, when(operation="StopInstances"))
    controller = site.controller(site.configure("enforce"))

    eventually(lambda: NOTIFIED_TAG in site.tags(idle), site.log)
    eventually(lambda: site.state(idle) == "STOPPED", site.log)
    eventually(lambda: site.settled_stops(idle) == 1, site.log)

    assert site.fake.state.machines[idle].stopped_mode == "STOP_CHARGING"
    assert site.server.count("StopInstances") == 1
    assert (site.state(busy), site.state(prepaid)) == ("RUNNING", "RUNNING")
    status = {row["id"]: row for row in json.loads(site.run("status", "--json").stdout)["nodes"]}
    assert (status[idle]["state"], status[busy]["activity"]) == ("stopped", "busy")
    assert "It is prepaid" in " ".join(site.run("explain", "yearly").stdout.split())
    assert "the cloud shows it stopped" in site.run("explain", "forgotten").stdout
    controller.send_signal(signal.SIGTERM)
    assert controller.wait(15) == 0
    assert "notarealkey" not in site.log()
