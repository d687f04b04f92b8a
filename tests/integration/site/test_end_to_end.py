"""The whole line with real processes: stub driver, agents, EC2 played by moto over HTTP, controller, command line."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuwatch.model.decision import NOTIFIED_TAG
from tests.support.real.agents import eventually
from tests.support.real.local_site import Site, a_site


@pytest.fixture
def site(tmp_path: Path, nvml_library: Path) -> Iterator[Site]:
    """EC2 on loopback, and nothing else yet."""
    with a_site(tmp_path, nvml_library) as site:
        yield site


def test_an_idle_instance_is_stopped_a_busy_one_is_left_alone_and_one_can_read_why(site: Site) -> None:
    """From the driver to EC2: observe first, then enforce; plan, status and explain tell the same story."""
    idle, busy = site.launch("forgotten", 0.0), site.launch("trainer", 0.9)
    protected = site.launch("demo-day", 0.0, gpuwatch__protect="true")
    site.configure("observe")

    both = (f"may not notice {idle} (forgotten)", f"may not notice {protected} (demo-day)")
    eventually(lambda: all(each in site.run("plan").stdout for each in both), lambda: site.run("plan").stdout)
    plan = site.run("plan").stdout
    assert "observe_only: This controller only observes." in plan
    assert "protected:" in plan
    assert (NOTIFIED_TAG in site.tags(idle), site.state(idle)) == (False, "running")

    controller = site.controller(site.configure("enforce"))
    eventually(lambda: NOTIFIED_TAG in site.tags(idle), site.log)
    eventually(lambda: site.state(idle) == "stopped", site.log)
    eventually(lambda: site.settled_stops(idle) == 1, site.log)

    assert (site.state(busy), site.state(protected)) == ("running", "running")
    status = {row["id"]: row for row in json.loads(site.run("status", "--json").stdout)["nodes"]}
    assert status[busy]["activity"] == "busy"
    assert status[idle]["state"] == "stopped"
    text = site.run("explain", "trainer").stdout
    assert "gpu0.utilization_max busy 90 %, limit 1 %" in " ".join(text.split())
    assert "refuses  busy" in text
    assert "What would change it: It would have to be idle for 2s." in text
    story = site.run("explain", "forgotten").stdout
    assert "the cloud shows it stopped" in story
    assert "promised a stop not before" in story

    controller.send_signal(signal.SIGTERM)
    assert controller.wait(15) == 0


def test_a_machine_that_goes_back_to_work_keeps_running(site: Site) -> None:
    """Work in the grace period withdraws the notice, in the tags and in the ledger."""
    node = site.launch("trainer", 0.0)
    config = site.configure("enforce")
    site.controller(config)
    eventually(lambda: NOTIFIED_TAG in site.tags(node), site.log)
    site.drivers[node].gpu(0).utilization(1.0)

    eventually(lambda: site.tags(node)[NOTIFIED_TAG].startswith("withdrawn"), site.log)
    assert site.state(node) == "running"


@pytest.mark.nightly  # kubernetes/test_site.py kills one between its cordon and its stop
def test_a_controller_killed_with_minus_nine_goes_on_where_it_was(site: Site) -> None:
    """Killed after the notice: the next one finds the notice in the ledger, and stops the machine exactly once."""
    node = site.launch("forgotten", 0.0)
    config = site.configure("enforce")
    first = site.controller(config)
    eventually(lambda: NOTIFIED_TAG in site.tags(node), site.log)
    notice = site.tags(node)[NOTIFIED_TAG]
    first.kill()
    first.wait()
    site.controller(config)

    eventually(lambda: site.state(node) == "stopped", site.log)
    eventually(lambda: site.settled_stops(node) == 1, site.log)
    assert site.tags(node)[NOTIFIED_TAG] == notice


def _doubt(site: Site) -> str:
    """Why the use of the first node is unknown; nothing where the command could not answer."""
    nodes = json.loads(site.run("status", "--json").stdout or '{"nodes": [{}]}')["nodes"]
    return nodes[0].get("doubt") or ""


def test_a_silent_agent_keeps_its_machine_running(site: Site) -> None:
    """An agent that is gone, or hangs, is unknown: its idle machine stays up, and status says why."""
    node = site.launch("forgotten", 0.0)
    site.targets[node] = "http://127.0.0.1:9"  # the discard port: nobody answers
    site.controller(site.configure("enforce"))

    eventually(
        lambda: "could not be asked" in _doubt(site),
        lambda: site.run("status").stdout,
    )
    assert site.state(node) == "running"
    assert "refuses  unknown" in site.run("explain", node).stdout
