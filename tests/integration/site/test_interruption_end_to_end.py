"""A notice on a real agent's metadata service, through to the replacement: agent, EC2 by moto, controller, ledger."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from gpuwatch.clouds import FLEET_TAG
from gpuwatch.runtime.clock import SystemClock
from tests.support.fakes.metadata_host import SPOT
from tests.support.fakes.metadata_services import EC2_DOCUMENT, Ec2, serving
from tests.support.real.agents import eventually
from tests.support.real.local_site import Site, a_site

SAVES = 'echo "checkpoint=$(date -u +%Y-%m-%dT%H:%M:%SZ)" > "$GPUWATCH_NOTICE_CHECKPOINT_FILE"'


@pytest.fixture
def site(tmp_path: Path, nvml_library: Path) -> Iterator[Site]:
    """EC2 on loopback, and nothing else yet."""
    with a_site(tmp_path, nvml_library) as site:
        yield site


def alive(site: Site) -> set[str]:
    """The machines that EC2 has and that are not gone."""
    found = [each for page in site.ec2.describe_instances()["Reservations"] for each in page["Instances"]]
    return {str(each["InstanceId"]) for each in found if each["State"]["Name"] in {"pending", "running"}}


def verbs(site: Site, node_id: str) -> list[str]:
    """What the ledger has of a node, oldest first."""
    return [each.intent.verb for each in reversed(site.history(node_id))]


def test_a_notice_on_the_metadata_service_brings_one_replacement(site: Site, tmp_path: Path) -> None:
    """While the machine still works; its program saves the work, and the ledger has both."""
    image = site.ec2.register_image(Name="image")["ImageId"]
    site.ec2.create_launch_template(
        LaunchTemplateName="trainer",
        LaunchTemplateData={
            "ImageId": image,
            "InstanceType": "g4dn.xlarge",
            "TagSpecifications": [{"ResourceType": "instance", "Tags": [{"Key": FLEET_TAG, "Value": "lab"}]}],
        },
    )
    with serving(Ec2()) as service:
        site.agent = {
            "metadata__provider": "aws",
            "metadata__endpoint": service.url,
            "metadata__interval": 0.2,
            "metadata__state": str(tmp_path / "run" / "notices.json"),
            "metadata__on_interruption": f"/bin/sh,-c,{SAVES}",
        }
        node = site.launch("trainer", 0.9)
        service.documents["/latest/dynamic/instance-identity/document"] = EC2_DOCUMENT
        pool = {"warm_up": "0s", "schedule": {"always": {"min_nodes": 1}}, "launch": {"template": "trainer"}}
        site.controller(site.configure("enforce", more={"pools": {"default": {**pool, "max_nodes": 1}}}))
        eventually(lambda: node in site.run("status", "--json").stdout, site.log)
        assert alive(site) == {node}

        deadline = SystemClock().now() + timedelta(seconds=90)
        service.documents[SPOT] = f'{{"action": "terminate", "time": "{deadline:%Y-%m-%dT%H:%M:%SZ}"}}'
        eventually(lambda: len(alive(site)) == 2, site.log)
        assert site.state(node) == "running"
        eventually(lambda: verbs(site, node)[:1] == ["interruption"], site.log)
        eventually(lambda: '"checkpoint"' in site.run("explain", node, "--json").stdout, site.log)

        site.ec2.stop_instances(InstanceIds=[node])  # an interruption may stop a machine
        eventually(lambda: verbs(site, node)[-1:] == ["lost"], site.log)
        assert len(alive(site)) == 1
        text = site.run("explain", "trainer").stdout
        assert "GPU-hours of work since its last checkpoint are lost" in " ".join(text.split())
